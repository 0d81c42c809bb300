//! For whom a connection to an upstream is made, where that decides who else may use it.

use std::net::SocketAddr;

use postrider_http::{HeaderName, RequestHead, split_port};

/// Connections of one party serve no other.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Party {
    /// The host of the request, whose certificate the upstream has to show.
    pub(crate) host: Option<String>,
    /// Both ends of the client's connection, source first, which the upstream is told by the PROXY protocol.
    pub(crate) ends: Option<(SocketAddr, SocketAddr)>,
}

/// What makes parties of a cluster's requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Parting {
    pub(crate) by_host: bool,
    /// Where the host stands, if it is there; otherwise it is that of `:authority`.
    pub(crate) header: Option<HeaderName>,
    pub(crate) by_ends: bool,
}

impl Parting {
    /// The party of a request, or of a connection without one.
    #[cold]
    pub(crate) fn of(&self, request: Option<&RequestHead>, ends: Option<(SocketAddr, SocketAddr)>) -> Box<Party> {
        let host = request.filter(|_| self.by_host).map(|request| self.host_of(request));
        Box::new(Party { host, ends: ends.filter(|_| self.by_ends) })
    }

    /// In lower case, without a port.
    fn host_of(&self, request: &RequestHead) -> String {
        let named = self.header.as_ref().and_then(|header| request.fields.find(header));
        let authority = named.filter(|named| !named.is_empty()).unwrap_or(request.authority());
        let (host, _) = split_port(authority);
        String::from_utf8_lossy(host).to_ascii_lowercase()
    }
}
