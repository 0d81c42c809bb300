//! Requests of a filter's own to clusters.

use std::ffi::c_int;
use std::fmt;
use std::time::Duration;

use crate::abi::{self, Buffer, Header};
use crate::reply::fields;
use crate::stream::Stream;

/// A request to a cluster.
#[derive(Debug, Clone)]
pub struct Call {
    cluster: String,
    headers: Vec<(String, Vec<u8>)>,
    body: Vec<u8>,
    timeout: Duration,
}

/// Which call an answer is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CallId(pub(crate) u64);

/// Why a call was not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallRefused {
    /// It has no method, path or authority.
    LacksHeaders,
    /// There is no such cluster, or the plugin may not call it.
    NoCluster,
    /// No host of the cluster can be had, or a field has bytes that are not allowed.
    Impossible,
}

/// Why a call has no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Failure {
    /// No connection, the time ran out, or the connection broke.
    Reset,
    /// The answer is larger than may be kept.
    TooLarge,
}

/// An answer to a call.
#[derive(Debug, Clone, Copy)]
pub struct Answer<'a> {
    headers: &'a [Header],
    body: &'a [Buffer],
}

impl Call {
    /// With a method, a path and an authority.
    pub fn new(cluster: impl Into<String>, method: &str, authority: &str, path: &str) -> Call {
        let pseudo = [(":method", method), (":path", path), (":authority", authority)];
        let headers = pseudo.iter().map(|(name, value)| ((*name).to_owned(), value.as_bytes().to_vec())).collect();
        Call { cluster: cluster.into(), headers, body: Vec::new(), timeout: Duration::from_secs(5) }
    }

    /// With one more field.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<Vec<u8>>) -> Call {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// With a body.
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Call {
        self.body = body.into();
        self
    }

    /// For at most so long, in milliseconds; five seconds without it, no bound for 0.
    pub fn timeout(mut self, timeout: Duration) -> Call {
        self.timeout = timeout;
        self
    }

    pub(crate) fn start(
        &self,
        start: impl FnOnce(*mut u64, Buffer, *const Header, usize, Buffer, u64) -> c_int,
    ) -> Result<CallId, CallRefused> {
        let headers = fields(&self.headers);
        let timeout = u64::try_from(self.timeout.as_millis()).unwrap_or(u64::MAX);
        let (cluster, body) = (Buffer::of(self.cluster.as_bytes()), Buffer::of(&self.body));
        let mut id = 0;
        match start(&raw mut id, cluster, headers.as_ptr(), headers.len(), body, timeout) {
            0 => Ok(CallId(id)),
            1 => Err(CallRefused::LacksHeaders),
            2 => Err(CallRefused::NoCluster),
            _ => Err(CallRefused::Impossible),
        }
    }
}

impl<'a> Answer<'a> {
    pub(crate) fn new(headers: &'a [Header], body: &'a [Buffer]) -> Answer<'a> {
        Answer { headers, body }
    }

    /// The status; 0 where there is none that can be read.
    pub fn status(&self) -> u16 {
        self.text(":status").and_then(|status| status.parse().ok()).unwrap_or(0)
    }

    /// The first value of a field.
    pub fn header(&self, name: &str) -> Option<&'a [u8]> {
        self.headers().find(|(known, _)| known.eq_ignore_ascii_case(name.as_bytes())).map(|(_, value)| value)
    }

    /// The same where it is a text in UTF-8.
    pub fn text(&self, name: &str) -> Option<&'a str> {
        self.header(name).and_then(|value| std::str::from_utf8(value).ok())
    }

    /// Every field with its name.
    pub fn headers(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        // SAFETY: the proxy lends the fields for as long as it lends the answer.
        self.headers.iter().map(|field| unsafe { field.parts() })
    }

    /// The pieces of memory that its body lies in.
    pub fn chunks(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        // SAFETY: the proxy lends the body for as long as it lends the answer.
        self.body.iter().map(|chunk| unsafe { chunk.bytes() })
    }

    /// A copy of its body.
    pub fn body(&self) -> Vec<u8> {
        self.chunks().collect::<Vec<_>>().concat()
    }
}

/// Fields as the proxy takes them, for as long as they are there.
pub(crate) fn lent(fields: &[(&str, &[u8])]) -> Vec<Header> {
    fields.iter().map(|(name, value)| Header::of(name.as_bytes(), value)).collect()
}

impl fmt::Display for CallRefused {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            CallRefused::LacksHeaders => "the call has no method, path or authority",
            CallRefused::NoCluster => "there is no such cluster",
            CallRefused::Impossible => "the call cannot be sent",
        })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Failure::Reset => "the call was cut off",
            Failure::TooLarge => "the answer is too large",
        })
    }
}

impl std::error::Error for CallRefused {}
impl std::error::Error for Failure {}

/// Calls. They end with the stream.
impl Stream<'_> {
    /// Sends a request; its end comes as [`HttpFilter::on_call_done`](crate::HttpFilter::on_call_done).
    ///
    /// # Errors
    /// It cannot be sent.
    pub fn call(&mut self, call: &Call) -> Result<CallId, CallRefused> {
        let stream = self.handle();
        call.start(|id, cluster, headers, count, body, timeout| {
            // SAFETY: the handle is that of a stream in a hook, and everything else is there during the call.
            unsafe { abi::http_callout(stream, id, cluster, headers, count, body, timeout) }
        })
    }

    /// Sends a request whose answer comes in pieces: as `on_call_headers`, `on_call_body`, `on_call_trailers` and
    /// `on_call_end`. Without `end`, more of the request follows by [`Stream::send_call_body`]. The time for it begins with
    /// its end.
    ///
    /// # Errors
    /// It cannot be sent.
    pub fn open_call(&mut self, call: &Call, end: bool) -> Result<CallId, CallRefused> {
        let stream = self.handle();
        call.start(|id, cluster, headers, count, body, timeout| {
            // SAFETY: as above.
            unsafe { abi::start_http_stream(stream, id, cluster, headers, count, body, end, timeout) }
        })
    }

    /// Sends more of a request's body, which leaves while more is written. `false` when the call is over, or far too much
    /// waits for the cluster.
    pub fn send_call_body(&mut self, call: CallId, data: &[u8], end: bool) -> bool {
        // SAFETY: as above.
        unsafe { abi::stream_send_data(self.handle(), call.0, Buffer::of(data), end) }
    }

    /// Ends a request with fields behind its body. Over HTTP/1 they leave where the cluster has `enable_trailers`.
    pub fn send_call_trailers(&mut self, call: CallId, trailers: &[(&str, &[u8])]) -> bool {
        let fields = lent(trailers);
        // SAFETY: as above.
        unsafe { abi::stream_send_trailers(self.handle(), call.0, fields.as_ptr(), fields.len()) }
    }

    /// Gives a call up that was opened by [`Stream::open_call`].
    pub fn reset_call(&mut self, call: CallId) {
        // SAFETY: as above.
        unsafe { abi::reset_http_stream(self.handle(), call.0) };
    }
}
