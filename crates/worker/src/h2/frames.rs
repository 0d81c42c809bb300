//! What a client's frames are, beside what the `h2` crate makes of them: a budget for those that ask for work and carry
//! nothing (CVE-2019-9512 to 9518, CVE-2023-44487).

use super::heads::{CONTINUATION, DATA, END_HEADERS, HEADERS, Head, Heads, RST_STREAM};

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
    heads: Heads,
    counts: Counts,
}

#[derive(Debug, Default)]
struct Counts {
    /// A header block has begun and not ended.
    in_head: bool,
    control: u64,
    carrying: u64,
    streams: u64,
    resets: u64,
}

impl Default for Frames {
    fn default() -> Self {
        Frames { heads: Heads::of_client(), counts: Counts::default() }
    }
}

impl Frames {
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        self.heads.feed(bytes, |head| self.counts.count(head));
    }

    /// A header block has begun and not ended.
    pub(super) fn in_head(&self) -> bool {
        self.counts.in_head
    }

    /// The client asks for more than it is worth. `seconds` and `sent` are the connection's age and what it was sent.
    pub(super) fn is_abuse(&self, seconds: u64, sent: u64) -> bool {
        let Counts { control, carrying, streams, resets, .. } = self.counts;
        let credit = FREE + PER_SECOND * seconds + PER_FRAME * carrying + sent / BYTES_PER_UPDATE;
        control > credit || resets > FREE_RESETS && resets * 2 > streams
    }
}

impl Counts {
    fn count(&mut self, head: Head) {
        match head.kind {
            HEADERS | CONTINUATION => {
                self.streams += u64::from(head.kind == HEADERS);
                self.carrying += u64::from(head.kind == HEADERS);
                // Empty pieces of a head are as good as none.
                self.control += u64::from(head.kind == CONTINUATION);
                self.in_head = head.flags & END_HEADERS == 0;
            }
            DATA if head.length > 0 => self.carrying += 1,
            RST_STREAM => {
                self.resets += 1;
                self.control += 1;
            }
            _ => self.control += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::heads::PREFACE;
    use super::*;

    const HEAD: usize = 9;

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
            assert_eq!(
                (frames.counts.carrying, frames.counts.streams, frames.counts.control),
                (2, 1, 3),
                "cut at {cut}"
            );
            assert!(!frames.in_head());
        }
        let mut frames = Frames::default();
        frames.feed(&bytes[..PREFACE + HEAD + 3]);
        assert!(frames.in_head(), "the block goes on in another frame");
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
