//! What the filter is configured by: `ExternalProcessor` and `ExtProcPerRoute`.

use std::time::Duration;

use postrider_filter_api::{ConfigError, GrpcService};
use postrider_http::HeaderName;
use postrider_model::{Format, Reading, StringMatch, Value};

use super::attributes::{self, Attribute};
use super::modes::{BodyMode, Modes};
use crate::mutation_rules::MutationRules;
use crate::read::{header, status};

/// How long an answer to one message may take unless something else is written.
const DEFAULT_TIMEOUT: Duration = Duration::from_millis(200);

/// How long a processor that only watches may take to read the rest unless something else is written.
const DEFAULT_DEFERRED_CLOSE: Duration = Duration::from_secs(5);

const MAX_TIMEOUT: Duration = Duration::from_secs(3600);

/// What is done about the route when a processor changed the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum RouteCache {
    /// What the processor says.
    #[default]
    Default,
    Clear,
    Retain,
}

/// Metadata that a processor is told, and may leave.
#[derive(Debug, Clone, Default)]
pub(super) struct Namespaces {
    pub(super) forwarding: Option<Names>,
    pub(super) receiving: Option<Names>,
}

/// Namespaces by what of them is meant: their values, or their message.
#[derive(Debug, Clone, Default)]
pub(super) struct Names {
    pub(super) values: Vec<String>,
    pub(super) messages: Vec<String>,
}

#[derive(Debug)]
pub(super) struct Config {
    pub(super) service: GrpcService,
    pub(super) failure_mode_allow: bool,
    /// Conversations have spans where requests do.
    pub(super) has_span: bool,
    pub(super) modes: Modes,
    pub(super) request_attributes: Vec<&'static Attribute>,
    pub(super) response_attributes: Vec<&'static Attribute>,
    pub(super) timeout: Duration,
    pub(super) max_timeout: Duration,
    pub(super) stat_prefix: Option<String>,
    pub(super) rules: MutationRules,
    pub(super) allowed_headers: Vec<StringMatch>,
    pub(super) disallowed_headers: Vec<StringMatch>,
    pub(super) allow_mode_override: bool,
    pub(super) allowed_overrides: Vec<Modes>,
    pub(super) disable_immediate_response: bool,
    pub(super) namespaces: Namespaces,
    pub(super) observes: bool,
    pub(super) deferred_close: Duration,
    pub(super) route_cache: RouteCache,
    /// Bodies do not wait for the answer to the headers.
    pub(super) sends_early: bool,
    pub(super) status_on_error: u16,
}

/// What a route says about it.
#[derive(Debug, Default)]
pub(super) struct Override {
    pub(super) disabled: bool,
    pub(super) modes: Option<Modes>,
    pub(super) request_attributes: Option<Vec<&'static Attribute>>,
    pub(super) response_attributes: Option<Vec<&'static Attribute>>,
    pub(super) service: Option<GrpcService>,
    pub(super) metadata: Vec<(HeaderName, Format)>,
    pub(super) namespaces: Namespaces,
    pub(super) failure_mode_allow: Option<bool>,
    pub(super) has_span: Option<bool>,
}

pub(super) fn read(value: &Value) -> Result<Config, ConfigError> {
    Reading::all(value, |at| {
        for (key, what) in [
            ("http_service", "a processor over HTTP (`http_service`; `grpc_service` is)"),
            ("filter_metadata", "metadata for the filter state"),
            ("processing_request_modifier", "changing what the processor is sent by an extension"),
            ("on_processing_response", "extensions that hear of answers"),
        ] {
            at.refuse(key, what);
        }
        if at.flag("allow_content_length_header") {
            at.error(
                "allow_content_length_header",
                "a length that the processor vouches for: not supported by Postrider, which knows the length of what it sends",
            );
        }
        if !at.has("grpc_service") && !at.has("http_service") {
            at.error("grpc_service", "grpc_service is required");
        }
        let forward = at.map("forward_rules", |rules| {
            (rules.string_matches("allowed_headers"), rules.string_matches("disallowed_headers"))
        });
        let (allowed, disallowed) = forward.unwrap_or_default();
        let disable = at.flag("disable_clear_route_cache");
        let route_cache = match at.text("route_cache_action") {
            Some("CLEAR") => RouteCache::Clear,
            Some("RETAIN") => RouteCache::Retain,
            _ => RouteCache::Default,
        };
        if disable && route_cache != RouteCache::Default {
            at.error("route_cache_action", "it and disable_clear_route_cache exclude each other");
        }
        Config {
            service: at.raw("grpc_service", GrpcService::read).unwrap_or_else(GrpcService::none),
            failure_mode_allow: at.flag("failure_mode_allow"),
            has_span: at.bool("emit_client_span").unwrap_or(true),
            modes: at.map("processing_mode", Modes::read).unwrap_or_default(),
            request_attributes: attributes(at, "request_attributes"),
            response_attributes: attributes(at, "response_attributes"),
            timeout: timeout(at, "message_timeout").unwrap_or(DEFAULT_TIMEOUT),
            max_timeout: timeout(at, "max_message_timeout").unwrap_or_default(),
            stat_prefix: at.text("stat_prefix").map(str::to_owned),
            rules: at.map("mutation_rules", MutationRules::read).unwrap_or_default(),
            allowed_headers: allowed.unwrap_or_default(),
            disallowed_headers: disallowed.unwrap_or_default(),
            allow_mode_override: at.flag("allow_mode_override"),
            allowed_overrides: at.each("allowed_override_modes", Modes::read),
            disable_immediate_response: at.flag("disable_immediate_response"),
            namespaces: at.map("metadata_options", namespaces).unwrap_or_default(),
            observes: at.flag("observability_mode"),
            deferred_close: at.duration("deferred_close_timeout").unwrap_or(DEFAULT_DEFERRED_CLOSE),
            route_cache: if disable { RouteCache::Retain } else { route_cache },
            sends_early: at.flag("send_body_without_waiting_for_header_response"),
            status_on_error: status(at, "status_on_error").unwrap_or(500),
        }
    })
}

pub(super) fn read_route(value: &Value) -> Result<Override, ConfigError> {
    Reading::all(value, |at| {
        let disabled = at.bool("disabled");
        if disabled == Some(false) {
            at.error("disabled", "only `true` can be said; leave it out, or write overrides");
        }
        let overrides = at.map("overrides", |at| {
            at.refuse("processing_request_modifier", "changing what the processor is sent by an extension");
            if at.flag("async_mode") {
                at.error("async_mode", "it was never implemented; see observability_mode");
            }
            let own = |at: &mut Reading<'_>, key| Some(attributes(at, key)).filter(|list| !list.is_empty());
            Override {
                disabled: false,
                modes: at.map("processing_mode", Modes::read),
                request_attributes: own(at, "request_attributes"),
                response_attributes: own(at, "response_attributes"),
                service: at.raw("grpc_service", GrpcService::read),
                metadata: at.each("grpc_initial_metadata", metadata).into_iter().flatten().collect(),
                namespaces: at.map("metadata_options", namespaces).unwrap_or_default(),
                failure_mode_allow: at.bool("failure_mode_allow"),
                has_span: at.bool("emit_client_span"),
            }
        });
        match overrides {
            Some(overrides) => overrides,
            None => {
                if disabled.is_none() {
                    at.wrong("disabled or overrides is required");
                }
                Override { disabled: true, ..Override::default() }
            }
        }
    })
}

fn metadata(at: &mut Reading<'_>) -> Option<(HeaderName, Format)> {
    at.refuse("raw_value", "a value in bytes");
    let name = header(at, "key");
    if name.is_none() && !at.has("key") {
        at.error("key", "a header name is required");
    }
    let text = at.text("value").unwrap_or_default();
    let value = Format::parse(text).map_err(|error| at.error("value", error.to_string())).ok();
    name.zip(value)
}

fn namespaces(at: &mut Reading<'_>) -> Namespaces {
    at.refuse("cluster_metadata_forwarding_namespaces", "metadata of the cluster for the processor");
    let mut names = |key: &str| at.map(key, |at| Names { values: at.texts("untyped"), messages: at.texts("typed") });
    Namespaces { forwarding: names("forwarding_namespaces"), receiving: names("receiving_namespaces") }
}

fn attributes(at: &mut Reading<'_>, key: &str) -> Vec<&'static Attribute> {
    let mut all: Vec<&'static Attribute> = Vec::new();
    for name in at.texts(key) {
        match attributes::find(&name) {
            Some(found) if all.iter().any(|known| known.name == found.name) => {}
            Some(found) => all.push(found),
            None => at.error(key, format!("the attribute \"{name}\": not supported by Postrider")),
        }
    }
    all
}

fn timeout(at: &mut Reading<'_>, key: &str) -> Option<Duration> {
    let timeout = at.duration(key)?;
    if timeout > MAX_TIMEOUT {
        at.error(key, "at most an hour (3600s)");
    }
    Some(timeout)
}

/// The content length says nothing any more once the processor may change the body behind the headers.
pub(super) fn drops_length(body: BodyMode, sends_headers: bool) -> bool {
    match body {
        BodyMode::None => false,
        BodyMode::Buffered => !sends_headers,
        BodyMode::Streamed | BodyMode::Partial | BodyMode::Duplex => true,
    }
}
