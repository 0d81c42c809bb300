//! A message that a filter took over: whose turn it is to say what goes on.

use std::task::{Poll, Waker};

use postrider_filter_api::Resumer;

use super::passage::Hook;

/// A filter that took the message over.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) place: usize,
    /// Ends the filter's wait.
    pub(super) resumer: Resumer,
    pub(super) turn: Turn,
    /// All of the message came to it, and this was the last of it.
    pub(super) came: Option<Hook>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// The filter is to be asked.
    Asked,
    Wants,
    Waits,
    /// Nothing more comes from it.
    Finished,
}

impl Taken {
    pub(super) fn new(place: usize) -> Taken {
        Taken { place, resumer: Resumer::default(), turn: Turn::Asked, came: None }
    }

    /// Something came to it.
    pub(super) fn ask(&mut self) {
        if self.turn != Turn::Finished {
            self.turn = Turn::Asked;
        }
    }

    /// Whose turn it is; `waker` is woken when that changes.
    pub(super) fn poll(&mut self, waker: &Waker) -> Turn {
        if self.turn != Turn::Finished && self.resumer.poll(waker) == Poll::Ready(()) {
            self.turn = Turn::Asked;
        }
        self.turn
    }
}
