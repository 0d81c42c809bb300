//! The adapter: the filter contract's hooks on one side, entries into a module on the other.
//!
//! ```text
//! status     head                           piece of a body, gathered or not      trailers
//! Continue   goes on                        goes on                               go on
//! other      everything pauses ¹            held until the module says go on      everything pauses
//!
//! ¹ with `allow_on_headers_stop_iteration`, `StopIteration` lets pieces of the body come to the module meanwhile
//! ```
//!
//! A module that can let streams go on by itself takes over the messages whose bodies it looks at (`Course`), so that it
//! can do so between two pieces. For one that cannot, what is stopped is held where it is.

use std::rc::Rc;
use std::time::Duration;

use postrider_filter_api::{Action, Ended, Filter, Flow, Hooks, LocalReply, Moment, State, Stream, StreamInfo};
use postrider_filter_trial::observe;

use crate::asked::Phase;
use crate::contexts::{Half, Kind, Passing};
use crate::data::At;
use crate::flow::Verdict;
use crate::maps::View;
use crate::replies::{closed, failure, of_module, too_large};
use crate::seat::{Absent, Machine, Seat};
use crate::side::{Side, held};
use crate::vm::{Fault, OnHeaders};

/// A plugin as the pipeline sees it.
pub(crate) struct Hosted {
    pub(crate) seat: Rc<Seat>,
    pub(crate) hooks: Hooks,
    /// Bytes of a message that may be held.
    pub(crate) limit: usize,
    /// Between the router and a host, where a context stands for a try: what is logged is the request, and not that.
    pub(crate) is_upstream: bool,
}

/// A stream that this plugin has nothing to do with any more.
const DONE: State = State::Number(u64::MAX);

/// Which context a stream is, and in which machine.
fn number(machine: &Machine, context: u32) -> State {
    State::Number(u64::from(machine.vm.serial) << 32 | u64::from(context))
}

impl Filter for Hosted {
    fn hooks(&self) -> Hooks {
        self.hooks
    }

    fn on_request_headers(&self, state: &mut State, stream: &mut Stream<'_>, end: bool) -> Action {
        let machine = match self.machine(stream) {
            Ok(machine) => machine,
            Err(action) => {
                *state = DONE;
                return action;
            }
        };
        if !machine.vm.functions.sees_streams() {
            return Action::Done;
        }
        let kind = Kind::Stream(Passing::default());
        let Some(id) = machine.vm.with(|data| data.contexts.add(machine.root, kind)) else {
            return Action::Done;
        };
        *state = number(&machine, id);
        if let Err(fault) = machine.vm.create(id, machine.root, At::Stream(stream)) {
            return self.fail(state, stream, &fault);
        }
        self.on(Side::Request, Event::Head { end }, state, stream)
    }

    fn on_request_body(&self, state: &mut State, stream: &mut Stream<'_>, end: bool) -> Action {
        self.on(Side::Request, Event::Piece { end }, state, stream)
    }

    fn on_request_trailers(&self, state: &mut State, stream: &mut Stream<'_>) -> Action {
        self.on(Side::Request, Event::Trailers, state, stream)
    }

    fn on_request_resumed(&self, state: &mut State, stream: &mut Stream<'_>) -> Action {
        self.on(Side::Request, Event::Resumed, state, stream)
    }

    fn on_request_flow(&self, state: &mut State, stream: &mut Stream<'_>) -> Flow {
        self.flow(Side::Request, state, stream)
    }

    fn on_response_headers(&self, state: &mut State, stream: &mut Stream<'_>, end: bool) -> Action {
        self.on(Side::Response, Event::Head { end }, state, stream)
    }

    fn on_response_body(&self, state: &mut State, stream: &mut Stream<'_>, end: bool) -> Action {
        self.on(Side::Response, Event::Piece { end }, state, stream)
    }

    fn on_response_trailers(&self, state: &mut State, stream: &mut Stream<'_>) -> Action {
        self.on(Side::Response, Event::Trailers, state, stream)
    }

    fn on_response_resumed(&self, state: &mut State, stream: &mut Stream<'_>) -> Action {
        self.on(Side::Response, Event::Resumed, state, stream)
    }

    fn on_response_flow(&self, state: &mut State, stream: &mut Stream<'_>) -> Flow {
        self.flow(Side::Response, state, stream)
    }

    fn on_complete(&self, _: &mut State, _: &StreamInfo) {}

    fn on_ended(&self, state: &mut State, ended: &Ended<'_>) {
        let state = std::mem::take(state);
        let is_new = matches!(state, State::Empty);
        let known = if is_new { self.unseen(ended) } else { self.known(state) };
        let Some((machine, id)) = known else { return };
        let vm = &machine.vm;
        // What still waited is told without a stream: the module's calls go on although the stream does not.
        let left = vm.with(|data| {
            let stream = data.contexts.stream(id)?;
            stream.kept = None;
            Some(std::mem::take(&mut stream.inbox))
        });
        let functions = &vm.functions;
        let told = (|| {
            for delivery in left.flatten().into_iter().flatten() {
                vm.tell(delivery, At::Nowhere)?;
            }
            if is_new {
                vm.create(id, machine.root, At::Ended(ended))?;
            }
            if let Some(log) = functions.on_log.as_ref().filter(|_| !self.is_upstream) {
                vm.enter(id, At::Ended(ended), log, id)?;
            }
            if let Some(done) = &functions.on_done {
                vm.enter(id, At::Ended(ended), done, id)?;
            }
            vm.delete(id, At::Ended(ended))
        })();
        // Its machine may go with this: not while it is in hand.
        drop(vm.with(|data| data.contexts.remove(id)));
        if let Err(fault) = told {
            self.seat.fault(ended.route, &fault, ended.info.ended.unwrap_or(ended.info.started));
        }
    }
}

/// What happens at a hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    Head { end: bool },
    Piece { end: bool },
    Trailers,
    Resumed,
}

impl Hosted {
    /// The machine for a new stream, or what becomes of the stream without one.
    fn machine(&self, stream: &Stream<'_>) -> Result<Rc<Machine>, Action> {
        self.seat.machine(&|| stream.host.now()).map_err(|absent| {
            self.seat.missed(stream.route, absent);
            match absent {
                Absent::Bypassed => Action::Done,
                Absent::Failing(status) => Action::Respond(failure(status)),
            }
        })
    }

    /// The machine that a stream began in, and its context there; `None` when the stream is none of this plugin's.
    pub(crate) fn known(&self, state: State) -> Option<(Rc<Machine>, u32)> {
        let State::Number(number) = state else { return None };
        let machine = self.seat.alive(u32::try_from(number >> 32).ok()?)?;
        Some((machine, number as u32))
    }

    /// A context for a stream that was answered before it came here: as in Envoy, a module hears of its end all the same.
    #[cold]
    fn unseen(&self, ended: &Ended<'_>) -> Option<(Rc<Machine>, u32)> {
        if self.is_upstream {
            return None;
        }
        let machine = self.seat.machine(&|| ended.info.ended.unwrap_or(ended.info.started)).ok()?;
        if !machine.vm.functions.ends_streams() {
            return None;
        }
        let id = machine.vm.with(|data| data.contexts.add(machine.root, Kind::Stream(Passing::default())))?;
        Some((machine, id))
    }

    fn on(&self, side: Side, event: Event, state: &mut State, stream: &mut Stream<'_>) -> Action {
        let number = match state {
            State::Number(number) if *number != u64::MAX => *number,
            // The module saw no request: it sees no response either.
            _ => return Action::Done,
        };
        let Some((machine, id)) = self.known(State::Number(number)) else {
            return self.fail(state, stream, &Fault::Dead);
        };
        let began = self.seat.begin(stream.host);
        let action = match event {
            Event::Head { end } => self.on_head(side, &machine, id, stream, end),
            Event::Piece { end } => self.on_piece(side, &machine, id, stream, end),
            Event::Trailers => self.on_trailers(side, &machine, id, stream),
            Event::Resumed => self.on_resumed(side, &machine, id, stream),
        };
        match action {
            Ok(action) => {
                let took = began.map(|began| self.took(began, side, event, stream, &machine));
                self.seat.ended(stream.route, took, &machine);
                action
            }
            Err(fault) => self.fail(state, stream, &fault),
        }
    }

    /// How long a call took whose time is taken.
    #[inline(never)]
    fn took(&self, began: Moment, side: Side, event: Event, stream: &Stream<'_>, machine: &Machine) -> Duration {
        let took = stream.host.now().saturating_duration_since(began);
        if observe::is_on() {
            let in_body_hook = matches!(event, Event::Piece { .. });
            let memory = machine.vm.memory();
            observe::note(observe::Event::Ran { side: side.into(), in_body_hook, took, memory });
        }
        took
    }

    /// The machine failed with this stream in hand.
    #[cold]
    pub(crate) fn fail(&self, state: &mut State, stream: &Stream<'_>, fault: &Fault) -> Action {
        *state = DONE;
        if *fault != Fault::Dead {
            self.seat.fault(stream.route, fault, stream.host.now());
        }
        match self.seat.answers_faults() {
            Some(status) => Action::Respond(failure(status)),
            None => Action::Done,
        }
    }

    fn on_head(
        &self,
        side: Side,
        machine: &Machine,
        id: u32,
        stream: &mut Stream<'_>,
        end: bool,
    ) -> Result<Action, Fault> {
        let functions = &machine.vm.functions;
        let (function, view) = match side {
            Side::Request => (&functions.on_request_headers, View::Request(stream.request)),
            Side::Response => (&functions.on_response_headers, View::Response(stream.response)),
        };
        let status = match function.as_ref().filter(|_| self.seat.wants(side, Phase::Head)) {
            None => 0,
            Some(function) => {
                let count = view.count();
                self.open(machine, id, side.headers());
                match function {
                    OnHeaders::Count(function) => machine.vm.enter(id, At::Stream(stream), function, (id, count))?,
                    OnHeaders::CountAndEnd(function) => {
                        machine.vm.enter(id, At::Stream(stream), function, (id, count, u32::from(end)))?
                    }
                }
            }
        };
        // What a head waits with that stops alone: pieces of its body come meanwhile.
        let alone = status == 1 && self.seat.plugin.stops_heads_alone && !end;
        let stopped = !matches!(status, 0 | 2);
        Ok(self.settle(side, machine, id, stream, Some(side.headers()), stopped, |hosted, half, stream, stopped| {
            match stopped {
                true if alone => hosted.take(half, stream),
                true => {
                    half.head_waits = Some(end);
                    hosted.pause(half, stream)
                }
                false => hosted.after_head(half, side, machine, end),
            }
        }))
    }

    /// A head that goes on, with what follows it.
    pub(crate) fn after_head(&self, half: &mut Half, side: Side, machine: &Machine, end: bool) -> Action {
        if end || !self.looks_at_bodies(side, machine) || !machine.vm.program.analysis.continues_streams {
            return Action::Continue;
        }
        half.course = Some(Box::default());
        Action::Take
    }

    fn looks_at_bodies(&self, side: Side, machine: &Machine) -> bool {
        let functions = &machine.vm.functions;
        match side {
            Side::Request => functions.on_request_body.is_some() && self.seat.wants(side, Phase::Body),
            Side::Response => functions.on_response_body.is_some() && self.seat.wants(side, Phase::Body),
        }
    }

    fn take(&self, half: &mut Half, stream: &Stream<'_>) -> Action {
        half.course = Some(Box::default());
        half.bell = Some(stream.resumer.clone());
        Action::Take
    }

    pub(crate) fn pause(&self, half: &mut Half, stream: &Stream<'_>) -> Action {
        half.bell = Some(stream.resumer.clone());
        Action::Pause
    }

    /// What a call of the module's comes to: an answer, an end, or what `go` says.
    fn settle(
        &self,
        side: Side,
        machine: &Machine,
        id: u32,
        stream: &mut Stream<'_>,
        map: Option<u32>,
        stopped: bool,
        go: impl FnOnce(&Hosted, &mut Half, &Stream<'_>, bool) -> Action,
    ) -> Action {
        let settled = machine.vm.with(|data| {
            let passing = data.contexts.stream(id)?;
            if let Some(reply) = passing.reply.take() {
                return Some(Action::Respond(of_module(reply, stream.info)));
            }
            if passing.closed {
                return Some(Action::Respond(closed()));
            }
            let half = side.half(passing);
            // It stopped and let go on at once: as if it had not stopped.
            let goes_on = !stopped || std::mem::take(&mut half.continued);
            half.stopped = !goes_on;
            if goes_on {
                half.continued = false;
                half.bell = None;
            }
            let action = go(self, half, stream, !goes_on);
            if goes_on && let Some(map) = map {
                passing.maps &= !(1 << map);
            }
            passing.keep(stream, map.is_some(), machine.vm.program.analysis.turns);
            Some(action)
        });
        settled.flatten().unwrap_or(Action::Done)
    }

    /// The module may look at this map from now on.
    fn open(&self, machine: &Machine, id: u32, map: u32) {
        machine.vm.with(|data| {
            if let Some(passing) = data.contexts.stream(id) {
                passing.maps |= 1 << map;
            }
        });
    }

    fn on_piece(
        &self,
        side: Side,
        machine: &Machine,
        id: u32,
        stream: &mut Stream<'_>,
        end: bool,
    ) -> Result<Action, Fault> {
        let functions = &machine.vm.functions;
        let function = match side {
            Side::Request => &functions.on_request_body,
            Side::Response => &functions.on_response_body,
        };
        let function = function.as_ref().filter(|_| self.seat.wants(side, Phase::Body));
        let mut is_too_large = false;
        let length = machine.vm.with(|data| {
            let passing = data.contexts.stream(id)?;
            let half = side.half(passing);
            let held = held(side, stream);
            half.editable = true;
            Some(match &mut half.course {
                Some(course) => {
                    let gathers = course.gathers();
                    course.take(held);
                    course.ended |= end;
                    is_too_large = gathers && course.window.len() > self.limit;
                    course.window.len()
                }
                None => {
                    // What it let go on since is not shown again.
                    if std::mem::take(&mut half.continued) {
                        half.hidden = half.kept;
                    }
                    half.kept = held.bytes().len();
                    half.kept.saturating_sub(half.hidden)
                }
            })
        });
        if is_too_large {
            self.reply_in_flow(machine, id, too_large(side));
            return Ok(Action::Continue);
        }
        let length = u32::try_from(length.flatten().unwrap_or(0)).unwrap_or(u32::MAX);
        let status = match function {
            None => 0,
            Some(function) => machine.vm.enter(id, At::Stream(stream), function, (id, length, u32::from(end)))?,
        };
        let verdict = Verdict::of(status);
        let stopped = verdict != Verdict::Continue;
        let action = self.settle(side, machine, id, stream, None, stopped, |hosted, half, stream, stopped| {
            // What it stopped and let go on in one breath it did not stop.
            let verdict = if stopped || verdict == Verdict::Drop { verdict } else { Verdict::Continue };
            half.editable = verdict == Verdict::Gather;
            if let Some(course) = &mut half.course {
                course.judge(verdict);
                if stopped {
                    half.bell = Some(stream.resumer.clone());
                }
                // Of a message that was taken over, the hooks say nothing.
                return Action::Continue;
            }
            match (verdict, end) {
                (Verdict::Continue, _) => {
                    half.hidden = 0;
                    half.kept = 0;
                    Action::Continue
                }
                (Verdict::Drop, _) if !stopped => Action::Continue,
                (Verdict::Gather | Verdict::Hold | Verdict::Drop, true) => hosted.pause(half, stream),
                (Verdict::Hold, false) => {
                    half.hidden = half.kept;
                    Action::Buffer
                }
                (Verdict::Gather | Verdict::Drop, false) => Action::Buffer,
            }
        });
        if verdict == Verdict::Drop && !matches!(action, Action::Respond(_)) {
            held(side, stream).replace(&[]);
        }
        // An answer of a message that was taken over counts in its flow.
        match action {
            Action::Respond(reply) if self.is_taken(side, machine, id) => {
                self.reply_in_flow(machine, id, reply);
                Ok(Action::Continue)
            }
            action => Ok(action),
        }
    }

    /// The answer to a message that was taken over.
    fn reply_in_flow(&self, machine: &Machine, id: u32, reply: Box<LocalReply>) {
        machine.vm.with(|data| {
            if let Some(passing) = data.contexts.stream(id) {
                passing.reply = Some(reply);
            }
        });
    }

    fn is_taken(&self, side: Side, machine: &Machine, id: u32) -> bool {
        let taken = machine.vm.with(|data| {
            let passing = data.contexts.stream(id)?;
            Some(side.half(passing).course.is_some())
        });
        taken.flatten().unwrap_or(false)
    }

    fn on_trailers(&self, side: Side, machine: &Machine, id: u32, stream: &mut Stream<'_>) -> Result<Action, Fault> {
        let functions = &machine.vm.functions;
        let (function, count) = match side {
            Side::Request => (&functions.on_request_trailers, stream.request_trailers.len()),
            Side::Response => (&functions.on_response_trailers, stream.response_trailers.len()),
        };
        machine.vm.with(|data| {
            if let Some(passing) = data.contexts.stream(id)
                && let Some(course) = &mut side.half(passing).course
            {
                course.ended = true;
            }
        });
        let status = match function.as_ref().filter(|_| self.seat.wants(side, Phase::Trailers)) {
            None => 0,
            Some(function) => {
                self.open(machine, id, side.trailers());
                machine.vm.enter(id, At::Stream(stream), function, (id, count as u32))?
            }
        };
        let stopped = status != 0;
        let action =
            self.settle(side, machine, id, stream, Some(side.trailers()), stopped, |hosted, half, stream, stopped| {
                if let Some(course) = &mut half.course {
                    if !stopped {
                        course.release();
                    }
                    return Action::Continue;
                }
                if stopped { hosted.pause(half, stream) } else { Action::Continue }
            });
        match action {
            Action::Respond(reply) if self.is_taken(side, machine, id) => {
                self.reply_in_flow(machine, id, reply);
                Ok(Action::Continue)
            }
            action => Ok(action),
        }
    }
}
