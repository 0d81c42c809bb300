//! Sends a connection to the cluster that has the name which the client asked for in its TLS greeting.
//!
//! Configured as `envoy.extensions.filters.network.sni_cluster.v3.SniCluster`: it leaves the name in the filter state, where
//! whoever carries the connection finds it.

use std::rc::Rc;
use std::sync::Arc;

use postrider_filter_api::{Admission, ConfigError, Guard, GuardFactory, Place, TCP_CLUSTER, Visit};
use postrider_model::{Reading, Value};

pub(crate) const KIND: &str = "envoy.extensions.filters.network.sni_cluster.v3.SniCluster";

pub(crate) fn build(value: &Value) -> Result<Arc<dyn GuardFactory>, ConfigError> {
    Reading::all(value, |_| ())?;
    Ok(Arc::new(SniCluster))
}

struct SniCluster;

impl GuardFactory for SniCluster {
    fn guard(&self, _: &Place<'_>) -> Rc<dyn Guard> {
        Rc::new(SniCluster)
    }
}

impl Guard for SniCluster {
    fn on_connection(&self, visit: &mut Visit<'_>) -> Admission {
        if let Some(name) = visit.server_name.filter(|name| !name.is_empty()) {
            visit.info.set_state(TCP_CLUSTER, Value::String(name.to_owned()));
        }
        Admission::Serve
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{object, place, request};

    #[test]
    fn the_name_that_was_asked_for_names_the_cluster() {
        let guard = build(&object([])).ok().unwrap().guard(&place());
        let mut info = request("/", &[]).info;
        for (asked, known) in [(None, 0), (Some(""), 0), (Some("a.test"), 1), (Some("b.test"), 1)] {
            let visit = &mut Visit { info: &mut info, server_name: asked, write: &|_, _, _| {} };
            assert_eq!(guard.on_connection(visit), Admission::Serve);
            assert_eq!(info.filter_state.len(), known);
        }
        assert_eq!(info.filter_state, [(TCP_CLUSTER.to_owned(), Value::String("b.test".into()))]);
        assert!(build(&object([("x", Value::Bool(true))])).is_err());
    }
}
