//! TLS sessions, as formats, headers and filters see them.

use std::cell::OnceCell;
use std::fmt;
use std::time::SystemTime;

use postrider_model::CertificatePart;

use crate::Moment;

/// What the two ends of a connection agreed on, and what they showed each other.
#[derive(Debug, Default)]
pub struct TlsSession {
    /// `TLSv1.3`.
    pub version: &'static str,
    /// As OpenSSL calls it; so the key exchange, which a resumed session may lack.
    pub cipher: &'static str,
    /// As IANA numbers it.
    pub cipher_id: u16,
    pub group: Option<&'static str>,
    /// What the client asked for, lower case.
    pub server_name: Option<String>,
    /// What both agreed on by ALPN.
    pub protocol: Option<String>,
    /// Fingerprints of the client's greeting, where the listener takes them.
    pub ja3: Option<String>,
    pub ja4: Option<String>,
    /// What the other side showed; `None` for a client that showed nothing.
    pub peer: Option<Box<dyn Certificates>>,
    /// What we showed, or would have shown to a server that asked.
    pub local: Option<Box<dyn Certificates>>,
    /// What upstreams are told of the client's certificate: made with the first request that needs it.
    pub forwarded: OnceCell<Forwarded>,
    /// When the client began to be heard, and when both agreed; `None` for upstreams, whose connections tell it.
    pub began: Option<Moment>,
    pub agreed: Option<Moment>,
}

/// How a client began its TLS, where somebody looked. All that is known where it is passed on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hello {
    /// What it asked for, lower case.
    pub server_name: Option<String>,
    pub ja3: Option<String>,
    pub ja4: Option<String>,
}

/// An element of `x-forwarded-client-cert`, in both of its forms.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Forwarded {
    pub text: Vec<u8>,
    pub json: Vec<u8>,
}

/// The certificates that one end of a connection showed, the end's own first. They are taken apart when somebody asks.
pub trait Certificates: fmt::Debug {
    /// Every value of that part, in the certificate's order; none where there is nothing to tell.
    fn values(&self, part: CertificatePart) -> Vec<String>;

    /// From when to when the first is good. `None` when it cannot be read.
    fn validity(&self) -> Option<(SystemTime, SystemTime)>;

    /// Whether it is good by the rules of the configuration. Not where those ask for nothing.
    fn is_verified(&self) -> bool;
}

impl TlsSession {
    /// What the other side's certificate says; nothing without one.
    pub fn of_peer(&self, part: CertificatePart) -> Vec<String> {
        self.peer.as_ref().map(|peer| peer.values(part)).unwrap_or_default()
    }

    /// The same of ours.
    pub fn of_us(&self, part: CertificatePart) -> Vec<String> {
        self.local.as_ref().map(|local| local.values(part)).unwrap_or_default()
    }
}
