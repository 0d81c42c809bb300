//! HTNN's plugins in the configurations of tests, as HTNN's control plane writes them.

use postrider_testkit::proxy::Launch;
use postrider_testkit::{Origin, Proxy, Response};
use serde_json::{Value, json};

use crate::golang::{Site, filter, gateway, per_route};

/// Where the library runs, as the environment says it: in the proxy, and in a process of its own.
pub const HOMES: [&str; 2] = ["", "*"];

/// The filter manager with these plugins.
pub fn plugins(all: &[(&str, Value)]) -> Value {
    let all: Vec<Value> = all.iter().map(|(name, config)| json!({"name": name, "config": config})).collect();
    json!({"namespace": "ns", "plugins": all})
}

/// A route with plugins of its own.
pub fn route(path: &str, all: &[(&str, Value)]) -> Value {
    json!({
        "match": {"prefix": path}, "route": {"cluster": "origin"},
        "typed_per_filter_config": per_route("fm", &plugins(all)),
    })
}

/// These routes, and behind them one for everything.
pub fn routes(all: &[Value]) -> Value {
    let mut all = all.to_vec();
    all.push(json!({"match": {"prefix": "/"}, "route": {"cluster": "origin"}}));
    json!({"route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": all}]}})
}

/// Consumers by name, each with the plugin that knows it and what that is told.
pub fn consumers(version: u32, all: &[(&str, &str, Value)]) -> Value {
    let of = |plugin: &str, config: &Value| json!({"auth": {plugin: config.to_string()}}).to_string();
    let all = all.iter().map(|(name, plugin, told)| ((*name).to_owned(), json!({"v": version, "d": of(plugin, told)})));
    filter("htnn", "cm", &json!({"ns": all.collect::<serde_json::Map<_, _>>()}))
}

/// A proxy where these filters stand in front of an origin.
pub fn site(home: &str, filters: &[Value], origin: Origin, http: Value) -> Site {
    let environment = vec![("POSTRIDER_GO_ISOLATION".to_owned(), home.to_owned())];
    let launch = Launch { environment, ..Launch::default() };
    Site { proxy: Proxy::start_with(&gateway(filters, &origin, http), launch), origin }
}

/// A proxy where one plugin stands in front of an origin.
pub fn with(home: &str, plugin: &str, config: Value) -> Site {
    site(home, &[filter("htnn", "fm", &plugins(&[(plugin, config)]))], Origin::echo("a"), json!({}))
}

/// A GET with these field lines.
pub fn ask(site: &Site, path: &str, fields: &str) -> Response {
    crate::ask(&site.proxy, "GET", "test", path, fields)
}
