//! Where traffic goes: endpoints and their discovery, load balancing, pools, circuit breakers.
//!
//! Control threads resolve names ([`dns`]) and publish [`Endpoints`]; each worker holds its own [`Cluster`] with hosts,
//! picker and pooled connections, shared with nobody but for the [`Breaker`]s' counts. The type of a connection is the
//! worker's business: pools only keep them.

#![forbid(unsafe_code)]

mod balance;
mod breaker;
mod cluster;
pub mod dns;
pub mod health;
mod priorities;
mod random;

pub use balance::Picker;
pub use breaker::{Breaker, Breakers, LocalBreakers, Permit, PriorityBreakers};
pub use cluster::{Cluster, Endpoints, Host, Members, Waiter};
pub use health::Health;
pub use random::Random;
