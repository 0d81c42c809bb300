//! Where traffic goes: endpoints and their discovery, load balancing, pools, circuit breakers.
//!
//! Control threads resolve names ([`dns`], [`resolver`]) and publish [`Endpoints`]; each worker holds its own [`Cluster`] with hosts,
//! picker and pooled connections, shared with nobody but for the [`Breaker`]s' counts. The type of a connection is the
//! worker's business: pools only keep them.

#![forbid(unsafe_code)]

mod balance;
mod breaker;
mod cluster;
mod deadlines;
pub mod dns;
mod eyeballs;
pub mod hash;
mod hashing;
pub mod health;
mod host;
mod hosts;
mod localities;
mod open;
pub mod outlier;
mod peak;
mod priorities;
mod queue;
mod random;
mod recent;
pub mod resolver;
mod subsets;
#[cfg(test)]
mod testing;
mod zones;

pub use balance::Picker;
pub use breaker::{Breaker, Breakers, Limited, LocalBreakers, Permit};
pub use cluster::{Choice, Cluster, Endpoints, Members, OnPanic, Refusal, Surroundings};
pub use eyeballs::order as address_order;
pub use hashing::TableSizes;
pub use health::Health;
pub use host::{Host, HostTotals};
pub use open::OpenConnections;
pub use queue::Waiter;
pub use random::Random;
pub use subsets::SubsetCounts;
pub use zones::{Home, Population, Zone, ZoneCounts};
