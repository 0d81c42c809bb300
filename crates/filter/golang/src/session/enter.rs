//! Calls into Go, be it in this process or in one of its own.

use std::ptr;
use std::sync::atomic::Ordering;

use postrider_filter_api::{Closing, Ended, Stream};
use postrider_filter_trial::observe::{self, Event as Seen};

use super::Session;
use crate::abi::{LOG_AT_END, Verdict};
use crate::bells::Side;
use crate::epoch::Epoch;
use crate::heads;
use crate::library::{Library, OnComplete};
use crate::mirror::{Each, Size, size_of};
use crate::noted::Noted;
use crate::parsed::Home;
use crate::request::{Ends, Part, Post, View};

/// What Go code is shown.
#[derive(Debug, Clone, Copy)]
pub(super) enum Call {
    Head { end: bool, size: Size },
    Data { end: bool, buffer: u64, len: usize },
    Trailers { size: Size },
}

impl Session {
    /// Calls into Go.
    pub(super) fn enter(&self, side: Side, stream: &mut Stream<'_>, call: Call) -> Verdict {
        let Home::Here(library) = self.config.home else {
            self.enter_apart(side, stream, call);
            return Verdict::Running;
        };
        let (sampled, observed) = (self.plugin.sampling.take().is_some(), observe::is_on());
        let began = (sampled || observed).then(|| stream.host.now());
        let request = self.request();
        {
            let mut shared = request.lock();
            let cluster = stream.cluster();
            shared.facts().take(stream.request, stream.info, stream.route, cluster.as_deref());
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
        if let (Some(took), true) = (took, observed) {
            let in_body_hook = matches!(call, Call::Data { .. });
            observe::note(Seen::Ran { side: side.into(), in_body_hook, took, memory: 0 });
        }
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
                shared.facts().take(stream.request, stream.info, stream.route, cluster.as_deref());
                let tls = stream.info.tls.is_some();
                match side {
                    Side::Request => lane.head(self.stream, side, end, shared.facts(), &|call| {
                        heads::each_of_request(stream.request, tls, call);
                    }),
                    Side::Response => lane.head(self.stream, side, end, shared.facts(), &|call| {
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

    /// The stream is logged while it goes on.
    pub(super) fn note_here(&self, library: &Library, moment: u64, ended: &Ended<'_>) {
        let tls = ended.info.tls.is_some();
        let response: Each<'_> = &|call| heads::each_of_response(ended.response, call);
        let (noted, ends) = Noted::of(
            &|call| heads::each_of_request(ended.request, tls, call),
            (ended.info.status != 0).then_some(response),
            [&|call| heads::each_of(ended.request_trailers, call), &|call| {
                heads::each_of(ended.response_trailers, call)
            }],
        );
        let request = self.request();
        {
            let mut shared = request.lock();
            shared.facts().take(ended.request, ended.info, ended.route, None);
            shared.view = View::of_ended(ended);
            shared.noted = Some(Box::new(noted));
        }
        // SAFETY: the stream is the library's, and not destroyed; the fields are announced as they are.
        unsafe { request.note(library, moment, &ends) };
        request.lock().view = View::None;
    }

    /// Tells of the stream's end.
    pub(super) fn complete_here(&self, on_complete: OnComplete, closing: &mut Closing<'_>) {
        let request = self.request();
        {
            let mut shared = request.lock();
            shared.facts().take(closing.request, closing.info, closing.route, None);
            shared.view = View::of_closing(closing);
        }
        request.go.is_processing_log.store(1, Ordering::Release);
        // SAFETY: the stream is the library's, and not destroyed.
        unsafe { on_complete(self.request.as_ptr().cast()) };
        request.go.is_processing_log.store(0, Ordering::Release);
        request.lock().view = View::None;
    }

    /// Has the stream logged as it ended.
    pub(super) fn end_here(&self, library: &Library, ended: &Ended<'_>) {
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
            shared.facts().take(ended.request, ended.info, ended.route, None);
            shared.view = View::of_ended(ended);
            if library.has(Epoch::E4) {
                shared.announce_all(&ends);
                shared.open_all(&ends, answered);
            }
        }
        request.go.is_processing_log.store(1, Ordering::Release);
        // SAFETY: the stream is the library's, and not destroyed; the fields are announced as they are.
        unsafe { library.entries.log(self.request.as_ptr(), LOG_AT_END, &ends) };
        request.go.is_processing_log.store(0, Ordering::Release);
        request.lock().view = View::None;
    }

    /// The same of one that is logged in another process, be it over or not.
    #[inline(never)]
    pub(super) fn log_apart(&self, moment: u64, ended: &Ended<'_>) {
        let Some(lane) = self.lane.as_ref().filter(|lane| lane.has(self.stream)) else { return };
        let mut shared = self.request().lock();
        shared.facts().take(ended.request, ended.info, ended.route, None);
        let shared = &mut *shared;
        let secrets = shared.secrets.clone();
        lane.log(self.stream, moment, shared.facts(), ended, &secrets);
    }
}
