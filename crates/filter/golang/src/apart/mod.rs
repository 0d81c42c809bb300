//! Libraries in processes of their own: Go code that ends its process does not end the proxy.
//!
//! ```text
//! proxy                                                    process of a library
//! session ── lane ── ring, in shared memory ─────────────> stage ── entry points ──> Go
//!    ^         ^ delivered on the worker                      │ posts
//!    └─ bells ─┴── reader ── ring, in shared memory <─────────┘
//! keeper ── control socket: configurations, statistics, logs ── the process's first thread
//! ```
//!
//! Each worker has a lane of its own to each process: two rings, and a socket pair that wakes whoever waits for one and
//! whose end tells that the other side is gone. What Go code decides comes back as what a goroutine would have posted, so
//! that a stream's session is the same wherever its code runs.
//!
//! Nothing that comes from a process is trusted: what cannot be read ends it.

mod configs;
mod control;
mod frames;
mod keeper;
mod lane;
mod logged;
mod outlet;
mod posts;
mod ring;
mod serve;
mod stage;
mod watch;
mod wire;

pub(crate) use keeper::Child;
pub(crate) use lane::{Lane, here as lane_here, watch};
pub(crate) use outlet::Outlet;
pub use serve::{COMMAND, serve_library};
pub(crate) use serve::{forward_log, log_level, statistics};
pub(crate) use watch::Limits;
pub(crate) use wire::{Put, Take};
