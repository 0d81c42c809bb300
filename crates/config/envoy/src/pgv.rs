//! The schema's validation rules (`validate.rules`), read from the descriptors and checked on a [`Message`] tree.
//!
//! What it is for: what Envoy refuses because a value breaks a rule of its API, we refuse too, with the place, the path and
//! what was expected, all of them at once.
//!
//! What it must never do: report a fault twice. Values that could not be read are left out, and so is what seems to be
//! missing from a text that could not be read whole.
//!
//! Who calls it: the loader, after the overlay is merged.

mod format;
mod rules;
mod scalars;

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use postrider_config_core::{Diagnostic, Diagnostics, Span};
use prost_reflect::Kind;

use self::rules::{FieldRules, MessageRules, Rules};
use crate::coverage::join;
use crate::message::{Field, Message, Value};

/// Checks a message and everything below it. Paths in `broken` have errors already; `incomplete` says that parts of the
/// text are missing.
pub fn check(message: &Message, broken: &HashSet<String>, incomplete: bool, diagnostics: &mut Diagnostics) {
    let broken_parents = broken.iter().filter_map(|path| Some(path.rsplit_once('.')?.0)).collect();
    let mut checker = Checker { broken, broken_parents, incomplete, diagnostics, rules: HashMap::new() };
    checker.message(message, "", message.span);
}

struct Checker<'c> {
    broken: &'c HashSet<String>,
    /// Paths of messages with a broken field: a duration or wrapper written as a message is not judged by the rest of it.
    broken_parents: HashSet<&'c str>,
    incomplete: bool,
    diagnostics: &'c mut Diagnostics,
    /// By full message name. Reading rules from descriptors costs more than checking them.
    rules: HashMap<String, Rc<MessageRules>>,
}

/// Where a value is.
#[derive(Clone, Copy)]
struct Place<'p> {
    span: Option<Span>,
    path: &'p str,
}

impl Checker<'_> {
    /// `place` is where to point when something is missing: the key that opened the message, or the list element.
    fn message(&mut self, message: &Message, path: &str, place: Option<Span>) {
        // Well-known types have no rules, and a Struct may be large.
        if message.type_name().starts_with("google.protobuf.") || self.broken.contains(path) {
            return;
        }
        let rules = self.rules_of(message);
        for oneof in &rules.required_oneofs {
            let unset = message.oneof(oneof.name()).is_none();
            let broken = || oneof.fields().any(|field| self.broken.contains(&join(path, field.name())));
            if unset && !broken() {
                let members: Vec<String> = oneof.fields().map(|field| format!("`{}`", field.name())).collect();
                let text = format!("one of {} is required", in_words(&members));
                self.missing(text, Place { span: place, path });
            }
        }
        for field_rules in &rules.fields {
            self.field(message, field_rules, path, place);
        }
        for field in &message.fields {
            if !rules.skipped.contains(&field.descriptor.number()) {
                let place = field.key_span.or(field.value_span);
                self.below(&field.value, &join(path, field.descriptor.name()), place);
            }
        }
    }

    fn below(&mut self, value: &Value, path: &str, place: Option<Span>) {
        match value {
            Value::Message(message) => self.message(message, path, place),
            Value::Any(any) => any.message.iter().for_each(|message| self.message(message, path, place)),
            Value::List(items)
                if matches!(items.first().map(|item| &item.value), Some(Value::Message(_) | Value::Any(_))) =>
            {
                for (index, item) in items.iter().enumerate() {
                    self.below(&item.value, &format!("{path}[{index}]"), item.span);
                }
            }
            Value::Map(entries) => {
                for entry in entries {
                    self.below(&entry.value, &format!("{path}[{:?}]", entry.key), entry.key_span);
                }
            }
            _ => {}
        }
    }

    fn field(&mut self, message: &Message, rules: &FieldRules, path: &str, place: Option<Span>) {
        let name = rules.descriptor.name();
        let path = join(path, name);
        if self.broken.contains(&path) {
            return;
        }
        match message.field(name) {
            Some(field) => self.set_field(field, rules, &path),
            None => self.unset_field(rules, Place { span: place, path: &path }),
        }
    }

    fn set_field(&mut self, field: &Field, rules: &FieldRules, path: &str) {
        let place = Place { span: field.span(), path };
        match &field.value {
            Value::List(items) => {
                if let Some(limits) = &rules.rules.items {
                    self.count(items.len(), limits.least, limits.most, "element", place);
                    if limits.unique {
                        self.unique(items, place);
                    }
                    for (index, item) in items.iter().enumerate() {
                        let path = format!("{path}[{index}]");
                        self.value(&item.value, &limits.each, Place { span: item.span, path: &path });
                    }
                }
            }
            Value::Map(entries) => {
                if let Some(limits) = &rules.rules.pairs {
                    self.count(entries.len(), limits.least, limits.most, "entry", place);
                    for entry in entries {
                        let path = format!("{path}[{:?}]", entry.key);
                        let key = Value::String(entry.key.clone());
                        self.value(&key, &limits.keys, Place { span: entry.key_span, path: &path });
                        self.value(&entry.value, &limits.values, Place { span: entry.value_span, path: &path });
                    }
                }
            }
            value => self.value(value, &rules.rules, place),
        }
    }

    /// Rules also hold for what is not written, as its default; but not for a message, an optional field or the unset
    /// member of a oneof.
    fn unset_field(&mut self, rules: &FieldRules, place: Place<'_>) {
        let name = rules.descriptor.name();
        if rules.descriptor.containing_oneof().is_some() {
            return;
        }
        if rules.rules.required {
            return self.missing(format!("`{name}` is required"), place);
        }
        if let Some(limits) = &rules.rules.items {
            if limits.least > 0 {
                self.missing(format!("`{name}` is required: at least {}", counted(limits.least, "element")), place);
            }
            return;
        }
        if let Some(limits) = &rules.rules.pairs {
            if limits.least > 0 {
                self.missing(format!("`{name}` is required: at least {}", counted(limits.least, "entry")), place);
            }
            return;
        }
        if rules.descriptor.supports_presence() || matches!(rules.descriptor.kind(), Kind::Message(_)) {
            return;
        }
        let default = crate::load::default_of(&rules.descriptor.kind());
        if let Some(fault) = scalars::check(&default, &rules.rules) {
            let text = match fault.code {
                "rule-length" => format!("`{name}` is required"),
                _ => format!("`{name}` is required: {}", fault.expected),
            };
            self.missing(text, place);
        }
    }

    fn value(&mut self, value: &Value, rules: &Rules, place: Place<'_>) {
        if self.broken.contains(place.path)
            || (matches!(value, Value::Message(_)) && self.broken_parents.contains(place.path))
        {
            return;
        }
        if let (Value::Any(any), Some(types)) = (value, &rules.any_types) {
            if !types.is_empty() && !types.contains(&any.type_url) && any.message.is_some() {
                let text = format!("the type `{}` is not allowed here", any.type_name());
                self.broken_rule("rule-value", text, format!("one of {}", in_words(types)), place);
            }
            return;
        }
        if let Some(fault) = scalars::check(value, rules) {
            self.broken_rule(fault.code, fault.message, fault.expected, place);
        }
    }

    fn count(&mut self, count: usize, least: usize, most: Option<usize>, noun: &str, place: Place<'_>) {
        if count < least && !self.incomplete {
            let text = format!("too few: {}", counted(count, noun));
            self.broken_rule("rule-count", text, format!("at least {}", counted(least, noun)), place);
        }
        if let Some(most) = most.filter(|most| count > *most) {
            let text = format!("too many: {}", counted(count, noun));
            self.broken_rule("rule-count", text, format!("at most {}", counted(most, noun)), place);
        }
    }

    fn unique(&mut self, items: &[crate::message::Item], place: Place<'_>) {
        let mut seen = HashSet::new();
        for (index, item) in items.iter().enumerate() {
            // Values are scalars here; their debug form tells them apart.
            if !seen.insert(format!("{:?}", item.value)) {
                let path = format!("{}[{index}]", place.path);
                let (text, expected) = ("this element repeats an earlier one", "elements that differ");
                let place = Place { span: item.span, path: &path };
                self.broken_rule("rule-value", text.to_owned(), expected.to_owned(), place);
            }
        }
    }

    fn missing(&mut self, text: String, place: Place<'_>) {
        if !self.incomplete {
            self.diagnostics.push(Diagnostic::error("missing-field", text).at(place.span).path(place.path));
        }
    }

    fn broken_rule(&mut self, code: &'static str, text: String, expected: String, place: Place<'_>) {
        self.diagnostics.push(Diagnostic::error(code, text).at(place.span).path(place.path).expected(expected));
    }

    fn rules_of(&mut self, message: &Message) -> Rc<MessageRules> {
        if let Some(rules) = self.rules.get(message.type_name()) {
            return Rc::clone(rules);
        }
        let rules = Rc::new(MessageRules::of(&message.descriptor));
        self.rules.insert(message.type_name().to_owned(), Rc::clone(&rules));
        rules
    }
}

/// `1 element`, `2 elements`.
fn counted(n: usize, noun: &str) -> String {
    match (n, noun) {
        (1, noun) => format!("1 {noun}"),
        (n, "entry") => format!("{n} entries"),
        (n, noun) => format!("{n} {noun}s"),
    }
}

/// `a`, `b` and `c`, with "or".
fn in_words(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}
