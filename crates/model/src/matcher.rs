//! Conditions on strings, headers and query parameters.

use std::ops::Deref;

use crate::Value;

/// A compiled regular expression that compares by its text.
///
/// Envoy's engine takes texts for ISO 8859-1: a dot is one byte, whatever it is, and `\w`, `\d`, `\s` and `\b` know ASCII alone.
#[derive(Debug, Clone)]
pub struct Regex {
    compiled: regex::bytes::Regex,
    unicode: bool,
}

impl Regex {
    /// The most memory one compiled expression may take, so that a hostile configuration cannot exhaust the machine.
    const SIZE_LIMIT: usize = 10 << 20;

    /// One that looks at bytes. Where the pattern itself has classes of Unicode, it looks at characters.
    ///
    /// # Errors
    /// What is wrong with the expression, for the person who wrote it.
    pub fn new(pattern: &str) -> Result<Regex, String> {
        Regex::compile(pattern, false).or_else(|_| Regex::of_characters(pattern))
    }

    /// One that looks at characters, as expressions of CEL do.
    ///
    /// # Errors
    /// As [`Regex::new`].
    pub fn of_characters(pattern: &str) -> Result<Regex, String> {
        Regex::compile(pattern, true).map_err(|error| error.to_string())
    }

    fn compile(pattern: &str, unicode: bool) -> Result<Regex, regex::Error> {
        let mut builder = regex::bytes::RegexBuilder::new(pattern);
        let compiled = builder.unicode(unicode).size_limit(Regex::SIZE_LIMIT).build()?;
        Ok(Regex { compiled, unicode })
    }

    /// It looks at characters, not at bytes.
    pub fn is_unicode(&self) -> bool {
        self.unicode
    }

    /// A part of `text` matches.
    pub fn is_match(&self, text: impl AsRef<[u8]>) -> bool {
        self.compiled.is_match(text.as_ref())
    }

    /// The whole of `text` matches, not just a part of it.
    pub fn matches_whole(&self, text: impl AsRef<[u8]>) -> bool {
        let text = text.as_ref();
        // Leftmost-first may stop at a shorter alternative, so a miss here is not the last word.
        self.compiled.find(text).is_some_and(|found| found.start() == 0 && found.end() == text.len())
            || self.matches_whole_by_longest(text)
    }

    fn matches_whole_by_longest(&self, text: &[u8]) -> bool {
        // Reached only when the preferred alternative is not the whole text (`a|ab` on `ab`): rare, so compile then.
        self.compiled.is_match(text)
            && Regex::compile(&format!("^(?:{})$", self.as_str()), self.unicode).is_ok_and(|whole| whole.is_match(text))
    }

    /// Appends `text` with every match replaced: `\0` is the match, `\1` to `\9` are its groups, `\\` is a backslash.
    pub fn substitute(&self, substitution: &str, text: &[u8], out: &mut Vec<u8>) {
        let mut end = 0;
        for captures in self.compiled.captures_iter(text) {
            let Some(whole) = captures.get(0) else { continue };
            out.extend_from_slice(text.get(end..whole.start()).unwrap_or_default());
            let group = |number: usize| captures.get(number).map_or(&b""[..], |group| group.as_bytes());
            expand(substitution, group, out);
            end = whole.end();
        }
        out.extend_from_slice(text.get(end..).unwrap_or_default());
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
    type Target = regex::bytes::Regex;

    fn deref(&self) -> &regex::bytes::Regex {
        &self.compiled
    }
}

impl PartialEq for Regex {
    fn eq(&self, other: &Regex) -> bool {
        self.as_str() == other.as_str() && self.unicode == other.unicode
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
    pub fn matches(&self, text: impl AsRef<[u8]>) -> bool {
        let text = text.as_ref();
        let equal = |part: &[u8], want: &str| match self.ignore_case {
            false => part == want.as_bytes(),
            true => part.eq_ignore_ascii_case(want.as_bytes()),
        };
        match &self.kind {
            StringKind::Exact(want) => equal(text, want),
            StringKind::Prefix(want) => text.get(..want.len()).is_some_and(|head| equal(head, want)),
            StringKind::Suffix(want) => {
                let tail = text.len().checked_sub(want.len()).and_then(|start| text.get(start..));
                tail.is_some_and(|tail| equal(tail, want))
            }
            StringKind::Contains(want) => want.is_empty() || text.windows(want.len()).any(|part| equal(part, want)),
            StringKind::Regex(regex) => regex.matches_whole(text),
            // Nothing here runs code: who cannot ask the plugin has no match.
            StringKind::Custom { .. } => false,
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
    pub fn matches(&self, lines: &[impl AsRef<[u8]>]) -> bool {
        let any = |met: &dyn Fn(&[u8]) -> bool| match lines {
            [] => met(b""),
            lines => lines.iter().any(|line| met(line.as_ref())),
        };
        let is_there = !lines.is_empty() || self.treat_missing_as_empty;
        let met = match &self.condition {
            HeaderCondition::Present(wanted) => return (is_there == *wanted) != self.invert,
            // An absent header never meets a condition on its value, inverted or not: HeaderMatcher.invert_match turns
            // round a comparison, and here there was none.
            _ if !is_there => return false,
            HeaderCondition::Value(condition) => any(&|line| condition.matches(line)),
            HeaderCondition::Range { start, end } => any(&|line| {
                let number = std::str::from_utf8(line).ok().and_then(|line| line.parse::<i64>().ok());
                number.is_some_and(|number| (*start..*end).contains(&number))
            }),
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
    fn a_regex_looks_at_bytes_as_envoys_does() {
        for (pattern, text, expected) in [
            (".*", &b"\xe9"[..], true),
            (".", b"\xe9", true),
            ("[^a]", b"\xff", true),
            ("x[^z]y", b"x\xe9y", true),
            ("x[^z]y", "xéy".as_bytes(), false),
            ("..", "é".as_bytes(), true),
            ("é", "é".as_bytes(), true),
            (r"\xe9", b"\xe9", true),
            (r"\W", b"\xe9", true),
            (r"\d", "٣".as_bytes(), false),
            (r"[\x80-\xff]+", b"\xc0\xaf", true),
            (".{2}", b"\xe9\xe9", true),
        ] {
            assert_eq!(Regex::new(pattern).unwrap().matches_whole(text), expected, "{pattern} on {text:?}");
        }
        assert!(Regex::new(r"\p{Greek}").unwrap().matches_whole("α"), "what bytes cannot say is said of characters");
        assert!(Regex::of_characters(".").unwrap().matches_whole("é"));
    }

    #[test]
    fn header_conditions_follow_presence_inversion_and_missing_as_empty() {
        let absent: &[&str] = &[];
        let mut condition = HeaderMatch {
            name: "x".into(),
            condition: HeaderCondition::Value(value(StringKind::Exact("1".into()), false)),
            invert: false,
            treat_missing_as_empty: false,
        };
        assert!(condition.matches(&["1"]) && !condition.matches(&["2"]) && !condition.matches(absent));
        condition.invert = true;
        assert!(!condition.matches(&["1"]) && condition.matches(&["2"]) && !condition.matches(absent));
        condition.condition = HeaderCondition::Range { start: -10, end: 0 };
        condition.invert = false;
        assert!(condition.matches(&["-1"]) && !condition.matches(&["0"]) && !condition.matches(&["x"]));
        condition.condition = HeaderCondition::Present(true);
        condition.treat_missing_as_empty = true;
        assert!(condition.matches(absent));
        let invert = |invert| HeaderMatch { condition: HeaderCondition::Present(true), invert, ..condition.clone() };
        assert!(invert(false).matches(&["a", "b"]) && !invert(true).matches(&["a"]));
    }
}
