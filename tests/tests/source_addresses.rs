//! Where connections to clusters come from.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::thread;

use postrider_tests::get;
use postrider_tests::kit::{Config, Proxy, RawClient};
use serde_json::{Value, json};

/// Answers one request on each connection, and remembers who asked.
struct Asked {
    address: SocketAddr,
    peers: Arc<Mutex<Vec<SocketAddr>>>,
}

impl Asked {
    fn start(ip: &str) -> Asked {
        let listener = TcpListener::bind((ip, 0)).expect("bind");
        let address = listener.local_addr().expect("address");
        let peers = Arc::<Mutex<Vec<SocketAddr>>>::default();
        let seen = peers.clone();
        // As long as the test runs: nobody waits for it.
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.expect("accept");
                seen.lock().unwrap().push(stream.peer_addr().expect("peer"));
                let (mut head, mut room) = (Vec::new(), [0; 4096]);
                while !head.ends_with(b"\r\n\r\n") {
                    match stream.read(&mut room) {
                        Ok(length) if length > 0 => head.extend_from_slice(&room[..length]),
                        _ => break,
                    }
                }
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
            }
        });
        Asked { address, peers }
    }

    fn from(&self) -> Vec<String> {
        self.peers.lock().unwrap().iter().map(|peer| peer.ip().to_string()).collect()
    }
}

fn address(ip: &str) -> Value {
    json!({"address": ip, "port_value": 0})
}

/// The status of a request to `origin`.
fn status(origin: &Asked, cluster: Value, whole: Value) -> u16 {
    let routes = json!([{"match": {"prefix": "/"}, "route": {"cluster": "origin"}}]);
    let config = Config::routes(routes).cluster_with("origin", &[origin.address], cluster).overlay(whole);
    let proxy = Proxy::start(&config);
    RawClient::connect(proxy.address("http")).exchange(get("/")).status
}

fn bound(bind: Value) -> Value {
    json!({"upstream_bind_config": bind})
}

#[test]
fn the_address_of_the_hosts_family_is_taken() {
    let (v4, v6) = (Asked::start("127.0.0.1"), Asked::start("::1"));
    let selector = json!({
        "name": "envoy.upstream.local_address_selector.default_local_address_selector",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.config.upstream.local_address_selector.v3.DefaultLocalAddressSelector",
        },
    });
    for bind in [
        json!({"source_address": address("::1"), "extra_source_addresses": [{"address": address("127.0.0.7")}]}),
        json!({"source_address": address("127.0.0.7"), "additional_source_addresses": [address("::1")]}),
        json!({
            "source_address": address("127.0.0.7"),
            "additional_source_addresses": [address("::1")],
            "local_address_selector": selector,
        }),
    ] {
        assert_eq!(status(&v4, bound(bind.clone()), json!({})), 200, "{bind}");
        assert_eq!(status(&v6, bound(bind.clone()), json!({})), 200, "{bind}");
    }
    assert_eq!((v4.from(), v6.from()), (vec!["127.0.0.7".to_owned(); 3], vec!["::1".to_owned(); 3]));
}

#[test]
fn a_source_of_the_other_family_serves_no_request() {
    let v6 = Asked::start("::1");
    assert_eq!(status(&v6, bound(json!({"source_address": address("127.0.0.7")})), json!({})), 503);
}

#[test]
fn options_of_an_address_take_the_place_of_those_of_all() {
    let v6 = Asked::start("::1");
    // Nobody knows this option.
    let broken = json!([{"level": 1, "name": 9999, "int_value": 1}]);
    for (own, expected) in [(json!(null), 503), (json!({}), 200)] {
        let mut extra = json!({"address": address("::1")});
        if !own.is_null() {
            extra["socket_options"] = own;
        }
        let bind = json!({
            "source_address": address("127.0.0.7"), "extra_source_addresses": [extra], "socket_options": broken,
        });
        assert_eq!(status(&v6, bound(bind), json!({})), expected);
    }
}

#[test]
fn clusters_that_say_nothing_are_bound_as_all_are() {
    let v4 = Asked::start("127.0.0.1");
    let everywhere = json!({"cluster_manager": bound(json!({"source_address": address("127.0.0.8")}))});
    assert_eq!(status(&v4, json!({}), everywhere.clone()), 200);
    assert_eq!(status(&v4, bound(json!({"source_address": address("127.0.0.7")})), everywhere), 200);
    assert_eq!(v4.from(), ["127.0.0.8", "127.0.0.7"]);
}
