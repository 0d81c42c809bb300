//! Requests that wait until a connection comes free, in the order in which they came.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::Waker;

#[derive(Debug, Default)]
pub(crate) struct Queue(RefCell<VecDeque<Rc<Waiter>>>);

/// Somebody in the queue for a connection.
#[derive(Debug, Default)]
pub struct Waiter {
    waker: RefCell<Option<Waker>>,
    called: Cell<bool>,
}

impl Waiter {
    /// It is this one's turn to try again. Otherwise the waker is kept for when it is.
    pub fn is_called(&self, waker: &Waker) -> bool {
        if !self.called.get() {
            let mut kept = self.waker.borrow_mut();
            if !kept.as_ref().is_some_and(|kept| kept.will_wake(waker)) {
                *kept = Some(waker.clone());
            }
        }
        self.called.get()
    }
}

impl Queue {
    /// Takes a place at the end of the queue for a connection.
    pub(crate) fn wait(&self) -> Rc<Waiter> {
        let waiter = Rc::new(Waiter::default());
        self.0.borrow_mut().push_back(waiter.clone());
        waiter
    }

    /// Leaves the queue. One that was called and does not use its turn passes it on.
    pub(crate) fn leave(&self, waiter: &Rc<Waiter>) {
        if waiter.called.get() {
            self.call_next();
        } else {
            self.0.borrow_mut().retain(|other| !Rc::ptr_eq(other, waiter));
        }
    }

    /// A connection came free or ended: the first in the queue may try again.
    pub(crate) fn call_next(&self) {
        let next = self.0.borrow_mut().pop_front();
        if let Some(waiter) = next {
            waiter.called.set(true);
            if let Some(waker) = waiter.waker.take() {
                waker.wake();
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_in_the_queue_is_never_lost() {
        let queue = Queue::default();
        let (first, second) = (queue.wait(), queue.wait());
        let waker = Waker::noop();
        assert!(!first.is_called(waker) && !second.is_called(waker));
        queue.call_next();
        assert!(first.is_called(waker) && !second.is_called(waker));
        queue.leave(&first);
        assert!(second.is_called(waker));
        assert!(queue.is_empty());
    }
}
