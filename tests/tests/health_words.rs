//! Health checks in the words of Thrift, and by datagrams.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use postrider_tests::kit::config::{Config, overlay};
use postrider_tests::kit::{Origin, Proxy, net, wait_until};
use serde_json::{Value, json};

fn proxy(hosts: &[SocketAddr], name: &str, kind: &str, fields: Value) -> Proxy {
    let mut config = json!({"@type": format!("type.googleapis.com/envoy.extensions.health_checkers.{kind}")});
    overlay(&mut config, fields);
    let check = json!({
        "timeout": "1s",
        "interval": "0.03s",
        "no_traffic_interval": "0.03s",
        "unhealthy_threshold": 1,
        "healthy_threshold": 1,
        "custom_health_check": {"name": format!("envoy.health_checkers.{name}"), "typed_config": config},
    });
    let routes = json!([{"match": {"prefix": "/"}, "route": {"cluster": "origin"}}]);
    Proxy::start(&Config::routes(routes).cluster_with("origin", hosts, json!({"health_checks": [check]})))
}

#[track_caller]
fn await_flags(proxy: &Proxy, address: SocketAddr, wanted: &str) {
    wait_until(&format!("{wanted} at {address}"), || {
        let text = proxy.admin_get("/clusters").text().to_owned();
        let start = format!("origin::{address}::health_flags::");
        text.lines().find_map(|line| line.strip_prefix(&start)) == Some(wanted)
    });
}

/// Reads messages in frames and answers each with the same one; what was asked is kept.
fn thrift(answer: &'static [u8]) -> (Origin, Arc<Mutex<Vec<Vec<u8>>>>) {
    let asked = Arc::<Mutex<Vec<Vec<u8>>>>::default();
    let seen = asked.clone();
    let origin = Origin::start(move |connection| {
        while let Some(length) = connection.read_exact(4) {
            let length = u32::from_be_bytes(length.try_into().expect("4 bytes"));
            let Some(message) = connection.read_exact(length as usize) else { return };
            seen.lock().unwrap().push(message);
            let length = u32::try_from(answer.len()).expect("a short answer").to_be_bytes();
            connection.write(&[&length[..], answer].concat());
        }
    });
    (origin, asked)
}

#[test]
fn a_server_of_thrift_is_well_when_it_replies() {
    let (good, asked) = thrift(b"\x80\x01\0\x02\0\0\0\x04ping\0\0\0\0\0");
    let (unknown, _) = thrift(b"\x80\x01\0\x03\0\0\0\x04ping\0\0\0\0\x0b\0\x01\0\0\0\x01x\0");
    let dead = net::refusing_address();
    let fields = json!({"method_name": "ping", "transport": "FRAMED", "protocol": "BINARY"});
    let proxy = proxy(&[good.address, unknown.address, dead], "thrift", "thrift.v3.Thrift", fields);
    await_flags(&proxy, good.address, "healthy");
    await_flags(&proxy, unknown.address, "/failed_active_hc");
    await_flags(&proxy, dead, "/failed_active_hc");
    wait_until("checks on one connection", || asked.lock().unwrap().len() >= 3);
    assert_eq!(good.connection_count(), 1);
    let first = asked.lock().unwrap()[0].clone();
    assert!(first.starts_with(b"\x80\x01\0\x01\0\0\0\x04ping") && first.ends_with(b"\0"), "{first:?}");
}

#[test]
fn a_server_of_datagrams_is_well_when_it_answers_with_the_right_one() {
    let answering = |answers: &'static [&'static [u8]]| {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("bind");
        let address = socket.local_addr().expect("an address");
        let asked = Arc::new(AtomicUsize::new(0));
        let seen = asked.clone();
        // As long as the test runs: nobody waits for it.
        std::thread::spawn(move || {
            let mut room = [0; 64];
            while let Ok((length, peer)) = socket.recv_from(&mut room) {
                assert_eq!(&room[..length], b"PING");
                seen.fetch_add(1, Ordering::SeqCst);
                for answer in answers {
                    let _ = socket.send_to(answer, peer);
                }
            }
        });
        (address, asked)
    };
    let (good, asked) = answering(&[b"PONGPONG", b"", b"PONG"]);
    let (wrong, _) = answering(&[b"PON", b"PONG "]);
    let fields = json!({"send": {"text": "50494E47"}, "receive": {"text": "504F4E47"}});
    let proxy = proxy(&[good, wrong], "udp", "udp.v3.UdpHealthCheck", fields);
    await_flags(&proxy, good, "healthy");
    await_flags(&proxy, wrong, "/failed_active_hc/active_hc_timeout");
    wait_until("further checks", || asked.load(Ordering::SeqCst) >= 3);
}
