//! httpCall and respond.

use postrider_filter_api::{Action, Answer, CallFailure};
use postrider_http::ResponseHead;
use serde_json::json;

use super::{Trial, get, show, v1, v2};
use crate::testing::Outcome;

const HEADERS: &str = "{ [':method'] = 'POST', [':path'] = '/p', [':authority'] = 'a', ['X-One'] = 'x', n = 5 }";

fn answer(status: u16, lines: &[(&str, &str)], body: &str) -> Answer {
    let mut head = ResponseHead::new();
    head.set_status(status);
    for (name, value) in lines {
        head.fields.append_name(name.as_bytes(), value.as_bytes()).unwrap();
    }
    Answer { head, body: body.as_bytes().to_vec(), trailers: Default::default() }
}

/// A call in each hook, whose answer goes to `x-out` of the message of that side.
fn callers() -> Vec<(&'static str, String)> {
    let call = |map: &str| {
        format!(
            "local headers, body = envoy.httpCall('blue', {HEADERS}, 'hi', 100)
             {map}.set_header('x-out', headers[':status'] .. '|' .. tostring(headers.two) .. '|' .. tostring(body))"
        )
    };
    let mut all = Vec::new();
    for name in ["request_header", "request_body", "response_header", "response_body"] {
        let map = if name.starts_with("request") { "req" } else { "resp" };
        all.push((name, v2(&[(name, &call(map))])));
    }
    for name in ["request", "response"] {
        let map = if name == "request" { "req" } else { "resp" };
        all.push((name, v1(&[(name, &call(map))])));
    }
    all
}

#[test]
fn a_call_can_be_made_in_every_hook() {
    type Outcomes = [(fn() -> Result<Answer, CallFailure>, &'static str); 5];
    let outcomes: Outcomes = [
        (|| Ok(answer(200, &[("two", "a"), ("two", "b")], "body")), "200|b|body"),
        (|| Ok(answer(404, &[], "")), "404|nil|nil"),
        (|| Err(CallFailure::Upstream), "503|nil|upstream failure"),
        (|| Err(CallFailure::Timeout), "504|nil|upstream request timeout"),
        (
            || Err(CallFailure::Malformed),
            "502|nil|upstream connect error or disconnect/reset before headers. reset reason: protocol error",
        ),
    ];
    for (name, script) in callers() {
        for (outcome, expected) in &outcomes {
            let is_request = name.starts_with("request");
            let mut trial = Trial::rider(&script);
            trial.stream.response.set_status(200);
            let paused = if is_request { trial.request(&["x"]) } else { trial.response(&["x"]) };
            assert_eq!(paused, Outcome::Paused, "{name}");
            {
                let calls = trial.stream.host.calls.borrow();
                let call = calls.front().unwrap();
                assert_eq!(&*call.cluster, "blue");
                assert_eq!(
                    (call.head.method_bytes(), call.head.path(), call.head.authority()),
                    (&b"POST"[..], &b"/p"[..], &b"a"[..])
                );
                assert_eq!(call.head.fields.get_name(b"x-one"), Some(&b"x"[..]));
                assert_eq!(call.head.fields.get_name(b"n"), Some(&b"5"[..]));
                assert_eq!(call.head.fields.get_name(b"content-length"), Some(&b"2"[..]));
                assert_eq!(call.body, b"hi");
                assert_eq!(call.timeout, Some(std::time::Duration::from_millis(100)));
            }
            assert!(trial.stream.host.answer(outcome()));
            assert_eq!(trial.resume(is_request), Outcome::Passed, "{name}");
            let got = if is_request { trial.request_header("x-out") } else { trial.response_header("x-out") };
            assert_eq!(got.as_deref(), Some(*expected), "{name}");
        }
    }
}

#[test]
fn calls_follow_each_other_and_a_body_can_be_waited_for_between_them() {
    let mut trial = Trial::rider(&v1(&[(
        "request",
        &format!(
            "local _, one = envoy.httpCall('a', {HEADERS}, nil, 0)
             local body = req.get_body()
             local _, two = envoy.httpCall('b', {HEADERS}, body:getBytes(0, 2), 0)
             local ok, three = pcall(function() local _, three = envoy.httpCall('c', {HEADERS}, nil, 0) error(three, 0) end)
             req.set_header('x-out', one .. two .. three)"
        ),
    )]));
    let state = &mut trial.0.state;
    let filter = trial.0.filter.clone();
    let action = trial.0.stream.with(|stream| filter.on_request_headers(state, stream, false));
    assert!(matches!(action, Action::Pause));
    assert_eq!(trial.0.stream.host.calls.borrow().front().unwrap().timeout, None, "0 is no timeout");
    trial.0.stream.host.answer(Ok(answer(200, &[], "1")));
    let action = trial.0.stream.with(|stream| filter.on_request_resumed(state, stream));
    assert!(matches!(action, Action::Buffer), "{action:?}");
    trial.0.stream.request_body.push(b"xyz");
    let action = trial.0.stream.with(|stream| filter.on_request_body(state, stream, true));
    assert!(matches!(action, Action::Pause), "{action:?}");
    assert_eq!(trial.0.stream.host.calls.borrow().front().unwrap().body, b"xy");
    trial.0.stream.host.answer(Ok(answer(200, &[], "2")));
    assert_eq!(trial.resume(true), Outcome::Paused);
    trial.stream.host.answer(Ok(answer(200, &[], "3")));
    assert_eq!(trial.resume(true), Outcome::Passed);
    assert_eq!(trial.request_header("x-out").as_deref(), Some("123"));
}

#[test]
fn a_call_with_wrong_arguments_is_an_error_and_nothing_is_sent() {
    let ok = "{ [':method'] = 'GET', [':path'] = '/', [':authority'] = 'a' }";
    let cases = [
        (format!("envoy.httpCall(1, {ok}, nil, 1)"), "cluster must be a string"),
        (format!("envoy.httpCall('unknown', {ok}, nil, 1)"), "there is no `unknown`"),
        ("envoy.httpCall('blue', nil, nil, 1)".to_owned(), "headers must be a table"),
        (format!("envoy.httpCall('blue', {ok}, nil)"), "timeout must be a number"),
        (format!("envoy.httpCall('blue', {ok}, nil, '1')"), "timeout must be a number"),
        (format!("envoy.httpCall('blue', {ok}, nil, -1)"), "timeout must be >= 0"),
        (format!("envoy.httpCall('blue', {ok}, nil, 0/0)"), "timeout must be >= 0"),
        (format!("envoy.httpCall('blue', {ok}, {{}}, 1)"), "body must be a string"),
        ("envoy.httpCall('blue', { [':path'] = '/', [':authority'] = 'a' }, nil, 1)".to_owned(), "must include"),
        ("envoy.httpCall('blue', { [':method'] = 'GET', [':authority'] = 'a' }, nil, 1)".to_owned(), "must include"),
        ("envoy.httpCall('blue', { [':method'] = 'GET', [':path'] = '/' }, nil, 1)".to_owned(), "must include"),
        ("envoy.httpCall('blue', {}, nil, 1)".to_owned(), "must include"),
        ("envoy.httpCall('blue', { [':method'] = 'GET', [':path'] = '/', [':authority'] = 'a', x = {} }, nil, 1)".to_owned(), "must be a string or a number"),
        ("envoy.httpCall('blue', { [':method'] = 'GET', [':path'] = '/', [':authority'] = 'a', x = 'a\\nb' }, nil, 1)".to_owned(), "cannot be sent"),
    ];
    for (call, expected) in cases {
        let mut trial = Trial::rider(&v2(&[("request_header", &show(&call))]));
        trial.stream.host.clusters = vec!["blue".to_owned()];
        assert_eq!(trial.request(&[]), Outcome::Passed, "{call}");
        let got = trial.request_header("x-out").unwrap();
        assert!(got.starts_with("E: ") && got.contains(expected), "{call}: {got}");
        assert!(trial.stream.host.calls.borrow().is_empty());
    }
}

#[test]
fn an_answer_of_the_plugins_own_can_be_given_in_every_request_hook() {
    let respond = "envoy.respond({ [':status'] = 403, ['X-Why'] = 'no', n = 1, ['content-length'] = '99' }, 'go away') after = true";
    let scripts = [
        v2(&[("request_header", respond)]),
        v2(&[("request_body", respond)]),
        v1(&[("request", respond)]),
        v1(&[("request", &format!("local b = req.get_body() {respond}"))]),
        v2(&[("request_header", &format!("pcall(function() {respond} end)"))]),
    ];
    for script in scripts {
        let mut trial = Trial::rider(&script).0;
        let (filter, state) = (trial.filter.clone(), &mut trial.state);
        let mut action = trial.stream.with(|stream| filter.on_request_headers(state, stream, false));
        if !matches!(action, Action::Respond(_)) {
            trial.stream.request_body.push(b"x");
            action = trial.stream.with(|stream| filter.on_request_body(state, stream, true));
        }
        let Action::Respond(reply) = action else { panic!("{script}") };
        assert_eq!((reply.status, &*reply.body), (403, &b"go away"[..]));
        let mut headers: Vec<_> =
            reply.headers.iter().map(|(name, value)| (name.to_string(), value.to_vec())).collect();
        headers.sort();
        assert_eq!(headers, [("n".to_owned(), b"1".to_vec()), ("x-why".to_owned(), b"no".to_vec())]);
        assert_eq!(reply.details, "rider_response_test");
    }
}

#[test]
fn responses_cannot_be_answered_by_respond() {
    for name in ["response_header", "response_body"] {
        let mut trial = Trial::rider(&v2(&[(
            name,
            &show("envoy.respond({ [':status'] = 200 })").replace("envoy.req.", "envoy.resp."),
        )]));
        trial.stream.response.set_status(200);
        assert_eq!(trial.response(&["x"]), Outcome::Passed);
        assert!(trial.response_header("x-out").unwrap().contains("not currently supported in the response path"));
    }
}

#[test]
fn an_answer_with_wrong_arguments_is_an_error() {
    let cases = [
        ("envoy.respond()", "headers must be a table"),
        ("envoy.respond({})", ":status must be between 200-599"),
        ("envoy.respond({ [':status'] = 199 })", ":status must be between 200-599"),
        ("envoy.respond({ [':status'] = 600 })", ":status must be between 200-599"),
        ("envoy.respond({ [':status'] = 'x' })", ":status must be between 200-599"),
        ("envoy.respond({ [':status'] = {} })", ":status must be between 200-599"),
        ("envoy.respond({ [':status'] = 200, x = {} })", "must be a string or a number"),
        ("envoy.respond({ [':status'] = 200, [':path'] = '/' })", "cannot be sent"),
        ("envoy.respond({ [':status'] = 200, x = 'a\\nb' })", "cannot be sent"),
        ("envoy.respond({ [':status'] = 200 }, {})", "body must be a string"),
    ];
    for (call, expected) in cases {
        let mut trial = Trial::rider(&v2(&[("request_header", &show(call))]));
        assert_eq!(trial.request(&[]), Outcome::Passed, "{call}");
        let got = trial.request_header("x-out").unwrap();
        assert!(got.starts_with("E: ") && got.contains(expected), "{call}: {got}");
    }
    let mut trial = Trial::rider(&v2(&[("request_header", "envoy.respond({ [':status'] = '204' })")]));
    assert_eq!(trial.request(&[]), Outcome::Answered(204, String::new()), "a status as text, no body");
}

#[test]
fn the_plugins_own_answer_meets_its_response_hooks() {
    let mut trial = Trial::rider(&v2(&[
        ("request_header", "envoy.stream.shared.why = 'mine' envoy.respond({ [':status'] = 401 })"),
        ("response_header", "resp.set_header('x-out', envoy.stream.shared.why)"),
    ]));
    assert_eq!(trial.request(&[]), Outcome::Answered(401, String::new()));
    trial.stream.response.set_status(401);
    trial.response(&[]);
    assert_eq!(trial.response_header("x-out").as_deref(), Some("mine"));
}

#[test]
fn a_yield_that_looks_like_ours_keeps_no_stream_waiting() {
    // The token is got from a call within a coroutine of the plugin's own.
    let script = format!(
        "local co = coroutine.create(function() envoy.httpCall('a', {HEADERS}, nil, 1) end)
         local _, mark = coroutine.resume(co)
         co = nil
         coroutine.yield(mark, 5)"
    );
    let mut trial = Trial::rider(&v2(&[("request_header", &script)]));
    assert_eq!(trial.request(&[]), Outcome::Passed);
    trial.restart(get(&[]));
    assert_eq!(trial.request(&[]), Outcome::Passed);
}

#[test]
fn calls_without_a_stream_blamed_a_header_or_the_response() {
    let load = |call: &str| {
        let script = v2(&[]).replace("return h", &format!("function h.on_configure() {call} end return h"));
        Trial::rider_with(&script, json!({}), json!({ "name": "test" })).err().unwrap()[0].message.clone()
    };
    let call = "envoy.httpCall('c', { [':method'] = 'GET', [':path'] = '/', [':authority'] = 'a' }, nil, 100)";
    let said = load(call);
    assert!(said.contains("there is no stream here: httpCall is for hooks"), "{said}");
    let said = load("envoy.respond({ [':status'] = 200 })");
    assert!(said.contains("there is no stream here: respond is for hooks on requests"), "{said}");
}
