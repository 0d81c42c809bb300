//! Reading rules.

use postrider_http::HeaderName;
use postrider_model::{Reading, Regex, regex};

use crate::read::is_protected;

/// The namespace where none is written.
const NAMESPACE: &str = "envoy.filters.http.header_to_metadata";

#[derive(Debug)]
pub(super) struct Rules {
    pub(super) request: Vec<Rule>,
    pub(super) response: Vec<Rule>,
    /// Nothing is counted without one.
    pub(super) stat_prefix: Option<String>,
}

#[derive(Debug)]
pub(super) struct Rule {
    pub(super) source: Source,
    pub(super) present: Option<Note>,
    pub(super) missing: Option<Note>,
    /// The header goes no further.
    pub(super) removes: bool,
}

#[derive(Debug)]
pub(super) enum Source {
    /// In lower case.
    Header(String),
    Cookie(String),
}

/// What is noted.
#[derive(Debug)]
pub(super) struct Note {
    pub(super) namespace: String,
    pub(super) key: String,
    pub(super) text: Text,
    pub(super) kind: Kind,
    pub(super) encoding: Encoding,
}

#[derive(Debug)]
pub(super) enum Text {
    AsItIs,
    Fixed(String),
    Rewritten(Regex, String),
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    Text,
    Number,
    /// A serialised `google.protobuf.Value`.
    Message,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Encoding {
    Plain,
    Base64,
}

impl Rules {
    pub(super) fn read(at: &mut Reading<'_>) -> Rules {
        Rules {
            stat_prefix: at.text("stat_prefix").filter(|prefix| !prefix.is_empty()).map(without_dot),
            request: at.each("request_rules", rule).into_iter().flatten().collect(),
            response: at.each("response_rules", rule).into_iter().flatten().collect(),
        }
    }
}

/// A prefix may bring the dot that ends it.
fn without_dot(prefix: &str) -> String {
    prefix.strip_suffix('.').filter(|rest| !rest.is_empty()).unwrap_or(prefix).to_owned()
}

fn rule(at: &mut Reading<'_>) -> Option<Rule> {
    let removes = at.flag("remove");
    let present = at.map("on_header_present", |at| note(at, true)).flatten();
    let missing = at.map("on_header_missing", |at| note(at, false)).flatten();
    let source = match (at.text("header"), at.text("cookie")) {
        (Some(name), None) => Some(Source::Header(header(at, name, removes)?)),
        (None, Some(name)) => Some(Source::Cookie(name.to_owned())),
        _ => None,
    };
    let Some(source) = source else {
        at.wrong("exactly one of header and cookie is wanted");
        return None;
    };
    if present.is_none() && missing.is_none() {
        at.wrong("on_header_present or on_header_missing is wanted");
    }
    if removes && matches!(source, Source::Cookie(_)) {
        at.error("remove", "a cookie cannot be removed");
    }
    if missing.as_ref().is_some_and(|note| !matches!(note.text, Text::Fixed(_))) {
        at.error("on_header_missing", "what is noted in place of a missing header needs a value");
    }
    Some(Rule { source, present, missing, removes })
}

fn header(at: &mut Reading<'_>, name: &str, removes: bool) -> Option<String> {
    let name = name.to_ascii_lowercase();
    if !name.starts_with(':') && HeaderName::new(name.as_bytes()).is_err() {
        at.error("header", format!("\"{name}\" is no header name"));
        return None;
    }
    if removes && is_protected(name.as_bytes()) {
        at.error("remove", "the proxy writes this field itself");
    }
    Some(name)
}

/// `rewrites`: there is a value to rewrite; in place of a missing one a rewrite counts for nothing.
fn note(at: &mut Reading<'_>, rewrites: bool) -> Option<Note> {
    let key = at.text("key").unwrap_or_default().to_owned();
    let namespace = at.text("metadata_namespace").unwrap_or(NAMESPACE).to_owned();
    let fixed = at.text("value").map(str::to_owned);
    let rewrite = at.map("regex_value_rewrite", |at| {
        let pattern = at.map("pattern", regex).flatten();
        let substitution = at.text("substitution").unwrap_or_default().to_owned();
        if pattern.is_none() {
            at.wrong("a pattern is wanted");
        }
        pattern.map(|pattern| Text::Rewritten(pattern, substitution))
    });
    let rewrite = rewrite.filter(|_| rewrites);
    if fixed.is_some() && rewrite.is_some() {
        at.error("value", "value and regex_value_rewrite exclude each other");
    }
    let kind = match at.text("type") {
        None | Some("STRING") => Kind::Text,
        Some("NUMBER") => Kind::Number,
        Some("PROTOBUF_VALUE") => Kind::Message,
        Some(other) => {
            at.error("type", format!("{other} is no type: STRING, NUMBER or PROTOBUF_VALUE is wanted"));
            Kind::Text
        }
    };
    let encoding = match at.text("encode") {
        Some("BASE64") => Encoding::Base64,
        _ => Encoding::Plain,
    };
    let text = fixed.map(Text::Fixed).or(rewrite.flatten()).unwrap_or(Text::AsItIs);
    Some(Note { namespace, key, text, kind, encoding })
}
