//! Messages that filters keep waiting while nothing is sent yet: a request before it is routed, a local reply before it
//! is written. Deadlines and the client's leaving end the wait.

use std::task::{Context as TaskContext, Poll, Waker, ready};

use postrider_filter_api::Moment;
use postrider_model::{Action, ScaledTimer};
use postrider_telemetry::stats::sets::http as stat;

use super::Connection;
use super::ending::End;
use super::exchange::Exchange;
use super::filters::Led;
use super::passage::{Side, Standing};
use crate::chain::Http;

/// What the filters make of a request's head at once.
pub(super) enum Passed {
    Free,
    Held,
    /// It is answered.
    Barred,
}

impl Exchange {
    /// Shows the request to its filters, as far as that needs no waiting. Its own function, so that requests without
    /// filters need not jump over it.
    #[inline(never)]
    pub(super) fn filter_request(&mut self, connection: &mut Connection, http: &Http) -> Passed {
        let bodiless = self.asks_for_tunnel();
        let ended = self.upload.is_done();
        self.note_grpc();
        let led = self.lead(Side::Request, connection, ended, bodiless);
        let went = match led {
            Led::Through => {
                self.keep_alive &= !self.info.drain_connection;
                self.leave_filters(connection, http);
                return Passed::Free;
            }
            Led::Stopped(Some(answer)) => self.settle_led(Side::Request, ended, answer),
            Led::Stopped(None) => Ok(()),
        };
        match went.and_then(|()| self.advance(Side::Request, connection, http, None)) {
            Ok(_) if self.head_is_through(Side::Request) => {
                self.leave_filters(connection, http);
                Passed::Free
            }
            Ok(_) => Passed::Held,
            Err(barred) => {
                let end = self.barred(Side::Request, http, barred);
                self.conclude(connection, http, end);
                Passed::Barred
            }
        }
    }

    /// Waits until the filters let the request go on; `false` when it is answered or over.
    pub(super) async fn hold_request(&mut self, connection: &mut Connection, http: &Http) -> bool {
        // Answers to earlier requests that were not sent yet go out meanwhile.
        connection.out.move_to(&mut self.down);
        self.arm_wait(connection, http);
        let end = std::future::poll_fn(|cx| self.poll_held_request(connection, http, cx)).await;
        self.released = connection.worker.clock.now();
        match end {
            None => {
                self.leave_filters(connection, http);
                true
            }
            Some(end) => {
                self.conclude(connection, http, end);
                false
            }
        }
    }

    #[inline]
    fn leave_filters(&mut self, connection: &Connection, http: &Http) {
        if self.info.route_is_stale {
            self.find_route_again(connection, http);
        }
    }

    fn poll_held_request(
        &mut self,
        connection: &mut Connection,
        http: &Http,
        cx: &mut TaskContext<'_>,
    ) -> Poll<Option<End>> {
        loop {
            let standing = match self.advance(Side::Request, connection, http, Some(cx.waker())) {
                Ok(standing) => standing,
                Err(barred) => return Poll::Ready(Some(self.barred(Side::Request, http, barred))),
            };
            if self.head_is_through(Side::Request) {
                return Poll::Ready(None);
            }
            if standing != Standing::Wants {
                connection.input.stow(&connection.worker.buffers);
                break;
            }
            match self.poll_request_piece(connection, http, cx) {
                Poll::Ready(Ok(())) => self.last_activity = connection.worker.clock.now(),
                Poll::Ready(Err(end)) => return Poll::Ready(Some(end)),
                Poll::Pending => break,
            }
        }
        while !self.down.is_empty() {
            match self.down.poll_flush_own(cx, &mut connection.io) {
                Poll::Ready(Ok(count)) => http.stats.add(stat::DOWNSTREAM_CX_TX_BYTES_TOTAL, count as u64),
                Poll::Ready(Err(_)) => return Poll::Ready(Some(End::Gone)),
                Poll::Pending => break,
            }
        }
        let over = self.poll_patience(connection, http, cx);
        let cut_off = connection.half_closed && connection.input.is_empty() && !self.upload.is_heard();
        if cut_off && over.is_pending() {
            return Poll::Ready(Some(End::Gone));
        }
        over.map(Some)
    }

    /// Reads some of the request's body for the filters.
    fn poll_request_piece(
        &mut self,
        connection: &mut Connection,
        http: &Http,
        cx: &mut TaskContext<'_>,
    ) -> Poll<Result<(), End>> {
        if connection.input.is_empty() {
            if connection.half_closed {
                return Poll::Ready(Err(End::Gone));
            }
            self.answer_expectation(connection, http);
            match ready!(connection.poll_receive(cx, http)) {
                Ok(0) | Err(_) => return Poll::Ready(Err(End::Gone)),
                Ok(_) => {}
            }
        }
        Poll::Ready(self.read_request_body(connection, http))
    }

    /// Shows the prepared reply to the filters; `true` when all of it passed, or something else takes its place.
    pub(super) fn filter_reply(&mut self, connection: &mut Connection, http: &Http, waker: Option<&Waker>) -> bool {
        loop {
            if self.streaming.is_some() && !connection.out.has_room() {
                return false;
            }
            match self.advance(Side::Response, connection, http, waker) {
                Ok(standing) if self.streaming.is_some() => match self.stream_on(connection, http, standing) {
                    Some(over) => return over,
                    None => continue,
                },
                Ok(Standing::Paused) => return false,
                Ok(Standing::Piece) => {
                    // It was emptied when the filters got it. One that took it over may let it go in pieces.
                    self.reply_body.extend_from_slice(self.response_pass.held.bytes());
                    self.response_pass.delivered();
                }
                Ok(Standing::Wants | Standing::Finished) => return true,
                Err(barred) => {
                    let end = self.barred(Side::Response, http, barred);
                    if matches!(end, End::Redirect) {
                        return true;
                    }
                    self.conclude(connection, http, end);
                    if !self.replying {
                        return true;
                    }
                }
            }
        }
    }

    /// Waits until the filters let the prepared reply go on.
    pub(super) async fn hold_reply(&mut self, connection: &mut Connection, http: &Http) {
        // No upstream is to blame for what takes long from here on.
        (self.route_timeout, self.stopped_timeout) = (None, None);
        self.arm_wait(connection, http);
        std::future::poll_fn(|cx| {
            loop {
                if self.filter_reply(connection, http, Some(cx.waker())) {
                    return Poll::Ready(());
                }
                let mut moved = false;
                while !connection.out.is_empty() {
                    let buffers = &connection.worker.buffers;
                    match connection.out.poll_flush(cx, &mut connection.io, &mut connection.input, buffers) {
                        Poll::Ready(Ok(count)) => {
                            http.stats.add(stat::DOWNSTREAM_CX_TX_BYTES_TOTAL, count as u64);
                            moved = true;
                        }
                        Poll::Ready(Err(_)) => {
                            self.conclude(connection, http, End::Gone);
                            return Poll::Ready(());
                        }
                        Poll::Pending => break,
                    }
                }
                if moved && self.streaming.is_some() {
                    self.last_activity = connection.worker.clock.now();
                    continue;
                }
                let end = ready!(self.poll_patience(connection, http, cx));
                let gone = matches!(end, End::Gone | End::Expelled);
                self.conclude(connection, http, end);
                if gone {
                    return Poll::Ready(());
                }
            }
        })
        .await;
    }

    /// Ready when a deadline passed or the client has gone.
    fn poll_patience(&mut self, connection: &mut Connection, http: &Http, cx: &mut TaskContext<'_>) -> Poll<End> {
        if let Some(end) = self.overdue(connection, http) {
            return Poll::Ready(end);
        }
        if self.watches_client && self.poll_client_gone(connection, http, cx) {
            return Poll::Ready(End::Gone);
        }
        connection.deadline.watch(cx.waker());
        Poll::Pending
    }

    /// The route's timeout is the upstream's: how long filters held the request does not count.
    pub(super) fn excuse_filters(&mut self) {
        let held = self.info.request_received.map(|received| self.released.saturating_duration_since(received));
        self.route_timeout = self.route_timeout.map(|timeout| timeout.saturating_add(held.unwrap_or_default()));
    }

    /// A filter keeps a message of a request that was forwarded, to pace it or to ask somebody.
    #[cold]
    pub(super) fn stop_timeout(&mut self, now: Moment) {
        if let Some(timeout) = self.route_timeout.take() {
            self.stopped_timeout = Some((now, timeout));
        }
    }

    /// It goes on with it.
    #[cold]
    pub(super) fn go_on_with_timeout(&mut self, connection: &Connection, http: &Http) {
        let Some((since, timeout)) = self.stopped_timeout.take() else { return };
        let begun = self.info.request_received.map_or(since, |received| received.max(since));
        let held = connection.worker.clock.now().saturating_duration_since(begun);
        self.route_timeout = Some(timeout.saturating_add(held));
        self.rearm(connection, http);
    }

    /// Whether filters have not let the request go yet, and one of them keeps it waiting.
    pub(super) fn is_held(&self) -> bool {
        self.cluster.is_none() && self.filters.is_some() && self.request_pass.is_waiting()
    }

    /// Deadlines for a stream that is not forwarded, or not yet.
    fn arm_wait(&mut self, connection: &Connection, http: &Http) {
        let route = self.routes.as_ref().zip(self.route).map(|(routes, route)| routes.plan.table.route(route));
        let own = match route.map(|route| &route.action) {
            Some(Action::Forward(forward)) => forward.idle_timeout,
            _ => None,
        };
        let idle = own.unwrap_or(http.model.timeouts.stream_idle);
        self.stream_idle = connection.worker.overload.hurried(ScaledTimer::StreamIdle, idle);
        self.max_duration = match route.map(|route| &route.action) {
            Some(Action::Forward(forward)) => self.max_duration(http, forward),
            _ => http.model.timeouts.max_stream_duration,
        };
        self.last_activity = connection.worker.clock.now();
        self.rearm(connection, http);
    }
}
