//! gRPC of modules: calls with one message each way, and conversations.

use postrider_filter_api::{GrpcStatus, GrpcStream};
use postrider_http::{Fields, ResponseHead};

use crate::data::At;
use crate::vm::{Fault, Vm};

/// A conversation that a module opened.
pub(crate) struct Conversation {
    pub(crate) stream: GrpcStream,
    /// What did not fit in the queue yet.
    pub(crate) unsent: Vec<Vec<u8>>,
    /// The module says nothing more.
    pub(crate) finished: bool,
    /// The module heard how it ended.
    pub(crate) closed: bool,
}

/// Most messages that wait for room in a conversation's queue.
const MAX_UNSENT: usize = 1000;

/// Most bytes of them.
const MAX_UNSENT_BYTES: usize = 16 << 20;

impl Conversation {
    pub(crate) fn new(stream: GrpcStream) -> Conversation {
        Conversation { stream, unsent: Vec::new(), finished: false, closed: false }
    }

    /// Whether a message of that length may still be said, or wait until it is.
    pub(crate) fn takes(&self, length: usize) -> bool {
        let waits: usize = self.unsent.iter().map(Vec::len).sum();
        !self.finished && self.unsent.len() < MAX_UNSENT && waits.saturating_add(length) <= MAX_UNSENT_BYTES
    }

    /// Sends what waits, as far as there is room.
    pub(crate) fn flush(&mut self) {
        let mut sent = 0;
        while self.stream.has_room()
            && let Some(message) = self.unsent.get_mut(sent)
        {
            self.stream.send(std::mem::take(message));
            sent += 1;
        }
        self.unsent.drain(..sent);
        if self.finished && self.unsent.is_empty() {
            self.stream.finish();
        }
    }
}

/// What a conversation has to tell next.
enum Heard {
    Initial(Option<ResponseHead>),
    Message(Vec<u8>),
    /// With what the service said behind its messages.
    End(GrpcStatus, Fields),
}

impl Vm {
    /// Tells the module everything that a conversation has to tell.
    pub(crate) fn converse(&self, root: u32, token: u32, stream: u32, mut at: At<'_, '_>) -> Result<(), Fault> {
        loop {
            // The module may cancel it from within: it is looked up again each time.
            let heard = self.with(|data| {
                let known = data.contexts.root(root)?.conversations.iter_mut();
                let (_, conversation) = known.into_iter().find(|(known, _)| *known == token)?;
                conversation.flush();
                if conversation.closed {
                    return None;
                }
                if let Some(head) = conversation.stream.take_initial() {
                    return Some(Heard::Initial(head));
                }
                if let Some(message) = conversation.stream.receive() {
                    return Some(Heard::Message(message));
                }
                let status = conversation.stream.status()?;
                conversation.closed = true;
                let trailing = conversation.stream.take_trailing().unwrap_or_default();
                Some(Heard::End(status, trailing))
            });
            match heard.flatten() {
                Some(Heard::Initial(head)) => self.tell_initial(root, token, stream, head, at.again())?,
                Some(Heard::Message(message)) => self.tell_message(root, token, stream, message, at.again())?,
                Some(Heard::End(status, trailing)) => {
                    self.tell_trailing(root, token, stream, trailing, at.again())?;
                    self.tell_close(root, token, stream, &status, at.again())?;
                    self.with(|data| {
                        if let Some(root) = data.contexts.root(root) {
                            root.conversations.retain(|(known, _)| *known != token);
                        }
                    });
                }
                None => return Ok(()),
            }
        }
    }
}
