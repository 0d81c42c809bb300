//! Every endpoint of the admin: methods, statuses, content types and the bytes that tools parse. The same expectations hold for
//! Envoy, and where it is on the machine both answer the same questions in one run.

use postrider_tests::envoy;
use postrider_tests::kit::net::refusing_address;
use postrider_tests::kit::proxy::Launch;
use postrider_tests::kit::{Config, Origin, Proxy, RawClient, Response};
use serde_json::{Value, json};

const TEXT: &str = "text/plain; charset=UTF-8";
const JSON: &str = "application/json";
const HTML: &str = "text/html; charset=UTF-8";
const BARE: &str = "text/plain";

/// How much of a body is compared.
#[derive(Clone, Copy, Debug)]
enum Body {
    Is(&'static str),
    Starts(&'static str),
    Any,
}

use Body::{Any, Is, Starts};

/// In this order: some change what others say.
const ENDPOINTS: &[(&str, &str, u16, &str, Body)] = &[
    ("GET", "/", 200, HTML, Starts("<!DOCTYPE html>")),
    ("GET", "/help", 200, TEXT, Starts("admin commands are:\n  /: Admin home page\n")),
    ("GET", "/nothing", 404, TEXT, Starts("invalid path. admin commands are:\n")),
    ("GET", "/ready/", 404, TEXT, Starts("invalid path. ")),
    ("GET", "/hystrix_event_stream", 404, TEXT, Starts("invalid path. ")),
    ("GET", "/ready", 200, TEXT, Is("LIVE\n")),
    ("POST", "/ready", 200, TEXT, Is("LIVE\n")),
    ("GET", "/server_info", 200, JSON, Starts("{\n \"version\": \"")),
    ("GET", "/certs", 200, JSON, Is("{\n \"certificates\": []\n}\n")),
    ("GET", "/clusters", 200, TEXT, Starts("origin::observability_name::origin\n")),
    ("GET", "/clusters?format=json", 200, JSON, Starts("{\n \"cluster_statuses\": [\n")),
    ("GET", "/clusters?filter=x", 200, TEXT, Is("")),
    ("GET", "/clusters?filter=(", 400, TEXT, Starts("Invalid re2 regex")),
    ("GET", "/listeners", 200, TEXT, Starts("http::127.0.0.1:")),
    ("GET", "/listeners?format=json", 200, JSON, Starts("{\n \"listener_statuses\": [\n  {\n   \"name\": \"http\",\n")),
    ("GET", "/memory", 200, JSON, Starts("{\n \"allocated\": \"")),
    ("GET", "/hot_restart_version", 200, TEXT, Any),
    ("GET", "/contention", 200, TEXT, Starts("Mutex contention tracing is not enabled")),
    ("GET", "/init_dump", 200, JSON, Is("{}\n")),
    ("GET", "/init_dump?mask=listener", 200, JSON, Is("{}\n")),
    ("GET", "/config_dump?resource=nothing", 404, BARE, Is("nothing not found in config dump")),
    (
        "GET",
        "/config_dump?mask=nothing",
        400,
        BARE,
        Is("FieldMask nothing could not be successfully applied to any configs."),
    ),
    (
        "GET",
        "/config_dump?mask=bootstrap.admin,static_clusters",
        400,
        BARE,
        Starts("FieldMask bootstrap.admin,static_clusters "),
    ),
    ("GET", "/config_dump?mask=static_clusters,", 200, JSON, Starts("{\n \"configs\": [\n")),
    (
        "GET",
        "/config_dump?name_regex=(",
        400,
        BARE,
        Starts("INVALID_ARGUMENT: Error while parsing name_regex from (: "),
    ),
    (
        "GET",
        "/config_dump?resource=bootstrap",
        400,
        BARE,
        Is("bootstrap is not a repeated field. Use ?mask=bootstrap to get only this field"),
    ),
    ("GET", "/config_dump?resource=static_endpoint_configs", 404, BARE, Any),
    ("GET", "/runtime", 200, JSON, Starts("{\n")),
    ("GET", "/runtime_modify", 405, TEXT, Is("Method GET not allowed, POST required.")),
    ("POST", "/runtime_modify", 400, TEXT, Starts("usage: /runtime_modify?key1=value1")),
    ("GET", "/cpuprofiler", 405, TEXT, Any),
    ("POST", "/cpuprofiler", 400, TEXT, Is("?enable=<y|n>\n")),
    ("POST", "/cpuprofiler?enable=y", 500, TEXT, Is("failure to start the profiler")),
    ("POST", "/cpuprofiler?enable=n", 200, TEXT, Is("OK\n")),
    ("GET", "/heapprofiler", 405, TEXT, Any),
    ("POST", "/heapprofiler?enable=y", 501, TEXT, Is("The current build does not support heap profiler")),
    ("GET", "/allocprofiler", 405, TEXT, Any),
    ("POST", "/allocprofiler", 400, TEXT, Is("?enable=<y|n>\n")),
    ("GET", "/stats?filter=listener_manager.listener_added", 200, TEXT, Is("listener_manager.listener_added: 1\n")),
    (
        "GET",
        "/stats?format=json&filter=listener_added",
        200,
        JSON,
        Starts("{\"stats\":[{\"name\":\"listener_manager.listener_added\",\"value\":1}"),
    ),
    ("GET", "/stats?format=html", 200, HTML, Starts("<!DOCTYPE html>")),
    ("GET", "/stats?format=active-html", 200, HTML, Starts("<!DOCTYPE html>")),
    ("GET", "/stats?format=xml", 400, TEXT, Is("usage: /stats?format=(html|active-html|json|prometheus|text)\n\n")),
    ("GET", "/stats?type=Nothing", 400, TEXT, Is("invalid &type= param")),
    ("GET", "/stats?type=TextReadouts&filter=x", 200, TEXT, Is("")),
    ("GET", "/stats?filter=(", 400, TEXT, Starts("Invalid re2 regex")),
    ("GET", "/stats?filter=%ff", 400, TEXT, Is("Invalid re2 regex: invalid UTF-8")),
    (
        "GET",
        "/stats?histogram_buckets=nothing",
        400,
        TEXT,
        Starts("usage: /stats?histogram_buckets=(cumulative|disjoint|detailed|summary"),
    ),
    ("GET", "/stats?histogram_buckets=detailed&filter=x&type=Counters", 200, TEXT, Any),
    (
        "GET",
        "/stats/prometheus?filter=listener_added",
        200,
        TEXT,
        Is("# TYPE envoy_listener_manager_listener_added counter\nenvoy_listener_manager_listener_added{} 1\n"),
    ),
    (
        "GET",
        "/stats/prometheus?histogram_buckets=disjoint",
        400,
        TEXT,
        Is("unsupported prometheus histogram bucket mode"),
    ),
    ("GET", "/stats/prometheus?histogram_buckets=summary&filter=x", 200, TEXT, Any),
    (
        "GET",
        "/stats/recentlookups",
        200,
        TEXT,
        Starts("Lookup tracking is not enabled. Use /stats/recentlookups/enable to enable.\n\ntotal: "),
    ),
    ("GET", "/stats/recentlookups/enable", 405, TEXT, Any),
    ("POST", "/stats/recentlookups/enable", 200, TEXT, Is("OK\n")),
    ("GET", "/stats/recentlookups", 200, TEXT, Starts("   Count Lookup\n")),
    ("POST", "/stats/recentlookups/clear", 200, TEXT, Is("OK\n")),
    ("POST", "/stats/recentlookups/disable", 200, TEXT, Is("OK\n")),
    ("GET", "/stats/recentlookups", 200, TEXT, Starts("Lookup tracking is not enabled")),
    ("GET", "/logging", 405, TEXT, Any),
    ("POST", "/logging", 200, TEXT, Starts("active loggers:\n  a")),
    (
        "POST",
        "/logging?level=nothing",
        400,
        TEXT,
        Starts("error: unknown logger level\n\nusage: /logging?<name>=<level>"),
    ),
    ("POST", "/logging?level=info&paths=", 200, TEXT, Starts("active loggers:\n  a")),
    ("POST", "/logging?level=warn", 400, TEXT, Starts("error: unknown logger level\n\nusage: ")),
    ("POST", "/logging?nothing=info", 400, TEXT, Starts("error: unknown logger name\n\nusage: ")),
    ("POST", "/logging?level=info&admin=info", 400, TEXT, Starts("error: invalid number of parameters\n\n")),
    ("GET", "/reopen_logs", 405, TEXT, Any),
    ("POST", "/reopen_logs", 200, TEXT, Is("OK\n")),
    ("GET", "/reset_counters", 405, TEXT, Any),
    ("POST", "/reset_counters", 200, TEXT, Is("OK\n")),
    ("GET", "/stats?filter=listener_manager.listener_added", 200, TEXT, Is("listener_manager.listener_added: 0\n")),
    ("GET", "/healthcheck/fail", 405, TEXT, Any),
    ("POST", "/healthcheck/fail", 200, TEXT, Is("OK\n")),
    ("GET", "/ready", 503, TEXT, Is("DRAINING\n")),
    ("GET", "/healthcheck/ok", 405, TEXT, Any),
    ("POST", "/healthcheck/ok", 200, TEXT, Is("OK\n")),
    ("GET", "/ready", 200, TEXT, Is("LIVE\n")),
    ("GET", "/drain_listeners", 405, TEXT, Any),
    ("PUT", "/drain_listeners", 405, TEXT, Is("Method PUT not allowed, POST required.")),
    ("POST", "/drain_listeners?graceful&skip_exit", 200, TEXT, Is("OK\n")),
    ("POST", "/drain_listeners?inboundonly", 200, TEXT, Is("OK\n")),
    ("GET", "/quitquitquit", 405, TEXT, Any),
];

fn ask(proxy: &Proxy, method: &str, target: &str, more: &str) -> Response {
    let length = if method == "GET" { "" } else { "content-length: 0\r\n" };
    let request = format!("{method} {target} HTTP/1.1\r\nhost: admin\r\n{length}{more}\r\n");
    RawClient::once(proxy.admin_address(), request).unwrap_or_else(|error| panic!("{method} {target}: {error:?}"))
}

fn start(launch: Launch) -> Proxy {
    Proxy::start_with(&Config::proxy_to(refusing_address()), launch)
}

#[test]
fn endpoints_answer_as_envoys() {
    let proxy = start(Launch::default());
    let mut wrong = Vec::new();
    for (method, target, status, kind, body) in ENDPOINTS {
        let answer = ask(&proxy, method, target, "");
        let text = answer.text();
        let good = match body {
            Is(whole) => text == *whole,
            Starts(start) => text.starts_with(start),
            Any => true,
        };
        if !good || answer.status != *status || answer.header("content-type") != *kind {
            let kind = answer.header("content-type");
            wrong.push(format!("{method} {target}: {} {kind} {:.300}", answer.status, text));
        }
        for (name, value) in [("cache-control", "no-cache, max-age=0"), ("x-content-type-options", "nosniff")] {
            assert_eq!(answer.header(name), value, "{method} {target}");
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The paths of `/help`, with what stands behind those that change something.
fn paths(proxy: &Proxy) -> Vec<String> {
    let help = ask(proxy, "GET", "/help", "");
    let lines = help.text().lines().filter_map(|line| line.strip_prefix("  /"));
    lines.map(|line| format!("/{}", line.split(':').next().unwrap())).collect()
}

#[test]
fn every_path_of_envoy_is_there() {
    let Some(launch) = Launch::envoy() else {
        eprintln!("envoy is not on the machine: paths are held by endpoints_answer_as_envoys alone");
        return;
    };
    let (ours, theirs) = (start(Launch::default()), start(launch));
    let known = paths(&ours);
    let missing: Vec<String> = paths(&theirs).into_iter().filter(|path| !known.contains(path)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn the_dump_of_endpoints_is_envoys() {
    let proxy = start(Launch::default());
    let dump = proxy.admin_json("/config_dump?include_eds&resource=static_endpoint_configs");
    let [config] = dump["configs"].as_array().unwrap().as_slice() else { panic!("{dump}") };
    assert_eq!(config["@type"], "type.googleapis.com/envoy.admin.v3.EndpointsConfigDump.StaticEndpointConfig");
    let mut assignment = config["endpoint_config"].clone();
    let address =
        &mut assignment["endpoints"][0]["lb_endpoints"][0]["endpoint"]["address"]["socket_address"]["port_value"];
    assert!(address.take().as_u64().is_some());
    let want = json!({
        "@type": "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
        "cluster_name": "origin",
        "endpoints": [{
            "locality": {},
            "lb_endpoints": [{
                "endpoint": {
                    "address": {"socket_address": {"address": "127.0.0.1", "port_value": null}},
                    "health_check_config": {},
                },
                "health_status": "HEALTHY",
                "load_balancing_weight": 1,
            }],
            "load_balancing_weight": 0,
        }],
        "policy": {"overprovisioning_factor": 140},
    });
    assert_eq!(assignment, want);
    let sections = proxy.admin_json("/config_dump?include_eds");
    let kinds: Vec<&str> =
        sections["configs"].as_array().unwrap().iter().map(|c| c["@type"].as_str().unwrap()).collect();
    assert_eq!(kinds[2], "type.googleapis.com/envoy.admin.v3.EndpointsConfigDump");
    assert!(!proxy.admin_get("/config_dump").text().contains("EndpointsConfigDump"));
}

#[test]
fn endpoints_are_dumped_with_what_is_configured_of_them() {
    let address = |port: u16| json!({"socket_address": {"address": "127.0.0.1", "port_value": port}});
    let drained = json!({
        "endpoint": {"address": address(1), "hostname": "h", "additional_addresses": [{"address": address(2)}],
            "health_check_config": {"port_value": 3, "hostname": "c"}},
        "health_status": "DRAINING",
        "metadata": {"filter_metadata": {"envoy.lb": {"a": "b", "n": 1, "list": [true]}}},
    });
    let late = json!({"endpoint": {"address": address(4)}, "health_status": "TIMEOUT"});
    let load = json!({"cluster_name": "c", "endpoints": [{"lb_endpoints": [drained, late]}]});
    let proxy = Proxy::start(&Config::new().cluster_with("c", &[], json!({"load_assignment": load})));
    let dump = proxy.admin_json("/config_dump?include_eds&resource=static_endpoint_configs");
    let mut want = drained;
    want["health_status"] = json!("UNHEALTHY");
    want["load_balancing_weight"] = json!(1);
    let told = &dump["configs"][0]["endpoint_config"]["endpoints"][0]["lb_endpoints"];
    assert_eq!(told[0], want);
    assert_eq!(told[1].get("metadata"), None);
    let text = proxy.admin_get("/clusters");
    for flags in ["1::health_flags::/eds_status_draining", "4::health_flags::/failed_eds_health"] {
        assert!(text.text().contains(&format!("c::127.0.0.1:{flags}\n")), "{flags} is not in\n{}", text.text());
    }
}

#[test]
fn runtime_layers_are_shown_with_the_value_that_counts() {
    let layers = json!([
        {"name": "base", "static_layer": {"x": {"y": 1}, "f": 1.5, "s": "text", "b": true, "a.b": 3}},
        {"name": "over", "static_layer": {"x.y": 2}},
    ]);
    let origin = Origin::echo("a");
    let config = Config::proxy_to(origin.address).overlay(json!({"layered_runtime": {"layers": layers}}));
    let proxy = Proxy::start(&config);
    let entry = |last: &str, values: [&str; 2]| json!({"final_value": last, "layer_values": values});
    let want = json!({
        "layers": ["base", "over"],
        "entries": {
            "a.b": entry("3", ["3", ""]),
            "b": entry("true", ["true", ""]),
            "f": entry("1.5", ["1.5", ""]),
            "s": entry("text", ["text", ""]),
            "x.y": entry("2", ["1", "2"]),
        },
    });
    assert_eq!(proxy.admin_json("/runtime"), want);
    let refused = proxy.admin_post("/runtime_modify?x.y=3");
    assert_eq!((refused.status, refused.text()), (503, "No admin layer specified"));
    assert_eq!(proxy.admin_json("/runtime"), want);
}

#[test]
fn prometheus_gets_protocol_buffers_when_it_prefers_them() {
    use postrider_grpc::Message;
    use postrider_grpc::metrics::{MetricFamily, MetricType};
    let origin = Origin::echo("a");
    let proxy = Proxy::start(&Config::proxy_to(origin.address));
    (0..2).for_each(|_| assert_eq!(proxy.get("/").status, 200));
    proxy.wait_stat("cluster.origin.upstream_rq_200", 2);
    let protobuf = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited";
    let get = |accept: &str| {
        ask(&proxy, "GET", "/stats/prometheus?filter=origin.upstream_rq_(200|time)", &format!("accept: {accept}\r\n"))
    };
    for accept in ["*/*", "text/plain", &format!("text/plain;q=0.6,{protobuf};q=0.5")] {
        assert_eq!(get(accept).header("content-type"), TEXT, "{accept}");
    }
    let kind = "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited";
    assert_eq!(get("application/vnd.google.protobuf").header("content-type"), kind);
    let answer = get(&format!("{protobuf};q=0.6,text/plain;version=0.0.4;q=0.5,*/*;q=0.2"));
    assert_eq!(answer.header("content-type"), kind);
    let mut bytes = answer.body.as_slice();
    let mut families = Vec::new();
    while !bytes.is_empty() {
        families.push(MetricFamily::decode_length_delimited(&mut bytes).expect("a family"));
    }
    let [statuses, timeouts, times] = families.as_slice() else { panic!("{families:?}") };
    assert_eq!((statuses.name(), statuses.r#type()), ("envoy_cluster_upstream_rq", MetricType::Counter));
    let metric = &statuses.metric[0];
    let labels: Vec<_> = metric.label.iter().map(|label| (label.name(), label.value())).collect();
    assert_eq!(labels, [("envoy_response_code", "200"), ("envoy_cluster_name", "origin")]);
    assert_eq!(metric.counter.as_ref().unwrap().value, Some(2.0));
    assert_eq!(timeouts.name(), "envoy_cluster_upstream_rq_timeout");
    assert_eq!((times.name(), times.r#type()), ("envoy_cluster_upstream_rq_time", MetricType::Histogram));
    let histogram = times.metric[0].histogram.as_ref().unwrap();
    assert_eq!(histogram.bucket.len(), 19);
    assert_eq!(histogram.bucket[18].upper_bound, Some(3_600_000.0));
    if !envoy() {
        // Envoy adds times up every five seconds.
        assert_eq!((histogram.sample_count, histogram.bucket[18].cumulative_count), (Some(2), Some(2)));
    }
}

/// What is compared of JSON that both tell of themselves: the names in it.
fn shape(value: &Value) -> Value {
    match value {
        Value::Object(entries) => entries.iter().map(|(key, value)| (key.clone(), shape(value))).collect(),
        Value::Array(items) => items.first().map(shape).into_iter().collect(),
        _ => Value::Null,
    }
}

#[test]
fn json_has_envoys_shape() {
    let Some(launch) = Launch::envoy() else {
        eprintln!("envoy is not on the machine: there is nothing to compare");
        return;
    };
    let (ours, theirs) = (start(Launch::default()), start(launch));
    for proxy in [&ours, &theirs] {
        assert_eq!(proxy.exchange("GET / HTTP/1.1\r\nhost: a\r\n\r\n").status, 503);
    }
    for target in
        ["/clusters?format=json", "/listeners?format=json", "/config_dump?include_eds&resource=static_endpoint_configs"]
    {
        assert_eq!(shape(&ours.admin_json(target)), shape(&theirs.admin_json(target)), "{target}");
    }
    let options = |proxy: &Proxy| -> Vec<String> {
        let info = proxy.admin_json("/server_info");
        info["command_line_options"].as_object().unwrap().keys().cloned().collect()
    };
    let known = options(&ours);
    let missing: Vec<String> = options(&theirs).into_iter().filter(|name| !known.contains(name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
