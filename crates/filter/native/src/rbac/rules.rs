//! Rules: who may do what, and whether a request is one of those.

use std::net::SocketAddr;
use std::ops::Range;

use postrider_filter_api::cel::{self, Facts};
use postrider_filter_api::{RouteFacts, Stream, StreamInfo, TlsSession};
use postrider_http::RequestHead;
use postrider_model::{
    CertificatePart, Cidr, Expression, HeaderMatch, MatchTree, Regex, StateCondition, StringMatch, Value,
};

use crate::request_parts::{has_path, header};
use postrider_model::MetadataMatch;

/// What decides.
#[derive(Debug)]
pub(super) enum Rules {
    /// Policies and what it means when one of them matches.
    Policies {
        action: Verb,
        /// Sorted by name: the first that matches counts.
        policies: Vec<Policy>,
    },
    /// A tree that leads to a verdict; who is led nowhere is turned away.
    Tree(Tree),
}

#[derive(Debug)]
pub(super) struct Tree {
    tree: MatchTree<Verdict>,
    /// What verdicts are called, each once.
    names: Vec<String>,
    /// Some verdict only logs.
    logs: bool,
}

/// A leaf of a tree.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Verdict {
    pub(super) name: String,
    pub(super) action: Verb,
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
    /// Must be true beside them.
    pub(super) condition: Option<Expression>,
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
    Verified(Option<(NameOf, StringMatch)>),
    FilterState(String, StateCondition),
}

/// Which of the names of a certificate.
#[derive(Debug)]
pub(super) enum NameOf {
    Part(CertificatePart),
    /// Of a kind of their own, by its object identifier.
    Kind(String),
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
    pub(super) weighted: Option<usize>,
    pub(super) server_name: Option<&'a str>,
}

/// What the rules say about a subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ruling<'r> {
    pub(super) allowed: bool,
    /// The policy that matched, by its place and name.
    pub(super) policy: Option<(usize, &'r str)>,
    /// What logs are told, where rules only log.
    pub(super) hint: Option<bool>,
}

impl<'a> Subject<'a> {
    pub(super) fn of(stream: &'a Stream<'_>) -> Subject<'a> {
        let server_name = stream.info.tls.as_ref().and_then(|tls| tls.server_name.as_deref());
        Subject {
            request: Some(stream.request),
            info: stream.info,
            route: stream.route,
            weighted: stream.weighted,
            server_name,
        }
    }

    fn facts(self) -> Facts<'a> {
        let Subject { request, info, route, weighted, server_name } = self;
        Facts { request, response: None, trailers: None, info, route, weighted, server_name }
    }
}

impl Rules {
    pub(super) fn judge(&self, subject: Subject<'_>) -> Ruling<'_> {
        let (action, policies) = match self {
            Rules::Policies { action, policies } => (*action, policies),
            Rules::Tree(tree) => return tree.judge(subject),
        };
        let found = policies.iter().enumerate().find(|(_, policy)| policy.matches(subject));
        let allowed = match action {
            Verb::Allow => found.is_some(),
            Verb::Deny => found.is_none(),
            Verb::Log => true,
        };
        let hint = (action == Verb::Log).then_some(found.is_some());
        Ruling { allowed, policy: found.map(|(index, policy)| (index, policy.name.as_str())), hint }
    }

    /// What is counted by itself, in the order of [`Ruling::policy`].
    pub(super) fn names(&self) -> Vec<&str> {
        match self {
            Rules::Policies { policies, .. } => policies.iter().map(|policy| policy.name.as_str()).collect(),
            Rules::Tree(tree) => tree.names.iter().map(String::as_str).collect(),
        }
    }
}

impl Tree {
    pub(super) fn new(tree: MatchTree<Verdict>) -> Tree {
        let mut names: Vec<String> = tree.actions().into_iter().map(|verdict| verdict.name.clone()).collect();
        names.sort();
        names.dedup();
        let logs = tree.actions().into_iter().any(|verdict| verdict.action == Verb::Log);
        Tree { tree, names, logs }
    }

    fn judge(&self, subject: Subject<'_>) -> Ruling<'_> {
        let found = self.tree.find(&subject.facts());
        let place = |verdict: &Verdict| self.names.binary_search(&verdict.name).unwrap_or_default();
        Ruling {
            allowed: found.is_some_and(|verdict| verdict.action != Verb::Deny),
            policy: found.map(|verdict| (place(verdict), verdict.name.as_str())),
            hint: found.filter(|_| self.logs).map(|verdict| verdict.action == Verb::Log),
        }
    }
}

impl Policy {
    fn matches(&self, subject: Subject<'_>) -> bool {
        self.permissions.matches(subject)
            && self.principals.matches(subject)
            && self.condition.as_ref().is_none_or(|condition| cel::is_true(condition, &subject.facts()))
    }
}

impl Rule {
    fn matches(&self, subject: Subject<'_>) -> bool {
        let Subject { request, info, route, server_name, .. } = subject;
        match self {
            Rule::Always => true,
            Rule::All(rules) => rules.iter().all(|rule| rule.matches(subject)),
            Rule::Any(rules) => rules.iter().any(|rule| rule.matches(subject)),
            Rule::Not(rule) => !rule.matches(subject),
            Rule::Header(rule) => request.is_some_and(|request| rule.matches(&header(request, &rule.name))),
            Rule::Path(rule) => request.is_some_and(|request| has_path(request) && rule.matches(request.path_only())),
            Rule::Template(rule) => {
                request.is_some_and(|request| has_path(request) && rule.is_match(request.path_only()))
            }
            Rule::Address(place, range) => address(*place, info).is_some_and(|found| range.contains(found.ip())),
            Rule::Port(range) => info.downstream_local.is_some_and(|local| range.contains(&u32::from(local.port()))),
            Rule::Metadata(Source::Dynamic, rule) => rule.matches(&info.metadata),
            Rule::Metadata(Source::Route, rule) => route.is_some_and(|route| rule.matches(&route.metadata)),
            Rule::ServerName(rule) => rule.matches(server_name.unwrap_or_default()),
            Rule::Authenticated(name) => info.tls.as_ref().is_some_and(|tls| is_called(tls, name.as_ref())),
            Rule::Verified(name) => info.tls.as_ref().is_some_and(|tls| {
                tls.peer.as_ref().is_some_and(|peer| peer.is_verified())
                    && name.as_ref().is_none_or(|(name, rule)| match name {
                        NameOf::Part(part) => has(tls, *part, rule),
                        NameOf::Kind(oid) => has_of_kind(tls, oid, rule),
                    })
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

fn has_of_kind(tls: &TlsSession, oid: &str, rule: &StringMatch) -> bool {
    let kinds = tls.of_peer(CertificatePart::OtherNameKinds);
    let names = tls.of_peer(CertificatePart::OtherNames);
    kinds.iter().zip(&names).any(|(kind, name)| kind == oid && rule.matches(name))
}

fn address(place: Place, info: &StreamInfo) -> Option<SocketAddr> {
    match place {
        Place::Destination => info.downstream_local,
        Place::Source => info.downstream_connection_remote,
        Place::Direct => info.downstream_direct_remote,
        Place::Remote => info.downstream_remote,
    }
}
