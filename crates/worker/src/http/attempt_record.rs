//! What is known of one try of a request: for the router's own log (Envoy's `upstream_log`), which has a record of every
//! try, and for clusters that measure tries (`track_cluster_stats`).
//!
//! ```text
//! host ──> connection ──TryReady──> … every interval ──TryPeriodic──> … over ──TryEnd, histograms
//!   └──> no connection ──TryEnd
//! ```
//!
//! Made where somebody wants it; other requests have none. A record tells the upstream's side: what was received came
//! from there. What filters and the connection manager noted of the request is not in it, as in Envoy.

use std::time::Duration;

use postrider_filter_api::{Flags, Logged, Moment, StreamInfo};
use postrider_http::{Fields, HeaderId, RequestHead, ResponseHead, Scheme};
use postrider_telemetry::stats::sets::{cluster_sizes as sizes, cluster_timeout_budget as budget};

use super::Connection;
use super::exchange::Exchange;
use crate::chain::Http;
use crate::format::{Context, OfUpstream};
use crate::worker::Worker;

/// One try, from when its host is known.
pub(super) struct AttemptRecord {
    began: Moment,
    /// It got a connection.
    connected: bool,
    /// The head that came, before the router and filters of the client's side changed it.
    answer: Option<Box<ResponseHead>>,
    answer_began: Option<Moment>,
    /// Bytes of bodies, to the upstream and from there.
    sent: u64,
    received: u64,
    flags: Flags,
    /// When the next record of a try that goes on is due.
    pub(super) next: Option<Moment>,
}

impl AttemptRecord {
    /// So many bytes of the request's body leave with this try.
    pub(super) fn add_sent(&mut self, bytes: usize) {
        self.sent += bytes as u64;
    }
}

impl Exchange {
    /// A try begins; its record does, too, where there is a use for one.
    #[cold]
    pub(super) fn begin_record(&mut self, worker: &Worker, http: &Http) {
        let Some(attempts) = &mut self.attempts else { return };
        let measured = self.cluster.as_ref().is_some_and(|cluster| cluster.is_measured);
        attempts.record = (http.logs_tries || measured).then(|| {
            let began = worker.clock.now();
            let every = http.model.router.upstream_log_moments.every.filter(|_| http.logs_tries);
            Box::new(AttemptRecord {
                began,
                connected: false,
                answer: None,
                answer_began: None,
                sent: 0,
                received: 0,
                flags: Flags::default(),
                next: every.map(|every| began + every),
            })
        });
        if self.trace.is_some() {
            self.begin_try_span(worker, http);
        }
    }

    /// An answer to the try under way came.
    pub(super) fn try_is_answered(&self) -> bool {
        let record = self.attempts.as_ref().and_then(|attempts| attempts.record.as_ref());
        record.is_some_and(|record| record.answer.is_some())
    }

    fn record_mut(&mut self) -> Option<&mut AttemptRecord> {
        self.attempts.as_mut()?.record.as_deref_mut()
    }

    /// The try has its connection.
    #[cold]
    pub(super) fn record_connection(&mut self, connection: &Connection, http: &Http) {
        let Some(record) = self.record_mut() else { return };
        record.connected = true;
        if http.logs_tries && http.model.router.upstream_log_moments.connected {
            self.log_try(Logged::TryReady, connection, http);
        }
    }

    /// The head of its answer came.
    #[cold]
    pub(super) fn record_answer(&mut self, worker: &Worker) {
        let now = worker.clock.now();
        let Exchange { attempts, response, .. } = self;
        if let Some(record) = attempts.as_mut().and_then(|attempts| attempts.record.as_mut()) {
            record.answer = Some(Box::new(response.clone()));
            record.answer_began = Some(now);
        }
    }

    /// So many bytes of the request's body leave with this try.
    #[cold]
    pub(super) fn record_sent(&mut self, bytes: usize) {
        if let Some(record) = self.record_mut() {
            record.add_sent(bytes);
        }
    }

    /// So many bytes of an answer's body came.
    #[cold]
    pub(super) fn record_received(&mut self, bytes: usize) {
        if let Some(record) = self.record_mut() {
            record.received += bytes as u64;
        }
    }

    /// What went wrong with the try.
    #[cold]
    pub(super) fn record_flags(&mut self, flags: Flags) {
        if let Some(record) = self.record_mut() {
            record.flags.insert(flags);
        }
    }

    /// There was no try: its host may not have connections.
    #[cold]
    pub(super) fn forget_record(&mut self) {
        if let Some(attempts) = &mut self.attempts {
            attempts.record = None;
        }
    }

    /// A record of a try that goes on, if it is time for one.
    #[cold]
    pub(super) fn record_progress(&mut self, connection: &Connection, http: &Http) {
        let now = connection.worker.clock.now();
        let every = http.model.router.upstream_log_moments.every;
        let Some((record, every)) = self.record_mut().zip(every) else { return };
        if record.next.is_some_and(|next| now >= next) {
            self.log_try(Logged::TryPeriodic, connection, http);
            // From when it was written: one that takes longer than the interval leaves time for the try all the same.
            let next = connection.worker.clock.exact() + every;
            if let Some(record) = self.record_mut() {
                record.next = Some(next);
            }
        }
    }

    /// The try is over, however.
    #[cold]
    #[inline(never)]
    pub(super) fn end_record(&mut self, connection: &Connection, http: &Http) {
        if self.record_mut().is_none() {
            return;
        }
        if http.meters {
            self.meter_upstream();
        }
        self.measure_try(&connection.worker);
        if http.logs_tries {
            self.log_try(Logged::TryEnd, connection, http);
        }
        if self.trace.is_some() {
            self.end_try_span(connection, http);
        }
        self.forget_record();
    }

    /// What clusters measure of tries, where they do.
    fn measure_try(&self, worker: &Worker) {
        let (Some(attempts), Some(cluster)) = (&self.attempts, &self.cluster) else { return };
        let Some(record) = &attempts.record else { return };
        if let Some(stats) = cluster.budget_stats(worker) {
            let now = worker.clock.now();
            let late = self.info.flags.contains(Flags::UPSTREAM_REQUEST_TIMEOUT);
            // As in Envoy, a try that the request's own timeout ends says nothing of those of tries.
            if !late || !record.flags.is_empty() {
                stats.record(budget::PER_TRY_PERCENT_USED, used(record.began, now, attempts.per_try));
            }
            // The last try is that of the request, unless the client did not want to wait for it.
            if let Some(received) = self.info.request_received.filter(|_| self.response_done || late) {
                stats.record(budget::PERCENT_USED, used(received, now, self.route_timeout));
            }
        }
        if let Some(stats) = cluster.size_stats(worker) {
            let head = size_of_request(&self.request);
            stats.record(sizes::RQ_HEADERS, head.bytes);
            stats.record(sizes::RQ_HEADERS_COUNT, head.fields);
            stats.record(sizes::RQ_BODY, record.sent);
            if let Some(answer) = &record.answer {
                let head = size_of_response(answer);
                stats.record(sizes::RS_HEADERS, head.bytes);
                stats.record(sizes::RS_HEADERS_COUNT, head.fields);
                stats.record(sizes::RS_BODY, record.received);
            }
        }
    }

    fn log_try(&self, logged: Logged, connection: &Connection, http: &Http) {
        if !http.try_logs.is_empty() {
            self.with_try(logged, connection, |context| http.try_logs.write(context));
        }
    }

    /// What formats can say of the try under way; `None` where nothing is known of it.
    pub(super) fn with_try<T>(
        &self,
        logged: Logged,
        connection: &Connection,
        act: impl FnOnce(&Context<'_>) -> T,
    ) -> Option<T> {
        let record = self.attempts.as_ref().and_then(|attempts| attempts.record.as_deref())?;
        let clock = &connection.worker.clock;
        let now = clock.now();
        let mut info = self.info_of_try(record, connection);
        info.ended = Some(now);
        info.logged = logged;
        let (no_answer, no_trailers) = (ResponseHead::new(), Fields::new());
        Some(act(&Context {
            request: &self.request,
            response: record.answer.as_deref().unwrap_or(&no_answer),
            trailers: if record.answer.is_some() { &self.response_trailers } else { &no_trailers },
            info: &info,
            route: self.route_plan().map(|route| &route.facts),
            weighted: self.weighted,
            reply_body: &[],
            http: true,
            now: clock.wall(now),
            upstream: OfUpstream { cluster: self.cluster.as_deref(), tried: &[], tried_on: &[] },
        }))
    }

    fn info_of_try(&self, record: &AttemptRecord, connection: &Connection) -> StreamInfo {
        let whole = &self.info;
        let mut info = StreamInfo::new(record.began, connection.worker.clock.wall(record.began));
        info.connection_id = whole.connection_id;
        info.stream_id = whole.stream_id;
        info.downstream_local = whole.downstream_local;
        info.downstream_connection_remote = whole.downstream_connection_remote;
        info.downstream_direct_remote = whole.downstream_direct_remote;
        info.downstream_remote = whole.downstream_remote;
        info.tls.clone_from(&whole.tls);
        info.filter_chain.clone_from(&whole.filter_chain);
        info.surroundings.clone_from(&whole.surroundings);
        info.route_name.clone_from(&whole.route_name);
        info.virtual_host.clone_from(&whole.virtual_host);
        info.is_health_check = whole.is_health_check;
        info.upstream_cluster.clone_from(&whole.upstream_cluster);
        info.upstream_attempts = whole.upstream_attempts;
        info.upstream_remote = self.host.as_ref().map(|host| host.endpoint.address.to_string().into());
        info.upstream_protocol = "";
        if record.connected {
            info.upstream_local = whole.upstream_local;
            info.upstream_remote.clone_from(&whole.upstream_remote);
            info.upstream_connection_id = whole.upstream_connection_id;
            info.upstream_protocol = whole.upstream_protocol;
            info.upstream_tls.clone_from(&whole.upstream_tls);
            info.upstream_connect = whole.upstream_connect;
            info.request_send_began = whole.request_send_began;
            info.request_sent = whole.request_sent;
        } else {
            info.upstream_failure.clone_from(&whole.upstream_failure);
        }
        info.request_head_bytes = size_of_request(&self.request).bytes;
        if let Some(answer) = &record.answer {
            info.response_head_bytes = size_of_response(answer).bytes;
            info.status = answer.status();
        }
        info.upstream_wait = whole.upstream_wait;
        info.response_began = record.answer_began;
        info.response_received = whole.response_received;
        info.meters.clone_from(&whole.meters);
        info.bytes_sent = record.sent;
        info.bytes_received = record.received;
        info.flags = record.flags;
        info
    }
}

/// How many percent of `limit` went by; of no limit, nothing does.
fn used(since: Moment, now: Moment, limit: Option<Duration>) -> u64 {
    let passed = u64::try_from(now.saturating_duration_since(since).as_millis()).unwrap_or(u64::MAX);
    let limit = limit.map_or(0, |limit| u64::try_from(limit.as_millis()).unwrap_or(u64::MAX));
    passed.saturating_mul(100).checked_div(limit).unwrap_or(0)
}

/// How much a head says, however it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HeadSize {
    /// Of names and values.
    pub(crate) bytes: u64,
    fields: u64,
}

/// With the pseudo-header fields that HTTP/2 would have (RFC 9113 section 8.3.1), which is what Envoy counts.
pub(crate) fn size_of_request(head: &RequestHead) -> HeadSize {
    let scheme = head.scheme().map_or("http", Scheme::as_str).as_bytes();
    let pseudo: [(&str, &[u8]); 4] = [
        (":method", head.method_bytes()),
        (":path", head.path()),
        (":authority", head.authority()),
        (":scheme", scheme),
    ];
    let said = pseudo.into_iter().filter(|(_, value)| !value.is_empty());
    let size = said.fold(HeadSize { bytes: 0, fields: 0 }, |size, (name, value)| size.with(name.len() + value.len()));
    size.with_fields(&head.fields)
}

/// The same (RFC 9113 section 8.3.2).
pub(crate) fn size_of_response(head: &ResponseHead) -> HeadSize {
    HeadSize { bytes: 0, fields: 0 }.with(":status".len() + 3).with_fields(&head.fields)
}

impl HeadSize {
    fn with(self, bytes: usize) -> HeadSize {
        HeadSize { bytes: self.bytes + bytes as u64, fields: self.fields + 1 }
    }

    fn with_fields(self, fields: &Fields) -> HeadSize {
        // The authority stands for `host`.
        let lines = fields.iter().filter(|line| line.id != HeaderId::Host);
        lines.fold(self, |size, line| size.with(line.name.len() + line.value.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_no_limit_nothing_is_used() {
        let began = Moment::default();
        let after = |millis| began + Duration::from_millis(millis);
        assert_eq!(used(began, after(500), None), 0);
        assert_eq!(used(began, after(500), Some(Duration::from_secs(2))), 25);
        assert_eq!(used(began, after(999), Some(Duration::from_secs(1))), 99);
        assert_eq!(used(began, after(1050), Some(Duration::from_secs(1))), 105);
    }

    #[test]
    fn heads_are_as_large_as_what_they_say() {
        let mut request = RequestHead::new();
        request.set_method(b"GET").unwrap();
        request.set_path(b"/a").unwrap();
        request.set_authority(b"test").unwrap();
        request.fields.append_name(b"x-a", b"12").unwrap();
        // `:method`, `:path`, `:authority`, `:scheme` (`http`) and `x-a`.
        assert_eq!(size_of_request(&request), HeadSize { bytes: 10 + 7 + 14 + 11 + 5, fields: 5 });
        let mut response = ResponseHead::new();
        response.reply(200);
        response.fields.append_name(b"x-b", b"answer").unwrap();
        response.fields.append_name(b"content-length", b"5").unwrap();
        assert_eq!(size_of_response(&response), HeadSize { bytes: 34, fields: 3 });
    }
}
