//! Plugins in the configurations of tests.

use postrider_testkit::config::{extension, router};
use postrider_testkit::{Config, Origin, Proxy};
use serde_json::{Value, json};

use crate::get;

/// The name of a filter that all Rider plugins share, and under which routes configure them.
pub const RIDER: &str = "proxy.filters.http.rider";
/// The type of what a route says about them.
pub const RIDER_ROUTE: &str = "type.googleapis.com/proxy.filters.http.rider.v3alpha1.RouteFilterConfig";
/// The type of what a route says about a manifest.
pub const MANIFEST_ROUTE: &str = "type.googleapis.com/postrider.filters.http.plugin.v1.PluginPerRoute";

/// A filter of the type `kind`.
pub fn typed(name: &str, kind: &str, fields: Value) -> Value {
    let mut filter = extension(name, "x", fields);
    filter["typed_config"]["@type"] = json!(format!("type.googleapis.com/{kind}"));
    filter
}

/// A Rider plugin under the filter name that all of them share.
pub fn rider(name: &str, code: &str, config: Value) -> Value {
    typed(
        RIDER,
        "proxy.filters.http.rider.v3alpha1.FilterConfig",
        json!({"plugin": {"name": name, "config": config, "code": {"local": {"inline_string": code}}}}),
    )
}

/// A plugin manifest; the runtime is `rider` unless `fields` says otherwise.
pub fn manifest(name: &str, fields: Value) -> Value {
    let mut all = json!({"name": name, "runtime": "rider"});
    for (key, value) in fields.as_object().unwrap() {
        all[key] = value.clone();
    }
    typed(name, "postrider.filters.http.plugin.v1.Plugin", all)
}

/// The filters in front of `origin`, with these routes.
pub fn config(filters: &[Value], routes: Value, origin: &Origin) -> Config {
    let mut filters = filters.to_vec();
    filters.push(router());
    Config::new()
        .http(json!({
            "http_filters": filters,
            "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": routes}]},
        }))
        .cluster("origin", &[origin.address])
}

/// One route for all requests.
pub fn everything() -> Value {
    json!([{"match": {"prefix": "/"}, "route": {"cluster": "origin"}}])
}

/// What the origin saw of a request's field.
pub fn seen(proxy: &Proxy, origin: &Origin, path: &str, field: &str) -> String {
    origin.forget();
    let response = proxy.exchange(get(path));
    assert_eq!(response.status, 200, "{response:?}");
    origin.requests()[0].headers.values(field).join("|")
}
