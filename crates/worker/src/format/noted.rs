//! Metadata and filter state in formats.

use std::io::Write;

use postrider_filter_api::{ObjectKind, StreamInfo, field_of};
use postrider_model::{Metadata, MetadataOf, StateForm, Value};
use postrider_telemetry::json;

use super::Context;

/// Appends a value of somebody's metadata.
pub(super) fn metadata(
    of: MetadataOf,
    namespace: &str,
    path: &[String],
    context: &Context<'_>,
    out: &mut Vec<u8>,
) -> Option<()> {
    find(of, namespace, path, context, |value| plain(value, Numbers::Shortest, out)).flatten()
}

/// The same as JSON, with the type that it has; `null` when there is none.
pub(super) fn typed_metadata(
    (of, namespace, path): (MetadataOf, &str, &[String]),
    max_length: Option<usize>,
    context: &Context<'_>,
    out: &mut Vec<u8>,
) {
    if find(of, namespace, path, context, |value| write_typed(value, max_length, out)).is_none() {
        write(&Value::Null, out);
    }
}

/// A value as JSON; a text of so many bytes at most.
pub(super) fn write_typed(value: &Value, max_length: Option<usize>, out: &mut Vec<u8>) {
    match value {
        Value::String(text) => {
            let length = max_length.map_or(text.len(), |length| length.min(text.len()));
            json::write_string(text.as_bytes().get(..length).unwrap_or_default(), out);
        }
        value => write_with(value, Numbers::Shortest, out),
    }
}

/// A number as JSON, as short as it can be.
pub(super) fn write_number(number: f64, out: &mut Vec<u8>) {
    write_with(&Value::Number(number), Numbers::Shortest, out);
}

fn find<T>(
    of: MetadataOf,
    namespace: &str,
    path: &[String],
    context: &Context<'_>,
    found: impl FnOnce(&Value) -> T,
) -> Option<T> {
    let (info, route) = (context.info, context.route);
    let of_other;
    let all: &Metadata = match of {
        MetadataOf::Stream => &info.metadata,
        MetadataOf::Route => &route?.metadata,
        MetadataOf::VirtualHost => info.virtual_host_metadata(route)?,
        MetadataOf::Cluster => context.upstream.cluster_metadata()?,
        MetadataOf::Host => {
            of_other = context.upstream.host_metadata(info.upstream_remote.as_deref()?)?;
            &of_other
        }
        MetadataOf::Listener => {
            of_other = info.surroundings.as_ref()?.listener_metadata()?;
            &of_other
        }
        MetadataOf::FilterChain => {
            of_other = info.surroundings.as_ref()?.chain_metadata()?;
            &of_other
        }
    };
    path.iter().try_fold(all.namespace(namespace)?, |value, key| field(value, key)).map(found)
}

/// Appends an object of the filter state.
pub(super) fn state(name: &str, form: &StateForm, info: &StreamInfo, out: &mut Vec<u8>) -> Option<()> {
    let (_, value) = info.filter_state.iter().find(|(known, _)| known == name)?;
    match form {
        StateForm::Plain => plain(value, Numbers::Digits, out),
        StateForm::Typed => {
            match ObjectKind::of(name) {
                // What `ext_authz` decided in its shadow is a message.
                None if name.ends_with(".shadow") => write(&in_json_names(value), out),
                None
                | Some(
                    ObjectKind::Text
                    | ObjectKind::HashableText
                    | ObjectKind::Bool
                    | ObjectKind::Number
                    | ObjectKind::Switch,
                ) => write(value, out),
                // JSON has such numbers as texts.
                Some(ObjectKind::Milliseconds) => {
                    out.push(b'"');
                    write(value, out);
                    out.push(b'"');
                }
                // There is no message for the others.
                Some(_) => return None,
            }
            Some(())
        }
        StateForm::Field(part) => match field(value, part) {
            Some(value) => plain(value, Numbers::Digits, out),
            None => plain(&field_of(name, value, part)?, Numbers::Digits, out),
        },
    }
}

/// The same of one that is shared with the connection to the upstream, once there is one.
pub(super) fn shared_state(name: &str, form: &StateForm, info: &StreamInfo, out: &mut Vec<u8>) -> Option<()> {
    let is_shared = info.upstream_objects.as_ref()?.shared.iter().any(|shared| shared == name);
    (is_shared && info.upstream_connection_id != 0).then(|| state(name, form, info, out)).flatten()
}

/// A message's fields under the names that they have in JSON.
fn in_json_names(value: &Value) -> Value {
    let rename = |name: &str| {
        let mut words = name.split('_');
        let first = words.next().unwrap_or_default().to_owned();
        words.fold(first, |mut name, word| {
            let mut letters = word.chars();
            name.extend(letters.next().map(|first| first.to_ascii_uppercase()));
            name.push_str(letters.as_str());
            name
        })
    };
    match value {
        Value::Map(entries) => {
            Value::Map(entries.iter().map(|(name, value)| (rename(name), in_json_names(value))).collect())
        }
        Value::List(items) => Value::List(items.iter().map(in_json_names).collect()),
        other => other.clone(),
    }
}

fn field<'v>(value: &'v Value, key: &str) -> Option<&'v Value> {
    match value {
        Value::Map(entries) => entries.iter().find(|(known, _)| known == key).map(|(_, value)| value),
        _ => None,
    }
}

/// How numbers are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Numbers {
    /// With all digits.
    Digits,
    /// As Envoy writes those of metadata: all have 64 bits and a fraction, and the shorter one of `100000` and `1e+05` is
    /// taken.
    Shortest,
}

/// A text as it is, anything else as JSON; null is absent.
fn plain(value: &Value, numbers: Numbers, out: &mut Vec<u8>) -> Option<()> {
    match value {
        Value::Null => return None,
        Value::String(text) => out.extend_from_slice(text.as_bytes()),
        other => write_with(other, numbers, out),
    }
    Some(())
}

/// Appends a value as JSON.
pub(crate) fn write(value: &Value, out: &mut Vec<u8>) {
    write_with(value, Numbers::Digits, out);
}

fn write_with(value: &Value, numbers: Numbers, out: &mut Vec<u8>) {
    // Writing to a vector cannot fail.
    let _ = match value {
        Value::Null => write!(out, "null"),
        Value::Bool(value) => write!(out, "{value}"),
        Value::Integer(number) if numbers == Numbers::Shortest => shortest(*number as f64, out),
        Value::Number(number) if numbers == Numbers::Shortest && number.is_finite() => shortest(*number, out),
        // As many digits as it has, where the shortest text with the same value would end in zeros.
        Value::Number(number) if number.fract() == 0.0 && (9e15..1.8e19).contains(&number.abs()) => {
            write!(out, "{}", *number as i128)
        }
        // JSON has no other numbers.
        Value::Number(number) if !number.is_finite() => write!(out, "null"),
        Value::Number(number) => write!(out, "{number}"),
        Value::Integer(number) => write!(out, "{number}"),
        Value::String(text) => {
            json::write_string(text.as_bytes(), out);
            Ok(())
        }
        Value::List(items) => {
            out.push(b'[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                write_with(item, numbers, out);
            }
            out.push(b']');
            Ok(())
        }
        Value::Map(entries) => {
            out.push(b'{');
            // Protobuf knows no order of them, and Envoy sorts.
            let mut entries: Vec<&(String, Value)> = entries.iter().collect();
            entries.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
            for (index, (key, value)) in entries.into_iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                json::write_string(key.as_bytes(), out);
                out.push(b':');
                write_with(value, numbers, out);
            }
            out.push(b'}');
            Ok(())
        }
    };
}

/// The fewest digits that mean the same number, with an exponent where that is shorter.
fn shortest(number: f64, out: &mut Vec<u8>) -> std::io::Result<()> {
    let text = format!("{number:e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let sign = if exponent < 0 { '-' } else { '+' };
    let scientific = format!("{digits}e{sign}{:02}", exponent.unsigned_abs());
    // No longer than the other one only below 1e22.
    let fixed = match number {
        number if number.fract() == 0.0 && (9e15..1e22).contains(&number.abs()) => format!("{}", number as i128),
        number => format!("{number}"),
    };
    out.write_all(if scientific.len() < fixed.len() { scientific.as_bytes() } else { fixed.as_bytes() })
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use postrider_filter_api::Moment;
    use postrider_http::{Fields, RequestHead, ResponseHead};

    use super::*;
    use crate::format::OfUpstream;

    fn info() -> StreamInfo {
        let mut info = StreamInfo::new(Moment::default(), SystemTime::UNIX_EPOCH);
        let inner = Value::Map(vec![("k".into(), Value::List(vec![Value::Integer(1), Value::String("a\"".into())]))]);
        info.metadata.set("ns", "text", Value::String("plain".into()));
        info.metadata.set("ns", "number", Value::Number(1.5));
        info.metadata.set("ns", "inner", inner.clone());
        info.filter_state.push(("s".into(), Value::String("v".into())));
        info.filter_state.push(("m".into(), inner));
        info
    }

    #[test]
    fn metadata_is_written_as_text_or_json() {
        let info = info();
        let of = |path: &[&str]| {
            let path: Vec<String> = path.iter().map(|key| (*key).to_owned()).collect();
            let mut out = Vec::new();
            let context = Context {
                request: &RequestHead::new(),
                response: &ResponseHead::new(),
                trailers: &Fields::new(),
                info: &info,
                route: None,
                weighted: None,
                reply_body: &[],
                http: true,
                now: SystemTime::UNIX_EPOCH,
                upstream: OfUpstream::default(),
            };
            metadata(MetadataOf::Stream, "ns", &path, &context, &mut out).map(|()| String::from_utf8(out).unwrap())
        };
        assert_eq!(of(&["text"]).as_deref(), Some("plain"));
        assert_eq!(of(&["number"]).as_deref(), Some("1.5"));
        assert_eq!(of(&["inner"]).as_deref(), Some(r#"{"k":[1,"a\""]}"#));
        assert_eq!(of(&["inner", "k"]).as_deref(), Some(r#"[1,"a\""]"#));
        assert_eq!(of(&["none"]), None);
        assert_eq!(of(&["text", "below"]), None);
    }

    #[test]
    fn numbers_of_metadata_are_as_short_as_they_can_be() {
        for (number, want) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.5, "1.5"),
            (100.0, "100"),
            (10_000.0, "10000"),
            (100_000.0, "1e+05"),
            (-100_000.0, "-1e+05"),
            (120_000.0, "120000"),
            (123_456.0, "123456"),
            (1_700_000_000.0, "1.7e+09"),
            (1_700_000_123.0, "1700000123"),
            (0.001, "0.001"),
            (0.0001, "1e-04"),
            (0.000_123, "0.000123"),
            (1e15, "1e+15"),
            (1e100, "1e+100"),
            (5e-324, "5e-324"),
            (9_007_199_254_740_992.0, "9007199254740992"),
            (12_345_678_901_234_567_168.0, "12345678901234567168"),
        ] {
            let mut out = Vec::new();
            assert_eq!(plain(&Value::Number(number), Numbers::Shortest, &mut out), Some(()));
            assert_eq!(String::from_utf8(out).unwrap(), want);
        }
        let list = Value::List(vec![Value::Integer(9_007_199_254_740_993), Value::Integer(100_000)]);
        let mut out = Vec::new();
        write_with(&list, Numbers::Shortest, &mut out);
        assert_eq!(out, b"[9007199254740992,1e+05]");
    }

    #[test]
    fn filter_state_has_three_forms() {
        let info = info();
        let of = |name: &str, form: &StateForm| {
            let mut out = Vec::new();
            state(name, form, &info, &mut out).map(|()| String::from_utf8(out).unwrap())
        };
        assert_eq!(of("s", &StateForm::Plain).as_deref(), Some("v"));
        assert_eq!(of("s", &StateForm::Typed).as_deref(), Some("\"v\""));
        assert_eq!(of("m", &StateForm::Field("k".into())).as_deref(), Some(r#"[1,"a\""]"#));
        assert_eq!(of("gone", &StateForm::Plain), None);
    }
}
