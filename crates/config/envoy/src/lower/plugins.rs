//! Plugins that are no filters: they choose clusters or judge strings. Their configurations become plain values.

use std::sync::Arc;

use postrider_config_core::nearest;
use postrider_model::{ClusterSpecifier, Labels, Lot, NextCluster, StringKind, Target, Value, WeightedCluster};

use super::context::{ClusterUse, Lowering, origin};
use super::forward::Choice;
use super::{filters, priority_groups};
use crate::reader::Reader;

/// The plugins of a table by name; `None` for one that was refused.
pub(super) type Specifiers = Vec<(String, Option<Specifier>)>;

/// What a plugin of a route comes to.
#[derive(Clone, Debug)]
pub(super) enum Specifier {
    Plugin(Arc<ClusterSpecifier>),
    /// Weighted clusters in groups, of which the first one takes requests.
    Groups(Vec<Vec<WeightedCluster>>, Lot),
}

impl Specifier {
    /// Where a route goes that wants these `labels` of hosts.
    pub(super) fn choice(self, labels: Option<&Arc<Labels>>) -> Choice {
        match self {
            Specifier::Plugin(plugin) => {
                // As in Envoy, code that chose once has chosen for all tries.
                let next = if plugin.kind == MATCHER { NextCluster::Asked } else { NextCluster::Same };
                Choice { target: Target::Plugin(plugin), lot: Lot::Random, next }
            }
            Specifier::Groups(mut groups, lot) => {
                groups.iter_mut().flatten().for_each(|cluster| cluster.labels = labels.cloned());
                let first = if groups.is_empty() { Vec::new() } else { groups.remove(0) };
                let next = if groups.is_empty() { NextCluster::Same } else { NextCluster::Groups(groups) };
                Choice { target: Target::Weighted(first), lot, next }
            }
        }
    }
}

/// `RouteConfiguration.cluster_specifier_plugins`.
pub(super) fn specifiers(cx: &mut Lowering<'_>, table: &Reader<'_>) -> Specifiers {
    let mut all = Specifiers::new();
    for plugin in table.list("cluster_specifier_plugins") {
        let Some(extension) = plugin.message("extension") else { continue };
        let name = extension.str("name").to_owned();
        if all.iter().any(|(known, _)| *known == name) {
            let text = format!("there is another cluster specifier plugin `{name}`");
            cx.error(&extension, "name", "duplicate-name", text);
        }
        let specifier = specifier(cx, &plugin);
        all.push((name, specifier));
    }
    all
}

/// A `ClusterSpecifierPlugin`.
pub(super) fn specifier(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Option<Specifier> {
    // Without the plugin its routes would have no cluster, so an optional one is refused like any other.
    at.ignore("is_optional", "a plugin that is not supported is refused");
    let extension = at.message("extension")?;
    if let Some(any) = extension.any("typed_config")
        && any.type_name == priority_groups::KIND
    {
        extension.str("name");
        let (groups, lot) = priority_groups::read(cx, any.reader.as_ref()?)?;
        return Some(Specifier::Groups(groups, lot));
    }
    let (kind, config) = self::extension(cx, &extension)?;
    if let Value::Map(entries) = &config
        && let Some((_, Value::String(name))) = entries.iter().find(|(key, _)| key == "default_cluster")
    {
        let path = format!("{}.default_cluster", extension.path_of("typed_config"));
        let span = super::locate(extension.as_message(), "typed_config.default_cluster");
        cx.cluster_uses.push(ClusterUse { name: name.clone(), span, path, required: false });
    }
    if kind == MATCHER {
        matched(cx, &extension, &config, "typed_config");
    }
    Some(Specifier::Plugin(Arc::new(ClusterSpecifier { kind, config, origin: origin(at) })))
}

const MATCHER: &str = "envoy.extensions.router.cluster_specifiers.matcher.v3.MatcherClusterSpecifier";

/// The clusters that a tree of conditions names.
fn matched(cx: &mut Lowering<'_>, extension: &Reader<'_>, value: &Value, path: &str) {
    match value {
        Value::List(items) => {
            for (index, item) in items.iter().enumerate() {
                matched(cx, extension, item, &format!("{path}[{index}]"));
            }
        }
        Value::Map(entries) => {
            let is_action = |(key, value): &(String, Value)| {
                key == "@type" && matches!(value, Value::String(name) if name.ends_with(".ClusterAction"))
            };
            let is_action = entries.iter().any(is_action);
            for (key, value) in entries {
                let path = format!("{path}.{key}");
                match value {
                    Value::String(name) if is_action && key == "cluster" => cx.cluster_uses.push(ClusterUse {
                        name: name.clone(),
                        span: super::locate(extension.as_message(), &path),
                        path: extension.path_of(&path),
                        required: false,
                    }),
                    value => matched(cx, extension, value, &path),
                }
            }
        }
        _ => {}
    }
}

/// The plugin that a route refers to.
pub(super) fn named(cx: &mut Lowering<'_>, route: &Reader<'_>, specifiers: &Specifiers) -> Option<Specifier> {
    let name = route.str("cluster_specifier_plugin");
    match specifiers.iter().find(|(known, _)| known == name) {
        Some((_, specifier)) => specifier.clone(),
        None => {
            let text = format!("there is no cluster specifier plugin `{name}`");
            let severity = postrider_config_core::Severity::Error;
            let names = specifiers.iter().map(|(known, _)| known.as_str());
            let diagnostic = route
                .diagnostic_at("cluster_specifier_plugin", severity, "unknown-plugin", text)
                .suggest(nearest(name, names));
            cx.push(diagnostic.expected("a name of `cluster_specifier_plugins` of the route configuration"));
            None
        }
    }
}

/// `StringMatcher.custom`.
pub(super) fn matcher(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Option<StringKind> {
    let (kind, config) = extension(cx, at)?;
    Some(StringKind::Custom { kind, config })
}

/// A `TypedExtensionConfig` whose type somebody runs.
fn extension(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Option<(String, Value)> {
    at.str("name");
    let any = at.any("typed_config")?;
    if !cx.kinds.known(any.type_name) {
        cx.refuse_extension(at, "typed_config", &any);
        return None;
    }
    at.whole("typed_config");
    Some((any.type_name.to_owned(), filters::checked(cx, at, &any)))
}
