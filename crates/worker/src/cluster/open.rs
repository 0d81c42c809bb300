//! Reaching a host: its addresses, the socket's options, what is said before anything else, and TLS.

use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use postrider_filter_api::{Moment, TlsSession, WantedSource};
use postrider_model::{Address, Endpoint, ProxyHeader, SourceAddress};
use postrider_sys::{NumberedOption, OptionMoment};
use postrider_telemetry::stats::sets::{cluster as stat, cluster_proxy, cluster_ssl, count_agreed};
use postrider_tls::{Target, rustls};

use super::{Cluster, Host};
use crate::eyeballs;
use crate::io::{self, HandshakeFailed, Io, Socket, TlsStream, Unverified};
use crate::party::Party;
use crate::plan::Transport;
use crate::proxy_protocol;
use crate::worker::Worker;

/// A local address to connect from, with options of its own if it has some.
pub(super) struct Source {
    ip: IpAddr,
    port: u16,
    options: Option<Vec<NumberedOption>>,
}

impl Source {
    pub(super) fn new(model: &SourceAddress) -> Source {
        Source { ip: model.ip, port: model.port, options: model.options.as_deref().map(io::system_options) }
    }
}

/// A connection that was just made.
pub(crate) struct Reached {
    pub(crate) io: Io,
    pub(super) tls: Option<Rc<TlsSession>>,
    /// When the transport's connection was there, before anything was said on it.
    pub(super) connected: Moment,
    /// Which address of the host it goes to, if that can be another than its first.
    pub(super) other: Option<Address>,
}

impl Cluster {
    /// Connects to a host: to the first of its addresses that agrees, where it has several.
    pub(super) async fn reach(
        &self,
        worker: &Worker,
        host: &Host,
        alpn: Option<&[&[u8]]>,
        party: Option<&Party>,
    ) -> std::io::Result<Reached> {
        let Endpoint { address, additional, hostname, .. } = &*host.endpoint;
        let transport = self.plan.transport_for(&host.endpoint);
        if additional.is_empty() {
            return self.open(worker, transport, (address, hostname.as_str()), alpn, party).await;
        }
        // Boxed: most hosts have one address.
        Box::pin(self.race(worker, transport, host, alpn, party)).await
    }

    async fn race(
        &self,
        worker: &Worker,
        transport: &Transport,
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
            let place = (&address, host.endpoint.hostname.as_str());
            let reached = self.open(worker, transport, place, alpn, party).await?;
            Ok(Reached { other: Some(address), ..reached })
        });
        eyeballs::first(attempts).await
    }

    /// Connects, and agrees on TLS where the transport wants it. `hostname` is the endpoint's name, which may be empty; `alpn` is
    /// what to offer in place of what the cluster says.
    pub(crate) async fn open(
        &self,
        worker: &Worker,
        transport: &Transport,
        (address, hostname): (&Address, &str),
        alpn: Option<&[&[u8]]>,
        party: Option<&Party>,
    ) -> std::io::Result<Reached> {
        let (source, options) = self.source(address);
        let own = party.filter(|party| !party.wishes.options.is_empty()).map(|party| with_wishes(party, options));
        let options = own.as_deref().unwrap_or(options);
        let connecting = match party.and_then(|party| party.wishes.source) {
            None => io::connect(address, source, self.keepalive.as_deref(), options).await,
            Some(wanted) => {
                let options = as_client(&wanted, options);
                io::connect(address, Some(wanted.address), self.keepalive.as_deref(), &options).await
            }
        };
        let mut socket = connecting.inspect_err(|error| {
            if io::is_not_bound(error) {
                self.stats(worker).inc(stat::BIND_ERRORS);
            }
        })?;
        let connected = worker.clock.now();
        if self.plan.model.full_buffer_timeout.is_some() {
            socket.limit_waiting(self.plan.model.full_buffer_timeout, self.plan.model.buffer_limit as usize);
        }
        if let Some(header) = &transport.proxy_header {
            // Boxed: most clusters have none.
            Box::pin(self.introduce(worker, header, address, party, &mut socket)).await?;
        }
        let Some(tls) = &transport.tls else {
            return Ok(Reached { io: Io::Plain(socket), tls: None, connected, other: None });
        };
        let endpoint = Some(hostname).filter(|name| !name.is_empty());
        let stats = self.ssl_stats.get_or_init(|| worker.stats.block(&cluster_ssl::SET, &self.stat_prefix()));
        let ip = |address: Option<std::net::SocketAddr>| address.map(|address| address.ip());
        let remote = match address {
            Address::Tcp(address) => Some(address.ip()),
            Address::Unix { .. } => None,
        };
        let request_host = party.and_then(|party| party.host.as_deref());
        let wishes = party.map(|party| &party.wishes);
        let offered: Vec<&[u8]> = wishes.iter().flat_map(|it| &it.protocols).map(|it| it.as_bytes()).collect();
        let target = Target {
            alpn: if offered.is_empty() { alpn } else { Some(&offered) },
            endpoint_host: endpoint,
            request_host,
            server_name: wishes.and_then(|wishes| wishes.server_name.as_deref()),
            alt_names: wishes.map(|wishes| wishes.alt_names.as_slice()).unwrap_or_default(),
            local: ip(socket.local()),
            remote,
        };
        let session = tls.connection(&target).map_err(std::io::Error::other)?;
        let mut stream = Box::new(TlsStream::new(socket, session, Vec::new()));
        match std::future::poll_fn(|cx| stream.poll_handshake(cx)).await {
            Ok(()) => {
                stats.inc(cluster_ssl::HANDSHAKE);
                count_agreed(stats, io::agreed(stream.session()));
                if stream.session().handshake_kind() == Some(rustls::HandshakeKind::Resumed) {
                    stats.inc(cluster_ssl::SESSION_REUSED);
                }
                let session = io::with_upstream(&stream, tls, &target);
                Ok(Reached { io: Io::Tls(stream), tls: Some(Rc::new(session)), connected, other: None })
            }
            Err(error) => {
                let failed = HandshakeFailed::new(&error, stream.session());
                match io::verify_failure(&error) {
                    None if !failed.is_of_tls => {}
                    None => stats.inc(cluster_ssl::CONNECTION_ERROR),
                    Some(Unverified::Name) => stats.inc(cluster_ssl::FAIL_VERIFY_SAN),
                    Some(Unverified::Hash) => stats.inc(cluster_ssl::FAIL_VERIFY_CERT_HASH),
                    Some(Unverified::NoCertificate | Unverified::Certificate) => {
                        stats.inc(cluster_ssl::FAIL_VERIFY_ERROR);
                    }
                }
                Err(std::io::Error::new(error.kind(), failed))
            }
        }
    }

    /// The local address for a connection to `address`, and the options of its socket.
    fn source(&self, address: &Address) -> (Option<SocketAddr>, &[NumberedOption]) {
        let all = &*self.socket_options;
        let Address::Tcp(remote) = address else { return (None, all) };
        let of_family = self.sources.iter().find(|source| source.ip.is_ipv4() == remote.is_ipv4());
        match of_family.or(self.sources.first()) {
            Some(source) => {
                let all_of_them = source.ip.is_unspecified() && source.port == 0;
                let from = (!all_of_them).then(|| SocketAddr::new(source.ip, source.port));
                (from, source.options.as_deref().unwrap_or(all))
            }
            None => (None, all),
        }
    }

    /// Says by the PROXY protocol for whom the connection is, before anything else is said on it.
    async fn introduce(
        &self,
        worker: &Worker,
        header: &ProxyHeader,
        address: &Address,
        party: Option<&Party>,
        socket: &mut Socket,
    ) -> std::io::Result<()> {
        let own = match address {
            Address::Tcp(remote) => socket.local().map(|local| (local, *remote)),
            Address::Unix { .. } => None,
        };
        let (client, passed) = party.map(|party| (party.ends, party.tlvs.as_slice())).unwrap_or_default();
        let written = proxy_protocol::write(header, client, passed, own);
        if written.cut {
            worker.stats.block(&cluster_proxy::SET, &self.stat_prefix()).inc(cluster_proxy::V2_TLVS_EXCEED_MAX_LENGTH);
        }
        socket.send_all(&written.bytes).await
    }
}

/// The options of a socket with those that filters want.
#[cold]
fn with_wishes(party: &Party, others: &[NumberedOption]) -> Vec<NumberedOption> {
    [others.to_vec(), io::system_options(&party.wishes.options)].concat()
}

/// What the system wants to know of a socket that connects from an address which is not ours.
#[cold]
fn as_client(wanted: &WantedSource, others: &[NumberedOption]) -> Vec<NumberedOption> {
    // Of Linux: `SO_MARK` of `SOL_SOCKET`; `IP_TRANSPARENT` and `IP_BIND_ADDRESS_NO_PORT` of `SOL_IP`; `IPV6_TRANSPARENT` of `SOL_IPV6`.
    const MARK: (i32, i32) = (1, 36);
    const TRANSPARENT_V4: (i32, i32) = (0, 19);
    const TRANSPARENT_V6: (i32, i32) = (41, 75);
    const PORT_WHEN_CONNECTING: (i32, i32) = (0, 24);
    let option = |(level, name): (i32, i32), value: u32| NumberedOption {
        level,
        name,
        value: value.to_ne_bytes().to_vec(),
        when: OptionMoment::BeforeBind,
        ip_version: None,
    };
    let transparent = if wanted.address.is_ipv4() { TRANSPARENT_V4 } else { TRANSPARENT_V6 };
    let mut all = others.to_vec();
    all.push(option(transparent, 1));
    if wanted.address.port() == 0 {
        all.push(option(PORT_WHEN_CONNECTING, 1));
    }
    all.extend(wanted.mark.map(|mark| option(MARK, mark)));
    all
}
