//! Nodes of the Envoy tree. Each gets the place of what it was made from in the short document.

use postrider_config_core::Span;
use postrider_config_envoy::tree::{Node, NodeKind, Pair, Scalar};

/// Where descriptors' full names live in `@type`.
const TYPE_PREFIX: &str = "type.googleapis.com/";

/// A key with its value; the key stands where the value does.
pub fn pair(key: &str, value: Node) -> Pair {
    Pair { key: key.to_owned(), key_span: value.span, value }
}

pub fn map(span: Span, pairs: Vec<Pair>) -> Node {
    Node { span, kind: NodeKind::Map(pairs) }
}

pub fn list(span: Span, items: Vec<Node>) -> Node {
    Node { span, kind: NodeKind::List(items) }
}

pub fn text(span: Span, text: impl Into<String>) -> Node {
    Node { span, kind: NodeKind::Scalar(Scalar { text: text.into(), plain: false }) }
}

/// A number, a boolean or an enum's name.
pub fn plain(span: Span, text: impl ToString) -> Node {
    Node { span, kind: NodeKind::Scalar(Scalar { text: text.to_string(), plain: true }) }
}

/// `{name, typed_config: {"@type": kind, …}}`.
pub fn extension(span: Span, name: &str, kind: &str, pairs: Vec<Pair>) -> Node {
    let mut config = vec![pair("@type", text(span, format!("{TYPE_PREFIX}{kind}")))];
    config.extend(pairs);
    map(span, vec![pair("name", text(span, name)), pair("typed_config", map(span, config))])
}

/// `{socket_address: {address, port_value}}`.
pub fn socket_address(span: Span, host: &str, port: u16) -> Node {
    let socket = vec![pair("address", text(span, host)), pair("port_value", plain(span, port))];
    map(span, vec![pair("socket_address", map(span, socket))])
}
