//! Writes the configuration of each program from a `Setup`. Postrider and Envoy get the same file.

pub mod envoy;
pub mod haproxy;
pub mod nginx;
pub mod plugin;
