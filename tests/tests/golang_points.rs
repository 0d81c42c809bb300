//! Whatever becomes of a stream while Go code has some of it, wherever that is: it ends once, in order, and harms no other.

use std::path::{Path, PathBuf};

use postrider_tests::golang::{Site, filter, library, site};
use postrider_tests::kit::{Origin, RawClient, TempDir, wait_until};
use postrider_tests::plugins::manifest;
use postrider_tests::{echo, envoy};
use serde_json::{Value, json};

const POINTS: [&str; 6] =
    ["decode_headers", "decode_data", "decode_trailers", "encode_headers", "encode_data", "encode_trailers"];

/// At once, on goroutines, and on goroutines of another process.
fn everywhere(fields: &Value, check: impl Fn(&str, Value)) {
    if envoy() {
        return;
    }
    check("at once", filter("sdk38", "script", fields));
    let mut fields = fields.clone();
    fields["async"] = json!(POINTS);
    check("later", filter("sdk38", "script", &fields));
    check("apart", apart(&fields));
}

/// In a process of its own.
fn apart(fields: &Value) -> Value {
    let options = json!({"plugin_name": "script", "isolation": "process"});
    let code = json!({"filename": library("sdk38")});
    manifest("mine", json!({"runtime": "go", "code": code, "config": fields, "on_error": "500", "options": options}))
}

/// What says that a stream is over, and that it was logged and destroyed behind that.
fn watched(point: &str, does: &Value) -> Value {
    json!({point: does, "complete": [{"op": "log", "value": "script: complete"}], "log": [], "destroy": []})
}

fn request(path: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\ntrailer: x-trailer\r\n\r\n\
         5\r\nhello\r\n0\r\nx-trailer: t\r\n\r\n"
    )
}

/// Each stream heard of its end in order.
fn ended_in_order(which: &str, site: &Site, streams: usize) {
    wait_until("the end of all streams", || site.proxy.stderr().matches("script: destroyed").count() >= streams);
    let text = site.proxy.stderr();
    let order = ["script: complete", "script: log /", "script: destroyed"];
    assert_eq!(order.map(|line| text.matches(line).count()), [streams; 3], "{which}: {text}");
    let places = order.map(|line| text.find(line));
    assert!(places.is_sorted(), "{which}: {text}");
}

#[test]
fn an_answer_or_a_panic_at_any_point_ends_the_stream_once() {
    for point in POINTS {
        for (does, status) in [
            (json!([{"op": "reply", "code": 418, "body": "tea"}]), 418),
            (json!([{"op": "panic", "value": "on purpose"}]), 500),
        ] {
            everywhere(&watched(point, &does), |which, filter| {
                let which = format!("{point} {does} {which}");
                let site = site(&[filter], echo(), json!({}));
                let mut client = RawClient::connect(site.proxy.address("http"));
                client.send(request("/once"));
                match client.response("POST") {
                    Ok(answer) => assert_eq!(answer.status, status, "{which}: {answer:?}"),
                    Err(_) => assert!(matches!(point, "encode_data" | "encode_trailers"), "{which}"),
                }
                ended_in_order(&which, &site, 1);
            });
        }
    }
}

/// Go code says that it is at its point, and waits there until it may go on.
fn waits(folder: &TempDir) -> (PathBuf, PathBuf, Value) {
    let [there, go] = ["there", "go"].map(|name| folder.path().join(name));
    let does = json!([{"op": "write", "value": there}, {"op": "hold", "value": go}]);
    (there, go, does)
}

fn is_there(path: &Path) {
    wait_until("Go code to be there", || path.exists());
}

#[test]
fn a_client_may_leave_at_any_point() {
    if envoy() {
        return;
    }
    let reply = json!({"op": "reply", "code": 418});
    let panics = json!({"op": "panic", "value": "late"});
    for point in POINTS {
        for (is_apart, then) in [(false, None), (true, None), (false, Some(&reply)), (false, Some(&panics))] {
            let which = format!("{point} apart: {is_apart}, then {then:?}");
            let folder = TempDir::new();
            let (there, go, mut does) = waits(&folder);
            does.as_array_mut().unwrap().extend(then.cloned());
            let mut fields = watched(point, &does);
            fields["async"] = json!([point]);
            let filter = if is_apart { apart(&fields) } else { filter("sdk38", "script", &fields) };
            let site = site(&[filter], echo(), json!({}));
            let mut client = RawClient::connect(site.proxy.address("http"));
            client.send(request("/left"));
            is_there(&there);
            client.reset();
            wait_until("the stream's end", || site.proxy.stderr().contains("script: destroyed 1"));
            std::fs::write(&go, "").unwrap();
            let mut other = RawClient::connect(site.proxy.address("http"));
            other.send(request("/next"));
            // Otherwise it is answered or cut off, as it is at this point.
            let answer = other.response("POST");
            assert!(then.is_some() || answer.is_ok_and(|answer| answer.status == 200), "{which}");
            ended_in_order(&which, &site, 2);
        }
    }
}

#[test]
fn a_timeout_may_come_at_any_point_and_is_answered_while_nothing_was() {
    if envoy() {
        return;
    }
    for point in POINTS {
        for sdk in ["sdk31", "sdk38"] {
            let which = format!("{point} {sdk}");
            let folder = TempDir::new();
            let (there, go, does) = waits(&folder);
            let mut fields = watched(point, &does);
            fields["async"] = json!([point]);
            let http = json!({"common_http_protocol_options": {"max_stream_duration": "0.4s"}});
            let site = site(&[filter(sdk, "script", &fields)], echo(), http);
            let mut client = RawClient::connect(site.proxy.address("http"));
            client.send(request("/slow"));
            is_there(&there);
            if let Ok(answer) = client.response("POST") {
                assert!(answer.status >= 400, "{which}: {answer:?}");
            }
            wait_until("the stream's end", || site.proxy.stderr().contains("script: destroyed"));
            std::fs::write(&go, "").unwrap();
            let mut other = RawClient::connect(site.proxy.address("http"));
            assert_eq!(other.exchange(request("/next")).status, 200, "{which}: {}", site.proxy.stderr());
        }
    }
}

#[test]
fn an_origin_may_break_off_while_go_code_has_the_answer() {
    if envoy() {
        return;
    }
    for point in ["encode_headers", "encode_data"] {
        let folder = TempDir::new();
        let (there, go, does) = waits(&folder);
        let mut fields = watched(point, &does);
        fields["async"] = json!([point]);
        let gone = folder.path().join("gone");
        let told = (there.clone(), gone.clone());
        let origin = Origin::start(move |connection| {
            if connection.request().is_none() {
                return;
            }
            connection.write(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhello");
            is_there(&told.0);
            connection.reset();
            std::fs::write(&told.1, "").unwrap();
        });
        let site = site(&[filter("sdk38", "script", &fields)], origin, json!({}));
        let mut client = RawClient::connect(site.proxy.address("http"));
        client.send(request("/broken"));
        wait_until("the origin to break off", || gone.exists());
        std::fs::write(&go, "").unwrap();
        // It never has all of the answer.
        let answer = client.response("POST");
        assert!(answer.as_ref().is_err() || answer.as_ref().is_ok_and(|answer| answer.status >= 500), "{answer:?}");
        ended_in_order(point, &site, 1);
    }
}
