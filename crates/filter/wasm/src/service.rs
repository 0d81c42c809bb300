//! A plugin that runs without any listener: its root context has ticks, calls, queues and statistics, and no stream. It may be told of
//! the statistics of the proxy.

use std::cell::RefCell;
use std::rc::Rc;

use postrider_filter_api::{CallHandle, Host, Service};

use crate::program::Failure;
use crate::seat::Seat;

/// It is there as long as this lives.
pub(crate) struct Resident {
    seat: Rc<Seat>,
    host: Rc<dyn Host>,
    /// The next look at the machine, where one that failed is to be made again: no stream asks for it.
    look: RefCell<Option<CallHandle>>,
}

impl Resident {
    pub(crate) fn begin(seat: Rc<Seat>, host: &Rc<dyn Host>) -> Rc<dyn Service> {
        let resident = Rc::new(Resident { seat, host: host.clone(), look: RefCell::default() });
        resident.look_later();
        resident
    }

    fn look_later(self: &Rc<Self>) {
        let Failure::Reload(base, _) = self.seat.plugin.failure else { return };
        let resident = Rc::downgrade(self);
        let look = move || {
            if let Some(resident) = resident.upgrade() {
                // What goes wrong is in the log.
                let _ = resident.seat.machine(&|| resident.host.now());
                resident.look_later();
            }
        };
        // The handle of a look that is under way is dropped by it: it has nothing to abandon any more.
        *self.look.borrow_mut() = Some(self.host.after(base, Box::new(look)));
    }
}

impl Service for Resident {
    fn on_statistics(&self, update: &[u8]) {
        // Nobody is to be answered: what is amiss with the machine is in the log.
        let Ok(machine) = self.seat.machine(&|| self.host.now()) else { return };
        let began = self.seat.begin(&*self.host);
        match machine.vm.tell_statistics(machine.root, update.to_vec()) {
            Ok(()) => {
                let took = began.map(|began| self.host.now().saturating_duration_since(began));
                self.seat.ended(None, took, &machine);
            }
            Err(fault) => self.seat.fault(None, &fault, self.host.now()),
        }
    }
}
