//! The proxy-wasm host: modules in WebAssembly as filters, on wasmtime.
//!
//! ```text
//! requests    ── hooks ──────> seat ── machine ──> vm (an instance per VM key and worker)
//! connections ── connections ─>│
//! access logs ── logger ──────>│
//! bootstrap   ── service ─────>│
//!                      │ one per plugin     │ the module calls through `abi`, on `data`:
//!                      │ and worker         └──> contexts, the current Stream, calls under way
//!                      └ counts, circuit, failure policy
//! ```
//!
//! What it is for: modules that were made for proxies with this ABI (0.1.0, 0.2.0, 0.2.1) run as they are. Code is compiled
//! once, on the thread that reads the configuration or one of its own (`program`, `compiled`, `cache`); a worker makes an
//! instance of it and enters that.
//!
//! What it must never do: compile, or read a file, on a worker; enter a machine that failed; call into a machine while it
//! runs.

mod abi;
mod analysis;
mod asked;
mod cache;
mod compiled;
mod config;
mod connections;
mod contexts;
mod data;
mod delivery;
mod edits;
mod engine;
mod flow;
mod grpc;
mod held;
mod hooks;
mod kept;
mod logger;
mod maps;
mod message;
mod pairs;
mod program;
mod properties;
mod queues;
mod replies;
mod resumed;
mod seat;
mod service;
mod shared;
mod side;
mod status;
mod template;
mod ticker;
mod vm;

pub use compiled::{hurry, settle};
pub use config::register;
pub use template::template;

#[cfg(test)]
mod tests;
