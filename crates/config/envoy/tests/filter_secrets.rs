//! Secrets that filters ask for.

mod common;
mod gateway;
mod managers;

use std::path::PathBuf;

use common::{said, snapshot};
use gateway::bootstrap;
use managers::http;
use postrider_config_envoy::Outcome;
use postrider_model::{Fields, Value};

/// A bootstrap with a filter that asks by `asks`, and these secrets.
fn outcome(asks: &str, secrets: &str) -> Outcome {
    let filter = format!(
        r#"
- name: credentials
  typed_config:
    "@type": type.googleapis.com/envoy.extensions.filters.http.credential_injector.v3.CredentialInjector
    credential:
      name: generic
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.http.injected_credentials.generic.v3.Generic
        credential: {{ {asks} }}
"#
    );
    let text = bootstrap(&format!("secrets: [{secrets}]"), "route_config: {}", &filter);
    let knows = |kind: &str| kind.ends_with(".CredentialInjector");
    common::outcome(&text, &knows)
}

/// What stands beside the name in the filter's configuration.
fn supplied(outcome: &Outcome) -> Option<Value> {
    let snapshot = snapshot(outcome);
    let below = |value: &Value, key: &str| Fields::value(&mut value.fields().unwrap(), key).cloned();
    let credential = below(&below(&http(&snapshot.listeners[0]).filters[0].config, "credential")?, "typed_config")?;
    below(&below(&below(&credential, "credential")?, "generic_secret")?, "secret")
}

fn text(key: &str, value: &str) -> Value {
    Value::Map(vec![(key.to_owned(), Value::String(value.to_owned()))])
}

#[test]
fn a_filter_gets_the_secret_that_it_names() {
    let fixed = outcome("name: s", "{ name: s, generic_secret: { secret: { filename: a.txt } } }");
    assert_eq!(said(&fixed), "");
    assert_eq!(supplied(&fixed), Some(text("filename", "a.txt")));

    let source = "sds_config: { path_config_source: { path: tests/tls/secrets.yaml } }";
    let filed = outcome(&format!("name: unused, {source}"), "");
    assert_eq!(said(&filed), "");
    assert_eq!(filed.files(), [PathBuf::from("tests/tls/secrets.yaml")]);
    assert!(supplied(&filed).is_some());
}

#[test]
fn a_secret_that_is_not_there_is_refused_where_it_is_named() {
    let certificate =
        "{ name: s, tls_certificate: { certificate_chain: { filename: a }, private_key: { filename: b } } }";
    let other = outcome("name: s", certificate);
    assert!(said(&other).contains("the secret `s` in `static_resources.secrets` is a certificate"), "{}", said(&other));
    let typo = outcome("name: secrat", "{ name: secret, generic_secret: { secret: { inline_string: x } } }");
    assert!(said(&typo).contains("there is no generic secret `secrat`"), "{}", said(&typo));
    let remote = outcome("name: s, sds_config: { ads: {} }", "");
    assert!(said(&remote).contains("secrets from a control plane"), "{}", said(&remote));
}
