//! Envoy's dialect, rule by rule: the scripts of `tests/differential/lua`, with what a real Envoy 1.40 made of them.
//!
//! Where this differs from what Envoy says, `docs/filters/lua.md` lists it. Methods called through `pcall` itself, as
//! these scripts do, are named `?` in Envoy's messages, and their arguments are counted with the object.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use postrider_filter_api::testing::FakeStream;
use postrider_filter_api::{Answer, Call, CallFailure, Certificates, LocalReply, RouteFacts, TlsSession};
use postrider_http::ResponseHead;
use postrider_model::{CertificatePart, Metadata, Value};

use crate::testing::{Outcome, Trial};

macro_rules! script {
    ($name:literal) => {
        include_str!(concat!("../../../../../tests/differential/lua/", $name, ".lua"))
    };
}

/// What a script left in headers `r-…` of the request, then of the response; the last outcome, and the filter.
struct Seen {
    headers: BTreeMap<String, String>,
    request: Outcome,
    trial: Trial,
}

fn stream() -> FakeStream {
    let mut stream = FakeStream::new("GET", "/script/x", &[("x-multi", "a"), ("x-multi", "b"), ("x-empty", "")]);
    stream.request.set_authority(b"example.org").unwrap();
    let mut own = Metadata::default();
    let list = Value::List(vec![Value::Number(1.0), Value::Number(2.0)]);
    let deep = |key: &str, value| Value::Map(vec![(key.to_owned(), value)]);
    own.set("lua", "s", Value::String("text".to_owned()));
    own.set("lua", "n", Value::Number(1.5));
    own.set("lua", "b", Value::Bool(true));
    own.set("lua", "l", list);
    own.set("lua", "o", deep("k", deep("d", Value::String("deep".to_owned()))));
    let mut host = Metadata::default();
    host.set("lua", "v", Value::String("vhost".to_owned()));
    stream.route = Some(RouteFacts {
        name: Some("the-route".into()),
        metadata: own.into(),
        virtual_host_metadata: host.into(),
        forwards: true,
        ..RouteFacts::default()
    });
    stream.info.downstream_local = Some("127.0.0.1:10000".parse().unwrap());
    stream.info.downstream_remote = Some("192.0.2.1:4000".parse().unwrap());
    stream.info.downstream_direct_remote = Some("127.0.0.1:4000".parse().unwrap());
    stream.host.clusters = vec!["origin".to_owned(), "down".to_owned()];
    stream
}

/// The origin of `tests/differential/lua`: says what it heard.
fn origin(call: &Call) -> Result<Answer, CallFailure> {
    if &*call.cluster == "down" {
        return Err(CallFailure::Upstream);
    }
    let path = String::from_utf8_lossy(call.head.path()).into_owned();
    if path == "/slow" {
        return Err(CallFailure::Timeout);
    }
    let mut head = ResponseHead::new();
    head.set_status(200);
    head.fields.append_name(b"x-dup", b"1").unwrap();
    head.fields.append_name(b"x-dup", b"2").unwrap();
    let mut body = format!("{} {path}|", String::from_utf8_lossy(call.head.method_bytes()));
    for field in call.head.fields.iter() {
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        body.push_str(&format!("{}: {}|", text(field.name), text(field.value)));
    }
    let body = if path == "/empty" { Vec::new() } else { [body.as_bytes(), &call.body].concat() };
    Ok(Answer { head, body, trailers: Default::default() })
}

fn trial(script: &str) -> Trial {
    let config = serde_json::json!({
        "default_source_code": { "inline_string": script }, "filter_context": { "k": "ctx" }, "stat_prefix": "own",
    });
    let kind = "envoy.extensions.filters.http.lua.v3.Lua";
    let mut trial = Trial::new(kind, &config.to_string(), None).expect("the script loads");
    trial.stream = stream();
    trial
}

fn run(mut trial: Trial, request: &[&str], response: &[&str]) -> Seen {
    let outcome = trial.request(request);
    let request = trial.calls(outcome, true, origin);
    trial.stream.response.set_status(200);
    if let Some(LocalReply { status, headers, body, .. }) = &trial.0.reply {
        trial.0.stream.response.set_status(*status);
        // The proxy adds these to an answer that has none.
        trial.0.stream.response.fields.append_name(b"content-type", b"text/plain").unwrap();
        trial.0.stream.response.fields.append_name(b"content-length", body.len().to_string().as_bytes()).unwrap();
        for (name, value) in headers {
            trial.0.stream.response.fields.append_name(name.as_bytes(), value).unwrap();
        }
    }
    let outcome = trial.response(response);
    trial.calls(outcome, false, origin);
    let mut headers = BTreeMap::new();
    for field in trial.stream.request.fields.iter().chain(trial.stream.response.fields.iter()) {
        if let Some(name) = field.name.strip_prefix(b"r-") {
            let name = String::from_utf8_lossy(name).into_owned();
            headers.insert(name, String::from_utf8_lossy(field.value).into_owned());
        }
    }
    Seen { headers, request, trial }
}

/// Checks what a script without a request body left.
fn check(script: &str, expected: &[(&str, &str)]) -> Seen {
    check_with(script, &[], expected)
}

fn check_with(script: &str, body: &[&str], expected: &[(&str, &str)]) -> Seen {
    let seen = run(trial(script), body, &[]);
    check_headers(&seen, expected);
    seen
}

fn check_headers(seen: &Seen, expected: &[(&str, &str)]) {
    for (name, value) in expected {
        assert_eq!(seen.headers.get(*name).map(String::as_str), Some(*value), "{name}; all: {:#?}", seen.headers);
    }
}

#[test]
fn get_joins_values_and_has_no_result_for_a_missing_field() {
    check(
        script!("get"),
        &[
            ("many", "1 a,b"),
            ("upper", "1 a,b"),
            ("missing", "0"),
            ("noname", "0"),
            ("empty", "1"),
            ("method", "1 GET"),
            ("host", "1 example.org"),
            ("authority", "1 example.org"),
            ("scheme", "1 http"),
            ("number", "0"),
            ("none", "error bad argument #1 to 'get' (string expected, got no value)"),
            ("table", "error bad argument #1 to 'get' (string expected, got table)"),
            ("tostring", "error bad argument #1 to '?' (value expected)"),
            ("dot", "error bad argument #1 to 'get' (HeaderMap expected, got string)"),
        ],
    );
}

#[test]
fn values_are_counted_from_zero() {
    check(
        script!("get_at_index"),
        &[
            ("i0", "1 a"),
            ("i1", "1 b"),
            ("i2", "0"),
            ("minus", "0"),
            ("half", "1 a"),
            ("text", "1 b"),
            ("word", "error bad argument #2 to 'getAtIndex' (number expected, got string)"),
            ("noindex", "error bad argument #2 to 'getAtIndex' (number expected, got no value)"),
            ("missing", "0"),
            ("n", "1 2"),
            ("n0", "1 0"),
            ("nm", "1 1"),
        ],
    );
}

#[test]
fn edits_take_texts_and_numbers_and_have_no_result() {
    let seen = check(
        script!("edits"),
        &[
            ("add", "0"),
            ("add2", "0"),
            ("addfloat", "0"),
            ("a", "1 1,2,1.5"),
            ("multi", "1 one"),
            ("removenone", "0"),
            ("e", "1"),
            ("u", "1 v"),
            ("path", "0"),
            ("addnil", "error bad argument #2 to 'add' (string expected, got no value)"),
            ("addbool", "error bad argument #2 to 'add' (string expected, got boolean)"),
            ("addtable", "error bad argument #2 to 'add' (string expected, got table)"),
            ("repnil", "error bad argument #2 to 'replace' (string expected, got no value)"),
            ("repnoname", "error bad argument #1 to 'replace' (string expected, got no value)"),
            ("remnil", "error bad argument #1 to 'remove' (string expected, got no value)"),
            // Envoy takes these, and sends what no HTTP message can hold.
            ("empty", "error invalid name or value of header ''"),
            ("status", "error invalid name or value of header ':status'"),
        ],
    );
    assert_eq!(seen.trial.stream.request.path(), b"/edits/changed");
    assert!(seen.trial.stream.info.route_is_stale, "an edit of the head clears the route");
    assert!(seen.trial.stream.request.fields.get_name(b"x-empty").is_none());
}

#[test]
fn an_open_iterator_locks_the_map() {
    let locked = "error header map cannot be modified while iterating";
    check(
        script!("iteration_lock"),
        &[
            ("add", locked),
            ("replace", locked),
            ("remove", locked),
            ("reason", locked),
            ("after", locked),
            ("other", "error lua:21: header map cannot be modified while iterating"),
            ("second", "error cannot create a second iterator before completing the first"),
            ("get", "1 GET"),
            ("num", "1 1"),
            ("copy", "1 true"),
        ],
    );
}

#[test]
fn fields_come_in_order_the_pseudo_ones_first() {
    check(
        script!("pairs_order"),
        &[(
            "names",
            ":authority=example.org;:path=/script/x;:method=GET;:scheme=http;x-multi=a;x-multi=b;x-empty=;x-multi=c",
        )],
    );
}

#[test]
fn a_wait_ends_iterators_and_what_was_got_before() {
    check_with(
        script!("pairs_early"),
        &["hello world"],
        &[("add", "0"), ("old", "error object used outside of proper scope"), ("same", "false")],
    );
}

#[test]
fn objects_are_the_same_within_a_turn_and_all_can_log() {
    check(
        script!("objects"),
        &[
            ("same", "true"),
            ("unknown", "1 nil"),
            ("call", "error lua:15: attempt to call method 'nope' (a nil value)"),
            ("selfwrong", "error bad argument #1 to 'headers' (StreamHandle expected, got table)"),
            ("log", "0"),
            ("logh", "0"),
            ("lognil", "error bad argument #1 to 'logTrace' (string expected, got no value)"),
        ],
    );
}

#[test]
fn a_request_without_a_body_has_none_unless_it_is_asked_to() {
    let seen = check(
        script!("body_none"),
        &[("none", "2 0 nil"), ("set", "1 3"), ("again", "1 3"), ("chunks", "1 0"), ("trailers", "0")],
    );
    assert_eq!(seen.trial.stream.request_body.bytes(), b"new");
    assert_eq!(seen.trial.stream.request.fields.get_name(b"content-length"), Some(&b"3"[..]));
}

#[test]
fn buffers_keep_their_limits() {
    let over = "error index/length must be >= 0 and (index + length) must be <= buffer size";
    check_with(
        script!("body"),
        &["hello ", "world"],
        &[
            ("length", "1 11"),
            ("all", "1 hello world"),
            ("some", "1 el"),
            ("over", over),
            ("zero", "1"),
            ("minus", over),
            ("minuslen", over),
            ("float", "1 h"),
            ("nolen", "error bad argument #2 to 'getBytes' (number expected, got no value)"),
            ("same", "true"),
            ("badset", "error bad argument #1 to 'setBytes' (string expected, got no value)"),
            ("set", "1 9"),
            ("after", "1 hello you"),
            ("cl", "1 9"),
            ("num", "1 2"),
            ("twice", "1 2"),
            ("old", "1 2"),
            ("chunks", "error lua:22: cannot call bodyChunks after body processing has begun"),
            ("trailers", "0"),
        ],
    );
}

#[test]
fn chunks_let_the_head_go() {
    let gone = "error header map can no longer be modified";
    check_with(
        script!("body_chunks"),
        &["hello ", "world"],
        &[
            ("n", "2"),
            ("text", "hello world"),
            ("set", "1 5"),
            ("body", "error cannot call body() after body has been streamed"),
            ("again", "error lua:21: cannot call bodyChunks after body processing has begun"),
            ("trailers", "0"),
            ("old", "error object used outside of proper scope"),
            ("get", "1 GET"),
            ("add", gone),
            ("remove", gone),
            ("replace", gone),
            ("respond", "error lua:27: respond() cannot be called if headers have been continued"),
        ],
    );
}

#[test]
fn trailers_are_awaited_and_can_be_edited() {
    let script = "function envoy_on_request(h)
        local t = h:trailers()
        t:add('x-added', t:get('x-sum') .. '!')
        t:remove('x-sum')
      end";
    let mut trial = trial(script);
    trial.trailers_follow = true;
    assert_eq!(trial.request(&["body"]), Outcome::Passed);
    trial.stream.request_trailers.append_name(b"x-sum", b"5").unwrap();
    trial.request_trailers();
    assert_eq!(trial.stream.request_trailers.get_name(b"x-added"), Some(&b"5!"[..]));
    assert_eq!(trial.stream.request_trailers.get_name(b"x-sum"), None);
}

#[test]
fn respond_says_what_it_refuses() {
    let status = "error lua:12: :status must be between 200-599";
    check(
        script!("respond_bad"),
        &[
            ("low", status),
            ("high", status),
            ("none", status),
            ("word", status),
            ("hundred", status),
            ("trailing", status),
            ("notable", "error lua:12: bad argument #1 to 'respond' (table expected, got string)"),
            ("noargs", "error lua:12: bad argument #1 to 'respond' (table expected, got no value)"),
            ("bodytable", "error lua:12: bad argument #2 to 'respond' (string expected, got table)"),
            ("badvalue", "error lua:12: bad argument #1 to 'respond' (string expected, got function)"),
            ("boolvalue", "error lua:12: bad argument #1 to 'respond' (string expected, got boolean)"),
        ],
    );
}

#[test]
fn odd_arguments_end_as_in_envoy() {
    let status = "error :status must be between 200-599 nil";
    check(
        script!("odd_arguments"),
        &[
            ("named", "ok text nil"),
            ("routenamed", "ok 1.5 1.5"),
            ("badname", "error bad argument #1 to 'metadata' (string expected, got table) nil"),
            ("status", status),
            ("statuses", status),
            ("field", "error bad argument #1 to 'respond' (string expected, got boolean) nil"),
            ("object", "error bad argument #1 to 'respond' (table expected, got table) nil"),
            ("flag", "error bad argument #1 to 'body' (boolean expected, got string) nil"),
            ("strict", "error bad argument #2 to 'setUpstreamOverrideHost' (boolean expected, got no value) nil"),
            ("nan", "error gauge set value must be non-negative nil"),
            ("huge", "error counter add amount must be non-negative nil"),
            ("time", "ok number string"),
            ("badtime", "error timestamp format must be MILLISECOND. nil"),
            ("index", "ok nil a"),
            ("space", "ok 1 nil"),
            ("inside", "error unexpected type 'table' in dynamicMetadata nil"),
            ("key", "error invalid public key nil"),
            ("newfield", "false"),
            ("length", "false"),
            ("keys", "error bad argument #1 to 'for iterator' (table expected, got table) nil"),
        ],
    );
}

#[test]
fn an_answer_passes_the_functions_for_responses() {
    let seen = check(
        script!("respond"),
        &[("seen", "403"), ("respond", "error lua:18: respond not currently supported in the response path")],
    );
    assert_eq!(seen.request, Outcome::Answered(403, "denied".to_owned()));
    let reply = seen.trial.0.reply.unwrap();
    assert_eq!(reply.details, "lua_response");
    let mut fields: Vec<String> =
        reply.headers.iter().map(|(n, v)| format!("{n}={}", String::from_utf8_lossy(v))).collect();
    fields.sort();
    assert_eq!(fields, ["x-list=a", "x-list=b", "x-num=5", "x-upper=u"]);
}

#[test]
fn an_answer_may_have_no_body_and_may_follow_a_body() {
    let seen = run(trial(script!("respond_empty")), &[], &[]);
    assert_eq!(seen.request, Outcome::Answered(204, String::new()));
    let seen = run(trial(script!("respond_after_body")), &["hello", " world"], &[]);
    assert_eq!(seen.request, Outcome::Answered(200, "got 11".to_owned()));
}

#[test]
fn responses_show_the_request_and_take_a_status_and_a_reason() {
    let seen = check(
        script!("response_side"),
        &[
            ("status", "1 200"),
            ("path", "1 /script/x"),
            ("qadd", "0"),
            ("qpairs", "1 true"),
            ("respond", "error lua:18: respond not currently supported in the response path"),
            ("reason", "0"),
            ("noreason", "error bad argument #1 to 'setHttp1ReasonPhrase' (string expected, got no value)"),
            ("newstatus", "0"),
            ("clear", "0"),
            ("host", "0"),
        ],
    );
    assert_eq!(seen.trial.stream.response.status(), 201);
}

#[test]
fn requests_have_no_reason_and_show_their_own_headers() {
    check(script!("request_only"), &[("reason", "0"), ("qadd", "1 1"), ("q2", "1 /script/x")]);
}

#[test]
fn an_error_page_replaces_a_response_body() {
    let seen = run(trial(script!("response_body")), &[], &["oops, ", "a stack trace"]);
    assert_eq!(seen.trial.stream.response_body.bytes(), b"<p>sorry</p>");
    check_headers(&seen, &[("n", "12"), ("cl", "12"), ("had", "true")]);
}

#[test]
fn calls_check_their_arguments_and_tell_their_outcome() {
    let bad = |text: &str| format!("error lua:13: {text}");
    let flag = bad("http call asynchronous flag must be 'true', 'false', or empty");
    let three = bad("http call headers must include ':path', ':method', and ':authority'");
    let negative = bad("http call timeout must be >= 0");
    let seen = check(
        script!("http_call"),
        &[
            ("down", "2 503 upstream failure"),
            ("slow", "2 504 upstream request timeout"),
            ("empty", "2 200 nil"),
            ("async", "2 nil nil"),
            ("optnone", "2 200 string"),
            ("optok", "2 200 string"),
            ("sampled", "2 200 string"),
            ("optbool", "2 nil nil"),
            ("flagnil", &flag),
            ("flagword", &flag),
            ("minus", &negative),
            ("minusopt", &negative),
            ("nomethod", &three),
            ("nocluster", &bad("http call cluster invalid. Must be configured")),
            ("noheaders", &bad("bad argument #2 to 'httpCall' (table expected, got no value)")),
            ("notimeout", &bad("bad argument #4 to 'httpCall' (number expected, got no value)")),
            ("noargs", &bad("bad argument #4 to 'httpCall' (number expected, got no value)")),
            ("word", &bad("bad argument #4 to 'httpCall' (number expected, got string)")),
            ("opttype", &bad("bad argument #4 to 'httpCall' (number expected, got string)")),
            ("optbad", &bad("\"nope\" is not valid key for httpCall() options")),
            ("bodytable", &bad("bad argument #3 to 'httpCall' (string expected, got table)")),
            ("badvalue", &bad("bad argument #2 to 'httpCall' (string expected, got function)")),
        ],
    );
    assert!(seen.headers["ok"].starts_with("2 200 "), "{:?}", seen.headers["ok"]);
}

#[test]
fn calls_say_that_they_are_internal_and_answers_keep_repeated_fields_on_request() {
    let seen = check(
        script!("http_call_headers"),
        &[
            ("dup", ":status=200;x-dup=[1,2]"),
            ("last", "2 string"),
            ("down", "503 upstream failure"),
            ("downh", ":status=503;content-length=16;content-type=text/plain"),
        ],
    );
    let both =
        ["x-list: 1|x-list: 2|", "x-num: 7|", "x-envoy-internal: true|", "x-envoy-expected-rq-timeout-ms: 1000|"];
    for part in both.into_iter().chain(["POST /echo|", "x-forwarded-for: 127.0.0.1|", "content-length: 3|"]) {
        assert!(seen.headers["sent"].contains(part), "{part} in {}", seen.headers["sent"]);
    }
    assert!(seen.headers["sent"].ends_with("|abc"));
    assert!(!seen.headers["sent2"].contains("x-forwarded-for"), "{}", seen.headers["sent2"]);
}

#[test]
fn metadata_of_route_virtual_host_and_filter_is_native() {
    check(
        script!("metadata"),
        &[
            ("s", "1 text"),
            ("n", "1 1.5"),
            ("b", "1 true"),
            ("none", "0"),
            ("l", "2 1 2"),
            ("o", "1 deep"),
            ("keys", "b=boolean;l=table;n=number;o=table;s=string"),
            ("noarg", "error bad argument #1 to 'get' (string expected, got no value)"),
            ("same", "true"),
            ("route", "1 text"),
            ("vh", "1 vhost"),
            ("lock", "error lua:21: cannot create a second iterator before completing the first"),
            ("ctx", "1 ctx"),
            ("ctxi", "1 nil"),
            ("ctxnone", "0"),
        ],
    );
}

#[test]
fn only_the_handle_itself_looks_under_the_usual_name_too() {
    let script = "function envoy_on_request(h)
        local own, route, host = h:metadata(), h:route():metadata(), h:virtualHost():metadata()
        h:headers():add('r-all', tostring((own:get('k'))) .. tostring((route:get('k'))) .. tostring((host:get('k'))))
      end";
    let mut trial = trial(script);
    let mut usual = Metadata::default();
    usual.set("envoy.filters.http.lua", "k", Value::String("here".to_owned()));
    let route = trial.stream.route.as_mut().unwrap();
    (route.metadata, route.virtual_host_metadata) = (usual.clone().into(), usual.into());
    check_headers(&run(trial, &[], &[]), &[("all", "herenilnil")]);
}

#[test]
fn dynamic_metadata_takes_every_type_and_reaches_the_response() {
    let seen = check(
        script!("dynamic_metadata"),
        &[
            ("set", "0"),
            ("gs", "2 string text"),
            ("gn", "2 number 1.5"),
            ("gb", "2 boolean true"),
            ("gl", "2 table 3"),
            ("gm", "2 table 0"),
            ("ge", "2 table 0"),
            ("gz", "2 nil nil"),
            ("gx", "2 nil nil"),
            ("fn", "error unexpected type 'function' in dynamicMetadata"),
            ("nested", "error unexpected type 'function' in dynamicMetadata"),
            ("mixed", "error unexpected type number in table key (only string keys are supported)"),
            ("none", "0"),
            ("names", "5=table;ns=table"),
            ("iterset", "error lua:26: dynamic metadata map cannot be modified while iterating"),
            ("carried", "text"),
        ],
    );
    let nested = seen.trial.stream.info.metadata.get("ns", "m").cloned();
    let inner = Value::Map(vec![("b".to_owned(), Value::Integer(1))]);
    let either = [
        Some(Value::Map(vec![("a".to_owned(), inner)])),
        Some(Value::Map(vec![("a".to_owned(), Value::Map(vec![("b".to_owned(), Value::Number(1.0))]))])),
    ];
    assert!(either.contains(&nested), "{nested:?}");
}

#[test]
fn a_line_break_in_a_value_let_a_request_pass_what_stood_behind() {
    let status = |value: &str| {
        let script = format!(
            "function envoy_on_request(h) h:headers():add('x-name', {value}) h:respond({{[':status'] = '401'}}) end"
        );
        let mut trial = trial(&script);
        trial.request(&[]);
        trial.0.reply.as_ref().map(|reply| reply.status)
    };
    assert_eq!(["'a\\r\\nx-inj: 1'", "'a\\0'", "'a'"].map(status), [Some(503), Some(503), Some(401)]);
    // One that the script itself sees to is none.
    assert_eq!(status("'b') pcall(h:headers().add, h:headers(), 'x-name', 'a\\n'"), Some(401));
}

#[test]
fn lists_with_holes_were_refused_as_metadata() {
    let script = "function envoy_on_request(h)
        local noted = h:streamInfo():dynamicMetadata()
        noted:set('ns', 'holes', {[1] = 'a', [3] = 'c'})
        local list = noted:get('ns').holes
        h:headers():add('r-list', tostring(list[1]) .. tostring(list[2]) .. tostring(list[3]))
        h:headers():add('r-far', tostring(pcall(noted.set, noted, 'ns', 'far', {[1] = 'a', [1e9] = 'c'})))
      end";
    let seen = run(trial(script), &[], &[]);
    let list = seen.trial.stream.info.metadata.get("ns", "holes").cloned();
    assert_eq!(list, Some(Value::List(vec![Value::String("a".into()), Value::Null, Value::String("c".into())])));
    check_headers(&seen, &[("list", "anilc"), ("far", "false")]);
}

#[test]
fn the_stream_tells_its_facts() {
    let seen = check(
        script!("stream_info"),
        &[
            ("protocol", "1 HTTP/1.1"),
            ("routename", "1 the-route"),
            ("virtualclustername", "1"),
            ("requestedservername", "1"),
            ("downstreamlocaladdress", "1 127.0.0.1:PORT"),
            ("downstreamdirectremoteaddress", "1 127.0.0.1:4000"),
            ("downstreamremoteaddress", "1 192.0.2.1:4000"),
            ("downstreamsslconnection", "1 nil"),
            ("drainconnectionuponcompletion", "0"),
            ("typed", "1 nil"),
            ("ssl", "1 nil"),
            ("csi", "0"),
            ("csiset", "1 nil"),
            ("csityped", "1 nil"),
            ("same", "true"),
        ],
    );
    assert!(seen.trial.stream.info.drain_connection);
}

#[test]
fn filter_state_holds_texts_of_known_factories() {
    check(
        script!("filter_state"),
        &[
            ("none", "0"),
            ("set", "0"),
            ("get", "1 v"),
            ("get2", "1 w"),
            ("field", "0"),
            ("num", "0"),
            ("getn", "1 5"),
            ("badfactory", "error 'nope' does not have an object factory"),
            ("few", "error bad argument #3 to 'set' (string expected, got no value)"),
        ],
    );
}

#[test]
fn base64_is_padded_and_read_with_padding_or_without() {
    check(
        script!("base64"),
        &[
            ("enc", "1 aGVsbG8A"),
            ("encnum", "1 NQ=="),
            ("dec", "1 hello"),
            ("nopad", "1 hello"),
            ("space", "1 hello"),
            ("bad", "1 nil"),
            ("url", "1 nil"),
            ("empty", "1"),
            ("encempty", "1"),
            ("none", "error bad argument #1 to 'base64Escape' (string expected, got no value)"),
        ],
    );
}

#[test]
fn signatures_are_verified_by_imported_keys() {
    let no = "2 false Failed to verify digest. Error code: 0";
    check(
        script!("crypto"),
        &[
            ("ok", "2 true nil"),
            ("upper", "2 true nil"),
            ("cut", "2 true nil"),
            ("tampered", no),
            ("hash", no),
            ("short", no),
            ("unknown", "2 false md5 is not supported."),
            ("nilkey", "error bad argument #2 to 'verifySignature' (string expected, got no value)"),
        ],
    );
    check(script!("crypto_ec"), &[("ec", "2 true nil"), ("other", no)]);
    check(
        script!("crypto_bad"),
        &[
            ("get", "1 nil"),
            ("text", "error invalid public key"),
            ("other", "error invalid public key"),
            ("verify", "error bad argument #2 to 'verifySignature' (string expected, got no value)"),
        ],
    );
}

#[test]
fn clocks_count_milliseconds_and_as_text_microseconds() {
    check(
        script!("timestamp"),
        &[
            ("ms", "2 number 13"),
            ("default", "2 number 13"),
            ("sms", "2 string 13"),
            ("sus", "2 string 16"),
            ("enum", "01"),
            ("us", "error lua:12: timestamp format must be MILLISECOND."),
            ("bad", "error timestamp format must be MILLISECOND."),
            ("sbad", "error timestamp format must be MILLISECOND or MICROSECOND."),
        ],
    );
}

#[test]
fn scripts_count_under_the_filters_prefix() {
    let seen = check(
        script!("stats"),
        &[
            ("inc", "0"),
            ("value", "1 3"),
            ("value2", "1 4"),
            ("minus", "error counter add amount must be non-negative"),
            ("addnone", "error bad argument #1 to 'add' (number expected, got no value)"),
            ("gvalue", "1 3"),
            ("gvalue2", "1 40"),
            ("gminus", "error gauge add amount must be non-negative"),
            ("gsubminus", "error gauge sub amount must be non-negative"),
            ("gsetminus", "error gauge set value must be non-negative"),
            ("record", "0"),
            ("recminus", "error histogram value must be non-negative"),
            (
                "unit",
                "error invalid histogram unit 'nope', expected 'ms', 'milliseconds', 'microseconds', 'nanoseconds', \
                 'bytes', or 'unspecified'",
            ),
            ("same", "true"),
        ],
    );
    assert_eq!(seen.trial.stat("http.test.lua.own.c.one"), Some(4));
    assert_eq!(seen.trial.stat("http.test.lua.own.executions"), Some(1));
    assert_eq!(seen.trial.stat("lua.lua_vm_count"), Some(1));
    assert_eq!(seen.trial.stat("http.test.lua.own.errors"), Some(0));
}

#[test]
fn a_host_is_asked_for_by_address() {
    let seen = check(
        script!("override_host"),
        &[
            ("ip", "0"),
            ("port", "0"),
            ("six", "0"),
            ("name", "error host is not a valid IP address"),
            ("empty", "error host is not a valid IP address"),
            ("strictword", "error bad argument #2 to 'setUpstreamOverrideHost' (boolean expected, got string)"),
        ],
    );
    assert!(seen.trial.stream.info.upstream_override.is_some());
}

#[test]
fn objects_do_not_outlive_their_stream() {
    let dead = "error object used outside of proper scope";
    let mut trial = run(trial(script!("scope")), &[], &[]).trial;
    trial.restart(stream());
    let seen = run(trial, &[], &[]);
    let all = ["handle", "headers", "pairs", "info", "meta", "dyn", "body", "log", "b64"].map(|name| (name, dead));
    check_headers(&seen, &all);
}

#[test]
fn a_handle_is_good_for_its_message_and_a_metric_for_its_filter() {
    let dead = "error object used outside of proper scope";
    let seen =
        check(script!("kept_handle"), &["handle", "log", "b64", "headers", "info", "stats"].map(|name| (name, dead)));
    check_headers(&seen, &[("counter", "0"), ("gauge", "0")]);
}

#[test]
fn a_wait_ends_wrappers_but_neither_the_handle_nor_metrics() {
    let dead = "error object used outside of proper scope";
    let all = ["h", "i", "m", "d", "s", "c", "fs", "fc", "b2"].map(|name| (name, dead));
    let seen = check_with(script!("scope_yield"), &["hello world"], &all);
    check_headers(&seen, &[("handle", "1 eA=="), ("counter", "0"), ("b", "1 11"), ("side", "ok")]);
}

#[test]
fn an_error_keeps_edits_and_the_response_is_still_asked() {
    let seen = check(script!("faults"), &[("before", "1"), ("response", "ran")]);
    assert_eq!(seen.trial.stat("http.test.lua.own.errors"), Some(2));
    let seen = check(script!("unexpected_yield"), &[("before", "1")]);
    assert!(!seen.headers.contains_key("after"));
    assert_eq!(seen.trial.stat("http.test.lua.own.errors"), Some(1));
}

#[test]
fn luas_own_functions_are_there_and_globals_persist() {
    let expected = [
        ("loaded", "1"),
        ("n", "1"),
        ("getfenv", "function"),
        ("setfenv", "function"),
        ("unpack", "function"),
        ("loadstring", "function"),
        ("pack", "function"),
        ("rawlen", "function"),
        ("os", "function"),
        ("io", "function"),
        ("ffi", "table"),
        ("jit", "table"),
        ("version", "Lua 5.1"),
        ("wrapped", "2 1 2"),
        ("mainthread", "false"),
    ];
    let mut trial = check(script!("environment"), &expected).trial;
    trial.restart(stream());
    check_headers(&run(trial, &[], &[]), &[("loaded", "1"), ("n", "2")]);
}

#[test]
fn a_hook_that_is_no_function_is_ignored() {
    let trial = trial("envoy_on_request = 5 function envoy_on_response(h) h:headers():add('r-x', '1') end");
    assert!(!trial.filter.hooks().request_headers);
    check_headers(&run(trial, &[], &[]), &[("x", "1")]);
}

#[test]
fn a_body_may_grow_over_what_was_held() {
    let script = "function envoy_on_response(h) h:body():setBytes(('x'):rep(5000000)) end";
    let seen = run(trial(script), &[], &["small"]);
    assert_eq!(seen.trial.stream.response_body.bytes().len(), 5_000_000);
}

#[test]
fn an_error_names_the_line_that_called() {
    let seen = run(
        trial(
            "function envoy_on_request(h)\n local ok, e = pcall(function()\n h:headers():add('a')\n end)\n h:headers():add('r-e', e) end",
        ),
        &[],
        &[],
    );
    check_headers(&seen, &[("e", "lua:3: bad argument #2 to 'add' (string expected, got no value)")]);
}

#[test]
fn edits_of_the_request_from_the_response_leave_the_route_alone() {
    let seen = run(trial("function envoy_on_response(h) h:requestHeaders():add('x', 'y') end"), &[], &[]);
    assert_eq!(seen.trial.request_header("x").as_deref(), Some("y"));
    assert!(!seen.trial.stream.info.route_is_stale);
}

/// Certificates that say which part of them was asked for.
#[derive(Debug)]
struct Telling(&'static str);

impl Certificates for Telling {
    fn values(&self, part: CertificatePart) -> Vec<String> {
        match part {
            CertificatePart::UriNames => vec![format!("{}:uri", self.0), "second".into()],
            CertificatePart::Organizations => vec!["A".into(), "B".into()],
            CertificatePart::Extensions => vec!["2.5.29.17".into()],
            CertificatePart::DnsNames => Vec::new(),
            part => vec![format!("{}:{part:?}", self.0)],
        }
    }

    fn validity(&self) -> Option<(SystemTime, SystemTime)> {
        let at = |seconds: u64| SystemTime::UNIX_EPOCH + Duration::from_millis(seconds * 1000 + 500);
        Some((at(1_700_000_000), at(1_800_000_000)))
    }

    fn is_verified(&self) -> bool {
        true
    }
}

const SSL: &str = "
    function envoy_on_request(h)
      local ssl = h:streamInfo():downstreamSslConnection()
      local out = {}
      local function show(...) for i = 1, select('#', ...) do out[#out + 1] = tostring((select(i, ...))) end end
      show(ssl ~= nil, h:connection():ssl() ~= nil, h:streamInfo():requestedServerName())
      if ssl then
        show(ssl:tlsVersion(), ssl:ciphersuiteString(), ssl:ciphersuiteId(), ssl:sessionId())
        show(ssl:peerCertificatePresented(), ssl:peerCertificateValidated())
        show(ssl:validFromPeerCertificate(), ssl:expirationPeerCertificate())
        show(table.concat(ssl:uriSanPeerCertificate(), '+'), table.concat(ssl:uriSanLocalCertificate(), '+'))
        show(#ssl:dnsSansPeerCertificate(), #ssl:dnsSansLocalCertificate())
        show(#ssl:oidsPeerCertificate(), #ssl:oidsLocalCertificate())
        show(ssl:sha256PeerCertificateDigest(), ssl:serialNumberPeerCertificate(), ssl:issuerPeerCertificate())
        show(ssl:subjectPeerCertificate(), ssl:subjectLocalCertificate())
        show(ssl:urlEncodedPemEncodedPeerCertificate(), ssl:urlEncodedPemEncodedPeerCertificateChain())
        local subject = ssl:parsedSubjectPeerCertificate()
        show(subject ~= nil)
        if subject then show(subject:commonName(), table.concat(subject:organizationName(), '+')) end
      end
      h:headers():replace('r-out', table.concat(out, '|'))
    end";

fn told_of(tls: Option<TlsSession>) -> String {
    let mut trial = Trial::envoy(SSL);
    trial.stream.info.tls = tls.map(Rc::new);
    trial.request(&[]);
    trial.request_header("r-out").unwrap()
}

#[test]
fn a_script_is_told_of_tls() {
    assert_eq!(told_of(None), "false|false|");
    let session = || TlsSession {
        version: "TLSv1.3",
        cipher: "TLS_AES_128_GCM_SHA256",
        cipher_id: 0x1301,
        server_name: Some("site.test".into()),
        local: Some(Box::new(Telling("us"))),
        ..TlsSession::default()
    };
    let agreed = "true|true|site.test|TLSv1.3|TLS_AES_128_GCM_SHA256|0x1301|";
    let without = told_of(Some(session()));
    assert_eq!(without, format!("{agreed}|false|false|0|0||us:uri+second|0|0|0|1|||||us:Subject|||false"));
    let with = told_of(Some(TlsSession { peer: Some(Box::new(Telling("it"))), ..session() }));
    assert_eq!(
        with,
        format!(
            "{agreed}|true|true|1700000000|1800000000|it:uri+second|us:uri+second|0|0|1|1|it:Sha256|it:Serial|it:Issuer|\
             it:Subject|us:Subject|it:PemUrlEncoded|it:ChainPemUrlEncoded|true|it:CommonNames|A+B"
        )
    );
}

#[test]
fn a_handle_of_tls_is_good_for_its_turn_only() {
    let mut trial = Trial::envoy(
        "local kept
         function envoy_on_request(h) kept = h:streamInfo():downstreamSslConnection() end
         function envoy_on_response(h)
           local _, why = pcall(function() return kept:tlsVersion() end)
           h:headers():replace('r-out', why)
         end",
    );
    trial.stream.info.tls = Some(Rc::new(TlsSession::default()));
    trial.request(&[]);
    trial.response(&[]);
    let why = trial.response_header("r-out").unwrap();
    assert!(why.ends_with("object used outside of proper scope"), "{why}");
}
