//! By which rules statistics are told: those of the configuration, with the rules that clusters and listeners have of their
//! own put beside them under the names that their statistics really have, and the tags of the command line before its own.

use std::collections::BTreeMap;
use std::sync::Arc;

use postrider_model::{Address, ConnectionHandler, Listener, Snapshot, StatsMatch, StatsRules, TagRule, TagValue};
use postrider_telemetry::stats::{StatSet, sets};

use super::scopes;

/// `listeners` are the running ones with their real addresses; `tags` are those of the command line.
pub fn rules(
    snapshot: &Snapshot,
    listeners: &[(String, Vec<Address>)],
    tags: &[(String, String)],
) -> Option<Arc<StatsRules>> {
    let told_of = of_scopes(snapshot, listeners);
    if told_of.is_empty() && tags.is_empty() {
        return snapshot.stats.clone();
    }
    let mut rules = snapshot.stats.as_deref().cloned().unwrap_or_default();
    rules.told_of = told_of;
    let fixed =
        |(name, value): &(String, String)| TagRule { name: name.clone(), value: TagValue::Fixed(value.clone()) };
    // Of two with one name the first counts.
    rules.tags.rules.splice(..0, tags.iter().map(fixed));
    Some(Arc::new(rules))
}

/// The rules of clusters and listeners.
fn of_scopes(snapshot: &Snapshot, listeners: &[(String, Vec<Address>)]) -> BTreeMap<String, Vec<StatsMatch>> {
    let own = snapshot.clusters.iter().any(|cluster| cluster.told.is_some())
        || snapshot.listeners.iter().any(|listener| listener.told.is_some());
    if !own {
        return BTreeMap::new();
    }
    let mut of_scopes: BTreeMap<String, Vec<Option<&StatsMatch>>> = BTreeMap::new();
    let mut add = |set: &StatSet, prefix: &str, told| {
        let scope = set.scope_name(prefix).trim_end_matches('.').to_owned();
        of_scopes.entry(scope).or_default().push(told);
    };
    for cluster in &snapshot.clusters {
        add(&sets::cluster::SET, &scopes::cluster_prefix(cluster), cluster.told.as_ref());
    }
    for listener in &snapshot.listeners {
        let told = listener.told.as_ref();
        if let Some(prefix) = scopes::listener_prefix(listener, listeners) {
            add(&sets::listener::SET, &prefix, told);
        }
        of_chains(listener).for_each(|(set, prefix)| add(set, &sets::scope_of_address(prefix), told));
    }
    of_scopes.retain(|_, told| told.iter().any(Option::is_some));
    // Who shares a name with others, and says nothing, has the rule of all.
    let all = snapshot.stats.as_ref().and_then(|rules| rules.told.clone()).unwrap_or(StatsMatch::AllBut(Vec::new()));
    let of_scope = |told: Vec<Option<&StatsMatch>>| told.into_iter().map(|told| told.unwrap_or(&all).clone()).collect();
    of_scopes.into_iter().map(|(scope, told)| (scope, of_scope(told))).collect()
}

/// What the chains of a listener count in beside its own statistics.
fn of_chains(listener: &Listener) -> impl Iterator<Item = (&'static StatSet, &str)> {
    let chains = listener.filter_chains.iter().chain(&listener.default_filter_chain);
    chains.filter_map(|chain| match &chain.handler {
        ConnectionHandler::Http(http) => Some((&sets::http::SET, http.stat_prefix.as_str())),
        ConnectionHandler::Tcp(tcp) => Some((&sets::tcp::SET, tcp.stat_prefix.as_str())),
        ConnectionHandler::Echo | ConnectionHandler::Say(_) | ConnectionHandler::Filters => None,
    })
}
