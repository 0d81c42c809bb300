//! The request's way.

use std::time::Duration;

use postrider_filter_api::{Action, Stream};
use postrider_testkit::{Gate, Origin, RawClient, Response};

use crate::scripted::*;

const PLAIN: &[u8] = b"GET /next HTTP/1.1\r\nhost: x\r\n\r\n";
const SIZED: &[u8] = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 6\r\n\r\nabcdef";
const CHUNKED: &[u8] =
    b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n3;x=y\r\ncde\r\n1\r\nf\r\n0\r\n\r\n";
const TRAILED: &[u8] =
    b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n6\r\nabcdef\r\n0\r\nx-sum: 1\r\n\r\n";

/// The connection still works: another request on it is answered with the origin's echo.
fn next(client: &mut RawClient) {
    let response = client.exchange(PLAIN);
    assert_eq!(response.status, 200, "{response:?}");
    assert!(response.text().starts_with("GET /next"), "{response:?}");
}

fn ended_with(response: &Response, body: &str) {
    assert_eq!(response.status, 200, "{response:?}");
    assert!(response.text().ends_with(&format!("\r\n\r\n{body}")), "{response:?}");
}

/// Only what is not about `/next`.
fn is_next(stream: &Stream<'_>) -> bool {
    stream.request.path() == b"/next"
}

#[test]
fn a_request_pauses_and_goes_on_at_each_hook() {
    for paused in [RequestHead, RequestBody, RequestTrailers] {
        let (origin, aside) = (Origin::echo("o"), fine());
        let script = Script::new(REQUEST, move |at, state, stream, _| {
            if at == paused && !is_next(stream) { pause(state, stream) } else { Action::Continue }
        });
        let running = run(origin.address, aside.address, &[&script]);
        let mut client = RawClient::connect(running.address);
        ended_with(&client.exchange(TRAILED), "abcdef");
        assert_eq!(origin.requests()[0].trailers.value("x-sum"), Some("1"));
        assert_eq!(aside.requests().len(), 1);
        assert_eq!(script.calls().iter().filter(|call| call.starts_with("RequestResumed")).count(), 1);
        next(&mut client);
    }
}

#[test]
fn the_paused_hook_sees_what_it_paused_on_when_it_is_resumed() {
    let (origin, aside) = (Origin::echo("o"), fine());
    let script = Script::new(REQUEST, |at, state, stream, _| match at {
        RequestBody => pause(state, stream),
        RequestResumed => {
            let upper = stream.request_body.bytes().to_ascii_uppercase();
            stream.request_body.replace(&upper);
            Action::Continue
        }
        _ => Action::Continue,
    });
    let running = run(origin.address, aside.address, &[&script]);
    ended_with(&RawClient::connect(running.address).exchange(SIZED), "ABCDEF");
    assert_eq!(script.calls(), ["RequestHead", "RequestBody abcdef end", "RequestResumed abcdef"]);
    assert_eq!(origin.requests()[0].headers.value("transfer-encoding"), Some("chunked"));
}

#[test]
fn a_filter_that_buffers_has_the_whole_body_however_it_was_cut() {
    for whole in [SIZED, CHUNKED, TRAILED] {
        for cut in 1..whole.len() {
            let (origin, aside) = (Origin::echo("o"), fine());
            let script = Script::new(REQUEST, |at, _, stream, end| match at {
                RequestTrailers => Action::Continue,
                _ if end || is_next(stream) => Action::Continue,
                _ => Action::Buffer,
            });
            let running = run(origin.address, aside.address, &[&script]);
            let mut client = RawClient::connect(running.address);
            client.send(&whole[..cut]);
            // Both parts may still arrive as one; over all the cuts, most do not.
            std::thread::yield_now();
            client.send(&whole[cut..]);
            ended_with(&client.response("POST").unwrap(), "abcdef");
            let calls = script.calls();
            let want = if whole == TRAILED { "RequestTrailers abcdef" } else { "RequestBody abcdef end" };
            assert_eq!(calls.last().map(String::as_str), Some(want), "{cut}: {calls:?}");
            let seen = &origin.requests()[0];
            assert_eq!(seen.headers.value("content-length").is_some(), whole == SIZED);
            assert_eq!(seen.trailers.value("x-sum").is_some(), whole == TRAILED);
            next(&mut client);
        }
    }
}

#[test]
fn a_replaced_body_leaves_with_its_own_length() {
    for (with, length) in [("xy", "2"), ("a longer one than before", "24"), ("", "0")] {
        for whole in [SIZED, CHUNKED] {
            let (origin, aside) = (Origin::echo("o"), fine());
            let script = Script::new(REQUEST, move |at, _, stream, end| match at {
                _ if is_next(stream) => Action::Continue,
                RequestBody if end => {
                    stream.request_body.replace(with.as_bytes());
                    Action::Continue
                }
                _ => Action::Buffer,
            });
            let running = run(origin.address, aside.address, &[&script]);
            let mut client = RawClient::connect(running.address);
            ended_with(&client.exchange(whole), with);
            assert_eq!(origin.requests()[0].headers.value("content-length"), Some(length));
            assert_eq!(origin.requests()[0].headers.value("transfer-encoding"), None);
            next(&mut client);
        }
    }
}

#[test]
fn a_filter_may_give_a_request_a_body_and_those_behind_it_see_it() {
    let (origin, aside) = (Origin::echo("o"), fine());
    let giver = Script::new(&[RequestHead], |_, _, stream, end| {
        assert!(end);
        if !is_next(stream) {
            stream.request_body.replace(b"given");
        }
        Action::Continue
    });
    let second = Script::new(REQUEST, |_, _, _, _| Action::Continue);
    let running = run(origin.address, aside.address, &[&giver, &second]);
    let mut client = RawClient::connect(running.address);
    ended_with(&client.exchange(b"PUT / HTTP/1.1\r\nhost: x\r\n\r\n"), "given");
    assert_eq!(origin.requests()[0].headers.value("content-length"), Some("5"));
    assert_eq!(second.calls(), ["RequestHead", "RequestBody given end"]);
    next(&mut client);
    assert_eq!(second.calls().last().unwrap(), "RequestHead end");
}

#[test]
fn filters_that_are_done_leave_the_body_as_it_was() {
    for (whole, framing) in [(SIZED, "content-length"), (CHUNKED, "transfer-encoding")] {
        let (origin, aside) = (Origin::echo("o"), fine());
        let scripts = [0, 1].map(|_| Script::new(REQUEST, |_, _, _, _| Action::Done));
        let running = run(origin.address, aside.address, &[&scripts[0], &scripts[1]]);
        let mut client = RawClient::connect(running.address);
        ended_with(&client.exchange(whole), "abcdef");
        assert!(origin.requests()[0].headers.contains(framing));
        assert_eq!(scripts.each_ref().map(|script| script.calls().len()), [1, 1]);
        next(&mut client);
    }
}

#[test]
fn streamed_pieces_pass_the_filters_in_order_and_the_end_is_told() {
    let (origin, aside) = (Origin::echo("o"), fine());
    let scripts = ["1", "2"].map(|mark| {
        Script::new(&[RequestBody], move |_, _, stream, _| {
            let piece = [stream.request_body.bytes(), mark.as_bytes()].concat();
            stream.request_body.replace(&piece);
            Action::Continue
        })
    });
    let running = run(origin.address, aside.address, &[&scripts[0], &scripts[1]]);
    let mut client = RawClient::connect(running.address);
    client.send(b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n");
    postrider_testkit::wait_until("the first piece", || scripts[1].calls() == ["RequestBody ab1"]);
    client.send(b"0\r\n\r\n");
    ended_with(&client.response("POST").unwrap(), "ab1212");
    assert_eq!(scripts[0].calls(), ["RequestBody ab", "RequestBody end"]);
    assert_eq!(scripts[1].calls(), ["RequestBody ab1", "RequestBody 1 end"]);
    next(&mut client);
}

#[test]
fn a_streaming_filter_may_hold_some_of_the_body_back() {
    let (origin, aside) = (Origin::echo("o"), fine());
    let script = Script::new(&[RequestBody], |_, _, stream, _| match stream.request_body.bytes().len() {
        0..4 => Action::Buffer,
        _ => Action::Continue,
    });
    let running = run(origin.address, aside.address, &[&script]);
    let mut client = RawClient::connect(running.address);
    client.send(&SIZED[..SIZED.len() - 4]);
    postrider_testkit::wait_until("the first piece", || script.calls() == ["RequestBody ab"]);
    client.send(b"cdef");
    ended_with(&client.response("POST").unwrap(), "abcdef");
    assert_eq!(script.calls(), ["RequestBody ab", "RequestBody abcdef end"]);
}

#[test]
fn two_filters_that_buffer_see_each_others_work() {
    for whole in [SIZED, CHUNKED] {
        let (origin, aside) = (Origin::echo("o"), fine());
        let scripts = ["1", "2"].map(|mark| {
            Script::new(REQUEST, move |at, state, stream, end| match at {
                RequestResumed => Action::Continue,
                _ if is_next(stream) => Action::Continue,
                RequestBody if end => {
                    let body = [stream.request_body.bytes(), mark.as_bytes()].concat();
                    stream.request_body.replace(&body);
                    pause(state, stream)
                }
                _ => Action::Buffer,
            })
        });
        let running = run(origin.address, aside.address, &[&scripts[0], &scripts[1]]);
        let mut client = RawClient::connect(running.address);
        ended_with(&client.exchange(whole), "abcdef12");
        assert_eq!(origin.requests()[0].headers.value("content-length"), Some("8"));
        let calls = scripts[1].calls();
        assert_eq!(calls, ["RequestHead", "RequestBody abcdef1 end", "RequestResumed abcdef12"]);
        next(&mut client);
    }
}

#[test]
fn more_than_the_buffer_limit_is_too_large() {
    let (origin, aside) = (Origin::echo("o"), fine());
    let script = Script::new(&[RequestHead, RequestBody, Complete], |_, _, _, _| Action::Buffer);
    let mut site = site(origin.address, aside.address, &[&script]);
    site.buffer_limit = 1024;
    let running = site.run(&registry());
    let mut client = RawClient::connect(running.address);
    client.send(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 1500\r\n\r\n").send([b'x'; 1400]);
    let response = client.response("POST").unwrap();
    assert_eq!((response.status, response.text()), (413, "Payload Too Large"));
    client.half_close();
    assert!(client.closed());
    let complete = "Complete 413 request_payload_too_large";
    postrider_testkit::wait_until("the end", || script.calls().last().is_some_and(|last| last == complete));
    assert!(origin.requests().is_empty());

    // Up to the limit it passes.
    let mut client = RawClient::connect(running.address);
    client.send(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 1024\r\n\r\n").send([b'x'; 1024]);
    assert_eq!(client.response("POST").unwrap().status, 200);
    next(&mut client);
}

#[test]
fn a_client_that_waits_for_100_gets_it_while_a_filter_buffers() {
    let (origin, aside) = (Origin::echo("o"), fine());
    let script = Script::new(REQUEST, |_, _, _, _| Action::Buffer);
    let running = run(origin.address, aside.address, &[&script]);
    let mut client = RawClient::connect(running.address);
    client.send(b"POST / HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 3\r\n\r\n");
    assert_eq!(client.any_response("POST").unwrap().status, 100);
    client.send(b"abc");
    ended_with(&client.response("POST").unwrap(), "abc");
    next(&mut client);
}

#[test]
fn a_filter_may_answer_when_it_is_resumed() {
    let (origin, aside) = (Origin::echo("o"), fine());
    let script = Script::new(REQUEST, |at, state, stream, _| match at {
        _ if is_next(stream) => Action::Continue,
        RequestResumed => respond(418, "teapot"),
        _ => pause(state, stream),
    });
    let running = run(origin.address, aside.address, &[&script]);
    let mut client = RawClient::connect(running.address);
    let response = client.exchange(SIZED);
    assert_eq!((response.status, response.text()), (418, "teapot"));
    next(&mut client);
    assert_eq!(origin.requests().len(), 1);
}

#[test]
fn a_filter_may_answer_from_its_body_hook_while_the_request_is_forwarded() {
    let (origin, aside) = (Origin::echo("o"), fine());
    let script = Script::new(&[RequestBody], |_, _, stream, _| match stream.request_body.bytes() {
        b"bad" => respond(403, "no"),
        _ => Action::Continue,
    });
    let running = run(origin.address, aside.address, &[&script]);
    let mut client = RawClient::connect(running.address);
    client.send(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\nok");
    postrider_testkit::wait_until("the first piece", || script.calls().len() == 1);
    client.send(b"bad");
    assert_eq!(client.response("POST").unwrap().status, 403);
    next(&mut client);
}

#[test]
fn the_call_of_a_client_that_left_is_abandoned() {
    let origin = Origin::echo("o");
    let silent = Origin::silent();
    for request in [PLAIN, SIZED] {
        let script = Script::new(REQUEST, |_, state, stream, _| pause(state, stream));
        let running = run(origin.address, silent.address, &[&script]);
        let mut client = RawClient::connect(running.address);
        client.send(request);
        let before = silent.connection_count();
        silent.wait_connections(before.max(1));
        postrider_testkit::wait_until("the call", || !script.calls().is_empty() && silent.open_connections() == 1);
        client.reset();
        silent.wait_open_at_most(0);
    }
    assert!(origin.requests().is_empty());
}

#[test]
fn deadlines_act_while_a_request_is_paused() {
    let (origin, silent) = (Origin::echo("o"), Origin::silent());
    let limit = Some(Duration::from_millis(50));
    for (timeout, request, status, text) in [
        ("duration", PLAIN, 504, "downstream duration timeout"),
        ("idle", PLAIN, 504, "stream timeout"),
        // Nothing of a body is read meanwhile: whether all of it came is not known, and the filter is to blame.
        ("request", &SIZED[..SIZED.len() - 1], 504, "request timeout"),
    ] {
        let script = Script::new(REQUEST, |_, state, stream, _| pause(state, stream));
        let mut site = site(origin.address, silent.address, &[&script]);
        match timeout {
            "duration" => site.http.timeouts.max_stream_duration = limit,
            "idle" => site.http.timeouts.stream_idle = limit,
            _ => site.http.timeouts.request = limit,
        }
        let running = site.run(&registry());
        let mut client = RawClient::connect(running.address);
        client.send(request);
        let response = client.response("GET").unwrap();
        assert_eq!((response.status, response.text()), (status, text));
        drop(running);
        silent.wait_open_at_most(0);
    }
}

#[test]
fn the_routes_timeout_begins_when_the_filters_let_the_request_go() {
    let gate = Gate::default();
    let held = gate.clone();
    let slow = Origin::start(move |connection| {
        while connection.request().is_some() {
            held.wait();
            connection.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
        }
    });
    let origin = Origin::echo("o");
    let script = Script::new(REQUEST, |at, state, stream, _| match at {
        RequestHead => pause(state, stream),
        _ => Action::Continue,
    });
    let mut site = site(origin.address, slow.address, &[&script]);
    forward(&mut site.http).timeout = Some(Duration::from_millis(100));
    let running = site.run(&registry());
    let mut client = RawClient::connect(running.address);
    client.send(PLAIN);
    slow.wait_requests(1);
    let since = std::time::Instant::now();
    postrider_testkit::wait_until("longer than the route allows", || since.elapsed() > Duration::from_millis(150));
    gate.open();
    assert_eq!(client.response("GET").unwrap().status, 200);
}

#[test]
fn the_next_request_waits_behind_a_paused_one() {
    let (origin, aside) = (Origin::echo("o"), fine());
    let script = Script::new(REQUEST, |at, state, stream, _| {
        if at == RequestHead && !is_next(stream) { pause(state, stream) } else { Action::Continue }
    });
    let running = run(origin.address, aside.address, &[&script]);
    let mut client = RawClient::connect(running.address);
    client.send([SIZED, PLAIN, CHUNKED, PLAIN].concat());
    ended_with(&client.response("POST").unwrap(), "abcdef");
    ended_with(&client.response("GET").unwrap(), "");
    ended_with(&client.response("POST").unwrap(), "abcdef");
    ended_with(&client.response("GET").unwrap(), "");
    let paths: Vec<_> = origin.requests().iter().map(|request| request.target.clone()).collect();
    assert_eq!(paths, ["/", "/next", "/", "/next"]);
}

#[test]
fn a_truncated_body_ends_the_wait_of_a_filter_that_buffers() {
    let (origin, aside) = (Origin::echo("o"), fine());
    let script = Script::new(&[RequestHead, RequestBody, Complete], |_, _, _, _| Action::Buffer);
    let running = run(origin.address, aside.address, &[&script]);
    let mut client = RawClient::connect(running.address);
    client.send(&SIZED[..SIZED.len() - 2]).half_close();
    assert!(client.closed());
    assert_eq!(script.calls().last().unwrap(), "Complete 0 downstream_remote_disconnect");
    let mut client = RawClient::connect(running.address);
    client.send(b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n");
    assert_eq!(client.response("POST").unwrap().status, 400);
    assert!(origin.requests().is_empty());
}
