//! Answers that a request orders: `x-make: STATUS|NAME=VALUE|…`. Names are those of fields, but for these.
//!
//! `length=N` and `body=TEXT` are the body, `packed=CODING` packs it, and `chunked=1` sends it in chunks. `trailer-NAME` is
//! sent behind them.

use crate::packing::pack;

/// The answer of the origin `name`.
pub fn made(order: &str, name: &str) -> Vec<u8> {
    let mut parts = order.split('|');
    let mut head = format!("HTTP/1.1 {} Made\r\nx-origin: {name}\r\n", parts.next().unwrap_or("200"));
    let (mut body, mut packed, mut chunked, mut trailers) = (Vec::new(), None, false, String::new());
    for (key, value) in parts.filter_map(|part| part.split_once('=')) {
        match key {
            "length" => body = text(value.parse().expect("a length")),
            "body" => body = value.as_bytes().to_vec(),
            "packed" => packed = Some(value),
            "chunked" => chunked = true,
            _ => match key.strip_prefix("trailer-") {
                Some(key) => trailers += &format!("{key}: {value}\r\n"),
                None => head += &format!("{key}: {value}\r\n"),
            },
        }
    }
    if let Some(coding) = packed {
        body = pack(coding, &body);
    }
    if head.starts_with("HTTP/1.1 204") || head.starts_with("HTTP/1.1 304") {
        return format!("{head}\r\n").into_bytes();
    }
    if !chunked {
        return [format!("{head}content-length: {}\r\n\r\n", body.len()).as_bytes(), &body].concat();
    }
    let mut message = format!("{head}transfer-encoding: chunked\r\n\r\n").into_bytes();
    for piece in body.chunks(1_000) {
        message.extend(format!("{:x}\r\n", piece.len()).bytes().chain(piece.iter().copied()).chain(*b"\r\n"));
    }
    message.extend(format!("0\r\n{trailers}\r\n").bytes());
    message
}

/// So much of something that packs well, but not all too well.
pub fn text(length: usize) -> Vec<u8> {
    (0..length).map(|at| b"the quick brown fox"[at * at % 19]).collect()
}
