//! The same for connections, as a network filter: `envoy.extensions.filters.network.set_filter_state.v3.Config`.
//!
//! Requests of the connection find the objects as well.

use std::rc::Rc;
use std::sync::Arc;

use postrider_filter_api::{Admission, ConfigError, Guard, GuardFactory, Place, Visit, WatchedFile};
use postrider_model::{Reading, Value};

use super::config::{self, Object};

pub(crate) const KIND: &str = "envoy.extensions.filters.network.set_filter_state.v3.Config";

pub(crate) fn build(value: &Value) -> Result<Arc<dyn GuardFactory>, ConfigError> {
    let mut files = Vec::new();
    let objects = Reading::all(value, |at| {
        at.refuse("on_downstream_data", "objects that are made when data comes");
        let mut objects = config::objects(at, "on_new_connection", &mut files);
        objects.extend(config::objects(at, "on_downstream_tls_handshake", &mut files));
        objects
    })?;
    Ok(Arc::new(SetFilterState { objects: Arc::new(objects), files }))
}

struct SetFilterState {
    /// In the order in which they are made: all when TLS is agreed on.
    objects: Arc<Vec<Object>>,
    files: Vec<WatchedFile>,
}

impl GuardFactory for SetFilterState {
    fn guard(&self, _: &Place<'_>) -> Rc<dyn Guard> {
        Rc::new(OfConnections(self.objects.clone()))
    }

    fn files(&self) -> &[WatchedFile] {
        &self.files
    }
}

/// The filter on one worker.
struct OfConnections(Arc<Vec<Object>>);

impl Guard for OfConnections {
    fn on_connection(&self, visit: &mut Visit<'_>) -> Admission {
        for object in &*self.0 {
            let mut text = Vec::new();
            (visit.write)(visit.info, &object.format, &mut text);
            object.set(&text, visit.info);
        }
        Admission::Serve
    }
}
