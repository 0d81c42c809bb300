//! Bytes that wait because somebody does not take them, and whose sender is not read meanwhile: as statistics tell them.
//!
//! Nearly never does anything wait when a task goes to sleep, and then nothing is done here. What is told is what waits at
//! that moment, not what came and left in between.

use std::rc::Rc;

use postrider_telemetry::Block;
use postrider_telemetry::stats::sets::{cluster, http, tcp};
use postrider_telemetry::stats::{Counter, Gauge};

/// What one connection adds to the gauges of waiting bytes.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    received: u32,
    to_send: u32,
}

/// The two gauges of a set: received and not used yet, and not sent yet.
pub(crate) const OF_HTTP: [Gauge; 2] = [http::DOWNSTREAM_CX_RX_BYTES_BUFFERED, http::DOWNSTREAM_CX_TX_BYTES_BUFFERED];
pub(crate) const OF_TCP: [Gauge; 2] = [tcp::DOWNSTREAM_CX_RX_BYTES_BUFFERED, tcp::DOWNSTREAM_CX_TX_BYTES_BUFFERED];
const OF_CLUSTER: [Gauge; 2] = [cluster::UPSTREAM_CX_RX_BYTES_BUFFERED, cluster::UPSTREAM_CX_TX_BYTES_BUFFERED];

/// A client is not read any more because its upstream does not take, and is read again.
pub(crate) const HTTP_READS: [Counter; 2] =
    [http::DOWNSTREAM_FLOW_CONTROL_PAUSED_READING_TOTAL, http::DOWNSTREAM_FLOW_CONTROL_RESUMED_READING_TOTAL];
pub(crate) const TCP_READS: [Counter; 2] =
    [tcp::DOWNSTREAM_FLOW_CONTROL_PAUSED_READING_TOTAL, tcp::DOWNSTREAM_FLOW_CONTROL_RESUMED_READING_TOTAL];

impl Waiting {
    /// The gauges say that something waits.
    #[inline]
    pub(crate) fn is_told(&self) -> bool {
        (self.received | self.to_send) != 0
    }

    #[cold]
    pub(crate) fn tell(&mut self, stats: &Block, gauges: [Gauge; 2], received: usize, to_send: usize) {
        let change = |gauge, told: &mut u32, now: usize| {
            let now = u32::try_from(now).unwrap_or(u32::MAX);
            if *told != now {
                stats.gauge_add(gauge, u64::from(now).wrapping_sub(u64::from(*told)));
                *told = now;
            }
        };
        let [rx, tx] = gauges;
        change(rx, &mut self.received, received);
        change(tx, &mut self.to_send, to_send);
    }
}

/// What stands still between a client and an upstream.
#[derive(Default)]
pub(crate) struct Backlog {
    waiting: Waiting,
    /// The upstream does not take what the client sent.
    up: bool,
    /// The client does not take what the upstream sent.
    down: bool,
    /// The cluster in whose statistics that is told; `None` when nothing is.
    cluster: Option<Rc<Block>>,
}

/// What waits in both directions.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Amounts {
    /// For the upstream.
    pub(crate) up: usize,
    /// For the client.
    pub(crate) down: usize,
    /// Received from the upstream, and not on its way yet.
    pub(crate) received: usize,
}

impl Backlog {
    #[inline]
    pub(crate) fn is_told(&self) -> bool {
        self.cluster.is_some()
    }

    /// The task goes to sleep with this in hand. `client` counts the client's connection, in `reads`.
    #[cold]
    pub(crate) fn tell(&mut self, cluster: &Rc<Block>, client: &Block, reads: [Counter; 2], now: Amounts) {
        if self.cluster.as_ref().is_some_and(|told| !Rc::ptr_eq(told, cluster)) {
            self.clear(client, reads);
        }
        let cluster = self.cluster.get_or_insert_with(|| cluster.clone()).clone();
        self.waiting.tell(&cluster, OF_CLUSTER, now.received, now.up);
        let [paused, resumed] = reads;
        if self.up != (now.up > 0) {
            self.up = now.up > 0;
            match self.up {
                true => {
                    cluster.inc(cluster::UPSTREAM_FLOW_CONTROL_BACKED_UP_TOTAL);
                    client.inc(paused);
                }
                false => {
                    cluster.inc(cluster::UPSTREAM_FLOW_CONTROL_DRAINED_TOTAL);
                    client.inc(resumed);
                }
            }
        }
        if self.down != (now.down > 0) {
            self.down = now.down > 0;
            cluster.inc(match self.down {
                true => cluster::UPSTREAM_FLOW_CONTROL_PAUSED_READING_TOTAL,
                false => cluster::UPSTREAM_FLOW_CONTROL_RESUMED_READING_TOTAL,
            });
        }
        if !self.up && !self.down && !self.waiting.is_told() {
            self.cluster = None;
        }
    }

    /// Nothing stands still any more.
    #[cold]
    pub(crate) fn clear(&mut self, client: &Block, reads: [Counter; 2]) {
        if let Some(cluster) = self.cluster.clone() {
            self.tell(&cluster, client, reads, Amounts::default());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use postrider_telemetry::Registry;

    #[test]
    fn what_stands_still_is_told_once_and_taken_back() {
        let registry = Registry::new();
        let worker = registry.worker(0);
        let (of_cluster, client) = (worker.block(&cluster::SET, "c"), worker.block(&http::SET, "h"));
        let mut backlog = Backlog::default();
        let full = Amounts { up: 10, down: 0, received: 3 };
        backlog.tell(&of_cluster, &client, HTTP_READS, full);
        backlog.tell(&of_cluster, &client, HTTP_READS, Amounts { up: 4, ..full });
        assert_eq!(of_cluster.gauge(cluster::UPSTREAM_CX_TX_BYTES_BUFFERED), 4);
        assert_eq!(of_cluster.gauge(cluster::UPSTREAM_CX_RX_BYTES_BUFFERED), 3);
        assert_eq!(of_cluster.value(cluster::UPSTREAM_FLOW_CONTROL_BACKED_UP_TOTAL), 1);
        let other = worker.block(&cluster::SET, "d");
        backlog.tell(&other, &client, HTTP_READS, Amounts { down: 1, ..Amounts::default() });
        assert_eq!(of_cluster.gauge(cluster::UPSTREAM_CX_TX_BYTES_BUFFERED), 0, "another cluster's turn");
        assert_eq!(of_cluster.value(cluster::UPSTREAM_FLOW_CONTROL_DRAINED_TOTAL), 1);
        assert_eq!(other.value(cluster::UPSTREAM_FLOW_CONTROL_PAUSED_READING_TOTAL), 1);
        backlog.clear(&client, HTTP_READS);
        assert!(!backlog.is_told());
        assert_eq!(other.value(cluster::UPSTREAM_FLOW_CONTROL_RESUMED_READING_TOTAL), 1);
        let [paused, resumed] = HTTP_READS;
        assert_eq!((client.value(paused), client.value(resumed)), (1, 1));
    }
}
