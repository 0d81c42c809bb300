//! Test files: cases in a machine of their own, each showing streams to the plugin in its real one.
//!
//! ```text
//!  case's coroutine ── request as JSON, yield ──> runner ──> Loaded::run ──> result as a table ── resume ──> case
//! ```

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use postrider_filter_plugin::json::from_json;
use postrider_filter_trial::observe::Watch;
use postrider_filter_trial::{Canned, CannedOutcome, Change, Exchange, Head, Loaded, Report, Request, Response};
use postrider_model::Value;
use serde_json::Value as Json;

use super::coverage;
use super::lua_text::Table;
use super::subject::{LoadModule, Subject};
use crate::observe::LineCounts;
use crate::sdk;
use crate::vm::{Argument, Fault, Ran, Ref, Vm};

const SOURCE: &str = include_str!("test.lua");

/// What a file of tests may hold.
const MEMORY: usize = 256 << 20;

/// How long a case may run between two streams: one that never ends is a failure, not a hang.
const CPU: Duration = Duration::from_secs(10);

/// The number that a case yields to have its stream run (`test.lua`).
const RUN: i32 = 1;

/// What files of plugins end with.
const ENDINGS: [&str; 3] = ["lua", "wasm", "so"];

/// What files of tests end with, and the module that they use.
const TEST: &str = "_test.lua";
const API: &str = "postrider.test";

/// Deepest folder that is searched below the one that was named.
const MAX_DEPTH: usize = 8;

/// The results of one file.
#[derive(Debug)]
pub struct TestFile {
    pub path: PathBuf,
    pub plugin: Option<PathBuf>,
    pub cases: Vec<Case>,
    /// Why no case could run.
    pub error: Option<String>,
    /// Of a script: the lines of a module are not known.
    pub coverage: Option<Coverage>,
    pub took: Duration,
}

/// The result of one case.
#[derive(Debug)]
pub struct Case {
    pub name: String,
    pub took: Duration,
    pub failure: Option<Failure>,
    /// What the plugin logged, as `level: text`.
    pub logs: Vec<String>,
}

/// Why a case failed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Failure {
    pub message: String,
    /// `file:line`, where it is known.
    pub place: Option<String>,
    pub expected: Option<String>,
    pub actual: Option<String>,
    pub traceback: String,
}

/// Which lines of a plugin ran.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Coverage {
    /// The lines that have code, in order, and how often each ran.
    pub lines: BTreeMap<u32, u64>,
}

impl Coverage {
    pub fn covered(&self) -> usize {
        self.lines.values().filter(|count| **count > 0).count()
    }

    pub fn missed(&self) -> Vec<u32> {
        self.lines.iter().filter(|(_, count)| **count == 0).map(|(line, _)| *line).collect()
    }

    /// In whole percents, rounded down: 100 means all.
    pub fn percent(&self) -> usize {
        (self.covered() * 100).checked_div(self.lines.len()).unwrap_or(100)
    }
}

impl TestFile {
    pub fn passed(&self) -> bool {
        self.error.is_none() && self.cases.iter().all(|case| case.failure.is_none())
    }
}

/// The test files (`*_test.lua`) among `paths` and in the folders among them, in order. A file that is named is taken
/// whatever its name.
///
/// # Errors
/// A path that leads nowhere.
pub fn find_tests(paths: &[PathBuf]) -> Result<Vec<PathBuf>, String> {
    let mut found = Vec::new();
    for path in paths {
        match std::fs::metadata(path) {
            Ok(about) if about.is_dir() => search(path, 0, &mut found)?,
            Ok(_) => found.push(path.clone()),
            Err(error) => return Err(format!("{}: {error}", path.display())),
        }
    }
    Ok(found)
}

fn search(folder: &Path, depth: usize, found: &mut Vec<PathBuf>) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    let mut entries: Vec<_> = std::fs::read_dir(folder).map_err(failed)?.filter_map(Result::ok).collect();
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if is_folder && depth < MAX_DEPTH && !name.starts_with('.') {
            search(&entry.path(), depth + 1, found)?;
        } else if !is_folder && name.ends_with(TEST) {
            let path = entry.path();
            found.push(path.strip_prefix(".").map(Path::to_owned).unwrap_or(path));
        }
    }
    Ok(())
}

/// Runs the cases of one file, under these rules where a stream has none of its own. The plugin is the one that the file names
/// (`test.plugin`), or the one next to it: for `x_test.lua` it is `x.lua`, `x.wasm`, `x.so`, or `plugin` with one of these
/// endings. What is no script is loaded by `load_module`.
pub fn run_tests(path: &Path, rules: &Value, load_module: &LoadModule<'_>) -> TestFile {
    let began = Instant::now();
    let mut file = TestFile {
        path: path.to_owned(),
        plugin: None,
        cases: Vec::new(),
        error: None,
        coverage: None,
        took: Duration::ZERO,
    };
    if let Err(error) = run_file(&mut file, rules, load_module) {
        file.error = Some(error);
    }
    file.took = began.elapsed();
    file
}

fn run_file(file: &mut TestFile, rules: &Value, load_module: &LoadModule<'_>) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("cannot read {}: {error}", file.path.display());
    let source = std::fs::read(&file.path).map_err(failed)?;
    if !is_test(&file.path, &source) {
        return Err(format!("{} is no test: tests are named *{TEST}, or use {API}", file.path.display()));
    }
    let machine = TestMachine::new(&file.path, &source).map_err(|fault| fault.to_string())?;
    let folder = file.path.parent().unwrap_or(Path::new(""));
    let path = match machine.text(c"plugin") {
        Some(named) => folder.join(named),
        None => beside(&file.path),
    };
    file.plugin = Some(path.clone());
    let subject = Subject::open(&path, machine.text(c"runtime"), load_module)?;
    let executable = match &subject {
        Subject::Module { .. } => None,
        Subject::Script(_) => {
            let code = std::fs::read(&path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
            Some(machine.executable(&path, &code).map_err(|fault| fault.to_string())?)
        }
    };
    let count: usize = machine.text(c"count").and_then(|count| count.parse().ok()).unwrap_or(0);
    if count == 0 {
        return Err("there is no test.case in it".to_owned());
    }
    let (_lines, watch) = (LineCounts::start(), Watch::start());
    for number in 1..=count {
        file.cases.push(machine.run_case(number, &subject, rules, &watch).map_err(|fault| fault.to_string())?);
    }
    let ran = coverage::take();
    let counted =
        |lines: Vec<u32>| lines.into_iter().map(|line| (line, ran.get(&line).copied().unwrap_or(0))).collect();
    file.coverage = executable.map(|lines| Coverage { lines: counted(lines) });
    Ok(())
}

/// Whether somebody who names this file means its cases, and not those beside it.
fn is_test(path: &Path, source: &[u8]) -> bool {
    path.to_string_lossy().ends_with(TEST) || String::from_utf8_lossy(source).contains(API)
}

/// The plugin that a test file without a name of it means.
fn beside(test: &Path) -> PathBuf {
    let stem = test.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let names = [stem.trim_end_matches("_test"), "plugin"];
    let candidates =
        names.into_iter().flat_map(|name| ENDINGS.map(|ending| test.with_file_name(format!("{name}.{ending}"))));
    let found = candidates.into_iter().find(|file| file.is_file() && file != test);
    found.unwrap_or_else(|| test.with_file_name("plugin.lua"))
}

/// The machine of one file's cases.
struct TestMachine {
    vm: Vm,
    /// The table that `test.lua` answers with.
    table: Ref,
    functions: [Ref; 5],
}

/// The functions of the table, in the order of `TestMachine::functions`.
const FUNCTIONS: [&std::ffi::CStr; 5] = [c"select", c"run", c"deliver", c"refuse", c"lines"];

impl TestMachine {
    fn new(path: &Path, source: &[u8]) -> Result<TestMachine, Fault> {
        let vm = Vm::new(MEMORY, CPU)?;
        let broken = || Fault::Error("the test API did not load".to_owned());
        vm.run("=postrider.print", sdk::PRINT.as_bytes(), &[])?;
        let table = vm.run("=postrider.test", SOURCE.as_bytes(), &[Argument::Mark])?.ok_or_else(broken)?;
        let mut functions = Vec::new();
        for name in FUNCTIONS {
            functions.push(vm.function(table, name).ok_or_else(broken)?);
        }
        let search = vm.function(table, c"search").ok_or_else(broken)?;
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder.display().to_string(),
            _ => ".".to_owned(),
        };
        vm.call(search, &[Argument::Text(folder.as_bytes())])?;
        vm.run(&format!("@{}", path.display()), source, &[])?;
        let functions = functions.try_into().map_err(|_| broken())?;
        Ok(TestMachine { vm, table, functions })
    }

    fn text(&self, name: &std::ffi::CStr) -> Option<String> {
        self.vm.text(self.table, name)
    }

    /// The lines of a plugin's file that have code.
    fn executable(&self, path: &Path, code: &[u8]) -> Result<Vec<u32>, Fault> {
        let [.., lines] = self.functions;
        let chunk = self.vm.load(&format!("@{}", path.display()), code)?;
        self.vm.call(lines, &[Argument::Kept(chunk)])?;
        self.vm.release(chunk);
        let lines = self.text(c"executable").unwrap_or_default();
        Ok(lines.split(',').filter_map(|line| line.parse().ok()).collect())
    }

    fn run_case(&self, number: usize, subject: &Subject<'_>, rules: &Value, watch: &Watch) -> Result<Case, Fault> {
        let [select, run, ..] = self.functions;
        let began = Instant::now();
        self.vm.call(select, &[Argument::Number(number as f64)])?;
        let name = self.text(c"name").unwrap_or_default();
        let mut plugins = Plugins { subject, rules, loaded: Vec::new() };
        let mut logs = Vec::new();
        let mut ran = self.vm.start(run);
        let failure = loop {
            let (coroutine, stop) = match ran {
                Ran::Finished => break self.failure(),
                Ran::Stopped(coroutine, stop) => (coroutine, stop),
            };
            match stop {
                Ok(Some(RUN)) => {
                    let outcome = plugins.run(&self.text(c"request").unwrap_or_default(), watch, &mut logs);
                    self.answer(outcome)?;
                    ran = self.vm.resume(coroutine);
                }
                Ok(_) => {
                    self.vm.discard(coroutine);
                    break Some(Failure { message: "the case yielded".to_owned(), ..Failure::default() });
                }
                Err(fault) => {
                    let traceback = self.vm.traceback(&coroutine);
                    self.vm.discard(coroutine);
                    break Some(Failure { message: fault.to_string(), traceback, ..Failure::default() });
                }
            }
        };
        self.vm.collect();
        Ok(Case { name, took: began.elapsed(), failure, logs })
    }

    /// Hands over what a stream came to.
    fn answer(&self, outcome: Result<Report, String>) -> Result<(), Fault> {
        let [_, _, deliver, refuse, _] = self.functions;
        match outcome {
            Ok(report) => {
                let source = format!("return {}", result(&report).finish());
                let Some(table) = self.vm.run("=result", source.as_bytes(), &[])? else { return Ok(()) };
                self.vm.call(deliver, &[Argument::Kept(table)])?;
                self.vm.release(table);
            }
            Err(message) => {
                self.vm.call(refuse, &[Argument::Text(message.as_bytes())])?;
            }
        }
        Ok(())
    }

    /// How the case that ran last failed, if it did.
    fn failure(&self) -> Option<Failure> {
        self.text(c"failed")?;
        let message = self.text(c"message").unwrap_or_default();
        let place = match (self.text(c"source"), self.text(c"line")) {
            (Some(source), Some(line)) => {
                Some(format!("{}:{}", source.trim_start_matches('@'), line.trim_end_matches(".0")))
            }
            _ => place_in(&message),
        };
        Some(Failure {
            message,
            place,
            expected: self.text(c"expected"),
            actual: self.text(c"actual"),
            traceback: self.text(c"traceback").unwrap_or_default(),
        })
    }
}

/// `file:line` at the beginning of what Lua raised.
fn place_in(message: &str) -> Option<String> {
    let mut parts = message.splitn(3, ':');
    let (file, line) = (parts.next()?, parts.next()?);
    (!line.is_empty() && line.bytes().all(|b| b.is_ascii_digit())).then(|| format!("{file}:{line}"))
}

/// The plugins of one case: streams with the same configuration and rules share one, as on a worker.
struct Plugins<'c> {
    subject: &'c Subject<'c>,
    /// Of streams that have none of their own.
    rules: &'c Value,
    loaded: Vec<(Value, Value, Loaded)>,
}

impl Plugins<'_> {
    fn run(&mut self, request: &str, watch: &Watch, logs: &mut Vec<String>) -> Result<Report, String> {
        let spec: Json = serde_json::from_str(request).map_err(|error| error.to_string())?;
        let exchange = exchange(&spec)?;
        let config = spec.get("config").map_or(Ok(Value::Null), value)?;
        let rules = spec.get("rules").map_or_else(|| Ok(self.rules.clone()), rules)?;
        let is_known = |(known, under, _): &(Value, Value, Loaded)| *known == config && *under == rules;
        let at = match self.loaded.iter().position(is_known) {
            Some(at) => at,
            None => {
                let loaded = self.subject.load(config.clone(), rules.clone()).map_err(|errors| errors.join("\n"))?;
                self.loaded.push((config, rules, loaded));
                self.loaded.len() - 1
            }
        };
        let Some((.., loaded)) = self.loaded.get(at) else { return Err("no plugin".to_owned()) };
        let report = loaded.run_watched(&exchange, watch).map_err(|errors| errors.join("\n"))?;
        logs.extend(report.logs.iter().map(|line| format!("{}: {}", line.level.name(), line.text)));
        logs.extend(report.faults.iter().map(|fault| format!("error: {}", fault.text)));
        Ok(report)
    }
}

/// What a test says that its plugin may do.
fn rules(spec: &Json) -> Result<Value, String> {
    let mut spec = spec.clone();
    let Json::Object(keys) = &mut spec else { return Err("rules: expected a table".to_owned()) };
    // An empty table of Lua's is a list as well: here it means none.
    if let Some(clusters) = keys.get_mut("clusters")
        && clusters.as_object().is_some_and(serde_json::Map::is_empty)
    {
        *clusters = Json::Array(Vec::new());
    }
    value(&spec)
}

/// What a test says about a stream.
fn exchange(spec: &Json) -> Result<Exchange, String> {
    let mut exchange = Exchange::default();
    if let Some(request) = spec.get("request") {
        let mut fields = Fields::of("request", request)?;
        let Request { method, path, headers, body, trailers } = &mut exchange.request;
        fields.text("method", method)?;
        fields.text("path", path)?;
        fields.lines("headers", headers)?;
        fields.body(body)?;
        fields.lines("trailers", trailers)?;
        fields.finish()?;
    }
    if let Some(response) = spec.get("response") {
        let mut fields = Fields::of("response", response)?;
        let Response { status, headers, body, trailers } = &mut exchange.response;
        fields.status(status)?;
        fields.lines("headers", headers)?;
        fields.body(body)?;
        fields.lines("trailers", trailers)?;
        fields.finish()?;
    }
    exchange.route_config = spec.get("route_config").map(value).transpose()?;
    let empty = serde_json::Map::new();
    let calls = match spec.get("calls") {
        None => &empty,
        Some(Json::Object(calls)) => calls,
        Some(_) => return Err("calls: expected a table by the names of clusters".to_owned()),
    };
    for (cluster, answers) in calls {
        let answers = match answers {
            Json::Array(answers) => answers.as_slice(),
            one => std::slice::from_ref(one),
        };
        for answer in answers {
            let place = format!("calls.{cluster}");
            let outcome = match answer {
                Json::String(word) if word == "timeout" => CannedOutcome::Timeout,
                Json::String(word) if word == "failure" => CannedOutcome::Failure,
                answer => {
                    let mut fields = Fields::of(&place, answer)?;
                    let (mut status, mut headers, mut body) = (200, Vec::new(), Vec::new());
                    fields.status(&mut status)?;
                    fields.lines("headers", &mut headers)?;
                    fields.body(&mut body)?;
                    fields.finish()?;
                    CannedOutcome::Answer { status, headers, body: body.concat() }
                }
            };
            exchange.canned.push(Canned { cluster: cluster.clone(), outcome });
        }
    }
    Ok(exchange)
}

/// Reads a table of a test, and knows what was not read.
struct Fields<'j> {
    place: String,
    left: Vec<(&'j str, &'j Json)>,
}

impl<'j> Fields<'j> {
    fn of(place: &str, json: &'j Json) -> Result<Fields<'j>, String> {
        match json {
            Json::Object(map) => {
                let left = map.iter().map(|(key, value)| (key.as_str(), value)).collect();
                Ok(Fields { place: place.to_owned(), left })
            }
            _ => Err(format!("{place}: expected a table")),
        }
    }

    fn take(&mut self, key: &str) -> Option<&'j Json> {
        let at = self.left.iter().position(|(known, _)| *known == key)?;
        Some(self.left.remove(at).1)
    }

    fn text(&mut self, key: &str, out: &mut String) -> Result<(), String> {
        match self.take(key) {
            None => Ok(()),
            Some(Json::String(text)) => {
                *out = String::from_utf8_lossy(&bytes(text)).into_owned();
                Ok(())
            }
            Some(_) => Err(format!("{}.{key}: expected a text", self.place)),
        }
    }

    fn status(&mut self, out: &mut u16) -> Result<(), String> {
        let Some(status) = self.take("status") else { return Ok(()) };
        let number = status.as_u64().and_then(|status| u16::try_from(status).ok());
        *out = number
            .filter(|status| (100..=599).contains(status))
            .ok_or_else(|| format!("{}.status: expected a number from 100 to 599, found {status}", self.place))?;
        Ok(())
    }

    /// A table by name; a value is a text, a number or a list of such.
    fn lines(&mut self, key: &str, out: &mut Vec<(String, Vec<u8>)>) -> Result<(), String> {
        let map = match self.take(key) {
            None => return Ok(()),
            Some(Json::Object(map)) => map,
            Some(_) => return Err(format!("{}.{key}: expected a table by name", self.place)),
        };
        for (name, value) in map {
            let values = match value {
                Json::Array(values) => values.as_slice(),
                one => std::slice::from_ref(one),
            };
            for value in values {
                let value = match value {
                    Json::String(text) => bytes(text),
                    Json::Number(number) => number.to_string().into_bytes(),
                    _ => return Err(format!("{}.{key}: `{name}` is neither a text nor a list of texts", self.place)),
                };
                out.push((name.clone(), value));
            }
        }
        Ok(())
    }

    /// A text, or a list of texts: the pieces in which it arrives.
    fn body(&mut self, out: &mut Vec<Vec<u8>>) -> Result<(), String> {
        let pieces = match self.take("body") {
            None => return Ok(()),
            Some(Json::Array(pieces)) => pieces.as_slice(),
            Some(one) => std::slice::from_ref(one),
        };
        for piece in pieces {
            match piece {
                Json::String(text) => out.push(bytes(text)),
                _ => return Err(format!("{}.body: expected a text or a list of texts", self.place)),
            }
        }
        Ok(())
    }

    fn finish(self) -> Result<(), String> {
        match self.left.first() {
            Some((key, _)) => Err(format!("{}: there is no `{key}`", self.place)),
            None => Ok(()),
        }
    }
}

/// The bytes behind a text of `test.lua`, which has a character for each.
fn bytes(text: &str) -> Vec<u8> {
    text.chars().map(|c| u8::try_from(u32::from(c)).unwrap_or(b'?')).collect()
}

/// A configuration, whose texts are texts again.
fn value(json: &Json) -> Result<Value, String> {
    fn texts(json: &Json) -> Result<Json, String> {
        let text = |text: &str| String::from_utf8(bytes(text)).map_err(|_| "a configuration is text".to_owned());
        Ok(match json {
            Json::String(it) => Json::String(text(it)?),
            Json::Array(items) => Json::Array(items.iter().map(texts).collect::<Result<_, _>>()?),
            Json::Object(map) => {
                let entries = map.iter().map(|(key, value)| Ok((text(key)?, texts(value)?)));
                Json::Object(entries.collect::<Result<_, String>>()?)
            }
            plain => plain.clone(),
        })
    }
    texts(json).map(from_json)
}

/// What a test sees of a stream.
fn result(report: &Report) -> Table {
    let mut out = Table::new();
    out.table("request", message(&report.request));
    if let Some(response) = &report.response {
        out.table("response", message(response));
    }
    match report.answered {
        Some(side) => out.text("answered_by_plugin", side.name().as_bytes()),
        None => out.bool("answered_by_plugin", false),
    }
    out.text("details", report.details.as_bytes());
    let mut calls = Table::new();
    for call in &report.calls {
        let mut made = Table::new();
        made.text("cluster", call.cluster.as_bytes());
        pseudo(&call.head, &mut made);
        made.table("headers", headers(&call.head));
        made.text("body", &call.body);
        if let Some(timeout) = call.timeout {
            made.number("timeout_ms", timeout.as_secs_f64() * 1000.0);
        }
        calls.push(made);
    }
    out.table("calls", calls);
    let mut logs = Table::new();
    for line in &report.logs {
        let mut entry = Table::new();
        entry.text("level", line.level.name().as_bytes());
        entry.text("text", line.text.as_bytes());
        logs.push(entry);
    }
    out.table("logs", logs);
    let mut errors = Table::new();
    for fault in &report.faults {
        errors.push_text(fault.text.as_bytes());
    }
    out.table("errors", errors);
    let mut metadata = Table::new();
    for (namespace, value) in &report.metadata {
        metadata.value(namespace, value);
    }
    out.table("metadata", metadata);
    out.bool("clears_route_cache", report.clears_route_cache);
    out.bool("drains_connection", report.drains_connection);
    if let Some(host) = &report.upstream_override {
        out.text("upstream_override", host.as_bytes());
    }
    out.bool("stuck", report.stuck.is_some());
    out.number("memory", report.memory as f64);
    out
}

fn message(change: &Change) -> Table {
    let mut out = Table::new();
    pseudo(&change.after, &mut out);
    out.table("headers", headers(&change.after));
    out.text("body", &change.body_after);
    out.table("trailers", headers(&change.trailers));
    out
}

fn pseudo(head: &Head, out: &mut Table) {
    for (name, value) in head.0.iter().filter(|(name, _)| name.starts_with(':')) {
        let key = name.trim_start_matches(':');
        match std::str::from_utf8(value).ok().and_then(|value| value.parse::<u16>().ok()) {
            Some(status) if key == "status" => out.number(key, f64::from(status)),
            _ => out.text(key, value),
        }
    }
}

/// By name; several values joined by `, `.
fn headers(head: &Head) -> Table {
    let mut out = Table::new();
    for name in head.names() {
        let values: Vec<&[u8]> = head.values(name).collect();
        out.text(name, &values.join(&b", "[..]));
    }
    out
}
