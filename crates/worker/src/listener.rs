//! A listener on one worker: accepts, balances, chooses the filter chain and starts the connection's task.

mod handed;
mod introduction;
mod surroundings;

use std::cell::{Cell, OnceCell, RefCell};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};
use std::time::Duration;

use postrider_filter_api::{Moment, NewcomerFilter, Noted, TlsSession, WantedSource};
use postrider_model::{
    Address, ConnectionBalance, Inspection, InspectionPart, OriginalSource, ProxyProtocol, ScaledTimer,
};
use postrider_sys::Bound;
use postrider_telemetry::Block;
use postrider_telemetry::stats::sets::{
    listener as stat, listener_ssl, listener_worker as worker_stat, proxy_protocol as proxy_stat, proxy_protocol_errors,
};
use postrider_tls::rustls::sign::CertifiedKey;
use postrider_tls::{ServerTls, rustls};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::task::AbortHandle;

use crate::buffers::Input;
use crate::chain::Chain;
use crate::cluster::{millis, stat_name};
use crate::filter_chain::Peer;
use crate::greeting::{Greeting, Inspector, Proxied, Refused};
use crate::guard;
use crate::io::{Arriving, Io, Kind, Socket, TlsStream, Unverified, verify_failure, with_client};
use crate::limit;
use crate::log::Logs;
use crate::message::{Accepted, Message};
use crate::plan::ListenerPlan;
use crate::proxy_protocol::Version;
use crate::record::Record;
use crate::worker::Worker;

use surroundings::Around;
pub(crate) use surroundings::of_chain;

/// How long accepting rests when the process is out of descriptors: trying at once would only burn the processor.
const ACCEPT_BACK_OFF: Duration = Duration::from_millis(100);

/// A worker hands a new connection over only when it holds at least this many more than the least loaded one: a move
/// costs more than a small difference.
const HAND_OVER_MARGIN: usize = 8;

pub(crate) struct Listener {
    plan: RefCell<Arc<ListenerPlan>>,
    /// Its own, of connections; `None` when it has none.
    logs: RefCell<Option<Rc<Logs>>>,
    /// In the order of [`ListenerPlan::each_chain`].
    chains: RefCell<Vec<Rc<Chain>>>,
    /// Those that look at new connections.
    filters: RefCell<Vec<Rc<dyn NewcomerFilter>>>,
    /// For those who ask about it.
    around: Rc<Around>,
    stats: Rc<Block>,
    worker_stats: Rc<Block>,
    /// Made with the first TLS connection.
    ssl_stats: OnceCell<Rc<Block>>,
    stat_prefix: String,
    accepting: RefCell<Vec<AbortHandle>>,
    closed: Cell<bool>,
}

/// A connection's share in its listener's counts.
pub(crate) struct Counted {
    listener: Rc<Listener>,
    plan: Arc<ListenerPlan>,
    worker: Rc<Worker>,
    accepted: Moment,
}

/// What a new connection knows about itself.
pub(crate) struct Arrival {
    pub(crate) io: Io,
    /// Received already.
    pub(crate) ahead: Input,
    pub(crate) local: Option<SocketAddr>,
    /// That is not ours, but where the connection was meant to go.
    pub(crate) redirected: bool,
    pub(crate) remote: Option<SocketAddr>,
    /// The peer itself, before what a proxy in front of us said.
    pub(crate) direct_remote: Option<SocketAddr>,
    /// What was agreed on; `None` for a plain connection.
    pub(crate) tls: Option<Rc<TlsSession>>,
    pub(crate) id: u64,
    /// `None` for a stream of a connection that is counted itself.
    pub(crate) counted: Option<Counted>,
    /// What the listener's log will say of the connection.
    pub(crate) record: Option<Rc<Record>>,
    /// What the PROXY protocol said and guards noted.
    pub(crate) noted: Option<Rc<Noted>>,
}

impl Listener {
    /// Begins to accept on `sockets`.
    pub(crate) fn start(plan: &Arc<ListenerPlan>, sockets: Vec<Bound>, worker: &Rc<Worker>) -> Rc<Listener> {
        let stat_prefix = stat_prefix(plan, &sockets);
        let limit = plan.model.buffer_limit;
        let around = Rc::new(Around::new(plan, worker));
        let new = |chain| Chain::new(chain, &stat_prefix, limit, around.clone(), worker);
        let chains = plan.each_chain().map(new).collect();
        let listener = Rc::new(Listener {
            plan: RefCell::new(plan.clone()),
            logs: RefCell::default(),
            chains: RefCell::new(chains),
            filters: RefCell::new(newcomer_filters(plan, &stat_prefix, worker)),
            around,
            stats: worker.stats.block(&stat::SET, &stat_prefix),
            worker_stats: worker.stats.block(&worker_stat::SET, &format!("{stat_prefix}.worker_{}", worker.id)),
            ssl_stats: OnceCell::new(),
            stat_prefix,
            accepting: RefCell::default(),
            closed: Cell::new(false),
        });
        listener.take_logs(plan, worker);
        listener.fail_health(worker.fails_health.get());
        for socket in sockets {
            let (listener_of_task, worker) = (listener.clone(), worker.clone());
            let task = tokio::task::spawn_local(async move {
                match socket {
                    Bound::Tcp(socket) => match TcpListener::from_std(socket) {
                        Ok(socket) => listener_of_task.accept_tcp(&worker, socket).await,
                        Err(error) => report(&error),
                    },
                    Bound::Unix(socket) => match UnixListener::from_std(socket) {
                        Ok(socket) => listener_of_task.accept_unix(&worker, socket).await,
                        Err(error) => report(&error),
                    },
                }
            });
            listener.accepting.borrow_mut().push(task.abort_handle());
        }
        listener
    }

    /// Takes over a new plan with the sockets as they are. Chains that differ at most in their routes go on; the
    /// others drain.
    pub(crate) fn update(&self, plan: &Arc<ListenerPlan>, worker: &Rc<Worker>) {
        if Arc::ptr_eq(&self.plan.borrow(), plan) {
            return;
        }
        self.around.replace_plan(plan);
        let mut old = self.chains.take();
        if self.plan.borrow().model.buffer_limit != plan.model.buffer_limit {
            old.drain(..).for_each(|chain| chain.drop_out());
        }
        let chains = plan
            .each_chain()
            .map(|chain| {
                let known = old.iter().position(|old| Arc::ptr_eq(&old.plan, chain) || old.plan.same_but_routes(chain));
                match known {
                    Some(index) => {
                        let known = old.swap_remove(index);
                        known.replace_routes(chain, worker);
                        known
                    }
                    None => {
                        let limit = plan.model.buffer_limit;
                        Chain::new(chain, &self.stat_prefix, limit, self.around.clone(), worker)
                    }
                }
            })
            .collect();
        old.iter().for_each(|gone| gone.drop_out());
        *self.chains.borrow_mut() = chains;
        self.take_filters(plan, worker);
        self.take_logs(plan, worker);
        *self.plan.borrow_mut() = plan.clone();
        self.fail_health(worker.fails_health.get());
    }

    /// The proxy says of itself that it is not healthy, or that it is again.
    pub(crate) fn fail_health(&self, fails: bool) {
        let fails = fails && self.plan.borrow().model.drains_unhealthy;
        self.chains.borrow().iter().for_each(|chain| chain.fail_health(fails));
    }

    /// The filters of new connections are those of `plan`.
    fn take_filters(&self, plan: &Arc<ListenerPlan>, worker: &Rc<Worker>) {
        let old = self.plan.borrow().clone();
        let same = old.filters.len() == plan.filters.len()
            && old.filters.iter().zip(&plan.filters).all(|(old, new)| Arc::ptr_eq(old, new));
        if !same {
            *self.filters.borrow_mut() = newcomer_filters(plan, &self.stat_prefix, worker);
        }
    }

    /// The listener's own log is that of `plan`.
    fn take_logs(&self, plan: &ListenerPlan, worker: &Rc<Worker>) {
        let logs = Logs::new(&plan.model.access_log, worker);
        let logs = (!logs.is_empty()).then(|| Rc::new(logs));
        if logs.is_some() {
            self.chains.borrow().iter().for_each(|chain| chain.is_recorded());
        }
        *self.logs.borrow_mut() = logs;
    }

    /// No new connections; those that there are go on.
    pub(crate) fn stop_accepting(&self) {
        self.accepting.take().iter().for_each(AbortHandle::abort);
        self.closed.set(true);
    }

    /// Connections end after the request that they are at.
    pub(crate) fn drain(&self) {
        self.chains.borrow().iter().for_each(|chain| chain.drop_out());
    }

    /// The configuration has no such listener any more.
    pub(crate) fn close(&self) {
        self.stop_accepting();
        self.drain();
    }

    /// A connection that another worker accepted and that counts as ours already.
    pub(crate) fn adopt(self: &Rc<Self>, worker: &Rc<Worker>, stream: Accepted, peer: Option<SocketAddr>) {
        let socket = match stream {
            Accepted::Tcp(stream) => TcpStream::from_std(stream).map(Socket::from),
            Accepted::Unix(descriptor) => UnixStream::from_std(descriptor.into()).map(Socket::from),
        };
        match socket {
            Ok(socket) => self.begin(worker, socket, peer),
            Err(error) => {
                self.uncount(worker.id as usize);
                report(&error);
            }
        }
    }

    async fn accept_tcp(self: Rc<Self>, worker: &Rc<Worker>, socket: TcpListener) {
        let mut burst = 0;
        loop {
            match next(worker, &self, &mut burst, |cx| socket.poll_accept(cx)).await {
                Ok((stream, peer)) => self.accepted(worker, stream.into(), Some(peer)),
                Err(error) => self.failed(&error).await,
            }
        }
    }

    async fn accept_unix(self: Rc<Self>, worker: &Rc<Worker>, socket: UnixListener) {
        let mut burst = 0;
        loop {
            match next(worker, &self, &mut burst, |cx| socket.poll_accept(cx)).await {
                Ok((stream, _)) => self.accepted(worker, stream.into(), None),
                Err(error) => self.failed(&error).await,
            }
        }
    }

    async fn failed(&self, error: &std::io::Error) {
        // A client that left before it was accepted is no trouble of ours.
        if error.kind() != std::io::ErrorKind::ConnectionAborted {
            report(error);
            tokio::time::sleep(ACCEPT_BACK_OFF).await;
        }
    }

    fn accepted(self: &Rc<Self>, worker: &Rc<Worker>, socket: Socket, peer: Option<SocketAddr>) {
        if worker.overload.accepts.get() && self.turns_away(worker) {
            return;
        }
        let plan = self.plan.borrow().clone();
        if plan.model.connection_limit.is_some_and(|limit| plan.connections() as u64 >= limit) {
            self.stats.inc(stat::DOWNSTREAM_CX_OVERFLOW);
            return;
        }
        let target = least_loaded(&plan, worker.id as usize);
        if let Some(load) = plan.loads.get(target) {
            load.0.fetch_add(1, Relaxed);
        }
        if target == worker.id as usize {
            self.begin(worker, socket, peer);
        } else if let Some((sender, stream)) = worker.peers.get().and_then(|p| p.get(target)).zip(into_std(socket)) {
            let message = Message::Connection { listener: plan.model.name.clone(), stream, peer };
            if sender.try_send(message).is_err() {
                // A worker whose mailbox is full could not serve it soon.
                self.uncount(target);
            }
        } else {
            self.uncount(target);
        }
    }

    /// Whether a new connection is one too many for the process.
    #[cold]
    fn turns_away(&self, worker: &Worker) -> bool {
        let plan = self.plan.borrow().clone();
        if let Some(bound) = &worker.overload.strain().bound
            && !plan.model.bypasses_bound
            && worker.connections_of_all() as u64 >= bound.most
        {
            self.stats.inc(stat::DOWNSTREAM_GLOBAL_CX_OVERFLOW);
            worker.overload.count_bound(&worker.stats);
            return true;
        }
        let refused = !plan.model.bypasses_overload && worker.overload.draws_connection(&worker.random, &worker.stats);
        if refused {
            self.stats.inc(stat::DOWNSTREAM_CX_OVERLOAD_REJECT);
        }
        refused
    }

    /// What this listener adds to the connections that are bounded for all together.
    pub(crate) fn connections_for_bound(&self) -> usize {
        let plan = self.plan.borrow();
        if plan.model.bypasses_bound { 0 } else { plan.connections() }
    }

    /// Starts the task of a connection that was counted for this worker.
    fn begin(self: &Rc<Self>, worker: &Rc<Worker>, mut socket: Socket, remote: Option<SocketAddr>) {
        let plan = self.plan.borrow().clone();
        if plan.model.full_buffer_timeout.is_some() {
            socket.limit_waiting(plan.model.full_buffer_timeout, plan.model.buffer_limit as usize);
        }
        let accepted = worker.clock.now();
        let counted = self.count(worker, plan.clone(), accepted);
        let local = local_address(&plan, &socket);
        let record = self.logs.borrow().as_ref().map(|logs| Record::begin(logs, worker, accepted, local, remote));
        let newcomer = Newcomer {
            local,
            remote,
            direct_remote: remote,
            plan,
            socket,
            counted,
            record,
            redirected: false,
            ahead: Vec::new(),
            handed: false,
            hands_over: false,
            noted: None,
        };
        if newcomer.plan.is_immediate() {
            let Some(chain) = self.choose(&newcomer, &Greeting::default()) else { return };
            let Newcomer { local, socket, counted, record, .. } = newcomer;
            let id = worker.next_connection_id();
            if let Some(record) = &record {
                record.note(|info| info.connection_id = id);
            }
            let arrival = Arrival {
                io: Io::Plain(socket),
                ahead: Input::default(),
                local,
                redirected: false,
                remote,
                direct_remote: remote,
                tls: None,
                id,
                counted: Some(counted),
                record,
                noted: None,
            };
            chain.start(worker.clone(), arrival);
        } else {
            tokio::task::spawn_local(self.clone().receive(worker.clone(), newcomer));
        }
    }

    #[inline]
    fn count(self: &Rc<Self>, worker: &Rc<Worker>, plan: Arc<ListenerPlan>, accepted: Moment) -> Counted {
        self.stats.inc(stat::DOWNSTREAM_CX_TOTAL);
        self.stats.gauge_inc(stat::DOWNSTREAM_CX_ACTIVE);
        self.worker_stats.inc(worker_stat::DOWNSTREAM_CX_TOTAL);
        self.worker_stats.gauge_inc(worker_stat::DOWNSTREAM_CX_ACTIVE);
        Counted { listener: self.clone(), plan, worker: worker.clone(), accepted }
    }

    fn choose(&self, newcomer: &Newcomer, greeting: &Greeting) -> Option<Rc<Chain>> {
        let Newcomer { plan, local, remote, direct_remote, .. } = newcomer;
        let peer = Peer { local: *local, remote: *remote, direct_remote: *direct_remote, greeting };
        let state = newcomer.noted.as_ref().map(|noted| noted.state.as_slice()).unwrap_or_default();
        let chain = plan.chain_for(&peer, state).and_then(|index| self.chains.borrow().get(index).cloned());
        if chain.is_none() {
            self.stats.inc(stat::NO_FILTER_CHAIN_MATCH);
        }
        if let Some(record) = &newcomer.record {
            match &chain {
                None => record.no_chain(),
                Some(chain) => record.note(|info| {
                    info.filter_chain.clone_from(&chain.name);
                    chain.surround(info);
                }),
            }
        }
        chain
    }

    /// Looks at what the client says first, agrees on TLS where the chain wants it, and serves.
    async fn receive(self: Rc<Self>, worker: Rc<Worker>, mut newcomer: Newcomer) {
        let mut ahead = std::mem::take(&mut newcomer.ahead);
        let Some(greeting) = Box::pin(self.greet(&worker, &mut newcomer, &mut ahead)).await else { return };
        if (newcomer.plan.model.hands_over || newcomer.hands_over)
            && let Some(other) = self.meant(&worker, &newcomer)
        {
            return other.take_over(worker, newcomer, ahead);
        }
        let Some(chain) = self.choose(&newcomer, &greeting) else { return };
        let share = match chain.limits.as_slice() {
            [] => None,
            // Boxed: few chains have limits.
            limits => match Box::pin(limit::admit(limits, worker.clock.now())).await {
                None => return,
                share => share,
            },
        };
        let tls = chain.tls.borrow().clone();
        let Newcomer { local, remote, direct_remote, socket, counted, record, redirected, mut noted, .. } = newcomer;
        if let Some(share) = &share {
            share.note(&mut noted);
            if let (Some(noted), Some(record)) = (&noted, &record) {
                record.keep(noted);
            }
        }
        let id = worker.next_connection_id();
        if let Some(record) = &record {
            record.note(|info| info.connection_id = id);
        }
        let mut server_name = None;
        if !chain.guards.is_empty() {
            server_name.clone_from(&greeting.server_name);
        }
        let (io, tls) = match &tls {
            None => (Io::Plain(socket), None),
            Some(tls) => {
                let ahead = std::mem::take(&mut ahead);
                let ends = (local, remote);
                let agreed = Box::pin(self.agree(&worker, &chain, tls, Arriving::new(socket, ahead), ends)).await;
                let (stream, shown) = match agreed {
                    Ok(agreed) => agreed,
                    Err(why) => {
                        if let Some(record) = &record {
                            record.note(|info| info.downstream_failure = Some(why.replace(' ', "_").into()));
                        }
                        return;
                    }
                };
                let session = with_client(&stream, tls, shown, greeting, worker.clock.now());
                (Io::Tls(stream), Some(Rc::new(session)))
            }
        };
        if let Some(record) = &record {
            record.note(|info| info.tls.clone_from(&tls));
        }
        let ahead = Input::holding(ahead);
        let counted = Some(counted);
        let mut arrival =
            Arrival { io, ahead, local, redirected, remote, direct_remote, tls, id, counted, record, noted };
        if !chain.guards.is_empty() {
            let agreed = arrival.tls.as_ref().and_then(|tls| tls.server_name.clone());
            let name = agreed.or(server_name);
            // Boxed: few chains have guards.
            let Some(admitted) = Box::pin(guard::admit(&worker, &chain, arrival, name.as_deref())).await else {
                return;
            };
            arrival = admitted;
        }
        chain.serve(worker, arrival).await;
        drop(share);
    }

    /// What the client says first; `None` when the connection is not to be served.
    async fn greet(&self, worker: &Rc<Worker>, newcomer: &mut Newcomer, ahead: &mut Vec<u8>) -> Option<Greeting> {
        let plan = newcomer.plan.clone();
        let rules = &plan.model.inspection;
        if rules.original_destination
            && rules.includes(InspectionPart::OriginalDestination, newcomer.port())
            && let Some(destination) = newcomer.socket.original_destination()
        {
            newcomer.redirect(destination);
        }
        let greeting = match plan.filters.is_empty() && rules.exceptions.is_empty() {
            true => self.inspect(worker, newcomer, ahead, rules).await?,
            // Boxed: few listeners have filters of their own.
            false => Box::pin(self.introduce(worker, newcomer, ahead, rules)).await?,
        };
        if let Some(source) = rules.original_source
            && rules.includes(InspectionPart::OriginalSource, newcomer.port())
        {
            newcomer.go_on_as_client(source);
        }
        Some(greeting)
    }

    /// What the client says first, as far as `rules` ask for it; `None` when the connection is not to be served.
    async fn inspect(
        &self,
        worker: &Worker,
        newcomer: &mut Newcomer,
        ahead: &mut Vec<u8>,
        rules: &Inspection,
    ) -> Option<Greeting> {
        if rules.proxy.is_none() && !rules.tls && !rules.http {
            return Some(Greeting::default());
        }
        self.stats.gauge_inc(stat::DOWNSTREAM_PRE_CX_ACTIVE);
        let mut inspector = Inspector { rules, ahead, proxied: None, noted: None };
        let socket = &mut newcomer.socket;
        let seen = within(worker, rules.timeout, |cx| inspector.poll(cx, socket)).await;
        self.stats.gauge_dec(stat::DOWNSTREAM_PRE_CX_ACTIVE);
        let (said, expected) = (inspector.proxied, rules.proxy.as_ref());
        let noted = inspector.noted.take();
        if let Some(mut noted) = noted {
            let direct_local = newcomer.noted.as_ref().and_then(|before| before.direct_local);
            Rc::make_mut(&mut noted).direct_local = direct_local;
            newcomer.noted = Some(noted);
        }
        if let (Some(rules), Some(said)) = (expected, said) {
            let counts = self.proxy_stats(worker, rules);
            match said {
                Proxied::Said(Version::V1, _) => counts.inc(proxy_stat::V1_FOUND),
                Proxied::Said(Version::V2, _) => counts.inc(proxy_stat::V2_FOUND),
                Proxied::Nothing => counts.inc(proxy_stat::NOT_FOUND_ALLOWED),
            }
        }
        let greeting = match seen {
            Some(Ok(greeting)) => greeting,
            Some(Err(refused)) => {
                if let (Refused::NotTls, Some(record)) = (&refused, &newcomer.record) {
                    record.note(|info| info.downstream_failure = Some("TLS_error:_no_greeting_in_TLS".into()));
                }
                self.count_refused(worker, expected, &refused);
                return None;
            }
            None => {
                self.stats.inc(stat::DOWNSTREAM_PRE_CX_TIMEOUT);
                // Who must say where he comes from does not get in by waiting.
                if !rules.continue_on_timeout || (expected.is_some() && said.is_none()) {
                    return None;
                }
                Greeting::default()
            }
        };
        if let Some(Proxied::Said(_, Some((source, destination)))) = said {
            newcomer.remote = Some(source);
            newcomer.redirect(destination);
            if let Some(record) = &newcomer.record {
                record.note(|info| (info.downstream_remote, info.downstream_local) = (newcomer.remote, newcomer.local));
            }
        }
        if let (Some(noted), Some(record)) = (&newcomer.noted, &newcomer.record) {
            record.keep(noted);
        }
        Some(greeting)
    }

    #[cold]
    fn count_refused(&self, worker: &Worker, proxy: Option<&ProxyProtocol>, refused: &Refused) {
        if matches!(refused, Refused::NotTls) {
            // The listener's record says why; Envoy, too, does not take it for a failure of its filters.
            return;
        }
        self.stats.inc(match refused {
            Refused::Io(error) if error.kind() == ErrorKind::UnexpectedEof => {
                stat::DOWNSTREAM_LISTENER_FILTER_REMOTE_CLOSE
            }
            _ => stat::DOWNSTREAM_LISTENER_FILTER_ERROR,
        });
        let Some(rules) = proxy else { return };
        let counts = self.proxy_stats(worker, rules);
        match refused {
            Refused::Io(_) | Refused::NotTls => return,
            Refused::Disallowed(Version::V1) => {
                counts.inc(proxy_stat::V1_FOUND);
                return counts.inc(proxy_stat::V1_DISALLOWED);
            }
            Refused::Disallowed(Version::V2) => {
                counts.inc(proxy_stat::V2_FOUND);
                return counts.inc(proxy_stat::V2_DISALLOWED);
            }
            Refused::NotProxied => counts.inc(proxy_stat::NOT_FOUND_DISALLOWED),
            Refused::Malformed(Version::V1) => counts.inc(proxy_stat::V1_ERROR),
            Refused::Malformed(Version::V2) => counts.inc(proxy_stat::V2_ERROR),
        }
        worker.stats.block(&proxy_protocol_errors::SET, "").inc(proxy_protocol_errors::DOWNSTREAM_CX_PROXY_PROTO_ERROR);
    }

    fn proxy_stats(&self, worker: &Worker, rules: &ProxyProtocol) -> Rc<Block> {
        worker.stats.block(&proxy_stat::SET, &stat_name(&rules.stat_prefix))
    }

    /// The TLS handshake, and the certificate that the client was shown.
    ///
    /// # Errors
    /// Why there is no agreement.
    async fn agree(
        &self,
        worker: &Worker,
        chain: &Chain,
        tls: &ServerTls,
        mut client: Box<Arriving>,
        (local, remote): (Option<SocketAddr>, Option<SocketAddr>),
    ) -> Result<(Box<TlsStream>, Option<Arc<CertifiedKey>>), String> {
        let stats = self.ssl_stats.get_or_init(|| worker.stats.block(&listener_ssl::SET, &self.stat_prefix));
        let limit = chain.plan.model.tls.as_ref().and_then(|tls| tls.handshake_timeout);
        let limit = worker.overload.hurried(ScaledTimer::Handshake, limit);
        let mut handshake = pin!(async {
            let accepted = std::future::poll_fn(|cx| client.poll_hello(cx)).await?;
            let ip = |address: Option<SocketAddr>| address.map(|address| address.ip());
            let config = tls.config_for(&accepted.client_hello(), ip(local), ip(remote)).clone();
            let shown = tls.shown_to(&accepted.client_hello());
            let mut stream = client.answer(accepted, config).await?;
            std::future::poll_fn(|cx| stream.poll_handshake(cx)).await?;
            Ok::<_, std::io::Error>((stream, shown))
        });
        match within(worker, limit, |cx| handshake.as_mut().poll(cx)).await {
            Some(Ok((stream, shown))) => {
                stats.inc(listener_ssl::HANDSHAKE);
                if stream.session().handshake_kind() == Some(rustls::HandshakeKind::Resumed) {
                    stats.inc(listener_ssl::SESSION_REUSED);
                }
                if stream.session().peer_certificates().is_none() {
                    stats.inc(listener_ssl::NO_CERTIFICATE);
                }
                Ok((stream, shown))
            }
            Some(Err(error)) => {
                stats.inc(match verify_failure(&error) {
                    None => listener_ssl::CONNECTION_ERROR,
                    Some(Unverified::NoCertificate) => listener_ssl::FAIL_VERIFY_NO_CERT,
                    Some(Unverified::Name) => listener_ssl::FAIL_VERIFY_SAN,
                    Some(Unverified::Certificate) => listener_ssl::FAIL_VERIFY_ERROR,
                });
                postrider_telemetry::debug!(Connection, "TLS handshake: {error}");
                Err(format!("TLS_error: {error}"))
            }
            None => {
                self.stats.inc(stat::DOWNSTREAM_CX_TRANSPORT_SOCKET_CONNECT_TIMEOUT);
                Err("transport socket timeout".to_owned())
            }
        }
    }

    fn uncount(&self, worker: usize) {
        if let Some(load) = self.plan.borrow().loads.get(worker) {
            load.0.fetch_sub(1, Relaxed);
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if let Some(load) = self.plan.loads.get(self.worker.id as usize) {
            load.0.fetch_sub(1, Relaxed);
        }
        let stats = &self.listener.stats;
        stats.gauge_dec(stat::DOWNSTREAM_CX_ACTIVE);
        stats.inc(stat::DOWNSTREAM_CX_DESTROY);
        self.listener.worker_stats.gauge_dec(worker_stat::DOWNSTREAM_CX_ACTIVE);
        let age = self.worker.clock.now().saturating_duration_since(self.accepted);
        stats.record(stat::DOWNSTREAM_CX_LENGTH_MS, millis(age));
    }
}

/// A connection for which no filter chain was chosen yet.
struct Newcomer {
    plan: Arc<ListenerPlan>,
    socket: Socket,
    local: Option<SocketAddr>,
    remote: Option<SocketAddr>,
    /// The peer itself.
    direct_remote: Option<SocketAddr>,
    counted: Counted,
    record: Option<Rc<Record>>,
    redirected: bool,
    /// Received already; for another listener.
    ahead: Vec<u8>,
    /// Another listener had it.
    handed: bool,
    /// A filter wants it served where it was meant to go.
    hands_over: bool,
    /// What the PROXY protocol said besides addresses.
    noted: Option<Rc<Noted>>,
}

impl Newcomer {
    /// The one that it was meant for.
    fn port(&self) -> Option<u16> {
        Some(self.local?.port())
    }

    /// Connections to upstreams come from where this one does.
    #[cold]
    fn go_on_as_client(&mut self, source: OriginalSource) {
        let Some(mut address) = self.remote else { return };
        if !source.port {
            address.set_port(0);
        }
        let noted = Rc::make_mut(self.noted.get_or_insert_default());
        let objects = noted.objects.get_or_insert_default();
        objects.wishes.source = Some(WantedSource { address, mark: source.mark });
    }

    /// It was meant to go elsewhere.
    fn redirect(&mut self, destination: SocketAddr) {
        if self.local != Some(destination) {
            self.redirected = true;
            let noted = Rc::make_mut(self.noted.get_or_insert_default());
            noted.direct_local = noted.direct_local.or(self.local);
        }
        self.local = Some(destination);
        if let Some(record) = &self.record {
            record.note(|info| {
                info.downstream_local = Some(destination);
                info.connection.clone_from(&self.noted);
            });
        }
    }
}

/// What `accept` comes to, which is not asked while new connections have to wait. `burst` is how many came since there was
/// none for the last time.
async fn next<T>(
    worker: &Worker,
    listener: &Listener,
    burst: &mut u64,
    mut accept: impl FnMut(&mut Context<'_>) -> Poll<T>,
) -> T {
    std::future::poll_fn(|cx| {
        if worker.overload.paused.get() && !listener.plan.borrow().model.bypasses_overload {
            worker.overload.wait(cx.waker());
            return Poll::Pending;
        }
        let accepted = accept(cx);
        match &accepted {
            Poll::Ready(_) => *burst += 1,
            Poll::Pending if *burst > 0 => {
                listener.stats.record(stat::CONNECTIONS_ACCEPTED_PER_SOCKET_EVENT, std::mem::take(burst));
            }
            Poll::Pending => {}
        }
        accepted
    })
    .await
}

/// What `poll` comes to, or `None` after `limit`.
async fn within<T>(
    worker: &Worker,
    limit: Option<Duration>,
    mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>,
) -> Option<T> {
    let deadline = worker.timers.register();
    deadline.set(limit.map(|limit| worker.clock.now() + limit));
    std::future::poll_fn(|cx| match poll(cx) {
        Poll::Ready(outcome) => Poll::Ready(Some(outcome)),
        Poll::Pending if deadline.is_past() => Poll::Ready(None),
        Poll::Pending => {
            deadline.watch(cx.waker());
            Poll::Pending
        }
    })
    .await
}

/// The worker that should have a connection which `own` accepted.
fn least_loaded(plan: &ListenerPlan, own: usize) -> usize {
    let load = |index: usize| plan.loads.get(index).map_or(usize::MAX, |load| load.0.load(Relaxed));
    let Some(least) = (0..plan.loads.len()).min_by_key(|index| load(*index)) else { return own };
    let margin = match plan.model.balance {
        ConnectionBalance::Exact => 1,
        ConnectionBalance::Kernel => HAND_OVER_MARGIN,
    };
    if load(own) >= load(least).saturating_add(margin) { least } else { own }
}

fn into_std(socket: Socket) -> Option<Accepted> {
    match socket.kind {
        Kind::Tcp(stream) => stream.into_std().ok().map(Accepted::Tcp),
        Kind::Unix(stream) => stream.into_std().ok().map(|stream| Accepted::Unix(OwnedFd::from(stream))),
    }
}

/// The address that the client connected to; asked from the system only where the listener's own leaves it open.
fn local_address(plan: &ListenerPlan, socket: &Socket) -> Option<SocketAddr> {
    match plan.model.addresses.as_slice() {
        [Address::Tcp(only)] if !only.ip().is_unspecified() && only.port() != 0 => Some(*only),
        _ => socket.local(),
    }
}

fn newcomer_filters(plan: &ListenerPlan, stat_prefix: &str, worker: &Rc<Worker>) -> Vec<Rc<dyn NewcomerFilter>> {
    let place = worker.place(stat_prefix, plan.model.buffer_limit as usize);
    plan.filters.iter().map(|filter| filter.newcomer_filter(&place)).collect()
}

/// `127.0.0.1_10000`: what a listener is called in statistics.
fn stat_prefix(plan: &ListenerPlan, sockets: &[Bound]) -> String {
    if let Some(prefix) = &plan.model.stat_prefix {
        return stat_name(prefix);
    }
    let bound = sockets.first().and_then(|socket| match socket {
        Bound::Tcp(socket) => socket.local_addr().ok().map(|address| address.to_string()),
        Bound::Unix(_) => None,
    });
    let configured = || plan.model.addresses.first().map(Address::to_string).unwrap_or_default();
    stat_name(&bound.unwrap_or_else(configured))
}

fn report(error: &std::io::Error) {
    postrider_telemetry::warning!(Connection, "cannot accept a connection: {error}");
}
