//! Listeners with TLS: what routes, filters, upstreams and logs learn of the client's certificate.

use crate::scene::{Over, Scene, to_a};
use postrider_tests::kit::config::{extension, overlay};
use serde_json::{Value, json};

pub fn scenes() -> Vec<Scene> {
    let forwarded = ["SANITIZE", "FORWARD_ONLY", "APPEND_FORWARD", "SANITIZE_SET", "ALWAYS_FORWARD_ONLY"];
    let mut all: Vec<Scene> = forwarded.into_iter().map(told).collect();
    all.extend([answered(), routed(), judged()]);
    let plain = Scene::forward("cut").get("/?answer=truncated");
    all.into_iter().map(|scene| scene.over(Over::Tls).logging(seen())).chain([plain]).collect()
}

/// What the log says of the connection.
fn seen() -> Value {
    let commands = [
        "DOWNSTREAM_TLS_VERSION",
        "DOWNSTREAM_TLS_CIPHER",
        "REQUESTED_SERVER_NAME",
        "DOWNSTREAM_PEER_URI_SAN",
        "DOWNSTREAM_PEER_DNS_SAN",
        "DOWNSTREAM_LOCAL_URI_SAN",
        "DOWNSTREAM_LOCAL_DNS_SAN",
        "DOWNSTREAM_PEER_SUBJECT",
        "DOWNSTREAM_PEER_ISSUER",
        "DOWNSTREAM_LOCAL_SUBJECT",
        "DOWNSTREAM_PEER_SERIAL",
        "DOWNSTREAM_PEER_FINGERPRINT_256",
        "DOWNSTREAM_PEER_FINGERPRINT_1",
        "DOWNSTREAM_PEER_CERT",
        "DOWNSTREAM_PEER_CERT_V_START",
        "DOWNSTREAM_PEER_CERT_V_END",
        "DOWNSTREAM_TRANSPORT_FAILURE_REASON",
    ];
    let mut fields = json!({});
    for command in commands {
        overlay(&mut fields, json!({command: format!("%{command}%")}));
    }
    fields
}

/// `x-forwarded-client-cert` in all its ways.
fn told(way: &str) -> Scene {
    let details = json!({"subject": true, "cert": true, "chain": true, "dns": true, "uri": true});
    let mut scene = Scene::forward(&format!("tls-{}", way.to_ascii_lowercase()))
        .with(json!({"forward_client_cert_details": way}))
        .each(
            "/",
            &[
                "",
                "x-forwarded-client-cert: Hash=00\r\n",
                "x-forwarded-client-cert: By=a\r\nx-forwarded-client-cert: By=b\r\n",
            ],
        )
        .get_with("/", "x-forwarded-proto: http\r\n");
    if way.contains("SET") || way.contains("APPEND") {
        scene = scene.with(json!({"set_current_client_cert_details": details}));
    }
    scene
}

/// Answers of the proxy's own, redirects and bodies.
fn answered() -> Scene {
    Scene::routes(
        "tls-answers",
        json!([
            {"match": {"prefix": "/own"}, "direct_response": {"status": 200, "body": {"inline_string": "own"}}},
            {"match": {"prefix": "/plain"}, "redirect": {"https_redirect": true}},
            {"match": {"prefix": "/away"}, "redirect": {"host_redirect": "b.test"}},
            {"match": {"prefix": "/port"}, "redirect": {"port_redirect": 8443}},
            to_a("/", json!({})),
        ]),
    )
    .gets(&[
        "/own",
        "/plain",
        "/away",
        "/port",
        "/",
        "/none?answer=big",
        "/?answer=chunked",
        "/?answer=trailers",
        "/?answer=truncated",
        "/?answer=until-close",
    ])
    .ask("HEAD", "test", "/", "")
    .post("/", "", "body")
    .post("/", "", "x".repeat(70_000))
    .raw("GET / HTTP/1.0\r\n\r\n")
    .raw("rubbish\r\n\r\n")
    .raw("POST / HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n")
}

/// Routes for clients with a certificate.
fn routed() -> Scene {
    let with = |prefix: &str, context: Value| json!({"match": {"prefix": prefix, "tls_context": context}, "direct_response": {"status": 200, "body": {"inline_string": prefix}}});
    let tls = json!({"match": {"prefix": "/tls"}, "direct_response": {"status": 200}, "response_headers_to_add": [
        {"header": {"key": "x-peer", "value": "%DOWNSTREAM_PEER_SUBJECT%"}}, {"header": {"key": "x-version", "value": "%DOWNSTREAM_TLS_VERSION%"}},
        {"header": {"key": "x-name", "value": "%REQUESTED_SERVER_NAME%"}},
    ]});
    Scene::routes(
        "tls-routes",
        json!([
            with("/shown", json!({"presented": true})),
            with("/not-shown", json!({"presented": false})),
            with("/good", json!({"validated": true})),
            with("/bad", json!({"validated": false})),
            tls,
            to_a("/", json!({})),
        ]),
    )
    .gets(&["/shown", "/not-shown", "/good", "/bad", "/tls", "/"])
}

/// Rules about who the client is.
fn judged() -> Scene {
    let rules = [
        ("authenticated", json!({"authenticated": {}})),
        ("subject", json!({"authenticated": {"principal_name": {"contains": "ann"}}})),
        ("dns", json!({"authenticated": {"principal_name": {"exact": "ann.test"}}})),
        ("second", json!({"authenticated": {"principal_name": {"exact": "ann"}}})),
        ("other", json!({"authenticated": {"principal_name": {"exact": "bob"}}})),
    ];
    let mut policies = json!({"name": {
        "permissions": [{"and_rules": {"rules": [{"requested_server_name": {"exact": "test"}}, {"url_path": {"path": {"exact": "/name"}}}]}}],
        "principals": [{"any": true}],
    }});
    for (name, principal) in &rules {
        let here = json!({"url_path": {"path": {"exact": format!("/{name}")}}});
        overlay(&mut policies, json!({*name: {"permissions": [here], "principals": [principal]}}));
    }
    let fields = json!({"rules": {"action": "ALLOW", "policies": policies}});
    let rbac = extension("envoy.filters.http.rbac", "filters.http.rbac.v3.RBAC", fields);
    let scene = Scene::filtered("tls-rbac", vec![rbac], json!([])).get("/name").get("/nobody");
    rules.iter().fold(scene, |scene, (name, _)| scene.get(&format!("/{name}")))
}
