//! What a request counts as: descriptors, made by the rules of routes and filters.

use std::net::IpAddr;

use postrider_filter_api::Stream;
use postrider_model::{Cidr, Hits, LimitSource, LimitUnit, MetadataSource, RateLimit, RateLimitAction, Reading, Value};

use crate::request_parts::{header, matches_headers, parameter};

/// The most that one request may count.
const MAX_HITS: f64 = 1e9;

/// Keys and values, in the order of the rule's actions.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Descriptor {
    pub(crate) entries: Vec<(String, String)>,
    /// Requests per unit, in place of what the service has.
    pub(crate) limit: Option<(u32, LimitUnit)>,
    /// How much the request counts, and whether it gives back instead.
    pub(crate) hits: Option<(u64, bool)>,
    /// Whether answers tell of its limit, in place of what the filter says.
    pub(crate) quota_headers: Option<bool>,
}

/// When the rules of a virtual host hold beside those of its routes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum HostRules {
    /// Where the route has none.
    #[default]
    Otherwise,
    Always,
    Never,
}

impl HostRules {
    /// `vh_rate_limits`.
    pub(crate) fn read(at: &mut Reading<'_>) -> HostRules {
        match at.text("vh_rate_limits") {
            Some("INCLUDE") => HostRules::Always,
            Some("IGNORE") => HostRules::Never,
            _ => HostRules::Otherwise,
        }
    }
}

/// Whether rules with a `disable_key` count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keyed {
    Counted,
    Skipped,
}

/// What the request counts as by a filter's own rules.
pub(crate) fn of_rules(rules: &[RateLimit], stream: &Stream<'_>) -> Vec<Descriptor> {
    rules.iter().filter_map(|rule| descriptor(rule, stream)).collect()
}

/// What the request counts as by the rules of its route and virtual host.
pub(crate) fn of_stream(stage: u32, of_host: HostRules, keyed: Keyed, stream: &Stream<'_>) -> Vec<Descriptor> {
    let Some(route) = stream.route else { return Vec::new() };
    let limits = &route.rate_limits;
    let counts = |rule: &&RateLimit| rule.stage == stage && (keyed == Keyed::Counted || !rule.is_keyed);
    let by = |rules: &[RateLimit]| -> Vec<Descriptor> {
        rules.iter().filter(counts).filter_map(|rule| descriptor(rule, stream)).collect()
    };
    let mut all = by(&limits.route);
    let of_host = match of_host {
        _ if limits.include_virtual_host => true,
        HostRules::Always => true,
        HostRules::Never => false,
        HostRules::Otherwise => limits.route.is_empty(),
    };
    if of_host {
        all.extend(by(&limits.virtual_host));
    }
    all
}

/// The descriptor that `rule` makes of the request; none when an action finds nothing.
fn descriptor(rule: &RateLimit, stream: &Stream<'_>) -> Option<Descriptor> {
    let mut entries = Vec::new();
    for action in &rule.actions {
        entries.extend(entry(action, stream)?);
    }
    if entries.is_empty() {
        return None;
    }
    let hits = match &rule.hits {
        None => None,
        Some(Hits::Fixed { hits, negative }) => Some((*hits, *negative)),
        Some(Hits::Format { format, negative }) => {
            let mut text = Vec::new();
            stream.host.format(stream, format, &mut text);
            let number = std::str::from_utf8(&text).ok()?.trim_ascii().parse::<f64>().ok();
            // Numbers of metadata have fractions; what counts is whole.
            Some((number.filter(|hits| (0.0..=MAX_HITS).contains(hits))? as u64, *negative))
        }
    };
    let limit = rule.limit.as_ref().and_then(|limit| limit_of(limit, stream));
    Some(Descriptor { entries, limit, hits, quota_headers: rule.quota_headers })
}

/// The entry of one action: `None` when there is no descriptor then, `Some(None)` when there is one without it.
fn entry(action: &RateLimitAction, stream: &Stream<'_>) -> Option<Option<(String, String)>> {
    let absent = |skip: bool| skip.then_some(None);
    let (key, value) = match action {
        RateLimitAction::SourceCluster => ("source_cluster", stream.host.node().cluster.clone()),
        RateLimitAction::DestinationCluster => ("destination_cluster", stream.cluster()?.into_owned()),
        RateLimitAction::RequestHeader { name, key, skip_if_absent } => match header(stream.request, name).first() {
            Some(value) => (key.as_str(), text(value)),
            None => return absent(*skip_if_absent),
        },
        RateLimitAction::QueryParameter { name, key, skip_if_absent } => match parameter(stream.request, name) {
            Some(value) => (key.as_str(), value),
            None => return absent(*skip_if_absent),
        },
        RateLimitAction::RemoteAddress => ("remote_address", client(stream)?.to_string()),
        RateLimitAction::MaskedRemoteAddress { v4, v6 } => {
            let address = client(stream)?;
            let bits = if address.is_ipv4() { *v4 } else { *v6 };
            ("masked_remote_address", Cidr::new(address, bits)?.to_string())
        }
        RateLimitAction::AddressMatches { key, value, default, networks, invert } => {
            let address = client(stream)?;
            if networks.iter().any(|network| network.contains(address)) == *invert {
                return None;
            }
            let mut made = Vec::new();
            stream.host.format(stream, value, &mut made);
            match (made.is_empty(), default.is_empty()) {
                (false, _) => (key.as_str(), text(&made)),
                (true, false) => (key.as_str(), default.clone()),
                (true, true) => return None,
            }
        }
        RateLimitAction::Generic { key, value } => (key.as_str(), value.clone()),
        RateLimitAction::HeaderMatches { key, value, expect, headers } => {
            let met = matches_headers(headers, stream.request);
            (met == *expect).then_some((key.as_str(), value.clone()))?
        }
        RateLimitAction::QueryMatches { key, value, expect, parameters } => {
            let met = parameters.iter().all(|rule| rule.matches(parameter(stream.request, &rule.name).as_deref()));
            (met == *expect).then_some((key.as_str(), value.clone()))?
        }
        RateLimitAction::Metadata { key, source, place, default, skip_if_absent } => {
            let found = match source {
                MetadataSource::Request => stream.info.metadata.find(place),
                MetadataSource::Route => stream.route.and_then(|route| route.metadata.find(place)),
            };
            match found {
                Some(Value::String(text)) if !text.is_empty() => (key.as_str(), text.clone()),
                _ if !default.is_empty() => (key.as_str(), default.clone()),
                _ => return absent(*skip_if_absent),
            }
        }
    };
    Some(Some((key.to_owned(), value)))
}

fn limit_of(source: &LimitSource, stream: &Stream<'_>) -> Option<(u32, LimitUnit)> {
    match source {
        LimitSource::Fixed { requests, unit } => Some((*requests, *unit)),
        LimitSource::Metadata(place) => {
            let Value::Map(entries) = stream.info.metadata.find(place)? else { return None };
            let get = |key: &str| entries.iter().find(|(known, _)| known == key).map(|(_, value)| value);
            let requests = match get("requests_per_unit")? {
                Value::Integer(number) => u32::try_from(*number).ok()?,
                Value::Number(number) if number.fract() == 0.0 => u32::try_from(*number as i64).ok()?,
                _ => return None,
            };
            let Value::String(unit) = get("unit")? else { return None };
            Some((requests, LimitUnit::from_name(unit)?))
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn client(stream: &Stream<'_>) -> Option<IpAddr> {
    stream.info.downstream_remote.or(stream.info.downstream_direct_remote).map(|address| address.ip())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::request;
    use postrider_filter_api::RouteTarget;
    use postrider_model::{MetadataKey, Node};
    use std::rc::Rc;

    fn rule(actions: Vec<RateLimitAction>) -> RateLimit {
        RateLimit { stage: 0, actions, limit: None, hits: None, is_keyed: false, quota_headers: None }
    }

    fn generic(value: &str) -> RateLimitAction {
        RateLimitAction::Generic { key: "generic_key".into(), value: value.into() }
    }

    #[test]
    fn each_action_gives_its_entry_or_takes_the_descriptor_away() {
        let mut stream = request("/p?a=1%202&b", &[("x-user", "eve"), ("x-user", "bob")]);
        stream.host.node = Rc::new(Node { cluster: "edge".into(), ..Node::default() });
        stream.info.downstream_remote = "10.1.2.3:9".parse().ok();
        stream.route.as_mut().unwrap().target = RouteTarget::Weighted(vec!["a".into(), "b".into()]);
        stream.weighted = Some(1);
        stream.info.metadata.set("ns", "k", Value::String("noted".into()));
        let mut made = |action: RateLimitAction| {
            let found = stream.with(|stream| descriptor(&rule(vec![generic("first"), action]), stream));
            found.map(|found| match found.entries.get(1) {
                Some((key, value)) => format!("{key}={value}"),
                None => "left out".to_owned(),
            })
        };
        let header = |name: &str, skip_if_absent| RateLimitAction::RequestHeader {
            name: name.into(),
            key: "h".into(),
            skip_if_absent,
        };
        let query =
            |name: &str| RateLimitAction::QueryParameter { name: name.into(), key: "q".into(), skip_if_absent: false };
        let metadata = |path: &str, default: &str| RateLimitAction::Metadata {
            key: "m".into(),
            source: MetadataSource::Request,
            place: MetadataKey { namespace: "ns".into(), path: vec![path.into()] },
            default: default.into(),
            skip_if_absent: false,
        };
        let within = |network: &str, invert| RateLimitAction::AddressMatches {
            key: "near".into(),
            value: postrider_model::Format::parse("<%REQ(x-user)%>").unwrap(),
            default: String::new(),
            networks: vec![postrider_model::Cidr::new(network.parse().unwrap(), 8).unwrap()],
            invert,
        };
        for (action, want) in [
            (RateLimitAction::SourceCluster, Some("source_cluster=edge")),
            (RateLimitAction::DestinationCluster, Some("destination_cluster=b")),
            (RateLimitAction::RemoteAddress, Some("remote_address=10.1.2.3")),
            (RateLimitAction::MaskedRemoteAddress { v4: 15, v6: 128 }, Some("masked_remote_address=10.0.0.0/15")),
            (RateLimitAction::MaskedRemoteAddress { v4: 0, v6: 128 }, Some("masked_remote_address=0.0.0.0/0")),
            (within("10.0.0.0", false), Some("near=<eve>")),
            (within("11.0.0.0", false), None),
            (within("11.0.0.0", true), Some("near=<eve>")),
            (header("x-user", false), Some("h=eve")),
            (header(":path", false), Some("h=/p?a=1%202&b")),
            (header("x-none", true), Some("left out")),
            (header("x-none", false), None),
            (query("a"), Some("q=1 2")),
            (query("b"), Some("q=")),
            (query("c"), None),
            (metadata("k", ""), Some("m=noted")),
            (metadata("none", "else"), Some("m=else")),
            (metadata("none", ""), None),
        ] {
            assert_eq!(made(action.clone()).as_deref(), want, "{action:?}");
        }
    }

    #[test]
    fn rules_with_a_disable_key_are_passed_over_where_the_filter_counts_by_itself() {
        let mut stream = request("/", &[]);
        let keyed = RateLimit { is_keyed: true, ..rule(vec![generic("keyed")]) };
        let limits = &mut stream.route.as_mut().unwrap().rate_limits;
        limits.route = vec![keyed.clone(), rule(vec![generic("plain")])];
        limits.virtual_host = vec![keyed];
        let mut values = |keyed| {
            let made = stream.with(|stream| of_stream(0, HostRules::Always, keyed, stream));
            made.into_iter().flat_map(|made| made.entries).map(|(_, value)| value).collect::<Vec<_>>()
        };
        assert_eq!(values(Keyed::Counted), ["keyed", "plain", "keyed"]);
        assert_eq!(values(Keyed::Skipped), ["plain"]);
    }

    #[test]
    fn a_limit_and_its_weight_come_from_what_was_noted() {
        let mut stream = request("/", &[("x-hits", "7")]);
        let limit = Value::Map(vec![
            ("requests_per_unit".into(), Value::Number(5.0)),
            ("unit".into(), Value::String("HOUR".into())),
        ]);
        stream.info.metadata.set("ns", "limit", limit);
        let place = MetadataKey { namespace: "ns".into(), path: vec!["limit".into()] };
        let hits = |text: &str| Hits::Format { format: postrider_model::Format::parse(text).unwrap(), negative: true };
        let mut rule = RateLimit { limit: Some(LimitSource::Metadata(place)), ..rule(vec![generic("g")]) };
        rule.hits = Some(hits("%REQ(x-hits)%"));
        let made = stream.with(|stream| descriptor(&rule, stream)).unwrap();
        assert_eq!((made.limit, made.hits), (Some((5, LimitUnit::Hour)), Some((7, true))));
        rule.hits = Some(hits("%REQ(x-none)%"));
        assert_eq!(stream.with(|stream| descriptor(&rule, stream)), None, "no number, no descriptor");
    }

    #[test]
    fn a_weight_may_have_a_fraction_or_an_exponent() {
        let format = postrider_model::Format::parse("%REQ(x-hits)%").unwrap();
        let rule = RateLimit { hits: Some(Hits::Format { format, negative: false }), ..rule(vec![generic("g")]) };
        for (text, want) in [
            ("3", Some(3)),
            ("3.0", Some(3)),
            ("3.9", Some(3)),
            ("1e1", Some(10)),
            ("0.2", Some(0)),
            ("1000000000", Some(1_000_000_000)),
            ("1000000001", None),
            ("-1", None),
            ("inf", None),
            ("nan", None),
            ("3x", None),
        ] {
            let mut stream = request("/", &[("x-hits", text)]);
            let made = stream.with(|stream| descriptor(&rule, stream));
            assert_eq!(made.map(|made| made.hits), want.map(|hits| Some((hits, false))), "{text}");
        }
    }
}
