//! `envoy.filters.listener.dynamic_modules`: a module that looks at connections before a filter chain is chosen for them.

use std::ffi::CStr;
use std::rc::Rc;
use std::sync::Arc;

use postrider_filter_api::plugin::Facts;
use postrider_filter_api::{ConfigError, Newcomer, NewcomerFactory, NewcomerFilter, NewcomerSession, Passage, Place};
use postrider_filter_plugin::stat;
use postrider_model::Value;

use crate::abi::{Buffer, ConfigRef, Own};
use crate::below_http::{FilterConfig, Kind, OnWorker, Read, read};
use crate::entry::ListenerEntries;
use crate::library::Library;
use crate::newcomer::{Hosted, Introduced};

pub(crate) const KIND: &str = "envoy.extensions.filters.listener.dynamic_modules.v3.DynamicModuleListenerFilter";

/// Loads the module and has it make its configuration.
pub(crate) fn build(name: &str, value: &Value) -> Result<Arc<dyn NewcomerFactory>, ConfigError> {
    Ok(Arc::new(read::<ListenerEntries>(name, value, |_, _| {})?))
}

impl NewcomerFactory for Read<ListenerEntries> {
    fn newcomer_filter(&self, place: &Place<'_>) -> Rc<dyn NewcomerFilter> {
        match self {
            Read::Here(config, _) => Rc::new(Filter(Looking::new(config, place))),
            Read::Missing(_) => Rc::new(Nobody),
        }
    }

    fn is_current(&self) -> bool {
        Read::is_current(self)
    }

    fn plugin(&self) -> Option<&Facts> {
        Some(self.facts())
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

    fn wants(&mut self, _: &mut Newcomer<'_>) -> usize {
        0
    }

    fn on_data(&mut self, _: &mut Newcomer<'_>, _: &mut Vec<u8>) -> Passage {
        Passage::Continue
    }
}

pub(crate) type ListenerConfig = FilterConfig<ListenerEntries>;

/// A module's filter on one worker.
pub(crate) type Looking = OnWorker<ListenerEntries>;

impl Kind for ListenerEntries {
    const PLURAL: &'static str = "listener filters";
    const REQUIRED: &'static [&'static CStr] = &[
        c"envoy_dynamic_module_on_listener_filter_config_new",
        c"envoy_dynamic_module_on_listener_filter_config_destroy",
        c"envoy_dynamic_module_on_listener_filter_new",
        c"envoy_dynamic_module_on_listener_filter_on_accept",
        c"envoy_dynamic_module_on_listener_filter_on_data",
        c"envoy_dynamic_module_on_listener_filter_on_close",
        c"envoy_dynamic_module_on_listener_filter_get_max_read_bytes",
        c"envoy_dynamic_module_on_listener_filter_destroy",
    ];

    fn of(library: &Library) -> Self {
        ListenerEntries::of(library)
    }

    fn config_new(&self) -> Option<unsafe extern "C" fn(ConfigRef, Buffer, Buffer) -> Own> {
        self.config_new
    }

    fn config_destroy(&self) -> Option<unsafe extern "C" fn(Own)> {
        self.config_destroy
    }

    fn config_scheduled(&self, handle: ConfigRef, own: Own, event: u64) {
        if let Some(scheduled) = self.config_scheduled {
            // SAFETY: the function of a loaded module, on a configuration that it made, as the interface says.
            unsafe { scheduled(handle, own, event) };
        }
    }

    /// Of the listener, as in Envoy.
    fn namespace(configured: &str, place: &Place<'_>) -> String {
        format!("listener.{}.{configured}", place.stat_prefix)
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
