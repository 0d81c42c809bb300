//! Functions about what an access logger is told: each takes the pointer that the module got with its logger. Outside the
//! hook that tells it a record, they find nothing.

use std::ffi::c_int;
use std::net::SocketAddr;
use std::time::SystemTime;

use postrider_filter_api::{Logged, StreamInfo, TlsSession, TraceReason};
use postrider_model::{CertificatePart, Value};

use super::facts;
use super::fields::{self, Map};
use super::metadata::{as_bool, as_number, as_text};
use super::moments::{Moments, Times, UNKNOWN, moments, nanoseconds, times};
use super::{Symbol, give, put};
use crate::abi::{Buffer, Header, map as kind};
use crate::logger::Telling;

/// Bytes as they passed a connection.
#[repr(C)]
struct WireSizes {
    received: u64,
    sent: u64,
}

/// Bytes, the last two as they passed the upstream's connection.
#[repr(C)]
struct Sizes {
    received: u64,
    sent: u64,
    wire_received: u64,
    wire_sent: u64,
}

about! {
    /// Their names.
    OF_RECORDS: Telling;
    envoy_dynamic_module_callback_access_logger_get_headers_size(map: c_int) -> usize
        = |told, map| headers(told, map).map_or(0, Map::count);
    envoy_dynamic_module_callback_access_logger_get_headers(map: c_int, out: *mut Header) -> bool
        = |told, map, out| headers(told, map).is_some_and(|map| map.put_all(&|text| told.lend(text), out));
    envoy_dynamic_module_callback_access_logger_get_header_value(map: c_int, name: Buffer, out: *mut Buffer, index: usize, count: *mut usize) -> bool
        = |told, map, name, out, index, count| fields::put_one(headers(told, map), &|text| told.lend(text), name, out, index, count);
    envoy_dynamic_module_callback_access_logger_has_response_flag(flag: c_int) -> bool
        = |told, flag| u32::try_from(flag).is_ok_and(|flag| flags(told).checked_shr(flag).unwrap_or(0) & 1 == 1);
    envoy_dynamic_module_callback_access_logger_get_response_flags() -> u64
        = |told| flags(told).into();
    envoy_dynamic_module_callback_access_logger_get_timing_info(out: *mut Times) -> ()
        = |told, out| put(out, times(told.info(), told.view()));
    envoy_dynamic_module_callback_access_logger_get_timing_info_v2(out: *mut Moments) -> ()
        = |told, out| put(out, moments(told.info(), told.view()));
    envoy_dynamic_module_callback_access_logger_get_bytes_info(out: *mut Sizes) -> ()
        = |told, out| put(out, sizes(told));
    envoy_dynamic_module_callback_access_logger_get_downstream_wire_bytes(out: *mut WireSizes) -> ()
        = |told, out| put(out, on_the_wire(told, Side::Client));
    envoy_dynamic_module_callback_access_logger_get_downstream_remote_address(out: *mut Buffer, port: *mut u32) -> bool
        = |told, out, port| put_address(told, out, port, |info| info.downstream_remote);
    envoy_dynamic_module_callback_access_logger_get_downstream_local_address(out: *mut Buffer, port: *mut u32) -> bool
        = |told, out, port| put_address(told, out, port, |info| info.downstream_local);
    envoy_dynamic_module_callback_access_logger_get_downstream_direct_remote_address(out: *mut Buffer, port: *mut u32) -> bool
        = |told, out, port| put_address(told, out, port, |info| info.downstream_direct_remote);
    envoy_dynamic_module_callback_access_logger_get_downstream_direct_local_address(out: *mut Buffer, port: *mut u32) -> bool
        = |told, out, port| put_address(told, out, port, StreamInfo::downstream_direct_local);
    envoy_dynamic_module_callback_access_logger_get_upstream_remote_address(out: *mut Buffer, port: *mut u32) -> bool
        = |told, out, port| put_address(told, out, port, upstream);
    envoy_dynamic_module_callback_access_logger_get_upstream_local_address(out: *mut Buffer, port: *mut u32) -> bool
        = |told, out, port| put_address(told, out, port, |info| info.upstream_local);
    envoy_dynamic_module_callback_access_logger_get_upstream_host(out: *mut Buffer) -> bool
        = |told, out| give(out, told.info().filter(|info| info.upstream_remote.is_some()).map(|info| host_name(told, info)));
    envoy_dynamic_module_callback_access_logger_get_upstream_cluster(out: *mut Buffer) -> bool
        = |told, out| give(out, told.info().and_then(|info| some(info.upstream_cluster.as_deref()?)));
    envoy_dynamic_module_callback_access_logger_get_upstream_connection_id() -> u64
        = |told| told.info().map_or(0, |info| info.upstream_connection_id);
    envoy_dynamic_module_callback_access_logger_get_upstream_protocol(out: *mut Buffer) -> bool
        = |told, out| give(out, told.info().filter(|info| told.http.get() && info.upstream_connection_id != 0).and_then(|info| some(info.upstream_protocol)));
    envoy_dynamic_module_callback_access_logger_get_upstream_pool_ready_duration_ns() -> i64
        = |told| told.info().and_then(|info| info.upstream_wait).map_or(UNKNOWN, |waited| i64::try_from(waited.as_nanos()).unwrap_or(i64::MAX));
    envoy_dynamic_module_callback_access_logger_get_downstream_tls_cipher(out: *mut Buffer) -> bool
        = |told, out| give(out, downstream_tls(told).and_then(|session| some(session.cipher)));
    envoy_dynamic_module_callback_access_logger_get_downstream_tls_session_id(out: *mut Buffer) -> bool
        = |_, _| false;
    envoy_dynamic_module_callback_access_logger_get_downstream_peer_issuer(out: *mut Buffer) -> bool
        = |told, out| give(out, first(told, downstream_tls(told), PEER, CertificatePart::Issuer));
    envoy_dynamic_module_callback_access_logger_get_downstream_peer_cert_v_start() -> i64
        = |told| validity(downstream_tls(told), |from, _| from);
    envoy_dynamic_module_callback_access_logger_get_downstream_peer_cert_v_end() -> i64
        = |told| validity(downstream_tls(told), |_, to| to);
    envoy_dynamic_module_callback_access_logger_get_downstream_peer_uri_san_size() -> usize
        = |told| all(downstream_tls(told), PEER, CertificatePart::UriNames).map_or(0, |names| names.len());
    envoy_dynamic_module_callback_access_logger_get_downstream_peer_uri_san(out: *mut Buffer) -> bool
        = |told, out| put_all(told, out, all(downstream_tls(told), PEER, CertificatePart::UriNames));
    envoy_dynamic_module_callback_access_logger_get_downstream_peer_dns_san_size() -> usize
        = |told| all(downstream_tls(told), PEER, CertificatePart::DnsNames).map_or(0, |names| names.len());
    envoy_dynamic_module_callback_access_logger_get_downstream_peer_dns_san(out: *mut Buffer) -> bool
        = |told, out| put_all(told, out, all(downstream_tls(told), PEER, CertificatePart::DnsNames));
    envoy_dynamic_module_callback_access_logger_get_downstream_local_uri_san_size() -> usize
        = |told| all(downstream_tls(told), OURS, CertificatePart::UriNames).map_or(0, |names| names.len());
    envoy_dynamic_module_callback_access_logger_get_downstream_local_uri_san(out: *mut Buffer) -> bool
        = |told, out| put_all(told, out, all(downstream_tls(told), OURS, CertificatePart::UriNames));
    envoy_dynamic_module_callback_access_logger_get_downstream_local_dns_san_size() -> usize
        = |told| all(downstream_tls(told), OURS, CertificatePart::DnsNames).map_or(0, |names| names.len());
    envoy_dynamic_module_callback_access_logger_get_downstream_local_dns_san(out: *mut Buffer) -> bool
        = |told, out| put_all(told, out, all(downstream_tls(told), OURS, CertificatePart::DnsNames));
    envoy_dynamic_module_callback_access_logger_get_upstream_tls_cipher(out: *mut Buffer) -> bool
        = |told, out| give(out, upstream_tls(told).and_then(|session| some(session.cipher)));
    envoy_dynamic_module_callback_access_logger_get_upstream_tls_session_id(out: *mut Buffer) -> bool
        = |_, _| false;
    envoy_dynamic_module_callback_access_logger_get_upstream_peer_issuer(out: *mut Buffer) -> bool
        = |told, out| give(out, first(told, upstream_tls(told), PEER, CertificatePart::Issuer));
    envoy_dynamic_module_callback_access_logger_get_upstream_peer_cert_v_start() -> i64
        = |told| validity(upstream_tls(told), |from, _| from);
    envoy_dynamic_module_callback_access_logger_get_upstream_peer_cert_v_end() -> i64
        = |told| validity(upstream_tls(told), |_, to| to);
    envoy_dynamic_module_callback_access_logger_get_upstream_peer_uri_san_size() -> usize
        = |told| all(upstream_tls(told), PEER, CertificatePart::UriNames).map_or(0, |names| names.len());
    envoy_dynamic_module_callback_access_logger_get_upstream_peer_uri_san(out: *mut Buffer) -> bool
        = |told, out| put_all(told, out, all(upstream_tls(told), PEER, CertificatePart::UriNames));
    envoy_dynamic_module_callback_access_logger_get_upstream_peer_dns_san_size() -> usize
        = |told| all(upstream_tls(told), PEER, CertificatePart::DnsNames).map_or(0, |names| names.len());
    envoy_dynamic_module_callback_access_logger_get_upstream_peer_dns_san(out: *mut Buffer) -> bool
        = |told, out| put_all(told, out, all(upstream_tls(told), PEER, CertificatePart::DnsNames));
    envoy_dynamic_module_callback_access_logger_get_upstream_local_uri_san_size() -> usize
        = |told| all(upstream_tls(told), OURS, CertificatePart::UriNames).map_or(0, |names| names.len());
    envoy_dynamic_module_callback_access_logger_get_upstream_local_uri_san(out: *mut Buffer) -> bool
        = |told, out| put_all(told, out, all(upstream_tls(told), OURS, CertificatePart::UriNames));
    envoy_dynamic_module_callback_access_logger_get_upstream_local_dns_san_size() -> usize
        = |told| all(upstream_tls(told), OURS, CertificatePart::DnsNames).map_or(0, |names| names.len());
    envoy_dynamic_module_callback_access_logger_get_upstream_local_dns_san(out: *mut Buffer) -> bool
        = |told, out| put_all(told, out, all(upstream_tls(told), OURS, CertificatePart::DnsNames));
    envoy_dynamic_module_callback_access_logger_get_downstream_peer_serial(out: *mut Buffer) -> bool
        = |told, out| give(out, first(told, downstream_tls(told), PEER, CertificatePart::Serial));
    envoy_dynamic_module_callback_access_logger_get_downstream_peer_fingerprint_1(out: *mut Buffer) -> bool
        = |told, out| give(out, first(told, downstream_tls(told), PEER, CertificatePart::Sha1));
    envoy_dynamic_module_callback_access_logger_get_downstream_peer_cert_presented() -> bool
        = |told| downstream_tls(told).is_some_and(|session| session.peer.is_some());
    envoy_dynamic_module_callback_access_logger_get_downstream_peer_cert_validated() -> bool
        = |told| downstream_tls(told).and_then(|session| session.peer.as_ref()).is_some_and(|peer| peer.is_verified());
    envoy_dynamic_module_callback_access_logger_get_dynamic_metadata(namespace: Buffer, path: Buffer, out: *mut Buffer) -> bool
        = |told, namespace, path, out| give(out, noted(told, namespace, path).and_then(as_text));
    envoy_dynamic_module_callback_access_logger_get_dynamic_metadata_number(namespace: Buffer, path: Buffer, out: *mut f64) -> bool
        = |told, namespace, path, out| give(out, noted(told, namespace, path).and_then(as_number));
    envoy_dynamic_module_callback_access_logger_get_dynamic_metadata_bool(namespace: Buffer, path: Buffer, out: *mut bool) -> bool
        = |told, namespace, path, out| give(out, noted(told, namespace, path).and_then(as_bool));
    // Of these, Envoy's loggers are told nothing either.
    envoy_dynamic_module_callback_access_logger_get_filter_state(key: Buffer, out: *mut Buffer) -> bool
        = |_, _, _| false;
    envoy_dynamic_module_callback_access_logger_get_local_reply_body(out: *mut Buffer) -> bool
        = |_, _| false;
    envoy_dynamic_module_callback_access_logger_get_trace_id(out: *mut Buffer) -> bool
        = |_, _| false;
    envoy_dynamic_module_callback_access_logger_get_span_id(out: *mut Buffer) -> bool
        = |_, _| false;
    envoy_dynamic_module_callback_access_logger_is_trace_sampled() -> bool
        = |told| told.info().and_then(StreamInfo::trace).is_some_and(|trace| trace.reason != TraceReason::None);
    envoy_dynamic_module_callback_access_logger_get_ja3_hash(out: *mut Buffer) -> bool
        = |told, out| give(out, downstream_tls(told).and_then(|session| some(session.ja3.as_deref()?)));
    envoy_dynamic_module_callback_access_logger_get_ja4_hash(out: *mut Buffer) -> bool
        = |told, out| give(out, downstream_tls(told).and_then(|session| some(session.ja4.as_deref()?)));
    envoy_dynamic_module_callback_access_logger_get_request_headers_bytes() -> u64
        = |told| headers(told, kind::REQUEST_HEADERS).map_or(0, |map| map.bytes(&|text| told.lend(text)));
    envoy_dynamic_module_callback_access_logger_get_response_headers_bytes() -> u64
        = |told| headers(told, kind::RESPONSE_HEADERS).map_or(0, |map| map.bytes(&|text| told.lend(text)));
    envoy_dynamic_module_callback_access_logger_get_response_trailers_bytes() -> u64
        = |told| headers(told, kind::RESPONSE_TRAILERS).map_or(0, |map| map.bytes(&|text| told.lend(text)));
    envoy_dynamic_module_callback_access_logger_get_attribute_string(attribute: c_int, out: *mut Buffer) -> bool
        = |told, attribute, out| give(out, text(told, attribute));
    envoy_dynamic_module_callback_access_logger_get_attribute_int(attribute: c_int, out: *mut u64) -> bool
        = |told, attribute, out| give(out, number(told, attribute));
    envoy_dynamic_module_callback_access_logger_get_attribute_bool(attribute: c_int, out: *mut bool) -> bool
        = |told, attribute, out| give(out, truth(told, attribute));
    envoy_dynamic_module_callback_access_logger_get_response_code_details(out: *mut Buffer) -> bool
        = |told, out| give(out, text(told, 16));
    envoy_dynamic_module_callback_access_logger_get_protocol(out: *mut Buffer) -> bool
        = |told, out| give(out, text(told, 10));
    envoy_dynamic_module_callback_access_logger_get_route_name(out: *mut Buffer) -> bool
        = |told, out| give(out, text(told, 61));
    envoy_dynamic_module_callback_access_logger_get_virtual_cluster_name(out: *mut Buffer) -> bool
        = |told, out| give(out, text(told, 69));
    envoy_dynamic_module_callback_access_logger_get_connection_termination_details(out: *mut Buffer) -> bool
        = |told, out| give(out, text(told, 40));
    envoy_dynamic_module_callback_access_logger_get_upstream_transport_failure_reason(out: *mut Buffer) -> bool
        = |told, out| give(out, text(told, 52));
    envoy_dynamic_module_callback_access_logger_get_upstream_tls_version(out: *mut Buffer) -> bool
        = |told, out| give(out, text(told, 43));
    envoy_dynamic_module_callback_access_logger_get_upstream_peer_subject(out: *mut Buffer) -> bool
        = |told, out| give(out, text(told, 45));
    envoy_dynamic_module_callback_access_logger_get_upstream_local_subject(out: *mut Buffer) -> bool
        = |told, out| give(out, text(told, 44));
    envoy_dynamic_module_callback_access_logger_get_upstream_peer_cert_digest(out: *mut Buffer) -> bool
        = |told, out| give(out, text(told, 50));
    envoy_dynamic_module_callback_access_logger_get_requested_server_name(out: *mut Buffer) -> bool
        = |told, out| give(out, text(told, 30));
    envoy_dynamic_module_callback_access_logger_get_downstream_tls_version(out: *mut Buffer) -> bool
        = |told, out| give(out, text(told, 31));
    envoy_dynamic_module_callback_access_logger_get_downstream_peer_subject(out: *mut Buffer) -> bool
        = |told, out| give(out, text(told, 33));
    envoy_dynamic_module_callback_access_logger_get_downstream_peer_cert_digest(out: *mut Buffer) -> bool
        = |told, out| give(out, text(told, 38));
    envoy_dynamic_module_callback_access_logger_get_downstream_local_subject(out: *mut Buffer) -> bool
        = |told, out| give(out, text(told, 32));
    envoy_dynamic_module_callback_access_logger_get_request_id(out: *mut Buffer) -> bool
        = |told, out| give(out, text(told, 9));
    envoy_dynamic_module_callback_access_logger_get_downstream_transport_failure_reason(out: *mut Buffer) -> bool
        = |told, out| give(out, text(told, 39));
    envoy_dynamic_module_callback_access_logger_get_response_code() -> u32
        = |told| told.info().map_or(0, |info| info.status.into());
    envoy_dynamic_module_callback_access_logger_get_attempt_count() -> u32
        = |told| told.info().map_or(0, attempts);
    envoy_dynamic_module_callback_access_logger_get_connection_id() -> u64
        = |told| told.info().map_or(0, |info| info.connection_id);
    envoy_dynamic_module_callback_access_logger_is_mtls() -> bool
        = |told| truth(told, 29) == Some(true);
    envoy_dynamic_module_callback_access_logger_is_health_check() -> bool
        = |told| truth(told, 67) == Some(true);
    envoy_dynamic_module_callback_access_logger_get_worker_index() -> u32
        = |told| told.worker;
}

/// Whose certificate.
const PEER: bool = true;
const OURS: bool = false;

fn some(text: &str) -> Option<Buffer> {
    (!text.is_empty()).then(|| Buffer::of(text.as_bytes()))
}

fn headers(told: &Telling, map: c_int) -> Option<Map<'_>> {
    let record = told.record().filter(|_| told.http.get())?;
    Some(match map {
        // A head that cannot be understood has no method.
        kind::REQUEST_HEADERS if !record.request.method_bytes().is_empty() => Map::Request(record.request),
        kind::RESPONSE_HEADERS if record.info.status != 0 => Map::Response(record.response),
        kind::RESPONSE_TRAILERS if !record.response_trailers.is_empty() => Map::Plain(record.response_trailers),
        _ => return None,
    })
}

fn flags(told: &Telling) -> u32 {
    told.info().map_or(0, |info| info.flags.bits())
}

fn sizes(told: &Telling) -> Sizes {
    let (received, sent) = told.info().map_or((0, 0), |info| (info.bytes_received, info.bytes_sent));
    let wire = on_the_wire(told, Side::Upstream);
    Sizes { received, sent, wire_received: wire.received, wire_sent: wire.sent }
}

enum Side {
    Client,
    Upstream,
}

/// Of a connection that is carried without being read, its bytes are what passes.
fn on_the_wire(told: &Telling, side: Side) -> WireSizes {
    let bytes = told.info().map(|info| {
        let metered = info.meters.as_deref().filter(|_| told.http.get());
        match (side, metered) {
            (Side::Client, Some(meters)) => (meters.downstream.received.wire, meters.downstream.sent.wire),
            (Side::Upstream, Some(meters)) => (meters.upstream.received.wire, meters.upstream.sent.wire),
            _ if told.http.get() => (0, 0),
            // Of one that carries requests they are those of the requests.
            _ if is_read(info) => (0, 0),
            (Side::Client, None) => (info.bytes_received, info.bytes_sent),
            (Side::Upstream, None) if info.upstream_connection_id != 0 => (info.bytes_sent, info.bytes_received),
            _ => (0, 0),
        }
    });
    let (received, sent) = bytes.unwrap_or_default();
    WireSizes { received, sent }
}

/// # Safety
/// There is room for both.
unsafe fn put_address(
    told: &Telling,
    out: *mut Buffer,
    port: *mut u32,
    of: impl FnOnce(&StreamInfo) -> Option<SocketAddr>,
) -> bool {
    let Some(address) = told.info().and_then(of) else { return false };
    // SAFETY: by the contract above.
    unsafe {
        put(out, told.lend(address.ip().to_string()));
        put(port, address.port().into());
    }
    true
}

fn upstream(info: &StreamInfo) -> Option<SocketAddr> {
    info.upstream_remote.as_deref()?.parse().ok()
}

/// Empty where it has none.
fn host_name(told: &Telling, info: &StreamInfo) -> Buffer {
    let host = info.upstream_host().filter(|host| !host.hostname.is_empty());
    host.map_or(Buffer::NOTHING, |host| told.lend(host.hostname.as_str()))
}

fn downstream_tls(told: &Telling) -> Option<&TlsSession> {
    told.info()?.tls.as_deref()
}

fn upstream_tls(told: &Telling) -> Option<&TlsSession> {
    told.info()?.upstream_tls.as_deref()
}

fn all(session: Option<&TlsSession>, peer: bool, part: CertificatePart) -> Option<Vec<String>> {
    session.map(|session| if peer { session.of_peer(part) } else { session.of_us(part) })
}

fn first(told: &Telling, session: Option<&TlsSession>, peer: bool, part: CertificatePart) -> Option<Buffer> {
    let value = all(session, peer, part)?.into_iter().next()?;
    (!value.is_empty()).then(|| told.lend(value))
}

/// # Safety
/// There is room for as many as the function says that counts them.
unsafe fn put_all(told: &Telling, out: *mut Buffer, values: Option<Vec<String>>) -> bool {
    let Some(values) = values else { return false };
    for (at, value) in values.into_iter().enumerate() {
        // SAFETY: by the contract above.
        unsafe { put(out.add(at), told.lend(value)) };
    }
    true
}

/// In seconds since 1970; 0 without a certificate.
fn validity(session: Option<&TlsSession>, of: fn(SystemTime, SystemTime) -> SystemTime) -> i64 {
    let times = session.and_then(|session| session.peer.as_ref()?.validity());
    times.map_or(0, |(from, to)| nanoseconds(of(from, to)) / 1_000_000_000)
}

/// What was noted under a path, whose steps are between dots.
fn noted(told: &Telling, namespace: Buffer, path: Buffer) -> Option<&Value> {
    // SAFETY: the module's texts are there for the time of its call.
    let (namespace, path) = unsafe { (namespace.bytes(), path.bytes()) };
    let (namespace, path) = (std::str::from_utf8(namespace).ok()?, std::str::from_utf8(path).ok()?);
    path.split('.').try_fold(told.info()?.metadata.namespace(namespace)?, |value, step| match value {
        Value::Map(entries) => entries.iter().find(|(key, _)| key == step).map(|(_, value)| value),
        _ => None,
    })
}

/// Texts, by the interface's numbers for Envoy's attributes: those that Envoy has for loggers, as it has them there.
fn text(told: &Telling, attribute: c_int) -> Option<Buffer> {
    let info = told.info()?;
    let address = |address: Option<SocketAddr>| Some(told.lend(address?.to_string()));
    let down = |peer, part| first(told, info.tls.as_deref(), peer, part);
    let up = |peer, part| first(told, info.upstream_tls.as_deref(), peer, part);
    match attribute {
        9 => told.id(),
        10 => protocol(told),
        16 => some(&info.details),
        24 => address(info.downstream_remote),
        26 => address(info.downstream_local),
        30 => some(info.requested_server_name()?),
        31 => some(info.tls.as_deref()?.version),
        32 => down(OURS, CertificatePart::Subject),
        33 => down(PEER, CertificatePart::Subject),
        34 => down(OURS, CertificatePart::DnsNames),
        35 => down(PEER, CertificatePart::DnsNames),
        36 => down(OURS, CertificatePart::UriNames),
        37 => down(PEER, CertificatePart::UriNames),
        38 => down(PEER, CertificatePart::Sha256),
        39 => some(info.downstream_failure.as_deref()?),
        40 => some(&info.termination_details),
        41 => some(info.upstream_remote.as_deref()?),
        43 => some(info.upstream_tls.as_deref()?.version),
        44 => up(OURS, CertificatePart::Subject),
        45 => up(PEER, CertificatePart::Subject),
        46 => up(OURS, CertificatePart::DnsNames),
        47 => up(PEER, CertificatePart::DnsNames),
        48 => up(OURS, CertificatePart::UriNames),
        49 => up(PEER, CertificatePart::UriNames),
        50 => up(PEER, CertificatePart::Sha256),
        51 => Some(told.lend(info.upstream_local?.to_string())),
        52 => some(info.upstream_failure.as_deref()?),
        61 => {
            // A route without a name has an empty one.
            let unnamed = told.record()?.route.map(|_| "");
            info.route_name.as_deref().or(unnamed).map(|name| Buffer::of(name.as_bytes()))
        }
        57 => some(info.upstream_cluster.as_deref()?),
        63 if !info.logged.is_try() => some(info.virtual_host.as_deref()?),
        66 => Some(Buffer::of(info.filter_chain.as_deref().unwrap_or_default().as_bytes())),
        69 => some(info.virtual_cluster.as_deref()?),
        _ => None,
    }
}

/// A connection that carries requests.
fn is_read(info: &StreamInfo) -> bool {
    matches!(info.logged, Logged::OfListener(protocol) if !protocol.is_empty())
}

/// A try does not know which one it is.
fn attempts(info: &StreamInfo) -> u32 {
    if info.logged.is_try() { 0 } else { info.upstream_attempts }
}

/// What the client speaks, and of a try what the upstream does.
fn protocol(told: &Telling) -> Option<Buffer> {
    let record = told.record()?;
    match record.info.logged {
        Logged::OfListener(protocol) => some(protocol),
        logged if logged.is_try() => some(record.info.upstream_protocol),
        _ if told.http.get() => some(record.request.version().as_str()),
        _ => None,
    }
}

fn number(told: &Telling, attribute: c_int) -> Option<u64> {
    let info = told.info()?;
    let port = |address: Option<SocketAddr>| Some(u64::from(address?.port()));
    match attribute {
        _ if facts::is_of_messages(attribute) && !told.http.get() && !is_read(info) => None,
        13 | 14 | 17 | 21 | 22 | 59 => facts::number_of(info, attribute),
        15 if info.status != 0 => Some(info.status.into()),
        25 => port(info.downstream_remote),
        27 => port(info.downstream_local),
        28 => Some(info.connection_id),
        42 => port(upstream(info)),
        53 => Some(attempts(info).into()),
        _ => None,
    }
}

fn truth(told: &Telling, attribute: c_int) -> Option<bool> {
    let info = told.info()?;
    match attribute {
        29 => Some(info.tls.as_deref()?.peer.is_some()),
        67 => Some(info.is_health_check),
        _ => None,
    }
}
