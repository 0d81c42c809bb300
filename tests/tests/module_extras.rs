//! What few native modules do: spans, requests that begin anew, options of sockets, and filters on the upstream side. The same
//! shared object in both proxies.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

use postrider_grpc::Message;
use postrider_grpc::otlp::Plain;
use postrider_grpc::otlp::spans::{CLIENT, ExportSpans, Span};
use postrider_tests::grpc::http2;
use postrider_tests::kit::config::{extension, upstream_http_options};
use postrider_tests::kit::{GrpcOrigin, Origin, wait_until};
use postrider_tests::modules::{extras, script};
use postrider_tests::postrider_only;
use postrider_tests::site::{self, Plan, Site};
use serde_json::{Value, json};

const NAME: &str = "envoy.filters.http.dynamic_modules";
const TYPE: &str = "filters.http.dynamic_modules.v3.DynamicModuleFilter";

fn filter(name: &str, text: &str) -> Value {
    let config = json!({"@type": "type.googleapis.com/google.protobuf.StringValue", "value": text});
    let module = json!({"module": {"local": {"filename": extras()}}});
    extension(NAME, TYPE, json!({"dynamic_module_config": module, "filter_name": name, "filter_config": config}))
}

/// What the origin got of the request with that number, from 0.
fn seen(site: &Site, request: usize, name: &str) -> String {
    site.origin.requests()[request].headers.values(name).join("|")
}

/// With a tracer that tells each span at once.
fn traced(text: &str, collector: SocketAddr) -> Plan {
    let provider = json!({
        "name": "envoy.tracers.opentelemetry",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.config.trace.v3.OpenTelemetryConfig",
            "grpc_service": {"envoy_grpc": {"cluster_name": "collector"}}, "service_name": "shop",
        },
    });
    let at_once = json!({"tracing.opentelemetry.min_flush_spans": 1});
    site::with([filter("spans", text)])
        .manager(json!({"tracing": {"provider": provider}, "generate_request_id": true}))
        .cluster("collector", &[collector], http2())
        .whole(json!({"layered_runtime": {"layers": [{"name": "static", "static_layer": at_once}]}}))
}

fn spans(collector: &GrpcOrigin) -> Vec<Span> {
    let requests = collector.messages().into_iter().map(|message| ExportSpans::decode(message.as_slice()).unwrap());
    requests.flat_map(|request| request.resource_spans).flat_map(|of| of.scope_spans).flat_map(|of| of.spans).collect()
}

fn tag<'s>(span: &'s Span, name: &str) -> Vec<&'s str> {
    let values =
        span.attributes.iter().filter(|tag| tag.key == name).filter_map(|tag| tag.value.as_ref()?.value.as_ref());
    values.map(|value| if let Plain::Text(text) = value { text.as_str() } else { "no text" }).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn a_span_says_what_modules_say_of_it_and_has_their_parts() {
    let collector = GrpcOrigin::fixed(Vec::new());
    let site = traced("", collector.address).start();
    assert_eq!(site.get("/", "").status, 200);
    wait_until("three spans", || spans(&collector).len() >= 3);
    let told = spans(&collector);
    let of = |name: &str| told.iter().find(|span| span.name == name).unwrap_or_else(|| panic!("{name}: {told:#?}"));
    let [whole, part, of_part] = ["named by a module", "part", "part of a part"].map(of);
    let known = format!("11 {} {} 10", hex(&whole.trace_id), hex(&whole.span_id));
    assert_eq!(seen(&site, 0, "x-span"), known, "what the module found");
    let parent = seen(&site, 0, "traceparent");
    assert_eq!(parent, format!("00-{}-{}-01", hex(&whole.trace_id), hex(&whole.span_id)));
    for (name, value) in
        [("module", "2"), ("component", "proxy"), ("one", "1"), ("two", "2"), ("http.status_code", "200")]
    {
        assert_eq!(tag(whole, name), [value], "{name}");
    }
    let events = |span: &Span| span.events.iter().map(|event| event.name.clone()).collect::<Vec<_>>();
    assert_eq!((events(whole), events(part)), (vec!["seen".into(), "answered".into()], vec!["over".to_owned()]));
    assert!(whole.events[0].time_unix_nano >= whole.start_time_unix_nano);
    assert_eq!((tag(part, "of"), part.attributes.len()), (vec!["a module"], 1));
    for (child, parent) in [(part, whole), (of_part, part)] {
        assert_eq!((&child.trace_id, &child.parent_span_id), (&parent.trace_id, &parent.span_id));
        assert_eq!((child.kind, &child.status), (CLIENT, &None));
        assert!(child.start_time_unix_nano >= whole.start_time_unix_nano);
        assert!(child.end_time_unix_nano >= child.start_time_unix_nano);
    }
    assert_eq!(told.len(), 3);
}

#[test]
fn a_module_decides_that_a_span_is_not_told() {
    for (text, flags) in [("unsampled", "01"), ("settled", "00")] {
        let collector = GrpcOrigin::fixed(Vec::new());
        let site = traced(text, collector.address).start();
        assert_eq!(site.get("/", "").status, 200);
        // The route that was looked up again decides again, unless it has no say any more.
        let parent = seen(&site, 0, "traceparent");
        assert!(parent.ends_with(&format!("-{flags}")), "{text}: {parent}");
        wait_until("the parts", || spans(&collector).len() >= 2);
        let whole = spans(&collector).iter().any(|span| span.name == "named by a module");
        assert!(!whole || flags == "01", "{text}");
    }
}

#[test]
fn without_a_tracer_there_is_no_span() {
    let site = site::with([filter("spans", "")]).start();
    assert_eq!(site.get("/", "").status, 200);
    assert_eq!(seen(&site, 0, "x-span"), "none");
}

#[test]
fn a_request_begins_anew() {
    let line = "%REQ(:path)% %RESPONSE_CODE% %RESPONSE_CODE_DETAILS% %RESP(location)% %UPSTREAM_HOST%";
    let routes = json!([
        {"match": {"prefix": "/direct"}, "direct_response": {"status": 202}},
        {"match": {"prefix": "/"}, "route": {"cluster": "origin"}},
    ]);
    let site = site::with([filter("anew", "")]).routes(routes).log(line).start();
    let mut client = site.proxy.client();
    let request =
        |way: &str, fields: &str| format!("GET /first HTTP/1.1\r\nhost: test\r\nx-way: {way}\r\n{fields}\r\n");
    assert_eq!(client.exchange(request("/second /third end", "x-a: 1\r\n")).status, 200);
    let requests = site.origin.requests();
    assert_eq!((requests.len(), requests[0].target.as_str()), (1, "/third"));
    assert_eq!(seen(&site, 0, "x-a"), "1");
    // Each counts and is logged, and says where it went.
    let host = site.origin.address;
    assert_eq!(site.logged(1), "/second 307 internal_redirect /second -");
    assert_eq!(site.logged(2), "/third 307 internal_redirect /third -");
    assert_eq!(site.logged(3), format!("/third 200 via_upstream - {host}"));
    assert_eq!(site.stat("http.ingress_http.downstream_rq_total"), 3);
    // On the same connection, with another route.
    assert_eq!(client.exchange(request("/direct end", "")).status, 202);
    assert_eq!(site.logged(5), "/direct 202 direct_response - -");
    // One whose body is not here yet cannot.
    let posted = "POST /first HTTP/1.1\r\nhost: test\r\nx-way: /second end\r\ncontent-length: 2\r\n\r\nhi";
    assert_eq!(client.exchange(posted).status, 200);
    assert_eq!((seen(&site, 1, "x-anew"), site.origin.requests()[1].body.clone()), ("not".into(), b"hi".to_vec()));
}

#[test]
fn an_answer_gives_its_place_to_that_of_a_request_that_begins_anew() {
    let tried = AtomicUsize::new(0);
    let origin = Origin::start(move |connection| {
        while let Some(request) = connection.request() {
            tried.fetch_add(1, Ordering::Relaxed);
            let status = if request.target == "/good" { "200 OK" } else { "503 Busy" };
            connection.write(format!("HTTP/1.1 {status}\r\ncontent-length: 2\r\n\r\nok").as_bytes());
        }
    });
    let site = site::with([filter("again", "")]).log("%REQ(:path)% %RESPONSE_CODE%").start_before(origin);
    let answer = site.get("/bad", "x-a: 1\r\n");
    assert_eq!((answer.status, answer.text()), (200, "ok"));
    assert_eq!((site.logged(1), site.logged(2)), ("/good 503".into(), "/good 200".into()));
    assert_eq!(seen(&site, 1, "x-a"), "1");
}

#[test]
fn a_request_that_begins_anew_for_ever_is_answered() {
    if postrider_only() {
        let site = site::with([filter("anew", "for ever")]).start();
        assert_eq!(site.get("/", "").status, 508);
        assert_eq!(site.logged(17), "508 - stream_recreated_too_often");
        assert_eq!(site.origin.requests().len(), 0);
    }
}

#[test]
fn options_of_sockets_reach_the_system() {
    /// Of Linux: `SOL_SOCKET` and `SO_RCVBUF`, and an option that is none.
    const RECEIVE_BUFFER: &str = "1 8 9000";
    const NOTHING: &str = "1 9999 1";
    let site = site::with([filter("options", "")]).start();
    let set = |option: &str| site.get("/", &format!("x-option: {option}\r\n")).status;
    // Of the upstream's connection: what is no option keeps it from being made.
    assert_eq!((set(&format!("0 {RECEIVE_BUFFER}")), set(&format!("0 {NOTHING}"))), (200, 503));
    let found = |option: &str| {
        let requests = site.origin.requests();
        let request = requests.iter().rev().find(|request| request.headers.value("x-option") == Some(option));
        request.and_then(|request| request.headers.value("x-set")).unwrap_or_default().to_owned()
    };
    assert_eq!(found(&format!("0 {RECEIVE_BUFFER}")), "1100 9000");
    // Connections with options serve no other requests, and those without none of these.
    let connections = |site: &Site| {
        site.stat("cluster.origin.upstream_cx_total") - site.stat("cluster.origin.upstream_cx_connect_fail")
    };
    assert_eq!(connections(&site), 1);
    assert_eq!(site.get("/", "").status, 200);
    assert_eq!(connections(&site), 2);
    assert_eq!((set(&format!("0 {RECEIVE_BUFFER}")), site.get("/", "").status), (200, 200));
    assert_eq!(connections(&site), 2);
    // Of the client's, at once.
    assert_eq!((set(&format!("1 {RECEIVE_BUFFER}")), set(&format!("1 {NOTHING}"))), (200, 200));
    assert_eq!(found(&format!("1 {RECEIVE_BUFFER}")), "1100 9000");
    assert_eq!(found(&format!("1 {NOTHING}")), "0000 0");
}

/// The script between the router and the hosts of the origin's cluster, or of all clusters.
fn upstream_script(at_router: bool) -> Plan {
    let module = json!({"module": {"local": {"filename": script()}}});
    let script = extension(NAME, TYPE, json!({"dynamic_module_config": module, "filter_name": "script"}));
    let codec =
        extension("envoy.filters.http.upstream_codec", "filters.http.upstream_codec.v3.UpstreamCodec", json!({}));
    let filters = json!([script, codec]);
    if !at_router {
        return site::with([]).upstream(upstream_http_options(json!({ "http_filters": filters })));
    }
    let fields = json!({ "upstream_http_filters": filters });
    let router = extension("envoy.filters.http.router", "filters.http.router.v3.Router", fields);
    site::with([]).manager(json!({"http_filters": [router]}))
}

#[test]
fn an_answer_in_pieces_that_the_upstream_side_breaks_off_does_not_pass_for_whole() {
    for script in [
        "qh events 2; qh answer 3; event1 head 0 :status=200; event1 data 0 first; event2 reset 0",
        "qh events 2; qh answer 3; event1 head 0 :status=200; event1 data 0 first; event2 respond 500 failed sorry",
    ] {
        let site = upstream_script(false).start();
        let mut client = site.proxy.client();
        client.send(format!("GET / HTTP/1.1\r\nhost: test\r\nx-do: {script}\r\n\r\n"));
        let answer = client.response("GET");
        assert!(
            answer.as_ref().is_err() || answer.as_ref().is_ok_and(|answer| answer.status >= 500),
            "{script}: {answer:?}"
        );
    }
}

#[test]
fn a_module_stands_between_the_router_and_the_host() {
    for at_router in [false, true] {
        let site = upstream_script(at_router).start();
        let does = |script: &str| site.get("/", &format!("x-do: {script}\r\n"));
        let last = |name: &str| seen(&site, site.origin.requests().len() - 1, name);
        assert_eq!(does("qh set 0 x-new 1; qh set 0 :path /other; ah set 2 x-answer 2").header("x-answer"), "2");
        assert_eq!((last("x-new"), site.origin.requests()[0].target.clone()), ("1".into(), "/other".into()));
        // An answer of its own, whole.
        let reply = does("qh respond 418 teapot short x-a=1; qh answer 1");
        assert_eq!((reply.status, reply.header("x-a").to_owned(), reply.text()), (418, "1".into(), "short"));
        // One that waits for a thread, and one whose request waits.
        let reply = does("qh events 1; qh answer 3; event1 respond 419 event body");
        assert_eq!((reply.status, reply.text()), (419, "body"));
        assert_eq!(does("qh events 1; qh answer 3; event1 set 0 x-event 1; event1 resume q").status, 200);
        assert_eq!(last("x-event"), "1");
        assert_eq!(site.origin.requests().len(), 2);
        // In pieces.
        let reply = does("qh head 0 :status=202 x-a=1; qh data 0 one; qh data 1 two; qh answer 3");
        assert_eq!((reply.status, reply.header("x-a").to_owned(), reply.text()), (202, "1".into(), "onetwo"));
        let reply = does("qh events 3; qh answer 3; event1 head 0 :status=202; event2 data 0 one; event3 data 1 two");
        assert_eq!((reply.status, reply.text()), (202, "onetwo"));
        assert_eq!(site.origin.requests().len(), 2);
        assert_eq!(site.get("/", "").status, 200);
    }
}

#[test]
fn a_module_on_the_upstream_side_sees_each_try() {
    let tries = AtomicUsize::new(0);
    let origin = Origin::start(move |connection| {
        while connection.request().is_some() {
            let status = if tries.fetch_add(1, Ordering::Relaxed) == 0 { "503 Busy" } else { "200 OK" };
            connection.write(format!("HTTP/1.1 {status}\r\ncontent-length: 2\r\n\r\nok").as_bytes());
        }
    });
    let retries =
        json!([{"match": {"prefix": "/"}, "route": {"cluster": "origin", "retry_policy": {"retry_on": "5xx"}}}]);
    let site = upstream_script(false).routes(retries).start_before(origin);
    let body = "POST / HTTP/1.1\r\nhost: test\r\nx-do: qh set 0 x-try 1; qe append 0 -end; qh remove 0 content-length\r\ncontent-length: 2\r\n\r\nhi";
    assert_eq!(site.proxy.exchange(body).status, 200);
    let requests = site.origin.requests();
    assert_eq!(requests.len(), 2);
    for request in requests {
        // Each begins with what the router has.
        assert_eq!((request.headers.values("x-try").len(), request.body), (1, b"hi-end".to_vec()));
    }
}
