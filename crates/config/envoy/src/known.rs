//! What Envoy knows and Postrider lacks: the words for it.
//!
//! An extension that Envoy 1.40 has, by its type, is "known, not supported by Postrider"; never "unknown type".

use postrider_config_core::Severity;

use crate::reader::{AnyReader, Reader};
use postrider_config_core::Diagnostic;

/// The version that messages about missing support name.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The finding for an extension whose type Envoy knows and no factory of ours handles. `parent` holds the field
/// `field` that carries it. The loader has already refused a type that nobody knows.
pub fn unsupported_extension(parent: &Reader<'_>, field: &str, any: &AnyReader<'_>) -> Diagnostic {
    let text = format!("`{}` is a known Envoy extension, not supported by Postrider {VERSION}", any.type_name);
    parent
        .diagnostic_at(field, Severity::Error, "unsupported-extension", text)
        .at(any.span.or_else(|| parent.span_of(field)))
}
