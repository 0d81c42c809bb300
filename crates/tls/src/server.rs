//! TLS with clients, as one filter chain is configured.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::SystemTime;

use postrider_model::{DownstreamTls, SessionTickets, Validation};
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::{ClientHello, NoServerSessionStorage, ProducesTickets, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;

use crate::facts::{CertificateFacts, sha256};
use crate::identity::Identity;
use crate::key_log;
use crate::material::Material;
use crate::parameters;
use crate::resolver::Resolver;
use crate::roots;
use crate::sessions;
use crate::tickets::{self, ContextId};
use crate::verify::{Asked, ClientRules, Rules, Side};
use crate::{ReadFile, TlsError};

/// How to answer clients. Immutable, and shared by all workers.
#[derive(Debug)]
pub struct ServerTls {
    config: Arc<ServerConfig>,
    /// For clients that speak none of our protocols.
    without_alpn: Arc<ServerConfig>,
    logged: Option<Logged>,
    resolver: Arc<Resolver>,
    certificates: Vec<CertificateFacts>,
    roots: Vec<CertificateFacts>,
    rules: Option<Arc<Rules>>,
}

#[derive(Debug)]
struct Logged {
    choice: key_log::Choice,
    config: Arc<ServerConfig>,
    without_alpn: Arc<ServerConfig>,
}

impl ServerTls {
    /// Reads every file that the context names. A certificate that has ended is no error: it is shown as it is, and
    /// [`ServerTls::certificates`] tells.
    ///
    /// # Errors
    /// All of them at once, each with the path of its value in the context.
    pub fn build(model: &DownstreamTls, read: ReadFile<'_>) -> Result<ServerTls, Vec<TlsError>> {
        let mut material = Material::new(read);
        let built = ServerTls::assemble(model, &mut material);
        material.finish(built)
    }

    fn assemble(model: &DownstreamTls, material: &mut Material<'_>) -> Option<ServerTls> {
        // Every part is read before the first that is missing ends it, so that all errors are found.
        let parameters = parameters::read(&model.common, material);
        // Keys are read by the same provider, whatever it was told of suites.
        let judging = rustls::crypto::aws_lc_rs::default_provider();
        let identities = identities(model, &judging, material);
        let validation = model.common.validation.as_ref();
        let loaded = match validation {
            Some(validation) => roots::load(validation, "common.validation", material).map(Some),
            None => Some(None),
        };
        let keys = ticket_keys(&model.tickets, material);
        let log = match &model.common.key_log {
            Some(log) => key_log::Choice::open(log, material).map(Some),
            None => Some(None),
        };
        let ((provider, versions), identities, mut loaded) = (parameters?, identities?, loaded?);
        let (keys, log) = (keys?, log?);

        let context = context_id(model, &identities, loaded.as_ref());
        let facts = loaded.as_mut().map(|it| std::mem::take(&mut it.facts)).unwrap_or_default();
        let algorithms = provider.signature_verification_algorithms;
        let rules = match (validation, loaded) {
            (Some(validation), Some(loaded)) => Some(Arc::new(Rules::new(validation, loaded, algorithms))),
            _ => None,
        };
        let newest = versions.iter().any(|it| it.version == rustls::ProtocolVersion::TLSv1_3);
        let resolver = Arc::new(Resolver::new(identities, model.ocsp, model.refuse_unknown_names, newest));

        let builder = match ServerConfig::builder_with_provider(provider).with_protocol_versions(versions) {
            Ok(builder) => builder,
            Err(why) => {
                material.refuse("common", format!("versions and cipher suites do not fit each other: {why}"));
                return None;
            }
        };
        let verifier: Arc<dyn rustls::server::danger::ClientCertVerifier> =
            match ClientRules::of(model, rules.clone(), algorithms) {
                Some(rules) => Arc::new(rules),
                None => WebPkiClientVerifier::no_client_auth(),
            };
        let mut config = builder.with_client_cert_verifier(verifier).with_cert_resolver(resolver.clone());
        config.alpn_protocols = model.common.alpn.iter().map(|it| it.as_bytes().to_vec()).collect();
        // Named suites are an order of preference; the default leaves it to the client.
        config.ignore_client_order = !model.common.cipher_suites.is_empty() && !model.prefers_client_ciphers;
        resume(&mut config, model, keys, context);

        let without_alpn = |config: &ServerConfig| {
            let mut config = config.clone();
            config.alpn_protocols.clear();
            config
        };
        let logged = log.map(|choice| {
            let mut config = config.clone();
            config.key_log = choice.log.clone();
            Logged { without_alpn: Arc::new(without_alpn(&config)), config: Arc::new(config), choice }
        });
        Some(ServerTls {
            without_alpn: Arc::new(without_alpn(&config)),
            config: Arc::new(config),
            logged,
            certificates: resolver.facts().cloned().collect(),
            resolver,
            roots: facts,
            rules,
        })
    }

    /// For a caller that knows nothing of the client: a client whose protocols are all others is refused, and no key is
    /// logged. [`ServerTls::config_for`] is for the rest.
    pub fn config(&self) -> &Arc<ServerConfig> {
        &self.config
    }

    /// For this client. `hello` comes from rustls' `Acceptor`; addresses are those of the connection, where it has any.
    ///
    /// A client that offers only protocols we do not have goes on without one (RFC 7301 would end it; Envoy does not).
    pub fn config_for(
        &self,
        hello: &ClientHello<'_>,
        local: Option<IpAddr>,
        remote: Option<IpAddr>,
    ) -> &Arc<ServerConfig> {
        let ours = &self.config.alpn_protocols;
        let common = hello.alpn().is_none_or(|mut offered| offered.any(|it| ours.iter().any(|own| own == it)));
        match &self.logged {
            Some(logged) if logged.choice.wants(local, remote) => {
                if common {
                    &logged.config
                } else {
                    &logged.without_alpn
                }
            }
            _ if common => &self.config,
            _ => &self.without_alpn,
        }
    }

    /// The certificates, in the order of the configuration.
    pub fn certificates(&self) -> &[CertificateFacts] {
        &self.certificates
    }

    /// The one that this client is shown; `None` when it is refused, for its server name, or for want of an OCSP
    /// response or of a key that it can verify.
    pub fn certificate_for(&self, hello: &ClientHello<'_>) -> Option<&CertificateFacts> {
        let (place, _) = self.resolver.choose(hello, SystemTime::now())?;
        self.certificates.get(place)
    }

    /// The same with its chain, as rustls has it.
    pub fn shown_to(&self, hello: &ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.resolver.shown(hello)
    }

    /// Those that client certificates are traced back to, from PEM.
    pub fn roots(&self) -> &[CertificateFacts] {
        &self.roots
    }

    /// Whether a client's certificate is good by the rules, now. `chain` is what rustls says the client showed, leaf
    /// first, and may come from a session that was resumed.
    ///
    /// This is the answer for contexts that accept what is not good; it verifies again, so ask only who needs it.
    pub fn peer_verified(&self, chain: &[CertificateDer<'_>]) -> bool {
        let (Some(rules), Some((leaf, more))) = (&self.rules, chain.split_first()) else { return false };
        let asked = Asked { side: Side::Client, name: None, now: UnixTime::now() };
        rules.verify_anything() && rules.judge(leaf, more, asked).is_ok()
    }
}

impl ClientRules {
    /// `None`: clients are asked for no certificate.
    fn of(
        model: &DownstreamTls,
        rules: Option<Arc<Rules>>,
        algorithms: rustls::crypto::WebPkiSupportedAlgorithms,
    ) -> Option<ClientRules> {
        let asked = model.require_client_certificate || rules.as_ref().is_some_and(|it| it.ask_for_a_certificate());
        if !asked {
            return None;
        }
        Some(ClientRules {
            mandatory: model.require_client_certificate || rules.as_ref().is_some_and(|it| it.demand_a_certificate()),
            subjects: rules.as_ref().map(|it| it.subjects()).unwrap_or_default(),
            rules,
            algorithms,
        })
    }
}

/// `None` when one of them was refused.
fn identities(model: &DownstreamTls, provider: &CryptoProvider, material: &mut Material<'_>) -> Option<Vec<Identity>> {
    let built: Vec<Option<Identity>> = model
        .certificates
        .iter()
        .enumerate()
        .map(|(index, it)| Identity::build(it, &format!("certificates[{index}]"), Some(model.ocsp), provider, material))
        .collect();
    built.into_iter().collect()
}

/// `None` when something was refused; `Some(None)` when there are no tickets.
fn ticket_keys(model: &SessionTickets, material: &mut Material<'_>) -> Option<Option<Arc<dyn ProducesTickets>>> {
    match model {
        SessionTickets::Off => Some(None),
        SessionTickets::Rotating => {
            let keys = tickets::rotating();
            if keys.is_none() {
                material.refuse("tickets", "the system gives no random bytes for session ticket keys");
            }
            keys.map(Some)
        }
        SessionTickets::Keys(list) => {
            let mut keys = Vec::new();
            for (index, data) in list.iter().enumerate() {
                let path = format!("tickets.keys[{index}]");
                let Some(source) = material.load(data, &path) else { continue };
                if source.bytes.len() == tickets::KEY_LENGTH {
                    keys.push(source.bytes);
                } else {
                    let (origin, length) = (&source.origin, source.bytes.len());
                    let message = format!("{origin} has {length} bytes; a key has {}", tickets::KEY_LENGTH);
                    material.refuse(&path, message);
                }
            }
            if keys.len() != list.len() {
                return None;
            }
            let configured = tickets::Configured::new(&keys);
            if configured.is_none() {
                material.refuse("tickets.keys", "there is no key");
            }
            configured.map(|it| Some(Arc::new(it) as Arc<dyn ProducesTickets>))
        }
    }
}

/// How sessions are resumed.
fn resume(
    config: &mut ServerConfig,
    model: &DownstreamTls,
    keys: Option<Arc<dyn ProducesTickets>>,
    context: ContextId,
) {
    // Zero is no lifetime but the default, as in BoringSSL.
    let lifetime = model.session_timeout.filter(|it| !it.is_zero()).unwrap_or(tickets::DEFAULT_LIFETIME);
    match keys {
        Some(keys) => config.ticketer = Arc::new(tickets::Bound::new(keys, context, lifetime)),
        // What TLS 1.3 resumes is a ticket always.
        None => config.send_tls13_tickets = 0,
    }
    config.session_storage = if model.stateful_resumption {
        Arc::new(sessions::Bound::new(sessions::shared(), context, lifetime))
    } else {
        Arc::new(NoServerSessionStorage {})
    };
}

/// Two contexts with the same identity ask the same of clients and answer for the same names, so a session of one may
/// go on in the other. A renewed certificate keeps it.
fn context_id(model: &DownstreamTls, identities: &[Identity], loaded: Option<&roots::Loaded>) -> ContextId {
    let mut bytes = Vec::new();
    let mut part = |content: &[u8]| {
        // Each with its length, so that no two lists of parts give the same bytes.
        bytes.extend_from_slice(&u64::try_from(content.len()).unwrap_or(u64::MAX).to_be_bytes());
        bytes.extend_from_slice(content);
    };
    part(&[u8::from(model.require_client_certificate)]);
    if let Some(validation) = &model.common.validation {
        part(rules_text(validation).as_bytes());
    }
    part(b"roots");
    for material in loaded.map(|it| it.material.as_slice()).unwrap_or_default() {
        part(material);
    }
    part(b"certificates");
    for identity in identities {
        part(identity.facts.issuer.as_bytes());
        for host in &identity.hosts {
            part(host.as_bytes());
        }
    }
    sha256(&bytes)
}

/// Everything of a validation but where it came from and what its files hold.
fn rules_text(validation: &Validation) -> String {
    let Validation {
        roots,
        names,
        key_hashes,
        certificate_hashes,
        revocation_list,
        max_depth,
        revocation_of_leaf_only,
        allow_expired,
        accept_untrusted,
        // It changes what a client shows, not what is made of it.
        hides_roots: _,
        name: _,
        origin: _,
    } = validation;
    let roots = std::mem::discriminant(roots);
    let lists = revocation_list.is_some();
    format!(
        "{roots:?} {names:?} {key_hashes:?} {certificate_hashes:?} {lists} {max_depth:?} {revocation_of_leaf_only} \
         {allow_expired} {accept_untrusted}"
    )
}
