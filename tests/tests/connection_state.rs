//! Network filters that say where a connection goes and who it is: sni_cluster and set_filter_state.

use postrider_tests::kit::config::{extension, file_access_log, http_filter, tcp_filter};
use postrider_tests::kit::{Config, Origin, Proxy, TempDir, wait_until};
use postrider_tests::tls::{Authority, Client, downstream, tls_inspector};
use postrider_tests::{envoy, get};
use serde_json::{Value, json};

fn sni_cluster() -> Value {
    extension("envoy.filters.network.sni_cluster", "filters.network.sni_cluster.v3.SniCluster", json!({}))
}

fn set_state(fields: Value) -> Value {
    extension("envoy.filters.network.set_filter_state", "filters.network.set_filter_state.v3.Config", fields)
}

fn object(key: &str, format: &str) -> Value {
    let mut object = json!({
        "object_key": key, "format_string": {"text_format_source": {"inline_string": format}},
    });
    if !key.starts_with("envoy.") {
        object["factory_key"] = json!("envoy.string");
    }
    object
}

/// The clusters `a.test` and `b.test`, each of an origin that says its name first.
fn named(config: Config, origins: &[Origin]) -> Config {
    let names = ["a.test", "b.test"];
    names.iter().zip(origins).fold(config, |config, (name, origin)| config.cluster(name, &[origin.address]))
}

fn log(directory: &TempDir, line: &str) -> Value {
    let text = json!({"log_format": {"text_format_source": {"inline_string": format!("{line}\n")}}});
    json!([file_access_log(&directory.path().join("log"), text)])
}

fn line(directory: &TempDir, number: usize) -> String {
    let read = || std::fs::read_to_string(directory.path().join("log")).unwrap_or_default();
    wait_until("the access log", || read().lines().count() >= number);
    read().lines().nth(number - 1).unwrap().to_owned()
}

#[test]
fn a_connection_goes_to_the_cluster_of_the_name_that_was_asked_for() {
    let origins = [Origin::tcp_echo("I am a"), Origin::tcp_echo("I am b")];
    let authority = Authority::new("root");
    let identity = authority.issue(&["a.test", "b.test", "c.test"]);
    let directory = TempDir::new();
    let proxy_to = json!({
        "stat_prefix": "x", "cluster": "a.test",
        "access_log": log(&directory, "%UPSTREAM_CLUSTER% %FILTER_STATE(envoy.tcp_proxy.cluster:PLAIN)%"),
    });
    let chain = json!({
        "filters": [sni_cluster(), tcp_filter(proxy_to)],
        "transport_socket": downstream(&[identity.inline()], json!({})),
    });
    let listener = json!({"listener_filters": [tls_inspector()], "filter_chains": [chain]});
    let proxy = Proxy::start(&named(Config::new().listener("tcp", listener), &origins));
    let client = Client::trusting(&authority);
    for name in ["a", "b"] {
        let mut tls = client.fresh().connect(proxy.address("tcp"), &format!("{name}.test"));
        assert_eq!(tls.read_exact(6).unwrap(), format!("I am {name}").as_bytes());
    }
    // Envoy closes it before TLS is agreed on.
    let nowhere = client.fresh().try_connect(proxy.address("tcp"), "c.test");
    assert!(nowhere.map_or(true, |mut tls| tls.closed()));
    assert_eq!(proxy.stats().value("tcp.x.downstream_cx_no_route"), 1);
    wait_until("the lines", || line(&directory, 3).len() > 1);
    let mut lines = [1, 2, 3].map(|number| line(&directory, number));
    lines.sort();
    assert_eq!(lines, ["- c.test", "a.test a.test", "b.test b.test"]);
    // Without a name, the proxy's own cluster is meant.
    let mut nameless = Client::trusting(&authority).nameless().connect(proxy.address("tcp"), "a.test");
    assert_eq!(nameless.read_exact(6).unwrap(), b"I am a");
}

#[test]
fn objects_of_a_connection_lead_it_and_reach_its_log() {
    let origins = [Origin::tcp_echo("I am a"), Origin::tcp_echo("I am b")];
    let directory = TempDir::new();
    let mut skipped = object("who", "");
    skipped["skip_if_empty"] = json!(true);
    let state = set_state(json!({
        "on_new_connection": [object("envoy.tcp_proxy.cluster", "b.test"), object("who", "%CONNECTION_ID%x"), skipped],
        "on_downstream_tls_handshake": [object("then", "(%FILTER_STATE(who:PLAIN)%)")],
    }));
    let proxy_to = json!({
        "cluster": "a.test", "access_log": log(&directory, "%FILTER_STATE(then:PLAIN)% %CONNECTION_ID%"),
    });
    let chain = json!({"filters": [state, tcp_filter(proxy_to)]});
    let proxy = Proxy::start(&named(Config::new().listener("tcp", json!({"filter_chains": [chain]})), &origins));
    let mut client = postrider_tests::kit::RawClient::connect(proxy.address("tcp"));
    assert_eq!(client.read_exact(6).unwrap(), b"I am b");
    drop(client);
    let (noted, id) = line(&directory, 1).split_once(' ').map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
    assert_eq!(noted, format!("({id}x)"));
}

#[test]
fn requests_find_the_objects_of_their_connection() {
    let authority = Authority::new("root");
    let identity = authority.issue(&["a.test"]);
    let directory = TempDir::new();
    let state = set_state(json!({
        "on_new_connection": [object("early", "%DOWNSTREAM_TLS_CIPHER%")],
        "on_downstream_tls_handshake": [object("late", "%DOWNSTREAM_TLS_CIPHER%")],
    }));
    let manager = json!({
        "stat_prefix": "x",
        "access_log": log(&directory, "%FILTER_STATE(early:PLAIN)% %FILTER_STATE(late:PLAIN)% %RESPONSE_CODE%"),
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [
            {"match": {"prefix": "/", "filter_state": [{"key": "late", "string_match": {"prefix": "TLS_"}}]},
             "direct_response": {"status": 201}},
            {"match": {"prefix": "/"}, "direct_response": {"status": 202}},
        ]}]},
    });
    let chain = json!({
        "filters": [state, http_filter(manager)],
        "transport_socket": downstream(&[identity.inline()], json!({})),
    });
    let proxy = Proxy::start(&Config::new().listener("http", json!({"filter_chains": [chain]})));
    let mut client = Client::trusting(&authority).connect(proxy.address("http"), "a.test");
    for number in [1, 2] {
        assert_eq!(client.exchange(get("/")).status, 201);
        let line = line(&directory, number);
        // In Envoy, nothing is agreed on yet when the first object is made.
        let early = if envoy() { "- TLS_" } else { "TLS_" };
        assert!(line.starts_with(early) && line.contains(" TLS_") && line.ends_with(" 201"), "{line}");
    }
}

#[test]
fn weights_decide_whatever_name_was_noted_or_asked_for() {
    let origins = [Origin::tcp_echo("I am a"), Origin::tcp_echo("I am b")];
    let state = set_state(json!({"on_new_connection": [object("envoy.tcp_proxy.cluster", "b.test")]}));
    let weighted = json!({"stat_prefix": "x", "weighted_clusters": {"clusters": [{"name": "a.test", "weight": 1}]}});
    let chain = json!({"filters": [state, tcp_filter(weighted)]});
    let proxy = Proxy::start(&named(Config::new().listener("tcp", json!({"filter_chains": [chain]})), &origins));
    let mut client = postrider_tests::kit::RawClient::connect(proxy.address("tcp"));
    assert_eq!(client.read_exact(6).unwrap(), b"I am a");
}
