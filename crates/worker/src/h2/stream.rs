//! One stream as the pipeline's connection: reads give the message's body in the form of HTTP/1, writes take it plain.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use h2::client::{ResponseFuture, SendRequest};
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::HeaderMap;
use postrider_filter_api::Meter;
use postrider_http::{BodyFraming, FieldLine, Fields, HeaderId, Method, Reject, RequestHead, ResponseHead};

use super::fields;
use super::meter::{ConnectionMeter, StreamMeter, size_of_answer};
use super::text::{self, Question, Reading};

/// The most that one write hands to the `h2` crate, and the least room in which a chunk is worth its frame.
const WRITE_BYTES: usize = 64 * 1024;
const LEAST_ROOM: usize = 64;

/// What a chunk has around its bytes at most: sixteen digits and two line breaks.
const CHUNK_OVERHEAD: usize = 20;

/// Shown in the log.
const NO_EXTENDED_CONNECT: &str = "the upstream takes no extended CONNECT";

pub(crate) struct Stream {
    peer: Peer,
    /// What the peer sends; none before an upstream's answer began.
    recv: Option<RecvStream>,
    /// Received, and not read yet.
    piece: Bytes,
    reading: Reading,
    /// The head means nothing in HTTP/1.
    refused: Option<Reject>,
    /// Bytes of HTTP/1's own that come before anything else.
    words: Vec<u8>,
    /// All of the body was read.
    ended: bool,
    /// What came behind a tunnel's last byte.
    trailers: Option<Box<HeaderMap>>,
    send: Option<SendStream<Bytes>>,
    /// Bytes of the body that were promised and not written yet.
    promised: Option<u64>,
    /// Nothing more may be written.
    finished: bool,
    /// The peer gave the stream up, and not its connection.
    is_reset: bool,
    /// Where a log tells what the stream takes.
    meter: Option<Box<StreamMeter>>,
}

/// Who is at the other end, and how its message or ours begins.
enum Peer {
    Client(SendResponse<Bytes>),
    Upstream {
        connection: SendRequest<Bytes>,
        answer: Option<ResponseFuture>,
        asked: Asked,
        /// As [`Stream::meter`], before there is a stream.
        metered: Option<ConnectionMeter>,
    },
}

/// See [`Question`].
enum Asked {
    Usual,
    Head,
    Connect,
    Upgrade { protocol: Vec<u8>, key: Option<Vec<u8>> },
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stream").field("ended", &self.ended).field("finished", &self.finished).finish_non_exhaustive()
    }
}

impl Stream {
    /// A client's request, whose head was read.
    pub(super) fn of_client(
        recv: RecvStream,
        respond: SendResponse<Bytes>,
        read: Result<Reading, Reject>,
        meter: Option<StreamMeter>,
    ) -> Stream {
        let meter = meter.map(Box::new);
        let ended = recv.is_end_stream();
        let (reading, refused) = (read.unwrap_or(Reading::Plain), read.err());
        Stream { recv: Some(recv), reading, refused, ended, meter, ..Stream::new(Peer::Client(respond)) }
    }

    /// See [`crate::io::Io::framed`].
    pub(crate) fn framed(&self, framing: BodyFraming) -> BodyFraming {
        if self.reading == Reading::Counted { framing.over_http2() } else { framing }
    }

    /// Why the request is refused although its head could be read.
    pub(crate) fn take_refusal(&mut self) -> Option<Reject> {
        self.refused.take()
    }

    /// For one request on `connection`.
    pub(crate) fn to_upstream(connection: SendRequest<Bytes>, metered: Option<ConnectionMeter>) -> Stream {
        Stream::new(Peer::Upstream { connection, answer: None, asked: Asked::Usual, metered })
    }

    /// What the stream took so far; `None` where nobody follows it.
    pub(crate) fn meter(&self) -> Option<Meter> {
        self.meter.as_ref().map(|meter| meter.read())
    }

    /// Ready when all that was said is on its way, and counted.
    pub(crate) fn poll_sent(&self, cx: &mut Context<'_>) -> Poll<()> {
        match &self.meter {
            Some(meter) => meter.poll_sent(cx),
            None => Poll::Ready(()),
        }
    }

    fn new(peer: Peer) -> Stream {
        Stream {
            peer,
            recv: None,
            piece: Bytes::new(),
            reading: Reading::Plain,
            refused: None,
            words: Vec::new(),
            ended: false,
            trailers: None,
            send: None,
            promised: None,
            finished: false,
            is_reset: false,
            meter: None,
        }
    }

    /// Sends a request's head. A body of `framing` follows; `upgrade`: the connection is to become what its `Upgrade` says.
    ///
    /// # Errors
    /// The upstream takes no more streams, or the request has no form in HTTP/2, or none that this upstream knows.
    pub(crate) fn send_request(&mut self, head: &RequestHead, framing: BodyFraming, upgrade: bool) -> io::Result<()> {
        let Peer::Upstream { connection, answer, asked, metered } = &mut self.peer else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        *asked = Asked::by(head, upgrade);
        let protocol = match asked {
            // RFC 8441 section 3: nobody may be asked who did not say so.
            Asked::Upgrade { .. } if !connection.is_extended_connect_protocol_enabled() => {
                return Err(io::Error::other(NO_EXTENDED_CONNECT));
            }
            Asked::Upgrade { protocol, .. } => Some(protocol.as_slice()),
            Asked::Usual | Asked::Head | Asked::Connect => None,
        };
        let tunnel = protocol.is_some() || head.method() == Method::Connect;
        let ended = !tunnel && matches!(framing, BodyFraming::None | BodyFraming::Length(0));
        let request = fields::request(head, framing, protocol)?;
        let parts = metered.is_some().then(|| request.clone().into_parts().0);
        let (response, send) = connection.send_request(request, ended).map_err(broken)?;
        if let (Some(of), Some(parts)) = (metered, parts) {
            let mut meter = StreamMeter::claim(of, send.stream_id().as_u32());
            meter.sends_request(&parts);
            self.meter = Some(Box::new(meter));
        }
        *answer = Some(response);
        if tunnel {
            self.reading = Reading::Tunnel;
        }
        self.promise(framing, ended);
        self.send = Some(send);
        Ok(())
    }

    fn promise(&mut self, framing: BodyFraming, ended: bool) {
        self.promised = match framing {
            BodyFraming::Length(length) => Some(length),
            // Behind a counted one trailers may follow.
            BodyFraming::None | BodyFraming::Counted(_) | BodyFraming::Chunked | BodyFraming::UntilClose => None,
        };
        self.finished = ended;
    }

    /// Sends the answer's head, and says how large its names and values are. A body of `framing` follows, unless `ended`.
    ///
    /// # Errors
    /// The client has gone.
    pub(crate) fn send_head(
        &mut self,
        head: &ResponseHead,
        framing: BodyFraming,
        keep_length: bool,
        server: Option<&FieldLine>,
        ended: bool,
    ) -> io::Result<u64> {
        let Peer::Client(respond) = &mut self.peer else { return Err(io::ErrorKind::Unsupported.into()) };
        let response = fields::response(head, framing, keep_length, server);
        let bytes = size_of_answer(response.headers());
        if let Some(meter) = &mut self.meter {
            meter.sends_answer(&response);
        }
        self.send = Some(respond.send_response(response, ended).map_err(broken)?);
        self.promise(framing, ended);
        Ok(bytes)
    }

    /// Tells a client that waits for it to send its body (RFC 9110 section 15.2.1).
    pub(crate) fn send_continue(&mut self) {
        let mut interim = http::Response::new(());
        *interim.status_mut() = http::StatusCode::CONTINUE;
        self.inform(interim);
    }

    /// Passes on what an upstream says before its answer (RFC 9110 section 15.2).
    pub(crate) fn send_interim(&mut self, head: &ResponseHead) {
        self.inform(fields::response(head, BodyFraming::None, false, None));
    }

    fn inform(&mut self, interim: http::Response<()>) {
        if let (Peer::Client(respond), None) = (&mut self.peer, &self.send) {
            // Who cannot be told has gone, which the next read finds out, too.
            let _ = respond.send_informational(interim);
        }
    }

    /// The message is complete; `trailers` may be empty.
    pub(crate) fn finish(&mut self, trailers: &Fields) {
        if self.reading == Reading::Tunnel && matches!(self.peer, Peer::Upstream { .. }) {
            // The head was all of the request, but what follows it may be a tunnel's.
            return;
        }
        let Some(send) = self.send.as_mut().filter(|_| !self.finished) else { return };
        self.finished = true;
        // One that failed already has nobody to tell.
        let _ = match trailers.is_empty() {
            true => send.send_data(Bytes::new(), true),
            false => send.send_trailers(fields::trailers(trailers)),
        };
    }

    /// In a tunnel: nothing more comes from here. Other messages end with their last part.
    pub(crate) fn end(&mut self) {
        if self.reading != Reading::Tunnel || self.finished {
            return;
        }
        if let Some(send) = &mut self.send {
            self.finished = true;
            // One that failed already has nobody to tell.
            let _ = send.send_data(Bytes::new(), true);
        }
    }

    /// The trailers of a tunnel that the peer ended.
    pub(crate) fn take_trailers(&mut self) -> Fields {
        let mut fields = Fields::new();
        for (name, value) in self.trailers.take().iter().flat_map(|trailers| trailers.iter()) {
            // One that HTTP/1 could not have says nothing here either.
            let _ = fields.append_name(name.as_str().as_bytes(), value.as_bytes());
        }
        fields
    }

    /// The answer breaks off, or there is none: the client sees that.
    pub(crate) fn reset(&mut self) {
        // RFC 9113 section 8.5: the other end of a tunnel failed.
        let failed = self.reading == Reading::Tunnel && self.send.is_some();
        let reason = if failed { Reason::CONNECT_ERROR } else { Reason::INTERNAL_ERROR };
        if !self.finished {
            self.finished = true;
            match (&mut self.peer, &mut self.send) {
                (_, Some(send)) => send.send_reset(reason),
                (Peer::Client(respond), None) => respond.send_reset(reason),
                (Peer::Upstream { .. }, None) => {}
            }
        }
    }

    /// A request is under way here whose answer, or whose own end, is still to come: letting go of it resets the stream.
    pub(crate) fn is_cut_off(&self) -> bool {
        let Peer::Upstream { answer: Some(_), .. } = &self.peer else { return false };
        let all_heard = self.ended || self.recv.as_ref().is_some_and(RecvStream::is_end_stream);
        !(all_heard && self.finished)
    }

    /// See [`crate::io::Io::poll_read`]. Behind the end nothing comes but the news that the client has gone.
    #[inline(never)]
    pub(crate) fn poll_read(&mut self, cx: &mut Context<'_>, room: &mut [u8]) -> Poll<io::Result<usize>> {
        loop {
            if !self.words.is_empty() {
                let count = self.words.len().min(room.len());
                if let (Some(room), Some(words)) = (room.get_mut(..count), self.words.get(..count)) {
                    room.copy_from_slice(words);
                }
                self.words.drain(..count);
                return Poll::Ready(Ok(count));
            }
            if !self.piece.is_empty() {
                if self.reading == Reading::Chunked && room.len() < LEAST_ROOM {
                    let mut small = [0; 4 * LEAST_ROOM];
                    let count = self.take(&mut small);
                    self.words.extend_from_slice(small.get(..count).unwrap_or_default());
                    continue;
                }
                return Poll::Ready(Ok(self.take(room)));
            }
            if self.ended {
                return match self.reading {
                    Reading::Tunnel => Poll::Ready(Ok(0)),
                    Reading::Plain | Reading::Counted | Reading::Chunked => self.poll_gone(cx).map(Err),
                };
            }
            let Some(recv) = &mut self.recv else {
                ready!(self.poll_answer(cx))?;
                continue;
            };
            match ready!(recv.poll_data(cx)) {
                Some(Ok(piece)) => self.piece = piece,
                Some(Err(error)) => return Poll::Ready(Err(self.failed(error))),
                None => {
                    let trailers = match ready!(recv.poll_trailers(cx)) {
                        Ok(trailers) => trailers,
                        Err(error) => return Poll::Ready(Err(self.failed(error))),
                    };
                    self.ended = true;
                    match self.reading {
                        Reading::Counted | Reading::Chunked => text::write_end(trailers.as_ref(), &mut self.words),
                        Reading::Tunnel => self.trailers = trailers.map(Box::new),
                        Reading::Plain => {}
                    }
                }
            }
        }
    }

    /// Reads an upstream's head.
    fn poll_answer(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Peer::Upstream { answer, asked, .. } = &mut self.peer else {
            return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
        };
        // Filters may hold the request back: nothing comes before it was asked.
        let Some(answer) = answer else { return Poll::Pending };
        let response = ready!(Pin::new(answer).poll(cx)).map_err(broken)?;
        let (parts, recv) = response.into_parts();
        if let Some(meter) = &mut self.meter {
            meter.receives_answer(&parts);
        }
        self.ended = recv.is_end_stream();
        self.reading = text::write_response(&parts, self.ended, asked.question(), &mut self.words);
        self.recv = Some(recv);
        Poll::Ready(Ok(()))
    }

    /// See [`crate::io::Io::poll_readable`].
    #[inline(never)]
    pub(crate) fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.words.is_empty() || !self.piece.is_empty() {
            return Poll::Ready(Ok(()));
        }
        if self.ended {
            return match self.reading {
                Reading::Tunnel => Poll::Ready(Ok(())),
                Reading::Plain | Reading::Counted | Reading::Chunked => self.poll_gone(cx).map(|_| Ok(())),
            };
        }
        let Some(recv) = &mut self.recv else { return self.poll_answer(cx) };
        // What else there is, reading will tell.
        if let Some(Ok(piece)) = ready!(recv.poll_data(cx)) {
            self.piece = piece;
        }
        Poll::Ready(Ok(()))
    }

    /// See [`crate::io::Io::poll_write`].
    #[inline(never)]
    pub(crate) fn poll_write(&mut self, cx: &mut Context<'_>, parts: &[&[u8]]) -> Poll<io::Result<usize>> {
        let Some(send) = self.send.as_mut().filter(|_| !self.finished) else {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        };
        let wanted = parts.iter().map(|part| part.len()).sum::<usize>().min(WRITE_BYTES);
        if wanted == 0 {
            return Poll::Ready(Ok(0));
        }
        send.reserve_capacity(wanted);
        let mut room = send.capacity();
        while room == 0 {
            room = match ready!(send.poll_capacity(cx)) {
                Some(room) => room.map_err(broken)?,
                None => return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            };
        }
        let count = wanted.min(room);
        let bytes = gather(parts, count);
        self.promised = self.promised.map(|promised| promised.saturating_sub(count as u64));
        self.finished = self.promised == Some(0);
        send.send_data(bytes, self.finished).map_err(broken)?;
        Poll::Ready(Ok(count))
    }

    /// Copies some of the piece to `room`, as a chunk where that is asked for; answers how much is there.
    fn take(&mut self, room: &mut [u8]) -> usize {
        let chunked = self.reading == Reading::Chunked;
        let overhead = if chunked { CHUNK_OVERHEAD } else { 0 };
        let count = self.piece.len().min(room.len().saturating_sub(overhead));
        let mut rest = room;
        let before = rest.len();
        let piece = self.piece.split_to(count);
        if chunked {
            // Room was kept for this.
            let _ = io::Write::write_fmt(&mut rest, format_args!("{count:x}\r\n"));
        }
        let _ = io::Write::write_all(&mut rest, piece.chunk());
        if chunked {
            let _ = io::Write::write_all(&mut rest, b"\r\n");
        }
        // The client may send as much again. A stream that is gone has no window any more.
        let _ = self.recv.as_mut().map(|recv| recv.flow_control().release_capacity(count));
        before - rest.len()
    }

    /// Ready when the peer gave the stream up.
    pub(crate) fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        if self.finished {
            return Poll::Pending;
        }
        let reset = match (&mut self.send, &mut self.peer) {
            (Some(send), _) => ready!(send.poll_reset(cx)),
            (None, Peer::Client(respond)) => ready!(respond.poll_reset(cx)),
            (None, Peer::Upstream { .. }) => return Poll::Pending,
        };
        Poll::Ready(match reset {
            Ok(reason) => {
                // What the codec ends for an error of the peer's has other reasons.
                self.is_reset = matches!(
                    reason,
                    Reason::CANCEL | Reason::NO_ERROR | Reason::INTERNAL_ERROR | Reason::REFUSED_STREAM
                );
                io::ErrorKind::ConnectionReset.into()
            }
            Err(error) => self.failed(error),
        })
    }

    /// What comes from the peer broke off.
    #[cold]
    fn failed(&mut self, error: h2::Error) -> io::Error {
        self.is_reset = error.is_reset() && error.is_remote();
        broken(error)
    }

    /// The head said how long the body is, so that the codec counts its bytes.
    pub(crate) fn counts_bytes(&self) -> bool {
        matches!(self.reading, Reading::Plain | Reading::Counted)
    }

    /// The peer gave the stream up, and not its connection.
    pub(crate) fn is_reset_by_peer(&self) -> bool {
        self.is_reset
    }
}

impl Asked {
    fn by(head: &RequestHead, upgrade: bool) -> Asked {
        match head.method() {
            Method::Connect => Asked::Connect,
            _ if upgrade => Asked::Upgrade {
                protocol: head.fields.get(HeaderId::Upgrade).unwrap_or_default().to_ascii_lowercase(),
                key: head.fields.get_name(b"sec-websocket-key").map(<[u8]>::to_vec),
            },
            Method::Head => Asked::Head,
            _ => Asked::Usual,
        }
    }

    fn question(&self) -> Question<'_> {
        match self {
            Asked::Usual => Question::Usual,
            Asked::Head => Question::Head,
            Asked::Connect => Question::Connect,
            Asked::Upgrade { protocol, key } => Question::Upgrade { protocol, key: key.as_deref() },
        }
    }
}

fn gather(parts: &[&[u8]], count: usize) -> Bytes {
    let mut bytes = Vec::with_capacity(count);
    for part in parts {
        let rest = count - bytes.len();
        bytes.extend_from_slice(part.get(..rest).unwrap_or(part));
    }
    bytes.into()
}

fn broken(error: h2::Error) -> io::Error {
    if error.is_io() {
        return error.into_io().unwrap_or_else(|| io::ErrorKind::ConnectionReset.into());
    }
    io::Error::new(io::ErrorKind::ConnectionReset, error)
}
