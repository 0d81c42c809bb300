//! Calls of scripts in traces: what a collector of OpenTelemetry is told of them, and what the called cluster hears, in Envoy
//! 1.40 and in Postrider.

use postrider_grpc::Message;
use postrider_grpc::otlp::Plain;
use postrider_grpc::otlp::spans::{CLIENT, ExportSpans, Span};
use postrider_tests::grpc::http2;
use postrider_tests::kit::config::router;
use postrider_tests::kit::proxy::Launch;
use postrider_tests::kit::{Config, GrpcOrigin, Origin, Proxy, net, wait_until};
use postrider_tests::plugins::rider;
use postrider_tests::postrider_only;
use serde_json::{Value, json};

use crate::site::{beside, lua};

/// Calls as the request's path says.
const SCRIPT: &str = r#"
    function envoy_on_request(handle)
      local path, cluster, options = handle:headers():get(":path"), "called", { timeout_ms = 5000 }
      local fields = { [":path"] = path, [":method"] = "GET", [":authority"] = "called" }
      if path == "/refused" or path == "/nobody" then cluster = path:sub(2) end
      if path == "/late" then options.timeout_ms = 30 end
      if path == "/sampled" then options.trace_sampled = true end
      if path == "/unsampled" then options.trace_sampled = false end
      if path == "/aside" then options.asynchronous = true end
      if path == "/own" then fields.traceparent, fields.tracestate = "mine", "mine=1" end
      if path == "/old" then handle:httpCall(cluster, fields, nil, 5000) return end
      handle:httpCall(cluster, fields, nil, options)
    end
    function envoy_on_response(handle)
      handle:httpCall("called", { [":path"] = "/answer", [":method"] = "GET", [":authority"] = "called" }, "body", 5000)
    end"#;

const CALLER: &str = "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\ntracestate: theirs=1\r\n";
const UNTOLD: &str = "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00\r\n";
const BROKEN: &str = "traceparent: nonsense\r\n";

/// What is asked for, and with which fields.
const ASKED: [(&str, &str); 15] = [
    ("/plain", ""),
    ("/plain", CALLER),
    ("/plain", UNTOLD),
    ("/plain", BROKEN),
    ("/sampled", UNTOLD),
    ("/unsampled", CALLER),
    ("/aside", CALLER),
    ("/own", CALLER),
    ("/own", ""),
    ("/old", CALLER),
    ("/404", CALLER),
    ("/500", CALLER),
    ("/refused", CALLER),
    ("/nobody", CALLER),
    ("/late", CALLER),
];

fn called() -> Origin {
    Origin::start(|connection| {
        while let Some(request) = connection.request() {
            let status = match request.target.as_str() {
                // Nobody answers it.
                "/late" | "/gone" => continue,
                "/404" => "404 Not Found",
                "/500" => "500 Oops",
                _ => "200 OK",
            };
            if !connection.write(format!("HTTP/1.1 {status}\r\ncontent-length: 2\r\n\r\nok").as_bytes()) {
                return;
            }
        }
    })
}

fn spans(collector: &GrpcOrigin) -> Vec<Span> {
    let exports = collector.messages().into_iter().map(|message| ExportSpans::decode(message.as_slice()).unwrap());
    exports.flat_map(|export| export.resource_spans).flat_map(|of| of.scope_spans).flat_map(|of| of.spans).collect()
}

/// A span in words, without what is another one each time.
fn shown(span: &Span, parents: &[Span]) -> String {
    // The request's own is none of this test's.
    if span.kind != CLIENT {
        return span.name.clone();
    }
    let parent = parents.iter().find(|other| other.span_id == span.parent_span_id);
    let tags = span.attributes.iter().map(|tag| {
        let Some(Plain::Text(value)) = tag.value.as_ref().and_then(|value| value.value.as_ref()) else {
            panic!("{tag:?}")
        };
        let value = if tag.key.ends_with("address") { "ADDRESS" } else { value.as_str() };
        format!("{}={value}", tag.key)
    });
    let tags: Vec<String> = tags.collect();
    format!(
        "{} kind {} state {:?} status {:?} flags {:x} of {:?}: {}",
        span.name,
        span.kind,
        span.trace_state,
        span.status.as_ref().map(|status| status.code),
        span.flags,
        parent.map(|parent| &parent.name),
        tags.join(" ")
    )
}

/// A proxy that traces, with one filter before the router.
fn config(filter: Value, origin: &Origin, called: &Origin, collector: &GrpcOrigin) -> Config {
    let provider = json!({
        "name": "envoy.tracers.opentelemetry",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.config.trace.v3.OpenTelemetryConfig",
            "grpc_service": {"envoy_grpc": {"cluster_name": "collector"}},
            "service_name": "shop",
        },
    });
    Config::new()
        .http(json!({
            "http_filters": [filter, router()],
            "generate_request_id": true,
            "tracing": {"provider": provider},
            "route_config": {"virtual_hosts": [{
                "name": "all", "domains": ["*"], "routes": [
                    {"match": {"prefix": "/gone"}, "route": {"cluster": "origin", "idle_timeout": "0.1s"}},
                    {"match": {"prefix": "/"}, "route": {"cluster": "origin"}},
                ],
            }]},
        }))
        .cluster("origin", &[origin.address])
        .cluster_with("called", &[called.address], json!({"alt_stat_name": "shown"}))
        .cluster("refused", &[net::refusing_address()])
        .cluster("nobody", &[])
        .cluster_with("collector", &[collector.address], http2())
        .overlay(json!({
            "layered_runtime": {"layers": [{"name": "static", "static_layer": {"tracing.opentelemetry.min_flush_spans": 1}}]},
        }))
}

/// Everything that came of one request after the other in one proxy, and of one that is given up while a script waits.
fn run(launch: Launch) -> String {
    let (origin, called, collector) = (Origin::echo("a"), called(), GrpcOrigin::fixed(Vec::new()));
    let script = lua(json!({"default_source_code": {"inline_string": SCRIPT}}));
    let config = config(script, &origin, &called, &collector);
    let proxy = Proxy::start_with(&config, launch);
    let mut seen = String::new();
    let mut known = 0;
    let mut take = |heading: String, is_over: &dyn Fn(&[Span]) -> bool| {
        wait_until(&heading, || is_over(&spans(&collector)[known..]));
        let all = spans(&collector);
        let mut told: Vec<String> = all[known..].iter().map(|span| shown(span, &all[known..])).collect();
        known = all.len();
        told.sort();
        let mut heard: Vec<String> = called
            .requests()
            .iter()
            .map(|request| {
                let field = |name: &str| request.headers.value(name).unwrap_or("none").to_owned();
                let parent = field("traceparent");
                let by = all.iter().find(|span| parent.contains(&hex(&span.span_id))).map(|span| span.name.clone());
                let flags = parent.rsplit('-').next().unwrap_or_default().to_owned();
                // Where there is none, Envoy sends an empty one.
                let state = field("tracestate");
                let state = if state.is_empty() { "none" } else { &state };
                format!("{} by {by:?} {flags} {state}", request.target)
            })
            .collect();
        heard.sort();
        called.forget();
        seen += &format!("{heading}\n  {}\n  heard {}\n", told.join("\n  "), heard.join(", "));
    };
    for (path, fields) in ASKED {
        let is_untold = fields == UNTOLD || fields == BROKEN;
        let answer = proxy.exchange(format!("GET {path} HTTP/1.1\r\nhost: test\r\n{fields}\r\n"));
        assert_eq!(answer.status, 200);
        // Of what is not told, only a call that is told by itself comes.
        let count = match (path, is_untold) {
            ("/sampled", _) => 1,
            (_, true) => 0,
            ("/unsampled", _) => 2,
            _ => 3,
        };
        let calls = if ["/refused", "/nobody"].contains(&path) { 1 } else { 2 };
        let over = |told: &[Span]| told.len() >= count && called.requests().len() >= calls;
        take(format!("{path} {fields:?}"), &over);
    }
    let given_up = proxy.exchange(format!("GET /gone HTTP/1.1\r\nhost: test\r\n{CALLER}\r\n"));
    take(format!("/gone {}", given_up.status), &|told: &[Span]| told.len() >= 3 && called.requests().len() >= 2);
    seen
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn calls_of_scripts_are_parts_of_traces_as_in_envoy() {
    if !postrider_only() {
        return;
    }
    let [theirs, ours] = beside().map(run);
    assert!(theirs.contains("async called egress"), "{theirs}");
    let differing: Vec<String> = theirs
        .lines()
        .zip(ours.lines())
        .filter(|(theirs, ours)| theirs != ours)
        .map(|(theirs, ours)| format!("Envoy {theirs}\nhere  {ours}"))
        .collect();
    assert!(differing.is_empty() && theirs == ours, "{}\n{ours}", differing.join("\n"));
}

#[test]
fn calls_of_rider_plugins_are_parts_of_traces() {
    if !postrider_only() {
        return;
    }
    let (origin, called, collector) = (Origin::echo("a"), called(), GrpcOrigin::fixed(Vec::new()));
    let code = r#"
        local envoy = require("envoy")
        require("rider")
        return { on_request = function()
          envoy.httpCall("called", { [":path"] = "/rider", [":method"] = "GET", [":authority"] = "called" }, nil, 5000)
        end }"#;
    let filter = rider("caller", code, json!({}));
    let proxy = Proxy::start(&config(filter, &origin, &called, &collector));
    assert_eq!(proxy.exchange(format!("GET / HTTP/1.1\r\nhost: test\r\n{CALLER}\r\n")).status, 200);
    wait_until("two spans", || spans(&collector).len() == 2);
    let told = spans(&collector);
    let (of_call, of_request): (Vec<&Span>, Vec<&Span>) = told.iter().partition(|span| span.kind == CLIENT);
    assert_eq!((of_call[0].name.as_str(), &of_call[0].parent_span_id), ("async called egress", &of_request[0].span_id));
    let heard = called.requests()[0].headers.value("traceparent").unwrap().to_owned();
    assert_eq!(heard, format!("00-0af7651916cd43dd8448eb211c80319c-{}-01", hex(&of_call[0].span_id)));
}
