//! REST and JSON outside, gRPC inside. Everything here was compared with Envoy 1.40; where Postrider differs on purpose,
//! the test says so.

mod answers;
mod calls;
mod limits;
mod routes;
mod schema;
mod streams;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use postrider_tests::grpc_origin::{Answer, Call, GrpcOrigin};
use postrider_tests::kit::config::{extension, router, upstream_http_options};
use postrider_tests::kit::{Config, Proxy, Response};
use schema::Schema;
use serde_json::{Value, json};

const NAME: &str = "envoy.filters.http.grpc_json_transcoder";
const KIND: &str = "filters.http.grpc_json_transcoder.v3.GrpcJsonTranscoder";

/// A configuration of the filter for the shop, overlaid with `fields`.
fn settings(schema: &Schema, fields: &Value) -> Value {
    let mut settings = json!({"proto_descriptor_bin": STANDARD.encode(&schema.set), "services": ["shop.v1.Shop"]});
    for (key, value) in fields.as_object().unwrap() {
        settings[key] = value.clone();
    }
    settings
}

fn site(filter: Value, routes: Value, origin: &GrpcOrigin) -> Config {
    let http2 = json!({"explicit_http_config": {"http_protocol_options": null, "http2_protocol_options": {}}});
    Config::new()
        .http(json!({
            "http_filters": [extension(NAME, KIND, filter), router()],
            "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": routes}]},
        }))
        .cluster_with("origin", &[origin.address], upstream_http_options(http2))
}

fn everything() -> Value {
    json!([{"match": {"prefix": "/"}, "route": {"cluster": "origin"}}])
}

/// A proxy in front of a shop that answers as `script` says.
struct Shop {
    schema: Schema,
    origin: GrpcOrigin,
    proxy: Proxy,
}

impl Shop {
    fn open(fields: Value, script: impl Fn(&Schema, &Call) -> Answer + Send + Sync + 'static) -> Shop {
        let schema = Schema::shop();
        let known = Schema::shop();
        let origin = GrpcOrigin::start(move |call| script(&known, call));
        let proxy = Proxy::start(&site(settings(&schema, &fields), everything(), &origin));
        Shop { schema, origin, proxy }
    }

    /// One whose every answer is an item of this name.
    fn selling(name: &'static str, fields: Value) -> Shop {
        Shop::open(fields, move |schema, _| Answer::messages([schema.encode("shop.v1.Item", &json!({"name": name}))]))
    }

    fn ask(&self, method: &str, path: &str, body: &str) -> Response {
        self.ask_with(method, path, "", body)
    }

    fn ask_with(&self, method: &str, path: &str, fields: &str, body: &str) -> Response {
        let length = if body.is_empty() { String::new() } else { format!("content-length: {}\r\n", body.len()) };
        let head = format!("{method} {path} HTTP/1.1\r\nhost: test\r\n{fields}{length}\r\n");
        let mut client = self.proxy.client();
        client.send(head + body).response(method).unwrap()
    }
}

fn json_of(response: &Response) -> Value {
    serde_json::from_str(response.text()).unwrap_or_else(|error| panic!("{error}: {response:?}"))
}
