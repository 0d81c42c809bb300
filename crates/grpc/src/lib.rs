//! The messages of the gRPC services that filters call, as generated from Envoy's protocol definitions.
//!
//! What it is for: filters build requests from these types and read answers into them; sending is the worker's part.
//!
//! What it must never do: hold anything but messages. The configuration's schema is another crate's, and the two have
//! nothing in common but the files that they are made from.
//!
//! Who calls it: native filters, and tests that play a service.

#![forbid(unsafe_code)]

pub use prost::Message;
pub use prost_types::{Any, Duration, Struct, Timestamp, value};

#[allow(clippy::all, reason = "generated")]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/messages.rs"));
}

pub use generated::*;

mod values;

pub use values::{from_struct, to_struct, to_value};
