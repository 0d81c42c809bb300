//! TLS between clients and the proxy: what is agreed, which certificate and which filter chain serve, what becomes of
//! greetings that are cut, late or none.

use postrider_tests::h2_frames::{self as raw, Frames};
use postrider_tests::kit::config::{self, file_access_log, http_filter};
use postrider_tests::kit::{Config, Origin, Proxy, RawClient, TempDir, WireError, process, wait_until};
use postrider_tests::tls::{
    Authority, Client, Identity, TlsClient, await_listener_stat, downstream, secured, tls_inspector,
};
use postrider_tests::{envoy, get, needed};
use rustls::version::{TLS12, TLS13};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;

/// Answers every request with `name`.
fn named(name: &str) -> Value {
    let routes =
        json!([{"match": {"prefix": "/"}, "direct_response": {"status": 200, "body": {"inline_string": name}}}]);
    json!({"route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": routes}]}})
}

/// A site that answers `hello` over TLS, and who signed for it.
fn site(fields: Value) -> (Authority, Proxy) {
    let authority = Authority::new("authority");
    let config = Config::new().http(named("hello"));
    let proxy = Proxy::start(&secured(config, &authority.issue(&["site.test"]), fields));
    (authority, proxy)
}

/// A filter chain for `matching` that answers with its own name.
fn chain(name: &str, matching: Value, identity: &Identity) -> Value {
    json!({
        "name": name,
        "filter_chain_match": matching,
        "filters": [http_filter(named(name))],
        "transport_socket": downstream(&[identity.inline()], json!({})),
    })
}

#[test]
fn a_reset_behind_a_large_body_that_waits_is_noticed() {
    if envoy() {
        return;
    }
    let authority = Authority::new("authority");
    let delay = json!({"fixed_delay": "60s", "percentage": {"numerator": 100}});
    let fault =
        config::extension("envoy.filters.http.fault", "filters.http.fault.v3.HTTPFault", json!({"delay": delay}));
    let mut http = named("never");
    http["http_filters"] = json!([fault, config::router()]);
    let proxy = Proxy::start(&secured(Config::new().http(http), &authority.issue(&["site.test"]), json!({})));
    let mut client = Client::trusting(&authority).connect(proxy.address("http"), "site.test");
    client.send("POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 200000\r\n\r\n").send(vec![b'x'; 100_000]);
    proxy.wait_stat("http.ingress_http.downstream_rq_active", 1);
    client.into_transport().reset();
    proxy.wait_stat("http.ingress_http.downstream_rq_active", 0);
    proxy.wait_stat("http.ingress_http.downstream_cx_active", 0);
}

#[test]
fn requests_pass_over_tls_1_2_and_1_3() {
    let authority = Authority::new("authority");
    let origin = Origin::echo("a");
    let proxy = Proxy::start(&secured(Config::proxy_to(origin.address), &authority.issue(&["site.test"]), json!({})));
    for (version, name) in [(&TLS12, "TLSv1_2"), (&TLS13, "TLSv1_3")] {
        let mut client = Client::speaking(&authority, &[version]).connect(proxy.address("http"), "site.test");
        assert_eq!(client.stream().version(), name);
        for _ in 0..3 {
            assert_eq!(client.exchange(get("/")).status, 200);
        }
        let sent = client.exchange("POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 4\r\n\r\nbody");
        assert!(sent.text().ends_with("\r\n\r\nbody"));
        assert!(sent.text().contains("x-forwarded-proto: https\r\n"), "{sent:?}");
        let closing = client.exchange("GET / HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n");
        assert_eq!(closing.status, 200);
        // With close_notify: an end without it is an error to this client.
        assert_eq!(client.read_to_end(), Ok(Vec::new()), "{name}");
    }
}

#[test]
fn a_version_that_is_not_allowed_is_refused() {
    let params = |version: &str| {
        json!({"common_tls_context": {"tls_params": {
            "tls_minimum_protocol_version": version, "tls_maximum_protocol_version": version,
        }}})
    };
    for (allowed, good, bad) in [("TLSv1_2", &TLS12, &TLS13), ("TLSv1_3", &TLS13, &TLS12)] {
        let (authority, proxy) = site(params(allowed));
        let address = proxy.address("http");
        assert_eq!(Client::speaking(&authority, &[good]).get(address, "site.test").unwrap().text(), "hello");
        let refused = Client::speaking(&authority, &[bad]).get(address, "site.test").unwrap_err();
        assert!(refused.contains("ProtocolVersion"), "{refused}");
    }
}

#[test]
fn twenty_megabytes_pass_both_ways_over_tls() {
    const SIZE: usize = 20 << 20;
    let authority = Authority::new("authority");
    let origin = Origin::start(|connection| {
        while let Some(request) = connection.request_head() {
            let mut received = 0;
            connection.body(&request, &mut |piece| received += piece.len());
            let length = if request.method == "GET" { SIZE } else { 2 };
            assert!(request.method == "GET" || received == SIZE);
            connection.write(format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n").as_bytes());
            connection.write(&vec![b'd'; length]);
        }
    });
    let config = Config::proxy_to(origin.address);
    let proxy = Proxy::start(&secured(config, &authority.issue(&["site.test"]), json!({})));
    let mut client = Client::trusting(&authority).connect(proxy.address("http"), "site.test");
    let before = proxy.resident_kib();
    client.send(format!("PUT / HTTP/1.1\r\nhost: test\r\ncontent-length: {SIZE}\r\n\r\n"));
    client.try_send(&vec![b'u'; SIZE]).unwrap();
    assert_eq!(client.response("PUT").unwrap().text(), "dd");
    let answer = client.exchange(get("/"));
    assert!(answer.body.len() == SIZE && answer.body.iter().all(|byte| *byte == b'd'));
    let growth = proxy.resident_kib().saturating_sub(before);
    assert!(growth < 4096, "grew by {growth} KiB");
}

#[test]
fn the_server_name_chooses_among_filter_chains() {
    let authority = Authority::new("authority");
    let issue = |name: &str| authority.issue(&[name]);
    let config = Config::new().listener(
        "http",
        json!({
            "listener_filters": [tls_inspector()],
            "filter_chains": [
                chain("exact", json!({"server_names": ["one.test"]}), &issue("one.test")),
                chain("wildcard", json!({"server_names": ["*.site.test"]}), &issue("*.site.test")),
                chain("deeper", json!({"server_names": ["*.deep.site.test"]}), &issue("*.deep.site.test")),
            ],
            "default_filter_chain": chain("default", json!({}), &issue("other.example")),
        }),
    );
    let proxy = Proxy::start(&config);
    let client = Client::trusting(&authority);
    for (name, served) in [
        ("one.test", "exact"),
        ("ONE.test", "exact"),
        ("two.site.test", "wildcard"),
        ("a.deep.site.test", "deeper"),
        ("other.example", "default"),
    ] {
        assert_eq!(client.get(proxy.address("http"), name).unwrap().text(), served, "{name}");
    }
    let nameless = client.clone().nameless();
    assert_eq!(nameless.get(proxy.address("http"), "other.example").unwrap().text(), "default");
    // The certificate is that of the chain, not whatever would fit.
    let refused = client.get(proxy.address("http"), "third.example").unwrap_err();
    assert!(refused.contains("not valid for name"), "{refused}");
}

#[test]
fn a_name_that_no_filter_chain_wants_is_turned_away() {
    let authority = Authority::new("authority");
    let only = chain("only", json!({"server_names": ["one.test"]}), &authority.issue(&["one.test"]));
    let fields = json!({"listener_filters": [tls_inspector()], "filter_chains": [only]});
    let proxy = Proxy::start(&Config::new().listener("http", fields));
    let client = Client::trusting(&authority);
    assert!(client.get(proxy.address("http"), "two.test").is_err());
    assert!(client.get(proxy.address("http"), "one.test").is_ok());
    await_listener_stat(&proxy, "no_filter_chain_match", 1);
}

#[test]
fn the_certificate_is_chosen_by_name_and_by_what_the_client_can_verify() {
    let authority = Authority::new("authority");
    let (shop, shop_rsa) = (authority.issue(&["shop.test"]), authority.issue_rsa(&["shop.test"]));
    let blog = authority.issue(&["blog.test", "*.blog.test"]);
    let certificates = [shop.inline(), shop_rsa.inline(), blog.inline()];
    let config = Config::new().http(named("hello"));
    let config = config.overlay_chain("http", json!({"transport_socket": downstream(&certificates, json!({}))}));
    let proxy = Proxy::start(&config);
    let shown = |client: &Client, name: &str| {
        let mut client = client.connect(proxy.address("http"), name);
        assert_eq!(client.exchange(get("/")).text(), "hello");
        client.stream().shown().clone()
    };
    let any = Client::trusting(&authority);
    assert_eq!(shown(&any, "shop.test"), shop.der);
    assert_eq!(shown(&any, "blog.test"), blog.der);
    assert_eq!(shown(&any, "a.blog.test"), blog.der);
    assert_eq!(shown(&any.clone().nameless(), "shop.test"), shop.der);
    if !envoy() {
        // Envoy refuses this client.
        assert_eq!(shown(&Client::taking_only("RSA", &authority), "shop.test"), shop_rsa.der);
    }
    assert_eq!(shown(&Client::taking_only("ECDSA", &authority), "shop.test"), shop.der);
}

#[test]
fn alpn_chooses_the_protocol_and_the_filter_chain() {
    let authority = Authority::new("authority");
    let identity = authority.issue(&["site.test"]);
    let alpn = json!({"common_tls_context": {"alpn_protocols": ["h2", "http/1.1"]}});
    let both = chain("both", json!({}), &identity);
    let mut modern = chain("modern", json!({"application_protocols": ["h2"]}), &identity);
    modern["transport_socket"] = downstream(&[identity.inline()], alpn);
    let fields = json!({"listener_filters": [tls_inspector()], "filter_chains": [modern, both]});
    let proxy = Proxy::start(&Config::new().listener("http", fields));
    let address = proxy.address("http");
    let plain = Client::trusting(&authority);
    assert_eq!(plain.get(address, "site.test").unwrap().text(), "both");
    let client = plain.clone().offering(&["h2", "http/1.1"]).connect(address, "site.test");
    assert_eq!(client.stream().protocol(), "h2");
    let mut frames = Frames::over(client.into_transport(), &[]);
    frames.send(raw::get(1, "/"));
    assert_eq!(frames.await_status(1), 200);
    let data = frames.await_frame("a body", |frame| frame.kind == raw::DATA);
    assert_eq!(data.payload, b"modern");
}

#[test]
fn without_a_protocol_in_common_the_proxy_goes_by_what_it_is_told() {
    let (authority, proxy) = site(json!({"common_tls_context": {"alpn_protocols": ["h2", "http/1.1"]}}));
    let address = proxy.address("http");
    let old = Client::trusting(&authority).offering(&["http/1.1"]).connect(address, "site.test");
    assert_eq!(old.stream().protocol(), "http/1.1");
    let silent = Client::trusting(&authority).get(address, "site.test").unwrap();
    assert_eq!(silent.text(), "hello");
    // Envoy goes on without one, too.
    let other = Client::trusting(&authority).offering(&["spdy/3"]).get(address, "site.test");
    assert_eq!(other.map(|response| response.text().to_owned()), Ok("hello".to_owned()));
}

/// The first flight of a client, and the client that said it.
fn greeting(client: &Client, name: &str) -> (rustls::ClientConnection, Vec<u8>) {
    let mut session = client.session(name);
    let mut bytes = Vec::new();
    session.write_tls(&mut bytes).unwrap();
    (session, bytes)
}

#[test]
fn a_greeting_cut_anywhere_still_works() {
    let authority = Authority::new("authority");
    let chains = json!([chain("one", json!({"server_names": ["one.test"]}), &authority.issue(&["one.test"]))]);
    for listener_filters in [json!([tls_inspector()]), json!([])] {
        if envoy() && listener_filters == json!([]) {
            // Envoy needs to be told to look.
            continue;
        }
        let fields = json!({"filter_chains": chains, "listener_filters": listener_filters});
        let proxy = Proxy::start(&Config::new().listener("http", fields));
        let client = Client::trusting(&authority);
        let length = greeting(&client, "one.test").1.len();
        for cut in (1..12).chain((12..length).step_by(97)) {
            let (session, bytes) = greeting(&client, "one.test");
            let mut stream = TcpStream::connect(proxy.address("http")).unwrap();
            stream.set_nodelay(true).unwrap();
            stream.write_all(&bytes[..cut]).unwrap();
            // What is there is read before the rest comes: the admin sees that the connection was accepted.
            assert!(proxy.admin_get("/ready").status == 200);
            stream.write_all(&bytes[cut..]).unwrap();
            let mut client = TlsClient::over(client.joined(session, stream));
            assert_eq!(client.exchange(get("/")).text(), "one", "cut at {cut}");
        }
    }
}

#[test]
fn plain_text_on_a_port_of_tls_ends_cleanly() {
    let (authority, proxy) = site(json!({}));
    let address = proxy.address("http");
    for text in ["GET / HTTP/1.1\r\nhost: test\r\n\r\n", "\0\0\0\0\0\0", "\x16\x03\x01\x00\x05hello", "SSH-2.0-x\r\n"] {
        let mut client = RawClient::connect(address);
        client.send(text);
        // An alert at most, never an answer.
        match client.read_to_end() {
            Ok(bytes) => assert!(bytes.is_empty() || bytes[0] == 0x15, "{text:?}: {bytes:?}"),
            Err(WireError::Reset) => {}
            Err(error) => panic!("{text:?}: {error:?}"),
        }
    }
    assert_eq!(Client::trusting(&authority).get(address, "site.test").unwrap().text(), "hello");
    await_listener_stat(&proxy, "ssl.connection_error", 4);
}

#[test]
fn tls_on_a_plain_port_is_a_bad_request() {
    let proxy = Proxy::start(&Config::new().http(named("hello")));
    let authority = Authority::new("authority");
    let (_session, bytes) = greeting(&Client::trusting(&authority), "site.test");
    let mut client = proxy.client();
    client.send(&bytes);
    assert_eq!(client.response("GET").unwrap().status, 400);
    assert_eq!(proxy.get("/").text(), "hello");
}

#[test]
fn plain_text_and_tls_share_a_port() {
    let authority = Authority::new("authority");
    let secure = chain("secure", json!({"transport_protocol": "tls"}), &authority.issue(&["site.test"]));
    let plain = json!({
        "name": "plain",
        "filter_chain_match": {"transport_protocol": "raw_buffer"},
        "filters": [http_filter(named("plain"))],
    });
    let fields = json!({"listener_filters": [tls_inspector()], "filter_chains": [secure, plain]});
    let proxy = Proxy::start(&Config::new().listener("http", fields));
    for _ in 0..3 {
        assert_eq!(proxy.get("/").text(), "plain");
        let secure = Client::trusting(&authority).get(proxy.address("http"), "site.test").unwrap();
        assert_eq!(secure.text(), "secure");
        let mut frames = Frames::connect(proxy.address("http"), &[]);
        frames.send(raw::get(1, "/"));
        assert_eq!(frames.await_status(1), 200);
    }
}

#[test]
fn http_inspector_tells_the_protocols_of_plain_connections() {
    let inspector = config::extension(
        "envoy.filters.listener.http_inspector",
        "filters.listener.http_inspector.v3.HttpInspector",
        json!({}),
    );
    let plain = |name: &str, protocol: &str| {
        json!({
            "name": name,
            "filter_chain_match": {"application_protocols": [protocol]},
            "filters": [http_filter(named(name))],
        })
    };
    let fields = json!({
        "listener_filters": [inspector],
        "filter_chains": [plain("one", "http/1.1"), plain("two", "h2c")],
    });
    let proxy = Proxy::start(&Config::new().listener("http", fields));
    assert_eq!(proxy.get("/").text(), "one");
    let mut frames = Frames::connect(proxy.address("http"), &[]);
    frames.send(raw::get(1, "/"));
    let data = frames.await_frame("a body", |frame| frame.kind == raw::DATA);
    assert_eq!(data.payload, b"two");
    assert!(RawClient::once(proxy.address("http"), "rubbish\r\n\r\n").is_err());
}

#[test]
fn a_handshake_that_stalls_is_ended_in_time() {
    let authority = Authority::new("authority");
    let config = secured(Config::new().http(named("hello")), &authority.issue(&["site.test"]), json!({}));
    let config = config.overlay_chain("http", json!({"transport_socket_connect_timeout": "0.6s"}));
    let proxy = Proxy::start(&config);
    let (mut session, bytes) = greeting(&Client::trusting(&authority), "site.test");
    for sent in [0, 1, 5, bytes.len() / 2, bytes.len()] {
        let mut stream = TcpStream::connect(proxy.address("http")).unwrap();
        stream.write_all(&bytes[..sent]).unwrap();
        stream.set_read_timeout(Some(postrider_tests::kit::DEADLINE)).unwrap();
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
        assert_eq!(rest.is_empty(), sent < bytes.len(), "{sent} bytes: {} came back", rest.len());
    }
    await_listener_stat(&proxy, "transport_socket_connect_timeout", 5);
    session.send_close_notify();
    assert_eq!(Client::trusting(&authority).get(proxy.address("http"), "site.test").unwrap().text(), "hello");
}

#[test]
fn handshakes_in_parallel_keep_nobody_waiting() {
    const CLIENTS: usize = 200;
    let authority = Authority::new("authority");
    let secure = chain("secure", json!({}), &authority.issue(&["site.test"]));
    let config = Config::new().http(named("plain")).listener("secure", json!({"filter_chains": [secure]}));
    let proxy = Proxy::start(&config);
    let (plain, secure) = (proxy.address("http"), proxy.address("secure"));
    let mut greetings: Vec<TcpStream> = (0..CLIENTS)
        .map(|_| {
            let (_, bytes) = greeting(&Client::trusting(&authority), "site.test");
            let mut stream = TcpStream::connect(secure).unwrap();
            stream.write_all(&bytes).unwrap();
            stream
        })
        .collect();
    let served = std::thread::scope(|scope| {
        let visits: Vec<_> = (0..4)
            .map(|_| {
                let client = Client::trusting(&authority);
                scope.spawn(move || {
                    let visits = (0..CLIENTS / 4).map(|_| client.fresh().get(secure, "site.test"));
                    visits.filter(|answer| answer.as_ref().is_ok_and(|answer| answer.text() == "secure")).count()
                })
            })
            .collect();
        let mut asking = RawClient::connect(plain);
        while visits.iter().any(|visit| !visit.is_finished()) {
            let started = std::time::Instant::now();
            assert_eq!(asking.exchange(get("/")).text(), "plain");
            assert!(started.elapsed().as_millis() < 1000, "{:?}", started.elapsed());
        }
        visits.into_iter().map(|visit| visit.join().unwrap()).sum::<usize>()
    });
    assert_eq!(served, CLIENTS);
    for stream in &mut greetings {
        let mut first = [0; 1];
        stream.set_read_timeout(Some(postrider_tests::kit::DEADLINE)).unwrap();
        stream.read_exact(&mut first).unwrap();
        assert_eq!(first[0], 0x16, "a server's greeting");
    }
}

#[test]
fn require_tls_sends_plain_clients_to_https() {
    let authority = Authority::new("authority");
    let hcm = |require: &str| {
        let mut hcm = named("hello");
        hcm["route_config"]["virtual_hosts"][0]["require_tls"] = json!(require);
        hcm
    };
    let secure = json!({
        "filters": [http_filter(hcm("ALL"))],
        "transport_socket": downstream(&[authority.issue(&["site.test"]).inline()], json!({})),
    });
    let config = Config::new().http(hcm("ALL")).listener("secure", json!({"filter_chains": [secure]}));
    let proxy = Proxy::start(&config);
    let redirect = proxy.get("/path?q=1");
    assert_eq!((redirect.status, redirect.header("location")), (301, "https://test/path?q=1"));
    let served = Client::trusting(&authority).get(proxy.address("secure"), "site.test").unwrap();
    assert_eq!((served.status, served.text()), (200, "hello"));
}

#[test]
fn sessions_are_resumed_by_ticket_with_every_worker() {
    let authority = Authority::new("authority");
    let config = secured(Config::new().http(named("hello")), &authority.issue(&["site.test"]), json!({}));
    let launch = postrider_tests::kit::proxy::Launch { concurrency: 2, ..Default::default() };
    let proxy = Proxy::start_with(&config, launch);
    for version in [&TLS12, &TLS13] {
        let client = Client::speaking(&authority, &[version]);
        let visit = || {
            let mut client = client.connect(proxy.address("http"), "site.test");
            // The ticket of TLS 1.3 comes with the answer.
            assert_eq!(client.exchange(get("/")).text(), "hello");
            client.stream().resumed()
        };
        assert!(!visit());
        let resumed = (0..10).filter(|_| visit()).count();
        assert_eq!(resumed, 10, "{version:?}");
    }
    await_listener_stat(&proxy, "ssl.session_reused", 20);
}

#[test]
fn sessions_are_not_resumed_where_that_is_off() {
    let off = json!({"disable_stateless_session_resumption": true, "disable_stateful_session_resumption": true});
    let (authority, proxy) = site(off);
    for version in [&TLS12, &TLS13] {
        let client = Client::speaking(&authority, &[version]);
        for _ in 0..3 {
            let mut client = client.connect(proxy.address("http"), "site.test");
            assert_eq!(client.exchange(get("/")).text(), "hello");
            assert!(!client.stream().resumed());
        }
    }
}

#[test]
fn a_client_that_breaks_off_without_a_word_leaves_nothing_behind() {
    let (authority, proxy) = site(json!({}));
    for _ in 0..5 {
        let mut client = Client::trusting(&authority).connect(proxy.address("http"), "site.test");
        client.send("POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 100\r\n\r\nhalf");
    }
    proxy.wait_stat("http.ingress_http.downstream_cx_active", 0);
    proxy.wait_stat("http.ingress_http.downstream_rq_active", 0);
}

fn curl(authority: &Authority, address: SocketAddr, arguments: &[&str]) -> process::Finished {
    let directory = TempDir::new();
    let ca = directory.write("ca.pem", authority.pem());
    let finished = process::run(
        Command::new(needed("curl"))
            .args(["--silent", "--show-error", "--max-time", "20", "--cacert", ca.to_str().unwrap()])
            .args(["--resolve", &format!("site.test:{}:127.0.0.1", address.port())])
            .args(["--write-out", " %{http_version} %{response_code}"])
            .args(arguments)
            .arg(format!("https://site.test:{}/", address.port())),
    );
    assert_eq!(finished.code, Some(0), "{arguments:?}: {finished:?}");
    finished
}

#[test]
fn curl_speaks_http_1_and_2_over_tls() {
    let (authority, proxy) = site(json!({"common_tls_context": {"alpn_protocols": ["h2", "http/1.1"]}}));
    let address = proxy.address("http");
    assert_eq!(curl(&authority, address, &["--http2"]).stdout, "hello 2 200");
    assert_eq!(curl(&authority, address, &["--http1.1"]).stdout, "hello 1.1 200");
    assert_eq!(curl(&authority, address, &["--tlsv1.2", "--tls-max", "1.2", "--http2"]).stdout, "hello 2 200");
    assert_eq!(curl(&authority, address, &["--http2", "--head"]).stdout.split_once(' ').unwrap().0, "HTTP/2");
}

#[test]
fn curl_uploads_and_downloads_over_tls_and_http_2() {
    let authority = Authority::new("authority");
    let origin = Origin::echo("a");
    let alpn = json!({"common_tls_context": {"alpn_protocols": ["h2", "http/1.1"]}});
    let config = secured(Config::proxy_to(origin.address), &authority.issue(&["site.test"]), alpn);
    let proxy = Proxy::start(&config);
    let directory = TempDir::new();
    let text = "0123456789".repeat(300_000);
    let file = directory.write("upload", &text);
    for version in ["--http2", "--http1.1"] {
        let sent = curl(&authority, proxy.address("http"), &[version, "--upload-file", file.to_str().unwrap()]).stdout;
        assert!(sent.contains(&text), "{version}: {} bytes", sent.len());
        assert!(sent.starts_with("PUT "), "{version}");
    }
    assert!(origin.malformed().is_empty());
}

#[test]
fn openssl_verifies_the_certificate_and_the_name() {
    let (authority, proxy) = site(json!({"common_tls_context": {"alpn_protocols": ["h2", "http/1.1"]}}));
    let directory = TempDir::new();
    let ca = directory.write("ca.pem", authority.pem());
    let address = proxy.address("http").to_string();
    let connect = |arguments: &[&str]| {
        let mut command = Command::new(needed("openssl"));
        command.args(["s_client", "-connect", &address, "-CAfile", ca.to_str().unwrap(), "-servername", "site.test"]);
        process::run(command.args(["-verify_hostname", "site.test", "-verify_return_error"]).args(arguments))
    };
    for (arguments, expected) in [
        (&["-tls1_3"][..], "TLSv1.3"),
        (&["-tls1_2"], "TLSv1.2"),
        (&["-tls1_2", "-cipher", "ECDHE-ECDSA-CHACHA20-POLY1305"], "ECDHE-ECDSA-CHACHA20-POLY1305"),
        (&["-alpn", "h2,http/1.1"], "ALPN protocol: h2"),
        (&["-groups", if envoy() { "P-256" } else { "P-384" }], "Server Temp Key: ECDH, "),
    ] {
        let finished = connect(arguments);
        assert_eq!(finished.code, Some(0), "{arguments:?}: {finished:?}");
        assert!(finished.stdout.contains("Verify return code: 0 (ok)"), "{arguments:?}: {finished:?}");
        assert!(finished.stdout.contains(expected), "{arguments:?}: {}", finished.stdout);
    }
    assert_ne!(connect(&["-tls1_1"]).code, Some(0));
}

#[test]
fn logs_tell_what_was_agreed_on() {
    let folder = TempDir::new();
    let log = folder.path().join("access.log");
    let text = "%DOWNSTREAM_TLS_VERSION% %DOWNSTREAM_TLS_CIPHER% %DOWNSTREAM_TLS_GROUP% %REQUESTED_SERVER_NAME%\n";
    let logger = file_access_log(&log, json!({"log_format": {"text_format_source": {"inline_string": text}}}));
    let authority = Authority::new("authority");
    let config = Config::new().http(named("hello")).overlay_filter("http", json!({"access_log": [logger]}));
    let proxy = Proxy::start(&secured(config, &authority.issue(&["site.test"]), json!({})));
    for version in [&TLS12, &TLS13] {
        assert_eq!(
            Client::speaking(&authority, &[version]).get(proxy.address("http"), "site.test").unwrap().status,
            200
        );
    }
    let lines = || std::fs::read_to_string(&log).unwrap_or_default();
    wait_until("both are logged", || lines().lines().count() == 2);
    let lines = lines();
    let fields: Vec<Vec<&str>> = lines.lines().map(|line| line.split(' ').collect()).collect();
    assert_eq!((fields[0][0], fields[1][0]), ("TLSv1.2", "TLSv1.3"));
    assert!(fields[0][1].starts_with("ECDHE-ECDSA-") && fields[1][1].starts_with("TLS_"), "{lines}");
    assert!(fields.iter().all(|line| line[2].contains("25519") && line[3] == "site.test"), "{lines}");
}
