//! Filters at work: calls the hooks that a [`Passage`](super::passage::Passage) says are due.

use std::task::Waker;

use postrider_filter_api::{Action, Body, Closing, Ended, Filter, Flags, Flow, LocalReply, Moment, State, Stream};
use postrider_telemetry::stats::sets::http as stat;

use super::Connection;
use super::ending::End;
use super::exchange::Exchange;
use super::passage::{Hook, MAX_DONE, Next, Passage, Side, Standing, is_wanted_behind, wanted};
use crate::chain::Http;
use crate::clock::Clock;
use crate::host::Services;

/// What logs say of a request that is larger than may be held.
const REQUEST_TOO_LARGE: &str = "request_payload_too_large";

/// And of such an answer.
const RESPONSE_TOO_LARGE: &str = "response_payload_too_large";

/// Why a message goes no further.
pub(super) enum Barred {
    /// A filter answers.
    Reply(Box<LocalReply>),
    /// What takes the answer's place is fetched.
    Detour,
    /// A filter held back more than the connection's buffer limit.
    TooLarge,
}

/// How far a head came by itself.
pub(super) enum Led {
    /// All filters saw it, and let it go on at once.
    Through,
    /// The passage goes on with it, when this filter's answer is settled.
    Stopped(Option<(usize, Action)>),
}

impl Exchange {
    /// Shows a head to the filters as long as each lets it go on at once, as most do: what is cheaper than a passage,
    /// which begins when one does otherwise, or when what follows the head has to pass the filters, too. `ended` and
    /// `bodiless`: see [`Passage::begin`].
    #[inline(always)]
    pub(super) fn lead(&mut self, side: Side, connection: &Connection, ended: bool, bodiless: bool) -> Led {
        let clock = &connection.worker.clock;
        let services = Services {
            worker: &connection.worker,
            routes: self.routes.as_deref(),
            route: self.route,
            cluster: self.cluster.as_deref(),
            client: Some(&connection.io),
        };
        let route = self.routes.as_ref().zip(self.route);
        let route = route.and_then(|(routes, route)| routes.plan.routes.get(route as usize));
        let facts = route.map(|route| &route.facts);
        let Exchange { filters, states, request_pass, response_pass, .. } = self;
        let Some(filters) = filters.as_deref() else { return Led::Through };
        let resumer = match side {
            Side::Request => &request_pass.resumer,
            Side::Response => &response_pass.resumer,
        };
        let stream = &mut Stream {
            request: &mut self.request,
            response: &mut self.response,
            request_body: &mut request_pass.held,
            response_body: &mut response_pass.held,
            request_trailers: &mut self.request_trailers,
            response_trailers: &mut self.response_trailers,
            info: &mut self.info,
            route: facts,
            weighted: self.weighted,
            resumer,
            host: &services,
        };
        let count = filters.all.len();
        let (mut place, mut done, mut watched) = (0, 0, false);
        let mut stopped = (!held(side, stream).is_untouched()).then_some(None);
        while place < count && stopped.is_none() {
            let index = side.index(place, count);
            let (Some(placed), Some(state)) = (filters.all.get(index), states.get_mut(index)) else { break };
            if wanted(placed.hooks, side, Hook::Head) {
                resumer.reset();
                let measure = placed.cost.as_ref().and_then(|cost| cost.begin(clock));
                let action = match side {
                    Side::Request => placed.filter.on_request_headers(state, stream, ended),
                    Side::Response => placed.filter.on_response_headers(state, stream, ended),
                };
                if let Some(cost) = &placed.cost {
                    cost.end(measure, facts, clock);
                }
                match action {
                    Action::Continue if held(side, stream).is_untouched() => {
                        watched |= is_wanted_behind(placed.hooks, side)
                    }
                    Action::Done if index < MAX_DONE && held(side, stream).is_untouched() => done |= 1 << index,
                    action => {
                        stopped = Some(Some((index, action)));
                        break;
                    }
                }
                if side == Side::Request && stream.info.route_is_stale {
                    // Who else wants the head is a matter of the new route.
                    stopped = Some(None);
                }
            } else {
                watched |= is_wanted_behind(placed.hooks, side);
            }
            place += 1;
        }
        let pass = self.pass(side);
        match (stopped, side) {
            (Some(stopped), _) => {
                pass.begin_at(place, done, ended, bodiless);
                Led::Stopped(stopped)
            }
            // It is known later who sees what follows.
            (None, Side::Request) if !ended => {
                pass.begin_at(place, done, ended, bodiless);
                Led::Through
            }
            (None, Side::Response) if !ended && watched => {
                pass.begin_at(place, done, ended, bodiless);
                Led::Stopped(None)
            }
            (None, _) => Led::Through,
        }
    }

    /// Takes the answer of the filter at which a head stopped that went by itself.
    ///
    /// # Errors
    /// It goes no further.
    #[inline(never)]
    pub(super) fn settle_led(
        &mut self,
        side: Side,
        ended: bool,
        (index, action): (usize, Action),
    ) -> Result<(), Barred> {
        self.after_head_hook(side, ended);
        self.settle(side, index, Hook::Head, action, usize::MAX)
    }

    /// Takes a message through the filters as far as it goes. Without a waker, nobody waits for the end of a pause.
    ///
    /// # Errors
    /// It goes no further.
    pub(super) fn advance(
        &mut self,
        side: Side,
        connection: &Connection,
        http: &Http,
        waker: Option<&Waker>,
    ) -> Result<Standing, Barred> {
        loop {
            if side == Side::Request && self.info.route_is_stale && self.request_pass.goes_on() {
                // Who else wants something of the request is a matter of the new route.
                self.find_route_again(connection, http);
            }
            let Some(filters) = &self.filters else { return Ok(Standing::Finished) };
            let own = self.info.buffer_limit;
            let limit = own.bytes(side == Side::Request, connection.chain.buffer_limit);
            let pass = match side {
                Side::Request => &mut self.request_pass,
                Side::Response => &mut self.response_pass,
            };
            let (index, hook, resumed, end) = match pass.next(side, filters, limit, waker) {
                Next::Call { index, hook, resumed, end } => (index, hook, resumed, end),
                Next::Flow { index } => {
                    self.let_flow(side, connection, index)?;
                    continue;
                }
                Next::Stand(standing) => {
                    if self.route_timeout.is_some() && self.pass(side).is_paused() {
                        self.stop_timeout(connection.worker.clock.now());
                    }
                    return Ok(standing);
                }
                Next::TooLarge => return Err(Barred::TooLarge),
            };
            if hook == Hook::Body && own.bounds_pieces(side == Side::Request) && pass.held.bytes().len() > limit {
                return Err(Barred::TooLarge);
            }
            if side == Side::Request && self.info.route_is_stale {
                self.find_route_again(connection, http);
            }
            if resumed && self.stopped_timeout.is_some() {
                self.go_on_with_timeout(connection, http);
            }
            let action = self.call(side, connection, index, hook, resumed, end);
            self.settle(side, index, hook, action, limit)?;
        }
    }

    /// Takes what the filter with this index answered.
    ///
    /// # Errors
    /// The message goes no further.
    fn settle(&mut self, side: Side, index: usize, hook: Hook, action: Action, limit: usize) -> Result<(), Barred> {
        self.keep_alive &= !self.info.drain_connection;
        if !self.pass(side).settle(index, hook, &action, limit) {
            return Err(Barred::TooLarge);
        }
        match action {
            Action::Respond(reply) => {
                self.count_local_reply(index);
                Err(Barred::Reply(reply))
            }
            Action::Detour(detour) => self.begin_detour(side, hook, detour),
            Action::Anew(answer) => Err(self.begin_anew(answer)),
            _ => Ok(()),
        }
    }

    /// Asks a filter that took a message over what goes on of it.
    #[cold]
    #[inline(never)]
    fn let_flow(&mut self, side: Side, connection: &Connection, index: usize) -> Result<(), Barred> {
        let flow = self.ask(side, connection, index, |filter, state, stream| match side {
            Side::Request => filter.on_request_flow(state, stream),
            Side::Response => filter.on_response_flow(state, stream),
        });
        let flow = flow.unwrap_or(Flow::Release);
        self.keep_alive &= !self.info.drain_connection;
        let count = self.filters.as_ref().map_or(0, |filters| filters.all.len());
        let trailers = match side {
            Side::Request => !self.request_trailers.is_empty(),
            Side::Response => !self.response_trailers.is_empty(),
        };
        self.pass(side).settle_flow(side, index, count, &flow, trailers);
        match flow {
            Flow::Respond(reply) => Err(Barred::Reply(reply)),
            _ => Ok(()),
        }
    }

    fn call(
        &mut self,
        side: Side,
        connection: &Connection,
        index: usize,
        hook: Hook,
        resumed: bool,
        end: bool,
    ) -> Action {
        if hook == Hook::Head {
            self.pass(side).hide();
        }
        let action = self.ask(side, connection, index, |filter, state, stream| match (side, hook) {
            (Side::Request, _) if resumed => filter.on_request_resumed(state, stream),
            (Side::Response, _) if resumed => filter.on_response_resumed(state, stream),
            (Side::Request, Hook::Head) => filter.on_request_headers(state, stream, end),
            (Side::Request, Hook::Body) => filter.on_request_body(state, stream, end),
            (Side::Request, Hook::Trailers) => filter.on_request_trailers(state, stream),
            (Side::Response, Hook::Head) => filter.on_response_headers(state, stream, end),
            (Side::Response, Hook::Body) => filter.on_response_body(state, stream, end),
            (Side::Response, Hook::Trailers) => filter.on_response_trailers(state, stream),
        });
        let Some(action) = action else { return Action::Continue };
        match hook {
            Hook::Head => self.after_head_hook(side, end),
            Hook::Body | Hook::Trailers => self.look_for_trailers(side, hook, end),
        }
        action
    }

    fn after_head_hook(&mut self, side: Side, end: bool) {
        self.pass(side).unhide();
        self.look_for_trailers(side, Hook::Head, end);
    }

    /// A hook with nothing behind it was called, which may have put trailers there.
    fn look_for_trailers(&mut self, side: Side, hook: Hook, end: bool) {
        let trailers = match side {
            Side::Request => &self.request_trailers,
            Side::Response => &self.response_trailers,
        };
        if end && !trailers.is_empty() {
            self.pass(side).add_trailers(hook);
        }
    }

    /// Shows the stream to the filter with this index; `None` when there is no such filter.
    #[inline(always)]
    fn ask<T>(
        &mut self,
        side: Side,
        connection: &Connection,
        index: usize,
        hook: impl FnOnce(&dyn Filter, &mut State, &mut Stream<'_>) -> T,
    ) -> Option<T> {
        let services = Services {
            worker: &connection.worker,
            routes: self.routes.as_deref(),
            route: self.route,
            cluster: self.cluster.as_deref(),
            client: Some(&connection.io),
        };
        let route = self.routes.as_ref().zip(self.route);
        let route = route.and_then(|(routes, route)| routes.plan.routes.get(route as usize));
        let Exchange { filters, states, request_pass, response_pass, .. } = self;
        let placed = filters.as_ref().and_then(|filters| filters.all.get(index));
        let (Some(placed), Some(state)) = (placed, states.get_mut(index)) else { return None };
        let count = filters.as_ref().map_or(0, |filters| filters.all.len());
        let (own, resumer) = match side {
            Side::Request => (request_pass.resumer_of_taken(side, index, count), &request_pass.resumer),
            Side::Response => (response_pass.resumer_of_taken(side, index, count), &response_pass.resumer),
        };
        let resumer = match &own {
            Some(own) => own,
            None => {
                resumer.reset();
                resumer
            }
        };
        let stream = &mut Stream {
            request: &mut self.request,
            response: &mut self.response,
            request_body: &mut request_pass.held,
            response_body: &mut response_pass.held,
            request_trailers: &mut self.request_trailers,
            response_trailers: &mut self.response_trailers,
            info: &mut self.info,
            route: route.map(|route| &route.facts),
            weighted: self.weighted,
            resumer,
            host: &services,
        };
        let clock = &connection.worker.clock;
        let measure = placed.cost.as_ref().and_then(|cost| cost.begin(clock));
        let answer = hook(&*placed.filter, state, stream);
        if let Some(cost) = &placed.cost {
            cost.end(measure, route.map(|route| &route.facts), clock);
        }
        Some(answer)
    }

    #[cold]
    fn count_local_reply(&self, index: usize) {
        let cost = self.filters.as_ref().and_then(|filters| filters.all.get(index)).and_then(|at| at.cost.as_ref());
        if let Some(cost) = cost {
            cost.answered(self.route_plan().map(|route| &route.facts));
        }
    }

    pub(super) fn pass(&mut self, side: Side) -> &mut Passage {
        match side {
            Side::Request => &mut self.request_pass,
            Side::Response => &mut self.response_pass,
        }
    }

    /// The head passed all filters and may be sent on.
    pub(super) fn head_is_through(&self, side: Side) -> bool {
        let pass = match side {
            Side::Request => &self.request_pass,
            Side::Response => &self.response_pass,
        };
        !pass.is_paused() && self.filters.as_ref().is_none_or(|filters| pass.head_is_through(filters))
    }

    /// How the stream ends when a message goes no further.
    pub(super) fn barred(&mut self, side: Side, http: &Http, barred: Barred) -> End {
        let reply = match barred {
            Barred::Reply(reply) if reply.status == 0 => {
                self.fail(Flags::LOCAL_RESET, reply.details);
                return End::Broken;
            }
            Barred::Reply(reply) => *reply,
            Barred::Detour => return End::Redirect,
            Barred::TooLarge => {
                let (status, body, details) = match side {
                    Side::Request => (413, "Payload Too Large", REQUEST_TOO_LARGE),
                    Side::Response => (500, "Internal Server Error", RESPONSE_TOO_LARGE),
                };
                LocalReply { status, body: body.as_bytes().into(), details: details.into(), ..LocalReply::default() }
            }
        };
        // Filters that gather a message by themselves say so, too.
        match &*reply.details {
            REQUEST_TOO_LARGE => http.stats.inc(stat::DOWNSTREAM_RQ_TOO_LARGE),
            RESPONSE_TOO_LARGE => http.stats.inc(stat::RS_TOO_LARGE),
            _ => {}
        }
        if !self.answered {
            // What the router says of a host counts for its cluster, whatever takes its place.
            if side == Side::Response && self.host.is_some() {
                self.upstream_status.get_or_insert(self.info.status);
            } else {
                self.spare_upstream();
            }
            return End::Reply(Box::new(reply));
        }
        // The client was told something else already: all that is left is to cut it off.
        self.fail(Flags::LOCAL_RESET, reply.details);
        End::Broken
    }

    /// What filters let pass of a body is not as long as its head says: whoever got the head must not take what came for
    /// the whole message.
    #[cold]
    #[inline(never)]
    pub(super) fn length_differs(&mut self, side: Side, http: &Http) -> End {
        let details = "filtered_length_differs".into();
        self.barred(side, http, Barred::Reply(Box::new(LocalReply { status: 500, details, ..LocalReply::default() })))
    }

    /// Filters hear of a moment at which the stream is logged.
    #[cold]
    pub(super) fn note_to_filters(&mut self) {
        let Some(filters) = self.filters.clone().filter(|filters| filters.hooks.complete) else { return };
        self.prepare_states();
        let route = self.routes.as_ref().zip(self.route);
        let route = route.and_then(|(routes, route)| routes.plan.routes.get(route as usize));
        let ended = Ended {
            request: &self.request,
            response: &self.response,
            request_trailers: &self.request_trailers,
            response_trailers: &self.response_trailers,
            info: &self.info,
            route: route.map(|route| &route.facts),
            weighted: self.weighted,
        };
        for (placed, state) in filters.all.iter().zip(&mut self.states) {
            if placed.hooks.complete {
                placed.filter.on_moment(state, &ended);
            }
        }
    }

    /// Last call for the filters' states, and everything of theirs is forgotten.
    pub(super) fn complete_filters(&mut self, clock: &Clock) {
        if self.attempts.is_some() {
            self.end_upside(clock);
        }
        let Some(filters) = self.filters.take() else { return };
        if filters.hooks.complete {
            let route = self.routes.as_ref().zip(self.route);
            let route = route.and_then(|(routes, route)| routes.plan.routes.get(route as usize));
            let closing = &mut Closing {
                request: &self.request,
                response: &self.response,
                request_trailers: &self.request_trailers,
                response_trailers: &self.response_trailers,
                info: &mut self.info,
                route: route.map(|route| &route.facts),
                weighted: self.weighted,
            };
            for (placed, state) in filters.all.iter().zip(&mut self.states) {
                if placed.hooks.complete {
                    placed.filter.on_closing(state, closing);
                }
            }
            let ended = closing.as_ended();
            for (placed, state) in filters.all.iter().zip(&mut self.states) {
                if placed.hooks.complete {
                    let measure = placed.cost.as_ref().and_then(|cost| cost.begin(clock));
                    placed.filter.on_ended(state, &ended);
                    if let Some(cost) = &placed.cost {
                        cost.end(measure, route.map(|route| &route.facts), clock);
                    }
                }
            }
        }
        // A state may hold a call under way: dropping it abandons the call.
        for state in &mut self.states {
            if !matches!(state, State::Empty) {
                *state = State::Empty;
            }
        }
        self.request_pass.reset();
        self.response_pass.reset();
        self.released = Moment::default();
    }

    /// One state per filter. Those that are there are empty.
    pub(super) fn prepare_states(&mut self) {
        let count = self.filters.as_ref().map_or(0, |filters| filters.all.len());
        if self.states.len() != count {
            self.states.resize_with(count, State::default);
        }
    }
}

/// What a stream holds of the body on one side.
fn held<'s>(side: Side, stream: &'s Stream<'_>) -> &'s Body {
    match side {
        Side::Request => stream.request_body,
        Side::Response => stream.response_body,
    }
}
