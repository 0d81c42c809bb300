//! JSON Schemas (drafts 4 to 2020-12) over plain values, with findings that a person who writes configurations can use.

use std::fmt;
use std::sync::Arc;

use jsonschema::error::{TypeKind, ValidationErrorKind as Kind};
use jsonschema::{Draft, JsonType, Retrieve, Uri, ValidationError, Validator};
use postrider_model::{Value, ValueError};
use serde_json::Value as Json;

use crate::json::to_json;
use crate::schema_bound;

/// Findings about one value: a list of thousands of wrong items is told by its first.
const MAX_FINDINGS: usize = 50;

/// Characters of a value that a message quotes.
const QUOTED_CHARACTERS: usize = 60;

/// A compiled schema. Cheap to clone.
#[derive(Clone)]
pub struct Schema {
    validator: Arc<Validator>,
    source: Arc<Value>,
}

impl Schema {
    /// The draft is that of `$schema`, 2020-12 without one. A `$ref` leads to a place of the same schema only: nothing is
    /// fetched.
    ///
    /// # Errors
    /// Why it is no schema, each with its place below it.
    pub fn compile(schema: &Value) -> Result<Schema, Vec<ValueError>> {
        let json = to_json(schema);
        let at = |path: String, message: String| vec![ValueError { path, message }];
        if !matches!(json, Json::Object(_) | Json::Bool(_)) {
            return Err(at(String::new(), format!("expected a JSON Schema, an object, found {}", quoted(&json))));
        }
        let draft = Draft::default().detect(&json);
        let meta = match draft {
            Draft::Draft4 => jsonschema::draft4::meta::validator(),
            Draft::Draft6 => jsonschema::draft6::meta::validator(),
            Draft::Draft7 => jsonschema::draft7::meta::validator(),
            Draft::Draft201909 => jsonschema::draft201909::meta::validator(),
            Draft::Draft202012 => jsonschema::draft202012::meta::validator(),
            _ => {
                let named = json.get("$schema").map(quoted).unwrap_or_default();
                let message =
                    format!("{named} is no JSON Schema that is known here: drafts 4, 6, 7, 2019-09 and 2020-12");
                return Err(at("$schema".to_owned(), message));
            }
        };
        let errors: Vec<ValueError> =
            meta.iter_errors(&json).take(MAX_FINDINGS).flat_map(|error| findings(&error, schema, "")).collect();
        if !errors.is_empty() {
            return Err(errors);
        }
        if schema_bound::is_too_large(&json) {
            let message = "the schema has more than 100000 schemas in it when its references are followed".to_owned();
            return Err(at(String::new(), message));
        }
        let options = jsonschema::options().with_draft(draft).with_retriever(Nothing);
        let guarded = schema_bound::guarded(&json);
        match schema_bound::options(options).build(&guarded) {
            Ok(validator) => Ok(Schema { validator: Arc::new(validator), source: Arc::new(schema.clone()) }),
            // A pattern or a reference.
            Err(error) => Err(at(path(error.schema_path().as_str(), schema, ""), message(&error))),
        }
    }

    /// What is wrong with a value, each with its place: `prefix` and what stands below it, such as
    /// `config.users[0].name`. That it cannot be told in reasonable time is a finding, too.
    pub fn check(&self, value: &Value, prefix: &str) -> Vec<ValueError> {
        let json = to_json(value);
        let found = schema_bound::within(|| {
            let errors = self.validator.iter_errors(&json).flat_map(|error| findings(&error, value, prefix));
            errors.take(MAX_FINDINGS).collect()
        });
        found.unwrap_or_else(|| {
            let message = "the schema asks for too much work on this value: it is neither good nor bad".to_owned();
            vec![ValueError { path: prefix.to_owned(), message }]
        })
    }

    /// As it was written.
    pub fn source(&self) -> &Value {
        &self.source
    }
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Schema").field(&self.source).finish()
    }
}

/// Schemas are equal when they were written the same.
impl PartialEq for Schema {
    fn eq(&self, other: &Schema) -> bool {
        self.source == other.source
    }
}

/// Fetches nothing.
struct Nothing;

impl Retrieve for Nothing {
    fn retrieve(&self, uri: &Uri<String>) -> Result<Json, Box<dyn std::error::Error + Send + Sync>> {
        Err(format!("{uri} is not part of this schema, and nothing is fetched").into())
    }
}

/// One finding; for keys that the schema does not know, one at each.
fn findings(error: &ValidationError<'_>, value: &Value, prefix: &str) -> Vec<ValueError> {
    let path = path(error.instance_path().as_str(), value, prefix);
    match error.kind() {
        Kind::AdditionalProperties { unexpected } | Kind::UnevaluatedProperties { unexpected } => {
            let unknown = |key: &String| ValueError {
                path: joined(&path, key),
                message: format!("the schema knows no `{key}` here"),
            };
            unexpected.iter().map(unknown).collect()
        }
        _ => vec![ValueError { path, message: message(error) }],
    }
}

/// A JSON pointer as a path. Whether a step is an index or a key is the value's to say.
fn path(pointer: &str, value: &Value, prefix: &str) -> String {
    let mut path = prefix.to_owned();
    let mut value = Some(value);
    for step in pointer.split('/').skip(1) {
        let step = step.replace("~1", "/").replace("~0", "~");
        match value {
            Some(Value::List(items)) => {
                path.push_str(&format!("[{step}]"));
                value = step.parse().ok().and_then(|index: usize| items.get(index));
            }
            other => {
                path = joined(&path, &step);
                value = match other {
                    Some(Value::Map(entries)) => entries.iter().find(|(key, _)| *key == step).map(|(_, value)| value),
                    _ => None,
                };
            }
        }
    }
    path
}

fn joined(path: &str, key: &str) -> String {
    let plain = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '$' | '@'));
    match (plain, path.is_empty()) {
        (true, true) => key.to_owned(),
        (true, false) => format!("{path}.{key}"),
        (false, _) => format!("{path}[{key:?}]"),
    }
}

/// What was expected, and what was found.
fn message(error: &ValidationError<'_>) -> String {
    let found = || quoted(error.instance());
    match error.kind() {
        Kind::Type { kind } => format!("expected {}, found {}", types(kind), found()),
        Kind::Required { property } => format!("{property} is missing"),
        Kind::Enum { options: Json::Array(options) } => {
            let options: Vec<String> = options.iter().map(quoted).collect();
            format!("expected {}, found {}", any_of(&options), found())
        }
        Kind::Constant { expected_value } => format!("expected {}, found {}", quoted(expected_value), found()),
        Kind::Minimum { limit } => format!("expected a number of {limit} or more, found {}", found()),
        Kind::ExclusiveMinimum { limit } => format!("expected a number above {limit}, found {}", found()),
        Kind::Maximum { limit } => format!("expected a number of {limit} or less, found {}", found()),
        Kind::ExclusiveMaximum { limit } => format!("expected a number below {limit}, found {}", found()),
        Kind::MultipleOf { multiple_of } => format!("expected a multiple of {multiple_of}, found {}", found()),
        Kind::MinLength { limit } => format!("expected {limit} characters or more, found {}", found()),
        Kind::MaxLength { limit } => format!("expected {limit} characters or fewer, found {}", found()),
        Kind::MinItems { limit } => format!("expected {limit} items or more, found {}", found()),
        Kind::MaxItems { limit } => format!("expected {limit} items or fewer, found {}", found()),
        Kind::MinProperties { limit } => format!("expected {limit} keys or more, found {}", found()),
        Kind::MaxProperties { limit } => format!("expected {limit} keys or fewer, found {}", found()),
        Kind::UniqueItems => format!("expected items that differ, found {}", found()),
        Kind::Pattern { pattern } => format!("expected a text that matches `{pattern}`, found {}", found()),
        Kind::Format { format } => format!("expected a text of the format `{format}`, found {}", found()),
        Kind::FalseSchema => "the schema allows nothing here".to_owned(),
        Kind::AnyOf { context } | Kind::OneOfNotValid { context } => {
            let mut forms: Vec<String> = Vec::new();
            for error in context.iter().filter_map(|errors| errors.first()) {
                let form = message(error);
                if !forms.contains(&form) {
                    forms.push(form);
                }
            }
            format!("fits none of the allowed forms: {}", forms.join("; or "))
        }
        Kind::OneOfMultipleValid { .. } => format!("fits several of the allowed forms, expected one: {}", found()),
        _ => error.to_string(),
    }
}

fn types(kind: &TypeKind) -> String {
    let word = |kind: JsonType| {
        match kind {
            JsonType::Null => "null",
            JsonType::Boolean => "true or false",
            JsonType::Integer => "a whole number",
            JsonType::Number => "a number",
            JsonType::String => "a text",
            JsonType::Array => "a list",
            JsonType::Object => "an object",
        }
        .to_owned()
    };
    match kind {
        TypeKind::Single(one) => word(*one),
        TypeKind::Multiple(several) => any_of(&several.into_iter().map(word).collect::<Vec<_>>()),
    }
}

fn any_of(options: &[String]) -> String {
    match options.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => options.concat(),
    }
}

fn quoted(json: &Json) -> String {
    let text = json.to_string();
    match text.char_indices().nth(QUOTED_CHARACTERS).and_then(|(end, _)| text.get(..end)) {
        Some(head) => format!("{head}…"),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::from_json_text;

    fn schema(text: &str) -> Schema {
        Schema::compile(&from_json_text(text).unwrap()).unwrap()
    }

    fn found(schema: &Schema, text: &str) -> Vec<String> {
        let errors = schema.check(&from_json_text(text).unwrap(), "config");
        errors.iter().map(|error| format!("{}: {}", error.path, error.message)).collect()
    }

    const USERS: &str = r##"{
        "type": "object",
        "required": ["users"],
        "additionalProperties": false,
        "properties": {
            "users": { "type": "array", "minItems": 1, "items": { "$ref": "#/$defs/user" } },
            "mode": { "enum": ["on", "off"] },
            "x.y": { "type": ["integer", "null"] },
            "0": { "type": "object", "properties": { "1": { "minimum": 3, "type": "number" } } },
            "to": { "anyOf": [{ "type": "string" }, { "type": "object", "required": ["url"] }] }
        },
        "$defs": { "user": { "type": "object", "required": ["name"],
            "properties": { "name": { "type": "string", "pattern": "^[a-z]+$", "maxLength": 5 } } } }
    }"##;

    #[test]
    fn findings_say_where_and_what_was_expected() {
        let schema = schema(USERS);
        assert_eq!(found(&schema, r#"{"users": [{"name": "a"}], "x.y": null, "to": "x"}"#), [""; 0]);
        assert_eq!(found(&schema, "{}"), [r#"config: "users" is missing"#]);
        assert_eq!(found(&schema, "[]"), ["config: expected an object, found []"]);
        assert_eq!(
            found(&schema, r#"{"users": [{"name": "a"}, {}, {"name": 5}, {"name": "A"}], "mode": "of", "x.y": 1.5}"#),
            [
                r#"config.users[1]: "name" is missing"#,
                "config.users[2].name: expected a text, found 5",
                r#"config.users[3].name: expected a text that matches `^[a-z]+$`, found "A""#,
                r#"config.mode: expected "on" or "off", found "of""#,
                r#"config["x.y"]: expected null or a whole number, found 1.5"#,
            ]
        );
        assert_eq!(
            found(&schema, r#"{"users": [], "extra": 1, "0": {"1": 2}, "to": {}}"#),
            [
                "config.users: expected 1 items or more, found []",
                "config.0.1: expected a number of 3 or more, found 2",
                "config.to: fits none of the allowed forms: expected a text, found {}; or \"url\" is missing",
                "config.extra: the schema knows no `extra` here",
            ]
        );
    }

    #[test]
    fn each_draft_has_its_own_rules() {
        let four = r#"{"$schema": "http://json-schema.org/draft-04/schema#", "minimum": 3, "exclusiveMinimum": true}"#;
        assert_eq!(found(&schema(four), "3"), ["config: expected a number above 3, found 3"]);
        let reference = r##""$ref": "#/$defs/a", "$defs": { "a": { "exclusiveMinimum": 3 } }"##;
        for (draft, keyword) in [
            ("http://json-schema.org/draft-06/schema#", r#""exclusiveMinimum": 3"#),
            ("http://json-schema.org/draft-07/schema#", r#""if": true, "then": { "exclusiveMinimum": 3 }"#),
            ("https://json-schema.org/draft/2019-09/schema", reference),
            ("https://json-schema.org/draft/2020-12/schema", reference),
        ] {
            let text = format!(r#"{{"$schema": "{draft}", {keyword}}}"#);
            assert_eq!(found(&schema(&text), "3"), ["config: expected a number above 3, found 3"], "{draft}");
        }
    }

    #[test]
    fn what_is_no_schema_is_refused_with_every_place() {
        let refused = |text: &str| {
            let errors = Schema::compile(&from_json_text(text).unwrap()).unwrap_err();
            errors.into_iter().map(|error| format!("{}: {}", error.path, error.message)).collect::<Vec<_>>()
        };
        let both = refused(r#"{"properties": {"a.b": {"minimum": "x"}}, "required": "a"}"#);
        assert_eq!(both.len(), 2, "{both:?}");
        assert!(both.contains(&r#"properties["a.b"].minimum: expected a number, found "x""#.to_owned()), "{both:?}");
        assert!(both.contains(&r#"required: expected a list, found "a""#.to_owned()), "{both:?}");
        assert!(refused(r#"{"$schema": "http://x/y"}"#)[0].starts_with("$schema: \"http://x/y\" is no JSON Schema"));
        assert!(refused("3")[0].contains("an object"));
        let pattern = refused(r#"{"properties": {"a": {"pattern": "("}}}"#);
        assert!(pattern[0].starts_with("properties.a.pattern: "), "{pattern:?}");
        let remote = refused(r#"{"properties": {"a": {"$ref": "http://127.0.0.1:1/x.json"}}}"#);
        assert!(remote[0].contains("nothing is fetched"), "{remote:?}");
        assert!(refused(r##"{"$ref": "#/nowhere"}"##)[0].contains("nowhere"));
    }

    #[test]
    fn a_long_list_of_faults_is_cut() {
        let list = format!("[{}0]", "0,".repeat(1000));
        assert_eq!(found(&schema(r#"{"items": {"type": "string"}}"#), &list).len(), MAX_FINDINGS);
        let long = found(&schema(r#"{"type": "null"}"#), &format!("{:?}", "é".repeat(1000)));
        assert!(long[0].len() < 200 && long[0].ends_with('…'), "{long:?}");
    }
}
