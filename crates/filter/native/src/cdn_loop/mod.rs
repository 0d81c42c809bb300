//! Finds requests that go round in circles between CDNs (RFC 8586).
//!
//! Configured as `envoy.extensions.filters.http.cdn_loop.v3.CdnLoopConfig`; there is nothing that a route could change.

use std::rc::Rc;
use std::sync::Arc;

use postrider_filter_api::{
    Action, ConfigError, Factory, Filter, Hooks, LocalReply, Place, RouteConfig, ScopedConfigs, State, Stream,
};
use postrider_http::{is_token, trim_ows};
use postrider_model::{Reading, Value, ValueError};

use crate::compression::joined;

pub(crate) const KIND: &str = "envoy.extensions.filters.http.cdn_loop.v3.CdnLoopConfig";

const FIELD: &[u8] = b"cdn-loop";

/// Reads the configuration.
pub(crate) fn build(_name: &str, value: &Value) -> Result<Arc<dyn Factory>, ConfigError> {
    let config = Reading::all(value, |at| {
        let id = at.text("cdn_id").unwrap_or_default().to_owned();
        if !is_cdn_id(id.as_bytes()) {
            at.error("cdn_id", format!("\"{id}\" is no host, with or without a port, and no token"));
        }
        Config { id, allowed: at.number("max_allowed_occurrences").unwrap_or(0) }
    })?;
    Ok(Arc::new(CdnLoop(Arc::new(config))))
}

struct Config {
    /// What this proxy is called.
    id: String,
    /// A request may have been here so often.
    allowed: u64,
}

struct CdnLoop(Arc<Config>);

impl Factory for CdnLoop {
    fn route_config(&self, kind: &str, _: &Value) -> Result<RouteConfig, ConfigError> {
        let message = format!("cdn_loop has no overrides, so {kind} is none for it");
        Err(vec![ValueError { path: String::new(), message }])
    }

    fn filter(&self, _: &ScopedConfigs, _: &Place<'_>) -> Rc<dyn Filter> {
        Rc::new(Detector(Arc::clone(&self.0)))
    }
}

/// The filter on one worker.
struct Detector(Arc<Config>);

impl Filter for Detector {
    fn hooks(&self) -> Hooks {
        Hooks { request_headers: true, ..Hooks::default() }
    }

    fn on_request_headers(&self, _: &mut State, stream: &mut Stream<'_>, _end: bool) -> Action {
        let seen = joined(&stream.request.fields, FIELD).unwrap_or_default();
        let id = self.0.id.as_bytes();
        match occurrences(&seen, id) {
            None => refuse(400, "Invalid CDN-Loop header in request.", "invalid_cdn_loop_header"),
            Some(count) if count > self.0.allowed => {
                refuse(502, "The server has detected a loop between CDNs.", "cdn_loop_detected")
            }
            Some(_) => {
                let value = if seen.is_empty() { id.to_vec() } else { [&seen, &b","[..], id].concat() };
                // A head that holds no more fields stays as it is.
                let _ = stream.request.fields.set_name(FIELD, &value);
                Action::Done
            }
        }
    }
}

fn refuse(status: u16, body: &'static str, details: &'static str) -> Action {
    let body = body.as_bytes().into();
    Action::Respond(Box::new(LocalReply { status, body, details: details.into(), ..LocalReply::default() }))
}

/// How often `id` stands in a list of CDNs; `None` when it is no such list.
fn occurrences(list: &[u8], id: &[u8]) -> Option<u64> {
    let mut count = 0;
    let mut rest = list;
    loop {
        rest = trim_ows(rest);
        if rest.is_empty() {
            return Some(count);
        }
        let end = rest.iter().position(|byte| b",; \t".contains(byte)).unwrap_or(rest.len());
        let (name, behind) = rest.split_at(end);
        if !name.is_empty() {
            if !is_cdn_id(name) {
                return None;
            }
            count += u64::from(name == id);
        }
        rest = trim_ows(behind);
        while let Some(behind) = rest.strip_prefix(b";") {
            if name.is_empty() {
                return None;
            }
            rest = trim_ows(parameter(trim_ows(behind))?);
        }
        match rest {
            [] => {}
            [b',', behind @ ..] => rest = behind,
            _ => return None,
        }
    }
}

/// What follows the parameter that `text` begins with.
fn parameter(text: &[u8]) -> Option<&[u8]> {
    let at = text.iter().position(|byte| *byte == b'=')?;
    let (name, value) = (text.get(..at)?, text.get(at + 1..)?);
    if !is_token(name) {
        return None;
    }
    let Some(quoted) = value.strip_prefix(b"\"") else {
        let end = value.iter().position(|byte| b",; \t".contains(byte)).unwrap_or(value.len());
        return value.get(..end).filter(|value| is_token(value)).and(value.get(end..));
    };
    let mut escaped = false;
    for (at, byte) in quoted.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return quoted.get(at + 1..),
            _ => {}
        }
    }
    None
}

/// A host, with or without a port, or a token.
fn is_cdn_id(text: &[u8]) -> bool {
    let (host, behind) =
        match text.strip_prefix(b"[").and_then(|text| Some((text, text.iter().position(|b| *b == b']')?))) {
            Some((text, at)) => (text.get(..at), text.get(at + 1..)),
            None => {
                let at = text.iter().position(|byte| *byte == b':').unwrap_or(text.len());
                (text.get(..at).filter(|host| is_token(host)), text.get(at..))
            }
        };
    let is_port = |text: &[u8]| {
        text.is_empty() || text.strip_prefix(b":").is_some_and(|port| port.iter().all(u8::is_ascii_digit))
    };
    host.is_some_and(|host| !host.is_empty()) && behind.is_some_and(is_port)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_as_they_are_written() {
        for (list, want) in [
            ("", Some(0)),
            ("me", Some(1)),
            ("ME", Some(0)),
            ("other; a=b", Some(0)),
            ("me, me", Some(2)),
            ("me; a=\"x,me\"", Some(1)),
            ("me;a=\"\\\"\" ; b=c,me", Some(2)),
            ("a,,me", Some(1)),
            ("[::1]:80, x.y:7,me:8", Some(0)),
            ("a b", None),
            ("\"", None),
            ("me; a", None),
            ("me; a=\"", None),
            (";a=b", None),
        ] {
            assert_eq!(occurrences(list.as_bytes(), b"me"), want, "{list}");
        }
    }

    #[test]
    fn a_name_is_wanted() {
        use crate::testing::{object, text};
        for (id, fine) in [("me", true), ("cdn.example:80", true), ("[::1]", true), ("a b", false), ("", false)] {
            assert_eq!(build("loop", &object([("cdn_id", text(id))])).is_ok(), fine, "{id}");
        }
    }
}
