//! Health checks in the words of Redis.

use std::net::SocketAddr;

use postrider_tests::kit::config::Config;
use postrider_tests::kit::{Proxy, net, wait_until};
use postrider_tests::redis::server;
use serde_json::{Value, json};

fn proxy(hosts: &[SocketAddr], redis: Value) -> Proxy {
    let mut config = json!({"@type": "type.googleapis.com/envoy.extensions.health_checkers.redis.v3.Redis"});
    postrider_tests::kit::config::overlay(&mut config, redis);
    let check = json!({
        "timeout": "1s",
        "interval": "0.03s",
        "no_traffic_interval": "0.03s",
        "unhealthy_threshold": 3,
        "healthy_threshold": 1,
        "custom_health_check": {"name": "envoy.health_checkers.redis", "typed_config": config},
    });
    let routes = json!([{"match": {"prefix": "/"}, "route": {"cluster": "origin"}}]);
    Proxy::start(&Config::routes(routes).cluster_with("origin", hosts, json!({"health_checks": [check]})))
}

fn flags(proxy: &Proxy, address: SocketAddr) -> String {
    let text = proxy.admin_get("/clusters").text().to_owned();
    let start = format!("origin::{address}::health_flags::");
    text.lines().find_map(|line| line.strip_prefix(&start)).unwrap_or_default().to_owned()
}

#[track_caller]
fn await_flags(proxy: &Proxy, address: SocketAddr, wanted: &str) {
    let mut last = String::new();
    wait_until(&format!("{wanted} at {address}"), || {
        last = flags(proxy, address);
        last == wanted
    });
}

#[test]
fn a_server_that_answers_ping_is_well() {
    let good = server(|words| if words == ["PING"] { "+PONG\r\n".to_owned() } else { "-ERR\r\n".to_owned() });
    let locked = server(|_| "-NOAUTH Authentication required.\r\n".to_owned());
    let dead = net::refusing_address();
    let proxy = proxy(&[good.address, locked.address, dead], json!({}));
    await_flags(&proxy, good.address, "healthy");
    await_flags(&proxy, locked.address, "/failed_active_hc");
    await_flags(&proxy, dead, "/failed_active_hc");
    wait_until("checks on one connection", || good.all_bytes().len() >= 3 * 14);
    assert_eq!(good.connection_count(), 1);
}

#[test]
fn a_key_takes_a_server_out_of_service() {
    let up = server(|words| if words == ["EXISTS", "down"] { ":0\r\n".to_owned() } else { ":1\r\n".to_owned() });
    let down = server(|words| if words == ["EXISTS", "down"] { ":1\r\n".to_owned() } else { ":0\r\n".to_owned() });
    let proxy = proxy(&[up.address, down.address], json!({"key": "down"}));
    await_flags(&proxy, up.address, "healthy");
    await_flags(&proxy, down.address, "/failed_active_hc");
    assert!(proxy.stats().value("cluster.origin.health_check.redis.exists_failure") > 0);
}
