//! The filters as one route sees them: which are on, and every configuration that applies, with its place.

use postrider_filter_api::plugin::Sight;
use postrider_model::{Action, FilterOverride, FilterSlot, HttpConnection, Route, Target, Value, VirtualHost};
use postrider_worker::RoutesPlan;
use serde_json::{Map, Number};

/// A filter of the chain, on or off, with its configurations from the least specific to the most.
pub struct SeenFilter<'p> {
    pub slot: &'p FilterSlot,
    pub on: bool,
    pub configs: Vec<SeenConfig<'p>>,
    /// The name of the plugin that it is, which may be another than the filter's.
    pub plugin: Option<&'p str>,
    /// What of the configurations counts for a plugin: on the route, and with each weighted cluster that says something of its
    /// own.
    pub sights: Vec<SeenSight<'p>>,
}

/// What a plugin sees.
pub struct SeenSight<'p> {
    /// The weighted cluster; `None` for the route, or a request without one.
    pub cluster: Option<&'p str>,
    pub sight: Sight,
    /// The scope that has the word.
    pub scope: Option<&'static str>,
}

/// What one scope says about a filter.
pub struct SeenConfig<'p> {
    pub scope: Scope<'p>,
    pub kind: &'p str,
    /// `None` when the scope only switches the filter.
    pub value: Option<&'p Value>,
    /// The scope turns the filter off.
    pub disabled: bool,
    /// The dialect's path to it.
    pub origin: &'p str,
}

/// Where a configuration applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope<'p> {
    Chain,
    Table,
    VirtualHost,
    Route,
    /// One of the route's weighted clusters, by name.
    WeightedCluster(&'p str),
}

impl Scope<'_> {
    pub fn name(self) -> String {
        match self {
            Scope::Chain => "chain".to_owned(),
            Scope::Table => "route table".to_owned(),
            Scope::VirtualHost => "virtual host".to_owned(),
            Scope::Route => "route".to_owned(),
            Scope::WeightedCluster(name) => format!("weighted cluster {name}"),
        }
    }
}

/// Every filter of the chain as `route` in `virtual_host` sees it. What a weighted cluster says is listed, but whether the
/// filter is on is the route's word: which cluster is drawn is not known.
pub fn seen_filters<'p>(
    http: &'p HttpConnection,
    plan: &'p RoutesPlan,
    virtual_host: Option<&'p VirtualHost>,
    route: Option<(u32, &'p Route)>,
) -> Vec<SeenFilter<'p>> {
    let slots = http.filters.iter().zip(&plan.factories).enumerate();
    let filters = slots.map(|(index, (slot, factory))| {
        let mut filter = seen(slot, http, virtual_host, route.map(|(_, route)| route));
        filter.plugin = factory.plugin().map(|facts| facts.name.as_str());
        if filter.plugin.is_some() {
            filter.sights = sights(index, plan, route);
            let of_route = filter.sights.iter().find(|seen| seen.cluster.is_none());
            filter.on &= of_route.is_none_or(|seen| seen.sight != Sight::Off);
        }
        filter
    });
    filters.collect()
}

/// What the plugin in this place sees, as the compiled plan has it.
fn sights<'p>(place: usize, plan: &'p RoutesPlan, route: Option<(u32, &'p Route)>) -> Vec<SeenSight<'p>> {
    let compiled = route.and_then(|(id, _)| plan.routes.get(id as usize));
    // The first chain is that of requests without a route.
    let of_route = (None, compiled.map_or(0, |route| route.filters));
    let of_clusters = compiled.iter().flat_map(|route| &route.weighted_filters).copied();
    let names = route.and_then(|(_, route)| match &route.action {
        Action::Forward(forward) => match &forward.target {
            Target::Weighted(clusters) => Some(clusters.iter().map(|cluster| cluster.cluster.as_str())),
            _ => None,
        },
        _ => None,
    });
    let of_clusters = names.into_iter().flatten().map(Some).zip(of_clusters);
    let sight = |(cluster, chain): (Option<&'p str>, u32)| {
        let chain = plan.filter_chains.get(chain as usize)?;
        let Some(filter) = chain.0.iter().find(|filter| filter.slot as usize == place) else {
            return Some(SeenSight { cluster, sight: Sight::Off, scope: None });
        };
        let sight = filter.factory.sight(&filter.configs)?;
        let scope = filter.configs.narrowest().map(|(scope, _)| scope);
        Some(SeenSight { cluster, sight, scope })
    };
    std::iter::once(of_route).chain(of_clusters).filter_map(sight).collect()
}

fn seen<'p>(
    slot: &'p FilterSlot,
    http: &'p HttpConnection,
    virtual_host: Option<&'p VirtualHost>,
    route: Option<&'p Route>,
) -> SeenFilter<'p> {
    let mut configs = vec![SeenConfig {
        scope: Scope::Chain,
        kind: &slot.kind,
        value: Some(&slot.config),
        disabled: slot.disabled,
        origin: &slot.origin.0,
    }];
    let mut add = |scope, overrides: &'p [FilterOverride]| {
        configs.extend(overrides.iter().filter(|change| change.name == slot.name).map(|change| SeenConfig {
            scope,
            kind: change.config.as_ref().map_or("", |config| &config.kind),
            value: change.config.as_ref().map(|config| &config.value),
            disabled: change.disabled,
            origin: &change.origin.0,
        }));
    };
    // A request without a route sees the table's overrides only, also when a virtual host was found.
    let on_route = route.is_some();
    add(Scope::Table, &http.routes.filter_overrides);
    if let Some(host) = virtual_host.filter(|_| on_route) {
        add(Scope::VirtualHost, &host.filter_overrides);
    }
    if let Some(route) = route {
        add(Scope::Route, &route.filter_overrides);
        if let Action::Forward(forward) = &route.action
            && let Target::Weighted(clusters) = &forward.target
        {
            for cluster in clusters {
                add(Scope::WeightedCluster(&cluster.cluster), &cluster.filter_overrides);
            }
        }
    }
    let last = configs.iter().rfind(|config| !matches!(config.scope, Scope::WeightedCluster(_)));
    let on = last.is_none_or(|config| !config.disabled);
    SeenFilter { slot, on, configs, plugin: None, sights: Vec::new() }
}

/// A filter's configuration as JSON.
pub fn to_json(value: &Value) -> serde_json::Value {
    match value {
        Value::Null => serde_json::Value::Null,
        Value::Bool(value) => (*value).into(),
        Value::Number(value) => Number::from_f64(*value).map_or(serde_json::Value::Null, serde_json::Value::Number),
        Value::Integer(value) => (*value).into(),
        Value::String(value) => value.as_str().into(),
        Value::List(items) => items.iter().map(to_json).collect(),
        Value::Map(entries) => {
            entries.iter().map(|(key, value)| (key.clone(), to_json(value))).collect::<Map<_, _>>().into()
        }
    }
}
