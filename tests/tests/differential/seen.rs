//! What is seen of a request from outside, as lines of text that can be compared.

use crate::commands::{FORM, form};
use crate::packing::unpack;
use postrider_tests::kit::message::{Headers, Request, Response};
use postrider_tests::kit::{Stats, WireError};
use serde_json::{Value, json};
use std::net::SocketAddr;

/// Lines in no particular order.
pub type Seen = Vec<String>;

/// Addresses that both sides have of their own, and the names that stand for them.
pub struct Mask(pub Vec<(String, String)>);

impl Mask {
    /// The client's as well.
    pub fn with_client(&mut self, address: SocketAddr) -> &Self {
        self.0.push((address.to_string(), "<client>".to_owned()));
        self
    }

    pub fn apply(&self, text: &str) -> String {
        let names = self.0.iter();
        names.fold(text.to_owned(), |text, (address, name)| text.replace(address.as_str(), name))
    }
}

/// The lines that only one side has.
#[derive(Debug, Default)]
pub struct Difference {
    pub envoy: Vec<String>,
    pub postrider: Vec<String>,
}

impl Difference {
    pub fn is_empty(&self) -> bool {
        self.envoy.is_empty() && self.postrider.is_empty()
    }
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let cut = |line: &str| line.chars().take(2000).collect::<String>();
        for line in &self.envoy {
            writeln!(f, "    Envoy     {}", cut(line))?;
        }
        for line in &self.postrider {
            writeln!(f, "    Postrider {}", cut(line))?;
        }
        Ok(())
    }
}

pub fn compare(envoy: &Seen, postrider: &Seen) -> Difference {
    let (mut theirs, mut ours) = (envoy.clone(), postrider.clone());
    theirs.sort_unstable();
    ours.sort_unstable();
    let mut difference = Difference::default();
    let (mut left, mut right) = (theirs.into_iter().peekable(), ours.into_iter().peekable());
    loop {
        match (left.peek(), right.peek()) {
            (Some(one), Some(other)) if one == other => {
                left.next();
                right.next();
            }
            (Some(one), Some(other)) if one < other => difference.envoy.extend(left.next()),
            (Some(_), None) => difference.envoy.extend(left.next()),
            (_, Some(_)) => difference.postrider.extend(right.next()),
            (None, None) => return difference,
        }
    }
}

pub fn note_answer(seen: &mut Seen, mask: &Mask, answer: &Response) {
    let kind = if answer.status < 200 && answer.status != 101 { "interim" } else { "answer" };
    seen.push(format!("{kind}: {} {} {}", answer.version, answer.status, answer.reason));
    note_fields(seen, mask, kind, &answer.headers);
    note_fields(seen, mask, &format!("{kind} trailer"), &answer.trailers);
    match unpacked(&answer.headers, &answer.body) {
        Some(plain) => seen.push(format!("{kind} {PACKED}: {}", text(&plain))),
        None => seen.push(format!("{kind} body: {}", mask.apply(&text(&answer.body)))),
    }
}

/// Stands in front of a body that was packed.
const PACKED: &str = "unpacked body";

fn unpacked(fields: &Headers, body: &[u8]) -> Option<Vec<u8>> {
    unpack(fields.value("content-encoding")?, body)
}

/// How many bytes a packed body has is a matter of the library.
pub fn mask_packed(seen: &mut Seen) {
    let packed = format!("answer {PACKED}");
    if seen.iter().any(|line| line.starts_with(&packed)) {
        seen.retain(|line| !line.starts_with("log sent: "));
    }
}

/// The connection ended, or went on in silence, without an answer.
pub fn note_end(seen: &mut Seen, mask: &Mask, error: &WireError) {
    let error = match error {
        // What arrives before a reset is a matter of luck.
        WireError::Reset | WireError::Eof(_) => "the connection ends".to_owned(),
        other => mask.apply(&format!("{other:?}")),
    };
    seen.push(format!("answer: none: {error}"));
}

pub fn note_request(seen: &mut Seen, mask: &Mask, who: &str, request: &Request) {
    seen.push(format!("{who}: {} {} {}", request.method, request.target, request.version));
    note_fields(seen, mask, who, &request.headers);
    note_fields(seen, mask, &format!("{who} trailer"), &request.trailers);
    match unpacked(&request.headers, &request.body) {
        Some(plain) => seen.push(format!("{who} {PACKED}: {}", text(&plain))),
        None => seen.push(format!("{who} body: {}", text(&request.body))),
    }
}

fn note_fields(seen: &mut Seen, mask: &Mask, who: &str, fields: &Headers) {
    for (index, (name, value)) in fields.0.iter().enumerate() {
        // Whether a short answer had to wait for its pace is a matter of luck.
        if name.contains("bandwidth-response-") {
            continue;
        }
        let value = mask.apply(&text(value));
        let value = match name.to_ascii_lowercase().as_str() {
            "date" if value.ends_with("GMT") && !value.contains("1970") => "<date>",
            "x-envoy-upstream-service-time" if value.parse::<u64>().is_ok() => "<time>",
            // Two clocks, and seconds that are counted down.
            "x-ratelimit-reset" | "retry-after" if value.len() > 2 => &tens(&value),
            "x-request-id" if is_uuid(&value) => "<uuid>",
            name if name.contains("bandwidth-") && name.ends_with("-ms") => "<time>",
            // A further try has what the ones before left of it.
            "x-envoy-expected-rq-timeout-ms" if !who.ends_with("#0") => &what_is_left(&value),
            _ => &value,
        };
        // The order counts among the lines of one name.
        let earlier = fields.0[..index].iter().filter(|(other, _)| other.eq_ignore_ascii_case(name)).count();
        let place = if earlier == 0 { String::new() } else { format!("[{earlier}]") };
        seen.push(format!("{who} field{place} {name}: {value}"));
    }
}

/// A time in milliseconds; one of more than a second, of which tries and waits took some, up to a multiple of the usual timeout.
fn what_is_left(value: &str) -> String {
    match value.parse::<u64>() {
        Ok(millis) if millis > 1_000 => format!("<up to {} s>", millis.div_ceil(15_000) * 15),
        _ => value.to_owned(),
    }
}

/// A number of seconds, up to the next ten.
fn tens(value: &str) -> String {
    value.parse::<u64>().map_or(value.to_owned(), |seconds| format!("<up to {} s>", seconds.div_ceil(10) * 10))
}

fn text(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if bytes.len() <= 4096 => text.escape_debug().to_string(),
        _ if bytes.len() <= 4096 => bytes.escape_ascii().to_string(),
        _ => format!("{} bytes, sum {}", bytes.len(), bytes.iter().map(|byte| u64::from(*byte)).sum::<u64>()),
    }
}

fn is_uuid(value: &str) -> bool {
    let parts: Vec<usize> = value.split('-').map(str::len).collect();
    parts == [8, 4, 4, 4, 12] && value.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit())
}

/// Takes out whom `x-forwarded-for` was extended by: for a client on loopback Envoy says the node's own address, which is
/// that of the machine.
pub fn mask_peer(seen: &mut Seen, request: &[u8]) {
    let sent = String::from_utf8_lossy(request);
    let added = |part: &str| {
        let part = part.trim().trim_matches('"');
        part.parse::<std::net::IpAddr>().is_ok() && !sent.contains(part)
    };
    for line in seen.iter_mut() {
        let Some(at) =
            ["field x-forwarded-for: ", "log forwarded: "].iter().find_map(|it| Some(line.find(it)? + it.len()))
        else {
            continue;
        };
        let list: Vec<&str> = line[at..].trim_matches('"').split(',').collect();
        let list: Vec<&str> = list.into_iter().map(|part| if added(part) { "<peer>" } else { part }).collect();
        *line = format!("{}{}", &line[..at], list.join(","));
    }
}

/// All commands but those for times, identifiers and ports of the machine's choice.
pub fn log_format() -> Value {
    json!({
        "client": "%DOWNSTREAM_DIRECT_REMOTE_ADDRESS%",
        "method": "%REQ(:METHOD)%",
        "path": "%REQ(:PATH)%",
        "original_path": "%REQ(X-ENVOY-ORIGINAL-PATH?:PATH)%",
        "path_without_query": "%PATH(NQ)%",
        "authority": "%REQ(:AUTHORITY)%",
        "scheme": "%REQ(:SCHEME)%",
        "protocol": "%PROTOCOL%",
        "upstream_protocol": "%UPSTREAM_PROTOCOL%",
        "code": "%RESPONSE_CODE%",
        "details": "%RESPONSE_CODE_DETAILS%",
        "flags": "%RESPONSE_FLAGS%",
        "flags_long": "%RESPONSE_FLAGS_LONG%",
        "ended": "%CONNECTION_TERMINATION_DETAILS%",
        "type": "%ACCESS_LOG_TYPE%",
        "received": "%BYTES_RECEIVED%",
        "sent": "%BYTES_SENT%",
        "host": "%UPSTREAM_HOST%",
        "cluster": "%UPSTREAM_CLUSTER%",
        "cluster_raw": "%UPSTREAM_CLUSTER_RAW%",
        "upstream": "%UPSTREAM_REMOTE_ADDRESS%",
        "attempts": "%UPSTREAM_REQUEST_ATTEMPT_COUNT%",
        "failure": "%UPSTREAM_TRANSPORT_FAILURE_REASON%",
        "from": "%DOWNSTREAM_REMOTE_ADDRESS%",
        "listener": "%DOWNSTREAM_LOCAL_ADDRESS%",
        "route": "%ROUTE_NAME%",
        "virtual_cluster": "%VIRTUAL_CLUSTER_NAME%",
        "chain": "%FILTER_CHAIN_NAME%",
        "grpc": "%GRPC_STATUS%",
        "own_body": "%LOCAL_REPLY_BODY%",
        "forwarded": "%REQ(X-FORWARDED-FOR)%",
        "answer_type": "%RESP(CONTENT-TYPE)%",
        "trailer": "%TRAILER(X-END)%",
        "query": "%QUERY_PARAM(q)%",
        "user_agent": "%REQ(USER-AGENT):12%",
    })
}

pub fn note_log(seen: &mut Seen, mask: &Mask, line: &Value) {
    for (name, value) in line.as_object().into_iter().flatten() {
        match value.as_str().filter(|_| name == "trace") {
            Some(trace) => note_trace(seen, mask, trace),
            None if name.starts_with(FORM) => seen.push(format!("log {name}: {}", form(value))),
            None => seen.push(format!("log {name}: {}", mask.apply(&value.to_string()))),
        }
    }
}

/// What a module wrote down: each operation, behind the callback that did it.
///
/// Into which pieces a body falls, in which order fields stand, what framing says of a message and how long it took is not
/// compared.
fn note_trace(seen: &mut Seen, mask: &Mask, trace: &str) {
    let mut callback = "";
    let mut pieces: Seen = Vec::new();
    for part in mask.apply(trace).split(' ').filter(|part| !part.is_empty()) {
        let entered = part.ends_with(')').then(|| part.split_once('(')).flatten();
        if let Some((name, _)) = entered {
            callback = name;
        }
        let of_body = matches!(callback, "qb" | "ab");
        let line = match (entered, part.split_once("pairs")) {
            (Some(_), _) if of_body => continue,
            (Some(_), _) => format!("trace {callback}"),
            (None, Some((_, fields))) => format!("trace {callback} pairs {}", sorted(fields)),
            (None, None) => format!("trace {callback} {part}"),
        };
        if of_body {
            pieces.push(line);
        } else {
            seen.push(line);
        }
    }
    pieces.sort_unstable();
    pieces.dedup();
    seen.extend(pieces);
}

fn sorted(fields: &str) -> String {
    let about_the_message = ["content-length=", "transfer-encoding=", "x-envoy-upstream-service-time="];
    let mut fields: Vec<&str> = fields.trim_start_matches(':').split(',').collect();
    fields.retain(|field| !about_the_message.iter().any(|name| field.starts_with(name)));
    fields.sort_unstable();
    fields.join(",")
}

/// The counters of a scene, its filters and its clusters that moved.
pub fn counted(scene: &str, before: &Stats, after: &Stats) -> Seen {
    let shared = ["cluster.", "vhost.", "json_to_metadata.", "wasmcustom.", "dynamicmodulescustom."].map(String::from);
    let own: Vec<String> =
        shared.into_iter().chain([format!("http.{scene}."), format!("http_filter_name.{scene}.")]).collect();
    // Named by the configuration, which takes the scene's name.
    let named = |name: &str| {
        let kinds = ["http_local_rate_limit.", "http_bandwidth_limit."];
        name.starts_with(&format!("{scene}.")) && kinds.iter().any(|kind| name.contains(kind))
    };
    let moved = |(name, value): (&String, &String)| {
        let name = name.as_str();
        let subject = own.iter().any(|own| name.starts_with(own.as_str())) || named(name);
        let moved = value.parse::<i64>().ok()? - i64::try_from(before.value(name)).ok()?;
        (subject && moved != 0 && is_comparable(name)).then(|| format!("counted {name}: {moved}"))
    };
    after.0.iter().filter_map(moved).collect()
}

/// How many connections there are, who waited for one, how many bytes went through them and when one of them had to wait is
/// not a matter of requests; what went wrong with one is. How often a pace made a body wait is a matter of the clock.
fn is_comparable(name: &str) -> bool {
    const OF_CONNECTIONS: [&str; 9] = [
        "_cx_",
        "_bytes",
        "lb_",
        ".circuit_breakers.",
        "_active",
        "_pending_total",
        "_flow_control_",
        "bandwidth_limit.request_enforced",
        "bandwidth_limit.response_enforced",
    ];
    const WRONG: [&str; 2] = ["_cx_none_healthy", "_uncompressed_bytes"];
    WRONG.iter().any(|end| name.ends_with(end)) || !OF_CONNECTIONS.iter().any(|part| name.contains(part))
}
