//! The plugins of a plan, as the admin, the history and the statistics see them.

use std::collections::HashSet;
use std::sync::Arc;

use postrider_admin::{Change, ChangeKind, CircuitStatus, PluginPlace, PluginStatus, RouteConfigStatus, Seen};
use postrider_filter_api::plugin::{Ends, Facts, OnError, Sight, Standing};
use postrider_filter_api::{Factory, RouteFacts, ScopedConfigs, WatchedFile};
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

/// Plugins that came, went, or have another code, policy or configuration, and other files that say something else now.
pub fn changes(old: Option<&Plan>, new: &Plan) -> Vec<Change> {
    let (old_parts, new_parts) = (old.map(parts).unwrap_or_default(), parts(new));
    let named = |parts: &[Part<'_>], name: &str| parts.iter().any(|known| known.facts.name == name);
    let change = |kind, part: &Part<'_>| Change { kind, what: format!("plugin {}", part.facts.name) };
    let mut changes = Vec::new();
    for part in &new_parts {
        let known = old_parts.iter().filter(|known| known.facts == part.facts);
        let is_known = known.clone().next().is_some();
        if is_known && !known.flat_map(|known| &known.files).any(|file| says_else(file, &part.files)) {
            continue;
        }
        let kind = if named(&old_parts, &part.facts.name) { ChangeKind::Changed } else { ChangeKind::Added };
        changes.push(change(kind, part));
    }
    for part in old_parts.iter().filter(|part| !named(&new_parts, &part.facts.name)) {
        changes.push(change(ChangeKind::Removed, part));
    }
    let now: Vec<&WatchedFile> = new.files().collect();
    let is_of_plugin = |file: &WatchedFile| {
        let is_its = |part: &Part<'_>| {
            part.files.iter().any(|own| own.path == file.path) || file.path.as_os_str() == part.facts.source.as_str()
        };
        new_parts.iter().any(is_its)
    };
    let mut told: Vec<&WatchedFile> = Vec::new();
    for file in old.into_iter().flat_map(Plan::files) {
        if says_else(file, &now) && !is_of_plugin(file) && !told.iter().any(|known| known.path == file.path) {
            told.push(file);
            changes.push(Change { kind: ChangeKind::Changed, what: format!("file {}", file.path.display()) });
        }
    }
    changes
}

/// A plugin with all files that it and what routes say about it were read from.
struct Part<'p> {
    facts: &'p Facts,
    files: Vec<&'p WatchedFile>,
}

/// Whether the file says something else among these.
fn says_else(file: &WatchedFile, files: &[&WatchedFile]) -> bool {
    files.iter().any(|other| other.path == file.path && **other != *file)
}

/// Every plugin once, by its facts.
fn parts(plan: &Plan) -> Vec<Part<'_>> {
    let mut all: Vec<Part<'_>> = Vec::new();
    let chains = plan.listeners.iter().flat_map(|listener| listener.each_chain()).filter_map(|chain| chain.routes());
    for routes in chains {
        for factory in &routes.factories {
            let Some(facts) = factory.plugin() else { continue };
            let filters = routes.filter_chains.iter().flat_map(|chain| &chain.0);
            let own = filters.filter(|filter| Arc::ptr_eq(&filter.factory, factory)).map(|filter| &filter.configs);
            let of_routes = own.flat_map(ScopedConfigs::each).flat_map(|config| &config.files);
            add(&mut all, facts, factory.files().iter().chain(of_routes));
        }
    }
    for factory in upstream_factories(plan) {
        if let Some(facts) = factory.plugin() {
            add(&mut all, facts, factory.files());
        }
    }
    for service in &plan.services {
        if let Some(facts) = service.factory.plugin() {
            add(&mut all, facts, service.factory.files());
        }
    }
    for logger in &plan.loggers {
        if let Some(facts) = logger.factory.plugin() {
            add(&mut all, facts, logger.factory.files());
        }
    }
    for facts in plan.plugins().map(|(_, _, facts)| facts).chain(plan.plugins_beside_chains()) {
        add(&mut all, facts, []);
    }
    all
}

fn add<'p>(all: &mut Vec<Part<'p>>, facts: &'p Facts, files: impl IntoIterator<Item = &'p WatchedFile>) {
    let at = all.iter().position(|known| known.facts == facts).unwrap_or_else(|| {
        all.push(Part { facts, files: Vec::new() });
        all.len() - 1
    });
    let Some(part) = all.get_mut(at) else { return };
    for file in files {
        if !part.files.contains(&file) {
            part.files.push(file);
        }
    }
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
        on_error: match (policy.ends, policy.on_error) {
            (Some(Ends::Connection), _) => "end the connection".to_owned(),
            (Some(Ends::OneConnection), _) => "end the connection, and let the next ones pass".to_owned(),
            (Some(Ends::Process), _) => "end the process".to_owned(),
            (Some(Ends::Record), _) => "leave the record out".to_owned(),
            (None, OnError::Continue) => "continue".to_owned(),
            (None, OnError::Respond(status)) => status.to_string(),
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
    fn a_required_file_and_a_routes_script_are_parts_of_their_plugin_and_other_files_are_told_by_themselves() {
        let folder = std::env::temp_dir().join(format!("postrider-parts-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
        write("kit.lua", "return 1");
        write("route.lua", "function envoy_on_request(h) end");
        write("judge.lua", "function envoy_match(text) return true end");
        write("users", "u:{SHA}6NSi9zGis3/LFpY50UzLk1CVLVk=");
        let text = PROXY
            .replace("filter_context: { loud: false }", "source_code: { filename: FOLDER/route.lua }")
            .replace(
                "{ inline_string: \"function envoy_on_request(h) end -- CODE\" }",
                "{ inline_string: \"require('kit')\" }\n              package_paths: [\"FOLDER/?.lua\"]",
            )
            .replace(
                "match: { prefix: \"/\" }",
                "match: { prefix: \"/\", headers: [{ name: x, string_match: { custom: { name: j, typed_config: { \
                 \"@type\": type.googleapis.com/envoy.extensions.string_matcher.lua.v3.Lua, source_code: { filename: FOLDER/judge.lua } } } } }] }",
            )
            .replace(
                "          http_filters:\n",
                "          http_filters:\n          - name: auth\n            typed_config:\n              \"@type\": \
                 type.googleapis.com/envoy.extensions.filters.http.basic_auth.v3.BasicAuth\n              users: { filename: FOLDER/users }\n",
            )
            .replace("FOLDER", &folder.display().to_string());
        let told = |old: &Plan, new: &Plan| -> Vec<String> {
            changes(Some(old), new).into_iter().map(|change| change.what).collect()
        };
        let first = plan(&text);
        assert!(told(&first, &plan(&text)).is_empty());
        write("kit.lua", "return 2");
        let second = plan(&text);
        assert_eq!(told(&first, &second), ["plugin mark"]);
        write("route.lua", "function envoy_on_request(h) h:logInfo('x') end");
        let third = plan(&text);
        assert_eq!(told(&second, &third), ["plugin mark"]);
        write("users", "v:{SHA}6NSi9zGis3/LFpY50UzLk1CVLVk=");
        let fourth = plan(&text);
        assert_eq!(told(&third, &fourth), [format!("file {}", folder.join("users").display())]);
        write("judge.lua", "function envoy_match(text) return false end");
        assert_eq!(told(&fourth, &plan(&text)), ["plugin envoy.string_matcher.lua"]);
        std::fs::remove_dir_all(&folder).unwrap();
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
