//! Endpoints of a `load_assignment`.

use postrider_model::{Address, Endpoint, EndpointCheck, EndpointHealth};

use super::address::{self, Place};
use super::context::Lowering;
use super::health;
use crate::reader::Reader;

/// One entry of `lb_endpoints` with its place.
pub(super) struct Entry<'m> {
    pub place: Place,
    pub hostname: &'m str,
    pub weight: u32,
    pub priority: u32,
    pub health: EndpointHealth,
    pub check: Option<Box<EndpointCheck>>,
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
                    .diagnostic_at("endpoint", postrider_config_core::Severity::Error, "invalid-address", text)
                    .at(host_span(&entry.at))
                    .expected("an IP address; or give the cluster `type: STRICT_DNS`");
                cx.push(diagnostic);
                sound = false;
                continue;
            }
        };
        all.push(Endpoint {
            address,
            hostname: entry.hostname.to_owned(),
            weight: entry.weight,
            priority: entry.priority,
            health: entry.health,
            check: entry.check,
        });
    }
    sound.then_some(all)
}

/// Every endpoint in the order of the document that can be read, and whether all can.
pub(super) fn entries<'m>(cx: &mut Lowering<'_>, cluster: &Reader<'m>) -> (Vec<Entry<'m>>, bool) {
    let Some(assignment) = cluster.message("load_assignment") else { return (Vec::new(), true) };
    assignment.ignore("cluster_name", "the endpoints stand in the cluster itself");
    let mut all = Vec::new();
    let mut sound = true;
    for locality in assignment.list("endpoints") {
        locality.ignore("locality", "endpoints are not chosen by locality");
        locality.ignore("load_balancing_weight", "endpoints are not chosen by locality");
        locality.ignore("proximity", "endpoints are not chosen by locality");
        locality.whole("metadata");
        locality.ignore("metadata", "no supported part reads it");
        let priority = locality.u32("priority");
        let list = locality.message("load_balancer_endpoints");
        let nested = list.iter().flat_map(|list| list.list("lb_endpoints"));
        for place in locality.list("lb_endpoints").into_iter().chain(nested) {
            match entry(cx, place, priority) {
                Some(entry) => all.push(entry),
                None => sound = false,
            }
        }
    }
    (all, sound)
}

fn entry<'m>(cx: &mut Lowering<'_>, at: Reader<'m>, priority: u32) -> Option<Entry<'m>> {
    at.whole("metadata");
    at.ignore("metadata", "no supported part reads it");
    let health = match at.enum_name("health_status").as_str() {
        "UNHEALTHY" | "DRAINING" | "TIMEOUT" => EndpointHealth::Unhealthy,
        "DEGRADED" => EndpointHealth::Degraded,
        _ => EndpointHealth::Healthy,
    };
    let weight = at.u32_wrapper("load_balancing_weight").unwrap_or(1);
    let Some(endpoint) = at.message("endpoint") else {
        cx.missing(&at, "the entry has no endpoint", "`endpoint: {address: …}`");
        return None;
    };
    let check = endpoint.message("health_check_config").map(|config| health::of_endpoint(cx, &config));
    let hostname = endpoint.str("hostname");
    let Some(address) = endpoint.message("address") else {
        cx.missing(&endpoint, "the endpoint has no address", "`address: {socket_address: …}`");
        return None;
    };
    let place = address::place(cx, &address)?;
    if let Place::Literal(Address::Tcp(socket)) = &place
        && socket.port() == 0
    {
        let diagnostic = address
            .diagnostic_at(
                "socket_address",
                postrider_config_core::Severity::Error,
                "invalid-port",
                "an endpoint needs a port",
            )
            .expected("`port_value` from 1 to 65535");
        cx.push(diagnostic);
        return None;
    }
    Some(Entry { place, hostname, weight, priority, health, check: check.map(Box::new), at })
}

/// The place of the host of an entry of `lb_endpoints`.
pub(super) fn host_span(at: &Reader<'_>) -> Option<postrider_config_core::Span> {
    let socket = at.message("endpoint")?.message("address")?.message("socket_address")?;
    socket.span_of("address")
}
