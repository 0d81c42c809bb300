//! The binary: reads the command line, does what it says, ends with a code that scripts can rely on.
//!
//! It must never hold logic that a test would want to reach without starting a process.

mod certificates;
mod cli;
mod commands;
mod config;
mod exit;
mod flags;
mod run;
mod terminal;
mod version;

use std::process::ExitCode;

use cli::Invocation;
#[cfg(feature = "golang")]
use commands::go_process;
use commands::{certs, completion, convert, demo_upstream, doctor, explain, migrate, plugin, top, validate};

/// Half of an HTTP/2 stream's small allocations miss the few that glibc keeps at hand per size; this one keeps them all.
/// Counted, to tell what filters allocate.
#[global_allocator]
static ALLOCATOR: postrider_sys::Accounted<mimalloc::MiMalloc> = postrider_sys::Accounted(mimalloc::MiMalloc);

fn main() -> ExitCode {
    let exit = match cli::parse(std::env::args_os()) {
        Ok(Invocation::Run(run)) => return commands::run::run(&run),
        Ok(Invocation::Validate(arguments)) => validate::run(&arguments),
        Ok(Invocation::Migrate(arguments)) => migrate::run(&arguments),
        Ok(Invocation::Explain(arguments)) => explain::run(&arguments),
        Ok(Invocation::Convert(arguments)) => convert::run(&arguments),
        Ok(Invocation::Doctor(arguments)) => doctor::run(&arguments),
        Ok(Invocation::Plugin(arguments)) => plugin::run(&arguments),
        Ok(Invocation::Top(arguments)) => top::run(&arguments),
        Ok(Invocation::Certs(arguments)) => certs::run(&arguments),
        Ok(Invocation::Completion(arguments)) => completion::run(&arguments),
        Ok(Invocation::Version(arguments)) => commands::version::run(&arguments),
        Ok(Invocation::DemoUpstream(arguments)) => demo_upstream::run(&arguments),
        #[cfg(feature = "golang")]
        Ok(Invocation::GoProcess(arguments)) => go_process::run(&arguments),
        Err(error) => error.exit(),
    };
    exit.into()
}
