//! The plugins of a plan, as the admin, the history and the statistics see them.

use std::collections::HashSet;
use std::sync::Arc;

use postrider_admin::{Change, ChangeKind, CircuitStatus, PluginPlace, PluginStatus, RouteConfigStatus, Seen};
use postrider_filter_api::plugin::{Facts, OnError, Sight, Standing};
use postrider_filter_api::{Factory, RouteFacts};
use postrider_filter_plugin::json::to_json;
use postrider_telemetry::StatSet;
use postrider_telemetry::stats::sets::scope_of_address;
use postrider_worker::{Plan, RoutesPlan};

/// The root of what every plugin counts (`plugin.<name>.<route>.calls`).
const USAGE_ROOT: &str = "plugin";

/// The root of the statistics that Rider plugins name themselves (`rider.<name>.…`).
const RIDER_ROOT: &str = "rider";

/// The root of what other filters cost (`filter.<name>.<route>.calls`).
const FILTER_ROOT: &str = "filter";

/// Every plugin once, with all its places and what its routes see.
pub fn statuses(plan: &Plan) -> Vec<PluginStatus> {
    let mut all: Vec<(&Facts, PluginStatus)> = Vec::new();
    for listener in &plan.listeners {
        for chain in listener.each_chain() {
            let Some(routes) = chain.routes() else { continue };
            let told = routes.factories.iter();
            let plugins = told.filter_map(|factory| Some((factory.plugin()?, factory.note(), factory.standing())));
            let beside = routes.beside.iter().map(|facts| (facts, None, Standing::default()));
            for (facts, note, standing) in plugins.chain(beside) {
                let place = Some((listener.model.name.as_str(), &*chain.name));
                let Some(status) = tell(&mut all, facts, place, note, standing) else { continue };
                for config in route_configs(routes, &facts.name) {
                    if !status.route_configs.contains(&config) {
                        status.route_configs.push(config);
                    }
                }
            }
        }
    }
    for service in &plan.services {
        let Some(facts) = service.factory.plugin() else { continue };
        let status = status(facts, service.factory.note(), Standing::default());
        all.push((facts, PluginStatus { is_service: true, ..status }));
    }
    for (listener, chain, facts) in plan.plugins() {
        tell(&mut all, facts, Some((listener, chain)), None, Standing::default());
    }
    for listener in &plan.listeners {
        for facts in listener.filters.iter().filter_map(|filter| filter.plugin()) {
            tell(&mut all, facts, Some((&listener.model.name, "")), None, Standing::default());
        }
    }
    for factory in upstream_factories(plan) {
        if let Some(facts) = factory.plugin() {
            tell(&mut all, facts, None, factory.note(), factory.standing());
        }
    }
    for facts in plan.plugins_beside_chains() {
        tell(&mut all, facts, None, None, Standing::default());
    }
    all.into_iter().map(|(_, status)| status).collect()
}

/// The status of a plugin, which is added where it is not known yet, with one more place (listener, filter chain) of it.
fn tell<'p, 's>(
    all: &'s mut Vec<(&'p Facts, PluginStatus)>,
    facts: &'p Facts,
    place: Option<(&str, &str)>,
    note: Option<&str>,
    standing: Standing,
) -> Option<&'s mut PluginStatus> {
    let at = all.iter().position(|(known, _)| *known == facts).unwrap_or_else(|| {
        all.push((facts, status(facts, note, standing)));
        all.len() - 1
    });
    let (_, status) = all.get_mut(at)?;
    let place = place.map(|(listener, chain)| PluginPlace { listener: listener.to_owned(), chain: chain.to_owned() });
    status.places.extend(place.filter(|place| !status.places.contains(place)));
    Some(status)
}

/// Plugins that came, went, or have another code, policy or configuration.
pub fn changes(old: Option<&Plan>, new: &Plan) -> Vec<Change> {
    let all = |plan: &Plan| -> Vec<Facts> {
        let mut all: Vec<Facts> = Vec::new();
        let of_chains = plan.plugins().map(|(_, _, facts)| facts);
        for facts in of_chains.chain(plan.plugins_beside_chains()) {
            if !all.contains(facts) {
                all.push(facts.clone());
            }
        }
        all
    };
    let (old, new) = (old.map(all).unwrap_or_default(), all(new));
    let named = |facts: &[Facts], name: &str| facts.iter().any(|known| known.name == name);
    let change = |kind, facts: &Facts| Change { kind, what: format!("plugin {}", facts.name) };
    let mut changes = Vec::new();
    for facts in new.iter().filter(|facts| !old.contains(facts)) {
        let kind = if named(&old, &facts.name) { ChangeKind::Changed } else { ChangeKind::Added };
        changes.push(change(kind, facts));
    }
    for facts in old.iter().filter(|facts| !named(&new, &facts.name)) {
        changes.push(change(ChangeKind::Removed, facts));
    }
    changes
}

/// The names of a plan's plugins, as statistics have them.
pub fn scope_names(plan: &Plan) -> Vec<String> {
    let of_listeners = plan.plugins().map(|(_, _, facts)| facts);
    let upstream = upstream_factories(plan).filter_map(|factory| factory.plugin());
    of_listeners
        .chain(upstream)
        .chain(plan.plugins_beside_chains())
        .map(|facts| scope_of_address(&facts.name))
        .collect()
}

/// The names of a plan's other filters, as statistics have them.
pub fn filter_names(plan: &Plan) -> HashSet<String> {
    let chains = plan.listeners.iter().flat_map(|listener| listener.each_chain()).filter_map(|chain| chain.routes());
    let filters = chains.flat_map(RoutesPlan::every_chain).flat_map(|chain| &chain.0);
    filters.map(|filter| postrider_worker::filter_stat_name(&filter.name)).collect()
}

/// Every filter on the upstream side.
fn upstream_factories(plan: &Plan) -> impl Iterator<Item = &Arc<dyn Factory>> {
    let chains = plan.listeners.iter().flat_map(|listener| listener.each_chain()).filter_map(|chain| chain.routes());
    let of_routers = chains.flat_map(|routes| &routes.upstream).flat_map(|filters| &filters.factories);
    of_routers.chain(plan.clusters.iter().flat_map(|cluster| &cluster.filters).flatten())
}

/// Whether a scope belongs to a plugin that is none of `plugins`, or to a filter that is none of `filters`.
pub fn is_gone(set: &StatSet, prefix: &str, plugins: &[String], filters: &HashSet<String>) -> bool {
    let owns =
        |name: &String| prefix.strip_prefix(name.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    match set.root {
        USAGE_ROOT | RIDER_ROOT => !plugins.iter().any(owns),
        FILTER_ROOT => !prefix.split_once('.').is_some_and(|(name, _)| filters.contains(name)),
        _ => false,
    }
}

fn status(facts: &Facts, note: Option<&str>, standing: Standing) -> PluginStatus {
    let policy = &facts.policy;
    PluginStatus {
        name: facts.name.clone(),
        version: facts.version.clone(),
        runtime: facts.runtime.to_owned(),
        places: Vec::new(),
        is_service: false,
        is_by_admin: false,
        source: facts.source.clone(),
        digest: facts.digest.clone(),
        note: note.map(str::to_owned),
        scripts: standing.scripts.into_iter().map(|script| (script.name, script.source, script.digest)).collect(),
        last_error: standing.last_error,
        on_error: match policy.on_error {
            OnError::Continue => "continue".to_owned(),
            OnError::Respond(status) => status.to_string(),
        },
        cpu: policy.cpu,
        memory: policy.memory,
        circuit: CircuitStatus {
            faults: policy.circuit.faults,
            cpu_kills: policy.circuit.cpu_kills,
            window: policy.circuit.window,
            retry: policy.circuit.retry,
            kills_only: policy.circuit.kills_only,
        },
        clusters: policy.clusters.clone(),
        config: to_json(&facts.config),
        route_configs: Vec::new(),
        schema: facts.schema.as_ref().map(to_json),
    }
}

/// What each route and each of its weighted clusters says about the plugin: its most specific override.
fn route_configs(routes: &RoutesPlan, plugin: &str) -> Vec<RouteConfigStatus> {
    let mut configs: Vec<RouteConfigStatus> = Vec::new();
    for route in &routes.routes {
        for chain in std::iter::once(&route.filters).chain(&route.weighted_filters) {
            let chain = routes.filter_chains.get(*chain as usize);
            let filter = chain.and_then(|chain| {
                chain.0.iter().find(|filter| filter.factory.plugin().is_some_and(|facts| facts.name == plugin))
            });
            let Some(filter) = filter else { continue };
            let Some((scope, config)) = filter.configs.narrowest() else { continue };
            let seen = match filter.factory.sight(&filter.configs) {
                None => Seen::Merged,
                Some(Sight::Off) => Seen::Off,
                Some(Sight::Nothing) => Seen::Nothing,
                Some(Sight::Config(config)) => Seen::Config(to_json(&config)),
            };
            let status = RouteConfigStatus { route: name(&route.facts), scope, config: to_json(&config.shown), seen };
            // A weighted cluster that says nothing sees what its route does.
            if !configs.contains(&status) {
                configs.push(status);
            }
        }
    }
    configs
}

/// As the statistics name a route.
fn name(route: &RouteFacts) -> String {
    match route.name.as_deref() {
        Some(name) if !name.is_empty() => name.to_owned(),
        _ => format!("{}.{}", route.virtual_host, route.index),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::config;

    const PROXY: &str = r#"
static_resources:
  listeners:
  - name: web
    address: { socket_address: { address: 127.0.0.1, port_value: 0 } }
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: web
          route_config:
            virtual_hosts:
            - name: all
              domains: ["*"]
              routes:
              - name: quiet
                match: { prefix: "/quiet" }
                direct_response: { status: 200 }
                typed_per_filter_config:
                  mark:
                    "@type": type.googleapis.com/envoy.extensions.filters.http.lua.v3.LuaPerRoute
                    filter_context: { loud: false }
              - match: { prefix: "/" }
                direct_response: { status: 200 }
          http_filters:
          - name: mark
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua
              default_source_code: { inline_string: "function envoy_on_request(h) end -- CODE" }
          - name: envoy.filters.http.router
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router
"#;

    fn plan(text: &str) -> Plan {
        let checked = config::check(
            &config::Input::flags(None, Some(text.to_owned()), false, config::Service::default()).unwrap(),
            None,
            1,
        )
        .unwrap();
        checked.plan.unwrap_or_else(|| panic!("{:?}", checked.outcome.diagnostics))
    }

    #[test]
    fn a_plugin_is_told_once_with_its_places_and_routes() {
        let plugins = statuses(&plan(PROXY));
        let [mark] = &plugins[..] else { panic!("{plugins:?}") };
        assert_eq!(
            (mark.name.as_str(), mark.runtime.as_str(), mark.on_error.as_str()),
            ("mark", "envoy-lua", "continue")
        );
        assert_eq!(mark.places.len(), 1);
        assert_eq!(mark.places[0].listener, "web");
        let [seen] = &mark.route_configs[..] else { panic!("{mark:?}") };
        assert_eq!((seen.route.as_str(), seen.scope), ("quiet", "route"));
        assert_eq!(seen.config["filter_context"]["loud"], Value::Bool(false));
    }

    #[test]
    fn another_code_is_a_change_and_gone_plugins_are_told() {
        let (old, new) = (plan(PROXY), plan(&PROXY.replace("CODE", "other code")));
        let words =
            |changes: Vec<Change>| -> Vec<_> { changes.into_iter().map(|change| (change.kind, change.what)).collect() };
        assert!(changes(Some(&old), &old).is_empty());
        assert_eq!(words(changes(Some(&old), &new)), [(ChangeKind::Changed, "plugin mark".to_owned())]);
        assert_eq!(words(changes(None, &new)), [(ChangeKind::Added, "plugin mark".to_owned())]);
        let renamed = plan(&PROXY.replace("mark", "tag"));
        assert_eq!(
            words(changes(Some(&old), &renamed)),
            [(ChangeKind::Added, "plugin tag".to_owned()), (ChangeKind::Removed, "plugin mark".to_owned())]
        );
    }

    #[test]
    fn scopes_belong_to_plugins_by_name() {
        use postrider_filter_plugin::stat;
        let names = ["mark".to_owned()];
        for (prefix, gone) in [("mark", false), ("mark.route", false), ("marker.route", true), ("other", true)] {
            assert_eq!(is_gone(&stat::route::SET, prefix, &names, &HashSet::new()), gone, "{prefix}");
        }
        use postrider_telemetry::stats::sets;
        assert!(!is_gone(&sets::http::SET, "other", &names, &HashSet::new()));
        let filters = HashSet::from(["mark".to_owned()]);
        for (prefix, gone) in [("mark.route.0", false), ("marker.route", true)] {
            assert_eq!(is_gone(&sets::filter::SET, prefix, &[], &filters), gone, "{prefix}");
        }
    }
}
