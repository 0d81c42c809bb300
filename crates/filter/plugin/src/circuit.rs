//! When a plugin that keeps failing is left alone.
//!
//! ```text
//!            faults within the window              retry is over: one call goes through
//!  closed ───────────────────────────────> open ───────────────────────────────────────> trial
//!    ^                                       ^                                             │ │
//!    └───────────── it succeeds ─────────────┼─────────────────────────────────────────────┘ │
//!                                            └────────────────── it fails ───────────────────┘
//! ```

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use postrider_filter_api::Moment;
use postrider_filter_api::plugin::CircuitRule;

/// The circuit of one plugin on one worker. It has no clock: each call brings the moment.
#[derive(Debug)]
pub struct Circuit {
    rule: CircuitRule,
    state: Cell<State>,
    /// Faults within the window, oldest first; never more than the rule needs to open.
    recent: RefCell<VecDeque<Moment>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Closed,
    /// Until then nobody calls.
    Open(Moment),
    /// One call is under way; if nothing is heard of it until then, another one may try.
    Trial(Moment),
}

impl Circuit {
    pub fn new(rule: CircuitRule) -> Circuit {
        Circuit { rule, state: Cell::new(State::Closed), recent: RefCell::default() }
    }

    /// Whether nothing is wrong: then [`Circuit::is_open`] need not be asked, which wants the time.
    #[inline]
    pub fn is_closed(&self) -> bool {
        self.state.get() == State::Closed
    }

    /// Whether the plugin must not be called now. Asked once before each call: the first `false` after an opening is the
    /// trial's.
    pub fn is_open(&self, now: Moment) -> bool {
        match self.state.get() {
            State::Closed => false,
            State::Open(until) | State::Trial(until) if now < until => true,
            State::Open(_) | State::Trial(_) => {
                self.state.set(State::Trial(now + self.rule.retry));
                false
            }
        }
    }

    /// A call failed. Whether that opened the circuit just now.
    pub fn fault(&self, now: Moment) -> bool {
        match self.state.get() {
            // Calls that began before the opening end when they end.
            State::Open(_) => return false,
            State::Closed if !self.is_one_too_many(now) => return false,
            State::Closed | State::Trial(_) => {}
        }
        self.state.set(State::Open(now + self.rule.retry));
        self.recent.borrow_mut().clear();
        true
    }

    /// A call ended well. Answers whether that closed it.
    pub fn succeed(&self) -> bool {
        let tried = matches!(self.state.get(), State::Trial(_));
        if tried {
            self.state.set(State::Closed);
        }
        tried
    }

    fn is_one_too_many(&self, now: Moment) -> bool {
        let limit = self.rule.faults as usize;
        if limit == 0 {
            return false;
        }
        let mut recent = self.recent.borrow_mut();
        while recent.front().is_some_and(|first| now.saturating_duration_since(*first) > self.rule.window) {
            recent.pop_front();
        }
        recent.push_back(now);
        recent.len() >= limit
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const RULE: CircuitRule =
        CircuitRule { faults: 3, window: Duration::from_secs(10), retry: Duration::from_secs(5), kills_only: false };

    fn at(seconds: u64) -> Moment {
        Moment::from_nanos(seconds * 1_000_000_000)
    }

    fn opened_at_zero(circuit: &Circuit) {
        assert_eq!([0, 1, 2].map(|_| circuit.fault(at(0))), [false, false, true]);
    }

    #[test]
    fn faults_within_the_window_open_it_and_older_ones_do_not_count() {
        let circuit = Circuit::new(RULE);
        assert!(!circuit.fault(at(0)) && !circuit.fault(at(1)));
        assert!(!circuit.fault(at(11)), "the one at 0 is too old, the one at 1 is not");
        assert!(!circuit.is_open(at(11)));
        assert!(circuit.fault(at(11)));
        assert!(circuit.is_open(at(11)) && circuit.is_open(at(15)));
        assert!(!circuit.fault(at(12)), "it is open already");
    }

    #[test]
    fn one_call_tries_and_its_success_closes_it() {
        let circuit = Circuit::new(RULE);
        opened_at_zero(&circuit);
        assert!(!circuit.is_open(at(5)), "the trial");
        assert!(circuit.is_open(at(5)) && circuit.is_open(at(9)), "nobody else");
        assert!(circuit.succeed());
        assert!(!circuit.is_open(at(9)));
        assert!(!circuit.fault(at(9)) && !circuit.fault(at(9)), "it counts from nothing");
        assert!(circuit.fault(at(9)));
    }

    #[test]
    fn a_failed_trial_opens_it_again_at_once() {
        let circuit = Circuit::new(RULE);
        opened_at_zero(&circuit);
        assert!(!circuit.is_open(at(6)));
        assert!(circuit.fault(at(7)));
        assert!(circuit.is_open(at(11)));
        assert!(!circuit.is_open(at(12)));
    }

    #[test]
    fn a_trial_that_is_never_heard_of_does_not_keep_it_open_for_good() {
        let circuit = Circuit::new(RULE);
        opened_at_zero(&circuit);
        assert!(!circuit.is_open(at(5)));
        assert!(circuit.is_open(at(9)));
        assert!(!circuit.is_open(at(10)), "another one tries");
    }

    #[test]
    fn a_success_between_faults_changes_nothing_and_zero_faults_never_open() {
        let circuit = Circuit::new(RULE);
        circuit.fault(at(0));
        circuit.fault(at(0));
        assert!(!circuit.succeed(), "there was no trial");
        assert!(circuit.fault(at(1)));
        let never = Circuit::new(CircuitRule { faults: 0, ..RULE });
        assert!((0..1000).all(|_| !never.fault(at(0))));
        assert!(!never.is_open(at(0)));
    }
}
