//! The state of the process, its clusters, listeners and plugins, as values.

use postrider_model::{Address, Metadata, Thresholds};
use serde_json::Value;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Envoy's `ServerInfo.State`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerState {
    /// Serving.
    Live,
    /// Told to fail health checks, or shutting down.
    Draining,
    /// Waiting for its clusters.
    PreInitializing,
    /// Waiting for its listeners.
    Initializing,
}

impl ServerState {
    pub fn name(self) -> &'static str {
        match self {
            Self::Live => "LIVE",
            Self::Draining => "DRAINING",
            Self::PreInitializing => "PRE_INITIALIZING",
            Self::Initializing => "INITIALIZING",
        }
    }

    /// As in the gauge `server.state`.
    pub(crate) fn number(self) -> u64 {
        match self {
            Self::Live => 0,
            Self::Draining => 1,
            Self::PreInitializing => 2,
            Self::Initializing => 3,
        }
    }
}

/// Values by keys, in layers of which the last that has one counts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RuntimeStatus {
    pub layers: Vec<String>,
    /// In the order of the keys, each with one value per layer; empty where a layer has none.
    pub entries: Vec<(String, Vec<String>)>,
}

/// One cluster with what it may do and whom it knows.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ClusterStatus {
    pub name: String,
    /// The name in statistics; the same as `name` unless configured.
    pub observability_name: String,
    pub default_priority: Thresholds,
    pub high_priority: Thresholds,
    /// In percent: how much more than its share a priority may take, before the next one gets some.
    pub overprovisioning: u32,
    /// Came from a control plane, not from the file.
    pub added_via_api: bool,
    /// Where there is outlier detection.
    pub outliers: Option<OutlierStatus>,
    pub endpoints: Vec<EndpointStatus>,
}

/// What outlier detection compared success rates with in its last interval, where it did.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct OutlierStatus {
    pub answers: Option<RateComparison>,
    /// The same of reaching hosts.
    pub local_origin: Option<RateComparison>,
}

/// In percent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RateComparison {
    pub average: f64,
    /// Below it a host is an outlier. It may be less than nothing.
    pub threshold: f64,
}

/// One endpoint of a cluster, its counts over all workers.
#[derive(Debug, Clone, PartialEq)]
pub struct EndpointStatus {
    pub address: Address,
    /// Others of the same endpoint.
    pub additional_addresses: Vec<Address>,
    /// As configured for a DNS cluster; empty for a plain address.
    pub hostname: String,
    pub weight: u32,
    pub priority: u32,
    pub region: String,
    pub zone: String,
    pub sub_zone: String,
    pub canary: bool,
    /// What else the configuration says about it.
    pub metadata: Option<Arc<Metadata>>,
    /// What active checks ask for, where its configuration says that; may be empty.
    pub check_hostname: String,
    /// The same with the port.
    pub check_port: Option<u16>,
    /// In percent, as outlier detection found it in its last interval.
    pub success_rate: Option<f64>,
    /// The same of reaching it.
    pub local_origin_success_rate: Option<f64>,
    /// None is healthy.
    pub health: Vec<HealthFlag>,
    pub cx_active: u64,
    pub cx_connect_fail: u64,
    pub cx_total: u64,
    pub rq_active: u64,
    pub rq_error: u64,
    pub rq_pending_active: u64,
    pub rq_success: u64,
    pub rq_timeout: u64,
    pub rq_total: u64,
}

impl EndpointStatus {
    /// A healthy endpoint of weight 1 that has not been used.
    pub fn new(address: Address) -> Self {
        Self {
            address,
            additional_addresses: Vec::new(),
            hostname: String::new(),
            weight: 1,
            priority: 0,
            region: String::new(),
            zone: String::new(),
            sub_zone: String::new(),
            canary: false,
            metadata: None,
            check_hostname: String::new(),
            check_port: None,
            success_rate: None,
            local_origin_success_rate: None,
            health: Vec::new(),
            cx_active: 0,
            cx_connect_fail: 0,
            cx_total: 0,
            rq_active: 0,
            rq_error: 0,
            rq_pending_active: 0,
            rq_success: 0,
            rq_timeout: 0,
            rq_total: 0,
        }
    }

    /// It takes traffic like any other.
    pub fn is_healthy(&self) -> bool {
        let minor = |flag: &HealthFlag| matches!(flag, HealthFlag::PendingRemoval | HealthFlag::ActiveCheckTimeout);
        self.health.iter().all(minor)
    }

    /// Name and value of each counter, in order.
    pub(crate) fn counters(&self) -> [(&'static str, u64); 6] {
        [
            ("cx_connect_fail", self.cx_connect_fail),
            ("cx_total", self.cx_total),
            ("rq_error", self.rq_error),
            ("rq_success", self.rq_success),
            ("rq_timeout", self.rq_timeout),
            ("rq_total", self.rq_total),
        ]
    }

    /// Name and value of each gauge, in order.
    pub(crate) fn gauges(&self) -> [(&'static str, u64); 3] {
        [("cx_active", self.cx_active), ("rq_active", self.rq_active), ("rq_pending_active", self.rq_pending_active)]
    }
}

/// Why an endpoint is not taken as healthy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HealthFlag {
    FailedActiveCheck,
    FailedOutlierCheck,
    /// Configured as unhealthy, or timed out.
    FailedByConfiguration,
    /// Configured as draining.
    DrainingByConfiguration,
    DegradedActiveCheck,
    /// Configured as degraded.
    DegradedByConfiguration,
    /// It said in an answer that it is.
    DegradedByItself,
    /// Gone from its cluster, kept while it passes health checks.
    PendingRemoval,
    /// Not checked yet.
    PendingActiveCheck,
    /// The last active check took too long.
    ActiveCheckTimeout,
    /// It said so itself, and does not count among those of which some share has to be well.
    ExcludedByItself,
}

impl HealthFlag {
    /// As `/clusters` prints it after a slash, and as its JSON names it.
    pub(crate) fn names(self) -> (&'static str, Option<&'static str>) {
        match self {
            Self::FailedActiveCheck => ("failed_active_hc", Some("failed_active_health_check")),
            Self::FailedOutlierCheck => ("failed_outlier_check", Some("failed_outlier_check")),
            Self::FailedByConfiguration => ("failed_eds_health", None),
            Self::DrainingByConfiguration => ("eds_status_draining", None),
            Self::DegradedActiveCheck => ("degraded_active_hc", Some("failed_active_degraded_check")),
            Self::DegradedByConfiguration => ("degraded_eds_health", None),
            Self::DegradedByItself => ("degraded_outlier_detection", Some("failed_degraded_outlier_detection")),
            Self::PendingRemoval => ("pending_dynamic_removal", Some("pending_dynamic_removal")),
            Self::PendingActiveCheck => ("pending_active_hc", Some("pending_active_hc")),
            Self::ActiveCheckTimeout => ("active_hc_timeout", Some("active_hc_timeout")),
            Self::ExcludedByItself => ("excluded_via_immediate_hc_fail", Some("excluded_via_immediate_hc_fail")),
        }
    }
}

/// One listener and where it really listens.
#[derive(Debug, Clone, PartialEq)]
pub struct ListenerStatus {
    pub name: String,
    /// With the port that the system chose, if the configuration left it open.
    pub address: Address,
    pub additional_addresses: Vec<Address>,
}

/// One plugin: what it is and what it may do. What it costs is in the statistics, under its name.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PluginStatus {
    pub name: String,
    /// As its author numbers it; may be empty.
    pub version: String,
    pub runtime: String,
    pub places: Vec<PluginPlace>,
    /// It runs without any listener.
    pub is_service: bool,
    /// Its manifest came by the admin interface, not from the file.
    pub is_by_admin: bool,
    /// Where its code came from.
    pub source: String,
    /// Tells two versions of its code apart.
    pub digest: String,
    /// What is to be known of its code for the time being; nearly always `None`.
    pub note: Option<String>,
    /// Further code of its, for routes to choose from: name, where it came from, and what tells two versions apart.
    pub scripts: Vec<(String, String, String)>,
    /// When it last failed, and how.
    pub last_error: Option<(SystemTime, String)>,
    /// `continue`, or the status that the request is answered with.
    pub on_error: String,
    /// For one call; [`Duration::MAX`] when nothing bounds it.
    pub cpu: Duration,
    /// Bytes, per worker; [`usize::MAX`] when nothing bounds them.
    pub memory: usize,
    pub circuit: CircuitStatus,
    /// The clusters that it may call; `None` is any.
    pub clusters: Option<Vec<String>>,
    /// The gateway-level configuration.
    pub config: Value,
    /// What routes see in its place.
    pub route_configs: Vec<RouteConfigStatus>,
    /// The JSON Schema that both must satisfy.
    pub schema: Option<Value>,
}

/// The configuration of a plugin that counts on a route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteConfigStatus {
    /// As statistics name it.
    pub route: String,
    /// Where it stands: `route table`, `virtual host`, `route`, `weighted cluster`.
    pub scope: &'static str,
    /// As it is written there, also for other plugins.
    pub config: Value,
    pub seen: Seen,
}

/// What a plugin sees on a route.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Seen {
    /// Its own code merges what scopes say.
    #[default]
    Merged,
    /// It does not run there.
    Off,
    /// No configuration but the gateway-level one.
    Nothing,
    Config(Value),
}

/// Where a plugin runs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PluginPlace {
    pub listener: String,
    /// The filter chain; may have no name.
    pub chain: String,
}

/// So many faults within the window open the circuit until the retry, and so many calls that used up their CPU time; 0 never
/// does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CircuitStatus {
    pub faults: u32,
    pub cpu_kills: u32,
    pub window: Duration,
    pub retry: Duration,
    /// Faults are calls that were stopped, and no errors of the plugin's own.
    pub kills_only: bool,
}

/// The certificates of one TLS context, and where it is used.
#[derive(Debug, Clone, PartialEq)]
pub struct TlsContextStatus {
    pub place: TlsPlace,
    /// Those that the other side's certificates are traced back to.
    pub roots: Vec<CertificateStatus>,
    /// Those that are shown to the other side.
    pub certificates: Vec<CertificateStatus>,
}

/// What a TLS context belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TlsPlace {
    /// The filter chain may have no name.
    Listener {
        listener: String,
        chain: String,
    },
    Cluster(String),
}

/// One certificate.
#[derive(Debug, Clone, PartialEq)]
pub struct CertificateStatus {
    /// The file that it came from, or `<inline>`.
    pub path: String,
    /// RFC 2253.
    pub subject: String,
    /// Lower-case hexadecimal.
    pub serial: String,
    /// Subject alternative names with their kinds, as Envoy calls those (`dns`, `uri`, `ip_address`).
    pub names: Vec<(&'static str, String)>,
    pub not_before: SystemTime,
    pub not_after: SystemTime,
    /// From when to when the OCSP response beside it is good.
    pub ocsp: Option<(SystemTime, Option<SystemTime>)>,
}

impl CertificateStatus {
    /// Whole days that it is still good for; 0 for one that has ended.
    pub fn days_left(&self, now: SystemTime) -> u64 {
        self.not_after.duration_since(now).map_or(0, |left| left.as_secs() / 86_400)
    }
}
