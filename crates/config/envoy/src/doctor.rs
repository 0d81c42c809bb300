//! What of a configuration is honoured, field by field: the `doctor` command.
//!
//! What it is for: an operator who brings a file from Envoy learns what it will do here. The list comes from the ledger
//! that lowering filled, so it cannot say anything else than what the proxy does. Who calls it: the command line.

use std::fmt::Write;

use postrider_config_core::{Sources, Span};
use serde_json::{Value as Json, json};

use crate::coverage::{Status, Support};
use crate::lower::Difference;

/// The page that describes every difference.
const DIFFERENCES_PAGE: &str = "docs/envoy-differences.md";

/// The state of every field of a file.
#[derive(Debug)]
pub struct Report {
    /// In the order of the file.
    pub fields: Vec<Support>,
    pub differences: Vec<Difference>,
    pub counts: Counts,
}

/// How many fields have which status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub supported: usize,
    pub approximated: usize,
    /// Legitimately without effect here.
    pub ignored: usize,
    pub unsupported: usize,
}

impl Counts {
    pub fn total(&self) -> usize {
        self.supported + self.approximated + self.ignored + self.unsupported
    }

    /// The part of the fields that do what they say, or have no effect anywhere, in percent; 100 for an empty file.
    pub fn share(&self) -> f64 {
        match self.total() {
            0 => 100.0,
            total => (total - self.unsupported) as f64 * 100.0 / total as f64,
        }
    }
}

impl Report {
    pub(crate) fn new(fields: Vec<Support>, differences: Vec<Difference>) -> Report {
        let mut counts = Counts::default();
        for field in &fields {
            match field.status {
                Status::Supported => counts.supported += 1,
                Status::Approximated(_) => counts.approximated += 1,
                Status::Ignored(_) => counts.ignored += 1,
                Status::Unsupported(_) => counts.unsupported += 1,
            }
        }
        Report { fields, differences, counts }
    }

    /// One line per field with its place, then what differs from Envoy on purpose, then the share.
    pub fn text(&self, sources: &Sources) -> String {
        let mut out = String::new();
        for field in &self.fields {
            let (word, why) = words(&field.status);
            let _ = write!(out, "{:<24} {word:<12} {}", place(sources, field.span), field.path);
            if let Some(why) = why {
                let _ = write!(out, ": {why}");
            }
            out.push('\n');
        }
        if !self.differences.is_empty() {
            let _ = writeln!(out, "\nDifferent from Envoy on purpose ({DIFFERENCES_PAGE}):");
            for difference in &self.differences {
                let place = place(sources, difference.span);
                let _ = writeln!(out, "{place:<24} {}", difference.here);
                let _ = writeln!(out, "{:<24} Envoy's default: {}", "", difference.restore);
            }
        }
        let Counts { supported, approximated, ignored, unsupported } = self.counts;
        let _ = writeln!(
            out,
            "\n{:.1} % of {} fields are honoured: {supported} supported, {approximated} approximated, {ignored} without \
             effect here, {unsupported} unsupported",
            self.counts.share(),
            self.counts.total(),
        );
        out
    }

    /// `{"share": percent, "supported": n, …, "fields": [{path, file, line, column, status, why}], "differences": […]}`.
    pub fn json(&self, sources: &Sources) -> Json {
        let fields: Vec<Json> = self
            .fields
            .iter()
            .map(|field| {
                let (word, why) = words(&field.status);
                let mut item = json!({"path": field.path, "status": word});
                add_place(&mut item, sources, field.span);
                if let Some(why) = why {
                    item["why"] = json!(why);
                }
                item
            })
            .collect();
        let differences: Vec<Json> = self
            .differences
            .iter()
            .map(|difference| {
                let mut item = json!({
                    "id": difference.id,
                    "path": difference.path,
                    "here": difference.here,
                    "restore": difference.restore,
                    "page": DIFFERENCES_PAGE,
                });
                add_place(&mut item, sources, difference.span);
                item
            })
            .collect();
        json!({
            "share": self.counts.share(),
            "supported": self.counts.supported,
            "approximated": self.counts.approximated,
            "ignored": self.counts.ignored,
            "unsupported": self.counts.unsupported,
            "fields": fields,
            "differences": differences,
        })
    }
}

fn words(status: &Status) -> (&'static str, Option<&str>) {
    match status {
        Status::Supported => ("supported", None),
        Status::Approximated(how) => ("approximated", Some(how)),
        Status::Ignored(why) => ("no effect", Some(why)),
        Status::Unsupported(why) => ("unsupported", Some(why)),
    }
}

fn place(sources: &Sources, span: Option<Span>) -> String {
    match span.and_then(|span| sources.location(span)) {
        Some((file, at)) => format!("{}:{}:{}", file.name(), at.line, at.column),
        None => "-".to_owned(),
    }
}

fn add_place(item: &mut Json, sources: &Sources, span: Option<Span>) {
    if let Some((file, at)) = span.and_then(|span| sources.location(span)) {
        item["file"] = json!(file.name());
        item["line"] = json!(at.line);
        item["column"] = json!(at.column);
    }
}
