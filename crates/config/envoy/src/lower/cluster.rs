//! Clusters.

use std::sync::Arc;
use std::time::Duration;

use postrider_config_core::Severity;
use postrider_model::{
    AccessLogSink, Balancing, CheckKind, Cluster, Discovery, Measures, Preconnect, Thresholds, UpstreamProtocol,
};

use super::context::{Lowering, origin, timeout};
use super::{
    balancing, dns, endpoints, health, listener, matchers, metadata, original_dst, outlier, retry, statistics,
    transport, upstream,
};
use crate::reader::Reader;

/// `connect_timeout` where it is absent.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// `ejections` is where the cluster manager logs hosts that are left out.
pub(super) fn cluster(cx: &mut Lowering<'_>, at: &Reader<'_>, ejections: Option<&AccessLogSink>) -> Option<Cluster> {
    without_meaning_here(cx, at);
    let discovery = discovery(cx, at);
    let original = matches!(discovery, Some(Discovery::Original(_)));
    // Destinations are not chosen among.
    let mut balancing = if original { Balancing::default() } else { balancing::balancing(cx, at) };
    let maintained = cx.runtime.integer(&format!("upstream.maintenance_mode.{}", at.str("name")));
    balancing.maintained = maintained.map_or(0, |percent| percent.min(100) as u32);
    balancing.retried = cx.runtime.integer("upstream.use_retry").map_or(100, |percent| percent.min(100) as u32);
    let preconnect = preconnect(cx, at);
    balancing.looks_ahead = preconnect.as_ref().is_some_and(|preconnect| preconnect.of_all > 1.0);
    if !matches!(discovery, Some(Discovery::StrictDns(_) | Discovery::LogicalDns(_))) {
        at.ignore("wait_for_warm_on_init", "it is about clusters of names");
    }
    if !original {
        at.ignore("cleanup_interval", "it is about clusters of original destinations");
        at.whole("original_dst_lb_config");
        at.ignore("original_dst_lb_config", "it is about clusters of original destinations");
    }
    if matches!(discovery, Some(Discovery::Static(_))) {
        endpoints::weights_fit(cx, at, &balancing);
    }
    let health = health::rules(cx, at);
    let (thresholds, high_thresholds) = thresholds(cx, at);
    let (upstream, names) = upstream::options(cx, at, &mut balancing);
    let transport = transport::of_cluster(cx, at, &names);
    let over_grpc = health.checks.iter().any(|check| matches!(check.kind, CheckKind::Grpc(_)));
    if over_grpc && upstream.protocol == UpstreamProtocol::Http1 {
        let text = "a gRPC health check needs HTTP/2, and this cluster speaks HTTP/1.1";
        let diagnostic = at
            .diagnostic_at("health_checks", Severity::Error, "conflict", text)
            .help("give the cluster `http2_protocol_options` in `typed_extension_protocol_options`");
        cx.push(diagnostic);
    }
    if upstream.errors.is_some() && !at.has("outlier_detection") {
        let field = "typed_extension_protocol_options";
        let text = "`error_matcher` has no effect: the cluster has no `outlier_detection`";
        cx.warn(at, field, "no-effect", text);
    }
    let buffer_limit = listener::buffer_limit(cx, at);
    let stat_name = at.str("alt_stat_name");
    let cluster = Cluster {
        name: at.str("name").to_owned(),
        metadata: at.has("metadata").then(|| Arc::new(metadata::with_messages(at))),
        told: statistics::own(cx, at),
        stat_name: (!stat_name.is_empty()).then(|| stat_name.to_owned()),
        discovery: Discovery::Static(Vec::new()),
        connect_timeout: at.duration("connect_timeout").unwrap_or(CONNECT_TIMEOUT),
        balancing,
        health,
        outliers: outlier::detection(cx, at, ejections).map(Box::new),
        thresholds,
        high_thresholds,
        preconnect,
        measures: measures(at),
        buffer_limit,
        full_buffer_timeout: timeout(at, listener::FULL_BUFFER_TIMEOUT, None),
        upstream,
        tls: None,
        proxy_header: None,
        transports: Vec::new(),
        origin: origin(at),
    };
    // A cluster whose transport was refused must not be spoken to in the clear.
    let (transport, transports) = transport?;
    let in_the_clear = transport.tls.is_none() || transports.iter().any(|transport| transport.tls.is_none());
    if cluster.upstream.protocol == UpstreamProtocol::Auto && in_the_clear {
        let text = "`auto_config` has TLS find out which protocol a host speaks, and connections in the clear cannot";
        let diagnostic = at
            .diagnostic_at("typed_extension_protocol_options", Severity::Error, "conflict", text)
            .expected("`explicit_http_config`; or `UpstreamTlsContext` for all connections of the cluster");
        cx.push(diagnostic);
    }
    let tls = transport.tls.map(Arc::new);
    let proxy_header = transport.proxy_header.map(Box::new);
    Some(Cluster { discovery: discovery?, tls, proxy_header, transports, ..cluster })
}

fn discovery(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Option<Discovery> {
    if let Some(custom) = at.message("cluster_type") {
        return dns::custom(cx, at, &custom);
    }
    match at.enum_name("type").as_str() {
        "STATIC" => {
            dns::unused(at);
            Some(Discovery::Static(endpoints::fixed(cx, at)?))
        }
        "STRICT_DNS" => Some(Discovery::StrictDns(dns::of_cluster(cx, at, false)?)),
        "LOGICAL_DNS" => Some(Discovery::LogicalDns(dns::of_cluster(cx, at, true)?)),
        "EDS" => {
            at.whole("eds_cluster_config");
            cx.refuse_value(at, "type", "endpoints from a control plane (EDS)");
            None
        }
        "ORIGINAL_DST" => Some(original_dst::of_cluster(cx, at)),
        other => {
            // What it would be made of is not at fault.
            at.whole("load_assignment");
            cx.refuse_value(at, "type", &format!("clusters of type {other}"));
            None
        }
    }
}

/// `track_cluster_stats`, and the field that came before it.
fn measures(at: &Reader<'_>) -> Measures {
    let older = at.bool("track_timeout_budgets");
    let Some(tracked) = at.message("track_cluster_stats") else {
        return Measures { timeout_budgets: older, ..Measures::default() };
    };
    Measures {
        timeout_budgets: tracked.bool("timeout_budgets") || older,
        sizes: tracked.bool("request_response_sizes"),
        endpoints: tracked.bool("per_endpoint_stats"),
    }
}

fn preconnect(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Option<Box<Preconnect>> {
    let at = at.message("preconnect_policy")?;
    let ratio = |field| at.f64_wrapper(field).unwrap_or(1.0);
    let (of_host, of_all) = (ratio("per_upstream_preconnect_ratio"), ratio("predictive_preconnect_ratio"));
    let hosts = at.message("preconnect_enabled_metadata").and_then(|condition| matchers::metadata(cx, &condition));
    (of_host > 1.0 || of_all > 1.0).then(|| Box::new(Preconnect { of_host, of_all, hosts }))
}

fn thresholds(cx: &mut Lowering<'_>, at: &Reader<'_>) -> (Thresholds, Thresholds) {
    let (mut normal, mut high) = (None, None);
    let breakers = at.message("circuit_breakers");
    for entry in breakers.iter().flat_map(|breakers| breakers.list("thresholds")) {
        let defaults = Thresholds::default();
        let read = Thresholds {
            max_connections: entry.u32_wrapper("max_connections").unwrap_or(defaults.max_connections),
            max_pending_requests: entry.u32_wrapper("max_pending_requests").unwrap_or(defaults.max_pending_requests),
            max_requests: entry.u32_wrapper("max_requests").unwrap_or(defaults.max_requests),
            max_retries: entry.u32_wrapper("max_retries").unwrap_or(defaults.max_retries),
            retry_budget: retry::budget(&entry),
            max_connection_pools: entry.u32_wrapper("max_connection_pools"),
            max_connections_per_host: None,
            track_remaining: entry.bool("track_remaining"),
        };
        let priority = entry.enum_name("priority");
        let place = if priority == "HIGH" { &mut high } else { &mut normal };
        if place.is_some() {
            // Envoy takes the first entry of a priority and says nothing.
            cx.warn(&entry, "priority", "duplicate-thresholds", format!("only the first entry of {priority} counts"));
            continue;
        }
        *place = Some(read);
    }
    let (mut normal, mut high) = (normal.unwrap_or_default(), high.unwrap_or_default());
    for entry in breakers.iter().flat_map(|breakers| breakers.list("per_host_thresholds")) {
        // As in Envoy, hosts have no other limit; whatever else is written is refused as unread.
        let limit = entry.u32_wrapper("max_connections");
        let place = if entry.enum_name("priority") == "HIGH" { &mut high } else { &mut normal };
        place.max_connections_per_host = place.max_connections_per_host.or(limit);
    }
    (normal, high)
}

fn without_meaning_here(cx: &mut Lowering<'_>, at: &Reader<'_>) {
    if at.has("filters") {
        cx.refuse(at, "filters", "network filters on the upstream side");
    }
}
