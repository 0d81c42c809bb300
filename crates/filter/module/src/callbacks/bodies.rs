//! Bodies: the piece that is being shown, and what the module had kept before.

use std::ffi::c_int;

use postrider_filter_api::BufferLimit;

use super::{instance, put};
use crate::abi::{Buffer, StreamRef};
use crate::hooks::held;
use crate::instance::{Instance, Side};

/// What a function is about.
enum Part {
    /// The piece that is being shown.
    Received(Side),
    Kept(Side),
}

fn part(kind: c_int) -> Option<Part> {
    Some(match kind {
        0 => Part::Received(Side::Request),
        1 => Part::Kept(Side::Request),
        2 => Part::Received(Side::Response),
        3 => Part::Kept(Side::Response),
        _ => return None,
    })
}

/// Calls `act` with the bytes; `None` when there are none to be had.
fn with<T>(instance: &Instance, kind: c_int, act: impl FnOnce(&[u8]) -> T) -> Option<T> {
    match part(kind)? {
        Part::Received(side) if instance.course(side).shows.get() => {
            // SAFETY: no other function of this module's runs.
            let stream = unsafe { instance.stream() }?;
            Some(act(held(side, stream).bytes()))
        }
        Part::Received(_) => None,
        Part::Kept(side) => {
            let kept = instance.course(side).kept.borrow();
            (!kept.is_empty()).then(|| act(&kept))
        }
    }
}

/// Lets `act` change the bytes; `false` when there are none to be had.
fn change(instance: &Instance, kind: c_int, act: impl FnOnce(&mut Vec<u8>)) -> bool {
    match part(kind) {
        Some(Part::Received(side)) if instance.course(side).shows.get() => {
            // SAFETY: no other function of this module's runs.
            let Some(stream) = (unsafe { instance.stream() }) else { return false };
            let held = held(side, stream);
            let mut bytes = held.bytes().to_vec();
            act(&mut bytes);
            held.replace(&bytes);
            true
        }
        Some(Part::Kept(side)) => {
            act(&mut instance.course(side).kept.borrow_mut());
            true
        }
        _ => false,
    }
}

pub(super) unsafe fn size(handle: StreamRef, kind: c_int) -> usize {
    // SAFETY: the caller is a module that follows the interface, here and below.
    let instance = unsafe { instance(handle) };
    instance.and_then(|instance| with(instance, kind, <[u8]>::len)).unwrap_or(0)
}

/// How many pieces of memory the bytes lie in.
pub(super) unsafe fn count(handle: StreamRef, kind: c_int) -> usize {
    // SAFETY: as in `size`.
    usize::from(unsafe { size(handle, kind) } > 0)
}

pub(super) unsafe fn chunks(handle: StreamRef, kind: c_int, out: *mut Buffer) -> bool {
    // SAFETY: as in `size`.
    let instance = unsafe { instance(handle) };
    let found = instance.and_then(|instance| {
        with(instance, kind, |bytes| {
            if !bytes.is_empty() {
                // SAFETY: the module has room for as many as `count` says.
                unsafe { put(out, Buffer::of(bytes)) };
            }
        })
    });
    found.is_some()
}

pub(super) unsafe fn append(handle: StreamRef, kind: c_int, data: Buffer) -> bool {
    // SAFETY: as in `size`.
    let (instance, data) = unsafe { (instance(handle), data.bytes()) };
    instance.is_some_and(|instance| change(instance, kind, |bytes| bytes.extend_from_slice(data)))
}

/// Drops bytes from the front; all of them when there are no more.
pub(super) unsafe fn drain(handle: StreamRef, kind: c_int, count: usize) -> bool {
    // SAFETY: as in `size`.
    let Some(instance) = (unsafe { instance(handle) }) else { return false };
    if with(instance, kind, |_| ()).is_none() {
        return false;
    }
    change(instance, kind, |bytes| drop(bytes.drain(..count.min(bytes.len()))))
}

/// Whether the piece that is being shown was held back by a filter in front. Pieces come as filters let them go, and
/// nothing says what held them.
pub(super) unsafe fn came_at_once(_: StreamRef) -> bool {
    false
}

/// Bytes that may be held at once; 0 is no limit.
pub(super) unsafe fn limit(handle: StreamRef) -> u64 {
    // SAFETY: as in `size`.
    let Some(instance) = (unsafe { instance(handle) }) else { return 0 };
    match instance.buffer_limit() {
        BufferLimit::OfConnection => instance.place.buffer_limit as u64,
        BufferLimit::Request(own) => own.into(),
        BufferLimit::Both(own) => own,
    }
}

pub(super) unsafe fn set_limit(handle: StreamRef, limit: u64) {
    // SAFETY: as in `size`.
    let Some(instance) = (unsafe { instance(handle) }) else { return };
    if instance.place.is_upstream {
        instance.rare.borrow_mut().get_or_insert_default().buffer_limit = Some(limit);
        return;
    }
    // SAFETY: no other function of this module's runs.
    if let Some(stream) = unsafe { instance.stream() } {
        stream.info.buffer_limit = BufferLimit::Both(limit);
    }
}
