//! One request with its answer, as a filter sees it.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::c_int;

use crate::abi::{self, Buffer, StreamRef};
use crate::attribute::Attribute;
use crate::body::{Body, BodyMut, Part};
use crate::headers::{Headers, HeadersMut, Map};
use crate::http::Later;
use crate::reply::Reply;
use crate::schedule::Scheduler;

/// One request with its answer, for the time of a hook. It cannot leave its thread.
pub struct Stream<'h> {
    handle: StreamRef,
    /// What is to be done when the hook has returned.
    later: &'h RefCell<Vec<Later>>,
}

/// Where metadata is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
#[non_exhaustive]
pub enum MetadataSource {
    /// The stream's own, as filters note it.
    Dynamic = 0,
    /// The route's.
    Route = 1,
    /// That of the cluster that the request goes to.
    Cluster = 2,
    /// That of the host that it went to, once one was chosen. So the next.
    Host = 3,
    /// That of the host's locality.
    Locality = 4,
}

/// A connection of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum Socket {
    /// The one that it will be sent on, once there is one.
    Upstream = 0,
    /// The client's. Postrider sets no options where it serves other streams, too (HTTP/2).
    Client = 1,
}

/// Options are set before the socket has an address.
const BEFORE_BIND: c_int = 0;

impl<'h> Stream<'h> {
    pub(crate) fn new(handle: StreamRef, later: &'h RefCell<Vec<Later>>) -> Stream<'h> {
        Stream { handle, later }
    }

    pub(crate) fn handle(&self) -> StreamRef {
        self.handle
    }

    /// The request's head.
    pub fn request_headers(&self) -> Headers<'_> {
        Headers::new(&self.handle, Map::RequestHeaders)
    }

    /// The request's head, to be changed.
    pub fn request_headers_mut(&mut self) -> HeadersMut<'_> {
        HeadersMut::new(&mut self.handle, Map::RequestHeaders)
    }

    /// The request's trailers.
    pub fn request_trailers(&self) -> Headers<'_> {
        Headers::new(&self.handle, Map::RequestTrailers)
    }

    /// The request's trailers, to be changed.
    pub fn request_trailers_mut(&mut self) -> HeadersMut<'_> {
        HeadersMut::new(&mut self.handle, Map::RequestTrailers)
    }

    /// The response's head.
    pub fn response_headers(&self) -> Headers<'_> {
        Headers::new(&self.handle, Map::ResponseHeaders)
    }

    /// The response's head, to be changed.
    pub fn response_headers_mut(&mut self) -> HeadersMut<'_> {
        HeadersMut::new(&mut self.handle, Map::ResponseHeaders)
    }

    /// The response's trailers.
    pub fn response_trailers(&self) -> Headers<'_> {
        Headers::new(&self.handle, Map::ResponseTrailers)
    }

    /// The response's trailers, to be changed.
    pub fn response_trailers_mut(&mut self) -> HeadersMut<'_> {
        HeadersMut::new(&mut self.handle, Map::ResponseTrailers)
    }

    /// The piece of the request's body that the hook is about.
    pub fn received_request_body(&self) -> Body<'_> {
        Body::new(&self.handle, Part::RequestReceived)
    }

    /// The same, to be changed.
    pub fn received_request_body_mut(&mut self) -> BodyMut<'_> {
        BodyMut::new(&mut self.handle, Part::RequestReceived)
    }

    /// What was kept of the request's body before.
    pub fn kept_request_body(&self) -> Body<'_> {
        Body::new(&self.handle, Part::RequestKept)
    }

    /// The same, to be changed.
    pub fn kept_request_body_mut(&mut self) -> BodyMut<'_> {
        BodyMut::new(&mut self.handle, Part::RequestKept)
    }

    /// A copy of what there is of the request's body: what was kept, and the piece in hand.
    pub fn request_body(&self) -> Vec<u8> {
        // SAFETY: the handle is that of a stream in a hook. So for every function of the proxy here.
        let at_once = unsafe { abi::received_buffered_request_body(self.handle) };
        whole(self.kept_request_body(), self.received_request_body(), at_once)
    }

    /// Puts other bytes in the place of what there is of the request's body. In the last hook on the body that is all of
    /// it: a `content-length` of a head that waits is set to fit.
    pub fn set_request_body(&mut self, body: impl AsRef<[u8]>) {
        let body = body.as_ref();
        // With a piece in hand, that is where they go.
        let kept = self.kept_request_body().len();
        self.kept_request_body_mut().drain(kept);
        if !self.received_request_body_mut().replace(body) {
            self.kept_request_body_mut().append(body);
        }
        fit(self.request_headers_mut(), body.len());
    }

    /// The piece of the response's body that the hook is about.
    pub fn received_response_body(&self) -> Body<'_> {
        Body::new(&self.handle, Part::ResponseReceived)
    }

    /// The same, to be changed.
    pub fn received_response_body_mut(&mut self) -> BodyMut<'_> {
        BodyMut::new(&mut self.handle, Part::ResponseReceived)
    }

    /// What was kept of the response's body before.
    pub fn kept_response_body(&self) -> Body<'_> {
        Body::new(&self.handle, Part::ResponseKept)
    }

    /// The same, to be changed.
    pub fn kept_response_body_mut(&mut self) -> BodyMut<'_> {
        BodyMut::new(&mut self.handle, Part::ResponseKept)
    }

    /// A copy of what there is of the response's body: what was kept, and the piece in hand.
    pub fn response_body(&self) -> Vec<u8> {
        // SAFETY: as above.
        let at_once = unsafe { abi::received_buffered_response_body(self.handle) };
        whole(self.kept_response_body(), self.received_response_body(), at_once)
    }

    /// As [`Stream::set_request_body`].
    pub fn set_response_body(&mut self, body: impl AsRef<[u8]>) {
        let body = body.as_ref();
        let kept = self.kept_response_body().len();
        self.kept_response_body_mut().drain(kept);
        if !self.received_response_body_mut().replace(body) {
            self.kept_response_body_mut().append(body);
        }
        fit(self.response_headers_mut(), body.len());
    }

    /// Most bytes of a body that are kept; 0 is no limit.
    pub fn buffer_limit(&self) -> u64 {
        // SAFETY: as above.
        unsafe { abi::get_buffer_limit(self.handle) }
    }

    /// Sets that limit, for both messages of this stream.
    pub fn set_buffer_limit(&mut self, limit: u64) {
        // SAFETY: as above.
        unsafe { abi::set_buffer_limit(self.handle, limit) };
    }

    /// Answers in the upstream's place, once the hook has returned; what the hook answers is then of no account. An answer
    /// that is on its way already is cut off.
    pub fn reply(&mut self, reply: Reply) {
        self.later.borrow_mut().push(Later::Reply(reply));
    }

    /// Answers in pieces: with this reply's status, fields and body first. Without `end`, more follows by
    /// [`Stream::reply_piece`], from whatever hook.
    pub fn begin_reply(&mut self, reply: Reply, end: bool) {
        self.later.borrow_mut().push(Later::BeginReply(reply, end));
    }

    /// More of an answer in pieces.
    pub fn reply_piece(&mut self, data: impl Into<Vec<u8>>, end: bool) {
        self.later.borrow_mut().push(Later::ReplyPiece(data.into(), end));
    }

    /// Ends an answer in pieces with trailers.
    pub fn end_reply(&mut self, trailers: Vec<(String, Vec<u8>)>) {
        self.later.borrow_mut().push(Later::EndReply(trailers));
    }

    /// Lets a request go on that a hook stopped.
    pub fn continue_request(&mut self) {
        self.later.borrow_mut().push(Later::ContinueRequest);
    }

    /// Lets a response go on that a hook stopped.
    pub fn continue_response(&mut self) {
        self.later.borrow_mut().push(Later::ContinueResponse);
    }

    /// Cuts the stream off, without an answer. The details are for the log.
    pub fn reset(&mut self, details: &str) {
        self.later.borrow_mut().push(Later::Reset(details.to_owned()));
    }

    /// Has the request begin anew once the hook has returned: as its head is now, through routes and filters, as if it had just
    /// come. For a request without a body, before its answer has begun; any other is answered with 500. A filter that does it
    /// whatever the request says does it for ever in Envoy; Postrider answers with 508 after 16 times.
    pub fn recreate(&mut self) {
        self.later.borrow_mut().push(Later::Recreate);
    }

    /// Sets a number as an option of the socket of one of the stream's connections, by the system's numbers; `false` where
    /// that cannot be. Connections to upstreams that were made with options serve no requests without, nor the other way round.
    pub fn set_socket_option(&mut self, which: Socket, level: i32, name: i32, value: i32) -> bool {
        let (level, name, value) = (level.into(), name.into(), value.into());
        // SAFETY: as above.
        unsafe { abi::set_socket_option_int(self.handle, level, name, BEFORE_BIND, which as c_int, value) }
    }

    /// Has the route looked up again, by the request as it is now.
    pub fn clear_route(&mut self) {
        // SAFETY: as above.
        unsafe { abi::clear_route_cache(self.handle) };
    }

    /// The most specific configuration of the route; `None` where there is none, or it is not an `R`.
    pub fn route_config<R: 'static>(&self) -> Option<&R> {
        // SAFETY: as above.
        let own = unsafe { abi::get_route_config(self.handle) };
        // SAFETY: it is what `hooks::route_config_new` made, and stays until the stream is over.
        let config = unsafe { own.cast::<Box<dyn Any + Send + Sync>>().as_ref() }?;
        config.downcast_ref()
    }

    /// The number of the worker that serves the stream, from 0.
    pub fn worker(&self) -> u32 {
        // SAFETY: as above.
        unsafe { abi::get_worker_index(self.handle) }
    }

    /// The cluster that the request goes to as things are.
    pub fn cluster(&self) -> Option<&str> {
        let mut name = Buffer::NOTHING;
        // SAFETY: as above.
        let found = unsafe { abi::get_cluster_name(self.handle, &raw mut name) };
        // SAFETY: the proxy's bytes are there until the hook ends or the stream is changed.
        let name = found.then(|| unsafe { name.bytes() })?;
        std::str::from_utf8(name).ok()
    }

    /// Asks for a host of the cluster, as `address:port`. With `strict`, no other will do.
    pub fn set_upstream_host(&mut self, host: &str, strict: bool) -> bool {
        // SAFETY: as above; the text is there during the call.
        unsafe { abi::set_upstream_override_host(self.handle, Buffer::of(host.as_bytes()), strict) }
    }

    /// A fact that is a text.
    pub fn attribute(&self, attribute: Attribute) -> Option<&[u8]> {
        let mut value = Buffer::NOTHING;
        // SAFETY: as above.
        let found = unsafe { abi::get_attribute_string(self.handle, attribute as c_int, &raw mut value) };
        // SAFETY: the proxy's bytes are there until the hook ends or the stream is changed.
        found.then(|| unsafe { value.bytes() })
    }

    /// A fact that is a text, where it is one in UTF-8.
    pub fn text(&self, attribute: Attribute) -> Option<&str> {
        self.attribute(attribute).and_then(|value| std::str::from_utf8(value).ok())
    }

    /// A fact that is a number.
    pub fn number(&self, attribute: Attribute) -> Option<u64> {
        let mut value = 0;
        // SAFETY: as above.
        unsafe { abi::get_attribute_int(self.handle, attribute as c_int, &raw mut value) }.then_some(value)
    }

    /// A fact that is true or false.
    pub fn truth(&self, attribute: Attribute) -> Option<bool> {
        let mut value = false;
        // SAFETY: as above.
        unsafe { abi::get_attribute_bool(self.handle, attribute as c_int, &raw mut value) }.then_some(value)
    }

    /// A way for other threads to reach this stream.
    pub fn scheduler(&mut self) -> Scheduler {
        Scheduler::open(self.handle)
    }
}

fn whole(kept: Body<'_>, received: Body<'_>, at_once: bool) -> Vec<u8> {
    // Where what was kept is shown as received, it is the same bytes twice.
    let mut bytes = if at_once { Vec::new() } else { kept.to_vec() };
    bytes.extend(received.chunks().into_iter().flatten());
    bytes
}

fn fit(mut headers: HeadersMut<'_>, length: usize) {
    if headers.read().get("content-length").is_some() {
        headers.set("content-length", length.to_string());
    }
}
