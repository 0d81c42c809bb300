//! Bytes of a request on its connections, where a log tells them (`%DOWNSTREAM_WIRE_BYTES_SENT%` and its like).
//!
//! What the buffers took in and let out is counted in any case; a request remembers where it began. Streams of HTTP/2 are
//! followed by their connections.

use postrider_filter_api::{Meter, Meters};

use super::Connection;
use super::exchange::Exchange;
use super::outbox::Outbox;
use crate::buffers::Input;
use crate::io::Io;

/// Counts of buffers when something began.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Marks {
    client: Counts,
    upstream: Counts,
    /// Of the request's head, as it was received.
    pub(super) fields: u64,
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counts {
    received: u64,
    sent: u64,
}

impl Counts {
    /// What was taken from `input`, some of which may wait in `passing`; what `ours` let out or will.
    fn of(input: &Input, passing: &Outbox, ours: &[&Outbox]) -> Counts {
        Counts {
            received: input.consumed().wrapping_add(passing.passing()),
            sent: ours.iter().fold(0, |sum, outbox| sum.wrapping_add(outbox.produced())),
        }
    }

    fn since(self, before: Counts) -> Counts {
        Counts { received: self.received.wrapping_sub(before.received), sent: self.sent.wrapping_sub(before.sent) }
    }
}

/// Around the name and the value of a line that is received: a colon and a line break. A space is none of them, as in Envoy.
const AROUND_RECEIVED: u64 = 3;

impl Exchange {
    fn counts_of_client(&self, connection: &Connection) -> Counts {
        Counts::of(&connection.input, &self.up, &[&self.down, &connection.out])
    }

    /// The request's head is about to be read.
    #[cold]
    #[inline(never)]
    pub(super) fn meter_own_head(&mut self, head: &[u8]) {
        self.marks.fields = size_of_fields(head);
    }

    /// The request's head is refused: it counts if it is whole.
    #[cold]
    #[inline(never)]
    pub(super) fn meter_refused_head(&mut self, received: &[u8]) {
        const END: &[u8] = b"\r\n\r\n";
        if let Some(at) = received.windows(END.len()).position(|bytes| bytes == END) {
            self.meter_own_head(received.get(..at).unwrap_or_default());
        }
    }

    /// The request begins; its head was read.
    #[cold]
    #[inline(never)]
    pub(super) fn begin_meters(&mut self, connection: &Connection) {
        let mut marks = Marks { client: self.counts_of_client(connection), ..self.marks };
        marks.client.received = marks.client.received.wrapping_sub(self.info.request_head_bytes);
        self.marks = marks;
        let mut meters = Meters::default();
        if !matches!(connection.io, Io::Http2(_)) {
            let fields = marks.fields;
            (meters.downstream.received.head, meters.downstream.received.plain_head) = (fields, fields);
        }
        **self.info.meters.get_or_insert_default() = meters;
    }

    /// What the client's connection took until now.
    #[cold]
    #[inline(never)]
    pub(super) fn meter_client(&mut self, connection: &Connection) {
        let now = self.client_meter(connection);
        let Some(meters) = &mut self.info.meters else { return };
        match &connection.io {
            Io::Http2(stream) => meters.downstream = stream.meter().unwrap_or_default(),
            Io::Plain(_) | Io::Tls(_) | Io::Filtered(_) | Io::Bridged(_) => {
                meters.downstream.received.wire = now.received;
                meters.downstream.sent.wire = now.sent;
            }
        }
    }

    /// What passed on the client's connection since the request began.
    pub(super) fn client_meter(&self, connection: &Connection) -> Counts {
        self.counts_of_client(connection).since(self.marks.client)
    }

    /// The request follows one with which so much passed on the client's connection; `again` bytes of it are read once more.
    pub(super) fn continue_meters(&mut self, connection: &Connection, before: Counts, again: u64) {
        let mut now = self.counts_of_client(connection);
        now.received = now.received.wrapping_add(again);
        self.marks.client = now.since(before);
    }

    /// A try begins on its connection.
    #[cold]
    #[inline(never)]
    pub(super) fn begin_upstream_meter(&mut self) {
        self.metered = Meter::default();
        if let Some(upstream) = &self.upstream {
            self.marks.upstream = Counts::of(&upstream.input, &self.down, &[&self.up]);
        }
    }

    /// Adds what the upstream's connection took since its try began, or since this was asked last.
    #[cold]
    #[inline(never)]
    pub(super) fn meter_upstream(&mut self) {
        let (Some(upstream), Some(meters)) = (&self.upstream, &mut self.info.meters) else { return };
        let mut new = Meter::default();
        match &upstream.io {
            Io::Http2(stream) => {
                let seen = std::mem::replace(&mut self.metered, stream.meter().unwrap_or_default());
                new = self.metered.since(seen);
            }
            Io::Plain(_) | Io::Tls(_) | Io::Filtered(_) | Io::Bridged(_) => {
                let now = Counts::of(&upstream.input, &self.down, &[&self.up]);
                let passed = now.since(std::mem::replace(&mut self.marks.upstream, now));
                (new.received.wire, new.sent.wire) = (passed.received, passed.sent);
            }
        }
        meters.upstream.add(new);
    }

    /// The head of an answer was written to the client's outbox, or to the connection's, from `start` on.
    #[cold]
    #[inline(never)]
    pub(super) fn meter_answer_head(&mut self, head: &[u8]) {
        let fields = size_of_lines(head);
        if let Some(meters) = &mut self.info.meters {
            meters.downstream.sent.head += fields;
            meters.downstream.sent.plain_head += fields;
        }
    }

    /// The request's head waits to be sent from `start` of the outbox on.
    #[cold]
    #[inline(never)]
    pub(super) fn meter_request_head(&mut self, start: usize) {
        let fields = size_of_lines(self.up.bytes.get(start..).unwrap_or_default());
        if let Some(meters) = &mut self.info.meters {
            meters.upstream.sent.head += fields;
            meters.upstream.sent.plain_head += fields;
        }
    }

    /// The head of an upstream's answer was read.
    #[cold]
    #[inline(never)]
    pub(super) fn meter_upstream_head(meters: &mut Meters, head: &[u8]) {
        let fields = size_of_fields(head);
        meters.upstream.received.head += fields;
        meters.upstream.received.plain_head += fields;
    }
}

/// Of a head as it was received, fields that concern the connection alone among them.
fn size_of_fields(head: &[u8]) -> u64 {
    let lines = head.split(|byte| *byte == b'\n').skip(1).map(<[u8]>::trim_ascii_end);
    let size = |line: &[u8]| {
        let name = line.iter().position(|byte| *byte == b':')?;
        let value = line.get(name + 1..)?.trim_ascii();
        Some((name + value.len()) as u64 + AROUND_RECEIVED)
    };
    lines.filter_map(size).sum()
}

/// Of a head as it is sent, without its first line and the empty one.
fn size_of_lines(head: &[u8]) -> u64 {
    const EMPTY: usize = "\r\n".len();
    let first = head.iter().position(|byte| *byte == b'\n').map_or(head.len(), |end| end + 1);
    debug_assert!(head.ends_with(b"\r\n\r\n"), "nothing but a head");
    (head.len() - first).saturating_sub(EMPTY) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_head_are_what_is_between_its_first_and_its_last() {
        assert_eq!(size_of_lines(b"HTTP/1.1 200 OK\r\na: b\r\nlonger: value\r\n\r\n"), 6 + 15);
        assert_eq!(size_of_lines(b"HTTP/1.1 200 OK\r\n\r\n"), 0);
        assert_eq!(size_of_fields(b"GET / HTTP/1.1\r\nlonger: value\r\na:b\r\nc:  d \r\n\r\n"), 14 + 5 + 5);
    }
}
