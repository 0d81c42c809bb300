//! Where calls go, and what routes say about the filter.

use postrider_tests::grpc_origin::{Answer, GrpcOrigin};
use postrider_tests::kit::{Proxy, TempDir, wait_until};
use postrider_tests::postrider_only;
use serde_json::{Value, json};

use crate::schema::Schema;
use crate::{NAME, everything, settings, site};

fn selling(name: &'static str) -> GrpcOrigin {
    let schema = Schema::shop();
    GrpcOrigin::start(move |_| Answer::messages([schema.encode("shop.v1.Item", &json!({"name": name}))]))
}

fn direct(prefix: &str, text: &str) -> Value {
    json!({"match": {"prefix": prefix}, "direct_response": {"status": 200, "body": {"inline_string": text}}})
}

#[test]
fn the_route_is_that_of_the_call_unless_the_requests_own_is_to_stay() {
    let schema = Schema::shop();
    let origin = selling("a");
    let routes = json!([
        {"match": {"prefix": "/shop.v1.Shop/"}, "route": {"cluster": "origin"}},
        direct("/", "the request's own"),
    ]);
    let proxy = Proxy::start(&site(settings(&schema, &json!({})), routes.clone(), &origin));
    assert_eq!(proxy.get("/v1/items/a").text(), r#"{"name":"a"}"#);
    let stays = settings(&schema, &json!({"match_incoming_request_route": true}));
    let proxy = Proxy::start(&site(stays, routes, &origin));
    assert_eq!(proxy.get("/v1/items/a").text(), "the request's own");
}

#[test]
fn the_most_specific_settings_count_alone() {
    let schema = Schema::shop();
    let origin = selling("a");
    let per_route = |fields: Value| {
        let mut config = settings(&schema, &fields);
        config["@type"] =
            json!("type.googleapis.com/envoy.extensions.filters.http.grpc_json_transcoder.v3.GrpcJsonTranscoder");
        config["match_incoming_request_route"] = json!(true);
        json!({NAME: config})
    };
    let routes = json!([
        {"match": {"prefix": "/v1/other"}, "route": {"cluster": "origin"},
            "typed_per_filter_config": per_route(json!({"services": ["shop.v1.Other"]}))},
        {"match": {"prefix": "/v1/shelves"}, "route": {"cluster": "origin"},
            "typed_per_filter_config": per_route(json!({"services": []}))},
        {"match": {"prefix": "/"}, "route": {"cluster": "origin"}},
    ]);
    let proxy = Proxy::start(&site(settings(&schema, &json!({})), routes, &origin));
    for (path, called) in [
        ("/v1/items/a", "/shop.v1.Shop/Get"),
        ("/v1/other/a", "/shop.v1.Other/Get"),
        ("/v1/shelves/s/items/i", "/v1/shelves/s/items/i"),
    ] {
        assert_eq!(proxy.get(path).status, 200, "{path}");
        assert_eq!(origin.last().path, called, "{path}");
    }
}

#[test]
fn a_change_of_the_descriptor_file_is_taken_up() {
    if !postrider_only() {
        return;
    }
    let folder = TempDir::new();
    let file = folder.write("shop.pb", &Schema::shop().set);
    let origin = selling("a");
    let filter = json!({"proto_descriptor": file, "services": ["shop.v1.Shop"]});
    let proxy = Proxy::start(&site(filter, everything(), &origin));
    assert_eq!(proxy.get("/v1/items/a").text(), r#"{"name":"a"}"#);
    let text = include_str!("shop.proto").replace("/v1/items/{item}\"", "/v2/items/{item}\"");
    folder.write("shop.pb", &Schema::compile(&text).set);
    wait_until("the new rules hold", || proxy.get("/v2/items/a").text() == r#"{"name":"a"}"#);
    proxy.get("/v1/items/a");
    assert_eq!(origin.last().path, "/v1/items/a", "the old rule is gone");
}
