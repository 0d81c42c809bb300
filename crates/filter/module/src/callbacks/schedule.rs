//! The way into a stream or configuration from other threads: the only functions that a module may call from any.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::c_void;
use std::rc::{Rc, Weak};
use std::sync::Weak as SharedWeak;

use postrider_filter_api::{Host, Remote};

use super::{config, instance};
use crate::abi::{ConfigRef, StreamRef};
use crate::connection::Session;
use crate::instance::{Event, Link};
use crate::network::NetworkConfig;
use crate::newcomer::Introduced;
use crate::reach::Reach;

/// A stream or connection that hears of its events on its worker.
pub(crate) trait Scheduled {
    fn on_scheduled(&self, event: u64);
}

/// A configuration that hears of its events on some worker.
pub(crate) trait ConfigEvents: Send + Sync {
    fn reach(&self) -> &Reach;

    fn on_scheduled(&self, event: u64);
}

impl Scheduled for Link {
    fn on_scheduled(&self, event: u64) {
        self.tell(Event::Scheduled(event));
    }
}

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
    links: HashMap<u64, Weak<dyn Scheduled>>,
    /// How many there may be before those that are over are looked for.
    sweep_at: usize,
}

thread_local! {
    static REACHED: RefCell<Reached> = RefCell::default();
}

/// Below so many nobody looks for streams that are over.
const FEW: usize = 64;

fn register(link: Weak<dyn Scheduled>) -> u64 {
    REACHED.with_borrow_mut(|reached| {
        if reached.links.len() >= reached.sweep_at.max(FEW) {
            reached.links.retain(|_, link| link.strong_count() > 0);
            reached.sweep_at = reached.links.len() * 2;
        }
        reached.last += 1;
        reached.links.insert(reached.last, link);
        reached.last
    })
}

fn scheduler(host: &dyn Host, link: Weak<dyn Scheduled>) -> *mut c_void {
    Box::into_raw(Box::new(Scheduler { remote: host.remote(), number: register(link) })).cast()
}

pub(super) unsafe fn open(handle: StreamRef) -> *mut c_void {
    // SAFETY: the caller is a module that follows the interface, here and below.
    let Some(instance) = (unsafe { instance(handle) }) else { return std::ptr::null_mut() };
    let link: Weak<Link> = Rc::downgrade(&instance.link());
    scheduler(&*instance.place.host, link)
}

pub(super) fn open_connection(session: &Session) -> *mut c_void {
    let link: Weak<crate::connection::Link> = Rc::downgrade(session.link());
    scheduler(&*session.place.host, link)
}

pub(super) fn open_newcomer(session: &Introduced) -> *mut c_void {
    let link: Weak<crate::newcomer::Link> = Rc::downgrade(session.link());
    scheduler(&*session.place.host, link)
}

pub(super) unsafe fn commit(scheduler: *mut c_void, event: u64) {
    // SAFETY: as above; a scheduler lives until it is closed.
    let Some(scheduler) = (unsafe { scheduler.cast::<Scheduler>().as_ref() }) else { return };
    let number = scheduler.number;
    let tell = move || {
        let link = REACHED.with_borrow(|reached| reached.links.get(&number).and_then(Weak::upgrade));
        if let Some(link) = link {
            link.on_scheduled(event);
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

/// What a module holds of a configuration.
type OfConfig = SharedWeak<dyn ConfigEvents>;

pub(super) unsafe fn open_config(handle: ConfigRef) -> *mut c_void {
    // SAFETY: as above.
    let Some(config) = (unsafe { config(handle) }) else { return std::ptr::null_mut() };
    let events: OfConfig = config.weak();
    Box::into_raw(Box::new(events)).cast()
}

pub(super) unsafe fn open_network_config(handle: ConfigRef) -> *mut c_void {
    // SAFETY: as above; the pointer is that of such a configuration.
    let Some(config) = (unsafe { handle.cast::<NetworkConfig>().cast_const().as_ref() }) else {
        return std::ptr::null_mut();
    };
    Box::into_raw(Box::new(config.events())).cast()
}

pub(super) fn open_events(events: OfConfig) -> *mut c_void {
    Box::into_raw(Box::new(events)).cast()
}

pub(super) unsafe fn commit_config(scheduler: *mut c_void, event: u64) {
    // SAFETY: as above.
    let Some(config) = (unsafe { scheduler.cast::<OfConfig>().as_ref() }) else { return };
    let config = config.clone();
    if let Some(known) = config.upgrade() {
        known.reach().post(Box::new(move || {
            if let Some(config) = config.upgrade() {
                config.on_scheduled(event);
            }
        }));
    }
}

pub(super) unsafe fn close_config(scheduler: *mut c_void) {
    if !scheduler.is_null() {
        // SAFETY: as above; made by one of the functions above, and closed once.
        drop(unsafe { Box::from_raw(scheduler.cast::<OfConfig>()) });
    }
}
