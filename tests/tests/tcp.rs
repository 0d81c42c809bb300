//! The TCP proxy and the choice of a filter chain.

use postrider_tests::kit::config::{file_access_log, http_filter, tcp_filter};
use postrider_tests::kit::proxy::Launch;
use postrider_tests::kit::{Config, Origin, Proxy, RawClient, TempDir, net, wait_until};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};

fn tcp_to(origin: SocketAddr, fields: Value) -> Config {
    let config = Config::new().tcp("tcp", json!({"cluster": "origin"})).cluster("origin", &[origin]);
    config.overlay_filter("tcp", fields)
}

fn client(proxy: &Proxy) -> RawClient {
    RawClient::connect(proxy.address("tcp"))
}

#[test]
fn bytes_flow_both_ways_unchanged() {
    let origin = Origin::tcp_echo("hello");
    let proxy = Proxy::start(&tcp_to(origin.address, json!({})));
    let mut client = client(&proxy);
    assert_eq!(client.read_exact(5).unwrap(), b"hello");
    let block: Vec<u8> = (0..300_000u32).map(|n| (n % 251) as u8).collect();
    let sent = block.clone();
    let mut writer = RawClient::from_stream(client.stream().try_clone().unwrap());
    let writing = std::thread::spawn(move || writer.try_send(&sent).unwrap());
    assert!(client.read_exact(block.len()).unwrap() == block);
    writing.join().unwrap();
    drop(client);
    origin.wait_open_at_most(0);
    proxy.wait_stat("tcp.ingress_tcp.downstream_cx_rx_bytes_total", 300_000);
    proxy.wait_stat("tcp.ingress_tcp.downstream_cx_tx_bytes_total", 300_005);
    assert_eq!(proxy.stats().value("tcp.ingress_tcp.downstream_cx_total"), 1);
    proxy.wait_stat("cluster.origin.upstream_cx_active", 0);
}

#[test]
fn a_half_close_of_the_client_reaches_the_origin_which_may_go_on() {
    let origin = Origin::start(|connection| {
        let all = connection.read_to_end().unwrap_or_default();
        connection.write(format!("got {}", all.len()).as_bytes());
    });
    let proxy = Proxy::start(&tcp_to(origin.address, json!({})));
    let mut client = client(&proxy);
    client.send("12345").half_close();
    assert_eq!(client.read_to_end().unwrap(), b"got 5");
}

#[test]
fn a_half_close_of_the_origin_reaches_the_client_which_may_go_on() {
    let origin = Origin::start(|connection| {
        connection.write(b"done");
        connection.half_close();
        connection.read_to_end();
    });
    let proxy = Proxy::start(&tcp_to(origin.address, json!({})));
    let mut client = client(&proxy);
    assert_eq!(client.read_to_end().unwrap(), b"done");
    client.send("after").half_close();
    origin.wait_open_at_most(0);
    assert_eq!(origin.bytes(0), b"after");
}

#[test]
fn a_reset_of_one_side_ends_the_other() {
    let origin = Origin::tcp_echo("hi");
    let proxy = Proxy::start(&tcp_to(origin.address, json!({})));
    let mut leaving = client(&proxy);
    leaving.read_exact(2).unwrap();
    leaving.reset();
    origin.wait_open_at_most(0);

    let resetting = Origin::start(|connection| {
        connection.read_exact(1);
        connection.reset();
    });
    let proxy = Proxy::start(&tcp_to(resetting.address, json!({})));
    let mut client = client(&proxy);
    client.send("x");
    assert!(client.closed());
}

#[test]
fn weighted_clusters_share_connections() {
    let (blue, green) = (Origin::tcp_echo("b"), Origin::tcp_echo("g"));
    let config = Config::new()
        .tcp(
            "tcp",
            json!({"weighted_clusters": {"clusters": [{"name": "blue", "weight": 3}, {"name": "green", "weight": 1}]}}),
        )
        .cluster("blue", &[blue.address])
        .cluster("green", &[green.address]);
    let proxy = Proxy::start(&config);
    let mut count: BTreeMap<Vec<u8>, u32> = BTreeMap::new();
    for _ in 0..200 {
        *count.entry(client(&proxy).read_exact(1).unwrap()).or_default() += 1;
    }
    // 150 expected; six standard deviations are 37.
    assert!((113..=187).contains(&count[&b"b"[..]]), "{count:?}");
}

#[test]
fn connections_go_round_robin_over_the_endpoints() {
    let origins: Vec<Origin> = ["0", "1", "2", "3"].into_iter().map(Origin::tcp_echo).collect();
    let addresses: Vec<SocketAddr> = origins.iter().map(|origin| origin.address).collect();
    let config = Config::new().tcp("tcp", json!({"cluster": "four"})).cluster("four", &addresses);
    let proxy = Proxy::start(&config);
    let visits: Vec<Vec<u8>> = (0..8).map(|_| client(&proxy).read_exact(1).unwrap()).collect();
    for window in visits.windows(4) {
        let mut distinct = window.to_vec();
        distinct.sort();
        assert_eq!(distinct, [b"0", b"1", b"2", b"3"], "{visits:?}");
    }
}

#[test]
fn an_idle_connection_is_closed_and_counted() {
    let origin = Origin::tcp_echo("hi");
    let proxy = Proxy::start(&tcp_to(origin.address, json!({"idle_timeout": "0.5s"})));
    let mut client = client(&proxy);
    client.read_exact(2).unwrap();
    assert!(client.closed());
    origin.wait_open_at_most(0);
    assert_eq!(proxy.stats().value("tcp.ingress_tcp.idle_timeout"), 1);
}

#[test]
fn a_failed_connect_is_tried_again_up_to_the_limit() {
    let origin = Origin::tcp_echo("hi");
    let refused = net::refusing_address();
    for (attempts, served) in [(1, false), (2, true)] {
        let config = Config::new()
            .tcp("tcp", json!({"cluster": "pair", "max_connect_attempts": attempts}))
            .cluster("pair", &[refused, origin.address]);
        let proxy = Proxy::start(&config);
        // Round robin starts anywhere: two connections meet the refusing
        // endpoint first at least once.
        let answers: Vec<bool> = (0..2).map(|_| client(&proxy).read_exact(2).is_ok()).collect();
        assert_eq!(answers.iter().all(|ok| *ok), served, "{attempts} attempts: {answers:?}");
        assert!(proxy.stats().value("cluster.pair.upstream_cx_connect_fail") >= 1);
    }
}

#[test]
fn flags_tell_of_attempts_that_failed_and_not_of_clients_that_reset() {
    let (origin, other) = (Origin::tcp_echo("hi"), Origin::tcp_echo("hi"));
    let directory = TempDir::new();
    let format = json!({"log_format": {"text_format_source": {"inline_string": "%RESPONSE_FLAGS% %DOWNSTREAM_DETECTED_CLOSE_TYPE%\n"}}});
    let log = file_access_log(&directory.path().join("log"), format);
    let config = Config::new()
        .tcp("tcp", json!({"cluster": "pair", "max_connect_attempts": 2, "access_log": [log]}))
        .cluster("pair", &[net::refusing_address(), origin.address, other.address]);
    let proxy = Proxy::start_with(&config, Launch { concurrency: 1, ..Launch::default() });
    // Wherever round robin starts, of three some meet the refusing endpoint first, and some do not.
    for _ in 0..3 {
        let mut leaving = client(&proxy);
        assert_eq!(leaving.read_exact(2).unwrap(), b"hi");
        leaving.reset();
    }
    let lines = || std::fs::read_to_string(directory.path().join("log")).unwrap_or_default();
    wait_until("all lines", || lines().lines().count() == 3);
    let mut lines: Vec<String> = lines().lines().map(str::to_owned).collect();
    lines.sort();
    lines.dedup();
    assert_eq!(lines, ["- RemoteReset", "UF RemoteReset"]);
}

#[test]
fn attempts_are_made_all_the_same_with_waits_between() {
    let origin = Origin::tcp_echo("hi");
    let waits =
        json!({"max_connect_attempts": 2, "backoff_options": {"base_interval": "0.02s", "max_interval": "0.03s"}});
    let config = Config::new()
        .tcp("tcp", json!({"cluster": "pair"}))
        .overlay_filter("tcp", waits)
        .cluster("pair", &[net::refusing_address(), origin.address]);
    let proxy = Proxy::start(&config);
    for _ in 0..4 {
        assert_eq!(client(&proxy).read_exact(2).unwrap(), b"hi");
    }
    assert!(proxy.stats().value("cluster.pair.upstream_cx_connect_fail") >= 1);
}

#[test]
fn a_client_that_leaves_between_attempts_is_not_tried_for_any_more() {
    // The wait is drawn between nothing and the base: hardly ever is it over before the client leaves.
    let waits = json!({"max_connect_attempts": 2, "backoff_options": {"base_interval": "100000s"}});
    let proxy = Proxy::start(&tcp_to(net::refusing_address(), waits));
    let leaving = client(&proxy);
    proxy.wait_stat("cluster.origin.upstream_cx_connect_fail", 1);
    leaving.reset();
    proxy.wait_stat(&format!("listener.127.0.0.1_{}.downstream_cx_active", proxy.address("tcp").port()), 0);
    assert_eq!(proxy.stats().value("cluster.origin.upstream_cx_connect_fail"), 1);
}

#[test]
fn without_an_endpoint_the_client_is_closed() {
    let refused = net::refusing_address();
    let proxy = Proxy::start(&tcp_to(refused, json!({"max_connect_attempts": 3})));
    assert!(client(&proxy).closed());
    assert_eq!(proxy.stats().value("cluster.origin.upstream_cx_connect_fail"), 3);
    assert_eq!(proxy.stats().value("cluster.origin.upstream_cx_connect_attempts_exceeded"), 1);
}

#[test]
fn connects_of_the_tcp_proxy_failed_and_no_pending_request_was_ejected() {
    let refused = net::refusing_address();
    let proxy = Proxy::start(&tcp_to(refused, json!({"max_connect_attempts": 2})));
    (0..2).for_each(|_| assert!(client(&proxy).closed()));
    let counted = ["pending_total", "pending_failure_eject"];
    let counted = counted.map(|name| proxy.stats().value(&format!("cluster.origin.upstream_rq_{name}")));
    assert_eq!(counted, [4, 4]);
}

#[test]
fn beyond_the_connection_breaker_clients_are_closed() {
    let origin = Origin::tcp_echo("hi");
    let config = Config::new().tcp("tcp", json!({"cluster": "one"})).cluster_with(
        "one",
        &[origin.address],
        json!({"circuit_breakers": {"thresholds": [{"max_connections": 1}]}}),
    );
    let proxy = Proxy::start(&config);
    let mut first = client(&proxy);
    first.read_exact(2).unwrap();
    assert!(client(&proxy).closed());
    assert_eq!(proxy.stats().value("cluster.one.upstream_cx_overflow"), 1);
    first.send("x");
    assert_eq!(first.read_exact(1).unwrap(), b"x");
}

/// A chain that greets with its own name.
fn chain(name: &str, origins: &mut Vec<(String, Origin)>, matcher: Value) -> Value {
    origins.push((name.to_string(), Origin::tcp_echo(&format!("{name}\n"))));
    let mut chain = json!({"name": name, "filters": [tcp_filter(json!({"cluster": name}))]});
    if !matcher.is_null() {
        chain["filter_chain_match"] = matcher;
    }
    chain
}

fn greeting(stream: std::net::TcpStream) -> String {
    let mut client = RawClient::from_stream(stream);
    let mut name = String::new();
    while let Ok(byte) = client.read_exact(1) {
        if byte == b"\n" {
            return name;
        }
        name.push(char::from(byte[0]));
    }
    "closed".into()
}

#[test]
fn filter_chains_are_chosen_by_destination_then_source() {
    let mut origins = Vec::new();
    let cidr = |address: &str, bits: u32| json!([{"address_prefix": address, "prefix_len": bits}]);
    let chains = json!([
        chain("dst-9", &mut origins, json!({"prefix_ranges": cidr("127.0.0.9", 32)})),
        chain(
            "dst-9-src-3",
            &mut origins,
            json!({"prefix_ranges": cidr("127.0.0.9", 32), "source_prefix_ranges": cidr("127.0.0.3", 32)})
        ),
        chain("src-2", &mut origins, json!({"source_prefix_ranges": cidr("127.0.0.2", 32)})),
        chain("src-net", &mut origins, json!({"source_prefix_ranges": cidr("127.0.1.0", 24)})),
    ]);
    let default = chain("default", &mut origins, Value::Null);
    let mut config = Config::new().listener(
        "tcp",
        json!({
            "address": {"socket_address": {"address": "0.0.0.0"}},
            "filter_chains": chains, "default_filter_chain": default,
        }),
    );
    for (name, origin) in &origins {
        config = config.cluster(name, &[origin.address]);
    }
    let proxy = Proxy::start(&config);
    let port = proxy.address("tcp").port();
    for (source, destination, expected) in [
        ([127, 0, 0, 1], [127, 0, 0, 1], "default"),
        ([127, 0, 0, 2], [127, 0, 0, 1], "src-2"),
        ([127, 0, 1, 77], [127, 0, 0, 1], "src-net"),
        ([127, 0, 2, 77], [127, 0, 0, 1], "default"),
        ([127, 0, 0, 1], [127, 0, 0, 9], "dst-9"),
        ([127, 0, 0, 3], [127, 0, 0, 9], "dst-9-src-3"),
        // The more specific destination is chosen first, and binds.
        ([127, 0, 0, 2], [127, 0, 0, 9], "dst-9"),
    ] {
        let address = SocketAddr::from((Ipv4Addr::from(destination), port));
        let got = greeting(net::connect_from(Ipv4Addr::from(source), address));
        assert_eq!(got, expected, "{source:?} to {destination:?}");
    }
}

#[test]
fn filter_chains_are_chosen_by_destination_and_source_port() {
    let port = net::free_port();
    let source_port = net::free_port();
    let mut origins = Vec::new();
    let chains = json!([
        chain("other-port", &mut origins, json!({"destination_port": 1})),
        chain("this-port", &mut origins, json!({"destination_port": port})),
        chain("from-port", &mut origins, json!({"destination_port": port, "source_ports": [source_port]})),
    ]);
    let mut config = Config::new().listener(
        "tcp",
        json!({
            "address": {"socket_address": {"port_value": port}}, "filter_chains": chains,
        }),
    );
    for (name, origin) in &origins {
        config = config.cluster(name, &[origin.address]);
    }
    let proxy = Proxy::start(&config);
    let address = proxy.address("tcp");
    assert_eq!(address.port(), port);
    assert_eq!(greeting(net::connect_from(Ipv4Addr::LOCALHOST, address)), "this-port");
    let bound = net::connect_from_port(SocketAddr::from((Ipv4Addr::LOCALHOST, source_port)), address);
    assert_eq!(greeting(bound), "from-port");
}

#[test]
fn without_a_matching_chain_the_connection_is_closed_and_counted() {
    let mut origins = Vec::new();
    let only = chain(
        "only",
        &mut origins,
        json!({"source_prefix_ranges": [{"address_prefix": "127.0.0.2", "prefix_len": 32}]}),
    );
    let config = Config::new()
        .listener(
            "tcp",
            json!({
                // Envoy names the statistics after the configured address.
                "address": {"socket_address": {"port_value": net::free_port()}},
                "filter_chains": [only],
            }),
        )
        .cluster("only", &[origins[0].1.address]);
    let proxy = Proxy::start(&config);
    let address = proxy.address("tcp");
    assert!(client(&proxy).closed());
    assert_eq!(greeting(net::connect_from(Ipv4Addr::new(127, 0, 0, 2), address)), "only");
    let name = format!("listener.{}.no_filter_chain_match", address.to_string().replace(':', "_"));
    wait_until("the closed connection is counted", || proxy.stats().value(&name) == 1);
}

#[test]
fn http_and_tcp_chains_live_on_one_listener() {
    let origin = Origin::tcp_echo("tcp\n");
    let config = Config::new()
        .listener("tcp", json!({"filter_chains": [
            {"filter_chain_match": {"source_prefix_ranges": [{"address_prefix": "127.0.0.2", "prefix_len": 32}]},
             "filters": [tcp_filter(json!({"cluster": "origin"}))]},
            {"filters": [http_filter(json!({"route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [
                {"match": {"prefix": "/"}, "direct_response": {"status": 200, "body": {"inline_string": "http"}}},
            ]}]}}))]},
        ]}))
        .cluster("origin", &[origin.address]);
    let proxy = Proxy::start(&config);
    assert_eq!(client(&proxy).exchange(postrider_tests::get("/")).text(), "http");
    let stream = net::connect_from(Ipv4Addr::new(127, 0, 0, 2), proxy.address("tcp"));
    assert_eq!(greeting(stream), "tcp");
}

#[test]
fn a_client_that_never_reads_holds_the_origin_back() {
    let origin = Origin::start(|connection| {
        let block = vec![b'd'; 1 << 20];
        for _ in 0..200 {
            if !connection.write(&block) {
                return;
            }
        }
    });
    let proxy = Proxy::start(&tcp_to(origin.address, json!({})));
    let before = proxy.resident_kib();
    let stuck = net::connect_with_small_buffer(proxy.address("tcp"), 4096);
    let mut last = (0, 0);
    wait_until("back-pressure", || {
        let bytes = proxy.stats().value("cluster.origin.upstream_cx_rx_bytes_total");
        last = if bytes == last.0 { (bytes, last.1 + 1) } else { (bytes, 0) };
        bytes > 0 && last.1 > 50
    });
    let growth = proxy.resident_kib().saturating_sub(before);
    assert!(growth < 8 * 1024, "{growth} KiB");
    drop(stuck);
    origin.wait_open_at_most(0);
}

#[test]
fn a_listener_serves_all_of_its_addresses() {
    let origin = Origin::tcp_echo("hi\n");
    let (first, second) = (net::free_port(), net::free_port());
    let config = tcp_to(origin.address, json!({})).overlay_listener(
        "tcp",
        json!({
            "address": {"socket_address": {"port_value": first}},
            "additional_addresses": [{"address": {"socket_address": {"address": "127.0.0.1", "port_value": second}}}],
        }),
    );
    let proxy = Proxy::start(&config);
    assert_eq!(proxy.address("tcp").port(), first);
    for port in [first, second] {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        assert_eq!(greeting(net::connect_from(Ipv4Addr::LOCALHOST, address)), "hi");
    }
}
