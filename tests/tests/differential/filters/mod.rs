//! The filters, each with what it takes, refuses and changes.

mod access;
mod browsers;
mod calls;
mod credentials;
mod faults;
mod grpc;
mod headers;
mod limits;
mod metadata;
mod packed;
mod replies;
mod scopes;
mod sessions;
pub mod tokens;

use crate::scene::{Scene, to_a};
use postrider_tests::kit::config::extension;
use serde_json::{Value, json};

/// About who may do what, and how often.
pub fn policies() -> Vec<Scene> {
    let all = [browsers::scenes(), credentials::scenes(), tokens::scenes(), access::scenes(), limits::scenes()];
    all.into_iter().chain([calls::scenes()]).flatten().collect()
}

/// About what is noted and changed on the way.
pub fn changes() -> Vec<Scene> {
    let all = [headers::scenes(), metadata::scenes(), packed::scenes(), replies::scenes(), faults::scenes()];
    all.into_iter().chain([sessions::scenes(), grpc::scenes(), scopes::scenes()]).flatten().collect()
}

fn filter(name: &str, kind: &str, fields: Value) -> Value {
    extension(&format!("envoy.filters.http.{name}"), &format!("filters.http.{name}.v3.{kind}"), fields)
}

/// What a route or another scope has of its own for a filter.
fn typed(name: &str, kind: &str, fields: Value) -> Value {
    let mut config = fields;
    config["@type"] = json!(format!("type.googleapis.com/envoy.extensions.filters.http.{name}.v3.{kind}"));
    config
}

/// The same as `typed_per_filter_config`, to lay over a route.
fn scope(name: &str, kind: &str, fields: Value) -> Value {
    json!({"typed_per_filter_config": {format!("envoy.filters.http.{name}"): typed(name, kind, fields)}})
}

/// A route to the origin `a` with configuration of its own for a filter.
fn own(prefix: &str, name: &str, kind: &str, fields: Value) -> Value {
    to_a(prefix, scope(name, kind, fields))
}

fn share(numerator: u32) -> Value {
    json!({"default_value": {"numerator": numerator}})
}

fn header(key: &str, value: &str) -> Value {
    json!({"header": {"key": key, "value": value}})
}

/// A command of the access log that shows what a filter noted.
fn noted(name: &str) -> Value {
    json!({"noted": format!("%DYNAMIC_METADATA(envoy.filters.http.{name})%")})
}
