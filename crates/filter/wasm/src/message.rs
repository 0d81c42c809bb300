//! Metadata and the node as messages of Envoy's: what modules get that ask for the whole of them.

use std::collections::BTreeMap;

use postrider_model::{Metadata, Node, Value};
use prost::Message;
use prost_types::value::Kind;

/// `envoy.config.core.v3.Metadata`
#[derive(Clone, PartialEq, Message)]
struct MetadataMessage {
    #[prost(btree_map = "string, message", tag = "1")]
    filter_metadata: BTreeMap<String, prost_types::Struct>,
}

/// `envoy.config.core.v3.Node`, as far as it is known here.
#[derive(Clone, PartialEq, Message)]
struct NodeMessage {
    #[prost(string, tag = "1")]
    id: String,
    #[prost(string, tag = "2")]
    cluster: String,
    #[prost(message, optional, tag = "3")]
    metadata: Option<prost_types::Struct>,
    #[prost(message, optional, tag = "4")]
    locality: Option<Locality>,
}

#[derive(Clone, PartialEq, Message)]
struct Locality {
    #[prost(string, tag = "1")]
    region: String,
    #[prost(string, tag = "2")]
    zone: String,
    #[prost(string, tag = "3")]
    sub_zone: String,
}

pub(crate) fn metadata(metadata: &Metadata, out: &mut Vec<u8>) {
    let all = metadata.iter().map(|(name, value)| (name.to_owned(), object(value)));
    append(&MetadataMessage { filter_metadata: all.collect() }, out);
}

pub(crate) fn node(node: &Node, out: &mut Vec<u8>) {
    let Node { id, cluster, region, zone, sub_zone, metadata } = node.clone();
    let locality = Locality { region, zone, sub_zone };
    let metadata = matches!(metadata, Value::Map(_)).then(|| object(&metadata));
    let locality = Some(locality).filter(|locality| *locality != Locality::default());
    append(&NodeMessage { id, cluster, metadata, locality }, out);
}

pub(crate) fn locality(place: postrider_model::Locality, out: &mut Vec<u8>) {
    let postrider_model::Locality { region, zone, sub_zone, .. } = place;
    append(&Locality { region, zone, sub_zone }, out);
}

fn append(message: &impl Message, out: &mut Vec<u8>) {
    // A vector takes as much as there is.
    let _ = message.encode(out);
}

fn object(value: &Value) -> prost_types::Struct {
    let entries = match value {
        Value::Map(entries) => entries.as_slice(),
        _ => &[],
    };
    prost_types::Struct { fields: entries.iter().map(|(key, value)| (key.clone(), plain(value))).collect() }
}

fn plain(value: &Value) -> prost_types::Value {
    let kind = match value {
        Value::Null => Kind::NullValue(0),
        Value::Bool(value) => Kind::BoolValue(*value),
        Value::Number(number) => Kind::NumberValue(*number),
        Value::Integer(number) => Kind::NumberValue(*number as f64),
        Value::String(text) => Kind::StringValue(text.clone()),
        Value::List(items) => Kind::ListValue(prost_types::ListValue { values: items.iter().map(plain).collect() }),
        Value::Map(_) => Kind::StructValue(object(value)),
    };
    prost_types::Value { kind: Some(kind) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_as_envoy_writes_them() {
        let mut known = Metadata::NONE;
        known.set("rm", "k", Value::String("v".into()));
        let mut out = Vec::new();
        metadata(&known, &mut out);
        assert_eq!(out, b"\x0a\x10\x0a\x02rm\x12\x0a\x0a\x08\x0a\x01k\x12\x03\x1a\x01v");
        let us = Node {
            id: "nodeid".into(),
            cluster: "nodecluster".into(),
            region: "r".into(),
            zone: "z".into(),
            sub_zone: String::new(),
            metadata: Value::Map(vec![("n".into(), Value::Integer(1)), ("a".into(), Value::String("b".into()))]),
        };
        out.clear();
        node(&us, &mut out);
        let expected = b"\x0a\x06nodeid\x12\x0bnodecluster\x1a\x1a\x0a\x08\x0a\x01a\x12\x03\x1a\x01b\x0a\x0e\x0a\x01n\
                         \x12\x09\x11\x00\x00\x00\x00\x00\x00\xf0?\"\x06\x0a\x01r\x12\x01z";
        assert_eq!(out, expected);
    }
}
