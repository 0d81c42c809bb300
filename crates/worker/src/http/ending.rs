//! How a forwarded request ends, and what is said, counted and given back then.

use std::borrow::Cow;

use postrider_filter_api::{Flags, LocalReply, Moment};
use postrider_http::{HeaderId, Reject, reason};
use postrider_model::{Address, AnswerCounts};
use postrider_telemetry::Block;
use postrider_telemetry::stats::sets::{self, cluster as stat};
use postrider_upstream::Refusal;
use postrider_upstream::outlier::Outcome;

use super::Connection;
use super::attempts::Reset;
use super::exchange::{Exchange, Pooling};
use crate::chain::Http;
use crate::cluster::{Cluster, Host, NoConnection};
use crate::io::Io;
use crate::outlier;
use crate::refused::Refused;
use crate::worker::Worker;

/// How a forwarded stream ended.
#[derive(Debug)]
pub(super) enum End {
    /// The whole answer was handed to the client.
    Complete,
    /// Nothing was said to the client yet: say this.
    Reply(Box<LocalReply>),
    /// The answer broke off.
    Broken,
    /// The client has gone.
    Gone,
    /// The process is short of memory, and this holds much of it.
    Expelled,
    /// A pooled connection turned out to be closed before it took the request: try another.
    Stale,
    /// The route wants another try instead of this outcome.
    Again,
    /// The answer leads to another route, and the request goes there.
    Redirect,
}

/// What a request ended with, and how long its upstream took, in milliseconds.
#[derive(Clone, Copy)]
struct Answer {
    status: u16,
    time: u64,
}

impl Exchange {
    /// The upstream's connection failed, or its stream did.
    pub(super) fn upstream_broke(&mut self, error: Option<&std::io::Error>) -> End {
        if let Some(upstream) = &self.upstream {
            upstream.peer_ended();
        }
        if self.answered || self.response_pass.open {
            return self.answer_broke(self.reset_of(error), error);
        }
        let Some(upstream) = &self.upstream else { return End::Gone };
        let reset = self.reset_of(error);
        // RFC 9110 section 9.2.2: what is idempotent may be sent again; nothing of an answer came, and a pooled
        // connection that its owner closed meanwhile is the common case. A stream that is reset while its connection
        // stays is another matter: the upstream had the request, and says what it thinks of it. So is one that ends because
        // its upstream speaks no HTTP.
        let fresh_body = self.request_framing == postrider_http::BodyFraming::None;
        if Reset::is_of_connection(&upstream.io, error)
            && reset != Reset::ProtocolError
            && upstream.is_reused()
            && self.pooling != Pooling::Fresh
            && fresh_body
            && self.request.method().is_idempotent()
        {
            return End::Stale;
        }
        self.report_failure();
        let worker = upstream.worker();
        reset.count(upstream, error, false);
        if self.again_after_reset(reset, &worker) {
            return End::Again;
        }
        let (flag, reason, details) = match reset {
            Reset::ProtocolError => {
                self.fail(Flags::UPSTREAM_PROTOCOL_ERROR, "upstream_reset_before_response_started{protocol_error}");
                return self.upstream_reset(502, "protocol error");
            }
            Reset::Stream => {
                (Flags::UPSTREAM_REMOTE_RESET, "remote reset", "upstream_reset_before_response_started{remote_reset}")
            }
            Reset::RefusedStream => (
                Flags::UPSTREAM_REMOTE_RESET,
                "remote refused stream reset",
                "upstream_reset_before_response_started{remote_refused_stream_reset}",
            ),
            _ => (
                Flags::UPSTREAM_CONNECTION_TERMINATION,
                "connection termination",
                "upstream_reset_before_response_started{connection_termination}",
            ),
        };
        self.fail(flag, details);
        self.upstream_reset(503, reason)
    }

    /// The upstream did so after the head of its answer came.
    fn answer_broke(&mut self, reset: Reset, error: Option<&std::io::Error>) -> End {
        if let Some(upstream) = &self.upstream {
            reset.count(upstream, error, true);
        }
        self.report_failure();
        let (flag, status, reason, details) = match reset {
            Reset::Stream | Reset::RefusedStream => (
                Flags::UPSTREAM_REMOTE_RESET,
                503,
                "remote reset",
                "upstream_reset_after_response_started{remote_reset}",
            ),
            Reset::ProtocolError => (
                Flags::UPSTREAM_PROTOCOL_ERROR,
                502,
                "protocol error",
                "upstream_reset_after_response_started{protocol_error}",
            ),
            Reset::ConnectFailure | Reset::ConnectionTermination | Reset::Timeout => (
                Flags::UPSTREAM_CONNECTION_TERMINATION,
                503,
                "connection termination",
                "upstream_reset_after_response_started{connection_termination}",
            ),
        };
        self.record_flags(flag);
        self.fail(flag, details);
        if self.answered {
            return End::Broken;
        }
        // The head is still with the filters: the client can be told.
        self.upstream_reset(status, reason)
    }

    /// The upstream closed its side before the head of an answer was complete: half a head is a malformed answer.
    #[cold]
    pub(super) fn head_missing(&mut self, connection: &Connection) -> End {
        match &self.upstream {
            Some(upstream) if !matches!(upstream.io, Io::Http2(_) | Io::Bridged(_)) && !upstream.input.is_empty() => {
                self.refuse_response(connection, reason::CODEC_ERROR.upstream())
            }
            _ => self.upstream_broke(None),
        }
    }

    pub(super) fn refuse_response(&mut self, connection: &Connection, reject: Reject) -> End {
        if let Some(upstream) = &self.upstream {
            upstream.refuse_answer();
            upstream.count_reset();
        }
        self.report_failure();
        if self.again_after_reset(Reset::ProtocolError, &connection.worker) {
            return End::Again;
        }
        self.info.upstream_failure = Some(reject.details.into());
        self.fail(Flags::UPSTREAM_PROTOCOL_ERROR, "upstream_reset_before_response_started{protocol_error}");
        self.upstream_reset(reject.status, "protocol error")
    }

    #[cold]
    pub(super) fn no_host(&mut self, connection: &Connection, stats: &Block) -> End {
        stats.inc(stat::UPSTREAM_CX_NONE_HEALTHY);
        if self.attempts.is_none() {
            self.prepare_no_attempt(&connection.worker);
        }
        let status = self.status_without_host();
        self.find_groups(connection);
        self.fail(Flags::NO_HEALTHY_UPSTREAM, "");
        self.count_hostless(stats, status);
        let body = Cow::Borrowed(b"no healthy upstream".as_slice());
        let details = "no_healthy_upstream".into();
        End::Reply(Box::new(LocalReply { status, body, details, ..LocalReply::default() }))
    }

    /// The cluster takes only some of the requests, and this is none of them.
    #[cold]
    pub(super) fn not_taken(
        &mut self,
        refusal: Refusal,
        (connection, http): (&Connection, &Http),
        stats: &Block,
    ) -> End {
        self.info.upstream_attempts = 0;
        self.find_groups(connection);
        let Refused { flag, body, details, header } = Refused::count(refusal, stats);
        let header = (!http.model.router.suppress_x_headers).then_some(header);
        self.fail(flag, "");
        self.count_hostless(stats, 503);
        let (body, details) = (Cow::Borrowed(body.as_bytes()), details.into());
        let headers = header.map(|name| (name.into(), b"true".as_slice().into())).into_iter().collect();
        End::Reply(Box::new(LocalReply { status: 503, body, details, headers, ..LocalReply::default() }))
    }

    pub(super) fn refusal(&self) -> Option<Refusal> {
        self.chosen.as_ref()?.refusal
    }

    /// A filter may want another one where the host that it chose is none of the cluster's.
    fn status_without_host(&self) -> u16 {
        match (&self.info.upstream_override, &self.cluster) {
            (Some(wanted), Some(cluster)) if wanted.strict && !cluster.hosts.has(&Address::Tcp(wanted.address)) => {
                wanted.missing_status
            }
            _ => 503,
        }
    }

    #[cold]
    pub(super) fn overflow(&mut self, http: &Http) -> End {
        self.record_flags(Flags::UPSTREAM_OVERFLOW);
        self.fail(Flags::UPSTREAM_OVERFLOW, "upstream_reset_before_response_started{overflow}");
        let mut end = self.upstream_reset(503, "overflow");
        if let (End::Reply(reply), false) = (&mut end, http.model.router.suppress_x_headers) {
            reply.headers.push(("x-envoy-overloaded".into(), b"true".as_slice().into()));
        }
        end
    }

    /// The host may not have connections: as if there were none.
    #[cold]
    fn no_pool(&mut self, connection: &Connection) -> End {
        self.forget_record();
        self.fail(Flags::NO_HEALTHY_UPSTREAM, "no_healthy_upstream");
        if let Some(cluster) = self.cluster.as_ref().filter(|_| self.counts_answers()) {
            self.count_status(cluster.stats(&connection.worker), 503);
        }
        let body = Cow::Borrowed(b"no healthy upstream".as_slice());
        let details = "no_healthy_upstream".into();
        End::Reply(Box::new(LocalReply { status: 503, body, details, ..LocalReply::default() }))
    }

    #[cold]
    pub(super) fn no_connection(&mut self, failure: NoConnection, (connection, http): (&Connection, &Http)) -> End {
        let reason = match &failure {
            NoConnection::Overflow => return self.overflow(http),
            NoConnection::NoPool => return self.no_pool(connection),
            NoConnection::Timeout => "connection timeout",
            NoConnection::Failed(_) => "remote connection failure",
        };
        if let Some(cluster) = &self.cluster {
            cluster.stats(&connection.worker).inc(stat::UPSTREAM_RQ_PENDING_FAILURE_EJECT);
        }
        self.report(Outcome::Failed, &connection.worker);
        if let NoConnection::Failed(cause) = &failure {
            self.info.upstream_failure = (!cause.is_empty()).then(|| cause.as_str().into());
        }
        if self.again_after_reset(Reset::ConnectFailure, &connection.worker) {
            return End::Again;
        }
        if let Some(host) = &self.host {
            self.info.upstream_remote.get_or_insert_with(|| host.endpoint.address.to_string().into());
        }
        let details = match (&failure, &self.info.upstream_failure) {
            (NoConnection::Failed(_), Some(cause)) => {
                let cause = cause.replace(' ', "_");
                format!("upstream_reset_before_response_started{{remote_connection_failure|{cause}}}")
            }
            (NoConnection::Failed(_), None) => {
                "upstream_reset_before_response_started{remote_connection_failure}".to_owned()
            }
            _ => "upstream_reset_before_response_started{connection_timeout}".to_owned(),
        };
        self.fail(Flags::UPSTREAM_CONNECTION_FAILURE, details);
        self.upstream_reset(503, reason)
    }

    /// Answers of the host may have consequences for it.
    #[inline]
    pub(super) fn is_watched(&self) -> bool {
        self.host.as_ref().is_some_and(|host| host.monitor.is_some())
    }

    /// An answer counts for its host.
    #[cold]
    pub(super) fn report_answer(&self, worker: &Worker) {
        // Filters of the upstream side see it first.
        if self.upside().is_none() {
            self.report_passed_answer(worker);
        }
    }

    #[cold]
    pub(super) fn report_passed_answer(&self, worker: &Worker) {
        if let (Some(cluster), Some(host)) = (&self.cluster, &self.host) {
            outlier::report_answer(cluster, host, &self.response, worker);
        }
    }

    /// The host says that it fails.
    #[cold]
    pub(super) fn report_resignation(&self, worker: &Worker) {
        if let (Some(cluster), Some(host)) = (&self.cluster, &self.host) {
            crate::health::resigns(cluster, &host.endpoint, worker);
        }
    }

    /// The host's connection or stream broke.
    #[cold]
    pub(super) fn report_failure(&self) {
        if let Some(upstream) = &self.upstream {
            self.report(Outcome::Failed, &upstream.worker());
        }
    }

    /// What became of a request counts for its host.
    #[cold]
    pub(super) fn report(&self, outcome: Outcome, worker: &Worker) {
        if let (Some(cluster), Some(host)) = (&self.cluster, &self.host) {
            outlier::report(cluster, host, outcome, worker);
        }
    }

    /// The request ends without an answer of its host, and with this status for its client.
    #[cold]
    pub(super) fn count_unanswered(&self, status: u16) {
        if let Some(host) = self.host.as_ref().filter(|_| self.info.response_began.is_none()) {
            self.count_failure(host, status);
        }
    }

    /// The host failed. As in Envoy, who does not count statuses does not see it by a status either.
    #[cold]
    pub(super) fn count_failure(&self, host: &Host, status: u16) {
        if status < 500 || self.counts_answers() {
            host.totals.errors.set(host.totals.errors.get() + 1);
        }
    }

    /// Answers of the cluster count in its statistics; those to health checks never do.
    fn counts_answers(&self) -> bool {
        self.answer_counts != AnswerCounts::Nothing && !self.info.is_health_check
    }

    /// An answer of the cluster counts by its status, except in all where the router leaves that out.
    #[cold]
    fn count_status(&self, stats: &Block, status: u16) {
        if self.spares_grpc() {
            sets::count_upstream_response_by_origin(stats, status, self.internal);
        } else {
            sets::count_upstream_response(stats, status, self.internal);
        }
    }

    /// Statuses of this request are left out of the counts in all.
    pub(super) fn spares_grpc(&self) -> bool {
        self.answer_counts == AnswerCounts::ByStatusButGrpc && self.is_grpc()
    }

    /// The request ends with this status before a host of the cluster had it.
    #[cold]
    fn count_hostless(&self, stats: &Block, status: u16) {
        if self.counts_answers() {
            self.count_status(stats, status);
            if let Some(groups) = &self.groups {
                groups.count_response(status, None);
            }
            self.count_alternative(status, None);
        }
    }

    /// The request is over with this status; `time` is what its upstream took to answer, in milliseconds.
    #[cold]
    fn count_alternative(&self, status: u16, time: Option<u64>) {
        if let Some(block) = self.attempts.as_ref().and_then(|attempts| attempts.alternative.as_ref()) {
            sets::count_alternative_response(block, status, time, self.internal, self.spares_grpc());
        }
    }

    /// The host did not answer in time.
    #[cold]
    pub(super) fn count_late(&self) {
        if let Some(host) = &self.host {
            host.totals.timeouts.set(host.totals.timeouts.get() + 1);
        }
    }

    /// What the client is about to be told says nothing about the upstream, and is not counted as an answer of its.
    #[cold]
    pub(super) fn spare_upstream(&mut self) {
        if self.host.is_some() {
            self.upstream_status.get_or_insert(0);
        }
    }

    /// Tells how much the stream holds, and ends it if that is too much.
    #[cold]
    pub(super) fn settle_account(&self, connection: &Connection) -> Option<End> {
        let account = connection.account.as_ref()?;
        let upstream = self.upstream.as_ref().map_or(0, |upstream| upstream.input.bytes().len());
        let passing = self.request_pass.holds() + self.response_pass.holds();
        let waiting = self.up.bytes.len() + self.down.bytes.len() + self.reply_body.len();
        let kept = self.attempts.as_ref().map_or(0, |attempts| attempts.kept_bytes());
        let holds = connection.input.bytes().len() + upstream + passing + waiting + kept;
        account.settle(holds as u64).then_some(End::Expelled)
    }

    /// What remains to be said after the stream ended.
    pub(super) fn conclude(&mut self, connection: &mut Connection, http: &Http, end: End) {
        // One that the filters hold back is none yet.
        self.tunnel &= self.answered;
        match end {
            End::Complete | End::Stale | End::Again | End::Redirect => {}
            End::Reply(mut reply) => {
                if let Some(count) = self.attempt_count_for_client() {
                    reply.headers.push(("x-envoy-attempt-count".into(), count.as_bytes().to_vec().into()));
                }
                self.name_cluster(connection);
                // What the client was told until now was at most an interim answer.
                self.meter_upstream();
                self.upstream = None;
                self.up.discard(&mut connection.input, &connection.worker.buffers);
                self.reply(connection, http, *reply);
            }
            End::Broken => {
                self.replying = false;
                if self.answered {
                    // A client that got part of an answer knows that there was one: what filters let go on still leaves.
                    self.down.move_to(&mut connection.out);
                }
                http.stats.inc(sets::http::RQ_RESET_AFTER_DOWNSTREAM_RESPONSE_STARTED);
                http.stats.inc(sets::http::DOWNSTREAM_RQ_TX_RESET);
            }
            End::Expelled => {
                self.name_cluster(connection);
                self.info.flags.insert(Flags::OVERLOAD_MANAGER);
                connection.half_closed = true;
                if !self.answered {
                    self.replying = false;
                    self.info.status = 0;
                }
                // One that has its connection is not cancelled, but reset.
                if let (Some(cluster), None) = (&self.cluster, &self.upstream) {
                    cluster.stats(&connection.worker).inc(stat::UPSTREAM_RQ_CANCELLED);
                }
            }
            End::Gone => {
                self.name_cluster(connection);
                let (flag, details) = match &connection.io {
                    Io::Http2(stream) if stream.is_reset_by_peer() => {
                        (Flags::DOWNSTREAM_REMOTE_RESET, "http2.remote_reset")
                    }
                    io if io.gave_up() => (
                        Flags::DOWNSTREAM_CONNECTION_TERMINATION,
                        "downstream_local_disconnect(buffer_high_watermark_timeout_reached)",
                    ),
                    _ => (Flags::DOWNSTREAM_CONNECTION_TERMINATION, "downstream_remote_disconnect"),
                };
                // Whom the upstream has left in a tunnel may go as it likes.
                if !(self.tunnel && self.info.flags.contains(Flags::UPSTREAM_CONNECTION_TERMINATION)) {
                    self.fail(flag, details);
                }
                connection.desert();
                if !self.answered {
                    self.replying = false;
                    self.info.status = 0;
                }
                // One that has its connection is not cancelled, but reset.
                if let (Some(cluster), None) = (&self.cluster, &self.upstream) {
                    cluster.stats(&connection.worker).inc(stat::UPSTREAM_RQ_CANCELLED);
                }
            }
        }
        if self.tunnel {
            http.stats.gauge_dec(sets::http::DOWNSTREAM_CX_UPGRADES_ACTIVE);
            connection.leave_tunnel();
        }
    }

    /// Tells how long the host took for the request, if it was asked.
    #[cold]
    #[inline(never)]
    pub(super) fn time(&self, host: &Host, answered: bool, now: Moment) {
        if let Some(sent) = self.info.request_sent.filter(|_| !self.tunnel) {
            host.observe(now.saturating_duration_since(sent), answered);
        }
    }

    /// An answer counts as a router wants it that does not want all.
    #[cold]
    #[inline(never)]
    fn count_otherwise(&self, (cluster, stats): (&Cluster, &Block), host: &Host, worker: &Worker, answer: Answer) {
        if self.counts_answers() {
            self.count_status(stats, answer.status);
            self.count_beside_status((cluster, stats), host, worker, answer);
        }
    }

    /// What an answer counts in besides the counters of its status.
    #[inline(always)]
    fn count_beside_status(&self, (cluster, stats): (&Cluster, &Block), host: &Host, worker: &Worker, answer: Answer) {
        let Answer { status, time } = answer;
        // An answer of our own in its place took nobody any time.
        let answered = self.info.response_began.is_some();
        if answered {
            sets::record_upstream_time(stats, time, self.internal);
        }
        if cluster.tells_apart || self.response.fields.has(HeaderId::XEnvoyUpstreamCanary) {
            let said = self.response.fields.get(HeaderId::XEnvoyUpstreamCanary);
            let says_canary = said.is_some_and(|said| said == b"true");
            cluster.count_apart(worker, host, says_canary, status, time);
        }
        if let Some(groups) = &self.groups {
            groups.count_response(status, answered.then_some(time));
        }
        if self.attempts.is_some() {
            self.count_alternative(status, answered.then_some(time));
        }
    }

    /// Gives the upstream connection back, or closes it, and settles the cluster's counts.
    #[inline(always)]
    pub(super) fn release_upstream(&mut self, connection: &Connection, now: Moment) {
        let (Some(cluster), Some(host)) = (self.cluster.clone(), self.host.take()) else { return };
        let worker = &connection.worker;
        let stats = cluster.stats(worker);
        if self.permit.take().is_some() {
            host.active.set(host.active.get().saturating_sub(1));
            stats.gauge_dec(stat::UPSTREAM_RQ_ACTIVE);
        }
        if host.is_timed() {
            self.time(&host, self.info.response_began.is_some(), now);
        }
        if self.counts_grpc {
            self.count_grpc(&host);
        }
        let status = self.upstream_status.take().unwrap_or(self.info.status);
        if status > 0 && !self.info.is_health_check {
            let began = self.info.request_sent.unwrap_or(self.info.started);
            let answer = Answer { status, time: now.millis_since(began) };
            if self.answer_counts == AnswerCounts::ByStatus {
                sets::count_upstream_response(stats, status, self.internal);
                self.count_beside_status((&cluster, stats), &host, worker, answer);
            } else {
                self.count_otherwise((&cluster, stats), &host, worker, answer);
            }
        }
        let Some(upstream) = self.upstream.take() else { return };
        let reusable = self.response_done
            && !self.tunnel
            && self.answered
            && self.response_facts.persistent
            && self.info.request_sent.is_some()
            && !self.upload_broken
            && upstream.input.is_empty();
        if reusable {
            cluster.put_back(upstream, now);
        } else {
            if self.response_facts.closes && !self.tunnel {
                stats.inc(stat::UPSTREAM_CX_CLOSE_NOTIFY);
            }
            if self.response_done && self.info.request_sent.is_some() && !self.tunnel {
                upstream.end_request();
            }
            drop(upstream);
            cluster.gone();
        }
    }
}
