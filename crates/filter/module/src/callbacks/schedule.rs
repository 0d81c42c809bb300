//! The way into a stream or configuration from other threads: the only functions that a module may call from any.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::c_void;
use std::rc::{Rc, Weak};
use std::sync::{Arc, Weak as SharedWeak};

use postrider_filter_api::{Host, Remote};

use super::{config, instance};
use crate::abi::{ConfigRef, StreamRef};
use crate::connection::Session;
use crate::inbox::Inbox;
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
    let inbox: Weak<Inbox<_>> = Rc::downgrade(session.inbox());
    scheduler(&*session.place.host, inbox)
}

pub(super) fn open_newcomer(session: &Introduced) -> *mut c_void {
    let inbox: Weak<Inbox<_>> = Rc::downgrade(session.inbox());
    scheduler(&*session.place.host, inbox)
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

/// What a module holds of a configuration. Its threads never hold the configuration itself: the last one that does takes it
/// down, and its code with it.
struct OfConfig {
    reach: Arc<Reach>,
    config: SharedWeak<dyn ConfigEvents>,
}

pub(super) unsafe fn open_config(handle: ConfigRef) -> *mut c_void {
    // SAFETY: as above.
    let Some(config) = (unsafe { config(handle) }) else { return std::ptr::null_mut() };
    open_events(&config.reach, config.weak())
}

pub(super) unsafe fn open_network_config(handle: ConfigRef) -> *mut c_void {
    // SAFETY: as above; the pointer is that of such a configuration.
    let Some(config) = (unsafe { handle.cast::<NetworkConfig>().cast_const().as_ref() }) else {
        return std::ptr::null_mut();
    };
    open_events(&config.reach, config.events())
}

pub(super) fn open_events(reach: &Arc<Reach>, config: SharedWeak<dyn ConfigEvents>) -> *mut c_void {
    Box::into_raw(Box::new(OfConfig { reach: reach.clone(), config })).cast()
}

pub(super) unsafe fn commit_config(scheduler: *mut c_void, event: u64) {
    // SAFETY: as above.
    let Some(config) = (unsafe { scheduler.cast::<OfConfig>().as_ref() }) else { return };
    let known = config.config.clone();
    config.reach.post(Box::new(move || {
        if let Some(known) = known.upgrade() {
            known.on_scheduled(event);
        }
    }));
}

pub(super) unsafe fn close_config(scheduler: *mut c_void) {
    if !scheduler.is_null() {
        // SAFETY: as above; made by one of the functions above, and closed once.
        drop(unsafe { Box::from_raw(scheduler.cast::<OfConfig>()) });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread::{self, ThreadId};

    use super::*;

    /// Notes which thread takes it down.
    struct Made(Arc<Mutex<Option<ThreadId>>>);

    impl ConfigEvents for Made {
        fn on_scheduled(&self, _: u64) {}
    }

    impl Drop for Made {
        fn drop(&mut self) {
            *self.0.lock().unwrap() = Some(thread::current().id());
        }
    }

    #[test]
    fn a_thread_that_commits_while_its_configuration_goes_does_not_take_it_down() {
        for _ in 0..200 {
            let taken_down = Arc::default();
            let made = Arc::new(Made(Arc::clone(&taken_down)));
            let events: SharedWeak<dyn ConfigEvents> = Arc::downgrade(&(made.clone() as Arc<dyn ConfigEvents>));
            let scheduler = open_events(&Arc::default(), events).expose_provenance();
            let (begun, over) = (AtomicBool::new(false), AtomicBool::new(false));
            thread::scope(|scope| {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        // SAFETY: the scheduler is closed when this thread has ended.
                        unsafe { commit_config(std::ptr::with_exposed_provenance_mut(scheduler), 1) };
                        begun.store(true, Ordering::Relaxed);
                    }
                });
                while !begun.load(Ordering::Relaxed) {
                    thread::yield_now();
                }
                drop(made);
                over.store(true, Ordering::Relaxed);
            });
            // SAFETY: made above, and closed once.
            unsafe { close_config(std::ptr::with_exposed_provenance_mut(scheduler)) };
            assert_eq!(*taken_down.lock().unwrap(), Some(thread::current().id()));
        }
    }
}
