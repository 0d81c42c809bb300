//! Filters that ask somebody else: a service, or a script.

use super::{filter, own};
use crate::scene::Scene;
use serde_json::{Value, json};

pub fn scenes() -> Vec<Scene> {
    vec![
        ext_authz(),
        ext_authz_body(),
        ext_authz_shadow(),
        ext_authz_clearing("ext-authz-clearing", "X-User"),
        ext_authz_clearing("ext-authz-not-clearing", "x-other"),
        ext_authz_limits(),
        ext_authz_retries(),
        lua(),
    ]
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

/// It decides, says so in the filter state, and refuses nothing.
fn ext_authz_shadow() -> Scene {
    let field = |name: &str| format!("%FILTER_STATE(envoy.filters.http.ext_authz.shadow:FIELD:{name})%");
    let fields = authz(json!({"shadow_mode": true, "status_on_error": {"code": "ServiceUnavailable"}}));
    Scene::filtered("ext-authz-shadow", vec![filter("ext_authz", "ExtAuthz", fields)], json!([]))
        .logging(json!({
            "result": field("check_result"), "status": field("status_code"), "nothing": field("other"),
            "decision": "as %FILTER_STATE(envoy.filters.http.ext_authz.shadow)%",
        }))
        .gets(&["/", "/x?answer=allow", "/x?answer=403", "/x?answer=404", "/x?answer=500", "/x?answer=hangup"])
        .post("/x?answer=403", "", "body")
}

/// The route is chosen again for changes of some headers only.
fn ext_authz_clearing(name: &str, header: &str) -> Scene {
    let fields = authz(json!({"clear_route_cache": true, "clear_route_cache_headers": [header]}));
    let by_user = json!({
        "match": {"prefix": "/", "headers": [{"name": "x-user", "string_match": {"exact": "ann"}}]}, "route": {"cluster": "b"},
    });
    Scene::filtered(name, vec![filter("ext_authz", "ExtAuthz", fields)], json!([by_user]))
        .gets(&["/", "/x?answer=allow", "/x?answer=403"])
        .get_with("/x?answer=allow", "x-user: eve\r\n")
        .get_with("/", "x-user: ann\r\n")
}

/// As many headers as the service likes, as long as there is room.
fn ext_authz_limits() -> Scene {
    let more = json!({
        "enforce_response_header_limits": true,
        "allowed_headers": {"patterns": [{"exact": "x-make"}]},
        "http_service": {"authorization_response": {"allowed_client_headers_on_success": {"patterns": [{"prefix": "y-"}]}}},
    });
    let order = |count: usize| {
        let headers: Vec<String> = (0..count).map(|number| format!("y-{number}=1")).collect();
        format!("200|{}", headers.join("|"))
    };
    let orders: Vec<String> = [1, 40, 48, 52].into_iter().map(order).collect();
    let orders: Vec<&str> = orders.iter().map(String::as_str).collect();
    Scene::filtered("ext-authz-limits", vec![filter("ext_authz", "ExtAuthz", authz(more))], json!([]))
        .makes("/", "", &orders)
        .makes("/", "", &["403|y-a=1"])
}

/// The service is asked again.
fn ext_authz_retries() -> Scene {
    let again = |on: &str| {
        json!({"http_service": {"retry_policy": {
            "retry_on": on, "num_retries": 2, "retry_back_off": {"base_interval": "0.001s", "max_interval": "0.5s"},
        }}})
    };
    let mut other = filter("ext_authz", "ExtAuthz", authz(again("")));
    other["name"] = json!("envoy.filters.http.ext_authz.other");
    let routes = json!([own("/off", "ext_authz", "ExtAuthzPerRoute", json!({"disabled": true}))]);
    let filters = vec![filter("ext_authz", "ExtAuthz", authz(again("5xx,retriable-4xx"))), other];
    let mut scene = Scene::filtered("ext-authz-retries", filters, routes);
    for path in ["/x", "/off"] {
        for answer in ["503x1", "503x2", "503x9", "409x1", "403x1", "hangupx1", "resetx1"] {
            scene = scene.get(&format!("{path}?answer={answer}"));
        }
    }
    scene.post("/x?answer=503x1", "", "body")
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
