//! TLS with clients and with upstreams.

use std::path::PathBuf;
use std::time::Duration;

use crate::{Cidr, Origin, StringMatch};

/// How a filter chain speaks TLS with clients (Envoy's `DownstreamTlsContext`).
#[derive(Debug, Clone, PartialEq)]
pub struct DownstreamTls {
    pub common: TlsCommon,
    /// Never empty. Chosen by server name, then by what kind of key the client can verify.
    pub certificates: Vec<Certificate>,
    pub require_client_certificate: bool,
    /// Of the suites of both sides the first of the client's list is taken.
    pub prefers_client_ciphers: bool,
    pub tickets: SessionTickets,
    /// Sessions that the server keeps, for clients without tickets.
    pub stateful_resumption: bool,
    /// How long a session can be resumed; `None` is the default of two hours.
    pub session_timeout: Option<Duration>,
    pub ocsp: OcspPolicy,
    /// A server name that fits no certificate ends the handshake; otherwise the first certificate answers.
    pub refuse_unknown_names: bool,
    /// From the first byte to the end of the handshake; `None` is no limit.
    pub handshake_timeout: Option<Duration>,
    pub origin: Origin,
}

/// How connections to a cluster speak TLS (Envoy's `UpstreamTlsContext`).
#[derive(Debug, Clone, PartialEq)]
pub struct UpstreamTls {
    pub common: TlsCommon,
    /// Shown to a server that asks; at most one.
    pub certificate: Option<Certificate>,
    /// The name that is asked for; `None` asks for none unless one of the rules below gives one.
    pub sni: Option<String>,
    /// Ask for the endpoint's host name, where it has one.
    pub endpoint_sni: bool,
    /// Ask for the host of the request that opens the connection.
    pub request_sni: bool,
    /// Where that host stands in place of `:authority`; lower case.
    pub sni_header: Option<String>,
    /// The server's certificate must be good for the name that was asked for.
    pub verify_sni: bool,
    /// Sessions remembered for resumption; 0 remembers none.
    pub max_sessions: u32,
    pub origin: Origin,
}

/// What both sides have in common (Envoy's `CommonTlsContext`).
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TlsCommon {
    pub min_version: TlsVersion,
    pub max_version: TlsVersion,
    /// For TLS 1.2, by their IANA names, in order of preference; empty is the safe default. Those of TLS 1.3 are always on.
    pub cipher_suites: Vec<String>,
    /// Key exchange groups by name (`X25519MLKEM768`, `X25519`, `P-256`, `P-384`), in order of preference; empty is the
    /// default, which begins with the first.
    pub groups: Vec<String>,
    /// In order of preference.
    pub alpn: Vec<String>,
    /// `None` accepts any certificate of the other side, and asks a client for none.
    pub validation: Option<Validation>,
    pub key_log: Option<KeyLog>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum TlsVersion {
    /// 1.2 as the lowest, 1.3 as the highest.
    #[default]
    Auto,
    Tls12,
    Tls13,
}

/// A certificate chain and its key.
#[derive(Debug, Clone, PartialEq)]
pub struct Certificate {
    /// PEM; the leaf comes first.
    pub chain: Data,
    /// PEM: PKCS#8, PKCS#1 or SEC1.
    pub key: Data,
    /// For an encrypted key.
    pub password: Option<Data>,
    /// A DER response of the OCSP responder.
    pub ocsp_staple: Option<Data>,
    /// What it is called in statistics, where it has a name.
    pub name: Option<String>,
    pub origin: Origin,
}

/// Bytes that a configuration names.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum Data {
    File(PathBuf),
    Inline(Vec<u8>),
}

/// Keys are data, too: they are never shown.
impl std::fmt::Debug for Data {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Data::File(path) => f.debug_tuple("File").field(path).finish(),
            Data::Inline(bytes) => write!(f, "Inline({} bytes)", bytes.len()),
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub enum SessionTickets {
    /// Keys of our own, shared by the workers and changed from time to time.
    Rotating,
    /// 80 bytes each. The first encrypts, all decrypt.
    Keys(Vec<Data>),
    Off,
}

/// What an OCSP response is to a certificate (Envoy's `OcspStaplePolicy`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OcspPolicy {
    /// Stapled while it is good.
    #[default]
    Lenient,
    /// One that has ended takes the certificate out of use.
    Strict,
    /// A certificate without a good one is out of use.
    Must,
}

/// Which certificates of the other side are good (Envoy's `CertificateValidationContext`).
#[derive(Debug, Clone, PartialEq)]
pub struct Validation {
    pub roots: Roots,
    /// One must fit; empty wants none. Only with roots.
    pub names: Vec<NameMatch>,
    /// SHA-256 of the leaf's public key (DER); one of these or of `certificate_hashes` must fit if there are any.
    pub key_hashes: Vec<[u8; 32]>,
    /// SHA-256 of the leaf (DER).
    pub certificate_hashes: Vec<[u8; 32]>,
    /// PEM.
    pub revocation_list: Option<Data>,
    /// Certificates between the leaf and a root; `None` is no limit of ours.
    pub max_depth: Option<u32>,
    /// Only the leaf is looked up in the revocation list.
    pub revocation_of_leaf_only: bool,
    pub allow_expired: bool,
    /// A certificate that is not good is accepted, and shown as not verified.
    pub accept_untrusted: bool,
    /// Clients are not told which roots are trusted.
    pub hides_roots: bool,
    /// What its roots are called in statistics, where they have a name.
    pub name: Option<String>,
    pub origin: Origin,
}

/// Whom certificates are traced back to.
#[derive(Debug, Clone, PartialEq)]
pub enum Roots {
    /// Certificates are not traced; hashes may still be asked for.
    None,
    /// PEM.
    Pem(Data),
    /// Those of the operating system.
    System,
    /// SPIFFE: each trust domain (the host of the leaf's `spiffe://` URI) has its own, PEM.
    TrustDomains(Vec<(String, Data)>),
    /// The same in one document: a JSON map of SPIFFE trust bundles.
    TrustBundles(Data),
}

/// A condition on one kind of subject alternative name.
#[derive(Debug, Clone, PartialEq)]
pub struct NameMatch {
    pub kind: NameKind,
    pub value: StringMatch,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NameKind {
    /// Exact values compare as host names do: a wildcard in the certificate covers one label.
    Dns,
    Uri,
    Email,
    Ip,
    /// A kind of its own (`otherName`), by its object identifier with dots.
    Other(String),
}

/// Session keys are written to a file, for whoever wants to read captured traffic.
#[derive(Debug, Clone, PartialEq)]
pub struct KeyLog {
    pub path: PathBuf,
    /// Only for connections between these; empty is any.
    pub local: Vec<Cidr>,
    pub remote: Vec<Cidr>,
}

/// A side of the proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    Downstream,
    Upstream,
}

/// Who showed a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ShownBy {
    Peer,
    Us,
}

/// What can be asked of the certificates that one end of a connection showed. Of the first of them, where nothing else
/// is said. Text is what OpenSSL makes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CertificatePart {
    /// RFC 2253: `CN=a,O=b`. So the next.
    Subject,
    Issuer,
    /// Of the subject, each value as it is.
    CommonNames,
    Organizations,
    /// Lower-case hexadecimal, whole bytes. So the fingerprints.
    Serial,
    Sha1,
    Sha256,
    /// RFC 7468.
    Pem,
    /// With everything escaped that would end a header's or a query's value.
    PemUrlEncoded,
    /// Subject alternative names.
    DnsNames,
    UriNames,
    EmailNames,
    IpNames,
    /// Names of a kind of their own, as far as they are text, numbers or identifiers.
    OtherNames,
    /// The object identifiers of their kinds, in the same order.
    OtherNameKinds,
    /// The identifiers of its extensions.
    Extensions,
    /// Of each certificate that was shown, first things first.
    ChainPem,
    /// All of them in one value, escaped as the one is.
    ChainPemUrlEncoded,
    ChainSha1,
    ChainSha256,
    ChainSerials,
    /// Of the certificate that signed the first: one that was shown with it, or a root of the configuration.
    IssuerSha256,
    IssuerSerial,
}
