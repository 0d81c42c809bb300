//! `plugin test`: the cases of `*_test.lua` files, and which lines of scripts they ran.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use postrider_filter_lua::tool::{Coverage, Failure, Module, TestFile, find_tests, run_tests};
use postrider_filter_trial::Loaded;
use serde_json::{Value, json};

use super::run::{AnyRuntime, load, rules};
use crate::exit::Exit;
use crate::terminal;

#[derive(Args, Debug)]
pub struct Arguments {
    /// Test files, or folders to look for *_test.lua in
    #[arg(default_value = ".")]
    pub paths: Vec<PathBuf>,

    /// What the plugins may do, where a stream of a test says nothing: `on_error`, `budget`, `circuit`, `clusters`, and the
    /// options of their runtimes, such as `sandbox` or `root_id`
    #[arg(long, value_name = "JSON|@FILE")]
    pub rules: Option<String>,

    /// For programs
    #[arg(long)]
    pub json: bool,
}

pub fn run(arguments: &Arguments) -> Exit {
    let rules = match rules(arguments.rules.as_deref()) {
        Ok(rules) => rules,
        Err(wrong) => return wrong.tell(),
    };
    let found = match find_tests(&arguments.paths) {
        Ok(found) if found.is_empty() => return terminal::fail("there is no *_test.lua"),
        Ok(found) => found,
        Err(message) => return terminal::fail(message),
    };
    let files: Vec<TestFile> =
        terminal::with_progress("testing", || found.iter().map(|path| run_tests(path, &rules, &module)).collect());
    let coverage = coverage(&files);
    let printed = match arguments.json {
        true => terminal::print_json(&report(&files, &coverage)),
        false => terminal::print(&text(&files, &coverage)),
    };
    if files.iter().all(TestFile::passed) { printed } else { Exit::Failed }
}

/// Loads a plugin that is no script as a configuration would.
fn module(module: Module) -> Result<Loaded, Vec<String>> {
    let Module { path, runtime, config, rules } = module;
    let runtime = match &runtime {
        None => AnyRuntime::Auto,
        Some(name) => AnyRuntime::from_str(name, false).map_err(|_| vec![format!("there is no runtime `{name}`")])?,
    };
    load(&path, runtime, config, rules)
}

/// Per plugin, over all files that test it.
fn coverage(files: &[TestFile]) -> BTreeMap<&Path, Coverage> {
    let mut all: BTreeMap<&Path, Coverage> = BTreeMap::new();
    for file in files {
        if let (Some(plugin), Some(coverage)) = (&file.plugin, &file.coverage) {
            let sum = all.entry(plugin).or_insert_with(|| Coverage { lines: BTreeMap::new() });
            for (line, count) in &coverage.lines {
                *sum.lines.entry(*line).or_default() += count;
            }
        }
    }
    all
}

/// The plugins that have cases and no count of lines, each once.
fn modules(files: &[TestFile]) -> BTreeSet<&Path> {
    let uncounted = files.iter().filter(|file| file.coverage.is_none() && !file.cases.is_empty());
    uncounted.filter_map(|file| file.plugin.as_deref()).collect()
}

fn text(files: &[TestFile], coverage: &BTreeMap<&Path, Coverage>) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = write(files, coverage, &mut out);
    out
}

fn write(files: &[TestFile], coverage: &BTreeMap<&Path, Coverage>, out: &mut String) -> std::fmt::Result {
    let (mut passed, mut failed) = (0, 0);
    for file in files {
        writeln!(out, "{}", file.path.display())?;
        if let Some(error) = &file.error {
            failed += 1;
            writeln!(out, "  error: {}", error.replace('\n', "\n  "))?;
        }
        for case in &file.cases {
            let took = case.took.as_secs_f64() * 1000.0;
            match &case.failure {
                None => {
                    passed += 1;
                    writeln!(out, "  ok    {} ({took:.1} ms)", case.name)?;
                }
                Some(failure) => {
                    failed += 1;
                    writeln!(out, "  FAIL  {} ({took:.1} ms)", case.name)?;
                    write_failure(failure, &case.logs, out)?;
                }
            }
        }
    }
    for (plugin, coverage) in coverage {
        let (covered, all) = (coverage.covered(), coverage.lines.len());
        write!(out, "{}: {}% of lines ({covered} of {all})", plugin.display(), coverage.percent())?;
        match ranges(&coverage.missed()) {
            missed if missed.is_empty() => out.push('\n'),
            missed => writeln!(out, ", not run: {missed}")?,
        }
    }
    for plugin in modules(files) {
        writeln!(out, "{}: which lines ran is known of scripts only", plugin.display())?;
    }
    let took: f64 = files.iter().map(|file| file.took.as_secs_f64() * 1000.0).sum();
    writeln!(out, "{passed} passed, {failed} failed in {took:.0} ms")
}

fn write_failure(failure: &Failure, logs: &[String], out: &mut String) -> std::fmt::Result {
    let message = failure.message.replace('\n', "\n        ");
    match &failure.place {
        // Lua's own messages begin with the place.
        Some(place) if !message.starts_with(place.as_str()) => writeln!(out, "        {place}: {message}")?,
        _ => writeln!(out, "        {message}")?,
    }
    for (what, shown) in [("expected", &failure.expected), ("actual", &failure.actual)] {
        if let Some(shown) = shown {
            writeln!(out, "        {what:<8}  {shown}")?;
        }
    }
    // A failed check stands where it stands; what broke needs the way there.
    if failure.expected.is_none() {
        for line in failure.traceback.lines() {
            writeln!(out, "          {}", line.trim())?;
        }
    }
    logs.iter().try_for_each(|line| writeln!(out, "        logged  {line}"))
}

/// `3, 5-7`
fn ranges(lines: &[u32]) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for &line in lines {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == line => *last = line,
            _ => ranges.push((line, line)),
        }
    }
    let shown = ranges.into_iter().map(|(first, last)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    });
    shown.collect::<Vec<_>>().join(", ")
}

fn report(files: &[TestFile], coverage: &BTreeMap<&Path, Coverage>) -> Value {
    let file = |file: &TestFile| {
        let cases = file.cases.iter().map(|case| {
            let failure = case.failure.as_ref().map(|failure| {
                json!({
                    "message": failure.message,
                    "place": failure.place,
                    "expected": failure.expected,
                    "actual": failure.actual,
                    "traceback": failure.traceback,
                })
            });
            json!({
                "name": case.name,
                "passed": case.failure.is_none(),
                "time_ms": case.took.as_secs_f64() * 1000.0,
                "failure": failure,
                "logs": case.logs,
            })
        });
        json!({
            "file": file.path.display().to_string(),
            "plugin": file.plugin.as_ref().map(|plugin| plugin.display().to_string()),
            "error": file.error,
            "cases": cases.collect::<Vec<_>>(),
        })
    };
    let covered = coverage.iter().map(|(plugin, coverage)| {
        json!({
            "plugin": plugin.display().to_string(),
            "lines": coverage.lines.len(),
            "covered": coverage.covered(),
            "percent": coverage.percent(),
            "missed": coverage.missed(),
        })
    });
    json!({
        "passed": files.iter().all(TestFile::passed),
        "files": files.iter().map(file).collect::<Vec<_>>(),
        "coverage": covered.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_in_a_row_are_a_range() {
        assert_eq!(ranges(&[1, 3, 4, 5, 9, 10]), "1, 3-5, 9-10");
        assert_eq!(ranges(&[]), "");
    }
}
