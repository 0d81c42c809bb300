//! Metadata: values by namespace, for filters and logs (`envoy.config.core.v3.Metadata`).

use std::sync::Arc;

use crate::{MetadataKey, Value};

/// Namespaces, each with a map, and those with a message of some type. Few, so they are searched in order.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Metadata {
    maps: Vec<(String, Value)>,
    typed: Vec<(String, Packed)>,
}

/// A message that is handed on as it is (`google.protobuf.Any`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packed {
    /// The URL of its type.
    pub kind: Arc<str>,
    /// As on the wire.
    pub bytes: Arc<[u8]>,
}

/// A piece of what a message says, for whoever does not know its type.
#[derive(Debug, Clone, PartialEq)]
pub enum Part {
    Bool(bool),
    /// Any number, and that of an enumeration's value.
    Number(f64),
    /// Text or bytes.
    Bytes(Vec<u8>),
    /// So many values follow.
    List(usize),
    /// So many pairs follow, each a key and a value: the fields of a message that are set, or the entries of a map.
    Map(usize),
}

/// What a message says, from front to back. `None` when its type is not known, or the bytes are none of that type.
pub type Unpack = fn(&Packed) -> Option<Vec<Part>>;

impl Metadata {
    pub const NONE: Metadata = Metadata { maps: Vec::new(), typed: Vec::new() };

    pub fn is_empty(&self) -> bool {
        self.maps.is_empty() && self.typed.is_empty()
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.maps.clear();
        self.typed.clear();
    }

    /// The message under a namespace. It has nothing to do with the map under the same one.
    pub fn typed(&self, namespace: &str) -> Option<&Packed> {
        self.typed.iter().find(|(known, _)| known == namespace).map(|(_, message)| message)
    }

    /// Puts a message under a namespace, in the place of any that is there.
    pub fn set_typed(&mut self, namespace: &str, message: Packed) {
        match self.typed.iter_mut().find(|(known, _)| known == namespace) {
            Some((_, old)) => *old = message,
            None => self.typed.push((namespace.to_owned(), message)),
        }
    }

    /// Every namespace with a message.
    pub fn iter_typed(&self) -> impl Iterator<Item = (&str, &Packed)> {
        self.typed.iter().map(|(name, message)| (name.as_str(), message))
    }

    /// Everything under a namespace: a map.
    pub fn namespace(&self, name: &str) -> Option<&Value> {
        self.maps.iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    /// One value of a namespace.
    pub fn get(&self, namespace: &str, key: &str) -> Option<&Value> {
        match self.namespace(namespace)? {
            Value::Map(entries) => entries.iter().find(|(known, _)| known == key).map(|(_, value)| value),
            _ => None,
        }
    }

    /// The value at a place, however far down.
    pub fn find(&self, place: &MetadataKey) -> Option<&Value> {
        let mut value = self.namespace(&place.namespace)?;
        for key in &place.path {
            let Value::Map(entries) = value else { return None };
            value = entries.iter().find(|(known, _)| known == key).map(|(_, value)| value)?;
        }
        Some(value)
    }

    /// Sets the value at a place; what is no map on the way there becomes one.
    pub fn set_at(&mut self, place: &MetadataKey, value: Value) {
        let Some((first, rest)) = place.path.split_first() else { return };
        let known = self.get(&place.namespace, first);
        let value = within(known, rest, value);
        self.set(&place.namespace, first, value);
    }

    /// Sets one value of a namespace; the others stay.
    pub fn set(&mut self, namespace: &str, key: &str, value: Value) {
        let entries = match self.maps.iter_mut().find(|(known, _)| known == namespace) {
            Some((_, Value::Map(entries))) => entries,
            Some((_, other)) => {
                *other = Value::Map(vec![(key.to_owned(), value)]);
                return;
            }
            None => {
                self.maps.push((namespace.to_owned(), Value::Map(vec![(key.to_owned(), value)])));
                return;
            }
        };
        match entries.iter_mut().find(|(known, _)| known == key) {
            Some((_, old)) => *old = value,
            None => entries.push((key.to_owned(), value)),
        }
    }

    /// Sets values of a namespace, which is there from now on even when there are none.
    pub fn merge(&mut self, namespace: &str, values: &[(String, Value)]) {
        if self.namespace(namespace).is_none() {
            self.maps.push((namespace.to_owned(), Value::Map(Vec::new())));
        }
        for (key, value) in values {
            self.set(namespace, key, value.clone());
        }
    }

    /// Every namespace with its map.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.maps.iter().map(|(name, value)| (name.as_str(), value))
    }
}

/// `old` with a value where the path leads.
fn within(old: Option<&Value>, path: &[String], value: Value) -> Value {
    let Some((first, rest)) = path.split_first() else { return value };
    let mut entries = match old {
        Some(Value::Map(entries)) => entries.clone(),
        _ => Vec::new(),
    };
    let known = entries.iter().position(|(known, _)| known == first);
    let value = within(known.and_then(|at| entries.get(at)).map(|(_, value)| value), rest, value);
    match known.and_then(|at| entries.get_mut(at)) {
        Some((_, old)) => *old = value,
        None => entries.push((first.clone(), value)),
    }
    Value::Map(entries)
}

impl FromIterator<(String, Value)> for Metadata {
    fn from_iter<I: IntoIterator<Item = (String, Value)>>(namespaces: I) -> Metadata {
        Metadata { maps: namespaces.into_iter().collect(), typed: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn setting_one_value_keeps_the_others() {
        let mut metadata = Metadata::default();
        metadata.set("a", "x", Value::Integer(1));
        metadata.set("a", "y", Value::Integer(2));
        metadata.set("b", "x", Value::Bool(true));
        metadata.set("a", "x", Value::Null);
        assert_eq!(metadata.get("a", "x"), Some(&Value::Null));
        assert_eq!(metadata.get("a", "y"), Some(&Value::Integer(2)));
        assert_eq!(metadata.get("b", "y"), None);
        let place = |path: &[&str]| MetadataKey {
            namespace: "d".into(),
            path: path.iter().map(|key| (*key).to_owned()).collect(),
        };
        metadata.set_at(&place(&["p", "q"]), Value::Integer(1));
        metadata.set_at(&place(&["p", "r"]), Value::Integer(2));
        assert_eq!(metadata.find(&place(&["p", "q"])), Some(&Value::Integer(1)));
        assert_eq!(metadata.find(&place(&["p", "r"])), Some(&Value::Integer(2)));
        assert_eq!(metadata.find(&place(&["p", "s"])), None);
        metadata.set_at(&place(&["p"]), Value::Null);
        assert_eq!(metadata.find(&place(&["p", "q"])), None);
        assert!(metadata.typed("b").is_none());
        let message = |bytes: &[u8]| Packed { kind: "x/y".into(), bytes: bytes.into() };
        metadata.set_typed("b", message(b"1"));
        metadata.set_typed("b", message(b"2"));
        assert_eq!((metadata.typed("b"), metadata.iter_typed().count()), (Some(&message(b"2")), 1));
        metadata.merge("c", &[]);
        metadata.merge("b", &[("y".into(), Value::Integer(1)), ("x".into(), Value::Null)]);
        assert_eq!(metadata.namespace("c"), Some(&Value::Map(Vec::new())));
        assert_eq!((metadata.get("b", "x"), metadata.get("b", "y")), (Some(&Value::Null), Some(&Value::Integer(1))));
    }
}
