//! Connections that Go code opens. As in Envoy they go to the cluster `plainText`: to the address that Go code names where
//! that cluster has no endpoints of its own (`ORIGINAL_DST`), else to one of its endpoints.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use postrider_filter_api::{Dial, DialFailure, DialUser, Host, Place, Remote};
use postrider_telemetry::error;

use super::entries::{self, Event, Library};
use super::line::{self, Line};

/// Where connections go.
const CLUSTER: &str = "plainText";

/// Ways to the workers that have such filters.
static WORKERS: Mutex<Vec<(u32, Remote)>> = Mutex::new(Vec::new());

thread_local! {
    /// This worker.
    static HOST: RefCell<Option<Rc<dyn Host>>> = const { RefCell::new(None) };
}

/// Go code may open connections on this worker.
pub(super) fn serve(place: &Place<'_>) {
    HOST.set(Some(place.host.clone()));
    // A panic with the lock held leaves a whole list behind.
    let mut workers = WORKERS.lock().unwrap_or_else(PoisonError::into_inner);
    workers.retain(|(worker, _)| *worker != place.worker);
    workers.push((place.worker, place.host.remote()));
}

/// Opens a connection that the library knows by `own`, on one worker after the other; 0 when there is none.
pub(crate) fn connect(library: &[u8], address: String, own: u64) -> u64 {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let Some(library) = entries::named(library) else {
        error!(Filter, "a Go plugin that filters no connections opens one to {address}");
        return 0;
    };
    let worker = {
        // As above.
        let workers = WORKERS.lock().unwrap_or_else(PoisonError::into_inner);
        let turn = NEXT.fetch_add(1, Ordering::Relaxed).checked_rem(workers.len());
        turn.and_then(|turn| workers.get(turn)).map(|(_, remote)| remote.clone())
    };
    let Some(worker) = worker else { return 0 };
    // As in Envoy, its local address is told to be the one that was asked for.
    let line = Line::new(worker.clone(), address);
    let number = line.number;
    if worker.post(move || dial(library, line, own)).is_err() {
        line::forget(number);
        return 0;
    }
    number
}

/// On the worker.
fn dial(library: &'static Library, line: Arc<Line>, own: u64) {
    let mut user = Upstream { library, line: line.clone(), own };
    let Ok(meant) = line.local().parse::<SocketAddr>() else {
        error!(Filter, "{}: a Go plugin opens a connection to no address: {}", library.name(), line.local());
        return user.on_failed(DialFailure::NoHost);
    };
    let host = HOST.with_borrow(Clone::clone);
    let user = Box::new(user);
    let dialled = host.map(|host| host.dial(Dial { cluster: CLUSTER.into(), meant: Some(meant), user }));
    match dialled {
        Some(Ok(handle)) => {
            line.attach(&handle);
        }
        Some(Err(_)) | None => {
            error!(Filter, "{}: a Go plugin opens a connection, and there is no cluster `{CLUSTER}`", library.name());
            Upstream { library, line, own }.on_failed(DialFailure::NoHost);
        }
    }
}

struct Upstream {
    library: &'static Library,
    line: Arc<Line>,
    /// The library's number for it.
    own: u64,
}

impl DialUser for Upstream {
    fn on_ready(&mut self, remote: &str) {
        self.line.set_remote(remote);
        self.library.upstream_ready(&self.line, self.own);
    }

    fn on_failed(&mut self, why: DialFailure) {
        self.line.detach(|| {});
        self.library.upstream_failed(&self.line, reason(why), self.own);
    }

    fn on_received(&mut self, data: &[u8], end: bool) {
        if self.line.is_known() {
            self.library.upstream_received(&self.line, data, end);
        }
    }

    fn on_closed(&mut self, by_peer: bool) {
        self.line.detach(|| {});
        // Go's collector may have taken its user.
        if !self.line.is_known() {
            return;
        }
        self.library.upstream_tell(&self.line, if by_peer { Event::RemoteClose } else { Event::LocalClose });
    }
}

/// As Envoy numbers it.
fn reason(why: DialFailure) -> i64 {
    match why {
        DialFailure::Overflow => 0,
        DialFailure::NoHost => 1,
        DialFailure::Unreached => 2,
        DialFailure::Timeout => 3,
    }
}
