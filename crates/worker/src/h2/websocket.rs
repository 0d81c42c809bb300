//! The handshake that a WebSocket has in HTTP/1 and not in HTTP/2 (RFC 6455 section 4, RFC 8441 section 5).

use aws_lc_rs::digest;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// What a server appends to the client's key (RFC 6455 section 1.3).
const SUFFIX: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

pub(crate) fn is_protocol(token: &[u8]) -> bool {
    token.eq_ignore_ascii_case(b"websocket")
}

/// A key for a client that has none.
pub(super) fn key(random: impl Fn() -> u64) -> String {
    let mut bytes = [0; 16];
    for half in bytes.chunks_mut(8) {
        half.copy_from_slice(&random().to_le_bytes());
    }
    STANDARD.encode(bytes)
}

/// What proves that a server understood the client's `key`.
pub(crate) fn accept(key: &[u8]) -> String {
    let mut digest = digest::Context::new(&digest::SHA1_FOR_LEGACY_USE_ONLY);
    digest.update(key);
    digest.update(SUFFIX);
    STANDARD.encode(digest.finish())
}
