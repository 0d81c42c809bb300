//! Trees of conditions that choose something: `VirtualHost.matcher`, `forward_client_cert_matcher`.
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
    let leaves = Leaves { context: MatchContext::Routes, types: &[ROUTE, ROUTES], what: "a route" };
    tree(cx, at, &leaves, &mut |cx, kind, leaf| {
        let first = routes.len();
        let all = if kind == ROUTE { vec![leaf] } else { leaf.list("routes") };
        routes.extend(all.iter().filter_map(|each| route::route(cx, each, rules, host)).map(Arc::new));
        Some(RouteRange { first: u32::try_from(first).ok()?, end: u32::try_from(routes.len()).ok()? })
    })
}

/// What a tree may look at, and what may stand at its leaves.
pub(super) struct Leaves<'a> {
    pub(super) context: MatchContext,
    /// Full names of messages.
    pub(super) types: &'a [&'a str],
    /// For people: what these are.
    pub(super) what: &'a str,
}

/// Reads the tree; `action` reads a leaf, whose type it is told.
pub(super) fn tree<A>(
    cx: &mut Lowering<'_>,
    at: &Reader<'_>,
    leaves: &Leaves<'_>,
    action: &mut dyn FnMut(&mut Lowering<'_>, &str, Reader<'_>) -> Option<A>,
) -> Option<MatchTree<A>> {
    let mut found = HashMap::new();
    collect(at.as_message(), String::new(), leaves.types, &mut found);
    at.read_whole_but(&|name| leaves.types.contains(&name));
    let plain = value::value(at.as_message());
    let read = Reading::all(&plain, |reading| {
        MatchTree::read(reading, leaves.context, &mut |leaf, kind| {
            let path = leaf.path().to_owned();
            if !leaves.types.contains(&kind) {
                let wanted = leaves.types.join(" or ");
                leaf.error("@type", format!("{kind}: {} is wanted here: {wanted}", leaves.what));
                leaf.skip();
                return None;
            }
            leaf.skip();
            action(cx, kind, at.below(found.get(&path)?, at.path_of(&path)))
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

/// Every message of one of these types in an `Any`, by the path that it has as a plain value.
fn collect<'m>(message: &'m Message, path: String, types: &[&str], found: &mut HashMap<String, &'m Message>) {
    for field in &message.fields {
        let name = field.descriptor.name();
        let below = if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        collect_value(&field.value, below, types, found);
    }
}

fn collect_value<'m>(value: &'m Value, path: String, types: &[&str], found: &mut HashMap<String, &'m Message>) {
    match value {
        Value::Message(message) => collect(message, path, types, found),
        Value::Any(any) => {
            let Some(message) = &any.message else { return };
            if types.contains(&message.type_name()) {
                found.insert(path, message);
            } else {
                collect(message, path, types, found);
            }
        }
        Value::List(items) => {
            for (index, item) in items.iter().enumerate() {
                collect_value(&item.value, format!("{path}[{index}]"), types, found);
            }
        }
        Value::Map(entries) => {
            for entry in entries {
                collect_value(&entry.value, format!("{path}.{}", entry.key), types, found);
            }
        }
        _ => {}
    }
}
