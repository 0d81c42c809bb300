//! An answer: status, content type, and a body that is there or comes in chunks.

use crate::pretty::pretty;
use hyper::body::{Bytes, Frame, SizeHint};
use hyper::header::{self, HeaderValue};
use hyper::{Response, StatusCode};
use serde_json::Value;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=UTF-8");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const HTML: HeaderValue = HeaderValue::from_static("text/html; charset=UTF-8");

const METRICS: HeaderValue = HeaderValue::from_static(
    "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited",
);

/// What chunks hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    Text,
    Json,
    Html,
    /// Prometheus' protocol buffers.
    Metrics,
}

/// What is done once an answer was sent.
pub(crate) type Order = Box<dyn FnOnce() + Send>;

/// What an endpoint answers.
pub struct Reply {
    status: StatusCode,
    content_type: HeaderValue,
    body: Body,
    after: Option<Order>,
    /// The methods of a 405.
    allow: Option<&'static str>,
}

impl Reply {
    /// 200 with plain text.
    pub fn text(body: impl Into<String>) -> Self {
        Self::new(StatusCode::OK, TEXT, Body::whole(body.into().into_bytes()))
    }

    /// Plain text with another status, for what cannot be answered.
    pub fn refusal(status: StatusCode, message: impl Into<String>) -> Self {
        Self::new(status, TEXT, Body::whole(message.into().into_bytes()))
    }

    /// 400 with the reason.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::refusal(StatusCode::BAD_REQUEST, message)
    }

    /// 200 with `OK`, as orders are answered.
    pub fn done() -> Self {
        Self::text("OK\n")
    }

    /// 200 with a JSON document in Envoy's layout.
    pub fn json(value: &Value) -> Self {
        Self::new(StatusCode::OK, JSON, Body::whole(pretty(value)))
    }

    pub(crate) fn html(body: String) -> Self {
        Self::new(StatusCode::OK, HTML, Body::whole(body.into_bytes()))
    }

    /// 200 with chunks that are made when the client has room for them.
    pub(crate) fn chunks(kind: Content, chunks: impl Iterator<Item = Vec<u8>> + Send + 'static) -> Self {
        let content_type = match kind {
            Content::Text => TEXT,
            Content::Json => JSON,
            Content::Html => HTML,
            Content::Metrics => METRICS,
        };
        Self::new(StatusCode::OK, content_type, Body::Chunks(Box::new(chunks)))
    }

    /// 200 with pieces that come when they come, for as long as the client stays.
    pub(crate) fn feed(feed: Box<dyn Feed>) -> Self {
        Self::new(StatusCode::OK, TEXT, Body::Feed(feed))
    }

    /// Whether it may take longer than a connection lasts otherwise.
    pub(crate) fn is_feed(&self) -> bool {
        matches!(self.body, Body::Feed(_))
    }

    /// 405, naming the method that is allowed (RFC 9110, section 15.5.6).
    pub(crate) fn post_required(method: &str) -> Self {
        Self::refusal(StatusCode::METHOD_NOT_ALLOWED, format!("Method {method} not allowed, POST required."))
            .allowing("POST")
    }

    /// The same, naming the methods that are allowed.
    pub(crate) fn allowing(mut self, methods: &'static str) -> Self {
        self.allow = Some(methods);
        self
    }

    /// Does `order` once this answer is on its way, and ends the connection.
    pub(crate) fn then(mut self, order: impl FnOnce() + Send + 'static) -> Self {
        self.after = Some(Box::new(order));
        self
    }

    /// The same as plain text that names no encoding.
    pub(crate) fn without_charset(mut self) -> Self {
        self.content_type = HeaderValue::from_static("text/plain");
        self
    }

    /// The same with another status.
    pub(crate) fn with_status(mut self, status: StatusCode) -> Self {
        self.status = status;
        self
    }

    fn new(status: StatusCode, content_type: HeaderValue, body: Body) -> Self {
        Self { status, content_type, body, after: None, allow: None }
    }

    pub(crate) fn status(&self) -> u16 {
        self.status.as_u16()
    }

    /// The answer, and what to do when it was sent.
    pub(crate) fn into_parts(self) -> (Response<Body>, Option<Order>) {
        let mut response = Response::new(self.body);
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, self.content_type);
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, max-age=0"));
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        headers.insert(header::SERVER, HeaderValue::from_static("postrider"));
        if let Some(methods) = self.allow {
            headers.insert(header::ALLOW, HeaderValue::from_static(methods));
        }
        if self.after.is_some() {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        (response, self.after)
    }
}

/// The bytes of an answer.
pub(crate) enum Body {
    Whole(Option<Bytes>),
    Chunks(Box<dyn Iterator<Item = Vec<u8>> + Send>),
    Feed(Box<dyn Feed>),
}

/// Pieces of an answer; `None` is its end. Dropped when the client goes away.
pub(crate) trait Feed: Send {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Vec<u8>>>;
}

impl Body {
    fn whole(bytes: Vec<u8>) -> Self {
        Self::Whole(Some(Bytes::from(bytes)).filter(|bytes| !bytes.is_empty()))
    }
}

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let data = match self.get_mut() {
            Self::Whole(bytes) => bytes.take(),
            Self::Chunks(chunks) => chunks.next().map(Bytes::from),
            Self::Feed(feed) => match feed.poll(context) {
                Poll::Ready(piece) => piece.map(Bytes::from),
                Poll::Pending => return Poll::Pending,
            },
        };
        Poll::Ready(data.map(|data| Ok(Frame::data(data))))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Self::Chunks(_) | Self::Feed(_) => SizeHint::default(),
        }
    }
}
