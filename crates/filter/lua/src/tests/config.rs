//! Envoy's configuration of the filter: what is refused, with its place, and which script wins.

use crate::testing::{Outcome, Trial};

const KIND: &str = "envoy.extensions.filters.http.lua.v3.Lua";
const ROUTE: &str = "envoy.extensions.filters.http.lua.v3.LuaPerRoute";

/// Sets `x-by`.
fn marks(by: &str) -> String {
    format!("function envoy_on_request(h) h:headers():replace('x-by', '{by}') end")
}

fn errors(config: &str, route: Option<&str>) -> Vec<(String, String)> {
    let errors = Trial::new(KIND, config, route.map(|route| (ROUTE, route))).err().expect("it is refused");
    errors.into_iter().map(|error| (error.path, error.message)).collect()
}

#[test]
fn what_is_wrong_is_told_with_its_place() {
    for (config, route, path, part) in [
        (
            r#"{"inline_code": "x = 1", "default_source_code": {"inline_string": "x = 1"}}"#,
            None,
            "inline_code",
            "only one",
        ),
        (r#"{"inline_code": "x ="}"#, None, "inline_code", "script load error: lua:1:"),
        (r#"{"inline_code": "error('top')"}"#, None, "inline_code", "top"),
        (r#"{"default_source_code": {}}"#, None, "default_source_code", "no code"),
        (
            r#"{"default_source_code": {"filename": "/nowhere.lua"}}"#,
            None,
            "default_source_code.filename",
            "/nowhere.lua",
        ),
        (r#"{"source_codes": {"a": {"inline_string": "("}}}"#, None, "source_codes[\"a\"]", "script load error"),
        (r#"{"source_codes": []}"#, None, "source_codes", "expected an object"),
        (r#"{"nonsense": 1}"#, None, "nonsense", ""),
        ("{}", Some(r#"{"disabled": true, "name": "a"}"#), "", "only one of"),
        ("{}", Some(r#"{"disabled": false}"#), "disabled", "only be true"),
        ("{}", Some(r#"{"name": ""}"#), "name", "no name"),
        ("{}", Some(r#"{"source_code": {"inline_string": "("}}"#), "source_code", "script load error"),
        (r#"{"package_paths": [""]}"#, None, "package_paths[0]", "not empty"),
        ("{}", Some(r#"{"package_cpaths": ["/x/?.so", ""]}"#), "package_cpaths[1]", "not empty"),
    ] {
        let found = errors(config, route);
        assert!(
            found.iter().any(|(at, message)| at == path && message.contains(part)),
            "{config} {route:?}: expected {part:?} at {path:?}, found {found:?}"
        );
    }
}

#[test]
fn the_routes_choice_wins() {
    let config = serde_json::json!({
        "default_source_code": { "inline_string": marks("default") },
        "source_codes": { "named": { "inline_string": marks("named") } },
    })
    .to_string();
    let own = serde_json::json!({ "source_code": { "inline_string": marks("own") } }).to_string();
    for (route, by) in [
        (None, Some("default")),
        (Some(r#"{"name": "named"}"#), Some("named")),
        (Some(r#"{"name": "unknown"}"#), None),
        (Some(r#"{"disabled": true}"#), None),
        (Some(own.as_str()), Some("own")),
        (Some(r#"{"filter_context": {"a": 1}}"#), Some("default")),
    ] {
        let mut trial = Trial::new(KIND, &config, route.map(|route| (ROUTE, route))).unwrap();
        if trial.filter.hooks().request_headers {
            assert_eq!(trial.request(&[]), Outcome::Passed);
        }
        assert_eq!(trial.request_header("x-by").as_deref(), by, "{route:?}");
    }
}

#[test]
fn the_routes_context_replaces_the_filters() {
    let script =
        "function envoy_on_request(h) h:headers():replace('x-by', tostring((h:filterContext():get('who')))) end";
    let config = serde_json::json!({ "inline_code": script, "filter_context": { "who": "filter" } }).to_string();
    for (route, by) in [
        (None, "filter"),
        (Some("{}"), "filter"),
        (Some(r#"{"filter_context": {"who": "route"}}"#), "route"),
        // An empty one is one.
        (Some(r#"{"filter_context": {}}"#), "nil"),
    ] {
        let mut trial = Trial::new(KIND, &config, route.map(|route| (ROUTE, route))).unwrap();
        trial.request(&[]);
        assert_eq!(trial.request_header("x-by").as_deref(), Some(by));
    }
}

#[test]
fn a_required_file_is_found_and_watched() {
    let folder = std::env::temp_dir().join(format!("postrider-lua-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let module = folder.join("greeting.lua");
    std::fs::write(&module, "return { hello = 'hello' }").unwrap();
    let script = "local g = require('greeting')
        function envoy_on_request(h) h:headers():replace('x-by', g.hello) end";
    let paths = [format!("{}/?.lua", folder.display())];
    let config = serde_json::json!({ "inline_code": script, "package_paths": paths });
    let mut registry = postrider_filter_api::Registry::default();
    crate::register(&mut registry);
    let factory = registry.build("lua", KIND, &crate::testing::json(&config.to_string())).unwrap().unwrap();
    let watched = factory.files().iter().find(|file| file.path == module).expect("the module is watched");
    assert!(watched.is_current(std::fs::read(&watched.path).ok().as_deref()));
    let mut trial = Trial::new(KIND, &config.to_string(), None).unwrap();
    trial.request(&[]);
    assert_eq!(trial.request_header("x-by").as_deref(), Some("hello"));
    std::fs::write(&module, "return { hello = 'good day' }").unwrap();
    assert!(!watched.is_current(std::fs::read(&watched.path).ok().as_deref()), "a changed module is read again");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn an_error_of_a_required_file_begins_with_that_file() {
    let folder = std::env::temp_dir().join(format!("postrider-lua-broken-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("broken.lua"), "return {\n  hello =\n}").unwrap();
    let paths = [format!("{}/?.lua", folder.display())];
    let config = serde_json::json!({ "inline_code": "require('broken')", "package_paths": paths });
    let errors = Trial::new(KIND, &config.to_string(), None).err().expect("it does not load");
    let expected = format!("error loading module 'broken' from file '{}/broken.lua':", folder.display());
    assert!(errors[0].message.contains(&expected), "{}", errors[0].message);
    assert!(errors[0].message.contains("broken.lua:3: unexpected symbol near '}'"), "{}", errors[0].message);
    assert!(!errors[0].message.contains("postrider.watch"), "{}", errors[0].message);
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_routes_own_script_has_paths_of_its_own() {
    let folder = std::env::temp_dir().join(format!("postrider-lua-paths-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("found.lua"), "return 'found'").unwrap();
    let paths = [format!("{}/?.lua", folder.display())];
    let script = "local found = require('found') function envoy_on_request(h) h:headers():replace('x-by', found) end";
    let config = serde_json::json!({ "package_paths": paths }).to_string();
    let route = |fields: serde_json::Value| {
        let mut route = serde_json::json!({ "source_code": { "inline_string": script } });
        for (key, value) in fields.as_object().unwrap() {
            route[key] = value.clone();
        }
        Trial::new(KIND, &config, Some((ROUTE, &route.to_string())))
    };
    let mut trial = route(serde_json::json!({ "package_paths": paths })).unwrap();
    trial.request(&[]);
    assert_eq!(trial.request_header("x-by").as_deref(), Some("found"));
    let errors = route(serde_json::json!({})).err().expect("the filter's paths are not the route's");
    assert!(errors[0].message.contains("module 'found' not found"), "{}", errors[0].message);
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn machine_code_is_loaded_from_where_the_configuration_says_and_from_nowhere_else() {
    let folder = std::env::temp_dir().join(format!("postrider-lua-c-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let source = folder.join("answer.c");
    std::fs::write(
        &source,
        "typedef struct lua_State lua_State; void lua_pushnumber(lua_State *, double);
         int luaopen_answer(lua_State *L) { lua_pushnumber(L, 42); return 1; }",
    )
    .unwrap();
    // LuaJIT itself is built by the same compiler.
    let mut compile = std::process::Command::new("cc");
    compile.args(["-shared", "-fPIC", "-o"]).arg(folder.join("answer.so")).arg(&source);
    assert!(compile.status().expect("cc runs").success());
    let script =
        "local answer = require('answer') function envoy_on_request(h) h:headers():replace('x-by', answer) end";
    let cpaths = [format!("{}/?.so", folder.display())];
    let config = serde_json::json!({ "inline_code": script, "package_cpaths": cpaths });
    let mut trial = Trial::new(KIND, &config.to_string(), None).unwrap();
    trial.request(&[]);
    assert_eq!(trial.request_header("x-by").as_deref(), Some("42"));
    let open = format!("package.cpath = '{}' .. package.cpath {script}", cpaths[0]);
    let config = serde_json::json!({ "inline_code": open });
    let errors = Trial::new(KIND, &config.to_string(), None).err().expect("a script cannot say where");
    assert!(errors[0].message.contains("module 'answer' not found"), "{}", errors[0].message);
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_scripts_own_cjson_is_taken_before_ours() {
    let folder = std::env::temp_dir().join(format!("postrider-lua-json-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("cjson.lua"), "return { decode = function() return { a = 'own' } end }").unwrap();
    let script = r#"
        local cjson, safe = require("cjson"), require("cjson.safe")
        function envoy_on_request(h)
            h:headers():add("x-out", cjson.decode('{"a": "ours"}').a .. " " .. safe.decode('{"a": "safe"}').a)
        end"#;
    let path = format!("{}/?.lua", folder.display());
    for (config, expected) in [
        (serde_json::json!({ "inline_code": script }), "ours safe"),
        (serde_json::json!({ "inline_code": script, "package_paths": [path] }), "own safe"),
        (serde_json::json!({ "inline_code": script, "postrider.rules": { "sandbox": "strict" } }), "ours safe"),
    ] {
        let mut trial = Trial::new(KIND, &config.to_string(), None).unwrap();
        assert_eq!(trial.request(&[]), Outcome::Passed);
        assert_eq!(trial.request_header("x-out").as_deref(), Some(expected), "{config}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_changed_module_is_seen_although_streams_of_the_configuration_before_go_on() {
    let folder = std::env::temp_dir().join(format!("postrider-lua-changed-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let module = folder.join("changes.lua");
    let script = "local by = require('changes') function envoy_on_request(h) h:headers():replace('x-by', by) end";
    let paths = [format!("{}/?.lua", folder.display())];
    let config = serde_json::json!({ "inline_code": script, "package_paths": paths }).to_string();
    let with = |text: &str| {
        std::fs::write(&module, text).unwrap();
        let mut trial = Trial::new(KIND, &config, None).unwrap();
        trial.request(&[]);
        trial
    };
    // Both live: one has the machine of the module before.
    let (before, after) = (with("return 'before'"), with("return 'after'"));
    assert_eq!(before.request_header("x-by").as_deref(), Some("before"));
    assert_eq!(after.request_header("x-by").as_deref(), Some("after"));
    std::fs::remove_dir_all(&folder).unwrap();
}
