//! `completion SHELL`: the script that makes a shell complete our commands and flags.

use clap::Args;
use clap_complete::Shell;

use crate::cli;
use crate::exit::Exit;
use crate::terminal;

#[derive(Args, Debug)]
pub struct Arguments {
    /// For which shell
    pub shell: Shell,
}

pub fn run(arguments: &Arguments) -> Exit {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut cli::command(), "postrider", &mut script);
    terminal::print(&String::from_utf8_lossy(&script))
}
