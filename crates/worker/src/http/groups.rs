//! What a request counts in beside its cluster: a virtual cluster of its virtual host, and the group of its route.
//!
//! Only for routes that have such groups; others pay a look whether there are any.

use std::rc::Rc;

use postrider_telemetry::Block;
use postrider_telemetry::stats::Counter;
use postrider_telemetry::stats::sets::{count_group_response, group as stat};

use super::Connection;
use super::attempts::Verdict;
use super::exchange::Exchange;

/// The groups of one request.
pub(super) struct Groups(Vec<Rc<Block>>);

impl Groups {
    #[cold]
    pub(super) fn count(&self, counter: Counter) {
        self.0.iter().for_each(|block| block.inc(counter));
    }

    /// The request is over with this status; `time` is what its upstream took to answer, in milliseconds.
    #[cold]
    pub(super) fn count_response(&self, status: u16, time: Option<u64>) {
        for block in &self.0 {
            count_group_response(block, status);
            if let Some(time) = time {
                block.record(stat::UPSTREAM_RQ_TIME, time);
            }
        }
    }

    /// Another try begins.
    pub(super) fn count_retry(&self) {
        self.count(stat::UPSTREAM_RQ_RETRY);
    }

    /// What became of a try.
    pub(super) fn count_verdict(&self, verdict: Verdict) {
        match verdict {
            // Another try counts when it begins.
            Verdict::No | Verdict::Again => {}
            Verdict::Succeeded => self.count(stat::UPSTREAM_RQ_RETRY_SUCCESS),
            Verdict::LimitExceeded => self.count(stat::UPSTREAM_RQ_RETRY_LIMIT_EXCEEDED),
            Verdict::Overflow => self.count(stat::UPSTREAM_RQ_RETRY_OVERFLOW),
        }
    }
}

impl Exchange {
    /// Finds out what the request counts in, before its route changes anything of it.
    #[cold]
    #[inline(never)]
    pub(super) fn find_groups(&mut self, connection: &Connection) {
        let (Some(routes), Some(route)) = (self.routes.clone(), self.route) else { return };
        let plan = routes.plan.routes.get(route as usize).and_then(|plan| plan.groups.as_ref());
        let (Some(plan), None) = (plan, &self.groups) else { return };
        let cluster = plan.cluster_of(&self.request);
        let prefixes = cluster.map(|cluster| &cluster.prefix).into_iter().chain(&plan.route);
        let blocks = prefixes.map(|prefix| routes.group(prefix, &connection.worker)).collect();
        self.groups = Some(Box::new(Groups(blocks)));
        self.info.virtual_cluster = cluster.and_then(|cluster| cluster.name.as_deref()).map(Rc::from);
    }

    /// Another request comes.
    #[cold]
    #[inline(never)]
    pub(super) fn leave_groups(&mut self) {
        self.groups = None;
    }
}
