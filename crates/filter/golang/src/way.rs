//! How far one message has come, as its worker knows it.

use std::collections::VecDeque;

use postrider_filter_api::LocalReply;

use crate::abi::Verdict;

#[derive(Debug, Default)]
pub(crate) struct Way {
    /// The message was taken over: its parts come here, and go on from here.
    pub(crate) taken: bool,
    /// Nothing can follow the head, or nothing that is looked at.
    pub(crate) bodiless: bool,
    /// The end came, with no trailers.
    pub(crate) ended: bool,
    pub(crate) trailers_came: bool,
    pub(crate) trailers_done: bool,
    /// Go code was told of the end.
    pub(crate) told_end: bool,
    /// The head can go on, and it has.
    pub(crate) head_free: bool,
    pub(crate) head_gone: bool,
    /// What came of the body and was not shown to Go code.
    pub(crate) pending: Vec<u8>,
    /// What Go code put behind a head.
    pub(crate) added: Vec<u8>,
    /// What goes on.
    pub(crate) out: Vec<u8>,
    /// What goroutines said, oldest first.
    pub(crate) continued: VecDeque<Verdict>,
    /// The request is answered so.
    pub(crate) reply: Option<Box<LocalReply>>,
}

impl Way {
    /// Something came for it that its own hooks have to look at.
    pub(crate) fn has_news(&self) -> bool {
        !self.continued.is_empty() || self.reply.is_some() || self.head_free && !self.out.is_empty()
    }

    /// All of the message is here.
    pub(crate) fn is_complete(&self) -> bool {
        self.ended || self.trailers_came
    }

    /// Another message takes this one's place.
    pub(crate) fn abandon(&mut self) {
        self.taken = false;
        self.pending.clear();
        self.added.clear();
        self.out.clear();
        self.continued.clear();
        self.reply = None;
    }
}
