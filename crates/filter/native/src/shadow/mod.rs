//! Another filter's decisions without their consequences: what it would refuse, hold up or change is counted, noted and
//! let through as it came.
//!
//! Configured as `postrider.filters.http.shadow.v3.Shadow` around any other filter's configuration; `ShadowPerRoute`
//! enforces it for some routes. The wrapped filter is asked as ever, through the filter contract; what it does to the
//! traffic goes no further. Asking services, and waiting for what they say, its own counters and what it notes stay.

mod found;
mod held;
mod onlooker;

use std::any::Any;
use std::rc::Rc;
use std::sync::Arc;

use postrider_filter_api::plugin::{Facts, Standing};
use postrider_filter_api::{ConfigError, Factory, Filter, Place, Registry, RouteConfig, ScopedConfigs, WatchedFile};
use postrider_model::{Reading, Value, ValueError};

use onlooker::Onlooker;

pub(crate) const KIND: &str = "postrider.filters.http.shadow.v3.Shadow";
const ROUTE_KIND: &str = "postrider.filters.http.shadow.v3.ShadowPerRoute";

/// Reads a gateway-level configuration, and that of the filter in it.
pub(crate) fn build(registry: &Registry, name: &str, value: &Value) -> Result<Arc<dyn Factory>, ConfigError> {
    let (inner, prefix) = Reading::all(value, |at| {
        let inner = shadowed(at);
        if inner.is_none() {
            at.error("filter", "the filter to put in the shadow is required, with its `@type`");
        }
        (inner, at.text("stat_prefix").unwrap_or(name).replace(':', "_"))
    })?;
    let (kind, config) = inner.unwrap_or_default();
    let built = registry.build(name, &kind, &config).unwrap_or_else(|| {
        Err(vec![ValueError {
            path: String::new(),
            message: format!("no filter takes a configuration of type {kind}"),
        }])
    });
    Ok(Arc::new(Shadow { name: name.to_owned(), prefix, inner: built.map_err(below)? }))
}

/// The type and the configuration that an `Any` holds.
fn shadowed(at: &mut Reading<'_>) -> Option<(String, Value)> {
    let Some(Value::Map(entries)) = at.value("filter") else { return None };
    let (urls, fields): (Vec<_>, Vec<_>) = entries.iter().cloned().partition(|(key, _)| key == "@type");
    match urls.into_iter().next()? {
        (_, Value::String(url)) => Some((url.rsplit('/').next()?.to_owned(), Value::Map(fields))),
        _ => None,
    }
}

/// The errors of the wrapped configuration, with their places in the whole.
fn below(errors: ConfigError) -> ConfigError {
    let path = |path: String| match path.as_str() {
        "" => "filter".to_owned(),
        _ => format!("filter.{path}"),
    };
    errors.into_iter().map(|error| ValueError { path: path(error.path), ..error }).collect()
}

struct Shadow {
    name: String,
    prefix: String,
    inner: Arc<dyn Factory>,
}

/// What a more specific scope says.
struct Override {
    enforced: bool,
    inner: Option<RouteConfig>,
}

impl Factory for Shadow {
    fn route_config(&self, kind: &str, value: &Value) -> Result<RouteConfig, ConfigError> {
        if kind != ROUTE_KIND {
            return self.inner.route_config(kind, value);
        }
        let (enforced, inner) = Reading::all(value, |at| (at.flag("enforced"), shadowed(at)))?;
        let inner = match inner {
            Some((kind, config)) => Some(self.inner.route_config(&kind, &config).map_err(below)?),
            None => None,
        };
        let files = inner.as_ref().map(|inner| inner.files.clone()).unwrap_or_default();
        Ok(RouteConfig { value: Arc::new(Override { enforced, inner }), files, shown: value.clone() })
    }

    fn filter(&self, configs: &ScopedConfigs, place: &Place<'_>) -> Rc<dyn Filter> {
        let below = inner_configs(configs);
        if configs.most_specific::<Override>().is_some_and(|own| own.enforced) {
            return self.inner.filter(&below, place);
        }
        let withheld = Rc::default();
        let inner = self.inner.shadow_filter(&below, place, &withheld);
        Rc::new(Onlooker::new(inner, withheld, (&self.name, &self.prefix), place))
    }

    fn arrive(&self, place: &Place<'_>) -> Option<Rc<dyn Any>> {
        self.inner.arrive(place)
    }

    fn warm(&self, configs: &ScopedConfigs, place: &Place<'_>) -> Option<Rc<dyn Any>> {
        self.inner.warm(&inner_configs(configs), place)
    }

    fn files(&self) -> &[WatchedFile] {
        self.inner.files()
    }

    fn is_current(&self) -> bool {
        self.inner.is_current()
    }

    fn uses_connection(&self) -> bool {
        self.inner.uses_connection()
    }

    fn plugin(&self) -> Option<&Facts> {
        self.inner.plugin()
    }

    fn standing(&self) -> Standing {
        self.inner.standing()
    }

    fn note(&self) -> Option<&'static str> {
        self.inner.note()
    }
}

/// What the scopes say to the filter that is watched.
fn inner_configs(configs: &ScopedConfigs) -> ScopedConfigs {
    let own = |config: &Option<RouteConfig>| match config.as_ref()?.value.downcast_ref::<Override>() {
        Some(own) => own.inner.clone(),
        None => config.clone(),
    };
    ScopedConfigs {
        table: own(&configs.table),
        virtual_host: own(&configs.virtual_host),
        route: own(&configs.route),
        weighted_cluster: own(&configs.weighted_cluster),
    }
}

postrider_telemetry::stat_set! {
    /// What would have become of requests; prefix: the connection manager's, `shadow`, and the filter's name.
    mod stat = "http";
    counters {
        WOULD_CHANGE_REQUEST = "would_change_request",
        WOULD_CHANGE_RESPONSE = "would_change_response",
        WOULD_CHOOSE_HOST = "would_choose_host",
        WOULD_DELAY = "would_delay",
        WOULD_DENY = "would_deny",
        WOULD_DENY_2XX = "would_deny_2xx",
        WOULD_DENY_3XX = "would_deny_3xx",
        WOULD_DENY_4XX = "would_deny_4xx",
        WOULD_DENY_5XX = "would_deny_5xx",
        WOULD_PACE = "would_pace",
    }
}

#[cfg(test)]
mod tests;
