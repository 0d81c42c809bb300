use super::*;
use crate::testing::{lines, object, place, text};
use postrider_filter_api::testing::FakeStream;
use postrider_filter_api::{Action, Body, BufferLimit, ClusterHealth, Flags, Flow, State, UpstreamOverride};
use postrider_filter_api::{Hooks, Stream};

const FAULT: &str = "envoy.extensions.filters.http.fault.v3.HTTPFault";
const CSRF: &str = "envoy.extensions.filters.http.csrf.v3.CsrfPolicy";

fn any(kind: &str, config: Value) -> Value {
    let Value::Map(mut entries) = config else { unreachable!() };
    entries.insert(0, ("@type".into(), text(&format!("type.googleapis.com/{kind}"))));
    Value::Map(entries)
}

fn abort(status: i64) -> Value {
    let percentage = object([("numerator", Value::Integer(100))]);
    object([("abort", object([("http_status", Value::Integer(status)), ("percentage", percentage)]))])
}

fn registry() -> Registry {
    let mut registry = Registry::default();
    crate::register(&mut registry);
    registry
}

fn shadow(kind: &str, config: Value) -> Result<Arc<dyn Factory>, ConfigError> {
    registry().build("chaos", KIND, &object([("filter", any(kind, config))])).unwrap()
}

fn ask(filter: &dyn Filter, stream: &mut FakeStream) -> Action {
    let mut state = State::default();
    let action = stream.with(|stream| filter.on_request_headers(&mut state, stream, true));
    stream.with(|stream| filter.on_response_headers(&mut state, stream, true));
    filter.on_complete(&mut state, &stream.info);
    action
}

#[test]
fn what_would_be_refused_is_noted_and_goes_on() {
    let factory = shadow(FAULT, abort(503)).ok().unwrap();
    let filter = factory.filter(&ScopedConfigs::default(), &place());
    let mut stream = FakeStream::new("GET", "/", &[]);
    assert!(matches!(ask(&*filter, &mut stream), Action::Done));
    assert_eq!(stream.info.metadata.get("chaos", "shadow_status"), Some(&Value::Integer(503)));
    assert_eq!(stream.info.metadata.get("chaos", "shadow_details"), Some(&text("fault_filter_abort")));
    assert!(!stream.info.flags.contains(Flags::FAULT_INJECTED));
    assert_eq!(lines(&stream.request.fields), [""; 0]);
}

#[test]
fn what_would_be_refused_is_counted_by_its_class() {
    let inner = registry().build("chaos", FAULT, &abort(418)).unwrap().ok().unwrap();
    let inner = inner.filter(&ScopedConfigs::default(), &place());
    let onlooker = Onlooker::new(inner, Rc::default(), ("chaos", "chaos"), &place());
    ask(&onlooker, &mut FakeStream::new("GET", "/", &[]));
    let counters = [stat::WOULD_DENY, stat::WOULD_DENY_4XX, stat::WOULD_DENY_5XX];
    assert_eq!(counters.map(|counter| onlooker.stats.value(counter)), [1, 1, 0]);
}

#[test]
fn routes_configure_the_filter_and_may_enforce_it() {
    let factory = shadow(FAULT, abort(503)).ok().unwrap();
    let with = |kind: &str, value: Value| {
        let route = Some(factory.route_config(kind, &value).ok().unwrap());
        let filter = factory.filter(&ScopedConfigs { route, ..ScopedConfigs::default() }, &place());
        let mut stream = FakeStream::new("GET", "/", &[]);
        match ask(&*filter, &mut stream) {
            Action::Respond(reply) => (true, reply.status),
            _ => match stream.info.metadata.get("chaos", "shadow_status") {
                Some(Value::Integer(status)) => (false, *status as u16),
                _ => (false, 0),
            },
        }
    };
    assert_eq!(with(FAULT, abort(404)), (false, 404));
    assert_eq!(with(ROUTE_KIND, object([("filter", any(FAULT, abort(404)))])), (false, 404));
    let enforced = ("enforced", Value::Bool(true));
    assert_eq!(with(ROUTE_KIND, object([enforced.clone()])), (true, 503));
    assert_eq!(with(ROUTE_KIND, object([enforced, ("filter", any(FAULT, abort(404)))])), (true, 404));
}

/// A filter in the shadow with its counters.
fn onlooker(inner: impl Filter + 'static) -> Onlooker {
    Onlooker::new(Rc::new(inner), Rc::default(), ("own", "own"), &place())
}

#[test]
fn a_body_that_would_be_held_goes_on_and_one_that_would_be_too_large_is_told() {
    let config = object([("max_request_bytes", Value::Integer(10))]);
    let factory = shadow("envoy.extensions.filters.http.buffer.v3.Buffer", config).ok().unwrap();
    let filter = factory.filter(&ScopedConfigs::default(), &place());
    let (mut stream, mut state) = (FakeStream::new("POST", "/", &[]), State::default());
    assert!(matches!(stream.with(|stream| filter.on_request_headers(&mut state, stream, false)), Action::Continue));
    assert_eq!(stream.info.buffer_limit, BufferLimit::OfConnection);
    for (piece, status) in [(6, None), (4, None), (1, Some(&Value::Integer(413)))] {
        stream.request_body = Body::default();
        stream.request_body.push(&vec![0; piece]);
        let action = stream.with(|stream| filter.on_request_body(&mut state, stream, false));
        assert!(matches!(action, Action::Continue | Action::Done), "{action:?}");
        assert_eq!(stream.request_body.bytes().len(), piece);
        assert!(!stream.request_body.is_changed());
        assert_eq!(stream.info.metadata.get("chaos", "shadow_status"), status);
    }
}

/// It changes whatever it sees, and wants to see all of a request's body.
struct Meddler;

impl Filter for Meddler {
    fn hooks(&self) -> Hooks {
        Hooks {
            request_headers: true,
            request_body: true,
            response_headers: true,
            response_body: true,
            ..Hooks::default()
        }
    }

    fn on_request_headers(&self, _: &mut State, stream: &mut Stream<'_>, _: bool) -> Action {
        stream.request.set_path(b"/elsewhere").unwrap();
        stream.request.fields.remove_name(b"authorization");
        stream.info.route_is_stale = true;
        stream.info.flags.insert(Flags::RATE_LIMITED);
        stream.info.metadata.set("own", "seen", Value::Bool(true));
        Action::Buffer
    }

    fn on_request_body(&self, _: &mut State, stream: &mut Stream<'_>, end: bool) -> Action {
        if end {
            assert_eq!(stream.request_body.bytes(), b"abcdef");
            stream.request_body.replace(b"other");
        }
        Action::Buffer
    }

    fn on_response_headers(&self, _: &mut State, stream: &mut Stream<'_>, _: bool) -> Action {
        stream.response.set_status(204);
        stream.response.fields.append_name(b"x-own", b"1").unwrap();
        Action::Take
    }

    fn on_response_body(&self, _: &mut State, _: &mut Stream<'_>, _: bool) -> Action {
        Action::Continue
    }

    fn on_response_flow(&self, _: &mut State, stream: &mut Stream<'_>) -> Flow {
        stream.response_body.replace(b"other");
        Flow::Finish
    }
}

#[test]
fn what_would_be_changed_goes_on_as_it_came() {
    let filter = onlooker(Meddler);
    let (mut stream, mut state) = (FakeStream::new("POST", "/a", &[("authorization", "x")]), State::default());
    stream.with(|stream| filter.on_request_headers(&mut state, stream, false));
    for (piece, end) in [(b"abc", false), (b"def", true)] {
        stream.request_body = Body::default();
        stream.request_body.push(piece);
        stream.with(|stream| filter.on_request_body(&mut state, stream, end));
        assert_eq!(stream.request_body.bytes(), piece);
        assert!(!stream.request_body.is_changed());
    }
    assert_eq!(
        (stream.request.path(), &*lines(&stream.request.fields)),
        (&b"/a"[..], &["authorization: x".into()][..])
    );
    assert!(!stream.info.route_is_stale && !stream.info.flags.contains(Flags::RATE_LIMITED));
    assert!(stream.info.metadata.get("own", "seen").is_some());

    let action = stream.with(|stream| filter.on_response_headers(&mut state, stream, false));
    assert!(matches!(action, Action::Take));
    assert_eq!((stream.response.status(), stream.response.fields.iter().count()), (200, 0));
    stream.response_body.push(b"mine");
    stream.with(|stream| filter.on_response_body(&mut state, stream, true));
    stream.response_body = Body::default();
    assert!(matches!(stream.with(|stream| filter.on_response_flow(&mut state, stream)), Flow::Release));
    assert_eq!(stream.response_body.bytes(), b"mine");
    let counters = [stat::WOULD_CHANGE_REQUEST, stat::WOULD_CHANGE_RESPONSE, stat::WOULD_DENY];
    assert_eq!(counters.map(|counter| filter.stats.value(counter)), [1, 1, 0]);
}

/// It chooses a host and takes no other.
struct Chooser;

impl Filter for Chooser {
    fn hooks(&self) -> Hooks {
        Hooks { request_headers: true, ..Hooks::default() }
    }

    fn on_request_headers(&self, _: &mut State, stream: &mut Stream<'_>, _: bool) -> Action {
        let address = "127.0.0.1:80".parse().unwrap();
        stream.info.upstream_override = Some(UpstreamOverride { address, strict: true, missing_status: 404 });
        Action::Done
    }
}

#[test]
fn a_host_that_would_be_chosen_is_told_and_so_is_that_it_is_none() {
    for (all, available, status) in
        [(1, 1, None), (1, 0, Some(&Value::Integer(503))), (0, 0, Some(&Value::Integer(404)))]
    {
        let filter = onlooker(Chooser);
        let mut stream = FakeStream::new("GET", "/", &[]);
        stream.host.health = ClusterHealth { all, available, ..ClusterHealth::default() };
        let mut route = stream.route.take().unwrap();
        route.target = postrider_filter_api::RouteTarget::Cluster("c".into());
        stream.route = Some(route);
        assert!(matches!(ask(&filter, &mut stream), Action::Done));
        assert_eq!(stream.info.upstream_override, None);
        assert_eq!(filter.stats.value(stat::WOULD_CHOOSE_HOST), 1);
        assert_eq!(stream.info.metadata.get("own", "shadow_status"), status);
        assert_eq!(stream.info.metadata.get("own", "shadow_host"), Some(&text("127.0.0.1:80")));
    }
}

#[test]
fn what_would_be_held_up_is_told_and_does_not_wait() {
    let always = || object([("numerator", Value::Integer(100))]);
    let delay = object([("fixed_delay", text("0.25s")), ("percentage", always())]);
    let rate = object([("fixed_limit", object([("limit_kbps", Value::Integer(1))])), ("percentage", always())]);
    let factory = shadow(FAULT, object([("delay", delay), ("response_rate_limit", rate)])).ok().unwrap();
    let filter = factory.filter(&ScopedConfigs::default(), &place());
    let (mut stream, mut state) = (FakeStream::new("GET", "/", &[]), State::default());
    let action = stream.with(|stream| filter.on_request_headers(&mut state, stream, true));
    assert!(matches!(action, Action::Continue), "{action:?}");
    assert_eq!(stream.info.metadata.get("chaos", "shadow_delay_ms"), Some(&Value::Integer(250)));
    assert!(!stream.info.flags.contains(Flags::DELAY_INJECTED));
    stream.with(|stream| filter.on_response_headers(&mut state, stream, false));
    stream.response_body.push(&[0; 4096]);
    let action = stream.with(|stream| filter.on_response_body(&mut state, stream, true));
    assert!(matches!(action, Action::Done), "{action:?}");
    assert_eq!(stream.info.metadata.get("chaos", "shadow_paced"), Some(&Value::Bool(true)));
    assert!(stream.host.timers.borrow().is_empty());
}

#[test]
fn errors_have_their_places_in_the_whole() {
    let paths = |errors: Result<Arc<dyn Factory>, ConfigError>| {
        errors.err().unwrap_or_default().into_iter().map(|error| error.path).collect::<Vec<_>>()
    };
    assert_eq!(paths(shadow(CSRF, object([("odd", Value::Bool(true))]))), ["filter.filter_enabled", "filter.odd"]);
    assert_eq!(paths(shadow("acme.Filter", object([]))), ["filter"]);
    assert_eq!(paths(registry().build("s", KIND, &object([])).unwrap()), ["filter"]);
    assert!(registry().knows(KIND));
    assert_eq!(registry().check("s", KIND, &object([])).len(), 1);
}
