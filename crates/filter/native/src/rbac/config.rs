//! What the filter is configured by: `RBAC` and `RBACPerRoute`.

use std::sync::Arc;
use std::time::Duration;

use postrider_filter_api::ConfigError;
use postrider_model::cel::Allowed;
use postrider_model::{
    CertificatePart, Expression, MatchContext, MatchTree, Reading, StateCondition, StringMatch, Value, header_match,
    network, string_match,
};

use super::rules::{NameOf, Place, Policy, Rule, Rules, Source, Tree, Verb, Verdict};
use postrider_model::{MetadataMatch, PathTemplate};

pub(super) const URI_TEMPLATE: &str = "envoy.extensions.path.match.uri_template.v3.UriTemplateMatchConfig";
pub(super) const MTLS: &str = "envoy.extensions.rbac.principals.mtls_authenticated.v3.Config";

const ACTION: &str = "envoy.config.rbac.v3.Action";

/// How deep rules may stand in rules.
const MAX_DEPTH: usize = 64;

/// Everything of one scope or of the whole filter.
#[derive(Debug, Default)]
pub(super) struct Config {
    /// Who is turned away; `None` is nobody.
    pub(super) enforced: Option<Arc<Rules>>,
    /// Who would be.
    pub(super) shadow: Option<Arc<Rules>>,
    pub(super) enforced_prefix: String,
    pub(super) shadow_prefix: String,
    pub(super) count_policies: bool,
}

pub(super) fn read(value: &Value) -> Result<Config, ConfigError> {
    Reading::all(value, config)
}

/// Without rules of its own a scope turns the filter off.
pub(super) fn read_route(value: &Value) -> Result<Config, ConfigError> {
    Reading::all(value, |at| at.map("rbac", config).unwrap_or_default())
}

/// What the network filter is configured by.
#[derive(Debug)]
pub(super) struct Connections {
    pub(super) rules: Config,
    pub(super) stat_prefix: String,
    pub(super) delay: Option<Duration>,
}

pub(super) fn read_connections(value: &Value) -> Result<Connections, ConfigError> {
    Reading::all(value, |at| {
        // A connection is judged once: what rules look at stays as it is.
        at.text("enforcement_type");
        let stat_prefix = at.text("stat_prefix").unwrap_or_default().to_owned();
        if stat_prefix.is_empty() {
            at.error("stat_prefix", "a name for the statistics is required");
        }
        let about = About::Connections;
        Connections {
            rules: Config {
                enforced: either(at, "rules", "matcher", about),
                shadow: either(at, "shadow_rules", "shadow_matcher", about),
                shadow_prefix: at.text("shadow_rules_stat_prefix").unwrap_or_default().to_owned(),
                ..Config::default()
            },
            stat_prefix,
            delay: at.duration("delay_deny").filter(|delay| !delay.is_zero()),
        }
    })
}

/// What rules may look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum About {
    Requests,
    Connections,
}

/// Rules or a tree.
fn either(at: &mut Reading<'_>, list: &str, tree: &str, about: About) -> Option<Arc<Rules>> {
    let rules = at.map(list, |at| rules(at, about));
    let context = match about {
        About::Requests => MatchContext::Requests,
        About::Connections => MatchContext::Connections,
    };
    let made = at.map(tree, |at| MatchTree::read(at, context, &mut verdict));
    if rules.is_some() && made.is_some() {
        at.error(tree, format!("either {list} or {tree} is wanted: beside a tree, rules would not be asked"));
    }
    made.flatten().map(|tree| Rules::Tree(Tree::new(tree))).or(rules).map(Arc::new)
}

/// `envoy.config.rbac.v3.Action`.
fn verdict(at: &mut Reading<'_>, kind: &str) -> Option<Verdict> {
    if kind != ACTION {
        at.error("@type", format!("{kind}: a verdict is wanted here: {ACTION}"));
        at.skip();
        return None;
    }
    let name = at.text("name").unwrap_or_default().to_owned();
    if name.is_empty() {
        at.error("name", "a name for the verdict is required");
    }
    Some(Verdict { name, action: verb(at) })
}

fn verb(at: &mut Reading<'_>) -> Verb {
    match at.text("action") {
        Some("DENY") => Verb::Deny,
        Some("LOG") => Verb::Log,
        _ => Verb::Allow,
    }
}

fn config(at: &mut Reading<'_>) -> Config {
    Config {
        enforced: either(at, "rules", "matcher", About::Requests),
        shadow: either(at, "shadow_rules", "shadow_matcher", About::Requests),
        enforced_prefix: at.text("rules_stat_prefix").unwrap_or_default().to_owned(),
        shadow_prefix: at.text("shadow_rules_stat_prefix").unwrap_or_default().to_owned(),
        count_policies: at.flag("track_per_rule_stats"),
    }
}

fn rules(at: &mut Reading<'_>, about: About) -> Rules {
    at.refuse("audit_logging_options", "audit loggers");
    let action = verb(at);
    let policies = at.map("policies", |all| {
        let names = all.keys();
        names.filter_map(|name| all.map(name, |at| policy(at, name.to_owned(), about)).flatten()).collect()
    });
    let mut policies: Vec<Policy> = policies.unwrap_or_default();
    policies.sort_by(|a, b| a.name.cmp(&b.name));
    Rules::Policies { action, policies }
}

fn policy(at: &mut Reading<'_>, name: String, about: About) -> Option<Policy> {
    let allowed = at.map("cel_config", Allowed::read).unwrap_or_default();
    let plain = at.map("condition", |at| Expression::read(at, allowed));
    let checked = at.map("checked_condition", |at| Expression::read_noted(at, allowed));
    if plain.is_some() && checked.is_some() {
        at.error("checked_condition", "either condition or checked_condition is wanted");
    }
    let permissions = each(at, "permissions", &|at| permission(at, about, 0));
    let principals = each(at, "principals", &|at| principal(at, about, 0));
    let condition = match plain.or(checked) {
        Some(condition) => Some(condition?),
        None => None,
    };
    Some(Policy { name, permissions: permissions?, principals: principals?, condition })
}

/// Any of a list.
fn each(at: &mut Reading<'_>, key: &str, read: &dyn Fn(&mut Reading<'_>) -> Option<Rule>) -> Option<Rule> {
    let all = at.each(key, read);
    if all.is_empty() {
        at.error(key, "at least one is required");
    }
    all.into_iter().collect::<Option<_>>().map(Rule::Any)
}

fn permission(at: &mut Reading<'_>, about: About, depth: usize) -> Option<Rule> {
    if depth == MAX_DEPTH {
        at.wrong(format!("rules may stand {MAX_DEPTH} deep in each other"));
        at.skip();
        return None;
    }
    at.refuse("matcher", "matchers by extension");
    let mut found = common(at, about);
    let inner = |at: &mut Reading<'_>| permission(at, about, depth + 1);
    found.extend(at.map("and_rules", |set| all(set, "rules", inner)));
    found.extend(at.map("or_rules", |set| any(set, "rules", inner)));
    found.extend(at.map("not_rule", |rule| inner(rule).map(|rule| Rule::Not(Box::new(rule)))));
    found.extend(at.map("destination_ip", network).map(|range| Some(Rule::Address(Place::Destination, range?))));
    found.extend(at.number("destination_port").map(|port| {
        let port = u32::try_from(port).ok()?;
        Some(Rule::Port(port..port.saturating_add(1)))
    }));
    found.extend(at.map("destination_port_range", |range| {
        let (start, end) = (range.whole("start").unwrap_or(0), range.whole("end").unwrap_or(0));
        if !(0..=65536).contains(&start) || !(0..=65536).contains(&end) || start >= end {
            range.wrong(format!("{start} to {end} is no range of ports: start is below end, and end at most 65536"));
        }
        Some(Rule::Port(u32::try_from(start).ok()?..u32::try_from(end).ok()?))
    }));
    found.extend(text_rule(at, "requested_server_name", Rule::ServerName));
    found.extend(at.map("uri_template", |extension| {
        extension.text("name");
        typed(extension, URI_TEMPLATE, |config| {
            let template = config.text("path_template").unwrap_or_default();
            let made = PathTemplate::new(template).map_err(|message| config.error("path_template", message));
            made.ok().map(|template| Rule::Template(template.regex))
        })
    }));
    one(at, found, "a permission is one rule; all of them: `any: true`")
}

fn principal(at: &mut Reading<'_>, about: About, depth: usize) -> Option<Rule> {
    if depth == MAX_DEPTH {
        at.wrong(format!("rules may stand {MAX_DEPTH} deep in each other"));
        at.skip();
        return None;
    }
    let mut found = common(at, about);
    let inner = |at: &mut Reading<'_>| principal(at, about, depth + 1);
    found.extend(at.map("and_ids", |set| all(set, "ids", inner)));
    found.extend(at.map("or_ids", |set| any(set, "ids", inner)));
    found.extend(at.map("not_id", |rule| inner(rule).map(|rule| Rule::Not(Box::new(rule)))));
    for (key, place) in
        [("source_ip", Place::Source), ("direct_remote_ip", Place::Direct), ("remote_ip", Place::Remote)]
    {
        found.extend(at.map(key, network).map(|range| Some(Rule::Address(place, range?))));
    }
    found.extend(at.map("authenticated", |at| {
        let name = at.map("principal_name", string_match);
        if name.as_ref().is_some_and(Option::is_none) {
            return None;
        }
        Some(Rule::Authenticated(name.flatten()))
    }));
    found.extend(at.map("filter_state", |at| {
        let key = at.text("key").unwrap_or_default().to_owned();
        if key.is_empty() {
            at.error("key", "the name of a filter state object is required");
        }
        let text = at.map("string_match", string_match).map(|text| text.map(StateCondition::Text));
        let address = at.map("address_match", |at| {
            let networks: Option<Vec<_>> = at.each("ranges", network).into_iter().collect();
            Some(StateCondition::Address { networks: networks?, inverted: at.flag("invert_match") })
        });
        match (text, address) {
            (Some(condition), None) | (None, Some(condition)) => Some(Rule::FilterState(key, condition?)),
            (Some(_), Some(_)) => {
                at.error("address_match", "either string_match or address_match is wanted");
                None
            }
            (None, None) => {
                at.error("string_match", "a condition is required");
                None
            }
        }
    }));
    found.extend(at.map("custom", |extension| {
        extension.text("name");
        typed(extension, MTLS, mtls)
    }));
    one(at, found, "a principal is one rule; everybody: `any: true`")
}

type Found = Vec<Option<Rule>>;

/// What permissions and principals have in common.
fn common(at: &mut Reading<'_>, about: About) -> Found {
    for key in ["header", "url_path", "uri_template"] {
        if about == About::Connections && at.has(key) {
            at.error(key, "this is about requests, and this filter sees connections only");
        }
    }
    let mut found = Found::new();
    if at.has("any") {
        if !at.flag("any") {
            at.error("any", "it can only be true");
        }
        found.push(Some(Rule::Always));
    }
    found.extend(at.map("header", header_match).map(|rule| rule.map(Rule::Header)));
    found.extend(at.map("url_path", |path| {
        let rule = text_rule(path, "path", Rule::Path);
        if rule.is_none() {
            path.error("path", "a condition is required");
        }
        rule.flatten()
    }));
    let dynamic = at.map("metadata", MetadataMatch::read);
    found.extend(dynamic.map(|rule| Some(Rule::Metadata(Source::Dynamic, rule?))));
    found.extend(at.map("sourced_metadata", |at| {
        let source = match at.text("metadata_source") {
            Some("ROUTE") => Source::Route,
            _ => Source::Dynamic,
        };
        let rule = at.map("metadata_matcher", MetadataMatch::read);
        if rule.is_none() {
            at.error("metadata_matcher", "a condition is required");
        }
        Some(Rule::Metadata(source, rule.flatten()?))
    }));
    found
}

fn one(at: &mut Reading<'_>, mut found: Found, message: &str) -> Option<Rule> {
    match (found.pop(), found.is_empty()) {
        (Some(rule), true) => rule,
        (None, _) if at.has("matcher") => None,
        _ => {
            at.wrong(message);
            None
        }
    }
}

fn all<'v>(at: &mut Reading<'v>, key: &str, read: impl FnMut(&mut Reading<'v>) -> Option<Rule>) -> Option<Rule> {
    list(at, key, read).map(Rule::All)
}

fn any<'v>(at: &mut Reading<'v>, key: &str, read: impl FnMut(&mut Reading<'v>) -> Option<Rule>) -> Option<Rule> {
    list(at, key, read).map(Rule::Any)
}

fn list<'v>(at: &mut Reading<'v>, key: &str, read: impl FnMut(&mut Reading<'v>) -> Option<Rule>) -> Option<Vec<Rule>> {
    let all = at.each(key, read);
    if all.is_empty() {
        at.error(key, "at least one is required");
    }
    all.into_iter().collect()
}

fn text_rule(at: &mut Reading<'_>, key: &str, make: fn(StringMatch) -> Rule) -> Option<Option<Rule>> {
    at.map(key, string_match).map(|rule| rule.map(make))
}

/// `TypedExtensionConfig` of the one type that is known.
fn typed<T>(at: &mut Reading<'_>, known: &str, read: impl FnOnce(&mut Reading<'_>) -> Option<T>) -> Option<T> {
    let made = at.map("typed_config", |config| {
        let kind = config.text("@type").unwrap_or_default();
        if kind.rsplit('/').next() != Some(known) {
            config.error("@type", format!("{kind}: not supported by Postrider here; {known} is"));
            config.skip();
            return None;
        }
        read(config)
    });
    if made.is_none() {
        at.error("typed_config", format!("a configuration is required, of the type {known}"));
    }
    made.flatten()
}

fn mtls(at: &mut Reading<'_>) -> Option<Rule> {
    let any = at.flag("any_validated_client_certificate");
    let name = at.map("san_matcher", |at| {
        let oid = at.text("oid").filter(|oid| !oid.is_empty()).map(str::to_owned);
        let part = match (at.text("san_type"), oid) {
            (Some("OTHER_NAME"), Some(oid)) => NameOf::Kind(oid),
            (Some("OTHER_NAME"), None) => {
                at.error("oid", "the object identifier of the kind of name is required");
                return None;
            }
            (_, Some(_)) => {
                at.error("oid", "it belongs to the kind OTHER_NAME");
                return None;
            }
            (Some("EMAIL"), None) => NameOf::Part(CertificatePart::EmailNames),
            (Some("DNS"), None) => NameOf::Part(CertificatePart::DnsNames),
            (Some("URI"), None) => NameOf::Part(CertificatePart::UriNames),
            (Some("IP_ADDRESS"), None) => NameOf::Part(CertificatePart::IpNames),
            _ => {
                at.error("san_type", "one of EMAIL, DNS, URI, IP_ADDRESS and OTHER_NAME is wanted");
                return None;
            }
        };
        let rule = at.map("matcher", string_match);
        if rule.is_none() {
            at.error("matcher", "a condition is required");
        }
        Some((part, rule.flatten()?))
    });
    match (name, any) {
        (None, true) => Some(Rule::Verified(None)),
        (Some(name), false) => name.map(|name| Rule::Verified(Some(name))),
        _ => {
            at.wrong("either san_matcher or any_validated_client_certificate: true is wanted");
            None
        }
    }
}
