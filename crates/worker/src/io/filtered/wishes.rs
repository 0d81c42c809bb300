//! What filters want of their connection beside letting bytes pass: to send and receive bytes of their own, to be called with
//! what is held, to hear that much waits, and to end it.

use std::io;
use std::task::{Context, Poll, ready};

use postrider_filter_api::{Ending, MAX_NETWORK_FILTERS, Wish};

use super::Filtered;

/// Most wishes within each other: a filter that sends something for all that it sees sent ends its connection here.
const MAX_NESTED: u32 = 16;

impl Filtered {
    /// Does what filters want since they were last called.
    #[inline]
    pub(super) fn attend(&mut self) {
        if self.control.has_wishes() {
            self.perform();
        }
        while let Some(place) = self.control.take_asked() {
            self.show_held(place);
        }
        if self.leaving && self.ending.is_none() && !self.control.is_kept() {
            self.ending = Some(Ending::Flushed);
        }
    }

    #[cold]
    #[inline(never)]
    fn show_held(&mut self, place: usize) {
        let (mut received, mut sent) = (self.control.received.take(), self.control.sent.take());
        self.call(place, |session, connection| session.on_asked(connection, &mut received, &mut sent));
        self.control.received.replace(received);
        self.control.sent.replace(sent);
    }

    #[cold]
    #[inline(never)]
    pub(super) fn perform(&mut self) {
        if self.nested == MAX_NESTED {
            self.ending = Some(Ending::AtOnce);
        }
        self.nested += 1;
        // What filters want because of one of them comes before the next one.
        for wish in self.control.take_wishes() {
            // Nothing comes behind the end.
            if self.ending.is_some() {
                continue;
            }
            match wish {
                Wish::Send { below, data, end } => self.send_own(below, data, end),
                Wish::Receive { from, data, end } => self.receive_own(from, data, end),
                Wish::End(ending) => self.ending = Some(ending),
                Wish::Leave => self.leaving = true,
            }
        }
        self.nested -= 1;
    }

    fn send_own(&mut self, below: usize, mut data: Vec<u8>, end: bool) {
        let is_over = if self.is_end_kept() {
            // The client is gone, and only the connection is left.
            !self.half_closes()
        } else {
            self.leaving && below == MAX_NETWORK_FILTERS
        };
        if !self.sent.end_passed && !is_over && self.pass_sent(below, &mut data, end) {
            self.sent.ready.append(&mut data);
            self.sent.ended |= end;
            self.sent.end_passed |= end;
        }
    }

    fn receive_own(&mut self, from: usize, mut data: Vec<u8>, end: bool) {
        let passed = self.pass_received(from, &mut data, end);
        self.begun |= passed;
        if passed && !self.service.ends_here && !self.received.end_passed {
            self.received.ready.append(&mut data);
            self.received.end_passed |= end;
        }
    }

    /// Something waits to be sent although nobody writes.
    pub(super) fn sends_by_itself(&self) -> bool {
        !self.sent.rest().is_empty() || self.sent.end_passed && !self.finished
    }

    /// Sends that, as far as it goes.
    ///
    /// # Errors
    /// The client is gone.
    #[cold]
    #[inline(never)]
    pub(super) fn poll_aside(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let waited = !self.sent.rest().is_empty();
        if self.poll_flush(cx)?.is_pending() {
            return Ok(());
        }
        // A peer that is gone already needs not be told.
        if self.sent.end_passed && !self.finished && self.inner.poll_finish(cx).is_ready() {
            self.finished = true;
        }
        if waited {
            // Whoever writes waited for this and not for the socket.
            cx.waker().wake_by_ref();
        }
        Ok(())
    }

    /// The connection would be over, because of the client or of both sides, but a filter keeps it.
    pub(super) fn is_end_kept(&self) -> bool {
        self.control.is_kept() && self.received.ended && (self.sent.ended || !self.half_closes())
    }

    /// Ready when no filter keeps the connection any more. What filters want meanwhile is done.
    ///
    /// # Errors
    /// The client is gone.
    #[cold]
    #[inline(never)]
    pub(super) fn poll_kept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.control.watch(cx.waker());
        self.attend();
        ready!(self.poll_flush(cx))?;
        if self.control.is_kept() && self.ending.is_none() { Poll::Pending } else { Poll::Ready(Ok(())) }
    }

    /// Ready when nothing is left to be sent of a connection that ends.
    ///
    /// # Errors
    /// The client is gone before.
    #[cold]
    #[inline(never)]
    pub(super) fn poll_end(&mut self, cx: &mut Context<'_>, ending: Ending) -> Poll<io::Result<()>> {
        match ending {
            Ending::Flushed => ready!(self.poll_flush(cx))?,
            Ending::AtOnce => {
                let _ = self.poll_flush(cx);
            }
            Ending::Dropped => {}
            Ending::Reset => self.inner.reset_on_close(),
        }
        Poll::Ready(Ok(()))
    }

    /// Tells filters that more waits for the client than is good, or no longer does.
    #[cold]
    #[inline(never)]
    pub(super) fn weigh(&mut self) {
        let (waits, limit) = (self.sent.rest().len(), self.limit());
        let much = if self.control.congested.get() { waits > limit / 2 } else { waits > limit };
        if self.control.congested.replace(much) != much {
            for place in 0..self.sessions.len() {
                self.call(place, |session, connection| session.on_congested(connection, much));
            }
        }
    }
}
