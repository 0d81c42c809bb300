//! A client's HTTP/2 connection: one task drives the frames, each stream's task takes its request through the pipeline.
//!
//! ```text
//! serve ──> handshake ──> accept ──> stream task: Exchange::run
//!                           │ idle, age and drain ──> GOAWAY, then the streams that there are end
//! ```

use std::cell::Cell;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream};
use http::Request;
use postrider_filter_api::{Moment, Noted, TlsSession};
use postrider_model::{Http2Options, ScaledTimer, ShedKind};
use postrider_telemetry::stats::sets::{http as stat, http2};

use super::frames::Frames;
use super::keepalive::Keepalive;
use super::lane;
use super::meter::{ConnectionMeter, StreamMeter, Taps};
use super::stream::Stream;
use super::text;
use super::wire::Wire;
use super::{FRAME_BYTES, SEND_BUFFER};
use crate::buffers::Input;
use crate::chain::{Chain, Handler, Http};
use crate::http::counts::Ended;
use crate::io::Io;
use crate::listener::Arrival;
use crate::record::Record;
use crate::timers::Deadline;
use crate::worker::Worker;

/// A head's text is written to the same place each time, unless a large one made it larger than this.
const KEPT_HEAD_BYTES: usize = 16 * 1024;

thread_local! {
    static HEAD: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Streams that a client opened and reset before we saw them, and that we reset for its errors; more end the connection
/// (CVE-2023-44487, CVE-2025-8671).
const RESET_BEFORE_SEEN: usize = 20;
const RESET_FOR_ERRORS: usize = 100;

/// What the streams of a connection have in common.
struct Shared {
    worker: Rc<Worker>,
    chain: Rc<Chain>,
    local: Option<SocketAddr>,
    redirected: bool,
    remote: Option<SocketAddr>,
    direct_remote: Option<SocketAddr>,
    tls: Option<Rc<TlsSession>>,
    id: u64,
    record: Option<Rc<Record>>,
    noted: Option<Rc<Noted>>,
    requests: Cell<u32>,
    active: Cell<usize>,
    /// Where a log tells what streams take.
    meter: Option<ConnectionMeter>,
}

/// Serves one client until either side has enough.
pub(crate) async fn serve(worker: Rc<Worker>, chain: Rc<Chain>, arrival: Arrival) {
    let of_chain = chain.clone();
    let Handler::Http(http) = &of_chain.handler else { return };
    let Arrival { io, ahead, local, redirected, remote, direct_remote, tls, id, counted, record, noted, .. } = arrival;
    let (requests, active) = (Cell::new(0), Cell::new(0));
    let meter = http.meters.then(ConnectionMeter::default);
    let shared = Shared {
        worker,
        chain,
        local,
        redirected,
        remote,
        direct_remote,
        tls,
        id,
        record,
        noted,
        requests,
        active,
        meter,
    };
    let shared = Rc::new(shared);
    let stats = &http.stats;
    stats.inc(stat::DOWNSTREAM_CX_HTTP2_TOTAL);
    stats.gauge_inc(stat::DOWNSTREAM_CX_HTTP2_ACTIVE);
    let taps = shared.meter.clone().map(Taps::of_server);
    let wire = Wire::new(io, ahead.bytes().to_vec(), Some(Frames::default()), taps);
    let accepted = shared.worker.clock.now();
    // Whatever broke, the client knows it or is gone.
    let mut busy = false;
    if !(shared.worker.overload.requests.get() && crate::http::sheds_codec(&shared.worker, http)) {
        let outcome = run(&shared, http, &wire, accepted).await;
        if outcome.is_err_and(|error| error.is_library() && error.reason() == Some(Reason::ENHANCE_YOUR_CALM)) {
            // Only for streams that were reset without an answer does the codec say so by itself.
            stats.inc(stat::DOWNSTREAM_RQ_TOO_MANY_PREMATURE_RESETS);
        }
        busy = shared.active.get() > 0;
        linger(&shared, http, &wire).await;
    }
    stats.add(stat::DOWNSTREAM_CX_RX_BYTES_TOTAL, wire.received());
    stats.gauge_dec(stat::DOWNSTREAM_CX_HTTP2_ACTIVE);
    let ended = Ended {
        by_client: wire.is_ended(),
        busy,
        secure: shared.tls.is_some(),
        age: shared.worker.clock.now().saturating_duration_since(accepted),
    };
    ended.count(stats);
    drop(counted);
}

/// Waits for the client to close, too, but not for long.
async fn linger(shared: &Shared, http: &Http, wire: &Wire) {
    let limit = http.model.timeouts.delayed_close;
    let deadline = shared.worker.timers.register();
    deadline.set(Some(shared.worker.clock.now() + limit));
    std::future::poll_fn(|cx| {
        deadline.watch(cx.waker());
        match wire.poll_linger(cx) {
            Poll::Pending if !deadline.is_past() => Poll::Pending,
            _ => Poll::Ready(()),
        }
    })
    .await;
}

async fn run(shared: &Rc<Shared>, http: &Http, wire: &Wire, accepted: Moment) -> Result<(), h2::Error> {
    let mut handshake = pin!(builder(http).handshake::<_, Bytes>(wire.clone()));
    let deadline = shared.worker.timers.register();
    let timeouts = &http.model.timeouts;
    deadline.set(timeouts.request_headers.or(timeouts.connection_idle).map(|limit| accepted + limit));
    let mut codec = std::future::poll_fn(|cx| {
        deadline.watch(cx.waker());
        let polled = handshake.as_mut().poll(cx);
        match send(wire, cx, polled) {
            Poll::Pending if deadline.is_past() => Poll::Ready(Err(Reason::SETTINGS_TIMEOUT.into())),
            polled => polled,
        }
    })
    .await?;
    let mut keepalive = Keepalive::new(codec.ping_pong(), &http.model.http2.keepalive, &shared.worker);
    let mut watch =
        Watch { deadline, accepted, idle_since: accepted, head_since: None, dismissed: false, ending: None };
    loop {
        let next = std::future::poll_fn(|cx| {
            loop {
                let polled = codec.poll_accept(cx);
                if let Poll::Ready(Some(_)) = polled {
                    return polled;
                }
                if polled.is_pending() {
                    match watch.look(shared, http, wire, cx) {
                        Due::Nothing => {}
                        Due::Goodbye => {
                            codec.graceful_shutdown();
                            continue;
                        }
                        Due::Expel => {
                            codec.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
                            continue;
                        }
                        Due::Close => return Poll::Ready(None),
                    }
                    if keepalive.as_mut().is_some_and(|keepalive| keepalive.poll_dead(cx).is_ready()) {
                        shared.worker.stats.block(&http2::SET, "").inc(http2::KEEPALIVE_TIMEOUT);
                        return Poll::Ready(None);
                    }
                }
                return send(wire, cx, polled.map(Ok)).map(|polled| polled.unwrap_or(None));
            }
        })
        .await;
        let Some(accepted) = next else { return Ok(()) };
        let (request, respond) = accepted?;
        shared.active.set(shared.active.get() + 1);
        shared.requests.set(shared.requests.get().wrapping_add(1));
        if shared.worker.overload.requests.get() && !watch.dismissed {
            watch.dismissed = dismisses(shared, http);
        }
        lane::start(&shared.worker, Job { shared: shared.clone(), request, respond });
    }
}

/// Sends what the codec wrote. A client that cannot be reached ends the connection.
fn send<T>(wire: &Wire, cx: &mut Context<'_>, polled: Poll<Result<T, h2::Error>>) -> Poll<Result<T, h2::Error>> {
    match wire.poll_send(cx) {
        Poll::Ready(Err(_)) if polled.is_pending() => Poll::Ready(Err(Reason::CONNECT_ERROR.into())),
        _ => polled,
    }
}

fn builder(http: &Http) -> h2::server::Builder {
    let Http2Options {
        max_concurrent_streams,
        initial_stream_window,
        initial_connection_window,
        header_table_size,
        allow_connect,
        keepalive: _,
        spares_connections: _,
    } = &http.model.http2;
    let mut builder = h2::server::Builder::new();
    builder
        .max_concurrent_streams(*max_concurrent_streams)
        .initial_window_size(*initial_stream_window)
        .initial_connection_window_size(*initial_connection_window)
        .header_table_size(*header_table_size)
        .max_frame_size(FRAME_BYTES)
        .max_header_list_size(http.model.limits.max_head_bytes)
        .max_send_buffer_size(SEND_BUFFER)
        .max_pending_accept_reset_streams(RESET_BEFORE_SEEN)
        .max_local_error_reset_streams(Some(RESET_FOR_ERRORS));
    if *allow_connect {
        builder.enable_connect_protocol();
    }
    builder
}

/// When the connection is to end.
struct Watch {
    deadline: Deadline,
    accepted: Moment,
    /// When the last stream began or ended, as far as that was seen.
    idle_since: Moment,
    /// Since when a head is not complete.
    head_since: Option<Moment>,
    /// The process is short of something, and this connection is one of those to go.
    dismissed: bool,
    /// Since when the client knows that the connection ends.
    ending: Option<Moment>,
}

/// What is to be done about a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Due {
    Nothing,
    /// New streams are refused from now on, and those that there are go on. Once.
    Goodbye,
    /// The client asks for more than it is worth. Once.
    Expel,
    /// The last stream ended, and the client does not go by itself; or it says nothing that could be waited for.
    Close,
}

impl Watch {
    fn look(&mut self, shared: &Shared, http: &Http, wire: &Wire, cx: &mut Context<'_>) -> Due {
        let worker = &shared.worker;
        let now = worker.clock.now();
        let timeouts = &http.model.timeouts;
        if shared.active.get() > 0 {
            self.idle_since = now;
        }
        if let Some(since) = self.ending {
            let end = since.max(self.idle_since) + timeouts.delayed_close;
            self.deadline.set(Some(end));
            self.deadline.watch(cx.waker());
            return if shared.active.get() == 0 && now >= end { Due::Close } else { Due::Nothing };
        }
        let stats = &http.stats;
        if wire.is_abused(now.saturating_duration_since(self.accepted).as_secs()) {
            stats.inc(stat::DOWNSTREAM_CX_PROTOCOL_ERROR);
            self.ending = Some(now);
            return Due::Expel;
        }
        self.head_since = wire.is_in_head().then(|| self.head_since.unwrap_or(now));
        let head_end = self.head_since.zip(timeouts.request_headers).map(|(since, limit)| since + limit);
        if head_end.is_some_and(|end| now >= end) {
            stats.inc(stat::DOWNSTREAM_RQ_HEADER_TIMEOUT);
            return Due::Close;
        }
        let limit = http.model.limits.max_requests_per_connection;
        let overload = &worker.overload;
        let idle = overload.hurried(ScaledTimer::ConnectionIdle, timeouts.connection_idle);
        let oldest = timeouts.max_connection_duration.map(|limit| crate::http::age_limit(http, limit, shared.id));
        let age = overload.hurried(ScaledTimer::ConnectionAge, oldest);
        let idle_end = idle.map(|limit| self.idle_since + limit);
        let age_end = age.map(|limit| self.accepted + limit);
        if age_end.is_some_and(|end| now >= end) {
            stats.inc(stat::DOWNSTREAM_CX_MAX_DURATION_REACHED);
            self.ending = Some(now);
        } else if limit.is_some_and(|limit| shared.requests.get() >= limit) {
            stats.inc(stat::DOWNSTREAM_CX_MAX_REQUESTS_REACHED);
            self.ending = Some(now);
        } else if idle_end.is_some_and(|end| now >= end) {
            stats.inc(stat::DOWNSTREAM_CX_IDLE_TIMEOUT);
            self.ending = Some(now);
        } else if self.dismissed {
            self.ending = Some(now);
        } else if worker.stopping.get() || worker.drains(&shared.chain) {
            stats.inc(stat::DOWNSTREAM_CX_DRAIN_CLOSE);
            self.ending = Some(now);
        }
        let due = [idle_end, age_end, head_end].into_iter().flatten().min();
        let goodbye = self.ending.map(|now| now + timeouts.delayed_close);
        self.deadline.set(goodbye.or(due));
        self.deadline.watch(cx.waker());
        if self.ending.is_some() { Due::Goodbye } else { Due::Nothing }
    }
}

/// Whether a connection with a new stream is to take no more of them.
#[cold]
fn dismisses(shared: &Shared, http: &Http) -> bool {
    let worker = &shared.worker;
    if http.welcome.get() {
        return false;
    }
    if worker.overload.draws_end(&worker.random) {
        http.stats.inc(stat::DOWNSTREAM_CX_OVERLOAD_DISABLE_KEEPALIVE);
        http.stats.inc(stat::DOWNSTREAM_CX_DRAIN_CLOSE);
        return true;
    }
    worker.overload.sheds(ShedKind::GoAway, &worker.random, &worker.stats)
}

/// A stream that a client opened.
pub(super) struct Job {
    shared: Rc<Shared>,
    request: Request<RecvStream>,
    respond: SendResponse<Bytes>,
}

/// One stream, from its request to the end of its answer.
pub(super) async fn answer(job: Job) {
    let Job { shared, request, respond } = job;
    let chain = shared.chain.clone();
    let (parts, recv) = request.into_parts();
    let mut head = HEAD.take();
    head.clear();
    let random = || shared.worker.random.next();
    let read = text::write_request(&parts, recv.is_end_stream(), random, &mut head);
    let meter = shared.meter.as_ref().map(|of| StreamMeter::of_request(of, recv.stream_id().as_u32(), &parts));
    drop(parts);
    if read.is_err() {
        // Something that is complete is to be read, and refused.
        head.clear();
        head.extend_from_slice(b"\r\n\r\n?\r\n\r\n");
    }
    let io = Io::Http2(Box::new(Stream::of_client(recv, respond, read, meter)));
    let Shared { local, redirected, remote, direct_remote, id, .. } = *shared;
    let (tls, record, number) = (shared.tls.clone(), shared.record.clone(), shared.requests.get());
    let noted = shared.noted.clone();
    let ahead = Input::copied(&head, &shared.worker.buffers);
    if head.capacity() <= KEPT_HEAD_BYTES {
        HEAD.set(head);
    }
    let arrival = Arrival {
        io,
        ahead,
        local,
        redirected,
        remote,
        direct_remote,
        tls,
        hello: None,
        id,
        counted: None,
        record,
        noted,
    };
    crate::http::serve(shared.worker.clone(), chain, arrival, number).await;
    shared.active.set(shared.active.get().saturating_sub(1));
}
