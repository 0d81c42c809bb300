//! Requests of filters' own.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use postrider_filter_api::{Action, CallFailure};
use postrider_testkit::{Origin, RawClient, net::refusing_address};

use crate::scripted::*;

const ASK: &[u8] = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n";

/// What became of a call, in words.
type Heard = Arc<Mutex<Vec<String>>>;

/// A filter that calls `cluster` for each request, and where it notes the outcome.
fn caller(cluster: &'static str, timeout: Option<Duration>) -> (Script, Heard) {
    let heard = Heard::default();
    let notes = heard.clone();
    let script = Script::new(&[RequestHead], move |at, state, stream, _| {
        if at == RequestResumed {
            return Action::Continue;
        }
        let outcome = notes.clone();
        let asked = call(state, stream, cluster, timeout, move |heard| {
            outcome.lock().unwrap().push(match heard {
                Ok(answer) => format!("{} {}", answer.head.status(), String::from_utf8_lossy(&answer.body)),
                Err(CallFailure::Timeout) => "timeout".into(),
                Err(CallFailure::Upstream) => "upstream".into(),
                Err(CallFailure::Malformed) => "malformed".into(),
            });
        });
        match asked {
            Ok(()) => Action::Pause,
            Err(_) => {
                notes.lock().unwrap().push("unknown".into());
                Action::Continue
            }
        }
    });
    (script, heard)
}

fn heard(aside: &Origin, cluster: &'static str, timeout: Option<Duration>) -> Vec<String> {
    let (script, heard) = caller(cluster, timeout);
    let origin = fine();
    let running = run(origin.address, aside.address, &[&script]);
    let mut client = RawClient::connect(running.address);
    for _ in 0..2 {
        assert_eq!(client.exchange(ASK).status, 200);
    }
    drop(running);
    let heard = heard.lock().unwrap();
    heard.clone()
}

#[test]
fn a_call_brings_the_answer_however_it_is_framed() {
    for answer in [
        "HTTP/1.1 201 Created\r\ncontent-length: 4\r\n\r\nbody",
        "HTTP/1.1 201 Created\r\ntransfer-encoding: chunked\r\n\r\n2\r\nbo\r\n2\r\ndy\r\n0\r\n\r\n",
        "HTTP/1.1 201 Created\r\n\r\nbody",
        "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 201 Created\r\ncontent-length: 4\r\n\r\nbody",
    ] {
        let aside = Origin::fixed(answer);
        assert_eq!(heard(&aside, "aside", None), ["201 body", "201 body"]);
        assert_eq!(aside.requests()[0].target, "/aside");
        assert!(aside.malformed().is_empty());
        // A connection in sync carries the second call too.
        assert_eq!(aside.connection_count(), if answer.contains("-") { 1 } else { 2 });
    }
}

#[test]
fn a_call_that_fails_says_how() {
    let silent = Origin::silent();
    assert_eq!(heard(&silent, "aside", Some(Duration::from_millis(30))), ["timeout", "timeout"]);
    silent.wait_open_at_most(0);
    assert_eq!(heard(&silent, "nowhere", None), ["unknown", "unknown"]);
    let big = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{}", (1 << 20) + 1, "x".repeat((1 << 20) + 1));
    assert_eq!(heard(&Origin::fixed(big), "aside", None), ["upstream", "upstream"]);
    assert_eq!(heard(&Origin::fixed("nonsense\r\n\r\n"), "aside", None), ["malformed", "malformed"]);
}

#[test]
fn a_call_to_a_host_that_refuses_fails() {
    let (script, heard) = caller("aside", None);
    let origin = fine();
    let running = run(origin.address, refusing_address(), &[&script]);
    assert_eq!(RawClient::connect(running.address).exchange(ASK).status, 200);
    assert_eq!(*heard.lock().unwrap(), ["upstream"]);
}

#[test]
fn a_pooled_connection_that_went_stale_is_replaced() {
    let aside = Origin::start(|connection| {
        // Takes a second request and closes without a word, as a peer does whose patience ran out meanwhile.
        connection.request();
        connection.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
        connection.request_head();
    });
    assert_eq!(heard(&aside, "aside", None), ["200 ok", "200 ok"]);
    assert_eq!(aside.connection_count(), 2);
}
