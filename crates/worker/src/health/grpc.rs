//! The messages of `grpc.health.v1.Health/Check`.

use postrider_http::{HeaderId, ResponseHead, grpc};
use postrider_upstream::health::Outcome;

use super::exchange::Answer;

/// `HealthCheckRequest { service }` as the one message of a gRPC request.
pub(super) fn body(service: &str) -> Vec<u8> {
    let mut message = Vec::new();
    if !service.is_empty() {
        message.push(0x0a);
        let mut length = service.len();
        while length >= 0x80 {
            message.push(length as u8 | 0x80);
            length >>= 7;
        }
        message.push(length as u8);
        message.extend_from_slice(service.as_bytes());
    }
    let mut body = Vec::new();
    grpc::write_prefix(u32::try_from(message.len()).unwrap_or(u32::MAX), &mut body);
    body.extend_from_slice(&message);
    body
}

/// Whether this is the head of an answer of gRPC, so that its message and trailers are worth waiting for.
pub(super) fn goes_on(head: &ResponseHead) -> bool {
    head.status() == 200 && grpc::has_content_type(&head.fields)
}

/// Healthy is what answers with one message that says SERVING, and OK behind it.
pub(super) fn judge(answer: &Answer) -> Outcome {
    let ok = goes_on(&answer.head) && answer.trailers.get(HeaderId::GrpcStatus) == Some(b"0");
    if ok && only_message(&answer.body).and_then(serving) == Some(true) {
        return Outcome::Healthy { degraded: false };
    }
    Outcome::REFUSED
}

/// The one message of a body. Empty ones beside it say nothing, and do not count.
fn only_message(mut body: &[u8]) -> Option<&[u8]> {
    let mut only = None;
    while !body.is_empty() {
        let (frame, taken) = grpc::first_frame(body, u32::MAX).ok()??;
        if !frame.message.is_empty() {
            let plain = frame.flags & grpc::FLAG_COMPRESSED == 0;
            only = Some(frame.message).filter(|_| plain && only.is_none());
            only?;
        }
        body = body.get(taken..)?;
    }
    only
}

/// Whether a `HealthCheckResponse` says SERVING; `None` for one that cannot be read.
fn serving(mut message: &[u8]) -> Option<bool> {
    const SERVING: u64 = 1;
    let mut status = 0;
    while !message.is_empty() {
        let key = varint(&mut message)?;
        let skipped = match key & 7 {
            0 => {
                let value = varint(&mut message)?;
                if key >> 3 == 1 {
                    status = value;
                }
                0
            }
            1 => 8,
            2 => usize::try_from(varint(&mut message)?).ok()?,
            5 => 4,
            _ => return None,
        };
        message = message.get(skipped..)?;
    }
    Some(status == SERVING)
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_health_request_names_its_service_and_an_answer_is_read() {
        assert_eq!(body(""), [0, 0, 0, 0, 0]);
        assert_eq!(body("ab"), [0, 0, 0, 0, 4, 0x0a, 2, b'a', b'b']);
        assert_eq!(body(&"x".repeat(300))[5..8], [0x0a, 0xac, 0x02]);
        assert_eq!(serving(&[0x08, 1]), Some(true));
        assert_eq!(serving(&[0x08, 2]), Some(false));
        assert_eq!(serving(&[]), Some(false));
        assert_eq!(serving(&[0x12, 1, b'x', 0x08, 1]), Some(true));
        assert_eq!(serving(&[0x12, 9, b'x']), None);
    }

    #[test]
    fn an_answer_has_one_message_and_empty_ones_do_not_count() {
        let message: &[u8] = &[0, 0, 0, 0, 2, 0x08, 1];
        let empty: &[u8] = &[0, 0, 0, 0, 0];
        let only = |parts: &[&[u8]]| only_message(&parts.concat()).map(<[u8]>::to_vec);
        assert_eq!(only(&[message]), Some(vec![0x08, 1]));
        assert_eq!(only(&[empty, message, empty]), Some(vec![0x08, 1]));
        assert_eq!(only(&[message, message]), None);
        assert_eq!(only(&[empty]), None);
        assert_eq!(only(&[&[1, 0, 0, 0, 2, 0x08, 1]]), None);
        assert_eq!(only(&[&[0, 0, 0, 0, 9, 0x08, 1]]), None);
    }
}
