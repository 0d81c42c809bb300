//! Four plugins in one chain, configured at four scopes: one table of requests, and the same bytes whatever runs them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use postrider_tests::kit::config::overlay;
use postrider_tests::kit::message::Headers;
use postrider_tests::kit::net::refusing_address;
use postrider_tests::kit::{Origin, RawClient};
use postrider_tests::plugins::MANIFEST_ROUTE;
use postrider_tests::postrider_only;
use postrider_tests::runtimes::{Runtime, in_place};
use postrider_tests::site::{self, Site};
use serde_json::{Value, json};

const PLUGINS: [&str; 4] = ["basic_auth", "headers", "body", "callout"];

/// Fields that differ from one exchange to the next by their nature, and how bodies are framed: a plugin that holds the head until
/// it has the body lets the proxy know its length, another does not. The client and the origin hold each framing to its body.
const LEFT_OUT: [&str; 4] = ["date", "x-envoy-upstream-service-time", "content-length", "transfer-encoding"];

/// One body that is longer than what is read at once.
const MANY: usize = 40_000;

/// What a plugin is told at a scope: each scope has a user, a prefix, a word and a question of its own.
fn config(plugin: &str, scope: &str, service: &Service) -> Value {
    match plugin {
        "basic_auth" => json!({"username": scope, "password": format!("of the {scope}")}),
        "headers" => json!({"from": "x-old-", "to": format!("x-{scope}-")}),
        "body" => json!({"find": "cat", "replace": scope}),
        _ if scope == "lost" => {
            json!({"cluster": "lost", "path": "/lost", "address": service.lost.to_string()})
        }
        _ => json!({"cluster": "service", "path": format!("/{scope}"), "address": service.origin.address.to_string()}),
    }
}

/// What the plugin `callout` asks.
struct Service {
    origin: Origin,
    /// Nobody listens here.
    lost: std::net::SocketAddr,
}

impl Service {
    /// Answers with the scope that asked, or refuses what is to be refused.
    fn start() -> Service {
        let origin = Origin::start(|connection| {
            while let Some(request) = connection.request() {
                let scope = request.target.trim_start_matches('/').to_owned();
                let answer = match request.header("x-original-path") {
                    path if path.ends_with("/refused") => "HTTP/1.1 418 No\r\ncontent-length: 2\r\n\r\nno".to_owned(),
                    path if path.ends_with("/silent") => "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n".to_owned(),
                    _ => format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{scope}", scope.len()),
                };
                connection.write(answer.as_bytes());
            }
        });
        Service { origin, lost: refusing_address() }
    }
}

/// Answers in pieces that cut the word that is looked for.
fn origin() -> Origin {
    Origin::start(|connection| {
        while let Some(request) = connection.request() {
            let head = "x-old-z: 1\r\nx-other: 2\r\n";
            let answer = match request.target.rsplit('/').next() {
                Some("none") => format!("HTTP/1.1 204 No Content\r\n{head}\r\n"),
                Some("empty") => format!("HTTP/1.1 200 OK\r\n{head}content-length: 0\r\n\r\n"),
                Some("missing") => format!("HTTP/1.1 404 Not Found\r\n{head}content-length: 6\r\n\r\nno cat"),
                Some("many") => {
                    format!("HTTP/1.1 200 OK\r\n{head}content-length: {}\r\n\r\n{}", 4 * MANY, "cat ".repeat(MANY))
                }
                _ if request.method == "HEAD" => format!("HTTP/1.1 200 OK\r\n{head}content-length: 20\r\n\r\n"),
                _ => {
                    let pieces = "5\r\na cat\r\n7\r\n and ca\r\n8\r\nt and ca\r\n0\r\n\r\n";
                    format!("HTTP/1.1 200 OK\r\n{head}transfer-encoding: chunked\r\n\r\n{pieces}")
                }
            };
            connection.write(answer.as_bytes());
        }
    })
}

/// The gateway's own plugins; a project, a route and a weighted cluster with configurations of theirs; a route without.
fn site(runtime: Runtime, service: &Service) -> Site {
    let at = |scope: &str| {
        let mut all = json!({});
        for plugin in PLUGINS {
            overlay(&mut all, in_place(plugin, &config(plugin, scope, service)));
        }
        all
    };
    let mut off = json!({});
    for plugin in PLUGINS {
        off[plugin] = json!({"@type": MANIFEST_ROUTE, "disabled": true});
    }
    let to_origin = json!({"cluster": "origin"});
    let weighted = json!({"clusters": [{"name": "origin", "weight": 1, "typed_per_filter_config": at("cluster")}]});
    let project = json!({"name": "project", "domains": ["project"], "typed_per_filter_config": at("project"), "routes": [
        {"match": {"prefix": "/route/"}, "route": to_origin, "typed_per_filter_config": at("route")},
        {"match": {"prefix": "/lost/"}, "route": to_origin, "typed_per_filter_config": at("lost")},
        {"match": {"prefix": "/cluster/"}, "route": {"weighted_clusters": weighted}, "typed_per_filter_config": at("route")},
        {"match": {"prefix": "/off/"}, "route": to_origin, "typed_per_filter_config": off},
        site::rest(),
    ]});
    let gateway = json!({"name": "gateway", "domains": ["*"], "routes": [site::rest()]});
    let filters = PLUGINS.map(|plugin| runtime.manifest(plugin, &config(plugin, "gateway", service), json!({})));
    site::with(filters)
        .manager(json!({"route_config": {"virtual_hosts": [project, gateway]}}))
        .cluster("service", &[service.origin.address], json!({}))
        .cluster("lost", &[service.lost], json!({}))
        .start_before(origin())
}

/// A request, and what it is answered.
struct Row {
    request: String,
    status: u16,
    body: String,
    /// Some fields of the answer; an empty value is a field that is not there.
    fields: Vec<(String, String)>,
    /// What the origin got, when it got anything: fields of which some are empty, and the body.
    origin: Option<(Vec<(String, String)>, String)>,
}

/// A request's lines, from a user who is known at that scope.
fn request(method: &str, path: &str, scope: &str, user: &str, body: &str) -> String {
    let host = if scope == "gateway" { "other" } else { "project" };
    let credentials = STANDARD.encode(format!("{user}:of the {user}"));
    let head = format!("{method} {path} HTTP/1.1\r\nhost: {host}\r\nauthorization: Basic {credentials}\r\n");
    let fields = "x-old-a: 1\r\nx-older: 2\r\nx-old-b: 3\r\nx-auth-user: root\r\n";
    format!("{head}{fields}{body}")
}

fn with_length(body: &str) -> String {
    format!("content-length: {}\r\n\r\n{body}", body.len())
}

fn field(name: impl Into<String>, value: impl Into<String>) -> (String, String) {
    (name.into(), value.into())
}

/// What the origin gets when the plugins of a scope let a request go on.
fn passed(scope: &str, body: &str) -> Option<(Vec<(String, String)>, String)> {
    let fields = vec![
        field("x-auth-user", scope),
        field(format!("x-{scope}-a"), "1"),
        field(format!("x-{scope}-b"), "3"),
        field("x-old-a", ""),
        field("x-older", "2"),
        field("x-callout", scope),
    ];
    Some((fields, body.to_owned()))
}

fn rows(scope: &str) -> Vec<Row> {
    let path = |rest: &str| format!("/{}/{rest}", if scope == "project" { "other" } else { scope });
    let ask = |method: &str, rest: &str, body: &str| request(method, &path(rest), scope, scope, body);
    let renamed = || vec![field(format!("x-{scope}-z"), "1"), field("x-old-z", ""), field("x-other", "2")];
    let answer = format!("a {scope} and {scope} and ca");
    let ok = |request: String, body: &str, seen: &str| Row {
        request,
        status: 200,
        body: body.to_owned(),
        fields: renamed(),
        origin: passed(scope, seen),
    };
    let refused = |request: String, status: u16, body: &str, fields: Vec<(String, String)>| Row {
        request,
        status,
        body: body.to_owned(),
        fields,
        origin: None,
    };
    let challenge = || vec![field("www-authenticate", r#"Basic realm="postrider""#), field("x-old-z", "")];
    let pieces = "transfer-encoding: chunked\r\n\r\n3\r\nca \r\n2\r\nca\r\n6\r\ntcat d\r\n0\r\n\r\n";
    let many = format!("{scope} ").repeat(MANY);
    let mut silent = ok(ask("GET", "silent", "\r\n"), &answer, "");
    if let Some((fields, _)) = &mut silent.origin {
        fields.retain(|(name, _)| name != "x-callout");
        fields.push(field("x-callout", ""));
    }
    vec![
        ok(ask("GET", "page?cat", "\r\n"), &answer, ""),
        ok(ask("POST", "page", &with_length("catcat dog")), &answer, &format!("{scope}{scope} dog")),
        ok(ask("POST", "page", &with_length("")), &answer, ""),
        ok(ask("PUT", "page", pieces), &answer, &format!("ca {scope}{scope} d")),
        ok(ask("POST", "many", &with_length(&"cat ".repeat(MANY))), &many, &many),
        ok(ask("HEAD", "page", "\r\n"), "", ""),
        ok(ask("GET", "empty", "\r\n"), "", ""),
        Row { status: 204, ..ok(ask("GET", "none", "\r\n"), "", "") },
        Row { status: 404, ..ok(ask("GET", "missing", "\r\n"), &format!("no {scope}"), "") },
        silent,
        refused(ask("GET", "refused", "\r\n"), 403, "denied by 418\n", vec![]),
        refused(ask("POST", "refused", &with_length("a cat")), 403, "denied by 418\n", vec![]),
        refused(request("GET", &path("page"), scope, "nobody", "\r\n"), 401, "unauthorized\n", challenge()),
        refused(
            request("POST", &path("page"), scope, "nobody", &with_length("a cat")),
            401,
            "unauthorized\n",
            challenge(),
        ),
    ]
}

/// Where no plugin is, nothing changes.
fn untouched() -> Row {
    let fields = vec![field("x-old-z", "1"), field("x-other", "2")];
    let seen = vec![field("x-auth-user", "root"), field("x-old-a", "1"), field("x-old-b", "3"), field("x-callout", "")];
    Row {
        request: request("POST", "/off/page", "project", "nobody", &with_length("a cat")),
        status: 200,
        body: "a cat and cat and ca".to_owned(),
        fields,
        origin: Some((seen, "a cat".to_owned())),
    }
}

/// The whole table.
fn table() -> Vec<Row> {
    let mut all: Vec<Row> = ["gateway", "project", "route", "cluster"].into_iter().flat_map(rows).collect();
    all.push(untouched());
    all.push(Row {
        request: request("GET", "/lost/page", "project", "lost", "\r\n"),
        status: 403,
        body: "denied by 503\n".to_owned(),
        fields: vec![],
        origin: None,
    });
    // Who is known at one scope is unknown at another.
    for (path, scope, user) in
        [("/", "gateway", "project"), ("/route/", "route", "project"), ("/other/", "project", "gateway")]
    {
        all.push(Row {
            request: request("GET", path, scope, user, "\r\n"),
            status: 401,
            body: "unauthorized\n".to_owned(),
            fields: vec![],
            origin: None,
        });
    }
    all
}

/// All that went over the wires for one request, but for what is left out.
#[derive(PartialEq, Eq)]
struct Exchange {
    status: String,
    fields: Vec<String>,
    body: Vec<u8>,
    origin: Vec<(String, Vec<String>, Vec<u8>)>,
    questions: Vec<[String; 4]>,
}

impl std::fmt::Debug for Exchange {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let short = |body: &[u8]| String::from_utf8_lossy(&body[..body.len().min(80)]).into_owned();
        writeln!(out, "{} {:#?} {} bytes {:?}", self.status, self.fields, self.body.len(), short(&self.body))?;
        for (line, fields, body) in &self.origin {
            writeln!(out, "origin: {line} {fields:#?} {} bytes {:?}", body.len(), short(body))?;
        }
        writeln!(out, "questions: {:?}", self.questions)
    }
}

/// By name: a table of Lua has no order. Values of one name keep theirs.
fn lines(headers: &Headers) -> Vec<String> {
    let mut kept: Vec<_> = headers.0.iter().filter(|(name, _)| !LEFT_OUT.contains(&name.as_str())).collect();
    kept.sort_by(|(one, _), (other, _)| one.cmp(other));
    kept.into_iter().map(|(name, value)| format!("{name}: {}", String::from_utf8_lossy(value))).collect()
}

fn exchange(site: &Site, service: &Service, client: &mut RawClient, request: &str) -> Exchange {
    site.origin.forget();
    service.origin.forget();
    let answer = client.exchange(request);
    let origin = site.origin.requests().into_iter().map(|seen| {
        let line = format!("{} {} {}", seen.method, seen.target, seen.version);
        (line, lines(&seen.headers), seen.body)
    });
    let questions = service.origin.requests().into_iter().map(|asked| {
        let [host, path] = ["host", "x-original-path"].map(|name| asked.header(name).to_owned());
        [asked.method, asked.target, host, path]
    });
    Exchange {
        status: format!("{} {} {}", answer.version, answer.status, answer.reason),
        fields: lines(&answer.headers),
        origin: origin.collect(),
        questions: questions.collect(),
        body: answer.body,
    }
}

/// A field's value among lines; empty when it is not there.
fn value<'a>(lines: &'a [String], name: &str) -> &'a str {
    lines.iter().find_map(|line| line.strip_prefix(name)?.strip_prefix(": ")).unwrap_or("")
}

fn check(row: &Row, seen: &Exchange, what: &str) {
    assert!(seen.status.starts_with(&format!("HTTP/1.1 {} ", row.status)), "{what}: {seen:?}");
    assert!(seen.body == row.body.as_bytes(), "{what}: {seen:?}");
    for (name, expected) in &row.fields {
        assert_eq!(value(&seen.fields, name), expected, "{what} {name}: {seen:?}");
    }
    match (&row.origin, seen.origin.as_slice()) {
        (None, []) => {}
        (Some((fields, body)), [(_, lines, got)]) => {
            assert!(got == body.as_bytes(), "{what}: {seen:?}");
            for (name, expected) in fields {
                assert_eq!(value(lines, name), expected, "{what} {name}: {seen:?}");
            }
        }
        _ => panic!("{what}: the origin got {:?}", seen.origin),
    }
}

#[test]
fn four_plugins_at_four_scopes_answer_alike_in_every_runtime() {
    if !postrider_only() {
        return;
    }
    let service = Service::start();
    let table = table();
    let mut first: Vec<Exchange> = Vec::new();
    for runtime in Runtime::all() {
        runtime.compile(&PLUGINS.map(|plugin| (plugin, config(plugin, "gateway", &service))));
        let site = site(runtime, &service);
        for (index, row) in table.iter().enumerate() {
            let line = row.request.lines().next().unwrap_or_default();
            let what = format!("{runtime:?}, {index}, {line}");
            let seen = exchange(&site, &service, &mut site.proxy.client(), &row.request);
            check(row, &seen, &what);
            match first.get(index) {
                None => first.push(seen),
                Some(other) => assert!(*other == seen, "{what}: {seen:?}\nbut in {:?}: {other:?}", Runtime::all()[0]),
            }
        }
        for plugin in PLUGINS {
            let errors = site.proxy.stats().sum(&format!("plugin.{plugin}."), ".errors");
            assert_eq!(errors, 0, "{runtime:?} {plugin}");
        }
    }
}
