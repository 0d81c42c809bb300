//! The PROXY protocol in front of HTTP, TLS and TCP: who a client is then, and what becomes of headers that are none.

use postrider_tests::h2_frames::{self as raw, Frames};
use postrider_tests::kit::config::{extension, file_access_log, http_filter};
use postrider_tests::kit::{Config, Origin, Proxy, RawClient, TempDir, wait_until};
use postrider_tests::tls::{Authority, Client, TlsClient, downstream, tls_inspector};
use postrider_tests::{envoy, get};
use serde_json::{Value, json};
use std::io::Write;
use std::net::TcpStream;

const V1: &[u8] = b"PROXY TCP4 10.1.2.3 10.4.5.6 1111 2222\r\n";

fn v2(kind: u8, family: u8, content: &[u8]) -> Vec<u8> {
    let length = u16::try_from(content.len()).unwrap().to_be_bytes();
    [b"\r\n\r\n\0\r\nQUIT\n", &[kind, family][..], &length, content].concat()
}

/// `fd00::1` port 1 to `fd00::2` port 2, with a TLV.
fn six() -> Vec<u8> {
    let address = |last| [&[0xfd][..], &[0; 14], &[last]].concat();
    v2(0x21, 0x21, &[&address(1)[..], &address(2), &[0, 1, 0, 2], &[4, 0, 2, 9, 9]].concat())
}

fn filter(fields: Value) -> Value {
    extension("envoy.filters.listener.proxy_protocol", "filters.listener.proxy_protocol.v3.ProxyProtocol", fields)
}

/// Answers with who it thinks is there.
fn telling(name: &str) -> Value {
    let text = format!(
        "{name} %DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT% %DOWNSTREAM_LOCAL_ADDRESS% \
                        %DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT%"
    );
    let routes = json!([{
        "match": {"prefix": "/"},
        "direct_response": {"status": 200, "body": {"inline_string": "x"}},
        "response_headers_to_add": [{"header": {"key": "x-told", "value": text}}],
    }]);
    json!({"route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": routes}]}})
}

fn start(fields: Value) -> Proxy {
    let listener = json!({"listener_filters": [filter(fields)], "listener_filters_timeout": "0.5s"});
    Proxy::start(&Config::new().http(telling("")).overlay_listener("http", listener))
}

/// What the proxy tells a client that begins with `header`; empty when it is turned away.
fn told(proxy: &Proxy, header: &[u8]) -> String {
    let mut client = proxy.client();
    client.send([header, get("/").as_bytes()].concat());
    client.response("GET").map(|response| response.header("x-told").trim().to_owned()).unwrap_or_default()
}

/// Of the one listener, by the end of the name.
fn stat(proxy: &Proxy, name: &str) -> u64 {
    let stats = proxy.admin_get("/stats");
    let found = stats.text().lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": ")?.parse().ok());
    found.unwrap_or(0)
}

#[test]
fn a_client_is_who_the_proxy_in_front_says() {
    let proxy = start(json!({}));
    let own = format!("127.0.0.1 {} 127.0.0.1", proxy.address("http"));
    for (header, want) in [
        (V1.to_vec(), "10.1.2.3 10.4.5.6:2222 127.0.0.1"),
        (b"PROXY TCP6 fd00::1 fd00::2 1 2\r\n".to_vec(), "fd00::1 [fd00::2]:2 127.0.0.1"),
        (six(), "fd00::1 [fd00::2]:2 127.0.0.1"),
        (b"PROXY UNKNOWN\r\n".to_vec(), &own),
        (v2(0x20, 0, &[]), &own),
    ] {
        assert_eq!(told(&proxy, &header), want, "{header:02x?}");
    }
    // Cut anywhere, and the next requests of the connection.
    for header in [V1.to_vec(), six()] {
        let mut client = proxy.client();
        for byte in &header {
            client.send([*byte]);
        }
        for _ in 0..3 {
            let response = client.exchange(get("/"));
            assert!(response.header("x-told").ends_with(" 127.0.0.1"), "{response:?}");
            assert!(!response.header("x-told").starts_with("127"), "{response:?}");
        }
    }
    assert_eq!((stat(&proxy, "proxy_proto.versions.v1.found"), stat(&proxy, "proxy_proto.versions.v2.found")), (4, 3));
}

#[test]
fn what_is_no_header_is_turned_away_and_counted() {
    let proxy = start(json!({}));
    let malformed: [&[u8]; 4] = [
        b"PROXY TCP4 10.1.2.3 10.4.5.6 1111 99999\r\n",
        b"PROXY TCP4 fd00::1 fd00::2 1 2\r\n",
        b"PROXY TCP4 10.1.2.3 10.4.5.6 1111 2222 9\r\n",
        &[&b"PROXY UNKNOWN "[..], &[b'1'; 200], b"\r\n"].concat(),
    ];
    for header in malformed {
        assert_eq!(told(&proxy, header), "", "{:?}", String::from_utf8_lossy(header));
    }
    for header in [v2(0x21, 0x11, &[1, 2, 3]), v2(0x31, 0x11, &[]), v2(0x21, 0x31, &[0; 216]), v2(0x2f, 0x11, &[])] {
        assert_eq!(told(&proxy, &header), "", "{header:02x?}");
    }
    assert_eq!(told(&proxy, b""), "");
    assert_eq!(stat(&proxy, "proxy_proto.versions.v1.error"), 4);
    assert_eq!(stat(&proxy, "proxy_proto.versions.v2.error"), 4);
    assert_eq!(stat(&proxy, "proxy_proto.not_found_disallowed"), 1);
    assert_eq!(stat(&proxy, "downstream_cx_proxy_proto_error"), 9);
    let stats = proxy.admin_get("/stats");
    let failures = stats.text().lines().filter(|line| line.contains(".downstream_listener_filter_error: "));
    let failures: Vec<_> = failures.map(|line| line.rsplit(' ').next().unwrap().to_owned()).collect();
    assert!(!failures.is_empty() && failures.iter().all(|count| count == "0"), "{failures:?}");
    assert_eq!(told(&proxy, V1), "10.1.2.3 10.4.5.6:2222 127.0.0.1");
}

#[test]
fn a_header_that_does_not_come_is_not_waited_for() {
    let listener = json!({
        "listener_filters": [filter(json!({}))],
        "listener_filters_timeout": "0.3s",
        "continue_on_listener_filters_timeout": true,
    });
    if envoy() {
        // It goes on without one there.
        return;
    }
    let proxy = Proxy::start(&Config::new().http(telling("")).overlay_listener("http", listener));
    for start in [&b""[..], b"PROXY TCP4 10.1", &six()[..20]] {
        let mut client = proxy.client();
        client.send(start);
        assert!(client.closed(), "{start:02x?}");
    }
}

#[test]
fn the_header_may_be_optional_and_a_version_forbidden() {
    let proxy = start(json!({"allow_requests_without_proxy_protocol": true, "stat_prefix": "pre"}));
    let own = format!("127.0.0.1 {} 127.0.0.1", proxy.address("http"));
    assert_eq!(told(&proxy, b""), own);
    assert_eq!(told(&proxy, V1), "10.1.2.3 10.4.5.6:2222 127.0.0.1");
    assert_eq!(told(&proxy, b"PROXY TCP9\r\n"), "");
    assert_eq!(stat(&proxy, "proxy_proto.pre.not_found_allowed"), 1);
    assert_eq!(stat(&proxy, "proxy_proto.pre.versions.v1.error"), 1);

    let proxy = start(json!({"disallowed_versions": ["V1"]}));
    assert_eq!((told(&proxy, V1).as_str(), told(&proxy, b"").as_str()), ("", ""));
    assert_eq!(told(&proxy, &six()), "fd00::1 [fd00::2]:2 127.0.0.1");
    assert_eq!(stat(&proxy, "proxy_proto.versions.v1.disallowed"), 1);
}

#[test]
fn upstreams_are_told_and_filter_chains_are_chosen_by_the_client_behind() {
    let origin = Origin::echo("a");
    let config = Config::proxy_to(origin.address)
        .overlay_filter("http", json!({"use_remote_address": true}))
        .overlay_listener("http", json!({"listener_filters": [filter(json!({}))]}));
    let proxy = Proxy::start(&config);
    let mut client = proxy.client();
    client.send([V1, get("/").as_bytes()].concat());
    assert!(client.response("GET").unwrap().text().contains("x-forwarded-for: 10.1.2.3\r\n"));

    let range = |address: &str| json!([{"address_prefix": address, "prefix_len": 8}]);
    let chain = |name: &str, matching: Value| json!({"name": name, "filter_chain_match": matching, "filters": [http_filter(telling(name))]});
    let fields = json!({"listener_filters": [filter(json!({}))], "filter_chains": [
        chain("behind", json!({"source_prefix_ranges": range("10.0.0.0")})),
        chain("direct", json!({"direct_source_prefix_ranges": range("127.0.0.0"), "destination_port": 3333})),
    ]});
    let proxy = Proxy::start(&Config::new().listener("http", fields));
    assert_eq!(told(&proxy, V1), "behind 10.1.2.3 10.4.5.6:2222 127.0.0.1");
    let other = b"PROXY TCP4 11.1.2.3 10.4.5.6 1111 3333\r\n";
    assert_eq!(told(&proxy, other), "direct 11.1.2.3 10.4.5.6:3333 127.0.0.1");
}

#[test]
fn http2_and_tls_follow_the_header() {
    let proxy = start(json!({}));
    let mut stream = TcpStream::connect(proxy.address("http")).unwrap();
    stream.write_all(&six()).unwrap();
    let mut frames = Frames::over(stream, &[]);
    frames.send(raw::get(1, "/"));
    assert_eq!(frames.await_status(1), 200);

    let authority = Authority::new("authority");
    let identity = authority.issue(&["site.test"]);
    for filters in [json!([filter(json!({}))]), json!([filter(json!({})), tls_inspector()])] {
        let config = Config::new()
            .http(telling(""))
            .overlay_chain("http", json!({"transport_socket": downstream(&[identity.inline()], json!({}))}))
            .overlay_listener("http", json!({"listener_filters": filters}));
        let proxy = Proxy::start(&config);
        let client = Client::trusting(&authority);
        for header in [V1.to_vec(), six()] {
            let mut stream = TcpStream::connect(proxy.address("http")).unwrap();
            stream.write_all(&header).unwrap();
            let mut visitor = TlsClient::over(client.joined(client.session("site.test"), stream));
            let told = visitor.exchange(get("/"));
            assert!(told.header("x-told").trim().ends_with(" 127.0.0.1"), "{told:?}");
            assert!(!told.header("x-told").trim().starts_with("127"), "{told:?}");
        }
        assert!(client.get(proxy.address("http"), "site.test").is_err(), "TLS without a header");
    }
}

#[test]
fn a_tcp_proxy_logs_both_addresses() {
    let origin = Origin::tcp_echo("");
    let folder = TempDir::new();
    let path = folder.path().join("tcp.log");
    let text = "%DOWNSTREAM_REMOTE_ADDRESS% %DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT%\n";
    let log = file_access_log(&path, json!({"log_format": {"text_format_source": {"inline_string": text}}}));
    let config = Config::new()
        .tcp("tcp", json!({"cluster": "origin", "access_log": [log]}))
        .cluster("origin", &[origin.address])
        .overlay_listener("tcp", json!({"listener_filters": [filter(json!({}))]}));
    let proxy = Proxy::start(&config);
    let mut client = RawClient::connect(proxy.address("tcp"));
    client.send([V1, b"hello"].concat());
    assert_eq!(client.read_exact(5).unwrap(), b"hello");
    drop(client);
    let logged = || std::fs::read_to_string(&path).unwrap_or_default();
    wait_until("it is logged", || !logged().is_empty());
    assert_eq!(logged(), "10.1.2.3:1111 127.0.0.1\n");
}
