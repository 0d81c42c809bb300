//! Puts received pieces of a body together to the messages in it.

use postrider_http::grpc::{FLAG_COMPRESSED, FrameError, first_frame};

#[derive(Debug, Default)]
pub(super) struct Unframer {
    held: Vec<u8>,
}

/// Why what was received is no message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Malformed {
    /// Compressed or worse, although nobody said that we can read that.
    Flags,
    TooLong,
}

impl Unframer {
    pub(super) fn push(&mut self, piece: &[u8]) {
        self.held.extend_from_slice(piece);
    }

    /// The next whole message, of at most `limit` bytes.
    pub(super) fn next(&mut self, limit: usize) -> Result<Option<Vec<u8>>, Malformed> {
        let limit = u32::try_from(limit).unwrap_or(u32::MAX);
        let (message, length) = match first_frame(&self.held, limit) {
            Ok(None) => return Ok(None),
            Ok(Some((frame, _))) if frame.flags & FLAG_COMPRESSED != 0 => return Err(Malformed::Flags),
            Ok(Some((frame, length))) => (frame.message.to_vec(), length),
            Err(FrameError::Flags(_)) => return Err(Malformed::Flags),
            Err(FrameError::TooLong(_)) => return Err(Malformed::TooLong),
        };
        self.held.drain(..length);
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

    fn framed(messages: &[&[u8]]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for message in messages {
            postrider_http::grpc::write_prefix(message.len() as u32, &mut bytes);
            bytes.extend_from_slice(message);
        }
        bytes
    }

    #[test]
    fn messages_come_out_whole_wherever_they_are_cut() {
        let bytes = framed(&[b"one", b"", b"three"]);
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
    fn a_message_that_nobody_can_take_is_refused() {
        let refused = |bytes: &[u8]| {
            let mut unframer = Unframer::default();
            unframer.push(bytes);
            unframer.next(5)
        };
        assert_eq!(refused(&[0, 0, 0, 0, 6]), Err(Malformed::TooLong), "before it is there");
        assert_eq!(refused(&[1, 0, 0, 0, 0]), Err(Malformed::Flags));
        assert_eq!(refused(&[2, 0, 0, 0, 0]), Err(Malformed::Flags));
    }
}
