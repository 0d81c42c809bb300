//! Keys that are refreshed in the background: asked for when the configuration comes into force, and again before they grow
//! old, whether or not there are requests.
//!
//! The first worker does it for all; the others find what it got in [`Shared`]. As in Envoy, keys that cannot be refreshed
//! stay good until there are new ones.

use std::cell::RefCell;
use std::rc::{Rc, Weak};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use postrider_filter_api::{CallHandle, Host};
use postrider_telemetry::Block;

use super::config::{Config, Remote, Source};
use super::keys::Keys;
use super::store::Store;

/// Keys are asked for so long before they are old, where they last longer.
const AHEAD: Duration = Duration::from_secs(5);

/// The shortest time between two questions, whatever is configured: a service that is down is not to be flooded.
const MIN_PAUSE: Duration = Duration::from_millis(100);

/// The keys of all workers, in the order of the providers.
pub(super) struct Shared {
    /// Grows with each change, so that a worker learns of one without taking the lock.
    version: AtomicU64,
    keys: Mutex<Vec<Option<Arc<Keys>>>>,
}

impl Shared {
    pub(super) fn new(providers: usize) -> Shared {
        Shared { version: AtomicU64::new(0), keys: Mutex::new(vec![None; providers]) }
    }

    pub(super) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    pub(super) fn all(&self) -> Vec<Option<Arc<Keys>>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn publish(&self, provider: usize, keys: &Arc<Keys>) {
        let mut all = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = all.get_mut(provider) {
            *place = Some(keys.clone());
            self.version.fetch_add(1, Ordering::Release);
        }
    }
}

/// Refreshes as long as it lives.
pub(super) struct Background {
    store: Rc<Store>,
    config: Arc<Config>,
    stats: Rc<Block>,
    host: Rc<dyn Host>,
    /// Of each provider, what wakes us.
    timers: RefCell<Vec<Option<CallHandle>>>,
}

impl Background {
    /// Begins; `None` where no keys are refreshed in the background.
    pub(super) fn begin(
        store: Rc<Store>,
        config: Arc<Config>,
        stats: Rc<Block>,
        host: Rc<dyn Host>,
    ) -> Option<Rc<Background>> {
        let count = config.providers.len();
        let wanted: Vec<usize> = (0..count).filter(|provider| remote(&config, *provider).is_some()).collect();
        if wanted.is_empty() {
            return None;
        }
        let timers = RefCell::new((0..count).map(|_| None).collect());
        let background = Rc::new(Background { store, config, stats, host, timers });
        background.store.tell(Rc::downgrade(&background));
        for provider in wanted {
            // Those that an earlier configuration left here have time.
            match background.store.refresh_from(provider) {
                Some(at) => background.later(provider, at.saturating_duration_since(background.host.now())),
                None => background.ask(provider),
            }
        }
        Some(background)
    }

    /// An answer came, or did not.
    pub(super) fn heard(self: &Rc<Self>, provider: usize, good: bool) {
        let Some((remote, after_failure)) = remote(&self.config, provider) else { return };
        self.later(provider, if good { pause(remote.duration) } else { after_failure });
    }

    fn ask(self: &Rc<Self>, provider: usize) {
        if let Some((remote, _)) = remote(&self.config, provider) {
            self.store.ask(provider, remote, &self.stats, &*self.host);
        }
    }

    fn later(self: &Rc<Self>, provider: usize, pause: Duration) {
        let background: Weak<Background> = Rc::downgrade(self);
        let wake = move || {
            if let Some(background) = background.upgrade() {
                background.ask(provider);
            }
        };
        let timer = self.host.after(pause.max(MIN_PAUSE), Box::new(wake));
        if let Some(place) = self.timers.borrow_mut().get_mut(provider) {
            *place = Some(timer);
        }
    }
}

/// How long to wait after a good answer.
pub(super) fn pause(duration: Duration) -> Duration {
    duration.checked_sub(AHEAD).filter(|early| !early.is_zero()).unwrap_or(duration)
}

/// Where a provider's keys are and how long to wait after a failure, where they are refreshed in the background.
fn remote(config: &Config, provider: usize) -> Option<(&Remote, Duration)> {
    match &config.providers.get(provider)?.source {
        Source::Remote(remote) => Some((remote, remote.in_background?)),
        Source::Here(_) => None,
    }
}
