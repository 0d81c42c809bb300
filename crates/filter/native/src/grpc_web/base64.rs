//! Base64 in pieces: groups may be cut anywhere, and each frame is padded on its own.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use postrider_http::grpc::FrameCounter;

/// Characters of a group of base64, and the bytes that they stand for.
const GROUP: usize = 4;
const GROUP_BYTES: usize = 3;

/// Reads text of any number of padded parts.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    /// The beginning of a group.
    begun: Vec<u8>,
}

impl Decoder {
    /// Appends what the next piece stands for; `false` when it is no base64.
    pub(super) fn decode(&mut self, piece: &[u8], out: &mut Vec<u8>) -> bool {
        let mut rest = piece;
        if !self.begun.is_empty() {
            let missing = GROUP.saturating_sub(self.begun.len()).min(rest.len());
            let (now, behind) = rest.split_at_checked(missing).unwrap_or((rest, b""));
            self.begun.extend_from_slice(now);
            rest = behind;
            if self.begun.len() < GROUP {
                return true;
            }
            let group = std::mem::take(&mut self.begun);
            if STANDARD.decode_vec(&group, out).is_err() {
                return false;
            }
        }
        let whole = rest.len() / GROUP * GROUP;
        let (mut groups, begun) = rest.split_at_checked(whole).unwrap_or((rest, b""));
        self.begun.extend_from_slice(begun);
        while !groups.is_empty() {
            // A part ends with the group in which padding stands.
            let end =
                groups.iter().position(|byte| *byte == b'=').map_or(groups.len(), |at| at / GROUP * GROUP + GROUP);
            let (part, behind) = groups.split_at_checked(end).unwrap_or((groups, b""));
            if STANDARD.decode_vec(part, out).is_err() {
                return false;
            }
            groups = behind;
        }
        true
    }

    /// No group is begun.
    pub(super) fn is_complete(&self) -> bool {
        self.begun.is_empty()
    }
}

/// Writes each frame of gRPC as one padded part.
#[derive(Debug, Default)]
pub(super) struct Encoder {
    frames: FrameCounter,
    /// Bytes of a frame that are no whole group yet.
    begun: Vec<u8>,
}

impl Encoder {
    /// Appends the text of the next piece.
    pub(super) fn encode(&mut self, mut piece: &[u8], out: &mut Vec<u8>) {
        while !piece.is_empty() {
            let (taken, ended) = self.frames.step(piece);
            let (now, behind) = piece.split_at_checked(taken).unwrap_or((piece, b""));
            self.part(now, ended, out);
            piece = behind;
        }
    }

    fn part(&mut self, bytes: &[u8], ended: bool, out: &mut Vec<u8>) {
        let missing = match self.begun.len() {
            0 => 0,
            begun => GROUP_BYTES.saturating_sub(begun).min(bytes.len()),
        };
        let (first, rest) = bytes.split_at_checked(missing).unwrap_or((bytes, b""));
        self.begun.extend_from_slice(first);
        if self.begun.len() == GROUP_BYTES {
            append(&self.begun, out);
            self.begun.clear();
        }
        let whole = rest.len() / GROUP_BYTES * GROUP_BYTES;
        let (groups, begun) = rest.split_at_checked(whole).unwrap_or((rest, b""));
        append(groups, out);
        self.begun.extend_from_slice(begun);
        if ended {
            append(&self.begun, out);
            self.begun.clear();
        }
    }
}

fn append(bytes: &[u8], out: &mut Vec<u8>) {
    if !bytes.is_empty() {
        out.extend_from_slice(STANDARD.encode(bytes).as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padded_parts_are_read_in_any_cut() {
        let text = ["A", "", "BC", "DEF", "longer than a group"].map(|part| STANDARD.encode(part)).concat();
        for cut in 1..=text.len() {
            let (mut decoder, mut out) = (Decoder::default(), Vec::new());
            assert!(text.as_bytes().chunks(cut).all(|piece| decoder.decode(piece, &mut out)), "{cut}");
            assert!(decoder.is_complete());
            assert_eq!(out, b"ABCDEFlonger than a group", "{cut}");
        }
    }

    #[test]
    fn what_is_no_base64_is_told() {
        for (text, good, complete) in [
            ("AAAA=AAA", false, true),
            ("A===", false, true),
            ("!!!!", false, true),
            ("AAA\n", false, true),
            ("AAAAA", true, false),
            ("", true, true),
        ] {
            for cut in 1..=text.len().max(1) {
                let (mut decoder, mut out) = (Decoder::default(), Vec::new());
                let read = text.as_bytes().chunks(cut).all(|piece| decoder.decode(piece, &mut out));
                assert_eq!(read, good, "{text} by {cut}");
                assert!(!good || decoder.is_complete() == complete, "{text} by {cut}");
            }
        }
    }

    #[test]
    fn each_frame_is_padded_in_any_cut() {
        let frames = [&b""[..], b"a", b"ab", b"abc", &[7; 1000]].map(|message| {
            let mut frame = Vec::new();
            postrider_http::grpc::write_prefix(message.len() as u32, &mut frame);
            frame.extend_from_slice(message);
            frame
        });
        let wanted: String = frames.iter().map(|frame| STANDARD.encode(frame)).collect();
        let all = frames.concat();
        for cut in [1, 2, 3, 4, 5, 7, 100, all.len()] {
            let (mut encoder, mut out) = (Encoder::default(), Vec::new());
            all.chunks(cut).for_each(|piece| encoder.encode(piece, &mut out));
            assert_eq!(String::from_utf8_lossy(&out), wanted, "{cut}");
        }
    }
}
