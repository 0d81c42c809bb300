//! The messages of `grpc.health.v1.Health/Check`.

use postrider_http::{HeaderId, grpc};
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

/// Healthy is what answers OK, and SERVING.
pub(super) fn judge(answer: &Answer) -> Outcome {
    let status = answer.trailers.get(HeaderId::GrpcStatus).or(answer.head.fields.get(HeaderId::GrpcStatus));
    let is_grpc =
        answer.head.fields.get(HeaderId::ContentType).is_some_and(|kind| kind.starts_with(b"application/grpc"));
    if answer.head.status() == 200 && is_grpc && status == Some(b"0") && serving(&answer.body) == Some(true) {
        return Outcome::Healthy { degraded: false };
    }
    Outcome::Refused { retriable: false }
}

/// Whether the `HealthCheckResponse` in a gRPC body says SERVING; `None` for one that cannot be read.
fn serving(body: &[u8]) -> Option<bool> {
    const SERVING: u64 = 1;
    let (frame, _) = grpc::first_frame(body, u32::MAX).ok()??;
    if frame.flags & grpc::FLAG_COMPRESSED != 0 {
        return None;
    }
    let mut message = frame.message;
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
        assert_eq!(serving(&[0, 0, 0, 0, 2, 0x08, 1]), Some(true));
        assert_eq!(serving(&[0, 0, 0, 0, 2, 0x08, 2]), Some(false));
        assert_eq!(serving(&[0, 0, 0, 0, 0]), Some(false));
        assert_eq!(serving(&[0, 0, 0, 0, 5, 0x12, 1, b'x', 0x08, 1]), Some(true));
        assert_eq!(serving(&[1, 0, 0, 0, 2, 0x08, 1]), None);
        assert_eq!(serving(&[0, 0, 0, 0, 9, 0x08, 1]), None);
    }
}
