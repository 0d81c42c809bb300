//! The TCP proxy.

use std::time::Duration;

use postrider_model::{BackOff, LogMoments, MetadataKey, TcpCluster, TcpProxy, TunnelId, Tunneling};

use super::access_log;
use super::context::{ClusterUse, Lowering, origin, timeout};
use super::{detection, formatters, hash_policy, headers, proxy_header, subsets};
use crate::reader::Reader;

/// `TcpProxy.idle_timeout` where it is absent.
const IDLE_TIMEOUT: Duration = Duration::from_secs(3600);

pub(super) fn proxy(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Option<TcpProxy> {
    let clusters = clusters(cx, at);
    let max_connect_attempts = at.u32_wrapper("max_connect_attempts").unwrap_or(1);
    let back_off = at.message("backoff_options").and_then(|place| back_off(cx, &place));
    if max_connect_attempts <= 1 {
        at.ignore("backoff_options", "there is a single attempt");
    }
    for field in ["downstream_idle_timeout", "upstream_idle_timeout"] {
        at.ignore(field, "Envoy does nothing with it either: `idle_timeout` is the one");
    }
    if let Some(on_demand) = at.message("on_demand")
        && !on_demand.has("odcds_config")
    {
        for field in ["resources_locator", "timeout"] {
            on_demand.ignore(field, "nothing is discovered without `odcds_config`");
        }
    }
    let proxy = TcpProxy {
        stat_prefix: at.str("stat_prefix").to_owned(),
        clusters,
        weighted: at.oneof("cluster_specifier") == Some("weighted_clusters"),
        idle_timeout: timeout(at, "idle_timeout", Some(IDLE_TIMEOUT)),
        max_connection_duration: timeout(at, "max_downstream_connection_duration", None),
        max_connection_duration_jitter: jitter(at),
        awaits_data: awaited_data(cx, at),
        ends_while_draining: at.bool_wrapper("check_drain_close").unwrap_or(false),
        max_connect_attempts,
        back_off,
        tunneling: at.message("tunneling_config").map(|config| tunneling(cx, &config)),
        hash: hash_policy::of_connection(cx, at),
        access_log: access_log::loggers(cx, at, "access_log"),
        log_moments: log_moments(cx, at),
        tlvs: proxy_header::of_connection(cx, at),
        origin: origin(at),
    };
    // A proxy without a cluster is the result of an error.
    (!proxy.clusters.is_empty()).then_some(proxy)
}

/// `backoff_options`: the wait between attempts.
fn back_off(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Option<BackOff> {
    let base = at.duration("base_interval")?;
    let max = at.duration("max_interval").unwrap_or(base.saturating_mul(10));
    if max < base {
        cx.error(at, "max_interval", "invalid-interval", "the longest wait is shorter than the first");
    }
    Some(BackOff { base, max })
}

/// In percent of the longest duration, where there is one.
fn jitter(at: &Reader<'_>) -> f64 {
    const FIELD: &str = "max_downstream_connection_duration_jitter_percentage";
    if !at.has("max_downstream_connection_duration") {
        at.ignore(FIELD, "connections may last as long as they like");
    }
    at.message(FIELD).map_or(0.0, |percent| percent.f64("value"))
}

/// How much is read before the endpoint is asked for, where the client's first word is waited for.
fn awaited_data(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Option<u32> {
    const LIMIT: &str = "max_early_data_bytes";
    let mode = at.enum_name("upstream_connect_mode");
    if mode != "IMMEDIATE" && !at.has(LIMIT) {
        cx.missing(at, format!("`upstream_connect_mode: {mode}` needs `{LIMIT}`"), "a number of bytes, or 0");
    }
    if mode != "ON_DOWNSTREAM_DATA" {
        at.ignore(LIMIT, "what comes early waits in the socket");
        return None;
    }
    at.u32_wrapper(LIMIT)
}

/// `access_log_options`, or the two fields that came before it; both at once are an error in Envoy, too.
fn log_moments(cx: &mut Lowering<'_>, at: &Reader<'_>) -> LogMoments {
    let mut moments = LogMoments {
        start: false,
        connected: at.bool("flush_access_log_on_connected"),
        every: at.duration("access_log_flush_interval"),
    };
    let Some(options) = at.message("access_log_options") else { return moments };
    if moments != LogMoments::default() {
        let text = "the older fields for the same and `access_log_options` do not go together";
        cx.error(at, "access_log_options", "conflict", text);
    }
    moments.start = options.bool("flush_access_log_on_start");
    moments.connected = options.bool("flush_access_log_on_connected");
    moments.every = options.duration("access_log_flush_interval");
    moments
}

fn tunneling(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Tunneling {
    let hostname = at.str("hostname");
    Tunneling {
        hostname: cx.format(at, "hostname", hostname),
        headers: formatters::with(cx, at, |cx| headers::additions(cx, at, "headers_to_add")),
        post_path: post_path(cx, at),
        keeps_headers: at.bool("propagate_response_headers"),
        keeps_trailers: at.bool("propagate_response_trailers"),
        request_id: request_id(cx, at),
    }
}

/// `request_id_extension`, without which its header and key mean nothing.
fn request_id(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Option<TunnelId> {
    const HEADER: &str = "request_id_header";
    const KEY: &str = "request_id_metadata_key";
    if !at.has("request_id_extension") {
        for field in [HEADER, KEY] {
            cx.no_effect(at, field, "tunnels have no id without `request_id_extension`");
        }
        return None;
    }
    detection::packs_trace_reason(cx, at);
    let header = match at.str(HEADER) {
        "" => "x-request-id".to_owned(),
        _ => headers::edited_name(cx, at, HEADER)?,
    };
    let key = match at.str(KEY) {
        "" => "tunnel_request_id",
        key => key,
    };
    let namespace = "envoy.filters.network.tcp_proxy".to_owned();
    Some(TunnelId { header, noted_at: MetadataKey { namespace, path: vec![key.to_owned()] } })
}

/// Where a POST in place of the CONNECT goes, if it is to be one.
fn post_path(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Option<String> {
    let path = at.str("post_path").to_owned();
    match (at.bool("use_post"), path.as_str()) {
        (false, "") => return None,
        (false, _) => {
            let text = "a CONNECT has no path: `post_path` needs `use_post: true`";
            cx.error(at, "post_path", "conflict", text);
        }
        (true, "") => return Some("/".to_owned()),
        (true, path)
            if !path.starts_with('/') || path.bytes().any(|byte| byte <= b' ' || matches!(byte, 0x7f | b'#')) =>
        {
            let text = "a path begins with a slash and has no spaces, control characters or `#` in it";
            cx.error(at, "post_path", "invalid-path", text);
        }
        (true, _) => {}
    }
    Some(path)
}

fn clusters(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Vec<TcpCluster> {
    let mut all = Vec::new();
    let labels = subsets::wanted(cx, at);
    match at.oneof("cluster_specifier") {
        Some("cluster") => {
            let name = at.str("cluster").to_owned();
            uses(cx, at, "cluster", &name);
            all.push(TcpCluster { cluster: name, weight: 1, labels });
        }
        Some(_) => {
            let weighted = at.message("weighted_clusters");
            for entry in weighted.iter().flat_map(|weighted| weighted.list("clusters")) {
                let name = entry.str("name").to_owned();
                uses(cx, &entry, "name", &name);
                let labels = subsets::wanted_with(cx, &entry, labels.as_ref());
                all.push(TcpCluster { cluster: name, weight: entry.u32("weight"), labels });
            }
        }
        None => cx.missing(at, "the TCP proxy has no cluster", "`cluster` or `weighted_clusters`"),
    }
    all
}

/// Envoy accepts a TCP proxy to a cluster that does not exist, so this is no error.
fn uses(cx: &mut Lowering<'_>, at: &Reader<'_>, field: &str, name: &str) {
    cx.cluster_uses.push(ClusterUse {
        name: name.to_owned(),
        span: at.span_of(field),
        path: at.path_of(field),
        required: false,
    });
}
