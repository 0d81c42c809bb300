//! A bound for validation: some schemas ask for work that grows exponentially, and nothing stops the validator before its end.
//!
//! Each schema within a schema gets a keyword of ours, which counts how often it is looked at. When that is too often, or the
//! validator has gone too deep, the keyword unwinds to where validation began. The validator keeps no state between
//! values, so nothing is left half done.

use std::cell::Cell;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};

use jsonschema::{Keyword, PatternOptions, ValidationError, ValidationOptions};
use serde_json::Value as Json;

/// Schemas that are looked at in one validation: about a tenth of a second.
const MAX_STEPS: u32 = 1_000_000;

/// Schemas that a schema may have in it, those behind its references counted wherever they are referred to: the compiler goes
/// through as many.
const MAX_SIZE: u64 = 100_000;

/// Schemas and references that may stand one within the other.
const MAX_DEPTH: usize = 512;

/// Time that one validation may take: a step may be a pattern on a long text.
const MAX_TIME: Duration = Duration::from_secs(1);

/// Steps that a pattern with look-around or references may take on one text.
const MAX_BACKTRACKING: usize = 100_000;

/// Bytes of the stack that the validator may take, of the two megabytes that threads have.
const MAX_STACK: usize = 512 * 1024;

/// The keyword's name, which no schema has by chance.
const KEYWORD: &str = "x-postrider-bound";

/// What of a schema holds no schema.
const DATA: [&str; 6] = ["const", "enum", "default", "examples", "required", "type"];

/// What holds schemas by names of the author's.
const NAMED: [&str; 6] =
    ["properties", "patternProperties", "definitions", "$defs", "dependencies", "dependentSchemas"];

thread_local! {
    /// What is left; none outside of [`within`].
    static LEFT: Cell<Option<Left>> = const { Cell::new(None) };
}

#[derive(Clone, Copy)]
struct Left {
    steps: u32,
    /// Where the stack was at the beginning.
    stack: usize,
    until: Instant,
}

/// What the keyword unwinds with.
struct Spent;

/// Runs a validation; `None` when it was too much.
pub(crate) fn within<T>(validate: impl FnOnce() -> T) -> Option<T> {
    let before = LEFT.replace(Some(Left { steps: MAX_STEPS, stack: stack(), until: Instant::now() + MAX_TIME }));
    let outcome = catch_unwind(AssertUnwindSafe(validate));
    LEFT.set(before);
    match outcome {
        Ok(found) => Some(found),
        Err(payload) if payload.is::<Spent>() => None,
        Err(payload) => resume_unwind(payload),
    }
}

/// Whether a schema is too large to be compiled once its references are followed.
pub(crate) fn is_too_large(schema: &Json) -> bool {
    Sizes { root: schema, known: HashMap::new() }.of(schema, 0) > MAX_SIZE
}

struct Sizes<'s> {
    root: &'s Json,
    /// By what a reference says; none while it is looked at, which is where a schema leads to itself.
    known: HashMap<&'s str, Option<u64>>,
}

impl<'s> Sizes<'s> {
    fn of(&mut self, schema: &'s Json, depth: usize) -> u64 {
        if depth > MAX_DEPTH {
            return u64::MAX;
        }
        match schema {
            Json::Object(entries) => {
                let mut sum: u64 = 1;
                for (key, value) in entries {
                    let size = match value {
                        Json::String(to) if key == "$ref" => self.behind(to, depth),
                        value => self.of(value, depth + 1),
                    };
                    sum = sum.saturating_add(size);
                }
                sum
            }
            Json::Array(items) => items.iter().fold(0, |sum: u64, item| sum.saturating_add(self.of(item, depth + 1))),
            _ => 0,
        }
    }

    fn behind(&mut self, to: &'s str, depth: usize) -> u64 {
        if let Some(known) = self.known.get(to) {
            return known.unwrap_or(1);
        }
        // What is not found here is refused by whoever compiles it.
        let Some(target) = to.strip_prefix('#').and_then(|pointer| self.root.pointer(pointer)) else { return 1 };
        self.known.insert(to, None);
        let size = self.of(target, depth + 1);
        self.known.insert(to, Some(size));
        size
    }
}

/// Makes the keyword known.
pub(crate) fn options(options: ValidationOptions<'_>) -> ValidationOptions<'_> {
    let patterns = PatternOptions::fancy_regex().backtrack_limit(MAX_BACKTRACKING);
    options.with_pattern_options(patterns).with_keyword(KEYWORD, |_, _, _| Ok(Box::new(Bound) as Box<dyn Keyword>))
}

/// The schema with the keyword wherever it may count. A reference may lead anywhere, so keys that mean nothing are gone
/// through as well.
pub(crate) fn guarded(schema: &Json) -> Json {
    match schema {
        Json::Object(entries) => {
            let own = std::iter::once((KEYWORD.to_owned(), Json::Bool(true)));
            let rest = entries.iter().map(|(key, value)| {
                let value = match (key.as_str(), value) {
                    (key, value) if DATA.contains(&key) => value.clone(),
                    (key, Json::Object(named)) if NAMED.contains(&key) => {
                        Json::Object(named.iter().map(|(name, inner)| (name.clone(), guarded(inner))).collect())
                    }
                    (_, value) => guarded(value),
                };
                (key.clone(), value)
            });
            Json::Object(own.chain(rest).collect())
        }
        Json::Array(items) => Json::Array(items.iter().map(guarded).collect()),
        other => other.clone(),
    }
}

struct Bound;

impl Keyword for Bound {
    fn validate<'i>(&self, _: &'i Json) -> Result<(), ValidationError<'i>> {
        step();
        Ok(())
    }

    fn is_valid(&self, _: &Json) -> bool {
        step();
        true
    }
}

fn step() {
    let Some(left) = LEFT.get() else { return };
    if left.steps == 0 || left.stack.abs_diff(stack()) > MAX_STACK || Instant::now() > left.until {
        resume_unwind(Box::new(Spent));
    }
    LEFT.set(Some(Left { steps: left.steps - 1, ..left }));
}

/// About where the stack is.
#[inline(never)]
fn stack() -> usize {
    let here = 0_u8;
    std::ptr::from_ref(&here).addr()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use crate::Schema;
    use crate::json::from_json_text;

    fn check(schema: &str, value: &str) -> Vec<String> {
        let schema = Schema::compile(&from_json_text(schema).unwrap()).unwrap();
        let found = schema.check(&from_json_text(value).unwrap(), "");
        found.into_iter().map(|error| error.message).collect()
    }

    #[test]
    fn a_schema_that_asks_for_endless_work_is_given_up() {
        let level = |n: u32| {
            format!(r##""l{n}": {{"anyOf": [{{"$ref": "#/$defs/l{0}"}}, {{"$ref": "#/$defs/l{0}"}}]}}"##, n + 1)
        };
        let levels: Vec<String> = (0..40).map(level).collect();
        let ladder =
            format!(r##"{{"$ref": "#/$defs/l0", "$defs": {{{}, "l40": {{"type": "string"}}}}}}"##, levels.join(","));
        // Twice the work with each level of the value.
        let twice = r##"{"allOf": [{"properties": {"a": {"$ref": "#"}}}, {"properties": {"a": {"$ref": "#"}}}]}"##;
        let nested = format!("{}1{}", r#"{"a":"#.repeat(100), "}".repeat(100));
        let refused = Schema::compile(&from_json_text(&ladder).unwrap()).unwrap_err();
        assert!(refused[0].message.contains("schemas in it"), "{refused:?}");
        let began = Instant::now();
        let found = check(twice, &nested);
        assert!(found.len() == 1 && found[0].contains("too much work"), "{found:?}");
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    }

    #[test]
    fn a_schema_that_leads_to_itself_ends() {
        for schema in [
            r##"{"$ref": "#"}"##,
            r##"{"allOf": [{"$ref": "#"}]}"##,
            r##"{"$schema": "http://json-schema.org/draft-07/schema#", "not": {"not": {"$ref": "#"}}}"##,
            r##"{"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}"##,
        ] {
            let _ = check(schema, r#"{"a": [1]}"#);
        }
    }

    #[test]
    fn what_a_schema_says_of_data_stays_as_it_is() {
        let schema = r#"{"enum": [{"a": {}}, [{}]], "default": {"x": 1}}"#;
        assert!(check(schema, r#"{"a": {}}"#).is_empty() && check(schema, "[{}]").is_empty());
        assert_eq!(check(schema, r#"{"a": 1}"#).len(), 1);
        let closed = r#"{"properties": {"a": {}}, "additionalProperties": false}"#;
        assert_eq!(check(closed, r#"{"x-postrider-bound": 1}"#).len(), 1);
    }
}
