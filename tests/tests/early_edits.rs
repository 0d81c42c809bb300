//! What is done to a request before anybody looks at it.

use postrider_tests::kit::{Config, Origin, Proxy};
use postrider_tests::{ask, named_route};
use serde_json::json;

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";

#[test]
fn early_mutations_count_for_routes_and_upstreams() {
    let origin = Origin::fixed(OK);
    let extension = json!({"name": "envoy.http.early_header_mutation.header_mutation", "typed_config": {
        "@type": "type.googleapis.com/envoy.extensions.http.early_header_mutation.header_mutation.v3.HeaderMutation",
        "mutations": [
            {"append": {"header": {"key": "x-early", "value": "%REQ(:path)%"}, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"}},
            {"remove": "x-gone"},
            {"remove_on_match": {"key_matcher": {"prefix": "x-secret-"}}},
        ],
    }});
    let early = json!({"prefix": "/h", "headers": [{"name": "x-early", "string_match": {"prefix": "/h"}}]});
    let config = Config::routes(json!([
        named_route("early", early),
        {"match": {"prefix": "/"}, "route": {"cluster": "origin"}},
    ]))
    .overlay_filter("http", json!({"early_header_mutation_extensions": [extension]}))
    .cluster("origin", &[origin.address]);
    let proxy = Proxy::start(&config);
    assert_eq!(ask(&proxy, "GET", "test", "/h", "x-early: mine\r\n").text(), "early");
    assert_eq!(
        ask(&proxy, "GET", "test", "/b", "x-gone: 1\r\nx-secret-a: 1\r\nx-secret-b: 2\r\nx-open: 3\r\n").status,
        200
    );
    let seen = origin.requests().remove(0);
    assert_eq!(seen.header("x-early"), "/b");
    for gone in ["x-gone", "x-secret-a", "x-secret-b"] {
        assert!(!seen.headers.contains(gone), "{gone}");
    }
    assert_eq!(seen.header("x-open"), "3");
}

#[test]
fn upstreams_hear_which_proxy_asks_where_it_is_to_name_itself() {
    let origin = Origin::fixed(OK);
    let config = Config::proxy_to(origin.address)
        .overlay_filter("http", json!({"add_user_agent": true}))
        .overlay(json!({"node": {"id": "gateway-1", "cluster": "gateways"}}));
    let proxy = Proxy::start(&config);
    ask(&proxy, "GET", "test", "/", "");
    ask(&proxy, "GET", "test", "/", "user-agent: me\r\n");
    let seen = origin.requests();
    for request in &seen {
        assert_eq!(request.header("x-envoy-downstream-service-cluster"), "gateways");
        assert_eq!(request.header("x-envoy-downstream-service-node"), "gateway-1");
    }
    assert_eq!((seen[0].header("user-agent"), seen[1].header("user-agent")), ("gateways", "me"));
}
