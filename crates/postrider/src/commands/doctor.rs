//! `doctor`: what of a file is supported, field by field. A file that is refused is reported on all the same: that is when
//! the question is asked.

use std::path::PathBuf;

use clap::Args;

use super::validate;
use crate::config::Input;
use crate::exit::Exit;
use crate::terminal::{self, Output};

#[derive(Args, Debug)]
pub struct Arguments {
    /// The file; `-` is standard input
    pub file: PathBuf,

    /// Form of the result
    #[arg(long, value_enum, default_value_t, value_name = "FORM")]
    pub output: Output,
}

pub fn run(arguments: &Arguments) -> Exit {
    let outcome = match validate::check(&Input::argument(&arguments.file)) {
        Ok(checked) => checked.outcome,
        Err(exit) => return exit,
    };
    let report = outcome.report();
    let printed = match arguments.output {
        Output::Text => terminal::print(&report.text(&outcome.sources)),
        Output::Json => terminal::print_json(&report.json(&outcome.sources)),
    };
    match (printed, outcome.diagnostics.errors()) {
        (Exit::Done, 0) => Exit::Done,
        (Exit::Done, errors) => {
            eprintln!(
                "{errors} error{}: `postrider validate {}` shows what to do",
                if errors == 1 { "" } else { "s" },
                arguments.file.display()
            );
            Exit::InvalidConfig
        }
        (failed, _) => failed,
    }
}
