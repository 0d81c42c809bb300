//! Options of the connections to a cluster: HTTP protocol options, keep-alive, source address.

use postrider_config_core::Severity;
use postrider_model::{
    AddressFamily, AddressOrder, Balancing, FilterSlot, Http2Options, NameForm, TcpKeepalive, UpstreamOptions,
    UpstreamProtocol,
};

use super::address;
use super::context::{Lowering, timeout};
use super::http::{CONNECTION_IDLE_TIMEOUT, MAX_HEAD_KIB, MAX_HEADERS};
use super::{bind, filters, hash_policy, http2, mirrors, names, outlier, retry, upstream_filters};
use crate::reader::Reader;

/// Go code in place of HTTP.
const GOLANG: &str = "envoy.extensions.upstreams.http.tcp.golang.v3alpha.Config";

/// Both of clusters and of their options.
const MAX_REQUESTS: &str = "max_requests_per_connection";

const COMMON: &str = "common_http_protocol_options";

const MAX_HEAD: &str = "max_response_headers_kb";

/// What it is where it is absent, and the cluster may speak HTTP/1.
const MAX_HTTP1_HEAD_KIB: u32 = 80;

const HTTP_OPTIONS: &str = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions";

/// Names that TLS takes from requests (`UpstreamHttpProtocolOptions`), with the message that asks for it.
#[derive(Default)]
pub(super) struct RequestNames<'m> {
    pub at: Option<Reader<'m>>,
    /// The host of the request is asked for.
    pub sni: bool,
    /// The header where that host stands in place of `:authority`.
    pub header: Option<String>,
    /// The certificate must be good for that host.
    pub verify: bool,
}

/// What requests are hashed by goes to `balancing`.
pub(super) fn options<'m>(
    cx: &mut Lowering<'_>,
    at: &Reader<'m>,
    balancing: &mut Balancing,
) -> (UpstreamOptions, RequestNames<'m>) {
    let mut options = UpstreamOptions {
        idle_timeout: Some(CONNECTION_IDLE_TIMEOUT),
        max_requests_per_connection: requests(at, MAX_REQUESTS),
        pool_per_client: at.bool("connection_pool_per_downstream_connection"),
        max_connection_duration: None,
        max_stream_duration: None,
        max_response_headers: MAX_HEADERS,
        max_response_head_bytes: 0,
        enable_trailers: false,
        names: NameForm::default(),
        absolute_targets: false,
        protocol: UpstreamProtocol::Http1,
        http2: Http2Options::default(),
        keepalive: None,
        sources: Vec::new(),
        socket_options: Vec::new(),
        auto_host_sni: false,
        address_order: AddressOrder { first: None, run: 1 },
        filters: None,
        bridge: None,
        errors: None,
        retry: None,
        mirrors: Vec::new(),
    };
    if let Some(common) = at.message(COMMON) {
        self::common(&common, &mut options);
    }
    if let Some(http1) = at.message("http_protocol_options") {
        self::http1(cx, &http1, &mut options);
    }
    if let Some(most) = max_head_kib(at) {
        http2::field_within_head(cx, at, MAX_HEAD, most);
    }
    if at.has("http2_protocol_options") {
        options.http2 = http2::of_upstreams(cx, at);
        options.protocol = UpstreamProtocol::Http2;
    }
    if at.enum_name("protocol_selection") == "USE_DOWNSTREAM_PROTOCOL" {
        options.protocol = UpstreamProtocol::SameAsClient;
    }
    let explicit_options = at.any_map("typed_extension_protocol_options");
    if !explicit_options.iter().any(|(_, any)| any.type_name == HTTP_OPTIONS) {
        older_conflicts(cx, at);
    }
    let mut names = request_names(cx, at);
    for (key, any) in explicit_options {
        let Some(config) = &any.reader else { continue };
        if any.type_name == HTTP_OPTIONS && key != HTTP_OPTIONS {
            let text = format!("options of this type stand under the key `{HTTP_OPTIONS}`, not `{key}`");
            cx.error(at, "typed_extension_protocol_options", "invalid-key", text);
        }
        if any.type_name == HTTP_OPTIONS {
            requests_once(cx, at, config, HTTP_OPTIONS);
            balancing.request_hash_policies = hash_policy::of_requests(cx, config);
            if let Some(explicit) = explicit(cx, config, &mut options) {
                names = explicit;
            }
        } else {
            config.read_whole();
            let text = format!("`{}`", any.type_name);
            cx.refuse_value(at, "typed_extension_protocol_options", &text);
        }
    }
    options.keepalive = at.message("upstream_connection_options").and_then(|connection| {
        if let Some(eyeballs) = connection.message("happy_eyeballs_config") {
            options.address_order = address_order(cx, &eyeballs);
        }
        connection.message("tcp_keepalive").and_then(|keepalive| address::keepalive(&keepalive))
    });
    options.bridge = bridge(cx, at);
    if options.bridge.is_some() {
        // What the cluster says of HTTP is about nothing here.
        options.protocol = UpstreamProtocol::Http1;
    }
    if options.max_response_head_bytes == 0 {
        let kib = if options.protocol == UpstreamProtocol::Http2 { MAX_HEAD_KIB } else { MAX_HTTP1_HEAD_KIB };
        options.max_response_head_bytes = kib << 10;
    }
    let bind = at.message("upstream_bind_config").map(|own| bind::binding(cx, &own));
    if let Some(bind) = bind.or_else(|| cx.bind.clone()) {
        (options.sources, options.socket_options) = (bind.sources, bind.options);
        options.keepalive = merged(options.keepalive, bind.keepalive);
    }
    (options, names)
}

/// Refuses the most requests of a connection twice: of the cluster `at`, and in the common options of `holder`.
fn requests_once(cx: &mut Lowering<'_>, at: &Reader<'_>, holder: &Reader<'_>, called: &str) {
    let common = holder.message(COMMON);
    if at.has(MAX_REQUESTS) && common.is_some_and(|common| common.has(MAX_REQUESTS)) {
        cx.error(at, MAX_REQUESTS, "conflict", format!("`{called}` has `{MAX_REQUESTS}`, too"));
    }
}

/// What the cluster's own fields say twice, or say of two protocols.
fn older_conflicts(cx: &mut Lowering<'_>, at: &Reader<'_>) {
    requests_once(cx, at, at, COMMON);
    let both = at.has("http_protocol_options") && at.has("http2_protocol_options");
    if both && at.enum_name("protocol_selection") == "USE_CONFIGURED_PROTOCOL" {
        let text = "`http_protocol_options` and `http2_protocol_options` stand for one protocol each";
        let diagnostic = at.diagnostic_at("http_protocol_options", Severity::Error, "conflict", text);
        cx.push(diagnostic.expected("one of them; or `protocol_selection: USE_DOWNSTREAM_PROTOCOL`"));
    }
}

/// Kibibytes of the longest head of an answer, where that is written.
fn max_head_kib(at: &Reader<'_>) -> Option<u32> {
    at.message(COMMON)?.u32_wrapper(MAX_HEAD)
}

/// `upstream_config`: what speaks to the hosts.
fn bridge(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Option<Box<FilterSlot>> {
    let config = at.message("upstream_config")?;
    let Some(any) = config.any("typed_config") else {
        cx.missing(&config, "the extension has no `typed_config`", "a `typed_config` with its `@type`");
        return None;
    };
    if any.type_name != GOLANG || !cx.kinds.known(any.type_name) {
        config.str("name");
        cx.refuse_extension(&config, "typed_config", &any);
        return None;
    }
    Some(Box::new(filters::whole_slot(cx, &config, &any)))
}

/// Keep-alive as the connection's options say it, changed by options of its socket.
fn merged(said: Option<TcpKeepalive>, by_number: Option<TcpKeepalive>) -> Option<TcpKeepalive> {
    match (said, by_number) {
        (Some(said), Some(by_number)) => Some(TcpKeepalive {
            probes: by_number.probes.or(said.probes),
            time: by_number.time.or(said.time),
            interval: by_number.interval.or(said.interval),
        }),
        (said, by_number) => by_number.or(said),
    }
}

/// `HappyEyeballsConfig`.
fn address_order(cx: &mut Lowering<'_>, at: &Reader<'_>) -> AddressOrder {
    let first = match at.enum_name("first_address_family_version").as_str() {
        "V4" => Some(AddressFamily::V4),
        "V6" => Some(AddressFamily::V6),
        "PIPE" => Some(AddressFamily::Path),
        "DEFAULT" => None,
        other => {
            let text = format!("`{other}` as the first family of addresses, which can be `V4`, `V6` or `PIPE`");
            cx.refuse_value(at, "first_address_family_version", &text);
            None
        }
    };
    AddressOrder { first, run: at.u32_wrapper("first_address_family_count").unwrap_or(1) }
}

/// `HttpProtocolOptions` of the upstream extension.
fn explicit<'m>(cx: &mut Lowering<'_>, at: &Reader<'m>, options: &mut UpstreamOptions) -> Option<RequestNames<'m>> {
    if let Some(common) = at.message(COMMON) {
        self::common(&common, options);
    }
    options.filters = upstream_filters::of_cluster(cx, at);
    options.errors = at.message("outlier_detection").and_then(|own| outlier::errors(cx, &own)).map(Box::new);
    options.retry = retry::of_cluster(cx, at).map(Box::new);
    if let Some(policy) = at.message("retry_policy").filter(|policy| policy.bool("refresh_cluster_on_retry")) {
        cx.no_effect(&policy, "refresh_cluster_on_retry", "a request of this cluster is tried again there");
    }
    options.mirrors = mirrors::of_cluster(cx, at);
    protocol(cx, at, options);
    at.has("upstream_http_protocol_options").then(|| request_names(cx, at))
}

fn protocol(cx: &mut Lowering<'_>, at: &Reader<'_>, options: &mut UpstreamOptions) {
    if let (Some(most), Some(oneof)) = (max_head_kib(at), at.oneof("upstream_protocol_options"))
        && let Some(protocol) = at.message(oneof)
    {
        http2::field_within_head(cx, &protocol, MAX_HEAD, most);
    }
    match at.oneof("upstream_protocol_options") {
        Some("explicit_http_config") => {
            let Some(config) = at.message("explicit_http_config") else { return };
            match config.oneof("protocol_config") {
                Some("http2_protocol_options") => {
                    options.http2 = http2::of_upstreams(cx, &config);
                    options.protocol = UpstreamProtocol::Http2;
                }
                Some("http3_protocol_options") => cx.refuse(&config, "http3_protocol_options", "HTTP/3 to a cluster"),
                _ => {
                    if let Some(http1) = config.message("http_protocol_options") {
                        self::http1(cx, &http1, options);
                    }
                }
            }
        }
        Some("use_downstream_protocol_config") => {
            let Some(config) = at.message("use_downstream_protocol_config") else { return };
            either(cx, &config, options);
            options.protocol = UpstreamProtocol::SameAsClient;
            config.whole("http3_protocol_options");
            config.ignore("http3_protocol_options", "clients speak HTTP/1 or HTTP/2");
        }
        Some("auto_config") => {
            let Some(config) = at.message("auto_config") else { return };
            either(cx, &config, options);
            options.protocol = UpstreamProtocol::Auto;
            for field in ["http3_protocol_options", "alternate_protocols_cache_options"] {
                if config.has(field) {
                    cx.refuse(&config, field, "HTTP/3 to a cluster");
                }
            }
        }
        _ => {}
    }
}

/// The options of both protocols.
fn either(cx: &mut Lowering<'_>, at: &Reader<'_>, options: &mut UpstreamOptions) {
    if let Some(http1) = at.message("http_protocol_options") {
        self::http1(cx, &http1, options);
    }
    options.http2 = http2::of_upstreams(cx, at);
}

fn common(at: &Reader<'_>, options: &mut UpstreamOptions) {
    at.ignore("headers_with_underscores_action", "it is about requests of clients");
    options.idle_timeout = timeout(at, "idle_timeout", options.idle_timeout);
    options.max_connection_duration = timeout(at, "max_connection_duration", None);
    options.max_stream_duration = timeout(at, "max_stream_duration", None);
    at.whole("max_connection_duration_jitter");
    at.ignore("max_connection_duration_jitter", "it is about connections of clients");
    if let Some(headers) = at.u32_wrapper("max_headers_count") {
        options.max_response_headers = headers;
    }
    if let Some(kib) = at.u32_wrapper(MAX_HEAD) {
        options.max_response_head_bytes = kib << 10;
    }
    options.max_requests_per_connection = requests(at, MAX_REQUESTS).or(options.max_requests_per_connection);
}

fn http1(cx: &mut Lowering<'_>, at: &Reader<'_>, options: &mut UpstreamOptions) {
    for (field, why) in [
        ("allow_absolute_url", "it is about requests of clients"),
        ("allow_custom_methods", "it is about requests of clients"),
        ("accept_http_10", "it is about requests of clients"),
        ("default_host_for_http_10", "it is about requests of clients"),
        ("override_stream_error_on_invalid_http_message", "it is about requests of clients"),
        ("ignore_http_11_upgrade", "it is about requests of clients"),
        ("use_balsa_parser", "there is one parser"),
    ] {
        at.whole(field);
        at.ignore(field, why);
    }
    options.enable_trailers = at.bool("enable_trailers");
    options.names = names::form(cx, at);
    options.absolute_targets = at.bool("send_fully_qualified_url");
}

fn request_names<'m>(cx: &mut Lowering<'_>, at: &Reader<'m>) -> RequestNames<'m> {
    let Some(names) = at.message("upstream_http_protocol_options") else { return RequestNames::default() };
    let header = names.str("override_auto_sni_header");
    let sni = names.bool("auto_sni");
    if !sni && !header.is_empty() {
        cx.no_effect(&names, "override_auto_sni_header", "no server name is taken from requests without `auto_sni`");
    }
    let header = Some(header.to_ascii_lowercase()).filter(|header| sni && !header.is_empty());
    RequestNames { header, sni, verify: names.bool("auto_san_validation"), at: Some(names) }
}

/// 0 is no limit.
fn requests(at: &Reader<'_>, field: &str) -> Option<u32> {
    at.u32_wrapper(field).filter(|requests| *requests != 0)
}
