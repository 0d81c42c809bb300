//! `/history`: which configurations were accepted or refused, and why. Ours; Envoy keeps none.

use crate::control::Control;
use crate::history::{ChangeKind, HistoryEntry, Outcome};
use crate::request::Request;
use crate::response::Reply;
use postrider_telemetry::time::{self, TimePattern};
use serde_json::{Value, json};
use std::fmt::Write;

pub(super) const PARAMETERS: &[(&str, &str)] = &[("format", "File format to use; One of (text, json)")];

/// The newest first.
pub(super) fn history(control: &dyn Control, request: &Request) -> Reply {
    let entries = control.history();
    match request.parameter("format") {
        Some("json") => Reply::json(&json!({ "history": entries.iter().map(object).collect::<Vec<_>>() })),
        None | Some("text") => {
            let mut out = String::new();
            for entry in &entries {
                // Writing to a String cannot fail.
                let _ = write_entry(entry, &mut out);
            }
            Reply::text(out)
        }
        Some(_) => Reply::bad_request("usage: /history?format=(json|text)\n"),
    }
}

fn write_entry(entry: &HistoryEntry, out: &mut String) -> std::fmt::Result {
    let (time, source) = (moment(entry), &entry.source);
    match &entry.outcome {
        Outcome::Accepted { changes } if changes.is_empty() => {
            writeln!(out, "{time} accepted {source}: nothing changed")
        }
        Outcome::Accepted { changes } => {
            writeln!(out, "{time} accepted {source}")?;
            changes.iter().try_for_each(|change| {
                let sign = match change.kind {
                    ChangeKind::Added => '+',
                    ChangeKind::Changed => '~',
                    ChangeKind::Removed => '-',
                };
                writeln!(out, "  {sign} {}", change.what)
            })
        }
        Outcome::Refused { errors } => {
            writeln!(out, "{time} refused {source}")?;
            // A diagnostic may have several lines.
            errors.iter().flat_map(|error| error.lines()).try_for_each(|line| writeln!(out, "  {line}"))
        }
    }
}

fn object(entry: &HistoryEntry) -> Value {
    let mut out = json!({ "time": moment(entry), "source": entry.source });
    match &entry.outcome {
        Outcome::Accepted { changes } => {
            let change = |change: &crate::Change| json!({ "kind": change.kind.name(), "what": change.what });
            out["outcome"] = json!("accepted");
            out["changes"] = changes.iter().map(change).collect();
        }
        Outcome::Refused { errors } => {
            out["outcome"] = json!("refused");
            out["errors"] = json!(errors);
        }
    }
    out
}

fn moment(entry: &HistoryEntry) -> String {
    let mut out = Vec::new();
    time::write(&TimePattern::iso8601(), entry.time, &mut out);
    String::from_utf8_lossy(&out).into_owned()
}
