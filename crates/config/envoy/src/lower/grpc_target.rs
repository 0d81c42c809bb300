//! gRPC services that the proxy calls of itself, with no request behind the call (`envoy.config.core.v3.GrpcService`).

use postrider_model::{Format, GrpcTarget};

use super::context::Lowering;
use super::{callees, headers};
use crate::reader::Reader;

/// All but the `timeout`, which means something else to each caller.
pub(super) fn target(cx: &mut Lowering<'_>, grpc: &Reader<'_>) -> Option<GrpcTarget> {
    callees::note(cx, grpc.as_message(), grpc.path());
    for (field, what) in
        [("google_grpc", "a gRPC client of its own (`google_grpc`)"), ("retry_policy", "retrying gRPC calls")]
    {
        if grpc.has(field) {
            cx.refuse(grpc, field, what);
        }
    }
    let metadata = grpc.list("initial_metadata").iter().filter_map(|header| metadata(cx, header)).collect();
    let envoy = grpc.message("envoy_grpc")?;
    if envoy.has("retry_policy") {
        cx.refuse(&envoy, "retry_policy", "retrying gRPC calls");
    }
    envoy.ignore("skip_envoy_headers", "what it turns off is not sent here in the first place");
    let max_answer = envoy.u32_wrapper("max_receive_message_length").filter(|most| *most > 0);
    Some(GrpcTarget {
        cluster: envoy.str("cluster_name").into(),
        authority: authority(cx, &envoy),
        metadata,
        max_answer: max_answer.map(|most| most as usize),
    })
}

fn authority(cx: &mut Lowering<'_>, envoy: &Reader<'_>) -> Option<String> {
    let authority = envoy.str("authority");
    if !is_authority(authority) {
        cx.error(envoy, "authority", "invalid-value", format!("`{authority}` is no host with or without a port"));
    }
    (!authority.is_empty()).then(|| authority.to_owned())
}

pub(super) fn is_authority(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~:[]".contains(&byte))
}

/// A field that the call carries. No request stands behind it whose values a format could take.
fn metadata(cx: &mut Lowering<'_>, header: &Reader<'_>) -> Option<(String, String)> {
    if header.has("raw_value") {
        cx.refuse(header, "raw_value", "metadata as bytes");
    }
    let value: Format = cx.format(header, "value", header.str("value"));
    let name = headers::name(cx, header, "key")?;
    match value.as_literal() {
        Some(value) if !value.bytes().any(|byte| byte == 0x7f || (byte < 0x20 && byte != b'\t')) => {
            Some((name, value.to_owned()))
        }
        Some(_) => {
            cx.error(header, "value", "invalid-header-value", "a header value holds no control characters");
            None
        }
        None => {
            cx.refuse_value(
                header,
                "value",
                "metadata with the values of a request, where no request stands behind the call",
            );
            None
        }
    }
}
