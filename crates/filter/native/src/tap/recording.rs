//! What is kept of one stream, and the traces that become of it.

use std::rc::Rc;
use std::time::SystemTime;

use postrider_filter_api::{Flags, StreamInfo};
use postrider_grpc::core::{Address, HeaderMap, HeaderValue};
use postrider_grpc::tap::body::BodyType;
use postrider_grpc::tap::http_buffered_trace::Message as Half;
use postrider_grpc::tap::http_streamed_trace_segment::MessagePiece;
use postrider_grpc::tap::trace_wrapper::Trace;
use postrider_grpc::tap::{Body, Connection, HttpBufferedTrace, HttpStreamedTraceSegment, TraceWrapper};

use super::config::{Config, Held};
use super::predicate::{Part, Predicate, Progress, Side, Verdict};
use crate::wire::{to_address, to_timestamp};

/// Names with their values.
pub(super) type Shown = Vec<(String, String)>;

/// One stream that may turn out to be tapped.
pub(super) struct Recording {
    /// In names of files and in segments.
    number: u64,
    tap: Rc<Held>,
    progress: Progress,
    request: Kept,
    response: Kept,
    /// It is known that segments are wanted.
    is_streaming: bool,
    /// Something went out.
    is_told: bool,
    /// Traces that found no room.
    pub(super) lost: u64,
}

/// What is kept of a message.
#[derive(Default)]
struct Kept {
    headers: Option<Shown>,
    received: Option<SystemTime>,
    body: Option<Bytes>,
    trailers: Option<Shown>,
}

/// The beginning of a body, or of what came of it since a segment.
#[derive(Default)]
struct Bytes {
    kept: Vec<u8>,
    truncated: bool,
}

impl Recording {
    pub(super) fn new(tap: Rc<Held>, number: u64) -> Recording {
        Recording {
            progress: tap.predicate.begin(),
            number,
            tap,
            request: Kept::default(),
            response: Kept::default(),
            is_streaming: false,
            is_told: false,
            lost: 0,
        }
    }

    /// Headers or trailers came. `false` when nothing can make this stream a tapped one any more; so for the others.
    pub(super) fn see_fields<'f>(
        &mut self,
        side: Side,
        part: Part,
        shown: Shown,
        lines: impl Fn(&str) -> Vec<&'f [u8]>,
        now: Option<SystemTime>,
    ) -> bool {
        self.predicate(|predicate, progress| predicate.see_fields(progress, (side, part), lines));
        let kept = self.kept(side);
        match part {
            Part::Headers => (kept.headers, kept.received) = (Some(shown), now),
            Part::Trailers => kept.trailers = Some(shown),
        }
        self.go_on()
    }

    /// All of it becomes one trace.
    pub(super) fn is_whole(&self) -> bool {
        !self.tap.streams
    }

    /// What the upstream was sent: filters behind this one and the route have changed the request's headers.
    pub(super) fn see_final_request(&mut self, shown: Shown) {
        if let Some(headers) = &mut self.request.headers {
            *headers = shown;
        }
    }

    /// A piece of a body came.
    pub(super) fn see_body(&mut self, side: Side, piece: &[u8]) -> bool {
        if piece.is_empty() {
            return true;
        }
        self.predicate(|predicate, progress| predicate.see_body(progress, side, piece));
        let limit = match side {
            Side::Request => self.tap.received,
            Side::Response => self.tap.sent,
        };
        let body = self.kept(side).body.get_or_insert_default();
        let room = limit.saturating_sub(body.kept.len());
        body.kept.extend_from_slice(piece.get(..room).unwrap_or(piece));
        body.truncated |= piece.len() > room;
        self.go_on()
    }

    /// The stream is over; whether it was tapped.
    pub(super) fn end(&mut self, config: &Config, info: &StreamInfo) -> bool {
        let is_meant = self.verdict().matches && (!self.tap.only_failed || has_failed(info));
        if !is_meant || self.tap.streams {
            return is_meant || self.is_streaming;
        }
        let request = std::mem::take(&mut self.request);
        let response = std::mem::take(&mut self.response);
        let connection = |local: Option<Address>, remote: Option<Address>| Connection {
            local_address: local,
            remote_address: remote,
        };
        let upstream = info.upstream_remote.as_deref().and_then(|remote| remote.parse().ok());
        self.submit(Trace::HttpBufferedTrace(HttpBufferedTrace {
            request: request.half(),
            response: response.half(),
            downstream_connection: config.record_downstream.then(|| {
                connection(
                    info.downstream_local.map(to_address),
                    info.downstream_remote.or(info.downstream_direct_remote).map(to_address),
                )
            }),
            // Empty where there was none.
            upstream_connection: config
                .record_upstream
                .then(|| connection(info.upstream_local.map(to_address), upstream.map(to_address))),
        }));
        true
    }

    fn predicate(&mut self, see: impl FnOnce(&Predicate, &mut Progress)) {
        see(&self.tap.predicate, &mut self.progress);
    }

    fn verdict(&self) -> Verdict {
        self.tap.predicate.verdict(&self.progress)
    }

    fn kept(&mut self, side: Side) -> &mut Kept {
        match side {
            Side::Request => &mut self.request,
            Side::Response => &mut self.response,
        }
    }

    /// Sends what is there, where pieces are wanted and it is known that they are.
    fn go_on(&mut self) -> bool {
        if self.is_streaming {
            self.flush();
            return true;
        }
        let verdict = self.verdict();
        if self.tap.streams && verdict.matches {
            self.is_streaming = true;
            self.flush();
        }
        verdict.matches || !verdict.is_settled
    }

    fn flush(&mut self) {
        let request = std::mem::take(&mut self.request);
        let response = std::mem::take(&mut self.response);
        let pieces = [
            request.headers.map(|shown| MessagePiece::RequestHeaders(header_map(shown))),
            request.body.map(|body| MessagePiece::RequestBodyChunk(body.message())),
            request.trailers.map(|shown| MessagePiece::RequestTrailers(header_map(shown))),
            response.headers.map(|shown| MessagePiece::ResponseHeaders(header_map(shown))),
            response.body.map(|body| MessagePiece::ResponseBodyChunk(body.message())),
            response.trailers.map(|shown| MessagePiece::ResponseTrailers(header_map(shown))),
        ];
        for piece in pieces.into_iter().flatten() {
            self.submit(Trace::HttpStreamedTraceSegment(HttpStreamedTraceSegment {
                trace_id: self.number,
                message_piece: Some(piece),
            }));
        }
    }

    fn submit(&mut self, trace: Trace) {
        let is_first = !std::mem::replace(&mut self.is_told, true);
        let rate = self.tap.sampling.filter(|_| is_first).map(|sampling| sampling.told);
        let trace = TraceWrapper { trace: Some(trace), configured_sample_rate: rate };
        self.lost += self.tap.outlet.submit(self.number, is_first, trace);
    }
}

impl Kept {
    /// `None` when nothing was seen of the message.
    fn half(self) -> Option<Half> {
        if self.headers.is_none() && self.body.is_none() && self.trailers.is_none() {
            return None;
        }
        Some(Half {
            headers: header_values(self.headers.unwrap_or_default()),
            body: self.body.map(Bytes::message),
            trailers: header_values(self.trailers.unwrap_or_default()),
            headers_received_time: self.received.map(to_timestamp),
        })
    }
}

impl Bytes {
    fn message(self) -> Body {
        Body { truncated: self.truncated, body_type: Some(BodyType::AsBytes(self.kept)) }
    }
}

fn header_map(shown: Shown) -> HeaderMap {
    HeaderMap { headers: header_values(shown) }
}

fn header_values(shown: Shown) -> Vec<HeaderValue> {
    shown.into_iter().map(|(key, value)| HeaderValue { key, value, raw_value: Vec::new() }).collect()
}

/// The answer says that the server failed, there was none, or something else went wrong of which the log tells.
fn has_failed(info: &StreamInfo) -> bool {
    info.status == 0 || info.status >= 500 || info.flags != Flags::default()
}
