//! What scripts reach the proxy through: a table of C functions over the stream that the worker is at.
//!
//! The SDK casts each address once to a typed function, so LuaJIT compiles a call into the script's own trace; nothing
//! is exported from the binary. Every function works on the current [`Turn`], which the adapter sets around each entry
//! into a script, answers with one of the codes below, never unwinds, never calls Lua, and never keeps what it was given.
//! Texts that it hands out stay valid until the next call of any of these functions.

mod blake;
mod body;
mod call;
mod choice;
mod codec;
mod digest;
mod exported;
mod facts;
mod fields;
mod files;
mod held;
mod messages;
mod metrics;
mod scan;
mod signature;
mod sponge;
mod stack;
mod table;
mod text;
mod tls;
mod turn;
mod values;

pub(crate) use call::CallRequest;
pub(crate) use choice::Choice;
pub(crate) use held::Held;
pub use messages::read_messages_with;
pub(crate) use table::TABLE;
pub(crate) use text::Text;
pub(crate) use turn::{Context, Scratch, Side, Turn, is_deep};

use std::ffi::c_int;

/// Done.
pub(crate) const OK: c_int = 0;
/// There is no such thing.
pub(crate) const NONE: c_int = 1;
/// Not possible here: there is no stream, no head, no message of that side.
pub(crate) const NOT_HERE: c_int = -1;
/// The head has gone on: it can no longer be changed.
pub(crate) const LOCKED: c_int = -2;
/// A name or value that no message can carry, or an argument out of range.
pub(crate) const INVALID: c_int = -3;
/// There is no cluster of that name, or this plugin may not call it.
pub(crate) const NO_CLUSTER: c_int = -4;
/// Too many, too large.
pub(crate) const LIMIT: c_int = -5;
