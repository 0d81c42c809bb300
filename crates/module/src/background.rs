//! What a configuration does by itself, outside any stream.

use std::marker::PhantomData;

use crate::abi::{self, Buffer, ConfigRef};
use crate::calls::{Call, CallId, CallRefused, lent};
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

    /// Sends a request whose answer comes in pieces: as `on_background_call_headers`, `on_background_call_body`,
    /// `on_background_call_trailers` and `on_background_call_end`. Without `end`, more of the request follows by
    /// [`Background::send_call_body`].
    ///
    /// # Errors
    /// It cannot be sent.
    pub fn open_call(&self, call: &Call, end: bool) -> Result<CallId, CallRefused> {
        call.start(|id, cluster, headers, count, body, timeout| {
            // SAFETY: as above. So below.
            unsafe { abi::config_start_http_stream(self.handle, id, cluster, headers, count, body, end, timeout) }
        })
    }

    /// Sends more of a request's body. `false` when the call is over, or far too much waits.
    pub fn send_call_body(&self, call: CallId, data: &[u8], end: bool) -> bool {
        // SAFETY: as above.
        unsafe { abi::config_stream_send_data(self.handle, call.0, Buffer::of(data), end) }
    }

    /// Ends a request with fields behind its body.
    pub fn send_call_trailers(&self, call: CallId, trailers: &[(&str, &[u8])]) -> bool {
        let fields = lent(trailers);
        // SAFETY: as above.
        unsafe { abi::config_stream_send_trailers(self.handle, call.0, fields.as_ptr(), fields.len()) }
    }

    /// Gives a call up that was opened by [`Background::open_call`].
    pub fn reset_call(&self, call: CallId) {
        // SAFETY: as above.
        unsafe { abi::config_reset_http_stream(self.handle, call.0) };
    }

    /// Another way to reach the configuration.
    pub fn scheduler(&self) -> BackgroundScheduler {
        BackgroundScheduler::open(self.handle)
    }
}
