//! What ends the waits of a stream's two messages.

use std::cell::RefCell;

use postrider_filter_api::Resumer;

/// One direction of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Request,
    Response,
}

impl From<Side> for postrider_filter_trial::Side {
    fn from(side: Side) -> postrider_filter_trial::Side {
        match side {
            Side::Request => postrider_filter_trial::Side::Request,
            Side::Response => postrider_filter_trial::Side::Response,
        }
    }
}

impl Side {
    pub(crate) const BOTH: [Side; 2] = [Side::Request, Side::Response];
}

#[derive(Debug, Default)]
pub(crate) struct Bells {
    request: RefCell<Option<Resumer>>,
    response: RefCell<Option<Resumer>>,
}

impl Bells {
    fn of(&self, side: Side) -> &RefCell<Option<Resumer>> {
        match side {
            Side::Request => &self.request,
            Side::Response => &self.response,
        }
    }

    /// This side waits.
    pub(crate) fn hang(&self, side: Side, resumer: &Resumer) {
        *self.of(side).borrow_mut() = Some(resumer.clone());
    }

    /// It does not: ringing would end the wait of another filter.
    pub(crate) fn take_down(&self, side: Side) {
        self.of(side).borrow_mut().take();
    }

    /// Whoever waits for this side looks again.
    pub(crate) fn ring(&self, side: Side) {
        let resumer = self.of(side).borrow_mut().take();
        if let Some(resumer) = resumer {
            resumer.resume();
        }
    }
}
