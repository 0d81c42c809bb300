//! Chunked transfer coding on the way out (RFC 9112 7.1).

use postrider_http::{Fields, write_trailers};

/// What ends the data of a chunk.
pub const CHUNK_END: &[u8] = b"\r\n";

/// The last chunk and an empty trailer section.
pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// The size line of a chunk, its CR LF included, to be sent in front of the data.
#[derive(Clone, Copy, Debug)]
pub struct ChunkSize {
    line: [u8; 18],
    start: u8,
}

impl ChunkSize {
    /// The size line for `length` bytes. Zero would end the body: send no chunk then.
    pub fn new(length: u64) -> Self {
        let mut line = *b"0000000000000000\r\n";
        let mut start = 16u8;
        let mut rest = length;
        for digit in line.iter_mut().take(16).rev() {
            let nibble = (rest & 15) as u8;
            *digit = if nibble < 10 { b'0' + nibble } else { b'a' + nibble - 10 };
            rest >>= 4;
            start -= 1;
            if rest == 0 {
                break;
            }
        }
        Self { line, start }
    }

    /// The line, for example `1f4\r\n`.
    pub fn as_bytes(&self) -> &[u8] {
        self.line.get(self.start as usize..).unwrap_or_default()
    }
}

/// Appends `data` as one chunk; nothing when it is empty.
pub fn write_chunk(data: &[u8], out: &mut Vec<u8>) {
    if data.is_empty() {
        return;
    }
    out.reserve(data.len() + 20);
    out.extend_from_slice(ChunkSize::new(data.len() as u64).as_bytes());
    out.extend_from_slice(data);
    out.extend_from_slice(CHUNK_END);
}

/// Appends the last chunk and the trailers.
pub fn write_last_chunk(trailers: &Fields, out: &mut Vec<u8>) {
    out.extend_from_slice(b"0\r\n");
    write_trailers(trailers, out);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_lines() {
        for (length, want) in [(0, "0\r\n"), (1, "1\r\n"), (15, "f\r\n"), (16, "10\r\n"), (4000, "fa0\r\n")] {
            assert_eq!(ChunkSize::new(length).as_bytes(), want.as_bytes());
        }
        assert_eq!(ChunkSize::new(u64::MAX).as_bytes(), b"ffffffffffffffff\r\n");
    }

    #[test]
    fn an_empty_piece_does_not_end_the_body() {
        let mut out = Vec::new();
        write_chunk(b"", &mut out);
        assert!(out.is_empty());
        write_chunk(b"hello", &mut out);
        write_last_chunk(&Fields::new(), &mut out);
        assert_eq!(out, b"5\r\nhello\r\n0\r\n\r\n");
    }
}
