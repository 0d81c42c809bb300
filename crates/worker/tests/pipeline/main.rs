//! The pipeline as filters meet it: who is called with what, what waits, and what then goes over the wire.

#[path = "../common/mod.rs"]
mod common;
mod scripted;

mod ahead;
mod calls;
mod facts;
mod grpc;
mod plans;
mod replies;
mod requests;
mod residents;
mod responses;
