//! The flags as `/server_info` shows them: the fields of Envoy's `CommandLineOptions` (admin/v3/server_info.proto), in
//! its order, with defaults printed.

use std::num::NonZeroUsize;
use std::path::Path;

use serde_json::{Value, json};

use super::definition::{DrainStrategy, IpVersion, Mode, RunFlags};

/// Envoy's default pattern; also what Postrider's log lines look like, but for the place in the source.
const LOG_FORMAT: &str = "[%Y-%m-%d %T.%e][%t][%l][%n] [%g:%#] %v";

pub fn json(flags: &RunFlags, workers: NonZeroUsize) -> Value {
    json!({
        "base_id": flags.base_id.to_string(),
        "concurrency": workers,
        "config_path": path(flags.config_path.as_deref()),
        "config_yaml": flags.config_yaml.as_deref().unwrap_or_default(),
        "allow_unknown_static_fields": flags.allow_unknown_static_fields || flags.allow_unknown_fields,
        "admin_address_path": path(flags.admin_address_path.as_deref()),
        "local_address_ip_version": match flags.local_address_ip_version {
            IpVersion::V4 => "v4",
            IpVersion::V6 => "v6",
        },
        "log_level": flags.log_level.name(),
        "component_log_level": flags.component_log_level.text,
        "log_format": flags.log_format.as_deref().unwrap_or(LOG_FORMAT),
        "log_path": path(flags.log_path.as_deref()),
        "service_cluster": flags.service_cluster.as_deref().unwrap_or_default(),
        "service_node": flags.service_node.as_deref().unwrap_or_default(),
        "service_zone": flags.service_zone.as_deref().unwrap_or_default(),
        "file_flush_interval": millis(flags.file_flush_interval_msec),
        "drain_time": format!("{}s", flags.drain_time_s),
        "parent_shutdown_time": format!("{}s", flags.parent_shutdown_time_s),
        "mode": match flags.mode {
            Mode::Serve => "Serve",
            Mode::Validate => "Validate",
            Mode::InitOnly => "InitOnly",
        },
        "disable_hot_restart": flags.disable_hot_restart,
        "enable_mutex_tracing": flags.enable_mutex_tracing,
        "restart_epoch": flags.restart_epoch,
        "cpuset_threads": flags.cpuset_threads,
        "reject_unknown_dynamic_fields": flags.reject_unknown_dynamic_fields,
        "log_format_escaped": flags.log_format_escaped,
        "disabled_extensions": flags.disabled_extensions(),
        "ignore_unknown_dynamic_fields": flags.ignore_unknown_dynamic_fields,
        "use_dynamic_base_id": flags.use_dynamic_base_id,
        "base_id_path": path(flags.base_id_path.as_deref()),
        "drain_strategy": match flags.drain_strategy {
            DrainStrategy::Gradual => "Gradual",
            DrainStrategy::Immediate => "Immediate",
        },
        "enable_fine_grain_logging": flags.enable_fine_grain_logging,
        "socket_path": flags.socket_path.as_deref().unwrap_or("@envoy_domain_socket"),
        "socket_mode": flags.socket_mode.unwrap_or(0),
        "enable_core_dump": flags.enable_core_dump,
        "stats_tag": flags.stats_tag.iter().map(|(name, value)| format!("{name}:{value}")).collect::<Vec<_>>(),
        "skip_hot_restart_on_no_parent": flags.skip_hot_restart_on_no_parent,
        "skip_hot_restart_parent_stats": flags.skip_hot_restart_parent_stats,
        "skip_deprecated_logs": flags.skip_deprecated_logs,
        "file_flush_min_size": flags.file_flush_min_size_kb.unwrap_or(0),
        "log_stacktrace_single_entry": flags.log_stacktrace_single_entry,
    })
}

fn path(path: Option<&Path>) -> String {
    path.map(|path| path.display().to_string()).unwrap_or_default()
}

/// A duration as protobuf's JSON writes it: `1s`, `0.250s`.
fn millis(n: u32) -> String {
    match (n / 1000, n % 1000) {
        (seconds, 0) => format!("{seconds}s"),
        (seconds, rest) => format!("{seconds}.{rest:03}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_written_as_protobuf_does() {
        assert_eq!([millis(10_000), millis(250), millis(0)], ["10s", "0.250s", "0s"]);
    }
}
