//! The flags of `run` and what they mean: [`RunFlags`] is what was typed, [`RunOptions`] is what the process does.
//!
//! `main` makes the options; [`crate::run`] takes them. Nothing here opens a file or a socket.

mod command_line;
mod definition;
mod no_effect;
mod values;

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use postrider_telemetry::log::Level;
use serde_json::Value;

pub use definition::{DrainStrategy, Mode, RunFlags};
pub use no_effect::given as given_without_effect;
pub use values::ComponentLevels;

use crate::config::{Input, Service};

/// What `run` was told, checked and with defaults in place.
#[derive(Debug, Clone)]
pub struct RunOptions {
    pub input: Input,
    /// `Serve` or `InitOnly`: with the latter, end with success as soon as everything is set up.
    pub mode: Mode,
    pub workers: NonZeroUsize,
    /// Keep each worker on a processor of its own.
    pub pin: bool,
    /// Reload when the file of `input` changes; false when there is no file to watch.
    pub watch: bool,
    /// Compile WebAssembly well before serving.
    pub optimize_wasm_first: bool,
    /// Where the admin's address is written once it is bound.
    pub admin_address_path: Option<PathBuf>,
    pub drain_time: Duration,
    pub drain_strategy: DrainStrategy,
    /// How often access logs are written out.
    pub file_flush_interval: Duration,
    pub log: LogOptions,
    /// Tags that all statistics have, before those of the configuration: names and values.
    pub stats_tags: Vec<(String, String)>,
    /// For `/server_info`: every flag by the name and in the form of Envoy's `CommandLineOptions`.
    pub command_line: Value,
}

/// The application log.
#[derive(Debug, Clone)]
pub struct LogOptions {
    pub level: Level,
    pub components: ComponentLevels,
    /// `None` is standard error.
    pub path: Option<PathBuf>,
    /// `None` is the usual line.
    pub format: Option<String>,
    pub escaped: bool,
}

impl RunOptions {
    /// What the flags mean. `None` when they name no configuration.
    pub fn new(flags: &RunFlags) -> Option<RunOptions> {
        let service = Service {
            cluster: flags.service_cluster.clone(),
            node: flags.service_node.clone(),
            zone: flags.service_zone.clone(),
        };
        let input = Input::flags(
            flags.config_path.clone(),
            flags.config_yaml.clone(),
            flags.allow_unknown_static_fields || flags.allow_unknown_fields,
            service,
        )?
        .without(flags.disabled_extensions());
        let workers = workers(flags.concurrency);
        Some(RunOptions {
            mode: flags.mode,
            workers,
            pin: flags.pin,
            watch: input.path().is_some() && !flags.no_watch && flags.watch.unwrap_or(true),
            input,
            optimize_wasm_first: flags.optimize_wasm_first,
            admin_address_path: flags.admin_address_path.clone(),
            drain_time: Duration::from_secs(flags.drain_time_s.into()),
            drain_strategy: flags.drain_strategy,
            file_flush_interval: Duration::from_millis(flags.file_flush_interval_msec.into()),
            log: LogOptions {
                level: flags.log_level,
                components: flags.component_log_level.clone(),
                path: flags.log_path.clone(),
                format: flags.log_format.clone(),
                escaped: flags.log_format_escaped,
            },
            stats_tags: flags.stats_tag.clone(),
            command_line: command_line::json(flags, workers),
        })
    }
}

/// `--concurrency`; 0 is what the process may use, processors and control group considered.
fn workers(concurrency: u32) -> NonZeroUsize {
    NonZeroUsize::new(concurrency as usize)
        .or_else(|| NonZeroUsize::new(postrider_sys::processor_count()))
        .unwrap_or(NonZeroUsize::MIN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Args, Command, FromArgMatches};

    fn options(args: &[&str]) -> Option<RunOptions> {
        let command = RunFlags::augment_args(Command::new("run").no_binary_name(true));
        let matches = command.get_matches_from(args);
        RunOptions::new(&RunFlags::from_arg_matches(&matches).unwrap())
    }

    #[test]
    fn a_configuration_must_be_named() {
        assert!(options(&[]).is_none());
        assert!(options(&["--config-yaml", "{}"]).is_some_and(|options| !options.watch));
    }

    #[test]
    fn a_file_is_watched_unless_told_not_to() {
        let watched = |args: &[&str]| options(&[&["-c", "f"], args].concat()).unwrap().watch;
        assert!(watched(&[]) && watched(&["--watch"]));
        assert!(!watched(&["--no-watch"]) && !watched(&["--watch=false"]));
    }

    #[test]
    fn concurrency_of_zero_is_every_processor() {
        let workers = |n: &str| options(&["-c", "f", "--concurrency", n]).unwrap().workers.get();
        assert_eq!(workers("3"), 3);
        assert_eq!(workers("0"), postrider_sys::processor_count());
    }
}
