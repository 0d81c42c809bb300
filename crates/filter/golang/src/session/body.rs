//! Bodies and trailers: what came and waits, what Go code is shown of it, and what goes on.

use std::borrow::Cow;

use postrider_filter_api::{Action, Flow, LocalReply, Stream};

use super::enter::Call;
use super::{Session, held};
use crate::abi::{Phase, Verdict};
use crate::bells::Side;
use crate::heads;
use crate::mirror::size_of;

impl Session {
    /// A piece of the body came.
    pub(crate) fn body(&mut self, side: Side, stream: &mut Stream<'_>, end: bool) -> Action {
        let way = self.way(side);
        if !way.taken {
            return Action::Continue;
        }
        append(&mut way.pending, held(side, stream).take());
        way.ended |= end;
        self.drain(side, stream);
        self.pump(side, stream);
        self.answer(side)
    }

    pub(crate) fn trailers(&mut self, side: Side, stream: &mut Stream<'_>) -> Action {
        let way = self.way(side);
        if !way.taken {
            return Action::Continue;
        }
        way.trailers_came = true;
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
            held(side, stream).put(std::mem::take(&mut way.out));
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
        self.take_down(side);
        self.flush(side);
        let way = self.way(side);
        let pending = std::mem::take(&mut way.pending);
        append(&mut way.out, pending);
        held(side, stream).put(std::mem::take(&mut way.out));
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
                    self.show_trailers(side, stream);
                }
                Phase::Done => {
                    way.continued.clear();
                    let pending = std::mem::take(&mut way.pending);
                    append(&mut way.out, pending);
                    return;
                }
                // Nothing is in Go: what was said too often is not for what comes next.
                _ => return way.continued.clear(),
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
            self.wants_more();
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
            append(&mut way.out, buffer.bytes);
        }
        way.head_free |= !way.out.is_empty();
    }

    /// The message is answered, and nothing of it is left.
    pub(super) fn replied(&mut self, side: Side, reply: Box<LocalReply>) -> Box<LocalReply> {
        self.take_down(side);
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
}

/// Without a copy where nothing is there yet.
fn append(to: &mut Vec<u8>, bytes: Vec<u8>) {
    if to.is_empty() { *to = bytes } else { to.extend_from_slice(&bytes) }
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
