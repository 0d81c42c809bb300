//! The sets of the proxy itself, with Envoy's names and meanings.
//!
//! Dashboards and alerts are written for the names that Envoy shows, so all of them are shown. Those that nothing here can
//! change are in `unchanging`, each with its reason: nothing is stored for them. Tests hold the names against those that a
//! real Envoy prints, and look for whoever writes each of the others.

mod agreed;
mod apart;
mod clusters;
mod groups;
mod http_connections;
mod listeners;
mod process;
mod tracing;
mod unchanging;

pub use agreed::{Agreed, count_agreed};
pub use apart::{cluster_canary, cluster_zone_pair, count_canary_response, count_zone_response};
pub use clusters::{
    cluster, cluster_alternative, cluster_certificate, cluster_endpoint, cluster_health, cluster_health_named,
    cluster_http1, cluster_http2, cluster_maglev, cluster_manager, cluster_outlier, cluster_proxy, cluster_remaining,
    cluster_ring_hash, cluster_single_hosts, cluster_sizes, cluster_ssl, cluster_subsets, cluster_timeout_budget,
    cluster_transport, cluster_zones, count_alternative_response,
};
pub use groups::{count_group_response, group};
pub use http_connections::{CALLS, http, http_calls, http_routes, http1, http2};
pub use listeners::{
    connection_limit, http_inspector, listener, listener_certificate, listener_discovery, listener_http,
    listener_manager, listener_ssl, listener_worker, local_rate_limit, proxy_protocol, proxy_protocol_errors,
    tls_inspector,
};
pub use process::{
    access_log, clusters_of_thread, filesystem, filter, grpc_access_log, load_shed, overload, overload_action,
    overload_reset, overload_resource, overload_shrink, remote_code, remote_modules, runtime, server, stats_sinks,
    statsd, tcp, watchdog, watched_route,
};
pub use tracing::{http_tracing, open_telemetry_access_log, tracing_opentelemetry};

use super::block::Block;

/// Counts a finished downstream request in its connection manager: its status class, which adds to the completed ones.
#[inline]
pub fn count_downstream_response(block: &Block, status: u16) {
    use http::*;
    match status / 100 {
        1 => block.inc(DOWNSTREAM_RQ_1XX),
        2 => block.inc(DOWNSTREAM_RQ_2XX),
        3 => block.inc(DOWNSTREAM_RQ_3XX),
        4 => block.inc(DOWNSTREAM_RQ_4XX),
        5 => block.inc(DOWNSTREAM_RQ_5XX),
        _ => block.inc(DOWNSTREAM_RQ_COMPLETED),
    }
}

/// Counts a finished downstream request in its listener, as [`count_downstream_response`] does.
#[inline]
pub fn count_listener_response(block: &Block, status: u16) {
    use listener_http::*;
    match status / 100 {
        1 => block.inc(DOWNSTREAM_RQ_1XX),
        2 => block.inc(DOWNSTREAM_RQ_2XX),
        3 => block.inc(DOWNSTREAM_RQ_3XX),
        4 => block.inc(DOWNSTREAM_RQ_4XX),
        5 => block.inc(DOWNSTREAM_RQ_5XX),
        _ => block.inc(DOWNSTREAM_RQ_COMPLETED),
    }
}

/// Counts an upstream response's status in its cluster: completed, class and code, in all and by origin. `internal` is
/// Envoy's: the request came from inside (`x-envoy-internal: true`).
#[inline]
pub fn count_upstream_response(block: &Block, status: u16, internal: bool) {
    let family = match internal {
        true => cluster::INTERNAL_UPSTREAM_RQ_BY_CODE,
        false => cluster::EXTERNAL_UPSTREAM_RQ_BY_CODE,
    };
    block.count_code(family, status);
}

/// The same, but in all it is only one more that is completed.
#[cold]
pub fn count_upstream_response_by_origin(block: &Block, status: u16, internal: bool) {
    let family = match internal {
        true => cluster::INTERNAL_UPSTREAM_RQ_ALONE,
        false => cluster::EXTERNAL_UPSTREAM_RQ_ALONE,
    };
    block.count_code(family, status);
}

/// Counts an answer that was not passed on: the request is tried again.
pub fn count_retried_response(block: &Block, status: u16) {
    use cluster::*;
    block.inc(RETRY_UPSTREAM_RQ_COMPLETED);
    block.count_code(RETRY_UPSTREAM_RQ_BY_CODE, status);
    match status / 100 {
        2 => block.inc(RETRY_UPSTREAM_RQ_2XX),
        3 => block.inc(RETRY_UPSTREAM_RQ_3XX),
        4 => block.inc(RETRY_UPSTREAM_RQ_4XX),
        5 => block.inc(RETRY_UPSTREAM_RQ_5XX),
        _ => {}
    }
}

/// Records how long an upstream took to answer, in all and by origin, in milliseconds.
#[inline]
pub fn record_upstream_time(block: &Block, milliseconds: u64, internal: bool) {
    use cluster::*;
    block.record(if internal { INTERNAL_UPSTREAM_RQ_TIME } else { EXTERNAL_UPSTREAM_RQ_TIME }, milliseconds);
}

/// The part of a name that a listener's address takes: Envoy writes `:` as `_`.
pub fn scope_of_address(address: &str) -> String {
    address.replace(':', "_")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::{Registry, StatSet};
    use std::collections::BTreeSet;

    const ALL: [&StatSet; 47] = [
        &access_log::SET,
        &cluster_canary::SET,
        &cluster_zone_pair::SET,
        &cluster::SET,
        &cluster_http1::SET,
        &cluster_single_hosts::SET,
        &cluster_subsets::SET,
        &clusters_of_thread::SET,
        &cluster_health::SET,
        &cluster_health_named::SET,
        &cluster_maglev::SET,
        &cluster_manager::SET,
        &cluster_ring_hash::SET,
        &cluster_ssl::SET,
        &cluster_proxy::SET,
        &cluster_endpoint::SET,
        &cluster_sizes::SET,
        &cluster_timeout_budget::SET,
        &cluster_transport::SET,
        &connection_limit::SET,
        &local_rate_limit::SET,
        &filesystem::SET,
        &filter::SET,
        &group::SET,
        &grpc_access_log::SET,
        &http::SET,
        &http_calls::SET,
        &http_routes::SET,
        &http_tracing::SET,
        &tracing_opentelemetry::SET,
        &open_telemetry_access_log::SET,
        &http1::SET,
        &http2::SET,
        &cluster_http2::SET,
        &http_inspector::SET,
        &tls_inspector::SET,
        &listener::SET,
        &listener_discovery::SET,
        &listener_http::SET,
        &listener_manager::SET,
        &listener_ssl::SET,
        &listener_worker::SET,
        &overload::SET,
        &server::SET,
        &watchdog::SET,
        &tcp::SET,
        &ours::SET,
    ];

    crate::stat_set! {
        /// Of each kind one, to see that indices and names go together.
        pub mod ours = "ours";
        counters { FIRST = "first", SECOND = "second" }
        lazy_counters { LAZY = "lazy" }
        gauges { LEVEL = "level" }
        flags { OPEN = "open" }
        histograms { TIME = "time" Milliseconds }
        lazy_histograms { SIZE = "size" Bytes }
        codes { STATUS = "status_" }
    }

    #[test]
    fn sets_and_their_names_are_distinct() {
        assert_eq!(ALL.iter().map(|set| set.id).collect::<BTreeSet<_>>().len(), ALL.len());
        for set in ALL {
            let cells = set.shown().map(|stat| stat.name);
            let codes = set.codes.iter().copied().filter(|stem| !stem.is_empty());
            let names: Vec<_> = cells.chain(set.histograms.iter().map(|h| h.name)).chain(codes).collect();
            assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "{}", set.root);
        }
    }

    #[test]
    fn an_index_finds_its_name() {
        let registry = Registry::new();
        let worker = registry.worker(0);
        let block = worker.block(&ours::SET, "");
        block.add(ours::FIRST, 1);
        block.add(ours::SECOND, 2);
        block.add(ours::LAZY, 3);
        block.gauge_set(ours::LEVEL, 4);
        block.gauge_set(ours::OPEN, 5);
        block.record(ours::TIME, 6);
        block.record(ours::SIZE, 7);
        block.count_code(ours::STATUS, 599);
        block.count_code(ours::STATUS, 600);
        block.count_code(ours::STATUS, 99);
        let lines = crate::render::text(registry.read(&[]), Default::default());
        let text = String::from_utf8(lines.flatten().collect()).unwrap();
        let lines: Vec<_> = text.lines().filter_map(|line| line.split("(nan,").next()).collect();
        assert_eq!(
            lines,
            [
                "ours.first: 1",
                "ours.lazy: 3",
                "ours.level: 4",
                "ours.open: 5",
                "ours.second: 2",
                "ours.status_599: 1",
                "ours.size: P0",
                "ours.time: P0"
            ]
        );
    }

    #[test]
    #[should_panic(expected = "a counter of another set")]
    #[cfg(debug_assertions)]
    fn a_counter_of_another_set_is_a_bug_that_tests_find() {
        Registry::new().worker(0).block(&http::SET, "x").inc(cluster::UPSTREAM_CX_TOTAL);
    }

    #[test]
    fn an_answer_that_stands_alone_counts_for_its_origin_and_is_completed() {
        let registry = Registry::new();
        let of_cluster = registry.worker(0).block(&cluster::SET, "c");
        count_upstream_response(&of_cluster, 503, false);
        count_upstream_response_by_origin(&of_cluster, 503, false);
        count_upstream_response_by_origin(&of_cluster, 200, true);
        let query = crate::render::Query { used_only: true, ..Default::default() };
        let text = String::from_utf8(crate::render::text(registry.read(&[]), query).flatten().collect()).unwrap();
        let lines: Vec<_> = text.lines().filter(|line| line.contains("upstream_rq_")).collect();
        assert_eq!(
            lines,
            [
                "cluster.c.external.upstream_rq_503: 2",
                "cluster.c.external.upstream_rq_5xx: 2",
                "cluster.c.external.upstream_rq_completed: 2",
                "cluster.c.internal.upstream_rq_200: 1",
                "cluster.c.internal.upstream_rq_2xx: 1",
                "cluster.c.internal.upstream_rq_completed: 1",
                "cluster.c.upstream_rq_503: 1",
                "cluster.c.upstream_rq_5xx: 1",
                "cluster.c.upstream_rq_completed: 3",
            ]
        );
    }

    #[test]
    fn responses_count_in_class_and_code() {
        let registry = Registry::new();
        let worker = registry.worker(0);
        let (of_listener, of_http) = (worker.block(&listener_http::SET, "l"), worker.block(&http::SET, "h"));
        for status in [100, 204, 302, 404, 503, 999] {
            count_listener_response(&of_listener, status);
            count_downstream_response(&of_http, status);
        }
        of_http.inc(http::DOWNSTREAM_RQ_HTTP1_TOTAL);
        of_http.inc(http::DOWNSTREAM_RQ_HTTP2_TOTAL);
        let of_cluster = worker.block(&cluster::SET, "c");
        count_upstream_response(&of_cluster, 503, true);
        record_upstream_time(&of_cluster, 12, true);
        let chunks =
            crate::render::text(registry.read(&[]), crate::render::Query { used_only: true, ..Default::default() });
        let text = String::from_utf8(chunks.flatten().collect()).unwrap();
        for class in 1..=5 {
            assert!(text.contains(&format!("\nhttp.h.downstream_rq_{class}xx: 1\n")), "{text}");
            assert!(text.contains(&format!("\nlistener.l.downstream_rq_{class}xx: 1\n")), "{text}");
        }
        for sum in [
            "http.h.downstream_rq_completed: 6",
            "listener.l.downstream_rq_completed: 6",
            "http.h.downstream_rq_total: 2",
        ] {
            assert!(text.contains(sum), "{text}");
        }
        let names = text.lines().filter_map(|line| line.strip_prefix("cluster.c.")?.split(':').next());
        assert_eq!(
            names.collect::<Vec<_>>(),
            [
                "internal.upstream_rq_503",
                "internal.upstream_rq_5xx",
                "internal.upstream_rq_completed",
                "upstream_rq_503",
                "upstream_rq_5xx",
                "upstream_rq_completed",
                "warming_state",
                "internal.upstream_rq_time",
                "upstream_rq_time"
            ]
        );
        assert_eq!(scope_of_address("[::1]:80"), "[__1]_80");
    }
}
