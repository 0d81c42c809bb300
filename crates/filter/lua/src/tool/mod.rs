//! Trying plugins out without a proxy: `plugin run` and `plugin test`.
//!
//! ```text
//! run ──┐                        ┌──> Driver (the pipeline's rules) ──> the real filter, in its real machine
//!       ├──> Exchange ─> Loaded ─┤
//! test ─┘  a machine of its own  └──> Report: every edit, call, log line, fault and time
//! ```
//!
//! What it is for: a plugin's author sees within milliseconds what the plugin does to a request. It runs the factory and
//! the filter that serve traffic, so what it shows is what happens.
//!
//! What it must never do: run while a proxy serves in the same thread, or know a rule of a dialect.
//!
//! Who calls it: the binary's `plugin` commands, and the tests of this crate ([`Driver`]).

mod cases;
pub(crate) mod coverage;
mod driver;
mod exchange;
mod lua_text;
mod message;
mod plugin;
mod report;
mod template;
#[cfg(test)]
mod tests;

pub use cases::{Case, Coverage, Failure, TestFile, find_tests, run_tests};
pub use driver::{Driver, Outcome};
pub use exchange::{Canned, CannedOutcome, Exchange};
pub(crate) use message::system_clock;
pub use message::{Head, Request, Response};
pub use plugin::{Loaded, Plugin, Runtime};
pub use report::{CallMade, Change, Fault, LogLine, Report, Step};
pub use template::{TemplateFile, template};

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
