//! Access logs that are told to a module: its root context is asked for each record, with the stream at hand.

use std::rc::Rc;

use postrider_filter_api::{AccessLogger, Ended, Host, Logged};

use crate::data::At;
use crate::seat::{Absent, Seat};

pub(crate) struct Telling {
    /// `None` while the code is not here.
    pub(crate) seat: Option<Rc<Seat>>,
    pub(crate) host: Rc<dyn Host>,
}

impl AccessLogger for Telling {
    fn log(&self, record: &Ended<'_>, http: bool, _: Option<&[u8]>) {
        // As Envoy does: what is not over is not told.
        if !matches!(record.info.logged, Logged::End | Logged::OfListener(_)) {
            return;
        }
        // Without a machine there is nobody to tell, whatever the failure policy says.
        let Some(seat) = &self.seat else { return };
        let Ok(machine) = seat.machine(&|| self.host.now()) else {
            // A record is not told; nobody is turned away.
            return seat.missed(record.route, Absent::Bypassed);
        };
        let Some(function) = &machine.vm.functions.on_log else { return };
        let began = seat.begin(&*self.host);
        match machine.vm.enter(machine.root, At::Record(record, http), function, machine.root) {
            Ok(()) => {
                let took = began.map(|began| self.host.now().saturating_duration_since(began));
                seat.ended(record.route, took, &machine);
            }
            Err(fault) => seat.fault(record.route, &fault, self.host.now()),
        }
    }
}
