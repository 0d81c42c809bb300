//! The connections of a filter chain, for the moment when they have to end whatever they are at.

use std::cell::RefCell;
use std::collections::HashSet;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::rc::Rc;

/// The descriptors of open sockets: each is here for as long as its socket holds it open.
#[derive(Debug, Default)]
pub(crate) struct Connections(RefCell<HashSet<RawFd>>);

impl Connections {
    pub(super) fn enroll(self: &Rc<Self>, socket: &impl AsFd) -> Enrolled {
        let number = socket.as_fd().as_raw_fd();
        self.0.borrow_mut().insert(number);
        Enrolled { connections: self.clone(), number }
    }

    /// Breaks all that are open, whose tasks see that at once and clean up. How many there were.
    pub(crate) fn end(&self) -> usize {
        let open = self.0.borrow();
        open.iter().for_each(|&number| postrider_sys::break_connection(number));
        open.len()
    }
}

/// A place among them, which ends with this.
#[derive(Debug)]
pub(super) struct Enrolled {
    connections: Rc<Connections>,
    number: RawFd,
}

impl Drop for Enrolled {
    fn drop(&mut self) {
        self.connections.0.borrow_mut().remove(&self.number);
    }
}
