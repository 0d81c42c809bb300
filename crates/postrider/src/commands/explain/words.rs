//! What both renderers say about the same values.

use std::time::Duration;

use postrider_model::{
    ChainLimit, ConnectionHandler, Discovery, FilterChain, GrpcTimeout, LoadBalancing, PathMatch, Route,
};

use super::journey::{End, Journey, Winner};

pub fn discovery(discovery: &Discovery) -> &'static str {
    match discovery {
        Discovery::Static(_) => "static",
        Discovery::StrictDns(_) => "strict DNS",
        Discovery::LogicalDns(_) => "logical DNS",
        Discovery::Original(_) => "original destinations",
    }
}

pub fn policy(policy: &LoadBalancing) -> &'static str {
    match policy {
        LoadBalancing::RoundRobin { .. } => "round robin",
        LoadBalancing::LeastRequest(_) => "least request",
        LoadBalancing::PeakEwma(_) => "peak EWMA",
        LoadBalancing::Random => "random",
        LoadBalancing::RingHash(_) => "ring hash",
        LoadBalancing::Maglev(_) => "Maglev",
    }
}

/// What a connection has to pass before it is served, in order: what it is called, and the dialect's path to it where there
/// is one.
pub fn gates(chain: &FilterChain) -> impl Iterator<Item = (String, Option<&str>)> {
    let limits = chain.limits.iter().map(|limit| match limit {
        ChainLimit::Held(held) => format!("at most {} connections (connection_limit.{})", held.most, held.stat_prefix),
        ChainLimit::Rate(rate) => {
            let interval = rate.fill_interval.as_secs_f64();
            format!("{} connections in {interval} s (local_rate_limit.{})", rate.tokens_per_fill, rate.stat_prefix)
        }
    });
    let guards = chain.guards.iter().map(|guard| (guard.name.clone(), Some(guard.origin.0.as_str())));
    limits.map(|limit| (limit, None)).chain(guards)
}

/// What the route wants of a path, so that one without a name can be told from the others.
pub fn path_match(route: &Route) -> String {
    match &route.matches.path {
        PathMatch::Prefix(path) => format!("prefix {path}"),
        PathMatch::Exact(path) => format!("path {path}"),
        PathMatch::SeparatedPrefix(path) => format!("{path} and below"),
        PathMatch::Regex(regex) => format!("regex {}", regex.as_str()),
        PathMatch::Connect => "CONNECT".to_owned(),
    }
}

/// Each limit in time that holds for the request; `None` is no limit.
pub fn timeouts(winner: &Winner<'_>, journey: &Journey<'_>) -> Vec<(String, Option<Duration>)> {
    let mut all = Vec::new();
    let mut add = |name: &str, limit| all.push((name.to_owned(), limit));
    let connection = journey.http.map(|http| &http.model.timeouts);
    if let Some(timeouts) = connection {
        add("request_headers", timeouts.request_headers);
        add("request", timeouts.request);
    }
    let mut stream_idle = connection.and_then(|timeouts| timeouts.stream_idle);
    let mut own_duration = None;
    if let End::Forward { forward, .. } = &winner.end {
        add("route", forward.timeout);
        stream_idle = forward.idle_timeout.unwrap_or(stream_idle);
        own_duration = forward.stream_limit.and_then(|limit| limit.duration);
        if let Some(GrpcTimeout { max, .. }) = forward.grpc_timeout {
            add("grpc_timeout", max);
        }
        if let Some(max) = forward.stream_limit.and_then(|limit| limit.grpc_timeout_max) {
            add("grpc_timeout", max);
        }
    }
    add("stream_idle", stream_idle);
    if let Some(timeouts) = connection {
        add("max_stream_duration", own_duration.unwrap_or(timeouts.max_stream_duration));
        add("connection_idle", timeouts.connection_idle);
    }
    all
}

/// The clusters, with their weights, of a chain that carries bytes.
pub fn tcp_clusters<'j>(journey: &'j Journey<'_>) -> impl Iterator<Item = (&'j str, u32)> {
    let tcp = journey.chain.and_then(|chain| match &chain.model.handler {
        ConnectionHandler::Tcp(tcp) => Some(tcp),
        ConnectionHandler::Http(_)
        | ConnectionHandler::Echo
        | ConnectionHandler::Say(_)
        | ConnectionHandler::Filters => None,
    });
    tcp.into_iter().flat_map(|tcp| tcp.clusters.iter().map(|cluster| (cluster.cluster.as_str(), cluster.weight)))
}
