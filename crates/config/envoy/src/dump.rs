//! [`Dump`]: the sections of `/config_dump`, made from the text when somebody asks.
//!
//! The message tree is megabytes and asked for rarely, so a running proxy keeps the text that it accepted and reads it
//! again. Secrets are redacted. Who calls it: the admin interface, through the binary.

use postrider_config_core::SourceFile;
use serde_json::{Map, Value as Json, json};

use crate::load::{LoadOptions, load_bootstrap};
use crate::message::{Message, TYPE_URL_PREFIX, Value};
use crate::write::message_to_redacted_json;

/// A configuration that was accepted. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Dump {
    file: SourceFile,
    options: LoadOptions,
}

impl Dump {
    pub(crate) fn new(file: SourceFile, options: LoadOptions) -> Dump {
        Dump { file, options }
    }

    /// The text that was accepted.
    pub fn source(&self) -> &SourceFile {
        &self.file
    }

    /// The sections in Envoy's order: bootstrap, clusters, listeners, routes where there is HTTP, secrets. `last_updated` is
    /// an RFC 3339 time; `build` are the fields by which a node says what it runs.
    pub fn sections(&self, last_updated: &str, build: Map<String, Json>) -> Vec<Json> {
        let Some(bootstrap) = load_bootstrap(&self.file, &self.options).bootstrap else { return Vec::new() };
        let resources = bootstrap.message("static_resources");
        let list = |name: &str| resources.map(|resources| messages(resources, name)).unwrap_or_default();
        let listeners = list("listeners");
        let routes: Vec<&Message> = listeners.iter().flat_map(|listener| route_tables(listener)).collect();
        let each = |name: &str, all: &[&Message]| -> Vec<Json> {
            all.iter().map(|message| json!({name: any(message), "last_updated": last_updated})).collect()
        };
        let mut shown = message_to_redacted_json(&bootstrap);
        if let Json::Object(fields) = &mut shown
            && let Json::Object(node) = fields.entry("node").or_insert_with(|| Json::Object(Map::new()))
        {
            node.extend(build);
        }
        let mut sections = vec![
            section("BootstrapConfigDump", [("bootstrap", shown), ("last_updated", json!(last_updated))]),
            section("ClustersConfigDump", some("static_clusters", each("cluster", &list("clusters")))),
            section("ListenersConfigDump", some("static_listeners", each("listener", &listeners))),
        ];
        if listeners.iter().any(|listener| filters(listener).any(is_http)) {
            sections.push(section("ScopedRoutesConfigDump", []));
            sections.push(section("RoutesConfigDump", some("static_route_configs", each("route_config", &routes))));
        }
        sections.push(section("SecretsConfigDump", some("static_secrets", secrets(&list("secrets")))));
        sections
    }
}

fn section(name: &str, fields: impl IntoIterator<Item = (&'static str, Json)>) -> Json {
    let mut all = Map::new();
    all.insert("@type".to_owned(), json!(format!("{TYPE_URL_PREFIX}envoy.admin.v3.{name}")));
    all.extend(fields.into_iter().map(|(name, value)| (name.to_owned(), value)));
    Json::Object(all)
}

/// JSON protobuf has no empty lists.
fn some(name: &'static str, list: Vec<Json>) -> Option<(&'static str, Json)> {
    (!list.is_empty()).then(|| (name, Json::Array(list)))
}

fn secrets(all: &[&Message]) -> Vec<Json> {
    let each = all.iter().map(|secret| {
        let secret = any(secret);
        json!({"name": secret["name"], "secret": secret})
    });
    each.collect()
}

/// A message as an `Any`: its fields behind its `@type`.
fn any(message: &Message) -> Json {
    let mut all = Map::new();
    all.insert("@type".to_owned(), json!(format!("{TYPE_URL_PREFIX}{}", message.type_name())));
    if let Json::Object(fields) = message_to_redacted_json(message) {
        all.extend(fields);
    }
    Json::Object(all)
}

fn messages<'m>(message: &'m Message, name: &str) -> Vec<&'m Message> {
    let Some(Value::List(items)) = message.value(name) else { return Vec::new() };
    let messages = items.iter().filter_map(|item| match &item.value {
        Value::Message(message) => Some(&**message),
        _ => None,
    });
    messages.collect()
}

/// The configurations of a listener's network filters.
fn filters(listener: &Message) -> impl Iterator<Item = &Message> {
    let chains = messages(listener, "filter_chains").into_iter().chain(listener.message("default_filter_chain"));
    let filters = chains.flat_map(|chain| messages(chain, "filters"));
    filters.filter_map(|filter| match filter.value("typed_config") {
        Some(Value::Any(any)) => any.message.as_ref(),
        _ => None,
    })
}

fn is_http(filter: &Message) -> bool {
    filter.type_name() == "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
}

/// The inline route tables of a listener's connection managers.
fn route_tables(listener: &Message) -> Vec<&Message> {
    filters(listener).filter_map(|config| config.message("route_config")).collect()
}
