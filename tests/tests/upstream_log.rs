//! The router's own log (`upstream_log`): a record of every try. The same expectations hold for Envoy.

use postrider_tests::kit::config::{self, Config};
use postrider_tests::kit::proxy::Launch;
use postrider_tests::kit::{Origin, Proxy, TempDir, net, wait_until};
use postrider_tests::{envoy, get};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const OK: &str = "HTTP/1.1 200 OK\r\nx-b: good\r\ncontent-length: 5\r\n\r\nhello";
const BAD: &str = "HTTP/1.1 503 Service Unavailable\r\nx-b: bad\r\ncontent-length: 4\r\n\r\nbusy";

/// Answers the first requests with `answers`, one each, and all others with 200. An empty answer closes the connection,
/// `-` is none.
fn origin(answers: &[&str]) -> Origin {
    let answers: Vec<String> = answers.iter().map(|answer| (*answer).to_owned()).collect();
    let count = Arc::new(AtomicUsize::new(0));
    Origin::start(move |connection| {
        while connection.request().is_some() {
            match answers.get(count.fetch_add(1, Ordering::SeqCst)).map_or(OK, String::as_str) {
                "" => return,
                "-" => {
                    connection.read_to_end();
                    return;
                }
                answer => connection.write(answer.as_bytes()),
            };
        }
    })
}

fn routes(retry: Value) -> Config {
    let mut policy = json!({
        "retry_on": "5xx", "num_retries": 2,
        "retry_back_off": {"base_interval": "0.001s", "max_interval": "0.002s"},
    });
    config::overlay(&mut policy, retry);
    let metadata = json!({"filter_metadata": {"ns": {"key": "of route"}}});
    Config::routes(json!([
        {"match": {"prefix": "/direct"}, "direct_response": {"status": 200}},
        {"match": {"prefix": "/dead"}, "route": {"cluster": "dead", "retry_policy": policy}},
        {"match": {"prefix": "/empty"}, "route": {"cluster": "empty"}},
        {"match": {"prefix": "/over"}, "route": {"cluster": "over"}},
        {"match": {"prefix": "/late"}, "route": {"cluster": "origin", "timeout": "0.2s"}},
        {"name": "named", "match": {"prefix": "/"}, "metadata": metadata,
         "route": {"cluster": "origin", "prefix_rewrite": "/new/", "retry_policy": policy}},
    ]))
}

struct Scene {
    proxy: Proxy,
    log: PathBuf,
    _directory: TempDir,
}

/// With an upstream log of `format` and the other `fields` of the router.
fn scene(config: Config, origin: &Origin, format: &str, fields: Value) -> Scene {
    let directory = TempDir::new();
    let log = directory.path().join("tries");
    start(config, origin, file(&log, format), fields, log, directory)
}

fn file(path: &Path, format: &str) -> Value {
    config::file_access_log(path, json!({"log_format": {"text_format_source": {"inline_string": format}}}))
}

fn start(config: Config, origin: &Origin, log: Value, fields: Value, path: PathBuf, directory: TempDir) -> Scene {
    let mut router = json!({"upstream_log": [log]});
    config::overlay(&mut router, fields);
    let router = config::extension("envoy.filters.http.router", "filters.http.router.v3.Router", router);
    let config = config
        .cluster("origin", &[origin.address])
        .cluster("dead", &[net::refusing_address()])
        .cluster_with("empty", &[], json!({"load_assignment": {"endpoints": []}}))
        .cluster_with("over", &[origin.address], json!({"circuit_breakers": {"thresholds": [{"max_requests": 0}]}}))
        .overlay_filter("http", json!({"http_filters": [router]}));
    let proxy = Proxy::start_with(&config, Launch::default().with_arguments(&["--file-flush-interval-msec", "20"]));
    Scene { proxy, log: path, _directory: directory }
}

impl Scene {
    fn lines(&self, count: usize) -> Vec<String> {
        let mut lines: Vec<String> = Vec::new();
        wait_until(&format!("{count} records"), || {
            let text = std::fs::read_to_string(&self.log).unwrap_or_default();
            lines = text.lines().map(str::to_owned).collect();
            lines.len() >= count && text.ends_with('\n')
        });
        assert_eq!(lines.len(), count, "{lines:#?}");
        lines
    }
}

#[test]
fn every_try_has_a_record_of_its_own_upstream_and_answer() {
    let format = "%ACCESS_LOG_TYPE% %REQ(:METHOD)% %REQ(:PATH)% %REQ(X-ENVOY-ORIGINAL-PATH)% %RESPONSE_CODE% \
        %RESPONSE_FLAGS% %RESP(x-b)% %BYTES_SENT% %BYTES_RECEIVED% %RESPONSE_HEADERS_BYTES% %UPSTREAM_HOST% \
        %UPSTREAM_HOSTS_ATTEMPTED% %UPSTREAM_CLUSTER% %PROTOCOL% %UPSTREAM_PROTOCOL% %ROUTE_NAME%\n";
    let origin = origin(&[BAD]);
    let scene = scene(routes(json!({})), &origin, format, json!({}));
    let request = "POST /a HTTP/1.1\r\nhost: test\r\ncontent-length: 8\r\n\r\n12345678";
    assert_eq!(scene.proxy.exchange(request).text(), "hello");
    let host = origin.address;
    let line =
        |answer: &str| format!("UpstreamEnd POST /new/a /a {answer} {host} {host} origin HTTP/1.1 HTTP/1.1 named");
    // Of an answer that is tried again, no more than the head is waited for.
    assert_eq!(scene.lines(2), [line("503 - bad 8 0 31"), line("200 - good 8 5 32")]);
}

#[test]
fn a_record_knows_nothing_that_was_noted_of_the_request_and_its_client_side() {
    let format = "%STREAM_ID%|%RESPONSE_CODE_DETAILS%|%DYNAMIC_METADATA(ns:key)%|%METADATA(ROUTE:ns:key)%|%LOCAL_REPLY_BODY%|\
        %REQUEST_DURATION%|%RESPONSE_TX_DURATION%|%VIRTUAL_CLUSTER_NAME%|%COMMON_DURATION(DS_RX_BEG:DS_TX_END:ms)%|\
        %FILTER_CHAIN_NAME%|%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%\n";
    let origin = origin(&[]);
    let scene = scene(routes(json!({})).overlay_chain("http", json!({"name": "chain"})), &origin, format, json!({}));
    scene.proxy.exchange("GET /a HTTP/1.1\r\nhost: test\r\nx-request-id: known\r\n\r\n");
    assert_eq!(scene.lines(1), ["-|-|-|of route||-|-|-|-|chain|127.0.0.1"]);
}

const FLAGS: &str = "%ACCESS_LOG_TYPE% %RESPONSE_CODE% %RESPONSE_FLAGS% %UPSTREAM_HOST% %UPSTREAM_HOSTS_ATTEMPTED% \
    %UPSTREAM_REMOTE_ADDRESS% %UPSTREAM_PROTOCOL% %UPSTREAM_TRANSPORT_FAILURE_REASON%\n";

#[test]
fn a_try_that_got_no_connection_says_why() {
    let scene = scene(routes(json!({})), &origin(&[]), FLAGS, json!({}));
    assert_eq!(scene.proxy.get("/dead").status, 503);
    let lines = scene.lines(3);
    for line in lines {
        let words: Vec<&str> = line.split(' ').collect();
        let (host, rest) = (words[3], [&words[..3], &words[4..]].concat().join(" "));
        assert!(host.starts_with("127.0.0.1:"), "{line}");
        assert_eq!(rest, "UpstreamEnd 0 UF - - - delayed_connect_error:_Connection_refused");
    }
}

#[test]
fn a_circuit_breaker_ends_a_try_and_what_has_no_host_is_none() {
    let origin = origin(&[]);
    let scene = scene(routes(json!({})), &origin, FLAGS, json!({}));
    for (path, status) in [("/direct", 200), ("/empty", 503), ("/over", 503)] {
        assert_eq!(scene.proxy.get(path).status, status, "{path}");
    }
    assert_eq!(scene.lines(1), [format!("UpstreamEnd 0 UO {} - - - -", origin.address)]);
}

#[test]
fn each_way_of_failing_has_its_flag() {
    let format = "%RESPONSE_CODE% %RESPONSE_FLAGS%\n";
    let garbage = "HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n";
    let cut = "HTTP/1.1 200 OK\r\ncontent-length: 10\r\nconnection: close\r\n\r\nabc";
    for (answers, retry, path, lines) in [
        (["", "", ""], json!({}), "/a", &["0 UC", "0 UC", "0 UC"][..]),
        ([garbage, "", ""], json!({}), "/a", &["0 UPE", "0 UC", "0 UC"]),
        (["-", OK, OK], json!({"per_try_timeout": "0.5s"}), "/a", &["0 UT", "200 -"]),
        (["-", OK, OK], json!({"per_try_idle_timeout": "0.5s"}), "/a", &["0 SI", "200 -"]),
        // It is the request that took too long, and not this try of it.
        (["-", OK, OK], json!({}), "/late", &["0 -"]),
    ] {
        let origin = origin(&answers);
        let scene = scene(routes(retry), &origin, format, json!({}));
        scene.proxy.get(path);
        assert_eq!(scene.lines(lines.len()), lines, "{answers:?}");
    }
    let breaks = Origin::start(move |connection| {
        connection.request();
        connection.write(cut.as_bytes());
    });
    let scene = scene(routes(json!({})), &breaks, format, json!({}));
    let mut client = scene.proxy.client();
    client.send(get("/a"));
    // Whether it ends or is reset is not the question here.
    drop(client.read_to_end());
    assert_eq!(scene.lines(1), ["200 UPE"]);
}

#[test]
fn a_try_is_told_of_when_it_has_a_connection_and_while_it_goes_on() {
    let directory = TempDir::new();
    let log = directory.path().join("tries");
    let seen = log.clone();
    let origin = Origin::start(move |connection| {
        while connection.request().is_some() {
            connection.write(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhe");
            wait_until("two periodic records", || {
                std::fs::read_to_string(&seen).unwrap_or_default().matches("UpstreamPeriodic").count() >= 2
            });
            connection.write(b"llo");
        }
    });
    let options = json!({"flush_upstream_log_on_upstream_stream": true, "upstream_log_flush_interval": "0.1s"});
    let format = "%ACCESS_LOG_TYPE% %RESPONSE_CODE% %BYTES_RECEIVED% %UPSTREAM_HOST%\n";
    let fields = json!({ "upstream_log_options": options });
    let scene = start(routes(json!({})), &origin, file(&log, format), fields, log.clone(), directory);
    assert_eq!(scene.proxy.get("/a").text(), "hello");
    let host = origin.address;
    wait_until("the last record", || std::fs::read_to_string(&log).unwrap_or_default().contains("UpstreamEnd"));
    let text = std::fs::read_to_string(&log).unwrap();
    let mut lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.remove(0), format!("UpstreamPoolReady 0 0 {host}"));
    assert_eq!(lines.pop(), Some(format!("UpstreamEnd 200 5 {host}").as_str()));
    assert!(lines.len() >= 2, "{text}");
    for line in lines {
        assert_eq!(line, format!("UpstreamPeriodic 200 2 {host}"));
    }
}

#[test]
fn conditions_look_at_the_try() {
    let directory = TempDir::new();
    let path = directory.path().join("tries");
    let mut log = file(&path, "%RESPONSE_CODE% %REQ(x-a)%\n");
    let at_least = json!({"op": "GE", "value": {"default_value": 500, "runtime_key": "none"}});
    let conditions = json!([
        {"status_code_filter": {"comparison": at_least}},
        {"log_type_filter": {"types": ["UpstreamEnd"]}},
        {"header_filter": {"header": {"name": "x-a", "present_match": true}}},
    ]);
    log["filter"] = json!({"and_filter": {"filters": conditions}});
    let origin = origin(&[BAD]);
    let fields = json!({"upstream_log_options": {"flush_upstream_log_on_upstream_stream": true}});
    let scene = start(routes(json!({})), &origin, log, fields, path, directory);
    assert_eq!(scene.proxy.exchange("GET /a HTTP/1.1\r\nhost: test\r\nx-a: yes\r\n\r\n").status, 200);
    assert_eq!(scene.proxy.get("/b").status, 200);
    assert_eq!(scene.lines(1), ["503 yes"]);
}

#[test]
fn tries_are_numbered() {
    if envoy() {
        return;
    }
    let origin = origin(&[BAD, BAD]);
    let scene = scene(routes(json!({})), &origin, "%UPSTREAM_REQUEST_ATTEMPT_COUNT%\n", json!({}));
    assert_eq!(scene.proxy.get("/a").status, 200);
    assert_eq!(scene.lines(3), ["1", "2", "3"]);
}

#[test]
fn copies_have_records_without_a_client() {
    let format = "%ACCESS_LOG_TYPE% %REQ(:PATH)% %REQ(:AUTHORITY)% %RESPONSE_CODE% %RESPONSE_FLAGS% %RESP(x-b)% %BYTES_SENT% \
        %BYTES_RECEIVED% %RESPONSE_HEADERS_BYTES% %UPSTREAM_HOST% %UPSTREAM_CLUSTER% %UPSTREAM_REQUEST_ATTEMPT_COUNT% \
        %UPSTREAM_PROTOCOL% %ROUTE_NAME% %DOWNSTREAM_REMOTE_ADDRESS% %CONNECTION_ID% \
        %UPSTREAM_TRANSPORT_FAILURE_REASON% %METADATA(CLUSTER:a:b)%\n";
    let origin = origin(&[]);
    let (copies, dead) = (self::origin(&[]), net::refusing_address());
    let mirrors = ["copies", "gone", "none"].map(|cluster| json!({"cluster": cluster}));
    let routes = Config::routes(json!([{
        "name": "named", "match": {"prefix": "/"},
        "route": {"cluster": "origin", "request_mirror_policies": mirrors},
    }]))
    .cluster_with("copies", &[copies.address], json!({"metadata": {"filter_metadata": {"a": {"b": "c"}}}}))
    .cluster("gone", &[dead])
    .cluster_with("none", &[], json!({"load_assignment": {"endpoints": []}}));
    let fields = json!({"upstream_log_options": {"flush_upstream_log_on_upstream_stream": true}});
    let scene = scene(routes, &origin, format, fields);
    let request = "POST /a HTTP/1.1\r\nhost: test\r\ncontent-length: 8\r\n\r\n12345678";
    assert_eq!(scene.proxy.exchange(request).text(), "hello");
    let mut lines = scene.lines(5);
    lines.retain(|line| !line.contains(" named "));
    lines.sort();
    assert_eq!(
        lines,
        [
            format!(
                "UpstreamEnd /a test-shadow 0 UF - 0 0 0 {dead} gone 0 - - - 0 delayed_connect_error:_Connection_refused -"
            ),
            format!("UpstreamEnd /a test-shadow 200 - good 8 5 32 {} copies 0 HTTP/1.1 - - 0 - c", copies.address),
            format!("UpstreamPoolReady /a test-shadow 0 - - 0 0 0 {} copies 0 HTTP/1.1 - - 0 - c", copies.address),
        ]
    );
}
