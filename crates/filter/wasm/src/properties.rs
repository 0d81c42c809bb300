//! What modules read by path: what is known of a stream, of this proxy and of the plugin; and what they write for others.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use postrider_filter_api::cel::{Facts, Path, write_value};
use postrider_filter_api::{ObjectKind, RouteFacts, StreamInfo};
use postrider_model::cel::Expression;
use postrider_model::{Node, Value};

use crate::data::{Data, Parts};
use crate::edits::Edit;
use crate::message;
use crate::status::{BAD_ARGUMENT, NOT_FOUND, SERIALIZATION_FAILURE};

/// Most paths that a machine keeps read: a module uses a handful.
const KEPT: usize = 256;

/// What modules write goes under this name.
const PREFIX: &str = "wasm.";

/// Paths that were read before.
#[derive(Default)]
pub(crate) struct Paths {
    known: HashMap<Vec<u8>, Rc<Property>>,
    /// What `declare_property` said: those that are written once.
    pub(crate) write_once: Vec<String>,
    /// What `expr_create` read, by number.
    pub(crate) expressions: Vec<(u32, Expression)>,
}

/// Where a path leads.
enum Property {
    Stream(Path),
    /// Metadata as the message that it is.
    Message(Path),
    /// The node as the message that it is.
    WholeNode,
    /// A group of properties, which is no value itself.
    Group,
    /// The stream's cluster, which may not have been reached yet.
    ClusterName,
    Node(Vec<String>),
    PluginName,
    PluginRootId,
    PluginVmId,
    Direction(Path),
    /// What a module wrote.
    Written(String),
    Nothing,
}

/// What stands in front of properties.
const GROUPS: [&str; 7] = ["request", "response", "connection", "source", "destination", "upstream", "xds"];

/// What modules wrote that is no text.
#[derive(Default)]
struct Raw(RefCell<Vec<(String, Vec<u8>)>>);

impl Property {
    fn read(path: &[u8]) -> Property {
        let Ok(path) = std::str::from_utf8(path) else { return Property::Nothing };
        // SDKs may close each word by a zero.
        let words: Vec<&str> = path.strip_suffix('\0').unwrap_or(path).split('\0').collect();
        match words.as_slice() {
            ["plugin_name"] => Property::PluginName,
            ["plugin_root_id"] => Property::PluginRootId,
            ["plugin_vm_id"] => Property::PluginVmId,
            ["cluster_name"] | ["xds", "cluster_name"] => Property::ClusterName,
            words @ (["listener_direction"] | ["xds", "listener_direction"]) => {
                Path::parse(words).map_or(Property::Nothing, Property::Direction)
            }
            ["node"] | ["xds", "node"] => Property::WholeNode,
            ["node", rest @ ..] | ["xds", "node", rest @ ..] => {
                Property::Node(rest.iter().map(|word| (*word).to_owned()).collect())
            }
            words => match (Path::parse(words), words) {
                (Some(path), _) => Property::Stream(path),
                (None, [group]) if GROUPS.contains(group) => Property::Group,
                (None, [.., name]) if name.ends_with("metadata") => {
                    let inside: Vec<&str> = words.iter().copied().chain(["filter_metadata"]).collect();
                    Path::parse(&inside).map_or(Property::Nothing, Property::Message)
                }
                (None, [name]) => Property::Written((*name).to_owned()),
                (None, _) => Property::Nothing,
            },
        }
    }
}

/// Puts the value at `path` into `scratch`.
///
/// # Errors
/// There is none, or it cannot be handed over.
pub(crate) fn read(data: &mut Data, path: &[u8]) -> Result<(), u32> {
    data.scratch.clear();
    let property = match data.paths.known.get(path) {
        Some(known) => known.clone(),
        None => {
            let property = Rc::new(Property::read(path));
            if data.paths.known.len() >= KEPT {
                data.paths.known.clear();
            }
            data.paths.known.insert(path.to_owned(), property.clone());
            property
        }
    };
    if matches!(*property, Property::Group) {
        return Err(SERIALIZATION_FAILURE);
    }
    if find(data, &property) { Ok(()) } else { Err(NOT_FOUND) }
}

fn find(data: &mut Data, property: &Property) -> bool {
    let target = data.target();
    match property {
        Property::Message(path) => {
            let scratch = &mut data.scratch;
            let written = data.present.parts(&mut data.contexts, target, |parts| {
                let metadata = path.metadata(&facts(&parts))?;
                message::metadata(&metadata, scratch);
                Some(())
            });
            written.flatten().is_some()
        }
        Property::WholeNode => {
            let Some(node) = data.with_host(|host| host.node()) else { return false };
            message::node(&node, &mut data.scratch);
            true
        }
        Property::Stream(path) => {
            let scratch = &mut data.scratch;
            data.present.parts(&mut data.contexts, target, |parts| path.write(&facts(&parts), scratch)).unwrap_or(false)
        }
        Property::ClusterName => {
            let scratch = &mut data.scratch;
            let written = data.present.parts(&mut data.contexts, target, |parts| {
                let name = cluster(parts.info, parts.route);
                name.map(|name| scratch.extend_from_slice(name.as_bytes())).is_some()
            });
            written.unwrap_or(false)
        }
        Property::Written(name) => {
            let scratch = &mut data.scratch;
            data.present
                .parts(&mut data.contexts, target, |parts| find_written(parts.info, name, scratch))
                .unwrap_or(false)
        }
        Property::Node(words) => {
            let Some(node) = data.with_host(|host| host.node()) else { return false };
            write_node(&node, words, &mut data.scratch)
        }
        Property::PluginName => with_plugin(data, |plugin| plugin.facts.name.clone()),
        Property::PluginRootId => with_plugin(data, |plugin| plugin.root_id.clone()),
        Property::PluginVmId => {
            let program = data.program.clone();
            data.scratch.extend_from_slice(program.vm_id.as_bytes());
            true
        }
        Property::Direction(path) => {
            let scratch = &mut data.scratch;
            let found = data.present.parts(&mut data.contexts, target, |parts| path.write(&facts(&parts), scratch));
            // Outside of streams nothing is said of it: `UNSPECIFIED`.
            if found != Some(true) {
                data.scratch.extend_from_slice(&0i64.to_le_bytes());
            }
            true
        }
        Property::Group | Property::Nothing => false,
    }
}

pub(crate) fn facts<'a>(parts: &Parts<'a>) -> Facts<'a> {
    Facts {
        request: parts.request,
        response: parts.response,
        trailers: Some(parts.response_trailers),
        info: parts.info,
        route: parts.route,
        server_name: parts.info.tls.as_ref().and_then(|tls| tls.server_name.as_deref()).or(parts.server_name),
    }
}

/// The cluster that the request went to, or that its route names.
fn cluster<'a>(info: &'a StreamInfo, route: Option<&'a RouteFacts>) -> Option<&'a str> {
    match (&info.upstream_cluster, route.map(|route| &route.target)) {
        (Some(name), _) => Some(name),
        (None, Some(postrider_filter_api::RouteTarget::Cluster(name))) => Some(name),
        _ => None,
    }
}

fn with_plugin(data: &mut Data, part: impl FnOnce(&crate::program::Plugin) -> String) -> bool {
    let Some(text) = data.root().map(|(_, root)| part(&root.plugin)) else { return false };
    data.scratch.extend_from_slice(text.as_bytes());
    true
}

fn write_node(node: &Node, words: &[String], out: &mut Vec<u8>) -> bool {
    let text = |text: &str, out: &mut Vec<u8>| {
        out.extend_from_slice(text.as_bytes());
        true
    };
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["id"] => text(&node.id, out),
        ["cluster"] => text(&node.cluster, out),
        ["locality", "region"] => text(&node.region, out),
        ["locality", "zone"] => text(&node.zone, out),
        ["locality", "sub_zone"] => text(&node.sub_zone, out),
        ["metadata", rest @ ..] => {
            let mut value = &node.metadata;
            for word in rest {
                let next = match value {
                    Value::Map(entries) => entries.iter().find(|(key, _)| key == word).map(|(_, value)| value),
                    Value::List(items) => word.parse().ok().and_then(|index: usize| items.get(index)),
                    _ => None,
                };
                let Some(next) = next else { return false };
                value = next;
            }
            write_value(value, None, out)
        }
        _ => false,
    }
}

fn find_written(info: &StreamInfo, name: &str, out: &mut Vec<u8>) -> bool {
    let raw = info.shared.iter().find_map(|shared| shared.downcast_ref::<Raw>());
    if let Some(raw) = raw
        && let Some((_, bytes)) = raw.0.borrow().iter().find(|(known, _)| known == name)
    {
        out.extend_from_slice(bytes);
        return true;
    }
    let is_it = |(known, _): &&(String, Value)| known.strip_prefix(PREFIX) == Some(name);
    match info.filter_state.iter().find(is_it) {
        Some((_, Value::String(text))) => {
            out.extend_from_slice(text.as_bytes());
            true
        }
        _ => false,
    }
}

/// Writes a property of the stream, at hand or waiting.
///
/// # Errors
/// There is no stream, or it is written once and was.
pub(crate) fn write(data: &mut Data, path: &[u8], value: &[u8]) -> Result<(), u32> {
    let name = String::from_utf8_lossy(path).into_owned();
    let once = data.paths.write_once.contains(&name);
    let is_written = |info: &StreamInfo| once && find_written(info, &name, &mut Vec::new());
    let target = data.target();
    let at_hand = data.present.info(target, |info| {
        if is_written(info) {
            return Err(BAD_ARGUMENT);
        }
        put(info, &name, value);
        Ok(())
    });
    let waiting = data.contexts.stream(target);
    match (at_hand, waiting) {
        (Some(written), waiting) => {
            if let Some(stream) = waiting {
                // What others see of it is copied anew if it stops again.
                stream.kept = None;
            }
            written
        }
        (None, Some(stream)) => match &stream.kept {
            None => Err(NOT_FOUND),
            Some(kept) if is_written(&kept.info) => Err(BAD_ARGUMENT),
            Some(_) => stream.later(Edit::Property(name, value.to_owned())),
        },
        (None, None) => Err(NOT_FOUND),
    }
}

/// A text goes into the stream's filter state, where logs and expressions find it; other bytes where modules alone do.
pub(crate) fn put(info: &mut StreamInfo, name: &str, value: &[u8]) {
    let raw = info.shared.iter().find_map(|shared| shared.clone().downcast::<Raw>().ok());
    if let Some(raw) = &raw {
        raw.0.borrow_mut().retain(|(known, _)| known != name);
    }
    match std::str::from_utf8(value) {
        Ok(text) => info.set_state(&format!("{PREFIX}{name}"), Value::String(text.to_owned())),
        Err(_) => {
            let raw = raw.unwrap_or_else(|| {
                let raw = Rc::new(Raw::default());
                info.shared.push(raw.clone());
                raw
            });
            raw.0.borrow_mut().push((name.to_owned(), value.to_owned()));
        }
    }
}

/// Puts a text into the filter state under its own name. `false` for one that the object of that name cannot be made of.
pub(crate) fn put_state(info: &mut StreamInfo, name: &str, value: &str) -> bool {
    match ObjectKind::of(name) {
        Some(kind) => info.make_state(name, kind, value.as_bytes(), false),
        None => {
            info.set_state(name, Value::String(value.to_owned()));
            true
        }
    }
}
