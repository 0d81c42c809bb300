//! What the proxy tells about itself: statistics, access log sinks, the application log.
//!
//! A leaf: it uses no other crate of ours, no async runtime and no clock of its own on a worker. Workers write into
//! memory that is theirs alone ([`stats::Block`], [`access_log::LogBuffer`]) and never wait; the admin and the log
//! thread read it. Nothing here may block, lock or fail on the data path; what cannot be kept is dropped and counted.

pub mod access_log;
pub mod intervals;
pub mod json;
pub mod log;
#[allow(
    clippy::indexing_slicing,
    clippy::string_slice,
    reason = "runs for who reads, not for requests; each index was made from the list that it indexes"
)]
pub mod render;
pub mod samples;
pub mod sink;
pub mod stats;
pub mod time;

pub use stats::{Block, Counter, KnownScope, Registry, ScopeTags, StatSet, WorkerStats};
