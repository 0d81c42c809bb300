//! Where what Go code decides leaves its process.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::frames::{self, Order};
use super::posts;
use super::ring::{Reader, Writer};
use super::wire::Take;
use crate::abi::{Phase, Verdict};
use crate::bells::Side;
use crate::questions::{Answer, Question};
use crate::request::{Asked, Asker, Post, Request, Shared};

/// The way back to one worker, for all threads of the process.
#[derive(Debug)]
pub(crate) struct Outlet {
    writer: Mutex<Writer>,
    questions: AtomicU64,
}

/// What the worker says, on the thread that calls into Go for it.
#[derive(Debug)]
struct Inlet {
    reader: Reader,
    bytes: Vec<u8>,
    /// Frames that were read and not looked at.
    frames: VecDeque<(u64, Vec<u8>)>,
}

thread_local! {
    static INLET: RefCell<Option<Inlet>> = const { RefCell::new(None) };
}

/// The calling thread serves this worker.
pub(super) fn listen(reader: Reader) {
    INLET.set(Some(Inlet { reader, bytes: Vec::new(), frames: VecDeque::new() }));
}

/// The next frame: its stream, and what it says. Ends the process when the proxy is gone.
pub(super) fn next(outlet: &Outlet) -> (u64, Vec<u8>) {
    INLET.with_borrow_mut(|inlet| match inlet {
        Some(inlet) => match inlet.frames.pop_front() {
            Some(frame) => frame,
            None => {
                inlet.fill(outlet);
                inlet.frames.pop_front().unwrap_or_default()
            }
        },
        None => super::serve::leave(),
    })
}

impl Inlet {
    /// Waits for at least one frame more.
    fn fill(&mut self, outlet: &Outlet) {
        let before = self.frames.len();
        loop {
            let read = self.reader.read(&mut self.bytes).ok().and_then(|_| frames::split(&mut self.bytes));
            let Some(whole) = read else { super::serve::leave() };
            let mut all = Take(&whole);
            while let Some((stream, frame)) = frames::next(&mut all) {
                self.frames.push_back((stream, frame.0.to_vec()));
            }
            if self.frames.len() > before {
                return;
            }
            if self.reader.wait().is_err() {
                super::serve::leave();
            }
            // It may be that there is room now.
            outlet.flush();
        }
    }

    /// The answer to a question of `stream`; `None` when the stream is over, unless one comes all the same.
    fn answer(&mut self, outlet: &Outlet, stream: u64, question: u64, behind_end: bool) -> Option<Answer> {
        let mut looked_at = 0;
        loop {
            while let Some((of, frame)) = self.frames.get(looked_at) {
                match Order::read(Take(frame)) {
                    Some(Order::Answer { question: to, answer }) if *of == stream && to == question => {
                        self.frames.remove(looked_at);
                        return Some(answer);
                    }
                    Some(Order::Destroy { .. }) if *of == stream && !behind_end => return None,
                    _ => looked_at += 1,
                }
            }
            self.fill(outlet);
        }
    }
}

impl Outlet {
    pub(super) fn new(writer: Writer) -> Outlet {
        Outlet { writer: Mutex::new(writer), questions: AtomicU64::new(0) }
    }

    /// What Go code decided, from any of its threads.
    pub(crate) fn post(&self, request: &Request, shared: &mut Shared, post: Post) {
        let question = match &post {
            Post::Question(question, Asker::Goroutine(out)) => {
                let id = self.question();
                shared.asked.push(Asked { id, question: question.clone(), out: *out });
                id
            }
            _ => 0,
        };
        let hurries = match &post {
            Post::Continue(side, verdict) => {
                settle(request, shared, *side, *verdict);
                true
            }
            Post::Reply(..) | Post::Panic(..) | Post::Inject(..) | Post::Question(..) => true,
            _ => false,
        };
        self.send(shared.stream, &post, question);
        // On the thread of the worker's calls that is done when the call has ended.
        if hurries && !request.pool.is_here() {
            self.wake();
        }
    }

    /// Asks from within a call into Go, which ends with the answer; `None` when the stream is over.
    pub(crate) fn ask(&self, stream: u64, question: &Question) -> Option<Answer> {
        let id = self.question();
        self.ask_as(stream, question, Asker::Process(id), id)
    }

    /// The same from within a call that logs the stream, about how it was then.
    pub(crate) fn ask_of_log(&self, stream: u64, question: &Question) -> Option<Answer> {
        let id = self.question();
        self.ask_as(stream, question, Asker::Log(id), id)
    }

    fn ask_as(&self, stream: u64, question: &Question, asker: Asker, id: u64) -> Option<Answer> {
        let behind_end = matches!(asker, Asker::Log(_));
        self.send(stream, &Post::Question(question.clone(), asker), id);
        self.wake();
        INLET.with_borrow_mut(|inlet| inlet.as_mut()?.answer(self, stream, id, behind_end))
    }

    /// A call that logs the stream ended.
    pub(super) fn logged(&self, stream: u64) {
        self.send(stream, &Post::Logged, 0);
        self.wake();
    }

    /// A call into Go ended so.
    pub(super) fn told(&self, request: &Request, side: Side, verdict: Verdict) {
        if !matches!(verdict, Verdict::Running | Verdict::Replied) {
            let mut shared = request.lock();
            settle(request, &mut shared, side, verdict);
            self.send(shared.stream, &Post::Continue(side, verdict), 0);
        }
        self.wake();
    }

    /// A stream cannot be served.
    pub(super) fn refuse(&self, stream: u64, why: &str) {
        self.send(stream, &Post::Panic(Side::Request, why.to_owned()), 0);
        self.wake();
    }

    fn question(&self) -> u64 {
        self.questions.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn send(&self, stream: u64, post: &Post, question: u64) {
        let mut put = frames::begin(stream);
        posts::put(&mut put, post, question);
        if self.writer().send(&frames::end(put)).is_err() {
            super::serve::leave();
        }
    }

    /// What found no room before. Its reader may have read all that was there, and wait.
    fn flush(&self) {
        let mut writer = self.writer();
        if writer.is_behind() {
            if writer.flush().is_err() {
                super::serve::leave();
            }
            writer.wake();
        }
    }

    fn wake(&self) {
        self.writer().wake();
    }

    /// A panic with the lock held ends the process.
    fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the worker will do when it hears of it is done here, too: Go code has the message no more.
fn settle(request: &Request, shared: &mut Shared, side: Side, verdict: Verdict) {
    let phase = request.phase(side);
    let course = shared.course(side);
    match (phase, verdict) {
        (Phase::ProcessingHeader, Verdict::Continue) => course.headers_open = false,
        (Phase::ProcessingData, Verdict::Continue) => course.buffers.clear(),
        (Phase::ProcessingTrailer, Verdict::Continue) => {
            course.buffers.clear();
            course.trailers_open = false;
        }
        (Phase::ProcessingData, Verdict::StopNoBuffer) => drop(course.buffers.pop_back()),
        _ => {}
    }
    request.set_phase(side, Phase::WaitingData);
}
