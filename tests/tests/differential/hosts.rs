//! Which host of a cluster gets a request: hash policies, subsets, priorities, other hosts for further tries, and copies.
//!
//! The addresses of the upstreams differ from side to side; where hosts are chosen by hashes they have keys of their own.

use crate::origins::Upstream;
use crate::scene::{Scene, to_a};
use postrider_tests::kit::Config;
use postrider_tests::kit::config::overlay;
use serde_json::{Value, json};

pub fn scenes() -> Vec<Scene> {
    vec![
        hashed("hash-ring", "ring"),
        hashed("hash-maglev", "maglev"),
        subsets(),
        priorities(),
        rate_limited(),
        mirrored(),
    ]
}

/// Clusters in which both `a` and `b` are hosts.
pub fn clusters(config: Config, upstreams: &[Upstream]) -> Config {
    let [a, b, ..] = upstreams else { return config };
    let host = |upstream: &Upstream, more: Value| {
        let (address, port) = (upstream.origin.address.ip().to_string(), upstream.origin.address.port());
        let mut host = json!({"endpoint": {
            "address": {"socket_address": {"address": address, "port_value": port}},
        }});
        overlay(&mut host, more);
        host
    };
    let with = |config: Config, name: &str, localities: Value, fields: Value| {
        let mut all = json!({
            "per_connection_buffer_limit_bytes": 1_048_576,
            "load_assignment": {"cluster_name": name, "endpoints": localities},
        });
        overlay(&mut all, fields);
        config.cluster_with(name, &[], all)
    };
    let keyed = |key: &str| json!({"metadata": {"filter_metadata": {"envoy.lb": {"hash_key": key}}}});
    let both = json!([{"lb_endpoints": [host(a, keyed("a")), host(b, keyed("b"))]}]);
    let of_kind = |kind: &str| json!({"lb_policy": kind});
    let labelled = |version: &str| json!({"metadata": {"filter_metadata": {"envoy.lb": {"version": version}}}});
    let by_version = json!([{"lb_endpoints": [host(a, labelled("one")), host(b, labelled("two"))]}]);
    let selectors = json!({"lb_subset_config": {
        "fallback_policy": "DEFAULT_SUBSET", "default_subset": {"version": "one"}, "subset_selectors": [{"keys": ["version"]}],
    }});
    let in_turn =
        json!([{"lb_endpoints": [host(a, json!({}))]}, {"lb_endpoints": [host(b, json!({}))], "priority": 1}]);
    let config = with(config, "ring", both.clone(), of_kind("RING_HASH"));
    let config = with(config, "maglev", both, of_kind("MAGLEV"));
    let config = with(config, "subsets", by_version, selectors);
    with(config, "priorities", in_turn, json!({}))
}

/// The same host for each key.
fn hashed(name: &str, cluster: &str) -> Scene {
    let to =
        |prefix: &str, policies: Value| to_a(prefix, json!({"route": {"cluster": cluster, "hash_policy": policies}}));
    let header = |name: &str| json!({"header": {"header_name": name}});
    let routes = json!([
        to("/two", json!([header("x-a"), header("x-b")])),
        to("/first", json!([{"header": {"header_name": "x-a"}, "terminal": true}, header("x-b")])),
        to("/cookie", json!([{"cookie": {"name": "ck"}}])),
        to("/query", json!([{"query_parameter": {"name": "q"}}])),
        to("/", json!([header("x-a")])),
    ]);
    let mut scene = Scene::routes(name, routes);
    for key in 0..40 {
        scene = scene.get_with("/", &format!("x-a: key-{key}\r\n"));
    }
    for key in 0..10 {
        scene = scene
            .get_with("/two", &format!("x-a: {key}\r\nx-b: other-{key}\r\n"))
            .get_with("/first", &format!("x-a: {key}\r\nx-b: other-{key}\r\n"))
            .get_with("/first", &format!("x-b: other-{key}\r\n"))
            .get_with("/cookie", &format!("cookie: ck={key}\r\n"))
            .get(&format!("/query?q={key}"));
    }
    scene.each("/", &["x-a: b\r\nx-a: a\r\n", "x-a: a\r\nx-a: b\r\n"])
}

fn subsets() -> Scene {
    let of = |prefix: &str, version: &str| {
        let wanted = json!({"filter_metadata": {"envoy.lb": {"version": version}}});
        to_a(prefix, json!({"route": {"cluster": "subsets", "metadata_match": wanted}}))
    };
    let routes = json!([
        of("/one", "one"),
        of("/two", "two"),
        of("/three", "three"),
        to_a("/", json!({"route": {"cluster": "subsets"}})),
    ]);
    Scene::routes("subsets", routes).gets(&["/one", "/two", "/three", "/", "/two", "/one"])
}

fn retries(more: Value) -> Value {
    let mut policy = json!({
        "retry_on": "5xx", "num_retries": 3, "retry_back_off": {"base_interval": "0.001s", "max_interval": "0.002s"},
    });
    overlay(&mut policy, more);
    policy
}

/// The first priority while it is well, and the next one for further tries where the policy says so.
fn priorities() -> Scene {
    let extension = |name: &str, kind: &str, fields: Value| {
        postrider_tests::kit::config::extension(name, &format!("retry.{kind}"), fields)
    };
    let by_priority = |every: u32| {
        let fields = json!({"update_frequency": every});
        let kind = "priority.previous_priorities.v3.PreviousPrioritiesConfig";
        json!({"retry_priority": extension("envoy.retry_priorities.previous_priorities", kind, fields)})
    };
    let kind = "host.previous_hosts.v3.PreviousHostsPredicate";
    let by_host = json!({
        "retry_host_predicate": [extension("envoy.retry_host_predicates.previous_hosts", kind, json!({}))],
        "host_selection_retry_max_attempts": 3,
    });
    let to = |prefix: &str, more: Value| {
        to_a(prefix, json!({"route": {"cluster": "priorities", "timeout": "0s", "retry_policy": retries(more)}}))
    };
    let routes =
        json!([to("/each", by_priority(1)), to("/second", by_priority(2)), to("/host", by_host), to("/", json!({})),]);
    let mut scene = Scene::routes("priorities", routes);
    for path in ["/each", "/second", "/host", "/"] {
        scene = scene.get(path).answers(path, &["503x1", "503x2", "503x9", "resetx1"]);
    }
    scene
}

/// A wait that the answer asks for.
fn rate_limited() -> Scene {
    let fields = json!({
        "retry_on": "envoy-ratelimited,5xx",
        "rate_limited_retry_back_off": {"reset_headers": [{"name": "retry-after", "format": "SECONDS"}], "max_interval": "2s"},
    });
    Scene::routes("rate-limited", json!([to_a("/", json!({"route": {"retry_policy": retries(fields)}}))]))
        .answers("/", &["limitedx1", "503x1"])
}

/// Copies go to `b`.
fn mirrored() -> Scene {
    let to_b = |more: Value| {
        let mut policy = json!({"cluster": "b", "disable_shadow_host_suffix_append": true});
        overlay(&mut policy, more);
        json!({"route": {"request_mirror_policies": [policy]}})
    };
    let none = json!({"runtime_fraction": {"default_value": {"numerator": 0}}});
    let routes = json!([
        to_a("/never", to_b(none)),
        to_a("/named", to_b(json!({"disable_shadow_host_suffix_append": false}))),
        to_a(
            "/own",
            to_b(json!({"request_headers_mutations": [
                {"append": {"header": {"key": "x-copy", "value": "yes"}}}, {"remove": "x-gone"},
            ]}))
        ),
        to_a("/", to_b(json!({}))),
    ]);
    Scene::routes("mirrored", routes)
        .copied()
        .gets(&["/", "/never", "/named", "/?answer=404", "/?answer=503"])
        .post("/", "x-a: b\r\n", "a body")
        .get_with("/own", "x-gone: 1\r\nx-a: b\r\n")
        .ask("HEAD", "test", "/", "")
}
