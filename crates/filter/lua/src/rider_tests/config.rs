//! Configurations of the filter, of routes, and what plugins see of them.

use serde_json::{Value, json};

use postrider_filter_api::fake::FakeHost;

use super::{MANIFEST, RIDER, RIDER_ROUTE, Trial, out_of, show, v1, v2};
use crate::testing::{Outcome, Trial as Any};

fn shown(expression: &str, base: Value, route: Value) -> String {
    let scripts = [v2(&[("request_header", &show(expression))]), v1(&[("request", &show(expression))])];
    let [second, first] =
        scripts.map(|script| out_of(&mut Trial::rider_with(&script, base.clone(), route.clone()).unwrap()).unwrap());
    assert_eq!(first, second);
    first
}

#[test]
fn configurations_are_tables() {
    let route = json!({ "name": "test", "config": { "a": [1, "b", true, null, { "c": 0.5 }] } });
    let cases = [
        ("envoy.get_base_config().x", "7"),
        ("envoy.get_base_config() == envoy.get_base_config()", "true"),
        ("#envoy.get_route_config().a", "5"),
        ("envoy.get_route_config().a[5].c", "0.5"),
        ("envoy.get_route_config().a[4] == require('cjson').null, type(require('cjson').null)", "true|userdata"),
        ("envoy.get_route_config() == envoy.get_route_config()", "true"),
    ];
    for (expression, expected) in cases {
        assert_eq!(shown(expression, json!({ "x": 7 }), route.clone()), expected, "{expression}");
    }
    assert_eq!(shown("next(envoy.get_base_config())", json!({}), route.clone()), "nil");
    assert_eq!(shown("next(envoy.get_base_config())", json!(null), route), "nil");
    assert_eq!(shown("envoy.get_route_config()", json!({}), json!({ "name": "other", "config": {} })), "nil");
    assert_eq!(shown("envoy.get_route_config()", json!({}), json!({ "name": "test" })), "nil", "an entry without one");
    assert_eq!(shown("next(envoy.get_route_config())", json!({}), json!({ "name": "test", "config": {} })), "nil");
}

#[test]
fn of_several_entries_the_first_of_the_plugins_name_counts() {
    let config = json!({ "plugin": { "name": "test", "code": { "local": { "inline_string":
        v2(&[("request_header", "req.set_header('x-out', envoy.get_route_config().n)")]) } } } });
    let route = json!({ "plugins": [
        { "name": "other", "config": { "n": "0" } },
        { "name": "test", "config": { "n": "1" } },
        { "name": "test", "config": { "n": "2" } },
    ]});
    let mut trial = Any::new(RIDER, &config.to_string(), Some((RIDER_ROUTE, &route.to_string()))).unwrap();
    assert_eq!(out_of(&mut trial).as_deref(), Some("1"));
}

#[test]
fn the_most_specific_configuration_counts_alone() {
    use postrider_filter_api::{Place, Registry, ScopedConfigs};
    let mut registry = Registry::default();
    crate::register(&mut registry);
    let config = json!({ "plugin": { "name": "test", "code": { "local": { "inline_string":
        v2(&[("request_header", "local c = envoy.get_route_config() req.set_header('x-out', c and c.n or 'none')")]) } } } });
    let factory = registry.build("rider", RIDER, &crate::testing::json(&config.to_string())).unwrap().unwrap();
    let scope = |name: &str, n: &str| {
        let value = json!({ "plugins": [{ "name": name, "config": { "n": n } }] });
        Some(factory.route_config(RIDER_ROUTE, &crate::testing::json(&value.to_string())).unwrap())
    };
    let cases = [
        (scope("test", "host"), None, "host"),
        (scope("test", "host"), scope("test", "route"), "route"),
        // The route's does not name the plugin: the virtual host's is not asked.
        (scope("test", "host"), scope("other", "route"), "none"),
    ];
    for (virtual_host, route, expected) in cases {
        let configs = ScopedConfigs { virtual_host, route, ..ScopedConfigs::default() };
        let stats = postrider_telemetry::Registry::new();
        let worker = stats.worker(0);
        let mut trial = Trial::rider("return {}");
        trial.filter = factory.filter(
            &configs,
            &Place {
                stats: &worker,
                stat_prefix: "test",
                worker: 0,
                buffer_limit: 1 << 20,
                head_limits: None,
                host: &FakeHost::unwatched(),
            },
        );
        assert_eq!(out_of(&mut trial).as_deref(), Some(expected));
    }
}

const SCHEMAS: &str = "require('rider.json_validator').register_validator(
    { type = 'object', properties = { n = { type = 'integer', minimum = 1 } }, required = {} },
    { type = 'object', properties = { mode = { enum = { 'a', 'b' } } }, required = { 'mode' }, additionalProperties = false })";

fn with_schemas(expression: &str) -> String {
    v2(&[("request_header", &show(expression))]).replace("local h =", &format!("{SCHEMAS} local h ="))
}

#[test]
fn a_base_configuration_that_does_not_fit_its_schema_keeps_the_plugin_from_loading() {
    let load = |base: Value| Trial::rider_with(&with_schemas("1"), base, json!({ "name": "test" }));
    assert!(load(json!({ "n": 1 })).is_ok());
    assert!(load(json!({})).is_ok());
    for wrong in [json!({ "n": 0 }), json!({ "n": "x" }), json!({ "n": 1.5 })] {
        let errors = load(wrong).err().unwrap();
        assert!(errors[0].message.contains("base config validate failed: n: "), "{}", errors[0].message);
    }
}

#[test]
fn a_configuration_that_the_plugin_refuses_was_told_at_its_code() {
    let own = v2(&[]).replace(
        "local h =",
        "require('rider.config').register_config_validator(function(base) return base.n == 1 and 0 or 1, 'n is not 1' end) local h =",
    );
    for (script, said) in [
        (with_schemas("1"), "the plugin refuses it: base config validate failed: n: "),
        (own, "the plugin refuses it: n is not 1"),
    ] {
        let errors = Trial::rider_with(&script, json!({ "n": 0 }), json!({ "name": "test" })).err().unwrap();
        assert_eq!(errors[0].path, "plugin.config");
        assert!(errors[0].message.starts_with(said), "{}", errors[0].message);
        let manifest =
            json!({ "name": "test", "runtime": "rider", "config": { "n": 0 }, "code": { "inline_string": script } });
        let errors = Any::new(MANIFEST, &manifest.to_string(), None).err().unwrap();
        assert_eq!(errors[0].path, "config");
    }
    let broken = with_schemas("1") + "error('something else')";
    let errors =
        Trial::rider_with(&broken.replace("return h\n", ""), json!({}), json!({ "name": "test" })).err().unwrap();
    assert_eq!(errors[0].path, "plugin.code");
    assert!(errors[0].message.contains("something else"), "{}", errors[0].message);
}

#[test]
fn a_route_configuration_that_does_not_fit_is_an_error_each_time_it_is_read() {
    let read = "select(2, pcall(envoy.get_route_config)) == select(2, pcall(envoy.get_route_config)) and envoy.get_route_config()";
    let cases = [
        (json!({ "name": "test", "config": { "mode": "a" } }), "table"),
        (
            json!({ "name": "test", "config": { "mode": "c" } }),
            "E: test:5: route config validate failed: mode: expected \"a\" or \"b\"",
        ),
        (json!({ "name": "test", "config": {} }), "route config validate failed: \"mode\" is missing"),
        (json!({ "name": "test", "config": { "mode": "a", "x": 1 } }), "route config validate failed: x"),
        (json!({ "name": "test" }), "route config validate failed: there is no config"),
        (json!({ "name": "other", "config": {} }), "nil"),
    ];
    for (route, expected) in cases {
        let mut trial = Trial::rider_with(&with_schemas(read), json!({}), route.clone()).unwrap();
        let got = out_of(&mut trial).unwrap();
        let expected = expected.rsplit(": route").next().unwrap();
        assert!(got.contains(expected), "{route}: {got}");
    }
}

#[test]
fn validators_of_the_plugins_own_judge_the_decoded_table() {
    let script = |verdict: &str| {
        v2(&[("request_header", &show("envoy.get_route_config().n"))]).replace(
            "local h =",
            &format!(
                "local config = require('rider.config')
                 config.register_config_validator(function(base) return base.n == 1 and config.VALIDATE_OK or config.VALIDATE_FAIL, 'n is not 1' end,
                   function(route) {verdict} end) local h ="
            ),
        )
    };
    let load = |verdict: &str, n: i32| {
        Trial::rider_with(&script(verdict), json!({ "n": n }), json!({ "name": "test", "config": { "n": 5 } }))
    };
    assert_eq!(out_of(&mut load("return config.VALIDATE_OK", 1).unwrap()).as_deref(), Some("5"));
    assert!(load("return 0", 2).err().unwrap()[0].message.contains("n is not 1"));
    assert!(out_of(&mut load("return 1, 'no ' .. route.n", 1).unwrap()).unwrap().contains("no 5"));
    assert!(out_of(&mut load("return 1", 1).unwrap()).unwrap().contains("route config validate failed"));
    assert!(out_of(&mut load("error('x')", 1).unwrap()).unwrap().contains("E: "));
}

#[test]
fn schemas_of_older_drafts_are_understood() {
    let check = |schema: &str, value: &str| {
        let expression = format!("require('jsonschema').generate_validator({schema})({value})");
        shown(&expression, json!({}), json!({ "name": "test" }))
    };
    let cases = [
        ("{ type = 'number', minimum = 0, exclusiveMinimum = true }", "0", false),
        ("{ type = 'number', minimum = 0, exclusiveMinimum = true }", "1", true),
        ("{ type = 'number', exclusiveMinimum = 0 }", "0", false),
        ("{ items = { { type = 'string' }, { type = 'number' } } }", "{ 'a', 'b' }", false),
        ("{ items = { { type = 'string' }, { type = 'number' } } }", "{ 'a', 1 }", true),
        (
            "{ definitions = { x = { type = 'string' } }, properties = { a = { ['$ref'] = '#/definitions/x' } } }",
            "{ a = 1 }",
            false,
        ),
        (
            "{ definitions = { x = { type = 'string' } }, properties = { a = { ['$ref'] = '#/definitions/x' } } }",
            "{ a = 'y' }",
            true,
        ),
        ("{ anyOf = { { type = 'string' }, { type = 'boolean' } } }", "true", true),
        ("{ oneOf = { { type = 'number' }, { minimum = 2 } } }", "3", false),
        ("{ ['not'] = { type = 'string' } }", "'x'", false),
        ("{ allOf = { { pattern = '^a' }, { maxLength = 2 } } }", "'abc'", false),
        ("{ type = 'array', items = { type = 'integer' }, uniqueItems = true }", "{ 1, 1 }", false),
        ("{ dependencies = { a = { 'b' } } }", "{ a = 1 }", false),
        ("{ properties = { required = { type = 'string' } }, required = { 'required' } }", "{ required = 'x' }", true),
        ("{ type = 'object', required = {}, enum = nil }", "{ a = 1 }", true),
    ];
    for (schema, value, fits) in cases {
        let got = check(schema, value);
        assert_eq!(got.starts_with("true"), fits, "{schema} {value}: {got}");
        assert!(fits || got.starts_with("false|"), "{schema} {value}: {got}");
    }
    assert!(check("{ type = 'nothing' }", "1").contains("invalid schema"), "a schema that is none");
    assert!(check("{ ['$ref'] = 'http://example.com/x' }", "1").contains("E: "), "nothing is fetched");
}

#[test]
fn copies_of_route_configurations_can_be_changed() {
    let change = "local c = envoy.get_route_config() c.n = c.n + 1 c.t[1] = c.t[1] + 1 req.set_header('x-out', c.n .. '|' .. c.t[1])";
    let route = json!({ "name": "test", "config": { "n": 1, "t": [1] } });
    let script = v2(&[("request_header", change)]);
    let mut shared = Trial::rider_with(&script, json!({}), route.clone()).unwrap();
    let copying = script.replace("local h =", "require('rider.v2.config').copy_route_config = true local h =");
    let mut copied = Trial::rider_with(&copying, json!({}), route).unwrap();
    for (round, expected) in ["2|2", "3|3"].iter().enumerate() {
        assert_eq!(out_of(&mut shared).as_deref(), Some(*expected));
        assert_eq!(out_of(&mut copied).as_deref(), Some("2|2"), "{round}");
        shared.again();
        copied.again();
    }
    let manifest = json!({ "name": "test", "runtime": "rider", "code": { "inline_string": script },
        "options": { "copy_route_config": true } });
    let route = json!({ "config": { "n": 1, "t": [1] } });
    let kind = "postrider.filters.http.plugin.v1.PluginPerRoute";
    let mut trial = Any::new(MANIFEST, &manifest.to_string(), Some((kind, &route.to_string()))).unwrap();
    for _ in 0..2 {
        assert_eq!(out_of(&mut trial).as_deref(), Some("2|2"));
        trial.again();
    }
}

#[test]
fn filter_configurations_are_read_strictly() {
    let code = json!({ "local": { "inline_string": "return {}" } });
    let cases = [
        (json!({ "plugin": { "name": "a", "code": code } }), None),
        (
            json!({ "plugin": { "name": "a", "code": code, "vm_config": { "vm_id": "x", "package_path": "/x/?.lua" } } }),
            None,
        ),
        (json!({ "plugin": { "name": "a", "code": { "local": { "inline_bytes": "cmV0dXJuIHt9" } } } }), None),
        (json!({ "plugin": { "name": "a", "code": { "remote": { "sha256": "x" } } } }), Some("remote")),
        (
            json!({ "plugin": { "name": "a", "code": { "remote": {}, "local": { "inline_string": "return {}" } } } }),
            Some("remote"),
        ),
        (json!({ "plugin": { "name": "a", "code": {} } }), Some("neither `local` nor `remote`")),
        (json!({ "plugin": { "name": "a" } }), Some("there is no `code`")),
        (json!({ "plugin": { "code": code } }), Some("there is no `name`")),
        (json!({}), Some("there is no `plugin`")),
        (json!({ "plugin": { "name": "a", "code": code, "more": 1 } }), Some("more")),
        (json!({ "plugin": { "name": "a", "code": code, "vm_config": { "more": 1 } } }), Some("more")),
        (json!({ "plugin": { "name": "a", "code": code, "log_file": { "more": 1 } } }), Some("more")),
        (json!({ "plugin": { "name": "a", "code": code }, "more": 1 }), Some("more")),
        (json!({ "plugin": { "name": "a", "code": code, "config": 5 } }), Some("object")),
        (json!({ "plugin": { "name": "a", "code": { "local": { "filename": "/nowhere.lua" } } } }), Some("nowhere")),
    ];
    for (config, expected) in cases {
        let result = Any::new(RIDER, &config.to_string(), None);
        match (result, expected) {
            (Ok(_), None) => {}
            (Ok(_), Some(_)) => panic!("{config} was taken"),
            (Err(errors), Some(text)) => assert!(
                errors.iter().any(|error| format!("{}: {}", error.path, error.message).contains(text)),
                "{config}: {errors:?}"
            ),
            (Err(errors), None) => panic!("{config}: {errors:?}"),
        }
    }
    for (kind, route, taken) in [
        (RIDER_ROUTE, json!({ "plugins": [{ "name": "a" }] }), true),
        (RIDER_ROUTE, json!({}), true),
        (RIDER_ROUTE, json!({ "plugins": [{ "config": {} }] }), false),
        (RIDER_ROUTE, json!({ "plugins": [{ "name": "a", "config": 1 }] }), false),
        (RIDER_ROUTE, json!({ "plugins": [{ "name": "a", "more": 1 }] }), false),
        (RIDER_ROUTE, json!({ "more": 1 }), false),
        ("some.Other", json!({}), false),
    ] {
        let config = json!({ "plugin": { "name": "a", "code": code } });
        let result = Any::new(RIDER, &config.to_string(), Some((kind, &route.to_string())));
        assert_eq!(result.is_ok(), taken, "{route}");
    }
}

#[test]
fn the_package_path_stands_before_luas_own() {
    let folder = std::env::temp_dir().join(format!("postrider-rider-path-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("own_module.lua"), "return { word = 'found' }").unwrap();
    for end in ["", ";"] {
        let config = json!({ "plugin": {
            "name": "test", "vm_config": { "package_path": format!("{}/?.lua{end}", folder.display()) },
            "code": { "local": { "inline_string": v2(&[("request_header", "req.set_header('x-out', require('own_module').word)")]) } },
        }});
        assert_eq!(out_of(&mut Any::new(RIDER, &config.to_string(), None).unwrap()).as_deref(), Some("found"));
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn the_phases_of_a_manifest_say_which_hooks_are_called() {
    let script = v2(&[
        ("request_header", "req.set_header('x-out', (req.get_header('x-out') or '') .. 'h')"),
        ("request_body", "req.set_header('x-out', (req.get_header('x-out') or '') .. 'b')"),
        ("response_header", "resp.set_header('x-out', 'r')"),
    ]);
    let cases = [
        (json!([]), Some("hb"), Some("r")),
        (json!(["request_headers"]), Some("h"), None),
        (json!(["request_body"]), Some("b"), None),
        (json!(["request_body", "response_headers"]), Some("b"), Some("r")),
    ];
    for (phases, request, response) in cases {
        let manifest =
            json!({ "name": "test", "runtime": "rider", "code": { "inline_string": script }, "phases": phases });
        let mut trial = Any::new(MANIFEST, &manifest.to_string(), None).unwrap();
        trial.stream.response.set_status(200);
        if trial.filter.hooks().request_headers {
            assert_eq!(trial.request(&["x"]), Outcome::Passed);
        }
        if trial.filter.hooks().response_headers {
            assert_eq!(trial.response(&[]), Outcome::Passed);
        }
        assert_eq!(trial.request_header("x-out").as_deref(), request, "{phases}");
        assert_eq!(trial.response_header("x-out").as_deref(), response, "{phases}");
    }
}

#[test]
fn a_manifests_override_without_a_configuration_leaves_the_plugin_without_a_route_configuration() {
    let script = with_schemas("tostring(envoy.get_route_config())");
    let manifest = json!({ "name": "test", "runtime": "rider", "code": { "inline_string": script } });
    let kind = "postrider.filters.http.plugin.v1.PluginPerRoute";
    let mut trial = Any::new(MANIFEST, &manifest.to_string(), Some((kind, "{}"))).unwrap();
    assert_eq!(out_of(&mut trial).as_deref(), Some("nil"));
    let trial = Any::new(MANIFEST, &manifest.to_string(), Some((kind, r#"{"disabled": true}"#))).unwrap();
    assert!(!trial.filter.hooks().request_headers);
}

#[test]
fn options_of_a_manifest_are_read_strictly() {
    for (options, expected) in [
        (json!({ "sandbox": "none" }), "options.sandbox: expected full, standard or strict"),
        (json!({ "sdk": "other" }), "options.sdk: expected builtin or filesystem"),
        (json!({ "sdk": "filesystem", "sandbox": "strict" }), "options.sdk: SDK files need ffi"),
        (json!({ "more": 1 }), "options.more"),
        (json!({ "package_path": [""] }), "options.package_path[0]: expected a text that is not empty"),
        (json!({ "package_cpath": ["/x/?.so"], "sandbox": "strict" }), "options.package_cpath: the sandbox level"),
        (json!({ "sdk": "filesystem", "copy_route_config": true }), "options.copy_route_config: SDK files"),
    ] {
        let errors = Trial::manifest("return {}", options.clone()).err().unwrap();
        let texts: Vec<_> = errors.iter().map(|error| format!("{}: {}", error.path, error.message)).collect();
        assert!(texts.iter().any(|text| text.starts_with(expected)), "{options}: {texts:?}");
    }
}

#[test]
fn faults_of_a_manifest_and_of_its_options_are_told_at_once() {
    let manifest = |runtime: &str| {
        json!({
            "name": "test", "runtime": runtime, "code": { "inline_string": "return {}" }, "on_error": "maybe",
            "phases": ["request", "complete"],
            "options": { "sandbox": "none", "sdk": "builtin", "more": 1 },
        })
    };
    let told = |runtime: &str| {
        let errors = Any::new(MANIFEST, &manifest(runtime).to_string(), None).err().unwrap();
        errors.into_iter().map(|error| error.path).collect::<Vec<_>>()
    };
    assert_eq!(told("rider"), ["phases[0]", "on_error", "phases[1]", "options.sandbox", "options.more"]);
    let of_envoys = ["phases[0]", "on_error", "phases[1]", "options.sdk", "options.sandbox", "options.more"];
    assert_eq!(told("envoy-lua"), of_envoys);
}

#[test]
fn what_a_runtime_has_not_is_refused() {
    let refused = |runtime: &str, fields: Value| {
        let mut manifest = json!({ "name": "test", "runtime": runtime, "code": { "inline_string": "return {}" } });
        for (key, value) in fields.as_object().unwrap() {
            manifest[key] = value.clone();
        }
        let errors = Any::new(MANIFEST, &manifest.to_string(), None).err().unwrap_or_default();
        errors.iter().map(|error| format!("{}: {}", error.path, error.message)).collect::<Vec<_>>()
    };
    for (key, value) in [
        ("sdk", json!("builtin")),
        ("copy_route_config", json!(false)),
        ("log_file", json!("/tmp/x")),
        ("allow_no_route", json!(true)),
    ] {
        let options = json!({ "options": { key: value } });
        let errors = refused("envoy-lua", options.clone());
        assert!(
            errors[0].starts_with(&format!("options.{key}: `{key}` is an option of the runtime `rider`")),
            "{errors:?}"
        );
        assert_eq!(refused("rider", options), [""; 0], "{key}");
    }
    for (runtime, phase, taken) in [
        ("rider", "request_body", true),
        ("rider", "request_trailers", false),
        ("rider", "complete", false),
        ("envoy-lua", "response_headers", true),
        ("envoy-lua", "request_body", false),
    ] {
        let errors = refused(runtime, json!({ "phases": ["request_headers", phase] }));
        assert_eq!(errors.is_empty(), taken, "{runtime} {phase}: {errors:?}");
        assert!(
            taken || errors[0].starts_with(&format!("phases[1]: no plugin of the runtime `{runtime}`")),
            "{errors:?}"
        );
    }
}

/// A plugin that counts as `rider.test.made` how often it is loaded for a worker.
const COUNTING: &str = "require('rider.v2')
    local made = envoy.define_metric(0, 'made')
    local h = { version = 'v2' }
    function h.on_configure() envoy.increment_metric(made, 1) end ";

#[test]
fn the_first_request_waited_for_the_machine() {
    use postrider_filter_api::{Factory, Place, Registry, ScopedConfigs};
    let mut registry = Registry::default();
    crate::register(&mut registry);
    let build = |script: String| -> std::sync::Arc<dyn Factory> {
        let manifest = json!({ "name": "test", "runtime": "rider", "code": { "inline_string": script } });
        registry.build("rider", MANIFEST, &crate::testing::json(&manifest.to_string())).unwrap().unwrap()
    };
    let factory =
        build(COUNTING.to_owned() + "function h.on_request_header() envoy.req.set_header('x-out', 'ran') end return h");
    let stats = postrider_telemetry::Registry::new();
    let (worker, host) = (stats.worker(0), FakeHost::unwatched());
    let place =
        Place { stats: &worker, stat_prefix: "test", worker: 0, buffer_limit: 1 << 20, head_limits: None, host: &host };
    let kept = factory.warm(&ScopedConfigs::default(), &place).unwrap();
    let again = factory.warm(&ScopedConfigs::default(), &place).unwrap();
    assert!(std::rc::Rc::ptr_eq(&kept, &again));
    let filter = factory.filter(&ScopedConfigs::default(), &place);
    let mut trial = Any::around(filter, stats, super::get(&[]));
    assert_eq!(trial.stat("rider.test.made"), Some(1), "before any request");
    assert_eq!(out_of(&mut trial).as_deref(), Some("ran"));
    assert_eq!(trial.stat("rider.test.made"), Some(1));

    let off = crate::testing::json(r#"{ "disabled": true }"#);
    let off = factory.route_config("postrider.filters.http.plugin.v1.PluginPerRoute", &off).unwrap();
    let configs = ScopedConfigs { route: Some(off), ..ScopedConfigs::default() };
    assert!(factory.warm(&configs, &place).is_none(), "a route that does without it");
    let without_hooks = build(COUNTING.to_owned() + "return h");
    assert!(without_hooks.warm(&ScopedConfigs::default(), &place).is_none(), "no request would enter it");
}

#[test]
fn hooks_of_another_version_were_silent() {
    let hook = |name: &str| format!("function h.{name}() end ");
    let told = |version: &str, hooks: &[&str]| {
        let script =
            format!("local h = {{ {version} }} {} return h", hooks.iter().copied().map(hook).collect::<String>());
        let folder = std::env::temp_dir().join(format!("postrider-versions-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("plugin.lua");
        std::fs::write(&file, script).unwrap();
        let loaded = crate::tool::Plugin::open(&file, Some(crate::tool::Runtime::Rider)).unwrap().load().unwrap();
        let report = loaded.run(&postrider_filter_trial::Exchange::default()).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        report.logs.into_iter().map(|line| line.text).collect::<Vec<_>>().join("; ")
    };
    let cases = [
        (
            "",
            &["on_request_header"][..],
            "`on_request_header` of version \"v2\" will never be called: the plugin's table says no `version`, which is \"v1\"",
        ),
        (
            "version = 'v2'",
            &["on_request", "on_response"],
            "`on_request`, `on_response` of version \"v1\" will never be called: the plugin's table says `version = \"v2\"`",
        ),
        (
            "",
            &["on_request", "on_response_body"],
            "`on_response_body` of version \"v2\" will never be called: the plugin's table says no `version`, which is \"v1\"",
        ),
        (
            "version = 'v1'",
            &["on_requests"],
            "the plugin does nothing: its table says `version = \"v1\"` and has none of `on_request`, `on_response`",
        ),
        ("version = 'v3'", &["on_request"], "there is no version `v3` of plugins: no hook of it is called"),
        ("version = 'v2'", &["on_response_body"], ""),
        ("", &["on_request"], ""),
    ];
    for (version, hooks, expected) in cases {
        assert_eq!(told(version, hooks), expected, "{version} {hooks:?}");
    }
}

#[test]
fn what_a_plugin_without_hooks_says_while_it_is_loaded_is_shown_by_a_run() {
    let folder = std::env::temp_dir().join(format!("postrider-hookless-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("plugin.lua");
    std::fs::write(&file, "require('rider') envoy.logInfo('loaded') return {}").unwrap();
    let loaded = crate::tool::Plugin::open(&file, None).unwrap().load().unwrap();
    let report = loaded.run(&postrider_filter_trial::Exchange::default()).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    let logs: Vec<_> = report.logs.iter().map(|line| line.text.as_str()).collect();
    assert_eq!(logs.len(), 2, "{logs:?}");
    assert!(logs.contains(&"loaded"), "{logs:?}");
}
