//! What tests of filters load.

/// A bootstrap with one listener, whose connection manager has these fields and filters, as lines at the left edge, and the router
/// behind them. `resources` stands beside the listener.
pub fn bootstrap(resources: &str, fields: &str, filters: &str) -> String {
    let indented = |lines: &str| lines.trim().replace('\n', "\n          ");
    let (fields, filters) = (indented(fields), indented(filters));
    format!(
        r#"
static_resources:
  {resources}
  listeners:
  - name: l
    address: {{ socket_address: {{ address: 127.0.0.1, port_value: 1 }} }}
    filter_chains:
    - filters:
      - name: http
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: x
          {fields}
          http_filters:
          {filters}
          - name: router
            typed_config: {{ "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router }}
"#
    )
}
