//! The clusters that the configuration of an extension calls, wherever in it they are named.

use super::context::{ClusterUse, Lowering};
use crate::message::{Message, Value};

const GRPC: &str = "envoy.config.core.v3.GrpcService.EnvoyGrpc";

/// The messages that name one, the field in which they do, and whether it must exist: Envoy refuses a gRPC service without
/// its cluster, and asks for that of an address only with a request.
const NAMED: [(&str, &str, bool); 2] =
    [(GRPC, "cluster_name", true), ("envoy.config.core.v3.HttpUri", "cluster", false)];

/// Notes every cluster that `message`, which stands at `path`, names as somebody to call.
pub(super) fn note(cx: &mut Lowering<'_>, message: &Message, path: &str) {
    for field in &message.fields {
        let name = field.descriptor.name();
        let below = format!("{path}.{name}");
        let named = NAMED.iter().find(|(kind, key, _)| message.type_name() == *kind && name == *key);
        match (named, &field.value) {
            // An image is asked of its registry directly, so its cluster is a placeholder.
            (Some(_), Value::String(_)) if names_image(message) => {}
            (Some((kind, _, required)), Value::String(cluster)) if !cluster.is_empty() => {
                let (name, span) = (cluster.clone(), field.span());
                if *kind == GRPC {
                    cx.grpc_uses.push(ClusterUse { name: name.clone(), span, path: below.clone(), required: false });
                }
                cx.cluster_uses.push(ClusterUse { name, span, path: below, required: *required });
            }
            (_, Value::Message(inner)) => note(cx, inner, &below),
            (_, Value::Any(any)) => any.message.iter().for_each(|inner| note(cx, inner, &below)),
            (_, Value::List(items)) => {
                for (index, item) in items.iter().enumerate() {
                    if let Value::Message(inner) = &item.value {
                        note(cx, inner, &format!("{below}[{index}]"));
                    }
                }
            }
            _ => {}
        }
    }
}

/// Whether it is an address of the form in which Istio names an image, `oci://registry/repository:tag`.
fn names_image(message: &Message) -> bool {
    message.fields.iter().any(|field| {
        let is_image = |uri: &Value| matches!(uri, Value::String(uri) if uri.starts_with("oci://"));
        field.descriptor.name() == "uri" && is_image(&field.value)
    })
}
