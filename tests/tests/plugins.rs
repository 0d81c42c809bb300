//! Rider plugins and manifests in a running proxy: scopes, live updates, budgets, faults, what the admin shows.

use postrider_tests::kit::config::router;
use postrider_tests::kit::proxy::{Launch, accepted};
use postrider_tests::kit::{Config, Origin, Proxy, TempDir, wait_until};
use postrider_tests::load::Load;
use postrider_tests::plugins::{MANIFEST_ROUTE, RIDER, RIDER_ROUTE, config, everything, manifest, rider, seen};
use postrider_tests::{get, postrider_only, refusal};
use serde_json::{Value, json};

const MARK: &str = r#"
require("rider.v2")
local envoy = require("envoy")
local plugin = { version = "v2" }
function plugin:on_request_header()
  local base, route = envoy.get_base_config(), envoy.get_route_config()
  envoy.req.set_header("x-mark", (base.mark or "-") .. "/" .. (route and route.mark or "-"))
end
return plugin
"#;

#[test]
fn an_unknown_runtime_is_told_together_with_all_that_is_wrong_with_a_manifest() {
    if !postrider_only() {
        return;
    }
    let plugin =
        manifest("p", json!({"runtime": "ridr", "code": {"inline_string": "x"}, "on_error": "maybe", "more": 1}));
    let said = refusal(&config(&[plugin], everything(), &Origin::silent()));
    for wanted in ["there is no runtime `ridr`; expected ", "found `maybe`", "typed_config.more"] {
        assert!(said.contains(wanted), "{wanted}: {said}");
    }
}

#[test]
fn a_plugin_reads_gateway_and_route_configuration() {
    if !postrider_only() {
        return;
    }
    let origin = Origin::echo("a");
    let entry =
        |mark: &str| json!({RIDER: {"@type": RIDER_ROUTE, "plugins": [{"name": "mark", "config": {"mark": mark}}]}});
    let routes = json!([
        {"match": {"path": "/route"}, "route": {"cluster": "origin"}, "typed_per_filter_config": entry("route")},
        {"match": {"path": "/other"}, "route": {"cluster": "origin"},
         "typed_per_filter_config": {RIDER: {"@type": RIDER_ROUTE, "plugins": [{"name": "someone-else"}]}}},
        {"match": {"prefix": "/"}, "route": {"cluster": "origin"}},
    ]);
    let filters = json!([rider("mark", MARK, json!({"mark": "base"})), router()]);
    let project = json!({
        "name": "all", "domains": ["*"], "routes": routes, "typed_per_filter_config": entry("project"),
    });
    let config = Config::new()
        .http(json!({"http_filters": filters, "route_config": {"virtual_hosts": [project]}}))
        .cluster("origin", &[origin.address]);
    let proxy = Proxy::start(&config);
    assert_eq!(seen(&proxy, &origin, "/route", "x-mark"), "base/route");
    assert_eq!(seen(&proxy, &origin, "/", "x-mark"), "base/project");
    // The most specific configuration counts alone, although it names another plugin.
    assert_eq!(seen(&proxy, &origin, "/other", "x-mark"), "base/-");
}

#[test]
fn a_manifest_is_overridden_and_switched_off_by_route() {
    if !postrider_only() {
        return;
    }
    let origin = Origin::echo("a");
    let of_route = |fields: Value| {
        let mut all = fields;
        all["@type"] = json!(MANIFEST_ROUTE);
        json!({"mark": all})
    };
    let routes = json!([
        {"match": {"path": "/own"}, "route": {"cluster": "origin"},
         "typed_per_filter_config": of_route(json!({"config": {"mark": "own"}}))},
        {"match": {"path": "/off"}, "route": {"cluster": "origin"},
         "typed_per_filter_config": of_route(json!({"disabled": true}))},
        {"match": {"prefix": "/"}, "route": {"cluster": "origin"}},
    ]);
    let plugin = manifest("mark", json!({"code": {"inline_string": MARK}, "config": {"mark": "base"}}));
    let proxy = Proxy::start(&config(&[plugin], routes, &origin));
    assert_eq!(seen(&proxy, &origin, "/", "x-mark"), "base/-");
    assert_eq!(seen(&proxy, &origin, "/own", "x-mark"), "base/own");
    assert_eq!(seen(&proxy, &origin, "/off", "x-mark"), "");
}

#[test]
fn a_configuration_that_the_schema_refuses_is_an_error_with_its_line() {
    if !postrider_only() {
        return;
    }
    let origin = Origin::echo("a");
    let directory = TempDir::new();
    let schema = json!({"type": "object", "properties": {"mark": {"type": "string"}}, "required": ["mark"]});
    let bad = json!({"mark": {"deep": true}});
    let plugin = manifest("mark", json!({"code": {"inline_string": MARK}, "config": bad, "config_schema": schema}));
    let file = directory.write("config.yaml", config(&[plugin], everything(), &origin).to_yaml());
    let finished = postrider_tests::kit::proxy::run(&["validate", file.to_str().unwrap()]);
    assert_eq!(finished.code, Some(3));
    let text = finished.stdout + &finished.stderr;
    assert!(text.contains("config.mark") && text.contains("config.yaml:"), "{text}");
}

#[test]
fn a_manifest_runs_envoys_scripts_and_its_configuration_is_their_context() {
    if !postrider_only() {
        return;
    }
    let origin = Origin::echo("a");
    let script = "function envoy_on_request(h) h:headers():add('x-mark', h:filterContext():get('mark')) end";
    let fields = json!({"runtime": "envoy-lua", "code": {"inline_string": script}, "config": {"mark": "base"}});
    let routes = json!([
        {"match": {"path": "/own"}, "route": {"cluster": "origin"}, "typed_per_filter_config": {
            "mark": {"@type": MANIFEST_ROUTE, "config": {"mark": "own"}},
        }},
        {"match": {"prefix": "/"}, "route": {"cluster": "origin"}},
    ]);
    let proxy = Proxy::start(&config(&[manifest("mark", fields)], routes, &origin));
    assert_eq!(seen(&proxy, &origin, "/", "x-mark"), "base");
    assert_eq!(seen(&proxy, &origin, "/own", "x-mark"), "own");
}

#[test]
fn a_changed_file_that_a_plugin_requires_is_read_again() {
    if !postrider_only() {
        return;
    }
    let origin = Origin::echo("a");
    let directory = TempDir::new();
    directory.write("helper.lua", "return 'one'");
    let code = r#"
require("rider.v2")
local envoy, mark = require("envoy"), require("helper")
return { version = "v2", on_request_header = function() envoy.req.set_header("x-mark", mark) end }
"#;
    let path = format!("{}/?.lua", directory.path().display());
    let fields = json!({"code": {"inline_string": code}, "options": {"package_path": [path]}});
    let proxy = Proxy::start(&config(&[manifest("mark", fields)], everything(), &origin));
    assert_eq!(seen(&proxy, &origin, "/", "x-mark"), "one");
    directory.write("helper.lua", "return 'two'");
    wait_until("the new helper serves", || seen(&proxy, &origin, "/", "x-mark") == "two");
}

const POST: &str = "POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 4\r\n\r\nbody";

/// A plugin with hooks on heads and bodies that marks what it lets through.
fn versioned(version: u32) -> String {
    format!(
        r#"
require("rider.v2")
local envoy = require("envoy")
local plugin = {{ version = "v2" }}
function plugin:on_request_header() envoy.req.set_header("x-version", "{version}") end
function plugin:on_request_body() envoy.stream.shared.length = #(envoy.req.get_body() or "") end
function plugin:on_response_header()
  envoy.resp.set_header("x-version", "{version}." .. tostring(envoy.stream.shared.length))
end
return plugin
"#
    )
}

#[test]
fn plugin_updates_under_load_lose_no_request() {
    if !postrider_only() {
        return;
    }
    let origin = Origin::echo("a");
    let directory = TempDir::new();
    let file = directory.write("plugin.lua", versioned(0));
    let plugin = manifest("versioned", json!({"code": {"filename": file.to_str().unwrap()}}));
    let with = config(&[plugin], everything(), &origin);
    let mut proxy = Proxy::start_with(&with, Launch { concurrency: 2, ..Launch::default() });
    let load = Load::start(proxy.address("http"), 4, "POST", POST);
    load.wait_progress(50);
    // The configuration stays as it is: the plugin's file changes under it.
    for version in 1..=10 {
        directory.write("plugin.lua", versioned(version));
        wait_until("the new plugin serves", || {
            let response = proxy.exchange(POST);
            response.header("x-version") == format!("{version}.4")
        });
        load.wait_progress(20);
    }
    // One that does not load changes nothing.
    let before = proxy.latest_verdict();
    directory.write("plugin.lua", "return nil +");
    let verdict = proxy.await_verdict(before.as_ref());
    assert!(!accepted(&verdict), "{verdict}");
    assert!(verdict.to_string().contains("plugin.lua:1"), "{verdict}");
    assert!(proxy.exchange(get("/")).header("x-version").starts_with("10."));
    // Gone, and back again.
    let without = config(&[], everything(), &origin);
    assert!(accepted(&proxy.reload(without.to_yaml())));
    wait_until("the plugin is gone", || proxy.exchange(get("/")).header("x-version").is_empty());
    load.wait_progress(20);
    directory.write("plugin.lua", versioned(11));
    assert!(accepted(&proxy.reload(with.to_yaml())));
    wait_until("the plugin is back", || proxy.exchange(POST).header("x-version") == "11.4");
    load.wait_progress(20);
    let failures = load.finish();
    assert!(failures.is_empty(), "{} failures, first {:?}", failures.len(), failures.first());
}

#[test]
fn traffic_stays_up_whatever_a_plugin_does() {
    if !postrider_only() {
        return;
    }
    let origin = Origin::echo("a");
    let code = r#"
require("rider.v2")
local envoy = require("envoy")
local plugin = { version = "v2" }
function plugin:on_request_header()
  local what = envoy.req.get_header("x-do")
  if what == "loop" then while true do end end
  if what == "error" then error("on purpose") end
  if what == "error-object" then error({}) end
  if what == "hoard" then local t = {} for i = 1, 1e9 do t[i] = ("x"):rep(1e6) .. i end end
  if what == "string" then local s = ("x"):rep(2 ^ 30) end
  if what == "regex" then string.find(("a"):rep(3000), (".-"):rep(8) .. "b") end
  if what == "search" then string.find(("a"):rep(2e6), ("a"):rep(1e6) .. "b", 1, true) end
  if what == "yield" then coroutine.yield() end
  if what == "recurse" then local function f() return 1 + f() end f() end
  envoy.req.set_header("x-done", "yes")
end
return plugin
"#;
    let plugin = manifest(
        "villain",
        json!({
            "code": {"inline_string": code},
            "budget": {"cpu": "0.1s", "memory_bytes": 8 << 20},
            "circuit": {"faults": 0},
        }),
    );
    let proxy = Proxy::start(&config(&[plugin], everything(), &origin));
    for what in
        ["loop", "error", "error-object", "hoard", "string", "regex", "search", "yield", "recurse", "loop", "hoard"]
    {
        let response = proxy.exchange(format!("GET / HTTP/1.1\r\nhost: test\r\nx-do: {what}\r\n\r\n"));
        assert_eq!(response.status, 200, "{what}: the default is to go on");
        assert!(!response.text().contains("x-done"), "{what}");
        assert_eq!(seen(&proxy, &origin, "/", "x-done"), "yes", "behind {what}");
    }
    let stats = proxy.stats();
    assert_eq!(stats.value("plugin.villain.all.0.cpu_kills"), 4);
    assert_eq!(stats.value("plugin.villain.all.0.memory_kills"), 3);
    assert_eq!(stats.value("plugin.villain.all.0.errors"), 11);
}

/// On one worker, with all requests in the script before the first of them goes on.
#[test]
fn a_runaway_script_costs_other_requests_its_budget_once() {
    if !postrider_only() {
        return;
    }
    const IN_FLIGHT: u64 = 20;
    let endless = "local n = 0 while true do n = n + 1 end";
    let rider = format!(
        r#"
require("rider")
return {{ on_request = function() envoy.req.get_body() {endless} end }}
"#
    );
    let envoys = format!("function envoy_on_request(handle) handle:body() {endless} end");
    for (on_error, status) in [("continue", 200), ("503", 503)] {
        for (runtime, code) in [("rider", &rider), ("envoy-lua", &envoys)] {
            let origin = Origin::echo("a");
            let fields = json!({
                "runtime": runtime, "code": {"inline_string": code}, "on_error": on_error,
                "budget": {"cpu": "0.02s"}, "circuit": {"retry": "3600s"},
            });
            let launch = Launch { concurrency: 1, ..Launch::default() };
            let proxy = Proxy::start_with(&config(&[manifest("runaway", fields)], everything(), &origin), launch);
            let mut clients: Vec<_> = (0..IN_FLIGHT).map(|_| proxy.client()).collect();
            for client in &mut clients {
                client.send("POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 1\r\n\r\n");
            }
            proxy.wait_stat("plugin.runaway.all.0.calls", IN_FLIGHT);
            for client in &mut clients {
                client.send("x");
            }
            for client in &mut clients {
                assert_eq!(client.response("POST").unwrap().status, status, "{runtime}");
            }
            assert_eq!(proxy.exchange(get("/")).status, status, "{runtime}: the next one passes it by, too");
            let stats = proxy.stats();
            let count = |name: &str| stats.value(&format!("plugin.runaway.all.0.{name}"));
            assert_eq!(["cpu_kills", "circuit_opened", "bypassed"].map(count), [1, 1, IN_FLIGHT], "{runtime}");
            let told = |text: &str| proxy.stderr().matches(text).count();
            assert_eq!(told("used up its CPU time and is passed by for a while"), 1, "{runtime}: {}", proxy.stderr());
        }
    }
}

#[test]
fn a_plugin_that_keeps_failing_is_passed_by_and_tried_again() {
    if !postrider_only() {
        return;
    }
    let origin = Origin::echo("a");
    let code = r#"
require("rider.v2")
local envoy = require("envoy")
local plugin = { version = "v2" }
function plugin:on_request_header()
  if envoy.req.get_header("x-fail") then error("on purpose") end
  envoy.req.set_header("x-done", "yes")
end
return plugin
"#;
    let plugin = manifest(
        "flaky",
        json!({
            "code": {"inline_string": code},
            "on_error": "503",
            "circuit": {"faults": 3, "window": "60s", "retry": "1s"},
        }),
    );
    let proxy = Proxy::start(&config(&[plugin], everything(), &origin));
    let ask = |fields: &str| proxy.exchange(format!("GET / HTTP/1.1\r\nhost: test\r\n{fields}\r\n"));
    for _ in 0..3 {
        assert_eq!(ask("x-fail: 1\r\n").status, 503);
    }
    // Open: by its policy every request fails, without a call.
    proxy.wait_stat("plugin.flaky.all.0.circuit_opened", 1);
    assert_eq!(ask("").status, 503);
    assert_eq!(proxy.stats().value("plugin.flaky.circuit_open"), 1);
    wait_until("it is tried again", || ask("").status == 200);
    assert!(proxy.stats().value("plugin.flaky.all.0.bypassed") >= 1);
    assert_eq!(proxy.stats().value("plugin.flaky.circuit_open"), 0);
}

#[test]
fn the_admin_tells_what_each_plugin_costs() {
    if !postrider_only() {
        return;
    }
    let origin = Origin::echo("a");
    let plugin =
        manifest("mark", json!({"version": "1.2", "code": {"inline_string": MARK}, "config": {"mark": "base"}}));
    let proxy = Proxy::start(&config(&[plugin], everything(), &origin));
    for _ in 0..5 {
        assert_eq!(proxy.exchange(get("/")).status, 200);
    }
    proxy.wait_stat("plugin.mark.all.0.calls", 5);
    let text = proxy.admin_json("/plugins?format=json").to_string();
    for part in ["\"mark\"", "\"1.2\"", "\"rider\"", "\"calls\":5"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let plain = proxy.admin_get("/plugins");
    assert!(plain.text().contains("mark"), "{}", plain.text());
    let prometheus = proxy.admin_get("/stats/prometheus");
    assert!(prometheus.text().contains("calls"), "counters are in Prometheus, too");
}

/// As the published test of `set_body` does it, which never waits for the body that it replaces.
#[test]
fn a_body_that_a_hook_on_the_head_sets_is_what_goes_on() {
    if !postrider_only() {
        return;
    }
    let origin = Origin::echo("a");
    let code = r#"
require("rider")
local plugin = {}
function plugin:on_request() envoy.req.set_body("a new request") end
function plugin:on_response() envoy.resp.set_body("a new answer") end
return plugin
"#;
    let filters = json!([rider("body", code, json!({})), router()]);
    let routes = json!([{"match": {"prefix": "/"}, "route": {"cluster": "origin"}}]);
    let project = json!({
        "name": "all", "domains": ["*"], "routes": routes,
        "typed_per_filter_config": {RIDER: {"@type": RIDER_ROUTE, "plugins": [{"name": "body"}]}},
    });
    let config = Config::new()
        .http(json!({"http_filters": filters, "route_config": {"virtual_hosts": [project]}}))
        .cluster("origin", &[origin.address]);
    let proxy = Proxy::start(&config);
    for request in [
        "POST /0 HTTP/1.1\r\nhost: test\r\ncontent-length: 3\r\n\r\nold",
        "POST /1 HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n3\r\nold\r\n11\r\n and another part\r\n0\r\n\r\n",
        "GET /2 HTTP/1.1\r\nhost: test\r\n\r\n",
    ] {
        let answer = proxy.exchange(request);
        assert_eq!((answer.status, answer.text()), (200, "a new answer"));
    }
    let bodies: Vec<Vec<u8>> = origin.requests().into_iter().map(|request| request.body).collect();
    assert_eq!(bodies, vec![b"a new request".to_vec(); 3]);
}
