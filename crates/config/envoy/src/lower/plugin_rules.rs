//! Rules for scripts and modules that Envoy's own types configure: sandbox, budgets, what an error means, which clusters may
//! be called.
//!
//! Those types have no room for them, and Envoy must take the file as it is. So they stand where Envoy reads nothing: in the
//! metadata of the node, by the name of the plugin. Here they become a field beside the others of its configuration.

use postrider_config_core::{Diagnostic, Severity, nearest};
use postrider_model::{Value, ValueError};

use super::context::Lowering;
use super::locate::locate;
use super::value::value;
use crate::message::Message;

/// The field beside the others, which no type of Envoy has.
const FIELD: &str = "postrider.rules";

/// The key in the metadata of the node.
const KEY: &str = "postrider.plugins";

const LUA: &str = "envoy.extensions.filters.http.lua.v3.Lua";
/// WebAssembly for requests, connections, access logs, statistics and by itself.
const WASM: [&str; 5] = [
    "envoy.extensions.filters.http.wasm.v3.Wasm",
    "envoy.extensions.filters.network.wasm.v3.Wasm",
    "envoy.extensions.access_loggers.wasm.v3.WasmAccessLog",
    "envoy.extensions.stat_sinks.wasm.v3.Wasm",
    "envoy.extensions.wasm.v3.WasmService",
];
const RIDER: &str = "proxy.filters.http.rider.v3alpha1.FilterConfig";

/// What the metadata of the node says.
#[derive(Default)]
pub(super) struct PluginRules<'c> {
    bootstrap: Option<&'c Message>,
    all: Vec<Rule>,
    /// There is something by that key, and it is no object.
    is_wrong: bool,
    /// The plugins that rules may be of.
    plugins: Vec<String>,
}

struct Rule {
    name: String,
    value: Value,
    is_used: bool,
}

impl<'c> PluginRules<'c> {
    pub(super) fn of(bootstrap: &'c Message) -> PluginRules<'c> {
        let metadata = bootstrap.message("node").and_then(|node| node.message("metadata")).map(value);
        let Some(Value::Map(entries)) = metadata else { return PluginRules::default() };
        let (all, is_wrong) = match entries.into_iter().find(|(key, _)| key == KEY) {
            None | Some((_, Value::Null)) => (Vec::new(), false),
            Some((_, Value::Map(rules))) => {
                (rules.into_iter().map(|(name, value)| Rule { name, value, is_used: false }).collect(), false)
            }
            Some(_) => (Vec::new(), true),
        };
        PluginRules { bootstrap: Some(bootstrap), all, is_wrong, plugins: Vec::new() }
    }

    /// Puts the rules of the filter called `filter` beside the rest of its configuration. The name of the plugin that
    /// they are of.
    pub(super) fn add(&mut self, filter: &str, kind: &str, config: &mut Value) -> Option<String> {
        let Value::Map(fields) = config else { return None };
        let name = match kind {
            LUA => filter,
            RIDER => name_in(fields, "plugin")?,
            kind if WASM.contains(&kind) => name_in(fields, "config").filter(|name| !name.is_empty()).unwrap_or(filter),
            _ => return None,
        };
        self.plugins.push(name.to_owned());
        let rule = self.all.iter_mut().find(|rule| rule.name == name)?;
        rule.is_used = true;
        fields.push((FIELD.to_owned(), rule.value.clone()));
        Some(rule.name.clone())
    }
}

/// An error about a plugin's rules, at its place in the bootstrap; `None` for one about something else.
pub(super) fn diagnostic(cx: &Lowering<'_>, plugin: Option<&str>, error: &ValueError) -> Option<Diagnostic> {
    let rest = error.path.strip_prefix(FIELD).filter(|rest| rest.is_empty() || rest.starts_with(['.', '[']))?;
    let path = format!("node.metadata[{KEY:?}][{:?}]{rest}", plugin?);
    let span = cx.plugin_rules.bootstrap.and_then(|bootstrap| locate(bootstrap, &path));
    Some(Diagnostic::new(Severity::Error, "invalid-filter-config", &*error.message).at(span).path(path))
}

/// When all plugins are known: what is wrong with the rules as a whole, and rules that are of no plugin.
pub(super) fn finish(cx: &mut Lowering<'_>) {
    let PluginRules { bootstrap, all, is_wrong, plugins } = std::mem::take(&mut cx.plugin_rules);
    let Some(bootstrap) = bootstrap else { return };
    if is_wrong {
        let path = format!("node.metadata[{KEY:?}]");
        let text = "expected an object with the rules of each plugin by its name";
        let diagnostic = Diagnostic::new(Severity::Error, "invalid-filter-config", text);
        cx.push(diagnostic.at(locate(bootstrap, &path)).path(path));
    }
    for rule in all.iter().filter(|rule| !rule.is_used) {
        let path = format!("node.metadata[{KEY:?}][{:?}]", rule.name);
        let text = format!(
            "no Lua filter, no Rider plugin and no WebAssembly plugin is named `{}`, so its rules have no effect",
            rule.name
        );
        let diagnostic = Diagnostic::warning("unknown-filter", text)
            .at(locate(bootstrap, &path))
            .path(path)
            .suggest(nearest(&rule.name, plugins.iter().map(String::as_str)));
        cx.push(diagnostic);
    }
}

fn name_in<'f>(fields: &'f [(String, Value)], holder: &str) -> Option<&'f str> {
    let (_, Value::Map(plugin)) = fields.iter().find(|(key, _)| key == holder)? else { return None };
    match plugin.iter().find(|(key, _)| key == "name")? {
        (_, Value::String(name)) => Some(name),
        _ => None,
    }
}
