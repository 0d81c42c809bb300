//! Which connections a filter chain takes (`FilterChainMatch`).

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use postrider_model::{ChainMatch, Cidr, SourceKind, TransportMatch};

use super::context::Lowering;
use crate::reader::Reader;

/// More combinations of criteria than this are not compared for duplicates.
const MOST_COMBINATIONS: usize = 100_000;

pub(super) fn chain_match(cx: &mut Lowering<'_>, at: &Reader<'_>) -> ChainMatch {
    let transport = match at.str("transport_protocol") {
        "" => TransportMatch::Any,
        "raw_buffer" => TransportMatch::Raw,
        "tls" => TransportMatch::Tls,
        "quic" => {
            let text = "no connection comes to this chain: they are over TCP, and `quic` is HTTP/3";
            cx.warn(at, "transport_protocol", "no-effect", text);
            TransportMatch::Quic
        }
        other => {
            cx.refuse(at, "transport_protocol", &format!("choosing a chain by the transport protocol `{other}`"));
            TransportMatch::Any
        }
    };
    let ports = at.u64s("source_ports");
    let matches = ChainMatch {
        destination_port: at.u32_wrapper("destination_port").and_then(|port| u16::try_from(port).ok()),
        destination_prefixes: ranges(cx, at, "prefix_ranges"),
        server_names: server_names(cx, at),
        transport,
        application_protocols: at.strings("application_protocols").iter().map(|each| each.value.to_owned()).collect(),
        direct_source_prefixes: ranges(cx, at, "direct_source_prefix_ranges"),
        source_kind: match at.enum_name("source_type").as_str() {
            "SAME_IP_OR_LOOPBACK" => SourceKind::SameIpOrLoopback,
            "EXTERNAL" => SourceKind::External,
            _ => SourceKind::Any,
        },
        source_prefixes: ranges(cx, at, "source_prefix_ranges"),
        source_ports: ports.iter().filter_map(|port| u16::try_from(port.value).ok()).collect(),
    };
    once(cx, at, "prefix_ranges", &matches.destination_prefixes);
    once(cx, at, "server_names", &matches.server_names);
    once(cx, at, "application_protocols", &matches.application_protocols);
    once(cx, at, "direct_source_prefix_ranges", &matches.direct_source_prefixes);
    once(cx, at, "source_prefix_ranges", &matches.source_prefixes);
    once(cx, at, "source_ports", &matches.source_ports);
    matches
}

/// Refuses a value that a list has twice: as in Envoy, the chain would be in its own way.
fn once<T: ToString>(cx: &mut Lowering<'_>, at: &Reader<'_>, field: &str, values: &[T]) {
    let mut seen = HashSet::new();
    if let Some(twice) = values.iter().map(T::to_string).find(|value| !seen.insert(value.clone())) {
        cx.error(at, field, "duplicate-match", format!("`{field}` lists `{twice}` twice"));
    }
}

/// Lower case, as names are compared.
fn server_names(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Vec<String> {
    const FIELD: &str = "server_names";
    let mut all = Vec::new();
    for name in at.strings(FIELD) {
        let text = name.value.to_ascii_lowercase();
        let fault = match text.strip_prefix("*.").unwrap_or(&text) {
            _ if text == "*" => "`*` is no server name: a chain without `server_names` takes all of them".to_owned(),
            "" => format!("`{}` is no server name", name.value),
            rest if rest.contains('*') => {
                format!("`{}`: a wildcard stands for whole labels at the front, as in `*.example.com`", name.value)
            }
            _ => {
                all.push(text);
                continue;
            }
        };
        cx.element_error(at, FIELD, &name, "invalid-server-name", fault);
    }
    all
}

/// A repeated `envoy.config.core.v3.CidrRange`; an absent length is 0, as in Envoy.
pub(super) fn ranges(cx: &mut Lowering<'_>, at: &Reader<'_>, field: &str) -> Vec<Cidr> {
    let mut all = Vec::new();
    for range in at.list(field) {
        let prefix = range.str("address_prefix");
        let Ok(address) = prefix.parse::<IpAddr>() else {
            cx.error(&range, "address_prefix", "invalid-cidr", format!("`{prefix}` is no IP address"));
            continue;
        };
        let length = range.u32_wrapper("prefix_len").unwrap_or(0);
        match u8::try_from(length).ok().and_then(|length| Cidr::new(address, length)) {
            Some(cidr) => all.push(cidr),
            None => {
                let bits = if address.is_ipv4() { 32 } else { 128 };
                let text = format!("a prefix of {length} bits is longer than {prefix}, which has {bits}");
                cx.error(&range, "prefix_len", "invalid-cidr", text);
            }
        }
    }
    all
}

/// Refuses chains that take the very same connections as an earlier one. `chains` are (match, place, name).
pub(super) fn unique(cx: &mut Lowering<'_>, chains: &[(&ChainMatch, &Reader<'_>)]) {
    let mut taken: HashMap<String, String> = HashMap::new();
    for (criteria, place) in chains {
        let Some(combinations) = combinations(criteria) else { continue };
        let clash = combinations.iter().find_map(|each| taken.get(each)).cloned();
        match clash {
            Some(other) => {
                let text = format!("this chain takes the same connections as {other}");
                let field = if place.has("filter_chain_match") { "filter_chain_match" } else { "name" };
                cx.error(place, field, "duplicate-match", text);
            }
            None => taken.extend(combinations.into_iter().map(|each| (each, place.path().to_owned()))),
        }
    }
}

/// Every single combination of values that a match stands for; `None` when there are too many.
fn combinations(of: &ChainMatch) -> Option<Vec<String>> {
    fn texts<T: ToString>(values: &[T]) -> Vec<String> {
        if values.is_empty() { vec!["*".to_owned()] } else { values.iter().map(T::to_string).collect() }
    }
    let criteria = [
        texts(of.destination_port.as_slice()),
        texts(&of.destination_prefixes),
        texts(&of.server_names),
        vec![format!("{:?}", of.transport)],
        texts(&of.application_protocols),
        texts(&of.direct_source_prefixes),
        vec![format!("{:?}", of.source_kind)],
        texts(&of.source_prefixes),
        texts(&of.source_ports),
    ];
    let mut all = vec![String::new()];
    for values in criteria {
        if all.len().saturating_mul(values.len()) > MOST_COMBINATIONS {
            return None;
        }
        all = all.iter().flat_map(|head| values.iter().map(move |value| format!("{head} {value}"))).collect();
    }
    Some(all)
}
