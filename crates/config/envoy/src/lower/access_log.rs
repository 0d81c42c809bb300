//! Access loggers and their formats.

use postrider_config_core::Diagnostic;
use postrider_model::cel::Allowed;
use postrider_model::{
    AccessLog, AccessLogSink, Compare, Comparison, EntryKind, Expression, Format, HeaderCondition, JsonFormat,
    LogCondition, LogFormat, LogOutput, StringKind, StringMatch,
};

use super::context::Lowering;
use super::{data, filters, log_service, matchers, otlp_log};
use crate::reader::Reader;

const FILE: &str = "envoy.extensions.access_loggers.file.v3.FileAccessLog";
const STDOUT: &str = "envoy.extensions.access_loggers.stream.v3.StdoutAccessLog";
const STDERR: &str = "envoy.extensions.access_loggers.stream.v3.StderrAccessLog";
const HTTP_SERVICE: &str = "envoy.extensions.access_loggers.grpc.v3.HttpGrpcAccessLogConfig";
const TCP_SERVICE: &str = "envoy.extensions.access_loggers.grpc.v3.TcpGrpcAccessLogConfig";

const COLLECTOR: &str = "envoy.extensions.access_loggers.open_telemetry.v3.OpenTelemetryAccessLogConfig";

/// Loggers that are plugins.
const PLUGINS: [&str; 2] = [
    "envoy.extensions.access_loggers.wasm.v3.WasmAccessLog",
    "envoy.extensions.access_loggers.dynamic_modules.v3.DynamicModuleAccessLog",
];

const EXPRESSION: &str = "envoy.extensions.access_loggers.filters.cel.v3.ExpressionFilter";

/// Envoy's `AccessLogType`, by number.
const KINDS: [&str; 15] = [
    "NotSet",
    "TcpUpstreamConnected",
    "TcpPeriodic",
    "TcpConnectionEnd",
    "DownstreamStart",
    "DownstreamPeriodic",
    "DownstreamEnd",
    "UpstreamPoolReady",
    "UpstreamPeriodic",
    "UpstreamEnd",
    "DownstreamTunnelSuccessfullyEstablished",
    "UdpTunnelUpstreamConnected",
    "UdpPeriodic",
    "UdpSessionEnd",
    "TcpConnectionStart",
];

/// The line that Envoy writes when no format is given.
const DEFAULT_FORMAT: &str = concat!(
    r#"[%START_TIME%] "%REQ(:METHOD)% %REQ(X-ENVOY-ORIGINAL-PATH?:PATH)% %PROTOCOL%" %RESPONSE_CODE% "#,
    r#"%RESPONSE_FLAGS% %BYTES_RECEIVED% %BYTES_SENT% %DURATION% %RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)% "#,
    r#""%REQ(X-FORWARDED-FOR)%" "%REQ(USER-AGENT)%" "%REQ(X-REQUEST-ID)%" "%REQ(:AUTHORITY)%" "%UPSTREAM_HOST%""#,
    "\n"
);

/// The parsed default line.
pub(super) fn default_format() -> Format {
    Format::parse(DEFAULT_FORMAT).unwrap_or_default()
}

/// Every logger of a repeated `envoy.config.accesslog.v3.AccessLog` field.
pub(super) fn loggers(cx: &mut Lowering<'_>, at: &Reader<'_>, field: &str) -> Vec<AccessLog> {
    at.list(field).iter().filter_map(|each| logger(cx, each, None)).collect()
}

/// The same of `whose`, which tells no service.
pub(super) fn line_loggers(cx: &mut Lowering<'_>, at: &Reader<'_>, field: &str, whose: &str) -> Vec<AccessLog> {
    at.list(field).iter().filter_map(|each| logger(cx, each, Some(whose))).collect()
}

fn logger(cx: &mut Lowering<'_>, log: &Reader<'_>, lines_of: Option<&str>) -> Option<AccessLog> {
    log.str("name");
    let condition = log.message("filter").and_then(|filter| condition(cx, &filter));
    let Some(any) = log.any("typed_config") else {
        cx.missing(log, "the access logger has no `typed_config`", "a `typed_config` with its `@type`");
        return None;
    };
    let config = any.reader.as_ref()?;
    let output = match (any.type_name, lines_of) {
        (FILE, _) => {
            let sink = match config.str("path") {
                "/dev/stdout" => AccessLogSink::Stdout,
                "/dev/stderr" => AccessLogSink::Stderr,
                path => AccessLogSink::File(path.into()),
            };
            LogOutput::Lines { sink, format: file_format(cx, config) }
        }
        (STDOUT, _) => LogOutput::Lines { sink: AccessLogSink::Stdout, format: stream_format(cx, config) },
        (STDERR, _) => LogOutput::Lines { sink: AccessLogSink::Stderr, format: stream_format(cx, config) },
        (HTTP_SERVICE | TCP_SERVICE | COLLECTOR, Some(whose)) => {
            cx.refuse(log, "typed_config", &format!("a service for the access log of {whose}"));
            return None;
        }
        (HTTP_SERVICE, None) => LogOutput::Entries(log_service::entries(cx, config, EntryKind::Http)?),
        (TCP_SERVICE, None) => LogOutput::Entries(log_service::entries(cx, config, EntryKind::Tcp)?),
        (COLLECTOR, None) => LogOutput::Records(Box::new(otlp_log::logger(cx, config)?)),
        (kind, Some(whose)) if PLUGINS.contains(&kind) => {
            cx.refuse(log, "typed_config", &format!("a plugin for the access log of {whose}"));
            return None;
        }
        (kind, None) if PLUGINS.contains(&kind) && cx.kinds.known(kind) => {
            LogOutput::Plugin(filters::whole_slot(cx, log, &any))
        }
        _ => {
            cx.refuse_extension(log, "typed_config", &any);
            return None;
        }
    };
    Some(AccessLog { output, condition })
}

/// `envoy.config.accesslog.v3.AccessLogFilter`.
pub(super) fn condition(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Option<LogCondition> {
    match at.oneof("filter_specifier") {
        Some("grpc_status_filter") => {
            let filter = at.message("grpc_status_filter")?;
            let codes = filter.enum_numbers("statuses").into_iter().filter_map(|code| u8::try_from(code.value).ok());
            Some(LogCondition::GrpcStatus { codes: codes.collect(), exclude: filter.bool("exclude") })
        }
        Some("response_flag_filter") => {
            let filter = at.message("response_flag_filter")?;
            Some(LogCondition::Flags(filter.strings("flags").iter().map(|flag| flag.value.to_owned()).collect()))
        }
        Some("status_code_filter") => {
            comparison(at.message("status_code_filter")?.message("comparison")?).map(LogCondition::Status)
        }
        Some("duration_filter") => {
            comparison(at.message("duration_filter")?.message("comparison")?).map(LogCondition::Duration)
        }
        Some("header_filter") => {
            let header = matchers::header(cx, &at.message("header_filter")?.message("header")?)?;
            if let HeaderCondition::Value(StringMatch { kind: StringKind::Custom { .. }, .. }) = header.condition {
                cx.refuse_value(at, "header_filter", "a plugin's condition in an access log filter");
                return None;
            }
            Some(LogCondition::Header(header))
        }
        Some("metadata_filter") => {
            let filter = at.message("metadata_filter")?;
            let if_absent = filter.bool_wrapper("match_if_key_not_found").unwrap_or(true);
            let Some(matcher) = filter.message("matcher") else {
                // Without a matcher nothing is ever found.
                return Some(if if_absent { LogCondition::All(Vec::new()) } else { LogCondition::Any(Vec::new()) });
            };
            Some(LogCondition::Metadata { matches: matchers::metadata(cx, &matcher)?, if_absent })
        }
        Some("runtime_filter") => {
            let filter = at.message("runtime_filter")?;
            filter.str("runtime_key");
            let independent = filter.bool("use_independent_randomness");
            let Some(share) = filter.message("percent_sampled") else {
                return Some(LogCondition::Share { parts: 0, of: 100, independent });
            };
            let of = match share.enum_name("denominator").as_str() {
                "TEN_THOUSAND" => 10_000,
                "MILLION" => 1_000_000,
                _ => 100,
            };
            Some(LogCondition::Share { parts: share.u32("numerator"), of, independent })
        }
        Some("not_health_check_filter") => {
            at.message("not_health_check_filter");
            Some(LogCondition::NotHealthCheck)
        }
        Some("traceable_filter") => {
            at.message("traceable_filter");
            Some(LogCondition::Traceable)
        }
        Some("log_type_filter") => {
            let filter = at.message("log_type_filter")?;
            let kinds = filter.enum_numbers("types").into_iter();
            let kinds = kinds.filter_map(|kind| KINDS.get(usize::try_from(kind.value).ok()?).copied()).collect();
            Some(LogCondition::Kinds { kinds, exclude: filter.bool("exclude") })
        }
        Some("extension_filter") => expression(cx, &at.message("extension_filter")?),
        Some("and_filter") => conditions(cx, &at.message("and_filter")?).map(LogCondition::All),
        Some("or_filter") => conditions(cx, &at.message("or_filter")?).map(LogCondition::Any),
        Some(other) => {
            cx.refuse(at, other, &format!("the condition `{other}` of an access logger"));
            None
        }
        None => {
            cx.missing(at, "the access logger's filter is empty", "a condition such as `grpc_status_filter`");
            None
        }
    }
}

/// `envoy.extensions.access_loggers.filters.cel.v3.ExpressionFilter`.
fn expression(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Option<LogCondition> {
    at.str("name");
    let Some(any) = at.any("typed_config") else {
        cx.missing(at, "the filter has no `typed_config`", "a `typed_config` with its `@type`");
        return None;
    };
    let (EXPRESSION, Some(config)) = (any.type_name, &any.reader) else {
        cx.refuse_extension(at, "typed_config", &any);
        return None;
    };
    let settings = config.message("cel_config");
    let allows = |field: &str| settings.as_ref().is_some_and(|settings| settings.bool(field));
    let allowed = Allowed {
        conversion: allows("enable_string_conversion"),
        concatenation: allows("enable_string_concat"),
        functions: allows("enable_string_functions"),
    };
    let text = config.str("expression");
    match Expression::parse(text, allowed) {
        Ok(expression) => Some(LogCondition::Expression(Box::new(expression))),
        Err(error) => {
            let place = cx.place_inside(config, "expression", text, error.offset);
            let path = config.path_of("expression");
            cx.push(Diagnostic::error("invalid-expression", error.message).at(place).path(path));
            None
        }
    }
}

fn conditions(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Option<Vec<LogCondition>> {
    // All are read, so that each has its say about what is wrong with it.
    let all: Vec<_> = at.list("filters").iter().map(|filter| condition(cx, filter)).collect();
    all.into_iter().collect()
}

fn comparison(at: Reader<'_>) -> Option<Comparison> {
    let how = match at.enum_name("op").as_str() {
        "GE" => Compare::AtLeast,
        "LE" => Compare::AtMost,
        "NE" => Compare::Unequal,
        _ => Compare::Equal,
    };
    let value = at.message("value")?;
    value.str("runtime_key");
    Some(Comparison { how, with: u64::from(value.u32("default_value")) })
}

fn file_format(cx: &mut Lowering<'_>, config: &Reader<'_>) -> LogFormat {
    match config.oneof("access_log_format") {
        Some("format") => {
            let text = config.str("format");
            if text.is_empty() {
                LogFormat::Text(default_format())
            } else {
                LogFormat::Text(cx.format(config, "format", text))
            }
        }
        Some(field @ ("json_format" | "typed_json_format")) => config
            .message(field)
            .map_or(LogFormat::Json(JsonFormat::Null), |json| LogFormat::Json(data::json_format(cx, &json))),
        _ => stream_format(cx, config),
    }
}

fn stream_format(cx: &mut Lowering<'_>, config: &Reader<'_>) -> LogFormat {
    match config.message("log_format") {
        Some(format) => data::log_format(cx, &format),
        None => LogFormat::Text(default_format()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_line_is_a_valid_format() {
        assert_eq!(
            default_format()
                .pieces
                .iter()
                .filter(|piece| matches!(piece, postrider_model::Piece::Command { .. }))
                .count(),
            15
        );
    }
}
