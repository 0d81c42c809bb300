//! One request of a filter's own on one connection: what is sent, and what comes back, both at once.

use std::rc::Rc;
use std::task::{Context, Poll};

use postrider_filter_api::{Answer, BridgeFacts, Heard, Moment, Outgoing};
use postrider_h1::{BodyDecoder, HeadScan, ResponseParse, parse_response, write_chunk, write_last_chunk};
use postrider_http::{
    Asked, BodyFraming, Connection as Persistence, Fields, HeaderId, Method, RequestHead, RequestWrite, ResponseFacts,
    ResponseHead, ResponseRules, Scheme, capitalize_names, write_request,
};
use postrider_model::NameForm;
use postrider_telemetry::stats::sets::cluster as stat;

use super::Payload;
use super::feed::Fed;
use super::tried::Tried;
use crate::cluster::{Cluster, Upstream};
use crate::http::Reset;
use crate::io::Io;
use crate::worker::Worker;

/// An answer with a larger body is a failure: filters hold it in memory.
const MAX_ANSWER_BYTES: usize = 1 << 20;

/// The request on one connection.
pub(super) struct Attempt<'a> {
    worker: &'a Rc<Worker>,
    cluster: &'a Rc<Cluster>,
    /// `None` once it went back to its pool.
    upstream: Option<Box<Upstream>>,
    method: Method,
    out: Vec<u8>,
    sent: usize,
    scan: HeadScan,
    pub(super) head: ResponseHead,
    facts: ResponseFacts,
    /// `None` while the final head has not come.
    decoder: Option<BodyDecoder>,
    trailers: Fields,
    body: Vec<u8>,
    /// Some of an answer came.
    heard: bool,
    /// What brings the body.
    payload: Payload<'a>,
    tried: &'a Tried<'a>,
    /// The host is not to blame: the rest of that does not come, or there is no room for the answer.
    pub(super) given_up: bool,
    chunked: bool,
    /// What is left of the length that the request was given, where it comes piece by piece.
    promised: Option<u64>,
    /// Some of that was taken, so that it cannot be sent once more.
    pub(super) fed: bool,
    /// All of the body is in `out` or sent.
    complete: bool,
    /// Since then.
    pub(super) completed: Option<Moment>,
    /// What stands behind the body.
    after: Fields,
    /// A filter that hears the answer in pieces knows that there is no more of it.
    told_end: bool,
}

/// The connection or the answer is no good.
pub(super) struct Broken {
    pub(super) heard: bool,
    /// The peer closed the connection, or it broke.
    pub(super) ended: bool,
    /// What became of the request.
    pub(super) reset: Reset,
}

impl<'a> Attempt<'a> {
    pub(super) fn new(
        mut upstream: Box<Upstream>,
        head: &RequestHead,
        payload: Payload<'a>,
        tried: &'a Tried<'a>,
        (worker, cluster): (&'a Rc<Worker>, &'a Rc<Cluster>),
    ) -> Attempt<'a> {
        let (body, in_pieces) = match payload {
            Payload::Whole(body) => (body, None),
            Payload::Fed(copied) => (&[][..], Some(copied.framing)),
            Payload::Piped(piped) => (&[][..], piped.framing),
        };
        let framing = match (body.len(), head.method()) {
            _ if let Some(framing) = in_pieces => framing,
            // RFC 9110 section 8.6: a method that means a body says that there is none.
            (0, Method::Post | Method::Put | Method::Patch) => BodyFraming::Length(0),
            // A filter may want to say it, too.
            (0, _) if head.fields.has(HeaderId::ContentLength) => BodyFraming::Length(0),
            (0, _) => BodyFraming::None,
            (length, _) => BodyFraming::Length(length as u64),
        };
        let absolute = cluster.absolute_targets.then_some(head.scheme().unwrap_or(Scheme::Http));
        let options = RequestWrite { framing, connection: Persistence::Implicit, absolute, extra: &[] };
        let mut out = Vec::new();
        match &mut upstream.io {
            // One that takes no more streams shows when its answer is read.
            Io::Http2(stream) => drop(stream.send_request(head, framing, false)),
            Io::Bridged(bridged) => {
                bridged.ask(head, framing, &BridgeFacts { table: "", cluster: &cluster.name, tls: false });
            }
            Io::Plain(_) | Io::Tls(_) | Io::Filtered(_) => {
                write_request(head, &options, &mut out);
                if cluster.names == NameForm::ProperCase {
                    capitalize_names(&mut out);
                }
            }
        }
        let chunked = framing == BodyFraming::Chunked && !upstream.io.takes_plain_bodies();
        out.extend_from_slice(body);
        Attempt {
            worker,
            cluster,
            upstream: Some(upstream),
            method: head.method(),
            out,
            sent: 0,
            scan: HeadScan::new(),
            head: ResponseHead::new(),
            facts: ResponseFacts::default(),
            decoder: None,
            trailers: Fields::new(),
            body: Vec::new(),
            heard: false,
            payload,
            tried,
            given_up: false,
            chunked,
            promised: in_pieces.and_then(BodyFraming::length),
            fed: false,
            complete: in_pieces.is_none(),
            completed: in_pieces.is_none().then(|| worker.clock.now()),
            after: Fields::new(),
            told_end: false,
        }
    }

    /// Sends and reads as far as that goes, both at once: an answer may come before all was sent.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        let Some(mut upstream) = self.upstream.take() else { return Poll::Ready(Err(self.broken())) };
        let polled = self.poll_with(&mut upstream, cx);
        self.upstream = Some(upstream);
        polled
    }

    fn poll_with(&mut self, upstream: &mut Upstream, cx: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        loop {
            let Some(rest) = self.out.get(self.sent..).filter(|rest| !rest.is_empty()) else {
                match self.take_more(upstream, cx) {
                    Ok(true) => continue,
                    Ok(false) => break,
                    Err(broken) => return Poll::Ready(Err(broken)),
                }
            };
            match upstream.io.poll_write(cx, rest) {
                Poll::Ready(Ok(count @ 1..)) => {
                    self.sent += count;
                    upstream.stats().add(stat::UPSTREAM_CX_TX_BYTES_TOTAL, count as u64);
                }
                // It may have answered before it closed: reading will tell.
                Poll::Ready(_) | Poll::Pending => break,
            }
        }
        let buffers = &self.worker.buffers;
        loop {
            if let Payload::Piped(piped) = self.payload
                && piped.pipe.poll_wanted(cx).is_pending()
            {
                return Poll::Pending;
            }
            let before = upstream.input.bytes().len();
            if before > 0 {
                match self.read(upstream) {
                    Ok(true) => return Poll::Ready(Ok(())),
                    Ok(false) if upstream.input.bytes().len() < before => continue,
                    Ok(false) => {}
                    Err(broken) => return Poll::Ready(Err(broken)),
                }
            }
            match upstream.input.poll_fill(cx, &mut upstream.io, upstream.buffer_limit, buffers) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(count @ 1..)) => {
                    self.heard = true;
                    upstream.stats().add(stat::UPSTREAM_CX_RX_BYTES_TOTAL, count as u64);
                }
                Poll::Ready(ended) => {
                    upstream.peer_ended();
                    if ended.is_ok() && self.decoder.as_mut().is_some_and(|d| d.end_of_input().is_ok()) {
                        return Poll::Ready(Ok(()));
                    }
                    let reset = match self.is_half_an_answer(upstream) {
                        true => {
                            upstream.refuse_answer();
                            Reset::ProtocolError
                        }
                        false => Reset::of(upstream, ended.as_ref().err()),
                    };
                    reset.count(upstream, ended.as_ref().err(), self.heard);
                    return Poll::Ready(Err(Broken { heard: self.heard, ended: true, reset }));
                }
            }
        }
    }

    /// Takes what came of a body that comes piece by piece; `false` when there is nothing to send.
    fn take_more(&mut self, upstream: &mut Upstream, cx: &mut Context<'_>) -> Result<bool, Broken> {
        if let Payload::Whole(_) = self.payload {
            return Ok(false);
        }
        if self.complete {
            // All of it was handed over: a stream is told that nothing follows.
            match &mut upstream.io {
                Io::Http2(stream) => stream.finish(&self.after),
                Io::Bridged(bridged) => bridged.finish(),
                Io::Plain(_) | Io::Tls(_) | Io::Filtered(_) => {}
            }
            if let Payload::Fed(copied) = self.payload
                && let Some(record) = &copied.record
            {
                record.complete();
            }
            return Ok(false);
        }
        let (bytes, end) = match self.payload {
            Payload::Whole(_) => return Ok(false),
            Payload::Fed(copied) => {
                let Poll::Ready(fed) = copied.feed.poll_take(cx) else { return Ok(false) };
                let Some(Fed { bytes, ended }) = fed else {
                    self.given_up = true;
                    return Err(self.broken());
                };
                if let Some(record) = &copied.record {
                    record.add_sent(bytes.len());
                }
                self.fed |= !bytes.is_empty();
                (bytes, ended.then(Fields::new))
            }
            Payload::Piped(piped) => {
                let Poll::Ready(Outgoing { bytes, end }) = piped.pipe.poll_outgoing(cx) else { return Ok(false) };
                self.fed = true;
                self.count_down(bytes.len() as u64, end.is_some())?;
                (bytes, end)
            }
        };
        self.out.clear();
        self.sent = 0;
        match self.chunked {
            true if bytes.is_empty() => {}
            true => write_chunk(&bytes, &mut self.out),
            false => self.out = bytes,
        }
        if let Some(trailers) = end {
            self.complete = true;
            self.completed = Some(self.worker.clock.now());
            if self.chunked {
                let forwarded = self.cluster.plan.model.upstream.enable_trailers;
                write_last_chunk(if forwarded { &trailers } else { &self.after }, &mut self.out);
            } else {
                self.after = trailers;
            }
        }
        Ok(true)
    }

    /// RFC 9112 section 6.2: a body is as long as the head says.
    fn count_down(&mut self, more: u64, ended: bool) -> Result<(), Broken> {
        let Some(promised) = &mut self.promised else { return Ok(()) };
        match promised.checked_sub(more) {
            Some(left) if left == 0 || !ended => {
                *promised = left;
                Ok(())
            }
            _ => {
                self.given_up = true;
                Err(self.broken())
            }
        }
    }

    /// A connection of HTTP/1 has brought some of an answer, and not all.
    fn is_half_an_answer(&self, upstream: &Upstream) -> bool {
        let is_http1 = !matches!(upstream.io, Io::Http2(_) | Io::Bridged(_));
        is_http1 && (self.decoder.is_some() || !upstream.input.is_empty())
    }

    /// Reads from what is there; `true` when the answer is complete.
    fn read(&mut self, upstream: &mut Upstream) -> Result<bool, Broken> {
        let limits = self.cluster.response_limits();
        let buffers = &self.worker.buffers;
        let Some(decoder) = &mut self.decoder else {
            let asked = Asked { method: self.method, upgrade: false };
            let rules = ResponseRules { limits };
            return match parse_response(upstream.input.bytes(), asked, &rules, &mut self.scan, &mut self.head) {
                ResponseParse::Partial => Ok(false),
                ResponseParse::Complete { consumed, mut facts } => {
                    facts.framing = upstream.io.framed(facts.framing);
                    upstream.input.consume(consumed, buffers);
                    if facts.tunnel {
                        return Err(self.broken());
                    }
                    if !facts.interim {
                        self.answered(&facts);
                        self.decoder = Some(BodyDecoder::new(facts.framing, limits));
                    }
                    Ok(!facts.interim && !facts.framing.has_body())
                }
                ResponseParse::Reject(_) => {
                    upstream.refuse_answer();
                    Err(Broken { reset: Reset::ProtocolError, ..self.broken() })
                }
            };
        };
        let Ok(decoded) = decoder.decode(upstream.input.bytes(), &mut self.trailers) else {
            upstream.refuse_answer();
            return Err(Broken { heard: true, reset: Reset::ProtocolError, ..self.broken() });
        };
        let data = upstream.input.bytes().get(decoded.data).unwrap_or_default();
        let piece = match self.payload {
            Payload::Whole(_) => {
                self.body.extend_from_slice(data);
                None
            }
            Payload::Fed(copied) => {
                if let Some(record) = &copied.record {
                    record.add_received(data.len());
                }
                None
            }
            Payload::Piped(_) => Some(data.to_vec()),
        };
        upstream.input.consume(decoded.consumed, buffers);
        if let Some(piece) = piece {
            self.tell(piece, decoded.done);
        }
        if self.body.len() > MAX_ANSWER_BYTES {
            self.given_up = true;
            return Err(Broken { heard: true, ..self.broken() });
        }
        Ok(decoded.done)
    }

    /// The head of the answer came.
    fn answered(&mut self, facts: &ResponseFacts) {
        self.facts = *facts;
        self.tried.answered(&self.head);
        self.tried.count(self.head.status() < 500);
        match self.payload {
            Payload::Whole(_) => {}
            Payload::Fed(copied) => {
                if let Some(record) = &copied.record {
                    record.answered(&self.head);
                }
            }
            Payload::Piped(piped) => {
                self.told_end = !facts.framing.has_body();
                piped.pipe.deliver(Heard::Head(Box::new(self.head.clone()), self.told_end));
            }
        }
    }

    /// Hands on what came of the body to a filter that hears it in pieces.
    fn tell(&mut self, piece: Vec<u8>, done: bool) {
        let Payload::Piped(piped) = self.payload else { return };
        let is_last = done && self.trailers.is_empty();
        if !piece.is_empty() || is_last && !self.told_end {
            piped.pipe.deliver(Heard::Body(piece, is_last));
        }
        if done && !self.trailers.is_empty() {
            piped.pipe.deliver(Heard::Trailers(Box::new(std::mem::take(&mut self.trailers))));
        }
        self.told_end |= done;
    }

    fn broken(&self) -> Broken {
        Broken { heard: self.heard, ended: false, reset: Reset::ConnectionTermination }
    }

    pub(super) fn is_reused(&self) -> bool {
        self.upstream.as_ref().is_some_and(|upstream| upstream.is_reused())
    }

    /// Keeps the connection for the next request if it is in sync.
    pub(super) fn finish(mut self) -> Answer {
        if !self.told_end {
            // It ended with its connection.
            self.tell(Vec::new(), true);
        }
        if let Some(upstream) = self.upstream.take() {
            let clean =
                self.facts.persistent && self.complete && self.sent == self.out.len() && upstream.input.is_empty();
            if clean && self.decoder.as_ref().is_some_and(BodyDecoder::is_done) {
                self.cluster.put_back(upstream, self.worker.clock.now());
            } else {
                drop(upstream);
                self.cluster.gone();
            }
        }
        Answer {
            head: std::mem::take(&mut self.head),
            body: std::mem::take(&mut self.body),
            trailers: std::mem::take(&mut self.trailers),
        }
    }
}

impl Drop for Attempt<'_> {
    /// An attempt that did not finish leaves a connection that cannot be used again.
    fn drop(&mut self) {
        if self.upstream.take().is_some() {
            self.cluster.gone();
        }
    }
}
