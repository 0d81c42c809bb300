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

use postrider_http::grpc::Code;
use postrider_http::{Fields, RequestHead, ResponseHead};
use postrider_model::RetryPolicy;

use crate::{CallHandle, CallTrace};
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
    /// As that of a [`Call`](crate::Call).
    pub trace: Option<CallTrace>,
    /// How often it is tried anew, and when; `None` is never.
    pub retries: Option<Arc<RetryPolicy>>,
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
    /// As that of a [`Call`](crate::Call).
    pub trace: Option<CallTrace>,
    /// How often it is opened anew where it fails before the service said anything; `None` is never.
    pub retries: Option<Arc<RetryPolicy>>,
    /// Called on this worker when a message came, when there is room for more to send again, and at the end.
    pub wake: Box<dyn Fn()>,
}

/// How a call ended: a [`Code`], 0 being well, or [`GrpcStatus::NO_CODE`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GrpcStatus {
    pub code: u32,
    pub message: String,
    /// The service said so itself.
    pub is_heard: bool,
}

impl GrpcStatus {
    /// The service said something that is no code: -1, as Envoy has it.
    pub const NO_CODE: u32 = u32::MAX;

    /// What the proxy says about a call.
    pub fn new(code: Code, message: impl Into<String>) -> GrpcStatus {
        GrpcStatus { code: u32::from(code.number()), message: message.into(), is_heard: false }
    }

    pub fn is_ok(&self) -> bool {
        self.code == u32::from(Code::Ok.number())
    }
}

/// A conversation under way. Dropping it abandons the conversation.
pub struct GrpcStream {
    pipe: Rc<GrpcPipe>,
    handle: CallHandle,
}

impl GrpcStream {
    /// For the worker: `handle` ends the task at the other end of the pipe.
    pub fn new(pipe: Rc<GrpcPipe>, handle: CallHandle) -> GrpcStream {
        GrpcStream { pipe, handle }
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

    /// How many messages wait in the queue: the last ones that were put there. After the end these were never sent.
    pub fn unsent(&self) -> usize {
        self.pipe.unsent()
    }

    /// Nothing more will be sent.
    pub fn finish(&self) {
        self.pipe.finish();
    }

    /// Ends the conversation politely: what waits is still sent, then the service is told that nothing follows, and it has
    /// so much time to end its side. Nobody hears of what it still says.
    pub fn leave(self, patience: Duration) {
        self.pipe.leave(patience);
        self.handle.detach();
    }

    /// The next message. While filters leave messages in the queue, the service is not read.
    pub fn receive(&self) -> Option<Vec<u8>> {
        self.pipe.receive()
    }

    /// From now on the metadata of the service is kept for whoever takes it: called before this hook ends.
    pub fn keep_metadata(&self) {
        self.pipe.keep_metadata();
    }

    /// What the service said in front of its messages, once, when it came; inside it `None` where it said all in one.
    pub fn take_initial(&self) -> Option<Option<ResponseHead>> {
        self.pipe.take_initial()
    }

    /// What it said behind them, once, when the conversation has ended.
    pub fn take_trailing(&self) -> Option<Fields> {
        self.pipe.take_trailing()
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
