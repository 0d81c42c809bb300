//! `validate`: every error and warning of files, all at once.

use std::path::PathBuf;

use clap::Args;
use postrider_config_core::render;
use postrider_filter_plugin::library;
use postrider_model::Origin;
use serde_json::{Value, json};

use crate::config::{self, Checked, Input};
use crate::exit::Exit;
use crate::terminal::{self, Output};

/// Compiling depends on the number of workers in sizes only.
const WORKERS: usize = 1;

#[derive(Args, Debug)]
pub struct Arguments {
    /// The files; `-` is standard input
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,

    /// An unknown field is a warning instead of an error
    #[arg(long)]
    pub allow_unknown_static_fields: bool,

    /// Form of the result
    #[arg(long, value_enum, default_value_t, value_name = "FORM")]
    pub output: Output,
}

/// Each file is checked, also when one before it is wrong; the worst outcome is the exit code.
pub fn run(arguments: &Arguments) -> Exit {
    let mut worst = Exit::Done;
    let mut reports = Vec::new();
    for path in &arguments.files {
        let input = Input::argument(path).allow_unknown_fields(arguments.allow_unknown_static_fields);
        let exit = match check(&input) {
            Ok(checked) => {
                match arguments.output {
                    Output::Text if tell(&input, &checked) != Exit::Done => return Exit::Failed,
                    Output::Text => {}
                    Output::Json => reports.push(report(&input, &checked)),
                }
                exit_of(&checked)
            }
            Err(exit) => exit,
        };
        worst = if exit as u8 > worst as u8 { exit } else { worst };
    }
    if arguments.output == Output::Json {
        // One file is the object itself; of several, a list.
        let value = if arguments.files.len() == 1 { reports.pop().unwrap_or(Value::Null) } else { reports.into() };
        if value != Value::Null && terminal::print_json(&value) != Exit::Done {
            return Exit::Failed;
        }
    }
    worst
}

/// `run --mode validate`: says what Envoy says.
pub fn mode(input: &Input) -> Exit {
    match check(input) {
        Ok(checked) => {
            eprint!("{}", checked.findings(terminal::stderr_colour()));
            if exit_of(&checked) == Exit::Done {
                return terminal::print(&format!("configuration '{}' OK\n", input.name()));
            }
            Exit::InvalidConfig
        }
        Err(exit) => exit,
    }
}

/// Checks, with progress; says why when the file cannot be read.
pub fn check(input: &Input) -> Result<Checked, Exit> {
    let what = format!("checking {}", input.name());
    let mut checked = terminal::with_progress(&what, || config::check(input, None, WORKERS)).map_err(terminal::fail)?;
    for remote in library().wanted() {
        let message = format!("code from {} is not fetched here, so the plugin was not tried", remote.name());
        checked.outcome.warn(&Origin(String::new()), "code-not-fetched", message);
    }
    Ok(checked)
}

fn exit_of(checked: &Checked) -> Exit {
    if checked.outcome.diagnostics.has_errors() { Exit::InvalidConfig } else { Exit::Done }
}

fn tell(input: &Input, checked: &Checked) -> Exit {
    eprint!("{}", checked.findings(terminal::stderr_colour()));
    let Some(plan) = &checked.plan else { return Exit::Done };
    let counted = |n: usize, word: &str| format!("{n} {word}{}", if n == 1 { "" } else { "s" });
    let routes: usize = plan.listeners.iter().flat_map(|listener| listener.each_chain()).map(route_count).sum();
    terminal::print(&format!(
        "{}: OK ({}, {}, {})\n",
        input.name(),
        counted(plan.listeners.len(), "listener"),
        counted(routes, "route"),
        counted(plan.clusters.len(), "cluster"),
    ))
}

fn route_count(chain: &std::sync::Arc<postrider_worker::ChainPlan>) -> usize {
    use postrider_worker::HandlerPlan;
    match &chain.handler {
        HandlerPlan::Http(http) => http.routes.table.route_count(),
        HandlerPlan::Tcp(_) | HandlerPlan::Echo | HandlerPlan::Say(_) | HandlerPlan::Filters => 0,
    }
}

fn report(input: &Input, checked: &Checked) -> Value {
    let mut report = render::json(&checked.outcome.diagnostics, &checked.outcome.sources);
    report["file"] = json!(input.name());
    report["valid"] = json!(!checked.outcome.diagnostics.has_errors());
    report
}
