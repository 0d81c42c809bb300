//! Hosts that answer badly (`OutlierDetection`).

use std::time::Duration;

use postrider_model::{AccessLogSink, AnswerMatch, Enforcing, FailurePercentage, OutlierDetection, SuccessRate};

use super::context::Lowering;
use super::matchers;
use crate::reader::Reader;

/// The field `outlier_detection` of a cluster. `event_log` is that of the cluster manager.
pub(super) fn detection(
    cx: &mut Lowering<'_>,
    cluster: &Reader<'_>,
    event_log: Option<&AccessLogSink>,
) -> Option<OutlierDetection> {
    let at = cluster.message("outlier_detection")?;
    if at.has("monitors") {
        cx.refuse(&at, "monitors", "outlier detection by extensions");
    }
    let default = OutlierDetection::default();
    let number = |field, default: u32| at.u32_wrapper(field).unwrap_or(default);
    let base = at.duration("base_ejection_time").unwrap_or(default.base_ejection_time);
    let max_ejection_time = at.duration("max_ejection_time");
    if max_ejection_time.is_some_and(|most| most < base) {
        let text = "the longest ejection is shorter than the first one, `base_ejection_time`";
        cx.error(&at, "max_ejection_time", "conflict", text);
    }
    let (rate, percentage, enforcing) = (default.success_rate, default.failure_percentage, default.enforcing);
    Some(OutlierDetection {
        interval: at.duration("interval").unwrap_or(default.interval).max(Duration::from_millis(1)),
        base_ejection_time: base,
        max_ejection_time: max_ejection_time.unwrap_or(default.max_ejection_time.max(base)),
        max_jitter: at.duration("max_ejection_time_jitter").unwrap_or_default(),
        max_ejection_percent: number("max_ejection_percent", default.max_ejection_percent),
        always_ejects_one: at.bool_wrapper("always_eject_one_host").unwrap_or(false),
        consecutive_5xx: number("consecutive_5xx", default.consecutive_5xx),
        consecutive_gateway_failure: number("consecutive_gateway_failure", default.consecutive_gateway_failure),
        consecutive_local_origin_failure: number(
            "consecutive_local_origin_failure",
            default.consecutive_local_origin_failure,
        ),
        success_rate: SuccessRate {
            min_hosts: number("success_rate_minimum_hosts", rate.min_hosts),
            request_volume: number("success_rate_request_volume", rate.request_volume),
            stdev_factor: number("success_rate_stdev_factor", rate.stdev_factor),
        },
        failure_percentage: FailurePercentage {
            threshold: number("failure_percentage_threshold", percentage.threshold),
            min_hosts: number("failure_percentage_minimum_hosts", percentage.min_hosts),
            request_volume: number("failure_percentage_request_volume", percentage.request_volume),
        },
        splits_origins: at.bool("split_external_local_origin_errors"),
        enforcing: Enforcing {
            consecutive_5xx: number("enforcing_consecutive_5xx", enforcing.consecutive_5xx),
            consecutive_gateway_failure: number(
                "enforcing_consecutive_gateway_failure",
                enforcing.consecutive_gateway_failure,
            ),
            consecutive_local_origin_failure: number(
                "enforcing_consecutive_local_origin_failure",
                enforcing.consecutive_local_origin_failure,
            ),
            success_rate: number("enforcing_success_rate", enforcing.success_rate),
            local_origin_success_rate: number(
                "enforcing_local_origin_success_rate",
                enforcing.local_origin_success_rate,
            ),
            failure_percentage: number("enforcing_failure_percentage", enforcing.failure_percentage),
            local_origin_failure_percentage: number(
                "enforcing_failure_percentage_local_origin",
                enforcing.local_origin_failure_percentage,
            ),
        },
        returns_on_passed_check: at.bool_wrapper("successful_active_health_check_uneject_host").unwrap_or(true),
        detects_degraded: at.bool_wrapper("detect_degraded_hosts").unwrap_or(false),
        event_log: event_log.cloned(),
    })
}

/// `HttpProtocolOptions.OutlierDetection`.
pub(super) fn errors(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Option<AnswerMatch> {
    answers(cx, &at.message("error_matcher")?)
}

/// `envoy.config.common.matcher.v3.MatchPredicate`; only the head of an answer is there to be judged.
fn answers(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Option<AnswerMatch> {
    let all = |cx: &mut Lowering<'_>, field| -> Option<Vec<AnswerMatch>> {
        let rules = at.message(field)?.list("rules");
        rules.iter().map(|rule| answers(cx, rule)).collect()
    };
    match at.oneof("rule") {
        Some("any_match") => {
            at.bool("any_match");
            Some(AnswerMatch::Any)
        }
        Some("and_match") => all(cx, "and_match").map(AnswerMatch::All),
        Some("or_match") => all(cx, "or_match").map(AnswerMatch::One),
        Some("not_match") => Some(AnswerMatch::Not(Box::new(answers(cx, &at.message("not_match")?)?))),
        Some("http_response_headers_match") => {
            let headers = at.message("http_response_headers_match")?.list("headers");
            let read: Option<Vec<_>> = headers.iter().map(|header| matchers::header(cx, header)).collect();
            read.map(AnswerMatch::Headers)
        }
        Some(other) => {
            cx.refuse(at, other, "judging an answer by something else than its headers");
            None
        }
        None => {
            cx.missing(at, "the condition is empty", "`http_response_headers_match: {headers: …}`");
            None
        }
    }
}
