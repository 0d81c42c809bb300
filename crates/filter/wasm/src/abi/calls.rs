//! Calls of modules to clusters: HTTP and gRPC. They belong to the root context.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use postrider_filter_api::{Call, GrpcCall, GrpcOpen, GrpcService};
use postrider_http::{HeaderId, RequestHead};
use postrider_telemetry::log::Level;
use prost::Message;
use wasmtime::Linker;

use super::{Answer, Guest, bytes, put_number, split};
use crate::contexts::Underway;
use crate::data::Data;
use crate::delivery::{Delivery, What};
use crate::grpc::Conversation;
use crate::maps::Target;
use crate::pairs;
use crate::status::{BAD_ARGUMENT, INTERNAL_FAILURE, INVALID_MEMORY_ACCESS, NOT_FOUND, OK, PARSE_FAILURE};

/// Most calls of one root context that are under way at once, conversations among them.
const MAX_CALLS: usize = 10_000;

/// Most bytes that are sent with them.
const MAX_CALL_BYTES: usize = 64 << 20;

/// Tokens tell in their lowest bits what they are of, as in Envoy: no two calls have the same, whatever they are.
const KINDS: u32 = 4;
const UNARY: u32 = 1;
const CONVERSATION: u32 = 2;

/// Counts on by one call.
fn count(last: &mut u32) -> u32 {
    *last = last.checked_add(KINDS).filter(|next| *next <= u32::MAX - KINDS).unwrap_or(KINDS);
    *last
}

pub(super) fn define(linker: &mut Linker<Data>) -> wasmtime::Result<()> {
    linker.func_wrap("env", "proxy_http_call", http_call)?;
    linker.func_wrap("env", "proxy_grpc_call", grpc_call)?;
    linker.func_wrap("env", "proxy_grpc_stream", grpc_stream)?;
    linker.func_wrap("env", "proxy_grpc_send", grpc_send)?;
    linker.func_wrap("env", "proxy_grpc_cancel", grpc_cancel)?;
    linker.func_wrap("env", "proxy_grpc_close", grpc_close)?;
    Ok(())
}

/// Whether the plugin may call that cluster, and send so much there.
fn may_call(data: &mut Data, cluster: &str, bytes: usize) -> bool {
    let Some((_, root)) = data.root() else { return false };
    let clusters = &root.plugin.facts.policy.clusters;
    let sent: usize = root.calls.iter().map(|call| call.bytes).sum();
    let why = if clusters.as_ref().is_some_and(|all| !all.iter().any(|known| known == cluster)) {
        "it is none of its clusters"
    } else if root.calls.len() + root.conversations.len() >= MAX_CALLS {
        "too many calls are under way"
    } else if sent.saturating_add(bytes) > MAX_CALL_BYTES {
        "too much is being sent"
    } else {
        return true;
    };
    crate::vm::log(Level::Warning, &format!("a WebAssembly plugin may not call the cluster `{cluster}`: {why}"));
    false
}

/// The trailers have to be there, and nobody sends them, as in Envoy.
#[expect(clippy::too_many_arguments, reason = "the ABI's")]
fn http_call(
    mut guest: Guest<'_>,
    cluster: u32,
    cluster_length: u32,
    headers: u32,
    headers_length: u32,
    body: u32,
    body_length: u32,
    trailers: u32,
    trailers_length: u32,
    timeout: u32,
    out: u32,
) -> Answer {
    let (memory, data) = split(&mut guest);
    let (Ok(cluster), Ok(headers), Ok(body), Ok(_)) = (
        bytes(memory, cluster, cluster_length),
        bytes(memory, headers, headers_length),
        bytes(memory, body, body_length),
        bytes(memory, trailers, trailers_length),
    ) else {
        return Ok(INVALID_MEMORY_ACCESS);
    };
    if timeout > i32::MAX as u32 {
        return Ok(BAD_ARGUMENT);
    }
    let cluster = String::from_utf8_lossy(cluster).into_owned();
    let Some(mut head) = head_of(headers) else { return Ok(BAD_ARGUMENT) };
    if !body.is_empty() {
        let _ = head.fields.set(HeaderId::ContentLength, body.len().to_string().as_bytes());
    }
    let body = body.to_vec();
    if !may_call(data, &cluster, body.len()) {
        return Ok(BAD_ARGUMENT);
    }
    let token = count(&mut data.last_http_call);
    let length = body.len();
    let stream = data.target();
    let root = data.contexts.root_id(stream);
    let vm = data.vm.clone();
    let made = data.with_host(|host| {
        host.call(Call {
            cluster: Rc::from(cluster.as_str()),
            head,
            body,
            timeout: (timeout > 0).then(|| Duration::from_millis(u64::from(timeout))),
            trace: None,
            retries: None,
            done: Box::new(move |outcome| {
                if let Some(vm) = vm.upgrade() {
                    vm.deliver(Delivery { root, token, stream, what: What::Http(Box::new(outcome)) });
                }
            }),
        })
    });
    match made {
        // A configuration that is only tried out calls nobody.
        None => {}
        Some(Err(_)) => return Ok(BAD_ARGUMENT),
        Some(Ok(handle)) => {
            if let Some(root) = data.contexts.root(root) {
                root.calls.push(Underway { token, handle, bytes: length });
            }
        }
    }
    Ok(put_number(&mut guest, out, token))
}

/// A head that says where it goes, or `None`.
fn head_of(headers: &[u8]) -> Option<RequestHead> {
    let pairs = pairs::read(headers);
    let has = |wanted: &[u8]| pairs.iter().any(|(name, _)| name.eq_ignore_ascii_case(wanted));
    if !(has(b":path") && has(b":method") && (has(b":authority") || has(b"host"))) {
        return None;
    }
    let mut head = RequestHead::new();
    let mut target = Target::Request(&mut head);
    for (name, value) in pairs {
        target.add(name, value).ok()?;
    }
    Some(head)
}

/// `envoy.config.core.v3.GrpcService`, as far as it is used.
#[derive(Clone, PartialEq, Message)]
struct Service {
    #[prost(message, optional, tag = "1")]
    envoy_grpc: Option<EnvoyGrpc>,
    /// For Google's library of gRPC, which is not here.
    #[prost(bytes = "vec", optional, tag = "2")]
    google_grpc: Option<Vec<u8>>,
    #[prost(message, repeated, tag = "5")]
    initial_metadata: Vec<HeaderValue>,
}

#[derive(Clone, PartialEq, Message)]
struct EnvoyGrpc {
    #[prost(string, tag = "1")]
    cluster_name: String,
    #[prost(string, tag = "2")]
    authority: String,
}

#[derive(Clone, PartialEq, Message)]
struct HeaderValue {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(string, tag = "2")]
    value: String,
}

/// To whom, and the head that goes there.
struct Destination {
    cluster: Arc<str>,
    head: RequestHead,
    max_answer: usize,
}

/// Reads a service: a `GrpcService`, or the bare name of a cluster.
fn destination(
    data: &mut Data,
    service: &[u8],
    name: &[u8],
    method: &[u8],
    metadata: &[u8],
    length: usize,
    timeout: Option<Duration>,
) -> Result<Destination, u32> {
    let mut read = Service::decode(service);
    if !matches!(&read, Ok(Service { envoy_grpc: Some(_), .. }))
        && let Ok(text) = std::str::from_utf8(service)
        && !text.is_empty()
        && data.with_host(|host| host.has_cluster(text)) == Some(true)
    {
        let called = EnvoyGrpc { cluster_name: text.to_owned(), authority: String::new() };
        read = Ok(Service { envoy_grpc: Some(called), ..Service::default() });
    }
    let read = read.map_err(|_| PARSE_FAILURE)?;
    if read.google_grpc.is_some() && read.envoy_grpc.is_none() {
        crate::vm::log(
            Level::Warning,
            "a WebAssembly plugin calls by `google_grpc`, which is not supported: use `envoy_grpc`",
        );
    }
    let called = read.envoy_grpc.ok_or(INTERNAL_FAILURE)?;
    if called.cluster_name.is_empty() || !may_call(data, &called.cluster_name, length) {
        return Err(INTERNAL_FAILURE);
    }
    let mut service = GrpcService::of(called.cluster_name.as_str().into());
    if !called.authority.is_empty() {
        service.authority = called.authority;
    }
    let path = format!("/{}/{}", String::from_utf8_lossy(name), String::from_utf8_lossy(method));
    let mut head = service.head_of_none(&path, timeout);
    if head.path() != path.as_bytes() {
        return Err(BAD_ARGUMENT);
    }
    let mut target = Target::Request(&mut head);
    for header in &read.initial_metadata {
        target.add(header.key.as_bytes(), header.value.as_bytes()).map_err(|_| BAD_ARGUMENT)?;
    }
    for (name, value) in pairs::read(metadata) {
        target.add(name, value).map_err(|_| BAD_ARGUMENT)?;
    }
    Ok(Destination { cluster: service.cluster, head, max_answer: service.max_answer })
}

#[expect(clippy::too_many_arguments, reason = "the ABI's")]
fn grpc_call(
    mut guest: Guest<'_>,
    service: u32,
    service_length: u32,
    name: u32,
    name_length: u32,
    method: u32,
    method_length: u32,
    metadata: u32,
    metadata_length: u32,
    message: u32,
    message_length: u32,
    timeout: u32,
    out: u32,
) -> Answer {
    let (memory, data) = split(&mut guest);
    let (Ok(service), Ok(name), Ok(method), Ok(metadata), Ok(message)) = (
        bytes(memory, service, service_length),
        bytes(memory, name, name_length),
        bytes(memory, method, method_length),
        bytes(memory, metadata, metadata_length),
        bytes(memory, message, message_length),
    ) else {
        return Ok(INVALID_MEMORY_ACCESS);
    };
    let timeout = (timeout > 0).then(|| Duration::from_millis(u64::from(timeout)));
    let to = match destination(data, service, name, method, metadata, message.len(), timeout) {
        Ok(to) => to,
        Err(status) => return Ok(status),
    };
    let (message, length) = (message.to_vec(), message.len());
    let token = count(&mut data.last_grpc_call) + UNARY;
    let stream = data.target();
    let root = data.contexts.root_id(stream);
    let vm = data.vm.clone();
    let made = data.with_host(|host| {
        host.grpc(GrpcCall {
            cluster: to.cluster,
            head: to.head,
            message,
            timeout,
            max_answer: to.max_answer,
            trace: None,
            retries: None,
            done: Box::new(move |outcome| {
                if let Some(vm) = vm.upgrade() {
                    vm.deliver(Delivery { root, token, stream, what: What::Grpc(outcome) });
                }
            }),
        })
    });
    match made {
        None => {}
        Some(Err(_)) => return Ok(INTERNAL_FAILURE),
        Some(Ok(handle)) => {
            if let Some(root) = data.contexts.root(root) {
                root.calls.push(Underway { token, handle, bytes: length });
            }
        }
    }
    Ok(put_number(&mut guest, out, token))
}

#[expect(clippy::too_many_arguments, reason = "the ABI's")]
fn grpc_stream(
    mut guest: Guest<'_>,
    service: u32,
    service_length: u32,
    name: u32,
    name_length: u32,
    method: u32,
    method_length: u32,
    metadata: u32,
    metadata_length: u32,
    out: u32,
) -> Answer {
    let (memory, data) = split(&mut guest);
    let (Ok(service), Ok(name), Ok(method), Ok(metadata)) = (
        bytes(memory, service, service_length),
        bytes(memory, name, name_length),
        bytes(memory, method, method_length),
        bytes(memory, metadata, metadata_length),
    ) else {
        return Ok(INVALID_MEMORY_ACCESS);
    };
    let to = match destination(data, service, name, method, metadata, 0, None) {
        Ok(to) => to,
        Err(status) => return Ok(status),
    };
    let token = count(&mut data.last_grpc_call) + CONVERSATION;
    let stream = data.target();
    let root = data.contexts.root_id(stream);
    let vm = data.vm.clone();
    let opened = data.with_host(|host| {
        let again = vm.clone();
        host.converse(GrpcOpen {
            cluster: to.cluster,
            head: to.head,
            timeout: None,
            max_answer: to.max_answer,
            trace: None,
            retries: None,
            wake: Box::new(move || {
                if let Some(vm) = again.upgrade() {
                    vm.deliver(Delivery { root, token, stream, what: What::Conversation });
                }
            }),
        })
    });
    match opened {
        None => {}
        Some(Err(_)) => return Ok(INTERNAL_FAILURE),
        Some(Ok(stream)) => {
            if data.program.acts("proxy_on_grpc_receive_initial_metadata", 0)
                || data.program.acts("proxy_on_grpc_receive_trailing_metadata", 0)
            {
                stream.keep_metadata();
            }
            if let Some(root) = data.contexts.root(root) {
                root.conversations.push((token, Conversation::new(stream)));
            }
        }
    }
    Ok(put_number(&mut guest, out, token))
}

/// Lets `act` use a conversation of the root context.
fn with_conversation(data: &mut Data, token: u32, act: impl FnOnce(&mut Conversation) -> u32) -> u32 {
    let Some((_, root)) = data.root() else { return NOT_FOUND };
    let known = root.conversations.iter_mut().find(|(known, _)| *known == token);
    known.map_or(NOT_FOUND, |(_, conversation)| act(conversation))
}

fn grpc_send(mut guest: Guest<'_>, token: u32, message: u32, length: u32, end: u32) -> Answer {
    let (memory, data) = split(&mut guest);
    let message = match bytes(memory, message, length) {
        Ok(message) => message.to_vec(),
        Err(status) => return Ok(status),
    };
    if token % KINDS != CONVERSATION {
        return Ok(BAD_ARGUMENT);
    }
    Ok(with_conversation(data, token, |conversation| {
        if !conversation.takes(message.len()) {
            return INTERNAL_FAILURE;
        }
        conversation.unsent.push(message);
        conversation.finished = end != 0;
        conversation.flush();
        OK
    }))
}

fn grpc_cancel(mut guest: Guest<'_>, token: u32) -> Answer {
    let data = guest.data_mut();
    let Some((_, root)) = data.root() else { return Ok(NOT_FOUND) };
    let known = match token % KINDS {
        UNARY => return Ok(abandon(data, token)),
        CONVERSATION => root.conversations.iter().position(|(known, _)| *known == token),
        _ => return Ok(BAD_ARGUMENT),
    };
    let Some(at) = known else { return Ok(NOT_FOUND) };
    root.conversations.swap_remove(at);
    Ok(OK)
}

fn grpc_close(mut guest: Guest<'_>, token: u32) -> Answer {
    let data = guest.data_mut();
    Ok(match token % KINDS {
        UNARY => abandon(data, token),
        CONVERSATION => with_conversation(data, token, |conversation| {
            conversation.finished = true;
            conversation.flush();
            OK
        }),
        _ => BAD_ARGUMENT,
    })
}

/// Gives up a call with one message each way.
fn abandon(data: &mut Data, token: u32) -> u32 {
    let Some((_, root)) = data.root() else { return NOT_FOUND };
    let Some(at) = root.calls.iter().position(|call| call.token == token) else { return NOT_FOUND };
    root.calls.swap_remove(at);
    OK
}
