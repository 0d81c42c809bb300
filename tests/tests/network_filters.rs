//! Network filters that need no upstream: echo, direct_response, and limits of a chain's connections.

use std::time::{Duration, Instant};

use postrider_tests::kit::config::{extension, file_access_log, http_filter, tcp_filter};
use postrider_tests::kit::proxy::{self, Launch};
use postrider_tests::kit::{Config, Origin, Proxy, RawClient, TempDir, wait_until};
use postrider_tests::tls::{Authority, Client, downstream};
use postrider_tests::{get, postrider_only};
use serde_json::{Value, json};

fn echo() -> Value {
    extension("envoy.filters.network.echo", "filters.network.echo.v3.Echo", json!({}))
}

fn saying(fields: Value) -> Value {
    extension("envoy.filters.network.direct_response", "filters.network.direct_response.v3.Config", fields)
}

fn limit(fields: Value) -> Value {
    let mut config = json!({"stat_prefix": "few", "max_connections": 1});
    for (key, value) in fields.as_object().unwrap() {
        config[key] = value.clone();
    }
    extension("envoy.filters.network.connection_limit", "filters.network.connection_limit.v3.ConnectionLimit", config)
}

fn chain(filters: &[Value]) -> Config {
    Config::new().listener("tcp", json!({"filter_chains": [{"filters": filters}]}))
}

fn client(proxy: &Proxy) -> RawClient {
    RawClient::connect(proxy.address("tcp"))
}

#[test]
fn a_chain_without_filters_closes_its_connections_at_once() {
    let folder = TempDir::new();
    let log = folder.path().join("log");
    let line = json!({"log_format": {"text_format_source": {"inline_string": "%BYTES_SENT% %FILTER_CHAIN_NAME%\n"}}});
    let authority = Authority::new("root");
    let tls = downstream(&[authority.issue(&["a.test"]).inline()], json!({}));
    for socket in [json!(null), tls] {
        let config = chain(&[])
            .overlay_listener("tcp", json!({"access_log": [file_access_log(&log, line.clone())]}))
            .overlay_chain("tcp", json!({"name": "nothing", "transport_socket": socket}));
        let proxy = Proxy::start(&config);
        // It does not wait for a word of the client's.
        assert!(client(&proxy).closed());
        let written = || std::fs::read_to_string(&log).unwrap_or_default();
        wait_until("a line", || written().ends_with('\n'));
        assert_eq!(written(), "0 nothing\n");
        std::fs::write(&log, "").unwrap();
    }
}

#[test]
fn echo_sends_back_what_comes() {
    let proxy = Proxy::start(&chain(&[echo()]));
    let mut client = client(&proxy);
    for text in ["hello", "again"] {
        client.send(text);
        assert_eq!(client.read_exact(5).unwrap(), text.as_bytes());
    }
    let block: Vec<u8> = (0..200_000u32).map(|n| (n % 251) as u8).collect();
    let sent = block.clone();
    let mut writer = RawClient::from_stream(client.stream().try_clone().unwrap());
    let writing = std::thread::spawn(move || writer.try_send(&sent).unwrap());
    assert!(client.read_exact(block.len()).unwrap() == block);
    writing.join().unwrap();
    client.half_close();
    assert!(client.closed());
}

#[test]
fn echo_speaks_tls_where_its_chain_does() {
    let authority = Authority::new("root");
    let tls = downstream(&[authority.issue(&["a.test"]).inline()], json!({}));
    let config = chain(&[echo()]).overlay_chain("tcp", json!({"transport_socket": tls}));
    let proxy = Proxy::start(&config);
    let mut client = Client::trusting(&authority).connect(proxy.address("tcp"), "a.test");
    client.send("hello");
    assert_eq!(client.read_exact(5).unwrap(), b"hello");
}

#[test]
fn everybody_is_told_the_same_and_the_connection_ends() {
    let proxy = Proxy::start(&chain(&[saying(json!({"response": {"inline_string": "go away\n"}}))]));
    let mut silent = client(&proxy);
    assert_eq!(silent.read_to_end().unwrap(), b"go away\n");
    let proxy = Proxy::start(&chain(&[saying(json!({"response": {"inline_bytes": "AAEC"}}))]));
    assert_eq!(client(&proxy).read_to_end().unwrap(), [0, 1, 2]);
    // Without a response it is a way to refuse.
    let proxy = Proxy::start(&chain(&[saying(json!({}))]));
    assert_eq!(client(&proxy).read_to_end().unwrap(), b"");
}

fn stat(proxy: &Proxy, name: &str) -> u64 {
    proxy.stats().value(&format!("connection_limit.few.{name}"))
}

#[test]
fn beyond_its_limit_a_chain_takes_no_connection() {
    let origin = Origin::tcp_echo("hi");
    let config =
        chain(&[limit(json!({})), tcp_filter(json!({"cluster": "origin"}))]).cluster("origin", &[origin.address]);
    let proxy = Proxy::start_with(&config, Launch { concurrency: 2, ..Launch::default() });
    let mut first = client(&proxy);
    assert_eq!(first.read_exact(2).unwrap(), b"hi");
    for _ in 0..3 {
        assert!(client(&proxy).closed());
    }
    wait_until("one active", || stat(&proxy, "active_connections") == 1);
    assert_eq!(stat(&proxy, "limited_connections"), 3);
    assert_eq!(origin.connection_count(), 1);
    drop(first);
    wait_until("none active", || stat(&proxy, "active_connections") == 0);
    assert_eq!(client(&proxy).read_exact(2).unwrap(), b"hi");
}

fn rate(fields: Value) -> Value {
    let mut config = json!({"stat_prefix": "often", "token_bucket": {"max_tokens": 2, "fill_interval": "3600s"}});
    for (key, value) in fields.as_object().unwrap() {
        config[key] = value.clone();
    }
    extension("envoy.filters.network.local_ratelimit", "filters.network.local_ratelimit.v3.LocalRateLimit", config)
}

#[test]
fn connections_that_come_too_often_are_closed() {
    let proxy = Proxy::start_with(&chain(&[rate(json!({})), echo()]), Launch { concurrency: 2, ..Launch::default() });
    let served = || {
        let mut client = client(&proxy);
        client.try_send(b"hello").is_ok() && client.read_exact(5).is_ok()
    };
    assert_eq!([served(), served(), served(), served()], [true, true, false, false]);
    assert_eq!(proxy.stats().value("local_rate_limit.often.rate_limited"), 2);

    let off = rate(json!({"runtime_enabled": {"default_value": false, "runtime_key": "none"}}));
    let proxy = Proxy::start(&chain(&[off, echo()]));
    for _ in 0..3 {
        let mut client = client(&proxy);
        client.send("hello");
        assert_eq!(client.read_exact(5).unwrap(), b"hello");
    }
}

#[test]
fn chains_share_a_bucket_by_a_key() {
    let filters = |key: &str| json!({"filter_chains": [{"filters": [rate(json!({"share_key": key})), echo()]}]});
    let config = Config::new()
        .listener("one", filters("all"))
        .listener("two", filters("all"))
        .listener("three", filters("other"));
    let proxy = Proxy::start(&config);
    let served = |listener: &str| {
        let mut client = RawClient::connect(proxy.address(listener));
        client.try_send(b"hello").is_ok() && client.read_exact(5).is_ok()
    };
    assert_eq!(["one", "two", "one", "two", "three"].map(served), [true, true, false, false, true]);
}

#[test]
fn it_holds_for_http_and_ends_what_is_too_much_after_its_delay() {
    let routes = json!([{"match": {"prefix": "/"}, "direct_response": {"status": 200}}]);
    let hcm = json!({"route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": routes}]}});
    let proxy = Proxy::start(&chain(&[limit(json!({"delay": "0.3s"})), http_filter(hcm.clone())]));
    let mut first = client(&proxy);
    assert_eq!(first.exchange(get("/")).status, 200);
    let began = Instant::now();
    let mut second = client(&proxy);
    second.send(get("/"));
    assert!(second.closed());
    assert!(began.elapsed() >= Duration::from_millis(290), "{:?}", began.elapsed());
    assert_eq!(first.exchange(get("/")).status, 200, "the one that was there first is served");

    let off = json!({"runtime_enabled": {"default_value": false, "runtime_key": "none"}});
    let proxy = Proxy::start(&chain(&[limit(off.clone()), rate(off), http_filter(hcm)]));
    let mut clients = [client(&proxy), client(&proxy)];
    assert!(clients.iter_mut().all(|client| client.exchange(get("/")).status == 200));
    let stats = proxy.stats();
    let own = ["connection_limit.few.limited_connections", "local_rate_limit.often.rate_limited"];
    assert_eq!(own.map(|name| stats.0.get(name).map(String::as_str)), [Some("0"); 2], "its counters are there");
}

#[test]
fn a_connection_that_waits_to_be_closed_counts_against_the_limit() {
    let origin = Origin::tcp_echo("hi");
    let chain = chain(&[limit(json!({"delay": "3600s"})), tcp_filter(json!({"cluster": "origin"}))]);
    let proxy = Proxy::start(&chain.cluster("origin", &[origin.address]));
    let mut first = client(&proxy);
    assert_eq!(first.read_exact(2).unwrap(), b"hi");
    let mut waiting = client(&proxy);
    waiting.send("hello");
    wait_until("one too many", || stat(&proxy, "limited_connections") == 1);
    drop(first);
    wait_until("the first one is gone", || stat(&proxy, "active_connections") == 1);
    let third = client(&proxy);
    wait_until("another one too many", || stat(&proxy, "limited_connections") == 2);
    assert_eq!(origin.connection_count(), 1);
    drop((waiting, third));
    // In Envoy they stay: its TCP proxy lets clients end their side.
    if postrider_only() {
        wait_until("they left", || stat(&proxy, "active_connections") == 0);
        assert_eq!(client(&proxy).read_exact(2).unwrap(), b"hi");
    }
}

#[test]
fn a_tcp_proxy_logs_when_it_is_told_to() {
    let directory = TempDir::new();
    let path = directory.path().join("log");
    let line = "%ACCESS_LOG_TYPE% %UPSTREAM_CLUSTER% %BYTES_RECEIVED% %DURATION%\n";
    let text = json!({"log_format": {"text_format_source": {"inline_string": line}}});
    let origin = Origin::tcp_echo("");
    let config = Config::new().cluster("origin", &[origin.address]).tcp(
        "tcp",
        json!({
            "cluster": "origin",
            "access_log": [file_access_log(&path, text)],
            "access_log_options": {
                "flush_access_log_on_start": true,
                "flush_access_log_on_connected": true,
                "access_log_flush_interval": "0.1s",
            },
        }),
    );
    let proxy = Proxy::start_with(&config, Launch::default().with_arguments(&["--file-flush-interval-msec", "20"]));
    let mut client = client(&proxy);
    client.send("abc");
    client.read_exact(3).unwrap();
    let lines =
        || -> Vec<String> { std::fs::read_to_string(&path).unwrap_or_default().lines().map(str::to_owned).collect() };
    wait_until("two periods", || lines().len() >= 4);
    client.half_close();
    assert!(client.closed());
    wait_until("the last line", || lines().last().is_some_and(|line| line.starts_with("TcpConnectionEnd")));
    let lines = lines();
    assert_eq!(lines[0], "TcpConnectionStart - 0 0", "{lines:?}");
    assert!(lines[1].starts_with("TcpUpstreamConnected origin 0 "), "{lines:?}");
    let (last, periods) = lines[2..].split_last().unwrap();
    assert!(periods.iter().all(|line| line.starts_with("TcpPeriodic origin 3 ")), "{lines:?}");
    assert!(last.starts_with("TcpConnectionEnd origin 3 "), "{lines:?}");
}

#[test]
fn a_connection_beyond_a_limit_is_in_the_log_and_the_count_of_its_tcp_proxy() {
    for (filter, refused) in [
        (rate(json!({})), "URX local_ratelimit_close_over_limit -"),
        (limit(json!({"max_connections": 2})), "- over_connection_limit -"),
    ] {
        let directory = TempDir::new();
        let path = directory.path().join("log");
        let line = "%RESPONSE_FLAGS% %DOWNSTREAM_LOCAL_CLOSE_REASON% %UPSTREAM_CLUSTER%\n";
        let text = json!({"log_format": {"text_format_source": {"inline_string": line}}});
        let origin = Origin::tcp_echo("");
        let config = Config::new().cluster("origin", &[origin.address]);
        let tcp = json!({"stat_prefix": "way", "cluster": "origin", "access_log": [file_access_log(&path, text)]});
        let tcp = extension("envoy.filters.network.tcp_proxy", "filters.network.tcp_proxy.v3.TcpProxy", tcp);
        let config = config.listener("tcp", json!({"filter_chains": [{"filters": [filter, tcp]}]}));
        let proxy = Proxy::start_with(&config, Launch::default().with_arguments(&["--file-flush-interval-msec", "20"]));
        let mut served: Vec<RawClient> = (0..2).map(|_| client(&proxy)).collect();
        for client in &mut served {
            client.send("abc");
            client.read_exact(3).unwrap();
        }
        assert!(client(&proxy).closed());
        let log = || std::fs::read_to_string(&path).unwrap_or_default();
        wait_until("the line", || log().lines().count() == 1);
        assert_eq!(log().trim_end(), refused);
        assert_eq!(proxy.stats().value("tcp.way.downstream_cx_total"), 3);
    }
}

fn shadowed(filter: Value) -> Value {
    let config = json!({
        "@type": "type.googleapis.com/postrider.filters.network.shadow.v3.Shadow", "filter": filter["typed_config"],
    });
    json!({"name": "next", "typed_config": config})
}

#[test]
fn a_limit_in_the_shadow_counts_and_logs_what_it_would_close() {
    if !postrider_only() {
        return;
    }
    for (limit, counter, how) in [
        (limit(json!({"delay": "3600s"})), "connection_limit.few.would_deny", "connection_limited"),
        (
            rate(json!({"token_bucket": {"max_tokens": 1, "fill_interval": "3600s"}})),
            "local_rate_limit.often.would_deny",
            "rate_limited",
        ),
    ] {
        let (folder, origin) = (TempDir::new(), Origin::tcp_echo("hi"));
        let log = folder.path().join("log");
        let line = "%DYNAMIC_METADATA(next:shadow_details)%\n";
        let format = json!({"log_format": {"text_format_source": {"inline_string": line}}});
        let tcp = tcp_filter(json!({"cluster": "origin", "access_log": [file_access_log(&log, format)]}));
        let config = chain(&[shadowed(limit), tcp]).cluster("origin", &[origin.address]);
        let proxy = Proxy::start(&config);
        let mut clients: Vec<RawClient> = Vec::new();
        for _ in 0..3 {
            let mut client = client(&proxy);
            assert_eq!(client.read_exact(2).unwrap(), b"hi", "{how}");
            clients.push(client);
        }
        assert_eq!(proxy.stats().value(counter), 2, "{how}");
        drop(clients);
        let read = || std::fs::read_to_string(&log).unwrap_or_default();
        wait_until("the log", || read().lines().count() == 3);
        let mut lines: Vec<String> = read().lines().map(str::to_owned).collect();
        lines.sort();
        assert_eq!(lines, ["-", how, how]);
    }
}

#[test]
fn limits_alone_have_a_shadow_among_filters_of_connections() {
    if !postrider_only() {
        return;
    }
    let refused = |filter: Value| {
        let config = chain(&[filter, echo()]);
        let folder = TempDir::new();
        let file = folder.path().join("config.yaml");
        std::fs::write(&file, config.to_yaml()).unwrap();
        let run = proxy::run(&["validate", file.to_str().unwrap()]);
        assert_ne!(run.code, Some(0));
        run.stderr
    };
    let nothing = refused(shadowed(json!({})));
    assert!(nothing.contains("nothing stands in the shadow"), "{nothing}");
    let other = refused(shadowed(echo()));
    assert!(other.contains("echo.v3.Echo"), "{other}");
}
