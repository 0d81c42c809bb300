//! Filters that do what a test's closure says, and remember every call.

use std::any::Any;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use postrider_filter_api::*;
use postrider_http::RequestHead;
use postrider_model::{FilterSlot, Forward, HttpConnection, Route, Value};

use postrider_testkit::Origin;

use crate::common::{Running, Site, cluster};

/// A hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    RequestHead,
    RequestBody,
    RequestTrailers,
    RequestResumed,
    ResponseHead,
    ResponseBody,
    ResponseTrailers,
    ResponseResumed,
    Complete,
}

pub use At::*;

pub const REQUEST: &[At] = &[RequestHead, RequestBody, RequestTrailers];
pub const RESPONSE: &[At] = &[ResponseHead, ResponseBody, ResponseTrailers];

type Act = Arc<dyn Fn(At, &mut State, &mut Stream<'_>, bool) -> Action + Send + Sync>;

/// One filter of a test.
#[derive(Clone)]
pub struct Script {
    pub name: String,
    hooks: Vec<At>,
    act: Act,
    trace: Arc<Mutex<Vec<String>>>,
}

static SCRIPTS: OnceLock<Mutex<HashMap<String, Script>>> = OnceLock::new();
static COUNT: AtomicUsize = AtomicUsize::new(0);

impl Script {
    /// Wants `hooks`, and answers each with what `act` says.
    pub fn new(
        hooks: &[At],
        act: impl Fn(At, &mut State, &mut Stream<'_>, bool) -> Action + Send + Sync + 'static,
    ) -> Script {
        let name = format!("script-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let script = Script { name, hooks: hooks.to_vec(), act: Arc::new(act), trace: Arc::default() };
        SCRIPTS.get_or_init(Mutex::default).lock().unwrap().insert(script.name.clone(), script.clone());
        script
    }

    /// Every call so far: hook, bytes held, and `end` where it was so.
    pub fn calls(&self) -> Vec<String> {
        self.trace.lock().unwrap().clone()
    }

    pub fn slot(&self) -> FilterSlot {
        FilterSlot {
            name: self.name.clone(),
            kind: "script".into(),
            config: Value::Null,
            disabled: false,
            origin: Default::default(),
        }
    }

    fn note(&self, at: At, body: &[u8], end: bool) {
        let body = match body.len() {
            0..=40 => String::from_utf8_lossy(body).into_owned(),
            length => format!("{length} bytes"),
        };
        let parts = [format!("{at:?}"), body, if end { "end".into() } else { String::new() }];
        let line = parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ");
        self.trace.lock().unwrap().push(line);
    }

    fn call(&self, at: At, state: &mut State, stream: &mut Stream<'_>, end: bool) -> Action {
        let request = matches!(at, RequestHead | RequestBody | RequestTrailers | RequestResumed);
        let body = if request { &stream.request_body } else { &stream.response_body };
        self.note(at, body.bytes(), end);
        (self.act)(at, state, stream, end)
    }
}

impl Factory for Script {
    fn route_config(&self, _: &str, value: &Value) -> Result<RouteConfig, ConfigError> {
        Ok(RouteConfig::new(value.clone(), value))
    }

    fn filter(&self, configs: &ScopedConfigs, _: &Place<'_>) -> Rc<dyn Filter> {
        match configs.most_specific::<Value>() {
            // An override names the script to run in this one's place.
            Some(Value::String(name)) => Rc::new(find(name)),
            _ => Rc::new(self.clone()),
        }
    }
}

impl Filter for Script {
    fn hooks(&self) -> Hooks {
        let has = |at| self.hooks.contains(&at);
        Hooks {
            request_headers: has(RequestHead),
            request_body: has(RequestBody),
            request_trailers: has(RequestTrailers),
            response_headers: has(ResponseHead),
            response_body: has(ResponseBody),
            response_trailers: has(ResponseTrailers),
            complete: has(Complete),
            ..Hooks::default()
        }
    }

    fn on_request_headers(&self, state: &mut State, stream: &mut Stream<'_>, end: bool) -> Action {
        self.call(RequestHead, state, stream, end)
    }

    fn on_request_body(&self, state: &mut State, stream: &mut Stream<'_>, end: bool) -> Action {
        self.call(RequestBody, state, stream, end)
    }

    fn on_request_trailers(&self, state: &mut State, stream: &mut Stream<'_>) -> Action {
        self.call(RequestTrailers, state, stream, false)
    }

    fn on_request_resumed(&self, state: &mut State, stream: &mut Stream<'_>) -> Action {
        self.call(RequestResumed, state, stream, false)
    }

    fn on_response_headers(&self, state: &mut State, stream: &mut Stream<'_>, end: bool) -> Action {
        self.call(ResponseHead, state, stream, end)
    }

    fn on_response_body(&self, state: &mut State, stream: &mut Stream<'_>, end: bool) -> Action {
        self.call(ResponseBody, state, stream, end)
    }

    fn on_response_trailers(&self, state: &mut State, stream: &mut Stream<'_>) -> Action {
        self.call(ResponseTrailers, state, stream, false)
    }

    fn on_response_resumed(&self, state: &mut State, stream: &mut Stream<'_>) -> Action {
        self.call(ResponseResumed, state, stream, false)
    }

    fn on_complete(&self, _: &mut State, info: &StreamInfo) {
        self.note(Complete, format!("{} {}", info.status, info.details).as_bytes(), false);
    }
}

fn find(name: &str) -> Script {
    SCRIPTS.get_or_init(Mutex::default).lock().unwrap().get(name).unwrap().clone()
}

/// The one kind of filter that these tests know.
pub fn registry() -> Registry {
    let mut registry = Registry::default();
    registry.register("script", |name, _| Ok(Arc::new(find(name))));
    registry
}

/// A site with these filters; the cluster `aside` is at `aside`.
pub fn site(origin: SocketAddr, aside: SocketAddr, scripts: &[&Script]) -> Site {
    let mut site = Site::new(origin);
    site.http.filters = scripts.iter().map(|script| script.slot()).collect();
    site.http.http1.enable_trailers = true;
    site.clusters.push(cluster("aside", aside));
    site
}

pub fn run(origin: SocketAddr, aside: SocketAddr, scripts: &[&Script]) -> Running {
    site(origin, aside, scripts).run(&registry())
}

/// The only route.
pub fn route(http: &mut HttpConnection) -> &mut Route {
    let host = Arc::make_mut(&mut Arc::make_mut(&mut http.routes).virtual_hosts[0]);
    Arc::make_mut(&mut host.routes[0])
}

pub fn forward(http: &mut HttpConnection) -> &mut Forward {
    match &mut route(http).action {
        postrider_model::Action::Forward(forward) => forward,
        other => panic!("{other:?}"),
    }
}

/// An origin for calls, and for answers that do not matter.
pub fn fine() -> Origin {
    Origin::fixed("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
}

/// A `GET` for a call.
pub fn head(path: &str) -> RequestHead {
    let mut head = RequestHead::new();
    head.set_method(b"GET").unwrap();
    head.set_authority(b"aside").unwrap();
    head.set_path(path.as_bytes()).unwrap();
    head
}

/// Calls `cluster` and keeps the call in `state`; `done` hears the outcome and the stream is resumed.
pub fn call(
    state: &mut State,
    stream: &Stream<'_>,
    cluster: &str,
    timeout: Option<Duration>,
    done: impl FnOnce(Result<Answer, CallFailure>) + 'static,
) -> Result<(), UnknownCluster> {
    let resumer = stream.resumer.clone();
    let done: Box<dyn FnOnce(_)> = Box::new(move |outcome| {
        done(outcome);
        resumer.resume();
    });
    let call = Call {
        cluster: cluster.into(),
        head: head("/aside"),
        body: Vec::new(),
        timeout,
        trace: None,
        retries: None,
        done,
    };
    let kept: Box<dyn Any> = Box::new(stream.host.call(call)?);
    *state = State::Any(kept);
    Ok(())
}

/// Pauses until the cluster `aside` has answered.
pub fn pause(state: &mut State, stream: &Stream<'_>) -> Action {
    call(state, stream, "aside", None, drop).unwrap();
    Action::Pause
}

/// A short answer with a status.
pub fn respond(status: u16, body: &'static str) -> Action {
    Action::Respond(Box::new(LocalReply { status, body: body.as_bytes().into(), ..LocalReply::default() }))
}
