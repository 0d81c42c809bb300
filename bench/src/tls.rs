//! TLS for the bench: certificates made for the run, and two kinds of clients: one that checks what it is shown, for
//! answers that must be right, and one that believes everything, for load.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{CertificateParams, DnType, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_RSA_SHA256, RsaKeySize};
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use crate::error::{Error, Result};
use crate::shape::{Http, Key};

/// The host name in the certificates.
const NAME: &str = "localhost";

/// The name that clients ask for.
pub fn server_name() -> Result<ServerName<'static>> {
    ServerName::try_from(NAME).map_err(other("naming the server"))
}

/// The certificates of a run.
pub struct Certificates {
    ecdsa: Certificate,
    rsa: Certificate,
}

impl Certificates {
    /// Makes them and writes their files into the directory.
    pub fn make(directory: &Path) -> Result<Self> {
        Ok(Self {
            ecdsa: Certificate::make(directory, "ecdsa", Key::Ecdsa)?,
            rsa: Certificate::make(directory, "rsa", Key::Rsa)?,
        })
    }

    pub fn of(&self, key: Key) -> &Certificate {
        match key {
            Key::Ecdsa => &self.ecdsa,
            Key::Rsa => &self.rsa,
        }
    }
}

/// A certificate that signs itself.
#[derive(Debug)]
pub struct Certificate {
    pub chain: PathBuf,
    pub key: PathBuf,
    /// Chain and key in one file, as HAProxy reads them.
    pub both: PathBuf,
    der: CertificateDer<'static>,
}

impl Certificate {
    /// Makes one and writes its files, which begin with `name`.
    pub fn make(directory: &Path, name: &str, key: Key) -> Result<Self> {
        let pair = match key {
            Key::Ecdsa => KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256),
            Key::Rsa => KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048),
        };
        let pair = pair.map_err(other("making a key"))?;
        let mut params = CertificateParams::new([NAME.to_owned()]).map_err(other("naming a certificate"))?;
        params.distinguished_name.push(DnType::CommonName, NAME);
        let signed = params.self_signed(&pair).map_err(other("signing a certificate"))?;
        let (chain_pem, key_pem) = (pem("CERTIFICATE", signed.der()), pem("PRIVATE KEY", pair.serialized_der()));
        let write = |end: &str, content: &str| {
            let path = directory.join(format!("{name}.{end}"));
            fs::write(&path, content).map_err(Error::io(format!("writing {}", path.display())))?;
            Ok::<_, Error>(path)
        };
        Ok(Self {
            chain: write("crt", &chain_pem)?,
            key: write("key", &key_pem)?,
            both: write("pem", &format!("{chain_pem}{key_pem}"))?,
            der: signed.der().clone(),
        })
    }

    /// A client that trusts this certificate and no other.
    pub fn checking_client(&self, http: Http) -> Result<Arc<ClientConfig>> {
        let mut roots = RootCertStore::empty();
        roots.add(self.der.clone()).map_err(other("trusting a certificate"))?;
        let mut config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(other("choosing versions of TLS"))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![http.alpn().into()];
        Ok(Arc::new(config))
    }
}

/// A client for load: TLS 1.3 and HTTP/1.1 only. It proves nothing to itself, because a client that checks signatures
/// spends more on a handshake than the proxy; and it offers X25519 alone, which every peer has, because otherwise they
/// would be compared at key exchanges of different strength.
pub fn believing_client(resumption: Resumption) -> Result<ClientConfig> {
    let provider = CryptoProvider { kx_groups: vec![aws_lc_rs::kx_group::X25519], ..aws_lc_rs::default_provider() };
    let mut config = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(other("choosing versions of TLS"))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Believer))
        .with_no_client_auth();
    config.alpn_protocols = vec![Http::One.alpn().into()];
    config.resumption = resumption;
    Ok(config)
}

#[derive(Debug)]
struct Believer;

impl ServerCertVerifier for Believer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> std::result::Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    /// Those of the two kinds of keys.
    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ECDSA_NISTP256_SHA256, SignatureScheme::RSA_PSS_SHA256]
    }
}

/// RFC 7468 section 2.
fn pem(label: &str, der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let mut lines = String::new();
    for line in text.as_bytes().chunks(64) {
        lines.extend(line.iter().map(|&byte| char::from(byte)));
        lines.push('\n');
    }
    format!("-----BEGIN {label}-----\n{lines}-----END {label}-----\n")
}

fn other<E: Into<Box<dyn std::error::Error + Send + Sync>>>(doing: &'static str) -> impl FnOnce(E) -> Error {
    move |cause| Error::io(doing)(io::Error::other(cause))
}

#[cfg(test)]
pub mod test_support {
    //! A server for tests of the clients.

    use super::*;
    use rustls::pki_types::PrivateKeyDer;
    use rustls::pki_types::pem::PemObject;
    use rustls::{ServerConfig, ServerConnection, StreamOwned};
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::thread;

    /// Answers one request on each connection over TLS 1.3, with a body of two bytes; `tickets` for each connection.
    /// Returns its port.
    pub fn serve(certificate: &Certificate, tickets: usize) -> u16 {
        let key = PrivateKeyDer::from_pem_file(&certificate.key).unwrap();
        let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der.clone()], key)
            .unwrap();
        config.alpn_protocols = vec![Http::One.alpn().into()];
        config.send_tls13_tickets = tickets;
        let config = Arc::new(config);
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                let mut stream = StreamOwned::new(ServerConnection::new(config.clone()).unwrap(), socket);
                thread::spawn(move || {
                    let mut request = [0; 1024];
                    if stream.read(&mut request).is_ok_and(|received| received > 0) {
                        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
                        let _ = stream.flush();
                        // Until the client closes.
                        let _ = stream.read(&mut request);
                    }
                });
            }
        });
        port
    }

    /// A certificate in a directory of its own, which is removed at once: what the server needs is in memory.
    pub fn server(name: &str, key: Key, tickets: usize) -> (Certificate, u16) {
        let directory = std::env::temp_dir().join(format!("postrider-bench-tls-{name}-{}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        let certificate = Certificate::make(&directory, name, key).unwrap();
        let port = serve(&certificate, tickets);
        fs::remove_dir_all(&directory).unwrap();
        (certificate, port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::{Place, Probe, ask};

    #[test]
    fn a_checking_client_takes_its_own_certificate_and_refuses_another() {
        let (shown, port) = test_support::server("shown", Key::Ecdsa, 0);
        let (other, _) = test_support::server("other", Key::Rsa, 0);
        let probe = Probe::get("/", 2);
        let place = |certificate: &Certificate| Place {
            port,
            http: Http::One,
            tls: Some(certificate.checking_client(Http::One).unwrap()),
        };
        assert_eq!(ask(&place(&shown), probe).unwrap(), (200, 2));
        assert!(ask(&place(&other), probe).is_err());
    }

    #[test]
    fn pem_lines_have_64_characters_at_most() {
        let text = pem("X", &[0xff; 100]);
        let widths: Vec<usize> = text.lines().map(str::len).collect();
        assert_eq!(widths, [17, 64, 64, 8, 15], "{text}");
    }
}
