//! Go libraries of every kind and age side by side in one process, each with a part of the same traffic.

use postrider_tests::golang::{bridged, filter, network_filter, specifier};
use postrider_tests::htnn::plugins;
use postrider_tests::kit::config::router;
use postrider_tests::kit::origin::OriginConnection;
use postrider_tests::kit::proxy::{Launch, accepted};
use postrider_tests::kit::{Config, Origin, Proxy, RawClient, wait_until};
use postrider_tests::{ask, envoy};
use serde_json::json;

fn line(connection: &mut OriginConnection) -> String {
    let mut line = Vec::new();
    while let Some(byte) = connection.read_exact(1).filter(|byte| byte != b"\n") {
        line.extend(byte);
    }
    String::from_utf8(line).unwrap()
}

/// Requests pass filters of four releases and one of HTNN's, and another library chooses the cluster: one that a third speaks
/// to in lines, or one that does not. Connections of two more listeners are filtered.
fn config(lines: &Origin, plain: &Origin, mark: &str) -> Config {
    let set = |key: &str| json!({"decode_headers": [{"op": "set", "key": key, "value": mark}]});
    let chooser = specifier("specifier31", "chooser", &json!({"lines": "lines"}));
    let http = json!({
        "http_filters": [
            filter("sdk31", "script", &set("x-31")),
            filter("sdk32", "script", &set("x-32")),
            filter("htnn", "fm", &plugins(&[("celScript", json!({"allowIf": "request.header('x-out') == ''"}))])),
            filter("sdk33", "script", &set("x-33")),
            filter("sdk38", "script", &set("x-38")),
            router(),
        ],
        "route_config": {"name": "table", "virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [
            {"match": {"prefix": "/"}, "route": {"inline_cluster_specifier_plugin": chooser}},
        ]}]},
    });
    let says = |library: &str| json!({"filter_chains": [{"filters": [network_filter(library, "script", &json!({"says": format!("{mark}\n")}), true)]}]});
    Config::new()
        .http(http)
        .cluster("default", &[plain.address])
        .cluster_with("lines", &[lines.address], bridged("bridge38", "script", &json!({"greeting": mark})))
        .listener("old", says("network31"))
        .listener("new", says("network38"))
}

#[test]
fn libraries_of_every_kind_serve_side_by_side_and_are_configured_anew_together() {
    if envoy() {
        return;
    }
    let lines = Origin::start(|connection| {
        let said = line(connection);
        connection.write(format!("200 x-a=1 [{said}]\n").as_bytes());
    });
    let plain = Origin::echo("plain");
    let launch = Launch { concurrency: 2, ..Launch::default() };
    let mut proxy = Proxy::start_with(&config(&lines, &plain, "one"), launch);
    let check = |proxy: &Proxy, mark: &str| {
        plain.forget();
        let answer = ask(proxy, "GET", "test", "/a", "");
        let arrived = plain.requests().remove(0);
        let marks = ["x-31", "x-32", "x-33", "x-38"].map(|name| arrived.header(name).to_owned());
        assert_eq!((answer.status, marks), (200, [0; 4].map(|_| mark.to_owned())), "{answer:?}");
        assert_eq!(ask(proxy, "GET", "test", "/a", "x-out: 1\r\n").status, 403);
        let answer = ask(proxy, "GET", "test", "/b", "x-to: lines\r\n");
        assert_eq!((answer.status, answer.text()), (200, format!("[{mark} GET test /b table lines]\n").as_str()));
        for listener in ["old", "new"] {
            let mut client = RawClient::connect(proxy.address(listener));
            assert_eq!(client.read_exact(4).unwrap(), format!("{mark}\n").as_bytes());
            client.send("echo more\n");
            assert_eq!(client.read_exact(5).unwrap(), b"more\n");
        }
    };
    for _ in 0..4 {
        check(&proxy, "one");
    }
    let mut old = RawClient::connect(proxy.address("old"));
    assert_eq!(old.read_exact(4).unwrap(), b"one\n");
    let next = config(&lines, &plain, "two").to_yaml();
    assert!(accepted(&proxy.reload(next)));
    wait_until("the new configuration", || {
        RawClient::connect(proxy.address("new")).read_exact(4).is_ok_and(|said| said == b"two\n")
    });
    for _ in 0..4 {
        check(&proxy, "two");
    }
    old.send("echo still\n");
    assert_eq!(old.read_exact(6).unwrap(), b"still\n");
}
