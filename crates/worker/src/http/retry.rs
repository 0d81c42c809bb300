//! Trying a request again: what a try leaves behind is cleared away, the wait, another host, and the body once more.
//!
//! ```text
//! try ──> no answer, or one that is worth another try ──> End::Again ──> wait ──> host ──> try …
//!   └───> an answer to pass on: from here on there is no other
//! ```
//!
//! All of it is for requests with [`Attempts`]; others pay one look whether there are any.

use std::rc::Rc;
use std::time::Duration;

use postrider_filter_api::{Body, Flags, LocalReply, Moment};
use postrider_h1::{write_chunk, write_last_chunk};
use postrider_http::{BodyFraming, Decimal, HeadLimits, HeaderId, ResponseFacts, grpc};
use postrider_model::{Action, Forward, HostRewrite};
use postrider_telemetry::stats::sets::{self, cluster as stat};
use postrider_upstream::outlier::Outcome;

use super::Connection;
use super::attempts::{Attempts, LATE_REPLY, OWN_FIELDS, Reset, Verdict};
use super::choice::choice;
use super::ending::End;
use super::exchange::Exchange;
use super::next_cluster::Next;
use super::outbox::Outbox;
use super::transfer::Transfer;
use crate::chain::Http;
use crate::cluster::{Cluster, Host};
use crate::plan::RoutePlan;
use crate::worker::Worker;

impl Exchange {
    /// Reads what the route and the request say about tries.
    #[cold]
    pub(super) fn prepare_attempts(
        &mut self,
        connection: &Connection,
        http: &Http,
        forward: &Forward,
        plan: &RoutePlan,
    ) {
        let said = plan.attempts.clone();
        let limit = said.as_ref().and_then(|said| said.model.body_limit);
        let limit = limit.unwrap_or(connection.chain.buffer_limit as u64);
        let own = self.cluster.as_ref().and_then(|cluster| cluster.plan.retry.clone());
        let mut attempts = Box::new(Attempts::for_cluster(said, own, &self.request, limit));
        if let Some(cluster) = &self.cluster {
            attempts.meet(cluster, &connection.worker);
        }
        for id in OWN_FIELDS {
            self.request.fields.remove(id);
        }
        attempts.settle_timeouts(attempts.timeout.unwrap_or(forward.timeout));
        attempts.may_redirect = forward.redirects.is_some() && !self.facts.upgrade;
        let cluster = self.cluster.clone();
        let own = cluster.as_ref().map_or(&[][..], |cluster| &cluster.plan.model.upstream.mirrors);
        let mirrors = if own.is_empty() { &forward.mirrors } else { own };
        if !mirrors.is_empty() {
            self.tell_mirrors(&attempts, http);
            let timeout = attempts.timeout.unwrap_or(forward.timeout).filter(|timeout| !timeout.is_zero());
            attempts.mirrors = self.start_mirrors(connection, mirrors, timeout);
        }
        attempts.upside = self.find_upside(connection, http);
        if attempts.upside.is_some() && self.request_pass.open {
            self.doubt_length();
        }
        if (attempts.reads_body() || attempts.upside.is_some())
            && self.facts.framing.has_body()
            && !matches!(self.upload, Transfer::Filtered { .. })
        {
            // Read piece by piece, so that the pieces can be kept.
            self.upload = self.filtered_upload(http);
        }
        self.attempts = Some(attempts);
        self.begin_record(&connection.worker, http);
        self.tell_upstream(connection, http, forward);
    }

    /// The same for a request that nobody is asked, for what its answer says and where it is counted.
    #[cold]
    pub(super) fn prepare_no_attempt(&mut self, worker: &Worker) {
        let plan = self.route_plan().and_then(|plan| plan.attempts.clone());
        let Some(cluster) = self.cluster.as_ref().filter(|_| plan.is_some() || self.request.fields.asks_for_attempts())
        else {
            return;
        };
        let mut attempts = Box::new(Attempts::new(plan, &self.request, 0));
        attempts.meet(cluster, worker);
        self.attempts = Some(attempts);
    }

    /// Filters of the upstream side get no length that only other filters' word stands for.
    fn doubt_length(&mut self) {
        let Some(filters) = self.filters.as_ref().filter(|filters| filters.hooks.declares_length) else { return };
        let is_word = self.request_pass.whole(super::passage::Side::Request, filters, false).is_none();
        if is_word && self.request_framing.length().is_some() {
            self.request_framing = BodyFraming::Chunked;
            self.upload.leave_as(BodyFraming::Chunked);
        }
    }

    /// Copies are of the first try, and have the request's whole time.
    fn tell_mirrors(&mut self, attempts: &Attempts, http: &Http) {
        let fields = &mut self.request.fields;
        if attempts.plan.as_ref().is_some_and(|plan| plan.model.count_in_request) {
            let _ = fields.set(HeaderId::XEnvoyAttemptCount, b"1");
        }
        if let Some(own) = attempts.timeout.filter(|_| !http.model.router.suppress_x_headers) {
            fields.remove(HeaderId::XEnvoyExpectedRqTimeoutMs);
            if let Some(own) = own {
                let millis = u64::try_from(own.as_millis()).unwrap_or(u64::MAX);
                let _ = fields.set(HeaderId::XEnvoyExpectedRqTimeoutMs, Decimal::new(millis).as_bytes());
            }
        }
    }

    /// What each try tells the upstream about itself.
    fn tell_upstream(&mut self, connection: &Connection, http: &Http, forward: &Forward) {
        let Some(attempts) = &self.attempts else { return };
        let fields = &mut self.request.fields;
        let model = attempts.plan.as_ref().map(|plan| &plan.model);
        let count = self.info.upstream_attempts;
        if model.is_some_and(|model| model.count_in_request) {
            let _ = fields.set(HeaderId::XEnvoyAttemptCount, Decimal::new(u64::from(count)).as_bytes());
        }
        if model.is_some_and(|model| model.tell_timeout) && count > 1 {
            let text: &[u8] = if attempts.timed_out { b"true" } else { b"false" };
            let _ = fields.set(HeaderId::XEnvoyIsTimeoutRetry, text);
        }
        // The first try is told when it is known how long the call may take.
        let of_call = forward.grpc_timeout.is_some() && forward.stream_limit.is_none() && count > 1;
        let of_call = of_call && grpc::has_content_type(fields);
        if http.model.router.suppress_x_headers && !of_call {
            return;
        }
        let whole = if of_call { self.route_timeout } else { attempts.timeout.unwrap_or(forward.timeout) };
        let whole = whole.filter(|whole| !whole.is_zero());
        let passed = self
            .info
            .request_received
            .filter(|_| count > 1)
            .map_or(Duration::ZERO, |received| connection.worker.clock.now().saturating_duration_since(received));
        // Out of time is not without limit.
        let left = whole.map(|whole| whole.saturating_sub(passed).max(Duration::from_millis(1)));
        let expected = attempts.per_try.into_iter().chain(left).min();
        if let Some(expected) = expected.filter(|_| of_call) {
            let mut value = Vec::new();
            grpc::write_timeout(expected, &mut value);
            let _ = fields.set(HeaderId::GrpcTimeout, &value);
        }
        if http.model.router.suppress_x_headers {
            return;
        }
        fields.remove(HeaderId::XEnvoyExpectedRqTimeoutMs);
        if let Some(expected) = expected {
            let millis = u64::try_from(expected.as_millis()).unwrap_or(u64::MAX);
            let _ = fields.set(HeaderId::XEnvoyExpectedRqTimeoutMs, Decimal::new(millis).as_bytes());
        }
    }

    /// A try has its connection; `true` when filters keep its request for now.
    ///
    /// # Errors
    /// A filter answers.
    #[cold]
    pub(super) fn begin_attempt(&mut self, connection: &Connection, http: &Http) -> Result<bool, End> {
        let now = connection.worker.clock.now();
        if let Some(attempts) = &mut self.attempts {
            attempts.began = Some(now);
            self.request_framing = *attempts.framing.get_or_insert(self.request_framing);
            self.upload.leave_as(self.request_framing);
        }
        self.record_connection(connection, http);
        self.rearm(connection, http);
        self.enter_upside(connection, http)
    }

    /// Something of the request was sent or is about to be; what was sent on an earlier try follows once more.
    #[cold]
    pub(super) fn replay(&mut self) {
        let Some(attempts) = &mut self.attempts else { return };
        attempts.started = true;
        let passes_filters = attempts.upside.as_ref().is_some_and(|upside| upside.takes_body());
        if self.info.upstream_attempts < 2 || passes_filters {
            return;
        }
        let kept = attempts.kept().len();
        if let Some(record) = &mut attempts.record {
            record.add_sent(kept);
        }
        let out = &mut self.up.bytes;
        if self.request_framing != BodyFraming::Chunked {
            // What was sent once was within the length.
            let _ = self.upload.admit(kept);
            out.extend_from_slice(attempts.kept());
            return;
        }
        if !attempts.kept().is_empty() {
            write_chunk(attempts.kept(), out);
        }
        if self.upload.is_done() {
            write_last_chunk(&self.request_trailers, out);
        }
    }

    /// Moves what is here of a body that is kept to the outbox.
    #[cold]
    pub(super) fn take_kept_body(&mut self, connection: &mut Connection) -> Result<(), End> {
        let (input, buffers) = (&mut connection.input, &connection.worker.buffers);
        let mut piece = Body::default();
        let read = match self.upload.read(input, &mut piece, &mut self.request_trailers, buffers, false) {
            Ok(read) => read,
            Err(error) => return Err(self.malformed_request(connection, error)),
        };
        self.info.bytes_received += read.bytes as u64;
        self.keep_piece(piece.bytes(), &connection.worker);
        self.record_sent(piece.bytes().len());
        self.upload.write(piece.bytes(), &mut self.up);
        if read.ended {
            self.upload.finish(&mut self.request_trailers, &mut self.up);
            self.end_mirrors();
        }
        Ok(())
    }

    fn keep_piece(&mut self, piece: &[u8], worker: &Worker) {
        let (Some(attempts), Some(cluster)) = (&mut self.attempts, &self.cluster) else { return };
        let abandoned = usize::from(!attempts.keep(piece));
        let abandoned = abandoned + attempts.mirrors.iter().filter(|mirror| !mirror.push(piece)).count();
        if abandoned > 0 {
            cluster.stats(worker).add(stat::RETRY_OR_SHADOW_ABANDONED, abandoned as u64);
        }
    }

    /// The same for a piece that filters have let pass.
    #[cold]
    pub(super) fn keep_filtered_piece(&mut self, worker: &Worker) {
        let held = std::mem::take(&mut self.request_pass.held);
        self.keep_piece(held.bytes(), worker);
        self.request_pass.held = held;
    }

    /// `true` when there is another try instead of telling the client that there is no answer.
    #[cold]
    pub(super) fn again_after_reset(&mut self, reset: Reset, worker: &Worker) -> bool {
        let Some(attempts) = &self.attempts else { return false };
        let wanted = attempts.wants_after_reset(reset);
        self.record_flags(match reset {
            Reset::ConnectFailure => Flags::UPSTREAM_CONNECTION_FAILURE,
            Reset::ConnectionTermination => Flags::UPSTREAM_CONNECTION_TERMINATION,
            Reset::Stream | Reset::RefusedStream => Flags::UPSTREAM_REMOTE_RESET,
            Reset::ProtocolError => Flags::UPSTREAM_PROTOCOL_ERROR,
            // Which of its limits it was is known there.
            Reset::Timeout => Flags::default(),
        });
        let again = self.judge(wanted, worker);
        if again && let Some(attempts) = &mut self.attempts {
            attempts.timed_out = reset == Reset::Timeout;
        }
        again
    }

    /// `true` when there is another try instead of passing on the answer whose head came.
    #[cold]
    pub(super) fn again_after_head(&mut self, facts: ResponseFacts, worker: &Worker) -> bool {
        self.record_answer(worker);
        let Some(attempts) = &self.attempts else { return false };
        let wanted = attempts.wants_after(&self.response);
        let again = self.judge(wanted, worker);
        if again {
            if let Some(attempts) = &mut self.attempts {
                attempts.timed_out = false;
                attempts.heed(&self.response, worker.clock.wall_now());
            }
            if let Some(cluster) = &self.cluster {
                let stats = cluster.stats(worker);
                if self.spares_grpc() {
                    stats.inc(stat::RETRY_UPSTREAM_RQ_COMPLETED);
                } else {
                    sets::count_retried_response(stats, self.response.status());
                }
            }
            self.response_facts = facts;
            self.drain_answer(worker);
        }
        again
    }

    fn judge(&mut self, wanted: bool, worker: &Worker) -> bool {
        let (Some(attempts), Some(cluster)) = (&mut self.attempts, &self.cluster) else { return false };
        let priority = match self.routes.as_ref().zip(self.route) {
            Some((routes, route)) => match &routes.plan.table.route(route).action {
                Action::Forward(forward) => forward.priority,
                Action::Redirect(_) | Action::Respond(_) => Default::default(),
            },
            None => Default::default(),
        };
        let verdict = attempts.judge(wanted, cluster, worker, priority);
        if let Some(groups) = &self.groups {
            groups.count_verdict(verdict);
        }
        match verdict {
            Verdict::Again => return true,
            Verdict::LimitExceeded => self.info.flags.insert(Flags::UPSTREAM_RETRY_LIMIT_EXCEEDED),
            Verdict::Overflow => self.info.flags.insert(Flags::UPSTREAM_OVERFLOW),
            Verdict::No | Verdict::Succeeded => {}
        }
        false
    }

    /// Reads what is here of an answer that nobody gets: when that is all of it, its connection can go on.
    pub(super) fn drain_answer(&mut self, worker: &Worker) {
        let Some(upstream) = &mut self.upstream else { return };
        let framing = self.response_facts.framing;
        self.download = Transfer::new(framing, framing, false, HeadLimits::default);
        let mut nowhere = Outbox::default();
        let input = &mut upstream.input;
        if !self.download.is_done()
            && self.download.swallow(input, &mut nowhere, &mut self.response_trailers, &worker.buffers).is_err()
        {
            self.response_facts.persistent = false;
        }
    }

    /// A try is over: waits, and readies the request and a host for the next one.
    pub(super) async fn try_again(
        &mut self,
        connection: &mut Connection,
        http: &Http,
        forward: &Forward,
    ) -> Result<(), End> {
        let Some(cluster) = self.cluster.clone() else { return Err(End::Gone) };
        let worker = connection.worker.clone();
        if cluster.breakers.counts_active(forward.priority) {
            // As in Envoy, it counts until the worker looked at what else came with its answer: of answers that come together,
            // none makes the share of the others smaller.
            tokio::task::yield_now().await;
        }
        self.end_record(connection, http);
        self.end_attempt(&worker, &cluster);
        let wait = self.attempts.as_mut().map(|attempts| attempts.back_off(&worker.random));
        self.rearm(connection, http);
        if let Some(wait) = wait {
            self.while_connecting(connection, http, Box::pin(tokio::time::sleep(wait.lasts))).await?;
        }
        self.info.upstream_attempts += 1;
        // The host that a filter wished for had its try.
        self.info.upstream_override = None;
        let next = self.next_cluster(connection, forward);
        let cluster = match &next {
            Next::Other(other) => other.clone(),
            Next::Same | Next::Nowhere => cluster,
        };
        let stats = cluster.stats(&worker).clone();
        if let Some(wait) = wait {
            wait.count(&stats);
            self.groups.iter().for_each(|groups| groups.count_retry());
        }
        let host = match next {
            Next::Same => self.host_for_retry(&cluster, &worker),
            Next::Other(_) => self.enter_cluster(&cluster, connection, http, forward),
            Next::Nowhere => {
                self.info.upstream_cluster = None;
                return Err(self.no_host(connection, &stats));
            }
        };
        let host = host.or_else(|| self.destination(&cluster, connection));
        let Some(host) = host else {
            return Err(match self.refusal() {
                Some(refusal) => self.not_taken(refusal, (&*connection, http), &stats),
                None => self.no_host(connection, &stats),
            });
        };
        self.host = Some(host.clone());
        let auto = cluster.plan.model.upstream.auto_host_sni || forward.host_rewrite == HostRewrite::Auto;
        if auto && !host.endpoint.hostname.is_empty() {
            // A name that was checked with the configuration.
            let _ = self.request.set_authority(host.endpoint.hostname.as_bytes());
        }
        self.begin_record(&worker, http);
        self.tell_upstream(connection, http, forward);
        self.rearm(connection, http);
        Ok(())
    }

    /// Gives back all that the last try held, which has failed.
    fn end_attempt(&mut self, worker: &Worker, cluster: &Cluster) {
        let now = worker.clock.now();
        self.meter_upstream();
        self.end_upside(&worker.clock);
        self.restore_request();
        if let Some(host) = self.host.take() {
            host.totals.errors.set(host.totals.errors.get() + 1);
            self.time(&host, self.response.status() > 0, now);
            if self.permit.take().is_some() {
                host.active.set(host.active.get().saturating_sub(1));
                cluster.stats(worker).gauge_dec(stat::UPSTREAM_RQ_ACTIVE);
            }
            if let Some(attempts) = &mut self.attempts {
                attempts.end();
                attempts.tried.push(host);
                let id = self.info.upstream_connection_id;
                if id != 0 && !attempts.tried_on.contains(&id) {
                    attempts.tried_on.push(id);
                }
                attempts.leave_out();
            }
        }
        self.give_back(cluster, now);
        self.pool_again();
        self.info.forget_upstream_times();
        self.info.upstream_local = None;
        self.info.upstream_remote = None;
        self.info.upstream_failure = None;
    }

    /// Keeps the connection of a try that nobody hears of, if it is in sync, and forgets the answer.
    pub(super) fn give_back(&mut self, cluster: &Cluster, now: postrider_filter_api::Moment) {
        if let Some(upstream) = self.upstream.take() {
            let answered = self.response.status() > 0 && self.download.is_done() && self.response_facts.persistent;
            if answered && self.info.request_sent.is_some() && !self.upload_broken && upstream.input.is_empty() {
                cluster.put_back(upstream, now);
            } else {
                drop(upstream);
                cluster.gone();
            }
        }
        self.forget_answer();
    }

    pub(super) fn forget_answer(&mut self) {
        self.up.reset();
        self.response.clear();
        self.response_scan.reset();
        self.response_trailers.clear();
        self.response_facts = ResponseFacts::default();
        self.download = Transfer::Done;
        self.upload_broken = false;
    }

    /// A host for another try, if possible one that the policy does not pass over.
    fn host_for_retry(&mut self, cluster: &Cluster, worker: &Worker) -> Option<Rc<Host>> {
        let draws = self.attempts.as_ref().map_or(1, |attempts| attempts.host_draws());
        let mut last = None;
        for draw in 0..draws {
            let host = self.pick_again(cluster, draw, worker)?;
            let avoided = self.attempts.as_ref().is_some_and(|attempts| attempts.avoids(&host));
            last = Some(host);
            if !avoided {
                break;
            }
        }
        last
    }

    fn pick_again(&mut self, cluster: &Cluster, attempt: u32, worker: &Worker) -> Option<Rc<Host>> {
        if cluster.hosts.named().is_none()
            && let Some(attempts) = &mut self.attempts
            && let Some(mut left_out) = attempts.take_left_out()
        {
            let choice = choice(self.chosen.as_deref(), attempt);
            let host = cluster.hosts.pick_without(&mut left_out, choice, &worker.random);
            attempts.put_left_out(left_out);
            return host;
        }
        self.pick(cluster, attempt, &worker.random)
    }

    /// How the try under way ends if it takes too long.
    #[cold]
    pub(super) fn overdue_attempt(&mut self, worker: &Worker) -> Option<End> {
        let now = worker.clock.now();
        let (due, idle_due) = self.attempt_deadlines();
        let passed = |due: Option<postrider_filter_api::Moment>| due.is_some_and(|due| now >= due);
        let whole = self.info.request_received.zip(self.route_timeout).map(|(from, limit)| from + limit);
        if passed(whole) {
            return None;
        }
        if passed(self.attempt_over()) {
            return Some(self.outlast(worker));
        }
        let (counter, details, flag) = if passed(due) {
            (stat::UPSTREAM_RQ_PER_TRY_TIMEOUT, "upstream_per_try_timeout", Flags::UPSTREAM_REQUEST_TIMEOUT)
        } else if passed(idle_due) {
            (stat::UPSTREAM_RQ_PER_TRY_IDLE_TIMEOUT, "upstream_per_try_idle_timeout", Flags::STREAM_IDLE_TIMEOUT)
        } else {
            return None;
        };
        if let Some(cluster) = &self.cluster {
            cluster.stats(worker).inc(counter);
        }
        self.record_flags(flag);
        self.count_late();
        if self.info.response_began.is_none() {
            self.report(Outcome::TimedOut, worker);
        }
        let began = self.answered || self.response_pass.open;
        if !began && self.again_after_reset(Reset::Timeout, worker) {
            return Some(End::Again);
        }
        let (status, text) = self.late_reply();
        self.count_unanswered(status);
        self.fail(Flags::UPSTREAM_REQUEST_TIMEOUT, details);
        if self.answered {
            return Some(End::Broken);
        }
        let body = text.as_bytes().into();
        Some(End::Reply(Box::new(LocalReply { status, body, ..LocalReply::default() })))
    }

    /// The try under way takes longer than its cluster lets a stream last.
    #[cold]
    fn outlast(&mut self, worker: &Worker) -> End {
        if let Some(cluster) = &self.cluster {
            cluster.stats(worker).inc(stat::UPSTREAM_RQ_MAX_DURATION_REACHED);
        }
        self.record_flags(Flags::UPSTREAM_MAX_STREAM_DURATION_REACHED);
        let began = self.answered || self.response_pass.open;
        if !began && self.again_after_reset(Reset::Stream, worker) {
            return End::Again;
        }
        // By no status, as below.
        self.count_unanswered(0);
        self.fail(Flags::UPSTREAM_MAX_STREAM_DURATION_REACHED, "upstream_max_stream_duration_reached");
        if self.answered {
            return End::Broken;
        }
        // As in Envoy, it says nothing about what the upstream answers.
        self.spare_upstream();
        let body = b"upstream max stream duration reached".as_slice().into();
        End::Reply(Box::new(LocalReply { status: 504, body, ..LocalReply::default() }))
    }

    /// When the try under way has lasted for too long, however much moves.
    #[cold]
    pub(super) fn attempt_over(&self) -> Option<Moment> {
        self.attempts.as_ref().filter(|_| !self.response_done)?.over()
    }

    /// What a client is told when there is no answer in time.
    #[cold]
    pub(super) fn late_reply(&self) -> (u16, &'static str) {
        self.attempts.as_ref().map_or(LATE_REPLY, |attempts| attempts.late_reply())
    }

    /// When the try under way has taken too long, and when it has been quiet for too long.
    #[cold]
    pub(super) fn attempt_deadlines(
        &self,
    ) -> (Option<postrider_filter_api::Moment>, Option<postrider_filter_api::Moment>) {
        let Some((attempts, began)) = self.attempts.as_ref().and_then(|a| Some((a, a.began?))) else {
            return (None, None);
        };
        // An answer that began may take as long as the route lets it.
        let since = self.info.request_received.filter(|_| self.info.response_began.is_none());
        let due = since.zip(attempts.per_try).map(|(received, limit)| received.max(began) + limit);
        let quiet = attempts.per_try_idle.filter(|_| !self.response_done);
        (due, quiet.map(|limit| self.last_activity.max(began) + limit))
    }

    /// Tells the client how many tries there were, where the route says so.
    #[cold]
    pub(super) fn tell_client(&mut self) {
        if let Some(line) = self.attempt_count_for_client() {
            let _ = self.response.fields.set(HeaderId::XEnvoyAttemptCount, line.as_bytes());
        }
    }

    /// The answer is the connection manager's, which knows nothing of tries.
    #[cold]
    pub(super) fn hide_attempts(&mut self) {
        if let Some(attempts) = &mut self.attempts {
            attempts.hidden = true;
        }
    }

    /// For an answer of our own.
    pub(super) fn attempt_count_for_client(&self) -> Option<Decimal> {
        let attempts = self.attempts.as_ref().filter(|attempts| !attempts.hidden)?;
        let plan = attempts.plan.as_ref()?;
        plan.model.count_in_response.then(|| Decimal::new(u64::from(self.info.upstream_attempts)))
    }

    /// What an I/O error on an upstream's stream means.
    pub(super) fn reset_of(&self, error: Option<&std::io::Error>) -> Reset {
        self.upstream.as_ref().map_or(Reset::ConnectionTermination, |upstream| Reset::of(upstream, error))
    }
}
