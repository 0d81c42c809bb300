//! Access logs that go to collectors of OpenTelemetry (`OpenTelemetryAccessLogConfig`).

use std::time::Duration;

use postrider_model::{OtlpFormat, OtlpLog, OtlpTarget, Value};

use super::context::Lowering;
use super::{formatters, grpc_target, log_service, otlp_sink, tracing};
use crate::reader::Reader;

/// Values stand in values no deeper than this.
const MAX_DEPTH: usize = 16;

/// Said of a part of a record.
const VALUELESS: &str = "this has no value";

pub(super) fn logger(cx: &mut Lowering<'_>, config: &Reader<'_>) -> Option<OtlpLog> {
    let common = config.message("common_config");
    let mut tags = tracing::tags(cx, config);
    if let Some(common) = &common {
        common.ignore("transport_api_version", "collectors speak OpenTelemetry's protocol");
        if common.has("grpc_stream_retry_policy") {
            cx.refuse(common, "grpc_stream_retry_policy", "a retry policy for calls of a collector");
        }
        for tag in tracing::tags(cx, common) {
            if !tags.iter().any(|known| known.name == tag.name) {
                tags.push(tag);
            }
        }
    }
    let places = [Some(config), common.as_ref()];
    let name = |at: &&Reader<'_>| Some(at.str("log_name").to_owned()).filter(|name| !name.is_empty());
    let objects = |at: &Reader<'_>| {
        let all = at.strings("filter_state_objects_to_log");
        all.iter().map(|name| name.value.to_owned()).collect::<Vec<String>>()
    };
    let objects: Vec<_> = places.into_iter().flatten().map(objects).filter(|objects| !objects.is_empty()).collect();
    let names: Vec<_> = places.into_iter().flatten().filter_map(|at| name(&at)).collect();
    let first = |read: &dyn Fn(&Reader<'_>) -> Option<u64>| {
        let found: Vec<_> = places.into_iter().flatten().filter_map(read).collect();
        found.first().copied()
    };
    let millis =
        first(&|at| Some(u64::try_from(at.duration("buffer_flush_interval")?.as_millis()).unwrap_or(u64::MAX)));
    let bytes = first(&|at| at.u32_wrapper("buffer_size_bytes").map(u64::from));
    let builtin = !config.bool("disable_builtin_labels");
    let (body, attributes) = formatters::with(cx, config, |cx| {
        // One that is empty is none, as in Envoy.
        let body = config.message("body").filter(|body| body.oneof("value").is_some());
        let body = body.and_then(|body| format(cx, &body, 0));
        (body, formats(cx, config.message("attributes").as_ref(), 0))
    });
    let mut resource: Vec<(String, Value)> =
        otlp_sink::resource(cx, config).into_iter().map(|(name, value)| (name, Value::String(value))).collect();
    resource.extend(pairs(config.message("resource_attributes").as_ref(), &mut |at| Some(plain(at, 0))));
    let stat_prefix = config.str("stat_prefix").trim_end_matches('.').to_owned();
    Some(OtlpLog {
        to: target(cx, config, common.as_ref())?,
        stat_prefix,
        log_name: builtin.then(|| names.into_iter().next().unwrap_or_default()),
        resource,
        body,
        attributes,
        objects: objects.into_iter().next().unwrap_or_default(),
        tags,
        flush_interval: millis.map_or(log_service::FLUSH_INTERVAL, Duration::from_millis),
        buffer_bytes: bytes.map_or(log_service::BUFFER_BYTES as usize, |bytes| bytes as usize),
    })
}

fn target(cx: &mut Lowering<'_>, config: &Reader<'_>, common: Option<&Reader<'_>>) -> Option<OtlpTarget> {
    let older = common.and_then(|common| common.message("grpc_service"));
    match older {
        Some(grpc) if !config.has("grpc_service") && !config.has("http_service") => {
            let timeout = grpc.duration("timeout");
            Some(OtlpTarget::Grpc { service: grpc_target::target(cx, &grpc)?, timeout })
        }
        Some(_) => {
            let text = "`common_config.grpc_service` stands beside another service";
            cx.error(config, "common_config", "conflict", text);
            config.ignore("grpc_service", text);
            config.ignore("http_service", text);
            None
        }
        None => tracing::target(cx, config),
    }
}

/// A `KeyValueList`.
fn pairs<T>(list: Option<&Reader<'_>>, read: &mut dyn FnMut(&Reader<'_>) -> Option<T>) -> Vec<(String, T)> {
    let mut all = Vec::new();
    for pair in list.map(|list| list.list("values")).unwrap_or_default() {
        let name = pair.str("key").to_owned();
        if let Some(value) = pair.message("value").and_then(|value| read(&value)) {
            all.push((name, value));
        }
    }
    all
}

/// A `KeyValueList` whose texts are formats.
fn formats(cx: &mut Lowering<'_>, list: Option<&Reader<'_>>, depth: usize) -> Vec<(String, OtlpFormat)> {
    for pair in list.map(|list| list.list("values")).unwrap_or_default() {
        if !pair.has("value") {
            cx.missing(&pair, VALUELESS, "`value`");
        }
    }
    pairs(list, &mut |at| format(cx, at, depth))
}

/// An `AnyValue` whose texts are formats.
fn format(cx: &mut Lowering<'_>, at: &Reader<'_>, depth: usize) -> Option<OtlpFormat> {
    let Some(kind) = at.oneof("value") else {
        cx.missing(at, VALUELESS, "`string_value`, `array_value` or `kvlist_value`");
        return None;
    };
    match kind {
        "string_value" => Some(OtlpFormat::Text(cx.format(at, "string_value", at.str("string_value")))),
        "array_value" if depth < MAX_DEPTH => {
            let list = at.message("array_value")?;
            Some(OtlpFormat::List(list.list("values").iter().filter_map(|item| format(cx, item, depth + 1)).collect()))
        }
        "kvlist_value" if depth < MAX_DEPTH => {
            let list = at.message("kvlist_value");
            Some(OtlpFormat::Map(formats(cx, list.as_ref(), depth + 1)))
        }
        other => {
            let text = "texts, lists and maps of them make a log record; so in Envoy";
            cx.error(at, other, "unsupported-value", text);
            at.ignore(other, text);
            None
        }
    }
}

/// An `AnyValue` as it is.
fn plain(at: &Reader<'_>, depth: usize) -> Value {
    match at.oneof("value") {
        Some("string_value") => Value::String(at.str("string_value").to_owned()),
        Some("bool_value") => Value::Bool(at.bool("bool_value")),
        Some("int_value") => Value::Integer(at.i64("int_value")),
        Some("double_value") => Value::Number(at.f64("double_value")),
        Some("array_value") if depth < MAX_DEPTH => {
            let items = at.message("array_value").map(|list| list.list("values")).unwrap_or_default();
            Value::List(items.iter().map(|item| plain(item, depth + 1)).collect())
        }
        Some("kvlist_value") if depth < MAX_DEPTH => {
            let list = at.message("kvlist_value");
            Value::Map(pairs(list.as_ref(), &mut |item| Some(plain(item, depth + 1))))
        }
        _ => Value::Null,
    }
}
