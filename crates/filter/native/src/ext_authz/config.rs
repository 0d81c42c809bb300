//! What the filter is configured by: `ExtAuthz` and `ExtAuthzPerRoute`.

use std::sync::Arc;
use std::time::Duration;

use postrider_filter_api::{ConfigError, GrpcService};
use postrider_http::HeaderName;
use postrider_model::{Format, Reading, RetryPolicy, StringMatch, Value, call_retry_policy, check_api_version};

use crate::mutation_rules::MutationRules;
use crate::read::{header, status};
use postrider_model::MetadataMatch;

/// How long a service may take unless something else is written.
const DEFAULT_TIMEOUT: Duration = Duration::from_millis(200);

/// Everything of one scope or of the whole filter.
#[derive(Debug)]
pub(super) struct Config {
    pub(super) service: Arc<Service>,
    /// The filter's own service speaks plain HTTP. It settles what services are shown, those of routes, too.
    pub(super) is_http: bool,
    pub(super) failure_mode_allow: bool,
    pub(super) failure_mode_allow_header: bool,
    pub(super) body: Option<BodySettings>,
    /// Calls have spans where requests do.
    pub(super) has_span: bool,
    pub(super) clear_route_cache: bool,
    /// Only changes of these headers count for that, in lower case; of any, where there are none.
    pub(super) clearing_headers: Vec<String>,
    /// What would be refused goes on, and the decision is noted.
    pub(super) shadow_mode: bool,
    pub(super) enforce_response_limits: bool,
    /// How long a call took is noted.
    pub(super) note_latency: bool,
    pub(super) status_on_error: u16,
    pub(super) validate_mutations: bool,
    pub(super) metadata_namespaces: Vec<String>,
    pub(super) route_metadata_namespaces: Vec<String>,
    /// Those whose messages the service is told.
    pub(super) typed_namespaces: Vec<String>,
    pub(super) route_typed_namespaces: Vec<String>,
    /// In parts per million.
    pub(super) enabled: Option<u32>,
    pub(super) enabled_metadata: Option<MetadataMatch>,
    pub(super) deny_at_disable: bool,
    pub(super) stat_prefix: Option<String>,
    pub(super) allowed_headers: Option<Vec<StringMatch>>,
    pub(super) disallowed_headers: Vec<StringMatch>,
    pub(super) include_tls_session: bool,
    pub(super) include_certificate: bool,
    /// Under which key of the node's metadata the labels of the proxy stand.
    pub(super) labels_key: Option<String>,
    /// What of the request's head the service may change; `None` is anything.
    pub(super) rules: Option<MutationRules>,
    pub(super) charge_cluster_response_stats: bool,
    pub(super) encode_raw_headers: bool,
    pub(super) take_metadata: bool,
    pub(super) max_denied_body: usize,
}

#[derive(Debug)]
pub(super) enum Service {
    Grpc { service: GrpcService, timeout: Option<Duration> },
    Http(HttpService),
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct BodySettings {
    pub(super) max: usize,
    pub(super) partial: bool,
    pub(super) as_bytes: bool,
}

#[derive(Debug)]
pub(super) struct HttpService {
    pub(super) cluster: Arc<str>,
    /// Of all tries together.
    pub(super) timeout: Option<Duration>,
    pub(super) retries: Option<Arc<RetryPolicy>>,
    pub(super) path_prefix: String,
    pub(super) path_override: Option<String>,
    pub(super) headers_to_add: Vec<(HeaderName, Format)>,
    /// Of the answer, what the request takes over, in place of its own or beside it.
    pub(super) upstream: Vec<StringMatch>,
    pub(super) upstream_append: Vec<StringMatch>,
    /// What a client that is turned away sees; `None` is everything.
    pub(super) client: Option<Vec<StringMatch>>,
    pub(super) client_on_success: Vec<StringMatch>,
    pub(super) metadata: Vec<StringMatch>,
    /// An older place for what the request to the service may carry.
    allowed_headers: Option<Vec<StringMatch>>,
}

/// What a route says about it.
#[derive(Debug, Default)]
pub(super) struct Override {
    pub(super) disabled: bool,
    pub(super) context: Vec<(String, String)>,
    /// `Some(None)` turns it off.
    pub(super) body: Option<Option<BodySettings>>,
    pub(super) service: Option<Arc<Service>>,
    pub(super) has_span: Option<bool>,
}

pub(super) fn read(value: &Value) -> Result<Config, ConfigError> {
    Reading::all(value, |at| {
        let (service, older) = match (service(at), at.has("grpc_service") || at.has("http_service")) {
            (Some(Service::Http(mut http)), _) => {
                let older = http.allowed_headers.take();
                if older.is_some() && at.has("allowed_headers") {
                    at.error(
                        "allowed_headers",
                        "the `authorization_request` of the service has `allowed_headers`, too",
                    );
                }
                (Service::Http(http), older)
            }
            (Some(service), _) => (service, None),
            (None, written) => {
                if !written {
                    at.wrong("grpc_service or http_service is required");
                }
                (Service::Http(HttpService::none()), None)
            }
        };
        let version = check_api_version(at.text("transport_api_version"));
        if let (Err(message), Service::Grpc { .. }) = (version, &service) {
            at.error("transport_api_version", message);
        }
        let metadata = at.map("filter_enabled_metadata", MetadataMatch::read);
        let deny = at.map("deny_at_disable", |flag| {
            flag.text("runtime_key");
            flag.flag("default_value")
        });
        let has_span = at.bool("emit_client_span").unwrap_or(true);
        // No command of a log and no expression shows it in Envoy either: it is for filters of one's own in C++.
        at.value("filter_metadata");
        let clearing = at.texts("clear_route_cache_headers");
        if clearing.iter().any(String::is_empty) {
            at.error("clear_route_cache_headers", "an empty name is no header's");
        }
        Config {
            has_span,
            is_http: matches!(service, Service::Http(_)),
            service: Arc::new(service),
            failure_mode_allow: at.flag("failure_mode_allow"),
            failure_mode_allow_header: at.flag("failure_mode_allow_header_add"),
            body: at.map("with_request_body", body),
            clear_route_cache: at.flag("clear_route_cache"),
            clearing_headers: clearing.iter().map(|name| name.to_ascii_lowercase()).collect(),
            shadow_mode: at.flag("shadow_mode"),
            enforce_response_limits: at.flag("enforce_response_header_limits"),
            note_latency: at.flag("emit_filter_state_stats"),
            status_on_error: status(at, "status_on_error").unwrap_or(403),
            validate_mutations: at.flag("validate_mutations"),
            metadata_namespaces: at.texts("metadata_context_namespaces"),
            route_metadata_namespaces: at.texts("route_metadata_context_namespaces"),
            typed_namespaces: at.texts("typed_metadata_context_namespaces"),
            route_typed_namespaces: at.texts("route_typed_metadata_context_namespaces"),
            enabled: at.parts_per_million("filter_enabled"),
            enabled_metadata: metadata.flatten(),
            deny_at_disable: deny.unwrap_or(false),
            stat_prefix: at.text("stat_prefix").map(str::to_owned),
            allowed_headers: at.string_matches("allowed_headers").or(older),
            disallowed_headers: at.string_matches("disallowed_headers").unwrap_or_default(),
            include_tls_session: at.flag("include_tls_session"),
            include_certificate: at.flag("include_peer_certificate"),
            labels_key: at.text("bootstrap_metadata_labels_key").map(str::to_owned),
            rules: at.map("decoder_header_mutation_rules", MutationRules::read),
            charge_cluster_response_stats: at.bool("charge_cluster_response_stats").unwrap_or(true),
            encode_raw_headers: at.flag("encode_raw_headers"),
            take_metadata: at.bool("enable_dynamic_metadata_ingestion").unwrap_or(true),
            max_denied_body: match at.number("max_denied_response_body_bytes").unwrap_or(0) {
                0 => usize::MAX,
                most => usize::try_from(most).unwrap_or(usize::MAX),
            },
        }
    })
}

impl Config {
    /// Whether a service sees headers of this name, in lower case. Some see only a `few` by default.
    pub(super) fn shows(&self, name: &str, few: bool) -> bool {
        const FEW: [&str; 4] = ["authorization", ":method", ":path", ":authority"];
        let listed = |list: &[StringMatch]| list.iter().any(|rule| rule.matches(name));
        let allowed = match &self.allowed_headers {
            Some(list) => listed(list) || few && FEW.contains(&name),
            None => !few || FEW.contains(&name),
        };
        allowed && !listed(&self.disallowed_headers)
    }
}

fn service(at: &mut Reading<'_>) -> Option<Service> {
    let grpc = at.raw("grpc_service", GrpcService::read).map(|service| {
        let timeout = service.timeout_or(Some(DEFAULT_TIMEOUT));
        Service::Grpc { service, timeout }
    });
    let http = at.map("http_service", http_service);
    grpc.or(http.map(Service::Http))
}

fn http_service(at: &mut Reading<'_>) -> HttpService {
    let mut service = HttpService::none();
    service.retries = at.map("retry_policy", call_retry_policy).map(Arc::new);
    let uri = at.map("server_uri", |uri| {
        // Where it goes is what the cluster says; the address only names it.
        uri.text("uri");
        let timeout = uri.duration("timeout").unwrap_or(DEFAULT_TIMEOUT);
        let cluster = uri.text("cluster").unwrap_or_default();
        if cluster.is_empty() {
            uri.error("cluster", "the name of a cluster is required");
        }
        (cluster.into(), (!timeout.is_zero()).then_some(timeout))
    });
    match uri {
        Some((cluster, timeout)) => (service.cluster, service.timeout) = (cluster, timeout),
        None => at.error("server_uri", "server_uri with the `cluster` of the service is required"),
    }
    service.path_prefix = path(at, "path_prefix").unwrap_or_default();
    service.path_override = path(at, "path_override");
    if !service.path_prefix.is_empty() && service.path_override.is_some() {
        at.error("path_override", "path_prefix and path_override exclude each other");
    }
    let request = at.map("authorization_request", |request| {
        let headers = request.each("headers_to_add", |item| {
            let name = header(item, "key");
            let text = item.text("value").unwrap_or_default();
            let value = Format::parse(text).map_err(|error| item.error("value", error.to_string())).ok();
            item.refuse("raw_value", "a value in bytes");
            if name.is_none() && !item.has("key") {
                item.error("key", "a header name is required");
            }
            name.zip(value)
        });
        (headers.into_iter().flatten().collect(), request.string_matches("allowed_headers"))
    });
    if let Some((headers, allowed)) = request {
        (service.headers_to_add, service.allowed_headers) = (headers, allowed);
    }
    at.map("authorization_response", |response| {
        service.upstream = response.string_matches("allowed_upstream_headers").unwrap_or_default();
        service.upstream_append = response.string_matches("allowed_upstream_headers_to_append").unwrap_or_default();
        service.client = response.string_matches("allowed_client_headers").filter(|list| !list.is_empty());
        service.client_on_success = response.string_matches("allowed_client_headers_on_success").unwrap_or_default();
        service.metadata = response.string_matches("dynamic_metadata_from_headers").unwrap_or_default();
    });
    service
}

impl HttpService {
    fn none() -> HttpService {
        HttpService {
            cluster: "".into(),
            timeout: None,
            retries: None,
            path_prefix: String::new(),
            path_override: None,
            headers_to_add: Vec::new(),
            upstream: Vec::new(),
            upstream_append: Vec::new(),
            client: None,
            client_on_success: Vec::new(),
            metadata: Vec::new(),
            allowed_headers: None,
        }
    }
}

fn path(at: &mut Reading<'_>, key: &str) -> Option<String> {
    let text = at.text(key)?;
    if !text.starts_with('/') {
        at.error(key, "it must begin with /");
    }
    Some(text.to_owned())
}

fn body(at: &mut Reading<'_>) -> BodySettings {
    let max = at.number("max_request_bytes").and_then(|max| usize::try_from(max).ok()).unwrap_or(0);
    if max == 0 {
        at.error("max_request_bytes", "it must be above zero");
    }
    BodySettings { max, partial: at.flag("allow_partial_message"), as_bytes: at.flag("pack_as_bytes") }
}

pub(super) fn read_route(value: &Value) -> Result<Override, ConfigError> {
    Reading::all(value, |at| {
        let disabled = at.flag("disabled");
        let settings = at.map("check_settings", |settings| {
            let off = settings.flag("disable_request_body_buffering");
            let own = settings.map("with_request_body", body);
            if off && own.is_some() {
                settings.error("with_request_body", "it and disable_request_body_buffering exclude each other");
            }
            Override {
                disabled: false,
                context: settings.text_map("context_extensions"),
                body: if off { Some(None) } else { own.map(Some) },
                service: service(settings).map(Arc::new),
                has_span: settings.bool("emit_client_span"),
            }
        });
        match settings {
            Some(settings) => settings,
            None => {
                if !disabled && !at.has("disabled") {
                    at.wrong("disabled or check_settings is required");
                }
                Override { disabled, ..Override::default() }
            }
        }
    })
}
