//! A stream as Go code holds it: what its threads may touch at any time, under one lock.
//!
//! ```text
//! HttpRequest   (Go reads it)          at offset 0
//! ProcessState  request, response      (Go reads them)
//! Shared        behind a lock          ours
//! ```
//!
//! The object lives until Go's collector finalizes it, long after its stream: thousands of them may wait for that at any
//! time. What is dear in it goes with the stream ([`Dear`]), so that the next stream finds it warm, too.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use postrider_filter_api::{Closing, Ended, LocalReply, StateRules, Stream, StreamInfo, UpstreamOverride};
use postrider_model::Value;

use crate::abi::{HttpRequest, Phase, ProcessState, Verdict};
use crate::bells::Side;
use crate::dear::{self, Dear, Left};
use crate::facts::Facts;
use crate::heads::{self, Edit};
use crate::library::Library;
use crate::mirror::{Mirror, Size};
use crate::noted::Noted;
use crate::pool::Pool;
use crate::questions::{Question, Secrets, Seen};
use crate::state;

/// Bytes that an object keeps for the answers to another stream.
const KEPT_SLOT: usize = 256;

#[repr(C)]
pub(crate) struct Request {
    pub(crate) go: HttpRequest,
    pub(crate) states: [ProcessState; 2],
    pub(crate) pool: &'static Pool,
    shared: Mutex<Shared>,
}

/// What Go's threads and the worker share of a stream.
#[derive(Default)]
pub(crate) struct Shared {
    pub(crate) destroyed: bool,
    /// Distinct on the worker; 0 while the stream cannot be woken.
    pub(crate) stream: u64,
    /// The worker was woken, and has not looked yet.
    woken: bool,
    pub(crate) view: View,
    /// `None` while there is no stream.
    dear: Option<Box<Dear>>,
    /// The one place for answers that are texts: Go code copies them before it asks again.
    pub(crate) slot: Vec<u8>,
    /// What Go code may still read of the fields of a stream that is over.
    left: Left,
    pub(crate) posts: VecDeque<Post>,
    /// Questions of goroutines on their way to another process.
    pub(crate) asked: Vec<Asked>,
    /// What runs it; the last one that did when the stream is over.
    pub(crate) library: Option<&'static Library>,
    pub(crate) secrets: Secrets,
    /// What is shown where the stream is logged while it goes on.
    pub(crate) noted: Option<Box<Noted>>,
}

/// The stream itself, while the worker is in a call into Go.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) enum View {
    #[default]
    None,
    Stream(*mut Stream<'static>),
    /// It is over, and will be logged.
    Closing(*mut Closing<'static>),
    Ended(*const Ended<'static>),
}

/// What Go's threads may touch of one message.
#[derive(Debug, Default)]
pub(crate) struct Course {
    pub(crate) headers: Mirror,
    pub(crate) trailers: Mirror,
    /// Go code may look at them and change them.
    pub(crate) headers_open: bool,
    pub(crate) trailers_open: bool,
    /// The headers have gone on: changes come too late.
    pub(crate) headers_gone: bool,
    /// Parts of the body that Go code was shown and that have not gone on.
    pub(crate) buffers: VecDeque<Buffer>,
    last_buffer: u64,
}

#[derive(Debug)]
pub(crate) struct Buffer {
    pub(crate) id: u64,
    pub(crate) bytes: Vec<u8>,
}

/// Which fields of a message are meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Headers,
    Trailers,
}

/// What the worker is to do for Go code, in order.
#[derive(Debug)]
pub(crate) enum Post {
    Continue(Side, Verdict),
    Reply(Side, Box<LocalReply>),
    Panic(Side, String),
    AddData(Side, Vec<u8>),
    Inject(Side, Vec<u8>),
    Edit(Side, Part, Edit),
    Metadata {
        namespace: String,
        key: String,
        value: Value,
    },
    FilterState {
        key: String,
        value: String,
        rules: StateRules,
    },
    ClearRoute,
    Host(UpstreamOverride),
    DrainConnection,
    Question(Question, Asker),
    /// Go code in another process changed a part of a body that it was shown.
    Body(Side, u64, Splice),
    /// Go code in another process logged the stream.
    Logged,
    /// The process that had the stream is gone.
    Lost,
}

/// A change of bytes.
#[derive(Debug, Clone)]
pub(crate) enum Splice {
    /// So many at the front are taken away.
    Drain(usize),
    Set(Vec<u8>),
    Prepend(Vec<u8>),
    Append(Vec<u8>),
}

/// Who waits for an answer.
#[derive(Debug)]
pub(crate) enum Asker {
    Goroutine(Out),
    /// Somebody in the stream's process, by a number.
    Process(u64),
    /// The same, about the stream as it was when that was told to log it.
    Log(u64),
}

/// A goroutine's question, by the number that the proxy knows it by.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) id: u64,
    pub(crate) question: Question,
    pub(crate) out: Out,
}

/// What is told of a stream's fields at its end.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Ends {
    pub(crate) request_head: Size,
    pub(crate) request_trailers: Size,
    pub(crate) response_head: Size,
    pub(crate) response_trailers: Size,
}

/// Where an answer goes: memory of a goroutine that waits for it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Out {
    pub(crate) start: *mut u64,
    pub(crate) len: *mut i32,
    /// Of properties: how it went.
    pub(crate) status: *mut i32,
}

// SAFETY: the pointers lead into memory that stays until the goroutine is woken; see `Post::Question`.
unsafe impl Send for Out {}
// SAFETY: what the views lead to is touched under the lock, while the worker that it belongs to is in a call into Go.
unsafe impl Send for Shared {}

impl Request {
    pub(crate) fn new(pool: &'static Pool) -> Request {
        let state = |is_encoding| ProcessState {
            request: ptr::null_mut(),
            is_encoding,
            state: AtomicI32::new(Phase::WaitingHeader as i32),
        };
        Request {
            go: HttpRequest {
                plugin_name: ptr::null(),
                plugin_name_len: 0,
                config_id: 0,
                worker_id: pool.worker,
                is_processing_log: AtomicI32::new(0),
            },
            states: [state(0), state(1)],
            pool,
            shared: Mutex::default(),
        }
    }

    /// Another stream begins, with a plugin's configuration of that number.
    pub(crate) fn prepare(
        &mut self,
        plugin: &'static str,
        config: u64,
        stream: u64,
        library: Option<&'static Library>,
        secrets: Secrets,
    ) {
        self.go.plugin_name = plugin.as_ptr().cast();
        self.go.plugin_name_len = plugin.len() as u64;
        self.go.config_id = config;
        let at = ptr::from_mut(&mut self.go);
        for (side, state) in Side::BOTH.into_iter().zip(&mut self.states) {
            state.request = at;
            state.is_encoding = crate::library::flag(side == Side::Response);
            *state.state.get_mut() = Phase::WaitingHeader as i32;
        }
        *self.go.is_processing_log.get_mut() = 0;
        let mut shared = self.lock();
        shared.begin();
        shared.stream = stream;
        shared.library = library;
        shared.secrets = secrets;
    }

    /// Nothing that can panic in a way that matters runs behind the lock.
    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn state(&self, side: Side) -> &ProcessState {
        let [request, response] = &self.states;
        match side {
            Side::Request => request,
            Side::Response => response,
        }
    }

    pub(crate) fn phase(&self, side: Side) -> Phase {
        Phase::of(self.state(side).state.load(Ordering::Acquire))
    }

    pub(crate) fn set_phase(&self, side: Side, phase: Phase) {
        self.state(side).state.store(phase as i32, Ordering::Release);
    }

    pub(crate) fn is_logging(&self) -> bool {
        self.go.is_processing_log.load(Ordering::Acquire) != 0
    }

    /// Go code has this message.
    pub(crate) fn is_in_go(&self, side: Side) -> bool {
        self.phase(side).is_in_go() || self.is_logging()
    }

    /// Notes what the worker is to do, and wakes it unless it is in a call into Go after which it looks anyway: after one
    /// that logs the stream it does not.
    pub(crate) fn post(&self, shared: &mut Shared, post: Post) {
        if let Some(outlet) = self.pool.outlet() {
            return outlet.post(self, shared, post);
        }
        shared.posts.push_back(post);
        let looks_anyway = matches!(shared.view, View::Stream(_));
        if !looks_anyway && !shared.woken && shared.stream != 0 {
            shared.woken = true;
            self.pool.wake(shared.stream);
        }
    }

    /// Does it at once where the stream is at hand, and notes it otherwise.
    pub(crate) fn carry_out(&self, shared: &mut Shared, post: Post) {
        if !self.pool.is_here() {
            return self.post(shared, post);
        }
        // SAFETY: this thread is the stream's worker, and the lock keeps others off. So below.
        if let Some(stream) = unsafe { shared.view.stream() } {
            post.apply(shared, stream);
        } else if let Some(info) = unsafe { shared.view.last_info() } {
            post.note(info);
        } else {
            self.post(shared, post);
        }
    }

    /// Has Go code log the stream, which goes on, with what was noted for that.
    ///
    /// # Safety
    /// The stream is one that this library was given and that is not destroyed, and `ends` says what was noted. The thread
    /// is the stream's worker.
    pub(crate) unsafe fn note(&self, library: &Library, moment: u64, ends: &Ends) {
        self.go.is_processing_log.store(1, Ordering::Release);
        // SAFETY: as promised.
        unsafe { library.entries.log(ptr::from_ref(self).cast_mut(), moment, ends) };
        self.go.is_processing_log.store(0, Ordering::Release);
        if let Some(noted) = &mut self.lock().noted {
            noted.shown = false;
        }
    }

    /// What was posted since the worker last looked.
    pub(crate) fn take_posts(&self) -> VecDeque<Post> {
        let mut shared = self.lock();
        shared.woken = false;
        std::mem::take(&mut shared.posts)
    }
}

impl Shared {
    fn dear(&mut self) -> &mut Dear {
        self.dear.get_or_insert_with(dear::take)
    }

    pub(crate) fn course(&mut self, side: Side) -> &mut Course {
        let [request, response] = &mut self.dear().courses;
        match side {
            Side::Request => request,
            Side::Response => response,
        }
    }

    pub(crate) fn courses(&mut self) -> &mut [Course; 2] {
        &mut self.dear().courses
    }

    pub(crate) fn facts(&mut self) -> &mut Facts {
        &mut self.dear().facts
    }

    /// The facts, and the place for answers.
    pub(crate) fn facts_and_slot(&mut self) -> (&Facts, &mut Vec<u8>) {
        let Shared { dear, slot, .. } = self;
        (&dear.get_or_insert_with(dear::take).facts, slot)
    }

    /// Copies a message's fields, if that is still to be done and can be.
    pub(crate) fn mirror(&mut self, side: Side, part: Part) -> &mut Mirror {
        let view = self.view;
        let course = self.course(side);
        let mirror = match part {
            Part::Headers => &mut course.headers,
            Part::Trailers => &mut course.trailers,
        };
        if !mirror.is_built() {
            // SAFETY: the view is only set while the worker is in a call into Go, and changed under this lock.
            unsafe { view.with_fields(side, part, |each| mirror.build(each)) };
        }
        mirror
    }

    /// The object serves another stream.
    pub(crate) fn begin(&mut self) {
        self.destroyed = false;
        self.dear = Some(dear::take());
    }

    pub(crate) fn announce_all(&mut self, ends: &Ends) {
        let [request, response] = self.courses();
        request.headers.announce(ends.request_head);
        request.trailers.announce(ends.request_trailers);
        response.headers.announce(ends.response_head);
        response.trailers.announce(ends.response_trailers);
    }

    /// Go code is told of all fields once more, to log them. `answered`: there is a response.
    pub(crate) fn open_all(&mut self, ends: &Ends, answered: bool) {
        for (side, trailers) in [(Side::Request, ends.request_trailers), (Side::Response, ends.response_trailers)] {
            let course = self.course(side);
            course.headers_open = side == Side::Request || answered;
            course.trailers_open = trailers.0 > 0;
        }
    }

    /// The stream is over. Go code may still hold what it read of its fields, until it gives the object back.
    pub(crate) fn end(&mut self) {
        self.destroyed = true;
        self.view = View::None;
        self.posts.clear();
        self.asked.clear();
        self.woken = false;
        self.stream = 0;
        self.secrets = Secrets::default();
        if let Some(dear) = self.dear.take() {
            dear::give_back(dear, &mut self.left);
        }
    }

    /// Go code has let go of all that it read.
    pub(crate) fn forget(&mut self) {
        self.left = Left::default();
        self.noted = None;
        self.slot.clear();
        self.slot.shrink_to(KEPT_SLOT);
    }
}

impl Course {
    /// The stream is over. What Go code may still read of it goes to `left`.
    pub(crate) fn reset(&mut self, left: &mut Left) {
        self.headers.reset(left);
        self.trailers.reset(left);
        self.headers_open = false;
        self.trailers_open = false;
        self.headers_gone = false;
        self.buffers.clear();
    }

    pub(crate) fn push(&mut self, bytes: Vec<u8>) -> u64 {
        self.last_buffer += 1;
        self.buffers.push_back(Buffer { id: self.last_buffer, bytes });
        self.last_buffer
    }

    /// A part of a body that has this number elsewhere, where only those in `held` have not gone on.
    pub(crate) fn show(&mut self, id: u64, bytes: Vec<u8>, held: &[u64]) {
        self.keep(held);
        self.buffers.push_back(Buffer { id, bytes });
    }

    pub(crate) fn keep(&mut self, held: &[u64]) {
        self.buffers.retain(|buffer| held.contains(&buffer.id));
    }

    pub(crate) fn buffer(&mut self, id: u64) -> Option<&mut Vec<u8>> {
        self.buffers.iter_mut().find(|buffer| buffer.id == id).map(|buffer| &mut buffer.bytes)
    }
}

impl Post {
    /// Changes the stream. Other posts are the session's.
    pub(crate) fn apply(self, shared: &mut Shared, stream: &mut Stream<'_>) {
        match self {
            Post::Edit(side, part, edit) => {
                let gone = part == Part::Headers && shared.course(side).headers_gone;
                match (part, side) {
                    _ if gone => {}
                    (Part::Headers, Side::Request) => heads::edit_request(stream.request, &edit),
                    (Part::Headers, Side::Response) => heads::edit_response(stream.response, &edit),
                    (Part::Trailers, Side::Request) => heads::edit_fields(stream.request_trailers, &edit),
                    (Part::Trailers, Side::Response) => heads::edit_fields(stream.response_trailers, &edit),
                }
            }
            note @ (Post::Metadata { .. } | Post::FilterState { .. }) => note.note(stream.info),
            Post::ClearRoute => stream.info.route_is_stale = true,
            Post::Host(chosen) => stream.info.upstream_override = Some(chosen),
            Post::DrainConnection => stream.info.drain_connection = true,
            Post::Body(side, id, splice) => {
                if let Some(buffer) = shared.course(side).buffer(id) {
                    splice.make(buffer);
                }
            }
            Post::Continue(..)
            | Post::Reply(..)
            | Post::Panic(..)
            | Post::AddData(..)
            | Post::Inject(..)
            | Post::Question(..)
            | Post::Logged
            | Post::Lost => {}
        }
    }
}

impl Post {
    /// What may still be said of a stream that is over; anything else comes too late.
    pub(crate) fn note(self, info: &mut StreamInfo) {
        match self {
            Post::Metadata { namespace, key, value } => info.metadata.set(&namespace, &key, value),
            Post::FilterState { key, value, rules } => state::set(info, &key, &value, rules),
            _ => {}
        }
    }
}

impl Splice {
    pub(crate) fn make(self, buffer: &mut Vec<u8>) {
        match self {
            Splice::Drain(count) => drop(buffer.drain(..count.min(buffer.len()))),
            Splice::Set(bytes) => *buffer = bytes,
            Splice::Prepend(bytes) => drop(buffer.splice(..0, bytes)),
            Splice::Append(bytes) => buffer.extend_from_slice(&bytes),
        }
    }
}

impl View {
    pub(crate) fn of(stream: &mut Stream<'_>) -> View {
        View::Stream(ptr::from_mut(stream).cast())
    }

    pub(crate) fn of_closing(closing: &mut Closing<'_>) -> View {
        View::Closing(ptr::from_mut(closing).cast())
    }

    pub(crate) fn of_ended(ended: &Ended<'_>) -> View {
        View::Ended(ptr::from_ref(ended).cast())
    }

    /// # Safety
    /// The view is that of the locked stream, whose worker is in a call into Go.
    unsafe fn with_fields(self, side: Side, part: Part, build: impl FnOnce(&dyn Fn(&mut dyn FnMut(&[u8], &[u8])))) {
        // SAFETY: as promised: the worker touches neither while it is in Go but through this lock.
        let (request, response, trailers, tls) = match self {
            View::None => return,
            View::Stream(stream) => {
                let stream = unsafe { &*stream };
                let trailers = match side {
                    Side::Request => &*stream.request_trailers,
                    Side::Response => &*stream.response_trailers,
                };
                (&*stream.request, &*stream.response, trailers, stream.info.tls.is_some())
            }
            // SAFETY: the same.
            View::Closing(closing) => {
                let closing = unsafe { &*closing };
                let trailers = match side {
                    Side::Request => closing.request_trailers,
                    Side::Response => closing.response_trailers,
                };
                (closing.request, closing.response, trailers, closing.info.tls.is_some())
            }
            // SAFETY: the same.
            View::Ended(ended) => {
                let ended = unsafe { &*ended };
                let trailers = match side {
                    Side::Request => ended.request_trailers,
                    Side::Response => ended.response_trailers,
                };
                (ended.request, ended.response, trailers, ended.info.tls.is_some())
            }
        };
        match (part, side) {
            (Part::Headers, Side::Request) => build(&|call| heads::each_of_request(request, tls, call)),
            (Part::Headers, Side::Response) => build(&|call| heads::each_of_response(response, call)),
            (Part::Trailers, _) => build(&|call| heads::each_of(trailers, call)),
        }
    }

    /// Calls with the stream as it is; `None` outside of calls into Go.
    ///
    /// # Safety
    /// This thread is the stream's worker, and holds its lock.
    pub(crate) unsafe fn with_seen<T>(self, call: impl FnOnce(&Seen<'_>) -> T) -> Option<T> {
        match self {
            View::None => None,
            View::Stream(stream) => {
                // SAFETY: the call into Go that this thread is in was given the stream.
                Some(call(&Seen::of(unsafe { &*stream })))
            }
            View::Closing(closing) => {
                // SAFETY: the same.
                Some(call(&Seen::of_ended(&unsafe { &*closing }.as_ended())))
            }
            View::Ended(ended) => {
                // SAFETY: the same.
                Some(call(&Seen::of_ended(unsafe { &*ended })))
            }
        }
    }

    /// The stream, to change it; `None` outside of calls into Go, and at its end.
    ///
    /// # Safety
    /// As for [`View::with_seen`], and nobody else uses the stream meanwhile.
    pub(crate) unsafe fn stream<'s>(self) -> Option<&'s mut Stream<'static>> {
        match self {
            // SAFETY: as promised.
            View::Stream(stream) => unsafe { stream.as_mut() },
            View::None | View::Closing(_) | View::Ended(_) => None,
        }
    }

    /// What is known of a stream that is over, to note more; `None` unless it will be logged.
    ///
    /// # Safety
    /// As for [`View::stream`].
    pub(crate) unsafe fn last_info<'s>(self) -> Option<&'s mut StreamInfo> {
        match self {
            // SAFETY: as promised.
            View::Closing(closing) => unsafe { closing.as_mut() }.map(|closing| &mut *closing.info),
            View::None | View::Stream(_) | View::Ended(_) => None,
        }
    }
}

/// Go's collector has found that nobody refers to the stream any more.
///
/// # Safety
/// `request` is an object that a library was given, and this is the last that it does with it.
pub(crate) unsafe fn finalize(request: *mut c_void) {
    let request = request.cast::<Request>();
    if request.is_null() {
        return;
    }
    // SAFETY: the object lives until it is given back here.
    let pool = unsafe { (*request).pool };
    pool.give_back(request);
}
