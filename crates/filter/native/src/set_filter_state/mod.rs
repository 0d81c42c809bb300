//! Puts objects into the filter state of a request, made from formats, for later filters, routes and logs.
//!
//! Configured as `envoy.extensions.filters.http.set_filter_state.v3.Config`, for the whole gateway and for route tables,
//! virtual hosts, routes and weighted clusters: all of them apply, the most specific last.

mod config;
mod connections;

use std::rc::Rc;
use std::sync::Arc;

use postrider_filter_api::{
    Action, ConfigError, Factory, Filter, Hooks, Place, RouteConfig, ScopedConfigs, State, Stream, WatchedFile,
};
use postrider_model::{Reading, Value, ValueError};

pub(crate) use connections::{KIND as CONNECTIONS_KIND, build as build_connections};

use config::Object;

pub(crate) const KIND: &str = "envoy.extensions.filters.http.set_filter_state.v3.Config";

/// The field of the objects.
const HOOK: &str = "on_request_headers";

/// Reads a gateway-level configuration.
pub(crate) fn build(_name: &str, value: &Value) -> Result<Arc<dyn Factory>, ConfigError> {
    let mut files = Vec::new();
    let (objects, clears_route) =
        Reading::all(value, |at| (config::objects(at, HOOK, &mut files), at.flag("clear_route_cache")))?;
    Ok(Arc::new(SetFilterState { objects: Arc::new(objects), clears_route, files }))
}

struct SetFilterState {
    objects: Arc<Vec<Object>>,
    /// The route is looked up again.
    clears_route: bool,
    files: Vec<WatchedFile>,
}

/// The objects of one scope.
struct Scope(Arc<Vec<Object>>);

impl Factory for SetFilterState {
    fn route_config(&self, kind: &str, value: &Value) -> Result<RouteConfig, ConfigError> {
        if kind != KIND {
            let message = format!("set_filter_state is overridden by {KIND}, not by {kind}");
            return Err(vec![ValueError { path: String::new(), message }]);
        }
        let mut files = Vec::new();
        let objects = Reading::all(value, |at| {
            if at.flag("clear_route_cache") {
                at.error(
                    "clear_route_cache",
                    "has no effect here, in Envoy either: the filter's own configuration takes it",
                );
            }
            config::objects(at, HOOK, &mut files)
        })?;
        Ok(RouteConfig { files, ..RouteConfig::new(Scope(Arc::new(objects)), value) })
    }

    fn filter(&self, configs: &ScopedConfigs, _: &Place<'_>) -> Rc<dyn Filter> {
        let scopes = configs.specific_first::<Scope>().rev().map(|scope| &scope.0);
        let scopes = [&self.objects].into_iter().chain(scopes).cloned().collect();
        Rc::new(Setter { scopes, clears_route: self.clears_route })
    }

    fn files(&self) -> &[WatchedFile] {
        &self.files
    }
}

/// The filter on one worker, as one route sees it: the objects of all scopes in their order.
struct Setter {
    scopes: Vec<Arc<Vec<Object>>>,
    clears_route: bool,
}

impl Filter for Setter {
    fn hooks(&self) -> Hooks {
        let any = self.scopes.iter().any(|scope| !scope.is_empty());
        Hooks { request_headers: any || self.clears_route, ..Hooks::default() }
    }

    fn on_request_headers(&self, _: &mut State, stream: &mut Stream<'_>, _end: bool) -> Action {
        for object in self.scopes.iter().flat_map(|scope| &**scope) {
            // What the connection has stays as it is.
            let noted = stream.info.connection.as_ref().map(|noted| noted.state.as_slice()).unwrap_or_default();
            if noted.iter().any(|(name, _)| *name == object.key) {
                continue;
            }
            let mut text = Vec::new();
            stream.host.write(stream, &object.format, &[], &mut text);
            object.set(&text, stream.info);
        }
        stream.info.route_is_stale |= self.clears_route;
        Action::Done
    }
}

#[cfg(test)]
mod tests;
