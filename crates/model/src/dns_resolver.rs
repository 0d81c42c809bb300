//! Who is asked for the addresses of names.

use std::net::SocketAddr;
use std::time::Duration;

/// How names are resolved.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum DnsResolver {
    /// A client of DNS, which reads the system's file of hosts first.
    Client(DnsClient),
    /// The system's own function, `getaddrinfo`.
    System {
        /// Further calls after one that fails.
        retries: u32,
    },
}

/// Which servers are asked, and how.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DnsClient {
    /// In the order in which they are asked; empty means those of the system.
    pub servers: Vec<SocketAddr>,
    /// They are asked only where the system names none.
    pub servers_are_fallback: bool,
    /// Every query goes over TCP; otherwise only those whose answer does not fit a datagram.
    pub tcp_only: bool,
    /// Names of few labels are tried with the system's search domains.
    pub searches: bool,
    /// Answers leave out addresses of a family that no interface but loopback has.
    pub routable_only: bool,
    /// For one query to one server.
    pub timeout: Duration,
    /// Positive; how often a query is sent.
    pub tries: u32,
    /// Queries begin with one server after the other.
    pub rotates: bool,
    /// How long a datagram may be that answers (EDNS, RFC 6891 section 6.2.3).
    pub datagram_bytes: Option<u16>,
    /// Answers are kept for as long as they say, and at most so long; `None` asks each time.
    pub keeps_answers: Option<Duration>,
}

impl Default for DnsClient {
    /// The system's servers, as Envoy's c-ares asks them where its configuration says nothing.
    fn default() -> Self {
        DnsClient {
            servers: Vec::new(),
            servers_are_fallback: false,
            tcp_only: false,
            searches: true,
            routable_only: false,
            timeout: Duration::from_secs(5),
            tries: 4,
            rotates: false,
            datagram_bytes: None,
            keeps_answers: None,
        }
    }
}

impl Default for DnsResolver {
    fn default() -> Self {
        DnsResolver::Client(DnsClient::default())
    }
}
