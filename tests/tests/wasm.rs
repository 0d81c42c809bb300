//! Modules of a few lines for the proxy-wasm ABI, which run here and in Envoy: what becomes of requests, and what modules see.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use postrider_tests::h2_origin::H2Origin;
use postrider_tests::kit::config::{extension, upstream_http_options};
use postrider_tests::kit::proxy::accepted;
use postrider_tests::kit::{Config, Origin, Proxy, TempDir, wait_until};
use postrider_tests::plugins::{self, MANIFEST_ROUTE};
use postrider_tests::site::{self, Site};
use postrider_tests::wasm::text_module as module;
use postrider_tests::{envoy, get, postrider_only};
use serde_json::{Value, json};

fn filter(module: &[u8], more: Value) -> Value {
    let mut config = json!({
        "name": "plugin", "root_id": "root",
        "vm_config": {
            "vm_id": "vm", "runtime": "envoy.wasm.runtime.v8",
            "code": {"local": {"inline_bytes": STANDARD.encode(module)}},
        },
    });
    for (key, value) in more.as_object().unwrap() {
        config[key] = value.clone();
    }
    extension("envoy.filters.http.wasm", "filters.http.wasm.v3.Wasm", json!({"config": config}))
}

/// A site whose one filter is a module with these functions.
fn site(functions: &str) -> Site {
    site::with([filter(&module("0_2_1", functions), json!({}))]).start()
}

const ON_REQUEST: &str = r#"(func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)"#;
const ON_RESPONSE: &str = r#"(func (export "proxy_on_response_headers") (param i32 i32 i32) (result i32)"#;

#[test]
fn headers_change_both_ways() {
    let site = site(&format!(
        r#"{ON_REQUEST}
            (drop (call $get (i32.const 0) $":path" (i32.const 16) (i32.const 20)))
            (drop (call $add (i32.const 0) $"x-path" (call $place) (call $length)))
            (drop (call $replace (i32.const 0) $"x-old" $"new"))
            (drop (call $remove (i32.const 0) $"x-gone"))
            (i32.const 0))
        {ON_RESPONSE}
            (drop (call $get (i32.const 2) $":status" (i32.const 16) (i32.const 20)))
            (drop (call $add (i32.const 2) $"x-status" (call $place) (call $length)))
            (i32.const 0))"#
    ));
    let answer = site.get("/a?b", "x-old: 1\r\nx-gone: 1\r\n");
    assert_eq!((answer.status, answer.header("x-status")), (200, "200"));
    let seen = &site.origin.requests()[0].headers;
    let values = ["x-path", "x-old", "x-gone"].map(|name| seen.values(name).join("|"));
    assert_eq!(values, ["/a?b", "new", ""]);
    assert_eq!(site.logged(1), "200 - via_upstream");
}

#[test]
fn an_answer_of_the_modules_passes_its_own_response_callbacks() {
    let functions = format!(
        r#"{ON_REQUEST}
            (drop (call $respond (i32.const 418) $"because I can" $"no\0a" $"\01\00\00\00\03\00\00\00\01\00\00\00x-a\001\00"
                (i32.const -1)))
            (i32.const 0))
        {ON_RESPONSE}
            (drop (call $add (i32.const 2) $"x-seen" $"yes"))
            (i32.const 0))"#
    );
    let site = site(&functions);
    let answer = site.get("/", "");
    assert_eq!((answer.status, answer.text()), (418, "no\n"));
    assert_eq!((answer.header("x-a"), answer.header("x-seen")), ("1", "yes"));
    assert_eq!(site.logged(1), "418 - because_I_can");
    assert!(site.origin.requests().is_empty());
}

#[test]
fn an_answer_takes_the_place_of_the_upstreams() {
    let functions =
        format!(r#"{ON_RESPONSE} (drop (call $respond (i32.const 502) $"" $"bad" $"" (i32.const -1))) (i32.const 1))"#);
    let site = site(&functions);
    let answer = site.get("/", "");
    assert_eq!((answer.status, answer.text()), (502, "bad"));
}

/// Traps on `/trap`.
const TRAPS: &str = r#"
    (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
        (drop (call $get (i32.const 0) $":path" (i32.const 16) (i32.const 20)))
        (if (i32.eq (i32.load8_u (i32.add (call $place) (i32.const 1))) (i32.const 0x74)) (then (unreachable)))
        (drop (call $add (i32.const 0) $"x-ran" $"yes"))
        (i32.const 0))"#;

/// What a module does in functions that this and the next one name.
fn answers(request: &str, response: &str) -> Site {
    site(&format!("{ON_REQUEST} {request} (i32.const 0)) {ON_RESPONSE} {response} (i32.const 0))"))
}

fn answer(status: u32, details: &str, body: &str) -> String {
    format!(r#"(drop (call $respond (i32.const {status}) $"{details}" $"{body}" $"" (i32.const -1)))"#)
}

#[test]
fn of_several_answers_at_once_the_first_is_sent_and_the_last_names_it() {
    let site = answers(&(answer(418, "first", "a") + &answer(500, "second", "bb")), "");
    let got = site.get("/", "");
    assert_eq!((got.status, got.text()), (418, "a"));
    assert_eq!(site.logged(1), "418 - second");
}

#[test]
fn an_answer_of_the_modules_may_be_answered_in_its_turn() {
    let site = answers(&answer(418, "first", "a"), &answer(500, "second", "bb"));
    let got = site.get("/", "");
    assert_eq!((got.status, got.text()), (500, "bb"));
    assert_eq!(site.logged(1), "500 - second");
}

#[test]
fn an_answer_with_a_status_that_nobody_knows_keeps_the_request_from_the_upstream() {
    // The module lets the request go on, as it does after any answer.
    for odd in [600, 999] {
        let site = answers(&answer(odd, "denied", "no"), "");
        let got = site.get("/", "");
        let expected = if envoy() { odd } else { 500 };
        assert_eq!((u32::from(got.status), got.text()), (expected, "no"));
        assert_eq!(site.logged(1), format!("{expected} - denied"));
        assert!(site.origin.requests().is_empty(), "{odd}");
    }
}

#[test]
fn an_answer_without_details_is_logged_without_any() {
    for (request, response) in [(answer(418, "", "a"), String::new()), (String::new(), answer(418, "", "a"))] {
        let site = answers(&request, &response);
        assert_eq!(site.get("/", "").status, 418);
        assert_eq!(site.logged(1), "418 - ");
    }
}

#[test]
fn an_answer_while_the_upstreams_passes_cuts_it_off() {
    let functions = format!(
        r#"(func (export "proxy_on_response_body") (param i32 i32 i32) (result i32) {} (i32.const 0))"#,
        answer(418, "late", "body")
    );
    let (seen, sees) = std::sync::mpsc::sync_channel::<()>(1);
    let sees = std::sync::Mutex::new(sees);
    let origin = Origin::start(move |connection| {
        if connection.request().is_some() {
            connection.write(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n");
            // The head has gone before any of the body comes.
            let _ = sees.lock().unwrap().recv();
            connection.write(b"first");
        }
    });
    let site = site::with([filter(&module("0_2_1", &functions), json!({}))]).start_before(origin);
    let mut client = site.proxy.client();
    client.send(get("/"));
    assert_eq!(client.response_head("GET").unwrap().status, 200);
    seen.send(()).unwrap();
    assert!(client.closed(), "nothing of either body comes");
    let logged = site.logged(1);
    let flags = if envoy() { "-" } else { "LR" };
    assert_eq!(logged, format!("200 {flags} late"));
}

#[test]
fn a_trap_answers_503_and_then_the_policy_decides() {
    for (policy, next) in [("FAIL_CLOSED", 503), ("FAIL_OPEN", 200)] {
        let filter = filter(&module("0_2_0", TRAPS), json!({"failure_policy": policy}));
        let site = site::with([filter]).start();
        assert_eq!(site.get("/fine", "").status, 200, "{policy}");
        let answer = site.get("/trap", "");
        assert_eq!((answer.status, answer.text()), (503, ""), "{policy}");
        assert_eq!(site.logged(2), "503 - wasm_fail_stream", "{policy}");
        assert_eq!(site.get("/fine", "").status, next, "{policy}");
        if next == 200 {
            assert_eq!(site.origin.requests().pop().unwrap().headers.values("x-ran"), [""; 0], "it is passed by");
        }
    }
}

#[test]
fn fail_open_lets_the_request_pass_that_meets_the_failure() {
    let site = site::with([filter(&module("0_2_0", TRAPS), json!({"fail_open": true}))]).start();
    for path in ["/fine", "/trap", "/fine"] {
        assert_eq!(site.get(path, "").status, 200, "{path}");
    }
    let ran: Vec<usize> = site.origin.requests().iter().map(|request| request.headers.values("x-ran").len()).collect();
    assert_eq!(ran, [1, 0, 0]);
    assert_eq!(site.logged(2), "200 - via_upstream");
}

#[test]
fn an_answer_that_a_trap_breaks_off_is_no_empty_one() {
    // It comes with its head at once: the head passed the module, and has not left when the module traps at the body.
    let functions = r#"(func (export "proxy_on_response_body") (param i32 i32 i32) (result i32) (unreachable))"#;
    let origin = Origin::start(|connection| {
        if connection.request().is_some() {
            connection.write(b"HTTP/1.1 200 OK\r\nx-head: yes\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n");
            // It waits for the proxy to go.
            connection.request();
        }
    });
    let site = site::with([filter(&module("0_2_1", functions), json!({}))]).start_before(origin);
    let mut client = site.proxy.client();
    client.send(get("/"));
    let head = client.response_head("GET").unwrap();
    assert_eq!((head.status, head.header("x-head")), (200, "yes"));
    let mut came = Vec::new();
    assert!(client.body(&head, &mut |piece| came.extend_from_slice(piece)).is_err(), "it must not pass for whole");
    assert_eq!(came, b"");
    assert!(site.logged(1).ends_with(" wasm_fail_stream"));
}

#[test]
fn a_machine_is_made_again_where_that_is_wanted() {
    let filter = filter(&module("0_2_0", TRAPS), json!({"failure_policy": "FAIL_RELOAD"}));
    let site = site::with([filter]).start();
    assert_eq!(site.get("/trap", "").status, 503);
    wait_until("a new machine", || site.get("/fine", "").status == 200);
    assert_eq!(site.origin.requests()[0].headers.values("x-ran"), ["yes"]);
}

#[test]
fn bodies_are_gathered_and_replaced_both_ways() {
    let half = |name: &str, buffer: u32| {
        format!(
            r#"(func (export "proxy_on_{name}_headers") (param i32 i32 i32) (result i32)
                (drop (call $remove (i32.const {}) $"content-length")) (i32.const 0))
            (func (export "proxy_on_{name}_body") (param i32 i32 i32) (result i32)
                (if (i32.eqz (local.get 2)) (then (return (i32.const 1))))
                (drop (call $set_buffer (i32.const {buffer}) (i32.const 0) (i32.const 0) $"<"))
                (drop (call $set_buffer (i32.const {buffer}) (i32.const 100000) (i32.const 0) $">"))
                (i32.const 0))"#,
            buffer * 2
        )
    };
    let origin = Origin::start(|connection| {
        while connection.request().is_some() {
            connection.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n2\r\ncd\r\n0\r\n\r\n");
        }
    });
    let filter = filter(&module("0_2_1", &(half("request", 0) + &half("response", 1))), json!({}));
    let site = site::with([filter]).start_before(origin);
    let answer = site.ask("POST", "/", "transfer-encoding: chunked\r\n\r\n3\r\none\r\n3\r\ntwo\r\n0\r\n");
    assert_eq!((answer.status, answer.text()), (200, "<abcd>"));
    assert_eq!(String::from_utf8_lossy(&site.origin.requests()[0].body), "<onetwo>");
}

#[test]
fn the_beginning_of_a_body_is_replaced() {
    let site = site(
        r#"(func (export "proxy_on_request_body") (param i32 i32 i32) (result i32)
            (if (i32.eqz (local.get 2)) (then (return (i32.const 1))))
            (drop (call $set_buffer (i32.const 0) (i32.const 0) (i32.const 2) $"J"))
            (drop (call $set_buffer (i32.const 0) (i32.const 4) (i32.const 0) $"!"))
            (i32.const 0))"#,
    );
    assert_eq!(site.ask("POST", "/", "content-length: 5\r\n\r\nhello").status, 200);
    assert_eq!(String::from_utf8_lossy(&site.origin.requests()[0].body), "Jllo!");
}

/// Asks `service` with the request's `x-ask` as its path, and goes on or answers by the status. The token of a call is the
/// stream's place in a table.
const ASKS: &str = r#"
    (global $pairs (mut i32) (i32.const 0))
    (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
        (if (call $http_call $"service"
                $"\03\00\00\00\05\00\00\00\02\00\00\00\07\00\00\00\03\00\00\00\0a\00\00\00\01\00\00\00:path\00/c\00:method\00GET\00:authority\00a\00"
                (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 5000) (i32.const 32))
            (then
                (drop (call $respond (i32.const 500) $"" $"no call" $"" (i32.const -1)))
                (return (i32.const 1))))
        (i32.store (i32.add (i32.const 40000) (i32.mul (i32.load (i32.const 32)) (i32.const 4))) (local.get 0))
        (i32.const 1))
    (func (export "proxy_on_http_call_response") (param i32 i32 i32 i32 i32)
        (drop (call $effective
            (i32.load (i32.add (i32.const 40000) (i32.mul (local.get 1) (i32.const 4))))))
        (if (i32.eqz (local.get 2)) (then
            (drop (call $respond (i32.const 504) $"" $"no answer" $"" (i32.const -1)))
            (return)))
        (drop (call $get_buffer (i32.const 4) (i32.const 0) (i32.const 99) (i32.const 16) (i32.const 20)))
        (drop (call $add (i32.const 0) $"x-answer" (call $place) (call $length)))
        (drop (call $continue (i32.const 0))))"#;

#[test]
fn a_call_lets_its_stream_go_on() {
    let service = Origin::fixed("HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nfine");
    let filter = filter(&module("0_2_1", ASKS), json!({}));
    let site = site::with([filter]).cluster("service", &[service.address], json!({})).start();
    for number in 0..3 {
        let answer = site.ask("POST", "/", "content-length: 5\r\n\r\nhello");
        assert_eq!(answer.status, 200, "{number}");
    }
    let requests = site.origin.requests();
    assert_eq!(requests.len(), 3);
    assert_eq!((requests[2].headers.values("x-answer"), &requests[2].body[..]), (vec!["fine"], &b"hello"[..]));
    assert_eq!(service.requests()[0].target, "/c");
}

/// Asks `service` about each request with a body and a trailer, which nobody sends, as in Envoy; the request goes on with the
/// answer's body and trailer.
const ASKS_WITH_TRAILERS: &str = r#"
    (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
        (i32.store (i32.const 48) (local.get 0))
        (i32.store (i32.const 20) (i32.const 0))
        (drop (call $get (i32.const 0) $"x-body" (i32.const 16) (i32.const 20)))
        (drop (call $http_call $"service"
            $"\03\00\00\00\05\00\00\00\02\00\00\00\07\00\00\00\03\00\00\00\0a\00\00\00\01\00\00\00:path\00/c\00:method\00PUT\00:authority\00a\00"
            (call $place) (call $length)
            $"\01\00\00\00\05\00\00\00\01\00\00\00x-sum\007\00" (i32.const 5000) (i32.const 32)))
        (i32.const 1))
    (func (export "proxy_on_http_call_response") (param i32 i32 i32 i32 i32)
        (drop (call $effective (i32.load (i32.const 48))))
        (drop (call $get_buffer (i32.const 4) (i32.const 0) (i32.const 99) (i32.const 16) (i32.const 20)))
        (drop (call $add (i32.const 0) $"x-answer" (call $place) (call $length)))
        (i32.store (i32.const 20) (i32.const 0))
        (drop (call $get (i32.const 7) $"x-checked" (i32.const 16) (i32.const 20)))
        (drop (call $add (i32.const 0) $"x-checked" (call $place) (call $length)))
        (call $digit (i32.const 0) $"x-count" (local.get 4))
        (drop (call $continue (i32.const 0))))"#;

#[test]
fn trailers_of_an_answer_are_read_and_those_of_a_call_stay_here() {
    let service = H2Origin::start(10);
    let http2 = upstream_http_options(
        json!({"explicit_http_config": {"http_protocol_options": null, "http2_protocol_options": {}}}),
    );
    let plan = site::with([filter(&module("0_2_1", ASKS_WITH_TRAILERS), json!({}))]);
    let site = plan.cluster("service", &[service.address], http2).start();
    for (body, length) in [("", 0), ("hello", 5)] {
        assert_eq!(site.get("/", &format!("x-body: {body}\r\n")).status, 200);
        let seen = site.origin.requests().pop().unwrap().headers;
        let told = ["x-answer", "x-checked", "x-count"].map(|name| seen.values(name).join("|"));
        assert_eq!(told, [&*format!("PUT /c a te=- body={length} x-sum=-"), "yes", "1"]);
    }
}

#[test]
fn trailers_change_nothing_of_a_call_over_http1() {
    let service = Origin::fixed("HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nfine");
    let plan = site::with([filter(&module("0_2_1", ASKS_WITH_TRAILERS), json!({}))]);
    let site = plan.cluster("service", &[service.address], json!({})).start();
    assert_eq!(site.get("/", "x-body: hello\r\n").status, 200);
    let asked = service.requests();
    assert_eq!((asked[0].body.as_slice(), asked[0].headers.values("content-length")), (&b"hello"[..], vec!["5"]));
    let seen = site.origin.requests().pop().unwrap().headers;
    assert_eq!((seen.values("x-answer"), seen.values("x-count")), (vec!["fine"], vec!["0"]));
}

#[test]
fn a_call_that_fails_is_told_so() {
    let dead = Origin::start(|_| {});
    let filter = filter(&module("0_2_1", ASKS), json!({}));
    let site = site::with([filter]).cluster("service", &[dead.address], json!({})).start();
    let answer = site.get("/", "");
    // An answer of the proxy's own is one, too: 503 for a connection that broke.
    assert!(matches!(answer.status, 200 | 504), "{answer:?}");
}

#[test]
fn what_the_route_depends_on_is_looked_at_again() {
    let functions = format!(r#"{ON_REQUEST} (drop (call $replace (i32.const 0) $"x-route" $"b")) (i32.const 0))"#);
    let routes = json!([
        {"match": {"prefix": "/", "headers": [{"name": "x-route", "string_match": {"exact": "b"}}]},
         "direct_response": {"status": 202}},
        {"match": {"prefix": "/"}, "direct_response": {"status": 201}},
    ]);
    let site = site::with([filter(&module("0_2_0", &functions), json!({}))]).routes(routes).start();
    assert_eq!(site.get("/", "").status, 202);
}

#[test]
fn properties_are_what_envoy_says() {
    let paths = [
        (r"request\00path", "path"),
        (r"request\00method", "method"),
        (r"request\00headers\00x-a", "header"),
        (r"request\00protocol", "protocol"),
        (r"plugin_name", "plugin"),
        (r"plugin_root_id", "root"),
        (r"plugin_vm_id", "vm"),
        (r"xds\00cluster_name", "cluster"),
        (r"xds\00route_name", "route"),
        (r"metadata\00filter_metadata\00none", "metadata"),
        (r"nothing", "nothing"),
        (r"xds\00node\00id", "node"),
        (r"xds\00listener_metadata\00filter_metadata\00l\00key", "xds"),
    ];
    let mut body = String::new();
    for (path, name) in paths {
        body += &format!(
            r#"(i32.store (i32.const 20) (i32.const 0))
            (if (i32.eqz (call $get_property $"{path}" (i32.const 16) (i32.const 20)))
                (then (drop (call $add (i32.const 0) $"p-{name}" (call $place) (call $length)))))"#
        );
    }
    // Numbers are eight bytes.
    body += r#"(drop (call $get_property $"destination\00port" (i32.const 16) (i32.const 20)))
        (call $digit (i32.const 0) $"p-port" (call $length))"#;
    let filter = filter(&module("0_2_1", &format!("{ON_REQUEST} {body} (i32.const 0))")), json!({}));
    let site = site::with([filter])
        .routes(json!([{"name": "named", "match": {"prefix": "/"}, "route": {"cluster": "origin"}}]))
        .listener(json!({"metadata": {"filter_metadata": {"l": {"key": "told"}}}}))
        .whole(json!({"node": {"id": "one", "cluster": "many"}}))
        .start();
    assert_eq!(site.get("/a?b", "x-a: 1\r\n").status, 200);
    let seen = &site.origin.requests()[0].headers;
    let names = ["path", "method", "header", "protocol", "plugin", "root", "vm", "cluster", "route", "nothing", "port"];
    let values = names.map(|name| seen.values(&format!("p-{name}")).join("|"));
    let expected = ["/a?b", "GET", "1", "HTTP/1.1", "plugin", "root", "vm", "origin", "named", "", "8"];
    assert_eq!(values, expected);
    let of_listener = ["node", "xds"].map(|name| seen.values(&format!("p-{name}")).join("|"));
    assert_eq!(of_listener, ["one", "told"]);
}

#[test]
fn the_cluster_that_was_drawn_is_known_while_the_request_passes() {
    let site = site::with([filter(
        &module(
            "0_2_1",
            &format!(
                r#"{ON_REQUEST}
            (if (i32.eqz (call $get_property $"xds\00cluster_name" (i32.const 16) (i32.const 20)))
                (then (drop (call $add (i32.const 0) $"x-cluster" (call $place) (call $length)))))
            (if (i32.eqz (call $get_property $"xds\00cluster_metadata\00filter_metadata\00a\00b" (i32.const 16) (i32.const 20)))
                (then (drop (call $add (i32.const 0) $"x-metadata" (call $place) (call $length)))))
            (i32.const 0))"#
            ),
        ),
        json!({}),
    )]);
    let clusters = json!([{"name": "other", "weight": 0}, {"name": "origin", "weight": 1}]);
    let site = site
        .upstream(json!({"metadata": {"filter_metadata": {"a": {"b": "c"}}}}))
        .cluster("other", &[], json!({"metadata": {"filter_metadata": {"a": {"b": "no"}}}}))
        .routes(json!([{"match": {"prefix": "/"}, "route": {"weighted_clusters": {"clusters": clusters}}}]))
        .start();
    assert_eq!(site.get("/", "").status, 200);
    let seen = &site.origin.requests()[0].headers;
    assert_eq!(["x-cluster", "x-metadata"].map(|name| seen.values(name).join("|")), ["origin", "c"]);
}

#[test]
fn statistics_and_written_properties_are_seen_outside() {
    let functions = format!(
        r#"(func (export "proxy_on_configure") (param i32 i32) (result i32)
            (drop (call $define_metric (i32.const 0) $"things" (i32.const 32)))
            (drop (call $define_metric (i32.const 1) $"level" (i32.const 36)))
            (i32.const 1))
        {ON_REQUEST}
            (drop (call $increment (i32.load (i32.const 32)) (i64.const 3)))
            (drop (call $record (i32.load (i32.const 36)) (i64.const 7)))
            (drop (call $set_property $"mine" $"words"))
            (i32.const 0))"#
    );
    let filter = filter(&module("0_2_1", &functions), json!({}));
    let site = site::with([filter]).log("%FILTER_STATE(wasm.mine:PLAIN)%").start();
    site.get("/", "");
    site.get("/", "");
    assert_eq!((site.stat("wasmcustom.things"), site.stat("wasmcustom.level")), (6, 7));
    let read = site.proxy.admin_get("/stats/prometheus");
    assert!(read.text().lines().any(|line| line == "things{} 6"), "{}", read.text());
    assert_eq!(site.logged(1), "words");
}

#[test]
fn callbacks_come_in_their_order() {
    let step = |name: &str| format!(r#"(call $step $"{name}")"#);
    let functions = format!(
        r#"(global $end (mut i32) (i32.const 50000))
        (func $step (param i32 i32)
            (memory.copy (global.get $end) (local.get 0) (local.get 1))
            (global.set $end (i32.add (global.get $end) (local.get 1))))
        (func (export "proxy_on_vm_start") (param i32 i32) (result i32) {} (i32.const 1))
        (func (export "proxy_on_configure") (param i32 i32) (result i32) {} (i32.const 1))
        (func (export "proxy_on_context_create") (param i32 i32)
            (if (local.get 1) (then {}) (else {})))
        {ON_REQUEST} {}
            (drop (call $add (i32.const 0) $"x-steps" (i32.const 50000)
                (i32.sub (global.get $end) (i32.const 50000))))
            (i32.const 0))
        {ON_RESPONSE} {} (i32.const 0))
        (func (export "proxy_on_log") (param i32) {})
        (func (export "proxy_on_done") (param i32) (result i32) {} (i32.const 1))
        (func (export "proxy_on_delete") (param i32) {})"#,
        step("start "),
        step("configure "),
        step("stream "),
        step("root "),
        step("request "),
        step("response "),
        step("log "),
        step("done "),
        step("delete "),
    );
    let site = site(&functions);
    site.get("/", "");
    site.logged(1);
    let later = || {
        site.get("/", "");
        site.origin.requests().pop().unwrap().headers.values("x-steps").join("")
    };
    assert_eq!(site.origin.requests()[0].headers.values("x-steps"), ["root start configure stream request"]);
    let mut steps = String::new();
    wait_until("the first stream's end", || {
        steps = later();
        steps.contains("delete")
    });
    let first = "root start configure stream request response log done delete ";
    assert!(steps.starts_with(first), "{steps}");
}

#[test]
fn a_module_hears_of_a_request_that_was_answered_before_it() {
    let functions = r#"
        (func $count (param i32 i32)
            (drop (call $define_metric (i32.const 0) (local.get 0) (local.get 1) (i32.const 32)))
            (drop (call $increment (i32.load (i32.const 32)) (i64.const 1))))
        (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
            (call $count $"request") (i32.const 0))
        (func (export "proxy_on_response_headers") (param i32 i32 i32) (result i32)
            (call $count $"response") (i32.const 0))
        (func (export "proxy_on_log") (param i32)
            (drop (call $get (i32.const 2) $":status" (i32.const 16) (i32.const 20)))
            (call $count (call $place) (call $length)))
        (func (export "proxy_on_done") (param i32) (result i32) (call $count $"done") (i32.const 1))
        (func (export "proxy_on_delete") (param i32) (call $count $"delete"))"#;
    let before = extension(
        "envoy.filters.http.fault",
        "filters.http.fault.v3.HTTPFault",
        json!({"abort": {"header_abort": {}, "percentage": {"numerator": 100}}}),
    );
    let site = site::with([before, filter(&module("0_2_1", functions), json!({}))]).start();
    assert_eq!(site.get("/", "x-envoy-fault-abort-request: 418\r\n").status, 418);
    assert_eq!(site.get("/", "").status, 200);
    site.proxy.wait_stat("wasmcustom.delete", 2);
    let counted = ["request", "response", "418", "200", "done"].map(|name| site.stat(&format!("wasmcustom.{name}")));
    assert_eq!(counted, [1, 1, 1, 1, 2]);
}

#[test]
fn a_module_that_refuses_its_configuration_keeps_the_proxy_from_starting() {
    let refuses = module("0_2_1", r#"(func (export "proxy_on_configure") (param i32 i32) (result i32) (i32.const 0))"#);
    let config = Config::new().http(json!({
        "http_filters": [filter(&refuses, json!({})), postrider_tests::kit::config::router()],
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [
            {"match": {"prefix": "/"}, "direct_response": {"status": 200}},
        ]}]},
    }));
    let folder = TempDir::new();
    let path = folder.path().join("config.yaml");
    std::fs::write(&path, config.to_yaml()).unwrap();
    if envoy() {
        return;
    }
    let finished = postrider_tests::kit::proxy::run(&["validate", path.to_str().unwrap()]);
    assert_ne!(finished.code, Some(0));
    let text = format!("{}{}", finished.stdout, finished.stderr);
    assert!(text.contains("`proxy_on_configure` returned false"), "{text}");
}

#[test]
fn code_that_changes_is_loaded_beside_the_old_one() {
    if !postrider_only() {
        return;
    }
    let names = |name: &str| {
        let body = format!(r#"{ON_REQUEST} (drop (call $add (i32.const 0) $"x-code" $"{name}")) (i32.const 0))"#);
        module("0_2_1", &body)
    };
    let folder = TempDir::new();
    let code = folder.path().join("plugin.wasm");
    std::fs::write(&code, names("one")).unwrap();
    let origin = Origin::echo("a");
    let plugin = plugins::manifest("p", json!({"runtime": "wasm", "code": {"filename": code}}));
    let config = plugins::config(&[plugin], plugins::everything(), &origin);
    let proxy = Proxy::start(&config);
    assert_eq!(plugins::seen(&proxy, &origin, "/", "x-code"), "one");
    let new = folder.path().join("new");
    std::fs::write(&new, names("two")).unwrap();
    std::fs::rename(&new, &code).unwrap();
    wait_until("the new code", || plugins::seen(&proxy, &origin, "/", "x-code") == "two");
    let shown = proxy.admin_get("/plugins");
    assert!(shown.text().contains("p (wasm)"), "{}", shown.text());
}

#[test]
fn routes_configure_a_plugin_at_four_scopes() {
    if !postrider_only() {
        return;
    }
    let functions = format!(
        r#"{ON_REQUEST}
            (drop (call $get_buffer (i32.const 7) (i32.const 0) (i32.const 99) (i32.const 16) (i32.const 20)))
            (drop (call $add (i32.const 0) $"x-config" (call $place) (call $length)))
            (i32.const 0))"#
    );
    let code = json!({"inline_bytes": STANDARD.encode(module("0_2_1", &functions))});
    let plugin = plugins::manifest("p", json!({"runtime": "wasm", "code": code, "config": {"of": "gateway"}}));
    let own = |of: &str| json!({"p": {"@type": MANIFEST_ROUTE, "config": {"of": of}}});
    let routes = json!([
        {"match": {"prefix": "/route"}, "route": {"cluster": "origin"}, "typed_per_filter_config": own("route")},
        {"match": {"prefix": "/off"}, "route": {"cluster": "origin"},
         "typed_per_filter_config": {"p": {"@type": MANIFEST_ROUTE, "disabled": true}}},
        {"match": {"prefix": "/cluster"}, "route": {"weighted_clusters": {"clusters": [
            {"name": "origin", "weight": 1, "typed_per_filter_config": own("cluster")}]}},
         "typed_per_filter_config": own("route")},
        {"match": {"prefix": "/text"}, "route": {"cluster": "origin"},
         "typed_per_filter_config": {"p": {"@type": MANIFEST_ROUTE, "config": "as it is"}}},
        {"match": {"prefix": "/"}, "route": {"cluster": "origin"}},
    ]);
    let origin = Origin::echo("a");
    let mut proxy = Proxy::start(&plugins::config(std::slice::from_ref(&plugin), routes.clone(), &origin));
    let seen = |proxy: &Proxy, path: &str| plugins::seen(proxy, &origin, path, "x-config");
    let all = ["/route", "/off", "/cluster", "/text", "/"].map(|path| seen(&proxy, path));
    assert_eq!(all, [r#"{"of":"route"}"#, "", r#"{"of":"cluster"}"#, "as it is", r#"{"of":"gateway"}"#]);
    let mut changed = plugin;
    for (config, given) in [(json!({"of": "new"}), r#"{"of":"new"}"#), (json!("words"), "words")] {
        changed["typed_config"]["config"] = config;
        let changed = plugins::config(std::slice::from_ref(&changed), routes.clone(), &origin);
        assert!(accepted(&proxy.reload(changed.to_yaml())));
        assert_eq!(seen(&proxy, "/"), given);
    }
}

#[test]
fn a_stream_that_is_closed_gets_no_answer() {
    let site = site(&format!("{ON_REQUEST} (drop (call $close (i32.const 0))) (i32.const 1))"));
    let mut client = site.proxy.client();
    client.send(get("/"));
    assert!(client.closed());
}

#[test]
fn memory_of_a_machine_that_routes_share_is_counted_once() {
    if !postrider_only() {
        return;
    }
    let code = json!({"inline_bytes": STANDARD.encode(module("0_2_1", &format!("{ON_REQUEST} (i32.const 0))")))});
    let plugin = plugins::manifest("p", json!({"runtime": "wasm", "code": code}));
    let route = |path: &str| {
        json!({"match": {"path": path}, "route": {"cluster": "origin"},
               "typed_per_filter_config": {"p": {"@type": MANIFEST_ROUTE, "config": {"path": path}}}})
    };
    let rest = json!({"match": {"prefix": "/"}, "route": {"cluster": "origin"}});
    let origin = Origin::echo("a");
    let memory = |routes: Value| {
        let proxy = Proxy::start(&plugins::config(std::slice::from_ref(&plugin), routes, &origin));
        for path in ["/", "/one", "/two"] {
            assert_eq!(proxy.get(path).status, 200);
        }
        assert_eq!(proxy.stats().value("wasm.wasm_vm_count"), 1);
        proxy.stats().value("plugin.p.memory_bytes")
    };
    let alone = memory(json!([rest]));
    assert!(alone > 0);
    assert_eq!(memory(json!([route("/one"), route("/two"), rest])), alone);
}
