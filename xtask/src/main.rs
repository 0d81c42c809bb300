//! The rules of the house that no compiler knows, as commands that fail.
//!
//! Run by `make lint` and by nobody else; it reads the tree and changes nothing. Each rule is one file with one public
//! `check`, which returns what it found; this file only chooses the rules and prints.

mod arrows;
mod examples;
mod fields;
mod launch;
mod links;
mod panics;
mod sans_io;
mod source;
mod unsafe_code;
mod words;
mod workspace;

use std::fmt;
use std::path::PathBuf;
use std::process::ExitCode;

use workspace::Workspace;

const USAGE: &str = "\
usage: cargo xtask RULE

  arrows           dependencies between crates are those that ARCHITECTURE.md draws
  words            a dialect's words stay inside its dialect
  unsafe           `unsafe` only in crates/sys and the hosts of machine code, each use with its SAFETY line
  sans-io          codecs, router and model know no socket, no clock, no thread
  panics           no unwrap, expect, panic or unchecked index on the data path (runs clippy)
  links            every relative link of a Markdown file leads to a file
  all              all of the above
  fields           which fields of Envoy's main messages nobody reads yet; a report, no rule
  examples BIN     BIN validates and starts every config of examples/ and docs/
";

/// One broken rule: where, and what to do about it.
#[derive(Debug, PartialEq, Eq)]
pub struct Finding {
    /// Path relative to the repository, with `:line` where a line is known.
    pub place: String,
    pub text: String,
}

impl Finding {
    fn at(place: impl Into<String>, text: impl Into<String>) -> Self {
        Self { place: place.into(), text: text.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.place, self.text)
    }
}

/// What a rule returns: the findings (none is good), or why it could not look.
pub type Checked = Result<Vec<Finding>, String>;

type Rule = (&'static str, fn(&Workspace) -> Checked);

const RULES: &[Rule] = &[
    ("arrows", arrows::check),
    ("words", words::check),
    ("unsafe", unsafe_code::check),
    ("sans-io", sans_io::check),
    ("links", links::check),
    ("panics", panics::check),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match arguments.as_slice() {
        ["examples", binary] => run(&[], Some(binary.into())),
        ["fields"] => Workspace::load().and_then(|workspace| fields::report(&workspace)).map(|text| {
            print!("{text}");
            0
        }),
        ["all"] => run(RULES, None),
        [name] => match RULES.iter().find(|(rule, _)| rule == name) {
            Some(rule) => run(std::slice::from_ref(rule), None),
            None => Err(USAGE.to_owned()),
        },
        _ => Err(USAGE.to_owned()),
    };
    match outcome {
        Ok(0) => ExitCode::SUCCESS,
        Ok(findings) => {
            eprintln!("xtask: {findings} finding(s)");
            ExitCode::FAILURE
        }
        Err(message) => {
            eprintln!("{message}");
            ExitCode::from(2)
        }
    }
}

/// Runs the rules, prints every finding, and returns how many there were.
fn run(rules: &[Rule], examples_binary: Option<PathBuf>) -> Result<usize, String> {
    let workspace = Workspace::load()?;
    let mut total = 0;
    let mut report = |name: &str, findings: Vec<Finding>| {
        for finding in &findings {
            eprintln!("{name}: {finding}");
        }
        if findings.is_empty() {
            println!("{name}: ok");
        }
        total += findings.len();
    };
    for (name, check) in rules {
        report(name, check(&workspace)?);
    }
    if let Some(binary) = examples_binary {
        report("examples", examples::check(&workspace, &binary)?);
    }
    Ok(total)
}
