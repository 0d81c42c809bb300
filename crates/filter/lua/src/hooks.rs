//! The adapter: the filter contract's hooks on one side, entries into a script on the other.

use std::rc::Rc;

use postrider_filter_api::plugin::OnError;
use postrider_filter_api::{Action, Filter, Hooks, LocalReply, State, Stream, StreamInfo};
use postrider_filter_plugin::stat::route as account;
use postrider_telemetry::log::Level;

use crate::abi::{Scratch, Side, Turn};
use crate::machine::{EntryPoint, Hook, Machine};
use crate::observe::{self, Event as Seen};
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
    fn on_head(&self, side: Side, end: bool, state: &mut State, stream: &mut Stream<'_>) -> Action {
        if matches!(state, State::Empty) && self.passes_by(side, stream) {
            return Action::Done;
        }
        self.show(side, state, stream, |entry| entry.on_head(end))
    }

    fn on(&self, side: Side, event: Event, state: &mut State, stream: &mut Stream<'_>) -> Action {
        self.show(side, state, stream, |entry| match event {
            Event::Piece { end } => entry.on_piece(end),
            Event::Trailers => entry.on_trailers(),
            Event::Resumed => entry.on_resumed(),
        })
    }

    /// Whether all that the script has for a side is a function without a statement: then the call is counted, and that
    /// is all.
    #[inline(always)]
    fn passes_by(&self, side: Side, stream: &Stream<'_>) -> bool {
        let Some(plugin) = &self.view.plugin else { return false };
        let Some(worker) = &plugin.worker else { return false };
        if !plugin.idles_on(side)
            || !worker.circuit.is_closed()
            || observe::is_on()
            || self.view.skipped != [false; 4]
            || self.skips_head(plugin, &self.view, side, stream)
        {
            return false;
        }
        if let Some(envoy) = &worker.envoy {
            envoy.inc(stat::EXECUTIONS);
        }
        worker.account.called(stream.route, None);
        true
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
    #[inline(always)]
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
        half.wait = Wait::BodyHook;
        Action::Buffer
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
            Wait::BodyHook => {
                half.progress.complete = true;
                match self.machine() {
                    Some(machine) => self.run_body_hook(&machine),
                    None => self.without_machine(),
                }
            }
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
            Wait::BodyHook => {
                half.progress.complete = true;
                match self.machine() {
                    Some(machine) => self.run_body_hook(&machine),
                    None => self.without_machine(),
                }
            }
            Wait::Nothing | Wait::Call => Action::Done,
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
        // Reading the clock costs more than most of an entry.
        let observed = observe::is_on();
        let began = (observed || machine.is_measured()).then(|| self.stream.host.now());
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
        machine.vm.collect();
        let took = began.map(|began| self.stream.host.now().saturating_duration_since(began));
        if observed && let Some(took) = took {
            let in_body_hook = self.script.half(self.side).in_body_hook;
            observe::note(Seen::Ran { side: self.side, in_body_hook, took, memory: machine.vm.memory() });
        }
        if let Some(worker) = &self.plugin.worker {
            if let Some(bytes) = machine.memory_to_tell() {
                worker.account.set_memory(bytes);
            }
            worker.account.called(self.stream.route, took);
        }
        ran
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
                    None => self.fail(&Fault::Error("an answer without a beginning".to_owned())),
                };
            }
            _ => {
                machine.vm.discard(coroutine);
                return self.fail(&Fault::Error("script performed an unexpected yield".to_owned()));
            }
        };
        self.script.half_mut(self.side).wait = wait;
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
        let plugin = self.plugin;
        plugin.log(Level::Error, &fault.to_string());
        if let Some(worker) = &plugin.worker {
            let block = worker.account.of(self.stream.route);
            block.inc(account::ERRORS);
            match fault {
                Fault::Error(_) => {}
                Fault::Cpu => block.inc(account::CPU_KILLS),
                Fault::Memory => block.inc(account::MEMORY_KILLS),
            }
            if let Some(envoy) = &worker.envoy {
                envoy.inc(stat::ERRORS);
            }
            let rule = plugin.facts.policy.circuit;
            if rule.kills_only && matches!(fault, Fault::Error(_)) {
                // It came back by itself, and in time.
                self.succeed();
            } else if worker.circuit.fault(self.stream.host.now()) {
                block.inc(account::CIRCUIT_OPENED);
                // A trial that fails opens it again: that is told by the counter alone.
                if worker.account.set_circuit_open(true) {
                    let name = &plugin.facts.name;
                    plugin.log(
                        Level::Warning,
                        &format!("the plugin {name} failed too often and is passed by for a while"),
                    );
                }
            }
        }
        self.script.abandon();
        // Envoy's dialect asks the response's function even so.
        self.script.failed = plugin.program.dialect == Dialect::Rider;
        self.by_policy()
    }

    fn by_policy(&mut self) -> Action {
        match self.plugin.facts.policy.on_error {
            OnError::Continue => Action::Done,
            OnError::Respond(status) => {
                self.script.failed = true;
                Action::Respond(Box::new(LocalReply {
                    status,
                    details: "plugin_failed".into(),
                    ..LocalReply::default()
                }))
            }
        }
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
