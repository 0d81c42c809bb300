//! The span of a request, where its listener tells collectors of requests, and children of it.

use std::ffi::c_void;
use std::marker::PhantomData;

use crate::abi::{self, Buffer, StreamRef};
use crate::stream::Stream;

/// The request's own span: what is said of it is told when the request is over.
pub struct Span<'s> {
    stream: StreamRef,
    span: *mut c_void,
    lent: PhantomData<&'s ()>,
}

/// A part of a request that the module sees to. It ends when it is dropped, and is told then.
pub struct ChildSpan {
    span: *mut c_void,
}

impl Stream<'_> {
    /// The request's span; `None` where nobody is told of requests. Envoy has it from 1.38 on.
    pub fn span(&mut self) -> Option<Span<'_>> {
        let stream = self.handle();
        // SAFETY: the handle is that of a stream in a hook. The span is there as long as the stream.
        let span = unsafe { abi::get_active_span(stream) };
        (!span.is_null()).then_some(Span { stream, span, lent: PhantomData })
    }
}

impl Span<'_> {
    /// A tag; the last value of a name counts.
    pub fn set_tag(&mut self, name: &str, value: &str) {
        set_tag(self.span, name, value);
    }

    /// What it is called.
    pub fn set_name(&mut self, name: &str) {
        set_name(self.span, name);
    }

    /// Something that happened now.
    pub fn add_event(&mut self, event: &str) {
        // SAFETY: both handles are those of a stream in a hook; the text is there during the call.
        unsafe { abi::span_log(self.stream, self.span, Buffer::of(event.as_bytes())) };
    }

    /// Whether it is told, and upstreams hear so. Another route may decide anew, unless that is [settled](Span::settle).
    pub fn set_sampled(&mut self, sampled: bool) {
        // SAFETY: the handle is that of a span.
        unsafe { abi::span_set_sampled(self.span, sampled) };
    }

    /// Another route of the request decides no more whether it is told.
    pub fn settle(&mut self) {
        // SAFETY: the handle is that of a span.
        unsafe { abi::span_disable_local_decision(self.span) };
    }

    /// The identifier of the trace, in hexadecimal digits.
    pub fn trace_id(&self) -> Option<String> {
        let mut text = Buffer::NOTHING;
        // SAFETY: the handle is that of a span, and there is room for a text.
        let found = unsafe { abi::span_get_trace_id(self.span, &raw mut text) };
        // SAFETY: the text is there until another one is asked for.
        found.then(|| String::from_utf8_lossy(unsafe { text.bytes() }).into_owned())
    }

    /// Its own identifier.
    pub fn id(&self) -> Option<String> {
        id(self.span)
    }

    /// Begins a part of it.
    pub fn child(&mut self, name: &str) -> Option<ChildSpan> {
        // SAFETY: both handles are those of a stream in a hook; the text is there during the call.
        let span = unsafe { abi::span_spawn_child(self.stream, self.span, Buffer::of(name.as_bytes())) };
        (!span.is_null()).then_some(ChildSpan { span })
    }
}

impl ChildSpan {
    /// As [`Span::set_tag`].
    pub fn set_tag(&mut self, name: &str, value: &str) {
        set_tag(self.span, name, value);
    }

    /// As [`Span::set_name`].
    pub fn set_name(&mut self, name: &str) {
        set_name(self.span, name);
    }

    /// Its own identifier, for whoever is to go on with it.
    pub fn id(&self) -> Option<String> {
        id(self.span)
    }

    /// It is over.
    pub fn end(self) {}
}

impl Drop for ChildSpan {
    fn drop(&mut self) {
        // SAFETY: the handle is that of a child, which is ended once.
        unsafe { abi::child_span_finish(self.span) };
    }
}

fn set_tag(span: *mut c_void, name: &str, value: &str) {
    // SAFETY: the handle is that of a span; the texts are there during the call. So below.
    unsafe { abi::span_set_tag(span, Buffer::of(name.as_bytes()), Buffer::of(value.as_bytes())) };
}

fn set_name(span: *mut c_void, name: &str) {
    // SAFETY: as above.
    unsafe { abi::span_set_operation(span, Buffer::of(name.as_bytes())) };
}

fn id(span: *mut c_void) -> Option<String> {
    let mut text = Buffer::NOTHING;
    // SAFETY: as above; there is room for a text, which is there until another one is asked for.
    unsafe { abi::span_get_span_id(span, &raw mut text).then(|| String::from_utf8_lossy(text.bytes()).into_owned()) }
}
