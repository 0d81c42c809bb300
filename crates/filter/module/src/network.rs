//! `envoy.filters.network.dynamic_modules`: a module that sees the bytes of connections.

use std::ffi::CStr;
use std::rc::Rc;
use std::sync::Arc;

use postrider_filter_api::plugin::Facts;
use postrider_filter_api::{ConfigError, Connection, Ending, NetworkFactory, NetworkFilter, NetworkSession};
use postrider_filter_api::{Passage, Place};
use postrider_filter_plugin::read::keep;
use postrider_filter_plugin::stat;
use postrider_model::Value;

use crate::abi::{Buffer, ConfigRef, Own};
use crate::below_http::{FilterConfig, Kind, OnWorker, Read, read};
use crate::connection::{Hosted, Session};
use crate::entry::NetworkEntries;
use crate::library::Library;

pub(crate) const KIND: &str = "envoy.extensions.filters.network.dynamic_modules.v3.DynamicModuleNetworkFilter";

/// Loads the module and has it make its configuration.
pub(crate) fn build(name: &str, value: &Value) -> Result<Arc<dyn NetworkFactory>, ConfigError> {
    let read = read::<NetworkEntries>(name, value, |fields, errors| {
        // Whoever reads the chain looks at it.
        let _ = keep(fields.bool("terminal_filter"), errors);
    })?;
    Ok(Arc::new(read))
}

impl NetworkFactory for Read<NetworkEntries> {
    fn network_filter(&self, place: &Place<'_>) -> Rc<dyn NetworkFilter> {
        match self {
            Read::Here(config, _) => Rc::new(Filter(Watching::new(config, place))),
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

impl NetworkFilter for Nobody {
    fn begin(&self, _: &mut Connection<'_>) -> Option<Box<dyn NetworkSession>> {
        None
    }
}

pub(crate) type NetworkConfig = FilterConfig<NetworkEntries>;

/// A module's filter on one worker.
pub(crate) type Watching = OnWorker<NetworkEntries>;

impl Kind for NetworkEntries {
    const PLURAL: &'static str = "network filters";
    const REQUIRED: &'static [&'static CStr] = &[
        c"envoy_dynamic_module_on_network_filter_config_new",
        c"envoy_dynamic_module_on_network_filter_config_destroy",
        c"envoy_dynamic_module_on_network_filter_new",
        c"envoy_dynamic_module_on_network_filter_new_connection",
        c"envoy_dynamic_module_on_network_filter_read",
        c"envoy_dynamic_module_on_network_filter_write",
        c"envoy_dynamic_module_on_network_filter_event",
        c"envoy_dynamic_module_on_network_filter_destroy",
    ];

    fn of(library: &Library) -> Self {
        NetworkEntries::of(library)
    }

    fn config_new(&self) -> Option<unsafe extern "C" fn(ConfigRef, Buffer, Buffer) -> Own> {
        self.config_new
    }

    fn config_destroy(&self) -> Option<unsafe extern "C" fn(Own)> {
        self.config_destroy
    }

    fn config_scheduled(&self, _: ConfigRef, own: Own, event: u64) {
        if let Some(scheduled) = self.config_scheduled {
            // SAFETY: the function of a loaded module, on a configuration that it made, as the interface says.
            unsafe { scheduled(own, event) };
        }
    }

    fn namespace(configured: &str, _: &Place<'_>) -> String {
        configured.to_owned()
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
