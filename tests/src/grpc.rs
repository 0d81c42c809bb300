//! What tests of gRPC services have in common.

use serde_json::{Value, json};

/// Of a cluster whose hosts speak HTTP/2 without TLS.
pub fn http2() -> Value {
    json!({"typed_extension_protocol_options": {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
        "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
        "explicit_http_config": {"http2_protocol_options": {}},
    }}})
}
