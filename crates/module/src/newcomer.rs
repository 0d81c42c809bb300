//! One connection that no filter chain was chosen for yet, as a filter of its listener sees it.

use std::cell::RefCell;
use std::ffi::c_int;
use std::marker::PhantomData;
use std::net::{IpAddr, SocketAddr};

use crate::abi::{self, Buffer, StreamRef};
use crate::attribute::Attribute;
use crate::calls::{Answer, Call, CallId, CallRefused, Failure};
use crate::guard::{Kind, OwnedAnswer};
use crate::metrics::{Counter, Gauge, Histogram, MetricError, result};
use crate::network::Passage;
use crate::schedule::NewcomerScheduler;
use crate::setup::{ListenerSetup, Refusal};

/// A filter of listeners: it looks at a connection before a filter chain is chosen for it. A value is one configuration of it,
/// made when the proxy reads its own; workers share it.
pub trait ListenerFilter: Sized + Send + Sync + 'static {
    /// What one connection has.
    type State: 'static;

    /// Makes a configuration. Statistics are defined here and at no other time.
    ///
    /// # Errors
    /// Why it is refused: the log has it, and the proxy refuses its own configuration.
    fn new(setup: &mut ListenerSetup<'_>) -> Result<Self, Refusal>;

    /// A connection begins. `None` ends it.
    fn begin(&self) -> Option<Self::State>;

    /// It is this filter's turn. [`Passage::Continue`] is done; [`Passage::Stop`] waits for bytes, if it wants some, or for
    /// [`Newcomer::resume`].
    fn on_accept(&self, state: &mut Self::State, newcomer: &mut Newcomer<'_>) -> Passage {
        let _ = (state, newcomer);
        Passage::Continue
    }

    /// How many bytes it wants to see at most; with 0 it is shown none.
    fn most(&self) -> usize {
        0
    }

    /// More came: [`Newcomer::data`].
    fn on_data(&self, state: &mut Self::State, newcomer: &mut Newcomer<'_>) -> Passage {
        let _ = (state, newcomer);
        Passage::Continue
    }

    /// The client left while the filter waited for more.
    fn on_close(&self, state: &mut Self::State, newcomer: &mut Newcomer<'_>) {
        let _ = (state, newcomer);
    }

    /// A [`NewcomerScheduler`] of the connection committed an event.
    fn on_scheduled(&self, state: &mut Self::State, newcomer: &mut Newcomer<'_>, event: u64) {
        let _ = (state, newcomer, event);
    }

    /// A call by [`Newcomer::call`] is over.
    fn on_call_done(
        &self,
        state: &mut Self::State,
        newcomer: &mut Newcomer<'_>,
        call: CallId,
        answer: Result<Answer<'_>, Failure>,
    ) {
        let _ = (state, newcomer, call, answer);
    }
}

/// One connection, for the time of a hook. It cannot leave its thread.
pub struct Newcomer<'h> {
    handle: StreamRef,
    /// What is to be done when the hook has returned.
    later: &'h RefCell<Vec<Later>>,
}

/// What a hook wants done when it has returned.
pub(crate) enum Later {
    Resume(bool),
    Close(String),
}

/// What came while a hook ran.
pub(crate) enum Event {
    Done(CallId, Result<OwnedAnswer, Failure>),
    Closed,
}

impl<'h> Newcomer<'h> {
    /// What came and was not taken yet: in the hook about it.
    pub fn data(&self) -> &[u8] {
        self.bytes(|out| {
            // SAFETY: the handle is that of a connection in a hook. So below.
            unsafe { abi::newcomer_data(self.handle, out) }
        })
        .unwrap_or_default()
    }

    /// Takes bytes out in front: nobody else sees them. `false` where there are none.
    pub fn drain(&mut self, count: usize) -> bool {
        // SAFETY: as above.
        count == 0 || unsafe { abi::newcomer_drain(self.handle, count) }
    }

    /// What the connection speaks for choosing its chain, such as `tls`.
    pub fn set_transport(&mut self, protocol: &str) {
        // SAFETY: as above; the text is there during the call. So below.
        unsafe { abi::set_newcomer_transport(self.handle, Buffer::of(protocol.as_bytes())) };
    }

    /// The name that the client asks for.
    pub fn set_server_name(&mut self, name: &str) {
        // SAFETY: as above.
        unsafe { abi::set_newcomer_server_name(self.handle, Buffer::of(name.as_bytes())) };
    }

    /// The protocols that the client speaks.
    pub fn set_protocols(&mut self, protocols: &[&str]) {
        let protocols: Vec<Buffer> = protocols.iter().map(|protocol| Buffer::of(protocol.as_bytes())).collect();
        // SAFETY: as above.
        unsafe { abi::set_newcomer_protocols(self.handle, protocols.as_ptr(), protocols.len()) };
    }

    /// What the connection speaks, if a filter said so.
    pub fn transport(&self) -> Option<&[u8]> {
        self.bytes(|out| {
            // SAFETY: as above.
            unsafe { abi::newcomer_transport(self.handle, out) }
        })
    }

    /// The name that the client asks for, if a filter knows.
    pub fn server_name(&self) -> Option<&[u8]> {
        self.bytes(|out| {
            // SAFETY: as above.
            unsafe { abi::newcomer_server_name(self.handle, out) }
        })
    }

    /// The client; `None` on a Unix socket. So for the others.
    pub fn remote_address(&self) -> Option<SocketAddr> {
        self.address(abi::newcomer_remote_address)
    }

    /// What the client connected to, or was meant to.
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.address(abi::newcomer_local_address)
    }

    /// Where the connection was meant to go before the system redirected it.
    pub fn original_destination(&self) -> Option<SocketAddr> {
        self.address(abi::newcomer_original_destination)
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

    /// Says where the client is.
    pub fn set_remote_address(&mut self, address: SocketAddr) -> bool {
        let text = address.ip().to_string();
        let (text, port) = (Buffer::of(text.as_bytes()), u32::from(address.port()));
        // SAFETY: as above.
        unsafe { abi::set_newcomer_remote_address(self.handle, text, port, address.is_ipv6()) }
    }

    /// Says where the connection was meant to go.
    pub fn restore_local_address(&mut self, address: SocketAddr) -> bool {
        let text = address.ip().to_string();
        let (text, port) = (Buffer::of(text.as_bytes()), u32::from(address.port()));
        // SAFETY: as above.
        unsafe { abi::restore_newcomer_local_address(self.handle, text, port, address.is_ipv6()) }
    }

    /// The filter whose turn it is is done; without `success` the connection ends.
    pub fn resume(&mut self, success: bool) {
        self.later(Later::Resume(success));
    }

    /// Ends the connection. The details reach logs as why.
    pub fn close(&mut self, details: impl Into<String>) {
        self.later(Later::Close(details.into()));
    }

    /// Sends bytes to the client, as many as the system takes at once: how many, `None` for none.
    pub fn send(&mut self, data: impl AsRef<[u8]>) -> Option<usize> {
        // SAFETY: as above.
        usize::try_from(unsafe { abi::newcomer_send(self.handle, Buffer::of(data.as_ref())) }).ok()
    }

    /// A text that is known of the connection.
    pub fn text(&self, attribute: Attribute) -> Option<&[u8]> {
        self.bytes(|out| {
            // SAFETY: as above.
            unsafe { abi::newcomer_string(self.handle, attribute as c_int, out) }
        })
    }

    /// Notes a text as dynamic metadata.
    pub fn set_metadata_text(&mut self, namespace: &str, key: &str, value: &str) {
        let (namespace, key) = (Buffer::of(namespace.as_bytes()), Buffer::of(key.as_bytes()));
        // SAFETY: as above.
        unsafe { abi::set_newcomer_metadata(self.handle, namespace, key, Buffer::of(value.as_bytes())) };
    }

    /// A text of the metadata; `None` where there is none, or something else.
    pub fn metadata_text(&self, namespace: &str, key: &str) -> Option<&[u8]> {
        let (namespace, key) = (Buffer::of(namespace.as_bytes()), Buffer::of(key.as_bytes()));
        self.bytes(|out| {
            // SAFETY: as above.
            unsafe { abi::newcomer_metadata(self.handle, namespace, key, out) }
        })
    }

    /// Sets an entry of the filter state. `false` where it cannot be set.
    pub fn set_filter_state(&mut self, key: &str, value: impl AsRef<[u8]>) -> bool {
        // SAFETY: as above.
        unsafe { abi::set_newcomer_state(self.handle, Buffer::of(key.as_bytes()), Buffer::of(value.as_ref())) }
    }

    /// A way for other threads to reach the connection.
    pub fn scheduler(&mut self) -> NewcomerScheduler {
        NewcomerScheduler::open(self.handle)
    }

    /// Sends a request to a cluster; its end comes as [`ListenerFilter::on_call_done`].
    ///
    /// # Errors
    /// It cannot be sent.
    pub fn call(&mut self, call: &Call) -> Result<CallId, CallRefused> {
        call.start(|id, cluster, headers, count, body, timeout| {
            // SAFETY: as above; everything else is there during the call.
            unsafe { abi::newcomer_callout(self.handle, id, cluster, headers, count, body, timeout) }
        })
    }

    /// Adds to a counter.
    ///
    /// # Errors
    /// It is not of this configuration. So below.
    pub fn count(&mut self, counter: Counter, by: u64) -> Result<(), MetricError> {
        // SAFETY: as above. So below.
        result(unsafe { abi::newcomer_increment_counter(self.handle, counter.0, by) })
    }

    /// Sets a gauge.
    ///
    /// # Errors
    /// As for [`Newcomer::count`].
    pub fn set(&mut self, gauge: Gauge, to: u64) -> Result<(), MetricError> {
        // SAFETY: as above.
        result(unsafe { abi::newcomer_set_gauge(self.handle, gauge.0, to) })
    }

    /// Adds a value to a histogram.
    ///
    /// # Errors
    /// As for [`Newcomer::count`].
    pub fn record(&mut self, histogram: Histogram, value: u64) -> Result<(), MetricError> {
        // SAFETY: as above.
        result(unsafe { abi::newcomer_record_histogram(self.handle, histogram.0, value) })
    }

    fn bytes(&self, get: impl FnOnce(*mut Buffer) -> bool) -> Option<&[u8]> {
        let mut value = Buffer::NOTHING;
        // SAFETY: the proxy's bytes are there until the hook ends or the connection is changed.
        get(&raw mut value).then(|| unsafe { value.bytes() })
    }

    fn later(&self, later: Later) {
        self.later.borrow_mut().push(later);
    }
}

/// Filters of the type `F`.
pub(crate) struct OfListener<F>(PhantomData<F>);

impl<F: ListenerFilter> Kind for OfListener<F> {
    type Filter = F;
    type State = F::State;
    type Later = Later;
    type Event = Event;
    type Lent<'l> = Newcomer<'l>;

    fn lend(handle: StreamRef, later: &RefCell<Vec<Later>>) -> Newcomer<'_> {
        Newcomer { handle, later }
    }

    fn is_end(later: &Later) -> bool {
        matches!(later, Later::Close(_) | Later::Resume(false))
    }

    fn perform(later: Later, newcomer: StreamRef) {
        // SAFETY: the handle is that of a connection in a hook; the text is there during the call.
        unsafe {
            match later {
                Later::Resume(success) => abi::continue_newcomer(newcomer, success),
                Later::Close(details) => abi::close_newcomer(newcomer, Buffer::of(details.as_bytes())),
            }
        }
    }

    fn after_panic() -> Later {
        Later::Close("module_panicked".to_owned())
    }

    fn tell(event: Event, filter: &F, state: &mut F::State, newcomer: &mut Newcomer<'_>) {
        match event {
            Event::Closed => filter.on_close(state, newcomer),
            Event::Done(call, Ok(answer)) => {
                answer.lend(|answer| filter.on_call_done(state, newcomer, call, Ok(answer)));
            }
            Event::Done(call, Err(failure)) => filter.on_call_done(state, newcomer, call, Err(failure)),
        }
    }
}
