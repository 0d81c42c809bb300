//! Requests that list which labels of hosts they would take instead (`metadata_fallback_policy: FALLBACK_LIST`).

use std::collections::BTreeSet;

use postrider_tests::kit::config::{self, Config};
use postrider_tests::kit::{Origin, Proxy};
use serde_json::{Value, json};

fn labels(labels: Value) -> Value {
    json!({"filter_metadata": {"envoy.lb": labels}})
}

#[test]
fn alternatives_are_tried_in_turn() {
    let hosts = [('a', json!({"v": "1", "r": "x"})), ('b', json!({"v": "1", "r": "y"})), ('c', json!({"v": "2"}))];
    let origins =
        hosts.map(|(letter, of)| (Origin::fixed(format!("HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n{letter}")), of));
    let host = |(origin, of): &(Origin, Value)| {
        json!({
            "endpoint": {"address": config::socket_address("127.0.0.1", origin.address.port())},
            "metadata": labels(of.clone()),
        })
    };
    let hosts: Vec<Value> = origins.iter().map(host).collect();
    let route = |path: &str, wanted: Value| json!({"match": {"path": path}, "route": {"cluster": "origin", "metadata_match": labels(wanted)}});
    let routes = json!([
        route("/first", json!({"v": "1", "fallback_list": [{"r": "x"}, {"r": "y"}]})),
        route("/second", json!({"v": "1", "fallback_list": [{"r": "z"}, {"r": "y"}]})),
        route("/other", json!({"v": "1", "fallback_list": [{"r": "z"}, {"v": "2"}]})),
        route("/own", json!({"v": "1", "fallback_list": [{"r": "z"}, {}]})),
        route("/nothing", json!({"v": "1", "fallback_list": [{"r": "z"}]})),
        route("/empty", json!({"v": "2", "fallback_list": []})),
        route("/text", json!({"v": "2", "fallback_list": "r"})),
        route("/plain", json!({"v": "2"})),
    ]);
    let of_list = ["a", "b", "c", "ab", "-", "c", "c", "c"];
    // Without the policy it is a label like any other, which no host has.
    let of_none = ["-", "-", "-", "-", "-", "-", "-", "c"];
    for (policy, expected) in [("FALLBACK_LIST", of_list), ("METADATA_NO_FALLBACK", of_none)] {
        let cluster = json!({
            "lb_subset_config": {
                "subset_selectors": [{"keys": ["v"]}, {"keys": ["v", "r"]}],
                "metadata_fallback_policy": policy,
            },
            "load_assignment": {"cluster_name": "origin", "endpoints": [{"lb_endpoints": hosts}]},
        });
        let proxy = Proxy::start(&Config::routes(routes.clone()).cluster_with("origin", &[], cluster));
        for (route, letters) in routes.as_array().expect("a list").iter().zip(expected) {
            let path = route["match"]["path"].as_str().expect("a path");
            let mut client = proxy.client();
            let met: BTreeSet<String> = (0..8)
                .map(|_| {
                    let response = client.exchange(format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n"));
                    if response.status == 503 { "-".to_owned() } else { response.text().to_owned() }
                })
                .collect();
            assert_eq!(met.into_iter().collect::<String>(), letters, "{policy} {path}");
        }
    }
}
