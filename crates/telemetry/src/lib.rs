//! What the proxy tells about itself: statistics, access log sinks, the application log.
//!
//! A leaf: it uses no other crate of ours, no async runtime and no clock of its own on a worker. Workers write into
//! memory that is theirs alone ([`stats::Block`], [`access_log::LogBuffer`]) and never wait; the admin and the log
//! thread read it. Nothing here may block, lock or fail on the data path; what cannot be kept is dropped and counted.

pub mod access_log;
pub mod json;
pub mod log;
pub mod render;
pub mod stats;
pub mod time;

pub use stats::{Block, KnownScope, Registry, StatSet, WorkerStats};
