//! Filters at work: calls the hooks that a [`Passage`](super::passage::Passage) says are due.

use std::task::Waker;

use postrider_filter_api::{Action, Filter, Flags, Flow, LocalReply, Moment, State, Stream};
use postrider_telemetry::stats::sets::http as stat;

use super::Connection;
use super::ending::End;
use super::exchange::Exchange;
use super::passage::{Hook, Next, Passage, Side, Standing};
use crate::chain::Http;
use crate::clock::Clock;
use crate::host::Services;

/// Why a message goes no further.
pub(super) enum Barred {
    /// A filter answers.
    Reply(Box<LocalReply>),
    /// What takes the answer's place is fetched.
    Detour,
    /// A filter held back more than the connection's buffer limit.
    TooLarge,
}

impl Exchange {
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
        let limit = match connection.chain.buffer_limit {
            0 => usize::MAX,
            limit => limit,
        };
        loop {
            let Some(filters) = &self.filters else { return Ok(Standing::Finished) };
            // A filter's own limit holds for what comes in one piece, too.
            let own = self.info.request_buffer_limit.filter(|_| side == Side::Request);
            let limit = own.map_or(limit, |own| own as usize);
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
                Next::Stand(standing) => return Ok(standing),
                Next::TooLarge => return Err(Barred::TooLarge),
            };
            if own.is_some() && hook == Hook::Body && pass.held.bytes().len() > limit {
                return Err(Barred::TooLarge);
            }
            if side == Side::Request && self.info.route_is_stale {
                self.find_route_again(connection, http);
            }
            let action = self.call(side, connection, index, hook, resumed, end);
            self.keep_alive &= !self.info.drain_connection;
            if !self.pass(side).settle(index, hook, &action, limit) {
                return Err(Barred::TooLarge);
            }
            match action {
                Action::Respond(reply) => {
                    self.count_local_reply(index);
                    return Err(Barred::Reply(reply));
                }
                Action::Detour(detour) => self.begin_detour(side, hook, detour)?,
                _ => {}
            }
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
        if hook == Hook::Head {
            self.pass(side).unhide();
        }
        let trailers = match side {
            Side::Request => &self.request_trailers,
            Side::Response => &self.response_trailers,
        };
        if end && !trailers.is_empty() {
            self.pass(side).add_trailers(hook);
        }
        action
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
        let services = Services { worker: &connection.worker, routes: self.routes.as_deref(), route: self.route };
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
            Barred::Reply(reply) => *reply,
            Barred::Detour => return End::Redirect,
            Barred::TooLarge => {
                let (counter, status, body, details) = match side {
                    Side::Request => {
                        (stat::DOWNSTREAM_RQ_TOO_LARGE, 413, "Payload Too Large", "request_payload_too_large")
                    }
                    Side::Response => (stat::RS_TOO_LARGE, 500, "Internal Server Error", "response_payload_too_large"),
                };
                http.stats.inc(counter);
                LocalReply { status, body: body.as_bytes().into(), details: details.into(), ..LocalReply::default() }
            }
        };
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

    /// Last call for the filters' states, and everything of theirs is forgotten.
    pub(super) fn complete_filters(&mut self, clock: &Clock) {
        let Some(filters) = self.filters.take() else { return };
        if filters.hooks.complete {
            let route = self.routes.as_ref().zip(self.route);
            let route = route.and_then(|(routes, route)| routes.plan.routes.get(route as usize));
            for (placed, state) in filters.all.iter().zip(&mut self.states) {
                if placed.hooks.complete {
                    let measure = placed.cost.as_ref().and_then(|cost| cost.begin(clock));
                    placed.filter.on_complete(state, &self.info);
                    if let Some(cost) = &placed.cost {
                        cost.end(measure, route.map(|route| &route.facts), clock);
                    }
                }
            }
        }
        // A state may hold a call under way: dropping it abandons the call.
        self.states.clear();
        self.request_pass.reset();
        self.response_pass.reset();
        self.released = Moment::default();
    }

    /// One state per filter.
    pub(super) fn prepare_states(&mut self) {
        let count = self.filters.as_ref().map_or(0, |filters| filters.all.len());
        self.states.resize_with(count, State::default);
    }
}
