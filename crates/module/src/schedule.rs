//! The ways into a stream and a configuration from other threads.

use std::ffi::c_void;

use crate::abi::{self, ConfigRef, StreamRef};

/// Reaches a stream from any thread. It may outlive the stream: then nobody hears of its events.
pub struct Scheduler(*mut c_void);

/// Reaches a connection from any thread. It may outlive the connection.
pub struct ConnectionScheduler(*mut c_void);

/// Reaches a connection that no filter chain was chosen for yet from any thread. It may outlive that.
pub struct NewcomerScheduler(*mut c_void);

/// Reaches a configuration from any thread.
pub struct BackgroundScheduler(*mut c_void);

// SAFETY: the interface lets schedulers be used on any thread.
unsafe impl Send for Scheduler {}
// SAFETY: as above, on several at once.
unsafe impl Sync for Scheduler {}
// SAFETY: as above.
unsafe impl Send for ConnectionScheduler {}
// SAFETY: as above.
unsafe impl Sync for ConnectionScheduler {}
// SAFETY: as above.
unsafe impl Send for NewcomerScheduler {}
// SAFETY: as above.
unsafe impl Sync for NewcomerScheduler {}
// SAFETY: as above.
unsafe impl Send for BackgroundScheduler {}
// SAFETY: as above.
unsafe impl Sync for BackgroundScheduler {}

impl Scheduler {
    pub(crate) fn open(stream: StreamRef) -> Scheduler {
        // SAFETY: the handle is that of a stream in a hook.
        Scheduler(unsafe { abi::scheduler_new(stream) })
    }

    /// Has the stream's worker call [`HttpFilter::on_scheduled`](crate::HttpFilter::on_scheduled) with this number.
    pub fn commit(&self, event: u64) {
        // SAFETY: it was made by `open` and is not closed yet.
        unsafe { abi::scheduler_commit(self.0, event) };
    }
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        // SAFETY: it was made by `open`, and is closed once.
        unsafe { abi::scheduler_delete(self.0) };
    }
}

impl ConnectionScheduler {
    pub(crate) fn open(connection: StreamRef) -> ConnectionScheduler {
        // SAFETY: the handle is that of a connection in a hook.
        ConnectionScheduler(unsafe { abi::connection_scheduler_new(connection) })
    }

    /// Has the connection's worker call [`NetworkFilter::on_scheduled`](crate::NetworkFilter::on_scheduled) with this number.
    pub fn commit(&self, event: u64) {
        // SAFETY: it was made by `open` and is not closed yet.
        unsafe { abi::connection_scheduler_commit(self.0, event) };
    }
}

impl Drop for ConnectionScheduler {
    fn drop(&mut self) {
        // SAFETY: it was made by `open`, and is closed once.
        unsafe { abi::connection_scheduler_delete(self.0) };
    }
}

impl NewcomerScheduler {
    pub(crate) fn open(newcomer: StreamRef) -> NewcomerScheduler {
        // SAFETY: the handle is that of a connection in a hook.
        NewcomerScheduler(unsafe { abi::newcomer_scheduler_new(newcomer) })
    }

    /// Has the worker call [`ListenerFilter::on_scheduled`](crate::ListenerFilter::on_scheduled) with this number.
    pub fn commit(&self, event: u64) {
        // SAFETY: it was made by `open` and is not closed yet.
        unsafe { abi::newcomer_scheduler_commit(self.0, event) };
    }
}

impl Drop for NewcomerScheduler {
    fn drop(&mut self) {
        // SAFETY: it was made by `open`, and is closed once.
        unsafe { abi::newcomer_scheduler_delete(self.0) };
    }
}

impl BackgroundScheduler {
    pub(crate) fn open(config: ConfigRef) -> BackgroundScheduler {
        // SAFETY: the handle is that of a configuration which is there.
        BackgroundScheduler(unsafe { abi::config_scheduler_new(config) })
    }

    /// Has a worker call [`HttpFilter::on_background_event`](crate::HttpFilter::on_background_event) with this number.
    pub fn commit(&self, event: u64) {
        // SAFETY: it was made by `open` and is not closed yet.
        unsafe { abi::config_scheduler_commit(self.0, event) };
    }
}

impl Drop for BackgroundScheduler {
    fn drop(&mut self) {
        // SAFETY: it was made by `open`, and is closed once.
        unsafe { abi::config_scheduler_delete(self.0) };
    }
}
