//! Rules: who may do what, and whether a request is one of those.

use std::net::SocketAddr;
use std::ops::Range;

use postrider_filter_api::{RouteFacts, Stream, StreamInfo, TlsSession};
use postrider_http::RequestHead;
use postrider_model::{CertificatePart, Cidr, HeaderMatch, Regex, StringMatch, Value};

use crate::request_parts::header;
use postrider_model::MetadataMatch;

/// Policies and what it means when one of them matches.
#[derive(Debug)]
pub(super) struct Rules {
    pub(super) action: Verb,
    /// Sorted by name: the first that matches counts.
    pub(super) policies: Vec<Policy>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    Allow,
    Deny,
    /// Nobody is turned away; logs learn whether a policy matched.
    Log,
}

#[derive(Debug)]
pub(super) struct Policy {
    pub(super) name: String,
    pub(super) permissions: Rule,
    pub(super) principals: Rule,
}

/// A condition on what is asked for (`Permission`) or on who asks (`Principal`).
#[derive(Debug)]
pub(super) enum Rule {
    Always,
    All(Vec<Rule>),
    Any(Vec<Rule>),
    Not(Box<Rule>),
    Header(HeaderMatch),
    /// The path without query and fragment.
    Path(StringMatch),
    Template(Regex),
    Address(Place, Cidr),
    Port(Range<u32>),
    Metadata(Source, MetadataMatch),
    ServerName(StringMatch),
    /// A TLS connection, and by which name its certificate goes.
    Authenticated(Option<StringMatch>),
    /// A certificate that was found good, and one of its names.
    Verified(Option<(CertificatePart, StringMatch)>),
    FilterState(String, StringMatch),
}

/// Whose address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// The one that was connected to.
    Destination,
    /// The connection's other end, as a PROXY protocol says it.
    Source,
    /// The peer itself.
    Direct,
    /// The client as far as forwarding headers are trusted.
    Remote,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    Dynamic,
    Route,
}

/// What rules look at.
#[derive(Clone, Copy)]
pub(super) struct Subject<'a> {
    /// `None` for a connection, of which nothing was read; rules about requests hold for none.
    pub(super) request: Option<&'a RequestHead>,
    pub(super) info: &'a StreamInfo,
    pub(super) route: Option<&'a RouteFacts>,
    pub(super) server_name: Option<&'a str>,
}

/// What the rules say about a subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ruling<'r> {
    pub(super) allowed: bool,
    /// The policy that matched, by its place and name.
    pub(super) policy: Option<(usize, &'r str)>,
}

impl<'a> Subject<'a> {
    pub(super) fn of(stream: &'a Stream<'_>) -> Subject<'a> {
        let server_name = stream.info.tls.as_ref().and_then(|tls| tls.server_name.as_deref());
        Subject { request: Some(stream.request), info: stream.info, route: stream.route, server_name }
    }
}

impl Rules {
    pub(super) fn judge(&self, subject: Subject<'_>) -> Ruling<'_> {
        let found = self.policies.iter().enumerate().find(|(_, policy)| policy.matches(subject));
        let allowed = match self.action {
            Verb::Allow => found.is_some(),
            Verb::Deny => found.is_none(),
            Verb::Log => true,
        };
        Ruling { allowed, policy: found.map(|(index, policy)| (index, policy.name.as_str())) }
    }
}

impl Policy {
    fn matches(&self, subject: Subject<'_>) -> bool {
        self.permissions.matches(subject) && self.principals.matches(subject)
    }
}

impl Rule {
    fn matches(&self, subject: Subject<'_>) -> bool {
        let Subject { request, info, route, server_name } = subject;
        match self {
            Rule::Always => true,
            Rule::All(rules) => rules.iter().all(|rule| rule.matches(subject)),
            Rule::Any(rules) => rules.iter().any(|rule| rule.matches(subject)),
            Rule::Not(rule) => !rule.matches(subject),
            Rule::Header(rule) => request.is_some_and(|request| {
                let lines: Vec<_> = header(request, &rule.name).into_iter().map(String::from_utf8_lossy).collect();
                rule.matches(&lines.iter().map(|line| &**line).collect::<Vec<_>>())
            }),
            Rule::Path(rule) => request.is_some_and(|request| rule.matches(&path(request))),
            Rule::Template(rule) => request.is_some_and(|request| rule.is_match(&path(request))),
            Rule::Address(place, range) => address(*place, info).is_some_and(|found| range.contains(found.ip())),
            Rule::Port(range) => info.downstream_local.is_some_and(|local| range.contains(&u32::from(local.port()))),
            Rule::Metadata(Source::Dynamic, rule) => rule.matches(&info.metadata),
            Rule::Metadata(Source::Route, rule) => route.is_some_and(|route| rule.matches(&route.metadata)),
            Rule::ServerName(rule) => rule.matches(server_name.unwrap_or_default()),
            Rule::Authenticated(name) => info.tls.as_ref().is_some_and(|tls| is_called(tls, name.as_ref())),
            Rule::Verified(name) => info.tls.as_ref().is_some_and(|tls| {
                tls.peer.as_ref().is_some_and(|peer| peer.is_verified())
                    && name.as_ref().is_none_or(|(part, rule)| has(tls, *part, rule))
            }),
            Rule::FilterState(key, rule) => info.filter_state.iter().any(|(known, value)| match value {
                Value::String(text) => known == key && rule.matches(text),
                _ => false,
            }),
        }
    }
}

/// Whether the peer goes by that name: a URI or DNS name of its certificate, or its subject.
fn is_called(tls: &TlsSession, name: Option<&StringMatch>) -> bool {
    let Some(rule) = name else { return true };
    has(tls, CertificatePart::UriNames, rule)
        || has(tls, CertificatePart::DnsNames, rule)
        // Without a certificate the subject is the empty text.
        || tls.of_peer(CertificatePart::Subject).first().map_or(rule.matches(""), |subject| rule.matches(subject))
}

fn has(tls: &TlsSession, part: CertificatePart, rule: &StringMatch) -> bool {
    tls.of_peer(part).iter().any(|value| rule.matches(value))
}

fn path(request: &RequestHead) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(request.path_only())
}

fn address(place: Place, info: &StreamInfo) -> Option<SocketAddr> {
    match place {
        Place::Destination => info.downstream_local,
        Place::Source => info.downstream_connection_remote,
        Place::Direct => info.downstream_direct_remote,
        Place::Remote => info.downstream_remote,
    }
}
