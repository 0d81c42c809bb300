//! Statistics that a module names itself. They are defined while its configuration is made, with the names of their
//! labels; a value for each label comes with each change.

use std::borrow::Cow;
use std::ffi::c_int;

use postrider_filter_plugin::{Metrics, Named, Sort};

use super::{config, instance, put};
use crate::abi::{Buffer, ConfigRef, StreamRef, items, metric};
use crate::config::Config;
use crate::definitions::{Defined, Definitions};
use crate::logger::{LoggerConfig, Telling};
use crate::reach::Reach;

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
    // SAFETY: as above.
    unsafe { number(&config.definitions, Defined { sort, name: text(&name), labels }, out) }
}

/// # Safety
/// There is room for a number.
pub(super) unsafe fn number(definitions: &Definitions, defined: Defined, out: *mut usize) -> c_int {
    match definitions.define(defined) {
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
    match find(&place.config, change, id, labels) {
        Ok((defined, labels)) => {
            count_with(&place.metrics, change, defined, &labels, value);
            metric::SUCCESS
        }
        Err(error) => error,
    }
}

macro_rules! changes_of_configurations {
    ($($function:ident = $change:ident;)*) => {$(
        pub(super) unsafe fn $function(
            handle: ConfigRef, id: usize, labels: *const Buffer, count: usize, value: u64,
        ) -> c_int {
            // SAFETY: as above.
            unsafe { change_later(handle, Change::$change, id, labels, count, value) }
        }
    )*};
}

changes_of_configurations! {
    config_increment = Increment;
    config_increase = Increase;
    config_decrease = Decrease;
    config_set = Set;
    config_record = Record;
}

/// From wherever a module is: a worker counts.
unsafe fn change_later(
    handle: ConfigRef,
    change: Change,
    id: usize,
    labels: *const Buffer,
    count: usize,
    value: u64,
) -> c_int {
    // SAFETY: as above.
    let (config, labels) = unsafe { (config(handle), items(labels, count)) };
    let Some(config) = config else { return metric::NOT_FOUND };
    match find(config, change, id, labels) {
        Ok((defined, labels)) => {
            let (defined, labels) = (defined.clone(), labels.into_iter().map(Cow::into_owned).collect::<Vec<_>>());
            config.reach.count(move |metrics| count_with(metrics, change, &defined, &labels, value));
            metric::SUCCESS
        }
        Err(error) => error,
    }
}

pub(super) fn count_on(metrics: &Metrics, change: Change, sort: Sort, name: &str, value: u64) {
    // Beyond the most names that there may be, nothing is counted.
    if let Some(id) = metrics.define(sort, name) {
        metrics.with(id, |named| change.apply(named, value));
    }
}

/// The same with a value for each label.
fn count_with<V: AsRef<str>>(metrics: &Metrics, change: Change, defined: &Defined, values: &[V], value: u64) {
    let labels = defined.labels.iter().map(String::as_str).zip(values.iter().map(AsRef::as_ref));
    if let Some(id) = metrics.define_with(defined.sort, &defined.name, &labels.collect::<Vec<_>>()) {
        metrics.with(id, |named| change.apply(named, value));
    }
}

/// Defines a statistic without labels, of a filter of connections.
///
/// # Safety
/// The name is there, and room for a number.
pub(super) unsafe fn define_plain(definitions: &Definitions, sort: Sort, name: Buffer, out: *mut usize) -> c_int {
    // SAFETY: by the contract above.
    let name = String::from_utf8_lossy(unsafe { name.bytes() }).into_owned();
    // SAFETY: by the contract above.
    unsafe { number(definitions, Defined { sort, name, labels: Vec::new() }, out) }
}

/// Changes a statistic without labels on the worker that the filter is on.
pub(super) fn change_plain(
    definitions: &Definitions,
    metrics: &Metrics,
    change: Change,
    id: usize,
    value: u64,
) -> c_int {
    let Some(known) = definitions.get(id).filter(|known| change.fits(known.sort)) else { return metric::NOT_FOUND };
    count_on(metrics, change, known.sort, &known.name, value);
    metric::SUCCESS
}

/// The same from wherever a module is.
pub(super) fn change_plain_later(
    definitions: &Definitions,
    reach: &Reach,
    change: Change,
    id: usize,
    value: u64,
) -> c_int {
    let known = definitions.get(id).filter(|known| change.fits(known.sort));
    let Some(known) = known.cloned() else { return metric::NOT_FOUND };
    reach.count(move |metrics| count_on(metrics, change, known.sort, &known.name, value));
    metric::SUCCESS
}

/// The statistic, and the values of its labels.
fn find<'m>(
    config: &'m Config,
    change: Change,
    id: usize,
    labels: &'m [Buffer],
) -> Result<(&'m Defined, Vec<Cow<'m, str>>), c_int> {
    let Some(defined) = config.definitions.get(id).filter(|defined| change.fits(defined.sort)) else {
        return Err(metric::NOT_FOUND);
    };
    // As in Envoy, those without labels are others than those with some.
    if defined.labels.is_empty() != labels.is_empty() {
        return Err(metric::NOT_FOUND);
    }
    if defined.labels.len() != labels.len() {
        return Err(metric::INVALID_LABELS);
    }
    // SAFETY: the module's bytes are there for the time of its call.
    let values = labels.iter().map(|value| String::from_utf8_lossy(unsafe { value.bytes() })).collect();
    Ok((defined, values))
}

/// # Safety
/// A pointer that a module got for a logger's configuration which is not gone.
unsafe fn logger_config<'a>(handle: ConfigRef) -> Option<&'a LoggerConfig> {
    // SAFETY: by the contract above; configurations are only ever borrowed shared.
    unsafe { handle.cast::<LoggerConfig>().cast_const().as_ref() }
}

macro_rules! of_loggers {
    (define { $($function:ident = $sort:expr;)* } change { $($changes:ident = $change:ident;)* }) => {
        $(
            pub(super) unsafe fn $function(handle: ConfigRef, name: Buffer, out: *mut usize) -> c_int {
                // SAFETY: the caller is a module that follows the interface, here and below.
                let Some(config) = (unsafe { logger_config(handle) }) else { return metric::NOT_FOUND };
                // SAFETY: as above.
                let name = String::from_utf8_lossy(unsafe { name.bytes() }).into_owned();
                // SAFETY: as above.
                unsafe { number(&config.definitions, Defined { sort: $sort, name, labels: Vec::new() }, out) }
            }
        )*
        $(
            pub(super) unsafe fn $changes(handle: ConfigRef, id: usize, value: u64) -> c_int {
                // SAFETY: as above.
                unsafe { change_of_logger(handle, Change::$change, id, value) }
            }
        )*
    };
}

of_loggers! {
    define {
        logger_counter = Sort::Counter;
        logger_gauge = Sort::Gauge;
        logger_histogram = Sort::Histogram(postrider_telemetry::stats::Unit::Unspecified);
    }
    change {
        logger_increment = Increment;
        logger_increase = Increase;
        logger_decrease = Decrease;
        logger_set = Set;
        logger_record = Record;
    }
}

/// Counts on the worker whose logger is told a record. Elsewhere there is nothing to count on, which the module is told.
unsafe fn change_of_logger(handle: ConfigRef, change: Change, id: usize, value: u64) -> c_int {
    // SAFETY: as above.
    let Some(config) = (unsafe { logger_config(handle) }) else { return metric::NOT_FOUND };
    let Some(defined) = config.definitions.get(id).filter(|defined| change.fits(defined.sort)) else {
        return metric::NOT_FOUND;
    };
    let counted = Telling::with_current(config, |told| {
        count_on(&told.metrics, change, defined.sort, &defined.name, value);
    });
    if counted.is_some() { metric::SUCCESS } else { metric::FROZEN }
}
