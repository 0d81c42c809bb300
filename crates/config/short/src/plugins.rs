//! Plugins: manifests of the gateway, and what routes change about them.

use postrider_config_core::{Diagnostic, Diagnostics, nearest};
use postrider_config_envoy::PluginNode;
use postrider_config_envoy::tree::{Node, NodeKind, Pair, Scalar};

use crate::build::{extension, list, map, pair, plain, text};
use crate::fields::{self, Fields, join};
use crate::upstreams::{Clusters, Scheme, Target};

/// The type of a plugin's filter.
pub const MANIFEST: &str = "postrider.filters.http.plugin.v1.Plugin";
const OVERRIDE: &str = "postrider.filters.http.plugin.v1.PluginPerRoute";

const KEYS: [&str; 12] = [
    "name", "version", "runtime", "code", "config", "schema", "phases", "on_error", "budget", "circuit", "clusters",
    "options",
];

/// The plugins of the document, in the order in which requests meet them.
#[derive(Default)]
pub struct Plugins {
    names: Vec<String>,
    /// Names of plugins that were refused, so that nothing is said about their overrides.
    refused: Vec<String>,
    /// Entries of `http_filters`.
    pub filters: Vec<Node>,
}

impl Plugins {
    /// The list behind `plugins`, and those that stand elsewhere: in the place of one with the same name, or behind all.
    pub fn read(
        node: Option<&Node>,
        added: &[PluginNode],
        clusters: &mut Clusters,
        diagnostics: &mut Diagnostics,
    ) -> Plugins {
        let mut all = Plugins::default();
        let items: &[Node] = match node.map(|node| (node, &node.kind)) {
            None => &[],
            Some((_, NodeKind::List(items))) => items,
            Some((node, _)) => {
                fields::wrong(node, "plugins", "a list of plugins, each `{name, runtime, code}`", diagnostics);
                &[]
            }
        };
        let named = |item: &Node| item.get("name").and_then(Node::text).map(str::to_owned);
        for (index, item) in items.iter().enumerate() {
            match added.iter().find(|plugin| named(item).as_ref() == Some(&plugin.name)) {
                Some(plugin) => all.add_named(plugin, clusters, diagnostics),
                None => all.add(item, &format!("plugins[{index}]"), clusters, diagnostics),
            }
        }
        for plugin in added.iter().filter(|plugin| !items.iter().any(|item| named(item).as_ref() == Some(&plugin.name)))
        {
            all.add_named(plugin, clusters, diagnostics);
        }
        all
    }

    /// A manifest of its own, whose name is known already: it need not say it, and may not say another.
    pub fn add_named(&mut self, plugin: &PluginNode, clusters: &mut Clusters, diagnostics: &mut Diagnostics) {
        let mut node = plugin.manifest.clone();
        if let NodeKind::Map(pairs) = &mut node.kind {
            match pairs.iter().find(|pair| pair.key == "name") {
                None => pairs.insert(0, pair("name", text(node.span, &*plugin.name))),
                Some(said) if said.value.text() != Some(&plugin.name) => {
                    let message = format!("the manifest of `{}` has another name", plugin.name);
                    fields::invalid(&said.value, "name", message, "the same name, or none", diagnostics);
                    return;
                }
                Some(_) => {}
            }
        }
        self.add(&node, "", clusters, diagnostics);
    }

    fn add(&mut self, node: &Node, path: &str, clusters: &mut Clusters, diagnostics: &mut Diagnostics) {
        let fields = Fields::of(node, path, diagnostics);
        let [name, version, runtime, code, config, schema, phases, on_error, budget, circuit, called, options] =
            KEYS.map(|key| fields.take(key));
        fields.finish(&KEYS);
        if !matches!(node.kind, NodeKind::Map(_)) {
            return;
        }
        let written = name.and_then(|name| fields::text(name, &join(path, "name"), "a name", diagnostics));
        if let (Some(name), Some(written)) = (name, written) {
            if self.names.iter().any(|known| known == written) {
                let message = format!("there is another plugin `{written}`");
                let diagnostic = Diagnostic::error("duplicate-name", message).at(name.span).path(join(path, "name"));
                diagnostics.push(diagnostic.expected("a name of its own: routes refer to it"));
            }
            self.names.push(written.to_owned());
        }
        let mut pairs = Vec::new();
        let mut sound = written.is_some();
        for (key, value, required) in [
            ("name", name, Some("a name that is its own")),
            ("version", version, None),
            ("runtime", runtime, Some("what runs it, such as `rider`")),
        ] {
            match (value, required) {
                (Some(value), _) => pairs.extend(scalar(key, value, path, diagnostics)),
                (None, Some(expected)) => {
                    fields::missing(node, path, key, expected, diagnostics);
                    sound = false;
                }
                (None, None) => {}
            }
        }
        if code.is_none() {
            fields::missing(node, path, "code", CODE, diagnostics);
        }
        let code = code.and_then(|code| self::code(code, &join(path, "code"), diagnostics));
        sound &= code.is_some();
        pairs.extend(code);
        pairs.extend(config.map(|config| pair("config", config.clone())));
        pairs.extend(schema.map(|schema| pair("config_schema", schema.clone())));
        if let Some(phases) = phases {
            let names = fields::several(phases, &join(path, "phases"));
            let names = names.into_iter().filter_map(|(path, phase)| {
                Some(text(phase.span, fields::text(phase, &path, "a phase such as request_headers", diagnostics)?))
            });
            pairs.push(pair("phases", list(phases.span, names.collect())));
        }
        pairs.extend(on_error.and_then(|on_error| scalar("on_error", on_error, path, diagnostics)));
        pairs.extend(budget.and_then(|budget| self::budget(budget, &join(path, "budget"), diagnostics)));
        pairs.extend(circuit.and_then(|circuit| self::circuit(circuit, &join(path, "circuit"), diagnostics)));
        if let Some(called) = called {
            let names = self::clusters(called, &join(path, "clusters"), clusters, diagnostics);
            pairs.push(pair("clusters", list(called.span, names)));
        }
        pairs.extend(options.map(|options| pair("options", options.clone())));
        match written {
            Some(name) if sound => self.filters.push(extension(node.span, name, MANIFEST, pairs)),
            Some(name) => self.refused.push(name.to_owned()),
            None => {}
        }
    }

    /// `{name: {…}}` of a route, of a host or of a share of a route's requests as Envoy's `typed_per_filter_config`: a mapping or a text is the plugin's configuration there,
    /// `false` switches it off.
    pub fn overrides(&self, node: &Node, path: &str, diagnostics: &mut Diagnostics) -> Option<Node> {
        const EXPECTED: &str = "the plugin's configuration here, a mapping or a text, or `false`";
        let NodeKind::Map(pairs) = &node.kind else {
            fields::wrong(node, path, "a mapping of plugins' names to their configurations", diagnostics);
            return None;
        };
        let mut all = Vec::new();
        for entry in pairs {
            let place = join(path, &entry.key);
            let span = entry.value.span;
            if !self.names.contains(&entry.key) {
                let message = format!("there is no plugin `{}`", entry.key);
                let diagnostic = Diagnostic::error("unknown-plugin", message).at(entry.key_span).path(place);
                let names = self.names.iter().map(String::as_str);
                diagnostics.push(diagnostic.suggest(nearest(&entry.key, names)));
                continue;
            }
            if self.refused.contains(&entry.key) {
                continue;
            }
            let change = match &entry.value.kind {
                NodeKind::Map(_) => pair("config", entry.value.clone()),
                NodeKind::Scalar(scalar) if scalar.plain && scalar.text == "false" => {
                    pair("disabled", plain(span, true))
                }
                NodeKind::Scalar(scalar) if is_text(scalar) => pair("config", entry.value.clone()),
                _ => {
                    fields::wrong(&entry.value, &place, EXPECTED, diagnostics);
                    continue;
                }
            };
            let kind = pair("@type", text(span, format!("type.googleapis.com/{OVERRIDE}")));
            let key = entry.key.clone();
            all.push(Pair { key, key_span: entry.key_span, value: map(span, vec![kind, change]) });
        }
        (!all.is_empty()).then(|| map(node.span, all))
    }
}

/// What looks like a number or a truth value is a text in quotes only.
fn is_text(scalar: &Scalar) -> bool {
    !scalar.plain || scalar.text != "true" && scalar.text.parse::<f64>().is_err()
}

const CODE: &str = "a path, a folder's path that ends in `/`, the code itself on lines of its own, or one of \
                    `{file: …}`, `{directory: …}`, `{inline: …}`, `{environment: …}` and `{remote: {url: …, sha256: …}}`";

/// A text with a line break is the code itself; any other is a path, of a folder when it ends in a slash.
fn code(node: &Node, path: &str, diagnostics: &mut Diagnostics) -> Option<Pair> {
    const FORMS: [(&str, &str); 4] = [
        ("file", "filename"),
        ("directory", "directory"),
        ("inline", "inline_string"),
        ("environment", "environment_variable"),
    ];
    let (key, value, place) = if let NodeKind::Map(_) = &node.kind {
        let fields = Fields::of(node, path, diagnostics);
        let remote = fields.take("remote");
        let found = FORMS.map(|(short, full)| (short, full, fields.take(short)));
        fields.finish(&["file", "directory", "inline", "environment", "remote"]);
        // The fields of the full form, which has no shorter one.
        if let (Some(remote), true) = (remote, found.iter().all(|(_, _, value)| value.is_none())) {
            return Some(pair("code", map(node.span, vec![pair("remote", remote.clone())])));
        }
        let found = if remote.is_some() { FORMS.map(|(short, full)| (short, full, None)) } else { found };
        let mut found = found.into_iter().filter_map(|(short, full, value)| Some((short, full, value?)));
        let (Some((short, full, value)), None) = (found.next(), found.next()) else {
            fields::invalid(node, path, "code has one place", CODE, diagnostics);
            return None;
        };
        (full, value, join(path, short))
    } else {
        let key = match node.text() {
            Some(written) if written.contains('\n') => "inline_string",
            Some(written) if written.ends_with('/') => "directory",
            _ => "filename",
        };
        (key, node, path.to_owned())
    };
    let written = fields::text(value, &place, CODE, diagnostics)?;
    Some(pair("code", map(node.span, vec![pair(key, text(value.span, written))])))
}

fn budget(node: &Node, path: &str, diagnostics: &mut Diagnostics) -> Option<Pair> {
    let fields = Fields::of(node, path, diagnostics);
    let (cpu, memory) = (fields.take("cpu"), fields.take("memory"));
    fields.finish(&["cpu", "memory"]);
    let mut pairs = Vec::new();
    if let Some(node) = cpu {
        pairs.push(pair("cpu", text(node.span, fields::duration(node, &join(path, "cpu"), diagnostics)?)));
    }
    if let Some(node) = memory {
        pairs.push(pair("memory_bytes", plain(node.span, fields::size(node, &join(path, "memory"), diagnostics)?)));
    }
    Some(pair("budget", map(node.span, pairs)))
}

/// `false` is a circuit that never opens.
fn circuit(node: &Node, path: &str, diagnostics: &mut Diagnostics) -> Option<Pair> {
    if let NodeKind::Scalar(scalar) = &node.kind
        && scalar.plain
        && scalar.text == "false"
    {
        return Some(pair("circuit", map(node.span, vec![pair("faults", plain(node.span, 0))])));
    }
    let fields = Fields::of(node, path, diagnostics);
    let (faults, cpu_kills) = (fields.take("faults"), fields.take("cpu_kills"));
    let (window, retry) = (fields.take("window"), fields.take("retry"));
    fields.finish(&["faults", "cpu_kills", "window", "retry"]);
    let mut pairs = Vec::new();
    for (key, node) in [("faults", faults), ("cpu_kills", cpu_kills)] {
        pairs.extend(node.map(|number| pair(key, number.clone())));
    }
    for (key, node) in [("window", window), ("retry", retry)] {
        if let Some(node) = node {
            pairs.push(pair(key, text(node.span, fields::duration(node, &join(path, key), diagnostics)?)));
        }
    }
    Some(pair("circuit", map(node.span, pairs)))
}

/// What a plugin may call.
const SERVER: &str = "a server with its port, such as \"127.0.0.1:9000\", as calls name it";

/// A name that is no URL and has no port: nothing says that it is a server's.
fn is_bare(written: &str) -> bool {
    !written.contains("://") && written.rsplit_once(':').is_none_or(|(_, port)| port.ends_with(']'))
}

/// The names of the clusters of these servers, each of which becomes one.
fn clusters(node: &Node, path: &str, clusters: &mut Clusters, diagnostics: &mut Diagnostics) -> Vec<Node> {
    let mut names = Vec::new();
    for (path, item) in fields::several(node, path) {
        if item.text().is_none() {
            fields::wrong(item, &path, "a server such as \"http://127.0.0.1:9000\"", diagnostics);
            continue;
        }
        if let Some(known) = item.text().filter(|name| clusters.knows(name)) {
            names.push(text(item.span, known));
        } else if item.text().is_some_and(is_bare) {
            let written = item.text().unwrap_or_default();
            let diagnostic = Diagnostic::error("unknown-cluster", format!("there is no cluster `{written}`"));
            let diagnostic = diagnostic.at(item.span).path(path).expected(SERVER);
            diagnostics.push(diagnostic.suggest(nearest(written, clusters.names())));
        } else if let Some(Target::One(name)) = clusters.target(item, &path, Scheme::Http, None, diagnostics) {
            names.push(text(item.span, name));
        }
    }
    names
}

/// A scalar as text, whatever it looks like: `on_error: 503`, `version: 1.10`.
fn scalar(key: &str, node: &Node, path: &str, diagnostics: &mut Diagnostics) -> Option<Pair> {
    let written = fields::text(node, &join(path, key), "a text", diagnostics)?;
    Some(pair(key, text(node.span, written)))
}
