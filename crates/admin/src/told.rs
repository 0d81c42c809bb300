//! What the access log is told of a request, once its answer was sent.

use crate::control::Served;
use crate::endpoints::Endpoints;
use crate::response::Body;
use hyper::body::{Bytes, Frame, SizeHint};
use hyper::http::request::Parts;
use hyper::{HeaderMap, Response, Version};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

/// The addresses of a connection; none on a Unix domain socket.
#[derive(Clone, Copy, Default)]
pub(crate) struct Ends {
    pub(crate) local: Option<SocketAddr>,
    pub(crate) peer: Option<SocketAddr>,
}

/// A request and its answer. The log is told when this is dropped.
pub(crate) struct Told {
    endpoints: Rc<Endpoints>,
    head: Parts,
    received: u64,
    status: u16,
    fields: HeaderMap,
    sent: u64,
    ends: Ends,
    begun: Instant,
}

impl Told {
    /// A request with so many bytes of body, before its answer is known.
    pub(crate) fn new(endpoints: Rc<Endpoints>, head: Parts, received: u64, ends: Ends, begun: Instant) -> Self {
        Self { endpoints, head, received, status: 0, fields: HeaderMap::new(), sent: 0, ends, begun }
    }

    pub(crate) fn answered(&mut self, response: &Response<Body>) {
        self.status = response.status().as_u16();
        self.fields.clone_from(response.headers());
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        self.endpoints.control().served(&Served {
            method: self.head.method.as_str(),
            target: self.head.uri.path_and_query().map_or("", |target| target.as_str()),
            is_http_10: self.head.version == Version::HTTP_10,
            request_fields: fields(&self.head.headers),
            received: self.received,
            status: self.status,
            response_fields: fields(&self.fields),
            sent: self.sent,
            local: self.ends.local,
            peer: self.ends.peer,
            duration: self.begun.elapsed(),
        });
    }
}

fn fields(map: &HeaderMap) -> Vec<(&str, &[u8])> {
    map.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect()
}

/// The body of an answer, whose end is the request's.
pub(crate) struct Logged {
    pub(crate) body: Body,
    pub(crate) told: Told,
}

impl hyper::body::Body for Logged {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        if let Some(data) = frame.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref()) {
            self.told.sent += data.len() as u64;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
