//! Trying plugins out without a proxy, whatever runs them: `plugin run` and `plugin test`.
//!
//! ```text
//! Exchange ─> Loaded ─┬──> Driver (the pipeline's rules) ──> the real filter, in its real machine
//!                     │                                         │ what it logs, how long it took, how it failed
//!                     └──> Report: every edit, call, log line, fault and time <── observe
//! ```
//!
//! What it is for: a plugin's author sees within milliseconds what the plugin does to a request. It runs the factory and
//! the filter that serve traffic, so what it shows is what happens.
//!
//! What it must never do: run while a proxy serves in the same thread, or know a runtime.
//!
//! Who calls it: the binary's `plugin` commands, and tests of Lua plugins. The hosts of the runtimes tell [`observe`].

#![forbid(unsafe_code)]

mod driver;
mod exchange;
mod loaded;
mod mailbox;
mod manifest;
mod message;
pub mod observe;
mod report;
mod template;

pub use driver::{Driver, Outcome};
pub use exchange::{Canned, CannedOutcome, Exchange};
pub use loaded::{Loaded, RouteKind};
pub use manifest::{ByManifest, name_of};
pub use message::{Head, Request, Response};
pub use report::{CallMade, Change, Fault, LogLine, Report, Step};
pub use template::module_test;

/// Which message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Request,
    Response,
}

impl Side {
    pub fn name(self) -> &'static str {
        match self {
            Side::Request => "request",
            Side::Response => "response",
        }
    }
}
