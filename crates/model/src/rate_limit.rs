//! Which requests count together when requests are counted elsewhere: what virtual hosts, routes and filters say.

use crate::{Cidr, Format, HeaderMatch, QueryMatch, Reading, header_match, network, query_match};

/// One rule. It makes a descriptor, a list of keys and values, of a request that has all of what its actions ask for.
#[derive(Debug, Clone, PartialEq)]
pub struct RateLimit {
    /// Only filters of this stage use it.
    pub stage: u32,
    pub actions: Vec<RateLimitAction>,
    pub limit: Option<LimitSource>,
    pub hits: Option<Hits>,
    /// It has a `disable_key`. Filters that count by themselves pass over such a rule.
    pub is_keyed: bool,
    /// Whether answers tell of its limit, in place of what the filter says.
    pub quota_headers: Option<bool>,
}

/// An entry of a descriptor, and where its value comes from.
#[derive(Debug, Clone, PartialEq)]
pub enum RateLimitAction {
    /// The name of the proxy's own cluster.
    SourceCluster,
    DestinationCluster,
    RequestHeader {
        name: String,
        key: String,
        /// Without it the entry is left out, not the whole descriptor.
        skip_if_absent: bool,
    },
    QueryParameter {
        name: String,
        key: String,
        skip_if_absent: bool,
    },
    RemoteAddress,
    /// The client's network, by so many bits.
    MaskedRemoteAddress {
        v4: u8,
        v6: u8,
    },
    Generic {
        key: String,
        value: String,
    },
    HeaderMatches {
        key: String,
        value: String,
        expect: bool,
        headers: Vec<HeaderMatch>,
    },
    QueryMatches {
        key: String,
        value: String,
        expect: bool,
        parameters: Vec<QueryMatch>,
    },
    /// A value where the client's address is in one of the networks, or in none of them.
    AddressMatches {
        key: String,
        value: Format,
        default: String,
        networks: Vec<Cidr>,
        invert: bool,
    },
    Metadata {
        key: String,
        source: MetadataSource,
        place: MetadataKey,
        default: String,
        skip_if_absent: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetadataSource {
    /// What filters noted about the request.
    Request,
    Route,
}

/// A value of some metadata: a namespace, and keys that lead down from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetadataKey {
    pub namespace: String,
    pub path: Vec<String>,
}

/// A limit in place of the one that the service has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LimitSource {
    Fixed {
        requests: u32,
        unit: LimitUnit,
    },
    /// A map with `requests_per_unit` and `unit` in what filters noted about the request.
    Metadata(MetadataKey),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LimitUnit {
    #[default]
    Unknown,
    Second,
    Minute,
    Hour,
    Day,
    Month,
    Year,
}

/// How much a request counts.
#[derive(Debug, Clone, PartialEq)]
pub enum Hits {
    Fixed { hits: u64, negative: bool },
    Format { format: Format, negative: bool },
}

impl LimitUnit {
    /// By its name in capitals.
    pub fn from_name(name: &str) -> Option<LimitUnit> {
        const ALL: [(&str, LimitUnit); 7] = [
            ("UNKNOWN", LimitUnit::Unknown),
            ("SECOND", LimitUnit::Second),
            ("MINUTE", LimitUnit::Minute),
            ("HOUR", LimitUnit::Hour),
            ("DAY", LimitUnit::Day),
            ("MONTH", LimitUnit::Month),
            ("YEAR", LimitUnit::Year),
        ];
        ALL.iter().find(|(known, _)| *known == name).map(|(_, unit)| *unit)
    }
}

/// Where a rule stands decides what it may say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleOf {
    /// A virtual host or route.
    Route,
    /// A filter's own configuration.
    Filter,
}

impl RateLimit {
    /// Reads one.
    pub fn read(at: &mut Reading<'_>, of: RuleOf) -> RateLimit {
        at.refuse("apply_on_stream_done", "counting a request when it is over");
        // A rule that the runtime switches off is not here.
        let is_keyed = of == RuleOf::Route && at.text("disable_key").is_some();
        match of {
            RuleOf::Route => {
                // Nothing weighs a request on a route, as in Envoy. Whoever reads the route warns of it.
                at.value("hits_addend");
            }
            RuleOf::Filter => {
                at.refuse("stage", "a stage in a filter's own rules");
                at.refuse("disable_key", "a runtime key in a filter's own rules");
            }
        }
        let stage = if of == RuleOf::Route { at.number("stage").unwrap_or(0) } else { 0 };
        if stage > 10 {
            at.error("stage", format!("{stage} is no stage: they are 0 to 10"));
        }
        let actions: Vec<_> = at.each("actions", action).into_iter().flatten().collect();
        if !at.has("actions") {
            at.error("actions", "a rule without an action counts nothing");
        }
        RateLimit {
            stage: u32::try_from(stage).unwrap_or(0),
            actions,
            limit: at.map("limit", limit).flatten(),
            hits: if of == RuleOf::Filter { at.map("hits_addend", hits).flatten() } else { None },
            is_keyed,
            quota_headers: match at.text("x_ratelimit_option") {
                Some("OFF") => Some(false),
                Some("DRAFT_VERSION_03") => Some(true),
                _ => None,
            },
        }
    }
}

fn action(at: &mut Reading<'_>) -> Option<RateLimitAction> {
    let mut found: Vec<Option<RateLimitAction>> = Vec::new();
    at.refuse("extension", "descriptors from an extension");
    found.extend(at.map("source_cluster", |_| Some(RateLimitAction::SourceCluster)));
    found.extend(at.map("destination_cluster", |_| Some(RateLimitAction::DestinationCluster)));
    found.extend(at.map("remote_address", |_| Some(RateLimitAction::RemoteAddress)));
    found.extend(at.map("request_headers", |at| {
        let name = required(at, "header_name").to_ascii_lowercase();
        let name = if name == "host" { ":authority".to_owned() } else { name };
        Some(RateLimitAction::RequestHeader {
            name,
            key: required(at, "descriptor_key"),
            skip_if_absent: at.flag("skip_if_absent"),
        })
    }));
    found.extend(at.map("query_parameters", |at| {
        Some(RateLimitAction::QueryParameter {
            name: required(at, "query_parameter_name"),
            key: required(at, "descriptor_key"),
            skip_if_absent: at.flag("skip_if_absent"),
        })
    }));
    found.extend(at.map("masked_remote_address", |at| {
        Some(RateLimitAction::MaskedRemoteAddress {
            v4: bits(at, "v4_prefix_mask_len", 32),
            v6: bits(at, "v6_prefix_mask_len", 128),
        })
    }));
    found.extend(at.map("generic_key", |at| {
        // It stands in for the result of a format, and the value here is a plain text.
        at.text("default_value");
        Some(RateLimitAction::Generic { key: key_or(at, "generic_key"), value: required(at, "descriptor_value") })
    }));
    found.extend(at.map("header_value_match", |at| {
        at.text("default_value");
        Some(RateLimitAction::HeaderMatches {
            key: key_or(at, "header_match"),
            value: required(at, "descriptor_value"),
            expect: at.bool("expect_match").unwrap_or(true),
            headers: at.each("headers", header_match).into_iter().collect::<Option<_>>()?,
        })
    }));
    found.extend(at.map("query_parameter_value_match", |at| {
        at.text("default_value");
        Some(RateLimitAction::QueryMatches {
            key: key_or(at, "query_match"),
            value: required(at, "descriptor_value"),
            expect: at.bool("expect_match").unwrap_or(true),
            parameters: at.each("query_parameters", query_match).into_iter().collect::<Option<_>>()?,
        })
    }));
    found.extend(at.map("remote_address_match", |at| {
        let key = key_or(at, "remote_address_match");
        let text = required(at, "descriptor_value");
        let value = Format::parse(&text).map_err(|error| at.error("descriptor_value", error.to_string())).ok();
        let default = at.text("default_value").unwrap_or_default().to_owned();
        let matcher = at.map("address_matcher", |at| (at.each("ranges", network), at.flag("invert_match")));
        let Some((networks, invert)) = matcher else {
            at.error("address_matcher", "the networks are required");
            return None;
        };
        let networks = networks.into_iter().collect::<Option<_>>()?;
        Some(RateLimitAction::AddressMatches { key, value: value?, default, networks, invert })
    }));
    for (name, own_source) in [("metadata", true), ("dynamic_metadata", false)] {
        found.extend(at.map(name, |at| {
            let source = match at.text("source").filter(|_| own_source) {
                None | Some("DYNAMIC") => MetadataSource::Request,
                Some("ROUTE_ENTRY") => MetadataSource::Route,
                Some(other) => {
                    at.error("source", format!("metadata from {other} is not supported"));
                    return None;
                }
            };
            Some(RateLimitAction::Metadata {
                key: required(at, "descriptor_key"),
                source,
                place: at.map("metadata_key", metadata_key)?,
                default: at.text("default_value").unwrap_or_default().to_owned(),
                skip_if_absent: own_source && at.flag("skip_if_absent"),
            })
        }));
    }
    if found.is_empty() && !at.has("extension") {
        at.wrong("an action is required: `generic_key`, `request_headers`, `remote_address`, …");
    }
    if found.len() > 1 {
        at.wrong("one action only is wanted");
    }
    found.pop().flatten()
}

fn required(at: &mut Reading<'_>, key: &str) -> String {
    let text = at.text(key);
    if text.is_none() {
        at.error(key, format!("`{key}` is required"));
    }
    text.unwrap_or_default().to_owned()
}

fn key_or(at: &mut Reading<'_>, default: &str) -> String {
    at.text("descriptor_key").unwrap_or(default).to_owned()
}

fn bits(at: &mut Reading<'_>, key: &str, most: u8) -> u8 {
    match at.number(key) {
        None => most,
        Some(bits) => u8::try_from(bits).ok().filter(|bits| *bits <= most).unwrap_or_else(|| {
            at.error(key, format!("an address has {most} bits"));
            most
        }),
    }
}

fn metadata_key(at: &mut Reading<'_>) -> MetadataKey {
    let namespace = required(at, "key");
    let path: Vec<String> = at.each("path", |segment| required(segment, "key"));
    if path.is_empty() {
        at.error("path", "the key of a value is required");
    }
    MetadataKey { namespace, path }
}

fn limit(at: &mut Reading<'_>) -> Option<LimitSource> {
    let fixed = at.map("rate_limit", |at| {
        let unit = at.text("unit").and_then(LimitUnit::from_name).unwrap_or_default();
        let requests = u32::try_from(at.number("requests_per_unit").unwrap_or(0)).unwrap_or(u32::MAX);
        LimitSource::Fixed { requests, unit }
    });
    let noted = at.map("dynamic_metadata", |at| at.map("metadata_key", metadata_key).map(LimitSource::Metadata));
    if fixed.is_none() && noted.is_none() {
        at.wrong("rate_limit or dynamic_metadata is required");
    }
    fixed.or(noted.flatten())
}

fn hits(at: &mut Reading<'_>) -> Option<Hits> {
    let negative = at.flag("is_negative_hits");
    let fixed = at.number("number").map(|hits| Hits::Fixed { hits, negative });
    let text = at.text("format");
    if fixed.is_some() == text.is_some() {
        at.wrong("either number or format is wanted");
    }
    match text {
        None => fixed,
        Some(text) => match Format::parse(text) {
            Ok(format) => Some(Hits::Format { format, negative }),
            Err(error) => {
                at.error("format", error.to_string());
                None
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Value;

    fn map<const N: usize>(entries: [(&str, Value); N]) -> Value {
        Value::Map(entries.map(|(key, value)| (key.to_owned(), value)).into())
    }

    fn text(text: &str) -> Value {
        Value::String(text.to_owned())
    }

    fn rule(actions: Vec<Value>) -> Value {
        map([("actions", Value::List(actions))])
    }

    #[test]
    fn an_action_is_one_of_its_kinds_with_what_it_needs() {
        let read = |value: &Value| Reading::all(value, |at| RateLimit::read(at, RuleOf::Route));
        let generic = map([("generic_key", map([("descriptor_value", text("v"))]))]);
        let found = read(&rule(vec![generic.clone()])).unwrap();
        assert_eq!(found.actions, [RateLimitAction::Generic { key: "generic_key".into(), value: "v".into() }]);
        let paths = |value: Value| read(&value).unwrap_err().into_iter().map(|error| error.path).collect::<Vec<_>>();
        assert_eq!(paths(map([])), ["actions"]);
        assert_eq!(paths(rule(vec![map([])])), ["actions[0]"]);
        let two = map([("generic_key", map([("descriptor_value", text("v"))])), ("remote_address", map([]))]);
        assert_eq!(paths(rule(vec![two])), ["actions[0]"]);
        assert_eq!(paths(rule(vec![map([("extension", map([]))])])), ["actions[0].extension"]);
        let source = map([("metadata", map([("source", text("CLUSTER_ENTRY"))]))]);
        assert_eq!(paths(rule(vec![source]))[0], "actions[0].metadata.source");
        let mask = map([("masked_remote_address", map([("v4_prefix_mask_len", Value::Integer(33))]))]);
        assert_eq!(paths(rule(vec![mask])), ["actions[0].masked_remote_address.v4_prefix_mask_len"]);
        let Value::Map(mut staged) = rule(vec![generic]) else { unreachable!() };
        staged.push(("stage".into(), Value::Integer(3)));
        assert_eq!(read(&Value::Map(staged.clone())).unwrap().stage, 3);
        let own = Reading::all(&Value::Map(staged), |at| RateLimit::read(at, RuleOf::Filter)).unwrap_err();
        assert_eq!(own[0].path, "stage");
    }

    #[test]
    fn a_weight_on_a_route_is_no_error_and_none_is_taken() {
        let Value::Map(mut weighed) = rule(vec![map([("remote_address", map([]))])]) else { unreachable!() };
        weighed.push(("hits_addend".into(), map([])));
        let weighed = Value::Map(weighed);
        assert_eq!(Reading::all(&weighed, |at| RateLimit::read(at, RuleOf::Route)).unwrap().hits, None);
        let own = Reading::all(&weighed, |at| RateLimit::read(at, RuleOf::Filter)).unwrap_err();
        assert_eq!(own[0].path, "hits_addend");
    }
}
