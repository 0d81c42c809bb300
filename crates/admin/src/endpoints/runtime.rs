//! `/runtime` and `/runtime_modify`: values by keys, and how they are changed while the process runs.

use crate::control::Control;
use crate::request::Request;
use crate::response::Reply;
use hyper::StatusCode;
use serde_json::{Map, json};

const USAGE: &str = "usage: /runtime_modify?key1=value1&key2=value2&keyN=valueN\n       or send the parameters as form values\n\
                     use an empty value to remove a previously added override";

/// Every key with its value in each layer; the last layer that has one counts.
pub(super) fn runtime(control: &dyn Control, _: &Request) -> Reply {
    let status = control.runtime();
    let entries = status.entries.into_iter().map(|(key, values)| {
        let last = values.iter().rfind(|value| !value.is_empty()).cloned().unwrap_or_default();
        (key, json!({ "final_value": last, "layer_values": values }))
    });
    let entries: Map<_, _> = entries.collect();
    Reply::json(&json!({ "layers": status.layers, "entries": entries }))
}

/// The values are in force when it answers.
pub(super) fn modify(control: &dyn Control, request: &Request) -> Reply {
    if request.query.is_empty() {
        return Reply::bad_request(USAGE);
    }
    match control.modify_runtime(request.query.clone()) {
        Ok(()) => Reply::done(),
        Err(reason) => Reply::refusal(StatusCode::SERVICE_UNAVAILABLE, reason),
    }
}
