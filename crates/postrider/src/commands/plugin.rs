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
    prepare_go();
    match &arguments.command {
        Named::New(arguments) => new::run(arguments),
        Named::Run(arguments) => run::run(arguments),
        Named::Test(arguments) => test::run(arguments),
    }
}

/// Has Go libraries begin as they do in a proxy with one worker. That needs a process without other threads; the program may be
/// started anew for it, before anything was printed.
fn prepare_go() {
    #[cfg(feature = "golang")]
    {
        postrider_filter_golang::settle_checks();
        postrider_filter_golang::settle_workers(1);
        postrider_filter_golang::at_start(true);
    }
}
