//! Keys that no field names: Envoy looks them up wherever the feature is.

use super::Runtime;
use super::resolve::{child, kind_of, list, set, set_duration, set_percent, set_share, set_wrapped};
use crate::message::{Item, Message, Value};

/// Above this an interval never comes: a hundred years, in milliseconds.
const MAX_MILLIS: u64 = 3_155_760_000_000;

/// Envoy's interval of checks while a cluster has no traffic, in milliseconds.
const NO_TRAFFIC_INTERVAL: u64 = 60_000;

/// Numbers of outlier detection that are whole, by their fields; the keys are the same below `outlier_detection.`.
const OUTLIER_NUMBERS: [&str; 8] = [
    "consecutive_5xx",
    "consecutive_gateway_failure",
    "consecutive_local_origin_failure",
    "success_rate_minimum_hosts",
    "success_rate_request_volume",
    "success_rate_stdev_factor",
    "failure_percentage_minimum_hosts",
    "failure_percentage_request_volume",
];

/// Those that are percentages.
const OUTLIER_PERCENTS: [&str; 9] = [
    "max_ejection_percent",
    "enforcing_consecutive_5xx",
    "enforcing_consecutive_gateway_failure",
    "enforcing_consecutive_local_origin_failure",
    "enforcing_success_rate",
    "enforcing_local_origin_success_rate",
    "enforcing_failure_percentage",
    "enforcing_failure_percentage_local_origin",
    "failure_percentage_threshold",
];

/// Durations; their keys end in `_ms`.
const OUTLIER_DURATIONS: [&str; 4] =
    ["interval", "base_ejection_time", "max_ejection_time", "max_ejection_time_jitter"];

/// Limits of a cluster, by their fields.
const LIMITS: [&str; 5] =
    ["max_connections", "max_pending_requests", "max_requests", "max_retries", "max_connection_pools"];

/// Below these, keys switch what only Envoy's own code does one way or another.
pub(crate) const OF_ENVOYS_CODE: [&str; 4] =
    ["envoy.reloadable_features.", "envoy.restart_features.", "envoy.deprecated_features:", "re2."];

/// Of these, the ones that switch something here, too.
pub(crate) const OF_OURS_AS_WELL: [&str; 1] = ["envoy.reloadable_features.connection_close_through_filter_manager"];

/// Gives one message the values that its type looks up.
pub(super) fn resolve(message: &mut Message, runtime: &Runtime) {
    match message.type_name() {
        "envoy.config.bootstrap.v3.Bootstrap" => local_zones(message, runtime),
        "envoy.config.cluster.v3.Cluster" => cluster(message, runtime),
        "envoy.config.cluster.v3.OutlierDetection" => outliers(message, runtime),
        "envoy.config.core.v3.HealthCheck" => checks(message, runtime),
        "envoy.config.route.v3.RetryPolicy" => back_off(message, runtime),
        "envoy.config.cluster.v3.Cluster.CommonLbConfig.ZoneAwareLbConfig"
        | "envoy.extensions.load_balancing_policies.common.v3.LocalityLbConfig.ZoneAwareLbConfig" => {
            zones(message, runtime);
        }
        "envoy.extensions.filters.http.ratelimit.v3.RateLimit" => rate_limit(message, runtime),
        _ => {}
    }
}

fn cluster(message: &mut Message, runtime: &Runtime) {
    if let Some(percent) = runtime.integer("upstream.healthy_panic_threshold")
        && let Some(common) = child(message, "common_lb_config")
    {
        set_percent(common, "healthy_panic_threshold", percent.min(100) as f64);
    }
    let name = message.str("name").to_owned();
    for (priority, number) in [("default", 0), ("high", 1)] {
        let prefix = format!("circuit_breakers.{name}.{priority}.");
        let limits: Vec<(&str, u64)> =
            LIMITS.iter().filter_map(|limit| Some((*limit, runtime.integer(&format!("{prefix}{limit}"))?))).collect();
        let budget = runtime.find(&format!("{prefix}retry_budget.budget_percent")).and_then(super::Entry::number);
        let least = runtime.integer(&format!("{prefix}retry_budget.min_retry_concurrency"));
        if limits.is_empty() && budget.is_none() && least.is_none() {
            continue;
        }
        let Some(thresholds) = thresholds(message, number) else { continue };
        for (limit, most) in limits {
            set_wrapped(thresholds, limit, Value::U64(most.min(u64::from(u32::MAX))));
        }
        if let Some(percent) = budget
            && let Some(at) = child(thresholds, "retry_budget")
        {
            set_percent(at, "budget_percent", percent.clamp(0.0, 100.0));
        }
        if let Some(least) = least
            && let Some(at) = child(thresholds, "retry_budget")
        {
            set_wrapped(at, "min_retry_concurrency", Value::U64(least.min(u64::from(u32::MAX))));
        }
    }
}

/// The thresholds of a priority, which are made where there are none.
fn thresholds(cluster: &mut Message, priority: i32) -> Option<&mut Message> {
    let breakers = child(cluster, "circuit_breakers")?;
    let kind = kind_of(breakers, "thresholds")?;
    let span = breakers.span;
    let all = list(breakers, "thresholds")?;
    let of_priority = |item: &Item| match &item.value {
        Value::Message(at) => at.value("priority").map_or(0, |value| if let Value::Enum(n) = value { *n } else { 0 }),
        _ => -1,
    };
    let at = match all.iter().position(|item| of_priority(item) == priority) {
        Some(at) => at,
        None => {
            let mut made = Message::new(kind, span);
            set(&mut made, "priority", Value::Enum(priority));
            all.push(Item { value: Value::Message(Box::new(made)), span });
            all.len() - 1
        }
    };
    match &mut all.get_mut(at)?.value {
        Value::Message(message) => Some(message),
        _ => None,
    }
}

fn outliers(message: &mut Message, runtime: &Runtime) {
    let find = |name: &str| runtime.integer(&format!("outlier_detection.{name}"));
    for name in OUTLIER_NUMBERS {
        if let Some(number) = find(name) {
            set_wrapped(message, name, Value::U64(number.min(u64::from(u32::MAX))));
        }
    }
    for name in OUTLIER_PERCENTS {
        if let Some(percent) = find(name) {
            set_wrapped(message, name, Value::U64(percent.min(100)));
        }
    }
    for name in OUTLIER_DURATIONS {
        if let Some(millis) = find(&format!("{name}_ms")) {
            let least = u64::from(name != "max_ejection_time_jitter");
            set_duration(message, name, millis.clamp(least, MAX_MILLIS));
        }
    }
}

/// Every interval lies between the two that the runtime has; jitter comes on top.
fn checks(message: &mut Message, runtime: &Runtime) {
    let least = runtime.integer("health_check.min_interval");
    let most = runtime.integer("health_check.max_interval");
    if least.is_none() && most.is_none() {
        return;
    }
    let bounded = |millis: u64| millis.min(most.unwrap_or(u64::MAX)).max(least.unwrap_or(0)).clamp(1, MAX_MILLIS);
    if message.field("no_traffic_interval").is_none() {
        set_duration(message, "no_traffic_interval", NO_TRAFFIC_INTERVAL);
    }
    for name in [
        "interval",
        "no_traffic_interval",
        "no_traffic_healthy_interval",
        "unhealthy_interval",
        "unhealthy_edge_interval",
        "healthy_edge_interval",
    ] {
        if let Some(interval) = message.message(name).and_then(Message::as_duration) {
            let millis = u64::try_from(interval.as_millis()).unwrap_or(u64::MAX);
            if bounded(millis) != millis {
                set_duration(message, name, bounded(millis));
            }
        }
    }
}

/// Where a policy says itself how long it waits, that holds.
fn back_off(message: &mut Message, runtime: &Runtime) {
    if message.field("retry_back_off").is_none()
        && let Some(millis) = runtime.integer("upstream.base_retry_backoff_ms")
        && let Some(at) = child(message, "retry_back_off")
    {
        set_duration(at, "base_interval", millis.clamp(1, MAX_MILLIS));
    }
}

/// Without a word of a cluster, requests stay in their zone where it is known which cluster is the proxy's own.
fn local_zones(message: &mut Message, runtime: &Runtime) {
    const COMMON: &str = "common_lb_config";
    let is_known = message.message("cluster_manager").is_some_and(|at| !at.str("local_cluster_name").is_empty());
    if !is_known || runtime.find(ZONE_SHARE).or(runtime.find(ZONE_SIZE)).is_none() {
        return;
    }
    let Some(resources) = message.field_mut("static_resources") else { return };
    let Value::Message(resources) = &mut resources.value else { return };
    let Some(Value::List(clusters)) = resources.field_mut("clusters").map(|field| &mut field.value) else { return };
    for item in clusters {
        let Value::Message(cluster) = &mut item.value else { continue };
        let has_policy = cluster.field("load_balancing_policy").is_some();
        let is_open = cluster.message(COMMON).is_none_or(|at| at.oneof("locality_config_specifier").is_none());
        if !has_policy
            && is_open
            && let Some(zone_aware) = child(cluster, COMMON).and_then(|at| child(at, "zone_aware_lb_config"))
        {
            zones(zone_aware, runtime);
        }
    }
}

const ZONE_SHARE: &str = "upstream.zone_routing.enabled";
const ZONE_SIZE: &str = "upstream.zone_routing.min_cluster_size";

fn zones(message: &mut Message, runtime: &Runtime) {
    if let Some(percent) = runtime.integer(ZONE_SHARE) {
        set_percent(message, "routing_enabled", percent.min(100) as f64);
    }
    if let Some(size) = runtime.integer(ZONE_SIZE) {
        set_wrapped(message, "min_cluster_size", Value::U64(size));
    }
}

/// Where the filter says itself which requests it means, that holds.
fn rate_limit(message: &mut Message, runtime: &Runtime) {
    for (field, key) in
        [("filter_enabled", "ratelimit.http_filter_enabled"), ("filter_enforced", "ratelimit.http_filter_enforcing")]
    {
        let share = runtime.find(key).filter(|entry| !entry.is_share()).and_then(super::Entry::share);
        if message.field(field).is_none()
            && let Some(share) = share
            && let Some(at) = child(message, field)
        {
            set_share(at, "default_value", share);
        }
    }
}
