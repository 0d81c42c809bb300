//! `go-process`: the process of a Go library whose plugins say `isolation: process`. The proxy starts it, and nobody else.

use std::ffi::OsString;

use clap::Args;

use crate::exit::Exit;
use crate::terminal;

#[derive(Args, Debug)]
pub struct Arguments {
    /// The library, and the numbers of the descriptors that it shares with the proxy
    #[arg(value_name = "LIBRARY DESCRIPTOR...", required = true, num_args = 1.., trailing_var_arg = true)]
    pub arguments: Vec<OsString>,
}

pub fn run(arguments: &Arguments) -> Exit {
    match postrider_filter_golang::serve_library(&arguments.arguments) {
        Ok(()) => Exit::Done,
        Err(why) => terminal::fail(format_args!("{why}")),
    }
}
