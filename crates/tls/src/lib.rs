//! Everything of TLS that needs no socket: what a configuration says becomes rustls configurations, certificates are
//! chosen and verified, sessions are resumed, and a client's greeting is read before anybody answers it.
//!
//! [`ServerTls`] and [`ClientTls`] are built on a control thread, with every error at once, and shared by the workers.
//! [`inspect`] reads a ClientHello for whoever chooses a filter chain; [`ConnectionFacts`], [`CertificateFacts`] and
//! [`PeerFacts`] are what logs, headers and the admin show of a connection.
//!
//! This crate opens no socket and runs no handshake by itself: rustls does, driven by the worker. Files are read only
//! while something is built, through the function that the caller gives. The one file that is written is a key log.

#![forbid(unsafe_code)]

mod client;
mod connection;
mod der;
mod distinguished;
mod facts;
mod failure;
mod fingerprint;
mod hello;
mod identity;
mod key_log;
mod material;
mod names;
mod ocsp;
mod parameters;
mod resolver;
mod roots;
mod server;
mod sessions;
mod stored;
mod tickets;
mod time;
mod trust_bundles;
mod verify;
mod x509;

pub use client::{ClientTls, ConnectError, Target};
pub use connection::{ConnectionFacts, cipher_name, group_name, version_name};
pub use facts::{CertificateFacts, KeyKind, Names, PeerFacts, peer_facts};
pub use failure::{NotValidForName, handshake_failure, system_failure};
pub use hello::{ClientHello, Inspection, MAX_HELLO, TOO_LARGE, inspect};
pub use ocsp::OcspValidity;
pub use server::ServerTls;
pub use stored::first_certificate;

/// What the rest of the workspace needs of rustls, so that there is one version of it.
pub use rustls;

/// Reads a file that a configuration names. The caller remembers what was read.
pub type ReadFile<'a> = &'a mut dyn FnMut(&std::path::Path) -> std::io::Result<Vec<u8>>;

/// Why TLS could not be set up as configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsError {
    /// Relative to the context, in the model's terms: `certificates[0].key`.
    pub path: String,
    /// A sentence for whoever wrote the configuration.
    pub message: String,
}

impl std::fmt::Display for TlsError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.path, self.message)
    }
}

impl std::error::Error for TlsError {}
