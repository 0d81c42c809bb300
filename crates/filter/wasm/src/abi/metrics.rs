//! Statistics that modules name: `wasmcustom.` and the name.

use postrider_filter_plugin::Sort;
use postrider_telemetry::stats::Unit;
use wasmtime::Linker;

use super::{Answer, Guest, bytes, put, put_number, split};
use crate::data::Data;
use crate::status::{BAD_ARGUMENT, INTERNAL_FAILURE, NOT_FOUND, OK};

/// Longest name. Modules put labels into names, as Istio's do, a dozen of them and more.
const MAX_NAME: usize = 2048;

pub(super) fn define(linker: &mut Linker<Data>) -> wasmtime::Result<()> {
    linker.func_wrap("env", "proxy_define_metric", define_metric)?;
    linker.func_wrap("env", "proxy_increment_metric", increment)?;
    linker.func_wrap("env", "proxy_record_metric", record)?;
    linker.func_wrap("env", "proxy_get_metric", get)?;
    Ok(())
}

fn define_metric(mut guest: Guest<'_>, kind: u32, name: u32, length: u32, out: u32) -> Answer {
    let (memory, data) = split(&mut guest);
    let name = match bytes(memory, name, length) {
        Ok(name) => String::from_utf8_lossy(name).into_owned(),
        Err(status) => return Ok(status),
    };
    let sort = match kind {
        0 => Sort::Counter,
        1 => Sort::Gauge,
        2 => Sort::Histogram(Unit::Unspecified),
        _ => return Ok(BAD_ARGUMENT),
    };
    if name.is_empty() || name.len() > MAX_NAME || name.chars().any(char::is_control) {
        return Ok(BAD_ARGUMENT);
    }
    let id = match &data.metrics {
        Some(metrics) => metrics.define(sort, &name),
        // A plugin that is only tried out counts nothing, but goes on as if it did.
        None => Some(1),
    };
    match id.and_then(|id| u32::try_from(id).ok()) {
        Some(id) => Ok(put_number(&mut guest, out, id)),
        None => Ok(INTERNAL_FAILURE),
    }
}

fn increment(guest: Guest<'_>, id: u32, offset: i64) -> Answer {
    let Some(metrics) = &guest.data().metrics else { return Ok(OK) };
    let added = metrics.with(id as usize, |named| match (named.sort(), offset) {
        (Sort::Counter, 1..) | (Sort::Gauge, 0..) => {
            named.add(offset.unsigned_abs());
            OK
        }
        (Sort::Gauge, _) => {
            named.sub(offset.unsigned_abs());
            OK
        }
        (Sort::Counter | Sort::Histogram(_), _) => BAD_ARGUMENT,
    });
    Ok(added.unwrap_or(NOT_FOUND))
}

fn record(guest: Guest<'_>, id: u32, value: u64) -> Answer {
    let Some(metrics) = &guest.data().metrics else { return Ok(OK) };
    let recorded = metrics.with(id as usize, |named| match named.sort() {
        Sort::Counter => named.add(value),
        Sort::Gauge => named.set(value),
        Sort::Histogram(_) => named.record(value),
    });
    Ok(recorded.map_or(NOT_FOUND, |()| OK))
}

/// A counter over all workers, or a gauge.
fn get(mut guest: Guest<'_>, id: u32, out: u32) -> Answer {
    let (memory, data) = split(&mut guest);
    let Some(metrics) = &data.metrics else { return Ok(put(memory, out, &0u64.to_le_bytes())) };
    match metrics.with(id as usize, |named| named.value()) {
        None => Ok(NOT_FOUND),
        Some(None) => Ok(BAD_ARGUMENT),
        Some(Some(value)) => Ok(put(memory, out, &value.to_le_bytes())),
    }
}
