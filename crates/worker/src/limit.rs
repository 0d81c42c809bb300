//! Limits of how many connections a filter chain holds, over all workers (Envoy's `connection_limit` network filter).

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use postrider_model::ConnectionLimit;
use postrider_telemetry::Block;
use postrider_telemetry::stats::sets::connection_limit as stat;

use crate::cluster::{Active, stat_name};
use crate::worker::Worker;

/// A limit as one worker sees it.
pub(crate) struct Limit {
    model: ConnectionLimit,
    held: Arc<AtomicU64>,
    stats: Rc<Block>,
}

/// A connection's share in its chain's limits.
pub(crate) struct Share(Vec<(Arc<AtomicU64>, Active)>);

impl Limit {
    pub(crate) fn new(model: &ConnectionLimit, held: &Arc<AtomicU64>, worker: &Worker) -> Limit {
        let stats = worker.stats.block(&stat::SET, &stat_name(&model.stat_prefix));
        Limit { model: model.clone(), held: held.clone(), stats }
    }
}

/// A share for a new connection; `None` when it is one too many, which it learns after the delay.
pub(crate) async fn admit(limits: &[Limit]) -> Option<Share> {
    let mut share = Share(Vec::new());
    for limit in limits {
        let active = Active::count(&limit.stats, stat::ACTIVE_CONNECTIONS);
        let taken = limit.held.fetch_update(Relaxed, Relaxed, |held| (held < limit.model.most).then_some(held + 1));
        if taken.is_err() {
            limit.stats.inc(stat::LIMITED_CONNECTIONS);
            if let Some(delay) = limit.model.delay {
                // Whoever comes again at once is not to have it at once.
                tokio::time::sleep(delay).await;
            }
            return None;
        }
        share.0.push((limit.held.clone(), active));
    }
    Some(share)
}

impl Drop for Share {
    fn drop(&mut self) {
        for (held, _) in &self.0 {
            held.fetch_sub(1, Relaxed);
        }
    }
}
