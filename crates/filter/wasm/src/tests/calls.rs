//! Calls of modules, ticks, and streams that somebody else lets go on.

use std::time::Duration;

use postrider_filter_api::{Answer, CallFailure, GrpcStatus};
use postrider_http::ResponseHead;

use super::*;

pub(super) const HEAD: &str = r#"$"\03\00\00\00\05\00\00\00\02\00\00\00\07\00\00\00\03\00\00\00\0a\00\00\00\01\00\00\00:path\00/c\00:method\00GET\00:authority\00a\00""#;

fn shared(vm_id: &str, key: &str) -> Option<String> {
    let mut out = Vec::new();
    let found = crate::shared::Space::of(vm_id).get(key.as_bytes(), &mut out).ok();
    found.map(|_| String::from_utf8_lossy(&out).into_owned())
}

#[test]
fn a_call_has_head_body_and_timeout_and_is_refused_without_them() {
    let mut trial = Trial::new(&module(&format!(
        r#"(func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
            (call $note $"bare" (call $http_call $"service" $"" $"" $"" (i32.const 5) (i32.const 32)))
            (call $note $"made" (call $http_call $"service" {HEAD} $"body" $"" (i32.const 250) (i32.const 32)))
            (i32.const 0))"#
    )));
    trial.head(true);
    assert_eq!((trial.noted("bare").as_deref(), trial.noted("made").as_deref()), (Some("2"), Some("0")));
    let calls = trial.host.calls.borrow();
    let call = &calls[0];
    assert_eq!((&*call.cluster, call.head.path(), &call.body[..]), ("service", &b"/c"[..], &b"body"[..]));
    assert_eq!(
        (call.timeout, call.head.fields.get_name(b"content-length")),
        (Some(Duration::from_millis(250)), Some(&b"4"[..]))
    );
}

#[test]
fn a_call_without_an_answer_is_told_the_proxys_own() {
    let vm_id = "failed-call";
    let module = module(&format!(
        r#"(func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
            (drop (call $http_call $"service" {HEAD} $"" $"" (i32.const 250) (i32.const 32)))
            (i32.const 0))
        (func (export "proxy_on_http_call_response") (param i32 i32 i32 i32 i32)
            (drop (call $get (i32.const 6) $":status" (i32.const 16) (i32.const 20)))
            (drop (call $set_shared $"status" (call $place) (call $length) (i32.const 0)))
            (drop (call $get_buffer (i32.const 4) (i32.const 0) (i32.const 99) (i32.const 16) (i32.const 20)))
            (drop (call $set_shared $"body" (call $place) (call $length) (i32.const 0))))"#
    ));
    let mut trial = Trial::with(vm_id, &module, &[]);
    for (failure, status) in
        [(CallFailure::Timeout, "504"), (CallFailure::Malformed, "502"), (CallFailure::Upstream, "503")]
    {
        trial.head(true);
        trial.restart();
        // The stream is over: the call belongs to the plugin.
        assert!(trial.host.answer(Err(failure)));
        assert_eq!(shared(vm_id, "status").as_deref(), Some(status));
    }
    assert!(shared(vm_id, "body").unwrap().starts_with("upstream connect error"));
}

#[test]
fn ticks_come_until_they_are_stopped_and_let_streams_go_on() {
    let module = module(
        r#"(global $waits (mut i32) (i32.const 0))
        (func (export "proxy_on_configure") (param i32 i32) (result i32)
            (drop (call $tick_period (i32.const 20))) (i32.const 1))
        (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
            (global.set $waits (local.get 0)) (i32.const 1))
        (func (export "proxy_on_tick") (param i32)
            (if (global.get $waits) (then
                (drop (call $effective (global.get $waits)))
                (drop (call $add (i32.const 0) $"x-ticked" $"yes"))
                (drop (call $continue (i32.const 0)))
                (drop (call $tick_period (i32.const 0))))))"#,
    );
    let mut trial = Trial::new(&module);
    let ring = |trial: &Trial| {
        let timers: Vec<_> = trial.host.timers.borrow_mut().drain(..).collect();
        let times: Vec<Duration> = timers.iter().map(|(time, _)| *time).collect();
        timers.into_iter().for_each(|(_, wake)| wake());
        times
    };
    assert_eq!(ring(&trial), [Duration::from_millis(20)]);
    assert!(matches!(trial.head(true), Action::Pause));
    assert_eq!(ring(&trial), [Duration::from_millis(20)]);
    assert!(matches!(trial.resumed(), Action::Continue));
    assert_eq!(trial.header("x-ticked").as_deref(), Some("yes"), "it was changed when it went on");
    assert_eq!(ring(&trial), [], "the module wants no more");
}

#[test]
fn a_stream_that_waits_is_answered_from_elsewhere() {
    let module = module(
        r#"(global $waits (mut i32) (i32.const 0))
        (func (export "proxy_on_configure") (param i32 i32) (result i32)
            (drop (call $tick_period (i32.const 20))) (i32.const 1))
        (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
            (global.set $waits (local.get 0)) (i32.const 1))
        (func (export "proxy_on_tick") (param i32)
            (drop (call $effective (global.get $waits)))
            (drop (call $respond (i32.const 429) $"" $"later" $"" (i32.const 8))))"#,
    );
    let mut trial = Trial::new(&module);
    trial.head(true);
    let timers: Vec<_> = trial.host.timers.borrow_mut().drain(..).collect();
    timers.into_iter().for_each(|(_, wake)| wake());
    let Action::Respond(reply) = trial.resumed() else { panic!("no answer") };
    assert_eq!((reply.status, &*reply.body), (429, &b"later"[..]));
    assert_eq!(reply.grpc_status, postrider_http::grpc::Code::from_number(8));
}

/// `GrpcService { envoy_grpc { cluster_name: "grpc" } }`
const SERVICE: &str = r#"$"\0a\06\0a\04grpc""#;

#[test]
fn a_grpc_call_brings_a_message_or_a_status() {
    let vm_id = "grpc-call";
    let module = module(&format!(
        r#"(func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
            (call $note $"parse" (call $grpc_call $"\ff" $"p.S" $"M" $"" $"" (i32.const 0) (i32.const 32)))
            (call $note $"none" (call $grpc_call $"" $"p.S" $"M" $"" $"" (i32.const 0) (i32.const 32)))
            (drop (call $grpc_call {SERVICE} $"p.S" $"M" $"\01\00\00\00\01\00\00\00\01\00\00\00k\00v\00" $"hi"
                (i32.const 99) (i32.const 32)))
            (call $note $"odd" (i32.and (i32.load (i32.const 32)) (i32.const 1)))
            (i32.const 0))
        (func (export "proxy_on_grpc_receive") (param i32 i32 i32)
            (drop (call $get_buffer (i32.const 5) (i32.const 0) (i32.const 99) (i32.const 16) (i32.const 20)))
            (drop (call $set_shared $"message" (call $place) (call $length) (i32.const 0))))
        (func (export "proxy_on_grpc_close") (param i32 i32 i32)
            (drop (call $get_status (i32.const 24) (i32.const 16) (i32.const 20)))
            (drop (call $set_shared $"status" (call $place) (call $length) (i32.const 0))))"#
    ));
    let mut trial = Trial::with(vm_id, &module, &[]);
    trial.head(true);
    let noted = ["parse", "none", "odd"].map(|name| trial.noted(name).unwrap());
    assert_eq!(noted, ["4", ":", "1"], "`:` is 10");
    {
        let calls = trial.host.grpc_calls.borrow();
        assert_eq!(
            (&*calls[0].cluster, calls[0].head.path(), &calls[0].message[..]),
            ("grpc", &b"/p.S/M"[..], &b"hi"[..])
        );
        assert_eq!(calls[0].head.fields.get_name(b"k"), Some(&b"v"[..]));
    }
    assert!(trial.host.answer_grpc(Ok(b"there".to_vec())));
    assert_eq!(shared(vm_id, "message").as_deref(), Some("there"));
    trial.restart();
    trial.head(true);
    let status = GrpcStatus { code: 7, message: "no".into(), is_heard: true };
    assert!(trial.host.answer_grpc(Err(status)));
    assert_eq!(shared(vm_id, "status").as_deref(), Some("no"));
}

#[test]
fn a_conversation_goes_both_ways_until_it_ends() {
    let vm_id = "grpc-stream";
    let module = module(&format!(
        r#"(func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
            (drop (call $grpc_stream {SERVICE} $"p.S" $"M" $"" (i32.const 32)))
            (call $note $"odd" (i32.and (i32.load (i32.const 32)) (i32.const 1)))
            (call $note $"send" (call $grpc_send (i32.load (i32.const 32)) $"one" (i32.const 0)))
            (call $note $"wrong" (call $grpc_send (i32.const 98) $"x" (i32.const 0)))
            (call $note $"call" (call $grpc_send (i32.const 99) $"x" (i32.const 0)))
            (call $note $"close" (call $grpc_close (i32.load (i32.const 32))))
            (i32.const 0))
        (func (export "proxy_on_grpc_receive") (param i32 i32 i32)
            (drop (call $get_buffer (i32.const 5) (i32.const 0) (i32.const 99) (i32.const 16) (i32.const 20)))
            (drop (call $set_shared $"message" (call $place) (call $length) (i32.const 0))))
        (func (export "proxy_on_grpc_close") (param i32 i32 i32)
            (i32.store8 (i32.const 0) (i32.add (local.get 2) (i32.const 48)))
            (drop (call $set_shared $"status" (i32.const 0) (i32.const 1) (i32.const 0)))
            (drop (call $grpc_cancel (local.get 1))))"#
    ));
    let mut trial = Trial::with(vm_id, &module, &[]);
    trial.head(true);
    let noted = ["odd", "send", "wrong", "call", "close"].map(|name| trial.noted(name).unwrap());
    assert_eq!(noted, ["0", "0", "1", "2", "0"]);
    let pipe = trial.host.conversations.borrow()[0].1.clone();
    let cx = std::task::Context::from_waker(std::task::Waker::noop());
    assert_eq!(pipe.poll_outgoing(&cx), std::task::Poll::Ready(Some(b"one".to_vec())));
    pipe.deliver(b"two".to_vec());
    pipe.end(GrpcStatus::default());
    assert_eq!(shared(vm_id, "message").as_deref(), Some("two"));
    assert_eq!(shared(vm_id, "status").as_deref(), Some("0"));
}

#[test]
fn giving_up_a_grpc_call_gives_up_no_http_call() {
    let module = module(&format!(
        r#"(func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
            (drop (call $http_call $"service" {HEAD} $"" $"" (i32.const 0) (i32.const 32)))
            (drop (call $grpc_call {SERVICE} $"p.S" $"M" $"" $"" (i32.const 0) (i32.const 36)))
            (drop (call $grpc_stream {SERVICE} $"p.S" $"M" $"" (i32.const 40)))
            (call $note $"other" (i32.ne (i32.load (i32.const 32)) (i32.load (i32.const 36))))
            (call $note $"kinds" (i32.or
                (i32.and (i32.load (i32.const 32)) (i32.const 3))
                (i32.shl (i32.and (i32.load (i32.const 36)) (i32.const 3)) (i32.const 1))))
            (call $note $"http" (call $grpc_cancel (i32.load (i32.const 32))))
            (call $note $"close" (call $grpc_close (i32.load (i32.const 32))))
            (call $note $"send" (call $grpc_send (i32.load (i32.const 36)) $"x" (i32.const 0)))
            (call $note $"unary" (call $grpc_cancel (i32.load (i32.const 36))))
            (call $note $"gone" (call $grpc_close (i32.load (i32.const 36))))
            (call $note $"talk" (call $grpc_cancel (i32.load (i32.const 40))))
            (i32.const 0))"#
    ));
    let mut trial = Trial::new(&module);
    trial.head(true);
    let names = ["other", "kinds", "http", "close", "send", "unary", "gone", "talk"];
    assert_eq!(names.map(|name| trial.noted(name).unwrap()), ["1", "2", "2", "2", "2", "0", "1", "0"]);
}

#[test]
fn what_calls_and_conversations_hold_is_bounded() {
    // Pieces of 192 KiB, until one is refused.
    let until = |call: &str| {
        format!(
            r#"(local.set 1 (i32.const 0))
            (loop $more
                (local.set 1 (i32.add (local.get 1) (i32.const 1)))
                (br_if $more (i32.and (i32.eqz {call}) (i32.lt_u (local.get 1) (i32.const 2000)))))"#
        )
    };
    let module = module(&format!(
        r#"(func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
            (drop (call $grpc_stream {SERVICE} $"p.S" $"M" $"" (i32.const 32)))
            {}
            ;; 16 MiB and what the queue takes.
            (call $note $"said" (i32.and (i32.gt_u (local.get 1) (i32.const 80)) (i32.lt_u (local.get 1) (i32.const 400))))
            {}
            (call $note $"called" (i32.and (i32.gt_u (local.get 1) (i32.const 300)) (i32.lt_u (local.get 1) (i32.const 350))))
            (call $note $"empty" (call $http_call $"service" {HEAD} $"" $"" (i32.const 0) (i32.const 36)))
            (i32.const 0))"#,
        until("(call $grpc_send (i32.load (i32.const 32)) (i32.const 0) (i32.const 196608) (i32.const 0))"),
        until(&format!(
            r#"(call $http_call $"service" {HEAD} (i32.const 0) (i32.const 196608) $"" (i32.const 0) (i32.const 36))"#
        )),
    ));
    let mut trial = Trial::new(&module);
    trial.head(true);
    assert_eq!(["said", "called", "empty"].map(|name| trial.noted(name).unwrap()), ["1", "1", "0"]);
}

/// As observed on Envoy 1.40: the context stays until `proxy_done`, but the machine does not stay for its sake.
#[test]
fn a_plugin_takes_its_time_to_go_while_others_are_in_its_machine() {
    let vm_id = "takes-time";
    let module = module(
        r#"(func (export "proxy_on_configure") (param i32 i32) (result i32)
            (drop (call $tick_period (i32.const 5))) (i32.const 1))
        (func (export "proxy_on_done") (param i32) (result i32)
            (drop (call $set_shared $"asked" $"yes" (i32.const 0)))
            (i32.const 0))
        (func (export "proxy_on_tick") (param i32)
            (if (call $done)
                (then (drop (call $set_shared $"refused" $"yes" (i32.const 0))))
                (else (drop (call $set_shared $"accepted" $"yes" (i32.const 0))))))
        (func (export "proxy_on_delete") (param i32)
            (drop (call $set_shared $"deleted" $"yes" (i32.const 0))))"#,
    );
    let _data = crate::shared::Space::of(vm_id);
    let ring = |host: &FakeHost| {
        let timers: Vec<_> = host.timers.borrow_mut().drain(..).collect();
        timers.into_iter().for_each(|(_, wake)| wake());
    };
    let seen = || ["asked", "refused", "accepted", "deleted"].map(|key| shared(vm_id, key).is_some());
    let stays = Trial::with(vm_id, &module, &[]);
    let goes = Trial::with(vm_id, &module, &[]);
    ring(&stays.host);
    assert_eq!(seen(), [false, true, false, false], "nobody is leaving");
    drop(goes);
    assert_eq!(seen(), [true, true, false, false]);
    ring(&stays.host);
    assert_eq!(seen(), [true, true, true, false], "it has its ticks");
    ring(&stays.host);
    assert_eq!(seen(), [true, true, true, true]);

    let vm_id = "takes-time-alone";
    let _data = crate::shared::Space::of(vm_id);
    let alone = Trial::with(vm_id, &module, &[]);
    let its_host = alone.host.clone();
    drop(alone);
    ring(&its_host);
    let seen = ["asked", "accepted", "deleted"].map(|key| shared(vm_id, key).is_some());
    assert_eq!(seen, [true, false, false], "its machine is gone");
}

#[test]
fn what_a_plugin_may_not_call_it_does_not() {
    let module = module(&format!(
        r#"(func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
            (call $note $"other" (call $http_call $"other" {HEAD} $"" $"" (i32.const 0) (i32.const 32)))
            (call $note $"service" (call $http_call $"service" {HEAD} $"" $"" (i32.const 0) (i32.const 32)))
            (i32.const 0))"#
    ));
    let manifest = map([
        ("name", text("p")),
        ("runtime", text("wasm")),
        ("code", code(&module)),
        ("clusters", Value::List(vec![text("service")])),
    ]);
    let mut trial = Trial::of(build(postrider_filter_plugin::KIND, &manifest).unwrap(), None);
    trial.head(true);
    assert_eq!((trial.noted("other").as_deref(), trial.noted("service").as_deref()), (Some("2"), Some("0")));
    assert!(trial.host.answer(Ok(Answer {
        head: ResponseHead::new(),
        body: Vec::new(),
        trailers: Default::default()
    })));
}
