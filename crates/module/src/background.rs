//! What a configuration does by itself, outside any stream.

use std::marker::PhantomData;

use crate::abi::{self, ConfigRef};
use crate::calls::{Call, CallId, CallRefused};
use crate::schedule::BackgroundScheduler;

/// The proxy, for a configuration.
pub struct Background<'a> {
    handle: ConfigRef,
    _call: PhantomData<&'a mut ()>,
}

impl Background<'_> {
    pub(crate) fn new<'a>(handle: ConfigRef) -> Background<'a> {
        Background { handle, _call: PhantomData }
    }

    /// Sends a request to a cluster; its end comes as
    /// [`HttpFilter::on_background_call_done`](crate::HttpFilter::on_background_call_done).
    ///
    /// # Errors
    /// It cannot be sent.
    pub fn call(&self, call: &Call) -> Result<CallId, CallRefused> {
        call.start(|id, cluster, headers, count, body, timeout| {
            // SAFETY: the handle is that of a configuration which is there, and everything else is during the call.
            unsafe { abi::config_http_callout(self.handle, id, cluster, headers, count, body, timeout) }
        })
    }

    /// Another way to reach the configuration.
    pub fn scheduler(&self) -> BackgroundScheduler {
        BackgroundScheduler::open(self.handle)
    }
}
