//! The loader on files that are right: what is read, in every format, and what a reader sees.

use std::time::Duration;

use postrider_config_core::{Diagnostics, FileId, SourceFile};
use postrider_config_envoy::write::{any_to_json, message_to_json, message_to_redacted_json, message_to_yaml};
use postrider_config_envoy::{
    Coverage, Format, LoadOptions, Loaded, Message, Reader, Status, UnsupportedPolicy, Value, load_bootstrap,
    load_message,
};
use serde_json::json;

const HTTP: &str = r#"
static_resources:
  listeners:
  - name: main
    address: {socket_address: {address: 127.0.0.1, port_value: 8080}}
    filter_chains:
    - filters:
      - name: http
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          statPrefix: ingress
          routeConfig:
            virtual_hosts:
            - name: all
              domains: "*"
              routes:
              - match: {prefix: /}
                direct_response: {status: 200}
          http_filters:
          - name: lua
            typed_config:
              "@type": type.googleapis.com/xds.type.v3.TypedStruct
              type_url: type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua
              value: {default_source_code: {inline_string: "-- nothing"}}
          - name: router
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router
  clusters:
  - name: a
    type: strict_dns
    lb_policy: Round_Robin
    connect_timeout: 0.25s
    per_connection_buffer_limit_bytes: "1024"
    metadata: {filter_metadata: {x: {f: 1.5, n: 2, b: yes, t: "3", z: null, l: [1]}}}
"#;

fn load(name: &str, text: &str) -> Loaded {
    load_bootstrap(&SourceFile::new(name, text), &LoadOptions::default())
}

/// The message of a text without findings.
fn clean(name: &str, text: &str) -> Message {
    let loaded = load(name, text);
    let found: Vec<&str> = loaded.diagnostics.iter().map(|d| d.message.as_str()).collect();
    assert!(found.is_empty(), "{found:?}");
    loaded.bootstrap.unwrap()
}

#[test]
fn names_in_both_cases_enums_in_any_case_and_single_elements() {
    let bootstrap = clean("a.yaml", HTTP);
    let coverage = Coverage::new();
    let root = Reader::root(&bootstrap, &coverage);
    let resources = root.message("static_resources").unwrap();
    let cluster = resources.list("clusters").remove(0);
    assert_eq!(cluster.enum_name("type"), "STRICT_DNS");
    assert_eq!(cluster.oneof("cluster_discovery_type"), Some("type"));
    assert_eq!(cluster.enum_name("lb_policy"), "ROUND_ROBIN");
    assert_eq!(cluster.duration("connect_timeout"), Some(Duration::from_millis(250)));
    assert_eq!(cluster.u32_wrapper("per_connection_buffer_limit_bytes"), Some(1024));
    assert_eq!(cluster.u32_wrapper("max_requests_per_connection"), None);
    let chain = resources.list("listeners").remove(0).list("filter_chains").remove(0);
    let http = chain.list("filters").remove(0).any("typed_config").unwrap();
    assert_eq!(http.type_name, "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager");
    let http = http.reader.unwrap();
    assert_eq!(http.str("stat_prefix"), "ingress");
    let host = http.message("route_config").unwrap().list("virtual_hosts").remove(0);
    assert_eq!(host.strings("domains").iter().map(|domain| domain.value).collect::<Vec<_>>(), ["*"]);
    assert_eq!(
        host.path(),
        "static_resources.listeners[0].filter_chains[0].filters[0].typed_config.route_config.virtual_hosts[0]"
    );
}

#[test]
fn a_typed_struct_reads_as_the_message_that_it_stands_for() {
    let bootstrap = clean("a.yaml", HTTP);
    let coverage = Coverage::new();
    let root = Reader::root(&bootstrap, &coverage);
    let chain = root.message("static_resources").unwrap().list("listeners").remove(0).list("filter_chains").remove(0);
    let http = chain.list("filters").remove(0).any("typed_config").unwrap().reader.unwrap();
    let lua = http.list("http_filters").remove(0).any("typed_config").unwrap();
    assert_eq!(lua.type_name, "envoy.extensions.filters.http.lua.v3.Lua");
    assert_eq!(lua.any.wrapper, Some("xds.type.v3.TypedStruct"));
    assert_eq!(lua.reader.unwrap().message("default_source_code").unwrap().str("inline_string"), "-- nothing");
    assert_eq!(any_to_json(lua.any)["@type"], "type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua");
}

#[test]
fn struct_values_have_the_types_that_envoy_gives_them() {
    let bootstrap = clean("a.yaml", HTTP);
    let metadata = message_to_json(&bootstrap)["static_resources"]["clusters"][0]["metadata"].clone();
    let expected = json!({"f": "1.5", "n": 2, "b": true, "t": "3", "z": null, "l": [1]});
    assert_eq!(metadata, json!({"filter_metadata": {"x": expected}}));
}

#[test]
fn what_is_written_reads_back_the_same_in_yaml_and_json() {
    let bootstrap = clean("a.yaml", HTTP);
    let json = message_to_json(&bootstrap);
    assert_eq!(json["static_resources"]["clusters"][0]["connect_timeout"], "0.250s");
    let again = clean("b.yaml", &message_to_yaml(&bootstrap));
    assert_eq!(message_to_json(&again), json);
    let again = clean("b.json", &serde_json::to_string_pretty(&json).unwrap());
    assert_eq!(message_to_json(&again), json);
}

#[test]
fn json_may_have_trailing_commas() {
    let bootstrap = clean("a.json", "{\"node\": {\"id\": \"a\",}, \"stats_flush_interval\": \"5s\",}\n");
    assert_eq!(message_to_json(&bootstrap), json!({"node": {"id": "a"}, "stats_flush_interval": "5s"}));
}

/// `node {id: "a"}`, and an admin address with port 9901.
const BINARY: &[u8] = b"\x0a\x03\x0a\x01a\x62\x13\x1a\x11\x0a\x0f\x12\x0a127.0.0.1x\x18\xad\x4d";

#[test]
fn binary_and_text_protobuf_read_as_yaml_does() {
    let text =
        "node { id: \"a\" }\nadmin { address { socket_address { address: \"127.0.0.1x\" port_value: 9901 } } }\n";
    let yaml =
        clean("a.yaml", "node: {id: a}\nadmin: {address: {socket_address: {address: 127.0.0.1x, port_value: 9901}}}\n");
    assert_eq!(message_to_json(&clean("a.pb_text", text)), message_to_json(&yaml));
    let loaded = load_bootstrap(&SourceFile::from_bytes("a.pb", BINARY.to_vec()), &LoadOptions::default());
    assert!(loaded.diagnostics.is_empty(), "{:?}", loaded.diagnostics);
    assert_eq!(message_to_json(&loaded.bootstrap.unwrap()), message_to_json(&yaml));
}

/// `stats_sinks { name: "s" typed_config { [xds.type.v3.TypedStruct] { … } } }`
#[test]
fn a_typed_struct_in_binary_protobuf_is_looked_through() {
    fn tagged(tag: u8, bytes: &[u8]) -> Vec<u8> {
        let (low, high) = (bytes.len() % 128, bytes.len() / 128);
        let length = if high == 0 { vec![low as u8] } else { vec![low as u8 | 0x80, high as u8] };
        [&[tag], &length[..], bytes].concat()
    }
    fn entry(key: &str, value: &[u8]) -> Vec<u8> {
        tagged(0x0a, &[tagged(0x0a, key.as_bytes()), tagged(0x12, value)].concat())
    }
    fn sink(structure: &[u8]) -> Vec<u8> {
        let url = tagged(0x0a, b"type.googleapis.com/envoy.config.metrics.v3.StatsdSink");
        let typed = [url, tagged(0x12, structure)].concat();
        let any = [tagged(0x0a, b"type.googleapis.com/xds.type.v3.TypedStruct"), tagged(0x12, &typed)].concat();
        let sink = [tagged(0x0a, b"s"), tagged(0x1a, &any)].concat();
        tagged(0x32, &sink)
    }
    let port = [&[0x11][..], &9901f64.to_le_bytes()].concat();
    let socket = [entry("address", &tagged(0x1a, b"a")), entry("port_value", &port)].concat();
    let address = entry("address", &tagged(0x2a, &entry("socket_address", &tagged(0x2a, &socket))));
    let load = |bytes| load_bootstrap(&SourceFile::from_bytes("a.pb", bytes), &LoadOptions::default());
    let loaded = load(sink(&address));
    assert!(loaded.diagnostics.is_empty(), "{:?}", loaded.diagnostics);
    let json = message_to_json(&loaded.bootstrap.unwrap());
    let config = &json["stats_sinks"][0]["typed_config"];
    assert_eq!(config["@type"], "type.googleapis.com/envoy.config.metrics.v3.StatsdSink");
    assert_eq!(config["address"], json!({"socket_address": {"address": "a", "port_value": 9901}}));
    let refused = load(sink(&entry("adress", &tagged(0x1a, b"a"))));
    let said = format!("{:?}", refused.diagnostics);
    assert!(said.contains("adress") && said.contains("stats_sinks[0].typed_config"), "{said}");
}

#[test]
fn an_any_in_text_protobuf_is_resolved() {
    let text = "stats_sinks {\n  name: \"s\"\n  typed_config {\n    [type.googleapis.com/envoy.config.metrics.v3.StatsdSink] {\n      \
                tcp_cluster_name: \"c\"\n    }\n  }\n}\n";
    let json = message_to_json(&clean("a.pb_text", text));
    assert_eq!(json["stats_sinks"][0]["typed_config"]["tcp_cluster_name"], "c");
}

#[test]
fn an_overlay_merges_as_protobuf_does() {
    let base = "node: {id: a, cluster: c, metadata: {x: 1, y: 2}}\nstats_sinks: [{name: one}]\nstats_flush_interval: 1.5s\n\
                admin: {address: {socket_address: {address: a, port_value: 1}}}\n";
    let over = "node: {id: b, metadata: {y: 3}}\nstats_sinks: [{name: two}]\nstats_flush_interval: 2s\n\
                admin: {address: {pipe: {path: /p}}}\n";
    let options = LoadOptions {
        overlay: Some(SourceFile::new("--config-yaml", over)),
        format: Some(Format::Yaml),
        ..LoadOptions::default()
    };
    let loaded = load_bootstrap(&SourceFile::new("-", base), &options);
    assert!(loaded.diagnostics.is_empty(), "{:?}", loaded.diagnostics);
    let expected = json!({
        "node": {"id": "b", "cluster": "c", "metadata": {"x": 1, "y": 3}},
        "stats_sinks": [{"name": "one"}, {"name": "two"}],
        // A Duration is a message like any other: its nanoseconds stay.
        "stats_flush_interval": "2.500s",
        // Another member of the same oneof.
        "admin": {"address": {"pipe": {"path": "/p"}}},
    });
    assert_eq!(message_to_json(&loaded.bootstrap.unwrap()), expected);
}

#[test]
fn an_overlay_alone_is_enough() {
    let options =
        LoadOptions { overlay: Some(SourceFile::new("--config-yaml", "node: {id: b}")), ..LoadOptions::default() };
    let loaded = load_bootstrap(&SourceFile::new("-", "node: {cluster: c}"), &options);
    assert_eq!(message_to_json(&loaded.bootstrap.unwrap()), json!({"node": {"cluster": "c", "id": "b"}}));
}

#[test]
fn anchors_aliases_and_merge_keys() {
    let text = "static_resources:\n  clusters:\n  - &base\n    name: a\n    connect_timeout: &t 1s\n    lb_policy: RANDOM\n  \
                - <<: *base\n    name: b\n    connect_timeout: 2s\n";
    let json = message_to_json(&clean("a.yaml", text));
    assert_eq!(
        json["static_resources"]["clusters"][1],
        json!({"name": "b", "connect_timeout": "2s", "lb_policy": "RANDOM"})
    );
}

#[test]
fn a_key_with_the_tag_ignore_is_there_for_its_anchors_alone() {
    let text = "!ignore shared:\n- &t 1s\n- { !ignore deep: [&name b], x: 1 }\nstatic_resources:\n  clusters:\n  - { name: *name, \
                connect_timeout: *t, !ignore note: { a: b } }\n";
    let json = message_to_json(&clean("a.yaml", text));
    assert_eq!(json, json!({"static_resources": {"clusters": [{"name": "b", "connect_timeout": "1s"}]}}));
    // It is about keys: a value is a value.
    let loaded = load("b.yaml", "node: { id: !ignore a }\n");
    assert_eq!(message_to_json(&loaded.bootstrap.unwrap()), json!({"node": {"id": "a"}}));
}

#[test]
fn aliases_that_explode_are_refused() {
    let mut text = "x0: &x0 [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]\n".to_owned();
    for level in 1..12 {
        let before = format!("*x{}", level - 1);
        text.push_str(&format!("x{level}: &x{level} [{}]\n", vec![before; 10].join(", ")));
    }
    let loaded = load("bomb.yaml", &text);
    assert!(loaded.diagnostics.iter().any(|d| d.code == "limit-exceeded"));
}

#[test]
fn secrets_are_redacted() {
    let text = "static_resources:\n  secrets:\n  - name: cert\n    tls_certificate:\n      certificate_chain: {inline_string: public}\n      \
                private_key: {inline_string: hush}\n      password: {inline_bytes: aHVzaA==}\n";
    let secret = &message_to_redacted_json(&clean("a.yaml", text))["static_resources"]["secrets"][0]["tls_certificate"];
    assert_eq!(secret["private_key"]["inline_string"], "[redacted]");
    assert_eq!(secret["password"]["inline_bytes"], "[redacted]");
    assert_eq!(secret["certificate_chain"]["inline_string"], "public");
}

#[test]
fn a_set_field_that_nobody_reads_is_reported_once_at_its_outermost_place() {
    let bootstrap = clean(
        "a.yaml",
        "node: {id: a}\nadmin: {address: {socket_address: {address: b, port_value: 1}}, ignore_global_conn_limit: false}\nstats_sinks: []\n",
    );
    let coverage = Coverage::new();
    let root = Reader::root(&bootstrap, &coverage);
    assert_eq!(root.message("node").unwrap().str("id"), "a");
    let admin = root.message("admin").unwrap();
    assert!(admin.has("address"));
    let mut found = Diagnostics::new();
    root.finish(&mut found, UnsupportedPolicy::Refuse);
    let found: Vec<(&str, &str)> = found.iter().map(|d| (d.code, d.path.as_str())).collect();
    // `false` and an empty list mean what an absent field means.
    assert_eq!(found, [("unsupported-field", "admin.address.socket_address")]);
}

#[test]
fn doctor_sees_what_was_read_ignored_approximated_and_refused() {
    let bootstrap =
        clean("a.yaml", "node: {id: a, cluster: c, metadata: {x: 1}, locality: {zone: z}, dynamic_parameters: {}}\n");
    let coverage = Coverage::new();
    let root = Reader::root(&bootstrap, &coverage);
    let node = root.message("node").unwrap();
    node.str("id");
    node.approximate("cluster", "shown only");
    node.ignore("metadata", "no control plane");
    let mut found = Diagnostics::new();
    node.refuse("locality", "no zones", &mut found);
    assert_eq!(found.iter().map(|d| d.message.as_str()).collect::<Vec<_>>(), ["no zones"]);
    let support: Vec<(String, Status)> =
        coverage.support(&bootstrap, "").into_iter().map(|s| (s.path, s.status)).collect();
    assert_eq!(
        support,
        [
            ("node.id".to_owned(), Status::Supported),
            ("node.cluster".to_owned(), Status::Approximated("shown only".to_owned())),
            ("node.metadata".to_owned(), Status::Ignored("no control plane".to_owned())),
            ("node.locality".to_owned(), Status::Unsupported("no zones".to_owned())),
        ]
    );
}

#[test]
fn any_type_of_the_schema_can_be_the_root() {
    let text = "version_info: \"1\"\nresources:\n- \"@type\": type.googleapis.com/envoy.config.cluster.v3.Cluster\n  name: a\n";
    let file = SourceFile::new("cds.yaml", text);
    let loaded = load_message(&file, "envoy.service.discovery.v3.DiscoveryResponse", &LoadOptions::default());
    assert!(loaded.diagnostics.is_empty(), "{:?}", loaded.diagnostics);
    let message = loaded.bootstrap.unwrap();
    let Some(Value::List(resources)) = message.value("resources") else { panic!("no list") };
    let Value::Any(any) = &resources[0].value else { panic!("no Any") };
    assert_eq!(any.type_name(), "envoy.config.cluster.v3.Cluster");
    assert_eq!(any.message.as_ref().unwrap().str("name"), "a");
    let loaded = load_message(&file, "no.such.Type", &LoadOptions::default());
    assert!(loaded.diagnostics.has_errors());
}

#[test]
fn places_are_those_of_the_file() {
    let text = "node:\n  id: é\n  cluster: c\n";
    let bootstrap = clean("a.yaml", text);
    let field = bootstrap.message("node").unwrap().field("cluster").unwrap();
    let span = field.value_span.unwrap();
    assert_eq!((span.file, &text[span.start as usize..span.end as usize]), (FileId::MAIN, "c"));
    let key = field.key_span.unwrap();
    assert_eq!(&text[key.start as usize..key.end as usize], "cluster");
}
