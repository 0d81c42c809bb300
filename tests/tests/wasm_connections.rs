//! Modules of a few lines as filters of connections and as access loggers: what they see, and what becomes of the bytes.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use postrider_tests::kit::config::{extension, file_access_log, http_filter, tcp_filter};
use postrider_tests::kit::{Config, Origin, Proxy, RawClient, TempDir, wait_until};
use postrider_tests::wasm::{text_module, whole};
use postrider_tests::{envoy, get, postrider_only};
use serde_json::{Value, json};

/// A plugin's configuration with that module and more fields.
fn plugin(functions: &str, more: Value) -> Value {
    let mut config = json!({
        "name": "plugin", "root_id": "root",
        "vm_config": {
            "vm_id": "vm", "runtime": "envoy.wasm.runtime.v8",
            "code": {"local": {"inline_bytes": STANDARD.encode(text_module("0_2_1", functions))}},
        },
    });
    for (key, value) in more.as_object().unwrap() {
        config[key] = value.clone();
    }
    json!({"config": config})
}

fn network(functions: &str, more: Value) -> Value {
    extension("envoy.filters.network.wasm", "filters.network.wasm.v3.Wasm", plugin(functions, more))
}

fn logger(functions: &str) -> Value {
    extension("envoy.access_loggers.wasm", "access_loggers.wasm.v3.WasmAccessLog", plugin(functions, json!({})))
}

/// A TCP proxy with that module in front of it.
struct Line {
    proxy: Proxy,
    origin: Origin,
}

fn carried(origin: Origin, filters: &[Value], tcp: Value) -> Line {
    let mut fields = json!({"stat_prefix": "t", "cluster": "origin"});
    for (key, value) in tcp.as_object().unwrap() {
        fields[key] = value.clone();
    }
    let filters: Vec<Value> = filters.iter().cloned().chain([tcp_filter(fields)]).collect();
    let config = Config::new()
        .listener("tcp", json!({"filter_chains": [{"filters": filters}]}))
        .cluster("origin", &[origin.address]);
    Line { proxy: Proxy::start(&config), origin }
}

fn line(functions: &str) -> Line {
    carried(Origin::tcp_echo(""), &[network(functions, json!({}))], json!({}))
}

impl Line {
    fn client(&self) -> RawClient {
        RawClient::connect(self.proxy.address("tcp"))
    }
}

const ON_NEW: &str = r#"(func (export "proxy_on_new_connection") (param i32) (result i32)"#;
const ON_DOWN: &str = r#"(func (export "proxy_on_downstream_data") (param i32 i32 i32) (result i32)"#;
const ON_UP: &str = r#"(func (export "proxy_on_upstream_data") (param i32 i32 i32) (result i32)"#;

/// What is held of buffer `kind` begins with that letter.
fn begins(kind: u32, letter: char) -> String {
    let letter = u32::from(letter);
    format!(
        "(if (result i32) (i32.eqz (local.get 1)) (then (i32.const 0)) (else
            (drop (call $get_buffer (i32.const {kind}) (i32.const 0) (i32.const 100) (i32.const 16) (i32.const 20)))
            (i32.eq (i32.load8_u (call $place)) (i32.const {letter}))))"
    )
}

#[test]
fn bytes_are_seen_and_changed_both_ways() {
    let line = line(&format!(
        r#"{ON_DOWN}
            (if (local.get 1) (then
                (drop (call $set_buffer (i32.const 2) (i32.const 0) (i32.const 0) $"<"))
                (drop (call $set_buffer (i32.const 2) (i32.const 1000) (i32.const 0) $">"))))
            (i32.const 0))
        {ON_UP}
            (if {} (then (drop (call $set_buffer (i32.const 3) (i32.const 0) (i32.const 1000) $"swapped"))))
            (i32.const 0))"#,
        begins(3, '<')
    ));
    let mut client = line.client();
    client.send("hello");
    assert_eq!(client.read_exact(7).unwrap(), b"swapped");
    assert_eq!(line.origin.bytes(0), b"<hello>");
    client.half_close();
    assert!(client.closed());
}

/// What comes from the client has that in front.
fn marks(mark: &str) -> Vec<u8> {
    let functions = format!(
        r#"{ON_DOWN}
            (if (local.get 1) (then (drop (call $set_buffer (i32.const 2) (i32.const 0) (i32.const 0) $"{mark}"))))
            (i32.const 0))"#
    );
    text_module("0_2_1", &functions)
}

#[test]
fn a_module_that_is_replaced_in_its_place_sees_new_connections() {
    if envoy() {
        return;
    }
    let folder = TempDir::new();
    let path = folder.path().join("mine.wasm");
    std::fs::write(&path, marks("1")).unwrap();
    let filter = network(
        "",
        json!({"vm_config": {
            "vm_id": "vm", "runtime": "envoy.wasm.runtime.v8", "code": {"local": {"filename": path}},
        }}),
    );
    let line = carried(Origin::tcp_echo(""), &[filter], json!({}));
    let first = |client: &mut RawClient| {
        client.send("x");
        client.read_exact(2).unwrap()
    };
    let mut old = line.client();
    assert_eq!(first(&mut old), b"1x");
    let next = folder.path().join("next.wasm");
    std::fs::write(&next, marks("2")).unwrap();
    std::fs::rename(&next, &path).unwrap();
    wait_until("the new code", || first(&mut line.client()) == b"2x");
    assert_eq!(first(&mut old), b"1x", "a connection keeps its filters");
}

#[test]
fn routes_change_under_connections_that_a_module_sees() {
    if envoy() {
        return;
    }
    let of = |status: u16| {
        let http = http_filter(json!({"route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [
            {"match": {"prefix": "/"}, "direct_response": {"status": status}},
        ]}]}}));
        let sees = format!("{COUNT} {ON_NEW} (call $count $\"new\") (i32.const 0))");
        let filters = [network(&sees, json!({})), http];
        Config::new().listener("http", json!({"filter_chains": [{"filters": filters}]}))
    };
    let mut proxy = Proxy::start(&of(201));
    let mut client = RawClient::connect(proxy.address("http"));
    assert_eq!(client.exchange(get("/")).status, 201);
    assert_eq!(proxy.reload(of(202).to_yaml())["outcome"], "accepted");
    wait_until("the next routes", || client.exchange(get("/")).status == 202);
    assert_eq!(proxy.stats().value("wasmcustom.new"), 1);
}

#[test]
fn what_is_stopped_comes_again_with_what_follows() {
    // A piece is let through once eight bytes are there.
    let line = line(&format!(
        "{ON_DOWN} (i32.and (i32.lt_u (local.get 1) (i32.const 8)) (i32.gt_u (local.get 1) (i32.const 0))))"
    ));
    let mut client = line.client();
    client.send("one");
    line.origin.wait_connections(1);
    client.send("two34");
    assert_eq!(client.read_exact(8).unwrap(), b"onetwo34");
}

#[test]
fn a_module_lets_go_on_what_it_stopped() {
    let line = line(&format!("{ON_DOWN} (drop (call $continue (i32.const 2))) (i32.const 1))"));
    let mut client = line.client();
    for text in ["one", "two"] {
        client.send(text);
        assert_eq!(client.read_exact(3).unwrap(), text.as_bytes());
    }
}

#[test]
fn a_module_ends_a_connection() {
    let line =
        line(&format!("{ON_DOWN} (if {} (then (drop (call $close (i32.const 2))))) (i32.const 0))", begins(2, 'x')));
    let mut client = line.client();
    client.send("a");
    assert_eq!(client.read_exact(1).unwrap(), b"a");
    client.send("x");
    assert!(client.closed());
    assert_eq!(line.origin.bytes(0), b"a", "what ended it goes nowhere");
}

#[test]
fn a_connection_that_is_held_back_begins_when_data_passes() {
    let echo = extension("envoy.filters.network.echo", "filters.network.echo.v3.Echo", json!({}));
    let filter = network(&format!("{ON_NEW} (i32.const 1))"), json!({}));
    let config = Config::new().listener("tcp", json!({"filter_chains": [{"filters": [filter, echo]}]}));
    let proxy = Proxy::start(&config);
    let mut client = RawClient::connect(proxy.address("tcp"));
    client.send("now");
    assert_eq!(client.read_exact(3).unwrap(), b"now");
}

/// Ends with a trap when the client says `x`.
fn trapping() -> String {
    format!("{ON_DOWN} (if {} (then (unreachable))) (i32.const 0))", begins(2, 'x'))
}

#[test]
fn a_trap_ends_the_connection_and_the_policy_decides_on_the_next_ones() {
    for (policy, serves) in [("FAIL_CLOSED", false), ("FAIL_OPEN", true)] {
        let origin = Origin::tcp_echo("");
        let filter = network(&trapping(), json!({"failure_policy": policy}));
        // One worker: each has a machine of its own.
        let line = carried(origin, &[filter], json!({}));
        let mut client = line.client();
        client.send("a");
        assert_eq!(client.read_exact(1).unwrap(), b"a", "{policy}");
        client.send("x");
        assert!(client.closed(), "{policy}");
        let mut client = line.client();
        let _ = client.try_send(b"a");
        assert_eq!(client.read_exact(1).is_ok(), serves, "{policy}");
    }
}

#[test]
fn the_admin_says_which_connections_end_when_a_module_fails() {
    if !postrider_only() {
        return;
    }
    for (policy, said) in [
        ("FAIL_CLOSED", "on error end the connection; a call has"),
        ("FAIL_RELOAD", "on error end the connection; a call has"),
        ("FAIL_OPEN", "on error end the connection, and let the next ones pass; a call has"),
    ] {
        let line = carried(Origin::tcp_echo(""), &[network(&trapping(), json!({"failure_policy": policy}))], json!({}));
        let text = line.proxy.admin_get("/plugins").text().to_owned();
        assert!(text.contains(said), "{policy}: {text}");
    }
}

#[test]
fn the_admin_does_not_say_of_a_log_that_it_answers_requests() {
    if !postrider_only() {
        return;
    }
    let line = carried(Origin::tcp_echo(""), &[], json!({"access_log": [logger(&counting())]}));
    let text = line.proxy.admin_get("/plugins").text().to_owned();
    assert!(text.contains("on error leave the record out; a call has"), "{text}");
}

#[test]
fn requests_pass_a_filter_of_bytes() {
    // `hello` of the client and `world` of the origin are written in capitals.
    let origin = Origin::fixed("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nworld");
    let functions = format!(
        r#"{ON_DOWN} (if (local.get 1) (then (drop (call $set_buffer (i32.const 2) (i32.const 0) (i32.const 100000)
                $"GET /other HTTP/1.1\0d\0ahost: test\0d\0a\0d\0a")))) (i32.const 0))
        {ON_UP} (if (local.get 1) (then (drop (call $set_buffer (i32.const 3) (i32.const 100000) (i32.const 0) $"!"))))
            (i32.const 0))"#
    );
    let http = http_filter(json!({"route_config": {"virtual_hosts": [{
        "name": "all", "domains": ["*"], "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "origin"}}],
    }]}}));
    let filters = [network(&functions, json!({})), http];
    let config = Config::new()
        .listener("http", json!({"filter_chains": [{"filters": filters}]}))
        .cluster("origin", &[origin.address]);
    let proxy = Proxy::start(&config);
    let mut client = RawClient::connect(proxy.address("http"));
    client.send(get("/first"));
    let answer = client.response("GET").unwrap();
    assert_eq!((answer.status, answer.text()), (200, "world"));
    assert_eq!(client.read_exact(1).unwrap(), b"!", "behind the answer");
    assert_eq!(origin.requests()[0].target, "/other");
}

/// Counts under a name.
const COUNT: &str = r#"(func $count (param i32 i32)
    (drop (call $define_metric (i32.const 0) (local.get 0) (local.get 1) (i32.const 32)))
    (drop (call $increment (i32.load (i32.const 32)) (i64.const 1))))"#;

#[test]
fn the_ends_of_a_connection_are_told_in_their_order() {
    let step = |name: &str| format!(r#"(call $step $"{name}")"#);
    let functions = format!(
        r#"{COUNT}
        (global $end (mut i32) (i32.const 50000))
        (func $step (param i32 i32)
            (memory.copy (global.get $end) (local.get 0) (local.get 1))
            (global.set $end (i32.add (global.get $end) (local.get 1))))
        {ON_NEW} {} (i32.const 0))
        {ON_DOWN} (if (local.get 2) (then {})) (i32.const 0))
        {ON_UP} (if (local.get 2) (then {})) (i32.const 0))
        (func (export "proxy_on_upstream_connection_close") (param i32 i32) {})
        (func (export "proxy_on_downstream_connection_close") (param i32 i32)
            (if (i32.eq (local.get 1) (i32.const 1)) (then {}) (else {})))
        (func (export "proxy_on_done") (param i32) (result i32)
            (if (i32.gt_u (local.get 0) (i32.const 1)) (then {})) (i32.const 1))
        (func (export "proxy_on_log") (param i32) {})
        (func (export "proxy_on_delete") (param i32)
            (if (i32.gt_u (local.get 0) (i32.const 1)) (then
                {} (call $count (i32.const 50000) (i32.sub (global.get $end) (i32.const 50000)))
                (global.set $end (i32.const 50000)))))"#,
        step("n"),
        step("d"),
        step("u"),
        step("U"),
        step("P"),
        step("C"),
        step("o"),
        step("l"),
        step("x"),
    );
    let line = line(&functions);
    let mut client = line.client();
    client.send("a");
    client.read_exact(1).unwrap();
    client.half_close();
    assert!(client.closed());
    // The client ended first: the end of the other side is the proxy's.
    line.proxy.wait_stat("wasmcustom.nduUPolx", 1);
    let origin = Origin::start(|connection| {
        connection.read_exact(1);
        connection.write(b"b");
    });
    let line = carried(origin, &[network(&functions, json!({}))], json!({}));
    let mut client = line.client();
    client.send("a");
    assert_eq!(client.read_to_end().unwrap(), b"b");
    client.half_close();
    line.proxy.wait_stat("wasmcustom.nuUdColx", 1);
}

#[test]
fn properties_of_a_connection_are_known_and_written_ones_reach_its_log() {
    let functions = format!(
        r#"{ON_DOWN}
            (if (i32.eqz (call $get_property $"source\00address" (i32.const 16) (i32.const 20)))
                (then (drop (call $set_property $"peer" (call $place) (call $length)))))
            (if (call $get_property $"request\00path" (i32.const 16) (i32.const 20))
                (then (drop (call $set_property $"path" $"none"))))
            (i32.const 0))
        {ON_UP}
            (if (i32.eqz (call $get_property $"upstream\00address" (i32.const 16) (i32.const 20)))
                (then (drop (call $set_property $"upstream" (call $place) (call $length)))))
            (i32.const 0))"#
    );
    let folder = TempDir::new();
    let path = folder.path().join("log");
    let format =
        "%FILTER_STATE(wasm.peer:PLAIN)% %FILTER_STATE(wasm.path:PLAIN)% %FILTER_STATE(wasm.upstream:PLAIN)%\n";
    let log = file_access_log(&path, json!({"log_format": {"text_format_source": {"inline_string": format}}}));
    let line = carried(Origin::tcp_echo(""), &[network(&functions, json!({}))], json!({"access_log": [log]}));
    let mut client = line.client();
    let peer = client.local_addr();
    client.send("a");
    client.read_exact(1).unwrap();
    client.half_close();
    assert!(client.closed());
    let expected = format!("{peer} none {}\n", line.origin.address);
    wait_until("the line is there", || std::fs::read_to_string(&path).is_ok_and(|text| text == expected));
}

/// `set_envoy_filter_state` for the cluster `other`, as long as that says.
fn choosing(span: u8) -> Vec<u8> {
    let argument = format!("\\0a\\17envoy.tcp_proxy.cluster\\12\\05other\\18\\{span:02x}");
    whole(&format!(
        r#"(import "env" "proxy_call_foreign_function" (func $foreign (param i32 i32 i32 i32 i32 i32) (result i32)))
        (memory (export "memory") 1)
        (func (export "malloc") (param i32) (result i32) (i32.const 0))
        (func (export "proxy_abi_version_0_2_1"))
        {ON_NEW}
            (call $foreign $"set_envoy_filter_state" $"{argument}" (i32.const 0) (i32.const 0)))"#
    ))
}

#[test]
fn a_module_chooses_the_cluster_of_a_connection() {
    for span in 0..3 {
        let other = Origin::tcp_echo("other");
        let mut filter = network("", json!({}));
        let code = &mut filter["typed_config"]["config"]["vm_config"]["code"];
        *code = json!({"local": {"inline_bytes": STANDARD.encode(choosing(span))}});
        let tcp = tcp_filter(json!({"stat_prefix": "t", "cluster": "origin"}));
        let origin = Origin::tcp_echo("first");
        let config = Config::new()
            .listener("tcp", json!({"filter_chains": [{"filters": [filter, tcp]}]}))
            .cluster("origin", &[origin.address])
            .cluster("other", &[other.address]);
        let proxy = Proxy::start(&config);
        let mut client = RawClient::connect(proxy.address("tcp"));
        assert_eq!(client.read_exact(5).unwrap(), b"other", "{span}");
    }
}

/// Counts a record under what the request calls itself, with the status, or under `tcp` for one of a connection.
fn counting() -> String {
    format!(
        r#"{COUNT}
        (func (export "proxy_on_log") (param i32)
            (if (call $get (i32.const 0) $":path" (i32.const 16) (i32.const 20))
                (then
                    (if (i32.eqz (call $get_property $"upstream\00address" (i32.const 16) (i32.const 20)))
                        (then (call $count $"tcp"))))
                (else
                    (call $count (i32.add (call $place) (i32.const 1)) (i32.sub (call $length) (i32.const 1)))
                    (drop (call $get (i32.const 2) $":status" (i32.const 16) (i32.const 20)))
                    (call $count (call $place) (call $length))
                    (if (i32.eqz (call $get (i32.const 2) $"x-origin" (i32.const 16) (i32.const 20)))
                        (then (call $count $"answered"))))))"#
    )
}

#[test]
fn a_module_logs_requests() {
    let origin = Origin::echo("a");
    let log = logger(&counting());
    let filtered = json!({"filter": {"status_code_filter": {"comparison": {"op": "EQ", "value":
        {"default_value": 404, "runtime_key": "none"}}}}});
    let mut only = logger(&counting().replace("$\"answered\"", "$\"never\""));
    only["filter"] = filtered["filter"].clone();
    only["typed_config"]["config"]["vm_config"]["vm_id"] = json!("other");
    let hcm = json!({
        "access_log": [log, only],
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [
            {"match": {"prefix": "/own"}, "direct_response": {"status": 404}},
            {"match": {"prefix": "/"}, "route": {"cluster": "origin"}},
        ]}]},
    });
    let proxy = Proxy::start(&Config::new().http(hcm).cluster("origin", &[origin.address]));
    assert_eq!(proxy.get("/one").status, 200);
    assert_eq!(proxy.get("/one").status, 200);
    assert_eq!(proxy.get("/own").status, 404);
    // The second logger sees the last one only.
    proxy.wait_stat("wasmcustom.own", 2);
    let stats = proxy.stats();
    let seen = ["one", "200", "404", "answered"].map(|name| stats.value(&format!("wasmcustom.{name}")));
    assert_eq!(seen, [2, 2, 2, 2]);
}

#[test]
fn a_module_logs_connections() {
    let line = carried(Origin::tcp_echo(""), &[], json!({"access_log": [logger(&counting())]}));
    let mut client = line.client();
    client.send("a");
    client.read_exact(1).unwrap();
    client.half_close();
    assert!(client.closed());
    line.proxy.wait_stat("wasmcustom.tcp", 1);
}

#[test]
fn a_module_that_refuses_its_configuration_is_refused() {
    if envoy() {
        return;
    }
    let refuses = r#"(func (export "proxy_on_configure") (param i32 i32) (result i32) (i32.const 0))"#;
    for filters in [vec![network(refuses, json!({})), tcp_filter(json!({"stat_prefix": "t", "cluster": "c"}))], {
        vec![tcp_filter(json!({"stat_prefix": "t", "cluster": "c", "access_log": [logger(refuses)]}))]
    }] {
        let config = Config::new().listener("tcp", json!({"filter_chains": [{"filters": filters}]})).cluster("c", &[]);
        let folder = TempDir::new();
        let path = folder.path().join("proxy.yaml");
        std::fs::write(&path, config.to_yaml()).unwrap();
        let checked = postrider_tests::kit::proxy::run(&["validate", path.to_str().unwrap()]);
        let text = format!("{}{}", checked.stdout, checked.stderr);
        assert!(text.contains("the module refuses its configuration"), "{text}");
    }
}

/// Counts each record under that name.
fn tallies(name: &str) -> Vec<u8> {
    text_module("0_2_1", &format!(r#"{COUNT} (func (export "proxy_on_log") (param i32) (call $count $"{name}"))"#))
}

#[test]
fn a_logger_that_is_replaced_in_its_place_logs() {
    if envoy() {
        return;
    }
    let folder = TempDir::new();
    let path = folder.path().join("mine.wasm");
    std::fs::write(&path, tallies("first")).unwrap();
    let mut log = logger("");
    log["typed_config"]["config"]["vm_config"]["code"] = json!({"local": {"filename": path}});
    let tcp = carried(Origin::tcp_echo(""), &[], json!({"access_log": [log]}));
    let http = Proxy::start(&Config::new().http(json!({"access_log": [log], "route_config": {"virtual_hosts": [
        {"name": "all", "domains": ["*"], "routes": [{"match": {"prefix": "/"}, "direct_response": {"status": 204}}]},
    ]}})));
    let record = || {
        let mut client = tcp.client();
        client.send("a");
        client.read_exact(1).unwrap();
        http.get("/");
    };
    let counted = |name: &str| {
        let name = format!("wasmcustom.{name}");
        [&tcp.proxy, &http].map(|proxy| proxy.stats().value(&name))
    };
    record();
    wait_until("the first code's records", || counted("first") == [1, 1]);
    let next = folder.path().join("next.wasm");
    std::fs::write(&next, tallies("second")).unwrap();
    std::fs::rename(&next, &path).unwrap();
    wait_until("the second code's records", || {
        record();
        counted("second").iter().all(|count| *count > 0)
    });
}
