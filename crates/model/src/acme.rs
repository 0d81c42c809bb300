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
}

impl Acme {
    /// Where the certificate with this first name is stored: PEM, key and chain in one file.
    pub fn certificate_file(&self, first_name: &str) -> PathBuf {
        self.state.join("certificates").join(format!("{first_name}.pem"))
    }

    /// The Unix socket on which challenges are answered.
    pub fn challenge_socket(&self) -> PathBuf {
        self.state.join("challenge.sock")
    }
}
