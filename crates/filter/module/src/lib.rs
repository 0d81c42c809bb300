//! The host of native modules: shared objects with Envoy's binary interface for dynamic modules, versions 0.1 and 0.2.
//!
//! ```text
//! configuration ──> library (loaded once, checked before) ──> entries: the module's functions
//! filter ── hooks ──> instance (one per stream) ──> entries
//!                        ^                             │
//!                        └──────── callbacks <─────────┘ the proxy's functions, exported by the executable
//! ```
//!
//! Access loggers, filters of connections and filters of listeners go the same way: `logger`, `connection` and `newcomer` in
//! the place of the instance, and functions of their own.
//!
//! What it must never do: keep a module's bytes beyond a call, or call into a module while one of the proxy's functions
//! runs for it. A module is machine code in this process: what it does wrong, nobody can stop.
//!
//! Who calls it: the registry, and modules.

mod abi;
mod below_http;
mod callbacks;
mod config;
mod connection;
mod course;
mod definitions;
mod deliver;
mod elf;
mod entry;
mod envoy;
mod hooks;
mod inbox;
mod instance;
mod library;
mod listener;
mod logger;
mod manifest;
mod network;
mod newcomer;
mod on_worker;
mod others;
mod reach;
mod share;
mod source;
mod template;
mod wire;

use postrider_filter_api::Registry;
use postrider_filter_plugin::register_runtimes;

pub use callbacks::{set_concurrency, set_validating};
pub use template::{is_sdk, template};

/// Makes filters, those of connections and of listeners too, and access loggers of modules known by the types of their configurations.
pub fn register(registry: &mut Registry) {
    registry.register(envoy::KIND, envoy::build);
    registry.register_network(network::KIND, network::build);
    registry.register_newcomer(listener::KIND, listener::build);
    registry.register_logger(logger::KIND, logger::build);
    register_runtimes(registry, &[manifest::RUNTIME], manifest::build);
}
