//! What control threads tell workers, and what they hear back.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use postrider_model::{AccessLogSink, Endpoint};
use postrider_sys::Bound;
use postrider_telemetry::access_log::LogFile;
use postrider_upstream::outlier::{Cause, Comparison};
use postrider_upstream::{Endpoints, Health, TableSizes};
use tokio::sync::oneshot;

use crate::account::Relief;
use crate::ahead::NewRoutes;
use crate::overload::Strain;
use crate::plan::{ClusterPlan, Plan};
use crate::sinks::Carrier;

/// Messages that may wait for a worker; a sender of more waits itself.
pub(crate) const MAILBOX: usize = 1024;

pub(crate) enum Message {
    Apply(Box<Apply>),
    Endpoints {
        cluster: Arc<str>,
        endpoints: Endpoints,
    },
    /// Makes what filters of routes need that are about to be put in force.
    MakeAhead(Box<MakeAhead>),
    /// Begins to check the hosts of clusters that are about to be put in force.
    Warm(Box<Warm>),
    /// What a check found out about a host.
    Health {
        cluster: Arc<str>,
        endpoint: Arc<Endpoint>,
        health: Health,
    },
    /// A host said in an answer that it fails. For the worker that checks.
    Resigned {
        cluster: Arc<str>,
        endpoint: Arc<Endpoint>,
    },
    /// A host failed too often in a row. For the worker that decides.
    Outlier {
        cluster: Arc<str>,
        endpoint: Arc<Endpoint>,
        cause: Cause,
    },
    /// A host is left out because of its answers, or back: its monitor tells.
    Ejection {
        cluster: Arc<str>,
        endpoint: Arc<Endpoint>,
    },
    /// Tells all workers once more what checks have found out.
    PublishHealth,
    /// A connection that another worker accepted.
    Connection {
        listener: String,
        stream: Accepted,
        peer: Option<SocketAddr>,
    },
    Drain {
        stop_accepting: bool,
        /// Answers say more and more often that their connection ends, over this time; zero is at once.
        over: Duration,
        /// Only connections of listeners for inbound traffic.
        inbound_only: bool,
    },
    /// What is to be done while the process is short of something.
    Strain(Arc<Strain>),
    /// Streams that hold much memory are to go.
    Relieve(Relief),
    /// From now on this proxy says of itself that it is not healthy, or that it is.
    FailHealth(bool, oneshot::Sender<()>),
    /// Somebody watches which routes requests find, for so long.
    WatchRoutes(Duration),
    StopListeners {
        names: Vec<String>,
    },
    /// Sends what a sink of statistics makes, from now on. For the first worker.
    Carry(Box<Carrier>),
    Inspect(oneshot::Sender<Report>),
    /// Hands the log lines gathered so far to the writer.
    Flush(oneshot::Sender<()>),
    Stop,
}

pub(crate) struct MakeAhead {
    pub new: Vec<NewRoutes>,
    pub done: oneshot::Sender<()>,
}

/// For the worker that checks.
pub(crate) struct Warm {
    pub clusters: Vec<Arc<ClusterPlan>>,
    pub endpoints: HashMap<Arc<str>, Endpoints>,
    pub logs: HashMap<AccessLogSink, LogFile>,
    /// When every host was checked once.
    pub done: oneshot::Sender<KnownHealth>,
}

/// By cluster.
pub(crate) type KnownHealth = HashMap<Arc<str>, Vec<(Arc<Endpoint>, Health)>>;

pub(crate) struct Apply {
    pub plan: Arc<Plan>,
    /// This worker's sockets of each listener that is new or moved.
    pub sockets: HashMap<String, Vec<Bound>>,
    /// What discovery knows about clusters that are new or changed.
    pub endpoints: HashMap<Arc<str>, Endpoints>,
    /// What checks found out about the hosts of clusters that are new or changed.
    pub health: KnownHealth,
    pub logs: HashMap<AccessLogSink, LogFile>,
    pub done: oneshot::Sender<()>,
}

/// A socket on its way between workers.
pub(crate) enum Accepted {
    Tcp(std::net::TcpStream),
    Unix(OwnedFd),
}

/// One worker's view, for the admin.
#[derive(Debug, Clone, Default)]
pub struct Report {
    pub clusters: Vec<ClusterReport>,
    /// Downstream connections.
    pub connections: usize,
    /// Requests and tunnels under way.
    pub busy: usize,
}

#[derive(Debug, Clone)]
pub struct ClusterReport {
    pub name: Arc<str>,
    pub hosts: Vec<HostReport>,
    /// What success rates were compared with in the last interval of outlier detection, those of answers and those of
    /// reaching hosts: on the worker that decides.
    pub comparisons: [Option<Comparison>; 2],
    /// Of the table by which hosts are chosen, where a hash does it: on the first worker.
    pub table: Option<TableSizes>,
}

#[derive(Debug, Clone)]
pub struct HostReport {
    pub endpoint: Arc<Endpoint>,
    pub health: Health,
    /// It answered badly.
    pub ejected: bool,
    /// It said in an answer that it is degraded.
    pub degraded: bool,
    /// In percent, in the last interval of outlier detection: of its answers, and of reaching it.
    pub success_rates: [Option<f64>; 2],
    /// Discovery dropped it; it stays while it passes its checks.
    pub removed: bool,
    pub connections_active: u64,
    pub connections_total: u64,
    pub connect_failures: u64,
    pub requests_active: u64,
    pub requests_total: u64,
    pub requests_success: u64,
    pub requests_error: u64,
    /// Those that took too long.
    pub requests_late: u64,
    /// Those that wait for a connection.
    pub requests_waiting: u64,
}
