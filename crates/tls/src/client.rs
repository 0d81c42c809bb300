//! TLS with upstreams, as one cluster is configured.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use postrider_model::UpstreamTls;
use rustls::client::{ClientSessionMemoryCache, Resumption};
use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, ClientConnection};

use crate::facts::CertificateFacts;
use crate::identity::Identity;
use crate::key_log;
use crate::material::Material;
use crate::parameters;
use crate::roots;
use crate::verify::{Asked, Rules, ServerRules, Side};
use crate::{ReadFile, TlsError};

/// The most server names that sessions are remembered of, whatever is configured: their table is allocated at once.
const MAX_NAMES: usize = 1024;

/// TLS 1.3 tickets are used once, so several connections at a time need several. rustls keeps this many.
const TICKETS_PER_NAME: usize = 8;

/// How to ask upstreams. Immutable, and shared by all workers.
#[derive(Debug)]
pub struct ClientTls {
    config: Arc<ClientConfig>,
    logged: Option<(key_log::Choice, Arc<ClientConfig>)>,
    sni: Option<ServerName<'static>>,
    endpoint_sni: bool,
    request_sni: bool,
    verify_sni: bool,
    certificate: Option<CertificateFacts>,
    shown: Option<Arc<CertifiedKey>>,
    roots: Vec<CertificateFacts>,
    rules: Option<Arc<Rules>>,
    algorithms: WebPkiSupportedAlgorithms,
}

/// What is known of a connection that is about to be made.
#[derive(Debug, Clone, Copy, Default)]
pub struct Target<'a> {
    /// The protocols to offer, instead of the configuration's own.
    pub alpn: Option<&'a [&'a [u8]]>,
    /// The endpoint's host name, where it has one. A port is cut off.
    pub endpoint_host: Option<&'a str>,
    /// The host of the request that opens the connection. A port is cut off.
    pub request_host: Option<&'a str>,
    /// The name to ask for in the place of all others.
    pub server_name: Option<&'a str>,
    /// The certificate must have one of these, besides all that the configuration wants; empty wants none.
    pub alt_names: &'a [String],
    pub local: Option<IpAddr>,
    pub remote: Option<IpAddr>,
}

/// Why a connection cannot begin.
#[derive(Debug, Clone, PartialEq)]
pub enum ConnectError {
    /// The certificate must be good for the name that is asked for, and nothing gives a name.
    NoName,
    /// What is to be asked for is no name of a host.
    BadName(String),
    Tls(rustls::Error),
}

impl std::fmt::Display for ConnectError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ConnectError::NoName => f.write_str("there is no name to verify the server's certificate by"),
            ConnectError::BadName(name) => write!(f, "`{name}` is no host name to ask for"),
            ConnectError::Tls(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ConnectError {}

impl ClientTls {
    /// Reads every file that the context names.
    ///
    /// # Errors
    /// All of them at once, each with the path of its value in the context.
    pub fn build(model: &UpstreamTls, read: ReadFile<'_>) -> Result<ClientTls, Vec<TlsError>> {
        let mut material = Material::new(read);
        let built = ClientTls::assemble(model, &mut material);
        material.finish(built)
    }

    fn assemble(model: &UpstreamTls, material: &mut Material<'_>) -> Option<ClientTls> {
        // Every part is read before the first that is missing ends it, so that all errors are found.
        let parameters = parameters::read(&model.common, material);
        // Keys are read by the same provider, whatever it was told of suites.
        let judging = rustls::crypto::aws_lc_rs::default_provider();
        let identity = match &model.certificate {
            Some(it) => Identity::build(it, "certificate", None, &judging, material).map(Some),
            None => Some(None),
        };
        let validation = model.common.validation.as_ref();
        let loaded = match validation {
            Some(validation) => roots::load(validation, "common.validation", material).map(Some),
            None => Some(None),
        };
        let sni = match &model.sni {
            Some(text) => {
                let name = name_of(text);
                if name.is_none() {
                    material.refuse("sni", format!("`{text}` is neither a host name nor an address"));
                }
                name.map(Some)
            }
            None => Some(None),
        };
        let log = match &model.common.key_log {
            Some(log) => key_log::Choice::open(log, material).map(Some),
            None => Some(None),
        };
        let ((provider, versions), identity, mut loaded) = (parameters?, identity?, loaded?);
        let (sni, log) = (sni?, log?);

        let facts = loaded.as_mut().map(|it| std::mem::take(&mut it.facts)).unwrap_or_default();
        let algorithms = provider.signature_verification_algorithms;
        let rules = match (validation, loaded) {
            (Some(validation), Some(loaded)) => Some(Arc::new(Rules::new(validation, loaded, algorithms))),
            _ => None,
        };
        let builder = match ClientConfig::builder_with_provider(provider).with_protocol_versions(versions) {
            Ok(builder) => builder,
            Err(why) => {
                material.refuse("common", format!("versions and cipher suites do not fit each other: {why}"));
                return None;
            }
        };
        let verifier =
            ServerRules { rules: rules.clone(), verify_name: model.verify_sni, alt_names: Vec::new(), algorithms };
        let builder = builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier));
        let certificate = identity.as_ref().map(|it| it.facts.clone());
        let shown = identity.as_ref().map(|it| it.plain.clone());
        let mut config = match identity {
            Some(identity) => {
                builder.with_client_cert_resolver(Arc::new(rustls::sign::SingleCertAndKey::from(identity.plain)))
            }
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = model.common.alpn.iter().map(|it| it.as_bytes().to_vec()).collect();
        config.resumption = match usize::try_from(model.max_sessions) {
            Ok(0) | Err(_) => Resumption::disabled(),
            // The cache counts in tickets, and divides by how many it keeps of one name.
            Ok(most) => {
                Resumption::store(Arc::new(ClientSessionMemoryCache::new(most.min(MAX_NAMES) * TICKETS_PER_NAME)))
            }
        };
        let logged = log.map(|choice| {
            let mut config = config.clone();
            config.key_log = choice.log.clone();
            (choice, Arc::new(config))
        });
        Some(ClientTls {
            config: Arc::new(config),
            logged,
            sni,
            endpoint_sni: model.endpoint_sni,
            request_sni: model.request_sni,
            verify_sni: model.verify_sni,
            certificate,
            shown,
            roots: facts,
            rules,
            algorithms,
        })
    }

    /// For whoever makes connections by other means than [`ClientTls::connection`]; logs no keys.
    pub fn config(&self) -> &Arc<ClientConfig> {
        &self.config
    }

    /// A connection that has yet to shake hands.
    ///
    /// # Errors
    /// When nothing gives the name that the certificate must be verified by, or rustls refuses the configuration.
    pub fn connection(&self, target: &Target<'_>) -> Result<ClientConnection, ConnectError> {
        if let Some(wanted) = target.server_name
            && name_of(wanted).is_none()
        {
            return Err(ConnectError::BadName(wanted.to_owned()));
        }
        let name = match self.server_name(target) {
            Some(name) => name,
            None if self.verify_sni => return Err(ConnectError::NoName),
            // rustls wants a name always, and sends none that is an address. Sessions are kept under it: all
            // connections of this cluster that ask for no name share them.
            None => ServerName::from(IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
        };
        let config = match &self.logged {
            Some((choice, logged)) if choice.wants(target.local, target.remote) => logged,
            _ => &self.config,
        };
        let config = self.strict(config, target);
        let made = match target.alpn {
            Some(protocols) => {
                let protocols = protocols.iter().map(|it| it.to_vec()).collect();
                ClientConnection::new_with_alpn(config, name, protocols)
            }
            None => ClientConnection::new(config, name),
        };
        made.map_err(ConnectError::Tls)
    }

    /// The configuration for a connection whose certificate must have one of some names. No session of it is kept, and it
    /// resumes none: the others were begun under other rules.
    fn strict(&self, config: &Arc<ClientConfig>, target: &Target<'_>) -> Arc<ClientConfig> {
        let verifies_host = self.verifies_host_of(target);
        if target.alt_names.is_empty() && verifies_host.is_none() {
            return config.clone();
        }
        let mut strict = ClientConfig::clone(config);
        let alt_names = match target.alt_names {
            [] => verifies_host.into_iter().collect(),
            names => names.to_vec(),
        };
        let rules = ServerRules {
            rules: self.rules.clone(),
            verify_name: self.verify_sni && !self.request_sni,
            alt_names,
            algorithms: self.algorithms,
        };
        strict.dangerous().set_certificate_verifier(Arc::new(rules));
        strict.resumption = Resumption::disabled();
        Arc::new(strict)
    }

    /// Where the host of the request is both asked for and verified, and another name is to be asked for: the host is verified
    /// as it was.
    fn verifies_host_of(&self, target: &Target<'_>) -> Option<String> {
        target.server_name.filter(|_| self.verify_sni && self.request_sni)?;
        target.request_host.map(|host| host.to_owned())
    }

    /// The name to ask for, and to verify where that is configured: what somebody wants, then the request's, then the
    /// endpoint's, then the configured one, each where it is wanted and known. One that is an address is verified, but not sent (RFC 6066,
    /// section 3).
    pub fn server_name(&self, target: &Target<'_>) -> Option<ServerName<'static>> {
        let known = |wanted: bool, host: Option<&str>| host.filter(|_| wanted).and_then(name_of);
        known(true, target.server_name)
            .or_else(|| known(self.request_sni, target.request_host))
            .or_else(|| known(self.endpoint_sni, target.endpoint_host))
            .or_else(|| self.sni.clone())
    }

    /// The one that is shown to servers that ask.
    pub fn certificate(&self) -> Option<&CertificateFacts> {
        self.certificate.as_ref()
    }

    /// The same with its chain, as rustls has it.
    pub fn shown(&self) -> Option<&Arc<CertifiedKey>> {
        self.shown.as_ref()
    }

    /// Those that server certificates are traced back to, from PEM.
    pub fn roots(&self) -> &[CertificateFacts] {
        &self.roots
    }

    /// Whether a server's certificate is good by the rules, now. `chain` is what rustls says the server showed, leaf
    /// first; `target` is that of the connection.
    ///
    /// This is the answer for contexts that accept what is not good; it verifies again, so ask only who needs it.
    pub fn peer_verified(&self, chain: &[CertificateDer<'_>], target: &Target<'_>) -> bool {
        let (Some(rules), Some((leaf, more))) = (&self.rules, chain.split_first()) else { return false };
        let name = self.server_name(target).filter(|_| self.verify_sni);
        let asked = Asked { side: Side::Server, name: name.as_ref(), now: UnixTime::now() };
        rules.verify_anything() && rules.judge(leaf, more, asked).is_ok()
    }
}

/// A host, with or without a port and brackets. `None` for what cannot be one.
fn name_of(host: &str) -> Option<ServerName<'static>> {
    let bare = match host.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?.0,
        // An address of version 6 without brackets has no port.
        None if host.matches(':').count() == 1 => host.split_once(':')?.0,
        None => host,
    };
    ServerName::try_from(bare).ok().map(|it| it.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_as_names() {
        for (host, want) in [
            ("a.example", Some("a.example")),
            ("a.example:8443", Some("a.example")),
            ("a_b.example", Some("a_b.example")),
            ("192.0.2.1:443", Some("192.0.2.1")),
            ("[2001:db8::1]:443", Some("2001:db8::1")),
            ("2001:db8::1", Some("2001:db8::1")),
            ("", None),
            ("a b", None),
            ("[2001:db8::1", None),
        ] {
            assert_eq!(name_of(host).map(|it| it.to_str().into_owned()).as_deref(), want, "{host}");
        }
    }
}
