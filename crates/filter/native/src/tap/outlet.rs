//! Where traces go: into files, or to whoever asked for them. Workers hand them over and never wait; what finds no room is
//! lost.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use postrider_grpc::Message;
use postrider_grpc::tap::TraceWrapper;

use super::files::Files;
use super::format::Format;

/// Bytes of traces that may wait for one reader.
pub const MAX_WAITING_BYTES: usize = 16 << 20;

#[derive(Debug)]
pub(super) enum Outlet {
    Files(Files),
    Live(Live),
}

impl Outlet {
    /// Hands a trace over; how many were lost with that. `is_first`: of those with this number.
    pub(super) fn submit(&self, number: u64, is_first: bool, trace: TraceWrapper) -> u64 {
        match self {
            Outlet::Files(files) => files.submit(number, is_first, trace),
            Outlet::Live(live) => live.submit(trace),
        }
    }
}

/// A trace on its way to whoever asked for it.
pub struct Traced {
    trace: TraceWrapper,
    format: Format,
    _weight: Weight,
}

impl Traced {
    /// As it is sent. Takes its time: not for workers.
    pub fn bytes(&self) -> Vec<u8> {
        self.format.write(&self.trace)
    }
}

impl fmt::Debug for Traced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Traced")
    }
}

/// Takes a trace on a worker, at once; `false` when there is no room for it.
pub type Deliver = Arc<dyn Fn(Traced) -> bool + Send + Sync>;

/// Whoever asked.
pub(super) struct Live {
    deliver: Deliver,
    format: Format,
    waiting: Waiting,
}

impl Live {
    pub(super) fn new(deliver: Deliver) -> Live {
        Live { deliver, format: Format::JsonBytes, waiting: Waiting::default() }
    }

    pub(super) fn in_format(self, format: Format) -> Live {
        Live { format, ..self }
    }

    fn submit(&self, trace: TraceWrapper) -> u64 {
        let Some(weight) = self.waiting.weigh(&trace) else { return 1 };
        let traced = Traced { trace, format: self.format, _weight: weight };
        u64::from(!(self.deliver)(traced))
    }
}

impl fmt::Debug for Live {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Live")
    }
}

/// How many bytes wait.
#[derive(Debug, Clone, Default)]
pub(super) struct Waiting(Arc<AtomicUsize>);

/// What one trace adds to those that wait, until it is dropped.
pub(super) struct Weight {
    bytes: usize,
    waiting: Waiting,
}

impl Waiting {
    /// `None` when there is no room for it.
    pub(super) fn weigh(&self, trace: &TraceWrapper) -> Option<Weight> {
        let weight = Weight { bytes: trace.encoded_len(), waiting: self.clone() };
        let before = self.0.fetch_add(weight.bytes, Relaxed);
        (before.saturating_add(weight.bytes) <= MAX_WAITING_BYTES).then_some(weight)
    }
}

impl Drop for Weight {
    fn drop(&mut self) {
        self.waiting.0.fetch_sub(self.bytes, Relaxed);
    }
}
