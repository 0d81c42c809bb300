//! What the filter is configured by: `StatefulSession` and `StatefulSessionPerRoute`.

use std::time::Duration;

use postrider_filter_api::ConfigError;
use postrider_http::{HeaderName, is_field_value, is_token};
use postrider_model::{Reading, Value};

use crate::read::own_header;

#[derive(Debug, Clone)]
pub(super) struct Config {
    /// `None`: nothing sticks.
    pub(super) session: Option<Session>,
    pub(super) strict: bool,
    /// What is answered where it is strict and the host is none of the cluster's.
    pub(super) missing_status: u16,
    /// For counters; `None` counts nothing.
    pub(super) stat_prefix: Option<String>,
}

/// Where the client keeps the host that it is served by.
#[derive(Debug, Clone)]
pub(super) enum Session {
    Cookie(Cookie),
    Header(HeaderName),
    /// In a header of the upstream's own, beside what the upstream says there.
    Envelope(HeaderName),
}

#[derive(Debug, Clone)]
pub(super) struct Cookie {
    pub(super) name: String,
    /// Zero: as long as the browser runs.
    pub(super) ttl: Duration,
    pub(super) path: String,
    /// All that follows the value.
    pub(super) attributes: String,
}

/// What a route says: `None` for nothing sticks.
#[derive(Debug)]
pub(super) struct Override(pub(super) Option<Config>);

pub(super) fn read(value: &Value) -> Result<Config, ConfigError> {
    Reading::all(value, config)
}

pub(super) fn read_route(value: &Value) -> Result<Override, ConfigError> {
    Reading::all(value, |at| {
        let own = at.map("stateful_session", config);
        match (at.bool("disabled"), own) {
            (Some(true), None) => Override(None),
            (None, Some(own)) => Override(Some(own)),
            _ => {
                at.wrong("one of `disabled: true` and `stateful_session` is wanted");
                Override(None)
            }
        }
    })
}

fn config(at: &mut Reading<'_>) -> Config {
    let session = at.map("session_state", |at| {
        at.text("name");
        at.map("typed_config", |at| {
            let url = at.text("@type").unwrap_or_default();
            match url.rsplit('.').next().unwrap_or_default() {
                "CookieBasedSessionState" => {
                    let made = at.map("cookie", cookie);
                    if made.is_none() {
                        at.error("cookie", "the cookie is required");
                    }
                    made.map(Session::Cookie)
                }
                "HeaderBasedSessionState" => header(at).map(Session::Header),
                "EnvelopeSessionState" => at.map("header", header).flatten().map(Session::Envelope),
                other => {
                    at.skip();
                    at.wrong(format!("{other} is no session state that Postrider has"));
                    None
                }
            }
        })
    });
    if session.as_ref().is_some_and(|session| !matches!(session, Some(Some(_)))) {
        at.error("session_state", "where the session is kept, is required");
    }
    let stat_prefix = at.text("stat_prefix").filter(|prefix| !prefix.is_empty()).map(str::to_owned);
    let status = at.number("status_on_strict_destination_not_found").filter(|status| *status != 0);
    let missing_status = status.and_then(|status| u16::try_from(status).ok()).unwrap_or(503);
    if status.is_some_and(|status| !(200..600).contains(&status)) {
        at.error("status_on_strict_destination_not_found", "a status is a number from 200 to 599");
    }
    Config { session: session.flatten().flatten(), strict: at.flag("strict"), missing_status, stat_prefix }
}

fn header(at: &mut Reading<'_>) -> Option<HeaderName> {
    let name = own_header(at, "name");
    if name.is_none() {
        at.error("name", "a header name is required");
    }
    name
}

fn cookie(at: &mut Reading<'_>) -> Cookie {
    let name = at.text("name").unwrap_or_default().to_owned();
    if !is_token(name.as_bytes()) {
        at.error("name", format!("\"{name}\" is no name of a cookie"));
    }
    // A cookie's age is in whole seconds; none of them is a cookie of the browser's session.
    let ttl = Duration::from_secs(at.duration("ttl").unwrap_or_default().as_secs());
    let path = at.text("path").unwrap_or_default().to_owned();
    let mut attributes = String::new();
    if !ttl.is_zero() {
        attributes.push_str(&format!("; Max-Age={}", ttl.as_secs()));
    }
    if !path.is_empty() {
        attributes.push_str(&format!("; Path={path}"));
    }
    at.each("attributes", |at| {
        attributes.push_str("; ");
        attributes.push_str(at.text("name").unwrap_or_default());
        if let Some(value) = at.text("value") {
            attributes.push('=');
            attributes.push_str(value);
        }
    });
    attributes.push_str("; HttpOnly");
    if !is_field_value(attributes.as_bytes()) {
        at.wrong("a cookie's attributes cannot hold control characters");
    }
    Cookie { name, ttl, path, attributes }
}
