//! Where Envoy's default is unsafe: an absent field means the safe value, a written one what it means in Envoy.

use postrider_model::{EscapedSlashes, PathPolicy, Underscores};

use super::context::{Lowering, written};
use crate::reader::Reader;

/// What is done to paths before they are matched and forwarded.
pub(super) fn path(cx: &mut Lowering<'_>, at: &Reader<'_>) -> PathPolicy {
    let normalize = at.bool_wrapper("normalize_path");
    if normalize.is_none() {
        cx.differs(
            at,
            "normalize-path",
            "paths are normalised before they are matched and forwarded; one with a backslash, a broken or overlong \
             escape, or an escaped slash beside a dot segment is refused",
            "normalize_path: false",
        );
    }
    let merge_written = written(at, "merge_slashes");
    if !merge_written {
        cx.differs(at, "merge-slashes", "adjacent slashes of a path are merged", "merge_slashes: false");
    }
    PathPolicy {
        normalize: normalize.unwrap_or(true),
        merge_slashes: at.bool("merge_slashes") || !merge_written,
        escaped_slashes: match at.enum_name("path_with_escaped_slashes_action").as_str() {
            "REJECT_REQUEST" => EscapedSlashes::Reject,
            "UNESCAPE_AND_REDIRECT" => EscapedSlashes::UnescapeAndRedirect,
            "UNESCAPE_AND_FORWARD" => EscapedSlashes::UnescapeAndForward,
            _ => EscapedSlashes::Keep,
        },
        strict: normalize != Some(false) && !written(at, "path_with_escaped_slashes_action"),
    }
}

/// Header names with underscores. `common` is `common_http_protocol_options`.
pub(super) fn underscores(cx: &mut Lowering<'_>, at: &Reader<'_>, common: Option<&Reader<'_>>) -> Underscores {
    const FIELD: &str = "headers_with_underscores_action";
    let Some(common) = common.filter(|common| written(common, FIELD)) else {
        cx.differs(
            at,
            "underscores",
            "header names that differ from a framing, hop-by-hop or forwarding field only by `_` are refused",
            "common_http_protocol_options: {headers_with_underscores_action: ALLOW}",
        );
        return Underscores::RejectLookalikes;
    };
    match common.enum_name(FIELD).as_str() {
        "REJECT_REQUEST" => Underscores::RejectAny,
        "DROP_HEADER" => Underscores::DropAny,
        _ => Underscores::Allow,
    }
}
