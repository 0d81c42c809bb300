//! Clusters in groups (`PriorityGroupClusterSpecifier`): a request goes to the first group. The same expectations hold for
//! Envoy.

use postrider_tests::kit::config::Config;
use postrider_tests::kit::proxy;
use postrider_tests::kit::{Origin, Proxy};
use serde_json::{Value, json};

const KIND: &str =
    "type.googleapis.com/envoy.extensions.router.cluster_specifiers.priority_group.v3.PriorityGroupClusterSpecifier";

fn group(name: &str, clusters: &[(&str, u32)]) -> Value {
    let clusters = clusters.iter().map(|(name, weight)| json!({"cluster_name": name, "weight": weight}));
    json!({"name": name, "clusters": clusters.collect::<Value>()})
}

/// A plugin whose first group has `a` and `b`, as 3 to 2, and whose second one has `c`.
fn plugin(lot: (&str, Value)) -> Value {
    let groups = [group("first", &[("a", 3), ("b", 2)]), group("second", &[("c", 1)])];
    json!({"extension": {"name": "groups", "typed_config": {"@type": KIND, "priority_groups": groups, lot.0: lot.1}}})
}

fn site(origins: &[(&str, Origin)]) -> Config {
    let hash_policy = json!([{"header": {"header_name": "x-key"}}]);
    let mut config = Config::routes(json!([
        {"match": {"prefix": "/number"}, "route": {
            "inline_cluster_specifier_plugin": plugin(("header_name", json!("x-number"))),
        }},
        {"match": {"prefix": "/hash"}, "route": {"cluster_specifier_plugin": "groups", "hash_policy": hash_policy}},
        {"match": {"prefix": "/"}, "route": {
            "inline_cluster_specifier_plugin": plugin(("use_hash_policy", json!(false))),
        }},
    ]))
    .overlay_filter(
        "http",
        json!({"route_config": {
            "cluster_specifier_plugins": [plugin(("use_hash_policy", json!(true)))],
        }}),
    );
    for (name, origin) in origins {
        config = config.cluster(name, &[origin.address]);
    }
    config
}

#[test]
fn a_request_goes_to_the_first_group_by_weight() {
    let origins = ["a", "b", "c"]
        .map(|letter| (letter, Origin::fixed(format!("HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n{letter}"))));
    let proxy = Proxy::start(&site(&origins));
    let mut client = proxy.client();
    let mut ask = |path: &str, fields: &str| -> String {
        let response = client.exchange(format!("GET {path} HTTP/1.1\r\nhost: x\r\n{fields}\r\n"));
        assert_eq!(response.status, 200);
        response.text().to_owned()
    };
    let by_number: String = (0..10).map(|number| ask("/number", &format!("x-number: {number}\r\n"))).collect();
    assert_eq!(by_number, "aaabbaaabb");
    // Those that real Envoy chooses.
    let by_hash: String = (0..8).map(|key| ask("/hash", &format!("x-key: {key}\r\n"))).collect();
    assert_eq!(by_hash, "baaababa");
    let by_chance: String = (0..60).map(|_| ask("/", "")).collect();
    assert!(by_chance.contains('a') && by_chance.contains('b') && !by_chance.contains('c'), "{by_chance}");
}

#[test]
fn a_group_names_clusters_that_are_there() {
    let origin = Origin::fixed("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    let directory = postrider_tests::kit::TempDir::new();
    // `b` and `c` are not there.
    let file = directory.write("config.yaml", site(&[("a", origin)]).to_yaml());
    let ended = proxy::run(&["-c", file.to_str().expect("UTF-8"), "--mode", "validate"]);
    assert_ne!(ended.code, Some(0), "{}", ended.stderr);
}
