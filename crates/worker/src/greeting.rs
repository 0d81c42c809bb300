//! What a client says first, looked at before a filter chain is chosen: Envoy's `tls_inspector` and `http_inspector`.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use postrider_filter_api::Noted;
use postrider_model::Inspection;
use postrider_tls::{ClientHello, inspect};

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

/// Reads until enough is known. What was read is in `ahead`, for whoever serves the connection.
pub(crate) struct Inspector<'a> {
    pub(crate) rules: &'a Inspection,
    pub(crate) ahead: &'a mut Vec<u8>,
    /// What the PROXY protocol said, once it did; it is not in `ahead` any more.
    pub(crate) proxied: Option<Proxied>,
    /// What else it said.
    pub(crate) noted: Option<Rc<Noted>>,
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
    fn look(&self) -> Result<Option<Greeting>, Refused> {
        if self.rules.tls {
            match inspect(self.ahead) {
                postrider_tls::Inspection::NeedMore => return Ok(None),
                postrider_tls::Inspection::Invalid(_) | postrider_tls::Inspection::NotTls if self.rules.tls_only => {
                    return Err(Refused::NotTls);
                }
                // What only begins like TLS is treated as any other bytes, as in Envoy.
                postrider_tls::Inspection::Invalid(_) | postrider_tls::Inspection::NotTls => {}
                postrider_tls::Inspection::Hello(hello) => return Ok(Some(self.of_hello(&hello))),
            }
        }
        if !self.rules.http {
            return Ok(Some(Greeting::default()));
        }
        Ok(plain_protocol(self.ahead).map(|protocol| Greeting {
            protocols: protocol.map(<[u8]>::to_vec).into_iter().collect(),
            ..Greeting::default()
        }))
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

/// What a plain connection speaks, if it is HTTP at all; `None` while that cannot be told.
fn plain_protocol(bytes: &[u8]) -> Option<Option<&'static [u8]>> {
    if PREFACE.starts_with(bytes.get(..PREFACE.len()).unwrap_or(bytes)) {
        return (bytes.len() >= PREFACE.len()).then_some(Some(b"h2c"));
    }
    let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else {
        // A request line is text.
        let text = bytes.iter().all(|byte| byte.is_ascii_graphic() || matches!(byte, b' ' | b'\r'));
        return if text { None } else { Some(None) };
    };
    let line = bytes.get(..end).unwrap_or_default().trim_ascii_end();
    Some(match line {
        line if line.ends_with(b" HTTP/1.1") => Some(b"http/1.1"),
        line if line.ends_with(b" HTTP/1.0") => Some(b"http/1.0"),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_connection_is_known_by_its_first_line_wherever_that_is_cut() {
        for (text, protocol) in [
            (&b"GET / HTTP/1.1\r\n"[..], Some(&b"http/1.1"[..])),
            (b"POST /x HTTP/1.0\r\n", Some(b"http/1.0")),
            (PREFACE, Some(b"h2c")),
            (b"HELO there\r\n", None),
        ] {
            for cut in 0..text.len() {
                assert_eq!(plain_protocol(&text[..cut]), None, "{cut} of {text:?}");
            }
            assert_eq!(plain_protocol(text), Some(protocol));
        }
        assert_eq!(plain_protocol(b"\x05\x01\x00"), Some(None), "no text, so no HTTP");
    }
}
