//! The way into a stream or configuration from other threads: the only functions that a module may call from any.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::c_void;
use std::rc::{Rc, Weak};
use std::sync::{Arc, Weak as SharedWeak};

use postrider_filter_api::Remote;

use super::{config, instance};
use crate::abi::{ConfigRef, StreamRef};
use crate::config::Config;
use crate::instance::{Event, Link};

/// What a module holds of a stream.
struct Scheduler {
    remote: Remote,
    /// The stream's number on its worker.
    number: u64,
}

/// Streams of this worker that other threads may reach.
#[derive(Default)]
struct Reached {
    last: u64,
    links: HashMap<u64, Weak<Link>>,
    /// How many there may be before those that are over are looked for.
    sweep_at: usize,
}

thread_local! {
    static REACHED: RefCell<Reached> = RefCell::default();
}

/// Below so many nobody looks for streams that are over.
const FEW: usize = 64;

fn register(link: &Rc<Link>) -> u64 {
    REACHED.with_borrow_mut(|reached| {
        if reached.links.len() >= reached.sweep_at.max(FEW) {
            reached.links.retain(|_, link| link.strong_count() > 0);
            reached.sweep_at = reached.links.len() * 2;
        }
        reached.last += 1;
        reached.links.insert(reached.last, Rc::downgrade(link));
        reached.last
    })
}

pub(super) unsafe fn open(handle: StreamRef) -> *mut c_void {
    // SAFETY: the caller is a module that follows the interface, here and below.
    let Some(instance) = (unsafe { instance(handle) }) else { return std::ptr::null_mut() };
    let number = register(&instance.link());
    Box::into_raw(Box::new(Scheduler { remote: instance.place.host.remote(), number })).cast()
}

pub(super) unsafe fn commit(scheduler: *mut c_void, event: u64) {
    // SAFETY: as above; a scheduler lives until it is closed.
    let Some(scheduler) = (unsafe { scheduler.cast::<Scheduler>().as_ref() }) else { return };
    let number = scheduler.number;
    let tell = move || {
        let link = REACHED.with_borrow(|reached| reached.links.get(&number).and_then(Weak::upgrade));
        if let Some(link) = link {
            link.tell(Event::Scheduled(event));
        }
    };
    // Without the worker there is no stream to tell.
    let _ = scheduler.remote.post(Box::new(tell));
}

pub(super) unsafe fn close(scheduler: *mut c_void) {
    if !scheduler.is_null() {
        // SAFETY: as above; made by `open`, and closed once.
        drop(unsafe { Box::from_raw(scheduler.cast::<Scheduler>()) });
    }
}

pub(super) unsafe fn open_config(handle: ConfigRef) -> *mut c_void {
    // SAFETY: as above.
    let Some(config) = (unsafe { config(handle) }) else { return std::ptr::null_mut() };
    Box::into_raw(Box::new(config.weak())).cast()
}

pub(super) unsafe fn commit_config(scheduler: *mut c_void, event: u64) {
    // SAFETY: as above.
    let Some(config) = (unsafe { scheduler.cast::<SharedWeak<Config>>().as_ref() }) else { return };
    let config = config.clone();
    if let Some(known) = config.upgrade() {
        known.post(Box::new(move || on_config(&config, event)));
    }
}

pub(super) unsafe fn close_config(scheduler: *mut c_void) {
    if !scheduler.is_null() {
        // SAFETY: as above; made by `open_config`, and closed once.
        drop(unsafe { Box::from_raw(scheduler.cast::<SharedWeak<Config>>()) });
    }
}

/// On a worker: tells the module's configuration.
fn on_config(config: &SharedWeak<Config>, event: u64) {
    let Some(config) = config.upgrade() else { return };
    if let Some(scheduled) = config.entries.config_scheduled {
        let handle = Arc::as_ptr(&config).cast_mut().cast();
        // SAFETY: the function of a loaded module, on a configuration that it made, as the interface says.
        unsafe { scheduled(handle, config.own(), event) };
    }
}
