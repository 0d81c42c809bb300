//! The command line: which command was meant, whatever the binary is called.
//!
//! `postrider COMMAND …` names a command. Without one, flags are those of `run`; so are they when the binary has another
//! name, because then it stands where `envoy` stood. It only reads: `main` does.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use clap::builder::FalseyValueParser;
use clap::{ArgAction, ArgMatches, Args, Command, CommandFactory, FromArgMatches, Parser, Subcommand};
use postrider_telemetry::log::Level;

#[cfg(feature = "golang")]
use crate::commands::go_process;
use crate::commands::{
    certs, completion, convert, demo_upstream, doctor, explain, migrate, plugin, top, validate, version,
};
use crate::flags::{RunFlags, given_without_effect};

const NAME: &str = "postrider";

/// What stands below the help of every command.
const AFTER_HELP: &str = "\
Each flag can also be given in the environment: --config-path as POSTRIDER_CONFIG_PATH, and so on.
Exit codes: 0 done, 1 failed at run time, 2 wrong usage, 3 invalid configuration.";

#[derive(Parser, Debug)]
#[command(name = NAME, about = "A proxy for HTTP and TCP that reads Envoy's configuration", after_help = AFTER_HELP,
          subcommand_required = true, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Named,
}

#[derive(Subcommand, Debug)]
enum Named {
    /// Serve
    Run(Box<RunFlags>),
    /// Check files: show every error of each
    Validate(validate::Arguments),
    /// Turn v2, or a file with certain faults, into v3 YAML
    Migrate(migrate::Arguments),
    /// Say where a request would go, and why
    Explain(explain::Arguments),
    /// Write a file in another form
    Convert(convert::Arguments),
    /// Say what of a file is supported
    Doctor(doctor::Arguments),
    /// Write, try out and test plugins
    Plugin(plugin::Arguments),
    /// Show what a running proxy and its plugins do
    Top(top::Arguments),
    /// Show certificates: what is used where, and when it ends
    Certs(certs::Arguments),
    /// Print a completion script for a shell
    Completion(completion::Arguments),
    /// Print the version
    Version(version::Arguments),
    /// Serve a small HTTP origin to try things with
    DemoUpstream(demo_upstream::Arguments),
    /// Serve a Go library to the proxy that starts this
    #[cfg(feature = "golang")]
    #[command(name = postrider_filter_golang::PROCESS_COMMAND, hide = true)]
    GoProcess(go_process::Arguments),
}

/// What is to be done.
#[derive(Debug)]
pub enum Invocation {
    Run(Run),
    Validate(validate::Arguments),
    Migrate(migrate::Arguments),
    Explain(explain::Arguments),
    Convert(convert::Arguments),
    Doctor(doctor::Arguments),
    Plugin(plugin::Arguments),
    Top(top::Arguments),
    Certs(certs::Arguments),
    Completion(completion::Arguments),
    Version(version::Arguments),
    DemoUpstream(demo_upstream::Arguments),
    #[cfg(feature = "golang")]
    GoProcess(go_process::Arguments),
}

/// `run`, by name or without.
#[derive(Debug)]
pub struct Run {
    /// The first argument of the process, for `--version`.
    pub program: String,
    pub flags: Box<RunFlags>,
    /// Given flags that change nothing, without their dashes.
    pub without_effect: Vec<&'static str>,
}

/// Reads the arguments of the process, the program's name first.
///
/// # Errors
/// Wrong usage, or a request for help: clap's own words and exit code (2 and 0).
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Invocation, clap::Error> {
    let mut arguments: Vec<OsString> = arguments.into_iter().collect();
    let program = arguments.first().cloned().unwrap_or_else(|| NAME.into());
    let own_name = Path::new(&program).file_name() == Some(OsStr::new(NAME));
    let first = arguments.get(1).and_then(|first| first.to_str());
    let bare_run = !own_name || is_bare_run(first);
    if bare_run || first == Some("run") {
        ignore_rest(&mut arguments);
    }
    if !bare_run {
        return named(command(), &arguments, &program);
    }
    let name = if own_name { NAME.to_owned() } else { file_name(&program) };
    let run = with_environment(RunFlags::augment_args(Command::new(name).about("Serve").after_help(AFTER_HELP)));
    let matches = run.clone().try_get_matches_from(arguments)?;
    self::run(&run, &matches, &program).map(Invocation::Run)
}

/// The whole command line, for completion scripts and checks.
pub fn command() -> Command {
    with_environment(Cli::command())
}

/// Whether the binary under its own name is asked to run without saying so.
fn is_bare_run(first: Option<&str>) -> bool {
    match first {
        Some(first) => first.starts_with('-') && !matches!(first, "-h" | "--help"),
        None => std::env::var_os("POSTRIDER_CONFIG_PATH").is_some(),
    }
}

fn named(command: Command, arguments: &[OsString], program: &OsStr) -> Result<Invocation, clap::Error> {
    let matches = command.clone().try_get_matches_from(arguments)?;
    Ok(match Cli::from_arg_matches(&matches)?.command {
        Named::Run(_) => {
            let run_command = command.find_subcommand("run").cloned().unwrap_or_default();
            let (_, run_matches) = matches.subcommand().unwrap_or(("run", &matches));
            Invocation::Run(run(&run_command, run_matches, program)?)
        }
        Named::Validate(arguments) => Invocation::Validate(arguments),
        Named::Migrate(arguments) => Invocation::Migrate(arguments),
        Named::Explain(arguments) => Invocation::Explain(arguments),
        Named::Convert(arguments) => Invocation::Convert(arguments),
        Named::Doctor(arguments) => Invocation::Doctor(arguments),
        Named::Plugin(arguments) => Invocation::Plugin(arguments),
        Named::Top(arguments) => Invocation::Top(arguments),
        Named::Certs(arguments) => Invocation::Certs(arguments),
        Named::Completion(arguments) => Invocation::Completion(arguments),
        Named::Version(arguments) => Invocation::Version(arguments),
        Named::DemoUpstream(arguments) => Invocation::DemoUpstream(arguments),
        #[cfg(feature = "golang")]
        Named::GoProcess(arguments) => Invocation::GoProcess(arguments),
    })
}

fn run(command: &Command, matches: &ArgMatches, program: &OsStr) -> Result<Run, clap::Error> {
    let flags = RunFlags::from_arg_matches(matches)?;
    let without_effect = given_without_effect(command, matches, flags.log_level <= Level::Debug);
    Ok(Run { program: program.to_string_lossy().into_owned(), flags: Box::new(flags), without_effect })
}

/// Envoy's `--` and `--ignore_rest`: what follows is not read.
fn ignore_rest(arguments: &mut Vec<OsString>) {
    if let Some(end) = arguments.iter().position(|argument| argument == "--" || argument == "--ignore_rest") {
        arguments.truncate(end);
    }
}

/// Lets every flag of every command be given in the environment, as `POSTRIDER_` and its name.
fn with_environment(command: Command) -> Command {
    let command = command.mut_args(|argument| {
        let Some(long) = argument.get_long().filter(|long| !matches!(*long, "help" | "version")) else {
            return argument;
        };
        let variable = format!("POSTRIDER_{}", long.replace('-', "_").to_uppercase());
        let is_switch = matches!(argument.get_action(), ArgAction::SetTrue);
        let argument = argument.env(OsString::from(variable)).hide_env(true);
        if is_switch { argument.value_parser(FalseyValueParser::new()) } else { argument }
    });
    command.mut_subcommands(with_environment)
}

fn file_name(program: &OsStr) -> String {
    Path::new(program).file_name().unwrap_or(program).to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests;
