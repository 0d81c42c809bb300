//! `convert FILE --to envoy`: what a file means, written out in another form.

use std::path::PathBuf;

use clap::Args;

use super::validate;
use crate::config::Input;
use crate::exit::Exit;
use crate::terminal;

#[derive(Args, Debug)]
pub struct Arguments {
    /// The file; `-` is standard input
    pub file: PathBuf,

    /// The form to write
    #[arg(long, value_enum, value_name = "FORM")]
    pub to: Form,
}

/// A form that configurations can be written in.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Envoy's v3 bootstrap as YAML
    Envoy,
}

pub fn run(arguments: &Arguments) -> Exit {
    let checked = match validate::check(&Input::argument(&arguments.file)) {
        Ok(checked) => checked,
        Err(exit) => return exit,
    };
    eprint!("{}", checked.findings(terminal::stderr_colour()));
    let Form::Envoy = arguments.to;
    match checked.outcome.to_envoy_yaml() {
        Some(yaml) if checked.plan.is_some() => terminal::print(&yaml),
        _ => Exit::InvalidConfig,
    }
}
