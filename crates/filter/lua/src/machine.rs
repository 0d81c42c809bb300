//! A virtual machine with one script loaded: on a worker, or for a moment to try a configuration out.

use std::cell::{Cell, OnceCell};
use std::rc::Rc;
use std::time::Duration;

use postrider_filter_api::Sampling;
use postrider_telemetry::Block;

use crate::abi::{Context, Scratch, Side, TABLE, Turn};
use crate::checkhook;
use crate::observe;
use crate::plugin::machines;
use crate::program::Program;
use crate::sdk;
use crate::vm::{Argument, Fault, Ref, Vm};

/// CPU time that loading has at least: it happens once, where no request waits for it, and a slow machine compiles slowly.
const LOADING: Duration = Duration::from_secs(2);

/// The functions that a script is entered by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hook {
    RequestHeaders,
    RequestBody,
    ResponseHeaders,
    ResponseBody,
}

/// A function of a script, as far as entering it goes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EntryPoint {
    pub(crate) function: Ref,
    /// There is no statement in it: calling it makes no difference to anybody.
    pub(crate) does_nothing: bool,
}

/// The gauge of a machine's memory is that exact: each entry allocates a little.
const MEMORY_STEP: usize = 16 * 1024;

pub(crate) struct Machine {
    pub(crate) vm: Vm,
    /// Boxed: the machine knows its address.
    pub(crate) context: Box<Context>,
    /// Out while a script of this machine runs. Boxed: it is moved for each entry.
    pub(crate) scratch: Cell<Option<Box<Scratch>>>,
    hooks: [Option<EntryPoint>; 4],
    /// Called with the number of a stream that is over and for which something is kept.
    forget: Option<Ref>,
    /// What the script's author should hear: functions in it that nobody will call.
    pub(crate) notice: Option<String>,
    last_turn: Cell<i32>,
    /// What was last told of its memory.
    told: Cell<usize>,
    /// Chooses the entries that are measured.
    sampling: Sampling,
    /// Where it is counted for as long as it lives.
    counted: OnceCell<Rc<Block>>,
}

impl Drop for Machine {
    fn drop(&mut self) {
        if let Some(block) = self.counted.get() {
            block.gauge_sub(machines::VM_COUNT, 1);
        }
    }
}

impl Machine {
    /// Makes the machine and loads the SDK and the script. The script's own top level, and its `on_configure`, run in
    /// `turn`, which has no stream.
    ///
    /// # Errors
    /// Whatever is wrong with the script.
    pub(crate) fn load(
        program: &Program,
        memory: usize,
        cpu: Duration,
        turn: &mut Turn<'_, '_>,
    ) -> Result<Machine, Fault> {
        checkhook::required()?;
        let cpu = observe::budget(cpu);
        let loading = cpu.max(LOADING);
        Machine::load_within(loading, program, memory, cpu, turn).map_err(|fault| match fault {
            Fault::Cpu(at) => {
                let at = at.map(|at| format!("{at}: ")).unwrap_or_default();
                Fault::Error(format!("{at}the CPU budget of loading, {} s, is spent", loading.as_secs_f64()))
            }
            Fault::Error(_) | Fault::Config(_) | Fault::Memory => fault,
        })
    }

    fn load_within(
        loading: Duration,
        program: &Program,
        memory: usize,
        cpu: Duration,
        turn: &mut Turn<'_, '_>,
    ) -> Result<Machine, Fault> {
        let vm = Vm::new(memory, loading)?;
        observe::made(&vm, program)?;
        let context = Box::new(Context::default());
        context.side.set(-1);
        let address: *const Context = &*context;
        let (hooks, refused) = turn.during(|| {
            let border = vm.run(
                "=postrider.abi",
                sdk::ABI.as_bytes(),
                &[
                    Argument::Pointer((&raw const TABLE).cast()),
                    Argument::Pointer(address.cast()),
                    Argument::Mark,
                    Argument::Pointer(std::ptr::null()),
                ],
            )?;
            let border = border.ok_or_else(|| Fault::Error("the SDK did not load".to_owned()))?;
            let hooks = sdk::install(&vm, border, program);
            Ok((hooks, vm.text(border, c"refused")))
        })?;
        let hooks = hooks.map_err(|fault| match (fault, refused) {
            (Fault::Error(said), Some(refused)) if said == refused => Fault::Config(said),
            (fault, _) => fault,
        })?;
        vm.settle();
        vm.set_budget(cpu);
        let find = |name| hooks.and_then(|table| vm.function(table, name));
        let idle = hooks.and_then(|table| vm.table(table, c"idle"));
        let entry_point = |name| {
            let does_nothing = idle.is_some_and(|table| vm.is_true(table, name));
            find(name).map(|function| EntryPoint { function, does_nothing })
        };
        let entry_points =
            [c"request_headers", c"request_body", c"response_headers", c"response_body"].map(entry_point);
        let forget = find(c"forget");
        let notice = hooks.and_then(|table| vm.text(table, c"notice"));
        Ok(Machine {
            hooks: entry_points,
            forget,
            notice,
            vm,
            context,
            scratch: Cell::default(),
            last_turn: Cell::new(0),
            told: Cell::new(0),
            sampling: Sampling::default(),
            counted: OnceCell::new(),
        })
    }

    /// Counts it there from now on.
    pub(crate) fn count_in(&self, block: &Rc<Block>) {
        if self.counted.set(block.clone()).is_ok() {
            block.gauge_add(machines::VM_COUNT, 1);
        }
    }

    #[inline]
    pub(crate) fn hook(&self, hook: Hook) -> Option<EntryPoint> {
        self.hooks.get(hook as usize).copied().flatten()
    }

    /// For how many entries this one stands, if it is measured.
    #[inline]
    pub(crate) fn stands_for(&self) -> Option<u32> {
        self.sampling.take()
    }

    /// The memory that it holds, when that is worth telling.
    #[inline]
    pub(crate) fn memory_to_tell(&self) -> Option<usize> {
        let bytes = self.vm.memory();
        if bytes.abs_diff(self.told.get()) < MEMORY_STEP {
            return None;
        }
        self.told.set(bytes);
        Some(bytes)
    }

    /// A number for a stream that no script of this worker has seen: a stream keeps its number when it goes on in the
    /// machine that replaced an exhausted one, where it must not be taken for another.
    pub(crate) fn new_stream(&self) -> i32 {
        thread_local! {
            static LAST: Cell<i32> = const { Cell::new(0) };
        }
        let next = LAST.get().checked_add(1).unwrap_or(1);
        LAST.set(next);
        next
    }

    /// Tells the script's side of the border where it is.
    #[inline]
    pub(crate) fn announce(&self, stream: i32, side: Side, plugin: i32) {
        // Downwards: a turn never has a stream's number, so the SDK tells by one comparison what an object is good for.
        let turn = self.last_turn.get().checked_sub(1).unwrap_or(-1);
        self.last_turn.set(turn);
        self.context.stream.set(stream);
        self.context.turn.set(turn);
        self.context.side.set(side as i32);
        self.context.message.set(stream.wrapping_mul(2).wrapping_add(side as i32));
        self.context.plugin.set(plugin);
    }

    /// The stream is over.
    pub(crate) fn forget(&self, stream: i32) {
        if let Some(forget) = self.forget {
            // What fails here has nobody to tell: the stream is over.
            let _ = self.vm.call(forget, &[Argument::Number(f64::from(stream))]);
        }
    }
}
