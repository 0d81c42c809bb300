//! The process: its state and version, its memory, and the orders to drain, to reopen files and to end.

use crate::control::{Control, Drain};
use crate::request::Request;
use crate::response::Reply;
use crate::status::ServerState;
use hyper::StatusCode;
use serde_json::{Value, json};

pub(super) const DRAIN_PARAMETERS: &[(&str, &str)] = &[
    ("graceful", "When draining listeners, enter a graceful drain period prior to closing listeners"),
    ("skip_exit", "Drain the connections but never stop the listeners; graceful has no effect then"),
    ("inboundonly", "Drain only listeners whose traffic_direction is INBOUND"),
];

/// We do not hand sockets from one process to the next this way; Envoy prints this when it is told not to.
const NO_HOT_RESTART: &str = "disabled";

pub(super) fn ready(control: &dyn Control, _: &Request) -> Reply {
    let state = control.state();
    let status = if state == ServerState::Live { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    Reply::text(format!("{}\n", state.name())).with_status(status)
}

pub(super) fn server_info(control: &dyn Control, _: &Request) -> Reply {
    let uptime = format!("{}s", uptime(control));
    Reply::json(&json!({
        "version": control.version(),
        "state": control.state().name(),
        "uptime_current_epoch": uptime,
        "uptime_all_epochs": uptime,
        "hot_restart_version": NO_HOT_RESTART,
        "command_line_options": control.command_line_options(),
        "node": control.node(),
        "hot_restart_initializing": false,
    }))
}

/// Whole seconds since the start.
pub(super) fn uptime(control: &dyn Control) -> u64 {
    control.started().elapsed().unwrap_or_default().as_secs()
}

pub(super) fn hot_restart_version(_: &dyn Control, _: &Request) -> Reply {
    Reply::text(NO_HOT_RESTART)
}

/// Envoy's fields. This allocator has no pages that it keeps without memory behind them, and no caches beside the pages of
/// each thread.
pub(super) fn memory(control: &dyn Control, _: &Request) -> Reply {
    let heap = control.heap_size();
    match Memory::now() {
        // Envoy's message has 64-bit numbers, which JSON protobuf writes as strings.
        Some(memory) => Reply::json(&json!({
            "allocated": memory.anonymous.to_string(),
            "heap_size": heap.to_string(),
            "pageheap_unmapped": "0",
            "pageheap_free": heap.saturating_sub(memory.anonymous).to_string(),
            "total_thread_cache": "0",
            "total_physical_bytes": memory.resident.to_string(),
        })),
        None => Reply::json(&Value::Object(Default::default())),
    }
}

/// What the process occupies, in bytes.
pub(super) struct Memory {
    /// In physical memory, all of it.
    pub(super) resident: u64,
    /// Thereof its own: not mapped from files.
    pub(super) anonymous: u64,
}

impl Memory {
    /// From `/proc/self/status`; `None` where there is none.
    pub(super) fn now() -> Option<Self> {
        let status = std::fs::read_to_string("/proc/self/status").ok()?;
        let bytes = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
            let kilobytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
            Some(kilobytes * 1024)
        };
        Some(Self { resident: bytes("VmRSS")?, anonymous: bytes("RssAnon")? })
    }
}

pub(super) const INIT_DUMP_PARAMETERS: &[(&str, &str)] =
    &[("mask", "What to tell of: only `listener` leaves something out")];

/// What the process still waits for: an empty object once it serves.
pub(super) fn init_dump(control: &dyn Control, request: &Request) -> Reply {
    let target = match control.state() {
        ServerState::PreInitializing => "clusters",
        ServerState::Initializing => "listeners",
        ServerState::Live | ServerState::Draining => return Reply::json(&json!({})),
    };
    if request.parameter("mask") == Some("listener") && target != "listeners" {
        return Reply::json(&json!({}));
    }
    let dump = json!({ "name": "init manager Server", "target_names": [target] });
    Reply::json(&json!({ "unready_targets_dumps": [dump] }))
}

pub(super) fn drain_listeners(control: &dyn Control, request: &Request) -> Reply {
    control.drain_listeners(Drain {
        inbound_only: request.has("inboundonly"),
        graceful: request.has("graceful"),
        skip_exit: request.has("skip_exit"),
    });
    Reply::done()
}

pub(super) fn fail_health_checks(control: &dyn Control, _: &Request) -> Reply {
    control.fail_health_checks(true);
    Reply::done()
}

pub(super) fn pass_health_checks(control: &dyn Control, _: &Request) -> Reply {
    control.fail_health_checks(false);
    Reply::done()
}

pub(super) fn reopen_logs(control: &dyn Control, _: &Request) -> Reply {
    control.reopen_logs();
    Reply::done()
}
