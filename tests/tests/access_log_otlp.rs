//! Access logs that go to collectors of OpenTelemetry. The same expectations hold for Envoy, but where a test says so.

use std::net::SocketAddr;

use postrider_grpc::Message;
use postrider_grpc::otlp::spans::{EXPORT_LOGS, ExportLogs, LogRecord, ResourceLogs};
use postrider_grpc::otlp::{AnyValue, ExportResponse, KeyValue, ListOfValues, MapOfValues, PartialSuccess, Plain};
use postrider_tests::grpc::http2;
use postrider_tests::kit::config::{extension, router};
use postrider_tests::kit::net::refusing_address;
use postrider_tests::kit::{Config, GrpcOrigin, Origin, Proxy, wait_until};
use postrider_tests::{ask, envoy, postrider_only};
use serde_json::{Value, json};

fn hello() -> Origin {
    Origin::fixed("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
}

/// A site that logs as `fields` say, each record at once.
fn site(fields: Value, origin: SocketAddr, collector: SocketAddr) -> Config {
    let mut logger = json!({"buffer_size_bytes": 1});
    logger.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    let logger = extension("log", "access_loggers.open_telemetry.v3.OpenTelemetryAccessLogConfig", logger);
    Config::proxy_to(origin)
        .overlay_filter("http", json!({"access_log": [logger]}))
        .cluster_with("collector", &[collector], http2())
        .overlay(json!({"node": {"id": "me", "cluster": "edge", "locality": {"zone": "z"}}}))
}

fn by_grpc() -> Value {
    json!({"envoy_grpc": {"cluster_name": "collector"}})
}

fn exports(collector: &GrpcOrigin) -> Vec<ResourceLogs> {
    let requests = collector.messages().into_iter().map(|message| ExportLogs::decode(message.as_slice()).unwrap());
    requests.flat_map(|request| request.resource_logs).collect()
}

fn records(collector: &GrpcOrigin) -> Vec<LogRecord> {
    exports(collector).into_iter().flat_map(|of| of.scope_logs).flat_map(|of| of.log_records).collect()
}

#[test]
fn a_record_says_what_its_formats_say() {
    let (origin, collector) = (hello(), GrpcOrigin::fixed(Vec::new()));
    let text = |text: &str| json!({"string_value": text});
    let fields = json!({
        "grpc_service": by_grpc(),
        "log_name": "shop",
        "body": text("%REQ(:METHOD)% %REQ(:PATH)%"),
        "attributes": {"values": [
            {"key": "status", "value": text("%RESPONSE_CODE%")},
            {"key": "list", "value": {"array_value": {"values": [text("%PROTOCOL%"), text("x")]}}},
            {"key": "map", "value": {"kvlist_value": {"values": [{"key": "none", "value": text("%REQ(none)%")}]}}},
        ]},
        "resource_attributes": {"values": [{"key": "r", "value": text("%RESPONSE_CODE%")}]},
        "custom_tags": [
            {"tag": "t", "literal": {"value": "v"}},
            {"tag": "h", "request_header": {"name": "x-a"}},
        ],
        "stat_prefix": "mine.",
    });
    let proxy = Proxy::start(&site(fields, origin.address, collector.address));
    ask(&proxy, "GET", "test", "/a", "");
    wait_until("a record", || !records(&collector).is_empty());
    let record = records(&collector).remove(0);
    assert!(record.time_unix_nano > 1_500_000_000_000_000_000);
    assert_eq!(record.body, Some(AnyValue::text("GET /a")));
    let of = |name: &str| record.attributes.iter().find(|pair| pair.key == name).and_then(|pair| pair.value.clone());
    assert_eq!(of("status"), Some(AnyValue::text("200")));
    let list = ListOfValues { values: vec![AnyValue::text("HTTP/1.1"), AnyValue::text("x")] };
    assert_eq!(of("list"), Some(AnyValue { value: Some(Plain::List(list)) }));
    let map = MapOfValues { values: vec![KeyValue::text("none", "-")] };
    assert_eq!(of("map"), Some(AnyValue { value: Some(Plain::Map(map)) }));
    assert_eq!((of("t"), of("h")), (Some(AnyValue::text("v")), None));
    assert!(record.trace_id.is_empty() && record.span_id.is_empty());
    let resource = exports(&collector)[0].resource.clone().unwrap().attributes;
    let want = [
        ("log_name", "shop"),
        ("zone_name", "z"),
        ("cluster_name", "edge"),
        ("node_name", "me"),
        ("r", "%RESPONSE_CODE%"),
    ];
    assert_eq!(resource, want.map(|(name, value)| KeyValue::text(name, value)));
    assert_eq!(collector.calls()[0].path, EXPORT_LOGS);
    proxy.wait_stat("access_logs.open_telemetry_access_log.mine.logs_written", 1);
}

#[test]
fn a_record_names_its_trace() {
    let (origin, collector) = (hello(), GrpcOrigin::fixed(Vec::new()));
    let mut provider = json!({"grpc_service": by_grpc()});
    provider["@type"] = "type.googleapis.com/envoy.config.trace.v3.OpenTelemetryConfig".into();
    let tracing = json!({"provider": {"name": "envoy.tracers.opentelemetry", "typed_config": provider}});
    let fields = json!({"grpc_service": by_grpc(), "disable_builtin_labels": true});
    let config = site(fields, origin.address, collector.address)
        .overlay_filter("http", json!({"tracing": tracing, "generate_request_id": true}));
    let proxy = Proxy::start(&config);
    let caller = "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\n";
    ask(&proxy, "GET", "test", "/a", caller);
    let logs = || collector.calls().into_iter().filter(|call| call.path == EXPORT_LOGS).flat_map(|call| call.messages);
    wait_until("a record", || logs().next().is_some());
    let of = ExportLogs::decode(logs().next().unwrap().as_slice()).unwrap().resource_logs.remove(0);
    assert!(of.resource.unwrap_or_default().attributes.is_empty());
    let record = &of.scope_logs[0].log_records[0];
    let request = &origin.requests()[0];
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let told = format!("00-{}-{}-01", hex(&record.trace_id), hex(&record.span_id));
    assert_eq!(request.header("traceparent"), told);
}

#[test]
fn records_go_over_http_too_and_by_the_older_field() {
    let (origin, collector) = (hello(), Origin::fixed("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"));
    let service = json!({"http_uri": {"uri": "http://logs.test/v1/logs", "cluster": "logs", "timeout": "5s"}});
    let fields = json!({"http_service": service, "body": {"string_value": "b"}});
    let config = site(fields, origin.address, refusing_address()).cluster("logs", &[collector.address]);
    let proxy = Proxy::start(&config);
    ask(&proxy, "GET", "test", "/", "");
    collector.wait_requests(1);
    let request = &collector.requests()[0];
    assert_eq!((request.method.as_str(), request.target.as_str()), ("POST", "/v1/logs"));
    let told = ExportLogs::decode(request.body.as_slice()).unwrap();
    let record = &told.resource_logs[0].scope_logs[0].log_records[0];
    assert_eq!(record.body, Some(AnyValue::text("b")));

    let collector = GrpcOrigin::fixed(Vec::new());
    let common = json!({"log_name": "old", "transport_api_version": "V3", "grpc_service": by_grpc()});
    let proxy = Proxy::start(&site(json!({"common_config": common}), origin.address, collector.address));
    ask(&proxy, "GET", "test", "/", "");
    wait_until("a record", || !records(&collector).is_empty());
    let resource = exports(&collector)[0].resource.clone().unwrap().attributes;
    assert_eq!(resource[0], KeyValue::text("log_name", "old"));
}

/// Between the attributes and the tags, each as JSON.
#[test]
fn a_record_tells_objects_of_the_filter_state() {
    let (origin, collector) = (hello(), GrpcOrigin::fixed(Vec::new()));
    let object = |key: &str, factory: &str, value: &str| json!({"object_key": key, "factory_key": factory, "format_string": {"text_format_source": {"inline_string": value}}});
    let idle = "envoy.tcp_proxy.per_connection_idle_timeout_ms";
    let objects = json!({"on_request_headers": [
        object("text", "envoy.string", "a\"b"),
        object("yes", "envoy.bool", "true"),
        object(idle, idle, "70"),
        object("envoy.network.upstream_server_name", "envoy.network.upstream_server_name", "a.test"),
    ]});
    let named = json!(["yes", "none", "text", idle, "envoy.network.upstream_server_name"]);
    let tags = json!([{"tag": "t", "literal": {"value": "v"}}]);
    let attributes = json!({"values": [{"key": "a", "value": {"string_value": "A"}}]});
    let common = |names: Value| json!({"log_name": "x", "transport_api_version": "V3", "grpc_service": by_grpc(), "filter_state_objects_to_log": names});
    let all = [("a", "A"), ("yes", "true"), ("text", r#""a\"b""#), (idle, r#""70""#), ("t", "v")];
    let one = [("a", "A"), ("yes", "true"), ("t", "v")];
    for (place, want) in [
        (json!({"grpc_service": by_grpc(), "filter_state_objects_to_log": named}), &all[..]),
        (json!({"common_config": common(named.clone())}), &all),
        (json!({"common_config": common(named.clone()), "filter_state_objects_to_log": ["yes"]}), &one),
    ] {
        // Envoy reads it there, and does not use it.
        if envoy() && place.get("common_config").is_some() {
            continue;
        }
        let mut fields = json!({"attributes": attributes, "custom_tags": tags});
        fields.as_object_mut().unwrap().extend(place.as_object().unwrap().clone());
        let notes = extension("notes", "filters.http.set_filter_state.v3.Config", objects.clone());
        let config = site(fields, origin.address, collector.address)
            .overlay_filter("http", json!({"http_filters": [notes, router()]}));
        let proxy = Proxy::start(&config);
        let before = records(&collector).len();
        assert_eq!(proxy.get("/").status, 200);
        wait_until("a record", || records(&collector).len() > before);
        let told: Vec<KeyValue> = want.iter().map(|(name, value)| KeyValue::text(*name, *value)).collect();
        assert_eq!(records(&collector)[before].attributes, told, "{place}");
    }
}

/// Envoy has no bound for calls under way.
#[test]
fn a_collector_that_is_slow_gets_fewer_and_larger_calls_and_misses_nothing() {
    if !postrider_only() {
        return;
    }
    // It answers nothing; what is on its way is lost when its time is over, and what came meanwhile goes then.
    let (origin, collector) = (hello(), GrpcOrigin::silent());
    let mut service = by_grpc();
    service["timeout"] = json!("2s");
    let fields = json!({"grpc_service": service, "body": {"string_value": "%REQ(:PATH)%"}});
    let proxy = Proxy::start(&site(fields, origin.address, collector.address));
    (0..100).for_each(|number| assert_eq!(proxy.get(&format!("/{number}")).status, 200));
    wait_until("all records", || records(&collector).len() == 100);
    assert_eq!(collector.messages().len(), 5);
    assert_eq!(proxy.stats().value("access_logs.open_telemetry_access_log.logs_written"), 0);
}

#[test]
fn records_that_a_collector_rejects_are_dropped_and_the_others_written() {
    let rejected = PartialSuccess { rejected_data_points: 1, error_message: "too old".to_owned() };
    let answer = ExportResponse { partial_success: Some(rejected) }.encode_to_vec();
    let (origin, collector) = (hello(), GrpcOrigin::fixed(answer));
    let mut fields = json!({"grpc_service": by_grpc(), "body": {"string_value": "0123456789"}});
    fields["buffer_size_bytes"] = json!(3 * 24);
    fields["buffer_flush_interval"] = json!("0.1s");
    let proxy = Proxy::start(&site(fields, origin.address, collector.address));
    (0..3).for_each(|_| assert_eq!(proxy.get("/").status, 200));
    let stat = |name: &str| proxy.stats().value(&format!("access_logs.open_telemetry_access_log.{name}"));
    wait_until("all counted", || stat("logs_dropped") + stat("logs_written") == 3);
    assert_eq!(stat("logs_dropped"), collector.messages().len() as u64);
}

/// Envoy counts as written what it could not send.
#[test]
fn records_that_nobody_takes_are_dropped_and_counted() {
    if !postrider_only() {
        return;
    }
    let origin = hello();
    let proxy = Proxy::start(&site(json!({"grpc_service": by_grpc()}), origin.address, refusing_address()));
    (0..3).for_each(|_| assert_eq!(proxy.get("/").status, 200));
    proxy.wait_stat("access_logs.open_telemetry_access_log.logs_dropped", 3);
    assert_eq!(proxy.stats().value("access_logs.open_telemetry_access_log.logs_written"), 0);
}
