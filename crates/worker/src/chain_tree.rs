//! What trees that choose filter chains look at (`Listener.filter_chain_matcher`).

use std::borrow::Cow;
use std::net::SocketAddr;

use postrider_model::{Expression, Input, Inputs, MetadataMatch, Unavailable, Value};

use crate::filter_chain::{Peer, is_local};

/// A connection without a chain.
pub(crate) struct Newcomer<'n> {
    pub(crate) peer: &'n Peer<'n>,
    /// What was noted of it in the filter state.
    pub(crate) state: &'n [(String, Value)],
}

impl Inputs for Newcomer<'_> {
    fn value<'v>(&'v self, input: &'v Input) -> Result<Option<Cow<'v, str>>, Unavailable> {
        let Peer { local, remote, direct_remote, greeting } = self.peer;
        let ip = |address: &Option<SocketAddr>| Some(Cow::Owned(address.as_ref()?.ip().to_string()));
        let port = |address: &Option<SocketAddr>| Some(Cow::Owned(address.as_ref()?.port().to_string()));
        let ends = || (local.map(|address| address.ip()), remote.map(|address| address.ip()));
        Ok(match input {
            Input::DestinationIp => ip(local),
            Input::DestinationPort => port(local),
            Input::SourceIp => ip(remote),
            Input::SourcePort => port(remote),
            Input::DirectSourceIp => ip(direct_remote),
            Input::SourceType => {
                let (local, remote) = ends();
                is_local(local, remote).then_some(Cow::Borrowed("local"))
            }
            Input::ServerName => greeting.server_name.as_deref().map(Cow::Borrowed),
            Input::TransportProtocol => Some(Cow::Borrowed(if greeting.tls { "tls" } else { "raw_buffer" })),
            Input::ApplicationProtocol => quoted(&greeting.protocols).map(Cow::Owned),
            Input::FilterState(key) => match self.state.iter().find(|(known, _)| known == key) {
                Some((_, Value::String(text))) => Some(Cow::Borrowed(text)),
                _ => None,
            },
            Input::Fixed(text) => text.as_deref().map(Cow::Borrowed),
            // Trees that look at anything else were refused.
            _ => None,
        })
    }

    fn holds(&self, _expression: &Expression) -> bool {
        false
    }

    fn notes(&self, _condition: &MetadataMatch) -> bool {
        false
    }
}

/// What a client offers as Envoy shows it: `'h2','http/1.1'`.
fn quoted(protocols: &[Vec<u8>]) -> Option<String> {
    let each: Vec<String> =
        protocols.iter().map(|protocol| format!("'{}'", String::from_utf8_lossy(protocol))).collect();
    (!each.is_empty()).then(|| each.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::greeting::Greeting;

    #[test]
    fn inputs_are_written_as_in_envoy() {
        let greeting = Greeting {
            tls: true,
            server_name: Some("a.test".into()),
            protocols: vec![b"h2".to_vec(), b"http/1.1".to_vec()],
            ..Greeting::default()
        };
        let peer = Peer {
            local: "10.0.0.1:443".parse().ok(),
            remote: "[2001:db8::1]:5".parse().ok(),
            direct_remote: "127.0.0.1:9".parse().ok(),
            greeting: &greeting,
        };
        let state = [("key".to_owned(), Value::String("noted".into()))];
        let newcomer = Newcomer { peer: &peer, state: &state };
        for (input, expected) in [
            (Input::DestinationIp, Some("10.0.0.1")),
            (Input::DestinationPort, Some("443")),
            (Input::SourceIp, Some("2001:db8::1")),
            (Input::SourcePort, Some("5")),
            (Input::DirectSourceIp, Some("127.0.0.1")),
            (Input::SourceType, None),
            (Input::ServerName, Some("a.test")),
            (Input::TransportProtocol, Some("tls")),
            (Input::ApplicationProtocol, Some("'h2','http/1.1'")),
            (Input::FilterState("key".into()), Some("noted")),
            (Input::FilterState("other".into()), None),
        ] {
            assert_eq!(newcomer.value(&input).unwrap().as_deref(), expected, "{input:?}");
        }
    }
}
