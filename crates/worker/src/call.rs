//! Requests of filters' own: one request to a cluster and its answer, on a task of its own.
//!
//! It takes the same way as a forwarded one: the cluster's share of requests, load balancer, circuit breakers, pool, counters. It
//! ends with its answer, at its timeout, or when the filter drops the handle; nothing of it outlives that.

mod again;
mod attempt;
mod copy;
mod feed;
pub(crate) mod frame;
pub(crate) mod grpc;
pub(crate) mod target;
mod traced;
mod tried;
mod underway;

use std::cell::Cell;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use postrider_filter_api::{Answer, Call, CallFailure, CallHandle, CallOpen, CallPipe, CallStream, Flags, Heard};
use postrider_http::{BodyFraming, Fields, HeaderId, RequestHead, ResponseHead, Version};
use postrider_model::{Priority, UpstreamProtocol};
use postrider_telemetry::Block;
use postrider_telemetry::stats::sets::{self, cluster as stat};
use postrider_upstream::Permit;

use crate::cluster::{Cluster, Host, NoConnection, Upstream};
use crate::http::Reset;
use crate::party::{Caller, Party};
use crate::refused::Refused;
use crate::worker::Worker;
use attempt::{Attempt, Broken};
pub(crate) use copy::{Copied, CopyRecord};
pub(crate) use feed::{Feed, Feeder};
use traced::{CallSpan, Kind};
use tried::Tried;
use underway::Underway;

/// Sends `call` to `cluster`, as often as its policy says.
pub(crate) fn start(worker: Rc<Worker>, cluster: Rc<Cluster>, mut call: Call) -> CallHandle {
    worker.count_call();
    let task = match call.retries.take() {
        None => tokio::task::spawn_local(run(worker, cluster, call)),
        Some(policy) => tokio::task::spawn_local(again::run(worker, cluster, call, policy)),
    };
    CallHandle::new(move || task.abort())
}

/// Sends a request to `cluster` whose body and answer travel in pieces.
pub(crate) fn open(worker: Rc<Worker>, cluster: Rc<Cluster>, open: CallOpen) -> CallStream {
    worker.count_call();
    let CallOpen { head, body, ended, timeout, wake, .. } = open;
    let framing = match head.fields.get(HeaderId::ContentLength) {
        _ if ended && body.is_empty() => None,
        // Of any length where it does not say a number.
        length => length
            .and_then(|length| std::str::from_utf8(length).ok()?.parse().ok())
            .map_or(Some(BodyFraming::Chunked), |length| Some(BodyFraming::Length(length))),
    };
    let pipe = Rc::new(CallPipe::new(body, ended, wake));
    let piped = Piped { pipe: pipe.clone(), framing };
    let task = tokio::task::spawn_local(async move {
        let outcome = ask(&worker, &cluster, &head, Payload::Piped(&piped), timeout, None).await;
        piped.pipe.deliver(Heard::Ended(outcome.map(drop)));
    });
    CallStream::new(pipe, CallHandle::new(move || task.abort()))
}

/// Sends a copy of a request that is under way: what comes back is thrown away.
pub(crate) fn mirror(
    worker: Rc<Worker>,
    cluster: Rc<Cluster>,
    head: RequestHead,
    copied: Copied,
    timeout: Option<Duration>,
) {
    worker.count_call();
    tokio::task::spawn_local(async move {
        // Whether it went well, the cluster's counters tell.
        let outcome = ask(&worker, &cluster, &head, Payload::Fed(&copied), timeout, None).await;
        if let Some(record) = &copied.record {
            record.end(&head, outcome.as_ref().ok().map(|answer| &answer.trailers));
        }
    });
}

async fn run(worker: Rc<Worker>, cluster: Rc<Cluster>, call: Call) {
    let Call { mut head, body, timeout, trace, done, .. } = call;
    let span = trace.and_then(|trace| CallSpan::begin(Kind::Http, &trace, &worker, &cluster, &mut head));
    let outcome = ask(&worker, &cluster, &head, Payload::Whole(&body), timeout, span.as_ref()).await;
    if let Some(span) = span {
        span.end(&outcome);
    }
    done(outcome);
}

/// What a request carries.
#[derive(Clone, Copy)]
enum Payload<'a> {
    Whole(&'a [u8]),
    /// It comes piece by piece, and its answer is thrown away.
    Fed(&'a Copied),
    /// It comes piece by piece, and so goes its answer.
    Piped(&'a Piped),
}

/// A request that a filter sends in pieces.
struct Piped {
    pipe: Rc<CallPipe>,
    /// `None` when the head is all of it.
    framing: Option<BodyFraming>,
}

impl<'a> Payload<'a> {
    /// What a log is to be told of it.
    fn record(self) -> Option<&'a CopyRecord> {
        match self {
            Payload::Whole(_) | Payload::Piped(_) => None,
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
    span: Option<&CallSpan>,
) -> Result<Answer, CallFailure> {
    let stats = cluster.stats(worker).clone();
    if let Some(answer) = turned_away(worker, cluster, span) {
        if let Payload::Piped(piped) = body {
            piped.pipe.deliver(Heard::Head(Box::new(answer.head.clone()), false));
            piped.pipe.deliver(Heard::Body(answer.body.clone(), true));
        }
        let outcome = Ok(answer);
        count_outcome(&stats, &outcome, (None, None));
        return outcome;
    }
    let tried = Tried::new(cluster, worker);
    let course = Course::new(&tried, span);
    // Whatever the exchange held is free again before the filter hears the outcome: it may call at once again.
    let outcome = {
        let mut exchange = pin!(exchange(worker, cluster, head, body, &course));
        let outcome = match timeout {
            Some(limit) if let Payload::Piped(piped) = body => in_time(exchange.as_mut(), piped, limit).await,
            Some(limit) => tokio::time::timeout(limit, exchange.as_mut()).await.unwrap_or(Err(CallFailure::Timeout)),
            None => exchange.as_mut().await,
        };
        // A timeout is no cancellation either.
        course.settled.set(true);
        outcome
    };
    if matches!(outcome, Err(CallFailure::Timeout)) {
        stats.inc(stat::UPSTREAM_RQ_TIMEOUT);
        tried.late();
    }
    count_outcome(&stats, &outcome, (tried.answer(), course.took.get()));
    outcome
}

/// What a cluster answers that does not take the request, before any of its hosts could: the same as to a client.
fn turned_away(worker: &Worker, cluster: &Cluster, span: Option<&CallSpan>) -> Option<Answer> {
    let refused = Refused::count(cluster.hosts.refusal(&worker.random)?, cluster.stats(worker));
    if let Some(span) = span {
        span.flag(refused.flag);
    }
    let mut head = ResponseHead::new();
    head.reply(503);
    let length = refused.body.len().to_string();
    for (name, value) in [("content-length", length.as_str()), ("content-type", "text/plain"), (refused.header, "true")]
    {
        // All of them can be said.
        let _ = head.fields.append_name(name.as_bytes(), value.as_bytes());
    }
    Some(Answer { head, body: refused.body.into(), trailers: Fields::new() })
}

/// `answered`: the status of an answer that began; `took`: milliseconds from the end of the request to that of the answer.
fn count_outcome(stats: &Block, outcome: &Result<Answer, CallFailure>, (answered, took): (Option<u16>, Option<u64>)) {
    let status = match outcome {
        Ok(answer) => answer.head.status(),
        // What breaks off, or takes too long, behind its head was an answer of that status all the same.
        Err(failure) => answered.unwrap_or(failure.status()),
    };
    // The proxy's own requests come from inside.
    sets::count_upstream_response(stats, status, true);
    if let Some(took) = took {
        sets::record_upstream_time(stats, took, true);
    }
}

/// What becomes of a request in pieces that is to be answered so long after it is complete.
async fn in_time(
    mut exchange: Pin<&mut impl Future<Output = Result<Answer, CallFailure>>>,
    piped: &Piped,
    limit: Duration,
) -> Result<Answer, CallFailure> {
    let mut late = pin!(async {
        std::future::poll_fn(|cx| piped.pipe.poll_finished(cx)).await;
        tokio::time::sleep(limit).await;
    });
    std::future::poll_fn(|cx| match exchange.as_mut().poll(cx) {
        Poll::Ready(outcome) => Poll::Ready(outcome),
        Poll::Pending => late.as_mut().poll(cx).map(|()| Err(CallFailure::Timeout)),
    })
    .await
}

/// What is known of a try while it runs, and when it was given up.
struct Course<'a> {
    /// What became of it is known.
    settled: Cell<bool>,
    /// Where it fails and another may go better, what went wrong.
    lost: Cell<Option<Reset>>,
    /// Milliseconds from the end of the request to that of the answer.
    took: Cell<Option<u64>>,
    span: Option<&'a CallSpan>,
    tried: &'a Tried<'a>,
}

impl<'a> Course<'a> {
    fn new(tried: &'a Tried<'a>, span: Option<&'a CallSpan>) -> Course<'a> {
        Course { settled: Cell::default(), lost: Cell::default(), took: Cell::default(), span, tried }
    }

    /// Says in the trace why there is no answer.
    fn flag(&self, flag: Flags) {
        if let Some(span) = self.span {
            span.flag(flag);
        }
    }
}

/// One try.
async fn exchange(
    worker: &Rc<Worker>,
    cluster: &Rc<Cluster>,
    head: &RequestHead,
    body: Payload<'_>,
    course: &Course<'_>,
) -> Result<Answer, CallFailure> {
    let Course { settled, lost, took, span, tried } = course;
    tried.forget();
    let stats = cluster.stats(worker).clone();
    let Some(host) = cluster.hosts.pick(&worker.random) else {
        stats.inc(stat::UPSTREAM_CX_NONE_HEALTHY);
        course.flag(Flags::NO_HEALTHY_UPSTREAM);
        return Err(CallFailure::Upstream);
    };
    let record = body.record();
    if let Some(record) = record {
        record.chosen(&host, head);
    }
    if let Some(span) = span {
        span.chosen(&host);
    }
    let protocol = cluster.protocol_for(Version::Http11);
    let party = cluster.party(&host, Some(head), Caller::default);
    let mut underway = None;
    let mut retried = false;
    loop {
        let way = Way { worker, cluster, host: &host, protocol, party: party.as_deref() };
        let upstream = way.connection(!retried).await.map_err(|failure| {
            if let Some(record) = record {
                record.unreached(&failure);
            }
            let is_full = matches!(failure, NoConnection::Overflow | NoConnection::NoPool);
            course.flag(if is_full { Flags::UPSTREAM_OVERFLOW } else { Flags::UPSTREAM_CONNECTION_FAILURE });
            if !is_full {
                lost.set(Some(Reset::ConnectFailure));
                tried.unreached(&host);
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
                    course.flag(Flags::UPSTREAM_OVERFLOW);
                    return Err(CallFailure::Upstream);
                };
                underway = Some(begun);
                tried.begin(&host);
                upstream
            }
        };
        upstream.begin_request();
        if let Some(record) = record {
            record.connected(&upstream, head);
        }
        let mut attempt = Attempt::new(upstream, head, body, course.tried, (worker, cluster));
        match std::future::poll_fn(|cx| attempt.poll(cx)).await {
            Ok(()) => {
                tried.end();
                settled.set(true);
                let now = worker.clock.now();
                took.set(attempt.completed.map(|completed| now.millis_since(completed)));
                return Ok(attempt.finish());
            }
            // RFC 9110 section 9.2.2: what is idempotent may be sent again; a pooled connection that its owner closed
            // meanwhile is the common case.
            Err(Broken { heard: false, reset: Reset::ConnectionTermination, .. })
                if attempt.is_reused() && !retried && !attempt.fed && head.method().is_idempotent() =>
            {
                retried = true;
            }
            Err(Broken { ended, reset, .. }) => {
                let is_answered = tried.answer().is_some();
                if !attempt.given_up {
                    if let Some(record) = record {
                        record.broke(ended);
                    }
                    tried.broke();
                    if !is_answered {
                        tried.count(false);
                    }
                }
                tried.end();
                settled.set(true);
                if let Some(span) = span {
                    span.broke(reset);
                }
                lost.set(Some(reset));
                let is_malformed = reset == Reset::ProtocolError && !is_answered;
                return Err(if is_malformed { CallFailure::Malformed } else { CallFailure::Upstream });
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
