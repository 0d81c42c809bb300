//! What a client's frames are, beside what the `h2` crate makes of them: a budget for those that ask for work and carry
//! nothing (CVE-2019-9512 to 9518, CVE-2023-44487).

/// A frame's head (RFC 9113 section 4.1).
const HEAD: usize = 9;

/// The preface is no frame (RFC 9113 section 3.4).
const PREFACE: usize = 24;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 4;

/// Control frames that a client may send before it has sent or received anything, and for each second, for each frame
/// with a head or a body, and for so many bytes that it received: window updates follow what was received.
const FREE: u64 = 1000;
const PER_SECOND: u64 = 10;
const PER_FRAME: u64 = 10;
const BYTES_PER_UPDATE: u64 = 256;

/// From so many resets on a client that resets more than half of its streams is no client.
const FREE_RESETS: u64 = 500;

/// Follows a connection's bytes.
#[derive(Debug)]
pub(super) struct Frames {
    /// Bytes of the preface or of a frame's body that are still to come.
    skip: usize,
    head: [u8; HEAD],
    /// So much of the head is there.
    held: usize,
    /// A header block has begun and not ended.
    pub(super) in_head: bool,
    control: u64,
    carrying: u64,
    streams: u64,
    resets: u64,
}

impl Default for Frames {
    fn default() -> Self {
        Frames {
            skip: PREFACE,
            head: [0; HEAD],
            held: 0,
            in_head: false,
            control: 0,
            carrying: 0,
            streams: 0,
            resets: 0,
        }
    }
}

impl Frames {
    pub(super) fn feed(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let skipped = self.skip.min(bytes.len());
            self.skip -= skipped;
            bytes = bytes.get(skipped..).unwrap_or_default();
            let wanted = (HEAD - self.held).min(bytes.len());
            let (head, rest) = bytes.split_at(wanted);
            for (to, from) in self.head.iter_mut().skip(self.held).zip(head) {
                *to = *from;
            }
            self.held += wanted;
            bytes = rest;
            if self.held == HEAD {
                self.held = 0;
                self.count();
            }
        }
    }

    fn count(&mut self) {
        let [a, b, c, kind, flags, ..] = self.head;
        let length = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
        self.skip = length;
        match kind {
            HEADERS | CONTINUATION => {
                self.streams += u64::from(kind == HEADERS);
                self.carrying += u64::from(kind == HEADERS);
                // Empty pieces of a head are as good as none.
                self.control += u64::from(kind == CONTINUATION);
                self.in_head = flags & END_HEADERS == 0;
            }
            DATA if length > 0 => self.carrying += 1,
            RST_STREAM => {
                self.resets += 1;
                self.control += 1;
            }
            _ => self.control += 1,
        }
    }

    /// The client asks for more than it is worth. `seconds` and `sent` are the connection's age and what it was sent.
    pub(super) fn is_abuse(&self, seconds: u64, sent: u64) -> bool {
        let credit = FREE + PER_SECOND * seconds + PER_FRAME * self.carrying + sent / BYTES_PER_UPDATE;
        self.control > credit || self.resets > FREE_RESETS && self.resets * 2 > self.streams
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, length: u8) -> Vec<u8> {
        let mut frame = vec![0, 0, length, kind, flags, 0, 0, 0, 1];
        frame.resize(HEAD + usize::from(length), 7);
        frame
    }

    #[test]
    fn frames_are_counted_wherever_their_bytes_are_cut() {
        let mut bytes = vec![b'P'; PREFACE];
        for part in
            [frame(HEADERS, 0, 3), frame(CONTINUATION, 4, 2), frame(DATA, 0, 5), frame(DATA, 0, 0), frame(6, 0, 8)]
        {
            bytes.extend(part);
        }
        for cut in 0..bytes.len() {
            let mut frames = Frames::default();
            frames.feed(&bytes[..cut]);
            frames.feed(&bytes[cut..]);
            assert_eq!((frames.carrying, frames.streams, frames.control), (2, 1, 3), "cut at {cut}");
            assert!(!frames.in_head);
        }
        let mut frames = Frames::default();
        frames.feed(&bytes[..PREFACE + HEAD + 3]);
        assert!(frames.in_head, "the block goes on in another frame");
    }

    #[test]
    fn what_carries_something_pays_for_what_does_not() {
        let mut frames = Frames::default();
        frames.feed(&[0; PREFACE]);
        let ping = frame(6, 0, 8);
        for _ in 0..FREE {
            frames.feed(&ping);
        }
        assert!(!frames.is_abuse(0, 0));
        frames.feed(&ping);
        assert!(frames.is_abuse(0, 0));
        assert!(!frames.is_abuse(1, 0) && !frames.is_abuse(0, 256));
        frames.feed(&frame(HEADERS, 4, 1));
        assert!(!frames.is_abuse(0, 0));
    }

    #[test]
    fn a_client_that_resets_most_of_its_streams_is_found_out() {
        let mut frames = Frames::default();
        frames.feed(&[0; PREFACE]);
        for streams in 1..=FREE_RESETS + 1 {
            assert!(!frames.is_abuse(0, 0), "{streams}");
            frames.feed(&frame(HEADERS, 4, 1));
            frames.feed(&frame(RST_STREAM, 0, 4));
        }
        assert!(frames.is_abuse(0, 0));
    }
}
