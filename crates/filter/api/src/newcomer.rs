//! Filters of listeners: they look at a new connection before a filter chain is chosen for it, and say what it is known by.
//!
//! ```text
//! accepted ──> first filter ──> … ──> last ──> a filter chain is chosen
//! ```
//!
//! Each is asked when those in front of it are done. One that is not done waits: for more bytes, as many as it wants to see,
//! or until it says that the connection goes on.

use std::cell::Cell;
use std::fmt;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;

use crate::{Host, Passage, Place, StreamInfo, WatchedFile, plugin};

/// Such a filter with its configuration. Lives as long as the snapshot; shared by the workers.
pub trait NewcomerFactory: Send + Sync {
    /// The filter on one worker. Called there, when the configuration comes into force: it must be quick.
    fn newcomer_filter(&self, place: &Place<'_>) -> Rc<dyn NewcomerFilter>;

    /// Files that were read for it.
    fn files(&self) -> &[WatchedFile] {
        &[]
    }

    /// Whether building it again would give the same; its files aside.
    fn is_current(&self) -> bool {
        true
    }

    /// What the admin tells about it, when it is a plugin.
    fn plugin(&self) -> Option<&plugin::Facts> {
        None
    }
}

/// On one worker.
pub trait NewcomerFilter {
    /// What looks at this connection; `None` ends it.
    fn begin(&self, newcomer: &mut Newcomer<'_>) -> Option<Box<dyn NewcomerSession>>;
}

/// One filter's part of one connection. It goes when a filter chain is chosen.
pub trait NewcomerSession {
    /// It is this filter's turn. Done with [`Passage::Continue`].
    fn on_accept(&mut self, newcomer: &mut Newcomer<'_>) -> Passage;

    /// How many bytes it wants to see at most; for none it is not told of any.
    fn wants(&mut self, newcomer: &mut Newcomer<'_>) -> usize;

    /// More came: `data` is all that did and was not taken by a filter, up to what is wanted. What is taken out of it in front
    /// is nobody else's.
    fn on_data(&mut self, newcomer: &mut Newcomer<'_>, data: &mut Vec<u8>) -> Passage;

    /// It was asked for by [`NewcomerHandle::ask`].
    fn on_asked(&mut self, _: &mut Newcomer<'_>) {}

    /// The client left while the filter waited for more.
    fn on_closed(&mut self, _: &mut Newcomer<'_>) {}
}

/// A connection, as these filters see it.
pub struct Newcomer<'a> {
    /// With its addresses, which may be changed. The metadata and the filter state that are noted here reach logs and requests.
    pub info: &'a mut StreamInfo,
    pub known: &'a mut Known,
    /// The local address is not ours, but where the connection was meant to go.
    pub redirected: &'a mut bool,
    /// The address that the client connected to; `None` on a Unix socket.
    pub direct_local: Option<SocketAddr>,
    /// Another listener serves it, if one is where it was meant to go.
    pub hands_over: &'a mut bool,
    /// Of the system. It is open while a filter is called.
    pub socket: RawFd,
    /// Where the connection was meant to go before the system redirected it to us.
    pub original: &'a dyn Fn() -> Option<SocketAddr>,
    pub handle: &'a NewcomerHandle,
    pub host: &'a dyn Host,
}

/// What filter chains are chosen by, beside addresses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Known {
    /// `tls`, or empty.
    pub transport: String,
    /// Lower case.
    pub server_name: Option<String>,
    pub protocols: Vec<Vec<u8>>,
    pub ja3: Option<String>,
    pub ja4: Option<String>,
}

/// What a filter wants of its connection, now or later, on the same worker. It is done when the hook that runs has returned.
#[derive(Clone)]
pub struct NewcomerHandle {
    control: Rc<NewcomerControl>,
    place: usize,
}

/// What filters want of their connection; the worker's end of their handles.
#[derive(Default)]
pub struct NewcomerControl {
    continued: Cell<Option<bool>>,
    closed: Cell<bool>,
    /// Places of those that want to be called, a bit for each.
    asked: Cell<u64>,
    waker: Cell<Option<Waker>>,
}

/// Most such filters of one listener.
pub const MAX_NEWCOMER_FILTERS: usize = 64;

impl NewcomerHandle {
    /// For the worker: the handle of the filter at that place, counted from 0.
    pub fn new(control: &Rc<NewcomerControl>, place: usize) -> NewcomerHandle {
        NewcomerHandle { control: control.clone(), place }
    }

    /// The filter whose turn it is is done; without `success` the connection ends.
    pub fn resume(&self, success: bool) {
        self.control.continued.set(Some(success));
        self.control.wake();
    }

    /// The connection ends.
    pub fn close(&self) {
        self.control.closed.set(true);
        self.control.wake();
    }

    /// The filter is called: see [`NewcomerSession::on_asked`].
    pub fn ask(&self) {
        let bit = 1 << self.place.min(MAX_NEWCOMER_FILTERS - 1);
        self.control.asked.set(self.control.asked.get() | bit);
        self.control.wake();
    }
}

impl NewcomerControl {
    /// What was said of the filter whose turn it is, which is then forgotten.
    pub fn take_continued(&self) -> Option<bool> {
        self.continued.take()
    }

    pub fn is_closed(&self) -> bool {
        self.closed.get()
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

    /// `waker` hears of the next wish.
    pub fn watch(&self, waker: &Waker) {
        self.waker.set(Some(waker.clone()));
    }

    fn wake(&self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

impl fmt::Debug for NewcomerControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewcomerControl").field("closed", &self.closed).finish_non_exhaustive()
    }
}

/// Builds a factory from a filter's name and its configuration.
pub type BuildNewcomer = fn(&str, &postrider_model::Value) -> Result<Arc<dyn NewcomerFactory>, crate::ConfigError>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wishes_are_heard_once() {
        let control = Rc::new(NewcomerControl::default());
        let handles: Vec<_> = (0..3).map(|place| NewcomerHandle::new(&control, place)).collect();
        assert_eq!((control.take_continued(), control.take_asked(), control.is_closed()), (None, None, false));
        handles[2].ask();
        handles[0].ask();
        assert_eq!([control.take_asked(), control.take_asked(), control.take_asked()], [Some(0), Some(2), None]);
        handles[1].resume(false);
        assert_eq!((control.take_continued(), control.take_continued()), (Some(false), None));
        handles[1].close();
        assert!(control.is_closed());
    }
}
