//! `envoy.filters.listener.dynamic_modules`: a module that looks at connections before a filter chain is chosen for them.

use std::ffi::CStr;
use std::ptr;
use std::rc::Rc;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Weak as SharedWeak};

use postrider_filter_api::plugin::{Facts, Policy};
use postrider_filter_api::{
    ConfigError, Host, Newcomer, NewcomerFactory, NewcomerFilter, NewcomerSession, Passage, Place,
};
use postrider_filter_plugin::read::keep;
use postrider_filter_plugin::{Account, Edition, Metrics, stat};
use postrider_model::{Value, ValueError};

use crate::abi::{Buffer, Own};
use crate::callbacks::{ConfigEvents, runtime};
use crate::definitions::Definitions;
use crate::entry::ListenerEntries;
use crate::envoy::bytes;
use crate::library::Library;
use crate::newcomer::{Hosted, Introduced};
use crate::reach::Reach;
use crate::source::{Found, absent, module};

pub(crate) const KIND: &str = "envoy.extensions.filters.listener.dynamic_modules.v3.DynamicModuleListenerFilter";

/// What a module must have to be such a filter, as Envoy wants it.
const REQUIRED: [&CStr; 8] = [
    c"envoy_dynamic_module_on_listener_filter_config_new",
    c"envoy_dynamic_module_on_listener_filter_config_destroy",
    c"envoy_dynamic_module_on_listener_filter_new",
    c"envoy_dynamic_module_on_listener_filter_on_accept",
    c"envoy_dynamic_module_on_listener_filter_on_data",
    c"envoy_dynamic_module_on_listener_filter_on_close",
    c"envoy_dynamic_module_on_listener_filter_get_max_read_bytes",
    c"envoy_dynamic_module_on_listener_filter_destroy",
];

/// Loads the module and has it make its configuration.
pub(crate) fn build(name: &str, value: &Value) -> Result<Arc<dyn NewcomerFactory>, ConfigError> {
    let mut fields = value.fields().map_err(|error| vec![error])?;
    let mut errors = Vec::new();
    let module = module(&mut fields, &mut errors);
    let filter = keep(fields.string("filter_name"), &mut errors).flatten().unwrap_or_default().to_owned();
    let config = bytes(&mut fields, "filter_config", &mut errors);
    errors.extend(fields.finish().err().into_iter().flatten());
    let module = match module.filter(|_| errors.is_empty()) {
        Some(Found::Here(module)) => module,
        Some(Found::Missing(source)) => return Ok(Arc::new(Bypass(absent(name, source)))),
        None => return Err(errors),
    };
    let make = || ListenerConfig::new(module.library, &module.namespace, name, &filter, &config);
    let made = runtime::known_during(module.runtime, make);
    let config = made.map_err(|message| vec![ValueError { path: "filter_config".to_owned(), message }])?;
    Ok(Arc::new(Factory { config, edition: module.edition }))
}

/// Stands in the place of a module that is not here, and lets every connection pass.
struct Bypass(Facts);

impl NewcomerFactory for Bypass {
    fn newcomer_filter(&self, _: &Place<'_>) -> Rc<dyn NewcomerFilter> {
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

impl NewcomerFilter for Nobody {
    fn begin(&self, _: &mut Newcomer<'_>) -> Option<Box<dyn NewcomerSession>> {
        Some(Box::new(Nobody))
    }
}

impl NewcomerSession for Nobody {
    fn on_accept(&mut self, _: &mut Newcomer<'_>) -> Passage {
        Passage::Continue
    }

    fn wants(&mut self) -> usize {
        0
    }

    fn on_data(&mut self, _: &mut Newcomer<'_>, _: &mut Vec<u8>) -> Passage {
        Passage::Continue
    }
}

struct Factory {
    config: Arc<ListenerConfig>,
    edition: Option<Edition>,
}

impl NewcomerFactory for Factory {
    fn newcomer_filter(&self, place: &Place<'_>) -> Rc<dyn NewcomerFilter> {
        Rc::new(Filter(Looking::new(&self.config, place)))
    }

    fn is_current(&self) -> bool {
        self.edition.as_ref().is_none_or(Edition::is_current)
    }

    fn plugin(&self) -> Option<&Facts> {
        Some(&self.config.facts)
    }
}

/// A filter's configuration. Its address is the module's handle, so it never moves: it is made behind an [`Arc`].
pub(crate) struct ListenerConfig {
    pub(crate) entries: ListenerEntries,
    facts: Facts,
    namespace: String,
    own: AtomicPtr<std::ffi::c_void>,
    this: SharedWeak<ListenerConfig>,
    pub(crate) definitions: Definitions,
    pub(crate) reach: Reach,
    /// Last: its code runs until everything else is gone.
    _library: Arc<Library>,
}

impl ListenerConfig {
    /// Has the module make its part.
    ///
    /// # Errors
    /// It has no such filters, or refuses the configuration.
    fn new(
        library: Arc<Library>,
        namespace: &str,
        name: &str,
        filter: &str,
        config: &[u8],
    ) -> Result<Arc<ListenerConfig>, String> {
        let absent = REQUIRED.iter().filter(|name| library.find(name).is_none());
        let absent: Vec<_> = absent.map(|name| name.to_string_lossy()).collect();
        let entries = ListenerEntries::of(&library);
        let Some(make) = entries.config_new.filter(|_| absent.is_empty()) else {
            return Err(format!("{} has no listener filters: it lacks {}", library.source, absent.join(", ")));
        };
        let facts = Facts {
            name: name.to_owned(),
            version: String::new(),
            runtime: "native",
            source: library.source.clone(),
            digest: String::new(),
            policy: Policy::default(),
            config: Value::Map(Vec::new()),
            schema: None,
        };
        let made = Arc::new_cyclic(|this| ListenerConfig {
            entries,
            facts,
            namespace: namespace.to_owned(),
            own: AtomicPtr::new(ptr::null_mut()),
            this: this.clone(),
            definitions: Definitions::default(),
            reach: Reach::default(),
            _library: library,
        });
        let handle = Arc::as_ptr(&made).cast_mut().cast();
        // SAFETY: the function of a loaded module, as the interface says; the bytes are there for the time of the call.
        let own = unsafe { make(handle, Buffer::of(filter.as_bytes()), Buffer::of(config)) };
        made.definitions.close();
        made.own.store(own.cast_mut(), Ordering::Release);
        if own.is_null() {
            return Err(format!("{} refuses the configuration of its filter `{filter}`", made._library.source));
        }
        Ok(made)
    }

    pub(crate) fn own(&self) -> Own {
        self.own.load(Ordering::Acquire).cast_const()
    }

    pub(crate) fn events(&self) -> SharedWeak<dyn ConfigEvents> {
        self.this.clone()
    }
}

impl ConfigEvents for ListenerConfig {
    fn reach(&self) -> &Reach {
        &self.reach
    }

    fn on_scheduled(&self, event: u64) {
        if let Some(scheduled) = self.entries.config_scheduled {
            let handle = ptr::from_ref(self).cast_mut().cast();
            // SAFETY: the function of a loaded module, on a configuration that it made, as the interface says.
            unsafe { scheduled(handle, self.own(), event) };
        }
    }
}

impl Drop for ListenerConfig {
    fn drop(&mut self) {
        let own = self.own();
        if let Some(destroy) = self.entries.config_destroy.filter(|_| !own.is_null()) {
            // SAFETY: the function of a loaded module, once, on what it made.
            unsafe { destroy(own) };
        }
    }
}

/// A module's filter on one worker.
pub(crate) struct Looking {
    pub(crate) config: Arc<ListenerConfig>,
    pub(crate) worker: u32,
    pub(crate) metrics: Rc<Metrics>,
    pub(crate) account: Account,
    pub(crate) host: Rc<dyn Host>,
}

impl Looking {
    fn new(config: &Arc<ListenerConfig>, place: &Place<'_>) -> Rc<Looking> {
        let metrics = config.reach.serve(place.host, || {
            // Of the listener, as in Envoy.
            let namespace = format!("listener.{}.{}", place.stat_prefix, config.namespace);
            let metrics = Metrics::new(place.stats, namespace, "module");
            for defined in config.definitions.all() {
                let _ = metrics.define(defined.sort, &defined.name);
            }
            metrics
        });
        Rc::new(Looking {
            config: config.clone(),
            worker: place.worker,
            metrics,
            account: Account::new(place.stats, &config.facts.name),
            host: place.host.clone(),
        })
    }
}

struct Filter(Rc<Looking>);

impl NewcomerFilter for Filter {
    /// A connection that the module could not make its part of ends, as in Envoy.
    fn begin(&self, newcomer: &mut Newcomer<'_>) -> Option<Box<dyn NewcomerSession>> {
        let session = Introduced::new(&self.0, newcomer);
        if session.own().is_null() {
            self.0.account.of(None).inc(stat::route::ERRORS);
            return None;
        }
        Some(Box::new(Hosted(session)))
    }
}
