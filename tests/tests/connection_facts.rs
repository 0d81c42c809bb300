//! What access logs tell of connections themselves: their listener, their ends, how and why they were closed. The same
//! holds for Envoy, which knows no `TZ` in the form of POSIX, however, and does not wait as long with its first lines.

use std::path::{Path, PathBuf};

use postrider_tests::kit::config::{extension, file_access_log, router};
use postrider_tests::kit::proxy::Launch;
use postrider_tests::kit::{Config, Origin, Proxy, RawClient, TempDir, wait_until};
use postrider_tests::tls::{Authority, Client, secured};
use postrider_tests::{ask, envoy, get};
use serde_json::{Value, json};

struct Log {
    _directory: TempDir,
    path: PathBuf,
}

impl Log {
    fn new() -> Self {
        let directory = TempDir::new();
        let path = directory.path().join("log");
        Log { _directory: directory, path }
    }

    fn logger(&self, format: &str) -> Value {
        let text = json!({"log_format": {"text_format_source": {"inline_string": format!("{format}\n")}}});
        file_access_log(&self.path, text)
    }

    fn line(&self) -> String {
        line(&self.path)
    }
}

fn line(path: &Path) -> String {
    let read = || std::fs::read_to_string(path).unwrap_or_default();
    wait_until("a line", || read().ends_with('\n'));
    read().trim_end().to_owned()
}

fn start(config: &Config) -> Proxy {
    Proxy::start_with(config, Launch::default().with_arguments(&["--file-flush-interval-msec", "20"]))
}

const CLOSED: &str = "%DOWNSTREAM_DETECTED_CLOSE_TYPE% %DOWNSTREAM_LOCAL_CLOSE_REASON% \
                      %UPSTREAM_DETECTED_CLOSE_TYPE% %UPSTREAM_LOCAL_CLOSE_REASON%";

fn answering() -> Config {
    Config::routes(json!([{"match": {"prefix": "/"}, "direct_response": {"status": 200}}]))
}

fn of_listener(log: &Log, format: &str) -> Config {
    answering().overlay_listener("http", json!({"access_log": [log.logger(format)]}))
}

/// A TCP proxy with a log of its own.
fn carrying(origin: &Origin, log: &Log, fields: Value) -> Config {
    let mut proxy = json!({"cluster": "origin", "access_log": [log.logger(CLOSED)]});
    postrider_tests::kit::config::overlay(&mut proxy, fields);
    Config::new().tcp("tcp", proxy).cluster("origin", &[origin.address])
}

#[test]
fn a_client_that_resets_is_told_from_one_that_closes() {
    for (resets, expected) in [(false, "Normal - - -"), (true, "RemoteReset - - -")] {
        let log = Log::new();
        let proxy = start(&of_listener(&log, CLOSED));
        let mut client = proxy.client();
        assert_eq!(client.exchange(get("/")).status, 200);
        if resets {
            client.reset()
        } else {
            drop(client)
        }
        assert_eq!(log.line(), expected);
    }
}

#[test]
fn a_connection_that_nobody_uses_is_closed_for_that() {
    let log = Log::new();
    let config = of_listener(&log, CLOSED)
        .overlay_filter("http", json!({"common_http_protocol_options": {"idle_timeout": "0.2s"}}));
    let proxy = start(&config);
    let mut client = proxy.client();
    assert!(client.closed());
    assert_eq!(log.line(), "Normal on_idle_timeout - -");
}

#[test]
fn a_request_ends_before_its_connections_do() {
    let log = Log::new();
    let origin = Origin::fixed("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    let config = Config::proxy_to(origin.address);
    let proxy = start(&config.overlay_filter("http", json!({"access_log": [log.logger(CLOSED)]})));
    assert_eq!(proxy.get("/").status, 200);
    assert_eq!(log.line(), "Normal - Normal -");
}

#[test]
fn each_side_of_a_tcp_proxy_says_how_it_ended() {
    // The client resets.
    let (log, origin) = (Log::new(), Origin::tcp_echo(""));
    let proxy = start(&carrying(&origin, &log, json!({})));
    let mut client = RawClient::connect(proxy.address("tcp"));
    client.send("x");
    assert_eq!(client.read_exact(1).unwrap(), b"x");
    client.reset();
    assert_eq!(log.line(), "RemoteReset - Normal -");

    // The upstream resets, and so the client is reset.
    let log = Log::new();
    let origin = Origin::start(|connection| {
        connection.read_exact(1);
        connection.reset();
    });
    let proxy = start(&carrying(&origin, &log, json!({})));
    let mut client = RawClient::connect(proxy.address("tcp"));
    client.send("x");
    assert!(client.read_to_end().is_err());
    assert_eq!(log.line(), "LocalReset - RemoteReset -");
}

#[test]
fn a_tcp_proxy_closes_what_does_not_move() {
    let (log, origin) = (Log::new(), Origin::tcp_echo(""));
    let proxy = start(&carrying(&origin, &log, json!({"idle_timeout": "0.5s"})));
    let mut client = RawClient::connect(proxy.address("tcp"));
    client.send("x");
    assert_eq!(client.read_exact(1).unwrap(), b"x");
    assert!(client.closed());
    assert_eq!(log.line(), "Normal tcp_session_idle_timeout Normal tcp_session_idle_timeout");
}

#[test]
fn a_line_names_its_listener() {
    let log = Log::new();
    let config = answering().overlay_filter("http", json!({"access_log": [log.logger("%LISTENER_NAME%")]}));
    let proxy = start(&config);
    assert_eq!(proxy.get("/").status, 200);
    assert_eq!(log.line(), "http");
}

#[test]
fn the_socket_has_another_address_than_the_one_that_a_proxy_in_front_says() {
    let log = Log::new();
    let inspector = extension("p", "filters.listener.proxy_protocol.v3.ProxyProtocol", json!({}));
    let format = "%DOWNSTREAM_LOCAL_ADDRESS% %DOWNSTREAM_DIRECT_LOCAL_ADDRESS% \
                  %DOWNSTREAM_DIRECT_LOCAL_ADDRESS_WITHOUT_PORT% %DOWNSTREAM_DIRECT_LOCAL_PORT%";
    let config = answering()
        .overlay_listener("http", json!({"listener_filters": [inspector]}))
        .overlay_filter("http", json!({"access_log": [log.logger(format)]}));
    let proxy = start(&config);
    let address = proxy.address("http");
    let mut client = RawClient::connect(address);
    client.send("PROXY TCP4 10.1.2.3 10.4.5.6 1111 2222\r\n");
    assert_eq!(client.exchange(get("/")).status, 200);
    assert_eq!(log.line(), format!("10.4.5.6:2222 {address} 127.0.0.1 {}", address.port()));
}

#[test]
fn the_handshake_ended_after_its_connection_began_and_before_its_request() {
    let (of_connection, of_request) = (Log::new(), Log::new());
    let authority = Authority::new("a");
    let format = "%DOWNSTREAM_HANDSHAKE_DURATION%";
    let config =
        of_listener(&of_connection, format).overlay_filter("http", json!({"access_log": [of_request.logger(format)]}));
    let proxy = start(&secured(config, &authority.issue(&["a.test"]), json!({})));
    let mut client = Client::trusting(&authority).connect(proxy.address("http"), "a.test");
    assert_eq!(client.exchange(get("/")).status, 200);
    drop(client);
    assert!(of_request.line().parse::<i64>().unwrap() <= 0);
    assert!(of_connection.line().parse::<i64>().unwrap() >= 0);
    // Without TLS there is none.
    let log = Log::new();
    let proxy = start(&answering().overlay_filter("http", json!({"access_log": [log.logger(format)]})));
    assert_eq!(proxy.get("/").status, 200);
    assert_eq!(log.line(), "-");
}

#[test]
fn what_http_3_alone_counts_is_zero() {
    let log = Log::new();
    let format = "%BYTES_RETRANSMITTED% %PACKETS_RETRANSMITTED% %DOWNSTREAM_CX_RTT%";
    let proxy = start(&answering().overlay_filter("http", json!({"access_log": [log.logger(format)]})));
    assert_eq!(proxy.get("/").status, 200);
    assert_eq!(log.line(), "0 0 0");
}

#[test]
fn connections_of_all_tries_are_told_once_each() {
    let log = Log::new();
    let origin = Origin::fixed("HTTP/1.1 503 No\r\ncontent-length: 0\r\n\r\n");
    let route = json!({"cluster": "origin", "retry_policy": {"retry_on": "5xx", "num_retries": 2}});
    let config = Config::routes(json!([{"match": {"prefix": "/"}, "route": route}]))
        .cluster("origin", &[origin.address])
        .overlay_filter(
            "http",
            json!({"access_log": [
            log.logger("%UPSTREAM_CONNECTION_IDS_ATTEMPTED% %UPSTREAM_CONNECTION_ID%")]}),
        );
    let proxy = start(&config);
    assert_eq!(proxy.get("/").status, 503);
    let line = log.line();
    let (all, last) = line.split_once(' ').unwrap();
    assert!(all.parse::<u64>().is_ok() && all == last, "one connection took all three tries: {line}");
}

#[test]
fn lookups_of_a_route_are_counted() {
    for (script, count) in [("", "1"), ("handle:headers():add('x', 'y') handle:clearRouteCache()", "2")] {
        let log = Log::new();
        let code = format!("function envoy_on_request(handle) {script} end");
        let filter =
            extension("lua", "filters.http.lua.v3.Lua", json!({"default_source_code": {"inline_string": code}}));
        let config = answering().overlay_filter(
            "http",
            json!({
                "http_filters": [filter, router()],
                "access_log": [log.logger("%ROUTE_RESOLUTION_COUNT%")],
            }),
        );
        let proxy = start(&config);
        assert_eq!(proxy.get("/").status, 200);
        assert_eq!(log.line(), count);
    }
}

/// One record for a request: with its lookups, and what they took together.
#[test]
fn lookups_of_a_route_are_measured() {
    let code =
        "function envoy_on_request(handle) if handle:headers():get('again') then handle:clearRouteCache() end end";
    let filter = extension("lua", "filters.http.lua.v3.Lua", json!({"default_source_code": {"inline_string": code}}));
    let config = answering()
        .overlay_filter("http", json!({"http_filters": [filter, router()], "record_route_resolution_stats": true}));
    let proxy = start(&config);
    assert_eq!(proxy.get("/").status, 200);
    assert_eq!(ask(&proxy, "GET", "test", "/", "again: 1\r\n").status, 200);
    // Envoy looks for one even so.
    if !envoy() {
        assert_eq!(proxy.exchange("GET / HTTP/1.1\r\n\r\n").status, 400);
    }
    let name = "envoy_http_downstream_rq_route_resolution";
    let all = r#"{envoy_http_conn_manager_prefix="ingress_http""#;
    let value = |line: String| {
        let page = proxy.admin_get("/stats/prometheus").text().to_owned();
        let of = |text: &str| text.strip_prefix(&line)?.trim().parse::<f64>().ok();
        page.lines().find_map(of).unwrap_or(-1.0)
    };
    wait_until("the histograms", || value(format!("{name}s_count{all}}}")) == 2.0);
    let bucket = |most: &str| value(format!("{name}s_bucket{all},le=\"{most}\"}}"));
    assert_eq!((bucket("1"), bucket("5")), (1.0, 2.0));
    assert_eq!(value(format!("{name}_time_us_count{all}}}")), 2.0);
    assert!(value(format!("{name}_time_us_sum{all}}}")) < 1e6, "less than a second");

    let proxy = start(&answering());
    assert_eq!(proxy.get("/").status, 200);
    assert!(!proxy.admin_get("/stats").text().contains("route_resolution"));
}

#[test]
fn local_times_are_those_of_the_zone() {
    let log = Log::new();
    let format = "%START_TIME(%s)% %START_TIME_LOCAL(%s %Z %z)% %START_TIME(%H:%M %z)% %START_TIME_LOCAL(%H:%M)% \
                  %EMIT_TIME_LOCAL%";
    let config = answering().overlay_filter("http", json!({"access_log": [log.logger(format)]}));
    let mut launch = Launch::default().with_arguments(&["--file-flush-interval-msec", "20"]);
    // Five hours and forty-five minutes east, without a table of zones.
    launch.environment.push(("TZ".into(), "NPT-5:45".into()));
    let proxy = Proxy::start_with(&config, launch);
    assert_eq!(proxy.get("/").status, 200);
    let line = log.line();
    let words: Vec<&str> = line.split(' ').collect();
    let [utc, local, zone, offset, here, none, there, default] = words.as_slice() else { panic!("{line}") };
    assert_eq!((utc, *zone, *offset, *none), (local, "NPT", "+0545", "+0000"));
    let minutes = |text: &str| {
        let (hours, minutes) = text.split_once(':').unwrap();
        hours.parse::<i32>().unwrap() * 60 + minutes.parse::<i32>().unwrap()
    };
    assert_eq!((minutes(there) - minutes(here)).rem_euclid(24 * 60), 5 * 60 + 45, "{line}");
    assert!(default.ends_with("+0545") && default.as_bytes()[19] == b'.', "{line}");
}

#[test]
fn lines_wait_as_long_as_the_command_line_lets_them() {
    let log = Log::new();
    let config = answering().overlay_filter("http", json!({"access_log": [log.logger("%RESPONSE_CODE%")]}));
    let mut proxy =
        Proxy::start_with(&config, Launch::default().with_arguments(&["--file-flush-interval-msec", "3600000"]));
    assert_eq!(proxy.get("/").status, 200);
    // Whatever else happens once a second happened twice.
    let uptime = || proxy.stats().value("server.uptime");
    let began = uptime();
    wait_until("two seconds", || uptime() >= began + 2);
    assert_eq!(std::fs::read_to_string(&log.path).unwrap_or_default(), "");
    proxy.signal("TERM");
    proxy.wait_exit();
    assert_eq!(log.line(), "200");
}
