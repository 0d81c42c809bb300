//! Clients that stay with their host, and requests that go round in circles, as Envoy has it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use postrider_tests::ask;
use postrider_tests::kit::config::{extension, router, socket_address};
use postrider_tests::kit::{Config, Origin, Proxy, Response};
use serde_json::{Value, json};

const ROUTE: &str = "type.googleapis.com/envoy.extensions.filters.http.stateful_session.v3.StatefulSessionPerRoute";

fn session(kind: &str, message: &str, state: Value, fields: Value) -> Value {
    let mut fields = fields;
    let name = format!("envoy.http.stateful_session.{kind}");
    fields["session_state"] = extension(&name, &format!("http.stateful_session.{kind}.v3.{message}"), state);
    extension("envoy.filters.http.stateful_session", "filters.http.stateful_session.v3.StatefulSession", fields)
}

fn site(filter: Value, origins: &[&Origin]) -> Proxy {
    let addresses: Vec<_> = origins.iter().map(|origin| origin.address).collect();
    let config = Config::new()
        .http(json!({
            "http_filters": [filter, router()],
            "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [
                {
                    "match": {"prefix": "/off"},
                    "route": {"cluster": "origin"},
                    "typed_per_filter_config": {
                        "envoy.filters.http.stateful_session": {"@type": ROUTE, "disabled": true},
                    },
                },
                {"match": {"prefix": "/"}, "route": {"cluster": "origin"}},
            ]}]},
        }))
        .cluster("origin", &addresses);
    Proxy::start(&config)
}

fn get(proxy: &Proxy, path: &str, fields: &str) -> Response {
    ask(proxy, "GET", "test", path, fields)
}

#[test]
fn a_cookie_keeps_a_client_with_its_host() {
    let (a, b) = (Origin::echo("a"), Origin::echo("b"));
    let cookie = json!({"cookie": {
        "name": "sess", "ttl": "120s", "path": "/p", "attributes": [{"name": "SameSite", "value": "Lax"}, {"name": "Secure"}],
    }});
    let proxy = site(session("cookie", "CookieBasedSessionState", cookie, json!({})), &[&a, &b]);
    let first = get(&proxy, "/p?q", "");
    let given = first.header("set-cookie").to_owned();
    assert!(
        given.starts_with("sess=\"") && given.ends_with("\"; Max-Age=120; Path=/p; SameSite=Lax; Secure; HttpOnly"),
        "{given}"
    );
    let value = given.split(';').next().unwrap();
    for _ in 0..4 {
        let next = get(&proxy, "/p/x", &format!("cookie: {value}\r\n"));
        assert_eq!((next.header("x-origin"), next.header("set-cookie")), (first.header("x-origin"), ""));
    }
    // Where the cookie does not go, and where the route says so, nothing sticks.
    for path in ["/px", "/q", "/off"] {
        assert_eq!(get(&proxy, path, "").header("set-cookie"), "");
    }
    // One that is over, or names nobody's host, is replaced.
    for value in ["Cg8xMjcuMC4wLjE6MjgxMTEQAQ==", "MTI3LjAuMC4xOjE=", "!!"] {
        let next = get(&proxy, "/p", &format!("cookie: sess={value}\r\n"));
        assert!((next.status, next.header("set-cookie").is_empty()) == (200, false), "{value}");
    }
}

#[test]
fn a_header_keeps_a_client_with_its_host() {
    let (a, b) = (Origin::echo("a"), Origin::echo("b"));
    for strict in [false, true] {
        let state = json!({"name": "x-sess"});
        let filter = session("header", "HeaderBasedSessionState", state, json!({"strict": strict}));
        let proxy = site(filter, &[&a, &b]);
        let first = get(&proxy, "/", "");
        let value = first.header("x-sess").to_owned();
        assert!(!value.is_empty());
        for _ in 0..4 {
            let next = get(&proxy, "/", &format!("x-sess: {value}\r\n"));
            assert_eq!((next.header("x-origin"), next.header("x-sess")), (first.header("x-origin"), ""));
        }
        for gone in ["MTI3LjAuMC4xOjE=", "anVuaw=="] {
            let answer = get(&proxy, "/", &format!("x-sess: {gone}\r\n"));
            assert_eq!(answer.status, if strict { 503 } else { 200 }, "{gone}");
            assert_eq!(answer.header("x-sess").is_empty(), strict);
        }
    }
}

#[test]
fn an_envelope_holds_what_the_upstream_says() {
    let answer =
        |name: &str| format!("HTTP/1.1 200 OK\r\nx-origin: {name}\r\nx-sess: mine\r\ncontent-length: 0\r\n\r\n");
    let (a, b) = (Origin::fixed(answer("a")), Origin::fixed(answer("b")));
    let state = json!({"header": {"name": "x-sess"}});
    let proxy = site(session("envelope", "EnvelopeSessionState", state, json!({})), &[&a, &b]);
    let first = get(&proxy, "/", "");
    let value = first.header("x-sess").to_owned();
    assert!(value.ends_with(";UV:bWluZQ=="), "{value}");
    for _ in 0..4 {
        let next = get(&proxy, "/", &format!("x-sess: {value}\r\n"));
        assert_eq!((next.header("x-origin"), next.header("x-sess")), (first.header("x-origin"), &*value));
    }
    let asked: Vec<_> = [a.requests(), b.requests()].concat();
    assert_eq!(asked.iter().filter(|request| request.header("x-sess") == "mine").count(), 4);
}

#[test]
fn what_becomes_of_sessions_is_counted_and_a_host_that_is_gone_has_a_status_of_its_own() {
    let origin = Origin::echo("a");
    let state = json!({"name": "x-sess"});
    let fields = json!({"strict": true, "stat_prefix": "keep", "status_on_strict_destination_not_found": 404});
    let proxy = site(session("header", "HeaderBasedSessionState", state.clone(), fields), &[&origin]);
    let counts = |proxy: &Proxy| {
        ["routed", "failed_closed", "failed_open", "no_session"]
            .map(|name| proxy.stats().value(&format!("http.ingress_http.stateful_session.keep.{name}")))
    };
    let value = get(&proxy, "/", "").header("x-sess").to_owned();
    assert_eq!(counts(&proxy), [0; 4], "a strict one counts no new sessions");
    assert_eq!(get(&proxy, "/", &format!("x-sess: {value}\r\n")).status, 200);
    assert_eq!(get(&proxy, "/", "x-sess: MTI3LjAuMC4xOjE=\r\n").status, 404);
    assert_eq!(get(&proxy, "/off", "x-sess: MTI3LjAuMC4xOjE=\r\n").status, 200);
    assert_eq!(counts(&proxy), [1, 1, 0, 0]);

    let proxy = site(session("header", "HeaderBasedSessionState", state, json!({"stat_prefix": "keep"})), &[&origin]);
    for fields in ["", "x-sess: MTI3LjAuMC4xOjE=\r\n"] {
        assert_eq!(get(&proxy, "/", fields).status, 200);
    }
    assert_eq!(counts(&proxy), [0, 0, 2, 0]);

    let cookie = json!({"cookie": {"name": "sess", "path": "/p"}});
    let proxy = site(session("cookie", "CookieBasedSessionState", cookie, json!({"stat_prefix": "keep"})), &[&origin]);
    for path in ["/q", "/p"] {
        assert_eq!(get(&proxy, path, "").status, 200);
    }
    assert_eq!(counts(&proxy), [0, 0, 1, 1]);

    // An envelope that stays closed changes nothing.
    let envelope = json!({"header": {"name": "x-sess"}});
    let proxy = site(session("envelope", "EnvelopeSessionState", envelope, json!({"stat_prefix": "keep"})), &[&origin]);
    assert_eq!(get(&proxy, "/", "").status, 200);
    assert_eq!(counts(&proxy)[2..], [0, 0]);
}

#[test]
fn a_host_that_fails_can_be_left() {
    let bad = Origin::fixed("HTTP/1.1 503 Service Unavailable\r\nx-origin: bad\r\ncontent-length: 0\r\n\r\n");
    let good = Origin::echo("good");
    let policy = json!({
        "retry_on": "5xx", "num_retries": 1, "host_selection_retry_max_attempts": 20,
        "retry_host_predicate": [{
            "name": "envoy.retry_host_predicates.previous_hosts",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate",
            },
        }],
    });
    for strict in [false, true] {
        let filter = session("header", "HeaderBasedSessionState", json!({"name": "x-sess"}), json!({"strict": strict}));
        let config = Config::new()
            .http(json!({
                "http_filters": [filter, router()],
                "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [
                    {"match": {"prefix": "/"}, "route": {"cluster": "origin", "retry_policy": policy}},
                ]}]},
            }))
            .cluster("origin", &[bad.address, good.address]);
        let proxy = Proxy::start(&config);
        let shown = STANDARD.encode(bad.address.to_string());
        let answer = get(&proxy, "/", &format!("x-sess: {shown}\r\n"));
        assert_eq!((answer.status, answer.header("x-origin")), (200, "good"), "strict: {strict}");
        assert_eq!(answer.header("x-sess"), STANDARD.encode(good.address.to_string()));
    }
    assert_eq!(bad.requests().len(), 2);
}

#[test]
fn a_header_of_several_lines_holds_no_envelope() {
    let answer = "HTTP/1.1 200 OK\r\nx-sess: mine\r\nx-sess: two\r\ncontent-length: 0\r\n\r\n";
    let origin = Origin::fixed(answer);
    let state = json!({"header": {"name": "x-sess"}});
    let proxy = site(session("envelope", "EnvelopeSessionState", state, json!({})), &[&origin]);
    assert_eq!(get(&proxy, "/", "").headers.values("x-sess"), ["mine", "two"]);
}

#[test]
fn answers_of_routes_with_a_session_of_their_own_are_not_counted() {
    let origin = Origin::echo("a");
    let own = |path: &str| {
        let cookie = json!({"cookie": {"name": "own", "path": path}});
        let mut own = session("cookie", "CookieBasedSessionState", cookie, json!({}))["typed_config"].clone();
        own.as_object_mut().unwrap().remove("@type");
        json!({"envoy.filters.http.stateful_session": {"@type": ROUTE, "stateful_session": own}})
    };
    let state = json!({"name": "x-sess"});
    let filter = session("header", "HeaderBasedSessionState", state, json!({"stat_prefix": "keep"}));
    let to = |prefix: &str| json!({"match": {"prefix": prefix}, "route": {"cluster": "origin"}});
    let mut routed = to("/own");
    routed["typed_per_filter_config"] = own("/own");
    let config = Config::new()
        .http(json!({
            "http_filters": [filter, router()],
            "route_config": {"virtual_hosts": [{
                "name": "all", "domains": ["*"], "routes": [routed, to("/")],
                "typed_per_filter_config": own("/elsewhere"),
            }]},
        }))
        .cluster("origin", &[origin.address]);
    let proxy = Proxy::start(&config);
    for path in ["/own", "/"] {
        assert_eq!(get(&proxy, path, "").status, 200);
    }
    for name in ["routed", "failed_open", "no_session"] {
        assert_eq!(proxy.stats().value(&format!("http.ingress_http.stateful_session.keep.{name}")), 0, "{name}");
    }
}

#[test]
fn a_host_that_is_there_and_may_not_be_used_is_answered_with_503() {
    let origin = Origin::echo("a");
    let fields = json!({"strict": true, "status_on_strict_destination_not_found": 404});
    let filter = session("header", "HeaderBasedSessionState", json!({"name": "x-sess"}), fields);
    let address = origin.address;
    let endpoints = json!([{"lb_endpoints": [{
        "health_status": "UNHEALTHY",
        "endpoint": {"address": socket_address(&address.ip().to_string(), address.port())},
    }]}]);
    let config = Config::routes(json!([{"match": {"prefix": "/"}, "route": {"cluster": "origin"}}]))
        .overlay_filter("http", json!({"http_filters": [filter, router()]}))
        .cluster_with("origin", &[], json!({
            "load_assignment": {"endpoints": endpoints}, "common_lb_config": {"healthy_panic_threshold": {"value": 0}},
        }));
    let proxy = Proxy::start(&config);
    for (host, status) in [(address.to_string(), 503), ("127.0.0.1:1".to_owned(), 404)] {
        let value = STANDARD.encode(host);
        assert_eq!(get(&proxy, "/", &format!("x-sess: {value}\r\n")).status, status);
    }
}

#[test]
fn a_host_that_drains_is_no_unhealthy_one() {
    let origin = Origin::echo("a");
    let address = origin.address;
    let shown = STANDARD.encode(address.to_string());
    for (status, allowed, want) in
        [("DRAINING", "UNHEALTHY", 503), ("DRAINING", "DRAINING", 200), ("UNHEALTHY", "TIMEOUT", 503)]
    {
        let endpoints = json!([{"lb_endpoints": [{
            "health_status": status,
            "endpoint": {"address": socket_address(&address.ip().to_string(), address.port())},
        }]}]);
        let common = json!({
            "healthy_panic_threshold": {"value": 0}, "override_host_status": {"statuses": [allowed]},
        });
        let state = json!({"name": "x-sess"});
        let filter = session("header", "HeaderBasedSessionState", state, json!({"strict": true}));
        let config = Config::routes(json!([{"match": {"prefix": "/"}, "route": {"cluster": "origin"}}]))
            .overlay_filter("http", json!({"http_filters": [filter, router()]}))
            .cluster_with(
                "origin",
                &[],
                json!({"load_assignment": {"endpoints": endpoints}, "common_lb_config": common}),
            );
        let proxy = Proxy::start(&config);
        assert_eq!(get(&proxy, "/", &format!("x-sess: {shown}\r\n")).status, want, "{status} where {allowed} may be");
    }
}
