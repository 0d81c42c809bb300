//! What an access log service is told of one stream.

use std::net::SocketAddr;
use std::time::Duration;

use postrider_filter_api::{Flags, Hello, Moment, StreamInfo, TlsSession};
use postrider_grpc::core::address::Address as Place;
use postrider_grpc::core::socket_address::PortSpecifier;
use postrider_grpc::core::{Address, Locality, Metadata, Node as Who, Pipe, RequestMethod, SocketAddress, node};
use postrider_grpc::log::http_access_log_entry::HttpVersion;
use postrider_grpc::log::response_flags::{Unauthorized, unauthorized::Reason};
use postrider_grpc::log::tls_properties::certificate_properties::{SubjectAltName, subject_alt_name::San};
use postrider_grpc::log::tls_properties::{CertificateProperties, TlsVersion};
use postrider_grpc::log::{
    self, AccessLogCommon, AccessLogType, ConnectionProperties, HttpAccessLogEntry, HttpRequestProperties,
    HttpResponseProperties, ResponseFlags, TcpAccessLogEntry, TlsProperties,
};
use postrider_grpc::{to_any, to_struct};
use postrider_http::{Fields, Version};
use postrider_model::{CertificatePart, EntryKind, LogEntries, Node, Side, Way, WireBytes, WirePart};

use super::objects;
use crate::format::{Context, EntryMoment};
use crate::trace::value_of;

/// Appends the entry that `wanted` makes of a stream.
#[inline(never)]
pub(super) fn append(wanted: &LogEntries, context: &Context<'_>, out: &mut Vec<u8>) {
    match wanted.service.kind {
        EntryKind::Http => log::append(&http(wanted, context), out),
        EntryKind::Tcp => log::append(&tcp(wanted, context), out),
    }
}

/// Who the proxy says it is.
pub(crate) fn who(node: &Node) -> Who {
    let locality = Locality { region: node.region.clone(), zone: node.zone.clone(), sub_zone: node.sub_zone.clone() };
    let version = env!("CARGO_PKG_VERSION").to_owned();
    Who {
        id: node.id.clone(),
        cluster: node.cluster.clone(),
        metadata: matches!(&node.metadata, postrider_model::Value::Map(_)).then(|| to_struct(&node.metadata)),
        locality: (locality != Locality::default()).then_some(locality),
        user_agent_name: "postrider".to_owned(),
        user_agent_version_type: Some(node::UserAgentVersionType::UserAgentVersion(version)),
        ..Who::default()
    }
}

fn tcp(wanted: &LogEntries, context: &Context<'_>) -> TcpAccessLogEntry {
    let info = context.info;
    let connection = ConnectionProperties { received_bytes: info.bytes_received, sent_bytes: info.bytes_sent };
    TcpAccessLogEntry { common_properties: Some(common(wanted, context)), connection_properties: Some(connection) }
}

fn http(wanted: &LogEntries, context: &Context<'_>) -> HttpAccessLogEntry {
    let version = match context.request.version() {
        _ if !context.http => HttpVersion::ProtocolUnspecified,
        _ if context.info.logged.is_try() => spoken(context.info.upstream_protocol),
        Version::Http10 => HttpVersion::Http10,
        Version::Http11 => HttpVersion::Http11,
        Version::Http2 => HttpVersion::Http2,
    };
    HttpAccessLogEntry {
        common_properties: Some(common(wanted, context)),
        protocol_version: version as i32,
        request: Some(request(wanted, context)),
        response: Some(response(wanted, context)),
    }
}

/// What is spoken with an upstream, by its name; a try without a connection speaks nothing.
fn spoken(protocol: &str) -> HttpVersion {
    match protocol {
        "HTTP/1.1" => HttpVersion::Http11,
        "HTTP/2" => HttpVersion::Http2,
        _ => HttpVersion::ProtocolUnspecified,
    }
}

fn request(wanted: &LogEntries, context: &Context<'_>) -> HttpRequestProperties {
    let (head, info) = (context.request, context.info);
    let method = std::str::from_utf8(head.method_bytes()).ok().filter(|_| context.http);
    let scheme = head.scheme().map_or("http", |scheme| scheme.as_str());
    let field = |name: &str| head.fields.get_name(name.as_bytes()).map(text).unwrap_or_default();
    HttpRequestProperties {
        request_method: method.and_then(RequestMethod::from_str_name).unwrap_or_default() as i32,
        scheme: if context.http { scheme.to_owned() } else { String::new() },
        authority: text(head.authority()),
        path: text(head.path()),
        user_agent: field("user-agent"),
        referer: field("referer"),
        forwarded_for: field("x-forwarded-for"),
        request_id: field("x-request-id"),
        original_path: field("x-envoy-original-path"),
        request_headers_bytes: info.request_head_bytes,
        request_body_bytes: info.bytes_received,
        request_headers: picked(&wanted.request_headers, &head.fields, |name| match name {
            ":method" => head.method_bytes(),
            ":path" => head.path(),
            ":authority" => head.authority(),
            ":scheme" if context.http => scheme.as_bytes(),
            _ => b"",
        }),
        upstream_header_bytes_sent: head_bytes(Side::Upstream, Way::Sent, context),
        downstream_header_bytes_received: head_bytes(Side::Downstream, Way::Received, context),
        ..HttpRequestProperties::default()
    }
}

fn response(wanted: &LogEntries, context: &Context<'_>) -> HttpResponseProperties {
    let info = context.info;
    let status = info.status.to_string();
    HttpResponseProperties {
        response_code: (info.status != 0).then_some(u32::from(info.status)),
        response_headers_bytes: info.response_head_bytes,
        response_body_bytes: info.bytes_sent,
        response_headers: picked(&wanted.response_headers, &context.response.fields, |name| match name {
            ":status" if info.status != 0 => status.as_bytes(),
            _ => b"",
        }),
        response_trailers: picked(&wanted.response_trailers, context.trailers, |_| b""),
        response_code_details: info.details.to_string(),
        upstream_header_bytes_received: head_bytes(Side::Upstream, Way::Received, context),
        downstream_header_bytes_sent: head_bytes(Side::Downstream, Way::Sent, context),
    }
}

fn head_bytes(side: Side, way: Way, context: &Context<'_>) -> u64 {
    context.wire_bytes(WireBytes { side, way, part: WirePart::Head }).unwrap_or_default()
}

/// Those of the fields that are there, several values of one with commas between them. What begins with a colon stands before the
/// fields, and is empty where it is not there.
fn picked<'a>(
    names: &[String],
    fields: &Fields,
    before: impl Fn(&str) -> &'a [u8],
) -> std::collections::BTreeMap<String, String> {
    let value = |name: &String| {
        if name.starts_with(':') {
            let value = before(name);
            return (!value.is_empty()).then(|| (name.clone(), text(value)));
        }
        let values: Vec<String> = fields.get_all_name(name.as_bytes()).map(text).collect();
        (!values.is_empty()).then(|| (name.clone(), values.join(",")))
    };
    names.iter().filter_map(value).collect()
}

fn common(wanted: &LogEntries, context: &Context<'_>) -> AccessLogCommon {
    let info = context.info;
    let since =
        |moment: Option<Moment>| moment.and_then(|moment| lasted(moment.saturating_duration_since(info.started)));
    let kind = match context.kind() {
        EntryMoment::NotSet => AccessLogType::NotSet,
        EntryMoment::TcpConnectionStart => AccessLogType::TcpConnectionStart,
        EntryMoment::TcpUpstreamConnected => AccessLogType::TcpUpstreamConnected,
        EntryMoment::TcpPeriodic => AccessLogType::TcpPeriodic,
        EntryMoment::TcpConnectionEnd => AccessLogType::TcpConnectionEnd,
        EntryMoment::DownstreamStart => AccessLogType::DownstreamStart,
        EntryMoment::DownstreamPeriodic => AccessLogType::DownstreamPeriodic,
        EntryMoment::DownstreamTunnelEstablished => AccessLogType::DownstreamTunnelSuccessfullyEstablished,
        EntryMoment::DownstreamEnd => AccessLogType::DownstreamEnd,
        EntryMoment::UpstreamPoolReady => AccessLogType::UpstreamPoolReady,
        EntryMoment::UpstreamPeriodic => AccessLogType::UpstreamPeriodic,
        EntryMoment::UpstreamEnd => AccessLogType::UpstreamEnd,
    };
    let is_over = info.logged.is_over();
    let ended = info.ended.filter(|_| is_over);
    let wire = |side, way| context.wire_bytes(WireBytes { side, way, part: WirePart::All }).unwrap_or_default();
    let id = context.stream_id();
    #[allow(deprecated, reason = "services that know no types of entries count by it")]
    AccessLogCommon {
        downstream_remote_address: info.downstream_remote.map(address),
        downstream_local_address: info.downstream_local.map(address),
        downstream_direct_remote_address: info.downstream_direct_remote.map(address),
        tls_properties: info.tls.as_deref().map(tls).or_else(|| info.hello.as_deref().and_then(passed_on)),
        start_time: Some(info.start.into()),
        time_to_last_rx_byte: since(info.request_received),
        time_to_first_upstream_tx_byte: since(info.request_send_began),
        time_to_last_upstream_tx_byte: since(info.request_sent),
        time_to_first_upstream_rx_byte: since(info.response_began),
        time_to_last_upstream_rx_byte: since(info.response_received),
        time_to_first_downstream_tx_byte: since(info.response_send_began),
        time_to_last_downstream_tx_byte: since(ended.filter(|_| info.status != 0 && !info.logged.is_try())),
        duration: since(ended),
        upstream_remote_address: upstream(info),
        upstream_local_address: info.upstream_local.map(address),
        upstream_cluster: info.upstream_cluster.as_deref().unwrap_or_default().to_owned(),
        upstream_transport_failure_reason: info.upstream_failure.as_deref().unwrap_or_default().to_owned(),
        upstream_request_attempt_count: info.upstream_attempts,
        response_flags: (!info.flags.is_empty()).then(|| flags(info.flags)),
        metadata: (!info.metadata.is_empty()).then(|| Metadata {
            filter_metadata: info.metadata.iter().map(|(name, value)| (name.to_owned(), to_struct(value))).collect(),
            typed_filter_metadata: info.metadata.iter_typed().map(|(name, it)| (name.to_owned(), to_any(it))).collect(),
        }),
        route_name: info.route_name.as_deref().unwrap_or_default().to_owned(),
        connection_termination_details: info.termination_details.to_string(),
        stream_id: id.map(|id| text(&id)).unwrap_or_default(),
        access_log_type: kind as i32,
        intermediate_log_entry: !is_over,
        downstream_transport_failure_reason: info.downstream_failure.as_deref().unwrap_or_default().to_owned(),
        custom_tags: wanted.tags.iter().filter_map(|tag| Some((tag.name.clone(), value_of(tag, context)?))).collect(),
        downstream_wire_bytes_received: wire(Side::Downstream, Way::Received),
        downstream_wire_bytes_sent: wire(Side::Downstream, Way::Sent),
        upstream_wire_bytes_received: wire(Side::Upstream, Way::Received),
        upstream_wire_bytes_sent: wire(Side::Upstream, Way::Sent),
        filter_state_objects: objects::told(&wanted.objects, info),
        ..AccessLogCommon::default()
    }
}

fn lasted(time: Duration) -> Option<postrider_grpc::Duration> {
    time.try_into().ok()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn address(socket: SocketAddr) -> Address {
    let address = SocketAddress {
        address: socket.ip().to_string(),
        port_specifier: Some(PortSpecifier::PortValue(u32::from(socket.port()))),
        ..SocketAddress::default()
    };
    Address { address: Some(Place::SocketAddress(address)) }
}

fn upstream(info: &StreamInfo) -> Option<Address> {
    let remote = info.upstream_remote.as_deref()?;
    Some(match remote.parse() {
        Ok(socket) => address(socket),
        Err(_) => Address { address: Some(Place::Pipe(Pipe { path: remote.to_owned(), mode: 0 })) },
    })
}

fn tls(session: &TlsSession) -> TlsProperties {
    let version = match session.version {
        "TLSv1.2" => TlsVersion::TlSv12,
        "TLSv1.3" => TlsVersion::TlSv13,
        _ => TlsVersion::VersionUnspecified,
    };
    TlsProperties {
        tls_version: version as i32,
        tls_cipher_suite: Some(u32::from(session.cipher_id)),
        tls_sni_hostname: session.server_name.clone().unwrap_or_default(),
        local_certificate_properties: session.local.is_some().then(|| CertificateProperties {
            // As in Envoy: who signed the proxy's own is known.
            issuer: String::new(),
            ..certificate(|part| session.of_us(part))
        }),
        peer_certificate_properties: session.peer.is_some().then(|| certificate(|part| session.of_peer(part))),
        // Sessions are resumed by tickets: none has an identifier.
        tls_session_id: String::new(),
        ja3_fingerprint: session.ja3.clone().unwrap_or_default(),
    }
}

/// What was seen of TLS that nobody agreed on here; `None` where that is nothing.
fn passed_on(hello: &Hello) -> Option<TlsProperties> {
    let seen = TlsProperties {
        tls_sni_hostname: hello.server_name.clone().unwrap_or_default(),
        ja3_fingerprint: hello.ja3.clone().unwrap_or_default(),
        ..TlsProperties::default()
    };
    (seen != TlsProperties::default()).then_some(seen)
}

fn certificate(of: impl Fn(CertificatePart) -> Vec<String>) -> CertificateProperties {
    // As in Envoy, only what names workloads.
    let names = of(CertificatePart::UriNames).into_iter().map(San::Uri);
    let first = |part| of(part).into_iter().next().unwrap_or_default();
    CertificateProperties {
        subject_alt_name: names.map(|san| SubjectAltName { san: Some(san) }).collect(),
        subject: first(CertificatePart::Subject),
        issuer: first(CertificatePart::Issuer),
    }
}

fn flags(flags: Flags) -> ResponseFlags {
    let has = |flag| flags.contains(flag);
    ResponseFlags {
        failed_local_healthcheck: has(Flags::FAILED_LOCAL_HEALTH_CHECK),
        no_healthy_upstream: has(Flags::NO_HEALTHY_UPSTREAM),
        upstream_request_timeout: has(Flags::UPSTREAM_REQUEST_TIMEOUT),
        local_reset: has(Flags::LOCAL_RESET),
        upstream_remote_reset: has(Flags::UPSTREAM_REMOTE_RESET),
        upstream_connection_failure: has(Flags::UPSTREAM_CONNECTION_FAILURE),
        upstream_connection_termination: has(Flags::UPSTREAM_CONNECTION_TERMINATION),
        upstream_overflow: has(Flags::UPSTREAM_OVERFLOW),
        no_route_found: has(Flags::NO_ROUTE_FOUND),
        delay_injected: has(Flags::DELAY_INJECTED),
        fault_injected: has(Flags::FAULT_INJECTED),
        rate_limited: has(Flags::RATE_LIMITED),
        unauthorized_details: has(Flags::UNAUTHORIZED_EXTERNAL_SERVICE)
            .then_some(Unauthorized { reason: Reason::ExternalService as i32 }),
        rate_limit_service_error: has(Flags::RATE_LIMIT_SERVICE_ERROR),
        downstream_connection_termination: has(Flags::DOWNSTREAM_CONNECTION_TERMINATION),
        upstream_retry_limit_exceeded: has(Flags::UPSTREAM_RETRY_LIMIT_EXCEEDED),
        stream_idle_timeout: has(Flags::STREAM_IDLE_TIMEOUT),
        invalid_envoy_request_headers: has(Flags::INVALID_ENVOY_REQUEST_HEADERS),
        downstream_protocol_error: has(Flags::DOWNSTREAM_PROTOCOL_ERROR),
        upstream_max_stream_duration_reached: has(Flags::UPSTREAM_MAX_STREAM_DURATION_REACHED),
        response_from_cache_filter: has(Flags::RESPONSE_FROM_CACHE_FILTER),
        no_filter_config_found: has(Flags::NO_FILTER_CONFIG_FOUND),
        duration_timeout: has(Flags::DURATION_TIMEOUT),
        upstream_protocol_error: has(Flags::UPSTREAM_PROTOCOL_ERROR),
        no_cluster_found: has(Flags::NO_CLUSTER_FOUND),
        overload_manager: has(Flags::OVERLOAD_MANAGER),
        dns_resolution_failure: has(Flags::DNS_RESOLUTION_FAILED),
        downstream_remote_reset: has(Flags::DOWNSTREAM_REMOTE_RESET),
    }
}
