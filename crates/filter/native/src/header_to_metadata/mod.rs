//! Notes headers and cookies in the metadata of a request, for later filters, routes and logs.
//!
//! Configured as `envoy.extensions.filters.http.header_to_metadata.v3.Config`, for the whole gateway and for virtual hosts,
//! routes and weighted clusters; the most specific configuration counts alone. Details are as in Envoy 1.40.

mod config;

use std::borrow::Cow;
use std::rc::Rc;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use postrider_filter_api::{
    Action, ConfigError, Factory, Filter, Hooks, Place, RouteConfig, ScopedConfigs, State, Stream,
};
use postrider_grpc::decode_value;
use postrider_http::Fields;
use postrider_model::{Metadata, Reading, Value, ValueError};
use postrider_telemetry::Block;
use postrider_telemetry::stats::Counter;

use crate::request_parts;
use config::{Encoding, Kind, Note, Rule, Rules, Source, Text};

pub(crate) const KIND: &str = "envoy.extensions.filters.http.header_to_metadata.v3.Config";

/// A value that is longer is not noted.
const MAX_VALUE: usize = 8 * 1024;

/// Reads a gateway-level configuration.
pub(crate) fn build(_name: &str, value: &Value) -> Result<Arc<dyn Factory>, ConfigError> {
    Ok(Arc::new(HeaderToMetadata(Arc::new(Reading::all(value, Rules::read)?))))
}

struct HeaderToMetadata(Arc<Rules>);

/// The rules of a more specific scope.
struct Scope(Arc<Rules>);

impl Factory for HeaderToMetadata {
    fn route_config(&self, kind: &str, value: &Value) -> Result<RouteConfig, ConfigError> {
        if kind != KIND {
            let message = format!("header_to_metadata is overridden by {KIND}, not by {kind}");
            return Err(vec![ValueError { path: String::new(), message }]);
        }
        let rules = Reading::all(value, Rules::read)?;
        if rules.request.is_empty() && rules.response.is_empty() {
            let message = "a route's configuration needs a rule: request_rules or response_rules".to_owned();
            return Err(vec![ValueError { path: String::new(), message }]);
        }
        Ok(RouteConfig::new(Scope(Arc::new(rules)), value))
    }

    fn filter(&self, configs: &ScopedConfigs, place: &Place<'_>) -> Rc<dyn Filter> {
        let rules = configs.most_specific::<Scope>().map_or(&self.0, |scope| &scope.0).clone();
        let stats = rules.stat_prefix.as_ref().map(|prefix| place.stats.block(&stat::SET, prefix));
        Rc::new(Noter { rules, stats })
    }
}

postrider_telemetry::stat_set! {
    /// What became of rules, where they have a name; prefix: that name.
    mod stat = "http_filter_name";
    counters {
        BASE64_DECODE_FAILED = "base64_decode_failed",
        HEADER_VALUE_TOO_LONG = "header_value_too_long",
        REGEX_SUBSTITUTION_FAILED = "regex_substitution_failed",
        REQUEST_HEADER_NOT_FOUND = "request_header_not_found",
        REQUEST_METADATA_ADDED = "request_metadata_added",
        REQUEST_RULES_PROCESSED = "request_rules_processed",
        RESPONSE_HEADER_NOT_FOUND = "response_header_not_found",
        RESPONSE_METADATA_ADDED = "response_metadata_added",
        RESPONSE_RULES_PROCESSED = "response_rules_processed",
    }
}

/// Where the rules of one side are counted.
struct Side {
    processed: Counter,
    not_found: Counter,
    added: Counter,
}

const OF_REQUESTS: Side = Side {
    processed: stat::REQUEST_RULES_PROCESSED,
    not_found: stat::REQUEST_HEADER_NOT_FOUND,
    added: stat::REQUEST_METADATA_ADDED,
};

const OF_RESPONSES: Side = Side {
    processed: stat::RESPONSE_RULES_PROCESSED,
    not_found: stat::RESPONSE_HEADER_NOT_FOUND,
    added: stat::RESPONSE_METADATA_ADDED,
};

/// The filter on one worker, as one route sees it.
struct Noter {
    rules: Arc<Rules>,
    /// `None` where nothing is counted.
    stats: Option<Rc<Block>>,
}

impl Filter for Noter {
    fn hooks(&self) -> Hooks {
        Hooks {
            request_headers: !self.rules.request.is_empty(),
            response_headers: !self.rules.response.is_empty(),
            ..Hooks::default()
        }
    }

    fn on_request_headers(&self, _: &mut State, stream: &mut Stream<'_>, _end: bool) -> Action {
        let mut found = Metadata::default();
        for rule in &self.rules.request {
            let value = match &rule.source {
                Source::Header(name) => joined(&request_parts::header(stream.request, name)),
                Source::Cookie(name) => sent_cookie(&stream.request.fields, name),
            };
            self.note(&mut found, rule, value.as_deref(), &OF_REQUESTS);
            if value.is_some() {
                remove(&mut stream.request.fields, rule);
            }
        }
        keep(&mut stream.info.metadata, &found);
        Action::Done
    }

    fn on_response_headers(&self, _: &mut State, stream: &mut Stream<'_>, _end: bool) -> Action {
        let mut found = Metadata::default();
        for rule in &self.rules.response {
            let value = match &rule.source {
                Source::Header(name) if name == ":status" => Some(stream.response.status().to_string().into_bytes()),
                Source::Header(name) => {
                    joined(&stream.response.fields.get_all_name(name.as_bytes()).collect::<Vec<_>>())
                }
                // The field of that name, as in a request; what an answer sets is in another one.
                Source::Cookie(name) => sent_cookie(&stream.response.fields, name),
            };
            self.note(&mut found, rule, value.as_deref(), &OF_RESPONSES);
            if value.is_some() {
                remove(&mut stream.response.fields, rule);
            }
        }
        keep(&mut stream.info.metadata, &found);
        Action::Done
    }
}

/// The value of a cookie that has one.
fn sent_cookie(fields: &Fields, name: &str) -> Option<Vec<u8>> {
    request_parts::cookie_of(fields, name).map(String::into_bytes).filter(|value| !value.is_empty())
}

/// The values of all lines; `None` when there is none.
fn joined(lines: &[&[u8]]) -> Option<Vec<u8>> {
    (!lines.is_empty()).then(|| lines.join(&b','))
}

fn remove(fields: &mut Fields, rule: &Rule) {
    if let (true, Source::Header(name)) = (rule.removes, &rule.source) {
        fields.remove_name(name.as_bytes());
    }
}

/// All at once, when every rule was seen: a later rule of the same key has the last word.
fn keep(metadata: &mut Metadata, found: &Metadata) {
    for (namespace, values) in found.iter() {
        if let Value::Map(values) = values {
            metadata.merge(namespace, values);
        }
    }
}

impl Noter {
    fn note(&self, found: &mut Metadata, rule: &Rule, value: Option<&[u8]>, side: &Side) {
        self.count(side.processed);
        let Some(note) = (if value.is_some() { &rule.present } else { &rule.missing }) else { return };
        if value.is_none() {
            self.count(side.not_found);
        }
        let value = value.unwrap_or_default();
        let value: Cow<'_, [u8]> = match &note.text {
            Text::AsItIs => value.into(),
            Text::Fixed(text) => text.as_bytes().into(),
            Text::Rewritten(pattern, substitution) => {
                let mut out = Vec::new();
                pattern.substitute(substitution, value, &mut out);
                if out.is_empty() && !value.is_empty() {
                    self.count(stat::REGEX_SUBSTITUTION_FAILED);
                }
                out.into()
            }
        };
        if let Some(value) = self.typed(note, &value) {
            self.count(side.added);
            found.set(&note.namespace, &note.key, value);
        }
    }

    /// The value in its type; `None` for one that has none, or is too long.
    fn typed(&self, note: &Note, value: &[u8]) -> Option<Value> {
        if value.is_empty() {
            return None;
        }
        if value.len() >= MAX_VALUE {
            self.count(stat::HEADER_VALUE_TOO_LONG);
            return None;
        }
        let value: Cow<'_, [u8]> = match note.encoding {
            Encoding::Plain => value.into(),
            Encoding::Base64 => match unpadded(value).filter(|decoded| !decoded.is_empty()) {
                Some(decoded) => decoded.into(),
                None => {
                    self.count(stat::BASE64_DECODE_FAILED);
                    return None;
                }
            },
        };
        match note.kind {
            Kind::Text => Some(Value::String(shown(&value))),
            Kind::Number => {
                let number: f64 = std::str::from_utf8(&value).ok()?.trim().parse().ok()?;
                Some(Value::Number(number))
            }
            Kind::Message => decode_value(&value),
        }
    }

    fn count(&self, counter: Counter) {
        if let Some(stats) = &self.stats {
            stats.inc(counter);
        }
    }
}

/// Decoded from Base64, with as much padding as there is.
fn unpadded(value: &[u8]) -> Option<Vec<u8>> {
    let end = value.iter().rposition(|byte| *byte != b'=').map_or(0, |last| last + 1);
    STANDARD_NO_PAD.decode(value.get(..end)?).ok()
}

/// As text; of what is no UTF-8 each byte is a character, so that different values stay different.
fn shown(value: &[u8]) -> String {
    std::str::from_utf8(value).map_or_else(|_| value.iter().copied().map(char::from).collect(), str::to_owned)
}

#[cfg(test)]
mod tests;
