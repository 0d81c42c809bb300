//! `plugin`: writes a new plugin, tries one out on a stream, runs its tests. None of them needs a proxy.

pub mod new;
pub mod run;
pub mod test;

use clap::{Args, Subcommand};

use crate::exit::Exit;

#[derive(Args, Debug)]
pub struct Arguments {
    #[command(subcommand)]
    command: Named,
}

#[derive(Subcommand, Debug)]
enum Named {
    /// Write a plugin that works, with its test and a configuration
    New(new::Arguments),
    /// Show what a plugin does to one request and its answer
    Run(run::Arguments),
    /// Run *_test.lua files
    Test(test::Arguments),
}

pub fn run(arguments: &Arguments) -> Exit {
    match &arguments.command {
        Named::New(arguments) => new::run(arguments),
        Named::Run(arguments) => run::run(arguments),
        Named::Test(arguments) => test::run(arguments),
    }
}
