//! gRPC calls of filters: to whom, with what, and what comes back.
//!
//! A unary call is a [`GrpcCall`] with a `done` that hears its outcome; a streaming one is opened by a [`GrpcOpen`] and
//! is then a [`GrpcStream`]. Messages are bytes here: which types they hold is between the filter and the service.

mod pipe;
mod service;

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use postrider_http::RequestHead;

use crate::CallHandle;
pub use pipe::GrpcPipe;
pub use service::GrpcService;

/// One message to a service, and one back.
pub struct GrpcCall {
    pub cluster: Arc<str>,
    /// See [`GrpcService::head`].
    pub head: RequestHead,
    pub message: Vec<u8>,
    /// From now to the end of the answer; `None` is no limit.
    pub timeout: Option<Duration>,
    /// The longest answer taken, in bytes.
    pub max_answer: usize,
    /// Hears the outcome once, on this worker, unless the handle was dropped before.
    pub done: Box<dyn FnOnce(Result<Vec<u8>, GrpcStatus>)>,
}

/// A conversation with a service.
pub struct GrpcOpen {
    pub cluster: Arc<str>,
    /// See [`GrpcService::head`].
    pub head: RequestHead,
    /// From now to the end of the conversation; `None` is no limit.
    pub timeout: Option<Duration>,
    /// The longest message taken, in bytes.
    pub max_answer: usize,
    /// Called on this worker when a message came, when there is room for more to send again, and at the end.
    pub wake: Box<dyn Fn()>,
}

/// How a call ended (`google.rpc.Code`), 0 being well.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GrpcStatus {
    pub code: u32,
    pub message: String,
}

impl GrpcStatus {
    pub const OK: u32 = 0;
    pub const CANCELLED: u32 = 1;
    pub const UNKNOWN: u32 = 2;
    pub const DEADLINE_EXCEEDED: u32 = 4;
    pub const PERMISSION_DENIED: u32 = 7;
    pub const RESOURCE_EXHAUSTED: u32 = 8;
    pub const UNIMPLEMENTED: u32 = 12;
    pub const INTERNAL: u32 = 13;
    pub const UNAVAILABLE: u32 = 14;
    pub const UNAUTHENTICATED: u32 = 16;

    pub fn new(code: u32, message: impl Into<String>) -> GrpcStatus {
        GrpcStatus { code, message: message.into() }
    }

    pub fn is_ok(&self) -> bool {
        self.code == GrpcStatus::OK
    }
}

/// A conversation under way. Dropping it abandons the conversation.
pub struct GrpcStream {
    pipe: Rc<GrpcPipe>,
    _handle: CallHandle,
}

impl GrpcStream {
    /// For the worker: `handle` ends the task at the other end of the pipe.
    pub fn new(pipe: Rc<GrpcPipe>, handle: CallHandle) -> GrpcStream {
        GrpcStream { pipe, _handle: handle }
    }

    /// Puts a message in the queue. `false` when it was not taken: the queue is full (see [`GrpcStream::has_room`]), or
    /// nothing more may be sent.
    pub fn send(&self, message: Vec<u8>) -> bool {
        self.pipe.send(message)
    }

    /// The queue takes another message now.
    pub fn has_room(&self) -> bool {
        self.pipe.has_room()
    }

    /// Nothing more will be sent.
    pub fn finish(&self) {
        self.pipe.finish();
    }

    /// The next message. While filters leave messages in the queue, the service is not read.
    pub fn receive(&self) -> Option<Vec<u8>> {
        self.pipe.receive()
    }

    /// How the conversation ended, once every message of it was received.
    pub fn status(&self) -> Option<GrpcStatus> {
        self.pipe.status()
    }
}

impl fmt::Debug for GrpcStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GrpcStream")
    }
}
