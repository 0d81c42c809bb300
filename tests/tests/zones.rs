//! Hosts of the proxy's own zone first: how many requests stay, where the others go, and when zones do not count.
//!
//! What is expected is what Envoy's rules say; the tests pass against Envoy, too.

use std::collections::BTreeMap;

use postrider_tests::kit::config::{self, Config};
use postrider_tests::kit::proxy::Launch;
use postrider_tests::kit::{Origin, Proxy, wait_until};
use serde_json::{Value, json};

const REQUESTS: usize = 2000;

/// Answers everything with its zone.
fn origin(zone: &str) -> Origin {
    Origin::fixed(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{zone}", zone.len()))
}

/// Hosts by zone.
struct Hosts(Vec<(String, Vec<Origin>)>);

impl Hosts {
    fn start(zones: &[(&str, usize)]) -> Hosts {
        let of = |(zone, count): &(&str, usize)| ((*zone).to_owned(), (0..*count).map(|_| origin(zone)).collect());
        Hosts(zones.iter().map(of).collect())
    }

    /// `fields` overlays the host of a zone with this index.
    fn localities(&self, fields: impl Fn(&str, usize) -> Value) -> Value {
        let endpoint = |zone: &str, (index, origin): (usize, &Origin)| {
            let address = config::socket_address(&origin.address.ip().to_string(), origin.address.port());
            let mut endpoint = json!({"endpoint": {"address": address}});
            config::overlay(&mut endpoint, fields(zone, index));
            endpoint
        };
        let of = |(zone, origins): &(String, Vec<Origin>)| {
            let hosts: Vec<Value> = origins.iter().enumerate().map(|entry| endpoint(zone, entry)).collect();
            json!({"locality": {"zone": zone}, "lb_endpoints": hosts})
        };
        self.0.iter().map(of).collect()
    }
}

/// Proxies by zone; nobody talks to them.
fn peers(zones: &[(&str, usize)]) -> Value {
    let host = |port: usize| json!({"endpoint": {"address": config::socket_address("127.0.0.1", port as u16)}});
    let of = |(index, (zone, count)): (usize, &(&str, usize))| {
        let hosts: Vec<Value> = (1..=*count).map(|port| host(100 * (index + 1) + port)).collect();
        json!({"locality": {"zone": zone}, "lb_endpoints": hosts})
    };
    zones.iter().enumerate().map(of).collect()
}

/// The proxy stands in the zone `a`.
fn config(localities: Value, peers: Value, cluster: Value) -> Config {
    config_with(json!({}), localities, peers, cluster)
}

fn config_with(route: Value, localities: Value, peers: Value, cluster: Value) -> Config {
    let mut action = json!({"cluster": "origin"});
    config::overlay(&mut action, route);
    let assignment = |localities: Value| json!({"load_assignment": {"cluster_name": "x", "endpoints": localities}});
    let mut fields = assignment(localities);
    config::overlay(&mut fields, cluster);
    Config::routes(json!([{"match": {"prefix": "/"}, "route": action}]))
        .cluster_with("origin", &[], fields)
        .cluster_with("peers", &[], assignment(peers))
        .overlay(json!({
            "node": {"id": "me", "cluster": "peers", "locality": {"zone": "a"}},
            "cluster_manager": {"local_cluster_name": "peers"},
        }))
}

/// How many requests each zone got; `-` is nobody.
fn spread(proxy: &Proxy) -> BTreeMap<String, usize> {
    let mut client = proxy.client();
    let mut counts = BTreeMap::new();
    for _ in 0..REQUESTS {
        let response = client.exchange("GET / HTTP/1.1\r\nhost: x\r\n\r\n");
        let zone = if response.status == 503 { "-".to_owned() } else { response.text().to_owned() };
        *counts.entry(zone).or_default() += 1;
    }
    counts
}

/// Each zone gets its share of the requests, within what chance does to one attempt in a hundred thousand.
#[track_caller]
fn check(counts: &BTreeMap<String, usize>, shares: &[(&str, f64)]) {
    let all = REQUESTS as f64;
    assert!(counts.keys().all(|zone| shares.iter().any(|(known, _)| known == zone)), "{counts:?}");
    for (zone, share) in shares {
        let got = counts.get(*zone).copied().unwrap_or_default() as f64;
        let slack = 4.5 * (all * share * (1.0 - share)).sqrt();
        assert!((got - all * share).abs() <= slack, "{zone}: {counts:?}, {share} expected");
    }
}

fn stat(name: &str) -> String {
    format!("cluster.origin.lb_{name}")
}

/// What all requests together were counted as.
#[track_caller]
fn check_counts(proxy: &Proxy, counted: &[(&str, usize)]) {
    // At once: they came up to a second late.
    let stats = proxy.stats();
    for (name, count) in counted {
        assert_eq!(stats.value(&stat(name)), *count as u64, "{name}");
    }
}

#[test]
fn a_zone_with_hosts_enough_keeps_everything() {
    let hosts = Hosts::start(&[("a", 3), ("b", 3)]);
    let proxy = Proxy::start(&config(hosts.localities(|_, _| json!({})), peers(&[("a", 1), ("b", 1)]), json!({})));
    check(&spread(&proxy), &[("a", 1.0), ("b", 0.0)]);
    check_counts(
        &proxy,
        &[("zone_routing_all_directly", REQUESTS), ("zone_routing_sampled", 0), ("zone_routing_cross_zone", 0)],
    );
    assert!(proxy.stats().value(&stat("recalculate_zone_structures")) > 0);
}

#[test]
fn what_is_too_much_goes_to_zones_with_hosts_to_spare() {
    // 40, 40 and 20 % of the peers; 25, 50 and 25 % of the hosts.
    let hosts = Hosts::start(&[("a", 2), ("b", 4), ("c", 2)]);
    let peers = peers(&[("a", 2), ("b", 2), ("c", 1)]);
    for policy in ["ROUND_ROBIN", "LEAST_REQUEST", "RANDOM"] {
        let cluster = json!({"lb_policy": policy});
        let proxy = Proxy::start(&config(hosts.localities(|_, _| json!({})), peers.clone(), cluster));
        let counts = spread(&proxy);
        check(&counts, &[("a", 0.625), ("b", 0.25), ("c", 0.125)]);
        let stayed = counts["a"];
        check_counts(
            &proxy,
            &[
                ("zone_routing_sampled", stayed),
                ("zone_routing_cross_zone", REQUESTS - stayed),
                ("zone_routing_all_directly", 0),
                ("zone_no_capacity_left", 0),
            ],
        );
    }
}

#[test]
fn a_proxy_without_hosts_in_its_zone_shares_those_of_others() {
    let hosts = Hosts::start(&[("b", 2), ("c", 6)]);
    let peers = peers(&[("a", 2), ("b", 1), ("c", 1)]);
    let proxy = Proxy::start(&config(hosts.localities(|_, _| json!({})), peers, json!({})));
    // Nothing is to spare in b; everything is in c.
    check(&spread(&proxy), &[("b", 0.0), ("c", 1.0)]);
    check_counts(&proxy, &[("zone_routing_cross_zone", REQUESTS)]);
}

#[test]
fn only_healthy_hosts_count() {
    let hosts = Hosts::start(&[("a", 3), ("b", 3), ("c", 3)]);
    let sick = |zone: &str, index| match (zone, index) {
        ("a", 1..) => json!({"health_status": "UNHEALTHY"}),
        _ => json!({}),
    };
    let peers = peers(&[("a", 1), ("b", 1), ("c", 1)]);
    // 1428 of 3333 stay; the rest in equal parts.
    let stays = 1428.0 / 3333.0;
    let proxy = Proxy::start(&config(hosts.localities(sick), peers, json!({})));
    check(&spread(&proxy), &[("a", stays), ("b", (1.0 - stays) / 2.0), ("c", (1.0 - stays) / 2.0)]);
}

/// Hosts by zone.
type Zones<'a> = &'a [(&'a str, usize)];

#[test]
fn small_clusters_and_single_zones_are_left_alone() {
    let even = [("a", 1), ("b", 1)];
    let zone_aware = |fields: Value| json!({"common_lb_config": {"zone_aware_lb_config": fields}});
    let cases: [(Zones<'_>, Zones<'_>, Value, f64, &str); 7] = [
        // Six hosts are needed, if nothing else is said.
        (&[("a", 2), ("b", 3)], &even, json!({}), 0.4, "zone_cluster_too_small"),
        (&[("a", 2), ("b", 2)], &even, zone_aware(json!({"min_cluster_size": 4})), 1.0, ""),
        (&[("a", 2), ("b", 2)], &even, zone_aware(json!({"min_cluster_size": 5})), 0.5, "zone_cluster_too_small"),
        (&[("a", 4), ("b", 4)], &even, zone_aware(json!({"routing_enabled": {"value": 0}})), 0.5, ""),
        (&[("a", 4), ("b", 4)], &even, zone_aware(json!({"routing_enabled": {"value": 60}})), 0.8, ""),
        // All peers stand in one zone; none stands in ours.
        (&[("a", 4), ("b", 4)], &[("a", 2)], json!({}), 0.5, ""),
        (&[("a", 4), ("b", 4)], &[("y", 1), ("z", 1)], json!({}), 0.5, "local_cluster_not_ok"),
    ];
    for (hosts, peers_of, cluster, stays, counted) in cases {
        let origins = Hosts::start(hosts);
        let proxy = Proxy::start(&config(origins.localities(|_, _| json!({})), peers(peers_of), cluster.clone()));
        let counts = spread(&proxy);
        let share = if counts.len() == 1 { 1.0 } else { stays };
        assert_eq!(share, stays, "{hosts:?} {peers_of:?} {cluster} {counts:?}");
        check(&counts, &[("a", stays), ("b", 1.0 - stays)]);
        // Counts are told every second.
        wait_until("counts", || proxy.stats().value(&stat("recalculate_zone_structures")) > 0);
        for name in ["zone_cluster_too_small", "local_cluster_not_ok"] {
            if name == counted {
                assert!(proxy.stats().value(&stat(name)) > 0, "{hosts:?} {peers_of:?}");
            } else {
                assert_eq!(proxy.stats().value(&stat(name)), 0, "{hosts:?} {peers_of:?}");
            }
        }
    }
}

/// The policy by its type, which may say more than `common_lb_config`.
fn typed(zone_aware: Value) -> Value {
    json!({"load_balancing_policy": {"policies": [{"typed_extension_config": {"name": "x", "typed_config": {
        "@type": "type.googleapis.com/envoy.extensions.load_balancing_policies.round_robin.v3.RoundRobin",
        "locality_lb_config": {"zone_aware_lb_config": zone_aware},
    }}}]}})
}

#[test]
fn the_own_zone_may_take_everything_by_force() {
    let hosts = Hosts::start(&[("a", 2), ("b", 6)]);
    let start = |peers_of: &[(&str, usize)], zone_aware: Value| {
        Proxy::start(&config(hosts.localities(|_, _| json!({})), peers(peers_of), typed(zone_aware)))
    };
    let even = [("a", 1), ("b", 1)];
    let usual = [("a", 0.5), ("b", 0.5)];
    let forced = [("a", 1.0), ("b", 0.0)];
    check(&spread(&start(&even, json!({}))), &usual);
    check(&spread(&start(&even, json!({"force_local_zone": {}}))), &forced);
    check(&spread(&start(&even, json!({"force_local_zone": {"min_size": 2}}))), &forced);
    check(&spread(&start(&even, json!({"force_local_zone": {"min_size": 3}}))), &usual);
    // Then it does not matter that all peers stand in one zone.
    check(&spread(&start(&[("a", 1)], json!({"force_local_zone": {}}))), &forced);
}

#[test]
fn weights_may_say_how_large_a_zone_is() {
    let hosts = Hosts::start(&[("a", 3), ("b", 3)]);
    let weights = |zone: &str, _| json!({"load_balancing_weight": if zone == "a" { 1 } else { 3 }});
    let peers = peers(&[("a", 1), ("b", 1)]);
    let start = |zone_aware: Value| Proxy::start(&config(hosts.localities(weights), peers.clone(), typed(zone_aware)));
    check(&spread(&start(json!({}))), &[("a", 1.0), ("b", 0.0)]);
    let by_weight = start(json!({"locality_basis": "HEALTHY_HOSTS_WEIGHT"}));
    check(&spread(&by_weight), &[("a", 0.5), ("b", 0.5)]);
}

#[test]
fn peers_that_are_not_well_say_nothing() {
    let hosts = Hosts::start(&[("a", 3), ("b", 3)]);
    let mut peers = peers(&[("a", 1), ("b", 2)]);
    for host in peers[1]["lb_endpoints"].as_array_mut().expect("a list") {
        host["health_status"] = json!("UNHEALTHY");
    }
    let start = |cluster| Proxy::start(&config(hosts.localities(|_, _| json!({})), peers.clone(), cluster));
    let proxy = start(json!({}));
    check(&spread(&proxy), &[("a", 0.5), ("b", 0.5)]);
    check_counts(&proxy, &[("local_cluster_not_ok", REQUESTS)]);
    let proxy = start(json!({"common_lb_config": {"zone_aware_lb_config": {"fail_traffic_on_panic": true}}}));
    check(&spread(&proxy), &[("-", 1.0)]);
}

#[test]
fn the_zone_may_come_from_the_command_line() {
    let hosts = Hosts::start(&[("a", 3), ("b", 3)]);
    let config = config(hosts.localities(|_, _| json!({})), peers(&[("a", 1), ("b", 1)]), json!({}));
    let launch = Launch::default().with_arguments(&["--service-zone", "b"]);
    check(&spread(&Proxy::start_with(&config, launch)), &[("a", 0.0), ("b", 1.0)]);
}

#[test]
fn only_the_first_priority_knows_zones() {
    let hosts = Hosts::start(&[("a", 3), ("b", 3)]);
    let mut localities = hosts.localities(|_, _| json!({}));
    for locality in localities.as_array_mut().expect("a list") {
        locality["priority"] = json!(1);
    }
    let first = Hosts::start(&[("a", 1)]);
    let mut sick = first.localities(|_, _| json!({"health_status": "UNHEALTHY"}));
    localities.as_array_mut().expect("a list").append(sick.as_array_mut().expect("a list"));
    let proxy = Proxy::start(&config(localities, peers(&[("a", 1), ("b", 1)]), json!({})));
    check(&spread(&proxy), &[("a", 0.5), ("b", 0.5)]);
}

#[test]
fn subsets_have_zones_of_their_own() {
    let hosts = Hosts::start(&[("a", 2), ("b", 4)]);
    // The subset has one host of two in each zone, and is large enough by itself.
    let labels = |zone: &str, index: usize| {
        let version = if zone == "a" || index < 2 { "1" } else { "2" };
        json!({"metadata": {"filter_metadata": {"envoy.lb": {"v": version}}}})
    };
    let cluster = json!({
        "lb_subset_config": {"fallback_policy": "ANY_ENDPOINT", "subset_selectors": [{"keys": ["v"]}]},
        "common_lb_config": {"zone_aware_lb_config": {"min_cluster_size": 4}},
    });
    let wanted = json!({"metadata_match": {"filter_metadata": {"envoy.lb": {"v": "1"}}}});
    let config = config_with(wanted, hosts.localities(labels), peers(&[("a", 1), ("b", 1)]), cluster);
    let proxy = Proxy::start(&config);
    check(&spread(&proxy), &[("a", 1.0), ("b", 0.0)]);
}

#[test]
fn peers_that_come_and_go_with_a_reload_change_who_goes_where() {
    if !postrider_tests::postrider_only() {
        return;
    }
    let hosts = Hosts::start(&[("a", 2), ("b", 4)]);
    let of = |peers_of: &[(&str, usize)]| config(hosts.localities(|_, _| json!({})), peers(peers_of), json!({}));
    let mut proxy = Proxy::start(&of(&[("a", 1), ("b", 1)]));
    let stays = 3333.0 / 5000.0;
    check(&spread(&proxy), &[("a", stays), ("b", 1.0 - stays)]);
    // Now the hosts of a suffice for the proxies there.
    proxy.reload(of(&[("a", 1), ("b", 3)]).to_yaml());
    check(&spread(&proxy), &[("a", 1.0), ("b", 0.0)]);
    proxy.reload(of(&[("a", 1)]).to_yaml());
    check(&spread(&proxy), &[("a", 1.0 / 3.0), ("b", 2.0 / 3.0)]);
}
