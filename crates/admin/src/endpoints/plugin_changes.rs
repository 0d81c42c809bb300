//! `/plugins/NAME`: one plugin, its manifest, and how both are changed while the process runs. Ours.

use super::{not_from_a_page, plugins};
use crate::control::{Control, PluginRefused};
use crate::request::{Request, decode_segment};
use crate::response::Reply;
use hyper::StatusCode;
use serde_json::json;

/// `plugin` is its name as it stands in the path.
pub(super) fn answer(control: &dyn Control, request: &Request, plugin: &str, from_a_page: bool) -> Reply {
    let name = decode_segment(plugin);
    if name.is_empty() || plugin.contains('/') {
        return Reply::refusal(StatusCode::NOT_FOUND, "a plugin has a name: /plugins/NAME\n");
    }
    let manifest = match request.method.as_str() {
        "GET" | "HEAD" => return show(control, &name),
        "PUT" | "POST" => match std::str::from_utf8(&request.body) {
            Ok(text) => Some(text.to_owned()),
            Err(error) => return Reply::bad_request(format!("the manifest is no UTF-8: {error}\n")),
        },
        "DELETE" => None,
        method => {
            let message = format!("Method {method} not allowed.");
            return Reply::refusal(StatusCode::METHOD_NOT_ALLOWED, message).allowing("GET, HEAD, PUT, POST, DELETE");
        }
    };
    if from_a_page {
        return not_from_a_page();
    }
    match control.change_plugin(&name, manifest) {
        Ok(()) => Reply::done(),
        Err(PluginRefused::Invalid(words)) => Reply::bad_request(words),
        Err(PluginRefused::InUse(words)) => Reply::refusal(StatusCode::CONFLICT, words),
        Err(PluginRefused::Unknown(words)) => Reply::refusal(StatusCode::NOT_FOUND, words),
        Err(PluginRefused::Busy(words)) => Reply::refusal(StatusCode::SERVICE_UNAVAILABLE, words),
    }
}

fn show(control: &dyn Control, name: &str) -> Reply {
    match (plugins::one(control, name), control.manifest(name)) {
        (None, None) => Reply::refusal(StatusCode::NOT_FOUND, format!("there is no plugin `{name}`\n")),
        (plugin, manifest) => {
            let mut shown = plugin.unwrap_or_else(|| json!({ "name": name }));
            shown["manifest"] = json!(manifest);
            Reply::json(&shown)
        }
    }
}
