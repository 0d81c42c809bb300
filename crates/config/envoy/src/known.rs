//! What Envoy knows and Postrider lacks: the words for it.
//!
//! An extension that Envoy 1.40 has, by its type, is "known, not supported by Postrider"; never "unknown type".

use postrider_config_core::{Diagnostic, Severity};

use crate::reader::{AnyReader, Reader};

/// The version that messages about missing support name.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Packages of Envoy's contrib extensions whose messages are not in the schema.
const CONTRIB_PACKAGES: &[&str] = &[
    "envoy.extensions.compression.qatzip.",
    "envoy.extensions.compression.qatzstd.",
    "envoy.extensions.config.v3alpha.",
    "envoy.extensions.filters.http.checksum.",
    "envoy.extensions.filters.http.dynamo.",
    "envoy.extensions.filters.http.language.",
    "envoy.extensions.filters.http.squash.",
    "envoy.extensions.filters.http.sxg.",
    "envoy.extensions.filters.network.client_ssl_auth.",
    "envoy.extensions.filters.network.generic_proxy.codecs.kafka.",
    "envoy.extensions.filters.network.kafka_broker.",
    "envoy.extensions.filters.network.kafka_mesh.",
    "envoy.extensions.filters.network.mysql_proxy.",
    "envoy.extensions.filters.network.postgres_proxy.",
    "envoy.extensions.filters.network.rocketmq_proxy.",
    "envoy.extensions.filters.network.sip_proxy.",
    "envoy.extensions.matching.input_matchers.hyperscan.",
    "envoy.extensions.network.connection_balance.dlb.",
    "envoy.extensions.private_key_providers.",
    "envoy.extensions.regex_engines.hyperscan.",
    "envoy.extensions.tap_sinks.udp_sink.",
    "envoy.extensions.vcl.",
];

/// Whether a message type belongs to a contrib extension that the schema does not hold.
pub fn is_contrib(type_name: &str) -> bool {
    CONTRIB_PACKAGES.iter().any(|package| type_name.starts_with(package))
}

/// The finding for an extension whose type Envoy knows and no factory of ours handles. `parent` holds the field
/// `field` that carries it. The loader has already refused a type that nobody knows.
pub fn unsupported_extension(parent: &Reader<'_>, field: &str, any: &AnyReader<'_>) -> Diagnostic {
    let text = format!("`{}` is a known Envoy extension, not supported by Postrider {VERSION}", any.type_name);
    parent
        .diagnostic_at(field, Severity::Error, "unsupported-extension", text)
        .at(any.span.or_else(|| parent.span_of(field)))
}
