//! One stream in Go: what its messages wait for, and what Go code is told of them.
//!
//! ```text
//! WaitingHeader ─> ProcessingHeader ─Continue────────────> WaitingData <──────────┐
//!                        │ StopAndBuffer                     │ piece              │ Continue,
//!                        └────────────> WaitingAllData       └> ProcessingData ───┤ StopAndBufferWatermark
//!                                        ^   │ all of it          ^   │ trailers, │
//!                                        │   └────────────────────┘   │ all shown │
//!                                        └──StopAndBuffer─────────────┤           │
//!            Done <─Continue─ ProcessingTrailer <─ WaitingTrailer <───┘           │
//!              ^──────────────────────────── Continue at the end ─────────────────┘
//! ```
//!
//! In each Processing state a goroutine may have the message: then nothing moves until it says how to go on. A message
//! with a body is taken over ([`Action::Take`]), so that its parts go on when Go code lets them.

mod body;
mod enter;
mod posts;

use std::cell::{Cell, OnceCell};
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::Arc;

use postrider_filter_api::{Action, Body, Closing, Ended, Stream};
use postrider_http::{HeaderId, Method};
use postrider_telemetry::error;

use self::enter::Call;
use crate::abi::{DESTROYED_EARLY, DESTROYED_NORMALLY, LOG_AT_END, Phase, Verdict};
use crate::apart::Lane;
use crate::bells::{Bells, Side};
use crate::filter::Plugin;
use crate::heads;
use crate::mirror::size_of;
use crate::parsed::{Home, Parsed};
use crate::pool;
use crate::request::Request;
use crate::way::Way;

pub(crate) struct Session {
    /// Ours until it is destroyed; then Go's collector says when it is free.
    request: NonNull<Request>,
    stream: u64,
    /// The way to the process that the library runs in.
    lane: Option<Rc<Lane>>,
    /// Made when a message first waits for Go code.
    bells: OnceCell<Rc<Bells>>,
    /// The worker finds them by the stream's number.
    is_found: Cell<bool>,
    ways: [Way; 2],
    config: Arc<Parsed>,
    plugin: Rc<Plugin>,
    /// The plugin failed, and its policy is that the stream goes on without it.
    failed: bool,
    /// The process that had the stream is gone, and it was answered for that.
    gone: bool,
    /// It failed, whatever its policy is.
    pub(crate) faulted: bool,
    destroyed: bool,
}

/// The process of the stream's library is not there now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Down;

impl Session {
    /// # Errors
    /// The library runs in a process of its own, which is not there.
    pub(crate) fn new(plugin: &Rc<Plugin>, config: &Arc<Parsed>) -> Result<Session, Down> {
        let (library, lane) = match &config.home {
            Home::Here(library) => (Some(*library), None),
            Home::Apart(child) => (None, Some(plugin.lane(child).ok_or(Down)?)),
        };
        let request = NonNull::new(plugin.pool.take()).ok_or(Down)?;
        let stream = pool::next_stream();
        // SAFETY: nobody else has the object.
        let prepared = unsafe { &mut *request.as_ptr() };
        prepared.prepare(config.plugin, config.id, stream, library, plugin.recipe.secrets.clone());
        if let Some(lane) = &lane {
            lane.begin(stream, config.id, request);
        }
        Ok(Session {
            request,
            stream,
            lane,
            bells: OnceCell::new(),
            is_found: Cell::new(false),
            ways: Default::default(),
            config: config.clone(),
            plugin: plugin.clone(),
            failed: false,
            gone: false,
            faulted: false,
            destroyed: false,
        })
    }

    fn request(&self) -> &Request {
        // SAFETY: the object lives until Go's collector has it, which is after this session.
        unsafe { self.request.as_ref() }
    }

    fn way(&mut self, side: Side) -> &mut Way {
        let [request, response] = &mut self.ways;
        match side {
            Side::Request => request,
            Side::Response => response,
        }
    }

    /// A head came.
    pub(crate) fn head(&mut self, side: Side, stream: &mut Stream<'_>, end: bool) -> Action {
        if self.failed || self.gone {
            return Action::Done;
        }
        let tunnel = stream.request.method() == Method::Connect
            || match side {
                Side::Request => stream.request.fields.has(HeaderId::Upgrade),
                Side::Response => stream.response.status() == 101,
            };
        let way = self.way(side);
        way.ended = end;
        way.told_end = end;
        // Bytes of a tunnel are no body.
        way.bodiless = end || tunnel;
        self.request().set_phase(side, Phase::ProcessingHeader);
        let tls = stream.info.tls.is_some();
        let size = match side {
            Side::Request => size_of(&|call| heads::each_of_request(stream.request, tls, call)),
            Side::Response => size_of(&|call| heads::each_of_response(stream.response, call)),
        };
        {
            let mut shared = self.request().lock();
            let course = shared.course(side);
            course.headers.announce(size);
            course.headers_open = true;
        }
        let verdict = self.enter(side, stream, Call::Head { end, size });
        self.drain(side, stream);
        self.after_head(side, stream, verdict)
    }

    /// The pause of a head is over, or somebody asked something.
    pub(crate) fn resumed(&mut self, side: Side, stream: &mut Stream<'_>) -> Action {
        self.drain(side, stream);
        self.after_head(side, stream, Verdict::Running)
    }

    fn after_head(&mut self, side: Side, stream: &mut Stream<'_>, mut verdict: Verdict) -> Action {
        loop {
            if self.failed {
                self.take_down(side);
                self.close_head(side);
                return Action::Done;
            }
            if let Some(reply) = self.way(side).reply.take() {
                return Action::Respond(self.replied(side, reply));
            }
            verdict = match verdict {
                Verdict::Running | Verdict::Replied | Verdict::StopNoBuffer | Verdict::Unknown(_) => {
                    match self.way(side).continued.pop_front() {
                        Some(next) => next,
                        None => break,
                    }
                }
                decided if self.request().phase(side) == Phase::ProcessingData => {
                    return self.no_body_decided(side, stream, decided);
                }
                decided => return self.head_decided(side, stream, decided),
            };
        }
        self.wait(side, stream);
        Action::Pause
    }

    fn head_decided(&mut self, side: Side, stream: &mut Stream<'_>, verdict: Verdict) -> Action {
        self.take_down(side);
        let way = self.way(side);
        // Said more than once, it is not for what comes next.
        way.continued.clear();
        let phase = match verdict {
            // Code that decides on the body is not to be passed by where there is none.
            Verdict::StopAndBuffer | Verdict::StopAndBufferWatermark if way.ended => {
                return self.show_no_body(side, stream);
            }
            Verdict::StopAndBuffer if !way.bodiless => Phase::WaitingAllData,
            Verdict::StopAndBufferWatermark if !way.bodiless => Phase::WaitingData,
            _ => return self.head_goes(side, stream),
        };
        way.out = std::mem::take(&mut way.added);
        way.taken = true;
        self.request().set_phase(side, phase);
        Action::Take
    }

    /// Shows Go code the end of a body that is not there, with the head still in its hands.
    fn show_no_body(&mut self, side: Side, stream: &mut Stream<'_>) -> Action {
        self.request().set_phase(side, Phase::ProcessingData);
        let buffer = self.request().lock().course(side).push(Vec::new());
        let verdict = self.enter(side, stream, Call::Data { end: true, buffer, len: 0 });
        self.drain(side, stream);
        self.after_head(side, stream, verdict)
    }

    fn no_body_decided(&mut self, side: Side, stream: &mut Stream<'_>, verdict: Verdict) -> Action {
        self.take_down(side);
        self.way(side).continued.clear();
        if verdict != Verdict::Continue {
            self.wants_more();
            self.request().set_phase(side, Phase::WaitingAllData);
            self.wait(side, stream);
            return Action::Pause;
        }
        let shown = std::mem::take(&mut self.request().lock().course(side).buffers);
        let way = self.way(side);
        shown.iter().for_each(|buffer| way.added.extend_from_slice(&buffer.bytes));
        self.head_goes(side, stream)
    }

    fn wants_more(&self) {
        error!(Filter, "{}: a Go filter wants more of a body that has ended", self.plugin.recipe.facts.name);
    }

    fn head_goes(&mut self, side: Side, stream: &mut Stream<'_>) -> Action {
        self.close_head(side);
        let watches = self.plugin.recipe.watches_body(side);
        let way = self.way(side);
        if way.ended {
            if !way.added.is_empty() {
                held(side, stream).replace(&way.added);
            }
            self.request().set_phase(side, Phase::Done);
            return Action::Continue;
        }
        if way.bodiless || !watches && way.added.is_empty() {
            self.request().set_phase(side, Phase::Done);
            return Action::Done;
        }
        way.head_free = true;
        way.out = std::mem::take(&mut way.added);
        way.taken = true;
        self.request().set_phase(side, Phase::WaitingData);
        Action::Take
    }

    fn close_head(&self, side: Side) {
        let mut shared = self.request().lock();
        let course = shared.course(side);
        course.headers_open = false;
        course.headers_gone = true;
    }

    /// Has this side woken when something comes from Go code.
    fn wait(&self, side: Side, stream: &Stream<'_>) {
        let request = self.request();
        // Nothing can come of a stream whose messages are both elsewhere; but a process may end at any time.
        if self.lane.is_none() && !Side::BOTH.into_iter().any(|side| request.phase(side).is_in_go()) {
            return;
        }
        let bells = self.bells.get_or_init(Rc::default);
        bells.hang(side, stream.resumer);
        if !self.is_found.replace(true) {
            pool::wait(self.stream, bells);
        }
    }

    /// This side does not wait.
    fn take_down(&self, side: Side) {
        if let Some(bells) = self.bells.get() {
            bells.take_down(side);
        }
    }

    /// The stream is over, and will be logged.
    pub(crate) fn close(&mut self, closing: &mut Closing<'_>) {
        self.do_last(closing);
        if let Home::Here(library) = self.config.home
            && let Some(on_complete) = library.entries.on_complete
            && self.plugin.recipe.watches_end()
            && !self.failed
        {
            self.complete_here(on_complete, closing);
            self.do_last(closing);
        }
    }

    /// The stream is over. It is destroyed with this session, when all filters have logged it.
    pub(crate) fn end(&mut self, ended: &Ended<'_>) {
        self.answer_last(ended);
        if self.plugin.recipe.watches_end() && !self.failed {
            match self.config.home {
                Home::Here(library) => self.end_here(library, ended),
                Home::Apart(_) => self.log_apart(LOG_AT_END, ended),
            }
        }
    }

    /// The stream is logged while it goes on.
    pub(crate) fn note(&self, moment: u64, ended: &Ended<'_>) {
        if !self.plugin.recipe.watches_end() || self.failed || self.gone {
            return;
        }
        match self.config.home {
            Home::Here(library) => self.note_here(library, moment, ended),
            Home::Apart(_) => self.log_apart(moment, ended),
        }
    }

    /// Nothing of Go's touches the stream from here on. Goroutines that wait for an answer are woken.
    fn destroy(&mut self) {
        if self.destroyed {
            return;
        }
        self.destroyed = true;
        if self.is_found.get() {
            pool::leave(self.stream);
        }
        let request = self.request();
        let early = Side::BOTH.into_iter().any(|side| request.phase(side).is_in_go());
        {
            let mut shared = request.lock();
            shared.end();
        }
        let library = match (self.config.home.clone(), &self.lane) {
            (Home::Here(library), _) => library,
            (Home::Apart(_), lane) => {
                if let Some(lane) = lane {
                    lane.leave(self.stream, early);
                }
                // Its process has objects of its own: nobody else has this one.
                return self.plugin.pool.give_back(self.request.as_ptr());
            }
        };
        let reason = if early { DESTROYED_EARLY } else { DESTROYED_NORMALLY };
        // SAFETY: the stream is the library's, and is destroyed once.
        unsafe { (library.entries.on_destroy)(self.request.as_ptr().cast(), reason) };
        // Go's collector may have the object from here on.
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.destroy();
    }
}

fn held<'a>(side: Side, stream: &'a mut Stream<'_>) -> &'a mut Body {
    match side {
        Side::Request => stream.request_body,
        Side::Response => stream.response_body,
    }
}
