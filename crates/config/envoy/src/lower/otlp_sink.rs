//! Collectors of OpenTelemetry that take statistics (`envoy.extensions.stat_sinks.open_telemetry.v3.SinkConfig`).

use std::collections::BTreeMap;

use postrider_model::{OtlpSink, OtlpTarget};

use super::context::Lowering;
use super::{callees, formatters, grpc_target, headers};
use crate::reader::Reader;

const STATIC: &str = "envoy.extensions.tracers.opentelemetry.resource_detectors.v3.StaticConfigResourceDetectorConfig";
const ENVIRONMENT: &str =
    "envoy.extensions.tracers.opentelemetry.resource_detectors.v3.EnvironmentResourceDetectorConfig";

/// What the environment says of who tells: `service.name=shop,region=eu`.
const ENVIRONMENT_VARIABLE: &str = "OTEL_RESOURCE_ATTRIBUTES";

/// What is told of the program.
pub(super) const PROGRAM: [(&str, &str); 3] = [
    ("telemetry.sdk.language", "rust"),
    ("telemetry.sdk.name", "postrider"),
    ("telemetry.sdk.version", env!("CARGO_PKG_VERSION")),
];

pub(super) fn sink(cx: &mut Lowering<'_>, config: &Reader<'_>) -> Option<OtlpSink> {
    if config.has("custom_metric_conversions") {
        cx.refuse(config, "custom_metric_conversions", "other names and labels for single statistics");
    }
    let resource = resource(cx, config);
    let prefix = config.str("prefix");
    let counters_as_deltas = config.bool("report_counters_as_deltas");
    let histograms_as_deltas = config.bool("report_histograms_as_deltas");
    let tags_as_attributes = config.bool_wrapper("emit_tags_as_attributes").unwrap_or(true);
    let names_without_tags = config.bool_wrapper("use_tag_extracted_name").unwrap_or(true);
    let max_points = usize::try_from(config.u32("max_data_points_per_request")).unwrap_or(usize::MAX);
    let to = match config.message("http_service") {
        Some(http) => over_http(cx, &http)?,
        // One of the two is there, which was asked for when the file was read.
        None => {
            let grpc = config.message("grpc_service")?;
            let timeout = grpc.duration("timeout");
            OtlpTarget::Grpc { service: grpc_target::target(cx, &grpc)?, timeout }
        }
    };
    Some(OtlpSink {
        to,
        resource,
        counters_as_deltas,
        histograms_as_deltas,
        tags_as_attributes,
        names_without_tags,
        prefix: (!prefix.is_empty()).then(|| prefix.to_owned()),
        max_points: (max_points > 0).then_some(max_points),
    })
}

/// What the detectors find, in their order: of two with one name the later counts.
pub(super) fn resource(cx: &mut Lowering<'_>, config: &Reader<'_>) -> Vec<(String, String)> {
    let mut all = BTreeMap::new();
    for detector in config.list("resource_detectors") {
        detector.str("name");
        let Some(any) = detector.any("typed_config") else {
            cx.missing(&detector, "the detector has no `typed_config`", "a `typed_config` with its `@type`");
            continue;
        };
        match (any.type_name, &any.reader) {
            (STATIC, Some(config)) => {
                let attributes = config.string_map("attributes").into_iter();
                all.extend(attributes.map(|(name, value)| (name.to_owned(), value.to_owned())));
            }
            (ENVIRONMENT, Some(_)) => match std::env::var(ENVIRONMENT_VARIABLE) {
                Ok(text) => all.extend(of_environment(&text)),
                Err(_) => {
                    let text =
                        format!("the environment variable `{ENVIRONMENT_VARIABLE}` is not set: it tells nothing");
                    cx.warn(&detector, "typed_config", "no-effect", text);
                }
            },
            _ => cx.refuse_extension(&detector, "typed_config", &any),
        }
    }
    all.into_iter().collect()
}

/// What is no pair is left out, as in Envoy.
fn of_environment(text: &str) -> impl Iterator<Item = (String, String)> {
    let pairs = text.split(',').filter_map(|pair| pair.split_once('='));
    pairs
        .filter(|(name, value)| !name.is_empty() && !value.is_empty() && !value.contains('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
}

pub(super) fn over_http(cx: &mut Lowering<'_>, http: &Reader<'_>) -> Option<OtlpTarget> {
    callees::note(cx, http.as_message(), http.path());
    let fields = formatters::with(cx, http, |cx| {
        http.list("request_headers_to_add").iter().filter_map(|option| field(cx, option)).collect()
    });
    let Some(uri) = http.message("http_uri") else {
        cx.missing(http, "the service has no address", "`http_uri`");
        return None;
    };
    let text = uri.str("uri");
    let rest = text.split_once("://").map_or(text, |(_, rest)| rest);
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let is_visible = |byte: u8| byte.is_ascii_graphic();
    if authority.is_empty() || !grpc_target::is_authority(authority) || !path.bytes().all(is_visible) {
        cx.error(&uri, "uri", "invalid-value", format!("`{text}` is no URI of a service"));
    }
    Some(OtlpTarget::Http {
        cluster: uri.str("cluster").into(),
        authority: authority.to_owned(),
        path: if path.is_empty() { "/".to_owned() } else { path.to_owned() },
        timeout: uri.duration("timeout").unwrap_or_default(),
        headers: fields,
    })
}

/// A field that every request carries. No request stands behind it whose values a format could take.
fn field(cx: &mut Lowering<'_>, option: &Reader<'_>) -> Option<(String, String)> {
    let field = headers::addition(cx, option)?;
    let header = option.message("header")?;
    let what = "a header with the values of a request, where no request stands behind the call";
    Some((field.name, grpc_target::fixed(cx, &header, &field.value, what)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_holds_pairs() {
        let found: Vec<_> = of_environment("service.name=shop,x,=y,z=,a=b=c,region=eu").collect();
        let want = [("service.name", "shop"), ("region", "eu")];
        assert_eq!(found, want.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }
}
