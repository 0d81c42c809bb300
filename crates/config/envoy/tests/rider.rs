//! The names of Rider's own types, and manifests in Envoy's form.

mod common;
mod gateway;
mod managers;

use common::said;
use gateway::bootstrap;
use managers::http;
use postrider_config_envoy::Outcome;
use postrider_config_envoy::lower::FilterKinds;
use postrider_model::{Value, ValueError};

struct Kinds;

impl FilterKinds for Kinds {
    fn known(&self, _: &str) -> bool {
        true
    }

    fn check(&self, _: &str, _: &str, _: &Value) -> Vec<ValueError> {
        Vec::new()
    }
}

const FILTERS: &str = r#"
- name: proxy.filters.http.rider
  typed_config:
    "@type": type.googleapis.com/proxy.filters.http.rider.v3alpha1.FilterConfig
    plugin: { name: first, code: { local: { inline_string: "return {}" } } }
- name: proxy.filters.http.rider
  typed_config:
    "@type": type.googleapis.com/proxy.filters.http.rider.v3alpha1.FilterConfig
    plugin: { name: second, code: { local: { inline_string: "return {}" } } }
"#;

fn outcome(overrides: &str, filters: &str) -> Outcome {
    let table = format!(
        "route_config:\n  virtual_hosts:\n  - name: a\n    domains: [\"*\"]\n    routes: [{{ match: {{ prefix: / }}, direct_response: {{ status: 200 }} }}]\n    typed_per_filter_config: {overrides}"
    );
    common::outcome(&bootstrap("", &table, filters), &Kinds)
}

const ENTRIES: &str = r#""@type": type.googleapis.com/proxy.filters.http.rider.v3alpha1.RouteFilterConfig"#;

#[test]
fn an_entry_of_no_plugin_is_warned_about_at_its_line() {
    let named = |overrides: &str| outcome(overrides, FILTERS);
    let good = named(&format!(
        "{{ proxy.filters.http.rider: {{ {ENTRIES}, plugins: [{{ name: first }}, {{ name: second }}] }} }}"
    ));
    assert_eq!(said(&good), "");
    let typo =
        format!("{{ proxy.filters.http.rider: {{ {ENTRIES}, plugins: [{{ name: first }}, {{ name: secnd }}] }} }}");
    let wrapped = format!(
        "{{ proxy.filters.http.rider: {{ \"@type\": type.googleapis.com/envoy.config.route.v3.FilterConfig, config: {{ {ENTRIES}, plugins: [{{ name: secnd }}] }} }} }}"
    );
    for typo in [typo, wrapped] {
        let typo = named(&typo);
        let text = said(&typo);
        assert!(typo.snapshot.is_some(), "{text}");
        assert!(text.contains("envoy.yaml:18:") && text.contains("warning[unknown-plugin]"), "{text}");
        assert!(text.contains("no Rider plugin is named `secnd`") && text.contains("did you mean `second`?"), "{text}");
    }
}

#[test]
fn two_plugins_of_one_name_in_a_chain_are_warned_about_at_the_second() {
    let twins = outcome("{}", &FILTERS.replace("second", "first"));
    let text = said(&twins);
    assert!(twins.snapshot.is_some(), "{text}");
    assert!(text.contains("envoy.yaml:27:") && text.contains("warning[duplicate-name]"), "{text}");
    assert!(text.contains("another plugin of the chain is named `first`"), "{text}");
}

#[test]
fn a_manifest_takes_a_status_and_a_version_as_numbers_and_as_texts() {
    let of = |fields: &str| {
        let manifest = format!(
            "- name: p\n  typed_config:\n    \"@type\": type.googleapis.com/postrider.filters.http.plugin.v1.Plugin\n    name: p\n    runtime: rider\n    code: {{ inline_string: \"return {{}}\" }}\n    {fields}"
        );
        outcome("{}", &manifest)
    };
    for (fields, status, version) in [
        ("{on_error: 503, version: 2}", "503", "2"),
        ("{on_error: \"503\", version: \"2\"}", "503", "2"),
        ("{on_error: continue, version: 1.10}", "continue", "1.10"),
    ] {
        let fields = fields.trim_matches(['{', '}']).replace(", ", "\n    ");
        let found = of(&fields);
        assert_eq!(said(&found), "", "{fields}");
        let snapshot = common::snapshot(&found);
        let Value::Map(config) = &http(&snapshot.listeners[0]).filters[0].config else { panic!("{fields}") };
        let text = |key: &str| match config.iter().find(|(known, _)| known == key) {
            Some((_, Value::String(text))) => text.clone(),
            other => panic!("{other:?}"),
        };
        assert_eq!((text("on_error").as_str(), text("version").as_str()), (status, version));
    }
    let wrong = of("on_error: yes");
    assert!(
        wrong.snapshot.is_none() && said(&wrong).contains("expected a string, found the boolean `yes`"),
        "{}",
        said(&wrong)
    );
}
