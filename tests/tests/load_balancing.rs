//! Which host a request goes to: policies, weights, localities, and what is hashed.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use postrider_tests::kit::config::{self, Config};
use postrider_tests::kit::proxy::{self, Launch};
use postrider_tests::kit::{Gate, Origin, Proxy, RawClient, net, wait_until};
use serde_json::{Value, json};

/// What real Envoy does with ten thousand keys, a line a cluster; see the test of the upstream crate.
const ENVOYS_HOSTS: &str = include_str!("../../crates/upstream/tests/envoy-hosts.txt");
const WEIGHTS: [u32; 19] = [1, 1, 1, 2, 3, 5, 1, 1, 10, 1, 1, 1, 4, 1, 1, 7, 1, 1, 1];

/// Answers everything with its name, which is one letter.
fn named(letter: u8) -> Origin {
    Origin::fixed(format!("HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n{}", char::from(letter)))
}

fn origins(count: usize) -> Vec<Origin> {
    (b'a'..).take(count).map(named).collect()
}

/// An endpoint for each origin, overlaid with what `fields` says of it.
fn endpoints(origins: &[Origin], fields: impl Fn(usize) -> Value) -> Value {
    let endpoint = |(index, origin): (usize, &Origin)| {
        let address = config::socket_address(&origin.address.ip().to_string(), origin.address.port());
        let mut endpoint = json!({"endpoint": {"address": address}});
        config::overlay(&mut endpoint, fields(index));
        endpoint
    };
    origins.iter().enumerate().map(endpoint).collect()
}

/// Everything goes to one cluster.
fn config(route: Value, localities: Value, cluster: Value) -> Config {
    let mut action = json!({"cluster": "origin"});
    config::overlay(&mut action, route);
    let mut fields = json!({"load_assignment": {"cluster_name": "origin", "endpoints": localities}});
    config::overlay(&mut fields, cluster);
    Config::routes(json!([{"match": {"prefix": "/"}, "route": action}])).cluster_with("origin", &[], fields)
}

/// The letter of the host that answers.
fn ask(client: &mut RawClient, path: &str, lines: &str) -> String {
    let response = client.exchange(format!("GET {path} HTTP/1.1\r\nhost: x\r\n{lines}\r\n"));
    assert_eq!(response.status, 200);
    response.text().to_owned()
}

fn counts(proxy: &Proxy, requests: usize) -> BTreeMap<String, usize> {
    let mut client = proxy.client();
    let mut counts = BTreeMap::new();
    for _ in 0..requests {
        *counts.entry(ask(&mut client, "/", "")).or_default() += 1;
    }
    counts
}

fn header_policy(name: &str) -> Value {
    json!({"hash_policy": [{"header": {"header_name": name}}]})
}

#[test]
fn keys_find_the_hosts_that_envoy_sends_them_to() {
    let origins = origins(19);
    for (line, policy, weighted) in [("ring_keys ", "RING_HASH", false), ("maglev_keys ", "MAGLEV", true)] {
        let of_host = |index: usize| {
            let weight = if weighted { WEIGHTS[index] } else { 1 };
            let metadata = json!({"filter_metadata": {"envoy.lb": {"hash_key": format!("key-{index}")}}});
            json!({"load_balancing_weight": weight, "metadata": metadata})
        };
        let localities = json!([{"lb_endpoints": endpoints(&origins, of_host)}]);
        let proxy = Proxy::start(&config(header_policy("x-key"), localities, json!({"lb_policy": policy})));
        let mut client = proxy.client();
        let hosts = ENVOYS_HOSTS.lines().find_map(|known| known.strip_prefix(line)).expect("the line");
        for (key, letter) in hosts.chars().enumerate().take(2000) {
            let found = ask(&mut client, "/", &format!("x-key: key-{key}\r\n"));
            assert_eq!(found, letter.to_string(), "{line}key-{key}");
        }
    }
}

#[test]
fn weights_decide_who_gets_how_much() {
    let origins = origins(3);
    let localities =
        json!([{"lb_endpoints": endpoints(&origins, |index| json!({"load_balancing_weight": index + 1}))}]);
    for policy in ["ROUND_ROBIN", "LEAST_REQUEST"] {
        let proxy = Proxy::start(&config(json!({}), localities.clone(), json!({"lb_policy": policy})));
        let counts = counts(&proxy, 120);
        for (letter, expected) in [("a", 20usize), ("b", 40), ("c", 60)] {
            assert!(counts[letter].abs_diff(expected) <= 3, "{policy} {counts:?}");
        }
    }
    // As in Envoy, chance knows no weights.
    let proxy = Proxy::start(&config(json!({}), localities, json!({"lb_policy": "RANDOM"})));
    let counts = counts(&proxy, 600);
    assert!(counts.values().all(|count| (130..270).contains(count)), "{counts:?}");
}

#[test]
fn localities_get_their_share_and_hand_over_what_they_cannot_take() {
    let origins = origins(5);
    let near = endpoints(&origins[..1], |_| json!({}));
    let far = endpoints(&origins[1..3], |_| json!({}));
    let sick =
        endpoints(&origins[3..], |index| if index == 0 { json!({}) } else { json!({"health_status": "UNHEALTHY"}) });
    let localities = json!([
        {"locality": {"zone": "near"}, "load_balancing_weight": 6, "lb_endpoints": near},
        {"locality": {"zone": "far"}, "load_balancing_weight": 2, "lb_endpoints": far},
        {"locality": {"zone": "sick"}, "load_balancing_weight": 10, "lb_endpoints": sick},
    ]);
    const TYPES: &str = "type.googleapis.com/envoy.extensions.load_balancing_policies";
    let policy =
        |config: Value| json!({"policies": [{"typed_extension_config": {"name": "x", "typed_config": config}}]});
    let round_robin = json!({
        "@type": format!("{TYPES}.round_robin.v3.RoundRobin"),
        "locality_lb_config": {"locality_weighted_lb_config": {}},
    });
    let inner = policy(json!({"@type": format!("{TYPES}.round_robin.v3.RoundRobin")}));
    let wrapped = json!({"@type": format!("{TYPES}.wrr_locality.v3.WrrLocality"), "endpoint_picking_policy": inner});
    let mut clusters = vec![
        json!({"common_lb_config": {"locality_weighted_lb_config": {}}}),
        json!({"load_balancing_policy": policy(round_robin)}),
    ];
    // Envoy wants a policy inside that follows what hosts report.
    if proxy::flavour() == proxy::Flavour::Postrider {
        clusters.push(json!({"load_balancing_policy": policy(wrapped)}));
    }
    for cluster in clusters {
        let proxy = Proxy::start(&config(json!({}), localities.clone(), cluster));
        // One of the last two is well, which takes 70 % of their weight of 10.
        let counts = counts(&proxy, 150);
        assert!(!counts.contains_key("e"), "{counts:?}");
        for (letter, expected) in [("a", 60usize), ("b", 10), ("c", 10), ("d", 70)] {
            assert!(counts[letter].abs_diff(expected) <= 4, "{counts:?}");
        }
        let clusters = proxy.admin_get("/clusters").text().to_owned();
        let zone = format!("origin::{}::zone::near", origins[0].address);
        assert!(clusters.lines().any(|line| line == zone), "{clusters}");
    }
}

#[test]
fn the_overprovisioning_factor_decides_when_the_next_priority_helps() {
    let origins = origins(3);
    let sick = |index: usize| if index == 0 { json!({"health_status": "UNHEALTHY"}) } else { json!({}) };
    let assignment = json!({"load_assignment": {"policy": {"overprovisioning_factor": 100}, "endpoints": [
        {"lb_endpoints": endpoints(&origins[..2], sick)},
        {"priority": 1, "lb_endpoints": endpoints(&origins[2..], |_| json!({}))},
    ]}});
    let proxy = Proxy::start(&config(json!({}), json!([]), assignment));
    let counts = counts(&proxy, 400);
    assert!(!counts.contains_key("a") && (140..260).contains(&counts["c"]), "{counts:?}");
}

#[test]
fn weights_may_say_how_much_a_priority_can_take() {
    let origins = origins(3);
    let ill = json!({"health_status": "UNHEALTHY"});
    // Three quarters of the weight are well: with the factor of 1.4 that is enough. Of the hosts, it is one of two.
    let first = endpoints(&origins[..2], |index| match index {
        0 => json!({"load_balancing_weight": 3}),
        _ => ill.clone(),
    });
    let localities = json!([
        {"lb_endpoints": first},
        {"priority": 1, "lb_endpoints": endpoints(&origins[2..], |_| json!({}))},
    ]);
    for (by_weight, helps) in [(true, false), (false, true)] {
        let assignment = json!({"load_assignment": {"policy": {"weighted_priority_health": by_weight}}});
        let counts = counts(&Proxy::start(&config(json!({}), localities.clone(), assignment)), 200);
        assert!(!counts.contains_key("b") && counts.contains_key("c") == helps, "{counts:?}");
    }
}

#[test]
fn hosts_that_drain_let_the_others_panic_and_the_next_priority_help() {
    let origins = origins(4);
    let drains = |indexes: &'static [usize]| {
        move |index: usize| match indexes.contains(&index) {
            true => json!({"health_status": "DRAINING"}),
            false => json!({}),
        }
    };
    let of_one = json!([{"lb_endpoints": endpoints(&origins[..3], drains(&[1, 2]))}]);
    let proxy = Proxy::start(&config(json!({}), of_one, json!({})));
    assert_eq!(counts(&proxy, 30), BTreeMap::from([("a".to_owned(), 30)]));
    let stats = proxy.stats();
    assert_eq!(
        ["membership_excluded", "membership_healthy"].map(|name| stats.value(&format!("cluster.origin.{name}"))),
        [2, 1]
    );
    let of_two = json!([
        {"lb_endpoints": endpoints(&origins[..2], drains(&[0]))},
        {"priority": 1, "lb_endpoints": endpoints(&origins[2..], drains(&[]))},
    ]);
    let proxy = Proxy::start(&config(json!({}), of_two, json!({})));
    assert_eq!(counts(&proxy, 30), BTreeMap::from([("b".to_owned(), 30)]));
    assert_eq!(proxy.stats().value("cluster.origin.membership_change"), 2, "one for each priority");
}

#[test]
fn a_panic_threshold_below_one_percent_is_none() {
    let origins = origins(1);
    let sick = json!([{"lb_endpoints": endpoints(&origins, |_| json!({"health_status": "UNHEALTHY"}))}]);
    for (threshold, status) in [(0.4, 503), (0.9, 503), (1.0, 200)] {
        let cluster = json!({"common_lb_config": {"healthy_panic_threshold": {"value": threshold}}});
        let proxy = Proxy::start(&config(json!({}), sick.clone(), cluster));
        assert_eq!(proxy.get("/").status, status, "{threshold}");
    }
}

#[test]
fn a_panic_may_fail_instead_of_asking_sick_hosts() {
    let origins = origins(2);
    let all_sick = json!([{"lb_endpoints": endpoints(&origins, |_| json!({"health_status": "UNHEALTHY"}))}]);
    let cluster = json!({"common_lb_config": {"zone_aware_lb_config": {"fail_traffic_on_panic": true}}});
    let proxy = Proxy::start(&config(json!({}), all_sick.clone(), cluster));
    assert_eq!(proxy.get("/").status, 503);
    let proxy = Proxy::start(&config(json!({}), all_sick, json!({})));
    assert_eq!(proxy.get("/").status, 200);
}

#[test]
fn what_is_hashed_leads_to_the_same_host_and_nothing_else_counts() {
    let origins = origins(16);
    let localities = json!([{"lb_endpoints": endpoints(&origins, |_| json!({}))}]);
    let ring = json!({"lb_policy": "RING_HASH"});
    let rewrite = json!({"pattern": {"regex": "^([a-z]+)-.*$"}, "substitution": "\\1"});
    let route = json!({"hash_policy": [
        {"header": {"header_name": "x-user", "regex_rewrite": rewrite}, "terminal": true},
        {"query_parameter": {"name": "user"}, "terminal": true},
        {"connection_properties": {"source_ip": true}},
    ]});
    let proxy = Proxy::start(&config(route, localities, ring));
    let mut client = proxy.client();
    let mut ask = |path: &str, lines: &str| ask(&mut client, path, lines);
    let users: Vec<String> = (b'a'..=b'z').map(|letter| char::from(letter).to_string().repeat(4)).collect();
    let mut hosts = std::collections::BTreeSet::new();
    for user in &users {
        let host = ask("/", &format!("x-user: {user}-1\r\n"));
        assert_eq!(ask("/?user=other", &format!("x-user: {user}-2\r\n")), host, "only what the pattern keeps counts");
        assert_eq!(ask(&format!("/?x=1&user={user}"), ""), host, "the same text, and the same hash");
        hosts.insert(host);
    }
    assert!(hosts.len() > 4, "{hosts:?}");
    let by_address = ask("/", "");
    assert!((0..5).all(|_| ask("/", "") == by_address));
}

#[test]
fn a_cookie_is_made_for_who_has_none_and_leads_back() {
    let origins = origins(16);
    let localities = json!([{"lb_endpoints": endpoints(&origins, |_| json!({}))}]);
    let cookie = json!({"name": "route", "ttl": "60s", "path": "/p",
        "attributes": [{"name": "SameSite", "value": "Strict"}, {"name": "Secure"}]});
    let route = json!({"hash_policy": [{"cookie": cookie}]});
    let proxy = Proxy::start(&config(route.clone(), localities.clone(), json!({"lb_policy": "MAGLEV"})));
    let mut client = proxy.client();
    let first = client.exchange("GET / HTTP/1.1\r\nhost: x\r\n\r\n");
    let set = first.header("set-cookie").to_owned();
    let value = set.strip_prefix("route=\"").and_then(|rest| rest.split_once('"')).expect("a cookie");
    assert_eq!(value.0.len(), 16);
    assert_eq!(value.1, "; Max-Age=60; Path=/p; SameSite=Strict; Secure; HttpOnly");
    let mut other = proxy.client();
    for _ in 0..3 {
        let again = other.exchange(format!("GET / HTTP/1.1\r\nhost: x\r\ncookie: a=1; route={}\r\n\r\n", value.0));
        assert_eq!((again.text(), again.header("set-cookie")), (first.text(), ""));
    }
    // Where no hash is wanted, none is made.
    let proxy = Proxy::start(&config(route, localities, json!({})));
    assert_eq!(proxy.get("/").header("set-cookie"), "");
}

#[test]
fn connections_of_a_client_go_to_one_host() {
    let origins: Vec<Origin> = (0..8).map(|index| Origin::tcp_echo(&index.to_string())).collect();
    let endpoints: Vec<SocketAddr> = origins.iter().map(|origin| origin.address).collect();
    let tcp = json!({"stat_prefix": "t", "cluster": "origin", "hash_policy": [{"source_ip": {}}]});
    let config = Config::new().tcp("tcp", tcp).cluster_with("origin", &endpoints, json!({"lb_policy": "MAGLEV"}));
    let proxy = Proxy::start_with(&config, Launch { concurrency: 2, ..Launch::default() });
    let mut hosts = std::collections::BTreeSet::new();
    for last in 2..10 {
        let greeting = || {
            let stream = net::connect_from([127, 0, 0, last].into(), proxy.address("tcp"));
            RawClient::from_stream(stream).read_exact(1).expect("a greeting")
        };
        let host = greeting();
        assert!((0..4).all(|_| greeting() == host));
        hosts.insert(host);
    }
    assert!(hosts.len() > 1, "{hosts:?}");
}

#[test]
fn connections_go_where_what_was_noted_of_them_leads() {
    let origins: Vec<Origin> = (0..8).map(|index| Origin::tcp_echo(&index.to_string())).collect();
    let endpoints: Vec<SocketAddr> = origins.iter().map(|origin| origin.address).collect();
    // Texts that can be hashed: who the client is, and the same for everybody.
    let noting = |key: &str, format: &str| {
        json!({
            "object_key": key, "factory_key": "envoy.hashable_string",
            "format_string": {"text_format_source": {"inline_string": format}},
        })
    };
    let state = config::extension(
        "envoy.filters.network.set_filter_state",
        "filters.network.set_filter_state.v3.Config",
        json!({"on_new_connection": [
            noting("client", "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%"), noting("everybody", "same"),
        ]}),
    );
    let chain = |key: &str| {
        let tcp = json!({"stat_prefix": key, "cluster": "origin", "hash_policy": [{"filter_state": {"key": key}}]});
        json!({"filter_chains": [{"filters": [state, config::tcp_filter(tcp)]}]})
    };
    let config = Config::new()
        .listener("client", chain("client"))
        .listener("everybody", chain("everybody"))
        .cluster_with("origin", &endpoints, json!({"lb_policy": "MAGLEV"}));
    let proxy = Proxy::start_with(&config, Launch { concurrency: 2, ..Launch::default() });
    let hosts = |listener: &str| -> Vec<Vec<u8>> {
        let greeting = |last| {
            let stream = net::connect_from([127, 0, 0, last].into(), proxy.address(listener));
            RawClient::from_stream(stream).read_exact(1).expect("a greeting")
        };
        let host_of = |last| {
            let host = greeting(last);
            assert!((0..3).all(|_| greeting(last) == host), "a client stays with its host");
            host
        };
        (2..10).map(host_of).collect::<std::collections::BTreeSet<_>>().into_iter().collect()
    };
    assert!(hosts("client").len() > 1);
    assert_eq!(hosts("everybody").len(), 1);
}

/// Endpoints that nobody connects to, each with its weight.
fn weighed(priority: u32, endpoints: &[(u16, u32)]) -> Value {
    let endpoint = |(port, weight): &(u16, u32)| {
        json!({
            "endpoint": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": port}}},
            "load_balancing_weight": weight,
            "metadata": {"filter_metadata": {"envoy.lb": {"v": "a"}}},
        })
    };
    json!({"priority": priority, "lb_endpoints": endpoints.iter().map(endpoint).collect::<Vec<_>>()})
}

#[test]
fn tables_tell_how_large_they_are_as_envoys() {
    let three = || vec![weighed(0, &[(7001, 1), (7002, 2), (7003, 5)])];
    let two_priorities = || vec![weighed(0, &[(7001, 1), (7002, 1)]), weighed(1, &[(7003, 3), (7005, 1), (7004, 1)])];
    let mut with_unhealthy = three();
    with_unhealthy[0]["lb_endpoints"][0]["health_status"] = json!("UNHEALTHY");
    let mut zones = vec![weighed(0, &[(7001, 1), (7002, 1)]), weighed(0, &[(7003, 3), (7005, 1)])];
    for (at, zone, weight) in [(0, "a", 1), (1, "b", 3)] {
        zones[at]["locality"] = json!({"zone": zone});
        zones[at]["load_balancing_weight"] = json!(weight);
    }
    let maglev = |size: u32| json!({"lb_policy": "MAGLEV", "maglev_lb_config": {"table_size": size}});
    let ring = |least: u32, most: u32| {
        let sizes = json!({"minimum_ring_size": least, "maximum_ring_size": most});
        json!({"lb_policy": "RING_HASH", "ring_hash_lb_config": sizes})
    };
    let subsets = json!({"fallback_policy": "NO_FALLBACK", "subset_selectors": [{"keys": ["v"]}]});
    // Each with the fewest and the most of a host, and the size of a ring.
    let clusters = [
        ("usual", json!({"lb_policy": "MAGLEV"}), three(), vec![8193, 40_959]),
        ("small", maglev(11), three(), vec![2, 6]),
        ("compact", maglev(5003), three(), vec![626, 3126]),
        ("later", maglev(101), two_priorities(), vec![20, 60]),
        ("gap", maglev(101), vec![weighed(0, &[(7001, 1), (7002, 1)]), weighed(1, &[])], vec![50, 51]),
        ("some", maglev(11), with_unhealthy, vec![4, 7]),
        ("nobody", maglev(11), vec![], vec![0, 0]),
        ("ring", json!({"lb_policy": "RING_HASH"}), three(), vec![128, 640, 1024]),
        ("little", ring(10, 20), three(), vec![2, 10, 16]),
        ("capped", ring(3, 5), three(), vec![1, 3, 5]),
        ("last", ring(10, 20), two_priorities(), vec![2, 6, 10]),
        ("none", ring(10, 20), vec![], vec![0, 0, 0]),
        ("zones", maglev(101), zones, vec![13, 56]),
        ("subset", maglev(101), vec![weighed(0, &[(7001, 1), (7002, 2)])], vec![34, 67]),
    ];
    let mut config = Config::routes(json!([])).cluster("turns", &["127.0.0.1:7001".parse().unwrap()]);
    for (name, fields, endpoints, _) in &clusters {
        let mut fields = fields.clone();
        fields["load_assignment"] = json!({"endpoints": endpoints});
        match *name {
            "zones" => fields["common_lb_config"] = json!({"locality_weighted_lb_config": {}}),
            "subset" => fields["lb_subset_config"] = subsets.clone(),
            _ => {}
        }
        config = config.cluster_with(name, &[], fields);
    }
    let proxy = Proxy::start(&config);
    let stats = proxy.stats();
    for (name, _, _, expected) in &clusters {
        let names: &[&str] = match expected.len() {
            2 => &["maglev_lb.min_entries_per_host", "maglev_lb.max_entries_per_host"],
            _ => &["ring_hash_lb.min_hashes_per_host", "ring_hash_lb.max_hashes_per_host", "ring_hash_lb.size"],
        };
        let values: Vec<u64> = names.iter().map(|stat| stats.value(&format!("cluster.{name}.{stat}"))).collect();
        assert_eq!(&values, expected, "{name}");
    }
    let text = proxy.admin_get("/stats?filter=_lb%5C.").text().to_owned();
    assert!(text.contains("cluster.usual.maglev_lb.") && !text.contains("cluster.usual.ring_hash_lb."), "{text}");
    assert!(!text.contains("cluster.turns."), "{text}");
}

/// Hosts of these weights leave `count` requests without an answer until all are there; how many each has then.
fn held(cluster: Value, weights: &[u32], count: usize) -> Vec<usize> {
    let gate = Gate::default();
    let holding = |_: &u32| {
        let gate = gate.clone();
        Origin::start(move |connection| {
            while connection.request().is_some() {
                gate.wait();
                connection.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
            }
        })
    };
    let hosts: Vec<Origin> = weights.iter().map(holding).collect();
    let got = || -> Vec<usize> { hosts.iter().map(|host| host.requests().len()).collect() };
    let of_weight = |index: usize| json!({"load_balancing_weight": weights[index]});
    let localities = json!([{"lb_endpoints": endpoints(&hosts, of_weight)}]);
    // Active requests are counted by worker.
    let launch = Launch { concurrency: 1, ..Launch::default() };
    let proxy = Proxy::start_with(&config(header_policy("x-key"), localities, cluster), launch);
    let mut clients: Vec<RawClient> = Vec::new();
    for there in 1..=count {
        let mut client = proxy.client();
        client.send("GET / HTTP/1.1\r\nhost: x\r\nx-key: one\r\n\r\n");
        clients.push(client);
        wait_until("the request", || got().iter().sum::<usize>() == there);
    }
    let counts = got();
    gate.open();
    clients.iter_mut().for_each(|client| assert_eq!(client.response("GET").unwrap().status, 200));
    counts
}

#[test]
fn a_host_that_has_its_share_hands_keys_on() {
    for policy in ["RING_HASH", "MAGLEV"] {
        let free = json!({"lb_policy": policy});
        assert!(held(free.clone(), &[1, 1], 8).contains(&8), "{policy}: one key has one host");
        let mut bounded = json!({"common_lb_config": {"consistent_hashing_lb_config": {"hash_balance_factor": 100}}});
        config::overlay(&mut bounded, free);
        let mut counts = held(bounded, &[1, 1], 8);
        counts.sort_unstable();
        // The mean is reckoned with the requests that are there already.
        assert_eq!(counts, [3, 5], "{policy}");
    }
}

#[test]
fn the_bias_decides_whether_active_requests_count_beside_weights() {
    let with = |bias: f64| {
        let bias = json!({"default_value": bias, "runtime_key": "none"});
        json!({"lb_policy": "LEAST_REQUEST", "least_request_lb_config": {"active_request_bias": bias}})
    };
    assert_eq!(held(with(0.0), &[4, 1], 10), [8, 2], "by weights alone");
    let strict = held(with(4.0), &[4, 1], 10);
    assert!(strict[1] >= 3, "the more a host has to do, the less it gets: {strict:?}");
}

#[test]
fn among_all_hosts_the_one_with_the_fewest_requests_is_found() {
    let kind = "type.googleapis.com/envoy.extensions.load_balancing_policies.least_request.v3.LeastRequest";
    let least = json!({"name": "least", "typed_config": {"@type": kind, "selection_method": "FULL_SCAN"}});
    let cluster = json!({"load_balancing_policy": {"policies": [{"typed_extension_config": least}]}});
    assert_eq!(held(cluster, &[1; 5], 10), [2; 5]);
}
