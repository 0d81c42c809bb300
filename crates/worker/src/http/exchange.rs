//! One request and its answer.

use std::borrow::Cow;
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use postrider_filter_api::{Flags, Logged, Meter, Moment, State, StreamInfo};
use postrider_h1::HeadScan;
use postrider_http::{
    Aside, BodyFraming, Fields, Reject, RequestFacts, RequestHead, ResponseFacts, ResponseHead, Version,
};
use postrider_model::AnswerCounts;
use postrider_telemetry::Block;
use postrider_telemetry::stats::sets::{http as stat, http_routes as of_routes};
use postrider_upstream::Permit;

use super::attempts::Attempts;
use super::choice::Chosen;
use super::groups::Groups;
use super::hold::Passed;
use super::local::is_well_formed;
use super::meters::Marks;
use super::names::Names;
use super::outbox::Outbox;
use super::passage::Passage;
use super::prepare::Destination;
use super::redirect::Redirected;
use super::trace::Traced;
use super::transfer::Transfer;
use super::{After, Connection};
use crate::backlog::{Backlog, HTTP_READS};
use crate::chain::{Filters, Http, Routes};
use crate::cluster::{Cluster, Host, Upstream};
use crate::format::{Context, OfUpstream};
use crate::h2::Stream;
use crate::io::{Io, Resets};

/// The head did not come in time.
pub(crate) const HEADER_TIMEOUT: Reject = Reject::new(408, "request_header_timeout");

/// Heads larger than this are not kept for the next request.
const KEPT_HEAD_CAPACITY: usize = 32 * 1024;

/// Everything about one request under way. Reused: in the steady state nothing here allocates.
pub(crate) struct Exchange {
    pub(crate) request: RequestHead,
    pub(crate) response: ResponseHead,
    pub(crate) request_trailers: Fields,
    pub(crate) response_trailers: Fields,
    pub(crate) info: StreamInfo,
    pub(super) facts: RequestFacts,
    pub(super) refused: Option<Reject>,
    pub(super) routes: Option<Rc<Routes>>,
    pub(super) route: Option<u32>,
    /// Which of a route's weighted clusters was drawn.
    pub(super) weighted: Option<usize>,
    /// The number that they were drawn by.
    pub(super) ticket: u64,
    /// For a share of the requests, and among weighted clusters: drawn once, however often a stream's route is chosen.
    pub(super) chances: [Option<u64>; 2],
    pub(super) filters: Option<Rc<Filters>>,
    pub(super) states: Vec<State>,
    /// The ways of both messages through the filters; unused when there are none.
    pub(super) request_pass: Passage,
    pub(super) response_pass: Passage,
    pub(super) cluster: Option<Rc<Cluster>>,
    pub(super) host: Option<Rc<Host>>,
    pub(super) upstream: Option<Box<Upstream>>,
    pub(super) permit: Option<Permit>,
    /// On its way to the upstream, and to the client.
    pub(super) up: Outbox,
    pub(super) down: Outbox,
    pub(super) upload: Transfer,
    pub(super) download: Transfer,
    pub(super) response_scan: HeadScan,
    pub(super) response_facts: ResponseFacts,
    /// How the request leaves.
    pub(super) request_framing: BodyFraming,
    /// What was said to the client is the beginning of an answer: from now on nothing else can be.
    pub(super) answered: bool,
    /// All of the answer is in `down` or sent.
    pub(super) response_done: bool,
    /// The upstream takes no more of the body.
    pub(super) upload_broken: bool,
    pub(super) continue_sent: bool,
    pub(super) tunnel: bool,
    /// A CONNECT whose tunnel goes to the endpoint without another word of HTTP.
    pub(super) terminates: bool,
    /// In a tunnel: the end of the stream was passed on to the upstream, and to the client.
    pub(super) finished: [bool; 2],
    pub(super) pooling: Pooling,
    /// For requests that may be tried more than once, or whose tries have limits of their own.
    pub(super) attempts: Option<Box<Attempts>>,
    /// For messages that go on with the names that they came with.
    pub(super) names: Option<Box<Names>>,
    /// For requests whose connection manager traces.
    pub(super) trace: Option<Box<Traced>>,
    /// For requests that count in something beside their cluster.
    pub(super) groups: Option<Box<Groups>>,
    /// For requests whose cluster chooses by a hash.
    pub(super) chosen: Option<Box<Chosen>>,
    /// The request was redirected, and follows where that leads.
    pub(super) redirected: Option<Box<Redirected>>,
    /// The answer is slow: from now on it is worth knowing whether the client has gone.
    pub(super) watches_client: bool,
    /// Says whether it has, where what it sent is not read.
    pub(super) resets: Option<Resets>,
    /// The request comes from inside.
    pub(super) internal: bool,
    /// How the cluster counts this answer.
    pub(super) answer_counts: AnswerCounts,
    pub(super) keep_alive: bool,
    pub(super) last_activity: Moment,
    /// When something came from the upstream.
    pub(super) last_received: Moment,
    pub(super) route_timeout: Option<Duration>,
    /// The same while a filter keeps a message that is on its way, and since when: nobody waits for the upstream.
    pub(super) stopped_timeout: Option<(Moment, Duration)>,
    /// When the next record of a stream that goes on is due.
    pub(super) next_record: Option<Moment>,
    pub(super) stream_idle: Option<Duration>,
    /// From its first byte to its last.
    pub(super) max_duration: Option<Duration>,
    /// The upstream host is judged by the status of gRPC that ends its answer.
    pub(super) counts_grpc: bool,
    /// Whether the client speaks gRPC; `None` while nobody has looked.
    pub(super) grpc: Option<bool>,
    /// A local reply is prepared: the filters have yet to see it, and the client to get it.
    pub(super) replying: bool,
    /// Its body comes in pieces from the filter that gave it; so much of it is still to come, where that was said.
    pub(super) streaming: Option<Option<u64>>,
    /// When the filters let the request go that they had held.
    pub(super) released: Moment,
    /// What the upstream said, when a filter made another status of it.
    pub(super) upstream_status: Option<u16>,
    pub(super) reply_body: Vec<u8>,
    pub(super) scratch: Vec<u8>,
    /// Where bytes are counted from, if they are, and what a stream to an upstream took when that was asked last.
    pub(super) marks: Marks,
    /// What stands still between the client and the upstream.
    pub(super) backlog: Backlog,
    pub(super) metered: Meter,
}

/// Which pooled connections serve a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pooling {
    /// Those of its cluster.
    Shared,
    /// Those that were made with the same wishes, which filters have.
    Apart,
    /// None: one has failed this request already, or it is to begin with a new one.
    Fresh,
}

impl Exchange {
    pub(crate) fn new(now: Moment) -> Exchange {
        Exchange {
            request: RequestHead::new(),
            response: ResponseHead::new(),
            request_trailers: Fields::new(),
            response_trailers: Fields::new(),
            info: StreamInfo::new(now, SystemTime::UNIX_EPOCH),
            facts: RequestFacts::default(),
            refused: None,
            routes: None,
            route: None,
            weighted: None,
            ticket: 0,
            chances: [None; 2],
            filters: None,
            states: Vec::new(),
            request_pass: Passage::default(),
            response_pass: Passage::default(),
            cluster: None,
            host: None,
            upstream: None,
            permit: None,
            up: Outbox::default(),
            down: Outbox::default(),
            upload: Transfer::Done,
            download: Transfer::Done,
            response_scan: HeadScan::new(),
            response_facts: ResponseFacts::default(),
            request_framing: BodyFraming::None,
            answered: false,
            response_done: false,
            upload_broken: false,
            continue_sent: false,
            tunnel: false,
            terminates: false,
            finished: [false; 2],
            pooling: Pooling::Shared,
            attempts: None,
            names: None,
            trace: None,
            groups: None,
            chosen: None,
            redirected: None,
            watches_client: false,
            resets: None,
            internal: false,
            answer_counts: AnswerCounts::ByStatus,
            keep_alive: true,
            last_activity: now,
            last_received: now,
            route_timeout: None,
            stopped_timeout: None,
            next_record: None,
            stream_idle: None,
            max_duration: None,
            counts_grpc: false,
            grpc: None,
            replying: false,
            streaming: None,
            released: Moment::default(),
            upstream_status: None,
            reply_body: Vec::new(),
            scratch: Vec::new(),
            marks: Marks::default(),
            backlog: Backlog::default(),
            metered: Meter::default(),
        }
    }

    /// The codec read a head of so many bytes.
    pub(crate) fn accept(&mut self, facts: RequestFacts, head_bytes: usize) {
        self.facts = facts;
        self.refused = None;
        self.info.request_head_bytes = head_bytes as u64;
    }

    /// The head is that of a stream.
    #[cold]
    pub(crate) fn begin_stream(&mut self, stream: &mut Stream) {
        self.request.set_version(Version::Http2);
        self.facts.framing = stream.framed(self.facts.framing);
        if let Some(reject) = stream.take_refusal() {
            self.refuse(reject);
        }
    }

    /// The codec refused the head.
    pub(crate) fn refuse(&mut self, reject: Reject) {
        self.facts = RequestFacts::default();
        // What the last head had is not this one's.
        self.info.request_head_bytes = 0;
        self.marks.fields = 0;
        self.refused = Some(reject);
    }

    /// Takes the request through all stages and answers what becomes of the client's connection.
    pub(crate) async fn run(&mut self, connection: &mut Connection, http: &Http) -> After {
        // A loop, as a second caller of these stages would cost every request their inlining.
        loop {
            self.begin(connection, http);
            if let Some(reject) = self.refused {
                self.reply_refused(connection, http, reject);
            } else if !(connection.worker.overload.requests.get() && self.is_turned_away(connection, http)) {
                self.serve(connection, http).await;
            }
            if self.replying {
                if self.filters.is_some() && !self.filter_reply(connection, http, None) {
                    // Boxed: rare, and it would make every idle connection's task larger. So below.
                    Box::pin(self.hold_reply(connection, http)).await;
                }
                if !self.is_redirected() {
                    self.send_reply(connection, http);
                    break;
                }
            }
            if self.redirected.is_none() || !self.take_redirected(connection, http) {
                break;
            }
        }
        if self.streaming.is_some() && self.response_done && connection.is_stream() {
            // Its end is said once all of it has left: nothing told beforehand how long it is.
            Box::pin(connection.flush()).await;
        }
        let after = self.after(connection);
        if let Io::Http2(stream) = &mut connection.io
            && self.response_done
            && connection.out.is_empty()
        {
            stream.finish(&self.response_trailers);
        }
        if http.meters && connection.is_stream() {
            Box::pin(connection.wait_sent()).await;
        }
        self.complete(connection, http);
        after
    }

    /// The pipeline, stage by stage.
    async fn serve(&mut self, connection: &mut Connection, http: &Http) {
        // Who is asking, and under which id.
        if self.redirected.is_some() {
            self.recall_before(connection, http);
        } else if !self.identify(connection, http) {
            return;
        }
        if self.facts.aside != Aside::None {
            return self.step_aside(connection, http);
        }
        // Which virtual host and route, and so which filters.
        self.find_route(connection, http);
        if self.asks_for_tunnel() && self.refuses_tunnel(connection, http) {
            return;
        }
        // Some want to read of a request before it is over, or to know of which trace it is part.
        if http.notes_begins {
            self.note_begin(connection, http);
        }
        // Filters may change the request, hold it, or answer it.
        if self.filters.is_some() {
            match self.filter_request(connection, http) {
                Passed::Free => {}
                Passed::Barred => return,
                Passed::Held => {
                    if !Box::pin(self.hold_request(connection, http)).await {
                        return;
                    }
                }
            }
        }
        // The end of the chain: answer here, or forward.
        let Some(Destination { routes, route, cluster }) = self.route_request(connection, http) else { return };
        if !self.choose_host(cluster, (&routes, route), connection, http) {
            return;
        }
        // Permission from the circuit breakers, and a connection.
        self.forward(routes, route, connection, http).await;
    }

    fn begin(&mut self, connection: &Connection, http: &Http) {
        let worker = &connection.worker;
        let now = worker.clock.now();
        let head_bytes = self.info.request_head_bytes;
        self.info.restart(now, worker.clock.wall_now());
        self.info.request_head_bytes = head_bytes;
        self.info.connection_id = connection.id;
        self.info.stream_id = connection.id << 20 | u64::from(connection.requests);
        self.info.downstream_local = connection.local;
        self.info.downstream_direct_remote = connection.direct_remote;
        self.info.downstream_connection_remote = connection.remote;
        self.info.downstream_remote = connection.remote;
        self.info.filter_chain.clone_from(&connection.chain.name);
        connection.chain.surround(&mut self.info);
        self.info.tls.clone_from(&connection.tls);
        if let Some(noted) = &connection.noted {
            noted.begin(&mut self.info);
        }
        if http.meters {
            self.begin_meters(connection);
        }
        self.last_activity = now;
        let stats = &http.stats;
        stats.inc(match self.request.version() {
            Version::Http2 => stat::DOWNSTREAM_RQ_HTTP2_TOTAL,
            Version::Http10 | Version::Http11 => stat::DOWNSTREAM_RQ_HTTP1_TOTAL,
        });
        stats.gauge_inc(stat::DOWNSTREAM_RQ_ACTIVE);
        self.upload = Transfer::new(self.facts.framing, self.facts.framing, http.model.http1.enable_trailers, || {
            http.rules.limits
        });
        if self.upload.is_done() {
            self.info.request_received = Some(now);
        }
    }

    /// What becomes of the client's connection.
    fn after(&mut self, connection: &Connection) -> After {
        if self.tunnel {
            // One that broke may leave the client with much to read, and with more to say.
            return if connection.half_closed { After::Close } else { After::Linger };
        }
        if self.answered && !self.response_done {
            return After::Reset;
        }
        if !self.answered {
            // The client left before there was an answer.
            return After::Close;
        }
        let heard_all = self.upload.is_heard();
        if self.keep_alive && heard_all && !connection.half_closed {
            return After::KeepAlive;
        }
        if heard_all && connection.input.is_empty() { After::Close } else { After::Linger }
    }

    /// Counts, logs and forgets.
    fn complete(&mut self, connection: &Connection, http: &Http) {
        let worker = &connection.worker;
        let now = worker.clock.now();
        self.info.ended = Some(now);
        if http.meters {
            self.meter_client(connection);
            self.meter_upstream();
        }
        if self.attempts.is_some() {
            self.end_record(connection, http);
        }
        if self.backlog.is_told() {
            self.backlog.clear(&http.stats, HTTP_READS);
        }
        self.release_upstream(connection, now);
        let stats = &http.stats;
        stats.gauge_dec(stat::DOWNSTREAM_RQ_ACTIVE);
        if let Some(stats) = &http.route_stats {
            self.count_lookups(stats);
        }
        if self.info.status > 0 {
            if !self.info.is_health_check {
                postrider_telemetry::stats::sets::count_downstream_response(stats, self.info.status);
                postrider_telemetry::stats::sets::count_listener_response(&http.listener_stats, self.info.status);
            }
            let time = now.millis_since(self.info.started);
            stats.record(stat::DOWNSTREAM_RQ_TIME, time);
            if !self.response_done
                || self.tunnel
                || !self.upload.is_heard() && !self.refused.is_some_and(is_well_formed)
            {
                // As Envoy counts it, though it is the proxy that ends such a stream.
                stats.inc(stat::DOWNSTREAM_RQ_RX_RESET);
            }
        } else {
            stats.inc(stat::DOWNSTREAM_RQ_RX_RESET);
        }
        if self.filters.is_some() {
            self.complete_filters(&worker.clock);
        }
        if http.notes_ends.get() {
            self.note_end(connection, http);
            self.next_record = None;
        }
        self.info.release();
        self.reset();
    }

    /// A request that was refused before it had a route counts nowhere.
    #[cold]
    fn count_lookups(&self, stats: &Block) {
        if let Some(time) = self.info.route_lookup_time {
            stats.record(of_routes::DOWNSTREAM_RQ_ROUTE_RESOLUTIONS, u64::from(self.info.route_lookups));
            stats.record(of_routes::DOWNSTREAM_RQ_ROUTE_RESOLUTION_TIME_US, time.as_micros() as u64);
        }
    }

    #[cold]
    #[inline(never)]
    fn note_begin(&mut self, connection: &Connection, http: &Http) {
        self.begin_trace(connection, http);
        if http.logs.is_empty() && self.filters.is_none() {
            return;
        }
        let moments = &http.model.log_moments;
        if moments.start {
            self.record(Logged::Start, connection, http);
        }
        if let Some(interval) = moments.every {
            self.next_record = Some(connection.worker.clock.now() + interval);
            // So its deadlines are those of a slow request, among which this one is.
            self.watches_client = true;
        }
    }

    /// A record of a stream that goes on, if it is time for one.
    #[cold]
    pub(super) fn note_progress(&mut self, connection: &Connection, http: &Http) {
        let now = connection.worker.clock.now();
        if let (Some(due), Some(interval)) = (self.next_record, http.model.log_moments.every)
            && now >= due
        {
            self.record(Logged::Periodic, connection, http);
            // From when it was written: one that takes longer than the interval leaves time for the stream all the same.
            self.next_record = Some(connection.worker.clock.exact() + interval);
        }
    }

    #[cold]
    pub(super) fn record(&mut self, logged: Logged, connection: &Connection, http: &Http) {
        let now = connection.worker.clock.now();
        // It lasted until now.
        self.info.ended = Some(now);
        self.info.logged = logged;
        if http.meters {
            self.meter_client(connection);
            self.meter_upstream();
        }
        http.logs.write(&self.format_context(&self.reply_body, connection.worker.clock.wall(now)));
        if matches!(logged, Logged::Start | Logged::Periodic) && self.filters.is_some() {
            self.note_to_filters();
        }
        self.info.ended = None;
        self.info.logged = Logged::End;
    }

    #[inline(never)]
    pub(super) fn note_end(&mut self, connection: &Connection, http: &Http) {
        if self.trace.is_some() {
            self.end_trace(connection, http);
        }
        if let (Some(now), false) = (self.info.ended, http.logs.is_empty()) {
            http.logs.write(&self.format_context(&self.reply_body, connection.worker.clock.wall(now)));
        }
        if let Some(record) = &connection.record {
            let protocol = self.refused.is_none().then(|| self.request.version().as_str());
            record.add(&self.info, self.repeated_bytes(), protocol);
        }
    }

    /// What formats can say of this exchange, at `now`.
    #[inline]
    pub(super) fn format_context<'a>(&'a self, reply_body: &'a [u8], now: SystemTime) -> Context<'a> {
        Context {
            request: &self.request,
            response: &self.response,
            trailers: &self.response_trailers,
            info: &self.info,
            route: self.route_plan().map(|route| &route.facts),
            weighted: self.weighted,
            reply_body,
            http: true,
            now,
            upstream: OfUpstream {
                cluster: self.cluster.as_deref(),
                tried: self.attempts.as_ref().map_or(&[], |attempts| &attempts.tried),
                tried_on: self.attempts.as_ref().map_or(&[], |attempts| &attempts.tried_on),
            },
        }
    }

    pub(super) fn route_plan(&self) -> Option<&crate::plan::RoutePlan> {
        self.routes.as_ref()?.plan.routes.get(self.route? as usize)
    }

    /// Ready for the next request, with all capacity kept.
    fn reset(&mut self) {
        self.request.clear();
        self.response.clear();
        if !self.request_trailers.is_empty() {
            self.request_trailers.clear();
        }
        if !self.response_trailers.is_empty() {
            self.response_trailers.clear();
        }
        self.refused = None;
        self.routes = None;
        self.route = None;
        self.weighted = None;
        self.chances = [None; 2];
        self.cluster = None;
        self.host = None;
        self.permit = None;
        self.up.reset();
        self.down.reset();
        self.upload = Transfer::Done;
        self.download = Transfer::Done;
        self.response_scan.reset();
        // What the last answer allowed says nothing of a connection that has not answered yet.
        self.response_facts = ResponseFacts::default();
        self.request_framing = BodyFraming::None;
        self.answered = false;
        self.response_done = false;
        self.upload_broken = false;
        self.continue_sent = false;
        self.tunnel = false;
        self.terminates = false;
        self.finished = [false; 2];
        self.pooling = Pooling::Shared;
        self.attempts = None;
        self.chosen = None;
        if self.names.is_some() {
            self.names = None;
        }
        if self.groups.is_some() {
            self.leave_groups();
        }
        if self.redirected.is_some() {
            self.redirected = None;
        }
        if self.watches_client {
            self.watches_client = false;
            self.resets = None;
        }
        self.keep_alive = true;
        self.route_timeout = None;
        self.stopped_timeout = None;
        self.stream_idle = None;
        self.grpc = None;
        self.reply_body.clear();
        self.scratch.clear();
    }

    /// Not grown by an unusual message: worth keeping.
    pub(crate) fn is_small(&self) -> bool {
        let heads = self.request.fields.capacity() + self.response.fields.capacity();
        heads <= 2 * KEPT_HEAD_CAPACITY && self.up.is_small() && self.down.is_small()
    }

    pub(super) fn fail(&mut self, flags: Flags, details: impl Into<Cow<'static, str>>) {
        self.info.flags.insert(flags);
        self.info.details = details.into();
    }
}
