//! Endpoints of a `load_assignment`.

use std::collections::BTreeMap;
use std::sync::Arc;

use postrider_config_core::{Severity, Span};
use postrider_model::{
    Address, Balancing, Endpoint, EndpointCheck, EndpointHealth, Leaving, LoadBalancing, Locality, Metadata, Value,
};

use super::address::{self, Place};
use super::context::Lowering;
use super::{health, metadata};
use crate::reader::Reader;

const WEIGHT: &str = "load_balancing_weight";

/// One entry of `lb_endpoints` with its place.
pub(super) struct Entry<'m> {
    pub place: Place,
    /// Each with where it stands.
    pub additional: Vec<(Place, Reader<'m>)>,
    pub hostname: &'m str,
    pub weight: u32,
    pub priority: u32,
    pub health: EndpointHealth,
    pub leaving: Option<Leaving>,
    pub check: Option<Box<EndpointCheck>>,
    pub locality: Option<Arc<Locality>>,
    pub hash_key: Option<String>,
    pub metadata: Option<Arc<Metadata>>,
    pub at: Reader<'m>,
}

/// The endpoints of a STATIC cluster; `None` after an error.
pub(super) fn fixed(cx: &mut Lowering<'_>, cluster: &Reader<'_>) -> Option<Vec<Endpoint>> {
    let mut all = Vec::new();
    let (entries, mut sound) = entries(cx, cluster);
    for entry in entries {
        let address: Address = match entry.place {
            Place::Literal(address) => address,
            Place::Name { host, .. } => {
                let text = format!("`{host}` is a name, and a STATIC cluster resolves no names");
                let diagnostic = entry
                    .at
                    .diagnostic_at("endpoint", Severity::Error, "invalid-address", text)
                    .at(host_span(&entry.at))
                    .expected("an IP address; or give the cluster `type: STRICT_DNS`");
                cx.push(diagnostic);
                sound = false;
                continue;
            }
        };
        let mut additional = Vec::new();
        for (place, at) in entry.additional {
            match place {
                Place::Literal(address) => additional.push(address),
                Place::Name { host, .. } => {
                    let text = format!("`{host}` is a name, and a STATIC cluster resolves no names");
                    cx.error(&at, "address", "invalid-address", text);
                    sound = false;
                }
            }
        }
        all.push(Endpoint {
            address,
            additional,
            hostname: entry.hostname.to_owned(),
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
    // It stays for as long as the configuration does.
    all.shrink_to_fit();
    sound.then_some(all)
}

/// Every endpoint in the order of the document that can be read, and whether all can.
pub(super) fn entries<'m>(cx: &mut Lowering<'_>, cluster: &Reader<'m>) -> (Vec<Entry<'m>>, bool) {
    let Some(assignment) = cluster.message("load_assignment") else { return (Vec::new(), true) };
    assignment.ignore("cluster_name", "the endpoints stand in the cluster itself");
    let mut all = Vec::new();
    let mut sound = true;
    for locality in assignment.list("endpoints") {
        locality.ignore("proximity", "as in Envoy, where nothing reads it");
        let priority = locality.u32("priority");
        let place = self::locality(&locality);
        let list = locality.message("load_balancer_endpoints");
        let nested = list.iter().flat_map(|list| list.list("lb_endpoints"));
        for at in locality.list("lb_endpoints").into_iter().chain(nested) {
            match entry(cx, at, priority) {
                Some(entry) => all.push(Entry { locality: place.clone(), ..entry }),
                None => sound = false,
            }
        }
    }
    (all, sound)
}

/// Refuses weights that a ring or table of hosts cannot be reckoned from: those of the hosts of a priority, and those of its
/// localities, add up to a number of 32 bits.
pub(super) fn weights_fit(cx: &mut Lowering<'_>, cluster: &Reader<'_>, balancing: &Balancing) {
    const MOST: u64 = u32::MAX as u64;
    let by_hash = matches!(balancing.policy, LoadBalancing::RingHash(_) | LoadBalancing::Maglev(_));
    // Where requests name their hosts, Envoy does not look.
    if !by_hash || balancing.named.is_some() {
        return;
    }
    let Some(assignment) = cluster.message("load_assignment") else { return };
    let mut hosts: BTreeMap<u32, u64> = BTreeMap::new();
    // Of entries for one locality the last one counts.
    let mut localities: BTreeMap<u32, BTreeMap<[&str; 3], u64>> = BTreeMap::new();
    for locality in assignment.list("endpoints") {
        let priority = locality.u32("priority");
        let weight = |at: &Reader<'_>, otherwise| u64::from(at.u32_wrapper(WEIGHT).unwrap_or(otherwise));
        let names = locality.message("locality");
        let name = |field| names.as_ref().map_or("", |names| names.str(field));
        let of_priority = localities.entry(priority).or_default();
        of_priority.insert(["region", "zone", "sub_zone"].map(name), weight(&locality, 0));
        let sum: u64 = of_priority.values().sum();
        if sum > MOST {
            let text = format!("with this one, the weights of the localities of priority {priority} add up to {sum}");
            too_heavy(cx, &locality, text);
            return;
        }
        let sum = hosts.entry(priority).or_default();
        let nested = locality.message("load_balancer_endpoints");
        let nested = nested.iter().flat_map(|list| list.list("lb_endpoints"));
        for host in locality.list("lb_endpoints").into_iter().chain(nested) {
            *sum += weight(&host, 1);
            if *sum > MOST {
                let text = format!("with this one, the weights of the hosts of priority {priority} add up to {sum}");
                too_heavy(cx, &host, text);
                return;
            }
        }
    }
}

fn too_heavy(cx: &mut Lowering<'_>, at: &Reader<'_>, text: String) {
    let diagnostic = at.diagnostic_at(WEIGHT, Severity::Error, "invalid-weight", text);
    cx.push(diagnostic.expected("a sum of at most 4294967295").help("divide all weights by the same number"));
}

/// Where the endpoints of a group stand, and what they weigh together.
fn locality(at: &Reader<'_>) -> Option<Arc<Locality>> {
    let names = at.message("locality");
    let weight = at.u32_wrapper(WEIGHT);
    let metadata = Some(metadata::with_messages(at)).filter(|metadata| !metadata.is_empty()).map(Arc::new);
    if names.is_none() && weight.is_none() && metadata.is_none() {
        return None;
    }
    let name = |field| names.as_ref().map(|names| names.str(field).to_owned()).unwrap_or_default();
    let (region, zone, sub_zone) = (name("region"), name("zone"), name("sub_zone"));
    Some(Arc::new(Locality { region, zone, sub_zone, weight: weight.unwrap_or(0), metadata }))
}

fn entry<'m>(cx: &mut Lowering<'_>, at: Reader<'m>, priority: u32) -> Option<Entry<'m>> {
    let metadata = metadata::with_messages(&at);
    let hash_key = match metadata.get("envoy.lb", "hash_key") {
        Some(Value::String(key)) if !key.is_empty() => Some(key.clone()),
        _ => None,
    };
    let (health, leaving) = match at.enum_name("health_status").as_str() {
        "UNHEALTHY" => (EndpointHealth::Unhealthy, None),
        "DRAINING" => (EndpointHealth::Unhealthy, Some(Leaving::Draining)),
        "TIMEOUT" => (EndpointHealth::Unhealthy, Some(Leaving::TimedOut)),
        "DEGRADED" => (EndpointHealth::Degraded, None),
        _ => (EndpointHealth::Healthy, None),
    };
    let weight = at.u32_wrapper(WEIGHT).unwrap_or(1);
    let Some(endpoint) = at.message("endpoint") else {
        cx.missing(&at, "the entry has no endpoint", "`endpoint: {address: …}`");
        return None;
    };
    let own_check = endpoint.message("health_check_config");
    let check = own_check.as_ref().map(|config| health::of_endpoint(cx, config));
    let hostname = endpoint.str("hostname");
    let Some(address) = endpoint.message("address") else {
        cx.missing(&endpoint, "the endpoint has no address", "`address: {socket_address: …}`");
        return None;
    };
    let place = with_port(cx, &address)?;
    if let (Place::Literal(Address::Unix { .. }), Some(config)) = (&place, &own_check)
        && config.u32("port_value") != 0
    {
        cx.error(config, "port_value", "conflict", "the endpoint is a socket without a port, and is checked there");
        return None;
    }
    let mut additional = Vec::new();
    for at in endpoint.list("additional_addresses") {
        let Some(address) = at.message("address") else {
            cx.missing(&at, "the entry has no address", "`address: {socket_address: …}`");
            return None;
        };
        additional.push((with_port(cx, &address)?, at));
    }
    let check = check.map(Box::new);
    let metadata = (!metadata.is_empty()).then(|| Arc::new(metadata));
    Some(Entry {
        place,
        additional,
        hostname,
        weight,
        priority,
        health,
        leaving,
        check,
        locality: None,
        hash_key,
        metadata,
        at,
    })
}

/// The place of an endpoint.
fn with_port(cx: &mut Lowering<'_>, address: &Reader<'_>) -> Option<Place> {
    let place = address::place(cx, address)?;
    if let Place::Literal(Address::Tcp(socket)) = &place
        && socket.port() == 0
    {
        let diagnostic = address
            .diagnostic_at("socket_address", Severity::Error, "invalid-port", "an endpoint needs a port")
            .expected("`port_value` from 1 to 65535");
        cx.push(diagnostic);
        return None;
    }
    Some(place)
}

/// The place of the host of an entry of `lb_endpoints`.
pub(super) fn host_span(at: &Reader<'_>) -> Option<Span> {
    let socket = at.message("endpoint")?.message("address")?.message("socket_address")?;
    socket.span_of("address")
}
