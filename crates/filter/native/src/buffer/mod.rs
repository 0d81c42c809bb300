//! Holds requests until all of their body is there.
//!
//! Configured as `envoy.extensions.filters.http.buffer.v3.Buffer`; virtual hosts, routes and weighted clusters change the
//! limit or switch it off by `BufferPerRoute`, and the most specific one counts alone. Details are as in Envoy 1.40.

use std::rc::Rc;
use std::sync::Arc;

use postrider_filter_api::{
    Action, BufferLimit, ConfigError, Factory, Filter, Hooks, Place, RouteConfig, ScopedConfigs, State, Stream,
};
use postrider_model::{Reading, Value, ValueError};

pub(crate) const KIND: &str = "envoy.extensions.filters.http.buffer.v3.Buffer";
const ROUTE_KIND: &str = "envoy.extensions.filters.http.buffer.v3.BufferPerRoute";

/// Reads a gateway-level configuration.
pub(crate) fn build(_name: &str, value: &Value) -> Result<Arc<dyn Factory>, ConfigError> {
    Ok(Arc::new(Buffer(Reading::all(value, max_bytes)?)))
}

/// The most bytes that are held of a request.
struct Buffer(u32);

/// What a more specific scope says: another limit, or that nothing is held.
struct Override(Option<u32>);

impl Factory for Buffer {
    fn route_config(&self, kind: &str, value: &Value) -> Result<RouteConfig, ConfigError> {
        if kind != ROUTE_KIND {
            let message = format!("buffer is overridden by {ROUTE_KIND}, not by {kind}");
            return Err(vec![ValueError { path: String::new(), message }]);
        }
        let own = Reading::all(value, |at| {
            let disabled = at.flag("disabled");
            let limit = at.map("buffer", max_bytes);
            if disabled == limit.is_some() {
                at.wrong("either `disabled: true` or `buffer` is wanted");
            }
            Override(limit)
        })?;
        Ok(RouteConfig::new(own, value))
    }

    fn filter(&self, configs: &ScopedConfigs, _: &Place<'_>) -> Rc<dyn Filter> {
        Rc::new(Holder(configs.most_specific::<Override>().map_or(Some(self.0), |own| own.0)))
    }
}

fn max_bytes(at: &mut Reading<'_>) -> u32 {
    let bytes = at.number("max_request_bytes").filter(|bytes| *bytes > 0).and_then(|bytes| u32::try_from(bytes).ok());
    if bytes.is_none() {
        at.error("max_request_bytes", "the most bytes of a request that are held is required, above zero");
    }
    bytes.unwrap_or(0)
}

/// The filter on one worker, as one route sees it.
struct Holder(Option<u32>);

impl Filter for Holder {
    fn hooks(&self) -> Hooks {
        let on = self.0.is_some();
        Hooks { request_headers: on, request_body: on, ..Hooks::default() }
    }

    fn on_request_headers(&self, _: &mut State, stream: &mut Stream<'_>, end: bool) -> Action {
        if end {
            return Action::Done;
        }
        if let Some(limit) = self.0 {
            stream.info.buffer_limit = BufferLimit::Request(limit);
        }
        Action::Buffer
    }

    fn on_request_body(&self, _: &mut State, stream: &mut Stream<'_>, end: bool) -> Action {
        if end {
            stream.request_body.measure();
        }
        Action::Buffer
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{object, place};
    use postrider_filter_api::testing::FakeStream;

    fn limit(bytes: i64) -> Value {
        object([("max_request_bytes", Value::Integer(bytes))])
    }

    /// The limit that a request with a body gets.
    fn held(route: Option<Value>) -> Option<u32> {
        let factory = build("buffer", &limit(10)).ok().unwrap();
        let route = route.map(|value| factory.route_config(ROUTE_KIND, &value).ok().unwrap());
        let filter = factory.filter(&ScopedConfigs { route, ..ScopedConfigs::default() }, &place());
        let mut stream = FakeStream::new("POST", "/", &[]);
        let mut head = |end| stream.with(|stream| filter.on_request_headers(&mut State::default(), stream, end));
        if filter.hooks().request_headers {
            assert!(matches!(head(true), Action::Done));
            assert!(matches!(head(false), Action::Buffer));
        }
        match stream.info.buffer_limit {
            BufferLimit::Request(limit) => Some(limit),
            _ => None,
        }
    }

    #[test]
    fn the_most_specific_limit_counts() {
        assert_eq!(held(None), Some(10));
        assert_eq!(held(Some(object([("buffer", limit(20))]))), Some(20));
        assert_eq!(held(Some(object([("disabled", Value::Bool(true))]))), None);
    }

    #[test]
    fn a_configuration_without_a_limit_is_refused() {
        assert_eq!(build("buffer", &object([])).err().unwrap()[0].path, "max_request_bytes");
        assert!(build("buffer", &limit(0)).is_err());
        let factory = build("buffer", &limit(1)).ok().unwrap();
        assert!(factory.route_config(ROUTE_KIND, &object([])).is_err());
        assert!(factory.route_config(KIND, &limit(1)).is_err());
    }
}
