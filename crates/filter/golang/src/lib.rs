//! The host of Envoy's Go filters: shared libraries built with Envoy's Go SDK, loaded unmodified.
//!
//! ```text
//! filter ── hooks ──> session ── entry points ──> library (Go)
//!    ^                   ^ posts                     │ host functions, from the worker's thread or a goroutine's
//!    └── resumed ── bells ── pool <── shared <───────┘
//! ```
//!
//! A stream stays on its worker. What Go code does from the worker's own thread, inside one of our calls, is done at once;
//! what comes from a goroutine is noted under the stream's lock ([`request`]) and done by the worker when it is woken.
//! Headers that a goroutine looks at are a copy ([`mirror`]), since the stream's own are out of reach between two hooks.
//!
//! Go code may also name the cluster of a request ([`specifier`]), filter connections ([`network`]), and speak to hosts in place
//! of HTTP ([`bridge`]).
//!
//! A library may run in a process of its own ([`apart`]): then everything that its Go code does is noted.
//!
//! It must never let Go code see a stream that is over, and never call into Go with a stream's lock held.

mod abi;
mod apart;
mod bells;
mod bridge;
mod config;
mod dear;
mod elf;
mod environment;
mod epoch;
mod exports;
mod facts;
mod filter;
mod heads;
mod library;
mod metrics;
mod mirror;
mod network;
mod noted;
mod object;
mod parsed;
mod plugin_names;
mod pool;
mod questions;
mod request;
mod scheduler;
mod session;
mod specifier;
mod state;
mod template;
mod trial;
mod way;

/// Whose lines in the log those of Go code are: it does not say of which plugin they are.
const LOG_SPEAKER: &str = "Go plugins";

pub use apart::{COMMAND as PROCESS_COMMAND, serve_library};
pub use config::{register, settle_workers};
pub use environment::{at_start, settle_checks};
pub use scheduler::settle_processors;
pub use template::template;
