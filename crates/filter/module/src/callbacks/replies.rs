//! Answers that a module gives itself, at once or in pieces.

use std::borrow::Cow;

use postrider_filter_api::LocalReply;
use postrider_http::{HeaderName, grpc, is_field_value};

use super::fields::status;
use super::instance;
use crate::abi::{Buffer, Header, StreamRef, items};
use crate::instance::{Event, Instance, Pieces};

/// The answer takes effect when the module's hook has returned.
pub(super) unsafe fn send(
    handle: StreamRef,
    status: u32,
    headers: *const Header,
    count: usize,
    body: Buffer,
    details: Buffer,
) {
    // SAFETY: the caller is a module that follows the interface, here and below.
    let Some(instance) = (unsafe { instance(handle) }) else { return };
    // SAFETY: as above.
    let (headers, body, details) = unsafe { (items(headers, count), body.bytes(), details.bytes()) };
    let details: Cow<'static, str> = match details.is_empty() {
        true => "dynamic_module".into(),
        false => String::from_utf8_lossy(details).into_owned().into(),
    };
    if instance.replied.get() {
        return break_off(instance, details);
    }
    let status = u16::try_from(status).ok().filter(|status| (200..=599).contains(status)).unwrap_or(500);
    let mut reply = LocalReply {
        status,
        // As in Envoy, whatever the status is.
        grpc_status: Some(grpc::Code::Ok),
        body: body.to_vec().into(),
        details,
        ..LocalReply::default()
    };
    // SAFETY: as above.
    unsafe { take(&mut reply, headers) };
    // As in Envoy, whatever its fields say.
    reply.status = status;
    give(instance, Box::new(reply));
}

/// An answer behind the beginning of one in pieces: as in Envoy, the client is to see that the first one is not whole. One that is
/// complete stays.
#[cold]
fn break_off(instance: &Instance, details: Cow<'static, str>) {
    let breaks = change(instance, |pieces| {
        pieces.broken_off_as = details;
        true
    });
    if breaks {
        instance.cut_off.set(true);
        instance.acted.set(true);
        instance.wake();
    }
}

/// How much of an answer may wait where nothing else is said, before the module is told so.
const MUCH: usize = 1 << 20;

/// The head of an answer whose body comes in pieces.
pub(super) unsafe fn begin(handle: StreamRef, headers: *const Header, count: usize, end: bool) {
    // SAFETY: as in `send`.
    let Some(instance) = (unsafe { instance(handle) }) else { return };
    // What has no status is no answer that a client could use.
    let mut reply = Box::new(LocalReply { status: 502, ..LocalReply::default() });
    // SAFETY: as in `send`.
    unsafe { take(&mut reply, items(headers, count)) };
    if !instance.replied.get() {
        instance.rare.borrow_mut().get_or_insert_default().pieces = Some(Pieces { ended: end, ..Pieces::default() });
        give(instance, reply);
    }
}

pub(super) unsafe fn piece(handle: StreamRef, data: Buffer, end: bool) {
    // SAFETY: as in `send`.
    let (Some(instance), data) = (unsafe { (instance(handle), data.bytes()) }) else { return };
    let much = match instance.place.buffer_limit {
        0 => MUCH,
        limit => limit,
    };
    let congested = change(instance, |pieces| {
        pieces.body.extend_from_slice(data);
        pieces.ended = end;
        pieces.body.len() > much && !std::mem::replace(&mut pieces.told, true)
    });
    if congested && instance.config().entries.above_watermark.is_some() {
        instance.link().inbox.borrow_mut().push_back(Event::Congested(true));
    }
    instance.wake();
}

/// Ends an answer in pieces.
pub(super) unsafe fn trailers(handle: StreamRef, trailers: *const Header, count: usize) {
    // SAFETY: as in `send`.
    let (Some(instance), trailers) = (unsafe { (instance(handle), items(trailers, count)) }) else { return };
    change(instance, |pieces| {
        for trailer in trailers {
            // SAFETY: as in `send`.
            let (name, value) = unsafe { trailer.parts() };
            pieces.trailers.push((name.to_ascii_lowercase(), value.to_vec()));
        }
        pieces.ended = true;
        false
    });
    instance.wake();
}

/// Changes what waits of an answer that is not complete.
fn change(instance: &Instance, act: impl FnOnce(&mut Pieces) -> bool) -> bool {
    let mut rare = instance.rare.borrow_mut();
    let pieces = rare.as_mut().and_then(|rare| rare.pieces.as_mut()).filter(|pieces| !pieces.ended);
    pieces.is_some_and(act)
}

fn give(instance: &Instance, reply: Box<LocalReply>) {
    if instance.replied.replace(true) {
        return;
    }
    *instance.reply.borrow_mut() = Some(reply);
    instance.acted.set(true);
    instance.wake();
}

/// Takes over fields that are well-formed, and the status if there is one.
///
/// # Safety
/// The fields' bytes are there.
unsafe fn take(reply: &mut LocalReply, headers: &[Header]) {
    for header in headers {
        // SAFETY: by the contract above.
        let (name, value) = unsafe { header.parts() };
        let name = name.to_ascii_lowercase();
        if name == b":status" {
            reply.status = status(value).unwrap_or(500);
        } else if HeaderName::new(&name).is_ok() && is_field_value(value) {
            let name = String::from_utf8_lossy(&name).into_owned();
            reply.headers.push((name.into(), value.to_vec().into()));
        }
    }
}
