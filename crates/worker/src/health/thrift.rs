//! A check in the words of Thrift: a call without arguments, and whether what comes back is a good reply.

use postrider_model::{ThriftCheck, ThriftProtocol, ThriftTransport};

/// Types of messages.
const CALL: u8 = 1;
const REPLY: u8 = 2;

/// The end of a struct, in every protocol.
const STOP: u8 = 0;

/// What a header transport begins with, and its number of a protocol.
const HEADER_MAGIC: [u8; 2] = [0x0f, 0xff];
const HEADER_BINARY: u8 = 0;
const HEADER_COMPACT: u8 = 2;

/// The call.
pub(super) fn request(check: &ThriftCheck) -> Vec<u8> {
    let (message, name) = (message(check), check.protocol == ThriftProtocol::Compact);
    match check.transport {
        ThriftTransport::Unframed => message,
        ThriftTransport::Framed => framed(&message),
        ThriftTransport::Header => {
            // Flags and a sequence number of nothing; a header of one word: the protocol, no transforms, padding.
            let protocol = if name { HEADER_COMPACT } else { HEADER_BINARY };
            let head = [&HEADER_MAGIC[..], &[0, 0], &[0, 0, 0, 0], &[0, 1], &[protocol, 0, 0, 0]].concat();
            framed(&[head, message].concat())
        }
    }
}

fn message(check: &ThriftCheck) -> Vec<u8> {
    let name = check.method.as_bytes();
    let length = u32::try_from(name.len()).unwrap_or(u32::MAX).to_be_bytes();
    match check.protocol {
        ThriftProtocol::Binary => [&[0x80, 1, 0, CALL][..], &length, name, &[0, 0, 0, 0], &[STOP]].concat(),
        ThriftProtocol::LaxBinary => [&length[..], name, &[CALL], &[0, 0, 0, 0], &[STOP]].concat(),
        ThriftProtocol::Compact => {
            let mut message = vec![0x82, 1 | CALL << 5, 0];
            let mut length = name.len();
            while length >= 0x80 {
                message.push((length % 0x80) as u8 | 0x80);
                length /= 0x80;
            }
            message.push(length as u8);
            message.extend_from_slice(name);
            message.push(STOP);
            message
        }
    }
}

fn framed(message: &[u8]) -> Vec<u8> {
    [&u32::try_from(message.len()).unwrap_or(u32::MAX).to_be_bytes()[..], message].concat()
}

/// Whether what came is a good reply; `None` until that can be said.
pub(super) fn judge(check: &ThriftCheck, received: &[u8]) -> Option<bool> {
    let mut bytes = Bytes(received);
    let mut body = match check.transport {
        ThriftTransport::Unframed => bytes,
        ThriftTransport::Framed | ThriftTransport::Header => {
            let length = usize::try_from(bytes.u32()?).ok()?;
            Bytes(bytes.take(length)?)
        }
    };
    if check.transport == ThriftTransport::Header && body.take(2) == Some(&HEADER_MAGIC) {
        // Flags and sequence number, and then a header of so many words.
        let words = body.take(6).and_then(|_| body.u16());
        if words.and_then(|words| body.take(usize::from(words) * 4)).is_none() {
            return Some(false);
        }
    }
    match (is_good(check.protocol, &mut body), check.transport) {
        (Some(good), _) => Some(good),
        // More of it may come.
        (None, ThriftTransport::Unframed) => None,
        (None, ThriftTransport::Framed | ThriftTransport::Header) => Some(false),
    }
}

/// A reply whose result is none, or the value that the method returns: field 0. Others are exceptions that it declares.
fn is_good(protocol: ThriftProtocol, bytes: &mut Bytes<'_>) -> Option<bool> {
    let kind = match protocol {
        ThriftProtocol::Binary => {
            let head = bytes.take(4)?;
            let &[0x80, 1, _, kind] = head else { return Some(false) };
            bytes.name_and_number()?;
            kind
        }
        ThriftProtocol::LaxBinary => {
            let length = usize::try_from(bytes.u32()?).ok()?;
            bytes.take(length)?;
            let kind = bytes.byte()?;
            bytes.take(4)?;
            kind
        }
        ThriftProtocol::Compact => {
            let &[0x82, kind] = bytes.take(2)? else { return Some(false) };
            bytes.varint()?;
            let length = bytes.varint()?;
            bytes.take(usize::try_from(length).ok()?)?;
            kind >> 5
        }
    };
    if kind != REPLY {
        return Some(false);
    }
    let first = bytes.byte()?;
    if first == STOP {
        return Some(true);
    }
    Some(match protocol {
        ThriftProtocol::Binary | ThriftProtocol::LaxBinary => bytes.u16()? == 0,
        // How far the number is from the one before, which is none here; 0 says that it follows.
        ThriftProtocol::Compact => first >> 4 == 0 && bytes.varint()? == 0,
    })
}

#[derive(Debug, Clone, Copy)]
struct Bytes<'b>(&'b [u8]);

impl<'b> Bytes<'b> {
    fn take(&mut self, count: usize) -> Option<&'b [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1)?.first().copied()
    }

    fn u16(&mut self) -> Option<u16> {
        Some(u16::from_be_bytes(self.take(2)?.try_into().ok()?))
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_be_bytes(self.take(4)?.try_into().ok()?))
    }

    fn varint(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                break;
            }
        }
        Some(number)
    }

    fn name_and_number(&mut self) -> Option<()> {
        let length = usize::try_from(self.u32()?).ok()?;
        self.take(length)?;
        self.take(4).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(transport: ThriftTransport, protocol: ThriftProtocol) -> ThriftCheck {
        ThriftCheck { method: "ping".into(), transport, protocol }
    }

    #[test]
    fn a_call_is_written_in_each_transport_and_protocol() {
        let of = |transport, protocol| request(&check(transport, protocol));
        let binary = b"\x80\x01\0\x01\0\0\0\x04ping\0\0\0\0\0";
        assert_eq!(of(ThriftTransport::Unframed, ThriftProtocol::Binary), binary);
        assert_eq!(of(ThriftTransport::Framed, ThriftProtocol::Binary), [b"\0\0\0\x11", &binary[..]].concat());
        assert_eq!(of(ThriftTransport::Unframed, ThriftProtocol::LaxBinary), b"\0\0\0\x04ping\x01\0\0\0\0\0");
        assert_eq!(of(ThriftTransport::Unframed, ThriftProtocol::Compact), b"\x82\x21\0\x04ping\0");
        assert_eq!(
            of(ThriftTransport::Header, ThriftProtocol::Compact),
            b"\0\0\0\x17\x0f\xff\0\0\0\0\0\0\0\x01\x02\0\0\0\x82\x21\0\x04ping\0"
        );
    }

    #[test]
    fn replies_are_good_and_exceptions_are_not() {
        let unframed = check(ThriftTransport::Unframed, ThriftProtocol::Binary);
        let reply = |kind: u8, rest: &[u8]| [&[0x80, 1, 0, kind][..], b"\0\0\0\x04ping\0\0\0\0", rest].concat();
        for (said, verdict) in [
            (reply(REPLY, b"\0"), Some(true)),
            (reply(REPLY, b"\x0b\0\0\0\0\0\x01x\0"), Some(true)),
            (reply(REPLY, b"\x0c\0\x01\0\0"), Some(false)),
            (reply(3, b"\x0b\0\x01\0"), Some(false)),
            (reply(REPLY, b"\x0b\0"), None),
            (b"\x80\x01\0".to_vec(), None),
            (b"HTTP/1.1 400".to_vec(), Some(false)),
        ] {
            assert_eq!(judge(&unframed, &said), verdict, "{said:?}");
        }
        let in_frame = check(ThriftTransport::Framed, ThriftProtocol::Binary);
        let whole = framed(&reply(REPLY, b"\0"));
        assert_eq!(judge(&in_frame, &whole), Some(true));
        assert_eq!(judge(&in_frame, &whole[..whole.len() - 1]), None);
        assert_eq!(judge(&in_frame, &framed(&reply(REPLY, b""))), Some(false), "a frame that breaks off");
        let compact = check(ThriftTransport::Header, ThriftProtocol::Compact);
        let head = b"\x0f\xff\0\0\0\0\0\0\0\x01\x02\0\0\0";
        let of = |message: &[u8]| framed(&[&head[..], message].concat());
        assert_eq!(judge(&compact, &of(b"\x82\x41\0\x04ping\0")), Some(true));
        assert_eq!(judge(&compact, &of(b"\x82\x41\0\x04ping\x08\0\x01x\0")), Some(true));
        assert_eq!(judge(&compact, &of(b"\x82\x41\0\x04ping\x1c\0\0")), Some(false));
        assert_eq!(judge(&compact, &of(b"\x82\x61\0\x04ping\0")), Some(false));
    }
}
