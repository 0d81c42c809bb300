//! Compresses answers for clients that want it, and requests where that is configured.
//!
//! Configured as `envoy.extensions.filters.http.compressor.v3.Compressor`; virtual hosts and routes say more by
//! `CompressorPerRoute`. What is compressed is decided as Envoy 1.40 decides it, with the same fields and counters. Of
//! several compressors in one chain, the client's wishes choose one: they find each other through the stream.

mod choice;
mod config;

use std::rc::Rc;
use std::sync::Arc;

use postrider_filter_api::{
    Action, ConfigError, Factory, Filter, Flow, Hooks, LocalReply, Place, RouteConfig, ScopedConfigs, State, Stream,
    WatchedFile, Withheld,
};
use postrider_http::{Fields, HeaderId, Method, list_members, trim_ows};
use postrider_model::{Value, ValueError};
use postrider_telemetry::Block;

use crate::compression::{Compressor, Passing, forbids_transforming, joined};
use choice::{Chain, Decision, Offer, Reason, choose};
use config::{Config, ContentTypes, Direction, Override};

pub(crate) const KIND: &str = "envoy.extensions.filters.http.compressor.v3.Compressor";
const ROUTE_KIND: &str = "envoy.extensions.filters.http.compressor.v3.CompressorPerRoute";

const STATUS: &[u8] = b"x-envoy-compression-status";

/// Reads a gateway-level configuration.
pub(crate) fn build(_name: &str, value: &Value) -> Result<Arc<dyn Factory>, ConfigError> {
    Ok(Arc::new(Compressing(config::read(value)?)))
}

struct Compressing(Config);

impl Factory for Compressing {
    fn route_config(&self, kind: &str, value: &Value) -> Result<RouteConfig, ConfigError> {
        if kind != ROUTE_KIND {
            let message = format!("compressor is overridden by {ROUTE_KIND}, not by {kind}");
            return Err(vec![ValueError { path: String::new(), message }]);
        }
        let (own, files) = config::read_route(value)?;
        Ok(RouteConfig { files, ..RouteConfig::new(own, value) })
    }

    fn filter(&self, configs: &ScopedConfigs, place: &Place<'_>) -> Rc<dyn Filter> {
        Rc::new(self.packer(configs, place, false))
    }

    fn shadow_filter(&self, configs: &ScopedConfigs, place: &Place<'_>, _: &Rc<Withheld>) -> Rc<dyn Filter> {
        Rc::new(self.packer(configs, place, true))
    }

    fn files(&self) -> &[WatchedFile] {
        &self.0.files
    }
}

impl Compressing {
    fn packer(&self, configs: &ScopedConfigs, place: &Place<'_>, in_shadow: bool) -> Packer {
        let own = configs.most_specific::<Override>();
        let mut config = self.0.clone();
        let library = &self.0.library;
        let root = format!("{}.compressor.{}.{}", place.stat_prefix, library.name, library.stat_name());
        let of_answers = if config.response.is_written { format!("{root}.response") } else { root.clone() };
        let stats = Stats {
            requests: place.stats.block(&direction::SET, &format!("{root}.request")),
            answers: place.stats.block(&direction::SET, &of_answers),
            wishes: place.stats.block(&wishes::SET, &root),
        };
        if let Some(own) = own {
            config.response.common.enabled = own.enabled.unwrap_or(config.response.common.enabled);
            let removes = own.remove_accept_encoding.unwrap_or(config.response.remove_accept_encoding);
            config.response.remove_accept_encoding = removes;
            config.library = own.library.clone().unwrap_or(config.library);
        }
        let offer = Offer {
            encoding: config.library.encoding(),
            choose_first: config.choose_first,
            content_types: config::shared(&config.response.common.content_types),
        };
        Packer { config, offer, stats, in_shadow }
    }
}

postrider_telemetry::stat_set! {
    /// Messages and bytes of one direction; prefix: the connection manager's, then `compressor`, the library's name, its
    /// kind, and the direction where it is configured by itself.
    mod direction = "http";
    counters {
        COMPRESSED = "compressed", NOT_COMPRESSED = "not_compressed",
        UNCOMPRESSED_BYTES = "total_uncompressed_bytes", COMPRESSED_BYTES = "total_compressed_bytes",
        TOO_SMALL = "content_length_too_small",
    }
}

postrider_telemetry::stat_set! {
    /// What clients wanted; prefix: as above, without a direction.
    mod wishes = "http";
    counters {
        NO_ACCEPT_HEADER = "no_accept_header", IDENTITY = "header_identity", USED = "header_compressor_used",
        OVERSHADOWED = "header_compressor_overshadowed", WILDCARD = "header_wildcard", NOT_VALID = "header_not_valid",
        ETAG = "not_compressed_etag",
    }
}

struct Stats {
    requests: Rc<Block>,
    answers: Rc<Block>,
    wishes: Rc<Block>,
}

/// The filter on one worker, as one route sees it.
struct Packer {
    config: Config,
    offer: Offer,
    stats: Stats,
    /// It takes nothing away from the chain's other compressors.
    in_shadow: bool,
}

/// One stream.
#[derive(Default)]
struct Exchange {
    /// What the client accepts, as it was before anybody changed it here.
    accept: Option<Vec<u8>>,
    chain: Rc<Chain>,
    request: Option<Passing>,
    response: Option<Passing>,
}

/// Why an answer stays as it is, for the header that says so.
enum Obstacle {
    Length,
    ContentType,
    Etag,
    Status,
}

impl Filter for Packer {
    fn hooks(&self) -> Hooks {
        let requests = self.config.request.is_some();
        Hooks {
            request_headers: true,
            request_body: requests,
            request_trailers: requests,
            response_headers: true,
            response_body: true,
            response_trailers: true,
            ..Hooks::default()
        }
    }

    fn on_request_headers(&self, state: &mut State, stream: &mut Stream<'_>, end: bool) -> Action {
        let mut exchange = Exchange {
            accept: joined(&stream.request.fields, b"accept-encoding"),
            chain: if self.in_shadow { chain_aside(stream) } else { chain(stream) },
            ..Exchange::default()
        };
        exchange.chain.compressors.borrow_mut().push(self.offer.clone());
        if self.config.response.common.enabled && self.config.response.remove_accept_encoding {
            stream.request.fields.remove_name(b"accept-encoding");
        }
        let is_tunnel = stream.request.method() == Method::Connect || stream.request.fields.has(HeaderId::Upgrade);
        let fields = &mut stream.request.fields;
        let wanted = self.config.request.as_ref().is_some_and(|direction| {
            !end && direction.enabled
                && !is_tunnel
                && long_enough(direction, told_length(fields), &self.stats.requests)
                && suits(&direction.content_types, fields)
                && fields.get_name(b"content-encoding").is_none()
        });
        if wanted {
            exchange.request = pack(&self.config.library, fields);
        }
        let packs = exchange.request.is_some();
        self.stats.requests.inc(if packs { direction::COMPRESSED } else { direction::NOT_COMPRESSED });
        *state = State::Any(Box::new(exchange));
        if packs { Action::Take } else { Action::Done }
    }

    fn on_request_body(&self, state: &mut State, stream: &mut Stream<'_>, end: bool) -> Action {
        push(exchange(state).and_then(|it| it.request.as_mut()), stream.request_body.bytes(), end)
    }

    fn on_request_trailers(&self, state: &mut State, _: &mut Stream<'_>) -> Action {
        push(exchange(state).and_then(|it| it.request.as_mut()), b"", true)
    }

    fn on_request_flow(&self, state: &mut State, stream: &mut Stream<'_>) -> Flow {
        let mut out = Vec::new();
        let flow = go(exchange(state).and_then(|it| it.request.as_mut()), &self.stats.requests, &mut out);
        stream.request_body.replace(&out);
        flow
    }

    fn on_response_headers(&self, state: &mut State, stream: &mut Stream<'_>, end: bool) -> Action {
        // An answer from before the request came here: nothing is known of the client's wishes.
        let mut unasked = Exchange::default();
        let exchange = exchange(state).unwrap_or(&mut unasked);
        if self.is_packed(exchange, stream, end) {
            sanitize_etag(self.config.response.weaken_etag, &mut stream.response.fields);
            exchange.response = pack(&self.config.library, &mut stream.response.fields);
        }
        let packs = exchange.response.is_some();
        self.stats.answers.inc(if packs { direction::COMPRESSED } else { direction::NOT_COMPRESSED });
        if packs { Action::Take } else { Action::Done }
    }

    fn on_response_body(&self, state: &mut State, stream: &mut Stream<'_>, end: bool) -> Action {
        push(exchange(state).and_then(|it| it.response.as_mut()), stream.response_body.bytes(), end)
    }

    fn on_response_trailers(&self, state: &mut State, _: &mut Stream<'_>) -> Action {
        push(exchange(state).and_then(|it| it.response.as_mut()), b"", true)
    }

    fn on_response_flow(&self, state: &mut State, stream: &mut Stream<'_>) -> Flow {
        let mut out = Vec::new();
        let flow = go(exchange(state).and_then(|it| it.response.as_mut()), &self.stats.answers, &mut out);
        stream.response_body.replace(&out);
        flow
    }
}

impl Packer {
    /// Decides about an answer, and tells caches and the client what the decision depends on.
    fn is_packed(&self, exchange: &Exchange, stream: &mut Stream<'_>, end: bool) -> bool {
        let (config, status) = (&self.config.response, stream.response.status());
        let fields = &mut stream.response.fields;
        // The head of an answer of the proxy's own does not tell it yet.
        let length = told_length(fields).or(Some(stream.info.reply_bytes).filter(|length| *length > 0));
        let changeable = config.common.enabled
            && status != 101
            && !forbids_transforming(fields)
            && fields.get_name(b"content-encoding").is_none();
        if config.status_header && !changeable {
            // There is nothing to say about it, and nothing to count.
            return false;
        }
        let long_enough = config.common.enabled && long_enough(&config.common, length, &self.stats.answers);
        let obstacle = || {
            if !long_enough {
                return Some(Obstacle::Length);
            }
            if !suits(&config.common.content_types, fields) {
                return Some(Obstacle::ContentType);
            }
            if config.disable_on_etag && !config.weaken_etag && fields.get_name(b"etag").is_some() {
                if !(end && config.status_header) {
                    self.stats.wishes.inc(wishes::ETAG);
                }
                return Some(Obstacle::Etag);
            }
            config.uncompressible.contains(&status).then_some(Obstacle::Status)
        };
        let obstacle = changeable.then(obstacle).flatten();
        let compressible = changeable && obstacle.is_none();
        let told = config.status_header && !end && changeable;
        if let Some(obstacle) = obstacle.as_ref().filter(|_| told) {
            let reason = match obstacle {
                Obstacle::Length => "ContentLengthTooSmall",
                Obstacle::ContentType => "ContentTypeNotAllowed",
                Obstacle::Etag => "EtagNotAllowed",
                Obstacle::Status => "StatusCodeNotAllowed",
            };
            let value = format!("{};{reason}", self.offer.encoding);
            let _ = fields.append_name(STATUS, value.as_bytes());
            return false;
        }
        let accepted = !end && long_enough && self.is_accepted(exchange, fields);
        if accepted && compressible && told {
            let length = length.map(|length| length.to_string()).unwrap_or_default();
            let value = [self.offer.encoding.as_bytes(), b";Compressed;OriginalLength=", length.as_bytes()].concat();
            let _ = fields.append_name(STATUS, &value);
        }
        if compressible {
            insert_vary(fields);
        }
        accepted && compressible
    }

    /// Whether the client's wishes chose this compressor.
    fn is_accepted(&self, exchange: &Exchange, fields: &Fields) -> bool {
        let stats = &self.stats.wishes;
        let Some(accept) = &exchange.accept else {
            stats.inc(wishes::NO_ACCEPT_HEADER);
            return false;
        };
        let decision: Decision = exchange
            .chain
            .decision
            .get()
            .unwrap_or_else(|| choose(accept, content_type(fields), &exchange.chain.compressors.borrow()));
        exchange.chain.decision.set(Some(decision));
        let is_this = decision.encoding == Some(self.offer.encoding);
        stats.inc(match decision.reason {
            Reason::Named if is_this => wishes::USED,
            Reason::Named => wishes::OVERSHADOWED,
            Reason::Wildcard => wishes::WILDCARD,
            Reason::Identity => wishes::IDENTITY,
            Reason::NotValid => wishes::NOT_VALID,
        });
        is_this
    }
}

/// What the stream's compressors share.
fn chain(stream: &mut Stream<'_>) -> Rc<Chain> {
    known_chain(stream).unwrap_or_else(|| {
        let chain = Rc::new(Chain::default());
        stream.info.shared.push(chain.clone());
        chain
    })
}

/// The compressors as they are so far, for one that they are not to know of.
fn chain_aside(stream: &Stream<'_>) -> Rc<Chain> {
    let compressors = known_chain(stream).map(|chain| chain.compressors.clone()).unwrap_or_default();
    Rc::new(Chain { compressors, ..Chain::default() })
}

fn known_chain(stream: &Stream<'_>) -> Option<Rc<Chain>> {
    stream.info.shared.iter().find_map(|shared| Rc::clone(shared).downcast().ok())
}

/// What a head says of its body's length; what is no number is none.
fn told_length(fields: &Fields) -> Option<u64> {
    let length = fields.get(HeaderId::ContentLength)?;
    Some(std::str::from_utf8(length).ok().and_then(|length| length.parse().ok()).unwrap_or_default())
}

/// A length that is not told is long enough.
fn long_enough(direction: &Direction, length: Option<u64>, stats: &Block) -> bool {
    let Some(length) = length else { return true };
    let fine = length >= direction.min_content_length;
    if !fine {
        stats.inc(direction::TOO_SMALL);
    }
    fine
}

fn suits(allowed: &ContentTypes, fields: &Fields) -> bool {
    content_type(fields).is_none_or(|kind| allowed.allow(kind))
}

/// Without parameters.
fn content_type(fields: &Fields) -> Option<&[u8]> {
    let kind = fields.get(HeaderId::ContentType)?;
    Some(trim_ows(kind.split(|byte| *byte == b';').next().unwrap_or_default()))
}

/// A message's body is from here on what a coder makes of it.
fn pack(library: &Compressor, fields: &mut Fields) -> Option<Passing> {
    let coder = library.coder()?;
    fields.remove(HeaderId::ContentLength);
    // The name and value are fine; a head that holds no more fields stays as it is.
    let _ = fields.set_name(b"content-encoding", library.encoding().as_bytes());
    Some(Passing::new(coder, None))
}

/// A strong tag says that the bytes are the same, which they are not.
fn sanitize_etag(weaken: bool, fields: &mut Fields) {
    let Some(tag) = fields.get_name(b"etag") else { return };
    if tag.get(..2).is_some_and(|start| start.eq_ignore_ascii_case(b"W/")) {
        return;
    }
    let weak = [b"W/", tag].concat();
    if !weaken || fields.set_name(b"etag", &weak).is_err() {
        fields.remove_name(b"etag");
    }
}

fn insert_vary(fields: &mut Fields) {
    const NAME: &[u8] = b"Accept-Encoding";
    let told = joined(fields, b"vary");
    let value = match &told {
        Some(told) if list_members(told).any(|member| trim_ows(member) == NAME) => return,
        Some(told) => [told, &b", "[..], NAME].concat(),
        None => NAME.to_vec(),
    };
    let _ = fields.set_name(b"vary", &value);
}

fn push(passing: Option<&mut Passing>, piece: &[u8], end: bool) -> Action {
    match passing {
        Some(passing) => {
            passing.push(piece, end);
            Action::Continue
        }
        None => Action::Done,
    }
}

fn go(passing: Option<&mut Passing>, stats: &Block, out: &mut Vec<u8>) -> Flow {
    let Some(passing) = passing else { return Flow::Release };
    match passing.go(out) {
        Ok(progress) => {
            stats.add(direction::UNCOMPRESSED_BYTES, progress.consumed);
            stats.add(direction::COMPRESSED_BYTES, progress.produced);
            progress.flow
        }
        Err(_) => fail(),
    }
}

/// A library gave up, which none does unless there is no memory left.
#[cold]
fn fail() -> Flow {
    Flow::Respond(Box::new(LocalReply { status: 500, details: "compression_failed".into(), ..LocalReply::default() }))
}

fn exchange(state: &mut State) -> Option<&mut Exchange> {
    match state {
        State::Any(exchange) => exchange.downcast_mut(),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
