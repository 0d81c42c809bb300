//! The names that Rider's own types use: those of plugins, and those that routes have entries for.
//!
//! All plugins of a chain read the same entries, and each takes the one with its name. So one with a name that no plugin has is
//! found by nobody, and nothing but these names shows that.

use postrider_config_core::{Diagnostic, Severity, Span, nearest};

use super::context::Lowering;
use crate::reader::Reader;

const PLUGIN: &str = "proxy.filters.http.rider.v3alpha1.FilterConfig";
const ENTRIES: &str = "proxy.filters.http.rider.v3alpha1.RouteFilterConfig";

/// All names of the file.
#[derive(Default)]
pub(super) struct RiderNames {
    plugins: Vec<String>,
    entries: Vec<Entry>,
}

struct Entry {
    name: String,
    span: Option<Span>,
    path: String,
}

/// Remembers the plugin that a filter is, if it is one.
pub(super) fn note_plugin(cx: &mut Lowering<'_>, config: &Reader<'_>) {
    if let Some(name) = name_of(config) {
        cx.rider_names.plugins.push(name.to_owned());
    }
}

/// Remembers the entries of an override, if it has any.
pub(super) fn note_entries(cx: &mut Lowering<'_>, config: &Reader<'_>) {
    if config.type_name() != ENTRIES {
        return;
    }
    cx.rider_names.entries.extend(config.list("plugins").iter().map(|plugin| Entry {
        name: plugin.str("name").to_owned(),
        span: plugin.span_of("name"),
        path: plugin.path_of("name"),
    }));
}

/// Warns of a plugin that has the name of one in front of it in its chain.
pub(super) fn warn_of_twins<'r>(cx: &mut Lowering<'_>, configs: impl Iterator<Item = Reader<'r>>) {
    let mut known = Vec::new();
    for config in configs {
        let Some(name) = name_of(&config).filter(|name| !name.is_empty()) else { continue };
        if known.contains(&name) {
            let text = format!(
                "another plugin of the chain is named `{name}`: routes have the same entry for both, and what they count is added up"
            );
            let plugin = config.message("plugin");
            let at = plugin.as_ref().unwrap_or(&config);
            cx.push(at.diagnostic_at("name", Severity::Warning, "duplicate-name", text).expected("a name of its own"));
        }
        known.push(name);
    }
}

/// When all plugins are known: entries of none of them.
pub(super) fn finish(cx: &mut Lowering<'_>) {
    let RiderNames { plugins, entries } = std::mem::take(&mut cx.rider_names);
    for Entry { name, span, path } in entries {
        if name.is_empty() || plugins.contains(&name) {
            continue;
        }
        let text = format!("no Rider plugin is named `{name}`, so this entry has no effect");
        let diagnostic = Diagnostic::warning("unknown-plugin", text).at(span).path(path);
        cx.push(diagnostic.suggest(nearest(&name, plugins.iter().map(String::as_str))));
    }
}

fn name_of<'r>(config: &Reader<'r>) -> Option<&'r str> {
    (config.type_name() == PLUGIN).then(|| config.message("plugin")).flatten().map(|plugin| plugin.str("name"))
}
