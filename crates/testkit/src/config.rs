//! Builds Envoy v3 bootstraps for tests. The defaults are the smallest config
//! that serves; every part can be overlaid with JSON in Envoy's field names.

use crate::yaml;
use serde_json::{Map, Value, json};
use std::net::SocketAddr;

const TYPES: &str = "type.googleapis.com/envoy.extensions";

/// A bootstrap in the making. The admin listens on a free loopback port.
#[derive(Clone, Debug)]
pub struct Config {
    root: Value,
}

impl Default for Config {
    fn default() -> Self {
        Self::new()
    }
}

impl Config {
    pub fn new() -> Self {
        Self {
            root: json!({
                "admin": {"address": socket_address("127.0.0.1", 0)},
                "static_resources": {"listeners": [], "clusters": []},
            }),
        }
    }

    /// A config with one HTTP listener named `http` and the given routes for
    /// every host.
    pub fn routes(routes: Value) -> Self {
        Self::new().http(json!({
            "route_config": {"name": "local_route", "virtual_hosts": [
                {"name": "everything", "domains": ["*"], "routes": routes},
            ]},
        }))
    }

    /// A config with one HTTP listener that sends everything to `origin`.
    pub fn proxy_to(origin: SocketAddr) -> Self {
        Self::routes(json!([{"match": {"prefix": "/"}, "route": {"cluster": "origin"}}])).cluster("origin", &[origin])
    }

    /// Adds the HTTP listener `http`, its connection manager overlaid with `hcm`.
    pub fn http(self, hcm: Value) -> Self {
        self.http_named("http", hcm)
    }

    /// Adds an HTTP listener with a name of its own.
    pub fn http_named(self, name: &str, hcm: Value) -> Self {
        self.listener(name, json!({"filter_chains": [{"filters": [http_filter(hcm)]}]}))
    }

    /// Adds a TCP proxy listener; `tcp_proxy` overlays the filter's config.
    pub fn tcp(self, name: &str, tcp_proxy: Value) -> Self {
        self.listener(name, json!({"filter_chains": [{"filters": [tcp_filter(tcp_proxy)]}]}))
    }

    /// Adds a listener on a free loopback port, overlaid with `fields`.
    pub fn listener(mut self, name: &str, fields: Value) -> Self {
        let mut listener = json!({"name": name, "address": socket_address("127.0.0.1", 0)});
        overlay(&mut listener, fields);
        self.push("listeners", listener);
        self
    }

    /// Adds a STATIC cluster.
    pub fn cluster(self, name: &str, endpoints: &[SocketAddr]) -> Self {
        self.cluster_with(name, endpoints, json!({}))
    }

    /// Adds a STATIC cluster overlaid with `fields`.
    pub fn cluster_with(mut self, name: &str, endpoints: &[SocketAddr], fields: Value) -> Self {
        let endpoints: Vec<Value> = endpoints
            .iter()
            .map(|address| {
                let address = socket_address(&address.ip().to_string(), address.port());
                json!({"endpoint": {"address": address}})
            })
            .collect();
        let mut cluster = json!({
            "name": name,
            "type": "STATIC",
            "connect_timeout": "5s",
            "load_assignment": {"cluster_name": name, "endpoints": [{"lb_endpoints": endpoints}]},
        });
        overlay(&mut cluster, fields);
        self.push("clusters", cluster);
        self
    }

    /// Overlays the connection manager (or TCP proxy) of the first filter
    /// chain of listener `name`.
    pub fn overlay_filter(mut self, name: &str, fields: Value) -> Self {
        let listeners = self.root["static_resources"]["listeners"].as_array_mut();
        for listener in listeners.expect("listeners") {
            if listener["name"] == name {
                overlay(&mut listener["filter_chains"][0]["filters"][0]["typed_config"], fields.clone());
            }
        }
        self
    }

    /// Overlays the first filter chain of listener `name`.
    pub fn overlay_chain(mut self, name: &str, fields: Value) -> Self {
        let listeners = self.root["static_resources"]["listeners"].as_array_mut();
        for listener in listeners.expect("listeners") {
            if listener["name"] == name {
                overlay(&mut listener["filter_chains"][0], fields.clone());
            }
        }
        self
    }

    /// Overlays listener `name`.
    pub fn overlay_listener(mut self, name: &str, fields: Value) -> Self {
        let listeners = self.root["static_resources"]["listeners"].as_array_mut();
        for listener in listeners.expect("listeners") {
            if listener["name"] == name {
                overlay(listener, fields.clone());
            }
        }
        self
    }

    /// Overlays the whole bootstrap.
    pub fn overlay(mut self, fields: Value) -> Self {
        overlay(&mut self.root, fields);
        self
    }

    pub fn to_value(&self) -> &Value {
        &self.root
    }

    pub fn to_yaml(&self) -> String {
        yaml::to_yaml(&self.root)
    }

    /// Names of the listeners, in order.
    pub fn listener_names(&self) -> Vec<String> {
        let listeners = self.root["static_resources"]["listeners"].as_array();
        listeners.into_iter().flatten().filter_map(|l| l["name"].as_str().map(str::to_owned)).collect()
    }

    fn push(&mut self, list: &str, item: Value) {
        let list = self.root["static_resources"][list].as_array_mut();
        list.expect("a list").push(item);
    }
}

/// `{"socket_address": ...}`.
pub fn socket_address(host: &str, port: u16) -> Value {
    json!({"socket_address": {"address": host, "port_value": port}})
}

/// An extension slot: a name and a typed config, overlaid with `fields`.
pub fn extension(name: &str, type_name: &str, fields: Value) -> Value {
    let mut config = json!({"@type": format!("{TYPES}.{type_name}")});
    overlay(&mut config, fields);
    json!({"name": name, "typed_config": config})
}

/// A connection manager with a router and nothing that varies between runs.
pub fn http_filter(hcm: Value) -> Value {
    let mut fields = json!({
        "stat_prefix": "ingress_http",
        "generate_request_id": false,
        "http_filters": [router()],
    });
    overlay(&mut fields, hcm);
    extension(
        "envoy.filters.network.http_connection_manager",
        "filters.network.http_connection_manager.v3.HttpConnectionManager",
        fields,
    )
}

/// The router filter.
pub fn router() -> Value {
    extension("envoy.filters.http.router", "filters.http.router.v3.Router", json!({}))
}

/// A TCP proxy filter.
pub fn tcp_filter(tcp_proxy: Value) -> Value {
    let mut fields = json!({"stat_prefix": "ingress_tcp"});
    overlay(&mut fields, tcp_proxy);
    extension("envoy.filters.network.tcp_proxy", "filters.network.tcp_proxy.v3.TcpProxy", fields)
}

/// A file access log; `fields` carries its format.
pub fn file_access_log(path: &std::path::Path, fields: Value) -> Value {
    let mut config = json!({"path": path.to_str().expect("UTF-8 path")});
    overlay(&mut config, fields);
    extension("envoy.access_loggers.file", "access_loggers.file.v3.FileAccessLog", config)
}

/// HTTP protocol options of a cluster, HTTP/1.1 with the given overlay.
pub fn upstream_http_options(fields: Value) -> Value {
    let mut options = json!({
        "@type": format!("{TYPES}.upstreams.http.v3.HttpProtocolOptions"),
        "explicit_http_config": {"http_protocol_options": {}},
    });
    overlay(&mut options, fields);
    json!({"typed_extension_protocol_options": {
        "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": options,
    }})
}

/// Overlays `value` with `fields`: objects are merged, the rest replaced, and
/// `null` removes a key.
pub fn overlay(value: &mut Value, fields: Value) {
    match (value, fields) {
        (Value::Object(target), Value::Object(source)) => {
            for (key, field) in source {
                if field.is_null() {
                    target.remove(&key);
                } else {
                    overlay(target.entry(key).or_insert(Value::Object(Map::new())), field);
                }
            }
        }
        (target, fields) => *target = fields,
    }
}
