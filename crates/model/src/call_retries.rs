//! How often the proxy asks a service of its own: `RetryPolicy` of `envoy.config.core.v3`, which says less than a route's.

use std::time::Duration;

use crate::{BackOff, Reading, RetryOn, RetryPolicy};

/// The first wait unless something else is written.
const DEFAULT_BASE: Duration = Duration::from_secs(1);

/// The shortest wait that may be written.
const SHORTEST: Duration = Duration::from_millis(1);

pub fn call_retry_policy(at: &mut Reading<'_>) -> RetryPolicy {
    for key in ["retry_priority", "retry_host_predicate"] {
        at.refuse(key, "choosing other hosts for another call");
    }
    // It says how often a host is drawn for those.
    at.whole("host_selection_retry_max_attempts");
    let (on, unknown) = RetryOn::parse(at.text("retry_on").unwrap_or_default());
    if let Some(word) = unknown.first() {
        let names: Vec<_> = RetryOn::names().collect();
        at.error("retry_on", format!("`{word}` is no condition; there are {}", names.join(", ")));
    }
    let back_off = at.map("retry_back_off", back_off).unwrap_or_else(|| of(DEFAULT_BASE));
    let retries = at.number("num_retries").map_or(1, |retries| u32::try_from(retries).unwrap_or(u32::MAX));
    RetryPolicy {
        on,
        retries,
        // As Envoy has it: no try may take longer than the longest wait.
        per_try_timeout: Some(back_off.max),
        per_try_idle_timeout: None,
        back_off,
        rate_limited: None,
        status_codes: Vec::new(),
        response_headers: Vec::new(),
        request_headers: Vec::new(),
        avoids: Vec::new(),
        host_draws: 1,
        changes_cluster: false,
        avoids_priorities_after: None,
    }
}

fn of(base: Duration) -> BackOff {
    BackOff { base, max: base.saturating_mul(10) }
}

fn back_off(at: &mut Reading<'_>) -> BackOff {
    let base = at.duration("base_interval");
    if base.is_none_or(|base| base < SHORTEST) {
        at.error("base_interval", "a first wait of at least 1ms is required");
    }
    let usual = of(base.unwrap_or(DEFAULT_BASE));
    match at.duration("max_interval") {
        Some(max) if max < usual.base => {
            at.error("max_interval", "the longest wait is shorter than the first");
            usual
        }
        Some(max) => BackOff { max, ..usual },
        None => usual,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Value;

    fn object<const N: usize>(entries: [(&str, Value); N]) -> Value {
        Value::Map(entries.map(|(key, value)| (key.to_owned(), value)).to_vec())
    }

    fn text(text: &str) -> Value {
        Value::String(text.to_owned())
    }

    #[test]
    fn a_policy_has_the_defaults_of_services_and_not_of_routes() {
        let read = |value: &Value| Reading::all(value, call_retry_policy);
        let usual = read(&object([])).unwrap();
        assert_eq!((usual.retries, usual.back_off), (1, of(DEFAULT_BASE)));
        assert!(usual.on.is_empty());
        let waits = object([("base_interval", text("0.1s")), ("max_interval", text("0.3s"))]);
        let own = object([("retry_back_off", waits), ("num_retries", Value::Integer(3)), ("retry_on", text("5xx"))]);
        let own = read(&own).unwrap();
        assert_eq!((own.retries, own.per_try_timeout), (3, Some(Duration::from_millis(300))));
        assert!(own.on.has(RetryOn::SERVER_ERROR));
    }

    #[test]
    fn a_policy_is_refused_with_all_its_errors() {
        let waits = object([("base_interval", text("0.1s")), ("max_interval", text("0.05s"))]);
        let wrong = object([
            ("retry_back_off", waits),
            ("retry_on", text("6xx")),
            ("retry_host_predicate", Value::List(vec![object([])])),
        ]);
        let errors = Reading::all(&wrong, call_retry_policy).unwrap_err();
        let paths: Vec<&str> = errors.iter().map(|error| error.path.as_str()).collect();
        assert_eq!(paths, ["retry_host_predicate", "retry_on", "retry_back_off.max_interval"]);
    }
}
