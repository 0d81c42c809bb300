//! Answers on their way through the filters of the upstream side, to the router and to the other filters.
//!
//! ```text
//! client <── down <── held <──filters── router <── held <──upside── input <── upstream
//! ```

use std::task::{Context as TaskContext, Poll};

use postrider_filter_api::VIA_UPSTREAM;
use postrider_http::{BodyFraming, HeaderId, Method, ResponseFacts};
use postrider_telemetry::stats::sets;

use super::{Fed, Stage, Upside};
use crate::chain::Http;
use crate::http::Connection;
use crate::http::ending::End;
use crate::http::exchange::Exchange;
use crate::http::filters::Barred;
use crate::http::local::is_bodiless;
use crate::http::passage::{Side, Standing};
use crate::http::transfer::Transfer;

impl Exchange {
    /// The head of an answer came: shows it to the filters. `true` when they keep it for now, or look at its body.
    ///
    /// # Errors
    /// How the try ends.
    #[cold]
    pub(in crate::http) fn filters_keep_answer(
        &mut self,
        facts: ResponseFacts,
        connection: &mut Connection,
        http: &Http,
    ) -> Result<bool, End> {
        let bodiless = facts.tunnel || self.request.method() == Method::Head || is_bodiless(self.response.status());
        let limits = self.answer_limits();
        let Some(upside) = self.upside_mut() else { return Ok(false) };
        if upside.request == Stage::Head {
            // It answers what was not asked yet.
            return Err(self.upstream_broke(None));
        }
        let looks = upside.filters.as_ref().is_some_and(|filters| filters.looks_at_responses());
        if !looks {
            self.report_passed_answer(&connection.worker);
            return Ok(false);
        }
        upside.response_pass.begin(!body_of(facts).has_body(), bodiless);
        upside.response = Stage::Head;
        upside.download = Transfer::filtered(facts.framing, true, || limits);
        self.response_facts = facts;
        self.info.details = VIA_UPSTREAM.into();
        if let Err(barred) = self.advance_upside(Side::Response, connection, http, None) {
            return Err(self.barred_answer(http, barred));
        }
        let Some(upside) = self.upside_mut() else { return Ok(false) };
        if upside.head_is_through(Side::Response) && upside.framing(Side::Response, body_of(facts), true).is_none() {
            upside.response = Stage::Off;
            self.report_passed_answer(&connection.worker);
            return Ok(false);
        }
        self.response_pass.open = true;
        Ok(true)
    }

    fn barred_answer(&mut self, http: &Http, barred: Barred) -> End {
        if let Some(upside) = self.upside_mut() {
            let held = upside.response == Stage::Head;
            upside.response = Stage::Off;
            self.response_pass.open &= !held;
        }
        self.barred(Side::Response, http, barred)
    }

    /// The head of the answer has passed the filters: the router looks at it.
    fn release_answer(&mut self, connection: &mut Connection, http: &Http) -> Result<(), End> {
        self.report_passed_answer(&connection.worker);
        let no_trailers = self.response_trailers.is_empty();
        let mut facts = self.response_facts;
        let Some(upside) = self.upside_mut() else { return Ok(()) };
        match upside.framing(Side::Response, body_of(facts), no_trailers) {
            None => {
                upside.response = Stage::Off;
                self.response_pass.open = false;
            }
            Some(framing) => {
                upside.response = Stage::Body;
                let heard = upside.download.is_heard();
                if framing != facts.framing {
                    self.response.fields.remove(HeaderId::ContentLength);
                    facts.framing = framing;
                }
                // Nobody hears the rest of it if there is another try.
                let read = ResponseFacts { framing: BodyFraming::None, persistent: facts.persistent && heard, ..facts };
                if self.again_after_head(read, &connection.worker) {
                    return Err(End::Again);
                }
                if self.redirects_after_head(read, connection, http) {
                    return Err(End::Redirect);
                }
                self.response_facts = facts;
                return self.on_response_head(connection, http);
            }
        }
        if self.again_after_head(facts, &connection.worker) {
            return Err(End::Again);
        }
        if self.redirects_after_head(facts, connection, http) {
            return Err(End::Redirect);
        }
        self.on_response_head(connection, http)
    }

    /// Upstream to client, where filters of the upstream side take part. Answers whether anything moved.
    pub(in crate::http) fn move_answer_through_upside(
        &mut self,
        connection: &mut Connection,
        http: &Http,
        cx: &mut TaskContext<'_>,
    ) -> Result<bool, End> {
        let mut moved = false;
        loop {
            let mut wants = false;
            if self.down.has_room() {
                let is_through = self.upside().is_some_and(|upside| upside.response == Stage::Body);
                let standing = if is_through { self.pass_answer(connection, http, cx)? } else { Standing::Wants };
                match standing {
                    Standing::Paused => {}
                    Standing::Piece => {
                        self.write_filtered_piece(http)?;
                        moved = true;
                        continue;
                    }
                    Standing::Finished => {
                        self.write_filtered_end(http)?;
                        self.leave_answer();
                        self.move_response(connection, http, cx)?;
                        return Ok(true);
                    }
                    Standing::Wants => match self.feed_answer(connection, http, cx)? {
                        Fed::Some => {
                            moved = true;
                            if !self.response_pass.open {
                                // Nobody looks at what follows.
                                self.move_response(connection, http, cx)?;
                                return Ok(true);
                            }
                            continue;
                        }
                        Fed::Nothing => {}
                        Fed::Wants => wants = true,
                    },
                }
            }
            let Some(upstream) = &mut self.upstream else { return Ok(moved) };
            if !self.down.is_empty() {
                match self.down.poll_flush(cx, &mut connection.io, &mut upstream.input, &connection.worker.buffers) {
                    Poll::Pending => return Ok(moved),
                    Poll::Ready(Ok(count)) => {
                        http.stats.add(sets::http::DOWNSTREAM_CX_TX_BYTES_TOTAL, count as u64);
                        moved = true;
                        continue;
                    }
                    Poll::Ready(Err(_)) => return Err(End::Gone),
                }
            }
            if !wants {
                return Ok(moved);
            }
            let limit = connection.chain.buffer_limit.min(upstream.buffer_limit);
            match upstream.input.poll_fill(cx, &mut upstream.io, limit, &connection.worker.buffers) {
                Poll::Pending => return Ok(moved),
                Poll::Ready(Ok(0)) => {
                    self.answer_ended()?;
                    moved = true;
                }
                Poll::Ready(Ok(count)) => {
                    moved = true;
                    self.count_received(&connection.worker, count);
                }
                Poll::Ready(Err(error)) => return Err(self.upstream_broke(Some(&error))),
            }
        }
    }

    /// Takes the answer through the other filters as far as it goes, and its head to the client.
    fn pass_answer(
        &mut self,
        connection: &mut Connection,
        http: &Http,
        cx: &mut TaskContext<'_>,
    ) -> Result<Standing, End> {
        let standing = match self.advance(Side::Response, connection, http, Some(cx.waker())) {
            Err(barred) => return Err(self.barred(Side::Response, http, barred)),
            Ok(standing) => standing,
        };
        if !self.answered && self.head_is_through(Side::Response) {
            self.send_filtered_head(connection, http);
        }
        Ok(standing)
    }

    /// Puts what passed these filters in front of the others.
    fn feed_answer(&mut self, connection: &mut Connection, http: &Http, cx: &mut TaskContext<'_>) -> Result<Fed, End> {
        let standing = match self.advance_upside(Side::Response, connection, http, Some(cx.waker())) {
            Err(barred) => return Err(self.barred_answer(http, barred)),
            Ok(standing) => standing,
        };
        let Some(upside) = self.upside() else { return Ok(Fed::Nothing) };
        let is_held = upside.response == Stage::Head;
        if is_held && upside.head_is_through(Side::Response) {
            self.release_answer(connection, http)?;
            return Ok(Fed::Some);
        }
        match standing {
            Standing::Paused => Ok(Fed::Nothing),
            Standing::Piece | Standing::Finished if is_held => Ok(Fed::Nothing),
            Standing::Piece => {
                let Exchange { attempts, response_pass, .. } = self;
                if let Some(upside) = attempts.as_mut().and_then(|attempts| attempts.upside.as_mut()) {
                    response_pass.held.push(upside.response_pass.held.bytes());
                    response_pass.feed(false, false);
                    upside.response_pass.delivered();
                }
                Ok(Fed::Some)
            }
            Standing::Finished => {
                self.response_pass.feed(true, !self.response_trailers.is_empty());
                Ok(Fed::Some)
            }
            Standing::Wants => self.read_answer(connection),
        }
    }

    /// Reads what is here of the answer's body for these filters.
    fn read_answer(&mut self, connection: &Connection) -> Result<Fed, End> {
        let Exchange { attempts, upstream, response_trailers, .. } = self;
        let upside = attempts.as_mut().and_then(|attempts| attempts.upside.as_mut());
        let (Some(upside), Some(upstream)) = (upside, upstream) else { return Ok(Fed::Nothing) };
        if upstream.input.is_empty() {
            return Ok(Fed::Wants);
        }
        let Upside { download, response_pass, .. } = &mut **upside;
        let buffers = &connection.worker.buffers;
        match download.read(&mut upstream.input, &mut response_pass.held, response_trailers, buffers, true) {
            Ok(read) => {
                response_pass.feed(read.ended, !response_trailers.is_empty());
                self.record_received(read.bytes);
                Ok(Fed::Some)
            }
            Err(_) => Err(self.malformed_response()),
        }
    }

    /// The upstream closed its side.
    fn answer_ended(&mut self) -> Result<(), End> {
        if let Some(upstream) = &self.upstream {
            upstream.peer_ended();
        }
        let Exchange { attempts, down, response_trailers, .. } = self;
        let Some(upside) = attempts.as_mut().and_then(|attempts| attempts.upside.as_mut()) else { return Ok(()) };
        match upside.download.end_of_input(down, response_trailers) {
            Ok(()) => {
                upside.response_pass.feed(true, false);
                Ok(())
            }
            Err(_) => Err(self.malformed_response()),
        }
    }

    /// All of the answer is on its way to the client.
    fn leave_answer(&mut self) {
        self.response_pass.open = false;
        let Some(upside) = self.upside_mut() else { return };
        upside.response = Stage::Off;
        let heard = upside.download.is_heard();
        self.response_facts.persistent &= heard;
    }
}

/// How the body of an answer comes that filters may look at: a tunnel is none.
fn body_of(facts: ResponseFacts) -> BodyFraming {
    if facts.tunnel { BodyFraming::None } else { facts.framing }
}
