//! Values as plugins read them: looked up by a path of words, and written as bytes. Numbers are eight bytes, the lowest
//! first, times and durations nanoseconds, maps and lists pairs, each closed by a zero, behind their number and lengths.

use std::borrow::Cow;
use std::sync::Arc;

use postrider_model::cel::Attribute;
use postrider_model::{Expression, Metadata, Value};

use super::evaluate::evaluate;
use super::facts::{Facts, Headers};
use super::value::Data;

/// A path that leads to something known of a stream: an attribute, and words that lead on inside it.
#[derive(Debug, Clone, PartialEq)]
pub struct Path {
    root: Attribute,
    words: Vec<String>,
}

/// Words that Envoy's plugins may use beside the names of attributes.
const SHORT: &[(&str, Attribute)] = &[
    ("cluster_name", Attribute::ClusterName),
    ("route_name", Attribute::RouteName),
    ("connection_id", Attribute::ConnectionId),
    ("listener_direction", Attribute::ListenerDirection),
];

/// The same for metadata, which lies below `filter_metadata`.
const SHORT_METADATA: &[(&str, Attribute)] = &[
    ("route_metadata", Attribute::RouteMetadata),
    ("cluster_metadata", Attribute::ClusterMetadata),
    ("upstream_host_metadata", Attribute::UpstreamHostMetadata),
    ("listener_metadata", Attribute::ListenerMetadata),
];

/// The most words that the name of an attribute has.
const LONGEST: usize = 4;

impl Path {
    /// `None` where no attribute stands at its beginning.
    pub fn parse(words: &[&str]) -> Option<Path> {
        let of = |root, rest: &[&str]| Path { root, words: rest.iter().map(|word| (*word).to_owned()).collect() };
        let (first, rest) = words.split_first()?;
        if let Some((_, root)) = SHORT.iter().find(|(name, _)| name == first) {
            return Some(of(*root, rest));
        }
        if let Some((_, root)) = SHORT_METADATA.iter().find(|(name, _)| name == first) {
            return match rest {
                ["filter_metadata", rest @ ..] => Some(of(*root, rest)),
                _ => None,
            };
        }
        (1..=words.len().min(LONGEST)).rev().find_map(|count| {
            let (name, rest) = words.split_at_checked(count)?;
            Attribute::named(&name.join(".")).filter(|root| !root.is_message()).map(|root| of(root, rest))
        })
    }

    /// The metadata that it leads to, where it leads to a whole one.
    pub fn metadata<'a>(&self, facts: &Facts<'a>) -> Option<Cow<'a, Metadata>> {
        if !self.words.is_empty() {
            return None;
        }
        if let Some(around) = facts.metadata_around(self.root) {
            return Some(Cow::Owned(Arc::unwrap_or_clone(around)));
        }
        match facts.attribute(self.root) {
            Some(Data::Metadata(metadata)) => Some(Cow::Borrowed(metadata)),
            _ => None,
        }
    }

    /// Appends its value; `false` when there is none now.
    pub fn write(&self, facts: &Facts<'_>, out: &mut Vec<u8>) -> bool {
        let Some(mut value) = facts.attribute(self.root) else { return false };
        for word in &self.words {
            value = match value.entry(word, facts) {
                Ok(Some(value)) => value,
                Ok(None) => return false,
                // A list knows its items by their numbers.
                Err(_) => match word.parse().ok().and_then(|index| value.at(&Data::Int(index), facts).ok()) {
                    Some(value) => value,
                    None => return false,
                },
            };
        }
        write(&value, facts, out)
    }
}

/// Appends the value of an expression; `false` when it has none.
pub fn write_result(expression: &Expression, facts: &Facts<'_>, out: &mut Vec<u8>) -> bool {
    match evaluate(&expression.root, expression.allowed, facts) {
        Ok(value) => write(&value, facts, out),
        Err(_) => false,
    }
}

/// Appends a plain value; `false` for one that has no bytes.
pub fn write_value(value: &Value, facts: Option<&Facts<'_>>, out: &mut Vec<u8>) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(value) => {
            out.push(u8::from(*value));
            true
        }
        Value::Number(number) => {
            out.extend_from_slice(&number.to_le_bytes());
            true
        }
        // Metadata has numbers of one kind.
        Value::Integer(number) => {
            out.extend_from_slice(&(*number as f64).to_le_bytes());
            true
        }
        Value::String(text) => {
            out.extend_from_slice(text.as_bytes());
            true
        }
        Value::List(items) => write_pairs(items.iter().map(|item| (bytes_of(item, facts), Vec::new())), out),
        Value::Map(entries) => {
            write_pairs(entries.iter().map(|(key, value)| (key.as_bytes().to_vec(), bytes_of(value, facts))), out)
        }
    }
}

fn bytes_of(value: &Value, facts: Option<&Facts<'_>>) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_value(value, facts, &mut bytes);
    bytes
}

fn write(value: &Data<'_>, facts: &Facts<'_>, out: &mut Vec<u8>) -> bool {
    let inner = |value: &Data<'_>| {
        let mut bytes = Vec::new();
        write(value, facts, &mut bytes);
        bytes
    };
    match value {
        Data::Null | Data::Type(_) | Data::Message(..) => return false,
        Data::Bool(value) => out.push(u8::from(*value)),
        Data::Int(number) => out.extend_from_slice(&number.to_le_bytes()),
        Data::Uint(number) => out.extend_from_slice(&number.to_le_bytes()),
        Data::Double(number) => out.extend_from_slice(&number.to_le_bytes()),
        Data::Text(text) => out.extend_from_slice(text.as_bytes()),
        Data::Bytes(bytes) => out.extend_from_slice(bytes),
        Data::Duration(nanos) | Data::Time(nanos) => {
            let nanos = i64::try_from(*nanos).unwrap_or(i64::MAX);
            out.extend_from_slice(&nanos.to_le_bytes());
        }
        Data::Noted(value) => return write_value(value, Some(facts), out),
        Data::List(items) => return write_pairs(items.iter().map(|item| (inner(item), Vec::new())), out),
        Data::Map(entries) => return write_pairs(entries.iter().map(|(key, held)| (inner(key), inner(held))), out),
        Data::Metadata(metadata) => return write_metadata(metadata, facts, out),
        Data::FilterState => {
            let states = facts.info.filter_state.iter();
            return write_pairs(
                states.map(|(key, value)| (key.clone().into_bytes(), bytes_of(value, Some(facts)))),
                out,
            );
        }
        Data::Headers(headers) => {
            let mut lines: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
            let (parts, fields): (&[&str], _) = match headers {
                Headers::None => (&[], None),
                Headers::Request(head) => (&[":authority", ":path", ":method", ":scheme"], Some(&head.fields)),
                Headers::Response(head) => (&[":status"], Some(&head.fields)),
            };
            let part = |name: &&str| headers.line(name).map(|value| (name.as_bytes().to_vec(), inner(&value)));
            lines.extend(parts.iter().filter_map(part));
            let is_host = |name: &[u8]| name == b"host" && matches!(headers, Headers::Request(_));
            let fields = fields.into_iter().flat_map(postrider_http::Fields::iter).filter(|field| !is_host(field.name));
            lines.extend(fields.map(|field| (field.name.to_vec(), field.value.to_vec())));
            return write_pairs(lines.into_iter(), out);
        }
        Data::Trailers(fields) => {
            let fields = fields.iter().flat_map(|fields| fields.iter());
            return write_pairs(fields.map(|field| (field.name.to_vec(), field.value.to_vec())), out);
        }
    }
    true
}

fn write_metadata(metadata: &Metadata, facts: &Facts<'_>, out: &mut Vec<u8>) -> bool {
    write_pairs(metadata.iter().map(|(name, value)| (name.as_bytes().to_vec(), bytes_of(value, Some(facts)))), out)
}

fn write_pairs(pairs: impl Iterator<Item = (Vec<u8>, Vec<u8>)>, out: &mut Vec<u8>) -> bool {
    let pairs: Vec<(Vec<u8>, Vec<u8>)> = pairs.collect();
    let number = |length: usize| (length as u32).to_le_bytes();
    out.extend_from_slice(&number(pairs.len()));
    for (name, value) in &pairs {
        out.extend_from_slice(&number(name.len()));
        out.extend_from_slice(&number(value.len()));
    }
    for part in pairs.iter().flat_map(|(name, value)| [name, value]) {
        out.extend_from_slice(part);
        out.push(0);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::FakeStream;

    fn read(stream: &mut FakeStream, path: &str) -> Option<Vec<u8>> {
        let words: Vec<&str> = path.split('/').collect();
        let path = Path::parse(&words)?;
        let mut out = Vec::new();
        stream.with(|stream| path.write(&Facts::of_answer(stream), &mut out)).then_some(out)
    }

    #[test]
    fn paths_lead_to_values_as_bytes() {
        let mut stream = FakeStream::new("GET", "/p?q=1", &[("x-a", "1"), ("x-a", "2")]);
        stream.info.status = 404;
        stream.info.connection_id = 7;
        stream.info.metadata.set("ns", "list", Value::List(vec![Value::String("item".into()), Value::Integer(2)]));
        let text = |text: &str| Some(text.as_bytes().to_vec());
        assert_eq!(read(&mut stream, "request/path"), text("/p?q=1"));
        assert_eq!(read(&mut stream, "request/headers/x-a"), text("1,2"));
        assert_eq!(read(&mut stream, "response/code"), Some(404_i64.to_le_bytes().to_vec()));
        assert_eq!(read(&mut stream, "connection_id"), Some(7_u64.to_le_bytes().to_vec()));
        assert_eq!(read(&mut stream, "connection/mtls"), Some(vec![0]));
        assert_eq!(read(&mut stream, "metadata/filter_metadata/ns/list/0"), text("item"));
        assert_eq!(read(&mut stream, "metadata/filter_metadata/ns/list/1"), Some(2_f64.to_le_bytes().to_vec()));
        for none in
            ["request", "nothing", "request/headers/none", "request/path/x", "metadata/filter_metadata/ns/list/9"]
        {
            assert_eq!(read(&mut stream, none), None, "{none}");
        }
        let list = read(&mut stream, "metadata/filter_metadata/ns").unwrap();
        assert_eq!(list.get(..4), Some(&1_u32.to_le_bytes()[..]));
        let headers = read(&mut stream, "request/headers").unwrap();
        assert_eq!(headers.get(..4), Some(&6_u32.to_le_bytes()[..]), "four parts of the line, two lines");
    }
}
