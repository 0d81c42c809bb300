//! One file per command. A command reads its arguments, calls a library crate and prints; what it finds out is not its own.

mod admin;
pub mod certs;
pub mod completion;
pub mod convert;
pub mod demo_upstream;
pub mod doctor;
pub mod explain;
#[cfg(feature = "golang")]
pub mod go_process;
pub mod migrate;
pub mod plugin;
pub mod run;
pub mod top;
pub mod validate;
pub mod version;
