//! A proxy with one script for each route, and what comes of a request to it.

use postrider_tests::kit::config::{extension, router};
use postrider_tests::kit::proxy::{Launch, binary};
use postrider_tests::kit::{Config, Origin, Proxy, Request, Response};
use serde_json::{Value, json};

pub const NAME: &str = "envoy.filters.http.lua";
pub const PER_ROUTE: &str = "type.googleapis.com/envoy.extensions.filters.http.lua.v3.LuaPerRoute";

/// The filter with these fields.
pub fn lua(fields: Value) -> Value {
    extension(NAME, "filters.http.lua.v3.Lua", fields)
}

/// How Envoy is started, and how Postrider is, for what is compared.
pub fn beside() -> [Launch; 2] {
    let envoy = Launch::envoy().unwrap_or_else(|| {
        panic!(
            "Envoy 1.40 is needed to compare with: set ENVOY_BIN, or let `make test` install it into target/tools/envoy"
        )
    });
    [envoy, Launch { binary: Some(binary().to_owned()), ..Launch::default() }]
}

/// A chain of filters before the router, and routes to `origin`.
pub fn site(filters: &[Value], routes: Value, origin: &Origin) -> Proxy {
    let mut filters = filters.to_vec();
    filters.push(router());
    let config = Config::new()
        .http(json!({
            "http_filters": filters,
            "route_config": {"name": "table", "virtual_hosts": [{
                "name": "all", "domains": ["*"], "routes": routes,
                "metadata": {"filter_metadata": {NAME: {"of": "host"}}},
            }]},
        }))
        .cluster("origin", &[origin.address])
        .cluster("other", &[origin.address]);
    Proxy::start(&config)
}

/// A script and a request for it.
pub struct Case {
    pub name: &'static str,
    pub script: &'static str,
    pub method: &'static str,
    /// Field lines, each ended by CRLF.
    pub fields: &'static str,
    pub body: &'static str,
    pub want: &'static [Want],
}

/// What must come of it.
pub enum Want {
    Status(u16),
    Body(&'static str),
    /// A field of the request that the origin gets.
    Up(&'static str, &'static str),
    /// None of that name.
    NoUp(&'static str),
    UpBody(&'static str),
    /// A field of the response that the client gets.
    Down(&'static str, &'static str),
    NoDown(&'static str),
    /// The origin is not asked.
    NotForwarded,
}

impl Case {
    pub const fn get(name: &'static str, script: &'static str, want: &'static [Want]) -> Case {
        Case { name, script, method: "GET", fields: "", body: "", want }
    }

    pub const fn with(name: &'static str, fields: &'static str, script: &'static str, want: &'static [Want]) -> Case {
        Case { name, script, method: "GET", fields, body: "", want }
    }

    pub const fn post(name: &'static str, body: &'static str, script: &'static str, want: &'static [Want]) -> Case {
        Case { name, script, method: "POST", fields: "", body, want }
    }
}

/// One proxy with a route `/NAME` for each case, and every request of them.
pub fn check(cases: &[Case]) {
    let origin = Origin::echo("a");
    let routes: Vec<Value> = cases
        .iter()
        .map(|case| {
            json!({
                "name": case.name,
                "match": {"path": format!("/{}", case.name)},
                "route": {"cluster": "origin"},
                "metadata": {"filter_metadata": {
                    NAME: {"text": "t", "number": 1.5, "yes": true, "list": [1, "two"], "map": {"k": "v"}},
                }},
                "typed_per_filter_config": {NAME: {"@type": PER_ROUTE, "source_code": {"inline_string": case.script}}},
            })
        })
        .collect();
    let proxy = site(&[lua(json!({}))], json!(routes), &origin);
    let mut wrong = String::new();
    for case in cases {
        origin.forget();
        let response = ask(&proxy, case);
        let seen = origin.requests().into_iter().next();
        for want in case.want {
            if let Some(text) = differs(want, &response, seen.as_ref()) {
                wrong += &format!("{}: {text}\n", case.name);
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}\n{}", proxy.stderr());
}

fn ask(proxy: &Proxy, case: &Case) -> Response {
    let length = match case.body.len() {
        0 => String::new(),
        length => format!("content-length: {length}\r\n"),
    };
    let (method, name, fields, body) = (case.method, case.name, case.fields, case.body);
    proxy.exchange(format!("{method} /{name} HTTP/1.1\r\nhost: test\r\n{length}{fields}\r\n{body}"))
}

fn differs(want: &Want, response: &Response, seen: Option<&Request>) -> Option<String> {
    let same = |what: &str, wanted: &str, found: &str| {
        (wanted != found).then(|| format!("{what}: wanted {wanted:?}, found {found:?}"))
    };
    let up = |name: &str| seen.map(|request| request.headers.values(name).join("|")).unwrap_or_default();
    match want {
        Want::Status(status) => same("status", &status.to_string(), &response.status.to_string()),
        Want::Body(body) => same("body", body, response.text()),
        Want::Up(name, value) => same(&format!("request's {name}"), value, &up(name)),
        Want::NoUp(name) => {
            (seen.is_some_and(|request| request.headers.contains(name))).then(|| format!("{name} was forwarded"))
        }
        Want::UpBody(body) => {
            let found = seen.map(|request| String::from_utf8_lossy(&request.body).into_owned()).unwrap_or_default();
            same("request's body", body, &found)
        }
        Want::Down(name, value) => same(&format!("response's {name}"), value, &response.headers.values(name).join("|")),
        Want::NoDown(name) => response.headers.contains(name).then(|| format!("{name} was sent")),
        Want::NotForwarded => seen.is_some().then(|| "the request was forwarded".to_owned()),
    }
}
