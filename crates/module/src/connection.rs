//! One connection, as a filter of its bytes sees it.

use std::cell::RefCell;
use std::ffi::c_int;
use std::net::{IpAddr, SocketAddr};

use crate::abi::{self, Buffer, StreamRef};
use crate::attribute::Attribute;
use crate::calls::{Call, CallId, CallRefused};
use crate::metrics::{Counter, Gauge, Histogram, MetricError, result};
use crate::network::{Ending, Later};
use crate::schedule::ConnectionScheduler;

/// One connection, for the time of a hook. It cannot leave its thread.
pub struct Connection<'h> {
    handle: StreamRef,
    /// What is to be done when the hook has returned.
    later: &'h RefCell<Vec<Later>>,
}

/// What is held of a connection's bytes, in one direction.
pub struct Held<'c> {
    handle: &'c mut StreamRef,
    functions: &'static Functions,
}

/// The proxy's for one direction.
struct Functions {
    size: unsafe extern "C" fn(StreamRef) -> usize,
    count: unsafe extern "C" fn(StreamRef) -> usize,
    chunks: unsafe extern "C" fn(StreamRef, *mut Buffer) -> bool,
    drain: unsafe extern "C" fn(StreamRef, usize) -> bool,
    prepend: unsafe extern "C" fn(StreamRef, Buffer) -> bool,
    append: unsafe extern "C" fn(StreamRef, Buffer) -> bool,
}

static RECEIVED: Functions = Functions {
    size: abi::get_read_buffer_size,
    count: abi::get_read_buffer_chunks_size,
    chunks: abi::get_read_buffer_chunks,
    drain: abi::drain_read_buffer,
    prepend: abi::prepend_read_buffer,
    append: abi::append_read_buffer,
};

static SENT: Functions = Functions {
    size: abi::get_write_buffer_size,
    count: abi::get_write_buffer_chunks_size,
    chunks: abi::get_write_buffer_chunks,
    drain: abi::drain_write_buffer,
    prepend: abi::prepend_write_buffer,
    append: abi::append_write_buffer,
};

impl Held<'_> {
    /// How many bytes there are.
    pub fn len(&self) -> usize {
        // SAFETY: the handle is that of a connection in a hook. So below.
        unsafe { (self.functions.size)(*self.handle) }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The pieces of memory, where they lie.
    pub fn chunks(&self) -> Vec<&[u8]> {
        // SAFETY: as above.
        let count = unsafe { (self.functions.count)(*self.handle) };
        let mut chunks = vec![Buffer::NOTHING; count];
        // SAFETY: there is room for as many as there are.
        if count == 0 || !unsafe { (self.functions.chunks)(*self.handle, chunks.as_mut_ptr()) } {
            return Vec::new();
        }
        // SAFETY: the proxy's bytes stay as they are until they are changed, which this borrow keeps anybody from.
        chunks.into_iter().map(|chunk| unsafe { chunk.bytes() }).collect()
    }

    /// A copy of them all.
    pub fn to_vec(&self) -> Vec<u8> {
        self.chunks().concat()
    }

    /// Drops bytes from the front; all of them where there are no more. `false` where none are held.
    pub fn drain(&mut self, count: usize) -> bool {
        // SAFETY: as above.
        count == 0 || unsafe { (self.functions.drain)(*self.handle, count) }
    }

    /// Adds bytes in front.
    pub fn prepend(&mut self, data: impl AsRef<[u8]>) -> bool {
        let data = data.as_ref();
        // SAFETY: as above; the bytes are there during the call.
        data.is_empty() || unsafe { (self.functions.prepend)(*self.handle, Buffer::of(data)) }
    }

    /// Adds bytes at the end.
    pub fn append(&mut self, data: impl AsRef<[u8]>) -> bool {
        let data = data.as_ref();
        // SAFETY: as above.
        data.is_empty() || unsafe { (self.functions.append)(*self.handle, Buffer::of(data)) }
    }

    /// Puts other bytes in the place of all.
    pub fn replace(&mut self, data: impl AsRef<[u8]>) -> bool {
        let count = self.len();
        self.drain(count) && self.append(data)
    }
}

impl<'h> Connection<'h> {
    pub(crate) fn new(handle: StreamRef, later: &'h RefCell<Vec<Later>>) -> Connection<'h> {
        Connection { handle, later }
    }

    /// What came from the client and was not let through yet: in the hook about it, and in those of schedulers and calls.
    pub fn received(&mut self) -> Held<'_> {
        Held { handle: &mut self.handle, functions: &RECEIVED }
    }

    /// The same for what goes to the client.
    pub fn sent(&mut self) -> Held<'_> {
        Held { handle: &mut self.handle, functions: &SENT }
    }

    /// Sends bytes to the client, through all filters; with `end`, nothing follows.
    pub fn send(&mut self, data: impl Into<Vec<u8>>, end: bool) {
        self.later(Later::Send(data.into(), end));
    }

    /// Sends bytes to the client through those filters only that see what is sent after this one.
    pub fn send_behind(&mut self, data: impl Into<Vec<u8>>, end: bool) {
        self.later(Later::SendBehind(data.into(), end));
    }

    /// Gives bytes to the filters behind this one, as if they were received.
    pub fn receive_behind(&mut self, data: impl Into<Vec<u8>>, end: bool) {
        self.later(Later::ReceiveBehind(data.into(), end));
    }

    /// What this filter stopped of what was received goes on.
    pub fn resume(&mut self) {
        self.later(Later::Resume);
    }

    /// Ends the connection. The details reach logs as why.
    pub fn close(&mut self, ending: Ending, details: impl Into<String>) {
        self.later(Later::Close(ending, details.into()));
    }

    /// Keeps the connection from ending in order (flushed, or because both sides said that nothing follows), until it is called with
    /// false. Meanwhile nothing is read, and [`Connection::send_behind`] alone reaches the client. It does nothing unless the runtime
    /// key `envoy.reloadable_features.connection_close_through_filter_manager` is true.
    pub fn keep(&mut self, keeps: bool) {
        self.later(Later::Keep(keeps));
    }

    /// Reads no more from the client, or goes on; as often as the other.
    pub fn read(&mut self, reads: bool) {
        // SAFETY: as above.
        unsafe { abi::read_disable(self.handle, !reads) };
    }

    /// The client may end its side and still hear ours.
    pub fn set_half_closes(&mut self, half_closes: bool) {
        // SAFETY: as above.
        unsafe { abi::enable_half_close(self.handle, half_closes) };
    }

    /// Bytes that may be held in one direction.
    pub fn buffer_limit(&self) -> u32 {
        // SAFETY: as above.
        unsafe { abi::get_connection_buffer_limit(self.handle) }
    }

    /// Changes that.
    pub fn set_buffer_limit(&mut self, limit: u32) {
        // SAFETY: as above.
        unsafe { abi::set_connection_buffer_limits(self.handle, limit) };
    }

    /// A number that no other connection of the process has.
    pub fn id(&self) -> u64 {
        // SAFETY: as above.
        unsafe { abi::get_connection_id(self.handle) }
    }

    /// The client, as far as a PROXY protocol is trusted; `None` on a Unix socket. So for the others.
    pub fn remote_address(&self) -> Option<SocketAddr> {
        self.address(abi::get_connection_remote_address)
    }

    /// The other end itself.
    pub fn direct_remote_address(&self) -> Option<SocketAddr> {
        self.address(abi::get_connection_direct_remote_address)
    }

    /// What the client connected to.
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.address(abi::get_connection_local_address)
    }

    /// The host that the connection goes to, once there is one.
    pub fn upstream_address(&self) -> Option<SocketAddr> {
        self.address(abi::get_upstream_host_address)
    }

    fn address(&self, of: unsafe extern "C" fn(StreamRef, *mut Buffer, *mut u32) -> bool) -> Option<SocketAddr> {
        let (mut text, mut port) = (Buffer::NOTHING, 0);
        // SAFETY: as above; there is room for both.
        let found = unsafe { of(self.handle, &raw mut text, &raw mut port) };
        // SAFETY: the proxy's bytes are there until the hook ends.
        let text = found.then(|| unsafe { text.bytes() })?;
        let address: IpAddr = std::str::from_utf8(text).ok()?.parse().ok()?;
        Some(SocketAddr::new(address, u16::try_from(port).ok()?))
    }

    /// The connection speaks TLS.
    pub fn is_tls(&self) -> bool {
        // SAFETY: as above.
        unsafe { abi::is_ssl(self.handle) }
    }

    /// The name that the client asked for in TLS.
    pub fn server_name(&self) -> Option<&[u8]> {
        self.bytes(|out| {
            // SAFETY: as above.
            unsafe { abi::get_requested_server_name(self.handle, out) }
        })
    }

    /// A text that is known of the connection.
    pub fn text(&self, attribute: Attribute) -> Option<&[u8]> {
        self.bytes(|out| {
            // SAFETY: as above.
            unsafe { abi::get_connection_string(self.handle, attribute as c_int, out) }
        })
    }

    /// A number that is known of it.
    pub fn number(&self, attribute: Attribute) -> Option<u64> {
        let mut value = 0;
        // SAFETY: as above.
        unsafe { abi::get_connection_int(self.handle, attribute as c_int, &raw mut value) }.then_some(value)
    }

    /// Whether something is so.
    pub fn truth(&self, attribute: Attribute) -> Option<bool> {
        let mut value = false;
        // SAFETY: as above.
        unsafe { abi::get_connection_bool(self.handle, attribute as c_int, &raw mut value) }.then_some(value)
    }

    /// The number of the worker, from 0.
    pub fn worker(&self) -> u32 {
        // SAFETY: as above.
        unsafe { abi::get_connection_worker(self.handle) }
    }

    /// Notes a text as dynamic metadata.
    pub fn set_metadata_text(&mut self, namespace: &str, key: &str, value: &str) {
        let (namespace, key) = (Buffer::of(namespace.as_bytes()), Buffer::of(key.as_bytes()));
        // SAFETY: as above; the texts are there during the call. So below.
        unsafe { abi::set_connection_metadata(self.handle, namespace, key, Buffer::of(value.as_bytes())) };
    }

    /// A text of the metadata; `None` where there is none, or something else.
    pub fn metadata_text(&self, namespace: &str, key: &str) -> Option<&[u8]> {
        let (namespace, key) = (Buffer::of(namespace.as_bytes()), Buffer::of(key.as_bytes()));
        self.bytes(|out| {
            // SAFETY: as above.
            unsafe { abi::get_connection_metadata(self.handle, namespace, key, out) }
        })
    }

    /// Sets an entry of the filter state. `false` where it cannot be set.
    pub fn set_filter_state(&mut self, key: &str, value: impl AsRef<[u8]>) -> bool {
        // SAFETY: as above.
        unsafe { abi::set_connection_state(self.handle, Buffer::of(key.as_bytes()), Buffer::of(value.as_ref())) }
    }

    /// An entry of the filter state.
    pub fn filter_state(&self, key: &str) -> Option<&[u8]> {
        self.bytes(|out| {
            // SAFETY: as above.
            unsafe { abi::get_connection_state_bytes(self.handle, Buffer::of(key.as_bytes()), out) }
        })
    }

    /// A TCP proxy behind this filter takes this cluster, if it was not reached before.
    pub fn set_cluster(&mut self, cluster: &str) -> bool {
        const KEY: &str = "envoy.tcp_proxy.cluster";
        let (key, cluster) = (Buffer::of(KEY.as_bytes()), Buffer::of(cluster.as_bytes()));
        // SAFETY: as above.
        unsafe { abi::set_connection_state_typed(self.handle, key, cluster) }
    }

    fn bytes(&self, get: impl FnOnce(*mut Buffer) -> bool) -> Option<&[u8]> {
        let mut value = Buffer::NOTHING;
        // SAFETY: the proxy's bytes are there until the hook ends or the connection is changed.
        get(&raw mut value).then(|| unsafe { value.bytes() })
    }

    /// A way for other threads to reach the connection: its events come as
    /// [`NetworkFilter::on_scheduled`](crate::NetworkFilter::on_scheduled).
    pub fn scheduler(&mut self) -> ConnectionScheduler {
        ConnectionScheduler::open(self.handle)
    }

    /// Sends a request to a cluster; its end comes as
    /// [`NetworkFilter::on_call_done`](crate::NetworkFilter::on_call_done).
    ///
    /// # Errors
    /// It cannot be sent.
    pub fn call(&mut self, call: &Call) -> Result<CallId, CallRefused> {
        call.start(|id, cluster, headers, count, body, timeout| {
            // SAFETY: as above; everything else is there during the call.
            unsafe { abi::connection_callout(self.handle, id, cluster, headers, count, body, timeout) }
        })
    }

    /// Adds to a counter.
    ///
    /// # Errors
    /// It is not of this configuration. So below.
    pub fn count(&mut self, counter: Counter, by: u64) -> Result<(), MetricError> {
        // SAFETY: as above. So below.
        result(unsafe { abi::connection_increment_counter(self.handle, counter.0, by) })
    }

    /// Adds to a gauge.
    ///
    /// # Errors
    /// As for [`Connection::count`].
    pub fn increase(&mut self, gauge: Gauge, by: u64) -> Result<(), MetricError> {
        // SAFETY: as above.
        result(unsafe { abi::connection_increment_gauge(self.handle, gauge.0, by) })
    }

    /// Takes from a gauge.
    ///
    /// # Errors
    /// As for [`Connection::count`].
    pub fn decrease(&mut self, gauge: Gauge, by: u64) -> Result<(), MetricError> {
        // SAFETY: as above.
        result(unsafe { abi::connection_decrement_gauge(self.handle, gauge.0, by) })
    }

    /// Adds a value to a histogram.
    ///
    /// # Errors
    /// As for [`Connection::count`].
    pub fn record(&mut self, histogram: Histogram, value: u64) -> Result<(), MetricError> {
        // SAFETY: as above.
        result(unsafe { abi::connection_record_histogram(self.handle, histogram.0, value) })
    }

    fn later(&self, later: Later) {
        self.later.borrow_mut().push(later);
    }
}
