//! TCP through another proxy in the bodies of a POST and its answer, and what is kept of a tunnel's answer.

use std::net::SocketAddr;

use postrider_tests::h2_origin::H2Origin;
use postrider_tests::kit::config::{file_access_log, upstream_http_options};
use postrider_tests::kit::proxy::flavour;
use postrider_tests::kit::{Config, Flavour, Origin, Proxy, RawClient, TempDir, wait_until};
use serde_json::{Value, json};

const FORMAT: &str = "%RESPONSE_FLAGS% %UPSTREAM_TRANSPORT_FAILURE_REASON% %BYTES_RECEIVED% %BYTES_SENT% \
    %FILTER_STATE(envoy.tcp_proxy.propagate_response_headers:TYPED)% \
    %FILTER_STATE(envoy.tcp_proxy.propagate_response_trailers:TYPED)%\n";

fn http2() -> Value {
    upstream_http_options(
        json!({"explicit_http_config": {"http_protocol_options": null, "http2_protocol_options": {}}}),
    )
}

/// Connections to `tcp`, through the proxy `far`.
fn posting(far: SocketAddr, fields: Value, cluster: Value) -> Config {
    let config = Config::new()
        .tcp("tcp", json!({"cluster": "far", "tunneling_config": {"hostname": "db.test:5432", "use_post": true}}));
    config.cluster_with("far", &[far], cluster).overlay_filter("tcp", fields)
}

/// The same with a line of log for each connection.
struct Logged {
    proxy: Proxy,
    directory: TempDir,
}

impl Logged {
    fn start(far: SocketAddr, tunneling: Value, cluster: Value) -> Self {
        let directory = TempDir::new();
        let format = json!({"log_format": {"text_format_source": {"inline_string": FORMAT}}});
        let log = file_access_log(&directory.path().join("log"), format);
        let fields = json!({"access_log": [log], "tunneling_config": tunneling});
        Self { proxy: Proxy::start(&posting(far, fields, cluster)), directory }
    }

    fn client(&self) -> RawClient {
        RawClient::connect(self.proxy.address("tcp"))
    }

    fn line(&self) -> String {
        let read = || std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default();
        wait_until("a line of the log", || read().ends_with('\n'));
        read().trim_end().to_owned()
    }
}

#[test]
fn a_post_and_its_answer_carry_the_bytes_of_a_connection() {
    for answer in ["transfer-encoding: chunked\r\n", ""] {
        let origin = Origin::start(move |connection| {
            let Some(request) = connection.request_head() else { return };
            connection
                .write(format!("HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 201 Created\r\n{answer}\r\n").as_bytes());
            let piece = |text: &[u8]| match answer {
                "" => text.to_vec(),
                _ => [format!("{:x}\r\n", text.len()).as_bytes(), text, b"\r\n"].concat(),
            };
            connection.write(&piece(b"hello"));
            let echo = connection.stream().try_clone().unwrap();
            connection.body(&request, &mut |text| std::io::Write::write_all(&mut &echo, &piece(text)).unwrap());
            connection.write(&piece(b" bye"));
            if !answer.is_empty() {
                connection.write(b"0\r\n\r\n");
            }
        });
        let headers = json!([{"header": {"key": "x-from", "value": "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%"}}]);
        let tunneling = json!({"post_path": "/tunnel?to=db", "headers_to_add": headers});
        let logged = Logged::start(origin.address, tunneling, json!({}));
        let mut client = logged.client();
        assert_eq!(client.read_exact(5).unwrap(), b"hello");
        for _ in 0..3 {
            let block: Vec<u8> = (0..100_000u32).map(|n| (n % 251) as u8).collect();
            client.send(&block);
            assert!(client.read_exact(block.len()).unwrap() == block);
        }
        client.half_close();
        match flavour() {
            // It closes the connection with the end of the request, whatever is still to come.
            Flavour::Envoy => assert!(client.read_to_end().is_ok()),
            Flavour::Postrider => assert_eq!(client.read_to_end().unwrap(), b" bye"),
        }
        let [seen] = &origin.requests()[..] else { panic!("one request") };
        assert_eq!((seen.method.as_str(), seen.target.as_str()), ("POST", "/tunnel?to=db"));
        assert_eq!((seen.header("host"), seen.header("x-from")), ("db.test:5432", "127.0.0.1"));
        assert_eq!(seen.header("transfer-encoding"), "chunked");
        origin.wait_open_at_most(0);
        assert!(origin.all_bytes().ends_with(b"\r\n0\r\n\r\n"), "the end of the body says that the client ended");
        assert!(logged.line().starts_with("- - 300000 30000"), "{}", logged.line());
        logged.proxy.wait_stat("cluster.far.upstream_rq_active", 0);
        logged.proxy.wait_stat("cluster.far.upstream_cx_active", 0);
    }
}

#[test]
fn another_proxy_ends_the_post_over_either_protocol() {
    let origin = Origin::tcp_echo("hello");
    let route = json!({"cluster": "origin", "upgrade_configs": [
        {"upgrade_type": "CONNECT", "connect_config": {"allow_post": true}},
    ]});
    let far = Config::routes(json!([{"match": {"prefix": "/"}, "route": route}])).cluster("origin", &[origin.address]);
    let far = Proxy::start(&far);
    for cluster in [json!({}), http2()] {
        let near = Proxy::start(&posting(far.address("http"), json!({}), cluster));
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
    origin.wait_open_at_most(0);
    assert_eq!(origin.all_bytes().len(), 600_000);
}

#[test]
fn an_answer_that_ends_first_ends_its_own_direction_only() {
    if flavour() == Flavour::Envoy {
        // Envoy 1.40 dies of it.
        return;
    }
    for framing in ["content-length: 5\r\n\r\nhello", "transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"] {
        let origin = Origin::start(move |connection| {
            let Some(request) = connection.request_head() else { return };
            connection.write(format!("HTTP/1.1 200 OK\r\n{framing}").as_bytes());
            connection.body(&request, &mut |_| {});
        });
        let proxy = Proxy::start(&posting(origin.address, json!({}), json!({})));
        let mut client = RawClient::connect(proxy.address("tcp"));
        assert_eq!(client.read_to_end().unwrap(), b"hello");
        client.send("more");
        client.half_close();
        origin.wait_open_at_most(0);
        assert!(origin.all_bytes().ends_with(b"4\r\nmore\r\n0\r\n\r\n"));
    }
}

#[test]
fn an_answer_that_breaks_off_resets_the_client() {
    let origin = Origin::start(|connection| {
        if connection.request_head().is_some() {
            connection.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n5\r\nhe");
            connection.read_exact(9);
        }
    });
    let logged = Logged::start(origin.address, json!({}), json!({}));
    let mut client = logged.client();
    assert_eq!(client.read_exact(7).unwrap(), b"hellohe");
    client.send("ping");
    let (ended, line) = (client.read_to_end(), logged.line());
    match flavour() {
        // It takes half of an answer for a whole one.
        Flavour::Envoy => assert!(line.starts_with("- - 4 7"), "{line}"),
        Flavour::Postrider => {
            assert!(ended.is_err(), "{ended:?}");
            assert!(line.starts_with("UC - 4 7"), "{line}");
        }
    }
}

#[test]
fn an_answer_without_a_body_or_success_opens_no_tunnel() {
    for (status, rest) in [
        (407, "content-length: 0\r\n\r\n"),
        (302, "transfer-encoding: chunked\r\n\r\n"),
        (204, "\r\n"),
        (200, "content-length: 0\r\n\r\n"),
    ] {
        let origin = Origin::start(move |connection| {
            while connection.request_head().is_some() {
                connection.write(format!("HTTP/1.1 {status} X\r\n{rest}").as_bytes());
            }
        });
        let logged = Logged::start(origin.address, json!({"propagate_response_headers": true}), json!({}));
        assert!(logged.client().closed());
        let line = logged.line();
        assert!(line.starts_with(&format!("UF,URX tunnel_response:{status} 0 0")), "{line}");
        assert!(line.contains(&format!(r#"{{"key":":status","value":"{status}"}}"#)), "{line}");
        assert_eq!(logged.proxy.stats().value("cluster.far.upstream_cx_connect_attempts_exceeded"), 1);
    }
}

#[test]
fn head_and_trailers_of_the_answer_are_kept_for_the_log() {
    let origin = H2Origin::start(10);
    for use_post in [true, false] {
        let tunneling = json!({
            "use_post": use_post,
            "post_path": if use_post { json!("/echo/a?b") } else { Value::Null },
            "propagate_response_headers": true,
            "propagate_response_trailers": true,
        });
        let logged = Logged::start(origin.address, tunneling, http2());
        let mut client = logged.client();
        client.send("ping");
        assert_eq!(client.read_exact(4).unwrap(), b"ping");
        client.half_close();
        assert!(client.closed());
        let line = logged.line();
        assert!(line.starts_with(r#"- - 4 4 {"headers":[{"key":":status","value":"200"},"#), "{line}");
        let path = if use_post { "/echo/a?b" } else { "-" };
        assert!(line.contains(&format!(r#"{{"key":"x-path","value":"{path}"}}"#)), "{line}");
        let trailers = r#" {"headers":[{"key":"grpc-status","value":"0"},{"key":"grpc-message","value":"fine"}]}"#;
        assert!(line.ends_with(trailers), "{line}");
    }
}

#[test]
fn nothing_is_kept_of_an_answer_unasked() {
    let origin = H2Origin::start(10);
    let logged = Logged::start(origin.address, json!({"post_path": "/echo"}), http2());
    let mut client = logged.client();
    client.half_close();
    assert!(client.closed());
    assert_eq!(logged.line(), "- - 0 0 - -");
}
