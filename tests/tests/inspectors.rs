//! What the inspectors of a listener count, and what is known of TLS that is passed on. The same holds of Envoy.

use postrider_tests::kit::config::{extension, file_access_log, tcp_filter};
use postrider_tests::kit::{Config, Origin, Proxy, RawClient, TempDir, wait_until};
use postrider_tests::tls::tls_inspector;
use serde_json::{Value, json};

const TLS: [&str; 7] = [
    "tls_found",
    "tls_not_found",
    "sni_found",
    "sni_not_found",
    "alpn_found",
    "alpn_not_found",
    "client_hello_too_large",
];
const HTTP: [&str; 4] = ["http10_found", "http11_found", "http2_found", "http_not_found"];

fn http_inspector() -> Value {
    extension("envoy.filters.listener.http_inspector", "filters.listener.http_inspector.v3.HttpInspector", json!({}))
}

fn start(inspectors: Value, origin: &Origin) -> Proxy {
    Proxy::start(&Config::proxy_to(origin.address).overlay_listener("http", json!({"listener_filters": inspectors})))
}

/// A greeting in TLS (RFC 8446, 4.1.2).
fn hello(name: Option<&str>, protocol: Option<&str>) -> Vec<u8> {
    let with_length = |bytes: &[u8]| [&(bytes.len() as u16).to_be_bytes(), bytes].concat();
    let extension = |kind: u16, content: Vec<u8>| [&kind.to_be_bytes()[..], &with_length(&content)].concat();
    let mut extensions = Vec::new();
    if let Some(name) = name {
        let entry = [&[0], with_length(name.as_bytes()).as_slice()].concat();
        extensions.extend(extension(0, with_length(&entry)));
    }
    if let Some(protocol) = protocol {
        let entry = [&[protocol.len() as u8], protocol.as_bytes()].concat();
        extensions.extend(extension(16, with_length(&entry)));
    }
    let mut body = vec![3, 3];
    body.extend([7; 32]);
    body.extend([0, 0, 2, 0x13, 1, 1, 0]);
    body.extend(with_length(&extensions));
    let message = [&[1, 0], with_length(&body).as_slice()].concat();
    [&[22, 3, 1], with_length(&message).as_slice()].concat()
}

fn counts<const N: usize>(proxy: &Proxy, inspector: &str, names: [&str; N]) -> Vec<String> {
    let stats = proxy.stats();
    let counted = names.map(|name| (name, stats.value(&format!("{inspector}.{name}"))));
    counted.into_iter().filter(|(_, count)| *count > 0).map(|(name, count)| format!("{name} {count}")).collect()
}

/// Says something on a connection of its own to a new proxy, and waits for what is counted of it.
fn say(inspectors: Value, bytes: &[u8], expected: &[&str]) -> Proxy {
    let origin = Origin::fixed("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    let proxy = start(inspectors, &origin);
    let mut client = proxy.client();
    client.send(bytes);
    wait_until("what was said is counted", || {
        let counted = [counts(&proxy, "tls_inspector", TLS), counts(&proxy, "http_inspector", HTTP)].concat();
        counted.iter().map(String::as_str).eq(expected.iter().copied())
    });
    proxy
}

#[test]
fn connections_are_counted_by_what_they_begin_with() {
    let both = || json!([tls_inspector(), http_inspector()]);
    let get = |version: &str| format!("GET / HTTP/{version}\r\nhost: a\r\n\r\n").into_bytes();
    for (bytes, expected) in [
        (get("1.1"), &["tls_not_found 1", "http11_found 1"][..]),
        (get("1.0"), &["tls_not_found 1", "http10_found 1"]),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), &["tls_not_found 1", "http2_found 1"]),
        (b"HELO there\r\n".to_vec(), &["tls_not_found 1", "http_not_found 1"]),
        (hello(Some("a.test"), Some("h2")), &["tls_found 1", "sni_found 1", "alpn_found 1"]),
        (hello(None, None), &["tls_found 1", "sni_not_found 1", "alpn_not_found 1"]),
        (hello(None, Some("http/1.1")), &["tls_found 1", "sni_not_found 1", "alpn_found 1"]),
        // A record of 16 KiB is more than is waited for.
        ([b"\x16\x03\x01\x40\x00".as_slice(), &[1; 17_000]].concat(), &["client_hello_too_large 1"]),
    ] {
        say(both(), &bytes, expected);
    }
}

#[test]
fn an_inspector_alone_counts_alone() {
    say(json!([tls_inspector()]), b"GET / HTTP/1.1\r\nhost: a\r\n\r\n", &["tls_not_found 1"]);
    say(json!([http_inspector()]), b"GET / HTTP/1.1\r\nhost: a\r\n\r\n", &["http11_found 1"]);
    say(json!([http_inspector()]), &hello(None, None), &["http_not_found 1"]);
}

#[test]
fn the_size_of_a_greeting_is_recorded() {
    let bytes = hello(Some("a.test"), None);
    // What follows the greeting is no part of it.
    let sent = [bytes.clone(), vec![0; 1000]].concat();
    let proxy = say(json!([tls_inspector()]), &sent, &["tls_found 1", "sni_found 1", "alpn_not_found 1"]);
    let sum = || {
        let text = proxy.admin_get("/stats/prometheus?filter=bytes_processed").text().to_owned();
        let sum = text.lines().find_map(|line| line.strip_prefix("envoy_tls_inspector_bytes_processed_sum{} "));
        sum.and_then(|sum| sum.parse::<f64>().ok()).unwrap_or_else(|| panic!("{text}"))
    };
    // Envoy shows it after a while, and reckons it from a bucket.
    wait_until("the size is shown", || sum() > 0.0);
    assert!((sum() - bytes.len() as f64).abs() <= 5.0, "{} of {}", sum(), bytes.len());
}

/// A listener that looks at TLS and passes it on, with a line of the TCP proxy's log and the listener's own.
fn passing(filters: &[Value], mut proxy_to: Value, directory: &TempDir) -> Config {
    let line = "%REQUESTED_SERVER_NAME% %TLS_JA3_FINGERPRINT% %TLS_JA4_FINGERPRINT% %DOWNSTREAM_TLS_VERSION%\n";
    let log = |name: &str| {
        let format = json!({"log_format": {"text_format_source": {"inline_string": line}}});
        json!([file_access_log(&directory.path().join(name), format)])
    };
    proxy_to["stat_prefix"] = json!("x");
    proxy_to["access_log"] = log("proxy");
    let takes = json!({"enable_ja3_fingerprinting": true, "enable_ja4_fingerprinting": true});
    let inspector =
        extension("envoy.filters.listener.tls_inspector", "filters.listener.tls_inspector.v3.TlsInspector", takes);
    let filters = [filters, &[tcp_filter(proxy_to)]].concat();
    Config::new().listener(
        "tcp",
        json!({
            "listener_filters": [inspector], "filter_chains": [{"filters": filters}], "access_log": log("listener"),
        }),
    )
}

#[test]
fn the_name_that_passed_tls_asks_for_is_known_to_logs() {
    let origin = Origin::tcp_echo("");
    let directory = TempDir::new();
    let config = passing(&[], json!({"cluster": "origin"}), &directory).cluster("origin", &[origin.address]);
    let proxy = Proxy::start(&config);
    let said = hello(Some("www.a.test"), None);
    let mut client = RawClient::connect(proxy.address("tcp"));
    client.send(&said[..]);
    assert!(client.read_exact(said.len()).unwrap() == said);
    client.half_close();
    assert!(client.closed());
    for name in ["proxy", "listener"] {
        let read = || std::fs::read_to_string(directory.path().join(name)).unwrap_or_default();
        wait_until("a line of the log", || read().ends_with('\n'));
        let line = read();
        let parts: Vec<&str> = line.split_whitespace().collect();
        let [server_name, ja3, ja4, version] = parts[..] else { panic!("{line}") };
        assert_eq!((server_name, version), ("www.a.test", "-"), "{name}");
        assert!(ja3.len() == 32 && ja4.starts_with('t'), "{name}: {line}");
    }
}

#[test]
fn passed_tls_is_tunneled_to_the_name_that_it_asks_for() {
    let origin = Origin::start(|connection| {
        if connection.request_head().is_some() {
            connection.write(b"HTTP/1.1 200 OK\r\n\r\nhi");
            connection.read_to_end();
        }
    });
    let directory = TempDir::new();
    let tunnel = json!({
        "hostname": "%REQUESTED_SERVER_NAME%:443",
        "headers_to_add": [{"header": {"key": "x-name", "value": "%REQUESTED_SERVER_NAME%"}}],
    });
    let proxy_to = json!({"cluster": "origin", "tunneling_config": tunnel});
    let proxy = Proxy::start(&passing(&[], proxy_to, &directory).cluster("origin", &[origin.address]));
    for (asked, target, told) in [(Some("www.a.test"), "www.a.test:443", "www.a.test"), (None, "-:443", "")] {
        let mut client = RawClient::connect(proxy.address("tcp"));
        client.send(&hello(asked, None)[..]);
        assert_eq!(client.read_exact(2).unwrap(), b"hi");
        let request = origin.requests().pop().expect("a request");
        assert_eq!((request.target.as_str(), request.header("x-name")), (target, told));
    }
}

#[test]
fn passed_tls_may_choose_its_cluster_by_a_format() {
    let origins = [Origin::tcp_echo("I am a"), Origin::tcp_echo("I am b")];
    let directory = TempDir::new();
    let format = json!({"text_format_source": {"inline_string": "%REQUESTED_SERVER_NAME%"}});
    let objects = json!([{"object_key": "envoy.tcp_proxy.cluster", "format_string": format}]);
    let state = extension(
        "envoy.filters.network.set_filter_state",
        "filters.network.set_filter_state.v3.Config",
        json!({"on_new_connection": objects}),
    );
    let config = passing(&[state], json!({"cluster": "a.test"}), &directory)
        .cluster("a.test", &[origins[0].address])
        .cluster("b.test", &[origins[1].address]);
    let proxy = Proxy::start(&config);
    let mut client = RawClient::connect(proxy.address("tcp"));
    client.send(&hello(Some("b.test"), None)[..]);
    assert_eq!(client.read_exact(6).unwrap(), b"I am b");
}
