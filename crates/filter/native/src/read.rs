//! Reading configurations that are wide: each value is asked for once, every error is kept, and what nobody asked for is
//! one.

use std::time::Duration;

use postrider_filter_api::ConfigError;
use postrider_grpc::core::StatusCode;
use postrider_http::HeaderName;
use postrider_model::{Fields, Regex, StringKind, StringMatch, Value, ValueError};

/// A map that is being read.
pub(crate) struct Reading<'v> {
    fields: Fields<'v>,
    errors: ConfigError,
}

impl<'v> Reading<'v> {
    /// Reads a whole configuration.
    ///
    /// # Errors
    /// All that is wrong with it.
    pub(crate) fn all<T>(value: &'v Value, read: impl FnOnce(&mut Reading<'v>) -> T) -> Result<T, ConfigError> {
        let mut reading = Reading::of(value.fields().map_err(|error| vec![error])?);
        let made = read(&mut reading);
        let errors = reading.end();
        if errors.is_empty() { Ok(made) } else { Err(errors) }
    }

    fn of(fields: Fields<'v>) -> Reading<'v> {
        Reading { fields, errors: Vec::new() }
    }

    fn end(self) -> ConfigError {
        let Reading { fields, mut errors } = self;
        errors.extend(fields.finish().err().into_iter().flatten());
        errors
    }

    fn keep<T>(&mut self, result: Result<Option<T>, ValueError>) -> Option<T> {
        result.map_err(|error| self.errors.push(error)).ok().flatten()
    }

    pub(crate) fn has(&mut self, key: &str) -> bool {
        self.fields.value(key).is_some_and(|value| *value != Value::Null)
    }

    /// The value as it is.
    pub(crate) fn value(&mut self, key: &str) -> Option<&'v Value> {
        self.fields.value(key)
    }

    /// A text; an empty one is none.
    pub(crate) fn text(&mut self, key: &str) -> Option<&'v str> {
        let text = self.fields.string(key);
        self.keep(text).filter(|text| !text.is_empty())
    }

    pub(crate) fn flag(&mut self, key: &str) -> bool {
        self.bool(key).unwrap_or(false)
    }

    pub(crate) fn bool(&mut self, key: &str) -> Option<bool> {
        let value = self.fields.bool(key);
        self.keep(value)
    }

    pub(crate) fn number(&mut self, key: &str) -> Option<u64> {
        let value = self.fields.integer(key);
        let number = self.keep(value)?;
        match u64::try_from(number) {
            Ok(number) => Some(number),
            Err(_) => {
                self.error(key, format!("{number} is below zero"));
                None
            }
        }
    }

    pub(crate) fn duration(&mut self, key: &str) -> Option<Duration> {
        let value = self.fields.duration(key);
        self.keep(value)
    }

    pub(crate) fn map<T>(&mut self, key: &str, read: impl FnOnce(&mut Reading<'v>) -> T) -> Option<T> {
        let fields = self.fields.map(key);
        let mut inner = Reading::of(self.keep(fields)?);
        let made = read(&mut inner);
        self.errors.extend(inner.end());
        Some(made)
    }

    /// A map for a reader that wants it raw.
    pub(crate) fn raw<T>(&mut self, key: &str, read: impl FnOnce(Fields<'v>) -> Result<T, ConfigError>) -> Option<T> {
        let fields = self.fields.map(key);
        let made = read(self.keep(fields)?);
        made.map_err(|errors| self.errors.extend(errors)).ok()
    }

    pub(crate) fn each<T>(&mut self, key: &str, mut read: impl FnMut(&mut Reading<'v>) -> T) -> Vec<T> {
        let items = self.fields.maps(key).map(Some);
        let items = self.keep(items).unwrap_or_default();
        items
            .into_iter()
            .map(|fields| {
                let mut inner = Reading::of(fields);
                let made = read(&mut inner);
                self.errors.extend(inner.end());
                made
            })
            .collect()
    }

    pub(crate) fn texts(&mut self, key: &str) -> Vec<String> {
        let items = self.fields.list(key).map(Some);
        let items = self.keep(items).unwrap_or_default();
        let mut all = Vec::new();
        for (path, item) in items {
            match item {
                Value::String(text) => all.push(text.clone()),
                _ => self.errors.push(ValueError { path, message: "expected a string".to_owned() }),
            }
        }
        all
    }

    /// Texts by their keys.
    pub(crate) fn text_map(&mut self, key: &str) -> Vec<(String, String)> {
        match self.fields.value(key) {
            Some(Value::Map(entries)) => {
                let text = |value: &Value| if let Value::String(text) = value { text.clone() } else { String::new() };
                entries.iter().map(|(key, value)| (key.clone(), text(value))).collect()
            }
            _ => Vec::new(),
        }
    }

    pub(crate) fn error(&mut self, key: &str, message: impl Into<String>) {
        self.errors.push(self.fields.error(key, message));
    }

    /// An error of the whole map.
    pub(crate) fn wrong(&mut self, message: impl Into<String>) {
        self.errors.push(ValueError { path: self.fields.path().to_owned(), message: message.into() });
    }

    /// Refuses a field by name.
    pub(crate) fn refuse(&mut self, key: &str, what: &str) {
        if self.has(key) {
            self.error(key, format!("{what}: not supported by Postrider"));
        }
    }

    /// A field name.
    pub(crate) fn header(&mut self, key: &str) -> Option<HeaderName> {
        let text = self.text(key)?;
        match HeaderName::new(text.as_bytes()) {
            Ok(name) => Some(name),
            Err(_) => {
                self.error(key, format!("\"{text}\" is no header name"));
                None
            }
        }
    }

    /// `envoy.type.v3.HttpStatus`.
    pub(crate) fn status(&mut self, key: &str) -> Option<u16> {
        self.map(key, |status| {
            let name = status.text("code")?;
            let code = StatusCode::from_str_name(name).and_then(|code| u16::try_from(code as i32).ok());
            if code.is_none() {
                status.error("code", format!("\"{name}\" is no status"));
            }
            code
        })
        .flatten()
    }

    /// `envoy.config.core.v3.RuntimeFractionalPercent` in parts per million. No runtime key overrides the default value.
    pub(crate) fn parts_per_million(&mut self, key: &str) -> Option<u32> {
        self.map(key, |runtime| {
            runtime.text("runtime_key");
            let parts = runtime.map("default_value", |percent| {
                let numerator = percent.number("numerator").unwrap_or(0);
                let factor = match percent.text("denominator") {
                    Some("TEN_THOUSAND") => 100,
                    Some("MILLION") => 1,
                    _ => 10_000,
                };
                u32::try_from(numerator.saturating_mul(factor).min(1_000_000)).unwrap_or(1_000_000)
            });
            parts.unwrap_or(0)
        })
    }

    /// `envoy.type.matcher.v3.ListStringMatcher`.
    pub(crate) fn string_matches(&mut self, key: &str) -> Option<Vec<StringMatch>> {
        self.map(key, |list| list.each("patterns", string_match).into_iter().flatten().collect())
    }
}

/// `envoy.type.matcher.v3.StringMatcher`.
pub(crate) fn string_match(at: &mut Reading<'_>) -> Option<StringMatch> {
    type Make = fn(String) -> StringKind;
    const KINDS: [(&str, Make); 4] = [
        ("exact", StringKind::Exact),
        ("prefix", StringKind::Prefix),
        ("suffix", StringKind::Suffix),
        ("contains", StringKind::Contains),
    ];
    let ignore_case = at.flag("ignore_case");
    let mut found: Vec<StringKind> =
        KINDS.iter().filter_map(|(key, make)| at.text(key).map(|text| make(text.to_owned()))).collect();
    let mut broken = false;
    if let Some(regex) = at.map("safe_regex", regex) {
        broken = regex.is_none();
        found.extend(regex.map(StringKind::Regex));
    }
    at.refuse("custom", "matching by an extension");
    if broken || at.has("custom") {
        return None;
    }
    match (found.pop(), found.is_empty()) {
        (Some(kind), true) => Some(StringMatch { kind, ignore_case }),
        _ => {
            at.wrong("exactly one of exact, prefix, suffix, contains and safe_regex is wanted");
            None
        }
    }
}

/// `envoy.type.matcher.v3.RegexMatcher`.
pub(crate) fn regex(at: &mut Reading<'_>) -> Option<Regex> {
    // The engine is named by an empty message, or by nothing.
    at.map("google_re2", |_| ());
    let text = at.text("regex").unwrap_or_default();
    Regex::new(text).map_err(|message| at.error("regex", message)).ok()
}
