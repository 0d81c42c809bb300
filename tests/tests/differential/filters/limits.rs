//! How often and how much: local_ratelimit and buffer.

use super::{filter, header, own, scope, share};
use crate::scene::{Scene, to_a};
use postrider_tests::kit::config::overlay;
use serde_json::{Value, json};

pub fn scenes() -> Vec<Scene> {
    vec![
        plain_limit(),
        described(),
        told(),
        limit_scopes(),
        buffer(),
        buffer_scopes(),
        bandwidth(),
        bandwidth_trailers(),
    ]
}

/// A bucket that does not fill while the suite runs.
fn bucket(max: u32) -> Value {
    json!({"max_tokens": max, "tokens_per_fill": 1, "fill_interval": "36000s"})
}

/// What counts for a scene stands under its name in the statistics.
fn limit(name: &str, more: Value) -> Value {
    let mut fields = json!({"stat_prefix": name, "filter_enabled": share(100), "filter_enforced": share(100)});
    overlay(&mut fields, more);
    fields
}

fn local(fields: Value) -> Value {
    filter("local_ratelimit", "LocalRateLimit", fields)
}

fn plain_limit() -> Scene {
    let fields = json!({
        "token_bucket": bucket(2),
        "response_headers_to_add": [header("x-limited", "yes"), header("x-path", "%REQ(:path)%"), {"header": {"key": "x-again", "value": "1"}}],
    });
    Scene::filtered("local-limit", vec![local(limit("local-limit", fields))], json!([]))
        .gets(&["/", "/", "/", "/p?q"])
        .ask("HEAD", "test", "/", "")
        .get_with("/", "content-type: application/grpc\r\n")
        .post("/", "", "body")
}

fn entries(all: &[(&str, &str)]) -> Value {
    let entry = |(key, value): &(&str, &str)| match *value {
        "" => json!({"key": key}),
        value => json!({"key": key, "value": value}),
    };
    all.iter().map(entry).collect()
}

fn descriptor(all: &[(&str, &str)], max: u32, more: Value) -> Value {
    let mut descriptor = json!({"entries": entries(all), "token_bucket": bucket(max)});
    overlay(&mut descriptor, more);
    descriptor
}

/// Limits of requests that count as something.
fn described() -> Scene {
    let user = json!({"request_headers": {"header_name": "x-user", "descriptor_key": "user"}});
    let post = json!({"header_value_match": {"descriptor_value": "post", "headers": [{"name": ":method", "string_match": {"exact": "POST"}}]}});
    let quiet = json!({"header_value_match": {"descriptor_value": "quiet", "expect_match": false, "headers": [{"name": "x-loud", "present_match": true}]}});
    let fields = json!({
        "token_bucket": bucket(8),
        "rate_limits": [
            {"actions": [user]},
            {"actions": [{"generic_key": {"descriptor_value": "g", "descriptor_key": "k"}}, user]},
            {"actions": [post]},
            {"actions": [quiet, {"query_parameters": {"query_parameter_name": "q", "descriptor_key": "q"}}]},
            {"actions": [{"remote_address": {}}]},
            {"actions": [{"masked_remote_address": {"v4_prefix_mask_len": 8}}, {"request_headers": {"header_name": "x-opt", "descriptor_key": "opt", "skip_if_absent": true}}]},
            {"actions": [{"query_parameter_value_match": {"descriptor_value": "v", "query_parameters": [{"name": "v", "present_match": true}]}}]},
        ],
        "descriptors": [
            descriptor(&[("user", "ann")], 1, json!({})),
            descriptor(&[("k", "g"), ("user", "")], 2, json!({})),
            descriptor(&[("header_match", "post")], 1, json!({})),
            descriptor(&[("header_match", "quiet"), ("q", "1")], 1, json!({"shadow_mode": true})),
            descriptor(&[("masked_remote_address", "127.0.0.0/8"), ("opt", "x")], 1, json!({})),
            descriptor(&[("query_match", "v")], 1, json!({})),
        ],
        "always_consume_default_token_bucket": false,
        "enable_x_ratelimit_headers": "DRAFT_VERSION_03",
    });
    Scene::filtered("limits-described", vec![local(limit("limits-described", fields))], json!([]))
        .each(
            "/",
            &[
                "x-user: ann\r\n",
                "x-user: ann\r\n",
                "x-user: bob\r\n",
                "x-user: bob\r\n",
                "x-user: bob\r\n",
                "x-user: eve\r\n",
            ],
        )
        .gets(&["/?q=1", "/?q=1", "/?q=2", "/?v", "/?v", "/?v=2", "/?q=1&v"])
        .each("/?q=1", &["x-loud: 1\r\n", "x-opt: x\r\n", "x-opt: x\r\n", "x-opt: y\r\n"])
        .post("/", "", "")
        .post("/", "", "")
        .gets(&["/", "/", "/", "/", "/", "/"])
}

/// How answers tell about limits, and what a refusal looks like.
fn told() -> Scene {
    let all = |more: Value| {
        let mut fields = json!({
            "token_bucket": bucket(1), "enable_x_ratelimit_headers": "DRAFT_VERSION_03", "enable_retry_after_header": true,
        });
        overlay(&mut fields, more);
        limit("limits-told", fields)
    };
    let route = |prefix: &str, more: Value| own(prefix, "local_ratelimit", "LocalRateLimit", all(more));
    let routes = json!([
        route("/unavailable", json!({"status": {"code": "ServiceUnavailable"}})),
        route("/low", json!({"status": {"code": "OK"}})),
        route("/exhausted", json!({"rate_limited_as_resource_exhausted": true})),
        route(
            "/marked",
            json!({"filter_enforced": share(0), "request_headers_to_add_when_not_enforced": [header("x-over", "1"), header("x-is", "%REQ(x-is)%")]})
        ),
        route("/off", json!({"filter_enabled": share(0)})),
        route("/silent", json!({"enable_x_ratelimit_headers": "OFF", "enable_retry_after_header": false})),
        route(
            "/replaced",
            json!({"response_headers_to_add": [
                {"header": {"key": "retry-after", "value": "7"}, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"},
                {"header": {"key": "content-type", "value": "x/y"}, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"},
            ]})
        ),
        route(
            "/large",
            json!({"token_bucket": {"max_tokens": 1000, "tokens_per_fill": 1000, "fill_interval": "36000s"}})
        ),
    ]);
    let mut scene = Scene::filtered("limits-told", vec![local(all(json!({"token_bucket": bucket(2)})))], routes);
    for path in ["/unavailable", "/low", "/exhausted", "/marked", "/off", "/silent", "/replaced", "/large", "/"] {
        scene = scene.gets(&[path, path, path]).get_with(path, "content-type: application/grpc\r\nx-is: 5\r\n");
    }
    scene.makes("/large", "", &["200|x-ratelimit-limit=9|x-ratelimit-remaining=8", "404"])
}

/// Rules of routes and virtual hosts, stages, and a filter that is off for a route.
fn limit_scopes() -> Scene {
    let key = |value: &str| json!({"actions": [{"generic_key": {"descriptor_value": value}}]});
    let staged = |value: &str| {
        let mut rule = key(value);
        rule["stage"] = json!(1);
        rule
    };
    let rules = |list: Value| json!({"route": {"rate_limits": list}});
    let routes = json!([
        to_a("/route", rules(json!([key("route")]))),
        to_a("/both", json!({"route": {"rate_limits": [key("route")], "include_vh_rate_limits": true}})),
        to_a("/staged", rules(json!([staged("staged"), key("other")]))),
        to_a(
            "/off",
            json!({"typed_per_filter_config": {"envoy.filters.http.local_ratelimit": {
                "@type": "type.googleapis.com/envoy.config.route.v3.FilterConfig", "disabled": true,
            }}})
        ),
        to_a(
            "/own",
            scope("local_ratelimit", "LocalRateLimit", limit("limits-scopes.own", json!({"token_bucket": bucket(1)})))
        ),
        to_a("/", json!({})),
    ]);
    let host = json!({"name": "all", "domains": ["*"], "rate_limits": [key("host")], "routes": routes});
    let fields = json!({"token_bucket": bucket(100), "descriptors": [
        descriptor(&[("generic_key", "route")], 2, json!({})),
        descriptor(&[("generic_key", "host")], 2, json!({})),
        descriptor(&[("generic_key", "staged")], 1, json!({})),
        descriptor(&[("generic_key", "other")], 3, json!({})),
    ]});
    let mut second = local(limit("limits-scopes.second", {
        let mut staged = fields.clone();
        staged["stage"] = json!(1);
        staged
    }));
    second["name"] = json!("second");
    let filters = vec![local(limit("limits-scopes", fields)), second];
    let mut scene = Scene::with_table("limits-scopes", filters, json!({"virtual_hosts": [host]}));
    for path in ["/route", "/both", "/staged", "/off", "/own", "/"] {
        scene = scene.gets(&[path, path, path, path]);
    }
    scene
}

fn buffer() -> Scene {
    Scene::filtered("buffer", vec![filter("buffer", "Buffer", json!({"max_request_bytes": 10}))], json!([
        own("/off", "buffer", "BufferPerRoute", json!({"disabled": true})),
        own("/more", "buffer", "BufferPerRoute", json!({"buffer": {"max_request_bytes": 100}})),
    ]))
    .get("/")
    .post("/", "", "short")
    .post("/", "", "ten bytes!")
    .post("/", "connection: close\r\n", "more than ten")
    .post("/off", "", "more than ten")
    .post("/more", "", "more than ten")
    .raw("POST / HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")
    .raw("POST / HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n8\r\nabcdefgh\r\n8\r\nabcdefgh\r\n0\r\n\r\n")
}

/// Limits of a virtual host and of routes, whose bodies come in all forms.
fn buffer_scopes() -> Scene {
    let at_most = |bytes: u32| scope("buffer", "BufferPerRoute", json!({"buffer": {"max_request_bytes": bytes}}));
    let routes = json!([
        to_a("/small", at_most(3)),
        to_a("/off", scope("buffer", "BufferPerRoute", json!({"disabled": true}))),
        {"match": {"prefix": "/own"}, "direct_response": {"status": 200, "body": {"inline_string": "own"}}},
        {"match": {"prefix": "/away"}, "redirect": {"path_redirect": "/"}},
        to_a("/", json!({})),
    ]);
    let mut host = json!({"name": "all", "domains": ["*"], "routes": routes});
    overlay(&mut host, at_most(20));
    let fields = json!({"max_request_bytes": 5});
    let mut scene =
        Scene::with_table("buffer-scopes", vec![filter("buffer", "Buffer", fields)], json!({"virtual_hosts": [host]}))
            .with(json!({"http_protocol_options": {"enable_trailers": true}}));
    for path in ["/small", "/off", "/own", "/away", "/"] {
        scene = scene.get(path).post(path, "", "abc").post(path, "content-type: a/b\r\n", "five!");
        for body in ["3\r\nabc\r\n0\r\n\r\n", "1\r\na\r\n1\r\nb\r\n1\r\nc\r\n0\r\n\r\n", "0\r\n\r\n"] {
            scene = scene.raw(format!("PUT {path} HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n{body}"));
        }
    }
    scene.ask("POST", "test", "/", "content-length: 0\r\n").ask("DELETE", "test", "/", "")
}

fn bandwidth_limit(name: &str, more: Value) -> Value {
    let mut fields = json!({"stat_prefix": name, "fill_interval": "0.02s"});
    overlay(&mut fields, more);
    fields
}

/// Bodies at a certain pace, on one way or both, and routes that say otherwise.
fn bandwidth() -> Scene {
    let all = |more: Value| bandwidth_limit("bandwidth", more);
    let route = |prefix: &str, more: Value| own(prefix, "bandwidth_limit", "BandwidthLimit", all(more));
    let mode = |mode: &str| json!({"enable_mode": mode, "limit_kbps": 20});
    let off = json!({
        "enable_mode": "REQUEST_AND_RESPONSE", "limit_kbps": 1,
        "runtime_enabled": {"default_value": false, "runtime_key": "none"},
    });
    let routes = json!([
        route("/requests", mode("REQUEST")),
        route("/responses", mode("RESPONSE")),
        route("/both", mode("REQUEST_AND_RESPONSE")),
        route("/disabled", mode("DISABLED")),
        route("/off", off),
        {"match": {"prefix": "/own"}, "direct_response": {"status": 200, "body": {"inline_string": "x".repeat(4000)}}},
        to_a("/", json!({})),
    ]);
    let fields = all(json!({"enable_mode": "RESPONSE", "limit_kbps": 1_000}));
    let mut scene = Scene::filtered("bandwidth", vec![filter("bandwidth_limit", "BandwidthLimit", fields)], routes);
    for path in ["/requests", "/responses", "/both", "/disabled", "/off", "/own", "/"] {
        scene = scene
            .get(path)
            .gets(&[&format!("{path}?answer=chunked"), &format!("{path}?answer=204"), &format!("{path}?answer=404")])
            .ask("HEAD", "test", path, "")
            .post(path, "", "x".repeat(2_000))
            .post(path, "", "");
    }
    scene.gets(&["/responses?answer=truncated", "/both?answer=reset"])
}

/// How long it took, told in trailers.
fn bandwidth_trailers() -> Scene {
    let told = |name: &str, prefix: &str| {
        let mut fields = bandwidth_limit(
            "bandwidth-trailers",
            json!({"enable_mode": "REQUEST_AND_RESPONSE", "limit_kbps": 2, "enable_response_trailers": true}),
        );
        if !prefix.is_empty() {
            fields["response_trailer_prefix"] = json!(prefix);
        }
        let mut route = own(name, "bandwidth_limit", "BandwidthLimit", fields);
        overlay(&mut route, json!({"route": {"cluster": "trailers"}}));
        route
    };
    let fields = bandwidth_limit("bandwidth-trailers", json!({"enable_mode": "DISABLED"}));
    let filters = vec![filter("bandwidth_limit", "BandwidthLimit", fields)];
    let chunks = format!("{:x}\r\n{}\r\n0\r\n\r\n", 600, "x".repeat(600));
    Scene::filtered("bandwidth-trailers", filters, json!([told("/named", "x"), told("/", "")]))
        .with(json!({"http_protocol_options": {"enable_trailers": true}}))
        .gets(&["/?answer=trailers", "/?answer=404"])
        .post("/?answer=chunked", "", "x".repeat(600))
        .raw(format!("POST /?answer=chunked HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n{chunks}"))
        .raw(format!("POST /named?answer=chunked HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n{chunks}"))
}
