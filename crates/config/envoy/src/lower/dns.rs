//! Clusters whose endpoints are resolved by name.

use std::sync::Arc;
use std::time::Duration;

use postrider_config_core::Severity;
use postrider_model::{Address, Discovery, DnsDiscovery, DnsFamily, DnsName, DnsResolver};

use super::address::Place;
use super::context::Lowering;
use super::{dns_resolver, endpoints, original_dst};
use crate::reader::Reader;

/// `dns_refresh_rate` where it is absent.
const REFRESH: Duration = Duration::from_secs(5);

const ORIGINAL_DST: &str = "envoy.extensions.clusters.original_dst.v3.OriginalDstCluster";
const DNS_CLUSTER: &str = "envoy.extensions.clusters.dns.v3.DnsCluster";

/// The names and settings of a STRICT_DNS or LOGICAL_DNS (`single`) cluster.
pub(super) fn of_cluster(cx: &mut Lowering<'_>, at: &Reader<'_>, single: bool) -> Option<DnsDiscovery> {
    let resolver = dns_resolver::of_cluster(cx, at);
    let family = at.enum_name("dns_lookup_family");
    build(cx, at, at, (resolver, &family), single)
}

/// A cluster of a custom type; of these the DNS cluster exists here.
pub(super) fn custom(cx: &mut Lowering<'_>, at: &Reader<'_>, custom: &Reader<'_>) -> Option<Discovery> {
    custom.str("name");
    let Some(any) = custom.any("typed_config") else {
        let name = custom.str("name");
        cx.refuse_value(custom, "name", &format!("the cluster type `{name}` without a `typed_config`"));
        return None;
    };
    let config = any.reader.as_ref()?;
    if any.type_name == ORIGINAL_DST {
        return Some(original_dst::build(cx, at, config));
    }
    if any.type_name != DNS_CLUSTER {
        cx.refuse_extension(custom, "typed_config", &any);
        return None;
    }
    unused(at);
    let single = config.bool("all_addresses_in_single_endpoint");
    let resolver = dns_resolver::of_custom(cx, config);
    let family = config.enum_name("dns_lookup_family");
    let discovery = build(cx, at, config, (resolver, &family), single)?;
    let shortest_ttl = config.duration("dns_min_refresh_rate").unwrap_or_default();
    let discovery = DnsDiscovery { shortest_ttl, ..discovery };
    Some(if single { Discovery::LogicalDns(discovery) } else { Discovery::StrictDns(discovery) })
}

/// DNS settings of a cluster that resolves nothing by them.
pub(super) fn unused(at: &Reader<'_>) {
    for field in ["dns_lookup_family", "dns_refresh_rate", "dns_jitter", "dns_failure_refresh_rate", "respect_dns_ttl"]
    {
        at.whole(field);
        at.ignore(field, "the cluster resolves no names by it");
    }
    dns_resolver::unused(at);
}

/// `settings` is the cluster itself or the configuration of its custom type.
fn build(
    cx: &mut Lowering<'_>,
    at: &Reader<'_>,
    settings: &Reader<'_>,
    (resolver, family): (Arc<DnsResolver>, &str),
    single: bool,
) -> Option<DnsDiscovery> {
    let refresh = settings.duration("dns_refresh_rate").unwrap_or(REFRESH);
    let failure = settings.message("dns_failure_refresh_rate").map(|rate| {
        let base = rate.duration("base_interval").unwrap_or_default();
        let most = rate.duration("max_interval").unwrap_or(base.saturating_mul(10));
        if most < base {
            cx.error(&rate, "max_interval", "conflict", "the longest interval is shorter than the first one");
        }
        (base, most)
    });
    let discovery = DnsDiscovery {
        names: Vec::new(),
        resolver,
        family: match family {
            "V4_ONLY" => DnsFamily::V4Only,
            "V6_ONLY" => DnsFamily::V6Only,
            "V4_PREFERRED" => DnsFamily::V4Preferred,
            "ALL" => DnsFamily::All,
            _ => DnsFamily::Auto,
        },
        refresh,
        respect_ttl: settings.bool("respect_dns_ttl"),
        shortest_ttl: Duration::ZERO,
        jitter: settings.duration("dns_jitter").unwrap_or_default(),
        failure_refresh: failure.unwrap_or_default(),
        wait_for_first: at.bool_wrapper("wait_for_warm_on_init").unwrap_or(true),
    };
    let names = names(cx, at)?;
    if single && names.len() != 1 && !cx.is_broken(at.path()) {
        let text = format!("a cluster of one logical name has exactly one endpoint, not {}", names.len());
        cx.push(at.diagnostic_at("load_assignment", Severity::Error, "one-endpoint", text));
        return None;
    }
    Some(DnsDiscovery { names, ..discovery })
}

fn names(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Option<Vec<DnsName>> {
    let mut all = Vec::new();
    let (entries, mut sound) = endpoints::entries(cx, at);
    for entry in entries {
        let (host, port) = match entry.place {
            Place::Name { host, port } => (host, port),
            Place::Literal(Address::Tcp(socket)) => (socket.ip().to_string(), socket.port()),
            Place::Literal(Address::Unix { path, .. }) => {
                let text = format!("`{}` is a path, and this cluster resolves names", path.display());
                cx.push(entry.at.diagnostic_at("endpoint", Severity::Error, "invalid-address", text));
                sound = false;
                continue;
            }
        };
        let endpoint = entry.at.message("endpoint");
        if let Some(endpoint) = endpoint.filter(|_| !entry.additional.is_empty()) {
            endpoint.ignore("additional_addresses", "the cluster resolves names, and these are for `type: STATIC`");
        }
        all.push(DnsName {
            host,
            port,
            hostname: (!entry.hostname.is_empty()).then(|| entry.hostname.to_owned()),
            weight: entry.weight,
            priority: entry.priority,
            health: entry.health,
            leaving: entry.leaving,
            check: entry.check,
            place: entry.locality,
            hash_key: entry.hash_key,
            metadata: entry.metadata,
        });
    }
    sound.then_some(all)
}
