//! What a configuration means, whatever dialect it was written in.
//!
//! A [`Snapshot`] is a tree of plain, validated, comparable values: listeners with their filter chains, route tables,
//! clusters with their endpoints, and filter slots. A dialect (Envoy YAML, the short form, later APISIX) produces one;
//! the control plane compares it with the one in force, compiles what changed and publishes the result to the workers.
//!
//! This crate does no I/O, knows no async runtime and no dialect's document format, and uses no other crate of ours.
//! Everything here is `PartialEq`: "what changed" is `old != new`, so no value may hold identity, time or interior state.

#![forbid(unsafe_code)]

mod acme;
mod api_version;
mod balancing;
mod call_retries;
pub mod cel;
mod cluster;
mod dns_resolver;
mod filter;
mod format;
mod grpc_target;
mod hash_policy;
mod headers;
mod health;
mod http;
mod listener;
mod log_service;
mod match_tree;
mod matcher;
mod metadata;
mod metadata_match;
mod otlp_log;
mod outlier;
mod overload;
mod rate_limit;
mod reading;
mod retry;
mod route;
mod stats;
mod subsets;
mod tcp;
mod template;
mod timers;
mod tls;
mod tracing;
mod transport;
mod value;
mod xxh64;

pub use acme::*;
pub use api_version::*;
pub use balancing::*;
pub use call_retries::*;
pub use cel::Expression;
pub use cluster::*;
pub use dns_resolver::*;
pub use filter::*;
pub use format::*;
pub use grpc_target::*;
pub use hash_policy::*;
pub use headers::*;
pub use health::*;
pub use http::*;
pub use listener::*;
pub use log_service::*;
pub use match_tree::*;
pub use matcher::*;
pub use metadata::*;
pub use metadata_match::*;
pub use otlp_log::*;
pub use outlier::*;
pub use overload::*;
pub use rate_limit::*;
pub use reading::*;
pub use retry::*;
pub use route::*;
pub use stats::*;
pub use subsets::*;
pub use tcp::*;
pub use template::*;
pub use timers::*;
pub use tls::*;
pub use tracing::*;
pub use transport::*;
pub use value::*;
pub use xxh64::xxh64;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

/// Everything that a running proxy was told, at one moment. Parts that did not change between two snapshots compare
/// equal, so the same `Arc` may be carried over.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Snapshot {
    pub node: Node,
    pub admin: Option<Admin>,
    /// In the order of the document; names are unique (a nameless listener is named after its address).
    pub listeners: Vec<Arc<Listener>>,
    /// In the order of the document; names are unique.
    pub clusters: Vec<Arc<Cluster>>,
    /// Which of them lists the proxies of this one's own kind: it says what the share of its zone is.
    pub local_cluster: Option<String>,
    /// What `server.version` is in statistics; 0 without.
    pub version: Option<u64>,
    /// Each worker stays on a processor of its own, where there are enough.
    pub pins_workers: bool,
    /// What runs on workers without any listener, in the order of the document.
    pub services: Vec<FilterSlot>,
    /// Certificates that the proxy gets itself.
    pub acme: Option<Acme>,
    /// What is done when the process runs short of something; `None` is nothing.
    pub overload: Option<Arc<OverloadRules>>,
    /// Which statistics are told, and how; `None` is all of them, in the usual way.
    pub stats: Option<Arc<StatsRules>>,
    /// To whom they are sent, if to anybody.
    pub stats_sinks: Option<Arc<StatsSinks>>,
    /// The pattern of a line of the application log; `None` for what the command line says.
    pub log_pattern: Option<String>,
}

/// Who this proxy says it is, to control planes and in logs.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Node {
    pub id: String,
    pub cluster: String,
    pub region: String,
    pub zone: String,
    pub sub_zone: String,
    /// A map, as it was written.
    pub metadata: Value,
}

/// Where the admin interface listens, and where it logs.
#[derive(Debug, Clone, PartialEq)]
pub struct Admin {
    pub address: Address,
    /// Which paths may be asked for, each with its query; all where none is named.
    pub allow_paths: Vec<StringMatch>,
    pub access_log: Vec<AccessLog>,
}

/// A place that can be bound or connected to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Address {
    Tcp(SocketAddr),
    /// A Unix domain socket; a leading `@` names one in the abstract namespace.
    Unix {
        path: PathBuf,
        /// File mode given to a bound socket, as in `chmod`; `None` leaves the umask's.
        mode: Option<u32>,
    },
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Address::Tcp(address) => address.fmt(f),
            Address::Unix { path, .. } => path.display().fmt(f),
        }
    }
}

/// Where in its document a value was written, as the dialect's own path (`static_resources.listeners[0]`); shown by
/// `explain` and in errors that are found after lowering. Never compared: moving a value does not change its meaning.
#[derive(Debug, Clone, Default)]
pub struct Origin(pub String);

impl PartialEq for Origin {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// A logger and the condition under which it writes.
#[derive(Debug, Clone, PartialEq)]
pub struct AccessLog {
    pub output: LogOutput,
    pub condition: Option<LogCondition>,
}

/// What a logger writes.
#[derive(Debug, Clone, PartialEq)]
pub enum LogOutput {
    /// Text, to a file or what stands for one.
    Lines { sink: AccessLogSink, format: LogFormat },
    /// Messages, to a service.
    Entries(LogEntries),
    /// Records, to a collector of OpenTelemetry.
    Records(Box<OtlpLog>),
    /// What a plugin makes of it.
    Plugin(FilterSlot),
}

impl AccessLog {
    /// Where its lines go; `None` when it writes none.
    pub fn sink(&self) -> Option<&AccessLogSink> {
        match &self.output {
            LogOutput::Lines { sink, .. } => Some(sink),
            LogOutput::Entries(_) | LogOutput::Records(_) | LogOutput::Plugin(_) => None,
        }
    }

    /// The plugin that is told of it.
    pub fn plugin(&self) -> Option<&FilterSlot> {
        match &self.output {
            LogOutput::Plugin(slot) => Some(slot),
            LogOutput::Lines { .. } | LogOutput::Entries(_) | LogOutput::Records(_) => None,
        }
    }
}

/// What is logged at all.
#[derive(Debug, Clone, PartialEq)]
pub enum LogCondition {
    /// By the status of gRPC that the answer has or stands for; 2, *unknown*, where there is no answer.
    GrpcStatus {
        /// Numbers of codes.
        codes: Vec<u8>,
        /// All but these.
        exclude: bool,
    },
    /// By the flags of the response, in the short form; any flag when this is empty.
    Flags(Vec<String>),
    /// By the status that is answered; 0 where there is no answer.
    Status(Comparison),
    /// By how long it has taken, in milliseconds.
    Duration(Comparison),
    /// By a header of the request.
    Header(HeaderMatch),
    /// By what filters noted; `if_absent` is the verdict where they noted nothing there.
    Metadata {
        matches: MetadataMatch,
        if_absent: bool,
    },
    /// So many in a million. Drawn by the request's id where it has one, so that all proxies on its way agree, unless
    /// `independent`.
    Share {
        parts: u32,
        /// Ids are counted modulo this many parts, as Envoy does.
        of: u32,
        independent: bool,
    },
    All(Vec<LogCondition>),
    Any(Vec<LogCondition>),
    /// By an expression that must be true.
    Expression(Box<Expression>),
    /// All but what a filter answered or passed on as a health check.
    NotHealthCheck,
    /// Somebody inside wants it traced (`x-envoy-force-trace`).
    Traceable,
    /// By the kind of the record, with the names of Envoy's `AccessLogType`.
    Kinds {
        kinds: Vec<&'static str>,
        exclude: bool,
    },
}

/// A number against a fixed one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Comparison {
    pub how: Compare,
    pub with: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compare {
    Equal,
    AtLeast,
    AtMost,
    Unequal,
}

impl Comparison {
    pub fn holds(&self, value: u64) -> bool {
        match self.how {
            Compare::Equal => value == self.with,
            Compare::AtLeast => value >= self.with,
            Compare::AtMost => value <= self.with,
            Compare::Unequal => value != self.with,
        }
    }
}

/// Where log lines go.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum AccessLogSink {
    File(PathBuf),
    Stdout,
    Stderr,
}

/// How a log line is made.
#[derive(Debug, Clone, PartialEq)]
pub enum LogFormat {
    /// The text as it is: a format that wants a line break has one at its end.
    Text(Format),
    /// One object a line. Values that are a single command keep its type (numbers as numbers, absent as null).
    Json(JsonFormat),
    /// The same without absent values: nothing in text, no key in JSON.
    OmitEmpty(Box<LogFormat>),
}

/// The shape of a JSON log line.
#[derive(Debug, Clone, PartialEq)]
pub enum JsonFormat {
    /// Keys are written in this order.
    Object(Vec<(String, JsonFormat)>),
    List(Vec<JsonFormat>),
    Text(Format),
    Number(f64),
    Bool(bool),
    Null,
}
