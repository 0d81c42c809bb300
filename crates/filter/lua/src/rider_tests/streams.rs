//! How hooks follow each other on a stream: order, gates, errors, what is shared, and the ends of bodies.

use serde_json::json;

use super::{RIDER, Trial, get, out, out_of, show, v1, v2};
use crate::testing::Outcome;

/// Each hook adds its name to `x-trace` of the request.
fn tracing() -> String {
    let note = |name: &str| format!("req.set_header('x-trace', (req.get_header('x-trace') or '') .. '{name}')");
    v2(&[
        ("request_header", &note("rqh")),
        ("request_body", &note("rqb")),
        ("response_header", &note("rsh")),
        ("response_body", &note("rsb")),
    ])
}

/// The same by the table that all hooks of a stream have.
fn noting() -> String {
    let note = |name: &str| {
        format!("local s = envoy.stream.shared s.trace = (s.trace or '') .. '{name} ' envoy.logDebug(s.trace) ")
    };
    let last = note("rsb") + "resp.set_header('x-trace', s.trace)";
    v2(&[
        ("request_header", &note("rqh")),
        ("request_body", &note("rqb")),
        ("response_header", &note("rsh")),
        ("response_body", &last),
    ])
}

#[test]
fn hooks_of_one_stream_run_in_order_and_share_a_table() {
    let mut trial = Trial::rider(&noting());
    trial.stream.response.set_status(200);
    assert_eq!(trial.request(&["a", "b"]), Outcome::Passed);
    assert_eq!(trial.response(&["c"]), Outcome::Passed);
    assert_eq!(trial.response_header("x-trace").as_deref(), Some("rqh rqb rsh rsb"));
}

#[test]
fn body_hooks_run_without_a_body_too() {
    let mut trial = Trial::rider(&noting());
    trial.stream.response.set_status(200);
    trial.request(&[]);
    trial.response(&[]);
    assert_eq!(trial.response_header("x-trace").as_deref(), Some("rqh rqb rsh rsb"));
}

#[test]
fn body_hooks_run_when_trailers_end_the_message() {
    let mut trial = Trial::rider(&v2(&[
        ("request_body", "req.set_header('x-out', req.get_body())"),
        ("response_body", "resp.set_header('x-out', resp.get_body())"),
    ]));
    trial.stream.response.set_status(200);
    trial.request_so_far(&["ab", "c"]);
    assert_eq!(trial.request_header("x-out"), None);
    assert_eq!(trial.request_trailers(), Outcome::Passed);
    assert_eq!(trial.request_header("x-out").as_deref(), Some("abc"));
    trial.response_so_far(&["de"]);
    assert_eq!(trial.response_trailers(), Outcome::Passed);
    assert_eq!(trial.response_header("x-out").as_deref(), Some("de"));

    let mut trial = Trial::rider(&v1(&[
        ("request", "local b = req.get_body() req.set_header('x-out', b:getBytes(0, b:length()))"),
        ("response", "local b = resp.get_body() resp.set_header('x-out', b:getBytes(0, b:length()))"),
    ]));
    trial.stream.response.set_status(200);
    trial.request_so_far(&["ab", "c"]);
    assert_eq!(trial.request_trailers(), Outcome::Passed);
    assert_eq!(trial.request_header("x-out").as_deref(), Some("abc"));
    trial.response_so_far(&["de"]);
    assert_eq!(trial.response_trailers(), Outcome::Passed);
    assert_eq!(trial.response_header("x-out").as_deref(), Some("de"));
}

#[test]
fn an_error_ends_the_plugins_part_in_the_stream_and_keeps_its_edits() {
    let names = ["request_header", "request_body", "response_header", "response_body"];
    for (failing, name) in names.iter().enumerate() {
        for error in [
            "error('no')",
            "error({})",
            "error()",
            "local x = nil .. 'x'",
            "coroutine.yield()",
            "coroutine.yield(1, 4)",
        ] {
            let hooks: Vec<(&str, String)> = names
                .iter()
                .enumerate()
                .map(|(at, name)| {
                    let error = if at == failing { error } else { "" };
                    (
                        *name,
                        format!(
                            "envoy.filelog('') ran = (ran or 0) + 1 req.set_header('x-ran', tostring(ran)) {error}"
                        ),
                    )
                })
                .collect();
            let hooks: Vec<(&str, &str)> = hooks.iter().map(|(name, body)| (*name, body.as_str())).collect();
            let mut trial = Trial::rider(&v2(&hooks));
            trial.stream.response.set_status(200);
            assert_eq!(trial.request(&["x"]), Outcome::Passed, "{name} {error}");
            assert_eq!(trial.response(&["x"]), Outcome::Passed, "{name} {error}");
            // What ran before the error, the failing hook included, and nothing after it. Edits of the request stay.
            let ran = trial.request_header("x-ran").and_then(|ran| ran.parse().ok()).unwrap_or(0);
            let seen = (failing + 1).min(if failing < 2 { failing + 1 } else { ran });
            assert_eq!(ran, seen, "{name} {error}");
            trial.again();
            assert_eq!(trial.request(&[]), Outcome::Passed);
            assert!(trial.request_header("x-ran").is_some(), "the next stream is served");
        }
    }
}

#[test]
fn a_failed_first_hook_leaves_the_second_side_alone() {
    let mut trial = Trial::rider(&v1(&[("request", "error('no')"), ("response", "resp.set_header('x-out', '1')")]));
    trial.stream.response.set_status(200);
    assert_eq!(trial.request(&[]), Outcome::Passed);
    assert_eq!(trial.response(&[]), Outcome::Passed);
    assert_eq!(trial.response_header("x-out"), None);
}

#[test]
fn errors_of_sdk_calls_can_be_caught_also_across_waits() {
    assert_eq!(
        out("local ok, e = pcall(req.set_header, 'x', 1) req.set_header('x-out', tostring(ok))").as_deref(),
        Some("false")
    );
    let mut trial = Trial::rider(&v1(&[(
        "request",
        "local ok, e = pcall(function() local b = req.get_body() error('after ' .. b:length(), 0) end)
         req.set_header('x-out', tostring(ok) .. e)",
    )]));
    assert_eq!(trial.request(&["abc"]), Outcome::Passed);
    assert_eq!(trial.request_header("x-out").as_deref(), Some("falseafter 3"));
    let mut trial = Trial::rider(&v1(&[(
        "request",
        "local ok, e = xpcall(function() local b = req.get_body() error('x', 0) end, function(e) return 'handled ' .. e end)
         req.set_header('x-out', e)",
    )]));
    trial.request(&["abc"]);
    assert_eq!(trial.request_header("x-out").as_deref(), Some("handled x"));
}

#[test]
fn coroutines_of_the_plugins_own_work() {
    let script =
        "local co = coroutine.wrap(function() for i = 1, 3 do coroutine.yield(req.get_header('n') .. i) end end)
                  req.set_header('x-out', co() .. co() .. co())";
    let mut trial = Trial::rider(&v2(&[("request_header", script)]));
    trial.restart(get(&[("n", "v")]));
    assert_eq!(out_of(&mut trial).as_deref(), Some("v1v2v3"));
}

#[test]
fn hooks_take_no_arguments_and_what_they_return_is_ignored() {
    let script = "require('rider.v2') local h = { version = 'v2' }
        function h:on_request_header(...) envoy.req.set_header('x-out', tostring(self) .. select('#', ...)) return 1, 2, 3 end
        return h";
    assert_eq!(out_of(&mut Trial::rider(script)).as_deref(), Some("nil0"));
}

#[test]
fn the_version_says_which_hooks_are_called() {
    let both = |version: &str| {
        format!(
            "require('rider') local h = {{ {version} }}
             function h.on_request() envoy.req.set_header('x-out', 'first') end
             function h.on_request_header() envoy.req.set_header('x-out', 'second') end
             return h"
        )
    };
    for (version, expected) in [
        ("", Some("first")),
        ("version = 'v1'", Some("first")),
        ("version = 'v2'", Some("second")),
        ("version = 'v3'", None),
        ("version = 2", None),
    ] {
        assert_eq!(out_of(&mut Trial::rider(&both(version))).as_deref(), expected, "{version}");
    }
    // Hooks that are no functions, and none at all.
    assert_eq!(out_of(&mut Trial::rider("return { on_request = 'x', on_response = 1 }")), None);
    assert_eq!(out_of(&mut Trial::rider("return {}")), None);
}

#[test]
fn shared_belongs_to_one_stream() {
    let script = v2(&[
        (
            "request_header",
            "local s = envoy.stream.shared req.set_header('x-out', tostring(s.n)) s.n = req.get_header('n')",
        ),
        ("response_header", "resp.set_header('x-out', tostring(envoy.stream.shared.n))"),
    ]);
    let mut trial = Trial::rider(&script);
    trial.restart(get(&[("n", "1")]));
    trial.request(&[]);
    assert_eq!(trial.request_header("x-out").as_deref(), Some("nil"));
    // Another stream between the two halves of the first.
    let first_state = std::mem::take(&mut trial.state);
    let first = std::mem::replace(&mut trial.stream, get(&[("n", "2")]));
    trial.request(&[]);
    assert_eq!(trial.request_header("x-out").as_deref(), Some("nil"));
    trial.stream.response.set_status(200);
    trial.response(&[]);
    assert_eq!(trial.response_header("x-out").as_deref(), Some("2"));
    trial.restart(first);
    trial.state = first_state;
    trial.stream.response.set_status(200);
    trial.response(&[]);
    assert_eq!(trial.response_header("x-out").as_deref(), Some("1"));
}

#[test]
fn shared_is_dropped_with_its_stream() {
    let script = "require('rider.v2')
        local kept = setmetatable({}, { __mode = 'k' })
        local h = { version = 'v2' }
        function h.on_request_header()
          if envoy.req.get_header('count') then
            collectgarbage() collectgarbage()
            local n = 0
            for _ in pairs(kept) do n = n + 1 end
            envoy.req.set_header('x-out', tostring(n))
          else
            envoy.stream.shared.x = 1
            kept[envoy.stream.shared] = true
          end
        end
        return h";
    let mut trial = Trial::rider(script);
    for _ in 0..50 {
        trial.request(&[]);
        trial.again();
    }
    trial.restart(get(&[("count", "1")]));
    assert_eq!(out_of(&mut trial).as_deref(), Some("0"));
}

#[test]
fn shared_can_be_kept_in_a_local_at_load_and_be_replaced() {
    let script = "require('rider.v2')
        local shared = envoy.stream.shared
        local h = { version = 'v2' }
        function h.on_request_header() shared.a = 1 shared.b = 2 end
        function h.on_response_header()
          local n = 0
          for _ in pairs(shared) do n = n + 1 end
          envoy.stream.shared = { c = 3 }
          envoy.resp.set_header('x-out', n .. tostring(shared.a) .. shared.c)
        end
        return h";
    let mut trial = Trial::rider(script);
    trial.stream.response.set_status(200);
    trial.request(&[]);
    trial.response(&[]);
    assert_eq!(trial.response_header("x-out").as_deref(), Some("2nil3"));
    let errors =
        Trial::rider_with("require('rider') envoy.stream.shared.x = 1 return {}", json!({}), json!({ "name": "test" }));
    assert!(errors.is_err(), "there is no stream at load");
}

#[test]
fn streams_in_a_replaced_machine_do_not_meet_the_streams_of_the_new_one() {
    let script = v2(&[
        (
            "request_header",
            "if req.get_header('hoard') then local t = {} for i = 1, 1e9 do t[i] = ('x'):rep(1e6) .. i end end
             envoy.stream.shared.n = req.get_header('n')",
        ),
        ("response_header", "resp.set_header('x-out', tostring(envoy.stream.shared.n))"),
    ]);
    // Time enough to reach the memory's limit, also on a busy machine: that is the one that replaces the machine.
    let config = json!({
        "name": "test", "runtime": "rider", "code": { "inline_string": script }, "budget": { "cpu": "10s" },
    });
    let mut trial = Trial::new(super::MANIFEST, &config.to_string(), None).unwrap();
    trial.restart(get(&[("n", "old")]));
    trial.request(&[]);
    let old_state = std::mem::take(&mut trial.state);
    let old = std::mem::replace(&mut trial.stream, get(&[("hoard", "1")]));
    trial.request(&[]);
    trial.restart(get(&[("n", "new")]));
    trial.request(&[]);
    let new_state = std::mem::take(&mut trial.state);
    let new = std::mem::replace(&mut trial.stream, old);
    trial.state = old_state;
    trial.stream.response.set_status(200);
    trial.response(&[]);
    assert_eq!(trial.response_header("x-out").as_deref(), Some("nil"), "its table went with the machine");
    trial.restart(new);
    trial.state = new_state;
    trial.stream.response.set_status(200);
    trial.response(&[]);
    assert_eq!(trial.response_header("x-out").as_deref(), Some("new"));
}

#[test]
fn a_stream_that_fails_in_a_replaced_machine_leaves_the_new_one_alone() {
    let script = v1(&[(
        "request",
        "if req.get_header('wait') then req.get_body() end
         if req.get_header('hoard') then local t = {} for i = 1, 1e9 do t[i] = ('x'):rep(1e6) .. i end end
         count = (count or 0) + 1
         req.set_header('x-out', tostring(count))",
    )]);
    let config = json!({
        "name": "test", "runtime": "rider", "code": { "inline_string": script }, "circuit": { "faults": 0 },
        "budget": { "cpu": "10s", "memory_bytes": 8 << 20 },
    });
    let mut trial = Trial::new(super::MANIFEST, &config.to_string(), None).unwrap();
    trial.restart(get(&[("wait", "1"), ("hoard", "1")]));
    trial.request_so_far(&["a"]);
    // It waits in the first machine, which the next stream uses up.
    let waiting_state = std::mem::take(&mut trial.state);
    let waiting = std::mem::replace(&mut trial.stream, get(&[("hoard", "1")]));
    trial.request(&[]);
    trial.restart(get(&[]));
    assert_eq!(out_of(&mut trial).as_deref(), Some("1"), "a fresh machine");
    trial.restart(waiting);
    trial.state = waiting_state;
    trial.request_trailers();
    assert_eq!(trial.request_header("x-out"), None, "it failed in the old one");
    trial.restart(get(&[]));
    assert_eq!(out_of(&mut trial).as_deref(), Some("2"));
}

#[test]
fn globals_of_a_plugin_last_and_are_its_own() {
    let script = v2(&[("request_header", "count = (count or 0) + 1 req.set_header('x-out', tostring(count))")]);
    let (mut one, mut other) = (Trial::rider(&script), Trial::rider(&script));
    for expected in ["1", "2"] {
        assert_eq!(out_of(&mut one).as_deref(), Some(expected));
        one.again();
    }
    assert_eq!(out_of(&mut other).as_deref(), Some("1"));
}

#[test]
fn without_a_route_that_forwards_header_hooks_are_skipped_and_the_maps_are_absent() {
    let script = v2(&[
        ("request_header", "req.set_header('x-out', 'header')"),
        (
            "request_body",
            "seen = tostring(req.get_header(':path')) .. req.get_header_map_size() .. tostring((pcall(req.set_header, 'a', 'b')))",
        ),
        ("response_body", "resp_seen = tostring(resp.get_header(':status')) .. resp.get_header_map_size()"),
    ]);
    // What the hooks saw is told by a stream that has a route.
    let script = script.replace(
        "req.set_header('x-out', 'header')",
        "req.set_header('x-out', tostring(seen) .. '|' .. tostring(resp_seen))",
    );
    let mut trial = Trial::rider(&script);
    trial.stream.route = None;
    trial.stream.response.set_status(404);
    trial.request(&["x"]);
    trial.response(&["x"]);
    assert_eq!(trial.request_header("x-out"), None);
    trial.again();
    trial.request(&[]);
    assert_eq!(trial.request_header("x-out").as_deref(), Some("nil0false|nil0"));
    trial.again();
    trial.stream.route.as_mut().unwrap().forwards = false;
    trial.request(&[]);
    assert_eq!(trial.request_header("x-out"), None, "a route with an answer of its own");
}

#[test]
fn allow_no_route_runs_the_hooks_everywhere() {
    let config = json!({ "plugin": {
        "name": "test", "allow_no_route": true,
        "code": { "local": { "inline_string": v2(&[
            ("request_header", "req.set_header('x-out', 'header')"),
            ("response_header", "resp.set_header('x-out', 'header')"),
        ]) } },
    }});
    let mut trial = Trial::new(RIDER, &config.to_string(), None).unwrap();
    trial.stream.route = None;
    trial.stream.response.set_status(404);
    trial.request(&[]);
    trial.response(&[]);
    assert_eq!(trial.request_header("x-out").as_deref(), Some("header"));
    assert_eq!(trial.response_header("x-out").as_deref(), Some("header"));
}

#[test]
fn response_header_hooks_need_an_entry_and_request_hooks_do_not() {
    let mut trial = Trial::rider_with(&tracing(), json!({}), json!({ "name": "other", "config": {} })).unwrap();
    trial.stream.response.set_status(200);
    trial.request(&[]);
    trial.response(&[]);
    assert_eq!(trial.request_header("x-trace").as_deref(), Some("rqhrqbrsb"));
}

#[test]
fn on_configure_runs_when_the_plugin_is_loaded() {
    let script = "local h = {} function h:on_configure(...) configured = tostring(self) .. select('#', ...) end
        function h.on_request() envoy.req.set_header('x-out', configured) end return h";
    assert_eq!(out_of(&mut Trial::rider(script)).as_deref(), Some("nil0"));
    for script in [
        "return { on_configure = function() error('not so') end }",
        "error('not so')",
        "local x = not so",
        "return 1",
        "local x = 1",
        "return { on_configure = function() coroutine.yield() end }",
        "return { on_configure = function() envoy.httpCall('a', {}, nil, 1) end }",
        "return { on_configure = function() envoy.respond({ [':status'] = 200 }) end }",
        "return { on_configure = function() while true do end end }",
    ] {
        assert!(Trial::rider_with(script, json!({}), json!({ "name": "test" })).is_err(), "{script}");
    }
    // Outside streams there is nothing to read.
    let script = v2(&[("configure", &show("x")), ("request_header", "")]).replace(
        &show("x"),
        "assert(req.get_header('a') == nil and req.get_headers() == nil and envoy.get_route_config() == nil)",
    );
    Trial::rider(&script);
}
