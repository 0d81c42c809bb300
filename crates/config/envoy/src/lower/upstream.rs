//! Options of the connections to a cluster: HTTP protocol options, keep-alive, source address.

use std::net::IpAddr;

use postrider_model::{TcpKeepalive, UpstreamOptions};

use super::address;
use super::context::{Lowering, timeout};
use super::http::{CONNECTION_IDLE_TIMEOUT, MAX_HEAD_KIB, MAX_HEADERS};
use crate::reader::Reader;

const HTTP_OPTIONS: &str = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions";

pub(super) fn options(cx: &mut Lowering<'_>, at: &Reader<'_>) -> UpstreamOptions {
    let mut options = UpstreamOptions {
        idle_timeout: Some(CONNECTION_IDLE_TIMEOUT),
        max_requests_per_connection: requests(at, "max_requests_per_connection"),
        max_connection_duration: None,
        max_response_headers: MAX_HEADERS,
        max_response_head_bytes: MAX_HEAD_KIB << 10,
        enable_trailers: false,
        keepalive: None,
        bind: None,
        auto_host_sni: false,
    };
    if let Some(common) = at.message("common_http_protocol_options") {
        self::common(&common, &mut options);
    }
    if let Some(http1) = at.message("http_protocol_options") {
        self::http1(&http1, &mut options);
    }
    if at.has("http2_protocol_options") {
        cx.refuse(at, "http2_protocol_options", "HTTP/2 to a cluster");
    }
    without_tls(at);
    for (key, any) in at.any_map("typed_extension_protocol_options") {
        let Some(config) = &any.reader else { continue };
        if any.type_name == HTTP_OPTIONS && key != HTTP_OPTIONS {
            let text = format!("options of this type stand under the key `{HTTP_OPTIONS}`, not `{key}`");
            cx.error(at, "typed_extension_protocol_options", "invalid-key", text);
        }
        if any.type_name == HTTP_OPTIONS {
            explicit(cx, config, &mut options);
        } else {
            config.read_whole();
            let text = format!("`{}`", any.type_name);
            cx.refuse_value(at, "typed_extension_protocol_options", &text);
        }
    }
    options.keepalive = at.message("upstream_connection_options").and_then(|connection| {
        connection.ignore("happy_eyeballs_config", "an endpoint has one address");
        connection.message("tcp_keepalive").map(|keepalive| address::keepalive(&keepalive))
    });
    if let Some(bind) = at.message("upstream_bind_config") {
        options.bind = self::bind(cx, &bind, &mut options.keepalive);
    }
    options
}

/// `HttpProtocolOptions` of the upstream extension.
fn explicit(cx: &mut Lowering<'_>, at: &Reader<'_>, options: &mut UpstreamOptions) {
    if let Some(common) = at.message("common_http_protocol_options") {
        self::common(&common, options);
    }
    without_tls(at);
    if at.has("http_filters") {
        cx.refuse(at, "http_filters", "HTTP filters on the upstream side");
    }
    match at.oneof("upstream_protocol_options") {
        Some("explicit_http_config") => {
            let Some(config) = at.message("explicit_http_config") else { return };
            match config.oneof("protocol_config") {
                Some("http2_protocol_options") => cx.refuse(&config, "http2_protocol_options", "HTTP/2 to a cluster"),
                Some("http3_protocol_options") => cx.refuse(&config, "http3_protocol_options", "HTTP/3 to a cluster"),
                _ => {
                    if let Some(http1) = config.message("http_protocol_options") {
                        self::http1(&http1, options);
                    }
                }
            }
        }
        Some("use_downstream_protocol_config") => {
            let Some(config) = at.message("use_downstream_protocol_config") else { return };
            if let Some(http1) = config.message("http_protocol_options") {
                self::http1(&http1, options);
            }
            config.whole("http2_protocol_options");
            config.ignore("http2_protocol_options", "clients speak HTTP/1");
            config.whole("http3_protocol_options");
            config.ignore("http3_protocol_options", "clients speak HTTP/1");
        }
        Some(other) => cx.refuse(at, other, "choosing the protocol by ALPN"),
        None => {}
    }
}

fn common(at: &Reader<'_>, options: &mut UpstreamOptions) {
    at.ignore("headers_with_underscores_action", "it is about requests of clients");
    options.idle_timeout = timeout(at, "idle_timeout", options.idle_timeout);
    options.max_connection_duration = timeout(at, "max_connection_duration", None);
    if let Some(headers) = at.u32_wrapper("max_headers_count") {
        options.max_response_headers = headers;
    }
    if let Some(kib) = at.u32_wrapper("max_response_headers_kb") {
        options.max_response_head_bytes = kib << 10;
    }
    options.max_requests_per_connection =
        requests(at, "max_requests_per_connection").or(options.max_requests_per_connection);
}

fn http1(at: &Reader<'_>, options: &mut UpstreamOptions) {
    for (field, why) in [
        ("allow_absolute_url", "it is about requests of clients"),
        ("accept_http_10", "it is about requests of clients"),
        ("default_host_for_http_10", "it is about requests of clients"),
        ("override_stream_error_on_invalid_http_message", "it is about requests of clients"),
        ("use_balsa_parser", "there is one parser"),
    ] {
        at.ignore(field, why);
    }
    options.enable_trailers = at.bool("enable_trailers");
}

fn without_tls(at: &Reader<'_>) {
    at.whole("upstream_http_protocol_options");
    at.ignore("upstream_http_protocol_options", "connections to clusters are not encrypted");
}

/// 0 is no limit.
fn requests(at: &Reader<'_>, field: &str) -> Option<u32> {
    at.u32_wrapper(field).filter(|requests| *requests != 0)
}

fn bind(cx: &mut Lowering<'_>, at: &Reader<'_>, keepalive: &mut Option<TcpKeepalive>) -> Option<IpAddr> {
    address::socket_options(cx, at, keepalive);
    let source = at.message("source_address")?;
    source.ignore("ipv4_compat", "it is about listeners");
    if source.u32("port_value") != 0 {
        cx.refuse_value(&source, "port_value", "a fixed source port");
    }
    let text = source.str("address");
    match text.parse::<IpAddr>() {
        Ok(ip) => (!ip.is_unspecified()).then_some(ip),
        Err(_) => {
            cx.error(&source, "address", "invalid-address", format!("`{text}` is no IP address"));
            None
        }
    }
}
