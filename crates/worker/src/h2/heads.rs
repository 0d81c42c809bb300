//! Finds the heads of frames in a connection's bytes (RFC 9113 section 4.1), wherever those are cut.

const HEAD: usize = 9;

/// The preface is no frame (RFC 9113 section 3.4).
pub(super) const PREFACE: usize = 24;

pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const CONTINUATION: u8 = 9;
pub(super) const END_STREAM: u8 = 1;
pub(super) const END_HEADERS: u8 = 4;

/// What a frame says of itself.
#[derive(Debug, Clone, Copy)]
pub(super) struct Head {
    /// Of what follows the head.
    pub(super) length: usize,
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
}

impl Head {
    /// Bytes of the whole frame.
    pub(super) fn frame_bytes(self) -> u64 {
        (HEAD + self.length) as u64
    }
}

/// Follows the bytes of one direction.
#[derive(Debug)]
pub(super) struct Heads {
    /// Bytes of the preface or of a frame's body that are still to come.
    skip: usize,
    head: [u8; HEAD],
    /// So much of the head is there.
    held: usize,
}

impl Heads {
    /// Of what a client sends, which begins with the preface.
    pub(super) fn of_client() -> Heads {
        Heads { skip: PREFACE, ..Heads::of_server() }
    }

    pub(super) fn of_server() -> Heads {
        Heads { skip: 0, head: [0; HEAD], held: 0 }
    }

    /// Calls `each` with every head that is complete now.
    #[inline]
    pub(super) fn feed(&mut self, mut bytes: &[u8], mut each: impl FnMut(Head)) {
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
                let head = self.read();
                self.skip = head.length;
                each(head);
            }
        }
    }

    fn read(&self) -> Head {
        let [a, b, c, kind, flags, stream @ ..] = self.head;
        let length = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
        // The first bit means nothing.
        Head { length, kind, flags, stream: u32::from_be_bytes(stream) & 0x7fff_ffff }
    }
}
