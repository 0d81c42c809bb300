//! Requests of filters' own: one request to a cluster and its answer, on a task of its own.
//!
//! It takes the same way as a forwarded one: load balancer, circuit breakers, pool, counters. It ends with its answer,
//! at its timeout, or when the filter drops the handle; nothing of it outlives that.

mod copy;
mod feed;
pub(crate) mod frame;
pub(crate) mod grpc;
pub(crate) mod target;
mod underway;

use std::cell::Cell;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use postrider_filter_api::{Answer, Call, CallFailure, CallHandle};
use postrider_h1::{BodyDecoder, HeadScan, ResponseParse, parse_response, write_chunk, write_last_chunk};
use postrider_http::{
    Asked, BodyFraming, Connection as Persistence, Fields, HeaderId, Method, RequestHead, RequestWrite, ResponseFacts,
    ResponseHead, ResponseRules, Scheme, Version, capitalize_names, write_request,
};
use postrider_model::{NameForm, Priority, UpstreamProtocol};
use postrider_telemetry::stats::sets::{self, cluster as stat};
use postrider_upstream::Permit;

use crate::cluster::{Cluster, Host, NoConnection, Upstream};
use crate::io::Io;
use crate::party::{Caller, Party};
use crate::worker::Worker;
pub(crate) use copy::{Copied, CopyRecord};
use feed::Fed;
pub(crate) use feed::{Feed, Feeder};
use underway::Underway;

/// An answer with a larger body is a failure: filters hold it in memory.
const MAX_ANSWER_BYTES: usize = 1 << 20;

/// Sends `call` to `cluster`.
pub(crate) fn start(worker: Rc<Worker>, cluster: Rc<Cluster>, call: Call) -> CallHandle {
    let task = tokio::task::spawn_local(run(worker, cluster, call));
    CallHandle::new(move || task.abort())
}

/// Sends a copy of a request that is under way: what comes back is thrown away.
pub(crate) fn mirror(
    worker: Rc<Worker>,
    cluster: Rc<Cluster>,
    head: RequestHead,
    copied: Copied,
    timeout: Option<Duration>,
) {
    tokio::task::spawn_local(async move {
        // Whether it went well, the cluster's counters tell.
        let outcome = ask(&worker, &cluster, &head, Payload::Fed(&copied), timeout).await;
        if let Some(record) = &copied.record {
            record.end(&head, outcome.as_ref().ok().map(|answer| &answer.trailers));
        }
    });
}

async fn run(worker: Rc<Worker>, cluster: Rc<Cluster>, call: Call) {
    let Call { head, body, timeout, done, .. } = call;
    done(ask(&worker, &cluster, &head, Payload::Whole(&body), timeout).await);
}

/// What a request carries.
#[derive(Clone, Copy)]
enum Payload<'a> {
    Whole(&'a [u8]),
    /// It comes piece by piece, and its answer is thrown away.
    Fed(&'a Copied),
}

impl<'a> Payload<'a> {
    /// What a log is to be told of it.
    fn record(self) -> Option<&'a CopyRecord> {
        match self {
            Payload::Whole(_) => None,
            Payload::Fed(copied) => copied.record.as_ref(),
        }
    }
}

async fn ask(
    worker: &Rc<Worker>,
    cluster: &Rc<Cluster>,
    head: &RequestHead,
    body: Payload<'_>,
    timeout: Option<Duration>,
) -> Result<Answer, CallFailure> {
    let stats = cluster.stats(worker).clone();
    // Whatever the exchange held is free again before the filter hears the outcome: it may call at once again.
    let outcome = {
        let settled = Cell::new(false);
        let mut exchange = std::pin::pin!(exchange(worker, cluster, head, body, &settled));
        let outcome = match timeout {
            Some(limit) => tokio::time::timeout(limit, exchange.as_mut()).await.unwrap_or(Err(CallFailure::Timeout)),
            None => exchange.as_mut().await,
        };
        // A timeout is no cancellation either.
        settled.set(true);
        outcome
    };
    if matches!(outcome, Err(CallFailure::Timeout)) {
        stats.inc(stat::UPSTREAM_RQ_TIMEOUT);
    }
    let status = match &outcome {
        Ok(answer) => answer.head.status(),
        Err(CallFailure::Timeout) => 504,
        Err(CallFailure::Upstream) => 503,
    };
    // The proxy's own requests come from inside.
    sets::count_upstream_response(&stats, status, true);
    outcome
}

async fn exchange(
    worker: &Rc<Worker>,
    cluster: &Rc<Cluster>,
    head: &RequestHead,
    body: Payload<'_>,
    settled: &Cell<bool>,
) -> Result<Answer, CallFailure> {
    let stats = cluster.stats(worker).clone();
    let Some(host) = cluster.hosts.pick(&worker.random) else {
        stats.inc(stat::UPSTREAM_CX_NONE_HEALTHY);
        return Err(CallFailure::Upstream);
    };
    let record = body.record();
    if let Some(record) = record {
        record.chosen(&host, head);
    }
    let protocol = cluster.protocol_for(Version::Http11);
    let party = cluster.party(Some(head), Caller::default);
    let mut underway = None;
    let mut retried = false;
    loop {
        let way = Way { worker, cluster, host: &host, protocol, party: party.as_deref() };
        let upstream = way.connection(!retried).await.map_err(|failure| {
            if let Some(record) = record {
                record.unreached(&failure);
            }
            CallFailure::Upstream
        })?;
        let upstream = match &underway {
            Some(_) => upstream,
            None => {
                let Some((upstream, begun)) = way.begin(upstream, settled) else {
                    if let Some(record) = record {
                        record.turned_away();
                    }
                    return Err(CallFailure::Upstream);
                };
                underway = Some(begun);
                upstream
            }
        };
        upstream.begin_request();
        if let Some(record) = record {
            record.connected(&upstream, head);
        }
        let mut attempt = Attempt::new(worker, cluster, upstream, head, body);
        match std::future::poll_fn(|cx| attempt.poll(cx)).await {
            Ok(()) => {
                let total = if attempt.head.status() >= 500 { &host.totals.errors } else { &host.totals.successes };
                total.set(total.get() + 1);
                settled.set(true);
                return Ok(attempt.finish());
            }
            // RFC 9110 section 9.2.2: what is idempotent may be sent again; a pooled connection that its owner closed
            // meanwhile is the common case.
            Err(Broken { heard: false, .. })
                if attempt.is_reused() && !retried && !attempt.fed && head.method().is_idempotent() =>
            {
                retried = true;
            }
            Err(Broken { ended, .. }) => {
                if let Some(record) = record
                    && !attempt.given_up
                {
                    record.broke(ended);
                }
                host.totals.errors.set(host.totals.errors.get() + 1);
                settled.set(true);
                return Err(CallFailure::Upstream);
            }
        }
    }
}

/// Which connection a request of a filter's own takes.
struct Way<'a> {
    worker: &'a Rc<Worker>,
    cluster: &'a Rc<Cluster>,
    host: &'a Rc<Host>,
    protocol: UpstreamProtocol,
    /// For whom the connection is.
    party: Option<&'a Party>,
}

impl<'a> Way<'a> {
    /// A connection: a pooled one if that will do, else a new one.
    async fn connection(&self, pooled: bool) -> Result<Box<Upstream>, NoConnection> {
        let Way { worker, cluster, host, protocol, party } = *self;
        if pooled && let Some(pooled) = cluster.checkout(host, worker.clock.now(), protocol, party) {
            if cluster.preconnects && party.is_none() {
                cluster.preconnect(worker, host, Priority::Default, protocol);
            }
            return Ok(pooled);
        }
        let made = cluster.connect(worker, host, Priority::Default, Some(protocol), party).await;
        if made.as_ref().is_err_and(|failure| !matches!(failure, NoConnection::Overflow | NoConnection::NoPool)) {
            cluster.stats(worker).inc(stat::UPSTREAM_RQ_PENDING_FAILURE_EJECT);
        }
        made
    }

    /// Counts a request from here on; `None` when the circuit breaker lets no more through.
    fn begin(&self, upstream: Box<Upstream>, settled: &'a Cell<bool>) -> Option<(Box<Upstream>, Underway<'a>)> {
        let stats = self.cluster.stats(self.worker);
        match Permit::request(&self.cluster.breakers, Priority::Default, self.worker.id) {
            Some(permit) => Some((upstream, Underway::begin(self.host, stats, settled, permit, self.worker))),
            None => {
                stats.inc(stat::UPSTREAM_RQ_ACTIVE_OVERFLOW);
                self.cluster.put_back(upstream, self.worker.clock.now());
                None
            }
        }
    }
}

/// The request on one connection.
struct Attempt<'a> {
    worker: &'a Rc<Worker>,
    cluster: &'a Rc<Cluster>,
    /// `None` once it went back to its pool.
    upstream: Option<Box<Upstream>>,
    method: Method,
    out: Vec<u8>,
    sent: usize,
    scan: HeadScan,
    head: ResponseHead,
    facts: ResponseFacts,
    /// `None` while the final head has not come.
    decoder: Option<BodyDecoder>,
    trailers: Fields,
    body: Vec<u8>,
    /// Some of an answer came.
    heard: bool,
    /// What brings the body, where it comes piece by piece.
    copied: Option<&'a Copied>,
    /// The rest of that does not come.
    given_up: bool,
    chunked: bool,
    /// Some of that was taken, so that it cannot be sent once more.
    fed: bool,
    /// All of the body is in `out` or sent.
    complete: bool,
}

/// The connection or the answer is no good.
struct Broken {
    heard: bool,
    /// The peer closed the connection, or it broke.
    ended: bool,
}

impl<'a> Attempt<'a> {
    fn new(
        worker: &'a Rc<Worker>,
        cluster: &'a Rc<Cluster>,
        mut upstream: Box<Upstream>,
        head: &RequestHead,
        body: Payload<'a>,
    ) -> Attempt<'a> {
        let (body, fed) = match body {
            Payload::Whole(body) => (body, None),
            Payload::Fed(copied) => (&[][..], Some(copied)),
        };
        let framing = match (body.len(), head.method()) {
            _ if let Some(copied) = fed => copied.framing,
            // RFC 9110 section 8.6: a method that means a body says that there is none.
            (0, Method::Post | Method::Put | Method::Patch) => BodyFraming::Length(0),
            // A filter may want to say it, too.
            (0, _) if head.fields.has(HeaderId::ContentLength) => BodyFraming::Length(0),
            (0, _) => BodyFraming::None,
            (length, _) => BodyFraming::Length(length as u64),
        };
        let absolute = cluster.absolute_targets.then_some(head.scheme().unwrap_or(Scheme::Http));
        let options = RequestWrite { framing, connection: Persistence::Implicit, absolute, extra: &[] };
        let mut out = Vec::new();
        match &mut upstream.io {
            // One that takes no more streams shows when its answer is read.
            Io::Http2(stream) => drop(stream.send_request(head, framing, false)),
            Io::Plain(_) | Io::Tls(_) | Io::Filtered(_) => {
                write_request(head, &options, &mut out);
                if cluster.names == NameForm::ProperCase {
                    capitalize_names(&mut out);
                }
            }
        }
        let chunked = framing == BodyFraming::Chunked && !matches!(upstream.io, Io::Http2(_));
        out.extend_from_slice(body);
        Attempt {
            worker,
            cluster,
            upstream: Some(upstream),
            method: head.method(),
            out,
            sent: 0,
            scan: HeadScan::new(),
            head: ResponseHead::new(),
            facts: ResponseFacts::default(),
            decoder: None,
            trailers: Fields::new(),
            body: Vec::new(),
            heard: false,
            copied: fed,
            given_up: false,
            chunked,
            fed: false,
            complete: fed.is_none(),
        }
    }

    /// Sends and reads as far as that goes, both at once: an answer may come before all was sent.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        let Some(mut upstream) = self.upstream.take() else { return Poll::Ready(Err(self.broken())) };
        let polled = self.poll_with(&mut upstream, cx);
        self.upstream = Some(upstream);
        polled
    }

    fn poll_with(&mut self, upstream: &mut Upstream, cx: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        loop {
            let Some(rest) = self.out.get(self.sent..).filter(|rest| !rest.is_empty()) else {
                match self.take_fed(upstream, cx) {
                    Ok(true) => continue,
                    Ok(false) => break,
                    Err(broken) => return Poll::Ready(Err(broken)),
                }
            };
            match upstream.io.poll_write(cx, rest) {
                Poll::Ready(Ok(count @ 1..)) => {
                    self.sent += count;
                    upstream.stats().add(stat::UPSTREAM_CX_TX_BYTES_TOTAL, count as u64);
                }
                // It may have answered before it closed: reading will tell.
                Poll::Ready(_) | Poll::Pending => break,
            }
        }
        let buffers = &self.worker.buffers;
        loop {
            let before = upstream.input.bytes().len();
            if before > 0 {
                match self.read(upstream) {
                    Ok(true) => return Poll::Ready(Ok(())),
                    Ok(false) if upstream.input.bytes().len() < before => continue,
                    Ok(false) => {}
                    Err(broken) => return Poll::Ready(Err(broken)),
                }
            }
            match upstream.input.poll_fill(cx, &mut upstream.io, upstream.buffer_limit, buffers) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(count @ 1..)) => {
                    self.heard = true;
                    upstream.stats().add(stat::UPSTREAM_CX_RX_BYTES_TOTAL, count as u64);
                }
                Poll::Ready(ended) => {
                    upstream.peer_ended();
                    let complete = ended.is_ok() && self.decoder.as_mut().is_some_and(|d| d.end_of_input().is_ok());
                    let broken = Broken { heard: self.heard, ended: true };
                    return Poll::Ready(if complete { Ok(()) } else { Err(broken) });
                }
            }
        }
    }

    /// Takes what came of a body that comes piece by piece; `false` when there is nothing to send.
    fn take_fed(&mut self, upstream: &mut Upstream, cx: &mut Context<'_>) -> Result<bool, Broken> {
        let Some(copied) = self.copied else { return Ok(false) };
        if self.complete {
            // All of it was handed over: a stream is told that nothing follows.
            if let Io::Http2(stream) = &mut upstream.io {
                stream.finish(&Fields::new());
            }
            if let Some(record) = &copied.record {
                record.complete();
            }
            return Ok(false);
        }
        let Poll::Ready(fed) = copied.feed.poll_take(cx) else { return Ok(false) };
        let Some(Fed { bytes, ended }) = fed else {
            self.given_up = true;
            return Err(self.broken());
        };
        if let Some(record) = &copied.record {
            record.add_sent(bytes.len());
        }
        self.out.clear();
        self.sent = 0;
        self.fed |= !bytes.is_empty();
        match self.chunked {
            true if bytes.is_empty() => {}
            true => write_chunk(&bytes, &mut self.out),
            false => self.out = bytes,
        }
        self.complete = ended;
        if ended && self.chunked {
            write_last_chunk(&Fields::new(), &mut self.out);
        }
        Ok(true)
    }

    /// Reads from what is there; `true` when the answer is complete.
    fn read(&mut self, upstream: &mut Upstream) -> Result<bool, Broken> {
        let limits = self.cluster.response_limits();
        let buffers = &self.worker.buffers;
        let Some(decoder) = &mut self.decoder else {
            let asked = Asked { method: self.method, upgrade: false };
            let rules = ResponseRules { limits };
            return match parse_response(upstream.input.bytes(), asked, &rules, &mut self.scan, &mut self.head) {
                ResponseParse::Partial => Ok(false),
                ResponseParse::Complete { consumed, facts } => {
                    upstream.input.consume(consumed, buffers);
                    if facts.tunnel {
                        return Err(self.broken());
                    }
                    if !facts.interim {
                        if let Some(record) = self.copied.and_then(|copied| copied.record.as_ref()) {
                            record.answered(&self.head);
                        }
                        self.facts = facts;
                        self.decoder = Some(BodyDecoder::new(facts.framing, limits));
                    }
                    Ok(!facts.interim && !facts.framing.has_body())
                }
                ResponseParse::Reject(_) => {
                    upstream.stats().inc(stat::UPSTREAM_CX_PROTOCOL_ERROR);
                    Err(self.broken())
                }
            };
        };
        let Ok(decoded) = decoder.decode(upstream.input.bytes(), &mut self.trailers) else {
            return Err(Broken { heard: true, ended: false });
        };
        match self.copied {
            None => self.body.extend_from_slice(upstream.input.bytes().get(decoded.data.clone()).unwrap_or_default()),
            Some(Copied { record: Some(record), .. }) => record.add_received(decoded.data.len()),
            Some(_) => {}
        }
        upstream.input.consume(decoded.consumed, buffers);
        if self.body.len() > MAX_ANSWER_BYTES {
            return Err(Broken { heard: true, ended: false });
        }
        Ok(decoded.done)
    }

    fn broken(&self) -> Broken {
        Broken { heard: self.heard, ended: false }
    }

    fn is_reused(&self) -> bool {
        self.upstream.as_ref().is_some_and(|upstream| upstream.is_reused())
    }

    /// Keeps the connection for the next request if it is in sync.
    fn finish(mut self) -> Answer {
        if let Some(upstream) = self.upstream.take() {
            let clean =
                self.facts.persistent && self.complete && self.sent == self.out.len() && upstream.input.is_empty();
            if clean && self.decoder.as_ref().is_some_and(BodyDecoder::is_done) {
                self.cluster.put_back(upstream, self.worker.clock.now());
            } else {
                drop(upstream);
                self.cluster.gone();
            }
        }
        Answer {
            head: std::mem::take(&mut self.head),
            body: std::mem::take(&mut self.body),
            trailers: std::mem::take(&mut self.trailers),
        }
    }
}

impl Drop for Attempt<'_> {
    /// An attempt that did not finish leaves a connection that cannot be used again.
    fn drop(&mut self) {
        if self.upstream.take().is_some() {
            self.cluster.gone();
        }
    }
}
