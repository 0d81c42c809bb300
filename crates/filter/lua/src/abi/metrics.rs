//! Statistics that scripts name themselves.

use std::ffi::{c_char, c_double, c_int};

use postrider_filter_plugin::{Named, Sort};
use postrider_telemetry::stats::Unit;

use super::text::take;
use super::turn::with;
use super::{INVALID, LIMIT, OK};
use crate::program::Dialect;

/// Longest name.
const MAX_NAME: usize = 256;

/// Names a statistic: kind 0 counter, 1 gauge, 2 histogram, 3 to 5 histogram of milliseconds, microseconds, bytes. A
/// number for it, from 1; the same for the same name.
pub(super) unsafe extern "C" fn define(kind: c_int, name: *const c_char, length: usize) -> c_int {
    with(|turn| {
        // SAFETY: the SDK passes a Lua string with its length.
        let Ok(name) = std::str::from_utf8(unsafe { take(name, length) }) else { return INVALID };
        if name.is_empty() || name.len() > MAX_NAME || name.chars().any(|c| c.is_control() || c == ' ') {
            return INVALID;
        }
        let sort = match kind {
            0 => Sort::Counter,
            1 => Sort::Gauge,
            2 => Sort::Histogram(Unit::Unspecified),
            3 => Sort::Histogram(Unit::Milliseconds),
            4 => Sort::Histogram(Unit::Microseconds),
            5 => Sort::Histogram(Unit::Bytes),
            _ => return INVALID,
        };
        let metrics = turn.plugin.metrics.as_ref();
        // Scripts of Envoy's own count `c` in two ways, as they do there.
        if turn.plugin.program.dialect == Dialect::Rider
            && metrics.is_some_and(|metrics| metrics.is_of_other_sort(sort, name))
        {
            return INVALID;
        }
        let id = metrics.map(|metrics| metrics.define(sort, name));
        match id {
            // A plugin that is only tried out counts nothing, but goes on as if it did.
            None => 1,
            Some(None) => LIMIT,
            Some(Some(id)) => c_int::try_from(id).unwrap_or(LIMIT),
        }
    })
}

fn with_named(id: c_int, act: impl FnOnce(&Named) -> c_int) -> c_int {
    with(|turn| {
        let Some(metrics) = &turn.plugin.metrics else { return OK };
        usize::try_from(id).ok().and_then(|id| metrics.with(id, act)).unwrap_or(INVALID)
    })
}

/// Adds to a counter or gauge.
pub(super) unsafe extern "C" fn add(id: c_int, offset: c_double) -> c_int {
    with_named(id, |named| {
        match named.sort() {
            Sort::Counter if offset < 0.0 => return INVALID,
            Sort::Counter => named.add(offset as u64),
            Sort::Gauge => named.add(offset as i64 as u64),
            Sort::Histogram(_) => return INVALID,
        }
        OK
    })
}

/// Sets a gauge, adds to a counter, records in a histogram.
pub(super) unsafe extern "C" fn record(id: c_int, value: c_double) -> c_int {
    with_named(id, |named| {
        match named.sort() {
            Sort::Counter if value < 0.0 => return INVALID,
            Sort::Counter => named.add(value as u64),
            Sort::Gauge => named.set(value as i64 as u64),
            Sort::Histogram(_) => named.record(value as u64),
        }
        OK
    })
}

/// A counter over all workers, or a gauge; negative when there is no such thing to read.
pub(super) unsafe extern "C" fn value(id: c_int) -> c_double {
    let mut value = if with_named(id, |_| OK) == OK { 0.0 } else { -1.0 };
    with_named(id, |named| {
        value = match (named.sort(), named.value()) {
            (Sort::Gauge, Some(number)) => number as i64 as f64,
            (_, Some(number)) => number as f64,
            (_, None) => -1.0,
        };
        OK
    });
    value
}
