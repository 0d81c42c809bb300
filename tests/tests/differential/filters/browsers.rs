//! What browsers ask for, and what pages of other sites make them send: cors and csrf.

use super::{filter, own, scope, share};
use crate::scene::{Scene, to_a};
use postrider_tests::kit::config::overlay;
use serde_json::{Value, json};

pub fn scenes() -> Vec<Scene> {
    vec![cors(), cors_scopes(), cors_older(), csrf(), csrf_scopes()]
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

/// Table, virtual host and route, of which each says something.
fn cors_scopes() -> Scene {
    let policy = |fields: Value| scope("cors", "CorsPolicy", fields);
    let exact = |origin: &str| json!([{"exact": origin}]);
    let routes = json!([
        to_a("/more", policy(json!({"allow_origin_string_match": exact("http://route.test"), "allow_methods": "PATCH"}))),
        to_a("/all", policy(json!({"allow_origin_string_match": exact("*"), "allow_credentials": false}))),
        to_a("/none", policy(json!({"allow_origin_string_match": []}))),
        to_a("/closed", policy(json!({"forward_not_matching_preflights": false, "max_age": "5"}))),
        to_a("/empty", policy(json!({"allow_methods": "", "expose_headers": "", "max_age": ""}))),
        to_a("/disabled", json!({"typed_per_filter_config": {"envoy.filters.http.cors": {
            "@type": "type.googleapis.com/envoy.config.route.v3.FilterConfig", "disabled": true,
        }}})),
        {"match": {"prefix": "/own"}, "direct_response": {"status": 200, "body": {"inline_string": "own"}}},
        {"match": {"prefix": "/away"}, "redirect": {"path_redirect": "/"}},
        to_a("/", json!({})),
    ]);
    let mut host = json!({"name": "all", "domains": ["*"], "routes": routes});
    overlay(
        &mut host,
        policy(json!({
            "allow_origin_string_match": [{"prefix": "https://host"}, {"suffix": ".test:81"}, {"exact": "HTTP://CASE.test", "ignore_case": true}],
            "allow_methods": "GET,POST", "allow_credentials": true,
        })),
    );
    let mut table = json!({"virtual_hosts": [host]});
    overlay(
        &mut table,
        policy(
            json!({"allow_origin_string_match": exact("http://table.test"), "allow_headers": "x-table", "expose_headers": "x-seen"}),
        ),
    );
    let mut scene = Scene::with_table("cors-scopes", vec![filter("cors", "Cors", json!({}))], table);
    for path in ["/more", "/all", "/none", "/closed", "/empty", "/disabled", "/own", "/away", "/"] {
        for origin in [
            "http://route.test",
            "https://host.test",
            "http://x.test:81",
            "http://case.test",
            "http://table.test",
            "null",
        ] {
            let asked = format!("origin: {origin}\r\naccess-control-request-method: PUT\r\n");
            scene = scene.get_with(path, &format!("origin: {origin}\r\n")).ask("OPTIONS", "test", path, &asked);
        }
    }
    scene
        .each(
            "/",
            &[
                "origin: http://table.test\r\norigin: http://other.test\r\n",
                "origin:\r\n",
                "origin: http://table.test/\r\n",
            ],
        )
        .makes(
            "/all",
            "origin: http://a.test\r\n",
            &["200|access-control-allow-origin=http://b.test|vary=origin", "404|access-control-expose-headers=x-own"],
        )
        .ask("HEAD", "test", "/", "origin: http://table.test\r\n")
        .ask("OPTIONS", "test", "/", "origin: http://table.test\r\naccess-control-request-method:\r\n")
        .ask("OPTIONS", "test", "/", "origin: http://table.test\r\naccess-control-request-headers: x-a\r\n")
}

/// The older form, in virtual hosts and routes themselves, beside the newer one.
fn cors_older() -> Scene {
    let exact = |origin: &str| json!([{"exact": origin}]);
    let cors = |fields: Value| json!({"route": {"cors": fields}});
    let newer = || scope("cors", "CorsPolicy", json!({"allow_origin_string_match": exact("http://newer.test")}));
    let mut both = cors(json!({"allow_origin_string_match": exact("http://route.test")}));
    overlay(&mut both, newer());
    let mut weighted = to_a("/weighted", cors(json!({"allow_origin_string_match": exact("http://route.test")})));
    weighted["route"].as_object_mut().expect("an action").remove("cluster");
    let mut cluster = json!({"name": "a", "weight": 1});
    overlay(&mut cluster, newer());
    weighted["route"]["weighted_clusters"] = json!({"clusters": [cluster]});
    let mut switched = cors(json!({"max_age": "7"}));
    overlay(
        &mut switched,
        json!({"typed_per_filter_config": {"envoy.filters.http.cors": {
            "@type": "type.googleapis.com/envoy.config.route.v3.FilterConfig", "config": {},
        }}}),
    );
    let routes = json!([
        to_a("/more", cors(json!({"allow_origin_string_match": exact("http://route.test"), "max_age": "5"}))),
        to_a("/none", cors(json!({"allow_origin_string_match": []}))),
        to_a("/off", cors(json!({"filter_enabled": share(0), "shadow_enabled": share(100)}))),
        to_a("/both", both),
        to_a("/newer", newer()),
        to_a("/switched", switched),
        weighted,
        to_a("/", json!({})),
    ]);
    let host = json!({"name": "all", "domains": ["*"], "routes": routes, "cors": {
        "allow_origin_string_match": [{"prefix": "http://host"}], "allow_methods": "GET,POST", "allow_headers": "x-a",
        "expose_headers": "x-seen", "allow_credentials": true, "forward_not_matching_preflights": false,
    }});
    let table = json!({"virtual_hosts": [host]});
    let mut scene = Scene::with_table("cors-older", vec![filter("cors", "Cors", json!({}))], table);
    for path in ["/more", "/none", "/off", "/both", "/newer", "/switched", "/weighted", "/"] {
        for origin in ["http://route.test", "http://host.test", "http://newer.test"] {
            let asked = format!("origin: {origin}\r\naccess-control-request-method: PUT\r\n");
            scene = scene.get_with(path, &format!("origin: {origin}\r\n")).ask("OPTIONS", "test", path, &asked);
        }
    }
    scene
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

/// A virtual host's policy, a route's, and sources of all kinds.
fn csrf_scopes() -> Scene {
    let policy = |fields: Value| scope("csrf", "CsrfPolicy", fields);
    let routes = json!([
        to_a(
            "/route",
            policy(
                json!({"filter_enabled": share(100), "additional_origins": [{"safe_regex": {"regex": ".*\\.route\\.test(:\\d+)?"}}]})
            )
        ),
        to_a("/off", policy(json!({"filter_enabled": share(0)}))),
        to_a("/watched", policy(json!({"filter_enabled": share(0), "shadow_enabled": share(100)}))),
        to_a("/", json!({})),
    ]);
    let mut host = json!({"name": "all", "domains": ["*"], "routes": routes});
    overlay(&mut host, policy(json!({"filter_enabled": share(100), "additional_origins": [{"contains": "friend"}]})));
    let mut scene = Scene::with_table(
        "csrf-scopes",
        vec![filter("csrf", "CsrfPolicy", json!({"filter_enabled": share(0)}))],
        json!({"virtual_hosts": [host]}),
    );
    for path in ["/route", "/off", "/watched", "/"] {
        for source in [
            "",
            "origin: http://TEST\r\n",
            "origin: http://test:8080\r\n",
            "origin: https://x.route.test:81\r\n",
            "origin: http://friend.test\r\n",
            "origin: test\r\n",
            "origin: file:///x\r\n",
            "origin:\r\n",
            "origin: null\r\nreferer: http://test/\r\n",
            "referer: https://friend.test/a?b\r\n",
            "referer: /relative\r\n",
            "origin: http://evil.test\r\nreferer: http://test/\r\n",
            "origin: http://test@evil.test\r\n",
        ] {
            scene = scene.ask("POST", "test", path, &format!("{source}content-length: 0\r\n"));
        }
    }
    scene
        .ask("DELETE", "Test:8080", "/", "origin: http://test:8080\r\n")
        .ask("PUT", "[::1]:80", "/", "origin: http://[::1]:80\r\ncontent-length: 0\r\n")
        .ask("PATCH", "test", "/", "origin: http://evil.test\r\nx-forwarded-host: evil.test\r\ncontent-length: 0\r\n")
}
