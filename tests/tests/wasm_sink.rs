//! Modules that statistics are sent to (`envoy.stat_sinks.wasm`). The same in Envoy.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use postrider_tests::kit::proxy::Launch;
use postrider_tests::kit::{Origin, wait_until};
use postrider_tests::site::{self, Plan};
use postrider_tests::wasm::{text_module, whole};
use postrider_tests::{envoy, postrider_only};
use serde_json::{Value, json};

const KIND: &str = "type.googleapis.com/envoy.extensions.stat_sinks.wasm.v3.Wasm";

/// Reads the first block, that of the counters, and counts what is new of the origin's requests.
const COUNTS: &str = r#"
    (func (export "proxy_on_configure") (param i32 i32) (result i32)
        (drop (call $define_metric (i32.const 0) $"told" (i32.const 32)))
        (i32.const 1))
    (func $same (param $a i32) (param $b i32) (param $n i32) (result i32)
        (loop $next
            (if (i32.eqz (local.get $n)) (then (return (i32.const 1))))
            (local.set $n (i32.sub (local.get $n) (i32.const 1)))
            (br_if $next (i32.eq
                (i32.load8_u (i32.add (local.get $a) (local.get $n)))
                (i32.load8_u (i32.add (local.get $b) (local.get $n))))))
        (i32.const 0))
    (func $is (param $a i32) (param $n i32) (param $b i32) (param $m i32) (result i32)
        (if (i32.ne (local.get $n) (local.get $m)) (then (return (i32.const 0))))
        (call $same (local.get $a) (local.get $b) (local.get $n)))
    (func (export "envoy_on_stats_update") (param $root i32) (param $size i32)
        (local $base i32) (local $at i32) (local $end i32) (local $length i32) (local $found i32)
        (if (i32.gt_u (local.get $size) (i32.const 60000)) (then (local.set $size (i32.const 60000))))
        (if (call $get_buffer (i32.const 8) (i32.const 0) (local.get $size) (i32.const 16) (i32.const 20)) (then (return)))
        (local.set $base (call $place))
        (if (i32.ne (i32.load offset=4 (local.get $base)) (i32.const 1)) (then (return)))
        (local.set $end (i32.load (local.get $base)))
        (local.set $at (i32.const 12))
        (block $done (loop $next
            (br_if $done (i32.ge_u (local.get $at) (local.get $end)))
            (local.set $length (i32.load (i32.add (local.get $base) (local.get $at))))
            (local.set $at (i32.add (local.get $at) (i32.const 4)))
            (local.set $found (call $is
                (i32.add (local.get $base) (local.get $at)) (local.get $length) $"cluster.origin.upstream_rq_total"))
            (local.set $at (i32.and
                (i32.add (i32.add (local.get $at) (local.get $length)) (i32.const 7)) (i32.const -8)))
            (if (local.get $found) (then
                (drop (call $increment (i32.load (i32.const 32))
                    (i64.load offset=8 (i32.add (local.get $base) (local.get $at)))))))
            (local.set $at (i32.add (local.get $at) (i32.const 16)))
            (br $next))))"#;

/// A site whose statistics go to this module.
fn with(module: &[u8], when: Value) -> Plan {
    let config = json!({
        "name": "sink", "root_id": "root",
        "vm_config": {
            "vm_id": "sink", "runtime": "envoy.wasm.runtime.v8",
            "code": {"local": {"inline_bytes": STANDARD.encode(module)}},
        },
    });
    let sink = json!({"name": "envoy.stat_sinks.wasm", "typed_config": {"@type": KIND, "config": config}});
    site::with([]).whole(json!({"stats_sinks": [sink]})).whole(when)
}

#[test]
fn a_module_is_told_what_is_new() {
    // Envoy's blocks are of a wrong size where there are gauges.
    let told = [json!({"exact": "cluster.origin.upstream_rq_total"}), json!({"prefix": "wasmcustom."})];
    let when = json!({
        "stats_flush_interval": "0.02s", "stats_config": {"stats_matcher": {"inclusion_list": {"patterns": told}}},
    });
    let site = with(&text_module("0_2_1", COUNTS), when)
        .start_with(Origin::echo("a"), Launch { concurrency: 2, ..Launch::default() });
    for requests in 1..=3 {
        assert_eq!(site.get("/", "").status, 200);
        wait_until("the module to know", || site.stat("wasmcustom.told") == requests);
    }
}

#[test]
fn all_counters_are_found_beside_gauges() {
    // See above.
    if envoy() {
        return;
    }
    let site = with(&text_module("0_2_1", COUNTS), json!({"stats_flush_interval": "0.02s"})).start();
    for requests in 1..=3 {
        assert_eq!(site.get("/", "").status, 200);
        wait_until("the module to know", || site.stat("wasmcustom.told") == requests);
    }
}

#[test]
fn a_module_is_told_the_last_of_it_when_the_proxy_ends() {
    let logs = r#"
        (import "env" "proxy_log" (func $log (param i32 i32 i32) (result i32)))
        (memory (export "memory") 4)
        (func (export "proxy_abi_version_0_2_1"))
        (func (export "malloc") (param i32) (result i32) (i32.const 131072))
        (func (export "envoy_on_stats_update") (param i32 i32) (drop (call $log (i32.const 4) $"told at last")))"#;
    let mut site = with(&whole(logs), json!({"stats_flush_interval": "299s"})).start();
    assert_eq!(site.get("/", "").status, 200);
    assert!(!site.proxy.stderr().contains("told at last"));
    site.proxy.signal("TERM");
    wait_until("the log line", || site.proxy.stderr().contains("told at last"));
}

#[test]
fn a_module_that_fails_keeps_no_request() {
    if !postrider_only() {
        return;
    }
    let traps = r#"(func (export "envoy_on_stats_update") (param i32 i32) (unreachable))"#;
    let site = with(&text_module("0_2_1", traps), json!({"stats_flush_interval": "0.02s"})).start();
    wait_until("the module to fail", || site.stat("plugin.sink.dead_workers") == 1);
    assert_eq!((site.get("/", "").status, site.proxy.stats().sum("plugin.sink.", ".errors")), (200, 1));
}
