//! Trees of conditions that choose routes: `VirtualHost.matcher`.
//!
//! The tree is read as a plain value, as filters read theirs; its actions are messages, and are found again by their paths.

use std::collections::HashMap;
use std::sync::Arc;

use postrider_config_core::Diagnostic;
use postrider_model::{MatchContext, MatchTree, Reading, Route, RouteRange};

use super::context::Lowering;
use super::tables::{HostRules, TableRules};
use super::{locate, route, value};
use crate::message::{Message, Value};
use crate::reader::Reader;

const ROUTE: &str = "envoy.config.route.v3.Route";
const ROUTES: &str = "envoy.config.route.v3.RouteList";

/// The tree; the routes of its leaves go behind `routes`.
pub(super) fn routes(
    cx: &mut Lowering<'_>,
    at: &Reader<'_>,
    rules: &TableRules<'_>,
    host: &HostRules,
    routes: &mut Vec<Arc<Route>>,
) -> Option<MatchTree<RouteRange>> {
    let mut leaves = HashMap::new();
    collect(at.as_message(), String::new(), &mut leaves);
    at.read_whole_but(&|name| name == ROUTE || name == ROUTES);
    let plain = value::value(at.as_message());
    let read = Reading::all(&plain, |reading| {
        MatchTree::read(reading, MatchContext::Routes, &mut |leaf, kind| {
            let path = leaf.path().to_owned();
            if kind != ROUTE && kind != ROUTES {
                leaf.error("@type", format!("{kind}: a route is wanted here: {ROUTE} or {ROUTES}"));
                leaf.skip();
                return None;
            }
            leaf.skip();
            let reader = at.below(leaves.get(&path)?, at.path_of(&path));
            let first = routes.len();
            let all = if kind == ROUTE { vec![reader] } else { reader.list("routes") };
            routes.extend(all.iter().filter_map(|each| route::route(cx, each, rules, host)).map(Arc::new));
            Some(RouteRange { first: u32::try_from(first).ok()?, end: u32::try_from(routes.len()).ok()? })
        })
    });
    match read {
        Ok(tree) => tree,
        Err(errors) => {
            for error in errors {
                let span = locate(at.as_message(), &error.path).or(at.span());
                let path = if error.path.is_empty() { at.path().to_owned() } else { at.path_of(&error.path) };
                cx.push(Diagnostic::error("invalid-matcher", error.message).at(span).path(path));
            }
            None
        }
    }
}

/// Every message in an `Any`, by the path that it has as a plain value.
fn collect<'m>(message: &'m Message, path: String, found: &mut HashMap<String, &'m Message>) {
    for field in &message.fields {
        let name = field.descriptor.name();
        let below = if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        collect_value(&field.value, below, found);
    }
}

fn collect_value<'m>(value: &'m Value, path: String, found: &mut HashMap<String, &'m Message>) {
    match value {
        Value::Message(message) => collect(message, path, found),
        Value::Any(any) => {
            let Some(message) = &any.message else { return };
            if matches!(message.type_name(), ROUTE | ROUTES) {
                found.insert(path, message);
            } else {
                collect(message, path, found);
            }
        }
        Value::List(items) => {
            for (index, item) in items.iter().enumerate() {
                collect_value(&item.value, format!("{path}[{index}]"), found);
            }
        }
        Value::Map(entries) => {
            for entry in entries {
                collect_value(&entry.value, format!("{path}.{}", entry.key), found);
            }
        }
        _ => {}
    }
}
