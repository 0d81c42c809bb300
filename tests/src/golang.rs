//! Go filters in the configurations of tests.

use std::path::{Path, PathBuf};

use postrider_testkit::config::router;
use postrider_testkit::{Config, Origin, Proxy};
use serde_json::{Value, json};

use crate::plugins::typed;

const KIND: &str = "envoy.extensions.filters.http.golang.v3alpha.Config";
const SPECIFIER_KIND: &str = "envoy.extensions.router.cluster_specifier.golang.v3alpha.Config";
const NETWORK_KIND: &str = "envoy.extensions.filters.network.golang.v3alpha.Config";
const BRIDGE_KIND: &str = "envoy.extensions.upstreams.http.tcp.golang.v3alpha.Config";
/// The type of what a route says about Go filters.
pub const ROUTE_KIND: &str = "type.googleapis.com/envoy.extensions.filters.http.golang.v3alpha.ConfigsPerRoute";
/// Under this name stands the filter in the chain.
pub const NAME: &str = "envoy.filters.http.golang";

/// A library that `tests/modules/golang` describes; panics when it was not built.
pub fn library(name: &str) -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let target = target.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../target"));
    let path = target.join("tools/golang").join(format!("{name}.so"));
    let path = std::path::absolute(&path).unwrap();
    assert!(path.exists(), "{} is not built: `make test` builds it by `.ci/golang`", path.display());
    path
}

/// A plugin's configuration, as plugins expect it.
pub fn config(fields: &Value) -> Value {
    json!({"@type": "type.googleapis.com/xds.type.v3.TypedStruct", "value": fields})
}

/// The filter.
pub fn filter(library_name: &str, plugin: &str, fields: &Value) -> Value {
    typed(
        NAME,
        KIND,
        json!({
            "library_id": library_name,
            "library_path": library(library_name),
            "plugin_name": plugin,
            "plugin_config": config(fields),
        }),
    )
}

/// What a route says for one plugin.
pub fn per_route(plugin: &str, fields: &Value) -> Value {
    json!({NAME: {"@type": ROUTE_KIND, "plugins_config": {plugin: {"config": config(fields)}}}})
}

/// What names clusters for a route or a table, `default` by default.
pub fn specifier(library_name: &str, name: &str, fields: &Value) -> Value {
    let config = json!({
        "library_id": library_name,
        "library_path": library(library_name),
        "default_cluster": "default",
        "config": config(fields),
    });
    json!({"extension": typed(name, SPECIFIER_KIND, config)})
}

/// A filter of connections.
pub fn network_filter(library_name: &str, plugin: &str, fields: &Value, terminal: bool) -> Value {
    let config = json!({
        "is_terminal_filter": terminal,
        "library_id": library_name,
        "library_path": library(library_name),
        "plugin_name": plugin,
        "plugin_config": config(fields),
    });
    typed("envoy.filters.network.golang", NETWORK_KIND, config)
}

/// Fields of a cluster to whose hosts Go code speaks.
pub fn bridged(library_name: &str, plugin: &str, fields: &Value) -> Value {
    let config = json!({
        "library_id": library_name,
        "library_path": library(library_name),
        "plugin_name": plugin,
        "plugin_config": config(fields),
    });
    json!({"upstream_config": typed("envoy.upstreams.http.tcp.golang", BRIDGE_KIND, config)})
}

/// A proxy with filters in front of an origin.
pub struct Site {
    pub proxy: Proxy,
    pub origin: Origin,
}

/// With trailers on both sides, and a small buffer limit if there is one.
pub fn site(filters: &[Value], origin: Origin, http: Value) -> Site {
    Site { proxy: Proxy::start(&gateway(filters, &origin, http)), origin }
}

/// Its configuration.
pub fn gateway(filters: &[Value], origin: &Origin, http: Value) -> Config {
    let mut filters = filters.to_vec();
    filters.push(router());
    let mut fields = json!({
        "http_protocol_options": {"enable_trailers": true},
        "http_filters": filters,
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [
            {"name": "moved", "match": {"path": "/moved"}, "direct_response": {"status": 299, "body": {"inline_string": "moved"}}},
            {"name": "all", "match": {"prefix": "/"}, "route": {"cluster": "origin", "timeout": "0s"}},
        ]}]},
    });
    for (key, value) in http.as_object().into_iter().flatten() {
        fields[key] = value.clone();
    }
    let trailers = json!({"explicit_http_config": {"http_protocol_options": {"enable_trailers": true}}});
    Config::new().http(fields).cluster_with(
        "origin",
        &[origin.address],
        postrider_testkit::config::upstream_http_options(trailers),
    )
}
