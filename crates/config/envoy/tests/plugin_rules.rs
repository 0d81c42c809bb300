//! Rules for scripts of Envoy's own types, which stand in the metadata of the node.

mod common;
mod gateway;
mod managers;

use common::said;
use gateway::bootstrap;
use managers::http;
use postrider_config_envoy::Outcome;
use postrider_config_envoy::lower::FilterKinds;
use postrider_model::{LogOutput, Value, ValueError};

/// Filters that find fault with a budget of theirs.
struct Kinds;

impl FilterKinds for Kinds {
    fn known(&self, _: &str) -> bool {
        true
    }

    fn check(&self, _: &str, _: &str, config: &Value) -> Vec<ValueError> {
        let wrong = rules(config)
            .is_some_and(|rules| matches!(rules, Value::Map(all) if all.iter().any(|(key, _)| key == "budget")));
        let error = || ValueError { path: "postrider.rules.budget.cpu".into(), message: "too short".into() };
        wrong.then(error).into_iter().collect()
    }
}

fn rules(config: &Value) -> Option<&Value> {
    let Value::Map(fields) = config else { return None };
    fields.iter().find(|(key, _)| key == "postrider.rules").map(|(_, value)| value)
}

const LOG: &str = r#"
route_config: {}
access_log:
- name: logged
  typed_config:
    "@type": type.googleapis.com/envoy.extensions.access_loggers.wasm.v3.WasmAccessLog
    config: { name: logger }
"#;

const FILTERS: &str = r#"
- name: auth.lua
  typed_config:
    "@type": type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua
    default_source_code: { inline_string: "x = 1" }
- name: proxy.filters.http.rider
  typed_config:
    "@type": type.googleapis.com/proxy.filters.http.rider.v3alpha1.FilterConfig
    plugin: { name: hello, code: { local: { inline_string: "return {}" } } }
- name: modules
  typed_config:
    "@type": type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm
    config: { name: counter }
- name: nameless
  typed_config:
    "@type": type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm
    config: { root_id: r }
"#;

fn outcome(rules: &str) -> Outcome {
    let node = format!("\nnode:\n  metadata:\n    postrider.plugins: {rules}");
    common::outcome(&(node + &bootstrap("", LOG, FILTERS)), &Kinds)
}

#[test]
fn rules_stand_beside_the_configuration_of_the_plugin_that_they_name() {
    let outcome = outcome("{ auth.lua: { sandbox: strict, clusters: [] }, hello: { on_error: 503 } }");
    assert_eq!(said(&outcome), "");
    let snapshot = common::snapshot(&outcome);
    let [lua, rider] = [0, 1].map(|index| rules(&http(&snapshot.listeners[0]).filters[index].config).cloned().unwrap());
    let text = |text: &str| Value::String(text.to_owned());
    assert_eq!(lua, Value::Map(vec![("sandbox".into(), text("strict")), ("clusters".into(), Value::List(vec![]))]));
    assert!(matches!(&rider, Value::Map(all) if all[0].0 == "on_error"), "{rider:?}");
}

#[test]
fn modules_have_rules_by_the_name_of_their_plugin_or_their_place() {
    let outcome = outcome("{ counter: { on_error: 503 }, nameless: { x: 1 }, logger: { y: 1 } }");
    assert_eq!(said(&outcome), "");
    let snapshot = common::snapshot(&outcome);
    let manager = http(&snapshot.listeners[0]);
    let first = |config: &Value| match rules(config) {
        Some(Value::Map(all)) => all[0].0.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!([2, 3].map(|index| first(&manager.filters[index].config)), ["on_error", "x"]);
    let LogOutput::Plugin(slot) = &manager.access_log[0].output else { panic!("no plugin's log") };
    assert_eq!(first(&slot.config), "y");
}

#[test]
fn an_error_in_the_rules_is_told_with_its_line_and_column() {
    let said = said(&outcome("\n      auth.lua:\n        budget: { cpu: 1s }"));
    assert!(said.contains("envoy.yaml:6:24: error[invalid-filter-config]: too short"), "{said}");
}

#[test]
fn rules_of_no_plugin_are_warned_about_and_other_shapes_refused() {
    let typo = outcome("{ aut.lua: {} }");
    let text = said(&typo);
    assert!(
        typo.snapshot.is_some()
            && text.contains("no Lua filter, no Rider plugin and no WebAssembly plugin is named `aut.lua`"),
        "{text}"
    );
    assert!(text.contains("did you mean `auth.lua`?"), "{text}");
    let wrong = outcome("[auth.lua]");
    assert!(wrong.snapshot.is_none(), "{}", said(&wrong));
    assert!(said(&wrong).contains("expected an object with the rules of each plugin"), "{}", said(&wrong));
}
