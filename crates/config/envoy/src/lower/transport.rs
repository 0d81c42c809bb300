//! The transport of a filter chain or a cluster (`transport_socket`): plain or TLS, with the PROXY protocol in front or not.

use std::sync::Arc;

use postrider_model::{
    DownstreamTls, LabelledTransport, Labels, ProxyHeader, ProxyVersion, TlvChoice, UpstreamTls, Value,
};

use super::context::Lowering;
use super::upstream::RequestNames;
use super::{proxy_header, tls, value};
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

/// The cluster's own transport, and those for some of its endpoints; `None`: one of them was refused.
pub(super) fn of_cluster(
    cx: &mut Lowering<'_>,
    cluster: &Reader<'_>,
    names: &RequestNames<'_>,
) -> Option<(UpstreamTransport, Vec<LabelledTransport>)> {
    if cluster.has("transport_socket_matcher") {
        cx.refuse(cluster, "transport_socket_matcher", "transport sockets by a match tree");
    }
    let own = upstream(cx, cluster, names);
    let by_labels = cluster.list("transport_socket_matches");
    let by_labels: Vec<_> = by_labels.iter().map(|at| labelled(cx, at, names)).collect();
    let by_labels: Option<Vec<LabelledTransport>> = by_labels.into_iter().collect();
    let (own, by_labels) = (own?, by_labels?);
    let is_encrypted = own.tls.is_some() || by_labels.iter().any(|transport| transport.tls.is_some());
    if let Some(names) = names.at.as_ref().filter(|_| !is_encrypted) {
        names.ignore("auto_sni", "connections to this cluster are not encrypted");
        names.ignore("auto_san_validation", "connections to this cluster are not encrypted");
    }
    Some((own, by_labels))
}

/// An entry of `transport_socket_matches`.
fn labelled(cx: &mut Lowering<'_>, at: &Reader<'_>, names: &RequestNames<'_>) -> Option<LabelledTransport> {
    let labels = match at.as_message().message("match").map(value::value) {
        Some(Value::Map(entries)) => Labels::new(entries),
        _ => Labels::default(),
    };
    at.whole("match");
    let name = at.str("name").to_owned();
    if !at.has("transport_socket") {
        cx.missing(at, "the entry has no transport socket", "`transport_socket`, which may be a `RawBuffer`");
        return None;
    }
    let UpstreamTransport { tls, proxy_header } = upstream(cx, at, names)?;
    Some(LabelledTransport { name, labels, tls: tls.map(Arc::new), proxy_header: proxy_header.map(Box::new) })
}

/// The `transport_socket` of a cluster or of an entry; `None`: refused.
fn upstream(cx: &mut Lowering<'_>, at: &Reader<'_>, names: &RequestNames<'_>) -> Option<UpstreamTransport> {
    let outer = proxied(at);
    let proxy_header = outer.as_ref().map(|outer| {
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
    let tls = match socket(cx, outer.as_ref().unwrap_or(at), UPSTREAM)? {
        Some(context) => Some(tls::upstream(cx, &context, names)?),
        None => None,
    };
    Some(UpstreamTransport { proxy_header, tls })
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
