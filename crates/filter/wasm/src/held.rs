//! What modules have their streams and connections hold: fields and what they note lie there, not in the machine, but they count for the
//! memory that the machine may have.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use postrider_filter_api::StreamInfo;
use postrider_model::Value;

use crate::data::{Data, Limiter, Parts};
use crate::edits::Edit;
use crate::properties;

/// Bytes that a module may write for a stream before it is looked at what they have come to.
const UNSEEN: usize = 64 << 10;

/// Most bytes that modules have one connection keep for its later requests, each of which gets a copy.
const MAX_LASTING: usize = 256 << 10;

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

    /// How much of it counts for the machine of that limiter.
    fn bytes_of(&self, limiter: &Limiter) -> usize {
        if limiter.counts(&self.all) { self.bytes } else { 0 }
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

/// What lasts with one connection, by name: each counts for the machine whose module wrote it last.
#[derive(Default)]
struct OfConnection(RefCell<Vec<(String, Charge)>>);

impl OfConnection {
    /// Whether so many bytes may take the place of what has that name.
    fn replace(&self, name: &str, bytes: usize, limiter: &Limiter) -> bool {
        /// What the connection keeps beside names and bytes.
        const EACH: usize = 128;
        let mut all = self.0.borrow_mut();
        let others: usize = all.iter().filter(|(known, _)| known != name).map(|(_, charge)| charge.bytes).sum();
        let wanted = bytes.saturating_add(name.len() * 2).saturating_add(EACH);
        let known = all.iter_mut().find(|(known, _)| known == name);
        let before = known.as_ref().map_or(0, |(_, charge)| charge.bytes_of(limiter));
        if others.saturating_add(wanted) > MAX_LASTING {
            return false;
        }
        let Some(charge) = limiter.exchange(before, wanted) else { return false };
        match known {
            Some((_, counted)) => *counted = charge,
            None => all.push((name.to_owned(), charge)),
        }
        true
    }
}

/// Whether a module may have the connection of a stream hold so many bytes by that name until it ends, which it then does.
pub(crate) fn may_last(info: &StreamInfo, name: &str, bytes: usize, limiter: &Limiter) -> bool {
    let noted = info.connection.as_ref();
    noted.is_none_or(|noted| noted.lasting.left::<OfConnection>().replace(name, bytes, limiter))
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
