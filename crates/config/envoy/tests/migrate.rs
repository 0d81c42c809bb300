//! v2 files become v3 files that Envoy accepts. Where `envoy` is on the PATH, it has the last word (`--mode validate`: it
//! reads the file, opens no listener and contacts nobody).

use std::path::PathBuf;
use std::process::Command;

use postrider_config_core::{Severity, SourceFile, render};
use postrider_config_envoy::migrate::{Migrated, migrate};
use postrider_config_envoy::{LoadOptions, load};

const LISTENER: &str = r#"
static_resources:
  listeners:
  - name: l
    address: { socket_address: { address: 127.0.0.1, port_value: 0 } }
"#;

fn run(name: &str, text: &str) -> Migrated {
    migrate(&SourceFile::new(name, text))
}

/// Migrates and lets Envoy judge; `pins` must stand in the result, spaces aside.
#[track_caller]
fn accepted(text: &str, pins: &[&str]) -> String {
    let migrated = run("v2.yaml", text);
    let errors: Vec<_> = migrated.diagnostics.iter().filter(|d| d.severity == Severity::Error).collect();
    let yaml = migrated.yaml.unwrap_or_else(|| panic!("no result: {errors:#?}"));
    for pin in pins {
        assert!(squeezed(&yaml).contains(&squeezed(pin)), "`{pin}` is not in\n{yaml}");
    }
    validate(&yaml);
    yaml
}

fn squeezed(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[track_caller]
fn validate(yaml: &str) {
    if Command::new("envoy").arg("--version").output().is_err() {
        return;
    }
    let path: PathBuf = std::env::temp_dir().join(format!(
        "postrider-migrate-{}-{:?}.yaml",
        std::process::id(),
        std::thread::current().id()
    ));
    std::fs::write(&path, yaml).unwrap();
    let output = Command::new("envoy").args(["--mode", "validate", "-l", "error", "-c"]).arg(&path).output().unwrap();
    std::fs::remove_file(&path).unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "envoy refuses\n{yaml}\n{said}");
}

/// A listener with an HTTP connection manager of v2 whose `routes` and further fields are given.
fn http(virtual_host: &str, manager: &str, filters: &str) -> String {
    format!(
        r#"{LISTENER}
    filter_chains:
    - filters:
      - name: envoy.http_connection_manager
        config:
          stat_prefix: x
          {manager}
          route_config:
            virtual_hosts:
            - name: v
              domains: ["*"]
{virtual_host}
          http_filters:
{filters}
          - name: envoy.router
  clusters:
  - name: c
    connect_timeout: 1s
    hosts: [{{ socket_address: {{ address: 127.0.0.1, port_value: 1980 }} }}]
"#
    )
}

fn routes(route: &str) -> String {
    http(&format!("              routes:\n              - {route}"), "", "")
}

fn cluster(fields: &str) -> String {
    format!(
        r#"
static_resources:
  clusters:
  - name: c
    connect_timeout: 1s
    hosts: [{{ socket_address: {{ address: 127.0.0.1, port_value: 1980 }} }}]
{fields}
"#
    )
}

#[test]
fn a_published_http_file_is_repaired_and_migrated() {
    let text = include_str!("migrate/http-1.14.yaml");
    let yaml = accepted(
        text,
        &[
            "generate_request_id: false",
            "load_assignment:",
            "dynamic_stats: false",
            "priority: HIGH max_connections: 1000000000",
        ],
    );
    let notes = run("v2.yaml", text).diagnostics;
    let said: Vec<&str> = notes.iter().map(|note| note.message.as_str()).collect();
    assert!(said.iter().filter(|note| note.starts_with("repaired")).count() >= 2, "{said:#?}");
    insta(&yaml, "http-1.14.v3.yaml");
}

#[test]
fn a_published_tcp_file_is_migrated() {
    let yaml = accepted(include_str!("migrate/tcp-1.7.yaml"), &["type: static", "lb_policy: round_robin"]);
    insta(&yaml, "tcp-1.7.v3.yaml");
}

/// Compares with the file of that name beside the tests; `BLESS=1` writes it.
#[track_caller]
fn insta(yaml: &str, name: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/migrate").join(name);
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, yaml).unwrap();
    }
    assert_eq!(yaml, std::fs::read_to_string(&path).unwrap(), "{name}");
}

#[test]
fn the_published_files_start_here_once_migrated() {
    for text in [include_str!("migrate/http-1.14.yaml"), include_str!("migrate/tcp-1.7.yaml")] {
        let yaml = run("v2.yaml", text).yaml.unwrap();
        let outcome = load(&SourceFile::new("v3.yaml", yaml), &LoadOptions::default(), &|_: &str| false);
        let said = render::text(&outcome.diagnostics, &outcome.sources, false);
        assert!(outcome.snapshot.is_some() && outcome.diagnostics.is_empty(), "{said}");
    }
}

#[test]
fn what_is_migrated_once_stays_as_it_is() {
    for text in [include_str!("migrate/http-1.14.yaml"), include_str!("migrate/tcp-1.7.yaml")] {
        let once = run("v2.yaml", text).yaml.unwrap();
        let twice = run("v3.yaml", &once);
        assert_eq!(twice.yaml.as_deref(), Some(once.as_str()));
        assert!(twice.diagnostics.is_empty(), "{:#?}", twice.diagnostics);
    }
}

#[test]
fn an_empty_typed_config_gets_the_type_of_its_name() {
    let yaml = accepted(
        &http("              routes: []", "", "").replace("envoy.router", "envoy.router\n            typed_config: {}"),
        &["\"@type\": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"],
    );
    assert!(!yaml.contains("typed_config: {}"), "{yaml}");
}

#[test]
fn order_comments_and_quotes_stay() {
    let text = "# top\nstatic_resources: # all of it\n  # the only one\n  clusters:\n  - name: 'c'   # its name\n    # a second\n    connect_timeout: \"1s\"\n    hosts: [{socket_address: {address: 127.0.0.1, port_value: 1}}]\n# end\n";
    let yaml = accepted(text, &[]);
    for kept in [
        "# top\n",
        "static_resources: # all of it\n",
        "  # the only one\n",
        "name: 'c' # its name\n",
        "    # a second\n    connect_timeout: \"1s\"\n",
        "# end\n",
    ] {
        assert!(yaml.contains(kept), "{kept:?} is not in\n{yaml}");
    }
}

#[test]
fn clusters() {
    accepted(&cluster(""), &["load_assignment: cluster_name: c endpoints: - lb_endpoints: - endpoint:"]);
    accepted(
        &cluster("    tls_context: { sni: example.com }"),
        &["envoy.transport_sockets.tls", "UpstreamTlsContext", "sni: example.com"],
    );
    accepted(
        &cluster("    http2_protocol_options: {}"),
        &["typed_extension_protocol_options", "explicit_http_config: http2_protocol_options: {}"],
    );
    accepted(
        &cluster("    http2_protocol_options: {}\n    protocol_selection: USE_DOWNSTREAM_PROTOCOL"),
        &["use_downstream_protocol_config"],
    );
    accepted(
        &cluster("    common_http_protocol_options: { idle_timeout: 5s }\n    drain_connections_on_host_removal: true"),
        &["common_http_protocol_options: { idle_timeout: 5s }", "ignore_health_on_host_removal: true"],
    );
    accepted(
        &cluster(
            "    health_checks:\n    - timeout: 1s\n      interval: 1s\n      unhealthy_threshold: 1\n      healthy_threshold: 1\n      http_health_check: { path: /, use_http2: true, service_name: s }",
        ),
        &["codec_client_type: HTTP2", "service_name_matcher"],
    );
    accepted(
        "static_resources:\n  clusters:\n  - { name: c, connect_timeout: 1s, type: ORIGINAL_DST, lb_policy: ORIGINAL_DST_LB }\n",
        &["lb_policy: CLUSTER_PROVIDED"],
    );
    accepted(
        &cluster(
            "    tls_context: { common_tls_context: { validation_context: { trusted_ca: { filename: /etc/ssl/certs/ca-certificates.crt }, verify_subject_alt_name: [a.example] } } }",
        ),
        &["match_typed_subject_alt_names", "san_type: DNS"],
    );
}

#[test]
fn listeners_and_chains() {
    let tcp = "      filters: [{ name: envoy.tcp_proxy, config: { stat_prefix: x, cluster: c } }]";
    let with =
        |chain: &str, listener: &str| format!("{LISTENER}{listener}\n    filter_chains:\n    -\n{chain}\n{tcp}\n");
    accepted(&with("      filter_chain_match: { sni_domains: [a.example] }", ""), &["server_names"]);
    accepted(&with("      use_proxy_proto: true", ""), &["envoy.filters.listener.proxy_protocol"]);
    accepted(
        &with("      name: chain", "    listener_filters: [{ name: envoy.listener.tls_inspector }]"),
        &["envoy.filters.listener.tls_inspector", "TlsInspector"],
    );
    accepted(&with("      name: chain", "    deprecated_v1: { bind_to_port: false }"), &["bind_to_port: false"]);
    accepted(&with("      name: chain", "    reuse_port: true"), &["enable_reuse_port: true"]);
    accepted(
        &format!(
            "{LISTENER}    filter_chains:\n    - filters:\n      - name: envoy.tcp_proxy\n        config: {{ stat_prefix: x, deprecated_v1: {{ routes: [{{ cluster: c }}] }} }}\n"
        ),
        &["cluster: c"],
    );
    accepted(
        &format!(
            "{LISTENER}    filter_chains:\n    - filters:\n      - name: envoy.redis_proxy\n        config: {{ stat_prefix: x, cluster: c, settings: {{ op_timeout: 1s }} }}\n"
        ),
        &["catch_all_route"],
    );
}

#[test]
fn the_connection_manager_and_its_routes() {
    accepted(
        &routes("{ match: { regex: /a.* }, route: { cluster: c, use_websocket: true } }"),
        &["safe_regex", "upgrade_type: websocket"],
    );
    accepted(
        &routes(
            "{ match: { prefix: /, headers: [{ name: a, value: b }, { name: c, value: d, regex: true }, { name: e, exact_match: f }, { name: g, regex_match: h }] }, route: { cluster: c, host_rewrite: x.example } }",
        ),
        &["string_match", "host_rewrite_literal: x.example"],
    );
    accepted(
        &routes(
            "{ match: { prefix: /, query_parameters: [{ name: q, value: v }], runtime: { default_value: 30, runtime_key: k } }, route: { cluster: c, request_mirror_policy: { cluster: c, runtime_key: m } } }",
        ),
        &["runtime_fraction", "request_mirror_policies"],
    );
    accepted(
        &routes(
            "{ match: { prefix: / }, route: { cluster: c, cors: { allow_origin: [a.example], allow_origin_regex: [b.*], enabled: false } } }",
        ),
        &["allow_origin_string_match", "filter_enabled"],
    );
    accepted(
        &routes(
            "{ match: { prefix: / }, route: { cluster: c, retry_policy: { retry_on: 5xx, retry_host_predicate: [{ name: envoy.retry_host_predicates.previous_hosts }] } } }",
        ),
        &["PreviousHostsPredicate"],
    );
    accepted(
        &routes(
            "{ match: { prefix: / }, route: { cluster: c, internal_redirect_action: HANDLE_INTERNAL_REDIRECT }, per_filter_config: { envoy.buffer: { disabled: true } } }",
        ),
        &["internal_redirect_policy", "typed_per_filter_config", "envoy.filters.http.buffer", "BufferPerRoute"],
    );
    accepted(
        &http(
            "              routes: []\n              virtual_clusters: [{ name: a, pattern: /x, method: GET }]",
            "idle_timeout: 5s\n          access_log: [{ name: envoy.file_access_log, config: { path: /dev/null, format: \"%PROTOCOL%\\n\" } }]\n          set_current_client_cert_details: { san: true }",
            "",
        ),
        &[
            "common_http_protocol_options: idle_timeout: 5s",
            "envoy.access_loggers.file",
            "text_format_source",
            "uri: true",
        ],
    );
    accepted(
        &http("              routes: []", "tracing: { operation_name: INGRESS, request_headers_for_tags: [x-a] }", ""),
        &["custom_tags"],
    );
}

#[test]
fn http_filters() {
    let filter = |filter: &str| http("              routes: []", "", &format!("          - {filter}"));
    for (old, pins) in [
        (
            "{ name: envoy.lua, config: { inline_code: \"function envoy_on_request(h) end\" } }",
            &["default_source_code"][..],
        ),
        (
            "{ name: envoy.gzip, config: { content_length: 10, compression_level: BEST, content_type: [text/html] } }",
            &["envoy.filters.http.compressor", "BEST_COMPRESSION", "min_content_length: 10"],
        ),
        ("{ name: envoy.buffer, config: { max_request_bytes: 10, max_request_time: 5s } }", &["max_request_bytes"]),
        (
            "{ name: envoy.fault, config: { abort: { http_status: 503, percent: 10 }, delay: { type: FIXED, fixed_delay: 1s, percent: 5 } } }",
            &["percentage"],
        ),
        ("{ name: envoy.health_check, config: { pass_through_mode: false, endpoint: /ok } }", &["string_match"]),
        (
            "{ name: envoy.rate_limit, config: { domain: d, rate_limit_service: { grpc_service: { envoy_grpc: { cluster_name: c } } } } }",
            &["transport_api_version: V3"],
        ),
        (
            "{ name: envoy.ext_authz, config: { grpc_service: { envoy_grpc: { cluster_name: c } }, use_alpha: true } }",
            &["envoy.filters.http.ext_authz", "transport_api_version: V3"],
        ),
        ("{ name: envoy.cors }", &["envoy.extensions.filters.http.cors.v3.Cors"]),
        ("{ name: envoy.grpc_web }", &["GrpcWeb"]),
        ("{ name: envoy.grpc_http1_bridge }", &["envoy.filters.http.grpc_http1_bridge"]),
        ("{ name: envoy.csrf, config: { filter_enabled: { default_value: { numerator: 100 } } } }", &["CsrfPolicy"]),
        (
            "{ name: envoy.filters.http.rbac, typed_config: { \"@type\": type.googleapis.com/envoy.config.filter.http.rbac.v2.RBAC } }",
            &["envoy.extensions.filters.http.rbac.v3.RBAC"],
        ),
        (
            "{ name: envoy.ip_tagging, config: { ip_tags: [{ ip_tag_name: a, ip_list: [{ address_prefix: 1.2.3.0, prefix_len: 24 }] }] } }",
            &["IPTagging"],
        ),
    ] {
        accepted(&filter(old), pins);
    }
}

#[test]
fn the_top_of_the_file() {
    accepted(
        "admin:\n  access_log_path: /dev/null\n  address: { socket_address: { address: 127.0.0.1, port_value: 0 } }\n",
        &["access_log: - name: envoy.access_loggers.file"],
    );
    accepted(
        "runtime: { symlink_root: /tmp/none, subdirectory: a, override_subdirectory: b }\n",
        &["layered_runtime: layers:", "append_service_cluster: true"],
    );
    accepted(
        "stats_sinks:\n- { name: envoy.statsd, config: { address: { socket_address: { address: 127.0.0.1, port_value: 8125 } } } }\n",
        &["envoy.stat_sinks.statsd"],
    );
    accepted(
        "node: { id: a, cluster: b }\ndynamic_resources:\n  cds_config: { api_config_source: { api_type: GRPC, grpc_services: { envoy_grpc: { cluster_name: x } } } }\nstatic_resources:\n  clusters:\n  - name: x\n    connect_timeout: 1s\n    http2_protocol_options: {}\n    hosts: [{ socket_address: { address: 127.0.0.1, port_value: 1980 } }]\n",
        &["transport_api_version: V3", "resource_api_version: V3"],
    );
}

#[test]
fn a_field_of_today_that_shares_its_name_with_v2_keeps_its_meaning() {
    let text = routes("{ match: { prefix: / }, route: { cluster: c, host_rewrite: \"%REQ(x)%\" } }");
    accepted(&text, &["host_rewrite: \"%REQ(x)%\""]);
}

#[test]
fn what_envoy_no_longer_has_is_refused_with_its_place() {
    for (text, name) in [
        (http("              routes: []", "", "          - { name: envoy.squash, config: {} }"), "envoy.squash"),
        (http("              routes: []", "", "          - { name: com.acme, config: { a: 1 } }"), "com.acme"),
    ] {
        let migrated = run("v2.yaml", &text);
        assert!(migrated.yaml.is_none());
        let error = migrated.diagnostics.iter().find(|d| d.severity == Severity::Error).unwrap();
        assert!(error.message.contains(name) && error.span.is_some(), "{error:?}");
    }
}
