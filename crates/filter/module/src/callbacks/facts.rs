//! What is known of a stream, by the interface's numbers for Envoy's attributes.

use std::ffi::c_int;
use std::net::SocketAddr;

use postrider_filter_api::{RouteFacts, Stream, StreamInfo};
use postrider_http::{HeaderId, RequestHead, Scheme};
use postrider_model::{CertificatePart, Direction};

use super::{give, instance, put};
use crate::abi::{Buffer, StreamRef};
use crate::instance::Instance;

/// Texts: where they lie as they are, that place is handed out.
pub(super) unsafe fn text(handle: StreamRef, attribute: c_int, out: *mut Buffer) -> bool {
    // SAFETY: the caller is a module that follows the interface, here and below.
    let found = unsafe { instance(handle) }.and_then(|instance| {
        let info = instance.info()?;
        // SAFETY: no other function of this module's runs.
        let stream = unsafe { instance.stream() };
        let stream = stream.as_deref();
        let route = || of_route(instance, stream?, attribute);
        let known = || of_stream(&|text| instance.lend(text), info, attribute);
        let messages = match (&stream, instance.ended()) {
            (Some(stream), _) => Some((&*stream.request, stream.route)),
            (None, ended) => ended.map(|ended| (ended.request, ended.route)),
        };
        let said = messages.and_then(|(request, route)| of_messages(request, route, attribute));
        said.or_else(known).or_else(route)
    });
    // SAFETY: as above.
    found.map(|found| unsafe { put(out, found) }).is_some()
}

fn of_messages(request: &RequestHead, route: Option<&RouteFacts>, attribute: c_int) -> Option<Buffer> {
    let lent = |bytes: &[u8]| Some(Buffer::of(bytes));
    match attribute {
        0 => lent(request.path()),
        1 => lent(request.path_only()),
        2 => lent(request.authority()),
        3 => lent(request.scheme().map_or("http", Scheme::as_str).as_bytes()),
        4 => lent(request.method_bytes()),
        6 => lent(request.fields.get_name(b"referer")?),
        7 => lent(request.fields.get_name(b"user-agent")?),
        9 => lent(request.fields.get(HeaderId::XRequestId)?),
        10 => lent(request.version().as_str().as_bytes()),
        11 => lent(request.query()?),
        61 => lent(route?.name.as_deref().unwrap_or_default().as_bytes()),
        63 => lent(route?.virtual_host.as_bytes()),
        _ => None,
    }
}

/// What the route says before the upstream is chosen.
fn of_route(instance: &Instance, stream: &Stream<'_>, attribute: c_int) -> Option<Buffer> {
    (attribute == 57).then(|| stream.cluster()).flatten().map(|name| instance.lend(name.as_bytes()))
}

/// What is known of any stream or connection; `lend` keeps what lies nowhere else.
pub(super) fn of_stream(lend: &dyn Fn(String) -> Buffer, info: &StreamInfo, attribute: c_int) -> Option<Buffer> {
    let lent = |text: &str| Some(Buffer::of(text.as_bytes()));
    let address = |address: Option<SocketAddr>| Some(lend(address?.to_string()));
    let first = |values: Vec<String>| Some(lend(values.into_iter().next()?));
    let of_us = |part| info.tls.as_deref().map(|session| session.of_us(part)).unwrap_or_default();
    let of_peer = |part| info.tls.as_deref().map(|session| session.of_peer(part)).unwrap_or_default();
    let of_us_there = |part| info.upstream_tls.as_deref().map(|session| session.of_us(part)).unwrap_or_default();
    let of_upstream = |part| info.upstream_tls.as_deref().map(|session| session.of_peer(part)).unwrap_or_default();
    match attribute {
        16 if !info.details.is_empty() => lent(&info.details),
        24 => address(info.downstream_remote),
        26 => address(info.downstream_local),
        30 => lent(info.requested_server_name()?),
        31 => lent(info.tls.as_deref()?.version),
        32 => first(of_us(CertificatePart::Subject)),
        33 => first(of_peer(CertificatePart::Subject)),
        34 => first(of_us(CertificatePart::DnsNames)),
        35 => first(of_peer(CertificatePart::DnsNames)),
        36 => first(of_us(CertificatePart::UriNames)),
        37 => first(of_peer(CertificatePart::UriNames)),
        38 => first(of_peer(CertificatePart::Sha256)),
        39 => lent(info.downstream_failure.as_deref()?),
        40 if !info.termination_details.is_empty() => lent(&info.termination_details),
        41 => lent(info.upstream_remote.as_deref()?),
        43 => lent(info.upstream_tls.as_deref()?.version),
        44 => first(of_us_there(CertificatePart::Subject)),
        45 => first(of_upstream(CertificatePart::Subject)),
        46 => first(of_us_there(CertificatePart::DnsNames)),
        47 => first(of_upstream(CertificatePart::DnsNames)),
        48 => first(of_us_there(CertificatePart::UriNames)),
        49 => first(of_upstream(CertificatePart::UriNames)),
        50 => first(of_upstream(CertificatePart::Sha256)),
        51 => address(info.upstream_local),
        52 => lent(info.upstream_failure.as_deref()?),
        57 => lent(info.upstream_cluster.as_deref()?),
        61 => lent(info.route_name.as_deref()?),
        63 => lent(info.virtual_host.as_deref()?),
        66 => lent(info.filter_chain.as_deref().unwrap_or_default()),
        _ => None,
    }
}

/// Whole numbers.
pub(super) unsafe fn number(handle: StreamRef, attribute: c_int, out: *mut u64) -> bool {
    // SAFETY: as in `text`.
    let found = unsafe { instance(handle) }.and_then(|instance| number_of(instance.info()?, attribute));
    // SAFETY: as above.
    found.map(|found| unsafe { put(out, found) }).is_some()
}

pub(super) unsafe fn truth(handle: StreamRef, attribute: c_int, out: *mut bool) -> bool {
    // SAFETY: as in `text`.
    let found = unsafe { instance(handle) }.and_then(|instance| truth_of(instance.info()?, attribute));
    // SAFETY: as above.
    found.map(|found| unsafe { put(out, found) }).is_some()
}

/// Sizes of messages, which a connection whose bytes nobody reads has none of.
pub(super) fn is_of_messages(attribute: c_int) -> bool {
    matches!(attribute, 13 | 14 | 22)
}

pub(super) fn number_of(info: &StreamInfo, attribute: c_int) -> Option<u64> {
    let port = |address: Option<SocketAddr>| Some(u64::from(address?.port()));
    match attribute {
        13 => Some(info.bytes_received),
        14 => Some(info.bytes_received + info.request_head_bytes),
        15 if info.status != 0 => Some(u64::from(info.status)),
        17 => Some(u64::from(info.flags.bits())),
        21 => Some(info.bytes_sent),
        22 => Some(info.bytes_sent + info.response_head_bytes),
        25 => port(info.downstream_remote),
        27 => port(info.downstream_local),
        28 => Some(info.connection_id),
        42 => info.upstream_remote.as_deref()?.rsplit_once(':')?.1.parse().ok(),
        53 => Some(u64::from(info.upstream_attempts)),
        59 => Some(match info.surroundings.as_ref().map(|around| around.direction()) {
            None | Some(Direction::Unspecified) => 0,
            Some(Direction::Inbound) => 1,
            Some(Direction::Outbound) => 2,
        }),
        _ => None,
    }
}

pub(super) fn truth_of(info: &StreamInfo, attribute: c_int) -> Option<bool> {
    match attribute {
        29 => Some(info.tls.as_deref()?.peer.is_some()),
        67 => Some(info.is_health_check),
        _ => None,
    }
}

pub(super) unsafe fn direct_remote(handle: StreamRef, out: *mut Buffer) -> bool {
    // SAFETY: as in `text`.
    let address = unsafe { instance(handle) }.and_then(|instance| {
        let address = instance.info()?.downstream_direct_remote?;
        Some(instance.lend(address.to_string()))
    });
    // SAFETY: as in `text`.
    unsafe { give(out, address) }
}

pub(super) unsafe fn upstream_remote(handle: StreamRef, out: *mut Buffer) -> bool {
    // SAFETY: as in `text`.
    let instance = unsafe { instance(handle) };
    let address = instance.and_then(|instance| instance.info()?.upstream_remote.as_deref());
    // SAFETY: as in `text`.
    unsafe { give(out, address.map(|address| Buffer::of(address.as_bytes()))) }
}

pub(super) unsafe fn upstream_connection(handle: StreamRef) -> u64 {
    // SAFETY: as in `text`.
    let instance = unsafe { instance(handle) };
    instance.and_then(|instance| instance.info()).map_or(0, |info| info.upstream_connection_id)
}
