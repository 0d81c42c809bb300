//! Connections carried without being read: one task moves bytes between a client and an endpoint.

use std::pin::pin;
use std::rc::Rc;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use postrider_filter_api::{
    CloseType, Flags, Logged, Moment, StreamInfo, TCP_CLUSTER, TCP_IDLE_TIMEOUT, TCP_NO_TUNNEL,
};
use postrider_http::{Fields, RequestHead, ResponseHead, Version};
use postrider_model::{AddedTlvs, BackOff, HashSource, Priority, TcpCluster, Tlv, Tunneling, UpstreamProtocol, Value};
use postrider_telemetry::stats::sets::{cluster as cluster_stat, tcp as stat};
use postrider_upstream::Choice;
use postrider_upstream::outlier::Outcome;

use crate::backlog::{Amounts, Backlog, OF_TCP, TCP_READS, Waiting};
use crate::buffers::Input;
use crate::chain::{Chain, Handler, Tcp};
use crate::cluster::{Cluster, Host, NoConnection, Upstream};
use crate::format::{Context, OfUpstream};
use crate::http::{combine, drawn_wait, hash_of_address, hash_of_noted, with_noted, with_share};
use crate::io::Io;
use crate::listener::Arrival;
use crate::named::{self, Named};
use crate::party::Caller;
use crate::proxy_protocol;
use crate::timers::Deadline;
use crate::tunnel::{self, NoTunnel, Opened};
use crate::worker::Worker;

mod post;
mod relay;

use post::Post;
use relay::{Direction, Ended, Plain, Side};

/// A session between a client and an endpoint.
struct Session {
    worker: Rc<Worker>,
    client: Io,
    deadline: Deadline,
    info: StreamInfo,
    /// What the client sent and the endpoint did not take yet.
    upload: Input,
    upload_ended: Ended,
    limit: usize,
    download_ended: Ended,
    last_activity: Moment,
    /// The client's connection was meant to go to its local address, which is not ours.
    redirected: bool,
    /// What statistics say of bytes that wait for the client, or for there to be an upstream.
    waiting: Waiting,
    backlog: Backlog,
    /// Both sides said that nothing more comes, and what the client sent is still to be delivered.
    flushing: bool,
    /// When the next line about it is due.
    next_line: Option<Moment>,
    /// The endpoint is reached through the bodies of a POST and its answer.
    post: Option<Box<Post>>,
    /// For an upstream that is told them.
    tlvs: Vec<Tlv>,
    /// How long it may last.
    longest: Option<Duration>,
    /// How long nothing may come, once an endpoint is reached.
    idle: Option<Duration>,
    /// Its chain, where it ends with that.
    chain: Option<Rc<Chain>>,
}

/// Why an endpoint is not reached.
enum Unreached {
    NoConnection(NoConnection),
    /// The proxy on the way opens no tunnel: why, as logs show it.
    NoTunnel(String),
    /// The session did not last until it said whether it does.
    Over(Over),
}

/// Why a session is over.
enum Over {
    Done,
    Idle,
    TooLong,
    ClientReset,
    UpstreamReset,
    /// The host fails its checks.
    HostFailed,
    /// The proxy drains, and connections like this one are not to outlast that.
    Draining,
}

pub(crate) async fn serve(worker: Rc<Worker>, chain: Rc<Chain>, arrival: Arrival) {
    let Handler::Tcp(tcp) = &chain.handler else { return };
    let mut info = info_of(&worker, &chain, &arrival);
    let now = info.started;
    let Arrival { io, ahead, redirected, counted, record, noted, id: arrival_id, .. } = arrival;
    if let Some(noted) = &noted {
        info.metadata.clone_from(&noted.metadata);
        info.filter_state.clone_from(&noted.state);
        info.connection = Some(noted.clone());
        info.upstream_objects.clone_from(&noted.objects);
    }
    let known = noted.as_ref().and_then(|noted| noted.tlvs.as_deref());
    let tlvs = match &tcp.model.tlvs {
        None => known.map(<[Tlv]>::to_vec).unwrap_or_default(),
        Some(added) => added_to(added, known, &info, &worker),
    };
    let mut session = Session {
        deadline: worker.timers.register(),
        client: io,
        info,
        upload: ahead,
        upload_ended: Ended::Open,
        limit: chain.buffer_limit,
        download_ended: Ended::Open,
        last_activity: now,
        redirected,
        waiting: Waiting::default(),
        backlog: Backlog::default(),
        flushing: false,
        next_line: tcp.model.log_moments.every.filter(|_| !tcp.logs.is_empty()).map(|interval| now + interval),
        post: None,
        tlvs,
        longest: tcp.model.max_connection_duration.map(|limit| {
            // Its own number decides, so that nobody has to remember it.
            with_share(limit, tcp.model.max_connection_duration_jitter, arrival_id)
        }),
        chain: tcp.model.ends_while_draining.then(|| chain.clone()),
        idle: tcp.model.idle_timeout,
        worker,
    };
    tcp.stats.inc(stat::DOWNSTREAM_CX_TOTAL);
    let busy = session.worker.busy.get();
    session.worker.busy.set(busy + 1);
    if tcp.model.log_moments.start {
        session.log(tcp, Logged::Start);
    }
    session.run(tcp).await;
    let worker = session.worker.clone();
    worker.busy.set(worker.busy.get().saturating_sub(1));
    session.client.close();
    session.client.noted(&mut session.info);
    session.log(tcp, Logged::End);
    drop(counted);
    if let Some(record) = record {
        record.settle(session.info);
    }
}

/// Why we end a connection on which nothing moved, in Envoy's words.
const IDLE: &str = "tcp_session_idle_timeout";
const TOO_LONG: &str = "max_connection_duration_reached";

impl From<NoConnection> for Unreached {
    fn from(failure: NoConnection) -> Unreached {
        Unreached::NoConnection(failure)
    }
}

/// What is known about a connection when it arrives.
pub(crate) fn info_of(worker: &Worker, chain: &Chain, arrival: &Arrival) -> StreamInfo {
    let now = worker.clock.now();
    let mut info = StreamInfo::new(now, worker.clock.wall(now));
    info.connection_id = arrival.id;
    info.downstream_local = arrival.local;
    info.downstream_connection_remote = arrival.remote;
    info.downstream_remote = arrival.remote;
    info.downstream_direct_remote = arrival.direct_remote;
    info.filter_chain.clone_from(&chain.name);
    chain.surround(&mut info);
    info.tls.clone_from(&arrival.tls);
    info.hello.clone_from(&arrival.hello);
    info
}

/// Counts and logs a connection that was not to be served.
pub(crate) fn turned_away(worker: &Worker, tcp: &Tcp, mut info: StreamInfo) -> StreamInfo {
    tcp.stats.inc(stat::DOWNSTREAM_CX_TOTAL);
    info.turned_away = true;
    log(worker, tcp, &mut info, Logged::End);
    info
}

impl Session {
    async fn run(&mut self, tcp: &Tcp) {
        if let Some(most) = tcp.model.awaits_data
            && let Err(over) = self.first_data(tcp, most).await
        {
            self.note_end(tcp, &over);
            return;
        }
        if tcp.model.awaits_data.is_some() {
            tcp.stats.inc(stat::EARLY_DATA_RECEIVED_COUNT_TOTAL);
        }
        // A filter may have noted where it goes.
        self.client.noted(&mut self.info);
        if let Some(Value::Number(limit)) = object(&self.info, TCP_IDLE_TIMEOUT) {
            self.idle = Some(Duration::from_millis(*limit as u64)).filter(|limit| !limit.is_zero());
        }
        self.waiting.tell(&tcp.stats, OF_TCP, self.upload.bytes().len(), 0);
        let connected = self.connect(tcp).await;
        self.waiting.tell(&tcp.stats, OF_TCP, 0, 0);
        let Some((cluster, mut upstream)) = connected else { return self.client.teach(&self.info) };
        let stats = cluster.stats(&self.worker).clone();
        self.info.upstream_remote = Some(upstream.name.clone());
        self.info.upstream_local = upstream.local();
        self.info.upstream_connection_id = upstream.id;
        self.info.upstream_tls = upstream.tls().cloned();
        self.info.upstream_connect = upstream.times();
        self.client.teach(&self.info);
        if tcp.model.log_moments.connected {
            self.log(tcp, Logged::Connected);
        }
        self.arm();
        let failing = cluster.plan.model.health.closes_connections;
        let mut failing = failing.then(|| Box::pin(cluster.failure_of(upstream.host.clone())));
        let over = std::future::poll_fn(|cx| {
            if failing.as_mut().is_some_and(|failing| failing.as_mut().poll(cx).is_ready()) {
                return Poll::Ready(Over::HostFailed);
            }
            self.poll_relay(tcp, &mut upstream, cx)
        })
        .await;
        drop(failing);
        self.backlog.clear(&tcp.stats, TCP_READS);
        self.waiting.tell(&tcp.stats, OF_TCP, 0, 0);
        if self.flushing {
            tcp.stats.gauge_dec(stat::UPSTREAM_FLUSH_ACTIVE);
        }
        if self.tunneling(tcp).is_some_and(|tunneling| tunneling.keeps_trailers) {
            let trailers = self.post.take().map_or_else(|| upstream.io.take_trailers(), |post| post.trailers());
            tunnel::keep_trailers(&trailers, &mut self.info);
        }
        if matches!(over, Over::Done | Over::UpstreamReset) {
            upstream.peer_ended();
        }
        self.note_end(tcp, &over);
        match over {
            Over::Done | Over::HostFailed | Over::Idle | Over::TooLong | Over::Draining => {}
            // Each side sees how the other ended.
            Over::ClientReset => upstream.io.reset_on_close(),
            Over::UpstreamReset if upstream.io.gave_up() => self.client.reset_on_close(),
            Over::UpstreamReset => {
                let flag = match self.tunneling(tcp) {
                    None => Flags::UPSTREAM_REMOTE_RESET,
                    Some(_) => Flags::UPSTREAM_CONNECTION_TERMINATION,
                };
                self.info.flags.insert(flag);
                self.client.reset_on_close();
            }
        }
        stats.gauge_dec(cluster_stat::UPSTREAM_RQ_ACTIVE);
        upstream.host.active.set(upstream.host.active.get().saturating_sub(1));
        self.upload.release(&self.worker.buffers);
        drop(upstream);
        cluster.gone();
    }

    /// Counts why it is over, and notes it for logs.
    fn note_end(&mut self, tcp: &Tcp, over: &Over) {
        match over {
            Over::Done | Over::HostFailed => {}
            Over::ClientReset => self.info.closed.downstream = CloseType::RemoteReset,
            // The client is told in the same way.
            Over::UpstreamReset => {
                self.info.closed.upstream = CloseType::RemoteReset;
                self.info.closed.downstream = CloseType::LocalReset;
            }
            // Its flag is for requests.
            Over::Idle => {
                tcp.stats.inc(stat::IDLE_TIMEOUT);
                self.info.closed.downstream_reason = IDLE.into();
                if self.info.upstream_connection_id != 0 {
                    self.info.closed.upstream_reason = IDLE.into();
                }
            }
            Over::Draining => tcp.stats.inc(stat::DOWNSTREAM_CX_DRAIN_CLOSE),
            Over::TooLong => {
                tcp.stats.inc(stat::MAX_DOWNSTREAM_CONNECTION_DURATION);
                self.info.flags.insert(Flags::DURATION_TIMEOUT);
                self.info.closed.downstream_reason = TOO_LONG.into();
                if self.info.upstream_connection_id != 0 {
                    self.info.closed.upstream_reason = TOO_LONG.into();
                }
            }
        }
    }

    /// Waits until the client said something. One that closes before has nothing to say to anybody.
    async fn first_data(&mut self, tcp: &Tcp, most: u32) -> Result<(), Over> {
        let limit = self.limit.min(most as usize).max(1);
        self.arm();
        std::future::poll_fn(|cx| {
            if !self.upload.is_empty() {
                return Poll::Ready(Ok(()));
            }
            self.deadline.watch(cx.waker());
            match self.upload.poll_fill(cx, &mut self.client, limit, &self.worker.buffers) {
                Poll::Ready(Ok(0)) => Poll::Ready(Err(Over::Done)),
                Poll::Ready(Ok(_)) => Poll::Ready(Ok(())),
                Poll::Ready(Err(_)) => Poll::Ready(Err(Over::ClientReset)),
                Poll::Pending => self.check_time(tcp).map(Err),
            }
        })
        .await
    }

    /// Waits for `step`, unless the session is over before. What the client says meanwhile stays in its socket.
    async fn meanwhile<T>(&mut self, tcp: &Tcp, step: impl Future<Output = T>) -> Result<T, Over> {
        let mut step = pin!(step);
        let mut resets = None;
        self.last_activity = self.worker.clock.now();
        self.arm();
        std::future::poll_fn(|cx| {
            if let Poll::Ready(done) = step.as_mut().poll(cx) {
                return Poll::Ready(Ok(done));
            }
            if self.client.poll_reset(&mut resets, cx).is_ready() {
                return Poll::Ready(Err(Over::ClientReset));
            }
            self.deadline.watch(cx.waker());
            self.check_time(tcp).map(Err)
        })
        .await
    }

    /// Connects to an endpoint of the cluster that the configuration names, as often as it allows.
    async fn connect(&mut self, tcp: &Tcp) -> Option<(Rc<Cluster>, Box<Upstream>)> {
        let drawn = draw(&tcp.model.clusters, self.worker.random.next())?;
        // A guard may know better.
        let name = match object(&self.info, TCP_CLUSTER) {
            Some(Value::String(name)) if !tcp.model.weighted => name,
            _ => &drawn.cluster,
        };
        let Some(cluster) = self.worker.cluster(name) else {
            tcp.stats.inc(stat::DOWNSTREAM_CX_NO_ROUTE);
            self.fail(Flags::NO_CLUSTER_FOUND);
            return None;
        };
        self.info.upstream_cluster = Some(cluster.name.clone());
        let labels = with_noted(drawn.labels.as_ref(), &self.info.metadata);
        let tunneling = self.tunneling(tcp);
        let mut wanted = Named::of(&cluster, None, &self.info);
        let mut waits = tcp.model.back_off;
        for attempt in 0..tcp.model.max_connect_attempts.max(1) {
            if attempt > 0
                && let Some(back_off) = &mut waits
                && let Err(over) = self.back_off(tcp, back_off).await
            {
                self.note_end(tcp, &over);
                return None;
            }
            // Before a host is chosen: such a connection is never shared, so there is nothing to wait for.
            if tunneling.is_none() && cluster.is_full(&self.worker) {
                cluster.stats(&self.worker).inc(cluster_stat::UPSTREAM_CX_OVERFLOW);
                self.fail(Flags::UPSTREAM_OVERFLOW);
                return None;
            }
            let meant = self.info.downstream_local.filter(|_| self.redirected);
            let choice = Choice { hash: self.hash(tcp, &cluster), attempt: 0, labels: labels.as_deref() };
            let host = wanted.pick(&cluster, choice, &self.worker.random);
            if let Some(host) = &host {
                named::note(host, &cluster, &mut self.info);
            }
            let Some(host) = host.or_else(|| cluster.destination(None, meant, Some(&self.info), &self.worker)) else {
                cluster.stats(&self.worker).inc(cluster_stat::UPSTREAM_CX_NONE_HEALTHY);
                self.fail(Flags::NO_HEALTHY_UPSTREAM);
                return None;
            };
            self.info.upstream_attempts += 1;
            self.info.upstream_remote = Some(host.endpoint.address.to_string().into());
            let asked = self.worker.clock.now();
            let reached = self.reach(tcp, tunneling, &cluster, &host).await;
            self.info.upstream_wait = Some(self.worker.clock.now().saturating_duration_since(asked));
            let untried = |failure: &Unreached| {
                matches!(
                    failure,
                    Unreached::NoConnection(NoConnection::Overflow | NoConnection::NoPool) | Unreached::Over(_)
                )
            };
            if host.monitor.is_some() && !reached.as_ref().is_err_and(untried) {
                let outcome = if reached.is_ok() { Outcome::ConnectedFinally } else { Outcome::Failed };
                crate::outlier::report(&cluster, &host, outcome, &self.worker);
            }
            match reached {
                Ok(upstream) => {
                    upstream.carry();
                    host.active.set(host.active.get() + 1);
                    if tunneling.is_none() {
                        self.count_request(&cluster, &host);
                    }
                    cluster.stats(&self.worker).gauge_inc(cluster_stat::UPSTREAM_RQ_ACTIVE);
                    return Some((cluster.clone(), upstream));
                }
                Err(Unreached::Over(over)) => {
                    self.note_end(tcp, &over);
                    return None;
                }
                Err(Unreached::NoTunnel(cause)) => {
                    self.info.flags.insert(Flags::UPSTREAM_CONNECTION_FAILURE);
                    self.info.upstream_failure = Some(cause.into());
                }
                Err(Unreached::NoConnection(failure)) => match failure {
                    NoConnection::NoPool => {
                        self.fail(Flags::NO_HEALTHY_UPSTREAM);
                        return None;
                    }
                    NoConnection::Overflow => {
                        self.fail(Flags::UPSTREAM_OVERFLOW);
                        return None;
                    }
                    // The flag stays when a later attempt succeeds.
                    NoConnection::Timeout => {
                        self.info.flags.insert(Flags::UPSTREAM_CONNECTION_FAILURE);
                        self.info.upstream_failure = Some("connection timeout".into());
                    }
                    NoConnection::Failed(cause) => {
                        self.info.flags.insert(Flags::UPSTREAM_CONNECTION_FAILURE);
                        self.info.upstream_failure = (!cause.is_empty()).then(|| cause.into());
                    }
                },
            }
        }
        cluster.stats(&self.worker).inc(cluster_stat::UPSTREAM_CX_CONNECT_ATTEMPTS_EXCEEDED);
        self.fail(Flags::UPSTREAM_CONNECTION_FAILURE);
        self.info.flags.insert(Flags::UPSTREAM_RETRY_LIMIT_EXCEEDED);
        None
    }

    /// A tunnel is a request also where it is refused.
    fn count_request(&self, cluster: &Cluster, host: &Host) {
        host.totals.requests.set(host.totals.requests.get() + 1);
        cluster.stats(&self.worker).inc(cluster_stat::UPSTREAM_RQ_TOTAL);
    }

    /// Waits before another attempt, by chance up to the base, which doubles.
    async fn back_off(&mut self, tcp: &Tcp, back_off: &mut BackOff) -> Result<(), Over> {
        let wait = drawn_wait(back_off.base, &self.worker.random);
        back_off.base = back_off.base.saturating_mul(2).min(back_off.max);
        self.meanwhile(tcp, tokio::time::sleep(wait)).await
    }

    /// What decides on the host, where the cluster chooses by a hash.
    fn hash(&self, tcp: &Tcp, cluster: &Cluster) -> Option<u64> {
        let hash_of = |source: &HashSource| match source {
            HashSource::SourceIp => hash_of_address(self.info.downstream_remote),
            HashSource::FilterState(name) => hash_of_noted(name, &self.info),
            // Of requests, which a connection has none of.
            _ => None,
        };
        match cluster.hosts.hash_policies() {
            [] => hash_of(tcp.model.hash.as_ref()?),
            own => combine(own, hash_of),
        }
    }

    /// The tunnel that it takes.
    fn tunneling<'t>(&self, tcp: &'t Tcp) -> Option<&'t Tunneling> {
        let tunneling = tcp.model.tunneling.as_ref()?;
        let is_off = matches!(object(&self.info, TCP_NO_TUNNEL), Some(Value::Bool(true)));
        (!is_off).then_some(tunneling)
    }

    fn caller(&self) -> Caller<'_> {
        let ends = self.info.downstream_remote.zip(self.info.downstream_local);
        Caller { id: Some(self.info.connection_id), ends, tlvs: &self.tlvs }
    }

    /// A connection to `host`, or, where that is a proxy, to what it connects to.
    async fn reach(
        &mut self,
        tcp: &Tcp,
        tunneling: Option<&Tunneling>,
        cluster: &Rc<Cluster>,
        host: &Rc<Host>,
    ) -> Result<Box<Upstream>, Unreached> {
        let party = cluster.party_with(host, None, || self.caller(), self.info.upstream_objects.as_deref());
        let party = party.as_deref();
        let worker = &self.worker.clone();
        let connect = async |protocol| {
            let connected = cluster.connect(worker, host, Priority::Default, protocol, party).await;
            connected.inspect_err(|failure| {
                if matches!(failure, NoConnection::Timeout | NoConnection::Failed(_)) {
                    cluster.stats(worker).inc(cluster_stat::UPSTREAM_RQ_PENDING_FAILURE_EJECT);
                }
            })
        };
        let Some(tunneling) = tunneling else { return Ok(connect(None).await?) };
        let mut head = tunnel::request(tunneling, &mut self.info, worker).map_err(Unreached::NoTunnel)?;
        let protocol = cluster.protocol_for(Version::Http11);
        let pooled = match protocol {
            // It would be an idle connection, which a tunnel uses up.
            UpstreamProtocol::Http1 => None,
            _ => cluster.checkout(host, worker.clock.now(), protocol, party),
        };
        let mut upstream = match pooled {
            Some(upstream) => upstream,
            None => connect(Some(protocol)).await?,
        };
        self.count_request(cluster, host);
        // The proxy has a connection of its own to make first: how long that takes is for the session's limits.
        let opening = tunnel::open(&mut head, &mut upstream, cluster, worker);
        let opened = match self.meanwhile(tcp, opening).await {
            Ok(opened) => opened,
            Err(over) => {
                drop(upstream);
                cluster.gone();
                return Err(Unreached::Over(over));
            }
        };
        if tunneling.keeps_headers
            && let Ok(Opened { answer, .. }) | Err(NoTunnel::Answered(answer)) = &opened
        {
            tunnel::keep_head(answer, &mut self.info);
        }
        match opened {
            Ok(Opened { body, .. }) => {
                let framed = !matches!(upstream.io, Io::Http2(_));
                self.post = body.map(|body| Box::new(Post::new(body, cluster.response_limits(), framed)));
                Ok(upstream)
            }
            Err(failure) => {
                drop(upstream);
                cluster.gone();
                Err(match failure {
                    NoTunnel::Answered(answer) => Unreached::NoTunnel(format!("tunnel_response:{}", answer.status())),
                    NoTunnel::Failed(cause) => Unreached::NoTunnel(cause),
                })
            }
        }
    }

    /// The client is closed without a word; not reset, as it may not even know yet that it is connected.
    /// There is no connection to an upstream.
    fn fail(&mut self, flag: Flags) {
        self.info.flags.insert(flag);
        // Envoy's `UpstreamFailureReason`, and its spelling.
        let reason = match flag {
            Flags::NO_HEALTHY_UPSTREAM => 1,
            Flags::UPSTREAM_OVERFLOW => 2,
            Flags::NO_CLUSTER_FOUND => 3,
            _ => 0,
        };
        self.info.closed.downstream_reason = format!("tcp_initializion_failure:{reason}").into();
        if matches!(reason, 1 | 2) {
            // The cluster was asked, and had its answer ready.
            self.info.upstream_wait.get_or_insert_default();
        }
    }

    fn poll_relay(&mut self, tcp: &Tcp, upstream: &mut Upstream, cx: &mut TaskContext<'_>) -> Poll<Over> {
        self.deadline.watch(cx.waker());
        let worker = self.worker.clone();
        loop {
            let way = Direction {
                source: &mut self.client,
                input: &mut self.upload,
                sink: &mut upstream.io,
                ended: &mut self.upload_ended,
                limit: self.limit,
                buffers: &worker.buffers,
            };
            let up = match &mut self.post {
                None => way.relay(&mut Plain, cx),
                Some(post) => way.relay(&mut post.request, cx),
            };
            let (up_moved, received) = match up {
                Ok(moved) => moved,
                Err(Side::Source) => return Poll::Ready(Over::ClientReset),
                Err(Side::Sink) => return Poll::Ready(Over::UpstreamReset),
            };
            let way = Direction {
                limit: self.limit.min(upstream.buffer_limit),
                source: &mut upstream.io,
                input: &mut upstream.input,
                sink: &mut self.client,
                ended: &mut self.download_ended,
                buffers: &worker.buffers,
            };
            let down = match &mut self.post {
                None => way.relay(&mut Plain, cx),
                Some(post) => way.relay(&mut post.answer, cx),
            };
            let (down_moved, sent) = match down {
                Ok(moved) => moved,
                Err(Side::Source) => return Poll::Ready(Over::UpstreamReset),
                Err(Side::Sink) => return Poll::Ready(Over::ClientReset),
            };
            self.count(tcp, upstream, received, sent);
            if self.upload_ended == Ended::Told && self.download_ended == Ended::Told {
                return Poll::Ready(Over::Done);
            }
            if !up_moved && !down_moved {
                break;
            }
            if self.chain.as_ref().is_some_and(|chain| worker.drains(chain)) {
                return Poll::Ready(Over::Draining);
            }
            self.last_activity = worker.clock.now();
        }
        let (up, down) = (self.upload.bytes().len(), upstream.input.bytes().len());
        if up + down > 0 || self.backlog.is_told() || self.waiting.is_told() {
            self.tell_backlog(tcp, upstream, Amounts { up, down, received: 0 });
        }
        self.check_time(tcp)
    }

    /// Tells what waits now that nothing moves.
    #[cold]
    fn tell_backlog(&mut self, tcp: &Tcp, upstream: &Upstream, standing: Amounts) {
        self.waiting.tell(&tcp.stats, OF_TCP, 0, standing.down);
        self.backlog.tell(upstream.counted(), &tcp.stats, TCP_READS, standing);
        if self.upload_ended == Ended::Received && self.download_ended == Ended::Told && !self.flushing {
            self.flushing = true;
            tcp.stats.inc(stat::UPSTREAM_FLUSH_TOTAL);
            tcp.stats.gauge_inc(stat::UPSTREAM_FLUSH_ACTIVE);
        }
    }

    fn count(&mut self, tcp: &Tcp, upstream: &Upstream, received: usize, sent: usize) {
        self.info.bytes_received += received as u64;
        self.info.bytes_sent += sent as u64;
        tcp.stats.add(stat::DOWNSTREAM_CX_RX_BYTES_TOTAL, received as u64);
        tcp.stats.add(stat::DOWNSTREAM_CX_TX_BYTES_TOTAL, sent as u64);
        upstream.stats().add(cluster_stat::UPSTREAM_CX_TX_BYTES_TOTAL, received as u64);
        upstream.stats().add(cluster_stat::UPSTREAM_CX_RX_BYTES_TOTAL, sent as u64);
    }

    fn arm(&self) {
        let idle = self.idle.map(|limit| self.last_activity + limit);
        let longest = self.longest.map(|limit| self.info.started + limit);
        self.deadline.set([idle, longest, self.next_line].into_iter().flatten().min());
    }

    fn check_time(&mut self, tcp: &Tcp) -> Poll<Over> {
        if !self.deadline.is_past() {
            return Poll::Pending;
        }
        let now = self.worker.clock.now();
        if self.longest.is_some_and(|limit| now >= self.info.started + limit) {
            return Poll::Ready(Over::TooLong);
        }
        if self.idle.is_some_and(|limit| now >= self.last_activity + limit) {
            return Poll::Ready(Over::Idle);
        }
        if let (Some(due), Some(interval)) = (self.next_line, tcp.model.log_moments.every)
            && now >= due
        {
            self.log(tcp, Logged::Periodic);
            // From when it was written: one that takes longer than the interval leaves time for the connection all the same.
            self.next_line = Some(self.worker.clock.exact() + interval);
        }
        self.arm();
        Poll::Pending
    }

    fn log(&mut self, tcp: &Tcp, logged: Logged) {
        log(&self.worker, tcp, &mut self.info, logged);
    }
}

fn log(worker: &Worker, tcp: &Tcp, info: &mut StreamInfo, logged: Logged) {
    let now = worker.clock.now();
    info.logged = logged;
    // Before the end it lasted until now.
    info.ended = Some(now);
    if tcp.logs.is_empty() {
        return;
    }
    let cluster = info.upstream_cluster.as_deref().and_then(|name| worker.cluster(name));
    tcp.logs.write(&Context {
        request: &RequestHead::new(),
        response: &ResponseHead::new(),
        trailers: &Fields::new(),
        info,
        route: None,
        weighted: None,
        reply_body: &[],
        http: false,
        now: worker.clock.wall(now),
        upstream: OfUpstream { cluster: cluster.as_deref(), tried: &[], tried_on: &[] },
    });
}

#[cold]
fn added_to(added: &AddedTlvs, known: Option<&[Tlv]>, info: &StreamInfo, worker: &Worker) -> Vec<Tlv> {
    proxy_protocol::merge(added, known, |format, out| {
        let context = Context {
            request: &RequestHead::new(),
            response: &ResponseHead::new(),
            trailers: &Fields::new(),
            info,
            route: None,
            weighted: None,
            reply_body: &[],
            http: false,
            now: worker.clock.wall_now(),
            upstream: OfUpstream::default(),
        };
        context.write_log(format, out);
    })
}

/// An object that a filter may have made of the connection.
fn object<'i>(info: &'i StreamInfo, name: &str) -> Option<&'i Value> {
    info.filter_state.iter().find(|(known, _)| known == name).map(|(_, value)| value)
}

/// A cluster by its weight.
fn draw(clusters: &[TcpCluster], random: u64) -> Option<&TcpCluster> {
    let total: u64 = clusters.iter().map(|cluster| u64::from(cluster.weight)).sum();
    let mut ticket = random.checked_rem(total)?;
    for cluster in clusters {
        let weight = u64::from(cluster.weight);
        if ticket < weight {
            return Some(cluster);
        }
        ticket -= weight;
    }
    None
}
