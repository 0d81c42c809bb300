//! The names of Rider's own types.

mod common;
mod gateway;

use common::said;
use gateway::bootstrap;
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
