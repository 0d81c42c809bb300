//! The filter that traces requests and their answers: into files, and to whoever asks the admin.

use postrider_tests::kit::config::extension;
use postrider_tests::kit::message::parse_chunk_size;
use postrider_tests::kit::net::connect_with_small_buffer;
use postrider_tests::kit::{Origin, RawClient, TempDir, wait_until};
use postrider_tests::site::Site;
use postrider_tests::{envoy, postrider_only, site};
use serde_json::{Value, json};
use std::path::PathBuf;

const NAME: &str = "envoy.filters.http.tap";
const TYPE: &str = "filters.http.tap.v3.Tap";
const TAPPED: &str = "http.ingress_http.tap.rq_tapped";

/// A filter that waits for whoever asks for `it`.
fn waiting() -> Value {
    extension(NAME, TYPE, json!({"common_config": {"admin_config": {"config_id": "it"}}}))
}

fn fixed(tap: Value) -> Value {
    json!({"common_config": {"static_config": tap}})
}

fn own(mut config: Value) -> Value {
    config["@type"] = json!("type.googleapis.com/postrider.filters.http.tap.v3.Tap");
    json!({"name": NAME, "typed_config": config})
}

fn any() -> Value {
    json!({"any_match": true})
}

fn headers(part: &str, name: &str, mut condition: Value) -> Value {
    condition["name"] = json!(name);
    json!({format!("http_{part}_match"): {"headers": [condition]}})
}

fn failed() -> Value {
    headers("response_headers", ":status", json!({"range_match": {"start": 500, "end": 600}}))
}

/// Answers with the status that the path ends with, a field, and the request's body between brackets.
fn origin() -> Origin {
    Origin::start(|connection| {
        while let Some(request) = connection.request() {
            let status = request.target.rsplit('/').next().unwrap_or_default();
            let body = [b"[", &request.body[..], b"]"].concat();
            let fields = format!("x-origin: O\r\nset-cookie: a=secret\r\ncontent-length: {}", body.len());
            connection.write(format!("HTTP/1.1 {status} X\r\n{fields}\r\n\r\n").as_bytes());
            if request.method != "HEAD" {
                connection.write(&body);
            }
        }
    })
}

struct Files(TempDir);

impl Files {
    fn new() -> Files {
        Files(TempDir::new())
    }

    fn sink(&self, format: &str) -> Value {
        json!({"format": format, "file_per_tap": {"path_prefix": self.0.path().join("tap").to_str().unwrap()}})
    }

    fn paths(&self) -> Vec<PathBuf> {
        std::fs::read_dir(self.0.path()).unwrap().map(|entry| entry.unwrap().path()).collect()
    }

    /// What the files hold, once there are so many whole ones.
    fn traces(&self, count: usize) -> Vec<Vec<Value>> {
        let mut all = Vec::new();
        wait_until("files of traces", || {
            let read = |path: &PathBuf| documents(&std::fs::read_to_string(path).unwrap());
            all = self.paths().iter().filter_map(read).filter(|traces| !traces.is_empty()).collect();
            all.len() >= count
        });
        assert_eq!(all.len(), count);
        all
    }

    fn trace(&self) -> Value {
        self.traces(1).remove(0).remove(0)
    }
}

/// The JSON documents of a text, one behind the other; `None` when the last is not whole.
fn documents(text: &str) -> Option<Vec<Value>> {
    serde_json::Deserializer::from_str(text).into_iter::<Value>().collect::<Result<_, _>>().ok()
}

/// `name: value` lines of one half of a trace, without those that the proxies add in their own ways.
fn lines(list: &Value) -> Vec<String> {
    let added = ["x-envoy", "x-forwarded", "server", "date", ":scheme", "x-request-id"];
    let all = list.as_array().unwrap().iter().map(|field| {
        assert!(field["key"].is_string() && field["value"].is_string(), "{field}");
        (field["key"].as_str().unwrap(), field["value"].as_str().unwrap())
    });
    let kept = all.filter(|(key, _)| !added.iter().any(|added| key.starts_with(added)));
    kept.map(|(key, value)| format!("{key}: {value}")).collect()
}

fn masked(value: &str) -> String {
    if envoy() { value.to_owned() } else { "[masked]".to_owned() }
}

/// A client of `/tap`.
struct Tap {
    client: RawClient,
    text: String,
}

impl Tap {
    fn open(site: &Site, tap: &Value) -> Tap {
        Self::over(RawClient::connect(site.proxy.admin_address()), "/tap", tap)
    }

    fn over(mut client: RawClient, target: &str, tap: &Value) -> Tap {
        client.send(order(target, &json!({"config_id": "it", "tap_config": tap})));
        let head = client.response_head("POST").expect("an answer");
        assert_eq!(head.status, 200);
        Tap { client, text: String::new() }
    }

    /// The next piece of the answer; `false` at its end.
    fn piece(&mut self) -> bool {
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            line.extend(self.client.read_exact(1).expect("a chunk"));
        }
        let size = parse_chunk_size(&line[..line.len() - 2]).unwrap() as usize;
        let piece = self.client.read_exact(size + 2).expect("its bytes");
        self.text.push_str(std::str::from_utf8(&piece[..size]).unwrap());
        size > 0
    }

    fn trace(&mut self) -> Value {
        loop {
            let mut stream = serde_json::Deserializer::from_str(&self.text).into_iter::<Value>();
            if let Some(Ok(trace)) = stream.next() {
                self.text.drain(..stream.byte_offset());
                return trace;
            }
            assert!(self.piece(), "the end");
        }
    }
}

fn order(target: &str, body: &Value) -> String {
    let body = body.to_string();
    format!("POST {target} HTTP/1.1\r\nhost: admin\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

fn streaming(matches: Value) -> Value {
    let sinks = json!([{"format": "JSON_BODY_AS_STRING", "streaming_admin": {}}]);
    json!({"match": matches, "output_config": {"sinks": sinks}})
}

fn refused(site: &Site, body: &Value) -> (u16, String) {
    let answer = RawClient::once(site.proxy.admin_address(), order("/tap", body)).unwrap();
    (answer.status, answer.text().to_owned())
}

fn post(site: &Site, path: &str, fields: &str, body: &str) -> u16 {
    let length = body.len();
    let head = format!("POST {path} HTTP/1.1\r\nhost: test\r\n{fields}content-length: {length}\r\n\r\n");
    site.proxy.exchange(format!("{head}{body}")).status
}

#[test]
fn what_matches_is_written_to_a_file_of_its_own() {
    let files = Files::new();
    let wanted = headers("request_headers", "x-tap", json!({"string_match": {"exact": "1"}}));
    let tap = json!({
        "match": {"and_match": {"rules": [wanted, failed()]}},
        "output_config": {"sinks": [files.sink("JSON_BODY_AS_BYTES")], "max_buffered_rx_bytes": 4},
    });
    let mut config = fixed(tap);
    config["record_headers_received_time"] = json!(true);
    config["record_downstream_connection"] = json!(true);
    config["record_upstream_connection"] = json!(true);
    let site = site::with([extension(NAME, TYPE, config)]).start_before(origin());
    assert_eq!(post(&site, "/503", "", "abcdef"), 503);
    assert_eq!(post(&site, "/200", "x-tap: 1\r\n", "abcdef"), 200);
    assert_eq!(post(&site, "/a?token=x&then=/503", "x-tap: 1\r\nauthorization: Basic c2VjcmV0\r\n", "abcdef"), 503);
    let trace = files.trace();
    let trace = &trace["http_buffered_trace"];
    let (request, response) = (&trace["request"], &trace["response"]);
    let path = if envoy() { "/a?token=x&then=/503" } else { "/a?token=[masked]&then=/503" };
    let authorization = format!("authorization: {}", masked("Basic c2VjcmV0"));
    let expected = [
        ":authority: test",
        &format!(":path: {path}"),
        ":method: POST",
        "x-tap: 1",
        &authorization,
        "content-length: 6",
    ];
    assert_eq!(lines(&request["headers"]), expected);
    assert_eq!(request["body"], json!({"truncated": true, "as_bytes": "YWJjZA=="}));
    assert_eq!((&request["trailers"], &response["trailers"]), (&json!([]), &json!([])));
    let cookie = format!("set-cookie: {}", masked("a=secret"));
    assert_eq!(lines(&response["headers"]), [":status: 503", "x-origin: O", &cookie, "content-length: 8"]);
    assert_eq!(response["body"], json!({"truncated": false, "as_bytes": "W2FiY2RlZl0="}));
    assert!(request["headers_received_time"].as_str().unwrap() <= response["headers_received_time"].as_str().unwrap());
    let port = |connection: &str, side: &str| trace[connection][side]["socket_address"]["port_value"].as_u64();
    assert_eq!(port("downstream_connection", "local_address"), Some(site.proxy.address("http").port().into()));
    assert_eq!(port("upstream_connection", "remote_address"), Some(site.origin.address.port().into()));
    assert!(port("downstream_connection", "remote_address").is_some());
    assert!(port("upstream_connection", "local_address").is_some());
    let paths = files.paths();
    let name = paths[0].file_name().unwrap().to_str().unwrap();
    let number = name.strip_prefix("tap_").and_then(|name| name.strip_suffix(".json"));
    assert!(number.is_some_and(|number| number.parse::<u64>().is_ok()), "{name}");
    site.proxy.wait_stat(TAPPED, 1);
}

#[test]
fn pieces_are_written_from_the_match_on() {
    let files = Files::new();
    let tap = json!({
        "match": failed(),
        "output_config": {"sinks": [files.sink("JSON_BODY_AS_STRING")], "streaming": true},
    });
    let site = site::with([extension(NAME, TYPE, fixed(tap))]).start_before(origin());
    assert_eq!(post(&site, "/200", "", "abc"), 200);
    let chunks = "POST /500 HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
    assert_eq!(site.proxy.exchange(chunks).status, 500);
    site.proxy.wait_stat(TAPPED, 1);
    let mut seen = Vec::new();
    wait_until("all segments", || {
        seen = files.traces(1).remove(0);
        seen.iter().any(|it| it["http_streamed_trace_segment"].get("response_body_chunk").is_some())
    });
    let piece = |name: &str| {
        let mut found = seen.iter().map(|it| &it["http_streamed_trace_segment"]).filter(|it| it.get(name).is_some());
        found.next().map(|it| it[name].clone()).unwrap_or_else(|| panic!("{name} in {seen:?}"))
    };
    assert_eq!(lines(&piece("request_headers")["headers"])[1], ":path: /500");
    assert_eq!(piece("request_body_chunk"), json!({"truncated": false, "as_string": "abc"}));
    assert_eq!(lines(&piece("response_headers")["headers"])[0], ":status: 500");
    assert_eq!(piece("response_body_chunk"), json!({"truncated": false, "as_string": "[abc]"}));
    let numbers: Vec<&str> =
        seen.iter().map(|it| it["http_streamed_trace_segment"]["trace_id"].as_str().unwrap()).collect();
    let name = files.paths()[0].file_name().unwrap().to_str().unwrap().to_owned();
    assert!(numbers.iter().all(|number| name == format!("tap_{number}.json")), "{name} {numbers:?}");
}

#[test]
fn trees_look_at_bodies_and_trailers() {
    let files = Files::new();
    let body =
        json!({"http_request_generic_body_match": {"patterns": [{"string_match": "needle"}], "bytes_limit": 20}});
    let trailer = headers("request_trailers", "x-sum", json!({"string_match": {"exact": "1"}}));
    let tap = json!({
        "match": {"or_match": {"rules": [
            {"and_match": {"rules": [body, {"not_match": failed()}]}}, trailer,
        ]}},
        "output_config": {"sinks": [files.sink("JSON_BODY_AS_STRING")]},
    });
    let manager = json!({"http_protocol_options": {"enable_trailers": true}});
    let site = site::with([extension(NAME, TYPE, fixed(tap))]).manager(manager).start_before(origin());
    assert_eq!(post(&site, "/500", "", "a needle"), 500);
    assert_eq!(post(&site, "/201", "", "------------------ a needle"), 201);
    assert_eq!(post(&site, "/200", "", "a needle"), 200);
    let chunks = "transfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\nx-sum: 1\r\nx-token: t\r\n\r\n";
    assert_eq!(site.proxy.exchange(format!("POST /202 HTTP/1.1\r\nhost: test\r\n{chunks}")).status, 202);
    let mut seen: Vec<(String, Vec<String>)> = Vec::new();
    for trace in files.traces(2) {
        let trace = &trace[0]["http_buffered_trace"];
        seen.push((lines(&trace["response"]["headers"])[0].clone(), lines(&trace["request"]["trailers"])));
    }
    seen.sort();
    let trailers = vec!["x-sum: 1".to_owned(), format!("x-token: {}", masked("t"))];
    assert_eq!(seen, [(":status: 200".to_owned(), vec![]), (":status: 202".to_owned(), trailers)]);
    site.proxy.wait_stat(TAPPED, 2);
}

#[test]
fn whoever_asks_the_admin_sees_traces_until_they_go() {
    let site = site::with([waiting()]).start_before(origin());
    assert_eq!(post(&site, "/500", "", "early"), 500);
    let mut tap = Tap::open(&site, &streaming(failed()));
    assert_eq!(post(&site, "/200", "", "no"), 200);
    assert_eq!(post(&site, "/501", "", "one"), 501);
    let first = tap.trace();
    assert_eq!(first["http_buffered_trace"]["request"]["body"]["as_string"], "one");
    assert_eq!(post(&site, "/502", "", "two"), 502);
    assert_eq!(tap.trace()["http_buffered_trace"]["request"]["body"]["as_string"], "two");
    // There is one at a time.
    let whole = json!({"config_id": "it", "tap_config": streaming(any())});
    let (status, text) = refused(&site, &whole);
    assert_eq!((status, text.trim_end()), (400, "An attached /tap admin stream already exists. Detach it."));
    drop(tap);
    // It is over as soon as the proxy sees that nobody reads.
    wait_until("the tap is over", || {
        let mut client = RawClient::connect(site.proxy.admin_address());
        client.send(order("/tap", &whole));
        client.response_head("POST").unwrap().status == 200
    });
    site.proxy.wait_stat(TAPPED, 2);
}

#[test]
fn a_request_for_a_tap_that_cannot_be_is_refused() {
    let site = site::with([waiting()]).start_before(origin());
    let (status, text) = refused(&site, &json!({"config_id": "other", "tap_config": streaming(any())}));
    let unknown = "Unknown config id 'other'. No extension has registered with this id.";
    assert!(status == 400 && text.contains(unknown), "{status} {text}");
    let empty = site.proxy.admin_post("/tap");
    assert_eq!((empty.status, empty.text().trim_end()), (400, "/tap requires a JSON/YAML body"));
    for wrong in [json!({}), json!({"config_id": "it"}), json!({"config_id": "it", "tap_confg": streaming(any())})] {
        assert_eq!(refused(&site, &wrong).0, 400, "{wrong}");
    }
    assert_eq!(site.proxy.admin_get("/tap").status, 405);
    if postrider_only() {
        let mut tap = streaming(any());
        tap["output_config"]["min_streamed_sent_bytes"] = json!(7);
        let (status, text) = refused(&site, &json!({"config_id": "it", "tap_config": tap}));
        assert_eq!(status, 400);
        assert!(text.contains("tap_config.output_config.min_streamed_sent_bytes: "), "{text}");
    }
}

#[test]
fn traces_are_gathered_for_whoever_asks_so() {
    let site = site::with([waiting()]).start_before(origin());
    let gathered = |sink: Value| {
        let sinks = json!([{"format": "JSON_BODY_AS_STRING", "buffered_admin": sink}]);
        json!({"match": any(), "output_config": {"sinks": sinks}})
    };
    let mut tap = Tap::open(&site, &gathered(json!({"max_traces": 2})));
    for body in ["one", "two", "three"] {
        assert_eq!(post(&site, "/200", "", body), 200);
    }
    let bodies = [tap.trace(), tap.trace()].map(|it| it["http_buffered_trace"]["request"]["body"]["as_string"].clone());
    assert_eq!(bodies, [json!("one"), json!("two")]);
    while tap.piece() {}
    assert_eq!(tap.text.trim(), "");
    // It is over: another may begin, and ends without any when its time has passed.
    let mut tap = Tap::open(&site, &gathered(json!({"max_traces": 2, "timeout": "0.05s"})));
    while tap.piece() {}
    assert_eq!(tap.text, "");
}

#[test]
fn failures_and_secrets_are_as_configured() {
    if !postrider_only() {
        return;
    }
    let files = Files::new();
    let tap = fixed(json!({
        "match": any(), "output_config": {"sinks": [files.sink("JSON_BODY_AS_STRING")]},
    }));
    let config = json!({"tap": tap, "only_failed": true, "masked": ["x-mine"], "revealed": ["Cookie"]});
    let site = site::with([own(config)])
        .routes(json!([{"match": {"prefix": "/p"}, "route": {"cluster": "origin"}}]))
        .start_before(origin());
    let fields = "cookie: a=1\r\nx-mine: m\r\nx-api-key: k\r\n";
    assert_eq!(post(&site, "/p/200", fields, "no"), 200);
    assert_eq!(post(&site, "/p/404", fields, "no"), 404);
    assert_eq!(post(&site, "/other", fields, "nowhere"), 404);
    assert_eq!(post(&site, "/p/500", fields, "failed"), 500);
    let traces = files.traces(2);
    let mut seen: Vec<String> = traces
        .iter()
        .map(|it| {
            let request = &it[0]["http_buffered_trace"]["request"];
            let all = lines(&request["headers"]);
            let of = |name: &str| all.iter().find(|line| line.starts_with(name)).unwrap().clone();
            assert_eq!(of("cookie"), "cookie: a=1");
            assert_eq!(of("x-mine"), "x-mine: [masked]");
            assert_eq!(of("x-api-key"), "x-api-key: [masked]");
            of(":path")
        })
        .collect();
    seen.sort();
    assert_eq!(seen, [":path: /other", ":path: /p/500"]);
}

#[test]
fn failures_only_are_sent_to_whoever_asks_so() {
    if !postrider_only() {
        return;
    }
    let site = site::with([waiting()]).start_before(origin());
    let client = RawClient::connect(site.proxy.admin_address());
    let mut tap = Tap::over(client, "/tap?only_failed", &streaming(any()));
    assert_eq!(post(&site, "/404", "", "no"), 404);
    assert_eq!(post(&site, "/500", "", "yes"), 500);
    assert_eq!(tap.trace()["http_buffered_trace"]["request"]["body"]["as_string"], "yes");
}

#[test]
fn a_client_that_does_not_read_loses_traces_and_nobody_waits_for_it() {
    if !postrider_only() {
        return;
    }
    let site = site::with([waiting()]).start_before(origin());
    let slow = connect_with_small_buffer(site.proxy.admin_address(), 4096);
    let mut tap = streaming(any());
    tap["output_config"]["max_buffered_rx_bytes"] = json!(1 << 20);
    let tap = Tap::over(RawClient::from_stream(slow), "/tap", &tap);
    let body = "x".repeat(1 << 20);
    wait_until("a trace is lost", || {
        assert_eq!(post(&site, "/200", "", &body), 200);
        site.stat("http.ingress_http.tap.traces_lost") > 0
    });
    // Of what may wait there are copies in the making: some tens of megabytes, whatever is sent.
    assert!(site.proxy.resident_kib() < 200 * 1024, "{} KiB", site.proxy.resident_kib());
    drop(tap);
}

#[test]
fn a_tap_goes_on_over_a_reload() {
    if !postrider_only() {
        return;
    }
    let site = site::with([waiting()]).start_before(origin());
    let mut tap = Tap::open(&site, &streaming(any()));
    let text = std::fs::read_to_string(site.proxy.config_path()).unwrap();
    let mut site = site;
    site.proxy.reload(text.replace("ingress_http", "other_http"));
    assert_eq!(post(&site, "/200", "", "after"), 200);
    assert_eq!(tap.trace()["http_buffered_trace"]["request"]["body"]["as_string"], "after");
    site.proxy.wait_stat("http.other_http.tap.rq_tapped", 1);
}

#[test]
fn requests_that_chance_leaves_out_are_counted() {
    let files = Files::new();
    let never = json!({"default_value": {"numerator": 0, "denominator": "HUNDRED"}});
    let tap = fixed(
        json!({"match": any(), "tap_enabled": never, "output_config": {"sinks": [files.sink("JSON_BODY_AS_STRING")]}}),
    );
    let site = site::with([extension(NAME, TYPE, tap)]).start_before(origin());
    for _ in 0..3 {
        assert_eq!(site.get("/200", "").status, 200);
    }
    site.proxy.wait_stat("http.ingress_http.tap.rq_sampled_out", 3);
    assert_eq!(site.proxy.stats().value(TAPPED), 0);
    assert_eq!(files.paths(), Vec::<PathBuf>::new());
}

#[test]
fn a_tap_that_goes_to_files_lasts_until_whoever_asked_for_it_goes() {
    let files = Files::new();
    let site = site::with([waiting()]).start_before(origin());
    let tap = json!({"match": any(), "output_config": {"sinks": [files.sink("JSON_BODY_AS_STRING")]}});
    let tap = Tap::open(&site, &tap);
    assert_eq!(post(&site, "/200", "", "kept"), 200);
    assert_eq!(files.trace()["http_buffered_trace"]["request"]["body"]["as_string"], "kept");
    drop(tap);
    wait_until("the tap is over", || {
        let before = site.stat(TAPPED);
        assert_eq!(post(&site, "/200", "", "later"), 200);
        site.stat(TAPPED) == before
    });
}
