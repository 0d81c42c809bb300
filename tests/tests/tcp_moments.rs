//! When a TCP proxy asks for its endpoint, and when its connections end.

use postrider_tests::kit::config::file_access_log;
use postrider_tests::kit::{Config, Origin, Proxy, RawClient, TempDir, wait_until};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

fn tcp(origin: &Origin, mut fields: Value) -> Proxy {
    fields["cluster"] = json!("origin");
    Proxy::start(&Config::new().tcp("tcp", fields).cluster("origin", &[origin.address]))
}

#[test]
fn the_endpoint_waits_for_the_client_s_first_word() {
    for most in [0, 1024] {
        let origin = Origin::tcp_echo("");
        let mode = json!({"upstream_connect_mode": "ON_DOWNSTREAM_DATA", "max_early_data_bytes": most});
        let proxy = tcp(&origin, mode);
        let mut silent = RawClient::connect(proxy.address("tcp"));
        let mut talker = RawClient::connect(proxy.address("tcp"));
        let long = "hello".repeat(2000);
        talker.send(&long);
        assert_eq!(talker.read_exact(long.len()).unwrap(), long.as_bytes());
        assert_eq!(origin.connection_count(), 1, "nobody asked for the silent one");
        silent.send("now");
        assert_eq!(silent.read_exact(3).unwrap(), b"now");
        assert_eq!(origin.connection_count(), 2);
    }
}

#[test]
fn a_client_that_says_nothing_is_closed_in_time() {
    let origin = Origin::tcp_echo("");
    let folder = TempDir::new();
    let path = folder.path().join("log");
    let format =
        json!({"log_format": {"text_format_source": {"inline_string": "%RESPONSE_FLAGS% %BYTES_RECEIVED%\n"}}});
    for (field, stat, line) in [
        ("idle_timeout", "idle_timeout", "- 0\n"),
        ("max_downstream_connection_duration", "max_downstream_connection_duration", "DT 0\n"),
    ] {
        let _ = std::fs::remove_file(&path);
        let mut fields = json!({
            "upstream_connect_mode": "ON_DOWNSTREAM_DATA", "max_early_data_bytes": 1024, "stat_prefix": "t",
            "access_log": [file_access_log(&path, format.clone())],
        });
        fields[field] = json!("0.2s");
        let proxy = tcp(&origin, fields);
        assert!(RawClient::connect(proxy.address("tcp")).closed(), "{field}");
        let logged = || std::fs::read_to_string(&path).unwrap_or_default();
        wait_until("it is logged", || !logged().is_empty());
        assert_eq!((logged().as_str(), proxy.stats().value(&format!("tcp.t.{stat}"))), (line, 1));
    }
    assert_eq!(origin.connection_count(), 0);
}

#[test]
fn a_duration_is_longer_by_chance() {
    let origin = Origin::tcp_echo("");
    let fields = json!({
        "max_downstream_connection_duration": "0.3s",
        "max_downstream_connection_duration_jitter_percentage": {"value": 100.0},
    });
    let proxy = tcp(&origin, fields);
    let mut lasted: Vec<Duration> = (0..8)
        .map(|_| {
            let began = Instant::now();
            assert!(RawClient::connect(proxy.address("tcp")).closed());
            began.elapsed()
        })
        .collect();
    lasted.sort();
    assert!(lasted[0] >= Duration::from_millis(290), "{lasted:?}");
    assert!(lasted[7] - lasted[0] >= Duration::from_millis(30), "{lasted:?}");
}

#[test]
fn connections_end_while_the_proxy_drains_where_that_is_asked_for() {
    let origin = Origin::tcp_echo("");
    let kept = tcp(&origin, json!({"stat_prefix": "t"}));
    let ended = tcp(&origin, json!({"stat_prefix": "t", "check_drain_close": true}));
    for (proxy, ends) in [(&kept, false), (&ended, true)] {
        let mut client = RawClient::connect(proxy.address("tcp"));
        client.send("one");
        assert_eq!(client.read_exact(3).unwrap(), b"one");
        proxy.admin_post("/healthcheck/fail");
        client.send("two");
        if ends {
            // With or without the echo, which may have been back already.
            let last = client.read_to_end().unwrap();
            assert!(b"two".starts_with(&last), "{last:?}");
        } else {
            assert_eq!(client.read_exact(3).unwrap(), b"two");
        }
        wait_until("it is counted", || proxy.stats().value("tcp.t.downstream_cx_drain_close") == u64::from(ends));
    }
    // What came is sent on all the same.
    wait_until("the last word", || origin.all_bytes() == b"onetwoonetwo");
}
