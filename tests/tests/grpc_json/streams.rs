//! Streams of messages, in either direction and both.

use postrider_tests::envoy;
use postrider_tests::grpc_origin::{Answer, frame};
use postrider_tests::kit::{RawClient, Response};
use serde_json::{Value, json};

use crate::{Shop, json_of};

fn watched(print: Value) -> Shop {
    Shop::open(json!({"print_options": print}), |schema, call| {
        let item = |name: &str| schema.encode("shop.v1.Item", &json!({"name": name}));
        match call.headers.get("mode").map_or("", |mode| mode.to_str().unwrap()) {
            "empty" => Answer::messages([]),
            "error" => Answer::messages([item("a")]).status(5, "late"),
            "only" => Answer::messages([]).status(5, "early").trailers_only(),
            "pieces" => {
                // Cut in the middle of a prefix, and of a message.
                let bytes = [frame(&item("one")), frame(&item("two"))].concat();
                let mut answer = Answer::messages([]);
                answer.pieces = bytes.chunks(3).map(<[u8]>::to_vec).collect();
                answer
            }
            _ => Answer::messages([item("one"), item("two")]),
        }
    })
}

fn watch(shop: &Shop, mode: &str) -> Response {
    shop.ask_with("GET", "/v1/watch/a", &format!("mode: {mode}\r\n"), "")
}

#[test]
fn a_stream_of_answers_is_an_array() {
    let shop = watched(json!({}));
    for (mode, text) in [
        ("", r#"[{"name":"one"},{"name":"two"}]"#),
        ("pieces", r#"[{"name":"one"},{"name":"two"}]"#),
        ("empty", "[]"),
        ("error", r#"[{"name":"a"}]"#),
    ] {
        let response = watch(&shop, mode);
        assert_eq!((response.status, response.text()), (200, text), "{mode}");
        assert_eq!(response.header("content-type"), "application/json");
    }
    let only = watch(&shop, "only");
    assert_eq!((only.status, only.text(), only.header("grpc-status")), (404, "[]", "5"));
}

#[test]
fn a_stream_of_answers_can_be_lines_or_events() {
    let lines = watched(json!({"stream_newline_delimited": true}));
    assert_eq!(watch(&lines, "").text(), "{\"name\":\"one\"}\n{\"name\":\"two\"}\n");
    assert_eq!(watch(&lines, "empty").text(), "");
    let events = watched(json!({"stream_sse_style_delimited": true, "stream_newline_delimited": true}));
    let response = watch(&events, "");
    assert_eq!(response.text(), "data: {\"name\":\"one\"}\n\ndata: {\"name\":\"two\"}\n\n");
    assert_eq!(response.header("content-type"), "text/event-stream");
    if !envoy() {
        // Envoy's events are cut apart by the line breaks.
        let spaced = watched(json!({"stream_sse_style_delimited": true, "add_whitespace": true}));
        assert_eq!(watch(&spaced, "").text(), "data: {\"name\":\"one\"}\n\ndata: {\"name\":\"two\"}\n\n");
        assert_eq!(spaced.ask("GET", "/v1/items/a", "").text(), "{\n \"name\": \"one\"\n}\n");
    }
}

#[test]
fn an_array_is_a_stream_of_requests() {
    let shop = Shop::open(json!({}), |schema, call| {
        let names: Vec<Value> = call.messages.iter().map(|_| json!({"name": "x"})).collect();
        Answer::messages([schema.encode("shop.v1.Items", &json!({"items": names}))])
    });
    let sent = |kind: &str| -> Vec<Value> {
        shop.origin.last().messages.iter().map(|message| shop.schema.decode(kind, message)).collect()
    };
    let response = shop.ask("POST", "/v1/import", r#" [ {"name":"a, ]"}, {"name":"b"} ] "#);
    assert_eq!(json_of(&response), json!({"items": [{"name": "x"}, {"name": "x"}]}));
    assert_eq!(sent("shop.v1.Item"), [json!({"name": "a, ]"}), json!({"name": "b"})]);
    assert_eq!(json_of(&shop.ask("POST", "/v1/import", "[]")), json!({}));
    // What the target says is in the first message only.
    shop.ask("POST", "/v1/import/s?dry_run=1", r#"[{"name":"a"},{"name":"b"}]"#);
    let first = json!({"shelf": "s", "dryRun": true, "item": {"name": "a"}});
    assert_eq!(sent("shop.v1.PutItem"), [first, json!({"item": {"name": "b"}})]);
}

#[test]
fn both_sides_talk_at_the_same_time() {
    let shop = Shop::selling("a", json!({}));
    let mut client = shop.proxy.client();
    let chunk = |text: &str| format!("{:x}\r\n{text}\r\n", text.len());
    let expect = |client: &mut RawClient, text: String| {
        let bytes = client.read_exact(text.len()).unwrap();
        assert_eq!(String::from_utf8_lossy(&bytes), text);
    };
    client.send("POST /v1/chat HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n");
    client.send(chunk("[{\"name\": \"o")).send(chunk("ne\"}, "));
    let head = client.response_head("POST").unwrap();
    assert_eq!((head.status, head.header("content-type")), (200, "application/json"));
    expect(&mut client, chunk(r#"[{"name":"one"}"#));
    client.send(chunk("{\"name\": \"two\"}]"));
    expect(&mut client, chunk(r#",{"name":"two"}"#));
    client.send("0\r\n\r\n");
    expect(&mut client, chunk("]") + "0\r\n\r\n");
}
