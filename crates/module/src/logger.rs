//! Access loggers: what a module implements that is told of what is logged, and the functions that the proxy calls for it.

use std::cell::RefCell;
use std::ffi::c_int;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::time::{Duration, SystemTime};

use crate::abi::{self, Buffer, ConfigRef, Own, StreamRef};
use crate::attribute::Attribute;
use crate::guard::complain;
use crate::hooks::{made, unmade};
use crate::metrics::{Counter, Gauge, Histogram, MetricError, result};
use crate::setup::{LoggerSetup, Refusal};

/// An access logger. A value is one configuration of it, made when the proxy reads its own; workers share it.
pub trait AccessLogger: Sized + Send + Sync + 'static {
    /// What one worker has.
    type State: 'static;

    /// Makes a configuration. Statistics are defined here and at no other time.
    ///
    /// # Errors
    /// Why it is refused: the log has it, and the proxy refuses its own configuration.
    fn new(setup: &mut LoggerSetup<'_>) -> Result<Self, Refusal>;

    /// A worker begins. `None` when it is to be told nothing.
    fn begin(&self) -> Option<Self::State>;

    /// A record. It runs on the worker: what is slow belongs on a thread of the module's own.
    fn log(&self, state: &mut Self::State, record: &Record<'_>);

    /// The worker's part goes.
    fn flush(&self, state: &mut Self::State) {
        let _ = state;
    }
}

/// What is logged, for the time of a hook.
pub struct Record<'r> {
    handle: StreamRef,
    config: ConfigRef,
    moment: c_int,
    _hook: PhantomData<&'r mut ()>,
}

/// Which fields of a request and its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum Fields {
    /// The request's head.
    Request = 0,
    /// The head of the answer.
    Response = 2,
    /// The trailers of the answer.
    ResponseTrailers = 3,
}

impl Record<'_> {
    /// What the record is about, as Envoy numbers it (`envoy.data.accesslog.v3.AccessLogType`): 6 is the end of a request, 3 that
    /// of a TCP connection.
    pub fn moment(&self) -> i32 {
        self.moment
    }

    /// The first value of a field. Connections have none.
    pub fn field(&self, fields: Fields, name: &str) -> Option<&[u8]> {
        let name = Buffer::of(name.as_bytes());
        self.bytes(|out| {
            // SAFETY: the handle is that of a logger in a hook; the name is there during the call. So below.
            unsafe { abi::logger_header(self.handle, fields as c_int, name, out, 0, ptr::null_mut()) }
        })
    }

    /// A text that is known of the stream: where it came from, over which TLS, and so on.
    pub fn text(&self, attribute: Attribute) -> Option<&[u8]> {
        self.bytes(|out| {
            // SAFETY: as above.
            unsafe { abi::logger_string(self.handle, attribute as c_int, out) }
        })
    }

    /// A number that is known of it.
    pub fn number(&self, attribute: Attribute) -> Option<u64> {
        let mut value = 0;
        // SAFETY: as above.
        unsafe { abi::logger_int(self.handle, attribute as c_int, &raw mut value) }.then_some(value)
    }

    /// Whether something is so.
    pub fn truth(&self, attribute: Attribute) -> Option<bool> {
        let mut value = false;
        // SAFETY: as above.
        unsafe { abi::logger_bool(self.handle, attribute as c_int, &raw mut value) }.then_some(value)
    }

    /// The status of the answer; 0 without one.
    pub fn status(&self) -> u32 {
        // SAFETY: as above.
        unsafe { abi::logger_status(self.handle) }
    }

    /// The cluster that it went to.
    pub fn cluster(&self) -> Option<&[u8]> {
        self.bytes(|out| {
            // SAFETY: as above.
            unsafe { abi::logger_cluster(self.handle, out) }
        })
    }

    /// A text of the dynamic metadata; the steps of `path` are between dots.
    pub fn metadata_text(&self, namespace: &str, path: &str) -> Option<&[u8]> {
        let (namespace, path) = (Buffer::of(namespace.as_bytes()), Buffer::of(path.as_bytes()));
        self.bytes(|out| {
            // SAFETY: as above.
            unsafe { abi::logger_metadata(self.handle, namespace, path, out) }
        })
    }

    /// Bytes of bodies, or of a connection: received from the client, and sent to it.
    pub fn sizes(&self) -> (u64, u64) {
        let mut sizes = abi::Sizes::default();
        // SAFETY: as above; there is room for them.
        unsafe { abi::logger_sizes(self.handle, &raw mut sizes) };
        (sizes.received, sizes.sent)
    }

    /// When it began, and how long it took, where that is known yet.
    pub fn times(&self) -> (SystemTime, Option<Duration>) {
        let mut times = abi::Times::default();
        // SAFETY: as above.
        unsafe { abi::logger_times(self.handle, &raw mut times) };
        let since_1970 = Duration::from_nanos(u64::try_from(times.start).unwrap_or(0));
        (SystemTime::UNIX_EPOCH + since_1970, u64::try_from(times.complete).ok().map(Duration::from_nanos))
    }

    /// Adds to a counter.
    ///
    /// # Errors
    /// It is not of this configuration. So below.
    pub fn count(&self, counter: Counter, by: u64) -> Result<(), MetricError> {
        // SAFETY: the configuration is there as long as its loggers.
        result(unsafe { abi::logger_increment_counter(self.config, counter.0, by) })
    }

    /// Sets a gauge.
    ///
    /// # Errors
    /// As for [`Record::count`].
    pub fn set_gauge(&self, gauge: Gauge, to: u64) -> Result<(), MetricError> {
        // SAFETY: as above.
        result(unsafe { abi::logger_set_gauge(self.config, gauge.0, to) })
    }

    /// Adds a value to a histogram.
    ///
    /// # Errors
    /// As for [`Record::count`].
    pub fn record(&self, histogram: Histogram, value: u64) -> Result<(), MetricError> {
        // SAFETY: as above.
        result(unsafe { abi::logger_record_histogram(self.config, histogram.0, value) })
    }

    fn bytes(&self, get: impl FnOnce(*mut Buffer) -> bool) -> Option<&[u8]> {
        let mut value = Buffer::NOTHING;
        // SAFETY: the proxy's bytes are there until the hook ends.
        get(&raw mut value).then(|| unsafe { value.bytes() })
    }
}

/// A configuration with the proxy's handle of it.
struct Configured<L> {
    logger: L,
    handle: ConfigRef,
}

/// A worker's part. Nothing is told after a panic.
struct OfWorker<L: AccessLogger> {
    /// The proxy keeps it longer than its loggers.
    config: *const Configured<L>,
    state: RefCell<Option<L::State>>,
}

/// # Safety
/// For this and all functions below: called by the proxy, as the interface says for the function of that name.
#[doc(hidden)]
pub unsafe fn config_new<L: AccessLogger>(config: ConfigRef, name: Buffer, text: Buffer) -> Own {
    // SAFETY: by the contract above.
    let (name, text) = unsafe { (name.bytes(), text.bytes()) };
    let make = || {
        let logger = L::new(&mut LoggerSetup::new(config, &String::from_utf8_lossy(name), text))?;
        Ok(Configured { logger, handle: config })
    };
    made("a logger's configuration", make).cast()
}

/// # Safety
/// As above.
#[doc(hidden)]
pub unsafe fn config_destroy<L: AccessLogger>(own: Own) {
    // SAFETY: by the contract above.
    unsafe { unmade::<Configured<L>>("the end of a logger's configuration", own) };
}

/// # Safety
/// As above.
#[doc(hidden)]
pub unsafe fn new<L: AccessLogger>(config: Own, _: StreamRef) -> Own {
    let config = config.cast::<Configured<L>>();
    // SAFETY: what `config_new` answered.
    let begin = AssertUnwindSafe(|| unsafe { &*config }.logger.begin());
    match catch_unwind(begin) {
        Ok(Some(state)) => {
            Box::into_raw(Box::new(OfWorker { config, state: RefCell::new(Some(state)) })).cast_const().cast()
        }
        Ok(None) => ptr::null(),
        Err(panic) => {
            complain("the beginning of a logger", &*panic);
            ptr::null()
        }
    }
}

/// # Safety
/// As above.
#[doc(hidden)]
pub unsafe fn log<L: AccessLogger>(handle: StreamRef, own: Own, moment: c_int) {
    // SAFETY: by the contract above, what `new` answered. So below.
    let worker = unsafe { &*own.cast::<OfWorker<L>>() };
    worker.enter(|config, state| {
        let record = Record { handle, config: config.handle, moment, _hook: PhantomData };
        config.logger.log(state, &record);
    });
}

/// # Safety
/// As above.
#[doc(hidden)]
pub unsafe fn flush<L: AccessLogger>(own: Own) {
    // SAFETY: as above.
    let worker = unsafe { &*own.cast::<OfWorker<L>>() };
    worker.enter(|config, state| config.logger.flush(state));
}

/// # Safety
/// As above.
#[doc(hidden)]
pub unsafe fn destroy<L: AccessLogger>(own: Own) {
    // SAFETY: as above, once.
    unsafe { unmade::<OfWorker<L>>("the end of a logger", own) };
}

impl<L: AccessLogger> OfWorker<L> {
    fn enter(&self, hook: impl FnOnce(&Configured<L>, &mut L::State)) {
        let Ok(mut held) = self.state.try_borrow_mut() else { return };
        let Some(state) = &mut *held else { return };
        // SAFETY: the proxy keeps configurations longer than their loggers.
        let config = unsafe { &*self.config };
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| hook(config, state))) {
            complain("a logger", &*panic);
            *held = None;
        }
    }
}
