//! The PROXY protocol with upstreams: what they are told of the client, and who shares a connection then.

use postrider_tests::h2_client::H2Client;
use postrider_tests::kit::config::{extension, overlay, upstream_http_options};
use postrider_tests::kit::{Config, Origin, Proxy, RawClient, wait_until};
use postrider_tests::tls::{Authority, downstream, upstream};
use postrider_tests::{envoy, get};
use serde_json::{Value, json};
use std::net::SocketAddr;

/// The transport of a cluster that introduces its connections; `inner` is what follows the header.
fn introducing(config: Value, inner: Value) -> Value {
    extension(
        "envoy.transport_sockets.upstream_proxy_protocol",
        "transport_sockets.proxy_protocol.v3.ProxyProtocolUpstreamTransport",
        json!({"config": config, "transport_socket": inner}),
    )
}

fn raw() -> Value {
    extension("envoy.transport_sockets.raw_buffer", "transport_sockets.raw_buffer.v3.RawBuffer", json!({}))
}

/// A proxy behind the one under test, which takes the PROXY protocol and tells what it heard.
fn back(chain: Value) -> Proxy {
    let text = "%DOWNSTREAM_REMOTE_ADDRESS% %DOWNSTREAM_LOCAL_ADDRESS% %CONNECTION_ID%";
    let routes = json!([{
        "match": {"prefix": "/"},
        "direct_response": {"status": 200, "body": {"inline_string": "x"}},
        "response_headers_to_add": [{"header": {"key": "x-told", "value": text}}],
    }]);
    let filter = extension(
        "envoy.filters.listener.proxy_protocol",
        "filters.listener.proxy_protocol.v3.ProxyProtocol",
        json!({}),
    );
    // So that it tells of the connection, whatever the request says.
    let hcm = json!({"use_remote_address": true, "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": routes}]}});
    let config = Config::new().http(hcm).overlay_listener("http", json!({"listener_filters": [filter]}));
    Proxy::start(&config.overlay_chain("http", chain))
}

fn front(back: &Proxy, transport: Value, fields: Value) -> Proxy {
    let mut cluster = json!({"transport_socket": transport});
    overlay(&mut cluster, fields);
    let routes = json!([{"match": {"prefix": "/"}, "route": {"cluster": "back"}}]);
    Proxy::start(&Config::routes(routes).cluster_with("back", &[back.address("http")], cluster))
}

fn told(client: &mut RawClient) -> (String, String) {
    let response = client.exchange(get("/"));
    let text = response.header("x-told").to_owned();
    let (ends, connection) = text.rsplit_once(' ').unwrap_or_else(|| panic!("{response:?}"));
    (ends.to_owned(), connection.to_owned())
}

fn http2() -> Value {
    upstream_http_options(
        json!({"explicit_http_config": {"http_protocol_options": null, "http2_protocol_options": {}}}),
    )
}

#[test]
fn an_upstream_is_told_the_client_and_each_client_has_connections_of_its_own() {
    let back = back(json!({}));
    for version in ["V1", "V2"] {
        for options in [json!({}), http2()] {
            let proxy = front(&back, introducing(json!({"version": version}), raw()), options);
            let mut seen = Vec::new();
            let mut clients = [proxy.client(), proxy.client()];
            for client in &mut clients {
                let ends = format!("{} {}", client.local_addr(), proxy.address("http"));
                let first = told(client);
                assert_eq!(first.0, ends, "{version}");
                assert_eq!(told(client), first, "the same client stays on its connection");
                seen.push(first.1);
            }
            assert_ne!(seen[0], seen[1], "{version}: another client has another connection");
        }
    }
}

#[test]
fn what_a_client_claims_in_a_header_is_not_what_upstreams_are_told() {
    let back = back(json!({}));
    let proxy = front(&back, introducing(json!({"version": "V2"}), raw()), json!({}));
    let mut client = proxy.client();
    let response = client.exchange("GET / HTTP/1.1\r\nhost: test\r\nx-forwarded-for: 9.9.9.9\r\n\r\n");
    assert!(response.header("x-told").starts_with(&client.local_addr().to_string()), "{response:?}");
}

#[test]
fn streams_of_one_client_share_a_connection() {
    let back = back(json!({}));
    let proxy = front(&back, introducing(json!({"version": "V2"}), raw()), http2());
    let mut client = H2Client::connect(proxy.address("http"));
    let told: Vec<String> = (0..3).map(|_| client.get("/").header("x-told").to_owned()).collect();
    assert!(!told[0].is_empty() && told.iter().all(|each| *each == told[0]), "{told:?}");
}

#[test]
fn the_header_goes_before_tls() {
    let authority = Authority::new("root");
    let identity = authority.issue(&["back.test"]);
    let back = back(json!({"transport_socket": downstream(&[identity.inline()], json!({}))}));
    let context =
        json!({"common_tls_context": {"validation_context": {"trusted_ca": {"inline_string": authority.pem()}}}});
    for version in ["V1", "V2"] {
        let proxy = front(&back, introducing(json!({"version": version}), upstream(context.clone())), json!({}));
        let mut client = proxy.client();
        assert_eq!(told(&mut client).0, format!("{} {}", client.local_addr(), proxy.address("http")));
    }
}

fn tcp(origin: SocketAddr, config: Value) -> Proxy {
    let fields = json!({"transport_socket": introducing(config, raw())});
    Proxy::start(&Config::new().tcp("tcp", json!({"cluster": "origin"})).cluster_with("origin", &[origin], fields))
}

#[test]
fn tcp_connections_begin_with_it() {
    let origin = Origin::tcp_echo("");
    let proxy = tcp(origin.address, json!({"version": "V1"}));
    let mut client = RawClient::connect(proxy.address("tcp"));
    let (from, to) = (client.local_addr(), proxy.address("tcp"));
    let line = format!("PROXY TCP4 {} {} {} {}\r\n", from.ip(), to.ip(), from.port(), to.port());
    // It does not wait for the client's first word.
    assert_eq!(client.read_exact(line.len()).unwrap(), line.as_bytes());
    client.send("hello");
    assert_eq!(client.read_exact(5).unwrap(), b"hello");

    let origin = Origin::tcp_echo("");
    let added = json!([{"type": 0xe1, "value": "YWJj"}]);
    let proxy = tcp(origin.address, json!({"version": "V2", "added_tlvs": added}));
    let mut client = RawClient::connect(proxy.address("tcp"));
    let header = client.read_exact(16 + 12 + 6).unwrap();
    assert_eq!(header[12..16], [0x21, 0x11, 0, 18]);
    assert_eq!(header[16..20], [127, 0, 0, 1]);
    assert_eq!(header[24..26], client.local_addr().port().to_be_bytes());
    assert_eq!(header[28..], [0xe1, 0, 3, b'a', b'b', b'c']);
}

#[test]
fn health_checks_speak_for_the_proxy_itself() {
    for (config, in_check, first) in [
        (json!({"version": "V2"}), false, &b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0GET /health"[..]),
        (json!({"version": "V1"}), false, b"PROXY TCP4 127.0.0.1 127.0.0.1 "),
        (json!({"version": "V2"}), true, b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0PING"),
        (json!({"version": "V1"}), true, b"PROXY TCP4 127.0.0.1 127.0.0.1 "),
    ] {
        let origin = Origin::silent();
        let mut check = json!({"timeout": "2s", "interval": "2s", "unhealthy_threshold": 1, "healthy_threshold": 1});
        let mut fields = json!({});
        if in_check {
            check["tcp_health_check"] = json!({
                "proxy_protocol_config": config, "send": {"text": "50494e47"}, "receive": [{"text": "50"}],
            });
        } else {
            check["http_health_check"] = json!({"path": "/health"});
            fields["transport_socket"] = introducing(config, raw());
        }
        fields["health_checks"] = json!([check]);
        let routes = json!([{"match": {"prefix": "/"}, "route": {"cluster": "origin"}}]);
        let _proxy = std::thread::scope(|scope| {
            let starting =
                scope.spawn(|| Proxy::start(&Config::routes(routes).cluster_with("origin", &[origin.address], fields)));
            wait_until("a check", || origin.connection_count() > 0 && origin.bytes(0).len() >= first.len());
            starting.join().unwrap()
        });
        assert!(origin.bytes(0).starts_with(first), "{:?}", String::from_utf8_lossy(&origin.bytes(0)));
    }
}

#[test]
fn a_connection_that_waits_for_its_client_gives_way_at_the_limit() {
    if envoy() {
        // Each client has a pool of its own there, which may always have one connection.
        return;
    }
    let back = back(json!({}));
    let limit = json!({"circuit_breakers": {"thresholds": [{"max_connections": 1}]}});
    let proxy = front(&back, introducing(json!({"version": "V2"}), raw()), limit);
    let mut clients = [proxy.client(), proxy.client()];
    for _ in 0..2 {
        for client in &mut clients {
            assert_eq!(told(client).0, format!("{} {}", client.local_addr(), proxy.address("http")));
        }
    }
}
