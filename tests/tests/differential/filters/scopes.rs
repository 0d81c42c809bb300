//! Filters together: their order, more than one of a kind, and those that are off until somebody turns them on.

use super::{filter, header, own, share, typed};
use crate::scene::{Scene, to_a};
use postrider_tests::kit::config::overlay;
use serde_json::{Value, json};

pub fn scenes() -> Vec<Scene> {
    vec![disabled(), switched(), order("filter-order", false), order("filter-order-reversed", true), twins()]
}

/// A filter that is off, and on for one route.
fn disabled() -> Scene {
    let mut off = filter(
        "header_mutation",
        "HeaderMutation",
        json!({"mutations": {"request_mutations": [{"append": {"header": {"key": "x-on", "value": "1"}}}]}}),
    );
    off["disabled"] = json!(true);
    let on = json!({"typed_per_filter_config": {"envoy.filters.http.header_mutation": {
        "@type": "type.googleapis.com/envoy.config.route.v3.FilterConfig", "config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.header_mutation.v3.HeaderMutationPerRoute"},
    }}});
    Scene::filtered("disabled", vec![off], json!([to_a("/on", on)])).gets(&["/", "/on"])
}

/// A filter that adds a line with its own name to requests and answers.
fn marks(name: &str) -> Value {
    let list = json!([{"append": header("x-mark", name)}]);
    let mut made = filter(
        "header_mutation",
        "HeaderMutation",
        json!({"mutations": {"request_mutations": list, "response_mutations": list}}),
    );
    made["name"] = json!(name);
    made
}

fn switch(filter: &str, on: bool) -> Value {
    let mut config = json!({"@type": "type.googleapis.com/envoy.config.route.v3.FilterConfig"});
    match on {
        true => config["config"] = typed("header_mutation", "HeaderMutationPerRoute", json!({})),
        false => config["disabled"] = json!(true),
    }
    json!({"typed_per_filter_config": {filter: config}})
}

/// On and off by table, virtual host, route and weighted cluster.
fn switched() -> Scene {
    let mut off = marks("off");
    off["disabled"] = json!(true);
    let mut cluster = json!({"name": "a", "weight": 1});
    overlay(&mut cluster, switch("off", true));
    let both = |mut first: Value, second: Value| {
        overlay(&mut first, second);
        first
    };
    let routes = json!([
        to_a("/on", switch("off", true)),
        to_a("/without", switch("on", false)),
        to_a("/swapped", both(switch("off", true), switch("on", false))),
        to_a("/weighted", json!({"route": {"cluster": null, "weighted_clusters": {"clusters": [cluster]}}})),
        {"match": {"prefix": "/own"}, "direct_response": {"status": 200}},
        to_a("/", json!({})),
    ]);
    let hosts = json!([
        {"name": "plain", "domains": ["*"], "routes": routes},
        both(json!({"name": "on", "domains": ["on.test"], "routes": [to_a("/off", switch("off", false)), to_a("/", json!({}))]}), switch("off", true)),
        both(json!({"name": "without", "domains": ["without.test"], "routes": [to_a("/on", switch("on", true)), to_a("/", json!({}))]}), switch("on", false)),
    ]);
    let mut scene = Scene::with_table("switched", vec![marks("on"), off], json!({"virtual_hosts": hosts}));
    for host in ["test", "on.test", "without.test"] {
        for path in ["/on", "/off", "/without", "/swapped", "/weighted", "/own", "/"] {
            scene = scene.ask("GET", host, path, "");
        }
    }
    scene
}

/// Filters that answer themselves, with marks around them; the same from behind.
fn order(name: &str, reversed: bool) -> Scene {
    let any = json!({"any": true});
    let deny = json!({"rules": {"action": "DENY", "policies": {"no": {
        "permissions": [{"url_path": {"path": {"prefix": "/denied"}}}], "principals": [any],
    }}}});
    let origins = json!([{"exact": "http://a.test"}]);
    let mut filters = vec![
        marks("first"),
        filter("cors", "Cors", json!({})),
        marks("second"),
        filter("csrf", "CsrfPolicy", json!({"filter_enabled": share(100)})),
        filter("fault", "HTTPFault", json!({"abort": {"header_abort": {}, "percentage": {"numerator": 100}}})),
        filter(
            "header_to_metadata",
            "Config",
            json!({"request_rules": [{"header": "x-mark", "on_header_present": {"metadata_namespace": "seen", "key": "mark"}}]}),
        ),
        marks("third"),
        filter("rbac", "RBAC", deny),
        filter(
            "basic_auth",
            "BasicAuth",
            json!({"users": {"inline_string": "ann:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ="}, "forward_username_header": "x-user"}),
        ),
        filter("buffer", "Buffer", json!({"max_request_bytes": 10})),
        marks("fourth"),
    ];
    if reversed {
        filters.reverse();
    }
    let routes = json!([own(
        "/",
        "cors",
        "CorsPolicy",
        json!({"allow_origin_string_match": origins, "expose_headers": "x-mark"})
    )]);
    let good = "authorization: Basic YW5uOnNlY3JldA==\r\n";
    let mut scene = Scene::filtered(name, filters, routes).logging(json!({"noted": "%DYNAMIC_METADATA(seen)%"}));
    for path in ["/", "/denied"] {
        for lines in
            ["", "origin: http://a.test\r\n", "origin: http://evil.test\r\n", "x-envoy-fault-abort-request: 418\r\n"]
        {
            scene = scene
                .get_with(path, lines)
                .get_with(path, &format!("{lines}{good}"))
                .post(path, &format!("{lines}{good}"), "short")
                .post(path, &format!("{lines}{good}connection: close\r\n"), "more than ten bytes")
                .ask("OPTIONS", "test", path, &format!("{lines}access-control-request-method: PUT\r\n"));
        }
    }
    scene
}

/// Two of a kind, of which a route means one by its name or both by their kind.
fn twins() -> Scene {
    let routes = json!([
        {"match": {"prefix": "/bad"}, "direct_response": {"status": 400, "body": {"inline_string": "bad"}}},
        to_a("/one", json!({"typed_per_filter_config": {"one": typed("header_mutation", "HeaderMutationPerRoute", mutations("route"))}})),
        to_a("/both", json!({"typed_per_filter_config": {
            "one": typed("header_mutation", "HeaderMutationPerRoute", mutations("route one")),
            "two": typed("header_mutation", "HeaderMutationPerRoute", mutations("route two")),
        }})),
    ]);
    Scene::filtered("twins", vec![marks("one"), marks("two")], routes).gets(&[
        "/one",
        "/both",
        "/",
        "/one?answer=404",
        "/bad",
    ])
}

fn mutations(name: &str) -> Value {
    let list = json!([{"append": header("x-mark", name)}]);
    json!({"mutations": {"request_mutations": list, "response_mutations": list}})
}
