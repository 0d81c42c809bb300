//! What modules read by path: what is known of a stream, of this proxy and of the plugin; and what they write for others.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use postrider_filter_api::cel::{Facts, Path, write_value};
use postrider_filter_api::{LifeSpan, ObjectKind, RouteTarget, StateRules, StreamInfo};
use postrider_model::{Node, Value};

use crate::data::{Data, Parts};
use crate::edits::Edit;
use crate::held::may_last;
use crate::message;
use crate::status::{BAD_ARGUMENT, INTERNAL_FAILURE, NOT_FOUND, SERIALIZATION_FAILURE};

/// Most paths that a machine keeps read: a module uses a handful.
const KEPT: usize = 256;

/// Most properties that a plugin declares.
const MAX_DECLARED: usize = 1000;

/// What modules write goes under this name.
const PREFIX: &str = "wasm.";

/// Paths that were read before.
#[derive(Default)]
pub(crate) struct Paths {
    known: HashMap<Vec<u8>, Rc<Property>>,
    /// What `declare_property` said for a stream: it holds for nothing, and is said once, as in Envoy.
    pub(crate) declared_by_streams: Vec<(u32, String)>,
}

/// What is declared of what a module writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Rules {
    /// Written once.
    pub(crate) read_only: bool,
    /// Later requests of the connection find it.
    pub(crate) lasts: bool,
}

/// Where a path leads.
enum Property {
    Stream(Path),
    /// Metadata as the message that it is.
    Message(Path),
    /// The node as the message that it is.
    WholeNode,
    /// Where the upstream's host is, as the message that it is.
    WholeLocality,
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

/// How much of that there is.
pub(crate) fn raw_bytes(info: &StreamInfo) -> usize {
    let raw = info.shared.iter().find_map(|shared| shared.downcast_ref::<Raw>());
    raw.map_or(0, |raw| {
        raw.0.borrow().iter().map(|(name, bytes)| name.len() + bytes.len() + size_of::<(String, Vec<u8>)>()).sum()
    })
}

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
            ["upstream", "locality"] => Property::WholeLocality,
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
    // Nothing has no name, even where a module wrote it.
    if path.is_empty() {
        return Err(SERIALIZATION_FAILURE);
    }
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
        Property::WholeLocality => {
            let scratch = &mut data.scratch;
            let place = data.present.parts(&mut data.contexts, target, |parts| facts(&parts).upstream_place());
            let Some(place) = place.flatten() else { return false };
            message::locality(place, scratch);
            true
        }
        Property::Stream(path) => {
            let scratch = &mut data.scratch;
            data.present.parts(&mut data.contexts, target, |parts| path.write(&facts(&parts), scratch)).unwrap_or(false)
        }
        Property::ClusterName => {
            let scratch = &mut data.scratch;
            let written = data.present.parts(&mut data.contexts, target, |parts| {
                let name = cluster(&parts);
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
        weighted: parts.weighted,
        server_name: parts.info.requested_server_name().or(parts.server_name),
    }
}

/// The cluster that the request went to, that its route names, or that was drawn of several.
fn cluster<'a>(parts: &Parts<'a>) -> Option<&'a str> {
    match (&parts.info.upstream_cluster, parts.route.map(|route| &route.target)) {
        (Some(name), _) => Some(name),
        (None, Some(RouteTarget::Cluster(name))) => Some(name),
        (None, Some(RouteTarget::Weighted(names))) => {
            names.get(parts.weighted?).map(|name| &**name).filter(|name| !name.is_empty())
        }
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
    // What is no text is in the filter state as far as it can be read.
    if let Some(lasting) =
        lasting(info, name, |_, bytes| std::str::from_utf8(bytes).is_err().then(|| bytes.to_vec())).flatten()
    {
        out.extend_from_slice(&lasting);
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

/// What `act` makes of what the connection has of an earlier request by that name, or of this one.
fn lasting<T>(info: &StreamInfo, name: &str, act: impl FnOnce(StateRules, &[u8]) -> T) -> Option<T> {
    info.connection.as_ref()?.lasting.kept(&format!("{PREFIX}{name}"), act)
}

/// Has later requests of the connection find it.
fn keep(info: &StreamInfo, name: &str, kind: ObjectKind, value: &[u8], read_only: bool) {
    if let Some(noted) = &info.connection {
        noted.lasting.keep(name, kind, value, StateRules { read_only, span: LifeSpan::Connection, shared: false });
    }
}

/// Says what holds for a property before streams write it.
///
/// # Errors
/// It was said before, or by too many.
pub(crate) fn declare(data: &mut Data, name: String, rules: Rules) -> Result<(), u32> {
    let target = data.target();
    if let Some(root) = data.contexts.root(target) {
        if root.declared.len() >= MAX_DECLARED || root.declared.iter().any(|(known, _)| *known == name) {
            return Err(BAD_ARGUMENT);
        }
        root.declared.push((name, rules));
        return Ok(());
    }
    let Data { contexts, paths, .. } = data;
    paths.declared_by_streams.retain(|(id, _)| contexts.get(*id).is_some());
    let all = &mut paths.declared_by_streams;
    if all.len() >= MAX_DECLARED || all.iter().any(|(id, known)| *id == target && *known == name) {
        return Err(BAD_ARGUMENT);
    }
    all.push((target, name));
    Ok(())
}

/// Writes a property of the stream, at hand or waiting.
///
/// # Errors
/// There is no stream, it is written once and was, or the stream or its connection holds too much.
pub(crate) fn write(data: &mut Data, path: &[u8], value: &[u8]) -> Result<(), u32> {
    let name = String::from_utf8_lossy(path).into_owned();
    if !data.may_hold(name.len() + value.len()) {
        return Err(INTERNAL_FAILURE);
    }
    let declared = data.root().and_then(|(_, root)| root.declared.iter().find(|(known, _)| *known == name));
    let rules = declared.map(|(_, rules)| *rules).unwrap_or_default();
    let is_fixed = |info: &StreamInfo| {
        let was_fixed = lasting(info, &name, |kept, _| kept.read_only).unwrap_or(false);
        was_fixed || rules.read_only && find_written(info, &name, &mut Vec::new())
    };
    let target = data.target();
    let Data { present, contexts, limiter, .. } = data;
    let check = |info: &StreamInfo| {
        if is_fixed(info) {
            return Err(BAD_ARGUMENT);
        }
        let lasts = rules.lasts || lasting(info, &name, |_, _| ()).is_some();
        let fits = !lasts || may_last(info, &format!("{PREFIX}{name}"), value.len(), limiter);
        if fits { Ok(()) } else { Err(INTERNAL_FAILURE) }
    };
    let at_hand = present.info(target, |info| {
        check(info)?;
        put(info, &name, value, rules);
        Ok(())
    });
    let waiting = contexts.stream(target);
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
            Some(kept) => {
                check(&kept.info)?;
                stream.later(Edit::Property(name, value.to_owned(), rules))
            }
        },
        (None, None) => Err(NOT_FOUND),
    }
}

/// A text goes into the stream's filter state, where logs and expressions find it; other bytes where modules alone do.
pub(crate) fn put(info: &mut StreamInfo, name: &str, value: &[u8], rules: Rules) {
    let raw = info.shared.iter().find_map(|shared| shared.clone().downcast::<Raw>().ok());
    if let Some(raw) = &raw {
        raw.0.borrow_mut().retain(|(known, _)| known != name);
    }
    // What lasts is changed where it is, whatever is declared of it now.
    let before = lasting(info, name, |kept, _| kept.read_only);
    if rules.lasts || before.is_some() {
        let name = format!("{PREFIX}{name}");
        keep(info, &name, ObjectKind::Text, value, before.unwrap_or(rules.read_only));
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

/// Makes an object of the filter state for other filters. `false` for a text that none of that name can be made of. One that
/// lives longer stays as it is, as in Envoy.
pub(crate) fn put_state(info: &mut StreamInfo, name: &str, value: &str, rules: Rules) -> bool {
    let Some(kind) = ObjectKind::of(name) else { return false };
    let of_connection = info.connection.as_ref().is_some_and(|noted| {
        noted.state.iter().any(|(known, _)| known == name) || noted.lasting.kept(name, |_, _| ()).is_some()
    });
    if of_connection && !rules.lasts {
        return kind.make(value.as_bytes()).is_some();
    }
    let is_made = info.make_state(name, kind, value.as_bytes(), false);
    if is_made && rules.lasts {
        keep(info, name, kind, value.as_bytes(), false);
    }
    is_made
}
