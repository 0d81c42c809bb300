//! Modules without any listener (`envoy.bootstrap.wasm`): they tick, call, count and hear of queues while nobody asks.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use postrider_tests::kit::proxy::{Launch, accepted, run};
use postrider_tests::kit::{Config, Origin, Proxy, TempDir, wait_until};
use postrider_tests::site::{self, Plan};
use postrider_tests::wasm::text_module as module;
use postrider_tests::{envoy, postrider_only};
use serde_json::{Value, json};

const KIND: &str = "type.googleapis.com/envoy.extensions.wasm.v3.WasmService";

/// What a module with these functions is configured as.
fn plugin(vm_id: &str, functions: &str, more: Value) -> Value {
    let mut config = json!({
        "name": "resident", "root_id": "root",
        "vm_config": {
            "vm_id": vm_id, "runtime": "envoy.wasm.runtime.v8",
            "code": {"local": {"inline_bytes": STANDARD.encode(module("0_2_1", functions))}},
        },
    });
    for (key, value) in more.as_object().unwrap() {
        config[key] = value.clone();
    }
    config
}

/// An extension of the bootstrap.
fn service(functions: &str, singleton: bool, more: Value) -> Value {
    let config = plugin("resident", functions, more);
    json!({
        "name": "envoy.bootstrap.wasm",
        "typed_config": {"@type": KIND, "config": config, "singleton": singleton},
    })
}

/// A site with these extensions, and no filter.
fn with(extensions: &[Value]) -> Plan {
    site::with([]).whole(json!({"bootstrap_extensions": extensions}))
}

fn workers(count: u32) -> Launch {
    Launch { concurrency: count, ..Launch::default() }
}

/// Counts its ticks, calls the origin at each, and counts the answers. What ticks first counts as one that is alive.
const TICKS: &str = r#"
    (func (export "proxy_on_configure") (param i32 i32) (result i32)
        (drop (call $define_metric (i32.const 0) $"ticks" (i32.const 32)))
        (drop (call $define_metric (i32.const 0) $"answers" (i32.const 36)))
        (drop (call $define_metric (i32.const 0) $"alive" (i32.const 40)))
        (drop (call $tick_period (i32.const 20)))
        (i32.const 1))
    (func (export "proxy_on_tick") (param i32)
        (drop (call $increment (i32.load (i32.const 32)) (i64.const 1)))
        (if (i32.eqz (i32.load (i32.const 48))) (then
            (i32.store (i32.const 48) (i32.const 1))
            (drop (call $increment (i32.load (i32.const 40)) (i64.const 1)))))
        (drop (call $http_call $"origin"
            $"\03\00\00\00\05\00\00\00\05\00\00\00\07\00\00\00\03\00\00\00\0a\00\00\00\01\00\00\00:path\00/tick\00:method\00GET\00:authority\00a\00"
            (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 5000) (i32.const 44))))
    (func (export "proxy_on_http_call_response") (param i32 i32 i32 i32 i32)
        (drop (call $increment (i32.load (i32.const 36)) (i64.const 1))))"#;

#[test]
fn a_service_ticks_and_calls_without_any_request() {
    let site = with(&[service(TICKS, false, json!({}))]).start();
    wait_until("answers to its calls", || site.stat("wasmcustom.answers") > 2);
    assert!(site.stat("wasmcustom.ticks") > 2);
    let seen = site.origin.requests();
    assert_eq!((seen[0].method.as_str(), seen[0].target.as_str()), ("GET", "/tick"));
    assert_eq!(seen[0].headers.values("host"), ["a"]);
    assert_eq!(site.get("/", "").status, 200, "requests are served beside it");
}

#[test]
fn a_singleton_is_one_and_another_service_one_on_each_worker() {
    // Envoy has one on its main thread, too.
    let each = if envoy() { 3 } else { 2 };
    for (singleton, expected) in [(true, 1), (false, each)] {
        let site = with(&[service(TICKS, singleton, json!({}))]).start_with(Origin::echo("a"), workers(2));
        wait_until("ticks", || site.stat("wasmcustom.alive") == expected && site.stat("wasmcustom.ticks") > 20);
        assert_eq!(site.stat("wasmcustom.alive"), expected, "{singleton}");
    }
}

#[test]
fn a_queue_takes_what_a_filter_saw_to_a_service() {
    let functions = r#"
        (func (export "proxy_on_configure") (param i32 i32) (result i32)
            (drop (call $register_queue $"names" (i32.const 32)))
            (i32.const 1))
        (func (export "proxy_on_queue_ready") (param i32 i32)
            (if (i32.eqz (call $dequeue (local.get 1) (i32.const 16) (i32.const 20))) (then
                (drop (call $define_metric (i32.const 0) (call $place) (call $length) (i32.const 36)))
                (drop (call $increment (i32.load (i32.const 36)) (i64.const 1))))))"#;
    let tells = r#"
        (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
            (drop (call $get (i32.const 0) $"x-name" (i32.const 16) (i32.const 20)))
            (if (i32.eqz (call $resolve_queue $"resident" $"names" (i32.const 32))) (then
                (drop (call $enqueue (i32.load (i32.const 32)) (call $place) (call $length)))))
            (i32.const 0))"#;
    let filter = postrider_tests::kit::config::extension(
        "envoy.filters.http.wasm",
        "filters.http.wasm.v3.Wasm",
        json!({"config": plugin("filter", tells, json!({"name": "tells"}))}),
    );
    let extensions = json!({"bootstrap_extensions": [service(functions, true, json!({}))]});
    let site = site::with([filter]).whole(extensions).start();
    for name in ["one", "two", "one"] {
        assert_eq!(site.get("/", &format!("x-name: {name}\r\n")).status, 200);
    }
    wait_until("what the service counted", || site.stat("wasmcustom.one") == 2 && site.stat("wasmcustom.two") == 1);
}

#[test]
fn a_service_that_refuses_its_configuration_keeps_the_proxy_from_starting() {
    let refuses = r#"(func (export "proxy_on_configure") (param i32 i32) (result i32) (i32.const 0))"#;
    if !postrider_only() {
        return;
    }
    for policy in ["FAIL_CLOSED", "FAIL_OPEN"] {
        let extension = service(refuses, false, json!({"failure_policy": policy}));
        let config = Config::new().http(json!({
            "http_filters": [postrider_tests::kit::config::router()],
            "route_config": {"virtual_hosts": []},
        }));
        let folder = TempDir::new();
        let path = folder.write("config.yaml", config.overlay(json!({"bootstrap_extensions": [extension]})).to_yaml());
        let finished = run(&["validate", path.to_str().unwrap()]);
        assert_ne!(finished.code, Some(0), "{policy}");
        let text = format!("{}{}", finished.stdout, finished.stderr);
        assert!(text.contains("bootstrap_extensions[0].typed_config"), "{text}");
        assert!(text.contains("`proxy_on_configure` returned false"), "{text}");
    }
}

#[test]
fn a_service_that_failed_is_gone_or_made_again() {
    // Its second tick is its last.
    let traps = r#"
        (func (export "proxy_on_configure") (param i32 i32) (result i32)
            (drop (call $define_metric (i32.const 0) $"ticks" (i32.const 32)))
            (drop (call $tick_period (i32.const 20)))
            (i32.const 1))
        (func (export "proxy_on_tick") (param i32)
            (drop (call $increment (i32.load (i32.const 32)) (i64.const 1)))
            (i32.store (i32.const 48) (i32.add (i32.load (i32.const 48)) (i32.const 1)))
            (if (i32.eq (i32.load (i32.const 48)) (i32.const 2)) (then (unreachable))))"#;
    let closed = with(&[service(traps, true, json!({"failure_policy": "FAIL_CLOSED"}))]).start();
    wait_until("its last tick", || closed.stat("wasmcustom.ticks") == 2);
    assert_eq!(closed.get("/", "").status, 200, "requests are none of its matter");
    if !postrider_only() {
        return;
    }
    let again = with(&[service(traps, true, json!({"failure_policy": "FAIL_RELOAD"}))]).start();
    wait_until("ticks of another machine", || again.stat("wasmcustom.ticks") > 2);
    assert!(again.stat("wasm.resident.vm_reload_success") > 0);
    assert_eq!(closed.stat("wasmcustom.ticks"), 2, "nobody made this one again");
}

#[test]
fn a_service_follows_its_configuration_and_is_told_of() {
    if !postrider_only() {
        return;
    }
    // Counts its ticks under the name that its configuration is.
    let named = r#"
        (func (export "proxy_on_configure") (param i32 i32) (result i32)
            (drop (call $get_buffer (i32.const 7) (i32.const 0) (local.get 1) (i32.const 16) (i32.const 20)))
            (drop (call $tick_period (i32.const 20)))
            (i32.const 1))
        (func (export "proxy_on_tick") (param i32)
            (drop (call $get_buffer (i32.const 7) (i32.const 0) (i32.const 99) (i32.const 16) (i32.const 20)))
            (drop (call $define_metric (i32.const 0) (call $place) (call $length) (i32.const 36)))
            (drop (call $increment (i32.load (i32.const 36)) (i64.const 1))))"#;
    let config = |names: &[&str]| {
        let text = |name| json!({"@type": "type.googleapis.com/google.protobuf.StringValue", "value": name});
        let extensions: Vec<Value> = names
            .iter()
            .map(|name| service(named, false, json!({"name": name, "configuration": text(name)})))
            .collect();
        let routes = json!({"virtual_hosts": []});
        let manager = json!({"http_filters": [postrider_tests::kit::config::router()], "route_config": routes});
        Config::new().http(manager).overlay(json!({"bootstrap_extensions": extensions}))
    };
    let mut proxy = Proxy::start(&config(&["first", "other"]));
    let ticks = |proxy: &Proxy, name: &str| proxy.stats().value(&format!("wasmcustom.{name}"));
    wait_until("ticks", || ticks(&proxy, "first") > 0 && ticks(&proxy, "other") > 0);
    let shown = proxy.admin_get("/plugins").text().to_owned();
    assert!(shown.contains("first (wasm)") && shown.contains("  without a listener\n"), "{shown}");
    assert_eq!(proxy.admin_json("/plugins?format=json")["plugins"][0]["service"], true);
    assert!(accepted(&proxy.reload(config(&["second", "other"]).to_yaml())));
    wait_until("ticks of the new one", || ticks(&proxy, "second") > 0);
    let (old, same, new) = (ticks(&proxy, "first"), ticks(&proxy, "other"), ticks(&proxy, "second"));
    wait_until("more ticks", || ticks(&proxy, "second") > new + 2 && ticks(&proxy, "other") > same);
    assert_eq!(ticks(&proxy, "first"), old, "the old one ended");
    let shown = proxy.admin_get("/plugins").text().to_owned();
    assert!(!shown.contains("first (wasm)") && shown.contains("second (wasm)"), "{shown}");
    assert!(accepted(&proxy.reload(config(&[]).to_yaml())));
    let left = ticks(&proxy, "other");
    assert_eq!(proxy.admin_json("/plugins?format=json")["plugins"].as_array().map(Vec::len), Some(0));
    assert_eq!(ticks(&proxy, "other"), left, "none is left");
}
