//! Names the networks that a request comes from, in a header.
//!
//! Configured as `envoy.extensions.filters.http.ip_tagging.v3.IPTagging`, for the whole gateway only, as in Envoy. The
//! address is the client's as far as forwarding headers are trusted.

mod file;
mod networks;

use std::rc::Rc;
use std::sync::Arc;

use postrider_filter_api::{
    Action, ConfigError, Factory, Filter, Hooks, Place, RouteConfig, ScopedConfigs, State, Stream, WatchedFile,
};
use postrider_http::{HeaderId, HeaderName};
use postrider_model::{Cidr, Reading, Value, ValueError, network};
use postrider_telemetry::Block;

use crate::read;
use networks::Networks;

pub(crate) const KIND: &str = "envoy.extensions.filters.http.ip_tagging.v3.IPTagging";

/// Where tags go that have no header of their own.
const HEADER: &str = "x-envoy-ip-tags";

/// Reads a gateway-level configuration.
pub(crate) fn build(_name: &str, value: &Value) -> Result<Arc<dyn Factory>, ConfigError> {
    let mut files = Vec::new();
    let config = Reading::all(value, |at| Config::read(at, &mut files))?.ok_or_else(Vec::new)?;
    Ok(Arc::new(IpTagging { config: Arc::new(config), files }))
}

struct IpTagging {
    config: Arc<Config>,
    files: Vec<WatchedFile>,
}

#[derive(Debug)]
struct Config {
    which: Which,
    tags: Vec<String>,
    networks: Networks,
    header: HeaderName,
    /// What a request says of itself under that name is dropped.
    sanitizes: bool,
}

/// Which requests are tagged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Which {
    All,
    Internal,
    External,
}

impl Config {
    fn read(at: &mut Reading<'_>, files: &mut Vec<WatchedFile>) -> Option<Config> {
        let which = match at.text("request_type") {
            Some("INTERNAL") => Which::Internal,
            Some("EXTERNAL") => Which::External,
            _ => Which::All,
        };
        let from_file = at.map("ip_tags_datasource", |at| file::read(at, files));
        if from_file.is_some() && at.has("ip_tags") {
            at.error("ip_tags_datasource", "ip_tags and ip_tags_datasource exclude each other");
        }
        let listed = match from_file {
            Some(listed) => listed?,
            None => tags(at),
        };
        if listed.is_empty() {
            at.wrong("at least one of ip_tags is required, here or in the file of ip_tags_datasource");
        }
        let own = at.map("ip_tag_header", |at| {
            let name = read::own_header(at, "header");
            if name.is_none() && !at.has("header") {
                at.error("header", "the name of a header is required");
            }
            (name, at.text("action") != Some("APPEND_IF_EXISTS_OR_ADD"))
        });
        let (header, sanitizes) = match own {
            Some((name, sanitizes)) => (name?, sanitizes),
            None => (HeaderName::new(HEADER.as_bytes()).ok()?, false),
        };
        let mut tags: Vec<String> = Vec::new();
        let mut all: Vec<(Cidr, usize)> = Vec::new();
        for (name, list) in listed {
            let tag = tags.iter().position(|known| *known == name).unwrap_or_else(|| {
                tags.push(name);
                tags.len() - 1
            });
            all.extend(list.into_iter().flatten().map(|network| (network, tag)));
        }
        Some(Config { which, tags, networks: Networks::new(&all), header, sanitizes })
    }
}

/// `ip_tags`.
fn tags(at: &mut Reading<'_>) -> Vec<Tag> {
    at.each("ip_tags", |at| {
        let name = at.text("ip_tag_name").unwrap_or_default().to_owned();
        if !postrider_http::is_field_value(name.as_bytes()) {
            at.error("ip_tag_name", "a header value cannot hold control characters");
        }
        (name, at.each("ip_list", network))
    })
}

/// What networks are called; one that is wrong was told of.
type Tag = (String, Vec<Option<Cidr>>);

impl Factory for IpTagging {
    fn route_config(&self, _: &str, _: &Value) -> Result<RouteConfig, ConfigError> {
        let message = "ip_tagging cannot be configured for a route".to_owned();
        Err(vec![ValueError { path: String::new(), message }])
    }

    fn filter(&self, _: &ScopedConfigs, place: &Place<'_>) -> Rc<dyn Filter> {
        let prefix = format!("{}.ip_tagging", place.stat_prefix);
        let hits = self.config.tags.iter().map(|tag| place.stats.block(&tag_stat::SET, &format!("{prefix}.{tag}")));
        Rc::new(Tagger {
            hits: hits.collect(),
            stats: place.stats.block(&stat::SET, &prefix),
            config: self.config.clone(),
        })
    }

    fn files(&self) -> &[WatchedFile] {
        &self.files
    }
}

postrider_telemetry::stat_set! {
    /// Requests that were looked at; prefix: the connection manager's, then `ip_tagging`.
    mod stat = "http";
    lazy_counters { TOTAL = "total", NO_HIT = "no_hit" }
}

postrider_telemetry::stat_set! {
    /// Requests from a tag's networks; prefix: as above, then the tag.
    mod tag_stat = "http";
    lazy_counters { HIT = "hit" }
}

/// The filter on one worker.
struct Tagger {
    config: Arc<Config>,
    stats: Rc<Block>,
    /// One for each tag.
    hits: Vec<Rc<Block>>,
}

impl Filter for Tagger {
    fn hooks(&self) -> Hooks {
        Hooks { request_headers: true, ..Hooks::default() }
    }

    fn on_request_headers(&self, _: &mut State, stream: &mut Stream<'_>, _end: bool) -> Action {
        let config = &*self.config;
        let is_internal = stream.request.fields.has(HeaderId::XEnvoyInternal);
        if config.which == Which::Internal && !is_internal || config.which == Which::External && is_internal {
            return Action::Done;
        }
        let fields = &mut stream.request.fields;
        let mut changed = config.sanitizes && fields.remove_header(&config.header);
        let found = stream.info.downstream_remote.map(|client| config.networks.find(client.ip())).unwrap_or_default();
        self.stats.inc(stat::TOTAL);
        if found.is_empty() {
            self.stats.inc(stat::NO_HIT);
        } else {
            let before = fields.find_all(&config.header).map(<[u8]>::to_vec);
            let names = found.iter().filter_map(|tag| config.tags.get(*tag)).map(|name| name.clone().into_bytes());
            let value = before.chain(names).collect::<Vec<_>>().join(&b',');
            // A head that holds no more stays as it is.
            changed |= fields.set_header(&config.header, &value).is_ok();
            for hit in found.iter().filter_map(|tag| self.hits.get(*tag)) {
                hit.inc(tag_stat::HIT);
            }
        }
        stream.info.route_is_stale |= changed;
        Action::Done
    }
}

#[cfg(test)]
mod tests;
