//! `envoy.filters.network.dynamic_modules`: a module that sees the bytes of connections.

use std::ffi::CStr;
use std::ptr;
use std::rc::Rc;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Weak as SharedWeak};

use postrider_filter_api::plugin::{Facts, Policy};
use postrider_filter_api::{ConfigError, Connection, Ending, Host, NetworkFactory, NetworkFilter};
use postrider_filter_api::{NetworkSession, Passage, Place};
use postrider_filter_plugin::read::keep;
use postrider_filter_plugin::{Account, Edition, Metrics, stat};
use postrider_model::{Value, ValueError};

use crate::abi::{Buffer, Own};
use crate::callbacks::{ConfigEvents, runtime};
use crate::connection::{Hosted, Session};
use crate::definitions::Definitions;
use crate::entry::NetworkEntries;
use crate::envoy::bytes;
use crate::library::Library;
use crate::reach::Reach;
use crate::source::{Found, absent, module};

pub(crate) const KIND: &str = "envoy.extensions.filters.network.dynamic_modules.v3.DynamicModuleNetworkFilter";

/// What a module must have to be such a filter, as Envoy wants it.
const REQUIRED: [&CStr; 8] = [
    c"envoy_dynamic_module_on_network_filter_config_new",
    c"envoy_dynamic_module_on_network_filter_config_destroy",
    c"envoy_dynamic_module_on_network_filter_new",
    c"envoy_dynamic_module_on_network_filter_new_connection",
    c"envoy_dynamic_module_on_network_filter_read",
    c"envoy_dynamic_module_on_network_filter_write",
    c"envoy_dynamic_module_on_network_filter_event",
    c"envoy_dynamic_module_on_network_filter_destroy",
];

/// Loads the module and has it make its configuration.
pub(crate) fn build(name: &str, value: &Value) -> Result<Arc<dyn NetworkFactory>, ConfigError> {
    let mut fields = value.fields().map_err(|error| vec![error])?;
    let mut errors = Vec::new();
    let module = module(&mut fields, &mut errors);
    let filter = keep(fields.string("filter_name"), &mut errors).flatten().unwrap_or_default().to_owned();
    let config = bytes(&mut fields, "filter_config", &mut errors);
    // Whoever reads the chain looks at it.
    let _ = keep(fields.bool("terminal_filter"), &mut errors);
    errors.extend(fields.finish().err().into_iter().flatten());
    let module = match module.filter(|_| errors.is_empty()) {
        Some(Found::Here(module)) => module,
        Some(Found::Missing(source)) => return Ok(Arc::new(Bypass(absent(name, source)))),
        None => return Err(errors),
    };
    let make = || NetworkConfig::new(module.library, &module.namespace, name, &filter, &config);
    let made = runtime::known_during(module.runtime, make);
    let config = made.map_err(|message| vec![ValueError { path: "filter_config".to_owned(), message }])?;
    Ok(Arc::new(Factory { config, edition: module.edition }))
}

/// Stands in the place of a module that is not here, and lets every connection pass.
struct Bypass(Facts);

impl NetworkFactory for Bypass {
    fn network_filter(&self, _: &Place<'_>) -> Rc<dyn NetworkFilter> {
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

impl NetworkFilter for Nobody {
    fn begin(&self, _: &mut Connection<'_>) -> Option<Box<dyn NetworkSession>> {
        None
    }
}

struct Factory {
    config: Arc<NetworkConfig>,
    edition: Option<Edition>,
}

impl NetworkFactory for Factory {
    fn network_filter(&self, place: &Place<'_>) -> Rc<dyn NetworkFilter> {
        Rc::new(Filter(Watching::new(&self.config, place)))
    }

    fn is_current(&self) -> bool {
        self.edition.as_ref().is_none_or(Edition::is_current)
    }

    fn plugin(&self) -> Option<&Facts> {
        Some(&self.config.facts)
    }
}

/// A filter's configuration. Its address is the module's handle, so it never moves: it is made behind an [`Arc`].
pub(crate) struct NetworkConfig {
    pub(crate) entries: NetworkEntries,
    facts: Facts,
    namespace: String,
    own: AtomicPtr<std::ffi::c_void>,
    this: SharedWeak<NetworkConfig>,
    pub(crate) definitions: Definitions,
    pub(crate) reach: Reach,
    /// Last: its code runs until everything else is gone.
    _library: Arc<Library>,
}

impl NetworkConfig {
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
    ) -> Result<Arc<NetworkConfig>, String> {
        let absent = REQUIRED.iter().filter(|name| library.find(name).is_none());
        let absent: Vec<_> = absent.map(|name| name.to_string_lossy()).collect();
        let entries = NetworkEntries::of(&library);
        let Some(make) = entries.config_new.filter(|_| absent.is_empty()) else {
            return Err(format!("{} has no network filters: it lacks {}", library.source, absent.join(", ")));
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
        let made = Arc::new_cyclic(|this| NetworkConfig {
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

impl ConfigEvents for NetworkConfig {
    fn reach(&self) -> &Reach {
        &self.reach
    }

    fn on_scheduled(&self, event: u64) {
        if let Some(scheduled) = self.entries.config_scheduled {
            // SAFETY: the function of a loaded module, on a configuration that it made, as the interface says.
            unsafe { scheduled(self.own(), event) };
        }
    }
}

impl Drop for NetworkConfig {
    fn drop(&mut self) {
        let own = self.own();
        if let Some(destroy) = self.entries.config_destroy.filter(|_| !own.is_null()) {
            // SAFETY: the function of a loaded module, once, on what it made.
            unsafe { destroy(own) };
        }
    }
}

/// A module's filter on one worker.
pub(crate) struct Watching {
    pub(crate) config: Arc<NetworkConfig>,
    pub(crate) worker: u32,
    pub(crate) metrics: Rc<Metrics>,
    pub(crate) account: Account,
    pub(crate) host: Rc<dyn Host>,
}

impl Watching {
    fn new(config: &Arc<NetworkConfig>, place: &Place<'_>) -> Rc<Watching> {
        let metrics = config.reach.serve(place.host, || {
            let metrics = Metrics::new(place.stats, config.namespace.clone(), "module");
            for defined in config.definitions.all() {
                let _ = metrics.define(defined.sort, &defined.name);
            }
            metrics
        });
        Rc::new(Watching {
            config: config.clone(),
            worker: place.worker,
            metrics,
            account: Account::new(place.stats, &config.facts.name),
            host: place.host.clone(),
        })
    }
}

struct Filter(Rc<Watching>);

impl NetworkFilter for Filter {
    fn begin(&self, connection: &mut Connection<'_>) -> Option<Box<dyn NetworkSession>> {
        let session = Session::new(&self.0, connection);
        if session.own().is_null() {
            self.0.account.of(None).inc(stat::route::ERRORS);
            return Some(Box::new(Refused));
        }
        Some(Box::new(Hosted(session)))
    }
}

/// A connection that the module could not make its part of: as in Envoy, it ends.
struct Refused;

impl NetworkSession for Refused {
    fn on_connection(&mut self, connection: &mut Connection<'_>) -> Passage {
        connection.handle.end(Ending::AtOnce);
        Passage::Stop
    }
}
