//! Tunnels: CONNECT that ends here or passes, WebSockets over HTTP/2, and TCP through the CONNECT of another proxy.

use aws_lc_rs::digest;
use base64::Engine as _;
use bytes::Bytes;
use h2::ext::Protocol;
use http::Request;
use postrider_tests::h2_client::H2Client;
use postrider_tests::h2_frames::{Frames, Next, PING};
use postrider_tests::kit::config::{file_access_log, upstream_http_options};
use postrider_tests::kit::{Config, DEADLINE, Origin, OriginConnection, Proxy, RawClient, TempDir, net, wait_until};
use postrider_tests::postrider_only;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::Duration;

const CONNECT: &str = "CONNECT a.test:443 HTTP/1.1\r\nhost: a.test:443\r\n\r\n";

/// What a client and an upstream of HTTP/2 may ask for.
fn http2(fields: Value) -> Value {
    upstream_http_options(
        json!({"explicit_http_config": {"http_protocol_options": null, "http2_protocol_options": fields}}),
    )
}

/// CONNECT requests to the cluster `origin`.
fn connects(origin: SocketAddr, upgrade: Value, cluster: Value) -> Config {
    let routes = json!([{
        "match": {"connect_matcher": {}},
        "route": {"cluster": "origin", "upgrade_configs": [upgrade]},
    }]);
    Config::routes(routes).cluster_with("origin", &[origin], cluster)
}

/// CONNECT requests end here, with a connection to `origin`.
fn terminating(origin: SocketAddr) -> Config {
    connects(origin, json!({"upgrade_type": "CONNECT", "connect_config": {}}), json!({}))
}

/// A stream whose tunnel is open.
struct Tunnel {
    client: H2Client,
    send: h2::SendStream<Bytes>,
    recv: h2::RecvStream,
    head: http::response::Parts,
    pending: Vec<u8>,
}

impl Tunnel {
    fn open(mut client: H2Client, request: Request<()>) -> Self {
        let (response, send) = client.start_tunnel(request);
        let (head, recv) = response.into_parts();
        Self { client, send, recv, head, pending: Vec::new() }
    }

    fn send(&mut self, bytes: &[u8], ended: bool) {
        self.client.send_all(&mut self.send, bytes, ended).unwrap();
    }

    fn read_exact(&mut self, count: usize) -> Vec<u8> {
        while self.pending.len() < count {
            let piece = self.client.wait(self.recv.data()).expect("more bytes").unwrap();
            self.recv.flow_control().release_capacity(piece.len()).unwrap();
            self.pending.extend_from_slice(&piece);
        }
        self.pending.drain(..count).collect()
    }

    fn ends(&mut self) -> bool {
        while let Some(piece) = self.client.wait(self.recv.data()) {
            // The end may come as an empty frame.
            if !self.pending.is_empty() || !piece.unwrap().is_empty() {
                return false;
            }
        }
        true
    }
}

fn websocket() -> http::request::Builder {
    let builder = Request::builder().method("CONNECT").uri("http://test/chat");
    builder.extension(Protocol::from_static("websocket")).header("sec-websocket-version", "13")
}

/// A client that waits until the proxy said what it takes.
fn extended_client(proxy: &Proxy) -> H2Client {
    let mut client = H2Client::connect(proxy.address("http"));
    let _ = client.get("/settled");
    client
}

fn accept(key: &str) -> String {
    let text = format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    let digest = digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes());
    base64::engine::general_purpose::STANDARD.encode(digest)
}

/// A WebSocket server that sends every byte back.
fn chat(connection: &mut OriginConnection) {
    while let Some(request) = connection.request() {
        if request.header("upgrade") != "websocket" {
            connection.write(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nplain");
            continue;
        }
        let agreed = format!(
            "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
             sec-websocket-accept: {}\r\nx-chat: yes\r\n\r\nhi",
            accept(request.header("sec-websocket-key"))
        );
        connection.write(agreed.as_bytes());
        while let Some(byte) = connection.read_exact(1) {
            connection.write(&byte);
        }
        return connection.half_close();
    }
}

fn websockets(origin: SocketAddr, cluster: Value) -> Config {
    Config::routes(json!([{"match": {"prefix": "/"}, "route": {"cluster": "origin"}}]))
        .cluster_with("origin", &[origin], cluster)
        .overlay_filter(
            "http",
            json!({
                "upgrade_configs": [{"upgrade_type": "websocket"}],
                "http2_protocol_options": {"allow_connect": true},
            }),
        )
}

#[test]
fn a_connect_that_ends_here_carries_bytes_of_any_protocol() {
    let origin = Origin::tcp_echo("220 ready\r\n");
    let proxy = Proxy::start(&terminating(origin.address));
    let mut client = proxy.client();
    client.send(CONNECT);
    let answer = client.response_head("CONNECT").unwrap();
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(client.read_exact(11).unwrap(), b"220 ready\r\n");
    client.send(b"\x16\x03\x01GET / HTTP/1.1\r\n\r\n");
    assert_eq!(client.read_exact(21).unwrap(), b"\x16\x03\x01GET / HTTP/1.1\r\n\r\n");
    client.half_close();
    assert!(client.closed());
    origin.wait_open_at_most(0);
    assert_eq!(origin.all_bytes(), b"\x16\x03\x01GET / HTTP/1.1\r\n\r\n", "the endpoint sees nothing of HTTP");
    proxy.wait_stat("http.ingress_http.downstream_cx_upgrades_active", 0);
}

#[test]
fn an_endpoint_hears_of_the_client_before_its_first_byte() {
    let origin = Origin::tcp_echo("");
    for version in ["V1", "V2"] {
        let config = json!({"proxy_protocol_config": {"version": version}});
        let proxy = Proxy::start(&connects(
            origin.address,
            json!({"upgrade_type": "CONNECT", "connect_config": config}),
            json!({}),
        ));
        let mut client = proxy.client();
        let (source, destination) = (client.local_addr().port(), proxy.address("http").port());
        client.send(CONNECT);
        assert_eq!(client.response_head("CONNECT").unwrap().status, 200);
        let header = match version {
            "V1" => format!("PROXY TCP4 127.0.0.1 127.0.0.1 {source} {destination}\r\n").into_bytes(),
            _ => {
                let mut header = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\x7f\0\0\x01\x7f\0\0\x01".to_vec();
                header.extend([source, destination].iter().flat_map(|port| port.to_be_bytes()));
                header
            }
        };
        // The endpoint echoes what it hears.
        assert_eq!(client.read_exact(header.len()).unwrap(), header, "{version}");
        client.send("ping");
        assert_eq!(client.read_exact(4).unwrap(), b"ping");
    }
}

#[test]
fn a_connect_of_http_2_that_ends_here_is_one_stream() {
    let origin = Origin::tcp_echo("");
    let proxy = Proxy::start(&terminating(origin.address));
    let client = H2Client::connect(proxy.address("http"));
    let request = Request::builder().method("CONNECT").uri("a.test:443").body(()).unwrap();
    let mut tunnel = Tunnel::open(client, request);
    assert_eq!(tunnel.head.status, 200);
    let block: Vec<u8> = (0..400_000u32).map(|n| (n % 251) as u8).collect();
    for piece in block.chunks(40_000) {
        tunnel.send(piece, false);
        assert!(tunnel.read_exact(piece.len()) == piece);
    }
    tunnel.send(b"last", true);
    assert_eq!(tunnel.read_exact(4), b"last");
    assert!(tunnel.ends());
    origin.wait_open_at_most(0);
}

#[test]
fn a_tunnel_whose_endpoint_refuses_is_an_error_of_the_gateway() {
    let proxy = Proxy::start(&terminating(net::refusing_address()));
    assert_eq!(RawClient::once(proxy.address("http"), CONNECT).unwrap().status, 503);
}

#[test]
fn a_connect_needs_a_route_and_an_upgrade() {
    let origin = Origin::tcp_echo("");
    let routes = |route: Value| Config::routes(route).cluster("origin", &[origin.address]);
    let plain = routes(json!([{"match": {"prefix": "/"}, "route": {"cluster": "origin"}}]));
    let matched = routes(json!([{"match": {"connect_matcher": {}}, "route": {"cluster": "origin"}}]));
    let off =
        connects(origin.address, json!({"upgrade_type": "CONNECT", "enabled": false, "connect_config": {}}), json!({}));
    for (config, status) in [(plain, 404), (matched, 403), (off, 403)] {
        let proxy = Proxy::start(&config);
        assert_eq!(RawClient::once(proxy.address("http"), CONNECT).unwrap().status, status);
    }
    assert_eq!(origin.connection_count(), 0);
}

#[test]
fn a_connect_passes_to_another_proxy() {
    let origin = Origin::start(|connection| {
        if connection.request_head().is_some() {
            connection.write(b"HTTP/1.1 200 OK\r\n\r\nwelcome");
            while let Some(byte) = connection.read_exact(1) {
                connection.write(&byte);
            }
        }
    });
    let proxy = Proxy::start(&connects(origin.address, json!({"upgrade_type": "CONNECT"}), json!({})));
    let mut client = proxy.client();
    client.send(CONNECT);
    assert_eq!(client.response_head("CONNECT").unwrap().status, 200);
    assert_eq!(client.read_exact(7).unwrap(), b"welcome");
    client.send("x");
    assert_eq!(client.read_exact(1).unwrap(), b"x");
    let [seen] = &origin.requests()[..] else { panic!("one request") };
    assert_eq!((seen.method.as_str(), seen.target.as_str()), ("CONNECT", "a.test:443"));
}

#[test]
fn a_connect_passes_to_another_proxy_over_http_2() {
    let origin = Origin::tcp_echo("hello");
    let far = Proxy::start(&terminating(origin.address));
    let near = connects(far.address("http"), json!({"upgrade_type": "CONNECT"}), http2(json!({})));
    let near = Proxy::start(&near);
    let mut client = near.client();
    client.send(CONNECT);
    assert_eq!(client.response_head("CONNECT").unwrap().status, 200);
    client.send("x");
    assert_eq!(client.read_exact(6).unwrap(), b"hellox");
    client.half_close();
    assert!(client.closed());
    assert_eq!(far.stats().value("http.ingress_http.downstream_rq_http2_total"), 1);
}

#[test]
fn a_websocket_over_http_2_reaches_an_origin_of_http_1() {
    let origin = Origin::start(chat);
    let proxy = Proxy::start(&websockets(origin.address, json!({})));
    let client = extended_client(&proxy);
    let mut tunnel = Tunnel::open(client, websocket().body(()).unwrap());
    assert_eq!(tunnel.head.status, 200);
    assert_eq!(tunnel.head.headers["x-chat"], "yes");
    assert!(!tunnel.head.headers.contains_key("sec-websocket-accept"), "HTTP/2 has no such handshake");
    assert_eq!(tunnel.read_exact(2), b"hi");
    tunnel.send(b"\x81\x05hello", false);
    assert_eq!(tunnel.read_exact(7), b"\x81\x05hello");
    tunnel.send.send_data(Bytes::new(), true).unwrap();
    assert!(tunnel.ends());
    let seen = &origin.requests()[1];
    assert_eq!((seen.method.as_str(), seen.target.as_str()), ("GET", "/chat"));
    assert_eq!((seen.header("upgrade"), seen.header("sec-websocket-version")), ("websocket", "13"));
    assert_eq!(seen.header("sec-websocket-key").len(), 24);
    assert!(seen.header("connection").eq_ignore_ascii_case("upgrade"));
    proxy.wait_stat("http.ingress_http.downstream_cx_upgrades_active", 0);
}

#[test]
fn a_websocket_of_http_1_reaches_an_origin_over_http_2() {
    let origin = Origin::start(chat);
    let far = Proxy::start(&websockets(origin.address, json!({})));
    let near = Proxy::start(&websockets(far.address("http"), http2(json!({"allow_connect": true}))));
    let mut client = near.client();
    client.send(
        "GET /chat HTTP/1.1\r\nhost: test\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\
         sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-version: 13\r\n\r\n",
    );
    let answer = client.response("GET").unwrap();
    assert_eq!(answer.status, 101, "{answer:?}");
    assert_eq!(answer.header("sec-websocket-accept"), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    assert_eq!(client.read_exact(2).unwrap(), b"hi");
    client.send("ping");
    assert_eq!(client.read_exact(4).unwrap(), b"ping");
    client.half_close();
    assert!(client.closed());
    assert_eq!(far.stats().value("http.ingress_http.downstream_rq_http2_total"), 1);
}

#[test]
fn a_websocket_whose_server_left_ends_though_the_client_goes_on_talking() {
    let origin = Origin::start(|connection| {
        if connection.request().is_some() {
            connection
                .write(b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\nbye");
        }
    });
    let proxy = Proxy::start(&websockets(origin.address, json!({})));
    let mut client = proxy.client();
    client.send("GET /chat HTTP/1.1\r\nhost: test\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\r\n");
    assert_eq!(client.response("GET").unwrap().status, 101);
    assert_eq!(client.read_exact(3).unwrap(), b"bye");
    assert!(client.closed(), "the server's end is passed on");
    // The first bytes are answered with a reset, which the next ones find out.
    wait_until("the tunnel is over", || {
        let _ = client.try_send(b"and another thing");
        proxy.stats().value("http.ingress_http.downstream_cx_upgrades_active") == 0
    });
    proxy.wait_stat("cluster.origin.upstream_cx_active", 0);
    proxy.wait_stat("cluster.origin.upstream_rq_active", 0);
}

#[test]
fn an_upstream_that_takes_no_extended_connect_is_not_asked() {
    let origin = Origin::start(chat);
    let far = Config::proxy_to(origin.address)
        .overlay_filter("http", json!({"upgrade_configs": [{"upgrade_type": "websocket"}]}));
    let far = Proxy::start(&far);
    let near = Proxy::start(&websockets(far.address("http"), http2(json!({"allow_connect": true}))));
    let mut client = near.client();
    client.send(
        "GET / HTTP/1.1\r\nhost: test\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\r\n",
    );
    assert_eq!(client.response("GET").unwrap().status, 503);
    assert_eq!(far.stats().value("http.ingress_http.downstream_rq_total"), 0);
}

#[test]
fn a_websocket_server_that_did_not_understand_the_key_is_refused() {
    let origin = Origin::start(|connection| {
        while let Some(request) = connection.request() {
            connection.write(match request.header("upgrade") {
                "websocket" => {
                    b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
                      sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\nhi"
                }
                _ => b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
            });
        }
    });
    let proxy = Proxy::start(&websockets(origin.address, json!({})));
    let tunnel = Tunnel::open(extended_client(&proxy), websocket().body(()).unwrap());
    assert_eq!(tunnel.head.status, 502);
}

#[test]
fn an_extended_connect_is_welcome_only_where_it_is_allowed() {
    let origin = Origin::start(chat);
    let config = websockets(origin.address, json!({}));
    let closed = Proxy::start(&config.clone().overlay_filter("http", json!({"http2_protocol_options": null})));
    let mut client = extended_client(&closed);
    let refused = client.try_start(websocket().body(()).unwrap(), false).and_then(|asked| client.head(asked));
    assert!(refused.is_err(), "{refused:?}");
    let no_upgrade = Proxy::start(&config.overlay_filter("http", json!({"upgrade_configs": null})));
    let tunnel = Tunnel::open(extended_client(&no_upgrade), websocket().body(()).unwrap());
    assert_eq!(tunnel.head.status, 403);
    assert!(origin.requests().iter().all(|request| request.header("upgrade").is_empty()));
}

/// Connections to `tcp`, through the proxy `far`.
fn tunneling(far: SocketAddr, fields: Value, cluster: Value) -> Config {
    let config = Config::new().tcp("tcp", json!({"cluster": "far", "tunneling_config": {"hostname": "db.test:5432"}}));
    config.cluster_with("far", &[far], cluster).overlay_filter("tcp", fields)
}

#[test]
fn tcp_goes_through_the_connect_of_another_proxy() {
    let origin = Origin::tcp_echo("hello");
    let far = Proxy::start(&terminating(origin.address));
    for cluster in [json!({}), http2(json!({}))] {
        let near = Proxy::start(&tunneling(far.address("http"), json!({}), cluster));
        let mut client = RawClient::connect(near.address("tcp"));
        assert_eq!(client.read_exact(5).unwrap(), b"hello");
        let block = vec![b'x'; 300_000];
        for piece in block.chunks(30_000) {
            client.send(piece);
            assert!(client.read_exact(piece.len()).unwrap() == piece);
        }
        client.half_close();
        assert!(client.closed());
        near.wait_stat("cluster.far.upstream_rq_active", 0);
    }
    assert_eq!(far.stats().value("http.ingress_http.downstream_rq_http2_total"), 1);
    assert_eq!(far.stats().value("http.ingress_http.downstream_rq_http1_total"), 1);
}

#[test]
fn a_tunnels_request_says_where_to_and_what_it_was_told_to() {
    let origin = Origin::start(|connection| {
        if connection.request_head().is_some() {
            connection.write(b"HTTP/1.1 200 OK\r\n\r\n");
            connection.read_to_end();
        }
    });
    let headers = json!({"tunneling_config": {"headers_to_add": [
        {"header": {"key": "x-from", "value": "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%"}},
    ]}});
    let proxy = Proxy::start(&tunneling(origin.address, headers, json!({})));
    let mut client = RawClient::connect(proxy.address("tcp"));
    client.half_close();
    assert!(client.closed());
    let [seen] = &origin.requests()[..] else { panic!("one request") };
    assert_eq!((seen.method.as_str(), seen.target.as_str()), ("CONNECT", "db.test:5432"));
    assert_eq!((seen.header("host"), seen.header("x-from")), ("db.test:5432", "127.0.0.1"));
}

#[test]
fn each_request_for_a_tunnel_has_an_id_where_that_is_wanted() {
    let origin = Origin::start(|connection| {
        if connection.request_head().is_some() {
            connection.write(b"HTTP/1.1 200 OK\r\n\r\n");
            connection.read_to_end();
        }
    });
    let uuid = json!({"typed_config": {
        "@type": "type.googleapis.com/envoy.extensions.request_id.uuid.v3.UuidRequestIdConfig",
    }});
    let mine = json!([{"header": {"key": "x-request-id", "value": "mine"}}]);
    let directory = TempDir::new();
    for (fields, header, key) in [
        (json!({}), "x-request-id", "tunnel_request_id"),
        (
            json!({"request_id_header": "X-Tunnel", "request_id_metadata_key": "id", "headers_to_add": mine}),
            "x-tunnel",
            "id",
        ),
    ] {
        let mut settings = fields;
        settings["request_id_extension"] = uuid.clone();
        let path = directory.path().join(key);
        let line = format!("%DYNAMIC_METADATA(envoy.filters.network.tcp_proxy:{key})%\n");
        let log = file_access_log(&path, json!({"log_format": {"text_format_source": {"inline_string": line}}}));
        let settings = json!({"tunneling_config": settings, "access_log": [log]});
        let proxy = Proxy::start(&tunneling(origin.address, settings, json!({})));
        let mut client = RawClient::connect(proxy.address("tcp"));
        client.half_close();
        assert!(client.closed());
        let seen = origin.requests().pop().expect("a request");
        let id = seen.header(header).to_owned();
        assert!(id.len() == 36 && id.as_bytes()[14] == b'4', "{id}");
        assert!(header == "x-request-id" || seen.header("x-request-id") == "mine");
        let logged = || std::fs::read_to_string(&path).unwrap_or_default();
        wait_until("the log", || logged().trim_end() == id);
    }
}

#[expect(clippy::disallowed_methods, reason = "a proxy that is slow: nothing waits for a condition here")]
fn take_long() {
    std::thread::sleep(Duration::from_millis(600));
}

#[test]
fn a_tunnel_may_take_longer_to_open_than_a_connection() {
    let origin = Origin::start(|connection| {
        if connection.request_head().is_some() {
            take_long();
            connection.write(b"HTTP/1.1 200 OK\r\n\r\nhello");
            connection.read_to_end();
        }
    });
    for use_post in [false, true] {
        let fields = json!({"tunneling_config": {"use_post": use_post}});
        let proxy = Proxy::start(&tunneling(origin.address, fields, json!({"connect_timeout": "0.2s"})));
        let mut client = RawClient::connect(proxy.address("tcp"));
        assert_eq!(client.read_exact(5).unwrap(), b"hello", "POST: {use_post}");
        assert_eq!(proxy.stats().value("cluster.far.upstream_cx_connect_timeout"), 0);
    }
}

#[test]
fn a_client_is_not_held_by_a_proxy_that_never_answers() {
    // Envoy waits however long nothing moves, and whether or not the client is there.
    if !postrider_only() {
        return;
    }
    let origin = Origin::start(|connection| {
        connection.request_head();
        connection.read_to_end();
    });
    for limit in ["idle_timeout", "max_downstream_connection_duration"] {
        let proxy = Proxy::start(&tunneling(origin.address, json!({limit: "0.3s"}), json!({})));
        assert!(RawClient::connect(proxy.address("tcp")).closed(), "{limit}");
        assert_eq!(proxy.stats().value(&format!("tcp.ingress_tcp.{limit}")), 1);
        origin.wait_open_at_most(0);
    }
    let proxy = Proxy::start(&tunneling(origin.address, json!({}), json!({})));
    let client = RawClient::connect(proxy.address("tcp"));
    wait_until("the proxy is asked", || origin.open_connections() == 1);
    client.reset();
    origin.wait_open_at_most(0);
}

#[test]
fn a_proxy_that_opens_no_tunnel_ends_the_connection() {
    let origin = Origin::start(|connection| {
        while connection.request_head().is_some() {
            connection.write(b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n");
        }
    });
    let proxy = Proxy::start(&tunneling(origin.address, json!({"max_connect_attempts": 2}), json!({})));
    let mut client = RawClient::connect(proxy.address("tcp"));
    assert!(client.closed());
    assert_eq!(origin.requests().len(), 2);
    assert_eq!(proxy.stats().value("cluster.far.upstream_cx_connect_attempts_exceeded"), 1);
    assert_eq!(proxy.stats().value("cluster.far.upstream_rq_total"), 2);
}

#[test]
fn a_client_that_answers_no_ping_is_disconnected() {
    let origin = Origin::fixed("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    let keepalive = json!({"http2_protocol_options": {
        "connection_keepalive": {"interval": "0.05s", "timeout": "0.2s", "interval_jitter": {"value": 0}},
    }});
    let proxy = Proxy::start(&Config::proxy_to(origin.address).overlay_filter("http", keepalive));
    let mut alive = Frames::connect(proxy.address("http"), &[]);
    for _ in 0..8 {
        alive.await_frame("a PING", |frame| frame.kind == PING && frame.flags == 0);
    }
    drop(alive);
    let mut deaf = Frames::connect(proxy.address("http"), &[]).deaf();
    let mut pings = 0;
    loop {
        match deaf.next_within(DEADLINE) {
            Next::Frame(frame) => pings += usize::from(frame.kind == PING),
            Next::Closed => break,
            Next::Silence => panic!("still connected"),
        }
    }
    assert_eq!(pings, 1, "there is one at a time");
    assert_eq!(proxy.stats().value("http2.keepalive_timeout"), 1);
}

#[test]
fn an_upstream_that_answers_no_ping_fails_what_waits_for_it() {
    let origin = Origin::start(|connection| {
        // SETTINGS, and not another word.
        connection.write(b"\0\0\0\x04\0\0\0\0\0");
        connection.read_to_end();
    });
    let keepalive = json!({"connection_keepalive": {"interval": "0.05s", "timeout": "0.2s"}});
    let config = Config::routes(json!([{"match": {"prefix": "/"}, "route": {"cluster": "origin", "timeout": "0s"}}]));
    let proxy = Proxy::start(&config.cluster_with("origin", &[origin.address], http2(keepalive)));
    assert_eq!(proxy.get("/").status, 503);
    assert_eq!(proxy.stats().value("cluster.origin.http2.keepalive_timeout"), 1);
}
