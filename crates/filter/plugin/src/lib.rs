//! What plugins have in common, whatever runs them: manifests, code, schemas, counts, statistics of their own and circuits.
//!
//! What it is for: a runtime's host reads a plugin's configuration and keeps its rules with what is here, and adds only
//! what its virtual machine needs. [`Manifest`] and [`Code`] are read on control threads, when a configuration is loaded;
//! [`Account`], [`Metrics`] and [`Circuit`] belong to one worker and are used with every call.
//!
//! What it must never do: know a runtime, run code, or read a file on a worker.
//!
//! Who calls it: the hosts of the runtimes.

#![forbid(unsafe_code)]

mod account;
mod circuit;
mod code;
pub mod json;
mod library;
mod manifest;
mod metrics;
mod missing;
mod own_folder;
pub mod read;
mod remote;
mod runtimes;
mod schema;
mod schema_bound;

pub use account::{Account, stat};
pub use circuit::{Circuit, Era};
pub use code::{Code, Edition, MAX_CODE_BYTES, MAX_FOLDER_BYTES, MAX_FOLDER_FILES};
pub use library::{Found, Library, library};
pub use manifest::{KIND, MAX_FAULTS, Manifest, Override, PHASES, ROUTE_KIND, Takes, budget, policy};
pub use metrics::{Allowance, Metrics, Named, Sort};
pub use missing::Missing;
pub use own_folder::own_folder;
pub use remote::{Image, Place, Pull, PullSecret, Remote, Retries, without_user};
pub use runtimes::register_runtimes;
pub use schema::Schema;
