//! How a module's configuration, which belongs to no thread, has a worker do something, and count.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use postrider_filter_api::{Host, Remote};
use postrider_filter_plugin::Metrics;

/// Most events that wait for the first worker.
const MAX_WAITING: usize = 10_000;

type Act = Box<dyn FnOnce() + Send>;

type WithHost = Box<dyn FnOnce(&dyn Host) + Send>;

/// The worker that a configuration's own events run on: the first one that serves with it.
#[derive(Default)]
pub(crate) struct Reach {
    known: Mutex<Known>,
    /// Tells one configuration from another.
    token: Arc<()>,
}

#[derive(Default)]
struct Known {
    remote: Option<Remote>,
    waiting: Vec<Act>,
}

thread_local! {
    /// What this worker does for configurations.
    static HOST: RefCell<Option<Rc<dyn Host>>> = const { RefCell::new(None) };
    /// What configurations count on this worker.
    static COUNTED: RefCell<Vec<(Weak<()>, Rc<Metrics>)>> = const { RefCell::new(Vec::new()) };
}

/// What the worker of the calling thread does for configurations; `None` on other threads, and where none was in force yet.
pub(crate) fn host_here() -> Option<Rc<dyn Host>> {
    HOST.with_borrow(Clone::clone)
}

impl Reach {
    /// A worker serves with the configuration: the first one runs what it does by itself. Answers what is counted there, which
    /// `make` makes once for a worker.
    pub(crate) fn serve(&self, host: &Rc<dyn Host>, make: impl FnOnce() -> Metrics) -> Rc<Metrics> {
        HOST.with_borrow_mut(|known| *known = Some(host.clone()));
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.remote.is_none() {
            let remote = host.remote();
            // It is the calling worker's own, which is there.
            for act in known.waiting.drain(..) {
                let _ = remote.post(act);
            }
            known.remote = Some(remote);
        }
        drop(known);
        COUNTED.with_borrow_mut(|all| {
            all.retain(|(token, _)| token.strong_count() > 0);
            let token = Arc::downgrade(&self.token);
            if let Some((_, metrics)) = all.iter().find(|(other, _)| other.ptr_eq(&token)) {
                return metrics.clone();
            }
            let metrics = Rc::new(make());
            all.push((token, metrics.clone()));
            metrics
        })
    }

    /// Has a worker count something, as soon as there is one.
    pub(crate) fn count(&self, act: impl FnOnce(&Metrics) + Send + 'static) {
        let token = Arc::downgrade(&self.token);
        self.post(Box::new(move || {
            let find = |all: &Vec<(Weak<()>, Rc<Metrics>)>| {
                all.iter().find(|(other, _)| other.ptr_eq(&token)).map(|(_, metrics)| metrics.clone())
            };
            if let Some(metrics) = COUNTED.with_borrow(find) {
                act(&metrics);
            }
        }));
    }

    /// Has a worker do something, as soon as there is one.
    pub(crate) fn post(&self, act: Act) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        match &known.remote {
            // The process ends when its workers do: nobody misses it.
            Some(remote) => {
                let _ = remote.post(act);
            }
            None if known.waiting.len() < MAX_WAITING => known.waiting.push(act),
            None => {}
        }
    }

    /// The same with the worker's services.
    pub(crate) fn call(&self, act: WithHost) {
        self.post(Box::new(move || {
            if let Some(host) = host_here() {
                act(&*host);
            }
        }));
    }
}
