//! What configurations are taken and refused, and what machines and root contexts come of them.

use super::*;

fn told(errors: ConfigError) -> Vec<String> {
    errors.iter().map(|error| format!("{}: {}", error.path, error.message)).collect()
}

/// Answers with its configuration, and counts configurations.
const ECHOES: &str = r#"
    (global $roots (mut i32) (i32.const 0))
    (func (export "proxy_on_configure") (param i32 i32) (result i32)
        (global.set $roots (i32.add (global.get $roots) (i32.const 1)))
        (drop (call $get_buffer (i32.const 7) (i32.const 0) (i32.const 4) (i32.const 16) (i32.const 20)))
        (if (i32.eq (call $length) (i32.const 4)) (then
            (if (i32.eq (i32.load (call $place)) (i32.const 0x65737566)) (then (return (i32.const 0))))))
        (i32.const 1))
    (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
        (i32.store (i32.const 20) (i32.const 0))
        (drop (call $get_buffer (i32.const 7) (i32.const 0) (i32.const 99) (i32.const 16) (i32.const 20)))
        (drop (call $set_property $"configuration" (call $place) (call $length)))
        (call $note $"roots" (global.get $roots))
        (i32.const 0))"#;

fn any(kind: &str, more: &[(&str, Value)]) -> Value {
    let mut entries = vec![("@type".to_owned(), text(&format!("type.googleapis.com/{kind}")))];
    entries.extend(more.iter().map(|(key, value)| ((*key).to_owned(), value.clone())));
    Value::Map(entries)
}

#[test]
fn a_configuration_is_a_text_bytes_or_an_object() {
    let seen = |configuration: Value| {
        let mut trial = Trial::with("", &module(ECHOES), &[("configuration", configuration)]);
        trial.head(true);
        trial.noted("configuration").unwrap()
    };
    assert_eq!(seen(any("google.protobuf.StringValue", &[("value", text("words"))])), "words");
    assert_eq!(seen(any("google.protobuf.BytesValue", &[("value", text("AGE="))])), "\0a");
    let object = map([("a", Value::Integer(1)), ("b", Value::List(vec![Value::Bool(true)]))]);
    assert_eq!(seen(any("google.protobuf.Struct", &[("fields", object)])), r#"{"a":1,"b":[true]}"#);
    assert_eq!(seen(any("google.protobuf.StringValue", &[])), "");
    let other = envoy(&module(ECHOES), "", &[("configuration", any("google.protobuf.Duration", &[]))]);
    assert!(told(build(ENVOY, &other).err().unwrap())[0].contains("google.protobuf.Duration is not supported"));
}

#[test]
fn what_does_not_start_is_refused_where_it_stands() {
    let refused = |module: &[u8], more: &[(&str, Value)]| told(build(ENVOY, &envoy(module, "", more)).err().unwrap());
    let fuse = any("google.protobuf.StringValue", &[("value", text("fuse"))]);
    assert_eq!(
        refused(&module(ECHOES), &[("configuration", fuse)]),
        [
            "config: the plugin does not start: the module refuses its configuration: `proxy_on_configure` returned false"
        ]
    );
    assert!(
        refused(b"no module", &[])[0].starts_with("config.vm_config.code: the module does not load: no WebAssembly")
    );
    let bare = wat::parse_str(r#"(module (func (export "proxy_abi_version_0_2_0")))"#).unwrap();
    assert!(refused(&bare, &[])[0].contains("exports no memory"));
    let dumb = wat::parse_str(r#"(module (memory (export "memory") 1) (func (export "proxy_abi_version_0_2_0")))"#);
    assert!(refused(&dumb.unwrap(), &[])[0].contains("neither `malloc` nor `proxy_on_memory_allocate`"));
    let trap = module(r#"(func (export "_initialize") (unreachable))"#);
    assert!(refused(&trap, &[])[0].contains("unreachable"), "{:?}", refused(&trap, &[]));
    let signature = module(r#"(func (export "proxy_on_tick") (result i32) (unreachable))"#);
    assert!(refused(&signature, &[])[0].contains("`proxy_on_tick`"));
    let typed =
        module_with(r#"(import "env" "proxy_unknown" (func $unknown))"#, r#"(func (export "f") (call $unknown))"#);
    let said = refused(&typed, &[]);
    assert!(said[0].contains("imports what is not known here: `env.proxy_unknown`"), "{said:?}");
}

#[test]
fn a_variable_that_is_given_twice_is_refused() {
    let names = |names: &[&str]| Value::List(names.iter().map(|name| text(name)).collect());
    let refused = |variables: Value| {
        let vm = map([("code", map([("local", code(&module("")))])), ("environment_variables", variables)]);
        build(ENVOY, &map([("config", map([("vm_config", vm)]))])).err().map(told)
    };
    let twice = |place: &str| Some(vec![format!("config.vm_config.{place}: a variable of that name is given already")]);
    // As in Envoy, whether or not the host has it.
    for name in ["PATH", "POSTRIDER_TEST_NOT_SET"] {
        let both = map([("host_env_keys", names(&[name])), ("key_values", map([(name, text("x"))]))]);
        assert_eq!(refused(both), twice(&format!("environment_variables.key_values.{name}")));
        let listed = map([("host_env_keys", names(&[name, "OTHER", name]))]);
        assert_eq!(refused(listed), twice("environment_variables.host_env_keys[2]"));
        let apart = map([("host_env_keys", names(&[name])), ("key_values", map([("OTHER", text("x"))]))]);
        assert_eq!(refused(apart), None);
    }
}

/// Beside the fields of Envoy's type, where the metadata of the node puts them.
#[test]
fn budgets_of_envoys_own_types_hold_and_are_told_when_they_are_spent() {
    let with_rules = |rules: Value| {
        let Value::Map(mut fields) = envoy(&module(""), "", &[]) else { panic!("an object") };
        fields.push(("postrider.rules".to_owned(), rules));
        build(ENVOY, &Value::Map(fields))
    };
    let memory = |bytes: i64| map([("budget", map([("memory_bytes", Value::Integer(bytes))]))]);
    let said = told(with_rules(memory(100_000)).err().unwrap());
    assert!(said[0].contains("the memory budget of 100000 bytes is spent; `budget.memory_bytes`"), "{said:?}");
    let built = with_rules(memory(300_000)).unwrap();
    assert_eq!(built.plugin().unwrap().policy.memory, 300_000);
    let said = told(with_rules(map([("on_error", text("continue"))])).err().unwrap());
    assert!(said[0].starts_with("postrider.rules") && said[0].contains("`on_error`"), "{said:?}");
}

#[test]
fn fields_that_cannot_be_are_refused_by_name() {
    let module = module("");
    let refused = |config: Value| told(build(ENVOY, &map([("config", config)])).err().unwrap());
    assert_eq!(refused(map([])), ["config.vm_config: there is no `vm_config`"]);
    let null = map([("runtime", text("envoy.wasm.runtime.null")), ("code", map([("local", code(&module))]))]);
    assert!(refused(map([("vm_config", null)]))[0].contains("there is no engine `envoy.wasm.runtime.null`"));
    let vm = || map([("code", map([("local", code(&module))]))]);
    let both = map([("vm_config", vm()), ("fail_open", Value::Bool(true)), ("failure_policy", text("FAIL_CLOSED"))]);
    assert!(refused(both)[0].contains("`failure_policy` is set too"));
    assert!(refused(map([("vm_config", vm()), ("odd", Value::Bool(true))]))[0].contains("`odd` is not supported"));
}

#[test]
fn equal_keys_share_a_machine_and_routes_have_root_contexts_of_their_own() {
    let module = module(ECHOES);
    let manifest = |name: &str, vm_id: &str| {
        map([
            ("name", text(name)),
            ("runtime", text("wasm")),
            ("code", code(&module)),
            ("config", map([("of", text(name))])),
            ("options", map([("vm_id", text(vm_id))])),
        ])
    };
    let build = |name: &str, vm_id: &str| build(postrider_filter_plugin::KIND, &manifest(name, vm_id)).unwrap();
    let factory = build("one", "same");
    let mut one = Trial::of(factory.clone(), None);
    let other = Trial::of(build("two", "same"), None);
    let own = map([("config", map([("of", text("route"))]))]);
    let own = factory.route_config(postrider_filter_plugin::ROUTE_KIND, &own).unwrap();
    let mut route = Trial::of(factory, Some(own));
    let mut apart = Trial::of(build("three", "apart"), None);
    for trial in [&mut one, &mut route, &mut apart] {
        trial.head(true);
    }
    assert_eq!(one.noted("configuration").as_deref(), Some(r#"{"of":"one"}"#));
    assert_eq!(route.noted("configuration").as_deref(), Some(r#"{"of":"route"}"#));
    assert_eq!(one.noted("roots").as_deref(), Some("3"), "one machine");
    assert_eq!(apart.noted("roots").as_deref(), Some("1"));
    drop(other);
    assert_eq!(one.factory.plugin().map(|facts| (facts.name.as_str(), facts.runtime)), Some(("one", "wasm")));
}

#[test]
fn a_route_may_switch_the_plugin_off_and_a_wrong_override_is_refused() {
    let factory = build(ENVOY, &envoy(&module(ECHOES), "", &[])).unwrap();
    let off =
        factory.route_config(postrider_filter_plugin::ROUTE_KIND, &map([("disabled", Value::Bool(true))])).unwrap();
    let trial = Trial::of(factory.clone(), Some(off));
    assert!(!trial.filter.hooks().request_headers);
    let refused = factory.route_config(ENVOY, &map([])).err().unwrap();
    assert!(refused[0].message.contains("PluginPerRoute"), "{refused:?}");
}

#[test]
fn manifests_have_options_and_phases() {
    let refused = |more: &[(&str, Value)]| {
        let mut all = vec![
            ("name".to_owned(), text("p")),
            ("runtime".to_owned(), text("wasm")),
            ("code".to_owned(), code(&module(ECHOES))),
        ];
        all.extend(more.iter().map(|(key, value)| ((*key).to_owned(), value.clone())));
        build(postrider_filter_plugin::KIND, &Value::Map(all)).map_err(told)
    };
    assert_eq!(
        refused(&[("options", map([("odd", Value::Bool(true))]))]).err().unwrap(),
        ["options.odd: the field `odd` is not supported"]
    );
    assert!(refused(&[("phases", Value::List(vec![text("complete")]))]).err().unwrap()[0].starts_with("phases[0]"));
    let factory = refused(&[
        ("phases", Value::List(vec![text("response_headers")])),
        ("options", map([("configuration", text("raw"))])),
    ]);
    let mut trial = Trial::of(factory.ok().unwrap(), None);
    trial.head(true);
    assert_eq!(trial.noted("configuration"), None, "the hook is not called");
    let factory = refused(&[("options", map([("configuration", text("raw"))]))]).ok().unwrap();
    let mut trial = Trial::of(factory, None);
    trial.head(true);
    assert_eq!(trial.noted("configuration").as_deref(), Some("raw"));
    let runtime = map([("name", text("p")), ("runtime", text("perl")), ("code", code(b"x"))]);
    let errors = told(build(postrider_filter_plugin::KIND, &runtime).err().unwrap());
    assert_eq!(errors, ["runtime: there is no runtime `perl`; expected `wasm`"]);
}

#[test]
fn the_first_version_of_the_abi_has_its_own_functions() {
    let text = r#"(module
        (import "env" "proxy_get_configuration" (func $configuration (param i32 i32) (result i32)))
        (import "env" "proxy_continue_request" (func $continue (result i32)))
        (import "env" "proxy_clear_route_cache" (func $clear (result i32)))
        (import "env" "proxy_set_property" (func $set (param i32 i32 i32 i32) (result i32)))
        (memory (export "memory") 1)
        (func (export "proxy_abi_version_0_1_0"))
        (func (export "malloc") (param i32) (result i32) (i32.const 4096))
        (func (export "proxy_on_request_headers") (param i32 i32) (result i32)
            (drop (call $configuration (i32.const 16) (i32.const 20)))
            (drop (call $clear))
            (drop (call $set (i32.const 100) (i32.const 1) (i32.load (i32.const 16)) (i32.load (i32.const 20))))
            (drop (call $continue))
            (i32.const 1))
        (data (i32.const 100) "c"))"#;
    let configuration = any("google.protobuf.StringValue", &[("value", text_value("old"))]);
    let mut trial = Trial::with("", &wat::parse_str(text).unwrap(), &[("configuration", configuration)]);
    assert!(matches!(trial.head(true), Action::Continue), "what stops and goes on at once did not stop");
    assert!(trial.stream.info.route_is_stale);
    assert_eq!(trial.noted("c").as_deref(), Some("old"));
}

fn text_value(words: &str) -> Value {
    Value::String(words.to_owned())
}
