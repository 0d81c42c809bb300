//! Parameters of the query that are added, overwritten and removed: `KeyValueMutation`.

use postrider_filter_api::{ConfigError, Stream};
use postrider_model::{AppendAction, Fields, Format, Value};

use super::config::{append_action, unknown_action, whole};
use crate::formatters::Formatters;
use crate::request_parts::{decoded, key_and_value};

/// One step of a list.
#[derive(Debug)]
pub(super) enum QueryMutation {
    Remove(String),
    Append(QueryAppend),
}

#[derive(Debug)]
pub(super) struct QueryAppend {
    key: String,
    value: Format,
    action: AppendAction,
}

pub(super) fn read(mut fields: Fields<'_>, formatters: &mut Formatters) -> Result<QueryMutation, ConfigError> {
    let one = |error| vec![error];
    let remove = fields.string("remove").map_err(one)?.filter(|name| !name.is_empty());
    let append = fields.map("append").map_err(one)?;
    let mutation = match (remove, append) {
        (Some(name), None) => QueryMutation::Remove(name.to_owned()),
        (None, Some(append)) => QueryMutation::Append(read_append(append, formatters)?),
        _ => return Err(whole(&fields, "exactly one of append and remove is wanted")),
    };
    fields.finish()?;
    Ok(mutation)
}

/// A `KeyValueAppend`.
fn read_append(mut fields: Fields<'_>, formatters: &mut Formatters) -> Result<QueryAppend, ConfigError> {
    let one = |error| vec![error];
    let Some(mut record) = fields.map("record").map_err(one)? else {
        return Err(vec![fields.error("record", "the record is required")]);
    };
    let key = record.string("key").map_err(one)?.unwrap_or_default().to_owned();
    if key.is_empty() {
        return Err(vec![record.error("key", "the parameter's name is required")]);
    }
    let Some(Value::String(text)) = record.value("value") else {
        return Err(vec![record.error("value", "a text is wanted")]);
    };
    let parsed = Format::parse_with(text, formatters);
    let value = parsed.map_err(|error| vec![record.error("value", error.to_string())])?;
    record.finish()?;
    let action = match fields.string("action").map_err(one)? {
        None => AppendAction::AppendIfExistsOrAdd,
        Some(name) => append_action(name).ok_or_else(|| vec![fields.error("action", unknown_action(name))])?,
    };
    fields.finish()?;
    Ok(QueryAppend { key, value, action })
}

/// A parameter as it is written, beside its name decoded.
struct Parameter {
    name: Vec<u8>,
    text: Vec<u8>,
}

/// Carries out a list. Like Envoy's, the query is in the order of its names then. What the client sent stays encoded
/// as it is: decoded, it could end the query, or the request line.
pub(super) fn apply(list: &[QueryMutation], stream: &mut Stream<'_>, scratch: &mut Vec<u8>) {
    if list.is_empty() || stream.request.path_only().first() != Some(&b'/') {
        return;
    }
    let mut parameters = parameters(stream.request.query().unwrap_or_default());
    for mutation in list {
        let append = match mutation {
            QueryMutation::Remove(name) => {
                parameters.retain(|known| known.name != name.as_bytes());
                continue;
            }
            QueryMutation::Append(append) => append,
        };
        let exists = parameters.iter().any(|known| known.name == append.key.as_bytes());
        match append.action {
            AppendAction::AddIfAbsent if exists => continue,
            AppendAction::OverwriteIfExists if !exists => continue,
            AppendAction::AppendIfExistsOrAdd | AppendAction::AddIfAbsent => {}
            AppendAction::OverwriteIfExists | AppendAction::OverwriteIfExistsOrAdd => {
                parameters.retain(|known| known.name != append.key.as_bytes());
            }
        }
        scratch.clear();
        stream.host.format(stream, &append.value, scratch);
        parameters.push(Parameter { name: append.key.clone().into_bytes(), text: written(&append.key, scratch) });
    }
    parameters.sort_by(|one, other| one.name.cmp(&other.name));
    let mut path = stream.request.path_only().to_vec();
    for (at, parameter) in parameters.iter().enumerate() {
        path.push(if at == 0 { b'?' } else { b'&' });
        path.extend_from_slice(&parameter.text);
    }
    // What came in a path may stand in one, and what is added is encoded.
    let done = stream.request.set_path(&path);
    debug_assert!(done.is_ok(), "{done:?}");
}

fn parameters(query: &[u8]) -> Vec<Parameter> {
    let query = query.strip_suffix(b"&").unwrap_or(query);
    if query.is_empty() {
        return Vec::new();
    }
    let parameter = |pair: &[u8]| {
        let (name, value) = key_and_value(pair);
        Parameter { name: decoded(name).into_owned(), text: [name, b"=", value].concat() }
    };
    query.split(|byte| *byte == b'&').map(parameter).collect()
}

/// `name=value`; of the name only what would end it is encoded.
fn written(name: &str, value: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(name.len() + value.len() + 1);
    let stays_in_name = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'&' | b'=' | b'#');
    encode(name.as_bytes(), stays_in_name, &mut out);
    out.push(b'=');
    encode(value, |byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'*'), &mut out);
    out
}

fn encode(text: &[u8], stays: impl Fn(u8) -> bool, out: &mut Vec<u8>) {
    for byte in text.iter().copied() {
        match stays(byte) {
            true => out.push(byte),
            false => out.extend_from_slice(format!("%{byte:02X}").as_bytes()),
        }
    }
}
