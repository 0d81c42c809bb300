//! Scripts of Envoy's own types: what their errors mean, and the rules that the metadata of the node has for them.

use postrider_filter_api::fake::FakeHost;
use postrider_filter_api::testing::FakeStream;
use postrider_filter_api::{Place, Registry, ScopedConfigs};
use serde_json::{Value, json};

use crate::testing::{Outcome, Trial};

const LUA: &str = "envoy.extensions.filters.http.lua.v3.Lua";
const RIDER: &str = "proxy.filters.http.rider.v3alpha1.FilterConfig";

fn envoy(script: &str, rules: Value) -> Result<Trial, Vec<String>> {
    let mut config = json!({ "default_source_code": { "inline_string": script } });
    if !rules.is_null() {
        config["postrider.rules"] = rules;
    }
    told(Trial::new(LUA, &config.to_string(), None))
}

fn rider(script: &str, rules: Value) -> Result<Trial, Vec<String>> {
    let plugin = json!({ "name": "p", "allow_no_route": true, "code": { "local": { "inline_string": script } } });
    told(Trial::new(RIDER, &json!({ "plugin": plugin, "postrider.rules": rules }).to_string(), None))
}

fn told(built: Result<Trial, postrider_filter_api::ConfigError>) -> Result<Trial, Vec<String>> {
    built.map_err(|errors| errors.iter().map(|error| format!("{}: {}", error.path, error.message)).collect())
}

/// What comes of a request with `x-do`, and what the script left in `x-out`.
fn ask(trial: &mut Trial, what: &str) -> (Outcome, Option<String>) {
    trial.restart(FakeStream::new("GET", "/", &[("x-do", what)]));
    let outcome = trial.request(&[]);
    (outcome, trial.request_header("x-out"))
}

const FAILING: &str = "function envoy_on_request(h)
    local what = h:headers():get('x-do')
    if what == 'fail' then error('on purpose') end
    while what == 'loop' do end
    h:headers():add('x-out', 'done')
  end";

const FAILING_PLUGIN: &str = "local h = { version = 'v2' }
  function h.on_request_header()
    local what = envoy.req.get_header('x-do')
    if what == 'fail' then error('on purpose') end
    while what == 'loop' do end
    envoy.req.set_header('x-out', 'done')
  end
  return h";

#[test]
fn errors_that_a_client_causes_do_not_switch_a_script_off_for_others() {
    for mut trial in [envoy(FAILING, json!({})).unwrap(), rider(FAILING_PLUGIN, Value::Null).unwrap()] {
        for _ in 0..50 {
            assert_eq!(ask(&mut trial, "fail"), (Outcome::Passed, None));
        }
        assert_eq!(ask(&mut trial, "").1.as_deref(), Some("done"));
    }
}

#[test]
fn a_call_that_is_stopped_sets_a_script_aside() {
    let rules = json!({ "budget": { "cpu": "0.002s" }, "circuit": { "window": "600s", "retry": "600s" } });
    for mut trial in [envoy(FAILING, rules.clone()).unwrap(), rider(FAILING_PLUGIN, rules.clone()).unwrap()] {
        for what in ["fail", "loop", "loop", ""] {
            assert_eq!(ask(&mut trial, what), (Outcome::Passed, None), "{what}");
        }
        assert_eq!(trial.calls_and_timed().0, 2, "the others passed it by");
    }
}

#[test]
fn rules_may_want_several_calls_that_are_stopped() {
    for circuit in [
        json!({ "cpu_kills": 2, "window": "600s", "retry": "600s" }),
        json!({ "cpu_kills": 0, "faults": 2, "window": "600s", "retry": "600s" }),
    ] {
        let rules = json!({ "budget": { "cpu": "0.002s" }, "circuit": circuit });
        for mut trial in [envoy(FAILING, rules.clone()).unwrap(), rider(FAILING_PLUGIN, rules.clone()).unwrap()] {
            for what in ["loop", "fail"] {
                assert_eq!(ask(&mut trial, what), (Outcome::Passed, None));
            }
            assert_eq!(ask(&mut trial, "").1.as_deref(), Some("done"), "once is not enough");
            assert_eq!(ask(&mut trial, "loop"), (Outcome::Passed, None));
            assert_eq!(ask(&mut trial, ""), (Outcome::Passed, None), "it is passed by");
        }
    }
}

#[test]
fn rules_may_count_errors_and_answer_them() {
    let rules = json!({ "on_error": 503, "circuit": { "faults": 2, "retry": "600s", "kills_only": false } });
    for mut trial in [envoy(FAILING, rules.clone()).unwrap(), rider(FAILING_PLUGIN, rules.clone()).unwrap()] {
        assert_eq!(ask(&mut trial, "").1.as_deref(), Some("done"));
        for what in ["fail", "fail", ""] {
            assert_eq!(ask(&mut trial, what).0, Outcome::Answered(503, String::new()));
        }
    }
}

#[test]
fn rules_say_what_a_script_may_use_and_whom_it_may_call() {
    let looks = "tostring(io) .. tostring(ffi) .. tostring(pcall(require, 'ffi'))";
    let script = format!("local seen = {looks} function envoy_on_request(h) h:headers():add('x-out', seen) end");
    let mut trial = envoy(&script, json!({ "sandbox": "strict" })).unwrap();
    assert_eq!(ask(&mut trial, "").1.as_deref(), Some("nilnilfalse"));
    let calls = "function envoy_on_request(h)
        local ok, why = pcall(h.httpCall, h, 'a', { [':method'] = 'GET', [':path'] = '/', [':authority'] = 'a' }, nil, 1)
        h:headers():add('x-out', tostring(why))
      end";
    let mut trial = envoy(calls, json!({ "clusters": [] })).unwrap();
    let why = ask(&mut trial, "").1.unwrap();
    assert!(why.contains("http call cluster invalid"), "{why}");
    assert_eq!(ask(&mut envoy(calls, Value::Null).unwrap(), "").0, Outcome::Paused, "without rules it may");
    let filesystem = rider("require('rider') return {}", json!({ "sdk": "filesystem" })).err().unwrap();
    assert!(filesystem[0].contains("module 'rider' not found"), "{filesystem:?}");
}

#[test]
fn what_is_wrong_with_rules_is_told_where_it_stands() {
    let rules =
        json!({ "sandbox": "none", "budget": { "cpu": "0s", "disk": 1 }, "on_error": 1000, "clusters": [1], "x": 1 });
    let errors = envoy(FAILING, rules).err().unwrap();
    let places: Vec<&str> = errors.iter().filter_map(|error| error.split(": ").next()).collect();
    let wanted = ["on_error", "budget.cpu", "budget.disk", "clusters[0]", "sandbox", "x"];
    assert_eq!(places, wanted.map(|place| format!("postrider.rules.{place}")));
    let errors = envoy(FAILING, json!({ "sdk": "filesystem" })).err().unwrap();
    assert!(errors[0].starts_with("postrider.rules.sdk: `sdk` is an option of the runtime `rider`"), "{errors:?}");
    let errors = envoy(FAILING, json!([])).err().unwrap();
    assert!(errors[0].starts_with("postrider.rules: expected an object"), "{errors:?}");
}

#[test]
fn the_admin_is_told_of_other_scripts_and_of_the_last_error_with_its_way() {
    let mut registry = Registry::default();
    crate::register(&mut registry);
    let config = json!({
        "default_source_code": { "inline_string": "local function inner() error('deep') end
            function envoy_on_request(h) inner() end" },
        "source_codes": { "other": { "inline_string": "x = 1" } },
    });
    let factory = registry.build("lua", LUA, &crate::testing::json(&config.to_string())).unwrap().unwrap();
    let standing = factory.standing();
    assert_eq!((standing.scripts.len(), standing.last_error.is_none()), (1, true));
    assert_eq!((standing.scripts[0].name.as_str(), standing.scripts[0].digest.len()), ("other", 16));
    let stats = postrider_telemetry::Registry::new();
    let (worker, host) = (stats.worker(0), FakeHost::unwatched());
    let place =
        Place { stats: &worker, stat_prefix: "test", worker: 0, buffer_limit: 1 << 20, head_limits: None, host: &host };
    let filter = factory.filter(&ScopedConfigs::default(), &place);
    let mut trial = Trial::around(filter, stats, FakeStream::new("GET", "/", &[]));
    trial.request(&[]);
    let (_, text) = factory.standing().last_error.unwrap();
    assert!(text.starts_with("lua:1: deep\nstack traceback:"), "{text}");
    assert!(text.contains("in function 'inner'") || text.contains("lua:1: in"), "{text}");
    let route = json!({ "source_code": { "inline_string": "y = 1" } });
    let kind = "envoy.extensions.filters.http.lua.v3.LuaPerRoute";
    let shown = factory.route_config(kind, &crate::testing::json(&route.to_string())).unwrap().shown;
    let digest = shown.fields().unwrap().string("digest").unwrap().map(str::len);
    assert_eq!(digest, Some(16));
}

#[test]
fn a_yield_of_the_scripts_own_left_no_last_error() {
    let mut registry = Registry::default();
    crate::register(&mut registry);
    let script = "function envoy_on_request(h)\n  coroutine.yield()\nend";
    let config = json!({ "default_source_code": { "inline_string": script } });
    let factory = registry.build("lua", LUA, &crate::testing::json(&config.to_string())).unwrap().unwrap();
    let stats = postrider_telemetry::Registry::new();
    let (worker, host) = (stats.worker(0), FakeHost::unwatched());
    let place =
        Place { stats: &worker, stat_prefix: "test", worker: 0, buffer_limit: 1 << 20, head_limits: None, host: &host };
    let filter = factory.filter(&ScopedConfigs::default(), &place);
    Trial::around(filter, stats, FakeStream::new("GET", "/", &[])).request(&[]);
    let (_, text) = factory.standing().last_error.unwrap();
    assert!(text.starts_with("script performed an unexpected yield\nstack traceback:"), "{text}");
    assert!(text.contains("lua:2: in function 'envoy_on_request'"), "{text}");
}

#[test]
fn a_traceback_named_functions_of_the_host_and_a_stopped_call_no_line() {
    let mut registry = Registry::default();
    crate::register(&mut registry);
    let script = "local function spin()\n  for i = 1, 1e18 do\n  end\nend\n
        local function search()\n  return (('a'):rep(3000):find('.-.-.-.-.-.-b'))\nend\n
        function envoy_on_request(h)
          local what = h:headers():get('x-do')
          if what == 'spin' then spin() elseif what == 'search' then search() else h:headers():add('x', {}) end
        end";
    let config = json!({ "default_source_code": { "inline_string": script } });
    let factory = registry.build("lua", LUA, &crate::testing::json(&config.to_string())).unwrap().unwrap();
    let failed = |what: &str| {
        let stats = postrider_telemetry::Registry::new();
        let (worker, host) = (stats.worker(0), FakeHost::unwatched());
        let place = Place {
            stats: &worker,
            stat_prefix: what,
            worker: 0,
            buffer_limit: 1 << 20,
            head_limits: None,
            host: &host,
        };
        let filter = factory.filter(&ScopedConfigs::default(), &place);
        Trial::around(filter, stats, FakeStream::new("GET", "/", &[("x-do", what)])).request(&[]);
        factory.standing().last_error.unwrap().1
    };
    for (what, line) in [("spin", "lua:2: "), ("spin", "lua:2: "), ("search", "lua:7: ")] {
        let text = failed(what);
        assert!(text.starts_with(line) && text.contains(": the CPU budget of a call is spent\n"), "{text}");
        assert!(text.contains("in function 'envoy_on_request'") && !text.contains("postrider."), "{text}");
    }
    let text = failed("nothing");
    assert!(text.contains("in function 'envoy_on_request'") && !text.contains("postrider."), "{text}");
}

#[test]
fn loading_has_a_budget_of_its_own_and_says_so() {
    let errors = envoy("while true do end", Value::Null).err().unwrap();
    assert!(errors[0].contains("lua:1: the CPU budget of loading, 2 s, is spent"), "{errors:?}");
}

#[test]
fn an_empty_script_is_one_that_does_nothing() {
    let mut trial = envoy("", Value::Null).unwrap();
    assert_eq!(ask(&mut trial, ""), (Outcome::Passed, None));
}

#[test]
fn the_memory_that_calls_take_is_counted_by_route() {
    let script = "function envoy_on_request(h)
        if h:headers():get('x-do') == 'much' then keep = nil keep = ('x'):rep(100000 + #h:headers():get('x-do')) end
      end";
    let mut trial = envoy(script, Value::Null).unwrap();
    let taken = |trial: &mut Trial, what: &str| {
        let of_routes = |trial: &Trial| -> u64 {
            let scopes = trial.stats.read(&[]);
            let cells = scopes.iter().flat_map(|scope| scope.set.cells.iter().zip(&scope.cells));
            cells.filter(|(cell, _)| cell.name == "allocated_bytes").map(|(_, value)| value).sum()
        };
        let before = of_routes(trial);
        ask(trial, what);
        of_routes(trial) - before
    };
    taken(&mut trial, "little");
    let (little, much) = (taken(&mut trial, "little"), taken(&mut trial, "much"));
    assert!(little < 10_000, "{little}");
    assert!((100_000..1_000_000).contains(&much), "{much}");
}
