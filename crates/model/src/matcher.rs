//! Conditions on strings, headers and query parameters.

use std::ops::Deref;

use crate::Value;

/// A compiled regular expression that compares by its text.
#[derive(Debug, Clone)]
pub struct Regex(regex::Regex);

impl Regex {
    /// The most memory one compiled expression may take, so that a hostile configuration cannot exhaust the machine.
    const SIZE_LIMIT: usize = 10 << 20;

    /// # Errors
    /// What is wrong with the expression, for the person who wrote it.
    pub fn new(pattern: &str) -> Result<Regex, String> {
        regex::RegexBuilder::new(pattern)
            .size_limit(Regex::SIZE_LIMIT)
            .build()
            .map(Regex)
            .map_err(|error| error.to_string())
    }

    /// The whole of `text` matches, not just a part of it.
    pub fn matches_whole(&self, text: &str) -> bool {
        // Leftmost-first may stop at a shorter alternative, so a miss here is not the last word.
        self.0.find(text).is_some_and(|found| found.start() == 0 && found.end() == text.len())
            || self.matches_whole_by_longest(text)
    }

    fn matches_whole_by_longest(&self, text: &str) -> bool {
        // Reached only when the preferred alternative is not the whole text (`a|ab` on `ab`): rare, so compile then.
        self.0.is_match(text)
            && regex::Regex::new(&format!("^(?:{})$", self.0.as_str())).is_ok_and(|whole| whole.is_match(text))
    }
}

impl Regex {
    /// Appends `text` with every match replaced: `\0` is the match, `\1` to `\9` are its groups, `\\` is a backslash.
    pub fn substitute(&self, substitution: &str, text: &str, out: &mut Vec<u8>) {
        let mut end = 0;
        for captures in self.0.captures_iter(text) {
            let Some(whole) = captures.get(0) else { continue };
            out.extend_from_slice(text.get(end..whole.start()).unwrap_or_default().as_bytes());
            let group = |number: usize| captures.get(number).map_or(&b""[..], |group| group.as_str().as_bytes());
            expand(substitution, group, out);
            end = whole.end();
        }
        out.extend_from_slice(text.get(end..).unwrap_or_default().as_bytes());
    }
}

fn expand<'t>(substitution: &str, group: impl Fn(usize) -> &'t [u8], out: &mut Vec<u8>) {
    let mut bytes = substitution.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        match bytes.next() {
            Some(digit @ b'0'..=b'9') => out.extend_from_slice(group(usize::from(digit - b'0'))),
            Some(other) => out.push(other),
            None => out.push(b'\\'),
        }
    }
}

impl Deref for Regex {
    type Target = regex::Regex;

    fn deref(&self) -> &regex::Regex {
        &self.0
    }
}

impl PartialEq for Regex {
    fn eq(&self, other: &Regex) -> bool {
        self.0.as_str() == other.0.as_str()
    }
}

/// A condition on a string.
#[derive(Debug, Clone, PartialEq)]
pub struct StringMatch {
    pub kind: StringKind,
    pub ignore_case: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub enum StringKind {
    Exact(String),
    Prefix(String),
    Suffix(String),
    Contains(String),
    /// The whole string must match.
    Regex(Regex),
    /// A plugin says so. `kind` is the full name of the configuration's type; whoever runs such plugins finds it by that.
    Custom {
        kind: String,
        config: Value,
    },
}

impl StringMatch {
    pub fn matches(&self, text: &str) -> bool {
        match (&self.kind, self.ignore_case) {
            (StringKind::Exact(want), false) => text == want,
            (StringKind::Exact(want), true) => text.eq_ignore_ascii_case(want),
            (StringKind::Prefix(want), false) => text.starts_with(want.as_str()),
            (StringKind::Prefix(want), true) => {
                text.as_bytes().get(..want.len()).is_some_and(|head| head.eq_ignore_ascii_case(want.as_bytes()))
            }
            (StringKind::Suffix(want), false) => text.ends_with(want.as_str()),
            (StringKind::Suffix(want), true) => text
                .len()
                .checked_sub(want.len())
                .and_then(|start| text.as_bytes().get(start..))
                .is_some_and(|tail| tail.eq_ignore_ascii_case(want.as_bytes())),
            (StringKind::Contains(want), false) => text.contains(want.as_str()),
            (StringKind::Contains(want), true) => {
                want.is_empty()
                    || text.as_bytes().windows(want.len()).any(|part| part.eq_ignore_ascii_case(want.as_bytes()))
            }
            (StringKind::Regex(regex), _) => regex.matches_whole(text),
            // Nothing here runs code: who cannot ask the plugin has no match.
            (StringKind::Custom { .. }, _) => false,
        }
    }
}

/// A condition on a request header. Each line of the name is compared by itself.
#[derive(Debug, Clone, PartialEq)]
pub struct HeaderMatch {
    /// Lower case; `:method`, `:path`, `:authority` and `:scheme` mean those parts.
    pub name: String,
    pub condition: HeaderCondition,
    pub invert: bool,
    /// An absent header counts as an empty one instead of failing the match.
    pub treat_missing_as_empty: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub enum HeaderCondition {
    /// Present (`true`) or absent (`false`).
    Present(bool),
    Value(StringMatch),
    /// A decimal integer in `start..end`.
    Range {
        start: i64,
        end: i64,
    },
}

impl HeaderMatch {
    /// `lines` are the values of the header's lines; one that meets the condition is enough.
    pub fn matches(&self, lines: &[&str]) -> bool {
        let lines = if lines.is_empty() && self.treat_missing_as_empty { &[""] } else { lines };
        let met = match &self.condition {
            HeaderCondition::Present(wanted) => return (lines.is_empty() != *wanted) != self.invert,
            // An absent header never meets a condition on its value, inverted or not: HeaderMatcher.invert_match turns
            // round a comparison, and here there was none.
            _ if lines.is_empty() => return false,
            HeaderCondition::Value(condition) => lines.iter().any(|line| condition.matches(line)),
            HeaderCondition::Range { start, end } => {
                lines.iter().any(|line| line.parse::<i64>().is_ok_and(|number| (*start..*end).contains(&number)))
            }
        };
        met != self.invert
    }
}

/// A condition on a cookie; the first of that name counts, without quotes around its value. An absent one does not meet it.
#[derive(Debug, Clone, PartialEq)]
pub struct CookieMatch {
    pub name: String,
    pub condition: StringMatch,
    pub invert: bool,
}

/// A condition on a query parameter; the first of that name counts.
#[derive(Debug, Clone, PartialEq)]
pub struct QueryMatch {
    pub name: String,
    pub condition: QueryCondition,
}

#[derive(Debug, Clone, PartialEq)]
pub enum QueryCondition {
    Present(bool),
    Value(StringMatch),
}

impl QueryMatch {
    /// `value` is `None` when the query lacks the parameter; one without `=` has an empty value.
    pub fn matches(&self, value: Option<&str>) -> bool {
        match &self.condition {
            QueryCondition::Present(wanted) => value.is_some() == *wanted,
            QueryCondition::Value(condition) => value.is_some_and(|value| condition.matches(value)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(kind: StringKind, ignore_case: bool) -> StringMatch {
        StringMatch { kind, ignore_case }
    }

    #[test]
    fn strings_match_by_each_kind_with_and_without_case() {
        assert!(value(StringKind::Exact("Ab".into()), true).matches("aB"));
        assert!(!value(StringKind::Exact("Ab".into()), false).matches("ab"));
        assert!(value(StringKind::Prefix("Ab".into()), true).matches("abc"));
        assert!(!value(StringKind::Prefix("abc".into()), true).matches("ab"));
        assert!(value(StringKind::Suffix("BC".into()), true).matches("abc"));
        assert!(!value(StringKind::Suffix("abcd".into()), true).matches("abc"));
        assert!(value(StringKind::Contains("B".into()), true).matches("abc"));
        assert!(!value(StringKind::Contains("x".into()), true).matches("abc"));
        assert!(value(StringKind::Contains(String::new()), true).matches(""));
    }

    #[test]
    fn what_a_plugin_decides_does_not_match_without_it() {
        let custom = StringKind::Custom { kind: "acme.Matcher".into(), config: Value::Null };
        assert!(!value(custom, false).matches(""));
    }

    #[test]
    fn a_regex_matches_the_whole_text_even_by_a_later_alternative() {
        let regex = Regex::new("a|ab").unwrap();
        assert!(regex.matches_whole("ab"));
        assert!(regex.matches_whole("a"));
        assert!(!regex.matches_whole("abc"));
        assert!(Regex::new("(").is_err());
    }

    #[test]
    fn header_conditions_follow_presence_inversion_and_missing_as_empty() {
        let mut condition = HeaderMatch {
            name: "x".into(),
            condition: HeaderCondition::Value(value(StringKind::Exact("1".into()), false)),
            invert: false,
            treat_missing_as_empty: false,
        };
        assert!(condition.matches(&["1"]) && !condition.matches(&["2"]) && !condition.matches(&[]));
        condition.invert = true;
        assert!(!condition.matches(&["1"]) && condition.matches(&["2"]) && !condition.matches(&[]));
        condition.condition = HeaderCondition::Range { start: -10, end: 0 };
        condition.invert = false;
        assert!(condition.matches(&["-1"]) && !condition.matches(&["0"]) && !condition.matches(&["x"]));
        condition.condition = HeaderCondition::Present(true);
        condition.treat_missing_as_empty = true;
        assert!(condition.matches(&[]));
        let invert = |invert| HeaderMatch { condition: HeaderCondition::Present(true), invert, ..condition.clone() };
        assert!(invert(false).matches(&["a", "b"]) && !invert(true).matches(&["a"]));
    }
}
