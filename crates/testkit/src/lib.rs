//! Test support for driving a proxy from outside: a raw wire client, scripted
//! origins that record what reaches them, a launcher for the binary under
//! test, and readers for its admin interface.
//!
//! Everything here blocks and runs on plain threads, so that a test reads from
//! top to bottom. It must never share code with the proxy: the parser in
//! [`message`] is a second, independent and deliberately unforgiving reading of
//! HTTP/1.1, so that a mistake in the proxy's own codec cannot hide itself.
//!
//! The binary under test is `$POSTRIDER_BIN`, or the workspace's own
//! `postrider`, built on first use. A binary whose file name contains `envoy`
//! is driven with Envoy's command line, so that a test can be checked against
//! the system whose behaviour it claims to describe; [`Flavour`] tells a test
//! which of the two it is talking to, for the places where Postrider is
//! stricter on purpose.
//!
//! Called by: the end-to-end suites in `tests/`, and by crates' own wire tests.

pub mod admin;
pub mod client;
pub mod config;
pub mod grpc;
pub mod message;
pub mod net;
pub mod origin;
pub mod process;
pub mod proxy;
pub mod server;
pub mod wire;
pub mod yaml;

pub use admin::Stats;
pub use client::RawClient;
pub use config::Config;
pub use grpc::GrpcOrigin;
pub use message::{Framing, Headers, Request, Response};
pub use net::{Gate, TempDir, wait_until};
pub use origin::{Origin, OriginConnection};
pub use proxy::{Flavour, Proxy};
pub use server::Server;
pub use wire::{Transport, WireError};

use std::time::Duration;

/// How long any single wait in a test may take before it is a failure. Large,
/// because test machines are shared; a passing test never waits for it.
pub const DEADLINE: Duration = Duration::from_secs(20);
