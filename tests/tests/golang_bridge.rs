//! Go code that speaks to the hosts of a cluster in place of HTTP.
//!
//! Real Envoy's pip build runs no Go code, so what is right here is what the SDK's own code and its host's sources say.

use postrider_tests::golang::{bridged, library};
use postrider_tests::kit::origin::OriginConnection;
use postrider_tests::kit::proxy::accepted;
use postrider_tests::kit::{Config, Origin, Proxy, RawClient, wait_until};
use postrider_tests::{ask, envoy, refusal};
use serde_json::{Value, json};

/// The table's name is told to Go code, and the log to these tests.
fn config(origin: &Origin, fields: &Value, more: Value) -> Config {
    let mut cluster = bridged("bridge38", "script", fields);
    for (key, value) in more.as_object().into_iter().flatten() {
        cluster[key] = value.clone();
    }
    let http = json!({
        "route_config": {"name": "table", "virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [
            {"match": {"prefix": "/"}, "route": {"cluster": "bridged", "timeout": "0s", "retry_policy": {"retry_on": "reset", "num_retries": 1}}},
        ]}]},
        "access_log": [{"name": "log", "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.access_loggers.stream.v3.StderrAccessLog",
            "log_format": {"text_format_source": {"inline_string": "logged %RESPONSE_CODE% %UPSTREAM_PROTOCOL% %UPSTREAM_CLUSTER%\n"}},
        }}],
    });
    Config::new().http(http).cluster_with("bridged", &[origin.address], cluster)
}

fn line(connection: &mut OriginConnection) -> String {
    let mut line = Vec::new();
    while let Some(byte) = connection.read_exact(1) {
        if byte == b"\n" {
            break;
        }
        line.extend_from_slice(&byte);
    }
    String::from_utf8(line).unwrap()
}

/// Answers a line, and for a POST another one, with what came.
fn lines() -> Origin {
    Origin::start(|connection| {
        let first = line(connection);
        let body = if first.contains(" POST ") { line(connection) } else { String::new() };
        connection.write(format!("203 x-a=1;x-b=2;x-a=3 [{first}] [{body}]\n").as_bytes());
    })
}

fn post(proxy: &Proxy, lines: &str, body: &str) -> String {
    let answer = proxy.exchange(format!("POST /up HTTP/1.1\r\nhost: test\r\n{lines}\r\n{body}"));
    answer.text().to_owned()
}

#[test]
fn a_request_becomes_what_the_host_speaks_and_its_answer_an_answer() {
    if envoy() {
        return;
    }
    let origin = lines();
    let proxy = Proxy::start(&config(&origin, &json!({"greeting": "hello"}), json!({})));
    let answer = ask(&proxy, "GET", "test", "/a?b", "");
    assert_eq!((answer.status, answer.text()), (203, "[hello GET test /a?b table bridged] []\n"));
    assert_eq!(answer.headers.values("x-a"), ["1", "3"]);
    assert_eq!((answer.header("x-b"), answer.headers.value("x-gone")), ("2", None));
    for (lines, body) in [
        ("content-length: 3\r\n", "abc"),
        ("transfer-encoding: chunked\r\n", "1\r\na\r\n2\r\nbc\r\n0\r\n\r\n"),
        ("transfer-encoding: chunked\r\ntrailer: x-t\r\n", "3\r\nabc\r\n0\r\nx-t: 1\r\n\r\n"),
    ] {
        let answer = post(&proxy, lines, body);
        assert_eq!(answer, "[hello POST test /up table bridged] [ABC]\n", "{lines}");
    }
    let whole = post(&proxy, "x-do: whole\r\ntransfer-encoding: chunked\r\n", "1\r\na\r\n2\r\nbc\r\n0\r\n\r\n");
    assert_eq!(whole, "[hello POST test /up table bridged] [1 3:ABC]\n", "all of it in one call");
    let late = ask(&proxy, "GET", "test", "/", "x-do: late\r\n");
    assert!(late.text().starts_with("203 ["), "the status reads as it was set: {}", late.text());
    let head = ask(&proxy, "HEAD", "test", "/", "");
    assert_eq!((head.status, head.text()), (203, ""));
    wait_until("the log", || proxy.stderr().contains("logged 203 - bridged"));
    assert_eq!(origin.connection_count(), 7, "a connection for each");
    wait_until("their end", || proxy.stderr().matches("script: bridge destroyed").count() == 7);
    let stats = proxy.stats();
    assert_eq!(stats.value("cluster.bridged.upstream_cx_total"), 7);
    assert_eq!(stats.value("cluster.bridged.upstream_rq_total"), 7);
    assert_eq!(stats.value("cluster.bridged.upstream_cx_http1_total"), 0);
}

#[test]
fn go_code_answers_by_itself_and_a_panic_is_an_answer() {
    if envoy() {
        return;
    }
    let origin = lines();
    let proxy = Proxy::start(&config(&origin, &json!({"greeting": "x"}), json!({})));
    let answer = ask(&proxy, "GET", "test", "/", "x-do: answer\r\n");
    assert_eq!((answer.status, answer.text()), (200, "answered by itself\n"));
    let answer = ask(&proxy, "POST", "test", "/p", "x-do: panic\r\ncontent-length: 0\r\n");
    // As Envoy's SDK and its host have it: no status of its own.
    assert_eq!((answer.status, answer.text()), (200, "error happened in golang http-tcp bridge\r\n"));
    let answer = ask(&proxy, "GET", "test", "/p", "x-do: fields\r\nx-a: 1\r\nx-a: 2\r\n");
    assert!(answer.text().starts_with(":authority=test,:method=GET,:path=/p,:scheme=http,"), "{}", answer.text());
    assert!(answer.text().contains("x-a=1,x-a=2,"), "{}", answer.text());
}

#[test]
fn pieces_pass_as_they_come_and_a_slow_client_holds_the_host() {
    if envoy() {
        return;
    }
    let origin = Origin::start(|connection| {
        line(connection);
        let piece = vec![b'x'; 64 << 10];
        for _ in 0..1024 {
            if !connection.write(&piece) {
                return;
            }
        }
    });
    let limit = json!({"per_connection_buffer_limit_bytes": 65536});
    let proxy = Proxy::start(&config(&origin, &json!({"greeting": "x"}), limit));
    let before = proxy.resident_kib();
    let mut client = RawClient::connect(proxy.address("http"));
    client.send("GET / HTTP/1.1\r\nhost: test\r\nx-do: stream\r\n\r\n");
    let head = client.response_head("GET").unwrap();
    let mut last = 0;
    let mut looks = 0;
    wait_until("the host to be held", || {
        let now = proxy.stats().value("cluster.bridged.upstream_cx_rx_bytes_total");
        looks = if now == last && now > 0 { looks + 1 } else { 0 };
        last = now;
        looks == 20
    });
    assert!(last < 32 << 20, "{last} bytes were taken");
    let (mut bytes, mut marks) = (0, 0);
    client
        .body(&head, &mut |piece| {
            marks += piece.iter().filter(|byte| **byte == b'<').count();
            bytes += piece.iter().filter(|byte| **byte == b'x').count();
        })
        .unwrap();
    assert_eq!(bytes, 64 << 20);
    assert!(marks > 1000, "{marks} pieces");
    let grown = proxy.resident_kib().saturating_sub(before);
    assert!(grown < 24 << 10, "{grown} KiB more");
}

#[test]
fn what_is_held_is_bounded_in_both_directions() {
    if envoy() {
        return;
    }
    let origin = Origin::start(|connection| {
        line(connection);
        connection.write(&[b'x'; 100_000]);
        connection.read_to_end();
    });
    let limit = json!({"per_connection_buffer_limit_bytes": 32768});
    let proxy = Proxy::start(&config(&origin, &json!({"greeting": "x"}), limit));
    let body = "y".repeat(50_000);
    let answer = proxy.exchange(format!(
        "POST / HTTP/1.1\r\nhost: test\r\nx-do: whole\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    ));
    assert_eq!((answer.status, answer.text()), (413, "Payload Too Large"));
    // The host never ends its line.
    let answer = ask(&proxy, "GET", "test", "/", "");
    assert_eq!(answer.status, 503, "{}", answer.text());
}

#[test]
fn a_host_that_is_gone_is_tried_again_and_its_end_may_be_told() {
    if envoy() {
        return;
    }
    let first = std::sync::atomic::AtomicBool::new(true);
    let origin = Origin::start(move |connection| {
        let said = line(connection);
        if first.swap(false, std::sync::atomic::Ordering::SeqCst) {
            return connection.reset();
        }
        let rest = connection.read_to_end().unwrap_or_default();
        connection.write(format!("200 x-a=1 {said} and {} more\n", rest.len()).as_bytes());
    });
    let proxy = Proxy::start(&config(&origin, &json!({"greeting": "x", "half_close": true}), json!({})));
    let answer = ask(&proxy, "GET", "test", "/", "");
    assert_eq!((answer.status, answer.text()), (200, "x GET test / table bridged and 0 more\n"));
    assert_eq!(proxy.stats().value("cluster.bridged.upstream_rq_retry"), 1);
}

#[test]
fn configurations_are_read_by_go_code_and_may_change() {
    if envoy() {
        return;
    }
    let origin = lines();
    let mut proxy = Proxy::start(&config(&origin, &json!({"greeting": "one"}), json!({})));
    assert!(ask(&proxy, "GET", "test", "/", "").text().starts_with("[one GET"));
    assert!(accepted(&proxy.reload(config(&origin, &json!({"greeting": "two"}), json!({})).to_yaml())));
    wait_until("the new one", || ask(&proxy, "GET", "test", "/", "").text().starts_with("[two GET"));
    let said = |cluster: Value| refusal(&Config::new().cluster_with("bridged", &[origin.address], cluster));
    let refused = said(bridged("bridge38", "script", &json!({"refuse": 1})));
    assert!(refused.contains("refuses this configuration"), "{refused}");
    let panics = said(bridged("bridge38", "script", &json!({"panic": 1})));
    assert!(panics.contains("would end the process with this configuration: panic: told to"), "{panics}");
    let unknown = said(bridged("bridge38", "nobody-knows-it", &json!({})));
    assert!(unknown.contains("is called `nobody-knows-it`"), "{unknown}");
    let other = said(bridged("network38", "script", &json!({})));
    let lacks = format!("{} bridges nothing: it lacks functions", library("network38").display());
    assert!(other.contains(&lacks), "{other}");
}
