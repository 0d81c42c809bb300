use super::*;
use crate::testing::{list, object, place, text};
use postrider_filter_api::testing::FakeStream;

fn percent(numerator: i64) -> Value {
    object([("numerator", Value::Integer(numerator))])
}

fn delay(entry: (&str, Value)) -> (&'static str, Value) {
    ("delay", object([entry, ("percentage", percent(100))]))
}

fn abort(entry: (&str, Value)) -> (&'static str, Value) {
    ("abort", object([entry, ("percentage", percent(100))]))
}

fn config(entries: Vec<(&str, Value)>) -> Value {
    Value::Map(entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
}

fn injector(entries: Vec<(&str, Value)>) -> Rc<dyn Filter> {
    build("chaos", &config(entries)).ok().unwrap().filter(&ScopedConfigs::default(), &place())
}

/// The status that a request is answered with here, after its delay in milliseconds.
fn outcome(filter: &dyn Filter, fields: &[(&str, &str)]) -> (Option<u128>, Option<u16>) {
    let mut stream = FakeStream::new("GET", "/", fields);
    let mut state = State::default();
    let mut action = stream.with(|stream| filter.on_request_headers(&mut state, stream, true));
    let wait = stream.host.timers.borrow_mut().pop().map(|(delay, _)| delay.as_millis());
    if let Action::Pause = action {
        action = stream.with(|stream| filter.on_request_resumed(&mut state, stream));
    }
    filter.on_complete(&mut state, &stream.info);
    let status = if let Action::Respond(reply) = action { Some(reply.status) } else { None };
    assert_eq!(wait.is_some(), stream.info.flags.contains(Flags::DELAY_INJECTED));
    assert_eq!(status.is_some(), stream.info.flags.contains(Flags::FAULT_INJECTED));
    (wait, status)
}

#[test]
fn requests_are_delayed_and_then_aborted() {
    let half = || text("0.5s");
    let fixed = || delay(("fixed_delay", half()));
    let status = || abort(("http_status", Value::Integer(503)));
    assert_eq!(outcome(&*injector(vec![fixed()]), &[]), (Some(500), None));
    assert_eq!(outcome(&*injector(vec![status()]), &[]), (None, Some(503)));
    assert_eq!(outcome(&*injector(vec![fixed(), status()]), &[]), (Some(500), Some(503)));
    let none =
        vec![("delay", object([("fixed_delay", half())])), ("abort", object([("http_status", Value::Integer(500))]))];
    assert_eq!(outcome(&*injector(none), &[]), (None, None), "without a share nothing is done");
    assert_eq!(outcome(&*injector(vec![fixed(), ("max_active_faults", Value::Integer(0))]), &[]), (None, None));
    let once = injector(vec![fixed(), ("max_active_faults", Value::Integer(1))]);
    assert_eq!(outcome(&*once, &[]).0, Some(500));
    assert_eq!(outcome(&*once, &[]).0, Some(500), "the first is over");
}

#[test]
fn a_stream_has_no_fault_any_more_when_its_delay_is_over() {
    let delayed = |filter: &dyn Filter| {
        let (mut stream, mut state) = (FakeStream::new("GET", "/", &[]), State::default());
        let action = stream.with(|stream| filter.on_request_headers(&mut state, stream, true));
        if let Action::Pause = action {
            stream.with(|stream| filter.on_request_resumed(&mut state, stream));
        }
        matches!(action, Action::Pause).then_some((state, stream))
    };
    let limited = |more: Vec<(&str, Value)>| {
        let delay = delay(("fixed_delay", text("0.5s")));
        injector([delay, ("max_active_faults", Value::Integer(1))].into_iter().chain(more).collect())
    };
    let never = || object([("http_status", Value::Integer(503))]);
    for filter in [limited(vec![]), limited(vec![("abort", never())])] {
        let (mut first, stream) = delayed(&*filter).unwrap();
        let second = delayed(&*filter);
        assert!(second.is_some(), "the first one waits for its upstream alone");
        filter.on_complete(&mut first, &stream.info);
        assert!(delayed(&*filter).is_some(), "and its end counts nothing again");
    }
    let rate = object([("fixed_limit", object([("limit_kbps", Value::Integer(1))]))]);
    let slow = limited(vec![("response_rate_limit", rate)]);
    let _first = delayed(&*slow).unwrap();
    assert!(delayed(&*slow).is_none(), "its answer may be slow");
}

#[test]
fn requests_say_what_they_want_where_they_may() {
    let filter = injector(vec![delay(("header_delay", object([]))), abort(("header_abort", object([])))]);
    let ask = |fields: &[(&str, &str)]| outcome(&*filter, fields);
    assert_eq!(ask(&[]), (None, None));
    assert_eq!(ask(&[("x-envoy-fault-delay-request", "20")]), (Some(20), None));
    assert_eq!(ask(&[("x-envoy-fault-delay-request", "0")]), (None, None));
    assert_eq!(ask(&[("x-envoy-fault-delay-request", "x")]), (None, None));
    assert_eq!(ask(&[("x-envoy-fault-abort-request", "418")]), (None, Some(418)));
    assert_eq!(ask(&[("x-envoy-fault-abort-request", "600")]), (None, None));
    assert_eq!(ask(&[("x-envoy-fault-abort-grpc-request", "7")]), (None, Some(200)));
    let share = ("x-envoy-fault-abort-request-percentage", "0");
    assert_eq!(ask(&[("x-envoy-fault-abort-request", "418"), share]), (None, None));
}

#[test]
fn only_requests_that_are_meant_have_a_fault() {
    let status = || abort(("http_status", Value::Integer(503)));
    let header = object([("name", text("x-chaos")), ("present_match", Value::Bool(true))]);
    let by_header = injector(vec![status(), ("headers", list([header]))]);
    assert_eq!(outcome(&*by_header, &[("x-chaos", "1")]).1, Some(503));
    assert_eq!(outcome(&*by_header, &[]).1, None);
    let by_node = injector(vec![status(), ("downstream_nodes", list([text("n1")]))]);
    assert_eq!(outcome(&*by_node, &[("x-envoy-downstream-service-node", "n1")]).1, Some(503));
    assert_eq!(outcome(&*by_node, &[("x-envoy-downstream-service-node", "n2")]).1, None);
    let by_cluster = injector(vec![status(), ("upstream_cluster", text("other"))]);
    assert_eq!(outcome(&*by_cluster, &[]).1, None);
}

#[test]
fn an_answer_goes_as_fast_as_its_bucket_fills() {
    let limit = object([("fixed_limit", object([("limit_kbps", Value::Integer(1))])), ("percentage", percent(100))]);
    let filter = injector(vec![("response_rate_limit", limit)]);
    let mut stream = FakeStream::new("GET", "/", &[]);
    let mut state = State::default();
    assert!(matches!(stream.with(|stream| filter.on_request_headers(&mut state, stream, true)), Action::Continue));
    assert!(matches!(stream.with(|stream| filter.on_response_headers(&mut state, stream, false)), Action::Continue));
    stream.response_body.replace(&[0; 100]);
    let action = stream.with(|stream| filter.on_response_body(&mut state, stream, true));
    assert!(matches!(action, Action::Part(51)), "{action:?}");
    stream.response_body.replace(&[0; 49]);
    let action = stream.with(|stream| filter.on_response_resumed(&mut state, stream));
    assert!(matches!(action, Action::Pause), "{action:?}");
    assert_eq!(stream.host.timers.borrow().last().map(|(delay, _)| *delay), Some(INTERVAL));
    stream.host.clock = || (postrider_filter_api::Moment::from_nanos(50_000_000), std::time::SystemTime::UNIX_EPOCH);
    let action = stream.with(|stream| filter.on_response_resumed(&mut state, stream));
    assert!(matches!(action, Action::Continue), "{action:?}");
}

#[test]
fn what_was_done_is_noted() {
    let entries = vec![abort(("http_status", Value::Integer(503))), ("filter_metadata", object([("k", text("v"))]))];
    let filter = injector(entries);
    let mut stream = FakeStream::new("GET", "/", &[]);
    let action = stream.with(|stream| filter.on_request_headers(&mut State::default(), stream, true));
    assert!(matches!(action, Action::Respond(_)));
    assert_eq!(stream.info.metadata.get("chaos", "k"), Some(&text("v")));
}

#[test]
fn a_configuration_is_refused_with_all_its_errors() {
    let paths = |entries: Vec<(&str, Value)>| {
        let errors = build("fault", &config(entries)).err().unwrap_or_default();
        errors.into_iter().map(|error| error.path).collect::<Vec<_>>()
    };
    assert_eq!(paths(vec![("delay", object([])), ("abort", object([]))]), ["abort", "delay"]);
    let both = object([("http_status", Value::Integer(500)), ("header_abort", object([]))]);
    assert_eq!(paths(vec![("abort", both), ("odd", Value::Bool(true))]), ["abort", "odd"]);
    assert_eq!(paths(vec![abort(("http_status", Value::Integer(99)))]), ["abort.http_status"]);
    assert_eq!(paths(vec![abort(("grpc_status", Value::Integer(17)))]), ["abort.grpc_status"]);
    let slow = object([("fixed_limit", object([]))]);
    assert_eq!(paths(vec![("response_rate_limit", slow)]), ["response_rate_limit.fixed_limit.limit_kbps"]);
}
