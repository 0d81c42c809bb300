//! A configuration in the making.

use std::ffi::c_int;
use std::fmt;
use std::marker::PhantomData;

use crate::abi::{self, Buffer, ConfigRef};
use crate::metrics::{Counter, Gauge, Histogram, MetricError, result};
use crate::schedule::BackgroundScheduler;

/// What a configuration is made of.
pub struct Setup<'a> {
    handle: ConfigRef,
    name: &'a str,
    config: &'a [u8],
    /// It belongs to the thread that reads the configuration.
    _local: PhantomData<*mut ()>,
}

type Define = unsafe extern "C" fn(ConfigRef, Buffer, *const Buffer, usize, *mut usize) -> c_int;

impl<'a> Setup<'a> {
    pub(crate) fn new(handle: ConfigRef, name: &'a str, config: &'a [u8]) -> Setup<'a> {
        Setup { handle, name, config, _local: PhantomData }
    }

    pub(crate) fn handle(&self) -> ConfigRef {
        self.handle
    }

    /// `filter_name`: a module with several filters chooses by it.
    pub fn name(&self) -> &'a str {
        self.name
    }

    /// `filter_config`: a text or bytes as they are, everything else as JSON.
    pub fn config(&self) -> &'a [u8] {
        self.config
    }

    /// Defines a counter, whose changes name a value for each label.
    ///
    /// # Errors
    /// There are too many.
    pub fn counter(&mut self, name: &str, labels: &[&str]) -> Result<Counter, MetricError> {
        self.define(abi::define_counter, name, labels).map(Counter)
    }

    /// Defines a gauge.
    ///
    /// # Errors
    /// There are too many.
    pub fn gauge(&mut self, name: &str, labels: &[&str]) -> Result<Gauge, MetricError> {
        self.define(abi::define_gauge, name, labels).map(Gauge)
    }

    /// Defines a histogram.
    ///
    /// # Errors
    /// There are too many.
    pub fn histogram(&mut self, name: &str, labels: &[&str]) -> Result<Histogram, MetricError> {
        self.define(abi::define_histogram, name, labels).map(Histogram)
    }

    fn define(&mut self, define: Define, name: &str, labels: &[&str]) -> Result<usize, MetricError> {
        let labels: Vec<Buffer> = labels.iter().map(|label| Buffer::of(label.as_bytes())).collect();
        let mut id = 0;
        // SAFETY: the handle is that of the configuration that is being made; everything else is there during the call.
        let code =
            unsafe { define(self.handle, Buffer::of(name.as_bytes()), labels.as_ptr(), labels.len(), &raw mut id) };
        result(code).map(|()| id)
    }

    /// A way for other threads to reach the configuration: its events come as
    /// [`HttpFilter::on_background_event`](crate::HttpFilter::on_background_event), as soon as there is a worker.
    pub fn background_scheduler(&mut self) -> BackgroundScheduler {
        BackgroundScheduler::open(self.handle)
    }
}

macro_rules! plain_setup {
    ($(#[$about:meta])* $name:ident, $counter:ident, $gauge:ident, $histogram:ident) => {
        $(#[$about])*
        pub struct $name<'a> {
            handle: ConfigRef,
            name: &'a str,
            config: &'a [u8],
            /// It belongs to the thread that reads the configuration.
            _local: PhantomData<*mut ()>,
        }

        impl<'a> $name<'a> {
            pub(crate) fn new(handle: ConfigRef, name: &'a str, config: &'a [u8]) -> $name<'a> {
                $name { handle, name, config, _local: PhantomData }
            }

            /// The name in the configuration: a module with several chooses by it.
            pub fn name(&self) -> &'a str {
                self.name
            }

            /// A text or bytes as they are, everything else as JSON.
            pub fn config(&self) -> &'a [u8] {
                self.config
            }

            /// Defines a counter.
            ///
            /// # Errors
            /// There are too many.
            pub fn counter(&mut self, name: &str) -> Result<Counter, MetricError> {
                define_plain(abi::$counter, self.handle, name).map(Counter)
            }

            /// Defines a gauge.
            ///
            /// # Errors
            /// There are too many.
            pub fn gauge(&mut self, name: &str) -> Result<Gauge, MetricError> {
                define_plain(abi::$gauge, self.handle, name).map(Gauge)
            }

            /// Defines a histogram.
            ///
            /// # Errors
            /// There are too many.
            pub fn histogram(&mut self, name: &str) -> Result<Histogram, MetricError> {
                define_plain(abi::$histogram, self.handle, name).map(Histogram)
            }
        }
    };
}

plain_setup! {
    /// What a configuration of a filter of connections is made of.
    NetworkSetup, network_define_counter, network_define_gauge, network_define_histogram
}

plain_setup! {
    /// What a configuration of a filter of listeners is made of.
    ListenerSetup, listener_define_counter, listener_define_gauge, listener_define_histogram
}

plain_setup! {
    /// What a configuration of an access logger is made of.
    LoggerSetup, logger_define_counter, logger_define_gauge, logger_define_histogram
}

fn define_plain(
    define: unsafe extern "C" fn(ConfigRef, Buffer, *mut usize) -> c_int,
    config: ConfigRef,
    name: &str,
) -> Result<usize, MetricError> {
    let mut id = 0;
    // SAFETY: the handle is that of the configuration that is being made; the name is there during the call.
    result(unsafe { define(config, Buffer::of(name.as_bytes()), &raw mut id) }).map(|()| id)
}

/// Why a configuration is refused, for people.
#[derive(Debug)]
pub struct Refusal(String);

impl Refusal {
    pub(crate) fn text(&self) -> &str {
        &self.0
    }
}

/// From texts, and from whatever is an error: `?` works.
impl<E: fmt::Display> From<E> for Refusal {
    fn from(error: E) -> Refusal {
        Refusal(error.to_string())
    }
}
