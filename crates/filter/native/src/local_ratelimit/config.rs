//! What the filter is configured by: `LocalRateLimit`, for the gateway and for routes alike.

use std::time::Duration;

use postrider_filter_api::ConfigError;
use postrider_model::{HeaderValue, RateLimit, Reading, RuleOf, Value};

use super::limiter::{Plan, Rule, Rules};
use crate::descriptors::HostRules;
use crate::read::{header_option, status};

/// Of the values that a rule leaves open so many have their own buckets, unless something else is written.
const DEFAULT_MAX_DYNAMIC: u64 = 20;

/// A bucket that fills more often is refused, as Envoy does.
const MIN_INTERVAL: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(super) struct Config {
    pub(super) stat_prefix: String,
    pub(super) status: u16,
    /// In parts per million.
    pub(super) enabled: u32,
    pub(super) enforced: u32,
    pub(super) request_headers: Vec<HeaderValue>,
    pub(super) response_headers: Vec<HeaderValue>,
    pub(super) limits: Rules,
    pub(super) stage: u32,
    pub(super) per_connection: bool,
    /// Buckets are those of all proxies together: each has its even share.
    pub(super) shared: bool,
    pub(super) quota_headers: bool,
    pub(super) virtual_host: HostRules,
    pub(super) exhausted: bool,
    /// In place of those of routes and virtual hosts.
    pub(super) rules: Vec<RateLimit>,
    pub(super) retry_after: bool,
}

impl Config {
    /// Whether any answer may tell of a limit. What the rules of routes say is known with the request.
    pub(super) fn may_tell(&self) -> bool {
        let by_rule = match self.rules.is_empty() {
            true => !self.limits.rules.is_empty(),
            false => self.rules.iter().any(|rule| rule.quota_headers == Some(true)),
        };
        self.quota_headers || by_rule
    }
}

/// `of_route`: an override, which without a bucket would do nothing.
pub(super) fn read(value: &Value, of_route: bool) -> Result<Config, ConfigError> {
    Reading::all(value, |at| {
        let stat_prefix = at.text("stat_prefix").unwrap_or_default().to_owned();
        if stat_prefix.is_empty() {
            at.error("stat_prefix", "the name for statistics is required");
        }
        let default = at.map("token_bucket", bucket).flatten();
        if of_route && !at.has("token_bucket") {
            at.error("token_bucket", "an override needs a bucket");
        }
        let per_connection = at.flag("local_rate_limit_per_downstream_connection");
        let shared = at.map("local_cluster_rate_limit", |_| ()).is_some();
        if shared && per_connection {
            at.error("local_cluster_rate_limit", "what each connection may do is not shared among proxies");
        }
        let stage = at.number("stage").unwrap_or(0);
        if stage > 10 {
            at.error("stage", format!("{stage} is no stage: they are 0 to 10"));
        }
        let max_dynamic = at.number("max_dynamic_descriptors").unwrap_or(DEFAULT_MAX_DYNAMIC);
        if max_dynamic == 0 {
            at.error("max_dynamic_descriptors", "at least one is wanted");
        }
        let rules: Vec<Rule> = at.each("descriptors", rule).into_iter().flatten().collect();
        let twice = |(index, rule): (usize, &Rule)| rules.iter().take(index).any(|other| other.entries == rule.entries);
        if rules.iter().enumerate().any(twice) {
            at.error("descriptors", "two descriptors have the same entries");
        }
        Config {
            stat_prefix: stat_prefix.to_owned(),
            status: status(at, "status").filter(|status| *status >= 400).unwrap_or(429),
            enabled: at.parts_per_million("filter_enabled").unwrap_or(0),
            enforced: at.parts_per_million("filter_enforced").unwrap_or(0),
            request_headers: options(at, "request_headers_to_add_when_not_enforced"),
            response_headers: options(at, "response_headers_to_add"),
            limits: Rules {
                default,
                rules,
                always_default: at.bool("always_consume_default_token_bucket").unwrap_or(true),
                max_dynamic: usize::try_from(max_dynamic).unwrap_or(usize::MAX),
            },
            stage: u32::try_from(stage).unwrap_or(0),
            per_connection,
            shared,
            quota_headers: at.text("enable_x_ratelimit_headers") == Some("DRAFT_VERSION_03"),
            virtual_host: HostRules::read(at),
            exhausted: at.flag("rate_limited_as_resource_exhausted"),
            rules: at.each("rate_limits", |rule| {
                rule.refuse("limit", "a limit of its own in a rule of this filter: its buckets are the limits");
                RateLimit::read(rule, RuleOf::Filter)
            }),
            retry_after: at.flag("enable_retry_after_header"),
        }
    })
}

fn options(at: &mut Reading<'_>, key: &str) -> Vec<HeaderValue> {
    let options: Vec<_> = at.each(key, header_option);
    if options.len() > 10 {
        at.error(key, "at most 10 headers are added");
    }
    options.into_iter().flatten().collect()
}

/// `TokenBucket`.
fn bucket(at: &mut Reading<'_>) -> Option<Plan> {
    let mut positive = |key: &str, default: Option<u64>| {
        let number = at.number(key).or(default).and_then(|number| u32::try_from(number).ok()).filter(|n| *n > 0);
        if number.is_none() {
            at.error(key, format!("`{key}` must be above zero"));
        }
        number
    };
    let (max, per_fill) = (positive("max_tokens", None), positive("tokens_per_fill", Some(1)));
    let interval = at.duration("fill_interval").unwrap_or_default();
    if interval < MIN_INTERVAL {
        at.error("fill_interval", "a fill interval of at least 0.05s is wanted");
        return None;
    }
    Some(Plan { max: max?, per_fill: per_fill?, interval })
}

/// `LocalRateLimitDescriptor`.
fn rule(at: &mut Reading<'_>) -> Option<Rule> {
    let entries = at.each("entries", |entry| {
        let key = entry.text("key").unwrap_or_default().to_owned();
        if key.is_empty() {
            entry.error("key", "the key is required");
        }
        (key, entry.text("value").unwrap_or_default().to_owned())
    });
    if entries.is_empty() {
        at.error("entries", "at least one entry is wanted");
    }
    let plan = at.map("token_bucket", bucket);
    if plan.is_none() {
        at.error("token_bucket", "the bucket is required");
    }
    let shadow = at.flag("shadow_mode");
    Some(Rule { entries, plan: plan.flatten()?, shadow })
}
