//! Answers of the proxy's own on their way through the response filters.

use std::time::Duration;

use postrider_filter_api::Action;
use postrider_model::{DirectResponse, ResponseBody};
use postrider_testkit::{Origin, RawClient};

use crate::common::{Running, Site};
use crate::scripted::*;

const ASK: &[u8] = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n";

/// A site that answers everything with `own`.
fn direct(mut site: Site) -> Running {
    let body = ResponseBody::Fixed(b"own".to_vec());
    route(&mut site.http).action =
        postrider_model::Action::Respond(DirectResponse { status: 200, body, content_type: None });
    site.run(&registry())
}

#[test]
fn a_local_reply_passes_filters_that_pause_and_buffer() {
    let aside = fine();
    let outer = Script::new(RESPONSE, |at, _, stream, end| match at {
        ResponseBody if end => {
            let body = [stream.response_body.bytes(), b"+outer"].concat();
            stream.response_body.replace(&body);
            Action::Continue
        }
        _ => Action::Buffer,
    });
    let inner = Script::new(RESPONSE, |at, state, stream, _| match at {
        ResponseResumed => Action::Continue,
        _ => pause(state, stream),
    });
    let running = direct(site(aside.address, aside.address, &[&outer, &inner]));
    let mut client = RawClient::connect(running.address);
    for _ in 0..2 {
        let response = client.exchange(ASK);
        assert_eq!((response.text(), response.header("content-length")), ("own+outer", "9"));
    }
    assert_eq!(inner.calls()[..4], ["ResponseHead", "ResponseResumed", "ResponseBody own end", "ResponseResumed own"]);
    assert_eq!(outer.calls()[..2], ["ResponseHead", "ResponseBody own end"]);
    let head = client.exchange(b"HEAD / HTTP/1.1\r\nhost: x\r\n\r\n");
    assert_eq!(head.header("content-length"), "3");
    assert_eq!(outer.calls().last().unwrap(), "ResponseHead end");
}

#[test]
fn a_reply_that_takes_a_replys_place_is_not_shown_to_those_who_saw_the_first() {
    let aside = fine();
    let scripts = [0, 1, 2].map(|_| {
        Script::new(&[ResponseHead], |_, _, stream, _| match stream.response.status() {
            200 => respond(500, "first"),
            500 => respond(503, "second"),
            _ => Action::Continue,
        })
    });
    let running = direct(site(aside.address, aside.address, &[&scripts[0], &scripts[1], &scripts[2]]));
    let mut client = RawClient::connect(running.address);
    for _ in 0..2 {
        let response = client.exchange(ASK);
        assert_eq!((response.status, response.text()), (503, "second"));
    }
    assert_eq!(scripts.each_ref().map(|script| script.calls().len()), [2, 2, 2]);
}

#[test]
fn the_reply_of_a_request_filter_passes_the_response_filters() {
    let aside = fine();
    let outer = Script::new(RESPONSE, |at, _, stream, _| {
        if at == ResponseBody {
            stream.response_body.replace(b"");
        }
        Action::Continue
    });
    let inner = Script::new(&[RequestHead], |_, _, _, _| respond(401, "who"));
    let running = run(aside.address, aside.address, &[&outer, &inner]);
    let mut client = RawClient::connect(running.address);
    for _ in 0..2 {
        let response = client.exchange(ASK);
        assert_eq!((response.status, response.text(), response.header("content-length")), (401, "", "0"));
    }
}

#[test]
fn deadlines_act_while_a_reply_is_paused() {
    let silent = Origin::silent();
    let scripts = [0, 1].map(|_| Script::new(&[ResponseHead], |_, state, stream, _| pause(state, stream)));
    let mut site = site(silent.address, silent.address, &[&scripts[0], &scripts[1]]);
    site.http.timeouts.stream_idle = Some(Duration::from_millis(50));
    let running = direct(site);
    let response = RawClient::connect(running.address).exchange(ASK);
    assert_eq!((response.status, response.text()), (504, "stream timeout"));
}

#[test]
fn a_client_that_leaves_while_its_reply_is_paused_is_noticed() {
    let silent = Origin::silent();
    let script = Script::new(&[ResponseHead, Complete], |_, state, stream, _| pause(state, stream));
    let running = direct(site(silent.address, silent.address, &[&script]));
    let mut client = RawClient::connect(running.address);
    client.send(ASK);
    silent.wait_connections(1);
    client.reset();
    silent.wait_open_at_most(0);
    postrider_testkit::wait_until("the end", || {
        script.calls().last().is_some_and(|last| last == "Complete 0 downstream_remote_disconnect")
    });
}

#[test]
fn the_answer_to_a_body_that_is_still_coming_does_not_break_the_connection() {
    let aside = fine();
    let script = Script::new(&[RequestHead, ResponseHead], |at, state, stream, _| match at {
        RequestHead => respond(403, "no"),
        ResponseHead => pause(state, stream),
        _ => Action::Continue,
    });
    let running = run(aside.address, aside.address, &[&script]);
    let mut client = RawClient::connect(running.address);
    let with_body = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\n\r\nabc";
    client.send([&with_body[..], ASK].concat());
    assert_eq!(client.response("POST").unwrap().status, 403);
    assert_eq!(client.response("GET").unwrap().status, 403);
}
