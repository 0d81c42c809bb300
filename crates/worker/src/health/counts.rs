//! What is counted of a check: with the cluster's checks, or under the name of its own that it has.

use std::rc::Rc;

use postrider_model::HealthCheck;
use postrider_telemetry::Block;
use postrider_telemetry::stats::Counter;
use postrider_telemetry::stats::sets::{cluster_health as plain, cluster_health_named as named};
use postrider_upstream::health::Outcome;

use crate::cluster::Cluster;
use crate::worker::Worker;

/// The statistics of one check.
pub(super) struct Counts {
    stats: Rc<Block>,
    named: bool,
}

impl Counts {
    pub(super) fn of(cluster: &Cluster, check: &HealthCheck, worker: &Worker) -> Counts {
        let named = !check.name.is_empty();
        let stats = match named {
            false => cluster.health_stats(worker).clone(),
            true => worker.stats.block(&named::SET, &named_check_prefix(&cluster.stat_prefix(), &check.name)),
        };
        Counts { stats, named }
    }

    pub(super) fn begun(&self) {
        self.inc(plain::ATTEMPT, named::ATTEMPT);
    }

    pub(super) fn verified(&self) {
        self.inc(plain::VERIFY_CLUSTER, named::VERIFY_CLUSTER);
    }

    /// A server of Redis has the key that takes it out of service, or does not say.
    pub(super) fn exists(&self) {
        self.inc(plain::REDIS_EXISTS_FAILURE, named::REDIS_EXISTS_FAILURE);
    }

    pub(super) fn ended(&self, outcome: Outcome) {
        match outcome {
            Outcome::Healthy { .. } => self.inc(plain::SUCCESS, named::SUCCESS),
            Outcome::Refused { .. } => self.inc(plain::FAILURE, named::FAILURE),
            Outcome::Resigned => {
                self.inc(plain::FAILURE, named::FAILURE);
                self.inc(plain::PASSIVE_FAILURE, named::PASSIVE_FAILURE);
            }
            Outcome::Unreachable | Outcome::TimedOut => {
                self.inc(plain::FAILURE, named::FAILURE);
                self.inc(plain::NETWORK_FAILURE, named::NETWORK_FAILURE);
            }
        }
    }

    /// How many hosts pass this check; those that pass all are counted with the cluster.
    pub(super) fn set_passing(&self, healthy: u64, degraded: u64) {
        if self.named {
            self.stats.gauge_set(named::HEALTHY, healthy);
            self.stats.gauge_set(named::DEGRADED, degraded);
        }
    }

    fn inc(&self, unnamed: Counter, own: Counter) {
        self.stats.inc(if self.named { own } else { unnamed });
    }
}

/// Under what the statistics of a check with a name are found.
pub fn named_check_prefix(cluster: &str, name: &str) -> String {
    format!("{cluster}.health_check.name.{name}")
}
