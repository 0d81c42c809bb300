//! One new connection, as a module sees it before a filter chain is chosen.
//!
//! A module calls the proxy's functions from within its hooks, so everything here is shared and changes in place. The
//! connection and what came of its bytes are there while a hook runs and at no other time.

use std::cell::{Cell, OnceCell, RefCell};
use std::ffi::c_int;
use std::ptr;
use std::rc::Rc;

use postrider_filter_api::{CallHandle, Newcomer, NewcomerHandle, NewcomerSession, Passage, StreamInfo};

use crate::abi::{Buffer, Own, StreamRef};
use crate::deliver::with_answer;
use crate::inbox::{Event, Inbox};
use crate::listener::Looking;

/// A connection's state in the proxy. Its address is the module's handle, so it never moves.
pub(crate) struct Introduced {
    pub(crate) place: Rc<Looking>,
    pub(crate) handle: NewcomerHandle,
    /// The module's state for the connection; null when it could not make one.
    own: Cell<Own>,
    newcomer: Cell<*mut Newcomer<'static>>,
    data: Cell<*mut Vec<u8>>,
    /// Texts that were made for the module, until its next hook.
    texts: RefCell<Vec<Box<[u8]>>>,
    inbox: OnceCell<Rc<Inbox<NewcomerHandle>>>,
    pub(crate) calls: RefCell<Vec<(u64, CallHandle)>>,
    pub(crate) last_call: Cell<u64>,
}

impl Introduced {
    /// Makes the module's state for a connection.
    pub(crate) fn new(place: &Rc<Looking>, newcomer: &mut Newcomer<'_>) -> Box<Introduced> {
        let session = Box::new(Introduced {
            place: place.clone(),
            handle: newcomer.handle.clone(),
            own: Cell::new(ptr::null()),
            newcomer: Cell::new(ptr::null_mut()),
            data: Cell::new(ptr::null_mut()),
            texts: RefCell::default(),
            inbox: OnceCell::new(),
            calls: RefCell::default(),
            last_call: Cell::new(0),
        });
        let config = &place.config;
        if let Some(new) = config.entries.new {
            // SAFETY: the function of a loaded module, on a configuration that it made, as the interface says.
            session.own.set(session.enter(newcomer, |handle, _| unsafe { new(config.own(), handle) }));
        }
        session
    }

    pub(crate) fn own(&self) -> Own {
        self.own.get()
    }

    /// Calls into the module.
    fn enter<T>(&self, newcomer: &mut Newcomer<'_>, hook: impl FnOnce(StreamRef, Own) -> T) -> T {
        self.texts.borrow_mut().clear();
        // The lifetime is put off: nobody reads the pointer when this function has ended.
        self.newcomer.set(ptr::from_mut(newcomer).cast());
        let answer = hook(ptr::from_ref(self).cast_mut().cast(), self.own.get());
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
        let text = text.into().into_boxed_slice();
        let lent = Buffer::of(&text);
        self.texts.borrow_mut().push(text);
        lent
    }

    /// How others reach this connection.
    pub(crate) fn inbox(&self) -> &Rc<Inbox<NewcomerHandle>> {
        self.inbox.get_or_init(|| Rc::new(Inbox::new(self.handle.clone())))
    }

    /// How many bytes the module wants to see.
    pub(crate) fn wants(&self) -> usize {
        let handle = ptr::from_ref(self).cast_mut().cast();
        // SAFETY: the function of a loaded module, as the interface says.
        self.place.config.entries.wants.map_or(0, |hook| unsafe { hook(handle, self.own()) })
    }

    fn tell_of(&self, event: Event, newcomer: &mut Newcomer<'_>) {
        let entries = &self.place.config.entries;
        match event {
            Event::Scheduled(id) => {
                if let Some(hook) = entries.scheduled {
                    // SAFETY: the function of a loaded module, as the interface says. So below.
                    self.enter(newcomer, |handle, own| unsafe { hook(handle, own, id) });
                }
            }
            Event::Call { id, outcome } => {
                self.calls.borrow_mut().retain(|(known, _)| *known != id);
                let Some(hook) = entries.callout_done else { return };
                with_answer(&outcome, |result, headers, body| {
                    let (headers, header_count) = (headers.as_ptr(), headers.len());
                    // SAFETY: as above; the answer is there for the time of the call.
                    self.enter(newcomer, |handle, own| unsafe {
                        hook(handle, own, id, result, headers, header_count, body.as_ptr(), body.len());
                    });
                });
            }
        }
    }
}

impl Drop for Introduced {
    fn drop(&mut self) {
        if let Some(inbox) = self.inbox.get() {
            inbox.close();
        }
        self.calls.get_mut().clear();
        let own = self.own.get();
        if let Some(destroy) = self.place.config.entries.destroy.filter(|_| !own.is_null()) {
            // SAFETY: the function of a loaded module, once, on what it made for this connection.
            unsafe { destroy(own) };
        }
    }
}

/// A connection that the module made its part of.
pub(crate) struct Hosted(pub(crate) Box<Introduced>);

impl Hosted {
    fn passage(&self, answer: Option<c_int>) -> Passage {
        self.0.place.account.called(None, None);
        if answer == Some(1) { Passage::Stop } else { Passage::Continue }
    }
}

impl NewcomerSession for Hosted {
    fn on_accept(&mut self, newcomer: &mut Newcomer<'_>) -> Passage {
        let hook = self.0.place.config.entries.accept;
        // SAFETY: the function of a loaded module, as the interface says. So below.
        let answer = hook.map(|hook| self.0.enter(newcomer, |handle, own| unsafe { hook(handle, own) }));
        self.passage(answer)
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
        self.passage(answer)
    }

    fn on_asked(&mut self, newcomer: &mut Newcomer<'_>) {
        let session = &*self.0;
        let Some(inbox) = session.inbox.get() else { return };
        while let Some(event) = inbox.next() {
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
