//! Reading mutation lists.

use postrider_filter_api::{ConfigError, WatchedFile};
use postrider_http::{HeaderName, is_field_value};
use postrider_model::{
    AppendAction, Fields, Format, Piece, Reading, Regex, StringKind, StringMatch, Value, ValueError, in_newer_forms,
};

use super::query::{self, QueryMutation};
use super::{Append, Mutation};
use crate::formatters::Formatters;
use crate::read::is_protected;

/// The lists of one scope.
#[derive(Debug, Default)]
pub(super) struct Mutations {
    pub(super) request: Vec<Mutation>,
    /// Behind those of the request's fields.
    pub(super) query: Vec<QueryMutation>,
    pub(super) request_trailers: Vec<Mutation>,
    pub(super) response: Vec<Mutation>,
    pub(super) response_trailers: Vec<Mutation>,
    /// Files that values were read from.
    pub(super) files: Vec<WatchedFile>,
}

/// The mutations, and whether the most specific scope has the last word.
pub(super) fn read_gateway(value: &Value) -> Result<(Mutations, bool), ConfigError> {
    let mut fields = value.fields().map_err(|error| vec![error])?;
    let mut errors = Vec::new();
    let mutations = lists(&mut fields, &mut errors);
    let wins = fields.bool("most_specific_header_mutations_wins").map_err(|error| errors.push(error)).ok().flatten();
    errors.extend(fields.finish().err().into_iter().flatten());
    if errors.is_empty() { Ok((mutations, wins.unwrap_or_default())) } else { Err(errors) }
}

pub(super) fn read_route(value: &Value) -> Result<Mutations, ConfigError> {
    let mut fields = value.fields().map_err(|error| vec![error])?;
    let mut errors = Vec::new();
    let mutations = lists(&mut fields, &mut errors);
    errors.extend(fields.finish().err().into_iter().flatten());
    if errors.is_empty() { Ok(mutations) } else { Err(errors) }
}

fn lists(fields: &mut Fields<'_>, errors: &mut ConfigError) -> Mutations {
    let mut mutations = match fields.map("mutations") {
        Ok(Some(mutations)) => mutations,
        Ok(None) => return Mutations::default(),
        Err(error) => {
            errors.push(error);
            return Mutations::default();
        }
    };
    let mut formatters = formatters(&mut mutations, errors);
    let query = list(&mut mutations, "query_parameter_mutations", &mut formatters, errors, query::read);
    let mut read = |key| list(&mut mutations, key, &mut formatters, errors, mutation);
    let lists = Mutations {
        query,
        request: read("request_mutations"),
        request_trailers: read("request_trailers_mutations"),
        response: read("response_mutations"),
        response_trailers: read("response_trailers_mutations"),
        files: Vec::new(),
    };
    let lists = Mutations { files: formatters.files, ..lists };
    errors.extend(mutations.finish().err().into_iter().flatten());
    lists
}

fn formatters(fields: &mut Fields<'_>, errors: &mut ConfigError) -> Formatters {
    const KEY: &str = "formatters";
    let Some(list) = fields.value(KEY) else { return Formatters::default() };
    let alone = Value::Map(vec![(KEY.to_owned(), list.clone())]);
    let read = Reading::all(&alone, Formatters::read);
    let within = |error: ValueError| ValueError { path: fields.path_of(&error.path), ..error };
    read.map_err(|found| errors.extend(found.into_iter().map(within))).unwrap_or_default()
}

fn list<'v, T>(
    fields: &mut Fields<'v>,
    key: &str,
    formatters: &mut Formatters,
    errors: &mut ConfigError,
    item: fn(Fields<'v>, &mut Formatters) -> Result<T, ConfigError>,
) -> Vec<T> {
    let items = match fields.maps(key) {
        Ok(items) => items,
        Err(error) => {
            errors.push(error);
            return Vec::new();
        }
    };
    let mut read = |fields| item(fields, formatters).map_err(|found| errors.extend(found)).ok();
    items.into_iter().filter_map(&mut read).collect()
}

fn mutation(mut fields: Fields<'_>, formatters: &mut Formatters) -> Result<Mutation, ConfigError> {
    let one = |error| vec![error];
    let remove = fields.string("remove").map_err(one)?;
    let append = fields.map("append").map_err(one)?;
    let matching = fields.map("remove_on_match").map_err(one)?;
    let mutation = match (remove, append, matching) {
        (Some(name), None, None) => {
            Mutation::Remove(header_name(name).map_err(|message| vec![fields.error("remove", message)])?)
        }
        (None, Some(option), None) => Mutation::Append(append_of(option, formatters)?),
        (None, None, Some(matching)) => Mutation::RemoveMatching(remove_on_match(matching)?),
        _ => return Err(whole(&fields, "exactly one of append, remove and remove_on_match is wanted")),
    };
    fields.finish()?;
    Ok(mutation)
}

/// A `HeaderValueOption`.
fn append_of(mut fields: Fields<'_>, formatters: &mut Formatters) -> Result<Append, ConfigError> {
    let one = |error| vec![error];
    let Some(mut header) = fields.map("header").map_err(one)? else {
        return Err(vec![fields.error("header", "the header is required")]);
    };
    let key = header.string("key").map_err(one)?.unwrap_or_default();
    let name = header_name(key).map_err(|message| vec![header.error("key", message)])?;
    let text = header.string("value").map_err(one)?.unwrap_or_default();
    let value = format(text, formatters).map_err(|message| vec![header.error("value", message)])?;
    header.finish()?;
    let old = fields.bool("append").map_err(one)?;
    let action = fields.string("append_action").map_err(one)?;
    let action = match (old, action) {
        (Some(_), Some(_)) => {
            return Err(vec![fields.error("append", "append and append_action are both set; keep append_action")]);
        }
        (Some(true), None) | (None, None) => AppendAction::AppendIfExistsOrAdd,
        (Some(false), None) => AppendAction::OverwriteIfExistsOrAdd,
        (None, Some(name)) => {
            append_action(name).ok_or_else(|| vec![fields.error("append_action", unknown_action(name))])?
        }
    };
    let keep_empty = fields.bool("keep_empty_value").map_err(one)?.unwrap_or_default();
    fields.finish()?;
    Ok(Append { name, value, action, keep_empty })
}

/// A value with `%COMMANDS%`.
fn format(text: &str, formatters: &mut Formatters) -> Result<Format, String> {
    let format = Format::parse_with(&in_newer_forms(text), formatters).map_err(|error| error.to_string())?;
    let fits = |piece: &Piece| !matches!(piece, Piece::Text(text) if !is_field_value(text.as_bytes()));
    match format.pieces.iter().all(fits) {
        true => Ok(format),
        false => Err("a header value cannot hold control characters".to_owned()),
    }
}

const ACTIONS: [(&str, AppendAction); 4] = [
    ("APPEND_IF_EXISTS_OR_ADD", AppendAction::AppendIfExistsOrAdd),
    ("ADD_IF_ABSENT", AppendAction::AddIfAbsent),
    ("OVERWRITE_IF_EXISTS_OR_ADD", AppendAction::OverwriteIfExistsOrAdd),
    ("OVERWRITE_IF_EXISTS", AppendAction::OverwriteIfExists),
];

pub(super) fn append_action(name: &str) -> Option<AppendAction> {
    ACTIONS.iter().find(|(known, _)| *known == name).map(|(_, action)| *action)
}

pub(super) fn unknown_action(name: &str) -> String {
    format!("\"{name}\" is no action: {}", ACTIONS.map(|(known, _)| known).join(", "))
}

fn remove_on_match(mut fields: Fields<'_>) -> Result<StringMatch, ConfigError> {
    let Some(matcher) = fields.map("key_matcher").map_err(|error| vec![error])? else {
        return Err(vec![fields.error("key_matcher", "the matcher is required")]);
    };
    let matcher = string_match(matcher)?;
    fields.finish()?;
    Ok(matcher)
}

/// A `StringMatcher`.
fn string_match(mut fields: Fields<'_>) -> Result<StringMatch, ConfigError> {
    type Make = fn(String) -> StringKind;
    const KINDS: [(&str, Make); 4] = [
        ("exact", StringKind::Exact),
        ("prefix", StringKind::Prefix),
        ("suffix", StringKind::Suffix),
        ("contains", StringKind::Contains),
    ];
    let one = |error| vec![error];
    let mut found = Vec::new();
    for (key, make) in KINDS {
        found.extend(fields.string(key).map_err(one)?.map(|text| make(text.to_owned())));
    }
    if let Some(mut safe) = fields.map("safe_regex").map_err(one)? {
        let text = safe.string("regex").map_err(one)?.unwrap_or_default();
        let regex = anchored(text).map_err(|message| vec![safe.error("regex", message)])?;
        // The engine is named by an empty message, or by nothing.
        safe.map("google_re2").map_err(one)?.map(Fields::finish).transpose()?;
        safe.finish()?;
        found.push(StringKind::Regex(regex));
    }
    let ignore_case = fields.bool("ignore_case").map_err(one)?.unwrap_or_default();
    let none_or_several = whole(&fields, "exactly one of exact, prefix, suffix, contains and safe_regex is wanted");
    fields.finish()?;
    match (found.pop(), found.is_empty()) {
        (Some(kind), true) => Ok(StringMatch { kind, ignore_case }),
        _ => Err(none_or_several),
    }
}

/// An expression anchored at both ends, so that a name is matched as a whole in one pass.
fn anchored(pattern: &str) -> Result<Regex, String> {
    let plain = Regex::new(pattern)?;
    // A pattern may end in a comment that swallows the anchor; then the plain one serves as well, if slower.
    Ok(Regex::new(&format!(r"\A(?:{pattern})\z")).unwrap_or(plain))
}

/// An error of the whole map.
pub(super) fn whole(fields: &Fields<'_>, message: &str) -> ConfigError {
    vec![ValueError { path: fields.path().to_owned(), message: message.to_owned() }]
}

fn header_name(text: &str) -> Result<HeaderName, String> {
    if is_protected(text.to_ascii_lowercase().as_bytes()) {
        return Err(format!("\"{text}\" is written by the proxy itself and cannot be changed here"));
    }
    HeaderName::new(text.as_bytes()).map_err(|_| format!("\"{text}\" is no header name"))
}
