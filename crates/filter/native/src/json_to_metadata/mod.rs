//! Notes values of JSON bodies in the metadata of a request, for later filters, routes and logs.
//!
//! Configured as `envoy.extensions.filters.http.json_to_metadata.v3.JsonToMetadata`, for the whole gateway and for virtual
//! hosts, routes and weighted clusters; the most specific configuration counts alone. A message with rules is held until
//! all of it is there. Which rule says what of which body is as in Envoy 1.40, surprises included. What is noted of a
//! request may lead to another route, so the route is looked up again.

mod config;
mod document;

use std::rc::Rc;
use std::sync::Arc;

use postrider_filter_api::{
    Action, ConfigError, Factory, Filter, Hooks, Place, RouteConfig, ScopedConfigs, State, Stream,
};
use postrider_http::{Fields, HeaderId};
use postrider_model::{Metadata, Reading, Value, ValueError};
use postrider_telemetry::Block;

use config::{Note, Rules, Side};
use document::{Document, Found};

pub(crate) const KIND: &str = "envoy.extensions.filters.http.json_to_metadata.v3.JsonToMetadata";

/// Reads a gateway-level configuration.
pub(crate) fn build(_name: &str, value: &Value) -> Result<Arc<dyn Factory>, ConfigError> {
    Ok(Arc::new(JsonToMetadata(Arc::new(Reading::all(value, Rules::read)?))))
}

struct JsonToMetadata(Arc<Rules>);

/// The rules of a more specific scope.
struct Scope(Arc<Rules>);

impl Factory for JsonToMetadata {
    fn route_config(&self, kind: &str, value: &Value) -> Result<RouteConfig, ConfigError> {
        if kind != KIND {
            let message = format!("json_to_metadata is overridden by {KIND}, not by {kind}");
            return Err(vec![ValueError { path: String::new(), message }]);
        }
        let rules = Reading::all(value, Rules::read)?;
        if rules.request.is_none() && rules.response.is_none() {
            let message = "a route's configuration needs a rule: request_rules or response_rules".to_owned();
            return Err(vec![ValueError { path: String::new(), message }]);
        }
        Ok(RouteConfig::new(Scope(Arc::new(rules)), value))
    }

    fn filter(&self, configs: &ScopedConfigs, place: &Place<'_>) -> Rc<dyn Filter> {
        Rc::new(Noter {
            rules: configs.most_specific::<Scope>().map_or(&self.0, |scope| &scope.0).clone(),
            requests: place.stats.block(&stat::SET, "json_to_metadata.rq"),
            responses: place.stats.block(&stat::SET, "json_to_metadata.resp"),
        })
    }
}

postrider_telemetry::stat_set! {
    /// Bodies by what became of them; prefix: the filter's, then `rq` or `resp`.
    mod stat = "";
    counters {
        SUCCESS = "success",
        MISMATCHED_CONTENT_TYPE = "mismatched_content_type",
        NO_BODY = "no_body",
        INVALID_JSON_BODY = "invalid_json_body",
    }
}

/// The filter on one worker, as one route sees it.
struct Noter {
    rules: Arc<Rules>,
    requests: Rc<Block>,
    responses: Rc<Block>,
}

impl Filter for Noter {
    fn hooks(&self) -> Hooks {
        let (request, response) = (self.rules.request.is_some(), self.rules.response.is_some());
        Hooks {
            request_headers: request,
            request_body: request,
            request_trailers: request,
            response_headers: response,
            response_body: response,
            response_trailers: response,
            keeps_bodies: true,
            ..Hooks::default()
        }
    }

    fn on_request_headers(&self, _: &mut State, stream: &mut Stream<'_>, end: bool) -> Action {
        let Some(side) = &self.rules.request else { return Action::Done };
        let (action, noted) = begin(side, &self.requests, &stream.request.fields, &mut stream.info.metadata, end);
        stream.info.route_is_stale |= noted;
        action
    }

    fn on_request_body(&self, _: &mut State, stream: &mut Stream<'_>, end: bool) -> Action {
        if !end {
            return Action::Buffer;
        }
        self.on_request_trailers(&mut State::Empty, stream)
    }

    fn on_request_trailers(&self, _: &mut State, stream: &mut Stream<'_>) -> Action {
        if let Some(side) = &self.rules.request {
            let noted = finish(side, &self.requests, stream.request_body.bytes(), &mut stream.info.metadata);
            stream.info.route_is_stale |= noted;
        }
        Action::Continue
    }

    fn on_response_headers(&self, _: &mut State, stream: &mut Stream<'_>, end: bool) -> Action {
        let Some(side) = &self.rules.response else { return Action::Done };
        begin(side, &self.responses, &stream.response.fields, &mut stream.info.metadata, end).0
    }

    fn on_response_body(&self, _: &mut State, stream: &mut Stream<'_>, end: bool) -> Action {
        if !end {
            return Action::Buffer;
        }
        self.on_response_trailers(&mut State::Empty, stream)
    }

    fn on_response_trailers(&self, _: &mut State, stream: &mut Stream<'_>) -> Action {
        if let Some(side) = &self.rules.response {
            finish(side, &self.responses, stream.response_body.bytes(), &mut stream.info.metadata);
        }
        Action::Continue
    }
}

/// What is done about a message when its head is there, and whether something was noted.
fn begin(side: &Side, counts: &Block, fields: &Fields, metadata: &mut Metadata, end: bool) -> (Action, bool) {
    if !side.takes(fields.get(HeaderId::ContentType).unwrap_or_default()) {
        counts.inc(stat::MISMATCHED_CONTENT_TYPE);
        let noted = keep(metadata, side.rules.iter().filter_map(|rule| rule.error.as_ref()).filter_map(fixed));
        return (Action::Done, noted);
    }
    match end {
        true => (Action::Done, finish(side, counts, b"", metadata)),
        false => (Action::Buffer, false),
    }
}

/// What is done about it when all of its body is there: whether something was noted.
fn finish(side: &Side, counts: &Block, body: &[u8], metadata: &mut Metadata) -> bool {
    let missing = side.rules.iter().filter_map(|rule| rule.missing.as_ref()).filter_map(fixed);
    if body.is_empty() {
        counts.inc(stat::NO_BODY);
        return keep(metadata, missing);
    }
    let Some(document) = Document::parse(body) else {
        counts.inc(stat::INVALID_JSON_BODY);
        return keep(metadata, side.rules.iter().filter_map(|rule| rule.error.as_ref()).filter_map(fixed));
    };
    counts.inc(stat::SUCCESS);
    if document.is_scalar() {
        return keep(metadata, missing);
    }
    keep(
        metadata,
        side.rules.iter().filter_map(|rule| match document.find(rule) {
            Found::Value(note, value) => Some((note, value)),
            Found::Nothing => None,
            Found::Missing => rule.missing.as_ref().and_then(fixed),
        }),
    )
}

fn fixed(note: &Note) -> Option<(&Note, Value)> {
    Some((note, note.value.clone()?))
}

/// All at once: what a rule leaves alone because it is there already was there before the first of them. Whether there
/// was anything to note.
fn keep<'n>(metadata: &mut Metadata, noted: impl Iterator<Item = (&'n Note, Value)>) -> bool {
    let noted: Vec<_> =
        noted.filter(|(note, _)| !note.preserves || metadata.get(&note.namespace, &note.key).is_none()).collect();
    let any = !noted.is_empty();
    for (note, value) in noted {
        metadata.set(&note.namespace, &note.key, value);
    }
    any
}

#[cfg(test)]
mod tests;
