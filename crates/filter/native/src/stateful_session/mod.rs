//! Keeps a client with the host that served it first.
//!
//! Configured as `envoy.extensions.filters.http.stateful_session.v3.StatefulSession`; virtual hosts, routes and weighted
//! clusters have their own by `StatefulSessionPerRoute`. The host's address travels with the client, in a cookie or a
//! header: nothing is remembered here. What a client shows is only ever a wish among the cluster's own hosts.

mod config;

use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use postrider_filter_api::{
    Action, ConfigError, Factory, Filter, Flags, Hooks, Place, RouteConfig, ScopedConfigs, State, Stream,
    UpstreamOverride,
};
use postrider_http::{Fields, HeaderName};
use postrider_model::{Value, ValueError};
use postrider_telemetry::Block;

use crate::request_parts::cookie;
use config::{Config, Cookie, Override, Session};

pub(crate) const KIND: &str = "envoy.extensions.filters.http.stateful_session.v3.StatefulSession";
const ROUTE_KIND: &str = "envoy.extensions.filters.http.stateful_session.v3.StatefulSessionPerRoute";

/// Begins what the upstream said, behind the host.
const UPSTREAM_VALUE: &str = "UV:";

/// Reads a gateway-level configuration.
pub(crate) fn build(_name: &str, value: &Value) -> Result<Arc<dyn Factory>, ConfigError> {
    Ok(Arc::new(StatefulSession(config::read(value)?)))
}

struct StatefulSession(Config);

impl Factory for StatefulSession {
    fn route_config(&self, kind: &str, value: &Value) -> Result<RouteConfig, ConfigError> {
        if kind != ROUTE_KIND {
            let message = format!("stateful_session is overridden by {ROUTE_KIND}, not by {kind}");
            return Err(vec![ValueError { path: String::new(), message }]);
        }
        Ok(RouteConfig::new(config::read_route(value)?, value))
    }

    fn filter(&self, configs: &ScopedConfigs, place: &Place<'_>) -> Rc<dyn Filter> {
        let scope = configs.most_specific::<Override>();
        // Only answers by the gateway's own configuration are counted.
        let name = self.0.stat_prefix.as_ref().filter(|_| scope.is_none());
        let config = match scope {
            Some(Override(own)) => own.clone(),
            None => Some(self.0.clone()),
        };
        let stats =
            name.map(|name| place.stats.block(&stat::SET, &format!("{}.stateful_session.{name}", place.stat_prefix)));
        let (strict, missing_status) = config.as_ref().map_or((false, 503), |own| (own.strict, own.missing_status));
        Rc::new(Keeper { session: config.and_then(|config| config.session), strict, missing_status, stats })
    }
}

postrider_telemetry::stat_set! {
    /// Answers by what became of the host that a client showed; prefix: the connection manager's, then
    /// `stateful_session` and the configuration's own.
    mod stat = "http";
    counters {
        FAILED_CLOSED = "failed_closed", FAILED_OPEN = "failed_open", NO_SESSION = "no_session", ROUTED = "routed",
    }
}

/// The filter on one worker, as one route sees it.
struct Keeper {
    session: Option<Session>,
    strict: bool,
    missing_status: u16,
    /// `None` counts nothing.
    stats: Option<Rc<Block>>,
}

/// The address that a client showed, if it did.
struct Shown(Option<String>);

impl Filter for Keeper {
    fn hooks(&self) -> Hooks {
        let sticks = self.session.is_some();
        Hooks { request_headers: sticks, response_headers: sticks || self.stats.is_some(), ..Hooks::default() }
    }

    fn on_request_headers(&self, state: &mut State, stream: &mut Stream<'_>, _end: bool) -> Action {
        let shown = match &self.session {
            None => return Action::Done,
            Some(Session::Cookie(rules)) if !is_below(stream.request.path_only(), &rules.path) => return Action::Done,
            Some(Session::Cookie(rules)) => {
                let value = cookie(stream.request, &rules.name);
                value.and_then(|value| address_of_cookie(&value, seconds(stream)))
            }
            Some(Session::Header(name)) => stream.request.fields.find(name).and_then(decoded),
            Some(Session::Envelope(name)) => {
                let opened = stream.request.fields.find(name).and_then(open);
                opened.and_then(|(address, original)| {
                    // What the upstream said before; bytes that cannot stand in a field stay wrapped.
                    let _ = stream.request.fields.set_header(name, &original);
                    address
                })
            }
        };
        if let Some(shown) = &shown {
            match shown.parse() {
                Ok(address) => stream.info.upstream_override = Some(self.wanted(address)),
                // An address that no host has.
                Err(_) if self.strict => {
                    let address = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
                    stream.info.upstream_override = Some(self.wanted(address));
                }
                Err(_) => {}
            }
        }
        *state = State::Any(Box::new(Shown(shown)));
        Action::Done
    }

    fn on_response_headers(&self, state: &mut State, stream: &mut Stream<'_>, _end: bool) -> Action {
        let shown = match state {
            State::Any(shown) => shown.downcast_ref::<Shown>(),
            _ => None,
        };
        if let Some(stats) = &self.stats {
            self.count(stats, shown, stream);
        }
        let (Some(Shown(shown)), Some(host)) = (shown, stream.info.upstream_remote.clone()) else {
            return Action::Done;
        };
        let is_known = shown.as_deref() == Some(&*host);
        let now = seconds(stream);
        let fields = &mut stream.response.fields;
        // A head that holds no more fields stays as it is.
        let _ = match &self.session {
            Some(Session::Cookie(rules)) if !is_known => {
                fields.append_name(b"set-cookie", write_cookie(rules, &host, now).as_bytes())
            }
            Some(Session::Header(name)) if !is_known => fields.set_header(name, STANDARD.encode(&*host).as_bytes()),
            Some(Session::Envelope(name)) => match only_line(fields, name).map(|value| STANDARD.encode(value)) {
                Some(value) => {
                    let value = format!("{};{UPSTREAM_VALUE}{value}", STANDARD.encode(&*host));
                    fields.set_header(name, value.as_bytes())
                }
                None => Ok(()),
            },
            _ => Ok(()),
        };
        Action::Done
    }
}

impl Keeper {
    fn wanted(&self, address: SocketAddr) -> UpstreamOverride {
        UpstreamOverride { address, strict: self.strict, missing_status: self.missing_status }
    }

    /// As Envoy counts: a client that showed no host and gets one counts as one whose host was replaced.
    fn count(&self, stats: &Block, shown: Option<&Shown>, stream: &Stream<'_>) {
        let counter = match (shown, &stream.info.upstream_remote) {
            (None, Some(_)) => stat::NO_SESSION,
            (Some(Shown(shown)), Some(host)) => {
                let stays = shown.as_deref() == Some(&**host) || self.leaves_answer_alone(stream);
                match (stays, self.strict) {
                    (true, _) => stat::ROUTED,
                    (false, false) => stat::FAILED_OPEN,
                    (false, true) => return,
                }
            }
            (Some(_), None) if self.strict && stream.info.flags.contains(Flags::NO_HEALTHY_UPSTREAM) => {
                stat::FAILED_CLOSED
            }
            _ => return,
        };
        stats.inc(counter);
    }

    /// The upstream said nothing in the header that would carry the host, or more than that could hold.
    fn leaves_answer_alone(&self, stream: &Stream<'_>) -> bool {
        matches!(&self.session, Some(Session::Envelope(name)) if only_line(&stream.response.fields, name).is_none())
    }
}

fn seconds(stream: &Stream<'_>) -> u64 {
    stream.host.wall().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

/// Whether a cookie of this path goes with the request.
fn is_below(request: &[u8], path: &str) -> bool {
    let Some(rest) = request.strip_prefix(path.as_bytes()) else { return false };
    path.is_empty() || path.ends_with('/') || matches!(rest.first(), None | Some(b'/'))
}

fn decoded(value: &[u8]) -> Option<String> {
    String::from_utf8(STANDARD.decode(value).ok()?).ok().filter(|address| !address.is_empty())
}

/// The value of a field of one line.
fn only_line<'f>(fields: &'f Fields, name: &HeaderName) -> Option<&'f [u8]> {
    let mut lines = fields.find_all(name);
    lines.next().filter(|_| lines.next().is_none())
}

/// The host, and what the upstream said; `None` where it said nothing.
fn open(value: &[u8]) -> Option<(Option<String>, Vec<u8>)> {
    let mut parts = std::str::from_utf8(value).ok()?.split(';').filter(|part| !part.is_empty());
    let host = parts.next()?;
    let original = parts.find_map(|part| part.strip_prefix(UPSTREAM_VALUE))?;
    let original = STANDARD.decode(original).ok().filter(|original| !original.is_empty())?;
    Some((decoded(host.as_bytes()), original))
}

/// A cookie holds a message: the address is its first field, its end in seconds the second. Older ones are the address.
fn address_of_cookie(value: &str, now: u64) -> Option<String> {
    let bytes = STANDARD.decode(value).ok()?;
    let Some((address, expires)) = message(&bytes) else { return String::from_utf8(bytes).ok() };
    let address = String::from_utf8(address.to_vec()).ok()?;
    (!address.is_empty() && (expires == 0 || expires > now)).then_some(address)
}

/// The address and the end of a `Cookie`; fields of other numbers are passed over. `None` for what is no message.
fn message(bytes: &[u8]) -> Option<(&[u8], u64)> {
    let (mut address, mut expires, mut rest) = (&b""[..], 0, bytes);
    while !rest.is_empty() {
        let (tag, behind) = varint(rest)?;
        let (field, kind) = (tag >> 3, tag & 7);
        if field == 0 {
            return None;
        }
        rest = match kind {
            0 => {
                let (number, behind) = varint(behind)?;
                if field == 2 {
                    expires = number;
                }
                behind
            }
            2 => {
                let (length, behind) = varint(behind)?;
                let (bytes, behind) = behind.split_at_checked(usize::try_from(length).ok()?)?;
                if field == 1 {
                    address = bytes;
                }
                behind
            }
            1 => behind.get(8..)?,
            5 => behind.get(4..)?,
            _ => return None,
        };
    }
    Some((address, expires))
}

/// A number, and what follows it.
fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut number = 0u64;
    for (at, byte) in bytes.iter().enumerate().take(10) {
        number |= u64::from(byte & 0x7f).checked_shl(u32::try_from(at).ok()? * 7)?;
        if byte & 0x80 == 0 {
            return Some((number, bytes.get(at + 1..)?));
        }
    }
    None
}

fn write_cookie(rules: &Cookie, host: &str, now: u64) -> String {
    let mut message = vec![0x0a];
    push_varint(&mut message, host.len() as u64);
    message.extend_from_slice(host.as_bytes());
    if !rules.ttl.is_zero() {
        message.push(0x10);
        push_varint(&mut message, now.saturating_add(rules.ttl.as_secs()));
    }
    format!("{}=\"{}\"{}", rules.name, STANDARD.encode(message), rules.attributes)
}

fn push_varint(out: &mut Vec<u8>, mut number: u64) {
    while number > 0x7f {
        out.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values are Envoy 1.40's.
    #[test]
    fn cookies_are_written_and_read() {
        let value = "Cg8xMjcuMC4wLjE6MjgxMTIQmfmK2AY=";
        assert_eq!(address_of_cookie(value, 0).as_deref(), Some("127.0.0.1:28112"));
        assert_eq!(address_of_cookie(value, 1_795_341_465), None);
        let plain = STANDARD.encode("127.0.0.1:28112");
        assert_eq!(address_of_cookie(&plain, 0).as_deref(), Some("127.0.0.1:28112"));
        assert_eq!(address_of_cookie("!!", 0), None);
        let more = |fields: &[u8]| STANDARD.encode([b"\x0a\x03a:1", fields].concat());
        for fields in [&b"\x1a\x01x"[..], b"\x18\x05", b"\x25abcd", b"\x29abcdefgh", b"\xa2\x06\x01x"] {
            assert_eq!(address_of_cookie(&more(fields), 0).as_deref(), Some("a:1"), "fields of a newer proxy");
        }
        let rules = |seconds| Cookie {
            name: "sess".to_owned(),
            ttl: std::time::Duration::from_secs(seconds),
            path: String::new(),
            attributes: "; HttpOnly".to_owned(),
        };
        assert_eq!(write_cookie(&rules(0), "127.0.0.1:28112", 5), "sess=\"Cg8xMjcuMC4wLjE6MjgxMTI=\"; HttpOnly");
        let written = write_cookie(&rules(120), "127.0.0.1:28112", 1_795_341_464 - 120);
        assert!(address_of_cookie(written.split('"').nth(1).unwrap(), 1_795_341_463).is_some(), "{written}");
    }

    #[test]
    fn paths_and_envelopes_are_read() {
        for (request, path, want) in
            [("/p", "/p", true), ("/p/x", "/p", true), ("/px", "/p", false), ("/q", "", true), ("/p/x", "/p/", true)]
        {
            assert_eq!(is_below(request.as_bytes(), path), want, "{request} {path}");
        }
        let (address, original) = open(b"MTI3LjAuMC4xOjI4MTEy;UV:bWluZQ==").unwrap();
        assert_eq!((address.as_deref(), &*original), (Some("127.0.0.1:28112"), &b"mine"[..]));
        assert!(open(b"plain").is_none());
        for odd in ["MTI3LjAuMC4xOjI4MTEy;UV:bWluZQ==;y", "MTI3LjAuMC4xOjI4MTEy;x=1;;UV:bWluZQ=="] {
            assert_eq!(open(odd.as_bytes()).unwrap(), (address.clone(), original.clone()), "{odd}");
        }
        for nothing in ["MTI3LjAuMC4xOjI4MTEy;UV:", "MTI3LjAuMC4xOjI4MTEy;UV:!", "MTI3LjAuMC4xOjI4MTEy;x", ";;"] {
            assert!(open(nothing.as_bytes()).is_none(), "{nothing}");
        }
    }

    #[test]
    fn a_cookie_that_lasts_less_than_a_second_is_one_of_the_browsers_session() {
        use crate::testing::{object, text};
        for (ttl, attributes) in [("0.5s", "; Path=/; HttpOnly"), ("1.5s", "; Max-Age=1; Path=/; HttpOnly")] {
            let cookie = object([("name", text("sess")), ("ttl", text(ttl)), ("path", text("/"))]);
            let kind =
                text("type.googleapis.com/envoy.extensions.http.stateful_session.cookie.v3.CookieBasedSessionState");
            let state = object([("typed_config", object([("@type", kind), ("cookie", cookie)]))]);
            let config = config::read(&object([("session_state", state)])).unwrap();
            let Some(Session::Cookie(cookie)) = config.session else { panic!("{config:?}") };
            assert_eq!(cookie.attributes, attributes);
            assert_eq!(cookie.ttl.is_zero(), ttl == "0.5s");
        }
    }
}
