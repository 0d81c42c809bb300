//! Clusters that a route's own tree of conditions or a hash chooses, and what the router holds requests to.

use postrider_tests::kit::{Config, Origin, Proxy, config};
use postrider_tests::site;
use postrider_tests::{ask, get};
use serde_json::{Value, json};

const SPECIFIERS: &str = "type.googleapis.com/envoy.extensions.router.cluster_specifiers";

fn cluster(name: &str) -> Value {
    let config = json!({"@type": format!("{SPECIFIERS}.matcher.v3.ClusterAction"), "cluster": name});
    json!({"action": {"name": "cluster", "typed_config": config}})
}

fn when(header: &str, value: &str, to: &str) -> Value {
    let input = json!({
        "@type": "type.googleapis.com/envoy.type.matcher.v3.HttpRequestHeaderMatchInput", "header_name": header,
    });
    let one = json!({"input": {"name": "header", "typed_config": input}, "value_match": {"exact": value}});
    json!({"predicate": {"single_predicate": one}, "on_match": cluster(to)})
}

fn by_tree(rest: Option<Value>) -> Value {
    let mut tree = json!({"matcher_list": {"matchers": [when("env", "a", "blue"), when("env", "b", "green")]}});
    if let Some(rest) = rest {
        tree["on_no_match"] = rest;
    }
    let config = json!({"@type": format!("{SPECIFIERS}.matcher.v3.MatcherClusterSpecifier"), "cluster_matcher": tree});
    json!({"inline_cluster_specifier_plugin": {"extension": {"name": "tree", "typed_config": config}}})
}

#[test]
fn a_tree_of_conditions_names_the_cluster() {
    let (blue, green) = (Origin::echo("blue"), Origin::echo("green"));
    let routes = json!([
        {"match": {"prefix": "/strict"}, "route": by_tree(None)},
        {"match": {"prefix": "/"}, "route": by_tree(Some(cluster("green")))},
    ]);
    let config = Config::routes(routes).cluster("blue", &[blue.address]).cluster("green", &[green.address]);
    let proxy = Proxy::start(&config);
    let origin = |path: &str, fields: &str| ask(&proxy, "GET", "test", path, fields).header("x-origin").to_owned();
    assert_eq!(origin("/", "env: a\r\n"), "blue");
    assert_eq!(origin("/", "env: b\r\n"), "green");
    assert_eq!(origin("/", "env: c\r\n"), "green");
    assert_eq!(origin("/strict", "env: a\r\n"), "blue");
    assert_eq!(proxy.get("/strict").status, 503, "it names none");
    assert_eq!(proxy.stats().value("http.ingress_http.no_cluster"), 1);
}

#[test]
fn the_same_client_comes_to_the_same_of_weighted_clusters() {
    let (blue, green) = (Origin::echo("blue"), Origin::echo("green"));
    let routes = json!([{"match": {"prefix": "/"}, "route": {
        "hash_policy": [{"header": {"header_name": "x-user"}}],
        "weighted_clusters": {
            "clusters": [{"name": "blue", "weight": 50}, {"name": "green", "weight": 50}], "use_hash_policy": true,
        },
    }}]);
    let config = Config::routes(routes).cluster("blue", &[blue.address]).cluster("green", &[green.address]);
    let proxy = Proxy::start(&config);
    let origin =
        |user: usize| ask(&proxy, "GET", "test", "/", &format!("x-user: {user}\r\n")).header("x-origin").to_owned();
    let first: Vec<_> = (0..20).map(origin).collect();
    assert_eq!((0..20).map(origin).collect::<Vec<_>>(), first);
    // The hash is Envoy's, and so is the choice.
    let blues: Vec<_> = (0..20).filter(|user| first[*user] == "blue").collect();
    assert_eq!(blues, BLUES);
}

/// Whom Envoy sends to the first of the two.
const BLUES: [usize; 10] = [0, 1, 6, 10, 11, 13, 14, 15, 16, 19];

#[test]
fn a_route_that_forwards_nothing_leaves_the_answer_to_filters() {
    let nothing = json!({"@type": "type.googleapis.com/google.protobuf.Empty"});
    for action in [json!({"non_forwarding_action": {}}), json!({"filter_action": {"action": nothing}})] {
        let mut route = json!({"match": {"prefix": "/"}});
        route.as_object_mut().unwrap().extend(action.as_object().unwrap().clone());
        let site = site::with([]).routes(json!([route])).start();
        assert_eq!(site.get("/", "").status, 503);
        assert_eq!(site.logged(1), "503 NC cluster_not_found");
    }
}

#[test]
fn malformed_fields_about_tries_are_refused_where_the_router_is_strict() {
    let strict = json!(["x-envoy-max-retries", "x-envoy-retry-on", "x-envoy-upstream-rq-timeout-ms"]);
    let router = json!({
        "name": "envoy.filters.http.router",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router", "strict_check_headers": strict,
        },
    });
    let inside = json!({"cidr_ranges": [{"address_prefix": "127.0.0.0", "prefix_len": 8}]});
    let site = site::with([])
        .manager(json!({"http_filters": [router], "use_remote_address": true, "internal_address_config": inside}))
        .start();
    let refused = site.get("/", "x-envoy-max-retries: many\r\n");
    assert_eq!(refused.status, 400);
    assert_eq!(refused.text(), "invalid header 'x-envoy-max-retries' with value 'many'");
    assert_eq!(site.logged(1), "400 IH request_headers_failed_strict_check{x-envoy-max-retries}");
    assert_eq!(site.get("/", "x-envoy-retry-on: 5xx,nonsense\r\n").status, 400);
    assert_eq!(site.get("/", "x-envoy-retry-on: 5xx,reset\r\n").status, 200);
    assert_eq!(site.get("/", "x-envoy-upstream-rq-timeout-ms: -1\r\n").status, 400);
    assert_eq!(site.get("/", "x-envoy-upstream-rq-timeout-ms: 9000\r\n").status, 200);
    assert_eq!(site.get("/", "x-envoy-upstream-rq-per-try-timeout-ms: x\r\n").status, 200, "it is not listed");
}

#[test]
fn the_time_that_a_proxy_in_front_gives_is_the_timeout_where_it_is_respected() {
    let inside = json!({"cidr_ranges": [{"address_prefix": "127.0.0.0", "prefix_len": 8}]});
    for respects in [true, false] {
        let router = json!({
            "name": "envoy.filters.http.router",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router",
                "respect_expected_rq_timeout": respects,
            },
        });
        let manager = json!({"http_filters": [router], "use_remote_address": true, "internal_address_config": inside});
        let site = site::with([]).manager(manager.clone()).start();
        assert_eq!(site.get("/", "x-envoy-expected-rq-timeout-ms: 9876\r\n").status, 200);
        let told = site.origin.requests()[0].header("x-envoy-expected-rq-timeout-ms").to_owned();
        assert_eq!(told, if respects { "9876" } else { "15000" });
        if respects {
            let site = site::with([]).manager(manager).start_before(Origin::silent());
            let mut client = site.proxy.client();
            client.send(get("/").replace("\r\n\r\n", "\r\nx-envoy-expected-rq-timeout-ms: 100\r\n\r\n"));
            assert_eq!(client.response("GET").unwrap().status, 504);
        }
    }
}

#[test]
fn edits_of_the_request_see_how_long_it_may_take_and_which_try_it_is() {
    let add = |name: &str, of: &str| json!({"header": {"key": name, "value": format!("%REQ({of})%")}});
    let route = json!({
        "match": {"prefix": "/"},
        "route": {"cluster": "origin", "timeout": "5s", "retry_policy": {"retry_on": "5xx"}},
        "request_headers_to_add": [
            add("x-time", "x-envoy-expected-rq-timeout-ms"), add("x-try", "x-envoy-attempt-count"),
        ],
        "request_headers_to_remove": ["x-nobody"],
    });
    let host = json!([{
        "name": "all", "domains": ["*"], "include_request_attempt_count": true, "routes": [route],
    }]);
    let origin = Origin::echo("origin");
    let config =
        Config::new().http(json!({"route_config": {"virtual_hosts": host}})).cluster("origin", &[origin.address]);
    let proxy = Proxy::start(&config);
    assert_eq!(proxy.get("/").status, 200);
    let heard = &origin.requests()[0];
    assert_eq!((heard.header("x-time"), heard.header("x-try")), ("5000", "1"));
}

#[test]
fn values_in_bytes_are_not_sent() {
    let (bytes, text) = ("Ynl0ZXM=", "text");
    let route = json!({
        "match": {"prefix": "/"},
        "route": {"cluster": "origin"},
        "request_headers_to_add": [
            {"header": {"key": "x-bytes", "raw_value": bytes}},
            {"header": {"key": "x-both", "value": text, "raw_value": bytes}},
            {"header": {"key": "x-kept", "raw_value": bytes}, "keep_empty_value": true},
        ],
    });
    let origin = Origin::echo("origin");
    let proxy = Proxy::start(&Config::routes(json!([route])).cluster("origin", &[origin.address]));
    assert_eq!(proxy.get("/").status, 200);
    let heard = &origin.requests()[0];
    assert_eq!(heard.headers.value("x-bytes"), None);
    assert_eq!((heard.header("x-both"), heard.header("x-kept")), (text, ""));
}

/// It counted for bodies that are kept for another try, and filters held as much as the connection keeps.
#[test]
fn a_route_lets_filters_hold_more_of_a_request_than_its_connection_does() {
    let origin = Origin::echo("a");
    let script = "function envoy_on_request(handle)
        local length = handle:body():length()
        handle:headers():add('x-length', length)
    end";
    let lua = json!({"default_source_code": {"inline_string": script}});
    let lua = config::extension("envoy.filters.http.lua", "filters.http.lua.v3.Lua", lua);
    let routes = json!([
        {"match": {"prefix": "/more"}, "route": {"cluster": "origin"}, "request_body_buffer_limit": 50_000},
        {"match": {"prefix": "/older"}, "route": {"cluster": "origin"}, "per_request_buffer_limit_bytes": 50_000},
        {"match": {"prefix": "/less"}, "route": {"cluster": "origin"}, "request_body_buffer_limit": 10},
        {"match": {"prefix": "/"}, "route": {"cluster": "origin"}},
    ]);
    let config = Config::routes(routes)
        .cluster("origin", &[origin.address])
        .overlay_filter("http", json!({"http_filters": [lua, config::router()]}))
        .overlay_listener("http", json!({"per_connection_buffer_limit_bytes": 2000}));
    let proxy = Proxy::start(&config);
    let post = |path: &str, length: usize| {
        let body = "x".repeat(length);
        ask(&proxy, "POST", "test", path, &format!("content-length: {length}\r\n\r\n{body}")).status
    };
    assert_eq!(
        [post("/more", 30_000), post("/older", 30_000), post("/", 30_000), post("/more", 300_000)],
        [200, 200, 413, 413]
    );
    // Less is no limit for filters.
    assert_eq!(post("/less", 1000), 200);
    let lengths: Vec<_> = origin.requests().iter().map(|request| request.header("x-length").to_owned()).collect();
    assert_eq!(lengths, ["30000", "30000", "1000"]);
}
