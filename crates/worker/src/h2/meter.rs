//! Bytes that each stream takes on its connection, frame by frame: for logs that tell them. Where none does, nothing is
//! followed.
//!
//! ```text
//! Wire ──every byte──> Taps ──heads of frames──> ConnectionMeter <──reads, and forgets── StreamMeter, of a Stream
//! ```

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use http::{HeaderMap, request, response};
use postrider_filter_api::{Meter, Metered};

use super::heads::{CONTINUATION, DATA, END_STREAM, HEADERS, Head, Heads, RST_STREAM};

/// What the streams of one connection took so far.
#[derive(Clone, Default)]
pub(crate) struct ConnectionMeter(Rc<RefCell<Streams>>);

#[derive(Default)]
struct Streams {
    counts: HashMap<u32, Counts>,
    /// The last stream that the peer opened: what comes for one before it, and is not known, is over.
    opened: u32,
    /// Nothing more is sent.
    closed: bool,
}

#[derive(Default)]
struct Counts {
    meter: Meter,
    /// Somebody will ask, and forget it.
    claimed: bool,
    /// All that there was to say was handed to the connection.
    sent_all: bool,
    waker: Option<Waker>,
}

/// Follows both directions of a connection.
pub(super) struct Taps {
    received: Heads,
    sent: Heads,
    meter: ConnectionMeter,
}

impl Taps {
    pub(super) fn of_server(meter: ConnectionMeter) -> Taps {
        Taps { received: Heads::of_client(), sent: Heads::of_server(), meter }
    }

    pub(super) fn of_client(meter: ConnectionMeter) -> Taps {
        Taps { received: Heads::of_server(), sent: Heads::of_client(), meter }
    }

    pub(super) fn received(&mut self, bytes: &[u8]) {
        let mut streams = self.meter.0.borrow_mut();
        self.received.feed(bytes, |head| streams.received(head));
    }

    pub(super) fn sent(&mut self, bytes: &[u8]) {
        let mut streams = self.meter.0.borrow_mut();
        self.sent.feed(bytes, |head| streams.sent(head));
    }
}

impl Drop for Taps {
    fn drop(&mut self) {
        let mut streams = self.meter.0.borrow_mut();
        streams.closed = true;
        streams.counts.values_mut().filter_map(|counts| counts.waker.take()).for_each(Waker::wake);
    }
}

impl Streams {
    fn received(&mut self, head: Head) {
        if head.kind == HEADERS && head.stream > self.opened {
            self.opened = head.stream;
            self.counts.entry(head.stream).or_default();
        }
        self.forget_unheard(head);
        if let Some(counts) = self.counts.get_mut(&head.stream) {
            add(&mut counts.meter.received, head);
        }
    }

    fn sent(&mut self, head: Head) {
        self.forget_unheard(head);
        let Some(counts) = self.counts.get_mut(&head.stream) else { return };
        add(&mut counts.meter.sent, head);
        let is_last = matches!(head.kind, HEADERS | DATA) && head.flags & END_STREAM != 0;
        if is_last || head.kind == RST_STREAM {
            counts.sent_all = true;
            if let Some(waker) = counts.waker.take() {
                waker.wake();
            }
        }
    }

    /// A stream that was reset before anybody saw it.
    fn forget_unheard(&mut self, head: Head) {
        if head.kind == RST_STREAM && self.counts.get(&head.stream).is_some_and(|counts| !counts.claimed) {
            self.counts.remove(&head.stream);
        }
    }
}

/// Control frames carry nothing of a message, and count for none, as in Envoy.
fn add(metered: &mut Metered, head: Head) {
    if let HEADERS | CONTINUATION | DATA = head.kind {
        metered.wire += head.frame_bytes();
        metered.head += if head.kind == DATA { 0 } else { head.frame_bytes() };
    }
}

/// One stream's share.
pub(crate) struct StreamMeter {
    of: ConnectionMeter,
    stream: u32,
    /// Names and values of the heads.
    plain_received: u64,
    plain_sent: u64,
}

impl StreamMeter {
    /// Of a request that a client sent.
    pub(super) fn of_request(of: &ConnectionMeter, stream: u32, parts: &request::Parts) -> StreamMeter {
        let mut meter = StreamMeter::claim(of, stream);
        meter.plain_received = size_of_request(parts);
        meter
    }

    /// Of a request that was sent to an upstream.
    pub(super) fn claim(of: &ConnectionMeter, stream: u32) -> StreamMeter {
        of.0.borrow_mut().counts.entry(stream).or_default().claimed = true;
        StreamMeter { of: of.clone(), stream, plain_received: 0, plain_sent: 0 }
    }

    pub(super) fn sends_request(&mut self, parts: &request::Parts) {
        self.plain_sent += size_of_request(parts);
    }

    pub(super) fn sends_answer(&mut self, response: &http::Response<()>) {
        self.plain_sent += size_of_answer(response.headers());
    }

    pub(super) fn receives_answer(&mut self, parts: &response::Parts) {
        self.plain_received += size_of_answer(&parts.headers);
    }

    /// What the stream took so far.
    pub(crate) fn read(&self) -> Meter {
        let mut meter = self.of.0.borrow().counts.get(&self.stream).map(|counts| counts.meter).unwrap_or_default();
        meter.received.plain_head = self.plain_received;
        meter.sent.plain_head = self.plain_sent;
        meter
    }

    /// Ready when all that was said is on its way.
    pub(crate) fn poll_sent(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut streams = self.of.0.borrow_mut();
        let closed = streams.closed;
        match streams.counts.get_mut(&self.stream) {
            Some(counts) if !counts.sent_all && !closed => {
                counts.waker = Some(cx.waker().clone());
                Poll::Pending
            }
            _ => Poll::Ready(()),
        }
    }
}

impl Drop for StreamMeter {
    fn drop(&mut self) {
        self.of.0.borrow_mut().counts.remove(&self.stream);
    }
}

fn size_of_request(parts: &request::Parts) -> u64 {
    let uri = &parts.uri;
    let pseudo = [
        (":method", Some(parts.method.as_str())),
        (":path", uri.path_and_query().map(http::uri::PathAndQuery::as_str)),
        (":authority", uri.authority().map(http::uri::Authority::as_str)),
        (":scheme", uri.scheme_str()),
    ];
    let said = pseudo.iter().filter_map(|(name, value)| Some(name.len() + (*value)?.len()));
    said.sum::<usize>() as u64 + size_of(&parts.headers)
}

/// With three digits of a status.
pub(super) fn size_of_answer(headers: &HeaderMap) -> u64 {
    ":status".len() as u64 + 3 + size_of(headers)
}

fn size_of(headers: &HeaderMap) -> u64 {
    headers.iter().map(|(name, value)| (name.as_str().len() + value.len()) as u64).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, stream: u8, length: u8) -> Vec<u8> {
        let mut frame = vec![0, 0, length, kind, flags, 0, 0, 0, stream];
        frame.resize(9 + usize::from(length), 7);
        frame
    }

    #[test]
    fn each_stream_has_its_frames_wherever_they_are_cut() {
        let mut bytes = vec![0; super::super::heads::PREFACE];
        for part in [frame(HEADERS, 0, 1, 5), frame(HEADERS, 0, 3, 6), frame(CONTINUATION, 4, 3, 2)] {
            bytes.extend(part);
        }
        bytes.extend([frame(DATA, 0, 1, 4), frame(8, 0, 1, 4), frame(DATA, END_STREAM, 1, 0)].concat());
        for cut in 0..bytes.len() {
            let all = ConnectionMeter::default();
            let mut taps = Taps::of_server(all.clone());
            taps.received(&bytes[..cut]);
            taps.received(&bytes[cut..]);
            let (one, three) = (StreamMeter::claim(&all, 1), StreamMeter::claim(&all, 3));
            assert_eq!((one.read().received.wire, one.read().received.head), (14 + 13 + 9, 14), "cut at {cut}");
            assert_eq!((three.read().received.wire, three.read().received.head), (26, 26), "cut at {cut}");
        }
    }

    #[test]
    fn what_is_over_is_forgotten() {
        let all = ConnectionMeter::default();
        let mut taps = Taps::of_server(all.clone());
        taps.received(&[0; super::super::heads::PREFACE]);
        let known = || all.0.borrow().counts.len();
        taps.received(&frame(HEADERS, 4, 1, 1));
        let claimed = StreamMeter::claim(&all, 1);
        taps.received(&frame(HEADERS, 4, 3, 1));
        assert_eq!(known(), 2);
        taps.sent(&frame(RST_STREAM, 0, 3, 4));
        assert_eq!(known(), 1, "nobody saw it");
        drop(claimed);
        taps.sent(&frame(DATA, END_STREAM, 1, 1));
        taps.received(&frame(HEADERS, 4, 1, 1));
        assert_eq!(known(), 0);
    }
}
