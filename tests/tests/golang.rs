//! Envoy's Go filters: libraries built with four releases of its SDK, one of each interface that is taken, unmodified.
//!
//! Real Envoy's pip build has no Go filter, so what is right here is what the SDK's own code expects.

use postrider_tests::golang::{NAME, ROUTE_KIND, Site, filter, gateway, library, per_route, site};
use postrider_tests::kit::message::Request;
use postrider_tests::kit::{Origin, Proxy, RawClient, Response, wait_until};
use postrider_tests::plugins::manifest;
use postrider_tests::{ask, echo, envoy};
use serde_json::{Value, json};

const SDKS: [&str; 4] = ["sdk31", "sdk32", "sdk33", "sdk38"];

fn script(sdk: &str, fields: &Value) -> Site {
    site(&[filter(sdk, "script", fields)], echo(), json!({}))
}

fn post(site: &Site, body: &[u8]) -> Response {
    let mut client = RawClient::connect(site.proxy.address("http"));
    client.send(format!("POST /up HTTP/1.1\r\nhost: test\r\ncontent-length: {}\r\n\r\n", body.len()));
    client.send(body);
    client.response("POST").unwrap()
}

fn post_with_trailer(site: &Site, body: &str) -> Response {
    let chunks = format!("{:x}\r\n{body}\r\n0\r\nx-trailer: t\r\n\r\n", body.len());
    let head = "POST /up HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\ntrailer: x-trailer\r\n\r\n";
    let mut client = RawClient::connect(site.proxy.address("http"));
    client.send(format!("{head}{chunks}"));
    client.response("POST").unwrap()
}

fn arrived(site: &Site) -> Request {
    site.origin.wait_requests(1);
    site.origin.requests().remove(0)
}

/// The same configuration with its phases at once, and on goroutines.
fn both_ways(fields: &Value) -> [Value; 2] {
    let mut later = fields.clone();
    let phases =
        ["decode_headers", "decode_data", "decode_trailers", "encode_headers", "encode_data", "encode_trailers"];
    later["async"] = json!(phases);
    [fields.clone(), later]
}

/// Each SDK, each way.
fn everywhere(fields: &Value, check: impl Fn(&str, &Site)) {
    since("sdk31", fields, check);
}

/// The same for that SDK and later ones.
fn since(oldest: &str, fields: &Value, check: impl Fn(&str, &Site)) {
    if envoy() {
        return;
    }
    for sdk in SDKS.into_iter().filter(|sdk| *sdk >= oldest) {
        for fields in both_ways(fields) {
            check(
                &format!("{sdk} {}", if fields.get("async").is_some() { "later" } else { "at once" }),
                &script(sdk, &fields),
            );
        }
    }
}

#[test]
fn a_passthrough_changes_nothing() {
    if envoy() {
        return;
    }
    // All of them in one process, each with what it was built with.
    let site = site(&SDKS.map(|sdk| filter(sdk, "passthrough", &json!({}))), echo(), json!({}));
    assert_eq!(site.proxy.get("/").status, 200);
    let answer = post(&site, b"hello");
    assert_eq!((answer.status, answer.text()), (200, "hello"));
    let answer = post_with_trailer(&site, "hello");
    assert_eq!((answer.text(), answer.trailers.value("x-trailer")), ("hello", Some("t")));
    let body: Vec<u8> = (0..3_000_000_u32).map(|at| (at * 31) as u8).collect();
    assert!(post(&site, &body).body == body);
}

#[test]
fn basic_authentication_lets_known_users_pass() {
    if envoy() {
        return;
    }
    for sdk in SDKS {
        for later in [false, true] {
            let fields = json!({"user": "a", "password": "b", "async": later});
            let site = site(&[filter(sdk, "basic", &fields)], echo(), json!({}));
            let refused = site.proxy.get("/");
            assert_eq!((refused.status, refused.text()), (401, "who are you?"), "{sdk} {later}");
            assert_eq!(refused.header("www-authenticate"), "Basic realm=\"tests\"");
            let wrong = ask(&site.proxy, "GET", "test", "/", "authorization: Basic YTpj\r\n");
            assert_eq!(wrong.status, 401);
            let known = ask(&site.proxy, "GET", "test", "/", "authorization: Basic YTpi\r\n");
            assert_eq!(known.status, 200, "{sdk} {later}");
            assert_eq!(arrived(&site).headers.value("x-user"), Some("a"));
        }
    }
}

#[test]
fn headers_of_both_messages_are_read_and_changed() {
    let fields = json!({
        "decode_headers": [
            {"op": "get", "key": "x-two", "to": "x-got"},
            {"op": "values", "key": "x-two", "to": "x-values"},
            {"op": "raw", "key": "x-none", "to": "x-raw"},
            {"op": "raw", "key": "x-two", "to": "x-raw-two"},
            {"op": "names", "to": "x-names"},
            {"op": "set", "key": "x-set", "value": "1"},
            {"op": "add", "key": "x-set", "value": "2"},
            {"op": "del", "key": "x-gone"},
            {"op": "set", "key": ":path", "value": "/other"},
        ],
        "encode_headers": [
            {"op": "del", "key": "x-old"},
            {"op": "set", "key": "x-new", "value": "new"},
            {"op": "get", "key": ":status", "to": "x-status"},
            {"op": "set", "key": ":status", "value": "201"},
        ],
    });
    everywhere(&fields, |which, site| {
        let answer = ask(&site.proxy, "GET", "test", "/a?b", "x-two: 1\r\nx-two: 2\r\nx-gone: 1\r\n");
        assert_eq!((answer.status, answer.header("x-new")), (201, "new"), "{which}");
        assert_eq!((answer.header("x-status"), answer.headers.contains("x-old")), ("200,true", false), "{which}");
        let arrived = arrived(site);
        assert_eq!(arrived.target, "/other", "{which}");
        let value = |name: &str| arrived.headers.values(name).join("&");
        assert_eq!((value("x-got").as_str(), value("x-values").as_str()), ("1,true", "1|2"), "{which}");
        assert_eq!((value("x-raw").as_str(), value("x-raw-two").as_str()), ("", "1"), "{which}");
        assert_eq!((value("x-set").as_str(), value("x-gone").as_str()), ("1&2", ""), "{which}");
        assert!(value("x-names").contains(":authority|:method|:path|:scheme"), "{which}: {}", value("x-names"));
    });
}

#[test]
fn bodies_are_changed_piece_by_piece() {
    let fields = json!({
        "decode_data": [{"op": "upper"}, {"op": "prepend", "value": ""}],
        "encode_data": [{"op": "upper"}],
    });
    everywhere(&fields, |which, site| {
        let answer = post(site, b"hello");
        assert_eq!((answer.status, answer.text()), (200, "HELLO"), "{which}");
        assert_eq!(arrived(site).body, b"HELLO", "{which}");
        let body = vec![b'x'; 2_000_000];
        assert!(post(site, &body).body.iter().all(|byte| *byte == b'X'), "{which}");
    });
}

#[test]
fn a_body_is_gathered_and_changed_with_its_head() {
    let fields = json!({
        "status": {"decode_headers": "stop_and_buffer", "encode_headers": "stop_and_buffer"},
        "decode_data": [{"op": "length", "to": "len"}, {"op": "drain", "count": 2}, {"op": "append", "value": "!"}],
        "encode_data": [{"op": "prepend", "value": "<"}, {"op": "append", "value": ">"}],
    });
    everywhere(&fields, |which, site| {
        let mut client = RawClient::connect(site.proxy.address("http"));
        client.send("POST /up HTTP/1.1\r\nhost: test\r\ncontent-length: 6\r\n\r\nhel");
        client.send("lo1");
        let answer = client.response("POST").unwrap();
        assert_eq!(answer.text(), "<llo1len=6;!>", "{which}");
        assert_eq!(answer.header("content-length"), "13", "{which}");
        let arrived = arrived(site);
        assert_eq!(
            (arrived.body.as_slice(), arrived.headers.value("content-length")),
            (&b"llo1len=6;!"[..], Some("11"))
        );
    });
}

#[test]
fn what_is_gathered_is_bounded() {
    if envoy() {
        return;
    }
    let fields = json!({"status": {"decode_headers": "stop_and_buffer"}});
    let origin = echo();
    let gateway = gateway(&[filter("sdk38", "script", &fields)], &origin, json!({}))
        .overlay_listener("http", json!({"per_connection_buffer_limit_bytes": 65536}));
    let site = Site { proxy: Proxy::start(&gateway), origin };
    assert_eq!(post(&site, &vec![b'x'; 40_000]).status, 200);
    assert_eq!(post(&site, &vec![b'x'; 400_000]).status, 413);
    let fields = json!({"status": {"encode_headers": "stop_and_buffer"}});
    let origin = echo();
    let gateway = postrider_tests::golang::gateway(&[filter("sdk38", "script", &fields)], &origin, json!({}))
        .overlay_listener("http", json!({"per_connection_buffer_limit_bytes": 65536}));
    let site = Site { proxy: Proxy::start(&gateway), origin };
    assert_eq!(post(&site, &vec![b'x'; 400_000]).status, 500);
}

#[test]
fn trailers_are_read_and_changed() {
    let fields = json!({
        "decode_trailers": [
            {"op": "get", "key": "x-trailer", "to": "x-got"},
            {"op": "set", "key": "x-more", "value": "m"},
            {"op": "del", "key": "x-trailer"},
        ],
        "encode_trailers": [{"op": "add", "key": "x-more", "value": "n"}],
    });
    everywhere(&fields, |which, site| {
        let answer = post_with_trailer(site, "hello");
        assert_eq!((answer.status, answer.text()), (200, "hello"), "{which}");
        assert_eq!(answer.trailers.values("x-more").join("|"), "m|n", "{which}");
        let arrived = arrived(site);
        assert_eq!(arrived.trailers.value("x-got"), Some("t,true"), "{which}");
        assert!(arrived.trailers.value("x-trailer").is_none(), "{which}");
    });
}

#[test]
fn data_is_added_behind_a_head_and_in_front_of_trailers() {
    let fields = json!({
        "decode_headers": [{"op": "add_data", "value": "first:"}],
        "encode_trailers": [{"op": "add_data", "value": ":last"}],
    });
    since("sdk33", &fields, |which, site| {
        assert_eq!(site.proxy.get("/").status, 200, "{which}");
        assert_eq!(arrived(site).body, b"first:", "{which}");
        site.origin.forget();
        assert_eq!(post_with_trailer(site, "hello").text(), "first:hello:last", "{which}");
    });
}

#[test]
fn data_that_is_added_behind_a_head_that_waits_for_its_body_comes_before_it() {
    for status in ["stop_and_buffer", "stop_and_buffer_watermark"] {
        let fields = json!({
            "status": {"decode_headers": status},
            "decode_headers": [{"op": "add_data", "value": "head,"}],
            "decode_data": [{"op": "upper"}],
        });
        since("sdk33", &fields, |which, site| {
            assert_eq!(post_with_trailer(site, "data").status, 200, "{which} {status}");
            assert_eq!(arrived(site).body, b"head,DATA", "{which} {status}");
        });
    }
}

#[test]
fn requests_are_answered_in_every_phase() {
    let phases = ["decode_headers", "decode_data", "decode_trailers", "encode_headers"];
    for phase in phases {
        let reply = json!([{"op": "reply", "code": 418, "body": "no", "key": "x-why", "value": "w", "details": "a b"}]);
        let fields = json!({phase: reply, "status": {"encode_headers": "stop_and_buffer"}});
        everywhere(&fields, |which, site| {
            let answer = post_with_trailer(site, "hello");
            assert_eq!((answer.status, answer.text()), (418, "no"), "{which} {phase}");
            assert_eq!(answer.headers.values("x-why").join("|"), "w|w2", "{which} {phase}");
        });
    }
}

#[test]
fn a_request_without_a_body_does_not_pass_by_what_decides_on_bodies() {
    if envoy() {
        return;
    }
    // Said at once instead of by a goroutine, the SDK takes it for a mistake and panics.
    for (sdk, status) in SDKS.into_iter().zip(["stop_and_buffer", "stop_and_buffer_watermark"].into_iter().cycle()) {
        for phases in [json!(["decode_headers"]), json!(["decode_headers", "decode_data"])] {
            let answered = |operations: Value| {
                let status = json!({"decode_headers": status});
                let fields =
                    json!({"status": status, "waits_at_end": true, "async": phases, "decode_data": operations});
                let site = script(sdk, &fields);
                let answer = ask(&site.proxy, "GET", "test", "/up", "");
                (answer.status, site.origin.requests().len())
            };
            assert_eq!(answered(json!([{"op": "reply", "code": 418, "body": "no"}])), (418, 0), "{sdk} {phases}");
            assert_eq!(answered(json!([])), (200, 1), "{sdk} {phases}");
        }
    }
}

#[test]
fn a_panic_is_answered_with_500_and_the_next_request_is_served() {
    for phase in ["decode_headers", "decode_data", "decode_trailers", "encode_headers"] {
        everywhere(&json!({phase: [{"op": "panic", "value": "told to"}]}), |which, site| {
            for count in 1..=2 {
                let answer = post_with_trailer(site, "hello");
                let wanted = (500, "error happened in filter\r\n");
                assert_eq!((answer.status, answer.text()), wanted, "{which} {phase}");
                site.proxy.wait_stat("http.ingress_http.golang.panic_error", count);
            }
            assert!(site.proxy.stderr().contains("filter paniced with error details: told to"), "{which} {phase}");
        });
    }
}

#[test]
fn an_answer_that_is_held_is_answered_otherwise_in_every_phase() {
    let held = [
        ("encode_data", json!({"encode_headers": "stop_and_buffer"})),
        ("encode_trailers", json!({"encode_headers": "stop_and_buffer", "encode_data": "stop_and_buffer"})),
    ];
    let reply = (json!({"op": "reply", "code": 418, "body": "no"}), (418, "no"));
    let panic = (json!({"op": "panic", "value": "told to"}), (500, "error happened in filter\r\n"));
    for (phase, status) in held {
        for (operation, wanted) in [&reply, &panic] {
            let fields = json!({phase: [operation], "status": status});
            everywhere(&fields, |which, site| {
                for _ in 0..2 {
                    let answer = post_with_trailer(site, "hello");
                    assert_eq!((answer.status, answer.text()), *wanted, "{which} {phase}");
                }
            });
        }
    }
}

#[test]
fn an_answer_whose_head_is_gone_is_cut_off() {
    for phase in ["encode_data", "encode_trailers"] {
        for operation in [json!({"op": "reply", "code": 418, "body": "no"}), json!({"op": "panic", "value": "told to"})]
        {
            everywhere(&json!({phase: [operation]}), |which, site| {
                for _ in 0..2 {
                    let mut client = RawClient::connect(site.proxy.address("http"));
                    let chunks = "5\r\nhello\r\n0\r\nx-trailer: t\r\n\r\n";
                    client
                        .send(format!("POST /up HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n{chunks}"));
                    assert!(client.response("POST").is_err(), "{which} {phase}: it has no end");
                }
            });
        }
    }
}

#[test]
fn notes_for_other_filters_are_written_and_read() {
    let fields = json!({
        "decode_headers": [
            {"op": "metadata_set", "ns": "n", "key": "k", "value": {"a": [1, "b", true]}},
            {"op": "metadata_get", "ns": "n", "key": "k", "to": "x-note"},
            {"op": "metadata_get", "ns": "none", "key": "k", "to": "x-none"},
            {"op": "state_set", "key": "s", "value": "t"},
            {"op": "state_get", "key": "s", "to": "x-state"},
            {"op": "state_get", "key": "none", "to": "x-no-state"},
            {"op": "property", "key": "request.path", "to": "x-path"},
            {"op": "property", "key": "request.headers.x-a", "to": "x-a-again"},
            {"op": "property", "key": "metadata.filter_metadata.n.k.a.1", "to": "x-deep"},
            {"op": "property", "key": "request.headers", "to": "x-map"},
            {"op": "property", "key": "request.nothing", "to": "x-nothing"},
        ],
    });
    everywhere(&fields, |which, site| {
        assert_eq!(ask(&site.proxy, "GET", "test", "/p?q", "x-a: 1\r\n").status, 200, "{which}");
        let arrived = arrived(site);
        let value = |name: &str| arrived.headers.values(name).join("&");
        assert_eq!((value("x-note").as_str(), value("x-none").as_str()), ("map[a:[1 b true]]", "<nil>"), "{which}");
        assert_eq!((value("x-state").as_str(), value("x-no-state").as_str()), ("t", ""), "{which}");
        assert_eq!((value("x-path").as_str(), value("x-a-again").as_str()), ("/p?q", "1"), "{which}");
        assert_eq!(value("x-deep"), "b", "{which}");
        assert!(value("x-map").starts_with("error: "), "{which}: {}", value("x-map"));
        assert!(value("x-nothing").starts_with("error: value not found"), "{which}: {}", value("x-nothing"));
    });
}

#[test]
fn filter_state_lives_as_long_as_its_rules_say() {
    let set = |key: &str, value: &str, more: Value| {
        let mut operation = json!({"op": "state_set", "key": key, "value": value});
        postrider_tests::kit::config::overlay(&mut operation, more);
        operation
    };
    let get = |key: &str, to: &str| json!({"op": "state_get", "key": key, "to": to});
    let fields = json!({"decode_headers": [
        get("lasts", "x-before"),
        get("ends", "x-ended"),
        set("lasts", "one", json!({"span": 2, "read_only": true})),
        set("lasts", "two", json!({"span": 2, "read_only": true})),
        set("lasts", "two", json!({})),
        set("ends", "e", json!({})),
        set("fixed", "one", json!({"read_only": true})),
        set("fixed", "two", json!({"read_only": true})),
        get("lasts", "x-lasts"),
        get("fixed", "x-fixed"),
    ]});
    everywhere(&fields, |which, site| {
        let request = "GET / HTTP/1.1\r\nhost: test\r\n\r\n";
        let mut client = site.proxy.client();
        for _ in 0..2 {
            assert_eq!(client.exchange(request).status, 200, "{which}");
        }
        assert_eq!(site.proxy.client().exchange(request).status, 200, "{which}");
        let seen: Vec<_> = site
            .origin
            .requests()
            .iter()
            .map(|it| ["x-before", "x-ended", "x-lasts", "x-fixed"].map(|name| it.headers.values(name).join("&")))
            .collect();
        let expected = [["", "", "one", "one"], ["one", "", "one", "one"], ["", "", "one", "one"]];
        assert_eq!(seen, expected, "{which}");
        let said = site.proxy.stderr();
        assert!(said.contains("filter state `fixed`, which stays as it is: it is only to be read"), "{which}: {said}");
        assert!(said.contains("filter state `lasts`, which stays as it is: it has another life span"), "{which}");
    });
}

#[test]
fn facts_about_a_stream_are_known() {
    let facts = |names: &[&str]| -> Value {
        names
            .iter()
            .map(|name| json!({"op": "info", "key": name, "to": format!("x-{}", name.replace('_', "-"))}))
            .collect()
    };
    let fields = json!({
        "decode_headers": facts(&["route", "protocol", "code", "details", "local", "remote", "cluster", "upstream_remote", "attempts"]),
        "encode_headers": facts(&["code", "details", "cluster", "upstream_remote", "attempts", "virtual_cluster"]),
    });
    everywhere(&fields, |which, site| {
        let answer = site.proxy.get("/");
        let arrived = arrived(site);
        let up = |name: &str| arrived.headers.values(name).join("&");
        assert_eq!((up("x-route").as_str(), up("x-protocol").as_str()), ("all", "HTTP/1.1,true"), "{which}");
        assert_eq!((up("x-code").as_str(), up("x-details").as_str()), ("0,false", ",false"), "{which}");
        assert_eq!(up("x-local"), site.proxy.address("http").to_string(), "{which}");
        assert!(up("x-remote").starts_with("127.0.0.1:"), "{which}");
        assert_eq!((up("x-cluster").as_str(), up("x-upstream-remote").as_str()), ("origin,true", ",false"), "{which}");
        assert_eq!((answer.header("x-code"), answer.header("x-details")), ("200,true", "via_upstream,true"), "{which}");
        let remote = format!("{},true", site.origin.address);
        assert_eq!(
            (answer.header("x-upstream-remote"), answer.header("x-attempts")),
            (remote.as_str(), "1"),
            "{which}"
        );
        assert_eq!(answer.header("x-virtual-cluster"), ",false", "{which}");
    });
}

#[test]
fn a_cleared_route_is_looked_up_again() {
    for (op, oldest) in [("clear_route", "sdk31"), ("refresh_route", "sdk33")] {
        let fields = json!({"decode_headers": [{"op": "set", "key": ":path", "value": "/moved"}, {"op": op}]});
        since(oldest, &fields, |which, site| assert_eq!(site.proxy.get("/").status, 299, "{which} {op}"));
    }
}

#[test]
fn statistics_are_counted_from_any_thread() {
    let fields = json!({
        "metrics": "of.mine",
        "decode_headers": [
            {"op": "count", "by": 2},
            {"op": "gauge", "by": 7},
            {"op": "gauge_add", "by": -3},
            {"op": "counted", "to": "x-counted"},
        ],
    });
    everywhere(&fields, |which, site| {
        for _ in 0..2 {
            assert_eq!(site.proxy.get("/").status, 200, "{which}");
        }
        site.proxy.wait_stat("of.mine.counter", 4);
        site.proxy.wait_stat("of.mine.gauge", 4);
        let seen: Vec<_> = site.origin.requests().iter().map(|it| it.headers.values("x-counted").join("")).collect();
        assert_eq!(seen, ["2", "4"], "{which}");
    });
}

#[test]
fn the_end_is_logged_with_its_headers() {
    let fields = json!({"log": [], "destroy": true, "complete": []});
    everywhere(&fields, |which, site| {
        assert_eq!(site.proxy.get("/logged").status, 200, "{which}");
        wait_until("the log", || site.proxy.stderr().contains("script: destroyed 0"));
        // The oldest SDK shows a log no headers.
        let line = if which.starts_with("sdk31") { "script: log" } else { "script: log /logged 200" };
        assert!(site.proxy.stderr().contains(line), "{which}: {}", site.proxy.stderr());
    });
}

#[test]
fn a_client_that_leaves_ends_its_stream_in_go() {
    if envoy() {
        return;
    }
    let fields = json!({"destroy": true, "status": {"decode_headers": "stop_and_buffer"}});
    let site = script("sdk38", &fields);
    let mut client = RawClient::connect(site.proxy.address("http"));
    client.send("POST /up HTTP/1.1\r\nhost: test\r\ncontent-length: 6\r\n\r\nhel");
    site.proxy.wait_stat("http.ingress_http.downstream_rq_active", 1);
    client.reset();
    wait_until("the end", || site.proxy.stderr().contains("script: destroyed"));
    assert_eq!(site.proxy.get("/").status, 200);
}

#[test]
fn what_the_newer_sdk_has_works() {
    if envoy() {
        return;
    }
    let fields = json!({
        "async": ["encode_data"],
        "decode_headers": [
            {"op": "tls", "to": "x-tls"},
            {"op": "secret", "key": "s", "to": "x-secret"},
            {"op": "secret", "key": "none", "to": "x-none"},
            {"op": "override", "value": "nobody", "to": "x-refused"},
            {"op": "drain_connection"},
        ],
        "encode_data": [{"op": "inject", "value": "injected:"}],
    });
    let mut filter = filter("sdk38", "script", &fields);
    filter["typed_config"]["generic_secrets"] = json!([{"name": "s"}]);
    let origin = echo();
    let gateway = gateway(&[filter], &origin, json!({})).overlay(json!({"static_resources": {"secrets": [
        {"name": "s", "generic_secret": {"secret": {"inline_string": "hush"}}},
    ]}}));
    let site = Site { proxy: Proxy::start(&gateway), origin };
    let answer = post(&site, b"hello");
    assert_eq!((answer.text(), answer.header("connection")), ("injected:hello", "close"));
    let arrived = arrived(&site);
    let value = |name: &str| arrived.headers.values(name).join("&");
    assert_eq!(
        (value("x-tls").as_str(), value("x-secret").as_str(), value("x-none").as_str()),
        ("none", "hush,true", ",false")
    );
    assert!(!value("x-refused").is_empty());
}

#[test]
fn routes_configure_and_switch_off() {
    if envoy() {
        return;
    }
    let set = |key: &str, value: &str| json!([{"op": "set", "key": key, "value": value}]);
    let route = |path: &str, config: Value| json!({"match": {"prefix": path}, "route": {"cluster": "origin"}, "typed_per_filter_config": config});
    let off = json!({NAME: {"@type": ROUTE_KIND, "plugins_config": {"script": {"disabled": true}}}});
    let plain = json!({"match": {"prefix": "/"}, "route": {"cluster": "origin"}});
    for (policy, merged) in [
        ("MERGE_VIRTUALHOST_ROUTER_FILTER", "base|host|route"),
        ("MERGE_VIRTUALHOST_ROUTER", "|host|route"),
        ("OVERRIDE", "||route"),
    ] {
        let mut filter = filter(
            "sdk33",
            "script",
            &json!({"decode_headers": set("x-down", "base"), "encode_headers": set("x-base", "base")}),
        );
        filter["typed_config"]["merge_policy"] = json!(policy);
        let of_host = json!({"decode_headers": set("x-down", "host"), "encode_trailers": [], "encode_data": [], "decode_data": [], "a": 1});
        let http = json!({"route_config": {"virtual_hosts": [{
            "name": "all", "domains": ["*"],
            "typed_per_filter_config": per_route("script", &of_host),
            "routes": [
                route("/route", per_route("script", &json!({"decode_headers": set("x-down", "route")}))),
                route("/off", off.clone()),
                route("/other", per_route("other", &json!({}))),
                plain.clone(),
            ],
        }]}});
        let site = site(&[filter], echo(), http);
        let seen = |path: &str| {
            site.origin.forget();
            let answer = site.proxy.get(path);
            let down = site.origin.requests()[0].headers.values("x-down").join("");
            (down, answer.headers.values("x-base").join(""))
        };
        let base = if merged.starts_with("base") { "base" } else { "" };
        assert_eq!(seen("/route"), ("route".into(), base.into()), "{policy}");
        assert_eq!(seen("/off"), (String::new(), String::new()), "{policy}");
        assert_eq!(seen("/plain"), ("host".into(), base.into()), "{policy}");
        assert_eq!(seen("/other"), ("host".into(), base.into()), "{policy}");
    }
}

#[test]
fn a_manifest_has_its_own_rules_for_failures() {
    if envoy() {
        return;
    }
    let manifest = |more: Value| {
        let mut fields =
            json!({"runtime": "go", "code": {"filename": library("sdk38")}, "options": {"plugin_name": "script"}});
        for (key, value) in more.as_object().unwrap() {
            fields[key] = value.clone();
        }
        postrider_tests::plugins::manifest("mine", fields)
    };
    let panics = json!({"decode_headers": [{"op": "panic", "value": "x"}]});
    let passed = site(&[manifest(json!({"config": panics}))], echo(), json!({}));
    let answer = post_with_trailer(&passed, "hello");
    assert_eq!((answer.status, answer.text(), answer.trailers.value("x-trailer")), (200, "hello", Some("t")));
    passed.proxy.wait_stat("plugin.mine.all.errors", 1);

    let rules =
        json!({"config": panics, "on_error": "503", "circuit": {"faults": 2, "window": "600s", "retry": "600s"}});
    let refused = site(&[manifest(rules)], echo(), json!({}));
    for _ in 0..3 {
        assert_eq!(refused.proxy.get("/").status, 503);
    }
    refused.proxy.wait_stat("plugin.mine.all.bypassed", 1);
    assert_eq!(refused.proxy.stats().value("plugin.mine.all.errors"), 2);

    let phases = json!({"phases": ["request_headers"], "config": {
        "decode_headers": [{"op": "set", "key": "x-up", "value": "1"}],
        "decode_data": [{"op": "upper"}],
        "encode_headers": [{"op": "set", "key": "x-down", "value": "1"}],
    }});
    let some = site(&[manifest(phases)], echo(), json!({}));
    let answer = post(&some, b"hello");
    assert_eq!((answer.text(), answer.headers.contains("x-down")), ("hello", false));
    assert_eq!(arrived(&some).headers.value("x-up"), Some("1"));
}

#[test]
fn configurations_change_while_streams_run() {
    if envoy() {
        return;
    }
    let fields = |value: &str| json!({"encode_headers": [{"op": "set", "key": "x-version", "value": value}]});
    let origin = echo();
    let mut proxy = Proxy::start(&gateway(&[filter("sdk38", "script", &fields("one"))], &origin, json!({})));
    assert_eq!(proxy.get("/").header("x-version"), "one");
    let verdict = proxy.reload(gateway(&[filter("sdk38", "script", &fields("two"))], &origin, json!({})).to_yaml());
    assert_eq!(verdict["outcome"], "accepted", "{verdict}");
    assert_eq!(proxy.get("/").header("x-version"), "two");
    let refused =
        proxy.reload(gateway(&[filter("sdk38", "script", &json!({"refuse": 1}))], &origin, json!({})).to_yaml());
    assert_eq!(refused["outcome"], "refused", "{refused}");
    assert!(refused.to_string().contains("the Go plugin `script` refuses this configuration"), "{refused}");
    assert_eq!(proxy.get("/").header("x-version"), "two");
    // Other code stands beside the old under a path of its own.
    let verdict = proxy.reload(gateway(&[filter("sdk33", "script", &fields("three"))], &origin, json!({})).to_yaml());
    assert_eq!(verdict["outcome"], "accepted", "{verdict}");
    assert_eq!(proxy.get("/").header("x-version"), "three");
    let plugins = proxy.admin_get("/plugins").text().to_owned();
    assert!(plugins.contains("envoy-golang") && plugins.contains("sdk33.so"), "{plugins}");
    proxy.signal("TERM");
    assert!(proxy.wait_exit().success());
}

/// What the validation of a gateway says that has this library.
fn refusal(library: &std::path::Path) -> String {
    let mut filter = filter("sdk38", "script", &json!({}));
    filter["typed_config"]["library_path"] = json!(library);
    refusal_of(filter)
}

fn refusal_of(filter: Value) -> String {
    postrider_tests::refusal(&gateway(&[filter], &echo(), json!({})))
}

#[test]
fn a_library_that_cannot_be_run_is_refused_with_the_reason() {
    if envoy() {
        return;
    }
    let said = refusal(std::path::Path::new("/no/such.so"));
    assert!(said.contains("cannot read /no/such.so"), "{said}");
    let said = refusal(&library("sdk30"));
    for wanted in ["sdk30.so", "built with Envoy's Go SDK v1.30", "rebuild it with github.com/envoyproxy/envoy v1.31.0"]
    {
        assert!(said.contains(wanted), "{said}");
    }
}

#[test]
fn a_plugin_that_no_library_has_lets_no_request_pass() {
    if envoy() {
        return;
    }
    let wanted = "is called `mistyped-name`";
    let said = refusal_of(filter("sdk38", "mistyped-name", &json!({})));
    assert!(said.contains(wanted) && said.contains("plugin_name"), "{said}");
    for isolation in ["none", "process"] {
        let said = refusal_of(manifest(
            "mistyped-name",
            json!({"runtime": "go", "code": {"filename": library("sdk38")}, "options": {"isolation": isolation}}),
        ));
        assert!(said.contains(wanted), "{isolation}: {said}");
    }
}

#[test]
fn functions_that_a_library_wants_and_nobody_has_are_named() {
    if envoy() {
        return;
    }
    let folder = postrider_tests::kit::TempDir::new();
    let source = r#"
        void envoyGoFilterHttpSummon(void);
        void envoyGoFilterHttpFoo(void);
        void envoyGoFilterOnHttpHeader(void) { envoyGoFilterHttpSummon(); }
        void envoyGoFilterCleanUp(void) { envoyGoFilterHttpFoo(); }
    "#;
    let source = folder.write("wants.c", source);
    let object = folder.path().join("wants.so");
    let built = std::process::Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&object).arg(&source).status();
    assert!(built.unwrap().success());
    let said = refusal(&object);
    assert!(said.contains("envoyGoFilterHttpFoo") && said.contains("envoyGoFilterHttpSummon"), "{said}");
}

#[test]
fn a_large_body_passes_in_bounded_memory() {
    if envoy() {
        return;
    }
    let drain = Origin::start(|connection| {
        while let Some(request) = connection.request_head() {
            let mut count = 0;
            if !connection.body(&request, &mut |piece| count += piece.len()) {
                return;
            }
            let text = count.to_string();
            connection.write(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{text}", text.len()).as_bytes());
        }
    });
    let fields = json!({"async": ["decode_data"], "decode_data": [{"op": "upper"}]});
    let site = site(&[filter("sdk38", "script", &fields)], drain, json!({}));
    assert_eq!(site.proxy.get("/").status, 200);
    let before = site.proxy.resident_kib();
    let mut client = RawClient::connect(site.proxy.address("http"));
    let size = 64 << 20;
    client.send(format!("POST /up HTTP/1.1\r\nhost: test\r\ncontent-length: {size}\r\n\r\n"));
    let piece = vec![b'x'; 1 << 20];
    for _ in 0..64 {
        client.send(&piece);
    }
    let answer = client.response("POST").unwrap();
    assert_eq!(answer.text(), size.to_string());
    let grown = site.proxy.resident_kib().saturating_sub(before);
    assert!(grown < 48 << 10, "{grown} KiB more");
}
