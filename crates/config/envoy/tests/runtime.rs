//! Values of the runtime in a snapshot: those that the configuration asks for by key, and those that Envoy looks up without.

use std::time::Duration;

use postrider_config_core::{Severity, SourceFile};
use postrider_config_envoy::{LoadOptions, Outcome, RuntimeOptions, Status, load};
use postrider_model::Snapshot;

fn outcome(layer: &str, rest: &str, overrides: &[(&str, &str)]) -> Outcome {
    let text = format!(
        "layered_runtime: {{layers: [{{name: s, static_layer: {layer}}}, {{name: a, admin_layer: {{}}}}]}}\n{rest}"
    );
    let overrides = overrides.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let runtime = RuntimeOptions { overrides, service_cluster: None };
    load(&SourceFile::new("envoy.yaml", text), &LoadOptions { runtime, ..LoadOptions::default() }, &|_: &str| false)
}

#[track_caller]
fn snapshot(layer: &str, rest: &str, overrides: &[(&str, &str)]) -> Snapshot {
    let outcome = outcome(layer, rest, overrides);
    let errors: Vec<_> = outcome.diagnostics.iter().map(|found| found.message.clone()).collect();
    (*outcome.snapshot.unwrap_or_else(|| panic!("{errors:?}"))).clone()
}

const CLUSTER: &str = "
static_resources:
  clusters:
  - name: c
    connect_timeout: 1s
    load_assignment: {cluster_name: c}
    health_checks:
    - {timeout: 1s, interval: 10s, unhealthy_threshold: 1, healthy_threshold: 1, http_health_check: {path: /}}
    circuit_breakers: {thresholds: [{max_requests: 7}]}
    outlier_detection: {consecutive_5xx: 3}
";

#[test]
fn keys_without_a_field_change_clusters() {
    let layer = "{upstream.healthy_panic_threshold: 30, health_check: {max_interval: 2000}, \
                 circuit_breakers: {c: {default: {max_retries: 9}, high: {max_requests: 11}}}, \
                 outlier_detection: {consecutive_5xx: 8, interval_ms: 1500, max_ejection_percent: 400}}";
    let snapshot = snapshot(layer, CLUSTER, &[("circuit_breakers.c.high.max_requests", "12")]);
    let cluster = &snapshot.clusters[0];
    assert_eq!(cluster.health.panic_threshold, 30.0);
    let (default, high) = (&cluster.thresholds, &cluster.high_thresholds);
    assert_eq!((default.max_requests, default.max_retries, high.max_requests), (7, 9, 12));
    assert_eq!(cluster.health.checks[0].intervals.healthy, Duration::from_secs(2));
    let outliers = cluster.outliers.as_ref().unwrap();
    assert_eq!((outliers.interval, outliers.max_ejection_percent), (Duration::from_millis(1500), 100));
}

#[test]
fn without_a_key_nothing_is_written_anew() {
    let plain = snapshot("{other: 1}", CLUSTER, &[]);
    assert_eq!(plain.clusters[0].thresholds.max_requests, 7);
    assert_eq!(plain.clusters[0].high_thresholds.max_requests, 1024);
}

#[test]
fn what_is_converted_is_what_was_written() {
    let written = outcome("{upstream.healthy_panic_threshold: 30}", CLUSTER, &[]).to_envoy_yaml().unwrap();
    assert!(!written.contains("common_lb_config"), "{written}");
}

#[test]
fn keys_are_supported_and_those_of_envoys_code_are_told() {
    let routes = "
static_resources:
  listeners:
  - name: l
    address: {socket_address: {address: 127.0.0.1, port_value: 1}}
    filter_chains:
    - filters:
      - name: h
        typed_config:
          \"@type\": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: h
          route_config:
            virtual_hosts:
            - name: v
              domains: ['*']
              routes:
              - match: {prefix: /, runtime_fraction: {default_value: {numerator: 1}, runtime_key: k}}
                direct_response: {status: 200}
          http_filters:
          - {name: r, typed_config: {\"@type\": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}
";
    let outcome = outcome(
        "{k: 2, envoy.reloadable_features.x: true, envoy.reloadable_features.connection_close_through_filter_manager: true}",
        routes,
        &[],
    );
    assert!(outcome.snapshot.is_some());
    let told: Vec<_> = outcome.diagnostics.iter().map(|found| (found.severity, found.message.as_str())).collect();
    let text = "the runtime key `envoy.reloadable_features.x` has no effect: it is about code that only Envoy has";
    assert_eq!(told, [(Severity::Warning, text)]);
    let report = outcome.report();
    let key = report.fields.iter().find(|field| field.path.ends_with("runtime_key")).expect("the key is reported");
    assert_eq!(key.status, Status::Supported);
}
