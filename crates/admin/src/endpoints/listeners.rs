//! `/listeners`: where the proxy listens.

use crate::control::Control;
use crate::request::Request;
use crate::response::Reply;
use postrider_model::Address;
use serde_json::{Value, json};
use std::fmt::Write;

pub(super) const PARAMETERS: &[(&str, &str)] = &[("format", "File format to use; One of (text, json)")];

pub(super) fn listeners(control: &dyn Control, request: &Request) -> Reply {
    let listeners = control.listeners();
    if request.parameter("format") == Some("json") {
        let statuses = listeners.iter().map(|listener| {
            let mut status = json!({ "name": listener.name, "local_address": address(&listener.address) });
            if !listener.additional_addresses.is_empty() {
                status["additional_local_addresses"] = listener.additional_addresses.iter().map(address).collect();
            }
            status
        });
        return Reply::json(&json!({ "listener_statuses": statuses.collect::<Vec<_>>() }));
    }
    let mut out = String::new();
    for listener in &listeners {
        for address in std::iter::once(&listener.address).chain(&listener.additional_addresses) {
            // Writing to a String cannot fail.
            let _ = writeln!(out, "{}::{address}", listener.name);
        }
    }
    Reply::text(out)
}

/// As Envoy's `core.v3.Address`.
pub(super) fn address(address: &Address) -> Value {
    match address {
        Address::Tcp(address) => {
            json!({ "socket_address": { "address": address.ip().to_string(), "port_value": address.port() } })
        }
        Address::Unix { path, .. } => json!({ "pipe": { "path": path.display().to_string() } }),
    }
}
