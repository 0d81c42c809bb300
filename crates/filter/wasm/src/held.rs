//! What modules have their streams hold: fields and what they note lie in the stream, not in the machine, but they count for the
//! memory that the machine may have.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use postrider_model::Value;

use crate::data::{Data, Parts};
use crate::edits::Edit;
use crate::properties;

/// Bytes that a module may write for a stream before it is looked at what they have come to.
const UNSEEN: usize = 64 << 10;

/// What a module wrote for one stream or connection.
#[derive(Default)]
pub(crate) struct Held {
    /// Bytes since the last look. Most modules never come to one.
    written: usize,
    /// What the last look found.
    counted: Option<Charge>,
}

/// So many bytes count for a machine as long as this lives.
pub(crate) struct Charge {
    all: Arc<AtomicUsize>,
    bytes: usize,
}

impl Charge {
    pub(crate) fn new(all: &Arc<AtomicUsize>, bytes: usize) -> Charge {
        all.fetch_add(bytes, Relaxed);
        Charge { all: all.clone(), bytes }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.all.fetch_sub(self.bytes, Relaxed);
    }
}

impl Held {
    /// Bytes until the next look: a share of what there is, so that all looks together take no longer than the writing.
    fn unseen(&self) -> usize {
        UNSEEN.max(self.counted.as_ref().map_or(0, |charge| charge.bytes / 4))
    }
}

impl Data {
    /// Whether the module may have its stream hold so many bytes more, which it then does.
    #[inline]
    pub(crate) fn may_hold(&mut self, bytes: usize) -> bool {
        let target = self.target();
        let Some(held) = self.contexts.held(target) else { return true };
        held.written = held.written.saturating_add(bytes);
        held.written < UNSEEN || self.fits(target, bytes)
    }

    /// Counts anew what the stream holds, with `bytes` that are about to come.
    #[cold]
    fn fits(&mut self, target: u32, bytes: usize) -> bool {
        let waiting = self.contexts.stream(target).map_or(0, |stream| stream.edits.iter().map(Edit::bytes).sum());
        let found = self.present.parts(&mut self.contexts, target, |parts| held_by(&parts)).unwrap_or(0);
        let Some(held) = self.contexts.held(target).filter(|held| held.written >= held.unseen()) else { return true };
        let before = held.counted.take().map_or(0, |charge| charge.bytes);
        let wanted = found.saturating_add(waiting).saturating_add(bytes);
        if let Some(charge) = self.limiter.charge(wanted) {
            *held = Held { written: 0, counted: Some(charge) };
            return true;
        }
        held.written = held.written.saturating_sub(bytes);
        held.counted = self.limiter.charge(before);
        false
    }
}

fn held_by(parts: &Parts<'_>) -> usize {
    let heads = [parts.request.map(|head| &head.fields), parts.response.map(|head| &head.fields)];
    let fields = heads.into_iter().flatten().chain([parts.request_trailers, parts.response_trailers]);
    let texts = parts.info.filter_state.iter().map(|(name, value)| {
        let length = match value {
            Value::String(text) => text.len(),
            _ => 0,
        };
        name.len() + length + size_of::<(String, Value)>()
    });
    fields.map(postrider_http::Fields::capacity).sum::<usize>()
        + texts.sum::<usize>()
        + properties::raw_bytes(parts.info)
}
