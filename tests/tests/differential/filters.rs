//! The filters, each with what it takes, refuses and changes.

use crate::scene::{Scene, to_a};
use postrider_tests::kit::config::extension;
use serde_json::{Value, json};

pub fn scenes() -> Vec<Scene> {
    vec![
        cors(),
        csrf(),
        fault(),
        header_mutation(),
        basic_auth(),
        rbac(),
        rbac_denies(),
        jwt_authn(),
        api_key_auth(),
        buffer(),
        local_ratelimit(),
        health_check(),
        ext_authz(),
        ext_authz_body(),
        lua(),
        grpc_web(),
        disabled(),
    ]
}

fn filter(name: &str, kind: &str, fields: Value) -> Value {
    extension(&format!("envoy.filters.http.{name}"), &format!("filters.http.{name}.v3.{kind}"), fields)
}

/// A route to the origin `a` with configuration of its own for a filter.
fn own(prefix: &str, name: &str, kind: &str, fields: Value) -> Value {
    let mut config = fields;
    config["@type"] = json!(format!("type.googleapis.com/envoy.extensions.filters.http.{name}.v3.{kind}"));
    to_a(prefix, json!({"typed_per_filter_config": {format!("envoy.filters.http.{name}"): config}}))
}

fn share(numerator: u32) -> Value {
    json!({"default_value": {"numerator": numerator}})
}

fn cors() -> Scene {
    let policy = |fields: Value| {
        let mut policy = fields;
        policy["allow_origin_string_match"] =
            json!([{"exact": "http://a.test"}, {"safe_regex": {"regex": "https://.*\\.b\\.test"}}]);
        policy
    };
    let full = policy(json!({
        "allow_methods": "GET, PUT", "allow_headers": "x-a, x-b", "expose_headers": "x-c", "max_age": "60", "allow_credentials": true,
        "allow_private_network_access": true,
    }));
    let preflight = "access-control-request-method: PUT\r\n";
    let mut scene = Scene::filtered(
        "cors",
        vec![filter("cors", "Cors", json!({}))],
        json!([
            own("/full", "cors", "CorsPolicy", full),
            own("/bare", "cors", "CorsPolicy", policy(json!({}))),
            own("/off", "cors", "CorsPolicy", policy(json!({"filter_enabled": share(0)}))),
            own(
                "/shadow",
                "cors",
                "CorsPolicy",
                policy(json!({"filter_enabled": share(0), "shadow_enabled": share(100)}))
            ),
            own("/forward", "cors", "CorsPolicy", policy(json!({"forward_not_matching_preflights": false}))),
        ]),
    );
    for path in ["/full", "/bare", "/off", "/shadow", "/forward", "/none"] {
        for origin in ["origin: http://a.test\r\n", "origin: https://x.b.test\r\n", "origin: http://evil.test\r\n", ""]
        {
            scene = scene.get_with(path, origin).ask("OPTIONS", "test", path, &format!("{origin}{preflight}"));
        }
        scene = scene.ask("OPTIONS", "test", path, "origin: http://a.test\r\n");
    }
    scene.ask(
        "OPTIONS",
        "test",
        "/full",
        &format!("origin: http://a.test\r\n{preflight}access-control-request-private-network: true\r\n"),
    )
}

fn csrf() -> Scene {
    let policy = json!({"filter_enabled": share(100), "additional_origins": [{"exact": "friend.test"}, {"suffix": ".mine.test"}]});
    let off = json!({"filter_enabled": share(0), "shadow_enabled": share(100)});
    let mut scene = Scene::filtered(
        "csrf",
        vec![filter("csrf", "CsrfPolicy", policy)],
        json!([own("/off", "csrf", "CsrfPolicy", off)]),
    );
    for method in ["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"] {
        for lines in [
            "",
            "origin: http://test\r\n",
            "origin: https://friend.test\r\n",
            "origin: http://evil.test\r\n",
            "referer: http://test/x\r\n",
            "origin: null\r\n",
        ] {
            scene = scene.ask(method, "test", "/", &format!("{lines}content-length: 0\r\n"));
        }
    }
    scene.ask("POST", "test", "/off", "origin: http://evil.test\r\ncontent-length: 0\r\n").ask(
        "POST",
        "test:80",
        "/",
        "origin: http://test:80\r\ncontent-length: 0\r\n",
    )
}

fn fault() -> Scene {
    let abort = |status: u32| json!({"abort": {"http_status": status, "percentage": {"numerator": 100}}});
    let some = json!({"abort": {"http_status": 418, "percentage": {"numerator": 100}}, "headers": [{"name": "x-fault", "present_match": true}]});
    let asked = json!({"abort": {"header_abort": {}, "percentage": {"numerator": 100}}});
    let grpc = json!({"abort": {"grpc_status": 14, "percentage": {"numerator": 100}}});
    Scene::filtered(
        "fault",
        vec![filter("fault", "HTTPFault", json!({}))],
        json!([
            own("/all", "fault", "HTTPFault", abort(503)),
            own("/some", "fault", "HTTPFault", some),
            own("/asked", "fault", "HTTPFault", asked),
            own("/grpc", "fault", "HTTPFault", grpc),
            own("/never", "fault", "HTTPFault", json!({"abort": {"http_status": 500, "percentage": {"numerator": 0}}})),
        ]),
    )
    .gets(&["/all", "/some", "/asked", "/grpc", "/never", "/"])
    .get_with("/some", "x-fault: 1\r\n")
    .each(
        "/asked",
        &[
            "x-envoy-fault-abort-request: 418\r\n",
            "x-envoy-fault-abort-request: 99\r\n",
            "x-envoy-fault-abort-request: 503\r\nx-envoy-fault-abort-request-percentage: 0\r\n",
        ],
    )
    .each("/grpc", &["content-type: application/grpc\r\n"])
}

fn header_mutation() -> Scene {
    let add = |key: &str, value: &str, action: &str| json!({"append": {"header": {"key": key, "value": value}, "append_action": action}});
    let all = |who: &str| {
        json!([
            add("x-append", who, "APPEND_IF_EXISTS_OR_ADD"), add("x-add", who, "ADD_IF_ABSENT"), add("x-over", who, "OVERWRITE_IF_EXISTS_OR_ADD"),
            add("x-old", who, "OVERWRITE_IF_EXISTS"), {"remove": "x-gone"}, add("x-said", "%REQ(x-a)%", "APPEND_IF_EXISTS_OR_ADD"),
        ])
    };
    let fields = json!({"mutations": {"request_mutations": all("filter"), "response_mutations": all("filter")}});
    let per_route = json!({"mutations": {"request_mutations": all("route"), "response_mutations": all("route")}});
    Scene::filtered(
        "mutations",
        vec![filter("header_mutation", "HeaderMutation", fields)],
        json!([own("/own", "header_mutation", "HeaderMutationPerRoute", per_route)]),
    )
    .gets(&["/", "/own", "/?answer=fields"])
    .each("/", &["x-append: 1\r\nx-add: 1\r\nx-over: 1\r\nx-old: 1\r\nx-gone: 1\r\nx-a: said\r\n"])
    .each("/own", &["x-append: 1\r\nx-add: 1\r\nx-over: 1\r\nx-old: 1\r\nx-gone: 1\r\nx-a: said\r\n"])
}

fn basic_auth() -> Scene {
    // `ann` and `secret`.
    let users = json!({"users": {"inline_string": "ann:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ="}, "forward_username_header": "x-user"});
    Scene::filtered("basic-auth", vec![filter("basic_auth", "BasicAuth", users)], json!([]))
        .each(
            "/",
            &[
                "",
                "authorization: Basic YW5uOnNlY3JldA==\r\n",
                "authorization: basic YW5uOnNlY3JldA==\r\n",
                "authorization: Basic YW5uOndyb25n\r\n",
                "authorization: Basic !!!\r\n",
                "authorization: Basic YW5u\r\n",
                "authorization: Bearer x\r\n",
                "authorization: Basic YW5uOnNlY3JldA==\r\nx-user: eve\r\n",
                "authorization: Basic  YW5uOnNlY3JldA==\r\n",
            ],
        )
        .ask("HEAD", "test", "/", "")
}

fn policies(action: &str) -> Value {
    json!({"rules": {"action": action, "policies": {
        "by-path": {"permissions": [{"url_path": {"path": {"prefix": "/open"}}}], "principals": [{"any": true}]},
        "by-header": {"permissions": [{"header": {"name": "x-pass", "string_match": {"exact": "yes"}}}], "principals": [{"any": true}]},
        "by-address": {"permissions": [{"url_path": {"path": {"exact": "/local"}}}], "principals": [{"direct_remote_ip": {"address_prefix": "127.0.0.0", "prefix_len": 8}}]},
        "by-all": {"permissions": [{"and_rules": {"rules": [{"header": {"name": ":method", "string_match": {"exact": "POST"}}}, {"not_rule": {"header": {"name": "x-not", "present_match": true}}}]}}],
            "principals": [{"or_ids": {"ids": [{"header": {"name": "x-who", "string_match": {"prefix": "a"}}}, {"not_id": {"header": {"name": "x-who", "present_match": true}}}]}}]},
    }}})
}

fn asked_for_access(scene: Scene) -> Scene {
    let lines = [
        "content-length: 0\r\n",
        "content-length: 0\r\nx-not: 1\r\n",
        "content-length: 0\r\nx-who: ann\r\n",
        "content-length: 0\r\nx-who: eve\r\n",
    ];
    let scene = scene
        .gets(&["/", "/open", "/open/x?y", "/local", "/local?x", "/Open"])
        .each("/", &["x-pass: yes\r\n", "x-pass: no\r\n", "x-pass: yes\r\nx-pass: yes\r\n"]);
    lines.iter().fold(scene, |scene, lines| scene.ask("POST", "test", "/", lines))
}

fn rbac() -> Scene {
    asked_for_access(Scene::filtered(
        "rbac",
        vec![filter("rbac", "RBAC", policies("ALLOW"))],
        json!([own("/off", "rbac", "RBACPerRoute", json!({})),]),
    ))
    .get("/off")
}

fn rbac_denies() -> Scene {
    asked_for_access(Scene::filtered("rbac-denies", vec![filter("rbac", "RBAC", policies("DENY"))], json!([])))
}

const KEYS: &str =
    r#"{"keys": [{"kty": "oct", "kid": "k1", "alg": "HS256", "k": "YSBrZXkgdGhhdCBub2JvZHkgZWxzZSBoYXMsIDMyIGI"}]}"#;
const GOOD: &str = concat!(
    "eyJhbGciOiAiSFMyNTYiLCAia2lkIjogImsxIn0.eyJpc3MiOiAiaXNzdWVyLnRlc3QiLCAic3ViIjogImFubiIsICJhdWQiOiAi",
    "d2ViIiwgImV4cCI6IDQxMDI0NDQ4MDB9.yy5IdPYyeiR5jJTQqx2_6xFESKN29wm8c0fDl2YIejg",
);
const OLD: &str = concat!(
    "eyJhbGciOiAiSFMyNTYiLCAia2lkIjogImsxIn0.eyJpc3MiOiAiaXNzdWVyLnRlc3QiLCAic3ViIjogImFubiIsICJhdWQiOiAi",
    "d2ViIiwgImV4cCI6IDEwMDAwMDAwMDB9.Ib6P96bI2kgv67q9HX9ekHBNVO8tqm9x_KGUUPpV5Vc",
);
const ELSEWHERE: &str = concat!(
    "eyJhbGciOiAiSFMyNTYiLCAia2lkIjogImsxIn0.eyJpc3MiOiAiaXNzdWVyLnRlc3QiLCAic3ViIjogImFubiIsICJhdWQiOiAi",
    "b3RoZXIiLCAiZXhwIjogNDEwMjQ0NDgwMH0.mbd1FyjC6lKtnCym0-U-b0u_nVdC6svU9HT-UX2cHFw",
);
const STRANGER: &str = concat!(
    "eyJhbGciOiAiSFMyNTYiLCAia2lkIjogImsxIn0.eyJpc3MiOiAic3RyYW5nZXIudGVzdCIsICJzdWIiOiAiZXZlIiwgImF1ZCI6",
    "ICJ3ZWIifQ.ISbP5gnAfriLFUKg5FlcOTHY2Ayeh7YBSJW3ALDulDI",
);
const FORGED: &str = concat!(
    "eyJhbGciOiAiSFMyNTYiLCAia2lkIjogImsxIn0.eyJpc3MiOiAiaXNzdWVyLnRlc3QiLCAic3ViIjogImV2ZSIsICJhdWQiOiAi",
    "d2ViIn0.A4BoiPrpEalbWzV-rd4clvwUwdu3Tbb1PJs1IHKq5Kg",
);

fn jwt_authn() -> Scene {
    let fields = json!({
        "providers": {"one": {
            "issuer": "issuer.test", "audiences": ["web"], "local_jwks": {"inline_string": KEYS}, "forward_payload_header": "x-payload",
            "claim_to_headers": [{"header_name": "x-sub", "claim_name": "sub"}], "from_headers": [{"name": "authorization", "value_prefix": "Bearer "}], "from_params": ["token"],
        }},
        "rules": [
            {"match": {"prefix": "/open"}},
            {"match": {"prefix": "/optional"}, "requires": {"requires_any": {"requirements": [{"provider_name": "one"}, {"allow_missing": {}}]}}},
            {"match": {"prefix": "/"}, "requires": {"provider_name": "one"}},
        ],
    });
    let mut scene = Scene::filtered("jwt", vec![filter("jwt_authn", "JwtAuthentication", fields)], json!([]));
    for token in [GOOD, OLD, ELSEWHERE, STRANGER, FORGED, "", "rubbish", "a.b.c"] {
        scene = scene
            .each("/", &[&format!("authorization: Bearer {token}\r\n")])
            .each("/optional", &[&format!("authorization: Bearer {token}\r\n")]);
    }
    scene
        .gets(&["/", "/open", "/optional", &format!("/?token={GOOD}")])
        .each("/", &["authorization: Basic x\r\n", "x-payload: mine\r\nx-sub: eve\r\n"])
        .each("/open", &["x-sub: eve\r\n"])
}

fn api_key_auth() -> Scene {
    let fields = json!({
        "credentials": [{"key": "one", "client": "ann"}, {"key": "two", "client": "bob"}],
        "key_sources": [{"header": "x-key"}, {"query": "key"}, {"cookie": "ck"}],
        "forwarding": {"header": "x-client", "hide_credentials": false},
    });
    Scene::filtered(
        "api-keys",
        vec![filter("api_key_auth", "ApiKeyAuth", fields)],
        json!([own("/ann", "api_key_auth", "ApiKeyAuthPerRoute", json!({"allowed_clients": ["ann"]})),]),
    )
    .gets(&["/", "/?key=two", "/?key=no", "/ann?key=two", "/ann?key=one"])
    .each(
        "/",
        &[
            "x-key: one\r\n",
            "x-key: Bearer one\r\n",
            "x-key: ONE\r\n",
            "cookie: a=b; ck=one\r\n",
            "x-key: no\r\ncookie: ck=one\r\n",
            "x-key: one\r\nx-client: eve\r\n",
        ],
    )
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

fn local_ratelimit() -> Scene {
    let fields = json!({
        "stat_prefix": "edge", "token_bucket": {"max_tokens": 2, "tokens_per_fill": 1, "fill_interval": "3600s"}, "filter_enabled": share(100), "filter_enforced": share(100),
        "response_headers_to_add": [{"header": {"key": "x-limited", "value": "yes"}}],
    });
    Scene::filtered("local-limit", vec![filter("local_ratelimit", "LocalRateLimit", fields)], json!([]))
        .gets(&["/", "/", "/", "/"])
        .ask("HEAD", "test", "/", "")
        .get_with("/", "content-type: application/grpc\r\n")
}

fn health_check() -> Scene {
    let fields =
        json!({"pass_through_mode": false, "headers": [{"name": ":path", "string_match": {"exact": "/check"}}]});
    Scene::filtered("health", vec![filter("health_check", "HealthCheck", fields)], json!([]))
        .gets(&["/check", "/check?x", "/other"])
        .post("/check", "", "abc")
        .ask("HEAD", "test", "/check", "")
}

fn authz(more: Value) -> Value {
    let mut fields = json!({"transport_api_version": "V3", "http_service": {
        "server_uri": {"uri": "http://authz.test", "cluster": "authz", "timeout": "2s"},
        "path_prefix": "/asked",
        "authorization_request": {"headers_to_add": [{"key": "x-asked", "value": "yes"}]},
        "authorization_response": {
            "allowed_upstream_headers": {"patterns": [{"exact": "x-user"}]},
            "allowed_upstream_headers_to_append": {"patterns": [{"exact": "x-append"}]},
            "allowed_client_headers": {"patterns": [{"exact": "x-deny"}]},
            "allowed_client_headers_on_success": {"patterns": [{"exact": "x-down"}]},
        },
    }, "allowed_headers": {"patterns": [{"exact": "x-answer"}, {"prefix": "x-show"}]}});
    postrider_tests::kit::config::overlay(&mut fields, more);
    fields
}

/// The service's own fields differ, which the page says; what it decides does not.
fn ext_authz() -> Scene {
    Scene::filtered(
        "ext-authz",
        vec![filter("ext_authz", "ExtAuthz", authz(json!({})))],
        json!([own("/off", "ext_authz", "ExtAuthzPerRoute", json!({"disabled": true})),]),
    )
    .gets(&[
        "/",
        "/x?answer=allow",
        "/x?answer=403",
        "/x?answer=500",
        "/x?answer=503",
        "/off?answer=403",
        "/x?answer=404",
        "/x?answer=location",
    ])
    .get_with("/x?answer=allow", "x-user: eve\r\nx-append: 1\r\nx-show-me: 1\r\nx-hide: 1\r\n")
    .post("/x?answer=allow", "", "body")
    .post("/x?answer=403", "", "body")
    .ask("HEAD", "test", "/x?answer=403", "")
}

fn ext_authz_body() -> Scene {
    let more = json!({"failure_mode_allow": true, "failure_mode_allow_header_add": true, "with_request_body": {"max_request_bytes": 8, "allow_partial_message": true}});
    Scene::filtered("ext-authz-body", vec![filter("ext_authz", "ExtAuthz", authz(more))], json!([]))
        .post("/x?answer=allow", "", "body")
        .post("/x?answer=allow", "", "a longer body")
        .post("/x?answer=503", "", "body")
        .get("/x?answer=503")
}

fn lua() -> Scene {
    let script = "function envoy_on_request(h)
        h:headers():add('x-lua', h:headers():get(':path'))
        local way = h:headers():get('x-way')
        if way == 'answer' then h:respond({[':status'] = '418', ['x-said'] = 'lua'}, 'teapot') end
        if way == 'fail' then error('on purpose') end
        if way == 'body' then h:headers():add('x-length', tostring(h:body():length())) end
      end
      function envoy_on_response(h) h:headers():add('x-seen', h:headers():get(':status')) h:headers():remove('x-origin') end";
    Scene::filtered(
        "lua",
        vec![filter("lua", "Lua", json!({"default_source_code": {"inline_string": script}}))],
        json!([]),
    )
    .get("/")
    .each("/x?y", &["x-way: answer\r\n", "x-way: fail\r\n", "x-answer: 404\r\n"])
    .post("/", "x-way: body\r\n", "hello")
}

fn grpc_web() -> Scene {
    let body = "\0\0\0\0\u{2}ab";
    Scene::filtered("grpc-web", vec![filter("grpc_web", "GrpcWeb", json!({}))], json!([]))
        .post("/p.S/M", "content-type: application/grpc-web+proto\r\nx-answer: grpc\r\n", body)
        .post("/p.S/M", "content-type: application/grpc-web-text\r\nx-answer: grpc\r\n", "AAAAAAJhYg==")
        .post("/p.S/M", "content-type: application/grpc-web\r\nx-answer: 503\r\n", body)
        .post("/p.S/M", "content-type: text/plain\r\n", body)
}

/// A filter that is off, and on for one route.
fn disabled() -> Scene {
    let mut off = filter(
        "header_mutation",
        "HeaderMutation",
        json!({"mutations": {"request_mutations": [{"append": {"header": {"key": "x-on", "value": "1"}}}]}}),
    );
    off["disabled"] = json!(true);
    let on = json!({"typed_per_filter_config": {"envoy.filters.http.header_mutation": {
        "@type": "type.googleapis.com/envoy.config.route.v3.FilterConfig", "config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.header_mutation.v3.HeaderMutationPerRoute"},
    }}});
    Scene::filtered("disabled", vec![off], json!([to_a("/on", on)])).gets(&["/", "/on"])
}
