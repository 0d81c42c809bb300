//! Active health checks of a cluster, and how the health of its hosts counts (`HealthCheck`, `CommonLbConfig`).

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use postrider_config_core::Severity;
use postrider_model::{
    AccessLogSink, CheckIntervals, CheckKind, EndpointCheck, GrpcCheck, HeaderCondition, HeaderMatch, HealthCheck,
    HealthRules, HttpCheck, Metadata, RedisCheck, StatusRange, TRANSPORT_LABELS, TcpCheck, ThriftCheck, ThriftProtocol,
    ThriftTransport, UdpCheck,
};

use super::context::Lowering;
use super::{address, headers, matchers, proxy_header, value};
use crate::reader::Reader;

/// Defaults of `HealthCheck`.
const IDLE_INTERVAL: Duration = Duration::from_secs(60);
const LOOK_AT: u64 = 1024;

/// By this services know Envoy's checks, and keep them out of their logs.
const USER_AGENT: &str = "Envoy/HC";

const REDIS: &str = "envoy.extensions.health_checkers.redis.v3.Redis";
const THRIFT: &str = "envoy.extensions.health_checkers.thrift.v3.Thrift";
const UDP: &str = "envoy.extensions.health_checkers.udp.v3.UdpHealthCheck";

const FILE_SINK: &str = "envoy.extensions.health_check.event_sinks.file.v3.HealthCheckEventFileSink";

pub(super) fn rules(cx: &mut Lowering<'_>, at: &Reader<'_>) -> HealthRules {
    let mut rules = HealthRules { drops_removed: at.bool("ignore_health_on_host_removal"), ..HealthRules::default() };
    if let Some(common) = at.message("common_lb_config") {
        common_lb(&common, &mut rules);
    }
    let checks = at.list("health_checks");
    match checks.as_slice() {
        [] => at.ignore("close_connections_on_host_health_failure", "there are no health checks"),
        all => {
            rules.closes_connections = at.bool("close_connections_on_host_health_failure");
            names(cx, all);
            rules.checks = all.iter().filter_map(|each| check(cx, each)).collect();
        }
    }
    rules
}

/// Several checks are told apart by their names.
fn names(cx: &mut Lowering<'_>, checks: &[Reader<'_>]) {
    for (index, check) in checks.iter().enumerate().filter(|_| checks.len() > 1) {
        let name = check.str("name");
        if name.is_empty() {
            let text = "one of several health checks needs a name";
            cx.missing(check, text, "`name`, under which its statistics are found");
        } else if checks.iter().take(index).any(|earlier| earlier.str("name") == name) {
            cx.error(
                check,
                "name",
                "duplicate-name",
                format!("another health check of this cluster is called `{name}`"),
            );
        }
    }
}

fn common_lb(at: &Reader<'_>, rules: &mut HealthRules) {
    if let Some(threshold) = at.message("healthy_panic_threshold") {
        // Envoy counts whole percents.
        rules.panic_threshold = threshold.f64("value").floor();
    }
    rules.ignores_unchecked = at.bool("ignore_new_hosts_until_first_hc");
    at.ignore("update_merge_window", "changes of endpoints are taken over at once");
}

fn check(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Option<HealthCheck> {
    cx.no_effect(at, "alt_port", "as in Envoy; `health_check_config: {port_value: …}` of an endpoint has one");
    if at.has("event_service") {
        cx.refuse(at, "event_service", "events of health checks over gRPC");
    }
    let kind = match at.oneof("health_checker") {
        Some("http_health_check") => {
            http(cx, &at.message("http_health_check")?).map(|http| CheckKind::Http(Box::new(http)))
        }
        Some("tcp_health_check") => tcp(cx, &at.message("tcp_health_check")?).map(CheckKind::Tcp),
        Some("grpc_health_check") => Some(CheckKind::Grpc(grpc(cx, &at.message("grpc_health_check")?))),
        Some("custom_health_check") => custom(cx, &at.message("custom_health_check")?),
        Some(other) => {
            cx.refuse(at, other, "this kind of health check");
            None
        }
        // The loader has said that one is required.
        None => None,
    };
    let threshold = |field| at.u32_wrapper(field).unwrap_or(1).max(1);
    Some(HealthCheck {
        name: at.str("name").to_owned(),
        timeout: at.duration("timeout").unwrap_or(Duration::from_secs(1)),
        intervals: intervals(at),
        unhealthy_threshold: threshold("unhealthy_threshold"),
        healthy_threshold: threshold("healthy_threshold"),
        reuse_connection: at.bool_wrapper("reuse_connection").unwrap_or(true),
        alpn: alpn(at),
        transport_by: transport(at),
        user_agent: USER_AGENT.to_owned(),
        event_logs: event_logs(cx, at),
        logs_every_failure: at.bool("always_log_health_check_failures"),
        logs_every_success: at.bool("always_log_health_check_success"),
        kind: kind?,
    })
}

/// An empty list changes nothing, in Envoy, too.
fn alpn(at: &Reader<'_>) -> Vec<String> {
    let options = at.message("tls_options");
    options.iter().flat_map(|options| options.strings("alpn_protocols")).map(|name| name.value.to_owned()).collect()
}

/// `transport_socket_match_criteria`, as if it were said of the host.
fn transport(at: &Reader<'_>) -> Option<Arc<Metadata>> {
    const FIELD: &str = "transport_socket_match_criteria";
    at.whole(FIELD);
    let said = value::value(at.as_message().message(FIELD)?);
    Some(Arc::new([(TRANSPORT_LABELS.to_owned(), said)].into_iter().collect()))
}

fn intervals(at: &Reader<'_>) -> CheckIntervals {
    let healthy = at.duration("interval").unwrap_or(IDLE_INTERVAL);
    let unhealthy = at.duration("unhealthy_interval").unwrap_or(healthy);
    let idle = at.duration("no_traffic_interval").unwrap_or(IDLE_INTERVAL);
    CheckIntervals {
        healthy,
        unhealthy,
        healthy_edge: at.duration("healthy_edge_interval").unwrap_or(healthy),
        unhealthy_edge: at.duration("unhealthy_edge_interval").unwrap_or(unhealthy),
        idle,
        idle_healthy: at.duration("no_traffic_healthy_interval").unwrap_or(idle),
        jitter: at.duration("interval_jitter").unwrap_or_default(),
        jitter_percent: at.u32("interval_jitter_percent"),
        initial_jitter: at.duration("initial_jitter").unwrap_or_default(),
    }
}

/// The files of `event_log_path` and of the event loggers.
fn event_logs(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Vec<AccessLogSink> {
    let mut paths = vec![at.str("event_log_path").to_owned()];
    for logger in at.list("event_logger") {
        logger.str("name");
        let Some(any) = logger.any("typed_config") else { continue };
        match &any.reader {
            Some(config) if any.type_name == FILE_SINK => paths.push(config.str("event_log_path").to_owned()),
            _ => cx.refuse_extension(&logger, "typed_config", &any),
        }
    }
    let files = paths.into_iter().filter(|path| !path.is_empty());
    files.map(|path| AccessLogSink::File(PathBuf::from(path))).collect()
}

fn http(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Option<HttpCheck> {
    if at.has("use_alpn_protocol") {
        cx.refuse(at, "use_alpn_protocol", "a health check that speaks what ALPN agrees on");
    }
    let http2 = match at.enum_name("codec_client_type").as_str() {
        "HTTP3" => {
            cx.refuse_value(at, "codec_client_type", "a health check over HTTP/3");
            false
        }
        name => name == "HTTP2",
    };
    let service = at.message("service_name_matcher").map(|place| matchers::string(cx, &place));
    let service = match service {
        Some(condition) => Some(HeaderMatch {
            name: "x-envoy-upstream-healthchecked-cluster".to_owned(),
            condition: HeaderCondition::Value(condition?),
            invert: false,
            treat_missing_as_empty: true,
        }),
        None => None,
    };
    let method = at.enum_name("method");
    let expected = ranges(cx, at, "expected_statuses");
    let body = at.message("send").map(|send| payload(cx, &send)).unwrap_or_default();
    if !body.is_empty() && matches!(method.as_str(), "GET" | "HEAD" | "DELETE" | "TRACE" | "METHOD_UNSPECIFIED") {
        cx.error(at, "send", "invalid-method", format!("a check with a body needs `method: POST`, not {method}"));
    }
    let receive = payloads(cx, at, "receive");
    let look_at = at.u64_wrapper("response_buffer_size").unwrap_or(LOOK_AT);
    let wanted: usize = receive.iter().map(Vec::len).sum();
    if look_at != 0 && wanted as u64 > look_at {
        let message = format!("{wanted} bytes cannot be found in the {look_at} of an answer that are looked at");
        let diagnostic = at
            .diagnostic(Severity::Error, "invalid-payload", message)
            .help("raise `response_buffer_size`; 0 looks at the whole body");
        cx.push(diagnostic);
    }
    Some(HttpCheck {
        host: at.str("host").to_owned(),
        path: at.str("path").to_owned(),
        method: if method == "METHOD_UNSPECIFIED" { "GET".to_owned() } else { method },
        body,
        headers: headers::request_edits(cx, at),
        expected: if expected.is_empty() { vec![StatusRange { start: 200, end: 201 }] } else { expected },
        retriable: ranges(cx, at, "retriable_statuses"),
        receive,
        look_at,
        service,
        http2,
    })
}

fn ranges(cx: &mut Lowering<'_>, at: &Reader<'_>, field: &str) -> Vec<StatusRange> {
    let range = |cx: &mut Lowering<'_>, range: &Reader<'_>| {
        let (start, end) = (range.i64("start"), range.i64("end"));
        if start >= end || !(100..600).contains(&start) || end > 600 {
            let diagnostic = range
                .diagnostic(Severity::Error, "invalid-range", format!("{start} to {end} is no range of statuses"))
                .expected("`start` from 100, and a larger `end` of at most 600, which does not belong to it");
            cx.push(diagnostic);
            return None;
        }
        Some(StatusRange { start: u16::try_from(start).ok()?, end: u16::try_from(end).ok()? })
    };
    at.list(field).iter().filter_map(|place| range(cx, place)).collect()
}

fn tcp(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Option<TcpCheck> {
    let proxy_header = at.message("proxy_protocol_config").map(|config| proxy_header::header(cx, &config));
    let send = at.message("send").map(|send| payload(cx, &send)).unwrap_or_default();
    Some(TcpCheck { proxy_header, send, receive: payloads(cx, at, "receive") })
}

fn grpc(cx: &mut Lowering<'_>, at: &Reader<'_>) -> GrpcCheck {
    GrpcCheck {
        service: at.str("service_name").to_owned(),
        authority: at.str("authority").to_owned(),
        metadata: headers::additions(cx, at, "initial_metadata"),
    }
}

/// The health checkers among the extensions that exist here.
fn custom(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Option<CheckKind> {
    at.str("name");
    let Some(any) = at.any("typed_config") else {
        cx.missing(at, "the health checker has no `typed_config`", &format!("`@type` of {REDIS}"));
        return None;
    };
    match (any.type_name, &any.reader) {
        (REDIS, Some(config)) => Some(CheckKind::Redis(redis(cx, config))),
        (THRIFT, Some(config)) => thrift(cx, config).map(CheckKind::Thrift),
        (UDP, Some(config)) => {
            let mut datagram = |field| config.message(field).map(|at| payload(cx, &at)).unwrap_or_default();
            Some(CheckKind::Udp(UdpCheck { send: datagram("send"), receive: datagram("receive") }))
        }
        _ => {
            cx.refuse_extension(at, "typed_config", &any);
            None
        }
    }
}

fn redis(cx: &mut Lowering<'_>, at: &Reader<'_>) -> RedisCheck {
    if at.has("aws_iam") {
        cx.refuse(at, "aws_iam", "credentials of AWS for Redis");
    }
    RedisCheck { key: at.str("key").to_owned() }
}

/// What a transport or protocol is that is only found out cannot be asked for.
fn thrift(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Option<ThriftCheck> {
    let mut unknown = |field: &str, name: &str| {
        let text = format!("a check cannot be written in `{name}`");
        cx.error(at, field, "invalid-value", text);
    };
    let (transport, protocol) = (at.enum_name("transport"), at.enum_name("protocol"));
    let known_transport = match transport.as_str() {
        "FRAMED" => Some(ThriftTransport::Framed),
        "UNFRAMED" => Some(ThriftTransport::Unframed),
        "HEADER" => Some(ThriftTransport::Header),
        other => {
            unknown("transport", other);
            None
        }
    };
    let known_protocol = match protocol.as_str() {
        "BINARY" => Some(ThriftProtocol::Binary),
        "LAX_BINARY" => Some(ThriftProtocol::LaxBinary),
        "COMPACT" => Some(ThriftProtocol::Compact),
        other => {
            unknown("protocol", other);
            None
        }
    };
    let method = at.str("method_name").to_owned();
    Some(ThriftCheck { method, transport: known_transport?, protocol: known_protocol? })
}

fn payloads(cx: &mut Lowering<'_>, at: &Reader<'_>, field: &str) -> Vec<Vec<u8>> {
    at.list(field).iter().map(|place| payload(cx, place)).collect()
}

/// Bytes, or text that is their hexadecimal form.
fn payload(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Vec<u8> {
    if at.oneof("payload") == Some("binary") {
        return at.bytes("binary").to_vec();
    }
    let text = at.str("text");
    let digits: Option<Vec<u8>> =
        text.chars().map(|c| c.to_digit(16).and_then(|digit| u8::try_from(digit).ok())).collect();
    match digits {
        Some(digits) if digits.len() % 2 == 0 => {
            digits.chunks(2).map(|pair| pair.iter().fold(0, |byte, digit| byte << 4 | digit)).collect()
        }
        _ => {
            let diagnostic = at
                .diagnostic_at("text", Severity::Error, "invalid-payload", format!("`{text}` is no hexadecimal number"))
                .expected("two hexadecimal digits for each byte, such as `50494e47` for PING; or `binary` in base64");
            cx.push(diagnostic);
            Vec::new()
        }
    }
}

/// `health_check_config` of an endpoint.
pub(super) fn of_endpoint(cx: &mut Lowering<'_>, at: &Reader<'_>) -> EndpointCheck {
    let port = u16::try_from(at.u32("port_value")).ok().filter(|port| *port != 0);
    let address = at.message("address").and_then(|place| match address::place(cx, &place) {
        Some(address::Place::Literal(address)) => Some(address),
        Some(address::Place::Name { .. }) => {
            cx.error(at, "address", "invalid-address", "a name is not resolved for a health check: give an IP address");
            None
        }
        None => None,
    });
    EndpointCheck {
        port,
        address,
        hostname: at.str("hostname").to_owned(),
        disabled: at.bool("disable_active_health_check"),
    }
}
