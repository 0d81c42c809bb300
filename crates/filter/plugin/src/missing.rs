//! A plugin whose code is not here: it does what its failure policy says with every stream, and nothing else.

use std::borrow::Cow;
use std::rc::Rc;

use postrider_filter_api::plugin::{Facts, OnError, Sight};
use postrider_filter_api::{
    Action, ConfigError, Factory, Filter, Hooks, LocalReply, Place, RouteConfig, ScopedConfigs, State, Stream,
};
use postrider_model::Value;

use crate::manifest::{Override, ROUTE_KIND, Takes};
use crate::schema::Schema;

/// What the access log says of a stream that it answered.
const DETAILS: &str = "plugin_code_missing";

/// Stands in a plugin's place until its code is here.
pub struct Missing {
    facts: Facts,
    schema: Option<Schema>,
    takes: Takes,
}

impl Missing {
    /// `takes` is what the plugin will.
    pub fn new(facts: Facts, schema: Option<Schema>, takes: Takes) -> Missing {
        Missing { facts, schema, takes }
    }
}

impl Factory for Missing {
    /// Overrides of another type are read by the plugin alone.
    fn route_config(&self, kind: &str, value: &Value) -> Result<RouteConfig, ConfigError> {
        if kind != ROUTE_KIND {
            return Ok(RouteConfig::new((), value));
        }
        Ok(RouteConfig::new(Override::read(kind, value, self.schema.as_ref(), self.takes)?, value))
    }

    fn filter(&self, configs: &ScopedConfigs, _: &Place<'_>) -> Rc<dyn Filter> {
        let disabled = configs.most_specific::<Override>().is_some_and(|own| own.disabled);
        let status = match self.facts.policy.on_error {
            OnError::Respond(status) if !disabled => Some(status),
            OnError::Respond(_) | OnError::Continue => None,
        };
        Rc::new(Absent(status))
    }

    /// What only stands in for another thing is built anew each time.
    fn is_current(&self) -> bool {
        false
    }

    fn sight(&self, configs: &ScopedConfigs) -> Option<Sight> {
        configs.narrowest().is_none_or(|(_, own)| own.value.is::<Override>()).then(|| Override::sight(configs))
    }

    fn plugin(&self) -> Option<&Facts> {
        Some(&self.facts)
    }
}

/// With the status that it answers, if it answers.
struct Absent(Option<u16>);

impl Filter for Absent {
    fn hooks(&self) -> Hooks {
        Hooks { request_headers: self.0.is_some(), ..Hooks::default() }
    }

    fn on_request_headers(&self, _: &mut State, _: &mut Stream<'_>, _: bool) -> Action {
        match self.0 {
            None => Action::Continue,
            Some(status) => Action::Respond(Box::new(LocalReply {
                status,
                grpc_status: None,
                body: Cow::Borrowed(b""),
                headers: Vec::new(),
                details: Cow::Borrowed(DETAILS),
                ..LocalReply::default()
            })),
        }
    }
}
