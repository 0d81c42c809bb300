//! The request as the upstream gets it, its body, and how long it may take.

use std::rc::Rc;
use std::time::Duration;

use postrider_filter_api::{BridgeFacts, Flags, LocalReply, Moment};
use postrider_h1::BodyError;
use postrider_http::grpc::Code;
use postrider_http::{
    BodyFraming, Connection as Persistence, HeaderId, RequestWrite, Scheme, check_authority, write_request,
};
use postrider_model::{Action, Format, Forward, HostRewrite, NameForm, PathRewrite, ScaledTimer, SchemeRule, Tlv};
use postrider_router::{replace_path, rewrite_host, rewrite_path};
use postrider_telemetry::stats::sets::{cluster as stat, group, http as http_stat, http2};
use postrider_upstream::outlier::Outcome;

use super::ending::End;
use super::exchange::Exchange;
use super::passage::{Hook, Side};
use super::transfer::Transfer;
use super::{Connection, edits};
use crate::buffers::{Buffers, Input};
use crate::chain::{Handler, Http, Routes};
use crate::cluster::Host;
use crate::format::Absent;
use crate::io::Io;
use crate::proxy_protocol;

/// Nobody looks whether a client that waits has gone before this has passed: most answers are there by then.
const CLIENT_WATCH_DELAY: Duration = Duration::from_millis(20);

/// What formats made of path and host, where they do.
struct Rewrites {
    path: Option<Vec<u8>>,
    host: Option<Vec<u8>>,
}

/// The answer to a CONNECT that ends here.
const CONNECTED: &[u8] = b"HTTP/1.1 200 OK\r\n\r\n";

impl Exchange {
    /// Rewrites and header edits of the route, and how the body will travel.
    pub(super) fn edit_request(
        &mut self,
        connection: &Connection,
        http: &Http,
        forward: &Forward,
        (routes, route): (&Routes, u32),
        host: &Rc<Host>,
    ) {
        let table = &routes.plan.table;
        let Some(plan) = routes.plan.routes.get(route as usize) else { return };
        // Before the edits, which may refer to it.
        if http.model.router.respects_expected_timeout {
            self.respect_expected_timeout();
        }
        if let Some(timeout) = &plan.timeout
            && !http.model.router.suppress_x_headers
        {
            // What a client says here about itself does not count.
            self.request.fields.remove(HeaderId::XEnvoyExpectedRqTimeoutMs);
            let _ = self.request.fields.append_line_if_absent(timeout);
        }
        let mut by_format = None;
        if plan.edits_requests {
            if plan.attempts.as_ref().is_some_and(|attempts| attempts.model.count_in_request) {
                let _ = self.request.fields.set(HeaderId::XEnvoyAttemptCount, b"1");
            }
            self.find_groups(connection);
            let now = connection.worker.clock.wall(self.info.started);
            for level in edits::request_levels(table, route, self.weighted) {
                edits::remove(level, &mut self.request.fields);
                let mut values = edits::evaluate(level, &self.format_context(&[], now));
                edits::add(level, &mut self.request.fields, &mut values);
            }
            by_format = self.rewrites_by_format(forward, now);
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        let weighted_host = edits::weighted_host(table, route, self.weighted);
        let auto = self.cluster.as_ref().is_some_and(|cluster| cluster.plan.model.upstream.auto_host_sni);
        let rewritten = match weighted_host {
            Some(literal) => {
                scratch.clear();
                scratch.extend_from_slice(literal.as_bytes());
                true
            }
            None => {
                let endpoint = Some(host.endpoint.hostname.as_str()).filter(|name| !name.is_empty());
                let auto = if auto { &postrider_model::HostRewrite::Auto } else { &forward.host_rewrite };
                match by_format.as_mut().and_then(|rewrites| rewrites.host.take()) {
                    Some(host) => {
                        scratch = host;
                        !scratch.is_empty() && check_authority(&scratch).is_ok()
                    }
                    None => rewrite_host(auto, &self.request, endpoint, &mut scratch),
                }
            }
        };
        if rewritten {
            // Envoy tells the host of a rewrite of the route, and not that of a weighted cluster's.
            if !http.model.router.suppress_x_headers && weighted_host.is_none() {
                let original = self.request.authority().to_vec();
                let _ = self.request.fields.set_name(b"x-envoy-original-host", &original);
            }
            if forward.append_x_forwarded_host && weighted_host.is_none() {
                edits::forward_host(&mut self.request);
            }
            // The grammar was checked; a length beyond the index leaves the authority as it is.
            let _ = self.request.set_authority(&scratch);
        }
        let rewritten = match by_format.and_then(|rewrites| rewrites.path) {
            Some(path) => replace_path(&path, self.request.path(), &mut scratch),
            None => rewrite_path(forward, table.route(route), self.request.path(), &mut scratch),
        };
        if rewritten {
            self.replace_path(http, &scratch);
        }
        self.scratch = scratch;
        if http.model.identity.scheme == SchemeRule::OfUpstream {
            let cluster = self.cluster.as_ref();
            let secure = cluster.is_some_and(|cluster| cluster.plan.transport_for(&host.endpoint).tls.is_some());
            self.request.set_scheme(if secure { Scheme::Https } else { Scheme::Http });
        }
        if self.facts.expects_continue && http.model.identity.proxy_100_continue {
            let _ = self.request.fields.set(HeaderId::Expect, b"100-continue");
        }
        let from = self.facts.framing;
        self.request_framing = from;
        let filtered = self.filters.is_some() && self.frame_filtered_request(http);
        if from.has_body() && !filtered {
            self.upload = Transfer::new(from, from, http.model.http1.enable_trailers, || http.rules.limits);
        }
        if self.trace.is_some() {
            self.propagate_trace(http);
        }
        let measured = self.cluster.as_ref().is_some_and(|cluster| cluster.looks_at_tries);
        if plan.remembers || http.logs_tries || measured || self.request.fields.asks_for_attempts() {
            self.prepare_attempts(connection, http, forward, plan);
        }
    }

    /// Gives the request another path, and says which one it had.
    pub(super) fn replace_path(&mut self, http: &Http, path: &[u8]) {
        if !http.model.router.suppress_x_headers {
            let original = self.request.path().to_vec();
            let _ = self.request.fields.set(HeaderId::XEnvoyOriginalPath, &original);
        }
        let _ = self.request.set_path(path);
    }

    /// The time that a proxy in front gives the request is as if the request itself asked for it.
    #[cold]
    fn respect_expected_timeout(&mut self) {
        let fields = &mut self.request.fields;
        let expected = fields.get(HeaderId::XEnvoyExpectedRqTimeoutMs).map(<[u8]>::to_vec);
        if let Some(millis) = expected.filter(|millis| millis.iter().all(u8::is_ascii_digit)) {
            // It was received, so it can be said.
            let _ = fields.set(HeaderId::XEnvoyUpstreamRqTimeoutMs, &millis);
        }
    }

    /// What formats say that path and host become.
    #[cold]
    fn rewrites_by_format(&self, forward: &Forward, now: std::time::SystemTime) -> Option<Box<Rewrites>> {
        let context = self.format_context(&[], now);
        let value = |format: &Format, absent| {
            let mut value = Vec::new();
            context.write(format, absent, &mut value);
            value
        };
        let path = match &forward.path_rewrite {
            PathRewrite::Format(format) => Some(value(format, Absent::Empty)),
            _ => None,
        };
        let host = match &forward.host_rewrite {
            HostRewrite::Format(format) => Some(value(format, Absent::Dash)),
            _ => None,
        };
        (path.is_some() || host.is_some()).then(|| Box::new(Rewrites { path, host }))
    }

    /// How a body leaves that filters have seen, or want to see; `false` when there is no such thing.
    fn frame_filtered_request(&mut self, http: &Http) -> bool {
        let Some(filters) = &self.filters else { return false };
        let (from, pass) = (self.facts.framing, &mut self.request_pass);
        let wanted = |hook| pass.is_wanted(Side::Request, filters, hook);
        let body_wanted = wanted(Hook::Body);
        let looked_at = body_wanted || from.may_have_trailers() && wanted(Hook::Trailers);
        if !(pass.has_begun() || from.has_body() && looked_at) {
            return false;
        }
        self.request_framing = match (from, pass.whole(Side::Request, filters, false)) {
            (BodyFraming::Chunked, Some(_)) if !pass.is_changed() => from,
            (BodyFraming::None, Some(0)) => from,
            (from, Some(length)) => from.with_length(length),
            (BodyFraming::Length(came) | BodyFraming::Counted(came), None) => {
                let length = pass.declared_length(Side::Request, filters, came, &self.request.fields);
                length.map_or(BodyFraming::Chunked, |length| from.with_length(length))
            }
            (_, None) => BodyFraming::Chunked,
        };
        pass.open = true;
        if !matches!(self.upload, Transfer::Filtered { .. }) {
            self.upload = self.filtered_upload(http);
        }
        self.upload.leave_as(self.request_framing);
        true
    }

    /// Puts the head where it will be sent from.
    ///
    /// # Errors
    /// The upstream cannot be asked this way.
    #[inline(always)]
    pub(super) fn write_request_head(&mut self) -> Result<(), End> {
        if self.upstream.as_ref().is_some_and(|upstream| upstream.io.takes_plain_bodies()) {
            return self.hand_request_head();
        }
        if self.terminates {
            self.agree_to_tunnel();
            self.introduce_tunnel();
            return Ok(());
        }
        let connection = if self.facts.upgrade { Persistence::Upgrade } else { Persistence::Implicit };
        let (form, absolute) = match &self.cluster {
            Some(cluster) if cluster.absolute_targets => (cluster.names, self.request.scheme()),
            Some(cluster) => (cluster.names, None),
            None => (NameForm::LowerCase, None),
        };
        let options = RequestWrite { framing: self.request_framing, connection, absolute, extra: &[] };
        let start = self.up.bytes.len();
        write_request(&self.request, &options, &mut self.up.bytes);
        if form == NameForm::ProperCase || self.names.is_some() {
            self.form_request_names(start, form);
        }
        if self.info.meters.is_some() {
            self.meter_request_head(start);
        }
        if self.attempts.is_some() {
            self.replay();
        }
        Ok(())
    }

    /// The same for one that takes heads as they are.
    fn hand_request_head(&mut self) -> Result<(), End> {
        let Some(upstream) = &mut self.upstream else { return Ok(()) };
        if self.request_framing == BodyFraming::Chunked {
            // The stream itself says where the body ends.
            self.request_framing = BodyFraming::UntilClose;
            self.upload.leave_plain();
        } else if self.request_framing.may_have_trailers() && !matches!(self.upload, Transfer::Filtered { .. }) {
            // They have a place there.
            self.upload.leave_plain();
        }
        let sent = match &mut upstream.io {
            Io::Http2(stream) => stream.send_request(&self.request, self.request_framing, self.facts.upgrade),
            Io::Bridged(bridged) => {
                let table = self.routes.as_ref().map_or("", |routes| routes.plan.table.source().name.as_str());
                let cluster = self.cluster.as_ref().map_or("", |cluster| &*cluster.name);
                let facts = BridgeFacts { table, cluster, tls: self.info.tls.is_some() };
                bridged.ask(&self.request, self.request_framing, &facts);
                Ok(())
            }
            Io::Plain(_) | Io::Tls(_) | Io::Filtered(_) => Ok(()),
        };
        if let Err(error) = sent {
            return Err(self.unsendable(&error));
        }
        if self.attempts.is_some() {
            self.replay();
        }
        Ok(())
    }

    #[cold]
    fn unsendable(&mut self, error: &std::io::Error) -> End {
        self.info.upstream_failure = Some(error.to_string().into());
        self.upstream_broke(Some(error))
    }

    /// A CONNECT or a POST ends here: now that there is a connection, the client gets the answer of a proxy (RFC 9110 section 9.3.6),
    /// and what follows it goes to the endpoint as it is.
    #[cold]
    fn agree_to_tunnel(&mut self) {
        if let Some(upstream) = &mut self.upstream {
            self.info.upstream_protocol = "";
            upstream.input = Input::holding(CONNECTED.to_vec());
        }
        if !self.facts.upgrade {
            // The tunnel is in the bodies of a request and its answer.
            self.request_framing = BodyFraming::UntilClose;
            self.upload.leave_plain();
        }
    }

    /// The endpoint hears of the client before the first byte of the tunnel, where the route wants that.
    #[cold]
    fn introduce_tunnel(&mut self) {
        let Some((routes, route)) = self.routes.clone().zip(self.route) else { return };
        let Action::Forward(forward) = &routes.plan.table.route(route).action else { return };
        let Some(header) = &forward.tunnel_header else { return };
        let ends = self.info.downstream_remote.zip(self.info.downstream_local);
        let known = self.info.connection.as_ref().and_then(|noted| noted.tlvs.as_deref()).unwrap_or_default();
        let passed: Vec<Tlv> = known.iter().filter(|tlv| header.passed.includes(tlv.kind)).cloned().collect();
        self.up.bytes.extend_from_slice(&proxy_protocol::write(header, ends, &passed, None).bytes);
    }

    /// Moves what is here of the request's body to the outbox.
    pub(super) fn take_request_body(&mut self, connection: &mut Connection) -> Result<(), End> {
        if self.attempts.is_some() && matches!(self.upload, Transfer::Filtered { .. }) {
            return self.take_kept_body(connection);
        }
        let (input, buffers) = (&mut connection.input, &connection.worker.buffers);
        match self.upload.step(input, &mut self.up, &mut self.request_trailers, buffers) {
            Ok(count) => {
                self.info.bytes_received += count;
                if self.attempts.is_some() {
                    self.record_sent(count as usize);
                }
                Ok(())
            }
            Err(error) => Err(self.malformed_request(connection, error)),
        }
    }

    /// The request's body as filters see it, or what is kept for another try. Clients of HTTP/2 may always have trailers, which an
    /// upstream of HTTP/1 gets where that is wanted.
    pub(super) fn filtered_upload(&self, http: &Http) -> Transfer {
        let in_chunks = http.model.http1.enable_trailers;
        let upload = Transfer::filtered(self.facts.framing, self.keeps_trailers(http), || http.rules.limits);
        if in_chunks { upload } else { upload.without_trailers_in_chunks() }
    }

    /// Puts what is here of the request's body in front of the filters.
    pub(super) fn read_request_body(&mut self, connection: &mut Connection, http: &Http) -> Result<(), End> {
        if !matches!(self.upload, Transfer::Filtered { .. } | Transfer::Done) {
            self.upload = self.filtered_upload(http);
        }
        let (input, buffers) = (&mut connection.input, &connection.worker.buffers);
        match self.upload.read(input, &mut self.request_pass.held, &mut self.request_trailers, buffers, false) {
            Ok(read) => {
                self.info.bytes_received += read.bytes as u64;
                self.request_pass.feed(read.ended, !self.request_trailers.is_empty());
                if read.ended && self.info.request_received.is_none() {
                    self.info.request_received = Some(connection.worker.clock.now());
                    self.request_complete(connection, http);
                }
                Ok(())
            }
            Err(error) => Err(self.malformed_request(connection, error)),
        }
    }

    #[cold]
    pub(super) fn malformed_request(&mut self, connection: &Connection, error: BodyError) -> End {
        let reject = error.reject();
        if let (Handler::Http(http), false) = (&connection.chain.handler, matches!(connection.io, Io::Http2(_))) {
            http.stats.inc(http_stat::DOWNSTREAM_CX_PROTOCOL_ERROR);
        }
        self.fail(Flags::DOWNSTREAM_PROTOCOL_ERROR, reject.details);
        self.keep_alive = false;
        if self.answered {
            return End::Broken;
        }
        self.spare_upstream();
        self.hide_attempts();
        let body = postrider_http::reason_phrase(reject.status).as_bytes().into();
        End::Reply(Box::new(LocalReply { status: reject.status, body, ..LocalReply::default() }))
    }

    /// Moves what is here of the response's body to the outbox.
    pub(super) fn take_response_body(&mut self, buffers: &Buffers) -> Result<(), End> {
        let Exchange { download, down, response_trailers, upstream, .. } = self;
        let Some(upstream) = upstream else { return Ok(()) };
        match download.step(&mut upstream.input, down, response_trailers, buffers) {
            Ok(count) => {
                self.info.bytes_sent += count;
                if self.attempts.is_some() {
                    self.record_received(count as usize);
                }
                Ok(())
            }
            Err(_) => Err(self.malformed_response()),
        }
    }

    /// Puts what is here of the response's body in front of the filters.
    pub(super) fn read_response_body(&mut self, buffers: &Buffers) -> Result<(), End> {
        let Exchange { download, response_pass, response_trailers, upstream, .. } = self;
        let Some(upstream) = upstream else { return Ok(()) };
        // What an upstream of HTTP/2 says behind its body is for filters, also where the client cannot be told it.
        let hears = matches!(upstream.io, Io::Http2(_));
        match download.read(&mut upstream.input, &mut response_pass.held, response_trailers, buffers, hears) {
            Ok(read) => {
                response_pass.feed(read.ended, !response_trailers.is_empty());
                if read.bytes > 0 && self.info.response_body_began.is_none() {
                    self.info.response_body_began = self.info.response_began.map(|began| began.max(self.last_received));
                }
                if self.attempts.is_some() {
                    self.record_received(read.bytes);
                }
                Ok(())
            }
            Err(_) => Err(self.malformed_response()),
        }
    }

    #[cold]
    pub(super) fn malformed_response(&mut self) -> End {
        self.report_failure();
        if let Some(upstream) = self.upstream.as_ref().filter(|upstream| !matches!(upstream.io, Io::Http2(_))) {
            upstream.stats().inc(stat::UPSTREAM_CX_PROTOCOL_ERROR);
        }
        self.record_flags(Flags::UPSTREAM_PROTOCOL_ERROR);
        self.fail(Flags::UPSTREAM_PROTOCOL_ERROR, "upstream_reset_after_response_started{protocol_error}");
        match self.answered {
            true => End::Broken,
            // The head is still with the filters: the client can be told.
            false => self.upstream_reset(502, "protocol error"),
        }
    }

    /// Sets the deadlines that hold from here on.
    pub(super) fn arm(&mut self, connection: &Connection, http: &Http, forward: &Forward) {
        self.route_timeout = forward.timeout.filter(|timeout| !timeout.is_zero());
        self.max_duration = http.model.timeouts.max_stream_duration;
        let limits_grpc = forward.limits_grpc();
        if limits_grpc {
            self.limit_stream(http, forward);
        }
        if let Some(own) = self.attempts.as_ref().and_then(|attempts| attempts.timeout) {
            self.route_timeout = own;
        }
        if limits_grpc {
            self.tell_grpc_timeout(http, forward);
        }
        if self.filters.is_some() {
            self.excuse_filters();
        }
        self.stream_idle = match forward.idle_timeout {
            Some(own) => own,
            None => http.model.timeouts.stream_idle,
        };
        self.stream_idle = connection.worker.overload.hurried(ScaledTimer::StreamIdle, self.stream_idle);
        connection.deadline.set(self.next_deadline(connection, http));
    }

    /// Something changed that deadlines depend on.
    #[inline(never)]
    pub(super) fn rearm(&self, connection: &Connection, http: &Http) {
        let due = self.next_deadline(connection, http);
        // Filters have no longer for it than the client.
        let of_request = http.model.timeouts.request.filter(|_| self.is_held()).map(|limit| self.info.started + limit);
        connection.deadline.set(due.into_iter().chain(of_request).min());
    }

    /// The request is complete: the route's timeout begins.
    pub(super) fn request_complete(&mut self, connection: &Connection, http: &Http) {
        if !self.tunnel {
            self.rearm(connection, http);
        }
    }

    #[inline(always)]
    fn next_deadline(&self, connection: &Connection, http: &Http) -> Option<Moment> {
        let limit = self.next_limit(connection, http);
        if self.watches_client {
            return limit.into_iter().chain(self.next_record).min();
        }
        let watch = self.info.started + CLIENT_WATCH_DELAY;
        Some(limit.map_or(watch, |limit| limit.min(watch)))
    }

    #[cold]
    fn next_attempt_limit(&self, first: Option<Moment>) -> Option<Moment> {
        let (due, quiet) = self.attempt_deadlines();
        let record = self.attempts.as_ref().and_then(|attempts| attempts.record.as_ref()?.next);
        first.into_iter().chain(due).chain(quiet).chain(self.attempt_over()).chain(record).min()
    }

    #[inline(always)]
    fn next_limit(&self, connection: &Connection, http: &Http) -> Option<Moment> {
        let timeouts = &http.model.timeouts;
        let mut first = None;
        let mut limit = |from: Moment, limit: Option<Duration>| {
            if let Some(limit) = limit {
                let due = from + limit;
                first = Some(first.map_or(due, |first: Moment| first.min(due)));
            }
        };
        match self.info.request_received {
            Some(complete) if !self.tunnel => limit(complete, self.route_timeout),
            Some(_) => {}
            None => limit(self.info.started, timeouts.request),
        }
        limit(self.info.started, self.max_duration);
        limit(self.last_activity, self.patience(connection, http));
        if self.attempts.is_some() {
            return self.next_attempt_limit(first);
        }
        first
    }

    /// How long nothing may move: another limit holds when only the client keeps the stream open.
    fn patience(&self, connection: &Connection, http: &Http) -> Option<Duration> {
        if self.waits_for_client() { self.flush_patience(connection, http) } else { self.stream_idle }
    }

    /// All that is left of an answer is the client's to take.
    #[inline(always)]
    pub(super) fn waits_for_client(&self) -> bool {
        self.answered && (self.response_done || self.is_all_here())
    }

    #[cold]
    fn is_all_here(&self) -> bool {
        self.download.is_done() && !self.response_pass.open && !self.tunnel && self.streaming.is_none()
    }

    /// How long the client may leave its answer lying.
    #[cold]
    fn flush_patience(&self, connection: &Connection, http: &Http) -> Option<Duration> {
        let of_connection = http.model.timeouts.stream_flush;
        let own = match (&self.routes, self.route) {
            (Some(routes), Some(route)) => match &routes.plan.table.route(route).action {
                Action::Forward(forward) => forward.flush_timeout.unwrap_or(of_connection),
                Action::Redirect(_) | Action::Respond(_) => of_connection,
            },
            _ => of_connection,
        };
        connection.worker.overload.hurried(ScaledTimer::StreamFlush, own)
    }

    /// How the stream ends if one of its deadlines has passed; sets the next one if not.
    pub(super) fn overdue(&mut self, connection: &Connection, http: &Http) -> Option<End> {
        if !connection.deadline.is_called() {
            return None;
        }
        if connection.deadline.takes_call() {
            return self.settle_account(connection);
        }
        self.watches_client = true;
        if self.next_record.is_some() {
            self.note_progress(connection, http);
        }
        if self.attempts.is_some() {
            self.record_progress(connection, http);
            if let Some(end) = self.overdue_attempt(&connection.worker) {
                return Some(end);
            }
        }
        let now = connection.worker.clock.now();
        let timeouts = &http.model.timeouts;
        let complete = self.info.request_received;
        let passed = |from: Option<Moment>, limit: Option<Duration>| {
            from.zip(limit).is_some_and(|(from, limit)| now >= from + limit)
        };
        if self.info.response_began.is_some() && self.download.is_heard() {
            // The upstream said everything in time. What is left is the client's to take.
            self.route_timeout = None;
        } else if passed(complete, self.route_timeout) && self.answered && !self.down.is_empty() {
            // Nothing is read of the upstream while the client has not taken what is here: it gets as long again.
            self.route_timeout = self.route_timeout.map(|timeout| timeout.saturating_mul(2));
        }
        // 408 blames the client, 504 the upstream or a filter.
        let held = self.is_held();
        let late = if complete.is_some() || held { 504 } else { 408 };
        let (status, text, details, flag) = if passed(complete, self.route_timeout) && !self.tunnel {
            if let Some(cluster) = &self.cluster {
                cluster.stats(&connection.worker).inc(stat::UPSTREAM_RQ_TIMEOUT);
            }
            if let Some(groups) = &self.groups {
                groups.count(group::UPSTREAM_RQ_TIMEOUT);
            }
            self.count_late();
            let (status, text) = self.late_reply();
            self.count_unanswered(status);
            if self.info.response_began.is_none() {
                self.report(Outcome::TimedOut, &connection.worker);
            }
            (status, text, "response_timeout", Flags::UPSTREAM_REQUEST_TIMEOUT)
        } else if (complete.is_none() || held) && passed(Some(self.info.started), timeouts.request) {
            http.stats.inc(http_stat::DOWNSTREAM_RQ_TIMEOUT);
            (late, "request timeout", "request_overall_timeout", Flags::default())
        } else if passed(Some(self.info.started), self.max_duration) {
            http.stats.inc(http_stat::DOWNSTREAM_RQ_MAX_DURATION_REACHED);
            (late, "downstream duration timeout", "max_duration_timeout", Flags::DURATION_TIMEOUT)
        } else if passed(Some(self.last_activity), self.patience(connection, http)) {
            match &connection.io {
                Io::Http2(_) if self.waits_for_client() => {
                    connection.worker.stats.block(&http2::SET, "").inc(http2::TX_FLUSH_TIMEOUT);
                }
                _ => http.stats.inc(http_stat::DOWNSTREAM_RQ_IDLE_TIMEOUT),
            }
            (late, "stream timeout", "stream_idle_timeout", Flags::STREAM_IDLE_TIMEOUT)
        } else {
            self.rearm(connection, http);
            return None;
        };
        self.fail(flag, details);
        if self.answered {
            return Some(End::Broken);
        }
        if flag != Flags::UPSTREAM_REQUEST_TIMEOUT {
            self.spare_upstream();
            self.hide_attempts();
        }
        let body = text.as_bytes().into();
        let grpc_status = (flag == Flags::DURATION_TIMEOUT).then_some(Code::DeadlineExceeded);
        Some(End::Reply(Box::new(LocalReply { status, grpc_status, body, ..LocalReply::default() })))
    }
}
