//! Which hosts another try goes to.

use postrider_tests::kit::config::{extension, socket_address};
use postrider_tests::kit::{Config, Origin, Proxy};
use serde_json::{Value, json};
use std::net::SocketAddr;

const PREDICATE: &str = "retry.host";

fn failing() -> Origin {
    Origin::fixed("HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n")
}

fn fine() -> Origin {
    Origin::fixed("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
}

fn host(address: SocketAddr, metadata: Value) -> Value {
    let address = socket_address("127.0.0.1", address.port());
    json!({"endpoint": {"address": address}, "metadata": {"filter_metadata": metadata}})
}

/// A cluster of groups of hosts, each of the priority of its place.
fn config(policy: Value, priorities: Vec<Vec<Value>>) -> Config {
    let mut all = json!({
        "retry_on": "5xx",
        "num_retries": 1,
        "retry_back_off": {"base_interval": "0.001s", "max_interval": "0.001s"},
    });
    postrider_tests::kit::config::overlay(&mut all, policy);
    let endpoints: Vec<Value> = (0..)
        .zip(priorities)
        .map(|(priority, hosts): (u32, _)| json!({"priority": priority, "lb_endpoints": hosts}))
        .collect();
    let assignment =
        json!({"lb_policy": "RANDOM", "load_assignment": {"cluster_name": "origin", "endpoints": endpoints}});
    let routes = json!([{"match": {"prefix": "/"}, "route": {"cluster": "origin", "retry_policy": all}}]);
    Config::routes(routes).cluster_with("origin", &[], assignment)
}

fn statuses(proxy: &Proxy, count: usize) -> Vec<u16> {
    (0..count).map(|_| proxy.get("/").status).collect()
}

#[test]
fn no_other_try_goes_to_hosts_with_these_labels() {
    let (bad, good) = (failing(), fine());
    let labels = |stage: &str| json!({"envoy.lb": {"stage": stage, "zones": ["a", "b"]}});
    let predicate = |wanted: Value| {
        let config = json!({"metadata_match": {"filter_metadata": {"envoy.lb": wanted}}});
        let omit = format!("{PREDICATE}.omit_host_metadata.v3.OmitHostMetadataConfig");
        json!({
            "retry_host_predicate": [extension("envoy.retry_host_predicates.omit_host_metadata", &omit, config)],
            "host_selection_retry_max_attempts": 20,
        })
    };
    let hosts = || vec![host(bad.address, labels("old")), host(good.address, labels("new"))];
    for wanted in [json!({"stage": "old"}), json!({"stage": "old", "zones": "b"})] {
        let proxy = Proxy::start(&config(predicate(wanted), vec![hosts()]));
        assert_eq!(statuses(&proxy, 30), [200; 30]);
    }
    // All labels have to be there, and where every host is one of these, it is taken all the same.
    for wanted in [json!({"stage": "old", "zones": "c"}), json!({"zones": "a"})] {
        let proxy = Proxy::start(&config(predicate(wanted), vec![hosts()]));
        assert!(statuses(&proxy, 40).contains(&503));
    }
}

#[test]
fn no_other_try_goes_to_canaries() {
    let (bad, good) = (failing(), fine());
    let canary = |canary: Value| json!({"envoy.lb": {"canary": canary}});
    let omit = format!("{PREDICATE}.omit_canary_hosts.v3.OmitCanaryHostsPredicate");
    let predicate = json!({
        "retry_host_predicate": [extension("envoy.retry_host_predicates.omit_canary_hosts", &omit, json!({}))],
        "host_selection_retry_max_attempts": 20,
    });
    let hosts = |of_bad: bool| vec![host(bad.address, canary(json!(of_bad))), host(good.address, canary(json!(false)))];
    let proxy = Proxy::start(&config(predicate.clone(), vec![hosts(true)]));
    assert_eq!(statuses(&proxy, 30), [200; 30]);
    let proxy = Proxy::start(&config(predicate, vec![hosts(false)]));
    assert!(statuses(&proxy, 40).contains(&503));
}

fn previous_priorities(every: u32, retries: u32) -> Value {
    let name = "retry.priority.previous_priorities.v3.PreviousPrioritiesConfig";
    json!({
        "num_retries": retries,
        "retry_priority": extension("envoy.retry_priorities.previous_priorities", name, json!({"update_frequency": every})),
    })
}

fn priorities(origins: &[&Origin]) -> Vec<Vec<Value>> {
    origins.iter().map(|origin| vec![host(origin.address, json!({}))]).collect()
}

#[test]
fn another_try_goes_to_another_priority() {
    let (bad, worse, good) = (failing(), failing(), fine());
    let proxy = Proxy::start(&config(previous_priorities(1, 2), priorities(&[&bad, &worse, &good])));
    assert_eq!(statuses(&proxy, 3), [200; 3]);
    assert_eq!([&bad, &worse, &good].map(|origin| origin.requests().len()), [3, 3, 3]);
}

#[test]
fn priorities_change_after_as_many_tries_as_the_policy_says_and_begin_anew_when_all_were_tried() {
    let (one, other) = (failing(), failing());
    let proxy = Proxy::start(&config(previous_priorities(2, 6), priorities(&[&one, &other])));
    assert_eq!(statuses(&proxy, 1), [503]);
    // Two of each in turn: 0 0 1 1, then all have been tried, and again 0 0 1.
    assert_eq!([&one, &other].map(|origin| origin.requests().len()), [4, 3]);
}
