//! A plugin that runs without any listener: its root context has ticks, calls, queues and statistics, and no stream.

use std::any::Any;
use std::cell::RefCell;
use std::rc::Rc;

use postrider_filter_api::{CallHandle, Host};

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
    pub(crate) fn begin(seat: Rc<Seat>, host: &Rc<dyn Host>) -> Rc<dyn Any> {
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
