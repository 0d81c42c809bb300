//! From calls' answers to responses.

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use postrider_tests::envoy;
use postrider_tests::grpc_origin::{Answer, frame};
use postrider_tests::h2_client::{H2Client, get};
use serde_json::json;

use crate::schema::Schema;
use crate::{Shop, json_of};

fn item(schema: &Schema) -> Vec<u8> {
    let json = json!({"name": "<é", "price": "5", "colour": "GREEN", "tags": ["a", "b"], "weight": 1.5,
        "maker": {"name": "m"}, "stock": {"k": 3}, "isNew": true,
        "extra": {"@type": "type.googleapis.com/shop.v1.Maker", "name": "q"}});
    schema.encode("shop.v1.Item", &json)
}

#[test]
fn a_message_becomes_json() {
    let shop = Shop::open(json!({}), |schema, _| {
        Answer::messages([item(schema)]).header("x-extra", "1").header("trailer", "grpc-status")
    });
    let response = shop.ask("GET", "/v1/items/a", "");
    assert_eq!((response.status, response.header("content-type")), (200, "application/json"));
    assert_eq!((response.header("grpc-status"), response.header("x-extra")), ("0", "1"));
    assert!(!response.headers.contains("trailer"));
    let want = json!({"name": "<é", "price": "5", "colour": "GREEN", "tags": ["a", "b"], "weight": 1.5,
        "maker": {"name": "m"}, "stock": {"k": 3}, "isNew": true,
        "extra": {"@type": "type.googleapis.com/shop.v1.Maker", "name": "q"}});
    assert_eq!(json_of(&response), want);
    let answer = H2Client::connect(shop.proxy.address("http")).exchange(get("/v1/items/a"), b"");
    assert_eq!((answer.status, answer.header("content-type")), (200, "application/json"));
    assert_eq!(serde_json::from_str::<serde_json::Value>(answer.text()).unwrap(), want);
    assert_eq!(answer.trailers["grpc-status"], "0");
}

#[test]
fn json_is_printed_as_the_options_say() {
    let print = json!({"print_options": {
        "add_whitespace": true,
        "always_print_primitive_fields": true,
        "always_print_enums_as_ints": true,
        "preserve_proto_field_names": true,
    }});
    let shop = Shop::open(print, |schema, _| {
        Answer::messages([
            schema.encode("shop.v1.Item", &json!({"colour": "GREEN", "maker": {}, "tags": ["a"], "weight": 0.5}))
        ])
    });
    let want = "{\n \"name\": \"\",\n \"price\": \"0\",\n \"colour\": 2,\n \"tags\": [\n  \"a\"\n ],\n \"maker\": {\n  \
        \"name\": \"\",\n  \"year\": 0\n },\n \"weight\": 0.5,\n \"picture\": \"\",\n \"stock\": {},\n \"new_in\": false,\n \
        \"palette\": []\n}\n";
    assert_eq!(shop.ask("GET", "/v1/items/a", "").text(), want);
}

#[test]
fn statuses_of_grpc_become_those_of_http() {
    let shop = Shop::open(json!({}), |schema, call| {
        let mode = call.headers["mode"].to_str().unwrap();
        let one = Answer::messages([item(schema)]);
        match mode {
            "trailers" => Answer::messages([]).status(5, "no%20such"),
            "body" => one.status(5, "no%20such"),
            "only" => Answer::messages([]).status(5, "no%20such").trailers_only(),
            "only-77" => Answer::messages([]).status(77, "").trailers_only(),
            "empty" => Answer::messages([]),
            _ => one.status(mode.parse().unwrap(), ""),
        }
    });
    let ask = |mode: &str| shop.ask_with("GET", "/v1/items/a", &format!("mode: {mode}\r\n"), "");
    for (mode, status, body) in [
        ("trailers", 404, false),
        ("body", 404, true),
        ("only", 404, false),
        ("only-77", 500, false),
        ("empty", 200, false),
    ] {
        let response = ask(mode);
        assert_eq!((response.status, !response.body.is_empty()), (status, body), "{mode}: {response:?}");
        if status == 404 {
            assert_eq!((response.header("grpc-status"), response.header("grpc-message")), ("5", "no%20such"), "{mode}");
        }
    }
    let codes = [200, 499, 500, 400, 504, 404, 409, 403, 429, 400, 409, 400, 501, 500, 503, 500, 401];
    for (code, status) in codes.into_iter().enumerate() {
        assert_eq!(ask(&code.to_string()).status, status, "{code}");
    }
}

#[test]
fn statuses_of_grpc_become_json_where_that_is_asked_for() {
    let shop = Shop::open(json!({"convert_grpc_status": true}), |schema, call| {
        let detail = json!({"@type": "type.googleapis.com/shop.v1.Maker", "name": "why"});
        let detail = schema.encode("google.protobuf.Any", &detail);
        let mut status = vec![8, 5, 0x12, 2, b'n', b'o', 0x1a, u8::try_from(detail.len()).unwrap()];
        status.extend(&detail);
        let status = STANDARD_NO_PAD.encode(&status);
        match call.headers["mode"].to_str().unwrap() {
            "trailers" => Answer::messages([]).status(5, "no%20such"),
            "only" => Answer::messages([]).status(5, "no%20such").trailers_only(),
            "77" => Answer::messages([]).status(77, "odd").trailers_only(),
            "details" => Answer::messages([]).status(5, "x").trailer("grpc-status-details-bin", &status),
            "only-details" => {
                Answer::messages([]).status(5, "x").trailer("grpc-status-details-bin", &status).trailers_only()
            }
            "unknown" => {
                // An `Any` of a type that the descriptors do not have.
                let status = STANDARD_NO_PAD.encode([8, 5, 0x1a, 5, 0x0a, 3, b'a', b'/', b'b']);
                Answer::messages([]).status(5, "x").trailer("grpc-status-details-bin", &status)
            }
            _ => Answer::messages([item(schema)]).status(5, "said"),
        }
    });
    let ask = |mode: &str| shop.ask_with("GET", "/v1/items/a", &format!("mode: {mode}\r\n"), "");
    let detailed =
        json!({"code": 5, "message": "no", "details": [{"@type": "type.googleapis.com/shop.v1.Maker", "name": "why"}]});
    for (mode, status, want) in [
        ("trailers", 404, json!({"code": 5, "message": "no such"})),
        ("only", 404, json!({"code": 5, "message": "no such"})),
        ("77", 500, json!({"code": 77, "message": "odd"})),
        ("details", 404, detailed.clone()),
        ("only-details", 404, detailed),
    ] {
        let response = ask(mode);
        assert_eq!((response.status, json_of(&response)), (status, want), "{mode}");
        assert_eq!(response.header("content-type"), "application/json", "{mode}");
        assert!(!response.headers.contains("grpc-status"), "{mode}: {response:?}");
        assert!(!response.headers.contains("grpc-status-details-bin"), "{mode}: {response:?}");
    }
    // With a body there is no second one, and without the types none either.
    assert_eq!(json_of(&ask("body"))["name"], "<é");
    let unknown = ask("unknown");
    assert_eq!((unknown.status, unknown.text(), unknown.header("grpc-status")), (404, "", "5"));
}

#[test]
fn an_upstream_that_breaks_the_protocol_is_a_502() {
    let shop = Shop::open(json!({}), |schema, call| {
        let mut answer = Answer::messages([item(schema)]);
        answer.pieces = match call.headers["mode"].to_str().unwrap() {
            "compressed" => vec![vec![1, 0, 0, 0, 1, 7]],
            "flag" => vec![vec![9, 0, 0, 0, 1, 7]],
            "cut" => vec![vec![0, 0, 0, 0, 9, 7]],
            "garbage" => vec![frame(&[0xff, 0xff])],
            _ => vec![vec![0, 0]],
        };
        answer
    });
    let ask = |mode: &str| shop.ask_with("GET", "/v1/items/a", &format!("mode: {mode}\r\n"), "");
    for (mode, text) in [
        ("compressed", "Unsupported gRPC frame flag: 1"),
        ("flag", "Unsupported gRPC frame flag: 9"),
        ("cut", "Incomplete gRPC frame expected size: 9 actual size: 1"),
    ] {
        let response = ask(mode);
        assert_eq!((response.status, response.text()), (502, text), "{mode}");
    }
    if !envoy() {
        // Envoy makes `{}` of bytes that are no message.
        assert_eq!((ask("garbage").status, ask("half").status), (502, 502));
        let failed = shop.proxy.stats().value("http.ingress_http.grpc_json_transcoder.response_failed");
        assert_eq!(failed, 5);
    }
}

#[test]
fn an_answer_that_is_not_grpc_passes() {
    let shop = Shop::open(json!({}), |schema, _| {
        let mut answer = Answer::messages([item(schema)]);
        answer.content_type = "text/plain";
        answer.pieces = vec![b"as it is".to_vec()];
        answer
    });
    let response = shop.ask("GET", "/v1/items/a", "");
    assert_eq!((response.status, response.header("content-type"), response.text()), (200, "text/plain", "as it is"));
}

#[test]
fn an_answer_of_any_type_travels_as_it_is() {
    let shop = Shop::open(json!({}), |schema, call| {
        let body = |kind: &str, data: &str| json!({"contentType": kind, "data": data});
        let one = |kind: &str, data: &str| schema.encode("google.api.HttpBody", &body(kind, data));
        match call.path.rsplit('/').next().unwrap() {
            "Raw" => Answer::messages([one("text/x", "aGVsbG8=")]),
            "Read" => Answer::messages([one("text/y", "aGVsbG8="), one("text/z", "IQ==")]),
            "Download" if call.headers.contains_key("bad") => {
                let file = body("text/\r\nx: y", "aGVsbG8=");
                Answer::messages([schema.encode("shop.v1.Download", &json!({"file": file}))])
            }
            _ => {
                let file = body("text/d", "aGVsbG8=");
                Answer::messages([schema.encode("shop.v1.Download", &json!({"name": "n", "file": file}))])
            }
        }
    });
    for (method, path, kind, text) in [
        ("POST", "/v1/raw", "text/x", "hello"),
        ("GET", "/v1/files/n", "text/d", "hello"),
        ("GET", "/v1/read/n", "text/y", "hello!"),
    ] {
        let response = shop.ask(method, path, "");
        assert_eq!((response.status, response.header("content-type"), response.text()), (200, kind, text), "{path}");
    }
    if !envoy() {
        let response = shop.ask_with("GET", "/v1/files/n", "bad: yes\r\n", "");
        assert_eq!(response.status, 502, "a content type that no field can hold");
    }
}

#[test]
fn a_part_of_an_answer_can_be_all_of_it() {
    if envoy() {
        return eprintln!("Envoy takes no part of an answer but a body of any type");
    }
    let shop = Shop::open(json!({"services": ["shop.v1.Parts"]}), |schema, call| {
        let item = json!({"items": [{"name": "x"}, {"name": "y", "price": "3"}]});
        match call.path.as_str() {
            "/shop.v1.Parts/Part" => Answer::messages([schema.encode("shop.v1.Items", &item)]),
            _ => Answer::messages([schema.encode("shop.v1.Item", &json!({"maker": {"name": "m"}}))]),
        }
    });
    assert_eq!(json_of(&shop.ask("GET", "/v1/part/a", "")), json!([{"name": "x"}, {"name": "y", "price": "3"}]));
    assert_eq!(json_of(&shop.ask("GET", "/v1/maker/a", "")), json!({"name": "m"}));
}
