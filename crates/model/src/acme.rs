//! Certificates that the proxy gets itself.

use std::path::PathBuf;
use std::time::Duration;

/// A certificate authority that speaks ACME (RFC 8555), and what is wanted of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Acme {
    /// An `https` URL.
    pub directory: String,
    /// Roots in PEM by which the directory is trusted; `None` is the system's.
    pub directory_ca: Option<PathBuf>,
    /// `mailto:` URLs.
    pub contacts: Vec<String>,
    pub state: PathBuf,
    /// After a first failure; it doubles with each.
    pub retry: Duration,
    /// The names of each: never empty, lower-case host names without wildcards; first names are unique.
    pub certificates: Vec<Vec<String>>,
    pub challenge: AcmeChallenge,
}

/// How an authority is shown that a name is ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AcmeChallenge {
    /// A document on port 80 (RFC 8555 section 8.3).
    #[default]
    Http01,
    /// A certificate on port 443 (RFC 8737).
    TlsAlpn01,
}

impl Acme {
    /// Where the certificate with this first name is stored: PEM, key and chain in one file.
    pub fn certificate_file(&self, first_name: &str) -> PathBuf {
        self.state.join("certificates").join(format!("{first_name}.pem"))
    }

    /// What is shown to an authority that asks for this name by TLS-ALPN-01: key and certificate in one file.
    pub fn challenge_file(&self, name: &str) -> PathBuf {
        self.state.join("challenges").join(format!("{name}.pem"))
    }

    /// The Unix socket on which challenges are answered.
    pub fn challenge_socket(&self) -> PathBuf {
        self.state.join("challenge.sock")
    }
}
