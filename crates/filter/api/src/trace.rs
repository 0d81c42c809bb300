//! The trace that a stream is part of.

use std::rc::Rc;

use crate::StreamInfo;

/// What is known of it for filters and logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trace {
    pub reason: TraceReason,
    /// The trace, and our part of it; `None` where nobody is told of spans.
    pub ids: Option<SpanIds>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpanIds {
    pub trace: [u8; 16],
    pub span: [u8; 8],
}

/// Why a request is traced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TraceReason {
    /// It is not.
    None,
    /// It was drawn.
    Sampled,
    /// Somebody inside wants it.
    Forced,
    /// Its client wants it.
    Client,
}

impl StreamInfo {
    /// `None` where its listener traces nothing.
    pub fn trace(&self) -> Option<Trace> {
        // Of an exchange that was drawn anew the last one counts.
        self.shared.iter().rev().find_map(|shared| shared.downcast_ref::<Trace>()).copied()
    }

    /// Says of which trace the stream is part.
    pub fn set_trace(&mut self, trace: Trace) {
        self.shared.retain(|shared| !shared.is::<Trace>());
        self.shared.push(Rc::new(trace));
    }
}
