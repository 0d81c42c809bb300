//! TLS with upstreams: the name that is asked for, whose certificate is believed, and what a client hears when it is
//! not.

use postrider_tests::kit::config::{self, file_access_log, overlay, upstream_http_options};
use postrider_tests::kit::proxy::Launch;
use postrider_tests::kit::{Config, Origin, Proxy, RawClient, TempDir, WireError, net, wait_until};
use postrider_tests::tls::{Authority, Identity, secured, upstream};
use postrider_tests::tls_origin::{Serving, TlsOrigin};
use postrider_tests::{ask, envoy, get, postrider_only};
use rustls::version::TLS12;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::PathBuf;

const ONCE: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok";
const CLOSING: &str = "HTTP/1.1 200 OK\r\n\r\nall of it";

/// A cluster with TLS of this kind, and a log of what goes wrong in it.
struct Site {
    proxy: Proxy,
    _directory: TempDir,
    log: PathBuf,
}

impl Site {
    fn start(origin: SocketAddr, context: Value) -> Self {
        Self::start_with(origin, context, json!({}))
    }

    /// `cluster` overlays the cluster.
    fn start_with(origin: SocketAddr, context: Value, cluster: Value) -> Self {
        let directory = TempDir::new();
        let log = directory.path().join("log");
        let format = "%RESPONSE_CODE% %RESPONSE_FLAGS% %UPSTREAM_TRANSPORT_FAILURE_REASON%\n";
        let text = json!({"log_format": {"text_format_source": {"inline_string": format}}});
        let mut fields = json!({"transport_socket": upstream(context)});
        overlay(&mut fields, cluster);
        let config = Config::routes(json!([{"match": {"prefix": "/"}, "route": {"cluster": "origin"}}]))
            .cluster_with("origin", &[origin], fields)
            .overlay_filter("http", json!({"access_log": [file_access_log(&log, text)]}));
        let launch = Launch::default().with_arguments(&["--file-flush-interval-msec", "20"]);
        Self { proxy: Proxy::start_with(&config, launch), _directory: directory, log }
    }

    /// A visit that fails for a reason that is logged so.
    fn fails_with(&self, reason: &str) {
        self.fails_for(&[]);
        assert_eq!(std::fs::read_to_string(&self.log).unwrap(), format!("503 UF {reason}\n"));
    }

    fn visit(&self, host: &str) -> u16 {
        ask(&self.proxy, "GET", host, "/", "").status
    }

    /// A visit that fails for a reason that is logged with all of these words.
    fn fails_for(&self, words: &[&str]) {
        let response = ask(&self.proxy, "GET", "test", "/", "");
        assert_eq!(response.status, 503, "{response:?}");
        let mut logged = String::new();
        wait_until("a line in the log", || {
            logged = std::fs::read_to_string(&self.log).unwrap_or_default();
            logged.ends_with('\n')
        });
        assert!(logged.starts_with("503 UF "), "{logged}");
        let lower = logged.to_ascii_lowercase();
        assert!(words.iter().all(|word| lower.contains(word)), "{words:?} in {logged}");
        // The client is not told what is between us and the upstream, as in Envoy since 1.39.
        assert!(response.text().ends_with("reset reason: remote connection failure"), "{response:?}");
    }
}

/// Reads a greeting, and says this in the place of an answer.
fn answering(bytes: &'static [u8]) -> Origin {
    Origin::start(move |connection| {
        let Some(head) = connection.read_exact(5) else { return };
        let _ = connection.read_exact(usize::from(u16::from_be_bytes([head[3], head[4]])));
        connection.write(bytes);
    })
}

/// Trusts `authority`.
fn trusting(authority: &Authority) -> Value {
    json!({"common_tls_context": {"validation_context": {"trusted_ca": {"inline_string": authority.pem()}}}})
}

/// Trusts `authority`, and more.
fn trusting_and(authority: &Authority, more: Value) -> Value {
    let mut context = trusting(authority);
    overlay(&mut context, more);
    context
}

fn names(origin: &TlsOrigin) -> Vec<Option<String>> {
    origin.hellos().into_iter().map(|hello| hello.server_name).collect()
}

#[test]
fn the_name_in_the_file_is_asked_for_and_verified() {
    let authority = Authority::new("authority");
    let origin = Serving::new(&authority.issue(&["origin.test"])).start();
    let asked = json!({"sni": "origin.test", "auto_sni_san_validation": true});
    let site = Site::start(origin.address, trusting_and(&authority, asked));
    for _ in 0..5 {
        assert_eq!(site.visit("test"), 200);
    }
    // One connection, and one handshake, served them all.
    assert_eq!(names(&origin), [Some("origin.test".to_owned())]);
    site.proxy.wait_stat("cluster.origin.ssl.handshake", 1);
    site.proxy.wait_stat("cluster.origin.ssl.connection_error", 0);
}

#[test]
fn an_upstream_with_tls_1_2_only_serves() {
    let authority = Authority::new("authority");
    let origin = Serving::speaking(&authority.issue(&["origin.test"]), &[&TLS12]).start();
    let site = Site::start(origin.address, trusting(&authority));
    assert_eq!(site.visit("test"), 200);
    assert_eq!(origin.hellos()[0].version, "TLSv1_2");
}

#[test]
fn tls_1_3_is_taken_unless_the_file_forbids_it() {
    let authority = Authority::new("authority");
    let origin = Serving::new(&authority.issue(&["origin.test"])).start();
    let newest = Site::start(origin.address, trusting(&authority));
    assert_eq!(newest.visit("test"), 200);
    let limit = json!({"common_tls_context": {"tls_params": {"tls_maximum_protocol_version": "TLSv1_2"}}});
    let older = Site::start(origin.address, trusting_and(&authority, limit));
    assert_eq!(older.visit("test"), 200);
    let versions: Vec<_> = origin.hellos().into_iter().map(|hello| hello.version).collect();
    assert_eq!(versions, [if envoy() { "TLSv1_2" } else { "TLSv1_3" }, "TLSv1_2"]);
}

#[test]
fn a_certificate_of_a_stranger_is_a_503_that_says_so() {
    let authority = Authority::new("authority");
    let origin = Serving::new(&Authority::new("stranger").issue(&["origin.test"])).start();
    let site = Site::start(origin.address, trusting_and(&authority, json!({"sni": "origin.test"})));
    site.fails_for(&["tls"]);
    site.proxy.wait_stat("cluster.origin.ssl.fail_verify_error", 1);
    site.proxy.wait_stat("cluster.origin.upstream_cx_connect_fail", 1);
}

#[test]
fn a_certificate_of_another_name_is_a_503_that_says_so() {
    let authority = Authority::new("authority");
    let origin = Serving::new(&authority.issue(&["other.test"])).start();
    let asked = json!({"sni": "origin.test", "auto_sni_san_validation": true});
    Site::start(origin.address, trusting_and(&authority, asked)).fails_for(&["tls"]);
    let matcher = json!({"common_tls_context": {"validation_context": {"match_typed_subject_alt_names": [
        {"san_type": "DNS", "matcher": {"exact": "origin.test"}},
    ]}}});
    let site = Site::start(origin.address, trusting_and(&authority, matcher));
    site.fails_for(&["tls"]);
    site.proxy.wait_stat("cluster.origin.ssl.fail_verify_san", 1);
}

#[test]
fn a_certificate_of_another_hash_is_counted_so() {
    let authority = Authority::new("authority");
    let origin = Serving::new(&authority.issue(&["origin.test"])).start();
    let other = authority.issue(&["origin.test"]).sha256();
    let pinned = json!({"common_tls_context": {"validation_context": {"verify_certificate_hash": [other]}}});
    let site = Site::start(origin.address, trusting_and(&authority, pinned));
    site.fails_for(&["tls"]);
    site.proxy.wait_stat("cluster.origin.ssl.fail_verify_cert_hash", 1);
    assert_eq!(site.proxy.stats().value("cluster.origin.ssl.fail_verify_error"), 0);
}

#[test]
fn a_certificate_of_yesterday_is_a_503_that_says_so() {
    let authority = Authority::new("authority");
    let origin = Serving::new(&authority.issue_expired(&["origin.test"])).start();
    Site::start(origin.address, trusting(&authority)).fails_for(&["tls", "expired"]);
}

#[test]
fn an_upstream_that_does_not_speak_tls_is_a_503_that_says_so() {
    let plain = Origin::start(|connection| {
        connection.read_exact(5);
        connection.write(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
        connection.read_to_end();
    });
    Site::start(plain.address, trusting(&Authority::new("authority"))).fails_for(&["tls"]);
    let closing = Origin::start(|connection| {
        connection.read_exact(5);
    });
    let site = Site::start(closing.address, trusting(&Authority::new("authority")));
    assert_eq!(site.visit("test"), 503);
}

#[test]
fn a_handshake_that_stalls_is_ended_by_the_connect_timeout() {
    let origin = Origin::silent();
    let soon = json!({"connect_timeout": "0.3s"});
    let site = Site::start_with(origin.address, trusting(&Authority::new("authority")), soon);
    assert_eq!(site.visit("test"), 503);
    site.proxy.wait_stat("cluster.origin.upstream_cx_connect_timeout", 1);
    origin.wait_open_at_most(0);
}

#[test]
fn plain_http_to_an_upstream_of_tls_is_an_error_and_not_a_hang() {
    let authority = Authority::new("authority");
    let origin = Serving::new(&authority.issue(&["origin.test"])).start();
    let proxy = Proxy::start(&Config::proxy_to(origin.address));
    assert!(matches!(proxy.get("/").status, 502 | 503));
}

#[test]
fn auto_sni_asks_for_the_host_of_the_request_and_shares_no_connection_between_hosts() {
    let authority = Authority::new("authority");
    let origin = Serving::new(&authority.issue(&["one.test", "two.test"])).start();
    let auto = upstream_http_options(json!({
        "upstream_http_protocol_options": {"auto_sni": true, "auto_san_validation": true},
    }));
    let site = Site::start_with(origin.address, trusting(&authority), auto);
    for host in ["one.test", "two.test", "one.test:8443", "two.test"] {
        assert_eq!(site.visit(host), 200, "{host}");
    }
    assert_eq!(names(&origin), [Some("one.test".to_owned()), Some("two.test".to_owned())]);
    // A host that the certificate is not good for.
    assert_eq!(site.visit("three.test"), 503);
    // An address is no name to ask for (RFC 6066 section 3).
    assert_eq!(site.visit("127.0.0.1"), 503);
}

#[test]
fn auto_sni_asks_for_the_host_in_another_header() {
    let authority = Authority::new("authority");
    let origin = Serving::new(&authority.issue(&["one.test", "two.test"])).start();
    let auto = upstream_http_options(json!({
        "upstream_http_protocol_options": {
            "auto_sni": true, "auto_san_validation": true, "override_auto_sni_header": "X-Server-Name",
        },
    }));
    let site = Site::start_with(origin.address, trusting(&authority), auto);
    let asking = |field: &str| {
        let request = format!("GET / HTTP/1.1\r\nhost: one.test\r\n{field}\r\n");
        site.proxy.exchange(request).status
    };
    assert_eq!(asking("x-server-name: two.test:443\r\n"), 200);
    // Where it is missing or empty the host counts.
    assert_eq!(asking(""), 200);
    assert_eq!(asking("x-server-name:\r\n"), 200);
    assert_eq!(names(&origin), [Some("two.test".to_owned()), Some("one.test".to_owned())]);
    assert_eq!(asking("x-server-name: three.test\r\n"), 503);
}

#[test]
fn auto_host_sni_asks_for_the_name_of_the_endpoint() {
    let authority = Authority::new("authority");
    let origin = Serving::new(&authority.issue(&["endpoint.test"])).start();
    let address = config::socket_address("127.0.0.1", origin.address.port());
    let endpoint = json!({"endpoint": {"hostname": "endpoint.test", "address": address}});
    let load = json!({"load_assignment": {"endpoints": [{"lb_endpoints": [endpoint]}]}});
    let auto = json!({"auto_host_sni": true, "auto_sni_san_validation": true});
    let site = Site::start_with(origin.address, trusting_and(&authority, auto), load);
    assert_eq!(site.visit("test"), 200);
    assert_eq!(names(&origin), [Some("endpoint.test".to_owned())]);
}

#[test]
fn alpn_offers_what_the_file_says() {
    let authority = Authority::new("authority");
    let origin = Serving::new(&authority.issue(&["origin.test"])).offering(&["http/1.1"]).start();
    let alpn = json!({"common_tls_context": {"alpn_protocols": ["http/1.1"]}});
    let site = Site::start(origin.address, trusting_and(&authority, alpn));
    assert_eq!(site.visit("test"), 200);
    assert_eq!(origin.hellos()[0].protocol, "http/1.1");
}

/// An upstream that agrees on one of `protocols` and tells what it was spoken to.
fn telling(identity: &Identity, protocols: &[&str]) -> Proxy {
    let told = json!({"header": {"key": "x-spoken", "value": "%PROTOCOL% %DOWNSTREAM_TLS_VERSION%"}});
    let answer = json!({"status": 200, "body": {"inline_string": "ok"}});
    let routes = json!([{"match": {"prefix": "/"}, "direct_response": answer, "response_headers_to_add": [told]}]);
    let offered = json!({"common_tls_context": {"alpn_protocols": protocols}});
    Proxy::start(&secured(Config::routes(routes), identity, offered))
}

#[test]
fn with_auto_config_an_upstream_is_spoken_to_as_alpn_agrees() {
    let authority = Authority::new("authority");
    let identity = authority.issue(&["origin.test"]);
    let auto = json!({"explicit_http_config": null, "auto_config": {
        "http_protocol_options": {}, "http2_protocol_options": {"max_concurrent_streams": 100},
    }});
    for (protocols, spoken, connections) in [
        (&["h2", "http/1.1"][..], "HTTP/2 TLSv1.3", [0, 1]),
        (&["http/1.1", "h2"], "HTTP/1.1 TLSv1.3", [1, 0]),
        (&["http/1.1"], "HTTP/1.1 TLSv1.3", [1, 0]),
        (&[], "HTTP/1.1 TLSv1.3", [1, 0]),
    ] {
        let origin = telling(&identity, protocols);
        let context = json!({"sni": "origin.test", "common_tls_context": {"tls_params": {
            "tls_maximum_protocol_version": "TLSv1_3",
        }}});
        let site = Site::start_with(
            origin.address("http"),
            trusting_and(&authority, context),
            upstream_http_options(auto.clone()),
        );
        for _ in 0..3 {
            let answer = ask(&site.proxy, "GET", "test", "/", "");
            assert_eq!((answer.status, answer.header("x-spoken")), (200, spoken), "{protocols:?}");
        }
        let stats = site.proxy.stats();
        let opened =
            ["http1", "http2"].map(|version| stats.value(&format!("cluster.origin.upstream_cx_{version}_total")));
        assert_eq!(opened, connections, "{protocols:?}");
    }
}

#[test]
fn an_upstream_that_wants_a_certificate_is_shown_one() {
    let (servers, clients) = (Authority::new("servers"), Authority::new("clients"));
    let origin = Serving::requiring(&servers.issue(&["origin.test"]), &clients).start();
    let shown = json!({"common_tls_context": {"tls_certificates": [clients.issue(&["proxy.test"]).inline()]}});
    let site = Site::start(origin.address, trusting_and(&servers, shown));
    assert_eq!(site.visit("test"), 200);
    assert!(origin.hellos()[0].certified);
    let without = Site::start(origin.address, trusting(&servers));
    assert_eq!(without.visit("test"), 503);
}

#[test]
fn the_authority_and_the_certificate_for_an_upstream_are_renewed_from_disk() {
    if !postrider_only() {
        return;
    }
    let (first, second, clients) = (Authority::new("first"), Authority::new("second"), Authority::new("clients"));
    let origin = Serving::requiring(&second.issue(&["origin.test"]), &clients).start();
    let directory = TempDir::new();
    let write = |identity: &postrider_tests::tls::Identity| {
        let chain = directory.write("tls.crt", identity.chain_pem());
        (chain, directory.write("tls.key", identity.key_pem()))
    };
    let ca = directory.write("ca.pem", first.pem());
    let (chain, key) = write(&Authority::new("nobody").issue(&["proxy.test"]));
    let path = |file: &PathBuf| json!({"filename": file.to_str().unwrap()});
    let context = json!({"common_tls_context": {
        "validation_context": {"trusted_ca": path(&ca)},
        "tls_certificates": [{"certificate_chain": path(&chain), "private_key": path(&key)}],
    }});
    let site = Site::start(origin.address, context);
    assert_eq!(site.visit("test"), 503);
    directory.write("ca.pem", second.pem());
    write(&clients.issue(&["proxy.test"]));
    wait_until("the new authority and certificate", || site.visit("test") == 200);
}

#[test]
fn an_answer_that_is_cut_off_is_not_passed_on_as_whole() {
    let authority = Authority::new("authority");
    // Envoy takes the one end for the other.
    for (polite, whole) in [(true, true), (false, envoy())] {
        let origin = Serving::new(&authority.issue(&["origin.test"])).answering_once(CLOSING, polite).start();
        let site = Site::start(origin.address, trusting(&authority));
        let mut client = site.proxy.client();
        client.send(get("/"));
        let answer = client.response("GET");
        match answer {
            Ok(response) => assert!(whole && response.text() == "all of it", "{response:?}"),
            Err(WireError::Eof(_) | WireError::Reset) => assert!(!whole),
            Err(error) => panic!("{error:?}"),
        }
    }
}

#[test]
fn a_cut_off_after_a_complete_answer_does_no_harm() {
    let authority = Authority::new("authority");
    let origin = Serving::new(&authority.issue(&["origin.test"])).answering_once(ONCE, false).start();
    let site = Site::start(origin.address, trusting(&authority));
    for _ in 0..5 {
        assert_eq!(site.visit("test"), 200);
    }
}

#[test]
fn sessions_with_an_upstream_are_resumed() {
    let authority = Authority::new("authority");
    let origin = Serving::new(&authority.issue(&["origin.test"])).answering_once(ONCE, true).start();
    let site = Site::start(origin.address, trusting_and(&authority, json!({"sni": "origin.test"})));
    for _ in 0..5 {
        assert_eq!(site.visit("test"), 200);
    }
    site.proxy.wait_stat("cluster.origin.ssl.session_reused", 4);
}

#[test]
fn a_tcp_proxy_ends_tls_on_one_side_and_begins_it_on_the_other() {
    let authority = Authority::new("authority");
    let origin = Serving::new(&authority.issue(&["origin.test"])).start();
    let tls = json!({"transport_socket": upstream(trusting(&authority))});
    let config = Config::new().tcp("http", json!({"cluster": "origin"})).cluster_with("origin", &[origin.address], tls);
    let plain = Proxy::start(&config);
    assert_eq!(plain.exchange(get("/")).text(), "ok");
    let both = Proxy::start(&secured(config, &authority.issue(&["site.test"]), json!({})));
    let client = postrider_tests::tls::Client::trusting(&authority);
    assert_eq!(client.get(both.address("http"), "site.test").unwrap().text(), "ok");
    // A client that ends its side without a word, or in the middle of a record, ends it for the upstream, too.
    let mut cut = RawClient::from_stream(net::connect_from([127, 0, 0, 1].into(), both.address("http")));
    cut.send([0x16, 3, 1]);
    drop(cut);
    assert_eq!(client.get(both.address("http"), "site.test").unwrap().text(), "ok");
}

/// They were in the words of another TLS library, behind the ones for a connection that could not be made.
#[test]
fn failures_are_logged_in_envoys_words() {
    let ssl = |number: u32, name: &str| format!("{number}:SSL_routines:OPENSSL_internal:{name}");
    let verify =
        |why: &str| format!("TLS_error:|{}:{why}:TLS_error_end", ssl(268_435_581, "CERTIFICATE_VERIFY_FAILED"));
    let authority = Authority::new("authority");
    let secure = Serving::new(&authority.issue(&["a.test", "b.test"])).start();
    Site::start(secure.address, trusting(&Authority::new("other"))).fails_with(&verify(
        "verify_cert_failed:_X509_verify_cert:_certificate_verification_error_at_depth_0:\
         _unable_to_get_local_issuer_certificate",
    ));
    let asked = json!({"sni": "c.test", "auto_sni_san_validation": true});
    Site::start(secure.address, trusting_and(&authority, asked))
        .fails_with(&verify("verify_cert_failed:_SAN_matcher,_certificate_SANs_are_[a.test,_b.test]"));
    let handshake_failure = format!(
        "TLS_error:|{}|{}:TLS_error_end",
        ssl(268_436_496, "SSLV3_ALERT_HANDSHAKE_FAILURE"),
        ssl(268_435_610, "HANDSHAKE_FAILURE_ON_CLIENT_HELLO")
    );
    let of_peer = |number: u32, name: &str| format!("TLS_error:|{}:TLS_error_end", ssl(number, name));
    let cases: [(&[u8], String, u64); 6] = [
        (b"\x15\x03\x03\0\x02\x02\x30", of_peer(268_436_504, "TLSV1_ALERT_UNKNOWN_CA"), 1),
        (b"\x15\x03\x03\0\x02\x02\x46", of_peer(268_436_526, "TLSV1_ALERT_PROTOCOL_VERSION"), 1),
        (b"\x15\x03\x03\0\x02\x02\x28", handshake_failure, 1),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", of_peer(268_435_703, "WRONG_VERSION_NUMBER"), 1),
        (b"\x16\x03\x03\0\x04\x0e\0\0\0", of_peer(268_435_679, "UNEXPECTED_MESSAGE"), 1),
        // The end of a connection is no error of TLS.
        (b"", "-".to_owned(), 0),
    ];
    for (bytes, reason, errors) in cases {
        let origin = answering(bytes);
        let site = Site::start(origin.address, trusting(&authority));
        site.fails_with(&reason);
        assert_eq!(site.proxy.stats().value("cluster.origin.ssl.connection_error"), errors, "{reason}");
    }
}
