//! Reads trees. What is not supported is refused where it stands.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Branches, Domains, HashRange, Input, MatchTree, Network, OnMatch, Predicate, PrefixMap, Test};
use crate::{CertificatePart, Cidr, Expression, MetadataMatch, Reading, StringMatch, network, string_match};

/// How deep trees and predicates may stand in each other.
const MAX_DEPTH: usize = 64;

/// Where a tree is asked, which decides on what it may look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MatchContext {
    /// A route is chosen by the head of a request, and by what is noted of it so far.
    Routes,
    /// A cluster is chosen by the head of a request alone.
    Clusters,
    /// A filter judges a request.
    Requests,
    /// A filter judges an answer, and the request that it is to.
    Answers,
    /// A filter judges a connection.
    Connections,
    /// A filter chain is chosen for a connection, of which nothing is known but its ends and what its client said first.
    Newcomers,
}

/// Reads what stands at a leaf, whose type is given by its full name; `None` after an error.
pub type ActionReader<'r, A> = &'r mut dyn FnMut(&mut Reading<'_>, &str) -> Option<A>;

impl<A> MatchTree<A> {
    /// `xds.type.matcher.v3.Matcher`; `None` after an error.
    pub fn read(at: &mut Reading<'_>, context: MatchContext, action: ActionReader<'_, A>) -> Option<MatchTree<A>> {
        tree(at, context, action, 0)
    }
}

fn is_too_deep(at: &mut Reading<'_>, depth: usize) -> bool {
    let too_deep = depth > MAX_DEPTH;
    if too_deep {
        at.wrong(format!("conditions may stand {MAX_DEPTH} deep in each other"));
        at.skip();
    }
    too_deep
}

fn tree<A>(
    at: &mut Reading<'_>,
    context: MatchContext,
    action: ActionReader<'_, A>,
    depth: usize,
) -> Option<MatchTree<A>> {
    if is_too_deep(at, depth) {
        return None;
    }
    let list = at.map("matcher_list", |at| {
        let all = at.each("matchers", |at| {
            let condition = at.map("predicate", |at| predicate(at, context, depth)).flatten();
            if !at.has("predicate") {
                at.error("predicate", "a condition is required");
            }
            Some((condition, required(at, context, action, depth)))
        });
        let all = all.into_iter().flatten().map(|(condition, on_match)| Some((condition?, on_match?)));
        all.collect::<Option<_>>().map(Branches::List)
    });
    let map = at.map("matcher_tree", |at| branches(at, context, action, depth));
    let otherwise = at.map("on_no_match", |at| on_match(at, context, action, depth));
    let branches = match (list, map) {
        (Some(_), Some(_)) => {
            at.wrong("either matcher_list or matcher_tree is wanted");
            None
        }
        (Some(found), None) | (None, Some(found)) => found,
        (None, None) => Some(Branches::None),
    };
    let otherwise = match otherwise {
        Some(on_match) => Some(Box::new(on_match?)),
        None => None,
    };
    Some(MatchTree { branches: branches?, otherwise })
}

fn branches<A>(
    at: &mut Reading<'_>,
    context: MatchContext,
    action: ActionReader<'_, A>,
    depth: usize,
) -> Option<Branches<A>> {
    let input = at.map("input", |at| input(at, context));
    if input.is_none() {
        at.error("input", "what is looked at is required");
    }
    let mut map = |at: &mut Reading<'_>| {
        let entries: Option<Option<HashMap<String, OnMatch<A>>>> = at.map("map", |at| {
            let keys: Vec<String> = at.keys().map(str::to_owned).collect();
            let all: Vec<_> = keys
                .into_iter()
                .map(|key| {
                    let read = at.map(&key, |at| on_match(at, context, action, depth)).flatten();
                    read.map(|on_match| (key, on_match))
                })
                .collect();
            all.into_iter().collect()
        });
        if entries.is_none() {
            at.error("map", "at least one entry is required");
        }
        entries.flatten()
    };
    let exact = at.map("exact_match_map", &mut map);
    let prefix = at.map("prefix_match_map", &mut map);
    let custom = at.map("custom_match", |at| custom_branches(at, context, action, depth));
    if matches!(input, Some(Some(Input::Attributes | Input::Metadata { .. }))) {
        at.error("input", "a map wants an input that is a text: this one goes with a custom_match of a predicate");
    }
    let given = usize::from(exact.is_some()) + usize::from(prefix.is_some()) + usize::from(custom.is_some());
    if given != 1 {
        at.wrong("one of exact_match_map, prefix_match_map and custom_match is wanted");
    }
    let input = input.flatten()?;
    match (exact, prefix, custom) {
        (Some(map), None, None) => Some(Branches::Exact(input, map?)),
        (None, Some(map), None) => Some(Branches::Prefix(input, PrefixMap::new(map?))),
        (None, None, Some(custom)) => Some(match custom? {
            Custom::Networks(all) => Branches::Networks(input, all),
            Custom::Domains(domains) => Branches::Domains(input, domains),
        }),
        _ => None,
    }
}

enum Custom<A> {
    Networks(Vec<Network<A>>),
    Domains(Domains<A>),
}

fn custom_branches<A>(
    at: &mut Reading<'_>,
    context: MatchContext,
    action: ActionReader<'_, A>,
    depth: usize,
) -> Option<Custom<A>> {
    typed(at, |at, kind| match kind {
        "xds.type.matcher.v3.IPMatcher" => networks(at, context, action, depth).map(Custom::Networks),
        "xds.type.matcher.v3.ServerNameMatcher" => domains(at, context, action, depth).map(Custom::Domains),
        _ => unknown(at, kind, "a map of this kind"),
    })
}

fn networks<A>(
    at: &mut Reading<'_>,
    context: MatchContext,
    action: ActionReader<'_, A>,
    depth: usize,
) -> Option<Vec<Network<A>>> {
    let all: Vec<Option<Vec<Network<A>>>> = at.each("range_matchers", |at| {
        let ranges = at.each("ranges", network);
        if ranges.is_empty() {
            at.error("ranges", "at least one is required");
        }
        let exclusive = at.flag("exclusive");
        let on_match = Arc::new(required(at, context, action, depth)?);
        let ranges: Option<Vec<Cidr>> = ranges.into_iter().collect();
        Some(ranges?.into_iter().map(|range| Network { range, on_match: on_match.clone(), exclusive }).collect())
    });
    let mut all: Vec<Network<A>> = all.into_iter().collect::<Option<Vec<_>>>()?.into_iter().flatten().collect();
    all.sort_by_key(|network| std::cmp::Reverse(network.range.length()));
    Some(all)
}

fn domains<A>(
    at: &mut Reading<'_>,
    context: MatchContext,
    action: ActionReader<'_, A>,
    depth: usize,
) -> Option<Domains<A>> {
    let mut domains = Domains { exact: HashMap::new(), below: HashMap::new(), any: None };
    let read = at.each("domain_matchers", |at| {
        let names = at.texts("domains");
        if names.is_empty() {
            at.error("domains", "at least one is required");
        }
        let on_match = Arc::new(required(at, context, action, depth)?);
        for name in names {
            let before = if name == "*" {
                domains.any.replace(on_match.clone())
            } else if let Some(above) = name.strip_prefix("*.") {
                domains.below.insert(above.to_owned(), on_match.clone())
            } else if name.contains('*') {
                at.error("domains", format!("`{name}`: a `*` stands alone or before a dot at the beginning"));
                None
            } else {
                domains.exact.insert(name.clone(), on_match.clone())
            };
            if before.is_some() {
                at.error("domains", format!("`{name}` occurs twice"));
            }
        }
        Some(())
    });
    read.into_iter().collect::<Option<Vec<_>>>()?;
    Some(domains)
}

fn required<A>(
    at: &mut Reading<'_>,
    context: MatchContext,
    action: ActionReader<'_, A>,
    depth: usize,
) -> Option<OnMatch<A>> {
    let read = at.map("on_match", |at| on_match(at, context, action, depth));
    if read.is_none() {
        at.error("on_match", "what a match leads to is required");
    }
    read.flatten()
}

fn on_match<A>(
    at: &mut Reading<'_>,
    context: MatchContext,
    action: ActionReader<'_, A>,
    depth: usize,
) -> Option<OnMatch<A>> {
    if at.flag("keep_matching") {
        at.error("keep_matching", "the first match counts here, as in Envoy: nothing is gathered on the way");
    }
    let inner = at.map("matcher", |at| tree(at, context, action, depth + 1));
    let leaf = at.map("action", |at| typed(at, |at, kind| action(at, kind)));
    match (inner, leaf) {
        (Some(inner), None) => inner.map(OnMatch::Tree),
        (None, Some(leaf)) => leaf.map(OnMatch::Action),
        _ => {
            at.wrong("either a matcher or an action is wanted");
            None
        }
    }
}

fn predicate(at: &mut Reading<'_>, context: MatchContext, depth: usize) -> Option<Predicate> {
    if is_too_deep(at, depth) {
        return None;
    }
    let list = |at: &mut Reading<'_>| -> Option<Vec<Predicate>> {
        let all = at.each("predicate", |at| predicate(at, context, depth + 1));
        if all.len() < 2 {
            at.error("predicate", "at least two are required");
        }
        all.into_iter().collect()
    };
    let mut found = Vec::new();
    found.extend(at.map("single_predicate", |at| single(at, context)));
    found.extend(at.map("or_matcher", |at| list(at).map(Predicate::Any)));
    found.extend(at.map("and_matcher", |at| list(at).map(Predicate::All)));
    found.extend(
        at.map("not_matcher", |at| predicate(at, context, depth + 1).map(|inner| Predicate::Not(Box::new(inner)))),
    );
    match (found.pop(), found.is_empty()) {
        (Some(predicate), true) => predicate,
        _ => {
            at.wrong("one of single_predicate, or_matcher, and_matcher and not_matcher is wanted");
            None
        }
    }
}

fn single(at: &mut Reading<'_>, context: MatchContext) -> Option<Predicate> {
    let input = at.map("input", |at| input(at, context));
    if input.is_none() {
        at.error("input", "what is looked at is required");
    }
    let text = at.map("value_match", string_match).map(|text: Option<StringMatch>| text.map(Test::Text));
    let custom = at.map("custom_match", |at| custom_test(at, input.as_ref().and_then(Option::as_ref)));
    let test = match (text, custom) {
        (Some(test), None) | (None, Some(test)) => test,
        _ => {
            at.wrong("either value_match or custom_match is wanted");
            None
        }
    };
    let (input, test) = (input.flatten()?, test?);
    if matches!(test, Test::Expression(_)) != (input == Input::Attributes) {
        at.wrong("CelMatcher goes with HttpAttributesCelMatchInput, and nothing else does");
        return None;
    }
    if matches!(test, Test::Noted(_)) != matches!(input, Input::Metadata { .. }) {
        at.wrong("DynamicMetadataInput goes with input_matchers.metadata.v3.Metadata, and nothing else does");
        return None;
    }
    Some(Predicate::One(input, test))
}

fn custom_test(at: &mut Reading<'_>, input: Option<&Input>) -> Option<Test> {
    typed(at, |at, kind| match kind {
        "envoy.extensions.matching.input_matchers.ip.v3.Ip" => {
            // Envoy counts addresses that are none by this name.
            at.text("stat_prefix");
            let ranges = at.each("cidr_ranges", network);
            if ranges.is_empty() {
                at.error("cidr_ranges", "at least one is required");
            }
            ranges.into_iter().collect::<Option<_>>().map(Test::Networks)
        }
        "xds.type.matcher.v3.CelMatcher" => {
            at.text("description");
            let read = at.map("expr_match", Expression::read_any);
            if read.is_none() {
                at.error("expr_match", "an expression is required");
            }
            read.flatten().map(|expression| Test::Expression(Box::new(expression)))
        }
        "envoy.extensions.matching.input_matchers.metadata.v3.Metadata" => {
            let (namespace, path) = match input {
                Some(Input::Metadata { namespace, path }) => (namespace.clone(), path.clone()),
                _ => Default::default(),
            };
            MetadataMatch::of(namespace, path, at).map(|condition| Test::Noted(Box::new(condition)))
        }
        "envoy.extensions.matching.input_matchers.consistent_hashing.v3.ConsistentHashing" => {
            let mut number = |key| at.number(key).unwrap_or(0);
            let (threshold, whole, seed) = (number("threshold"), number("modulo"), number("seed"));
            if whole == 0 || threshold > whole {
                at.error("threshold", "it may be as large as modulo, which is more than 0");
            }
            Some(Test::Share(HashRange { seed, whole, part: (threshold, whole) }))
        }
        "envoy.extensions.matching.input_matchers.runtime_fraction.v3.RuntimeFraction" => {
            let seed = at.number("seed").unwrap_or(0);
            let share = at.map("runtime_fraction", |at| {
                // No key of the runtime takes the place of the default.
                at.text("runtime_key");
                at.map("default_value", fraction).unwrap_or((0, 100))
            });
            let (part, whole) = share.unwrap_or_else(|| {
                at.error("runtime_fraction", "a share of all values is required");
                (0, 100)
            });
            Some(Test::Share(HashRange { seed, whole, part: (0, part) }))
        }
        _ => unknown(at, kind, "a condition of this kind"),
    })
}

/// `FractionalPercent`: a part of a whole.
fn fraction(at: &mut Reading<'_>) -> (u64, u64) {
    let part = at.number("numerator").unwrap_or(0);
    let whole = match at.text("denominator").unwrap_or_default() {
        "TEN_THOUSAND" => 10_000,
        "MILLION" => 1_000_000,
        _ => 100,
    };
    (part, whole)
}

fn input(at: &mut Reading<'_>, context: MatchContext) -> Option<Input> {
    const NETWORK: &str = "envoy.extensions.matching.common_inputs.network.v3.";
    const SSL: &str = "envoy.extensions.matching.common_inputs.ssl.v3.";
    typed(at, |at, kind| {
        let input = if let Some(name) = kind.strip_prefix("envoy.type.matcher.v3.") {
            http_input(at, name, kind, context)?
        } else if let Some(name) = kind.strip_prefix(NETWORK) {
            network_input(at, name, kind)?
        } else if let Some(name) = kind.strip_prefix(SSL) {
            Input::Certificate(match name {
                "UriSanInput" => CertificatePart::UriNames,
                "DnsSanInput" => CertificatePart::DnsNames,
                "SubjectInput" => CertificatePart::Subject,
                _ => return unknown(at, kind, "this input"),
            })
        } else {
            match kind {
                "xds.type.matcher.v3.HttpAttributesCelMatchInput" => Input::Attributes,
                "envoy.extensions.matching.common_inputs.environment_variable.v3.Config" => {
                    let name = at.text("name").unwrap_or_default();
                    Input::Fixed(std::env::var(name).ok())
                }
                _ => return unknown(at, kind, "this input"),
            }
        };
        let is_of_requests = matches!(input, Input::RequestHeader(_) | Input::QueryParameter(_) | Input::Attributes);
        let is_not_known_yet = matches!(input, Input::Certificate(_) | Input::Metadata { .. });
        match context {
            MatchContext::Routes | MatchContext::Clusters
                if !matches!(input, Input::RequestHeader(_) | Input::FilterState(_) | Input::Fixed(_)) =>
            {
                let what = if context == MatchContext::Routes { "route" } else { "cluster" };
                at.wrong(format!("a {what} is chosen by request headers, filter state and environment only"));
                None
            }
            MatchContext::Newcomers if is_of_requests || is_not_known_yet => {
                at.wrong("not known yet when a filter chain is chosen: there are inputs about addresses and what the client says first");
                None
            }
            MatchContext::Connections if is_of_requests => {
                at.wrong("this is about requests, and this filter sees connections only");
                None
            }
            _ => Some(input),
        }
    })
}

fn http_input(at: &mut Reading<'_>, name: &str, kind: &str, context: MatchContext) -> Option<Input> {
    let input = match name {
        "HttpRequestHeaderMatchInput" => {
            let name = header_name(at);
            Input::RequestHeader(if name == "host" { ":authority".to_owned() } else { name })
        }
        "HttpRequestQueryParamMatchInput" => {
            let name = at.text("query_param").unwrap_or_default();
            if name.is_empty() {
                at.error("query_param", "the name of a parameter is required");
            }
            Input::QueryParameter(name.to_owned())
        }
        "HttpResponseHeaderMatchInput" => Input::ResponseHeader(header_name(at)),
        "HttpResponseStatusCodeMatchInput" => Input::ResponseStatus,
        "HttpResponseStatusCodeClassMatchInput" => Input::ResponseStatusClass,
        "HttpResponseLocalReplyMatchInput" => Input::LocalReply,
        "HttpRequestTrailerMatchInput" | "HttpResponseTrailerMatchInput" => {
            at.skip();
            at.wrong(format!("{name}: not known yet when this is decided, by a head"));
            return None;
        }
        _ => return unknown(at, kind, "this input"),
    };
    if is_of_answers(&input) && context != MatchContext::Answers {
        at.wrong(format!("{name}: not known yet when this is decided, by the head of a request"));
        return None;
    }
    Some(input)
}

fn is_of_answers(input: &Input) -> bool {
    matches!(input, Input::ResponseHeader(_) | Input::ResponseStatus | Input::ResponseStatusClass | Input::LocalReply)
}

fn header_name(at: &mut Reading<'_>) -> String {
    let name = at.text("header_name").unwrap_or_default().to_ascii_lowercase();
    if name.is_empty() {
        at.error("header_name", "the name of a header is required");
    }
    name
}

fn network_input(at: &mut Reading<'_>, name: &str, kind: &str) -> Option<Input> {
    Some(match name {
        "DestinationIPInput" => Input::DestinationIp,
        "DestinationPortInput" => Input::DestinationPort,
        "SourceIPInput" => Input::SourceIp,
        "SourcePortInput" => Input::SourcePort,
        "DirectSourceIPInput" => Input::DirectSourceIp,
        "SourceTypeInput" => Input::SourceType,
        "ServerNameInput" => Input::ServerName,
        "TransportProtocolInput" => Input::TransportProtocol,
        "ApplicationProtocolInput" => Input::ApplicationProtocol,
        "DynamicMetadataInput" => {
            let namespace = at.text("filter").unwrap_or_default().to_owned();
            let path = at.each("path", |segment| segment.text("key").unwrap_or_default().to_owned());
            if namespace.is_empty() || path.is_empty() || path.iter().any(String::is_empty) {
                at.wrong("filter and path are required, each with a name");
            }
            Input::Metadata { namespace, path }
        }
        "FilterStateInput" => {
            at.refuse("field", "a field of an object of the filter state");
            let key = at.text("key").unwrap_or_default().to_owned();
            if key.is_empty() {
                at.error("key", "the name of a filter state object is required");
            }
            Input::FilterState(key)
        }
        _ => return unknown(at, kind, "this input"),
    })
}

/// `TypedExtensionConfig`.
fn typed<T>(at: &mut Reading<'_>, read: impl FnOnce(&mut Reading<'_>, &str) -> Option<T>) -> Option<T> {
    at.text("name");
    let made = at.map("typed_config", |config| {
        let kind = config.text("@type").unwrap_or_default();
        read(config, kind.rsplit('/').next().unwrap_or_default())
    });
    if made.is_none() {
        at.error("typed_config", "a configuration is required");
    }
    made.flatten()
}

fn unknown<T>(at: &mut Reading<'_>, kind: &str, what: &str) -> Option<T> {
    at.error("@type", format!("{kind}: {what} is not supported by Postrider"));
    at.skip();
    None
}
