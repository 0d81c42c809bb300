//! When a plugin that keeps failing is left alone.
//!
//! ```text
//!            faults within the window              retry is over: one call goes through
//!  closed ───────────────────────────────> open ───────────────────────────────────────> trial
//!    ^                                       ^                                             │ │
//!    └───────────── it succeeds ─────────────┼─────────────────────────────────────────────┘ │
//!                                            └────────────────── it fails ───────────────────┘
//! ```
//!
//! Calls that use up their CPU time are counted apart: while one runs, its worker does nothing else, so one is enough to open
//! it unless the rule says otherwise. Calls that wait when that happens do not go on: each might do the same.

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
    /// Those of them that used up their CPU time, likewise.
    overruns: RefCell<VecDeque<Moment>>,
    /// Rises whenever such calls open it, or are seen while it is open.
    era: Cell<Era>,
}

/// Tells calls that began before an opening by [`Circuit::overrun`] from those that began after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Era(u32);

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
        Circuit {
            rule,
            state: Cell::new(State::Closed),
            recent: RefCell::default(),
            overruns: RefCell::default(),
            era: Cell::default(),
        }
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
            State::Closed if !self.is_one_too_many(&self.recent, self.rule.faults, now) => return false,
            State::Closed | State::Trial(_) => {}
        }
        self.open(now);
        true
    }

    /// A call failed because it used up its CPU time. Whether that opened the circuit just now.
    pub fn overrun(&self, now: Moment) -> bool {
        let was_open = matches!(self.state.get(), State::Open(_));
        let is_enough = was_open || self.is_one_too_many(&self.overruns, self.rule.cpu_kills, now);
        if self.rule.cpu_kills > 0 && is_enough {
            self.era.set(Era(self.era.get().0.wrapping_add(1)));
        }
        if !was_open && is_enough {
            self.open(now);
            return true;
        }
        self.fault(now)
    }

    /// For a call that begins now and may wait.
    #[inline]
    pub fn era(&self) -> Era {
        self.era.get()
    }

    /// Whether a call that began in that era and waited must not go on.
    #[inline]
    pub fn cuts(&self, began: Era) -> bool {
        self.era.get() != began && !self.is_closed()
    }

    fn open(&self, now: Moment) {
        self.state.set(State::Open(now + self.rule.retry));
        self.recent.borrow_mut().clear();
        self.overruns.borrow_mut().clear();
    }

    /// A call ended well. Answers whether that closed it.
    pub fn succeed(&self) -> bool {
        let tried = matches!(self.state.get(), State::Trial(_));
        if tried {
            self.state.set(State::Closed);
        }
        tried
    }

    /// Whether `recent` comes to `limit` within the window with what happens now.
    fn is_one_too_many(&self, recent: &RefCell<VecDeque<Moment>>, limit: u32, now: Moment) -> bool {
        let limit = limit as usize;
        if limit == 0 {
            return false;
        }
        let mut recent = recent.borrow_mut();
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

    const RULE: CircuitRule = CircuitRule {
        faults: 3,
        cpu_kills: 1,
        window: Duration::from_secs(10),
        retry: Duration::from_secs(5),
        kills_only: false,
    };

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
        let never = Circuit::new(CircuitRule { faults: 0, cpu_kills: 0, ..RULE });
        assert!((0..1000).all(|_| !never.fault(at(0)) && !never.overrun(at(0))));
        assert!(!never.is_open(at(0)));
    }

    #[test]
    fn one_call_that_used_up_its_time_opens_it_and_cuts_those_that_wait() {
        let circuit = Circuit::new(RULE);
        let waits = circuit.era();
        assert!(!circuit.cuts(waits));
        assert!(circuit.overrun(at(0)));
        assert!(circuit.is_open(at(0)) && circuit.cuts(waits));
        assert!(!circuit.is_open(at(5)), "the trial");
        let trial = circuit.era();
        assert!(!circuit.cuts(trial) && circuit.cuts(waits), "the trial may wait, too");
        assert!(circuit.overrun(at(6)), "it did so again");
        assert!(circuit.cuts(trial));
        assert!(!circuit.is_open(at(11)) && circuit.succeed());
        assert!(!circuit.cuts(waits), "it is trusted again");
    }

    #[test]
    fn a_rule_may_want_several_such_calls_within_the_window_or_count_them_as_faults_only() {
        let two = Circuit::new(CircuitRule { cpu_kills: 2, ..RULE });
        assert!(!two.overrun(at(0)) && !two.overrun(at(11)), "the one at 0 is too old");
        assert!(two.overrun(at(12)));
        let faults = Circuit::new(CircuitRule { cpu_kills: 0, ..RULE });
        let waits = faults.era();
        assert!(!faults.overrun(at(0)) && !faults.fault(at(0)));
        assert!(faults.overrun(at(0)), "the third fault");
        assert!(!faults.cuts(waits));
        let alone = Circuit::new(CircuitRule { faults: 0, ..RULE });
        assert!(!alone.fault(at(0)) && alone.overrun(at(0)));
    }

    #[test]
    fn what_waits_is_cut_also_when_errors_opened_it_first() {
        let circuit = Circuit::new(RULE);
        let waits = circuit.era();
        opened_at_zero(&circuit);
        assert!(!circuit.cuts(waits), "errors hold nobody up");
        assert!(!circuit.overrun(at(1)), "it is open already");
        assert!(circuit.cuts(waits));
    }
}
