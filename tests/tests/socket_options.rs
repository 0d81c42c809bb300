//! Options of sockets by the system's numbers: on listeners and on the connections of a cluster.

use postrider_tests::get;
use postrider_tests::kit::{Config, Origin, Proxy, RawClient, proxy, wait_until};
use serde_json::{Value, json};

/// TCP_DEFER_ACCEPT of Linux: a connection counts when its client has said something.
const DEFER_ACCEPT: (u32, u32) = (6, 9);
const SOL_SOCKET: u32 = 1;
const SO_RCVBUF: u32 = 8;

fn option((level, name): (u32, u32), fields: Value) -> Value {
    let mut option = json!({"level": level, "name": name});
    for (key, value) in fields.as_object().unwrap() {
        option[key] = value.clone();
    }
    option
}

fn answering(options: Value) -> Config {
    let routes = json!([{"match": {"prefix": "/"}, "direct_response": {"status": 200}}]);
    Config::routes(routes).overlay_listener("http", json!({"socket_options": options, "stat_prefix": "in"}))
}

#[test]
fn an_option_of_a_listener_reaches_the_system() {
    let value = json!({"int_value": 30});
    let bytes = json!({"buf_value": "HgAAAA==", "state": "STATE_LISTENING"});
    for fields in [value, bytes] {
        let proxy = Proxy::start(&answering(json!([option(DEFER_ACCEPT, fields)])));
        let silent = proxy.client();
        assert_eq!(proxy.get("/").status, 200);
        wait_until("the other one", || proxy.stats().value("listener.in.downstream_cx_total") >= 1);
        assert_eq!(proxy.stats().value("listener.in.downstream_cx_total"), 1, "the silent one is not there yet");
        let mut silent = silent;
        assert_eq!(silent.exchange(get("/")).status, 200);
        assert_eq!(proxy.stats().value("listener.in.downstream_cx_total"), 2);
    }
}

#[test]
fn one_that_the_system_does_not_know_keeps_the_listener_from_starting() {
    let directory = postrider_tests::kit::TempDir::new();
    let config = answering(json!([option((SOL_SOCKET, 9999), json!({"int_value": 1}))]));
    let path = directory.write("config.yaml", config.to_yaml());
    let arguments: &[&str] = match postrider_tests::envoy() {
        true => &["--use-dynamic-base-id", "-c"],
        false => &["run", "-c"],
    };
    let ended = proxy::run(&[arguments, &[path.to_str().unwrap()]].concat());
    assert!(ended.code != Some(0), "{}", ended.stderr);
}

#[test]
fn options_hold_for_the_connections_of_a_cluster() {
    let origin = Origin::echo("origin");
    for (name, status) in [(SO_RCVBUF, 200), (9999, 503)] {
        let options = json!([option((SOL_SOCKET, name), json!({"int_value": 9000}))]);
        let routes = json!([{"match": {"prefix": "/"}, "route": {"cluster": "origin"}}]);
        let fields = json!({"upstream_bind_config": {"socket_options": options}});
        let proxy = Proxy::start(&Config::routes(routes).cluster_with("origin", &[origin.address], fields));
        assert_eq!(RawClient::connect(proxy.address("http")).exchange(get("/")).status, status, "{name}");
    }
}
