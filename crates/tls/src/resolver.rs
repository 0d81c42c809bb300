//! Which of our certificates a client is shown.
//!
//! The server name decides first: a certificate for exactly that name, then one whose wildcard covers its first label,
//! then any. Among those, one with an ECDSA key where the client can verify it, else the first that it can verify, in
//! the order of the configuration (Envoy's default certificate selector).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::SystemTime;

use postrider_model::OcspPolicy;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{CipherSuite, SignatureAlgorithm, SignatureScheme};

use crate::facts::CertificateFacts;
use crate::identity::Identity;
use crate::ocsp::{self, Staple};

#[derive(Debug)]
pub(crate) struct Resolver {
    identities: Vec<Identity>,
    /// Places in `identities` by host name; a wildcard's `*` is cut off, so that it begins with a dot.
    hosts: HashMap<String, Vec<usize>>,
    ocsp: OcspPolicy,
    refuse_unknown_names: bool,
    /// The server speaks TLS 1.3.
    newest: bool,
}

impl Resolver {
    pub fn new(identities: Vec<Identity>, ocsp: OcspPolicy, refuse_unknown_names: bool, newest: bool) -> Resolver {
        let mut hosts: HashMap<String, Vec<usize>> = HashMap::new();
        for (place, identity) in identities.iter().enumerate() {
            for host in &identity.hosts {
                let key = host.strip_prefix('*').filter(|it| it.starts_with('.')).unwrap_or(host);
                let places = hosts.entry(key.to_owned()).or_default();
                if places.last() != Some(&place) {
                    places.push(place);
                }
            }
        }
        Resolver { identities, hosts, ocsp, refuse_unknown_names, newest }
    }

    pub fn facts(&self) -> impl Iterator<Item = &CertificateFacts> {
        self.identities.iter().map(|it| &it.facts)
    }

    /// The place of the certificate, and whether its OCSP response goes with it. `None` ends the handshake.
    pub fn choose(&self, hello: &ClientHello<'_>, now: SystemTime) -> Option<(usize, Staple)> {
        let client = Client { hello, newest: self.newest };
        let none = Vec::new();
        if let Some(name) = hello.server_name() {
            // rustls has it in lower case already; a resolver that depends on that would be wrong quietly.
            let name = name.to_ascii_lowercase();
            let below = name.find('.').filter(|&dot| dot > 0).and_then(|dot| name.get(dot..));
            for key in [Some(name.as_str()), below].into_iter().flatten() {
                let places = self.hosts.get(key).unwrap_or(&none);
                if let Some(found) = self.best(places.iter().copied(), &client, now) {
                    return Some(found);
                }
            }
            if self.refuse_unknown_names {
                return None;
            }
            // The first certificate stands for the unknown, whatever its key; others only if a client cannot verify it.
            let mut usable = (0..self.identities.len()).filter_map(|place| self.usable(place, &client, now));
            return usable.next();
        }
        self.best(0..self.identities.len(), &client, now)
    }

    /// The certificate without its OCSP response.
    pub fn shown(&self, hello: &ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let (place, _) = self.choose(hello, SystemTime::now())?;
        self.identities.get(place).map(|identity| identity.plain.clone())
    }

    fn best(
        &self,
        places: impl Iterator<Item = usize>,
        client: &Client<'_, '_>,
        now: SystemTime,
    ) -> Option<(usize, Staple)> {
        let usable: Vec<(usize, Staple)> = places.filter_map(|place| self.usable(place, client, now)).collect();
        let elliptic = |(place, _): &&(usize, Staple)| {
            self.identities.get(*place).is_some_and(|it| it.plain.key.algorithm() == SignatureAlgorithm::ECDSA)
        };
        usable.iter().find(elliptic).or(usable.first()).copied()
    }

    fn usable(&self, place: usize, client: &Client<'_, '_>, now: SystemTime) -> Option<(usize, Staple)> {
        let identity = self.identities.get(place)?;
        if !client.verifies(&identity.plain) {
            return None;
        }
        let response = identity.stapled.as_ref().map(|(_, validity)| *validity);
        match ocsp::decide(self.ocsp, identity.must_staple, response, now) {
            Staple::Refuse => None,
            staple => Some((place, staple)),
        }
    }
}

impl ResolvesServerCert for Resolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let (place, staple) = self.choose(&hello, SystemTime::now())?;
        let identity = self.identities.get(place)?;
        let key = match (&identity.stapled, staple) {
            (Some((stapled, _)), Staple::With) => stapled,
            _ => &identity.plain,
        };
        Some(key.clone())
    }
}

struct Client<'a, 'h> {
    hello: &'a ClientHello<'h>,
    newest: bool,
}

impl Client<'_, '_> {
    /// Whether the client can verify this key: it must know a signature scheme for it, and, before TLS 1.3, a cipher
    /// suite for that kind of key.
    fn verifies(&self, key: &CertifiedKey) -> bool {
        let schemes: &[SignatureScheme] = self.hello.signature_schemes();
        key.key.choose_scheme(schemes).is_some()
            && self.hello.cipher_suites().iter().any(|suite| self.fits(*suite, key.key.algorithm()))
    }

    fn fits(&self, suite: CipherSuite, algorithm: SignatureAlgorithm) -> bool {
        use CipherSuite as S;
        match suite {
            S::TLS13_AES_128_GCM_SHA256 | S::TLS13_AES_256_GCM_SHA384 | S::TLS13_CHACHA20_POLY1305_SHA256 => {
                self.newest
            }
            S::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256
            | S::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384
            | S::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256 => algorithm == SignatureAlgorithm::RSA,
            S::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
            | S::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384
            | S::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256 => algorithm != SignatureAlgorithm::RSA,
            _ => false,
        }
    }
}
