//! The length of a message whose body a compiled plugin sees: what the head says when it goes on holds, as in Envoy. Where a
//! plugin breaks it Envoy sends what the plugin made; here nobody may take that for a whole message.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use h2::Reason;
use postrider_tests::h2_client::{H2Client, get};
use postrider_tests::kit::{Origin, RawClient};
use postrider_tests::site::{self, Site};
use postrider_tests::{envoy, golang, wasm};
use serde_json::{Value, json};

const POST: &str = "POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 5\r\n\r\nhello";

/// A WebAssembly module with these functions.
fn module(functions: &str) -> Value {
    let code = json!({"local": {"inline_bytes": STANDARD.encode(wasm::text_module("0_2_1", functions))}});
    wasm::with_code(code, &json!({}), json!({}))
}

/// Body functions of both sides; each sees the length of its piece as its second parameter.
fn bodies(request: &str, response: &str) -> String {
    let half = |side: &str, code: &str| {
        format!(r#"(func (export "proxy_on_{side}_body") (param i32 i32 i32) (result i32) {code} (i32.const 0))"#)
    };
    half("request", request) + &half("response", response)
}

/// Looks at the piece.
const LOOK: &str = "(drop (call $get_buffer (i32.const 0) (i32.const 0) (i32.const 9) (i32.const 16) (i32.const 20)))";

fn answering(length: usize) -> Origin {
    Origin::fixed(format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{}", "x".repeat(length)))
}

fn over_wasm(functions: &str) -> Site {
    site::with([module(functions)]).start_before(answering(4))
}

/// What the origin and the client are told of framing.
fn told(proxy: std::net::SocketAddr, origin: &Origin) -> [String; 4] {
    let answer = RawClient::connect(proxy).exchange(POST);
    assert_eq!((answer.status, answer.text()), (200, "xxxx"));
    origin.wait_requests(1);
    let request = origin.requests().remove(0);
    assert_eq!(request.body, b"hello");
    [&request.headers, &answer.headers]
        .map(|headers| ["content-length", "transfer-encoding"].map(|name| headers.values(name).join("|")))
        .concat()
        .try_into()
        .unwrap()
}

#[test]
fn a_length_stays_where_a_module_only_looks_at_the_body() {
    let site = over_wasm(&bodies(LOOK, LOOK));
    assert_eq!(told(site.proxy.address("http"), &site.origin), ["5", "", "4", ""]);
}

#[test]
fn a_length_goes_where_a_module_takes_it_away() {
    let heads = r#"
        (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
            (drop (call $remove (i32.const 0) $"content-length")) (i32.const 0))
        (func (export "proxy_on_response_headers") (param i32 i32 i32) (result i32)
            (drop (call $remove (i32.const 2) $"content-length")) (i32.const 0))"#;
    let site = over_wasm(&(heads.to_owned() + &bodies(LOOK, LOOK)));
    assert_eq!(told(site.proxy.address("http"), &site.origin), ["", "chunked", "", "chunked"]);
}

#[test]
fn a_length_stays_with_a_go_filter() {
    if envoy() {
        return;
    }
    for filter in ["passthrough", "script"] {
        let site = golang::site(&[golang::filter("sdk38", filter, &json!({}))], answering(4), json!({}));
        assert_eq!(told(site.proxy.address("http"), &site.origin), ["5", "", "4", ""], "{filter}");
    }
    let remove = json!([{"op": "del", "key": "content-length"}]);
    let fields = json!({"decode_headers": remove, "encode_headers": remove});
    let site = golang::site(&[golang::filter("sdk38", "script", &fields)], answering(4), json!({}));
    assert_eq!(told(site.proxy.address("http"), &site.origin), ["", "chunked", "", "chunked"]);
}

/// The client is told of 4 bytes, gets no more than that, and sees that it has not got all.
fn assert_cut_off(proxy: std::net::SocketAddr, which: &str) {
    let mut client = RawClient::connect(proxy);
    client.send("GET / HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n");
    let got = client.read_to_end().unwrap_or_default();
    let body = got.windows(4).position(|end| end == b"\r\n\r\n").map_or(0, |end| got.len() - end - 4);
    assert!(body < 4, "{which}: {}", String::from_utf8_lossy(&got));
}

/// The upstream never gets a whole request, and the client is told.
fn assert_refused(proxy: std::net::SocketAddr, origin: &Origin, which: &str) {
    let answer = RawClient::connect(proxy).exchange(POST);
    assert_eq!(answer.status, 500, "{which}");
    assert!(origin.requests().is_empty(), "{which}");
}

/// Puts a byte in front of a piece, or one in its place; `buffer` is that of the side.
fn edit(buffer: u32, longer: bool) -> String {
    let (len, text) = if longer { (0, "<") } else { (100_000, "-") };
    format!(r#"(drop (call $set_buffer (i32.const {buffer}) (i32.const 0) (i32.const {len}) $"{text}"))"#)
}

#[test]
fn a_body_of_another_length_than_its_head_says_is_cut_off() {
    if envoy() {
        return;
    }
    for longer in [true, false] {
        let site = over_wasm(&bodies(LOOK, &edit(1, longer)));
        assert_cut_off(site.proxy.address("http"), &format!("wasm, {longer}"));
        let site = over_wasm(&bodies(&edit(0, longer), LOOK));
        assert_refused(site.proxy.address("http"), &site.origin, &format!("wasm, {longer}"));

        let edit = if longer { json!([{"op": "append", "value": "!"}]) } else { json!([{"op": "drain", "count": 1}]) };
        let go = |fields: Value| golang::site(&[golang::filter("sdk38", "script", &fields)], answering(4), json!({}));
        let site = go(json!({"encode_data": edit}));
        assert_cut_off(site.proxy.address("http"), &format!("go, {longer}"));
        let site = go(json!({"decode_data": edit}));
        assert_refused(site.proxy.address("http"), &site.origin, &format!("go, {longer}"));
    }
}

#[test]
fn over_http2_the_stream_of_such_an_answer_is_reset_and_no_other() {
    if envoy() {
        return;
    }
    for longer in [true, false] {
        let site = over_wasm(&bodies(LOOK, &edit(1, longer)));
        let mut client = H2Client::connect(site.proxy.address("http"));
        // The connection stays.
        for _ in 0..2 {
            let error = client.try_exchange(get("/"), b"").unwrap_err();
            assert_eq!(error.reason(), Some(Reason::INTERNAL_ERROR), "{longer}: {error}");
        }
    }
}

#[test]
fn another_length_that_a_plugin_says_holds() {
    let set = r#"(func (export "proxy_on_response_headers") (param i32 i32 i32) (result i32)
        (drop (call $replace (i32.const 2) $"content-length" $"5")) (i32.const 0))"#;
    let site = over_wasm(&(set.to_owned() + &bodies(LOOK, &edit(1, true))));
    let answer = RawClient::connect(site.proxy.address("http")).exchange("GET / HTTP/1.1\r\nhost: test\r\n\r\n");
    assert_eq!((answer.header("content-length"), answer.text()), ("5", "<xxxx"));
}
