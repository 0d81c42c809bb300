//! What is known of a TLS connection once both sides agreed: kept for formats, headers and filters, which may ask long
//! after the handshake, or never.

use std::cell::OnceCell;
use std::sync::Arc;
use std::time::SystemTime;

use postrider_filter_api::{Certificates, Moment, TlsSession};
use postrider_model::CertificatePart;
use postrider_telemetry::stats::sets::Agreed;
use postrider_tls::rustls::pki_types::CertificateDer;
use postrider_tls::rustls::sign::CertifiedKey;
use postrider_tls::rustls::{CommonState, Connection};
use postrider_tls::{CertificateFacts, ClientTls, ConnectionFacts, ServerTls, Target, peer_facts};

use super::TlsStream;
use crate::greeting::Greeting;

/// What a client and we agreed on. `shown` is our certificate.
pub(crate) fn with_client(
    stream: &TlsStream,
    tls: &Arc<ServerTls>,
    shown: Option<Arc<CertifiedKey>>,
    greeting: Greeting,
    (began, agreed): (Moment, Moment),
) -> TlsSession {
    let name = match stream.session() {
        Connection::Server(session) => session.server_name().map(str::to_owned),
        Connection::Client(_) => None,
    };
    TlsSession {
        server_name: name.or(greeting.server_name),
        ja3: greeting.ja3,
        ja4: greeting.ja4,
        began: Some(began),
        agreed: Some(agreed),
        ..session(stream.session(), Rules::OfClients(tls.clone()), shown)
    }
}

/// What an upstream and we agreed on, and the name that it was asked for.
pub(crate) fn with_upstream(stream: &TlsStream, tls: &Arc<ClientTls>, target: &Target<'_>) -> TlsSession {
    let name = tls.server_name(target).map(|name| name.to_str().into_owned());
    let rules = Rules::OfUpstreams(tls.clone(), name.clone());
    // An address is verified, but not asked for.
    let asked = name.filter(|name| name.parse::<std::net::IpAddr>().is_err());
    TlsSession { server_name: asked, ..session(stream.session(), rules, tls.shown().cloned()) }
}

/// What statistics tell of a handshake.
pub(crate) fn agreed(state: &CommonState) -> Agreed<'static> {
    let facts = ConnectionFacts::of(state);
    Agreed { version: facts.version, cipher: facts.cipher, curve: facts.group }
}

fn session(state: &CommonState, rules: Rules, shown: Option<Arc<CertifiedKey>>) -> TlsSession {
    let facts = ConnectionFacts::of(state);
    let peer = state.peer_certificates().map(|chain| Box::new(Shown { chain: chain.to_vec(), rules }) as Box<_>);
    TlsSession {
        version: facts.version.unwrap_or_default(),
        cipher: facts.cipher.unwrap_or_default(),
        cipher_id: state.negotiated_cipher_suite().map_or(0, |suite| suite.suite().into()),
        group: facts.group,
        server_name: None,
        protocol: facts.alpn.map(|name| String::from_utf8_lossy(name).into_owned()),
        ja3: None,
        ja4: None,
        peer,
        local: shown.map(|key| Box::new(Ours(key)) as Box<_>),
        forwarded: OnceCell::new(),
        began: None,
        agreed: None,
    }
}

/// What the other side showed.
#[derive(Debug)]
struct Shown {
    chain: Vec<CertificateDer<'static>>,
    rules: Rules,
}

/// What it was judged by.
#[derive(Debug)]
enum Rules {
    OfClients(Arc<ServerTls>),
    /// And the name that was asked for.
    OfUpstreams(Arc<ClientTls>, Option<String>),
}

impl Rules {
    fn roots(&self) -> &[CertificateFacts] {
        match self {
            Rules::OfClients(tls) => tls.roots(),
            Rules::OfUpstreams(tls, _) => tls.roots(),
        }
    }
}

impl Certificates for Shown {
    fn values(&self, part: CertificatePart) -> Vec<String> {
        peer_facts(&self.chain).map(|facts| facts.values(part, self.rules.roots())).unwrap_or_default()
    }

    fn validity(&self) -> Option<(SystemTime, SystemTime)> {
        peer_facts(&self.chain).map(|facts| (facts.not_before(), facts.not_after()))
    }

    fn is_verified(&self) -> bool {
        match &self.rules {
            Rules::OfClients(tls) => tls.peer_verified(&self.chain),
            Rules::OfUpstreams(tls, name) => {
                // Whichever of the two it came from, it was this one.
                let name = name.as_deref();
                tls.peer_verified(&self.chain, &Target { endpoint_host: name, request_host: name, ..Target::default() })
            }
        }
    }
}

/// What we showed.
#[derive(Debug)]
struct Ours(Arc<CertifiedKey>);

impl Certificates for Ours {
    fn values(&self, part: CertificatePart) -> Vec<String> {
        peer_facts(&self.0.cert).map(|facts| facts.values(part, &[])).unwrap_or_default()
    }

    fn validity(&self) -> Option<(SystemTime, SystemTime)> {
        peer_facts(&self.0.cert).map(|facts| (facts.not_before(), facts.not_after()))
    }

    fn is_verified(&self) -> bool {
        false
    }
}
