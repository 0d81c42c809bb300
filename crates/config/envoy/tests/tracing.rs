//! Tracing: what a connection manager, its routes and its provider say, and what is refused by name.

mod common;
mod managers;

use std::time::Duration;

use common::said;
use managers::http;
use postrider_config_envoy::Outcome;
use postrider_model::{CustomTag, MetadataOf, OtlpTarget, Sampler, Share, Snapshot, TagKind, TagSource};

const OPENTELEMETRY: &str = "\"@type\": type.googleapis.com/envoy.config.trace.v3.OpenTelemetryConfig";
const GRPC: &str = "grpc_service: { envoy_grpc: { cluster_name: c }, timeout: 2s }";

/// A bootstrap whose connection manager traces as `tracing` says, with more in its listener, its route and at the top.
fn outcome(tracing: &str, listener: &str, route: &str, top: &str) -> Outcome {
    let text = format!(
        r#"
{top}
static_resources:
  listeners:
  - name: l
    address: {{ socket_address: {{ address: 127.0.0.1, port_value: 10000 }} }}
    {listener}
    filter_chains:
    - filters:
      - name: http
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: x
          tracing: {tracing}
          http_filters:
          - name: router
            typed_config: {{ "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router }}
          route_config:
            virtual_hosts:
            - name: v
              domains: ["*"]
              routes: [{{ match: {{ prefix: / }}, route: {{ cluster: c }}, {route} }}]
  clusters:
  - name: c
    type: STATIC
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {{ http2_protocol_options: {{}} }}
"#
    );
    common::outcome(&text, &|_: &str| false)
}

#[track_caller]
fn snapshot(tracing: &str, listener: &str, route: &str, top: &str) -> std::sync::Arc<Snapshot> {
    common::snapshot(&outcome(tracing, listener, route, top))
}

#[test]
fn what_is_absent_is_as_in_envoy() {
    let provider = format!("{{ provider: {{ name: o, typed_config: {{ {OPENTELEMETRY}, {GRPC} }} }} }}");
    let snapshot = snapshot(&provider, "", "", "");
    let tracing = http(&snapshot.listeners[0]).tracing.as_ref().unwrap();
    assert_eq!((tracing.max_path, tracing.verbose, tracing.outbound), (256, false, false));
    assert!(tracing.propagates && tracing.draws_by_id && !tracing.spawns_upstream_span);
    assert_eq!((tracing.sampling.random, tracing.sampling.client), (Share::default(), Share::default()));
    let tracer = tracing.tracer.as_ref().unwrap();
    assert_eq!((tracer.max_spans, tracer.flush_spans, tracer.flush_interval), (1024, 5, Duration::from_secs(5)));
    assert!(tracer.tells_scope && tracer.sampler.is_none());
    assert!(matches!(&tracer.to, OtlpTarget::Grpc { timeout: Some(timeout), .. } if timeout.as_secs() == 2));
    assert!(tracer.resource.contains(&("service.name".into(), "unknown_service:envoy".into())), "{tracer:?}");
    assert!(tracer.resource.contains(&("telemetry.sdk.name".into(), "postrider".into())), "{tracer:?}");
}

#[test]
fn what_is_written_counts() {
    let top = "layered_runtime: { layers: [{ name: s, static_layer: { tracing.opentelemetry: \
               { min_flush_spans: 7, flush_interval_ms: 8 } } }] }";
    let tracing = format!(
        "{{ client_sampling: {{ value: 1.9 }}, random_sampling: {{ value: 0.25 }}, overall_sampling: {{ value: 3 }}, \
           max_path_tag_length: 4, spawn_upstream_span: true, no_context_propagation: true, verbose: true, \
           operation: '%PROTOCOL%', upstream_operation: up, custom_tags: [ \
             {{ tag: a, literal: {{ value: b }}, value_type: INT }}, \
             {{ tag: a, literal: {{ value: hidden }} }}, \
             {{ tag: e, environment: {{ name: POSTRIDER_TEST_NOT_SET }} }}, \
             {{ tag: m, metadata: {{ kind: {{ host: {{}} }}, metadata_key: {{ key: shop, path: [{{ key: k }}] }}, default_value: d }} }}], \
           provider: {{ name: o, typed_config: {{ {OPENTELEMETRY}, {GRPC}, service_name: shop, max_cache_size: 9, \
             set_telemetry_sdk_resource_attributes: false, set_instrumentation_scope: false, \
             sampler: {{ name: s, typed_config: {{ \"@type\": \
               type.googleapis.com/envoy.extensions.tracers.opentelemetry.samplers.v3.ParentBasedSamplerConfig, \
               wrapped_sampler: {{ name: w, typed_config: {{ \"@type\": \
                 type.googleapis.com/envoy.extensions.tracers.opentelemetry.samplers.v3.AlwaysOnSamplerConfig }} }} }} }} }} }} }}"
    );
    let route = "decorator: { operation: buy, propagate: false }, \
                 tracing: { random_sampling: { numerator: 5, denominator: MILLION }, operation: r }";
    let snapshot = snapshot(&tracing, "traffic_direction: OUTBOUND", route, top);
    let tracing = http(&snapshot.listeners[0]).tracing.as_ref().unwrap();
    assert_eq!((tracing.max_path, tracing.verbose, tracing.outbound, tracing.propagates), (4, true, true, false));
    assert!(tracing.spawns_upstream_span && tracing.operation.is_some() && tracing.upstream_operation.is_some());
    // Of two of them the fraction of a percent does not count, as in Envoy.
    let sampling = tracing.sampling;
    assert_eq!((sampling.client, sampling.overall), (Share { parts: 1, of: 100 }, Share { parts: 3, of: 100 }));
    assert_eq!(sampling.random, Share { parts: 25, of: 10_000 });
    let tag = |name: &str, value, kind| CustomTag { name: name.into(), value, kind };
    let path = vec!["k".to_owned()];
    let metadata = TagSource::Metadata { of: MetadataOf::Host, namespace: "shop".into(), path, default: "d".into() };
    let want = [tag("a", TagSource::Literal("b".into()), TagKind::Integer), tag("m", metadata, TagKind::Text)];
    assert_eq!(tracing.tags, want);
    let tracer = tracing.tracer.as_ref().unwrap();
    assert_eq!((tracer.max_spans, tracer.flush_spans, tracer.flush_interval), (9, 7, Duration::from_millis(8)));
    assert_eq!(tracer.resource, [("service.name".to_owned(), "shop".to_owned())]);
    assert_eq!(tracer.sampler, Some(Sampler::Parent(Box::new(Sampler::AlwaysOn))));
    let route = http(&snapshot.listeners[0]).routes.virtual_hosts[0].routes[0].tracing.as_deref().unwrap();
    let decorator = route.decorator.as_ref().unwrap();
    assert_eq!((decorator.operation.as_str(), decorator.propagates), ("buy", false));
    let sampling = route.sampling.unwrap();
    assert_eq!((sampling.random, sampling.overall), (Share { parts: 5, of: 1_000_000 }, Share::default()));
}

#[test]
fn the_runtime_has_the_last_word_on_shares() {
    let top = "layered_runtime: { layers: [{ name: s, static_layer: { tracing: { client_enabled: 101, \
               random_sampling: { numerator: 5, denominator: MILLION }, global_enabled: -1 } } }] }";
    let tracing = "{ client_sampling: { value: 1 }, overall_sampling: { value: 3 } }";
    let snapshot = snapshot(tracing, "", "tracing: { random_sampling: { numerator: 7 } }", top);
    let http = http(&snapshot.listeners[0]);
    let (all, drawn) = (Share { parts: 100, of: 100 }, Share { parts: 5, of: 1_000_000 });
    let of_manager = http.tracing.as_ref().unwrap().sampling;
    assert_eq!((of_manager.client, of_manager.random), (all, drawn));
    assert_eq!(of_manager.overall, Share { parts: 3, of: 100 }, "less than nothing is no value");
    let of_route = http.routes.virtual_hosts[0].routes[0].tracing.as_ref().unwrap().sampling.unwrap();
    assert_eq!((of_route.client, of_route.random, of_route.overall), (all, drawn, all));
}

#[test]
fn the_provider_of_the_bootstrap_stands_in_for_one_that_is_not_named() {
    let top = format!("tracing: {{ http: {{ name: o, typed_config: {{ {OPENTELEMETRY}, {GRPC} }} }} }}");
    assert!(http(&snapshot("{}", "", "", &top).listeners[0]).tracing.as_ref().unwrap().tracer.is_some());
    assert!(http(&snapshot("{}", "", "", "").listeners[0]).tracing.as_ref().unwrap().tracer.is_none());
}

#[test]
fn what_is_not_there_is_refused_by_name() {
    let refused = |typed_config: &str| {
        let outcome =
            outcome(&format!("{{ provider: {{ name: p, typed_config: {{ {typed_config} }} }} }}"), "", "", "");
        assert!(outcome.snapshot.is_none(), "{typed_config}");
        said(&outcome)
    };
    let zipkin = "\"@type\": type.googleapis.com/envoy.config.trace.v3.ZipkinConfig, collector_cluster: c, \
                  collector_endpoint: /, collector_endpoint_version: HTTP_JSON";
    assert!(refused(zipkin).contains("ZipkinConfig`"), "{}", refused(zipkin));
    let datadog =
        "\"@type\": type.googleapis.com/envoy.config.trace.v3.DatadogConfig, collector_cluster: c, service_name: s";
    assert!(refused(datadog).contains("DatadogConfig`"), "{}", refused(datadog));
    let cel = "\"@type\": type.googleapis.com/envoy.extensions.tracers.opentelemetry.samplers.v3.CELSamplerConfig";
    let sampler =
        |more: &str| format!("{OPENTELEMETRY}, {GRPC}, sampler: {{ name: s, typed_config: {{ {cel}{more} }} }}");
    let nothing = refused(&sampler(""));
    assert!(nothing.contains("the sampler has no expression"), "{nothing}");
    let empty = refused(&sampler(", expression: {}"));
    assert!(empty.contains("an expression is required"), "{empty}");
    let broken = refused(&sampler(", expression: { cel_expr_string: 'request.path == ' }"));
    assert!(broken.contains("samplers.v3") || broken.contains("cel_expr_string"), "{broken}");
    let dynatrace =
        "\"@type\": type.googleapis.com/envoy.extensions.tracers.opentelemetry.samplers.v3.DynatraceSamplerConfig";
    let dynatrace =
        format!("{OPENTELEMETRY}, {GRPC}, sampler: {{ name: s, typed_config: {{ {dynatrace}, tenant: t }} }}");
    assert!(refused(&dynatrace).contains("DynatraceSampler"), "{}", refused(&dynatrace));
    assert!(refused(OPENTELEMETRY).contains("`grpc_service` or `http_service`"), "{}", refused(OPENTELEMETRY));
}
