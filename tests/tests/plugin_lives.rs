//! The lives of plugins: streams and their instances over changes, several plugins under one name, limits of bodies, and what
//! is told about all of that.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use postrider_tests::kit::DEADLINE;
use postrider_tests::kit::config::{extension, router};
use postrider_tests::kit::proxy::{accepted, run};
use postrider_tests::kit::{Config, Origin, Proxy, RawClient, TempDir, wait_until};
use postrider_tests::plugins::{MANIFEST_ROUTE, RIDER, RIDER_ROUTE, config, everything, manifest, rider, seen};
use postrider_tests::{get, postrider_only};
use serde_json::json;

/// A plugin that waits for the request's body, and says on both sides which version it is.
fn waiting(version: u32) -> String {
    format!(
        r#"
require("rider")
local plugin = {{}}
function plugin.on_request()
  local body = envoy.req.get_body()
  envoy.req.set_header("x-version", "{version}." .. (body and body:length() or 0))
end
function plugin.on_response() envoy.resp.set_header("x-version", "{version}") end
return plugin
"#
    )
}

const HEAD_AND_HALF: &str = "POST /half HTTP/1.1\r\nhost: test\r\ncontent-length: 8\r\n\r\nhalf";

#[test]
fn streams_in_flight_end_on_the_code_that_they_began_with() {
    if !postrider_only() {
        return;
    }
    let origin = Origin::echo("a");
    let directory = TempDir::new();
    let file = directory.write("plugin.lua", waiting(1));
    let plugin = manifest("waiting", json!({"code": {"filename": file.to_str().unwrap()}}));
    let mut proxy = Proxy::start(&config(&[plugin], everything(), &origin));
    let begin = |calls: u64| {
        let mut client = RawClient::connect(proxy.address("http"));
        client.send(HEAD_AND_HALF);
        proxy.wait_stat("plugin.waiting.all.0.calls", calls);
        client
    };
    let end = |mut client: RawClient| {
        origin.forget();
        client.send("half");
        let response = client.response("POST").unwrap();
        assert_eq!(response.status, 200);
        let versions = origin.requests()[0].headers.values("x-version").join("|");
        (versions, response.header("x-version").to_owned())
    };
    let old = begin(1);
    directory.write("plugin.lua", waiting(2));
    wait_until("the new plugin serves", || proxy.exchange(get("/")).header("x-version") == "2");
    assert_eq!(end(old), ("1.8".to_owned(), "1".to_owned()), "changed");

    let calls = proxy.stats().value("plugin.waiting.all.0.calls");
    let old = begin(calls + 1);
    let without = config(&[], everything(), &origin);
    assert!(accepted(&proxy.reload(without.to_yaml())));
    wait_until("the plugin is gone", || proxy.exchange(get("/")).header("x-version").is_empty());
    assert_eq!(end(old), ("2.8".to_owned(), "2".to_owned()), "removed");
}

/// Puts what it sees of its configurations into the header that is named like the plugin.
fn marker(name: &str) -> String {
    format!(
        r#"
require("rider.v2")
local plugin = {{ version = "v2" }}
function plugin:on_request_header()
  local base, route = envoy.get_base_config(), envoy.get_route_config()
  envoy.req.set_header("x-{name}", (base.mark or "-") .. "/" .. (route and route.mark or "-"))
end
return plugin
"#
    )
}

#[test]
fn plugins_under_one_name_each_find_their_entry_of_the_route() {
    if !postrider_only() {
        return;
    }
    let origin = Origin::echo("a");
    let entries = |plugins: serde_json::Value| json!({RIDER: {"@type": RIDER_ROUTE, "plugins": plugins}});
    let both = json!([{"name": "second", "config": {"mark": "b"}}, {"name": "first", "config": {"mark": "a"}}]);
    let routes = json!([
        {"match": {"path": "/both"}, "route": {"cluster": "origin"}, "typed_per_filter_config": entries(both)},
        {"match": {"path": "/one"}, "route": {"cluster": "origin"},
         "typed_per_filter_config": entries(json!([{"name": "second", "config": {"mark": "b"}}]))},
        {"match": {"prefix": "/"}, "route": {"cluster": "origin"}},
    ]);
    let filters = [
        rider("first", &marker("first"), json!({"mark": "1"})),
        rider("second", &marker("second"), json!({"mark": "2"})),
    ];
    let proxy = Proxy::start(&config(&filters, routes, &origin));
    for (path, first, second) in [("/both", "1/a", "2/b"), ("/one", "1/-", "2/b"), ("/", "1/-", "2/-")] {
        assert_eq!(seen(&proxy, &origin, path, "x-first"), first, "{path}");
        assert_eq!(seen(&proxy, &origin, path, "x-second"), second, "{path}");
    }
}

#[test]
fn a_body_over_the_limit_is_answered_without_its_hook() {
    if !postrider_only() {
        return;
    }
    let large = "x".repeat(100_000);
    let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{large}", large.len());
    let origin = Origin::fixed(answer);
    let code = r#"
require("rider.v2")
local small, large = envoy.define_metric(0, "small"), envoy.define_metric(0, "large")
local function count(body) envoy.increment_metric(#(body or "") > 4096 and large or small, 1) end
local plugin = { version = "v2" }
function plugin:on_request_body() count(envoy.req.get_body()) end
function plugin:on_response_body() count(envoy.resp.get_body()) end
return plugin
"#;
    let plugin = manifest("bodies", json!({"code": {"inline_string": code}}));
    let config = config(&[plugin], everything(), &origin)
        .overlay_listener("http", json!({"per_connection_buffer_limit_bytes": 4096}));
    let proxy = Proxy::start(&config);
    let post = |body: &str| {
        proxy.exchange(format!("POST / HTTP/1.1\r\nhost: test\r\ncontent-length: {}\r\n\r\n{body}", body.len()))
    };
    assert_eq!(post(&large).status, 413);
    assert!(origin.requests().is_empty());
    assert_eq!(post("small").status, 500, "the answer to this one is too large");
    // The first answer, which is the proxy's own, and the second request.
    proxy.wait_stat("rider.bodies.small", 2);
    assert_eq!(proxy.stats().value("rider.bodies.large"), 0, "no hook saw a large body");
    assert_eq!(proxy.stats().value("plugin.bodies.all.0.errors"), 0);
}

#[test]
fn metrics_of_plugins_are_in_the_statistics_and_go_with_the_plugin() {
    if !postrider_only() {
        return;
    }
    let origin = Origin::echo("a");
    let code = r#"
require("rider.v2")
local hits, level = envoy.define_metric(0, "hits"), envoy.define_metric(1, "level")
local sizes = envoy.define_metric(2, "sizes")
local plugin = { version = "v2" }
function plugin:on_request_header()
  envoy.increment_metric(hits, 1)
  envoy.record_metric(level, 7)
  envoy.record_metric(sizes, 3)
end
return plugin
"#;
    let plugin = manifest("counting", json!({"code": {"inline_string": code}}));
    let mut proxy = Proxy::start(&config(&[plugin], everything(), &origin));
    for _ in 0..3 {
        assert_eq!(proxy.exchange(get("/")).status, 200);
    }
    proxy.wait_stat("rider.counting.hits", 3);
    assert_eq!(proxy.stats().value("rider.counting.level"), 7);
    let prometheus = proxy.admin_get("/stats/prometheus");
    for name in ["rider_counting_hits", "rider_counting_level", "rider_counting_sizes_count"] {
        assert!(prometheus.text().contains(name), "{name} in {}", prometheus.text());
    }
    assert!(accepted(&proxy.reload(config(&[], everything(), &origin).to_yaml())));
    wait_until("its statistics are gone", || {
        let text = proxy.admin_get("/stats").text().to_owned();
        !text.contains("rider.counting") && !text.contains("plugin.counting")
    });
}

/// A plugin that counts as `rider.<name>.made` how often it is loaded for a worker.
fn counting(version: u32) -> String {
    format!(
        r#"
require("rider.v2")
local made = envoy.define_metric(0, "made")
local plugin = {{ version = "v2" }}
function plugin.on_configure() envoy.increment_metric(made, 1) end
function plugin.on_response_header() envoy.resp.set_header("x-version", "{version}") end
return plugin
"#
    )
}

#[test]
fn the_first_request_after_a_change_waited_for_the_machines_of_all_plugins() {
    if !postrider_only() {
        return;
    }
    let origin = Origin::echo("a");
    let directory = TempDir::new();
    let file = directory.write("plugin.lua", counting(1));
    let one = manifest("one", json!({"code": {"filename": file.to_str().unwrap()}}));
    let script = extension(
        "envoy.filters.http.lua",
        "filters.http.lua.v3.Lua",
        json!({"default_source_code": {"inline_string": "function envoy_on_request(h) h:headers():add('x-a', '1') end"}}),
    );
    let proxy = Proxy::start(&config(&[one, script], everything(), &origin));
    let workers = proxy.stats().value("server.concurrency");
    assert!(workers > 0);
    assert_eq!(proxy.stats().value("rider.one.made"), workers, "no request came yet");
    assert_eq!(proxy.stats().value("lua.lua_vm_count"), workers);
    // The old ones are there until the new ones serve, and nobody asks for anything meanwhile.
    directory.write("plugin.lua", counting(2));
    proxy.wait_stat("rider.one.made", 2 * workers);
    wait_until("the new plugin serves", || proxy.exchange(get("/")).header("x-version") == "2");
    assert_eq!(proxy.stats().value("rider.one.made"), 2 * workers, "no request made one");
}

#[test]
fn what_a_route_sees_is_explained() {
    if !postrider_only() {
        return;
    }
    let origin = Origin::echo("a");
    let of = |mark: &str| json!({"mark": {"@type": MANIFEST_ROUTE, "config": {"mark": mark}}});
    let routes = json!([
        {"name": "own", "match": {"path": "/own"}, "route": {"cluster": "origin"}, "typed_per_filter_config": of("at the route")},
        {"name": "off", "match": {"path": "/off"}, "route": {"cluster": "origin"},
         "typed_per_filter_config": {"mark": {"@type": MANIFEST_ROUTE, "disabled": true}}},
        {"name": "split", "match": {"path": "/split"}, "route": {"weighted_clusters": {"clusters": [
            {"name": "origin", "weight": 1, "typed_per_filter_config": of("at the cluster")}]}}},
        {"name": "rest", "match": {"prefix": "/"}, "route": {"cluster": "origin"}},
    ]);
    let plugin =
        manifest("mark", json!({"code": {"inline_string": marker("mark")}, "config": {"mark": "at the gateway"}}));
    let host = json!({
        "name": "all", "domains": ["*"], "routes": routes, "typed_per_filter_config": of("at the project"),
    });
    let table = json!({"virtual_hosts": [host], "typed_per_filter_config": of("at the table")});
    let config = Config::new()
        .http(json!({"http_filters": [plugin, router()], "route_config": table}))
        .cluster("origin", &[origin.address]);
    let proxy = Proxy::start(&config);
    let sees = [("/own", "at the route"), ("/split", "at the cluster"), ("/", "at the project")];
    for (path, mark) in sees {
        assert_eq!(seen(&proxy, &origin, path, "x-mark"), format!("at the gateway/{mark}"), "{path}");
        let url = format!("http://test{path}");
        let told = run(&["explain", proxy.config_path().to_str().unwrap(), "GET", &url]);
        assert_eq!(told.code, Some(0), "{}", told.stderr);
        for place in ["at the gateway", "at the table", "at the project", mark] {
            assert!(told.stdout.contains(place), "{path}: {place} in {}", told.stdout);
        }
        let with = if path == "/split" { " with cluster origin" } else { "" };
        let sees = format!("  sees{with}: {{\"mark\":\"{mark}\"}}, of the ");
        assert!(told.stdout.contains(&sees), "{path}: {sees} in {}", told.stdout);
    }
    let told = run(&["explain", proxy.config_path().to_str().unwrap(), "GET", "http://test/off"]);
    assert!(told.stdout.contains("mark (off)") && told.stdout.contains("  does not run here\n"), "{}", told.stdout);
    assert_eq!(seen(&proxy, &origin, "/off", "x-mark"), "");
    let page = proxy.admin_get("/plugins?config=1").text().to_owned();
    for line in [
        "  config of own, by its route: sees {\"mark\":\"at the route\"}",
        "  config of off, by its route: does not run here",
    ] {
        assert!(page.contains(line), "{line} in {page}");
    }
    let shown = proxy.admin_json("/plugins?format=json&config=1").to_string();
    for place in ["at the gateway", "at the route", "at the project"] {
        assert!(shown.contains(place), "{place} in {shown}");
    }
}

/// A plugin that says in a field which version it is.
fn saying(version: u32) -> String {
    format!(
        "require(\"rider\")\nlocal plugin = {{}}\nfunction plugin.on_response() envoy.resp.set_header(\"x-version\", \
         \"{version}\") end\nreturn plugin\n"
    )
}

#[test]
fn a_plugin_that_was_written_while_the_one_before_it_was_refused_is_taken() {
    if !postrider_only() {
        return;
    }
    let (origin, directory) = (Origin::echo("a"), TempDir::new());
    let file = directory.write("plugin.lua", saying(1));
    let path = file.to_str().unwrap();
    let proxy = Proxy::start(&config(
        &[manifest("saying", json!({"code": {"filename": path}, "options": {"sandbox": "full"}}))],
        everything(),
        &origin,
    ));
    let version = || proxy.exchange(get("/")).header("x-version").to_owned();
    assert_eq!(version(), "1");
    // Its successor is there before it is refused.
    let next = saying(3);
    let code =
        format!("local file = io.open({path:?}, \"w\")\nfile:write([==[{next}]==])\nfile:close()\nerror(\"no\")\n");
    directory.write("plugin.lua", code);
    wait_until("the last plugin", || version() == "3");
}

#[test]
fn a_file_that_kept_a_configuration_from_being_put_in_force_is_looked_at_when_it_changes() {
    if !postrider_only() {
        return;
    }
    let (origin, other) = (Origin::echo("a"), TempDir::new());
    let with = |name: &str| {
        let path = other.path().join(name);
        let plugin = manifest("saying", json!({"code": {"filename": path.to_str().unwrap()}}));
        config(&[plugin], everything(), &origin)
    };
    let mut proxy = Proxy::start(&config(&[], everything(), &origin));
    let version = |proxy: &Proxy| proxy.exchange(get("/")).header("x-version").to_owned();
    other.write("wrong.lua", "this is no Lua");
    assert!(!accepted(&proxy.reload(with("wrong.lua").to_yaml())));
    other.write("wrong.lua", saying(1));
    wait_until("the mended plugin", || version(&proxy) == "1");
    assert!(!accepted(&proxy.reload(with("absent.lua").to_yaml())));
    assert_eq!(version(&proxy), "1");
    other.write("absent.lua", saying(2));
    wait_until("the plugin that was absent", || version(&proxy) == "2");
}

#[test]
fn a_plugin_whose_file_is_deleted_serves_on_and_the_log_says_so_once() {
    if !postrider_only() {
        return;
    }
    let (origin, directory) = (Origin::echo("a"), TempDir::new());
    let file = directory.write("plugin.lua", saying(1));
    let plugin = manifest("saying", json!({"code": {"filename": file.to_str().unwrap()}}));
    let proxy = Proxy::start(&config(&[plugin], everything(), &origin));
    let version = || proxy.exchange(get("/")).header("x-version").to_owned();
    let words = format!("{} is gone: what was read from it stays in force", file.display());
    let told = || proxy.stderr().matches(&words).count();
    std::fs::remove_file(&file).unwrap();
    wait_until("it is told", || told() == 1);
    assert_eq!(version(), "1");
    directory.write("plugin.lua", saying(2));
    wait_until("the next file", || version() == "2");
    assert_eq!(told(), 1);
    std::fs::remove_file(&file).unwrap();
    wait_until("it is told again", || told() == 2);
    assert_eq!(version(), "2");
}

#[test]
fn a_plugin_that_is_written_all_the_time_keeps_nobody_from_ending_the_process() {
    if !postrider_only() {
        return;
    }
    let (origin, directory) = (Origin::echo("a"), TempDir::new());
    let file = directory.write("plugin.lua", saying(1));
    let plugin = manifest("saying", json!({"code": {"filename": file.to_str().unwrap()}}));
    let mut proxy = Proxy::start(&config(&[plugin], everything(), &origin));
    let (stop, begun) = (AtomicBool::new(false), Instant::now());
    let ended = std::thread::scope(|scope| {
        scope.spawn(|| {
            for version in 2.. {
                if stop.load(Ordering::Relaxed) || begun.elapsed() > DEADLINE {
                    return;
                }
                let next = file.with_extension("next");
                std::fs::write(&next, saying(version)).unwrap();
                std::fs::rename(&next, &file).unwrap();
            }
        });
        wait_until("a later one", || proxy.exchange(get("/")).header("x-version") != "1");
        proxy.signal("TERM");
        let ended = proxy.wait_exit();
        stop.store(true, Ordering::Relaxed);
        ended
    });
    assert!(ended.success());
}
