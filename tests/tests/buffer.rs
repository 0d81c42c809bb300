//! Requests that are held until all of them is there, as Envoy holds them.

use postrider_tests::kit::config::extension;
use postrider_tests::site::{self, Plan};
use serde_json::{Value, json};

const NAME: &str = "envoy.filters.http.buffer";

fn buffer(bytes: u32) -> Plan {
    site::with([extension(NAME, "filters.http.buffer.v3.Buffer", json!({"max_request_bytes": bytes}))])
}

fn per_route(mut fields: Value) -> Value {
    fields["@type"] = json!("type.googleapis.com/envoy.extensions.filters.http.buffer.v3.BufferPerRoute");
    fields
}

fn post(path: &str, body: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nhost: test\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

fn chunked(path: &str, pieces: &[&str]) -> String {
    let chunks: String = pieces.iter().map(|piece| format!("{:x}\r\n{piece}\r\n", piece.len())).collect();
    format!("POST {path} HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n{chunks}0\r\n\r\n")
}

#[test]
fn a_request_goes_on_when_it_is_whole_and_with_its_length() {
    let site = buffer(100).start();
    let mut client = site.proxy.client();
    client.send("POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 6\r\n\r\nabc");
    site.proxy.wait_stat("http.ingress_http.downstream_rq_active", 1);
    assert_eq!(site.origin.connection_count(), 0);
    client.send("def");
    assert_eq!(client.response("POST").unwrap().status, 200);
    assert_eq!(site.origin.requests()[0].body, b"abcdef");
    assert_eq!(site.proxy.exchange(chunked("/", &["abc", "defg"])).status, 200);
    let request = &site.origin.requests()[1];
    assert_eq!((request.headers.values("content-length"), request.body.as_slice()), (vec!["7"], &b"abcdefg"[..]));
    assert!(!request.headers.contains("transfer-encoding"));
    assert_eq!(site.get("/", "").status, 200);
}

#[test]
fn a_request_that_is_too_large_is_refused() {
    let site = buffer(10).start();
    assert_eq!(site.proxy.exchange(post("/", "0123456789")).status, 200);
    let refused = site.proxy.exchange(post("/", "0123456789a"));
    assert_eq!((refused.status, refused.text()), (413, "Payload Too Large"));
    assert_eq!(site.logged(2), "413 - request_payload_too_large");
    assert_eq!(site.proxy.exchange(chunked("/", &["01234567", "89a"])).status, 413);
    assert_eq!(site.stat("http.ingress_http.downstream_rq_too_large"), 2);
    assert_eq!(site.origin.requests().len(), 1);
}

#[test]
fn the_limit_may_be_larger_than_the_connections_buffer() {
    let site = buffer(2_000_000).start();
    let body = "a".repeat(1_500_000);
    assert_eq!(site.proxy.exchange(post("/", &body)).status, 200);
    assert_eq!(site.origin.requests()[0].body.len(), body.len());
}

#[test]
fn a_route_has_its_own_limit_or_none() {
    let site = buffer(5)
        .routes(json!([
            site::route("/more", NAME, per_route(json!({"buffer": {"max_request_bytes": 8}}))),
            site::route("/off", NAME, per_route(json!({"disabled": true}))),
            site::rest(),
        ]))
        .start();
    for (path, body, status) in [
        ("/", "012345", 413),
        ("/more", "01234567", 200),
        ("/more", "012345678", 413),
        ("/off", "012345678901234", 200),
    ] {
        assert_eq!(site.proxy.exchange(post(path, body)).status, status, "{path} {body}");
    }
}
