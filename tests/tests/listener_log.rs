//! The log of a listener itself: one line for each connection when it ends, whoever served it, or nobody.

use std::path::{Path, PathBuf};

use postrider_grpc::Message;
use postrider_grpc::log::{AccessLogType, LogEntries, StreamAccessLogsMessage};
use postrider_tests::get;
use postrider_tests::grpc::http2;
use postrider_tests::h2_client::H2Client;
use postrider_tests::kit::config::{extension, file_access_log, tcp_filter};
use postrider_tests::kit::proxy::Launch;
use postrider_tests::kit::{Config, GrpcOrigin, Origin, Proxy, RawClient, TempDir, net, wait_until};
use postrider_tests::tls::{Authority, Client, secured};
use serde_json::{Value, json};

const LINE: &str = "%PROTOCOL% %RESPONSE_CODE% %RESPONSE_FLAGS% %RESPONSE_CODE_DETAILS% %BYTES_RECEIVED%/%BYTES_SENT% \
                    %FILTER_CHAIN_NAME% %UPSTREAM_CLUSTER% %DOWNSTREAM_REMOTE_ADDRESS% %REQ(:METHOD)% %DOWNSTREAM_TLS_VERSION%\n";

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

    /// A logger of this format, for connections that meet `filter`.
    fn logger(&self, filter: Value) -> Value {
        let text = json!({"log_format": {"text_format_source": {"inline_string": LINE}}});
        let mut logger = file_access_log(&self.path, text);
        if !filter.is_null() {
            logger["filter"] = filter;
        }
        logger
    }

    fn lines(&self, count: usize) -> Vec<String> {
        lines(&self.path, count)
    }
}

fn lines(path: &Path, count: usize) -> Vec<String> {
    let read = || std::fs::read_to_string(path).unwrap_or_default();
    wait_until(&format!("{count} lines"), || read().lines().count() >= count);
    let lines: Vec<String> = read().lines().map(str::to_owned).collect();
    assert_eq!(lines.len(), count, "{lines:?}");
    lines
}

fn start(config: &Config) -> Proxy {
    Proxy::start_with(config, Launch::default().with_arguments(&["--file-flush-interval-msec", "20"]))
}

fn answering() -> Config {
    let body = json!({"status": 200, "body": {"inline_string": "hello"}});
    let routes = json!([{"match": {"prefix": "/"}, "direct_response": body}]);
    Config::routes(routes).overlay_chain("http", json!({"name": "web"}))
}

#[test]
fn a_connection_of_many_requests_is_one_line_when_it_ends() {
    let log = Log::new();
    let proxy = start(&answering().overlay_listener("http", json!({"access_log": [log.logger(json!(null))]})));
    let mut client = proxy.client();
    let address = client.local_addr();
    for _ in 0..3 {
        assert_eq!(client.exchange(get("/")).status, 200);
    }
    assert!(!log.path.exists() || lines(&log.path, 0).is_empty(), "it has not ended");
    drop(client);
    let line = log.lines(1).remove(0);
    let words: Vec<&str> = line.split(' ').collect();
    assert_eq!((words[0], words[1], words[2], words[3]), ("HTTP/1.1", "0", "-", "-"), "{line}");
    let (received, sent) = words[4].split_once('/').unwrap();
    assert_eq!(received.parse::<usize>().unwrap(), 3 * get("/").len(), "{line}");
    assert!(sent.parse::<usize>().unwrap() > 3 * 40, "{line}");
    assert_eq!(words[5..], ["web", "-", &address.to_string(), "-", "-"], "{line}");
}

#[test]
fn so_is_one_of_http_2() {
    let log = Log::new();
    let proxy = start(&answering().overlay_listener("http", json!({"access_log": [log.logger(json!(null))]})));
    let mut client = H2Client::connect(proxy.address("http"));
    assert_eq!((client.get("/").status, client.get("/").status), (200, 200));
    drop(client);
    let line = log.lines(1).remove(0);
    assert!(line.starts_with("HTTP/2 0 - - "), "{line}");
}

#[test]
fn a_connection_that_no_chain_takes_is_logged_as_such() {
    let log = Log::new();
    let origin = Origin::tcp_echo("");
    let listener = json!({
        "access_log": [log.logger(json!({"response_flag_filter": {"flags": ["NR"]}}))],
        "filter_chains": [{
            "filter_chain_match": {"source_prefix_ranges": [{"address_prefix": "127.0.0.9", "prefix_len": 32}]},
            "filters": [tcp_filter(json!({"cluster": "origin"}))],
        }],
    });
    let proxy = start(&Config::new().listener("tcp", listener).cluster("origin", &[origin.address]));
    let mut served = RawClient::from_stream(net::connect_from([127, 0, 0, 9].into(), proxy.address("tcp")));
    served.send("x");
    assert_eq!(served.read_exact(1).unwrap(), b"x");
    drop(served);
    origin.wait_open_at_most(0);
    let mut client = RawClient::connect(proxy.address("tcp"));
    let address = client.local_addr();
    assert!(client.closed());
    // The one that was served does not meet the condition.
    assert_eq!(log.lines(1), [format!("- 0 NR filter_chain_not_found 0/0 - - {address} - -")]);
}

#[test]
fn a_carried_connection_says_where_it_went() {
    let log = Log::new();
    let origin = Origin::tcp_echo("hello");
    let config = Config::new().tcp("tcp", json!({"cluster": "origin"})).cluster("origin", &[origin.address]);
    let proxy = start(&config.overlay_listener("tcp", json!({"access_log": [log.logger(json!(null))]})));
    let mut client = RawClient::connect(proxy.address("tcp"));
    let address = client.local_addr();
    client.send("abc");
    client.read_exact(8).unwrap();
    client.half_close();
    assert!(client.closed());
    assert_eq!(log.lines(1), [format!("- 0 - - 3/8 - origin {address} - -")]);
}

#[test]
fn a_handshake_that_fails_leaves_a_line_with_the_reason() {
    let (log, authority) = (Log::new(), Authority::new("root"));
    let text = json!({"log_format": {"text_format_source": {"inline_string": "%DOWNSTREAM_TRANSPORT_FAILURE_REASON% %DOWNSTREAM_TLS_VERSION%\n"}}});
    let config = answering().overlay_listener("http", json!({"access_log": [file_access_log(&log.path, text)]}));
    let proxy = start(&secured(config, &authority.issue(&["a.test"]), json!({})));
    let mut plain = proxy.client();
    plain.send(get("/"));
    plain.closed();
    drop(plain);
    assert!(log.lines(1)[0].starts_with("TLS_error:"), "{:?}", log.lines(1));
    assert_eq!(Client::trusting(&authority).get(proxy.address("http"), "a.test").unwrap().status, 200);
    assert_eq!(log.lines(2)[1], "- TLSv1.3");
}

#[test]
fn lines_may_be_json_and_entries_of_a_service() {
    let log = Log::new();
    let service = GrpcOrigin::start(|_| Vec::new());
    let json_logger = file_access_log(
        &log.path,
        json!({"log_format": {"json_format": {"flags": "%RESPONSE_FLAGS%", "received": "%BYTES_RECEIVED%"}}}),
    );
    let tcp_logger = extension(
        "log",
        "access_loggers.grpc.v3.TcpGrpcAccessLogConfig",
        json!({"common_config": {
            "log_name": "edge",
            "transport_api_version": "V3",
            "buffer_flush_interval": "0.02s",
            "grpc_service": {"envoy_grpc": {"cluster_name": "logs"}},
        }}),
    );
    let config = answering()
        .cluster_with("logs", &[service.address], http2())
        .overlay_listener("http", json!({"access_log": [json_logger, tcp_logger]}));
    let proxy = start(&config);
    proxy.get("/");
    let line: Value = serde_json::from_str(&log.lines(1)[0]).unwrap();
    assert_eq!(line["flags"], "-");
    assert!(line["received"].as_u64().unwrap() > 20, "{line}");
    wait_until("an entry", || !service.messages().is_empty());
    let message = StreamAccessLogsMessage::decode(service.messages()[0].as_slice()).unwrap();
    let Some(LogEntries::TcpLogs(logs)) = message.log_entries else { panic!("{message:?}") };
    let common = logs.log_entry[0].common_properties.as_ref().unwrap();
    assert_eq!(common.access_log_type, AccessLogType::NotSet as i32);
    assert!(logs.log_entry[0].connection_properties.as_ref().unwrap().sent_bytes > 50);
}
