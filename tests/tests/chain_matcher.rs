//! How a listener chooses among its filter chains by a tree, and listener filters that are not for every connection.

use postrider_tests::get;
use postrider_tests::kit::config::{extension, http_filter};
use postrider_tests::kit::{Config, Origin, Proxy, RawClient};
use serde_json::{Value, json};

const NETWORK: &str = "type.googleapis.com/envoy.extensions.matching.common_inputs.network.v3";

/// A chain that answers with its name.
fn chain(name: &str) -> Value {
    let routes = json!([{
        "match": {"prefix": "/"}, "direct_response": {"status": 200, "body": {"inline_string": name}},
    }]);
    let hosts = json!([{"name": "all", "domains": ["*"], "routes": routes}]);
    json!({"name": name, "filters": [http_filter(json!({"stat_prefix": name, "route_config": {"virtual_hosts": hosts}}))]})
}

fn input(name: &str) -> Value {
    json!({"name": "i", "typed_config": {"@type": format!("{NETWORK}.{name}")}})
}

fn to(chain: &str) -> Value {
    let name = json!({"@type": "type.googleapis.com/google.protobuf.StringValue", "value": chain});
    json!({"action": {"name": "chain", "typed_config": name}})
}

fn introduced() -> Value {
    extension(
        "envoy.filters.listener.proxy_protocol",
        "filters.listener.proxy_protocol.v3.ProxyProtocol",
        json!({"allow_requests_without_proxy_protocol": true}),
    )
}

fn inspector(fields: Value) -> Value {
    extension("envoy.filters.listener.tls_inspector", "filters.listener.tls_inspector.v3.TlsInspector", fields)
}

fn listener(filters: Value, matcher: Value, chains: &[&str]) -> Config {
    let chains: Vec<Value> = chains.iter().map(|name| chain(name)).collect();
    Config::new().listener(
        "http",
        json!({
            "listener_filters": filters,
            "filter_chain_matcher": matcher,
            "filter_chains": chains,
            "default_filter_chain": chain("default"),
        }),
    )
}

/// The chain that serves a connection which says this of itself; `None` where none does.
fn served(proxy: &Proxy, introduction: &str) -> Option<String> {
    let mut client = RawClient::connect(proxy.address("http"));
    client.send(format!("{introduction}{}", get("/")));
    client.response("GET").ok().map(|answer| answer.text().to_owned())
}

fn from_to(source: &str, destination: &str) -> String {
    let part = |address: &str| address.rsplit_once(':').map(|(ip, port)| (ip.to_owned(), port.to_owned())).unwrap();
    let ((from, from_port), (to, to_port)) = (part(source), part(destination));
    format!("PROXY TCP4 {from} {to} {from_port} {to_port}\r\n")
}

#[test]
fn a_tree_chooses_chains_by_addresses_and_ports() {
    let ranges = json!({
        "@type": "type.googleapis.com/xds.type.matcher.v3.IPMatcher",
        "range_matchers": [
            {"ranges": [{"address_prefix": "10.0.0.0", "prefix_len": 8}], "on_match": to("ten")},
            {"ranges": [{"address_prefix": "10.9.0.0", "prefix_len": 16}], "on_match": to("nine")},
        ],
    });
    let by_source = json!({"matcher_tree": {
        "input": input("SourceIPInput"), "custom_match": {"name": "ip", "typed_config": ranges},
    }});
    let matcher = json!({
        "matcher_tree": {
            "input": input("DestinationPortInput"),
            "exact_match_map": {"map": {"81": to("port"), "82": {"matcher": by_source}, "83": to("nobody")}},
        },
        "on_no_match": {"matcher": {"matcher_list": {"matchers": [{
            "predicate": {"single_predicate": {
                "input": input("SourcePortInput"), "value_match": {"exact": "7"},
            }},
            "on_match": to("seven"),
        }]}}},
    });
    let proxy = Proxy::start(&listener(json!([introduced()]), matcher, &["port", "ten", "nine", "seven"]));
    let chain = |source: &str, destination: &str| served(&proxy, &from_to(source, destination));
    assert_eq!(chain("1.1.1.1:5", "9.9.9.9:81").as_deref(), Some("port"));
    assert_eq!(chain("10.1.1.1:5", "9.9.9.9:82").as_deref(), Some("ten"));
    assert_eq!(chain("10.9.1.1:5", "9.9.9.9:82").as_deref(), Some("nine"));
    assert_eq!(chain("1.1.1.1:7", "9.9.9.9:80").as_deref(), Some("seven"));
    assert_eq!(chain("1.1.1.1:7", "9.9.9.9:82").as_deref(), Some("seven"), "a tree that leads nowhere is no match");
    assert_eq!(chain("1.1.1.1:5", "9.9.9.9:80").as_deref(), Some("default"));
    assert_eq!(chain("1.1.1.1:5", "9.9.9.9:83"), None, "no chain has that name");
    assert_eq!(proxy.stats().sum("listener.", ".no_filter_chain_match"), 1);
}

#[test]
fn a_stranger_to_a_chain_of_its_port_was_let_into_the_one_for_all() {
    let narrow = |matches: Value| {
        let mut narrow = chain("narrow");
        narrow["filter_chain_match"] = matches;
        Config::new().listener(
            "http",
            json!({
                "listener_filters": [introduced()],
                "filter_chains": [narrow, chain("all")],
                "default_filter_chain": chain("default"),
            }),
        )
    };
    let from_ten = json!([{"address_prefix": "10.0.0.0", "prefix_len": 8}]);
    for also in [
        json!({"destination_port": 81}),
        json!({"prefix_ranges": [{"address_prefix": "9.9.9.9", "prefix_len": 32}]}),
        json!({"transport_protocol": "raw_buffer"}),
        json!({"source_type": "EXTERNAL"}),
    ] {
        let mut matches = also.clone();
        matches["source_prefix_ranges"] = from_ten.clone();
        let proxy = Proxy::start(&narrow(matches));
        let chain = |source: &str| served(&proxy, &from_to(source, "9.9.9.9:81"));
        assert_eq!(chain("10.1.1.1:5").as_deref(), Some("narrow"), "{also}");
        assert_eq!(chain("11.1.1.1:5").as_deref(), Some("default"), "{also}");
    }
    let proxy = Proxy::start(&narrow(json!({"source_prefix_ranges": from_ten})));
    assert_eq!(served(&proxy, &from_to("11.1.1.1:5", "9.9.9.9:81")).as_deref(), Some("all"));
}

#[test]
fn a_share_of_connections_is_the_same_for_the_same_client() {
    const MATCHERS: &str = "type.googleapis.com/envoy.extensions.matching.input_matchers";
    let hashing = json!({
        "@type": format!("{MATCHERS}.consistent_hashing.v3.ConsistentHashing"), "threshold": 5, "modulo": 10, "seed": 3,
    });
    let fraction = json!({
        "@type": format!("{MATCHERS}.runtime_fraction.v3.RuntimeFraction"),
        "runtime_fraction": {"default_value": {"numerator": 50}}, "seed": 3,
    });
    let one = |condition: Value, chain: &str| {
        let custom = json!({"name": "share", "typed_config": condition});
        json!({
            "predicate": {"single_predicate": {"input": input("SourceIPInput"), "custom_match": custom}},
            "on_match": to(chain),
        })
    };
    let matcher = json!({"matcher_list": {"matchers": [one(hashing, "h"), one(fraction, "r")]}});
    let proxy = Proxy::start(&listener(json!([introduced()]), matcher, &["h", "r"]));
    let chosen = (1..=12).map(|last| {
        let chain = served(&proxy, &from_to(&format!("1.1.1.{last}:5"), "9.9.9.9:80")).unwrap_or_default();
        chain.chars().next().unwrap_or_default()
    });
    assert_eq!(chosen.collect::<String>(), "hhrrhdhhrhrr", "d is the default chain; these are real Envoy's choices");
}

#[test]
fn what_a_client_says_first_chooses_its_chain() {
    let matcher = json!({"matcher_tree": {
        "input": input("TransportProtocolInput"),
        "exact_match_map": {"map": {"raw_buffer": to("plain"), "tls": to("secret")}},
    }});
    let proxy = Proxy::start(&listener(json!([inspector(json!({}))]), matcher, &["plain", "secret"]));
    assert_eq!(served(&proxy, "").as_deref(), Some("plain"));
}

#[test]
fn a_listener_may_want_a_greeting_in_tls() {
    let config = |closes: bool| {
        let filters = json!([inspector(json!({"close_connection_on_client_hello_parsing_errors": closes}))]);
        Config::new().listener("http", json!({"listener_filters": filters, "filter_chains": [chain("any")]}))
    };
    assert_eq!(served(&Proxy::start(&config(false)), "").as_deref(), Some("any"));
    assert_eq!(served(&Proxy::start(&config(true)), ""), None);
}

#[test]
fn a_listener_filter_is_left_out_for_certain_ports() {
    let mut original = introduced();
    original["typed_config"]["allow_requests_without_proxy_protocol"] = json!(false);
    let config = |except: Value| {
        let mut original = original.clone();
        original["filter_disabled"] = except;
        Config::new().listener("http", json!({"listener_filters": [original], "filter_chains": [chain("any")]}))
    };
    let all = json!({"destination_port_range": {"start": 1, "end": 65_536}});
    let none = json!({"destination_port_range": {"start": 1, "end": 2}});
    assert_eq!(served(&Proxy::start(&config(all.clone())), "").as_deref(), Some("any"), "it is not asked");
    assert_eq!(served(&Proxy::start(&config(none.clone())), ""), None, "it is, and wants its header");
    let not = json!({"not_match": none});
    assert_eq!(served(&Proxy::start(&config(not.clone())), "").as_deref(), Some("any"));
    let both = json!({"and_match": {"rules": [all.clone(), {"not_match": all}]}});
    assert_eq!(served(&Proxy::start(&config(both)), ""), None);
}

#[test]
fn a_connection_to_an_upstream_comes_from_where_its_client_does() {
    let origin = Origin::start(|connection| {
        let peer = connection.stream().peer_addr().map(|peer| peer.to_string()).unwrap_or_default();
        connection.write(peer.as_bytes());
    });
    let source = json!({"bind_port": false, "mark": 0});
    let filter =
        extension("envoy.filters.listener.original_src", "filters.listener.original_src.v3.OriginalSrc", source);
    let config = Config::new()
        .tcp("tcp", json!({"cluster": "origin"}))
        .cluster("origin", &[origin.address])
        .overlay_listener("tcp", json!({"listener_filters": [introduced(), filter]}));
    let proxy = Proxy::start(&config);
    let mut client = RawClient::connect(proxy.address("tcp"));
    client.send(from_to("127.5.6.7:999", &origin.address.to_string()));
    let peer = client.read_to_end().unwrap_or_default();
    if peer.is_empty() {
        assert!(!may_be_transparent(), "the system allows it, and there is no connection");
        eprintln!("skipped: sockets may not be transparent here, which takes CAP_NET_ADMIN");
        return;
    }
    let peer = String::from_utf8(peer).unwrap();
    let (ip, port) = peer.rsplit_once(':').expect("an address");
    assert_eq!(ip, "127.5.6.7");
    assert_ne!(port, "999", "the port is the system's");
}

/// This process has the capability by which sockets may have foreign addresses (`CAP_NET_ADMIN`, of Linux number 12).
fn may_be_transparent() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap_or_default();
    u64::from_str_radix(line.trim(), 16).is_ok_and(|all| all & (1 << 12) != 0)
}
