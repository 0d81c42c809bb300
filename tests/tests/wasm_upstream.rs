//! Wasm filters on the upstream side: of a cluster, and of the router. The same in Envoy.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use postrider_tests::envoy;
use postrider_tests::kit::config::{extension, upstream_http_options};
use postrider_tests::kit::{Origin, wait_until};
use postrider_tests::site::{self, Plan, Site};
use postrider_tests::wasm::{text_module, with_code};
use serde_json::{Value, json};

const ON_REQUEST: &str = r#"(func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)"#;
const ON_RESPONSE: &str = r#"(func (export "proxy_on_response_headers") (param i32 i32 i32) (result i32)"#;

/// Marks requests and answers.
const MARKS: &str = r#"
(func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
    (drop (call $add (i32.const 0) $"x-sent" $"wasm"))
    (i32.const 0))
(func (export "proxy_on_response_headers") (param i32 i32 i32) (result i32)
    (drop (call $add (i32.const 2) $"x-answer" $"wasm"))
    (i32.const 0))"#;

fn wasm(functions: &str) -> Value {
    let code = json!({"local": {"inline_bytes": STANDARD.encode(text_module("0_2_1", functions))}});
    with_code(code, &json!({}), json!({"vm_config": {"vm_id": "vm"}}))
}

fn chain(filter: Value) -> Value {
    let codec =
        extension("envoy.filters.http.upstream_codec", "filters.http.upstream_codec.v3.UpstreamCodec", json!({}));
    json!([filter, codec])
}

/// The origin's cluster has the filter.
fn at_cluster(plan: Plan, functions: &str) -> Plan {
    plan.upstream(upstream_http_options(json!({"http_filters": chain(wasm(functions))})))
}

/// The router has it.
fn at_router(functions: &str) -> Plan {
    let config = json!({"upstream_http_filters": chain(wasm(functions))});
    let router = extension("envoy.filters.http.router", "filters.http.router.v3.Router", config);
    site::with([]).manager(json!({ "http_filters": [router] }))
}

fn sent(site: &Site, name: &str) -> String {
    site.origin.requests().last().expect("a request").headers.values(name).join("|")
}

/// Adds a property to the request as a field.
fn tells(property: &str, field: &str) -> String {
    format!(
        r#"(if (i32.eqz (call $get_property $"{property}" (i32.const 16) (i32.const 20)))
            (then (drop (call $add (i32.const 0) $"{field}" (call $place) (call $length)))))
        "#
    )
}

#[test]
fn modules_see_requests_last_and_answers_first() {
    let route = json!([{"match": {"prefix": "/"}, "route": {"cluster": "origin"},
        "request_headers_to_add": [{"header": {"key": "x-sent", "value": "route"}}],
        "response_headers_to_add": [{"header": {"key": "x-answer", "value": "route"}}]}]);
    for plan in [at_cluster(site::with([]), MARKS), at_router(MARKS)] {
        let site = plan.routes(route.clone()).start();
        assert_eq!(site.get("/", "").headers.values("x-answer"), ["wasm", "route"]);
        assert_eq!(sent(&site, "x-sent"), "route|wasm");
    }
}

#[test]
fn they_know_the_host_and_the_direction_of_the_listener() {
    let told = [
        tells("upstream\\00address", "x-host"),
        tells("xds\\00cluster_name", "x-cluster"),
        tells("xds\\00route_name", "x-route"),
        tells("plugin_name", "x-plugin"),
    ];
    // A number of eight bytes, the lowest first.
    let direction = r#"(drop (call $get_property $"xds\00listener_direction" (i32.const 16) (i32.const 20)))
        (call $digit (i32.const 0) $"x-direction" (i32.load8_u (call $place)))"#;
    let functions = format!("{ON_REQUEST} {} {direction} (i32.const 0))", told.concat());
    let routes = json!([{"name": "named", "match": {"prefix": "/"}, "route": {"cluster": "origin"}}]);
    let plan = at_cluster(site::with([]), &functions).routes(routes);
    let site = plan.listener(json!({"traffic_direction": "OUTBOUND"})).start();
    assert_eq!(site.get("/", "").status, 200);
    let seen = ["x-host", "x-cluster", "x-route", "x-plugin", "x-direction"].map(|name| sent(&site, name));
    assert_eq!(seen, [&*site.origin.address.to_string(), "origin", "named", "plugin", "2"]);
}

#[test]
fn every_try_is_a_context_that_ends_without_a_log() {
    let counts = |name: &str, function: &str, rest: &str| {
        format!(
            r#"(func (export "{function}") {rest}
                (drop (call $define_metric (i32.const 0) $"{name}" (i32.const 32)))
                (drop (call $increment (i32.load (i32.const 32)) (i64.const 1)))"#
        )
    };
    let functions = [
        counts("tries", "proxy_on_request_headers", "(param i32 i32 i32) (result i32)") + "(i32.const 0))",
        counts("logged", "proxy_on_log", "(param i32)") + ")",
        counts("done", "proxy_on_done", "(param i32) (result i32)") + "(i32.const 1))",
        counts("deleted", "proxy_on_delete", "(param i32)") + ")",
    ];
    let policy = json!({
        "retry_on": "5xx", "num_retries": 2, "retry_back_off": {"base_interval": "0.001s", "max_interval": "0.002s"},
    });
    let plan = at_cluster(site::with([]), &functions.concat()).host(json!({"retry_policy": policy}));
    let site = plan.start_before(Origin::fixed("HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n"));
    assert_eq!(site.get("/", "").status, 503);
    wait_until("all of them to end", || site.stat("wasmcustom.deleted") == 3);
    let seen = ["tries", "done", "logged"].map(|name| site.stat(&format!("wasmcustom.{name}")));
    assert_eq!(seen, [3, 3, 0]);
}

#[test]
fn an_answer_of_a_module_does_not_pass_it() {
    let functions = format!(
        r#"{ON_REQUEST}
            (drop (call $respond (i32.const 403) (i32.const 0) (i32.const 0) $"no" (i32.const 0) (i32.const 0) (i32.const -1)))
            (i32.const 1))
        {ON_RESPONSE} (drop (call $add (i32.const 2) $"x-answer" $"wasm")) (i32.const 0))"#
    );
    let site = at_cluster(site::with([]), &functions).start();
    let response = site.get("/", "");
    assert_eq!((response.status, response.text(), response.header("x-answer")), (403, "no", ""));
    assert_eq!(site.origin.requests().len(), 0);
}

/// The module counts the requests that its machine saw.
#[test]
fn the_same_module_before_the_router_shares_the_machine() {
    let functions = format!(
        r#"(global $seen (mut i32) (i32.const 0))
        {ON_REQUEST}
            (global.set $seen (i32.add (global.get $seen) (i32.const 1)))
            (call $digit (i32.const 0) $"x-seen" (global.get $seen))
            (i32.const 0))"#
    );
    let site = at_cluster(site::with([wasm(&functions)]), &functions).start();
    assert_eq!(site.get("/", "").status, 200);
    assert_eq!(sent(&site, "x-seen"), "1|2");
    assert_eq!(site.get("/", "").status, 200);
    assert_eq!(sent(&site, "x-seen"), "3|4");
}

#[test]
fn bodies_are_rewritten_both_ways() {
    let wraps = |function: &str, buffer: u32| {
        format!(
            r#"(func (export "{function}") (param i32 i32 i32) (result i32)
                (if (i32.eqz (local.get 2)) (then (return (i32.const 1))))
                (drop (call $set_buffer (i32.const {buffer}) (i32.const 0) (i32.const 0) $"<" ))
                (i32.const 0))"#
        )
    };
    let functions = wraps("proxy_on_request_body", 0) + &wraps("proxy_on_response_body", 1);
    let site = at_cluster(site::with([]), &functions)
        .start_before(Origin::fixed("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"));
    // Lengths that were declared do not hold any more, and Envoy leaves that to the module: in pieces there are none.
    let response = site.ask("POST", "/", "transfer-encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n");
    if !envoy() {
        assert_eq!((response.status, response.text()), (200, "<ok"));
    }
    assert_eq!(site.origin.requests()[0].body, b"<body");
}

#[test]
fn a_module_that_fails_is_answered_for() {
    let traps = format!(
        r#"{ON_REQUEST}
            (if (i32.eqz (call $get (i32.const 0) $"x-trap" (i32.const 16) (i32.const 20))) (then (unreachable)))
            (i32.const 0))"#
    );
    let site = at_cluster(site::with([]), &traps).start();
    let seen = ["", "x-trap: 1\r\n", ""].map(|field| site.get("/", field).status);
    assert_eq!(seen, [200, 503, 503]);
    assert_eq!(site.origin.requests().len(), 1);
}
