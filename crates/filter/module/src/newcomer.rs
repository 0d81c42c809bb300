//! One new connection, as a module sees it before a filter chain is chosen.
//!
//! A module calls the proxy's functions from within its hooks, so everything here is shared and changes in place. The
//! connection and what came of its bytes are there while a hook runs and at no other time.

use std::cell::Cell;
use std::ptr;
use std::rc::Rc;

use postrider_filter_api::{Newcomer, NewcomerHandle, NewcomerSession, Passage, StreamInfo};

use crate::abi::{Buffer, Own, StreamRef};
use crate::inbox::{Event, Inbox};
use crate::listener::Looking;
use crate::share::{Share, passage};

/// A connection's state in the proxy. Its address is the module's handle, so it never moves.
pub(crate) struct Introduced {
    pub(crate) place: Rc<Looking>,
    pub(crate) handle: NewcomerHandle,
    pub(crate) share: Share<NewcomerHandle>,
    newcomer: Cell<*mut Newcomer<'static>>,
    data: Cell<*mut Vec<u8>>,
}

impl Introduced {
    /// Makes the module's state for a connection.
    pub(crate) fn new(place: &Rc<Looking>, newcomer: &mut Newcomer<'_>) -> Box<Introduced> {
        let session = Box::new(Introduced {
            place: place.clone(),
            handle: newcomer.handle.clone(),
            share: Share::default(),
            newcomer: Cell::new(ptr::null_mut()),
            data: Cell::new(ptr::null_mut()),
        });
        let config = &place.config;
        if let Some(new) = config.entries.new {
            // SAFETY: the function of a loaded module, on a configuration that it made, as the interface says.
            session.share.own.set(session.enter(newcomer, |handle, _| unsafe { new(config.own(), handle) }));
        }
        session
    }

    pub(crate) fn own(&self) -> Own {
        self.share.own.get()
    }

    /// Calls into the module.
    fn enter<T>(&self, newcomer: &mut Newcomer<'_>, hook: impl FnOnce(StreamRef, Own) -> T) -> T {
        self.share.forget_texts();
        // The lifetime is put off: nobody reads the pointer when this function has ended.
        self.newcomer.set(ptr::from_mut(newcomer).cast());
        let answer = hook(ptr::from_ref(self).cast_mut().cast(), self.own());
        self.newcomer.set(ptr::null_mut());
        answer
    }

    /// What came and was not taken yet; `None` where that is not to be had.
    ///
    /// # Safety
    /// The answer of an earlier call is no longer used.
    #[allow(
        clippy::mut_from_ref,
        reason = "the bytes are not part of the session: they are lent for the time of a hook"
    )]
    pub(crate) unsafe fn data(&self) -> Option<&mut Vec<u8>> {
        // SAFETY: set for the time of a hook only, which holds the one borrow of the bytes and does not use it meanwhile.
        unsafe { self.data.get().as_mut() }
    }

    /// The connection; `None` outside hooks.
    ///
    /// # Safety
    /// As for [`Introduced::data`].
    #[allow(clippy::mut_from_ref, reason = "as for the bytes")]
    pub(crate) unsafe fn newcomer(&self) -> Option<&mut Newcomer<'static>> {
        // SAFETY: as for the bytes.
        unsafe { self.newcomer.get().as_mut() }
    }

    /// What is known of it.
    pub(crate) fn info(&self) -> Option<&StreamInfo> {
        // SAFETY: as above, and only read; no function keeps a changeable borrow beyond itself.
        unsafe { self.newcomer.get().as_ref() }.map(|newcomer| &*newcomer.info)
    }

    /// A text for the module that lies nowhere else.
    pub(crate) fn lend(&self, text: impl Into<Vec<u8>>) -> Buffer {
        self.share.lend(text)
    }

    /// How others reach this connection.
    pub(crate) fn inbox(&self) -> &Rc<Inbox<NewcomerHandle>> {
        self.share.inbox(&self.handle)
    }

    /// How many bytes the module wants to see.
    pub(crate) fn wants(&self) -> usize {
        let handle = ptr::from_ref(self).cast_mut().cast();
        // SAFETY: the function of a loaded module, as the interface says.
        self.place.config.entries.wants.map_or(0, |hook| unsafe { hook(handle, self.own()) })
    }

    fn tell_of(&self, event: Event, newcomer: &mut Newcomer<'_>) {
        let entries = &self.place.config.entries;
        self.share.tell_of(event, (entries.scheduled, entries.callout_done), |hook| self.enter(newcomer, hook));
    }
}

impl Drop for Introduced {
    fn drop(&mut self) {
        self.share.end(self.place.config.entries.destroy);
    }
}

/// A connection that the module made its part of.
pub(crate) struct Hosted(pub(crate) Box<Introduced>);

impl NewcomerSession for Hosted {
    fn on_accept(&mut self, newcomer: &mut Newcomer<'_>) -> Passage {
        let hook = self.0.place.config.entries.accept;
        // SAFETY: the function of a loaded module, as the interface says. So below.
        let answer = hook.map(|hook| self.0.enter(newcomer, |handle, own| unsafe { hook(handle, own) }));
        passage(&self.0.place.account, answer)
    }

    fn wants(&mut self, newcomer: &mut Newcomer<'_>) -> usize {
        self.0.enter(newcomer, |_, _| self.0.wants())
    }

    fn on_data(&mut self, newcomer: &mut Newcomer<'_>, data: &mut Vec<u8>) -> Passage {
        let (hook, length) = (self.0.place.config.entries.data, data.len());
        self.0.data.set(data);
        // SAFETY: as above.
        let answer = hook.map(|hook| self.0.enter(newcomer, |handle, own| unsafe { hook(handle, own, length) }));
        self.0.data.set(ptr::null_mut());
        passage(&self.0.place.account, answer)
    }

    fn on_asked(&mut self, newcomer: &mut Newcomer<'_>) {
        let session = &*self.0;
        while let Some(event) = session.share.next() {
            session.tell_of(event, newcomer);
        }
    }

    fn on_closed(&mut self, newcomer: &mut Newcomer<'_>) {
        if let Some(hook) = self.0.place.config.entries.close {
            // SAFETY: as above.
            self.0.enter(newcomer, |handle, own| unsafe { hook(handle, own) });
        }
    }
}
