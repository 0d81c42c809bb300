//! A virtual machine: one instance of a module on one worker, and the way into it.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use postrider_filter_api::Host;
use postrider_filter_plugin::Metrics;
use postrider_filter_trial::observe::{self, Event};
use postrider_telemetry::log::{Component, Level};
use rustix::time::{ClockId, clock_gettime};
use wasmtime::{Instance, Store, Trap, TypedFunc, UpdateDeadline, WasmParams, WasmResults};

use crate::analysis::Abi;
use crate::contexts::{Contexts, Kind, Root};
use crate::data::{At, Data, Limiter, Present, Received};
use crate::program::{Plugin, Program};
use crate::seat::Seat;
use crate::ticker::Running;

/// CPU time that starting and configuring have at least: they happen once.
const STARTING: Duration = Duration::from_secs(2);

pub(crate) struct Vm {
    pub(crate) program: Arc<Program>,
    pub(crate) functions: Functions,
    store: RefCell<Store<Data>>,
    /// It failed: nothing enters it any more.
    dead: Cell<bool>,
    /// Tells machines of one thread apart.
    pub(crate) serial: u32,
}

/// Why a call ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fault {
    /// In the engine's words.
    Trap(String),
    /// It took more than so much.
    Cpu(Duration),
    /// It wanted more than so many bytes.
    Memory(usize),
    /// The machine failed before.
    Dead,
    /// The module said no: `proxy_on_vm_start` or `proxy_on_configure` returned false.
    Refused(&'static str),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Trap(text) => f.write_str(text),
            Fault::Cpu(most) => write!(
                f,
                "the CPU budget of this call, {} ms, is spent; `budget.cpu` among the plugin's rules raises it",
                most.as_millis()
            ),
            Fault::Memory(most) => write!(
                f,
                "the memory budget of {most} bytes is spent; `budget.memory_bytes` among the plugin's rules raises it"
            ),
            Fault::Dead => f.write_str("the virtual machine failed before"),
            Fault::Refused(function) => write!(f, "the module refuses its configuration: `{function}` returned false"),
        }
    }
}

/// The worker that a machine is on.
pub(crate) struct Worker {
    pub(crate) host: Rc<dyn Host>,
    pub(crate) metrics: Metrics,
}

pub(crate) type Call<P, R = ()> = Option<TypedFunc<P, R>>;

/// A function whose arguments depend on the ABI.
pub(crate) enum OnHeaders {
    /// 0.1.0
    Count(TypedFunc<(u32, u32), u32>),
    CountAndEnd(TypedFunc<(u32, u32, u32), u32>),
}

/// The module's functions; those that are not there, or do nothing, are left out.
pub(crate) struct Functions {
    on_context_create: Call<(u32, u32)>,
    on_vm_start: Call<(u32, u32), u32>,
    on_configure: Call<(u32, u32), u32>,
    on_tick: Call<u32>,
    on_queue_ready: Call<(u32, u32)>,
    pub(crate) on_request_headers: Option<OnHeaders>,
    pub(crate) on_request_body: Call<(u32, u32, u32), u32>,
    pub(crate) on_request_trailers: Call<(u32, u32), u32>,
    pub(crate) on_response_headers: Option<OnHeaders>,
    pub(crate) on_response_body: Call<(u32, u32, u32), u32>,
    pub(crate) on_response_trailers: Call<(u32, u32), u32>,
    pub(crate) on_log: Call<u32>,
    pub(crate) on_done: Call<u32, u32>,
    on_delete: Call<u32>,
    pub(crate) on_new_connection: Call<u32, u32>,
    pub(crate) on_downstream_data: Call<(u32, u32, u32), u32>,
    pub(crate) on_upstream_data: Call<(u32, u32, u32), u32>,
    pub(crate) on_downstream_close: Call<(u32, u32)>,
    pub(crate) on_upstream_close: Call<(u32, u32)>,
    pub(crate) on_http_call_response: Call<(u32, u32, u32, u32, u32)>,
    pub(crate) on_grpc_initial: Call<(u32, u32, u32)>,
    pub(crate) on_grpc_receive: Call<(u32, u32, u32)>,
    pub(crate) on_grpc_trailing: Call<(u32, u32, u32)>,
    pub(crate) on_grpc_close: Call<(u32, u32, u32)>,
    /// Envoy's own: no part of the ABI, and restricted by no capability.
    pub(crate) on_stats_update: Call<(u32, u32)>,
}

impl Functions {
    fn find(instance: &Instance, store: &mut Store<Data>, program: &Program) -> Result<Functions, String> {
        let mut finder = Finder { instance, store, program };
        Ok(Functions {
            on_context_create: finder.find("proxy_on_context_create", 0)?,
            on_vm_start: finder.find("proxy_on_vm_start", 1)?,
            on_configure: finder.find("proxy_on_configure", 1)?,
            on_tick: finder.find("proxy_on_tick", 0)?,
            on_queue_ready: finder.find("proxy_on_queue_ready", 0)?,
            on_request_headers: finder.headers("proxy_on_request_headers")?,
            on_request_body: finder.find("proxy_on_request_body", 0)?,
            on_request_trailers: finder.find("proxy_on_request_trailers", 0)?,
            on_response_headers: finder.headers("proxy_on_response_headers")?,
            on_response_body: finder.find("proxy_on_response_body", 0)?,
            on_response_trailers: finder.find("proxy_on_response_trailers", 0)?,
            on_log: finder.find("proxy_on_log", 0)?,
            on_done: finder.find("proxy_on_done", 1)?,
            on_delete: finder.find("proxy_on_delete", 0)?,
            on_new_connection: finder.find("proxy_on_new_connection", 0)?,
            on_downstream_data: finder.find("proxy_on_downstream_data", 0)?,
            on_upstream_data: finder.find("proxy_on_upstream_data", 0)?,
            on_downstream_close: finder.find("proxy_on_downstream_connection_close", 0)?,
            on_upstream_close: finder.find("proxy_on_upstream_connection_close", 0)?,
            on_http_call_response: finder.find("proxy_on_http_call_response", 0)?,
            on_grpc_initial: finder.find("proxy_on_grpc_receive_initial_metadata", 0)?,
            on_grpc_trailing: finder.find("proxy_on_grpc_receive_trailing_metadata", 0)?,
            on_grpc_receive: finder.find("proxy_on_grpc_receive", 0)?,
            on_grpc_close: finder.find("proxy_on_grpc_close", 0)?,
            on_stats_update: finder.find_anyway("envoy_on_stats_update", 0)?,
        })
    }

    /// Some function is called for each stream, whatever it holds.
    pub(crate) fn sees_streams(&self) -> bool {
        self.on_request_headers.is_some()
            || self.on_request_body.is_some()
            || self.on_request_trailers.is_some()
            || self.on_response_headers.is_some()
            || self.on_response_body.is_some()
            || self.on_response_trailers.is_some()
            || self.ends_streams()
            || self.on_context_create.is_some()
    }

    /// Some function is called for each connection, whatever it brings.
    pub(crate) fn sees_connections(&self) -> bool {
        self.on_new_connection.is_some()
            || self.on_downstream_data.is_some()
            || self.on_upstream_data.is_some()
            || self.on_downstream_close.is_some()
            || self.on_upstream_close.is_some()
            || self.ends_streams()
            || self.on_context_create.is_some()
    }

    /// Some function is called at a stream's end.
    pub(crate) fn ends_streams(&self) -> bool {
        self.on_log.is_some() || self.on_done.is_some() || self.on_delete.is_some()
    }
}

struct Finder<'a> {
    instance: &'a Instance,
    store: &'a mut Store<Data>,
    program: &'a Program,
}

impl Finder<'_> {
    fn find<P: WasmParams, R: WasmResults>(&mut self, name: &str, nothing: i32) -> Result<Call<P, R>, String> {
        match self.program.may(name) {
            true => self.find_anyway(name, nothing),
            false => Ok(None),
        }
    }

    /// The same, whatever capabilities are given.
    fn find_anyway<P: WasmParams, R: WasmResults>(&mut self, name: &str, nothing: i32) -> Result<Call<P, R>, String> {
        if !self.program.analysis.acts(name, nothing) {
            return Ok(None);
        }
        let found = self.instance.get_typed_func(&mut *self.store, name);
        found.map(Some).map_err(|error| format!("the module's function `{name}`: {error:#}"))
    }

    fn headers(&mut self, name: &str) -> Result<Option<OnHeaders>, String> {
        Ok(match self.program.abi() {
            Abi::V010 => self.find(name, 0)?.map(OnHeaders::Count),
            Abi::V020 | Abi::V021 => self.find(name, 0)?.map(OnHeaders::CountAndEnd),
        })
    }
}

impl Vm {
    /// Makes the instance and starts it. Without a worker, a configuration is only tried out.
    ///
    /// # Errors
    /// It does not start.
    pub(crate) fn start(program: &Arc<Program>, worker: Option<Worker>) -> Result<Rc<Vm>, Fault> {
        thread_local! {
            static LAST: Cell<u32> = const { Cell::new(0) };
        }
        let (host, metrics) = worker.map(|worker| (worker.host, worker.metrics)).unzip();
        let data = Data {
            program: program.clone(),
            memory: None,
            malloc: None,
            contexts: Contexts::default(),
            current: 0,
            effective: 0,
            present: Present::default(),
            scratch: Vec::new(),
            received: Received::default(),
            status: (0, Vec::new()),
            metrics,
            limiter: Limiter::new(program.memory),
            watched_from: None,
            host,
            vm: Weak::new(),
            last_http_call: 0,
            last_grpc_call: 0,
            paths: Default::default(),
            budget: 0,
        };
        let mut store = Store::new(program.pre.module().engine(), data);
        store.limiter(|data| &mut data.limiter);
        store.epoch_deadline_callback(|mut store| {
            let now = cpu_time();
            let data = store.data_mut();
            let from = *data.watched_from.get_or_insert(now);
            let is_spent = now.saturating_sub(from) >= data.budget && now != from;
            Ok(if is_spent { UpdateDeadline::Interrupt } else { UpdateDeadline::Continue(1) })
        });
        let serial = LAST.get().wrapping_add(1);
        LAST.set(serial);
        store.data_mut().budget = budget(program.cpu.max(STARTING));
        store.set_epoch_deadline(1);
        let made = {
            let _running = Running::begin();
            program.pre.instantiate(&mut store)
        };
        let instance = made.map_err(|error| fault(&error, &store))?;
        let memory = instance.get_memory(&mut store, "memory");
        let malloc = match instance.get_typed_func(&mut store, "malloc") {
            Ok(malloc) => malloc,
            Err(_) => instance
                .get_typed_func(&mut store, "proxy_on_memory_allocate")
                .map_err(|error| Fault::Trap(format!("the module's allocator: {error:#}")))?,
        };
        store.data_mut().memory = memory;
        store.data_mut().malloc = Some(malloc);
        let functions = Functions::find(&instance, &mut store, program).map_err(Fault::Trap)?;
        let vm = Rc::new(Vm {
            program: program.clone(),
            functions,
            store: RefCell::new(store),
            dead: Cell::new(false),
            serial,
        });
        vm.with(|data| data.vm = Rc::downgrade(&vm));
        vm.run_start(&instance)?;
        Ok(vm)
    }

    /// A reactor's `_initialize` and its `main`, or a command's `_start`.
    fn run_start(&self, instance: &Instance) -> Result<(), Fault> {
        let analysis = &self.program.analysis;
        let typed = |name: &str| analysis.exports(name);
        if typed("_initialize") {
            self.run::<(), ()>(instance, "_initialize", ())?;
            if typed("main") {
                self.run::<(u32, u32), u32>(instance, "main", (0, 0))?;
            } else if typed("__main_void") {
                self.run::<(), u32>(instance, "__main_void", ())?;
            }
        } else if typed("_start") {
            self.run::<(), ()>(instance, "_start", ())?;
        }
        Ok(())
    }

    fn run<P: WasmParams, R: WasmResults>(&self, instance: &Instance, name: &str, params: P) -> Result<(), Fault> {
        let function = match self.store.try_borrow_mut() {
            Ok(mut store) => instance.get_typed_func::<P, R>(&mut *store, name),
            Err(_) => return Err(Fault::Dead),
        };
        let function = function.map_err(|error| Fault::Trap(format!("the module's function `{name}`: {error:#}")))?;
        self.enter(0, At::Nowhere, &function, params).map(|_| ())
    }

    /// Makes the root context of a plugin, starts the machine if this is its first one, and configures the plugin.
    ///
    /// # Errors
    /// It fails, or the module refuses.
    pub(crate) fn add_root(&self, plugin: &Arc<Plugin>) -> Result<u32, Fault> {
        self.set_budget(self.program.cpu.max(STARTING));
        let root = Root {
            plugin: plugin.clone(),
            tick: 0,
            timer: None,
            calls: Vec::new(),
            conversations: Vec::new(),
            is_leaving: false,
            declared: Vec::new(),
            expressions: Vec::new(),
        };
        let added =
            self.with(|data| (data.contexts.roots().is_empty(), data.contexts.add(0, Kind::Root(Box::new(root)))));
        let (is_first, id) = added.ok_or(Fault::Dead)?;
        let configured = self.configure(id, is_first, plugin);
        self.set_budget(self.program.cpu);
        if configured.is_err() {
            self.with(|data| data.contexts.remove(id));
        }
        configured.map(|()| id)
    }

    fn configure(&self, id: u32, is_first: bool, plugin: &Plugin) -> Result<(), Fault> {
        self.create(id, 0, At::Nowhere)?;
        if is_first && let Some(start) = &self.functions.on_vm_start {
            let length = self.program.configuration.len() as u32;
            if self.enter(id, At::Nowhere, start, (id, length))? == 0 {
                return Err(Fault::Refused("proxy_on_vm_start"));
            }
        }
        if let Some(configure) = &self.functions.on_configure
            && self.enter(id, At::Nowhere, configure, (id, plugin.configuration.len() as u32))? == 0
        {
            return Err(Fault::Refused("proxy_on_configure"));
        }
        Ok(())
    }

    /// The plugin is not used any more.
    pub(crate) fn remove_root(&self, id: u32) {
        let done = match &self.functions.on_done {
            // One that fails has nothing more to do.
            Some(done) => !self.enter(id, At::Nowhere, done, id).is_ok_and(|done| done == 0),
            None => true,
        };
        if done {
            self.delete_root(id);
        } else {
            self.with(|data| {
                if let Some(root) = data.contexts.root(id) {
                    root.is_leaving = true;
                }
            });
        }
    }

    /// The module has nothing more to do for it.
    pub(crate) fn delete_root(&self, id: u32) {
        let _ = self.delete(id, At::Nowhere);
        // What it holds may call back when it goes: not with the machine in hand.
        let gone = self.with(|data| data.contexts.remove(id));
        drop(gone);
    }

    pub(crate) fn create(&self, id: u32, parent: u32, at: At<'_, '_>) -> Result<(), Fault> {
        match &self.functions.on_context_create {
            Some(create) => self.enter(id, at, create, (id, parent)),
            None => Ok(()),
        }
    }

    pub(crate) fn delete(&self, id: u32, at: At<'_, '_>) -> Result<(), Fault> {
        match &self.functions.on_delete {
            Some(delete) => self.enter(id, at, delete, id),
            None => Ok(()),
        }
    }

    /// A root context's timer went off.
    pub(crate) fn tick(&self, root: u32) {
        if let Some(tick) = &self.functions.on_tick {
            self.aside(root, || self.enter(root, At::Nowhere, tick, root));
        }
        self.with(|data| schedule_tick(data, root));
    }

    /// Something came into a queue that this root context registered.
    pub(crate) fn queue_ready(&self, root: u32, token: u32) {
        let known = self.with(|data| data.contexts.root(root).is_some());
        if let Some(ready) = &self.functions.on_queue_ready
            && known == Some(true)
        {
            self.aside(root, || self.enter(root, At::Nowhere, ready, (root, token)));
        }
    }

    /// Calls the module for a root context, and for no stream that would count what fails.
    pub(crate) fn aside(&self, root: u32, call: impl FnOnce() -> Result<(), Fault>) {
        // Those of a machine that fails are gone with it.
        let plugin = self.with(|data| data.contexts.root(root).map(|root| root.plugin.clone())).flatten();
        if let (Err(fault), Some(plugin)) = (call(), plugin) {
            Seat::fault_aside(&plugin, &fault);
        }
    }

    /// Lets `act` look at what is beside the machine's memory; `None` while the module runs.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut Data) -> T) -> Option<T> {
        let mut store = self.store.try_borrow_mut().ok()?;
        Some(act(store.data_mut()))
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.dead.get()
    }

    /// Bytes of its memory.
    pub(crate) fn memory(&self) -> usize {
        self.with(|data| data.limiter.bytes).unwrap_or(0)
    }

    fn set_budget(&self, cpu: Duration) {
        self.with(|data| data.budget = budget(cpu));
    }

    /// Calls a function for a context.
    pub(crate) fn enter<P: WasmParams, R: WasmResults>(
        &self,
        id: u32,
        at: At<'_, '_>,
        function: &TypedFunc<P, R>,
        params: P,
    ) -> Result<R, Fault> {
        self.enter_for(id, id, at, function, params)
    }

    /// The same, with the stream of another context at hand.
    pub(crate) fn enter_for<P: WasmParams, R: WasmResults>(
        &self,
        id: u32,
        stream: u32,
        at: At<'_, '_>,
        function: &TypedFunc<P, R>,
        params: P,
    ) -> Result<R, Fault> {
        if self.dead.get() {
            return Err(Fault::Dead);
        }
        let Ok(mut store) = self.store.try_borrow_mut() else { return Err(Fault::Dead) };
        store.set_epoch_deadline(1);
        let data = store.data_mut();
        data.current = id;
        data.effective = 0;
        data.watched_from = None;
        data.present.set(stream, at);
        let outcome = {
            let _running = Running::begin();
            function.call(&mut *store, params)
        };
        store.data_mut().present.clear();
        outcome.map_err(|error| {
            let fault = fault(&error, &store);
            drop(store);
            self.die(&fault);
            fault
        })
    }

    /// Nothing enters it any more; who waits for it is woken, and what is under way is abandoned.
    #[cold]
    fn die(&self, fault: &Fault) {
        self.dead.set(true);
        if observe::is_on() {
            observe::note(Event::Fault { text: fault.to_string(), traceback: String::new() });
        }
        let left = self.with(|data| std::mem::take(&mut data.contexts));
        for plugin in left.iter().flat_map(Contexts::plugins) {
            let follows = plugin.failure.consequence();
            log(Level::Error, &format!("the WebAssembly plugin {} failed: {fault}; {follows}", plugin.facts.name));
        }
        for bell in left.iter().flat_map(Contexts::bells) {
            bell.resume();
        }
        left.iter().for_each(Contexts::close_connections);
        // With the contexts go timers and calls.
    }
}

/// Sets the next tick of a root context.
pub(crate) fn schedule_tick(data: &mut Data, id: u32) {
    let (vm, tick) = (data.vm.clone(), data.contexts.root(id).map_or(0, |root| root.tick));
    let timer = (tick > 0).then(|| {
        data.with_host(|host| {
            let ring = move || {
                if let Some(vm) = vm.upgrade() {
                    vm.tick(id);
                }
            };
            host.after(Duration::from_millis(u64::from(tick)), Box::new(ring))
        })
    });
    if let Some(root) = data.contexts.root(id) {
        root.timer = timer.flatten();
    }
}

fn budget(cpu: Duration) -> u64 {
    u64::try_from(cpu.as_nanos()).unwrap_or(u64::MAX)
}

/// CPU time of this thread in nanoseconds.
fn cpu_time() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}

fn fault(error: &wasmtime::Error, store: &Store<Data>) -> Fault {
    match error.downcast_ref::<Trap>() {
        Some(Trap::Interrupt) => Fault::Cpu(Duration::from_nanos(store.data().budget)),
        _ if store.data().limiter.refused => Fault::Memory(store.data().limiter.most),
        Some(trap) => {
            let frames = error.downcast_ref::<wasmtime::WasmBacktrace>().map(backtrace).unwrap_or_default();
            Fault::Trap(format!("{trap}{frames}"))
        }
        None => Fault::Trap(error.root_cause().to_string()),
    }
}

fn backtrace(trace: &wasmtime::WasmBacktrace) -> String {
    /// The innermost functions say enough.
    const FRAMES: usize = 8;
    let name = |frame: &wasmtime::FrameInfo| {
        frame.func_name().map_or_else(|| format!("function {}", frame.func_index()), str::to_owned)
    };
    let names: Vec<String> = trace.frames().iter().take(FRAMES).map(name).collect();
    if names.is_empty() { String::new() } else { format!(" in {}", names.join(" < ")) }
}

pub(crate) fn log(level: Level, text: &str) {
    if observe::is_on() {
        observe::note(Event::Log { level, text: text.to_owned() });
        return;
    }
    postrider_telemetry::log::write(Component::Filter, level, format_args!("{text}"));
}
