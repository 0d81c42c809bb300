//! Conditions on strings and paths, compiled for the data path: on bytes, and with regular expressions anchored.
//!
//! The model's conditions say what is meant; these say it without looking for a partial match first and without
//! asking for UTF-8, which a header value need not be.

use std::fmt;
use std::sync::Arc;

use memchr::memmem;
use postrider_model::{Regex, StringKind, StringMatch, Value};
use regex_syntax::hir::literal::Extractor;
use regex_syntax::hir::{Hir, Look};

/// Code that judges a text.
pub type Judge = Arc<dyn Fn(&[u8]) -> bool + Send + Sync>;

/// Finds the code for a condition's type and configuration.
pub type Judges<'j> = &'j dyn Fn(&str, &Value) -> Option<Judge>;

/// A compiled [`StringMatch`].
#[derive(Debug)]
pub(crate) enum Pattern {
    Exact(Box<[u8]>),
    ExactNoCase(Box<[u8]>),
    Prefix(Box<[u8]>),
    PrefixNoCase(Box<[u8]>),
    Suffix(Box<[u8]>),
    SuffixNoCase(Box<[u8]>),
    Contains(Box<memmem::Finder<'static>>),
    ContainsNoCase(Box<[u8]>),
    Whole(Whole),
    Custom(Custom),
}

/// A condition that code decides; `None` when nobody has it, and then nothing matches.
pub(crate) struct Custom(Option<Judge>);

impl fmt::Debug for Custom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Custom")
    }
}

impl Pattern {
    pub(crate) fn compile(condition: &StringMatch, judges: Judges<'_>) -> Pattern {
        let bytes = |text: &String| text.as_bytes().into();
        match (&condition.kind, condition.ignore_case) {
            (StringKind::Exact(text), false) => Pattern::Exact(bytes(text)),
            (StringKind::Exact(text), true) => Pattern::ExactNoCase(bytes(text)),
            (StringKind::Prefix(text), false) => Pattern::Prefix(bytes(text)),
            (StringKind::Prefix(text), true) => Pattern::PrefixNoCase(bytes(text)),
            (StringKind::Suffix(text), false) => Pattern::Suffix(bytes(text)),
            (StringKind::Suffix(text), true) => Pattern::SuffixNoCase(bytes(text)),
            (StringKind::Contains(text), false) => {
                Pattern::Contains(Box::new(memmem::Finder::new(text.as_bytes()).into_owned()))
            }
            (StringKind::Contains(text), true) => Pattern::ContainsNoCase(bytes(text)),
            (StringKind::Regex(regex), _) => Pattern::Whole(Whole::compile(regex)),
            (StringKind::Custom { kind, config }, _) => Pattern::Custom(Custom(judges(kind, config))),
        }
    }

    pub(crate) fn matches(&self, text: &[u8]) -> bool {
        match self {
            Pattern::Exact(want) => text == &**want,
            Pattern::ExactNoCase(want) => text.eq_ignore_ascii_case(want),
            Pattern::Prefix(want) => text.starts_with(want),
            Pattern::PrefixNoCase(want) => starts_with_no_case(text, want),
            Pattern::Suffix(want) => text.ends_with(want),
            Pattern::SuffixNoCase(want) => text
                .split_at_checked(text.len().wrapping_sub(want.len()))
                .is_some_and(|(_, end)| end.eq_ignore_ascii_case(want)),
            Pattern::Contains(finder) => finder.find(text).is_some(),
            Pattern::ContainsNoCase(want) => {
                want.is_empty() || text.windows(want.len()).any(|part| part.eq_ignore_ascii_case(want))
            }
            Pattern::Whole(regex) => regex.matches(text),
            Pattern::Custom(Custom(judge)) => judge.as_ref().is_some_and(|judge| judge(text)),
        }
    }
}

pub(crate) fn starts_with_no_case(text: &[u8], prefix: &[u8]) -> bool {
    text.get(..prefix.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(prefix))
}

/// A regular expression that must match the whole text.
#[derive(Debug)]
pub(crate) enum Whole {
    Anchored(Box<regex::bytes::Regex>),
    /// The anchored form did not compile, although the plain one did (it is slightly larger).
    Plain(Box<Regex>),
}

impl Whole {
    /// The most memory one anchored expression may take; above the limit that the plain one passed.
    const SIZE_LIMIT: usize = 12 << 20;

    pub(crate) fn compile(regex: &Regex) -> Whole {
        // Anchored as a syntax tree: a pattern is free to end in a comment or to hold flags, so it cannot be wrapped
        // as a text.
        let anchored = tree(regex).and_then(|tree| {
            let whole = Hir::concat(vec![Hir::look(Look::Start), tree, Hir::look(Look::End)]);
            regex::bytes::RegexBuilder::new(&whole.to_string()).size_limit(Whole::SIZE_LIMIT).build().ok()
        });
        match anchored {
            Some(regex) => Whole::Anchored(Box::new(regex)),
            None => Whole::Plain(Box::new(regex.clone())),
        }
    }

    pub(crate) fn matches(&self, text: &[u8]) -> bool {
        match self {
            Whole::Anchored(regex) => regex.is_match(text),
            Whole::Plain(regex) => regex.matches_whole(text),
        }
    }
}

/// What `regex` says, read as it was compiled.
fn tree(regex: &Regex) -> Option<Hir> {
    let unicode = regex.is_unicode();
    regex_syntax::ParserBuilder::new().unicode(unicode).utf8(false).build().parse(regex.as_str()).ok()
}

/// Bytes with which every text that `regex` matches as a whole begins; may be empty.
pub(crate) fn literal_prefix(regex: &Regex) -> Vec<u8> {
    let Some(tree) = tree(regex) else { return Vec::new() };
    Extractor::new().extract(&tree).longest_common_prefix().unwrap_or_default().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn regex(pattern: &str) -> Regex {
        Regex::new(pattern).unwrap()
    }

    #[test]
    fn patterns_agree_with_the_model() {
        let kinds: Vec<fn(String) -> StringKind> =
            vec![StringKind::Exact, StringKind::Prefix, StringKind::Suffix, StringKind::Contains, |text| {
                StringKind::Regex(regex(&text))
            }];
        let texts = ["", "a", "A", "ab", "aB", "abc", "ABC", "bc", "xabcx", "a,b", "b"];
        for kind in kinds {
            for want in texts {
                for ignore_case in [false, true] {
                    let condition = StringMatch { kind: kind(want.to_owned()), ignore_case };
                    let compiled = Pattern::compile(&condition, &|_, _| None);
                    for text in texts {
                        assert_eq!(
                            compiled.matches(text.as_bytes()),
                            condition.matches(text),
                            "{condition:?} on {text:?}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn a_regex_matches_the_whole_text() {
        for (pattern, text, want) in [
            ("a|ab", "ab", true),
            ("a|ab", "abc", false),
            ("(?x) a b # comment", "ab", true),
            ("(?i)ab", "AB", true),
            ("^/a$", "/a", true),
            ("/v[0-9]+", "/v1/x", false),
            (".*", "a\nb", false),
            ("", "", true),
            ("(?m)^a$", "a\na", false),
        ] {
            let whole = Whole::compile(&regex(pattern));
            assert!(matches!(whole, Whole::Anchored(_)), "{pattern}");
            assert_eq!(whole.matches(text.as_bytes()), want, "{pattern} on {text}");
        }
        assert!(Whole::compile(&regex(".*")).matches(b"\xff"));
        assert!(Whole::compile(&regex("[é]x|y")).matches("éx".as_bytes()));
    }

    #[test]
    fn what_every_match_begins_with() {
        for (pattern, want) in [
            ("/api/v[12]/.*", "/api/v"),
            ("/a|/ab", "/a"),
            ("^/x/.*$", "/x/"),
            (".*", ""),
            ("(?i)/x", "/"),
            ("/a?b", "/"),
            ("", ""),
            ("(/svc/1|/svc/2)/.*", "/svc/"),
        ] {
            assert_eq!(String::from_utf8(literal_prefix(&regex(pattern))).unwrap(), want, "{pattern}");
        }
    }
}
