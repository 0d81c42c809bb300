//! Reading the configuration.

use postrider_filter_api::ConfigError;
use postrider_model::Value;

use crate::grpc_counts::Method;

/// What is counted.
#[derive(Debug, Default)]
pub(super) struct Config {
    pub(super) methods: Methods,
    pub(super) upstream_time: bool,
    pub(super) emit_filter_state: bool,
}

/// Which methods are counted on their own.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) enum Methods {
    #[default]
    None,
    Listed(Vec<Method>),
    All {
        /// Dots of the service's name become underscores.
        replace_dots: bool,
    },
}

impl Methods {
    /// What a call is counted as: `None` when it is not counted, `Some(None)` for its cluster as a whole.
    pub(super) fn name(&self, path: &[u8]) -> Option<Option<Method>> {
        let method = Method::of_path(path)?;
        Some(match self {
            Methods::None => None,
            Methods::Listed(listed) => listed.contains(&method).then_some(method),
            Methods::All { replace_dots: false } => Some(method),
            Methods::All { replace_dots: true } => Some(Method { service: method.service.replace('.', "_"), ..method }),
        })
    }
}

pub(super) fn read(value: &Value) -> Result<Config, ConfigError> {
    let one = |error| vec![error];
    let mut fields = value.fields().map_err(one)?;
    let all = fields.bool("stats_for_all_methods").map_err(one)?;
    let replace_dots = fields.bool("replace_dots_in_grpc_service_name").map_err(one)?.unwrap_or_default();
    let list = fields.map("individual_method_stats_allowlist").map_err(one)?;
    let methods = match (list, all) {
        (Some(_), Some(_)) => {
            let text = "individual_method_stats_allowlist and stats_for_all_methods exclude each other";
            return Err(vec![fields.error("stats_for_all_methods", text)]);
        }
        (Some(mut list), None) => {
            let mut methods = Vec::new();
            for mut service in list.maps("services").map_err(one)? {
                let name = service.string("name").map_err(one)?.unwrap_or_default().to_owned();
                for (path, method) in service.list("method_names").map_err(one)? {
                    let Value::String(method) = method else {
                        let message = "expected the name of a method".to_owned();
                        return Err(vec![postrider_model::ValueError { path, message }]);
                    };
                    methods.push(Method { service: name.clone(), name: method.clone() });
                }
                service.finish()?;
            }
            list.finish()?;
            Methods::Listed(methods)
        }
        (None, Some(true)) => Methods::All { replace_dots },
        (None, Some(false) | None) => Methods::None,
    };
    if replace_dots && !matches!(methods, Methods::All { .. }) {
        let text = "this has an effect only with stats_for_all_methods";
        return Err(vec![fields.error("replace_dots_in_grpc_service_name", text)]);
    }
    let config = Config {
        methods,
        upstream_time: fields.bool("enable_upstream_stats").map_err(one)?.unwrap_or_default(),
        emit_filter_state: fields.bool("emit_filter_state").map_err(one)?.unwrap_or_default(),
    };
    fields.finish()?;
    Ok(config)
}
