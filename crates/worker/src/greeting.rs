//! What a client says first, looked at before a filter chain is chosen: Envoy's `tls_inspector` and `http_inspector`.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use postrider_filter_api::{Hello, Noted};
use postrider_model::Inspection;
use postrider_tls::{ClientHello, MAX_HELLO, TOO_LARGE, inspect};

use crate::io::Socket;
use crate::proxy_protocol::{self, Reading, Version};

/// The most that is looked at; a client that needs more is refused. The longest PROXY header fits.
const MOST: usize = 66 * 1024;

/// How much is read at a time.
const PIECE: usize = 4096;

/// The beginning of an HTTP/2 connection (RFC 9113 section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n";

/// What a new connection is known by besides its addresses. Empty where nobody looked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Greeting {
    pub tls: bool,
    /// Lower case.
    pub server_name: Option<String>,
    /// What the client offers, or what a plain connection was seen to speak (`http/1.0`, `http/1.1`, `h2c`).
    pub protocols: Vec<Vec<u8>>,
    pub ja3: Option<String>,
    pub ja4: Option<String>,
}

impl Greeting {
    /// What formats are told of it; nothing of a connection without TLS.
    pub(crate) fn hello(&self) -> Option<Rc<Hello>> {
        let Greeting { server_name, ja3, ja4, .. } = self;
        let is_known = server_name.is_some() || ja3.is_some() || ja4.is_some();
        is_known.then(|| Rc::new(Hello { server_name: server_name.clone(), ja3: ja3.clone(), ja4: ja4.clone() }))
    }
}

/// Reads until enough is known. What was read is in `ahead`, for whoever serves the connection.
pub(crate) struct Inspector<'a> {
    pub(crate) rules: &'a Inspection,
    pub(crate) ahead: &'a mut Vec<u8>,
    /// What the PROXY protocol said, once it did; it is not in `ahead` any more.
    pub(crate) proxied: Option<Proxied>,
    /// What else it said.
    pub(crate) noted: Option<Rc<Noted>>,
    /// Whether it is TLS, once that is known.
    pub(crate) tls: Option<OfTls>,
    /// Bytes of the first records, or of what was taken for one.
    pub(crate) tls_bytes: usize,
    /// Which HTTP it is, once that was looked for and is known.
    pub(crate) http: Option<OfHttp>,
}

/// What looking for TLS came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OfTls {
    Found { server_name: bool, protocols: bool },
    NotFound,
    TooLarge,
}

/// What looking for HTTP came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OfHttp {
    Http10,
    Http11,
    Http2,
    None,
}

/// What comes of the PROXY protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Proxied {
    /// Source and destination; `None` where the proxy in front speaks for itself.
    Said(Version, Option<(SocketAddr, SocketAddr)>),
    /// The connection begins otherwise, which is allowed.
    Nothing,
}

/// Why a connection is not served.
#[derive(Debug)]
pub(crate) enum Refused {
    /// `UnexpectedEof` when the client left; `InvalidData` when more is needed than is looked at.
    Io(io::Error),
    NotProxied,
    /// The greeting is none in TLS, where no other is served.
    NotTls,
    Disallowed(Version),
    Malformed(Version),
}

impl From<io::Error> for Refused {
    fn from(error: io::Error) -> Refused {
        Refused::Io(error)
    }
}

impl Inspector<'_> {
    /// # Errors
    /// See [`Refused`].
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, socket: &mut Socket) -> Poll<Result<Greeting, Refused>> {
        loop {
            if self.is_introduced()?
                && let Some(greeting) = self.look()?
            {
                return Poll::Ready(Ok(greeting));
            }
            if self.ahead.len() >= MOST {
                return Poll::Ready(Err(io::Error::from(io::ErrorKind::InvalidData).into()));
            }
            let mut piece = [0; PIECE];
            let count = ready!(socket.poll_read(cx, &mut piece))?;
            if count == 0 {
                return Poll::Ready(Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()));
            }
            self.ahead.extend_from_slice(piece.get(..count).unwrap_or_default());
        }
    }

    /// The PROXY protocol was read, or nobody expects it.
    fn is_introduced(&mut self) -> Result<bool, Refused> {
        let Some(rules) = self.rules.proxy.as_ref().filter(|_| self.proxied.is_none()) else { return Ok(true) };
        self.proxied = Some(match proxy_protocol::read(self.ahead, rules) {
            Reading::NeedMore => return Ok(false),
            Reading::Absent if rules.optional => Proxied::Nothing,
            Reading::Absent => return Err(Refused::NotProxied),
            Reading::Disallowed(version) => return Err(Refused::Disallowed(version)),
            Reading::Malformed(version) => return Err(Refused::Malformed(version)),
            Reading::Header(version, length, ends) => {
                let header = self.ahead.drain(..length);
                self.noted = Some(Rc::new(proxy_protocol::note(header.as_slice(), rules)));
                drop(header);
                Proxied::Said(version, ends)
            }
        });
        Ok(true)
    }

    /// `None` when more is needed.
    fn look(&mut self) -> Result<Option<Greeting>, Refused> {
        if self.rules.tls && self.tls.is_none() {
            match inspect(self.ahead) {
                postrider_tls::Inspection::NeedMore => return Ok(None),
                postrider_tls::Inspection::Hello(hello) => {
                    self.tls = Some(OfTls::Found {
                        server_name: hello.server_name().is_some(),
                        protocols: hello.alpn().next().is_some(),
                    });
                    self.tls_bytes = hello.wire_bytes();
                    return Ok(Some(self.of_hello(&hello)));
                }
                postrider_tls::Inspection::Invalid(TOO_LARGE) => {
                    (self.tls, self.tls_bytes) = (Some(OfTls::TooLarge), MAX_HELLO);
                    return Err(Refused::NotTls);
                }
                // What only begins like TLS is treated as any other bytes, as in Envoy.
                postrider_tls::Inspection::Invalid(_) => {
                    (self.tls, self.tls_bytes) = (Some(OfTls::NotFound), record_bytes(self.ahead));
                }
                postrider_tls::Inspection::NotTls => {
                    (self.tls, self.tls_bytes) = (Some(OfTls::NotFound), self.ahead.len().min(RECORD_HEAD));
                }
            }
            if self.rules.tls_only {
                return Err(Refused::NotTls);
            }
        }
        if !self.rules.http {
            return Ok(Some(Greeting::default()));
        }
        let Some(protocol) = plain_protocol(self.ahead) else { return Ok(None) };
        self.http = Some(protocol);
        let protocols = protocol.name().map(<[u8]>::to_vec).into_iter().collect();
        Ok(Some(Greeting { protocols, ..Greeting::default() }))
    }

    fn of_hello(&self, hello: &ClientHello) -> Greeting {
        Greeting {
            tls: true,
            server_name: hello.server_name().map(str::to_ascii_lowercase),
            protocols: hello.alpn().map(<[u8]>::to_vec).collect(),
            ja3: self.rules.ja3.then(|| hello.ja3()),
            ja4: self.rules.ja4.then(|| hello.ja4()),
        }
    }
}

/// Bytes before the content of a record (RFC 8446, 5.1).
const RECORD_HEAD: usize = 5;

/// How much of `bytes` the first record has.
fn record_bytes(bytes: &[u8]) -> usize {
    let content = match bytes {
        [_, _, _, high, low, ..] => usize::from(u16::from_be_bytes([*high, *low])),
        _ => 0,
    };
    bytes.len().min(RECORD_HEAD + content)
}

impl OfHttp {
    /// As filter chains know it.
    fn name(self) -> Option<&'static [u8]> {
        match self {
            OfHttp::Http10 => Some(b"http/1.0"),
            OfHttp::Http11 => Some(b"http/1.1"),
            OfHttp::Http2 => Some(b"h2c"),
            OfHttp::None => None,
        }
    }
}

/// What a plain connection speaks; `None` while that cannot be told.
fn plain_protocol(bytes: &[u8]) -> Option<OfHttp> {
    if PREFACE.starts_with(bytes.get(..PREFACE.len()).unwrap_or(bytes)) {
        return (bytes.len() >= PREFACE.len()).then_some(OfHttp::Http2);
    }
    let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else {
        // A request line is text.
        let text = bytes.iter().all(|byte| byte.is_ascii_graphic() || matches!(byte, b' ' | b'\r'));
        return if text { None } else { Some(OfHttp::None) };
    };
    let line = bytes.get(..end).unwrap_or_default().trim_ascii_end();
    Some(match line {
        line if line.ends_with(b" HTTP/1.1") => OfHttp::Http11,
        line if line.ends_with(b" HTTP/1.0") => OfHttp::Http10,
        _ => OfHttp::None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_connection_is_known_by_its_first_line_wherever_that_is_cut() {
        for (text, protocol) in [
            (&b"GET / HTTP/1.1\r\n"[..], OfHttp::Http11),
            (b"POST /x HTTP/1.0\r\n", OfHttp::Http10),
            (PREFACE, OfHttp::Http2),
            (b"HELO there\r\n", OfHttp::None),
        ] {
            for cut in 0..text.len() {
                assert_eq!(plain_protocol(&text[..cut]), None, "{cut} of {text:?}");
            }
            assert_eq!(plain_protocol(text), Some(protocol));
        }
        assert_eq!(plain_protocol(b"\x05\x01\x00"), Some(OfHttp::None), "no text, so no HTTP");
    }
}
