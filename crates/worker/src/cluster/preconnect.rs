//! Connections that are made before a request needs them (`preconnect_policy`), with Envoy's meaning.
//!
//! Whenever a request comes, a pool is to hold room for so many requests as are there already, times a ratio: for each host
//! that gets one, and for the cluster as a whole at hosts that are likely to be next. Nobody waits for such a connection; but a
//! request that finds none ready waits for one under way rather than open another.

use std::rc::Rc;

use postrider_model::{EndpointHealth, Preconnect, Priority, UpstreamProtocol};
use postrider_telemetry::stats::sets::cluster as stat;
use postrider_upstream::Permit;

use super::connect::Begun;
use super::{Cluster, Host};
use crate::h2::Expected;
use crate::party::Party;
use crate::worker::Worker;

/// Connections that one request may cause, as in Envoy: a host that comes back is not to be overrun.
const AT_A_TIME: usize = 3;

/// For whom connections would be.
#[derive(Clone, Copy)]
pub(super) struct Demand<'a> {
    pub(super) worker: &'a Rc<Worker>,
    pub(super) priority: Priority,
    pub(super) protocol: UpstreamProtocol,
    /// Requests that are about to come, beside those that are counted.
    pub(super) coming: u32,
}

impl Cluster {
    /// A request is about to begin on a pooled connection of `host`.
    #[cold]
    #[inline(never)]
    pub(crate) fn preconnect(
        self: &Rc<Cluster>,
        worker: &Rc<Worker>,
        host: &Rc<Host>,
        priority: Priority,
        protocol: UpstreamProtocol,
    ) {
        let demand = Demand { worker, priority, protocol, coming: 1 };
        self.look_ahead(demand);
        self.provide(host, demand);
    }

    /// Connects to hosts that are likely to be next, if what there is does not suffice for what may come.
    pub(super) fn look_ahead(self: &Rc<Cluster>, demand: Demand<'_>) {
        let Some(rules) = self.rules().filter(|rules| rules.of_all > 1.0) else { return };
        let stats = self.stats(demand.worker).clone();
        let of_host = Demand { coming: 1, ..demand };
        for _ in 0..AT_A_TIME {
            let requests = stats.gauge(stat::UPSTREAM_RQ_ACTIVE) + stats.gauge(stat::UPSTREAM_RQ_PENDING_ACTIVE);
            let wanted = (requests + u64::from(demand.coming)) as f64 * rules.of_all;
            let room = stats.gauge(stat::UPSTREAM_CX_ACTIVE) as f64 + self.streams.more_room(None);
            if wanted <= room {
                return;
            }
            let Some(host) = self.hosts.look_ahead(&demand.worker.random) else { return };
            if !self.wants_more(&host, of_host, rules.of_all) || !self.make_ready(&host, demand) {
                return;
            }
        }
    }

    /// Makes room at `host` for requests that may come.
    pub(super) fn provide(self: &Rc<Cluster>, host: &Rc<Host>, demand: Demand<'_>) {
        let Some(rules) = self.rules().filter(|rules| rules.of_host > 1.0) else { return };
        for _ in 0..AT_A_TIME {
            if !self.wants_more(host, demand, rules.of_host) || !self.make_ready(host, demand) {
                return;
            }
        }
    }

    /// There is less room at a host than its requests want, and it is one that may get more.
    fn wants_more(&self, host: &Rc<Host>, demand: Demand<'_>, ratio: f64) -> bool {
        let requests = host.active.get() + host.waiting.get() + demand.coming;
        let room = f64::from(host.connections.get()) + self.streams.more_room(Some(host));
        if f64::from(requests) * ratio <= room || host.standing() != EndpointHealth::Healthy {
            return false;
        }
        let condition = self.rules().and_then(|rules| rules.hosts.as_ref());
        let metadata = || host.endpoint.metadata.as_deref();
        let is_meant = condition.is_none_or(|condition| condition.matches(metadata().unwrap_or(&Default::default())));
        if !is_meant {
            self.stats(demand.worker).inc(stat::UPSTREAM_CX_PRECONNECT_SKIPPED);
        }
        is_meant
    }

    /// Begins to connect to a host for whoever comes; false when there may be no more connections.
    fn make_ready(self: &Rc<Cluster>, host: &Rc<Host>, demand: Demand<'_>) -> bool {
        let Demand { worker, priority, protocol, .. } = demand;
        let stats = self.stats(worker);
        let permit = self.has_room(host, priority).then(|| Permit::connection(&self.breakers, priority, worker.id));
        let Some(permit) = permit.flatten() else {
            stats.inc(stat::UPSTREAM_CX_OVERFLOW);
            return false;
        };
        if self.admit(host, priority, worker).is_err() {
            return false;
        }
        let begun = Begun::now(host, stats);
        let expected = self.expect(host, protocol, None, 0);
        let (cluster, worker, host) = (self.clone(), worker.clone(), host.clone());
        tokio::task::spawn_local(async move {
            match cluster.make(&worker, &host, (begun, permit), Some(protocol), None).await {
                Ok(upstream) => cluster.put_back(upstream, worker.clock.now()),
                Err(failure) => expected.fail(&failure),
            }
        });
        true
    }

    /// A connection is being made, of which so many streams are `taken`.
    pub(super) fn expect(
        self: &Rc<Cluster>,
        host: &Rc<Host>,
        protocol: UpstreamProtocol,
        party: Option<&Party>,
        taken: usize,
    ) -> Expected {
        let streams = match protocol {
            UpstreamProtocol::Http2 => self.plan.model.upstream.http2.max_concurrent_streams as usize,
            UpstreamProtocol::Http1 | UpstreamProtocol::Auto | UpstreamProtocol::SameAsClient => 1,
        };
        self.streams.expect(self, host, party, (streams, taken))
    }

    fn rules(&self) -> Option<&Preconnect> {
        self.plan.model.preconnect.as_deref()
    }
}
