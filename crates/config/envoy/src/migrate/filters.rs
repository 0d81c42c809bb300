//! Extensions: names, `config` to `typed_config`, and the fields of single extensions that changed.

use super::document::{Body, Entry, Node};
use super::{Migration, names, typed, types, wrapped};

const HTTP_CONNECTION_MANAGER: &str =
    "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";

/// Rewrites whatever looks like an extension: `{name, config}`, `{name}` in a list of extensions, or `typed_config`.
pub fn extension(cx: &mut Migration, key: &str, node: &mut Node) {
    let listed = matches!(
        key,
        "filters"
            | "http_filters"
            | "listener_filters"
            | "access_log"
            | "stats_sinks"
            | "resource_monitors"
            | "upstream_log"
    );
    let single = matches!(key, "transport_socket" | "cluster_type" | "custom_health_check" | "http" | "provider");
    if node.get("name").is_some() && (listed || single) {
        configured(cx, node, key == "filters");
    }
    if node.get("@type").is_some() {
        types::type_url(cx, node);
        fields(cx, node);
    }
}

/// `{name, config}` or `{name}` to `{name, typed_config}`.
pub fn configured(cx: &mut Migration, node: &mut Node, network: bool) {
    let Some(name) = node.get("name").and_then(Node::as_text).map(str::to_owned) else { return };
    let place = |node: &Node, key: &str| node.entries().iter().find(|entry| entry.key == key).and_then(|e| e.span);
    let span = place(node, "name");
    let Some((new, kind)) = names::extension(&name, network) else {
        if let Some(config) = node.get("config") {
            let about = if config.entries().is_empty() { "nothing" } else { "`config`" };
            cx.impossible(
                place(node, "config"),
                format!("the type of `{name}` is not known, so {about} cannot be typed"),
            );
        }
        return;
    };
    if kind.is_empty() {
        cx.impossible(span, format!("Envoy no longer has `{name}`"));
        return;
    }
    if new != name {
        cx.note(span, format!("`{name}` is now `{new}`"));
        node.set("name", Node::text(new));
    }
    // `{}` has no type: what it was for is what the name says.
    let is_typed = |config: &Node| !config.is_map() || !config.entries().is_empty();
    if node.get("typed_config").is_some_and(is_typed) || node.get("config_discovery").is_some() {
        return;
    }
    let gzip = name.ends_with("gzip");
    match node.get("config").cloned() {
        Some(config) => {
            cx.note(place(node, "config"), format!("`config` of `{new}` is now `typed_config`"));
            let config = if gzip { compressor(&config) } else { config };
            node.replace("config", "typed_config", typed(kind, Some(config)));
        }
        None => {
            cx.note(span, format!("`{new}` needs a `typed_config`"));
            let config = gzip.then(|| compressor(&Node::empty()));
            node.set("typed_config", typed(kind, config));
        }
    }
}

/// `per_filter_config` of a virtual host, route or weighted cluster.
pub fn per_route(cx: &mut Migration, node: &mut Node) {
    cx.rename(node, "per_filter_config", "typed_per_filter_config");
    let Some(overrides) = node.get_mut("typed_per_filter_config") else { return };
    for entry in overrides.entries_mut().into_iter().flatten() {
        let Some((new, own)) = names::extension(&entry.key, false) else {
            if entry.node.get("@type").is_none() {
                cx.impossible(entry.span, format!("the type of `{}` is not known", entry.key));
            }
            continue;
        };
        if new != entry.key {
            cx.note(entry.span, format!("`{}` is now `{new}`", entry.key));
            new.clone_into(&mut entry.key);
        }
        if entry.node.get("@type").is_none() {
            let kind = names::OVERRIDES.iter().find(|(name, _)| *name == new).map_or(own, |(_, kind)| *kind);
            let config = std::mem::replace(&mut entry.node, Node::empty());
            entry.node = typed(kind, Some(config));
        }
    }
}

/// Fields of single extensions.
fn fields(cx: &mut Migration, config: &mut Node) {
    let url = config.get("@type").and_then(Node::as_text).unwrap_or_default().to_owned();
    match url.rsplit('/').next().unwrap_or_default() {
        HTTP_CONNECTION_MANAGER => connection_manager(cx, config),
        "envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy" => tcp_proxy(cx, config),
        "envoy.extensions.filters.network.redis_proxy.v3.RedisProxy" => redis_proxy(cx, config),
        "envoy.extensions.access_loggers.file.v3.FileAccessLog" => file_log(cx, config),
        "envoy.extensions.filters.http.lua.v3.Lua" => {
            cx.change(config, "inline_code", "default_source_code", |code| {
                Some(wrapped("inline_string", code.clone()))
            });
        }
        "envoy.extensions.filters.http.buffer.v3.Buffer" => {
            cx.drop(config, "max_request_time", "the request timeouts of the connection manager bound it");
        }
        "envoy.extensions.filters.http.health_check.v3.HealthCheck" => {
            cx.change(config, "endpoint", "headers", |path| {
                let mut header = Node::map(vec![Entry::new("name", Node::text(":path"))]);
                header.set("string_match", wrapped("exact", path.clone()));
                Some(Node::list(vec![header]))
            });
        }
        "envoy.extensions.filters.http.fault.v3.HTTPFault" => {
            for part in ["abort", "delay"] {
                let Some(part) = config.get_mut(part) else { continue };
                part.take("type");
                cx.change(part, "percent", "percentage", |percent| Some(wrapped("numerator", percent.clone())));
            }
        }
        "envoy.extensions.filters.http.ext_authz.v3.ExtAuthz"
        | "envoy.extensions.filters.network.ext_authz.v3.ExtAuthz" => {
            config.take("use_alpha");
            api_version(cx, config);
        }
        "envoy.extensions.filters.http.ratelimit.v3.RateLimit"
        | "envoy.extensions.filters.network.ratelimit.v3.RateLimit" => {
            if let Some(service) = config.get_mut("rate_limit_service") {
                api_version(cx, service);
            }
        }
        "envoy.extensions.access_loggers.grpc.v3.HttpGrpcAccessLogConfig"
        | "envoy.extensions.access_loggers.grpc.v3.TcpGrpcAccessLogConfig" => {
            if let Some(common) = config.get_mut("common_config") {
                api_version(cx, common);
            }
        }
        "envoy.config.metrics.v3.MetricsServiceConfig" => api_version(cx, config),
        _ => {}
    }
}

/// gRPC services speak v3 only, and absence meant v2.
fn api_version(cx: &mut Migration, node: &mut Node) {
    let speaks = node.get("grpc_service").is_some();
    if speaks && node.get("transport_api_version").and_then(Node::as_text) != Some("V3") {
        let span = node.entries().first().and_then(|entry| entry.span);
        node.set("transport_api_version", Node::plain("V3"));
        cx.note(span, "`transport_api_version` is V3");
    }
}

fn connection_manager(cx: &mut Migration, config: &mut Node) {
    if let Some(entry) = config.take("idle_timeout") {
        match config.get_mut("common_http_protocol_options") {
            Some(common) => common.set("idle_timeout", entry.node),
            None => config.set("common_http_protocol_options", wrapped("idle_timeout", entry.node)),
        }
        cx.note(entry.span, "`idle_timeout` is now `common_http_protocol_options.idle_timeout`");
    }
    if let Some(details) = config.get_mut("set_current_client_cert_details") {
        cx.rename(details, "san", "uri");
    }
    let Some(tracing) = config.get_mut("tracing") else { return };
    cx.drop(tracing, "operation_name", "the listener's `traffic_direction` says it");
    cx.change(tracing, "request_headers_for_tags", "custom_tags", |headers| {
        let mut tags = Vec::new();
        for header in headers.entries() {
            let name = header.node.as_text()?;
            let mut tag = Node::map(vec![Entry::new("tag", Node::text(name))]);
            tag.set("request_header", wrapped("name", Node::text(name)));
            tags.push(tag);
        }
        Some(Node::list(tags))
    });
}

fn tcp_proxy(cx: &mut Migration, config: &mut Node) {
    let Some(entry) = config.take("deprecated_v1") else { return };
    let routes: Vec<&Node> = entry.node.get("routes").into_iter().flat_map(Node::entries).map(|e| &e.node).collect();
    match routes.as_slice() {
        [only] if only.entries().len() == 1 && only.get("cluster").is_some() => {
            if let Some(cluster) = only.get("cluster") {
                config.set("cluster", cluster.clone());
            }
            cx.note(entry.span, "the route of `deprecated_v1` is now `cluster`");
        }
        _ => {
            cx.impossible(entry.span, "routes of `deprecated_v1` need a filter chain each, with a `filter_chain_match`")
        }
    }
}

fn redis_proxy(cx: &mut Migration, config: &mut Node) {
    let Some(entry) = config.take("cluster") else { return };
    let route = wrapped("catch_all_route", wrapped("cluster", entry.node));
    config.set("prefix_routes", route);
    cx.note(entry.span, "`cluster` is now `prefix_routes.catch_all_route.cluster`");
}

fn file_log(cx: &mut Migration, config: &mut Node) {
    cx.change(config, "format", "log_format", |text| {
        Some(wrapped("text_format_source", wrapped("inline_string", text.clone())))
    });
    for old in ["json_format", "typed_json_format"] {
        cx.change(config, old, "log_format", |json| Some(wrapped("json_format", json.clone())));
    }
}

/// The gzip filter's settings as those of the compressor with the gzip library.
fn compressor(old: &Node) -> Node {
    const LIBRARY: &str = "envoy.extensions.compression.gzip.compressor.v3.Gzip";
    let mut direction = Node::map(Vec::new());
    let mut common = Node::map(Vec::new());
    let mut library = typed(LIBRARY, None);
    for entry in old.entries() {
        let node = entry.node.clone();
        match entry.key.as_str() {
            "content_length" => common.set("min_content_length", node),
            "content_type" => common.set("content_type", node),
            "disable_on_etag_header" | "remove_accept_encoding_header" => direction.set(&entry.key, node),
            "compression_level" => library.set(
                "compression_level",
                Node::plain(match node.as_text() {
                    Some("BEST") => "BEST_COMPRESSION",
                    Some("SPEED") => "BEST_SPEED",
                    _ => "DEFAULT_COMPRESSION",
                }),
            ),
            "compression_strategy" => library.set(
                "compression_strategy",
                Node::plain(match node.as_text() {
                    Some("FILTERED") => "FILTERED",
                    Some("HUFFMAN") => "HUFFMAN_ONLY",
                    Some("RLE") => "RLE",
                    _ => "DEFAULT_STRATEGY",
                }),
            ),
            other => library.set(other, node),
        }
    }
    if let Body::Map(entries) = &common.body
        && !entries.is_empty()
    {
        direction.set("common_config", common);
    }
    let mut config = Node::map(Vec::new());
    if !direction.entries().is_empty() {
        config.set("response_direction_config", direction);
    }
    let mut named = Node::map(vec![Entry::new("name", Node::text("gzip"))]);
    named.set("typed_config", library);
    config.set("compressor_library", named);
    config
}
