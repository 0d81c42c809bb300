//! One new connection: what it says first, its filter chain, TLS, and who serves it.

use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use postrider_filter_api::Moment;
use postrider_model::{Address, ScaledTimer};
use postrider_telemetry::stats::sets::{count_agreed, listener as stat, listener_ssl, listener_worker as worker_stat};
use postrider_tls::rustls::sign::CertifiedKey;
use postrider_tls::{ServerTls, rustls};

use super::inspect::within;
use super::{Arrival, Counted, Listener, Newcomer};
use crate::buffers::Input;
use crate::chain::Chain;
use crate::cluster::millis;
use crate::filter_chain::Peer;
use crate::greeting::Greeting;
use crate::guard;
use crate::io::{Arriving, Io, Socket, TlsStream, Unverified, agreed, verify_failure, with_client};
use crate::limit;
use crate::plan::ListenerPlan;
use crate::record::Record;
use crate::worker::Worker;

impl Listener {
    /// Starts the task of a connection that was counted for this worker.
    pub(super) fn begin(self: &Rc<Self>, worker: &Rc<Worker>, mut socket: Socket, remote: Option<SocketAddr>) {
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
            let Newcomer { local, mut socket, counted, record, .. } = newcomer;
            socket.enroll(&chain.connections);
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
                hello: None,
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
    pub(super) fn count(self: &Rc<Self>, worker: &Rc<Worker>, plan: Arc<ListenerPlan>, accepted: Moment) -> Counted {
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
    pub(super) async fn receive(self: Rc<Self>, worker: Rc<Worker>, mut newcomer: Newcomer) {
        let mut ahead = std::mem::take(&mut newcomer.ahead);
        let Some(greeting) = Box::pin(self.greet(&worker, &mut newcomer, &mut ahead)).await else { return };
        if (newcomer.plan.model.hands_over || newcomer.hands_over)
            && let Some(other) = self.meant(&worker, &newcomer)
        {
            return other.take_over(worker, newcomer, ahead);
        }
        let hello = greeting.hello();
        if let (Some(hello), Some(record)) = (&hello, &newcomer.record) {
            record.note(|info| info.hello = Some(hello.clone()));
        }
        let Some(chain) = self.choose(&newcomer, &greeting) else { return };
        let share = match chain.limits.as_slice() {
            [] => None,
            // Boxed: few chains have limits.
            limits => match Box::pin(limit::admit(limits, worker.clock.now(), &newcomer.socket)).await {
                Err(excess) => {
                    let id = worker.next_connection_id();
                    let refused = Arrival { hello, ..newcomer.refused(id) };
                    return guard::refuse(&worker, &chain, &refused, excess);
                }
                Ok(share) => Some(share),
            },
        };
        let tls = chain.tls.borrow().clone();
        let Newcomer { local, remote, direct_remote, mut socket, counted, record, redirected, mut noted, .. } =
            newcomer;
        socket.enroll(&chain.connections);
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
                let began = worker.clock.now();
                let agreed = Box::pin(self.agree(&worker, &chain, tls, Arriving::new(socket, ahead), ends)).await;
                let (stream, shown) = match agreed {
                    Ok(agreed) => agreed,
                    Err(why) => {
                        if let Some(record) = &record {
                            record.note(|info| info.downstream_failure = Some(why.into()));
                        }
                        return;
                    }
                };
                let session = with_client(&stream, tls, shown, greeting, (began, worker.clock.now()));
                (Io::Tls(stream), Some(Rc::new(session)))
            }
        };
        if let Some(record) = &record {
            record.note(|info| info.tls.clone_from(&tls));
        }
        let ahead = Input::holding(ahead);
        let counted = Some(counted);
        let mut arrival =
            Arrival { io, ahead, local, redirected, remote, direct_remote, tls, hello, id, counted, record, noted };
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
        let limit = chain.plan.borrow().model.tls.as_ref().and_then(|tls| tls.handshake_timeout);
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
                count_agreed(stats, agreed(stream.session()));
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
                    Some(Unverified::Hash) => listener_ssl::FAIL_VERIFY_CERT_HASH,
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

/// The address that the client connected to; asked from the system only where the listener's own leaves it open.
fn local_address(plan: &ListenerPlan, socket: &Socket) -> Option<SocketAddr> {
    match plan.model.addresses.as_slice() {
        [Address::Tcp(only)] if !only.ip().is_unspecified() && only.port() != 0 => Some(*only),
        _ => socket.local(),
    }
}
