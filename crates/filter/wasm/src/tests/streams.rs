//! Requests and answers on their way: what hooks come to.

use super::*;

/// A module whose callbacks answer with what request headers `x-head`, `x-body` and `x-trailers` say.
const OBEYS: &str = r#"
    (func $said (param i32 i32) (result i32)
        (if (call $get (i32.const 0) (local.get 0) (local.get 1) (i32.const 16) (i32.const 20))
            (then (return (i32.const 0))))
        (i32.sub (i32.load8_u (call $place)) (i32.const 48)))
    (global $body (mut i32) (i32.const 0))
    (global $shown (mut i32) (i32.const 0))
    (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
        (global.set $body (call $said $"x-body"))
        (call $note $"count" (local.get 1))
        (call $note $"end" (local.get 2))
        (call $said $"x-head"))
    (func (export "proxy_on_request_body") (param i32 i32 i32) (result i32)
        (call $note $"length" (local.get 1))
        (call $note $"last" (local.get 2))
        (if (local.get 2) (then (return (i32.const 0))))
        (global.get $body))"#;

fn obeys(lines: &[(&str, &str)]) -> Trial {
    let mut trial = Trial::new(&module(OBEYS));
    trial.stream = FakeStream::new("POST", "/", lines);
    trial
}

#[test]
fn a_head_is_shown_with_its_pairs_and_goes_on() {
    let mut trial = obeys(&[("a", "1")]);
    assert!(matches!(trial.head(true), Action::Continue));
    assert_eq!((trial.noted("count").as_deref(), trial.noted("end").as_deref()), (Some("5"), Some("1")));
}

#[test]
fn a_head_that_stops_pauses_everything() {
    for status in ["1", "3", "4", "5", "9"] {
        assert!(matches!(obeys(&[("x-head", status)]).head(false), Action::Pause), "{status}");
    }
    assert!(matches!(obeys(&[("x-head", "2")]).head(false), Action::Continue));
}

#[test]
fn a_body_that_is_gathered_is_shown_whole_and_one_that_is_held_is_not() {
    let mut trial = obeys(&[("x-body", "1")]);
    assert!(matches!(trial.head(false), Action::Continue), "it cannot let a stream go on: nothing is taken over");
    assert!(matches!(trial.piece("ab", false), Action::Buffer));
    assert!(matches!(trial.piece("c", true), Action::Continue));
    assert_eq!(trial.noted("length").as_deref(), Some("3"));
    let mut trial = obeys(&[("x-body", "2")]);
    trial.head(false);
    assert!(matches!(trial.piece("ab", false), Action::Buffer));
    assert!(matches!(trial.piece("c", true), Action::Continue));
    assert_eq!(trial.noted("length").as_deref(), Some("1"));
}

#[test]
fn a_body_that_is_dropped_goes_nowhere() {
    let mut trial = obeys(&[("x-body", "3")]);
    trial.head(false);
    assert!(matches!(trial.piece("ab", false), Action::Buffer));
    assert!(trial.stream.request_body.bytes().is_empty());
}

#[test]
fn headers_are_read_and_changed() {
    let mut trial = Trial::new(&module(
        r#"(func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
            (drop (call $get (i32.const 0) $":path" (i32.const 16) (i32.const 20)))
            (drop (call $add (i32.const 0) $"x-path" (call $place) (call $length)))
            (drop (call $replace (i32.const 0) $"X-One" $"uno"))
            (drop (call $remove (i32.const 0) $"x-two"))
            (drop (call $replace (i32.const 0) $":path" $"/new"))
            (call $note $"absent" (call $get (i32.const 0) $"x-two" (i32.const 16) (i32.const 20)))
            (call $note $"other" (call $get (i32.const 2) $"x" (i32.const 16) (i32.const 20)))
            (call $note $"type" (call $get (i32.const 99) $"x" (i32.const 16) (i32.const 20)))
            (call $note $"memory" (call $get (i32.const 0) (i32.const -8) (i32.const 9) (i32.const 16) (i32.const 20)))
            (call $note $"invalid" (call $add (i32.const 0) $"a b" $"x"))
            (drop (call $map_size (i32.const 0) (i32.const 24)))
            (call $note $"sized" (i32.gt_u (i32.load (i32.const 24)) (i32.const 40)))
            (i32.const 0))"#,
    ));
    assert!(matches!(trial.head(true), Action::Continue));
    assert_eq!(trial.header("x-path").as_deref(), Some("/path?query"));
    assert_eq!((trial.header("x-one").as_deref(), trial.header("x-two")), (Some("uno"), None));
    assert_eq!(trial.stream.request.path(), b"/new");
    assert!(trial.stream.info.route_is_stale, "what the route depends on changed");
    let noted = ["absent", "other", "type", "memory", "invalid", "sized"].map(|name| trial.noted(name).unwrap());
    assert_eq!(noted, ["1", "2", "2", "6", "2", "1"]);
}

#[test]
fn pairs_are_written_into_the_module_and_taken_back() {
    let mut trial = Trial::new(&module(
        r#"(func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
            (drop (call $get_pairs (i32.const 0) (i32.const 16) (i32.const 20)))
            (call $note $"pairs" (i32.load (call $place)))
            (drop (call $remove (i32.const 0) $"x-one"))
            (drop (call $set_pairs (i32.const 0) (call $place) (call $length)))
            (drop (call $get_pairs (i32.const 1) (i32.const 16) (i32.const 20)))
            (call $note $"trailers" (call $length))
            (i32.const 0))"#,
    ));
    trial.head(true);
    assert_eq!((trial.noted("pairs").as_deref(), trial.noted("trailers").as_deref()), (Some("6"), Some("0")));
    assert_eq!(trial.header("x-one").as_deref(), Some("1"), "all that was there is there again");
    assert_eq!(trial.stream.request.fields.len(), 3);
    assert_eq!(trial.stream.request.path(), b"/path?query");
}

#[test]
fn a_map_is_open_only_while_its_message_is_in_hand() {
    let mut trial = Trial::new(&module(
        r#"(func (export "proxy_on_request_body") (param i32 i32 i32) (result i32)
            (call $note $"head" (call $add (i32.const 0) $"x" $"y"))
            (i32.const 0))
        (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
            (call $note $"own" (call $add (i32.const 0) $"x" $"y"))
            (i32.const 0))"#,
    ));
    trial.head(false);
    trial.piece("a", true);
    assert_eq!((trial.noted("own").as_deref(), trial.noted("head").as_deref()), (Some("0"), Some("2")));
}

#[test]
fn bodies_are_read_and_replaced() {
    let mut trial = Trial::new(&module(
        r#"(func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32) (i32.const 0))
        (func (export "proxy_on_request_body") (param i32 i32 i32) (result i32)
            (drop (call $buffer_status (i32.const 0) (i32.const 24) (i32.const 28)))
            (call $note $"status" (i32.load (i32.const 24)))
            (drop (call $get_buffer (i32.const 0) (i32.const 1) (i32.const 2) (i32.const 16) (i32.const 20)))
            (drop (call $set_property $"middle" (call $place) (call $length)))
            (call $note $"inside" (call $set_buffer (i32.const 0) (i32.const 1) (i32.const 1) $"x"))
            (drop (call $set_buffer (i32.const 0) (i32.const 0) (i32.const 99) $"new"))
            (drop (call $set_buffer (i32.const 0) (i32.const 0) (i32.const 0) $"<"))
            (drop (call $set_buffer (i32.const 0) (i32.const 99) (i32.const 0) $">"))
            (call $note $"none" (call $set_buffer (i32.const 6) (i32.const 0) (i32.const 0) $"x"))
            (call $note $"type" (call $buffer_status (i32.const 99) (i32.const 24) (i32.const 28)))
            (i32.const 1))"#,
    ));
    trial.head(false);
    assert!(matches!(trial.piece("abcd", false), Action::Buffer));
    assert_eq!(trial.stream.request_body.bytes(), b"<new>");
    let noted = ["status", "middle", "inside", "none", "type"].map(|name| trial.noted(name).unwrap());
    assert_eq!(noted, ["4", "bc", "2", "1", "2"]);
}

#[test]
fn a_module_answers_and_sees_its_own_answer() {
    let mut trial = Trial::new(&module(
        r#"(func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
            (drop (call $respond (i32.const 403) $"because" $"no\0a" $"\01\00\00\00\03\00\00\00\01\00\00\00X-A\001\00"
                (i32.const -1)))
            (i32.const 0))
        (func (export "proxy_on_response_headers") (param i32 i32 i32) (result i32)
            (drop (call $add (i32.const 2) $"x-seen" $"yes"))
            (i32.const 0))"#,
    ));
    let Action::Respond(reply) = trial.head(true) else { panic!("no answer") };
    assert_eq!((reply.status, &*reply.body, &*reply.details), (403, &b"no\n"[..], "because"));
    assert_eq!((&*reply.headers[0].0, &*reply.headers[0].1), ("x-a", &b"1"[..]));
    assert_eq!(reply.grpc_status, None);
    assert!(matches!(trial.response(true), Action::Continue));
    assert_eq!(trial.stream.response.fields.get_name(b"x-seen"), Some(&b"yes"[..]));
}

#[test]
fn an_answer_with_a_status_that_nobody_knows_lets_no_request_go_on() {
    for odd in ["0", "100", "199", "600", "999", "65736", "-1"] {
        let mut trial = Trial::new(&module(&format!(
            r#"(func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
                (call $note $"said" (call $respond (i32.const {odd}) $"denied" $"no" $"" (i32.const -1)))
                (i32.const 0))"#
        )));
        let Action::Respond(reply) = trial.head(true) else { panic!("{odd} is no answer") };
        assert_eq!((reply.status, &*reply.body, &*reply.details), (500, &b"no"[..], "denied"), "{odd}");
        assert_eq!(trial.noted("said").as_deref(), Some("0"), "{odd}");
    }
}

#[test]
fn all_of_a_body_from_some_byte_on_is_read_with_the_greatest_length() {
    let mut trial = Trial::new(&module(
        r#"(func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32) (i32.const 0))
        (func (export "proxy_on_request_body") (param i32 i32 i32) (result i32)
            (call $note $"said" (call $get_buffer (i32.const 0) (i32.const 1) (i32.const -1) (i32.const 16) (i32.const 20)))
            (drop (call $set_property $"rest" (call $place) (call $length)))
            (call $note $"beyond" (call $get_buffer (i32.const 0) (i32.const -1) (i32.const -1) (i32.const 16) (i32.const 20)))
            (i32.const 1))"#,
    ));
    trial.head(false);
    trial.piece("abcd", true);
    let noted = ["said", "rest", "beyond"].map(|name| trial.noted(name).unwrap());
    assert_eq!(noted, ["0", "bcd", "0"]);
}

#[test]
fn a_closed_stream_gets_no_answer() {
    let mut trial = Trial::new(&module(
        r#"(func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
            (drop (call $close (i32.const 0))) (i32.const 1))"#,
    ));
    assert_eq!(status(trial.head(true)), 0);
}

#[test]
fn the_end_is_told_in_its_order_with_everything_to_be_seen() {
    let module = module(
        r#"(global $steps (mut i32) (i32.const 0))
        (func $step (param i32 i32)
            (global.set $steps (i32.add (global.get $steps) (i32.const 1)))
            (i32.store8 (i32.const 0) (i32.add (global.get $steps) (i32.const 48)))
            (drop (call $set_shared (local.get 0) (local.get 1) (i32.const 0) (i32.const 1) (i32.const 0))))
        (func (export "proxy_on_context_create") (param i32 i32)
            (if (local.get 1) (then (call $step $"create"))))
        (func (export "proxy_on_log") (param i32)
            (call $step $"log")
            (drop (call $get (i32.const 0) $"x-one" (i32.const 16) (i32.const 20)))
            (drop (call $set_shared $"header" (call $place) (call $length) (i32.const 0)))
            (drop (call $get (i32.const 2) $":status" (i32.const 16) (i32.const 20)))
            (drop (call $set_shared $"status" (call $place) (call $length) (i32.const 0))))
        (func (export "proxy_on_done") (param i32) (result i32) (call $step $"done") (i32.const 1))
        (func (export "proxy_on_delete") (param i32) (call $step $"delete"))"#,
    );
    let mut trial = Trial::with("ends", &module, &[]);
    assert!(trial.filter.hooks().complete);
    assert!(matches!(trial.head(true), Action::Continue));
    trial.stream.response.set_status(204);
    trial.response(true);
    trial.end();
    let space = crate::shared::Space::of("ends");
    let shared = |key: &str| {
        let mut out = Vec::new();
        space.get(key.as_bytes(), &mut out).map(|_| String::from_utf8(out).unwrap())
    };
    let steps = ["create", "log", "done", "delete", "header", "status"].map(|key| shared(key).unwrap());
    assert_eq!(steps, ["1", "2", "3", "4", "1", "204"]);
}

#[test]
fn what_a_module_lacks_or_does_nothing_in_is_not_asked_for() {
    let hooks = |functions: &str| Trial::new(&module(functions)).filter.hooks();
    let nothing = hooks(r#"(func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32) (i32.const 0))"#);
    assert!(!nothing.request_body && !nothing.response_headers && !nothing.complete);
    let body = hooks(
        r#"(func (export "proxy_on_response_body") (param i32 i32 i32) (result i32)
            (call $close (i32.const 1)))"#,
    );
    assert!(body.response_body && !body.request_body);
}

/// Stops heads and pieces, and lets them go on when told.
const WAITS: &str = r#"
    (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
        (if (call $get (i32.const 0) $"x-wait" (i32.const 16) (i32.const 20)) (then (return (i32.const 0))))
        (drop (call $http_call $"service"
            $"\03\00\00\00\05\00\00\00\01\00\00\00\07\00\00\00\03\00\00\00\0a\00\00\00\01\00\00\00:path\00/\00:method\00GET\00:authority\00a\00"
            (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 5000) (i32.const 32)))
        (global.set $stream (local.get 0))
        (i32.const 1))
    (global $stream (mut i32) (i32.const 0))
    (func (export "proxy_on_request_body") (param i32 i32 i32) (result i32)
        (call $note $"length" (local.get 1)) (i32.const 1))
    (func (export "proxy_on_http_call_response") (param i32 i32 i32 i32 i32)
        (drop (call $effective (global.get $stream)))
        (call $note $"token" (local.get 1))
        (call $note $"headers" (local.get 2))
        (call $note $"body" (local.get 3))
        (drop (call $get (i32.const 6) $":status" (i32.const 16) (i32.const 20)))
        (drop (call $add (i32.const 0) $"x-status" (call $place) (call $length)))
        (drop (call $get_buffer (i32.const 4) (i32.const 0) (i32.const 99) (i32.const 16) (i32.const 20)))
        (drop (call $add (i32.const 0) $"x-answer" (call $place) (call $length)))
        (drop (call $continue (i32.const 0))))"#;

fn answer(body: &str) -> postrider_filter_api::Answer {
    let mut head = postrider_http::ResponseHead::new();
    head.set_status(202);
    postrider_filter_api::Answer { head, body: body.as_bytes().to_vec(), trailers: Default::default() }
}

#[test]
fn an_answer_to_a_call_lets_the_stream_go_on() {
    let mut trial = Trial::new(&module(WAITS));
    trial.stream.request.fields.append_name(b"x-wait", b"1").unwrap();
    assert!(matches!(trial.head(true), Action::Pause));
    assert!(trial.noted("token").is_none());
    assert!(trial.host.answer(Ok(answer("fine"))));
    assert!(matches!(trial.resumed(), Action::Continue));
    assert_eq!((trial.header("x-status").as_deref(), trial.header("x-answer").as_deref()), (Some("202"), Some("fine")));
    let noted = ["token", "headers", "body"].map(|name| trial.noted(name).unwrap());
    assert_eq!(noted, ["4", "1", "4"]);
    trial.end();
}

#[test]
fn a_message_that_may_be_let_go_on_between_pieces_is_taken_over() {
    use postrider_filter_api::Flow;
    let mut trial = Trial::new(&module(WAITS));
    assert!(matches!(trial.head(false), Action::Take));
    let flow = |trial: &mut Trial| {
        let flow = trial.hook(|filter, state, stream| filter.on_request_flow(state, stream));
        let bytes = String::from_utf8_lossy(trial.stream.request_body.bytes()).into_owned();
        trial.stream.request_body.clear();
        (flow, bytes)
    };
    assert!(matches!(flow(&mut trial).0, Flow::Head));
    assert!(matches!(flow(&mut trial).0, Flow::Want));
    trial.piece("ab", false);
    assert!(matches!(flow(&mut trial).0, Flow::Want), "it gathers");
    trial.piece("cd", false);
    assert_eq!(trial.noted("length").as_deref(), Some("4"));
    trial.piece(&"x".repeat(100), false);
    let (flow, _) = flow(&mut trial);
    assert!(matches!(&flow, Flow::Respond(reply) if reply.status == 413), "{flow:?}");
}

#[test]
fn a_head_may_stop_alone_and_its_body_comes_to_the_module_meanwhile() {
    use postrider_filter_api::Flow;
    let mut trial = Trial::with("", &module(WAITS), &[("allow_on_headers_stop_iteration", Value::Bool(true))]);
    trial.stream.request.fields.append_name(b"x-wait", b"1").unwrap();
    assert!(matches!(trial.head(false), Action::Take));
    trial.piece("ab", true);
    assert_eq!(trial.noted("length").as_deref(), Some("2"));
    let flow = |trial: &mut Trial| trial.hook(|filter, state, stream| filter.on_request_flow(state, stream));
    assert!(matches!(flow(&mut trial), Flow::Wait));
    trial.host.answer(Ok(answer("")));
    assert!(matches!(flow(&mut trial), Flow::Release));
    assert_eq!(trial.stream.request_body.bytes(), b"ab");
}

/// A stream with `x-wait` waits, and the next ones look at it.
const LOOKS: &str = r#"
    (global $waits (mut i32) (i32.const 0))
    (func $tell (param i32 i32) (drop (call $set_shared (local.get 0) (local.get 1) (call $place) (call $length) (i32.const 0))))
    (func $tell_status (param i32 i32 i32)
        (i32.store8 (i32.const 0) (i32.add (local.get 2) (i32.const 48)))
        (drop (call $set_shared (local.get 0) (local.get 1) (i32.const 0) (i32.const 1) (i32.const 0))))
    (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
        (if (i32.eqz (call $get (i32.const 0) $"x-wait" (i32.const 16) (i32.const 20)))
            (then (global.set $waits (local.get 0)) (return (i32.const 1))))
        (drop (call $effective (global.get $waits)))
        (call $tell_status $"status" (call $get (i32.const 0) $"x-one" (i32.const 16) (i32.const 20)))
        (call $tell $"seen")
        (call $tell_status $"path-status" (call $get_property $"request\00path" (i32.const 16) (i32.const 20)))
        (call $tell $"path")
        (drop (call $replace (i32.const 0) $"x-one" $"changed"))
        (drop (call $get (i32.const 0) $"x-one" (i32.const 16) (i32.const 20)))
        (call $tell $"changed")
        (call $tell_status $"bad" (call $add (i32.const 0) $"x one" $"1"))
        (call $tell_status $"mark-status" (call $set_property $"mark" $"noted"))
        (drop (call $get_property $"mark" (i32.const 16) (i32.const 20)))
        (call $tell $"mark")
        (drop (call $continue (i32.const 0)))
        (call $tell_status $"after" (call $get (i32.const 0) $"x-one" (i32.const 16) (i32.const 20)))
        (i32.const 0))"#;

#[test]
fn a_stream_that_waits_is_seen_and_changed_from_another_one() {
    let vm_id = "looks";
    let mut trial = Trial::with(vm_id, &module(LOOKS), &[]);
    let space = crate::shared::Space::of(vm_id);
    let told = |keys: &[&str]| -> Vec<String> {
        let read = |key: &&str| {
            let mut out = Vec::new();
            space.get(key.as_bytes(), &mut out).map(|_| String::from_utf8(out).unwrap()).unwrap_or_default()
        };
        keys.iter().map(read).collect()
    };
    let look = |trial: &Trial| {
        let (mut state, mut other) = (State::default(), FakeStream::new("GET", "/other", &[("x-one", "other")]));
        let action = other.with(|stream| trial.filter.on_request_headers(&mut state, stream, true));
        assert!(matches!(action, Action::Continue));
        assert_eq!(other.request.fields.get_name(b"x-one"), Some(&b"other"[..]), "its own is what it was");
    };
    trial.stream.request.fields.append_name(b"x-wait", b"1").unwrap();
    assert!(matches!(trial.head(true), Action::Pause));
    look(&trial);
    assert_eq!(told(&["status", "seen", "path-status", "path"]), ["0", "1", "0", "/path?query"]);
    assert_eq!(told(&["changed", "bad", "mark-status", "mark", "after"]), ["changed", "2", "0", "noted", "2"]);
    assert_eq!(trial.header("x-one").as_deref(), Some("1"), "it waits");
    assert!(matches!(trial.resumed(), Action::Continue));
    assert_eq!(trial.header("x-one").as_deref(), Some("changed"));
    assert_eq!(trial.noted("mark").as_deref(), Some("noted"));
    assert!(trial.stream.info.route_is_stale, "its headers changed");
    look(&trial);
    assert_eq!(told(&["status", "path-status", "mark-status"]), ["2", "1", "1"], "it does not wait any more");
}

/// Envoy has a body at hand while it shows a piece of it, and while the module gathers it.
#[test]
fn an_edit_of_a_body_outside_of_its_callback_is_refused_and_changes_nothing() {
    let mut trial = Trial::new(&module(
        r#"(func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
            (call $note $"head" (call $set_buffer (i32.const 0) (i32.const 0) (i32.const 99) $"lost"))
            (i32.const 0))
        (func (export "proxy_on_request_body") (param i32 i32 i32) (result i32)
            (call $note $"own" (call $set_buffer (i32.const 0) (i32.const 0) (i32.const 0) $"<"))
            (call $note $"other" (call $set_buffer (i32.const 1) (i32.const 0) (i32.const 0) $"<"))
            (local.get 2))
        (func (export "proxy_on_request_trailers") (param i32 i32) (result i32)
            (call $note $"trailers" (call $set_buffer (i32.const 0) (i32.const 99) (i32.const 0) $">"))
            (i32.const 0))
        (func (export "proxy_on_response_headers") (param i32 i32 i32) (result i32)
            (call $note $"answer" (call $set_buffer (i32.const 1) (i32.const 0) (i32.const 0) $"lost"))
            (i32.const 0))"#,
    ));
    let trailers = |trial: &mut Trial| trial.hook(|filter, state, stream| filter.on_request_trailers(state, stream));
    trial.head(false);
    trial.piece("a", false);
    assert!(matches!(trailers(&mut trial), Action::Continue));
    assert!(trial.stream.request_body.bytes().is_empty(), "nothing comes behind the body");
    trial.response(false);
    let noted = ["head", "own", "other", "trailers", "answer"].map(|name| trial.noted(name).unwrap());
    assert_eq!(noted, ["2", "0", "2", "2", "2"]);
    // A body that waits for its trailers is at hand there.
    trial.restart();
    trial.head(false);
    trial.piece("a", true);
    trailers(&mut trial);
    assert_eq!(trial.noted("trailers").as_deref(), Some("0"));
    assert_eq!(trial.stream.request_body.bytes(), b"<a>");
}
