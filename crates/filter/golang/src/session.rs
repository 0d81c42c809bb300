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

use std::borrow::Cow;
use std::ptr::{self, NonNull};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use postrider_filter_api::plugin::OnError;
use postrider_filter_api::{Action, Body, Ended, Flow, LocalReply, Stream};
use postrider_http::{HeaderId, Method};
use postrider_telemetry::error;

use crate::abi::{DESTROYED_EARLY, DESTROYED_NORMALLY, Phase, Verdict};
use crate::apart::Lane;
use crate::bells::{Bells, Side};
use crate::epoch::Epoch;
use crate::filter::Plugin;
use crate::heads;
use crate::library::Library;
use crate::mirror::{Each, Size, size_of};
use crate::parsed::{Home, Parsed};
use crate::pool;
use crate::questions::Seen;
use crate::request::{Asker, Ends, Part, Post, Request, View};
use crate::way::Way;

pub(crate) struct Session {
    /// Ours until it is destroyed; then Go's collector says when it is free.
    request: NonNull<Request>,
    stream: u64,
    /// The way to the process that the library runs in.
    lane: Option<Rc<Lane>>,
    bells: Rc<Bells>,
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

/// What Go code is shown.
#[derive(Debug, Clone, Copy)]
enum Call {
    Head { end: bool, size: Size },
    Data { end: bool, buffer: u64, len: usize },
    Trailers { size: Size },
}

impl Session {
    /// # Errors
    /// The library runs in a process of its own, which is not there.
    pub(crate) fn new(plugin: &Rc<Plugin>, config: &Arc<Parsed>, stream: &Stream<'_>) -> Result<Session, Down> {
        let (library, lane) = match &config.home {
            Home::Here(library) => (Some(*library), None),
            Home::Apart(child) => (None, Some(plugin.lane(child, stream).ok_or(Down)?)),
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
            bells: Rc::default(),
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
                self.bells.take_down(side);
                self.close_head(side);
                return Action::Done;
            }
            if let Some(reply) = self.way(side).reply.take() {
                return Action::Respond(self.replied(side, reply));
            }
            let bodiless = self.way(side).bodiless;
            verdict = match verdict {
                Verdict::StopAndBuffer if !bodiless => {
                    self.bells.take_down(side);
                    self.request().set_phase(side, Phase::WaitingAllData);
                    return Action::Take;
                }
                Verdict::StopAndBufferWatermark if !bodiless => {
                    self.bells.take_down(side);
                    self.request().set_phase(side, Phase::WaitingData);
                    return Action::Take;
                }
                Verdict::Continue | Verdict::StopAndBuffer | Verdict::StopAndBufferWatermark => {
                    self.bells.take_down(side);
                    return self.head_goes(side, stream);
                }
                Verdict::Running | Verdict::Replied | Verdict::StopNoBuffer | Verdict::Unknown(_) => {
                    match self.way(side).continued.pop_front() {
                        Some(next) => next,
                        None => break,
                    }
                }
            };
        }
        self.wait(side, stream);
        Action::Pause
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
        self.request().set_phase(side, Phase::WaitingData);
        Action::Take
    }

    fn close_head(&self, side: Side) {
        let mut shared = self.request().lock();
        let course = shared.course(side);
        course.headers_open = false;
        course.headers_gone = true;
    }

    /// A piece of the body came.
    pub(crate) fn body(&mut self, side: Side, stream: &mut Stream<'_>, end: bool) -> Action {
        let bytes = held(side, stream).bytes();
        let way = match side {
            Side::Request => &mut self.ways[0],
            Side::Response => &mut self.ways[1],
        };
        way.pending.extend_from_slice(bytes);
        way.ended |= end;
        self.drain(side, stream);
        self.pump(side, stream);
        self.answer(side)
    }

    pub(crate) fn trailers(&mut self, side: Side, stream: &mut Stream<'_>) -> Action {
        self.way(side).trailers_came = true;
        self.drain(side, stream);
        self.pump(side, stream);
        self.answer(side)
    }

    fn answer(&mut self, side: Side) -> Action {
        match self.way(side).reply.take() {
            Some(reply) if !self.failed => Action::Respond(self.replied(side, reply)),
            _ => Action::Continue,
        }
    }

    /// What goes on of a message that was taken over.
    pub(crate) fn flow(&mut self, side: Side, stream: &mut Stream<'_>) -> Flow {
        self.drain(side, stream);
        self.pump(side, stream);
        if self.failed {
            return self.release(side, stream);
        }
        if let Some(reply) = self.way(side).reply.take() {
            return Flow::Respond(self.replied(side, reply));
        }
        let is_done = self.request().phase(side) == Phase::Done;
        let limit = self.plugin.limit;
        let way = self.way(side);
        if is_done && way.is_complete() {
            return self.release(side, stream);
        }
        if way.head_free && !way.head_gone {
            way.head_gone = true;
            self.request().lock().course(side).headers_gone = true;
            let way = self.way(side);
            if way.out.is_empty() {
                return Flow::Head;
            }
        }
        let way = self.way(side);
        if way.head_gone && !way.out.is_empty() {
            held(side, stream).replace(&way.out);
            way.out.clear();
            return Flow::Piece;
        }
        let (complete, pending) = (way.is_complete(), way.pending.len() + way.out.len());
        let shown = self.shown(side);
        self.wait(side, stream);
        // Not at the limit: whoever wants all of a message learns from one byte more that it is too large.
        if complete || pending + shown > limit { Flow::Wait } else { Flow::Want }
    }

    /// Bytes of the body that Go code was shown and that have not gone on.
    fn shown(&self, side: Side) -> usize {
        self.request().lock().course(side).buffers.iter().map(|buffer| buffer.bytes.len()).sum()
    }

    /// Everything that is held goes on, and what follows passes by.
    fn release(&mut self, side: Side, stream: &mut Stream<'_>) -> Flow {
        self.bells.take_down(side);
        self.flush(side);
        let way = self.way(side);
        let pending = std::mem::take(&mut way.pending);
        way.out.extend_from_slice(&pending);
        held(side, stream).replace(&way.out);
        way.out.clear();
        way.head_gone = true;
        Flow::Release
    }

    /// Shows Go code what it waits for, as long as it waits.
    fn pump(&mut self, side: Side, stream: &mut Stream<'_>) {
        while !self.failed && self.way(side).reply.is_none() {
            let phase = self.request().phase(side);
            let room = self.plugin.limit.saturating_sub(self.shown(side));
            let way = self.way(side);
            match phase {
                Phase::ProcessingData | Phase::ProcessingTrailer => {
                    let Some(verdict) = way.continued.pop_front() else { return };
                    if phase == Phase::ProcessingData {
                        self.data_went(side, verdict);
                    } else {
                        self.trailers_went(side, verdict);
                    }
                }
                Phase::WaitingData if !way.pending.is_empty() || way.ended && !way.told_end => {
                    self.show_data(side, stream);
                }
                // Before its end is told: the last piece may be the one too many.
                Phase::WaitingAllData if way.pending.len() > room => {
                    way.reply = Some(too_large(side));
                }
                Phase::WaitingAllData if way.ended && !way.told_end || way.trailers_came && !way.pending.is_empty() => {
                    self.show_data(side, stream);
                }
                Phase::WaitingTrailer | Phase::WaitingData | Phase::WaitingAllData
                    if way.trailers_came && !way.trailers_done =>
                {
                    if phase != Phase::WaitingData {
                        self.flush(side);
                    }
                    self.show_trailers(side, stream);
                }
                Phase::Done => {
                    let pending = std::mem::take(&mut way.pending);
                    way.out.extend_from_slice(&pending);
                    return;
                }
                _ => return,
            }
        }
    }

    fn show_data(&mut self, side: Side, stream: &mut Stream<'_>) {
        let way = self.way(side);
        let (bytes, end) = (std::mem::take(&mut way.pending), way.ended);
        way.told_end = end;
        let len = bytes.len();
        self.request().set_phase(side, Phase::ProcessingData);
        let buffer = self.request().lock().course(side).push(bytes);
        let verdict = self.enter(side, stream, Call::Data { end, buffer, len });
        self.drain(side, stream);
        if !self.failed && self.way(side).reply.is_none() {
            self.data_went(side, verdict);
        }
    }

    fn data_went(&mut self, side: Side, verdict: Verdict) {
        let told_end = self.way(side).told_end;
        let phase = match verdict {
            Verdict::Continue => {
                self.flush(side);
                self.way(side).head_free = true;
                if told_end { Phase::Done } else { Phase::WaitingData }
            }
            Verdict::StopAndBuffer => Phase::WaitingAllData,
            Verdict::StopAndBufferWatermark => Phase::WaitingData,
            Verdict::StopNoBuffer => {
                self.request().lock().course(side).buffers.pop_back();
                Phase::WaitingData
            }
            Verdict::Running | Verdict::Replied | Verdict::Unknown(_) => return,
        };
        if told_end && phase != Phase::Done {
            error!(Filter, "{}: a Go filter wants more of a body that has ended", self.plugin.recipe.facts.name);
        }
        let way = self.way(side);
        let trailers = way.trailers_came && way.pending.is_empty() && phase != Phase::Done;
        self.request().set_phase(side, if trailers { Phase::WaitingTrailer } else { phase });
    }

    fn show_trailers(&mut self, side: Side, stream: &mut Stream<'_>) {
        self.way(side).told_end = true;
        self.request().set_phase(side, Phase::ProcessingTrailer);
        let size = {
            let fields = match side {
                Side::Request => &*stream.request_trailers,
                Side::Response => &*stream.response_trailers,
            };
            size_of(&|call| heads::each_of(fields, call))
        };
        {
            let mut shared = self.request().lock();
            let course = shared.course(side);
            course.trailers.announce(size);
            course.trailers_open = true;
        }
        let verdict = self.enter(side, stream, Call::Trailers { size });
        self.drain(side, stream);
        if !self.failed && self.way(side).reply.is_none() {
            self.trailers_went(side, verdict);
        }
    }

    fn trailers_went(&mut self, side: Side, verdict: Verdict) {
        if verdict != Verdict::Continue {
            return;
        }
        self.flush(side);
        self.request().lock().course(side).trailers_open = false;
        let way = self.way(side);
        let added = std::mem::take(&mut way.added);
        way.out.extend_from_slice(&added);
        way.head_free = true;
        way.trailers_done = true;
        self.request().set_phase(side, Phase::Done);
    }

    /// What Go code was shown goes on.
    fn flush(&mut self, side: Side) {
        let shown = std::mem::take(&mut self.request().lock().course(side).buffers);
        let way = self.way(side);
        for buffer in shown {
            way.out.extend_from_slice(&buffer.bytes);
        }
        way.head_free |= !way.out.is_empty();
    }

    /// The message is answered, and nothing of it is left.
    fn replied(&mut self, side: Side, reply: Box<LocalReply>) -> Box<LocalReply> {
        self.bells.take_down(side);
        self.way(side).abandon();
        let phase = if side == Side::Request { Phase::WaitingHeader } else { Phase::Done };
        self.request().set_phase(side, phase);
        let mut shared = self.request().lock();
        let course = shared.course(side);
        course.buffers.clear();
        course.headers_open = false;
        course.trailers_open = false;
        reply
    }

    fn wait(&self, side: Side, stream: &Stream<'_>) {
        self.bells.hang(side, stream.resumer);
        pool::wait(self.stream, &self.bells);
    }

    /// Calls into Go.
    fn enter(&self, side: Side, stream: &mut Stream<'_>, call: Call) -> Verdict {
        let Home::Here(library) = self.config.home else {
            self.enter_apart(side, stream, call);
            return Verdict::Running;
        };
        let began = self.plugin.sampling.take().map(|_| stream.host.now());
        let request = self.request();
        {
            let mut shared = request.lock();
            let cluster = stream.cluster();
            shared.facts.take(stream.request, stream.info, stream.route, cluster.as_deref());
            shared.view = View::of(stream);
        }
        let state = ptr::from_ref(request.state(side)).cast_mut();
        let entries = &library.entries;
        // SAFETY: the state is of the stream's object; fields are announced as they are, and the buffer is one of its.
        let verdict = Verdict::of(unsafe {
            match call {
                Call::Head { end, size } => (entries.on_header)(state, u64::from(end), size.0 as u64, size.1 as u64),
                Call::Data { end, buffer, len } => (entries.on_data)(state, u64::from(end), buffer, len as u64),
                Call::Trailers { size } => (entries.on_header)(state, 1, size.0 as u64, size.1 as u64),
            }
        });
        let took = began.map(|began| stream.host.now().saturating_duration_since(began));
        self.plugin.account.called(stream.route, took);
        let mut shared = request.lock();
        if verdict == Verdict::Running {
            // From here on goroutines have only copies to look at.
            for side in Side::BOTH {
                let course = shared.course(side);
                let (headers, trailers) = (course.headers_open, course.trailers_open);
                if headers {
                    shared.mirror(side, Part::Headers);
                }
                if trailers {
                    shared.mirror(side, Part::Trailers);
                }
            }
        }
        shared.view = View::None;
        verdict
    }

    /// The same where Go code is in a process of its own: what it decides is posted.
    #[inline(never)]
    fn enter_apart(&self, side: Side, stream: &mut Stream<'_>, call: Call) {
        self.plugin.account.called(stream.route, None);
        let lane = self.lane.as_ref().filter(|lane| lane.has(self.stream));
        let mut shared = self.request().lock();
        let Some(lane) = lane else {
            // It ended since the stream last had to do with it.
            shared.posts.push_back(Post::Lost);
            return;
        };
        match call {
            Call::Head { end, .. } => {
                let cluster = stream.cluster();
                shared.facts.take(stream.request, stream.info, stream.route, cluster.as_deref());
                let tls = stream.info.tls.is_some();
                match side {
                    Side::Request => lane.head(self.stream, side, end, &shared.facts, &|call| {
                        heads::each_of_request(stream.request, tls, call);
                    }),
                    Side::Response => lane.head(self.stream, side, end, &shared.facts, &|call| {
                        heads::each_of_response(stream.response, call);
                    }),
                }
            }
            Call::Data { end, buffer, .. } => {
                let course = shared.course(side);
                let held: Vec<u64> = course.buffers.iter().map(|held| held.id).filter(|id| *id != buffer).collect();
                let bytes = course.buffer(buffer).map(|bytes| bytes.as_slice()).unwrap_or_default();
                lane.data(self.stream, side, end, buffer, &held, bytes);
            }
            Call::Trailers { .. } => {
                let held: Vec<u64> = shared.course(side).buffers.iter().map(|held| held.id).collect();
                let fields = match side {
                    Side::Request => &*stream.request_trailers,
                    Side::Response => &*stream.response_trailers,
                };
                lane.trailers(self.stream, side, &held, &|call| heads::each_of(fields, call));
            }
        }
    }

    /// Does what Go code asked for, in order.
    fn drain(&mut self, own: Side, stream: &mut Stream<'_>) {
        loop {
            let posts = self.request().take_posts();
            if posts.is_empty() {
                break;
            }
            posts.into_iter().for_each(|post| self.do_post(post, stream));
        }
        for side in Side::BOTH {
            if side != own && self.way(side).has_news() {
                self.bells.ring(side);
            }
        }
    }

    fn do_post(&mut self, post: Post, stream: &mut Stream<'_>) {
        match post {
            Post::Continue(side, verdict) => self.way(side).continued.push_back(verdict),
            Post::Reply(side, reply) => self.way(side).reply = Some(reply),
            Post::Panic(side, details) => self.panicked(side, &details, stream),
            Post::AddData(side, bytes) => self.way(side).added.extend_from_slice(&bytes),
            Post::Inject(side, bytes) => {
                let way = self.way(side);
                way.out.extend_from_slice(&bytes);
                way.head_free = true;
            }
            Post::Question(question, asker) => {
                let seen = Seen {
                    request: stream.request,
                    response: stream.response,
                    trailers: stream.response_trailers,
                    info: stream.info,
                    route: stream.route,
                };
                let mut shared = self.request().lock();
                let answer = question.answer(&seen, &shared.secrets);
                match (asker, &self.config.home) {
                    (Asker::Goroutine(out), Home::Here(library)) => {
                        // SAFETY: the goroutine that asked waits until it is woken below.
                        unsafe { out.fill(&question, answer, &mut shared.slot) };
                        drop(shared);
                        // SAFETY: the stream is the library's, and not destroyed.
                        unsafe { (library.entries.answered)(self.request.as_ptr().cast()) };
                    }
                    (Asker::Process(number), _) => {
                        if let Some(lane) = &self.lane {
                            lane.answer(self.stream, number, &answer);
                        }
                    }
                    (Asker::Goroutine(_), Home::Apart(_)) => {}
                }
            }
            Post::Lost => self.lost(stream),
            other => other.apply(&mut self.request().lock(), stream),
        }
    }

    fn panicked(&mut self, side: Side, details: &str, stream: &Stream<'_>) {
        let name = &self.plugin.recipe.facts.name;
        error!(Filter, "[go_plugin_http][{name}] filter paniced with error details: {details}");
        self.faulted = true;
        self.plugin.fault(stream);
        match self.plugin.recipe.facts.policy.on_error {
            OnError::Continue => self.failed = true,
            OnError::Respond(status) => {
                let reply = self.plugin.recipe.reply(status);
                self.way(side).reply = Some(Box::new(reply));
            }
        }
    }

    /// The process that had the stream is gone, and what Go code knew of it.
    #[cold]
    fn lost(&mut self, stream: &Stream<'_>) {
        let waits = Side::BOTH.into_iter().find(|side| self.request().phase(*side).is_in_go());
        // Where nothing waits for Go code, whatever it is next to see fails.
        let Some(side) = waits.filter(|_| !self.failed) else { return };
        if !self.faulted {
            self.plugin.lost(stream);
        }
        self.faulted = true;
        match self.plugin.recipe.facts.policy.on_error {
            OnError::Continue => self.failed = true,
            OnError::Respond(status) => {
                self.gone = true;
                let reply = self.plugin.recipe.reply(status);
                self.way(side).reply = Some(Box::new(reply));
            }
        }
    }

    /// The stream is over.
    pub(crate) fn end(&mut self, ended: &Ended<'_>) {
        if self.plugin.recipe.watches_end() && !self.failed {
            match self.config.home {
                Home::Here(library) => self.end_here(library, ended),
                Home::Apart(_) => self.end_apart(ended),
            }
        }
        self.destroy();
    }

    fn end_here(&self, library: &Library, ended: &Ended<'_>) {
        let tls = ended.info.tls.is_some();
        let answered = ended.info.status != 0;
        let ends = Ends {
            request_head: size_of(&|call| heads::each_of_request(ended.request, tls, call)),
            request_trailers: size_of(&|call| heads::each_of(ended.request_trailers, call)),
            response_head: match answered {
                true => size_of(&|call| heads::each_of_response(ended.response, call)),
                false => (0, 0),
            },
            response_trailers: size_of(&|call| heads::each_of(ended.response_trailers, call)),
        };
        let request = self.request();
        {
            let mut shared = request.lock();
            shared.facts.take(ended.request, ended.info, ended.route, None);
            shared.view = View::of_ended(ended);
            shared.posts.clear();
            if library.has(Epoch::E4) {
                shared.announce_all(&ends);
                shared.open_all(&ends, answered);
            }
        }
        request.go.is_processing_log.store(1, Ordering::Release);
        // SAFETY: the stream is the library's, and not destroyed; the fields are announced as they are.
        unsafe { library.entries.end(self.request.as_ptr(), &ends) };
        request.go.is_processing_log.store(0, Ordering::Release);
    }

    #[inline(never)]
    fn end_apart(&self, ended: &Ended<'_>) {
        let Some(lane) = self.lane.as_ref().filter(|lane| lane.has(self.stream)) else { return };
        let mut shared = self.request().lock();
        shared.facts.take(ended.request, ended.info, ended.route, None);
        let tls = ended.info.tls.is_some();
        let response: Each<'_> = &|call| heads::each_of_response(ended.response, call);
        lane.log(
            self.stream,
            &shared.facts,
            &|call| heads::each_of_request(ended.request, tls, call),
            (ended.info.status != 0).then_some(response),
            [&|call| heads::each_of(ended.request_trailers, call), &|call| {
                heads::each_of(ended.response_trailers, call)
            }],
        );
    }

    /// Nothing of Go's touches the stream from here on. Goroutines that wait for an answer are woken.
    fn destroy(&mut self) {
        if self.destroyed {
            return;
        }
        self.destroyed = true;
        pool::leave(self.stream);
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

fn too_large(side: Side) -> Box<LocalReply> {
    let (status, body, details) = match side {
        Side::Request => (413, "Payload Too Large", "request_payload_too_large"),
        Side::Response => (500, "Internal Server Error", "response_payload_too_large"),
    };
    Box::new(LocalReply {
        status,
        body: Cow::Borrowed(body.as_bytes()),
        details: Cow::Borrowed(details),
        ..LocalReply::default()
    })
}
