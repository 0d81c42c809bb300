//! The contexts of one virtual machine by their numbers.
//!
//! Numbers only rise: a module that still remembers a stream which is over must not find another one under its number. They
//! are looked up by their low bits, in a table that is larger than the contexts are many.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use postrider_filter_api::{CallHandle, ConnectionHandle, LocalReply, Resumer, Stream};
use postrider_model::cel::Expression;

use crate::delivery::Delivery;
use crate::edits::Edit;
use crate::flow::Course;
use crate::grpc::Conversation;
use crate::held::Held;
use crate::kept::Kept;
use crate::program::Plugin;
use crate::properties::Rules;

pub(crate) struct Contexts {
    /// As many as a power of two.
    slots: Vec<Option<Context>>,
    live: usize,
    last: u32,
}

pub(crate) struct Context {
    pub(crate) id: u32,
    /// The root context of a stream or connection; 0 for a root context.
    pub(crate) parent: u32,
    pub(crate) kind: Kind,
}

pub(crate) enum Kind {
    Root(Box<Root>),
    Stream(Passing),
    Connection(Tied),
}

/// A connection behind the filter.
pub(crate) struct Tied {
    pub(crate) handle: ConnectionHandle,
    /// The module stopped what came from the client, or what goes there: it may be seen while it waits.
    pub(crate) stops_down: bool,
    pub(crate) stops_up: bool,
    /// What the module had it hold.
    pub(crate) held: Held,
}

/// What belongs to a plugin with one configuration.
pub(crate) struct Root {
    pub(crate) plugin: Arc<Plugin>,
    /// Milliseconds; 0 for none.
    pub(crate) tick: u32,
    pub(crate) timer: Option<CallHandle>,
    /// HTTP and unary gRPC calls under way.
    pub(crate) calls: Vec<Underway>,
    pub(crate) conversations: Vec<(u32, Conversation)>,
    /// Its `proxy_on_done` asked for more time.
    pub(crate) is_leaving: bool,
    /// What it declared of properties that its streams write.
    pub(crate) declared: Vec<(String, Rules)>,
    /// What `expr_create` read, by number.
    pub(crate) expressions: Vec<(u32, Rc<Expression>)>,
}

/// A call that is not over.
pub(crate) struct Underway {
    pub(crate) token: u32,
    pub(crate) handle: CallHandle,
    /// What is sent with it.
    pub(crate) bytes: usize,
}

/// A stream on its way through the filter.
#[derive(Default)]
pub(crate) struct Passing {
    /// The maps that the module may look at: a bit per type.
    pub(crate) maps: u8,
    pub(crate) request: Half,
    pub(crate) response: Half,
    pub(crate) reply: Option<Box<LocalReply>>,
    /// It was answered by this module: what the module says about the request does not count.
    pub(crate) replied: bool,
    pub(crate) closed: bool,
    /// What came for it while it waited.
    pub(crate) inbox: VecDeque<Delivery>,
    /// What is to be changed when the stream is at hand again.
    pub(crate) edits: Vec<Edit>,
    /// What others see of it while it waits.
    pub(crate) kept: Option<Box<Kept>>,
    /// What the module had it hold.
    pub(crate) held: Held,
}

/// One of a stream's two messages.
#[derive(Default)]
pub(crate) struct Half {
    /// The module stopped it.
    pub(crate) stopped: bool,
    /// The module let it go on since.
    pub(crate) continued: bool,
    /// Its head waits; whether nothing follows it.
    pub(crate) head_waits: Option<bool>,
    /// So many bytes at the beginning of what is held were shown to the module already, and are not shown again.
    pub(crate) hidden: usize,
    /// So many bytes were held when the module last saw some.
    pub(crate) kept: usize,
    /// The module may change the body: it is being shown a piece of it, or it gathers what is held.
    pub(crate) editable: bool,
    /// Wakes the stream while it waits.
    pub(crate) bell: Option<Resumer>,
    /// When this filter took the message over.
    pub(crate) course: Option<Box<Course>>,
}

impl Passing {
    /// Lets others look at the stream from now on if it waits; `anew` when what they saw of it may have changed.
    pub(crate) fn keep(&mut self, stream: &Stream<'_>, anew: bool, turns: bool) {
        if !self.request.stopped && !self.response.stopped {
            self.kept = None;
        } else if turns && (anew || self.kept.is_none()) {
            self.kept = Some(Box::new(Kept::of(stream)));
        }
    }
}

impl Default for Contexts {
    fn default() -> Contexts {
        Contexts { slots: (0..16).map(|_| None).collect(), live: 0, last: 0 }
    }
}

impl Contexts {
    fn slot(&self, id: u32) -> usize {
        id as usize & (self.slots.len() - 1)
    }

    /// A new context; its number.
    pub(crate) fn add(&mut self, parent: u32, kind: Kind) -> u32 {
        if (self.live + 1) * 2 > self.slots.len() {
            self.grow();
        }
        loop {
            self.last = self.last.wrapping_add(1);
            let at = self.slot(self.last);
            let id = self.last;
            if id != 0
                && let Some(slot @ None) = self.slots.get_mut(at)
            {
                *slot = Some(Context { id, parent, kind });
                self.live += 1;
                return id;
            }
        }
    }

    #[cold]
    fn grow(&mut self) {
        // Contexts that differ in their low bits differ in more of them.
        let larger: Vec<Option<Context>> = (0..self.slots.len() * 2).map(|_| None).collect();
        let old = std::mem::replace(&mut self.slots, larger);
        for context in old.into_iter().flatten() {
            let at = self.slot(context.id);
            if let Some(slot) = self.slots.get_mut(at) {
                *slot = Some(context);
            }
        }
    }

    pub(crate) fn get(&self, id: u32) -> Option<&Context> {
        self.slots.get(self.slot(id))?.as_ref().filter(|context| context.id == id)
    }

    pub(crate) fn get_mut(&mut self, id: u32) -> Option<&mut Context> {
        let at = self.slot(id);
        self.slots.get_mut(at)?.as_mut().filter(|context| context.id == id)
    }

    pub(crate) fn remove(&mut self, id: u32) -> Option<Context> {
        self.get(id)?;
        let at = self.slot(id);
        self.live = self.live.saturating_sub(1);
        self.slots.get_mut(at)?.take()
    }

    pub(crate) fn stream(&mut self, id: u32) -> Option<&mut Passing> {
        match &mut self.get_mut(id)?.kind {
            Kind::Stream(stream) => Some(stream),
            Kind::Root(_) | Kind::Connection(_) => None,
        }
    }

    /// How the connection of that context is let go on, or ended.
    pub(crate) fn connection(&self, id: u32) -> Option<&ConnectionHandle> {
        match &self.get(id)?.kind {
            Kind::Connection(tied) => Some(&tied.handle),
            Kind::Root(_) | Kind::Stream(_) => None,
        }
    }

    pub(crate) fn tied(&mut self, id: u32) -> Option<&mut Tied> {
        match &mut self.get_mut(id)?.kind {
            Kind::Connection(tied) => Some(tied),
            Kind::Root(_) | Kind::Stream(_) => None,
        }
    }

    /// What the module had a stream or connection hold.
    pub(crate) fn held(&mut self, id: u32) -> Option<&mut Held> {
        match &mut self.get_mut(id)?.kind {
            Kind::Stream(stream) => Some(&mut stream.held),
            Kind::Connection(tied) => Some(&mut tied.held),
            Kind::Root(_) => None,
        }
    }

    pub(crate) fn root(&mut self, id: u32) -> Option<&mut Root> {
        match &mut self.get_mut(id)?.kind {
            Kind::Root(root) => Some(root),
            Kind::Stream(_) | Kind::Connection(_) => None,
        }
    }

    /// The root context of a context, which may be that itself.
    pub(crate) fn root_id(&self, id: u32) -> u32 {
        self.get(id).map_or(0, |context| if context.parent == 0 { context.id } else { context.parent })
    }

    /// What wakes the streams that wait.
    pub(crate) fn bells(&self) -> Vec<Resumer> {
        let of = |context: &Context| match &context.kind {
            Kind::Stream(stream) => [stream.request.bell.clone(), stream.response.bell.clone()],
            Kind::Root(_) | Kind::Connection(_) => [None, None],
        };
        self.slots.iter().flatten().flat_map(of).flatten().collect()
    }

    /// Connections whose filters are gone end.
    pub(crate) fn close_connections(&self) {
        for context in self.slots.iter().flatten() {
            if let Kind::Connection(tied) = &context.kind {
                tied.handle.close();
            }
        }
    }

    /// The plugins of the root contexts.
    pub(crate) fn plugins(&self) -> Vec<Arc<Plugin>> {
        let of = |context: &Context| match &context.kind {
            Kind::Root(root) => Some(root.plugin.clone()),
            Kind::Stream(_) | Kind::Connection(_) => None,
        };
        self.slots.iter().flatten().filter_map(of).collect()
    }

    /// The numbers of the root contexts.
    pub(crate) fn roots(&self) -> Vec<u32> {
        let is_root = |context: &&Context| matches!(context.kind, Kind::Root(_));
        self.slots.iter().flatten().filter(is_root).map(|context| context.id).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(contexts: &mut Contexts) -> u32 {
        contexts.add(7, Kind::Stream(Passing::default()))
    }

    #[test]
    fn numbers_rise_and_are_not_used_again() {
        let mut contexts = Contexts::default();
        let first = stream(&mut contexts);
        assert!(contexts.remove(first).is_some() && contexts.remove(first).is_none());
        let ids: Vec<u32> = (0..100).map(|_| stream(&mut contexts)).collect();
        assert!(ids.windows(2).all(|pair| pair[0] < pair[1]) && ids[0] > first);
        assert!(contexts.get(first).is_none());
        assert!(ids.iter().all(|id| contexts.stream(*id).is_some() && contexts.root_id(*id) == 7));
    }

    #[test]
    fn a_number_that_is_in_use_is_passed_over_when_they_begin_again() {
        let mut contexts = Contexts::default();
        let old = stream(&mut contexts);
        contexts.last = u32::MAX;
        let next = stream(&mut contexts);
        assert!(next != 0 && next != old);
        assert!(contexts.get(old).is_some() && contexts.get(next).is_some());
    }
}
