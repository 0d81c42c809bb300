//! Limits of a filter chain's connections, over all workers: how many there are (Envoy's `connection_limit` network filter)
//! and how often one comes (`local_ratelimit`).

use std::rc::Rc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use postrider_filter_api::{Bucket, Flags, Moment, Noted, StreamInfo};
use postrider_model::{ChainLimit, ConnectionLimit, ConnectionRate, Value};
use postrider_telemetry::Block;
use postrider_telemetry::stats::sets::{connection_limit as stat, local_rate_limit};

use crate::cluster::Active;
use crate::io::Socket;
use crate::worker::Worker;

/// What all workers keep of a limit.
pub enum Quota {
    /// Connections that there are.
    Held(Arc<AtomicU64>),
    Rate(Arc<Bucket>),
}

/// A limit as one worker sees it.
pub(crate) enum Limit {
    Held { model: ConnectionLimit, held: Arc<AtomicU64>, stats: Rc<Block> },
    Rate { bucket: Arc<Bucket>, stats: Rc<Block>, shadow: Option<String>, enabled: bool },
}

/// A connection's share in its chain's limits.
#[derive(Default)]
pub(crate) struct Share {
    held: Vec<(Arc<AtomicU64>, Active)>,
    /// Limits that would have closed it, by their filters' names, and how they say so.
    exceeded: Vec<(String, &'static str)>,
}

/// Buckets that several chains may draw from, as long as one does. Locked by control threads only.
static SHARED: Mutex<Vec<(ConnectionRate, Weak<Bucket>)>> = Mutex::new(Vec::new());

impl Quota {
    pub(crate) fn of(limit: &ChainLimit) -> Quota {
        match limit {
            ChainLimit::Held(_) => Quota::Held(Arc::default()),
            ChainLimit::Rate(rate) if rate.share_key.is_empty() => Quota::Rate(bucket(rate)),
            ChainLimit::Rate(rate) => Quota::Rate(shared(rate)),
        }
    }
}

fn bucket(rate: &ConnectionRate) -> Arc<Bucket> {
    let per_second = f64::from(rate.tokens_per_fill) / rate.fill_interval.as_secs_f64();
    Arc::new(Bucket::full(f64::from(rate.max_tokens), per_second))
}

fn shared(rate: &ConnectionRate) -> Arc<Bucket> {
    // Who counts under which name is no matter of the bucket.
    let key = ConnectionRate { stat_prefix: String::new(), shadow: None, enabled: true, ..rate.clone() };
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    shared.retain(|(_, bucket)| bucket.strong_count() > 0);
    let known = shared.iter().find(|(known, _)| *known == key).and_then(|(_, bucket)| bucket.upgrade());
    known.unwrap_or_else(|| {
        let made = bucket(rate);
        shared.push((key, Arc::downgrade(&made)));
        made
    })
}

impl Limit {
    /// `None` where model and quota are of different kinds, which does not happen.
    pub(crate) fn new(limit: &ChainLimit, quota: &Quota, worker: &Worker) -> Option<Limit> {
        match (limit, quota) {
            (ChainLimit::Held(model), Quota::Held(held)) => {
                let stats = worker.stats.block(&stat::SET, &model.stat_prefix);
                Some(Limit::Held { model: model.clone(), held: held.clone(), stats })
            }
            (ChainLimit::Rate(model), Quota::Rate(bucket)) => {
                let stats = worker.stats.block(&local_rate_limit::SET, &model.stat_prefix);
                let (shadow, enabled) = (model.shadow.clone(), model.enabled);
                Some(Limit::Rate { bucket: bucket.clone(), stats, shadow, enabled })
            }
            _ => None,
        }
    }
}

/// Why a limit turned a connection away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Excess {
    /// It came too soon.
    Rate,
    /// It was one too many.
    Held,
}

impl Excess {
    /// Tells the log of it, in Envoy's words.
    pub(crate) fn tell(self, info: &mut StreamInfo) {
        match self {
            Excess::Rate => {
                info.closed.downstream_reason = "local_ratelimit_close_over_limit".into();
                info.flags.insert(Flags::UPSTREAM_RETRY_LIMIT_EXCEEDED);
            }
            Excess::Held => info.closed.downstream_reason = "over_connection_limit".into(),
        }
    }
}

/// A share for a new connection.
///
/// # Errors
/// It is one too many, which it may learn after a delay, unless it leaves before.
pub(crate) async fn admit(limits: &[Limit], now: Moment, socket: &Socket) -> Result<Share, Excess> {
    let mut share = Share::default();
    for limit in limits {
        match limit {
            Limit::Rate { enabled: false, .. } => {}
            Limit::Rate { bucket, stats, shadow, .. } => {
                if bucket.take(now, 1.0) {
                    continue;
                }
                let Some(name) = shadow else {
                    stats.inc(local_rate_limit::RATE_LIMITED);
                    return Err(Excess::Rate);
                };
                stats.inc(local_rate_limit::WOULD_DENY);
                share.exceeded.push((name.clone(), "rate_limited"));
            }
            Limit::Held { model, held, stats } => {
                let active = Active::count(stats, stat::ACTIVE_CONNECTIONS);
                let taken = held.fetch_update(Relaxed, Relaxed, |held| (held < model.most).then_some(held + 1));
                match (taken, &model.shadow) {
                    (Ok(_), _) => {}
                    (Err(_), Some(name)) => {
                        held.fetch_add(1, Relaxed);
                        stats.inc(stat::WOULD_DENY);
                        share.exceeded.push((name.clone(), "connection_limited"));
                    }
                    (Err(_), None) => {
                        stats.inc(stat::LIMITED_CONNECTIONS);
                        // It is there until it is closed, and counts for as long.
                        held.fetch_add(1, Relaxed);
                        share.held.push((held.clone(), active));
                        if let Some(delay) = model.delay {
                            // Whoever comes again at once is not to have it at once.
                            let _ = tokio::time::timeout(delay, socket.left()).await;
                        }
                        return Err(Excess::Held);
                    }
                }
                share.held.push((held.clone(), active));
            }
        }
    }
    Ok(share)
}

impl Share {
    /// Notes the limits that would have closed the connection, for its logs and filters.
    pub(crate) fn note(&self, to: &mut Option<Rc<Noted>>) {
        if self.exceeded.is_empty() {
            return;
        }
        let metadata = &mut Rc::make_mut(to.get_or_insert_default()).metadata;
        for (name, how) in &self.exceeded {
            metadata.set(name, "shadow_details", Value::String((*how).to_owned()));
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        for (held, _) in &self.held {
            held.fetch_sub(1, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn chains_share_a_bucket_by_key_and_tokens() {
        let rate = |key: &str, max_tokens| ConnectionRate {
            stat_prefix: format!("{key}{max_tokens}"),
            max_tokens,
            tokens_per_fill: 1,
            fill_interval: Duration::from_secs(1),
            share_key: key.into(),
            shadow: None,
            enabled: true,
        };
        let one = shared(&rate("a", 3));
        let renamed = ConnectionRate { stat_prefix: "other".into(), shadow: Some("s".into()), ..rate("a", 3) };
        assert!(Arc::ptr_eq(&one, &shared(&renamed)));
        assert!(!Arc::ptr_eq(&one, &shared(&rate("a", 4))));
        assert!(!Arc::ptr_eq(&one, &shared(&rate("b", 3))));
    }
}
