//! A cluster as one worker runs it, and the connections to its hosts.

use std::cell::{Cell, OnceCell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, Waker};

use postrider_filter_api::{Moment, TlsSession, UpstreamOverride};
use postrider_http::{HeadLimits, HeaderName, RequestHead, Version};
use postrider_model::{Address, Discovery, Endpoint, NameForm, Priority, ProxyHeader, Thresholds, UpstreamProtocol};
use postrider_sys::TcpKeepalive;
use postrider_telemetry::Block;
use postrider_telemetry::stats::sets::{
    cluster as stat, cluster_health, cluster_http2, cluster_outlier, cluster_ssl, cluster_subsets, cluster_zones,
};
use postrider_tls::{Target, rustls};
use postrider_upstream::{Choice, Endpoints, Health, LocalBreakers, Permit, Random, Surroundings, Waiter};

use crate::buffers::Input;
use crate::destination::Destinations;
use crate::eyeballs;
use crate::h2::{Client, Pool};
use crate::health::Check;
use crate::io::{self, Io, Socket, TlsStream, Unverified};
use crate::outlier::Watch;
use crate::party::{Parting, Party};
use crate::plan::ClusterPlan;
use crate::proxy_protocol;
use crate::worker::Worker;

pub(crate) type Hosts = postrider_upstream::Cluster<Box<Upstream>>;
pub(crate) type Host = postrider_upstream::Host<Box<Upstream>>;

pub(crate) struct Cluster {
    pub(crate) plan: Arc<ClusterPlan>,
    pub(crate) name: Rc<str>,
    pub(crate) hosts: Hosts,
    /// How names are written over HTTP/1, and whether those that come go on.
    pub(crate) names: NameForm,
    pub(crate) breakers: LocalBreakers,
    /// For a cluster without endpoints of its own.
    pub(crate) destinations: Option<Box<Destinations>>,
    /// Not every connection serves every request.
    parting: Option<Parting>,
    /// Connections that carry many requests at once.
    streams: Pool,
    keepalive: Option<TcpKeepalive>,
    socket_options: Vec<postrider_sys::NumberedOption>,
    /// Made with the first request: a cluster without traffic holds no statistics.
    stats: OnceCell<Rc<Block>>,
    /// Checks of hosts, each a task: on the worker that checks.
    pub(crate) checks: RefCell<Vec<Check>>,
    /// Rung when the health of a host changed.
    pub(crate) health_changed: tokio::sync::Notify,
    /// Made with the first TLS connection.
    ssl_stats: OnceCell<Rc<Block>>,
    /// Made with the first check.
    health_stats: OnceCell<Rc<Block>>,
    /// Who decides about outliers: on the worker that does.
    pub(crate) outliers: RefCell<Option<Watch>>,
    outlier_stats: OnceCell<Rc<Block>>,
    /// Where hosts are known by their labels.
    subset_stats: OnceCell<Rc<Block>>,
    /// Where it is known in which zone the proxy stands.
    zone_stats: OnceCell<Rc<Block>>,
}

/// A connection to a host, busy or pooled.
pub(crate) struct Upstream {
    pub(crate) io: Io,
    pub(crate) input: Input,
    pub(crate) host: Rc<Host>,
    pub(crate) id: u64,
    /// The address that it goes to, as logs show it.
    pub(crate) name: Rc<str>,
    /// Bytes that one read may bring.
    pub(crate) buffer_limit: usize,
    idle_since: Cell<Moment>,
    /// For whom it was made, where that decides who may use it.
    party: Option<Rc<Party>>,
    account: Rc<Account>,
}

/// A connection's share in the counts of its host and cluster. The streams of one connection have it in common.
pub(crate) struct Account {
    host: Rc<Host>,
    pub(crate) stats: Rc<Block>,
    pub(crate) worker: Rc<Worker>,
    /// Requests that the connection carried so far.
    served: Cell<u32>,
    /// Requests that it carries now.
    pub(crate) busy: Cell<usize>,
    /// The peer ended it.
    ended_by_peer: Cell<bool>,
    created: Moment,
    /// Our end of the connection; `None` on a Unix socket.
    local: Option<SocketAddr>,
    /// The other end, as logs show it.
    name: Rc<str>,
    /// `None` for a plain connection.
    pub(crate) tls: Option<Rc<TlsSession>>,
    _permit: Permit,
}

/// A connection that was just made.
struct Reached {
    io: Io,
    tls: Option<Rc<TlsSession>>,
    /// Which address of the host it goes to, if that can be another than its first.
    other: Option<Address>,
}

/// Why there is no connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NoConnection {
    /// The circuit breaker for waiting requests is open.
    Overflow,
    Timeout,
    /// Too many hosts have connections already.
    NoPool,
    /// In the system's words.
    Failed(String),
}

impl Cluster {
    pub(crate) fn new(plan: &Arc<ClusterPlan>, worker: &Worker) -> Rc<Cluster> {
        let keepalive = plan.model.upstream.keepalive.as_ref();
        let (monitors, open) = (plan.monitors.clone(), plan.open.clone());
        Rc::new(Cluster {
            hosts: Hosts::among(
                Surroundings { monitors, open, home: worker.home.clone() },
                plan.model.balancing.clone(),
                plan.model.health.clone(),
                &plan.initial,
                &worker.random,
            ),
            names: plan.model.upstream.names,
            outliers: RefCell::default(),
            outlier_stats: OnceCell::new(),
            subset_stats: OnceCell::new(),
            zone_stats: OnceCell::new(),
            socket_options: io::system_options(&plan.model.upstream.socket_options),
            keepalive: keepalive.map(|k| postrider_sys::keepalive(k.probes, k.time, k.interval)),
            parting: parting(&plan.model),
            destinations: match &plan.model.discovery {
                Discovery::Original(model) => Some(Box::new(Destinations::new(model))),
                Discovery::Static(_) | Discovery::StrictDns(_) | Discovery::LogicalDns(_) => None,
            },
            streams: Pool::default(),
            stats: OnceCell::new(),
            checks: RefCell::default(),
            health_changed: tokio::sync::Notify::new(),
            ssl_stats: OnceCell::new(),
            health_stats: OnceCell::new(),
            name: (*plan.name).into(),
            breakers: Rc::new(plan.breakers.clone()),
            plan: plan.clone(),
        })
    }

    pub(crate) fn stats(&self, worker: &Worker) -> &Rc<Block> {
        self.stats.get_or_init(|| worker.stats.block(&stat::SET, &self.stat_prefix()))
    }

    pub(crate) fn health_stats(&self, worker: &Worker) -> &Rc<Block> {
        self.health_stats.get_or_init(|| worker.stats.block(&cluster_health::SET, &self.stat_prefix()))
    }

    pub(crate) fn outlier_stats(&self, worker: &Worker) -> &Rc<Block> {
        self.outlier_stats.get_or_init(|| worker.stats.block(&cluster_outlier::SET, &self.stat_prefix()))
    }

    /// What its statistics are found by.
    pub(crate) fn stat_prefix(&self) -> String {
        stat_name(self.plan.model.stat_name.as_deref().unwrap_or(&self.plan.name))
    }

    /// How large the head of an answer may be.
    #[inline]
    pub(crate) fn response_limits(&self) -> HeadLimits {
        let options = &self.plan.model.upstream;
        HeadLimits {
            max_bytes: options.max_response_head_bytes as usize,
            max_fields: options.max_response_headers as usize,
        }
    }

    /// Requests of this worker that wait for a connection.
    pub(crate) fn pending(&self, worker: &Worker) -> u64 {
        self.stats(worker).gauge(stat::UPSTREAM_RQ_PENDING_ACTIVE)
    }

    /// New endpoints; connections to those that are gone close.
    pub(crate) fn update(self: &Rc<Cluster>, endpoints: &Endpoints, worker: &Rc<Worker>) {
        let before = self.plan.model.balancing.closes_on_change.then(|| self.hosts.all());
        drop(self.hosts.update(endpoints, &worker.random));
        if before.is_some_and(|before| before.iter().any(|host| host.is_retired())) {
            self.streams.clear();
        }
        if !self.checks.borrow().is_empty() {
            crate::health::supervise(self, worker);
        }
        if self.outliers.borrow().is_some() {
            crate::outlier::supervise(self, worker);
        }
        self.count_members(worker);
        worker.look_at_peers(self);
    }

    /// A host is left out because of its answers, or back.
    pub(crate) fn look_at_ejection(&self, endpoint: &Endpoint, worker: &Worker) {
        let Some(monitors) = &self.plan.monitors else { return };
        self.hosts.set_ejected(endpoint, monitors.of(endpoint).is_ejected(), &worker.random);
        self.count_members(worker);
        worker.look_at_peers(self);
    }

    /// How many hosts there are, where that can change: counted by the first worker.
    pub(crate) fn count_members(&self, worker: &Worker) {
        let model = &self.plan.model;
        let fixed = matches!(model.discovery, Discovery::Static(_)) && model.health.checks.is_empty();
        if worker.id != 0 || fixed && self.plan.monitors.is_none() {
            return;
        }
        let stats = self.stats(worker);
        let members = self.hosts.members();
        stats.gauge_set(stat::MEMBERSHIP_TOTAL, members.all as u64);
        stats.gauge_set(stat::MEMBERSHIP_HEALTHY, members.healthy as u64);
        stats.gauge_set(stat::MEMBERSHIP_DEGRADED, members.degraded as u64);
        stats.gauge_set(stat::MEMBERSHIP_EXCLUDED, members.excluded as u64);
    }

    /// What a check found out about a host.
    pub(crate) fn set_health(self: &Rc<Cluster>, endpoint: &Endpoint, health: Health, worker: &Rc<Worker>) {
        drop(self.hosts.set_health(endpoint, health, &worker.random));
        if !self.checks.borrow().is_empty() {
            crate::health::supervise(self, worker);
        }
        self.health_changed.notify_waiters();
        worker.look_at_peers(self);
    }

    /// Tells what was done about zones, where they count.
    pub(crate) fn count_zones(&self, worker: &Worker) {
        let Some(counts) = self.hosts.take_zone_counts() else { return };
        let stats = self.zone_stats.get_or_init(|| worker.stats.block(&cluster_zones::SET, &self.stat_prefix()));
        stats.add(cluster_zones::ALL_DIRECTLY, counts.all_directly);
        stats.add(cluster_zones::SAMPLED, counts.sampled);
        stats.add(cluster_zones::CROSS_ZONE, counts.cross_zone);
        stats.add(cluster_zones::NO_CAPACITY_LEFT, counts.no_capacity_left);
        stats.add(cluster_zones::LOCAL_CLUSTER_NOT_OK, counts.local_cluster_not_ok);
        stats.add(cluster_zones::CLUSTER_TOO_SMALL, counts.cluster_too_small);
        stats.add(cluster_zones::RECALCULATED, counts.recalculated);
    }

    /// Tells what happened to the subsets of hosts, where there are some.
    pub(crate) fn count_subsets(&self, worker: &Worker) {
        let Some(counts) = self.hosts.take_subset_counts() else { return };
        let stats = self.subset_stats.get_or_init(|| worker.stats.block(&cluster_subsets::SET, &self.stat_prefix()));
        stats.gauge_set(cluster_subsets::ACTIVE, counts.active);
        stats.gauge_set(cluster_subsets::DUPLICATE, counts.duplicates);
        stats.add(cluster_subsets::CREATED, counts.created);
        stats.add(cluster_subsets::REMOVED, counts.removed);
        stats.add(cluster_subsets::SELECTED, counts.selected);
        stats.add(cluster_subsets::FALLBACK, counts.fallback);
        stats.add(cluster_subsets::FALLBACK_PANIC, counts.fallback_panic);
    }

    /// Ready when `host` fails its checks.
    pub(crate) async fn failure_of(&self, host: Rc<Host>) {
        loop {
            let mut changed = std::pin::pin!(self.health_changed.notified());
            // Before looking, so that no change comes between.
            changed.as_mut().enable();
            if host.health.get().failed {
                return;
            }
            changed.await;
        }
    }

    /// The host that a filter wants, or another if it may be another.
    #[cold]
    pub(crate) fn pick_wanted(
        &self,
        wanted: &UpstreamOverride,
        choice: Choice<'_>,
        random: &Random,
    ) -> Option<Rc<Host>> {
        let found = self.hosts.at(&Address::Tcp(wanted.address));
        found.or_else(|| self.hosts.pick_for(choice, random).filter(|_| !wanted.strict))
    }

    /// A pooled connection that is still good, and nothing else: no system call.
    pub(crate) fn checkout(
        &self,
        host: &Rc<Host>,
        now: Moment,
        protocol: UpstreamProtocol,
        party: Option<&Party>,
    ) -> Option<Box<Upstream>> {
        if protocol != UpstreamProtocol::Http1 {
            if let Some(client) = self.streams.find(host, party) {
                return Some(self.stream_of(host, &client));
            }
            if protocol == UpstreamProtocol::Http2 {
                return None;
            }
        }
        if let Some(party) = party {
            return self.checkout_for(host, now, party);
        }
        while let Some(mut upstream) = host.take_idle() {
            if upstream.is_usable(&self.plan, now) {
                return Some(upstream);
            }
        }
        None
    }

    /// The same where connections serve only those for whom they were made.
    #[cold]
    fn checkout_for(&self, host: &Rc<Host>, now: Moment, party: &Party) -> Option<Box<Upstream>> {
        while let Some(mut upstream) = host.take_idle_that(|upstream| upstream.party.as_deref() == Some(party)) {
            if upstream.is_usable(&self.plan, now) {
                return Some(upstream);
            }
        }
        None
    }

    /// What to speak for a request that came as `version`.
    #[inline]
    pub(crate) fn protocol_for(&self, version: Version) -> UpstreamProtocol {
        match (self.plan.model.upstream.protocol, version) {
            (UpstreamProtocol::SameAsClient, Version::Http2) => UpstreamProtocol::Http2,
            (UpstreamProtocol::SameAsClient, Version::Http10 | Version::Http11) => UpstreamProtocol::Http1,
            (protocol, _) => protocol,
        }
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
        protocol: Option<UpstreamProtocol>,
        party: Option<&Party>,
    ) -> Result<Box<Upstream>, NoConnection> {
        let stats = self.stats(worker).clone();
        let breakers = &self.breakers;
        self.admit(host, priority, worker)?;
        let Some(_pending) = Permit::pending(breakers, priority, worker.id) else {
            stats.inc(stat::UPSTREAM_RQ_PENDING_OVERFLOW);
            return Err(NoConnection::Overflow);
        };
        stats.inc(stat::UPSTREAM_RQ_PENDING_TOTAL);
        let _gauge = Active::count(&stats, stat::UPSTREAM_RQ_PENDING_ACTIVE);
        let permit = loop {
            if protocol == Some(UpstreamProtocol::Http2)
                && let Some(awaited) = self.streams.expected(host, party)
            {
                self.turn_or(|waker| awaited.poll_over(waker)).await?;
                if let Some(upstream) = self.checkout(host, worker.clock.now(), UpstreamProtocol::Http2, party) {
                    return Ok(upstream);
                }
                continue;
            }
            if self.has_room(host, priority)
                && let Some(permit) = Permit::connection(breakers, priority, worker.id)
            {
                break permit;
            }
            stats.inc(stat::UPSTREAM_CX_OVERFLOW);
            let Some(protocol) = protocol else {
                // A connection is never shared here: there is nothing to wait for.
                return Err(NoConnection::Overflow);
            };
            if party.is_some()
                && let Some(idle) = host.take_oldest_idle()
            {
                // It serves others only, and may do so for long: it gives way.
                drop(idle);
                continue;
            }
            if host.connections.get() == 0 {
                break Permit::connection_beyond_limit(breakers, priority, worker.id);
            }
            self.turn().await;
            if let Some(upstream) = self.checkout(host, worker.clock.now(), protocol, party) {
                return Ok(upstream);
            }
        };
        let multiplexed = protocol == Some(UpstreamProtocol::Http2);
        self.plan.traffic.store(true, Relaxed);
        let expected = multiplexed.then(|| self.streams.expect(self, host, party));
        let made = self.make(worker, host, permit, protocol, party).await;
        if let (Some(expected), Err(failure)) = (&expected, &made) {
            expected.fail(failure);
        }
        made
    }

    /// A connection for whose permission nobody has to wait any more.
    async fn make(
        self: &Rc<Cluster>,
        worker: &Rc<Worker>,
        host: &Rc<Host>,
        permit: Permit,
        protocol: Option<UpstreamProtocol>,
        party: Option<&Party>,
    ) -> Result<Box<Upstream>, NoConnection> {
        let stats = self.stats(worker).clone();
        let endpoint = &host.endpoint;
        let connecting = self.reach(worker, host, alpn(protocol), party);
        host.begin_connection();
        stats.inc(stat::UPSTREAM_CX_TOTAL);
        stats.gauge_inc(stat::UPSTREAM_CX_ACTIVE);
        let unwind = Unwind { host, stats: &stats, armed: Cell::new(true) };
        let started = worker.clock.now();
        let Reached { io, tls, other } = match tokio::time::timeout(self.plan.model.connect_timeout, connecting).await {
            Ok(Ok(opened)) => opened,
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
        let account = Rc::new(Account {
            host: host.clone(),
            stats: stats.clone(),
            worker: worker.clone(),
            served: Cell::new(0),
            busy: Cell::new(0),
            ended_by_peer: Cell::new(false),
            created: now,
            local: io.local(),
            name: other.as_ref().unwrap_or(&endpoint.address).to_string().into(),
            tls,
            _permit: permit,
        });
        let id = worker.next_connection_id();
        let party = party.map(|party| Rc::new(party.clone()));
        if !protocol.is_some_and(|protocol| speaks_http2(&io, protocol)) {
            if protocol.is_some() {
                stats.inc(stat::UPSTREAM_CX_HTTP1_TOTAL);
            }
            return Ok(Box::new(self.upstream(io, host, id, account, party)));
        }
        stats.inc(stat::UPSTREAM_CX_HTTP2_TOTAL);
        let options = &self.plan.model.upstream;
        let beginning = Client::begin(io, options, account, id, self, party);
        let Ok(client) = tokio::time::timeout(self.plan.model.connect_timeout, beginning).await else {
            stats.inc(stat::UPSTREAM_CX_CONNECT_TIMEOUT);
            return Err(NoConnection::Timeout);
        };
        let client = client.map_err(|error| NoConnection::Failed(error.to_string()))?;
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

    /// The host has no limit of its own, or has not reached it.
    fn has_room(&self, host: &Host, priority: Priority) -> bool {
        let limit = self.thresholds(priority).max_connections_per_host;
        limit.is_none_or(|limit| host.open_connections() < limit)
    }

    /// Where the number of hosts with connections is limited: permission for this one to have some.
    ///
    /// # Errors
    /// There is none.
    fn admit(&self, host: &Host, priority: Priority, worker: &Worker) -> Result<(), NoConnection> {
        if self.thresholds(priority).max_connection_pools.is_none() || host.is_admitted() {
            return Ok(());
        }
        let Some(permit) = Permit::pool(&self.breakers, priority, worker.id) else {
            self.stats(worker).inc(stat::UPSTREAM_CX_POOL_OVERFLOW);
            return Err(NoConnection::NoPool);
        };
        host.admit(permit);
        Ok(())
    }

    fn upstream(&self, io: Io, host: &Rc<Host>, id: u64, account: Rc<Account>, party: Option<Rc<Party>>) -> Upstream {
        Upstream {
            io,
            input: Input::default(),
            host: host.clone(),
            id,
            name: account.name.clone(),
            buffer_limit: self.plan.model.buffer_limit as usize,
            idle_since: Cell::new(account.worker.clock.now()),
            party,
            account,
        }
    }

    /// A stream of a connection for one request.
    fn stream_of(&self, host: &Rc<Host>, client: &Client) -> Box<Upstream> {
        // Taken from here on, so that nobody else counts on it.
        client.account.busy.set(client.account.busy.get() + 1);
        let io = Io::Http2(Box::new(client.stream()));
        Box::new(self.upstream(io, host, client.id, client.account.clone(), client.party.clone()))
    }

    /// For whom the connection of a request is, or one without a request, where it may serve no other. `ends` are those of the
    /// client's connection, source first.
    #[inline]
    pub(crate) fn party(
        &self,
        request: Option<&RequestHead>,
        ends: impl FnOnce() -> Option<(SocketAddr, SocketAddr)>,
    ) -> Option<Box<Party>> {
        self.parting.as_ref().map(|parting| parting.of(request, ends()))
    }

    /// Connects to a host: to the first of its addresses that agrees, where it has several.
    async fn reach(
        &self,
        worker: &Worker,
        host: &Host,
        alpn: Option<&[&[u8]]>,
        party: Option<&Party>,
    ) -> std::io::Result<Reached> {
        let Endpoint { address, additional, hostname, .. } = &*host.endpoint;
        if additional.is_empty() {
            let (io, tls) = self.open(worker, address, hostname, alpn, party).await?;
            return Ok(Reached { io, tls, other: None });
        }
        // Boxed: most hosts have one address.
        Box::pin(self.race(worker, host, alpn, party)).await
    }

    async fn race(
        &self,
        worker: &Worker,
        host: &Host,
        alpn: Option<&[&[u8]]>,
        party: Option<&Party>,
    ) -> std::io::Result<Reached> {
        let addresses = postrider_upstream::address_order(&host.endpoint, self.plan.model.upstream.address_order);
        let attempts = addresses.into_iter().enumerate().map(move |(index, address)| async move {
            if index > 0 {
                // The first was counted already.
                self.stats(worker).inc(stat::UPSTREAM_CX_TOTAL);
                host.totals.connections.set(host.totals.connections.get() + 1);
            }
            let (io, tls) = self.open(worker, &address, &host.endpoint.hostname, alpn, party).await?;
            Ok(Reached { io, tls, other: Some(address) })
        });
        eyeballs::first(attempts).await
    }

    /// Connects, and agrees on TLS where the cluster wants it. `hostname` is the endpoint's name, which may be empty; `alpn` is
    /// what to offer in place of what the cluster says.
    pub(crate) async fn open(
        &self,
        worker: &Worker,
        address: &Address,
        hostname: &str,
        alpn: Option<&[&[u8]]>,
        party: Option<&Party>,
    ) -> std::io::Result<(Io, Option<Rc<TlsSession>>)> {
        let options = &self.plan.model.upstream;
        let mut socket = io::connect(address, options.bind, self.keepalive.as_ref(), &self.socket_options).await?;
        if let Some(header) = &self.plan.model.proxy_header {
            // Boxed: most clusters have none.
            Box::pin(introduce(header, address, party, &mut socket)).await?;
        }
        let Some(tls) = &self.plan.tls else { return Ok((Io::Plain(socket), None)) };
        let endpoint = Some(hostname).filter(|name| !name.is_empty());
        let stats = self.ssl_stats.get_or_init(|| worker.stats.block(&cluster_ssl::SET, &self.stat_prefix()));
        let ip = |address: Option<std::net::SocketAddr>| address.map(|address| address.ip());
        let remote = match address {
            Address::Tcp(address) => Some(address.ip()),
            Address::Unix { .. } => None,
        };
        let request_host = party.and_then(|party| party.host.as_deref());
        let target = Target { alpn, endpoint_host: endpoint, request_host, local: ip(socket.local()), remote };
        let session = tls.connection(&target).map_err(std::io::Error::other)?;
        let mut stream = Box::new(TlsStream::new(socket, session, Vec::new()));
        match std::future::poll_fn(|cx| stream.poll_handshake(cx)).await {
            Ok(()) => {
                stats.inc(cluster_ssl::HANDSHAKE);
                if stream.session().handshake_kind() == Some(rustls::HandshakeKind::Resumed) {
                    stats.inc(cluster_ssl::SESSION_REUSED);
                }
                let session = io::with_upstream(&stream, tls, &target);
                Ok((Io::Tls(stream), Some(Rc::new(session))))
            }
            Err(error) => {
                stats.inc(match io::verify_failure(&error) {
                    None => cluster_ssl::CONNECTION_ERROR,
                    Some(Unverified::Name) => cluster_ssl::FAIL_VERIFY_SAN,
                    Some(Unverified::NoCertificate | Unverified::Certificate) => cluster_ssl::FAIL_VERIFY_ERROR,
                });
                Err(std::io::Error::new(error.kind(), format!("TLS error: {error}")))
            }
        }
    }

    /// A connection ends whose peer answers no PING.
    #[cold]
    pub(crate) fn count_dead_peer(&self, worker: &Worker) {
        worker.stats.block(&cluster_http2::SET, &self.stat_prefix()).inc(cluster_http2::KEEPALIVE_TIMEOUT);
    }

    /// Waits until a connection of this cluster came free or ended.
    async fn turn(&self) {
        let _ = self.turn_or(|_| Poll::Pending).await;
    }

    /// The same, or until `over` is.
    async fn turn_or(&self, over: impl Fn(&Waker) -> Poll<Result<(), NoConnection>>) -> Result<(), NoConnection> {
        let mut place = Place { hosts: &self.hosts, waiter: self.hosts.wait(), used: false };
        std::future::poll_fn(|cx| {
            // A turn that is not needed goes to the next.
            let over = over(cx.waker());
            if over.is_pending() && place.waiter.is_called(cx.waker()) {
                place.used = true;
                return Poll::Ready(Ok(()));
            }
            over
        })
        .await
    }

    /// Puts a connection whose last exchange ended cleanly back for the next request, or closes it.
    pub(crate) fn put_back(&self, upstream: Box<Upstream>, now: Moment) {
        upstream.idle_since.set(now);
        let limit = self.plan.model.upstream.max_requests_per_connection;
        if upstream.is_stream() {
            // The connection stays where it is.
            drop(upstream);
            return self.hosts.call_next();
        }
        upstream.account.busy.set(0);
        if limit.is_some_and(|limit| upstream.account.served.get() >= limit) {
            upstream.account.stats.inc(stat::UPSTREAM_CX_MAX_REQUESTS);
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
        if let Some(destinations) = &self.destinations {
            destinations.each_host(|host| {
                drop(host.sweep_idle(|upstream| !upstream.is_usable(&self.plan, now)));
            });
            destinations.sweep(now);
        }
        self.streams.sweep(&self.plan.model.upstream, now);
    }
}

impl Drop for Cluster {
    /// Pooled connections hold their host and it holds them: the ring is cut here.
    fn drop(&mut self) {
        self.checks.take().iter().for_each(|check| check.task.abort());
        drop(self.outliers.take());
        drop(self.hosts.clear());
        if let Some(destinations) = &self.destinations {
            destinations.clear();
        }
        self.streams.clear();
    }
}

impl Upstream {
    pub(crate) fn stats(&self) -> &Block {
        &self.account.stats
    }

    /// Our end of the connection; `None` on a Unix socket.
    #[inline]
    pub(crate) fn local(&self) -> Option<SocketAddr> {
        self.account.local
    }

    /// What was agreed on; `None` for a plain connection.
    #[inline]
    pub(crate) fn tls(&self) -> Option<&Rc<TlsSession>> {
        self.account.tls.as_ref()
    }

    pub(crate) fn worker(&self) -> Rc<Worker> {
        self.account.worker.clone()
    }

    /// It is one stream of a connection.
    fn is_stream(&self) -> bool {
        matches!(self.io, Io::Http2(_))
    }

    /// As logs show it.
    #[inline]
    pub(crate) fn protocol(&self) -> &'static str {
        match self.io {
            Io::Http2(_) => "HTTP/2",
            Io::Plain(_) | Io::Tls(_) => "HTTP/1.1",
        }
    }

    /// Counts a request that goes out on this connection.
    pub(crate) fn begin_request(&self) {
        self.account.served.set(self.account.served.get() + 1);
        if !self.is_stream() {
            self.account.busy.set(1);
        }
    }

    /// The peer closed or broke the connection.
    pub(crate) fn peer_ended(&self) {
        self.account.ended_by_peer.set(true);
    }

    /// Whether it carried a request before this one.
    pub(crate) fn is_reused(&self) -> bool {
        self.account.served.get() > 1
    }

    /// Nothing came from a peer that had nothing to say, and the connection is not too old.
    #[inline(always)]
    fn is_usable(&mut self, plan: &ClusterPlan, now: Moment) -> bool {
        // Used a moment ago: what could have happened since could as well happen a moment later.
        if self.idle_since.get() == now {
            return true;
        }
        let options = &plan.model.upstream;
        let idle = now.saturating_duration_since(self.idle_since.get());
        if options.idle_timeout.is_some_and(|limit| idle >= limit) {
            self.account.stats.inc(stat::UPSTREAM_CX_IDLE_TIMEOUT);
            return false;
        }
        if options
            .max_connection_duration
            .is_some_and(|limit| now.saturating_duration_since(self.account.created) >= limit)
        {
            self.account.stats.inc(stat::UPSTREAM_CX_MAX_DURATION_REACHED);
            return false;
        }
        // Ready to read means closed, or bytes that nobody asked for; either ends it.
        let quiet = self.io.poll_readable(&mut Context::from_waker(Waker::noop())).is_pending();
        self.account.ended_by_peer.set(!quiet);
        quiet
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.input.release(&self.account.worker.buffers);
        if self.is_stream() {
            self.account.busy.set(self.account.busy.get().saturating_sub(1));
        }
    }
}

impl Account {
    /// How long the connection has lived.
    pub(crate) fn age(&self, now: Moment) -> std::time::Duration {
        now.saturating_duration_since(self.created)
    }

    /// Requests that the connection carried so far.
    pub(crate) fn served(&self) -> u32 {
        self.served.get()
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.host.end_connection();
        self.stats.gauge_dec(stat::UPSTREAM_CX_ACTIVE);
        self.stats.inc(stat::UPSTREAM_CX_DESTROY);
        let (ended, ended_busy) = match self.ended_by_peer.get() {
            true => (stat::UPSTREAM_CX_DESTROY_REMOTE, stat::UPSTREAM_CX_DESTROY_REMOTE_WITH_ACTIVE_RQ),
            false => (stat::UPSTREAM_CX_DESTROY_LOCAL, stat::UPSTREAM_CX_DESTROY_LOCAL_WITH_ACTIVE_RQ),
        };
        self.stats.inc(ended);
        if self.busy.get() > 0 {
            self.stats.inc(stat::UPSTREAM_CX_DESTROY_WITH_ACTIVE_RQ);
            self.stats.inc(ended_busy);
        }
        let age = self.age(self.worker.clock.now());
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
            self.host.end_connection();
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

fn parting(model: &postrider_model::Cluster) -> Option<Parting> {
    let by_host = model.tls.as_ref().is_some_and(|tls| tls.request_sni);
    let by_ends = model.proxy_header.is_some();
    let header = model.tls.as_ref().and_then(|tls| HeaderName::new(tls.sni_header.as_ref()?.as_bytes()).ok());
    (by_host || by_ends).then_some(Parting { by_host, header, by_ends })
}

/// Says by the PROXY protocol for whom the connection is, before anything else is said on it.
async fn introduce(
    header: &ProxyHeader,
    address: &Address,
    party: Option<&Party>,
    socket: &mut Socket,
) -> std::io::Result<()> {
    let own = match address {
        Address::Tcp(remote) => socket.local().map(|local| (local, *remote)),
        Address::Unix { .. } => None,
    };
    let bytes = proxy_protocol::write(header, party.and_then(|party| party.ends), own);
    socket.send_all(&bytes).await
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

/// `Connection refused`, without the number that Rust adds.
fn reason(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}
