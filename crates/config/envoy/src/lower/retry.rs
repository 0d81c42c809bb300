//! Retries: the policies of routes and virtual hosts (`RetryPolicy`), and the budget of a cluster.

use std::time::Duration;

use postrider_model::{
    Attempts, Avoided, BackOff, RateLimitedBackOff, ResetFormat, ResetHeader, RetryBudget, RetryOn, RetryPolicy, Value,
};

use super::context::Lowering;
use super::{matchers, metadata};
use crate::reader::Reader;

/// `RetryPolicy.num_retries` where it is absent.
const RETRIES: u32 = 1;

/// `RateLimitedRetryBackOff.max_interval` where it is absent.
const LONGEST_RATE_LIMIT: Duration = Duration::from_secs(300);

/// `RetryBudget.budget_percent` and `min_retry_concurrency` where they are absent.
const BUDGET_PERCENT: f64 = 20.0;
const BUDGET_AT_LEAST: u32 = 3;

/// Where metadata says what load balancing has to do with a host.
const LB: &str = "envoy.lb";

const PREVIOUS_HOSTS: &str = "envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate";
const OMIT_LABELLED: &str = "envoy.extensions.retry.host.omit_host_metadata.v3.OmitHostMetadataConfig";
const PREVIOUS_PRIORITIES: &str = "envoy.extensions.retry.priority.previous_priorities.v3.PreviousPrioritiesConfig";
const OMIT_CANARIES: &str = "envoy.extensions.retry.host.omit_canary_hosts.v3.OmitCanaryHostsPredicate";

/// What a virtual host says about all of its routes.
pub(super) fn of_host(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Attempts {
    Attempts {
        retry: policy(cx, at),
        count_in_request: at.bool("include_request_attempt_count"),
        count_in_response: at.bool("include_attempt_count_in_response"),
        tell_timeout: at.bool("include_is_timeout_retry_header"),
        // Routes have the last word about it.
        body_limit: None,
    }
}

/// How much of a request's body is kept, as a route or a virtual host says it.
#[derive(Clone, Copy)]
pub(super) struct BodyLimit {
    newer: Option<u64>,
    older: Option<u64>,
}

impl BodyLimit {
    pub(super) fn read(at: &Reader<'_>) -> Self {
        Self {
            newer: at.u64_wrapper("request_body_buffer_limit"),
            older: at.u32_wrapper("per_request_buffer_limit_bytes").map(u64::from),
        }
    }

    /// A route's with that of its virtual host. The newer field of either stands before the older one of both, as in Envoy.
    pub(super) fn below(self, host: Self) -> Option<u64> {
        self.newer.or(host.newer).or(self.older).or(host.older)
    }
}

/// The field `retry_policy` of `at`.
pub(super) fn policy(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Option<RetryPolicy> {
    if at.has("retry_policy_typed_config") {
        cx.refuse(at, "retry_policy_typed_config", "retry policies as extensions");
    }
    of_cluster(cx, at)
}

/// The same of a cluster, which has no extensions in its place.
pub(super) fn of_cluster(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Option<RetryPolicy> {
    let at = at.message("retry_policy")?;
    if at.has("retry_options_predicates") {
        cx.refuse(&at, "retry_options_predicates", "plugins that change the options of a retry");
    }
    let (on, unknown) = RetryOn::parse(at.str("retry_on"));
    for word in unknown {
        let names: Vec<_> = RetryOn::names().collect();
        let text = format!("`{word}` is no condition for a retry, and means nothing; there are {}", names.join(", "));
        cx.warn(&at, "retry_on", "unknown-retry-condition", text);
    }
    let status_codes = at.u64s("retriable_status_codes");
    let draws = u32::try_from(at.i64("host_selection_retry_max_attempts").max(0)).unwrap_or(u32::MAX);
    Some(RetryPolicy {
        on,
        retries: at.u32_wrapper("num_retries").unwrap_or(RETRIES),
        per_try_timeout: at.duration("per_try_timeout").filter(|limit| !limit.is_zero()),
        per_try_idle_timeout: at.duration("per_try_idle_timeout").filter(|limit| !limit.is_zero()),
        back_off: back_off(cx, &at),
        rate_limited: at.message("rate_limited_retry_back_off").map(|place| rate_limited(&place)),
        status_codes: status_codes.iter().filter_map(|code| u16::try_from(code.value).ok()).collect(),
        response_headers: conditions(cx, &at, "retriable_headers"),
        request_headers: conditions(cx, &at, "retriable_request_headers"),
        avoids: avoided(cx, &at),
        host_draws: if draws == 0 { 1 } else { draws },
        changes_cluster: at.bool("refresh_cluster_on_retry"),
        avoids_priorities_after: avoided_priorities(cx, &at),
    })
}

fn conditions(cx: &mut Lowering<'_>, at: &Reader<'_>, field: &str) -> Vec<postrider_model::HeaderMatch> {
    at.list(field).iter().filter_map(|header| matchers::header(cx, header)).collect()
}

fn back_off(cx: &mut Lowering<'_>, at: &Reader<'_>) -> BackOff {
    const SHORTEST: Duration = Duration::from_millis(1);
    let Some(at) = at.message("retry_back_off") else { return BackOff::default() };
    let base = at.duration("base_interval").map_or(BackOff::default().base, |base| base.max(SHORTEST));
    let max = at.duration("max_interval").map(|max| max.max(SHORTEST));
    if max.is_some_and(|max| max < base) {
        let diagnostic = at
            .diagnostic_at(
                "max_interval",
                postrider_config_core::Severity::Error,
                "invalid-interval",
                "the longest wait is shorter than the first",
            )
            .expected("`max_interval` of at least `base_interval`");
        cx.push(diagnostic);
    }
    BackOff { base, max: max.unwrap_or(base.saturating_mul(10)) }
}

fn rate_limited(at: &Reader<'_>) -> RateLimitedBackOff {
    let headers = at.list("reset_headers");
    let headers = headers.iter().map(|header| ResetHeader {
        name: header.str("name").to_ascii_lowercase(),
        format: match header.enum_name("format").as_str() {
            "UNIX_TIMESTAMP" => ResetFormat::Timestamp,
            _ => ResetFormat::Seconds,
        },
    });
    RateLimitedBackOff { headers: headers.collect(), max: at.duration("max_interval").unwrap_or(LONGEST_RATE_LIMIT) }
}

fn avoided(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Vec<Avoided> {
    let mut all = Vec::new();
    for predicate in at.list("retry_host_predicate") {
        predicate.str("name");
        let Some(any) = predicate.any("typed_config") else {
            cx.missing(&predicate, "the predicate has no `typed_config`", &format!("`@type` of {PREVIOUS_HOSTS}"));
            continue;
        };
        match (any.type_name, &any.reader) {
            (PREVIOUS_HOSTS, _) => all.push(Avoided::Tried),
            (OMIT_CANARIES, _) => all.push(Avoided::Labelled {
                namespace: LB.to_owned(),
                labels: vec![("canary".to_owned(), Value::Bool(true))],
            }),
            (OMIT_LABELLED, Some(config)) => all.extend(labelled(cx, config)),
            (OMIT_LABELLED, None) => {}
            _ => cx.refuse_extension(&predicate, "typed_config", &any),
        }
    }
    all
}

fn labelled(cx: &mut Lowering<'_>, config: &Reader<'_>) -> Option<Avoided> {
    match metadata::named(cx, config, "metadata_match").namespace(LB) {
        Some(Value::Map(labels)) if !labels.is_empty() => {
            Some(Avoided::Labelled { namespace: LB.to_owned(), labels: labels.clone() })
        }
        _ => {
            let text = "nothing under `envoy.lb`, so no host is passed over";
            cx.warn(config, "metadata_match", "no-effect", text.to_owned());
            None
        }
    }
}

fn avoided_priorities(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Option<u32> {
    let priority = at.message("retry_priority")?;
    priority.str("name");
    let Some(any) = priority.any("typed_config") else {
        cx.missing(&priority, "the priority has no `typed_config`", &format!("`@type` of {PREVIOUS_PRIORITIES}"));
        return None;
    };
    if any.type_name != PREVIOUS_PRIORITIES {
        cx.refuse_extension(&priority, "typed_config", &any);
        return None;
    }
    // Positive, as the schema has it.
    u32::try_from(any.reader?.i64("update_frequency")).ok().filter(|every| *every > 0)
}

/// `retry_budget` of an entry of `circuit_breakers.thresholds`.
pub(super) fn budget(at: &Reader<'_>) -> Option<RetryBudget> {
    let at = at.message("retry_budget")?;
    Some(RetryBudget {
        percent: at.message("budget_percent").map_or(BUDGET_PERCENT, |percent| percent.f64("value")),
        at_least: at.u32_wrapper("min_retry_concurrency").unwrap_or(BUDGET_AT_LEAST),
        interval: at.duration("budget_interval").filter(|interval| !interval.is_zero()),
    })
}
