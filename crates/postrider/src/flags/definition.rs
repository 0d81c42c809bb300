//! The flags of `run`, as clap reads them: those of Envoy 1.40 under their own names, and a few of ours.
//!
//! One definition serves `postrider run …`, bare `postrider -c FILE …` and the binary under another name. It only reads;
//! what the values mean is decided in [`super::RunOptions`].

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::values::{ComponentLevels, parse_component_levels, parse_level, parse_socket_mode, parse_stats_tag};
use postrider_telemetry::log::Level;

/// Milliseconds between two writes of the access logs, unless told.
const DEFAULT_FILE_FLUSH_MSEC: u32 = 1_000;

/// Seconds that draining may take, unless told: Envoy's value.
const DEFAULT_DRAIN_SECONDS: u32 = 600;

/// Seconds until a hot restart ends the parent, unless told: Envoy's value.
const DEFAULT_PARENT_SHUTDOWN_SECONDS: u32 = 900;

#[derive(Args, Debug, Clone)]
pub struct RunFlags {
    /// The configuration: YAML, JSON, text or binary protobuf, or the short form
    #[arg(short = 'c', long, value_name = "FILE", help_heading = "Configuration")]
    pub config_path: Option<PathBuf>,

    /// YAML or JSON merged over the file; may stand alone
    #[arg(long, value_name = "YAML", help_heading = "Configuration")]
    pub config_yaml: Option<String>,

    /// `validate` checks the configuration and ends; `init_only` ends when everything is set up
    #[arg(long, value_name = "MODE", default_value = "serve", help_heading = "Configuration")]
    pub mode: Mode,

    /// An unknown field is a warning instead of an error
    #[arg(long, help_heading = "Configuration")]
    pub allow_unknown_static_fields: bool,

    /// The old name of --allow-unknown-static-fields
    #[arg(long, help_heading = "Configuration")]
    pub allow_unknown_fields: bool,

    /// Refuse unknown fields in dynamic configuration
    #[arg(long, help_heading = "Configuration")]
    pub reject_unknown_dynamic_fields: bool,

    /// Ignore unknown fields in dynamic configuration, without counting them
    #[arg(long, help_heading = "Configuration")]
    pub ignore_unknown_dynamic_fields: bool,

    /// Do not warn about deprecated fields
    #[arg(long, help_heading = "Configuration")]
    pub skip_deprecated_logs: bool,

    /// Extensions that may not be used: `category/name`, separated by commas
    #[arg(long, value_name = "NAMES", help_heading = "Configuration")]
    pub disable_extensions: Option<String>,

    /// Reload when the file given with -c changes: on, unless said otherwise
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true",
          help_heading = "Configuration")]
    pub watch: Option<bool>,

    /// Reload on SIGHUP only
    #[arg(long, help_heading = "Configuration")]
    pub no_watch: bool,

    /// Number of workers; 0 means one for each processor that the process may use
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "Workers")]
    pub concurrency: u32,

    /// Count the processors that the process may use (Postrider always does)
    #[arg(long, help_heading = "Workers")]
    pub cpuset_threads: bool,

    /// Keep each worker on a processor of its own
    #[arg(long, help_heading = "Workers")]
    pub pin: bool,

    /// Compile large WebAssembly modules well before serving, instead of quickly at first
    #[arg(long, help_heading = "Workers")]
    pub optimize_wasm_first: bool,

    /// Write the admin's address to this file once it is bound
    #[arg(long, value_name = "FILE", help_heading = "Admin")]
    pub admin_address_path: Option<PathBuf>,

    /// `v4` or `v6`: the family of this host's own address
    #[arg(long, value_name = "VERSION", default_value = "v4", help_heading = "Admin")]
    pub local_address_ip_version: IpVersion,

    /// Name of the cluster that this proxy belongs to, instead of the file's
    #[arg(long, value_name = "NAME", help_heading = "Node")]
    pub service_cluster: Option<String>,

    /// Name of this proxy, instead of the file's
    #[arg(long, value_name = "NAME", help_heading = "Node")]
    pub service_node: Option<String>,

    /// Zone of this proxy, instead of the file's
    #[arg(long, value_name = "NAME", help_heading = "Node")]
    pub service_zone: Option<String>,

    /// trace, debug, info, warning (or warn), error, critical or off
    #[arg(short = 'l', long, value_name = "LEVEL", default_value = "info", value_parser = parse_level,
          help_heading = "Logs")]
    pub log_level: Level,

    /// Levels of single components: `upstream:debug,config:trace`
    #[arg(long, value_name = "LEVELS", default_value = "", value_parser = parse_component_levels,
          hide_default_value = true, help_heading = "Logs")]
    pub component_log_level: ComponentLevels,

    /// Write the log to this file instead of standard error
    #[arg(long, value_name = "FILE", help_heading = "Logs")]
    pub log_path: Option<PathBuf>,

    /// Pattern of a log line
    #[arg(long, value_name = "PATTERN", help_heading = "Logs")]
    pub log_format: Option<String>,

    /// Escape control characters in the log
    #[arg(long, help_heading = "Logs")]
    pub log_format_escaped: bool,

    /// Levels per source file
    #[arg(long, help_heading = "Logs")]
    pub enable_fine_grain_logging: bool,

    /// One entry for a whole stack trace
    #[arg(long, help_heading = "Logs")]
    pub log_stacktrace_single_entry: bool,

    /// Milliseconds after which access logs are written out
    #[arg(long, value_name = "N", default_value_t = DEFAULT_FILE_FLUSH_MSEC, help_heading = "Logs")]
    pub file_flush_interval_msec: u32,

    /// Kilobytes after which access logs are written out
    #[arg(long, value_name = "N", help_heading = "Logs")]
    pub file_flush_min_size_kb: Option<u32>,

    /// Seconds that draining may take
    #[arg(long, value_name = "N", default_value_t = DEFAULT_DRAIN_SECONDS, help_heading = "Draining")]
    pub drain_time_s: u32,

    /// `gradual`: connections are asked to close over the drain time; `immediate`: at once
    #[arg(long, value_name = "STRATEGY", default_value = "gradual", help_heading = "Draining")]
    pub drain_strategy: DrainStrategy,

    /// Do not offer a hot restart (Postrider never does)
    #[arg(long, help_heading = "Hot restart")]
    pub disable_hot_restart: bool,

    /// Print the version of the hot restart protocol and end
    #[arg(long, help_heading = "Hot restart")]
    pub hot_restart_version: bool,

    /// How often this process was restarted hot
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "Hot restart")]
    pub restart_epoch: u32,

    /// Keeps several proxies of a host apart
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "Hot restart")]
    pub base_id: u32,

    /// Choose the base id
    #[arg(long, help_heading = "Hot restart")]
    pub use_dynamic_base_id: bool,

    /// Write the base id to this file
    #[arg(long, value_name = "FILE", help_heading = "Hot restart")]
    pub base_id_path: Option<PathBuf>,

    /// Start as the first when there is no parent
    #[arg(long, help_heading = "Hot restart")]
    pub skip_hot_restart_on_no_parent: bool,

    /// Do not take over the parent's statistics
    #[arg(long, help_heading = "Hot restart")]
    pub skip_hot_restart_parent_stats: bool,

    /// Seconds until the parent is ended
    #[arg(long, value_name = "N", default_value_t = DEFAULT_PARENT_SHUTDOWN_SECONDS, help_heading = "Hot restart")]
    pub parent_shutdown_time_s: u32,

    /// Socket between parent and child
    #[arg(long, value_name = "PATH", help_heading = "Hot restart")]
    pub socket_path: Option<String>,

    /// Mode of that socket, in octal
    #[arg(long, value_name = "MODE", value_parser = parse_socket_mode, help_heading = "Hot restart")]
    pub socket_mode: Option<u32>,

    /// A tag of all statistics, `name:value`; may be repeated
    #[arg(long, value_name = "TAG", value_parser = parse_stats_tag, help_heading = "Statistics and debugging")]
    pub stats_tag: Vec<(String, String)>,

    /// Trace contention of locks
    #[arg(long, help_heading = "Statistics and debugging")]
    pub enable_mutex_tracing: bool,

    /// Allow core dumps
    #[arg(long, help_heading = "Statistics and debugging")]
    pub enable_core_dump: bool,

    /// Print the version and end
    #[arg(long)]
    pub version: bool,
}

impl RunFlags {
    /// `--disable-extensions`, one by one.
    pub fn disabled_extensions(&self) -> Vec<String> {
        self.disable_extensions.iter().flat_map(|names| names.split(',')).map(str::to_owned).collect()
    }
}

/// What to do with the configuration (`--mode`).
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Serve,
    Validate,
    #[value(name = "init_only")]
    InitOnly,
}

/// How connections are asked to close while draining (`--drain-strategy`).
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrainStrategy {
    Gradual,
    Immediate,
}

/// `--local-address-ip-version`.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum IpVersion {
    V4,
    V6,
}
