//! HTTP/2 behind the seam of the codecs: the `h2` crate carries the frames, and each stream looks to the pipeline like a
//! connection with one HTTP/1 message on it.
//!
//! ```text
//! socket ── Wire ── h2 ──┬── Stream: read as the HTTP/1 message that it means, chunked when no length is given
//!                        └── Stream: head and trailers written as fields, body as it is
//! ```
//!
//! So what a client may say over HTTP/2 and what that means for an upstream over HTTP/1 is decided by the one strict
//! reading that there is.

mod client;
mod fields;
mod frames;
mod heads;
mod keepalive;
mod lane;
mod meter;
mod server;
mod stream;
mod text;
pub(crate) mod websocket;
mod wire;

pub(crate) use client::{Client, Expected, Pool, begin};
pub(crate) use lane::Lanes;
pub(crate) use server::serve;
pub(crate) use stream::Stream;

/// Frames larger than this come in pieces anyway: the smallest that every peer may send (RFC 9113 section 4.2).
const FRAME_BYTES: u32 = 16 * 1024;

/// What a stream may have waiting in the codec, beside what waits in the pipeline.
const SEND_BUFFER: usize = 64 * 1024;
