//! Clients that show a key, as Envoy knows them.

use postrider_tests::ask;
use postrider_tests::kit::config::{extension, router};
use postrider_tests::kit::{Config, Origin, Proxy};
use serde_json::{Value, json};

const KIND: &str = "filters.http.api_key_auth.v3.ApiKeyAuth";
const PER_ROUTE: &str = "type.googleapis.com/envoy.extensions.filters.http.api_key_auth.v3.ApiKeyAuthPerRoute";

fn site(fields: Value, routes: Value, origin: &Origin) -> Proxy {
    let mut all = routes.as_array().unwrap().clone();
    all.push(json!({"match": {"prefix": "/"}, "route": {"cluster": "origin"}}));
    let config = Config::new()
        .http(json!({
            "http_filters": [extension("envoy.filters.http.api_key_auth", KIND, fields), router()],
            "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": all}]},
        }))
        .cluster("origin", &[origin.address]);
    Proxy::start(&config)
}

fn fields() -> Value {
    json!({
        "credentials": [{"key": "one", "client": "ann"}, {"key": "two 2", "client": "bob"}],
        "key_sources": [{"header": "x-key"}, {"query": "key"}, {"cookie": "ck"}],
    })
}

#[test]
fn a_client_is_known_by_its_key() {
    let origin = Origin::echo("a");
    let proxy = site(fields(), json!([]), &origin);
    for (path, lines, status) in [
        ("/", "x-key: one\r\n", 200),
        ("/", "x-key: Bearer one\r\n", 200),
        ("/?key=two%202", "", 200),
        ("/", "cookie: a=b; ck=one\r\n", 200),
        ("/", "", 401),
        ("/", "x-key: ones\r\n", 401),
        ("/", "x-key: ONE\r\n", 401),
        ("/?key=one", "x-key: no\r\n", 401),
    ] {
        let response = ask(&proxy, "GET", "test", path, lines);
        assert_eq!(response.status, status, "{path} {lines}");
        if status == 401 {
            assert_eq!(response.text(), "Client authentication failed.");
        }
    }
    let stats = proxy.stats();
    assert_eq!(stats.value("http.ingress_http.api_key_auth.allowed"), 4);
    assert_eq!(stats.value("http.ingress_http.api_key_auth.unauthorized"), 4);
    assert_eq!(origin.requests().len(), 4);
}

#[test]
fn the_upstream_learns_the_client_and_no_key() {
    let origin = Origin::echo("a");
    let mut fields = fields();
    fields["forwarding"] = json!({"header": "x-client", "hide_credentials": true});
    let proxy = site(fields, json!([]), &origin);
    let sent = "x-client: root\r\nx-key: one\r\ncookie: ck=one; a=b\r\n";
    assert_eq!(ask(&proxy, "GET", "test", "/p?a=1&key=one", sent).status, 200);
    let seen = origin.requests().pop().unwrap();
    assert_eq!(seen.target, "/p?a=1");
    let value = |name: &str| seen.headers.value(name);
    assert_eq!((value("x-client"), value("x-key"), value("cookie")), (Some("ann"), None, Some("a=b")));
}

#[test]
fn a_route_says_who_may_take_it() {
    let origin = Origin::echo("a");
    let of_route = |prefix: &str, config: Value| {
        let mut config = config;
        config["@type"] = PER_ROUTE.into();
        json!({
            "match": {"prefix": prefix},
            "route": {"cluster": "origin"},
            "typed_per_filter_config": {"envoy.filters.http.api_key_auth": config},
        })
    };
    let routes = json!([
        of_route("/bob", json!({"allowed_clients": ["bob"]})),
        of_route(
            "/own",
            json!({
                "credentials": [{"key": "own", "client": "eve"}],
                "key_sources": [{"header": "x-own"}],
            })
        ),
    ]);
    let proxy = site(fields(), routes, &origin);
    let refused = ask(&proxy, "GET", "test", "/bob", "x-key: one\r\n");
    assert_eq!((refused.status, refused.text()), (403, "Client is forbidden."));
    assert_eq!(ask(&proxy, "GET", "test", "/bob", "x-key: two 2\r\n").status, 200);
    assert_eq!(ask(&proxy, "GET", "test", "/own", "x-own: own\r\n").status, 200);
    assert_eq!(ask(&proxy, "GET", "test", "/own", "x-key: one\r\n").status, 401);
    assert_eq!(proxy.stats().value("http.ingress_http.api_key_auth.forbidden"), 1);
}
