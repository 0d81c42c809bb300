//! The filter on made-up streams: what is traced, what is not, and what is lost.

use std::sync::Mutex;
use std::sync::mpsc::{Receiver, sync_channel};

use postrider_filter_api::Flags;
use postrider_filter_api::testing::{FakeHost, FakeStream};
use serde_json::{Value as Json, json};

use super::*;
use crate::testing::{place, request};

/// A configuration as one writes it.
fn value(json: &Json) -> Value {
    match json {
        Json::Null => Value::Null,
        Json::Bool(flag) => Value::Bool(*flag),
        Json::Number(number) => Value::Integer(number.as_i64().unwrap()),
        Json::String(text) => Value::String(text.clone()),
        Json::Array(items) => Value::List(items.iter().map(value).collect()),
        Json::Object(entries) => Value::Map(entries.iter().map(|(key, it)| (key.clone(), value(it))).collect()),
    }
}

fn failed() -> Json {
    json!({"http_response_headers_match": {"headers": [{"name": ":status", "range_match": {"start": 500, "end": 600}}]}})
}

fn for_admin(matches: Json, output: Json) -> Json {
    let mut config = json!({"sinks": [{"format": "JSON_BODY_AS_STRING", "streaming_admin": {}}]});
    for (key, field) in output.as_object().unwrap() {
        config[key] = field.clone();
    }
    json!({"match": matches, "output_config": config})
}

/// Taps are asked for one at a time in a process: so are these tests.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

struct Asked {
    filter: Rc<dyn Filter>,
    traces: Receiver<Json>,
    attached: Attached,
}

/// A filter that waits for a tap, and a tap in force. `room` is for so many traces.
fn ask(own: Json, tap: &Json, only_failed: bool, room: usize) -> Asked {
    let filter = waiting("id", own);
    let (sender, traces) = sync_channel(room);
    let deliver: Deliver =
        Arc::new(move |traced: Traced| sender.try_send(serde_json::from_slice(&traced.bytes()).expect("JSON")).is_ok());
    let request = value(&json!({"config_id": "id", "tap_config": tap}));
    Asked { filter, traces, attached: attach(&request, only_failed, deliver).unwrap() }
}

fn waiting(id: &str, own: Json) -> Rc<dyn Filter> {
    let mut config = json!({"tap": {"common_config": {"admin_config": {"config_id": id}}}});
    for (key, field) in own.as_object().unwrap() {
        match key.starts_with("record") {
            true => config["tap"][key] = field.clone(),
            false => config[key] = field.clone(),
        }
    }
    build_own("tap", &value(&config)).unwrap().filter(&ScopedConfigs::default(), &place())
}

/// A whole exchange: an empty body is none.
fn exchange(filter: &dyn Filter, stream: &mut FakeStream, bodies: [&[&str]; 2], status: u16) {
    let mut state = State::default();
    let [request, response] = bodies;
    stream.with(|it| filter.on_request_headers(&mut state, it, request.is_empty()));
    for (at, piece) in request.iter().enumerate() {
        stream.request_body.push(piece.as_bytes());
        stream.with(|it| filter.on_request_body(&mut state, it, at + 1 == request.len()));
        stream.request_body.clear();
    }
    if status != 0 {
        stream.response.reply(status);
        stream.info.status = status;
        let _ = stream.response.fields.append_name(b"set-cookie", b"a=secret");
        stream.with(|it| filter.on_response_headers(&mut state, it, response.is_empty()));
        for (at, piece) in response.iter().enumerate() {
            stream.response_body.push(piece.as_bytes());
            stream.with(|it| filter.on_response_body(&mut state, it, at + 1 == response.len()));
            stream.response_body.clear();
        }
    }
    filter.on_complete(&mut state, &stream.info);
}

fn get() -> FakeStream {
    request("/a?token=t&b=1", &[("authorization", "Basic c2VjcmV0"), ("x-text", "grün")])
}

#[test]
fn a_trace_has_both_messages_without_their_secrets() {
    let _alone = ONE_AT_A_TIME.lock().unwrap();
    let own = json!({"record_headers_received_time": true, "record_downstream_connection": true,
        "record_upstream_connection": true, "masked": ["X-Text"]});
    let tap = for_admin(json!({"any_match": true}), json!({"max_buffered_rx_bytes": 4}));
    let asked = ask(own, &tap, false, 9);
    let mut stream = get();
    stream.info.downstream_local = Some("127.0.0.1:80".parse().unwrap());
    stream.info.downstream_remote = Some("[::1]:1234".parse().unwrap());
    exchange(&*asked.filter, &mut stream, [&["abc", "def"], &["answer"]], 200);
    let trace = asked.traces.try_recv().unwrap();
    let trace = &trace["http_buffered_trace"];
    let fields = |half: &str| -> Vec<String> {
        let all = trace[half]["headers"].as_array().unwrap().iter();
        all.map(|it| format!("{}: {}", it["key"].as_str().unwrap(), it["value"].as_str().unwrap())).collect()
    };
    assert_eq!(
        fields("request"),
        [
            ":authority: x",
            ":path: /a?token=[masked]&b=1",
            ":method: GET",
            "authorization: [masked]",
            "x-text: [masked]"
        ]
    );
    assert_eq!(fields("response"), [":status: 200", "set-cookie: [masked]"]);
    assert_eq!(trace["request"]["body"], json!({"as_string": "abcd", "truncated": true}));
    assert_eq!(trace["response"]["body"], json!({"as_string": "answer", "truncated": false}));
    assert_eq!(trace["request"]["headers_received_time"], "1970-01-01T00:00:00Z");
    let remote = &trace["downstream_connection"]["remote_address"]["socket_address"];
    assert_eq!((&remote["address"], &remote["port_value"]), (&json!("::1"), &json!(1234)));
    assert_eq!(trace["upstream_connection"], json!({}), "there was none");
    // The tap is over: nothing is looked at any more.
    drop(asked.attached);
    let mut state = State::default();
    let action = get().with(|it| asked.filter.on_request_headers(&mut state, it, true));
    assert!(matches!((action, state), (Action::Done, State::Number(_))));
}

#[test]
fn only_what_matches_is_traced() {
    let _alone = ONE_AT_A_TIME.lock().unwrap();
    let asked = ask(json!({"revealed": ["*"]}), &for_admin(failed(), json!({})), false, 9);
    exchange(&*asked.filter, &mut get(), [&[], &[]], 200);
    exchange(&*asked.filter, &mut get(), [&[], &[]], 503);
    exchange(&*asked.filter, &mut get(), [&[], &[]], 0);
    let trace = asked.traces.try_recv().unwrap();
    assert_eq!(trace["http_buffered_trace"]["response"]["headers"][1]["value"], "a=secret");
    assert!(asked.traces.try_recv().is_err(), "one of three");
    // What can match no more is forgotten at once.
    let (mut state, mut stream) = (State::default(), get());
    stream.response.reply(404);
    stream.with(|it| asked.filter.on_request_headers(&mut state, it, true));
    let action = stream.with(|it| asked.filter.on_response_headers(&mut state, it, true));
    assert!(matches!((action, state), (Action::Done, State::Number(_))));
    // An answer without a request that came here is an answer all the same.
    let (mut state, mut stream) = (State::default(), get());
    stream.response.reply(500);
    stream.with(|it| asked.filter.on_response_headers(&mut state, it, true));
    asked.filter.on_complete(&mut state, &stream.info);
    let trace = asked.traces.try_recv().unwrap();
    assert!(trace["http_buffered_trace"].get("request").is_none());
}

#[test]
fn failures_are_what_the_log_calls_so() {
    let _alone = ONE_AT_A_TIME.lock().unwrap();
    let asked = ask(json!({}), &for_admin(json!({"any_match": true}), json!({})), true, 9);
    let traced = |status: u16, flags: Flags| {
        let mut stream = get();
        stream.info.flags = flags;
        exchange(&*asked.filter, &mut stream, [&[], &[]], status);
        asked.traces.try_recv().is_ok()
    };
    assert!(!traced(200, Flags::default()) && !traced(404, Flags::default()));
    assert!(traced(500, Flags::default()) && traced(0, Flags::default()));
    assert!(traced(404, Flags::NO_ROUTE_FOUND));
}

#[test]
fn pieces_are_sent_from_the_match_on() {
    let _alone = ONE_AT_A_TIME.lock().unwrap();
    let both = json!({"or_match": {"rules": [
        {"http_request_generic_body_match": {"patterns": [{"string_match": "bc"}]}}, failed(),
    ]}});
    let asked = ask(json!({}), &for_admin(both, json!({"streaming": true})), false, 99);
    exchange(&*asked.filter, &mut get(), [&["a", "b", "c", "d"], &["x"]], 200);
    let segments: Vec<Json> = asked.traces.try_iter().map(|it| it["http_streamed_trace_segment"].clone()).collect();
    let kinds: Vec<&str> = segments.iter().map(|it| it.as_object().unwrap().keys().nth(1).unwrap().as_str()).collect();
    assert_eq!(
        kinds,
        ["request_headers", "request_body_chunk", "request_body_chunk", "response_headers", "response_body_chunk"]
    );
    assert_eq!(segments[1]["request_body_chunk"]["as_string"], "abc");
    assert_eq!(segments[2]["request_body_chunk"]["as_string"], "d");
    assert!(segments.iter().all(|it| it["trace_id"] == "4"));
}

#[test]
fn what_finds_no_room_is_lost_and_counted() {
    let _alone = ONE_AT_A_TIME.lock().unwrap();
    let registry = postrider_telemetry::Registry::new();
    let stats = registry.worker(0);
    let host = FakeHost::unwatched();
    let place = Place { stats: &stats, stat_prefix: "in", worker: 0, buffer_limit: 0, head_limits: None, host: &host };
    let asked = ask(json!({}), &for_admin(json!({"any_match": true}), json!({})), false, 1);
    let config = json!({"common_config": {"admin_config": {"config_id": "id"}}});
    let filter = build("tap", &value(&config)).unwrap().filter(&ScopedConfigs::default(), &place);
    (0..3).for_each(|_| exchange(&*filter, &mut get(), [&[], &[]], 200));
    let scopes = registry.read(&[]);
    let scope = scopes.iter().find(|scope| scope.prefix == "in.tap").unwrap();
    assert_eq!([0, 1, 2].map(|cell| scope.cell(cell)), [0, 3, 2], "left out, tapped, lost");
    assert_eq!(asked.traces.try_iter().count(), 1);
}

#[test]
fn whoever_waits_gets_what_was_asked_of_its_predecessor() {
    let _alone = ONE_AT_A_TIME.lock().unwrap();
    let Asked { filter, traces, attached } =
        ask(json!({}), &for_admin(json!({"any_match": true}), json!({})), false, 9);
    let successor = waiting("id", json!({}));
    drop(filter);
    exchange(&*successor, &mut get(), [&[], &[]], 200);
    assert_eq!(traces.try_iter().count(), 1);
    let again = |id: &str| {
        let tap = for_admin(json!({"any_match": true}), json!({}));
        let request = value(&json!({"config_id": id, "tap_config": tap}));
        attach(&request, false, Arc::new(|_| true)).map(|_| ()).map_err(|errors| errors[0].message.clone())
    };
    assert_eq!(again("id").unwrap_err(), "An attached /tap admin stream already exists. Detach it.");
    drop(attached);
    assert_eq!(again("no").unwrap_err(), "Unknown config id 'no'. No extension has registered with this id.");
    assert_eq!(again("id"), Ok(()));
}

#[test]
fn a_file_holds_a_trace_in_each_format() {
    let folder = std::env::temp_dir().join(format!("postrider-tap-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let write = |name: &str, format: &str, streaming: bool| {
        let sink = json!({"format": format, "file_per_tap": {"path_prefix": folder.join(name).to_str().unwrap()}});
        let output = json!({"sinks": [sink], "streaming": streaming});
        let rate = json!({"default_value": {"numerator": 1_000_000, "denominator": "MILLION"}});
        let tap = json!({"match": {"any_match": true}, "output_config": output, "tap_enabled": rate});
        let config = json!({"common_config": {"static_config": tap}});
        let filter = build("tap", &value(&config)).unwrap().filter(&ScopedConfigs::default(), &place());
        exchange(&*filter, &mut get(), [&["q\"\n\x01"], &[]], 200);
        finish();
        let found = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
        let found = found.filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with(&format!("{name}_")));
        let [path] = found.collect::<Vec<_>>().try_into().unwrap();
        (path.file_name().unwrap().to_str().unwrap().to_owned(), std::fs::read(path).unwrap())
    };
    let (name, json) = write("a", "JSON_BODY_AS_BYTES", false);
    assert_eq!(name, "a_4.json");
    let trace: Json = serde_json::from_slice(&json).unwrap();
    assert_eq!(trace["http_buffered_trace"]["request"]["body"]["as_bytes"], "cSIKAQ==");
    assert_eq!(trace["configured_sample_rate"], json!({"numerator": 1_000_000, "denominator": "MILLION"}));
    let (name, bytes) = write("b", "PROTO_BINARY", false);
    assert_eq!(name, "b_4.pb");
    let decode = |bytes: &[u8]| {
        use postrider_grpc::Message;
        postrider_grpc::tap::TraceWrapper::decode(bytes).unwrap()
    };
    assert!(decode(&bytes).trace.is_some());
    let (name, text) = write("c", "PROTO_TEXT", false);
    assert_eq!(name, "c_4.pb_text");
    let text = String::from_utf8(text).unwrap();
    let start =
        "http_buffered_trace {\n  request {\n    headers {\n      key: \":authority\"\n      value: \"x\"\n    }\n";
    assert!(text.starts_with(start), "{text}");
    assert!(text.contains("    body {\n      as_bytes: \"q\\\"\\n\\001\"\n    }\n"), "{text}");
    assert!(text.ends_with("configured_sample_rate {\n  numerator: 1000000\n  denominator: MILLION\n}\n"), "{text}");
    let (name, bytes) = write("d", "PROTO_BINARY_LENGTH_DELIMITED", true);
    assert_eq!(name, "d_4.pb_length_delimited");
    let mut rest = &bytes[..];
    let mut segments = 0;
    while !rest.is_empty() {
        // Each is longer than 127 bytes, or shorter: a length has one byte or two.
        let (length, width) = match rest[0] < 128 {
            true => (usize::from(rest[0]), 1),
            false => (usize::from(rest[0] & 127) | usize::from(rest[1]) << 7, 2),
        };
        assert!(decode(&rest[width..width + length]).trace.is_some());
        rest = &rest[width + length..];
        segments += 1;
    }
    assert_eq!(segments, 3);
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn broken_configurations_are_refused_with_the_place() {
    let errors = |config: Json| -> Vec<String> {
        let errors = build("tap", &value(&config)).err().unwrap_or_default();
        errors.into_iter().map(|error| format!("{}: {}", error.path, error.message)).collect()
    };
    let with = |output: Json| json!({"common_config": {"static_config": {"match": {"any_match": true}, "output_config": output}}});
    let file = json!({"file_per_tap": {"path_prefix": "/x"}});
    let at = "common_config.static_config.output_config";
    assert_eq!(errors(with(json!({"sinks": [file]}))), Vec::<String>::new());
    assert_eq!(
        errors(with(json!({"sinks": [{"streaming_admin": {}}]}))),
        [format!("{at}.sinks[0]: this sink is for taps that are asked for through the admin")]
    );
    assert_eq!(
        errors(with(json!({"sinks": [{"custom_sink": {}}]}))),
        [format!("{at}.sinks[0].custom_sink: a sink from an extension: not supported by Postrider")]
    );
    assert_eq!(
        errors(with(json!({"sinks": [file], "max_buffered_tx_bytes": 1 << 30, "min_streamed_sent_bytes": 3}))),
        [
            format!(
                "{at}.min_streamed_sent_bytes: a threshold, which is for taps of connections: not supported by Postrider"
            ),
            format!("{at}.max_buffered_tx_bytes: 1073741824 bytes: at most 4194304 of each body are kept"),
        ]
    );
    assert_eq!(
        errors(json!({"common_config": {}})),
        ["common_config: exactly one of static_config and admin_config is wanted"]
    );
    let own = |config: Json| build_own("tap", &value(&config)).err().unwrap_or_default().len();
    assert_eq!(own(json!({"only_failed": true})), 1);
    let mut streams = with(json!({"sinks": [file], "streaming": true}));
    assert_eq!(own(json!({"tap": streams})), 0);
    assert_eq!(own(json!({"tap": streams, "only_failed": true})), 1);
    streams = json!({"common_config": {"admin_config": {"config_id": "x"}}});
    assert_eq!(own(json!({"tap": streams, "only_failed": true})), 1);
}
