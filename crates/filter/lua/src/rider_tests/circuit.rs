//! What becomes of a plugin that fails: when it is left alone, when it is tried again, and what is shown of that.

use std::cell::Cell;
use std::time::{Duration, SystemTime};

use postrider_filter_api::fake::FakeHost;
use postrider_filter_api::{Action, Moment, Place, Registry, ScopedConfigs, State};
use serde_json::{Value, json};

use super::{MANIFEST, Trial, get, v1, v2};
use crate::testing::Outcome;

const OVERRIDE: &str = "postrider.filters.http.plugin.v1.PluginPerRoute";

thread_local! {
    static NOW: Cell<Moment> = const { Cell::new(Moment::from_nanos(0)) };
}

fn clock() -> (Moment, SystemTime) {
    (NOW.get(), SystemTime::UNIX_EPOCH)
}

fn pass(time: Duration) {
    NOW.set(NOW.get() + time);
}

/// A plugin whose circuit two faults open for a second.
fn plugin(script: &str, options: Value) -> Trial {
    let config = json!({
        "name": "test", "runtime": "rider", "code": { "inline_string": script }, "options": options,
        "circuit": { "faults": 2, "window": "60s", "retry": "1s" },
    });
    let mut trial = Trial::new(MANIFEST, &config.to_string(), None).unwrap();
    trial.stream.host.clock = clock;
    trial
}

/// A counter of the plugin, over all routes.
fn counted(trial: &Trial, name: &str) -> u64 {
    let scopes = trial.stats.read(&[]);
    let scopes = scopes.iter().filter(|scope| scope.set.root == "plugin");
    let cells = scopes.flat_map(|scope| scope.set.cells.iter().zip(&scope.cells));
    cells.filter(|(cell, _)| cell.name == name).map(|(_, value)| value).sum()
}

fn ask(trial: &mut Trial, what: &str) -> Outcome {
    trial.restart(get(&[("x-do", what)]));
    trial.request(&[])
}

#[test]
fn an_answer_of_the_plugins_own_is_a_success_of_the_trial() {
    let mut trial = plugin(
        &v2(&[(
            "request_header",
            "if req.get_header('x-do') == 'fail' then error('no') end envoy.respond({ [':status'] = 401 })",
        )]),
        json!({}),
    );
    let refused = Outcome::Answered(401, String::new());
    assert_eq!(ask(&mut trial, "fail"), Outcome::Passed);
    assert_eq!(ask(&mut trial, "fail"), Outcome::Passed);
    assert_eq!(counted(&trial, "circuit_open"), 1);
    assert_eq!(ask(&mut trial, "answer"), Outcome::Passed, "it is passed by");
    pass(Duration::from_secs(2));
    assert_eq!(ask(&mut trial, "answer"), refused, "the trial");
    assert_eq!(ask(&mut trial, "answer"), refused, "it is trusted again");
    assert_eq!((counted(&trial, "circuit_open"), counted(&trial, "bypassed")), (0, 1));
}

#[test]
fn a_trial_that_fails_opens_the_circuit_again() {
    let mut trial = plugin(
        &v2(&[(
            "request_header",
            "if req.get_header('x-do') == 'fail' then error('no') end req.set_header('x-out', '1')",
        )]),
        json!({}),
    );
    for _ in 0..2 {
        ask(&mut trial, "fail");
    }
    for round in 2..5 {
        pass(Duration::from_secs(2));
        ask(&mut trial, "fail");
        assert_eq!((counted(&trial, "circuit_opened"), counted(&trial, "circuit_open")), (round, 1));
        ask(&mut trial, "");
        assert_eq!(trial.request_header("x-out"), None);
    }
    pass(Duration::from_secs(2));
    ask(&mut trial, "");
    assert_eq!(trial.request_header("x-out").as_deref(), Some("1"));
    assert_eq!(counted(&trial, "errors"), 5);
}

/// Streams in one plugin at once, as on a worker.
const IN_FLIGHT: usize = 50;

/// Scripts that never come back, once they run behind `WAIT`.
fn runaways() -> [(&'static str, String); 5] {
    let endless = "runs = (runs or 0) + 1 local n = 0 while true do n = n + 1 end";
    let rider = |version: fn(&[(&str, &str)]) -> String, hook: &str, body: String| {
        let report = "if req.get_header('x-do') == 'report' then return req.set_header('x-out', tostring(runs)) end";
        version(&[(hook, &format!("{report} {body}"))])
    };
    let envoy = |body: String| {
        format!(
            "function envoy_on_request(h)
               if h:headers():get('x-do') == 'report' then return h:headers():replace('x-out', tostring(runs)) end
               {body}
             end"
        )
    };
    [
        ("rider", rider(v2, "request_header", endless.to_owned())),
        ("rider", rider(v2, "request_body", endless.to_owned())),
        ("rider", rider(v1, "request", format!("req.get_body() {endless}"))),
        ("envoy-lua", envoy(format!("h:body() {endless}"))),
        ("envoy-lua", envoy(format!("for chunk in h:bodyChunks() do {endless} end"))),
    ]
}

#[test]
fn a_runaway_script_costs_the_other_streams_of_its_worker_its_budget_once() {
    for (runtime, script) in runaways() {
        let config = json!({
            "name": "test", "runtime": runtime, "code": { "inline_string": script }, "budget": { "cpu": "0.005s" },
            "circuit": { "retry": "1s" },
        });
        let mut trial = Trial::new(MANIFEST, &config.to_string(), None).unwrap();
        trial.stream.host.clock = clock;
        let filter = trial.filter.clone();
        let mut streams: Vec<_> = (0..IN_FLIGHT).map(|_| (State::default(), get(&[]))).collect();
        // Every stream is in the script, or waits for it, before the first one's body comes.
        for (state, stream) in &mut streams {
            stream.host.clock = clock;
            stream.with(|stream| filter.on_request_headers(state, stream, false));
        }
        for (state, stream) in &mut streams {
            stream.request_body.push(b"x");
            let action = stream.with(|stream| filter.on_request_body(state, stream, true));
            assert!(matches!(action, Action::Done | Action::Continue), "{script}: it goes on without the plugin");
        }
        let counts = |trial: &Trial| ["cpu_kills", "circuit_opened", "circuit_open"].map(|name| counted(trial, name));
        assert_eq!(counts(&trial), [1, 1, 1], "{script}");
        assert_eq!(counted(&trial, "bypassed"), IN_FLIGHT as u64 - 1, "{script}");
        // One at a time tries it again, and no other.
        for round in 2..4 {
            pass(Duration::from_secs(2));
            for _ in 0..3 {
                trial.restart(get(&[]));
                trial.request(&["x"]);
            }
            assert_eq!(counts(&trial), [round, round, 1], "{script}");
        }
        pass(Duration::from_secs(2));
        ask(&mut trial, "report");
        assert_eq!(trial.request_header("x-out").as_deref(), Some("3"), "{script}");
        assert_eq!(counted(&trial, "circuit_open"), 0, "{script}: it came back");
    }
}

#[test]
fn a_finalizer_that_takes_the_time_of_a_call_is_counted_and_sets_the_plugin_aside() {
    let script = "local dying = newproxy(true)
        getmetatable(dying).__gc = function() local n = 0 for i = 1, 2e7 do n = n + i % 7 end end
        require('rider.v2')
        local h = { version = 'v2' }
        function h.on_request_header() kept = { newproxy(dying), ('x'):rep(1e5) .. tostring(kept) } end
        return h";
    let config = json!({
        "name": "test", "runtime": "rider", "code": { "inline_string": script },
        "budget": { "cpu": "0.002s" }, "circuit": { "retry": "600s" },
    });
    let mut trial = Trial::new(MANIFEST, &config.to_string(), None).unwrap();
    trial.stream.host.clock = clock;
    for _ in 0..500 {
        assert_eq!(ask(&mut trial, ""), Outcome::Passed);
    }
    assert_eq!(["cpu_kills", "circuit_opened", "circuit_open"].map(|name| counted(&trial, name)), [1, 1, 1]);
}

#[test]
fn a_trial_on_a_body_is_one_although_the_circuit_was_asked_with_the_head() {
    let mut trial = plugin(
        &v2(&[("request_body", "if req.get_body() == 'bad' then error('no') end req.set_header('x-out', '1')")]),
        json!({}),
    );
    for _ in 0..2 {
        trial.again();
        trial.request(&["bad"]);
    }
    assert_eq!(counted(&trial, "circuit_open"), 1);
    pass(Duration::from_secs(2));
    trial.again();
    trial.request(&["good"]);
    assert_eq!((trial.request_header("x-out").as_deref(), counted(&trial, "circuit_open")), (Some("1"), 0));
}

#[test]
fn a_plugin_that_does_not_load_on_a_worker_is_passed_by_and_tried_again() {
    let folder = std::env::temp_dir().join(format!("postrider-rider-broken-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("helper.lua");
    std::fs::write(&file, "return '1'").unwrap();
    let script = v2(&[("request_header", "req.set_header('x-out', helper)")]);
    let script = script.replace("local h =", "local helper = require('helper') local h =");
    let mut trial = plugin(&script, json!({ "package_path": [format!("{}/?.lua", folder.display())] }));
    // It was there when the configuration was read.
    std::fs::remove_file(&file).unwrap();
    for round in 1..3 {
        assert_eq!(ask(&mut trial, ""), Outcome::Passed);
        assert_eq!((trial.request_header("x-out"), counted(&trial, "bypassed")), (None, round));
    }
    std::fs::write(&file, "return '1'").unwrap();
    ask(&mut trial, "");
    assert_eq!(trial.request_header("x-out"), None, "not with every request");
    pass(Duration::from_secs(2));
    ask(&mut trial, "");
    assert_eq!(trial.request_header("x-out").as_deref(), Some("1"));
    assert_eq!(counted(&trial, "bypassed"), 3);
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn what_is_kept_for_a_stream_goes_with_it_also_when_its_route_switches_the_plugin_off() {
    let script = "require('rider.v2')
        local kept = setmetatable({}, { __mode = 'k' })
        local h = { version = 'v2' }
        function h.on_request_header()
          if envoy.req.get_header('x-do') == 'count' then
            collectgarbage() collectgarbage()
            local n = 0
            for _ in pairs(kept) do n = n + 1 end
            envoy.req.set_header('x-out', tostring(n))
          else
            envoy.stream.shared.x = 1
            kept[envoy.stream.shared] = true
            envoy.req.clear_route_cache()
          end
        end
        return h";
    let config = json!({ "name": "test", "runtime": "rider", "code": { "inline_string": script } });
    let mut registry = Registry::default();
    crate::register(&mut registry);
    let factory = registry.build("test", MANIFEST, &crate::testing::json(&config.to_string())).unwrap().unwrap();
    let stats = postrider_telemetry::Registry::new();
    let worker = stats.worker(0);
    let host = FakeHost::unwatched();
    let place =
        Place { stats: &worker, stat_prefix: "test", worker: 0, buffer_limit: 1 << 20, head_limits: None, host: &host };
    let off = factory.route_config(OVERRIDE, &crate::testing::json(r#"{ "disabled": true }"#)).unwrap();
    let on = factory.filter(&ScopedConfigs::default(), &place);
    let off = factory.filter(&ScopedConfigs { route: Some(off), ..ScopedConfigs::default() }, &place);
    let mut trial = Trial::around(on.clone(), stats, get(&[]));
    for _ in 0..10 {
        trial.filter = on.clone();
        assert_eq!(trial.request(&[]), Outcome::Passed);
        // The new route's filter sees the end of the stream.
        trial.filter = off.clone();
        trial.again();
    }
    trial.filter = on;
    ask(&mut trial, "count");
    assert_eq!(trial.request_header("x-out").as_deref(), Some("0"));
}

#[test]
fn only_the_clusters_that_a_manifest_names_can_be_called() {
    let call = "local ok, why = pcall(envoy.httpCall, req.get_header('x-do'),
          { [':method'] = 'GET', [':path'] = '/', [':authority'] = 'a' }, nil, 1)
        req.set_header('x-out', tostring(why))";
    let rider = json!({
        "name": "test", "runtime": "rider", "clusters": ["blue"],
        "code": { "inline_string": v2(&[("request_header", call)]) },
    });
    let envoy = json!({
        "name": "test", "runtime": "envoy-lua", "clusters": ["blue"],
        "code": { "inline_string": "function envoy_on_request(h)
            local ok, why = pcall(h.httpCall, h, h:headers():get('x-do'),
              { [':method'] = 'GET', [':path'] = '/', [':authority'] = 'a' }, nil, 1)
            h:headers():replace('x-out', tostring(why)) end" },
    });
    for manifest in [rider, envoy] {
        let mut trial = Trial::new(MANIFEST, &manifest.to_string(), None).unwrap();
        assert_eq!(ask(&mut trial, "red"), Outcome::Passed);
        let why = trial.request_header("x-out").unwrap();
        assert!(why.contains("http call cluster invalid"), "{why}");
        assert!(trial.stream.host.calls.borrow().is_empty());
        assert_eq!(ask(&mut trial, "blue"), Outcome::Paused);
    }
}

/// What has a finaliser, which calls `gone`.
const MORTALS: [&str; 6] = [
    "local dying = newproxy(true) getmetatable(dying).__gc = function() gone() end
     local function mortal() return newproxy(dying) end",
    "local ffi = require('ffi') local function mortal() return ffi.gc(ffi.new('int[1]'), function() gone() end) end",
    "local ffi = require('ffi') local int = ffi.metatype('struct { int mortal; }', { __gc = function() gone() end })
     local function mortal() return int() end",
    "local callable = setmetatable({}, { __call = function() gone() end })
     local ffi = require('ffi') local function mortal() return ffi.gc(ffi.new('int[1]'), callable) end",
    "local function mortal() return debug.setmetatable(newproxy(), { __gc = function() gone() end }) end",
    "local metatable = { __gc = function() gone() end } local ffi = require('ffi')
     local one, other = ffi.metatype('struct { int one; }', metatable), ffi.metatype('struct { int other; }', metatable)
     local function mortal() return { one(), other() } end",
];

fn with_mortals(mortals: &str, gone: &str) -> Trial {
    let script = format!(
        "require('rider.v2')
         local h = {{ version = 'v2' }}
         dead = 0
         function gone() {gone} end
         {mortals}
         function h.on_request_header()
           kept = {{ mortal(), ('x'):rep(1e5) .. tostring(kept) }}
           envoy.req.set_header('x-dead', tostring(dead))
         end
         return h"
    );
    let config = json!({
        "name": "test", "runtime": "rider", "code": { "inline_string": script },
        "budget": { "cpu": "0.002s" }, "circuit": { "retry": "600s" },
    });
    let mut trial = Trial::new(MANIFEST, &config.to_string(), None).unwrap();
    trial.stream.host.clock = clock;
    trial
}

#[test]
fn a_finaliser_without_an_end_is_stopped_and_sets_the_plugin_aside() {
    for mortals in MORTALS {
        for gone in ["while true do end", "while true do pcall(error) end", "local function f() return f() end f()"] {
            let mut trial = with_mortals(mortals, gone);
            for _ in 0..500 {
                assert_eq!(ask(&mut trial, ""), Outcome::Passed);
            }
            let counts = ["cpu_kills", "circuit_opened", "circuit_open"].map(|name| counted(&trial, name));
            assert_eq!(counts, [1, 1, 1], "{mortals} {gone}");
        }
    }
}

#[test]
fn finalisers_run_once_for_each_object_whatever_they_raise() {
    for mortals in MORTALS {
        let mut trial = with_mortals(mortals, "dead = dead + 1 error('in a finaliser')");
        for _ in 0..500 {
            assert_eq!(ask(&mut trial, ""), Outcome::Passed);
        }
        let dead: u32 = trial.request_header("x-dead").unwrap().parse().unwrap();
        let made = 500 * (1 + u32::from(mortals.contains("other()")));
        assert!((made / 2..made).contains(&dead), "{mortals}: {dead}");
        assert_eq!(counted(&trial, "errors"), 0, "{mortals}");
    }
}
