//! The data plane: workers that accept connections, carry HTTP and TCP, and share nothing.
//!
//! Control threads compile a snapshot into a [`Plan`] and hand it to the [`Fleet`]; each worker applies it to its own
//! listeners, clusters and chains. A request is read, routed, sent and answered on one worker, without a lock, a shared
//! cache line or, in the steady state, an allocation.
//!
//! | file | what |
//! |---|---|
//! | `fleet`, `message` | the workers as the control plane sees them |
//! | `plan` | what a snapshot compiles to |
//! | `worker` | one thread: its parts and its mailbox |
//! | `ahead` | what filters make before their routes come into force |
//! | `listener`, `greeting`, `filter_chain` | accepting, balancing, choosing the chain |
//! | `http/` | the HTTP pipeline |
//! | `h2/` | HTTP/2 connections and their streams |
//! | `tcp` | connections carried without being read |
//! | `services` | what runs without any listener |
//! | `trace`, `otlp` | spans of requests, and collectors that are told of them |
//! | `overload` | what is done when the process is short of something |
//! | `host`, `call` | what the worker does for filters |
//! | `chain`, `cluster` | configuration and pools as one worker runs them |
//! | `buffers`, `io`, `timers`, `clock` | what is under it |

#![forbid(unsafe_code)]

mod account;
mod ahead;
mod backlog;
mod buffers;
mod call;
mod chain;
mod chain_tree;
mod clock;
mod cluster;
mod cost;
mod destination;
mod dial;
mod eyeballs;
mod filter_chain;
mod fleet;
mod format;
mod greeting;
mod guard;
mod h2;
mod health;
mod host;
mod http;
mod idle_memory;
mod io;
mod limit;
mod listener;
mod log;
mod message;
mod named;
mod otlp;
mod outlier;
mod overload;
mod party;
mod plain;
mod plan;
mod proxy_protocol;
mod record;
mod refused;
mod services;
mod sinks;
mod tcp;
mod timers;
mod trace;
mod tunnel;
mod worker;

pub use account::Relief;
pub use chain::rules as request_rules;
pub use cluster::transport_prefix;
pub use cost::filter_stat_name;
pub use filter_chain::Peer;
pub use fleet::{ApplyError, Fleet};
pub use greeting::Greeting;
pub use health::named_check_prefix;
pub use http::{Ends, identify, tell_certificate};
pub use limit::Quota;
pub use log::{AdminRequest, target as log_target, write_admin_line};
pub use message::{ClusterReport, HostReport, Report};
pub use overload::{Shed, Strain};
pub use plan::{
    ChainPlan, ClusterPlan, FilterChainPlan, FilterPlan, HandlerPlan, HttpPlan, KnownCertificate, ListenerPlan,
    LoggerPlan, Plan, PlanError, RoutePlan, RoutesPlan, ServicePlan, TlsContext, TlsPlace, WatchPlan,
};
