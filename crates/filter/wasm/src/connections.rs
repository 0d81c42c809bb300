//! Filters of connections: the hooks of the bytes' contract on one side, entries into a module on the other.
//!
//! ```text
//! begins    proxy_on_context_create, proxy_on_new_connection
//! bytes     proxy_on_downstream_data from the client, proxy_on_upstream_data to it; a status other than 0 stops them
//! ends      proxy_on_upstream_connection_close behind the last byte to the client,
//!           proxy_on_downstream_connection_close, proxy_on_done, proxy_on_log, proxy_on_delete
//! ```
//!
//! A connection whose machine failed ends, as in Envoy, even where the plugin fails open.

use std::rc::Rc;

use postrider_filter_api::{ClosedBy, Connection, NetworkFilter, NetworkSession, Passage};
use wasmtime::TypedFunc;

use crate::contexts::{Kind, Tied};
use crate::data::{Flow, Link};
use crate::held::Held;
use crate::seat::{Absent, Machine, Seat};
use crate::vm::Fault;

/// A plugin as a chain sees it.
pub(crate) struct Watching {
    pub(crate) seat: Rc<Seat>,
}

/// What stands in a plugin's place whose code is not here.
pub(crate) struct Closing {
    /// No connection is served; otherwise all pass by.
    pub(crate) all: bool,
}

impl NetworkFilter for Closing {
    fn begin(&self, _: &mut Connection<'_>) -> Option<Box<dyn NetworkSession>> {
        self.all.then(|| Box::new(Refused) as Box<_>)
    }
}

impl NetworkFilter for Watching {
    fn begin(&self, connection: &mut Connection<'_>) -> Option<Box<dyn NetworkSession>> {
        let machine = match self.seat.machine(&|| connection.host.now()) {
            Ok(machine) => machine,
            Err(absent) => {
                self.seat.missed(None, absent);
                return matches!(absent, Absent::Failing(_)).then(|| Box::new(Refused) as Box<_>);
            }
        };
        if !machine.vm.functions.sees_connections() {
            return None;
        }
        let handle = connection.handle.clone();
        let kind = Kind::Connection(Tied { handle, stops_down: false, stops_up: false, held: Held::default() });
        let id = machine.vm.with(|data| data.contexts.add(machine.root, kind))?;
        Some(Box::new(Session { seat: self.seat.clone(), serial: machine.vm.serial, id, created: false }))
    }
}

/// A connection that is not to be served.
struct Refused;

impl NetworkSession for Refused {
    fn on_connection(&mut self, connection: &mut Connection<'_>) -> Passage {
        connection.handle.close();
        Passage::Stop
    }
}

/// A connection of a module's.
struct Session {
    seat: Rc<Seat>,
    /// Of the machine that it began in.
    serial: u32,
    /// Its context there.
    id: u32,
    /// The module knows about it.
    created: bool,
}

impl NetworkSession for Session {
    fn on_connection(&mut self, connection: &mut Connection<'_>) -> Passage {
        let id = self.id;
        self.created = true;
        self.enter(connection, None, |machine, link| {
            machine.vm.create(id, machine.root, link.at())?;
            match &machine.vm.functions.on_new_connection {
                Some(function) => machine.vm.enter(id, link.at(), function, id),
                None => Ok(0),
            }
        })
    }

    fn on_received(&mut self, connection: &mut Connection<'_>, data: &mut Vec<u8>, end: bool) -> Passage {
        let id = self.id;
        self.enter(connection, Some((Flow::Down, data)), |machine, link| {
            tell(machine, id, machine.vm.functions.on_downstream_data.as_ref(), link, end)
        })
    }

    fn on_sent(&mut self, connection: &mut Connection<'_>, data: &mut Vec<u8>, end: bool) -> Passage {
        /// The ABI's word for an end that nobody knows more about.
        const UNKNOWN: u32 = 0;
        let id = self.id;
        self.enter(connection, Some((Flow::Up, data)), |machine, link| {
            let functions = &machine.vm.functions;
            let status = tell(machine, id, functions.on_upstream_data.as_ref(), link, end)?;
            if let Some(function) = functions.on_upstream_close.as_ref().filter(|_| end) {
                machine.vm.enter(id, link.at(), function, (id, UNKNOWN))?;
            }
            Ok(status)
        })
    }

    fn on_closed(&mut self, connection: &mut Connection<'_>, by: ClosedBy) {
        let Some(machine) = self.seat.alive(self.serial) else { return };
        let (id, functions) = (self.id, &machine.vm.functions);
        let by = match by {
            ClosedBy::Proxy => 1,
            ClosedBy::Client => 2,
        };
        if self.created {
            self.enter(connection, None, |machine, link| {
                if let Some(function) = &functions.on_downstream_close {
                    machine.vm.enter(id, link.at(), function, (id, by))?;
                }
                if let Some(function) = &functions.on_done {
                    machine.vm.enter(id, link.at(), function, id)?;
                }
                if let Some(function) = &functions.on_log {
                    machine.vm.enter(id, link.at(), function, id)?;
                }
                machine.vm.delete(id, link.at())?;
                Ok(0)
            });
        }
        // Its machine may go with this: not while it is in hand.
        drop(machine.vm.with(|data| data.contexts.remove(id)));
    }
}

impl Session {
    /// Calls the module about the connection; one whose machine failed ends.
    fn enter(
        &self,
        connection: &mut Connection<'_>,
        data: Option<(Flow, &mut Vec<u8>)>,
        call: impl FnOnce(&Machine, &mut Link<'_, '_>) -> Result<u32, Fault>,
    ) -> Passage {
        let Some(machine) = self.seat.alive(self.serial) else {
            connection.handle.close();
            return Passage::Stop;
        };
        let began = self.seat.begin(connection.host);
        let flow = data.as_ref().map(|(flow, _)| *flow);
        let called = call(&machine, &mut Link { connection, data });
        match called {
            Ok(status) => {
                self.note(&machine, flow, status != 0);
                let took = began.map(|began| connection.host.now().saturating_duration_since(began));
                self.seat.ended(None, took, &machine);
                if status == 0 { Passage::Continue } else { Passage::Stop }
            }
            Err(fault) => {
                self.seat.fault(None, &fault, connection.host.now());
                connection.handle.close();
                Passage::Stop
            }
        }
    }

    /// What the module stopped it may see while it waits.
    fn note(&self, machine: &Machine, flow: Option<Flow>, stops: bool) {
        machine.vm.with(|data| {
            let tied = data.contexts.tied(self.id)?;
            match flow? {
                Flow::Down => tied.stops_down = stops,
                Flow::Up => tied.stops_up = stops,
            }
            Some(())
        });
    }
}

/// Tells a module of bytes, as many as are held.
fn tell(
    machine: &Machine,
    id: u32,
    function: Option<&TypedFunc<(u32, u32, u32), u32>>,
    link: &mut Link<'_, '_>,
    end: bool,
) -> Result<u32, Fault> {
    let Some(function) = function else { return Ok(0) };
    let length = link.data.as_ref().map_or(0, |(_, held)| held.len());
    let length = u32::try_from(length).unwrap_or(u32::MAX);
    machine.vm.enter(id, link.at(), function, (id, length, u32::from(end)))
}
