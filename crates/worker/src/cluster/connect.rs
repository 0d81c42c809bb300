//! Connections that are made when a pool has none: who may have one, and what becomes of the attempt.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

use postrider_filter_api::ConnectTimes;
use postrider_model::{Priority, ShedKind, Thresholds, UpstreamProtocol};
use postrider_telemetry::Block;
use postrider_telemetry::stats::sets::cluster as stat;
use postrider_upstream::{Limited, Permit};

use super::open::Reached;
use super::preconnect::Demand;
use super::soundness::Soundness;
use super::upstream::{Account, Active, Upstream};
use super::{Cluster, Host, millis};
use crate::h2::Client;
use crate::io::{self, Bridged, HandshakeFailed, Io};
use crate::party::Party;
use crate::worker::Worker;

/// Why there is no connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NoConnection {
    /// The circuit breaker for waiting requests is open.
    Overflow,
    Timeout,
    /// Too many hosts have connections already.
    NoPool,
    /// As logs show it; empty when the host ended the connection without a word.
    Failed(String),
}

impl Cluster {
    /// A new connection, or, for HTTP, one that came free while waiting for permission to open one.
    ///
    /// # Errors
    /// See [`NoConnection`].
    pub(crate) async fn connect(
        self: &Rc<Cluster>,
        worker: &Rc<Worker>,
        host: &Rc<Host>,
        priority: Priority,
        protocol: Option<UpstreamProtocol>,
        party: Option<&Party>,
    ) -> Result<Box<Upstream>, NoConnection> {
        let stats = self.stats(worker).clone();
        let breakers = &self.breakers;
        // Connections may be made before they are needed: only those that serve everybody.
        let ahead = protocol.filter(|_| self.preconnects && party.is_none());
        let demand = ahead.map(|protocol| Demand { worker, priority, protocol, coming: 1 });
        self.admit(host, priority, worker)?;
        if worker.overload.upstreams.get() && worker.overload.sheds(ShedKind::Upstream, &worker.random, &worker.stats) {
            stats.inc(stat::UPSTREAM_RQ_PENDING_TOTAL);
            return Err(NoConnection::Overflow);
        }
        let Some(_pending) = Permit::pending(breakers, priority, worker.id) else {
            stats.inc(stat::UPSTREAM_RQ_PENDING_OVERFLOW);
            return Err(NoConnection::Overflow);
        };
        if let Some(demand) = demand {
            self.look_ahead(demand);
        }
        stats.inc(stat::UPSTREAM_RQ_PENDING_TOTAL);
        let _gauge = Active::count(&stats, stat::UPSTREAM_RQ_PENDING_ACTIVE);
        let _waiting = Waiting::begin(&host.waiting);
        let mut has_waited = false;
        let permit = loop {
            if let Some(shared) = ahead.or(protocol.filter(|protocol| *protocol == UpstreamProtocol::Http2))
                && let Some(awaited) = self.streams.expected(host, party)
            {
                if let Some(demand) = demand {
                    self.provide(host, Demand { coming: 0, ..demand });
                }
                self.turn_or(|waker| awaited.poll_over(waker)).await?;
                if let Some(upstream) = self.checkout(host, worker.clock.now(), shared, party) {
                    return Ok(upstream);
                }
                continue;
            }
            if self.has_room(host, priority)
                && let Some(permit) = Permit::connection(breakers, priority, worker.id)
            {
                if has_waited {
                    self.count_queued(host, priority, worker);
                }
                break permit;
            }
            stats.inc(stat::UPSTREAM_CX_OVERFLOW);
            let Some(protocol) = protocol else {
                // A connection is never shared here: there is nothing to wait for.
                return Err(NoConnection::Overflow);
            };
            let useless = match party {
                Some(_) => host.take_oldest_idle(),
                None => host.take_idle_that(|upstream| upstream.party.is_some()),
            };
            if let Some(idle) = useless {
                // It serves others only, and may do so for long: it gives way.
                drop(idle);
                continue;
            }
            if host.connections.get() == 0 {
                break Permit::connection_beyond_limit(breakers, priority, worker.id);
            }
            let queued = Waiting::begin(&host.queued);
            self.turn().await;
            drop(queued);
            has_waited = true;
            if let Some(upstream) = self.checkout(host, worker.clock.now(), protocol, party) {
                self.count_queued(host, priority, worker);
                return Ok(upstream);
            }
        };
        self.plan.traffic.store(true, Relaxed);
        let begun = Begun::now(host, &stats);
        let awaited = ahead.or(protocol.filter(|protocol| *protocol == UpstreamProtocol::Http2));
        let expected = awaited.map(|protocol| self.expect(host, protocol, party, 1));
        if let Some(demand) = demand {
            self.provide(host, Demand { coming: 0, ..demand });
        }
        let made = self.make(worker, host, (begun, permit), protocol, party).await;
        if let (Some(expected), Err(failure)) = (&expected, &made) {
            expected.fail(failure);
        }
        // Over HTTP/2 there may be room for all.
        if made.as_ref().is_ok_and(|upstream| !matches!(upstream.io, Io::Http2(_))) {
            self.count_queued(host, priority, worker);
        }
        made
    }

    /// Somebody got a connection: as Envoy does, whoever still waits for one of the host asks for more, all together.
    fn count_queued(&self, host: &Host, priority: Priority, worker: &Worker) {
        let is_full = || {
            let connections = self.breakers.breaker(priority, Limited::Connections);
            !self.has_room(host, priority) || connections.is_reached(worker.id as usize)
        };
        if host.queued.get() > 0 && is_full() {
            self.stats(worker).inc(stat::UPSTREAM_CX_OVERFLOW);
        }
    }

    /// A connection for whose permission nobody has to wait any more.
    pub(super) async fn make(
        self: &Rc<Cluster>,
        worker: &Rc<Worker>,
        host: &Rc<Host>,
        (begun, permit): (Begun, Permit),
        protocol: Option<UpstreamProtocol>,
        party: Option<&Party>,
    ) -> Result<Box<Upstream>, NoConnection> {
        let stats = self.stats(worker).clone();
        let mut begun = begun;
        // What it speaks is known before it is there, unless the peer is to choose.
        match protocol {
            Some(UpstreamProtocol::Http1) if self.plan.bridge.is_some() => {}
            Some(UpstreamProtocol::Http1) => stats.inc(stat::UPSTREAM_CX_HTTP1_TOTAL),
            Some(UpstreamProtocol::Http2) => stats.inc(stat::UPSTREAM_CX_HTTP2_TOTAL),
            Some(UpstreamProtocol::Auto | UpstreamProtocol::SameAsClient) | None => {}
        }
        let endpoint = &host.endpoint;
        let connecting = self.reach(worker, host, alpn(protocol), party);
        let started = worker.clock.now();
        let Reached { io, tls, connected, other } =
            match tokio::time::timeout(self.plan.model.connect_timeout, connecting).await {
                Ok(Ok(opened)) => opened,
                failed => {
                    host.totals.connect_failures.set(host.totals.connect_failures.get() + 1);
                    stats.inc(stat::UPSTREAM_CX_CONNECT_FAIL);
                    return Err(match failed {
                        Ok(Err(error)) => {
                            begun.ends_remotely = !io::is_not_bound(&error);
                            NoConnection::Failed(reason(&error))
                        }
                        _ => {
                            stats.inc(stat::UPSTREAM_CX_CONNECT_TIMEOUT);
                            NoConnection::Timeout
                        }
                    });
                }
            };
        begun.succeeded();
        let now = worker.clock.now();
        stats.record(stat::UPSTREAM_CX_CONNECT_MS, millis(now.saturating_duration_since(started)));
        let account = Rc::new(Account {
            host: host.clone(),
            stats: stats.clone(),
            worker: worker.clone(),
            served: Cell::new(0),
            busy: Cell::new(0),
            ended_by_peer: Cell::new(false),
            ended_busy: Cell::new(false),
            created: now,
            times: ConnectTimes {
                began: Some(started),
                connected: Some(connected),
                secured: tls.is_some().then_some(now),
            },
            local: io.local(),
            name: other.as_ref().unwrap_or(&endpoint.address).to_string().into(),
            tls,
            soundness: Soundness::new(self.plan.model.upstream.http2.spares_connections),
            _permit: permit,
        });
        let io = match &self.plan.bridge {
            // What carries no requests is a tunnel's.
            Some(bridge) if protocol.is_some() => {
                Io::Bridged(Box::new(Bridged::new(io, bridge.clone(), self.plan.model.buffer_limit as usize)))
            }
            _ => io,
        };
        let id = worker.next_connection_id();
        let party = party.map(|party| Rc::new(party.clone()));
        if !protocol.is_some_and(|protocol| speaks_http2(&io, protocol)) {
            if protocol.is_some_and(|protocol| protocol != UpstreamProtocol::Http1) {
                stats.inc(stat::UPSTREAM_CX_HTTP1_TOTAL);
            }
            return Ok(Box::new(self.upstream(io, host, id, account, party)));
        }
        if protocol != Some(UpstreamProtocol::Http2) {
            stats.inc(stat::UPSTREAM_CX_HTTP2_TOTAL);
        }
        let options = &self.plan.model.upstream;
        let beginning = Client::begin(io, options, account, id, self, party);
        let Ok(client) = tokio::time::timeout(self.plan.model.connect_timeout, beginning).await else {
            stats.inc(stat::UPSTREAM_CX_CONNECT_TIMEOUT);
            return Err(NoConnection::Timeout);
        };
        let client = client.map_err(|error| NoConnection::Failed(format!("delayed connect error: {error}")))?;
        self.streams.add(host, client.clone());
        // Whoever waited for this connection gets a stream of it.
        for _ in 0..client.room() {
            if !self.hosts.has_waiters() {
                break;
            }
            self.hosts.call_next();
        }
        Ok(self.stream_of(host, &client))
    }

    fn thresholds(&self, priority: Priority) -> &Thresholds {
        match priority {
            Priority::Default => &self.plan.model.thresholds,
            Priority::High => &self.plan.model.high_thresholds,
        }
    }

    /// Whether there are as many connections as there may be.
    pub(crate) fn is_full(&self, worker: &Worker) -> bool {
        self.breakers.breaker(Priority::Default, Limited::Connections).is_reached(worker.id as usize)
    }

    /// The host has no limit of its own, or has not reached it.
    pub(super) fn has_room(&self, host: &Host, priority: Priority) -> bool {
        let limit = self.thresholds(priority).max_connections_per_host;
        limit.is_none_or(|limit| host.open_connections() < limit)
    }

    /// Where the number of hosts with connections is limited: permission for this one to have some.
    ///
    /// # Errors
    /// There is none.
    pub(super) fn admit(&self, host: &Host, priority: Priority, worker: &Worker) -> Result<(), NoConnection> {
        let thresholds = self.thresholds(priority);
        let counts = thresholds.max_connection_pools.is_some() || thresholds.track_remaining;
        if !counts || host.is_admitted() {
            return Ok(());
        }
        let Some(permit) = Permit::pool(&self.breakers, priority, worker.id) else {
            self.stats(worker).inc(stat::UPSTREAM_CX_POOL_OVERFLOW);
            return Err(NoConnection::NoPool);
        };
        host.admit(permit);
        Ok(())
    }
}

/// Counts a connection from its beginning, and takes that back if it is never made.
pub(super) struct Begun {
    host: Rc<Host>,
    stats: Rc<Block>,
    is_made: bool,
    /// The host does not take it.
    ends_remotely: bool,
}

impl Begun {
    pub(super) fn now(host: &Rc<Host>, stats: &Rc<Block>) -> Begun {
        host.begin_connection();
        stats.inc(stat::UPSTREAM_CX_TOTAL);
        stats.gauge_inc(stat::UPSTREAM_CX_ACTIVE);
        Begun { host: host.clone(), stats: stats.clone(), is_made: false, ends_remotely: false }
    }

    /// From here on, its account counts it.
    fn succeeded(mut self) {
        self.is_made = true;
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        if !self.is_made {
            self.host.end_connection();
            self.stats.gauge_dec(stat::UPSTREAM_CX_ACTIVE);
            self.stats.inc(stat::UPSTREAM_CX_DESTROY);
            self.stats.inc(match self.ends_remotely {
                true => stat::UPSTREAM_CX_DESTROY_REMOTE,
                false => stat::UPSTREAM_CX_DESTROY_LOCAL,
            });
        }
    }
}

/// A request counts among those that wait while this lives.
struct Waiting<'h>(&'h Cell<u32>);

impl Waiting<'_> {
    fn begin(count: &Cell<u32>) -> Waiting<'_> {
        count.set(count.get() + 1);
        Waiting(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get().saturating_sub(1));
    }
}

/// What a connection for `protocol` offers.
pub(crate) fn alpn(protocol: Option<UpstreamProtocol>) -> Option<&'static [&'static [u8]]> {
    match protocol {
        Some(UpstreamProtocol::Http2) => Some(&[b"h2"]),
        Some(UpstreamProtocol::Auto) => Some(&[b"h2", b"http/1.1"]),
        Some(UpstreamProtocol::Http1 | UpstreamProtocol::SameAsClient) | None => None,
    }
}

fn speaks_http2(io: &Io, protocol: UpstreamProtocol) -> bool {
    match (protocol, io) {
        (UpstreamProtocol::Http2, _) => true,
        (UpstreamProtocol::Auto, Io::Tls(stream)) => stream.session().alpn_protocol() == Some(b"h2"),
        _ => false,
    }
}

/// What logs say of a connection that could not be made.
fn reason(error: &std::io::Error) -> String {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<HandshakeFailed>()) {
        Some(failed) => failed.reason.clone(),
        None => format!("delayed connect error: {}", io::words_of(error)),
    }
}
