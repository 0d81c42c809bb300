//! What filters find wrong with overrides, where the file is refused for something else.
//!
//! Overrides are read when a good file is compiled. One run is to show every error of a file that is not good, too.

use postrider_config_core::{Diagnostic, Severity};
use postrider_model::{Action, ConnectionHandler, FilterOverride, FilterSlot, HttpConnection, Snapshot, Target};

use super::context::Lowering;
use super::locate::locate;
use crate::message::Message;

/// Asks the filters of every connection manager for what is wrong with their overrides.
pub(super) fn check(cx: &mut Lowering<'_>, snapshot: &Snapshot, bootstrap: &Message) {
    let chains = snapshot
        .listeners
        .iter()
        .flat_map(|listener| listener.filter_chains.iter().chain(&listener.default_filter_chain));
    for chain in chains {
        let ConnectionHandler::Http(http) = &chain.handler else { continue };
        let mut overrides = Vec::new();
        each_override(http, &mut |change| {
            let is_read = change.config.is_some() && !cx.is_broken(&change.origin.0);
            overrides.extend(is_read.then_some(change));
        });
        let mut known: Vec<&str> = Vec::new();
        for slot in &http.filters {
            // Of several filters of one name the first one says it for all.
            if known.contains(&slot.name.as_str()) || cx.is_broken(&slot.origin.0) {
                continue;
            }
            known.push(&slot.name);
            let own: Vec<&FilterOverride> =
                overrides.iter().copied().filter(|change| change.name == slot.name).collect();
            if !own.is_empty() {
                ask(cx, slot, &own, bootstrap);
            }
        }
    }
}

fn ask(cx: &mut Lowering<'_>, slot: &FilterSlot, overrides: &[&FilterOverride], bootstrap: &Message) {
    let configs: Vec<_> = overrides.iter().filter_map(|change| change.config.as_ref()).collect();
    for (index, error) in cx.kinds.check_overrides(slot, &configs) {
        let Some(change) = overrides.get(index) else { continue };
        let path = match error.path.as_str() {
            "" => change.origin.0.clone(),
            below if below.starts_with('[') => format!("{}{below}", change.origin.0),
            below => format!("{}.{below}", change.origin.0),
        };
        let span = locate(bootstrap, &path);
        cx.push(Diagnostic::new(Severity::Error, "invalid-filter-config", error.message).at(span).path(path));
    }
}

fn each_override<'h>(http: &'h HttpConnection, see: &mut dyn FnMut(&'h FilterOverride)) {
    let table = &http.routes;
    table.filter_overrides.iter().for_each(&mut *see);
    for host in &table.virtual_hosts {
        host.filter_overrides.iter().for_each(&mut *see);
        for route in &host.routes {
            route.filter_overrides.iter().for_each(&mut *see);
            if let Action::Forward(forward) = &route.action
                && let Target::Weighted(clusters) = &forward.target
            {
                clusters.iter().flat_map(|cluster| &cluster.filter_overrides).for_each(&mut *see);
            }
        }
    }
}
