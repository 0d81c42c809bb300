//! One connection, as a module sees it: the hooks of the bytes' contract on one side, the module's on the other.
//!
//! A module calls the proxy's functions from within its hooks, so everything here is shared and changes in place. The
//! connection and what is held of its bytes are there while a hook runs and at no other time.

use std::cell::{Cell, RefCell};
use std::ffi::c_int;
use std::ptr;
use std::rc::Rc;

use postrider_filter_api::{ClosedBy, Connection, ConnectionHandle, Ending, NetworkSession, Passage, StreamInfo};

use crate::abi::{Buffer, Own, StreamRef, event};
use crate::callbacks::options::Kept;
use crate::inbox::{Event, Inbox};
use crate::network::Watching;
use crate::share::{Share, passage};

/// A connection's state in the proxy. Its address is the module's handle, so it never moves.
pub(crate) struct Session {
    pub(crate) place: Rc<Watching>,
    pub(crate) handle: ConnectionHandle,
    pub(crate) share: Share<ConnectionHandle>,
    connection: Cell<*mut Connection<'static>>,
    received: Cell<*mut Vec<u8>>,
    sent: Cell<*mut Vec<u8>>,
    pub(crate) stage: Cell<Stage>,
    /// Those of its upstream's socket that the module set.
    pub(crate) options: RefCell<Vec<Kept>>,
}

/// Where a connection has come to, as Envoy numbers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    Open = 0,
    Closing = 1,
    Closed = 2,
}

/// Which bytes are held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flow {
    Received,
    Sent,
}

impl Session {
    /// Makes the module's state for a connection.
    pub(crate) fn new(place: &Rc<Watching>, connection: &mut Connection<'_>) -> Box<Session> {
        let session = Box::new(Session {
            place: place.clone(),
            handle: connection.handle.clone(),
            share: Share::default(),
            connection: Cell::new(ptr::null_mut()),
            received: Cell::new(ptr::null_mut()),
            sent: Cell::new(ptr::null_mut()),
            stage: Cell::new(Stage::Open),
            options: RefCell::default(),
        });
        let config = &place.config;
        if let Some(new) = config.entries.new {
            // SAFETY: the function of a loaded module, on a configuration that it made, as the interface says.
            session.share.own.set(session.enter(connection, |handle, _| unsafe { new(config.own(), handle) }));
        }
        session
    }

    pub(crate) fn own(&self) -> Own {
        self.share.own.get()
    }

    /// Calls into the module.
    fn enter<T>(&self, connection: &mut Connection<'_>, hook: impl FnOnce(StreamRef, Own) -> T) -> T {
        self.share.forget_texts();
        // The lifetime is put off: nobody reads the pointer when this function has ended.
        self.connection.set(ptr::from_mut(connection).cast());
        let answer = hook(ptr::from_ref(self).cast_mut().cast(), self.own());
        self.connection.set(ptr::null_mut());
        answer
    }

    /// The same with what is held of the bytes.
    fn enter_with<T>(
        &self,
        connection: &mut Connection<'_>,
        (flow, data): (Flow, &mut Vec<u8>),
        hook: impl FnOnce(StreamRef, Own) -> T,
    ) -> T {
        let held = self.held(flow);
        held.set(data);
        let answer = self.enter(connection, hook);
        held.set(ptr::null_mut());
        answer
    }

    fn held(&self, flow: Flow) -> &Cell<*mut Vec<u8>> {
        match flow {
            Flow::Received => &self.received,
            Flow::Sent => &self.sent,
        }
    }

    /// What is held of the bytes; `None` where that is not to be had.
    ///
    /// # Safety
    /// The answer of an earlier call is no longer used.
    #[allow(
        clippy::mut_from_ref,
        reason = "the bytes are not part of the session: they are lent for the time of a hook"
    )]
    pub(crate) unsafe fn data(&self, flow: Flow) -> Option<&mut Vec<u8>> {
        // SAFETY: set for the time of a hook only, which holds the one borrow of the bytes and does not use it meanwhile.
        unsafe { self.held(flow).get().as_mut() }
    }

    /// The connection; `None` outside hooks.
    ///
    /// # Safety
    /// As for [`Session::data`].
    #[allow(clippy::mut_from_ref, reason = "as for the bytes")]
    pub(crate) unsafe fn connection(&self) -> Option<&mut Connection<'static>> {
        // SAFETY: as for the bytes.
        unsafe { self.connection.get().as_mut() }
    }

    /// What is known of it.
    pub(crate) fn info(&self) -> Option<&StreamInfo> {
        // SAFETY: as above, and only read; no function keeps a changeable borrow beyond itself.
        unsafe { self.connection.get().as_ref() }.map(|connection| &*connection.info)
    }

    /// A text for the module that lies nowhere else.
    pub(crate) fn lend(&self, text: impl Into<Vec<u8>>) -> Buffer {
        self.share.lend(text)
    }

    /// How others reach this connection.
    pub(crate) fn inbox(&self) -> &Rc<Inbox<ConnectionHandle>> {
        self.share.inbox(&self.handle)
    }

    pub(crate) fn end(&self, ending: Ending) {
        if self.stage.get() == Stage::Open {
            self.stage.set(Stage::Closing);
        }
        self.handle.end(ending);
    }

    fn tell(&self, told: c_int, connection: &mut Connection<'_>) {
        if let Some(hook) = self.place.config.entries.event {
            // SAFETY: the function of a loaded module, as the interface says. So below.
            self.enter(connection, |handle, own| unsafe { hook(handle, own, told) });
        }
    }

    fn tell_of(&self, event: Event, connection: &mut Connection<'_>) {
        let entries = &self.place.config.entries;
        self.share.tell_of(event, (entries.scheduled, entries.callout_done), |hook| self.enter(connection, hook));
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.share.end(self.place.config.entries.destroy);
    }
}

/// A connection that the module made its part of.
pub(crate) struct Hosted(pub(crate) Box<Session>);

impl NetworkSession for Hosted {
    fn on_connection(&mut self, connection: &mut Connection<'_>) -> Passage {
        let hook = self.0.place.config.entries.new_connection;
        // SAFETY: the function of a loaded module, as the interface says. So below.
        let answer = hook.map(|hook| self.0.enter(connection, |handle, own| unsafe { hook(handle, own) }));
        if self.0.stage.get() == Stage::Open {
            self.0.tell(event::CONNECTED, connection);
        }
        passage(&self.0.place.account, answer)
    }

    fn on_received(&mut self, connection: &mut Connection<'_>, data: &mut Vec<u8>, end: bool) -> Passage {
        let (hook, length) = (self.0.place.config.entries.read, data.len());
        let answer = hook.map(|hook| {
            // SAFETY: as above.
            self.0
                .enter_with(connection, (Flow::Received, data), |handle, own| unsafe { hook(handle, own, length, end) })
        });
        passage(&self.0.place.account, answer)
    }

    fn on_sent(&mut self, connection: &mut Connection<'_>, data: &mut Vec<u8>, end: bool) -> Passage {
        let (hook, length) = (self.0.place.config.entries.write, data.len());
        let answer = hook.map(|hook| {
            // SAFETY: as above.
            self.0.enter_with(connection, (Flow::Sent, data), |handle, own| unsafe { hook(handle, own, length, end) })
        });
        passage(&self.0.place.account, answer)
    }

    fn on_asked(&mut self, connection: &mut Connection<'_>, received: &mut Vec<u8>, sent: &mut Vec<u8>) {
        let session = &*self.0;
        session.received.set(received);
        session.sent.set(sent);
        while let Some(event) = session.share.next() {
            session.tell_of(event, connection);
        }
        session.received.set(ptr::null_mut());
        session.sent.set(ptr::null_mut());
    }

    fn on_congested(&mut self, connection: &mut Connection<'_>, much: bool) {
        let entries = &self.0.place.config.entries;
        if let Some(hook) = if much { entries.above_watermark } else { entries.below_watermark } {
            // SAFETY: as above.
            self.0.enter(connection, |handle, own| unsafe { hook(handle, own) });
        }
    }

    fn on_closed(&mut self, connection: &mut Connection<'_>, by: ClosedBy) {
        self.0.stage.set(Stage::Closed);
        let told = match by {
            ClosedBy::Client => event::REMOTE_CLOSE,
            ClosedBy::Proxy => event::LOCAL_CLOSE,
        };
        self.0.tell(told, connection);
    }
}
