//! The filter that puts objects into the filter state, as Envoy's does.

use postrider_tests::kit::config::extension;
use postrider_tests::site;
use serde_json::{Value, json};

const NAME: &str = "envoy.filters.http.set_filter_state";
const TYPE: &str = "filters.http.set_filter_state.v3.Config";

fn object(key: &str, format: &str, more: Value) -> Value {
    let mut object = json!({
        "object_key": key,
        "factory_key": "envoy.string",
        "format_string": {"text_format_source": {"inline_string": format}},
    });
    for (key, value) in more.as_object().unwrap() {
        object[key] = value.clone();
    }
    object
}

fn own(config: Value) -> Value {
    let mut config = config;
    config["@type"] = json!(format!("type.googleapis.com/envoy.extensions.{TYPE}"));
    config
}

#[test]
fn objects_are_made_from_formats() {
    let maybe = json!({"text_format_source": {"inline_string": "%REQ(x-b)%"}, "omit_empty_values": true});
    let json_of = json!({"json_format": {"path": "%REQ(:path)%", "none": "%REQ(x-none)%"}});
    let site = site::with([extension(
        NAME,
        TYPE,
        json!({"on_request_headers": [
            object("a", "(%REQ(x-a)%)", json!({"read_only": true})),
            object("b", "%REQ(x-a)%", json!({})),
            object("b", "", json!({"format_string": maybe, "skip_if_empty": true})),
            object("bool", "%REQ(x-bool)%", json!({"factory_key": "envoy.bool"})),
            object("hash", "h", json!({"factory_key": "envoy.hashable_string"})),
            object("then", "%FILTER_STATE(a:PLAIN)%!", json!({})),
            object("json", "", json!({"format_string": json_of})),
        ]}),
    )])
    .log(
        "%FILTER_STATE(a:PLAIN)% %FILTER_STATE(b:PLAIN)% %FILTER_STATE(bool:TYPED)% %FILTER_STATE(hash:TYPED)% \
         %FILTER_STATE(then)% %FILTER_STATE(json:TYPED)% %FILTER_STATE(a:FIELD:x)%",
    )
    .start();
    site.get("/x", "x-a: A\r\nx-b: B\r\nx-bool: YES\r\n");
    let json_of = r#""{\"none\":null,\"path\":\"/x\"}\n""#;
    assert_eq!(site.logged(1), format!(r#"(A) B true "h" "(A)!" {json_of} -"#));
    site.get("/x", "x-bool: maybe\r\n");
    assert_eq!(site.logged(2), format!(r#"(-) - - "h" "(-)!" {json_of} -"#));
}

#[test]
fn all_scopes_apply_and_the_route_may_be_looked_up_again() {
    let by_state = json!({
        "match": {"prefix": "/", "filter_state": [{"key": "who", "string_match": {"exact": "host"}}]},
        "direct_response": {"status": 200, "body": {"inline_string": "by state"}},
    });
    let route = own(json!({"on_request_headers": [
        object("who", "route", json!({})), object("all", "%FILTER_STATE(all:PLAIN)%3", json!({})),
    ]}));
    let host = own(json!({"on_request_headers": [
        object("who", "host", json!({})), object("all", "%FILTER_STATE(all:PLAIN)%2", json!({})),
    ]}));
    for again in [false, true] {
        let first = json!({"on_request_headers": [object("all", "1", json!({}))], "clear_route_cache": again});
        let site = site::with([extension(NAME, TYPE, first)])
            .host(json!({"typed_per_filter_config": {NAME: host.clone()}}))
            .routes(json!([by_state, site::route("/route", NAME, route.clone()), site::rest()]))
            .log("%FILTER_STATE(who:PLAIN)% %FILTER_STATE(all:PLAIN)%")
            .start();
        assert_eq!(site.get("/", "").body == b"by state", again);
        assert_ne!(site.get("/route", "").body, b"by state");
        assert_eq!([1, 2].map(|line| site.logged(line)), ["host 12", "route 123"]);
    }
}

#[test]
fn a_tree_chooses_the_cluster_by_filter_state() {
    const PLUGINS: &str = "router.cluster_specifiers.matcher.v3";
    const INPUT: &str = "matching.common_inputs.network.v3.FilterStateInput";
    let cluster =
        |name: &str| json!({"action": extension(name, &format!("{PLUGINS}.ClusterAction"), json!({"cluster": name}))});
    let tree = json!({"cluster_matcher": {
        "matcher_tree": {
            "input": extension("tier", INPUT, json!({"key": "tier"})),
            "exact_match_map": {"map": {"gold": cluster("origin")}},
        },
        "on_no_match": cluster("nowhere"),
    }});
    let plugin = extension("by-tier", &format!("{PLUGINS}.MatcherClusterSpecifier"), tree);
    let route = json!({"inline_cluster_specifier_plugin": {"extension": plugin}});
    // Envoy asks the tree when the route is chosen.
    let noted = [object("tier", "%REQ(x-tier)%", json!({}))];
    let tier = json!({"on_request_headers": noted, "clear_route_cache": true});
    let site = site::with([extension(NAME, TYPE, tier)])
        .routes(json!([{"match": {"prefix": "/"}, "route": route}]))
        .log("%RESPONSE_CODE% %RESPONSE_FLAGS% %UPSTREAM_CLUSTER%")
        .start();
    assert_eq!(site.get("/", "x-tier: gold\r\n").status, 200);
    assert_eq!(site.logged(1), "200 - origin");
    assert_eq!(site.get("/", "x-tier: tin\r\n").status, 503);
    assert_eq!(site.logged(2), "503 NC -");
}
