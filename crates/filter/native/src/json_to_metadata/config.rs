//! Reading rules.

use postrider_model::{Reading, Regex, Value, regex};

/// The namespace where none is written.
const NAMESPACE: &str = "envoy.filters.http.json_to_metadata";

#[derive(Debug)]
pub(super) struct Rules {
    pub(super) request: Option<Side>,
    pub(super) response: Option<Side>,
}

/// The rules for requests or for responses.
#[derive(Debug)]
pub(super) struct Side {
    pub(super) rules: Vec<Rule>,
    content_types: Vec<String>,
    content_type_pattern: Option<Regex>,
    takes_none: bool,
}

#[derive(Debug)]
pub(super) struct Rule {
    /// The keys of the maps that lead to the value's own.
    pub(super) parents: Vec<String>,
    /// The key of the value.
    pub(super) key: String,
    pub(super) present: Option<Note>,
    /// Has a value of its own; so has the next one.
    pub(super) missing: Option<Note>,
    pub(super) error: Option<Note>,
}

/// What is noted.
#[derive(Debug)]
pub(super) struct Note {
    pub(super) namespace: String,
    pub(super) key: String,
    /// In place of what the body says.
    pub(super) value: Option<Value>,
    pub(super) kind: Kind,
    /// What is noted there already stays.
    pub(super) preserves: bool,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    AsItIs,
    Text,
    Number,
}

impl Rules {
    pub(super) fn read(at: &mut Reading<'_>) -> Rules {
        Rules { request: at.map("request_rules", Side::read), response: at.map("response_rules", Side::read) }
    }
}

impl Side {
    fn read(at: &mut Reading<'_>) -> Side {
        let rules = at.each("rules", rule);
        if rules.is_empty() {
            at.wrong("at least one of rules is wanted");
        }
        let mut content_types = at.texts("allow_content_types");
        if content_types.iter().any(String::is_empty) {
            at.error("allow_content_types", "a content type cannot be empty: see allow_empty_content_type");
        }
        if content_types.is_empty() {
            content_types.push("application/json".to_owned());
        }
        Side {
            rules: rules.into_iter().flatten().collect(),
            content_types,
            content_type_pattern: at.map("allow_content_types_regex", regex).flatten(),
            takes_none: at.flag("allow_empty_content_type"),
        }
    }

    /// Whether bodies of that type are looked at; letter for letter, parameters included.
    pub(super) fn takes(&self, content_type: &[u8]) -> bool {
        if content_type.is_empty() {
            return self.takes_none;
        }
        self.content_types.iter().any(|known| known.as_bytes() == content_type)
            || self.content_type_pattern.as_ref().is_some_and(|pattern| pattern.matches_whole(content_type))
    }
}

fn rule(at: &mut Reading<'_>) -> Option<Rule> {
    let keys: Vec<Option<String>> = at.each("selectors", |selector| {
        let key = selector.text("key").map(str::to_owned);
        if key.is_none() {
            selector.wrong("a key is wanted");
        }
        key
    });
    let present = at.map("on_present", note);
    let missing = at.map("on_missing", note);
    let error = at.map("on_error", note);
    if present.is_none() && missing.is_none() {
        at.wrong("on_present or on_missing is wanted");
    }
    for (name, note) in [("on_missing", &missing), ("on_error", &error)] {
        if note.as_ref().is_some_and(|note| note.value.is_none()) {
            at.error(name, "a value is wanted: the body has none that could be noted");
        }
    }
    let mut parents: Vec<String> = keys.into_iter().collect::<Option<_>>()?;
    let Some(key) = parents.pop() else {
        at.wrong("at least one of selectors is wanted");
        return None;
    };
    Some(Rule { parents, key, present, missing, error })
}

fn note(at: &mut Reading<'_>) -> Note {
    let key = at.text("key").unwrap_or_default().to_owned();
    if key.is_empty() {
        at.error("key", "the key under which it is noted is required");
    }
    Note {
        namespace: at.text("metadata_namespace").unwrap_or(NAMESPACE).to_owned(),
        key,
        value: at.value("value").cloned(),
        kind: match at.text("type") {
            Some("STRING") => Kind::Text,
            Some("NUMBER") => Kind::Number,
            _ => Kind::AsItIs,
        },
        preserves: at.flag("preserve_existing_metadata_value"),
    }
}
