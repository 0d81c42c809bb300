//! Plain connections of filters' own to hosts of clusters.

use std::fmt;
use std::net::SocketAddr;
use std::rc::Rc;

/// A connection that a filter wants.
pub struct Dial {
    pub cluster: Rc<str>,
    /// Where it goes, in a cluster that has no endpoints of its own.
    pub meant: Option<SocketAddr>,
    /// Who uses it.
    pub user: Box<dyn DialUser>,
}

/// Hears of a connection, on the worker that it was asked for, and never from within a call of its handle.
pub trait DialUser {
    /// It is there.
    fn on_ready(&mut self, remote: &str);

    /// There will be none; the last call.
    fn on_failed(&mut self, why: DialFailure);

    /// `data` came; with `end` nothing follows, and what is sent is still taken.
    fn on_received(&mut self, data: &[u8], end: bool);

    /// It is over; the last call.
    fn on_closed(&mut self, by_peer: bool);
}

/// Why there is no connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DialFailure {
    /// There are as many as there may be.
    Overflow,
    /// The cluster has no host for it.
    NoHost,
    /// The host does not answer, or says no.
    Unreached,
    Timeout,
}

impl fmt::Debug for Dial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dial").field("cluster", &self.cluster).field("meant", &self.meant).finish_non_exhaustive()
    }
}
