//! A stream as a hook of a filter in the shadow found it, to be put back behind the hook.
//!
//! What only tells stays: metadata, filter state, and what filters of a kind leave for each other.

use std::borrow::Cow;

use postrider_filter_api::{BufferLimit, Flags, Stream, UpstreamObjects, UpstreamOverride};
use postrider_http::{Fields, RequestHead, ResponseHead};

use super::held::Side;

pub(super) struct Found {
    request: RequestHead,
    response: ResponseHead,
    request_trailers: Fields,
    response_trailers: Fields,
    flags: Flags,
    details: Cow<'static, str>,
    blank_details: bool,
    termination_details: Cow<'static, str>,
    upstream_objects: Option<Box<UpstreamObjects>>,
    upstream_override: Option<UpstreamOverride>,
    route_is_stale: bool,
    is_health_check: bool,
    drain_connection: bool,
    streams_reply: bool,
    buffer_limit: BufferLimit,
}

/// What a hook would have done beside its answer.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Undone {
    pub(super) request_changes: bool,
    pub(super) response_changes: bool,
    /// The request would have gone there.
    pub(super) host: Option<UpstreamOverride>,
    /// The filter holds so many bytes of the request at most.
    pub(super) request_limit: Option<u32>,
}

impl Undone {
    pub(super) fn changes(&self, side: Side) -> bool {
        match side {
            Side::Request => self.request_changes,
            Side::Response => self.response_changes,
        }
    }
}

impl Found {
    /// The hook finds no limit of another filter's: one that it leaves is its own.
    pub(super) fn of(stream: &mut Stream<'_>) -> Found {
        let info = &mut *stream.info;
        Found {
            request: stream.request.clone(),
            response: stream.response.clone(),
            request_trailers: stream.request_trailers.clone(),
            response_trailers: stream.response_trailers.clone(),
            flags: info.flags,
            details: info.details.clone(),
            blank_details: info.blank_details,
            termination_details: info.termination_details.clone(),
            upstream_objects: info.upstream_objects.clone(),
            upstream_override: info.upstream_override.clone(),
            route_is_stale: info.route_is_stale,
            is_health_check: info.is_health_check,
            drain_connection: info.drain_connection,
            streams_reply: info.streams_reply,
            buffer_limit: std::mem::take(&mut info.buffer_limit),
        }
    }

    pub(super) fn put_back(self, stream: &mut Stream<'_>) -> Undone {
        let info = &mut *stream.info;
        let undone = Undone {
            request_changes: !is_same_request(&self.request, stream.request)
                || !is_same(&self.request_trailers, stream.request_trailers),
            response_changes: !is_same_response(&self.response, stream.response)
                || !is_same(&self.response_trailers, stream.response_trailers),
            host: info.upstream_override.take().filter(|host| Some(host) != self.upstream_override.as_ref()),
            request_limit: match info.buffer_limit {
                BufferLimit::Request(limit) => Some(limit),
                BufferLimit::OfConnection | BufferLimit::Both(_) => None,
            },
        };
        *stream.request = self.request;
        *stream.response = self.response;
        *stream.request_trailers = self.request_trailers;
        *stream.response_trailers = self.response_trailers;
        info.flags = self.flags;
        info.details = self.details;
        info.blank_details = self.blank_details;
        info.termination_details = self.termination_details;
        info.upstream_objects = self.upstream_objects;
        info.upstream_override = self.upstream_override;
        info.route_is_stale = self.route_is_stale;
        info.is_health_check = self.is_health_check;
        info.drain_connection = self.drain_connection;
        info.streams_reply = self.streams_reply;
        info.buffer_limit = self.buffer_limit;
        undone
    }
}

fn is_same_request(one: &RequestHead, other: &RequestHead) -> bool {
    let line = |head: &RequestHead| (head.method(), head.scheme());
    line(one) == line(other)
        && one.method_bytes() == other.method_bytes()
        && one.path() == other.path()
        && is_same(&one.fields, &other.fields)
}

fn is_same_response(one: &ResponseHead, other: &ResponseHead) -> bool {
    one.status() == other.status() && is_same(&one.fields, &other.fields)
}

fn is_same(one: &Fields, other: &Fields) -> bool {
    one.iter().map(|field| (field.name, field.value)).eq(other.iter().map(|field| (field.name, field.value)))
}
