//! Clusters.

use std::sync::Arc;
use std::time::Duration;

use postrider_config_core::Severity;
use postrider_model::{CheckKind, Cluster, Discovery, LoadBalancing, Thresholds, UpstreamProtocol};

use super::context::{Lowering, origin};
use super::{dns, endpoints, health, listener, original_dst, retry, transport, upstream};
use crate::reader::Reader;

/// `connect_timeout` where it is absent.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// `LeastRequestLbConfig.choice_count` where it is absent.
const CHOICES: u32 = 2;

const LEAST_REQUEST: &str = "envoy.extensions.load_balancing_policies.least_request.v3.LeastRequest";
const ROUND_ROBIN: &str = "envoy.extensions.load_balancing_policies.round_robin.v3.RoundRobin";
const RANDOM: &str = "envoy.extensions.load_balancing_policies.random.v3.Random";

pub(super) fn cluster(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Option<Cluster> {
    without_meaning_here(cx, at);
    let discovery = discovery(cx, at);
    let original = matches!(discovery, Some(Discovery::Original(_)));
    // Destinations are not chosen among.
    let policy = if original { LoadBalancing::default() } else { policy(cx, at) };
    if !original {
        at.ignore("cleanup_interval", "it is about clusters of original destinations");
        at.whole("original_dst_lb_config");
        at.ignore("original_dst_lb_config", "it is about clusters of original destinations");
    }
    let health = health::rules(cx, at);
    let (thresholds, high_thresholds) = thresholds(cx, at);
    let (upstream, names) = upstream::options(cx, at);
    let transport = transport::of_cluster(cx, at, &names);
    let over_grpc = health.checks.iter().any(|check| matches!(check.kind, CheckKind::Grpc(_)));
    if over_grpc && upstream.protocol == UpstreamProtocol::Http1 {
        let text = "a gRPC health check needs HTTP/2, and this cluster speaks HTTP/1.1";
        let diagnostic = at
            .diagnostic_at("health_checks", Severity::Error, "conflict", text)
            .help("give the cluster `http2_protocol_options` in `typed_extension_protocol_options`");
        cx.push(diagnostic);
    }
    let buffer_limit = listener::buffer_limit(cx, at);
    let stat_name = at.str("alt_stat_name");
    let cluster = Cluster {
        name: at.str("name").to_owned(),
        stat_name: (!stat_name.is_empty()).then(|| stat_name.to_owned()),
        discovery: Discovery::Static(Vec::new()),
        connect_timeout: at.duration("connect_timeout").unwrap_or(CONNECT_TIMEOUT),
        policy,
        health,
        thresholds,
        high_thresholds,
        buffer_limit,
        upstream,
        tls: None,
        proxy_header: None,
        origin: origin(at),
    };
    // A cluster whose transport was refused must not be spoken to in the clear.
    let transport = transport?;
    let tls = transport.tls.map(Arc::new);
    Some(Cluster { discovery: discovery?, tls, proxy_header: transport.proxy_header.map(Box::new), ..cluster })
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
            cx.refuse_value(at, "type", &format!("clusters of type {other}"));
            None
        }
    }
}

fn policy(cx: &mut Lowering<'_>, at: &Reader<'_>) -> LoadBalancing {
    if let Some(list) = at.message("load_balancing_policy") {
        at.ignore("lb_policy", "`load_balancing_policy` takes its place");
        return listed(cx, &list);
    }
    let name = at.enum_name("lb_policy");
    for (policy, config) in [
        ("ROUND_ROBIN", "round_robin_lb_config"),
        ("LEAST_REQUEST", "least_request_lb_config"),
        ("RING_HASH", "ring_hash_lb_config"),
        ("MAGLEV", "maglev_lb_config"),
    ] {
        if policy != name {
            at.ignore(config, "it belongs to another `lb_policy`");
        }
    }
    match name.as_str() {
        "ROUND_ROBIN" => {
            at.message("round_robin_lb_config");
            LoadBalancing::RoundRobin
        }
        "LEAST_REQUEST" => {
            let config = at.message("least_request_lb_config");
            LoadBalancing::LeastRequest {
                choices: config.and_then(|config| config.u32_wrapper("choice_count")).unwrap_or(CHOICES),
            }
        }
        "RANDOM" => LoadBalancing::Random,
        other => {
            cx.refuse_value(at, "lb_policy", &format!("the load balancing policy {other}"));
            LoadBalancing::default()
        }
    }
}

/// The first policy of the list that exists here; Envoy takes the first that it knows, too.
fn listed(cx: &mut Lowering<'_>, list: &Reader<'_>) -> LoadBalancing {
    let policies = list.list("policies");
    let mut refused = None;
    for policy in &policies {
        let Some(extension) = policy.message("typed_extension_config") else { continue };
        extension.str("name");
        let Some(any) = extension.any("typed_config") else { continue };
        let Some(config) = &any.reader else { continue };
        let found = match any.type_name {
            ROUND_ROBIN => LoadBalancing::RoundRobin,
            RANDOM => LoadBalancing::Random,
            LEAST_REQUEST => {
                if config.enum_name("selection_method") == "FULL_SCAN" {
                    cx.refuse_value(config, "selection_method", "a full scan of the endpoints");
                }
                LoadBalancing::LeastRequest { choices: config.u32_wrapper("choice_count").unwrap_or(CHOICES) }
            }
            _ => {
                refused.get_or_insert((extension, any));
                continue;
            }
        };
        for other in policies.iter().filter(|other| other.path() != policy.path()) {
            other.whole("typed_extension_config");
            other.ignore("typed_extension_config", "another policy of the list is used");
        }
        return found;
    }
    match refused {
        Some((extension, any)) => cx.refuse_extension(&extension, "typed_config", &any),
        None => cx.missing(list, "the list of policies is empty", "a policy with its `typed_extension_config`"),
    }
    LoadBalancing::default()
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
        };
        entry.ignore("max_connection_pools", "there is one pool per endpoint and worker");
        let priority = entry.enum_name("priority");
        let place = if priority == "HIGH" { &mut high } else { &mut normal };
        if place.is_some() {
            // Envoy takes the first entry of a priority and says nothing.
            cx.warn(&entry, "priority", "duplicate-thresholds", format!("only the first entry of {priority} counts"));
            continue;
        }
        *place = Some(read);
    }
    (normal.unwrap_or_default(), high.unwrap_or_default())
}

fn without_meaning_here(cx: &mut Lowering<'_>, at: &Reader<'_>) {
    at.whole("metadata");
    at.ignore("metadata", "no supported part reads it");
    if at.has("outlier_detection") {
        cx.refuse(at, "outlier_detection", "outlier detection");
    }
    if at.has("filters") {
        cx.refuse(at, "filters", "network filters on the upstream side");
    }
}
