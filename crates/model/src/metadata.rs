//! Metadata: values by namespace, for filters and logs (`envoy.config.core.v3.Metadata`).

use crate::Value;

/// Namespaces, each with a map. Few, so they are searched in order.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Metadata(Vec<(String, Value)>);

impl Metadata {
    pub const NONE: Metadata = Metadata(Vec::new());

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Everything under a namespace: a map.
    pub fn namespace(&self, name: &str) -> Option<&Value> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    /// One value of a namespace.
    pub fn get(&self, namespace: &str, key: &str) -> Option<&Value> {
        match self.namespace(namespace)? {
            Value::Map(entries) => entries.iter().find(|(known, _)| known == key).map(|(_, value)| value),
            _ => None,
        }
    }

    /// Sets one value of a namespace; the others stay.
    pub fn set(&mut self, namespace: &str, key: &str, value: Value) {
        let entries = match self.0.iter_mut().find(|(known, _)| known == namespace) {
            Some((_, Value::Map(entries))) => entries,
            Some((_, other)) => {
                *other = Value::Map(vec![(key.to_owned(), value)]);
                return;
            }
            None => {
                self.0.push((namespace.to_owned(), Value::Map(vec![(key.to_owned(), value)])));
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
            self.0.push((namespace.to_owned(), Value::Map(Vec::new())));
        }
        for (key, value) in values {
            self.set(namespace, key, value.clone());
        }
    }

    /// Every namespace with its map.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }
}

impl FromIterator<(String, Value)> for Metadata {
    fn from_iter<I: IntoIterator<Item = (String, Value)>>(namespaces: I) -> Metadata {
        Metadata(namespaces.into_iter().collect())
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
        assert_eq!(metadata.iter().count(), 2);
        metadata.merge("c", &[]);
        metadata.merge("b", &[("y".into(), Value::Integer(1)), ("x".into(), Value::Null)]);
        assert_eq!(metadata.namespace("c"), Some(&Value::Map(Vec::new())));
        assert_eq!((metadata.get("b", "x"), metadata.get("b", "y")), (Some(&Value::Null), Some(&Value::Integer(1))));
    }
}
