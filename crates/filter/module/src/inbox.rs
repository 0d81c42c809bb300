//! How others on its worker reach a connection that a module has a part in: what they tell it waits until it is asked to look.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use postrider_filter_api::{Answer, CallFailure, ConnectionHandle, NewcomerHandle};

use crate::callbacks::Scheduled;

/// What a module is told outside the course of the bytes.
pub(crate) enum Event {
    Scheduled(u64),
    Call { id: u64, outcome: Box<Result<Answer, CallFailure>> },
}

/// What has a connection look at its inbox, on its worker.
pub(crate) trait Ask {
    fn ask(&self);
}

impl Ask for ConnectionHandle {
    fn ask(&self) {
        ConnectionHandle::ask(self);
    }
}

impl Ask for NewcomerHandle {
    fn ask(&self) {
        NewcomerHandle::ask(self);
    }
}

/// The way to a connection. It may outlive the connection, which closes it.
pub(crate) struct Inbox<H> {
    handle: H,
    is_closed: Cell<bool>,
    events: RefCell<VecDeque<Event>>,
}

impl<H: Ask> Inbox<H> {
    pub(crate) fn new(handle: H) -> Inbox<H> {
        Inbox { handle, is_closed: Cell::new(false), events: RefCell::default() }
    }

    pub(crate) fn tell(&self, event: Event) {
        if !self.is_closed.get() {
            self.events.borrow_mut().push_back(event);
            self.handle.ask();
        }
    }

    /// What was told first of all that the connection does not know yet.
    pub(crate) fn next(&self) -> Option<Event> {
        self.events.borrow_mut().pop_front()
    }

    /// The connection is no more.
    pub(crate) fn close(&self) {
        self.is_closed.set(true);
        self.events.borrow_mut().clear();
    }
}

impl<H: Ask> Scheduled for Inbox<H> {
    fn on_scheduled(&self, event: u64) {
        self.tell(Event::Scheduled(event));
    }
}
