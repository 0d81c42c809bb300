//! Bytes of requests on their connections, in access logs. The same holds for Envoy, but for how it frames HTTP/2.

use std::path::PathBuf;

use postrider_tests::get;
use postrider_tests::grpc::http2;
use postrider_tests::h2_client::H2Client;
use postrider_tests::kit::config::{file_access_log, overlay};
use postrider_tests::kit::proxy::Launch;
use postrider_tests::kit::{Config, Origin, Proxy, RawClient, TempDir, wait_until};
use serde_json::{Value, json};

const NAMES: [&str; 12] = [
    "DOWNSTREAM_WIRE_BYTES_RECEIVED",
    "DOWNSTREAM_WIRE_BYTES_SENT",
    "UPSTREAM_WIRE_BYTES_RECEIVED",
    "UPSTREAM_WIRE_BYTES_SENT",
    "DOWNSTREAM_HEADER_BYTES_RECEIVED",
    "DOWNSTREAM_HEADER_BYTES_SENT",
    "UPSTREAM_HEADER_BYTES_RECEIVED",
    "UPSTREAM_HEADER_BYTES_SENT",
    "DOWNSTREAM_DECOMPRESSED_HEADER_BYTES_RECEIVED",
    "DOWNSTREAM_DECOMPRESSED_HEADER_BYTES_SENT",
    "UPSTREAM_DECOMPRESSED_HEADER_BYTES_RECEIVED",
    "UPSTREAM_DECOMPRESSED_HEADER_BYTES_SENT",
];

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

    fn logger(&self) -> Value {
        let fields = NAMES.iter().map(|name| ((*name).to_owned(), json!(format!("%{name}%"))));
        let format = Value::Object(fields.collect());
        file_access_log(&self.path, json!({"log_format": {"json_format": format}}))
    }

    /// The lines, once there are so many.
    fn lines(&self, count: usize) -> Vec<Line> {
        let read = || std::fs::read_to_string(&self.path).unwrap_or_default();
        wait_until("lines", || read().lines().count() >= count);
        read().lines().map(|line| Line(serde_json::from_str(line).unwrap())).collect()
    }

    fn line(&self) -> Line {
        self.lines(1).remove(0)
    }
}

struct Line(Value);

impl Line {
    fn bytes(&self, name: &str) -> usize {
        let name = NAMES.iter().find(|known| **known == name).unwrap();
        usize::try_from(self.0[name].as_u64().unwrap_or_else(|| panic!("{}", self.0))).unwrap()
    }

    /// Wire, heads, and heads without compression.
    fn all(&self, side: &str, way: &str) -> [usize; 3] {
        ["WIRE", "HEADER", "DECOMPRESSED_HEADER"].map(|part| self.bytes(&format!("{side}_{part}_BYTES_{way}")))
    }
}

fn start(config: &Config, log: &Log) -> Proxy {
    let config = config.clone().overlay_filter("http", json!({"access_log": [log.logger()]}));
    Proxy::start_with(&config, Launch::default().with_arguments(&["--file-flush-interval-msec", "20"]))
}

/// Lines of fields in a head that was sent.
fn fields(head: &[u8]) -> usize {
    let text = std::str::from_utf8(head).unwrap();
    let (_, lines) = text.split_once("\r\n").unwrap();
    lines.split_once("\r\n\r\n").unwrap().0.len() + 2
}

#[test]
fn a_request_is_as_long_as_what_was_sent_and_received() {
    let answer = "HTTP/1.1 200 OK\r\nx-a: b\r\ncontent-length: 2\r\n\r\nok";
    let (origin, log) = (Origin::fixed(answer), Log::new());
    let proxy = start(&Config::proxy_to(origin.address), &log);
    let request = "POST /a HTTP/1.1\r\nhost: a.test\r\ncontent-length: 5\r\nconnection: close\r\n\r\nhello";
    let mut client = proxy.client();
    client.send(request);
    let answered = client.read_to_end().unwrap();
    let line = log.line();
    // Every line of the head counts a byte less than it has: the space.
    assert_eq!(
        line.all("DOWNSTREAM", "RECEIVED"),
        [request.len(), fields(request.as_bytes()) - 3, fields(request.as_bytes()) - 3]
    );
    assert_eq!(line.all("DOWNSTREAM", "SENT"), [answered.len(), fields(&answered), fields(&answered)]);
    let sent = origin.bytes(0);
    assert_eq!(line.all("UPSTREAM", "SENT"), [sent.len(), fields(&sent), fields(&sent)]);
    assert_eq!(
        line.all("UPSTREAM", "RECEIVED"),
        [answer.len(), fields(answer.as_bytes()) - 2, fields(answer.as_bytes()) - 2]
    );
}

#[test]
fn chunks_count_with_what_frames_them() {
    let answer = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
    let (origin, log) = (Origin::fixed(answer), Log::new());
    let proxy = start(&Config::proxy_to(origin.address), &log);
    let request =
        "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    let mut client = proxy.client();
    client.send(request);
    let answered = client.read_to_end().unwrap();
    let line = log.line();
    assert_eq!(line.bytes("DOWNSTREAM_WIRE_BYTES_RECEIVED"), request.len());
    assert_eq!(line.bytes("DOWNSTREAM_HEADER_BYTES_RECEIVED"), fields(request.as_bytes()) - 3);
    assert_eq!(line.bytes("DOWNSTREAM_WIRE_BYTES_SENT"), answered.len());
    assert_eq!(line.bytes("UPSTREAM_WIRE_BYTES_SENT"), origin.bytes(0).len());
    assert_eq!(line.bytes("UPSTREAM_WIRE_BYTES_RECEIVED"), answer.len());
    assert_eq!(line.bytes("UPSTREAM_HEADER_BYTES_RECEIVED"), fields(answer.as_bytes()) - 1);
}

#[test]
fn each_request_of_a_connection_has_its_own_bytes() {
    let (origin, log) = (Origin::fixed("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"), Log::new());
    let proxy = start(&Config::proxy_to(origin.address), &log);
    let mut client = proxy.client();
    let paths = ["/", "/much-longer-than-the-first"];
    for path in paths {
        assert_eq!(client.exchange(get(path)).status, 200);
    }
    for (line, path) in log.lines(2).iter().zip(paths) {
        assert_eq!(line.bytes("DOWNSTREAM_WIRE_BYTES_RECEIVED"), get(path).len(), "{path}");
        assert_eq!(line.bytes("UPSTREAM_WIRE_BYTES_RECEIVED"), 40, "{path}");
    }
}

/// It had those of the request before it.
#[test]
fn a_refused_request_has_its_own_bytes() {
    let (origin, log) = (Origin::fixed("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"), Log::new());
    let config = Config::proxy_to(origin.address);
    let config = config.overlay_filter("http", json!({"access_log": [log.logger()]}));
    let launch = Launch::default().with_arguments(&["--file-flush-interval-msec", "20"]);
    let proxy = Proxy::start_with(&config, launch);
    let long = format!("GET / HTTP/1.1\r\nhost: a\r\nx-long: {}\r\nconnection: close\r\n\r\n", "y".repeat(700));
    let refused = "GET /a HTTP/1.1\r\nconnection: close\r\n\r\n";
    for (at, (request, status)) in [(long.as_str(), 200), (refused, 400)].into_iter().enumerate() {
        assert_eq!(RawClient::once(proxy.address("http"), request.as_bytes()).unwrap().status, status);
        assert_eq!(
            log.lines(at + 1)[at].bytes("DOWNSTREAM_HEADER_BYTES_RECEIVED"),
            fields(request.as_bytes()) - [3, 1][at]
        );
    }
}

#[test]
fn a_large_body_is_counted_in_both_directions() {
    const LENGTH: usize = 3 << 20;
    let mut answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {LENGTH}\r\n\r\n").into_bytes();
    answer.resize(answer.len() + LENGTH, b'x');
    let (length, log) = (answer.len(), Log::new());
    let origin = Origin::fixed(answer);
    let proxy = start(&Config::proxy_to(origin.address), &log);
    let mut request = format!("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: {LENGTH}\r\n\r\n").into_bytes();
    request.resize(request.len() + LENGTH, b'y');
    assert_eq!(RawClient::once(proxy.address("http"), &request).unwrap().body.len(), LENGTH);
    let line = log.line();
    assert_eq!(line.bytes("DOWNSTREAM_WIRE_BYTES_RECEIVED"), request.len());
    assert_eq!(line.bytes("UPSTREAM_WIRE_BYTES_RECEIVED"), length);
    assert_eq!(line.bytes("UPSTREAM_WIRE_BYTES_SENT"), origin.bytes(0).len());
    assert!(line.bytes("DOWNSTREAM_WIRE_BYTES_SENT") > length);
}

#[test]
fn tries_add_up() {
    let (origin, log) = (Origin::fixed("HTTP/1.1 503 No\r\ncontent-length: 2\r\n\r\nno"), Log::new());
    let route = json!({"cluster": "origin", "retry_policy": {"retry_on": "5xx", "num_retries": 2}});
    let config =
        Config::routes(json!([{"match": {"prefix": "/"}, "route": route}])).cluster("origin", &[origin.address]);
    let proxy = start(&config, &log);
    assert_eq!(proxy.get("/").status, 503);
    let line = log.line();
    assert_eq!(line.bytes("UPSTREAM_WIRE_BYTES_RECEIVED"), 3 * 40);
    assert_eq!(line.bytes("UPSTREAM_HEADER_BYTES_RECEIVED"), 3 * 18);
    assert_eq!(line.bytes("UPSTREAM_WIRE_BYTES_SENT"), origin.all_bytes().len());
}

#[test]
fn a_stream_is_as_long_as_its_frames() {
    let (origin, log) = (
        Origin::fixed("HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n".to_owned() + &"x".repeat(100_000)),
        Log::new(),
    );
    // Through HTTP/2 on both sides of one proxy: what one end sent, the other received.
    let inner = Log::new();
    let behind = start(&Config::proxy_to(origin.address), &inner);
    let mut options = json!({});
    overlay(&mut options, http2());
    let config = Config::routes(json!([{"match": {"prefix": "/"}, "route": {"cluster": "behind"}}])).cluster_with(
        "behind",
        &[behind.address("http")],
        options,
    );
    let proxy = start(&config, &log);
    let mut client = H2Client::connect(proxy.address("http"));
    for _ in 0..2 {
        assert_eq!(client.get("/").body.len(), 100_000);
    }
    for (outer, inner) in log.lines(2).iter().zip(inner.lines(2)) {
        assert_eq!(outer.all("UPSTREAM", "SENT"), inner.all("DOWNSTREAM", "RECEIVED"));
        assert_eq!(outer.all("UPSTREAM", "RECEIVED"), inner.all("DOWNSTREAM", "SENT"));
        let [wire, heads, plain] = outer.all("DOWNSTREAM", "SENT");
        let frames = (wire - heads - 100_000) / 9;
        assert_eq!((wire - heads - 100_000) % 9, 0, "frames have heads of nine bytes");
        assert!((7..200).contains(&frames), "{frames} frames of at most 16 KiB");
        assert!(heads < plain + 9, "{heads} bytes for {plain}");
        let [wire, heads, plain] = outer.all("DOWNSTREAM", "RECEIVED");
        assert!(wire == heads && heads < plain, "{wire} {heads} {plain}");
    }
}

/// It was 0 over HTTP/2.
#[test]
fn the_head_of_an_answer_over_http2_has_its_size() {
    let origin = Origin::fixed("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
    let directory = TempDir::new();
    let path = directory.path().join("log");
    let text = "%RESPONSE_HEADERS_BYTES% %DOWNSTREAM_DECOMPRESSED_HEADER_BYTES_SENT%\n";
    let logger = file_access_log(&path, json!({"log_format": {"text_format_source": {"inline_string": text}}}));
    let routes = json!([
        {"match": {"prefix": "/own"}, "direct_response": {"status": 200}},
        {"match": {"prefix": "/"}, "route": {"cluster": "origin"}},
    ]);
    let config = Config::routes(routes)
        .cluster("origin", &[origin.address])
        .overlay_filter("http", json!({"access_log": [logger]}));
    let arguments = ["--file-flush-interval-msec", "20"];
    let proxy = Proxy::start_with(&config, Launch::default().with_arguments(&arguments));
    let mut client = H2Client::connect(proxy.address("http"));
    for target in ["/", "/own"] {
        assert_eq!(client.get(target).status, 200);
    }
    let read = || std::fs::read_to_string(&path).unwrap_or_default();
    wait_until("lines", || read().lines().count() >= 2);
    for line in read().lines() {
        let (head, plain) = line.split_once(' ').unwrap();
        assert!(head == plain && head != "0", "{line}");
    }
}

#[test]
fn a_tcp_proxy_has_bytes_and_no_heads() {
    let (origin, log) = (Origin::tcp_echo("welcome"), Log::new());
    let config = Config::new()
        .tcp("tcp", json!({"cluster": "origin", "access_log": [log.logger()]}))
        .cluster("origin", &[origin.address]);
    let proxy = Proxy::start_with(&config, Launch::default().with_arguments(&["--file-flush-interval-msec", "20"]));
    let mut client = RawClient::connect(proxy.address("tcp"));
    client.send("ab");
    assert_eq!(client.read_exact(9).unwrap(), b"welcomeab");
    drop(client);
    let line = log.line();
    assert_eq!((line.all("DOWNSTREAM", "RECEIVED"), line.all("DOWNSTREAM", "SENT")), ([2, 0, 0], [9, 0, 0]));
    assert_eq!((line.all("UPSTREAM", "RECEIVED"), line.all("UPSTREAM", "SENT")), ([9, 0, 0], [2, 0, 0]));
}
