//! Which hosts a request may go to by their labels: `lb_subset_config` and `metadata_match`.

use std::collections::BTreeSet;

use postrider_tests::kit::config::{extension, router, socket_address};
use postrider_tests::kit::{Config, Origin, Proxy, RawClient};
use serde_json::{Value, json};

/// Five hosts, which answer with a letter each.
struct Hosts(Vec<Origin>);

impl Hosts {
    fn http() -> Hosts {
        let answer = |letter: char| Origin::fixed(format!("HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n{letter}"));
        Hosts(('a'..='e').map(answer).collect())
    }

    fn tcp() -> Hosts {
        Hosts(('a'..='e').map(|letter| Origin::tcp_echo(&letter.to_string())).collect())
    }

    /// With their labels, all in one locality.
    fn assignment(&self) -> Value {
        let labels = [
            json!({"v": "1", "s": "x"}),
            json!({"v": "1", "s": "y"}),
            json!({"v": "2", "s": "x"}),
            json!({"v": "2", "l": ["p", "q"]}),
            json!({"n": 3}),
        ];
        let host = |(origin, labels): (&Origin, &Value)| {
            json!({
                "endpoint": {"address": socket_address("127.0.0.1", origin.address.port())},
                "metadata": {"filter_metadata": {"envoy.lb": labels}},
            })
        };
        let hosts: Vec<Value> = self.0.iter().zip(&labels).map(host).collect();
        json!({"cluster_name": "origin", "endpoints": [{"lb_endpoints": hosts}]})
    }
}

fn labels(labels: Value) -> Value {
    json!({"filter_metadata": {"envoy.lb": labels}})
}

/// `/path` for each way to ask for hosts.
fn routes() -> Value {
    let route = |path: &str, wanted: Value| json!({"match": {"path": path}, "route": {"cluster": "origin", "metadata_match": labels(wanted)}});
    let weighted = json!({
        "metadata_match": labels(json!({"v": "1", "s": "x"})),
        "weighted_clusters": {"clusters": [
            {"name": "origin", "weight": 1, "metadata_match": labels(json!({"s": "y"}))},
        ]},
    });
    json!([
        {"match": {"path": "/none"}, "route": {"cluster": "origin"}},
        route("/v1", json!({"v": "1"})),
        route("/v2", json!({"v": "2"})),
        route("/v3", json!({"v": "3"})),
        route("/number", json!({"n": 3})),
        route("/item", json!({"l": "q"})),
        route("/both", json!({"s": "y", "v": "1"})),
        route("/neither", json!({"s": "q", "v": "1"})),
        route("/s", json!({"s": "x"})),
        route("/unknown", json!({"z": "1"})),
        route("/empty", json!({})),
        {"match": {"path": "/weighted"}, "route": weighted},
    ])
}

fn cluster(hosts: &Hosts, fields: Value) -> Value {
    let mut cluster = json!({"load_assignment": hosts.assignment()});
    postrider_tests::kit::config::overlay(&mut cluster, fields);
    cluster
}

fn start(hosts: &Hosts, fields: Value) -> Proxy {
    Proxy::start(&Config::routes(routes()).cluster_with("origin", &[], cluster(hosts, fields)))
}

/// The letters of all hosts that are reached, `-` for nobody.
fn reached(proxy: &Proxy, path: &str) -> String {
    let mut client = proxy.client();
    let ask = |_| {
        let response = client.exchange(format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n"));
        match response.status {
            503 => "-".to_owned(),
            _ => response.text().to_owned(),
        }
    };
    (0..10).map(ask).collect::<BTreeSet<String>>().into_iter().collect()
}

#[track_caller]
fn check(proxy: &Proxy, expected: &[(&str, &str)]) {
    for (path, letters) in expected {
        assert_eq!(reached(proxy, path), *letters, "{path}");
    }
}

/// Selectors with a fallback each.
fn selectors() -> Value {
    json!([
        {"keys": ["v"]},
        {"keys": ["v", "s"], "fallback_policy": "KEYS_SUBSET", "fallback_keys_subset": ["v"]},
        {"keys": ["s"], "single_host_per_subset": true},
        {"keys": ["l"]},
        {"keys": ["n"]},
        {"keys": ["z"], "fallback_policy": "ANY_ENDPOINT"},
    ])
}

const EXPECTED: [(&str, &str); 12] = [
    ("/none", "-"),
    ("/v1", "ab"),
    ("/v2", "cd"),
    ("/v3", "-"),
    ("/number", "e"),
    ("/item", "d"),
    ("/both", "b"),
    ("/neither", "ab"),
    ("/s", "a"),
    ("/unknown", "abcde"),
    ("/empty", "-"),
    ("/weighted", "b"),
];

#[test]
fn labels_lead_to_the_hosts_that_have_them() {
    let hosts = Hosts::http();
    let proxy = start(&hosts, json!({"lb_subset_config": {"list_as_any": true, "subset_selectors": selectors()}}));
    check(&proxy, &EXPECTED);
    let stats = proxy.stats();
    // At once: counters of what is chosen came up to a second late.
    assert_eq!(stats.value("cluster.origin.lb_subsets_selected"), 80);
    assert_eq!(stats.value("cluster.origin.lb_subsets_fallback"), 0);
    assert_eq!(stats.value("cluster.origin.lb_subsets_single_host_per_subset_duplicate"), 1);
    // Ten subsets, for each thread that has any.
    let active = stats.value("cluster.origin.lb_subsets_active");
    assert!(active > 0 && active.is_multiple_of(10), "{active}");
}

#[test]
fn the_policy_says_the_same_as_the_field() {
    let hosts = Hosts::http();
    let policy = |name: &str, fields: Value| {
        let name = format!("load_balancing_policies.{name}");
        json!({"policies": [{"typed_extension_config": extension("x", &name, fields)}]})
    };
    let inner = policy("random.v3.Random", json!({}));
    let subset = json!({"list_as_any": true, "subset_selectors": selectors(), "subset_lb_policy": inner});
    let proxy = start(&hosts, json!({"load_balancing_policy": policy("subset.v3.Subset", subset)}));
    for (path, letters) in EXPECTED {
        let found = reached(&proxy, path);
        assert!(!found.is_empty() && found.chars().all(|letter| letters.contains(letter)), "{path}: {found}");
    }
}

#[test]
fn without_a_subset_the_default_one_serves() {
    let hosts = Hosts::http();
    let config = json!({
        "fallback_policy": "DEFAULT_SUBSET",
        "default_subset": {"v": "1"},
        "subset_selectors": [
            {"keys": ["v"]},
            {"keys": ["v", "s"], "fallback_policy": "DEFAULT_SUBSET"},
            {"keys": ["z"], "fallback_policy": "NO_FALLBACK"},
        ],
    });
    let proxy = start(&hosts, json!({"lb_subset_config": config}));
    let expected =
        [("/none", "ab"), ("/v2", "cd"), ("/v3", "ab"), ("/neither", "ab"), ("/empty", "ab"), ("/unknown", "-")];
    check(&proxy, &expected);
    // A fallback of a selector's own is not counted.
    proxy.wait_stat("cluster.origin.lb_subsets_fallback", 30);
}

#[test]
fn when_nobody_is_left_any_host_may_be() {
    let hosts = Hosts::http();
    for (fallback, letters) in [("DEFAULT_SUBSET", "abcde"), ("NO_FALLBACK", "-")] {
        let config = json!({
            "fallback_policy": fallback,
            "default_subset": {"v": "9"},
            "panic_mode_any": true,
            "subset_selectors": [{"keys": ["v"]}],
        });
        let proxy = start(&hosts, json!({"lb_subset_config": config}));
        check(&proxy, &[("/v1", "ab"), ("/v3", letters), ("/none", letters)]);
        let panics = if letters == "-" { 0 } else { 20 };
        proxy.wait_stat("cluster.origin.lb_subsets_fallback_panic", panics);
    }
}

#[test]
fn what_a_filter_notes_takes_the_place_of_what_the_route_wants() {
    let hosts = Hosts::http();
    let note = json!({"metadata": [{"metadata_namespace": "envoy.lb", "value": {"v": "2"}}]});
    let filters =
        json!([extension("envoy.filters.http.set_metadata", "filters.http.set_metadata.v3.Config", note), router()]);
    let fields = json!({"lb_subset_config": {"subset_selectors": [{"keys": ["v"]}, {"keys": ["s", "v"]}]}});
    let config = Config::routes(routes()).overlay_filter("http", json!({"http_filters": filters})).cluster_with(
        "origin",
        &[],
        cluster(&hosts, fields),
    );
    let proxy = Proxy::start(&config);
    check(&proxy, &[("/none", "cd"), ("/v1", "cd"), ("/s", "c"), ("/both", "-")]);
}

#[test]
fn connections_ask_for_labels_too() {
    let hosts = Hosts::tcp();
    let own = json!({"name": "origin", "weight": 1, "metadata_match": labels(json!({"v": "2"}))});
    let fields = json!({"lb_subset_config": {"subset_selectors": [{"keys": ["v"]}, {"keys": ["v", "s"]}]}});
    let config = Config::new()
        .tcp("one", json!({"cluster": "origin", "metadata_match": labels(json!({"v": "1"}))}))
        .tcp("merged", {
            let wanted = labels(json!({"v": "1", "s": "x"}));
            json!({"weighted_clusters": {"clusters": [own]}, "metadata_match": wanted})
        })
        .cluster_with("origin", &[], cluster(&hosts, fields));
    let proxy = Proxy::start(&config);
    for (listener, letters) in [("one", "ab"), ("merged", "c")] {
        let greeting = |_| {
            let greeting = RawClient::connect(proxy.address(listener)).read_exact(1);
            String::from_utf8(greeting.expect("a greeting")).expect("a letter")
        };
        let found: BTreeSet<String> = (0..8).map(greeting).collect();
        assert_eq!(found.into_iter().collect::<String>(), letters);
    }
}
