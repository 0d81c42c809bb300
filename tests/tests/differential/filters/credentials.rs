//! Names, passwords and keys: basic_auth and api_key_auth.

use super::{filter, own, scope};
use crate::scene::{Scene, to_a};
use postrider_tests::kit::config::overlay;
use serde_json::json;

pub fn scenes() -> Vec<Scene> {
    vec![
        basic_auth(),
        basic_auth_scopes(),
        basic_auth_missing(),
        api_key_auth(),
        api_key_auth_hidden(),
        api_key_auth_scopes(),
    ]
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

/// Users of a virtual host and of a route, from another header.
fn basic_auth_scopes() -> Scene {
    // `bob` and `secret`; `eve` and nothing; a name with a space.
    let bob = json!({"users": {"inline_string": "bob:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ="}});
    let several = "\n# told twice\nann:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=\n\nan eve:{SHA}2jmj7l5rSw0yVb/vlWAYkK/YBwk=\n";
    let routes = json!([
        to_a(
            "/off",
            json!({"typed_per_filter_config": {"envoy.filters.http.basic_auth": {
                "@type": "type.googleapis.com/envoy.config.route.v3.FilterConfig", "disabled": true,
            }}})
        ),
        own(
            "/ann",
            "basic_auth",
            "BasicAuthPerRoute",
            json!({"users": {"inline_string": "ann:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ="}})
        ),
        to_a("/", json!({})),
    ]);
    let mut host = json!({"name": "all", "domains": ["*"], "routes": routes});
    overlay(&mut host, scope("basic_auth", "BasicAuthPerRoute", bob));
    let fields = json!({"users": {"inline_string": several}, "authentication_header": "x-credentials", "forward_username_header": "x-user"});
    let mut scene = Scene::with_table(
        "basic-auth-scopes",
        vec![filter("basic_auth", "BasicAuth", fields)],
        json!({"virtual_hosts": [host, {"name": "own", "domains": ["own.test"], "routes": [to_a("/", json!({}))]}]}),
    );
    for path in ["/", "/ann", "/off"] {
        for host in ["test", "own.test"] {
            for lines in [
                "",
                "x-credentials: Basic YW5uOnNlY3JldA==\r\n",
                "x-credentials: Basic Ym9iOnNlY3JldA==\r\n",
                "authorization: Basic YW5uOnNlY3JldA==\r\n",
                "x-credentials: Basic YW4gZXZlOg==\r\n",
                "x-credentials: Basic YW5uOnNlY3JldDpt\r\n",
                "x-credentials: Basic OnNlY3JldA==\r\n",
                "x-credentials: Basic YW5uOnNlY3JldA\r\n",
                "x-credentials: BASIC YW5uOnNlY3JldA==\r\n",
                "x-credentials: Basic YW5uOnNlY3JldA==\r\nx-credentials: Basic Ym9iOnNlY3JldA==\r\n",
            ] {
                scene = scene.ask("GET", host, path, lines);
            }
        }
    }
    scene.ask("GET", "test:81", "/p?q=\"1\"", "x-forwarded-proto: https\r\n")
}

/// Who has no credentials passes unnamed, and a rule behind the filter asks for a name on one path.
fn basic_auth_missing() -> Scene {
    let fields = json!({
        "users": {"inline_string": "ann:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ="}, "realm": "the \"shop\" \\ ü",
        "forward_username_header": "x-user", "allow_missing": true, "emit_dynamic_metadata": true,
    });
    let named = json!({"filter": "envoy.filters.http.basic_auth", "path": [{"key": "username"}], "value": {"present_match": true}});
    let policy = json!({
        "permissions": [{"any": true}],
        "principals": [{"metadata": named}, {"not_id": {"url_path": {"path": {"prefix": "/named"}}}}],
    });
    let rules = json!({"rules": {"policies": {"named": policy}}});
    let users = json!({"users": {"inline_string": "bob:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ="}, "realm": "own"});
    let mut scene = Scene::filtered(
        "basic-auth-missing",
        vec![filter("basic_auth", "BasicAuth", fields), filter("rbac", "RBAC", rules)],
        json!([own("/named/own", "basic_auth", "BasicAuthPerRoute", users)]),
    );
    for path in ["/", "/named", "/named/own"] {
        scene = scene.each(
            path,
            &[
                "",
                "x-user: eve\r\n",
                "authorization: Bearer x\r\n",
                "authorization: basic YW5uOnNlY3JldA==\r\n",
                "authorization: Basic YW5uOnNlY3JldA==\r\n",
                "authorization: Basic Ym9iOnNlY3JldA==\r\n",
                "authorization: Basic YW5uOndyb25n\r\n",
                "authorization: Basic !!!\r\n",
                "authorization: Basic\r\n",
                "authorization: \r\n",
            ],
        );
    }
    scene
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

/// The upstream sees who it is, but not the key.
fn api_key_auth_hidden() -> Scene {
    let fields = json!({
        "credentials": [{"key": "one", "client": "ann"}, {"key": "a+b/c=", "client": "bob"}],
        "key_sources": [{"cookie": "ck"}, {"query": "key"}, {"header": "authorization"}],
        "forwarding": {"header": "x-client", "hide_credentials": true},
    });
    Scene::filtered("api-keys-hidden", vec![filter("api_key_auth", "ApiKeyAuth", fields)], json!([]))
        .gets(&["/?key=one", "/p?a=1&key=one&b=2", "/?key=one&key=two", "/?key", "/?key=", "/?KEY=one"])
        .each(
            "/x",
            &[
                "authorization: Bearer one\r\n",
                "authorization: bearer one\r\n",
                "authorization: Basic one\r\n",
                "authorization: one\r\n",
                "authorization: Bearer a+b/c=\r\n",
                "authorization: one\r\nauthorization: two\r\n",
                "cookie: ck=one\r\n",
                "cookie: a=1; ck=one; b=2\r\n",
                "cookie: ck=\"one\"\r\n",
                "cookie: a=1\r\ncookie: ck=one\r\n",
                "cookie: ck=no\r\nauthorization: one\r\n",
                "cookie: ck=\r\nauthorization: one\r\n",
            ],
        )
        .ask("HEAD", "test", "/", "")
}

/// Keys, sources and clients of a virtual host and of routes.
fn api_key_auth_scopes() -> Scene {
    let per_route = |fields| scope("api_key_auth", "ApiKeyAuthPerRoute", fields);
    let routes = json!([
        to_a("/keys", per_route(json!({"credentials": [{"key": "route", "client": "eve"}]}))),
        to_a("/sources", per_route(json!({"key_sources": [{"header": "x-other"}], "forwarding": {"header": "x-who"}}))),
        to_a(
            "/clients",
            per_route(
                json!({"allowed_clients": ["bob", "eve"], "forwarding": {"header": "x-who", "hide_credentials": true}})
            )
        ),
        to_a("/", json!({})),
    ]);
    let mut host = json!({"name": "all", "domains": ["*"], "routes": routes});
    overlay(&mut host, per_route(json!({"allowed_clients": ["ann"]})));
    let fields = json!({
        "credentials": [{"key": "one", "client": "ann"}, {"key": "two", "client": "bob"}], "key_sources": [{"header": "x-key"}],
        "forwarding": {"header": "x-client", "hide_credentials": true},
    });
    let table =
        json!({"virtual_hosts": [host, {"name": "own", "domains": ["own.test"], "routes": [to_a("/", json!({}))]}]});
    let mut scene = Scene::with_table("api-keys-scopes", vec![filter("api_key_auth", "ApiKeyAuth", fields)], table);
    for path in ["/", "/keys", "/sources", "/clients"] {
        for lines in [
            "",
            "x-key: one\r\n",
            "x-key: two\r\n",
            "x-key: route\r\n",
            "x-other: one\r\n",
            "x-other: two\r\nx-key: one\r\n",
        ] {
            scene = scene.get_with(path, lines).ask("GET", "own.test", path, lines);
        }
    }
    scene
}
