//! A client's connection with filters of its bytes between it and whoever serves it.
//!
//! ```text
//! client ── inner ──> held ── filters, first to last ──> ready ──> poll_read
//!           inner <── ready <── filters, last to first ── held <── poll_write
//! ```
//!
//! A write is answered once the client took all that filters made of it, so that nothing waits here when a connection ends.
//! What filters want beside that (see `wishes`) is done when the hook that wanted it has returned.

use std::fmt;
use std::io::{self, ErrorKind};
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use postrider_filter_api::{
    ClosedBy, Connection, ConnectionControl, ConnectionHandle, Ending, Host, MAX_NETWORK_FILTERS, NetworkFilter,
    NetworkSession, Passage, StreamInfo,
};

use super::Io;

mod wishes;

/// What one read from the client may bring.
const READ_BYTES: usize = 16 * 1024;

pub(crate) struct Filtered {
    inner: Io,
    sessions: Vec<Placed>,
    control: Rc<ConnectionControl>,
    pub(crate) info: StreamInfo,
    server_name: Option<String>,
    host: Rc<dyn Host>,
    received: Direction,
    sent: Direction,
    service: Service,
    /// Whoever serves the connection may know of it: no filter holds it back.
    begun: bool,
    /// What a write took that is not answered yet.
    taken: Option<usize>,
    /// A filter wants the connection ended.
    ending: Option<Ending>,
    /// It ends, flushed, when no filter keeps it any more.
    leaving: bool,
    /// The client heard that nothing follows.
    finished: bool,
    closed_by: ClosedBy,
    /// Filters were told of the connection.
    started: bool,
    /// Wishes that are being done, one within the other.
    nested: u32,
}

/// What is served behind the filters, and how much of the connection they may hold.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Service {
    /// Bytes that may be held in one direction.
    pub(crate) limit: usize,
    /// The client may end its side and still hear ours.
    pub(crate) half_closes: bool,
    /// Nobody reads but the filters: what they leave stays with them.
    pub(crate) ends_here: bool,
    /// As in Envoy, a TCP proxy reads nothing before it knows of the connection.
    pub(crate) reads_late: bool,
}

struct Placed {
    session: Box<dyn NetworkSession>,
    handle: ConnectionHandle,
    /// It heard of the connection.
    began: bool,
}

/// One direction of the connection. What filters did not let through yet is where they find it, in the control.
#[derive(Default)]
struct Direction {
    /// What they let through.
    ready: Vec<u8>,
    /// So much of it is gone.
    gone: usize,
    ended: bool,
    /// The end went through as well.
    end_passed: bool,
}

impl Direction {
    fn rest(&self) -> &[u8] {
        self.ready.get(self.gone..).unwrap_or_default()
    }

    fn consume(&mut self, count: usize) {
        self.gone += count;
        if self.gone >= self.ready.len() {
            self.ready.clear();
            self.gone = 0;
        }
    }

    fn let_through(&mut self, held: &mut Vec<u8>) {
        if self.ready.is_empty() {
            std::mem::swap(&mut self.ready, held);
        } else {
            self.ready.append(held);
        }
        self.end_passed |= self.ended;
    }
}

impl Filtered {
    /// `ahead` was received already.
    pub(crate) fn new(
        inner: Io,
        ahead: &[u8],
        mut info: StreamInfo,
        server_name: Option<&str>,
        host: Rc<dyn Host>,
        service: Service,
    ) -> Filtered {
        let control = ConnectionControl::default();
        control.limit.set(service.limit);
        control.half_closes.set(service.half_closes);
        info.bytes_received += ahead.len() as u64;
        *control.received.borrow_mut() = ahead.to_vec();
        Filtered {
            inner,
            sessions: Vec::new(),
            control: Rc::new(control),
            info,
            server_name: server_name.map(str::to_owned),
            host,
            received: Direction::default(),
            sent: Direction::default(),
            service,
            begun: false,
            taken: None,
            ending: None,
            leaving: false,
            finished: false,
            closed_by: ClosedBy::Proxy,
            started: false,
            nested: 0,
        }
    }

    /// A filter wants it ended, or had it so.
    pub(crate) fn was_ended(&self) -> bool {
        self.ending.is_some()
    }

    /// Adds a filter behind the others, if it wants to see this connection; before [`Filtered::poll_begin`].
    pub(crate) fn add(&mut self, filter: &dyn NetworkFilter) {
        if self.sessions.len() >= MAX_NETWORK_FILTERS {
            return;
        }
        let handle = ConnectionHandle::new(&self.control, self.sessions.len());
        let Filtered { info, server_name, host, .. } = self;
        let connection = &mut Connection { info, server_name: server_name.as_deref(), handle: &handle, host: &**host };
        if let Some(session) = filter.begin(connection) {
            self.sessions.push(Placed { session, handle, began: false });
        }
    }

    /// Ready when every filter let the connection begin; the first call tells them of it.
    ///
    /// # Errors
    /// One of them ended it, or the client did.
    pub(crate) fn poll_begin(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !std::mem::replace(&mut self.started, true) {
            self.receive(0);
        }
        self.poll_until(cx, Filtered::has_begun)
    }

    fn has_begun(&self) -> bool {
        self.begun || self.service.ends_here
    }

    /// What is received, through the filters; 0 is the end of the stream.
    pub(crate) fn poll_read(&mut self, cx: &mut Context<'_>, room: &mut [u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_readable(cx))?;
        let rest = self.received.rest();
        let count = rest.len().min(room.len());
        if let (Some(from), Some(to)) = (rest.get(..count), room.get_mut(..count)) {
            to.copy_from_slice(from);
        }
        self.received.consume(count);
        Poll::Ready(Ok(count))
    }

    pub(crate) fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_until(cx, |filtered| !filtered.received.rest().is_empty() || filtered.received.end_passed)
    }

    /// Ready when both sides ended, where nobody but the filters serves the connection.
    pub(crate) fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_until(cx, |filtered| {
            filtered.received.end_passed || filtered.received.ended && (filtered.finished || !filtered.half_closes())
        })
    }

    fn half_closes(&self) -> bool {
        self.control.half_closes.get()
    }

    /// Bytes that may be held in one direction; 0 is any number.
    fn limit(&self) -> usize {
        match self.control.limit.get() {
            0 => usize::MAX,
            limit => limit.max(READ_BYTES),
        }
    }

    /// Reads and shows filters what comes until `done`.
    fn poll_until(&mut self, cx: &mut Context<'_>, done: impl Fn(&Filtered) -> bool) -> Poll<io::Result<()>> {
        loop {
            self.control.watch(cx.waker());
            self.attend();
            if let Some(place) = self.control.take_continued()
                && self.ending.is_none()
            {
                if let Some(placed) = self.sessions.get_mut(place) {
                    placed.began = true;
                }
                self.receive(place + 1);
            }
            if let Some(ending) = self.ending {
                ready!(self.poll_end(cx, ending))?;
                return Poll::Ready(Err(ErrorKind::ConnectionAborted.into()));
            }
            if self.sends_by_itself() {
                self.poll_aside(cx)?;
            }
            if done(self) && !(self.is_end_kept() && self.received.rest().is_empty()) {
                return Poll::Ready(Ok(()));
            }
            let is_held = self.service.reads_late && !self.begun || !self.control.reads() || self.leaving;
            if is_held || self.received.ended || self.control.received.borrow().len() >= self.limit() {
                return Poll::Pending;
            }
            ready!(self.poll_receive(cx))?;
            self.receive(0);
        }
    }

    /// Reads once from the client.
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut held = self.control.received.take();
        let before = held.len();
        held.resize(before + READ_BYTES, 0);
        let read = self.inner.poll_read(cx, held.get_mut(before..).unwrap_or_default());
        let count = match &read {
            Poll::Ready(Ok(count)) => *count,
            Poll::Ready(Err(_)) | Poll::Pending => 0,
        };
        held.truncate(before + count);
        self.control.received.replace(held);
        match ready!(read) {
            Ok(0) => {
                self.received.ended = true;
                if !self.half_closes() || self.sent.ended {
                    self.closed_by = ClosedBy::Client;
                }
                if !self.half_closes() {
                    // It hears nothing any more: what was held goes nowhere, and nobody asks filters about the end.
                    self.control.received.borrow_mut().clear();
                    self.received.end_passed = true;
                    self.sessions.iter_mut().for_each(|placed| placed.began = true);
                    self.begun = true;
                }
                Poll::Ready(Ok(()))
            }
            Ok(count) => {
                self.info.bytes_received += count as u64;
                Poll::Ready(Ok(()))
            }
            Err(error) => {
                self.closed_by = ClosedBy::Client;
                Poll::Ready(Err(error))
            }
        }
    }

    /// Calls a filter, and does what it wants.
    fn call<T>(
        &mut self,
        place: usize,
        hook: impl FnOnce(&mut dyn NetworkSession, &mut Connection<'_>) -> T,
    ) -> Option<T> {
        let Filtered { sessions, info, server_name, host, .. } = self;
        let Placed { session, handle, .. } = sessions.get_mut(place)?;
        let connection = &mut Connection { info, server_name: server_name.as_deref(), handle, host: &**host };
        let answer = hook(&mut **session, connection);
        if self.control.has_wishes() {
            self.perform();
        }
        Some(answer)
    }

    /// Shows filters, from that one on, what is held of what came, and lets it through if all of them do.
    fn receive(&mut self, first: usize) {
        let mut data = self.control.received.take();
        let end = self.received.ended && !self.received.end_passed;
        let passed = self.pass_received(first, &mut data, end);
        self.begun |= passed;
        if self.received.end_passed {
            // A filter told whoever serves the connection that nothing follows.
            data.clear();
        } else if passed && !self.service.ends_here {
            self.received.let_through(&mut data);
        }
        self.control.received.replace(data);
    }

    /// Whether all filters from that one on let it pass.
    fn pass_received(&mut self, first: usize, data: &mut Vec<u8>, end: bool) -> bool {
        for place in first..self.sessions.len() {
            let began = self.sessions.get_mut(place).is_none_or(|placed| std::mem::replace(&mut placed.began, true));
            if !began {
                let passage = self.call(place, |session, connection| session.on_connection(connection));
                if passage == Some(Passage::Stop) || self.ending.is_some() {
                    return false;
                }
            }
            if !data.is_empty() || end {
                let passage = self.call(place, |session, connection| session.on_received(connection, data, end));
                if passage == Some(Passage::Stop) || self.ending.is_some() {
                    return false;
                }
            }
        }
        true
    }

    /// Sends `parts`, through the filters.
    pub(crate) fn poll_write(&mut self, cx: &mut Context<'_>, parts: &[&[u8]]) -> Poll<io::Result<usize>> {
        loop {
            self.attend();
            match self.ending {
                None => ready!(self.poll_flush(cx))?,
                Some(ending) => ready!(self.poll_end(cx, ending))?,
            }
            if let Some(taken) = self.taken.take() {
                return Poll::Ready(Ok(taken));
            }
            if self.ending.is_some() {
                return Poll::Ready(Err(ErrorKind::ConnectionAborted.into()));
            }
            let length = parts.iter().map(|part| part.len()).sum();
            if self.sent.end_passed || self.leaving {
                // A filter told the client that nothing follows, or is about to.
                return Poll::Ready(Ok(length));
            }
            if self.control.sent.borrow().len() >= self.limit() {
                self.control.watch(cx.waker());
                return Poll::Pending;
            }
            let mut held = self.control.sent.borrow_mut();
            parts.iter().for_each(|part| held.extend_from_slice(part));
            drop(held);
            self.taken = Some(length);
            self.send();
        }
    }

    /// Tells the client that nothing follows, if the filters let that through.
    pub(crate) fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_flush(cx))?;
        if self.control.is_kept() && !self.half_closes() {
            ready!(self.poll_kept(cx))?;
        }
        if !std::mem::replace(&mut self.sent.ended, true) && self.ending.is_none() {
            self.send();
            ready!(self.poll_flush(cx))?;
        }
        if !self.finished && (self.sent.end_passed || self.ending.is_some()) {
            let done = ready!(self.inner.poll_finish(cx));
            self.finished = true;
            done?;
        }
        if self.is_end_kept() { self.poll_kept(cx) } else { Poll::Ready(Ok(())) }
    }

    fn send(&mut self) {
        let mut data = self.control.sent.take();
        let passed = self.pass_sent(self.sessions.len(), &mut data, self.sent.ended);
        if passed {
            self.sent.let_through(&mut data);
        }
        self.control.sent.replace(data);
    }

    /// Whether all filters in front of that place let it pass.
    fn pass_sent(&mut self, below: usize, data: &mut Vec<u8>, end: bool) -> bool {
        (0..below.min(self.sessions.len())).rev().all(|place| {
            let passage = self.call(place, |session, connection| session.on_sent(connection, data, end));
            passage != Some(Passage::Stop) && self.ending.is_none()
        })
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.sent.rest().is_empty() {
            let Poll::Ready(written) = self.inner.poll_write(cx, self.sent.rest()) else {
                self.weigh();
                return Poll::Pending;
            };
            match written {
                Ok(count @ 1..) => {
                    self.info.bytes_sent += count as u64;
                    self.sent.consume(count);
                }
                Ok(0) => return Poll::Ready(Err(ErrorKind::WriteZero.into())),
                Err(error) => {
                    self.closed_by = ClosedBy::Client;
                    return Poll::Ready(Err(error));
                }
            }
        }
        if self.control.congested.get() {
            self.weigh();
        }
        Poll::Ready(Ok(()))
    }

    pub(crate) fn inner(&self) -> &Io {
        &self.inner
    }

    pub(crate) fn inner_mut(&mut self) -> &mut Io {
        &mut self.inner
    }

    /// Filters learn what became of the connection's upstream.
    pub(crate) fn learn(&mut self, info: &StreamInfo) {
        self.info.upstream_local = info.upstream_local;
        self.info.upstream_remote.clone_from(&info.upstream_remote);
        self.info.upstream_cluster.clone_from(&info.upstream_cluster);
        self.info.upstream_connection_id = info.upstream_connection_id;
        self.info.upstream_connect = info.upstream_connect;
        self.info.upstream_wait = info.upstream_wait;
        self.info.upstream_tls.clone_from(&info.upstream_tls);
        self.info.upstream_failure.clone_from(&info.upstream_failure);
        self.info.flags = info.flags;
    }

    /// Filters hear that it is over, and no more after that.
    pub(crate) fn close(&mut self) {
        let Filtered { sessions, info, server_name, host, closed_by, .. } = self;
        if !sessions.is_empty() {
            info.ended = Some(host.now());
        }
        for Placed { mut session, handle, .. } in sessions.drain(..) {
            let handle = &handle;
            let connection = &mut Connection { info, server_name: server_name.as_deref(), handle, host: &**host };
            session.on_closed(connection, *closed_by);
        }
    }

    /// Why filters ended it.
    pub(crate) fn tell_end(&self, info: &mut StreamInfo) {
        if !self.info.termination_details.is_empty() {
            info.termination_details.clone_from(&self.info.termination_details);
        }
        if !self.info.closed.downstream_reason.is_empty() {
            info.closed.downstream_reason.clone_from(&self.info.closed.downstream_reason);
        }
    }

    /// What filters noted, for logs of the connection, and the bytes as the client has them.
    pub(crate) fn tell(&self, info: &mut StreamInfo) {
        info.bytes_received = self.info.bytes_received;
        info.bytes_sent = self.info.bytes_sent;
        info.metadata.clone_from(&self.info.metadata);
        for (name, value) in &self.info.filter_state {
            info.set_state(name, value.clone());
        }
        info.upstream_objects.clone_from(&self.info.upstream_objects);
        self.tell_end(info);
        for shared in &self.info.shared {
            if !info.shared.iter().any(|known| Rc::ptr_eq(known, shared)) {
                info.shared.push(shared.clone());
            }
        }
    }
}

impl Drop for Filtered {
    fn drop(&mut self) {
        self.close();
    }
}

impl fmt::Debug for Filtered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Filtered").field("inner", &self.inner).finish_non_exhaustive()
    }
}
