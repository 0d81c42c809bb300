//! What filters of connections and filters of listeners share: how their configuration is read, made and taken down, and what a
//! worker holds of it.

use std::ffi::CStr;
use std::ptr;
use std::rc::Rc;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Weak as SharedWeak};

use postrider_filter_api::plugin::{Ends, Facts, Policy};
use postrider_filter_api::{ConfigError, Host, Place};
use postrider_filter_plugin::read::keep;
use postrider_filter_plugin::{Account, Edition, Metrics};
use postrider_model::{Fields, Value, ValueError};

use crate::abi::{Buffer, ConfigRef, Own};
use crate::callbacks::{ConfigEvents, runtime};
use crate::definitions::Definitions;
use crate::library::Library;
use crate::reach::Reach;
use crate::source::{Found, absent, facts, module};

/// A module's functions for one kind of filter.
pub(crate) trait Kind: Sized + Send + Sync + 'static {
    /// What a module without them lacks.
    const PLURAL: &'static str;
    /// What a module must have to be such a filter, as Envoy wants it.
    const REQUIRED: &'static [&'static CStr];

    fn of(library: &Library) -> Self;

    fn config_new(&self) -> Option<unsafe extern "C" fn(ConfigRef, Buffer, Buffer) -> Own>;

    fn config_destroy(&self) -> Option<unsafe extern "C" fn(Own)>;

    /// Tells the module of an event that its configuration had scheduled.
    fn config_scheduled(&self, handle: ConfigRef, own: Own, event: u64);

    /// What the names of its statistics begin with.
    fn namespace(configured: &str, place: &Place<'_>) -> String;
}

/// With this key of the runtime, connections end by way of their filters. As in Envoy, they do not without.
const KEEPS: &str = "envoy.reloadable_features.connection_close_through_filter_manager";

/// What a configuration names: the factory of its filters.
pub(crate) enum Read<K: Kind> {
    Here(Arc<FilterConfig<K>>, Option<Edition>),
    /// A module that is not here, which is shown so: every connection passes in its place.
    Missing(Facts),
}

impl<K: Kind> Read<K> {
    pub(crate) fn is_current(&self) -> bool {
        match self {
            Read::Here(_, edition) => edition.as_ref().is_none_or(Edition::is_current),
            Read::Missing(_) => false,
        }
    }

    pub(crate) fn facts(&self) -> &Facts {
        match self {
            Read::Here(config, _) => &config.facts,
            Read::Missing(facts) => facts,
        }
    }
}

/// Loads the module and has it make its configuration. `more` reads what other kinds do not have.
pub(crate) fn read<K: Kind>(
    name: &str,
    value: &Value,
    more: impl FnOnce(&mut Fields<'_>, &mut ConfigError),
) -> Result<Read<K>, ConfigError> {
    let mut fields = value.fields().map_err(|error| vec![error])?;
    let mut errors = Vec::new();
    let module = module(&mut fields, &mut errors);
    let filter = keep(fields.string("filter_name"), &mut errors).flatten().unwrap_or_default().to_owned();
    let config = crate::envoy::bytes(&mut fields, "filter_config", &mut errors);
    more(&mut fields, &mut errors);
    errors.extend(fields.finish().err().into_iter().flatten());
    let module = match module.filter(|_| errors.is_empty()) {
        Some(Found::Here(module)) => module,
        Some(Found::Missing(source)) => return Ok(Read::Missing(absent(name, source))),
        None => return Err(errors),
    };
    let make = || FilterConfig::new(module.library, &module.namespace, name, &filter, &config);
    let made = runtime::known_during(module.runtime, make);
    let config = made.map_err(|message| vec![ValueError { path: "filter_config".to_owned(), message }])?;
    Ok(Read::Here(config, module.edition))
}

/// A filter's configuration. Its address is the module's handle, so it never moves: it is made behind an [`Arc`].
pub(crate) struct FilterConfig<K: Kind> {
    pub(crate) entries: K,
    pub(crate) facts: Facts,
    namespace: String,
    own: AtomicPtr<std::ffi::c_void>,
    this: SharedWeak<FilterConfig<K>>,
    pub(crate) definitions: Definitions,
    pub(crate) reach: Arc<Reach>,
    /// A filter of this configuration may keep its connection from ending.
    pub(crate) keeps: bool,
    /// Last: its code runs until everything else is gone.
    _library: Arc<Library>,
}

impl<K: Kind> FilterConfig<K> {
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
    ) -> Result<Arc<Self>, String> {
        let absent = K::REQUIRED.iter().filter(|name| library.find(name).is_none());
        let absent: Vec<_> = absent.map(|name| name.to_string_lossy()).collect();
        let entries = K::of(&library);
        let Some(make) = entries.config_new().filter(|_| absent.is_empty()) else {
            return Err(format!("{} has no {}: it lacks {}", library.source, K::PLURAL, absent.join(", ")));
        };
        let facts = facts(name, &library);
        let facts = Facts { policy: Policy { ends: Some(Ends::Connection), ..facts.policy }, ..facts };
        let made = Arc::new_cyclic(|this| FilterConfig {
            entries,
            facts,
            namespace: namespace.to_owned(),
            own: AtomicPtr::new(ptr::null_mut()),
            this: this.clone(),
            definitions: Definitions::default(),
            reach: Arc::default(),
            keeps: runtime::is_on(KEEPS),
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

impl<K: Kind> ConfigEvents for FilterConfig<K> {
    fn on_scheduled(&self, event: u64) {
        self.entries.config_scheduled(ptr::from_ref(self).cast_mut().cast(), self.own(), event);
    }
}

impl<K: Kind> Drop for FilterConfig<K> {
    fn drop(&mut self) {
        let own = self.own();
        if let Some(destroy) = self.entries.config_destroy().filter(|_| !own.is_null()) {
            // SAFETY: the function of a loaded module, once, on what it made.
            unsafe { destroy(own) };
        }
    }
}

/// A module's filter on one worker.
pub(crate) struct OnWorker<K: Kind> {
    pub(crate) config: Arc<FilterConfig<K>>,
    pub(crate) worker: u32,
    pub(crate) metrics: Rc<Metrics>,
    pub(crate) account: Account,
    pub(crate) host: Rc<dyn Host>,
}

impl<K: Kind> OnWorker<K> {
    pub(crate) fn new(config: &Arc<FilterConfig<K>>, place: &Place<'_>) -> Rc<Self> {
        let metrics = config.reach.serve(place.host, || {
            let metrics = Metrics::new(place.stats, K::namespace(&config.namespace, place), "module");
            for defined in config.definitions.all() {
                let _ = metrics.define(defined.sort, &defined.name);
            }
            metrics
        });
        Rc::new(OnWorker {
            config: config.clone(),
            worker: place.worker,
            metrics,
            account: Account::new(place.stats, &config.facts.name),
            host: place.host.clone(),
        })
    }
}
