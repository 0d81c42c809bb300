//! A cluster as one worker runs it, and the connections to its hosts.

use std::cell::{Cell, OnceCell};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use postrider_filter_api::{Moment, UpstreamOverride};
use postrider_model::{Address, Priority};
use postrider_sys::TcpKeepalive;
use postrider_telemetry::Block;
use postrider_telemetry::stats::sets::cluster as stat;
use postrider_upstream::{Endpoints, LocalBreakers, Permit, Random, Waiter};

use crate::buffers::Input;
use crate::io::{self, Io};
use crate::plan::ClusterPlan;
use crate::worker::Worker;

pub(crate) type Hosts = postrider_upstream::Cluster<Box<Upstream>>;
pub(crate) type Host = postrider_upstream::Host<Box<Upstream>>;

pub(crate) struct Cluster {
    pub(crate) plan: Arc<ClusterPlan>,
    pub(crate) name: Rc<str>,
    pub(crate) hosts: Hosts,
    pub(crate) breakers: LocalBreakers,
    keepalive: Option<TcpKeepalive>,
    /// Made with the first request: a cluster without traffic holds no statistics.
    stats: OnceCell<Rc<Block>>,
}

/// A connection to a host, busy or pooled.
pub(crate) struct Upstream {
    pub(crate) io: Io,
    pub(crate) input: Input,
    pub(crate) host: Rc<Host>,
    pub(crate) id: u64,
    /// The host's address, as logs show it.
    pub(crate) name: Rc<str>,
    /// Bytes that one read may bring.
    pub(crate) buffer_limit: usize,
    /// Requests that this connection carried so far.
    served: Cell<u32>,
    /// It carries a request now.
    busy: Cell<bool>,
    /// The peer ended it.
    ended_by_peer: Cell<bool>,
    created: Moment,
    idle_since: Cell<Moment>,
    stats: Rc<Block>,
    clock: Rc<Worker>,
    _permit: Permit,
}

/// Why there is no connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NoConnection {
    /// The circuit breaker for waiting requests is open.
    Overflow,
    Timeout,
    /// In the system's words.
    Failed(String),
}

impl Cluster {
    pub(crate) fn new(plan: &Arc<ClusterPlan>, worker: &Worker) -> Rc<Cluster> {
        let keepalive = plan.model.upstream.keepalive.as_ref();
        Rc::new(Cluster {
            hosts: Hosts::new(plan.model.policy.clone(), &plan.initial, &worker.random),
            keepalive: keepalive.map(|k| postrider_sys::keepalive(k.probes, k.time, k.interval)),
            stats: OnceCell::new(),
            name: (*plan.name).into(),
            breakers: Rc::new(plan.breakers.clone()),
            plan: plan.clone(),
        })
    }

    pub(crate) fn stats(&self, worker: &Worker) -> &Rc<Block> {
        self.stats.get_or_init(|| {
            let name = self.plan.model.stat_name.as_deref().unwrap_or(&self.plan.name);
            worker.stats.block(&stat::SET, &stat_name(name))
        })
    }

    /// Requests of this worker that wait for a connection.
    pub(crate) fn pending(&self, worker: &Worker) -> u64 {
        self.stats(worker).gauge(stat::UPSTREAM_RQ_PENDING_ACTIVE)
    }

    /// New endpoints; connections to those that are gone close.
    pub(crate) fn update(&self, endpoints: &Endpoints, worker: &Worker) {
        drop(self.hosts.update(endpoints, &worker.random));
    }

    /// The host that a filter wants, or another if it may be another.
    #[cold]
    pub(crate) fn pick_wanted(&self, wanted: &UpstreamOverride, random: &Random) -> Option<Rc<Host>> {
        let found = self.hosts.at(&Address::Tcp(wanted.address));
        found.or_else(|| self.hosts.pick(random).filter(|_| !wanted.strict))
    }

    /// A pooled connection that is still good, and nothing else: no system call.
    pub(crate) fn checkout(&self, host: &Rc<Host>, now: Moment) -> Option<Box<Upstream>> {
        while let Some(mut upstream) = host.take_idle() {
            if upstream.is_usable(&self.plan, now) {
                return Some(upstream);
            }
        }
        None
    }

    /// A new connection, or, for HTTP, one that came free while waiting for permission to open one.
    ///
    /// # Errors
    /// See [`NoConnection`].
    pub(crate) async fn connect(
        self: &Rc<Cluster>,
        worker: &Rc<Worker>,
        host: &Rc<Host>,
        priority: Priority,
        http: bool,
    ) -> Result<Box<Upstream>, NoConnection> {
        let stats = self.stats(worker).clone();
        let breakers = &self.breakers;
        let Some(_pending) = Permit::pending(breakers, priority, worker.id) else {
            stats.inc(stat::UPSTREAM_RQ_PENDING_OVERFLOW);
            return Err(NoConnection::Overflow);
        };
        stats.inc(stat::UPSTREAM_RQ_PENDING_TOTAL);
        let _gauge = Active::count(&stats, stat::UPSTREAM_RQ_PENDING_ACTIVE);
        let permit = loop {
            if let Some(permit) = Permit::connection(breakers, priority, worker.id) {
                break permit;
            }
            stats.inc(stat::UPSTREAM_CX_OVERFLOW);
            if !http {
                // A connection is never shared here: there is nothing to wait for.
                return Err(NoConnection::Overflow);
            }
            if host.connections.get() == 0 {
                break Permit::connection_beyond_limit(breakers, priority, worker.id);
            }
            self.turn().await;
            if let Some(upstream) = self.checkout(host, worker.clock.now()) {
                return Ok(upstream);
            }
        };
        let connecting = io::connect(&host.endpoint.address, self.plan.model.upstream.bind, self.keepalive.as_ref());
        host.connections.set(host.connections.get() + 1);
        host.totals.connections.set(host.totals.connections.get() + 1);
        stats.inc(stat::UPSTREAM_CX_TOTAL);
        if http {
            stats.inc(stat::UPSTREAM_CX_HTTP1_TOTAL);
        }
        stats.gauge_inc(stat::UPSTREAM_CX_ACTIVE);
        let unwind = Unwind { host, stats: &stats, armed: Cell::new(true) };
        let started = worker.clock.now();
        let io = match tokio::time::timeout(self.plan.model.connect_timeout, connecting).await {
            Ok(Ok(io)) => io,
            failed => {
                host.totals.connect_failures.set(host.totals.connect_failures.get() + 1);
                stats.inc(stat::UPSTREAM_CX_CONNECT_FAIL);
                return Err(match failed {
                    Ok(Err(error)) => NoConnection::Failed(reason(&error)),
                    _ => {
                        stats.inc(stat::UPSTREAM_CX_CONNECT_TIMEOUT);
                        NoConnection::Timeout
                    }
                });
            }
        };
        unwind.armed.set(false);
        drop(unwind);
        let now = worker.clock.now();
        stats.record(stat::UPSTREAM_CX_CONNECT_MS, millis(now.saturating_duration_since(started)));
        Ok(Box::new(Upstream {
            io,
            input: Input::default(),
            host: host.clone(),
            id: worker.next_connection_id(),
            name: host.endpoint.address.to_string().into(),
            buffer_limit: self.plan.model.buffer_limit as usize,
            served: Cell::new(0),
            busy: Cell::new(false),
            ended_by_peer: Cell::new(false),
            created: now,
            idle_since: Cell::new(now),
            stats,
            clock: worker.clone(),
            _permit: permit,
        }))
    }

    /// Waits until a connection of this cluster came free or ended.
    async fn turn(&self) {
        let mut place = Place { hosts: &self.hosts, waiter: self.hosts.wait(), used: false };
        std::future::poll_fn(|cx| match place.waiter.is_called(cx.waker()) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
        place.used = true;
    }

    /// Puts a connection whose last exchange ended cleanly back for the next request, or closes it.
    pub(crate) fn put_back(&self, upstream: Box<Upstream>, now: Moment) {
        upstream.idle_since.set(now);
        upstream.busy.set(false);
        let limit = self.plan.model.upstream.max_requests_per_connection;
        if limit.is_some_and(|limit| upstream.served.get() >= limit) {
            upstream.stats.inc(stat::UPSTREAM_CX_MAX_REQUESTS);
            drop(upstream);
        } else {
            let host = upstream.host.clone();
            // A host that is gone gives the connection back, to be closed here.
            drop(host.put_idle(upstream));
        }
        self.hosts.call_next();
    }

    /// A connection ended instead of coming back: whoever waits may open one.
    pub(crate) fn gone(&self) {
        if self.hosts.has_waiters() {
            self.hosts.call_next();
        }
    }

    /// Closes pooled connections that are too old or whose peer closed.
    pub(crate) fn sweep(&self, now: Moment) {
        self.hosts.each_host(|host| {
            drop(host.sweep_idle(|upstream| !upstream.is_usable(&self.plan, now)));
        });
    }
}

impl Drop for Cluster {
    /// Pooled connections hold their host and it holds them: the ring is cut here.
    fn drop(&mut self) {
        drop(self.hosts.update(&Endpoints::default(), &postrider_upstream::Random::new(1)));
    }
}

impl Upstream {
    pub(crate) fn stats(&self) -> &Block {
        &self.stats
    }

    /// Counts a request that goes out on this connection.
    pub(crate) fn begin_request(&self) {
        self.served.set(self.served.get() + 1);
        self.busy.set(true);
    }

    /// The peer closed or broke the connection.
    pub(crate) fn peer_ended(&self) {
        self.ended_by_peer.set(true);
    }

    /// Whether it carried a request before this one.
    pub(crate) fn is_reused(&self) -> bool {
        self.served.get() > 1
    }

    /// Nothing came from a peer that had nothing to say, and the connection is not too old.
    fn is_usable(&mut self, plan: &ClusterPlan, now: Moment) -> bool {
        // Used a moment ago: what could have happened since could as well happen a moment later.
        if self.idle_since.get() == now {
            return true;
        }
        let options = &plan.model.upstream;
        let idle = now.saturating_duration_since(self.idle_since.get());
        if options.idle_timeout.is_some_and(|limit| idle >= limit) {
            self.stats.inc(stat::UPSTREAM_CX_IDLE_TIMEOUT);
            return false;
        }
        if options.max_connection_duration.is_some_and(|limit| now.saturating_duration_since(self.created) >= limit) {
            self.stats.inc(stat::UPSTREAM_CX_MAX_DURATION_REACHED);
            return false;
        }
        // Ready to read means closed, or bytes that nobody asked for; either ends it.
        let quiet = self.io.poll_readable(&mut Context::from_waker(Waker::noop())).is_pending();
        self.ended_by_peer.set(!quiet);
        quiet
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.host.connections.set(self.host.connections.get().saturating_sub(1));
        self.input.release(&self.clock.buffers);
        self.stats.gauge_dec(stat::UPSTREAM_CX_ACTIVE);
        self.stats.inc(stat::UPSTREAM_CX_DESTROY);
        let (ended, ended_busy) = match self.ended_by_peer.get() {
            true => (stat::UPSTREAM_CX_DESTROY_REMOTE, stat::UPSTREAM_CX_DESTROY_REMOTE_WITH_ACTIVE_RQ),
            false => (stat::UPSTREAM_CX_DESTROY_LOCAL, stat::UPSTREAM_CX_DESTROY_LOCAL_WITH_ACTIVE_RQ),
        };
        self.stats.inc(ended);
        if self.busy.get() {
            self.stats.inc(stat::UPSTREAM_CX_DESTROY_WITH_ACTIVE_RQ);
            self.stats.inc(ended_busy);
        }
        let age = self.clock.clock.now().saturating_duration_since(self.created);
        self.stats.record(stat::UPSTREAM_CX_LENGTH_MS, millis(age));
        self.stats.record(stat::UPSTREAM_RQ_PER_CX, u64::from(self.served.get()));
    }
}

/// A gauge that is one higher while this lives.
pub(crate) struct Active {
    stats: Rc<Block>,
    gauge: postrider_telemetry::stats::Gauge,
}

impl Active {
    pub(crate) fn count(stats: &Rc<Block>, gauge: postrider_telemetry::stats::Gauge) -> Active {
        stats.gauge_inc(gauge);
        Active { stats: stats.clone(), gauge }
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        self.stats.gauge_dec(self.gauge);
    }
}

/// Takes back the counts of a connection that was never made.
struct Unwind<'a> {
    host: &'a Host,
    stats: &'a Block,
    armed: Cell<bool>,
}

impl Drop for Unwind<'_> {
    fn drop(&mut self) {
        if self.armed.get() {
            self.host.connections.set(self.host.connections.get().saturating_sub(1));
            self.stats.gauge_dec(stat::UPSTREAM_CX_ACTIVE);
            self.stats.inc(stat::UPSTREAM_CX_DESTROY);
        }
    }
}

/// A place in the queue; a turn that was given and not used goes to the next.
struct Place<'a> {
    hosts: &'a Hosts,
    waiter: Rc<Waiter>,
    used: bool,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if !self.used {
            self.hosts.leave(&self.waiter);
        }
    }
}

/// As Envoy writes names into statistics.
pub(crate) fn stat_name(name: &str) -> String {
    name.replace(':', "_")
}

pub(crate) fn millis(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// `Connection refused`, without the number that Rust adds.
fn reason(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}
