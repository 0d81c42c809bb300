//! From requests to calls.

use postrider_tests::envoy;
use postrider_tests::kit::Response;
use serde_json::{Value, json};

use crate::Shop;

/// Method, path, body; then the call's method and message.
type Row = (&'static str, &'static str, &'static str, &'static str, Value);

fn kind_of(method: &str) -> &'static str {
    match method {
        "Put" | "Patch" | "ImportTo" => "shop.v1.PutItem",
        "Create" | "Import" | "Chat" => "shop.v1.Item",
        "Upload" => "shop.v1.Upload",
        "Raw" | "RawIn" => "google.api.HttpBody",
        _ => "shop.v1.GetItem",
    }
}

fn check(shop: &Shop, rows: &[Row]) {
    for (method, path, body, called, message) in rows {
        let response = shop.ask(method, path, body);
        assert_eq!(response.status, 200, "{method} {path}: {response:?}");
        let call = shop.origin.last();
        assert_eq!((call.method.as_str(), call.path.as_str()), ("POST", format!("/shop.v1.Shop/{called}").as_str()));
        assert!(call.rest.is_empty() && call.messages.len() == 1, "{method} {path}: {call:?}");
        assert_eq!(shop.schema.decode(kind_of(called), &call.messages[0]), *message, "{method} {path} {body}");
    }
}

#[test]
fn paths_queries_and_bodies_become_messages() {
    let shop = Shop::selling("a", json!({}));
    let moment = "2020-01-01T00:00:00Z";
    check(
        &shop,
        &[
            (
                "GET",
                "/v1/shelves/s%2F1/items/a%20b%23?colour=GREEN&sizes=1&sizes=2&maker.name=x&deep=true&raw=aGk=&weight=1.5",
                "",
                "Get",
                json!({"shelf": "s/1", "item": "a b#", "colour": "GREEN", "sizes": [1, 2], "maker": {"name": "x"},
                    "deep": true, "raw": "aGk=", "weight": 1.5}),
            ),
            (
                "GET",
                "/v1/items/a?since=2020-01-01T00:00:00Z&word=w+w%2B&big=18446744073709551615&mask=a.b,c",
                "",
                "Get",
                json!({"item": "a", "since": moment, "word": "w+w+", "big": "18446744073709551615", "mask": "a.b,c"}),
            ),
            (
                "GET",
                "/v1/items/a?makers.name=x&makers.year=3",
                "",
                "Get",
                json!({"item": "a", "makers": [{"name": "x", "year": 3}]}),
            ),
            (
                "GET",
                "/v1/items/a?colour=2&deep=YES&nope",
                "",
                "Get",
                json!({"item": "a", "colour": "GREEN", "deep": true}),
            ),
            ("GET", "/v1/items/a?item=b&item=c", "", "Get", json!({"item": "c"})),
            ("GET", "/v1/items/a/", "", "Get", json!({"item": "a"})),
            ("GET", "/v1/items/a:foo", "", "Get", json!({"item": "a:foo"})),
            ("POST", "/v1/items/a:b:archive", "", "Archive", json!({"item": "a:b"})),
            ("GET", "/v1/deep/a/b%2Fc%20d%23/e:look", "", "Get", json!({"item": "a/b%2Fc d%23/e"})),
            ("GET", "/v1/deep/a:look", "", "Get", json!({"item": "a"})),
            ("GET", "/v1/makers/m%2f/items", "", "Get", json!({"maker": {"name": "m/"}})),
            ("REPORT", "/v1/reports/a/b/c", "", "Report", json!({"item": "a/b/c"})),
            ("REPORT", "/v1/reports", "", "Report", json!({})),
            (
                "PUT",
                "/v1/shelves/s/items/i",
                r#"{"price": "12", "name": "other", "unknown": 1}"#,
                "Put",
                json!({"shelf": "s", "item": {"name": "other", "price": "12"}}),
            ),
            (
                "PUT",
                "/v1/shelves/s/items/i?dryRun=true&item.price=4",
                r#"{"tags": null}"#,
                "Put",
                json!({"shelf": "s", "item": {"name": "i", "price": "4"}, "dryRun": true}),
            ),
            ("PATCH", "/v1/shelves/s", r#"{"name":"n"}"#, "Patch", json!({"shelf": "s", "item": {"name": "n"}})),
            ("DELETE", "/v1/items/a", r#"{"shelf": "said"}"#, "Delete", json!({"shelf": "said", "item": "a"})),
            ("POST", "/v1/items", "", "Create", json!({})),
            ("POST", "/v1/items?tags=c", r#"{"tags":["a","b"]}"#, "Create", json!({"tags": ["a", "b", "c"]})),
            (
                "POST",
                "/v1/items?maker.name=c&maker.year=3",
                r#"{"maker":{"name":"body"}}"#,
                "Create",
                json!({"maker": {"name": "body", "year": 3}}),
            ),
            ("POST", "/v1/named/path", r#"{"name":"body"}"#, "Create", json!({"name": "body"})),
        ],
    );
}

#[test]
fn every_kind_of_field_is_read() {
    let shop = Shop::selling("a", json!({}));
    check(
        &shop,
        &[
            (
                "POST",
                "/v1/items",
                r#"{"name":"a","isNew":true,"note":"","extra":{"@type":"type.googleapis.com/shop.v1.Maker","name":"q"},
                    "madeAt":"2020-01-01T00:00:00.5Z","age":"1.5s","limit":4,"facts":{"a":[1,null]},"mask":"a,bC",
                    "palette":["RED",2,"GREEN"],"stock":{"k":1},"picture":"aGk","weight":"NaN","part":{"price":7}}"#,
                "Create",
                json!({"name": "a", "weight": "NaN", "picture": "aGk=", "stock": {"k": 1},
                    "madeAt": "2020-01-01T00:00:00.500Z", "age": "1.500s",
                    "extra": {"@type": "type.googleapis.com/shop.v1.Maker", "name": "q"}, "limit": 4, "isNew": true,
                    "note": "", "facts": {"a": [1.0, null]}, "mask": "a,bC", "palette": ["RED", "GREEN", "GREEN"],
                    "part": {"price": "7"}}),
            ),
            (
                "POST",
                "/v1/items",
                r#"{"made_at":"2020-01-01T00:00:00Z","new_in":"true","price":1.0,"nope":5}"#,
                "Create",
                json!({"madeAt": "2020-01-01T00:00:00Z", "isNew": true, "price": "1"}),
            ),
            ("POST", "/v1/items", r#"{"colour":77,"limit":null}"#, "Create", json!({"colour": 77})),
            (
                "POST",
                "/v1/items",
                r#"{"extra":{"value":"1.5s","@type":"type.googleapis.com/google.protobuf.Duration"}}"#,
                "Create",
                json!({"extra": {"@type": "type.googleapis.com/google.protobuf.Duration", "value": "1.500s"}}),
            ),
        ],
    );
}

#[test]
fn what_is_no_value_of_its_field_is_a_400_that_names_it() {
    let shop = Shop::selling("a", json!({}));
    for (method, path, body, text) in [
        ("GET", "/v1/items/a?sizes=x", "", r#"sizes: invalid value "x" for type TYPE_INT32"#),
        (
            "GET",
            "/v1/items/a?labels=x",
            "",
            "labels: invalid value \"x\" for type type.googleapis.com/shop.v1.GetItem.LabelsEntry",
        ),
        ("GET", "/v1/items/a?maker=x", "", r#"maker: invalid value "x" for type type.googleapis.com/shop.v1.Maker"#),
        (
            "GET",
            "/v1/items/a?colour=green",
            "",
            "colour: invalid value \"green\" for type type.googleapis.com/shop.v1.Colour",
        ),
        (
            "GET",
            "/v1/items/a?colour=77",
            "",
            "colour: invalid value \"77\" for type type.googleapis.com/shop.v1.Colour",
        ),
        ("GET", "/v1/items/a?weight=inf", "", "weight: invalid value \"inf\" for type TYPE_DOUBLE"),
        (
            "POST",
            "/v1/items",
            r#"{"colour":"PINK"}"#,
            "colour: invalid value \"PINK\" for type type.googleapis.com/shop.v1.Colour",
        ),
        ("POST", "/v1/items", r#"{"price":1.5}"#, "price: invalid value 1.5 for type TYPE_INT64"),
        ("POST", "/v1/items", r#"{"name":5}"#, "name: invalid value 5 for type TYPE_STRING"),
        ("POST", "/v1/items", "[]", ": Root element must be a message."),
        ("POST", "/v1/import", r#"{"name":"a"}"#, "Expected an array instead of an object"),
        ("POST", "/v1/import", "", "Expected an array instead of an object"),
        ("POST", "/v1/import", r#"[{"name":"a"},5]"#, ": Root element must be a message."),
    ] {
        let response = shop.ask(method, path, body);
        assert_eq!((response.status, response.text()), (400, text), "{method} {path} {body}");
    }
    for (path, body) in [
        ("/v1/items", r#"{"name":"a""#),
        ("/v1/items", r#"{"name":"a"} x"#),
        ("/v1/items", " "),
        ("/v1/import", r#"[{"name":"a"},"#),
        ("/v1/import", r#"[{"name":"a"}] x"#),
    ] {
        assert_eq!(shop.ask("POST", path, body).status, 400, "{body}");
    }
    assert!(shop.origin.calls().is_empty() || envoy(), "the upstream did not hear of them");
}

#[test]
fn the_head_is_that_of_a_call_and_says_where_it_came_from() {
    let shop = Shop::selling("a", json!({}));
    let spoofed = "x-envoy-original-path: /evil\r\nx-tag: kept\r\n";
    assert_eq!(shop.ask_with("PUT", "/v1/shelves/s/items/i?dry_run=1", spoofed, "{}").status, 200);
    let call = shop.origin.last();
    let field =
        |name: &str| call.headers.get_all(name).iter().map(|v| v.to_str().unwrap()).collect::<Vec<_>>().join(",");
    assert_eq!(field("content-type"), "application/grpc");
    assert_eq!(field("te"), "trailers");
    assert_eq!(field("x-envoy-original-path"), "/v1/shelves/s/items/i?dry_run=1");
    assert_eq!(field("x-envoy-original-method"), "PUT");
    assert_eq!(field("x-tag"), "kept");
}

#[test]
fn what_no_rule_maps_passes_untouched() {
    let shop = Shop::selling("a", json!({}));
    let passes = |response: Response, method: &str, path: &str| {
        assert_eq!(response.status, 200, "{method} {path}");
        let call = shop.origin.last();
        assert_eq!((call.method.as_str(), call.path.as_str()), (method, path));
        assert!(!call.headers.contains_key("x-envoy-original-path"));
        call
    };
    for path in [
        "/nope",
        "/v1/items/",
        "/v1/items/a?nope=1",
        "/v1/items/a?labels.foo=x",
        "/v1/items/a?facts.x=1",
        "/v1/items/a:archive",
        "/v1/deep/b/c:look",
        "/v1/other/x",
    ] {
        passes(shop.ask("GET", path, ""), "GET", path);
    }
    let call = passes(shop.ask("POST", "/shop.v1.Shop/Unmapped", "{}"), "POST", "/shop.v1.Shop/Unmapped");
    assert_eq!(call.rest, b"{}");
    let grpc = "content-type: application/grpc\r\n";
    passes(shop.ask_with("GET", "/v1/items/a", grpc, ""), "GET", "/v1/items/a");
}

#[test]
fn a_request_for_the_head_alone_is_never_transcoded() {
    let shop = Shop::selling("a", json!({}));
    let response = shop.ask("HEAD", "/v1/items/a", "");
    assert_eq!((response.status, response.body.len()), (200, 0));
    assert_eq!(shop.origin.last().method, "HEAD");
}

#[test]
fn strict_settings_refuse_what_would_pass() {
    let strict = json!({"request_validation_options": {
        "reject_unknown_method": true,
        "reject_unknown_query_parameters": true,
        "reject_binding_body_field_collisions": true,
    }, "ignored_query_parameters": ["key"], "match_unregistered_custom_verb": true});
    let shop = Shop::selling("a", strict);
    for (method, path, body, status, text) in [
        ("GET", "/nope", "", 404, "Could not resolve /nope to a method."),
        ("GET", "/v1/items/a:foo", "", 404, "Could not resolve /v1/items/a:foo to a method."),
        ("GET", "/v1/items/a?nope=1", "", 400, "Could not find field \"nope\" in the type \"shop.v1.GetItem\"."),
        (
            "POST",
            "/v1/items?name=c",
            r#"{"name":"body"}"#,
            400,
            "The binding value \"c\" of the field name is conflicting with the value \"body\" in the body.",
        ),
        (
            "POST",
            "/v1/items?maker.name=c",
            r#"{"maker":{"name":"x"}}"#,
            400,
            "The binding value \"c\" of the field name is conflicting with the value \"x\" in the body.",
        ),
    ] {
        let response = shop.ask(method, path, body);
        assert_eq!((response.status, response.text()), (status, text), "{method} {path}");
    }
    check(
        &shop,
        &[
            ("GET", "/v1/items/a?key=1", "", "Get", json!({"item": "a"})),
            (
                "POST",
                "/v1/items?name=c&price=3",
                r#"{"name":"c","price":"3"}"#,
                "Create",
                json!({"name": "c", "price": "3"}),
            ),
        ],
    );
}

#[test]
fn lenient_settings_take_what_would_not() {
    let lenient = json!({
        "auto_mapping": true,
        "ignore_unknown_query_parameters": true,
        "query_param_unescape_plus": true,
        "case_insensitive_enum_parsing": true,
        "url_unescape_spec": "ALL_CHARACTERS_EXCEPT_SLASH",
    });
    let shop = Shop::selling("a", lenient);
    check(
        &shop,
        &[
            ("POST", "/shop.v1.Shop/Unmapped", r#"{"item":"x"}"#, "Unmapped", json!({"item": "x"})),
            (
                "GET",
                "/v1/items/a?nope=1&word=a+b%2B&colour=red",
                "",
                "Get",
                json!({"item": "a", "word": "a b+", "colour": "RED"}),
            ),
            ("POST", "/v1/items", r#"{"colour":"gReen"}"#, "Create", json!({"colour": "GREEN"})),
            ("GET", "/v1/deep/a/b%2Fc%20d%23/e:look", "", "Get", json!({"item": "a/b%2Fc d#/e"})),
        ],
    );
    let all = Shop::selling("a", json!({"url_unescape_spec": "ALL_CHARACTERS"}));
    check(&all, &[("GET", "/v1/deep/a/b%2Fc%23:look", "", "Get", json!({"item": "a/b/c#"}))]);
}

#[test]
fn a_body_of_any_type_travels_as_it_is() {
    let shop = Shop::selling("a", json!({"capture_unknown_query_parameters": true}));
    let text = "content-type: text/x\r\n";
    assert_eq!(shop.ask_with("POST", "/v1/files/n?file.content_type=no", text, "raw \0 bytes").status, 200);
    let call = shop.origin.last();
    let body = json!({"contentType": "text/x", "data": "cmF3IAAgYnl0ZXM="});
    assert_eq!(shop.schema.decode("shop.v1.Upload", &call.messages[0]), json!({"name": "n", "file": body}));
    assert_eq!(shop.ask_with("POST", "/v1/files/n", text, "").status, 200);
    let empty = shop.schema.decode("shop.v1.Upload", &shop.origin.last().messages[0]);
    assert_eq!(empty, json!({"name": "n", "file": {"contentType": "text/x"}}));

    assert_eq!(shop.ask_with("POST", "/v1/files/n?x=1&x=2&y=a%20b", text, "raw").status, 200);
    let message = String::from_utf8_lossy(&shop.origin.last().messages[0]).into_owned();
    assert!(message.contains("grpc_json_transcoder.v3.UnknownQueryParams"), "{message:?}");
    assert!(message.contains("\u{1}x\u{12}\u{6}\n\u{1}1\n\u{1}2"), "{message:?}");
    assert!(message.contains("\u{1}y\u{12}\u{5}\n\u{3}a b"), "{message:?}");
}
