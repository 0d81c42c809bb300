//! Forwarding bodies that filters see: as [`super::stream`], with the filters between the input and the outbox.
//!
//! ```text
//! client ──input──> held ──filters──> up ──> upstream      nothing is read while a piece is in hand,
//! client <── down <──filters── held <──input── upstream    or a filter pauses
//! ```

use std::task::{Context as TaskContext, Poll};

use postrider_telemetry::stats::sets;

use super::Connection;
use super::ending::End;
use super::exchange::Exchange;
use super::passage::{Side, Standing};
use super::upside::Upside;
use crate::chain::Http;

impl Exchange {
    /// Client to upstream. Answers whether anything moved.
    pub(super) fn move_filtered_request(
        &mut self,
        connection: &mut Connection,
        http: &Http,
        cx: &mut TaskContext<'_>,
    ) -> Result<bool, End> {
        if self.upside().is_some_and(Upside::takes_request) {
            return self.move_request_through_upside(connection, http, cx);
        }
        let mut moved = false;
        loop {
            let mut wants = false;
            if self.up.has_room() && !self.upload_broken {
                match self.advance(Side::Request, connection, http, Some(cx.waker())) {
                    Err(barred) => return Err(self.barred(Side::Request, http, barred)),
                    Ok(Standing::Paused) => {}
                    Ok(Standing::Piece) => {
                        if self.upload.admit(self.request_pass.held.bytes().len()).is_err() {
                            return Err(self.length_differs(Side::Request, http));
                        }
                        if self.attempts.is_some() {
                            self.keep_filtered_piece(&connection.worker);
                            self.record_sent(self.request_pass.held.bytes().len());
                        }
                        self.upload.write(self.request_pass.held.bytes(), &mut self.up);
                        self.request_pass.delivered();
                        moved = true;
                        continue;
                    }
                    Ok(Standing::Finished) => {
                        if self.upload.check_end().is_err() {
                            return Err(self.length_differs(Side::Request, http));
                        }
                        self.upload.finish(&mut self.request_trailers, &mut self.up);
                        self.request_pass.open = false;
                        self.move_request(connection, http, cx)?;
                        return Ok(true);
                    }
                    Ok(Standing::Wants) if !connection.input.is_empty() => {
                        self.read_request_body(connection, http)?;
                        moved = true;
                        continue;
                    }
                    Ok(Standing::Wants) => wants = true,
                }
            }
            if !self.up.is_empty() {
                match self.poll_flush_up(connection, cx) {
                    Poll::Pending => return Ok(moved),
                    Poll::Ready(true) => {
                        moved = true;
                        continue;
                    }
                    Poll::Ready(false) => {}
                }
            }
            if !wants || self.upload_broken {
                connection.input.stow(&connection.worker.buffers);
                return Ok(moved);
            }
            if connection.half_closed {
                return Err(End::Gone);
            }
            self.answer_expectation(connection, http);
            match connection.poll_receive(cx, http) {
                Poll::Pending => return Ok(moved),
                Poll::Ready(Ok(_)) => moved = true,
                Poll::Ready(Err(_)) => return Err(End::Gone),
            }
        }
    }

    /// Upstream to client. Answers whether anything moved.
    pub(super) fn move_filtered_response(
        &mut self,
        connection: &mut Connection,
        http: &Http,
        cx: &mut TaskContext<'_>,
    ) -> Result<bool, End> {
        if self.upside().is_some_and(Upside::takes_answer) {
            return self.move_answer_through_upside(connection, http, cx);
        }
        let mut moved = false;
        loop {
            let mut wants = false;
            if self.down.has_room() {
                let standing = match self.advance(Side::Response, connection, http, Some(cx.waker())) {
                    Err(barred) => return Err(self.barred(Side::Response, http, barred)),
                    Ok(standing) => standing,
                };
                if !self.answered && self.head_is_through(Side::Response) {
                    self.send_filtered_head(connection, http);
                    if !self.response_pass.open {
                        // Nobody looks at what follows.
                        self.move_response(connection, http, cx)?;
                        return Ok(true);
                    }
                    moved = true;
                }
                match standing {
                    Standing::Paused => {}
                    Standing::Piece => {
                        self.write_filtered_piece(http)?;
                        moved = true;
                        continue;
                    }
                    Standing::Finished => {
                        self.write_filtered_end(http)?;
                        self.response_pass.open = false;
                        self.move_response(connection, http, cx)?;
                        return Ok(true);
                    }
                    Standing::Wants if self.upstream.as_ref().is_some_and(|upstream| !upstream.input.is_empty()) => {
                        self.read_response_body(&connection.worker.buffers)?;
                        moved = true;
                        continue;
                    }
                    Standing::Wants => wants = true,
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
                // A filter takes its time.
                upstream.input.stow(&connection.worker.buffers);
                return Ok(moved);
            }
            let limit = connection.chain.buffer_limit.min(upstream.buffer_limit);
            match upstream.input.poll_fill(cx, &mut upstream.io, limit, &connection.worker.buffers) {
                Poll::Pending => return Ok(moved),
                Poll::Ready(Ok(0)) => {
                    self.upstream_ended(connection)?;
                    self.response_pass.feed(true, false);
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

    /// The piece that filters let through is on its way to the client.
    pub(super) fn write_filtered_piece(&mut self, http: &Http) -> Result<(), End> {
        let piece = self.response_pass.held.bytes();
        if self.download.admit(piece.len()).is_err() {
            return Err(self.length_differs(Side::Response, http));
        }
        self.info.bytes_sent += piece.len() as u64;
        self.download.write(piece, &mut self.down);
        self.response_pass.delivered();
        Ok(())
    }

    /// All that filters let through is on its way to the client, with its end.
    pub(super) fn write_filtered_end(&mut self, http: &Http) -> Result<(), End> {
        if self.download.check_end().is_err() {
            return Err(self.length_differs(Side::Response, http));
        }
        self.download.finish(&mut self.response_trailers, &mut self.down);
        Ok(())
    }
}
