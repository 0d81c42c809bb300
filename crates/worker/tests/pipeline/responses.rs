//! An upstream's response on its way back.

use std::time::Duration;

use postrider_filter_api::Action;
use postrider_testkit::{Origin, RawClient, wait_until};

use crate::scripted::*;

const ASK: &[u8] = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n";
const SIZED: &str = "HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nabcdef";
const CHUNKED: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n4\r\ncdef\r\n0\r\n\r\n";
const TRAILED: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n6\r\nabcdef\r\n0\r\nx-sum: 1\r\n\r\n";
const CLOSED: &str = "HTTP/1.1 200 OK\r\n\r\nabcdef";

/// Answers in two parts, cut at `cut`, and closes where the answer says so.
fn cut_at(answer: &'static str, cut: usize) -> Origin {
    Origin::start(move |connection| {
        while connection.request().is_some() {
            let (first, rest) = answer.as_bytes().split_at(cut);
            connection.write(first);
            std::thread::yield_now();
            connection.write(rest);
            if answer == CLOSED {
                return;
            }
        }
    })
}

#[test]
fn a_response_pauses_and_goes_on_at_each_hook() {
    for paused in [ResponseHead, ResponseBody, ResponseTrailers] {
        let (origin, aside) = (Origin::fixed(TRAILED), fine());
        let script = Script::new(RESPONSE, move |at, state, stream, _| match at {
            ResponseResumed => {
                let _ = stream.response.fields.append_name(b"x-resumed", b"yes");
                Action::Continue
            }
            at if at == paused => pause(state, stream),
            _ => Action::Continue,
        });
        let running = run(origin.address, aside.address, &[&script]);
        let mut client = RawClient::connect(running.address);
        for _ in 0..2 {
            let response = client.exchange(ASK);
            assert_eq!((response.status, response.text()), (200, "abcdef"));
            assert_eq!(response.trailers.value("x-sum"), Some("1"));
            assert_eq!(response.headers.contains("x-resumed"), paused == ResponseHead);
        }
        assert_eq!((origin.connection_count(), aside.requests().len()), (1, 2));
    }
}

#[test]
fn a_filter_that_buffers_has_the_whole_body_however_it_was_cut() {
    for answer in [SIZED, CHUNKED, TRAILED, CLOSED] {
        for cut in 1..answer.len() {
            let (origin, aside) = (cut_at(answer, cut), fine());
            let script = Script::new(RESPONSE, |at, _, _, end| match at {
                ResponseTrailers => Action::Continue,
                _ if end => Action::Continue,
                _ => Action::Buffer,
            });
            let running = run(origin.address, aside.address, &[&script]);
            let mut client = RawClient::connect(running.address);
            for _ in 0..2 {
                let response = client.exchange(ASK);
                assert_eq!((response.status, response.text()), (200, "abcdef"), "{cut}");
                assert_eq!(response.headers.contains("content-length"), [SIZED, CLOSED].contains(&answer));
                assert_eq!(response.trailers.contains("x-sum"), answer == TRAILED);
            }
            let want = if answer == TRAILED { "ResponseTrailers abcdef" } else { "ResponseBody abcdef end" };
            assert_eq!(script.calls().last().unwrap(), want, "{cut}");
        }
    }
}

#[test]
fn a_replaced_body_leaves_with_its_own_length() {
    for (with, length) in [("xy", "2"), ("a longer one than before", "24"), ("", "0")] {
        for answer in [SIZED, CHUNKED, CLOSED] {
            let (origin, aside) = (cut_at(answer, answer.len() - 3), fine());
            let script = Script::new(RESPONSE, move |at, _, stream, end| match at {
                ResponseBody if end => {
                    stream.response_body.replace(with.as_bytes());
                    Action::Continue
                }
                _ => Action::Buffer,
            });
            let running = run(origin.address, aside.address, &[&script]);
            let mut client = RawClient::connect(running.address);
            for _ in 0..2 {
                let response = client.exchange(ASK);
                assert_eq!((response.text(), response.header("content-length")), (with, length));
            }
        }
    }
}

#[test]
fn a_filter_may_give_an_empty_response_a_body() {
    let (origin, aside) = (Origin::fixed("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"), fine());
    let script = Script::new(&[ResponseHead], |_, _, stream, end| {
        assert!(end);
        stream.response_body.replace(b"given");
        Action::Continue
    });
    let running = run(origin.address, aside.address, &[&script]);
    let mut client = RawClient::connect(running.address);
    for _ in 0..2 {
        assert_eq!(client.exchange(ASK).text(), "given");
    }
    assert_eq!(client.exchange(b"HEAD / HTTP/1.1\r\nhost: x\r\n\r\n").status, 200);
    assert_eq!(client.exchange(ASK).text(), "given");
}

#[test]
fn filters_that_are_done_leave_the_body_as_it_was() {
    for (answer, framing) in [(SIZED, "content-length"), (CHUNKED, "transfer-encoding")] {
        let (origin, aside) = (Origin::fixed(answer), fine());
        let script = Script::new(RESPONSE, |_, _, _, _| Action::Done);
        let running = run(origin.address, aside.address, &[&script]);
        let response = RawClient::connect(running.address).exchange(ASK);
        assert_eq!(response.text(), "abcdef");
        assert!(response.headers.contains(framing));
        assert_eq!(script.calls(), ["ResponseHead"]);
    }
}

#[test]
fn filters_see_streamed_pieces_in_reverse_order() {
    for answer in [SIZED, CHUNKED, CLOSED] {
        let (origin, aside) = (Origin::fixed(answer), fine());
        let scripts = ["1", "2"].map(|mark| {
            Script::new(&[ResponseBody], move |_, _, stream, end| {
                if end {
                    let piece = [stream.response_body.bytes(), mark.as_bytes()].concat();
                    stream.response_body.replace(&piece);
                }
                Action::Continue
            })
        });
        let running = run(origin.address, aside.address, &[&scripts[0], &scripts[1]]);
        let response = RawClient::connect(running.address).exchange(ASK);
        assert_eq!(response.text(), "abcdef21");
        assert_eq!(response.header("transfer-encoding"), "chunked");
    }
}

#[test]
fn two_filters_that_buffer_see_each_others_work() {
    let (origin, aside) = (Origin::fixed(CHUNKED), fine());
    let scripts = ["1", "2"].map(|mark| {
        Script::new(RESPONSE, move |at, state, stream, end| match at {
            ResponseResumed => Action::Continue,
            ResponseBody if end => {
                let body = [stream.response_body.bytes(), mark.as_bytes()].concat();
                stream.response_body.replace(&body);
                pause(state, stream)
            }
            _ => Action::Buffer,
        })
    });
    let running = run(origin.address, aside.address, &[&scripts[0], &scripts[1]]);
    let mut client = RawClient::connect(running.address);
    for _ in 0..2 {
        let response = client.exchange(ASK);
        assert_eq!((response.text(), response.header("content-length")), ("abcdef21", "8"));
    }
    assert_eq!(scripts[0].calls()[..2], ["ResponseHead", "ResponseBody abcdef2 end"]);
}

#[test]
fn more_than_the_buffer_limit_is_a_server_error() {
    let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: 1500\r\n\r\n{}", "x".repeat(1500));
    let (origin, aside) = (Origin::fixed(answer), fine());
    let script = Script::new(&[ResponseHead, ResponseBody, Complete], |_, _, _, _| Action::Buffer);
    let mut site = site(origin.address, aside.address, &[&script]);
    site.buffer_limit = 1024;
    let running = site.run(&registry());
    let mut client = RawClient::connect(running.address);
    for _ in 0..2 {
        let response = client.exchange(ASK);
        assert_eq!((response.status, response.text()), (500, "Internal Server Error"));
    }
    assert_eq!(script.calls().last().unwrap(), "Complete 500 response_payload_too_large");
}

#[test]
fn a_filter_may_answer_in_the_responses_place() {
    for hook in [ResponseHead, ResponseBody, ResponseResumed] {
        let (origin, aside) = (Origin::fixed(SIZED), fine());
        let outer = Script::new(RESPONSE, |at, _, stream, _| {
            if at == ResponseHead {
                let _ = stream.response.fields.append_name(b"x-outer", b"yes");
            }
            Action::Continue
        });
        let inner = Script::new(RESPONSE, move |at, state, stream, end| match at {
            at if at == hook && (end || at != ResponseBody) => respond(403, "mine"),
            ResponseHead if hook == ResponseResumed => pause(state, stream),
            _ => Action::Buffer,
        });
        let running = run(origin.address, aside.address, &[&outer, &inner]);
        let mut client = RawClient::connect(running.address);
        for _ in 0..2 {
            let response = client.exchange(ASK);
            assert_eq!((response.status, response.text()), (403, "mine"));
            assert_eq!(response.header("x-outer"), "yes");
        }
        assert_eq!(outer.calls()[..2], ["ResponseHead", "ResponseBody mine end"]);
    }
}

#[test]
fn an_answer_after_the_head_was_sent_cuts_the_response_off() {
    let (origin, aside) = (Origin::fixed(SIZED), fine());
    let script = Script::new(&[ResponseBody, Complete], |_, _, _, _| respond(403, "late"));
    let running = run(origin.address, aside.address, &[&script]);
    let mut client = RawClient::connect(running.address);
    client.send(ASK);
    assert!(client.response("GET").is_err());
    wait_until("the end", || script.calls().len() == 2);
}

#[test]
fn responses_without_a_body_show_none() {
    for (ask, answer) in [
        ("HEAD", "HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\n"),
        ("GET", "HTTP/1.1 204 No Content\r\n\r\n"),
        ("GET", "HTTP/1.1 304 Not Modified\r\ncontent-length: 6\r\n\r\n"),
    ] {
        let origin = Origin::start(move |connection| {
            while connection.request_head().is_some() {
                connection.write(answer.as_bytes());
            }
        });
        let aside = fine();
        let script = Script::new(RESPONSE, |_, _, _, _| Action::Buffer);
        let running = run(origin.address, aside.address, &[&script]);
        let mut client = RawClient::connect(running.address);
        for _ in 0..2 {
            let response = client.exchange(format!("{ask} / HTTP/1.1\r\nhost: x\r\n\r\n"));
            assert_eq!(response.headers.contains("content-length"), answer.contains("length"));
        }
        assert_eq!(script.calls(), ["ResponseHead end", "ResponseHead end"]);
    }
}

#[test]
fn deadlines_act_while_a_response_is_paused() {
    let (origin, silent) = (Origin::fixed(SIZED), Origin::silent());
    let script = Script::new(RESPONSE, |at, state, stream, _| match at {
        ResponseHead => pause(state, stream),
        _ => Action::Continue,
    });
    let mut site = site(origin.address, silent.address, &[&script]);
    site.http.timeouts.max_stream_duration = Some(Duration::from_millis(50));
    let running = site.run(&registry());
    let response = RawClient::connect(running.address).exchange(ASK);
    assert_eq!((response.status, response.text()), (504, "downstream duration timeout"));
    silent.wait_open_at_most(0);
}

#[test]
fn an_upstream_that_breaks_under_a_buffering_filter_is_told_to_the_client() {
    for (part, status) in [
        ("HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nab", 502),
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", 502),
    ] {
        let origin = Origin::start(move |connection| {
            connection.request();
            connection.write(part.as_bytes());
        });
        let aside = fine();
        let script = Script::new(RESPONSE, |_, _, _, _| Action::Buffer);
        let running = run(origin.address, aside.address, &[&script]);
        let mut client = RawClient::connect(running.address);
        assert_eq!(client.exchange(ASK).status, status);
        assert_eq!(client.exchange(ASK).status, status);
    }
}

#[test]
fn a_filter_may_change_the_status() {
    let (origin, aside) = (Origin::fixed(SIZED), fine());
    let script = Script::new(&[ResponseHead, Complete], |at, _, stream, _| {
        if at == ResponseHead {
            stream.response.set_status(203);
        }
        Action::Continue
    });
    let running = run(origin.address, aside.address, &[&script]);
    let mut client = RawClient::connect(running.address);
    assert_eq!(client.exchange(ASK).status, 203);
    assert_eq!(client.exchange(ASK).status, 203);
    assert_eq!(script.calls()[1], "Complete 203 via_upstream");
}
