//! Tracing: of connection managers (`HttpConnectionManager.Tracing`), of routes (`Tracing`, `Decorator`), and the providers
//! that are told of spans (`envoy.config.trace.v3.OpenTelemetryConfig`).

use std::sync::Arc;
use std::time::Duration;

use postrider_config_core::Diagnostic;
use postrider_model::{
    CustomTag, Decorator, Expression, Format, MetadataOf, OtlpTarget, Reading, RouteTracing, Sampler, Sampling, Share,
    TagKind, TagSource, Tracer, Tracing,
};

use super::context::Lowering;
use super::{detection, grpc_target, headers, locate, otlp_sink, value};
use crate::reader::Reader;
use crate::runtime::Entry;

/// Runtime keys that are read here.
const FLUSH_SPANS_KEY: &str = "tracing.opentelemetry.min_flush_spans";
const FLUSH_INTERVAL_KEY: &str = "tracing.opentelemetry.flush_interval_ms";

/// Those by which requests are chosen, in place of what any manager or route says.
const CLIENT_KEY: &str = "tracing.client_enabled";
const RANDOM_KEY: &str = "tracing.random_sampling";
const OVERALL_KEY: &str = "tracing.global_enabled";

/// What they are unless the runtime says something else.
const FLUSH_SPANS: u64 = 5;
const FLUSH_INTERVAL_MILLIS: u64 = 5000;

/// `max_cache_size` where it is absent.
const MAX_SPANS: u32 = 1024;

/// `max_path_tag_length` where it is absent.
const MAX_PATH: u32 = 256;

/// `service_name` where it is absent: as Envoy calls itself, so that what looks for its spans finds these.
const SERVICE_NAME: &str = "unknown_service:envoy";

const OPENTELEMETRY: &str = "envoy.config.trace.v3.OpenTelemetryConfig";

const ALWAYS_ON: &str = "envoy.extensions.tracers.opentelemetry.samplers.v3.AlwaysOnSamplerConfig";
const RATIO: &str = "envoy.extensions.tracers.opentelemetry.samplers.v3.TraceIdRatioBasedSamplerConfig";
const CEL: &str = "envoy.extensions.tracers.opentelemetry.samplers.v3.CELSamplerConfig";
const PARENT: &str = "envoy.extensions.tracers.opentelemetry.samplers.v3.ParentBasedSamplerConfig";

/// Samplers stand in samplers; no deeper than this, which nobody reaches who means it.
const MAX_DEPTH: usize = 8;

/// The field `tracing` of a connection manager.
pub(super) fn of_manager(cx: &mut Lowering<'_>, manager: &Reader<'_>) -> Option<Arc<Tracing>> {
    let at = manager.message("tracing")?;
    let percent = |field: &str| at.message(field).map(|percent| percent.f64("value"));
    // As in Envoy, of these two the fraction of a percent does not count.
    let whole = |value: Option<f64>| value.map_or(Share::default(), |value| Share { parts: value as u32, of: 100 });
    let random = percent("random_sampling").map(|value| Share { parts: (value * 100.0).round() as u32, of: 10_000 });
    let written = Sampling {
        client: whole(percent("client_sampling")),
        random: random.unwrap_or_default(),
        overall: whole(percent("overall_sampling")),
    };
    let sampling = by_runtime(cx, written);
    let provider = at.message("provider");
    let own = provider.as_ref().and_then(|provider| tracer(cx, provider));
    // What the bootstrap says stands for a provider that is not named.
    let tracer = if provider.is_some() { own } else { cx.tracer.clone() };
    Some(Arc::new(Tracing {
        tracer,
        sampling,
        verbose: at.bool("verbose"),
        max_path: at.u32_wrapper("max_path_tag_length").unwrap_or(MAX_PATH) as usize,
        tags: tags(cx, &at),
        spawns_upstream_span: at.bool_wrapper("spawn_upstream_span").unwrap_or(false),
        operation: operation(cx, &at, "operation"),
        upstream_operation: operation(cx, &at, "upstream_operation"),
        propagates: !at.bool("no_context_propagation"),
        outbound: cx.is_outbound,
        draws_by_id: detection::draws_traces_by_id(manager),
    }))
}

/// The fields `tracing` and `decorator` of a route.
pub(super) fn of_route(cx: &mut Lowering<'_>, route: &Reader<'_>) -> Option<Box<RouteTracing>> {
    let decorator = route.message("decorator").map(|at| Decorator {
        operation: at.str("operation").to_owned(),
        propagates: at.bool_wrapper("propagate").unwrap_or(true),
    });
    let Some(at) = route.message("tracing") else {
        return decorator.map(|decorator| Box::new(RouteTracing { decorator: Some(decorator), ..Default::default() }));
    };
    let share = |field: &str| at.message(field).map_or(Share::default(), |fraction| self::share(&fraction));
    let written = Sampling {
        client: share("client_sampling"),
        random: share("random_sampling"),
        overall: share("overall_sampling"),
    };
    Some(Box::new(RouteTracing {
        decorator,
        sampling: Some(by_runtime(cx, written)),
        tags: tags(cx, &at),
        operation: operation(cx, &at, "operation"),
        upstream_operation: operation(cx, &at, "upstream_operation"),
    }))
}

/// The field `tracing` of a bootstrap: the provider for connection managers that name none.
pub(super) fn of_bootstrap(cx: &mut Lowering<'_>, root: &Reader<'_>) -> Option<Arc<Tracer>> {
    tracer(cx, &root.message("tracing")?.message("http")?)
}

/// What the runtime says stands in place of what is written, be that of a route.
fn by_runtime(cx: &Lowering<'_>, written: Sampling) -> Sampling {
    let share = |key: &str, written: Share| match cx.runtime.find(key).and_then(Entry::share) {
        Some(share) => Share { parts: share.numerator, of: share.parts() },
        None => written,
    };
    Sampling {
        client: share(CLIENT_KEY, written.client),
        random: share(RANDOM_KEY, written.random),
        overall: share(OVERALL_KEY, written.overall),
    }
}

fn operation(cx: &mut Lowering<'_>, at: &Reader<'_>, field: &str) -> Option<Format> {
    let text = at.str(field);
    (!text.is_empty()).then(|| cx.format(at, field, text))
}

/// `envoy.type.v3.FractionalPercent`.
fn share(at: &Reader<'_>) -> Share {
    let of = match at.enum_name("denominator").as_str() {
        "TEN_THOUSAND" => 10_000,
        "MILLION" => 1_000_000,
        _ => 100,
    };
    Share { parts: at.u32("numerator"), of }
}

/// The field `custom_tags`. Of two with one name the first counts, as in Envoy.
pub(super) fn tags(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Vec<CustomTag> {
    let mut all: Vec<CustomTag> = Vec::new();
    for written in at.list("custom_tags") {
        let kind = match written.enum_name("value_type").as_str() {
            "INT" => TagKind::Integer,
            "DOUBLE" => TagKind::Double,
            "BOOL" => TagKind::Bool,
            _ => TagKind::Text,
        };
        let name = written.str("tag").to_owned();
        let value = tag_value(cx, &written);
        if let Some(value) = value
            && !all.iter().any(|known| known.name == name)
        {
            all.push(CustomTag { name, value, kind });
        }
    }
    all
}

/// `None` for one that never has a value.
fn tag_value(cx: &mut Lowering<'_>, written: &Reader<'_>) -> Option<TagSource> {
    let default = |at: &Reader<'_>| at.str("default_value").to_owned();
    match written.oneof("type")? {
        "literal" => Some(TagSource::Literal(written.message("literal")?.str("value").to_owned())),
        "environment" => {
            let at = written.message("environment")?;
            let default = default(&at);
            let value = std::env::var(at.str("name")).unwrap_or(default);
            (!value.is_empty()).then_some(TagSource::Literal(value))
        }
        "request_header" => {
            let at = written.message("request_header")?;
            let default = default(&at);
            Some(TagSource::Header { name: headers::name(cx, &at, "name")?, default })
        }
        "metadata" => {
            let at = written.message("metadata")?;
            let kind = at.message("kind");
            let of = match kind.as_ref().and_then(|kind| kind.oneof("kind")) {
                Some("route") => MetadataOf::Route,
                Some("cluster") => MetadataOf::Cluster,
                Some("host") => MetadataOf::Host,
                _ => MetadataOf::Stream,
            };
            // Which of them it is stands in their names: they are empty.
            for name in ["request", "route", "cluster", "host"] {
                let _ = kind.as_ref().and_then(|kind| kind.message(name));
            }
            let key = at.message("metadata_key");
            let namespace = key.as_ref().map_or("", |key| key.str("key")).to_owned();
            let path = key.map(|key| key.list("path").iter().map(|segment| segment.str("key").to_owned()).collect());
            Some(TagSource::Metadata { of, namespace, path: path.unwrap_or_default(), default: default(&at) })
        }
        _ => Some(TagSource::Format(cx.format(written, "value", written.str("value")))),
    }
}

/// A provider: `envoy.config.trace.v3.Tracing.Http`.
fn tracer(cx: &mut Lowering<'_>, provider: &Reader<'_>) -> Option<Arc<Tracer>> {
    provider.str("name");
    let Some(any) = provider.any("typed_config") else {
        cx.missing(provider, "the provider has no `typed_config`", "a `typed_config` with its `@type`");
        return None;
    };
    let (OPENTELEMETRY, Some(config)) = (any.type_name, &any.reader) else {
        cx.refuse_extension(provider, "typed_config", &any);
        return None;
    };
    opentelemetry(cx, config).map(Arc::new)
}

fn opentelemetry(cx: &mut Lowering<'_>, config: &Reader<'_>) -> Option<Tracer> {
    if config.has("exporter") {
        cx.refuse(config, "exporter", "an exporter of spans that is an extension");
    }
    let resource = resource(cx, config);
    let sampler = config.message("sampler").and_then(|sampler| self::sampler(cx, &sampler, 0));
    let flush_spans = cx.runtime.integer(FLUSH_SPANS_KEY).unwrap_or(FLUSH_SPANS);
    let flush_interval = cx.runtime.integer(FLUSH_INTERVAL_KEY).unwrap_or(FLUSH_INTERVAL_MILLIS);
    let tracer = Tracer {
        to: target(cx, config)?,
        resource,
        tells_scope: config.bool_wrapper("set_instrumentation_scope").unwrap_or(true),
        sampler,
        max_spans: config.u32_wrapper("max_cache_size").unwrap_or(MAX_SPANS) as usize,
        flush_spans: usize::try_from(flush_spans).unwrap_or(usize::MAX).max(1),
        flush_interval: Duration::from_millis(flush_interval.max(1)),
    };
    Some(tracer)
}

/// One of `grpc_service` and `http_service`.
pub(super) fn target(cx: &mut Lowering<'_>, config: &Reader<'_>) -> Option<OtlpTarget> {
    if config.has("grpc_service") && config.has("http_service") {
        let text = "`grpc_service` and `http_service` exclude each other";
        cx.error(config, "http_service", "conflict", text);
        config.ignore("grpc_service", text);
    }
    if let Some(http) = config.message("http_service") {
        return otlp_sink::over_http(cx, &http);
    }
    let Some(grpc) = config.message("grpc_service") else {
        cx.missing(config, "nobody is told", "`grpc_service` or `http_service`");
        return None;
    };
    let timeout = grpc.duration("timeout");
    Some(OtlpTarget::Grpc { service: grpc_target::target(cx, &grpc)?, timeout })
}

/// What is told of the proxy: what detectors find goes before what is told anyway.
fn resource(cx: &mut Lowering<'_>, config: &Reader<'_>) -> Vec<(String, String)> {
    let mut all = otlp_sink::resource(cx, config);
    let mut add = |name: &str, value: &str| {
        if !all.iter().any(|(known, _)| known == name) {
            all.push((name.to_owned(), value.to_owned()));
        }
    };
    if config.bool_wrapper("set_service_name_resource_attribute").unwrap_or(true) {
        let name = config.str("service_name");
        add("service.name", if name.is_empty() { SERVICE_NAME } else { name });
    } else {
        config.ignore("service_name", "`set_service_name_resource_attribute` keeps it from being told");
    }
    if config.bool_wrapper("set_telemetry_sdk_resource_attributes").unwrap_or(true) {
        for (name, value) in otlp_sink::PROGRAM {
            add(name, value);
        }
    }
    all
}

fn sampler(cx: &mut Lowering<'_>, at: &Reader<'_>, depth: usize) -> Option<Sampler> {
    at.str("name");
    let Some(any) = at.any("typed_config") else {
        cx.missing(at, "the sampler has no `typed_config`", "a `typed_config` with its `@type`");
        return None;
    };
    match (any.type_name, &any.reader) {
        (ALWAYS_ON, Some(_)) => Some(Sampler::AlwaysOn),
        (RATIO, Some(config)) => {
            let share = config.message("sampling_percentage").map(|at| share(&at));
            Some(Sampler::Ratio(share.unwrap_or(Share { parts: 0, of: 100 })))
        }
        (CEL, Some(config)) => expression(cx, config).map(|found| Sampler::Expression(Box::new(found))),
        (PARENT, Some(config)) if depth < MAX_DEPTH => {
            let Some(within) = config.message("wrapped_sampler") else {
                cx.missing(config, "the sampler has none for requests without a parent", "`wrapped_sampler`");
                return None;
            };
            Some(Sampler::Parent(Box::new(sampler(cx, &within, depth + 1)?)))
        }
        (PARENT, Some(config)) => {
            cx.error(config, "wrapped_sampler", "invalid-value", "samplers stand too deep in each other");
            None
        }
        _ => {
            cx.refuse_extension(at, "typed_config", &any);
            None
        }
    }
}

/// The expression of a sampler.
fn expression(cx: &mut Lowering<'_>, config: &Reader<'_>) -> Option<Expression> {
    const FIELD: &str = "expression";
    let Some(at) = config.message(FIELD) else {
        cx.missing(config, "the sampler has no expression", "`expression: {cel_expr_parsed: …}`");
        return None;
    };
    at.read_whole();
    match Reading::all(&value::value(at.as_message()), Expression::read_any) {
        Ok(read) => read,
        Err(errors) => {
            for error in errors {
                let span = locate(at.as_message(), &error.path).or(config.span_of(FIELD));
                let path = if error.path.is_empty() { at.path().to_owned() } else { at.path_of(&error.path) };
                cx.push(Diagnostic::error("invalid-expression", error.message).at(span).path(path));
            }
            None
        }
    }
}
