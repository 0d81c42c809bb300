//! Conditions on strings, headers and query parameters; regex substitutions; fractions.

use postrider_config_core::Diagnostic;
use postrider_model::{
    CASE_OF_REGEX, CookieMatch, HeaderCondition, HeaderMatch, MetadataKey, MetadataMatch, QueryCondition, QueryMatch,
    Reading, Regex, StateCondition, StateMatch, StringKind, StringMatch,
};

use super::context::Lowering;
use super::{chain_match, plugins, value};
use crate::reader::Reader;

/// Parts of a whole in a fraction.
pub(super) const MILLION: u32 = 1_000_000;

/// `envoy.type.matcher.v3.StringMatcher`.
pub(super) fn string(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Option<StringMatch> {
    if at.bool("ignore_case") && at.has("safe_regex") {
        cx.error(at, "ignore_case", "conflict", CASE_OF_REGEX);
    }
    name_of_statistic(cx, at)
}

/// The same for names of statistics, where Envoy passes over what has no effect.
pub(super) fn name_of_statistic(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Option<StringMatch> {
    let ignore_case = at.bool("ignore_case");
    let kind = match at.oneof("match_pattern") {
        Some("exact") => StringKind::Exact(at.str("exact").to_owned()),
        Some("prefix") => StringKind::Prefix(at.str("prefix").to_owned()),
        Some("suffix") => StringKind::Suffix(at.str("suffix").to_owned()),
        Some("contains") => StringKind::Contains(at.str("contains").to_owned()),
        Some("safe_regex") => {
            at.ignore("ignore_case", "it does not apply to regular expressions");
            return cx.regex(&at.message("safe_regex")?).map(|regex| plain(StringKind::Regex(regex)));
        }
        Some("custom") => plugins::matcher(cx, &at.message("custom")?)?,
        Some(other) => {
            cx.refuse(at, other, "this condition on a string");
            return None;
        }
        None => {
            cx.missing(at, "the string matcher is empty", "`exact`, `prefix`, `suffix`, `contains` or `safe_regex`");
            return None;
        }
    };
    Some(StringMatch { kind, ignore_case })
}

/// `envoy.config.route.v3.HeaderMatcher`; without a condition the header must be present.
pub(super) fn header(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Option<HeaderMatch> {
    let name = lookup_name(at.str("name"));
    let invert = at.bool("invert_match");
    let treat_missing_as_empty = at.bool("treat_missing_header_as_empty");
    let exact = |text: &str, kind: fn(String) -> StringKind| HeaderCondition::Value(plain(kind(text.to_owned())));
    let condition = match at.oneof("header_match_specifier") {
        None => HeaderCondition::Present(true),
        Some("present_match") => HeaderCondition::Present(at.bool("present_match")),
        Some("string_match") => HeaderCondition::Value(string(cx, &at.message("string_match")?)?),
        Some("exact_match") => exact(at.str("exact_match"), StringKind::Exact),
        Some("prefix_match") => exact(at.str("prefix_match"), StringKind::Prefix),
        Some("suffix_match") => exact(at.str("suffix_match"), StringKind::Suffix),
        Some("contains_match") => exact(at.str("contains_match"), StringKind::Contains),
        Some("safe_regex_match") => {
            HeaderCondition::Value(plain(StringKind::Regex(cx.regex(&at.message("safe_regex_match")?)?)))
        }
        Some("range_match") => {
            let range = at.message("range_match")?;
            HeaderCondition::Range { start: range.i64("start"), end: range.i64("end") }
        }
        Some(other) => {
            cx.refuse(at, other, "this condition on a header");
            return None;
        }
    };
    Some(HeaderMatch { name, condition, invert, treat_missing_as_empty })
}

/// `envoy.config.route.v3.QueryParameterMatcher`; without a condition the parameter must be present.
pub(super) fn query(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Option<QueryMatch> {
    let name = at.str("name").to_owned();
    let condition = match at.oneof("query_parameter_match_specifier") {
        Some("string_match") => QueryCondition::Value(string(cx, &at.message("string_match")?)?),
        Some(_) => QueryCondition::Present(at.bool("present_match")),
        None => QueryCondition::Present(true),
    };
    Some(QueryMatch { name, condition })
}

/// `envoy.config.route.v3.CookieMatcher`.
pub(super) fn cookie(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Option<CookieMatch> {
    let name = at.str("name").to_owned();
    let invert = at.bool("invert_match");
    Some(CookieMatch { name, condition: string(cx, &at.message("string_match")?)?, invert })
}

/// `envoy.type.matcher.v3.FilterStateMatcher`.
pub(super) fn state(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Option<StateMatch> {
    let name = at.str("key").to_owned();
    match at.oneof("matcher") {
        Some("string_match") => {
            let condition = string(cx, &at.message("string_match")?)?;
            if matches!(condition.kind, StringKind::Custom { .. }) {
                cx.refuse_value(at, "string_match", "a plugin's condition on the filter state");
                return None;
            }
            Some(StateMatch { name, condition: StateCondition::Text(condition) })
        }
        Some("address_match") => {
            let addresses = at.message("address_match")?;
            let networks = chain_match::ranges(cx, &addresses, "ranges");
            let inverted = addresses.bool("invert_match");
            Some(StateMatch { name, condition: StateCondition::Address { networks, inverted } })
        }
        Some(other) => {
            cx.refuse(at, other, "this condition on the filter state");
            None
        }
        None => {
            cx.missing(at, "the condition on the filter state is empty", "`string_match` or `address_match`");
            None
        }
    }
}

/// A header name as it is looked up in a request: lower case, and the host by its one name.
pub(super) fn lookup_name(name: &str) -> String {
    let name = name.to_ascii_lowercase();
    if name == "host" { ":authority".to_owned() } else { name }
}

/// `envoy.type.matcher.v3.RegexMatchAndSubstitute`; refuses groups that the pattern lacks.
pub(super) fn substitution(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Option<(Regex, String)> {
    let text = at.str("substitution");
    let pattern = cx.regex(&at.message("pattern")?)?;
    let groups = pattern.captures_len() - 1;
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        if letter != '\\' {
            continue;
        }
        let problem = match letters.next() {
            Some('\\') => continue,
            Some(digit @ '0'..='9') if digit as usize - '0' as usize <= groups => continue,
            Some(digit @ '0'..='9') => format!("`\\{digit}` names a group, but the pattern has {groups}"),
            Some(other) => format!("`\\{other}` is no group"),
            None => "a backslash stands at the end".to_owned(),
        };
        let diagnostic = at
            .diagnostic_at("substitution", postrider_config_core::Severity::Error, "invalid-substitution", problem)
            .expected("`\\0` to `\\9` for groups and `\\\\` for a backslash");
        cx.push(diagnostic);
        return None;
    }
    Some((pattern, text.to_owned()))
}

/// Of how many parts a `FractionalPercent` counts some.
pub(super) fn whole(at: &Reader<'_>) -> u64 {
    match at.enum_name("denominator").as_str() {
        "TEN_THOUSAND" => 10_000,
        "MILLION" => u64::from(MILLION),
        _ => 100,
    }
}

/// `envoy.type.v3.FractionalPercent`.
pub(super) fn parts_per_million(at: &Reader<'_>) -> Option<u32> {
    let numerator = u64::from(at.u32("numerator"));
    let parts = numerator * (u64::from(MILLION) / whole(at));
    u32::try_from(parts.min(u64::from(MILLION))).ok()
}

/// `envoy.type.metadata.v3.MetadataKey`.
pub(super) fn metadata_key(at: &Reader<'_>) -> MetadataKey {
    let path = at.list("path");
    MetadataKey {
        namespace: at.str("key").to_owned(),
        path: path.iter().map(|segment| segment.str("key").to_owned()).collect(),
    }
}

/// `envoy.type.matcher.v3.MetadataMatcher`.
pub(super) fn metadata(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Option<MetadataMatch> {
    at.read_whole();
    match Reading::all(&value::value(at.as_message()), MetadataMatch::read) {
        Ok(read) => read,
        Err(errors) => {
            for error in errors {
                let span = super::locate(at.as_message(), &error.path).or(at.span());
                let path = if error.path.is_empty() { at.path().to_owned() } else { at.path_of(&error.path) };
                cx.push(Diagnostic::error("invalid-matcher", error.message).at(span).path(path));
            }
            None
        }
    }
}

fn plain(kind: StringKind) -> StringMatch {
    StringMatch { kind, ignore_case: false }
}
