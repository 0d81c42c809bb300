//! The Envoy v3 bootstrap that Postrider and Envoy both run: routes, timeouts and statistics on, access log off.

use std::fmt::Write;

use crate::config::plugin;
use crate::shape::{Dialect, Filter, Http, PASSWORD_SHA, Protocol, Script, Setup, Shape, USER, route_prefix};
use crate::tls::Certificate;

/// What makes a cluster speak HTTP/2 with prior knowledge.
const HTTP2_UPSTREAM: &str = "    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        \"@type\": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: { http2_protocol_options: {} }
";

/// YAML for the setup.
pub fn bootstrap(setup: &Setup) -> String {
    let mut yaml = format!(
        "admin:
  address:
    socket_address: {{ address: 127.0.0.1, port_value: {admin} }}
static_resources:
  listeners:
",
        admin = setup.admin,
    );
    listener(&mut yaml, "bench", setup.listen, setup.certificate, setup);
    if setup.shape.plain_beside {
        listener(&mut yaml, "plain", setup.plain, None, setup);
    }
    yaml.push_str("  clusters:\n");
    cluster(&mut yaml, "origin", setup.upstream, Some(&setup.shape));
    for number in 0..setup.shape.idle_clusters {
        cluster(&mut yaml, &format!("idle_{number:05}"), setup.upstream, None);
    }
    yaml
}

fn listener(yaml: &mut String, name: &str, port: u16, certificate: Option<&Certificate>, setup: &Setup) {
    let _ = write!(
        yaml,
        "  - name: {name}
    address:
      socket_address: {{ address: 127.0.0.1, port_value: {port} }}
    filter_chains:
    - filters:
"
    );
    match setup.shape.protocol {
        Protocol::Http => http_connection_manager(yaml, setup),
        Protocol::Tcp => yaml.push_str(
            "      - name: envoy.filters.network.tcp_proxy
        typed_config:
          \"@type\": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy
          stat_prefix: bench
          cluster: origin
          idle_timeout: 300s
",
        ),
    }
    if let Some(certificate) = certificate {
        let _ = write!(
            yaml,
            "      transport_socket:
        name: envoy.transport_sockets.tls
        typed_config:
          \"@type\": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext
          common_tls_context:
            alpn_protocols: [{alpn}]
            tls_certificates:
            - certificate_chain: {{ filename: {chain} }}
              private_key: {{ filename: {key} }}
",
            alpn = setup.shape.downstream.alpn(),
            chain = certificate.chain.display(),
            key = certificate.key.display(),
        );
    }
}

fn http_connection_manager(yaml: &mut String, setup: &Setup) {
    let _ = write!(
        yaml,
        "      - name: envoy.filters.network.http_connection_manager
        typed_config:
          \"@type\": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: bench
          codec_type: AUTO
          generate_request_id: {ids}
          request_headers_timeout: 10s
          stream_idle_timeout: 300s
          common_http_protocol_options:
            idle_timeout: 3600s
          route_config:
            name: bench
            virtual_hosts:
            - name: bench
              domains: [\"*\"]
              routes:
",
        ids = setup.shape.request_ids
    );
    for number in 0..setup.shape.routes {
        let prefix = if setup.shape.routes == 1 { "/".to_owned() } else { route_prefix(number) };
        let _ = writeln!(
            yaml,
            "              - match: {{ prefix: \"{prefix}\" }}\n                route: {{ cluster: origin, timeout: 15s }}"
        );
    }
    if setup.shape.access_log {
        let _ = write!(
            yaml,
            "          access_log:
          - name: envoy.access_loggers.file
            typed_config:
              \"@type\": type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog
              path: {}
",
            setup.directory.join("access.log").display()
        );
    }
    yaml.push_str("          http_filters:\n");
    match setup.shape.filter {
        Filter::None => {}
        Filter::BasicAuth => {
            let _ = write!(
                yaml,
                "          - name: envoy.filters.http.basic_auth
            typed_config:
              \"@type\": type.googleapis.com/envoy.extensions.filters.http.basic_auth.v3.BasicAuth
              users:
                inline_string: \"{USER}:{PASSWORD_SHA}\"
"
            );
        }
        Filter::Lua(script, dialect) => {
            for number in 0..setup.shape.filters {
                lua(yaml, script, dialect, number);
            }
        }
        Filter::Plugin(of) => {
            if let Some(module) = setup.module {
                yaml.push_str(&plugin::filter(of, module));
            }
        }
    }
    yaml.push_str(
        "          - name: envoy.filters.http.router
            typed_config:
              \"@type\": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router
",
    );
}

fn lua(yaml: &mut String, script: Script, dialect: Dialect, number: usize) {
    yaml.push_str(&match dialect {
        Dialect::Usual => "          - name: envoy.filters.http.lua
            typed_config:
              \"@type\": type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua
              default_source_code:
                inline_string: |
"
        .to_owned(),
        Dialect::Rider => format!(
            "          - name: proxy.filters.http.rider
            typed_config:
              \"@type\": type.googleapis.com/proxy.filters.http.rider.v3alpha1.FilterConfig
              plugin:
                name: bench{number}
                allow_no_route: true
                code:
                  local:
                    inline_string: |
"
        ),
    });
    for line in script.source(dialect).lines() {
        let _ = writeln!(yaml, "                      {line}");
    }
}

/// A cluster with one endpoint; one that gets traffic is as the shape says.
fn cluster(yaml: &mut String, name: &str, port: u16, used: Option<&Shape>) {
    let _ = write!(
        yaml,
        "  - name: {name}
    type: STATIC
    connect_timeout: 1s
    lb_policy: ROUND_ROBIN
"
    );
    if let Some(shape) = used {
        let _ = write!(
            yaml,
            "    circuit_breakers:
      thresholds:
      - {{ max_connections: {limit}, max_pending_requests: {limit}, max_requests: {limit} }}
",
            limit = shape.connections * 2
        );
        if shape.upstream == Http::Two {
            yaml.push_str(HTTP2_UPSTREAM);
        }
    }
    let _ = write!(
        yaml,
        "    load_assignment:
      cluster_name: {name}
      endpoints:
      - lb_endpoints:
        - endpoint:
            address:
              socket_address: {{ address: 127.0.0.1, port_value: {port} }}
"
    );
}
