//! What scripts have their stream hold for them: heads, trailers and metadata lie in the stream, not in the machine, but
//! they count for the machine's budget of memory.

use postrider_filter_api::Stream;
use postrider_model::Value;

use super::Scratch;
use super::turn::Turn;
use crate::heap::Lent;

/// Bytes that a script may write before it is looked at what they have come to.
const UNSEEN: usize = 64 << 10;

/// What one script wrote into its stream.
#[derive(Default)]
pub(crate) struct Held {
    /// Bytes written since the last look. Most scripts never come to one.
    written: usize,
    /// What the last look found. Boxed: it is next to never there.
    counted: Option<Box<Lent>>,
}

impl Held {
    /// Whether something of it counts for the machine, as long as this lives.
    #[inline]
    pub(crate) fn is_counted(&self) -> bool {
        self.counted.is_some()
    }

    /// Bytes until the next look: a share of what there is, so that all looks together take no longer than the writing.
    fn unseen(&self) -> usize {
        UNSEEN.max(self.counted.as_ref().map_or(0, |lent| lent.bytes() / 4))
    }
}

impl Turn<'_, '_> {
    /// Whether the script may have its stream hold so many bytes more, which it then does.
    #[inline]
    pub(super) fn may_hold(&mut self, bytes: usize) -> bool {
        self.script.held.written = self.script.held.written.saturating_add(bytes);
        self.script.held.written < UNSEEN || self.is_within_budget(bytes)
    }

    /// Counts anew what the stream holds, with `bytes` that are about to come.
    #[cold]
    fn is_within_budget(&mut self, bytes: usize) -> bool {
        if self.script.held.written < self.script.held.unseen() {
            return true;
        }
        let (Some(stream), Some(machine)) = (&self.stream, self.plugin.known_machine().clone()) else { return true };
        let held = held_by(stream, self.scratch).saturating_add(bytes);
        let before = self.script.held.counted.take().map_or(0, |lent| lent.bytes());
        if let Some(lent) = machine.vm.lend(held) {
            self.script.held = Held { written: 0, counted: Some(Box::new(lent)) };
            return true;
        }
        self.script.held.written = self.script.held.written.saturating_sub(bytes);
        self.script.held.counted = machine.vm.lend(before).map(Box::new);
        false
    }
}

fn held_by(stream: &Stream<'_>, scratch: &Scratch) -> usize {
    let heads = [
        &stream.request.fields,
        &stream.response.fields,
        stream.request_trailers,
        stream.response_trailers,
        &scratch.call.head.fields,
    ];
    let reply = scratch.reply.iter().flat_map(|reply| &reply.headers).map(|(name, value)| name.len() + value.len());
    let values =
        stream.info.metadata.iter().chain(stream.info.filter_state.iter().map(|(name, value)| (&**name, value)));
    heads.map(postrider_http::Fields::capacity).iter().sum::<usize>()
        + reply.sum::<usize>()
        + values.map(|(name, value)| name.len() + bytes_of(value)).sum::<usize>()
}

fn bytes_of(value: &Value) -> usize {
    size_of::<Value>()
        + match value {
            Value::String(text) => text.len(),
            Value::List(items) => items.iter().map(bytes_of).sum(),
            Value::Map(entries) => {
                entries.iter().map(|(name, inner)| size_of::<String>() + name.len() + bytes_of(inner)).sum()
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Integer(_) => 0,
        }
}
