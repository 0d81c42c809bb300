//! Which requests an access log tells of, and what its commands say of them.

use crate::commands;
use crate::scene::{Over, Scene, to_a};
use postrider_tests::kit::config::{self, extension};
use serde_json::{Value, json};

pub fn scenes() -> Vec<Scene> {
    vec![statuses(), calls(), fields(), notes(), shares(), moments(), traced(), told("log-commands"), told_over_tls()]
}

fn compared(kind: &str, op: &str, value: u32) -> Value {
    json!({format!("{kind}_filter"): {"comparison": {"op": op, "value": {"default_value": value, "runtime_key": "none"}}}})
}

fn status(op: &str, value: u32) -> Value {
    compared("status_code", op, value)
}

fn flags(names: &[&str]) -> Value {
    json!({"response_flag_filter": {"flags": names}})
}

fn all_of(filters: Value) -> Value {
    json!({"and_filter": {"filters": filters}})
}

fn one_of(filters: Value) -> Value {
    json!({"or_filter": {"filters": filters}})
}

fn header(mut condition: Value) -> Value {
    if condition.get("name").is_none() {
        condition["name"] = json!("x-a");
    }
    json!({"header_filter": {"header": condition}})
}

fn expression(text: &str) -> Value {
    let kind = "access_loggers.filters.cel.v3.ExpressionFilter";
    json!({"extension_filter": extension("envoy.access_loggers.extension_filters.cel", kind, json!({"expression": text}))})
}

/// Everything to `a`, but for what has no host, no route, or an answer of the proxy's own.
fn routes() -> Value {
    json!([
        {"match": {"prefix": "/own"}, "direct_response": {"status": 200}},
        {"match": {"prefix": "/none"}, "direct_response": {"status": 404}},
        {"match": {"prefix": "/down"}, "route": {"cluster": "down"}},
        {"match": {"prefix": "/empty"}, "route": {"cluster": "empty"}},
        {"match": {"prefix": "/closed"}, "route": {"cluster": "closed"}},
        {"match": {"prefix": "/nowhere"}, "route": {"cluster_header": "x-cluster"}},
        to_a("/slow", json!({"route": {"timeout": "0.1s"}})),
        to_a("/again", json!({"route": {"retry_policy": {"retry_on": "5xx", "num_retries": 1}}})),
        {"match": {"prefix": "/a"}, "route": {"cluster": "a"}},
    ])
}

const EVERYTHING: &[&str] = &[
    "/a",
    "/a?answer=204",
    "/a?answer=404",
    "/a?answer=500",
    "/a?answer=503",
    "/a?answer=garbage",
    "/a?answer=truncated",
    "/again?answer=503",
    "/slow?answer=silent",
    "/own",
    "/none",
    "/down",
    "/empty",
    "/closed",
    "/nowhere",
    "/unknown",
];

/// By status, time and flags, and by several of them.
fn statuses() -> Scene {
    let mut scene = Scene::routes("log-statuses", routes()).gets(EVERYTHING);
    for op in ["EQ", "GE", "LE", "NE"] {
        scene = scene.telling(&format!("status {op}"), status(op, 404));
    }
    for op in ["GE", "LE", "NE"] {
        scene = scene.telling(&format!("duration {op}"), compared("duration", op, 3_600_000));
    }
    for flag in [
        "UF", "UO", "UT", "NR", "UH", "LR", "UR", "UC", "URX", "DC", "DI", "FI", "RL", "RLSE", "UAEX", "SI", "IH",
        "DPE", "UMSDR", "NFCF", "NC", "OM", "DF", "DO", "DT", "UPE", "LH", "RFCF", "DR", "UDO",
    ] {
        scene = scene.telling(&format!("flag {flag}"), flags(&[flag]));
    }
    scene
        .telling("any flag", flags(&[]))
        .telling("two flags", flags(&["UF", "NR"]))
        .telling("none of nothing", status("EQ", 0))
        .telling("both", all_of(json!([status("GE", 400), status("LE", 499)])))
        .telling("either", one_of(json!([status("EQ", 200), flags(&["NR", "NC"])])))
        .telling("nested", one_of(json!([all_of(json!([status("GE", 500), flags(&["UF"])])), status("EQ", 204)])))
        .telling("by expression", expression("response.code >= 500"))
        .telling("by flags", expression("response.flags != 0"))
        .telling("by what is missing", expression("request.headers['x-none'] == 'a'"))
        .telling("by no condition", expression("request.path"))
}

/// By the status of calls, also of what is no call.
fn calls() -> Scene {
    let grpc =
        |statuses: Value, exclude: bool| json!({"grpc_status_filter": {"statuses": statuses, "exclude": exclude}});
    let call = "content-type: application/grpc\r\n";
    let mut scene = Scene::routes("log-calls", routes());
    for code in ["OK", "UNKNOWN", "UNAVAILABLE", "UNIMPLEMENTED", "PERMISSION_DENIED", "INTERNAL", "DEADLINE_EXCEEDED"]
    {
        scene = scene.telling(&format!("is {code}"), grpc(json!([code]), false));
        scene = scene.telling(&format!("is not {code}"), grpc(json!([code]), true));
    }
    scene = scene.telling("nothing", grpc(json!([]), false)).telling("not nothing", grpc(json!([]), true));
    for path in EVERYTHING.iter().chain(&["/a?answer=grpc", "/a?answer=unavailable", "/a?answer=403"]) {
        scene = scene.get(path).get_with(path, call);
    }
    for made in ["200|grpc-status=5", "200|grpc-status=99", "200|grpc-status=x", "429", "400", "401", "502", "504"] {
        scene = scene.makes("/a", "", &[made]).makes("/a", call, &[made]);
    }
    scene
}

/// By fields of the request.
fn fields() -> Scene {
    Scene::routes("log-fields", routes())
        .telling("is there", header(json!({"present_match": true})))
        .telling("is not there", header(json!({"present_match": false})))
        .telling("is not there, inverted", header(json!({"present_match": true, "invert_match": true})))
        .telling("exact", header(json!({"string_match": {"exact": "b"}})))
        .telling("not exact", header(json!({"string_match": {"exact": "b"}, "invert_match": true})))
        .telling(
            "empty is missing",
            header(json!({"string_match": {"exact": ""}, "treat_missing_header_as_empty": true})),
        )
        .telling("prefix", header(json!({"string_match": {"prefix": "B", "ignore_case": true}})))
        .telling("expression", header(json!({"string_match": {"safe_regex": {"regex": "[bc]+"}}})))
        .telling("range", header(json!({"range_match": {"start": 5, "end": 10}})))
        .telling("method", header(json!({"name": ":method", "string_match": {"exact": "POST"}})))
        .telling("path", header(json!({"name": ":path", "string_match": {"contains": "own"}})))
        .telling("of the answer", header(json!({"name": "x-origin", "present_match": true})))
        .each(
            "/a",
            &[
                "",
                "x-a: b\r\n",
                "x-a: B\r\n",
                "x-a: c\r\n",
                "x-a:\r\n",
                "x-a: 7\r\n",
                "x-a: 10\r\n",
                "x-a: b\r\nx-a: c\r\n",
            ],
        )
        .get_with("/own", "x-a: b\r\n")
        .get_with("/down", "x-a: b\r\n")
        .post("/a", "x-a: b\r\n", "body")
}

/// By what filters noted, and by whether it was a question about health.
fn notes() -> Scene {
    let health = extension(
        "envoy.filters.http.health_check",
        "filters.http.health_check.v3.HealthCheck",
        json!({"pass_through_mode": false, "headers": [{"name": ":path", "string_match": {"exact": "/check"}}]}),
    );
    let rule = |header: &str, key: &str, kind: &str| json!({"header": header, "on_header_present": {"metadata_namespace": "ns", "key": key, "type": kind}});
    let rules = json!({"request_rules": [rule("x-m", "k", "STRING"), rule("x-n", "n", "NUMBER")]});
    let note = extension("envoy.filters.http.header_to_metadata", "filters.http.header_to_metadata.v3.Config", rules);
    let noted = |path: Value, value: Value, absent: Value| {
        let matcher = json!({"filter": "ns", "path": path, "value": value});
        let mut filter = json!({"matcher": matcher});
        if !absent.is_null() {
            filter["match_if_key_not_found"] = absent;
        }
        json!({"metadata_filter": filter})
    };
    let exact = |text: &str| json!({"string_match": {"exact": text}});
    let k = || json!([{"key": "k"}]);
    Scene::filtered("log-notes", vec![health, note], routes())
        .telling("by default", noted(k(), exact("v"), json!(null)))
        .telling("if absent", noted(k(), exact("v"), json!(true)))
        .telling("not if absent", noted(k(), exact("v"), json!(false)))
        .telling("there", noted(k(), json!({"present_match": true}), json!(false)))
        .telling("number", noted(json!([{"key": "n"}]), json!({"double_match": {"exact": 5}}), json!(false)))
        .telling("deeper", noted(json!([{"key": "k"}, {"key": "l"}]), exact("v"), json!(false)))
        .telling("deeper, if absent", noted(json!([{"key": "k"}, {"key": "l"}]), exact("v"), json!(true)))
        .telling("inverted", {
            let mut inverted = noted(k(), exact("v"), json!(false));
            inverted["metadata_filter"]["matcher"]["invert"] = json!(true);
            inverted
        })
        .telling("nothing asked", json!({"metadata_filter": {}}))
        .telling("nothing asked, not if absent", json!({"metadata_filter": {"match_if_key_not_found": false}}))
        .telling("no check", json!({"not_health_check_filter": {}}))
        .telling("traceable", json!({"traceable_filter": {}}))
        .telling("by expression", expression("metadata.filter_metadata['ns']['k'] == 'v'"))
        .each("/a", &["", "x-m: v\r\n", "x-m: w\r\n", "x-n: 5\r\n", "x-n: 6\r\nx-m: v\r\n"])
        .gets(&["/check", "/own", "/check?q"])
        .get_with("/check", "x-m: v\r\n")
}

/// By chance, which the request's identifier decides.
fn shares() -> Scene {
    let share = |numerator: u32, denominator: &str, independent: bool| {
        json!({"runtime_filter": {
            "runtime_key": "none", "percent_sampled": {"numerator": numerator, "denominator": denominator},
            "use_independent_randomness": independent,
        }})
    };
    let mut scene = Scene::routes("log-shares", routes())
        .with(json!({"preserve_external_request_id": true}))
        .telling("none", share(0, "HUNDRED", false))
        .telling("all", share(100, "HUNDRED", false))
        .telling("a fifth", share(20, "HUNDRED", false))
        .telling("finer", share(2_000, "TEN_THOUSAND", false))
        .telling("finest", share(200_000, "MILLION", false))
        .telling("all, by chance", share(100, "HUNDRED", true))
        .telling("none, by chance", share(0, "MILLION", true))
        .telling("unset", json!({"runtime_filter": {"runtime_key": "none"}}));
    for first in
        ["00000000", "00000013", "00000014", "0000001f", "000007cf", "000007d0", "0000ffff", "00030d3f", "deadbeef"]
    {
        scene = scene.get_with("/a", &format!("x-request-id: {first}-0000-4000-8000-000000000000\r\n"));
    }
    scene
}

/// By the moment of the record.
fn moments() -> Scene {
    let kinds = |types: Value, exclude: bool| json!({"log_type_filter": {"types": types, "exclude": exclude}});
    Scene::routes("log-moments", routes())
        .with(json!({"access_log_options": {"flush_access_log_on_new_request": true}}))
        .telling("begins", kinds(json!(["DownstreamStart"]), false))
        .telling("ends", kinds(json!(["DownstreamEnd"]), false))
        .telling("does not end", kinds(json!(["DownstreamEnd"]), true))
        .telling("either", kinds(json!(["DownstreamEnd", "DownstreamStart"]), false))
        .telling("nothing", kinds(json!([]), false))
        .telling("not nothing", kinds(json!([]), true))
        .telling("of connections", kinds(json!(["TcpConnectionEnd"]), false))
        .telling("without a status", status("EQ", 0))
        .telling("without a call's status", json!({"grpc_status_filter": {"statuses": ["OK"]}}))
        .telling("quick", compared("duration", "GE", 0))
        .gets(&["/a", "/own", "/down", "/unknown"])
        .post("/a", "", "body")
}

/// Whether a request is traced.
fn traced() -> Scene {
    let none = json!({"value": 0});
    let check = extension(
        "envoy.filters.http.health_check",
        "filters.http.health_check.v3.HealthCheck",
        json!({"pass_through_mode": false, "headers": [{"name": ":path", "string_match": {"exact": "/check"}}]}),
    );
    Scene::filtered("log-traced", vec![check], routes())
        .with(json!({
            "use_remote_address": true, "preserve_external_request_id": true,
            "tracing": {"random_sampling": none, "client_sampling": {"value": 100}},
        }))
        .telling("traceable", json!({"traceable_filter": {}}))
        .each(
            "/a",
            &[
                "",
                "x-client-trace-id: abc\r\n",
                "x-envoy-force-trace: 1\r\n",
                "x-request-id: 12345678-0000-4000-8000-000000000000\r\n",
                "x-request-id: 12345678-0000-9000-8000-000000000000\r\n",
                "x-request-id: 12345678-0000-a000-8000-000000000000\r\n",
                "x-request-id: 12345678-0000-b000-8000-000000000000\r\n",
            ],
        )
        .get_with("/check", "x-envoy-force-trace: 1\r\n")
}

/// All commands, of requests that go well and of others.
fn told(name: &str) -> Scene {
    let values = json!({"k": "v", "list": [1, "two", {"three": 3.5}], "yes": true});
    let set = extension(
        "envoy.filters.http.set_metadata",
        "filters.http.set_metadata.v3.Config",
        json!({"metadata": [{"metadata_namespace": "ns", "value": values}]}),
    );
    let ns = json!({"metadata": {"filter_metadata": {"ns": {"k": "of the route"}}}});
    let mut routes = routes();
    for route in routes.as_array_mut().into_iter().flatten() {
        config::overlay(route, ns.clone());
    }
    let host = json!({
        "name": "all", "domains": ["*"], "routes": routes,
        "metadata": {"filter_metadata": {"ns": {"k": "of the virtual host"}}},
    });
    let quiet = extension(
        "envoy.filters.http.router",
        "filters.http.router.v3.Router",
        json!({"suppress_envoy_headers": true}),
    );
    Scene::new(name, json!({"route_config": {"virtual_hosts": [host]}, "http_filters": [set, quiet]}))
        .logging(commands::all())
        .gets(EVERYTHING)
        .gets(&["/a?answer=trailers", "/a?answer=big", "/a?q=1&q=2&e=%41%20%2b%e9&f", "/a?answer=grpc"])
        .get_with("/a", "x-long: something long\r\n")
        .post("/a", "", "a body")
        .post("/again?answer=503x1", "", "a body")
        .ask("HEAD", "test", "/a", "")
        .raw("POST /a HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n")
}

fn told_over_tls() -> Scene {
    told("tls-log-commands").over(Over::Tls)
}
