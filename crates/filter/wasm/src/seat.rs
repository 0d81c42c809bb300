//! A plugin on one worker: its machine, what it counts, and what happens when the machine failed.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use postrider_filter_api::plugin::OnError;
use postrider_filter_api::{Host, Moment, Place, RouteFacts, Sampling, stat_part};
use postrider_filter_plugin::stat::route as account;
use postrider_filter_plugin::{Account, Circuit, Metrics};
use postrider_telemetry::log::Level;
use postrider_telemetry::{Block, Counter, WorkerStats};

use crate::program::{Failure, Plugin, Program};
use crate::vm::{Fault, Vm, Worker, log};

postrider_telemetry::stat_set! {
    /// Machines; prefix: the engine.
    mod machines = "wasm";
    counters { CREATED = "created" }
    gauges { ACTIVE = "active" }
}

postrider_telemetry::stat_set! {
    /// Machines of all engines, of which there is one; no prefix.
    mod all_machines = "wasm";
    gauges { WASM_VM_COUNT = "wasm_vm_count" }
}

postrider_telemetry::stat_set! {
    /// Machines that are made again; prefix: the plugin.
    mod reloads = "wasm";
    counters { RELOAD_BACKOFF = "vm_reload_backoff", RELOAD_FAILURE = "vm_reload_failure", RELOAD_SUCCESS = "vm_reload_success" }
}

/// The name that the engine's statistics have.
const ENGINE: &str = "envoy.wasm.runtime.wasmtime";

pub(crate) struct Seat {
    pub(crate) plugin: Arc<Plugin>,
    pub(crate) account: Account,
    pub(crate) circuit: Circuit,
    /// Chooses the calls whose time is taken.
    sampling: Sampling,
    stats: WorkerStats,
    /// Of a plugin that Envoy's types configure.
    reloads: Option<Rc<Block>>,
    host: Rc<dyn Host>,
    machine: RefCell<Option<Rc<Machine>>>,
    /// When it was last made, or that was tried.
    made_at: Cell<Moment>,
    /// How often in a row.
    failures: Cell<u32>,
}

/// A machine with this plugin's root context in it.
pub(crate) struct Machine {
    pub(crate) vm: Rc<Vm>,
    pub(crate) root: u32,
    counted: Counted,
    /// Where its memory is counted: once for the plugin, whose routes may have root contexts of their own in it.
    memory: Rc<Account>,
}

/// Where machines are counted.
struct Counted {
    of_engine: Rc<Block>,
    of_all: Rc<Block>,
}

impl Counted {
    fn of(stats: &WorkerStats) -> Counted {
        Counted { of_engine: stats.block(&machines::SET, ENGINE), of_all: stats.block(&all_machines::SET, "") }
    }

    fn begin(&self) {
        self.of_engine.inc(machines::CREATED);
        self.of_engine.gauge_add(machines::ACTIVE, 1);
        self.of_all.gauge_add(all_machines::WASM_VM_COUNT, 1);
    }

    fn end(&self) {
        self.of_engine.gauge_sub(machines::ACTIVE, 1);
        self.of_all.gauge_sub(all_machines::WASM_VM_COUNT, 1);
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.vm.remove_root(self.root);
        if Rc::strong_count(&self.vm) == 1 {
            self.counted.end();
        }
    }
}

/// Why there is no machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Absent {
    /// Streams pass by.
    Bypassed,
    /// Streams are answered with this status.
    Failing(u16),
}

thread_local! {
    /// Machines of this worker by their keys.
    static MACHINES: RefCell<HashMap<[u8; 32], Weak<Vm>>> = RefCell::default();
    /// Plugins of this worker by their numbers.
    static SEATS: RefCell<HashMap<u64, Weak<Seat>>> = RefCell::default();
    /// Where memory of this worker's machines is counted, by the machine's number and the plugin's name.
    static MEMORY: RefCell<HashMap<(u32, String), Weak<Account>>> = RefCell::default();
}

impl Seat {
    /// This worker's seat of a plugin, with a machine in it if that starts.
    pub(crate) fn of(plugin: &Arc<Plugin>, place: &Place<'_>) -> Rc<Seat> {
        let known = SEATS.with_borrow(|seats| seats.get(&plugin.id).and_then(Weak::upgrade));
        if let Some(known) = known {
            return known;
        }
        let reloads = || place.stats.block(&reloads::SET, &stat_part(&plugin.facts.name));
        let seat = Rc::new(Seat {
            plugin: plugin.clone(),
            account: Account::new(place.stats, &plugin.facts.name),
            circuit: Circuit::new(plugin.facts.policy.circuit),
            sampling: Sampling::default(),
            stats: place.stats.clone(),
            reloads: (plugin.failure != Failure::Policy).then(reloads),
            host: place.host.clone(),
            machine: RefCell::default(),
            made_at: Cell::new(place.host.now()),
            failures: Cell::default(),
        });
        SEATS.with_borrow_mut(|seats| {
            seats.retain(|_, seat| seat.strong_count() > 0);
            seats.insert(plugin.id, Rc::downgrade(&seat));
        });
        if let Err(fault) = seat.make() {
            seat.failed(&fault);
        }
        seat
    }

    /// A call that no stream waits for failed: a tick, or one that tells of something that came. It counts as others do.
    #[cold]
    pub(crate) fn fault_aside(plugin: &Plugin, fault: &Fault) {
        let seat = SEATS.with_borrow(|seats| seats.get(&plugin.id).and_then(Weak::upgrade));
        // A plugin that is gone counts nothing any more, and a machine that was dead before failed once.
        if let Some(seat) = seat.filter(|_| *fault != Fault::Dead) {
            seat.fault(None, fault, seat.host.now());
        }
    }

    /// The machine, or what streams get in its place.
    #[inline]
    pub(crate) fn machine(&self, now: &dyn Fn() -> Moment) -> Result<Rc<Machine>, Absent> {
        if self.circuit.is_closed()
            && let Some(machine) = &*self.machine.borrow()
            && !machine.vm.is_dead()
        {
            return Ok(machine.clone());
        }
        self.machine_again(now())
    }

    /// The machine of that number, unless it failed or another one took its place.
    #[inline]
    pub(crate) fn alive(&self, serial: u32) -> Option<Rc<Machine>> {
        let machine = self.machine.borrow();
        machine.as_ref().filter(|machine| machine.vm.serial == serial && !machine.vm.is_dead()).cloned()
    }

    /// The machine that there is.
    pub(crate) fn made(&self) -> Option<Rc<Machine>> {
        self.machine.borrow().clone()
    }

    /// What a stream is answered with whose machine failed; `None` lets it pass.
    pub(crate) fn answers_faults(&self) -> Option<u16> {
        match (self.plugin.failure, self.plugin.facts.policy.on_error) {
            (Failure::Policy, OnError::Continue) => None,
            (Failure::Policy, OnError::Respond(status)) => Some(status),
            (Failure::Open { spares: true }, _) => None,
            // As Envoy does, even where it fails open.
            (Failure::Closed | Failure::Open { spares: false } | Failure::Reload(..), _) => Some(503),
        }
    }

    #[cold]
    fn machine_again(&self, now: Moment) -> Result<Rc<Machine>, Absent> {
        // Another plugin may have ended the machine that both are in.
        self.account.set_dead(self.machine.borrow().as_ref().is_none_or(|machine| machine.vm.is_dead()));
        let policy = &self.plugin.facts.policy;
        match self.plugin.failure {
            Failure::Open { .. } => return Err(Absent::Bypassed),
            Failure::Closed => return Err(Absent::Failing(503)),
            Failure::Reload(base, most) => {
                let due = self.made_at.get() + backoff(base, most, self.failures.get());
                if now < due {
                    self.count_reload(reloads::RELOAD_BACKOFF);
                    return Err(Absent::Failing(503));
                }
            }
            Failure::Policy => {
                if !self.circuit.is_closed() && self.circuit.is_open(now) {
                    return Err(self.absent());
                }
            }
        }
        let alive = self.machine.borrow().clone().filter(|machine| !machine.vm.is_dead());
        if let Some(machine) = alive {
            return Ok(machine);
        }
        self.made_at.set(now);
        match self.make() {
            Ok(machine) => {
                self.failures.set(0);
                self.count_reload(reloads::RELOAD_SUCCESS);
                log(Level::Info, &format!("the WebAssembly plugin {} was started again", self.plugin.facts.name));
                Ok(machine)
            }
            Err(fault) => {
                self.failed(&fault);
                self.failures.set(self.failures.get().saturating_add(1));
                self.count_reload(reloads::RELOAD_FAILURE);
                if self.plugin.failure == Failure::Policy && self.circuit.fault(now) {
                    self.account.set_circuit_open(true);
                }
                match policy.on_error {
                    OnError::Respond(status) if self.plugin.failure == Failure::Policy => Err(Absent::Failing(status)),
                    OnError::Continue if self.plugin.failure == Failure::Policy => Err(Absent::Bypassed),
                    _ => Err(Absent::Failing(503)),
                }
            }
        }
    }

    #[cold]
    fn count_reload(&self, counter: Counter) {
        if let Some(reloads) = &self.reloads {
            reloads.inc(counter);
        }
    }

    /// What the plugin model says about a plugin that is not there.
    fn absent(&self) -> Absent {
        match self.plugin.facts.policy.on_error {
            OnError::Continue => Absent::Bypassed,
            OnError::Respond(status) => Absent::Failing(status),
        }
    }

    fn make(&self) -> Result<Rc<Machine>, Fault> {
        let program = &self.plugin.program;
        let counted = Counted::of(&self.stats);
        // The old one's root context goes before another one comes.
        self.machine.take();
        let vm = match shared(program) {
            Some(vm) => vm,
            None => {
                let metrics = Metrics::new(&self.stats, "wasmcustom".to_owned(), "wasm").under_own_names();
                let vm = Vm::start(program, Some(Worker { host: self.host.clone(), metrics }))?;
                MACHINES.with_borrow_mut(|machines| {
                    machines.retain(|_, vm| vm.strong_count() > 0);
                    machines.insert(program.key, Rc::downgrade(&vm));
                });
                counted.begin();
                vm
            }
        };
        let root = match vm.add_root(&self.plugin) {
            Ok(root) => root,
            Err(fault) => {
                if Rc::strong_count(&vm) == 1 {
                    counted.end();
                }
                return Err(fault);
            }
        };
        let memory = memory_of(&vm, &self.stats, &self.plugin.facts.name);
        let machine = Rc::new(Machine { vm, root, counted, memory });
        machine.memory.set_memory(machine.vm.memory());
        self.account.set_dead(false);
        *self.machine.borrow_mut() = Some(machine.clone());
        Ok(machine)
    }

    fn failed(&self, fault: &Fault) {
        self.account.set_dead(true);
        log(Level::Error, &format!("the WebAssembly plugin {} does not start: {fault}", self.plugin.facts.name));
    }

    /// When a call begins, if its time is to be taken.
    #[inline]
    pub(crate) fn begin(&self, host: &dyn Host) -> Option<Moment> {
        self.sampling.take().map(|_| host.now())
    }

    /// A call ended.
    #[inline]
    pub(crate) fn ended(&self, route: Option<&RouteFacts>, took: Option<Duration>, machine: &Machine) {
        self.account.called(route, took);
        if took.is_some() {
            machine.memory.set_memory(machine.vm.memory());
        }
        if self.circuit.succeed() {
            self.account.set_circuit_open(false);
            self.failures.set(0);
        }
    }

    /// A call failed.
    #[cold]
    pub(crate) fn fault(&self, route: Option<&RouteFacts>, fault: &Fault, now: Moment) {
        let block = self.account.of(route);
        block.inc(account::ERRORS);
        self.account.set_dead(true);
        match fault {
            Fault::Cpu(_) => block.inc(account::CPU_KILLS),
            Fault::Memory(_) => block.inc(account::MEMORY_KILLS),
            Fault::Trap(_) | Fault::Dead | Fault::Refused(_) => {}
        }
        if self.plugin.failure != Failure::Policy {
            return;
        }
        let (opened, why) = match fault {
            Fault::Cpu(_) => (self.circuit.overrun(now), "used up its CPU time"),
            _ => (self.circuit.fault(now), "failed too often"),
        };
        if opened {
            block.inc(account::CIRCUIT_OPENED);
            if self.account.set_circuit_open(true) {
                let name = &self.plugin.facts.name;
                log(Level::Warning, &format!("the plugin {name} {why} and is passed by for a while"));
            }
        }
    }

    /// A stream went without the plugin, or was turned away for the lack of it.
    #[cold]
    pub(crate) fn missed(&self, route: Option<&RouteFacts>, absent: Absent) {
        let what = match absent {
            Absent::Bypassed => account::BYPASSED,
            Absent::Failing(_) => account::REFUSED,
        };
        self.account.of(route).inc(what);
    }
}

/// This worker's machine for a program, if there is one that works.
fn shared(program: &Program) -> Option<Rc<Vm>> {
    let known = MACHINES.with_borrow(|machines| machines.get(&program.key).and_then(Weak::upgrade));
    known.filter(|vm| !vm.is_dead())
}

/// Where a plugin counts the memory of this machine.
fn memory_of(vm: &Vm, stats: &WorkerStats, plugin: &str) -> Rc<Account> {
    let key = (vm.serial, plugin.to_owned());
    MEMORY.with_borrow_mut(|known| {
        if let Some(account) = known.get(&key).and_then(Weak::upgrade) {
            return account;
        }
        known.retain(|_, account| account.strong_count() > 0);
        let account = Rc::new(Account::new(stats, plugin));
        known.insert(key, Rc::downgrade(&account));
        account
    })
}

/// Doubles with each failure.
fn backoff(base: Duration, most: Duration, failures: u32) -> Duration {
    base.saturating_mul(1 << failures.min(20)).min(most)
}
