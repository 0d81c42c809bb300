//! The Lua host: Rider plugins and Envoy's Lua filter on LuaJIT.
//!
//! ```text
//! filter ── hooks ──> script ── coroutine ──> vm (LuaJIT, one per script and worker)
//!                                              │ the SDK (sdk/*.lua) calls through a table of C functions
//!                                              └──> abi ──> the current Stream
//! ```
//!
//! The two dialects of scripts, with their own objects and rules, are Lua code of ours ([`sdk`]) over one table of C
//! functions ([`abi`]), which LuaJIT compiles into the traces of the script. A script waits by yielding a number; the
//! adapter ([`script`]) turns that into the filter contract's answers.

mod abi;
mod checkhook;
mod choice;
mod config;
mod file_log;
mod heap;
mod hooks;
mod last_error;
mod machine;
mod observe;
mod plugin;
mod pool;
mod power;
mod program;
mod schema;
mod script;
mod sdk;
pub mod tool;
mod view;
mod vm;
mod watchdog;

pub use abi::read_messages_with;
pub use config::register;
pub use file_log::reopen_logs;

#[cfg(test)]
mod rider_tests;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
