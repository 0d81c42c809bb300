//! The functions that libraries find in this process, under the names that Envoy's SDK calls them by.
//!
//! Each may be called from the worker's thread, within a call into Go, or from any of Go's threads at any time. None may
//! call into Go with a stream's lock held.

mod body;
mod bridge;
mod config;
mod fields;
mod flow;
mod network;
mod specifier;
mod stream;

use std::ffi::{c_int, c_void};
use std::sync::MutexGuard;

use crate::abi::{ProcessState, status};
use crate::bells::Side;
use crate::heads::Edit;
use crate::request::{Request, Shared};

/// How the SDK says that a field is added to others of its name.
const ADD: c_int = 1;

/// The address of a function, which the linker keeps for it.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct Address(*const c_void);

// SAFETY: it is never read through.
unsafe impl Sync for Address {}

macro_rules! table {
    ($($module:ident: $name:ident),* $(,)?) => {
        /// By their names in C.
        pub(crate) const NAMES: &[&str] = &[$(stringify!($name)),*];

        /// Keeps them in the executable, where nothing else calls them.
        #[used]
        pub(crate) static TABLE: [Address; NAMES.len()] = [$(Address($module::$name as *const c_void)),*];
    };
}

table! {
    flow: envoyGoFilterHttpContinue,
    flow: envoyGoFilterHttpSendLocalReply,
    flow: envoyGoFilterHttpSendPanicReply,
    flow: envoyGoFilterHttpAddData,
    flow: envoyGoFilterHttpInjectData,
    fields: envoyGoFilterHttpGetHeader,
    fields: envoyGoFilterHttpCopyHeaders,
    fields: envoyGoFilterHttpSetHeaderHelper,
    fields: envoyGoFilterHttpRemoveHeader,
    fields: envoyGoFilterHttpCopyTrailers,
    fields: envoyGoFilterHttpSetTrailer,
    fields: envoyGoFilterHttpRemoveTrailer,
    body: envoyGoFilterHttpGetBuffer,
    body: envoyGoFilterHttpDrainBuffer,
    body: envoyGoFilterHttpSetBufferHelper,
    stream: envoyGoFilterHttpSetUpstreamOverrideHost,
    stream: envoyGoFilterHttpClearRouteCache,
    stream: envoyGoFilterHttpGetStringValue,
    stream: envoyGoFilterHttpGetIntegerValue,
    stream: envoyGoFilterHttpGetDynamicMetadata,
    stream: envoyGoFilterHttpSetDynamicMetadata,
    stream: envoyGoFilterHttpSetStringFilterState,
    stream: envoyGoFilterHttpGetStringFilterState,
    stream: envoyGoFilterHttpGetStringProperty,
    stream: envoyGoFilterHttpGetStringSecret,
    stream: envoyGoFilterHttpSetDrainConnectionUponCompletion,
    stream: envoyGoFilterHttpFinalize,
    config: envoyGoFilterHttpDefineMetric,
    config: envoyGoFilterHttpIncrementMetric,
    config: envoyGoFilterHttpGetMetric,
    config: envoyGoFilterHttpRecordMetric,
    config: envoyGoConfigHttpFinalize,
    config: envoyGoFilterLog,
    config: envoyGoFilterLogLevel,
    network: envoyGoFilterDownstreamClose,
    network: envoyGoFilterDownstreamWrite,
    network: envoyGoFilterDownstreamFinalize,
    network: envoyGoFilterDownstreamInfo,
    network: envoyGoFilterUpstreamConnect,
    network: envoyGoFilterUpstreamConnEnableHalfClose,
    network: envoyGoFilterUpstreamWrite,
    network: envoyGoFilterUpstreamClose,
    network: envoyGoFilterUpstreamFinalize,
    network: envoyGoFilterUpstreamInfo,
    network: envoyGoFilterSetFilterState,
    network: envoyGoFilterGetFilterState,
    specifier: envoyGoClusterSpecifierGetNumHeadersAndByteSize,
    specifier: envoyGoClusterSpecifierGetHeader,
    specifier: envoyGoClusterSpecifierGetAllHeaders,
    specifier: envoyGoClusterSpecifierLogError,
    bridge: envoyGoHttpTcpBridgeCopyHeaders,
    bridge: envoyGoHttpTcpBridgeSetRespHeader,
    bridge: envoyGoHttpTcpBridgeRemoveRespHeader,
    bridge: envoyGoHttpTcpBridgeGetBuffer,
    bridge: envoyGoHttpTcpBridgeDrainBuffer,
    bridge: envoyGoHttpTcpBridgeSetBufferHelper,
    bridge: envoyGoHttpTcpBridgeGetStringValue,
    bridge: envoyGoHttpTcpBridgeSetSelfHalfCloseForUpstreamConn,
}

/// What the SDK says is to become of a field.
///
/// # Safety
/// Go code passes the texts with their lengths.
unsafe fn change(name: *const c_void, name_len: c_int, value: *const c_void, value_len: c_int, action: c_int) -> Edit {
    // SAFETY: as promised.
    let (name, value) = unsafe { (bytes(name, name_len).to_ascii_lowercase(), bytes(value, value_len).to_vec()) };
    if action == ADD { Edit::Add(name, value) } else { Edit::Set(name, value) }
}

/// Bytes of Go's, for the time of the call.
///
/// # Safety
/// Go code passes them with their length.
unsafe fn bytes<'c>(start: *const c_void, len: c_int) -> &'c [u8] {
    let len = usize::try_from(len).unwrap_or_default();
    if start.is_null() || len == 0 {
        return &[];
    }
    // SAFETY: as promised.
    unsafe { std::slice::from_raw_parts(start.cast(), len) }
}

/// # Safety
/// As for [`bytes`].
unsafe fn text(start: *const c_void, len: c_int) -> String {
    // SAFETY: as promised.
    String::from_utf8_lossy(unsafe { bytes(start, len) }).into_owned()
}

/// The stream of one of its two states, locked, while Go code has that message; or what else to answer.
///
/// # Safety
/// `state` is one that the library was given, of a stream that it has not finalized.
unsafe fn of_state<'c>(state: *mut c_void) -> Result<(&'c Request, MutexGuard<'c, Shared>, Side), c_int> {
    // SAFETY: the states are part of the stream's object, which lives until it is finalized.
    let (request, side) = unsafe {
        let state = &*state.cast::<ProcessState>();
        let side = if state.is_encoding == 0 { Side::Request } else { Side::Response };
        (&*state.request.cast::<Request>(), side)
    };
    let shared = request.lock();
    match () {
        () if shared.destroyed => Err(status::DESTROYED),
        () if !request.is_in_go(side) => Err(status::NOT_IN_GO),
        () => Ok((request, shared, side)),
    }
}

/// The same of the stream itself, from its first call into Go to its end, whoever has its messages: a goroutine may go on
/// when its message has.
///
/// # Safety
/// `request` is one that the library was given, and has not finalized.
unsafe fn of_request<'c>(request: *mut c_void) -> Result<(&'c Request, MutexGuard<'c, Shared>), c_int> {
    // SAFETY: it lives until it is finalized.
    let request = unsafe { &*request.cast::<Request>() };
    let shared = request.lock();
    if shared.destroyed { Err(status::DESTROYED) } else { Ok((request, shared)) }
}

/// What a function answers that goes on or says why not.
fn told(result: Result<c_int, c_int>) -> c_int {
    result.unwrap_or_else(|status| status)
}
