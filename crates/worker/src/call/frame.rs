//! Messages as gRPC frames them: five bytes in front of each
//! (https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md, "Length-Prefixed-Message").

/// A flag for compression, which is never asked for, and four bytes of length.
const PREFIX: usize = 5;

/// Appends a message with its frame.
pub(super) fn write(message: &[u8], out: &mut Vec<u8>) {
    out.push(0);
    // A message comes from a filter's encoder, which is nowhere near this.
    out.extend_from_slice(&u32::try_from(message.len()).unwrap_or(u32::MAX).to_be_bytes());
    out.extend_from_slice(message);
}

/// Puts received pieces together.
#[derive(Debug, Default)]
pub(super) struct Unframer {
    held: Vec<u8>,
}

/// Why what was received is no message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Malformed {
    /// Compressed, although nobody said that we can read that.
    Compressed,
    TooLong,
}

impl Unframer {
    pub(super) fn push(&mut self, piece: &[u8]) {
        self.held.extend_from_slice(piece);
    }

    /// The next whole message, of at most `limit` bytes.
    pub(super) fn next(&mut self, limit: usize) -> Result<Option<Vec<u8>>, Malformed> {
        let Some(&[flag, a, b, c, d]) = self.held.first_chunk::<PREFIX>() else { return Ok(None) };
        let length = u32::from_be_bytes([a, b, c, d]) as usize;
        if flag != 0 {
            return Err(Malformed::Compressed);
        }
        if length > limit {
            return Err(Malformed::TooLong);
        }
        let Some(message) = self.held.get(PREFIX..PREFIX + length).map(<[u8]>::to_vec) else { return Ok(None) };
        self.held.drain(..PREFIX + length);
        Ok(Some(message))
    }

    /// Nothing of a message was left over.
    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_out_whole_wherever_they_are_cut() {
        let mut bytes = Vec::new();
        write(b"one", &mut bytes);
        write(b"", &mut bytes);
        write(b"three", &mut bytes);
        for cut in 0..=bytes.len() {
            let mut unframer = Unframer::default();
            let mut seen = Vec::new();
            for piece in [&bytes[..cut], &bytes[cut..]] {
                unframer.push(piece);
                while let Some(message) = unframer.next(5).unwrap() {
                    seen.push(message);
                }
            }
            assert_eq!(seen, [&b"one"[..], b"", b"three"]);
            assert!(unframer.is_empty());
        }
    }

    #[test]
    fn a_message_that_nobody_can_take_is_refused_before_it_is_there() {
        let mut unframer = Unframer::default();
        unframer.push(&[0, 0, 0, 0, 6]);
        assert_eq!(unframer.next(5), Err(Malformed::TooLong));
        let mut unframer = Unframer::default();
        unframer.push(&[1, 0, 0, 0, 0]);
        assert_eq!(unframer.next(5), Err(Malformed::Compressed));
    }
}
