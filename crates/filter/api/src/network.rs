//! Filters of a connection's bytes: they see both directions, may change them, hold them back, and end the connection.
//!
//! ```text
//! client ── received ──> first filter ──> … ──> last ──> who serves the connection
//!        <── sent ────── first filter <── … <── last <──
//! ```
//!
//! What a filter stops stays in front of all of them, and is shown again, from the first one on, with what comes next; or
//! goes on behind the filter that stopped it, when that one says so.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;

use crate::{Host, Place, StreamInfo, WatchedFile, plugin};

/// Such a filter with its configuration. Lives as long as the snapshot; shared by the workers.
pub trait NetworkFactory: Send + Sync {
    /// The filter on one worker. Called there, when the configuration comes into force: it must be quick.
    fn network_filter(&self, place: &Place<'_>) -> Rc<dyn NetworkFilter>;

    /// Files that were read for it.
    fn files(&self) -> &[WatchedFile] {
        &[]
    }

    /// Whether building it now would give the same, as far as that depends on more than its configuration and its files.
    fn is_current(&self) -> bool {
        true
    }

    /// What the admin tells about it, when it is a plugin.
    fn plugin(&self) -> Option<&plugin::Facts> {
        None
    }
}

/// On one worker.
pub trait NetworkFilter {
    /// What looks at this connection; `None` when nobody needs to.
    fn begin(&self, connection: &mut Connection<'_>) -> Option<Box<dyn NetworkSession>>;
}

/// One filter's part of one connection.
pub trait NetworkSession {
    /// The connection is new. While this says [`Passage::Stop`], the filters behind do not know about it; what comes then is
    /// shown to this one first.
    fn on_connection(&mut self, _: &mut Connection<'_>) -> Passage {
        Passage::Continue
    }

    /// `data` came from the client and was not let through yet; with `end` nothing follows.
    fn on_received(&mut self, _: &mut Connection<'_>, _data: &mut Vec<u8>, _end: bool) -> Passage {
        Passage::Continue
    }

    /// The same for what goes to the client. What is stopped here waits for more of it: nothing else lets it go on.
    fn on_sent(&mut self, _: &mut Connection<'_>, _data: &mut Vec<u8>, _end: bool) -> Passage {
        Passage::Continue
    }

    /// It was asked for by [`ConnectionHandle::ask`]: what is held of both directions, which is in front of all filters.
    fn on_asked(&mut self, _: &mut Connection<'_>, _received: &mut Vec<u8>, _sent: &mut Vec<u8>) {}

    /// More waits for the client to take it than the connection allows (`much`), or half of that again.
    fn on_congested(&mut self, _: &mut Connection<'_>, _much: bool) {}

    /// It is over; the last call.
    fn on_closed(&mut self, _: &mut Connection<'_>, _by: ClosedBy) {}
}

/// Whether data goes on behind a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Passage {
    Continue,
    Stop,
}

/// Which side ended a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClosedBy {
    Proxy,
    Client,
}

/// A connection, as its filters see it.
pub struct Connection<'a> {
    /// With the bytes so far, and the upstream once there is one. What is noted here reaches logs; requests of the connection
    /// know what was noted when it began.
    pub info: &'a mut StreamInfo,
    /// What the client asked for, in lower case.
    pub server_name: Option<&'a str>,
    /// Of this filter.
    pub handle: &'a ConnectionHandle,
    pub host: &'a dyn Host,
}

/// What a filter wants of its connection, now or later, on the same worker. It is done when the hook that runs has returned.
#[derive(Clone)]
pub struct ConnectionHandle {
    control: Rc<ConnectionControl>,
    place: usize,
}

/// What filters want of their connection; the worker's end of their handles.
#[derive(Default)]
pub struct ConnectionControl {
    /// Places of filters behind which what was stopped goes on, a bit for each.
    continued: Cell<u64>,
    /// Those that want to be called.
    asked: Cell<u64>,
    wishes: RefCell<Vec<Wish>>,
    /// Those that keep it from ending in order.
    keeping: Cell<u64>,
    /// How often reading was stopped without being begun again.
    stopped: Cell<u32>,
    /// The client may end its side and still hear ours.
    pub half_closes: Cell<bool>,
    /// Bytes that may be held in one direction; 0 is any number.
    pub limit: Cell<usize>,
    /// More than that waits for the client.
    pub congested: Cell<bool>,
    /// What is held of what was received, and of what is to be sent; not while a hook is shown it.
    pub received: RefCell<Vec<u8>>,
    pub sent: RefCell<Vec<u8>>,
    waker: Cell<Option<Waker>>,
}

/// Done in the order in which filters had them.
#[derive(Debug)]
pub enum Wish {
    /// These bytes go to the client, through the filters in front of that place, the last of them first; with `end` nothing
    /// follows.
    Send {
        below: usize,
        data: Vec<u8>,
        end: bool,
    },
    /// These go to the filters from that place on, and to who serves the connection.
    Receive {
        from: usize,
        data: Vec<u8>,
        end: bool,
    },
    End(Ending),
    /// It ends, flushed, when no filter keeps it any more. Until then nothing is read, and only what filters send behind
    /// themselves goes to the client.
    Leave,
}

/// How a connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// When the client took what was let through to it.
    Flushed,
    /// Behind what the client takes of that at once.
    AtOnce,
    /// Without the rest of that.
    Dropped,
    /// The same by a reset.
    Reset,
}

/// What became of the wish to read, or not to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reading {
    /// Others want it stopped as well, or nobody did.
    Same,
    Begun,
    Stopped,
}

impl ConnectionHandle {
    /// For the worker: the handle of the filter at that place, counted from 0.
    pub fn new(control: &Rc<ConnectionControl>, place: usize) -> ConnectionHandle {
        ConnectionHandle { control: control.clone(), place }
    }

    /// What this filter stopped of what was received goes on.
    pub fn resume(&self) {
        let control = &self.control;
        control.continued.set(control.continued.get() | self.bit());
        control.wake();
    }

    /// The filter is called with what is held: see [`NetworkSession::on_asked`].
    pub fn ask(&self) {
        let control = &self.control;
        control.asked.set(control.asked.get() | self.bit());
        control.wake();
    }

    fn bit(&self) -> u64 {
        1 << self.place.min(MAX_NETWORK_FILTERS - 1)
    }

    /// The connection ends; what was let through to the client is still sent.
    pub fn close(&self) {
        self.end(Ending::Flushed);
    }

    pub fn end(&self, ending: Ending) {
        let waits = ending == Ending::Flushed && self.control.is_kept();
        self.control.wish(if waits { Wish::Leave } else { Wish::End(ending) });
    }

    /// Whether this filter keeps the connection from ending in order: flushed, or because both sides said that nothing follows.
    pub fn keep(&self, keeps: bool) {
        let control = &self.control;
        let others = control.keeping.get() & !self.bit();
        control.keeping.set(if keeps { others | self.bit() } else { others });
        control.wake();
    }

    /// Bytes of the filter's own go to the client, through all filters. What one of them stops is dropped.
    pub fn send(&self, data: Vec<u8>, end: bool) {
        self.control.wish(Wish::Send { below: MAX_NETWORK_FILTERS, data, end });
    }

    /// The same through those only that see what is sent after this one.
    pub fn send_behind(&self, data: Vec<u8>, end: bool) {
        self.control.wish(Wish::Send { below: self.place, data, end });
    }

    /// Bytes go on behind this filter as if they were received.
    pub fn receive_behind(&self, data: Vec<u8>, end: bool) {
        self.control.wish(Wish::Receive { from: self.place + 1, data, end });
    }

    /// Nothing is read from the client until it is to be read as often as it was not to be.
    pub fn read(&self, reads: bool) -> Reading {
        let stopped = self.control.stopped.get();
        let now = if reads { stopped.saturating_sub(1) } else { stopped.saturating_add(1) };
        self.control.stopped.set(now);
        self.control.wake();
        match (stopped, now) {
            (0, 1) => Reading::Stopped,
            (1, 0) => Reading::Begun,
            _ => Reading::Same,
        }
    }

    pub fn control(&self) -> &ConnectionControl {
        &self.control
    }
}

/// Most such filters of one chain.
pub const MAX_NETWORK_FILTERS: usize = 64;

impl ConnectionControl {
    /// The last filter that lets something go on, which is then forgotten.
    pub fn take_continued(&self) -> Option<usize> {
        let places = self.continued.replace(0);
        places.checked_ilog2().map(|place| place as usize)
    }

    /// The first filter that wants to be called, which is then forgotten.
    pub fn take_asked(&self) -> Option<usize> {
        let places = self.asked.get();
        if places == 0 {
            return None;
        }
        self.asked.set(places & (places - 1));
        Some(places.trailing_zeros() as usize)
    }

    #[inline]
    pub fn has_wishes(&self) -> bool {
        !self.wishes.borrow().is_empty()
    }

    /// All of them, in the order in which they were had.
    pub fn take_wishes(&self) -> Vec<Wish> {
        self.wishes.take()
    }

    pub fn reads(&self) -> bool {
        self.stopped.get() == 0
    }

    /// Some filter keeps it from ending in order.
    pub fn is_kept(&self) -> bool {
        self.keeping.get() != 0
    }

    /// `waker` hears of the next wish.
    pub fn watch(&self, waker: &Waker) {
        let known = self.waker.take().filter(|known| known.will_wake(waker));
        self.waker.set(Some(known.unwrap_or_else(|| waker.clone())));
    }

    fn wish(&self, wish: Wish) {
        self.wishes.borrow_mut().push(wish);
        self.wake();
    }

    fn wake(&self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

impl fmt::Debug for ConnectionControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectionControl").field("wishes", &self.wishes).finish_non_exhaustive()
    }
}

/// Builds a factory from a filter's name in its chain and its configuration.
pub type BuildNetwork = fn(&str, &postrider_model::Value) -> Result<Arc<dyn NetworkFactory>, crate::ConfigError>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_filter_that_lets_go_on_counts_once() {
        let control = Rc::new(ConnectionControl::default());
        let handles: Vec<_> = (0..3).map(|place| ConnectionHandle::new(&control, place)).collect();
        assert_eq!(control.take_continued(), None);
        handles[0].resume();
        handles[1].clone().resume();
        assert_eq!((control.take_continued(), control.take_continued()), (Some(1), None));
    }

    #[test]
    fn wishes_are_kept_in_their_order_and_those_who_ask_in_that_of_the_chain() {
        let control = Rc::new(ConnectionControl::default());
        let handles: Vec<_> = (0..3).map(|place| ConnectionHandle::new(&control, place)).collect();
        handles[1].receive_behind(b"on".to_vec(), false);
        handles[2].close();
        assert!(matches!(control.take_wishes()[..], [Wish::Receive { from: 2, .. }, Wish::End(Ending::Flushed)]));
        assert!(!control.has_wishes());
        handles[2].ask();
        handles[0].ask();
        assert_eq!([control.take_asked(), control.take_asked(), control.take_asked()], [Some(0), Some(2), None]);
    }

    #[test]
    fn a_connection_that_is_kept_leaves_before_it_ends() {
        let control = Rc::new(ConnectionControl::default());
        let handles: Vec<_> = (0..2).map(|place| ConnectionHandle::new(&control, place)).collect();
        handles.iter().for_each(|handle| handle.keep(true));
        handles[0].keep(false);
        handles[0].close();
        handles[0].end(Ending::AtOnce);
        assert!(matches!(control.take_wishes()[..], [Wish::Leave, Wish::End(Ending::AtOnce)]));
        handles[1].keep(false);
        handles[0].close();
        assert!(matches!(control.take_wishes()[..], [Wish::End(Ending::Flushed)]));
    }

    #[test]
    fn reading_goes_on_when_it_was_begun_as_often_as_it_was_stopped() {
        let control = Rc::new(ConnectionControl::default());
        let handle = ConnectionHandle::new(&control, 0);
        let answers = [false, false, true, true, true].map(|reads| handle.read(reads));
        assert_eq!(answers, [Reading::Stopped, Reading::Same, Reading::Same, Reading::Begun, Reading::Same]);
        assert!(control.reads());
    }
}
