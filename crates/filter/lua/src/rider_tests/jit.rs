//! What plugins do with every request is compiled: nothing on the hot path ends the recording of a trace.

use serde_json::json;

use super::{Trial, get};
use crate::testing::Outcome;

/// A plugin that does `work` and counts the recordings that were given up meanwhile. With `x-report` on a request it tells
/// how many there were since the last report, and why.
fn watched(header: &str, body: &str) -> String {
    format!(
        "require('rider.v2')
         local req = envoy.req
         local get_header, set_header, remove_header, get_body = req.get_header, req.set_header, req.remove_header, req.get_body
         local aborts, traces, why = 0, 0, {{}}
         local util = require('jit.util')
         local resp = envoy.resp
         local some = {{ a = 'b', [':path'] = '/q' }}
         local counter, gauge = envoy.define_metric(0, 'counter'), envoy.define_metric(1, 'gauge')
         local fits = require('jsonschema').generate_validator({{ properties = {{ n = {{ type = 'number' }} }} }})
         jit.attach(function(what, trace, func, pc, code, reason)
           if what == 'stop' then traces = traces + 1 end
           -- 8 to 10: leaving a loop, or meeting another within, which is compiled by itself. That is how loops are found.
           if what == 'abort' and not (code >= 8 and code <= 10) then
             aborts = aborts + 1
             local info = util.funcinfo(func, pc)
             why[#why + 1] = (info.loc or tostring(info.addr)) .. ' code ' .. tostring(code) .. ' ' .. tostring(reason)
           end
         end, 'trace')
         local h = {{ version = 'v2' }}
         local function work_header() {header} end
         local function work_body() {body} end
         function h.on_request_header()
           if req.get_header('x-report') then
             req.set_header('x-out', aborts .. ' aborts, ' .. (traces > 0 and 'compiled' or 'nothing compiled') .. '; ' .. table.concat(why, '; '))
             aborts, why = 0, {{}}
             return
           end
           work_header()
         end
         function h.on_request_body() work_body() end
         return h"
    )
}

/// Runs it until it is warm, and then as often again: what is given up behind the warm-up.
fn aborts_when_warm(header: &str, body: &str) -> String {
    let mut trial = Trial::manifest(&watched(header, body), json!({ "sandbox": "full" })).unwrap();
    let mut report = String::new();
    for _ in 0..2 {
        for _ in 0..3000 {
            trial.restart(get(&[("authorization", "Basic Zm9vbmFtZTp2YWxpZHBhc3N3b3Jk"), ("two", "a"), ("two", "b")]));
            assert_eq!(trial.request(&["0123456789"]), Outcome::Passed);
        }
        trial.restart(get(&[("x-report", "1")]));
        trial.request(&[]);
        report = trial.request_header("x-out").unwrap();
    }
    report
}

#[test]
fn the_calls_of_the_reference_plugins_are_compiled() {
    let normal = "for i = 1, 20 do set_header('test' .. i, 'value') end
         for i = 1, 10 do local x = get_header('test' .. i) end
         for i = 1, 20 do remove_header('test' .. i) end";
    let cases = [
        ("simple", "for i = 1, 10 do local x = get_header('test' .. i) end", ""),
        ("normal", normal, ""),
        ("complex", "", &*format!("{normal} for i = 1, 30 do local b = get_body() end")),
        (
            "basic auth",
            "for i = 1, 3 do
               local value = get_header('authorization')
               local decoded = require_base64.decode(value:sub(7))
               if decoded ~= 'fooname:validpassword' then error('no') end
             end",
            "",
        ),
    ];
    for (name, header, body) in cases {
        let header = header.replace("require_base64", "base64");
        let script = watched(&header, body);
        assert!(script.contains("version"));
        let header = format!("local base64 = package.loaded.base64 or require('base64') {header}");
        let report = aborts_when_warm(&header, body);
        assert!(report.starts_with("0 aborts, compiled"), "{name}: {report}");
    }
}

#[test]
fn every_call_that_plugins_make_with_each_request_is_compiled() {
    let calls = [
        "req.get_header('two')",
        "req.get_header_size('two')",
        "req.get_header_index('two', 1)",
        "req.get_header_map_size()",
        "req.get_headers()",
        "req.set_header('x', 'y')",
        "req.remove_header('x')",
        "req.clear_header('x')",
        "req.set_headers(some)",
        "resp.get_header('x')",
        "resp.get_headers()",
        "req.get_body()",
        "resp.get_body()",
        "req.get_query_parameters()",
        "req.get_metadata('a', 'b')",
        "req.get_dynamic_metadata('a', 'b')",
        "req.set_dynamic_metadata('a', 'b', 'c')",
        "req.clear_route_cache()",
        "envoy.streaminfo.upstream_cluster()",
        "envoy.streaminfo.upstream_host()",
        "envoy.streaminfo.downstream_local_address()",
        "envoy.streaminfo.downstream_remote_address()",
        "envoy.streaminfo.start_time()",
        "envoy.streaminfo.current_time_milliseconds()",
        "envoy.nowms()",
        "envoy.logTrace('x')",
        "envoy.logDebug('x')",
        "envoy.logInfo('x')",
        "envoy.logWarn('x')",
        "envoy.logErr('x')",
        "envoy.filelog('x')",
        "resp.get_header_size('x')",
        "resp.get_header_index('x', 0)",
        "resp.get_header_map_size()",
        "require_sha2.sha224('x')",
        "require_sha2.sha384('x')",
        "require_sha2.sha512('x')",
        "require_sha2.sha3_256('x')",
        "require_sha2.blake2b('x', 'key')",
        "require_sha2.blake2s_128('x')",
        "require_sha2.blake2xs(20, 'x')",
        "require_sha2.blake3('x')",
        "require_sha2.blake3_derive_key('x', 'context')",
        "envoy.define_metric(0, 'c')",
        "envoy.increment_metric(counter, 1)",
        "envoy.record_metric(gauge, 1)",
        "envoy.get_metric(counter)",
        "envoy.get_base_config()",
        "envoy.get_route_config()",
        "require_md5.sumhexa('x')",
        "require_md5.sum('x')",
        "require_sha2.sha256('x')",
        "require_sha2.hmac(require_sha2.sha256, 'key', 'x')",
        "require_base64.encode('x')",
        "require_base64.decode('eHh4')",
        "require_json.decode('{\"a\": [1, 2.5, \"b\\\\n\", true, null]}')",
        "require_json.encode({ a = 'b' })",
        "require_safe.decode('[1]')",
        "require_base64.encode_url('x')",
        "require_sha2.sha1('x')",
        "require_inspect({ 1, a = 'b' })",
        "fits({ n = 1 })",
    ];
    for call in calls {
        let mut call = call.to_owned();
        let mut locals = String::new();
        for (name, module) in [
            ("require_md5", "md5"),
            ("require_sha2", "sha2"),
            ("require_base64", "base64"),
            ("require_json", "cjson"),
            ("require_safe", "cjson.safe"),
            ("require_inspect", "inspect"),
        ] {
            if call.contains(name) {
                locals.push_str(&format!("local {name} = package.loaded['{module}'] or require('{module}') "));
            }
        }
        call = format!("{locals} for i = 1, 3 do local x = {call} end");
        let report = aborts_when_warm(&call, "");
        assert!(report.starts_with("0 aborts, compiled"), "{call}: {report}");
    }
    let report =
        aborts_when_warm("local shared = envoy.stream.shared for i = 1, 3 do shared.n = (shared.n or 0) + 1 end", "");
    assert!(report.starts_with("0 aborts, compiled"), "shared: {report}");
}

#[test]
fn edits_of_answers_are_compiled() {
    for call in ["resp.set_header('x', 'y')", "resp.set_headers(fields)", "resp.remove_header('x')"] {
        let script = watched(&format!("local fields = {{ a = 'b' }} for i = 1, 3 do local x = {call} end"), "")
            .replace("function h.on_request_header()", "function h.on_response_header()")
            .replace("req.get_header('x-report')", "resp.get_header('x-report')")
            .replace("req.set_header('x-out'", "resp.set_header('x-out'");
        let mut trial = Trial::manifest(&script, json!({ "sandbox": "full" })).unwrap();
        let mut report = None;
        for _ in 0..2 {
            for _ in 0..3000 {
                trial.again();
                trial.stream.response.set_status(200);
                assert_eq!(trial.response(&[]), Outcome::Passed);
            }
            trial.again();
            trial.stream.response.set_status(200);
            trial.stream.response.fields.append_name(b"x-report", b"1").unwrap();
            trial.response(&[]);
            report = trial.response_header("x-out");
        }
        let report = report.unwrap();
        assert!(report.starts_with("0 aborts, compiled"), "{call}: {report}");
    }
}

/// The same for a plugin of the first version, whose hook has the body as an object.
#[test]
fn what_the_first_version_does_with_bodies_is_compiled() {
    for call in ["body:length()", "body:getBytes(2, 3)", "body:getBytes(0, 10)", "body:setBytes('0123456789')"] {
        let script = watched(&format!("local body = req.get_body() for i = 1, 20 do local x = {call} end"), "");
        let script = script
            .replace("require('rider.v2')", "require('rider')")
            .replace("{ version = 'v2' }", "{}")
            .replace("function h.on_request_header()", "function h.on_request()");
        let mut trial = Trial::manifest(&script, json!({ "sandbox": "full" })).unwrap();
        let mut report = String::new();
        for _ in 0..2 {
            for _ in 0..3000 {
                trial.again();
                assert_eq!(trial.request(&["0123456789"]), Outcome::Passed);
            }
            trial.restart(get(&[("x-report", "1")]));
            trial.request(&[]);
            report = trial.request_header("x-out").unwrap();
        }
        // The wait itself is a call that no trace can hold: what is given up is given up there.
        let aborts: Vec<&str> = report.split("; ").skip(1).filter(|why| !why.is_empty()).collect();
        let elsewhere: Vec<&&str> =
            aborts.iter().filter(|why| !why.contains("=postrider.abi") && !why.contains("code 16")).collect();
        assert!(elsewhere.is_empty() && report.contains("compiled"), "{call}: {report}");
    }
}
