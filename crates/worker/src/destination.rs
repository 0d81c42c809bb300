//! Hosts of a cluster whose endpoints nobody lists: each connection or request has its own destination, and the host for it
//! is made when it is first needed (Envoy's `ORIGINAL_DST`).

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use postrider_filter_api::{Moment, StreamInfo};
use postrider_http::RequestHead;
use postrider_model::{Address, Endpoint, EndpointHealth, OriginalDestination, Value};

use crate::cluster::{Cluster, Host};
use crate::worker::Worker;
use postrider_telemetry::stats::sets::cluster as stat;

/// The hosts that somebody needed lately.
pub(crate) struct Destinations {
    model: OriginalDestination,
    hosts: RefCell<HashMap<SocketAddr, Destination>>,
}

struct Destination {
    host: Rc<Host>,
    used: Cell<Moment>,
}

impl Destinations {
    pub(crate) fn new(model: &OriginalDestination) -> Destinations {
        Destinations { model: model.clone(), hosts: RefCell::default() }
    }

    /// The host at `address`.
    fn at(&self, address: SocketAddr, now: Moment, on_new: impl FnOnce(&Endpoint)) -> Rc<Host> {
        let make = || {
            let endpoint = endpoint(address);
            on_new(&endpoint);
            Destination { host: Rc::new(Host::alone(endpoint)), used: Cell::new(now) }
        };
        let mut hosts = self.hosts.borrow_mut();
        let destination = hosts.entry(address).or_insert_with(make);
        destination.used.set(now);
        destination.host.clone()
    }

    /// Forgets hosts that nobody needed for long. Connections keep theirs, as in Envoy.
    pub(crate) fn sweep(&self, now: Moment) {
        self.hosts.borrow_mut().retain(|_, destination| {
            let unused = now.saturating_duration_since(destination.used.get()) >= self.model.forget_after;
            !unused || destination.host.connections.get() > 0
        });
    }

    pub(crate) fn each_host(&self, mut visit: impl FnMut(&Host)) {
        self.hosts.borrow().values().for_each(|destination| visit(&destination.host));
    }

    /// Ends with everything; pools hold their host and it holds them.
    pub(crate) fn clear(&self) {
        self.hosts.take().values().for_each(|destination| drop(destination.host.retire()));
    }
}

impl Cluster {
    /// Where a request, or a connection without one, was meant to go, in a cluster that has no endpoints of its own. `meant`
    /// is the destination of the client's connection, where that is known to be another than ours. An object of the filter
    /// state comes before that, then metadata, then a header.
    #[cold]
    pub(crate) fn destination(
        &self,
        request: Option<&RequestHead>,
        meant: Option<SocketAddr>,
        info: Option<&StreamInfo>,
        worker: &Worker,
    ) -> Option<Rc<Host>> {
        let destinations = self.destinations.as_ref()?;
        let counts = |endpoint: &Endpoint| self.count_transport(endpoint, None, worker);
        let at = |address| destinations.at(address, worker.clock.now(), counts);
        let object = info.and_then(|info| info.upstream_objects.as_ref()?.destination);
        if let Some(mut address) = object {
            address.set_port(destinations.model.port.unwrap_or(address.port()));
            return Some(at(address));
        }
        let read = |text: &[u8]| {
            let address = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
            if address.is_none() {
                self.stats(worker).inc(stat::ORIGINAL_DST_HOST_INVALID);
            }
            address
        };
        let noted = || match info?.metadata_at(destinations.model.noted_at.as_ref()?)? {
            Value::String(text) => read(text.as_bytes()),
            Value::List(values) => match values.first()? {
                Value::String(text) => read(text.as_bytes()),
                _ => None,
            },
            _ => None,
        };
        let named = || {
            let (name, request) = destinations.model.header.as_ref().zip(request)?;
            read(request.fields.get_name(name.as_bytes())?)
        };
        let mut address: SocketAddr = noted().or_else(named).or(meant)?;
        if let Some(port) = destinations.model.port {
            address.set_port(port);
        }
        Some(at(address))
    }
}

fn endpoint(address: SocketAddr) -> Arc<Endpoint> {
    Arc::new(Endpoint {
        address: Address::Tcp(address),
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
    })
}
