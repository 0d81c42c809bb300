//! Headers, trailers, bodies and other buffers.

use std::cell::RefCell;

use postrider_filter_api::Body;
use wasmtime::Linker;

use super::{Answer, Guest, allocate, bytes, give, put_number, split, status, tell};
use crate::contexts::{Half, Passing, Tied};
use crate::data::{Data, Flow, Link};
use crate::edits::Edit;
use crate::maps::{
    CALL_HEADERS, CALL_TRAILERS, GRPC_INITIAL, GRPC_TRAILING, REQUEST_HEADERS, REQUEST_TRAILERS, RESPONSE_HEADERS,
    RESPONSE_TRAILERS, View,
};
use crate::pairs;
use crate::status::{BAD_ARGUMENT, INTERNAL_FAILURE, INVALID_MEMORY_ACCESS, NOT_FOUND, OK};

pub(super) fn define(linker: &mut Linker<Data>) -> wasmtime::Result<()> {
    linker.func_wrap("env", "proxy_get_header_map_pairs", get_pairs)?;
    linker.func_wrap("env", "proxy_set_header_map_pairs", set_pairs)?;
    linker.func_wrap("env", "proxy_get_header_map_size", get_size)?;
    linker.func_wrap("env", "proxy_get_header_map_value", get_value)?;
    linker.func_wrap("env", "proxy_add_header_map_value", add_value)?;
    linker.func_wrap("env", "proxy_replace_header_map_value", replace_value)?;
    linker.func_wrap("env", "proxy_remove_header_map_value", remove_value)?;
    linker.func_wrap("env", "proxy_get_buffer_status", get_buffer_status)?;
    linker.func_wrap("env", "proxy_get_buffer_bytes", get_buffer_bytes)?;
    linker.func_wrap("env", "proxy_set_buffer_bytes", set_buffer_bytes)?;
    Ok(())
}

/// Lets `act` look at a map; `None` for one that is not to be seen now.
fn with_map<T>(data: &mut Data, map: u32, act: impl FnOnce(View<'_>, &mut Vec<u8>) -> T) -> Option<T> {
    let target = data.target();
    let scratch = &mut data.scratch;
    match map {
        REQUEST_HEADERS..=RESPONSE_TRAILERS => {
            let is_ended = data.present.is_ended(target);
            let is_open = data.contexts.stream(target).is_some_and(|stream| stream.maps & (1 << map) != 0);
            if !is_ended && !is_open {
                return None;
            }
            data.present.parts(&mut data.contexts, target, |parts| {
                let view = match map {
                    REQUEST_HEADERS => parts.request.map_or(View::Nothing, View::Request),
                    REQUEST_TRAILERS => View::Trailers(parts.request_trailers),
                    RESPONSE_HEADERS => parts.response.map_or(View::Nothing, View::Response),
                    _ => View::Trailers(parts.response_trailers),
                };
                act(view, scratch)
            })
        }
        CALL_HEADERS => data.received.head.as_ref().map(|head| act(View::Response(head), scratch)),
        CALL_TRAILERS => Some(act(View::Trailers(&data.received.trailers), scratch)),
        GRPC_INITIAL => Some(act(data.received.initial.as_ref().map_or(View::Nothing, View::Response), scratch)),
        GRPC_TRAILING => Some(act(View::Trailers(&data.received.trailing), scratch)),
        _ => None,
    }
}

/// The pairs are written straight into the module's memory.
fn get_pairs(mut guest: Guest<'_>, map: u32, out: u32, out_length: u32) -> Answer {
    if map > CALL_TRAILERS {
        return Ok(BAD_ARGUMENT);
    }
    let (count, length) = with_map(guest.data_mut(), map, |view, _| view.size()).unwrap_or((0, 0));
    if count == 0 {
        return Ok(tell(&mut guest, 0, 0, out, out_length));
    }
    let size = pairs::size(count, length);
    let at = allocate(&mut guest, size)?;
    let (memory, data) = split(&mut guest);
    let Some(place) = memory.get_mut(at as usize..).and_then(|rest| rest.get_mut(..size)) else {
        return Ok(INVALID_MEMORY_ACCESS);
    };
    with_map(data, map, |view, _| {
        if let Some(mut writer) = pairs::Writer::new(place, count) {
            view.each(|name, value| writer.put(name, value));
        }
    });
    Ok(tell(&mut guest, at, size, out, out_length))
}

fn get_size(mut guest: Guest<'_>, map: u32, out: u32) -> Answer {
    match with_map(guest.data_mut(), map, |view, _| view.size()) {
        Some((_, bytes)) => Ok(put_number(&mut guest, out, bytes as u32)),
        None => Ok(BAD_ARGUMENT),
    }
}

fn get_value(mut guest: Guest<'_>, map: u32, key: u32, key_length: u32, out: u32, out_length: u32) -> Answer {
    let (memory, data) = split(&mut guest);
    let key = match bytes(memory, key, key_length) {
        Ok(key) => key,
        Err(status) => return Ok(status),
    };
    let found = with_map(data, map, |view, scratch| {
        scratch.clear();
        view.find(key, scratch)
    });
    match found {
        None => Ok(BAD_ARGUMENT),
        Some(true) => give(&mut guest, out, out_length),
        // The first version had no word for it.
        Some(false) if guest.data().program.abi() == crate::analysis::Abi::V010 => give(&mut guest, out, out_length),
        Some(false) => Ok(NOT_FOUND),
    }
}

fn add_value(mut guest: Guest<'_>, map: u32, key: u32, key_length: u32, value: u32, value_length: u32) -> Answer {
    change(&mut guest, map, |memory| {
        Ok(Edit::Add(map, bytes(memory, key, key_length)?.to_vec(), bytes(memory, value, value_length)?.to_vec()))
    })
}

fn replace_value(mut guest: Guest<'_>, map: u32, key: u32, key_length: u32, value: u32, value_length: u32) -> Answer {
    change(&mut guest, map, |memory| {
        Ok(Edit::Replace(map, bytes(memory, key, key_length)?.to_vec(), bytes(memory, value, value_length)?.to_vec()))
    })
}

fn remove_value(mut guest: Guest<'_>, map: u32, key: u32, key_length: u32) -> Answer {
    change(&mut guest, map, |memory| Ok(Edit::Remove(map, bytes(memory, key, key_length)?.to_vec())))
}

fn set_pairs(mut guest: Guest<'_>, map: u32, at: u32, length: u32) -> Answer {
    change(&mut guest, map, |memory| {
        let pairs = pairs::read(bytes(memory, at, length)?);
        Ok(Edit::ReplaceAll(map, pairs.into_iter().map(|(name, value)| (name.to_vec(), value.to_vec())).collect()))
    })
}

/// Makes a change now, or when its stream is at hand again.
fn change(guest: &mut Guest<'_>, map: u32, edit: impl FnOnce(&[u8]) -> Result<Edit, u32>) -> Answer {
    let (memory, data) = split(guest);
    let edit = match edit(memory) {
        Ok(edit) => edit,
        Err(status) => return Ok(status),
    };
    let target = data.target();
    let is_open = |stream: &mut Passing| map <= RESPONSE_TRAILERS && stream.maps & (1 << map) != 0;
    if !data.contexts.stream(target).is_some_and(is_open) {
        return Ok(BAD_ARGUMENT);
    }
    if !data.may_hold(edit.bytes()) {
        return Ok(INTERNAL_FAILURE);
    }
    let Some(stream) = data.contexts.stream(target) else { return Ok(BAD_ARGUMENT) };
    match data.present.stream(target, |at_hand| edit.apply(at_hand)) {
        Some(made) => {
            // What others see of it is copied anew if it stops again.
            stream.kept = None;
            Ok(if made { OK } else { BAD_ARGUMENT })
        }
        None => status(stream.later(edit)),
    }
}

/// The types of buffers.
const REQUEST_BODY: u32 = 0;
const RESPONSE_BODY: u32 = 1;
const DOWNSTREAM_DATA: u32 = 2;
const UPSTREAM_DATA: u32 = 3;
const CALL_BODY: u32 = 4;
const GRPC_MESSAGE: u32 = 5;
const VM_CONFIGURATION: u32 = 6;
const PLUGIN_CONFIGURATION: u32 = 7;
/// What a function gets that the ABI does not know.
const CALL_DATA: u32 = 8;
const LAST: u32 = 8;

/// Lets `act` look at a buffer.
fn with_buffer<T>(data: &mut Data, buffer: u32, act: impl FnOnce(&[u8]) -> T) -> Result<T, u32> {
    if buffer > LAST {
        return Err(BAD_ARGUMENT);
    }
    let target = data.target();
    let root = data.contexts.root_id(target);
    let Data { contexts, present, received, program, .. } = data;
    let found = match buffer {
        REQUEST_BODY | RESPONSE_BODY => {
            let stream = contexts.stream(target).ok_or(NOT_FOUND)?;
            let half = if buffer == REQUEST_BODY { &stream.request } else { &stream.response };
            match &half.course {
                Some(course) => Some(act(&course.window)),
                // Of a body that does not pass through here, nothing waits.
                None if stream.kept.is_some() && !present.has(target) => Some(act(&[])),
                None => present.stream(target, |at_hand| {
                    let body = if buffer == REQUEST_BODY { &at_hand.request_body } else { &at_hand.response_body };
                    act(body.bytes().get(half.hidden..).unwrap_or_default())
                }),
            }
        }
        DOWNSTREAM_DATA | UPSTREAM_DATA => {
            let held = waiting(contexts.tied(target).ok_or(NOT_FOUND)?, flow(buffer));
            let shown = present.link(target, |link| shows(link, flow(buffer)).is_some());
            match (shown, held) {
                (Some(true), _) => present.link(target, |link| act(shows(link, flow(buffer)).map_or(&[], |held| held))),
                (_, Some(held)) => Some(act(&held.borrow())),
                (_, None) => Some(act(&[])),
            }
        }
        CALL_BODY => Some(act(&received.body)).filter(|_| received.head.is_some()),
        GRPC_MESSAGE => Some(act(&received.message)),
        VM_CONFIGURATION => Some(act(&program.configuration)),
        CALL_DATA => received.statistics.as_ref().map(|update| act(update)),
        PLUGIN_CONFIGURATION => contexts.root(root).map(|root| act(&root.plugin.configuration)),
        _ => None,
    };
    found.ok_or(NOT_FOUND)
}

fn flow(buffer: u32) -> Flow {
    if buffer == DOWNSTREAM_DATA { Flow::Down } else { Flow::Up }
}

/// What the module is shown of a connection's direction.
fn shows<'l>(link: &'l mut Link<'_, '_>, flow: Flow) -> Option<&'l mut Vec<u8>> {
    match &mut link.data {
        Some((at, held)) if *at == flow => Some(held),
        _ => None,
    }
}

/// What waits there because the module stopped it.
fn waiting(tied: &Tied, flow: Flow) -> Option<&RefCell<Vec<u8>>> {
    let control = tied.handle.control();
    match flow {
        Flow::Down => Some(&control.received).filter(|_| tied.stops_down),
        Flow::Up => Some(&control.sent).filter(|_| tied.stops_up),
    }
}

fn get_buffer_status(mut guest: Guest<'_>, buffer: u32, out_length: u32, out_flags: u32) -> Answer {
    let length = match with_buffer(guest.data_mut(), buffer, <[u8]>::len) {
        Ok(length) => length as u32,
        Err(status) => return Ok(status),
    };
    let told = put_number(&mut guest, out_length, length);
    if told != OK { Ok(told) } else { Ok(put_number(&mut guest, out_flags, 0)) }
}

/// The bytes are written straight into the module's memory: there may be many of them.
fn get_buffer_bytes(mut guest: Guest<'_>, buffer: u32, start: u32, most: u32, out: u32, out_length: u32) -> Answer {
    // "All from here on" is asked for with the greatest number.
    let end = start.saturating_add(most);
    let wanted = |bytes: &[u8]| start as usize..bytes.len().min(end as usize);
    let length = match with_buffer(guest.data_mut(), buffer, |bytes| wanted(bytes).len()) {
        // Nothing is handed over, not even that.
        Ok(0) => return Ok(OK),
        Ok(length) => length,
        Err(status) => return Ok(status),
    };
    let at = allocate(&mut guest, length)?;
    let (memory, data) = split(&mut guest);
    let Some(place) = memory.get_mut(at as usize..).and_then(|rest| rest.get_mut(..length)) else {
        return Ok(INVALID_MEMORY_ACCESS);
    };
    // The allocator is the module's: it may have changed the buffer.
    let copied = with_buffer(data, buffer, |bytes| match bytes.get(wanted(bytes)) {
        Some(bytes) if bytes.len() == length => {
            place.copy_from_slice(bytes);
            true
        }
        _ => false,
    });
    match copied {
        Ok(true) => Ok(tell(&mut guest, at, length, out, out_length)),
        Ok(false) => Ok(NOT_FOUND),
        Err(status) => Ok(status),
    }
}

/// What Envoy allows: in front, behind, or in the place of all of it or of its beginning.
fn set_buffer_bytes(mut guest: Guest<'_>, buffer: u32, start: u32, length: u32, at: u32, size: u32) -> Answer {
    let (memory, data) = split(&mut guest);
    let new = match bytes(memory, at, size) {
        Ok(new) => new,
        Err(status) => return Ok(status),
    };
    let target = data.target();
    let most = data.limiter.most;
    let Data { contexts, present, .. } = data;
    if matches!(buffer, DOWNSTREAM_DATA | UPSTREAM_DATA) {
        let (start, length) = (start as usize, length as usize);
        let Some(tied) = contexts.tied(target) else { return Ok(NOT_FOUND) };
        let shown = present.link(target, |link| Some(edit(shows(link, flow(buffer))?, start, length, new, most)));
        return status(match (shown.flatten(), waiting(tied, flow(buffer))) {
            (Some(done), _) => done,
            (None, Some(held)) => edit(&mut held.borrow_mut(), start, length, new, most),
            (None, None) => Err(BAD_ARGUMENT),
        });
    }
    if buffer > RESPONSE_BODY {
        return Ok(if buffer > LAST { BAD_ARGUMENT } else { NOT_FOUND });
    }
    let Some(stream) = contexts.stream(target) else { return Ok(NOT_FOUND) };
    let half = if buffer == REQUEST_BODY { &mut stream.request } else { &mut stream.response };
    // As in Envoy, which has no bytes of it at hand then: an edit would come in front of a body, or behind it.
    if !half.editable {
        return Ok(BAD_ARGUMENT);
    }
    if let Some(course) = &mut half.course {
        return status(edit(&mut course.window, start as usize, length as usize, new, most));
    }
    if stream.kept.is_some() && !present.has(target) {
        return Ok(BAD_ARGUMENT);
    }
    let done = present.stream(target, |at_hand| {
        let body = if buffer == REQUEST_BODY { &mut *at_hand.request_body } else { &mut *at_hand.response_body };
        edit_body(body, half, start as usize, length as usize, new, most)
    });
    status(done.unwrap_or(Err(NOT_FOUND)))
}

/// What is made longer may have as many bytes as the module's memory.
fn edit(bytes: &mut Vec<u8>, start: usize, length: usize, new: &[u8], most: usize) -> Result<(), u32> {
    let gone = if start == 0 { length } else { 0 };
    if bytes.len().saturating_sub(gone).saturating_add(new.len()) > most {
        return Err(INTERNAL_FAILURE);
    }
    match (start, length) {
        (0, length) if length >= bytes.len() => {
            bytes.clear();
            bytes.extend_from_slice(new);
        }
        (0, length) => {
            bytes.splice(..length, new.iter().copied());
        }
        (start, _) if start > 0 && start >= bytes.len() => bytes.extend_from_slice(new),
        _ => return Err(BAD_ARGUMENT),
    }
    Ok(())
}

fn edit_body(body: &mut Body, half: &Half, start: usize, length: usize, new: &[u8], most: usize) -> Result<(), u32> {
    let (hidden, shown) = body.bytes().split_at_checked(half.hidden).unwrap_or((&[], body.bytes()));
    if hidden.is_empty() && start == 0 && length >= shown.len() && length > 0 {
        // The usual edit: no copy of what was there.
        body.replace(new);
        return Ok(());
    }
    let mut bytes = shown.to_vec();
    edit(&mut bytes, start, length, new, most)?;
    let whole = [hidden, &bytes].concat();
    body.replace(&whole);
    Ok(())
}

const _: () = assert!(REQUEST_TRAILERS == 1 && RESPONSE_HEADERS == 2, "maps are bits of `Passing::maps`");
