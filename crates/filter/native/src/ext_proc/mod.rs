//! Lets a service of the user's own, a processor, look at requests and answers and change them, over a gRPC stream.
//!
//! Configured as `envoy.extensions.filters.http.ext_proc.v3.ExternalProcessor`; virtual hosts, routes and weighted clusters
//! turn it off or say otherwise by `ExtProcPerRoute`. What is sent and what answers do is as in Envoy 1.40.
//!
//! ```text
//!            head ──asked──> pause ──answer──> on         one conversation for both messages of a stream;
//! BUFFERED   body ──held, asked──> pause ──> on           what an answer is to is known by its kind
//! STREAMED   piece ──> taken, asked ──> … ──answer──> piece
//! DUPLEX     piece ──> taken, sent      … ──whatever the processor says──>
//! ```
//!
//! Bodies that travel in pieces are taken over ([`Action::Take`]): a piece is taken only when the queue to the processor
//! has room, and an answer is read only when what it lets go on can leave. So a slow processor slows the sender down, and a
//! slow receiver the processor.

mod answers;
mod attributes;
mod config;
mod messages;
mod modes;
mod mutation;
mod passage;
mod session;

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use postrider_filter_api::{
    Action, ConfigError, Factory, Filter, Flow, GrpcService, Hooks, Place, RouteConfig, ScopedConfigs, State, Stream,
    StreamInfo,
};
use postrider_model::{Value, ValueError};
use postrider_telemetry::Block;

use attributes::Attribute;
use config::{Config, Override};
use modes::{Modes, Side};
use session::Session;

pub(crate) const KIND: &str = "envoy.extensions.filters.http.ext_proc.v3.ExternalProcessor";
const ROUTE_KIND: &str = "envoy.extensions.filters.http.ext_proc.v3.ExtProcPerRoute";

/// How long a processor may take to end its side when nothing is left to be said.
const GOODBYE: Duration = Duration::from_secs(1);

/// Reads a gateway-level configuration.
pub(crate) fn build(_name: &str, value: &Value) -> Result<Arc<dyn Factory>, ConfigError> {
    Ok(Arc::new(ExtProc(Arc::new(config::read(value)?))))
}

struct ExtProc(Arc<Config>);

impl Factory for ExtProc {
    fn route_config(&self, kind: &str, value: &Value) -> Result<RouteConfig, ConfigError> {
        if kind != ROUTE_KIND {
            let message = format!("ext_proc is overridden by {ROUTE_KIND}, not by {kind}");
            return Err(vec![ValueError { path: String::new(), message }]);
        }
        Ok(RouteConfig::new(config::read_route(value)?, value))
    }

    fn filter(&self, configs: &ScopedConfigs, place: &Place<'_>) -> Rc<dyn Filter> {
        let prefix = match &self.0.stat_prefix {
            Some(own) => format!("{}.ext_proc.{own}", place.stat_prefix),
            None => format!("{}.ext_proc", place.stat_prefix),
        };
        Rc::new(Processor {
            set: Settings::merged(&self.0, configs),
            stats: place.stats.block(&stat::SET, &prefix),
            limit: if place.buffer_limit == 0 { usize::MAX } else { place.buffer_limit },
            config: self.0.clone(),
        })
    }
}

postrider_telemetry::stat_set! {
    /// What became of conversations; prefix: the connection manager's, then `ext_proc`.
    mod stat = "http";
    counters {
        CLEAR_ROUTE_CACHE_DISABLED = "clear_route_cache_disabled",
        CLEAR_ROUTE_CACHE_IGNORED = "clear_route_cache_ignored",
        FAILURE_MODE_ALLOWED = "failure_mode_allowed",
        IMMEDIATE_RESPONSES_SENT = "immediate_responses_sent",
        MESSAGE_TIMEOUTS = "message_timeouts",
        OVERRIDE_MESSAGE_TIMEOUT_IGNORED = "override_message_timeout_ignored",
        OVERRIDE_MESSAGE_TIMEOUT_RECEIVED = "override_message_timeout_received",
        REJECTED_HEADER_MUTATIONS = "rejected_header_mutations",
        SPURIOUS_MSGS_RECEIVED = "spurious_msgs_received",
        STREAM_MSGS_RECEIVED = "stream_msgs_received",
        STREAM_MSGS_SENT = "stream_msgs_sent",
        STREAMS_CLOSED = "streams_closed",
        STREAMS_FAILED = "streams_failed",
        STREAMS_STARTED = "streams_started",
    }
}

/// The filter on one worker, as one route sees it.
struct Processor {
    config: Arc<Config>,
    set: Settings,
    stats: Rc<Block>,
    /// Bytes of a message that may be held.
    limit: usize,
}

/// What routes may say otherwise.
struct Settings {
    modes: Modes,
    service: GrpcService,
    request_attributes: Vec<&'static Attribute>,
    response_attributes: Vec<&'static Attribute>,
    forwarding: config::Names,
    receiving: config::Names,
    failure_mode_allow: bool,
    has_span: bool,
}

impl Settings {
    /// The most specific scope that says something has the last word, each about its own.
    fn merged(config: &Config, configs: &ScopedConfigs) -> Settings {
        let scopes: Vec<&Override> = configs.specific_first().collect();
        let disabled = scopes.first().is_some_and(|scope| scope.disabled);
        let modes = scopes.iter().take_while(|scope| !scope.disabled).find_map(|scope| scope.modes);
        let mut service =
            scopes.iter().find_map(|scope| scope.service.clone()).unwrap_or_else(|| config.service.clone());
        for (name, value) in scopes.iter().rev().flat_map(|scope| &scope.metadata) {
            service.metadata.retain(|(known, _)| known != name);
            service.metadata.push((name.clone(), value.clone()));
        }
        let of = |read: fn(&Override) -> &Option<Vec<&'static Attribute>>, own: &Vec<&'static Attribute>| {
            scopes.iter().find_map(|scope| read(scope).clone()).unwrap_or_else(|| own.clone())
        };
        let forwarding = scopes.iter().find_map(|scope| scope.namespaces.forwarding.as_ref());
        let receiving = scopes.iter().find_map(|scope| scope.namespaces.receiving.as_ref());
        Settings {
            modes: if disabled { Modes::NOTHING } else { modes.unwrap_or(config.modes) },
            service,
            request_attributes: of(|scope| &scope.request_attributes, &config.request_attributes),
            response_attributes: of(|scope| &scope.response_attributes, &config.response_attributes),
            forwarding: forwarding.or(config.namespaces.forwarding.as_ref()).cloned().unwrap_or_default(),
            receiving: receiving.or(config.namespaces.receiving.as_ref()).cloned().unwrap_or_default(),
            failure_mode_allow: scopes
                .iter()
                .find_map(|scope| scope.failure_mode_allow)
                .unwrap_or(config.failure_mode_allow),
            has_span: scopes.iter().find_map(|scope| scope.has_span).unwrap_or(config.has_span),
        }
    }
}

impl Filter for Processor {
    fn hooks(&self) -> Hooks {
        let modes = &self.set.modes;
        // What begins with nothing stays so: only an answer to headers makes it more.
        let any = !(modes.request.is_nothing() && modes.response.is_nothing());
        Hooks {
            request_headers: any,
            request_body: any,
            request_trailers: any,
            response_headers: any,
            response_body: any,
            response_trailers: any,
            complete: any,
            ..Hooks::default()
        }
    }

    fn on_request_headers(&self, state: &mut State, stream: &mut Stream<'_>, end: bool) -> Action {
        self.act(state, |session| self.head(session, Side::Request, stream, end))
    }

    fn on_request_body(&self, state: &mut State, stream: &mut Stream<'_>, end: bool) -> Action {
        self.act(state, |session| self.body(session, Side::Request, stream, end))
    }

    fn on_request_trailers(&self, state: &mut State, stream: &mut Stream<'_>) -> Action {
        self.act(state, |session| self.trailers_came(session, Side::Request, stream))
    }

    fn on_request_resumed(&self, state: &mut State, stream: &mut Stream<'_>) -> Action {
        self.act(state, |session| self.resumed(session, Side::Request, stream))
    }

    fn on_request_flow(&self, state: &mut State, stream: &mut Stream<'_>) -> Flow {
        self.flows(state, |session| self.flow(session, Side::Request, stream))
    }

    fn on_response_headers(&self, state: &mut State, stream: &mut Stream<'_>, end: bool) -> Action {
        self.act(state, |session| self.head(session, Side::Response, stream, end))
    }

    fn on_response_body(&self, state: &mut State, stream: &mut Stream<'_>, end: bool) -> Action {
        self.act(state, |session| self.body(session, Side::Response, stream, end))
    }

    fn on_response_trailers(&self, state: &mut State, stream: &mut Stream<'_>) -> Action {
        self.act(state, |session| self.trailers_came(session, Side::Response, stream))
    }

    fn on_response_resumed(&self, state: &mut State, stream: &mut Stream<'_>) -> Action {
        self.act(state, |session| self.resumed(session, Side::Response, stream))
    }

    fn on_response_flow(&self, state: &mut State, stream: &mut Stream<'_>) -> Flow {
        self.flows(state, |session| self.flow(session, Side::Response, stream))
    }

    fn on_complete(&self, state: &mut State, _: &StreamInfo) {
        if let State::Any(session) = state
            && let Some(session) = session.downcast_mut::<Session>()
        {
            self.say_goodbye(session);
        }
    }
}

impl Processor {
    fn act(&self, state: &mut State, hook: impl FnOnce(&mut Session) -> Result<Action, answers::Reply>) -> Action {
        match state.get_or_insert_with(|| Session::new(&self.set.modes)) {
            Some(session) => hook(session).unwrap_or_else(Action::Respond),
            None => Action::Done,
        }
    }

    fn flows(&self, state: &mut State, hook: impl FnOnce(&mut Session) -> Result<Flow, answers::Reply>) -> Flow {
        match state.get_or_insert_with(|| Session::new(&self.set.modes)) {
            Some(session) => hook(session).unwrap_or_else(Flow::Respond),
            None => Flow::Release,
        }
    }
}

#[cfg(test)]
mod tests;
