//! Values of expressions as JSON has them, by the rules of Protobuf: bytes in base64, times and durations as texts.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use postrider_model::Value;

use super::facts::{Facts, Headers};
use super::time::show_moment;
use super::value::Data;

/// `None` for types, messages, and maps with keys that are no texts.
pub(super) fn typed(value: &Data<'_>, facts: &Facts<'_>) -> Option<Value> {
    Some(match value {
        Data::Null => Value::Null,
        Data::Bool(value) => Value::Bool(*value),
        Data::Int(number) => Value::Number(*number as f64),
        Data::Uint(number) => Value::Number(*number as f64),
        Data::Double(number) => Value::Number(*number),
        Data::Text(text) => Value::String(text.clone().into_owned()),
        Data::Bytes(bytes) => Value::String(STANDARD.encode(bytes)),
        Data::Duration(nanos) => Value::String(seconds(*nanos)),
        Data::Time(nanos) => Value::String(show_moment(*nanos)),
        Data::Type(_) | Data::Message(..) => return None,
        Data::Noted(value) => (*value).clone(),
        Data::List(items) => Value::List(items.iter().map(|item| typed(item, facts)).collect::<Option<_>>()?),
        Data::Map(entries) => {
            let entry = |(key, value): &(Data<'_>, Data<'_>)| match key {
                Data::Text(key) => Some((key.clone().into_owned(), typed(value, facts)?)),
                _ => None,
            };
            Value::Map(entries.iter().map(entry).collect::<Option<_>>()?)
        }
        Data::Metadata(metadata) => {
            Value::Map(metadata.iter().map(|(name, value)| (name.to_owned(), value.clone())).collect())
        }
        Data::FilterState => Value::Map(facts.info.filter_state.to_vec()),
        Data::Headers(headers) => {
            let (parts, fields): (&[&str], _) = match headers {
                Headers::None => (&[], None),
                Headers::Request(head) => (&[":authority", ":path", ":method", ":scheme"], Some(&head.fields)),
                Headers::Response(head) => (&[":status"], Some(&head.fields)),
            };
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let is_request = matches!(headers, Headers::Request(_));
            let names = fields.into_iter().flat_map(postrider_http::Fields::iter).map(|field| text(field.name));
            let mut names: Vec<String> = names.filter(|name| !(is_request && name == "host")).collect();
            names.extend(parts.iter().map(|part| (*part).to_owned()));
            names.sort_unstable();
            names.dedup();
            let line = |name: String| {
                let value = headers.line(&name).and_then(|value| typed(&value, facts))?;
                Some((name, value))
            };
            Value::Map(names.into_iter().filter_map(line).collect())
        }
        Data::Trailers(fields) => {
            let lines = fields.iter().flat_map(|fields| fields.iter());
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            Value::Map(lines.map(|field| (text(field.name), Value::String(text(field.value)))).collect())
        }
    })
}

/// `1.500s`: with three, six or nine digits of its fraction, or none.
fn seconds(nanos: i128) -> String {
    let sign = if nanos < 0 { "-" } else { "" };
    let (whole, rest) = (nanos.unsigned_abs() / 1_000_000_000, nanos.unsigned_abs() % 1_000_000_000);
    match rest {
        0 => format!("{sign}{whole}s"),
        rest if rest.is_multiple_of(1_000_000) => format!("{sign}{whole}.{:03}s", rest / 1_000_000),
        rest if rest.is_multiple_of(1_000) => format!("{sign}{whole}.{:06}s", rest / 1_000),
        rest => format!("{sign}{whole}.{rest:09}s"),
    }
}

#[cfg(test)]
mod tests {
    use postrider_model::Expression;
    use postrider_model::cel::Allowed;

    use super::*;
    use crate::fake::FakeStream;

    #[test]
    fn values_are_what_json_has_for_them() {
        let mut stream = FakeStream::new("GET", "/p?q=1", &[("x-a", "1")]);
        stream.info.status = 404;
        let text = |text: &str| Some(Value::String(text.to_owned()));
        for (expression, wanted) in [
            ("request.path", text("/p?q=1")),
            ("response.code > 1", Some(Value::Bool(true))),
            ("response.code", Some(Value::Number(404.0))),
            ("b'ab'", text("YWI=")),
            ("duration('1.5s')", text("1.500s")),
            ("null", Some(Value::Null)),
            ("[1, 'a']", Some(Value::List(vec![Value::Number(1.0), Value::String("a".into())]))),
            ("{'a': 2u}", Some(Value::Map(vec![("a".into(), Value::Number(2.0))]))),
            ("{1: 2}", None),
            ("type(1)", None),
        ] {
            let expression = Expression::parse(expression, Allowed::default()).unwrap();
            let value = stream.with(|stream| super::super::value_of(&expression, &Facts::of_answer(stream)));
            assert_eq!(value, wanted, "{expression:?}");
        }
        let headers = Expression::parse("request.headers", Allowed::default()).unwrap();
        let value = stream.with(|stream| super::super::value_of(&headers, &Facts::of_answer(stream)));
        let Some(Value::Map(lines)) = value else { panic!("{value:?}") };
        assert_eq!(lines.iter().find(|(name, _)| name == "x-a").unwrap().1, Value::String("1".into()));
        assert!(lines.is_sorted_by(|(one, _), (other, _)| one < other), "{lines:?}");
    }

    #[test]
    fn durations_have_no_digits_too_many() {
        for (nanos, wanted) in
            [(0, "0s"), (-1_500_000_000, "-1.500s"), (243_722, "0.000243722s"), (2_000_250_000, "2.000250s")]
        {
            assert_eq!(seconds(nanos), wanted);
        }
    }
}
