//! How often a request is tried, and how long each try may take.

use std::time::Duration;

use crate::{HeaderMatch, Metadata, Value};

/// What a route says about the tries of its requests.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Attempts {
    pub retry: Option<RetryPolicy>,
    /// The upstream is told which try this is (`x-envoy-attempt-count`).
    pub count_in_request: bool,
    /// The client is told how many tries there were.
    pub count_in_response: bool,
    /// The upstream is told whether a try that took too long is the reason for this one.
    pub tell_timeout: bool,
    /// Bytes of a request's body that are kept for another try; `None` is the connection's buffer limit.
    pub body_limit: Option<u64>,
}

impl Attempts {
    /// It says nothing.
    pub fn is_empty(&self) -> bool {
        *self == Attempts::default()
    }
}

/// Envoy's `RetryPolicy`.
#[derive(Debug, Clone, PartialEq)]
pub struct RetryPolicy {
    pub on: RetryOn,
    /// Tries after the first.
    pub retries: u32,
    /// From the moment that the request is complete and there is a connection; `None` is no limit.
    pub per_try_timeout: Option<Duration>,
    /// Without any byte between us and the upstream.
    pub per_try_idle_timeout: Option<Duration>,
    pub back_off: BackOff,
    /// Wait as long as an answer says.
    pub rate_limited: Option<RateLimitedBackOff>,
    /// For [`RetryOn::STATUS_CODES`].
    pub status_codes: Vec<u16>,
    /// For [`RetryOn::HEADERS`]; one that holds for the answer is enough.
    pub response_headers: Vec<HeaderMatch>,
    /// Only requests for which one of these holds are tried again; empty is all.
    pub request_headers: Vec<HeaderMatch>,
    /// Hosts that are passed over for another try.
    pub avoids: Vec<Avoided>,
    /// How often another host is drawn because of that.
    pub host_draws: u32,
    /// Another try may go to another cluster, where the route has several.
    pub changes_cluster: bool,
    /// After so many tries, and each time after as many more, the priorities that were tried are passed over.
    pub avoids_priorities_after: Option<u32>,
}

/// Hosts that another try had better not go to.
#[derive(Debug, Clone, PartialEq)]
pub enum Avoided {
    /// Those that were tried.
    Tried,
    /// Those whose metadata has all of these values under a namespace, or lists with them. Never empty.
    Labelled { namespace: String, labels: Vec<(String, Value)> },
}

impl Avoided {
    /// Whether a host is one of these by what is said `about` it.
    pub fn is_labelled(&self, about: Option<&Metadata>) -> bool {
        let Avoided::Labelled { namespace, labels } = self else { return false };
        labels.iter().all(|(key, wanted)| match about.and_then(|about| about.get(namespace, key)) {
            Some(Value::List(values)) => values.contains(wanted),
            Some(value) => value == wanted,
            None => false,
        })
    }
}

/// Waits double from `base` to `max`; each is drawn between nothing and that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackOff {
    pub base: Duration,
    pub max: Duration,
}

impl Default for BackOff {
    /// Envoy's (`RetryPolicy.retry_back_off`).
    fn default() -> Self {
        BackOff { base: Duration::from_millis(25), max: Duration::from_millis(250) }
    }
}

/// Headers of an answer that say when to come again, in order of preference.
#[derive(Debug, Clone, PartialEq)]
pub struct RateLimitedBackOff {
    pub headers: Vec<ResetHeader>,
    /// A header that wants more does not count.
    pub max: Duration,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ResetHeader {
    /// Lower case.
    pub name: String,
    pub format: ResetFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResetFormat {
    /// From now.
    Seconds,
    /// Seconds since 1970.
    Timestamp,
}

/// What is worth another try: a set of conditions.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct RetryOn(u32);

macro_rules! conditions {
    ($($name:ident = $bit:literal, $text:literal, $doc:literal;)*) => {
        impl RetryOn {
            $(#[doc = $doc] pub const $name: RetryOn = RetryOn(1 << $bit);)*
            /// Every condition by the name that Envoy gives it.
            const NAMES: &'static [(RetryOn, &'static str)] = &[$((RetryOn::$name, $text)),*];
        }
    };
}

conditions! {
    SERVER_ERROR = 0, "5xx", "A status from 500, or no answer.";
    GATEWAY_ERROR = 1, "gateway-error", "502, 503 or 504, or no answer.";
    RESET = 2, "reset", "No answer.";
    RESET_BEFORE_REQUEST = 3, "reset-before-request", "No answer, and nothing of the request was sent.";
    CONNECT_FAILURE = 4, "connect-failure", "No connection.";
    RATE_LIMITED = 5, "envoy-ratelimited", "An answer with `x-envoy-ratelimited`; without it, such an answer is never tried again.";
    RETRIABLE_4XX = 6, "retriable-4xx", "409.";
    REFUSED_STREAM = 7, "refused-stream", "The upstream reset the stream with REFUSED_STREAM.";
    STATUS_CODES = 8, "retriable-status-codes", "A status of the policy's list.";
    HEADERS = 9, "retriable-headers", "A header of the answer meets a condition of the policy's list.";
    HTTP3_POST_CONNECT_FAILURE = 10, "http3-post-connect-failure", "About HTTP/3, which no upstream speaks here.";
    GRPC_CANCELLED = 11, "cancelled", "gRPC status 1 in the head of an answer; so for the others.";
    GRPC_DEADLINE_EXCEEDED = 12, "deadline-exceeded", "gRPC status 4.";
    GRPC_RESOURCE_EXHAUSTED = 13, "resource-exhausted", "gRPC status 8.";
    GRPC_INTERNAL = 14, "internal", "gRPC status 13.";
    GRPC_UNAVAILABLE = 15, "unavailable", "gRPC status 14.";
}

impl RetryOn {
    /// Reads a list separated by commas; names that are not known come back.
    pub fn parse(text: &str) -> (RetryOn, Vec<&str>) {
        let mut on = RetryOn::default();
        let mut unknown = Vec::new();
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            match RetryOn::NAMES.iter().find(|(_, name)| *name == word) {
                Some((condition, _)) => on.insert(*condition),
                None => unknown.push(word),
            }
        }
        (on, unknown)
    }

    pub fn insert(&mut self, other: RetryOn) {
        self.0 |= other.0;
    }

    /// Some condition of `other` is among these.
    pub fn has(self, other: RetryOn) -> bool {
        self.0 & other.0 != 0
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The condition for a gRPC status; `None` for one that is never tried again.
    pub fn of_grpc(status: u32) -> Option<RetryOn> {
        match status {
            1 => Some(RetryOn::GRPC_CANCELLED),
            4 => Some(RetryOn::GRPC_DEADLINE_EXCEEDED),
            8 => Some(RetryOn::GRPC_RESOURCE_EXHAUSTED),
            13 => Some(RetryOn::GRPC_INTERNAL),
            14 => Some(RetryOn::GRPC_UNAVAILABLE),
            _ => None,
        }
    }

    /// All names, for words about them.
    pub fn names() -> impl Iterator<Item = &'static str> {
        RetryOn::NAMES.iter().map(|(_, name)| *name)
    }
}

impl std::fmt::Debug for RetryOn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names = RetryOn::NAMES.iter().filter(|(condition, _)| self.has(*condition)).map(|(_, name)| *name);
        f.write_str(&names.collect::<Vec<_>>().join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_known_by_all_of_the_labels() {
        let mut host = Metadata::default();
        host.set("lb", "stage", Value::String("old".into()));
        host.set("lb", "zones", Value::List(vec![Value::Integer(1), Value::Integer(2)]));
        let by = |labels: &[(&str, Value)]| {
            let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect();
            Avoided::Labelled { namespace: "lb".to_owned(), labels }
        };
        let is = |labels: &[(&str, Value)]| by(labels).is_labelled(Some(&host));
        let old = ("stage", Value::String("old".into()));
        assert!(is(std::slice::from_ref(&old)) && is(&[old.clone(), ("zones", Value::Integer(2))]));
        assert!(!is(&[old.clone(), ("zones", Value::Integer(3))]) && !is(&[old.clone(), ("other", Value::Null)]));
        assert!(!by(&[old]).is_labelled(None));
    }

    #[test]
    fn conditions_are_read_by_name_and_unknown_ones_come_back() {
        let (on, unknown) = RetryOn::parse("5xx, unavailable,,sometimes");
        assert!(on.has(RetryOn::SERVER_ERROR) && on.has(RetryOn::GRPC_UNAVAILABLE) && !on.has(RetryOn::RESET));
        assert_eq!(unknown, ["sometimes"]);
        assert_eq!(format!("{on:?}"), "5xx,unavailable");
        assert!(RetryOn::parse("").0.is_empty());
    }
}
