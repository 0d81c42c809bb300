//! Which script runs: default, by name, by route, none; and what a bad one does.

use postrider_tests::kit::proxy::run;
use postrider_tests::kit::{Origin, Proxy, TempDir};
use postrider_tests::{envoy, get};
use serde_json::{Value, json};

use crate::site::{NAME, PER_ROUTE, lua, site};

fn marks(mark: &str) -> Value {
    json!({"inline_string": format!("function envoy_on_request(h) h:headers():add('x-script', '{mark}') end")})
}

fn mark(proxy: &Proxy, origin: &Origin, path: &str) -> String {
    origin.forget();
    assert_eq!(proxy.exchange(get(path)).status, 200);
    origin.requests()[0].headers.values("x-script").join("|")
}

#[test]
fn the_most_specific_script_runs_alone() {
    let origin = Origin::echo("a");
    let route = |path: &str, per_route: Value| {
        let mut override_config = per_route;
        override_config["@type"] = json!(PER_ROUTE);
        json!({"match": {"path": path}, "route": {"cluster": "origin"}, "typed_per_filter_config": {NAME: override_config}})
    };
    let routes = json!([
        route("/named", json!({"name": "one"})),
        route("/unknown", json!({"name": "nobody"})),
        route("/own", json!({"source_code": marks("own")})),
        route("/off", json!({"disabled": true})),
        {"match": {"prefix": "/"}, "route": {"cluster": "origin"}},
    ]);
    let filter = lua(json!({"default_source_code": marks("default"), "source_codes": {"one": marks("one")}}));
    let proxy = site(&[filter], routes, &origin);
    for (path, wanted) in [("/", "default"), ("/named", "one"), ("/unknown", ""), ("/own", "own"), ("/off", "")] {
        assert_eq!(mark(&proxy, &origin, path), wanted, "{path}");
    }
}

#[test]
fn two_filters_run_in_order_and_back() {
    let origin = Origin::echo("a");
    let script = |n: u8| {
        json!({"default_source_code": {"inline_string": format!(
            "function envoy_on_request(h) local hs = h:headers() hs:replace('x-way', (hs:get('x-way') or '') .. '{n}') end
             function envoy_on_response(h) local hs = h:headers() hs:replace('x-way', (hs:get('x-way') or '') .. '{n}') end")}})
    };
    let mut filters = [lua(script(1)), lua(script(2))];
    filters[1]["name"] = json!("second");
    let proxy = site(&filters, json!([{"match": {"prefix": "/"}, "route": {"cluster": "origin"}}]), &origin);
    let response = proxy.exchange(get("/"));
    assert_eq!(origin.requests()[0].headers.values("x-way"), ["12"]);
    assert_eq!(response.header("x-way"), "21");
}

#[test]
fn filters_of_one_name_are_overridden_together() {
    let origin = Origin::echo("a");
    let script = |n: u8| {
        json!({"default_source_code": {"inline_string": format!(
            "function envoy_on_request(h) h:headers():add('x-script', '{n}' .. tostring((h:filterContext():get('k')))) end")}})
    };
    let route = |path: &str, per_route: Value| {
        let mut override_config = per_route;
        override_config["@type"] = json!(PER_ROUTE);
        json!({"match": {"path": path}, "route": {"cluster": "origin"}, "typed_per_filter_config": {NAME: override_config}})
    };
    let routes = json!([
        route("/off", json!({"disabled": true})),
        route("/context", json!({"filter_context": {"k": "v"}})),
        {"match": {"prefix": "/"}, "route": {"cluster": "origin"}},
    ]);
    let proxy = site(&[lua(script(1)), lua(script(2))], routes, &origin);
    for (path, wanted) in [("/", "1nil|2nil"), ("/off", ""), ("/context", "1v|2v")] {
        assert_eq!(mark(&proxy, &origin, path), wanted, "{path}");
    }
}

#[test]
fn the_response_meets_the_script_of_the_route_that_was_found_last() {
    let origin = Origin::echo("a");
    let route = |path: Value, request: &str, by: &str| {
        let script = format!(
            "function envoy_on_request(h) {request} end
             function envoy_on_response(h) h:headers():add('x-by', '{by}') end"
        );
        json!({"match": path, "route": {"cluster": "origin"}, "typed_per_filter_config": {
            NAME: {"@type": PER_ROUTE, "source_code": {"inline_string": script}},
        }})
    };
    let routes = json!([
        route(json!({"path": "/new"}), "", "new"),
        route(json!({"prefix": "/"}), "h:headers():replace(':path', '/new')", "old"),
    ]);
    let proxy = site(&[lua(json!({}))], routes, &origin);
    let response = proxy.exchange(get("/first"));
    assert_eq!(response.headers.values("x-by"), ["new"], "{response:?}");
}

#[test]
fn an_edit_that_changes_the_route_is_followed() {
    let origin = Origin::echo("a");
    let script = "function envoy_on_request(h) h:headers():replace(':path', '/other') end";
    let routes = json!([
        {"match": {"path": "/other"}, "direct_response": {"status": 200, "body": {"inline_string": "rerouted"}}},
        {"match": {"prefix": "/"}, "route": {"cluster": "origin"}},
    ]);
    for (clears, rerouted) in [(json!(null), true), (json!(true), true), (json!(false), false)] {
        let mut fields = json!({"default_source_code": {"inline_string": script}});
        if !clears.is_null() {
            fields["clear_route_cache"] = clears;
        }
        let proxy = site(&[lua(fields)], routes.clone(), &origin);
        let response = proxy.exchange(get("/first"));
        assert_eq!(response.text() == "rerouted", rerouted, "{response:?}");
    }
}

#[test]
fn counters_have_envoys_names() {
    let origin = Origin::echo("a");
    let script =
        "function envoy_on_request(h) h:stats():counter('mine'):inc() h:stats():gauge('g'):set(7) error('x') end";
    for (prefix, start) in [("", "http.ingress_http.lua."), ("own", "http.ingress_http.lua.own.")] {
        let filter = lua(json!({"stat_prefix": prefix, "default_source_code": {"inline_string": script}}));
        let proxy = site(&[filter], json!([{"match": {"prefix": "/"}, "route": {"cluster": "origin"}}]), &origin);
        assert_eq!(proxy.exchange(get("/")).status, 200);
        for (name, value) in [("errors", 1), ("executions", 1), ("mine", 1), ("g", 7)] {
            proxy.wait_stat(&format!("{start}{name}"), value);
        }
    }
}

#[test]
fn a_script_that_does_not_compile_is_refused_with_its_place() {
    let directory = TempDir::new();
    let file = directory.write("broken.lua", "local x = 1\nfunction envoy_on_request(h\n");
    let config = directory.write(
        "config.yaml",
        format!(
            "static_resources:
  listeners:
  - address: {{socket_address: {{address: 127.0.0.1, port_value: 0}}}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          \"@type\": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: x
          route_config: {{virtual_hosts: []}}
          http_filters:
          - name: envoy.filters.http.lua
            typed_config:
              \"@type\": type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua
              default_source_code: {{filename: {}}}
          - name: envoy.filters.http.router
            typed_config:
              \"@type\": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router
",
            file.display()
        ),
    );
    let config = config.to_str().unwrap();
    if envoy() {
        assert_ne!(run(&["--mode", "validate", "-c", config]).code, Some(0));
        return;
    }
    let finished = run(&["validate", config]);
    assert_eq!(finished.code, Some(3));
    let text = finished.stdout + &finished.stderr;
    assert!(text.contains("config.yaml:15:"), "{text}");
    assert!(text.contains("broken.lua:"), "{text}");
}

#[test]
fn a_required_file_is_found_on_the_package_path() {
    let directory = TempDir::new();
    directory.write("helper.lua", "return {mark = function() return 'required' end}");
    let origin = Origin::echo("a");
    let filter = lua(json!({"default_source_code": {"inline_string": format!(
        "package.path = '{}/?.lua;' .. package.path
         local helper = require('helper')
         function envoy_on_request(h) h:headers():add('x-script', helper.mark()) end", directory.path().display())}}));
    let proxy = site(&[filter], json!([{"match": {"prefix": "/"}, "route": {"cluster": "origin"}}]), &origin);
    assert_eq!(mark(&proxy, &origin, "/"), "required");
}
