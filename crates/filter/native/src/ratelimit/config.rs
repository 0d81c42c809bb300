//! What the filter is configured by: `RateLimit` and `RateLimitPerRoute`.

use std::time::Duration;

use postrider_filter_api::{ConfigError, GrpcService};
use postrider_model::{HeaderValue, RateLimit, Reading, RuleOf, Value, check_api_version};

use crate::descriptors::HostRules;
use crate::read::{header_option, status};

/// How long the service may take unless something else is written.
const DEFAULT_TIMEOUT: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(super) struct Config {
    pub(super) domain: String,
    pub(super) stage: u32,
    pub(super) requests: Requests,
    pub(super) service: GrpcService,
    pub(super) timeout: Option<Duration>,
    pub(super) deny_on_failure: bool,
    /// Of failures that share, in parts per million, whatever `deny_on_failure` says.
    pub(super) deny_share: Option<u32>,
    pub(super) quota_headers: bool,
    pub(super) mark_limited: bool,
    pub(super) status: u16,
    pub(super) status_on_error: u16,
    pub(super) response_headers: Vec<HeaderValue>,
    pub(super) stat_prefix: Option<String>,
    /// In parts per million.
    pub(super) enabled: Option<u32>,
    pub(super) enforced: Option<u32>,
    pub(super) rules: Vec<RateLimit>,
    pub(super) namespace: Option<String>,
    pub(super) retry_after: bool,
    /// gRPC calls are refused as such, not as unavailable.
    pub(super) exhausted: bool,
}

/// Which requests are counted, by where they come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Requests {
    Internal,
    External,
    Both,
}

/// What a route says about it.
#[derive(Debug)]
pub(super) struct Override {
    pub(super) virtual_host: HostRules,
    pub(super) rules: Vec<RateLimit>,
    pub(super) domain: Option<String>,
}

pub(super) fn read(value: &Value) -> Result<Config, ConfigError> {
    Reading::all(value, |at| {
        let domain = at.text("domain").unwrap_or_default().to_owned();
        if domain.is_empty() {
            at.error("domain", "the domain is required: the service keeps its limits under it");
        }
        let service = at.map("rate_limit_service", |service| {
            if let Err(message) = check_api_version(service.text("transport_api_version")) {
                service.error("transport_api_version", message);
            }
            if !service.has("grpc_service") {
                service.error("grpc_service", "a gRPC service is required");
            }
            service.raw("grpc_service", GrpcService::read)
        });
        if service.is_none() {
            at.error("rate_limit_service", "the service is required");
        }
        let service = service.flatten().unwrap_or_else(GrpcService::none);
        let timeout = match at.duration("timeout") {
            None => service.timeout_or(Some(DEFAULT_TIMEOUT)),
            Some(limit) => (!limit.is_zero()).then_some(limit),
        };
        let headers = at.each("response_headers_to_add", header_option);
        Config {
            domain,
            stage: u32::try_from(at.number("stage").unwrap_or(0)).unwrap_or(u32::MAX),
            requests: match at.text("request_type") {
                Some("internal") => Requests::Internal,
                Some("external") => Requests::External,
                None | Some("both") => Requests::Both,
                Some(other) => {
                    at.error("request_type", format!("\"{other}\" is none of internal, external and both"));
                    Requests::Both
                }
            },
            timeout,
            service,
            deny_on_failure: at.flag("failure_mode_deny"),
            deny_share: at.parts_per_million("failure_mode_deny_percent"),
            quota_headers: at.text("enable_x_ratelimit_headers") == Some("DRAFT_VERSION_03"),
            mark_limited: !at.flag("disable_x_envoy_ratelimited_header"),
            status: status(at, "rate_limited_status").filter(|status| *status >= 400).unwrap_or(429),
            status_on_error: status(at, "status_on_error").unwrap_or(500),
            response_headers: headers.into_iter().flatten().collect(),
            stat_prefix: at.text("stat_prefix").map(str::to_owned),
            enabled: at.parts_per_million("filter_enabled"),
            enforced: at.parts_per_million("filter_enforced"),
            rules: at.each("rate_limits", |rule| RateLimit::read(rule, RuleOf::Filter)),
            namespace: at.text("metadata_namespace").map(str::to_owned),
            retry_after: at.flag("enable_retry_after_header"),
            exhausted: at.flag("rate_limited_as_resource_exhausted"),
        }
    })
}

pub(super) fn read_route(value: &Value) -> Result<Override, ConfigError> {
    Reading::all(value, |at| {
        at.refuse("override_option", "choosing between the overrides of several scopes");
        Override {
            virtual_host: HostRules::read(at),
            rules: at.each("rate_limits", |rule| RateLimit::read(rule, RuleOf::Filter)),
            domain: at.text("domain").map(str::to_owned),
        }
    })
}
