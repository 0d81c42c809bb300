//! The adapter: the filter contract's hooks on one side, entries into a script on the other.

use std::rc::Rc;

use postrider_filter_api::plugin::OnError;
use postrider_filter_api::{Action, Filter, Hooks, LocalReply, Moment, State, Stream, StreamInfo};
use postrider_filter_plugin::stat::route as account;
use postrider_filter_trial::observe::{self, Event as Seen};
use postrider_http::HeaderId;
use postrider_telemetry::log::Level;

use crate::abi::{Scratch, Side, Turn};
use crate::machine::{EntryPoint, Hook, Machine};
use crate::plugin::{Plugin, stat};
use crate::program::Dialect;
use crate::script::{Running, Script, Wait};
use crate::view::View;
use crate::vm::{Coroutine, Fault, Ran};

/// Numbers that a script yields (`sdk/abi.lua`).
const WAIT_BODY: i32 = 1;
const WAIT_CHUNK: i32 = 2;
const WAIT_TRAILERS: i32 = 3;
const WAIT_CALL: i32 = 4;
const RESPONDED: i32 = 5;

/// A script as the pipeline sees it, with the configuration that some routes share.
pub(crate) struct Scripted {
    pub(crate) view: Rc<View>,
    pub(crate) hooks: Hooks,
    /// Rider: run without a route, too.
    pub(crate) allow_no_route: bool,
}

/// What a measured call began with.
struct Measure {
    /// For so many calls it stands; 0 when only the tool looks.
    stands_for: u32,
    began: Moment,
    /// Bytes that the machine had taken by then.
    taken: u64,
}

/// What happens at a hook behind that of the head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    Piece { end: bool },
    Trailers,
    Resumed,
}

impl Filter for Scripted {
    fn hooks(&self) -> Hooks {
        self.hooks
    }

    fn on_request_headers(&self, state: &mut State, stream: &mut Stream<'_>, end: bool) -> Action {
        self.on_head(Side::Request, end, state, stream)
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

    fn on_response_headers(&self, state: &mut State, stream: &mut Stream<'_>, end: bool) -> Action {
        self.on_head(Side::Response, end, state, stream)
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

    fn on_complete(&self, state: &mut State, _: &StreamInfo) {
        let State::Any(boxed) = std::mem::take(state) else { return };
        let Ok(mut script) = boxed.downcast::<Script>() else { return };
        script.forget(&self.view);
    }
}

impl Scripted {
    /// Once for each side: what a side decides is decided when this is compiled.
    #[inline(always)]
    fn on_head(&self, side: Side, end: bool, state: &mut State, stream: &mut Stream<'_>) -> Action {
        match self.on_usual_head(side, end, state, stream) {
            Some(action) => action,
            None => self.on_any_head(side, end, state, stream),
        }
    }

    #[inline(never)]
    fn on_any_head(&self, side: Side, end: bool, state: &mut State, stream: &mut Stream<'_>) -> Action {
        self.show(side, state, stream, |entry| entry.on_head(end))
    }

    /// The same where nothing is out of the ordinary: the stream is new to the script, which is in order, has a function for this
    /// head and none for the body. `None`, and nothing done, elsewhere.
    #[inline(always)]
    fn on_usual_head(&self, side: Side, end: bool, state: &mut State, stream: &mut Stream<'_>) -> Option<Action> {
        let State::Empty = state else { return None };
        let view = &self.view;
        let plugin = view.plugin.as_ref()?;
        let worker = plugin.worker.as_ref()?;
        if !worker.circuit.is_closed()
            || observe::is_on()
            || view.skipped != [false; 4]
            || self.skips_head(plugin, view, side, stream)
        {
            return None;
        }
        let known = plugin.known_machine();
        let machine = known.as_ref()?;
        let (head, body) = match side {
            Side::Request => (Hook::RequestHeaders, Hook::RequestBody),
            Side::Response => (Hook::ResponseHeaders, Hook::ResponseBody),
        };
        let EntryPoint { function, does_nothing } = machine.hook(head)?;
        if machine.hook(body).is_some() {
            return None;
        }
        if let Some(envoy) = &worker.envoy {
            envoy.inc(stat::EXECUTIONS);
        }
        if does_nothing {
            // There is no statement in it: the call is counted, and that is all.
            worker.account.called(stream.route, None);
            return Some(Action::Done);
        }
        let mut script = Script::default();
        script.turn_to(side);
        let half = script.half_mut(side);
        half.progress.bodyless = end;
        half.progress.ended = end;
        let rerouted = stream.info.route_is_stale;
        let mut entry = Entry { filter: self, plugin, view, side, script: &mut script, stream };
        // A circuit that was closed is not on trial: there is nothing to tell it of a success.
        let action = match entry.timed(machine, |machine| machine.vm.start(function)) {
            Ran::Finished => Action::Done,
            Ran::Stopped(coroutine, stop) => {
                let machine = Rc::clone(machine);
                drop(known);
                entry.settle(&machine, coroutine, stop)
            }
        };
        if stream.info.route_is_stale && !rerouted && plugin.program.dialect == Dialect::Rider {
            // Rider looks its route's configuration up once.
            script.view = Some(view.clone());
        }
        if script.must_be_kept() {
            *state = State::Any(Box::new(script));
        }
        Some(action)
    }

    fn on(&self, side: Side, event: Event, state: &mut State, stream: &mut Stream<'_>) -> Action {
        self.show(side, state, stream, |entry| match event {
            Event::Piece { end } => entry.on_piece(end),
            Event::Trailers => entry.on_trailers(),
            Event::Resumed => entry.on_resumed(),
        })
    }

    /// Rider's rule: without a route that leads to a cluster there are no header hooks, and on responses none without an
    /// entry for the plugin.
    #[inline]
    fn skips_head(&self, plugin: &Plugin, view: &View, side: Side, stream: &Stream<'_>) -> bool {
        if plugin.program.dialect != Dialect::Rider || self.allow_no_route {
            return false;
        }
        let forwards = stream.route.is_some_and(|route| route.forwards);
        match side {
            Side::Request => !forwards,
            Side::Response => !forwards || !view.is_named,
        }
    }

    /// Lets the stream's script `act`.
    #[inline(always)]
    fn show(
        &self,
        side: Side,
        state: &mut State,
        stream: &mut Stream<'_>,
        act: impl FnOnce(&mut Entry<'_, '_>) -> Action,
    ) -> Action {
        // Most scripts never wait: nothing of theirs outlives the hook.
        let mut fresh = Script::default();
        let known = match state {
            State::Any(boxed) => boxed.downcast_mut::<Script>(),
            _ => None,
        };
        let is_fresh = known.is_none();
        let script = known.unwrap_or(&mut fresh);
        let own = script.view.clone();
        let view = own.as_ref().unwrap_or(&self.view);
        let Some(plugin) = view.plugin.as_ref().filter(|_| !script.failed) else { return Action::Done };
        let rerouted = stream.info.route_is_stale;
        script.turn_to(side);
        let mut entry = Entry { filter: self, plugin, view, side, script, stream };
        let action = act(&mut entry);
        if entry.stream.info.route_is_stale && !rerouted && plugin.program.dialect == Dialect::Rider {
            // Rider looks its route's configuration up once.
            entry.script.view = Some(view.clone());
        }
        if is_fresh && fresh.must_be_kept() {
            *state = State::Any(Box::new(fresh));
        }
        action
    }
}

/// One event at one script.
struct Entry<'e, 's> {
    filter: &'e Scripted,
    plugin: &'e Rc<Plugin>,
    view: &'e Rc<View>,
    side: Side,
    script: &'e mut Script,
    stream: &'e mut Stream<'s>,
}

impl Entry<'_, '_> {
    fn on_head(&mut self, end: bool) -> Action {
        let half = self.script.half_mut(self.side);
        half.progress.bodyless = end;
        half.progress.ended = end;
        let Some(machine) = self.machine() else { return self.without_machine() };
        let hook = match self.side {
            Side::Request => Hook::RequestHeaders,
            Side::Response => Hook::ResponseHeaders,
        };
        if self.filter.skips_head(self.plugin, self.view, self.side, self.stream) {
            self.script.half_mut(self.side).headless = true;
            return self.behind_head(&machine);
        }
        match self.enter(&machine, hook) {
            Ran::Finished => self.behind_head(&machine),
            Ran::Stopped(coroutine, stop) => self.settle(&machine, coroutine, stop),
        }
    }

    /// The head hook is over: the body hook's turn, if there is one.
    #[inline]
    fn behind_head(&mut self, machine: &Rc<Machine>) -> Action {
        let hook = match self.side {
            Side::Request => Hook::RequestBody,
            Side::Response => Hook::ResponseBody,
        };
        match self.entry_point(machine, hook) {
            Some(_) if !self.script.failed => self.await_body(machine),
            _ => self.finished(),
        }
    }

    #[inline(never)]
    fn await_body(&mut self, machine: &Rc<Machine>) -> Action {
        let half = self.script.half_mut(self.side);
        if half.progress.ended {
            half.progress.complete = true;
            return self.run_body_hook(machine);
        }
        self.begin_to_wait(Wait::BodyHook);
        Action::Buffer
    }

    fn begin_to_wait(&mut self, wait: Wait) {
        let half = self.script.half_mut(self.side);
        half.wait = wait;
        half.since = self.plugin.worker.as_ref().map(|worker| worker.circuit.era()).unwrap_or_default();
    }

    /// Whether what waits here must not go on: the plugin used up its CPU time elsewhere meanwhile.
    fn is_cut(&self) -> bool {
        let since = self.script.half(self.side).since;
        self.plugin.worker.as_ref().is_some_and(|worker| worker.circuit.cuts(since))
    }

    fn run_body_hook(&mut self, machine: &Rc<Machine>) -> Action {
        let hook = match self.side {
            Side::Request => Hook::RequestBody,
            Side::Response => Hook::ResponseBody,
        };
        let half = self.script.half_mut(self.side);
        half.wait = Wait::Nothing;
        half.in_body_hook = true;
        match self.enter(machine, hook) {
            Ran::Finished => self.finished(),
            Ran::Stopped(coroutine, stop) => self.settle(machine, coroutine, stop),
        }
    }

    fn on_piece(&mut self, end: bool) -> Action {
        let half = self.script.half_mut(self.side);
        half.progress.ended = end;
        match half.wait {
            Wait::Body | Wait::BodyHook if !end => Action::Buffer,
            Wait::Body => {
                half.progress.complete = true;
                self.resume()
            }
            Wait::BodyHook => self.body_is_here(),
            Wait::Chunk => self.resume(),
            Wait::Trailers if end => self.resume(),
            Wait::Trailers => Action::Continue,
            Wait::Nothing | Wait::Call => Action::Done,
        }
    }

    fn on_trailers(&mut self) -> Action {
        let half = self.script.half_mut(self.side);
        half.progress.ended = true;
        match half.wait {
            Wait::Body | Wait::Chunk | Wait::Trailers => {
                half.progress.complete |= half.wait == Wait::Body;
                self.resume()
            }
            Wait::BodyHook => self.body_is_here(),
            Wait::Nothing | Wait::Call => Action::Done,
        }
    }

    /// The body hook's turn. The circuit was asked with the head: a trial is one for all of its message.
    fn body_is_here(&mut self) -> Action {
        self.script.half_mut(self.side).progress.complete = true;
        let machine = if self.is_cut() { None } else { self.plugin.machine(self.stream.host) };
        match machine {
            Some(machine) => self.run_body_hook(&machine),
            None => self.without_machine(),
        }
    }

    fn on_resumed(&mut self) -> Action {
        let half = self.script.half_mut(self.side);
        if half.wait != Wait::Call {
            return Action::Continue;
        }
        let kept = self.script.kept_mut(self.side);
        kept.call = None;
        kept.answer = kept.inbox.as_ref().and_then(|inbox| inbox.take());
        self.resume()
    }

    /// Goes on with the coroutine that waits.
    fn resume(&mut self) -> Action {
        self.script.half_mut(self.side).wait = Wait::Nothing;
        let Some(Running { machine, coroutine }) = self.script.kept_mut(self.side).running.take() else {
            return Action::Done;
        };
        if self.is_cut() {
            machine.vm.discard(coroutine);
            self.script.abandon();
            return self.without_machine();
        }
        match self.timed(&machine, |machine| machine.vm.resume(coroutine)) {
            Ran::Finished => {
                self.succeed();
                // The body's function begins when all of it is here.
                match self.script.half(self.side).in_body_hook {
                    false => self.behind_head(&machine),
                    true => self.finished(),
                }
            }
            Ran::Stopped(coroutine, stop) => self.settle(&machine, coroutine, stop),
        }
    }

    /// The script's function for a hook, unless it is not to be called here.
    #[inline]
    fn entry_point(&self, machine: &Machine, hook: Hook) -> Option<EntryPoint> {
        let skipped = self.view.skipped.get(hook as usize).copied().unwrap_or(false);
        machine.hook(hook).filter(|_| !skipped)
    }

    /// Runs a hook's function from its beginning, if the script has one.
    #[inline(always)]
    fn enter(&mut self, machine: &Rc<Machine>, hook: Hook) -> Ran {
        let Some(EntryPoint { function, does_nothing }) = self.entry_point(machine, hook) else {
            return Ran::Finished;
        };
        if let Some(envoy) = self.plugin.worker.as_ref().and_then(|worker| worker.envoy.as_ref()) {
            envoy.inc(stat::EXECUTIONS);
        }
        if does_nothing && !observe::is_on() {
            if let Some(worker) = &self.plugin.worker {
                worker.account.called(self.stream.route, None);
            }
            return Ran::Finished;
        }
        let ran = self.timed(machine, |machine| machine.vm.start(function));
        if matches!(ran, Ran::Finished) {
            self.succeed();
        }
        ran
    }

    /// Runs the script as this stream's turn, and counts it.
    #[inline(always)]
    fn timed<T>(&mut self, machine: &Rc<Machine>, run: impl FnOnce(&Machine) -> T) -> T {
        if self.script.stream == 0 {
            self.script.stream = machine.new_stream();
        }
        machine.announce(self.script.stream, self.side, self.plugin.number);
        let measure = self.begin_account(machine);
        let mut scratch: Box<Scratch> = machine.scratch.take().unwrap_or_default();
        let mut turn = Turn {
            stream: Some(&mut *self.stream),
            script: &mut *self.script,
            plugin: self.plugin,
            view: self.view,
            scratch: &mut scratch,
        };
        let ran = turn.during(|| run(machine));
        machine.scratch.set(Some(scratch));
        let is_overrun = machine.vm.collect();
        self.end_account(machine, measure);
        if is_overrun {
            // Nothing can stop a finalizer, and none is this stream's.
            self.count(&Fault::Cpu(None));
        }
        ran
    }

    /// A call begins: what it began with, if it is measured. Reading the clock costs more than most of an entry.
    #[inline(always)]
    fn begin_account(&self, machine: &Machine) -> Option<Measure> {
        let stands_for = machine.stands_for();
        if stands_for.is_none() && !observe::is_on() {
            return None;
        }
        Some(self.measure(machine, stands_for.unwrap_or(0)))
    }

    #[inline(never)]
    fn measure(&self, machine: &Machine, stands_for: u32) -> Measure {
        Measure { stands_for, began: self.stream.host.now(), taken: machine.vm.taken() }
    }

    /// It ended.
    #[inline(always)]
    fn end_account(&self, machine: &Machine, measure: Option<Measure>) {
        if let Some(measure) = measure {
            return self.end_measured(machine, measure);
        }
        let Some(worker) = &self.plugin.worker else { return };
        if let Some(bytes) = machine.memory_to_tell() {
            worker.account.set_memory(bytes);
        }
        worker.account.called(self.stream.route, None);
    }

    #[inline(never)]
    fn end_measured(&self, machine: &Machine, measure: Measure) {
        let took = self.stream.host.now().saturating_duration_since(measure.began);
        if observe::is_on() {
            let in_body_hook = self.script.half(self.side).in_body_hook;
            observe::note(Seen::Ran { side: self.side.into(), in_body_hook, took, memory: machine.vm.memory() });
        }
        let Some(worker) = &self.plugin.worker else { return };
        if let Some(bytes) = machine.memory_to_tell() {
            worker.account.set_memory(bytes);
        }
        worker.account.called(self.stream.route, Some(took));
        let bytes = machine.vm.taken().saturating_sub(measure.taken);
        worker.account.allocated(self.stream.route, bytes.saturating_mul(measure.stands_for.into()));
    }

    /// What it means for the message that the script came back before its end: with what it waits for, or failed.
    #[inline(never)]
    fn settle(&mut self, machine: &Rc<Machine>, coroutine: Coroutine, stop: Result<Option<i32>, Fault>) -> Action {
        let code = match stop {
            Ok(code) => code,
            Err(fault) => {
                self.explain(machine, &coroutine, &fault);
                machine.vm.discard(coroutine);
                if fault == Fault::Memory {
                    self.plugin.replace_machine(machine);
                }
                return self.fail(&fault);
            }
        };
        let half = self.script.half_mut(self.side);
        let (wait, action) = match code {
            Some(WAIT_BODY) => (Wait::Body, Action::Buffer),
            Some(WAIT_CHUNK) => {
                if !half.progress.released {
                    // The script may change each piece, and the head goes on now.
                    match self.side {
                        Side::Request => self.stream.request.fields.remove(HeaderId::ContentLength),
                        Side::Response => self.stream.response.fields.remove(HeaderId::ContentLength),
                    };
                }
                half.progress.released = true;
                half.progress.streamed = true;
                (Wait::Chunk, Action::Continue)
            }
            Some(WAIT_TRAILERS) => {
                half.progress.released = true;
                half.progress.streamed = true;
                (Wait::Trailers, Action::Continue)
            }
            // Without a call nobody would ever resume it: a script that yields what is ours.
            Some(WAIT_CALL) if self.script.kept_mut(self.side).call.is_some() => (Wait::Call, Action::Pause),
            Some(RESPONDED) => {
                let reply = self.script.kept_mut(self.side).reply.take();
                machine.vm.discard(coroutine);
                return match reply {
                    Some(reply) => {
                        self.succeed();
                        Action::Respond(reply)
                    }
                    // A script that yields what is ours.
                    None => self.fail(&Fault::Error("an answer without a beginning".to_owned())),
                };
            }
            _ => {
                let fault = Fault::Error("script performed an unexpected yield".to_owned());
                self.explain(machine, &coroutine, &fault);
                machine.vm.discard(coroutine);
                return self.fail(&fault);
            }
        };
        self.begin_to_wait(wait);
        self.script.kept_mut(self.side).running = Some(Running { machine: machine.clone(), coroutine });
        action
    }

    /// Where the script was when it failed: for the tool, and now and then for the log and the admin.
    fn explain(&self, machine: &Machine, coroutine: &Coroutine, fault: &Fault) {
        let host = self.stream.host;
        let observed = observe::is_on();
        if !observed && !self.plugin.explains(host.now()) {
            return;
        }
        let traceback = machine.vm.traceback(coroutine);
        match observed {
            true => observe::note(Seen::Fault { text: fault.to_string(), traceback }),
            false => self.plugin.explain(&fault.to_string(), &traceback, host.wall()),
        }
    }

    /// The script has nothing more to do with this message.
    #[inline]
    fn finished(&mut self) -> Action {
        self.script.half_mut(self.side).wait = Wait::Nothing;
        Action::Done
    }

    /// A call ended well; if it was the trial after faults, the plugin is trusted again.
    #[inline]
    fn succeed(&self) {
        if let Some(worker) = &self.plugin.worker
            && worker.circuit.succeed()
        {
            worker.account.set_circuit_open(false);
            self.plugin.log(Level::Info, &format!("the plugin {} works again", self.plugin.facts.name));
        }
    }

    fn fail(&mut self, fault: &Fault) -> Action {
        self.count(fault);
        self.script.abandon();
        // Envoy's dialect asks the response's function even so.
        self.script.failed = self.plugin.program.dialect == Dialect::Rider;
        if self.script.unsendable && self.plugin.program.dialect == Dialect::Envoy {
            // What a client brought may have led here: it must not pass by what stands behind in the script. Envoy answers so.
            return self.give_up(503);
        }
        self.by_policy()
    }

    /// Tells and counts a fault, which may be one too many.
    #[cold]
    fn count(&self, fault: &Fault) {
        let plugin = self.plugin;
        plugin.log(Level::Error, &fault.to_string());
        if let Some(worker) = &plugin.worker {
            let block = worker.account.of(self.stream.route);
            block.inc(account::ERRORS);
            match fault {
                Fault::Error(_) | Fault::Config(_) => {}
                Fault::Cpu(_) => block.inc(account::CPU_KILLS),
                Fault::Memory => block.inc(account::MEMORY_KILLS),
            }
            if let Some(envoy) = &worker.envoy {
                envoy.inc(stat::ERRORS);
            }
            let rule = plugin.facts.policy.circuit;
            let now = self.stream.host.now();
            let opened = match fault {
                Fault::Error(_) | Fault::Config(_) if rule.kills_only => {
                    // It came back by itself, and in time.
                    self.succeed();
                    false
                }
                Fault::Cpu(_) => worker.circuit.overrun(now),
                Fault::Error(_) | Fault::Config(_) | Fault::Memory => worker.circuit.fault(now),
            };
            if opened {
                block.inc(account::CIRCUIT_OPENED);
                // A trial that fails opens it again: that is told by the counter alone.
                if worker.account.set_circuit_open(true) {
                    let name = &plugin.facts.name;
                    let why = match fault {
                        Fault::Cpu(_) => "used up its CPU time",
                        Fault::Error(_) | Fault::Config(_) | Fault::Memory => "failed too often",
                    };
                    plugin.log(Level::Warning, &format!("the plugin {name} {why} and is passed by for a while"));
                }
            }
        }
    }

    fn by_policy(&mut self) -> Action {
        match self.plugin.facts.policy.on_error {
            OnError::Continue => Action::Done,
            OnError::Respond(status) => self.give_up(status),
        }
    }

    fn give_up(&mut self, status: u16) -> Action {
        self.script.failed = true;
        Action::Respond(Box::new(LocalReply { status, details: "plugin_failed".into(), ..LocalReply::default() }))
    }

    /// The machine to run in; `None` when the plugin is passed by, or does not load here.
    #[inline]
    fn machine(&mut self) -> Option<Rc<Machine>> {
        let host = self.stream.host;
        if self.plugin.is_bypassed(host) { None } else { self.plugin.machine(host) }
    }

    #[cold]
    fn without_machine(&mut self) -> Action {
        if let Some(worker) = &self.plugin.worker {
            worker.account.of(self.stream.route).inc(account::BYPASSED);
        }
        self.script.failed = true;
        self.by_policy()
    }
}
