//! Filters that ask somebody else: a service, or a script.

use super::{filter, own};
use crate::scene::Scene;
use serde_json::{Value, json};

pub fn scenes() -> Vec<Scene> {
    vec![ext_authz(), ext_authz_body(), lua()]
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
