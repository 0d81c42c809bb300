//! `validate`: every error and warning of files, all at once.

use std::path::PathBuf;

use clap::Args;
use postrider_config_core::render;
use postrider_filter_plugin::{Remote, library};
use postrider_model::{ConnectionHandler, Origin, Value as Config};
use postrider_worker::Plan;
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
        let mut places = checked.plan.as_ref().map(|plan| places_of_code(plan, &remote.name())).unwrap_or_default();
        if places.is_empty() {
            places.push(String::new());
        }
        for place in places {
            checked.outcome.warn(&Origin(place), "code-not-fetched", message.clone());
        }
    }
    Ok(checked)
}

/// Where the filters and plugins of a plan ask for this code.
fn places_of_code(plan: &Plan, name: &str) -> Vec<String> {
    let chains = plan.snapshot.listeners.iter().flat_map(|l| l.filter_chains.iter().chain(&l.default_filter_chain));
    let of_requests = chains.flat_map(|chain| match &chain.handler {
        ConnectionHandler::Http(http) => http.filters.as_slice(),
        _ => &[],
    });
    let of_loggers = plan.loggers.iter().map(|logger| &logger.slot);
    let of_services = plan.services.iter().map(|service| &service.slot);
    let mut places = Vec::new();
    for slot in of_requests.chain(of_loggers).chain(of_services) {
        look_for_code(&slot.config, &slot.origin.0, name, &mut places);
    }
    places.dedup();
    places
}

fn look_for_code(value: &Config, path: &str, name: &str, places: &mut Vec<String>) {
    match value {
        Config::Map(entries) => {
            for (key, value) in entries {
                let path = format!("{path}.{key}");
                let remote = (key == "remote").then(|| Remote::read(value.fields().ok()?).ok()).flatten();
                if remote.is_some_and(|remote| remote.name() == name) {
                    places.push(path);
                } else {
                    look_for_code(value, &path, name, places);
                }
            }
        }
        Config::List(items) => {
            for (index, item) in items.iter().enumerate() {
                look_for_code(item, &format!("{path}[{index}]"), name, places);
            }
        }
        _ => {}
    }
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
