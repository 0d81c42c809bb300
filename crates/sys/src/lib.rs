//! What the standard library and tokio do not offer about sockets and the process: reuse-port listeners with options,
//! resource limits, processor pinning, the time zone, giving memory back, addresses of interfaces, systemd's notifications.
//!
//! The only data-path crate with `unsafe` code; each block says why it is sound. It knows no protocol and uses no
//! other crate of ours.

mod allocation;
mod interfaces;
mod process;
mod socket;
mod zone;

pub use allocation::{Accounted, CountingAllocator, allocations};
pub use interfaces::interface_addresses;
pub use process::*;
pub use socket::*;
pub use socket2::TcpKeepalive;
pub use zone::{LocalZone, local_zone};
