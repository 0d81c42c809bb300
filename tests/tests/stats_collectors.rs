//! Statistics that are sent through clusters: to collectors of OpenTelemetry by gRPC and HTTP, to a metrics service, and to
//! statsd over TCP. The same expectations hold for Envoy, but where a test says so.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;

use postrider_grpc::Message;
use postrider_grpc::metrics::{MetricFamily, MetricType, StreamMetricsMessage};
use postrider_grpc::otlp::{
    CUMULATIVE, DELTA, Data, EXPORT, ExportRequest, KeyValue, Metric, Number, NumberDataPoint, Plain,
};
use postrider_tests::grpc::http2;
use postrider_tests::kit::config::{Config, extension};
use postrider_tests::kit::grpc::Step;
use postrider_tests::kit::net::{Gate, refusing_address};
use postrider_tests::kit::{GrpcOrigin, Origin, Proxy, wait_until};
use postrider_tests::{envoy, postrider_only};
use serde_json::{Value, json};

const COMPLETED: &str = "http.ingress_http.downstream_rq_completed";

fn hello() -> Origin {
    Origin::fixed("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
}

/// A site that tells `sink`, which knows somebody as the cluster `collector`.
fn site(origin: &Origin, sink: Value, collector: SocketAddr, fields: Value) -> Config {
    Config::proxy_to(origin.address).cluster_with("collector", &[collector], fields).overlay(json!({
        "stats_sinks": [sink],
        "stats_flush_interval": "0.1s",
        "node": {"id": "me", "cluster": "edge"},
    }))
}

fn otlp(fields: Value) -> Value {
    extension("envoy.stat_sinks.open_telemetry", "stat_sinks.open_telemetry.v3.SinkConfig", fields)
}

/// A sink for the gRPC service `collector`, with `more`.
fn otlp_grpc(more: Value) -> Value {
    let mut fields = json!({"grpc_service": {"envoy_grpc": {"cluster_name": "collector"}}});
    fields.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    otlp(fields)
}

fn exports(collector: &GrpcOrigin) -> Vec<ExportRequest> {
    collector.messages().iter().map(|message| ExportRequest::decode(message.as_slice()).expect("an export")).collect()
}

/// Envoy counts requests to its admin under the same names.
fn is_of_admin(metric: &Metric) -> bool {
    let attributes = match &metric.data {
        Some(Data::Histogram(histogram)) => &histogram.data_points[0].attributes,
        _ => &points(metric)[0].attributes,
    };
    attributes.contains(&KeyValue::text("envoy.http_conn_manager_prefix", "admin"))
}

/// All metrics with this name, in order.
fn named<'a>(requests: &'a [ExportRequest], name: &str) -> Vec<&'a Metric> {
    let scopes = requests.iter().flat_map(|request| &request.resource_metrics).flat_map(|of| &of.scope_metrics);
    scopes.flat_map(|scope| &scope.metrics).filter(|metric| metric.name == name && !is_of_admin(metric)).collect()
}

fn number(point: &NumberDataPoint) -> i64 {
    match point.value {
        Some(Number::Int(value)) => value,
        ref other => panic!("{other:?}"),
    }
}

fn points(metric: &Metric) -> &[NumberDataPoint] {
    match &metric.data {
        Some(Data::Sum(sum)) => &sum.data_points,
        Some(Data::Gauge(gauge)) => &gauge.data_points,
        other => panic!("{other:?}"),
    }
}

fn attributes(point: &NumberDataPoint) -> Vec<(&str, &str)> {
    fn text(pair: &KeyValue) -> &str {
        match &pair.value.as_ref().expect("a value").value {
            Some(Plain::Text(text)) => text,
            other => panic!("{other:?}"),
        }
    }
    point.attributes.iter().map(|pair| (&*pair.key, text(pair))).collect()
}

#[test]
fn a_collector_is_told_totals() {
    let (origin, collector) = (hello(), GrpcOrigin::fixed(Vec::new()));
    let proxy = Proxy::start(&site(&origin, otlp_grpc(json!({})), collector.address, http2()));
    (0..3).for_each(|_| assert_eq!(proxy.get("/").status, 200));
    let told = |name: &str| {
        let exports = exports(&collector);
        named(&exports, name).last().map(|metric| (*metric).clone())
    };
    let completed = || told("http.downstream_rq_completed");
    wait_until("three requests", || completed().is_some_and(|metric| number(&points(&metric)[0]) == 3));
    let metric = completed().unwrap();
    let Some(Data::Sum(sum)) = &metric.data else { panic!("{metric:?}") };
    assert_eq!((sum.aggregation_temporality, sum.is_monotonic), (CUMULATIVE, true));
    let point = &sum.data_points[0];
    assert_eq!(attributes(point), [("envoy.http_conn_manager_prefix", "ingress_http")]);
    assert!(point.time_unix_nano > 1_500_000_000_000_000_000 && point.start_time_unix_nano < point.time_unix_nano);

    let exports_so_far = exports(&collector);
    let by_status =
        named(&exports_so_far, "cluster.upstream_rq").into_iter().map(|metric| attributes(&points(metric)[0]));
    let good = [("envoy.response_code", "200"), ("envoy.cluster_name", "origin")];
    assert!(by_status.into_iter().any(|tags| good.iter().all(|tag| tags.contains(tag))));

    let live = told("server.live").unwrap();
    assert!(matches!(live.data, Some(Data::Gauge(_))), "{live:?}");
    assert_eq!(number(&points(&live)[0]), 1);

    let times = || match told("http.downstream_rq_time")?.data? {
        Data::Histogram(histogram) => Some(histogram),
        other => panic!("{other:?}"),
    };
    wait_until("three times", || times().is_some_and(|times| times.data_points[0].count == 3));
    let histogram = times().unwrap();
    assert_eq!(histogram.aggregation_temporality, CUMULATIVE);
    let point = &histogram.data_points[0];
    assert_eq!(point.explicit_bounds.len(), 19);
    assert_eq!((point.explicit_bounds[0], point.explicit_bounds[18]), (0.5, 3_600_000.0));
    assert_eq!((point.bucket_counts.len(), point.bucket_counts.iter().sum::<u64>()), (20, 3));
    assert!(point.sum.is_some());

    wait_until("another flush", || collector.calls().len() > 1);
    // Totals begin once, whatever the flush.
    let starts = || {
        let exports = exports(&collector);
        let points =
            named(&exports, "http.downstream_rq_completed").into_iter().map(|metric| points(metric)[0].clone());
        points.map(|point| point.start_time_unix_nano).collect::<BTreeSet<_>>()
    };
    let flushes = collector.calls().len();
    wait_until("further flushes", || collector.calls().len() > flushes + 2);
    assert_eq!(starts().len(), 1, "{:?}", starts());
    let calls = collector.calls();
    assert!(calls.iter().all(|call| call.path == EXPORT && call.messages.len() <= 1), "{calls:?}");
    assert_eq!(calls[0].authority, "collector");
    let resource = exports(&collector)[0].resource_metrics[0].resource.clone().unwrap();
    let keys: Vec<&str> = resource.attributes.iter().map(|pair| &*pair.key).collect();
    for key in ["telemetry.sdk.language", "telemetry.sdk.name", "telemetry.sdk.version"] {
        assert!(keys.contains(&key), "{keys:?}");
    }
}

#[test]
fn a_collector_is_told_what_is_new_under_other_names() {
    let (origin, collector) = (hello(), GrpcOrigin::fixed(Vec::new()));
    let detector = extension(
        "static",
        "tracers.opentelemetry.resource_detectors.v3.StaticConfigResourceDetectorConfig",
        json!({"attributes": {"service.name": "shop"}}),
    );
    let sink = otlp_grpc(json!({
        "report_counters_as_deltas": true,
        "report_histograms_as_deltas": true,
        "emit_tags_as_attributes": false,
        "use_tag_extracted_name": false,
        "prefix": "pre",
        "resource_detectors": [detector],
    }));
    let proxy = Proxy::start(&site(&origin, sink, collector.address, http2()));
    (0..3).for_each(|_| assert_eq!(proxy.get("/").status, 200));
    let name = format!("pre.{COMPLETED}");
    let sum = || named(&exports(&collector), &name).iter().map(|metric| number(&points(metric)[0])).sum::<i64>();
    wait_until("three requests", || sum() == 3);
    let before = collector.messages().len();
    collector.wait_messages(before + 3);
    assert_eq!(sum(), 3);
    let exports = exports(&collector);
    let times = named(&exports, "pre.http.ingress_http.downstream_rq_time");
    let counts = times.iter().map(|metric| match &metric.data {
        Some(Data::Histogram(histogram)) => {
            assert_eq!(histogram.aggregation_temporality, DELTA);
            histogram.data_points[0].count
        }
        other => panic!("{other:?}"),
    });
    assert_eq!(counts.sum::<u64>(), 3);
    let metric = named(&exports, &name)[0];
    assert!(matches!(&metric.data, Some(Data::Sum(sum)) if sum.aggregation_temporality == DELTA), "{metric:?}");
    assert!(points(metric)[0].attributes.is_empty());
    let resource = exports[0].resource_metrics[0].resource.as_ref().unwrap();
    assert!(resource.attributes.contains(&KeyValue::text("service.name", "shop")), "{resource:?}");
}

#[test]
fn exports_have_so_many_points_at_most() {
    let (origin, collector) = (hello(), GrpcOrigin::fixed(Vec::new()));
    let sink = otlp_grpc(json!({"max_data_points_per_request": 5}));
    let _proxy = Proxy::start(&site(&origin, sink, collector.address, http2()));
    wait_until("the last of a flush", || {
        let exports = exports(&collector);
        !named(&exports, "server.live").is_empty() && exports.len() > 3
    });
    let sizes: Vec<usize> =
        exports(&collector).iter().map(|request| request.resource_metrics[0].scope_metrics[0].metrics.len()).collect();
    assert!(sizes.iter().all(|size| (1..=5).contains(size)) && sizes.contains(&5), "{sizes:?}");
}

#[test]
fn a_collector_is_told_over_http() {
    let (origin, collector) = (hello(), hello());
    let sink = otlp(json!({"http_service": {
        "http_uri": {"uri": "http://otlp.example:4318/v1/metrics", "cluster": "collector", "timeout": "1s"},
        "request_headers_to_add": [{"header": {"key": "X-Token", "value": "a%%b"}}],
    }}));
    let proxy = Proxy::start(&site(&origin, sink, collector.address, json!({})));
    assert_eq!(proxy.get("/").status, 200);
    let told = || {
        let requests = collector.requests();
        let exports = requests.iter().map(|request| ExportRequest::decode(request.body.as_slice()).expect("an export"));
        let exports: Vec<ExportRequest> = exports.collect();
        named(&exports, "http.downstream_rq_completed").last().map(|metric| number(&points(metric)[0]))
    };
    wait_until("the request", || told() == Some(1));
    let request = collector.requests().remove(0);
    assert_eq!((&*request.method, &*request.target), ("POST", "/v1/metrics"));
    assert_eq!(request.headers.value("host"), Some("otlp.example:4318"));
    assert_eq!(request.headers.value("content-type"), Some("application/x-protobuf"));
    assert_eq!(request.headers.value("x-token"), Some("a%b"));
    assert!(request.headers.value("user-agent").is_some_and(|agent| agent.starts_with("OTel-OTLP-Exporter-")));
}

/// Envoy counts nothing of its own here, and has no limit.
#[test]
fn what_a_collector_does_not_take_is_lost_and_counted() {
    if !postrider_only() {
        return;
    }
    let origin = hello();
    for (sink, fields) in [
        (otlp_grpc(json!({})), http2()),
        (
            otlp(json!({"http_service": {"http_uri": {"uri": "http://a/", "cluster": "collector", "timeout": "1s"}}})),
            json!({}),
        ),
        (metrics(json!({})), http2()),
        (statsd(json!({})), json!({})),
    ] {
        let proxy = Proxy::start(&site(&origin, sink, refusing_address(), fields));
        wait_until("lost messages", || proxy.stats().value("stats_sinks.dropped") > 1);
        assert_eq!(proxy.get("/").status, 200);
    }
}

/// Envoy has no bound for calls.
#[test]
fn a_collector_that_never_answers_costs_flushes_only() {
    if !postrider_only() {
        return;
    }
    let (origin, collector) = (hello(), GrpcOrigin::silent());
    let mut sink = otlp_grpc(json!({}));
    sink["typed_config"]["grpc_service"]["timeout"] = json!("3600s");
    let proxy = Proxy::start(&site(&origin, sink, collector.address, http2()));
    wait_until("lost flushes", || proxy.stats().value("stats_sinks.dropped") > 3);
    wait_until("the call", || !collector.calls().is_empty());
    assert_eq!(collector.calls().len(), 1);
    assert_eq!(proxy.get("/").status, 200);
}

#[test]
fn the_last_of_it_is_told_at_the_end() {
    if !postrider_only() {
        return;
    }
    let (origin, collector) = (hello(), GrpcOrigin::fixed(Vec::new()));
    let config = site(&origin, otlp_grpc(json!({})), collector.address, http2())
        .overlay(json!({"stats_flush_interval": "299s"}));
    let mut proxy = Proxy::start(&config);
    assert_eq!(proxy.get("/").status, 200);
    assert!(collector.messages().is_empty());
    proxy.signal("TERM");
    assert!(proxy.wait_exit().success());
    let exports = exports(&collector);
    assert_eq!(number(&points(named(&exports, "http.downstream_rq_completed")[0])[0]), 1);
}

/// A sink for the metrics service `collector`, with `more`.
fn metrics(more: Value) -> Value {
    let mut config = json!({
        "@type": "type.googleapis.com/envoy.config.metrics.v3.MetricsServiceConfig",
        "grpc_service": {"envoy_grpc": {"cluster_name": "collector"}},
        "transport_api_version": "V3",
    });
    config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({"name": "envoy.stat_sinks.metrics_service", "typed_config": config})
}

fn families(service: &GrpcOrigin) -> Vec<MetricFamily> {
    let messages = service.messages();
    let decoded = messages.iter().map(|message| StreamMetricsMessage::decode(message.as_slice()).expect("a message"));
    decoded.flat_map(|message| message.envoy_metrics).collect()
}

#[test]
fn a_metrics_service_is_told_on_one_stream() {
    let (origin, service) = (hello(), GrpcOrigin::silent());
    let sink = metrics(json!({"emit_tags_as_labels": true, "batch_size": 10}));
    let proxy = Proxy::start(&site(&origin, sink, service.address, http2()));
    (0..2).for_each(|_| assert_eq!(proxy.get("/").status, 200));
    let value = |family: &MetricFamily| family.metric[0].counter.as_ref().and_then(|counter| counter.value);
    let is_completed = |family: &MetricFamily| family.name() == "http.downstream_rq_completed";
    wait_until("two requests", || {
        families(&service).iter().any(|family| is_completed(family) && value(family) == Some(2.0))
    });
    let has = |name: &str| families(&service).iter().any(|family| family.name() == name);
    wait_until("the rest of the flush", || has("server.live") && has("http.downstream_rq_time"));
    let families = families(&service);
    let family = families.iter().find(|family| is_completed(family) && value(family) == Some(2.0)).unwrap();
    assert_eq!(family.r#type(), MetricType::Counter);
    let metric = &family.metric[0];
    assert!(metric.timestamp_ms() > 1_500_000_000_000);
    let labels: Vec<_> = metric.label.iter().map(|label| (label.name(), label.value())).collect();
    assert_eq!(labels, [("envoy.http_conn_manager_prefix", "ingress_http")]);
    let live = families.iter().rfind(|family| family.name() == "server.live").unwrap();
    assert_eq!(live.metric[0].gauge.as_ref().and_then(|gauge| gauge.value), Some(1.0));

    let times: Vec<_> = families.iter().filter(|family| family.name() == "http.downstream_rq_time").collect();
    let of = |kind| times.iter().filter(move |family| family.r#type() == kind).map(|family| &family.metric[0]);
    let summaries: u64 = of(MetricType::Summary).map(|metric| metric.summary.as_ref().unwrap().sample_count()).sum();
    let mut histograms = of(MetricType::Histogram).map(|metric| metric.histogram.as_ref().unwrap());
    assert_eq!(summaries, histograms.clone().map(|histogram| histogram.sample_count()).sum::<u64>());
    assert_eq!(histograms.next_back().unwrap().bucket.len(), 19);
    assert_eq!(of(MetricType::Summary).next().unwrap().summary.as_ref().unwrap().quantile.len(), 10);

    let calls = service.calls();
    assert_eq!(calls.len(), 1);
    assert_eq!(calls[0].path, "/envoy.service.metrics.v3.MetricsService/StreamMetrics");
    let messages: Vec<StreamMetricsMessage> =
        calls[0].messages.iter().map(|message| StreamMetricsMessage::decode(message.as_slice()).unwrap()).collect();
    let node = messages[0].identifier.as_ref().and_then(|identifier| identifier.node.as_ref()).unwrap();
    assert_eq!((&*node.id, &*node.cluster), ("me", "edge"));
    assert!(messages[1..].iter().all(|message| message.identifier.is_none()));
    assert!(messages.iter().all(|message| (1..=10).contains(&message.envoy_metrics.len())));
}

#[test]
fn a_metrics_service_is_told_full_names_and_what_is_new() {
    let (origin, service) = (hello(), GrpcOrigin::silent());
    let sink = metrics(json!({"report_counters_as_deltas": true, "histogram_emit_mode": "HISTOGRAM"}));
    let proxy = Proxy::start(&site(&origin, sink, service.address, http2()));
    (0..3).for_each(|_| assert_eq!(proxy.get("/").status, 200));
    let sum = || {
        let families = families(&service);
        let told = families.iter().filter(|family| family.name() == COMPLETED);
        told.map(|family| family.metric[0].counter.as_ref().unwrap().value()).sum::<f64>()
    };
    wait_until("three requests", || sum() == 3.0);
    let before = service.messages().len();
    service.wait_messages(before + 3);
    assert_eq!(sum(), 3.0);
    let families = families(&service);
    assert!(families.iter().all(|family| family.r#type() != MetricType::Summary && family.metric[0].label.is_empty()));
}

#[test]
fn a_stream_that_ended_is_opened_again() {
    let origin = hello();
    let service = GrpcOrigin::start(|_| vec![Step::End(0, "")]);
    let _proxy = Proxy::start(&site(&origin, metrics(json!({})), service.address, http2()));
    wait_until("three streams", || service.calls().len() > 2);
    // A further message may be on its way when a stream ends.
    for first in service.calls().iter().filter_map(|call| call.messages.first()) {
        assert!(StreamMetricsMessage::decode(first.as_slice()).unwrap().identifier.is_some());
    }
}

/// A sink for statsd at the cluster `collector`, with `more`.
fn statsd(more: Value) -> Value {
    let mut config = json!({
        "@type": "type.googleapis.com/envoy.config.metrics.v3.StatsdSink",
        "tcp_cluster_name": "collector",
    });
    config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({"name": "envoy.stat_sinks.statsd", "typed_config": config})
}

fn text(origin: &Origin) -> String {
    String::from_utf8_lossy(&origin.all_bytes()).into_owned()
}

#[test]
fn statsd_is_told_over_one_connection() {
    let origin = hello();
    let server = Origin::start(|connection| drop(connection.read_to_end()));
    let proxy = Proxy::start(&site(&origin, statsd(json!({"prefix": "shop"})), server.address, json!({})));
    (0..3).for_each(|_| assert_eq!(proxy.get("/").status, 200));
    let start = format!("shop.{COMPLETED}:");
    let sum = || {
        let text = text(&server);
        let counts = text.lines().filter_map(|line| line.strip_prefix(&start)?.strip_suffix("|c"));
        counts.map(|count| count.parse::<u64>().unwrap()).sum::<u64>()
    };
    wait_until("three requests", || sum() == 3);
    wait_until("a time", || {
        text(&server)
            .lines()
            .any(|line| line.starts_with("shop.http.ingress_http.downstream_rq_time:") && line.contains("|ms"))
    });
    let all = text(&server);
    // The last line may be on its way yet.
    let all = all.rsplit_once('\n').map_or("", |(whole, _)| whole);
    assert!(all.lines().any(|line| line == "shop.server.live:1|g"), "{all}");
    assert!(all.lines().all(|line| line.starts_with("shop.") && !line.contains('#')), "{all}");
    let stats = proxy.stats();
    assert_eq!((stats.value("statsd.cx_overflow"), sum()), (0, 3));
    if !envoy() {
        // Envoy's workers have connections of their own, for histograms.
        assert_eq!(server.connection_count(), 1);
    }
    assert!(stats.value("cluster.collector.upstream_cx_tx_bytes_total") >= all.len() as u64);
}

#[test]
fn a_connection_to_statsd_is_made_again() {
    let origin = hello();
    let server = Origin::start(|connection| drop(connection.read_exact(1)));
    let proxy = Proxy::start(&site(&origin, statsd(json!({})), server.address, json!({})));
    wait_until("three connections", || server.connection_count() > 2);
    assert_eq!(proxy.get("/").status, 200);
    assert!(text(&server).starts_with("envoy."));
}

#[test]
fn a_statsd_that_takes_nothing_loses_its_connection() {
    let origin = hello();
    let gate = Arc::new(Gate::default());
    let ours = gate.clone();
    let server = Origin::start(move |_| ours.wait());
    // So that a flush has a megabyte.
    let sink = statsd(json!({"prefix": "p".repeat(10_000)}));
    let config = site(&origin, sink, server.address, json!({})).overlay(json!({"stats_flush_interval": "0.01s"}));
    let proxy = Proxy::start(&config);
    wait_until("an overflow", || proxy.stats().value("statsd.cx_overflow") > 0);
    wait_until("another connection", || server.connection_count() > 1);
    assert_eq!(proxy.get("/").status, 200);
    gate.open();
}
