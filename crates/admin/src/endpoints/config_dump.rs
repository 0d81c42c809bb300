//! `/config_dump`: what is loaded, in Envoy's form, whole or in part.

use super::endpoint_dump;
use super::stats::regex;
use crate::control::Control;
use crate::request::Request;
use crate::response::Reply;
use hyper::StatusCode;
use regex::Regex;
use serde_json::{Map, Value, json};

pub(super) const PARAMETERS: &[(&str, &str)] = &[
    ("resource", "The resource to dump: a repeated field of a section, as static_clusters"),
    ("mask", "Field paths to keep, separated by commas: of each section, or of each element of the resource"),
    ("name_regex", "Dump only the configurations whose names match the regular expression as a whole"),
    ("include_eds", "Dump the endpoints of the clusters as well"),
];

/// The repeated fields of Envoy's dumps: name, message of an element, and where an element has its name. Those that we
/// have nothing for are empty, as in an Envoy without control plane.
const RESOURCES: &[(&str, &str, &str)] = &[
    ("static_clusters", "ClustersConfigDump.StaticCluster", "cluster"),
    ("dynamic_active_clusters", "ClustersConfigDump.DynamicCluster", "cluster"),
    ("dynamic_warming_clusters", "ClustersConfigDump.DynamicCluster", "cluster"),
    (ENDPOINTS, "EndpointsConfigDump.StaticEndpointConfig", "endpoint_config"),
    (DYNAMIC_ENDPOINTS, "EndpointsConfigDump.DynamicEndpointConfig", "endpoint_config"),
    ("static_listeners", "ListenersConfigDump.StaticListener", "listener"),
    ("dynamic_listeners", "ListenersConfigDump.DynamicListener", ""),
    ("static_route_configs", "RoutesConfigDump.StaticRouteConfig", "route_config"),
    ("dynamic_route_configs", "RoutesConfigDump.DynamicRouteConfig", "route_config"),
    ("inline_scoped_route_configs", "ScopedRoutesConfigDump.InlineScopedRouteConfigs", ""),
    ("dynamic_scoped_route_configs", "ScopedRoutesConfigDump.DynamicScopedRouteConfigs", ""),
    ("static_secrets", "SecretsConfigDump.StaticSecret", ""),
    ("dynamic_active_secrets", "SecretsConfigDump.DynamicSecret", ""),
    ("dynamic_warming_secrets", "SecretsConfigDump.DynamicSecret", ""),
];

/// The other fields of Envoy's dumps.
const PLAIN_FIELDS: &[(&str, &str)] = &[
    ("BootstrapConfigDump", "bootstrap"),
    ("BootstrapConfigDump", "last_updated"),
    ("ClustersConfigDump", "version_info"),
    ("ListenersConfigDump", "version_info"),
];

/// The section of endpoints stands behind those of bootstrap and clusters.
const ENDPOINTS_PLACE: usize = 2;

/// Of which there are none where nobody asks for them.
const ENDPOINTS: &str = "static_endpoint_configs";
const DYNAMIC_ENDPOINTS: &str = "dynamic_endpoint_configs";

const MESSAGES: &str = "type.googleapis.com/envoy.admin.v3.";
const TYPE: &str = "@type";

pub(super) fn config_dump(control: &dyn Control, request: &Request) -> Reply {
    match configs(control, request) {
        Ok(configs) if configs.is_empty() => Reply::json(&Value::Object(Map::new())),
        Ok(configs) => Reply::json(&json!({ "configs": configs })),
        // As Envoy says it here, and only here.
        Err(refusal) => refusal.without_charset(),
    }
}

fn configs(control: &dyn Control, request: &Request) -> Result<Vec<Value>, Reply> {
    let name = request.parameter("name_regex").map(name_pattern).transpose()?;
    let mut dump = control.config_dump();
    if request.has("include_eds") {
        let place = dump.len().min(ENDPOINTS_PLACE);
        dump.insert(place, endpoint_dump::section(&control.clusters()));
    }
    let mask = request.parameter("mask");
    match request.parameter("resource") {
        Some(resource) => elements(&dump, resource, mask, name.as_ref()),
        None => sections(dump, mask, name.as_ref()),
    }
}

/// A name must match as a whole.
fn name_pattern(pattern: &str) -> Result<Regex, Reply> {
    let failed = |reason| {
        Reply::bad_request(format!("INVALID_ARGUMENT: Error while parsing name_regex from {pattern}: {reason}"))
    };
    // First by itself: an error is to show what was asked for.
    regex(pattern).map_err(failed)?;
    regex(&format!("^(?:{pattern})$")).map_err(failed)
}

/// The elements of one repeated field, each with its type.
fn elements(dump: &[Value], resource: &str, mask: Option<&str>, name: Option<&Regex>) -> Result<Vec<Value>, Reply> {
    let field = dump.iter().find_map(|section| section.get(resource));
    let has_endpoints = dump.iter().any(|section| section.get(ENDPOINTS).is_some());
    let known = RESOURCES.iter().find(|(known, _, _)| *known == resource);
    let elements = match (field, known) {
        (Some(Value::Array(elements)), Some(_)) => elements.as_slice(),
        (None, Some(_)) if has_endpoints || ![ENDPOINTS, DYNAMIC_ENDPOINTS].contains(&resource) => &[],
        (Some(_), _) => {
            let message = format!("{resource} is not a repeated field. Use ?mask={resource} to get only this field");
            return Err(Reply::bad_request(message));
        }
        (None, _) => {
            return Err(Reply::refusal(StatusCode::NOT_FOUND, format!("{resource} not found in config dump")));
        }
    };
    let Some(&(_, message, named)) = known else { return Ok(Vec::new()) };
    let chosen = elements.iter().filter(|element| name.is_none_or(|name| is_named(element, named, name)));
    let mut out = Vec::new();
    for element in chosen {
        let masked = match mask {
            Some(mask) => keep(element, mask)
                .ok_or_else(|| Reply::bad_request(format!("FieldMask {mask} could not be successfully used.\n")))?,
            None => element.clone(),
        };
        let mut typed = Map::new();
        typed.insert(TYPE.into(), json!(format!("{MESSAGES}{message}")));
        if let Value::Object(fields) = masked {
            typed.extend(fields.into_iter().filter(|(key, _)| key != TYPE));
        }
        out.push(Value::Object(typed));
    }
    Ok(out)
}

/// The sections; with a mask, those to which it applies.
fn sections(dump: Vec<Value>, mask: Option<&str>, name: Option<&Regex>) -> Result<Vec<Value>, Reply> {
    let mut dump = dump;
    if let Some(name) = name {
        for section in &mut dump {
            for (resource, _, named) in RESOURCES {
                if let Some(Value::Array(elements)) = section.get_mut(*resource) {
                    elements.retain(|element| is_named(element, named, name));
                }
            }
        }
    }
    let Some(mask) = mask else { return Ok(dump) };
    let masked: Vec<Value> = dump.iter().filter_map(|section| keep_of_section(section, mask)).collect();
    if masked.is_empty() {
        let message = format!("FieldMask {mask} could not be successfully applied to any configs.");
        return Err(Reply::bad_request(message));
    }
    Ok(masked)
}

fn is_named(element: &Value, named: &str, name: &Regex) -> bool {
    let holder = if named.is_empty() { Some(element) } else { element.get(named) };
    let found = holder.and_then(|holder| holder.get("name").or_else(|| holder.get("cluster_name"))?.as_str());
    found.is_some_and(|found| name.is_match(found))
}

/// What a field mask keeps of a section; nothing when a path of it leads to no field of such a section, as in Envoy.
fn keep_of_section(section: &Value, mask: &str) -> Option<Value> {
    let kind = section.get(TYPE)?.as_str()?.strip_prefix(MESSAGES)?;
    let is_list = |field: &str| {
        RESOURCES.iter().any(|(known, message, _)| *known == field && message.split('.').next() == Some(kind))
    };
    let leads_somewhere = |path: &str| match path.split_once('.') {
        Some((field, _)) => PLAIN_FIELDS.contains(&(kind, field)),
        None => PLAIN_FIELDS.contains(&(kind, path)) || is_list(path),
    };
    if !paths(mask).all(leads_somewhere) {
        return None;
    }
    // A field that is not set is none, where it is known to be one.
    let has_known_only = paths(mask).all(|path| !path.contains('.'));
    keep(section, mask).or_else(|| has_known_only.then(|| json!({ TYPE: section.get(TYPE) })))
}

/// What a field mask (`a.b,c`) keeps of an object, types included; nothing when no path leads to a field. As in protobuf, a
/// path does not go into a list, and no path at all keeps everything.
fn keep(value: &Value, mask: &str) -> Option<Value> {
    if paths(mask).next().is_none() {
        return Some(value.clone());
    }
    let mut out = Value::Object(Map::new());
    let mut found = false;
    for path in paths(mask) {
        found |= copy(value, &mut out, path);
    }
    found.then_some(out)
}

fn paths(mask: &str) -> impl Iterator<Item = &str> {
    mask.split(',').map(str::trim).filter(|path| !path.is_empty())
}

fn copy(from: &Value, to: &mut Value, path: &str) -> bool {
    let (Value::Object(from), Value::Object(to)) = (from, to) else { return false };
    let (field, rest) = path.split_once('.').map_or((path, None), |(field, rest)| (field, Some(rest)));
    let Some(value) = from.get(field) else { return false };
    if let Some(kind) = from.get(TYPE) {
        to.entry(TYPE).or_insert_with(|| kind.clone());
    }
    let Some(rest) = rest else {
        to.insert(field.into(), value.clone());
        return true;
    };
    if !value.is_object() {
        return false;
    }
    copy(value, to.entry(field).or_insert_with(|| Value::Object(Map::new())), rest)
}
