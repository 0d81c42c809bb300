//! `sdk: filesystem`: SDK files of the published shape, which declare the C functions themselves, written for this test.

use std::path::PathBuf;

use serde_json::json;

use super::{Trial, get};
use crate::testing::Outcome;

const BASE: &str = r##"
local ffi = require("ffi")
ffi.cdef[[
typedef struct ContextBase ContextBase;
typedef struct { int len; const char* data; } envoy_lua_ffi_str_t;
typedef struct { envoy_lua_ffi_str_t key; envoy_lua_ffi_str_t value; } envoy_lua_ffi_table_elt_t;
typedef struct { envoy_lua_ffi_table_elt_t* data; int size; int capacity; } envoy_lua_ffi_string_pairs;
]]
return {
  FFI_OK = 0,
  context = function() return getfenv(0)._envoy_context end,
  buffer = function() return ffi.new("envoy_lua_ffi_str_t[1]") end,
  -- Filled field by field: LuaJIT compiles no initializers that are tables.
  text = function(s) local b = ffi.new("envoy_lua_ffi_str_t[1]") b[0].len, b[0].data = #s, s return b end,
}
"##;

/// The functions of the table in both shapes: `@` stands for the prefix, `CONTEXT` and `C,` for the first argument.
const STREAM: &str = r##"
local ffi = require("ffi")
local base = require("rider.base")
local C, registry, context = ffi.C, debug.getregistry(), base.context
ffi.cdef[[
int @log(CONTEXT int level, const char* message);
int @get_configuration(CONTEXT envoy_lua_ffi_str_t* buffer);
int @get_route_configuration(CONTEXT envoy_lua_ffi_str_t* buffer);
uint64_t @get_route_config_hash(CONTEXT0);
int @get_header_map_size(CONTEXT int source);
int @get_header_map(CONTEXT int source, envoy_lua_ffi_string_pairs* pairs);
int @get_header_map_value(CONTEXT int source, const char* key, int key_len, envoy_lua_ffi_str_t* value);
int @get_header_map_value_size(CONTEXT int source, const char* key, int key_len);
int @get_header_map_value_index(CONTEXT int source, const char* key, int key_len, envoy_lua_ffi_str_t* value, int index);
int @set_header_map(CONTEXT int source, envoy_lua_ffi_string_pairs* pairs);
int @set_header_map_value(CONTEXT int source, const char* key, int key_len, const char* value, int value_len);
int @remove_header_map_value(CONTEXT int source, const char* key, int key_len);
int @get_query_parameters(CONTEXT envoy_lua_ffi_string_pairs* pairs);
int @get_shared_table(CONTEXT0);
int @get_metadata(CONTEXT envoy_lua_ffi_str_t* filter, envoy_lua_ffi_str_t* key, envoy_lua_ffi_str_t* value);
int @get_dynamic_metadata_value(CONTEXT envoy_lua_ffi_str_t* filter, envoy_lua_ffi_str_t* key, envoy_lua_ffi_str_t* value);
int @set_dynamic_metadata_value(CONTEXT envoy_lua_ffi_str_t* filter, envoy_lua_ffi_str_t* key, envoy_lua_ffi_str_t* value);
int @get_body(CONTEXT int source, envoy_lua_ffi_str_t* body);
int @define_metric(CONTEXT int type, envoy_lua_ffi_str_t* name);
int @increment_metric(CONTEXT int id, int offset);
int @record_metric(CONTEXT int id, int value);
int @get_metric(CONTEXT int id);
const char* @upstream_host(CONTEXT0);
const char* @upstream_cluster(CONTEXT0);
const char* @downstream_local_address(CONTEXT0);
const char* @downstream_remote_address(CONTEXT0);
int64_t @start_time(CONTEXT0);
int64_t @streaminfo_start_time(CONTEXT0);
int64_t @get_current_time_milliseconds(CONTEXT0);
int @file_log(CONTEXT const char* text, size_t length);
void @clear_route_cache(CONTEXT0);
]]
local req, text, buffer = envoy.req, base.text, base.buffer
local function took(rc, out) if rc == 0 then return ffi.string(out[0].data, out[0].len) end end
function req.get_header(k) local b = buffer() return took(C.@get_header_map_value(ARG 0, k, #k, b), b) end
function req.get_header_size(k) return C.@get_header_map_value_size(ARG 0, k, #k) end
function req.get_header_index(k, i) local b = buffer() return took(C.@get_header_map_value_index(ARG 0, k, #k, b, i), b) end
function req.set_header(k, v) if C.@set_header_map_value(ARG 0, k, #k, v, #v) ~= 0 then error("error set header", 0) end end
function req.remove_header(k) if C.@remove_header_map_value(ARG 0, k, #k) ~= 0 then error("error remove header") end end
local function pairs_of(n)
  local raw, p = ffi.new("envoy_lua_ffi_table_elt_t[?]", n), ffi.new("envoy_lua_ffi_string_pairs[1]")
  p[0].data, p[0].size, p[0].capacity = raw, 0, n
  return p, raw
end
local function read(p)
  local all = {}
  for i = 0, p[0].size - 1 do
    local h = p[0].data[i]
    all[ffi.string(h.key.data, h.key.len)] = ffi.string(h.value.data, h.value.len)
  end
  return all
end
function req.get_headers() local n = C.@get_header_map_size(ARG 0) local p, raw = pairs_of(n) C.@get_header_map(ARG 0, p) return read(p), raw end
function req.get_query_parameters(n) local p, raw = pairs_of(n or 100) C.@get_query_parameters(ARG p) return read(p), raw end
function req.get_metadata(k, f) local b = buffer() return took(C.@get_metadata(ARG text(f), text(k), b), b) end
function req.get_dynamic_metadata(k, f) local b = buffer() return took(C.@get_dynamic_metadata_value(ARG text(f), text(k), b), b) end
function req.set_dynamic_metadata(k, v, f) return C.@set_dynamic_metadata_value(ARG text(f), text(k), text(v)) end
function req.held_body() local b = buffer() return took(C.@get_body(ARG 0, b), b) end
function req.clear_route_cache() C.@clear_route_cache(ARG0) end
function envoy.config() local b = buffer() return took(C.@get_configuration(ARG b), b) end
function envoy.route_config() local b = buffer() return took(C.@get_route_configuration(ARG b), b), C.@get_route_config_hash(ARG0) end
function envoy.log(m) return C.@log(ARG 2, m) end
function envoy.counted(n)
  local id = C.@define_metric(ARG 0, text(n))
  C.@increment_metric(ARG id, 2)
  C.@record_metric(ARG id, 3)
  return id > 0, C.@get_metric(ARG id), C.@define_metric(ARG 7, text(n)), C.@increment_metric(ARG 99, 1),
    C.@increment_metric(ARG id, -1), C.@get_metric(ARG 99)
end
function envoy.facts()
  local host, local_address = C.@upstream_host(ARG0), C.@downstream_local_address(ARG0)
  return host == nil, ffi.string(local_address), tonumber(C.@start_time(ARG0)), C.@get_current_time_milliseconds(ARG0) > 1600000000000LL
end
envoy.stream.shared = setmetatable({}, {
  __index = function(_, k) return registry[C.@get_shared_table(ARG0)][k] end,
  __newindex = function(_, k, v) registry[C.@get_shared_table(ARG0)][k] = v end,
})
return { version = "own" }
"##;

/// A folder with the files of one version.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str, second: bool) -> Folder {
        let folder = std::env::temp_dir().join(format!("postrider-rider-{name}-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("rider")).unwrap();
        let stream = match second {
            true => STREAM
                .replace('@', "envoy_http_lua_ffi_v2_")
                .replace("CONTEXT0", "")
                .replace("CONTEXT ", "")
                .replace("ARG0", "")
                .replace("ARG ", ""),
            false => STREAM
                .replace('@', "envoy_http_lua_ffi_")
                .replace("CONTEXT0", "ContextBase* context")
                .replace("CONTEXT ", "ContextBase* context, ")
                .replace("ARG0", "context()")
                .replace("ARG ", "context(), "),
        };
        std::fs::write(folder.join("rider/base.lua"), BASE).unwrap();
        std::fs::write(folder.join("rider/init.lua"), stream).unwrap();
        Folder(folder)
    }

    fn plugin(&self, script: &str) -> Trial {
        self.plugin_at("standard", script)
    }

    fn plugin_at(&self, sandbox: &str, script: &str) -> Trial {
        let path = format!("{0}/?/init.lua;{0}/?.lua", self.0.display());
        let script = format!("assert(require('rider').version == 'own')\nlocal req = envoy.req\n{script}");
        match Trial::manifest(
            &script,
            json!({ "sdk": "filesystem", "package_path": [path], "clear_route_cache": false, "sandbox": sandbox }),
        ) {
            Ok(trial) => trial,
            Err(errors) => panic!("{errors:?}"),
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const PLUGIN: &str = r##"
local h = { VERSION }
function h.HOOK()
  local out = {}
  local function note(...) for i = 1, select("#", ...) do out[#out + 1] = tostring((select(i, ...))) end end
  note(req.get_header("two"), req.get_header("none"), req.get_header_size("two"), req.get_header_index("two", 1))
  req.set_header("new", "x")
  note(req.get_header("NEW"), pcall(req.set_header, "new", ""))
  req.remove_header("two")
  note(req.get_header("two"), req.get_headers()[":path"], req.get_query_parameters().a, req.get_query_parameters().b)
  req.set_dynamic_metadata("k", "v", "ns")
  note(req.get_dynamic_metadata("k", "ns"), req.get_metadata("k", "ns"))
  note(envoy.config(), envoy.log("hello"))
  note(envoy.counted("c"))
  note(envoy.facts())
  envoy.stream.shared.n = (envoy.stream.shared.n or 0) + 1
  note(envoy.stream.shared.n, require("cjson").encode({ 1 }), require("md5").sumhexa(""):sub(1, 4))
  req.clear_route_cache()
  req.set_header("x-out", table.concat(out, "|"))
end
function h.RESPONSE() envoy.stream.shared.n = (envoy.stream.shared.n or 0) + 1 n = envoy.stream.shared.n end
return h
"##;

#[test]
fn files_of_both_versions_run_over_the_exported_functions() {
    for (name, second) in [("first", false), ("second", true)] {
        let folder = Folder::new(name, second);
        let script = match second {
            true => PLUGIN
                .replace("VERSION", "version = 'v2'")
                .replace("HOOK", "on_request_header")
                .replace("RESPONSE", "on_response_header"),
            false => PLUGIN.replace("VERSION", "").replace("HOOK", "on_request").replace("RESPONSE", "on_response"),
        };
        let mut trial = folder.plugin(&script);
        let mut stream =
            postrider_filter_api::testing::FakeStream::new("GET", "/p?b=2&a=1&a=3", &[("two", "a"), ("two", "b")]);
        stream.info.downstream_local = Some("10.0.0.1:80".parse().unwrap());
        trial.restart(stream);
        assert_eq!(trial.request(&[]), Outcome::Passed);
        let got = trial.request_header("x-out").unwrap();
        let expected = "a,b|nil|2|b|x|false|error set header|nil|/p?b=2&a=1&a=3|1|2|v|{}|0|\
            true|5|-3|-3|-3|-1|true|10.0.0.1:80|0|true|1|[1]|d41d";
        assert_eq!(got, expected, "{name}");
        assert!(trial.stream.info.route_is_stale);
        trial.stream.response.set_status(200);
        trial.response(&[]);
        trial.again();
        trial.request(&[]);
        assert!(
            trial.request_header("x-out").unwrap().ends_with("|1|[1]|d41d"),
            "the next stream has a table of its own"
        );
    }
}

/// A plugin that makes `call` again and again, and with `x-report` tells what was given up while it was recorded since the last
/// report, and whether anything was compiled.
fn watched(second: bool, call: &str) -> String {
    let (version, hook) = if second { ("version = 'v2'", "on_request_header") } else { ("", "on_request") };
    format!(
        r#"
local util = require("jit.util")
local traces, why = 0, {{}}
jit.attach(function(what, trace, func, pc, code, reason)
  if what == "stop" then traces = traces + 1 end
  -- 8 to 10: leaving a loop, or meeting another within, which is compiled by itself. That is how loops are found.
  if what == "abort" and not (code >= 8 and code <= 10) then
    local info = util.funcinfo(func, pc)
    why[#why + 1] = (info.loc or tostring(info.addr)) .. " code " .. tostring(code) .. " " .. tostring(reason)
  end
end, "trace")
local h = {{ {version} }}
function h.{hook}()
  if req.get_header("x-report") then
    req.set_header("x-out", #why .. " aborts, " .. (traces > 0 and "compiled" or "nothing compiled") .. "; " .. table.concat(why, "; "))
    why = {{}}
    return
  end
  for i = 1, 20 do local x = {call} end
end
return h
"#
    )
}

/// As the trace log has it: no abort (`NYI` and the like) behind the warm-up, whatever the files ask the host for.
#[test]
fn calls_of_files_over_the_exported_functions_are_compiled() {
    let calls = [
        "req.get_header('two')",
        "req.get_header('none')",
        "req.get_header_size('two')",
        "req.get_header_index('two', 1)",
        "req.set_header('x', 'y')",
        "req.remove_header('x')",
        "req.get_headers()",
        "req.get_query_parameters()",
        "req.get_metadata('a', 'b')",
        "req.get_dynamic_metadata('a', 'b')",
        "req.set_dynamic_metadata('a', 'b', 'c')",
        "req.held_body()",
        "req.clear_route_cache()",
        "envoy.config()",
        "envoy.route_config()",
        "envoy.log('x')",
        "envoy.counted('c')",
        "envoy.facts()",
        "envoy.stream.shared.x",
    ];
    for (name, second) in [("traced-first", false), ("traced-second", true)] {
        let folder = Folder::new(name, second);
        for call in calls {
            let mut trial = folder.plugin_at("full", &watched(second, call));
            let mut report = String::new();
            for _ in 0..2 {
                for _ in 0..1000 {
                    let mut stream =
                        postrider_filter_api::testing::FakeStream::new("GET", "/p?a=1", &[("two", "a"), ("two", "b")]);
                    stream.info.downstream_local = Some("10.0.0.1:80".parse().unwrap());
                    trial.restart(stream);
                    assert_eq!(trial.request(&[]), Outcome::Passed);
                }
                trial.restart(get(&[("x-report", "1")]));
                trial.request(&[]);
                report = trial.request_header("x-out").unwrap();
            }
            assert!(report.starts_with("0 aborts, compiled"), "{name} {call}: {report}");
        }
    }
}

#[test]
fn files_that_lack_set_body_and_set_dynamic_metadata_have_ours() {
    let folder = Folder::new("lacking", true);
    let files = std::fs::read_to_string(folder.0.join("rider/init.lua")).unwrap();
    let without = files.lines().filter(|line| !line.starts_with("function req.set_dynamic_metadata"));
    std::fs::write(folder.0.join("rider/init.lua"), without.collect::<Vec<_>>().join("\n")).unwrap();
    let mut trial = folder.plugin(
        "local h = { version = 'v2' }
         function h.on_request_body()
           req.set_body('other')
           req.set_dynamic_metadata('k', 'v', 'ns')
         end
         return h",
    );
    assert_eq!(trial.request(&["body"]), Outcome::Passed);
    assert_eq!(trial.stream.request_body.bytes(), b"other");
    assert_eq!(trial.stream.info.metadata.get("ns", "k"), Some(&postrider_model::Value::String("v".to_owned())));
}

#[test]
fn the_base_configuration_comes_alone_and_the_routes_as_its_whole_entry() {
    let folder = Folder::new("configurations", true);
    let path = format!("{0}/?/init.lua;{0}/?.lua", folder.0.display());
    let script = "assert(require('rider').version == 'own')
        local h = { version = 'v2' }
        function h.on_request_header()
          local route, hash = envoy.route_config()
          envoy.req.set_header('x-out', envoy.config() .. '|' .. route .. '|' .. tostring(hash ~= 0))
        end
        return h";
    let manifest = json!({
        "name": "test", "runtime": "rider", "code": { "inline_string": script }, "config": { "a": 1 },
        "options": { "sdk": "filesystem", "package_path": [path] },
    });
    let route = json!({ "config": { "b": 2 } }).to_string();
    let kinds = (super::MANIFEST, "postrider.filters.http.plugin.v1.PluginPerRoute");
    let mut trial = Trial::new(kinds.0, &manifest.to_string(), Some((kinds.1, &route))).ok().unwrap();
    trial.request(&[]);
    let expected = r#"{"a":1}|{"name":"test","config":{"b":2}}|true"#;
    assert_eq!(trial.request_header("x-out").as_deref(), Some(expected));
}

#[test]
fn files_find_the_functions_that_wait_ready() {
    let folder = Folder::new("waits", false);
    let mut trial = folder.plugin(
        "local h = {}
         function h.on_request()
           local body = req.get_body()
           local headers, answer = envoy.httpCall('a', { [':method'] = 'GET', [':path'] = '/', [':authority'] = 'a' }, nil, 1)
           envoy.respond({ [':status'] = 418 }, body:getBytes(0, body:length()) .. headers[':status'] .. tostring(answer))
         end
         return h",
    );
    assert_eq!(trial.request(&["ab"]), Outcome::Paused);
    trial.stream.host.answer(Err(postrider_filter_api::CallFailure::Timeout));
    assert_eq!(trial.resume(true), Outcome::Answered(418, "ab504upstream request timeout".to_owned()));
}

#[test]
fn the_second_versions_bodies_come_from_the_exported_function() {
    let folder = Folder::new("bodies", true);
    let mut trial = folder.plugin(
        "local h = { version = 'v2' }
         function h.on_request_body() req.set_header('x-out', tostring(req.held_body())) end
         return h",
    );
    trial.request(&["ab", "c"]);
    assert_eq!(trial.request_header("x-out").as_deref(), Some("abc"));
}

#[test]
fn a_plugin_may_declare_the_exported_functions_beside_the_built_in_sdk() {
    let script = "require('rider.v2')
        local ffi = require('ffi')
        ffi.cdef[[ int envoy_http_lua_ffi_v2_get_header_map_size(int source); ]]
        local h = { version = 'v2' }
        function h.on_request_header()
          envoy.req.set_header('x-out', tostring(ffi.C.envoy_http_lua_ffi_v2_get_header_map_size(0)))
        end
        return h";
    let mut trial = Trial::rider(script);
    trial.restart(get(&[("a", "b")]));
    trial.request(&[]);
    assert_eq!(trial.request_header("x-out").as_deref(), Some("5"));
}

#[test]
fn files_that_are_not_there_keep_the_plugin_from_loading() {
    let errors = Trial::manifest("require('rider') return {}", json!({ "sdk": "filesystem" })).err().unwrap();
    assert!(errors[0].message.contains("module 'rider' not found"), "{}", errors[0].message);
}
