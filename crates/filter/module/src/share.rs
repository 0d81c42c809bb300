//! What filters of connections and filters of listeners have of one connection alike: the module's state for it, the texts that
//! the module was lent, the way that others have to it, and its calls.

use std::cell::{Cell, OnceCell, RefCell};
use std::ffi::c_int;
use std::ptr;
use std::rc::Rc;

use postrider_filter_api::{CallHandle, Passage};
use postrider_filter_plugin::Account;

use crate::abi::{Buffer, Own, StreamRef};
use crate::deliver::with_answer;
use crate::entry::{OnCallout, OnScheduled};
use crate::inbox::{Ask, Event, Inbox};

/// A module's share of one connection.
pub(crate) struct Share<H> {
    /// The module's state for the connection; null when it could not make one.
    pub(crate) own: Cell<Own>,
    /// Texts that were made for the module, until its next hook.
    texts: RefCell<Vec<Box<[u8]>>>,
    inbox: OnceCell<Rc<Inbox<H>>>,
    pub(crate) calls: RefCell<Vec<(u64, CallHandle)>>,
    pub(crate) last_call: Cell<u64>,
}

impl<H> Default for Share<H> {
    fn default() -> Share<H> {
        Share {
            own: Cell::new(ptr::null()),
            texts: RefCell::default(),
            inbox: OnceCell::new(),
            calls: RefCell::default(),
            last_call: Cell::new(0),
        }
    }
}

impl<H: Ask + Clone> Share<H> {
    /// A text for the module that lies nowhere else.
    pub(crate) fn lend(&self, text: impl Into<Vec<u8>>) -> Buffer {
        let text = text.into().into_boxed_slice();
        let lent = Buffer::of(&text);
        self.texts.borrow_mut().push(text);
        lent
    }

    /// Another hook begins.
    pub(crate) fn forget_texts(&self) {
        let mut texts = self.texts.borrow_mut();
        if !texts.is_empty() {
            texts.clear();
        }
    }

    /// How others reach the connection with this handle.
    pub(crate) fn inbox(&self, handle: &H) -> &Rc<Inbox<H>> {
        self.inbox.get_or_init(|| Rc::new(Inbox::new(handle.clone())))
    }

    /// What the module is to be told next.
    pub(crate) fn next(&self) -> Option<Event> {
        self.inbox.get()?.next()
    }

    /// Tells the module of an event by one of these functions; `enter` calls into it.
    pub(crate) fn tell_of(
        &self,
        event: Event,
        (scheduled, callout_done): (Option<OnScheduled>, Option<OnCallout>),
        enter: impl FnOnce(&mut dyn FnMut(StreamRef, Own)),
    ) {
        match event {
            Event::Scheduled(id) => {
                if let Some(hook) = scheduled {
                    // SAFETY: the function of a loaded module, as the interface says. So below.
                    enter(&mut |handle, own| unsafe { hook(handle, own, id) });
                }
            }
            Event::Call { id, outcome } => {
                self.calls.borrow_mut().retain(|(known, _)| *known != id);
                let Some(hook) = callout_done else { return };
                with_answer(&outcome, |result, headers, body| {
                    let (headers, header_count) = (headers.as_ptr(), headers.len());
                    // SAFETY: as above; the answer is there for the time of the call.
                    enter(&mut |handle, own| unsafe {
                        hook(handle, own, id, result, headers, header_count, body.as_ptr(), body.len());
                    });
                });
            }
        }
    }

    /// The connection is over: nobody reaches it any more, and the module's state goes.
    pub(crate) fn end(&mut self, destroy: Option<unsafe extern "C" fn(Own)>) {
        if let Some(inbox) = self.inbox.get() {
            inbox.close();
        }
        self.calls.get_mut().clear();
        let own = self.own.replace(ptr::null());
        if let Some(destroy) = destroy.filter(|_| !own.is_null()) {
            // SAFETY: the function of a loaded module, once, on what it made for this connection.
            unsafe { destroy(own) };
        }
    }
}

/// What a hook's answer means, which was a call of the plugin.
pub(crate) fn passage(account: &Account, answer: Option<c_int>) -> Passage {
    account.called(None, None);
    if answer == Some(1) { Passage::Stop } else { Passage::Continue }
}
