//! Whether a certificate of the other side is good, by the rules of a configuration.
//!
//! ```text
//! a root by itself, or a path to one (webpki: signatures, validity, purpose, revocation, depth)
//!   -> names: one rule must fit          -> hashes: one must fit          -> good
//! ```
//!
//! Who owns the key is proven by the handshake's signature, which no setting turns off. Nothing here does I/O.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use postrider_model::{NameMatch, Validation};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, SignatureScheme};
use webpki::{
    EndEntityCert, ExpirationPolicy, KeyUsage, RevocationCheckDepth, RevocationOptions, RevocationOptionsBuilder,
};

use crate::facts::sha256;
use crate::failure::NotValidForName;
use crate::names::{self, AltName};
use crate::roots::{Anchors, Loaded, Trust};
use crate::x509::{X509, oid};

/// Who shows the certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Client,
    Server,
}

/// The rules of one [`Validation`].
#[derive(Debug)]
pub(crate) struct Rules {
    anchors: Anchors,
    names: Vec<NameMatch>,
    key_hashes: Vec<[u8; 32]>,
    certificate_hashes: Vec<[u8; 32]>,
    max_depth: Option<u32>,
    revocation_of_leaf_only: bool,
    allow_expired: bool,
    accept_untrusted: bool,
    hides_roots: bool,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Rules {
    pub fn new(model: &Validation, loaded: Loaded, algorithms: WebPkiSupportedAlgorithms) -> Rules {
        Rules {
            anchors: loaded.anchors,
            names: model.names.clone(),
            key_hashes: model.key_hashes.clone(),
            certificate_hashes: model.certificate_hashes.clone(),
            max_depth: model.max_depth,
            revocation_of_leaf_only: model.revocation_of_leaf_only,
            allow_expired: model.allow_expired,
            accept_untrusted: model.accept_untrusted,
            hides_roots: model.hides_roots,
            algorithms,
        }
    }

    pub fn subjects(&self) -> Vec<DistinguishedName> {
        if self.hides_roots { Vec::new() } else { self.anchors.subjects() }
    }

    /// Whether there is any rule that a certificate could break.
    pub fn verify_anything(&self) -> bool {
        !matches!(self.anchors, Anchors::None) || !self.names.is_empty() || self.pins()
    }

    /// Whether a client is asked for a certificate: to verify it, or to show it as it is.
    pub fn ask_for_a_certificate(&self) -> bool {
        self.verify_anything() || self.accept_untrusted
    }

    /// Whether a certificate must be there for the rules to mean anything. Roots alone let a client go without one;
    /// names, hashes and trust domains do not (Envoy's default and SPIFFE validators verify the same way).
    pub fn demand_a_certificate(&self) -> bool {
        let about_the_leaf = !self.names.is_empty() || self.pins() || matches!(self.anchors, Anchors::Domains(_));
        about_the_leaf && !self.accept_untrusted
    }

    fn pins(&self) -> bool {
        !self.key_hashes.is_empty() || !self.certificate_hashes.is_empty()
    }

    /// What the handshake asks: as [`Rules::judge`], unless everything is accepted.
    fn admit(&self, leaf: &CertificateDer<'_>, more: &[CertificateDer<'_>], asked: Asked<'_>) -> Result<(), Error> {
        if self.accept_untrusted {
            return Ok(());
        }
        self.judge(leaf, more, asked)
    }

    /// Whether the certificate is good, whatever is accepted.
    pub fn judge(&self, leaf: &CertificateDer<'_>, more: &[CertificateDer<'_>], asked: Asked<'_>) -> Result<(), Error> {
        let parsed = X509::parse(leaf).ok_or(CertificateError::BadEncoding)?;
        let alt_names = names::of(&parsed);
        match &self.anchors {
            Anchors::None => {}
            Anchors::All(trust) => self.trace(trust, leaf, &parsed, more, asked)?,
            Anchors::Domains(domains) => {
                let trust = trust_domain(&parsed, &alt_names)
                    .and_then(|domain| domains.iter().find(|(name, _)| name == domain).map(|(_, trust)| trust));
                self.trace(trust.ok_or(CertificateError::UnknownIssuer)?, leaf, &parsed, more, asked)?;
            }
        }
        let name_fits = match asked.name {
            // The name that was asked for takes the place of the other rules (Envoy's `auto_sni_san_validation`).
            Some(name) => good_for(name, &alt_names),
            None => self.names.is_empty() || self.names.iter().any(|rule| names::meets(rule, &alt_names)),
        };
        if !name_fits {
            return Err(NotValidForName { wanted: Vec::new(), names: shown(&alt_names) }.into());
        }
        if self.pins() && !self.pinned(leaf, &parsed) {
            return Err(CertificateError::ApplicationVerificationFailure.into());
        }
        Ok(())
    }

    fn pinned(&self, leaf: &CertificateDer<'_>, parsed: &X509<'_>) -> bool {
        self.certificate_hashes.contains(&sha256(leaf)) || self.key_hashes.contains(&sha256(parsed.public_key))
    }

    fn trace(
        &self,
        trust: &Trust,
        leaf: &CertificateDer<'_>,
        parsed: &X509<'_>,
        more: &[CertificateDer<'_>],
        asked: Asked<'_>,
    ) -> Result<(), Error> {
        // Whoever trusts exactly this certificate trusts it as it is, be it marked as an authority or not: OpenSSL
        // reads it so, and many a test set-up depends on it.
        if trust.certificates.iter().any(|it| it.as_ref() == leaf.as_ref()) {
            return self.is_good_root(parsed, asked);
        }
        let leaf = EndEntityCert::try_from(leaf).map_err(certificate_error)?;
        let lists: Vec<_> = trust.revocation_lists.iter().collect();
        let revocation = self.revocation(&lists);
        let depth = |path: &webpki::VerifiedPath<'_>| {
            let between = path.intermediate_certificates().count();
            let fits = self.max_depth.is_none_or(|most| between <= usize::try_from(most).unwrap_or(usize::MAX));
            if fits { Ok(()) } else { Err(webpki::Error::MaximumPathDepthExceeded) }
        };
        let at = |time: UnixTime| {
            let usage = match asked.side {
                Side::Client => KeyUsage::client_auth(),
                Side::Server => KeyUsage::server_auth(),
            };
            leaf.verify_for_usage(self.algorithms.all, &trust.anchors, more, time, usage, revocation, Some(&depth))
                .map(|_| ())
        };
        let mut result = at(asked.now);
        if self.allow_expired {
            for time in moments(parsed, more) {
                if !matches!(result, Err(webpki::Error::CertExpired { .. } | webpki::Error::CertNotValidYet { .. })) {
                    break;
                }
                result = at(time);
            }
        }
        result.map_err(certificate_error)
    }

    fn is_good_root(&self, parsed: &X509<'_>, asked: Asked<'_>) -> Result<(), Error> {
        let purpose = match asked.side {
            Side::Client => oid::CLIENT_AUTH,
            Side::Server => oid::SERVER_AUTH,
        };
        if !parsed.fits_purpose(purpose) {
            return Err(CertificateError::InvalidPurpose.into());
        }
        if self.allow_expired {
            return Ok(());
        }
        let now = UNIX_EPOCH + std::time::Duration::from_secs(asked.now.as_secs());
        if now < parsed.not_before {
            return Err(CertificateError::NotValidYet.into());
        }
        if now > parsed.not_after {
            return Err(CertificateError::Expired.into());
        }
        Ok(())
    }

    /// A list that has ended says nothing any more, unless time does not count.
    fn revocation<'l>(&self, lists: &'l [&'l webpki::CertRevocationList<'l>]) -> Option<RevocationOptions<'l>> {
        let depth =
            if self.revocation_of_leaf_only { RevocationCheckDepth::EndEntity } else { RevocationCheckDepth::Chain };
        let expiration = if self.allow_expired { ExpirationPolicy::Ignore } else { ExpirationPolicy::Enforce };
        let options = RevocationOptionsBuilder::new(lists).ok()?;
        Some(options.with_depth(depth).with_expiration_policy(expiration).build())
    }
}

/// What is known of the connection when a certificate is judged.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub side: Side,
    /// The name that was asked for, if the certificate must be good for it.
    pub name: Option<&'a ServerName<'a>>,
    pub now: UnixTime,
}

/// How many certificates of a chain give their times for [`moments`]. webpki follows no more than this many.
const MOMENTS: usize = 8;

/// Times at which an expired chain may have been valid as a whole: where one of its certificates begins or ends. A
/// chain whose certificates were never valid together stays expired.
fn moments(leaf: &X509<'_>, more: &[CertificateDer<'_>]) -> Vec<UnixTime> {
    let others = more.iter().take(MOMENTS).filter_map(|der| X509::parse(der));
    let edges = std::iter::once((leaf.not_after, leaf.not_before))
        .chain(others.map(|it| (it.not_after, it.not_before)))
        .flat_map(|(end, start)| [end, start]);
    edges.filter_map(|time| time.duration_since(SystemTime::UNIX_EPOCH).ok()).map(UnixTime::since_unix_epoch).collect()
}

/// The trust domain of a leaf, if it has the form of an X.509-SVID (SPIFFE X.509-SVID, 2 and 5.2): one URI, and no
/// right to sign certificates.
fn trust_domain<'a>(leaf: &X509<'_>, alt_names: &[AltName<'a>]) -> Option<&'a str> {
    let mut uris = alt_names.iter().filter_map(|name| match name {
        AltName::Uri(uri) => Some(*uri),
        _ => None,
    });
    let (Some(uri), None) = (uris.next(), uris.next()) else { return None };
    let (domain, _) = uri.strip_prefix("spiffe://")?.split_once('/')?;
    (!domain.is_empty() && !leaf.may_sign_certificates()).then_some(domain)
}

/// The certificate must have one of these names.
fn want_one_of(wanted: &[String], leaf: &CertificateDer<'_>) -> Result<(), Error> {
    let parsed = X509::parse(leaf).ok_or(CertificateError::BadEncoding)?;
    let names = names::of(&parsed);
    match names.iter().any(|name| wanted.iter().any(|wanted| names::is(name, wanted))) {
        true => Ok(()),
        false => Err(NotValidForName { wanted: wanted.to_vec(), names: shown(&names) }.into()),
    }
}

fn shown(names: &[AltName<'_>]) -> Vec<String> {
    names.iter().map(ToString::to_string).collect()
}

fn good_for(name: &ServerName<'_>, alt_names: &[AltName<'_>]) -> bool {
    alt_names.iter().any(|it| match (name, it) {
        (ServerName::DnsName(wanted), AltName::Dns(pattern)) => names::covers(pattern, wanted.as_ref()),
        (ServerName::IpAddress(wanted), AltName::Ip(address)) => std::net::IpAddr::from(*wanted) == *address,
        _ => false,
    })
}

fn certificate_error(error: webpki::Error) -> Error {
    match error {
        webpki::Error::BadDer | webpki::Error::BadDerTime | webpki::Error::TrailingData(_) => {
            CertificateError::BadEncoding
        }
        webpki::Error::CertExpired { .. } => CertificateError::Expired,
        webpki::Error::CertNotValidYet { .. } => CertificateError::NotValidYet,
        webpki::Error::CertRevoked => CertificateError::Revoked,
        webpki::Error::CrlExpired { .. } => CertificateError::ExpiredRevocationList,
        webpki::Error::UnknownRevocationStatus => CertificateError::UnknownRevocationStatus,
        webpki::Error::UnknownIssuer => CertificateError::UnknownIssuer,
        webpki::Error::InvalidSignatureForPublicKey => CertificateError::BadSignature,
        webpki::Error::RequiredEkuNotFoundContext(_) => CertificateError::InvalidPurpose,
        other => CertificateError::Other(OtherError(Arc::new(other))),
    }
    .into()
}

/// What a server does with the certificates of clients.
#[derive(Debug)]
pub(crate) struct ClientRules {
    /// None: any certificate is good.
    pub rules: Option<Arc<Rules>>,
    pub mandatory: bool,
    pub subjects: Vec<DistinguishedName>,
    pub algorithms: WebPkiSupportedAlgorithms,
}

impl ClientCertVerifier for ClientRules {
    fn client_auth_mandatory(&self) -> bool {
        self.mandatory
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.subjects
    }

    fn verify_client_cert(
        &self,
        leaf: &CertificateDer<'_>,
        more: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        if let Some(rules) = &self.rules {
            rules.admit(leaf, more, Asked { side: Side::Client, name: None, now })?;
        }
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// What a client does with the certificate of a server.
#[derive(Debug)]
pub(crate) struct ServerRules {
    /// None: any certificate is good.
    pub rules: Option<Arc<Rules>>,
    /// The certificate must be good for the name that was asked for.
    pub verify_name: bool,
    /// The certificate must have one of these besides; empty wants none.
    pub alt_names: Vec<String>,
    pub algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for ServerRules {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        more: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if let Some(rules) = &self.rules {
            let name = self.verify_name.then_some(server_name);
            rules.admit(leaf, more, Asked { side: Side::Server, name, now })?;
        }
        let accepts_all = self.rules.as_ref().is_some_and(|rules| rules.accept_untrusted);
        if !accepts_all && !self.alt_names.is_empty() {
            want_one_of(&self.alt_names, leaf)?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
