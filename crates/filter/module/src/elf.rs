//! What a module wants of the proxy, read from its file before it is loaded: a function that is not there would end the
//! process when it is called first, or keep the module from being loaded with a message of the system's.

use object::{Object, ObjectSymbol};

use crate::callbacks::{
    ABSENT, KNOWN, OF_CONNECTIONS, OF_LISTENER_CONFIGS, OF_NETWORK_CONFIGS, OF_NEWCOMERS, OF_NOTES, OF_RECORDS,
};
use crate::others::OTHERS;

/// What the names of the proxy's functions begin with.
const PREFIX: &str = "envoy_dynamic_module_callback_";

/// Names that a message lists.
const TOLD: usize = 8;

/// # Errors
/// It is no shared object, or it wants functions that the proxy does not have, by their names.
pub(crate) fn check(content: &[u8]) -> Result<(), String> {
    let file = object::File::parse(content).map_err(|error| format!("no shared object: {error}"))?;
    let wanted = file.dynamic_symbols().filter(|symbol| symbol.is_undefined());
    let unknown: Vec<&str> = wanted
        .filter_map(|symbol| symbol.name().ok())
        .filter(|name| name.starts_with(PREFIX) && OTHERS.binary_search(name).is_err())
        .filter(|name| {
            let all = [
                KNOWN,
                ABSENT,
                OF_NOTES,
                OF_RECORDS,
                OF_CONNECTIONS,
                OF_NETWORK_CONFIGS,
                OF_NEWCOMERS,
                OF_LISTENER_CONFIGS,
            ];
            all.iter().all(|known| !known.contains(name))
        })
        .collect();
    if unknown.is_empty() {
        return Ok(());
    }
    let mut names = unknown.get(..TOLD).unwrap_or(&unknown).join(", ");
    if unknown.len() > TOLD {
        names.push_str(&format!(" and {} more", unknown.len() - TOLD));
    }
    Err(format!("the module needs functions that this proxy does not have: {names}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_shared_object_is_told() {
        assert!(check(b"#!/bin/sh").unwrap_err().starts_with("no shared object"));
    }

    #[test]
    fn the_list_of_names_is_sorted() {
        assert!(OTHERS.is_sorted());
    }
}
