//! What Go filters are given: configurations that only their own code can read, and secrets.

mod common;
mod gateway;
mod managers;

use common::{said, snapshot};
use gateway::bootstrap;
use managers::http;
use postrider_config_envoy::Outcome;
use postrider_model::Value;

fn outcome(fields: &str) -> Outcome {
    let filter = format!(
        r#"
- name: go
  typed_config:
    "@type": type.googleapis.com/envoy.extensions.filters.http.golang.v3alpha.Config
    library_id: l
    library_path: l.so
    plugin_name: p
    {fields}
"#
    );
    let secrets = "secrets: [{ name: s, generic_secret: { secret: { inline_string: hush } } }]";
    let text = bootstrap(secrets, "route_config: {}", &filter);
    let knows = |kind: &str| kind.ends_with("golang.v3alpha.Config");
    common::outcome(&text, &knows)
}

/// What the filter gets; panics when it is refused.
fn given(fields: &str, key: &str) -> Value {
    let outcome = outcome(fields);
    assert_eq!(said(&outcome), "");
    let snapshot = snapshot(&outcome);
    http(&snapshot.listeners[0]).filters[0].config.fields().unwrap().value(key).unwrap().clone()
}

fn map(entries: &[(&str, Value)]) -> Value {
    Value::Map(entries.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect())
}

fn text(text: &str) -> Value {
    Value::String(text.to_owned())
}

#[test]
fn a_struct_reaches_the_plugin_as_it_is_whatever_type_it_names() {
    let url = "type.googleapis.com/xds.type.v3.TypedStruct";
    for (name, named) in [("", None), ("type_url: x/only.Plugins.Know, ", Some("x/only.Plugins.Know"))] {
        let fields = format!(r#"plugin_config: {{ "@type": {url}, {name}value: {{ a: [1, b] }} }}"#);
        let inner = map(&[("a", Value::List(vec![Value::Integer(1), text("b")]))]);
        let mut wanted = vec![("@type", text(url))];
        wanted.extend(named.map(|named| ("type_url", text(named))));
        wanted.push(("value", inner));
        assert_eq!(given(&fields, "plugin_config"), map(&wanted));
    }
}

#[test]
fn secrets_stand_beside_their_names() {
    let secret = map(&[("secret", map(&[("inline_string", text("hush"))]))]);
    let wanted = Value::List(vec![map(&[("name", text("s")), ("generic_secret", secret)])]);
    assert_eq!(given("generic_secrets: [{ name: s }]", "generic_secrets"), wanted);
    let refused = outcome("generic_secrets: [{ name: other }]");
    let said = said(&refused);
    assert!(said.contains("there is no generic secret `other`"), "{said}");
    assert!(said.contains("generic_secrets[0].name"), "{said}");
}

/// What another kind of Go code gets, by the text of a listener's filters or routes.
fn shown(filters: &str) -> String {
    let text = format!(
        r#"
static_resources:
  clusters: [{{ name: c, connect_timeout: 1s, type: STATIC }}]
  listeners:
  - name: l
    address: {{ socket_address: {{ address: 127.0.0.1, port_value: 1 }} }}
    filter_chains: [{{ filters: [{filters}] }}]
"#
    );
    let knows = |kind: &str| kind.ends_with("golang.v3alpha.Config") || kind.ends_with("router.v3.Router");
    let outcome = common::outcome(&text, &knows);
    assert_eq!(said(&outcome), "");
    format!("{:?}", snapshot(&outcome).listeners[0].filter_chains[0])
}

#[test]
fn choosers_of_clusters_and_filters_of_connections_get_what_only_they_know() {
    let config =
        "{ \"@type\": type.googleapis.com/xds.type.v3.TypedStruct, type_url: x/only.They.Know, value: { a: b } }";
    let filter = format!(
        r#"{{ name: go, typed_config: {{
          "@type": type.googleapis.com/envoy.extensions.filters.network.golang.v3alpha.Config,
          is_terminal_filter: true, library_id: l, library_path: l.so, plugin_name: p, plugin_config: {config} }} }}"#
    );
    let chain = shown(&filter);
    assert!(chain.contains("x/only.They.Know") && chain.contains("handler: Filters"), "{chain}");
    let routes = format!(
        r#"{{ name: http, typed_config: {{
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager,
          stat_prefix: x,
          http_filters: [{{ name: r, typed_config: {{ "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router }} }}],
          route_config: {{ virtual_hosts: [{{ name: v, domains: ["*"], routes: [{{ match: {{ prefix: / }}, route: {{
            inline_cluster_specifier_plugin: {{ extension: {{ name: go, typed_config: {{
              "@type": type.googleapis.com/envoy.extensions.router.cluster_specifier.golang.v3alpha.Config,
              library_id: l, library_path: l.so, default_cluster: c, config: {config} }} }} }} }} }}] }}] }} }} }}"#
    );
    assert!(shown(&routes).contains("x/only.They.Know"));
}

#[test]
fn go_code_may_speak_to_hosts_in_place_of_http() {
    let cluster = |kind: &str| {
        format!(
            r#"
static_resources:
  clusters:
  - name: c
    connect_timeout: 1s
    type: STATIC
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {{ http2_protocol_options: {{}} }}
    upstream_config:
      name: x
      typed_config: {{ "@type": type.googleapis.com/envoy.extensions.upstreams.http.{kind} }}
"#
        )
    };
    let config =
        "{ \"@type\": type.googleapis.com/xds.type.v3.TypedStruct, type_url: x/only.They.Know, value: { a: b } }";
    let golang = format!(
        "tcp.golang.v3alpha.Config, library_id: l, library_path: l.so, plugin_name: p, plugin_config: {config}"
    );
    let read = |text: String| common::outcome(&text, &|_: &str| true);
    let outcome = read(cluster(&golang));
    assert!(outcome.diagnostics.is_empty(), "{}", said(&outcome));
    let upstream = format!("{:?}", outcome.snapshot.unwrap().clusters[0].upstream);
    assert!(upstream.contains("bridge: Some(") && upstream.contains("x/only.They.Know"), "{upstream}");
    assert!(upstream.contains("protocol: Http1"), "{upstream}");
    let outcome = read(cluster("tcp.v3.TcpConnectionPoolProto"));
    let said = said(&outcome);
    let named =
        "`envoy.extensions.upstreams.http.tcp.v3.TcpConnectionPoolProto` is a known Envoy extension, not supported";
    assert!(said.contains(named), "{said}");
}
