//! Statistics of a module's own.

use std::ffi::c_int;
use std::fmt;

use crate::abi::{self, Buffer, StreamRef};
use crate::stream::Stream;

/// A number that only grows. Defined by [`Setup::counter`](crate::Setup::counter).
#[derive(Debug, Clone, Copy)]
pub struct Counter(pub(crate) usize);

/// A number that goes up and down. Defined by [`Setup::gauge`](crate::Setup::gauge).
#[derive(Debug, Clone, Copy)]
pub struct Gauge(pub(crate) usize);

/// How values are distributed. Defined by [`Setup::histogram`](crate::Setup::histogram).
#[derive(Debug, Clone, Copy)]
pub struct Histogram(pub(crate) usize);

/// Why a statistic did not change, or was not defined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum MetricError {
    /// It belongs to another configuration, or to another kind of statistic.
    Unknown,
    /// There is not one value for each label.
    Labels,
    /// No more can be defined.
    Frozen,
}

impl fmt::Display for MetricError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            MetricError::Unknown => "there is no such statistic",
            MetricError::Labels => "a statistic wants one value for each of its labels",
            MetricError::Frozen => "no more statistics can be defined",
        })
    }
}

pub(crate) fn result(code: c_int) -> Result<(), MetricError> {
    match code {
        0 => Ok(()),
        2 => Err(MetricError::Labels),
        3 => Err(MetricError::Frozen),
        _ => Err(MetricError::Unknown),
    }
}

type Change = unsafe extern "C" fn(StreamRef, usize, *const Buffer, usize, u64) -> c_int;

/// Statistics. `labels` are the values of the labels, in the order in which they were defined.
impl Stream<'_> {
    /// Adds to a counter.
    ///
    /// # Errors
    /// It is not of this configuration, or `labels` does not fit it. So below.
    pub fn count(&mut self, counter: Counter, labels: &[&str], by: u64) -> Result<(), MetricError> {
        self.change(abi::increment_counter, counter.0, labels, by)
    }

    /// Adds to a gauge.
    ///
    /// # Errors
    /// As for [`Stream::count`].
    pub fn increase(&mut self, gauge: Gauge, labels: &[&str], by: u64) -> Result<(), MetricError> {
        self.change(abi::increment_gauge, gauge.0, labels, by)
    }

    /// Takes from a gauge.
    ///
    /// # Errors
    /// As for [`Stream::count`].
    pub fn decrease(&mut self, gauge: Gauge, labels: &[&str], by: u64) -> Result<(), MetricError> {
        self.change(abi::decrement_gauge, gauge.0, labels, by)
    }

    /// Sets a gauge.
    ///
    /// # Errors
    /// As for [`Stream::count`].
    pub fn set_gauge(&mut self, gauge: Gauge, labels: &[&str], to: u64) -> Result<(), MetricError> {
        self.change(abi::set_gauge, gauge.0, labels, to)
    }

    /// Adds a value to a histogram.
    ///
    /// # Errors
    /// As for [`Stream::count`].
    pub fn record(&mut self, histogram: Histogram, labels: &[&str], value: u64) -> Result<(), MetricError> {
        self.change(abi::record_histogram, histogram.0, labels, value)
    }

    fn change(&mut self, change: Change, id: usize, labels: &[&str], value: u64) -> Result<(), MetricError> {
        let labels: Vec<Buffer> = labels.iter().map(|label| Buffer::of(label.as_bytes())).collect();
        // SAFETY: the handle is that of a stream in a hook; the labels are there during the call.
        result(unsafe { change(self.handle(), id, labels.as_ptr(), labels.len(), value) })
    }
}
