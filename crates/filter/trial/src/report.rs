//! What a plugin did to one stream, for people and for programs.

use std::fmt::Write;
use std::time::Duration;

use postrider_filter_plugin::json::to_json;
use postrider_model::Value;
use postrider_telemetry::log::Level;
use serde_json::{Map, Value as Json, json};

use crate::{CannedOutcome, Head, Side};

/// Bytes of a body that the text shows.
const SHOWN_BODY: usize = 400;

/// Everything that is known about one run.
#[derive(Debug, Default)]
pub struct Report {
    pub request: Change,
    /// `None` when the request never had an answer.
    pub response: Option<Change>,
    /// The plugin answered in place of the upstream: in a hook of that side.
    pub answered: Option<Side>,
    /// The answer's token for access logs.
    pub details: String,
    pub calls: Vec<CallMade>,
    pub logs: Vec<LogLine>,
    pub faults: Vec<Fault>,
    pub steps: Vec<Step>,
    /// What it noted for other filters and logs.
    pub metadata: Vec<(String, Value)>,
    /// Bytes of its virtual machine at the end.
    pub memory: usize,
    /// It waited for something that nobody gives.
    pub stuck: Option<Side>,
    pub clears_route_cache: bool,
    pub upstream_override: Option<String>,
    pub drains_connection: bool,
}

/// One message as it came and as it went on.
#[derive(Debug, Default)]
pub struct Change {
    pub before: Head,
    pub after: Head,
    pub body_before: Vec<u8>,
    pub body_after: Vec<u8>,
    /// As they went on.
    pub trailers: Head,
}

/// A call of the plugin's.
#[derive(Debug)]
pub struct CallMade {
    /// The side whose hook made it.
    pub side: Side,
    pub cluster: String,
    pub head: Head,
    pub body: Vec<u8>,
    pub timeout: Option<Duration>,
    pub outcome: CannedOutcome,
    /// Somebody said how it ends.
    pub is_expected: bool,
}

#[derive(Debug)]
pub struct LogLine {
    pub level: Level,
    pub text: String,
}

/// Why the script did not come to its end.
#[derive(Debug)]
pub struct Fault {
    /// Begins with file and line.
    pub text: String,
    pub traceback: String,
}

/// One entry into the script.
#[derive(Debug, Clone, Copy)]
pub struct Step {
    pub side: Side,
    /// In the function for bodies, not in the one for heads.
    pub in_body_hook: bool,
    pub took: Duration,
}

impl Report {
    /// Whether nothing went wrong.
    pub fn is_clean(&self) -> bool {
        self.faults.is_empty() && self.stuck.is_none()
    }

    /// For people.
    pub fn text(&self) -> String {
        let mut out = String::new();
        // Writing to a String cannot fail, here and below.
        let _ = self.write(&mut out);
        out
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        self.request.write("request", out)?;
        match (&self.answered, &self.response) {
            (Some(Side::Request), Some(response)) => {
                response.write(&format!("response: the plugin's own ({})", self.details), out)?;
            }
            (Some(Side::Response), Some(response)) => {
                response.write(&format!("response: replaced by the plugin ({})", self.details), out)?;
            }
            (_, Some(response)) => response.write("response", out)?,
            (_, None) => out.push_str("no response\n"),
        }
        if let Some(side) = self.stuck {
            writeln!(out, "stuck: the {} waits for something that never comes", side.name())?;
        }
        if !self.calls.is_empty() {
            out.push_str("calls\n");
        }
        for call in &self.calls {
            let value = |name| call.head.values(name).next().map(String::from_utf8_lossy).unwrap_or_default();
            write!(out, "  {}: {} {}", call.cluster, value(":method"), value(":path"))?;
            match &call.outcome {
                CannedOutcome::Answer { status, .. } => write!(out, " -> {status}")?,
                CannedOutcome::Timeout => out.push_str(" -> no answer in time"),
                CannedOutcome::Failure => out.push_str(" -> no answer"),
            }
            if !call.is_expected {
                write!(out, " (say how it ends with --call {}=200)", call.cluster)?;
            }
            out.push('\n');
            for (name, bytes) in call.head.0.iter().filter(|(name, _)| !name.starts_with(':')) {
                writeln!(out, "    {name}: {}", String::from_utf8_lossy(bytes))?;
            }
            if !call.body.is_empty() {
                writeln!(out, "    body: {}", shown(&call.body))?;
            }
        }
        if !self.logs.is_empty() {
            out.push_str("log\n");
        }
        for line in &self.logs {
            writeln!(out, "  {:<8} {}", line.level.name(), line.text.replace('\n', "\n           "))?;
        }
        if !self.metadata.is_empty() {
            out.push_str("dynamic metadata\n");
        }
        for (namespace, value) in &self.metadata {
            writeln!(out, "  {namespace}: {}", to_json(value))?;
        }
        for (is_so, what) in [
            (self.clears_route_cache, "the route is looked up again"),
            (self.drains_connection, "the client's connection ends after this stream"),
        ] {
            if is_so {
                writeln!(out, "{what}")?;
            }
        }
        if let Some(address) = &self.upstream_override {
            writeln!(out, "the host is to be {address}")?;
        }
        if !self.faults.is_empty() {
            out.push_str("errors\n");
        }
        for fault in &self.faults {
            writeln!(out, "  {}", fault.text.replace('\n', "\n  "))?;
            for line in fault.traceback.lines() {
                writeln!(out, "    {}", line.trim_start())?;
            }
        }
        if !self.steps.is_empty() {
            out.push_str("time\n");
        }
        for step in &self.steps {
            writeln!(out, "  {:<14} {:>9.1} µs", step.name(), step.took.as_nanos() as f64 / 1000.0)?;
        }
        match self.memory {
            // Machine code has no memory of its own.
            0 => Ok(()),
            bytes => writeln!(out, "memory of the machine: {} KiB", bytes.div_ceil(1024)),
        }
    }

    /// For programs.
    pub fn json(&self) -> Json {
        let calls = self.calls.iter().map(|call| {
            let (status, end) = match &call.outcome {
                CannedOutcome::Answer { status, .. } => (Some(*status), "answer"),
                CannedOutcome::Timeout => (None, "timeout"),
                CannedOutcome::Failure => (None, "failure"),
            };
            json!({
                "side": call.side.name(),
                "cluster": call.cluster,
                "headers": head(&call.head),
                "body": text(&call.body),
                "timeout_ms": call.timeout.map(|timeout| timeout.as_secs_f64() * 1000.0),
                "outcome": end,
                "status": status,
            })
        });
        let metadata: Map<String, Json> =
            self.metadata.iter().map(|(name, value)| (name.clone(), to_json(value))).collect();
        json!({
            "request": self.request.json(),
            "response": self.response.as_ref().map(Change::json),
            "answered_by_plugin": self.answered.map(Side::name),
            "details": self.details,
            "calls": calls.collect::<Vec<_>>(),
            "logs": self.logs.iter().map(|line| json!({"level": line.level.name(), "text": line.text})).collect::<Vec<_>>(),
            "errors": self.faults.iter().map(|fault| json!({"message": fault.text, "traceback": fault.traceback})).collect::<Vec<_>>(),
            "stuck": self.stuck.map(Side::name),
            "dynamic_metadata": metadata,
            "clears_route_cache": self.clears_route_cache,
            "upstream_override": self.upstream_override,
            "drains_connection": self.drains_connection,
            "hooks": self.steps.iter().map(|step| json!({"hook": step.name(), "time_ns": step.took.as_nanos() as u64})).collect::<Vec<_>>(),
            "memory_bytes": self.memory,
        })
    }
}

impl Step {
    /// The message and the part of it.
    pub fn name(&self) -> String {
        format!("{} {}", self.side.name(), if self.in_body_hook { "body" } else { "head" })
    }
}

/// One field that differs: what it was, and what it is.
struct Edit<'c> {
    name: &'c str,
    before: Vec<&'c [u8]>,
    after: Vec<&'c [u8]>,
}

impl Change {
    fn edits(&self) -> Vec<Edit<'_>> {
        let mut names = self.before.names();
        for name in self.after.names() {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        let edit =
            |name| Edit { name, before: self.before.values(name).collect(), after: self.after.values(name).collect() };
        names.into_iter().map(edit).filter(|edit| edit.before != edit.after).collect()
    }

    fn write(&self, title: &str, out: &mut String) -> std::fmt::Result {
        writeln!(out, "{title}")?;
        let edits = self.edits();
        let changed = |name: &str| edits.iter().any(|edit| edit.name == name);
        for (name, value) in self.before.0.iter().filter(|(name, _)| !changed(name)) {
            writeln!(out, "    {name}: {}", String::from_utf8_lossy(value))?;
        }
        let all = |values: &[&[u8]]| {
            let values: Vec<_> = values.iter().map(|value| String::from_utf8_lossy(value)).collect();
            values.join(", ")
        };
        for edit in &edits {
            match (edit.before.is_empty(), edit.after.is_empty()) {
                (true, _) => writeln!(out, "  + {}: {}", edit.name, all(&edit.after))?,
                (_, true) => writeln!(out, "  - {}: {}", edit.name, all(&edit.before))?,
                _ => writeln!(out, "  ~ {}: {} -> {}", edit.name, all(&edit.before), all(&edit.after))?,
            }
        }
        if self.body_before != self.body_after {
            writeln!(out, "  ~ body of {} bytes: {}", self.body_before.len(), shown(&self.body_before))?;
            writeln!(out, "    -> {} bytes: {}", self.body_after.len(), shown(&self.body_after))?;
        } else if !self.body_before.is_empty() {
            writeln!(out, "    body of {} bytes: {}", self.body_before.len(), shown(&self.body_before))?;
        }
        for (name, value) in &self.trailers.0 {
            writeln!(out, "    trailer {name}: {}", String::from_utf8_lossy(value))?;
        }
        Ok(())
    }

    fn json(&self) -> Json {
        let values = |values: &[&[u8]]| values.iter().map(|value| text(value)).collect::<Vec<_>>();
        let edits = self.edits();
        let part = |keep: &dyn Fn(&Edit<'_>) -> bool, show: &dyn Fn(&Edit<'_>) -> Json| {
            edits.iter().filter(|edit| keep(edit)).map(|edit| (edit.name.to_owned(), show(edit))).collect::<Map<_, _>>()
        };
        json!({
            "headers": head(&self.after),
            "added": part(&|edit| edit.before.is_empty(), &|edit| json!(values(&edit.after))),
            "changed": part(
                &|edit| !edit.before.is_empty() && !edit.after.is_empty(),
                &|edit| json!({"before": values(&edit.before), "after": values(&edit.after)}),
            ),
            "removed": part(&|edit| edit.after.is_empty(), &|edit| json!(values(&edit.before))),
            "body": text(&self.body_after),
            "body_changed": self.body_before != self.body_after,
            "trailers": head(&self.trailers),
        })
    }
}

fn head(head: &Head) -> Json {
    head.0.iter().map(|(name, value)| json!([name, text(value)])).collect()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The beginning of a body, on one line.
fn shown(body: &[u8]) -> String {
    let start = String::from_utf8_lossy(body.get(..SHOWN_BODY).unwrap_or(body)).into_owned();
    format!("{start:?}{}", if body.len() > SHOWN_BODY { "…" } else { "" })
}
