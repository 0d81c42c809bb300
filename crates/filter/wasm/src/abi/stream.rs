//! What becomes of a stream: it goes on, is answered, or is cut off.

use std::borrow::Cow;

use postrider_filter_api::LocalReply;
use postrider_http::grpc::Code;
use wasmtime::Linker;

use super::{Answer, Guest, bytes, split};
use crate::analysis::Abi;
use crate::contexts::Passing;
use crate::data::Data;
use crate::edits::Edit;
use crate::maps::{REQUEST_HEADERS, REQUEST_TRAILERS, RESPONSE_HEADERS};
use crate::pairs;
use crate::status::{BAD_ARGUMENT, INVALID_MEMORY_ACCESS, NOT_FOUND, OK, UNIMPLEMENTED};

/// The types of streams.
const REQUEST: u32 = 0;
const RESPONSE: u32 = 1;
const DOWNSTREAM: u32 = 2;
const UPSTREAM: u32 = 3;

pub(super) fn define(linker: &mut Linker<Data>, abi: Abi) -> wasmtime::Result<()> {
    linker.func_wrap("env", "proxy_send_local_response", send_local_response)?;
    linker.func_wrap("env", "proxy_set_effective_context", set_effective_context)?;
    linker.func_wrap("env", "proxy_done", done)?;
    match abi {
        Abi::V010 => {
            linker.func_wrap("env", "proxy_continue_request", |guest: Guest<'_>| continue_stream(guest, REQUEST))?;
            linker.func_wrap("env", "proxy_continue_response", |guest: Guest<'_>| continue_stream(guest, RESPONSE))?;
            linker.func_wrap("env", "proxy_clear_route_cache", clear_route_cache)?;
        }
        Abi::V020 | Abi::V021 => {
            linker.func_wrap("env", "proxy_continue_stream", continue_stream)?;
            linker.func_wrap("env", "proxy_close_stream", close_stream)?;
        }
    }
    Ok(())
}

fn continue_stream(mut guest: Guest<'_>, kind: u32) -> Answer {
    let data = guest.data_mut();
    let target = data.target();
    match kind {
        REQUEST | RESPONSE => {}
        DOWNSTREAM => {
            if let Some(handle) = data.contexts.connection(target) {
                handle.resume();
            }
            return Ok(OK);
        }
        // As in Envoy: what stops there goes on with what comes next.
        UPSTREAM => return Ok(UNIMPLEMENTED),
        _ => return Ok(BAD_ARGUMENT),
    }
    let Some(stream) = data.contexts.stream(target) else { return Ok(OK) };
    let half = if kind == REQUEST { &mut stream.request } else { &mut stream.response };
    half.continued = true;
    // Wakes it where it waits; a hook under way looks by itself.
    if let Some(bell) = &half.bell {
        bell.resume();
    }
    stream.maps &= !(1 << REQUEST_HEADERS | 1 << REQUEST_TRAILERS);
    Ok(OK)
}

fn close_stream(mut guest: Guest<'_>, kind: u32) -> Answer {
    let data = guest.data_mut();
    let target = data.target();
    match (kind, data.contexts.stream(target)) {
        (REQUEST | RESPONSE, Some(stream)) => {
            stream.closed = true;
            ring(stream);
            Ok(OK)
        }
        (DOWNSTREAM | UPSTREAM, _) => {
            if let Some(handle) = data.contexts.connection(target) {
                handle.close();
            }
            Ok(OK)
        }
        (..=UPSTREAM, _) => Ok(OK),
        _ => Ok(BAD_ARGUMENT),
    }
}

fn ring(stream: &Passing) {
    for half in [&stream.request, &stream.response] {
        if let Some(bell) = &half.bell {
            bell.resume();
        }
    }
}

#[expect(clippy::too_many_arguments, reason = "the ABI's")]
fn send_local_response(
    mut guest: Guest<'_>,
    status: u32,
    details: u32,
    details_length: u32,
    body: u32,
    body_length: u32,
    headers: u32,
    headers_length: u32,
    grpc: u32,
) -> Answer {
    let (memory, data) = split(&mut guest);
    let (Ok(details), Ok(body), Ok(headers)) = (
        bytes(memory, details, details_length),
        bytes(memory, body, body_length),
        bytes(memory, headers, headers_length),
    ) else {
        return Ok(INVALID_MEMORY_ACCESS);
    };
    // Still an answer: few modules look whether theirs was taken, and a request that was to be refused must not go on.
    let status = u16::try_from(status).ok().filter(|status| (200..=599).contains(status)).unwrap_or(500);
    let header = |(name, value): (&[u8], &[u8])| {
        let name = String::from_utf8_lossy(name).to_ascii_lowercase();
        (Cow::Owned(name), Cow::Owned(value.to_vec()))
    };
    let reply = LocalReply {
        status,
        grpc_status: Code::from_number(grpc),
        body: Cow::Owned(body.to_vec()),
        headers: pairs::read(headers).into_iter().map(header).collect(),
        // One word of the log, as in Envoy.
        details: Cow::Owned(String::from_utf8_lossy(details).replace([' ', '\t', '\n', '\x0b', '\x0c', '\r'], "_")),
        ..LocalReply::default()
    };
    let target = data.target();
    if let Some(stream) = data.contexts.stream(target) {
        let sees_answer = stream.maps & (1 << RESPONSE_HEADERS) != 0;
        match &mut stream.reply {
            // As in Envoy: of several at once the first one is sent, and logged under the name of the last.
            Some(first) => first.details = reply.details,
            // One that it gave before may be answered in its turn, while it sees the head of that.
            None if !stream.replied || sees_answer => {
                stream.replied = true;
                stream.reply = Some(Box::new(reply));
            }
            None => {}
        }
        ring(stream);
    }
    Ok(OK)
}

fn clear_route_cache(mut guest: Guest<'_>) -> Answer {
    forget_route(guest.data_mut());
    Ok(OK)
}

/// The route is looked up again before it is next used.
pub(super) fn forget_route(data: &mut Data) {
    let target = data.target();
    let at_hand = data.present.stream(target, |stream| stream.info.route_is_stale = true);
    if at_hand.is_none()
        && let Some(stream) = data.contexts.stream(target).filter(|stream| stream.kept.is_some())
    {
        // Only too many changes are too much for it.
        let _ = stream.later(Edit::ForgetRoute);
    }
}

fn set_effective_context(mut guest: Guest<'_>, id: u32) -> Answer {
    let data = guest.data_mut();
    if data.contexts.get(id).is_none() {
        return Ok(BAD_ARGUMENT);
    }
    data.effective = id;
    Ok(OK)
}

/// A root context that asked for more time when it was to go needs no more.
fn done(mut guest: Guest<'_>) -> Answer {
    let data = guest.data_mut();
    let Some((id, root)) = data.root() else { return Ok(NOT_FOUND) };
    if !root.is_leaving {
        return Ok(NOT_FOUND);
    }
    root.is_leaving = false;
    let vm = data.vm.clone();
    // Not from within the module: as soon as the worker has a moment.
    let later = data.with_host(|host| {
        let delete = move || {
            if let Some(vm) = vm.upgrade() {
                vm.delete_root(id);
            }
        };
        host.after(std::time::Duration::ZERO, Box::new(delete))
    });
    if let Some(handle) = later {
        handle.detach();
    }
    Ok(OK)
}
