//! One stream's conversation with its processor: what was said, what is waited for, and how that ends.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use postrider_filter_api::{CallHandle, GrpcStream, Host, Moment, Resumer};
use postrider_grpc::process::ProcessingResponse;

use super::modes::{MessageModes, Modes, Side};

/// Everything that is known about one stream.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) link: Link,
    /// The processor has no more part in the stream.
    pub(super) complete: bool,
    /// The first message, which says how this proxy is configured, was sent.
    pub(super) introduced: bool,
    pub(super) request: Course,
    pub(super) response: Course,
}

/// How far one message has come.
#[derive(Debug, Default)]
pub(super) struct Course {
    pub(super) modes: MessageModes,
    pub(super) waits: Waits,
    /// When the answer that is waited for is late.
    pub(super) deadline: Option<Moment>,
    /// The processor asked for more time already.
    pub(super) extended: bool,
    pub(super) attributes_sent: bool,
    /// Nothing follows the head.
    pub(super) bodiless: bool,
    /// The head cannot be changed any more.
    pub(super) head_gone: bool,
    /// It can go on as soon as this filter is asked.
    pub(super) head_free: bool,
    /// The processor wants this body in place of whatever comes.
    pub(super) replacement: Option<Vec<u8>>,
    /// Answers that the other side's turn brought.
    pub(super) answers: VecDeque<ProcessingResponse>,
    /// What was taken of the message: see the parts of the body below.
    pub(super) taken: bool,
    /// Some of the body came, and the last of it, and trailers.
    pub(super) body_came: bool,
    pub(super) ended: bool,
    pub(super) trailers_came: bool,
    pub(super) trailers_sent: bool,
    /// The trailers are as the processor wants them.
    pub(super) trailers_done: bool,
    /// Pieces that the processor was sent and has not answered.
    pub(super) unanswered: VecDeque<Piece>,
    pub(super) unanswered_bytes: usize,
    /// What is gathered for it.
    pub(super) gathered: Vec<u8>,
    /// It has seen as much of the body as may be held.
    pub(super) partly_done: bool,
    /// What goes on.
    pub(super) out: VecDeque<Vec<u8>>,
    /// Nothing goes on behind that.
    pub(super) finished: bool,
}

#[derive(Debug)]
pub(super) struct Piece {
    pub(super) bytes: Vec<u8>,
    pub(super) end: bool,
}

/// The answer that is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Waits {
    #[default]
    No,
    Headers,
    /// To the whole body.
    Buffered,
    /// To pieces of it.
    Streamed,
    /// To as much of it as may be held.
    Partial,
    Trailers,
}

impl Session {
    pub(super) fn new(modes: &Modes) -> Session {
        let course = |modes| Course { modes, ..Course::default() };
        Session {
            link: Link::default(),
            complete: false,
            introduced: false,
            request: course(modes.request),
            response: course(modes.response),
        }
    }

    pub(super) fn course(&mut self, side: Side) -> &mut Course {
        match side {
            Side::Request => &mut self.request,
            Side::Response => &mut self.response,
        }
    }

    pub(super) fn set_modes(&mut self, modes: &Modes) {
        self.request.modes = modes.request;
        self.response.modes = modes.response;
    }
}

impl Course {
    /// Something was sent that wants an answer.
    pub(super) fn wait(&mut self, waits: Waits) {
        self.waits = waits;
        self.extended = false;
    }

    /// An answer came; `next` is still waited for.
    pub(super) fn answered(&mut self, next: Waits) {
        self.waits = next;
        self.deadline = None;
        self.extended = false;
    }

    /// The processor is gone: what it was sent goes on as it was.
    pub(super) fn salvage(&mut self) {
        self.answered(Waits::No);
        self.head_free = true;
        let unanswered = std::mem::take(&mut self.unanswered).into_iter().map(|piece| piece.bytes);
        self.out.extend(unanswered.filter(|bytes| !bytes.is_empty()));
        self.unanswered_bytes = 0;
        if !self.gathered.is_empty() {
            self.out.push_back(std::mem::take(&mut self.gathered));
        }
    }
}

/// The stream to the processor, and what wakes this proxy's streams when something came of it.
#[derive(Debug, Default)]
pub(super) struct Link {
    pub(super) stream: Option<GrpcStream>,
    pub(super) bells: Rc<Bells>,
    /// What did not fit in the stream's queue: at most a piece of each side.
    unsent: VecDeque<Vec<u8>>,
}

/// What ends the waits of both sides.
#[derive(Debug, Default)]
pub(super) struct Bells {
    request: RefCell<Option<Resumer>>,
    response: RefCell<Option<Resumer>>,
    alarm: RefCell<Option<CallHandle>>,
    alarm_at: Cell<Option<Moment>>,
}

impl Link {
    pub(super) fn send(&mut self, message: Vec<u8>) {
        self.unsent.push_back(message);
        self.flush();
    }

    pub(super) fn flush(&mut self) {
        let Some(stream) = &self.stream else { return self.unsent.clear() };
        while stream.has_room()
            && let Some(message) = self.unsent.pop_front()
        {
            stream.send(message);
        }
    }

    /// Whether another message can be sent now; the first one always can.
    pub(super) fn has_room(&self) -> bool {
        self.unsent.is_empty() && self.stream.as_ref().is_none_or(GrpcStream::has_room)
    }

    pub(super) fn abandon(&mut self) -> bool {
        self.unsent.clear();
        self.stream.take().is_some()
    }

    /// `false` when there is no stream.
    pub(super) fn leave(&mut self, patience: Duration) -> bool {
        self.flush();
        self.unsent.clear();
        let stream = self.stream.take();
        let was = stream.is_some();
        if let Some(stream) = stream {
            stream.leave(patience);
        }
        was
    }
}

impl Bells {
    fn of(&self, side: Side) -> &RefCell<Option<Resumer>> {
        match side {
            Side::Request => &self.request,
            Side::Response => &self.response,
        }
    }

    /// This side waits.
    pub(super) fn hang(&self, side: Side, resumer: &Resumer) {
        *self.of(side).borrow_mut() = Some(resumer.clone());
    }

    /// Whoever waits for this side looks again.
    pub(super) fn ring(&self, side: Side) {
        let resumer = self.of(side).borrow_mut().take();
        if let Some(resumer) = resumer {
            resumer.resume();
        }
    }

    pub(super) fn ring_both(&self) {
        self.ring(Side::Request);
        self.ring(Side::Response);
    }

    /// Rings both at that moment, or before.
    pub(super) fn ring_at(self: &Rc<Self>, due: Moment, host: &dyn Host) {
        if self.alarm_at.get().is_some_and(|set| set <= due) {
            return;
        }
        let bells = self.clone();
        let time = due.saturating_duration_since(host.now());
        let alarm = host.after(
            time,
            Box::new(move || {
                bells.alarm_at.set(None);
                bells.ring_both();
            }),
        );
        self.alarm_at.set(Some(due));
        *self.alarm.borrow_mut() = Some(alarm);
    }

    /// There is nothing to wait for any more.
    pub(super) fn silence(&self) {
        self.alarm_at.set(None);
        self.alarm.take();
    }
}
