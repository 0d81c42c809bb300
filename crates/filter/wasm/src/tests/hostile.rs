//! Modules that trap, loop and want everything: they end their machine, and what becomes of streams is the policy's.

use std::time::SystemTime;

use postrider_filter_api::Moment;

use super::*;

/// Traps, loops or grows without end, as the request's path says; otherwise notes that it ran.
const WILD: &str = r#"
    (func $path (result i32)
        (drop (call $get (i32.const 0) $":path" (i32.const 16) (i32.const 20)))
        (i32.load8_u (i32.add (call $place) (i32.const 1))))
    (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
        (if (i32.eq (call $path) (i32.const 0x74)) (then (unreachable)))
        (if (i32.eq (call $path) (i32.const 0x6c)) (then (loop $again (br $again))))
        (if (i32.eq (call $path) (i32.const 0x6d)) (then
            (if (i32.eq (memory.grow (i32.const 60000)) (i32.const -1)) (then (unreachable)))))
        (call $note $"ran" (i32.const 1))
        (i32.const 0))"#;

fn to(path: &str) -> FakeStream {
    FakeStream::new("GET", path, &[])
}

fn policy(failure: &str) -> Trial {
    Trial::with("", &module(WILD), &[("failure_policy", text(failure))])
}

#[test]
fn a_trap_answers_its_request_and_the_policy_the_next_ones() {
    for (failure, next) in [("FAIL_CLOSED", Some(503)), ("UNSPECIFIED", Some(503)), ("FAIL_OPEN", None)] {
        let mut trial = policy(failure);
        trial.stream = to("/trap");
        assert_eq!(status(trial.head(true)), 503, "{failure}");
        trial.end();
        trial.stream = to("/fine");
        match (trial.head(true), next) {
            (Action::Respond(reply), Some(expected)) => assert_eq!(reply.status, expected, "{failure}"),
            (Action::Done, None) => assert_eq!(trial.noted("ran"), None, "{failure}"),
            (other, _) => panic!("{failure}: {other:?}"),
        }
    }
}

thread_local! {
    static NOW: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

fn clock() -> (Moment, SystemTime) {
    (Moment::from_nanos(NOW.get() * 1_000_000), SystemTime::UNIX_EPOCH)
}

/// Refusals were counted as requests that passed by, and nothing said that the machine was gone.
#[test]
fn requests_that_a_dead_machine_refuses_are_counted_as_refused() {
    for (failure, name) in [("FAIL_CLOSED", "refused"), ("FAIL_OPEN", "bypassed")] {
        let mut trial = policy(failure);
        let count = |trial: &Trial, prefix: &str, name: &str| -> u64 {
            let scopes = trial.stats.read(&[]);
            let cell = |scope: &postrider_telemetry::stats::ScopeValues| {
                let at = scope.set.cells.iter().position(|stat| stat.name == name)?;
                (scope.set.scope_name(&scope.prefix) == prefix).then(|| scope.cell(at))
            };
            scopes.iter().filter_map(cell).sum()
        };
        assert_eq!(count(&trial, "plugin.plugin.", "dead_workers"), 0);
        for path in ["/trap", "/fine", "/fine"] {
            trial.stream = to(path);
            trial.head(true);
            trial.end();
        }
        let counts = ["errors", "refused", "bypassed"].map(|name| count(&trial, "plugin.plugin..0.", name));
        let expected = if name == "refused" { [1, 2, 0] } else { [1, 0, 2] };
        assert_eq!((counts, count(&trial, "plugin.plugin.", "dead_workers")), (expected, 1), "{failure}");
        let note = trial.factory.note().unwrap_or_default();
        assert!(note.starts_with(failure), "{note}");
    }
}

#[test]
fn a_machine_is_made_again_after_a_while_where_that_is_wanted() {
    let mut trial = policy("FAIL_RELOAD");
    let mut ask = |path: &str, at: u64| {
        NOW.set(at);
        trial.stream = to(path);
        trial.stream.host.clock = clock;
        let action = trial.head(true);
        let ran = trial.noted("ran").is_some();
        trial.end();
        (matches!(action, Action::Respond(_)), ran)
    };
    assert_eq!(ask("/fine", 0), (false, true));
    assert_eq!(ask("/trap", 0), (true, false));
    assert_eq!(ask("/fine", 10), (true, false));
    assert_eq!(ask("/fine", 900), (true, false));
    assert_eq!(ask("/fine", 1020), (false, true), "a second after it was made");
    assert_eq!(ask("/fine", 1021), (false, true));
}

fn manifest(fields: &[(&str, Value)]) -> Trial {
    manifest_of(WILD, fields)
}

fn manifest_of(functions: &str, fields: &[(&str, Value)]) -> Trial {
    let mut all = vec![
        ("name".to_owned(), text("wild")),
        ("runtime".to_owned(), text("wasm")),
        ("code".to_owned(), code(&module(functions))),
    ];
    all.extend(fields.iter().map(|(key, value)| ((*key).to_owned(), value.clone())));
    Trial::of(
        build(postrider_filter_plugin::KIND, &Value::Map(all)).unwrap_or_else(|errors| panic!("{errors:?}")),
        None,
    )
}

fn stops_what_is_wild(functions: &str) -> Trial {
    let budget = map([("cpu", text("0.02s")), ("memory_bytes", Value::Integer(1 << 20))]);
    let circuit = map([("faults", Value::Integer(0))]);
    let mut trial = manifest_of(functions, &[("budget", budget), ("circuit", circuit)]);
    for (path, cell) in [("/loop", 2), ("/memory", 3), ("/trap", 1)] {
        trial.stream = to(path);
        assert!(matches!(trial.head(true), Action::Done), "{path}: it goes on without the plugin");
        assert!(trial.counter("plugin.wild..0.", cell) >= 1, "{path}");
        trial.end();
        trial.stream = to("/fine");
        assert!(matches!(trial.head(true), Action::Continue), "{path}");
        assert_eq!(trial.noted("ran").as_deref(), Some("1"), "{path}");
        trial.end();
    }
    trial
}

#[test]
fn loops_and_memory_hogs_are_stopped_and_the_next_request_is_fine() {
    let trial = stops_what_is_wild(WILD);
    assert!(trial.factory.note().is_none() && trial.factory.is_current());
}

#[cfg(target_arch = "x86_64")]
#[test]
fn code_that_was_compiled_quickly_is_stopped_just_as_well() {
    crate::compiled::hurry_now();
    // Distinct in each run: what was compiled before is kept.
    let distinct = format!("{:?} {}", SystemTime::now(), "x".repeat(300_000)).replace('"', "");
    let trial = stops_what_is_wild(&format!(r#"{WILD} (data "{distinct}")"#));
    assert!(trial.factory.note().unwrap().contains("quickly"));
}

#[test]
fn a_failing_plugin_is_left_alone_and_answers_as_it_is_told_to() {
    let circuit = map([("faults", Value::Integer(2)), ("retry", text("1s"))]);
    let mut trial = manifest(&[("circuit", circuit), ("on_error", text("502"))]);
    let mut ask = |path: &str, at: u64| {
        NOW.set(at);
        trial.stream = to(path);
        trial.stream.host.clock = clock;
        let action = trial.head(true);
        trial.end();
        match action {
            Action::Respond(reply) => reply.status,
            _ => 0,
        }
    };
    assert_eq!([ask("/trap", 0), ask("/fine", 1), ask("/trap", 2), ask("/fine", 3)], [502, 0, 502, 502]);
    assert_eq!([ask("/fine", 900), ask("/fine", 1100), ask("/fine", 1101)], [502, 0, 0]);
}

/// Traps at a tick, at an answer or at a message, as the request's path says.
const WILD_ASIDE: &str = r#"
    (func $path (result i32)
        (drop (call $get (i32.const 0) $":path" (i32.const 16) (i32.const 20)))
        (i32.load8_u (i32.add (call $place) (i32.const 1))))
    (func (export "proxy_on_configure") (param i32 i32) (result i32)
        (drop (call $register_queue $"wild" (i32.const 24)))
        (i32.const 1))
    (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
        (if (i32.eq (call $path) (i32.const 0x74)) (then (drop (call $tick_period (i32.const 20)))))
        (if (i32.eq (call $path) (i32.const 0x63)) (then
            (drop (call $http_call $"service" HEAD $"" $"" (i32.const 250) (i32.const 32)))))
        (if (i32.eq (call $path) (i32.const 0x67)) (then
            (drop (call $grpc_call $"\0a\06\0a\04grpc" $"p.S" $"M" $"" $"" (i32.const 0) (i32.const 32)))))
        (if (i32.eq (call $path) (i32.const 0x71)) (then
            (drop (call $enqueue (i32.load (i32.const 24)) $"x"))))
        (i32.const 0))
    (func (export "proxy_on_tick") (param i32) (unreachable))
    (func (export "proxy_on_http_call_response") (param i32 i32 i32 i32 i32) (unreachable))
    (func (export "proxy_on_grpc_receive") (param i32 i32 i32) (unreachable))
    (func (export "proxy_on_queue_ready") (param i32 i32) (unreachable))"#;

/// They opened no circuit and counted as no errors: the plugin was started again and again.
#[test]
fn what_fails_in_ticks_and_answers_counts_for_the_circuit() {
    for path in ["/tick", "/call", "/grpc", "/queue"] {
        let circuit = map([("faults", Value::Integer(2)), ("retry", text("1s"))]);
        let functions = WILD_ASIDE.replace("HEAD", super::calls::HEAD);
        let mut trial = manifest_of(&functions, &[("circuit", circuit), ("on_error", text("502"))]);
        let mut ask = |path: &str| {
            trial.stream = to(path);
            let action = trial.head(true);
            trial.end();
            let timers: Vec<_> = trial.host.timers.borrow_mut().drain(..).collect();
            timers.into_iter().for_each(|(_, wake)| wake());
            trial.host.answer(Err(postrider_filter_api::CallFailure::Timeout));
            trial.host.answer_grpc(Ok(b"there".to_vec()));
            trial.host.run_posted();
            matches!(action, Action::Respond(_))
        };
        assert_eq!([ask(path), ask("/fine"), ask(path), ask("/fine")], [false, false, false, true], "{path}");
        assert_eq!(trial.counter("plugin.wild._unrouted_.", 1), 2, "{path}: each counts once");
    }
}

#[test]
fn a_module_that_used_up_its_time_is_left_alone_at_once() {
    let circuit = map([("retry", text("1s"))]);
    let budget = map([("cpu", text("0.02s"))]);
    let mut trial = manifest(&[("circuit", circuit), ("budget", budget), ("on_error", text("502"))]);
    let mut ask = |path: &str, at: u64| {
        NOW.set(at);
        trial.stream = to(path);
        trial.stream.host.clock = clock;
        let action = trial.head(true);
        trial.end();
        matches!(action, Action::Respond(_))
    };
    assert_eq!([ask("/loop", 0), ask("/loop", 1), ask("/fine", 2), ask("/fine", 1100)], [true, true, true, false]);
    assert_eq!(trial.counter("plugin.wild..0.", 2), 1, "one call ran to its budget");
}

#[test]
fn streams_in_a_machine_that_another_stream_ended_end_with_it() {
    let mut trial = policy("FAIL_CLOSED");
    trial.stream = to("/fine");
    trial.head(false);
    let mut other = State::default();
    let mut wild = to("/trap");
    let action = wild.with(|stream| trial.filter.on_request_headers(&mut other, stream, true));
    assert_eq!(status(action), 503);
    assert_eq!(status(trial.response(true)), 503);
}

#[test]
fn an_allocator_that_lies_ends_in_a_status_or_a_trap() {
    let text = r#"(module
        (import "env" "proxy_get_header_map_pairs" (func $get_pairs (param i32 i32 i32) (result i32)))
        (import "env" "proxy_send_local_response" (func $respond (param i32 i32 i32 i32 i32 i32 i32 i32) (result i32)))
        (memory (export "memory") 1)
        (func (export "proxy_abi_version_0_2_0"))
        (func (export "proxy_on_memory_allocate") (param i32) (result i32) (i32.const -16))
        (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
            (drop (call $respond
                (i32.add (i32.const 400) (call $get_pairs (i32.const 0) (i32.const 0) (i32.const 4)))
                (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const -1)))
            (i32.const 0)))"#;
    let mut trial = Trial::new(&wat::parse_str(text).unwrap());
    assert_eq!(status(trial.head(true)), 406);
}

#[test]
fn a_capability_that_was_not_given_is_not_there() {
    let allowed = ["proxy_on_request_headers", "proxy_get_header_map_value", "proxy_set_property"];
    let allowed = Value::Map(allowed.map(|name| (name.to_owned(), Value::Map(Vec::new()))).into());
    let module = module(
        r#"(func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
            (call $note $"read" (call $get (i32.const 0) $"x-one" (i32.const 16) (i32.const 20)))
            (call $note $"changed" (i32.eq (call $add (i32.const 0) $"x" $"y") (i32.const 10)))
            (i32.const 0))
        (func (export "proxy_on_response_headers") (param i32 i32 i32) (result i32) (unreachable))"#,
    );
    let restriction = map([("allowed_capabilities", allowed)]);
    let vm = map([("code", map([("local", code(&module))])), ("capability_restriction_config", restriction)]);
    let mut trial = Trial::of(build(ENVOY, &map([("config", map([("vm_config", vm)]))])).unwrap(), None);
    assert!(matches!(trial.head(true), Action::Continue));
    assert_eq!((trial.noted("read").as_deref(), trial.noted("changed").as_deref()), (Some("0"), Some("1")));
    assert!(matches!(trial.response(true), Action::Continue), "its callback is not one");
}

/// How often a module does something with 64 KiB until it is refused, as tens of times, from 0 to 9.
fn until_refused(what: &str) -> String {
    format!(
        r#"(local.set 3 (i32.const 0))
        (loop $more
            (local.set 3 (i32.add (local.get 3) (i32.const 1)))
            (br_if $more (i32.and (i32.eqz {what}) (i32.lt_u (local.get 3) (i32.const 90)))))
        "#
    )
}

#[test]
fn what_a_stream_holds_counts_for_the_memory() {
    let module = module(&format!(
        r#"(func $add_one (param i32) (result i32)
            (call $add (i32.const 0) $"x-many" (i32.const 65536) (i32.const 65000)))
        (func $write_one (param i32) (result i32)
            (i32.store8 (i32.const 8) (i32.add (i32.const 33) (local.get 0)))
            (call $set_property (i32.const 8) (i32.const 1) (i32.const 65536) (i32.const 65000)))
        (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32) (local i32)
            (memory.fill (i32.const 65536) (i32.const 97) (i32.const 65000))
            (if (i32.eqz (call $get (i32.const 0) $"x-write" (i32.const 16) (i32.const 20)))
                (then {})
                (else {}))
            (call $note $"times" (i32.div_u (local.get 3) (i32.const 10)))
            (i32.const 0))
        (func (export "proxy_on_request_body") (param i32 i32 i32) (result i32) (local i32)
            {}
            (call $note $"longer" (i32.div_u (local.get 3) (i32.const 10)))
            (i32.const 0))"#,
        until_refused("(call $write_one (local.get 3))"),
        until_refused("(call $add_one (local.get 3))"),
        until_refused(
            "(call $set_buffer (i32.const 0) (i32.const 9999999) (i32.const 0) (i32.const 65536) (i32.const 65000))"
        ),
    ));
    let rules = map([("memory_bytes", Value::Integer(3 << 20))]);
    let manifest = map([("name", text("p")), ("runtime", text("wasm")), ("code", code(&module)), ("budget", rules)]);
    let mut trial = Trial::of(build(postrider_filter_plugin::KIND, &manifest).unwrap(), None);
    // 3 MiB without the machine's own memory are some 40 times 64 KiB, and buffers are larger than what is in them.
    let some = |times: Option<String>| times.is_some_and(|times| ("1"..="4").contains(&&*times));
    for lines in [&[("x-one", "1")][..], &[("x-write", "1")]] {
        for turn in ["the first", "one behind it"] {
            trial.stream = FakeStream::new("POST", "/", lines);
            assert!(matches!(trial.head(false), Action::Continue));
            assert!(some(trial.noted("times")), "{turn}, {lines:?}: {:?}", trial.noted("times"));
            trial.piece("a", true);
            assert!(some(trial.noted("longer")), "{turn}, {lines:?}: {:?}", trial.noted("longer"));
            trial.restart();
        }
    }
}

/// They were held beside the module's memory, for as long as the connection went on.
#[test]
fn what_a_connection_holds_counts_for_the_memory_until_it_ends() {
    use postrider_filter_api::Noted;
    // A request writes one property of 16 KiB, under a name from its path, and an object of as much where that begins with `o`.
    let object = format!("\\0a\\0cenvoy.string\\18\\02\\12\\80\\80\\01{}", "a".repeat(16 << 10));
    let name = |name: char| {
        format!(r#"(drop (call $foreign $"declare_property" $"\0a\02/{name}\28\02" (i32.const 0) (i32.const 0)))"#)
    };
    let declared: String = ('a'..='z').map(name).collect();
    let module = module(&format!(
        r#"(func (export "proxy_on_configure") (param i32 i32) (result i32) {declared} (i32.const 1))
        (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
            (memory.fill (i32.const 65536) (i32.const 97) (i32.const 16384))
            (drop (call $get (i32.const 0) $":path" (i32.const 16) (i32.const 20)))
            (if (i32.eq (i32.load8_u (i32.add (call $place) (i32.const 1))) (i32.const 0x6f))
                (then (call $note $"put" (call $foreign $"set_envoy_filter_state" $"{object}" (i32.const 0) (i32.const 0))))
                (else (call $note $"put"
                    (call $set_property (call $place) (i32.const 2) (i32.const 65536) (i32.const 16384)))))
            (i32.const 0))"#
    ));
    let rules = map([("memory_bytes", Value::Integer(1 << 20))]);
    let manifest = map([("name", text("p")), ("runtime", text("wasm")), ("code", code(&module)), ("budget", rules)]);
    let mut trial = Trial::of(build(postrider_filter_plugin::KIND, &manifest).unwrap(), None);
    let mut ask = |connection: &Rc<Noted>, name: char| {
        trial.stream = to(&format!("/{name}"));
        connection.begin(&mut trial.stream.info);
        trial.head(true);
        let put = trial.noted("put").unwrap();
        trial.end();
        put == "0"
    };
    let first: Rc<Noted> = Rc::default();
    assert!((0..100).all(|_| ask(&first, 'a') && ask(&first, 'o')), "what takes the place of another is not more");
    let fit = |ask: &mut dyn FnMut(char) -> bool| ('b'..='n').chain('p'..='z').filter(|name| ask(*name)).count();
    let one = fit(&mut |name| ask(&first, name));
    assert!((11..=13).contains(&one), "256 KiB of one connection: {one} beside two");
    let others: Vec<Rc<Noted>> = (0..8).map(|_| Rc::default()).collect();
    let all: usize = others.iter().map(|other| fit(&mut |name| ask(other, name))).sum();
    // A machine of 256 KiB and a bit may have 768 KiB more, of which the first connection has a third.
    assert!((20..=34).contains(&all), "1 MiB of all: {all}");
    drop((first, others));
    assert!(ask(&Rc::default(), 'a'), "they are over");
}
