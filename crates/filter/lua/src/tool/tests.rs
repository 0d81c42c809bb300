//! The tool over scripts of Envoy's dialect. What the dialects mean is tested beside them.

use std::path::PathBuf;

use postrider_filter_trial::{Exchange, Loaded, Request};
use postrider_model::Value;

use super::*;

/// A folder that goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("postrider-tool-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn load(path: &std::path::Path) -> Loaded {
    Plugin::open(path, None).unwrap().load().unwrap()
}

/// Runs tests of scripts.
fn tested(path: &std::path::Path, rules: &Value) -> TestFile {
    run_tests(path, rules, &|module| panic!("{module:?} is no script"))
}

const MARK: &str = "local function mark(headers, value)
  headers:replace('x-mark', value)
end

function envoy_on_request(handle)
  local headers = handle:headers()
  mark(headers, (headers:get(':path')) .. '!')
  if headers:get('x-fail') then
    error('no such luck')
  end
end

function envoy_on_response(handle)
  mark(handle:headers(), 'answered')
end
";

#[test]
fn a_run_tells_every_edit() {
    let folder = Folder::new("run");
    let plugin = load(&folder.write("plugin.lua", MARK));
    let request = Request {
        path: "/a".into(),
        headers: vec![("x-mark".into(), b"old".into()), ("x-other".into(), b"1".into())],
        ..Request::default()
    };
    let report = plugin.run(&Exchange { request, ..Exchange::default() }).unwrap();
    assert!(report.is_clean(), "{report:?}");
    let text = report.text();
    for line in ["  ~ x-mark: old -> /a!\n", "    x-other: 1\n", "  + x-mark: answered\n", "  request head "] {
        assert!(text.contains(line), "{line:?} is not in:\n{text}");
    }
    let json = report.json();
    assert_eq!(json["request"]["changed"]["x-mark"]["after"][0], "/a!", "{json:#}");
    assert_eq!(json["response"]["added"]["x-mark"][0], "answered");
    assert!(json["memory_bytes"].as_u64() > Some(10_000), "{json:#}");
    assert_eq!(report.steps.len(), 2);
}

#[test]
fn an_error_is_told_with_its_line_and_how_it_came_there() {
    let folder = Folder::new("fault");
    let path = folder.write("plugin.lua", MARK);
    let request = Request { headers: vec![("x-fail".into(), b"1".into())], ..Request::default() };
    let report = load(&path).run(&Exchange { request, ..Exchange::default() }).unwrap();
    let [fault] = &report.faults[..] else { panic!("{report:?}") };
    assert!(fault.text.contains("plugin.lua:9: no such luck"), "{}", fault.text);
    assert!(fault.traceback.contains("plugin.lua:9: in "), "{}", fault.traceback);
    assert!(report.logs.is_empty() && !report.is_clean());
}

#[test]
fn a_script_that_does_not_load_says_where() {
    let folder = Folder::new("syntax");
    let path = folder.write("plugin.lua", "function envoy_on_request(h)\n  local x = = 1\nend\n");
    let errors = Plugin::open(&path, None).unwrap().load().err().unwrap();
    assert!(errors[0].contains("plugin.lua:2:"), "{errors:?}");
}

#[test]
fn cases_run_with_results_and_coverage() {
    let folder = Folder::new("cases");
    folder.write("plugin.lua", MARK);
    let path = folder.write(
        "plugin_test.lua",
        "local test = require('postrider.test')
test.case('marks', function()
  local r = test.stream { request = { method = 'POST', path = '/b', headers = { ['x-a'] = { '1', '2' } }, body = 'x\\0\\255' } }:run()
  test.equal(r.request.headers['x-mark'], '/b!')
  test.equal(r.request.headers['x-a'], '1, 2')
  test.equal(r.request.body, 'x\\0\\255')
  test.equal(r.response.status, 200)
end)
test.case('fails', function()
  test.equal({ a = 1, b = { 'x' } }, { a = 1, b = { 'y' } })
end)
test.case('breaks', function()
  local nothing
  nothing.x = 1
end)
",
    );
    let file = tested(&path, &Value::Null);
    assert_eq!(file.error, None);
    let names: Vec<_> = file.cases.iter().map(|case| (case.name.as_str(), case.failure.is_none())).collect();
    assert_eq!(names, [("marks", true), ("fails", false), ("breaks", false)], "{file:#?}");
    let failure = file.cases[1].failure.as_ref().unwrap();
    assert_eq!(failure.place.as_deref(), Some(format!("{}:10", path.display()).as_str()));
    assert_eq!(failure.expected.as_deref(), Some("{ a = 1, b = { \"y\" } }"));
    assert_eq!(failure.actual.as_deref(), Some("{ a = 1, b = { \"x\" } }"));
    assert_eq!(
        file.cases[2].failure.as_ref().unwrap().place.as_deref(),
        Some(format!("{}:14", path.display()).as_str())
    );
    let coverage = file.coverage.unwrap();
    assert_eq!(coverage.missed(), [9], "{coverage:?}");
    assert!(coverage.percent() < 100 && coverage.percent() > 80);
}

#[test]
fn streams_of_one_case_share_a_machine_and_cases_do_not() {
    let folder = Folder::new("share");
    folder.write(
        "count.lua",
        "local n = 0\nfunction envoy_on_request(h) n = n + 1 h:headers():replace('x-n', tostring(n)) end\n",
    );
    let path = folder.write(
        "count_test.lua",
        "local test = require('postrider.test')
for round = 1, 2 do
  test.case('round ' .. round, function()
    local stream = test.stream {}
    stream:run()
    test.equal(stream:run().request.headers['x-n'], '2')
  end)
end
",
    );
    let file = tested(&path, &Value::Null);
    assert!(file.passed() && file.cases.len() == 2, "{file:#?}");
    assert!(file.plugin.as_deref().is_some_and(|plugin| plugin.ends_with("count.lua")));
}

#[test]
fn wrong_streams_are_failures_at_their_line() {
    let folder = Folder::new("wrong");
    folder.write("plugin.lua", MARK);
    let path = folder.write(
        "plugin_test.lua",
        "local test = require('postrider.test')
test.case('a method', function()
  test.stream { request = { method = 'G T' } }:run()
end)
test.case('a key', function() test.stream { requests = {} } end)
test.case('an inner key', function() test.stream { request = { header = {} } }:run() end)
",
    );
    let file = tested(&path, &Value::Null);
    let messages: Vec<_> =
        file.cases.iter().map(|case| case.failure.as_ref().map(|failure| failure.message.clone())).collect();
    let [Some(method), Some(key), Some(inner)] = &messages[..] else { panic!("{messages:?}") };
    assert!(method.contains("`G T` is no method"), "{method}");
    assert!(key.contains("a stream has no `requests`"), "{key}");
    assert!(inner.contains("request: there is no `header`"), "{inner}");
}

#[test]
fn a_file_whose_plugin_is_missing_fails_as_a_whole() {
    let folder = Folder::new("missing");
    let path = folder.write("some_test.lua", "require('postrider.test').case('x', function() end)");
    let file = tested(&path, &Value::Null);
    assert!(!file.passed() && file.error.as_deref().is_some_and(|error| error.contains("plugin.lua")), "{file:?}");
}

#[test]
fn tests_are_found_in_folders_and_taken_by_name() {
    let folder = Folder::new("find");
    std::fs::create_dir_all(folder.0.join("b/.git")).unwrap();
    for name in ["b/x_test.lua", "a_test.lua", "b/.git/y_test.lua", "plugin.lua"] {
        folder.write(name, "");
    }
    let found = find_tests(std::slice::from_ref(&folder.0)).unwrap();
    assert_eq!(found, [folder.0.join("a_test.lua"), folder.0.join("b/x_test.lua")]);
    assert_eq!(find_tests(&[folder.0.join("plugin.lua")]).unwrap().len(), 1);
    assert!(find_tests(&[folder.0.join("nothing")]).is_err());
}

#[test]
fn a_plugin_is_tried_out_under_the_rules_that_it_will_have() {
    let folder = Folder::new("rules");
    let rider = folder.write("rider.lua", "require('rider') local file = io.open('/dev/null') return {}");
    let envoy = folder.write("envoy.lua", "local file = io.open('/dev/null') function envoy_on_request(h) end");
    for path in [rider, envoy] {
        assert!(Plugin::open(&path, None).unwrap().load().is_ok());
        let rules = crate::testing::json(r#"{"sandbox": "strict", "on_error": "503"}"#);
        let errors = Plugin { rules, ..Plugin::open(&path, None).unwrap() }.load().err().unwrap();
        assert!(errors[0].contains("attempt to index global 'io'"), "{errors:?}");
    }
}

#[test]
fn rules_say_where_else_a_rider_plugin_finds_modules() {
    let folder = Folder::new("paths");
    std::fs::create_dir(folder.0.join("elsewhere")).unwrap();
    folder.write("elsewhere/helper.lua", "return 'found'");
    folder.write("beside.lua", "return 'found'");
    let path = folder.write("plugin.lua", "require('rider') require('helper') require('beside') return {}");
    let rules = format!(r#"{{"package_path": ["{}/elsewhere/?.lua"]}}"#, folder.0.display());
    let plugin = Plugin { rules: crate::testing::json(&rules), ..Plugin::open(&path, None).unwrap() };
    assert!(plugin.load().is_ok(), "{:?}", plugin.load().err());
    let rules = crate::testing::json(r#"{"package_path": 1}"#);
    let errors = Plugin { rules, ..Plugin::open(&path, None).unwrap() }.load().err().unwrap();
    assert!(errors[0].contains("package_path"), "{errors:?}");
}

#[test]
fn a_test_holds_its_plugin_to_rules() {
    let folder = Folder::new("rules");
    folder.write(
        "plugin.lua",
        "function envoy_on_request(handle)
           local path = handle:headers():get(':path')
           if path == '/fail' then error('no') end
           if path == '/loop' then while true do end end
           handle:httpCall('auth', { [':method'] = 'GET', [':path'] = '/', [':authority'] = 'a' }, '', 100)
         end",
    );
    let path = folder.write(
        "plugin_test.lua",
        "local test = require('postrider.test')
         local function run(path, rules)
           return test.stream { request = { path = path }, rules = rules, calls = { auth = { status = 200 } } }:run()
         end
         test.case('an error is answered', function()
           local result = run('/fail', { on_error = 503 })
           test.equal(result.response.status, 503)
           test.equal(result.details, 'plugin_failed')
         end)
         test.case('a loop is stopped, and the next stream passes it by', function()
           local rules = { budget = { cpu = '0.001s' } }
           test.matches(run('/loop', rules).errors[1], 'CPU budget')
           test.equal(#run('/', rules).calls, 0)
         end)
         test.case('nobody may be called', function()
           test.matches(run('/', { clusters = {} }).errors[1], 'cluster invalid')
         end)
         test.case('what stands for all of them', function() test.equal(run('/fail').response.status, 418) end)
         test.case('without a rule', function() test.equal(#run('/', {}).calls, 1) end)
         test.case('what is no rule', function() run('/', { sandbox = 'none' }) end)",
    );
    let rules = postrider_filter_plugin::json::from_json_text(r#"{"on_error": 418}"#).unwrap();
    let file = tested(&path, &rules);
    assert_eq!(file.error, None);
    let failed: Vec<_> = file.cases.iter().filter_map(|case| Some((&*case.name, case.failure.as_ref()?))).collect();
    let [("what is no rule", failure)] = &failed[..] else { panic!("{failed:?}") };
    assert!(failure.message.contains("expected full, standard or strict"), "{failure:?}");
}

#[test]
fn a_module_is_tested_by_whoever_loads_it() {
    let folder = Folder::new("module");
    folder.write("mark.lua.txt", MARK);
    folder.write("mark.wasm", "\0asm");
    let path = folder.write(
        "mark_test.lua",
        "local test = require('postrider.test')
test.case('marks', function()
  local stream = test.stream { request = { path = '/m' }, config = { a = 1 }, rules = { root_id = 'r' } }
  test.equal(stream:run().request.headers['x-mark'], '/m!')
end)
test.case('does not load', function()
  test.stream { config = { a = 2 } }:run()
end)
",
    );
    let (asked, script) = (std::cell::RefCell::new(Vec::new()), folder.0.join("mark.lua.txt"));
    let load = |module: Module| {
        asked.borrow_mut().push(module.clone());
        match module.rules {
            Value::Null => Err(vec!["no such root".to_owned()]),
            _ => Plugin::open(&script, None).unwrap().load(),
        }
    };
    let file = run_tests(&path, &Value::Null, &load);
    assert_eq!((file.error.as_deref(), file.coverage.as_ref()), (None, None), "no lines of a module are known");
    let [marks, broken] = &file.cases[..] else { panic!("{file:?}") };
    assert_eq!(marks.failure, None);
    let failure = broken.failure.as_ref().unwrap();
    assert_eq!(failure.message, "no such root");
    assert_eq!(failure.place.as_deref(), Some(format!("{}:7", path.display()).as_str()));
    let asked = asked.borrow();
    assert!(asked[0].path.ends_with("mark.wasm") && asked[0].runtime.is_none(), "{asked:?}");
    assert_eq!(asked[0].config, crate::testing::json(r#"{"a": 1}"#));
    assert_eq!(asked[0].rules, crate::testing::json(r#"{"root_id": "r"}"#));
}

#[test]
fn tests_that_would_pass_unseen_fail() {
    let folder = Folder::new("unseen");
    folder.write("plugin.lua", MARK);
    let of = |cases: &str| {
        let text = format!("local test = require('postrider.test')\n{cases}");
        tested(&folder.write("unseen_test.lua", &text), &Value::Null)
    };
    let none = of("");
    assert_eq!((none.error.as_deref(), none.passed()), (Some("there is no test.case in it"), false));
    for (case, said) in [
        (
            "test.case('a', function() test.case('b', function() end) end)",
            "test.case does not belong into another case",
        ),
        ("test.case('a', function() os.exit(0) end)", "os.exit would end the run of all tests"),
    ] {
        let file = of(case);
        let message = &file.cases[0].failure.as_ref().unwrap().message;
        assert!(message.contains("unseen_test.lua:2:") && message.contains(said), "{message}");
    }
    assert!(of("os.exit(0)").error.unwrap().contains("unseen_test.lua:2: os.exit would end"));
}

#[test]
fn a_file_that_does_not_parse_was_asked_whose_it_is() {
    let folder = Folder::new("broken");
    let error = Plugin::open(&folder.write("x.lua", "x = = 1"), None).unwrap_err();
    assert!(error.contains("x.lua:1: unexpected symbol near '='"), "{error}");
    let error = Plugin::open(&folder.write("y.lua", "x = 1"), None).unwrap_err();
    assert!(error.contains("say which with --runtime"), "{error}");
}

#[test]
fn a_plugin_that_was_named_as_a_test_failed_by_its_modules() {
    let folder = Folder::new("notest");
    let path = folder.write("a.lua", "require('rider.v2') return {}");
    let file = tested(&path, &Value::Null);
    assert_eq!(
        file.error,
        Some(format!("{} is no test: tests are named *_test.lua, or use postrider.test", path.display()))
    );
    let path = folder.write("cases.lua", "require('postrider.test').case('x', function() end)");
    folder.write("plugin.lua", MARK);
    assert!(tested(&path, &Value::Null).passed());
}
