//! Scripts without a proxy: how one is loaded to be tried out, and the tests that people write for it. Tests are scripts
//! whatever they are about: modules are loaded by the caller.
//!
//! ```text
//! run ──> Plugin ──┐
//!                  ├──> Loaded and Report of `crates/filter/trial`
//! test ─> cases ───┘
//!         in a machine of their own
//! ```
//!
//! What it must never do: run while a proxy serves in the same thread, or know a rule of a dialect.
//!
//! Who calls it: the binary's `plugin` commands.

mod cases;
pub(crate) mod coverage;
mod lua_text;
mod plugin;
mod subject;
mod template;
#[cfg(test)]
mod tests;

pub use cases::{Case, Coverage, Failure, TestFile, find_tests, run_tests};
pub use plugin::{Plugin, Runtime};
pub use subject::{LoadModule, Module};
pub use template::{TemplateFile, template};
