//! Handshakes in memory: a client and a server of ours, or one of them plain rustls, with certificates made on the
//! spot. Each test is named after the rule, or after the attack.

mod certificates;
mod facts;
mod fixtures;
mod hello;
mod keys;
mod names;
mod parameters;
mod sessions;
mod support;
mod validation;
