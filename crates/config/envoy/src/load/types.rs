//! Which message types a file mentions: what the descriptor pool must hold besides the root's imports.

use super::names;
use crate::message::type_name;
use crate::tree::{Node, NodeKind};

/// The prefix by which type URLs are found in binary protobuf.
const PREFIX: &[u8] = b"type.googleapis.com/";

/// The types behind `@type` and `type_url`, and those that a v2 extension name stands for.
pub fn of_tree(root: &Node) -> Vec<String> {
    let mut types = Vec::new();
    collect(root, &mut types);
    types.sort();
    types.dedup();
    types
}

/// The types behind every type URL in the bytes, nested ones included.
pub fn of_bytes(bytes: &[u8]) -> Vec<String> {
    let mut types = Vec::new();
    let mut rest = bytes;
    while let Some(at) = rest.windows(PREFIX.len()).position(|window| window == PREFIX) {
        rest = rest.get(at + PREFIX.len()..).unwrap_or(&[]);
        let name = rest.iter().take_while(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_'));
        types.push(name.map(|b| char::from(*b)).collect());
    }
    types.sort();
    types.dedup();
    types
}

fn collect(node: &Node, types: &mut Vec<String>) {
    match &node.kind {
        NodeKind::List(items) => items.iter().for_each(|item| collect(item, types)),
        NodeKind::Map(pairs) => {
            for pair in pairs {
                match (pair.key.as_str(), pair.value.text()) {
                    ("@type" | "type_url" | "typeUrl", Some(url)) => types.push(type_name(url).to_owned()),
                    ("name", Some(name)) => types.extend(names::extension(name).iter().map(|e| e.type_name.to_owned())),
                    _ => collect(&pair.value, types),
                }
            }
        }
        _ => {}
    }
}
