//! The filter contract's hooks on one side, streams in Go on the other.

use std::borrow::Cow;
use std::rc::Rc;
use std::sync::Arc;

use postrider_filter_api::plugin::{Facts, OnError};
use postrider_filter_api::{
    Action, Closing, Ended, Filter, Flow, Hooks, Host, LocalReply, Logged, Sampling, State, Stream,
};
use postrider_filter_plugin::stat::route as account;
use postrider_filter_plugin::{Account, Circuit};
use postrider_telemetry::{Block, info, warning};

use crate::abi::{LOG_AT_START, LOG_MEANWHILE};
use crate::apart::{self, Child, Lane};
use crate::bells::Side;
use crate::parsed::Parsed;
use crate::pool::Pool;
use crate::questions::Secrets;
use crate::session::{Down, Session};

/// What clients are told of a panic, in Envoy's words.
const PANIC_BODY: &str = "error happened in filter\r\n";

postrider_telemetry::stat_set! {
    /// What Envoy's Go filter counts; prefix: the connection manager's, then `golang`.
    pub(crate) mod stat = "http";
    counters { PANIC_ERROR = "panic_error" }
}

/// A plugin with its own configuration, wherever it runs.
#[derive(Debug)]
pub(crate) struct Recipe {
    pub(crate) facts: Arc<Facts>,
    pub(crate) secrets: Secrets,
    /// The panics of this plugin are answered with Envoy's words.
    pub(crate) answers_as_envoy: bool,
    /// The only hooks to call; none means all.
    pub(crate) phases: Vec<String>,
}

/// A plugin on one worker.
pub(crate) struct Plugin {
    pub(crate) recipe: Arc<Recipe>,
    pub(crate) pool: &'static Pool,
    pub(crate) account: Account,
    pub(crate) circuit: Circuit,
    pub(crate) stats: Rc<Block>,
    /// Which calls are measured.
    pub(crate) sampling: Sampling,
    /// Bytes of a message that may be held.
    pub(crate) limit: usize,
    pub(crate) host: Rc<dyn Host>,
}

/// A plugin as some routes see it.
pub(crate) struct GoFilter {
    pub(crate) plugin: Rc<Plugin>,
    /// `None` where it is switched off.
    pub(crate) config: Option<Arc<Parsed>>,
}

impl Recipe {
    fn wants(&self, phase: &str) -> bool {
        self.phases.is_empty() || self.phases.iter().any(|known| known == phase)
    }

    fn wants_any(&self, phases: &[&str]) -> bool {
        phases.iter().any(|phase| self.wants(phase))
    }

    /// More than the head of a message is shown to it.
    pub(crate) fn watches_body(&self, side: Side) -> bool {
        self.wants_any(match side {
            Side::Request => &["request_body", "request_trailers"],
            Side::Response => &["response_body", "response_trailers"],
        })
    }

    /// It is told of the end, and may log.
    pub(crate) fn watches_end(&self) -> bool {
        self.wants("complete")
    }

    fn hooks(&self) -> Hooks {
        let response = self.wants_any(&["response_headers", "response_body", "response_trailers"]);
        let request = self.wants_any(&["request_headers", "request_body", "request_trailers"]);
        let (request_body, response_body) = (self.watches_body(Side::Request), self.watches_body(Side::Response));
        Hooks {
            request_headers: request,
            request_body,
            request_trailers: request_body,
            response_headers: response,
            response_body,
            response_trailers: response_body,
            complete: request || response,
            keeps_bodies: false,
            declares_length: true,
        }
    }

    /// What a client is told of a failure.
    pub(crate) fn reply(&self, status: u16) -> LocalReply {
        match self.answers_as_envoy {
            true => LocalReply { status, body: Cow::Borrowed(PANIC_BODY.as_bytes()), ..LocalReply::default() },
            false => LocalReply { status, details: Cow::Borrowed("plugin_failed"), ..LocalReply::default() },
        }
    }
}

impl Plugin {
    /// It panicked.
    pub(crate) fn fault(&self, stream: &Stream<'_>) {
        self.stats.inc(stat::PANIC_ERROR);
        let counts = self.account.of(stream.route);
        counts.inc(account::ERRORS);
        if self.circuit.fault(stream.host.now()) {
            counts.inc(account::CIRCUIT_OPENED);
            if self.account.set_circuit_open(true) {
                let name = &self.recipe.facts.name;
                warning!(Filter, "{name} keeps failing and is left alone for a while: its circuit is open");
            }
        }
    }

    /// Its process ended with this stream in hand. The circuit hears nothing of it: there is no calling what is not there.
    pub(crate) fn lost(&self, stream: &Stream<'_>) {
        self.account.of(stream.route).inc(account::ERRORS);
    }

    /// It is not called for a stream.
    #[cold]
    #[inline(never)]
    fn pass_by(&self, stream: &Stream<'_>) -> Action {
        self.account.of(stream.route).inc(account::BYPASSED);
        match self.recipe.facts.policy.on_error {
            OnError::Continue => Action::Done,
            OnError::Respond(status) => Action::Respond(Box::new(self.recipe.reply(status))),
        }
    }

    /// The way to its process from this worker; `None` while it is not there.
    pub(crate) fn lane(&self, child: &Child) -> Option<Rc<Lane>> {
        apart::lane_here(child, self.pool.worker, || self.host.remote())
    }

    fn succeed(&self) {
        if self.circuit.succeed() && self.account.set_circuit_open(false) {
            info!(Filter, "{} works again: its circuit is closed", self.recipe.facts.name);
        }
    }
}

/// In a stream's state: it passes this plugin by.
const PASSED_BY: u64 = 1;

impl GoFilter {
    /// The stream in Go, which begins with its first head.
    fn begin<'s>(&self, state: &'s mut State, stream: &Stream<'_>) -> Result<&'s mut Session, Action> {
        if let State::Number(PASSED_BY) = state {
            return Err(Action::Done);
        }
        if let State::Empty = state {
            let Some(config) = &self.config else { return Err(Action::Done) };
            let plugin = &self.plugin;
            if !plugin.circuit.is_closed() && plugin.circuit.is_open(stream.host.now()) {
                *state = State::Number(PASSED_BY);
                return Err(plugin.pass_by(stream));
            }
            match Session::new(plugin, config) {
                Ok(session) => *state = State::Any(Box::new(session)),
                Err(Down) => {
                    *state = State::Number(PASSED_BY);
                    return Err(plugin.pass_by(stream));
                }
            }
        }
        session(state).ok_or(Action::Done)
    }

    fn head(&self, state: &mut State, side: Side, stream: &mut Stream<'_>, end: bool) -> Action {
        match self.begin(state, stream) {
            Ok(session) => session.head(side, stream, end),
            Err(action) => action,
        }
    }
}

fn session(state: &mut State) -> Option<&mut Session> {
    match state {
        State::Any(session) => session.downcast_mut(),
        _ => None,
    }
}

fn act(state: &mut State, hook: impl FnOnce(&mut Session) -> Action) -> Action {
    session(state).map_or(Action::Done, hook)
}

fn flow(state: &mut State, hook: impl FnOnce(&mut Session) -> Flow) -> Flow {
    session(state).map_or(Flow::Release, hook)
}

impl Filter for GoFilter {
    fn hooks(&self) -> Hooks {
        if self.config.is_some() { self.plugin.recipe.hooks() } else { Hooks::default() }
    }

    fn on_request_headers(&self, state: &mut State, stream: &mut Stream<'_>, end: bool) -> Action {
        self.head(state, Side::Request, stream, end)
    }

    fn on_request_body(&self, state: &mut State, stream: &mut Stream<'_>, end: bool) -> Action {
        act(state, |session| session.body(Side::Request, stream, end))
    }

    fn on_request_trailers(&self, state: &mut State, stream: &mut Stream<'_>) -> Action {
        act(state, |session| session.trailers(Side::Request, stream))
    }

    fn on_request_resumed(&self, state: &mut State, stream: &mut Stream<'_>) -> Action {
        act(state, |session| session.resumed(Side::Request, stream))
    }

    fn on_request_flow(&self, state: &mut State, stream: &mut Stream<'_>) -> Flow {
        flow(state, |session| session.flow(Side::Request, stream))
    }

    fn on_response_headers(&self, state: &mut State, stream: &mut Stream<'_>, end: bool) -> Action {
        self.head(state, Side::Response, stream, end)
    }

    fn on_response_body(&self, state: &mut State, stream: &mut Stream<'_>, end: bool) -> Action {
        act(state, |session| session.body(Side::Response, stream, end))
    }

    fn on_response_trailers(&self, state: &mut State, stream: &mut Stream<'_>) -> Action {
        act(state, |session| session.trailers(Side::Response, stream))
    }

    fn on_response_resumed(&self, state: &mut State, stream: &mut Stream<'_>) -> Action {
        act(state, |session| session.resumed(Side::Response, stream))
    }

    fn on_response_flow(&self, state: &mut State, stream: &mut Stream<'_>) -> Flow {
        flow(state, |session| session.flow(Side::Response, stream))
    }

    fn on_moment(&self, state: &mut State, ended: &Ended<'_>) {
        let moment = match ended.info.logged {
            Logged::Start => LOG_AT_START,
            Logged::Periodic => LOG_MEANWHILE,
            _ => return,
        };
        // The start comes before any head: it is the stream's first call into Go. One that cannot be served is found out
        // with its head.
        if let (State::Empty, LOG_AT_START, Some(config)) = (&*state, moment, &self.config)
            && self.plugin.circuit.is_closed()
            && let Ok(session) = Session::new(&self.plugin, config)
        {
            *state = State::Any(Box::new(session));
        }
        if let Some(session) = session(state) {
            session.note(moment, ended);
        }
    }

    fn on_closing(&self, state: &mut State, closing: &mut Closing<'_>) {
        // One that never came as far as this plugin is logged by it all the same.
        if let (State::Empty, Some(config)) = (&*state, &self.config)
            && self.plugin.recipe.watches_end()
            && self.plugin.circuit.is_closed()
            && let Ok(session) = Session::new(&self.plugin, config)
        {
            *state = State::Any(Box::new(session));
        }
        if let Some(session) = session(state) {
            session.close(closing);
        }
    }

    fn on_ended(&self, state: &mut State, ended: &Ended<'_>) {
        if let Some(session) = session(state) {
            session.end(ended);
            if !session.faulted && !self.plugin.circuit.is_closed() {
                self.plugin.succeed();
            }
        }
    }
}
