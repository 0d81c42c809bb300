//! Taps that are asked for while the proxy runs, by the identifiers of the filters that wait for them.
//!
//! One table for the process, because whoever asks knows nothing but an identifier, and a filter that is built anew takes
//! over what was asked of its predecessor. Workers read one number per request of theirs; the table is locked when
//! something changes.

use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Release};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use postrider_model::{Value, ValueError};

use super::config::{self, Batch, Tap};
use super::outlet::{Deliver, Live};

static TABLE: Mutex<Table> = Mutex::new(Table { slots: Vec::new(), asked: 0, is_busy: false });

struct Table {
    slots: Vec<Weak<Slot>>,
    /// How many taps were asked for so far.
    asked: u64,
    /// One is in force.
    is_busy: bool,
}

/// Where the filters with one identifier look.
#[derive(Debug)]
pub(super) struct Slot {
    id: String,
    /// 0 while there is no tap; another number for each tap.
    current: AtomicU64,
    tap: Mutex<Option<Arc<Tap>>>,
}

/// A tap in force; dropping it ends it.
#[derive(Debug)]
pub struct Attached {
    /// Traces are gathered and sent together; then the tap is over.
    pub batch: Option<Batch>,
    slot: Arc<Slot>,
}

/// The place of an identifier, for as long as somebody keeps it.
pub(super) fn slot(id: &str) -> Arc<Slot> {
    let mut table = table();
    table.slots.retain(|slot| slot.strong_count() > 0);
    let known = table.slots.iter().filter_map(Weak::upgrade).find(|slot| slot.id == id);
    known.unwrap_or_else(|| {
        let slot = Arc::new(Slot { id: id.to_owned(), current: AtomicU64::new(0), tap: Mutex::default() });
        table.slots.push(Arc::downgrade(&slot));
        slot
    })
}

/// Puts a tap in force: `request` has the fields of `TapRequest`, its traces go to `deliver`. One at a time.
///
/// # Errors
/// What is wrong with the request, or why there is no tap now.
pub fn attach(request: &Value, only_failed: bool, deliver: Deliver) -> Result<Attached, Vec<ValueError>> {
    let config::Asked { id, tap, batch } = config::read_asked(request, only_failed, Live::new(deliver))?;
    let refusal = |path: &str, message: String| vec![ValueError { path: path.to_owned(), message }];
    let mut table = table();
    if table.is_busy {
        return Err(refusal("", "An attached /tap admin stream already exists. Detach it.".to_owned()));
    }
    let Some(slot) = table.slots.iter().filter_map(Weak::upgrade).find(|slot| slot.id == id) else {
        let message = format!("Unknown config id '{id}'. No extension has registered with this id.");
        return Err(refusal("config_id", message));
    };
    table.is_busy = true;
    table.asked += 1;
    *lock(&slot.tap) = Some(Arc::new(tap));
    slot.current.store(table.asked, Release);
    Ok(Attached { batch, slot })
}

impl Slot {
    /// The number of the tap in force; 0 when there is none.
    #[inline]
    pub(super) fn current(&self) -> u64 {
        self.current.load(Acquire)
    }

    pub(super) fn tap(&self) -> Option<Arc<Tap>> {
        lock(&self.tap).clone()
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        let mut table = table();
        self.slot.current.store(0, Release);
        *lock(&self.slot.tap) = None;
        table.is_busy = false;
    }
}

fn table() -> MutexGuard<'static, Table> {
    lock(&TABLE)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
