//! Statistics that a module names itself. They are defined while its configuration is made, with the names of their
//! labels; a value for each label comes with each change.

use std::ffi::c_int;

use postrider_filter_plugin::{Named, Sort};

use super::{config, instance, put};
use crate::abi::{Buffer, ConfigRef, StreamRef, items, metric};
use crate::config::{Config, Defined};
use crate::on_worker::OnWorker;

pub(super) unsafe fn counter(
    handle: ConfigRef,
    name: Buffer,
    labels: *const Buffer,
    count: usize,
    out: *mut usize,
) -> c_int {
    // SAFETY: the caller is a module that follows the interface, here and below.
    unsafe { define(handle, Sort::Counter, name, labels, count, out) }
}

pub(super) unsafe fn gauge(
    handle: ConfigRef,
    name: Buffer,
    labels: *const Buffer,
    count: usize,
    out: *mut usize,
) -> c_int {
    // SAFETY: as above.
    unsafe { define(handle, Sort::Gauge, name, labels, count, out) }
}

pub(super) unsafe fn histogram(
    handle: ConfigRef,
    name: Buffer,
    labels: *const Buffer,
    count: usize,
    out: *mut usize,
) -> c_int {
    // SAFETY: as above.
    unsafe { define(handle, Sort::Histogram(postrider_telemetry::stats::Unit::Unspecified), name, labels, count, out) }
}

unsafe fn define(
    handle: ConfigRef,
    sort: Sort,
    name: Buffer,
    labels: *const Buffer,
    count: usize,
    out: *mut usize,
) -> c_int {
    // SAFETY: as above.
    let Some(config) = (unsafe { config(handle) }) else { return metric::NOT_FOUND };
    // SAFETY: as above.
    let text = |buffer: &Buffer| String::from_utf8_lossy(unsafe { buffer.bytes() }).into_owned();
    // SAFETY: as above.
    let labels = unsafe { items(labels, count) }.iter().map(text).collect();
    match config.define(Defined { sort, name: text(&name), labels }) {
        Some(id) => {
            // SAFETY: as above.
            unsafe { put(out, id) };
            metric::SUCCESS
        }
        None => metric::FROZEN,
    }
}

/// What is done to a statistic.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Change {
    Increment,
    Increase,
    Decrease,
    Set,
    Record,
}

impl Change {
    fn fits(self, sort: Sort) -> bool {
        match self {
            Change::Increment => sort == Sort::Counter,
            Change::Increase | Change::Decrease | Change::Set => sort == Sort::Gauge,
            Change::Record => matches!(sort, Sort::Histogram(_)),
        }
    }

    fn apply(self, named: &Named, value: u64) {
        match self {
            Change::Increment | Change::Increase => named.add(value),
            Change::Decrease => named.sub(value),
            Change::Set => named.set(value),
            Change::Record => named.record(value),
        }
    }
}

macro_rules! changes {
    ($($function:ident = $change:ident;)*) => {$(
        pub(super) unsafe fn $function(
            handle: StreamRef, id: usize, labels: *const Buffer, count: usize, value: u64,
        ) -> c_int {
            // SAFETY: as above.
            unsafe { change(handle, Change::$change, id, labels, count, value) }
        }
    )*};
}

changes! {
    increment = Increment;
    increase = Increase;
    decrease = Decrease;
    set = Set;
    record = Record;
}

unsafe fn change(
    handle: StreamRef,
    change: Change,
    id: usize,
    labels: *const Buffer,
    count: usize,
    value: u64,
) -> c_int {
    // SAFETY: as above.
    let (instance, labels) = unsafe { (instance(handle), items(labels, count)) };
    let Some(place) = instance.map(|instance| &instance.place) else { return metric::NOT_FOUND };
    match name_of(&place.config, change, id, labels) {
        Ok((sort, name)) => {
            count_on(place, change, sort, &name, value);
            metric::SUCCESS
        }
        Err(error) => error,
    }
}

fn count_on(place: &OnWorker, change: Change, sort: Sort, name: &str, value: u64) {
    // Beyond the most names that there may be, nothing is counted.
    if let Some(id) = place.metrics.define(sort, name) {
        place.metrics.with(id, |named| change.apply(named, value));
    }
}

/// The statistic's name: behind its own the names of its labels, each with its value.
fn name_of(config: &Config, change: Change, id: usize, labels: &[Buffer]) -> Result<(Sort, String), c_int> {
    let Some(defined) = config.defined(id).filter(|defined| change.fits(defined.sort)) else {
        return Err(metric::NOT_FOUND);
    };
    // As in Envoy, those without labels are others than those with some.
    if defined.labels.is_empty() != labels.is_empty() {
        return Err(metric::NOT_FOUND);
    }
    if defined.labels.len() != labels.len() {
        return Err(metric::INVALID_LABELS);
    }
    let mut name = defined.name.clone();
    for (label, value) in defined.labels.iter().zip(labels) {
        // SAFETY: the module's bytes are there for the time of its call.
        let value = String::from_utf8_lossy(unsafe { value.bytes() });
        name.extend([".", label, ".", &value]);
    }
    Ok((defined.sort, name))
}
