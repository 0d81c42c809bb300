//! Authorities, contexts and connections for the tests.

use std::io::{Error, ErrorKind};
use std::path::Path;
use std::sync::Arc;

use postrider_model::{
    Certificate, Data, DownstreamTls, OcspPolicy, Origin, Roots, SessionTickets, TlsCommon, UpstreamTls, Validation,
};
use postrider_tls::rustls::pki_types::CertificateDer;
use postrider_tls::rustls::server::Acceptor;
use postrider_tls::rustls::{ClientConnection, ServerConnection};
use postrider_tls::{ClientTls, ConnectionFacts, ServerTls, Target, TlsError};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose, SanType};

pub struct Authority {
    pub der: CertificateDer<'static>,
    pub issuer: Issuer<'static, KeyPair>,
    /// What it sends with its leaves: itself, unless it is a root, and those above it.
    above: Vec<CertificateDer<'static>>,
}

pub struct Issued {
    pub chain: Vec<CertificateDer<'static>>,
    pub key: KeyPair,
}

fn authority_params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

impl Authority {
    pub fn root(name: &str) -> Authority {
        let (params, key) = (authority_params(name), KeyPair::generate().unwrap());
        let der = params.self_signed(&key).unwrap().der().clone();
        Authority { der, issuer: Issuer::new(params, key), above: Vec::new() }
    }

    pub fn below(&self, name: &str) -> Authority {
        let (params, key) = (authority_params(name), KeyPair::generate().unwrap());
        let der = params.signed_by(&key, &self.issuer).unwrap().der().clone();
        let above = std::iter::once(der.clone()).chain(self.above.iter().cloned()).collect();
        Authority { der, issuer: Issuer::new(params, key), above }
    }

    /// A leaf for these host names.
    pub fn leaf(&self, hosts: &[&str]) -> Issued {
        self.issue(&rcgen::PKCS_ECDSA_P256_SHA256, |params| {
            params.subject_alt_names = hosts.iter().map(|it| SanType::DnsName((*it).try_into().unwrap())).collect();
        })
    }

    pub fn issue(
        &self,
        algorithm: &'static rcgen::SignatureAlgorithm,
        change: impl FnOnce(&mut CertificateParams),
    ) -> Issued {
        self.issue_with(KeyPair::generate_for(algorithm).unwrap(), change)
    }

    pub fn issue_with(&self, key: KeyPair, change: impl FnOnce(&mut CertificateParams)) -> Issued {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "leaf");
        change(&mut params);
        let leaf = params.signed_by(&key, &self.issuer).unwrap().der().clone();
        Issued { chain: std::iter::once(leaf).chain(self.above.iter().cloned()).collect(), key }
    }

    pub fn pem(&self) -> Data {
        inline(pem("CERTIFICATE", &self.der))
    }
}

impl Issued {
    pub fn model(&self) -> Certificate {
        let chain: String = self.chain.iter().map(|it| pem("CERTIFICATE", it)).collect();
        Certificate {
            chain: inline(chain),
            key: inline(pem("PRIVATE KEY", self.key.serialized_der())),
            password: None,
            ocsp_staple: None,
            name: None,
            origin: origin(),
        }
    }
}

pub fn origin() -> Origin {
    Origin(String::new())
}

pub fn inline(text: impl Into<Vec<u8>>) -> Data {
    Data::Inline(text.into())
}

pub fn pem(label: &str, der: &[u8]) -> String {
    use base64::Engine;
    let body = base64::engine::general_purpose::STANDARD.encode(der);
    let lines: Vec<&str> = body.as_bytes().chunks(64).map(|it| std::str::from_utf8(it).unwrap()).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}

pub fn downstream(certificates: Vec<Certificate>) -> DownstreamTls {
    DownstreamTls {
        common: TlsCommon::default(),
        certificates,
        require_client_certificate: false,
        prefers_client_ciphers: false,
        tickets: SessionTickets::Rotating,
        stateful_resumption: true,
        session_timeout: None,
        ocsp: OcspPolicy::Lenient,
        refuse_unknown_names: false,
        handshake_timeout: None,
        origin: origin(),
    }
}

/// Asks for `a.example`, and accepts any certificate.
pub fn upstream() -> UpstreamTls {
    UpstreamTls {
        common: TlsCommon::default(),
        certificate: None,
        sni: Some("a.example".to_owned()),
        endpoint_sni: false,
        request_sni: false,
        sni_header: None,
        verify_sni: false,
        max_sessions: 0,
        origin: origin(),
    }
}

pub fn validation(roots: Roots) -> Validation {
    Validation {
        roots,
        names: Vec::new(),
        key_hashes: Vec::new(),
        certificate_hashes: Vec::new(),
        revocation_list: None,
        max_depth: None,
        revocation_of_leaf_only: false,
        allow_expired: false,
        accept_untrusted: false,
        hides_roots: false,
        name: None,
        origin: origin(),
    }
}

pub fn no_files(_: &Path) -> std::io::Result<Vec<u8>> {
    Err(Error::from(ErrorKind::NotFound))
}

pub fn server(model: &DownstreamTls) -> ServerTls {
    ServerTls::build(model, &mut no_files).unwrap_or_else(|errors| panic!("{errors:?}"))
}

pub fn client(model: &UpstreamTls) -> ClientTls {
    ClientTls::build(model, &mut no_files).unwrap_or_else(|errors| panic!("{errors:?}"))
}

pub fn server_errors(model: &DownstreamTls) -> Vec<TlsError> {
    ServerTls::build(model, &mut no_files).expect_err("built")
}

/// Both ends after a handshake.
#[derive(Debug)]
pub struct Linked {
    pub client: ClientConnection,
    pub server: ServerConnection,
}

impl Linked {
    pub fn facts(&self) -> ConnectionFacts<'_> {
        ConnectionFacts::of(&self.client)
    }

    /// The leaf that the client was shown.
    pub fn leaf(&self) -> &CertificateDer<'static> {
        &self.client.peer_certificates().unwrap()[0]
    }
}

/// What each side says of a handshake that failed.
#[derive(Debug)]
pub struct Failed {
    pub client: Option<String>,
    pub server: Option<String>,
}

impl Failed {
    pub fn text(&self) -> String {
        format!("client: {:?}, server: {:?}", self.client, self.server)
    }
}

pub fn link(server: &ServerTls, client: &ClientTls) -> Result<Linked, Failed> {
    link_to(server, client, &Target::default())
}

pub fn link_to(server: &ServerTls, client: &ClientTls, target: &Target<'_>) -> Result<Linked, Failed> {
    link_connection(server, client.connection(target).unwrap())
}

pub fn link_connection(tls: &ServerTls, mut client: ClientConnection) -> Result<Linked, Failed> {
    let mut acceptor = Acceptor::default();
    let accepted = loop {
        let mut bytes = Vec::new();
        client.write_tls(&mut bytes).unwrap();
        acceptor.read_tls(&mut bytes.as_slice()).unwrap();
        match acceptor.accept() {
            Ok(Some(accepted)) => break accepted,
            Ok(None) => {}
            Err((error, _)) => return Err(Failed { client: None, server: Some(error.to_string()) }),
        }
    };
    let config: Arc<_> = tls.config_for(&accepted.client_hello(), None, None).clone();
    let mut server = match accepted.into_connection(config) {
        Ok(server) => server,
        Err((error, mut alert)) => {
            let mut bytes = Vec::new();
            alert.write_all(&mut bytes).unwrap();
            client.read_tls(&mut bytes.as_slice()).unwrap();
            let client = client.process_new_packets().err().map(|it| it.to_string());
            return Err(Failed { client, server: Some(error.to_string()) });
        }
    };
    let mut failed = Failed { client: None, server: None };
    loop {
        let mut to_server = Vec::new();
        let mut to_client = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut to_server).unwrap();
        }
        while server.wants_write() {
            server.write_tls(&mut to_client).unwrap();
        }
        if to_server.is_empty() && to_client.is_empty() {
            break;
        }
        let (mut to_server, mut to_client) = (to_server.as_slice(), to_client.as_slice());
        while failed.server.is_none() && !to_server.is_empty() {
            server.read_tls(&mut to_server).unwrap();
            failed.server = server.process_new_packets().err().map(|it| it.to_string());
        }
        while failed.client.is_none() && !to_client.is_empty() {
            client.read_tls(&mut to_client).unwrap();
            failed.client = client.process_new_packets().err().map(|it| it.to_string());
        }
    }
    if failed.client.is_some() || failed.server.is_some() {
        return Err(failed);
    }
    assert!(!client.is_handshaking() && !server.is_handshaking());
    Ok(Linked { client, server })
}
