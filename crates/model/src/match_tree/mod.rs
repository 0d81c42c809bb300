//! Trees of conditions with something to do at their leaves: `xds.type.matcher.v3.Matcher`.

mod read;

pub use read::{ActionReader, MatchContext};

use std::borrow::Cow;
use std::collections::HashMap;
use std::net::IpAddr;

use crate::{CertificatePart, Cidr, Expression, MetadataMatch, StringMatch, xxh64};

/// A tree whose leaves say `A`.
#[derive(Debug, Clone, PartialEq)]
pub struct MatchTree<A> {
    pub branches: Branches<A>,
    /// Where no branch led anywhere.
    pub otherwise: Option<Box<OnMatch<A>>>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Branches<A> {
    None,
    /// In order: the first that holds and leads somewhere counts.
    List(Vec<(Predicate, OnMatch<A>)>),
    Exact(Input, HashMap<String, OnMatch<A>>),
    /// The longest prefix that leads somewhere counts.
    Prefix(Input, PrefixMap<A>),
    /// The narrowest range that leads somewhere counts.
    Networks(Input, Vec<Network<A>>),
    /// The name itself, else the longest domain above it, else any.
    Domains(Input, Domains<A>),
}

/// What a branch leads to.
#[derive(Debug, Clone, PartialEq)]
pub enum OnMatch<A> {
    Tree(MatchTree<A>),
    Action(A),
}

#[derive(Debug, Clone, PartialEq)]
pub enum Predicate {
    One(Input, Test),
    All(Vec<Predicate>),
    Any(Vec<Predicate>),
    Not(Box<Predicate>),
}

/// What an input must be like; one that is missing is like nothing.
#[derive(Debug, Clone, PartialEq)]
pub enum Test {
    Text(StringMatch),
    Networks(Vec<Cidr>),
    Expression(Box<Expression>),
    Noted(Box<MetadataMatch>),
    Share(HashRange),
}

/// A share of all values: the hash falls into a part of a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HashRange {
    pub seed: u64,
    /// Positive.
    pub whole: u64,
    /// From the first to before the second.
    pub part: (u64, u64),
}

impl HashRange {
    fn holds(&self, value: &str) -> bool {
        let place = xxh64(value.as_bytes(), self.seed) % self.whole.max(1);
        (self.part.0..self.part.1).contains(&place)
    }
}

/// What is looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// The lines of a request header, joined by commas. Lower case.
    RequestHeader(String),
    /// The first parameter of this name in the query.
    QueryParameter(String),
    /// The lines of an answer's header, joined by commas. Lower case.
    ResponseHeader(String),
    ResponseStatus,
    /// `2xx` and the like.
    ResponseStatusClass,
    /// `true` for an answer of the proxy's own, `false` for one of an upstream.
    LocalReply,
    DestinationIp,
    DestinationPort,
    /// The client as far as forwarding headers are trusted; for connections, as a PROXY protocol says it.
    SourceIp,
    SourcePort,
    /// The peer itself.
    DirectSourceIp,
    /// `local` for a peer on this very machine, else nothing.
    SourceType,
    ServerName,
    /// `tls` or `raw_buffer`.
    TransportProtocol,
    /// What was agreed on by ALPN.
    ApplicationProtocol,
    /// The names of the peer's certificate, joined by commas.
    Certificate(CertificatePart),
    /// A value of the dynamic metadata.
    Metadata {
        namespace: String,
        path: Vec<String>,
    },
    FilterState(String),
    /// A variable of the proxy's environment, as it was when the configuration was read.
    Fixed(Option<String>),
    /// All that expressions may look at.
    Attributes,
}

/// Entries by prefixes.
#[derive(Debug, Clone, PartialEq)]
pub struct PrefixMap<A> {
    entries: HashMap<String, OnMatch<A>>,
    /// The lengths that occur, longest first.
    lengths: Vec<usize>,
}

impl<A> PrefixMap<A> {
    pub fn new(entries: HashMap<String, OnMatch<A>>) -> PrefixMap<A> {
        let mut lengths: Vec<usize> = entries.keys().map(String::len).collect();
        lengths.sort_unstable_by(|a, b| b.cmp(a));
        lengths.dedup();
        PrefixMap { entries, lengths }
    }

    /// The entries for prefixes of `text`, longest first.
    fn prefixes_of<'t, 'p>(&'t self, text: &'p str) -> impl Iterator<Item = &'t OnMatch<A>> + use<'t, 'p, A> {
        self.lengths.iter().filter_map(move |length| self.entries.get(text.get(..*length)?))
    }
}

/// A range of addresses.
#[derive(Debug, Clone, PartialEq)]
pub struct Network<A> {
    pub range: Cidr,
    pub on_match: std::sync::Arc<OnMatch<A>>,
    /// Where it leads nowhere, wider ranges are not asked.
    pub exclusive: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Domains<A> {
    exact: HashMap<String, std::sync::Arc<OnMatch<A>>>,
    /// Without `*.`.
    below: HashMap<String, std::sync::Arc<OnMatch<A>>>,
    any: Option<std::sync::Arc<OnMatch<A>>>,
}

impl<A> Domains<A> {
    fn candidates<'t>(&'t self, name: &str) -> impl Iterator<Item = &'t OnMatch<A>> + use<'t, A> {
        let mut found: Vec<&OnMatch<A>> = self.exact.get(name).into_iter().map(|found| &**found).collect();
        let mut rest = name;
        while let Some((_, above)) = rest.split_once('.') {
            found.extend(self.below.get(above).map(|found| &**found));
            rest = above;
        }
        found.extend(self.any.as_deref());
        found.into_iter()
    }
}

/// Nothing can be said about an input, not even that it is missing: a client's certificate where there is no TLS. The whole
/// tree then says nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unavailable;

/// Where inputs come from.
pub trait Inputs {
    /// `Ok(None)`: there is no such thing.
    ///
    /// # Errors
    /// Nothing can be said about it.
    fn value<'v>(&'v self, input: &'v Input) -> Result<Option<Cow<'v, str>>, Unavailable>;

    /// Whether an expression is true.
    fn holds(&self, expression: &Expression) -> bool;

    /// Whether the dynamic metadata has such a value.
    fn notes(&self, condition: &MetadataMatch) -> bool;
}

impl<A> MatchTree<A> {
    /// What the tree says; `None` when nothing in it leads to a leaf.
    pub fn find<'t>(&'t self, inputs: &impl Inputs) -> Option<&'t A> {
        self.walk(inputs).ok().flatten()
    }

    fn walk<'t>(&'t self, inputs: &impl Inputs) -> Result<Option<&'t A>, Unavailable> {
        let found = match &self.branches {
            Branches::None => None,
            Branches::List(all) => listed(all, inputs)?,
            Branches::Exact(input, map) => {
                first(inputs.value(input)?.and_then(|value| map.get(&*value)).into_iter(), inputs)?
            }
            Branches::Prefix(input, map) => match inputs.value(input)? {
                Some(value) => first(map.prefixes_of(&value), inputs)?,
                None => None,
            },
            Branches::Networks(input, all) => match inputs.value(input)?.and_then(|value| value.parse().ok()) {
                Some(address) => narrowest(all, address, inputs)?,
                None => None,
            },
            Branches::Domains(input, domains) => match inputs.value(input)? {
                Some(value) => first(domains.candidates(&value), inputs)?,
                None => None,
            },
        };
        match (found, &self.otherwise) {
            (None, Some(otherwise)) => otherwise.walk(inputs),
            (found, _) => Ok(found),
        }
    }

    /// Everything that the tree may say, in the order of reading.
    pub fn actions(&self) -> Vec<&A> {
        let mut all: Vec<&A> = Vec::new();
        match &self.branches {
            Branches::None => {}
            Branches::List(list) => list.iter().for_each(|(_, on_match)| all.extend(on_match.actions())),
            Branches::Exact(_, map) => map.values().for_each(|on_match| all.extend(on_match.actions())),
            Branches::Prefix(_, map) => map.entries.values().for_each(|on_match| all.extend(on_match.actions())),
            Branches::Networks(_, list) => list.iter().for_each(|network| all.extend(network.on_match.actions())),
            Branches::Domains(_, domains) => {
                let named = domains.exact.values().chain(domains.below.values()).chain(&domains.any);
                named.for_each(|on_match| all.extend(on_match.actions()));
            }
        }
        all.extend(self.otherwise.iter().flat_map(|on_match| on_match.actions()));
        all
    }
}

fn listed<'t, A>(all: &'t [(Predicate, OnMatch<A>)], inputs: &impl Inputs) -> Result<Option<&'t A>, Unavailable> {
    for (predicate, on_match) in all {
        if predicate.holds(inputs)?
            && let Some(found) = on_match.walk(inputs)?
        {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// The first that leads somewhere.
fn first<'t, A: 't>(
    all: impl Iterator<Item = &'t OnMatch<A>>,
    inputs: &impl Inputs,
) -> Result<Option<&'t A>, Unavailable> {
    for on_match in all {
        if let Some(found) = on_match.walk(inputs)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

fn narrowest<'t, A>(
    all: &'t [Network<A>],
    address: IpAddr,
    inputs: &impl Inputs,
) -> Result<Option<&'t A>, Unavailable> {
    for network in all.iter().filter(|network| network.range.contains(address)) {
        let found = network.on_match.walk(inputs)?;
        if found.is_some() || network.exclusive {
            return Ok(found);
        }
    }
    Ok(None)
}

impl<A> OnMatch<A> {
    fn walk<'t>(&'t self, inputs: &impl Inputs) -> Result<Option<&'t A>, Unavailable> {
        match self {
            OnMatch::Action(action) => Ok(Some(action)),
            OnMatch::Tree(tree) => tree.walk(inputs),
        }
    }

    fn actions(&self) -> Vec<&A> {
        match self {
            OnMatch::Action(action) => vec![action],
            OnMatch::Tree(tree) => tree.actions(),
        }
    }
}

impl Predicate {
    fn holds(&self, inputs: &impl Inputs) -> Result<bool, Unavailable> {
        Ok(match self {
            Predicate::One(_, Test::Expression(expression)) => inputs.holds(expression),
            Predicate::One(_, Test::Noted(condition)) => inputs.notes(condition),
            Predicate::One(input, test) => inputs.value(input)?.is_some_and(|value| test.holds(&value)),
            Predicate::All(all) => {
                for each in all {
                    if !each.holds(inputs)? {
                        return Ok(false);
                    }
                }
                true
            }
            Predicate::Any(any) => {
                for each in any {
                    if each.holds(inputs)? {
                        return Ok(true);
                    }
                }
                false
            }
            Predicate::Not(inner) => !inner.holds(inputs)?,
        })
    }
}

impl Test {
    fn holds(&self, value: &str) -> bool {
        match self {
            Test::Text(wanted) => wanted.matches(value),
            Test::Networks(ranges) => {
                value.parse().is_ok_and(|address| ranges.iter().any(|range| range.contains(address)))
            }
            Test::Share(share) => share.holds(value),
            Test::Expression(_) | Test::Noted(_) => false,
        }
    }
}

#[cfg(test)]
mod tests;
