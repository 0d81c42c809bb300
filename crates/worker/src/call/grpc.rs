//! gRPC calls of filters' own, each on a task of its own over one stream of an HTTP/2 connection.
//!
//! ```text
//! filter <── pipe ──> task ──frames──> stream ──> service      what the pipe does not take is not read,
//!                          <──frames──                          what the stream does not take is not fetched
//! ```

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use postrider_filter_api::{CallHandle, GrpcCall, GrpcOpen, GrpcPipe, GrpcStatus, GrpcStream, Moment};
use postrider_h1::{BodyDecoder, HeadScan, ResponseParse, parse_response};
use postrider_http::grpc::{Code, Status};
use postrider_http::{
    Asked, BodyFraming, Fields, HeaderId, Method, RequestHead, ResponseHead, ResponseRules, Version, grpc,
};
use postrider_model::{Priority, RetryPolicy, UpstreamProtocol};
use postrider_telemetry::Block;
use postrider_telemetry::stats::sets::{self, cluster as stat};

use super::Way;
use super::frame::{Malformed, Unframer};
use super::traced::{CallSpan, Kind};
use super::tried::Tried;
use crate::cluster::{Cluster, NoConnection, Upstream};
use crate::http::{Attempts, Reset, Verdict};
use crate::io::Io;
use crate::party::Caller;
use crate::plan::AttemptsPlan;
use crate::refused::Refused;
use crate::worker::Worker;

/// Framed bytes that wait for the stream to take them, beside what waits in the pipe.
const MAX_FRAMED: usize = 64 * 1024;

/// Framed bytes of a conversation that are kept for another try. With more there will be none.
const MAX_KEPT: usize = 1 << 20;

/// What a call asks for, however many messages it has.
struct Asking {
    head: RequestHead,
    timeout: Option<Duration>,
    max_answer: usize,
    /// Of several answers, the last one counts.
    single: bool,
    policy: Option<Arc<RetryPolicy>>,
}

/// How a call ended, in gRPC's words and in HTTP's.
struct Ended {
    status: GrpcStatus,
    http: u16,
    /// There is an answer, and the service says that it is a good one.
    is_good: bool,
    /// Why there is no answer, where another try may have one.
    lost: Option<Reset>,
    /// Another try was decided upon.
    again: bool,
    /// Milliseconds from the end of the request to that of the answer, where it came.
    took: Option<u64>,
}

/// What is known of a call beside its outcome.
struct Marks<'a> {
    /// Whoever gives it up from now on did not cancel it.
    settled: Cell<bool>,
    /// Its answer has begun.
    begun: Cell<bool>,
    tried: Tried<'a>,
}

/// What further tries need, until the service has said something that counts.
struct Tries {
    attempts: Attempts,
    /// All that was sent so far, framed.
    kept: Vec<u8>,
    /// There may be another one.
    open: bool,
}

/// Sends a unary call to `cluster`.
pub(crate) fn start(worker: Rc<Worker>, cluster: Rc<Cluster>, call: GrpcCall) -> CallHandle {
    worker.count_call();
    let GrpcCall { mut head, message, timeout, max_answer, trace, retries: policy, done, .. } = call;
    let span = trace.and_then(|trace| CallSpan::begin(Kind::Grpc, &trace, &worker, &cluster, &mut head));
    let task = tokio::task::spawn_local(async move {
        let pipe = Rc::new(GrpcPipe::new(Box::new(|| {})));
        let ours = GrpcStream::new(pipe.clone(), CallHandle::new(|| {}));
        ours.send(message);
        ours.finish();
        let status = run(&worker, &cluster, &Asking { head, timeout, max_answer, single: true, policy }, &pipe).await;
        if let Some(span) = span {
            span.end_grpc(status.code);
        }
        done(match ours.receive() {
            _ if !status.is_ok() => Err(status),
            Some(answer) => Ok(answer),
            None => Err(GrpcStatus::new(Code::Internal, "the answer has no message")),
        });
    });
    CallHandle::new(move || task.abort())
}

/// Opens a conversation with `cluster`.
pub(crate) fn converse(worker: Rc<Worker>, cluster: Rc<Cluster>, open: GrpcOpen) -> GrpcStream {
    worker.count_call();
    let GrpcOpen { mut head, timeout, max_answer, trace, retries: policy, wake, .. } = open;
    let span = trace.and_then(|trace| CallSpan::begin(Kind::Grpc, &trace, &worker, &cluster, &mut head));
    let pipe = Rc::new(GrpcPipe::new(wake));
    let theirs = pipe.clone();
    let task = tokio::task::spawn_local(async move {
        let asking = Asking { head, timeout, max_answer, single: false, policy };
        let mut run = std::pin::pin!(run(&worker, &cluster, &asking, &theirs));
        let ended = std::future::poll_fn(|cx| match run.as_mut().poll(cx) {
            Poll::Ready(status) => Poll::Ready(Ok(status)),
            Poll::Pending => theirs.poll_left(cx).map(Err),
        });
        match ended.await {
            Ok(status) => {
                if let Some(span) = span {
                    span.end_grpc(status.code);
                }
                theirs.end(status);
            }
            // Nobody waits for what becomes of it: in time it ends by itself, or it is given up.
            Err(patience) => {
                if let (Ok(status), Some(span)) = (tokio::time::timeout(patience, run).await, span) {
                    span.end_grpc(status.code);
                }
            }
        }
    });
    GrpcStream::new(pipe, CallHandle::new(move || task.abort()))
}

async fn run(worker: &Rc<Worker>, cluster: &Rc<Cluster>, asking: &Asking, pipe: &GrpcPipe) -> GrpcStatus {
    let stats = cluster.stats(worker).clone();
    // Whatever the exchange held is free again before the filter hears the outcome: it may call at once again.
    let ended = {
        let marks = Marks { settled: Cell::default(), begun: Cell::default(), tried: Tried::new(cluster, worker) };
        let mut exchange = std::pin::pin!(tries(worker, cluster, asking, pipe, &marks));
        let ended = match asking.timeout {
            None => Some(exchange.as_mut().await),
            Some(limit) => tokio::time::timeout(limit, exchange.as_mut()).await.ok(),
        };
        // A timeout is no cancellation either.
        marks.settled.set(true);
        if ended.is_none() {
            marks.tried.late();
        }
        ended.ok_or(marks.begun.get())
    };
    let ended = ended.unwrap_or_else(|begun| {
        stats.inc(stat::UPSTREAM_RQ_TIMEOUT);
        late("the time for the call is over", begun)
    });
    // The proxy's own requests come from inside.
    sets::count_upstream_response(&stats, ended.http, true);
    if let Some(took) = ended.took {
        sets::record_upstream_time(&stats, took, true);
    }
    ended.status
}

/// The call, as often as its policy says.
async fn tries(
    worker: &Rc<Worker>,
    cluster: &Rc<Cluster>,
    asking: &Asking,
    pipe: &GrpcPipe,
    marks: &Marks<'_>,
) -> Ended {
    if let Some(refusal) = cluster.hosts.refusal(&worker.random) {
        return unavailable(Refused::count(refusal, cluster.stats(worker)).body);
    }
    let Some(policy) = &asking.policy else { return exchange(worker, cluster, asking, pipe, marks, None).await };
    let stats = cluster.stats(worker).clone();
    let mut attempts = Attempts::new(Some(AttemptsPlan::of_call(policy)), &RequestHead::new(), u64::MAX);
    attempts.settle_timeouts(asking.timeout);
    let mut tries = Tries { attempts, kept: Vec::new(), open: true };
    loop {
        marks.settled.set(false);
        let mut ended = exchange(worker, cluster, asking, pipe, marks, Some(&mut tries)).await;
        if let (true, Some(lost)) = (tries.open, ended.lost) {
            tries.attempts.started |= lost != Reset::ConnectFailure;
            let wanted = tries.attempts.wants_after_reset(lost);
            ended.again = tries.judge(wanted, worker, cluster) == Verdict::Again;
        }
        if !ended.again {
            return ended;
        }
        if ended.lost.is_none() {
            sets::count_retried_response(&stats, ended.http);
        }
        let wait = tries.attempts.back_off(&worker.random);
        tokio::time::sleep(wait.lasts).await;
        wait.count(&stats);
    }
}

impl Tries {
    fn judge(&mut self, wanted: bool, worker: &Worker, cluster: &Cluster) -> Verdict {
        self.attempts.judge(wanted, cluster, worker, Priority::Default)
    }

    /// Keeps what is sent.
    fn keep(&mut self, framed: &[u8], single: bool, stats: &Block) {
        if !self.open {
            return;
        }
        if !single && self.kept.len() + framed.len() > MAX_KEPT {
            stats.inc(stat::RETRY_OR_SHADOW_ABANDONED);
            self.close();
        } else {
            self.kept.extend_from_slice(framed);
        }
    }

    fn close(&mut self) {
        self.open = false;
        self.kept = Vec::new();
    }
}

/// One try.
async fn exchange(
    worker: &Rc<Worker>,
    cluster: &Rc<Cluster>,
    asking: &Asking,
    pipe: &GrpcPipe,
    marks: &Marks<'_>,
    tries: Option<&mut Tries>,
) -> Ended {
    let Some(host) = cluster.hosts.pick(&worker.random) else {
        cluster.stats(worker).inc(stat::UPSTREAM_CX_NONE_HEALTHY);
        return unavailable("the cluster has no host");
    };
    let protocol = cluster.protocol_for(Version::Http2);
    if protocol == UpstreamProtocol::Http1 {
        return unavailable("the cluster does not speak HTTP/2");
    }
    let party = cluster.party(&host, Some(&asking.head), Caller::default);
    let way = Way { worker, cluster, host: &host, protocol, party: party.as_deref() };
    let upstream = match way.connection(true).await {
        Ok(upstream) => upstream,
        Err(NoConnection::Overflow | NoConnection::NoPool) => return unavailable("there is no connection"),
        Err(_) => {
            marks.tried.unreached(&host);
            return lost("there is no connection", Reset::ConnectFailure);
        }
    };
    let Some((upstream, _underway)) = way.begin(upstream, &marks.settled) else {
        return unavailable("the circuit breaker for requests is open");
    };
    let tried = &marks.tried;
    tried.begin(&host);
    upstream.begin_request();
    // Once the request is complete, which a conversation is at its end only.
    let limit = tries.as_ref().and_then(|tries| tries.attempts.per_try).filter(|_| asking.single);
    let mut exchange = Exchange {
        worker,
        cluster,
        pipe,
        begun: &marks.begun,
        tried,
        single: asking.single,
        max_answer: asking.max_answer,
        upstream: Some(upstream),
        out: tries.as_ref().map(|tries| tries.kept.clone()).unwrap_or_default(),
        tries,
        sent: 0,
        finished: None,
        scan: HeadScan::new(),
        head: ResponseHead::new(),
        decoder: None,
        trailers: Fields::new(),
        unframer: Unframer::default(),
        answer: None,
    };
    let ended = match exchange.send_head(&asking.head) {
        Ok(()) => match limit {
            None => std::future::poll_fn(|cx| exchange.poll(cx)).await,
            Some(limit) => exchange.poll_in_time(limit).await,
        },
        Err(ended) => ended,
    };
    if ended.lost == Some(Reset::Timeout) {
        tried.late();
    } else {
        tried.count(ended.is_good);
        if ended.lost.is_some() || tried.answer().is_none() {
            tried.broke();
        }
        tried.end();
    }
    marks.settled.set(true);
    ended
}

/// A call on its stream.
struct Exchange<'a> {
    worker: &'a Rc<Worker>,
    cluster: &'a Rc<Cluster>,
    pipe: &'a GrpcPipe,
    begun: &'a Cell<bool>,
    tried: &'a Tried<'a>,
    single: bool,
    max_answer: usize,
    /// `None`: this is the only one.
    tries: Option<&'a mut Tries>,
    /// `None` once it ended.
    upstream: Option<Box<Upstream>>,
    out: Vec<u8>,
    sent: usize,
    /// When the service was told that nothing follows.
    finished: Option<Moment>,
    scan: HeadScan,
    head: ResponseHead,
    /// `None` while the final head has not come.
    decoder: Option<BodyDecoder>,
    trailers: Fields,
    unframer: Unframer,
    /// Of a call with one message each way, until it is known to be the last one.
    answer: Option<Vec<u8>>,
}

impl Exchange<'_> {
    fn send_head(&mut self, head: &RequestHead) -> Result<(), Ended> {
        match self.upstream.as_mut().map(|upstream| &mut upstream.io) {
            Some(Io::Http2(stream)) => stream
                .send_request(head, BodyFraming::Chunked, false)
                .map_err(|_| lost("the connection has closed", Reset::ConnectionTermination)),
            // By TLS it said that it does not.
            _ => Err(unavailable("the host does not speak HTTP/2")),
        }
    }

    /// The answer has to begin in this time.
    async fn poll_in_time(&mut self, limit: Duration) -> Ended {
        let mut late = std::pin::pin!(tokio::time::sleep(limit));
        std::future::poll_fn(|cx| match self.poll(cx) {
            Poll::Pending if self.decoder.is_none() && late.as_mut().poll(cx).is_ready() => {
                self.cluster.stats(self.worker).inc(stat::UPSTREAM_RQ_PER_TRY_TIMEOUT);
                Poll::Ready(Ended { lost: Some(Reset::Timeout), ..self::late("the time for a try is over", false) })
            }
            polled => polled,
        })
        .await
    }

    /// Sends and reads as far as that goes, both at once.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Ended> {
        let Some(mut upstream) = self.upstream.take() else { return Poll::Ready(unavailable("the call is over")) };
        self.send(&mut upstream, cx);
        let polled = self.receive(&mut upstream, cx);
        self.upstream = Some(upstream);
        polled
    }

    fn send(&mut self, upstream: &mut Upstream, cx: &mut Context<'_>) {
        let mut all = false;
        loop {
            while !all && self.out.len() - self.sent < MAX_FRAMED {
                match self.pipe.poll_outgoing(cx) {
                    Poll::Ready(Some(message)) => {
                        let from = self.out.len();
                        // A message comes from a filter's encoder, which is nowhere near four gigabytes.
                        grpc::write_prefix(u32::try_from(message.len()).unwrap_or(u32::MAX), &mut self.out);
                        self.out.extend_from_slice(&message);
                        if let Some(tries) = &mut self.tries {
                            let framed = self.out.get(from..).unwrap_or_default();
                            tries.keep(framed, self.single, upstream.stats());
                        }
                    }
                    Poll::Ready(None) => all = true,
                    Poll::Pending => break,
                }
            }
            let Some(rest) = self.out.get(self.sent..).filter(|rest| !rest.is_empty()) else { break };
            match upstream.io.poll_write(cx, rest) {
                Poll::Ready(Ok(count @ 1..)) => {
                    self.sent += count;
                    upstream.stats().add(stat::UPSTREAM_CX_TX_BYTES_TOTAL, count as u64);
                    if self.sent == self.out.len() {
                        self.out.clear();
                        self.sent = 0;
                    }
                }
                // It may have answered before it gave the stream up: reading will tell.
                Poll::Ready(_) | Poll::Pending => return,
            }
        }
        if all
            && self.finished.is_none()
            && let Io::Http2(stream) = &mut upstream.io
        {
            self.finished = Some(self.worker.clock.now());
            stream.finish(&Fields::new());
        }
    }

    fn receive(&mut self, upstream: &mut Upstream, cx: &mut Context<'_>) -> Poll<Ended> {
        let buffers = &self.worker.buffers;
        loop {
            if self.pipe.poll_wanted(cx).is_pending() {
                return Poll::Pending;
            }
            let before = upstream.input.bytes().len();
            if before > 0 {
                match self.read(upstream) {
                    Ok(true) => return Poll::Ready(self.end()),
                    Ok(false) if upstream.input.bytes().len() < before => continue,
                    Ok(false) => {}
                    Err(ended) => return Poll::Ready(ended),
                }
            }
            match upstream.input.poll_fill(cx, &mut upstream.io, upstream.buffer_limit, buffers) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(count @ 1..)) => {
                    upstream.stats().add(stat::UPSTREAM_CX_RX_BYTES_TOTAL, count as u64);
                }
                Poll::Ready(read) => {
                    let reset = Reset::of(upstream, read.as_ref().err());
                    upstream.peer_ended();
                    reset.count(upstream, read.as_ref().err(), self.begun.get());
                    let lost = lost("the service gave the call up", reset);
                    // Before its answer begins a service is not to be had; what breaks off then is a fault of its own.
                    let broke = GrpcStatus::new(Code::Internal, "the service gave the call up");
                    return Poll::Ready(if self.begun.get() { Ended { status: broke, ..lost } } else { lost });
                }
            }
        }
    }

    /// Reads from what is there; `true` when the answer is complete.
    fn read(&mut self, upstream: &mut Upstream) -> Result<bool, Ended> {
        let limits = self.cluster.response_limits();
        let buffers = &self.worker.buffers;
        let Some(decoder) = &mut self.decoder else {
            let asked = Asked { method: Method::Post, upgrade: false };
            let rules = ResponseRules { limits };
            return match parse_response(upstream.input.bytes(), asked, &rules, &mut self.scan, &mut self.head) {
                ResponseParse::Partial => Ok(false),
                ResponseParse::Complete { consumed, mut facts } => {
                    facts.framing = upstream.io.framed(facts.framing);
                    upstream.input.consume(consumed, buffers);
                    if !facts.interim {
                        self.tried.answered(&self.head);
                        self.judge()?;
                        self.begun.set(true);
                        self.pipe.hear_initial(&self.head, !facts.framing.has_body());
                        self.decoder = Some(BodyDecoder::new(facts.framing, limits));
                    }
                    Ok(!facts.interim && !facts.framing.has_body())
                }
                ResponseParse::Reject(_) => {
                    upstream.refuse_answer();
                    Err(Ended { http: 502, ..lost("the answer is malformed", Reset::ProtocolError) })
                }
            };
        };
        let Ok(decoded) = decoder.decode(upstream.input.bytes(), &mut self.trailers) else {
            let malformed = GrpcStatus::new(Code::Internal, "the answer is malformed");
            return Err(Ended { lost: Some(Reset::ProtocolError), ..ended(malformed, 503) });
        };
        // What comes with another status than 200 is somebody's page about it.
        if self.head.status() == 200 {
            self.unframer.push(upstream.input.bytes().get(decoded.data.clone()).unwrap_or_default());
        }
        upstream.input.consume(decoded.consumed, buffers);
        self.deliver()?;
        Ok(decoded.done)
    }

    /// The answer begins: either it is good enough, or another try is to bring a better one.
    fn judge(&mut self) -> Result<(), Ended> {
        let Some(tries) = self.tries.as_deref_mut().filter(|tries| tries.open) else { return Ok(()) };
        let wanted = tries.attempts.wants_after(&self.head);
        let verdict = tries.judge(wanted, self.worker, self.cluster);
        if verdict == Verdict::Again {
            return Err(Ended { http: self.head.status(), again: true, ..unavailable("there is another try") });
        }
        tries.close();
        Ok(())
    }

    fn deliver(&mut self) -> Result<(), Ended> {
        loop {
            let failed = match self.unframer.next(self.max_answer) {
                Ok(None) => return Ok(()),
                Ok(Some(message)) if self.single => {
                    self.answer = Some(message);
                    continue;
                }
                Ok(Some(message)) => {
                    self.pipe.deliver(message);
                    continue;
                }
                Err(Malformed::Flags) => GrpcStatus::new(Code::Internal, "the answer is compressed"),
                Err(Malformed::TooLong) => GrpcStatus::new(Code::ResourceExhausted, "the answer is longer than may be"),
            };
            return Err(ended(failed, self.head.status()));
        }
    }

    /// The answer is complete.
    fn end(&mut self) -> Ended {
        if let Some(answer) = self.answer.take() {
            self.pipe.deliver(answer);
        }
        let http = self.head.status();
        let of = |fields: &Fields| status(fields);
        let all_in_one = self.trailers.is_empty() && of(&self.head.fields).is_some();
        self.pipe.hear_trailing(if all_in_one { &self.head.fields } else { &self.trailers });
        let said = of(&self.trailers).or_else(|| of(&self.head.fields));
        let judged = Status::of(&self.trailers).or_else(|| Status::of(&self.head.fields));
        let is_good = http < 500 && judged.is_some_and(|status| status.to_http() < 500);
        let status = match said {
            Some(status) if status.is_ok() && !self.unframer.is_empty() => {
                GrpcStatus::new(Code::Internal, "the answer breaks off")
            }
            Some(status) => status,
            None if http == 200 => GrpcStatus::new(Code::Unknown, "the answer has no grpc-status"),
            None => GrpcStatus::new(Code::from_http(http), format!("the answer is HTTP {http}")),
        };
        let now = self.worker.clock.now();
        let took = self.finished.map(|finished| now.millis_since(finished));
        Ended { is_good, took, ..ended(status, http) }
    }
}

impl Drop for Exchange<'_> {
    /// The stream is free for others, whatever became of it.
    fn drop(&mut self) {
        if let Some(upstream) = self.upstream.take() {
            drop(upstream);
            self.cluster.gone();
        }
    }
}

/// `grpc-status` and `grpc-message`, if they are there.
fn status(fields: &Fields) -> Option<GrpcStatus> {
    let status = Status::of(fields)?;
    let mut message = Vec::new();
    grpc::decode_message(fields.get(HeaderId::GrpcMessage).unwrap_or_default(), &mut message);
    let message = String::from_utf8_lossy(&message).into_owned();
    let code = match status {
        Status::Code(code) => u32::from(code.number()),
        Status::Other(_) | Status::Invalid => GrpcStatus::NO_CODE,
    };
    Some(GrpcStatus { code, message, is_heard: true })
}

fn ended(status: GrpcStatus, http: u16) -> Ended {
    Ended { status, http, is_good: false, lost: None, again: false, took: None }
}

fn unavailable(why: &str) -> Ended {
    ended(GrpcStatus::new(Code::Unavailable, why), 503)
}

fn lost(why: &str, reset: Reset) -> Ended {
    Ended { lost: Some(reset), ..unavailable(why) }
}

/// As for Envoy's clients, which see a 504 in the place of the answer, or an answer that breaks off.
fn late(why: &str, begun: bool) -> Ended {
    ended(GrpcStatus::new(if begun { Code::Internal } else { Code::Unavailable }, why), 504)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_read_with_its_message() {
        let mut fields = Fields::new();
        assert_eq!(status(&fields), None);
        fields.append_name(b"grpc-status", b"7").unwrap();
        fields.append_name(b"grpc-message", b"no%20way%2").unwrap();
        assert_eq!(status(&fields), Some(GrpcStatus { code: 7, message: "no way%2".into(), is_heard: true }));
        for none in [&b"x"[..], b"99"] {
            fields.set_name(b"grpc-status", none).unwrap();
            assert_eq!(status(&fields).map(|status| status.code), Some(u32::MAX));
        }
    }
}
