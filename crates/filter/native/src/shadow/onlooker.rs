//! The filter around the one in the shadow, on one worker.

use std::rc::Rc;

use postrider_filter_api::{
    Action, Body, Closing, Ended, Filter, Flow, Hooks, Place, State, Stream, StreamInfo, UpstreamOverride, Withheld,
};
use postrider_model::Value;
use postrider_telemetry::Block;
use postrider_telemetry::stats::Counter;

use super::found::{Found, Undone};
use super::held::{Kept, Side, hide};
use super::stat;

/// As one route sees it.
pub(super) struct Onlooker {
    inner: Rc<dyn Filter>,
    /// Where the filter says what it left out.
    withheld: Rc<Withheld>,
    /// In its chain.
    name: String,
    pub(super) stats: Rc<Block>,
    /// The most bytes of a message that a filter may hold here.
    buffer_limit: usize,
}

/// One stream's.
#[derive(Default)]
struct Progress {
    inner: State,
    /// The filter gave its answer: it is asked nothing more.
    denied: bool,
    /// It chose a host, and that was counted.
    chose: bool,
    request: Message,
    response: Message,
}

/// One direction of a stream.
#[derive(Default)]
struct Message {
    kept: Kept,
    /// That it would change was counted.
    changes: bool,
    /// The most bytes that the filter holds of it, where that is its own matter.
    limit: Option<u32>,
}

impl Progress {
    fn message(&mut self, side: Side) -> &mut Message {
        match side {
            Side::Request => &mut self.request,
            Side::Response => &mut self.response,
        }
    }
}

impl Filter for Onlooker {
    fn hooks(&self) -> Hooks {
        let inner = self.inner.hooks();
        // Of a message that was taken over, all goes on as it came: its length is what its head says.
        Hooks { complete: true, declares_length: inner.declares_length || !inner.keeps_bodies, ..inner }
    }

    fn on_request_headers(&self, state: &mut State, stream: &mut Stream<'_>, end: bool) -> Action {
        self.ask(state, stream, Side::Request, |inner, state, stream| inner.on_request_headers(state, stream, end))
    }

    fn on_request_body(&self, state: &mut State, stream: &mut Stream<'_>, end: bool) -> Action {
        if self.holds_too_much(state, stream, Side::Request) {
            return Action::Done;
        }
        self.ask(state, stream, Side::Request, |inner, state, stream| inner.on_request_body(state, stream, end))
    }

    fn on_request_trailers(&self, state: &mut State, stream: &mut Stream<'_>) -> Action {
        self.ask(state, stream, Side::Request, |inner, state, stream| inner.on_request_trailers(state, stream))
    }

    fn on_request_resumed(&self, state: &mut State, stream: &mut Stream<'_>) -> Action {
        self.ask(state, stream, Side::Request, |inner, state, stream| inner.on_request_resumed(state, stream))
    }

    fn on_request_flow(&self, state: &mut State, stream: &mut Stream<'_>) -> Flow {
        self.let_flow(state, stream, Side::Request, |inner, state, stream| inner.on_request_flow(state, stream))
    }

    fn on_response_headers(&self, state: &mut State, stream: &mut Stream<'_>, end: bool) -> Action {
        self.ask(state, stream, Side::Response, |inner, state, stream| inner.on_response_headers(state, stream, end))
    }

    fn on_response_body(&self, state: &mut State, stream: &mut Stream<'_>, end: bool) -> Action {
        if self.holds_too_much(state, stream, Side::Response) {
            return Action::Done;
        }
        self.ask(state, stream, Side::Response, |inner, state, stream| inner.on_response_body(state, stream, end))
    }

    fn on_response_trailers(&self, state: &mut State, stream: &mut Stream<'_>) -> Action {
        self.ask(state, stream, Side::Response, |inner, state, stream| inner.on_response_trailers(state, stream))
    }

    fn on_response_resumed(&self, state: &mut State, stream: &mut Stream<'_>) -> Action {
        self.ask(state, stream, Side::Response, |inner, state, stream| inner.on_response_resumed(state, stream))
    }

    fn on_response_flow(&self, state: &mut State, stream: &mut Stream<'_>) -> Flow {
        self.let_flow(state, stream, Side::Response, |inner, state, stream| inner.on_response_flow(state, stream))
    }

    fn on_moment(&self, state: &mut State, ended: &Ended<'_>) {
        if let Some(progress) = progress(state)
            && self.inner.hooks().complete
        {
            self.inner.on_moment(&mut progress.inner, ended);
        }
    }

    fn on_closing(&self, state: &mut State, closing: &mut Closing<'_>) {
        if let Some(progress) = progress(state)
            && self.inner.hooks().complete
        {
            self.inner.on_closing(&mut progress.inner, closing);
        }
    }

    fn on_complete(&self, state: &mut State, info: &StreamInfo) {
        if let Some(progress) = progress(state)
            && self.inner.hooks().complete
        {
            self.inner.on_complete(&mut progress.inner, info);
        }
    }

    fn on_ended(&self, state: &mut State, ended: &Ended<'_>) {
        if let Some(progress) = progress(state)
            && self.inner.hooks().complete
        {
            self.inner.on_ended(&mut progress.inner, ended);
        }
    }
}

fn progress(state: &mut State) -> Option<&mut Progress> {
    match state {
        State::Any(progress) => progress.downcast_mut(),
        _ => None,
    }
}

impl Onlooker {
    pub(super) fn new(
        inner: Rc<dyn Filter>,
        withheld: Rc<Withheld>,
        (name, prefix): (&str, &str),
        place: &Place<'_>,
    ) -> Onlooker {
        Onlooker {
            inner,
            withheld,
            name: name.to_owned(),
            stats: place.stats.block(&stat::SET, &format!("{}.shadow.{prefix}", place.stat_prefix)),
            buffer_limit: if place.buffer_limit == 0 { usize::MAX } else { place.buffer_limit },
        }
    }

    /// Asks the filter, and keeps from the traffic whatever comes of it but a wait for what others say.
    fn ask(
        &self,
        state: &mut State,
        stream: &mut Stream<'_>,
        side: Side,
        hook: impl FnOnce(&dyn Filter, &mut State, &mut Stream<'_>) -> Action,
    ) -> Action {
        let Some(progress) = state.get_or_insert_with(Progress::default) else { return Action::Done };
        if progress.denied {
            return Action::Done;
        }
        let found = Found::of(stream);
        let body = progress.message(side).kept.show(side, stream);
        let action = hook(&*self.inner, &mut progress.inner, stream);
        let shown = hide(side, stream, body);
        let undone = found.put_back(stream);
        self.tell(progress, stream, side, &undone);
        if let Some(limit) = undone.request_limit {
            progress.request.limit = Some(limit);
        }
        let action = self.withhold(progress, stream, side, (action, shown));
        match undone.host {
            Some(host) if !progress.denied => self.choose(progress, stream, &host, action),
            _ => action,
        }
    }

    /// What becomes of an answer; `shown` is what the filter saw of the body.
    fn withhold(
        &self,
        progress: &mut Progress,
        stream: &mut Stream<'_>,
        side: Side,
        (action, shown): (Action, Body),
    ) -> Action {
        let message = progress.message(side);
        let taken = matches!(message.kept, Kept::Taken(_));
        match action {
            Action::Respond(reply) => self.deny(progress, stream, reply.status, &reply.details),
            // An answer from elsewhere is one of its own.
            Action::Detour(_) | Action::Anew(_) => {
                let status = stream.response.status();
                self.deny(progress, stream, status, "internal_redirect")
            }
            // What is taken over is let go on elsewhere.
            action if taken => action,
            Action::Buffer => {
                message.kept = Kept::Held(shown);
                Action::Continue
            }
            Action::Pause => {
                if matches!(message.kept, Kept::Held(_)) {
                    message.kept = Kept::Held(shown);
                }
                Action::Pause
            }
            Action::Take => {
                message.kept = Kept::Taken(Vec::new());
                Action::Take
            }
            Action::Part(_) => {
                self.stats.inc(stat::WOULD_PACE);
                Action::Done
            }
            action => {
                message.kept = Kept::Nothing;
                action
            }
        }
    }

    /// A piece of the body came. Whether the filter would hold too much with it: the pipeline would answer in its place.
    fn holds_too_much(&self, state: &mut State, stream: &mut Stream<'_>, side: Side) -> bool {
        let Some(progress) = progress(state) else { return false };
        let message = progress.message(side);
        let limit = message.limit.map_or(self.buffer_limit, |limit| limit as usize);
        if !message.kept.push(side.body(stream).bytes(), limit) || progress.denied {
            return false;
        }
        let (status, details) = match side {
            Side::Request => (413, "request_payload_too_large"),
            Side::Response => (500, "response_payload_too_large"),
        };
        self.deny(progress, stream, status, details);
        true
    }

    /// Of a message that the filter took over, what it lets go on goes on as it came, and so does what it only waits for
    /// more of.
    fn let_flow(
        &self,
        state: &mut State,
        stream: &mut Stream<'_>,
        side: Side,
        hook: impl FnOnce(&dyn Filter, &mut State, &mut Stream<'_>) -> Flow,
    ) -> Flow {
        let Some(progress) = progress(state) else { return Flow::Release };
        if progress.denied {
            progress.message(side).kept.let_go(side, stream);
            return Flow::Release;
        }
        let found = Found::of(stream);
        let flow = hook(&*self.inner, &mut progress.inner, stream);
        let undone = found.put_back(stream);
        self.tell(progress, stream, side, &undone);
        let kept = &mut progress.message(side).kept;
        let waits = matches!(kept, Kept::Taken(bytes) if !bytes.is_empty());
        match flow {
            Flow::Wait => {
                *side.body(stream) = Body::default();
                Flow::Wait
            }
            Flow::Want if !waits => {
                *side.body(stream) = Body::default();
                Flow::Want
            }
            Flow::Head => {
                *side.body(stream) = Body::default();
                Flow::Head
            }
            Flow::Want | Flow::Piece => {
                kept.let_go(side, stream);
                Flow::Piece
            }
            Flow::Release | Flow::Finish => {
                kept.let_go(side, stream);
                Flow::Release
            }
            Flow::Respond(reply) => {
                kept.let_go(side, stream);
                self.deny(progress, stream, reply.status, &reply.details);
                Flow::Release
            }
        }
    }

    /// Counts and notes what did not come of a hook beside its answer.
    fn tell(&self, progress: &mut Progress, stream: &mut Stream<'_>, side: Side, undone: &Undone) {
        if undone.changes(side) && !std::mem::replace(&mut progress.message(side).changes, true) {
            self.stats.inc(match side {
                Side::Request => stat::WOULD_CHANGE_REQUEST,
                Side::Response => stat::WOULD_CHANGE_RESPONSE,
            });
        }
        if let Some(wait) = self.withheld.take_wait() {
            self.stats.inc(stat::WOULD_DELAY);
            let millis = i64::try_from(wait.as_millis()).unwrap_or(i64::MAX);
            stream.info.metadata.set(&self.name, "shadow_delay_ms", Value::Integer(millis));
        }
        if self.withheld.take_paces() {
            self.stats.inc(stat::WOULD_PACE);
            stream.info.metadata.set(&self.name, "shadow_paced", Value::Bool(true));
        }
    }

    /// The filter wants a host, and would refuse the request where there is nothing else for it.
    #[cold]
    fn choose(
        &self,
        progress: &mut Progress,
        stream: &mut Stream<'_>,
        host: &UpstreamOverride,
        then: Action,
    ) -> Action {
        if !std::mem::replace(&mut progress.chose, true) {
            self.stats.inc(stat::WOULD_CHOOSE_HOST);
        }
        stream.info.metadata.set(&self.name, "shadow_host", Value::String(host.address.to_string()));
        let stands = stream.cluster().map(|cluster| stream.host.host_may_serve(&cluster, host.address));
        match stands.filter(|_| host.strict) {
            Some(None) => self.deny(progress, stream, host.missing_status, "no_healthy_upstream"),
            Some(Some(false)) => self.deny(progress, stream, 503, "no_healthy_upstream"),
            _ => then,
        }
    }

    fn deny(&self, progress: &mut Progress, stream: &mut Stream<'_>, status: u16, details: &str) -> Action {
        progress.denied = true;
        self.stats.inc(stat::WOULD_DENY);
        if let Some(class) = class(status) {
            self.stats.inc(class);
        }
        let metadata = &mut stream.info.metadata;
        metadata.set(&self.name, "shadow_status", Value::Integer(status.into()));
        metadata.set(&self.name, "shadow_details", Value::String(details.to_owned()));
        Action::Done
    }
}

fn class(status: u16) -> Option<Counter> {
    match status / 100 {
        2 => Some(stat::WOULD_DENY_2XX),
        3 => Some(stat::WOULD_DENY_3XX),
        4 => Some(stat::WOULD_DENY_4XX),
        5 => Some(stat::WOULD_DENY_5XX),
        _ => None,
    }
}
