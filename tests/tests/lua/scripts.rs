//! The scripts of `tests/differential/lua` in both proxies: what they see is the same, but for what is listed with its reason.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use postrider_tests::kit::config::router;
use postrider_tests::kit::proxy::Launch;
use postrider_tests::kit::{Config, Origin, Proxy, Request, net};
use postrider_tests::postrider_only;
use serde_json::{Value, json};

use crate::site::{PER_ROUTE, beside, lua};

/// The filter's name: that of its metadata, too.
const FILTER: &str = "lua";

/// Scripts whose request has a body.
const POSTED: [&str; 5] = ["body", "body_chunks", "pairs_early", "respond_after_body", "scope_yield"];

/// Scripts that are asked twice; the second answer counts.
const TWICE: [&str; 1] = ["scope"];

/// What may differ: a script, what of it (`*` is all), and why.
const ALLOWED: &[(&str, &str, &str)] = &[
    ("edits", "*", "Envoy makes a message that nobody can read, and fails the request; here the edit is an error"),
    ("statistics", "errors", "the edit of the script before"),
    ("body_chunks", "body", "a body that goes on in pieces is chunked: the script may change each"),
    ("body_chunks", "r-n", "Envoy has an empty piece for the end"),
    ("body_chunks", "r-set", "what setBytes() was given for that piece"),
    ("dynamic_metadata", "r-iterget", "each dynamicMetadata() is an object of its own"),
    ("http_call", "r-down", "the body of a call that failed"),
    ("http_call", "r-numkey", "Envoy changes the table that it goes through"),
    ("http_call_headers", "r-down", "the body of a call that failed"),
    ("http_call_headers", "r-downh", "its length"),
    ("http_call_headers", "r-dup", "Envoy adds how long the call took to its answer"),
    ("http_call_headers", "r-sent", "the address in x-forwarded-for is the one that the client reached"),
    ("metadata", "r-isnull", "a null is not there"),
    ("metadata", "r-keys", "a null is not there, and Envoy reads fractions of YAML as texts"),
    ("objects", "r-self", "the words for a method without its object"),
    ("objects", "r-set", "objects are tables"),
    ("override_host", "r-six2", "an address in brackets without a port is one, too"),
    ("pairs_order", "r-len", "objects are tables"),
    ("pairs_order", "r-types", "the iterator is a table that can be called"),
    ("respond", "r-length", "the proxy frames its own answers when it sends them"),
    ("respond_bad", "r-key", "Envoy changes the table that it goes through"),
    ("stats", "r-emptyname", "a statistic has a name"),
    ("stats", "r-gvalue3", "gauges below zero are negative"),
];

/// Answers with its request as text and with the headers that the script left on it.
fn origin() -> Origin {
    Origin::start(|connection| {
        while let Some(request) = connection.request() {
            if request.target == "/slow" {
                slow_down();
            }
            let body = if request.target == "/empty" { String::new() } else { described(&request) };
            let left = request.headers.0.iter().filter(|(name, _)| name.starts_with("r-"));
            let left: String =
                left.map(|(name, value)| format!("{name}: {}\r\n", String::from_utf8_lossy(value))).collect();
            let length = body.len();
            let answer =
                format!("HTTP/1.1 200 OK\r\nx-dup: 1\r\nx-dup: 2\r\n{left}content-length: {length}\r\n\r\n{body}");
            if !connection.write(answer.as_bytes()) {
                return;
            }
        }
    })
}

#[expect(clippy::disallowed_methods, reason = "nobody waits for it: a call to it has a shorter timeout")]
fn slow_down() {
    std::thread::sleep(Duration::from_millis(400));
}

/// Without what is another one each time.
fn described(request: &Request) -> String {
    let changes = ["x-request-id", "x-envoy-attempt-count"];
    let mut lines: Vec<String> = request
        .headers
        .0
        .iter()
        .filter(|(name, _)| !changes.contains(&name.as_str()) && !name.starts_with("r-"))
        .map(|(name, value)| format!("{name}: {}\n", String::from_utf8_lossy(value)))
        .collect();
    lines.sort();
    format!("{} {}\n{}{}", request.method, request.target, lines.concat(), String::from_utf8_lossy(&request.body))
}

fn scripts() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("differential/lua");
    let mut all: Vec<(String, String)> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "lua"))
        .map(|path| (path.file_stem().unwrap().to_str().unwrap().to_owned(), std::fs::read_to_string(&path).unwrap()))
        .collect();
    all.sort();
    all
}

/// What came of each script in one proxy: of the answer its status, its body and every header of the script's own.
fn run(launch: Launch, scripts: &[(String, String)]) -> BTreeMap<String, BTreeMap<String, String>> {
    let origin = origin();
    let routes: Vec<Value> = scripts
        .iter()
        .map(|(name, _)| {
            json!({
                "name": "the-route",
                "match": {"prefix": format!("/{name}/")},
                "route": {"cluster": "origin"},
                "metadata": {"filter_metadata": {FILTER: {
                    "s": "text", "n": 1.5, "b": true, "z": null, "l": [1, 2], "o": {"k": {"d": "deep"}},
                }}},
                "typed_per_filter_config": {FILTER: {"@type": PER_ROUTE, "name": name, "filter_context": {"k": "ctx"}}},
            })
        })
        .collect();
    let codes: serde_json::Map<String, Value> =
        scripts.iter().map(|(name, text)| (name.clone(), json!({"inline_string": text}))).collect();
    let mut filter = lua(json!({"stat_prefix": "own", "source_codes": codes}));
    filter["name"] = json!(FILTER);
    let host = json!({
        "name": "all", "domains": ["*"], "routes": routes, "metadata": {"filter_metadata": {FILTER: {"v": "vhost"}}},
    });
    let config = Config::new()
        .http(json!({
            "http_filters": [filter, router()],
            "route_config": {"name": "table", "virtual_hosts": [host]},
        }))
        .cluster("origin", &[origin.address])
        .cluster("down", &[net::refusing_address()]);
    let proxy = Proxy::start_with(&config, launch);
    let ask = |name: &str| {
        let (method, body) = if POSTED.contains(&name) { ("POST", "hello world") } else { ("GET", "") };
        let length = if body.is_empty() { String::new() } else { format!("content-length: {}\r\n", body.len()) };
        let fields = "x-multi: a\r\nx-multi: b\r\nx-empty:\r\n";
        proxy.exchange(format!("{method} /{name}/x HTTP/1.1\r\nhost: example.org\r\n{length}{fields}\r\n{body}"))
    };
    let seen = |name: &str| {
        let mut response = ask(name);
        if TWICE.contains(&name) {
            response = ask(name);
        }
        let own = response.headers.0.iter().filter(|(name, _)| name.starts_with("r-"));
        let mut seen: BTreeMap<String, String> = BTreeMap::new();
        for (name, value) in own {
            let known = seen.entry(name.clone()).or_default();
            *known = format!("{known}{}", String::from_utf8_lossy(value));
        }
        seen.insert("status".to_owned(), response.status.to_string());
        seen.insert("body".to_owned(), String::from_utf8_lossy(&response.body).into_owned());
        seen
    };
    let mut all: BTreeMap<String, BTreeMap<String, String>> =
        scripts.iter().map(|(name, _)| (name.clone(), seen(name))).collect();
    let stats = proxy.stats();
    let counted = ["errors", "executions", "c.one", "g"];
    let counted =
        counted.map(|name| (name.to_owned(), stats.value(&format!("http.ingress_http.lua.own.{name}")).to_string()));
    all.insert("statistics".to_owned(), counted.into_iter().collect());
    all
}

/// Without what is said in other words everywhere: how a script is called, which argument of which method is wrong and what
/// was found in its place, what kind of value an object is, and where it lies.
pub fn plain(text: &str) -> String {
    let mut text = text.replace("userdata", "table");
    cut(&mut text, "[string \"", "\"]", "lua");
    cut(&mut text, "bad argument #", " (", "bad argument (");
    cut(&mut text, " expected, got ", ")", " expected)");
    cut(&mut text, "N5Envoy", " expected", "OBJECT expected");
    for class in ["HeaderMap", "StreamHandle"] {
        text = text.replace(&format!("({class} expected"), "(OBJECT expected");
    }
    cut(&mut text, "table: 0x", "", "table: PTR");
    text
}

/// Puts `by` in place of everything from `from` to `to`; hexadecimal digits when `to` is empty.
fn cut(text: &mut String, from: &str, to: &str, by: &str) {
    let mut at = 0;
    while let Some(start) = text[at..].find(from).map(|found| at + found) {
        let behind = start + from.len();
        let end = match to {
            "" => text[behind..].find(|c: char| !c.is_ascii_hexdigit()).map_or(text.len(), |found| behind + found),
            to => match text[behind..].find(to) {
                Some(found) => behind + found + to.len(),
                None => return,
            },
        };
        text.replace_range(start..end, by);
        at = start + by.len();
    }
}

#[test]
fn scripts_see_the_same_in_both_proxies() {
    if !postrider_only() {
        return;
    }
    let scripts = scripts();
    let [theirs, ours] = beside().map(|launch| run(launch, &scripts));
    let mut used = vec![false; ALLOWED.len()];
    let mut wrong = String::new();
    for (script, theirs) in &theirs {
        let ours = &ours[script];
        let names: std::collections::BTreeSet<&String> = theirs.keys().chain(ours.keys()).collect();
        for name in names {
            let (theirs, ours) = (theirs.get(name).map(|text| plain(text)), ours.get(name).map(|text| plain(text)));
            if theirs == ours {
                continue;
            }
            let allowed = ALLOWED.iter().position(|(of, what, _)| of == script && (*what == "*" || what == name));
            match allowed {
                Some(at) => used[at] = true,
                None => wrong += &format!("{script} {name}: Envoy {theirs:?}, here {ours:?}\n"),
            }
        }
    }
    for (at, (script, what, why)) in ALLOWED.iter().enumerate() {
        if !used[at] {
            wrong += &format!("{script} {what}: the same by now, so this is no longer so: {why}\n");
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}
