//! What a request counts in beside its cluster: a virtual cluster of its virtual host, and the group of its route.
//!
//! Only for routes that have such groups, and while somebody watches routes; others pay a look whether there are any.

use std::rc::Rc;

use postrider_filter_api::Moment;
use postrider_telemetry::Block;
use postrider_telemetry::stats::Counter;
use postrider_telemetry::stats::sets::{count_group_response, group as stat, watched_route};

use super::attempts::Verdict;
use super::exchange::Exchange;
use super::{Connection, Http};
use crate::chain::Routes;

/// The groups of one request.
#[derive(Default)]
pub(super) struct Groups {
    blocks: Vec<Rc<Block>>,
    /// What its route's plan names is among them.
    planned: bool,
    /// The route's, while somebody watches.
    watched: Option<Rc<Block>>,
}

impl Groups {
    #[cold]
    pub(super) fn count(&self, counter: Counter) {
        self.blocks.iter().for_each(|block| block.inc(counter));
    }

    /// The request is over with this status; `time` is what its upstream took to answer, in milliseconds.
    #[cold]
    pub(super) fn count_response(&self, status: u16, time: Option<u64>) {
        if let Some(block) = self.watched.as_ref().filter(|_| status >= 500) {
            block.inc(watched_route::RQ_5XX);
        }
        for block in &self.blocks {
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
        let known = self.groups.as_ref().is_some_and(|groups| groups.planned);
        let Some(plan) = plan.filter(|_| !known) else { return };
        let cluster = plan.cluster_of(&self.request);
        let prefixes = cluster.map(|cluster| &cluster.prefix).into_iter().chain(&plan.route);
        let blocks = prefixes.map(|prefix| routes.group(prefix, &connection.worker)).collect();
        let watched = self.groups.take().and_then(|groups| groups.watched);
        self.groups = Some(Box::new(Groups { blocks, planned: true, watched }));
        self.info.virtual_cluster = cluster.and_then(|cluster| cluster.name.as_deref()).map(Rc::from);
    }

    /// A route was found, or none, where somebody is told how long that took or watches which it is.
    #[cold]
    #[inline(never)]
    pub(super) fn note_lookup(&mut self, begun: Moment, routes: &Routes, connection: &Connection, http: &Http) {
        let worker = &connection.worker;
        let now = worker.clock.exact();
        if http.times_lookups {
            *self.info.route_lookup_time.get_or_insert_default() += now.saturating_duration_since(begun);
        }
        if now >= worker.routes_watched_until.get() {
            return http.notes_lookups.set(http.times_lookups);
        }
        let block = routes.watched(self.route, worker);
        let groups = self.groups.get_or_insert_default();
        // The same request may look for its route once more.
        if groups.watched.as_ref().is_none_or(|known| !Rc::ptr_eq(known, &block)) {
            block.inc(watched_route::RQ_TOTAL);
            groups.watched = Some(block);
        }
    }

    /// Another request comes.
    #[cold]
    #[inline(never)]
    pub(super) fn leave_groups(&mut self) {
        self.groups = None;
    }
}
