//! Filters of a connection's bytes: they see both directions, may change them, hold them back, and end the connection.
//!
//! ```text
//! client ── received ──> first filter ──> … ──> last ──> who serves the connection
//!        <── sent ────── first filter <── … <── last <──
//! ```
//!
//! What a filter stops stays in front of all of them, and is shown again, from the first one on, with what comes next; or
//! goes on behind the filter that stopped it, when that one says so.

use std::cell::Cell;
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

/// How a filter lets its connection go on, or ends it, at once or later, from the same worker.
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
    closed: Cell<bool>,
    waker: Cell<Option<Waker>>,
}

impl ConnectionHandle {
    /// For the worker: the handle of the filter at that place, counted from 0.
    pub fn new(control: &Rc<ConnectionControl>, place: usize) -> ConnectionHandle {
        ConnectionHandle { control: control.clone(), place }
    }

    /// What this filter stopped of what was received goes on.
    pub fn resume(&self) {
        let control = &self.control;
        control.continued.set(control.continued.get() | 1 << self.place.min(MAX_NETWORK_FILTERS - 1));
        control.wake();
    }

    /// The connection ends; what was let through to the client is still sent.
    pub fn close(&self) {
        self.control.closed.set(true);
        self.control.wake();
    }
}

/// Most such filters of one chain.
pub const MAX_NETWORK_FILTERS: usize = 64;

impl ConnectionControl {
    pub fn is_closed(&self) -> bool {
        self.closed.get()
    }

    /// The last filter that lets something go on, which is then forgotten.
    pub fn take_continued(&self) -> Option<usize> {
        let places = self.continued.replace(0);
        places.checked_ilog2().map(|place| place as usize)
    }

    /// `waker` hears of the next wish.
    pub fn watch(&self, waker: &Waker) {
        let known = self.waker.take().filter(|known| known.will_wake(waker));
        self.waker.set(Some(known.unwrap_or_else(|| waker.clone())));
    }

    fn wake(&self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

impl fmt::Debug for ConnectionControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectionControl").field("closed", &self.closed).finish_non_exhaustive()
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
        assert!(!control.is_closed());
        handles[2].close();
        assert!(control.is_closed());
    }
}
