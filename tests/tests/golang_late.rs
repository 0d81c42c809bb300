//! Goroutines that go on when their message has, and Go code that says or asks more than its stream waits for.

use postrider_tests::envoy;
use postrider_tests::golang::{filter, library, per_route, site};
use postrider_tests::kit::{Origin, RawClient, TempDir, wait_until};
use postrider_tests::plugins::manifest;
use serde_json::{Value, json};

const SDKS: [&str; 2] = ["sdk31", "sdk38"];

/// The test's plugin with two SDKs in the proxy, and in a process of its own.
fn each_way(fields: &Value) -> Vec<(&'static str, Value)> {
    let apart = json!({
        "runtime": "go", "code": {"filename": library("sdk38")}, "config": fields, "on_error": "503",
        "options": {"plugin_name": "script", "isolation": "process"},
    });
    let mut filters = vec![("apart", manifest("mine", apart))];
    filters.extend(SDKS.map(|sdk| (sdk, filter(sdk, "script", fields))));
    filters
}

/// A request whose body is not there yet.
const HEAD: &str = "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n";

#[test]
fn a_goroutine_knows_and_marks_its_stream_when_the_message_has_gone_on() {
    if envoy() {
        return;
    }
    let folder = TempDir::new();
    for asynchronous in [json!([]), json!(["decode_headers"])] {
        for name in ["apart", "sdk31", "sdk38"] {
            let (begin, done) = (folder.path().join("begin"), folder.path().join("done"));
            let background = json!([
                {"op": "hold", "value": begin},
                {"op": "info", "key": "route", "to": "route"},
                {"op": "info", "key": "protocol", "to": "protocol"},
                {"op": "metadata_set", "ns": "late", "key": "k", "value": "marked"},
                {"op": "state_set", "key": "late", "value": "kept"},
                {"op": "write", "value": done},
            ]);
            let fields = json!({
                "async": asynchronous,
                "decode_headers": [{"op": "background", "do": background}],
                "encode_headers": [
                    {"op": "metadata_get", "ns": "late", "key": "k", "to": "x-metadata"},
                    {"op": "state_get", "key": "late", "to": "x-state"},
                ],
            });
            let (_, filter) = each_way(&fields).into_iter().find(|(which, _)| *which == name).unwrap();
            let site = site(&[filter], Origin::echo("a"), json!({}));
            let mut client = RawClient::connect(site.proxy.address("http"));
            client.send(HEAD);
            wait_until("the head", || site.origin.connection_count() == 1);
            std::fs::write(&begin, "").unwrap();
            wait_until("the goroutine", || done.exists());
            wait_until("facts", || {
                let said = site.proxy.stderr();
                said.contains("script: route=all") && said.contains("script: protocol=HTTP/1.1,true")
            });
            client.send("0\r\n\r\n");
            let answer = client.response("POST").unwrap();
            let told = ["x-metadata", "x-state"].map(|name| answer.headers.values(name).join("|"));
            assert_eq!((answer.status, told), (200, ["marked", "kept"].map(str::to_owned)), "{name} {asynchronous}");
            [begin, done].into_iter().for_each(|path| std::fs::remove_file(path).unwrap());
        }
    }
}

#[test]
fn a_goroutine_that_asks_when_the_message_has_gone_on_is_answered_as_the_stream_comes_by() {
    if envoy() {
        return;
    }
    let folder = TempDir::new();
    let begin = folder.path().join("begin");
    let background = json!([
        {"op": "hold", "value": begin},
        {"op": "metadata_get", "ns": "n", "key": "k", "to": "metadata"},
        {"op": "property", "key": "request.path", "to": "property"},
    ]);
    let fields = json!({"decode_headers": [
        {"op": "metadata_set", "ns": "n", "key": "k", "value": "v"},
        {"op": "background", "do": background},
    ]});
    for (which, filter) in each_way(&fields) {
        let site = site(&[filter], Origin::echo("a"), json!({}));
        let mut client = RawClient::connect(site.proxy.address("http"));
        client.send(HEAD);
        wait_until("the head", || site.origin.connection_count() == 1);
        std::fs::write(&begin, "").unwrap();
        wait_until("both answers", || {
            client.send("1\r\nx\r\n");
            let said = site.proxy.stderr();
            said.contains("script: metadata=v") && said.contains("script: property=/")
        });
        client.send("0\r\n\r\n");
        assert_eq!(client.response("POST").unwrap().status, 200, "{which}");
        std::fs::remove_file(&begin).unwrap();
    }
}

#[test]
fn asking_about_another_stream_from_within_a_call_holds_no_worker_up() {
    if envoy() {
        return;
    }
    let fields = json!({"decode_headers": [{"op": "remember"}]});
    let asks = json!({"decode_headers": [{"op": "of_remembered", "ns": "n", "key": "k", "to": "x-up"}]});
    for (which, filter) in each_way(&fields) {
        let name = if which == "apart" { "mine" } else { postrider_tests::golang::NAME };
        let other = match which {
            "apart" => json!({name: {"@type": postrider_tests::plugins::MANIFEST_ROUTE, "config": asks}}),
            _ => per_route("script", &asks),
        };
        let http = json!({"route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [
            {"match": {"path": "/asks"}, "route": {"cluster": "origin"}, "typed_per_filter_config": other},
            {"match": {"prefix": "/"}, "route": {"cluster": "origin"}},
        ]}]}});
        let site = site(&[filter], Origin::echo("a"), http);
        let mut client = RawClient::connect(site.proxy.address("http"));
        client.send(HEAD);
        wait_until("the head", || site.origin.connection_count() == 1);
        assert_eq!(site.proxy.get("/asks").status, 200, "{which}");
        client.send("0\r\n\r\n");
        assert_eq!(client.response("POST").unwrap().status, 200, "{which}");
    }
}

#[test]
fn what_is_said_twice_of_a_head_does_not_let_the_body_go() {
    if envoy() {
        return;
    }
    for sdk in SDKS {
        let folder = TempDir::new();
        let [begin, said, body] = ["begin", "said", "body"].map(|name| folder.path().join(name));
        let fields = json!({
            "async": ["decode_headers", "decode_data"],
            "decode_headers": [{"op": "hold", "value": begin}, {"op": "continue", "times": 2, "value": said}],
            "decode_data": [{"op": "hold", "value": body}, {"op": "upper"}],
        });
        // Keeps the only worker busy until both were said.
        let busy = json!({"async": [], "decode_headers": [{"op": "write", "value": begin}, {"op": "hold", "value": said}],
            "decode_data": []});
        let http = json!({"route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [
            {"match": {"path": "/busy"}, "direct_response": {"status": 204},
             "typed_per_filter_config": per_route("script", &busy)},
            {"match": {"prefix": "/"}, "route": {"cluster": "origin"}},
        ]}]}});
        let site = site(&[filter(sdk, "script", &fields)], Origin::echo("a"), http);
        let mut client = RawClient::connect(site.proxy.address("http"));
        client.send(HEAD);
        site.proxy.wait_stat("http.ingress_http.downstream_rq_active", 1);
        assert_eq!(site.proxy.get("/busy").status, 204, "{sdk}");
        client.send("3\r\nabc\r\n0\r\n\r\n");
        // A request more, and the body had its chance to slip by.
        assert_eq!(site.proxy.get("/busy").status, 204, "{sdk}");
        std::fs::write(&body, "").unwrap();
        assert_eq!(client.response("POST").unwrap().status, 200, "{sdk}");
        let arrived: Vec<_> = site.origin.requests().iter().map(|request| request.body.clone()).collect();
        assert_eq!(arrived, [b"ABC".to_vec()], "{sdk}");
    }
}
