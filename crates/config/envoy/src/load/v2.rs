//! What the v2 API had and v3 has no more: recognised, explained, and read as far as v3 can hold it.
//!
//! Reading goes on inside a v2 `config`, because its type follows from the extension's name: so one run also shows what is
//! wrong inside. Rewriting the file is `migrate`'s business.

use postrider_config_core::Diagnostic;
use prost_reflect::MessageDescriptor;

use super::decode::Decoder;
use super::{any, names};
use crate::message::{Field, Message, TYPE_URL_PREFIX};
use crate::tree::Pair;

/// The advice of every finding about v2.
const MIGRATE: &str = "run `postrider migrate` to rewrite the file as v3";

/// What took the place of a field: the message (its last name; empty for any), the field, and the words.
const REPLACEMENTS: &[(&str, &str, &str)] = &[
    ("Cluster", "hosts", "`load_assignment` with one locality that lists the addresses as `lb_endpoints`"),
    (
        "Cluster",
        "tls_context",
        "`transport_socket` with `envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext`",
    ),
    ("Cluster", "extension_protocol_options", "`typed_extension_protocol_options`"),
    ("Cluster", "http2_protocol_options", HTTP_OPTIONS),
    ("Cluster", "http_protocol_options", HTTP_OPTIONS),
    ("Cluster", "common_http_protocol_options", HTTP_OPTIONS),
    ("Cluster", "upstream_http_protocol_options", HTTP_OPTIONS),
    ("Cluster", "protocol_selection", HTTP_OPTIONS),
    ("Cluster", "max_requests_per_connection", HTTP_OPTIONS),
    (
        "FilterChain",
        "tls_context",
        "`transport_socket` with `envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext`",
    ),
    ("Listener", "use_original_dst", "the listener filter `envoy.filters.listener.original_dst`"),
    ("Listener", "deprecated_v1", "`bind_to_port`"),
    ("Admin", "access_log_path", "`access_log` with `envoy.extensions.access_loggers.file.v3.FileAccessLog`"),
    ("Bootstrap", "runtime", "`layered_runtime`"),
    ("Bootstrap", "watchdog", "`watchdogs`"),
    ("HttpConnectionManager", "idle_timeout", "`common_http_protocol_options.idle_timeout`"),
    ("HttpConnectionManager.Tracing", "operation_name", "`traffic_direction` of the listener"),
    ("HttpConnectionManager.Tracing", "request_headers_for_tags", "`custom_tags`"),
    ("RouteAction", "use_websocket", "`upgrade_configs: [{upgrade_type: websocket}]`"),
    ("RouteAction", "websocket_config", "`upgrade_configs: [{upgrade_type: websocket}]`"),
    ("RouteAction", "request_mirror_policy", "the list `request_mirror_policies`"),
    ("RouteAction", "auto_host_rewrite_header", "`host_rewrite_header`"),
    ("RouteMatch", "regex", "`safe_regex: {regex: …}`"),
    ("VirtualHost", "per_filter_config", "`typed_per_filter_config`"),
    ("Route", "per_filter_config", "`typed_per_filter_config`"),
    ("ClusterWeight", "per_filter_config", "`typed_per_filter_config`"),
    ("CorsPolicy", "allow_origin", "`allow_origin_string_match: [{exact: …}]`"),
    ("CorsPolicy", "allow_origin_regex", "`allow_origin_string_match: [{safe_regex: …}]`"),
    ("CorsPolicy", "enabled", "`filter_enabled`"),
    ("HeaderMatcher", "regex_match", "`string_match: {safe_regex: …}`"),
    ("HeaderMatcher", "exact_match", "`string_match: {exact: …}`"),
    ("HeaderMatcher", "prefix_match", "`string_match: {prefix: …}`"),
    ("HeaderMatcher", "suffix_match", "`string_match: {suffix: …}`"),
    ("HeaderMatcher", "contains_match", "`string_match: {contains: …}`"),
    ("HeaderMatcher", "safe_regex_match", "`string_match: {safe_regex: …}`"),
    ("QueryParameterMatcher", "value", "`string_match: {exact: …}`"),
    ("QueryParameterMatcher", "regex", "`string_match: {safe_regex: …}`"),
    ("StringMatcher", "regex", "`safe_regex: {regex: …}`"),
    ("HttpHealthCheck", "use_http2", "`codec_client_type: HTTP2`"),
    ("HttpHealthCheck", "service_name", "`service_name_matcher`"),
    (
        "HealthCheck",
        "redis_health_check",
        "`custom_health_check` with `envoy.extensions.health_checkers.redis.v3.Redis`",
    ),
    ("TcpProxy", "deprecated_v1", "filter chains with a `filter_chain_match` each"),
    ("CertificateValidationContext", "verify_subject_alt_name", "`match_typed_subject_alt_names`"),
    ("CertificateValidationContext", "match_subject_alt_names", "`match_typed_subject_alt_names`"),
    ("FileAccessLog", "format", "`log_format: {text_format_source: {inline_string: …}}`"),
    ("FileAccessLog", "json_format", "`log_format: {json_format: …}`"),
    ("ConfigSource", "path", "`path_config_source: {path: …}`"),
    ("Lua", "inline_code", "`default_source_code: {inline_string: …}`"),
];

const HTTP_OPTIONS: &str =
    "`typed_extension_protocol_options` with `envoy.extensions.upstreams.http.v3.HttpProtocolOptions`";

/// The v2 field by which an extension carried its configuration as a Struct.
pub const CONFIG: &str = "config";

/// The finding for a field that v3 does not have but v2 had: by the table, or because v3 keeps its name reserved.
pub fn removed_field(message: &MessageDescriptor, key: &str) -> Option<Diagnostic> {
    let new = replacement(message, key);
    let reserved = message.reserved_names().any(|name| name == key);
    if new.is_none() && !reserved && !(key == CONFIG && message.get_field_by_name("typed_config").is_some()) {
        return None;
    }
    let text = format!("`{key}` is a field of the v2 API, which Envoy removed");
    let diagnostic = Diagnostic::error("v2-field", text).help(MIGRATE);
    Some(match (new, key) {
        (Some(new), _) => diagnostic.expected(new.strip_prefix("use ").unwrap_or(&new).to_owned()),
        (None, CONFIG) => diagnostic.expected(format!("`typed_config` with `\"@type\": {TYPE_URL_PREFIX}…`")),
        (None, _) => diagnostic,
    })
}

/// "use …": what to write in place of a removed or deprecated field.
pub fn replacement(message: &MessageDescriptor, field: &str) -> Option<String> {
    let owns = |owner: &str| {
        let full = message.full_name();
        full.strip_suffix(owner).is_some_and(|rest| rest.ends_with('.'))
    };
    let found = REPLACEMENTS.iter().find(|(owner, name, _)| *name == field && owns(owner));
    found.map(|(_, _, new)| format!("use {new}"))
}

/// The field of the same message that took the place of a removed one.
pub fn successor(message: &MessageDescriptor, field: &str) -> Option<String> {
    let new = replacement(message, field)?;
    let name = new.split('`').nth(1)?.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).next()?;
    message.get_field_by_name(name).map(|field| field.name().to_owned())
}

/// Reads the v2 `config` of an extension whose name is known, and keeps it as the `typed_config` that it means.
/// False when this is no such field.
pub fn extension_config(decoder: &mut Decoder<'_>, message: &mut Message, pairs: &[Pair], pair: &Pair) -> bool {
    let Some(field) = message.descriptor.get_field_by_name("typed_config").filter(|_| pair.key == CONFIG) else {
        return false;
    };
    let name = pairs.iter().find(|pair| pair.key == "name").and_then(|pair| pair.value.text()).unwrap_or("");
    let Some((extension, descriptor)) = names::extension(name)
        .and_then(|extension| Some((extension, decoder.pool.get_message_by_name(extension.type_name)?)))
    else {
        return false;
    };
    let url = format!("{TYPE_URL_PREFIX}{}", extension.type_name);
    decoder.within(CONFIG, |decoder| {
        decoder.report(
            Diagnostic::error("v2-field", "`config` is a field of the v2 API, which Envoy removed")
                .at(pair.key_span)
                .expected(format!("`typed_config` with `\"@type\": {url}`"))
                .help(MIGRATE),
        );
    });
    decoder.within("typed_config", |decoder| {
        if let Some(inner) = decoder.message(&pair.value, &descriptor) {
            let (key_span, value_span) = (Some(pair.key_span), Some(pair.value.span));
            message.fields.push(Field { descriptor: field, value: any::of_message(inner), key_span, value_span });
        }
    });
    true
}

/// The v3 type of a v2 type name; `None` when the name is not of the v2 API.
pub fn type_in_v3(name: &str) -> Option<String> {
    if let Some((_, new)) = MOVED_TYPES.iter().find(|(old, _)| *old == name) {
        return Some((*new).to_owned());
    }
    let v2 = name.starts_with("envoy.api.v2.")
        || name.starts_with("envoy.config.") && name.split('.').any(|part| part == "v2" || part == "v2alpha")
        || name.starts_with("envoy.service.") && name.split('.').any(|part| part == "v2");
    if !v2 {
        return None;
    }
    // Extensions kept their last name: `envoy.config.filter.http.router.v2.Router` is `….http.router.v3.Router`.
    let last = name.rsplit('.').next()?;
    let family = name.rsplit('.').nth(2)?;
    let candidate = |full: &&str| full.ends_with(&format!(".{family}.v3.{last}"));
    postrider_envoy_proto::type_names().find(candidate).map(str::to_owned)
}

/// Types whose package changed more than its version.
const MOVED_TYPES: &[(&str, &str)] = &[
    ("envoy.api.v2.Cluster", "envoy.config.cluster.v3.Cluster"),
    ("envoy.api.v2.ClusterLoadAssignment", "envoy.config.endpoint.v3.ClusterLoadAssignment"),
    ("envoy.api.v2.Listener", "envoy.config.listener.v3.Listener"),
    ("envoy.api.v2.RouteConfiguration", "envoy.config.route.v3.RouteConfiguration"),
    ("envoy.api.v2.auth.DownstreamTlsContext", "envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext"),
    ("envoy.api.v2.auth.UpstreamTlsContext", "envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext"),
    ("envoy.api.v2.auth.Secret", "envoy.extensions.transport_sockets.tls.v3.Secret"),
    ("envoy.config.accesslog.v2.FileAccessLog", "envoy.extensions.access_loggers.file.v3.FileAccessLog"),
    (
        "envoy.config.accesslog.v2.HttpGrpcAccessLogConfig",
        "envoy.extensions.access_loggers.grpc.v3.HttpGrpcAccessLogConfig",
    ),
    (
        "envoy.config.accesslog.v2.TcpGrpcAccessLogConfig",
        "envoy.extensions.access_loggers.grpc.v3.TcpGrpcAccessLogConfig",
    ),
    ("envoy.config.filter.http.rate_limit.v2.RateLimit", "envoy.extensions.filters.http.ratelimit.v3.RateLimit"),
    ("envoy.config.filter.network.rate_limit.v2.RateLimit", "envoy.extensions.filters.network.ratelimit.v3.RateLimit"),
    (
        "envoy.config.filter.http.transcoder.v2.GrpcJsonTranscoder",
        "envoy.extensions.filters.http.grpc_json_transcoder.v3.GrpcJsonTranscoder",
    ),
    ("envoy.config.filter.accesslog.v2.AccessLog", "envoy.config.accesslog.v3.AccessLog"),
    (
        "envoy.config.transport_socket.raw_buffer.v2.RawBuffer",
        "envoy.extensions.transport_sockets.raw_buffer.v3.RawBuffer",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_entry_names_a_type_of_v3() {
        for (old, new) in MOVED_TYPES {
            assert!(postrider_envoy_proto::known_type(new), "{new}");
            assert!(!postrider_envoy_proto::known_type(old), "{old}");
        }
        for (old, new) in [
            (
                "envoy.config.filter.network.http_connection_manager.v2.HttpConnectionManager",
                "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
            ),
            ("envoy.config.filter.http.router.v2.Router", "envoy.extensions.filters.http.router.v3.Router"),
            (
                "envoy.config.filter.network.tcp_proxy.v2.TcpProxy",
                "envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy",
            ),
        ] {
            assert_eq!(type_in_v3(old).as_deref(), Some(new));
        }
        assert_eq!(type_in_v3("envoy.config.cluster.v3.Cluster"), None);
    }
}
