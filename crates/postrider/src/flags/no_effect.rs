//! Which flags are accepted for Envoy's sake and change nothing here, so that nobody waits for their effect in vain.

use clap::parser::ValueSource;
use clap::{ArgMatches, Command};

/// When an operator hears that a flag has no effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    /// Whenever the flag is given.
    Always,
    /// At log level debug: a mesh's agent always passes it, and would fill every log with it.
    Debug,
}

const NO_EFFECT: &[(&str, Told)] = &[
    ("reject-unknown-dynamic-fields", Told::Always),
    ("ignore-unknown-dynamic-fields", Told::Always),
    ("skip-deprecated-logs", Told::Debug),
    ("local-address-ip-version", Told::Debug),
    ("enable-fine-grain-logging", Told::Always),
    ("log-stacktrace-single-entry", Told::Always),
    ("file-flush-min-size-kb", Told::Debug),
    ("restart-epoch", Told::Always),
    ("base-id", Told::Always),
    ("use-dynamic-base-id", Told::Always),
    ("base-id-path", Told::Always),
    ("skip-hot-restart-on-no-parent", Told::Always),
    ("skip-hot-restart-parent-stats", Told::Always),
    ("parent-shutdown-time-s", Told::Always),
    ("socket-path", Told::Always),
    ("socket-mode", Told::Always),
    ("enable-mutex-tracing", Told::Always),
    ("enable-core-dump", Told::Debug),
];

/// The flags without effect that were given (on the command line or in the environment), in the order of `--help`:
/// those of which the operator is told, and with `debug` the others too.
pub fn given(command: &Command, matches: &ArgMatches, debug: bool) -> Vec<&'static str> {
    let was_given = |long: &str| {
        let argument = command.get_arguments().find(|argument| argument.get_long() == Some(long));
        let source = argument.and_then(|argument| matches.value_source(argument.get_id().as_str()));
        matches!(source, Some(ValueSource::CommandLine | ValueSource::EnvVariable))
    };
    NO_EFFECT
        .iter()
        .filter(|(long, told)| (debug || *told == Told::Always) && was_given(long))
        .map(|(long, _)| *long)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Args;

    fn command() -> Command {
        super::super::RunFlags::augment_args(Command::new("run"))
    }

    #[test]
    fn every_listed_flag_exists() {
        let command = command();
        for (long, _) in NO_EFFECT {
            assert!(command.get_arguments().any(|argument| argument.get_long() == Some(*long)), "--{long}");
        }
    }

    #[test]
    fn only_given_flags_are_told_and_those_of_an_agent_at_debug_only() {
        let matches = command().get_matches_from(["run", "--base-id", "3", "--enable-core-dump"]);
        assert_eq!(given(&command(), &matches, false), ["base-id"]);
        assert_eq!(given(&command(), &matches, true), ["base-id", "enable-core-dump"]);
    }
}
