//! For whom a connection to an upstream is made, where that decides who else may use it.

use std::net::SocketAddr;

use postrider_filter_api::ConnectionWishes;
use postrider_http::{HeaderName, RequestHead, split_port};
use postrider_model::{Tlv, TlvChoice};

/// Connections of one party serve no other.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Party {
    /// The host of the request, whose certificate the upstream has to show.
    pub(crate) host: Option<String>,
    /// Both ends of the client's connection, source first, which the upstream is told by the PROXY protocol.
    pub(crate) ends: Option<(SocketAddr, SocketAddr)>,
    /// What it is told besides.
    pub(crate) tlvs: Vec<Tlv>,
    /// The client's connection, which shares with no other.
    pub(crate) client: Option<u64>,
    /// What filters want of it.
    pub(crate) wishes: ConnectionWishes,
}

/// A client's connection: nothing of it where the proxy asks for itself.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Caller<'c> {
    pub(crate) id: Option<u64>,
    pub(crate) ends: Option<(SocketAddr, SocketAddr)>,
    /// What its PROXY header has for upstreams.
    pub(crate) tlvs: &'c [Tlv],
}

/// What makes parties of a cluster's requests, by the transport of their hosts.
#[derive(Debug)]
pub(crate) struct Partings {
    /// Where the transport is the cluster's own.
    pub(crate) own: Option<Parting>,
    /// Where it is one of the model's others.
    pub(crate) others: Vec<Option<Parting>>,
}

/// What makes parties of requests to hosts with one transport.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Parting {
    pub(crate) by_host: bool,
    /// Where the host stands, if it is there; otherwise it is that of `:authority`.
    pub(crate) header: Option<HeaderName>,
    pub(crate) by_ends: bool,
    /// Which TLVs the upstream is told.
    pub(crate) passed: TlvChoice,
    pub(crate) by_client: bool,
}

impl Parting {
    /// The party of a request, or of a connection without one.
    #[cold]
    pub(crate) fn of(&self, request: Option<&RequestHead>, caller: Caller<'_>) -> Box<Party> {
        let host = request.filter(|_| self.by_host).map(|request| self.host_of(request));
        let (ends, client) = (caller.ends.filter(|_| self.by_ends), caller.id.filter(|_| self.by_client));
        let tlvs = caller.tlvs.iter().filter(|tlv| self.passed.includes(tlv.kind)).cloned().collect();
        Box::new(Party { host, ends, tlvs, client, wishes: ConnectionWishes::default() })
    }

    /// In lower case, without a port.
    fn host_of(&self, request: &RequestHead) -> String {
        let named = self.header.as_ref().and_then(|header| request.fields.find(header));
        let authority = named.filter(|named| !named.is_empty()).unwrap_or(request.authority());
        let (host, _) = split_port(authority);
        String::from_utf8_lossy(host).to_ascii_lowercase()
    }
}
