//! gRPC services that the proxy calls of itself, with no request behind the call (`envoy.config.core.v3.GrpcService`).

use std::sync::Arc;

use postrider_config_core::Diagnostic;
use postrider_model::{Command, Format, GrpcTarget, Piece, Reading, RetryPolicy, call_retry_policy, check_api_version};

use super::context::Lowering;
use super::locate::locate;
use super::{callees, headers, value};
use crate::reader::Reader;

/// All but the `timeout`, which means something else to each caller.
pub(super) fn target(cx: &mut Lowering<'_>, grpc: &Reader<'_>) -> Option<GrpcTarget> {
    callees::note(cx, grpc.as_message(), grpc.path());
    let retries = retries(cx, grpc, "retry_policy");
    let metadata = grpc.list("initial_metadata").iter().filter_map(|header| metadata(cx, header)).collect();
    let envoy = grpc.message("envoy_grpc")?;
    envoy.ignore(
        "retry_policy",
        "it is about streams of a control plane, as in Envoy; that of the service itself holds",
    );
    envoy.ignore("skip_envoy_headers", "what it turns off is not sent here in the first place");
    let max_answer = envoy.u32_wrapper("max_receive_message_length").filter(|most| *most > 0);
    Some(GrpcTarget {
        cluster: envoy.str("cluster_name").into(),
        authority: authority(cx, &envoy),
        metadata,
        max_answer: max_answer.map(|most| most as usize),
        retries,
    })
}

/// With which version of its API the service is called.
pub(super) fn version(cx: &mut Lowering<'_>, at: &Reader<'_>) {
    if let Err(text) = check_api_version(Some(&at.enum_name("transport_api_version"))) {
        cx.error(at, "transport_api_version", "unsupported-value", text);
    }
}

/// How often a call of the proxy itself is tried.
pub(super) fn retries(cx: &mut Lowering<'_>, at: &Reader<'_>, field: &str) -> Option<Arc<RetryPolicy>> {
    let written = at.message(field)?;
    written.read_whole();
    match Reading::all(&value::value(written.as_message()), call_retry_policy) {
        Ok(policy) => Some(Arc::new(policy)),
        Err(errors) => {
            for error in errors {
                let span = locate(written.as_message(), &error.path).or(at.span_of(field));
                let path = format!("{}.{}", at.path_of(field), error.path);
                cx.push(Diagnostic::error("invalid-value", error.message).at(span).path(path));
            }
            None
        }
    }
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
    let what = "metadata with the values of a request, where no request stands behind the call";
    Some((name, fixed(cx, header, &value, what)?))
}

/// The value of a field that calls carry; `what` it would be if it took a request.
pub(super) fn fixed(cx: &mut Lowering<'_>, header: &Reader<'_>, value: &Format, what: &str) -> Option<String> {
    match of_process(value) {
        Some(value) if !value.bytes().any(|byte| byte == 0x7f || (byte < 0x20 && byte != b'\t')) => Some(value),
        Some(_) => {
            cx.error(header, "value", "invalid-header-value", "a header value holds no control characters");
            None
        }
        None => {
            cx.refuse_value(header, "value", what);
            None
        }
    }
}

/// The text of a format whose commands are about the environment alone, which stays as it is; `None` where others are in it.
fn of_process(format: &Format) -> Option<String> {
    let texts = format.pieces.iter().map(|piece| match piece {
        Piece::Text(text) => Some(text.clone()),
        Piece::Command { command: Command::Environment(name), max_length: None } => {
            Some(std::env::var(name).unwrap_or_else(|_| "-".to_owned()))
        }
        Piece::Command { .. } => None,
    });
    texts.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_is_known_without_a_request() {
        let of = |text: &str| of_process(&Format::parse(text).unwrap());
        // Cargo sets it for tests.
        let name = std::env::var("CARGO_PKG_NAME").unwrap();
        assert_eq!(of("Bearer %ENVIRONMENT(CARGO_PKG_NAME)%."), Some(format!("Bearer {name}.")));
        assert_eq!(of("%ENVIRONMENT(NOT_THERE_AT_ALL)%"), Some("-".to_owned()));
        assert_eq!((of(""), of("a")), (Some(String::new()), Some("a".to_owned())));
        assert_eq!((of("%PROTOCOL%"), of("%ENVIRONMENT(CARGO_PKG_NAME):2%")), (None, None));
    }
}
