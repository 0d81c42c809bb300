//! What a configuration says of a module's machine: when it is made again, what it may call, what it sees of the environment,
//! and configurations of every type. The same in Envoy.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use postrider_tests::envoy;
use postrider_tests::kit::config::{extension, file_access_log, tcp_filter};
use postrider_tests::kit::proxy::{Launch, run};
use postrider_tests::kit::{Config, Origin, Proxy, RawClient, TempDir, wait_until};
use postrider_tests::site::{self, Site};
use postrider_tests::wasm::{self, text_module as module};
use serde_json::{Value, json};

const ON_REQUEST: &str = r#"(func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)"#;
const ON_BODY: &str = r#"(func (export "proxy_on_request_body") (param i32 i32 i32) (result i32)"#;
const ON_RESPONSE: &str = r#"(func (export "proxy_on_response_headers") (param i32 i32 i32) (result i32)"#;

fn plugin(functions: &str, vm: Value, more: Value) -> Value {
    let mut config = json!({"name": "plugin", "root_id": "root", "vm_config": {
        "vm_id": "vm", "runtime": "envoy.wasm.runtime.v8",
        "code": {"local": {"inline_bytes": STANDARD.encode(module("0_2_1", functions))}},
    }});
    postrider_tests::kit::config::overlay(&mut config["vm_config"], vm);
    postrider_tests::kit::config::overlay(&mut config, more);
    config
}

fn filter(config: Value) -> Value {
    extension("envoy.filters.http.wasm", "filters.http.wasm.v3.Wasm", json!({"config": config}))
}

fn site(functions: &str, vm: Value, more: Value) -> Site {
    site::with([filter(plugin(functions, vm, more))]).start()
}

fn seen(site: &Site, name: &str) -> String {
    site.origin.requests().last().unwrap().headers.values(name).join("|")
}

#[test]
fn a_machine_is_made_again_when_its_pause_is_over() {
    // Traps where the request says so.
    let traps = format!(
        r#"{ON_REQUEST}
            (if (i32.eqz (call $get (i32.const 0) $"x-trap" (i32.const 16) (i32.const 20))) (then (unreachable)))
            (drop (call $add (i32.const 0) $"x-mark" $"1"))
            (i32.const 0))"#
    );
    let reload = |base: &str| {
        json!({
            "failure_policy": "FAIL_RELOAD", "reload_config": {"backoff": {"base_interval": base, "max_interval": "600s"}},
        })
    };
    let soon = site(&traps, json!({}), reload("0.05s"));
    let late = site(&traps, json!({}), reload("600s"));
    for (site, again) in [(&soon, true), (&late, false)] {
        assert_eq!((site.get("/", "").status, seen(site, "x-mark").as_str()), (200, "1"));
        assert_eq!(site.get("/", "x-trap: 1\r\n").status, 503);
        // The first is made at once, since none was made lately; the next has to wait.
        wait_until("the first machine again", || site.get("/", "").status == 200 || !again);
        assert_eq!(site.get("/", "x-trap: 1\r\n").status, 503);
        if again {
            wait_until("the machine again", || site.get("/", "").status == 200);
            assert!(site.stat("wasm.plugin.vm_reload_success") >= 1);
        } else {
            assert_eq!([0; 4].map(|_| site.get("/", "").status), [503; 4]);
            assert!(site.stat("wasm.plugin.vm_reload_backoff") >= 1);
        }
    }
}

#[test]
fn machines_and_those_that_are_made_again_are_counted_from_the_start() {
    let site = site("", json!({}), json!({}));
    let stats = site.proxy.stats();
    for name in ["success", "failure", "backoff"] {
        let name = format!("wasm.plugin.vm_reload_{name}");
        assert_eq!(stats.0.get(&name).map(String::as_str), Some("0"), "{name}");
    }
    // Envoy has one for its configuration, too, and names its engine.
    let (engine, beside) = if envoy() { ("v8", 1) } else { ("wasmtime", 0) };
    let active = stats.value(&format!("wasm.envoy.wasm.runtime.{engine}.active"));
    assert!(active > beside);
    assert_eq!(stats.value("wasm.wasm_vm_count"), active);
    assert!(stats.value(&format!("wasm.envoy.wasm.runtime.{engine}.created")) >= active);
}

#[test]
fn a_head_that_stops_alone_lets_the_body_be_seen() {
    // Stops the head, and lets it go on when the body has ended, or with the next tick.
    let functions = format!(
        r#"(global $stream (mut i32) (i32.const 0))
        (func (export "proxy_on_configure") (param i32 i32) (result i32)
            (drop (call $tick_period (i32.const 50))) (i32.const 1))
        {ON_REQUEST} (global.set $stream (local.get 0)) (i32.const 1))
        {ON_BODY}
            (drop (call $replace (i32.const 0) $"x-body" $"1"))
            (if (local.get 2) (then (global.set $stream (i32.const 0))))
            (i32.eqz (local.get 2)))
        (func (export "proxy_on_tick") (param i32)
            (if (global.get $stream) (then
                (drop (call $effective (global.get $stream)))
                (global.set $stream (i32.const 0))
                (drop (call $continue (i32.const 0))))))"#
    );
    for (alone, wanted) in [(true, "1"), (false, "")] {
        let site = site(&functions, json!({}), json!({"allow_on_headers_stop_iteration": alone}));
        let request = "POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 2\r\n\r\nok";
        assert_eq!(site.proxy.exchange(request).status, 200, "{alone}");
        assert_eq!(seen(&site, "x-body"), wanted, "{alone}");
    }
}

#[test]
fn what_is_not_allowed_is_not_called() {
    let functions = format!(
        r#"{ON_REQUEST}
            (call $digit (i32.const 0) $"x-get" (call $get (i32.const 0) $"host" (i32.const 16) (i32.const 20)))
            (i32.const 0))
        {ON_RESPONSE} (drop (call $add (i32.const 2) $"x-answered" $"1")) (i32.const 0))"#
    );
    let all = [
        "proxy_on_request_headers",
        "proxy_on_response_headers",
        "proxy_add_header_map_value",
        "proxy_get_header_map_value",
    ];
    let only = |names: &[&str]| {
        let allowed: serde_json::Map<_, _> = names.iter().map(|name| ((*name).to_owned(), json!({}))).collect();
        json!({"capability_restriction_config": {"allowed_capabilities": allowed}})
    };
    for (names, answered, got) in [(&all[..], "1", "1"), (&[all[0], all[2]][..], "", "x"), (&all[1..3], "1", "")] {
        let site = site(&functions, json!({}), only(names));
        let answer = site.get("/", "");
        assert_eq!(
            (answer.status, answer.headers.values("x-answered").join("|").as_str()),
            (200, answered),
            "{names:?}"
        );
        let found = seen(&site, "x-get");
        match got {
            "x" => assert!(!matches!(found.as_str(), "" | "0" | "1"), "{names:?}: {found}"),
            _ => assert_eq!(found.is_empty(), got.is_empty(), "{names:?}: {found}"),
        }
    }
}

/// The functions of the proxy with the types of what they take, `i` and `l` for numbers of 32 and 64 bits.
const FUNCTIONS: [(&str, &str); 38] = [
    ("proxy_log", "iii"),
    ("proxy_get_log_level", "i"),
    ("proxy_get_current_time_nanoseconds", "i"),
    ("proxy_set_tick_period_milliseconds", "i"),
    ("proxy_get_property", "iiii"),
    ("proxy_set_property", "iiii"),
    ("proxy_get_header_map_pairs", "iii"),
    ("proxy_set_header_map_pairs", "iii"),
    ("proxy_get_header_map_size", "ii"),
    ("proxy_get_header_map_value", "iiiii"),
    ("proxy_replace_header_map_value", "iiiii"),
    ("proxy_remove_header_map_value", "iii"),
    ("proxy_get_buffer_status", "iii"),
    ("proxy_get_buffer_bytes", "iiiii"),
    ("proxy_set_buffer_bytes", "iiiii"),
    ("proxy_send_local_response", "iiiiiiii"),
    ("proxy_continue_stream", "i"),
    ("proxy_close_stream", "i"),
    ("proxy_http_call", "iiiiiiiiii"),
    ("proxy_grpc_call", "iiiiiiiiiiii"),
    ("proxy_grpc_stream", "iiiiiiiii"),
    ("proxy_grpc_send", "iiii"),
    ("proxy_grpc_cancel", "i"),
    ("proxy_grpc_close", "i"),
    ("proxy_get_shared_data", "iiiii"),
    ("proxy_set_shared_data", "iiiii"),
    ("proxy_register_shared_queue", "iii"),
    ("proxy_resolve_shared_queue", "iiiii"),
    ("proxy_enqueue_shared_queue", "iii"),
    ("proxy_dequeue_shared_queue", "iii"),
    ("proxy_define_metric", "iiii"),
    ("proxy_increment_metric", "il"),
    ("proxy_record_metric", "il"),
    ("proxy_get_metric", "ii"),
    ("proxy_set_effective_context", "i"),
    ("proxy_done", ""),
    ("proxy_call_foreign_function", "iiiiii"),
    ("proxy_get_status", "iii"),
];

/// The same of WASI.
const OF_WASI: [(&str, &str); 8] = [
    ("fd_write", "iiii"),
    ("fd_fdstat_get", "ii"),
    ("environ_sizes_get", "ii"),
    ("environ_get", "ii"),
    ("args_sizes_get", "ii"),
    ("args_get", "ii"),
    ("clock_time_get", "ili"),
    ("random_get", "ii"),
];

#[test]
fn every_function_can_be_withheld() {
    let (mut imports, mut calls) = (String::new(), String::new());
    let all = FUNCTIONS.map(|function| ("env", function)).into_iter();
    for (module, (name, takes)) in all.chain(OF_WASI.map(|function| ("wasi_snapshot_preview1", function))) {
        let types: Vec<_> = takes.chars().map(|kind| if kind == 'l' { "i64" } else { "i32" }).collect();
        let zeros: String = types.iter().map(|kind| format!(" ({kind}.const 0)")).collect();
        imports +=
            &format!("(import \"{module}\" \"{name}\" (func ${name} (param {}) (result i32)))\n", types.join(" "));
        calls += &format!("(call $digit $\"x-{name}\" (call ${name}{zeros}))\n");
    }
    let code = wasm::whole(&format!(
        r#"{imports}
        (import "env" "proxy_add_header_map_value" (func $add (param i32 i32 i32 i32 i32) (result i32)))
        (memory (export "memory") 4)
        (func (export "malloc") (param i32) (result i32) (i32.const 131072))
        (func (export "proxy_abi_version_0_2_1"))
        (func $digit (param i32 i32 i32)
            (i32.store8 (i32.const 0) (i32.add (local.get 2) (i32.const 48)))
            (drop (call $add (i32.const 0) (local.get 0) (local.get 1) (i32.const 0) (i32.const 1))))
        {ON_REQUEST} {calls} (i32.const 0))"#
    ));
    let allowed = json!({"proxy_on_request_headers": {}, "proxy_add_header_map_value": {}});
    let more = json!({"capability_restriction_config": {"allowed_capabilities": allowed}});
    let code = json!({"local": {"inline_bytes": STANDARD.encode(code)}});
    let site = site::with([wasm::with_code(code, &json!({}), more)]).start();
    assert_eq!(site.get("/", "").status, 200);
    let answered = |functions: &[(&'static str, &str)]| {
        functions.iter().map(|(name, _)| (*name, seen(&site, &format!("x-{name}")))).collect::<Vec<_>>()
    };
    let status = |number: u8| char::from(b'0' + number).to_string();
    assert_eq!(answered(&FUNCTIONS), FUNCTIONS.map(|(name, _)| (name, status(10))), "an internal failure");
    assert_eq!(answered(&OF_WASI), OF_WASI.map(|(name, _)| (name, status(76))), "not capable");
}

/// Each by itself, with what it leaves where it says how much came; both as Envoy 1.40 has them.
#[test]
fn what_is_asked_of_the_system_has_envoys_answers() {
    /// `{out}` holds a 1 before the call.
    const ASKED: [(&str, &str, &str, &str); 22] = [
        ("fd_pwrite", "iiili", "1 64 2 7 {out}", "0 5"),
        ("fd_pwrite", "iiili", "2 64 2 0 {out}", "0 5"),
        ("fd_pwrite", "iiili", "1 64 0 0 {out}", "0 0"),
        ("fd_pwrite", "iiili", "0 64 2 0 {out}", "8 1"),
        ("fd_pwrite", "iiili", "3 64 2 0 {out}", "8 1"),
        ("fd_pwrite", "iiili", "1 2147483632 1 0 {out}", "21 1"),
        ("fd_pwrite", "iiili", "1 64 2 0 2147483632", "21 1"),
        ("fd_write", "iiii", "2 64 2 {out}", "0 5"),
        ("fd_renumber", "ii", "1 2", "58 1"),
        ("fd_renumber", "ii", "2 3", "8 1"),
        ("fd_renumber", "ii", "0 1", "8 1"),
        ("fd_readdir", "iiili", "3 128 8 0 {out}", "20 0"),
        ("fd_readdir", "iiili", "3 128 8 0 2147483632", "21 1"),
        ("path_readlink", "iiiiii", "3 64 1 128 8 {out}", "58 0"),
        ("sock_accept", "iii", "3 0 {out}", "58 0"),
        ("sock_recv", "iiiiii", "3 64 1 0 {out} 128", "58 0"),
        ("sock_recv", "iiiiii", "3 64 1 0 {out} 2147483632", "21 0"),
        ("sock_send", "iiiii", "3 64 1 0 {out}", "58 0"),
        ("random_get", "ii", "66000 65536", "0 1"),
        ("random_get", "ii", "66000 65537", "28 1"),
        ("random_get", "ii", "2147483632 8", "21 1"),
        ("fd_advise", "illi", "3 0 0 0", "0 1"),
    ];
    const OUT: u32 = 96;
    let (mut imports, mut calls) = (String::new(), String::new());
    for (index, (name, takes, given, _)) in ASKED.iter().enumerate() {
        let types: Vec<_> = takes.chars().map(|kind| if kind == 'l' { "i64" } else { "i32" }).collect();
        let given = given.replace("{out}", &OUT.to_string());
        let given = types.iter().zip(given.split(' ')).map(|(kind, value)| format!(" ({kind}.const {value})"));
        let given: String = given.collect();
        imports += &format!(
            "(import \"wasi_snapshot_preview1\" \"{name}\" (func $f{index} (param {}) (result i32)))\n",
            types.join(" ")
        );
        calls += &format!("(call $note (i32.const {}) (call $f{index}{given}))\n", b'a' as usize + index);
    }
    // Adds a field named by a letter: the answer in two letters from `@` on, and what is left in one.
    let code = wasm::whole(&format!(
        r#"{imports}
        (import "env" "proxy_add_header_map_value" (func $add (param i32 i32 i32 i32 i32) (result i32)))
        (memory (export "memory") 4)
        (data (i32.const 64) "\80\00\00\00\02\00\00\00\84\00\00\00\03\00\00\00")
        (data (i32.const 128) "one two")
        (func (export "malloc") (param i32) (result i32) (i32.const 131072))
        (func (export "proxy_abi_version_0_2_1"))
        (func $note (param i32 i32)
            (i32.store8 (i32.const 0) (i32.const 120))
            (i32.store8 (i32.const 1) (local.get 0))
            (i32.store8 (i32.const 8) (i32.add (i32.const 64) (i32.shr_u (local.get 1) (i32.const 4))))
            (i32.store8 (i32.const 9) (i32.add (i32.const 64) (i32.and (local.get 1) (i32.const 15))))
            (i32.store8 (i32.const 10) (i32.add (i32.const 64) (i32.load8_u (i32.const {OUT}))))
            (i32.store (i32.const {OUT}) (i32.const 1))
            (drop (call $add (i32.const 0) (i32.const 0) (i32.const 2) (i32.const 8) (i32.const 3))))
        {ON_REQUEST} (i32.store (i32.const {OUT}) (i32.const 1)) {calls} (i32.const 0))"#
    ));
    let code = json!({"local": {"inline_bytes": STANDARD.encode(code)}});
    let site = site::with([wasm::with_code(code, &json!({}), json!({}))]).start();
    assert_eq!(site.get("/", "").status, 200);
    let answers = |index: usize| {
        let noted = seen(&site, &format!("x{}", char::from(b'a' + index as u8)));
        let [high, low, left] = noted.as_bytes() else { panic!("{index}: {noted:?}") };
        format!("{} {}", (high - 64) * 16 + low - 64, left - 64)
    };
    for (index, (name, _, given, wanted)) in ASKED.iter().enumerate() {
        assert_eq!(answers(index), *wanted, "{name} {given}");
    }
}

#[test]
fn ticks_begin_with_a_request_and_end_by_themselves() {
    // A request begins them, having stopped those before, and with the third one the next come in an hour.
    let functions = format!(
        r#"(global $metric (mut i32) (i32.const 0))
        (global $ticks (mut i32) (i32.const 0))
        (func (export "proxy_on_configure") (param i32 i32) (result i32)
            (drop (call $define_metric (i32.const 0) $"ticks" (i32.const 16)))
            (global.set $metric (i32.load (i32.const 16)))
            (i32.const 1))
        {ON_REQUEST}
            (drop (call $tick_period (i32.const 0)))
            (global.set $ticks (i32.const 0))
            (call $digit (i32.const 0) $"x-set" (call $tick_period (i32.const 10)))
            (i32.const 0))
        (func (export "proxy_on_tick") (param i32)
            (drop (call $increment (global.get $metric) (i64.const 1)))
            (global.set $ticks (i32.add (global.get $ticks) (i32.const 1)))
            (if (i32.eq (global.get $ticks) (i32.const 3)) (then (drop (call $tick_period (i32.const 3600000))))))"#
    );
    let site = site(&functions, json!({}), json!({}));
    for ticks in [3, 6] {
        assert_eq!((site.get("/", "").status, seen(&site, "x-set").as_str()), (200, "0"));
        wait_until("three ticks", || site.stat("wasmcustom.ticks") >= ticks);
        assert_eq!(site.stat("wasmcustom.ticks"), ticks);
    }
}

/// Shows its environment in fields of requests.
const ENVIRONMENT: &str = r#"
    (func $show (param i32) (local i32)
        ;; The texts end with a zero.
        (local.set 1 (local.get 0))
        (block $end (loop $next
            (br_if $end (i32.eqz (i32.load8_u (local.get 1))))
            (local.set 1 (i32.add (local.get 1) (i32.const 1)))
            (br $next)))
        (drop (call $add (i32.const 0) $"x-env" (local.get 0) (i32.sub (local.get 1) (local.get 0)))))
    (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32) (local i32)
        (drop (call $environ_sizes (i32.const 16) (i32.const 20)))
        (drop (call $environ (i32.const 210000) (i32.const 220000)))
        (block $end (loop $next
            (br_if $end (i32.ge_u (local.get 3) (i32.load (i32.const 16))))
            (call $show (i32.load (i32.add (i32.const 210000) (i32.shl (local.get 3) (i32.const 2)))))
            (local.set 3 (i32.add (local.get 3) (i32.const 1)))
            (br $next)))
        (i32.const 0))"#;

#[test]
fn a_module_sees_the_variables_that_it_is_given() {
    let variables = json!({"environment_variables": {
        "host_env_keys": ["POSTRIDER_TEST_SEEN", "POSTRIDER_TEST_NOT_SET"],
        "key_values": {"OWN": "one two", "EMPTY": ""},
    }});
    let environment = [("POSTRIDER_TEST_SEEN", "from the host"), ("POSTRIDER_TEST_HIDDEN", "secret")]
        .map(|(n, v)| (n.to_owned(), v.to_owned()));
    let launch = Launch { environment: environment.to_vec(), ..Launch::default() };
    let site = site::with([filter(plugin(ENVIRONMENT, variables, json!({})))]).start_with(Origin::echo("a"), launch);
    assert_eq!(site.get("/", "").status, 200);
    let shown = seen(&site, "x-env");
    let mut shown: Vec<&str> = shown.split('|').collect();
    shown.sort_unstable();
    assert_eq!(shown, ["EMPTY=", "OWN=one two", "POSTRIDER_TEST_SEEN=from the host"]);
}

#[test]
fn configurations_of_every_type_reach_a_module() {
    let functions = format!(
        r#"(func (export "proxy_on_configure") (param i32 i32) (result i32)
            (drop (call $get_buffer (i32.const 7) (i32.const 0) (i32.const 1000) (i32.const 16) (i32.const 20)))
            (i32.store (i32.const 24) (i32.load (i32.const 16)))
            (i32.store (i32.const 28) (i32.load (i32.const 20)))
            (i32.const 1))
        {ON_REQUEST} (drop (call $respond (i32.const 200) (i32.const 0) (i32.const 0)
            (i32.load (i32.const 24)) (i32.load (i32.const 28)) (i32.const 0) (i32.const 0) (i32.const -1))) (i32.const 1))"#
    );
    let of = |kind: &str, more: Value| {
        let mut any = json!({"@type": format!("type.googleapis.com/{kind}")});
        postrider_tests::kit::config::overlay(&mut any, more);
        any
    };
    // Envoy's documentation promises JSON; Envoy itself hands on the bytes.
    let object: &[u8] = if envoy() { b"\x0a\x08\x0a\x01a\x12\x03\x1a\x01b" } else { br#"{"a":"b"}"# };
    for (configuration, wanted) in [
        (of("google.protobuf.StringValue", json!({"value": "text"})), &b"text"[..]),
        (of("google.protobuf.BytesValue", json!({"value": "AAH/"})), &[0, 1, 255]),
        (of("google.protobuf.Struct", json!({"value": {"a": "b"}})), object),
        (of("google.protobuf.UInt32Value", json!({"value": 300})), &[8, 0xac, 2]),
        (of("google.protobuf.Duration", json!({"value": "1.5s"})), &[8, 1, 16, 0x80, 0xca, 0xb5, 0xee, 1]),
        (
            of("envoy.type.v3.Int64Range", json!({"start": 1, "end": -1})),
            &[8, 1, 16, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1],
        ),
    ] {
        let site = site(&functions, json!({}), json!({"configuration": configuration}));
        assert_eq!(site.get("/", "").body, wanted, "{configuration}");
    }
}

#[test]
fn a_module_of_the_first_version_waits_and_goes_on_both_ways() {
    let service = Origin::fixed("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    let text = json!({"@type": "type.googleapis.com/google.protobuf.StringValue", "value": "configured"});
    let config = json!({
        "name": "plugin", "root_id": "root", "configuration": text,
        "vm_config": {"vm_id": "vm", "runtime": "envoy.wasm.runtime.v8", "code": {"local": {"filename": wasm::module("c", "old")}}},
    });
    let routes = json!([
        {"match": {"path": "/moved"}, "route": {"cluster": "origin"}},
        {"match": {"prefix": "/"}, "direct_response": {"status": 404}},
    ]);
    let site = site::with([filter(config)]).routes(routes).cluster("service", &[service.address], json!({})).start();
    for round in 1..=3 {
        let answer = site.get("/", "");
        assert_eq!((answer.status, answer.header("x-asked")), (200, "yes"), "{round}");
        let request = site.origin.requests().pop().unwrap();
        assert_eq!(request.target, "/moved", "the route was looked for again");
        assert_eq!((seen(&site, "x-configured").as_str(), seen(&site, "x-asked").as_str()), ("configured", "yes"));
        assert_eq!(service.requests().len(), 2 * round);
    }
}

#[test]
fn modules_filter_connections_in_real_languages() {
    for language in wasm::complete_languages() {
        let config = json!({
            "name": "lines", "root_id": "",
            "vm_config": {"runtime": "envoy.wasm.runtime.v8", "code": {"local": {"filename": wasm::module(language, "lines")}}},
        });
        let network =
            extension("envoy.filters.network.wasm", "filters.network.wasm.v3.Wasm", json!({"config": config}));
        let origin = Origin::tcp_echo("");
        let tcp = tcp_filter(json!({"stat_prefix": "t", "cluster": "origin"}));
        let config = Config::new()
            .listener("tcp", json!({"filter_chains": [{"filters": [network, tcp]}]}))
            .cluster("origin", &[origin.address]);
        if !envoy() {
            // Compiling a module of Go takes seconds on a busy machine; what was compiled is kept.
            let folder = TempDir::new();
            let file = folder.write("config.yaml", config.to_yaml());
            assert_eq!(run(&["validate", file.to_str().unwrap()]).code, Some(0), "{language}");
        }
        let proxy = Proxy::start(&config);
        for text in ["hello", "again"] {
            let mut client = RawClient::connect(proxy.address("tcp"));
            client.send(text);
            assert_eq!(client.read_exact(5).unwrap(), text.to_uppercase().as_bytes(), "{language}");
            client.half_close();
            assert!(client.closed(), "{language}");
        }
        proxy.wait_stat("wasmcustom.lines.bytes", 10);
        proxy.wait_stat("wasmcustom.lines.ends", 2);
    }
}

#[test]
fn modules_are_told_of_records_in_real_languages() {
    // The SDK for Go has no word for it.
    for language in wasm::complete_languages().into_iter().filter(|language| *language != "go") {
        let config = json!({
            "name": "lines", "root_id": "",
            "vm_config": {"runtime": "envoy.wasm.runtime.v8", "code": {"local": {"filename": wasm::module(language, "lines")}}},
        });
        let logger =
            extension("envoy.access_loggers.wasm", "access_loggers.wasm.v3.WasmAccessLog", json!({"config": config}));
        let folder = TempDir::new();
        let beside = file_access_log(&folder.path().join("log"), json!({}));
        let site = site::with([]).manager(json!({"access_log": [logger, beside]})).start();
        for _ in 0..3 {
            assert_eq!(site.get("/", "").status, 200, "{language}");
        }
        site.proxy.wait_stat("wasmcustom.lines.records", 3);
    }
}
