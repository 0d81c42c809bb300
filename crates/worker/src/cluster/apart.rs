//! Answers that are counted apart, beside those of all hosts: of canaries, and by zone.

use std::cell::{OnceCell, RefCell};
use std::rc::Rc;

use postrider_model::{Discovery, Locality, Metadata, is_canary};
use postrider_telemetry::Block;
use postrider_telemetry::stats::sets::{cluster_canary, cluster_zone_pair, count_canary_response, count_zone_response};

use super::{Cluster, Host};
use crate::worker::Worker;

/// The statistics of a cluster's answers apart; made with the first of them.
#[derive(Default)]
pub(super) struct Apart {
    canary: OnceCell<Rc<Block>>,
    /// By our zone and that of the host.
    zones: RefCell<Vec<(String, String, Rc<Block>)>>,
}

/// Whether a cluster has hosts whose answers are counted apart.
pub(super) fn has_some(discovery: &Discovery) -> bool {
    let is_apart = |metadata: Option<&Metadata>, place: Option<&Locality>| {
        is_canary(metadata) || place.is_some_and(|place| !place.zone.is_empty())
    };
    match discovery {
        Discovery::Static(endpoints) => {
            endpoints.iter().any(|endpoint| is_apart(endpoint.metadata.as_deref(), endpoint.place.as_deref()))
        }
        Discovery::StrictDns(dns) | Discovery::LogicalDns(dns) => {
            dns.names.iter().any(|name| is_apart(name.metadata.as_deref(), name.place.as_deref()))
        }
        Discovery::Original(_) => false,
    }
}

impl Cluster {
    /// Counts an answer where it counts apart. `says_canary`: it says itself that it is a canary's.
    #[cold]
    #[inline(never)]
    pub(crate) fn count_apart(&self, worker: &Worker, host: &Host, says_canary: bool, status: u16, millis: u64) {
        if says_canary || host.endpoint.is_canary() {
            let make = || worker.stats.block(&cluster_canary::SET, &self.stat_prefix());
            count_canary_response(self.apart.canary.get_or_init(make), status, millis);
        }
        let Some(theirs) = host.endpoint.place.as_ref().map(|place| place.zone.as_str()) else { return };
        let node = worker.node.borrow();
        let ours = node.zone.as_str();
        if ours.is_empty() || theirs.is_empty() {
            return;
        }
        let mut zones = self.apart.zones.borrow_mut();
        if let Some((.., block)) = zones.iter().find(|(from, to, _)| from == ours && to == theirs) {
            return count_zone_response(block, status, millis);
        }
        let prefix = format!("{}.zone.{ours}.{theirs}", self.stat_prefix());
        let block = worker.stats.block(&cluster_zone_pair::SET, &prefix);
        count_zone_response(&block, status, millis);
        zones.push((ours.to_owned(), theirs.to_owned(), block));
    }
}
