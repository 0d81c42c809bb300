//! Settings of listeners that few set: connections that were meant for another one, what becomes of connections while the
//! proxy is not healthy, several paths at once.

use postrider_tests::get;
use postrider_tests::kit::config::{extension, socket_address};
use postrider_tests::kit::{Config, Proxy, RawClient, wait_until};
use serde_json::{Value, json};

/// By which a connection says where it was meant to go.
fn introduced() -> Value {
    let type_name = "filters.listener.proxy_protocol.v3.ProxyProtocol";
    let fields = json!({"allow_requests_without_proxy_protocol": true});
    extension("envoy.filters.listener.proxy_protocol", type_name, fields)
}

fn answers(body: &str) -> Value {
    let routes = json!([{
        "match": {"prefix": "/"}, "direct_response": {"status": 200, "body": {"inline_string": body}},
    }]);
    json!({"stat_prefix": body, "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": routes}]}})
}

/// Where nobody is bound.
fn at(host: &str, port: u16) -> Value {
    json!({"address": socket_address(host, port), "bind_to_port": false, "stat_prefix": format!("at{port}")})
}

#[test]
fn connections_go_to_the_listener_that_they_were_meant_for() {
    let config = Config::new()
        .http_named("front", answers("front"))
        .http_named("exact", answers("exact"))
        .http_named("any", answers("any"))
        .overlay_listener("front", json!({"use_original_dst": true, "listener_filters": [introduced()]}))
        .overlay_listener("exact", at("10.9.9.9", 81))
        .overlay_listener("any", at("0.0.0.0", 82));
    let proxy = Proxy::start(&config);
    let served = |introduction: &str| {
        let mut client = RawClient::connect(proxy.address("front"));
        client.send(introduction);
        client.exchange(get("/")).text().to_owned()
    };
    let meant = |address: &str, port: u16| format!("PROXY TCP4 1.1.1.1 {address} 1111 {port}\r\n");
    assert_eq!(served(&meant("10.9.9.9", 81)), "exact");
    assert_eq!(served(&meant("10.9.9.9", 82)), "any");
    assert_eq!(served(&meant("10.9.9.8", 81)), "front", "nobody is there");
    assert_eq!(served(""), "front");
    assert_eq!(proxy.stats().value("http.exact.downstream_cx_total"), 1);
    assert_eq!(proxy.stats().value("listener.at81.downstream_cx_total"), 1);
}

#[test]
fn connections_end_with_their_next_answer_while_the_proxy_is_not_healthy() {
    let config = Config::new()
        .http_named("both", answers("both"))
        .http_named("modified", answers("modified"))
        .overlay_listener("modified", json!({"drain_type": "MODIFY_ONLY"}));
    let proxy = Proxy::start(&config);
    let connection = |client: &mut RawClient| client.exchange(get("/")).header("connection").to_owned();
    let (mut both, mut modified) =
        (RawClient::connect(proxy.address("both")), RawClient::connect(proxy.address("modified")));
    assert_eq!((connection(&mut both), connection(&mut modified)), (String::new(), String::new()));
    assert_eq!(proxy.admin_post("/healthcheck/fail").status, 200);
    let fresh = || connection(&mut RawClient::connect(proxy.address("both")));
    wait_until("the order to arrive", || fresh() == "close");
    assert_eq!(connection(&mut both), "close");
    assert!(both.closed());
    assert_eq!(connection(&mut modified), "");
    assert_eq!(proxy.admin_post("/healthcheck/ok").status, 200);
    wait_until("the order to arrive", || fresh().is_empty());
}

/// Sockets of MPTCP on this system; `None` where it has none of that.
fn multipath_sockets() -> Option<u64> {
    let protocols = std::fs::read_to_string("/proc/net/protocols").ok()?;
    let line = protocols.lines().find(|line| line.starts_with("MPTCP "))?;
    line.split_whitespace().nth(2)?.parse().ok()
}

#[test]
fn a_listener_for_several_paths_serves_clients_with_one() {
    let Some(before) = multipath_sockets() else {
        eprintln!("skipped: this system has no MPTCP");
        return;
    };
    let proxy = Proxy::start(&Config::new().http(answers("x")).overlay_listener("http", json!({"enable_mptcp": true})));
    assert_eq!(proxy.get("/").text(), "x");
    assert!(multipath_sockets() > Some(before), "its socket is one of TCP alone");
}
