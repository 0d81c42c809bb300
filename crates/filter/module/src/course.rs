//! One message on its way past a module: what the module held back of it, and how it goes on.

use std::cell::{Cell, RefCell};

use postrider_filter_api::Resumer;

/// Where a message has come to.
#[derive(Debug, Default)]
pub(crate) struct Course {
    /// The module is being shown the head.
    pub(crate) in_head: Cell<bool>,
    /// The module's last word was that nothing goes on.
    pub(crate) stopped: Cell<bool>,
    /// It said since that the message goes on.
    pub(crate) freed: Cell<bool>,
    /// The head waits while pieces of the body are shown to the module.
    pub(crate) taken: Cell<bool>,
    /// Of a message that was taken: the head may go.
    pub(crate) head_free: Cell<bool>,
    pub(crate) head_gone: Cell<bool>,
    /// Of a message that was taken: all of it came.
    pub(crate) ended: Cell<bool>,
    /// The head has nothing behind it.
    pub(crate) bodiless: Cell<bool>,
    /// No more is taken until the module lets go of what it has.
    pub(crate) full: Cell<bool>,
    /// The module wants the whole body, within the limit.
    pub(crate) gathers: Cell<bool>,
    /// A piece is being shown.
    pub(crate) shows: Cell<bool>,
    /// The pause is about the head.
    pub(crate) at_head: Cell<bool>,
    /// What the module wants kept of the body.
    pub(crate) kept: RefCell<Vec<u8>>,
    /// Of a message that was taken: what may go on.
    pub(crate) out: RefCell<Vec<u8>>,
    /// The module let something kept go on that then was shown to it as received.
    waits: RefCell<Option<Resumer>>,
}

impl Course {
    /// The message waits until it is resumed.
    pub(crate) fn wait(&self, resumer: &Resumer) {
        *self.waits.borrow_mut() = Some(resumer.clone());
    }

    pub(crate) fn goes(&self) {
        if self.waits.borrow().is_some() {
            *self.waits.borrow_mut() = None;
        }
    }

    /// Resumes the message if it waits; `false` when it does not.
    pub(crate) fn wake(&self) -> bool {
        let waits = self.waits.borrow();
        if let Some(resumer) = &*waits {
            resumer.resume();
        }
        waits.is_some()
    }

    /// The module says that the message goes on.
    pub(crate) fn free(&self) {
        if self.stopped.get() || self.in_head.get() {
            self.freed.set(true);
            self.wake();
        }
    }
}
