//! Which counters and gauges were ever written: what `usedonly` asks for. Envoy notes it with each write; here nothing notes
//! it while requests are served, and readers find it out.
//!
//! A counter was written if it ever counted something, be it before it was reset. A gauge was written if it is not zero, if
//! some reader saw it so, if it is computed for readers, or if a counter that is counted together with it was written.

use super::set::StatSet;

/// Some of the cells of a set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Used(Vec<u64>);

impl Used {
    pub(crate) fn add(&mut self, cell: usize) {
        let word = cell / 64;
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        if let Some(word) = self.0.get_mut(word) {
            *word |= 1 << (cell % 64);
        }
    }

    pub(crate) fn has(&self, cell: usize) -> bool {
        self.0.get(cell / 64).is_some_and(|word| word >> (cell % 64) & 1 == 1)
    }
}

/// Shown as zero whatever happens, and written by Envoy when it starts.
pub(crate) fn is_written_zero(name: &str) -> bool {
    const WRITTEN: [&str; 7] = [
        "compilation_settings.fips_mode",
        "dynamic_unknown_fields",
        "static_unknown_fields",
        "total_listeners_warming",
        "warming_clusters",
        "warming_state",
        "wip_protos",
    ];
    WRITTEN.contains(&name)
}

/// Whether it is written wherever it is computed. What a circuit breaker says of itself is written with what it bounds.
pub(crate) fn is_written_when_computed(name: &str) -> bool {
    !name.starts_with("circuit_breakers.")
}

/// The gauges of a set that go up and down with what a counter of it counts, by their cells.
pub(crate) fn companions(set: &StatSet) -> Vec<(u16, u16)> {
    let gauges = set.cells.iter().enumerate().filter(|(_, stat)| !stat.kind.is_counter());
    let companion = |(gauge, stat): (usize, &super::Stat)| {
        let wanted = companion(stat.name)?;
        let counter = set.cells.iter().position(|stat| stat.kind.is_counter() && stat.name == wanted)?;
        Some((gauge as u16, counter as u16))
    };
    gauges.filter_map(companion).collect()
}

fn companion(gauge: &str) -> Option<String> {
    let named = match gauge {
        "circuit_breakers.default.cx_open" | "circuit_breakers.default.cx_pool_open" => "upstream_cx_total",
        "circuit_breakers.default.rq_open" => "upstream_rq_total",
        "circuit_breakers.default.rq_pending_open" => "upstream_rq_pending_total",
        "circuit_breakers.default.rq_retry_open" => "upstream_rq_retry",
        "downstream_pre_cx_active" => "downstream_cx_total",
        "health_check.healthy" => "health_check.success",
        "outlier_detection.ejections_active" => "outlier_detection.ejections_enforced_total",
        _ => {
            let active = gauge.strip_suffix("_active").map(|stem| format!("{stem}_total"));
            return active
                .or_else(|| gauge.strip_suffix("_rx_bytes_buffered").map(|it| format!("{it}_rx_bytes_total")));
        }
    };
    Some(named.to_owned())
}

#[cfg(test)]
mod tests {
    use crate::render::{PrometheusForm, Query, Tagger, prometheus, text};
    use crate::stats::sets::{cluster, count_upstream_response, overload_resource};
    use crate::stats::{KnownScope, Registry};

    fn used(registry: &Registry, known: &[KnownScope]) -> Vec<String> {
        let query = Query { used_only: true, ..Query::default() };
        let text = String::from_utf8(text(registry.read(known), query).flatten().collect()).unwrap();
        let is_cell = |line: &&str| !line.contains("P0(") && !line.contains("warming_state");
        text.lines().filter(is_cell).map(str::to_owned).collect()
    }

    #[test]
    fn gauges_that_fell_to_zero_were_gone() {
        let registry = Registry::new();
        let block = registry.worker(0).block(&overload_resource::SET, "r");
        block.gauge_set(overload_resource::PRESSURE, 7);
        assert_eq!(used(&registry, &[]), ["overload.r.pressure: 7"]);
        block.gauge_set(overload_resource::PRESSURE, 0);
        assert_eq!(used(&registry, &[]), ["overload.r.pressure: 0"], "a reader saw that it was written");
        assert!(used(&Registry::new(), &[KnownScope::new(&overload_resource::SET, "r")]).is_empty());
    }

    #[test]
    fn gauges_of_what_came_and_went_unseen_are_used() {
        let registry = Registry::new();
        let block = registry.worker(0).block(&cluster::SET, "c");
        block.inc(cluster::UPSTREAM_CX_TOTAL);
        block.gauge_inc(cluster::UPSTREAM_CX_ACTIVE);
        block.gauge_dec(cluster::UPSTREAM_CX_ACTIVE);
        let wanted = [
            "cluster.c.circuit_breakers.default.cx_open: 0",
            "cluster.c.circuit_breakers.default.cx_pool_open: 0",
            "cluster.c.upstream_cx_active: 0",
            "cluster.c.upstream_cx_total: 1",
        ];
        assert_eq!(used(&registry, &[]), wanted);
    }

    #[test]
    fn a_cluster_whose_only_host_failed_had_no_series() {
        let mut known = KnownScope::new(&cluster::SET, "c");
        known.computed = vec![(cluster::MEMBERSHIP_HEALTHY, 0), (cluster::CIRCUIT_BREAKERS_DEFAULT_CX_OPEN, 0)];
        let query = || Query { used_only: true, ..Query::default() };
        let healthy = "envoy_cluster_membership_healthy{envoy_cluster_name=\"c\"} 0\n";
        for form in [PrometheusForm::Text, PrometheusForm::Protobuf] {
            let read = Registry::new().read(std::slice::from_ref(&known));
            let chunks: Vec<u8> = prometheus(read, query(), Tagger::default(), form).flatten().collect();
            let shown = String::from_utf8_lossy(&chunks).into_owned();
            assert!(shown.contains("envoy_cluster_membership_healthy"), "{form:?}: {shown}");
            assert!(!shown.contains("cx_open"), "{form:?}: {shown}");
            assert!(form == PrometheusForm::Protobuf || shown.contains(healthy), "{shown}");
        }
    }

    #[test]
    fn counters_that_were_reset_were_gone() {
        let registry = Registry::new();
        let block = registry.worker(0).block(&cluster::SET, "c");
        block.inc(cluster::UPSTREAM_RQ_TIMEOUT);
        count_upstream_response(&block, 204, false);
        let before = used(&registry, &[]);
        registry.reset_counters(&[]);
        let zeros: Vec<_> = before.iter().map(|line| line.replace(": 1", ": 0")).collect();
        assert_eq!(used(&registry, &[]), zeros);
        assert!(zeros.contains(&"cluster.c.upstream_rq_204: 0".to_owned()), "{zeros:?}");
        drop(block);
        assert_eq!(used(&registry, &[]), zeros, "it outlives the worker");
    }
}
