//! Data and queues that machines share.

use std::sync::Arc;

use wasmtime::Linker;

use super::{Answer, Guest, bytes, give, put_number, split, status};
use crate::data::Data;
use crate::queues;
use crate::shared::{self, Listener};
use crate::status::{INVALID_MEMORY_ACCESS, NOT_FOUND};

pub(super) fn define(linker: &mut Linker<Data>) -> wasmtime::Result<()> {
    linker.func_wrap("env", "proxy_get_shared_data", get_data)?;
    linker.func_wrap("env", "proxy_set_shared_data", set_data)?;
    linker.func_wrap("env", "proxy_register_shared_queue", register_queue)?;
    linker.func_wrap("env", "proxy_resolve_shared_queue", resolve_queue)?;
    linker.func_wrap("env", "proxy_enqueue_shared_queue", enqueue)?;
    linker.func_wrap("env", "proxy_dequeue_shared_queue", dequeue)?;
    Ok(())
}

fn get_data(mut guest: Guest<'_>, key: u32, key_length: u32, out: u32, out_length: u32, out_cas: u32) -> Answer {
    let (memory, data) = split(&mut guest);
    let key = match bytes(memory, key, key_length) {
        Ok(key) => key,
        Err(status) => return Ok(status),
    };
    data.scratch.clear();
    let cas = match data.program.space.get(key, &mut data.scratch) {
        Ok(cas) => cas,
        Err(status) => return Ok(status),
    };
    match give(&mut guest, out, out_length)? {
        0 => Ok(put_number(&mut guest, out_cas, cas)),
        status => Ok(status),
    }
}

fn set_data(mut guest: Guest<'_>, key: u32, key_length: u32, value: u32, value_length: u32, cas: u32) -> Answer {
    let (memory, data) = split(&mut guest);
    let (Ok(key), Ok(value)) = (bytes(memory, key, key_length), bytes(memory, value, value_length)) else {
        return Ok(INVALID_MEMORY_ACCESS);
    };
    status(data.program.space.set(key, value, cas))
}

fn register_queue(mut guest: Guest<'_>, name: u32, length: u32, out: u32) -> Answer {
    let (memory, data) = split(&mut guest);
    let name = match bytes(memory, name, length) {
        Ok(name) => name,
        Err(status) => return Ok(status),
    };
    let root = data.contexts.root_id(data.target());
    let vm = data.vm.clone();
    // Whoever enqueues may be on another worker: the listener posts.
    let listener = data.with_host(|host| -> Listener {
        let (remote, address) = (host.remote(), queues::address(vm));
        Arc::new(move |token| {
            // A worker that ended hears nothing.
            let _ = remote.post(move || queues::ring(address, root, token));
        })
    });
    match data.program.space.register(name, listener) {
        Ok(token) => Ok(put_number(&mut guest, out, token)),
        Err(status) => Ok(status),
    }
}

fn resolve_queue(mut guest: Guest<'_>, vm_id: u32, vm_id_length: u32, name: u32, name_length: u32, out: u32) -> Answer {
    let (memory, data) = split(&mut guest);
    let (Ok(vm_id), Ok(name)) = (bytes(memory, vm_id, vm_id_length), bytes(memory, name, name_length)) else {
        return Ok(INVALID_MEMORY_ACCESS);
    };
    let found = match std::str::from_utf8(vm_id) {
        Ok("") => shared::resolve(&data.program.vm_id, name),
        Ok(vm_id) => shared::resolve(vm_id, name),
        Err(_) => None,
    };
    match found {
        Some(token) => Ok(put_number(&mut guest, out, token)),
        None => Ok(NOT_FOUND),
    }
}

fn enqueue(mut guest: Guest<'_>, token: u32, message: u32, length: u32) -> Answer {
    let memory = split(&mut guest).0;
    status(bytes(memory, message, length).and_then(|message| shared::enqueue(token, message)))
}

fn dequeue(mut guest: Guest<'_>, token: u32, out: u32, out_length: u32) -> Answer {
    match shared::dequeue(token) {
        Ok(message) => {
            guest.data_mut().scratch = message;
            give(&mut guest, out, out_length)
        }
        Err(status) => Ok(status),
    }
}
