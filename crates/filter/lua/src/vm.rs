//! One LuaJIT virtual machine: its memory, its programs and its coroutines.
//!
//! A [`Vm`] belongs to one worker. Whatever runs in it runs protected: an error, a budget that is spent and memory that
//! is used up all come back as a [`Fault`]. Two rules keep that sound. Lua errors unwind frames without running Rust
//! destructors, so nothing on the Rust side calls into Lua while a script is running: what scripts call
//! ([`crate::abi`]) never touches the machine. And outside scripts the memory cap is off, so what the host itself puts
//! on the stack cannot fail.

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::fmt;
use std::ptr::{self, NonNull};
use std::rc::Rc;

use mlua_sys as lua;
use mlua_sys::lua_State;

use crate::heap::{self, Heap, Lent};
use crate::power;
use crate::sdk;
use crate::watchdog;

/// Coroutines kept for the next streams; more that were in use at once are left to the collector.
const POOLED_COROUTINES: usize = 64;

/// A cycle of the collector begins when memory has grown by half of what the last one left, but not by less than this:
/// marking what lives costs the same whether there is much garbage or little.
/// A large heap would push everything else out of the second-level cache.
const COLLECT_FLOOR: usize = 1 << 20;

/// The floor is at most this part of what a machine may hold.
const COLLECT_SHARE: usize = 8;

/// How much work one step of the collector is: LuaJIT counts a kilobyte for each.
const COLLECT_STEP: c_int = 32;

/// What luajit.h has for [`luaJIT_setmode`]: the compiler as a whole.
const LUAJIT_MODE_ENGINE: c_int = 0;
const LUAJIT_MODE_OFF: c_int = 0;
const LUAJIT_MODE_ON: c_int = 0x100;

unsafe extern "C" {
    /// luajit.h: 1 when it was done.
    fn luaJIT_setmode(state: *mut lua_State, index: c_int, mode: c_int) -> c_int;
}

unsafe extern "C-unwind" {
    /// LuaJIT's own. That of `mlua_sys` looks for the names of functions in every table of every module, which takes as long as a script
    /// likes: within this no budget counts.
    fn luaL_traceback(state: *mut lua_State, of: *mut lua_State, message: *const c_char, level: c_int);
}

pub(crate) struct Vm {
    state: *mut lua_State,
    /// Boxed: the state knows its address.
    heap: Rc<Heap>,
    /// The coroutine that is used next; most functions come to their end before another one begins.
    spare: Cell<Option<Coroutine>>,
    idle: RefCell<Vec<Coroutine>>,
    /// The next cycle of the collector begins at so many bytes.
    collect_at: Cell<usize>,
    watch: watchdog::Watch,
    /// Where the call was that was stopped last.
    stopped_at: Cell<Option<String>>,
    /// Runs the finalisers that the collector put by.
    finalise: Cell<Option<Ref>>,
    /// Called with each line that runs ([`Vm::trace_lines`]).
    on_line: Cell<Option<LineHook>>,
}

/// What LuaJIT calls with each line.
pub(crate) type LineHook = unsafe extern "C-unwind" fn(*mut lua_State, *mut lua::lua_Debug);

/// A thread of execution that may wait. Anchored in the registry.
#[derive(Debug)]
pub(crate) struct Coroutine {
    state: NonNull<lua_State>,
    anchor: c_int,
}

/// A value kept in the registry; lives as long as the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ref(c_int);

/// How a coroutine came back.
#[derive(Debug)]
pub(crate) enum Ran {
    Finished,
    /// Before its end: with the number that it yielded, which says what it waits for (`None` for a yield that is not one of
    /// ours), or with why it failed.
    Stopped(Coroutine, Result<Option<i32>, Fault>),
}

/// Why a script did not come to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fault {
    /// What the script raised, with where.
    Error(String),
    /// Its validator refused its configuration, in these words.
    Config(String),
    /// Its CPU budget is spent: at that line (`file:line`) of it, if that is known.
    Cpu(Option<String>),
    /// Its memory is used up: the machine is not to be used again.
    Memory,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Error(text) | Fault::Config(text) => f.write_str(text),
            Fault::Cpu(Some(at)) => write!(f, "{at}: the CPU budget of a call is spent"),
            Fault::Cpu(None) => f.write_str("the CPU budget of a call is spent"),
            Fault::Memory => f.write_str("the memory budget is used up"),
        }
    }
}

impl Vm {
    /// A machine with the standard libraries, whose scripts may hold `memory` bytes and run for `cpu` at a time.
    ///
    /// # Errors
    /// There is no memory for it, or this system lacks what scripts need.
    pub(crate) fn new(memory: usize, cpu: std::time::Duration) -> Result<Vm, Fault> {
        power::prepare()?;
        let heap = Rc::new(Heap::new(memory));
        // SAFETY: `allocate` keeps the contract of `lua_Alloc`, and the heap stays where it is and outlives the state, which
        // `Drop` closes first.
        let state = unsafe { lua::lua_newstate(heap::allocate, ptr::from_ref(&*heap).cast_mut().cast()) };
        if state.is_null() {
            return Err(Fault::Memory);
        }
        // SAFETY: the state is fresh and no other code has it; with the cap off these cannot fail for want of memory.
        unsafe {
            lua::luaL_openlibs(state);
            lua::lua_gc(state, lua::LUA_GCSETSTEPMUL, 200);
        }
        Ok(Vm {
            state,
            heap,
            spare: Cell::new(None),
            idle: RefCell::default(),
            collect_at: Cell::new(usize::MAX),
            watch: watchdog::Watch::new(cpu),
            stopped_at: Cell::new(None),
            finalise: Cell::new(None),
            on_line: Cell::new(None),
        })
    }

    /// Calls `hook` with each line that runs from now on, without the compiler: for the tool, never while serving.
    ///
    /// # Errors
    /// The compiler cannot be switched off.
    pub(crate) fn trace_lines(&self, hook: LineHook) -> Result<(), Fault> {
        self.run("=postrider.tool", b"jit.off() jit.flush()", &[])?;
        self.on_line.set(Some(hook));
        self.set_hook();
        Ok(())
    }

    /// Whether what runs often is compiled, unless lines are counted. Switched on, the machine begins anew to count how often.
    pub(crate) fn set_compiler(&self, is_on: bool) {
        if self.on_line.get().is_none() {
            let mode = LUAJIT_MODE_ENGINE | if is_on { LUAJIT_MODE_ON } else { LUAJIT_MODE_OFF };
            // SAFETY: the state lives, and no script is running.
            unsafe { luaJIT_setmode(self.state, 0, mode) };
        }
    }

    /// Where a coroutine that failed stood in its script, innermost call first; empty when that is not known.
    pub(crate) fn traceback(&self, coroutine: &Coroutine) -> String {
        let state = self.state;
        // SAFETY: no script is running and the cap is off; a coroutine that failed keeps its frames until it is
        // discarded; the text is copied while it is on the stack, which is as high after as before.
        unsafe {
            let top = lua::lua_gettop(state);
            lua::lua_checkstack(state, lua::LUA_TRACEBACK_STACK);
            luaL_traceback(state, coroutine.state.as_ptr(), ptr::null(), 0);
            let text = text_at(state, -1);
            lua::lua_settop(state, top);
            let is_of_script = |line: &&str| !sdk::is_own_place(line.trim_start());
            text.unwrap_or_default().lines().filter(is_of_script).collect::<Vec<_>>().join("\n")
        }
    }

    /// Bytes that the machine holds.
    pub(crate) fn memory(&self) -> usize {
        self.heap.used()
    }

    /// Counts bytes that the proxy holds for a script, until they are dropped; `None` when they are more than it may have.
    pub(crate) fn lend(&self, bytes: usize) -> Option<Lent> {
        self.heap.lend(bytes)
    }

    /// Bytes that its scripts have taken so far, whatever became of them.
    #[inline]
    pub(crate) fn taken(&self) -> u64 {
        self.heap.taken()
    }

    /// Compiles `source` and calls it with `arguments`; keeps what it returns if that is a table or function.
    ///
    /// # Errors
    /// It does not compile, or fails.
    pub(crate) fn run(&self, name: &str, source: &[u8], arguments: &[Argument<'_>]) -> Result<Option<Ref>, Fault> {
        let chunk = self.load(name, source)?;
        let result = self.call(chunk, arguments);
        self.release(chunk);
        result
    }

    /// Compiles `source` as text: precompiled code is refused, since it can break out of any sandbox.
    ///
    /// # Errors
    /// It does not compile.
    pub(crate) fn load(&self, name: &str, source: &[u8]) -> Result<Ref, Fault> {
        let name = format!("{}\0", name.replace('\0', " "));
        // SAFETY: the state lives; the buffer and the name, which ends with a zero byte, outlive the call; the loader
        // pushes exactly one value, function or message.
        unsafe {
            let status = lua::luaL_loadbufferx(
                self.state,
                source.as_ptr().cast(),
                source.len(),
                name.as_ptr().cast(),
                c"t".as_ptr(),
            );
            if status != lua::LUA_OK {
                return Err(self.fault(self.state, status));
            }
            Ok(Ref(lua::luaL_ref(self.state, lua::LUA_REGISTRYINDEX)))
        }
    }

    /// Calls a function to its end; it cannot wait. Keeps what it returns if that is a table or function.
    ///
    /// # Errors
    /// It failed.
    pub(crate) fn call(&self, function: Ref, arguments: &[Argument<'_>]) -> Result<Option<Ref>, Fault> {
        let state = self.state;
        // SAFETY: the state lives and is not running (whoever is called by a script cannot reach the machine);
        // `lua_checkstack` makes room for what is pushed; the stack is as high after as before.
        unsafe {
            let top = lua::lua_gettop(state);
            lua::lua_checkstack(state, arguments.len() as c_int + 4);
            lua::lua_rawgeti(state, lua::LUA_REGISTRYINDEX, function.0 as _);
            for argument in arguments {
                argument.push(state);
            }
            self.enter();
            let status = lua::lua_pcall(state, arguments.len() as c_int, 1, 0);
            let spent = self.leave();
            if status != lua::LUA_OK || spent {
                let fault = if spent { Fault::Cpu(self.stopped_at.take()) } else { self.fault(state, status) };
                lua::lua_settop(state, top);
                return Err(fault);
            }
            let kind = lua::lua_type(state, -1);
            let kept = matches!(kind, lua::LUA_TTABLE | lua::LUA_TFUNCTION)
                .then(|| Ref(lua::luaL_ref(state, lua::LUA_REGISTRYINDEX)));
            lua::lua_settop(state, top);
            Ok(kept)
        }
    }

    /// A function of a table; `None` when there is none by that name.
    pub(crate) fn function(&self, table: Ref, name: &CStr) -> Option<Ref> {
        // SAFETY: `with_field` has the value on top, which `luaL_ref` takes off.
        self.with_field(table, name, |state| unsafe {
            (lua::lua_type(state, -1) == lua::LUA_TFUNCTION).then(|| Ref(lua::luaL_ref(state, lua::LUA_REGISTRYINDEX)))
        })
    }

    /// A table in a table; `None` when there is none by that name.
    pub(crate) fn table(&self, table: Ref, name: &CStr) -> Option<Ref> {
        // SAFETY: `with_field` has the value on top, which `luaL_ref` takes off.
        self.with_field(table, name, |state| unsafe {
            (lua::lua_type(state, -1) == lua::LUA_TTABLE).then(|| Ref(lua::luaL_ref(state, lua::LUA_REGISTRYINDEX)))
        })
    }

    /// Whether a field of a table is anything but `nil` and `false`.
    pub(crate) fn is_true(&self, table: Ref, name: &CStr) -> bool {
        // SAFETY: `with_field` has the value on top.
        self.with_field(table, name, |state| unsafe { lua::lua_toboolean(state, -1) != 0 })
    }

    /// A field of a table as text: strings and numbers only.
    pub(crate) fn text(&self, table: Ref, name: &CStr) -> Option<String> {
        // SAFETY: `with_field` has the value on top; the string is copied while it is there.
        self.with_field(table, name, |state| unsafe { text_at(state, -1) })
    }

    /// Shows `act` a field of a table on top of the stack.
    fn with_field<T>(&self, table: Ref, name: &CStr, act: impl FnOnce(*mut lua_State) -> T) -> T {
        let state = self.state;
        // SAFETY: as for `call`; a raw access runs no code of the script.
        unsafe {
            let top = lua::lua_gettop(state);
            lua::lua_checkstack(state, 4);
            lua::lua_rawgeti(state, lua::LUA_REGISTRYINDEX, table.0 as _);
            lua::lua_pushstring(state, name.as_ptr());
            lua::lua_rawget(state, -2);
            let found = act(state);
            lua::lua_settop(state, top);
            found
        }
    }

    /// Forgets a kept value.
    pub(crate) fn release(&self, kept: Ref) {
        // SAFETY: the state lives, and the reference was made by this machine.
        unsafe { lua::luaL_unref(self.state, lua::LUA_REGISTRYINDEX, kept.0) }
    }

    /// Begins a function in a coroutine of its own.
    #[inline(always)]
    pub(crate) fn start(&self, function: Ref) -> Ran {
        let coroutine = self.spare.take().unwrap_or_else(|| self.another_coroutine());
        // SAFETY: the coroutine is idle with an empty stack, which has room for LUA_MINSTACK values.
        unsafe { lua::lua_rawgeti_(coroutine.state.as_ptr(), lua::LUA_REGISTRYINDEX, function.0) };
        self.resume(coroutine)
    }

    /// Goes on with a coroutine that waits, or that has its function on the stack.
    #[inline(always)]
    pub(crate) fn resume(&self, coroutine: Coroutine) -> Ran {
        self.enter();
        // SAFETY: the coroutine belongs to this machine, is suspended, and has its function (or nothing, when it waits)
        // on its stack.
        let status = unsafe { lua::lua_resume_(coroutine.state.as_ptr(), 0) };
        let spent = self.leave();
        if status != lua::LUA_OK || spent {
            return self.stopped(coroutine, status, spent);
        }
        self.recycle(coroutine);
        Ran::Finished
    }

    /// Why a coroutine came back before its end, or was stopped at it.
    #[inline(never)]
    fn stopped(&self, coroutine: Coroutine, status: c_int, spent: bool) -> Ran {
        let thread = coroutine.state.as_ptr();
        let stop = match status {
            _ if spent => Err(Fault::Cpu(self.stopped_at.take())),
            lua::LUA_YIELD => {
                // SAFETY: what was yielded is on the coroutine's stack; it is taken off before it goes on.
                let code = unsafe {
                    let ours = lua::lua_gettop(thread) == 2
                        && lua::lua_type(thread, -2) == lua::LUA_TLIGHTUSERDATA
                        && lua::lua_touserdata(thread, -2) == mark()
                        && lua::lua_type(thread, -1) == lua::LUA_TNUMBER;
                    let code = ours.then(|| lua::lua_tonumber(thread, -1) as i32);
                    lua::lua_settop(thread, 0);
                    code
                };
                Ok(code)
            }
            // SAFETY: the message is on top of the coroutine's stack, which nobody runs any more.
            failed => Err(unsafe { self.fault(thread, failed) }),
        };
        Ran::Stopped(coroutine, stop)
    }

    /// Takes back a coroutine that finished.
    #[inline(always)]
    fn recycle(&self, coroutine: Coroutine) {
        let state = coroutine.state.as_ptr();
        // SAFETY: it finished: its stack holds results at most.
        unsafe {
            if lua::lua_gettop(state) != 0 {
                lua::lua_settop(state, 0);
            }
        }
        if let Some(spare) = self.spare.replace(Some(coroutine)) {
            self.put_by(spare);
        }
    }

    #[inline(never)]
    fn put_by(&self, coroutine: Coroutine) {
        let mut idle = self.idle.borrow_mut();
        if idle.len() < POOLED_COROUTINES {
            idle.push(coroutine);
        } else {
            drop(idle);
            self.discard(coroutine);
        }
    }

    /// Gives up a coroutine that failed or that nobody will go on with.
    pub(crate) fn discard(&self, coroutine: Coroutine) {
        self.release(Ref(coroutine.anchor));
    }

    /// Lets the collector work a little when it is time for a cycle, or one is under way. Whether finalisers took all the
    /// time that a call has. Those that were put by are stopped then; others run to their end, whatever it is.
    #[inline]
    pub(crate) fn collect(&self) -> bool {
        self.heap.used() >= self.collect_at.get() && self.collector(lua::LUA_GCSTEP, COLLECT_STEP)
    }

    /// Calls `function` whenever the collector worked.
    pub(crate) fn run_after_collecting(&self, function: Option<Ref>) {
        self.finalise.set(function);
    }

    /// What calls may use from now on.
    pub(crate) fn set_budget(&self, cpu: std::time::Duration) {
        self.watch.set_budget(cpu);
    }

    /// Frees all that loading left behind, and begins to count from there.
    pub(crate) fn settle(&self) {
        let _ = self.collector(lua::LUA_GCCOLLECT, 0);
    }

    #[cold]
    fn collector(&self, what: c_int, amount: c_int) -> bool {
        // Finalisers that are not put by run in it; they are scripts, so the cap and the watch are on.
        self.enter();
        // SAFETY: no script is running, and the state lives.
        let ended = unsafe { lua::lua_gc(self.state, what, amount) == 1 || what == lua::LUA_GCCOLLECT };
        let mut is_overrun = self.leave();
        if let Some(finalise) = self.finalise.get() {
            is_overrun |= matches!(self.call(finalise, &[]), Err(Fault::Cpu(_)));
        }
        if !ended {
            return is_overrun;
        }
        let live = self.heap.used().max(1);
        let growth = COLLECT_FLOOR.min(self.heap.limit() / COLLECT_SHARE).max(live / 2);
        self.collect_at.set(live.saturating_add(growth));
        let pause = c_int::try_from(growth.saturating_mul(100) / live).unwrap_or(c_int::MAX - 100) + 100;
        // SAFETY: as above; these run nothing. The second makes a long call collect at the same mark, by itself.
        unsafe {
            lua::lua_gc(self.state, lua::LUA_GCSETPAUSE, pause);
            lua::lua_gc(self.state, lua::LUA_GCRESTART, -1);
        }
        is_overrun
    }

    #[inline(never)]
    fn another_coroutine(&self) -> Coroutine {
        if let Some(idle) = self.idle.borrow_mut().pop() {
            return idle;
        }
        // SAFETY: the cap is off, so there is memory or the process ends: there is a new thread, which is anchored at
        // once.
        unsafe {
            lua::lua_checkstack(self.state, 2);
            let state = NonNull::new_unchecked(lua::lua_newthread(self.state));
            Coroutine { state, anchor: lua::luaL_ref(self.state, lua::LUA_REGISTRYINDEX) }
        }
    }

    #[inline]
    fn enter(&self) {
        self.heap.cap();
        self.watch.begin(self.state);
    }

    /// Whether the budget was spent.
    #[inline]
    fn leave(&self) -> bool {
        let spent = self.watch.end();
        self.heap.uncap();
        if spent {
            self.set_hook();
            self.stopped_at.set(watchdog::take_place());
        }
        spent
    }

    /// The hook that the machine has outside stopped calls.
    #[cold]
    fn set_hook(&self) {
        let hook = self.on_line.get();
        let mask = if hook.is_some() { lua::LUA_MASKLINE } else { 0 };
        // SAFETY: no script is running, so no hook can be either.
        unsafe { lua::lua_sethook(self.state, hook, mask, 0) };
    }

    /// The error on top of the stack, which is taken off.
    ///
    /// # Safety
    /// `state` is this machine's main thread or one of its coroutines, not running, with a message on top.
    unsafe fn fault(&self, state: *mut lua_State, status: c_int) -> Fault {
        // SAFETY: by the contract above.
        unsafe {
            let text = text_at(state, -1);
            let kind = CStr::from_ptr(lua::lua_typename(state, lua::lua_type(state, -1)));
            let too_deep = self.heap.take_too_deep();
            let keys_collide = self.heap.take_keys_collide();
            let fault = match status {
                _ if self.heap.is_exhausted() => Fault::Memory,
                lua::LUA_ERRMEM if too_deep => Fault::Error("C stack overflow".to_owned()),
                lua::LUA_ERRMEM if keys_collide => {
                    Fault::Error("table overflow: too many of its keys collide".to_owned())
                }
                lua::LUA_ERRMEM => Fault::Memory,
                _ => Fault::Error(
                    text.unwrap_or_else(|| format!("(error object is a {} value)", kind.to_string_lossy())),
                ),
            };
            lua::lua_settop(state, -2);
            fault
        }
    }
}

impl Drop for Vm {
    fn drop(&mut self) {
        // SAFETY: nobody runs the state, and all coroutines go with it.
        unsafe { lua::lua_close(self.state) }
    }
}

/// What the host gives to a function.
pub(crate) enum Argument<'a> {
    Text(&'a [u8]),
    Number(f64),
    Bool(bool),
    /// An address that scripts may cast to a pointer.
    Pointer(*const c_void),
    /// The token that marks a yield as ours.
    Mark,
    Kept(Ref),
}

impl Argument<'_> {
    /// # Safety
    /// The stack of `state` has room for one more value.
    unsafe fn push(&self, state: *mut lua_State) {
        // SAFETY: by the contract above; the text outlives the call, which copies it.
        unsafe {
            match self {
                Argument::Text(text) => {
                    lua::lua_pushlstring(state, text.as_ptr().cast(), text.len());
                }
                Argument::Number(number) => lua::lua_pushnumber(state, *number),
                Argument::Bool(value) => lua::lua_pushboolean(state, c_int::from(*value)),
                Argument::Pointer(pointer) => lua::lua_pushlightuserdata(state, pointer.cast_mut()),
                Argument::Mark => lua::lua_pushlightuserdata(state, mark()),
                Argument::Kept(kept) => {
                    lua::lua_rawgeti(state, lua::LUA_REGISTRYINDEX, kept.0 as _);
                }
            }
        }
    }
}

/// An address of our own: no script can make it.
fn mark() -> *mut c_void {
    static MARK: u8 = 0;
    ptr::from_ref(&MARK).cast_mut().cast()
}

/// The string or number at `index`, copied.
///
/// # Safety
/// There is a value at `index`.
unsafe fn text_at(state: *mut lua_State, index: c_int) -> Option<String> {
    // SAFETY: by the contract above; the bytes stay while the value is on the stack.
    unsafe {
        if !matches!(lua::lua_type(state, index), lua::LUA_TSTRING | lua::LUA_TNUMBER) {
            return None;
        }
        let mut length = 0;
        let bytes: *const c_char = lua::lua_tolstring(state, index, &mut length);
        if bytes.is_null() {
            return None;
        }
        Some(String::from_utf8_lossy(std::slice::from_raw_parts(bytes.cast(), length)).into_owned())
    }
}
