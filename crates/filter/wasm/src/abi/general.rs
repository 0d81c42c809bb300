//! Logs, clocks, timers, properties and configuration.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use postrider_filter_trial::observe::{self, Event};
use postrider_telemetry::log::{Component, Level, enabled, level};
use wasmtime::Linker;

use super::{Answer, Guest, bytes, give, put, put_number, split, status};
use crate::analysis::Abi;
use crate::data::Data;
use crate::properties;
use crate::status::{BAD_ARGUMENT, INVALID_MEMORY_ACCESS, OK};
use crate::vm::schedule_tick;

pub(super) fn define(linker: &mut Linker<Data>, abi: Abi) -> wasmtime::Result<()> {
    linker.func_wrap("env", "proxy_log", log)?;
    linker.func_wrap("env", "proxy_get_current_time_nanoseconds", current_time)?;
    linker.func_wrap("env", "proxy_set_tick_period_milliseconds", set_tick_period)?;
    linker.func_wrap("env", "proxy_get_property", get_property)?;
    linker.func_wrap("env", "proxy_set_property", set_property)?;
    linker.func_wrap("env", "proxy_get_status", get_status)?;
    linker.func_wrap("env", "pthread_equal", |left: u32, right: u32| u32::from(left == right))?;
    linker.func_wrap("env", "emscripten_notify_memory_growth", |_: u32| {})?;
    match abi {
        Abi::V010 => {
            linker.func_wrap("env", "proxy_get_configuration", get_configuration)?;
        }
        Abi::V020 => {}
        Abi::V021 => {
            linker.func_wrap("env", "proxy_get_log_level", get_log_level)?;
        }
    }
    Ok(())
}

/// The module's numbers.
const LEVELS: [Level; 6] = [Level::Trace, Level::Debug, Level::Info, Level::Warning, Level::Error, Level::Critical];

fn log(mut guest: Guest<'_>, level: u32, text: u32, length: u32) -> Answer {
    let Some(level) = LEVELS.get(level as usize) else { return Ok(BAD_ARGUMENT) };
    if !is_heard(*level) {
        return Ok(OK);
    }
    let (memory, data) = split(&mut guest);
    status(bytes(memory, text, length).map(|text| write_log(data, *level, text)))
}

/// Whether anybody sees a line of this level.
pub(super) fn is_heard(level: Level) -> bool {
    enabled(Component::Filter, level) || observe::is_on()
}

/// Writes a line of the module's under its plugin's name.
#[cold]
pub(super) fn write_log(data: &mut Data, level: Level, text: &[u8]) {
    let text = String::from_utf8_lossy(text);
    if observe::is_on() {
        observe::note(Event::Log { level, text: text.into_owned() });
        return;
    }
    let vm_id = data.program.clone();
    let (name, root_id) = match data.root() {
        Some((_, root)) => (root.plugin.facts.name.clone(), root.plugin.root_id.clone()),
        None => (String::new(), String::new()),
    };
    let mut prefix = String::new();
    for part in [&name, &root_id, &vm_id.vm_id] {
        if !part.is_empty() {
            prefix.push(' ');
            prefix.push_str(part);
        }
    }
    let line = format_args!("wasm log{prefix}: {text}");
    postrider_telemetry::log::write_of(&name, Component::Filter, level, line);
}

fn get_log_level(mut guest: Guest<'_>, out: u32) -> Answer {
    let known = if observe::is_on() { Level::Trace } else { level(Component::Filter) };
    let number = LEVELS.iter().position(|level| *level == known).unwrap_or(LEVELS.len());
    Ok(put_number(&mut guest, out, number as u32))
}

pub(super) fn wall_nanos(data: &mut Data) -> u64 {
    let now = data.with_host(|host| host.wall()).unwrap_or_else(SystemTime::now);
    now.duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

fn current_time(mut guest: Guest<'_>, out: u32) -> Answer {
    let (memory, data) = split(&mut guest);
    Ok(put(memory, out, &wall_nanos(data).to_le_bytes()))
}

fn set_tick_period(mut guest: Guest<'_>, milliseconds: u32) -> Answer {
    /// More often, ticks would be all that a worker does.
    const SHORTEST: Duration = Duration::from_millis(1);
    let data = guest.data_mut();
    let Some((id, root)) = data.root() else { return Ok(OK) };
    root.tick = match milliseconds {
        0 => 0,
        some => some.max(SHORTEST.as_millis() as u32),
    };
    schedule_tick(data, id);
    Ok(OK)
}

fn get_property(mut guest: Guest<'_>, path: u32, length: u32, out: u32, out_length: u32) -> Answer {
    let (memory, data) = split(&mut guest);
    let path = match bytes(memory, path, length) {
        Ok(path) => path,
        Err(status) => return Ok(status),
    };
    if let Err(status) = properties::read(data, path) {
        return Ok(status);
    }
    give(&mut guest, out, out_length)
}

fn set_property(mut guest: Guest<'_>, path: u32, path_length: u32, value: u32, value_length: u32) -> Answer {
    let (memory, data) = split(&mut guest);
    let (Ok(path), Ok(value)) = (bytes(memory, path, path_length), bytes(memory, value, value_length)) else {
        return Ok(INVALID_MEMORY_ACCESS);
    };
    status(properties::write(data, path, value))
}

/// In `proxy_on_configure` the plugin's, otherwise the machine's.
fn get_configuration(mut guest: Guest<'_>, out: u32, out_length: u32) -> Answer {
    let data = guest.data_mut();
    let mut scratch = std::mem::take(&mut data.scratch);
    scratch.clear();
    match data.root() {
        Some((_, root)) => scratch.extend_from_slice(&root.plugin.configuration),
        None => scratch.extend_from_slice(&data.program.configuration),
    }
    data.scratch = scratch;
    give(&mut guest, out, out_length)
}

fn get_status(mut guest: Guest<'_>, out_code: u32, out: u32, out_length: u32) -> Answer {
    let code = guest.data().status.0;
    let told = put_number(&mut guest, out_code, code);
    if told != OK {
        return Ok(told);
    }
    let data = guest.data_mut();
    data.scratch.clear();
    data.scratch.extend_from_slice(&data.status.1);
    give(&mut guest, out, out_length)
}
