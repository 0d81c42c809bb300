//! Reading configurations that are wide: each value is asked for once, every error is kept, and what nobody asked for is
//! one.

use std::time::Duration;

use crate::{
    Cidr, Fields, HeaderCondition, HeaderMatch, QueryCondition, QueryMatch, Regex, StringKind, StringMatch, Value,
    ValueError,
};

/// A map that is being read.
#[derive(Debug)]
pub struct Reading<'v> {
    fields: Fields<'v>,
    errors: Vec<ValueError>,
}

/// A share: so many units.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Fraction {
    pub numerator: u32,
    /// In parts per million: 10,000 is a percent.
    pub unit: u32,
}

impl Fraction {
    /// At most a million.
    pub fn parts_per_million(self) -> u32 {
        self.numerator.saturating_mul(self.unit).min(1_000_000)
    }
}

impl<'v> Reading<'v> {
    /// Reads a whole configuration.
    ///
    /// # Errors
    /// All that is wrong with it.
    pub fn all<T>(value: &'v Value, read: impl FnOnce(&mut Reading<'v>) -> T) -> Result<T, Vec<ValueError>> {
        let mut reading = Reading::of(value.fields().map_err(|error| vec![error])?);
        let made = read(&mut reading);
        let errors = reading.end();
        if errors.is_empty() { Ok(made) } else { Err(errors) }
    }

    fn of(fields: Fields<'v>) -> Reading<'v> {
        Reading { fields, errors: Vec::new() }
    }

    fn end(self) -> Vec<ValueError> {
        let Reading { fields, mut errors } = self;
        errors.extend(fields.finish().err().into_iter().flatten());
        errors
    }

    fn keep<T>(&mut self, result: Result<Option<T>, ValueError>) -> Option<T> {
        result.map_err(|error| self.errors.push(error)).ok().flatten()
    }

    /// Whether something is written.
    pub fn has(&mut self, key: &str) -> bool {
        self.fields.value(key).is_some_and(|value| *value != Value::Null)
    }

    /// The value as it is.
    pub fn value(&mut self, key: &str) -> Option<&'v Value> {
        self.fields.value(key)
    }

    /// What is written here, by name.
    pub fn keys(&self) -> impl Iterator<Item = &'v str> + use<'v> {
        self.fields.keys()
    }

    /// Where this map stands; empty at the top.
    pub fn path(&self) -> &str {
        self.fields.path()
    }

    /// Takes everything for read: an error says why nobody looks at it.
    pub fn skip(&mut self) {
        self.fields.skip();
    }

    /// A text; an empty one is none.
    pub fn text(&mut self, key: &str) -> Option<&'v str> {
        let text = self.fields.string(key);
        self.keep(text).filter(|text| !text.is_empty())
    }

    /// A text that may be empty: `exact: ""` is a condition as any other.
    fn written(&mut self, key: &str) -> Option<&'v str> {
        let text = self.fields.string(key);
        self.keep(text)
    }

    /// False where nothing is written.
    pub fn flag(&mut self, key: &str) -> bool {
        self.bool(key).unwrap_or(false)
    }

    /// As written, if it is.
    pub fn bool(&mut self, key: &str) -> Option<bool> {
        let value = self.fields.bool(key);
        self.keep(value)
    }

    /// A whole number from zero.
    pub fn number(&mut self, key: &str) -> Option<u64> {
        let number = self.whole(key)?;
        match u64::try_from(number) {
            Ok(number) => Some(number),
            Err(_) => {
                self.error(key, format!("{number} is below zero"));
                None
            }
        }
    }

    /// A number that may be below zero.
    pub fn whole(&mut self, key: &str) -> Option<i64> {
        // In JSON, numbers of 64 bits are texts.
        if let Some(Value::String(text)) = self.fields.value(key)
            && let Ok(number) = text.parse()
        {
            return Some(number);
        }
        let value = self.fields.integer(key);
        self.keep(value)
    }

    /// A duration such as `0.25s`.
    pub fn duration(&mut self, key: &str) -> Option<Duration> {
        let value = self.fields.duration(key);
        self.keep(value)
    }

    /// A map, if there is one.
    pub fn map<T>(&mut self, key: &str, read: impl FnOnce(&mut Reading<'v>) -> T) -> Option<T> {
        let fields = self.fields.map(key);
        let mut inner = Reading::of(self.keep(fields)?);
        let made = read(&mut inner);
        self.errors.extend(inner.end());
        Some(made)
    }

    /// A map for a reader that wants it raw.
    pub fn raw<T>(&mut self, key: &str, read: impl FnOnce(Fields<'v>) -> Result<T, Vec<ValueError>>) -> Option<T> {
        let fields = self.fields.map(key);
        let made = read(self.keep(fields)?);
        made.map_err(|errors| self.errors.extend(errors)).ok()
    }

    /// Each map of a list.
    pub fn each<T>(&mut self, key: &str, mut read: impl FnMut(&mut Reading<'v>) -> T) -> Vec<T> {
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

    /// A list of texts.
    pub fn texts(&mut self, key: &str) -> Vec<String> {
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
    pub fn text_map(&mut self, key: &str) -> Vec<(String, String)> {
        match self.fields.value(key) {
            Some(Value::Map(entries)) => {
                let text = |value: &Value| if let Value::String(text) = value { text.clone() } else { String::new() };
                entries.iter().map(|(key, value)| (key.clone(), text(value))).collect()
            }
            _ => Vec::new(),
        }
    }

    /// An error at a value.
    pub fn error(&mut self, key: &str, message: impl Into<String>) {
        self.errors.push(self.fields.error(key, message));
    }

    /// An error of the whole map.
    pub fn wrong(&mut self, message: impl Into<String>) {
        self.errors.push(ValueError { path: self.fields.path().to_owned(), message: message.into() });
    }

    /// Refuses a field by name.
    pub fn refuse(&mut self, key: &str, what: &str) {
        if self.has(key) {
            self.error(key, format!("{what}: not supported by Postrider"));
        }
    }

    /// A share (`RuntimeFractionalPercent`) in parts per million. What a runtime key says stands in place of the default value already.
    pub fn parts_per_million(&mut self, key: &str) -> Option<u32> {
        self.map(key, |runtime| {
            runtime.text("runtime_key");
            runtime.fraction("default_value").unwrap_or_default().parts_per_million()
        })
    }

    /// A share (`FractionalPercent`).
    pub fn fraction(&mut self, key: &str) -> Option<Fraction> {
        self.map(key, |percent| Fraction {
            numerator: u32::try_from(percent.number("numerator").unwrap_or(0)).unwrap_or(u32::MAX),
            unit: match percent.text("denominator") {
                Some("TEN_THOUSAND") => 100,
                Some("MILLION") => 1,
                _ => 10_000,
            },
        })
    }

    /// `ListStringMatcher`.
    pub fn string_matches(&mut self, key: &str) -> Option<Vec<StringMatch>> {
        self.map(key, |list| list.each("patterns", string_match).into_iter().flatten().collect())
    }
}

/// Why `ignore_case` does not go with `safe_regex`.
pub const CASE_OF_REGEX: &str = "a regular expression says itself that case does not matter: `(?i)` at its beginning";

/// `StringMatcher`.
pub fn string_match(at: &mut Reading<'_>) -> Option<StringMatch> {
    type Make = fn(String) -> StringKind;
    const KINDS: [(&str, Make); 4] = [
        ("exact", StringKind::Exact),
        ("prefix", StringKind::Prefix),
        ("suffix", StringKind::Suffix),
        ("contains", StringKind::Contains),
    ];
    let ignore_case = at.flag("ignore_case");
    let mut found: Vec<StringKind> =
        KINDS.iter().filter_map(|(key, make)| at.written(key).map(|text| make(text.to_owned()))).collect();
    let mut broken = false;
    if let Some(regex) = at.map("safe_regex", regex) {
        if ignore_case {
            at.error("ignore_case", CASE_OF_REGEX);
        }
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

/// `RegexMatcher`.
pub fn regex(at: &mut Reading<'_>) -> Option<Regex> {
    // The engine is named by an empty message, or by nothing.
    at.map("google_re2", |_| ());
    let text = at.text("regex").unwrap_or_default();
    Regex::new(text).map_err(|message| at.error("regex", message)).ok()
}

/// `HeaderMatcher`; without a condition the header must be present.
pub fn header_match(at: &mut Reading<'_>) -> Option<HeaderMatch> {
    let name = match at.text("name").unwrap_or_default().to_ascii_lowercase() {
        name if name == "host" => ":authority".to_owned(),
        name => name,
    };
    if name.is_empty() {
        at.error("name", "the name of a header is required");
    }
    type Make = fn(String) -> StringKind;
    const OLDER: [(&str, Make); 4] = [
        ("exact_match", StringKind::Exact),
        ("prefix_match", StringKind::Prefix),
        ("suffix_match", StringKind::Suffix),
        ("contains_match", StringKind::Contains),
    ];
    let mut found = Vec::new();
    found.extend(at.bool("present_match").map(HeaderCondition::Present));
    let matched = at.map("string_match", string_match);
    let broken = matches!(matched, Some(None));
    found.extend(matched.flatten().map(HeaderCondition::Value));
    for (key, make) in OLDER {
        let kind = at.text(key).map(|text| make(text.to_owned()));
        found.extend(kind.map(|kind| HeaderCondition::Value(StringMatch { kind, ignore_case: false })));
    }
    let expression = at.map("safe_regex_match", regex).flatten().map(StringKind::Regex);
    found.extend(expression.map(|kind| HeaderCondition::Value(StringMatch { kind, ignore_case: false })));
    found.extend(at.map("range_match", |range| HeaderCondition::Range {
        start: range.whole("start").unwrap_or(0),
        end: range.whole("end").unwrap_or(0),
    }));
    if found.len() > 1 {
        at.wrong("one condition at most is wanted");
    }
    let invert = at.flag("invert_match");
    let treat_missing_as_empty = at.flag("treat_missing_header_as_empty");
    let condition = found.pop().unwrap_or(HeaderCondition::Present(true));
    (!broken).then_some(HeaderMatch { name, condition, invert, treat_missing_as_empty })
}

/// `QueryParameterMatcher`; without a condition the parameter must be present.
pub fn query_match(at: &mut Reading<'_>) -> Option<QueryMatch> {
    let name = at.text("name").unwrap_or_default().to_owned();
    let present = at.bool("present_match").map(QueryCondition::Present);
    let condition = match at.map("string_match", string_match) {
        Some(condition) => QueryCondition::Value(condition?),
        None => present.unwrap_or(QueryCondition::Present(true)),
    };
    Some(QueryMatch { name, condition })
}

/// `CidrRange`.
pub fn network(at: &mut Reading<'_>) -> Option<Cidr> {
    let address = at.text("address_prefix").unwrap_or_default();
    let length = at.number("prefix_len").unwrap_or(0);
    let network = address.parse().ok().zip(u8::try_from(length).ok()).and_then(|(ip, length)| Cidr::new(ip, length));
    if network.is_none() {
        at.wrong(format!("{address}/{length} is no network"));
    }
    network
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_is_kept_with_its_place() {
        let text = |text: &str| Value::String(text.into());
        let inner = Value::Map(vec![("x".into(), Value::Integer(-1)), ("odd".into(), Value::Bool(true))]);
        let value = Value::Map(vec![
            ("name".into(), Value::Bool(true)),
            ("list".into(), Value::List(vec![inner])),
            ("patterns".into(), Value::List(vec![Value::Map(vec![("exact".into(), text("a"))])])),
        ]);
        let errors = Reading::all(&value, |at| {
            assert_eq!(at.text("name"), None);
            assert_eq!(at.each("list", |item| item.number("x")), [None]);
            assert_eq!(at.each("patterns", string_match).len(), 1);
        });
        let paths: Vec<String> = errors.unwrap_err().into_iter().map(|error| error.path).collect();
        assert_eq!(paths, ["name", "list[0].x", "list[0].odd"]);
    }

    #[test]
    fn the_case_of_a_regular_expression_is_its_own_matter() {
        let regex = Value::Map(vec![("regex".into(), Value::String("a".into()))]);
        let matcher = |ignore_case: bool| {
            Value::Map(vec![("safe_regex".into(), regex.clone()), ("ignore_case".into(), Value::Bool(ignore_case))])
        };
        let errors = Reading::all(&matcher(true), string_match).unwrap_err();
        assert_eq!(errors.iter().map(|error| error.path.as_str()).collect::<Vec<_>>(), ["ignore_case"]);
        assert!(Reading::all(&matcher(false), string_match).unwrap().is_some());
    }
}
