//! From Envoy's v2 configuration to v3, on the text's own tree: order, comments and quoting stay.
//!
//! What it is for: `postrider migrate`. Old names of extensions, fields and types get their new ones, and what the
//! loader repairs with certainty (an indent that does not fit, a stray comma) is repaired. Each change is a note with its
//! place in the old file. The result is YAML that Envoy 1.40 accepts as far as the old file made sense.
//!
//! What it must never do: guess, drop what has a meaning without saying so, or change the meaning of what is v3 already.
//! It knows fields by their names alone; whether the result is right is the loader's business.
//!
//! Who calls it: the `migrate` sub-command.

mod document;
mod edge;
mod filters;
mod names;
mod routes;
mod types;
mod upstreams;

use postrider_config_core::{Diagnostic, Diagnostics, FileId, Severity, SourceFile, Span};

use crate::tree;
use document::{Body, Document, Entry, Node};

/// The outcome of a migration.
#[derive(Debug)]
pub struct Migrated {
    /// The v3 file; `None` when the old one cannot be read.
    pub yaml: Option<String>,
    /// A note for each change, a warning for what was left out, an error for what cannot be migrated.
    pub diagnostics: Diagnostics,
}

/// Migrates a YAML or JSON document.
pub fn migrate(file: &SourceFile) -> Migrated {
    let mut found = Diagnostics::new();
    let parsed = tree::parse(file, FileId::MAIN, &mut found);
    let Some(root) = parsed.root else { return Migrated { yaml: None, diagnostics: found } };
    let mut cx = Migration { diagnostics: Diagnostics::new(), types: None };
    for diagnostic in found {
        cx.diagnostics.push(repaired(diagnostic, parsed.incomplete));
    }
    let mut document = Document::new(&root, file);
    rewrite(&mut cx, "", &mut document.root);
    let yaml = (!cx.diagnostics.has_errors()).then(|| document.write());
    Migrated { yaml, diagnostics: cx.diagnostics }
}

/// A syntax error that the parser repaired is told as a note; when it left something out, it stays an error.
fn repaired(mut diagnostic: Diagnostic, incomplete: bool) -> Diagnostic {
    if diagnostic.severity == Severity::Error && !incomplete {
        diagnostic.severity = Severity::Note;
        diagnostic.message = format!("repaired: {}", diagnostic.message);
    }
    diagnostic
}

/// What a migration carries along.
struct Migration {
    diagnostics: Diagnostics,
    /// v2 type names and their v3 names, read from the schema when first asked for.
    types: Option<types::Renames>,
}

impl Migration {
    fn note(&mut self, span: Option<Span>, text: impl Into<String>) {
        self.diagnostics.push(Diagnostic::new(Severity::Note, "migrated", text).at(span));
    }

    fn dropped(&mut self, span: Option<Span>, text: impl Into<String>) {
        self.diagnostics.push(Diagnostic::warning("dropped", text).at(span));
    }

    fn impossible(&mut self, span: Option<Span>, text: impl Into<String>) {
        self.diagnostics.push(Diagnostic::error("cannot-migrate", text).at(span));
    }

    /// Gives a field another name.
    fn rename(&mut self, node: &mut Node, old: &str, new: &str) {
        if let Some(entry) = node.entries_mut().and_then(|all| all.iter_mut().find(|entry| entry.key == old)) {
            new.clone_into(&mut entry.key);
            let span = entry.span;
            self.note(span, format!("`{old}` is now `{new}`"));
        }
    }

    /// Gives a field another name and value; `None` from `make` leaves it alone.
    fn change(&mut self, node: &mut Node, old: &str, new: &str, make: impl FnOnce(&Node) -> Option<Node>) {
        let Some(entry) = node.entries_mut().and_then(|all| all.iter_mut().find(|entry| entry.key == old)) else {
            return;
        };
        let Some(made) = make(&entry.node) else { return };
        entry.node = made;
        new.clone_into(&mut entry.key);
        let span = entry.span;
        self.note(span, if old == new { format!("`{old}` has a new form") } else { format!("`{old}` is now `{new}`") });
    }

    /// Leaves a field out that v3 does not have.
    fn drop(&mut self, node: &mut Node, key: &str, why: &str) {
        if let Some(entry) = node.take(key) {
            self.dropped(entry.span, format!("`{key}` is left out: {why}"));
        }
    }
}

/// Rewrites `node`, which is the value of `key` or an item of its list, and then everything below it.
fn rewrite(cx: &mut Migration, key: &str, node: &mut Node) {
    match key {
        "" | "static_resources" => edge::top(cx, node),
        "admin" => edge::admin(cx, node),
        "listeners" => edge::listener(cx, node),
        "filter_chains" => edge::chain(cx, node),
        "filter_chain_match" => cx.rename(node, "sni_domains", "server_names"),
        "clusters" if node.get("name").is_some() && !is_weighted(node) => upstreams::cluster(cx, node),
        "health_checks" => upstreams::health_check(cx, node),
        "validation_context" | "default_validation_context" => upstreams::validation_context(cx, node),
        "virtual_hosts" => routes::virtual_host(cx, node),
        "routes" => routes::route(cx, node),
        "match" => routes::matches(cx, node),
        "headers" | "retriable_headers" | "retriable_request_headers" => routes::header_matcher(cx, node),
        "query_parameters" => routes::query_matcher(cx, node),
        "cors" => routes::cors(cx, node),
        "retry_policy" => routes::retry_policy(cx, node),
        _ => {}
    }
    filters::extension(cx, key, node);
    types::config_source(cx, node);
    repair_scalar(cx, key, node);
    let is_map = node.is_map();
    for entry in node.entries_mut().into_iter().flatten() {
        let span = entry.span;
        let below = if is_map { entry.key.clone() } else { key.to_owned() };
        rewrite(cx, &below, &mut entry.node);
        repair_comma(cx, &below, span, &mut entry.node);
    }
}

/// `clusters` is also the list of a weighted target.
fn is_weighted(node: &Node) -> bool {
    node.get("weight").is_some() || node.get("cluster_header").is_some()
}

/// `false,` and `10,` can only be a boolean and a number with a comma from JSON: nothing else is spelled like that.
fn repair_comma(cx: &mut Migration, key: &str, span: Option<Span>, node: &mut Node) {
    let Body::Scalar { text, written } = &mut node.body else { return };
    let Some(value) = text.strip_suffix(',').filter(|_| text == written) else { return };
    if matches!(value, "true" | "false") || value.parse::<f64>().is_ok() {
        let value = value.to_owned();
        cx.note(span, format!("repaired: the comma after `{key}: {value}` is left out"));
        *text = value.clone();
        *written = value;
    }
}

/// Spellings of values that v3 no longer has.
fn repair_scalar(cx: &mut Migration, key: &str, node: &mut Node) {
    let (Some(text), "lb_policy") = (node.as_text(), key) else { return };
    if text.eq_ignore_ascii_case("ORIGINAL_DST_LB") {
        cx.note(None, "`lb_policy: ORIGINAL_DST_LB` is now `CLUSTER_PROVIDED`");
        *node = Node::plain("CLUSTER_PROVIDED");
    }
}

/// `{key: node}`.
fn wrapped(key: &str, node: Node) -> Node {
    Node::map(vec![Entry::new(key, node)])
}

/// `{name, typed_config: {"@type": …, fields…}}` as entries of `config`.
fn typed(kind: &str, config: Option<Node>) -> Node {
    let mut config = config.unwrap_or_else(Node::empty);
    config.flow = false;
    config.set_first("@type", Node::text(&format!("type.googleapis.com/{kind}")));
    config
}
