//! What the admin asks of the process, and what it may tell it to do.

use crate::endpoints::Tap;
use crate::history::HistoryEntry;
use crate::status::{ClusterStatus, ListenerStatus, PluginStatus, RuntimeStatus, ServerState, TlsContextStatus};
use postrider_model::StatsRules;
use postrider_telemetry::intervals::Interval;
use postrider_telemetry::{KnownScope, Registry};
use serde_json::Value;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// The process, as the admin sees it. Called on the admin's thread, one request at a time: an implementation answers from
/// what was published and passes orders on, it does not wait for workers.
pub trait Control: Send + Sync + 'static {
    fn state(&self) -> ServerState;

    /// When the process started.
    fn started(&self) -> SystemTime;

    /// What `/server_info` shows as version.
    fn version(&self) -> String;

    /// The flags that the process runs with, by Envoy's names (`config_path`, `concurrency`, `drain_time`: `"600s"`).
    fn command_line_options(&self) -> Value;

    /// Who this proxy says it is, as Envoy's `Node`.
    fn node(&self) -> Value;

    /// What the allocator has from the system, in bytes.
    fn heap_size(&self) -> u64;

    /// The sections of `/config_dump`: objects whose `@type` names Envoy's message (`…ClustersConfigDump`). Without
    /// secrets.
    fn config_dump(&self) -> Vec<Value>;

    fn clusters(&self) -> Vec<ClusterStatus>;

    fn listeners(&self) -> Vec<ListenerStatus>;

    /// The plugins of the configuration in force; each once, with all its places.
    fn plugins(&self) -> Vec<PluginStatus>;

    /// The TLS contexts of the configuration in force.
    fn certificates(&self) -> Vec<TlsContextStatus>;

    /// Configurations, the newest first.
    fn history(&self) -> Vec<HistoryEntry>;

    fn statistics(&self) -> &Registry;

    /// Which of them are told, and how; `None` is all, in the usual way.
    fn stats_rules(&self) -> Option<Arc<StatsRules>>;

    /// Somebody asks for statistics: sinks may want to hear of it.
    fn asked_for_statistics(&self) {}

    /// What histograms got within the last whole interval, where that is known. It is from now on.
    fn interval(&self) -> Option<Arc<Interval>> {
        None
    }

    /// The scopes that the configuration names, so that they are shown before they count anything, and gauges that are
    /// computed when asked. `server.uptime`, `.live`, `.state` and the memory gauges are the admin's own.
    fn known_scopes(&self) -> Vec<KnownScope>;

    /// Begins to drain; returns at once.
    fn drain_listeners(&self, drain: Drain);

    /// Ends the process. Called when the answer has been sent, on the admin's thread: it signals and returns, and
    /// [`crate::Server::stop`] is for another thread.
    fn quit(&self);

    /// Opens log files again, access logs and the application's.
    fn reopen_logs(&self);

    /// Makes health checks that this proxy answers fail, and [`Control::state`] draining, or takes that back.
    fn fail_health_checks(&self, fail: bool);

    /// Counts the requests of each route, from now on for so long; `watched.route.…` of the statistics tell.
    fn watch_routes(&self, _time: Duration) {}

    /// Puts the tap in force that `request`, a YAML or JSON document, describes; `only_failed` asks for failures only.
    ///
    /// # Errors
    /// Why there is none, for the client.
    fn tap(&self, request: &[u8], only_failed: bool) -> Result<Tap, String>;

    /// The runtime of the configuration in force.
    fn runtime(&self) -> RuntimeStatus {
        RuntimeStatus::default()
    }

    /// Changes values of the runtime's admin layer, all of them or none, and answers when they are in force; an empty value
    /// takes a key away. The one order that waits, because whoever changes a value wants to know that it holds.
    ///
    /// # Errors
    /// Why they are not in force, for the client.
    fn modify_runtime(&self, _changes: Vec<(String, String)>) -> Result<(), String> {
        Err(NO_ADMIN_LAYER.to_owned())
    }

    /// The manifest of a plugin as [`Control::change_plugin`] got it; `None` when it did not.
    fn manifest(&self, _plugin: &str) -> Option<String> {
        None
    }

    /// Puts a plugin's manifest in force, or takes back the one that was: `None`. Waits as [`Control::modify_runtime`] does.
    ///
    /// # Errors
    /// Why nothing changed, for the client.
    fn change_plugin(&self, _plugin: &str, _manifest: Option<String>) -> Result<(), PluginRefused> {
        Err(PluginRefused::Busy("plugins cannot be changed here\n".to_owned()))
    }

    /// Whether this may be asked for: a path with its query.
    fn allows(&self, _target: &str) -> bool {
        true
    }

    /// After each answer, when it was sent: for an access log of the admin.
    fn served(&self, _served: &Served<'_>) {}
}

/// Why a plugin stays as it is: words for the client, whole lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PluginRefused {
    /// The configuration with it is wrong: every error with its place.
    Invalid(String),
    /// It stands in the file, or routes name it.
    InUse(String),
    /// There is none of this name.
    Unknown(String),
    /// Not now.
    Busy(String),
}

/// Why no value of the runtime can be changed, in Envoy's words.
pub const NO_ADMIN_LAYER: &str = "No admin layer specified";

/// How to drain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Drain {
    /// Only listeners whose traffic direction is inbound.
    pub inbound_only: bool,
    /// Tell clients first, and stop listening when the drain time is over.
    pub graceful: bool,
    /// Drain connections but go on listening.
    pub skip_exit: bool,
}

impl Drain {
    /// Clients are told first.
    pub fn is_gradual(self) -> bool {
        self.graceful || self.skip_exit
    }
}

/// One answered request.
#[derive(Debug)]
pub struct Served<'a> {
    pub method: &'a str,
    /// Path and query, as received.
    pub target: &'a str,
    /// HTTP/1.0, not HTTP/1.1.
    pub is_http_10: bool,
    /// As received, `host` among them.
    pub request_fields: Vec<(&'a str, &'a [u8])>,
    /// Bytes of the body.
    pub received: u64,
    pub status: u16,
    /// Those that the admin chose; how long the body is, and when it was sent, is not among them.
    pub response_fields: Vec<(&'a str, &'a [u8])>,
    /// Bytes of the body.
    pub sent: u64,
    /// `None` on a Unix domain socket.
    pub local: Option<SocketAddr>,
    /// The same.
    pub peer: Option<SocketAddr>,
    /// Until the answer was sent.
    pub duration: Duration,
}
