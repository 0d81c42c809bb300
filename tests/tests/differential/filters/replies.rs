//! Answers of the proxy's own in the place of others: custom_response and health_check.

use super::{filter, header, own};
use crate::scene::Scene;
use postrider_tests::kit::config::overlay;
use serde_json::{Value, json};

pub fn scenes() -> Vec<Scene> {
    vec![
        custom_response(),
        custom_response_scopes(),
        fetched(),
        health_check(),
        health_check_of_clusters(),
        health_check_passed(),
    ]
}

fn single(kind: &str, value: &str, more: Value) -> Value {
    let mut typed = json!({"@type": format!("type.googleapis.com/envoy.type.matcher.v3.{kind}")});
    overlay(&mut typed, more);
    json!({"single_predicate": {"input": {"name": "input", "typed_config": typed}, "value_match": {"exact": value}}})
}

fn status(value: &str) -> Value {
    single("HttpResponseStatusCodeMatchInput", value, json!({}))
}

fn answer(mut policy: Value) -> Value {
    let kind = "envoy.extensions.http.custom_response.local_response_policy.v3.LocalResponsePolicy";
    policy["@type"] = json!(format!("type.googleapis.com/{kind}"));
    json!({"action": {"name": "action", "typed_config": policy}})
}

fn says(text: &str, more: Value) -> Value {
    let mut policy = json!({"body": {"inline_string": text}, "preserve_response_code_details": true});
    overlay(&mut policy, more);
    answer(policy)
}

fn tree(matchers: Vec<(Value, Value)>) -> Value {
    let matcher = |(predicate, leaf): (Value, Value)| json!({"predicate": predicate, "on_match": leaf});
    json!({"custom_response_matcher": {"matcher_list": {"matchers": matchers.into_iter().map(matcher).collect::<Vec<_>>()}}})
}

/// By status, class, headers and who answered.
fn custom_response() -> Scene {
    let of_request =
        |name: &str, value: &str| single("HttpRequestHeaderMatchInput", value, json!({"header_name": name}));
    let of_answer =
        |name: &str, value: &str| single("HttpResponseHeaderMatchInput", value, json!({"header_name": name}));
    let all = |predicates: Value| json!({"and_matcher": {"predicate": predicates}});
    let any = |predicates: Value| json!({"or_matcher": {"predicate": predicates}});
    let as_json =
        json!({"json_format": {"status": "%RESPONSE_CODE%", "message": "%LOCAL_REPLY_BODY%", "path": "%REQ(:path)%"}});
    let as_text = json!({"text_format_source": {"inline_string": "was %RESPONSE_CODE% %RESP(x-origin)% [%LOCAL_REPLY_BODY%]"}, "content_type": "a/b"});
    let fields = tree(vec![
        (
            all(json!([status("404"), of_request("x-as", "json")])),
            says("gone", json!({"status_code": 410, "body_format": as_json})),
        ),
        (all(json!([status("404"), of_request("x-as", "text")])), says("gone", json!({"body_format": as_text}))),
        (
            all(json!([status("404"), {"not_matcher": of_request("x-as", "is")}])),
            says(
                "nothing here",
                json!({"response_headers_to_add": [
                    header("content-type", "text/html"), header("x-path", "%REQ(:path)%"), header("x-code", "%RESPONSE_CODE%"), header("x-was", "%RESP(x-origin)%"),
                ]}),
            ),
        ),
        (
            any(json!([status("500"), status("503")])),
            says(
                "sorry",
                json!({"status_code": 502, "response_code_details": "made_up", "preserve_response_code_details": null}),
            ),
        ),
        (
            single("HttpResponseStatusCodeClassMatchInput", "3xx", json!({})),
            answer(json!({"status_code": 200, "response_code_details": "moved"})),
        ),
        (of_answer("x-deny", "because"), says("denied", json!({}))),
        (of_answer("x-dup", "1,2"), says("joined", json!({}))),
        (
            all(json!([single("HttpResponseLocalReplyMatchInput", "true", json!({})), status("403")])),
            says("local", json!({"body_format": as_json})),
        ),
        (single("HttpResponseStatusCodeMatchInput", "204", json!({})), says("something", json!({"status_code": 201}))),
    ]);
    let routes = json!([
        {"match": {"prefix": "/own/403"}, "direct_response": {"status": 403, "body": {"inline_string": "own"}}},
        {"match": {"prefix": "/own/404"}, "direct_response": {"status": 404}},
        {"match": {"prefix": "/away"}, "redirect": {"path_redirect": "/"}},
        {"match": {"prefix": "/down"}, "route": {"cluster": "down"}, "response_headers_to_add": [header("x-route", "1")]},
        {"match": {"prefix": "/empty"}, "route": {"cluster": "empty"}},
    ]);
    let mut scene =
        Scene::filtered("custom-response", vec![filter("custom_response", "CustomResponse", fields)], routes);
    for answer in [
        "", "404", "500", "503", "204", "304", "403", "fields", "location", "409", "chunked", "trailers", "big", "grpc",
    ] {
        scene = scene.get(&format!("/?answer={answer}"));
    }
    for path in ["/own/403", "/own/404", "/away", "/down", "/empty"] {
        scene = scene.get(path).get_with(path, "x-as: json\r\n").get_with(path, "content-type: application/grpc\r\n");
    }
    scene
        .each("/?answer=404", &["x-as: json\r\n", "x-as: text\r\n", "x-as: is\r\n", "accept: application/json\r\n"])
        .ask("HEAD", "test", "/?answer=404", "")
        .ask("HEAD", "test", "/own/403", "")
        .post("/?answer=500", "", "body")
}

/// The nearest configuration in which something matches.
fn custom_response_scopes() -> Scene {
    let of = |kind: &str, text: &str| tree(vec![(status(kind), says(text, json!({})))]);
    let map = json!({"custom_response_matcher": {"matcher_tree": {
        "input": {"name": "input", "typed_config": {"@type": "type.googleapis.com/envoy.type.matcher.v3.HttpResponseStatusCodeMatchInput"}},
        "exact_match_map": {"map": {"404": says("map 404", json!({})), "409": says("map 409", json!({"status_code": 400}))}},
    }, "on_no_match": says("map other", json!({}))}});
    let routes = json!([
        own("/route", "custom_response", "CustomResponse", of("404", "route 404")),
        own("/map", "custom_response", "CustomResponse", map),
        own("/nothing", "custom_response", "CustomResponse", json!({})),
    ]);
    let mut scene = Scene::filtered(
        "custom-response-scopes",
        vec![filter("custom_response", "CustomResponse", of("500", "filter 500"))],
        routes,
    );
    for path in ["/route", "/map", "/nothing", "/"] {
        for answer in ["", "404", "500", "409"] {
            scene = scene.get(&format!("{path}?answer={answer}"));
        }
    }
    scene
}

/// Answers that are fetched, from a path that a format makes.
fn fetched() -> Scene {
    let fetch = |status: &str, action: Value| {
        let kind = "envoy.extensions.http.custom_response.redirect_policy.v3.RedirectPolicy";
        let policy = json!({"@type": format!("type.googleapis.com/{kind}"), "redirect_action": action});
        (self::status(status), json!({"action": {"name": "action", "typed_config": policy}}))
    };
    let fields = tree(vec![
        fetch("404", json!({"path_rewrite": "/made%REQ(:path)%"})),
        fetch("403", json!({"path_rewrite": "/made/%REQ(x-a)%", "strip_query": true})),
        fetch("500", json!({"path_rewrite": "no-slash?z=%REQ(x-a)%"})),
        fetch("503", json!({"path_redirect": "/plain"})),
    ]);
    let routes = json!([
        {"match": {"prefix": "/made"}, "direct_response": {"status": 200, "body": {"inline_string": "made"}}},
        {"match": {"prefix": "/no-slash"}, "direct_response": {"status": 200, "body": {"inline_string": "slashed"}}},
        {"match": {"prefix": "/plain"}, "direct_response": {"status": 200, "body": {"inline_string": "plain"}}},
    ]);
    let scene =
        Scene::filtered("custom-response-fetched", vec![filter("custom_response", "CustomResponse", fields)], routes);
    scene.answers_with("/x?q=1", "x-a: A\r\n", &["", "404", "403", "500", "503"]).answers("/x", &["404", "403", "500"])
}

fn health_check() -> Scene {
    let fields =
        json!({"pass_through_mode": false, "headers": [{"name": ":path", "string_match": {"exact": "/check"}}]});
    Scene::filtered("health", vec![filter("health_check", "HealthCheck", fields)], json!([]))
        .gets(&["/check", "/check?x", "/other"])
        .post("/check", "", "abc")
        .ask("HEAD", "test", "/check", "")
}

/// The health of clusters decides.
fn health_check_of_clusters() -> Scene {
    let at = |path: &str, clusters: Value| {
        let fields = json!({
            "pass_through_mode": false, "headers": [{"name": ":path", "string_match": {"exact": path}}], "cluster_min_healthy_percentages": clusters,
        });
        let mut made = filter("health_check", "HealthCheck", fields);
        made["name"] = json!(path);
        made
    };
    let share = |percent: f64| json!({"value": percent});
    Scene::filtered(
        "health-of-clusters",
        vec![
            at("/good", json!({"a": share(100.0)})),
            at("/both", json!({"a": share(50.0), "b": share(1.0)})),
            at("/empty", json!({"empty": share(1.0)})),
            at("/zero", json!({"empty": share(0.0)})),
            at("/unknown", json!({"nobody": share(1.0)})),
        ],
        json!([]),
    )
    .gets(&["/good", "/both", "/empty", "/zero", "/unknown", "/other"])
    .ask("HEAD", "test", "/empty", "")
    .post("/good", "", "abc")
}

/// The service behind answers, and what it said is remembered.
fn health_check_passed() -> Scene {
    let at = |path: &str, more: Value| {
        let mut fields =
            json!({"pass_through_mode": true, "headers": [{"name": ":path", "string_match": {"prefix": path}}]});
        overlay(&mut fields, more);
        let mut made = filter("health_check", "HealthCheck", fields);
        made["name"] = json!(path);
        made
    };
    let filters = vec![
        at("/kept", json!({"cache_time": "36000s"})),
        at("/ill", json!({"cache_time": "36000s"})),
        at("/degraded", json!({"cache_time": "36000s"})),
        at("/passed", json!({})),
    ];
    Scene::filtered("health-passed", filters, json!([]))
        .gets(&[
            "/kept",
            "/kept",
            "/kept?x",
            "/ill?answer=503",
            "/ill",
            "/passed",
            "/passed?answer=503",
            "/passed",
            "/other",
        ])
        .makes("/degraded", "", &["200|x-envoy-degraded=1", "200"])
}
