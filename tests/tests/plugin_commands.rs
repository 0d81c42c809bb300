//! `postrider plugin new`, `test` and `run`, as somebody who writes a plugin uses them.

use std::time::{Duration, Instant};

use postrider_tests::kit::proxy::{Launch, run};
use postrider_tests::kit::{Origin, Proxy, TempDir};
use postrider_tests::{get, postrider_only};
use serde_json::json;

#[test]
fn a_plugin_that_is_no_script_is_refused_by_what_it_is() {
    if !postrider_only() {
        return;
    }
    let directory = TempDir::new();
    let refusals = [
        ("\0asm\u{1}\0\0\0", "rider", "a WebAssembly module and no script"),
        ("\u{7f}ELF", "envoy-lua", "machine code and no script"),
        ("\u{1b}LJ\u{2}", "auto", "compiled Lua"),
        ("\0asm\u{1}\0\0\0\n", "auto", "the module does not load"),
        ("\u{7f}ELF", "auto", "plugin.bin"),
    ];
    for (bytes, runtime, what) in refusals {
        let file = directory.write("plugin.bin", bytes);
        let tried = run(&["plugin", "run", file.to_str().unwrap(), "--runtime", runtime]);
        assert_ne!(tried.code, Some(0));
        assert!(tried.stderr.contains(what), "{what:?} in {}", tried.stderr);
    }
    let go = directory.path().join("go.so");
    std::fs::write(&go, b"\x7fELF ... \xff Go buildinf: ...").unwrap();
    let tried = run(&["plugin", "run", go.to_str().unwrap()]);
    assert!(tried.code == Some(1) && tried.stderr.contains("go.so"), "{}", tried.stderr);
}

/// Logs what it was configured with; edits a request's head and body, asks a service, answers for itself and traps, by the
/// path; edits the response.
const MODULE: &str = r#"
(import "env" "proxy_log" (func $log (param i32 i32 i32) (result i32)))
(import "env" "proxy_get_header_map_value" (func $get (param i32 i32 i32 i32 i32) (result i32)))
(import "env" "proxy_add_header_map_value" (func $add (param i32 i32 i32 i32 i32) (result i32)))
(import "env" "proxy_replace_header_map_value" (func $replace (param i32 i32 i32 i32 i32) (result i32)))
(import "env" "proxy_remove_header_map_value" (func $remove (param i32 i32 i32) (result i32)))
(import "env" "proxy_get_buffer_bytes" (func $get_buffer (param i32 i32 i32 i32 i32) (result i32)))
(import "env" "proxy_set_buffer_bytes" (func $set_buffer (param i32 i32 i32 i32 i32) (result i32)))
(import "env" "proxy_send_local_response" (func $respond (param i32 i32 i32 i32 i32 i32 i32 i32) (result i32)))
(import "env" "proxy_continue_stream" (func $continue (param i32) (result i32)))
(import "env" "proxy_set_effective_context" (func $effective (param i32) (result i32)))
(import "env" "proxy_http_call" (func $http_call (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32)))
(memory (export "memory") 4)
(global $heap (mut i32) (i32.const 131072))
(func (export "malloc") (param i32) (result i32)
    (global.get $heap)
    (global.set $heap (i32.add (global.get $heap) (i32.and (i32.add (local.get 0) (i32.const 15)) (i32.const -8)))))
(func (export "proxy_abi_version_0_2_1"))
(func $place (result i32) (i32.load (i32.const 16)))
(func $length (result i32) (i32.load (i32.const 20)))
(func (export "proxy_on_configure") (param i32 i32) (result i32)
    (drop (call $get_buffer (i32.const 7) (i32.const 0) (i32.const 99) (i32.const 16) (i32.const 20)))
    (drop (call $log (i32.const 1) (call $place) (call $length)))
    (i32.ne (local.get 1) (i32.const 4)))
(func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
    (drop (call $get (i32.const 0) $":path" (i32.const 16) (i32.const 20)))
    (if (i32.eq (call $length) (i32.const 5)) (then (unreachable)))
    (if (i32.eq (call $length) (i32.const 7)) (then
        (drop (call $respond (i32.const 403) $"not_allowed" $"denied" $"" (i32.const -1)))
        (return (i32.const 1))))
    (if (i32.eq (call $length) (i32.const 6)) (then
        (loop $forever (br $forever))))
    (drop (call $replace (i32.const 0) $"x-old" $"new"))
    (drop (call $remove (i32.const 0) $"content-length"))
    (if (i32.ne (call $length) (i32.const 4)) (then (return (i32.const 0))))
    (i32.store (i32.const 48) (local.get 0))
    (drop (call $http_call $"auth"
        $"\03\00\00\00\05\00\00\00\02\00\00\00\07\00\00\00\03\00\00\00\0a\00\00\00\01\00\00\00:path\00/c\00:method\00GET\00:authority\00a\00"
        (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 5000) (i32.const 32)))
    (i32.const 1))
(func (export "proxy_on_http_call_response") (param i32 i32 i32 i32 i32)
    (drop (call $effective (i32.load (i32.const 48))))
    (drop (call $get_buffer (i32.const 4) (i32.const 0) (i32.const 99) (i32.const 16) (i32.const 20)))
    (drop (call $add (i32.const 0) $"x-auth" (call $place) (call $length)))
    (drop (call $continue (i32.const 0))))
(func (export "proxy_on_request_body") (param i32 i32 i32) (result i32)
    (if (i32.eqz (local.get 2)) (then (return (i32.const 1))))
    (drop (call $set_buffer (i32.const 0) (i32.const 0) (i32.const 0) $"longer "))
    (i32.const 0))
(func (export "proxy_on_response_headers") (param i32 i32 i32) (result i32)
    (drop (call $add (i32.const 2) $"x-seen" $"yes"))
    (i32.const 0))
"#;

/// What a run prints, which must hold these parts.
fn shows(arguments: &[&str], code: i32, parts: &[&str]) {
    let tried = run(&[&["plugin", "run"], arguments].concat());
    let (out, error) = (&tried.stdout, &tried.stderr);
    assert_eq!(tried.code, Some(code), "{arguments:?}: {out}{error}");
    for part in parts {
        assert!(out.contains(part) || error.contains(part), "{part:?} is not in:\n{out}{error}");
    }
}

#[test]
fn a_webassembly_module_is_tried_out_as_scripts_are() {
    if !postrider_only() {
        return;
    }
    let directory = TempDir::new();
    let file = directory.path().join("mark.wasm");
    std::fs::write(&file, postrider_tests::wasm::whole(MODULE)).unwrap();
    let file = file.to_str().unwrap();
    shows(
        &[file, "--request", "POST /a", "-H", "x-old: 1", "--body", "body", "--config", r#"{"word": 1}"#],
        0,
        &[
            "  ~ x-old: 1 -> new\n",
            "  - content-length: 4\n",
            "  ~ body of 4 bytes: \"body\"\n    -> 11 bytes: \"longer body\"\n",
            "  + x-seen: yes\n",
            "  debug    {\"word\":1}\n",
            "  request head ",
            "  request body ",
            "memory of the machine: ",
        ],
    );
    let asked = ["--call", "auth=200:ann"];
    let answered = ["  auth: GET /c -> 200\n", "  + x-auth: ann\n", "  ~ x-old: 1 -> new\n"];
    shows(&[&[file, "--request", "GET /ask", "-H", "x-old: 1"][..], &asked[..]].concat(), 0, &answered);
    shows(
        &[file, "--request", "GET /ask"],
        0,
        &["  auth: GET /c -> no answer (say how it ends with --call auth=200)\n"],
    );
    shows(
        &[file, "--request", "GET /denied"],
        0,
        &["response: the plugin's own (", "not_allowed", "denied", "x-seen: yes"],
    );
    shows(&[file, "--request", "GET /trap"], 1, &["errors\n", "unreachable", "response"]);
    // As a manifest says it.
    let rules = r#"{"on_error": 502, "budget": {"cpu": "0.01s"}}"#;
    shows(&[file, "--request", "GET /loops", "--rules", rules], 1, &["CPU", ":status: 502", "wasm_fail_stream"]);
    shows(&[file, "--request", "GET /ask", "--rules", r#"{"clusters": []}"#], 1, &["may not call the cluster `auth`"]);
    shows(&[file, "--rules", r#"{"configuration": "none"}"#], 1, &["does not start", "it logged (debug): none"]);
    let json = run(&["plugin", "run", file, "--json", "--request", "GET /ask", "--call", "auth=200:ann"]);
    assert!(json.stdout.contains(r#""x-auth""#) && json.stdout.contains(r#""outcome": "answer""#), "{}", json.stdout);
}

#[test]
fn a_native_module_is_tried_out_as_scripts_are() {
    if !postrider_only() {
        return;
    }
    let module = postrider_tests::modules::script().to_str().unwrap();
    let run_with = |what: &str, code: i32, parts: &[&str]| {
        let asked = format!("x-do: {what}");
        shows(&[module, "--rules", r#"{"filter_name": "script"}"#, "-H", &asked], code, parts);
    };
    run_with(
        "qh set 0 x-new fine; qh log 1 said; ah set 2 x-seen yes; ah note 1 a b",
        0,
        &["  + x-new: fine\n", "  debug    said\n", "  + x-seen: yes\n", "dynamic metadata\n"],
    );
    run_with(
        "qh respond 403 why denied; qh answer 1",
        0,
        &["response: the plugin's own (why)", ":status: 403", "denied"],
    );
    let asks = "x-do: qh call auth /c ~ 1000; qh answer 3; call set 0 x-auth yes; call resume q";
    let (script, call) = (r#"{"filter_name": "script"}"#, "auth=200:ann");
    shows(
        &[module, "--rules", script, "-H", asks, "--call", call],
        0,
        &["  auth: GET /c -> 200\n", "  + x-auth: yes\n"],
    );
    shows(&[module, "--rules", script, "-H", "x-do: qh answer 3"], 1, &["stuck: the request waits"]);
    let noting = postrider_tests::modules::filters().to_str().unwrap();
    let configured = |config: &str, part: &str| {
        shows(&[noting, "--rules", r#"{"filter_name": "notes"}"#, "--config", config], 0, &[part]);
    };
    configured(r#"{"a": 1}"#, "  + x-config: {\"a\":1}\n");
    configured(r#""some words""#, "  + x-config: some words\n");
    shows(&[module, "--rules", r#"{"budget": {"cpu": "1s"}}"#], 1, &["keeps no budget"]);
}

#[test]
fn a_go_library_is_tried_out_as_scripts_are() {
    if !postrider_only() {
        return;
    }
    let directory = TempDir::new();
    for sdk in ["sdk31", "sdk38"] {
        let library = postrider_tests::golang::library(sdk);
        let run_with = |plugin: &str, config: serde_json::Value, more: &[&str], code: i32, parts: &[&str]| {
            let (rules, config) = (format!(r#"{{"plugin_name": "{plugin}"}}"#), config.to_string());
            let first = [library.to_str().unwrap(), "--rules", &rules, "--config", &config];
            shows(&[&first[..], more].concat(), code, parts);
        };
        let edits = |phases: serde_json::Value| {
            json!({
                "async": phases,
                "decode_headers": [{"op": "set", "key": "x-new", "value": "fine"}],
                "encode_headers": [{"op": "set", "key": "x-seen", "value": "yes"}],
            })
        };
        let edited = ["  + x-new: fine\n", "  + x-seen: yes\n", "  request head ", "  response head "];
        run_with("script", edits(json!([])), &[], 0, &edited);
        // On goroutines, which are waited for.
        run_with("script", edits(json!(["decode_headers", "encode_headers"])), &[], 0, &edited);
        let bodies = ["--request", "POST /", "--body", "banana", "--response-body", "ana"];
        run_with(
            "body",
            json!({"find": "a", "replace": "bb"}),
            &bodies,
            0,
            &["    -> 9 bytes: \"bbbnbbnbb\"\n", "    -> 5 bytes: \"bbnbb\"\n", "  request body "],
        );
        let reply = json!([{"op": "reply", "code": 418, "body": "no", "details": "why"}]);
        let answered = ["response: the plugin's own (", ":status: 418", "body of 2 bytes: \"no\""];
        run_with("script", json!({"decode_headers": reply}), &[], 0, &answered);
        let panic = json!([{"op": "panic", "value": "told to"}]);
        for phases in [json!([]), json!(["decode_headers"])] {
            let config = json!({"async": phases, "decode_headers": panic});
            run_with("script", config, &[], 1, &["errors\n  panic: told to\n", "script.go:"]);
        }
        // It lets nothing go on before there is that file.
        let never = directory.path().join("never");
        let waits = json!({"async": ["decode_headers"], "decode_headers": [{"op": "hold", "value": never}]});
        run_with("script", waits, &[], 1, &["stuck: the request waits"]);
        run_with("nothing", json!({}), &[], 0, &["plugin nothing not found"]);
    }
    let library = postrider_tests::golang::library("sdk38");
    let bounded = [library.to_str().unwrap(), "--rules", r#"{"budget": {"cpu": "1s"}}"#];
    shows(&bounded, 1, &["Go code cannot be stopped or bounded from outside"]);
}

#[test]
fn a_go_library_is_tested_as_scripts_are() {
    if !postrider_only() {
        return;
    }
    let directory = TempDir::new();
    let tests = r#"local test = require("postrider.test")
test.plugin("LIBRARY")
local function run(config, request)
  return test.stream { request = request, config = config, rules = { plugin_name = "script" } }:run()
end
local set = { { op = "set", key = "x-new", value = "fine" } }
for round = 1, 3 do
  test.case("edits in round " .. round, function()
    test.equal(run({ decode_headers = set }).request.headers["x-new"], "fine")
    test.equal(run({ decode_headers = set, async = { "decode_headers" } }).request.headers["x-new"], "fine")
  end)
end
test.case("what goroutines log is heard", function()
  local log = { { op = "log", value = "said" }, { op = "get", key = "x-a", to = "x-b" } }
  local result = run({ decode_headers = log, async = { "decode_headers" } }, { headers = { ["x-a"] = "1" } })
  test.equal(result.request.headers["x-b"], "1,true")
  test.equal({ result.logs[1].level, result.logs[1].text }, { "critical", "[http][script] said" })
end)
test.case("a panic is an error", function()
  local result = run({ decode_headers = { { op = "panic", value = "told to" } } })
  test.equal(result.errors, { "panic: told to" })
end)
"#;
    let library = postrider_tests::golang::library("sdk38");
    directory.write("script_test.lua", tests.replace("LIBRARY", library.to_str().unwrap()));
    tests_show(directory.path(), 0, &["5 passed, 0 failed", "which lines ran is known of scripts only"]);
}

/// Runs the tests in a folder, which must end so and print these parts.
fn tests_show(folder: &std::path::Path, code: i32, parts: &[&str]) {
    let began = Instant::now();
    let tested = run(&["plugin", "test", folder.to_str().unwrap()]);
    assert_eq!(tested.code, Some(code), "{}{}", tested.stdout, tested.stderr);
    for part in parts {
        assert!(tested.stdout.contains(part), "{part:?} is not in:\n{}", tested.stdout);
    }
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}

#[test]
fn a_webassembly_module_is_tested_as_scripts_are() {
    if !postrider_only() {
        return;
    }
    let directory = TempDir::new();
    std::fs::write(directory.path().join("mark.wasm"), postrider_tests::wasm::whole(MODULE)).unwrap();
    directory.write(
        "mark_test.lua",
        r#"local test = require("postrider.test")
test.case("edits both messages", function()
  local request = { method = "POST", path = "/a", headers = { ["x-old"] = "1" }, body = "body" }
  local result = test.stream { request = request, config = { word = 1 } }:run()
  test.equal(result.request.headers["x-old"], "new")
  test.equal(result.request.body, "longer body")
  test.equal(result.response.headers["x-seen"], "yes")
  test.ok(result.memory > 0)
end)
test.case("asks a service", function()
  local result = test.stream { request = { path = "/ask" }, calls = { auth = { body = "ann" } } }:run()
  test.equal(result.request.headers["x-auth"], "ann")
  test.equal(result.calls[1].path, "/c")
end)
test.case("a trap is answered as the manifest says", function()
  local result = test.stream { request = { path = "/trap" }, rules = { on_error = 502 } }:run()
  test.equal(result.response.status, 502)
  test.matches(result.errors[1], "unreachable")
end)
"#,
    );
    let uncounted = "mark.wasm: which lines ran is known of scripts only\n";
    tests_show(directory.path(), 0, &["3 passed, 0 failed", uncounted]);
    directory.write(
        "mark_test.lua",
        r#"local test = require("postrider.test")
test.case("is wrong", function()
  test.equal(test.stream { request = { path = "/denied" } }:run().response.status, 200)
end)
test.case("does not start", function()
  test.stream { rules = { configuration = "none" } }:run()
end)
"#,
    );
    let failures = [
        "mark_test.lua:3: not equal\n        expected  200\n        actual    403\n",
        "mark_test.lua:6: the plugin does not start",
        "0 passed, 2 failed",
    ];
    tests_show(directory.path(), 1, &failures);
    directory.write(
        "mark_test.lua",
        "local test = require('postrider.test')\ntest.plugin('mark.wasm', 'java')\n\
         test.case('runs', function() test.stream {}:run() end)\n",
    );
    tests_show(directory.path(), 1, &["mark_test.lua:3: there is no runtime `java`"]);
    directory.write("mark_test.lua", "require('postrider.test').plugin('unbuilt.wasm')\n");
    tests_show(directory.path(), 1, &["error: cannot read ", "unbuilt.wasm"]);
}

#[test]
fn a_native_module_is_tested_as_scripts_are() {
    if !postrider_only() {
        return;
    }
    let directory = TempDir::new();
    let tests = r#"local test = require("postrider.test")
test.plugin("MODULE", "native")
local function run(what, calls)
  local rules = { filter_name = "script" }
  return test.stream { request = { headers = { ["x-do"] = what } }, rules = rules, calls = calls }:run()
end
test.case("edits both messages", function()
  local result = run("qh set 0 x-new fine; ah set 2 x-seen yes")
  test.equal(result.request.headers["x-new"], "fine")
  test.equal(result.response.headers["x-seen"], "yes")
end)
test.case("answers", function()
  local result = run("qh respond 403 why denied; qh answer 1")
  test.equal({ result.response.status, result.details }, { 403, "why" })
end)
test.case("asks a service", function()
  local what = "qh call auth /c ~ 1000; qh answer 3; call set 0 x-auth yes; call resume q"
  test.equal(run(what, { auth = { status = 200 } }).request.headers["x-auth"], "yes")
end)
test.case("waits for nothing", function()
  test.equal(run("qh answer 3").stuck, true)
end)
"#;
    directory.write("script_test.lua", tests.replace("MODULE", postrider_tests::modules::script().to_str().unwrap()));
    tests_show(directory.path(), 0, &["4 passed, 0 failed", "which lines ran is known of scripts only"]);
}

#[test]
fn a_plugin_from_nothing_is_tested_tried_and_served() {
    if !postrider_only() {
        return;
    }
    for runtime in ["rider", "envoy-lua"] {
        let directory = TempDir::new();
        let folder = directory.path().join("greeter");
        let new = ["plugin", "new", "greeter", "--runtime", runtime, "--dir", directory.path().to_str().unwrap()];
        let made = run(&new);
        assert_eq!(made.code, Some(0), "{}", made.stderr);
        assert_eq!(run(&new).code, Some(1), "nothing is overwritten");

        let began = Instant::now();
        let tested = run(&["plugin", "test", folder.to_str().unwrap()]);
        assert_eq!(tested.code, Some(0), "{}", tested.stdout);
        for part in ["3 passed, 0 failed", "plugin.lua: 100% of lines"] {
            assert!(tested.stdout.contains(part), "{part} in {}", tested.stdout);
        }
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());

        let file = folder.join("plugin.lua");
        let plugin = file.to_str().unwrap();
        let tried = run(&["plugin", "run", plugin, "--request", "GET /hello", "-H", "x-greeting: old"]);
        assert_eq!(tried.code, Some(0), "{}", tried.stderr);
        for edit in ["x-greeting", "old", "hello", "x-plugin", "greeter"] {
            assert!(tried.stdout.contains(edit), "{edit} in {}", tried.stdout);
        }
        let refused = run(&["plugin", "run", plugin, "-H", "x-refuse: 1"]);
        assert!(refused.stdout.contains("403") && refused.stdout.contains("refused by greeter"), "{}", refused.stdout);

        // The configuration beside it, but for places.
        let origin = Origin::echo("a");
        let port = origin.address.port();
        let text = std::fs::read_to_string(folder.join("proxy.yaml")).unwrap();
        let text = text
            .replace("port_value: 8080", "port_value: 0")
            .replace("port_value: 9901", "port_value: 0")
            .replace("port_value: 9000", &format!("port_value: {port}"))
            .replace("127.0.0.1:8080", "127.0.0.1:0")
            .replace("127.0.0.1:9901", "127.0.0.1:0")
            .replace("127.0.0.1:9000", &format!("127.0.0.1:{port}"))
            .replace("plugin.lua }", &format!("{plugin} }}"))
            .replace("code: plugin.lua", &format!("code: {plugin}"));
        let config = directory.write("served.yaml", text);
        let proxy = Proxy::start_file(directory, config, Launch::default());
        let listeners = proxy.admin_json("/listeners?format=json");
        let name = listeners["listener_statuses"][0]["name"].as_str().unwrap().to_owned();
        let response = postrider_tests::kit::RawClient::connect(proxy.address(&name)).exchange(get("/hello"));
        assert_eq!((response.status, response.header("x-plugin")), (200, "greeter"), "{runtime}");
        assert_eq!(origin.requests()[0].header("x-greeting"), "hello", "{runtime}");
    }
}

#[test]
fn a_case_that_fails_is_told_with_its_place() {
    if !postrider_only() {
        return;
    }
    let directory = TempDir::new();
    directory.write(
        "plugin.lua",
        "require('rider.v2')\nlocal p = { version = 'v2' }\nfunction p.on_request_header()\n  \
         if envoy.req.get_header('x-other') then\n    envoy.req.set_header('x-a', 'other')\n  end\nend\nreturn p\n",
    );
    directory.write(
        "plugin_test.lua",
        "local test = require('postrider.test')\ntest.case('greets', function()\n  \
         test.equal(test.stream {}:run().request.headers['x-a'], 'b')\nend)\n",
    );
    let tested = run(&["plugin", "test", directory.path().to_str().unwrap()]);
    assert_eq!(tested.code, Some(1));
    for part in ["FAIL  greets", "plugin_test.lua:3", "expected", "0 passed, 1 failed", "not run: 5"] {
        assert!(tested.stdout.contains(part), "{part} in {}", tested.stdout);
    }
}

#[test]
fn a_run_shows_calls_errors_and_configurations() {
    if !postrider_only() {
        return;
    }
    let directory = TempDir::new();
    let file = directory.write(
        "plugin.lua",
        "require('rider')\nlocal p = {}\nfunction p.on_request()\n  \
         local headers, body = envoy.httpCall('auth', { [':method'] = 'GET', [':path'] = '/check', [':authority'] = 'a' }, nil, 100)\n  \
         envoy.req.set_header('x-auth', headers[':status'] .. body .. envoy.get_route_config().word)\n  error('on purpose')\nend\nreturn p\n",
    );
    let plugin = file.to_str().unwrap();
    let tried = run(&["plugin", "run", plugin, "--call", "auth=200:welcome", "--route-config", r#"{"word": "!"}"#]);
    assert_eq!(tried.code, Some(1), "an error is one");
    for part in ["auth", "/check", "200welcome!", "plugin.lua:6: on purpose"] {
        assert!(tried.stdout.contains(part), "{part} in {}", tried.stdout);
    }
    let failed = run(&["plugin", "run", plugin, "--call", "auth=nonsense"]);
    assert_eq!(failed.code, Some(2), "{}", failed.stderr);
}

#[test]
fn a_run_shows_that_hooks_will_not_be_called() {
    if !postrider_only() {
        return;
    }
    let directory = TempDir::new();
    let shown = |script: &str, more: &[&str]| {
        let file = directory.write("plugin.lua", script);
        let tried = run(&[&["plugin", "run", file.to_str().unwrap()], more].concat());
        assert_eq!(tried.code, Some(0), "{}{}", tried.stdout, tried.stderr);
        tried.stdout
    };
    let inert = shown("require('rider.v2') return { on_request_header = function() end }", &[]);
    let warning = "`on_request_header` of version \"v2\" will never be called: the plugin's table says no `version`";
    assert!(inert.contains("warning") && inert.contains(warning), "{inert}");
    let answers = "require('rider.v2') return { version = 'v2', on_response_header = function() resp = 1 end }";
    let note = "note: by the type FilterConfig, the hook on response headers runs only on routes with an entry";
    assert!(shown(answers, &[]).contains(note));
    assert!(!shown(answers, &["--route-config", "{}"]).contains(note));
    assert!(!shown("function envoy_on_response(h) x = 1 end", &[]).contains(note));
}

#[test]
fn what_a_script_prints_stays_out_of_a_commands_result() {
    if !postrider_only() {
        return;
    }
    let directory = TempDir::new();
    let script = "print('loaded', nil, 1)\nfunction envoy_on_request(handle) print('called') end\n";
    let file = directory.write("prints.lua", script);
    let test = "local test = require('postrider.test')\ntest.case('runs', function() test.stream({}):run() end)\n";
    directory.write("prints_test.lua", test);
    let folder = directory.path().to_str().unwrap().to_owned();
    for arguments in [["run", file.to_str().unwrap(), "--json"], ["test", &folder, "--json"]] {
        let tried = run(&[&["plugin"][..], &arguments].concat());
        assert_eq!(tried.code, Some(0), "{}{}", tried.stdout, tried.stderr);
        assert!(serde_json::from_str::<serde_json::Value>(&tried.stdout).is_ok(), "{}", tried.stdout);
        assert!(tried.stderr.contains("loaded\tnil\t1\n"), "{}", tried.stderr);
        assert!(tried.stderr.contains("called\n"), "{}", tried.stderr);
    }
}

#[test]
fn a_header_of_a_trial_may_begin_with_a_colon() {
    if !postrider_only() {
        return;
    }
    let directory = TempDir::new();
    let script = "function envoy_on_request(handle) handle:logInfo('<' .. handle:headers():get('x-ip') .. '>') end\n";
    let file = directory.write("ip.lua", script);
    let shown = ["  info     <::1>\n", ":authority: a.example\n"];
    shows(&[file.to_str().unwrap(), "-H", "x-ip:::1", "-H", ":authority: a.example"], 0, &shown);
}
