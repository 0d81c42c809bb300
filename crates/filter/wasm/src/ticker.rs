//! Moves the engines' clocks on while guests run, so that one that runs too long is looked at.
//!
//! A call costs two stores and one load. The thread looks every few milliseconds at what workers are in, and sleeps when
//! nothing was called for a while.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Thread;
use std::time::Duration;

use wasmtime::Engine;

/// How long a tick is: a call ends at most two of them after its budget.
pub(crate) const TICK: Duration = Duration::from_millis(5);

/// After so many ticks in which nothing was called the thread sleeps until something is.
const QUIET_TICKS: u32 = 200;

/// Odd while a guest runs on its thread; rises with every call and every return.
type Slot = Arc<AtomicU64>;

thread_local! {
    static SLOT: Registered = register();
}

/// Takes the thread off the list when it ends.
struct Registered(Slot);

impl Drop for Registered {
    fn drop(&mut self) {
        lock().retain(|slot| !Arc::ptr_eq(slot, &self.0));
    }
}

static SLOTS: Mutex<Vec<Slot>> = Mutex::new(Vec::new());
static ASLEEP: AtomicBool = AtomicBool::new(false);
static TICKER: OnceLock<Option<Thread>> = OnceLock::new();
static ENGINES: Mutex<Vec<Engine>> = Mutex::new(Vec::new());

/// A guest runs on this thread as long as this lives.
pub(crate) struct Running(());

impl Running {
    #[inline]
    pub(crate) fn begin() -> Running {
        step();
        if ASLEEP.load(Ordering::Relaxed) {
            wake();
        }
        Running(())
    }
}

impl Drop for Running {
    #[inline]
    fn drop(&mut self) {
        step();
    }
}

#[inline]
fn step() {
    // At the end of a thread nobody looks at it any more.
    let _ = SLOT.try_with(|slot| slot.0.store(slot.0.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release));
}

fn register() -> Registered {
    let slot = Slot::default();
    lock().push(slot.clone());
    Registered(slot)
}

/// A thread that panicked with the lock held left a whole list behind.
fn lock() -> MutexGuard<'static, Vec<Slot>> {
    SLOTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Moves the clock of one more engine.
pub(crate) fn start(engine: Engine) {
    ENGINES.lock().unwrap_or_else(PoisonError::into_inner).push(engine);
    TICKER.get_or_init(|| {
        let thread = std::thread::Builder::new().name("wasm-ticker".to_owned()).spawn(tick);
        thread.ok().map(|handle| handle.thread().clone())
    });
}

#[cold]
fn wake() {
    if ASLEEP.swap(false, Ordering::Relaxed)
        && let Some(Some(thread)) = TICKER.get()
    {
        thread.unpark();
    }
}

#[expect(clippy::disallowed_methods, reason = "a thread of its own that does nothing but tick")]
fn tick() {
    let (mut before, mut quiet) = (0, 0);
    loop {
        std::thread::sleep(TICK);
        // A sum of numbers that only rise differs as soon as one of them does.
        let (mut seen, mut runs) = (0u64, false);
        for slot in lock().iter() {
            let calls = slot.load(Ordering::Acquire);
            seen = seen.wrapping_add(calls);
            runs |= calls % 2 == 1;
        }
        if runs {
            ENGINES.lock().unwrap_or_else(PoisonError::into_inner).iter().for_each(Engine::increment_epoch);
        }
        quiet = if runs || seen != before { 0 } else { quiet + 1 };
        before = seen;
        if quiet == QUIET_TICKS {
            ASLEEP.store(true, Ordering::Relaxed);
            // A call that began before it could see the flag is seen after a tick.
            std::thread::sleep(TICK);
            if lock().iter().all(|slot| slot.load(Ordering::Acquire) % 2 == 0) {
                while ASLEEP.load(Ordering::Relaxed) {
                    std::thread::park();
                }
            }
            ASLEEP.store(false, Ordering::Relaxed);
            quiet = 0;
        }
    }
}
