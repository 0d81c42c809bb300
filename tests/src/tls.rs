//! Certificates that a test makes for itself, the configuration that shows or trusts them, and a client that says
//! what it was shown.

use crate::kit::config::{self, overlay};
use crate::kit::{Config, DEADLINE, Proxy, RawClient, Response, Transport, WireError, net, wait_until};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, PublicKeyData, SanType};
use rustls::client::{ClientSessionMemoryCache, ClientSessionStore, Resumption};
use rustls::client::{Tls12ClientSessionValue, Tls13ClientSessionValue};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{
    ClientConfig, ClientConnection, HandshakeKind, NamedGroup, RootCertStore, StreamOwned, SupportedProtocolVersion,
};
use serde_json::{Value, json};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

const EXTENSION: &str = "transport_sockets.tls.v3";

/// Who signs.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    der: CertificateDer<'static>,
    /// Shown with everything that it signed: its own certificate, where it is no root.
    shown: Vec<CertificateDer<'static>>,
}

/// A certificate and its key.
#[derive(Clone)]
pub struct Identity {
    pub der: CertificateDer<'static>,
    /// Shown behind it.
    pub more: Vec<CertificateDer<'static>>,
    key: Vec<u8>,
}

impl Authority {
    pub fn new(name: &str) -> Self {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let der = params.self_signed(&key).expect("a certificate").der().clone();
        Self { issuer: Issuer::new(params, key), der, shown: Vec::new() }
    }

    /// One that this one signed for.
    pub fn below(&self, name: &str) -> Self {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let der = params.signed_by(&key, &self.issuer).expect("a certificate").der().clone();
        Self { issuer: Issuer::new(params, key), shown: vec![der.clone()], der }
    }

    /// An ECDSA certificate for host names.
    pub fn issue(&self, names: &[&str]) -> Identity {
        self.issue_with(&rcgen::PKCS_ECDSA_P256_SHA256, names, |_| {})
    }

    /// An RSA certificate for host names.
    pub fn issue_rsa(&self, names: &[&str]) -> Identity {
        self.issue_with(&rcgen::PKCS_RSA_SHA256, names, |_| {})
    }

    /// An ECDSA certificate that is over since long ago.
    pub fn issue_expired(&self, names: &[&str]) -> Identity {
        self.issue_with(&rcgen::PKCS_ECDSA_P256_SHA256, names, |params| {
            params.not_before = rcgen::date_time_ymd(2001, 1, 1);
            params.not_after = rcgen::date_time_ymd(2002, 1, 1);
        })
    }

    /// An ECDSA certificate for nobody, changed.
    pub fn issue_as(&self, change: impl FnOnce(&mut CertificateParams)) -> Identity {
        self.issue_with(&rcgen::PKCS_ECDSA_P256_SHA256, &[], change)
    }

    fn issue_with(
        &self,
        algorithm: &'static rcgen::SignatureAlgorithm,
        names: &[&str],
        change: impl FnOnce(&mut CertificateParams),
    ) -> Identity {
        let key = KeyPair::generate_for(algorithm).expect("a key");
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, names.first().copied().unwrap_or("nobody"));
        let name = |name: &&str| SanType::DnsName((*name).try_into().expect("a host name"));
        params.subject_alt_names = names.iter().map(name).collect();
        change(&mut params);
        let der = params.signed_by(&key, &self.issuer).expect("a certificate").der().clone();
        Identity { der, more: self.shown.clone(), key: key.serialized_der().to_vec() }
    }

    pub fn pem(&self) -> String {
        pem("CERTIFICATE", &self.der)
    }

    /// The fingerprint of its certificate.
    pub fn sha256(&self) -> String {
        sha256(&self.der)
    }

    pub fn roots(&self) -> Arc<RootCertStore> {
        let mut roots = RootCertStore::empty();
        roots.add(self.der.clone()).expect("a root");
        Arc::new(roots)
    }
}

impl Identity {
    pub fn chain_pem(&self) -> String {
        self.pems().concat()
    }

    /// Each certificate of the chain.
    pub fn pems(&self) -> Vec<String> {
        self.chain().iter().map(|der| pem("CERTIFICATE", der)).collect()
    }

    pub fn chain(&self) -> Vec<CertificateDer<'static>> {
        [std::slice::from_ref(&self.der), &self.more].concat()
    }

    /// Its fingerprint.
    pub fn sha256(&self) -> String {
        sha256(&self.der)
    }

    /// The hash of its public key, as a browser takes it to trust this key alone.
    pub fn pin(&self) -> String {
        let key = KeyPair::try_from(self.key.as_slice()).expect("a key");
        STANDARD.encode(hash(&key.subject_public_key_info()))
    }

    pub fn key_pem(&self) -> String {
        pem("PRIVATE KEY", &self.key)
    }

    pub fn key(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::try_from(self.key.clone()).expect("a key")
    }

    /// As an element of `tls_certificates`, in the configuration itself.
    pub fn inline(&self) -> Value {
        json!({
            "certificate_chain": {"inline_string": self.chain_pem()},
            "private_key": {"inline_string": self.key_pem()},
        })
    }
}

fn sha256(der: &[u8]) -> String {
    hash(der).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn hash(der: &[u8]) -> Vec<u8> {
    let suite = rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;
    let hash = suite.tls13().expect("a suite of TLS 1.3").common.hash_provider;
    hash.hash(der).as_ref().to_vec()
}

fn pem(label: &str, der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let lines: Vec<&str> = text.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).expect("ASCII")).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}

/// A listener's `transport_socket` that shows `certificates`, overlaid with `fields`.
pub fn downstream(certificates: &[Value], fields: Value) -> Value {
    let mut context = json!({"common_tls_context": {"tls_certificates": certificates}});
    overlay(&mut context, fields);
    config::extension("envoy.transport_sockets.tls", &format!("{EXTENSION}.DownstreamTlsContext"), context)
}

/// A cluster's `transport_socket`.
pub fn upstream(fields: Value) -> Value {
    config::extension("envoy.transport_sockets.tls", &format!("{EXTENSION}.UpstreamTlsContext"), fields)
}

/// The listener filter that tells TLS from plain text.
pub fn tls_inspector() -> Value {
    let type_name = "filters.listener.tls_inspector.v3.TlsInspector";
    config::extension("envoy.filters.listener.tls_inspector", type_name, json!({}))
}

/// `config` with TLS in the one chain of its listener `http`.
pub fn secured(config: Config, identity: &Identity, fields: Value) -> Config {
    config.overlay_chain("http", json!({"transport_socket": downstream(&[identity.inline()], fields)}))
}

/// Waits until the one statistic of a listener that ends with `name` has a value: the port is part of its name.
pub fn await_listener_stat(proxy: &Proxy, name: &str, value: u64) {
    let line = format!("{name}: {value}");
    wait_until(&line, || {
        let stats = proxy.admin_get(&format!("/stats?filter={name}"));
        stats.text().lines().any(|found| found.ends_with(&line))
    });
}

/// What a client trusts, offers and shows. Sessions are remembered from one connection to the next.
#[derive(Clone)]
pub struct Client(Arc<ClientConfig>);

/// A connection over TLS.
pub type TlsClient = RawClient<TlsSocket>;

impl Client {
    pub fn trusting(authority: &Authority) -> Self {
        Self::speaking(authority, rustls::DEFAULT_VERSIONS)
    }

    pub fn speaking(authority: &Authority, versions: &[&'static SupportedProtocolVersion]) -> Self {
        let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()));
        let builder = builder.with_protocol_versions(versions).expect("versions");
        Self(Arc::new(builder.with_root_certificates(authority.roots()).with_no_client_auth()))
    }

    /// Trusts the roots of a PEM.
    pub fn trusting_pem(pem: &str) -> Self {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
            roots.add(certificate.expect("PEM")).expect("a root");
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()));
        let builder = builder.with_protocol_versions(rustls::DEFAULT_VERSIONS).expect("versions");
        Self(Arc::new(builder.with_root_certificates(roots).with_no_client_auth()))
    }

    /// One of TLS 1.2 that takes keys of one kind only, `RSA` or `ECDSA`.
    pub fn taking_only(kind: &str, authority: &Authority) -> Self {
        let mut provider = default_provider();
        provider.cipher_suites.retain(|suite| format!("{:?}", suite.suite()).contains(&format!("_{kind}_")));
        let builder = ClientConfig::builder_with_provider(Arc::new(provider));
        let builder = builder.with_protocol_versions(&[&rustls::version::TLS12]).expect("versions");
        Self(Arc::new(builder.with_root_certificates(authority.roots()).with_no_client_auth()))
    }

    /// Shows a certificate of its own.
    pub fn showing(authority: &Authority, identity: &Identity) -> Self {
        Self::showing_over(authority, identity, rustls::DEFAULT_VERSIONS)
    }

    pub fn showing_over(
        authority: &Authority,
        identity: &Identity,
        versions: &[&'static SupportedProtocolVersion],
    ) -> Self {
        let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()));
        let builder = builder.with_protocol_versions(versions).expect("versions");
        let builder = builder.with_root_certificates(authority.roots());
        let config = builder.with_client_auth_cert(identity.chain(), identity.key());
        Self(Arc::new(config.expect("an identity")))
    }

    pub fn offering(self, protocols: &[&str]) -> Self {
        let mut config = (*self.0).clone();
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
        Self(Arc::new(config))
    }

    /// Offers the sessions of any name to every other.
    pub fn confusing_names(self) -> Self {
        let mut config = (*self.0).clone();
        config.resumption = Resumption::store(Arc::new(OneName(ClientSessionMemoryCache::new(8))));
        Self(Arc::new(config))
    }

    /// Asks for no name, though it verifies one.
    pub fn nameless(self) -> Self {
        let mut config = (*self.0).clone();
        config.enable_sni = false;
        Self(Arc::new(config))
    }

    /// Agrees with the proxy, or says why not.
    pub fn try_connect(&self, address: SocketAddr, name: &str) -> io::Result<TlsClient> {
        let stream = TcpStream::connect_timeout(&address, DEADLINE)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(DEADLINE))?;
        stream.set_write_timeout(Some(DEADLINE))?;
        let mut socket = TlsSocket(StreamOwned::new(self.session(name), stream));
        let TlsSocket(StreamOwned { conn, sock }) = &mut socket;
        while conn.is_handshaking() {
            conn.complete_io(sock)?;
        }
        Ok(RawClient::over(socket))
    }

    /// Goes on with a session that said something on `stream` already.
    pub fn joined(&self, session: ClientConnection, stream: TcpStream) -> TlsSocket {
        TlsSocket(StreamOwned::new(session, stream))
    }

    /// The same without what it remembers.
    pub fn fresh(&self) -> Self {
        let mut config = (*self.0).clone();
        config.resumption = Resumption::in_memory_sessions(8);
        Self(Arc::new(config))
    }

    pub fn connect(&self, address: SocketAddr, name: &str) -> TlsClient {
        self.try_connect(address, name).unwrap_or_else(|error| panic!("{name} at {address}: {error}"))
    }

    /// One GET on a connection of its own.
    pub fn get(&self, address: SocketAddr, name: &str) -> Result<Response, String> {
        let mut client = self.try_connect(address, name).map_err(|error| error.to_string())?;
        client.send(format!("GET / HTTP/1.1\r\nhost: {name}\r\n\r\n"));
        client.response("GET").map_err(|error: WireError| format!("{error:?}"))
    }

    /// A session without a socket, for tests that carry its bytes themselves.
    pub fn session(&self, name: &str) -> ClientConnection {
        let name = ServerName::try_from(name.to_owned()).expect("a name");
        ClientConnection::new(Arc::clone(&self.0), name).expect("a session")
    }
}

/// The client's end of a connection over TLS.
pub struct TlsSocket(StreamOwned<ClientConnection, TcpStream>);

impl TlsSocket {
    /// The certificate that the proxy showed.
    pub fn shown(&self) -> &CertificateDer<'static> {
        &self.0.conn.peer_certificates().expect("a certificate")[0]
    }

    pub fn resumed(&self) -> bool {
        self.0.conn.handshake_kind() == Some(HandshakeKind::Resumed)
    }

    pub fn local_addr(&self) -> SocketAddr {
        self.0.sock.local_addr().expect("local address")
    }

    /// What was chosen by ALPN.
    pub fn protocol(&self) -> &str {
        std::str::from_utf8(self.0.conn.alpn_protocol().unwrap_or_default()).expect("ASCII")
    }

    /// Changes its keys, which it tells the proxy with the next bytes (RFC 8446 section 4.6.3).
    pub fn change_keys(&mut self) -> bool {
        self.0.conn.refresh_traffic_keys().is_ok() && self.0.conn.write_tls(&mut self.0.sock).is_ok()
    }

    /// Ends the connection with RST.
    pub fn reset(self) {
        let (_, socket) = self.0.into_parts();
        net::reset(socket);
    }

    pub fn version(&self) -> String {
        format!("{:?}", self.0.conn.protocol_version().expect("a version"))
    }
}

impl Read for TlsSocket {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        self.0.read(room)
    }
}

impl Write for TlsSocket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl Transport for TlsSocket {
    fn limit_reads(&mut self, limit: Duration) -> io::Result<()> {
        self.0.sock.set_read_timeout(Some(limit))
    }
}

/// Sessions that are all kept under one name.
#[derive(Debug)]
struct OneName(ClientSessionMemoryCache);

impl OneName {
    fn name() -> ServerName<'static> {
        ServerName::try_from("any").expect("a name")
    }
}

impl ClientSessionStore for OneName {
    fn set_kx_hint(&self, _: ServerName<'static>, group: NamedGroup) {
        self.0.set_kx_hint(Self::name(), group);
    }

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        self.0.kx_hint(&Self::name())
    }

    fn set_tls12_session(&self, _: ServerName<'static>, session: Tls12ClientSessionValue) {
        self.0.set_tls12_session(Self::name(), session);
    }

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        self.0.tls12_session(&Self::name())
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {
        self.0.remove_tls12_session(&Self::name());
    }

    fn insert_tls13_ticket(&self, _: ServerName<'static>, session: Tls13ClientSessionValue) {
        self.0.insert_tls13_ticket(Self::name(), session);
    }

    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.0.take_tls13_ticket(&Self::name())
    }
}
