//! `run`: what is asked besides serving is answered here, the rest goes to [`crate::run`].

use std::process::ExitCode;

use postrider_config_envoy::disabled::unknown;

use super::validate;
use crate::cli::Run;
use crate::exit::Exit;
use crate::flags::{Mode, RunOptions};
use crate::{terminal, version};

/// What Envoy prints when there is no hot restart.
const NO_HOT_RESTART: &str = "disabled";

pub fn run(run: &Run) -> ExitCode {
    if run.flags.version {
        return terminal::print(&format!("\n{}  version: {}\n\n", run.program, version::build())).into();
    }
    if run.flags.hot_restart_version {
        return terminal::print(NO_HOT_RESTART).into();
    }
    for flag in &run.without_effect {
        eprintln!("note: --{flag} has no effect in Postrider {}", version::VERSION);
    }
    for name in &run.flags.component_log_level.unknown {
        eprintln!("note: --component-log-level: Postrider {} has no log named `{name}`", version::VERSION);
    }
    for (name, why) in unknown(&run.flags.disabled_extensions()) {
        eprintln!("warning: --disable-extensions: nothing is disabled by `{name}`: {why}");
    }
    let Some(options) = RunOptions::new(&run.flags) else {
        eprintln!("error: no configuration: give a file with -c FILE, or YAML with --config-yaml");
        return Exit::Usage.into();
    };
    match options.mode {
        Mode::Validate => validate::mode(&options.input).into(),
        Mode::Serve | Mode::InitOnly => crate::run::run(options),
    }
}
