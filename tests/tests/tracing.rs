//! Tracing: which requests are, what upstreams and clients hear of it, what collectors of OpenTelemetry are told by gRPC and
//! HTTP, and what becomes of spans that nobody takes. The same expectations hold for Envoy, but where a test says so.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

use postrider_grpc::Message;
use postrider_grpc::otlp::spans::{CLIENT, EXPORT_TRACES, ExportSpans, FAILED, ResourceSpans, SERVER, Span};
use postrider_grpc::otlp::{KeyValue, Plain};
use postrider_tests::grpc::http2;
use postrider_tests::kit::config::{extension, file_access_log};
use postrider_tests::kit::net::refusing_address;
use postrider_tests::kit::{Config, GrpcOrigin, Origin, Proxy, Request, Response, TempDir, wait_until};
use postrider_tests::{ask, envoy, postrider_only};
use serde_json::{Value, json};

const CALLER: &str = "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\n";
const SENT: &str = "tracing.opentelemetry.spans_sent";
const DROPPED: &str = "tracing.opentelemetry.spans_dropped";

fn hello() -> Origin {
    Origin::fixed("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
}

fn collector() -> GrpcOrigin {
    GrpcOrigin::fixed(Vec::new())
}

/// A provider that tells the cluster `collector` by gRPC, with `more`.
fn provider(more: Value) -> Value {
    let mut fields = json!({"grpc_service": {"envoy_grpc": {"cluster_name": "collector"}}, "service_name": "shop"});
    fields.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    named("envoy.config.trace.v3.OpenTelemetryConfig", fields)
}

fn named(type_name: &str, mut fields: Value) -> Value {
    fields["@type"] = format!("type.googleapis.com/{type_name}").into();
    json!({"name": "envoy.tracers.opentelemetry", "typed_config": fields})
}

/// A site with these routes that traces as `tracing` says; each span is sent at once.
fn site(tracing: Value, routes: Value, hcm: Value, origin: SocketAddr, collector: SocketAddr) -> Config {
    let mut manager = json!({
        "tracing": tracing,
        "generate_request_id": true,
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": routes}]},
    });
    manager.as_object_mut().unwrap().extend(hcm.as_object().unwrap().clone());
    Config::new()
        .http(manager)
        .cluster("origin", &[origin])
        .cluster_with("collector", &[collector], http2())
        .overlay(json!({
            "node": {"id": "me", "cluster": "edge", "locality": {"zone": "z"}},
            "layered_runtime": {"layers": [{"name": "static", "static_layer": {"tracing.opentelemetry.min_flush_spans": 1}}]},
        }))
}

fn to_origin() -> Value {
    json!([{"match": {"prefix": "/"}, "route": {"cluster": "origin"}}])
}

/// Clients on this machine are inside.
fn inside() -> Value {
    json!({
        "use_remote_address": true,
        "internal_address_config": {"cidr_ranges": [{"address_prefix": "127.0.0.0", "prefix_len": 8}]},
    })
}

fn exports(collector: &GrpcOrigin) -> Vec<ResourceSpans> {
    let requests = collector.messages().into_iter().map(|message| ExportSpans::decode(message.as_slice()).unwrap());
    requests.flat_map(|request| request.resource_spans).collect()
}

fn spans(collector: &GrpcOrigin) -> Vec<Span> {
    exports(collector).into_iter().flat_map(|of| of.scope_spans).flat_map(|of| of.spans).collect()
}

fn wait_spans(collector: &GrpcOrigin, count: usize) -> Vec<Span> {
    wait_until(&format!("{count} spans"), || spans(collector).len() >= count);
    spans(collector)
}

/// The value of a tag that is a text.
fn tag<'s>(span: &'s Span, name: &str) -> Option<&'s str> {
    let found = span.attributes.iter().find(|tag| tag.key == name)?;
    match found.value.as_ref()?.value.as_ref()? {
        Plain::Text(text) => Some(text),
        other => panic!("{name} is {other:?}"),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Trace, span and flags of what an upstream heard.
fn heard(request: &Request) -> (String, String, String) {
    let parts: Vec<&str> = request.header("traceparent").split('-').collect();
    let [_, trace, span, flags] = parts[..] else { panic!("{parts:?}") };
    (trace.to_owned(), span.to_owned(), flags.to_owned())
}

/// Where a request's id says why it is traced.
fn reason(request: &Request) -> char {
    request.header("x-request-id").chars().nth(14).unwrap()
}

#[test]
fn a_collector_is_told_what_a_request_was() {
    let (origin, collector) = (hello(), collector());
    let tracing = json!({"provider": provider(json!({})), "max_path_tag_length": 8});
    let proxy = Proxy::start(&site(tracing, to_origin(), json!({}), origin.address, collector.address));
    ask(&proxy, "GET", "shop.test", "/things?id=7", "user-agent: me\r\nx-client-trace-id: mine\r\n");
    let told = wait_spans(&collector, 1);
    let (span, request) = (&told[0], &origin.requests()[0]);
    let (trace, id, flags) = heard(request);
    assert_eq!((hex(&span.trace_id), hex(&span.span_id), flags.as_str()), (trace, id, "01"));
    assert_eq!((span.name.as_str(), span.kind, span.flags), ("ingress", SERVER, 0x101));
    assert_eq!((&*hex(&span.parent_span_id), span.trace_state.as_str(), &span.status), ("", "", &None));
    assert!(span.start_time_unix_nano > 1_500_000_000_000_000_000);
    assert!(span.end_time_unix_nano > span.start_time_unix_nano);
    let id = request.header("x-request-id");
    assert_eq!(reason(request), 'b', "its client wants it");
    for (name, value) in [
        ("node_id", "me"),
        ("zone", "z"),
        ("guid:x-request-id", id),
        ("http.url", "http://shop.test/things?"),
        ("http.method", "GET"),
        ("downstream_cluster", "-"),
        ("user_agent", "me"),
        ("http.protocol", "HTTP/1.1"),
        ("peer.address", "127.0.0.1"),
        ("guid:x-client-trace-id", "mine"),
        ("request_size", "0"),
        ("response_size", "2"),
        ("component", "proxy"),
        ("upstream_cluster", "origin"),
        ("upstream_cluster.name", "origin"),
        ("http.status_code", "200"),
        ("response_flags", "-"),
    ] {
        assert_eq!(tag(span, name), Some(value), "{name}");
    }
    assert_eq!(span.attributes.len(), 17, "{:?}", span.attributes);

    let exports = exports(&collector);
    let resource = &exports[0].resource.as_ref().unwrap().attributes;
    assert!(resource.contains(&KeyValue::text("service.name", "shop")), "{resource:?}");
    let program = if envoy() { "envoy" } else { "postrider" };
    assert!(resource.contains(&KeyValue::text("telemetry.sdk.name", program)), "{resource:?}");
    assert_eq!(exports[0].scope_spans[0].scope.as_ref().unwrap().name, program);
    assert_eq!(collector.calls()[0].path, EXPORT_TRACES);
    proxy.wait_stat(SENT, 1);
    assert_eq!(proxy.stats().value("http.ingress_http.tracing.client_enabled"), 1);
}

#[test]
fn a_caller_decides_within_what_is_drawn() {
    let (origin, collector) = (hello(), collector());
    let routes = json!([
        {"match": {"prefix": "/none"}, "tracing": {"random_sampling": {"numerator": 0}}, "route": {"cluster": "origin"}},
        {"match": {"prefix": "/"}, "route": {"cluster": "origin"}},
    ]);
    let tracing = json!({"provider": provider(json!({}))});
    let proxy = Proxy::start(&site(tracing, routes, json!({}), origin.address, collector.address));
    let outcome = |path: &str, fields: &str| {
        ask(&proxy, "GET", "test", path, fields);
        let request = origin.requests().pop().unwrap();
        let (trace, span, flags) = heard(&request);
        let state = request.headers.value("tracestate").unwrap_or_default().to_owned();
        assert_ne!(span, "b7ad6b7169203331", "a part of our own");
        (trace, flags, state, reason(&request))
    };
    let trace = "0af7651916cd43dd8448eb211c80319c".to_owned();
    let state = "tracestate: a=1\r\ntracestate: b=2\r\n";
    let told = outcome("/", &format!("{CALLER}{state}"));
    assert_eq!(told, (trace.clone(), "01".into(), "a=1,b=2".into(), '9'));
    assert_eq!(outcome("/", &CALLER.replace("-01\r", "-00\r")), (trace.clone(), "00".into(), String::new(), '9'));
    assert_eq!(outcome("/none", CALLER), (trace, "00".into(), String::new(), '4'));
    let (own, flags, state, _) = outcome("/none", state);
    assert!(own.len() == 32 && own != "0".repeat(32));
    assert_eq!((flags.as_str(), state.as_str()), ("00", ""), "state without a trace belongs to none");
    ask(&proxy, "GET", "test", "/last", "");
    let told = wait_spans(&collector, 2);
    assert_eq!(told.len(), 2);
    assert_eq!((hex(&told[0].parent_span_id).as_str(), told[0].flags), ("b7ad6b7169203331", 0x301));
    assert_eq!(told[0].trace_state, "a=1,b=2");
    let stats = proxy.stats();
    assert_eq!(stats.value("http.ingress_http.tracing.random_sampling"), 3);
    assert_eq!(stats.value("http.ingress_http.tracing.not_traceable"), 2);
}

#[test]
fn a_word_on_the_trace_that_makes_no_sense_is_passed_on() {
    let (origin, collector) = (hello(), collector());
    let tracing = json!({"provider": provider(json!({}))});
    let proxy = Proxy::start(&site(tracing, to_origin(), json!({}), origin.address, collector.address));
    let broken = "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01";
    ask(&proxy, "GET", "test", "/broken", &format!("traceparent: {broken}\r\n"));
    assert_eq!(origin.requests()[0].header("traceparent"), broken);
    ask(&proxy, "GET", "test", "/good", "");
    assert_eq!(tag(&wait_spans(&collector, 1)[0], "http.url"), Some("http://test/good"));
    assert_eq!(proxy.stats().value("http.ingress_http.tracing.random_sampling"), 2);
}

#[test]
fn an_id_says_why_its_request_is_traced() {
    let (origin, collector) = (hello(), collector());
    let tracing = json!({"provider": provider(json!({})), "random_sampling": {"value": 0}});
    let proxy = Proxy::start(&site(tracing, to_origin(), json!({}), origin.address, collector.address));
    let id = |digit: char| format!("x-request-id: 12345678-1234-{digit}234-8234-123456789012\r\n");
    for (fields, flags, digit) in [
        (id('9'), "01", '9'),
        (id('a'), "01", 'a'),
        (id('b'), "01", 'b'),
        (id('4'), "00", '4'),
        ("x-request-id: 12345678\r\n".to_owned(), "00", ' '),
        ("x-request-id: foo\r\n".to_owned(), "00", ' '),
        // Who is not inside has no say.
        ("x-envoy-force-trace: true\r\n".to_owned(), "00", '4'),
    ] {
        ask(&proxy, "GET", "test", "/", &fields);
        let request = origin.requests().pop().unwrap();
        assert_eq!(heard(&request).2, flags, "{fields}");
        if digit != ' ' {
            assert_eq!(reason(&request), digit, "{fields}");
        }
    }
    let stats = proxy.stats();
    let count = |name: &str| stats.value(&format!("http.ingress_http.tracing.{name}"));
    assert_eq!(["random_sampling", "service_forced", "client_enabled", "not_traceable"].map(count), [1, 1, 1, 4]);
}

#[test]
fn values_of_the_runtime_stand_in_place_of_shares() {
    let (origin, collector) = (hello(), collector());
    let drawn = json!({"random_sampling": {"numerator": 100}, "client_sampling": {"numerator": 0}});
    let routes = json!([
        {"match": {"prefix": "/own"}, "tracing": drawn, "route": {"cluster": "origin"}},
        {"match": {"prefix": "/"}, "route": {"cluster": "origin"}},
    ]);
    let tracing = json!({"provider": provider(json!({})), "client_sampling": {"value": 0}});
    let config = site(tracing, routes, inside(), origin.address, collector.address)
        .overlay(json!({"layered_runtime": {"layers": [{"name": "admin", "admin_layer": {}}]}}));
    let proxy = Proxy::start(&config);
    let reasons = |value: &str| {
        assert_eq!(proxy.admin_post(&format!("/runtime_modify?{value}")).status, 200);
        [("/", ""), ("/own", ""), ("/own", "x-client-trace-id: a\r\n")].map(|(path, fields)| {
            ask(&proxy, "GET", "test", path, fields);
            reason(&origin.requests().pop().unwrap())
        })
    };
    assert_eq!(reasons("other=1"), ['9', '9', '9']);
    assert_eq!(reasons("tracing.client_enabled=100"), ['9', '9', 'b']);
    assert_eq!(reasons("tracing.random_sampling=0"), ['4', '4', 'b']);
    assert_eq!(reasons("tracing.random_sampling={numerator:%201000000,%20denominator:%20MILLION}"), ['9', '9', 'b']);
    assert_eq!(reasons("tracing.global_enabled=0"), ['4', '4', '4']);
    // More than all, which only the runtime can say.
    assert_eq!(reasons("tracing.global_enabled=101"), ['9', '9', 'b']);
}

#[test]
fn overall_sampling_bounds_every_reason() {
    let (origin, collector) = (hello(), collector());
    let tracing = json!({"provider": provider(json!({})), "overall_sampling": {"value": 0}});
    let proxy = Proxy::start(&site(tracing, to_origin(), inside(), origin.address, collector.address));
    ask(&proxy, "GET", "test", "/", "x-envoy-force-trace: true\r\n");
    ask(&proxy, "GET", "test", "/", "x-request-id: 12345678-1234-9234-8234-123456789012\r\n");
    for request in origin.requests() {
        assert_eq!((heard(&request).2.as_str(), reason(&request)), ("00", '4'));
    }
    assert_eq!(proxy.stats().value("http.ingress_http.tracing.not_traceable"), 2);
}

#[test]
fn logs_tell_trace_and_span_and_can_be_of_forced_traces_alone() {
    let directory = TempDir::new();
    let (origin, collector) = (hello(), collector());
    let paths = ["all", "forced"].map(|name| directory.path().join(name));
    let line = |text: &str| json!({"text_format_source": {"inline_string": text}});
    let mut forced = file_access_log(&paths[1], json!({"log_format": line("%REQ(:PATH)%\n")}));
    forced["filter"] = json!({"traceable_filter": {}});
    let all = file_access_log(&paths[0], json!({"log_format": line("%TRACE_ID% %SPAN_ID%\n")}));
    let mut hcm = inside();
    hcm["access_log"] = json!([all, forced]);
    let tracing = json!({"provider": provider(json!({}))});
    let proxy = Proxy::start(&site(tracing, to_origin(), hcm, origin.address, collector.address));
    ask(&proxy, "GET", "test", "/drawn", "");
    ask(&proxy, "GET", "test", "/forced", "x-envoy-force-trace: true\r\n");
    let text = |path| std::fs::read_to_string(path).unwrap_or_default();
    wait_until("two lines", || text(&paths[0]).lines().count() == 2 && text(&paths[1]).lines().count() == 1);
    let told: Vec<_> = wait_spans(&collector, 2);
    for span in &told {
        let line = format!("{} {}\n", hex(&span.trace_id), hex(&span.span_id));
        assert!(text(&paths[0]).contains(&line), "{line}");
    }
    assert_eq!(text(&paths[1]), "/forced\n");
    assert_eq!(proxy.stats().value("http.ingress_http.tracing.service_forced"), 1);
}

#[test]
fn a_route_names_its_requests_and_tells_clients() {
    let (origin, collector) = (hello(), collector());
    let route = json!({"cluster": "origin"});
    let routes = json!([
        {"match": {"prefix": "/named"}, "decorator": {"operation": "buy"}, "route": route},
        {"match": {"prefix": "/quiet"}, "decorator": {"operation": "look", "propagate": false}, "route": route},
        {"match": {"prefix": "/format"}, "decorator": {"operation": "x"},
            "tracing": {"operation": "%REQ(:METHOD)%%REQ(none)% it"}, "route": route},
        {"match": {"prefix": "/"}, "route": route},
    ]);
    let tracing = json!({"provider": provider(json!({}))});
    let proxy = Proxy::start(&site(tracing, routes, inside(), origin.address, collector.address));
    let mut answers = Vec::new();
    for (path, fields, name) in [
        ("/named", "", "buy"),
        ("/named", "x-envoy-decorator-operation: theirs\r\n", "theirs"),
        ("/quiet", "", "look"),
        ("/format", "", "GET it"),
        ("/other", "x-envoy-decorator-operation: theirs\r\n", "theirs"),
    ] {
        answers.push(ask(&proxy, "GET", "test", path, fields));
        let told = wait_spans(&collector, answers.len());
        assert_eq!(told.last().unwrap().name, name, "{path} {fields}");
    }
    let told = |answer: &Response| answer.headers.value("x-envoy-decorator-operation").unwrap_or_default().to_owned();
    assert_eq!(answers.iter().map(told).collect::<Vec<_>>(), ["buy", "", "", "", ""]);
    let kept =
        origin.requests().iter().filter(|request| request.headers.contains("x-envoy-decorator-operation")).count();
    assert_eq!(kept, 0, "it was for us");
}

#[test]
fn what_leaves_is_named_by_the_other_side() {
    let collector = collector();
    let origin = Origin::fixed("HTTP/1.1 200 OK\r\nx-envoy-decorator-operation: sell\r\ncontent-length: 2\r\n\r\nok");
    let route = json!({"cluster": "origin"});
    let routes = json!([
        {"match": {"prefix": "/named"}, "decorator": {"operation": "buy"}, "route": route},
        {"match": {"prefix": "/down"}, "direct_response": {"status": 404}},
    ]);
    let tracing = json!({"provider": provider(json!({}))});
    let config = site(tracing, routes, json!({}), origin.address, collector.address);
    let config = config.overlay_listener("http", json!({"traffic_direction": "OUTBOUND"}));
    let proxy = Proxy::start(&config);
    let answer = ask(&proxy, "GET", "test", "/named", "");
    assert!(!answer.headers.contains("x-envoy-decorator-operation"));
    assert_eq!(origin.requests()[0].header("x-envoy-decorator-operation"), "buy");
    ask(&proxy, "GET", "test", "/down", "");
    let told = wait_spans(&collector, 2);
    assert_eq!((told[0].name.as_str(), told[0].kind, &told[0].status), ("sell", CLIENT, &None));
    assert_eq!((told[1].name.as_str(), told[1].kind), ("egress test", CLIENT));
    assert_eq!(told[1].status.as_ref().unwrap().code, FAILED, "a client's mistake is one where we are the client");
}

#[test]
fn each_try_has_a_span_of_its_own() {
    let collector = collector();
    let tries = AtomicUsize::new(0);
    let origin = Origin::start(move |connection| {
        while connection.request().is_some() {
            let status = if tries.fetch_add(1, Ordering::SeqCst) == 0 { "503 No" } else { "200 OK" };
            connection.write(format!("HTTP/1.1 {status}\r\ncontent-length: 2\r\n\r\nok").as_bytes());
        }
    });
    let retry = json!({"retry_on": "5xx", "num_retries": 1, "retry_back_off": {"base_interval": "0.001s"}});
    let routes = json!([
        {"match": {"prefix": "/dead"}, "route": {"cluster": "dead"}},
        {"match": {"prefix": "/"}, "route": {"cluster": "origin", "retry_policy": retry}},
    ]);
    let tracing = json!({"provider": provider(json!({})), "spawn_upstream_span": true});
    let config = site(tracing, routes, json!({}), origin.address, collector.address);
    let proxy = Proxy::start(&config.cluster("dead", &[refusing_address()]));
    assert_eq!(ask(&proxy, "GET", "test", "/again", CALLER).status, 200);
    let told = wait_spans(&collector, 3);
    let whole = told.iter().find(|span| span.kind == SERVER).unwrap();
    let tries: Vec<_> = told.iter().filter(|span| span.kind == CLIENT).collect();
    assert!(tries.iter().all(|span| span.parent_span_id == whole.span_id && span.trace_id == whole.trace_id));
    assert!(tries.iter().all(|span| span.name == "router origin egress" && span.flags == 0x101));
    assert_eq!(hex(&whole.parent_span_id), "b7ad6b7169203331");
    let of_try = |status: &str| *tries.iter().find(|span| tag(span, "http.status_code") == Some(status)).unwrap();
    let (first, second) = (of_try("503"), of_try("200"));
    let address = origin.address.to_string();
    for (name, of_first, of_second) in [
        ("canceled", Some("true"), None),
        ("retry.count", None, Some("1")),
        ("error", Some("true"), None),
        ("upstream_address", Some(&*address), Some(&*address)),
        ("peer.address", Some(&*address), Some(&*address)),
        ("http.protocol", Some("HTTP/1.1"), Some("HTTP/1.1")),
        ("component", Some("proxy"), Some("proxy")),
        ("response_flags", Some("-"), Some("-")),
        ("node_id", None, None),
    ] {
        assert_eq!((tag(first, name), tag(second, name)), (of_first, of_second), "{name}");
    }
    assert_eq!((first.status.as_ref().map(|status| status.code), &second.status), (Some(FAILED), &None));
    let heard: Vec<_> = origin.requests().iter().map(|request| self::heard(request).1).collect();
    assert_eq!(heard, [hex(&first.span_id), hex(&second.span_id)]);

    assert_eq!(ask(&proxy, "GET", "test", "/dead", "").status, 503);
    let told = wait_spans(&collector, 5);
    let of_dead = told.iter().find(|span| span.name == "router dead egress").unwrap();
    assert_eq!(tag(of_dead, "error.reason"), Some("remote connection failure"));
    assert_eq!((tag(of_dead, "error"), tag(of_dead, "response_flags")), (Some("true"), Some("UF")));
    assert_eq!(tag(of_dead, "http.status_code"), Some("0"));
}

#[test]
fn tags_of_the_configuration_stand_in_spans() {
    let (origin, collector) = (hello(), collector());
    let tags = json!([
        {"tag": "literal", "literal": {"value": "l"}},
        {"tag": "lost", "environment": {"name": "POSTRIDER_TEST_NOT_SET"}},
        {"tag": "kept", "environment": {"name": "POSTRIDER_TEST_NOT_SET", "default_value": "d"}},
        {"tag": "header", "request_header": {"name": "x-a"}},
        {"tag": "none", "request_header": {"name": "x-b"}},
        {"tag": "route", "metadata": {"kind": {"route": {}}, "metadata_key": {"key": "n", "path": [{"key": "k"}]}}},
        {"tag": "request", "metadata": {"kind": {"request": {}}, "metadata_key": {"key": "n", "path": [{"key": "k"}]},
            "default_value": "d"}},
        {"tag": "format", "value": "%REQ(x-a)%%REQ(x-b)% %RESPONSE_CODE%"},
        {"tag": "number", "value": "%RESPONSE_CODE%", "value_type": "INT"},
        {"tag": "truth", "literal": {"value": "true"}, "value_type": "BOOL"},
    ]);
    let routes = json!([{
        "match": {"prefix": "/"},
        "metadata": {"filter_metadata": {"n": {"k": ["x"]}}},
        "tracing": {"custom_tags": [{"tag": "literal", "literal": {"value": "of the route"}}]},
        "route": {"cluster": "origin"},
    }]);
    let tracing = json!({"provider": provider(json!({})), "custom_tags": tags});
    let proxy = Proxy::start(&site(tracing, routes, json!({}), origin.address, collector.address));
    ask(&proxy, "GET", "test", "/", "x-a: 1\r\n");
    let told = wait_spans(&collector, 1);
    for (name, value) in [
        ("literal", Some("of the route")),
        ("lost", None),
        ("kept", Some("d")),
        ("header", Some("1")),
        ("none", None),
        ("route", Some("[\"x\"]")),
        ("request", Some("d")),
        ("format", Some("1 200")),
    ] {
        assert_eq!(tag(&told[0], name), value, "{name}");
    }
    let typed = |name: &str| {
        let found = told[0].attributes.iter().find(|tag| tag.key == name);
        found.and_then(|tag| tag.value.clone()?.value)
    };
    assert_eq!((typed("number"), typed("truth")), (Some(Plain::Integer(200)), Some(Plain::Bool(true))));
}

#[test]
fn calls_of_grpc_tell_how_they_ended() {
    let collector = collector();
    let origin = Origin::start(|connection| {
        while let Some(request) = connection.request() {
            let code = request.target.rsplit('/').next().unwrap().to_owned();
            let head =
                format!("HTTP/1.1 200 OK\r\ncontent-length: 0\r\ngrpc-status: {code}\r\ngrpc-message: m\r\n\r\n");
            connection.write(head.as_bytes());
        }
    });
    let tracing = json!({"provider": provider(json!({}))});
    let proxy = Proxy::start(&site(tracing, to_origin(), json!({}), origin.address, collector.address));
    for (code, error, failed) in
        [("0", None, false), ("3", None, false), ("8", Some("true"), false), ("14", Some("true"), true)]
    {
        let fields = "content-type: application/grpc\r\ngrpc-timeout: 9S\r\ncontent-length: 0\r\n";
        ask(&proxy, "POST", "test", &format!("/s/{code}"), fields);
        let is_it = |span: &Span| tag(span, "grpc.status_code") == Some(code);
        wait_until("its span", || spans(&collector).iter().any(is_it));
        let span = spans(&collector).into_iter().find(is_it).unwrap();
        assert_eq!((tag(&span, "error"), tag(&span, "grpc.message")), (error, Some("m")), "{code}");
        assert_eq!(span.status.as_ref().is_some_and(|status| status.code == FAILED), failed, "{code}");
        let said = ["grpc.path", "grpc.authority", "grpc.content_type", "grpc.timeout"].map(|name| tag(&span, name));
        let path = format!("/s/{code}");
        assert_eq!(said, [Some(&*path), Some("test"), Some("application/grpc"), Some("9S")]);
    }
}

/// The kind of service does not matter to a request, but to what its span says.
#[test]
fn calls_of_filters_had_no_spans_and_their_services_heard_of_no_trace() {
    use postrider_grpc::auth::{CheckResponse, OkHttpResponse, check_response::HttpResponse};
    let allowed = CheckResponse {
        status: Some(postrider_grpc::core::Status::default()),
        http_response: Some(HttpResponse::OkResponse(OkHttpResponse::default())),
        ..CheckResponse::default()
    };
    let over_grpc = GrpcOrigin::fixed(allowed.encode_to_vec());
    let over_http = hello();
    for is_grpc in [true, false] {
        for emits in [true, false] {
            let (origin, collector) = (hello(), collector());
            let mut authz = match is_grpc {
                true => json!({"grpc_service": {"envoy_grpc": {"cluster_name": "authz"}}}),
                false => {
                    json!({"http_service": {"server_uri": {"uri": "http://authz", "cluster": "authz", "timeout": "5s"}}})
                }
            };
            authz["emit_client_span"] = emits.into();
            let authz = extension("envoy.filters.http.ext_authz", "filters.http.ext_authz.v3.ExtAuthz", authz);
            let service = if is_grpc { over_grpc.address } else { over_http.address };
            let filters = json!({"http_filters": [authz, postrider_tests::kit::config::router()]});
            let tracing = json!({"provider": provider(json!({}))});
            let config = site(tracing, to_origin(), filters, origin.address, collector.address);
            let options = if is_grpc { http2() } else { json!({}) };
            let proxy = Proxy::start(&config.cluster_with("authz", &[service], options));
            assert_eq!(ask(&proxy, "GET", "shop.test", "/", "").status, 200);
            let told = wait_spans(&collector, if emits { 2 } else { 1 });
            let own = told.iter().find(|span| span.name == "ingress").unwrap();
            let heard = match is_grpc {
                true => over_grpc.calls().last().unwrap().headers.value("traceparent").unwrap().to_owned(),
                false => over_http.requests().last().unwrap().header("traceparent").to_owned(),
            };
            let child = told.iter().find(|span| span.name != "ingress");
            assert_eq!(child.is_some(), emits);
            let of = child.unwrap_or(own);
            assert_eq!(heard, format!("00-{}-{}-01", hex(&own.trace_id), hex(&of.span_id)));
            let Some(child) = child else { continue };
            assert_eq!((&child.parent_span_id, child.kind), (&own.span_id, CLIENT));
            assert_eq!((tag(child, "upstream_cluster"), tag(child, "component")), (Some("authz"), Some("proxy")));
            let (name, status) = match is_grpc {
                true => ("async envoy.service.auth.v3.Authorization.Check egress", "grpc.status_code"),
                false => ("async authz egress", "http.status_code"),
            };
            assert_eq!((child.name.as_str(), tag(child, status)), (name, Some(if is_grpc { "0" } else { "200" })));
        }
    }
}

#[test]
fn what_is_verbose_tells_when_its_parts_happened() {
    let (origin, collector) = (hello(), collector());
    let tracing = json!({"provider": provider(json!({})), "verbose": true});
    let proxy = Proxy::start(&site(tracing, to_origin(), json!({}), origin.address, collector.address));
    ask(&proxy, "GET", "test", "/", "");
    let told = wait_spans(&collector, 1);
    let events: Vec<_> = told[0].events.iter().map(|event| event.name.as_str()).collect();
    let want = [
        "last_downstream_rx_byte_received",
        "first_upstream_tx_byte_sent",
        "last_upstream_tx_byte_sent",
        "first_upstream_rx_byte_received",
        "last_upstream_rx_byte_received",
        "first_downstream_tx_byte_sent",
        "last_downstream_tx_byte_sent",
    ];
    assert_eq!(events, want);
}

#[test]
fn spans_go_over_http_too() {
    let (origin, collector) = (hello(), Origin::fixed("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"));
    let service = json!({
        "http_uri": {"uri": "http://traces.test/v1/traces", "cluster": "traces", "timeout": "5s"},
        "request_headers_to_add": [{"header": {"key": "x-token", "value": "t"}}],
    });
    let provider = named("envoy.config.trace.v3.OpenTelemetryConfig", json!({"http_service": service}));
    let config = site(json!({"provider": provider}), to_origin(), json!({}), origin.address, refusing_address());
    let proxy = Proxy::start(&config.cluster("traces", &[collector.address]));
    ask(&proxy, "GET", "test", "/over-http", "");
    collector.wait_requests(1);
    let request = &collector.requests()[0];
    assert_eq!((request.method.as_str(), request.target.as_str()), ("POST", "/v1/traces"));
    assert_eq!((request.header("host"), request.header("x-token")), ("traces.test", "t"));
    assert_eq!(request.header("content-type"), "application/x-protobuf");
    let told = ExportSpans::decode(request.body.as_slice()).unwrap();
    let of = &told.resource_spans[0];
    assert_eq!(tag(&of.scope_spans[0].spans[0], "http.url"), Some("http://test/over-http"));
    let resource = &of.resource.as_ref().unwrap().attributes;
    assert!(resource.contains(&KeyValue::text("service.name", "unknown_service:envoy")), "{resource:?}");
    proxy.wait_stat(SENT, 1);
}

/// Envoy counts what it could not send as sent.
#[test]
fn what_a_collector_does_not_take_is_dropped_and_counted() {
    if !postrider_only() {
        return;
    }
    let origin = hello();
    let tracing = json!({"provider": provider(json!({}))});
    let proxy = Proxy::start(&site(tracing, to_origin(), json!({}), origin.address, refusing_address()));
    (0..3).for_each(|_| assert_eq!(proxy.get("/").status, 200));
    proxy.wait_stat(DROPPED, 3);
    assert_eq!(proxy.stats().value(SENT), 0);
}

/// Envoy has no bound for calls under way.
#[test]
fn a_collector_that_is_slow_costs_spans_and_no_request() {
    if !postrider_only() {
        return;
    }
    let (origin, collector) = (hello(), GrpcOrigin::silent());
    let tracing = json!({"provider": provider(json!({"max_cache_size": 2}))});
    let config = site(tracing, to_origin(), json!({}), origin.address, collector.address);
    let proxy = Proxy::start(&config);
    (0..10).for_each(|_| assert_eq!(proxy.get("/").status, 200));
    // Four are on their way, two wait.
    proxy.wait_stat(DROPPED, 4);
    collector.wait_messages(4);
    assert_eq!(collector.messages().len(), 4);
}

#[test]
fn a_sampler_decides_in_place_of_the_caller() {
    let (origin, collector) = (hello(), collector());
    let sampler =
        |name: &str, fields: Value| extension("sampler", &format!("tracers.opentelemetry.samplers.v3.{name}"), fields);
    let nothing = sampler("TraceIdRatioBasedSamplerConfig", json!({"sampling_percentage": {"numerator": 0}}));
    let parent = sampler("ParentBasedSamplerConfig", json!({"wrapped_sampler": nothing}));
    let routes = json!([
        {"match": {"prefix": "/none"}, "tracing": {"random_sampling": {"numerator": 0}}, "route": {"cluster": "origin"}},
        {"match": {"prefix": "/"}, "route": {"cluster": "origin"}},
    ]);
    let tracing = json!({"provider": provider(json!({"sampler": parent}))});
    let proxy = Proxy::start(&site(tracing, routes, json!({}), origin.address, collector.address));
    ask(&proxy, "GET", "test", "/own", "");
    ask(&proxy, "GET", "test", "/none", CALLER);
    ask(&proxy, "GET", "test", "/called", CALLER);
    let flags: Vec<_> = origin.requests().iter().map(|request| heard(request).2).collect();
    assert_eq!(flags, ["00", "00", "01"], "what is not drawn is not asked about");
    assert_eq!(tag(&wait_spans(&collector, 1)[0], "http.url"), Some("http://test/called"));
}

#[test]
fn an_expression_decides_in_place_of_the_caller() {
    let (origin, collector) = (hello(), collector());
    let chosen = |expression: Value| {
        let fields = json!({"expression": {"cel_expr_parsed": {"expr": expression}}});
        let sampler = extension("sampler", "tracers.opentelemetry.samplers.v3.CELSamplerConfig", fields);
        let routes = json!([{"name": "named", "match": {"prefix": "/"}, "route": {"cluster": "origin"}}]);
        let tracing = json!({"provider": provider(json!({"sampler": sampler}))});
        let proxy = Proxy::start(&site(tracing, routes, json!({}), origin.address, collector.address));
        let before = origin.requests().len();
        for (path, more) in [("/told", ""), ("/other", ""), ("/told", CALLER), ("/other", CALLER)] {
            ask(&proxy, "GET", "test", path, more);
        }
        let flags = origin.requests().iter().skip(before).map(|request| heard(request).2).collect::<Vec<_>>();
        flags.join(" ")
    };
    let field = |of: &str, name: &str| json!({"select_expr": {"operand": {"ident_expr": {"name": of}}, "field": name}});
    let text = |text: &str| json!({"const_expr": {"string_value": text}});
    let equal = |left: Value, right: Value| json!({"call_expr": {"function": "_==_", "args": [left, right]}});
    assert_eq!(chosen(equal(field("request", "path"), text("/told"))), "01 00 01 00");
    assert_eq!(chosen(equal(field("xds", "route_name"), text("named"))), "01 01 01 01");
    assert_eq!(chosen(equal(field("xds", "cluster_name"), text("origin"))), "01 01 01 01");
    let header = json!({"call_expr": {"function": "_[_]", "args": [field("request", "headers"), text("x-none")]}});
    assert_eq!(chosen(equal(header, text("a"))), "00 00 00 00", "what has no value is not true");
    assert_eq!(chosen(text("true")), "00 00 00 00", "nor is a text");
}

#[test]
fn without_a_provider_requests_are_marked_and_counted() {
    let (origin, collector) = (hello(), collector());
    let proxy = Proxy::start(&site(json!({}), to_origin(), json!({}), origin.address, collector.address));
    ask(&proxy, "GET", "test", "/", CALLER);
    let request = &origin.requests()[0];
    assert_eq!(reason(request), '9');
    assert_eq!(format!("traceparent: {}\r\n", request.header("traceparent")), CALLER, "it is not ours");
    assert_eq!(proxy.stats().value("http.ingress_http.tracing.random_sampling"), 1);
}

#[test]
fn spans_that_wait_are_told_when_the_proxy_ends() {
    if !postrider_only() {
        return;
    }
    let (origin, collector) = (hello(), collector());
    let tracing = json!({"provider": provider(json!({}))});
    let config = site(tracing, to_origin(), json!({}), origin.address, collector.address);
    let config = config.overlay(json!({"layered_runtime": {"layers": [{"name": "static", "static_layer": {
        "tracing.opentelemetry.min_flush_spans": 100, "tracing.opentelemetry.flush_interval_ms": 600_000,
    }}]}}));
    let mut proxy = Proxy::start(&config);
    (0..3).for_each(|_| assert_eq!(proxy.get("/").status, 200));
    assert!(spans(&collector).is_empty());
    proxy.signal("TERM");
    proxy.wait_exit();
    assert_eq!(wait_spans(&collector, 3).len(), 3);
}
