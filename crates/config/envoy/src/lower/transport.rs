//! The transport of a filter chain or a cluster (`transport_socket`): plain or TLS, with the PROXY protocol in front or not.

use postrider_model::{DownstreamTls, ProxyHeader, ProxyVersion, TlvChoice, UpstreamTls};

use super::context::Lowering;
use super::upstream::RequestNames;
use super::{proxy_header, tls};
use crate::reader::Reader;

const RAW_BUFFER: &str = "envoy.extensions.transport_sockets.raw_buffer.v3.RawBuffer";
const DOWNSTREAM: &str = "envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext";
const UPSTREAM: &str = "envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext";

const UPSTREAM_PROXY: &str = "envoy.extensions.transport_sockets.proxy_protocol.v3.ProxyProtocolUpstreamTransport";

/// How connections of a cluster begin.
pub(super) struct UpstreamTransport {
    pub proxy_header: Option<ProxyHeader>,
    /// `None`: plain.
    pub tls: Option<UpstreamTls>,
}

/// Outer `None`: refused. Inner `None`: plain.
pub(super) fn of_chain(cx: &mut Lowering<'_>, chain: &Reader<'_>, http1_only: bool) -> Option<Option<DownstreamTls>> {
    // Read even when the transport is refused: it is no second fault.
    chain.has("transport_socket_connect_timeout");
    match socket(cx, chain, DOWNSTREAM)? {
        Some(context) => tls::downstream(cx, chain, &context, http1_only).map(Some),
        None => {
            chain.ignore("transport_socket_connect_timeout", "a plain connection has no handshake");
            Some(None)
        }
    }
}

/// `None`: refused.
pub(super) fn of_cluster(
    cx: &mut Lowering<'_>,
    cluster: &Reader<'_>,
    names: &RequestNames<'_>,
) -> Option<UpstreamTransport> {
    for field in ["transport_socket_matches", "transport_socket_matcher"] {
        if cluster.has(field) {
            cx.refuse(cluster, field, "transport sockets by the metadata of endpoints");
        }
    }
    let outer = proxied(cluster);
    let header = outer.as_ref().map(|outer| {
        for field in ["allow_unspecified_address", "tlv_as_pool_key"] {
            if outer.has(field) {
                cx.refuse(outer, field, "a setting of the PROXY protocol that Envoy hides");
            }
        }
        match outer.message("config") {
            Some(config) => proxy_header::header(cx, &config),
            None => ProxyHeader { version: ProxyVersion::V1, tlvs: Vec::new(), passed: TlvChoice::None },
        }
    });
    let tls = match socket(cx, outer.as_ref().unwrap_or(cluster), UPSTREAM)? {
        Some(context) => Some(tls::upstream(cx, &context, names)?),
        None => {
            if let Some(names) = &names.at {
                names.ignore("auto_sni", "connections to this cluster are not encrypted");
                names.ignore("auto_san_validation", "connections to this cluster are not encrypted");
            }
            None
        }
    };
    Some(UpstreamTransport { proxy_header: header, tls })
}

/// The transport that puts the PROXY protocol in front of another one, if that is what the cluster has.
fn proxied<'m>(cluster: &Reader<'m>) -> Option<Reader<'m>> {
    let socket = cluster.message("transport_socket")?;
    let any = socket.any("typed_config").filter(|any| any.type_name == UPSTREAM_PROXY)?;
    socket.str("name");
    any.reader
}

/// The TLS context `wanted`; outer `None` after a refusal, inner `None` for a plain transport.
fn socket<'m>(cx: &mut Lowering<'_>, at: &Reader<'m>, wanted: &str) -> Option<Option<Reader<'m>>> {
    let Some(socket) = at.message("transport_socket") else { return Some(None) };
    socket.str("name");
    let Some(any) = socket.any("typed_config") else {
        cx.missing(&socket, "the transport socket has no `typed_config`", "a `typed_config` with its `@type`");
        return None;
    };
    match any.type_name {
        RAW_BUFFER => Some(None),
        name if name == wanted => any.reader.map(Some),
        DOWNSTREAM => {
            refuse_side(cx, &socket, "`DownstreamTlsContext` is for filter chains of listeners", UPSTREAM);
            None
        }
        UPSTREAM => {
            refuse_side(cx, &socket, "`UpstreamTlsContext` is for clusters", DOWNSTREAM);
            None
        }
        _ => {
            cx.refuse_extension(&socket, "typed_config", &any);
            None
        }
    }
}

fn refuse_side(cx: &mut Lowering<'_>, socket: &Reader<'_>, text: &str, wanted: &str) {
    socket.whole("typed_config");
    let span = socket.any("typed_config").and_then(|any| any.span).or(socket.span_of("typed_config"));
    let diagnostic = postrider_config_core::Diagnostic::error("wrong-side", text)
        .at(span)
        .path(socket.path_of("typed_config"))
        .expected(format!("`{}{wanted}`", crate::message::TYPE_URL_PREFIX));
    cx.push(diagnostic);
}
