//! The trace that a stream is part of, and its span as filters see it.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::time::SystemTime;

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

/// A span that is not over: what filters say of it until then is told with it.
pub struct OpenSpan {
    pub ids: SpanIds,
    /// Of which it is a child; `None` for a request's own span.
    pub parent: Option<[u8; 8]>,
    pub began: SystemTime,
    pub name: RefCell<String>,
    /// It is told when it is over, and upstreams hear so.
    pub is_told: Cell<bool>,
    /// A filter has the last word on that: another route changes nothing.
    pub is_settled: Cell<bool>,
    /// What other tracers want to go on with whatever is part of it; may be empty.
    pub state: Rc<str>,
    /// Its status says that it failed.
    pub failed: Cell<bool>,
    /// The last value of a name counts.
    pub tags: RefCell<Vec<(String, String)>>,
    pub events: RefCell<Vec<(SystemTime, String)>>,
    tell: Tell,
}

/// Which trace a filter's own request is part of.
#[derive(Debug, Clone)]
pub struct CallTrace {
    /// It is a part of this one.
    pub parent: Rc<OpenSpan>,
    /// Whether it is told; as its parent where nothing is said.
    pub is_told: Option<bool>,
    /// It has a span of its own; else its cluster is told of the parent.
    pub has_span: bool,
}

/// Tells of a child that ended then.
type Tell = Rc<dyn Fn(&OpenSpan, SystemTime)>;

impl OpenSpan {
    /// A request's own; its children are told by `tell`.
    pub fn new(ids: SpanIds, state: Rc<str>, began: SystemTime, is_told: bool, tell: Tell) -> OpenSpan {
        OpenSpan {
            ids,
            parent: None,
            began,
            name: RefCell::default(),
            is_told: Cell::new(is_told),
            is_settled: Cell::new(false),
            state,
            failed: Cell::new(false),
            tags: RefCell::default(),
            events: RefCell::default(),
            tell,
        }
    }

    /// A part of it that a filter sees to, told as it is.
    pub fn child(&self, span: [u8; 8], name: String, began: SystemTime) -> OpenSpan {
        let ids = SpanIds { span, ..self.ids };
        let child = OpenSpan::new(ids, self.state.clone(), began, self.is_told.get(), self.tell.clone());
        OpenSpan { parent: Some(self.ids.span), name: RefCell::new(name), ..child }
    }

    /// A child is over.
    pub fn end(self, now: SystemTime) {
        if self.is_told.get() {
            (self.tell)(&self, now);
        }
    }
}

impl fmt::Debug for OpenSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenSpan").field("ids", &self.ids).field("name", &self.name).finish_non_exhaustive()
    }
}

impl StreamInfo {
    /// The request's own span; `None` where nobody is told of spans.
    pub fn span(&self) -> Option<Rc<OpenSpan>> {
        self.shared.iter().rev().find_map(|shared| shared.clone().downcast().ok())
    }

    /// Lends it to filters.
    pub fn set_span(&mut self, span: Rc<OpenSpan>) {
        self.shared.push(span);
    }

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Moment;

    #[test]
    fn children_are_told_when_they_end_unless_nobody_wants_to_know() {
        let told: Rc<RefCell<Vec<String>>> = Rc::default();
        let tell = {
            let told = told.clone();
            move |child: &OpenSpan, _| told.borrow_mut().push(format!("{} {:?}", child.name.borrow(), child.parent))
        };
        let ids = SpanIds { trace: [1; 16], span: [2; 8] };
        let mut info = StreamInfo::new(Moment::default(), SystemTime::UNIX_EPOCH);
        assert!(info.span().is_none());
        info.set_span(Rc::new(OpenSpan::new(ids, "".into(), SystemTime::UNIX_EPOCH, true, Rc::new(tell))));
        let span = info.span().unwrap();
        let child = span.child([3; 8], "child".to_owned(), SystemTime::UNIX_EPOCH);
        assert_eq!(child.ids, SpanIds { trace: [1; 16], span: [3; 8] });
        child.child([4; 8], "grandchild".to_owned(), SystemTime::UNIX_EPOCH).end(SystemTime::UNIX_EPOCH);
        child.is_told.set(false);
        child.end(SystemTime::UNIX_EPOCH);
        assert_eq!(*told.borrow(), [format!("grandchild {:?}", Some([3_u8; 8]))]);
    }
}
