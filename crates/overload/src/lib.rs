//! The overload manager: measures what the process may run short of, and tells the workers what to do about it.
//!
//! What it is for: one thread that asks the monitors of a configuration at its interval, turns their pressures into the
//! strengths of actions and load shed points, and tells the workers when any of them changed.
//!
//! What it must never do: touch a connection or wait for a worker. What the measures mean is the worker's business.
//!
//! Who calls it: the main loop, whenever a configuration was put in force.

#![forbid(unsafe_code)]

mod control_group;
mod monitor;
mod rules;
mod watch;

pub use watch::Overload;
