//! The HTTP connection manager.

use std::sync::Arc;
use std::time::Duration;

use postrider_model::{
    Codec, EarlyEdits, Http1Options, HttpConnection, HttpLimits, HttpTimeouts, IdentityPolicy, InternalAddresses,
    LocalReplies, LogCondition, LogMoments, ProxyStatus, ReplyMapper, RouteTable, RouterOptions, SchemeRule,
    ServerHeader, StringMatch, UpgradeFilters,
};

use super::context::{Lowering, origin, timeout};
use super::{
    access_log, chain_match, client_certificate, cors, data, detection, filters, headers, http2, matchers, mirrors,
    names, policy, tables, tracing,
};
use crate::reader::Reader;

/// `stream_idle_timeout` where it is absent.
const STREAM_IDLE_TIMEOUT: Duration = Duration::from_secs(300);

/// `common_http_protocol_options.idle_timeout` where it is absent, on both sides.
pub(super) const CONNECTION_IDLE_TIMEOUT: Duration = Duration::from_secs(3600);

/// `delayed_close_timeout` where it is absent.
const DELAYED_CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// `drain_timeout` where it is absent.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// `server_name` where it is absent.
const SERVER_NAME: &str = "envoy";

/// `max_headers_count` where it is absent, on both sides.
pub(super) const MAX_HEADERS: u32 = 100;

/// Kibibytes of `max_request_headers_kb` where it is absent, and of `max_response_headers_kb` over HTTP/2.
pub(super) const MAX_HEAD_KIB: u32 = 60;

pub(super) fn connection(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Option<HttpConnection> {
    let codec = codec(cx, at);
    let max_head_kib = at.u32_wrapper("max_request_headers_kb").unwrap_or(MAX_HEAD_KIB);
    http2::field_within_head(cx, at, "max_request_headers_kb", max_head_kib);
    let (filters, router) = filters::chain(cx, at, "http_filters");
    let (upgrades, upgrade_filters) = upgrades(cx, at, &router);
    let mut written = at.list("http_filters");
    written.extend(at.list("upgrade_configs").iter().flat_map(|upgrade| upgrade.list("filters")));
    // Routes may say something of filters on the upstream side, too.
    let of_clusters = cx.cluster_filters.clone();
    let upstream = router.upstream_filters.iter().map(|slot| &slot.name).chain(&of_clusters).map(String::as_str);
    let names: Vec<&str> = written.iter().map(|filter| filter.str("name")).chain(upstream).collect();
    let routes = routes(cx, at, &names, &cors::filters(&filters));
    let common = at.message("common_http_protocol_options");
    let connection = HttpConnection {
        stat_prefix: at.str("stat_prefix").to_owned(),
        routes: Arc::default(),
        filters,
        access_log: access_log::loggers(cx, at, "access_log"),
        log_moments: log_moments(cx, at),
        timeouts: timeouts(at, common.as_ref()),
        limits: HttpLimits {
            max_headers: common.as_ref().and_then(|c| c.u32_wrapper("max_headers_count")).unwrap_or(MAX_HEADERS),
            max_head_bytes: max_head_kib << 10,
            max_requests_per_connection: common
                .as_ref()
                .and_then(|c| c.u32_wrapper("max_requests_per_connection"))
                .filter(|requests| *requests != 0),
        },
        path: policy::path(cx, at),
        codec,
        http1: http1(cx, at, common.as_ref()),
        http2: http2::of_clients(cx, at, codec),
        identity: identity(cx, at),
        upgrades,
        upgrade_filters,
        router,
        measures_routes: at.bool("record_route_resolution_stats"),
        tracing: tracing::of_manager(cx, at),
        origin: origin(at),
    };
    Some(HttpConnection { routes: Arc::new(routes?), ..connection })
}

/// `access_log_options`, or the two fields that came before it.
fn log_moments(cx: &mut Lowering<'_>, at: &Reader<'_>) -> LogMoments {
    let older = LogMoments {
        start: at.bool("flush_access_log_on_new_request"),
        connected: false,
        every: at.duration("access_log_flush_interval"),
    };
    let Some(options) = at.message("access_log_options") else { return older };
    for field in ["flush_access_log_on_new_request", "access_log_flush_interval"] {
        if at.has(field) {
            let text = format!("`access_log_options` takes the place of `{field}`: write it there");
            cx.error(at, field, "conflict", text);
        }
    }
    LogMoments {
        start: options.bool("flush_access_log_on_new_request"),
        connected: options.bool("flush_log_on_tunnel_successfully_established"),
        every: options.duration("access_log_flush_interval"),
    }
}

fn codec(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Codec {
    cx.no_effect(at, "http3_protocol_options", "connections to this listener speak HTTP/1 or HTTP/2");
    match at.enum_name("codec_type").as_str() {
        "HTTP1" => {
            at.ignore("http2_protocol_options", "connections to this listener speak HTTP/1");
            Codec::Http1
        }
        "HTTP2" => Codec::Http2,
        "HTTP3" => {
            cx.refuse_value(at, "codec_type", "HTTP/3");
            Codec::Auto
        }
        _ => Codec::Auto,
    }
}

fn routes(cx: &mut Lowering<'_>, at: &Reader<'_>, filters: &[&str], cors_filters: &[String]) -> Option<RouteTable> {
    match at.oneof("route_specifier") {
        Some("route_config") => Some(tables::table(cx, &at.message("route_config")?, filters, cors_filters)),
        Some("rds") => {
            cx.refuse(at, "rds", "routes from a control plane (RDS)");
            None
        }
        Some(other) => {
            cx.refuse(at, other, "scoped routes");
            None
        }
        None => {
            cx.missing(at, "the connection manager has no routes", "`route_config`");
            None
        }
    }
}

fn timeouts(at: &Reader<'_>, common: Option<&Reader<'_>>) -> HttpTimeouts {
    let how = "over HTTP/2 the last GOAWAY comes when the client has confirmed the first";
    at.approximate("drain_timeout", how);
    at.approximate("drain_timeout_jitter", how);
    let stream_idle = timeout(at, "stream_idle_timeout", Some(STREAM_IDLE_TIMEOUT));
    HttpTimeouts {
        request: timeout(at, "request_timeout", None),
        request_headers: timeout(at, "request_headers_timeout", None),
        stream_idle,
        stream_flush: timeout(at, "stream_flush_timeout", stream_idle),
        connection_idle: match common {
            Some(common) => timeout(common, "idle_timeout", Some(CONNECTION_IDLE_TIMEOUT)),
            None => Some(CONNECTION_IDLE_TIMEOUT),
        },
        max_connection_duration: common.and_then(|common| timeout(common, "max_connection_duration", None)),
        max_connection_duration_jitter: common
            .and_then(|common| Some(common.message("max_connection_duration_jitter")?.f64("value")))
            .unwrap_or(0.0),
        max_stream_duration: common.and_then(|common| timeout(common, "max_stream_duration", None)),
        delayed_close: at.duration("delayed_close_timeout").unwrap_or(DELAYED_CLOSE_TIMEOUT),
        drain: at.duration("drain_timeout").unwrap_or(DRAIN_TIMEOUT),
        drain_jitter: at.message("drain_timeout_jitter").map_or(0.0, |percent| percent.f64("value")),
        drains_for_good: at.bool("http1_safe_max_connection_duration"),
    }
}

fn http1(cx: &mut Lowering<'_>, at: &Reader<'_>, common: Option<&Reader<'_>>) -> Http1Options {
    let spares_connections = at.bool_wrapper("stream_error_on_invalid_http_message").unwrap_or(false);
    let underscores = policy::underscores(cx, at, common);
    let Some(options) = at.message("http_protocol_options") else {
        return Http1Options { spares_connections, underscores, ..Http1Options::default() };
    };
    options.ignore("use_balsa_parser", "there is one parser");
    options.ignore("send_fully_qualified_url", "it is about requests to upstreams");
    if options.bool("allow_chunked_length") {
        cx.refuse(&options, "allow_chunked_length", "accepting Content-Length beside Transfer-Encoding");
    }
    let default_host = options.str("default_host_for_http_10");
    let own = options.bool_wrapper("override_stream_error_on_invalid_http_message");
    Http1Options {
        accept_http_10: options.bool("accept_http_10"),
        default_host_for_http_10: (!default_host.is_empty()).then(|| default_host.to_owned()),
        enable_trailers: options.bool("enable_trailers"),
        allow_custom_methods: options.bool("allow_custom_methods"),
        refuses_absolute_targets: options.bool_wrapper("allow_absolute_url") == Some(false),
        spares_connections: own.unwrap_or(spares_connections),
        ignored_upgrades: ignored_upgrades(cx, &options),
        underscores,
        names: names::form(cx, &options),
    }
}

fn ignored_upgrades(cx: &mut Lowering<'_>, options: &Reader<'_>) -> Vec<StringMatch> {
    let written = options.list("ignore_http_11_upgrade");
    let mut all = Vec::new();
    for matcher in &written {
        if matcher.has("custom") {
            cx.refuse(matcher, "custom", "a plugin that judges upgrades");
        } else {
            all.extend(matchers::string(cx, matcher));
        }
    }
    all
}

fn identity(cx: &mut Lowering<'_>, at: &Reader<'_>) -> IdentityPolicy {
    if at.bool("strip_any_host_port") && at.bool("strip_matching_host_port") {
        let text = "`strip_any_host_port` and `strip_matching_host_port` exclude each other";
        cx.error(at, "strip_any_host_port", "conflict", text);
    }
    at.ignore(
        "path_normalization_options",
        "Envoy 1.40 does nothing with it either; `normalize_path` and its like act",
    );
    if at.has("typed_header_validation_config") {
        cx.refuse(at, "typed_header_validation_config", "header validators, which Envoy's own builds lack, too");
    }
    at.ignore("represent_ipv4_remote_address_as_ipv4_mapped_ipv6", "Envoy 1.40 does nothing with it either");
    let server_name = at.str("server_name");
    let via = at.str("via");
    IdentityPolicy {
        server_name: if server_name.is_empty() { SERVER_NAME.to_owned() } else { server_name.to_owned() },
        server_header: match at.enum_name("server_header_transformation").as_str() {
            "APPEND_IF_ABSENT" => ServerHeader::AppendIfAbsent,
            "PASS_THROUGH" => ServerHeader::PassThrough,
            _ => ServerHeader::Overwrite,
        },
        use_remote_address: at.bool_wrapper("use_remote_address").unwrap_or(false),
        xff_num_trusted_hops: at.u32("xff_num_trusted_hops"),
        internal: at.message("internal_address_config").map(|inside| {
            let ranges = chain_match::ranges(cx, &inside, "cidr_ranges");
            Box::new(InternalAddresses { ranges, unix_sockets: inside.bool("unix_sockets") })
        }),
        skip_xff_append: at.bool("skip_xff_append"),
        scheme_of_port: detection::scheme_of_port(cx, at).map(Box::new),
        hides_ends: at.bool_wrapper("add_proxy_protocol_connection_state") == Some(false),
        detection: detection::detection(cx, at),
        generate_request_id: at.bool_wrapper("generate_request_id").unwrap_or(true),
        preserve_external_request_id: at.bool("preserve_external_request_id"),
        packs_trace_reason: detection::packs_trace_reason(cx, at),
        always_set_request_id_in_response: at.bool("always_set_request_id_in_response"),
        marks_overload: at.bool("append_local_overload"),
        via: (!via.is_empty()).then(|| via.to_owned()),
        strip_any_host_port: at.bool("strip_any_host_port"),
        strip_matching_host_port: at.bool("strip_matching_host_port"),
        strip_trailing_host_dot: at.bool("strip_trailing_host_dot"),
        proxy_100_continue: at.bool("proxy_100_continue"),
        append_x_forwarded_port: at.bool("append_x_forwarded_port"),
        scheme: scheme(at),
        client_certificate: client_certificate::rule(at),
        client_certificate_by_request: client_certificate::by_request(cx, at),
        local_replies: local_replies(cx, at),
        proxy_status: proxy_status(at).map(Box::new),
        early: early(cx, at),
    }
}

/// `early_header_mutation_extensions` and `add_user_agent`.
fn early(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Option<Box<EarlyEdits>> {
    const MUTATION: &str = "envoy.extensions.http.early_header_mutation.header_mutation.v3.HeaderMutation";
    let mut early =
        EarlyEdits { names_proxy: at.bool_wrapper("add_user_agent") == Some(true), ..EarlyEdits::default() };
    for extension in at.list("early_header_mutation_extensions") {
        extension.str("name");
        let Some(any) = extension.any("typed_config") else { continue };
        let (MUTATION, Some(config)) = (any.type_name, &any.reader) else {
            cx.refuse_extension(&extension, "typed_config", &any);
            continue;
        };
        let mutations = config.list("mutations");
        early.headers.extend(mutations.iter().filter_map(|mutation| mirrors::edit(cx, mutation)));
    }
    (early != EarlyEdits::default()).then(|| Box::new(early))
}

/// `scheme_header_transformation`.
fn scheme(at: &Reader<'_>) -> SchemeRule {
    let Some(rule) = at.message("scheme_header_transformation") else { return SchemeRule::Told };
    match (rule.str("scheme_to_overwrite"), rule.bool("match_upstream")) {
        ("http", _) => SchemeRule::Http,
        ("https", _) => SchemeRule::Https,
        (_, true) => SchemeRule::OfUpstream,
        (_, false) => SchemeRule::Told,
    }
}

fn proxy_status(at: &Reader<'_>) -> Option<ProxyStatus> {
    let config = at.message("proxy_status_config")?;
    let server_name = Some(at.str("server_name")).filter(|name| !name.is_empty()).unwrap_or(SERVER_NAME);
    let details = !config.bool("remove_details");
    if !details {
        let why = "`remove_details` leaves nothing to add them to";
        config.ignore("remove_connection_termination_details", why);
        config.ignore("remove_response_flags", why);
    }
    Some(ProxyStatus {
        name: match config.oneof("proxy_name") {
            Some("use_node_id") if config.bool("use_node_id") => None,
            Some("literal_proxy_name") => Some(config.str("literal_proxy_name").to_owned()),
            _ => Some(server_name.to_owned()),
        },
        details,
        termination_details: details && !config.bool("remove_connection_termination_details"),
        flags: details && !config.bool("remove_response_flags"),
        recommended_status: config.bool("set_recommended_response_code"),
    })
}

fn local_replies(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Option<Box<LocalReplies>> {
    let config = at.message("local_reply_config")?;
    let mappers = config.list("mappers");
    let mappers = mappers.iter().filter_map(|mapper| reply_mapper(cx, mapper)).collect();
    let body = config.message("body_format").map(|format| data::body_format(cx, &format));
    Some(Box::new(LocalReplies { mappers, body }))
}

fn reply_mapper(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Option<ReplyMapper> {
    let condition = at.message("filter").and_then(|filter| access_log::condition(cx, &filter));
    let mapper = ReplyMapper {
        condition: LogCondition::All(Vec::new()),
        status: at.u32_wrapper("status_code").and_then(|status| u16::try_from(status).ok()),
        body: at.message("body").map(|body| data::source_bytes(cx, &body).unwrap_or_default()),
        format: at.message("body_format_override").map(|format| data::body_format(cx, &format)),
        headers: headers::additions(cx, at, "headers_to_add"),
    };
    Some(ReplyMapper { condition: condition?, ..mapper })
}

/// The upgrade that stands for CONNECT (RFC 9110 section 9.3.6), in lower case.
pub(super) const CONNECT: &str = "connect";

/// Tunnels of datagrams (RFC 9298) have a framing of their own.
pub(super) fn refuse_datagrams(cx: &mut Lowering<'_>, upgrade: &Reader<'_>, token: &str) {
    if token.starts_with("connect-") {
        cx.refuse_value(upgrade, "upgrade_type", "tunnels of datagrams");
    }
}

/// Upgrades that are on, where a route may still change that, and the filters of those that have their own.
fn upgrades(cx: &mut Lowering<'_>, at: &Reader<'_>, router: &RouterOptions) -> (Vec<String>, Vec<UpgradeFilters>) {
    let mut all: Vec<String> = Vec::new();
    let mut filtered: Vec<UpgradeFilters> = Vec::new();
    let mut seen: Vec<String> = Vec::new();
    for upgrade in at.list("upgrade_configs") {
        let token = upgrade.str("upgrade_type").to_ascii_lowercase();
        if seen.contains(&token) {
            cx.error(&upgrade, "upgrade_type", "duplicate-name", format!("the upgrade `{token}` is listed twice"));
        }
        seen.push(token.clone());
        if upgrade.has("filters") {
            let (filters, own) = filters::chain(cx, &upgrade, "filters");
            if own != *router {
                cx.refuse_value(&upgrade, "filters", "a router with other options than that of `http_filters`");
            }
            filtered.push(UpgradeFilters { token: token.clone(), filters });
        }
        refuse_datagrams(cx, &upgrade, &token);
        if upgrade.bool_wrapper("enabled").unwrap_or(true) && !all.contains(&token) {
            all.push(token);
        }
    }
    (all, filtered)
}
