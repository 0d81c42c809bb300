//! Values of expressions, and how they compare.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::rc::Rc;

use postrider_http::Fields;
use postrider_model::{Metadata, Value};

use super::facts::{Facts, Headers};

/// A value while an expression is evaluated.
#[derive(Debug, Clone)]
pub(super) enum Data<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    Text(Cow<'a, str>),
    Bytes(Cow<'a, [u8]>),
    /// Nanoseconds.
    Duration(i128),
    /// Nanoseconds since 1970.
    Time(i128),
    Type(&'static str),
    /// A message of this type, by what is set in it. Its fields are attributes of their own.
    Message(&'static str, Rc<str>),
    List(Rc<[Data<'a>]>),
    Map(Rc<[(Data<'a>, Data<'a>)]>),
    /// A value of metadata; its numbers are doubles.
    Noted(&'a Value),
    Metadata(&'a Metadata),
    FilterState,
    Headers(Headers<'a>),
    Trailers(Option<&'a Fields>),
}

/// There is no such value, or it is of the wrong kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Failed;

pub(super) type Outcome<'a> = Result<Data<'a>, Failed>;

impl<'a> Data<'a> {
    /// What a noted value is.
    pub(super) fn of(value: &'a Value) -> Data<'a> {
        match value {
            Value::Null => Data::Null,
            Value::Bool(value) => Data::Bool(*value),
            Value::Number(number) => Data::Double(*number),
            Value::Integer(number) => Data::Double(*number as f64),
            Value::String(text) => Data::Text(Cow::Borrowed(text)),
            Value::List(_) | Value::Map(_) => Data::Noted(value),
        }
    }

    /// The same, for a value that does not outlive the question.
    pub(super) fn held(value: &Value) -> Data<'static> {
        match value {
            Value::Null => Data::Null,
            Value::Bool(value) => Data::Bool(*value),
            Value::Number(number) => Data::Double(*number),
            Value::Integer(number) => Data::Double(*number as f64),
            Value::String(text) => Data::Text(Cow::Owned(text.clone())),
            Value::List(items) => Data::List(items.iter().map(Data::held).collect()),
            Value::Map(entries) => Data::map(entries.iter().map(|(key, value)| (key.as_str(), value))),
        }
    }

    pub(super) fn map<'v>(entries: impl Iterator<Item = (&'v str, &'v Value)>) -> Data<'static> {
        Data::Map(entries.map(|(key, value)| (Data::Text(Cow::Owned(key.to_owned())), Data::held(value))).collect())
    }

    pub(super) fn text(bytes: &'a [u8]) -> Data<'a> {
        Data::Text(String::from_utf8_lossy(bytes))
    }

    pub(super) fn bool(&self) -> Result<bool, Failed> {
        if let Data::Bool(value) = self { Ok(*value) } else { Err(Failed) }
    }

    pub(super) fn str(&self) -> Result<&str, Failed> {
        if let Data::Text(text) = self { Ok(text) } else { Err(Failed) }
    }

    pub(super) fn kind(&self) -> &'static str {
        match self {
            Data::Null => "null_type",
            Data::Bool(_) => "bool",
            Data::Int(_) => "int",
            Data::Uint(_) => "uint",
            Data::Double(_) => "double",
            Data::Text(_) => "string",
            Data::Bytes(_) => "bytes",
            Data::Duration(_) => "google.protobuf.Duration",
            Data::Time(_) => "google.protobuf.Timestamp",
            Data::Type(_) => "type",
            Data::Message(name, _) => name,
            Data::List(_) | Data::Noted(Value::List(_)) => "list",
            _ => "map",
        }
    }

    /// An entry of a map; `Err` when this is none, and inside it `None` when it has no such entry.
    pub(super) fn entry(&self, key: &str, facts: &Facts<'a>) -> Result<Option<Data<'a>>, Failed> {
        Ok(match self {
            Data::Map(entries) => {
                let wanted = |(known, _): &&(Data<'a>, Data<'a>)| matches!(known, Data::Text(text) if text == key);
                entries.iter().find(wanted).map(|(_, value)| value.clone())
            }
            Data::Noted(Value::Map(entries)) => {
                entries.iter().find(|(known, _)| known == key).map(|(_, value)| Data::of(value))
            }
            Data::Metadata(metadata) => metadata.namespace(key).map(Data::of),
            Data::FilterState => facts.state(key),
            Data::Headers(headers) => headers.line(key),
            Data::Trailers(fields) => fields.and_then(|fields| joined(fields, key)),
            _ => return Err(Failed),
        })
    }

    /// What `[key]` finds.
    pub(super) fn at(&self, key: &Data<'a>, facts: &Facts<'a>) -> Outcome<'a> {
        let index = || key.whole().and_then(|number| usize::try_from(number).ok()).ok_or(Failed);
        match self {
            Data::List(items) => items.get(index()?).cloned().ok_or(Failed),
            Data::Noted(Value::List(items)) => items.get(index()?).map(Data::of).ok_or(Failed),
            Data::Map(entries) => {
                let found = entries.iter().find(|(known, _)| known.equals(key));
                found.map(|(_, value)| value.clone()).ok_or(Failed)
            }
            _ => self.entry(key.str()?, facts)?.ok_or(Failed),
        }
    }

    /// Whether a list has this item, or a map this key.
    pub(super) fn has(&self, key: &Data<'a>, facts: &Facts<'a>) -> Result<bool, Failed> {
        match self {
            Data::List(items) => Ok(items.iter().any(|item| item.equals(key))),
            Data::Noted(Value::List(items)) => Ok(items.iter().any(|item| Data::of(item).equals(key))),
            Data::Map(entries) => Ok(entries.iter().any(|(known, _)| known.equals(key))),
            _ => match key {
                Data::Text(key) => Ok(self.entry(key, facts)?.is_some()),
                _ => Err(Failed),
            },
        }
    }

    pub(super) fn size(&self, facts: &Facts<'a>) -> Result<usize, Failed> {
        Ok(match self {
            Data::Text(text) => text.chars().count(),
            Data::Bytes(bytes) => bytes.len(),
            Data::List(items) => items.len(),
            Data::Map(entries) => entries.len(),
            Data::Noted(Value::List(items)) => items.len(),
            Data::Noted(Value::Map(entries)) => entries.len(),
            Data::Metadata(metadata) => metadata.iter().count(),
            Data::FilterState => facts.states(),
            Data::Headers(headers) => headers.count(),
            Data::Trailers(fields) => fields.map_or(0, Fields::len),
            _ => return Err(Failed),
        })
    }

    /// A number without a fraction.
    fn whole(&self) -> Option<i128> {
        match self {
            Data::Int(number) => Some(i128::from(*number)),
            Data::Uint(number) => Some(i128::from(*number)),
            Data::Double(number) if number.fract() == 0.0 && number.abs() < 1e18 => Some(*number as i128),
            _ => None,
        }
    }

    /// Equality never fails: values of different kinds differ, except numbers.
    pub(super) fn equals(&self, other: &Data<'a>) -> bool {
        match (self, other) {
            (Data::Null, Data::Null) => true,
            (Data::Type(one), Data::Type(other)) => one == other,
            (Data::Message(of, one), Data::Message(of_other, other)) => of == of_other && one == other,
            (Data::List(one), Data::List(other)) => {
                one.len() == other.len() && one.iter().zip(other.iter()).all(|(one, other)| one.equals(other))
            }
            (Data::Map(one), Data::Map(other)) => {
                let has = |(key, value): &(Data<'a>, Data<'a>)| {
                    other.iter().any(|(known, held)| known.equals(key) && held.equals(value))
                };
                one.len() == other.len() && one.iter().all(has)
            }
            (Data::Noted(one), Data::Noted(other)) => one == other,
            (Data::Metadata(one), Data::Metadata(other)) => one == other,
            (Data::Noted(Value::List(items)), Data::List(list))
            | (Data::List(list), Data::Noted(Value::List(items))) => {
                items.len() == list.len()
                    && items.iter().zip(list.iter()).all(|(item, other)| Data::of(item).equals(other))
            }
            (Data::FilterState, Data::FilterState) => true,
            (Data::Headers(one), Data::Headers(other)) => one.is_same(other),
            (Data::Trailers(_), Data::Trailers(_)) => true,
            _ => self.compare(other) == Some(Ordering::Equal),
        }
    }

    /// The order of two values, where there is one.
    pub(super) fn compare(&self, other: &Data<'a>) -> Option<Ordering> {
        match (self, other) {
            (Data::Bool(one), Data::Bool(other)) => Some(one.cmp(other)),
            (Data::Text(one), Data::Text(other)) => Some(one.cmp(other)),
            (Data::Bytes(one), Data::Bytes(other)) => Some(one.cmp(other)),
            (Data::Duration(one), Data::Duration(other)) | (Data::Time(one), Data::Time(other)) => Some(one.cmp(other)),
            (Data::Double(one), Data::Double(other)) => one.partial_cmp(other),
            (Data::Double(one), other) => one.partial_cmp(&(other.whole()? as f64)),
            (one, Data::Double(other)) => (one.whole()? as f64).partial_cmp(other),
            _ => Some(self.whole()?.cmp(&other.whole()?)),
        }
    }
}

/// The lines of a field, joined.
pub(super) fn joined<'a>(fields: &'a Fields, name: &str) -> Option<Data<'a>> {
    let name = name.to_ascii_lowercase();
    let mut lines = fields.get_all_name(name.as_bytes());
    let first = lines.next()?;
    let mut all = String::from_utf8_lossy(first);
    for line in lines {
        let whole = all.to_mut();
        whole.push(',');
        whole.push_str(&String::from_utf8_lossy(line));
    }
    Some(Data::Text(all))
}
