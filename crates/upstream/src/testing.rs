//! What tests of hosts begin with.

use std::cell::Cell;
use std::rc::Rc;

use postrider_model::{Address, Endpoint, EndpointHealth};

use crate::{OnPanic, Surroundings};

/// The number of picks in a panic, of a cluster with these surroundings.
pub(crate) fn counting_panics() -> (Rc<Cell<u64>>, Surroundings) {
    let counted = Rc::new(Cell::new(0));
    let counting = counted.clone();
    let panics = OnPanic::new(move || counting.set(counting.get() + 1));
    (counted, Surroundings { panics, ..Surroundings::default() })
}

/// A healthy endpoint on this port, of which nothing else is said.
pub(crate) fn endpoint(port: u16) -> Endpoint {
    Endpoint {
        address: Address::Tcp(([127, 0, 0, 1], port).into()),
        additional: Vec::new(),
        hostname: String::new(),
        weight: 1,
        priority: 0,
        health: EndpointHealth::Healthy,
        leaving: None,
        check: None,
        place: None,
        hash_key: None,
        metadata: None,
    }
}
