//! Stops scripts that run too long, compiled ones too.
//!
//! A thread of its own looks every few milliseconds at what each worker runs. When a call has used its CPU time, it sends
//! the worker a signal, whose handler sets LuaJIT's hook: the machine is built to look for hooks in compiled loops, so
//! the very next instruction raises an error. The hook stays set until the call is over; a script that catches the
//! error gets the next one at once.
//!
//! What is measured is the worker thread's CPU time, so a machine that is short of cores makes no script a runaway. A
//! call costs two stores and one load.

use std::cell::{Cell, OnceCell};
use std::ffi::{CStr, c_int};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Thread;
use std::time::Duration;

use mlua_sys as lua;
use mlua_sys::lua_State;

use crate::heap::Heap;
use crate::sdk;

/// How often the thread looks: with it a call ends at most two rounds after its budget.
const ROUND: Duration = Duration::from_millis(3);

/// After so many rounds in which no script ran the thread sleeps until one does.
const QUIET_ROUNDS: u32 = 300;

/// What one machine's calls may use; kept by the machine.
pub(crate) struct Watch {
    /// Nanoseconds.
    budget: Cell<u64>,
}

/// What one worker runs.
struct Slot {
    thread: libc::pthread_t,
    clock: libc::clockid_t,
    /// Odd while a script runs; rises with every call and every return.
    epoch: AtomicU64,
    /// Nanoseconds.
    budget: AtomicU64,
    /// The call to stop.
    condemned: AtomicU64,
    /// The call that was stopped.
    stopped: AtomicU64,
}

thread_local! {
    static SLOT: OnceCell<Registered> = const { OnceCell::new() };
    /// The thread's slot, null before its first call, and what it runs or ran last. For the signal handler, too, which must
    /// not initialise anything.
    static CURRENT: Cell<(*const Slot, *mut lua_State)> = const { Cell::new((ptr::null(), ptr::null_mut())) };
    /// Where the call was that was stopped, as `file:line`.
    static PLACE: Cell<Option<String>> = const { Cell::new(None) };
}

/// Takes the worker off the list when its thread ends.
struct Registered(Arc<Slot>);

impl Watch {
    pub(crate) fn new(budget: Duration) -> Watch {
        let watch = Watch { budget: Cell::new(0) };
        watch.set_budget(budget);
        watch
    }

    /// What calls may use from now on.
    pub(crate) fn set_budget(&self, budget: Duration) {
        self.budget.set(u64::try_from(budget.as_nanos()).unwrap_or(u64::MAX));
    }

    /// A script of this machine begins to run on the calling thread.
    #[inline]
    pub(crate) fn begin(&self, state: *mut lua_State) {
        let (mut slot, _) = CURRENT.get();
        if slot.is_null() {
            slot = first_slot();
        }
        CURRENT.set((slot, state));
        // SAFETY: the slot that is noted lives until the thread ends, which takes the note away.
        let slot = unsafe { &*slot };
        slot.budget.store(self.budget.get(), Ordering::Relaxed);
        slot.epoch.store(slot.epoch.load(Ordering::Relaxed) + 1, Ordering::Release);
        if ASLEEP.load(Ordering::Relaxed) {
            wake();
        }
    }

    /// It returned. Whether its budget was spent.
    #[inline]
    pub(crate) fn end(&self) -> bool {
        let (slot, _) = CURRENT.get();
        // SAFETY: `begin` set the pointer on this thread, whose slot lives as long as the thread does.
        let Some(slot) = (unsafe { slot.as_ref() }) else { return false };
        let epoch = slot.epoch.load(Ordering::Relaxed);
        // From here on the handler lets alone what ran.
        slot.epoch.store(epoch + 1, Ordering::Release);
        slot.stopped.load(Ordering::Relaxed) == epoch
    }
}

/// Where the script was that was stopped on this thread since it was last asked.
pub(crate) fn take_place() -> Option<String> {
    PLACE.take()
}

impl Drop for Registered {
    fn drop(&mut self) {
        CURRENT.set((ptr::null(), ptr::null_mut()));
        lock().retain(|slot| !Arc::ptr_eq(slot, &self.0));
    }
}

static SLOTS: Mutex<Vec<Arc<Slot>>> = Mutex::new(Vec::new());
static ASLEEP: AtomicBool = AtomicBool::new(false);
static WATCHER: OnceLock<Option<Thread>> = OnceLock::new();

/// A thread that panicked with the lock held left a whole list behind.
fn lock() -> MutexGuard<'static, Vec<Arc<Slot>>> {
    SLOTS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn register() -> Registered {
    let mut clock = libc::CLOCK_THREAD_CPUTIME_ID;
    // SAFETY: asks about the calling thread; `clock` is a valid place for the answer.
    let thread = unsafe {
        let thread = libc::pthread_self();
        libc::pthread_getcpuclockid(thread, &mut clock);
        thread
    };
    let slot = Arc::new(Slot {
        thread,
        clock,
        epoch: AtomicU64::new(0),
        budget: AtomicU64::new(u64::MAX),
        condemned: AtomicU64::new(0),
        stopped: AtomicU64::new(0),
    });
    lock().push(slot.clone());
    WATCHER.get_or_init(|| {
        install_handler();
        let thread = std::thread::Builder::new().name("lua-watchdog".to_owned()).spawn(watch);
        thread.ok().map(|handle| handle.thread().clone())
    });
    Registered(slot)
}

#[cold]
fn first_slot() -> *const Slot {
    SLOT.with(|slot| Arc::as_ptr(&slot.get_or_init(register).0))
}

#[cold]
fn wake() {
    if ASLEEP.swap(false, Ordering::Relaxed)
        && let Some(Some(thread)) = WATCHER.get()
    {
        thread.unpark();
    }
}

/// The thread: which call each worker was at when it was last seen, and its CPU time then.
#[expect(clippy::disallowed_methods, reason = "a thread of its own that does nothing but look every few milliseconds")]
fn watch() {
    let mut seen: Vec<(*const Slot, u64, u64)> = Vec::new();
    let mut quiet = 0;
    loop {
        if quiet < QUIET_ROUNDS {
            std::thread::sleep(ROUND);
        } else {
            ASLEEP.store(true, Ordering::Relaxed);
            // A call that began before it could see the flag is seen after a round.
            std::thread::sleep(ROUND);
            if lock().iter().all(|slot| slot.epoch.load(Ordering::Acquire) % 2 == 0) {
                while ASLEEP.load(Ordering::Relaxed) {
                    std::thread::park();
                }
            }
            ASLEEP.store(false, Ordering::Relaxed);
            quiet = 0;
        }
        // Held over the round: no thread on the list can end meanwhile.
        let slots = lock();
        let before = std::mem::take(&mut seen);
        let mut moved = false;
        for slot in slots.iter() {
            let at = Arc::as_ptr(slot);
            let epoch = slot.epoch.load(Ordering::Acquire);
            let known = before.iter().find(|(known, ..)| *known == at);
            moved |= known.is_none_or(|(_, known, _)| *known != epoch) || epoch % 2 == 1;
            let since = match known {
                Some((_, known, since)) if *known == epoch => *since,
                _ if epoch % 2 == 1 => cpu_time(slot),
                _ => 0,
            };
            seen.push((at, epoch, since));
            let budget = slot.budget.load(Ordering::Relaxed);
            if epoch % 2 == 1 && cpu_time(slot).saturating_sub(since) >= budget {
                slot.condemned.store(epoch, Ordering::Release);
                // SAFETY: the thread is on the list, so it has not ended; the handler is installed.
                unsafe { libc::pthread_kill(slot.thread, signal()) };
            }
        }
        quiet = if moved { 0 } else { quiet + 1 };
    }
}

/// CPU time of the slot's thread in nanoseconds.
fn cpu_time(slot: &Slot) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid place for the answer; the clock of a thread on the list exists.
    unsafe { libc::clock_gettime(slot.clock, &mut time) };
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// A signal that nothing else of the process uses.
fn signal() -> c_int {
    libc::SIGRTMIN() + 3
}

fn install_handler() {
    // SAFETY: a zeroed `sigaction` is valid; the handler does only what a handler may, and system calls go on after it.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = stop as *const () as usize;
        action.sa_flags = libc::SA_RESTART | libc::SA_ONSTACK;
        libc::sigaction(signal(), &action, ptr::null_mut());
    }
}

/// On the worker's thread, between two instructions of whatever it runs.
extern "C" fn stop(_: c_int) {
    let (slot, state) = CURRENT.get();
    // SAFETY: set on this thread by `begin`; the slot lives as long as the thread. Of what it runs, only a state that is
    // running is touched: its epoch is odd.
    let Some(slot) = (unsafe { slot.as_ref() }) else { return };
    let epoch = slot.epoch.load(Ordering::Relaxed);
    if epoch % 2 == 1 && slot.condemned.load(Ordering::Acquire) == epoch {
        slot.stopped.store(epoch, Ordering::Relaxed);
        // SAFETY: LuaJIT allows setting a hook from a signal handler of the machine's own thread; the machine is running.
        unsafe { lua::lua_sethook(state, Some(raise), lua::LUA_MASKCOUNT | lua::LUA_MASKLINE | lua::LUA_MASKCALL, 1) };
    }
}

/// Ends the call as want of memory does: for any other error LuaJIT would call the function that the script gave to `xpcall`, within
/// this hook, and no hook could stop that.
unsafe extern "C-unwind" fn raise(state: *mut lua_State, _: *mut lua::lua_Debug) {
    let mut data = ptr::null_mut();
    note_place(state);
    // SAFETY: called by Lua in the running coroutine, whose machine has a heap of ours; there is nothing here to be dropped.
    unsafe {
        lua::lua_getallocf(state, &mut data);
        if let Some(heap) = data.cast::<Heap>().as_ref() {
            heap.refuse_next();
        }
        lua::lua_newuserdata(state, 1);
        // There was memory all the same.
        lua::luaL_error(state, c"the CPU budget of this call is spent".as_ptr());
    }
}

/// Calls that are looked through for one of the script's own.
const DEEPEST: c_int = 16;

/// Notes where the script is, unless it was stopped before in this call: who catches the error is elsewhere by the next.
fn note_place(state: *mut lua_State) {
    let noted = PLACE.take();
    PLACE.set(noted.or_else(|| (0..DEEPEST).find_map(|level| place(state, level))));
}

/// The line of the script that a call is at; `None` for calls of C and of the host's own chunks.
fn place(state: *mut lua_State, level: c_int) -> Option<String> {
    // SAFETY: within a hook the running coroutine may be asked about its calls; a zeroed record is a valid place for the
    // answer, whose text ends with a zero. Neither function raises errors.
    let (name, line) = unsafe {
        let mut about: lua::lua_Debug = std::mem::zeroed();
        if lua::lua_getstack(state, level, &mut about) == 0 || lua::lua_getinfo(state, c"Sl".as_ptr(), &mut about) == 0
        {
            return None;
        }
        (CStr::from_ptr(about.short_src.as_ptr()).to_string_lossy().into_owned(), about.currentline)
    };
    let place = format!("{name}:{line}");
    (line > 0 && !sdk::is_own_place(&place)).then_some(place)
}
