//! HTTP/1.1 on the wire: bytes in, heads and body pieces out, and back again.
//!
//! Sans-I/O: no sockets, no clock, no tasks. The worker owns the buffers and calls in; every function
//! takes what has arrived so far and can be called again with more. All meaning (framing, authority,
//! path, hop-by-hop fields) is decided by `postrider-http`; this crate knows the syntax of RFC 9112 only,
//! and takes nothing else: CR LF ends a line, one space separates the parts of a start line.
//!
//! ```text
//!   buffer ── parse_request ──> RequestHead + RequestFacts { framing, … }
//!     │                                                │
//!     └─ rest ── BodyDecoder::new(framing).decode ──> data ranges ──> done (+ trailers)
//! ```
//!
//! Between calls a connection keeps a [`HeadScan`] while a head is incomplete, and a [`BodyDecoder`]
//! while a body is under way. Cost is linear in the bytes received, however they were cut.

mod body;
mod chunk;
mod encode;
mod head;
mod scan;

pub use body::{BodyDecoder, BodyError, Decoded};
pub use chunk::{ChunkedRelay, MAX_CHUNK_EXTENSION_BYTES, Relayed};
pub use encode::{CHUNK_END, ChunkSize, LAST_CHUNK, write_chunk, write_last_chunk};
pub use head::{RequestParse, ResponseParse, parse_request, parse_response};
pub use scan::{HeadScan, MAX_LEADING_EMPTY_LINES};
