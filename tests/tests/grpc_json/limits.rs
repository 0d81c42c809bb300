//! What is too much, too deep or too long.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use postrider_tests::envoy;
use postrider_tests::grpc_origin::Answer;
use serde_json::json;

use crate::Shop;

const REQUEST: &str = "Request rejected because the transcoder's internal buffer size exceeds the configured limit.";
const RESPONSE: &str =
    "Response not transcoded because the transcoder's internal buffer size exceeds the configured limit.";

#[test]
fn bodies_are_bounded_by_their_settings() {
    let shop = Shop::open(json!({"max_request_body_size": 20, "max_response_body_size": 30}), |schema, call| {
        let length = if call.headers.contains_key("long") { 40 } else { 10 };
        Answer::messages([schema.encode("shop.v1.Item", &json!({"name": "n".repeat(length)}))])
    });
    assert_eq!(shop.ask("POST", "/v1/items", r#"{"name":"12345678"}"#).status, 200);
    let large = shop.ask("POST", "/v1/items", r#"{"name":"1234567890"}"#);
    assert_eq!((large.status, large.text()), (413, REQUEST));
    let long = shop.ask_with("GET", "/v1/items/a", "long: yes\r\n", "");
    assert_eq!((long.status, long.text()), (500, RESPONSE));
    // Of a stream only what is held at once counts.
    let element = r#"{"name":"12345678"}"#;
    if !envoy() {
        assert_eq!(shop.ask("POST", "/v1/chat", &format!("[{element},{element},{element}]")).status, 200);
    }
    let long = format!("[{element},{{\"name\":\"1234567890\"}}]");
    assert_eq!(shop.ask("POST", "/v1/chat", &long).status, 413);
}

#[test]
fn a_setting_may_allow_more_than_the_listener_holds() {
    let shop = Shop::selling("a", json!({"max_request_body_size": 4 << 20}));
    let name = "n".repeat(3 << 20);
    assert_eq!(shop.ask("POST", "/v1/items", &json!({"name": name}).to_string()).status, 200);
    assert_eq!(shop.origin.last().messages[0].len(), 5 + (3 << 20));
    if !envoy() {
        // Envoy lets it pass, because it came before the limit was looked at.
        let plain = Shop::selling("a", json!({}));
        assert_eq!(plain.ask("POST", "/v1/items", &json!({"name": name}).to_string()).status, 413);
    }
}

#[test]
fn json_that_is_too_deep_is_refused() {
    let shop = Shop::selling("a", json!({}));
    let nested = |depth: usize| r#"{"part":"#.repeat(depth) + "{}" + &"}".repeat(depth);
    assert_eq!(shop.ask("POST", "/v1/items", &nested(50)).status, 200);
    for deep in [nested(20_000), "[".repeat(100_000), r#"{"facts":{"a":"#.to_owned() + &"[".repeat(100_000)] {
        assert_eq!(shop.ask("POST", "/v1/items", &deep).status, 400);
    }
    assert_eq!(shop.ask("GET", "/v1/items/a", "").status, 200, "nobody was hurt");
}

#[test]
fn an_answer_of_boxes_within_boxes_is_refused() {
    if envoy() {
        return eprintln!("Envoy's own bound is another");
    }
    let shop = Shop::open(json!({}), |schema, call| {
        let depth: usize = call.headers["depth"].to_str().unwrap().parse().unwrap();
        let mut any = json!({"@type": "type.googleapis.com/shop.v1.Maker", "name": "m"});
        let mut bytes = schema.encode("google.protobuf.Any", &any);
        for _ in 0..depth {
            // An `Any` that holds an `Any`, by hand: its value is a whole message of the same kind.
            let url = b"/google.protobuf.Any";
            let mut outer = vec![0x0a, u8::try_from(url.len()).unwrap()];
            outer.extend_from_slice(url);
            outer.push(0x12);
            let mut length = bytes.len();
            while length > 127 {
                outer.push((length as u8 & 127) | 128);
                length >>= 7;
            }
            outer.push(length as u8);
            outer.extend_from_slice(&bytes);
            bytes = outer;
        }
        any["value"] = json!(STANDARD.encode(&bytes));
        let mut item = vec![0x5a];
        let mut length = bytes.len();
        while length > 127 {
            item.push((length as u8 & 127) | 128);
            length >>= 7;
        }
        item.push(length as u8);
        item.extend_from_slice(&bytes);
        Answer::messages([item])
    });
    let ask = |depth: &str| shop.ask_with("GET", "/v1/items/a", &format!("depth: {depth}\r\n"), "");
    assert_eq!(ask("50").status, 200);
    let deep = ask("2000");
    assert_eq!((deep.status, deep.text()), (502, "the upstream's message is too deep"));
    assert_eq!(ask("0").status, 200, "nobody was hurt");
}

#[test]
fn very_many_parameters_are_refused() {
    if envoy() {
        return eprintln!("Envoy counts none");
    }
    let strict = json!({"request_validation_options": {"reject_unknown_query_parameters": true}});
    let shop = Shop::selling("a", strict);
    let path = format!("/v1/items/a?{}", vec!["sizes=1"; 1025].join("&"));
    assert_eq!(shop.ask("GET", &path, "").status, 400);
    let path = format!("/v1/items/a?{}", vec!["sizes=1"; 1024].join("&"));
    assert_eq!(shop.ask("GET", &path, "").status, 200);
}
