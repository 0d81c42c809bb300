//! One worker's streams in the process of their library: what the proxy says is done, one after the other, on one thread,
//! as Go code expects of a worker.

use std::collections::HashMap;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::configs::Configs;
use super::frames::{Fields, Order};
use super::outlet;
use super::ring::Segment;
use super::wire::Take;
use crate::abi::{DESTROYED_EARLY, DESTROYED_NORMALLY, LOG_AT_END, Phase, Verdict};
use crate::bells::Side;
use crate::epoch::Epoch;
use crate::library::Library;
use crate::mirror::{Each, Mirror, Size, size_of};
use crate::noted::Noted;
use crate::pool::Pool;
use crate::questions::{Answer, Secrets};
use crate::request::{Ends, Request};

pub(super) struct Stage {
    pool: &'static Pool,
    library: &'static Library,
    configs: Arc<Configs>,
    /// Where the proxy sees whether a call ends.
    segment: Arc<Segment>,
    streams: HashMap<u64, NonNull<Request>>,
}

impl Stage {
    pub(super) fn new(
        pool: &'static Pool,
        library: &'static Library,
        configs: Arc<Configs>,
        segment: Arc<Segment>,
    ) -> Stage {
        Stage { pool, library, configs, segment, streams: HashMap::new() }
    }

    /// Until the proxy is gone.
    pub(super) fn run(&mut self) {
        let Some(outlet) = self.pool.outlet() else { return };
        let segment = self.segment.clone();
        let busy = segment.busy(self.pool.worker as usize);
        loop {
            let (stream, frame) = outlet::next(outlet);
            // Odd while something is done.
            busy.fetch_add(1, Ordering::Relaxed);
            match Order::read(Take(&frame)) {
                Some(Order::Begin { config }) => self.begin(stream, config),
                Some(order) => self.carry_out(stream, order),
                None => super::serve::leave(),
            }
            busy.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn begin(&mut self, stream: u64, config: u64) {
        let Some((plugin, id)) = self.configs.wait(config) else {
            if let Some(outlet) = self.pool.outlet() {
                outlet.refuse(stream, "its configuration was refused when its process started again");
            }
            return;
        };
        if let Some(request) = NonNull::new(self.pool.take()) {
            // SAFETY: nobody else has the object.
            unsafe { &mut *request.as_ptr() }.prepare(plugin, id, stream, Some(self.library), Secrets::default());
            self.streams.insert(stream, request);
        }
    }

    fn carry_out(&mut self, stream: u64, order: Order<'_>) {
        let Some(at) = self.streams.get(&stream).copied() else { return };
        // SAFETY: the object lives until Go's collector has it, which is after its stream was destroyed here.
        let request = unsafe { at.as_ref() };
        let entries = &self.library.entries;
        match order {
            Order::Begin { .. } => {}
            Order::Head { side, end, facts, fields } => {
                let size = {
                    let mut shared = request.lock();
                    shared.facts().take_from(&mut Take(facts));
                    let course = shared.course(side);
                    course.headers_open = true;
                    fill(&mut course.headers, &fields)
                };
                self.enter(request, side, Phase::ProcessingHeader, |state| {
                    // SAFETY: the state is of the stream's object; the fields are announced as they are.
                    unsafe { (entries.on_header)(state, u64::from(end), size.0 as u64, size.1 as u64) }
                });
            }
            Order::Data { side, end, buffer, held, bytes } => {
                request.lock().course(side).show(buffer, bytes.to_vec(), &held);
                self.enter(request, side, Phase::ProcessingData, |state| {
                    // SAFETY: the state is of the stream's object; the buffer is one of its.
                    unsafe { (entries.on_data)(state, u64::from(end), buffer, bytes.len() as u64) }
                });
            }
            Order::Trailers { side, held, fields } => {
                let size = {
                    let mut shared = request.lock();
                    let course = shared.course(side);
                    course.keep(&held);
                    course.trailers_open = true;
                    fill(&mut course.trailers, &fields)
                };
                self.enter(request, side, Phase::ProcessingTrailer, |state| {
                    // SAFETY: the state is of the stream's object; the fields are announced as they are.
                    unsafe { (entries.on_header)(state, 1, size.0 as u64, size.1 as u64) }
                });
            }
            Order::Answer { question, answer } => self.answer(request, question, answer),
            Order::Log { moment, facts, request: head, response, trailers } if moment != LOG_AT_END => {
                let [request_trailers, response_trailers] = &trailers;
                let answered = response.is_some();
                let response = response.unwrap_or_default();
                let response: Each<'_> = &|call| each(&response, call);
                let (noted, ends) = Noted::of(
                    &|call| each(&head, call),
                    answered.then_some(response),
                    [&|call| each(request_trailers, call), &|call| each(response_trailers, call)],
                );
                {
                    let mut shared = request.lock();
                    shared.facts().take_from(&mut Take(facts));
                    shared.noted = Some(Box::new(noted));
                }
                // SAFETY: the stream is the library's, and not destroyed; this thread calls into Go for it.
                unsafe { request.note(self.library, moment, &ends) };
                self.logged(stream);
            }
            Order::Log { facts, request: head, response, trailers: [request_trailers, response_trailers], .. } => {
                let sizes = {
                    let mut shared = request.lock();
                    shared.facts().take_from(&mut Take(facts));
                    shared.posts.clear();
                    let [decoding, encoding] = shared.courses();
                    Ends {
                        request_head: fill(&mut decoding.headers, &head),
                        request_trailers: fill(&mut decoding.trailers, &request_trailers),
                        response_head: fill(&mut encoding.headers, response.as_ref().unwrap_or(&Fields::new())),
                        response_trailers: fill(&mut encoding.trailers, &response_trailers),
                    }
                };
                if self.library.has(Epoch::E4) {
                    request.lock().open_all(&sizes, response.is_some());
                }
                request.go.is_processing_log.store(1, Ordering::Release);
                // SAFETY: the stream is the library's, and not destroyed; the fields are announced as they are.
                unsafe { entries.end(at.as_ptr(), &sizes) };
                request.go.is_processing_log.store(0, Ordering::Release);
                self.logged(stream);
            }
            Order::Destroy { early } => {
                self.streams.remove(&stream);
                request.lock().end();
                let reason = if early { DESTROYED_EARLY } else { DESTROYED_NORMALLY };
                // SAFETY: the stream is the library's, and is destroyed once. Go's collector may have the object from here.
                unsafe { (entries.on_destroy)(at.as_ptr().cast(), reason) };
            }
        }
    }

    fn enter(
        &self,
        request: &Request,
        side: Side,
        phase: Phase,
        call: impl FnOnce(*mut crate::abi::ProcessState) -> u64,
    ) {
        request.set_phase(side, phase);
        let state = ptr::from_ref(request.state(side)).cast_mut();
        let verdict = Verdict::of(call(state));
        if let Some(outlet) = self.pool.outlet() {
            outlet.told(request, side, verdict);
        }
    }

    fn logged(&self, stream: u64) {
        if let Some(outlet) = self.pool.outlet() {
            outlet.logged(stream);
        }
    }

    /// A goroutine waits for it.
    fn answer(&self, request: &Request, question: u64, answer: Answer) {
        {
            let mut shared = request.lock();
            let shared = &mut *shared;
            let Some(at) = shared.asked.iter().position(|asked| asked.id == question) else { return };
            let asked = shared.asked.swap_remove(at);
            // SAFETY: the goroutine that asked waits until it is woken below.
            unsafe { asked.out.fill(&asked.question, answer, &mut shared.slot) };
        }
        // SAFETY: the stream is the library's, and not destroyed.
        unsafe { (self.library.entries.answered)(ptr::from_ref(request).cast_mut().cast()) };
    }
}

fn each(fields: &Fields<'_>, call: &mut dyn FnMut(&[u8], &[u8])) {
    fields.iter().for_each(|(name, value)| call(name, value));
}

/// Copies fields for Go's threads, and says how much there is.
fn fill(mirror: &mut Mirror, fields: &Fields<'_>) -> Size {
    let size = size_of(&|call| each(fields, call));
    mirror.announce(size);
    mirror.build(&|call| each(fields, call));
    size
}
