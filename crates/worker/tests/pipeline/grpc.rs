//! gRPC calls of filters' own.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use postrider_filter_api::{Action, GrpcCall, GrpcOpen, GrpcService, GrpcStream, State, Stream};
use postrider_model::{UpstreamProtocol, Value};
use postrider_testkit::grpc::Step;
use postrider_testkit::{GrpcOrigin, Origin, RawClient, net::refusing_address};

use crate::common::{Running, cluster};
use crate::scripted::*;

const ASK: &[u8] = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n";

/// What became of a call, in words.
type Heard = Arc<Mutex<Vec<String>>>;

fn service() -> GrpcService {
    let text = |text: &str| Value::String(text.into());
    let grpc = Value::Map(vec![("cluster_name".into(), text("aside")), ("authority".into(), text("svc.test"))]);
    GrpcService::read(Value::Map(vec![("envoy_grpc".into(), grpc)]).fields().unwrap()).unwrap()
}

fn unary(state: &mut State, stream: &Stream<'_>, timeout: Option<Duration>, note: Heard) -> Action {
    let (service, resumer) = (service(), stream.resumer.clone());
    let call = GrpcCall {
        cluster: service.cluster.clone(),
        head: service.head("/test.Service/Ask", timeout, stream),
        message: b"question".to_vec(),
        timeout,
        max_answer: 1000,
        trace: None,
        retries: None,
        done: Box::new(move |outcome| {
            note.lock().unwrap().push(match outcome {
                Ok(answer) => String::from_utf8(answer).unwrap(),
                Err(status) => format!("{} {}", status.code, status.message),
            });
            resumer.resume();
        }),
    };
    let kept: Box<dyn Any> = Box::new(stream.host.grpc(call).unwrap());
    *state = State::Any(kept);
    Action::Pause
}

fn run_with(address: std::net::SocketAddr, script: &Script, requests: Option<u32>) -> (Running, Origin) {
    let origin = fine();
    let mut site = site(origin.address, address, &[script]);
    let mut aside = cluster("aside", address);
    aside.upstream.protocol = UpstreamProtocol::Http2;
    if let Some(most) = requests {
        aside.thresholds.max_requests = most;
    }
    site.clusters[1] = aside;
    (site.run(&registry()), origin)
}

fn asking(timeout: Option<Duration>) -> (Script, Heard) {
    let heard = Heard::default();
    let notes = heard.clone();
    let script = Script::new(&[RequestHead], move |at, state, stream, _| match at {
        RequestHead => unary(state, stream, timeout, notes.clone()),
        _ => Action::Continue,
    });
    (script, heard)
}

fn heard(service: &GrpcOrigin, timeout: Option<Duration>) -> Vec<String> {
    let (script, heard) = asking(timeout);
    let (running, _origin) = run_with(service.address, &script, None);
    let mut client = RawClient::connect(running.address);
    for _ in 0..2 {
        assert_eq!(client.exchange(ASK).status, 200);
    }
    drop(running);
    let heard = heard.lock().unwrap();
    heard.clone()
}

#[test]
fn a_call_brings_its_answer_over_one_connection() {
    let service = GrpcOrigin::fixed(b"answer".to_vec());
    assert_eq!(heard(&service, Some(Duration::from_secs(60))), ["answer", "answer"]);
    let calls = service.calls();
    assert_eq!((calls.len(), service.connections()), (2, 1));
    assert_eq!((&*calls[0].path, &*calls[0].authority), ("/test.Service/Ask", "svc.test"));
    assert_eq!(calls[0].messages, [b"question"]);
    assert!(calls[0].ended && !calls[0].abandoned);
    for (name, value) in [("te", "trailers"), ("content-type", "application/grpc"), ("grpc-timeout", "60000m")] {
        assert_eq!(calls[0].headers.value(name), Some(value), "{name}");
    }
}

#[test]
fn a_call_that_fails_says_how() {
    for (steps, outcome) in [
        (vec![Step::End(7, "not you")], "7 not you"),
        (vec![Step::Send(b"x".to_vec()), Step::End(8, "")], "8 "),
        (vec![Step::End(0, "")], "13 the answer has no message"),
        (vec![Step::End(99, "odd")], "4294967295 odd"),
        (vec![Step::Send(vec![0; 1001])], "8 the answer is longer than may be"),
        (vec![Step::Raw(vec![1, 0, 0, 0, 0])], "13 the answer is compressed"),
        (vec![Step::Raw(vec![0, 0, 0, 0, 9, 1]), Step::End(0, "")], "13 the answer breaks off"),
        (vec![Step::Http(404)], "12 the answer is HTTP 404"),
        (vec![Step::Http(503)], "14 the answer is HTTP 503"),
        (vec![Step::Reset], "14 the service gave the call up"),
    ] {
        let told = steps.clone();
        let service = GrpcOrigin::start(move |_| steps.clone());
        assert_eq!(heard(&service, None), [outcome, outcome], "{told:?}");
    }
}

#[test]
fn of_several_answers_to_a_call_the_last_one_counts() {
    let steps = vec![Step::Send(b"a".to_vec()), Step::Send(b"b".to_vec()), Step::End(0, "")];
    assert_eq!(heard(&GrpcOrigin::start(move |_| steps.clone()), None), ["b", "b"]);
}

#[test]
fn a_call_whose_answer_has_begun_breaks_off_at_its_timeout() {
    let late = "13 the time for the call is over";
    let service = GrpcOrigin::start(|_| vec![Step::Send(b"a".to_vec())]);
    assert_eq!(heard(&service, Some(Duration::from_millis(300))), [late, late]);
}

#[test]
fn a_call_without_an_answer_ends_at_its_timeout_and_is_given_up() {
    let service = GrpcOrigin::silent();
    let late = "14 the time for the call is over";
    assert_eq!(heard(&service, Some(Duration::from_millis(30))), [late, late]);
    service.wait_abandoned(2);
}

#[test]
fn a_call_to_nobody_fails() {
    let (script, heard) = asking(None);
    let (running, _origin) = run_with(refusing_address(), &script, None);
    assert_eq!(RawClient::connect(running.address).exchange(ASK).status, 200);
    assert_eq!(*heard.lock().unwrap(), ["14 there is no connection"]);
}

#[test]
fn calls_keep_to_the_circuit_breaker_of_their_cluster() {
    let service = GrpcOrigin::silent();
    let (script, heard) = asking(None);
    let (running, _origin) = run_with(service.address, &script, Some(1));
    let mut first = RawClient::connect(running.address);
    first.send(ASK);
    service.wait_messages(1);
    assert_eq!(RawClient::connect(running.address).exchange(ASK).status, 200);
    assert_eq!(*heard.lock().unwrap(), ["14 the circuit breaker for requests is open"]);
}

#[test]
fn a_call_ends_with_the_stream_that_made_it() {
    let service = GrpcOrigin::silent();
    let (script, heard) = asking(None);
    let (running, _origin) = run_with(service.address, &script, None);
    let mut client = RawClient::connect(running.address);
    client.send(ASK);
    service.wait_messages(1);
    client.reset();
    service.wait_abandoned(1);
    assert!(heard.lock().unwrap().is_empty());
}

/// A conversation, and how many messages of it were sent and received.
struct Talk {
    stream: GrpcStream,
    sent: usize,
    received: usize,
    wanted: usize,
}

impl Talk {
    /// Sends and receives as far as that goes; `true` at the end.
    fn go_on(&mut self, size: usize, pause_at: usize) -> bool {
        while self.sent < self.wanted && self.stream.send(vec![b'x'; size]) {
            self.sent += 1;
            if self.sent == self.wanted {
                self.stream.finish();
            }
        }
        while self.received < pause_at && self.stream.receive().is_some() {
            self.received += 1;
        }
        self.stream.status().is_some()
    }
}

/// Begins a conversation that wakes the stream whenever there is something.
fn converse(stream: &Stream<'_>) -> GrpcStream {
    let (service, resumer) = (self::service(), stream.resumer.clone());
    let open = GrpcOpen {
        cluster: service.cluster.clone(),
        head: service.head("/test.Service/Talk", None, stream),
        timeout: None,
        max_answer: 1 << 20,
        trace: None,
        retries: None,
        wake: Box::new(move || resumer.resume()),
    };
    stream.host.converse(open).unwrap()
}

#[test]
fn a_conversation_goes_both_ways_however_long_it_is() {
    // Each message comes back as it was; the client says when it is over.
    let service = GrpcOrigin::start(|call| {
        let mut steps = vec![Step::Send(call.messages.last().cloned().unwrap_or_default())];
        if call.messages.len() == 64 {
            steps.push(Step::End(0, ""));
        }
        steps
    });
    let heard = Heard::default();
    let notes = heard.clone();
    let script = Script::new(&[RequestHead], move |at, state, stream, _| {
        if at == RequestHead {
            let talk = Talk { stream: converse(stream), sent: 0, received: 0, wanted: 64 };
            let kept: Box<dyn Any> = Box::new(RefCell::new(talk));
            *state = State::Any(kept);
        }
        let State::Any(kept) = state else { panic!("no state") };
        let talk = kept.downcast_mut::<RefCell<Talk>>().unwrap().get_mut();
        if !talk.go_on(32 * 1024, usize::MAX) {
            return Action::Pause;
        }
        notes.lock().unwrap().push(format!("{} {} {:?}", talk.sent, talk.received, talk.stream.status()));
        Action::Continue
    });
    let (running, _origin) = run_with(service.address, &script, None);
    assert_eq!(RawClient::connect(running.address).exchange(ASK).status, 200);
    assert_eq!(heard.lock().unwrap()[0], "64 64 Some(GrpcStatus { code: 0, message: \"\", is_heard: true })");
    assert_eq!(service.messages().len(), 64);
}

#[test]
fn a_full_queue_is_told_to_the_filter_and_the_service_is_not_outrun() {
    // The service never reads: what it was sent waits in windows and queues of a known size.
    let refused = Arc::new(Mutex::new(0));
    let notes = refused.clone();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let script = Script::new(&[RequestHead], move |at, state, stream, _| {
        if at == RequestHead {
            let (service, resumer) = (self::service(), stream.resumer.clone());
            let woken = Rc::new(Cell::new(false));
            let open = GrpcOpen {
                cluster: service.cluster.clone(),
                head: service.head("/test.Service/Talk", None, stream),
                timeout: Some(Duration::from_millis(200)),
                max_answer: 1 << 20,
                trace: None,
                retries: None,
                wake: Box::new(move || {
                    woken.set(true);
                    resumer.resume();
                }),
            };
            let kept: Box<dyn Any> = Box::new(stream.host.converse(open).unwrap());
            *state = State::Any(kept);
        }
        let State::Any(kept) = state else { panic!("no state") };
        let talk = kept.downcast_ref::<GrpcStream>().unwrap();
        if talk.status().is_some() {
            return Action::Continue;
        }
        while talk.send(vec![0; 16 * 1024]) {
            *notes.lock().unwrap() += 1;
        }
        Action::Pause
    });
    let (running, _origin) = run_with(listener.local_addr().unwrap(), &script, None);
    assert_eq!(RawClient::connect(running.address).exchange(ASK).status, 200);
    let sent = *refused.lock().unwrap();
    assert!((16..200).contains(&sent), "{sent} messages of 16 KiB were taken");
}

#[test]
fn a_service_that_resets_the_call_behind_its_head_is_no_service_that_is_not_there() {
    let service = GrpcOrigin::start(|call| match call.messages.len() {
        1 => vec![Step::Send(b"begun".to_vec())],
        _ => vec![Step::Reset],
    });
    let heard = Heard::default();
    let notes = heard.clone();
    let script = Script::new(&[RequestHead], move |at, state, stream, _| {
        if at == RequestHead {
            let talk = converse(stream);
            talk.send(b"first".to_vec());
            let kept: Box<dyn Any> = Box::new(talk);
            *state = State::Any(kept);
        }
        let State::Any(kept) = state else { panic!("no state") };
        let talk = kept.downcast_ref::<GrpcStream>().unwrap();
        if talk.receive().is_some() {
            talk.send(b"second".to_vec());
        }
        let Some(status) = talk.status() else { return Action::Pause };
        notes.lock().unwrap().push(format!("{} {}", status.code, status.message));
        Action::Continue
    });
    let (running, _origin) = run_with(service.address, &script, None);
    assert_eq!(RawClient::connect(running.address).exchange(ASK).status, 200);
    assert_eq!(*heard.lock().unwrap(), ["13 the service gave the call up"]);
}
