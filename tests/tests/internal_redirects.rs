//! Redirects of upstreams that the proxy follows itself.

use postrider_tests::h2_client::{H2Client, request};
use postrider_tests::kit::config::file_access_log;
use postrider_tests::kit::proxy::Launch;
use postrider_tests::kit::{Config, Origin, Proxy, Response, TempDir, wait_until};
use postrider_tests::{ask, envoy};
use serde_json::{Value, json};

/// Redirects to what the request's `x-loc` says, with the status of `x-code`.
fn redirecting() -> Origin {
    Origin::start(|connection| {
        while let Some(request) = connection.request() {
            let location = request.headers.value("x-loc").map(|to| format!("location: {to}\r\n")).unwrap_or_default();
            let status = request.headers.value("x-code").unwrap_or("302");
            let answer = format!("HTTP/1.1 {status} Moved\r\n{location}x-copy: copied\r\ncontent-length: 3\r\n\r\nred");
            connection.write(answer.as_bytes());
        }
    })
}

struct Set {
    proxy: Proxy,
    origin: Origin,
    target: Origin,
}

fn start(policy: Value) -> Set {
    let (origin, target) = (redirecting(), Origin::fixed("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"));
    let config = Config::routes(json!([
        {"name": "target", "match": {"prefix": "/target"}, "route": {"cluster": "target"}},
        {"name": "direct", "match": {"prefix": "/direct"}, "direct_response": {"status": 201}},
        {"name": "red", "match": {"prefix": "/red"}, "route": {"cluster": "origin", "internal_redirect_policy": policy}},
    ]))
    .cluster("origin", &[origin.address])
    .cluster("target", &[target.address]);
    Set { proxy: Proxy::start(&config), origin, target }
}

impl Set {
    fn get(&self, location: &str) -> Response {
        ask(&self.proxy, "GET", "test", "/red?z", &format!("x-loc: {location}\r\n"))
    }

    fn counted(&self, name: &str) -> u64 {
        self.proxy.stats().value(&format!("http.ingress_http.passthrough_internal_redirect_{name}"))
    }

    fn failed(&self) -> u64 {
        self.proxy.stats().value("cluster.origin.upstream_internal_redirect_failed_total")
    }
}

fn predicate(name: &str, kind: &str, mut config: Value) -> Value {
    config["@type"] = json!(format!("type.googleapis.com/envoy.extensions.internal_redirect.{kind}"));
    json!({"name": name, "typed_config": config})
}

#[test]
fn the_client_gets_the_answer_of_where_a_redirect_leads() {
    let set = start(json!({"response_headers_to_copy": ["x-copy"]}));
    let answer = set.get("http://other/target?q=1");
    assert_eq!((answer.status, answer.text()), (200, "ok"));
    let seen = set.target.requests().remove(0);
    assert_eq!((seen.target.as_str(), seen.header("host")), ("/target?q=1", "other"));
    assert_eq!(seen.header("x-envoy-original-url"), "http://test/red?z");
    assert_eq!(seen.header("x-copy"), "copied");
    // The client may have its answer before it is counted.
    set.proxy.wait_stat("http.ingress_http.downstream_rq_2xx", 1);
    let stats = set.proxy.stats();
    assert_eq!(stats.value("cluster.origin.upstream_internal_redirect_succeeded_total"), 1);
    assert_eq!(stats.value("cluster.origin.upstream_rq_total"), 1);
    assert_eq!(stats.value("cluster.origin.upstream_rq_302"), 0);
    assert_eq!(stats.value("http.ingress_http.downstream_rq_total"), 2);
    assert_eq!(stats.value("http.ingress_http.downstream_rq_3xx"), 0);
    // It may also be a route that answers by itself.
    assert_eq!(set.get("http://other/direct").status, 201);
    // The connection with the origin was in sync, and goes on.
    if !envoy() {
        assert_eq!(set.origin.connection_count(), 1);
    }
}

#[test]
fn what_cannot_be_followed_is_passed_on() {
    let set = start(json!({}));
    for bad in ["/target", "../target", "http://"] {
        assert_eq!(set.get(bad).status, 302, "{bad}");
    }
    assert_eq!(set.counted("bad_location"), 3);
    assert_eq!(set.get("https://other/target").status, 302);
    assert_eq!(set.counted("unsafe_scheme"), 1);
    assert_eq!(set.get("http://other/nowhere").status, 302);
    assert_eq!(set.counted("no_route"), 1);
    assert_eq!(set.get("http://other/red").status, 302);
    assert_eq!(set.counted("too_many_redirects"), 1);
    assert_eq!(set.failed(), 6);
    let plain = ask(&set.proxy, "GET", "test", "/red", "");
    assert_eq!((plain.status, plain.text()), (302, "red"));
    assert_eq!(ask(&set.proxy, "GET", "test", "/red", "x-loc: http://other/target\r\nx-code: 301\r\n").status, 301);
    assert_eq!(set.failed(), 7);
    assert_eq!(set.target.requests().len(), 0);
}

#[test]
fn several_may_follow_one_another() {
    let set = start(json!({"max_internal_redirects": 3}));
    assert_eq!(set.get("http://test/red").status, 302);
    assert_eq!(set.origin.requests().len(), 4);
    assert_eq!(set.counted("too_many_redirects"), 1);
}

#[test]
fn a_body_follows_unless_the_redirect_asks_for_a_get() {
    let set = start(json!({"redirect_response_codes": [302, 303, 307]}));
    for (code, framing, body, method, followed) in [
        ("302", "content-length: 5", "hello", "POST", "hello"),
        ("303", "content-length: 5", "hello", "GET", ""),
        ("307", "transfer-encoding: chunked", "5\r\nhello\r\n0\r\n\r\n", "POST", "hello"),
    ] {
        let head = format!(
            "POST /red HTTP/1.1\r\nhost: test\r\nx-loc: http://o/target\r\nx-code: {code}\r\n{framing}\r\n\r\n"
        );
        assert_eq!(set.proxy.exchange(format!("{head}{body}")).text(), "ok", "{code}");
        let seen = set.target.requests().pop().unwrap();
        assert_eq!((seen.method.as_str(), seen.body.as_slice()), (method, followed.as_bytes()), "{code}");
    }
}

#[test]
fn bytes_before_a_redirect_count_for_the_request_that_follows_it() {
    let (origin, target) = (redirecting(), Origin::fixed("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"));
    let directory = TempDir::new();
    let path = directory.path().join("log");
    let format = "%RESPONSE_CODE% %BYTES_RECEIVED% %DOWNSTREAM_WIRE_BYTES_RECEIVED%\n";
    let log = file_access_log(&path, json!({"log_format": {"text_format_source": {"inline_string": format}}}));
    let policy = json!({"redirect_response_codes": [302, 303]});
    let config = Config::routes(json!([
        {"match": {"prefix": "/target"}, "route": {"cluster": "target"}},
        {"match": {"prefix": "/red"}, "route": {"cluster": "origin", "internal_redirect_policy": policy}},
    ]))
    .cluster("origin", &[origin.address])
    .cluster("target", &[target.address])
    .overlay_filter("http", json!({"access_log": [log]}));
    let launch = Launch::default().with_arguments(&["--file-flush-interval-msec", "20"]);
    let proxy = Proxy::start_with(&config, launch);
    let asked = |code: &str| {
        let fields = format!("x-loc: http://o/target\r\nx-code: {code}\r\ncontent-length: 5\r\nconnection: close");
        format!("POST /red HTTP/1.1\r\nhost: test\r\n{fields}\r\n\r\nhello")
    };
    for code in ["302", "303"] {
        assert_eq!(proxy.exchange(asked(code)).text(), "ok", "{code}");
    }
    let wire = asked("302").len();
    // The body was sent once, and read once more where it follows.
    let wanted = format!("302 5 {wire}\n200 10 {wire}\n303 5 {wire}\n200 5 {wire}\n");
    let logged = || std::fs::read_to_string(&path).unwrap_or_default();
    wait_until("the log", || logged().lines().count() == 4);
    assert_eq!(logged(), wanted);
}

#[test]
fn predicates_say_which_routes_may_follow() {
    let previous = predicate("p", "previous_routes.v3.PreviousRoutesConfig", json!({}));
    let set = start(json!({"max_internal_redirects": 5, "predicates": [previous]}));
    assert_eq!(set.get("http://other/red").status, 302);
    assert_eq!((set.origin.requests().len(), set.counted("predicate")), (2, 1));
    let names = json!({"allowed_route_names": ["target"]});
    let set = start(json!({"predicates": [predicate("a", "allow_listed_routes.v3.AllowListedRoutesConfig", names)]}));
    assert_eq!(set.get("http://other/direct").status, 302);
    assert_eq!(set.get("http://other/target").status, 200);
    assert_eq!(set.counted("predicate"), 1);
    let set = start(json!({"allow_cross_scheme_redirect": true}));
    assert_eq!(set.get("https://other/target").status, 200);
    let safe = predicate("s", "safe_cross_scheme.v3.SafeCrossSchemeConfig", json!({}));
    let set = start(json!({"allow_cross_scheme_redirect": true, "predicates": [safe]}));
    assert_eq!(set.get("https://other/target").status, 302);
    assert_eq!(set.counted("predicate"), 1);
}

#[test]
fn streams_of_http_2_follow_too() {
    let set = start(json!({}));
    let mut client = H2Client::connect(set.proxy.address("http"));
    let asked = request("POST", "/red").header("x-loc", "http://other/target").body(()).unwrap();
    let mut exchange = client.start(asked, false);
    client.send_all(&mut exchange.body, b"hello", true).unwrap();
    assert_eq!(client.answer(exchange).unwrap().text(), "ok");
    let seen = set.target.requests().remove(0);
    assert_eq!((seen.method.as_str(), seen.body.as_slice()), ("POST", &b"hello"[..]));
}
