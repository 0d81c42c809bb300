//! A filter's configuration, before the filter has read it: a tree of plain values.

use std::collections::BTreeSet;
use std::time::Duration;

/// A configuration value in canonical form: keys in snake_case, defaults absent, durations and bytes as their
/// protobuf JSON strings, enums by name.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Value {
    #[default]
    Null,
    Bool(bool),
    Number(f64),
    /// Integers beyond 2^53 keep all their digits here.
    Integer(i64),
    String(String),
    List(Vec<Value>),
    /// In the order of the document, keys unique.
    Map(Vec<(String, Value)>),
}

/// What is wrong with a value, and where below the filter's own configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValueError {
    /// For example `mutations.request_mutations[0].append.header`; empty means the whole.
    pub path: String,
    pub message: String,
}

impl Value {
    /// Starts reading a map; anything that is then not read is an error of [`Fields::finish`].
    ///
    /// # Errors
    /// The value is not a map. Null reads as an empty one.
    pub fn fields(&self) -> Result<Fields<'_>, ValueError> {
        Fields::of(self, String::new())
    }
}

/// Reads a map and remembers what was asked for, so that no field is ever silently ignored.
#[derive(Debug)]
pub struct Fields<'v> {
    entries: &'v [(String, Value)],
    path: String,
    read: BTreeSet<&'v str>,
}

impl<'v> Fields<'v> {
    fn of(value: &'v Value, path: String) -> Result<Fields<'v>, ValueError> {
        match value {
            Value::Map(entries) => Ok(Fields { entries, path, read: BTreeSet::new() }),
            Value::Null => Ok(Fields { entries: &[], path, read: BTreeSet::new() }),
            other => Err(ValueError { path, message: format!("expected an object, found {}", other.kind()) }),
        }
    }

    pub fn value(&mut self, key: &str) -> Option<&'v Value> {
        let (key, value) = self.entries.iter().find(|(name, _)| name == key)?;
        self.read.insert(key);
        Some(value)
    }

    /// What is written here, by name.
    pub fn keys(&self) -> impl Iterator<Item = &'v str> + use<'v> {
        self.entries.iter().map(|(key, _)| key.as_str())
    }

    /// Takes everything for read: an error says why nobody looks at it.
    pub fn skip(&mut self) {
        self.read.extend(self.entries.iter().map(|(key, _)| key.as_str()));
    }

    /// # Errors
    /// The value is there and no string.
    pub fn string(&mut self, key: &str) -> Result<Option<&'v str>, ValueError> {
        match self.value(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(self.error(key, format!("expected a string, found {}", other.kind()))),
        }
    }

    /// # Errors
    /// The value is there and no boolean.
    pub fn bool(&mut self, key: &str) -> Result<Option<bool>, ValueError> {
        match self.value(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Bool(value)) => Ok(Some(*value)),
            Some(other) => Err(self.error(key, format!("expected true or false, found {}", other.kind()))),
        }
    }

    /// # Errors
    /// The value is there and no whole number.
    pub fn integer(&mut self, key: &str) -> Result<Option<i64>, ValueError> {
        match self.value(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Integer(value)) => Ok(Some(*value)),
            Some(Value::Number(value)) if value.fract() == 0.0 && value.abs() < 9e15 => Ok(Some(*value as i64)),
            Some(other) => Err(self.error(key, format!("expected a whole number, found {}", other.kind()))),
        }
    }

    /// # Errors
    /// The value is there and no duration such as `0.25s`.
    pub fn duration(&mut self, key: &str) -> Result<Option<Duration>, ValueError> {
        let Some(text) = self.string(key)? else { return Ok(None) };
        text.strip_suffix('s')
            .and_then(|seconds| seconds.parse::<f64>().ok())
            .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
            .map(Some)
            .ok_or_else(|| self.error(key, format!("expected a duration such as \"0.25s\", found \"{text}\"")))
    }

    /// # Errors
    /// The value is there and no object.
    pub fn map(&mut self, key: &str) -> Result<Option<Fields<'v>>, ValueError> {
        let path = self.path_of(key);
        self.value(key).map(|value| Fields::of(value, path)).transpose()
    }

    /// Each item with its path; empty when absent.
    ///
    /// # Errors
    /// The value is there and no list.
    pub fn list(&mut self, key: &str) -> Result<Vec<(String, &'v Value)>, ValueError> {
        let path = self.path_of(key);
        match self.value(key) {
            None | Some(Value::Null) => Ok(Vec::new()),
            Some(Value::List(items)) => {
                Ok(items.iter().enumerate().map(|(index, item)| (format!("{path}[{index}]"), item)).collect())
            }
            Some(other) => Err(self.error(key, format!("expected a list, found {}", other.kind()))),
        }
    }

    /// A list of objects.
    ///
    /// # Errors
    /// The value is there and no list of objects.
    pub fn maps(&mut self, key: &str) -> Result<Vec<Fields<'v>>, ValueError> {
        self.list(key)?.into_iter().map(|(path, item)| Fields::of(item, path)).collect()
    }

    /// An error at `key` of this map.
    pub fn error(&self, key: &str, message: impl Into<String>) -> ValueError {
        ValueError { path: self.path_of(key), message: message.into() }
    }

    /// Where this map stands; empty at the top.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// # Errors
    /// One for each field that nobody read: it is not supported here.
    pub fn finish(self) -> Result<(), Vec<ValueError>> {
        let errors: Vec<ValueError> = self
            .entries
            .iter()
            .filter(|(key, value)| *value != Value::Null && !self.read.contains(key.as_str()))
            .map(|(key, _)| self.error(key, format!("the field `{key}` is not supported")))
            .collect();
        if errors.is_empty() { Ok(()) } else { Err(errors) }
    }

    /// Where `key` of this map stands.
    pub fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }
}

impl Value {
    fn kind(&self) -> &'static str {
        match self {
            Value::Null => "null",
            Value::Bool(_) => "a boolean",
            Value::Number(_) | Value::Integer(_) => "a number",
            Value::String(_) => "a string",
            Value::List(_) => "a list",
            Value::Map(_) => "an object",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_that_nobody_read_are_reported_by_path() {
        let value = Value::Map(vec![
            ("known".into(), Value::Map(vec![("x".into(), Value::Integer(1)), ("odd".into(), Value::Bool(true))])),
            ("other".into(), Value::String("s".into())),
            ("gone".into(), Value::Null),
        ]);
        let mut top = value.fields().unwrap();
        let mut known = top.map("known").unwrap().unwrap();
        assert_eq!(known.integer("x"), Ok(Some(1)));
        assert_eq!(known.finish().unwrap_err()[0].path, "known.odd");
        assert_eq!(top.finish().unwrap_err()[0].path, "other");
    }

    #[test]
    fn a_value_of_the_wrong_kind_says_what_was_expected() {
        let value = Value::Map(vec![("d".into(), Value::String("5m".into())), ("l".into(), Value::Bool(true))]);
        let mut top = value.fields().unwrap();
        assert!(top.duration("d").unwrap_err().message.contains("0.25s"));
        assert_eq!(top.list("l").unwrap_err().path, "l");
        assert!(Value::Bool(true).fields().is_err());
    }
}
