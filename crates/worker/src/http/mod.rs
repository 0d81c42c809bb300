//! HTTP connections: one task reads requests from a client and takes each through the pipeline of [`Exchange::run`].
//!
//! ```text
//! serve ──> next head ──> Exchange::run ──> next head ──> … ──> close
//!             │ idle, header and drain deadlines      │ keep-alive decides
//! ```

mod age;
mod attempt_record;
mod attempts;
mod choice;
mod client_certificate;
pub(crate) mod counts;
mod detection;
mod edits;
mod ending;
mod exchange;
mod filtered;
mod filters;
mod groups;
mod grpc;
mod hold;
mod identity;
mod local;
mod local_replies;
mod meters;
mod mirror;
mod names;
mod next_cluster;
mod outbox;
mod passage;
mod prepare;
mod proxy_status;
mod redirect;
mod respond;
mod retry;
mod send;
mod stream;
mod streaming;
mod taken;
mod trace;
mod transfer;
mod upside;

pub(crate) use age::{age_limit, with_share};
pub(crate) use attempt_record::{size_of_request, size_of_response};
pub(crate) use attempts::{Attempts, Reset, Verdict, draw as drawn_wait};
pub(crate) use choice::{combine, hash_of_address, hash_of_noted, with_noted};
pub use client_certificate::tell_certificate;
pub(crate) use edits::{add as add_fields, evaluate as evaluate_edits, remove as remove_fields, uuid};
pub(crate) use exchange::Exchange;
pub(crate) use identity::is_usual;
pub use identity::{Ends, identify};
pub(crate) use local_replies::LocalReplies;
pub(crate) use prepare::OfStream;

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use postrider_filter_api::{CloseType, Moment, Noted, TlsSession};
use postrider_h1::{HeadScan, RequestParse, parse_request};
use postrider_model::{Codec, ScaledTimer, ShedKind};
use postrider_telemetry::stats::sets::{http as stat, http1, http2};

use crate::account::Account;
use crate::backlog::{OF_HTTP, Waiting};
use crate::buffers::Input;
use crate::chain::{Chain, Handler, Http};
use crate::io::Io;
use crate::listener::{Arrival, Counted};
use crate::party::Caller;
use crate::record::Record;
use crate::timers::Deadline;
use crate::worker::Worker;
use outbox::Outbox;

/// Answers that may gather while a client's next requests are already here; more are sent first.
const MERGE_LIMIT: usize = 64 * 1024;

/// A client's connection between and during its requests.
pub(crate) struct Connection {
    pub(crate) worker: Rc<Worker>,
    pub(crate) chain: Rc<Chain>,
    pub(crate) io: Io,
    pub(crate) input: Input,
    pub(crate) deadline: Deadline,
    /// Answers that were not sent yet.
    pub(crate) out: Outbox,
    pub(crate) local: Option<SocketAddr>,
    redirected: bool,
    pub(crate) remote: Option<SocketAddr>,
    /// The peer itself, before what a proxy in front of us said.
    pub(crate) direct_remote: Option<SocketAddr>,
    pub(crate) tls: Option<Rc<TlsSession>>,
    pub(crate) id: u64,
    pub(crate) requests: u32,
    /// The client sends nothing more; it may still want its answer.
    pub(crate) half_closed: bool,
    /// Whoever ends the connection now, the client was first.
    client_ended: bool,
    /// It ended in the middle of a request.
    deserted: bool,
    /// What statistics say of bytes that wait on it.
    pub(super) waiting: Waiting,
    /// It is too old: it takes one more request, or none.
    retiring: bool,
    /// It begins with the preface of HTTP/2, which this listener speaks, too.
    is_http2: bool,
    accepted: Moment,
    /// Since when it waits for a head, or for the rest of one.
    waits_since: Moment,
    /// Progress through a head that is not complete.
    scan: Option<Box<HeadScan>>,
    /// `None` for a stream of a connection that is counted itself.
    counted: Option<Counted>,
    /// What the listener's log will say.
    pub(super) record: Option<Rc<Record>>,
    pub(super) noted: Option<Rc<Noted>>,
    /// What its requests hold, where that is to be known.
    pub(super) account: Option<Rc<Account>>,
}

/// How a connection goes on after an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum After {
    KeepAlive,
    /// Everything was said and heard.
    Close,
    /// Everything was said, but the client may still be sending: it must get the chance to read the answer.
    Linger,
    /// Something was promised that will not come: the client must see that.
    Reset,
}

/// Why we end a connection, in Envoy's words: nothing was asked, the head was too slow, or a message said that it ends.
const IDLE: &str = "on_idle_timeout";
const HEADER_TIMEOUT: &str = "triggered_delayed_close_timeout";
const DRAINED: &str = "deferred_close_on_drained_connection";

/// Why no further head came.
enum Fill {
    More,
    Closed,
    HeaderTimeout,
}

/// Serves one client until either side has enough. `requests` came before on the same connection, which matters for its
/// streams. One that begins as HTTP/2 does, where that is welcome, is
/// handed on.
pub(crate) async fn serve(worker: Rc<Worker>, chain: Rc<Chain>, arrival: Arrival, requests: u32) {
    let of_chain = chain.clone();
    let Handler::Http(http) = &of_chain.handler else { return };
    let Arrival { io, ahead, local, redirected, remote, direct_remote, tls, id, counted, record, noted, .. } = arrival;
    let mut connection = Connection {
        deadline: worker.timers.register(),
        accepted: worker.clock.now(),
        waits_since: worker.clock.recent(),
        input: ahead,
        out: Outbox::default(),
        requests,
        half_closed: false,
        client_ended: false,
        deserted: false,
        waiting: Waiting::default(),
        retiring: false,
        is_http2: false,
        scan: None,
        worker,
        chain,
        io,
        local,
        redirected,
        remote,
        direct_remote,
        tls,
        id,
        counted,
        record,
        noted,
        account: None,
    };
    connection.run(http).await;
    if connection.is_http2 {
        // Boxed: few connections that are asked turn out so, and it is large.
        let worker = connection.worker.clone();
        Box::pin(crate::h2::serve(worker, of_chain, connection.hand_on())).await;
    } else {
        connection.end(http);
    }
}

/// The process is short of something: whether a connection that just said its first word ends at that.
#[cold]
pub(crate) fn sheds_codec(worker: &Worker, http: &Http) -> bool {
    let sheds = !http.welcome.get() && worker.overload.sheds(ShedKind::Codec, &worker.random, &worker.stats);
    if sheds {
        http.stats.inc(stat::DOWNSTREAM_RQ_OVERLOAD_CLOSE);
    }
    sheds
}

impl Connection {
    /// Of the client's connection, source first, for upstreams that want to know; `None` on a Unix socket.
    pub(crate) fn ends(&self) -> Option<(SocketAddr, SocketAddr)> {
        if let Handler::Http(http) = &self.chain.handler
            && http.model.identity.hides_ends
        {
            return None;
        }
        self.remote.zip(self.local)
    }

    /// Who asks, for upstreams that are to know or to serve nobody else.
    pub(crate) fn caller(&self) -> Caller<'_> {
        let tlvs = self.noted.as_ref().and_then(|noted| noted.tlvs.as_deref()).unwrap_or_default();
        Caller { id: Some(self.id), ends: self.ends(), tlvs }
    }

    /// Where the client's connection was meant to go, where that is known to be elsewhere.
    pub(crate) fn destination(&self) -> Option<SocketAddr> {
        self.local.filter(|_| self.redirected)
    }

    async fn run(&mut self, http: &Http) {
        while let Some(mut exchange) = self.next_head(http).await {
            if self.requests == 0 {
                if self.worker.overload.requests.get() && sheds_codec(&self.worker, http) {
                    self.worker.put_exchange(exchange);
                    return;
                }
                http.stats.inc(stat::DOWNSTREAM_CX_HTTP1_TOTAL);
                http.stats.gauge_inc(stat::DOWNSTREAM_CX_HTTP1_ACTIVE);
            }
            self.requests += 1;
            self.worker.busy.set(self.worker.busy.get() + 1);
            let after = exchange.run(self, http).await;
            self.worker.busy.set(self.worker.busy.get().saturating_sub(1));
            self.worker.put_exchange(exchange);
            match after {
                After::KeepAlive if !self.is_stream() => {}
                After::Linger if !self.is_stream() => {
                    self.note_reason(DRAINED);
                    self.flush().await;
                    self.linger(http).await;
                    return;
                }
                After::KeepAlive | After::Close | After::Linger => {
                    self.note_reason(DRAINED);
                    self.flush().await;
                    return;
                }
                After::Reset => {
                    self.flush_at_once().await;
                    self.io.reset_on_close();
                    return;
                }
            }
        }
        self.flush().await;
    }

    /// It carries one request, and its end is the request's.
    fn is_stream(&self) -> bool {
        matches!(self.io, Io::Http2(_))
    }

    /// Waits for a complete head; `None` when the connection is over. A head that is refused comes as an exchange
    /// that says so.
    async fn next_head(&mut self, http: &Http) -> Option<Box<Exchange>> {
        // Just read, by the exchange before or when the connection began.
        self.arm_head_deadline(http, self.worker.clock.recent());
        loop {
            if !self.input.is_empty() && self.out.bytes.len() < MERGE_LIMIT {
                let mut exchange = self.worker.take_exchange();
                if self.parse(http, &mut exchange) {
                    return Some(exchange);
                }
                self.worker.put_exchange(exchange);
                if self.is_http2 {
                    return None;
                }
            }
            match std::future::poll_fn(|cx| self.poll_fill(http, cx)).await {
                Fill::More => {}
                Fill::Closed => {
                    if self.scan.is_some() && self.client_ended && !self.is_stream() {
                        self.abandon_head(http);
                    }
                    return None;
                }
                Fill::HeaderTimeout => {
                    http.stats.inc(stat::DOWNSTREAM_RQ_HEADER_TIMEOUT);
                    let mut exchange = self.worker.take_exchange();
                    exchange.refuse(exchange::HEADER_TIMEOUT);
                    self.note_reason(HEADER_TIMEOUT);
                    return Some(exchange);
                }
            }
        }
    }

    /// Reads a head from what is there; `false` when it is not complete.
    fn parse(&mut self, http: &Http, exchange: &mut Exchange) -> bool {
        let shared = &self.worker.scan;
        let mut own = self.scan.take();
        let mut shared = shared.borrow_mut();
        let scan = own.as_deref_mut().unwrap_or(&mut shared);
        match parse_request(self.input.bytes(), &http.rules, scan, &mut exchange.request) {
            RequestParse::Complete { consumed, mut facts } => {
                if http.notes_heads && !matches!(self.io, Io::Http2(_)) {
                    let head = self.input.bytes().get(..consumed).unwrap_or_default();
                    exchange.keep_request_names(head, http.model.http1.names);
                    facts.upgrade = facts.upgrade && exchange.keeps_upgrade(&http.model.http1.ignored_upgrades);
                }
                if http.meters {
                    exchange.meter_own_head(self.input.bytes().get(..consumed).unwrap_or_default());
                }
                self.input.consume(consumed, &self.worker.buffers);
                if facts.dropped_names > 0 {
                    self.count_dropped_names(facts.dropped_names);
                }
                exchange.accept(facts, consumed);
                if let Io::Http2(stream) = &mut self.io {
                    exchange.begin_stream(stream);
                }
                true
            }
            RequestParse::Reject(_) if self.requests == 0 && is_preface(http, self.input.bytes()) => {
                self.is_http2 = true;
                false
            }
            RequestParse::Reject(reject) => {
                exchange.refuse(reject);
                if http.meters {
                    exchange.meter_refused_head(self.input.bytes());
                }
                if let Io::Http2(stream) = &mut self.io {
                    exchange.begin_stream(stream);
                }
                true
            }
            RequestParse::Partial => {
                let started = own.is_none();
                self.scan = own.or_else(|| Some(Box::new(std::mem::take(&mut *shared))));
                drop(shared);
                if started {
                    self.arm_head_deadline(http, self.worker.clock.now());
                }
                false
            }
        }
    }

    fn arm_head_deadline(&mut self, http: &Http, now: Moment) {
        self.waits_since = now;
        let timeouts = &http.model.timeouts;
        let wait = if self.scan.is_some() { timeouts.request_headers } else { timeouts.connection_idle };
        let mut due = wait.map(|wait| now + wait);
        // A head on its way is waited for.
        if let Some(limit) = self.age_limit(http).filter(|_| self.scan.is_none()) {
            let oldest = self.accepted + limit;
            due = Some(due.map_or(oldest, |due| due.min(oldest)));
        }
        self.deadline.set(due);
    }

    /// Sends gathered answers, then reads once.
    fn poll_fill(&mut self, http: &Http, cx: &mut Context<'_>) -> Poll<Fill> {
        let filled = self.poll_fill_now(http, cx);
        if filled.is_pending() {
            if self.worker.overload.hurries.get() {
                self.hurry(http);
            }
            if !self.input.is_empty() || !self.out.is_empty() || self.waiting.is_told() {
                self.tell_waiting(http, self.input.bytes().len(), self.out.waiting());
            }
            self.deadline.watch(cx.waker());
        }
        filled
    }

    /// The process is, or was, short of something, and idle connections have less time than they are configured to have.
    #[cold]
    fn hurry(&self, http: &Http) {
        let (timeouts, overload) = (&http.model.timeouts, &self.worker.overload);
        let wait = match self.scan {
            Some(_) => timeouts.request_headers,
            None => overload.hurried(ScaledTimer::ConnectionIdle, timeouts.connection_idle),
        };
        let age = overload.hurried(ScaledTimer::ConnectionAge, self.age_limit(http));
        let age = age.filter(|_| self.scan.is_none() && !self.retiring);
        let ends = [wait.map(|wait| self.waits_since + wait), age.map(|age| self.accepted + age)];
        self.deadline.set(ends.into_iter().flatten().min());
    }

    #[inline]
    fn poll_fill_now(&mut self, http: &Http, cx: &mut Context<'_>) -> Poll<Fill> {
        if self.deadline.is_past() {
            if self.scan.is_some() {
                return Poll::Ready(Fill::HeaderTimeout);
            }
            if !self.retires(http) {
                self.note_reason(IDLE);
                return Poll::Ready(Fill::Closed);
            }
        }
        while !self.out.is_empty() {
            let sent = ready!(self.out.poll_flush(cx, &mut self.io, &mut self.input, &self.worker.buffers));
            match sent {
                Ok(count) => http.stats.add(stat::DOWNSTREAM_CX_TX_BYTES_TOTAL, count as u64),
                Err(_) => {
                    self.client_ended = true;
                    return Poll::Ready(Fill::Closed);
                }
            }
        }
        if self.half_closed {
            return Poll::Ready(Fill::Closed);
        }
        if self.scan.is_none() && self.input.is_empty() && self.worker.stopping.get() {
            http.stats.inc(stat::DOWNSTREAM_CX_DRAIN_CLOSE);
            return Poll::Ready(Fill::Closed);
        }
        match self.poll_receive(cx, http) {
            Poll::Ready(Ok(0)) => Poll::Ready(Fill::Closed),
            Poll::Ready(Ok(_)) => Poll::Ready(Fill::More),
            Poll::Ready(Err(_)) => Poll::Ready(Fill::Closed),
            Poll::Pending => Poll::Pending,
        }
    }

    /// Why we end this connection, for the log of its listener; the first reason stays.
    #[cold]
    #[inline(never)]
    fn note_reason(&self, reason: &'static str) {
        let Some(record) = self.record.as_ref().filter(|_| !self.is_stream()) else { return };
        record.note(|info| {
            if info.closed.downstream_reason.is_empty() {
                info.closed.downstream_reason = reason.into();
            }
        });
    }

    /// The client's socket failed.
    #[cold]
    #[inline(never)]
    fn note_failure(&mut self, error: &std::io::Error) {
        self.client_ended = true;
        let Some(record) = self.record.as_ref().filter(|_| error.kind() == ErrorKind::ConnectionReset) else { return };
        record.note(|info| info.closed.downstream = CloseType::RemoteReset);
    }

    /// Reads once from the client.
    pub(crate) fn poll_receive(&mut self, cx: &mut Context<'_>, http: &Http) -> Poll<std::io::Result<usize>> {
        let limit = self.chain.buffer_limit;
        let filled = ready!(self.input.poll_fill(cx, &mut self.io, limit, &self.worker.buffers));
        let count = filled.inspect_err(|error| self.note_failure(error))?;
        if count == 0 {
            self.half_closed = true;
            self.client_ended = true;
        }
        http.stats.add(stat::DOWNSTREAM_CX_RX_BYTES_TOTAL, count as u64);
        Poll::Ready(Ok(count))
    }

    /// The client, or its connection, is gone before its request was answered.
    #[cold]
    pub(super) fn desert(&mut self) {
        self.half_closed = true;
        self.deserted = true;
        // What did not fail by itself was given up for what it does not take.
        self.client_ended |= !self.io.gave_up();
    }

    /// A tunnel is over. Who ends it leaves a request that goes on as long as the tunnel does.
    #[cold]
    pub(super) fn leave_tunnel(&mut self) {
        self.deserted |= self.client_ended;
    }

    #[cold]
    pub(super) fn tell_waiting(&mut self, http: &Http, received: usize, to_send: usize) {
        self.waiting.tell(&http.stats, OF_HTTP, received, to_send);
    }

    #[cold]
    fn count_dropped_names(&self, count: u32) {
        let stats = &self.worker.stats;
        match self.is_stream() {
            false => stats.block(&http1::SET, "").add(http1::DROPPED_HEADERS_WITH_UNDERSCORES, count.into()),
            true => stats.block(&http2::SET, "").add(http2::DROPPED_HEADERS_WITH_UNDERSCORES, count.into()),
        }
    }

    /// The client left in the middle of a head: as Envoy counts, a request had begun.
    #[cold]
    fn abandon_head(&mut self, http: &Http) {
        self.deserted = true;
        http.stats.inc(stat::DOWNSTREAM_RQ_HTTP1_TOTAL);
        http.stats.inc(stat::DOWNSTREAM_RQ_RX_RESET);
    }

    /// Answers should say that this connection ends.
    pub(crate) fn is_draining(&self) -> bool {
        self.worker.drains(&self.chain)
    }

    /// Sends what of the gathered bytes the client takes without being waited for: what there was of a message that breaks off.
    #[cold]
    async fn flush_at_once(&mut self) {
        std::future::poll_fn(|cx| {
            while !self.out.is_empty() {
                match self.out.poll_flush(cx, &mut self.io, &mut self.input, &self.worker.buffers) {
                    Poll::Ready(Ok(_)) => {}
                    Poll::Ready(Err(_)) | Poll::Pending => break,
                }
            }
            Poll::Ready(())
        })
        .await;
    }

    /// Waits until what a stream said is on its way, for as long as anything that ends has.
    #[cold]
    async fn wait_sent(&mut self) {
        let Handler::Http(http) = &self.chain.clone().handler else { return };
        let limit = http.model.timeouts.delayed_close.max(Duration::from_secs(1));
        self.deadline.set(Some(self.worker.clock.now() + limit));
        std::future::poll_fn(|cx| {
            self.deadline.watch(cx.waker());
            match &self.io {
                Io::Http2(stream) if !self.deadline.is_past() => stream.poll_sent(cx),
                _ => Poll::Ready(()),
            }
        })
        .await;
    }

    /// Sends gathered answers; a client that takes nothing of them for too long has gone.
    async fn flush(&mut self) {
        if self.out.is_empty() {
            return;
        }
        let Handler::Http(http) = &self.chain.clone().handler else { return };
        let limit = self.flush_limit(http);
        let due = |worker: &Worker| limit.map(|limit| worker.clock.now() + limit);
        self.deadline.set(due(&self.worker));
        let mut moved = false;
        std::future::poll_fn(|cx| {
            while !self.out.is_empty() && !self.deadline.is_past() {
                match self.out.poll_flush(cx, &mut self.io, &mut self.input, &self.worker.buffers) {
                    Poll::Ready(Ok(count)) => {
                        http.stats.add(stat::DOWNSTREAM_CX_TX_BYTES_TOTAL, count as u64);
                        moved = true;
                    }
                    Poll::Ready(Err(_)) => break,
                    Poll::Pending => {
                        if std::mem::take(&mut moved) {
                            self.deadline.set(due(&self.worker));
                        }
                        self.deadline.watch(cx.waker());
                        return Poll::Pending;
                    }
                }
            }
            Poll::Ready(())
        })
        .await;
        if self.is_stream() && self.deadline.is_past() {
            self.worker.stats.block(&http2::SET, "").inc(http2::TX_FLUSH_TIMEOUT);
        }
    }

    /// How long a client may take nothing of what was said: on a connection that is to close, and of a stream, whose connection
    /// goes on.
    fn flush_limit(&self, http: &Http) -> Option<Duration> {
        let timeouts = &http.model.timeouts;
        match self.is_stream() {
            true => self.worker.overload.hurried(ScaledTimer::StreamFlush, timeouts.stream_flush),
            false => Some(timeouts.delayed_close.max(Duration::from_secs(1))),
        }
    }

    /// Closes our side and reads on until the client closed too, so that a reset cannot overtake the answer
    /// (RFC 9112 section 9.6).
    async fn linger(&mut self, http: &Http) {
        let limit = http.model.timeouts.delayed_close;
        if limit.is_zero() {
            return;
        }
        self.deadline.set(Some(self.worker.clock.now() + limit));
        std::future::poll_fn(|cx| {
            self.deadline.watch(cx.waker());
            // A client that is gone already is all right.
            let _ = ready!(self.io.poll_finish(cx));
            loop {
                if self.deadline.is_past() {
                    http.stats.inc(stat::DOWNSTREAM_CX_DELAYED_CLOSE_TIMEOUT);
                    return Poll::Ready(());
                }
                self.input.release(&self.worker.buffers);
                match self.poll_receive(cx, http) {
                    Poll::Ready(Ok(1..)) => {}
                    Poll::Ready(_) => return Poll::Ready(()),
                    Poll::Pending => return Poll::Pending,
                }
            }
        })
        .await;
    }

    /// As it arrived.
    fn hand_on(mut self) -> Arrival {
        let ahead = Input::holding(self.input.bytes().to_vec());
        self.input.release(&self.worker.buffers);
        let Connection { io, local, redirected, remote, direct_remote, tls, id, counted, record, noted, .. } = self;
        Arrival { io, ahead, local, redirected, remote, direct_remote, tls, hello: None, id, counted, record, noted }
    }

    fn end(mut self, http: &Http) {
        self.input.release(&self.worker.buffers);
        if self.waiting.is_told() {
            self.tell_waiting(http, 0, 0);
        }
        if self.is_stream() {
            // Its connection counts itself.
            return;
        }
        if self.requests > 0 {
            http.stats.gauge_dec(stat::DOWNSTREAM_CX_HTTP1_ACTIVE);
        }
        self.has_retired(http);
        if let Some(record) = self.record.as_ref().filter(|_| self.io.was_ended()) {
            record.note(|info| self.io.tell_end(info));
        }
        let ended = counts::Ended {
            by_client: self.client_ended,
            busy: self.deserted,
            secure: self.tls.is_some(),
            age: self.worker.clock.now().saturating_duration_since(self.accepted),
        };
        ended.count(&http.stats);
        drop(self.counted);
    }
}

/// The first bytes are those of HTTP/2 (RFC 9113 section 3.4), and they are welcome.
#[cold]
fn is_preface(http: &Http, bytes: &[u8]) -> bool {
    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let known = bytes.len().min(PREFACE.len());
    http.model.codec == Codec::Auto && known > 4 && bytes.get(..known) == PREFACE.get(..known)
}
