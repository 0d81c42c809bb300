//! How often a request is tried: what its route and its own fields say, and what became of the tries so far.
//!
//! Made for requests that ask for it only: see [`Fields::asks_for_attempts`](postrider_http::Fields::asks_for_attempts)
//! and [`AttemptsPlan`]. Nothing here waits or touches a connection.

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use postrider_filter_api::Moment;
use postrider_http::{BodyFraming, Fields, HeaderId, RequestHead, ResponseHead};
use postrider_model::{Avoided, BackOff, Priority, RateLimitedBackOff, ResetFormat, RetryOn, RetryPolicy};
use postrider_telemetry::Block;
use postrider_telemetry::stats::Counter;
use postrider_telemetry::stats::sets::cluster as stat;
use postrider_upstream::{Permit, Random};

use super::attempt_record::AttemptRecord;
use super::upside::Upside;
use crate::call::Feeder;
use crate::cluster::{Cluster, Host, Upstream};
use crate::io::Io;
use crate::plan::AttemptsPlan;
use crate::worker::Worker;

/// The fields by which a request says how it wants to be tried. They are for this proxy and go no further.
pub(super) const OWN_FIELDS: [HeaderId; 11] = [
    HeaderId::XEnvoyHedgeOnPerTryTimeout,
    HeaderId::XEnvoyMaxRetries,
    HeaderId::XEnvoyRetryOn,
    HeaderId::XEnvoyRetryGrpcOn,
    HeaderId::XEnvoyRetriableHeaderNames,
    HeaderId::XEnvoyRetriableStatusCodes,
    HeaderId::XEnvoyUpstreamAltStatName,
    HeaderId::XEnvoyUpstreamRqPerTryTimeoutMs,
    HeaderId::XEnvoyUpstreamRqTimeoutAltResponse,
    HeaderId::XEnvoyUpstreamRqTimeoutMs,
    HeaderId::XEnvoyUpstreamStreamDurationMs,
];

/// What a client is told when there is no answer in time.
pub(super) const LATE_REPLY: (u16, &str) = (504, "upstream request timeout");

/// Codes and names that a request may list in its own fields; more of them do not count.
const MAX_LISTED: usize = 32;

pub(crate) struct Attempts {
    pub(super) plan: Option<Arc<AttemptsPlan>>,
    /// Where the retry policy stands: that, or the cluster's.
    retries: Option<Arc<AttemptsPlan>>,
    on: RetryOn,
    remaining: u64,
    /// Of the request's own fields, beside those of the policy.
    status_codes: Vec<u16>,
    header_names: Vec<Vec<u8>>,
    /// A retry holds its part of the breaker until it is known what became of it.
    permit: Option<Permit>,
    back_off: BackOff,
    /// What the last answer wants to be waited.
    rate_limit: Option<Duration>,
    pub(crate) per_try: Option<Duration>,
    pub(super) per_try_idle: Option<Duration>,
    /// The request's own, in place of the route's; `Some(None)` is no limit.
    pub(super) timeout: Option<Option<Duration>>,
    /// How long a try may take once it has its connection: the request's word, or else the cluster's. Zero is no limit.
    max_duration: Option<Duration>,
    max_duration_of_cluster: Option<Duration>,
    /// Nothing is answered (204) where there is no answer in time.
    late_without_content: bool,
    /// Where the request is counted beside its cluster, and the name that it gave for that.
    pub(super) alternative: Option<Rc<Block>>,
    pub(super) alternative_name: Option<Vec<u8>>,
    /// When the try under way got its connection.
    pub(super) began: Option<Moment>,
    /// Something of the request was sent, on this try or on one before.
    pub(crate) started: bool,
    /// The try before took too long.
    pub(super) timed_out: bool,
    /// The client is not told how many there were.
    pub(super) hidden: bool,
    /// Every host that failed.
    pub(super) tried: Vec<Rc<Host>>,
    /// The weighted clusters that were tried, where another try goes to another one.
    pub(super) tried_clusters: Vec<usize>,
    /// Every connection that a try which failed was sent on.
    pub(super) tried_on: Vec<u64>,
    /// Of those, how many of the last ones count for `left_out`.
    counted: usize,
    /// Priorities that the next try passes over.
    left_out: Vec<u32>,
    /// How each try's request is framed.
    pub(super) framing: Option<BodyFraming>,
    /// What was sent of the body, for the next try.
    kept: Vec<u8>,
    limit: u64,
    /// What was sent is wanted for a redirect, too.
    pub(super) may_redirect: bool,
    /// Copies of the request that are under way.
    pub(super) mirrors: Vec<Feeder>,
    /// What each try passes on its way.
    pub(super) upside: Option<Box<Upside>>,
    /// What is known of the try under way, where somebody wants it.
    pub(super) record: Option<Box<AttemptRecord>>,
}

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reset {
    ConnectFailure,
    ConnectionTermination,
    Stream,
    RefusedStream,
    ProtocolError,
    /// The try took too long.
    Timeout,
}

impl Reset {
    /// What an I/O error of an upstream means.
    pub(crate) fn of(upstream: &Upstream, error: Option<&std::io::Error>) -> Reset {
        match of_stream(&upstream.io, error) {
            Some(error) if error.is_reset() && error.is_remote() => match error.reason() {
                Some(h2::Reason::REFUSED_STREAM) => Reset::RefusedStream,
                Some(h2::Reason::PROTOCOL_ERROR) => Reset::ProtocolError,
                _ => Reset::Stream,
            },
            // The upstream did not look at it (RFC 9113 section 6.8).
            Some(error) if error.is_go_away() && error.is_remote() => Reset::RefusedStream,
            Some(error) if error.is_library() => Reset::ProtocolError,
            _ if upstream.is_unsound() => Reset::ProtocolError,
            _ => Reset::ConnectionTermination,
        }
    }

    /// Counts a request that its upstream broke off, `begun` when a part of the answer had come.
    pub(crate) fn count(self, upstream: &Upstream, error: Option<&std::io::Error>, begun: bool) {
        match (self, &upstream.io) {
            (Reset::Stream, _) => upstream.stats().inc(stat::UPSTREAM_RQ_RX_RESET),
            (Reset::ConnectionTermination, Io::Http2(_)) => {
                upstream.stats().inc(stat::UPSTREAM_RQ_PENDING_FAILURE_EJECT);
            }
            // Also where the upstream says that of the request, as in Envoy.
            (Reset::ProtocolError, io @ Io::Http2(_)) => {
                if let Some(error) = of_stream(io, error).filter(|error| error.is_library()) {
                    upstream.gave_up(error, begun);
                }
                upstream.stats().inc(stat::UPSTREAM_RQ_TX_RESET);
            }
            _ => {}
        }
    }

    /// The connection ended, or takes no more requests: another one may take this.
    pub(super) fn is_of_connection(io: &Io, error: Option<&std::io::Error>) -> bool {
        of_stream(io, error).is_none_or(|error| !error.is_reset())
    }
}

/// What a stream of HTTP/2 ended with.
fn of_stream<'e>(io: &Io, error: Option<&'e std::io::Error>) -> Option<&'e h2::Error> {
    error.filter(|_| matches!(io, Io::Http2(_))).and_then(|error| error.get_ref()?.downcast_ref())
}

/// Whether there is another try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    No,
    /// No, and the last one was a retry.
    Succeeded,
    Again,
    LimitExceeded,
    Overflow,
}

/// What passes before another try.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wait {
    pub(crate) lasts: Duration,
    counts_as: Counter,
}

impl Wait {
    /// It is over, and the other try begins. As in Envoy, one that nobody waited for to the end is none.
    pub(crate) fn count(self, stats: &Block) {
        stats.inc(self.counts_as);
        stats.inc(stat::UPSTREAM_RQ_RETRY);
    }
}

/// Whether a request may say this in one of its own fields, where it is held to that.
#[cold]
pub(super) fn is_well_formed(name: &str, value: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(value) else { return false };
    match name {
        "x-envoy-retry-on" | "x-envoy-retry-grpc-on" => RetryOn::parse(text).1.is_empty(),
        _ => text.parse::<u64>().is_ok(),
    }
}

impl Attempts {
    /// `limit` is how many bytes of the body may be kept.
    pub(crate) fn new(plan: Option<Arc<AttemptsPlan>>, request: &RequestHead, limit: u64) -> Attempts {
        Attempts::for_cluster(plan, None, request, limit)
    }

    /// `own` is what the cluster says about retries. Limits of a try that it leaves out are the route's.
    pub(super) fn for_cluster(
        plan: Option<Arc<AttemptsPlan>>,
        own: Option<Arc<AttemptsPlan>>,
        request: &RequestHead,
        limit: u64,
    ) -> Attempts {
        let fields = &request.fields;
        let of_route = plan.as_ref().and_then(|plan| plan.model.retry.as_ref());
        let retries = own.or_else(|| plan.clone());
        let policy = retries.as_ref().and_then(|plan| plan.model.retry.as_ref());
        let limit_of_try =
            |limit: fn(&RetryPolicy) -> Option<Duration>| policy.and_then(limit).or(of_route.and_then(limit));
        let mut on = policy.map(|policy| policy.on).unwrap_or_default();
        for id in [HeaderId::XEnvoyRetryOn, HeaderId::XEnvoyRetryGrpcOn] {
            on.insert(RetryOn::parse(text(fields, id).unwrap_or_default()).0);
        }
        let barred = retries.as_ref().is_some_and(|plan| {
            !plan.request_headers.is_empty() && !plan.request_headers.iter().any(|test| test.holds(request))
        });
        if barred {
            on = RetryOn::default();
        }
        let most = u64::from(policy.map_or(1, |policy| policy.retries));
        let per_try = number(fields, HeaderId::XEnvoyUpstreamRqPerTryTimeoutMs).map(Duration::from_millis);
        let timeout = number(fields, HeaderId::XEnvoyUpstreamRqTimeoutMs);
        Attempts {
            on,
            remaining: number(fields, HeaderId::XEnvoyMaxRetries).unwrap_or(most),
            status_codes: listed(fields, HeaderId::XEnvoyRetriableStatusCodes)
                .filter_map(|code| code.parse().ok())
                .collect(),
            header_names: listed(fields, HeaderId::XEnvoyRetriableHeaderNames)
                .map(|name| name.to_ascii_lowercase().into_bytes())
                .collect(),
            permit: None,
            back_off: policy.map(|policy| policy.back_off).unwrap_or_default(),
            rate_limit: None,
            per_try: per_try.or(limit_of_try(|policy| policy.per_try_timeout)).filter(|limit| !limit.is_zero()),
            per_try_idle: limit_of_try(|policy| policy.per_try_idle_timeout),
            timeout: timeout.map(|millis| Some(Duration::from_millis(millis)).filter(|limit| !limit.is_zero())),
            max_duration: number(fields, HeaderId::XEnvoyUpstreamStreamDurationMs).map(Duration::from_millis),
            max_duration_of_cluster: None,
            late_without_content: fields.has(HeaderId::XEnvoyUpstreamRqTimeoutAltResponse),
            alternative: None,
            alternative_name: fields.get(HeaderId::XEnvoyUpstreamAltStatName).map(<[u8]>::to_vec),
            began: None,
            started: false,
            timed_out: false,
            hidden: false,
            tried: Vec::new(),
            tried_clusters: Vec::new(),
            tried_on: Vec::new(),
            counted: 0,
            left_out: Vec::new(),
            framing: None,
            kept: Vec::new(),
            limit,
            plan,
            retries,
            may_redirect: false,
            mirrors: Vec::new(),
            upside: None,
            record: None,
        }
    }

    /// Kept for the next try.
    pub(super) fn kept_bytes(&self) -> usize {
        self.kept.len()
    }

    /// There may be another try, so what is sent must be kept.
    pub(super) fn may_retry(&self) -> bool {
        !self.on.is_empty()
    }

    /// The body is looked at while it is sent.
    pub(super) fn reads_body(&self) -> bool {
        self.may_retry() || self.may_redirect || !self.mirrors.is_empty()
    }

    /// The answer comes by filters, piece by piece.
    pub(super) fn answer_is_fed(&self) -> bool {
        self.upside.as_ref().is_some_and(|upside| upside.takes_answer())
    }

    /// A limit of a try that the whole request cannot exceed anyway means nothing.
    pub(crate) fn settle_timeouts(&mut self, whole: Option<Duration>) {
        self.per_try = self.per_try.filter(|per_try| whole.is_none_or(|whole| *per_try < whole));
    }

    /// Takes over what the cluster of the next try says of tries.
    pub(super) fn meet(&mut self, cluster: &Cluster, worker: &Worker) {
        self.max_duration_of_cluster = cluster.plan.model.upstream.max_stream_duration;
        let name = self.alternative_name.as_deref();
        self.alternative = name.and_then(|name| cluster.alternative_stats(name, worker));
        // Of another cluster the priorities are others.
        self.left_out.clear();
        self.counted = 0;
    }

    /// When the try under way has lasted for too long.
    pub(super) fn over(&self) -> Option<Moment> {
        let limit = self.max_duration.or(self.max_duration_of_cluster).filter(|limit| !limit.is_zero());
        self.began.zip(limit).map(|(began, limit)| began + limit)
    }

    /// The status of a request that has no answer in time, and what it says.
    pub(super) fn late_reply(&self) -> (u16, &'static str) {
        if self.late_without_content { (204, "") } else { LATE_REPLY }
    }

    /// Whether an answer's head is worth another try.
    pub(crate) fn wants_after(&self, response: &ResponseHead) -> bool {
        // Another proxy limits the rate: trying again is what it asks not to be done.
        if response.fields.has(HeaderId::XEnvoyRateLimited) {
            return self.on.has(RetryOn::RATE_LIMITED);
        }
        let status = response.status();
        let policy = self.policy();
        let listed = || {
            self.status_codes.contains(&status) || policy.is_some_and(|policy| policy.status_codes.contains(&status))
        };
        let marked = || {
            let tests = self.retries.as_ref().map_or(&[][..], |plan| &plan.response_headers);
            tests.iter().any(|test| test.holds_for_answer(response))
                || self.header_names.iter().any(|name| response.fields.get_name(name).is_some())
        };
        let grpc = || {
            let code = text(&response.fields, HeaderId::GrpcStatus)?.parse().ok()?;
            RetryOn::of_grpc(code)
        };
        ((500..600).contains(&status) && self.on.has(RetryOn::SERVER_ERROR))
            || (matches!(status, 502..=504) && self.on.has(RetryOn::GATEWAY_ERROR))
            || (status == 409 && self.on.has(RetryOn::RETRIABLE_4XX))
            || (self.on.has(RetryOn::STATUS_CODES) && listed())
            || (self.on.has(RetryOn::HEADERS) && marked())
            || grpc().is_some_and(|condition| self.on.has(condition))
    }

    /// Whether it is worth another try that there is no answer.
    pub(crate) fn wants_after_reset(&self, reset: Reset) -> bool {
        let mut conditions = RetryOn::RESET;
        conditions.insert(RetryOn::SERVER_ERROR);
        conditions.insert(RetryOn::GATEWAY_ERROR);
        if !self.started {
            conditions.insert(RetryOn::RESET_BEFORE_REQUEST);
        }
        match reset {
            Reset::ConnectFailure => conditions.insert(RetryOn::CONNECT_FAILURE),
            Reset::RefusedStream => conditions.insert(RetryOn::REFUSED_STREAM),
            Reset::ConnectionTermination | Reset::Stream | Reset::ProtocolError | Reset::Timeout => {}
        }
        self.on.has(conditions)
    }

    /// Decides about another try if one is `wanted`, and counts what became of the last one.
    pub(crate) fn judge(&mut self, wanted: bool, cluster: &Cluster, worker: &Worker, priority: Priority) -> Verdict {
        let stats = cluster.stats(worker);
        let was_retry = self.permit.take().is_some();
        if !wanted {
            if !was_retry {
                return Verdict::No;
            }
            stats.inc(stat::UPSTREAM_RQ_RETRY_SUCCESS);
            return Verdict::Succeeded;
        }
        let Some(remaining) = self.remaining.checked_sub(1) else {
            stats.inc(stat::UPSTREAM_RQ_RETRY_LIMIT_EXCEEDED);
            return Verdict::LimitExceeded;
        };
        self.remaining = remaining;
        let now = worker.clock.now().since_start();
        self.permit = Permit::retry(&cluster.breakers, priority, worker.id, now);
        if self.permit.is_none() {
            stats.inc(stat::UPSTREAM_RQ_RETRY_OVERFLOW);
            return Verdict::Overflow;
        }
        if !cluster.hosts.lets_retry(&worker.random) {
            self.permit = None;
            return Verdict::No;
        }
        Verdict::Again
    }

    /// Looks in an answer for when to come again.
    pub(super) fn heed(&mut self, response: &ResponseHead, now: SystemTime) {
        let Some(limits) = self.policy().and_then(|policy| policy.rate_limited.as_ref()) else { return };
        self.rate_limit = rate_limit(limits, &response.fields, now);
    }

    /// What to wait for before the next try.
    pub(crate) fn back_off(&mut self, random: &Random) -> Wait {
        if let Some(least) = self.rate_limit.take() {
            return Wait {
                lasts: least + draw(least / 2, random),
                counts_as: stat::UPSTREAM_RQ_RETRY_BACKOFF_RATELIMITED,
            };
        }
        let most = self.back_off.base;
        self.back_off.base = most.saturating_mul(2).min(self.back_off.max).max(most);
        Wait { lasts: draw(most, random), counts_as: stat::UPSTREAM_RQ_RETRY_BACKOFF_EXPONENTIAL }
    }

    /// Keeps some of the body; `false` when that is too much, and there will be no other try.
    pub(super) fn keep(&mut self, piece: &[u8]) -> bool {
        if !self.may_retry() && !self.may_redirect {
            return true;
        }
        let fits = (self.kept.len() + piece.len()) as u64 <= self.limit;
        if fits {
            self.kept.extend_from_slice(piece);
        } else {
            self.on = RetryOn::default();
            self.may_redirect = false;
            self.kept = Vec::new();
            self.permit = None;
        }
        fits
    }

    pub(super) fn kept(&self) -> &[u8] {
        &self.kept
    }

    fn policy(&self) -> Option<&RetryPolicy> {
        self.retries.as_ref()?.model.retry.as_ref()
    }

    pub(super) fn avoids(&self, host: &Rc<Host>) -> bool {
        let is_tried = || self.tried.iter().any(|tried| Rc::ptr_eq(tried, host));
        let mut avoided = self.policy().into_iter().flat_map(|policy| &policy.avoids);
        avoided.any(|avoided| match avoided {
            Avoided::Tried => is_tried(),
            other => other.is_labelled(host.endpoint.metadata.as_deref()),
        })
    }

    /// How often a host is drawn at most for a retry.
    pub(super) fn host_draws(&self) -> u32 {
        let policy = self.policy().filter(|policy| !policy.avoids.is_empty());
        policy.map_or(1, |policy| policy.host_draws.saturating_add(1))
    }

    /// The next try is to pass over other priorities than the one before, if it is time for that.
    pub(super) fn leave_out(&mut self) {
        let Some(every) = self.policy().and_then(|policy| policy.avoids_priorities_after) else { return };
        self.counted += 1;
        if self.counted.is_multiple_of(every as usize) {
            let tried = self.tried.len().saturating_sub(self.counted);
            self.left_out = self.tried.iter().skip(tried).map(|host| host.endpoint.priority).collect();
        }
    }

    /// The priorities that the next try passes over, while nobody else has them.
    pub(super) fn take_left_out(&mut self) -> Option<Vec<u32>> {
        (!self.left_out.is_empty()).then(|| std::mem::take(&mut self.left_out))
    }

    /// Gives them back. None at all means that no other priority can take anything: they are counted anew.
    pub(super) fn put_left_out(&mut self, left_out: Vec<u32>) {
        if left_out.is_empty() {
            self.counted = 0;
        }
        self.left_out = left_out;
    }

    /// No try is under way any more.
    pub(super) fn end(&mut self) {
        self.began = None;
    }
}

/// Evenly drawn between nothing and `most`, in milliseconds as Envoy does.
pub(crate) fn draw(most: Duration, random: &Random) -> Duration {
    let millis = usize::try_from(most.as_millis()).unwrap_or(usize::MAX);
    Duration::from_millis(random.below(millis) as u64)
}

fn rate_limit(limits: &RateLimitedBackOff, fields: &Fields, now: SystemTime) -> Option<Duration> {
    let wait = |name: &str, format| {
        let said: u64 = std::str::from_utf8(fields.get_name(name.as_bytes())?).ok()?.trim().parse().ok()?;
        let seconds = match format {
            ResetFormat::Seconds => said,
            ResetFormat::Timestamp => said.checked_sub(now.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_secs())?,
        };
        Some(Duration::from_secs(seconds)).filter(|wait| *wait <= limits.max)
    };
    let found = limits.headers.iter().find_map(|header| wait(&header.name, header.format));
    found.filter(|wait| !wait.is_zero())
}

fn text(fields: &Fields, id: HeaderId) -> Option<&str> {
    std::str::from_utf8(fields.get(id)?).ok()
}

fn number(fields: &Fields, id: HeaderId) -> Option<u64> {
    text(fields, id)?.trim().parse().ok()
}

fn listed(fields: &Fields, id: HeaderId) -> impl Iterator<Item = &str> {
    let words = text(fields, id).unwrap_or_default().split(',');
    words.map(str::trim).filter(|word| !word.is_empty()).take(MAX_LISTED)
}

#[cfg(test)]
mod tests {
    use super::*;
    use postrider_model::ResetHeader;

    fn request(lines: &[(&str, &str)]) -> RequestHead {
        let mut head = RequestHead::new();
        for (name, value) in lines {
            head.fields.append_name(name.as_bytes(), value.as_bytes()).unwrap();
        }
        head
    }

    fn answer(status: u16, lines: &[(&str, &str)]) -> ResponseHead {
        let mut head = ResponseHead::new();
        head.reply(status);
        for (name, value) in lines {
            head.fields.append_name(name.as_bytes(), value.as_bytes()).unwrap();
        }
        head
    }

    fn asking(on: &str) -> Attempts {
        Attempts::new(None, &request(&[("x-envoy-retry-on", on)]), 100)
    }

    #[test]
    fn each_condition_takes_its_answers_and_no_others() {
        let wants = |on: &str, status, lines: &[(&str, &str)]| asking(on).wants_after(&answer(status, lines));
        assert!(wants("5xx", 500, &[]) && !wants("5xx", 499, &[]));
        assert!(wants("gateway-error", 502, &[]) && !wants("gateway-error", 500, &[]));
        assert!(wants("retriable-4xx", 409, &[]) && !wants("retriable-4xx", 404, &[]));
        assert!(!wants("retriable-status-codes", 404, &[]) && !wants("", 503, &[]));
        let limited = [("x-envoy-ratelimited", "true")];
        assert!(wants("envoy-ratelimited", 429, &limited) && !wants("5xx", 503, &limited));
        let unavailable = [("grpc-status", "14")];
        assert!(wants("unavailable", 200, &unavailable) && !wants("internal", 200, &unavailable));
    }

    #[test]
    fn a_request_lists_codes_and_headers_of_its_own() {
        let own = request(&[
            ("x-envoy-retry-on", "retriable-status-codes,retriable-headers"),
            ("x-envoy-retriable-status-codes", "404, 418"),
            ("x-envoy-retriable-header-names", "X-Again"),
        ]);
        let attempts = Attempts::new(None, &own, 0);
        assert!(attempts.wants_after(&answer(418, &[])) && !attempts.wants_after(&answer(400, &[])));
        assert!(attempts.wants_after(&answer(200, &[("x-again", "1")])));
    }

    #[test]
    fn resets_are_told_apart() {
        assert!(asking("connect-failure").wants_after_reset(Reset::ConnectFailure));
        assert!(!asking("connect-failure").wants_after_reset(Reset::Stream));
        assert!(asking("refused-stream").wants_after_reset(Reset::RefusedStream));
        assert!(asking("5xx").wants_after_reset(Reset::Timeout));
        let mut attempts = asking("reset-before-request");
        assert!(attempts.wants_after_reset(Reset::ConnectionTermination));
        attempts.started = true;
        assert!(!attempts.wants_after_reset(Reset::ConnectionTermination));
    }

    #[test]
    fn what_exceeds_the_limit_is_not_kept() {
        let mut attempts = asking("5xx");
        assert!(attempts.keep(&[b'x'; 100]) && attempts.kept().len() == 100);
        assert!(!attempts.keep(b"y") && attempts.kept().is_empty() && !attempts.may_retry());
    }

    #[test]
    fn an_answer_says_how_long_to_wait_at_least() {
        let header = |name: &str, format| ResetHeader { name: name.into(), format };
        let limits = RateLimitedBackOff {
            headers: vec![header("retry-after", ResetFormat::Seconds), header("reset", ResetFormat::Timestamp)],
            max: Duration::from_secs(60),
        };
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1000);
        let wait = |lines: &[(&str, &str)]| rate_limit(&limits, &answer(429, lines).fields, now);
        assert_eq!(wait(&[("retry-after", "7")]), Some(Duration::from_secs(7)));
        assert_eq!(wait(&[("retry-after", "61"), ("reset", "1005")]), Some(Duration::from_secs(5)));
        assert_eq!(wait(&[("reset", "999")]), None);
        assert_eq!(wait(&[("retry-after", "soon")]), None);
    }
}
