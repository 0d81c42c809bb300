//! `envoy.access_loggers.dynamic_modules`: a module that is told of each record.
//!
//! The module makes a logger for each worker. What is known of a record is there while the hook runs and at no other time.

use std::cell::{Cell, RefCell};
use std::ffi::c_int;
use std::ptr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

use postrider_filter_api::plugin::Facts;
use postrider_filter_api::{AccessLogger, ConfigError, Ended, Logged, LoggerFactory, Place, StreamInfo};
use postrider_filter_plugin::read::keep;
use postrider_filter_plugin::{Edition, Metrics};
use postrider_model::{Value, ValueError};

use crate::abi::{Buffer, LoggerRef, Own};
use crate::callbacks::{View, runtime};
use crate::definitions::Definitions;
use crate::entry::LoggerEntries;
use crate::envoy::bytes;
use crate::library::Library;
use crate::source::{Found, absent, facts, module};

pub(crate) const KIND: &str = "envoy.extensions.access_loggers.dynamic_modules.v3.DynamicModuleAccessLog";

/// Loads the module and has it make its configuration.
pub(crate) fn build(name: &str, value: &Value) -> Result<Arc<dyn LoggerFactory>, ConfigError> {
    let mut fields = value.fields().map_err(|error| vec![error])?;
    let mut errors = Vec::new();
    let module = module(&mut fields, &mut errors);
    let logger = keep(fields.string("logger_name"), &mut errors).flatten().unwrap_or_default().to_owned();
    let config = bytes(&mut fields, "logger_config", &mut errors);
    errors.extend(fields.finish().err().into_iter().flatten());
    let module = match module.filter(|_| errors.is_empty()) {
        Some(Found::Here(module)) => module,
        Some(Found::Missing(source)) => return Ok(Arc::new(Bypass(absent(name, source)))),
        None => return Err(errors),
    };
    let make = || LoggerConfig::new(module.library, &module.namespace, name, &logger, &config);
    let made = runtime::known_during(module.runtime, make);
    let config = made.map_err(|message| vec![ValueError { path: "logger_config".to_owned(), message }])?;
    Ok(Arc::new(Factory { config, edition: module.edition }))
}

/// Stands in the place of a module that is not here, and is told in vain.
struct Bypass(Facts);

impl LoggerFactory for Bypass {
    fn logger(&self, _: &Place<'_>) -> Rc<dyn AccessLogger> {
        Rc::new(Nobody)
    }

    fn is_current(&self) -> bool {
        false
    }

    fn plugin(&self) -> Option<&Facts> {
        Some(&self.0)
    }
}

struct Nobody;

impl AccessLogger for Nobody {
    fn log(&self, _: &Ended<'_>, _: bool, _: Option<&[u8]>) {}
}

struct Factory {
    config: Arc<LoggerConfig>,
    edition: Option<Edition>,
}

impl LoggerFactory for Factory {
    fn logger(&self, place: &Place<'_>) -> Rc<dyn AccessLogger> {
        Telling::new(&self.config, place)
    }

    fn is_current(&self) -> bool {
        self.edition.as_ref().is_none_or(Edition::is_current)
    }

    fn plugin(&self) -> Option<&Facts> {
        Some(&self.config.facts)
    }
}

/// A logger's configuration. Its address is the module's handle, so it never moves: it is made behind an [`Arc`].
pub(crate) struct LoggerConfig {
    entries: LoggerEntries,
    facts: Facts,
    namespace: String,
    own: AtomicPtr<std::ffi::c_void>,
    pub(crate) definitions: Definitions,
    /// Last: its code runs until everything else is gone.
    _library: Arc<Library>,
}

impl LoggerConfig {
    /// Has the module make its part.
    ///
    /// # Errors
    /// It has no loggers, or refuses the configuration.
    fn new(
        library: Arc<Library>,
        namespace: &str,
        name: &str,
        logger: &str,
        config: &[u8],
    ) -> Result<Arc<LoggerConfig>, String> {
        let entries = LoggerEntries::of(&library);
        let is_whole = entries.new.is_some() && entries.destroy.is_some() && entries.log.is_some();
        let Some(make) = entries.config_new.filter(|_| is_whole) else {
            return Err(format!(
                "{} has no access loggers: it lacks the functions that make and tell them",
                library.source
            ));
        };
        let facts = facts(name, &library);
        let made = Arc::new(LoggerConfig {
            entries,
            facts,
            namespace: namespace.to_owned(),
            own: AtomicPtr::new(ptr::null_mut()),
            definitions: Definitions::default(),
            _library: library,
        });
        let handle = Arc::as_ptr(&made).cast_mut().cast();
        // SAFETY: the function of a loaded module, as the interface says; the bytes are there for the time of the call.
        let own = unsafe { make(handle, Buffer::of(logger.as_bytes()), Buffer::of(config)) };
        made.definitions.close();
        made.own.store(own.cast_mut(), Ordering::Release);
        if own.is_null() {
            return Err(format!("{} refuses the configuration of its logger `{logger}`", made._library.source));
        }
        Ok(made)
    }

    fn own(&self) -> Own {
        self.own.load(Ordering::Acquire).cast_const()
    }
}

impl Drop for LoggerConfig {
    fn drop(&mut self) {
        let own = self.own();
        if let Some(destroy) = self.entries.config_destroy.filter(|_| !own.is_null()) {
            // SAFETY: the function of a loaded module, once, on what it made.
            unsafe { destroy(own) };
        }
    }
}

/// A logger on one worker. Its address is the module's handle, so it is made behind an [`Rc`] and never moves.
pub(crate) struct Telling {
    config: Arc<LoggerConfig>,
    /// Null when the module made none: then it is told nothing.
    own: Cell<Own>,
    record: Cell<*const Ended<'static>>,
    /// What tells it from all others, as long as the record is there.
    id: Cell<Option<Buffer>>,
    /// The record is of a request.
    pub(crate) http: Cell<bool>,
    pub(crate) worker: u32,
    pub(crate) metrics: Metrics,
    /// Texts that were made for the module, until its next hook.
    texts: RefCell<Vec<Box<[u8]>>>,
}

thread_local! {
    /// Whose hook runs on this worker.
    static CURRENT: Cell<*const Telling> = const { Cell::new(ptr::null()) };
}

impl Telling {
    fn new(config: &Arc<LoggerConfig>, place: &Place<'_>) -> Rc<Telling> {
        let metrics = Metrics::new(place.stats, config.namespace.clone(), "module");
        for defined in config.definitions.all() {
            let _ = metrics.define(defined.sort, &defined.name);
        }
        let made = Rc::new(Telling {
            config: config.clone(),
            own: Cell::new(ptr::null()),
            record: Cell::new(ptr::null()),
            id: Cell::new(None),
            http: Cell::new(false),
            worker: place.worker,
            metrics,
            texts: RefCell::default(),
        });
        if let Some(new) = config.entries.new {
            // SAFETY: the function of a loaded module, on a configuration that it made, as the interface says.
            made.own.set(made.enter(|handle| unsafe { new(config.own(), handle) }));
        }
        made
    }

    fn enter<T>(&self, hook: impl FnOnce(LoggerRef) -> T) -> T {
        self.texts.borrow_mut().clear();
        let before = CURRENT.replace(self);
        let answer = hook(ptr::from_ref(self).cast_mut().cast());
        CURRENT.set(before);
        answer
    }

    /// What the record is of; `None` where there is none.
    pub(crate) fn record(&self) -> Option<&Ended<'_>> {
        // SAFETY: set for the time of a hook only, in which the record is there and only read.
        unsafe { self.record.get().as_ref() }
    }

    /// Which times it has.
    pub(crate) fn view(&self) -> View {
        let logged = self.info().map_or(Logged::End, |info| info.logged);
        View {
            of_client: self.http.get() && !logged.is_try(),
            is_over: matches!(logged, Logged::End | Logged::TryEnd | Logged::OfListener(_)),
        }
    }

    /// What tells the record's stream from all others, where it has that.
    pub(crate) fn id(&self) -> Option<Buffer> {
        self.id.get()
    }

    pub(crate) fn info(&self) -> Option<&StreamInfo> {
        self.record().map(|record| record.info)
    }

    /// A text for the module that lies nowhere else.
    pub(crate) fn lend(&self, text: impl Into<Vec<u8>>) -> Buffer {
        let text = text.into().into_boxed_slice();
        let lent = Buffer::of(&text);
        self.texts.borrow_mut().push(text);
        lent
    }

    /// Does something with the logger of that configuration whose hook runs on this thread.
    pub(crate) fn with_current<T>(config: *const LoggerConfig, act: impl FnOnce(&Telling) -> T) -> Option<T> {
        // SAFETY: set for the time of a hook only, by the logger itself, on this thread.
        let current = unsafe { CURRENT.get().as_ref() };
        current.filter(|current| ptr::eq(Arc::as_ptr(&current.config), config)).map(act)
    }
}

impl AccessLogger for Telling {
    fn log(&self, record: &Ended<'_>, http: bool, id: Option<&[u8]>) {
        let own = self.own.get();
        let Some(log) = self.config.entries.log.filter(|_| !own.is_null()) else { return };
        self.http.set(http);
        // The lifetime is put off: nobody reads the pointer when this function has ended.
        self.record.set(ptr::from_ref(record).cast());
        self.id.set(id.map(Buffer::of));
        // SAFETY: the function of a loaded module, on a logger that it made, as the interface says.
        self.enter(|handle| unsafe { log(handle, own, moment(record.info.logged, http)) });
        self.record.set(ptr::null());
        self.id.set(None);
    }
}

impl Drop for Telling {
    fn drop(&mut self) {
        let own = self.own.get();
        let entries = &self.config.entries;
        let Some(destroy) = entries.destroy.filter(|_| !own.is_null()) else { return };
        self.enter(|_| {
            if let Some(flush) = entries.flush {
                // SAFETY: the function of a loaded module, on a logger that it made.
                unsafe { flush(own) };
            }
            // SAFETY: as above, once.
            unsafe { destroy(own) };
        });
    }
}

/// Envoy's number for what a record is about (`envoy.data.accesslog.v3.AccessLogType`).
fn moment(logged: Logged, http: bool) -> c_int {
    match (logged, http) {
        (Logged::OfListener(_), _) => 0,
        (Logged::Connected, false) => 1,
        (Logged::Periodic, false) => 2,
        (Logged::End, false) => 3,
        (Logged::Start, true) => 4,
        (Logged::Periodic, true) => 5,
        (Logged::End, true) => 6,
        (Logged::TryReady, _) => 7,
        (Logged::TryPeriodic, _) => 8,
        (Logged::TryEnd, _) => 9,
        (Logged::Connected, true) => 10,
        // Envoy has a number for it, and tells modules none.
        (Logged::Start, false) => 0,
    }
}
