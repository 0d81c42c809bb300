//! The span of a request, and that of one try of it, with the tags that Envoy gives them.

use std::time::SystemTime;

use postrider_filter_api::{Flags, Moment, OpenSpan, SpanIds, StreamInfo};
use postrider_grpc::otlp::spans::{
    CLIENT, Event, FAILED, KNOWS_PARENT, PARENT_IS_REMOTE, SAMPLED, SERVER, Span, Status,
};
use postrider_http::{Fields, HeaderId, grpc};
use postrider_model::{Node, RouteTracing, Tracing};

use super::tags::Tags;
use crate::clock::Clock;
use crate::format::Context;
use crate::sinks::nanos;

/// What is known of a span before anything is said of it.
pub(crate) struct Outline<'t> {
    pub(crate) name: String,
    pub(crate) ids: SpanIds,
    pub(crate) parent: Option<[u8; 8]>,
    /// The caller's, not one of ours.
    pub(crate) parent_is_remote: bool,
    pub(crate) state: &'t str,
    pub(crate) begins: SystemTime,
    pub(crate) ends: SystemTime,
}

/// The span of something that a filter did for a request, and that is over.
pub(crate) fn of_child(child: &OpenSpan, ends: SystemTime) -> Span {
    let outline = Outline {
        name: child.name.take(),
        ids: child.ids,
        parent: child.parent,
        parent_is_remote: false,
        state: &child.state,
        begins: child.began,
        ends,
    };
    let mut tags = Tags::default();
    tags.add_said(child);
    finish(outline, CLIENT, tags, said_events(child), child.failed.get())
}

/// What filters noted about a span, with the time at which they did.
fn said_events(span: &OpenSpan) -> Vec<Event> {
    let noted = span.events.take().into_iter();
    noted.map(|(at, name)| Event { time_unix_nano: nanos(at), name }).collect()
}

/// The span of a request that is over, with what filters said of it.
pub(crate) fn of_client(
    (outline, said): (Outline<'_>, &OpenSpan),
    (tracing, route): (&Tracing, Option<&RouteTracing>),
    context: &Context<'_>,
    node: &Node,
    clock: &Clock,
) -> Span {
    let (request, info) = (context.request, context.info);
    let mut tags = Tags::default();
    tags.set("node_id", node.id.as_str());
    tags.set("zone", node.zone.as_str());
    tags.add_said(said);
    if let Some(id) = request.fields.get(HeaderId::XRequestId) {
        tags.set_bytes("guid:x-request-id", id);
    }
    tags.set_bytes("http.url", &url(context, tracing.max_path));
    tags.set_bytes("http.method", request.method_bytes());
    let or_dash = |id| request.fields.get(id).unwrap_or(b"-");
    tags.set_bytes("downstream_cluster", or_dash(HeaderId::XEnvoyDownstreamServiceCluster));
    tags.set_bytes("user_agent", or_dash(HeaderId::UserAgent));
    tags.set("http.protocol", request.version().as_str());
    tags.set("peer.address", info.downstream_direct_remote.map_or(String::new(), |peer| peer.ip().to_string()));
    if let Some(id) = request.fields.get_name(b"x-client-trace-id") {
        tags.set_bytes("guid:x-client-trace-id", id);
    }
    if grpc::has_content_type(&request.fields) {
        tags.set_bytes("grpc.path", request.path());
        tags.set_bytes("grpc.authority", request.authority());
        let others = [(HeaderId::ContentType, "grpc.content_type"), (HeaderId::GrpcTimeout, "grpc.timeout")];
        for (id, name) in others {
            if let Some(value) = request.fields.get(id) {
                tags.set_bytes(name, value);
            }
        }
    }
    tags.set("request_size", info.bytes_received.to_string());
    tags.set("response_size", info.bytes_sent.to_string());
    // A proxy whose tries have no spans of their own is no hop: what leaves by it is its client's.
    let kind = if tracing.outbound && !tracing.spawns_upstream_span { CLIENT } else { SERVER };
    let mut failed = add_common(&mut tags, (tracing, route), context, kind);
    for fields in [&context.response.fields, context.trailers] {
        if let Some(of_call) = add_grpc_status(&mut tags, fields, kind) {
            failed |= of_call;
        }
    }
    let moments = [
        (info.request_received, "last_downstream_rx_byte_received"),
        (info.request_send_began, "first_upstream_tx_byte_sent"),
        (info.request_sent, "last_upstream_tx_byte_sent"),
        (info.response_began, "first_upstream_rx_byte_received"),
        (info.response_received, "last_upstream_rx_byte_received"),
        (info.response_send_began, "first_downstream_tx_byte_sent"),
        (info.ended, "last_downstream_tx_byte_sent"),
    ];
    let mut noted = said_events(said);
    if tracing.verbose {
        noted.extend(events(&moments, clock));
    }
    finish(outline, kind, tags, noted, failed)
}

/// The span of a try that is over; `attempt` counts from 1. It was `given_up` when nobody waited for its answer any more.
pub(crate) fn of_try(
    outline: Outline<'_>,
    (tracing, route): (&Tracing, Option<&RouteTracing>),
    context: &Context<'_>,
    (attempt, given_up): (u32, bool),
    clock: &Clock,
) -> Span {
    let info = context.info;
    let mut tags = Tags::default();
    if attempt > 1 {
        tags.set("retry.count", (attempt - 1).to_string());
    }
    if let Some(reason) = reset_reason(info) {
        tags.set("error", "true");
        tags.set("error.reason", reason);
    } else if given_up {
        tags.set("canceled", "true");
    }
    let protocol = if info.upstream_protocol.is_empty() { "-" } else { info.upstream_protocol };
    tags.set("http.protocol", protocol);
    if let Some(address) = info.upstream_remote.as_deref() {
        tags.set("upstream_address", address);
        tags.set("peer.address", address);
    }
    let failed = add_common(&mut tags, (tracing, route), context, CLIENT);
    let moments = [
        (info.request_send_began, "first_upstream_tx_byte_sent"),
        (info.request_sent, "last_upstream_tx_byte_sent"),
        (info.response_began, "first_upstream_rx_byte_received"),
        (info.response_received, "last_upstream_rx_byte_received"),
    ];
    let events = if tracing.verbose { events(&moments, clock) } else { Vec::new() };
    finish(outline, CLIENT, tags, events, failed)
}

fn finish(outline: Outline<'_>, kind: i32, tags: Tags, events: Vec<Event>, failed: bool) -> Span {
    let remote = if outline.parent_is_remote { PARENT_IS_REMOTE } else { 0 };
    Span {
        trace_id: outline.ids.trace.to_vec(),
        span_id: outline.ids.span.to_vec(),
        trace_state: outline.state.to_owned(),
        parent_span_id: outline.parent.map(|parent| parent.to_vec()).unwrap_or_default(),
        name: outline.name,
        kind,
        start_time_unix_nano: nanos(outline.begins),
        end_time_unix_nano: nanos(outline.ends),
        attributes: tags.0,
        events,
        status: failed.then_some(Status { code: FAILED }),
        flags: SAMPLED | KNOWS_PARENT | remote,
    }
}

/// What both kinds of spans say; whether the status says that the span's part failed.
fn add_common(
    tags: &mut Tags,
    (tracing, route): (&Tracing, Option<&RouteTracing>),
    context: &Context<'_>,
    kind: i32,
) -> bool {
    let info = context.info;
    tags.set("component", "proxy");
    if let Some(name) = info.upstream_cluster.as_deref() {
        tags.set("upstream_cluster", name);
        tags.set("upstream_cluster.name", context.upstream.cluster.map_or(name, |cluster| cluster.shown_name()));
    }
    tags.set("http.status_code", info.status.to_string());
    let flags: Vec<_> = info.flags.names(context.http).map(|(short, _)| short).collect();
    tags.set("response_flags", if flags.is_empty() { "-".to_owned() } else { flags.join(",") });
    if info.status == 0 || info.status >= 500 {
        tags.set("error", "true");
    }
    tags.add_custom(route.map_or(&[], |route| &route.tags), &tracing.tags, context);
    // A client's mistake is none of the server's.
    info.status >= 500 || kind == CLIENT && info.status >= 400
}

/// Whether a call of gRPC failed; `None` when these fields say nothing of it.
fn add_grpc_status(tags: &mut Tags, fields: &Fields, kind: i32) -> Option<bool> {
    let status = fields.get(HeaderId::GrpcStatus)?;
    tags.set_bytes("grpc.status_code", status);
    if let Some(message) = fields.get(HeaderId::GrpcMessage) {
        tags.set_bytes("grpc.message", message);
    }
    let code: u32 = std::str::from_utf8(status).ok()?.parse().ok()?;
    // Unknown, deadline exceeded, unimplemented, internal, unavailable, data loss; the tag also for a resource exhausted.
    let of_server = matches!(code, 2 | 4 | 12..=15);
    if of_server || code == 8 {
        tags.set("error", "true");
    }
    Some(if kind == CLIENT { (1..=16).contains(&code) } else { of_server })
}

/// The URL that the client asked for, with a path of bounded length.
fn url(context: &Context<'_>, max_path: usize) -> Vec<u8> {
    let request = context.request;
    let path = request.fields.get(HeaderId::XEnvoyOriginalPath).unwrap_or(request.path());
    let path = path.get(..max_path).unwrap_or(path);
    let scheme = request.fields.get(HeaderId::XForwardedProto).unwrap_or_default();
    [scheme, b"://", request.authority(), path].concat()
}

/// Why there was no answer, in Envoy's words.
fn reset_reason(info: &StreamInfo) -> Option<&'static str> {
    [
        (Flags::UPSTREAM_CONNECTION_FAILURE, "remote connection failure"),
        (Flags::UPSTREAM_CONNECTION_TERMINATION, "connection termination"),
        (Flags::UPSTREAM_REMOTE_RESET, "remote reset"),
        (Flags::UPSTREAM_PROTOCOL_ERROR, "protocol error"),
        (Flags::UPSTREAM_OVERFLOW, "overflow"),
    ]
    .into_iter()
    .find(|(flag, _)| info.flags.contains(*flag))
    .map(|(_, reason)| reason)
}

fn events(moments: &[(Option<Moment>, &str)], clock: &Clock) -> Vec<Event> {
    let event = |(at, name): &(Option<Moment>, &str)| {
        at.map(|at| Event { time_unix_nano: nanos(clock.wall(at)), name: (*name).to_owned() })
    };
    moments.iter().filter_map(event).collect()
}
