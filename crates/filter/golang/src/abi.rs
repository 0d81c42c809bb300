//! What Go code and its host share in memory: structures of Envoy's SDK (`api.h`), and the numbers in them.

use std::ffi::{c_char, c_int};
use std::sync::atomic::AtomicI32;

/// A stream, as Go code knows it; its host keeps more behind it.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct HttpRequest {
    pub(crate) plugin_name: *const c_char,
    pub(crate) plugin_name_len: u64,
    pub(crate) config_id: u64,
    pub(crate) worker_id: u32,
    pub(crate) is_processing_log: AtomicI32,
}

/// One direction of a stream.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct ProcessState {
    pub(crate) request: *mut HttpRequest,
    pub(crate) is_encoding: c_int,
    /// See [`Phase`].
    pub(crate) state: AtomicI32,
}

#[repr(C)]
#[derive(Debug)]
pub(crate) struct HttpConfig {
    pub(crate) plugin_name: u64,
    pub(crate) plugin_name_len: u64,
    pub(crate) config: u64,
    pub(crate) config_len: u64,
    pub(crate) is_route_config: c_int,
    pub(crate) concurrency: u32,
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct GoString {
    pub(crate) start: *const u8,
    pub(crate) len: isize,
}

impl GoString {
    /// One that Go code copies while the text is there.
    pub(crate) fn of(text: &str) -> GoString {
        GoString { start: text.as_ptr(), len: text.len().cast_signed() }
    }

    /// # Safety
    /// It is one of Go's, and is not used when the call that passed it is over.
    pub(crate) unsafe fn bytes<'c>(&self) -> &'c [u8] {
        match usize::try_from(self.len) {
            // SAFETY: as promised.
            Ok(len) if len > 0 => unsafe { std::slice::from_raw_parts(self.start, len) },
            _ => &[],
        }
    }
}

/// Where a direction of a stream has come to. Go code derives from it which of its methods is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum Phase {
    WaitingHeader = 0,
    ProcessingHeader = 1,
    WaitingData = 2,
    WaitingAllData = 3,
    ProcessingData = 4,
    WaitingTrailer = 5,
    ProcessingTrailer = 6,
    Done = 7,
}

impl Phase {
    pub(crate) fn of(number: i32) -> Phase {
        match number {
            0 => Phase::WaitingHeader,
            1 => Phase::ProcessingHeader,
            2 => Phase::WaitingData,
            3 => Phase::WaitingAllData,
            4 => Phase::ProcessingData,
            5 => Phase::WaitingTrailer,
            6 => Phase::ProcessingTrailer,
            _ => Phase::Done,
        }
    }

    /// Go code has the message.
    pub(crate) fn is_in_go(self) -> bool {
        matches!(self, Phase::ProcessingHeader | Phase::ProcessingData | Phase::ProcessingTrailer)
    }
}

/// What Go code answers to an entry call, or says in `Continue`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// A goroutine goes on with it.
    Running,
    /// It was answered.
    Replied,
    Continue,
    StopAndBuffer,
    StopAndBufferWatermark,
    StopNoBuffer,
    Unknown(u64),
}

impl Verdict {
    pub(crate) fn number(self) -> u64 {
        match self {
            Verdict::Running => 0,
            Verdict::Replied => 1,
            Verdict::Continue => 2,
            Verdict::StopAndBuffer => 3,
            Verdict::StopAndBufferWatermark => 4,
            Verdict::StopNoBuffer => 5,
            Verdict::Unknown(other) => other,
        }
    }

    pub(crate) fn of(number: u64) -> Verdict {
        match number {
            0 => Verdict::Running,
            1 => Verdict::Replied,
            2 => Verdict::Continue,
            3 => Verdict::StopAndBuffer,
            4 => Verdict::StopAndBufferWatermark,
            5 => Verdict::StopNoBuffer,
            other => Verdict::Unknown(other),
        }
    }
}

/// What host functions answer.
pub(crate) mod status {
    use std::ffi::c_int;

    pub(crate) const OK: c_int = 0;
    /// Nobody knows it any more.
    pub(crate) const GONE: c_int = -1;
    /// The stream is over.
    pub(crate) const DESTROYED: c_int = -2;
    /// Go code has let the message go on already.
    pub(crate) const NOT_IN_GO: c_int = -3;
    pub(crate) const INVALID_PHASE: c_int = -4;
    pub(crate) const NOT_FOUND: c_int = -5;
    /// The answer comes later, with a call of the library's `envoyGoRequestSemaDec`.
    pub(crate) const YIELD: c_int = -6;
    pub(crate) const SERIALIZATION: c_int = -8;
    pub(crate) const INVALID_SCENE: c_int = -9;
    pub(crate) const INVALID_ADDRESS: c_int = -10;
}

/// Why a stream's object is destroyed.
pub(crate) const DESTROYED_NORMALLY: u64 = 0;
/// Go code had the stream in hand.
pub(crate) const DESTROYED_EARLY: u64 = 1;

/// The moments at which a stream is logged: its start, while it goes on, its end.
pub(crate) const LOG_AT_START: u64 = 4;
pub(crate) const LOG_MEANWHILE: u64 = 5;
pub(crate) const LOG_AT_END: u64 = 6;

const _: () = {
    assert!(size_of::<HttpRequest>() == 32);
    assert!(size_of::<ProcessState>() == 16);
    assert!(size_of::<HttpConfig>() == 40);
};
