//! What a route table as a whole says: which header names the virtual host, and what of a path counts; and the schemes and
//! methods that requests are taken for.

use postrider_tests::kit::{Config, Origin, Proxy};
use postrider_tests::site;
use postrider_tests::{ask, named_route};
use serde_json::{Value, json};

fn table(fields: Value) -> Config {
    Config::new().http(json!({"route_config": fields}))
}

#[test]
fn a_header_may_name_the_virtual_host() {
    let host =
        |name: &str, domain: &str| json!({"name": name, "domains": [domain], "routes": [named_route(name, json!({}))]});
    let hosts = json!([host("one", "one"), host("test", "test"), host("rest", "*")]);
    let proxy = Proxy::start(&table(json!({"vhost_header": "X-Host", "virtual_hosts": hosts})));
    for (fields, name) in [
        ("x-host: one\r\n", "one"),
        ("x-host: ONE\r\n", "one"),
        ("x-host: other\r\n", "rest"),
        ("x-host: one\r\nx-host: test\r\n", "one"),
        ("x-host: \r\n", "rest"),
    ] {
        assert_eq!(ask(&proxy, "GET", "test", "/", fields).text(), name, "{fields}");
    }
    assert_eq!(ask(&proxy, "GET", "test", "/", "").status, 404, "the host itself does not count");
}

#[test]
fn parameters_in_paths_say_nothing_to_routes_where_that_is_asked() {
    let origin = Origin::echo("a");
    let rewritten = |prefix: &str, new: &str| json!({"match": {"prefix": prefix}, "route": {"cluster": "origin", "prefix_rewrite": new}});
    let routes = json!([
        named_route("exact", json!({"path": "/a"})),
        rewritten("/b/", "/z/"),
        rewritten("/s", "/q"),
        named_route("regex", json!({"safe_regex": {"regex": "/re/[a-z]+"}})),
    ]);
    let hosts = json!([{"name": "all", "domains": ["*"], "routes": routes}]);
    let config = table(json!({"ignore_path_parameters_in_path_matching": true, "virtual_hosts": hosts}));
    let proxy = Proxy::start(&config.cluster("origin", &[origin.address]));
    for (path, told) in [("/a;x=1", "exact"), ("/a;x?y=1", "exact"), ("/a?x;y", "exact"), ("/re/abc;d", "regex")] {
        assert_eq!(proxy.get(path).text(), told, "{path}");
    }
    for (path, sent) in [("/b/c;v=1/d", "/z/c;v=1/d"), ("/b;v/c", "/b;v/c"), ("/s;x", "/q;x"), ("/s;x/y", "/q;x/y")] {
        assert!(proxy.get(path).text().starts_with(&format!("GET {sent} HTTP/1.1")), "{path}");
    }
    assert_eq!(proxy.get("/re/abc;d/e").status, 404);
}

#[test]
fn requests_are_taken_for_another_scheme() {
    const SEEN: &str = "%REQ(:SCHEME)% %REQ(X-FORWARDED-PROTO)%";
    let routes = json!([
        {"match": {"prefix": "/r"}, "redirect": {"host_redirect": "there"}},
        {"match": {"prefix": "/"}, "route": {"cluster": "origin"}},
    ]);
    let start = |rule: Value| {
        site::with([]).log(SEEN).manager(json!({"scheme_header_transformation": rule})).routes(routes.clone()).start()
    };
    let site = start(json!({"scheme_to_overwrite": "https"}));
    assert_eq!(site.get("/r", "").header("location"), "https://there/r");
    assert_eq!(site.get("/", "x-forwarded-proto: http\r\n").status, 200);
    assert_eq!([site.logged(1), site.logged(2)], ["https https", "https https"]);
    assert_eq!(site.origin.requests()[0].header("x-forwarded-proto"), "https");
    let site = start(json!({"match_upstream": true}));
    assert_eq!(site.get("/r", "x-forwarded-proto: https\r\n").header("location"), "https://there/r");
    assert_eq!(site.get("/", "x-forwarded-proto: https\r\n").status, 200);
    assert_eq!([site.logged(1), site.logged(2)], ["https https", "http https"]);
}

#[test]
fn any_token_is_a_method_where_that_is_allowed() {
    for (allowed, status) in [(true, 200), (false, 400)] {
        let manager = json!({"http_protocol_options": {"allow_custom_methods": allowed}});
        let site = site::with([]).manager(manager).start();
        let answer = site.ask("fetch-It", "/", "");
        assert_eq!(answer.status, status);
        assert_eq!(allowed, answer.text().starts_with("fetch-It / HTTP/1.1"), "{answer:?}");
    }
}

#[test]
fn connections_end_some_time_after_the_longest_duration_where_there_is_jitter() {
    let origin = Origin::echo("a");
    let manager = json!({"drain_timeout": "0.5s", "common_http_protocol_options":
        {"max_connection_duration": "0.5s", "max_connection_duration_jitter": {"value": 100.0}}});
    let proxy = Proxy::start(&Config::proxy_to(origin.address).overlay_filter("http", manager));
    let mut clients: Vec<_> = (0..3).map(|_| proxy.client()).collect();
    for client in &mut clients {
        client.exchange("GET / HTTP/1.1\r\nhost: test\r\n\r\n");
    }
    proxy.wait_stat("http.ingress_http.downstream_cx_max_duration_reached", 3);
    proxy.wait_stat("http.ingress_http.downstream_cx_active", 0);
}
