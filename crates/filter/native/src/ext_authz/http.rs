//! A service that speaks plain HTTP: the request that asks it, and what its answer means.

use postrider_filter_api::{Answer, Stream};
use postrider_http::{HeaderId, RequestHead, Scheme};
use postrider_model::{AppendAction, StringMatch, Value};

use super::config::{BodySettings, Config, HttpService};
use super::request::{PARTIAL_BODY, carried, joined};
use super::verdict::{Allowance, Decision, Denial, Header, Verdict};
use crate::wire::sanitized;

/// Names the headers that the request is to lose.
const REMOVE: &str = "x-envoy-auth-headers-to-remove";

/// The head of the request that asks, and its body.
pub(super) fn ask(
    config: &Config,
    service: &HttpService,
    settings: Option<&BodySettings>,
    stream: &Stream<'_>,
) -> (RequestHead, Vec<u8>) {
    let request = &stream.request;
    let mut head = RequestHead::new();
    let path = match &service.path_override {
        Some(path) => path.clone().into_bytes(),
        None => [service.path_prefix.as_bytes(), request.path()].concat(),
    };
    // All of it was part of a valid request; a CONNECT has no path.
    let _ = head.set_method(request.method_bytes());
    let _ = head.set_path(if path.is_empty() { b"/" } else { &path });
    let _ = head.set_authority(request.authority());
    head.set_scheme(request.scheme().unwrap_or(Scheme::Http));
    // A route's service under a filter whose own one speaks gRPC gets what that one would, if nothing says what.
    let few = config.is_http || config.allowed_headers.is_some();
    let mut lines = carried(request, |name| config.shows(name, few));
    let mut body = Vec::new();
    if let Some(settings) = settings {
        let held = stream.request_body.bytes();
        body.extend_from_slice(held.get(..settings.max).unwrap_or(held));
        lines.push((PARTIAL_BODY.to_owned(), (body.len() != held.len()).to_string().into_bytes()));
    }
    if !config.encode_raw_headers {
        lines = joined(lines);
    }
    let is_own = |name: &str| name.starts_with(':') || OWN.contains(&name);
    for (name, value) in lines.iter().filter(|(name, _)| !is_own(name)) {
        let value = if config.encode_raw_headers { value.clone() } else { sanitized(value).into_bytes() };
        let _ = head.fields.append_name(name.as_bytes(), &value);
    }
    if body.is_empty() {
        // A method that means a body says itself that there is none.
        let _ = head.fields.append(HeaderId::ContentLength, b"0");
    }
    let mut value = Vec::new();
    for (name, format) in &service.headers_to_add {
        value.clear();
        stream.host.format(stream, format, &mut value);
        if !value.is_empty() {
            let _ = head.fields.set_header(name, &value);
        }
    }
    (head, body)
}

/// What the connection to the service decides.
const OWN: [&str; 9] = [
    "connection",
    "content-length",
    "expect",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// What the answer means: 200 allows, a status from 500 on is a failure, any other denies.
pub(super) fn verdict(service: &HttpService, answer: &Answer) -> Verdict {
    let status = answer.head.status();
    let lines = answer.head.fields.iter().map(|field| (name_of(field.name), field.value.to_vec()));
    // It is for us alone.
    let (removals, lines): (Vec<Header>, Vec<Header>) = lines.partition(|(name, _)| name == REMOVE);
    let decision = match status {
        200 => Decision::Allowed(Box::new(allowance(service, &removals, &lines))),
        500.. => Decision::Failed(Denial::default()),
        _ => Decision::Denied(Denial {
            status: Some(status),
            headers: lines.iter().filter(|(name, _)| reaches_client(service, name)).cloned().collect(),
            body: answer.body.clone(),
        }),
    };
    let text = |value: &[u8]| Value::String(String::from_utf8_lossy(value).into_owned());
    // A failure says nothing about the request.
    let is_told = |name: &str| status < 500 && is_listed(&service.metadata, name);
    let metadata = lines.iter().filter(|(name, _)| is_told(name));
    Verdict { decision, metadata: metadata.map(|(name, value)| (name.clone(), text(value))).collect() }
}

fn allowance(service: &HttpService, removals: &[Header], lines: &[Header]) -> Allowance {
    let of =
        |rules: &[StringMatch]| lines.iter().filter(|(name, _)| is_listed(rules, name)).cloned().collect::<Vec<_>>();
    let remove = removals.iter().flat_map(|(_, value)| value.split(|byte| *byte == b','));
    Allowance {
        set: of(&service.upstream),
        add: of(&service.upstream_append),
        remove: remove.map(|name| name_of(name.trim_ascii())).filter(|name| !name.is_empty()).collect(),
        response: of(&service.client_on_success)
            .into_iter()
            .map(|header| (AppendAction::AppendIfExistsOrAdd, header))
            .collect(),
        ..Allowance::default()
    }
}

fn reaches_client(service: &HttpService, name: &str) -> bool {
    const ALWAYS: [&str; 2] = ["www-authenticate", "location"];
    match &service.client {
        Some(rules) => ALWAYS.contains(&name) || is_listed(rules, name),
        None => true,
    }
}

fn is_listed(rules: &[StringMatch], name: &str) -> bool {
    rules.iter().any(|rule| rule.matches(name))
}

fn name_of(name: &[u8]) -> String {
    String::from_utf8_lossy(name).to_ascii_lowercase()
}
