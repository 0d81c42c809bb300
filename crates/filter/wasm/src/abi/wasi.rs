//! What toolchains expect of a system: output, clocks, chance and the environment. There are no files.

use postrider_telemetry::log::Level;
use wasmtime::{ExternType, Linker, Module, Val, ValType};

use super::general::{is_heard, wall_nanos, write_log};
use super::{Answer, Guest, bytes, put, split};
use crate::data::Data;
use crate::status::OK;

/// Both names of the one interface.
const MODULES: [&str; 2] = ["wasi_unstable", "wasi_snapshot_preview1"];

const BAD_DESCRIPTOR: u32 = 8;
const FAULT: u32 = 21;
const INVALID: u32 = 28;
const NO_SUCH_FILE: u32 = 44;
const NOT_IMPLEMENTED: u32 = 52;
const NOT_SUPPORTED: u32 = 58;
const NO_FOLDER: u32 = 20;

/// Most random bytes at once, as in Envoy.
const MAX_RANDOM: u32 = 64 * 1024;

pub(super) fn define(linker: &mut Linker<Data>, module: &Module) -> wasmtime::Result<()> {
    for name in MODULES {
        linker.func_wrap(name, "fd_write", fd_write)?;
        linker.func_wrap(name, "fd_pwrite", fd_pwrite)?;
        linker.func_wrap(name, "fd_renumber", |_: Guest<'_>, from: u32, to: u32| {
            if matches!((from, to), (1 | 2, 1 | 2)) { NOT_SUPPORTED } else { BAD_DESCRIPTOR }
        })?;
        linker.func_wrap(name, "fd_fdstat_get", fd_fdstat_get)?;
        linker.func_wrap(name, "fd_prestat_get", |_: Guest<'_>, _: u32, _: u32| BAD_DESCRIPTOR)?;
        linker.func_wrap(name, "fd_prestat_dir_name", |_: Guest<'_>, _: u32, _: u32, _: u32| NOT_IMPLEMENTED)?;
        linker.func_wrap(name, "fd_close", |_: Guest<'_>, _: u32| OK)?;
        linker.func_wrap(name, "environ_sizes_get", environ_sizes_get)?;
        linker.func_wrap(name, "environ_get", environ_get)?;
        linker.func_wrap(name, "args_sizes_get", args_sizes_get)?;
        linker.func_wrap(name, "args_get", |_: Guest<'_>, _: u32, _: u32| OK)?;
        linker.func_wrap(name, "fd_tell", fd_tell)?;
        linker.func_wrap(name, "clock_res_get", clock_res_get)?;
        linker.func_wrap(name, "clock_time_get", clock_time_get)?;
        linker.func_wrap(name, "random_get", random_get)?;
        linker.func_wrap(name, "sched_yield", |_: Guest<'_>| OK)?;
        linker.func_wrap(name, "poll_oneoff", poll_oneoff)?;
        linker.func_wrap(name, "proc_exit", proc_exit)?;
    }
    // Everything else is there and says no.
    for import in module.imports().filter(|import| MODULES.contains(&import.module())) {
        let ExternType::Func(kind) = import.ty() else { continue };
        let known = [
            "fd_write",
            "fd_pwrite",
            "fd_renumber",
            "fd_fdstat_get",
            "fd_prestat_get",
            "fd_prestat_dir_name",
            "fd_close",
            "environ_sizes_get",
            "environ_get",
            "args_sizes_get",
            "args_get",
            "fd_tell",
            "clock_res_get",
            "clock_time_get",
            "random_get",
            "sched_yield",
            "poll_oneoff",
            "proc_exit",
        ];
        if known.contains(&import.name()) || !kind.results().all(|result| matches!(result, ValType::I32)) {
            continue;
        }
        let name = import.name().to_owned();
        linker.func_new(import.module(), import.name(), kind, move |mut guest, parameters, results| {
            let descriptor = parameters.first().and_then(Val::i32);
            let refusal = match empty(&mut guest, &name, parameters) {
                OK => refusal(&name, descriptor),
                _ => FAULT,
            };
            if let Some(result) = results.first_mut() {
                *result = Val::I32(refusal as i32);
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// Says how much came, where a function that refuses says so all the same: nothing.
fn empty(guest: &mut Guest<'_>, name: &str, parameters: &[Val]) -> u32 {
    const NONE: &[u8] = &[0; 4];
    const NO_FLAGS: &[u8] = &[0; 2];
    // By place among the parameters.
    let told: &[(usize, &[u8])] = match name {
        "fd_readdir" | "sock_send" => &[(4, NONE)],
        "path_readlink" => &[(5, NONE)],
        "sock_accept" => &[(2, NONE)],
        "sock_recv" => &[(4, NONE), (5, NO_FLAGS)],
        _ => &[],
    };
    let memory = split(guest).0;
    let place = |parameter: usize| parameters.get(parameter).and_then(Val::i32).unwrap_or_default() as u32;
    let all = told.iter().map(|(parameter, bytes)| put(memory, place(*parameter), bytes));
    all.fold(OK, u32::max)
}

/// What Envoy answers where nothing is done. Standard output and error are all that is open, and have neither place nor size.
fn refusal(name: &str, descriptor: Option<i32>) -> u32 {
    match name {
        "fd_seek" | "fd_advise" => OK,
        "fd_sync"
        | "fd_datasync"
        | "fd_allocate"
        | "fd_fdstat_set_rights"
        | "fd_filestat_set_size"
        | "fd_filestat_set_times" => match descriptor {
            Some(1 | 2) => OK,
            _ => BAD_DESCRIPTOR,
        },
        "fd_filestat_get" => BAD_DESCRIPTOR,
        "fd_readdir" => NO_FOLDER,
        "path_open" => NO_SUCH_FILE,
        "fd_read" | "fd_pread" | "fd_fdstat_set_flags" => NOT_IMPLEMENTED,
        _ => NOT_SUPPORTED,
    }
}

/// Output has no places: it is written behind what came before.
fn fd_pwrite(guest: Guest<'_>, descriptor: u32, vectors: u32, count: u32, _offset: u64, out: u32) -> Answer {
    fd_write(guest, descriptor, vectors, count, out)
}

/// Standard output and error become lines of the log.
fn fd_write(mut guest: Guest<'_>, descriptor: u32, vectors: u32, count: u32, out: u32) -> Answer {
    let level = match descriptor {
        1 => Level::Info,
        2 => Level::Error,
        _ => return Ok(BAD_DESCRIPTOR),
    };
    let (memory, data) = split(&mut guest);
    let mut text = Vec::new();
    for index in 0..count {
        let at = vectors.wrapping_add(index.wrapping_mul(8));
        let Ok(vector) = bytes(memory, at, 8) else { return Ok(FAULT) };
        let (Some(place), Some(length)) = (number(vector.get(..4)), number(vector.get(4..))) else {
            return Ok(FAULT);
        };
        let Ok(part) = bytes(memory, place, length) else { return Ok(FAULT) };
        text.extend_from_slice(part);
    }
    let written = text.len() as u32;
    if !text.is_empty() && is_heard(level) {
        write_log(data, level, text.strip_suffix(b"\n").unwrap_or(&text));
    }
    Ok(if put(memory, out, &written.to_le_bytes()) == OK { OK } else { FAULT })
}

fn number(bytes: Option<&[u8]>) -> Option<u32> {
    Some(u32::from_le_bytes(bytes?.try_into().ok()?))
}

/// Both can be written to.
fn fd_fdstat_get(mut guest: Guest<'_>, descriptor: u32, out: u32) -> Answer {
    if !matches!(descriptor, 1 | 2) {
        return Ok(BAD_DESCRIPTOR);
    }
    let mut about = [0; 24];
    if let Some(rights) = about.get_mut(8) {
        *rights = 64;
    }
    put(split(&mut guest).0, out, &about);
    Ok(OK)
}

fn environ_sizes_get(mut guest: Guest<'_>, out_count: u32, out_bytes: u32) -> Answer {
    let (memory, data) = split(&mut guest);
    let all = &data.program.environment;
    let length: usize = all.iter().map(|(name, value)| name.len() + value.len() + 2).sum();
    let told = [
        put(memory, out_count, &(all.len() as u32).to_le_bytes()),
        put(memory, out_bytes, &(length as u32).to_le_bytes()),
    ];
    Ok(if told == [OK; 2] { OK } else { FAULT })
}

fn environ_get(mut guest: Guest<'_>, places: u32, texts: u32) -> Answer {
    let (memory, data) = split(&mut guest);
    let (mut place, mut at) = (places, texts);
    for (name, value) in &data.program.environment {
        let text = format!("{name}={value}\0");
        if put(memory, place, &at.to_le_bytes()) != OK || put(memory, at, text.as_bytes()) != OK {
            return Ok(FAULT);
        }
        place = place.wrapping_add(4);
        at = at.wrapping_add(text.len() as u32);
    }
    Ok(OK)
}

fn args_sizes_get(mut guest: Guest<'_>, out_count: u32, out_bytes: u32) -> Answer {
    let memory = split(&mut guest).0;
    let told = [put(memory, out_count, &[0; 4]), put(memory, out_bytes, &[0; 4])];
    Ok(if told == [OK; 2] { OK } else { FAULT })
}

/// Output has no place: it is at its beginning.
fn fd_tell(mut guest: Guest<'_>, descriptor: u32, out: u32) -> Answer {
    if !matches!(descriptor, 1 | 2) {
        return Ok(BAD_DESCRIPTOR);
    }
    Ok(if put(split(&mut guest).0, out, &[0; 8]) == OK { OK } else { FAULT })
}

/// Both clocks count nanoseconds.
fn clock_res_get(mut guest: Guest<'_>, clock: u32, out: u32) -> Answer {
    if !matches!(clock, 0 | 1) {
        return Ok(NOT_SUPPORTED);
    }
    Ok(if put(split(&mut guest).0, out, &1_u64.to_le_bytes()) == OK { OK } else { FAULT })
}

fn clock_time_get(mut guest: Guest<'_>, clock: u32, _precision: u64, out: u32) -> Answer {
    let (memory, data) = split(&mut guest);
    let time = match clock {
        0 => wall_nanos(data),
        1 => {
            let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
            (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
        }
        _ => return Ok(NOT_SUPPORTED),
    };
    Ok(if put(memory, out, &time.to_le_bytes()) == OK { OK } else { FAULT })
}

fn random_get(mut guest: Guest<'_>, at: u32, length: u32) -> Answer {
    if length > MAX_RANDOM {
        return Ok(INVALID);
    }
    let memory = split(&mut guest).0;
    let place = memory.get_mut(at as usize..).and_then(|rest| rest.get_mut(..length as usize));
    let Some(place) = place else { return Ok(FAULT) };
    // From the system: the generator of the cryptographic library takes longer to be made than some modules to start.
    Ok(if getrandom::fill(place).is_ok() { OK } else { FAULT })
}

/// Nothing is waited for here: nothing happened.
fn poll_oneoff(mut guest: Guest<'_>, _in: u32, _out: u32, _count: u32, out_events: u32) -> Answer {
    Ok(if put(split(&mut guest).0, out_events, &[0; 4]) == OK { OK } else { FAULT })
}

fn proc_exit(_: Guest<'_>, code: u32) -> wasmtime::Result<()> {
    Err(wasmtime::Error::msg(format!("the module called proc_exit({code})")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_done_has_envoys_numbers() {
        for (name, wanted) in [
            ("path_open", 44),
            ("path_create_directory", 58),
            ("path_filestat_get", 58),
            ("path_readlink", 58),
            ("fd_read", 52),
            ("fd_pread", 52),
            ("fd_fdstat_set_flags", 52),
            ("fd_seek", 0),
            ("fd_sync", 0),
            ("fd_filestat_get", 8),
            ("fd_readdir", 20),
            ("sock_accept", 58),
        ] {
            assert_eq!(refusal(name, Some(1)), wanted, "{name}");
        }
        for (name, wanted) in [("fd_sync", 8), ("fd_allocate", 8), ("fd_seek", 0), ("fd_read", 52)] {
            assert_eq!(refusal(name, Some(9)), wanted, "{name} of a bad descriptor");
        }
    }
}
