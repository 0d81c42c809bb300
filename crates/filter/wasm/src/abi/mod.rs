//! The functions that modules import, and how they are found.
//!
//! Every function takes numbers and answers a [`status`](crate::status); what it hands to the module is written into memory
//! that the module's own allocator gives.

mod calls;
mod foreign;
mod general;
mod messages;
mod metrics;
mod shared;
mod signature;
mod stream;
mod wasi;

use postrider_telemetry::log::Level;
use wasmtime::{AsContextMut, Caller, Extern, ExternType, InstancePre, Linker, Module, Val};

use crate::analysis::Abi;
use crate::data::Data;
use crate::status::{INTERNAL_FAILURE, INVALID_MEMORY_ACCESS, OK};
use crate::vm::log;

pub(crate) type Guest<'a> = Caller<'a, Data>;

/// What a function answers; an error ends the module's call.
pub(crate) type Answer = wasmtime::Result<u32>;

/// WASI's number for what a module may not do.
const NOT_CAPABLE: u32 = 76;

/// Finds everything that a module imports.
///
/// # Errors
/// It imports something that there is not, or under another type than it has: nobody could say what a call of it should do.
pub(crate) fn link(module: &Module, abi: Abi, capabilities: Option<&[String]>) -> Result<InstancePre<Data>, String> {
    let linked = (|| {
        let mut linker = Linker::new(module.engine());
        linker.allow_shadowing(true);
        general::define(&mut linker, abi)?;
        messages::define(&mut linker)?;
        stream::define(&mut linker, abi)?;
        calls::define(&mut linker)?;
        shared::define(&mut linker)?;
        metrics::define(&mut linker)?;
        foreign::define(&mut linker)?;
        wasi::define(&mut linker, module)?;
        if let Some(given) = capabilities {
            restrict(&mut linker, module, given)?;
        }
        // All that are missing are told at once.
        let mut all = Vec::new();
        loop {
            let unknown = match linker.instantiate_pre(module) {
                Ok(pre) if all.is_empty() => return Ok(pre),
                Ok(_) => {
                    let names = all.join(", ");
                    return Err(wasmtime::Error::msg(format!("the module imports what is not known here: {names}")));
                }
                Err(error) => error,
            };
            let Some(missing) = unknown.downcast_ref::<wasmtime::UnknownImportError>() else { return Err(unknown) };
            let Some(kind) = missing.ty().func().cloned() else { return Err(unknown) };
            all.push(format!("`{}.{}`", missing.module(), missing.name()));
            linker.func_new(missing.module(), missing.name(), kind, |_, _, _| Ok(()))?;
        }
    })();
    linked.map_err(|error: wasmtime::Error| format!("{error:#}"))
}

/// Puts functions that only say no in the place of those that a module may not call.
fn restrict(linker: &mut Linker<Data>, module: &Module, given: &[String]) -> wasmtime::Result<()> {
    for import in module.imports() {
        let ExternType::Func(kind) = import.ty() else { continue };
        let name = import.name().to_owned();
        let refusal = match import.module() {
            "env" if name.starts_with("proxy_") => INTERNAL_FAILURE,
            "wasi_unstable" | "wasi_snapshot_preview1" => NOT_CAPABLE,
            _ => continue,
        };
        if given.contains(&name) {
            continue;
        }
        linker.func_new(import.module(), import.name(), kind, move |_, _, results| {
            log(Level::Warning, &format!("a module called `{name}`, a capability that it was not given"));
            if let Some(result) = results.first_mut() {
                *result = Val::I32(refusal as i32);
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// The module's memory, and everything beside it.
pub(crate) fn split<'a>(guest: &'a mut Guest<'_>) -> (&'a mut [u8], &'a mut Data) {
    let memory = guest.data().memory.or_else(|| guest.get_export("memory").and_then(Extern::into_memory));
    match memory {
        Some(memory) => memory.data_and_store_mut(guest),
        None => (&mut [], guest.data_mut()),
    }
}

/// Bytes of the module's memory.
pub(crate) fn bytes(memory: &[u8], at: u32, length: u32) -> Result<&[u8], u32> {
    memory.get(at as usize..).and_then(|rest| rest.get(..length as usize)).ok_or(INVALID_MEMORY_ACCESS)
}

pub(crate) fn put(memory: &mut [u8], at: u32, bytes: &[u8]) -> u32 {
    match memory.get_mut(at as usize..).and_then(|rest| rest.get_mut(..bytes.len())) {
        Some(place) => {
            place.copy_from_slice(bytes);
            OK
        }
        None => INVALID_MEMORY_ACCESS,
    }
}

pub(crate) fn put_number(guest: &mut Guest<'_>, at: u32, number: u32) -> u32 {
    put(split(guest).0, at, &number.to_le_bytes())
}

/// So many bytes from the module's allocator.
pub(crate) fn allocate(guest: &mut Guest<'_>, length: usize) -> wasmtime::Result<u32> {
    let malloc = guest.data().malloc.clone();
    let length = u32::try_from(length).map_err(|_| wasmtime::Error::msg("more than a module can take"))?;
    match malloc {
        Some(malloc) => malloc.call(guest.as_context_mut(), length),
        None => Err(wasmtime::Error::msg("the module has no allocator yet")),
    }
}

/// Hands over the bytes in `scratch`: a copy of them, its place at `out` and its length at `out_length`.
pub(crate) fn give(guest: &mut Guest<'_>, out: u32, out_length: u32) -> Answer {
    let length = guest.data().scratch.len();
    let at = match length {
        0 => 0,
        length => allocate(guest, length)?,
    };
    let (memory, data) = split(guest);
    if put(memory, at, &data.scratch) != OK {
        return Ok(INVALID_MEMORY_ACCESS);
    }
    Ok(tell(guest, at, length, out, out_length))
}

/// Says where something was put; a place of 0 is not told.
pub(crate) fn tell(guest: &mut Guest<'_>, at: u32, length: usize, out: u32, out_length: u32) -> u32 {
    let memory = split(guest).0;
    let told = put(memory, out, &at.to_le_bytes());
    if told != OK {
        return told;
    }
    put(memory, out_length, &(length as u32).to_le_bytes())
}

/// A `Result` whose error is a status as well.
pub(crate) fn status(result: Result<(), u32>) -> Answer {
    Ok(result.err().unwrap_or(OK))
}
