//! Names of clusters: who is asked for their addresses, how, and what answers mean. As in Envoy.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use postrider_tests::dns::DnsServer;
use postrider_tests::kit::config::{overlay, socket_address};
use postrider_tests::kit::proxy::Launch;
use postrider_tests::kit::{Config, Origin, Proxy, wait_until};
use serde_json::{Value, json};

const CARES: &str = "type.googleapis.com/envoy.extensions.network.dns_resolver.cares.v3.CaresDnsResolverConfig";
const SYSTEM: &str =
    "type.googleapis.com/envoy.extensions.network.dns_resolver.getaddrinfo.v3.GetAddrInfoDnsResolverConfig";
const CLUSTER: &str = "type.googleapis.com/envoy.extensions.clusters.dns.v3.DnsCluster";

fn at(address: SocketAddr) -> Value {
    socket_address(&address.ip().to_string(), address.port())
}

fn typed(kind: &str, mut fields: Value) -> Value {
    fields["@type"] = json!(kind);
    json!({"name": "resolver", "typed_config": fields})
}

fn cares(servers: &[&DnsServer], mut fields: Value) -> Value {
    fields["resolvers"] = servers.iter().map(|server| at(server.address)).collect();
    typed(CARES, fields)
}

/// A cluster whose only endpoint is a name, on the port of `origin`.
fn of_name(name: &str, origin: SocketAddr, fields: Value) -> Config {
    let mut cluster = json!({
        "name": "origin",
        "type": "STRICT_DNS",
        "dns_lookup_family": "V4_ONLY",
        "dns_refresh_rate": "0.03s",
        "load_assignment": {"cluster_name": "origin", "endpoints": [{"lb_endpoints": [
            {"endpoint": {"address": socket_address(name, origin.port())}},
        ]}]},
    });
    overlay(&mut cluster, fields);
    Config::routes(json!([{"match": {"prefix": "/"}, "route": {"cluster": "origin"}}]))
        .overlay(json!({"static_resources": {"clusters": [cluster]}}))
}

fn hosts(proxy: &Proxy) -> Vec<String> {
    let text = proxy.admin_get("/clusters").text().to_owned();
    let found = text.lines().filter_map(|line| line.strip_prefix("origin::")?.strip_suffix("::health_flags::healthy"));
    let mut hosts: Vec<String> = found.map(|host| host.rsplit_once(':').unwrap().0.to_owned()).collect();
    hosts.sort();
    hosts
}

#[test]
fn a_cluster_asks_the_servers_that_it_names_in_each_of_the_forms() {
    let origin = Origin::echo("a");
    let server = DnsServer::start();
    server.set("site.test", &["127.0.0.1"]);
    let servers = json!([at(server.address)]);
    for fields in [
        json!({"typed_dns_resolver_config": cares(&[&server], json!({}))}),
        json!({"dns_resolution_config": {"resolvers": servers}}),
        json!({"dns_resolvers": servers}),
        json!({"type": null, "dns_lookup_family": null, "dns_refresh_rate": null, "cluster_type": {
            "name": "envoy.cluster.dns",
            "typed_config": {
                "@type": CLUSTER,
                "dns_lookup_family": "V4_ONLY",
                "typed_dns_resolver_config": cares(&[&server], json!({})),
            },
        }}),
    ] {
        let asked = server.queries().len();
        let proxy = Proxy::start(&of_name("site.test", origin.address, fields.clone()));
        assert_eq!(proxy.get("/").status, 200, "{fields}");
        let queries = server.queries().split_off(asked);
        assert!(!queries.is_empty() && queries.iter().all(|query| !query.v6 && !query.tcp), "{fields}: {queries:?}");
    }
}

#[test]
fn the_bootstraps_resolver_is_that_of_clusters_that_name_none() {
    let origin = Origin::echo("a");
    let (everywhere, own) = (DnsServer::start(), DnsServer::start());
    everywhere.set("site.test", &["127.0.0.1"]);
    own.set("site.test", &["127.0.0.1"]);
    let top = json!({"typed_dns_resolver_config": cares(&[&everywhere], json!({}))});
    // Without servers, this says nothing.
    let config = of_name("site.test", origin.address, json!({"use_tcp_for_dns_lookups": true}));
    let proxy = Proxy::start(&config.overlay(top.clone()));
    assert_eq!(proxy.get("/").status, 200);
    assert!(everywhere.queries().iter().all(|query| !query.tcp) && own.queries().is_empty());
    let asked = everywhere.queries().len();
    drop(proxy);
    let fields = json!({"dns_resolvers": [at(own.address)], "use_tcp_for_dns_lookups": true});
    let proxy = Proxy::start(&of_name("site.test", origin.address, fields).overlay(top));
    assert_eq!(proxy.get("/").status, 200);
    assert!(!own.queries().is_empty() && own.queries().iter().all(|query| query.tcp), "{:?}", own.queries());
    assert!(everywhere.queries().len() <= asked + 1, "one may have been under way");
}

#[test]
fn hosts_come_and_go_with_the_answers_although_they_hold_for_long() {
    let origin = Origin::echo("a");
    let server = DnsServer::start();
    server.set("site.test", &["127.0.0.1"]);
    let fields = json!({"typed_dns_resolver_config": cares(&[&server], json!({}))});
    let proxy = Proxy::start(&of_name("site.test", origin.address, fields));
    wait_until("the first host", || hosts(&proxy) == ["127.0.0.1"]);
    server.set("site.test", &["127.0.0.1", "127.0.0.2"]);
    wait_until("another host", || hosts(&proxy) == ["127.0.0.1", "127.0.0.2"]);
    // A name that is nobody's is an answer, too.
    server.forget("site.test");
    wait_until("no host", || hosts(&proxy).is_empty());
    server.set("site.test", &["127.0.0.1"]);
    wait_until("the host again", || hosts(&proxy) == ["127.0.0.1"]);
    assert_eq!(proxy.get("/").status, 200);
}

/// Rests for an hour between two looks, unless another rule says otherwise.
const SELDOM: &str = "3600s";

#[test]
fn an_answer_is_asked_for_again_when_it_ran_out_where_that_counts() {
    let origin = Origin::echo("a");
    for (respects, comes) in [(true, true), (false, false)] {
        let server = DnsServer::start();
        server.holding(1);
        server.set("site.test", &["127.0.0.1"]);
        let fields = json!({
            "typed_dns_resolver_config": cares(&[&server], json!({})),
            "dns_refresh_rate": SELDOM, "respect_dns_ttl": respects,
        });
        let proxy = Proxy::start(&of_name("site.test", origin.address, fields));
        wait_until("the first host", || hosts(&proxy) == ["127.0.0.1"]);
        let (began, asked) = (Instant::now(), server.queries().len());
        server.set("site.test", &["127.0.0.2"]);
        if comes {
            wait_until("the other host", || hosts(&proxy) == ["127.0.0.2"]);
            assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
        } else {
            // Longer than the answer holds.
            wait_until("a while", || began.elapsed() > Duration::from_millis(1_500));
            assert_eq!((hosts(&proxy), server.queries().len()), (vec!["127.0.0.1".to_owned()], asked));
        }
    }
}

#[test]
fn a_failed_look_is_repeated_by_the_rule_of_failures() {
    let origin = Origin::echo("a");
    let server = DnsServer::start();
    server.set("site.test", &["127.0.0.1"]);
    server.fail(true);
    let fields = json!({
        "typed_dns_resolver_config": cares(&[&server], json!({})),
        "dns_refresh_rate": SELDOM,
        "dns_failure_refresh_rate": {"base_interval": "0.02s", "max_interval": "0.05s"},
    });
    let proxy = Proxy::start(&of_name("site.test", origin.address, fields));
    wait_until("several failures", || proxy.stats().value("cluster.origin.update_failure") >= 3);
    assert_eq!(hosts(&proxy), Vec::<String>::new());
    server.fail(false);
    wait_until("the host", || hosts(&proxy) == ["127.0.0.1"]);
    // From then on it is the other rule.
    let asked = server.queries().len();
    let began = Instant::now();
    wait_until("a while", || began.elapsed() > Duration::from_millis(300));
    assert_eq!(server.queries().len(), asked);
}

#[test]
fn a_failed_look_leaves_the_hosts_that_are_known() {
    let origin = Origin::echo("a");
    let server = DnsServer::start();
    server.set("site.test", &["127.0.0.1"]);
    let fields = json!({"typed_dns_resolver_config": cares(&[&server], json!({}))});
    let proxy = Proxy::start(&of_name("site.test", origin.address, fields));
    wait_until("the host", || hosts(&proxy) == ["127.0.0.1"]);
    server.fail(true);
    wait_until("failures", || proxy.stats().value("cluster.origin.update_failure") >= 2);
    assert_eq!(hosts(&proxy), ["127.0.0.1"]);
    assert_eq!(proxy.get("/").status, 200);
}

/// Endpoints in one locality, on the port of `origin`: each its name, and what else its endpoint and its entry say.
fn endpoints(origin: SocketAddr, all: &[(&str, Value, Value)]) -> Value {
    let entry = |(name, endpoint, fields): &(&str, Value, Value)| {
        let mut entry = json!({"endpoint": {"address": socket_address(name, origin.port())}});
        overlay(&mut entry["endpoint"], endpoint.clone());
        overlay(&mut entry, fields.clone());
        entry
    };
    json!({"endpoints": [{"lb_endpoints": all.iter().map(entry).collect::<Vec<_>>()}]})
}

#[test]
fn a_name_that_nobody_answers_for_held_up_the_others() {
    let origin = Origin::echo("a");
    let server = DnsServer::start();
    server.set("site.test", &["127.0.0.1"]);
    server.ignore("dead.test");
    let names = [("dead.test", json!({}), json!({})), ("site.test", json!({}), json!({}))];
    let fields = json!({
        "typed_dns_resolver_config": cares(&[&server], json!({"query_timeout_seconds": 600, "query_tries": 1})),
        "load_assignment": endpoints(origin.address, &names),
    });
    let proxy = Proxy::start(&of_name("site.test", origin.address, fields));
    wait_until("the first host", || hosts(&proxy) == ["127.0.0.1"]);
    server.set("site.test", &["127.0.0.2"]);
    wait_until("the next one", || hosts(&proxy) == ["127.0.0.2"]);
}

#[test]
fn hosts_of_a_name_are_called_and_marked_as_their_entry_says() {
    let origin = Origin::echo("a");
    let server = DnsServer::start();
    server.set("site.test", &["127.0.0.1"]);
    server.set("sick.test", &["127.0.0.2"]);
    let names = [
        ("site.test", json!({"hostname": "www.test"}), json!({})),
        ("sick.test", json!({}), json!({"health_status": "UNHEALTHY"})),
    ];
    let fields = json!({
        "typed_dns_resolver_config": cares(&[&server], json!({})),
        "load_assignment": endpoints(origin.address, &names),
    });
    let proxy = Proxy::start(&of_name("site.test", origin.address, fields));
    let port = origin.address.port();
    let wanted = [
        format!("origin::127.0.0.1:{port}::hostname::www.test"),
        format!("origin::127.0.0.1:{port}::health_flags::healthy"),
        format!("origin::127.0.0.2:{port}::hostname::sick.test"),
        format!("origin::127.0.0.2:{port}::health_flags::/failed_eds_health"),
    ];
    wait_until("the hosts", || {
        let text = proxy.admin_get("/clusters").text().to_owned();
        wanted.iter().all(|line| text.lines().any(|found| found == line))
    });
}

#[test]
fn an_address_that_two_names_have_is_two_hosts_with_their_own_weights() {
    let (a, b) = (Origin::echo("a"), Origin::echo("b"));
    let server = DnsServer::start();
    for name in ["one.test", "two.test", "three.test"] {
        server.set(name, &["127.0.0.1"]);
    }
    let entry = |name: &str, origin: &Origin, weight: u32| {
        json!({
            "endpoint": {"address": socket_address(name, origin.address.port())},
            "load_balancing_weight": weight,
        })
    };
    let entries = [entry("one.test", &a, 1), entry("two.test", &a, 5), entry("three.test", &b, 1)];
    let fields = json!({
        "typed_dns_resolver_config": cares(&[&server], json!({})),
        "load_assignment": {"endpoints": [{"lb_endpoints": entries}]},
    });
    let launch = Launch { concurrency: 1, ..Launch::default() };
    let proxy = Proxy::start_with(&of_name("one.test", a.address, fields), launch);
    proxy.wait_stat("cluster.origin.membership_total", 3);
    for _ in 0..14 {
        proxy.get("/");
    }
    assert_eq!((a.requests().len(), b.requests().len()), (12, 2));
}

#[test]
fn looks_are_spread_by_their_jitter() {
    let origin = Origin::echo("a");
    let server = DnsServer::start();
    server.set("site.test", &["127.0.0.1"]);
    // Without it there would be a look every 10 ms; with it, hardly one in the time of this test.
    let fields = json!({
        "typed_dns_resolver_config": cares(&[&server], json!({})),
        "dns_refresh_rate": "0.01s", "dns_jitter": "3600s",
    });
    let proxy = Proxy::start(&of_name("site.test", origin.address, fields));
    wait_until("the host", || hosts(&proxy) == ["127.0.0.1"]);
    let began = Instant::now();
    wait_until("a while", || began.elapsed() > Duration::from_millis(300));
    assert!(server.queries().len() <= 2, "{:?}", server.queries().len());
}

#[test]
fn the_next_server_is_asked_when_one_does_not_answer() {
    let origin = Origin::echo("a");
    let (dead, alive) = (DnsServer::silent(), DnsServer::start());
    alive.set("site.test", &["127.0.0.1"]);
    let resolver = cares(&[&dead, &alive], json!({"query_timeout_seconds": 1, "query_tries": 2}));
    let fields = json!({"typed_dns_resolver_config": resolver});
    let proxy = Proxy::start(&of_name("site.test", origin.address, fields));
    wait_until("an answer", || proxy.get("/").status == 200);
    assert!(!dead.queries().is_empty());
}

#[test]
fn servers_take_turns_when_they_are_to() {
    let origin = Origin::echo("a");
    let (one, other) = (DnsServer::start(), DnsServer::start());
    for server in [&one, &other] {
        server.set("site.test", &["127.0.0.1"]);
    }
    let resolver = cares(&[&one, &other], json!({"rotate_nameservers": true}));
    let proxy = Proxy::start(&of_name("site.test", origin.address, json!({"typed_dns_resolver_config": resolver})));
    wait_until("both are asked", || !one.queries().is_empty() && !other.queries().is_empty());
    assert_eq!(proxy.get("/").status, 200);
}

#[test]
fn families_are_asked_for_in_their_order() {
    let origin = Origin::echo("a");
    let server = DnsServer::start();
    server.set("both.test", &["127.0.0.1", "::1"]);
    server.set("four.test", &["127.0.0.1"]);
    for (family, name, wanted) in [
        ("V4_PREFERRED", "both.test", &["127.0.0.1"][..]),
        ("AUTO", "both.test", &["[::1]"]),
        ("AUTO", "four.test", &["127.0.0.1"]),
        ("V6_ONLY", "both.test", &["[::1]"]),
        ("ALL", "both.test", &["127.0.0.1", "[::1]"]),
    ] {
        let resolver = cares(&[&server], json!({}));
        let fields = json!({"dns_lookup_family": family, "typed_dns_resolver_config": resolver});
        let proxy = Proxy::start(&of_name(name, origin.address, fields));
        wait_until(family, || hosts(&proxy) == wanted);
    }
}

#[test]
fn search_domains_are_left_alone_when_they_are_to() {
    let origin = Origin::echo("a");
    let server = DnsServer::start();
    server.set("short", &["127.0.0.1"]);
    let options = json!({"dns_resolver_options": {"no_default_search_domain": true, "use_tcp_for_dns_lookups": true}});
    let fields = json!({"typed_dns_resolver_config": cares(&[&server], options)});
    let proxy = Proxy::start(&of_name("short", origin.address, fields));
    assert_eq!(proxy.get("/").status, 200);
    assert!(server.queries().iter().all(|query| query.name == "short" && query.tcp), "{:?}", server.queries());
}

#[test]
fn the_systems_function_reads_the_file_of_hosts() {
    let origin = Origin::echo("a");
    let fields = json!({"typed_dns_resolver_config": typed(SYSTEM, json!({"num_retries": 1}))});
    let proxy = Proxy::start(&of_name("localhost", origin.address, fields));
    wait_until("an answer", || proxy.get("/").status == 200);
}

/// What is asked of `origin`, at another address.
fn beside(origin: &Origin, name: &'static str) -> Origin {
    let address = SocketAddr::from(([127, 0, 0, 2], origin.address.port()));
    Origin::start_at(address, move |connection| {
        while let Some(request) = connection.request() {
            connection.write(&postrider_tests::kit::origin::echo_answer(name, &request));
        }
    })
}

/// Addresses of all hosts, however they are.
fn all_hosts(proxy: &Proxy) -> Vec<String> {
    let text = proxy.admin_get("/clusters").text().to_owned();
    let found = text.lines().filter_map(|line| line.strip_prefix("origin::")?.split_once("::cx_active::"));
    let mut hosts: Vec<String> = found.map(|(host, _)| host.rsplit_once(':').unwrap().0.to_owned()).collect();
    hosts.sort();
    hosts
}

#[test]
fn a_host_that_is_named_no_more_stays_while_it_is_healthy_unless_that_is_ignored() {
    let a = Origin::echo("a");
    let b = beside(&a, "b");
    let checks = json!([{"timeout": "1s", "interval": "0.05s", "no_traffic_interval": "0.05s", "unhealthy_threshold": 1,
        "healthy_threshold": 1, "tcp_health_check": {}}]);
    for ignores in [true, false] {
        let server = DnsServer::start();
        server.set("site.test", &["127.0.0.1"]);
        let fields = json!({
            "typed_dns_resolver_config": cares(&[&server], json!({})),
            "ignore_health_on_host_removal": ignores, "health_checks": checks,
        });
        let proxy = Proxy::start(&of_name("site.test", a.address, fields));
        wait_until("the first host", || hosts(&proxy) == ["127.0.0.1"]);
        server.set("site.test", &["127.0.0.2"]);
        if ignores {
            wait_until("the second host alone", || hosts(&proxy) == ["127.0.0.2"] && all_hosts(&proxy).len() == 1);
            continue;
        }
        wait_until("both hosts", || all_hosts(&proxy) == ["127.0.0.1", "127.0.0.2"]);
        let asked = server.queries().len();
        wait_until("more answers", || server.queries().len() >= asked + 3);
        wait_until("both serve", || {
            let mut names: Vec<_> = (0..8).map(|_| proxy.get("/").header("x-origin").to_owned()).collect();
            names.sort();
            names.dedup();
            names == ["a", "b"]
        });
        a.kill();
        wait_until("the second host alone", || all_hosts(&proxy) == ["127.0.0.2"]);
    }
    assert_eq!(b.malformed(), Vec::<String>::new());
}

#[test]
fn connections_end_with_a_change_of_the_hosts_where_that_is_wanted() {
    for ends in [true, false] {
        let origin = Origin::echo("a");
        let server = DnsServer::start();
        server.set("site.test", &["127.0.0.1"]);
        let fields = json!({
            "typed_dns_resolver_config": cares(&[&server], json!({})),
            "common_lb_config": {"close_connections_on_host_set_change": ends},
        });
        let proxy = Proxy::start(&of_name("site.test", origin.address, fields));
        wait_until("the first host", || hosts(&proxy) == ["127.0.0.1"]);
        assert_eq!(proxy.get("/").status, 200);
        let asked = server.queries().len();
        wait_until("more answers", || server.queries().len() >= asked + 3);
        assert_eq!(origin.open_connections(), 1, "nothing changed");
        server.set("site.test", &["127.0.0.1", "127.0.0.2"]);
        wait_until("another host", || hosts(&proxy).len() == 2);
        if ends {
            origin.wait_open_at_most(0);
        } else {
            let asked = server.queries().len();
            wait_until("more answers", || server.queries().len() >= asked + 3);
            assert_eq!(origin.open_connections(), 1);
        }
    }
}
