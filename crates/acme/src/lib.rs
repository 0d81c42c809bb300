//! Certificates that the proxy gets itself, from an authority that speaks ACME (RFC 8555).
//!
//! ```text
//! settings ──> Issuer (a thread) ──order──> authority ──asks──> proxy, port 80 ──> challenge.sock ──> tokens of the orders
//!                 │                             └─────or asks──> proxy, port 443, acme-tls/1: challenges/NAME.pem
//!                 └── certificates/NAME.pem ──> read like any other file
//! ```
//!
//! What it is for: [`Issuer`] keeps the certificates of a configuration good, and [`stand_in`] lets that configuration run
//! before the first of them is there.
//!
//! What it must never do: touch the data path, leave a half-written file, or ask an authority again and again.
//!
//! Who calls it: the binary, on its control thread.

#![forbid(unsafe_code)]

mod challenge;
mod client;
mod issuer;
mod order;
mod schedule;
mod stand_in;
mod store;

pub use issuer::Issuer;
pub use stand_in::stand_in;
