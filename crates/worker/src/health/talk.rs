//! What a check says on a plain connection, and what it wants to hear.

use postrider_model::{ProxyHeader, RedisCheck, TcpCheck, ThriftCheck};

use super::thrift;

/// What a server of Redis says of a key that it does not have.
const NO_KEY: &[u8] = b":0";

#[derive(Debug, Clone)]
pub(super) struct Talk {
    /// Said first on each connection.
    pub(super) proxy_header: Option<ProxyHeader>,
    pub(super) send: Vec<u8>,
    pub(super) expected: Expected,
}

#[derive(Debug, Clone)]
pub(super) enum Expected {
    /// Parts of what comes, in this order.
    Parts(Vec<Vec<u8>>),
    /// Exactly this line; any other is a refusal.
    Line(&'static [u8]),
    /// A reply of Thrift that is no exception.
    Reply(ThriftCheck),
}

impl Talk {
    pub(super) fn of_bytes(check: &TcpCheck) -> Talk {
        let TcpCheck { proxy_header, send, receive } = check.clone();
        Talk { proxy_header, send, expected: Expected::Parts(receive) }
    }

    pub(super) fn of_redis(check: &RedisCheck) -> Talk {
        let (words, line): (&[&str], _) = match check.key.as_str() {
            "" => (&["PING"], b"+PONG".as_slice()),
            // A key takes a server out of service.
            key => (&["EXISTS", key], NO_KEY),
        };
        let mut send = format!("*{}\r\n", words.len());
        for word in words {
            send.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
        Talk { proxy_header: None, send: send.into_bytes(), expected: Expected::Line(line) }
    }

    pub(super) fn of_thrift(check: &ThriftCheck) -> Talk {
        Talk { proxy_header: None, send: thrift::request(check), expected: Expected::Reply(check.clone()) }
    }
}

impl Expected {
    /// Nothing has to be said.
    pub(super) fn is_nothing(&self) -> bool {
        matches!(self, Expected::Parts(parts) if parts.is_empty())
    }

    /// That a key is not there.
    pub(super) fn is_absence(&self) -> bool {
        matches!(self, Expected::Line(NO_KEY))
    }

    /// Whether what came is what should come; `None` until that can be said.
    pub(super) fn judge(&self, received: &[u8]) -> Option<bool> {
        match self {
            Expected::Parts(parts) => contains_in_order(received, parts).then_some(true),
            Expected::Line(wanted) => {
                let end = received.windows(2).position(|pair| pair == b"\r\n")?;
                Some(received.get(..end) == Some(*wanted))
            }
            Expected::Reply(check) => thrift::judge(check, received),
        }
    }
}

/// All parts stand in `bytes`, one behind the other.
pub(super) fn contains_in_order(bytes: &[u8], parts: &[Vec<u8>]) -> bool {
    let mut rest = bytes;
    parts.iter().all(|part| {
        let found = part.is_empty().then_some(0).or_else(|| rest.windows(part.len()).position(|at| at == part));
        rest = found.and_then(|at| rest.get(at + part.len()..)).unwrap_or_default();
        found.is_some()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_found_in_their_order_only() {
        let parts = |parts: &[&str]| parts.iter().map(|part| part.as_bytes().to_vec()).collect::<Vec<_>>();
        assert!(contains_in_order(b"xxPONGyyOK", &parts(&["PONG", "OK"])));
        assert!(!contains_in_order(b"OK PONG", &parts(&["PONG", "OK"])));
        assert!(!contains_in_order(b"aa", &parts(&["aa", "a"])));
        assert!(contains_in_order(b"", &[]) && contains_in_order(b"a", &parts(&["", "a", ""])));
    }

    #[test]
    fn redis_is_asked_in_its_own_words() {
        let of = |key: &str| Talk::of_redis(&RedisCheck { key: key.to_owned() });
        assert_eq!(of("").send, b"*1\r\n$4\r\nPING\r\n");
        assert_eq!(of("down").send, b"*2\r\n$6\r\nEXISTS\r\n$4\r\ndown\r\n");
        let (ping, exists) = (of("").expected, of("down").expected);
        assert_eq!(
            [&b"+PO"[..], b"+PONG", b"+PONG\r\n", b"-NOAUTH\r\n"].map(|said| ping.judge(said)),
            [None, None, Some(true), Some(false)]
        );
        assert_eq!((exists.judge(b":0\r\n"), exists.judge(b":1\r\n")), (Some(true), Some(false)));
    }
}
