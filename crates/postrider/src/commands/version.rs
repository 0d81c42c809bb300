//! `version`.

use clap::Args;

use crate::exit::Exit;
use crate::terminal::{self, Output};
use crate::version;

#[derive(Args, Debug)]
pub struct Arguments {
    /// Form of the result
    #[arg(long, value_enum, default_value_t, value_name = "FORM")]
    pub output: Output,
}

pub fn run(arguments: &Arguments) -> Exit {
    match arguments.output {
        Output::Text => terminal::print(&version::text()),
        Output::Json => terminal::print_json(&version::json()),
    }
}
