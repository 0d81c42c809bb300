//! Envoy's runtime: values by key, in layers, that stand in place of what a configuration writes.
//!
//! What it is for: [`Runtime::read`] merges the layers of a bootstrap, and [`Runtime::resolve`] puts their values into the
//! messages that name a key (`RuntimeFractionalPercent` and its kin) or that have a key of their own without naming it
//! (`upstream.healthy_panic_threshold`). So lowering sees plain settings, and nothing is looked up while requests are
//! served: a change of a value is a new configuration.
//!
//! What it must never do: complain. What is wrong with a layer is reported where it is lowered.
//!
//! Who calls it: [`crate::load()`], before it lowers.

mod disk;
mod entry;
mod known;
mod resolve;

use std::collections::BTreeMap;
use std::path::PathBuf;

use postrider_model::Value as Plain;
use serde_json::Value as Json;

use crate::message::{Message, Value};
use crate::write::message_to_json;
use disk::Disk;
pub use entry::{Entry, Share};
pub(crate) use known::{OF_ENVOYS_CODE, OF_OURS_AS_WELL};
pub(crate) use resolve::{child, list};

/// What of the runtime stands in no file.
#[derive(Clone, Debug, Default)]
pub struct RuntimeOptions {
    /// The values of the admin layer, as texts.
    pub overrides: BTreeMap<String, String>,
    /// The name of the proxy's own cluster, where it is not the node's.
    pub service_cluster: Option<String>,
}

/// The merged layers of one configuration.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Runtime {
    layers: Vec<Layer>,
    merged: BTreeMap<String, Entry>,
    disks: Vec<Disk>,
    has_admin_layer: bool,
}

#[derive(Clone, Debug, PartialEq)]
struct Layer {
    name: String,
    values: BTreeMap<String, Entry>,
}

impl Runtime {
    /// Reads the layers, those on the disk included.
    pub fn read(bootstrap: &Message, options: &RuntimeOptions) -> Runtime {
        let mut runtime = Runtime::default();
        let Some(config) = bootstrap.message("layered_runtime") else { return runtime };
        let node = bootstrap.message("node").map_or("", |node| node.str("cluster"));
        let service_cluster = options.service_cluster.as_deref().unwrap_or(node);
        let admin = || options.overrides.iter().map(|(key, text)| (key.clone(), Entry::of_text(text))).collect();
        let layers = match config.value("layers") {
            Some(Value::List(items)) => items.as_slice(),
            _ => &[],
        };
        for item in layers {
            let Value::Message(layer) = &item.value else { continue };
            let values = match layer.oneof("layer_specifier").map(|field| (field.descriptor.name(), &field.value)) {
                Some(("static_layer", Value::Message(values))) => fixed(values),
                Some(("disk_layer", Value::Message(at))) => {
                    let mut below = at.str("subdirectory").to_owned();
                    if at.value("append_service_cluster") == Some(&Value::Bool(true)) {
                        below = format!("{below}/{service_cluster}");
                    }
                    let disk = Disk::read(at.str("symlink_root"), below.trim_start_matches('/'));
                    let texts = disk.texts().cloned();
                    runtime.disks.push(disk);
                    // As in Envoy, a layer whose folder is not there is no layer.
                    let Some(texts) = texts else { continue };
                    texts.iter().map(|(key, text)| (key.clone(), Entry::of_text(text))).collect()
                }
                Some(("admin_layer", _)) => {
                    runtime.has_admin_layer = true;
                    admin()
                }
                _ => BTreeMap::new(),
            };
            runtime.layers.push(Layer { name: layer.str("name").to_owned(), values });
        }
        if layers.is_empty() {
            runtime.has_admin_layer = true;
            runtime.layers.push(Layer { name: String::new(), values: admin() });
        }
        for layer in &runtime.layers {
            runtime.merged.extend(layer.values.clone());
        }
        runtime
    }

    /// Puts values in place of what `bootstrap` writes; `None` where nothing could change.
    pub fn resolve(&self, bootstrap: &Message) -> Option<Message> {
        if self.merged.is_empty() {
            return None;
        }
        let mut resolved = bootstrap.clone();
        resolve::resolve(&mut resolved, self);
        Some(resolved)
    }

    /// The value that counts. No key is the empty one.
    pub fn find(&self, key: &str) -> Option<&Entry> {
        self.merged.get(key).filter(|_| !key.is_empty())
    }

    pub fn integer(&self, key: &str) -> Option<u64> {
        self.find(key)?.integer()
    }

    /// Keys with their values, in their order.
    pub fn entries(&self) -> impl Iterator<Item = (&str, &Entry)> {
        self.merged.iter().map(|(key, entry)| (key.as_str(), entry))
    }

    /// The names of the layers, the weakest first.
    pub fn layers(&self) -> impl Iterator<Item = &str> {
        self.layers.iter().map(|layer| layer.name.as_str())
    }

    /// Each key, with what it is in each layer; empty where a layer has none.
    pub fn table(&self) -> Vec<(String, Vec<String>)> {
        let of = |key: &String| {
            let text =
                |layer: &Layer| layer.values.get(key).map_or_else(String::new, |entry| entry.as_text().to_owned());
            self.layers.iter().map(text).collect()
        };
        self.merged.keys().map(|key| (key.clone(), of(key))).collect()
    }

    /// Whether values can be changed while the process runs.
    pub fn has_admin_layer(&self) -> bool {
        self.has_admin_layer
    }

    /// How many folders gave values.
    pub fn folders(&self) -> usize {
        self.disks.iter().filter(|disk| disk.texts().is_some()).count()
    }

    /// Why folders could not be read, in the order of the layers on the disk.
    pub fn failures(&self) -> impl Iterator<Item = Option<&str>> {
        self.disks.iter().map(Disk::failure)
    }

    /// Whether the folders still say what they said.
    pub fn is_current(&self) -> bool {
        self.disks.iter().all(Disk::is_current)
    }

    /// Paths whose surroundings are to be watched.
    pub fn watched(&self) -> impl Iterator<Item = PathBuf> + '_ {
        self.disks.iter().flat_map(Disk::watched)
    }

    /// Values below a prefix as a filter gets them that asks by keys of its own making.
    pub(crate) fn plain(&self, wanted: impl Fn(&str) -> bool) -> Vec<(String, Plain)> {
        let entries = self.entries().filter(|(key, _)| wanted(key));
        entries.map(|(key, entry)| (key.to_owned(), plain(entry))).collect()
    }
}

/// A share is a map; a text that is neither number nor truth stays one.
fn plain(entry: &Entry) -> Plain {
    match (entry.number(), entry.truth(), entry.share()) {
        (Some(number), ..) => Plain::Number(number),
        (_, Some(truth), _) => Plain::Bool(truth),
        (.., Some(share)) => Plain::Map(vec![
            ("numerator".to_owned(), Plain::Integer(i64::from(share.numerator))),
            ("denominator".to_owned(), Plain::String(share.denominator_name().to_owned())),
        ]),
        _ => Plain::String(entry.as_text().to_owned()),
    }
}

fn fixed(values: &Message) -> BTreeMap<String, Entry> {
    let mut all = BTreeMap::new();
    if let Json::Object(fields) = message_to_json(values) {
        fields.iter().for_each(|(key, value)| {
            flatten(key, value, &mut |key, value| {
                if let Some(entry) = Entry::of_json(value) {
                    all.entry(key.to_owned()).or_insert(entry);
                }
            });
        });
    }
    all
}

/// `{"a": {"b": 1}}` is the key `a.b`; a fraction, and an object with nothing in it, is a value.
pub(crate) fn flatten(key: &str, value: &Json, each: &mut impl FnMut(&str, &Json)) {
    match value {
        Json::Object(fields)
            if !fields.is_empty() && !fields.contains_key("numerator") && !fields.contains_key("denominator") =>
        {
            fields.iter().for_each(|(name, value)| flatten(&format!("{key}.{name}"), value, each));
        }
        value => each(key, value),
    }
}
