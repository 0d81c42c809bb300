//! What lowering accepts and means, and what it refuses: each `tests/lower/*.yaml` with a `.txt` beside it is refused with
//! exactly that text. `BLESS=1` writes the texts.

mod common;
mod managers;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use managers::http;
use postrider_config_core::SourceFile;
use postrider_config_envoy::lower::FilterKinds;
use postrider_config_envoy::{LoadOptions, Outcome, load};
use postrider_model::{
    Action, AddressFamily, AddressOrder, ConnectionHandler, Discovery, DnsClient, DnsResolver, EscapedSlashes,
    FilterOverride, HeaderCondition, HostRewrite, LoadBalancing, LogFormat, LogOutput, NextCluster, PathMatch,
    PathRewrite, ResponseBody, Snapshot, StringKind, Target, Underscores, Value, ValueError,
};

fn outcome(name: &str, text: &str) -> Outcome {
    let filters = |kind: &str| {
        kind == "envoy.extensions.filters.http.header_mutation.v3.HeaderMutation"
            || kind == "envoy.extensions.filters.http.basic_auth.v3.BasicAuth"
            || kind == "postrider.filters.http.plugin.v1.Plugin"
    };
    load(&SourceFile::new(name, text), &LoadOptions::default(), &filters)
}

#[track_caller]
fn snapshot(text: &str) -> Arc<Snapshot> {
    common::snapshot(&outcome("envoy.yaml", text))
}

fn accepted() -> Arc<Snapshot> {
    snapshot(include_str!("lower/accepted.yaml"))
}

#[test]
fn a_service_of_the_bootstrap_is_kept_whole_where_somebody_runs_it() {
    const KIND: &str = "envoy.extensions.wasm.v3.WasmService";
    let text = format!(
        r#"
bootstrap_extensions:
- name: envoy.bootstrap.wasm
  typed_config:
    "@type": type.googleapis.com/{KIND}
    singleton: true
    config: {{ name: resident, vm_config: {{ code: {{ local: {{ filename: a.wasm }} }} }} }}
"#
    );
    let read = |known: bool| common::outcome(&text, &|kind: &str| known && kind == KIND);
    let snapshot = read(true).snapshot.expect("a service that is known");
    let [service] = &snapshot.services[..] else { panic!("{:?}", snapshot.services) };
    assert_eq!((service.name.as_str(), service.kind.as_str()), ("envoy.bootstrap.wasm", KIND));
    assert_eq!(service.origin.0, "bootstrap_extensions[0].typed_config");
    let Value::Map(fields) = &service.config else { panic!("{:?}", service.config) };
    assert!(fields.contains(&("singleton".to_owned(), Value::Bool(true))), "{fields:?}");
    let unknown = read(false);
    assert!(unknown.snapshot.is_none());
    assert!(unknown.diagnostics.iter().any(|diagnostic| diagnostic.code == "unsupported-extension"));
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/lower")
}

#[test]
fn refusals_read_as_recorded() {
    let bless = std::env::var_os("BLESS").is_some();
    let mut seen = 0;
    for entry in std::fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|e| e != "yaml") || path.ends_with("accepted.yaml") {
            continue;
        }
        let name = path.file_name().unwrap().to_str().unwrap();
        let outcome = outcome(name, &std::fs::read_to_string(&path).unwrap());
        let said = common::said(&outcome);
        assert!(outcome.snapshot.is_none(), "{name} is accepted");
        let expected = path.with_extension("txt");
        if bless {
            std::fs::write(&expected, &said).unwrap();
        }
        assert_eq!(said, std::fs::read_to_string(&expected).unwrap_or_default(), "{name}");
        seen += 1;
    }
    assert!(seen >= 6, "{seen}");
}

#[test]
fn a_listener_that_accepts_nothing_from_a_network_is_refused() {
    let echo = r#"filter_chains: [{ filters: [{ name: e, typed_config: { "@type": type.googleapis.com/envoy.extensions.filters.network.echo.v3.Echo } }] }]"#;
    let address = "address: { socket_address: { address: 127.0.0.1, port_value: 1 } }";
    for (listener, field) in [
        (format!("internal_listener: {{}}, {echo}"), "internal_listener"),
        (format!("internal_listener: {{}}, {address}, {echo}"), "internal_listener"),
        ("api_listener: {}".to_owned(), "api_listener"),
    ] {
        let outcome =
            outcome("envoy.yaml", &format!("static_resources: {{ listeners: [{{ name: one, {listener} }}] }}"));
        let said = common::said(&outcome);
        assert!(outcome.snapshot.is_none(), "{listener} is accepted");
        assert_eq!(outcome.diagnostics.errors(), 1, "{said}");
        assert!(said.contains(&format!("(`{field}`): known to Envoy, not supported by Postrider")), "{said}");
        assert!(said.contains(&format!("path: static_resources.listeners[0].{field}")), "{said}");
        assert!(said.contains("expected: `address: {socket_address: …}`"), "{said}");
    }
}

#[test]
fn what_cannot_stand_in_the_shadow_of_connections_is_named_with_what_can() {
    let refused = |filter: &str| {
        let text = format!(
            r#"
static_resources:
  listeners:
  - name: one
    address: {{ socket_address: {{ address: 127.0.0.1, port_value: 1 }} }}
    filter_chains:
    - filters:
      - name: shadow
        typed_config:
          "@type": type.googleapis.com/postrider.filters.network.shadow.v3.Shadow
          filter: {{ "@type": type.googleapis.com/envoy.extensions.filters.network.{filter} }}
      - name: echo
        typed_config: {{ "@type": type.googleapis.com/envoy.extensions.filters.network.echo.v3.Echo }}
"#
        );
        let outcome = outcome("envoy.yaml", &text);
        assert!(outcome.snapshot.is_none(), "{filter} is accepted");
        assert_eq!(outcome.diagnostics.errors(), 1, "{}", common::said(&outcome));
        common::said(&outcome)
    };
    let rbac = refused("rbac.v3.RBAC, stat_prefix: who, rules: {}");
    assert!(rbac.contains("network.rbac.v3.RBAC` cannot stand in the shadow of connections"), "{rbac}");
    assert!(rbac.contains("expected: a connection_limit or local_ratelimit"), "{rbac}");
    assert!(rbac.contains("help: `shadow_rules`"), "{rbac}");
    let echo = refused("echo.v3.Echo");
    assert!(echo.contains("network.echo.v3.Echo` cannot stand") && !echo.contains("help:"), "{echo}");
}

#[test]
fn a_written_field_means_what_it_means_in_envoy() {
    let snapshot = accepted();
    let listener = &snapshot.listeners[0];
    assert_eq!(listener.connection_limit, Some(100));
    assert_eq!(listener.addresses.len(), 2);
    assert_eq!((listener.buffer_limit, listener.backlog), (32768, 128));
    assert_eq!((listener.accepts_at_once, listener.one_queue), (Some(2), true));
    assert_eq!(listener.sockets.len(), 2, "one for each address");
    assert_eq!(listener.sockets[0].keepalive.as_ref().unwrap().time, Some(Duration::from_secs(30)));
    assert_eq!(listener.filter_chains[0].matches.source_ports, [1, 2]);
    let http = http(listener);
    assert_eq!(http.timeouts.stream_idle, None);
    assert_eq!(http.timeouts.stream_flush, Some(Duration::from_secs(3)));
    assert_eq!(http.timeouts.request_headers, Some(Duration::from_secs(7)));
    assert_eq!(http.limits.max_head_bytes, 16 << 10);
    assert!(http.path.normalize && !http.path.merge_slashes);
    assert_eq!(http.path.escaped_slashes, EscapedSlashes::UnescapeAndRedirect);
    assert_eq!(http.http1.underscores, Underscores::Allow);
    assert_eq!(http.upgrades, ["websocket"]);
    let inside = http.identity.internal.as_deref().unwrap();
    assert!(inside.contains("10.1.2.3".parse().ok()) && inside.contains(None));
    assert!(!inside.contains("192.168.0.1".parse().ok()));
    let LogOutput::Lines { format, .. } = &http.access_log[0].output else { panic!() };
    let LogFormat::Json(postrider_model::JsonFormat::Object(keys)) = format else { panic!() };
    assert_eq!(keys.iter().map(|(key, _)| key.as_str()).collect::<Vec<_>>(), ["a", "z"]);
}

#[test]
fn routes_keep_their_meaning() {
    let snapshot = accepted();
    let table = &http(&snapshot.listeners[0]).routes;
    let host = &table.virtual_hosts[0];
    assert_eq!(format!("{:?}", host.domains), r#"[Exact("a.example"), Suffix(".b.example"), Prefix("c."), Any]"#);
    let routes = &host.routes;
    assert_eq!(routes[0].matches.headers[0].name, ":authority");
    assert_eq!(routes[0].matches.fraction, Some(250_000));
    let Action::Forward(first) = &routes[0].action else { panic!() };
    assert_eq!((first.timeout, first.idle_timeout), (None, Some(None)));
    assert_eq!(first.path_rewrite, PathRewrite::Prefix("/q".into()));
    assert_eq!(first.cluster_not_found_status, 404);
    assert!(matches!(&routes[0].filter_overrides[..], [FilterOverride { disabled: true, config: None, .. }]));
    assert!(matches!(&routes[1].filter_overrides[..], [FilterOverride { disabled: false, config: None, .. }]));
    let Action::Redirect(redirect) = &routes[2].action else { panic!() };
    assert_eq!((redirect.status, redirect.port), (303, Some(8443)));
    let Action::Forward(third) = &routes[3].action else { panic!() };
    assert!(matches!(&third.target, Target::Weighted(parts) if parts.len() == 2 && parts[1].weight == 2));
    assert!(matches!(&third.host_rewrite, HostRewrite::PathRegex { .. }));
    assert!(matches!(&routes[6].matches.path, PathMatch::Connect));
    let Action::Respond(response) = &routes[5].action else { panic!() };
    assert!(
        matches!(&response.body, ResponseBody::Format { fixed, format } if fixed == b"b" && matches!(**format, LogFormat::Text(_)))
    );
    let config = host.filter_overrides[0].config.as_ref().unwrap();
    assert!(config.kind.ends_with("HeaderMutationPerRoute"));
    assert!(matches!(&config.value, Value::Map(fields) if fields[0].0 == "mutations"));
}

#[test]
fn resolvers_and_sources_keep_their_meaning() {
    let snapshot = snapshot(
        r#"
use_tcp_for_dns_lookups: true
stats_eviction_interval: 10s
cluster_manager: { upstream_bind_config: { source_address: { address: 127.0.0.9, port_value: 0 }, freebind: true } }
static_resources:
  clusters:
  - name: default
    type: STRICT_DNS
    load_assignment: { cluster_name: a }
  - name: own
    type: STRICT_DNS
    dns_resolvers: [{ socket_address: { address: 127.0.0.1, port_value: 5353, protocol: UDP } }]
    load_assignment: { cluster_name: b }
    upstream_bind_config:
      source_address: { address: 127.0.0.1, port_value: 0 }
      extra_source_addresses: [{ address: { address: "::1", port_value: 0 }, socket_options: {} }]
  - name: typed
    cluster_type:
      name: envoy.cluster.dns
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.clusters.dns.v3.DnsCluster
        respect_dns_ttl: true
        dns_min_refresh_rate: 7s
        typed_dns_resolver_config:
          name: envoy.network.dns_resolver.cares
          typed_config:
            "@type": type.googleapis.com/envoy.extensions.network.dns_resolver.cares.v3.CaresDnsResolverConfig
            resolvers: [{ socket_address: { address: "::1", port_value: 0 } }]
            use_resolvers_as_fallback: true
            filter_unroutable_families: true
            dns_resolver_options: { no_default_search_domain: true }
            udp_max_queries: 100
            query_timeout_seconds: 2
            query_tries: 3
            rotate_nameservers: true
            edns0_max_payload_size: 1232
            qcache_max_ttl: 60
    load_assignment: { cluster_name: c }
"#,
    );
    let names = |index: usize| match &snapshot.clusters[index].discovery {
        Discovery::StrictDns(names) => names.clone(),
        _ => panic!("no names"),
    };
    let client = |index: usize| match &*names(index).resolver {
        DnsResolver::Client(client) => client.clone(),
        DnsResolver::System { .. } => panic!("no client"),
    };
    assert_eq!(client(0), DnsClient { tcp_only: true, ..DnsClient::default() });
    assert_eq!(client(1), DnsClient { servers: vec!["127.0.0.1:5353".parse().unwrap()], ..DnsClient::default() });
    let typed = DnsClient {
        servers: vec!["[::1]:53".parse().unwrap()],
        servers_are_fallback: true,
        tcp_only: false,
        searches: false,
        routable_only: true,
        timeout: Duration::from_secs(2),
        tries: 3,
        rotates: true,
        datagram_bytes: Some(1232),
        keeps_answers: Some(Duration::from_secs(60)),
    };
    assert_eq!((client(2), names(2).shortest_ttl), (typed, Duration::from_secs(7)));
    let upstream = |index: usize| &snapshot.clusters[index].upstream;
    let sources = |index: usize| upstream(index).sources.iter().map(|source| source.ip.to_string()).collect::<Vec<_>>();
    assert_eq!([0, 1, 2].map(sources), [vec!["127.0.0.9"], vec!["127.0.0.1", "::1"], vec!["127.0.0.9"]]);
    let option = &upstream(0).socket_options[0];
    assert_eq!((option.level, option.name, &option.value[..]), (0, 15, &1i32.to_ne_bytes()[..]));
    assert_eq!(upstream(1).sources[1].options.as_deref(), Some(&[][..]));
}

#[test]
fn metadata_of_routes_and_virtual_hosts_keeps_the_users_keys() {
    let text = include_str!("lower/accepted.yaml");
    let outcome = outcome("accepted.yaml", text);
    let snapshot = outcome.snapshot.clone().unwrap();
    let host = &http(&snapshot.listeners[0]).routes.virtual_hosts[0];
    assert_eq!(host.metadata.get("shop", "tenant"), Some(&Value::String("t1".into())));
    let metadata = &host.routes[0].metadata;
    assert_eq!(metadata.get("shop", "Tier"), Some(&Value::Integer(3)));
    assert_eq!(metadata.get("shop", "none"), Some(&Value::Null));
    let deep = Value::Map(vec![("deepKey".into(), Value::Bool(true))]);
    assert_eq!(metadata.get("shop", "userIDs"), Some(&Value::List(vec![Value::String("a".into()), deep])));
    assert_eq!(metadata.get("envoy.filters.http.lua", "k"), Some(&Value::String("v".into())));
    assert!(host.routes[1].metadata.is_empty());
    let said = common::said(&outcome);
    assert!(!said.contains("typed_filter_metadata"), "{said}");
    let typed = metadata.typed("x").unwrap();
    assert_eq!((&*typed.kind, &*typed.bytes), ("type.googleapis.com/google.protobuf.Duration", &[8, 1][..]));
}

#[test]
fn a_typed_struct_in_typed_metadata_is_not_looked_through() {
    let text = include_str!("lower/accepted.yaml");
    let typed_struct = "xds.type.v3.TypedStruct, type_url: elsewhere/of.Mine, value: { a: b }";
    let outcome = outcome("accepted.yaml", &text.replace("google.protobuf.Duration, value: 1s", typed_struct));
    let snapshot = outcome.snapshot.clone().unwrap_or_else(|| panic!("{}", common::said(&outcome)));
    let metadata = &http(&snapshot.listeners[0]).routes.virtual_hosts[0].routes[0].metadata;
    let typed = metadata.typed("x").unwrap();
    assert_eq!(&*typed.kind, "type.googleapis.com/xds.type.v3.TypedStruct");
    assert_eq!(&typed.bytes[..19], b"\x0a\x11elsewhere/of.Mine");
}

/// What it means is for those who read the metadata; everywhere else it means nothing.
#[test]
fn a_negative_duration_in_typed_metadata_stays_what_it_is() {
    let text = include_str!("lower/accepted.yaml");
    for (written, bytes) in [
        ("value: -1s", &[8, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1][..]),
        ("value: { nanos: -5 }", &[16, 251, 255, 255, 255, 255, 255, 255, 255, 255, 1][..]),
    ] {
        let outcome = outcome(
            "accepted.yaml",
            &text.replace("google.protobuf.Duration, value: 1s", &format!("google.protobuf.Duration, {written}")),
        );
        let snapshot = outcome.snapshot.clone().unwrap_or_else(|| panic!("{}", common::said(&outcome)));
        let metadata = &http(&snapshot.listeners[0]).routes.virtual_hosts[0].routes[0].metadata;
        assert_eq!(&*metadata.typed("x").unwrap().bytes, bytes, "{written}");
    }
}

#[test]
fn the_cluster_of_an_image_is_a_placeholder_and_not_missed() {
    let text = |uri: &str| {
        chain(&format!(
            r#"
          - name: wasm
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm
              config:
                vm_config:
                  code: {{ remote: {{ sha256: "nil", http_uri: {{ uri: "{uri}", cluster: _, timeout: 1s }} }} }}"#
        ))
    };
    let said = |uri: &str| common::said(&common::outcome(&text(uri), &|_: &str| true));
    assert!(!said("oci://a.test/b:1").contains("unknown-cluster"), "{}", said("oci://a.test/b:1"));
    assert!(said("http://a.test/b").contains("warning[unknown-cluster]"), "{}", said("http://a.test/b"));
}

/// What a filter is given of each kind of field that plugins have.
#[test]
fn a_filter_sees_structs_and_data_sources_as_they_were_written() {
    let text = chain(
        r#"
          - name: rider
            typed_config:
              "@type": type.googleapis.com/proxy.filters.http.rider.v3alpha1.FilterConfig
              plugin:
                name: p
                config: { userId: 1, "a.b": { innerKey: [0.5, 12345678901], off: null }, empty: {} }
                vm_config: { packagePath: "/x/?.lua;" }
                code: { remote: { sha256: "00", http_uri: { uri: "http://x/y", cluster: c, timeout: 1s } } }
          - name: lua
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua
              inlineCode: "-- old"
              sourceCodes: { "hello.lua": { filename: /a.lua } }
              defaultSourceCode: { inlineString: "-- code" }
              clearRouteCache: false
              filterContext: { camelCase: { SnakeCase_x: 1 } }
              packagePaths: ["/x/?.lua"]
              packageCpaths: ["/x/?.so"]
          - name: own
            typed_config:
              "@type": type.googleapis.com/postrider.filters.http.plugin.v1.Plugin
              name: p
              runtime: rider
              code: { directory: plugins/p }
              config: { ratio: 0.5, count: 12345678901, quoted: "0.5", word: 1.2.3 }
              budget: { cpu: 0.010s, memory_bytes: 16777216 }
              circuit: { faults: 0, window: 60s }
              clusters: [c]
"#,
    );
    let snapshot = common::snapshot(&common::outcome(&text, &|_: &str| true));
    let filters = &http(&snapshot.listeners[0]).filters;
    let shown: Vec<String> = filters.iter().map(|slot| show(&slot.config)).collect();
    assert_eq!(
        shown,
        [
            // As Envoy hands them on: fractions and numbers beyond 32 bits of a YAML file are text.
            "{plugin: {name: \"p\", config: {userId: 1, a.b: {innerKey: [\"0.5\", \"12345678901\"], off: null}, empty: {}}, \
             vm_config: {package_path: \"/x/?.lua;\"}, \
             code: {remote: {sha256: \"00\", http_uri: {uri: \"http://x/y\", cluster: \"c\", timeout: \"1s\"}}}}}",
            "{inline_code: \"-- old\", source_codes: {hello.lua: {filename: \"/a.lua\"}}, \
             default_source_code: {inline_string: \"-- code\"}, clear_route_cache: false, \
             filter_context: {camelCase: {SnakeCase_x: 1}}, package_paths: [\"/x/?.lua\"], package_cpaths: [\"/x/?.so\"]}",
            // Ours are what they look like.
            "{name: \"p\", runtime: \"rider\", code: {directory: \"plugins/p\"}, \
             config: {ratio: 0.5, count: 12345678901, quoted: \"0.5\", word: \"1.2.3\"}, \
             budget: {cpu: \"0.010s\", memory_bytes: 16777216}, circuit: {faults: 0, window: \"60s\"}, clusters: [\"c\"]}",
        ]
    );
}

/// A schema's finding names the user's keys: its place is theirs.
#[test]
fn an_error_below_a_struct_points_at_the_value() {
    struct Picky;
    impl FilterKinds for Picky {
        fn known(&self, _: &str) -> bool {
            true
        }

        fn check(&self, _: &str, _: &str, _: &Value) -> Vec<ValueError> {
            ["plugin.config.users[1].name", r#"plugin.config["a.b"]"#, "plugin.config.gone"]
                .map(|path| ValueError { path: path.into(), message: format!("wrong: {path}") })
                .into()
        }
    }
    let text = chain(
        r#"
          - name: rider
            typed_config:
              "@type": type.googleapis.com/proxy.filters.http.rider.v3alpha1.FilterConfig
              plugin:
                name: p
                code: { local: { inline_string: "return {}" } }
                config:
                  users:
                  - { name: ok }
                  - { name: odd }
                  a.b: 3
"#,
    );
    let load = common::outcome(&text, &Picky);
    let said = common::said(&load);
    let line = |part: &str| text.lines().position(|line| line.contains(part)).unwrap() + 1;
    for (place, path) in [
        (format!("{}:29", line("name: odd")), "config.users[1].name"),
        (format!("{}:24", line("a.b: 3")), r#"config["a.b"]"#),
        (format!("{}:19", line("users:")), "config.gone"),
    ] {
        assert!(
            said.contains(&format!("envoy.yaml:{place}: error[invalid-filter-config]: wrong: plugin.{path}")),
            "{said}"
        );
        assert!(said.contains(&format!("http_filters[0].typed_config.plugin.{path}")), "{said}");
    }
}

#[test]
fn groups_of_clusters_are_weighted_clusters_of_the_first_and_those_of_other_tries() {
    const KIND: &str = "envoy.extensions.router.cluster_specifiers.priority_group.v3.PriorityGroupClusterSpecifier";
    let text = |more: &str| {
        let routes = format!(
            r#"route_config:
            virtual_hosts:
            - name: v
              domains: ["*"]
              routes:
              - match: {{ prefix: / }}
                route:
                  retry_policy: {{ retry_on: 5xx, refresh_cluster_on_retry: true }}
                  inline_cluster_specifier_plugin:
                    extension:
                      name: groups
                      typed_config:
                        "@type": type.googleapis.com/{KIND}
                        priority_groups:
                        - name: first
                          clusters: [{{ cluster_name: c, weight: 3 }}]
                        - name: second
                          clusters: [{{ cluster_name: c, weight: 1 }}]
                        {more}"#
        );
        chain("").replace("route_config: {}", &routes)
    };
    let outcome = common::outcome(&text("header_name: x-n"), &|_: &str| true);
    let snapshot = common::snapshot(&outcome);
    let Action::Forward(forward) = &http(&snapshot.listeners[0]).routes.virtual_hosts[0].routes[0].action else {
        panic!("no cluster");
    };
    let Target::Weighted(clusters) = &forward.target else { panic!("{:?}", forward.target) };
    assert_eq!(clusters[0].weight, 3);
    assert_eq!((clusters.len(), &forward.lot), (1, &postrider_model::Lot::Header("x-n".into())));
    let NextCluster::Groups(groups) = &forward.next else { panic!("{:?}", forward.next) };
    assert_eq!((groups.len(), groups[0][0].weight), (1, 1));
    let kept = common::snapshot(&common::outcome(
        &text("header_name: x-n").replace("refresh_cluster_on_retry: true", "num_retries: 2"),
        &|_: &str| true,
    ));
    let Action::Forward(forward) = &http(&kept.listeners[0]).routes.virtual_hosts[0].routes[0].action else {
        panic!("no cluster");
    };
    assert_eq!(forward.next, NextCluster::Same);
    let refused = common::outcome(&text("override_metadata_namespace: x"), &|_: &str| true);
    assert!(refused.snapshot.is_none() && common::said(&refused).contains("override_metadata_namespace"));
    let unknown =
        common::outcome(&text("").replace("cluster_name: c, weight: 1", "cluster_name: d, weight: 1"), &|_: &str| true);
    assert!(
        unknown.snapshot.is_none() && common::said(&unknown).contains("unknown-cluster"),
        "{}",
        common::said(&unknown)
    );
}

/// Plugins that are no filters; without somebody who runs them they are refused by name.
#[test]
fn plugins_that_choose_clusters_or_judge_strings_become_values() {
    const SPECIFIER: &str = "envoy.extensions.router.cluster_specifiers.lua.v3.LuaConfig";
    const MATCHER: &str = "envoy.extensions.string_matcher.lua.v3.Lua";
    let text = chain("").replace(
        "route_config: {}",
        &format!(
            r#"route_config:
            cluster_specifier_plugins:
            - extension:
                name: pick
                typed_config:
                  "@type": type.googleapis.com/{SPECIFIER}
                  source_code: {{ inline_string: "-- named" }}
                  default_cluster: c
            virtual_hosts:
            - name: v
              domains: ["*"]
              routes:
              - match: {{ prefix: /a }}
                route: {{ cluster_specifier_plugin: pick }}
              - match:
                  prefix: /
                  headers:
                  - name: x
                    string_match:
                      custom:
                        name: lua
                        typed_config:
                          "@type": type.googleapis.com/{MATCHER}
                          source_code: {{ inline_string: "-- match" }}
                route:
                  inline_cluster_specifier_plugin:
                    extension:
                      name: other
                      typed_config:
                        "@type": type.googleapis.com/{SPECIFIER}
                        source_code: {{ inline_string: "-- inline" }}
                        default_cluster: gone"#
        ),
    );
    let load = |text: &str, known: bool| common::outcome(text, &move |_: &str| known);
    let outcome = load(&text, true);
    let said = common::said(&outcome);
    let snapshot = outcome.snapshot.unwrap_or_else(|| panic!("{said}"));
    assert!(said.contains("warning[unknown-cluster]") && said.contains("typed_config.default_cluster"), "{said}");
    let routes = &http(&snapshot.listeners[0]).routes.virtual_hosts[0].routes;
    let specifier = |index: usize| match &routes[index].action {
        Action::Forward(forward) => match &forward.target {
            Target::Plugin(plugin) => format!("{} {} {}", plugin.kind, show(&plugin.config), plugin.origin.0),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    };
    let table = "static_resources.listeners[0].filter_chains[0].filters[0].typed_config.route_config";
    assert_eq!(
        specifier(0),
        format!(
            r#"{SPECIFIER} {{source_code: {{inline_string: "-- named"}}, default_cluster: "c"}} {table}.cluster_specifier_plugins[0]"#
        )
    );
    assert!(specifier(1).contains("-- inline"), "{}", specifier(1));
    let HeaderCondition::Value(condition) = &routes[1].matches.headers[0].condition else { panic!() };
    let StringKind::Custom { kind, config } = &condition.kind else { panic!("{condition:?}") };
    assert_eq!((kind.as_str(), show(config).as_str()), (MATCHER, r#"{source_code: {inline_string: "-- match"}}"#));

    let refused = load(&text, false);
    let said = common::said(&refused);
    assert!(refused.snapshot.is_none());
    for kind in [SPECIFIER, MATCHER] {
        assert!(said.contains(&format!("`{kind}` is a known Envoy extension, not supported")), "{said}");
    }
    let misspelt = load(&text.replace("plugin: pick", "plugin: pikc"), true);
    let said = common::said(&misspelt);
    assert!(said.contains("error[unknown-plugin]") && said.contains("did you mean `pick`?"), "{said}");
}

/// A bootstrap with these filters before the router.
fn chain(filters: &str) -> String {
    format!(
        r#"
static_resources:
  listeners:
  - address: {{ socket_address: {{ address: 127.0.0.1, port_value: 10000 }} }}
    filter_chains:
    - filters:
      - name: http
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: x
          route_config: {{}}
          http_filters:{filters}
          - {{ name: r, typed_config: {{ "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router }} }}
  clusters: [{{ name: c, type: STATIC }}]
"#
    )
}

/// A value in one line.
fn show(value: &Value) -> String {
    match value {
        Value::Null => "null".into(),
        Value::Bool(value) => value.to_string(),
        Value::Number(number) => number.to_string(),
        Value::Integer(number) => number.to_string(),
        Value::String(text) => format!("{text:?}"),
        Value::List(items) => format!("[{}]", items.iter().map(show).collect::<Vec<_>>().join(", ")),
        Value::Map(entries) => {
            let entries: Vec<String> = entries.iter().map(|(key, value)| format!("{key}: {}", show(value))).collect();
            format!("{{{}}}", entries.join(", "))
        }
    }
}

#[test]
fn a_tunnel_in_a_post_has_a_path() {
    let text = include_str!("lower/accepted.yaml");
    let tunneling = |fields: &str| {
        let tunneling = format!("stat_prefix: t, cluster: one, tunneling_config: {{ hostname: db, {fields} }}");
        let snapshot = snapshot(&text.replace("stat_prefix: t, cluster: one", &tunneling));
        match &snapshot.listeners[1].filter_chains[0].handler {
            ConnectionHandler::Tcp(tcp) => tcp.tunneling.clone().unwrap(),
            _ => panic!("no TCP"),
        }
    };
    assert_eq!(tunneling("use_post: false").post_path, None);
    assert_eq!(tunneling("use_post: true").post_path.as_deref(), Some("/"));
    let all = tunneling("use_post: true, post_path: /a?b, propagate_response_trailers: true");
    assert_eq!((all.post_path.as_deref(), all.keeps_headers, all.keeps_trailers), (Some("/a?b"), false, true));
    assert!(tunneling("propagate_response_headers: true").keeps_headers);
}

#[test]
fn clusters_keep_their_meaning() {
    let snapshot = accepted();
    let one = &snapshot.clusters[0];
    assert_eq!(
        one.balancing.policy,
        LoadBalancing::LeastRequest(postrider_model::LeastRequest { choices: 3, ..Default::default() })
    );
    assert_eq!((one.thresholds.max_retries, one.high_thresholds.max_connections), (4, 9));
    assert_eq!(one.high_thresholds.max_requests, 1024);
    assert_eq!(one.upstream.max_requests_per_connection, Some(7));
    assert_eq!(one.upstream.max_response_head_bytes, 8 << 10);
    assert!(one.upstream.enable_trailers && one.upstream.keepalive.is_some() && one.upstream.sources.len() == 1);
    let Discovery::Static(endpoints) = &one.discovery else { panic!() };
    assert_eq!((endpoints[0].weight, endpoints[1].priority), (5, 1));
    assert_eq!(endpoints[0].additional.iter().map(ToString::to_string).collect::<Vec<_>>(), ["[::1]:1"]);
    assert_eq!(one.upstream.address_order, AddressOrder { first: Some(AddressFamily::V6), run: 2 });
    assert_eq!(snapshot.clusters[1].upstream.address_order, AddressOrder { first: None, run: 1 });
    let Discovery::StrictDns(dns) = &snapshot.clusters[1].discovery else { panic!() };
    assert_eq!(
        (dns.refresh, dns.failure_refresh),
        (Duration::from_secs(9), (Duration::from_secs(2), Duration::from_secs(8)))
    );
    assert!(dns.respect_ttl && !dns.wait_for_first);
    assert!(matches!(&snapshot.clusters[2].discovery, Discovery::LogicalDns(_)));
}

#[test]
fn a_second_field_that_says_the_same_is_read_too() {
    let snapshot = snapshot(
        r#"
static_resources:
  clusters:
  - name: c
    wait_for_warm_on_init: true
    track_timeout_budgets: true
    track_cluster_stats: { timeout_budgets: true }
    load_balancing_policy:
      policies:
      - typed_extension_config:
          name: least
          typed_config:
            "@type": type.googleapis.com/envoy.extensions.load_balancing_policies.least_request.v3.LeastRequest
            enable_full_scan: true
            selection_method: FULL_SCAN
            locality_lb_config:
              zone_aware_lb_config: { force_local_zone: { min_size: 2 }, force_locality_direct_routing: true }
"#,
    );
    let cluster = &snapshot.clusters[0];
    let LoadBalancing::LeastRequest(policy) = &cluster.balancing.policy else { panic!() };
    assert!(policy.full_scan);
}

#[test]
fn an_absent_field_means_the_safe_value_and_is_told_as_a_difference() {
    let text = r#"
static_resources:
  listeners:
  - address: { socket_address: { address: 127.0.0.1, port_value: 10000 } }
    filter_chains:
    - filters:
      - name: http
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: x
          route_config: {}
          http_filters: [{ name: r, typed_config: { "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router } }]
"#;
    let plain = outcome("envoy.yaml", text);
    let snapshot = plain.snapshot.clone().unwrap();
    let listener = &snapshot.listeners[0];
    assert_eq!(listener.name, "127.0.0.1:10000");
    assert_eq!(listener.buffer_limit, 200 << 10);
    let safe = http(listener);
    assert!(safe.path.normalize && safe.path.merge_slashes && safe.path.strict);
    assert_eq!(safe.http1.underscores, Underscores::RejectLookalikes);
    assert_eq!(safe.timeouts.connection_idle, Some(Duration::from_secs(3600)));
    assert_eq!(safe.timeouts.stream_idle, Some(Duration::from_secs(300)));
    assert_eq!((safe.timeouts.request, safe.timeouts.request_headers), (None, None));
    assert_eq!((safe.limits.max_headers, safe.limits.max_head_bytes), (100, 60 << 10));
    assert_eq!(safe.identity.server_name, "envoy");
    let ids: Vec<&str> = plain.differences.iter().map(|difference| difference.id).collect();
    assert_eq!(ids, ["overload", "normalize-path", "merge-slashes", "underscores", "http2-limits", "buffer-limit"]);

    // Each difference's own line brings Envoy's default back.
    let mut restored = text.to_owned();
    for difference in &plain.differences {
        restored = match difference.id {
            "overload" => format!("{}\n{restored}", difference.restore),
            "buffer-limit" => restored.replace("  - address", &format!("  - {}\n    address", difference.restore)),
            _ => restored.replace("stat_prefix: x", &format!("stat_prefix: x\n          {}", difference.restore)),
        };
    }
    let envoy = outcome("envoy.yaml", &restored);
    assert!(envoy.differences.is_empty(), "{:?}", envoy.differences);
    let snapshot = envoy.snapshot.unwrap();
    let http = http(&snapshot.listeners[0]);
    assert!(!http.path.normalize && !http.path.merge_slashes && !http.path.strict);
    assert_eq!(http.http1.underscores, Underscores::Allow);
    assert_eq!(snapshot.listeners[0].buffer_limit, 1 << 20);
}

#[test]
fn a_filters_own_error_points_into_the_file() {
    let text = include_str!("lower/accepted.yaml");
    let mut outcome = outcome("accepted.yaml", text);
    let snapshot = outcome.snapshot.clone().unwrap();
    let slot = &http(&snapshot.listeners[0]).filters[0];
    let error = ValueError {
        path: "mutations.response_mutations[0].append.header.key".into(),
        message: "no such header".into(),
    };
    outcome.refuse_filter(&slot.origin, &error);
    assert!(outcome.snapshot.is_none());
    let said = common::said(&outcome);
    let place = text.lines().position(|line| line.contains("response_mutations")).unwrap() + 1;
    assert!(said.contains(&format!("accepted.yaml:{place}:")), "{said}");
    assert!(said.contains("no such header"), "{said}");
}

#[test]
fn the_dump_has_envoys_sections() {
    let outcome = outcome("accepted.yaml", include_str!("lower/accepted.yaml"));
    let build = serde_json::Map::from_iter([("user_agent_name".to_owned(), "postrider".into())]);
    let sections = outcome.dump().sections("2026-01-01T00:00:00Z", build);
    let names: Vec<&str> = sections.iter().map(|s| s["@type"].as_str().unwrap().rsplit('.').next().unwrap()).collect();
    assert_eq!(
        names,
        [
            "BootstrapConfigDump",
            "ClustersConfigDump",
            "ListenersConfigDump",
            "ScopedRoutesConfigDump",
            "RoutesConfigDump",
            "SecretsConfigDump"
        ]
    );
    assert_eq!(sections[0]["bootstrap"]["node"]["user_agent_name"], "postrider");
    assert_eq!(sections[1]["static_clusters"][0]["cluster"]["name"], "one");
    assert_eq!(sections[2]["static_listeners"][0]["listener"]["name"], "web");
    assert_eq!(sections[4]["static_route_configs"][0]["route_config"]["name"], "r");
}

#[test]
fn the_report_counts_every_field_and_names_what_is_missing() {
    let good = outcome("accepted.yaml", include_str!("lower/accepted.yaml"));
    assert_eq!(good.report().counts.unsupported, 0);
    assert_eq!(good.report().counts.share(), 100.0);
    let bad = outcome("clusters.yaml", include_str!("lower/clusters.yaml"));
    let report = bad.report();
    assert!(report.counts.unsupported > 3 && report.counts.share() < 100.0);
    let text = report.text(&bad.sources);
    let place = "clusters[7].transport_socket_matches[1].transport_socket.typed_config: ";
    let refusal = "`envoy.extensions.transport_sockets.starttls.v3.UpstreamStartTlsConfig` is a known Envoy extension";
    assert!(text.contains(&format!("{place}{refusal}")), "{text}");
    assert!(report.json(&bad.sources)["fields"].as_array().unwrap().len() == report.fields.len());
}

#[test]
fn every_example_in_envoys_form_is_accepted() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../examples");
    let mut seen = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "yaml") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        if text.contains("static_resources:") {
            snapshot(&text);
            seen += 1;
        }
    }
    assert!(seen >= 3);
}
