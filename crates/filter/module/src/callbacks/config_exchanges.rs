//! Requests in pieces that a module's configuration makes by itself, outside any stream.
//!
//! They live on the configuration's worker ([`crate::reach`]); what a module asks of them, on any thread, is posted there.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use postrider_filter_api::{CallStream, Heard, Host};
use postrider_http::Fields;

use super::calls::{Request, has_no_hosts, request};
use super::exchanges::fields;
use super::{config, put};
use crate::abi::{Buffer, ConfigRef, Header, call as answer, items};
use crate::config::Config;
use crate::deliver;
use crate::reach;

/// Bytes of one request that may be on their way to the worker.
const MAX_POSTED: usize = 64 << 20;

/// The requests of one configuration that are not over, with how much of each is on its way to the worker.
#[derive(Default)]
pub(crate) struct Live(Mutex<HashMap<u64, Arc<AtomicUsize>>>);

impl Live {
    fn with<T>(&self, act: impl FnOnce(&mut HashMap<u64, Arc<AtomicUsize>>) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// One on its worker.
struct Open {
    of: Weak<Config>,
    id: u64,
    stream: CallStream,
    /// The module was told the head of the answer.
    is_answered: bool,
}

thread_local! {
    static OPEN: RefCell<Vec<Open>> = const { RefCell::new(Vec::new()) };
}

/// Begins a request; with `end`, that is all of it.
pub(super) unsafe fn open(
    handle: ConfigRef,
    id: *mut u64,
    cluster: Buffer,
    headers: *const Header,
    count: usize,
    body: Buffer,
    end: bool,
    timeout: u64,
) -> c_int {
    // SAFETY: the caller is a module that follows the interface, here and below.
    let Some(config) = (unsafe { config(handle) }) else { return answer::CANNOT_CREATE };
    let policy = config.facts.policy.clusters.as_deref();
    // SAFETY: as above.
    let request = match unsafe { request(policy, cluster, headers, count, body, timeout) } {
        Ok(request) => request,
        Err(error) => return error,
    };
    // Only a worker knows the clusters; elsewhere the module hears of one that is not there when it begins.
    if let Some(host) = reach::host_here() {
        if !host.has_cluster(&request.cluster) {
            return answer::CLUSTER_NOT_FOUND;
        }
        if has_no_hosts(&*host, &request.cluster) {
            return answer::CANNOT_CREATE;
        }
    }
    let number = config.next_call();
    config.live.with(|live| live.insert(number, Arc::default()));
    // SAFETY: as above.
    unsafe { put(id, number) };
    let weak = config.weak();
    config.reach.call(Box::new(move |host| begin(host, weak, number, request, end)));
    answer::SUCCESS
}

fn begin(host: &dyn Host, of: Weak<Config>, id: u64, request: Request, end: bool) {
    let told = of.clone();
    match request.open(host, end, Box::new(move || stir(&told, id))) {
        Ok(stream) => OPEN.with_borrow_mut(|all| all.push(Open { of, id, stream, is_answered: false })),
        Err(_) => give_up(&of, id),
    }
}

/// More of a request's body.
pub(super) unsafe fn send(handle: ConfigRef, id: u64, data: Buffer, end: bool) -> bool {
    // SAFETY: as above.
    let (Some(config), data) = (unsafe { (config(handle), data.bytes()) }) else { return false };
    let Some(posted) = config.live.with(|live| live.get(&id).cloned()) else { return false };
    if posted.fetch_add(data.len(), Ordering::Relaxed) + data.len() > MAX_POSTED {
        posted.fetch_sub(data.len(), Ordering::Relaxed);
        return false;
    }
    let (of, data) = (config.weak(), data.to_vec());
    config.reach.post(Box::new(move || {
        posted.fetch_sub(data.len(), Ordering::Relaxed);
        let taken = with_open(&of, id, |open| open.stream.send(&data));
        if taken == Some(false) {
            give_up(&of, id);
        } else if end {
            with_open(&of, id, |open| open.stream.finish(Fields::new()));
        }
    }));
    true
}

/// The end of a request, with what stands behind its body.
pub(super) unsafe fn trailers(handle: ConfigRef, id: u64, trailers: *const Header, count: usize) -> bool {
    // SAFETY: as above.
    let Some(config) = (unsafe { config(handle) }) else { return false };
    if !config.live.with(|live| live.contains_key(&id)) {
        return false;
    }
    // SAFETY: as above.
    let given: Vec<(Vec<u8>, Vec<u8>)> = unsafe { items(trailers, count) }
        .iter()
        .map(|field| {
            // SAFETY: as above.
            let (name, value) = unsafe { field.parts() };
            (name.to_vec(), value.to_vec())
        })
        .collect();
    let of = config.weak();
    config.reach.post(Box::new(move || {
        let given: Vec<Header> = given.iter().map(|(name, value)| Header::of(name, value)).collect();
        // SAFETY: their bytes lie above.
        let trailers = unsafe { fields(&given) };
        with_open(&of, id, |open| open.stream.finish(trailers));
    }));
    true
}

/// Gives a request up, which the module hears of a little later.
pub(super) unsafe fn reset(handle: ConfigRef, id: u64) {
    // SAFETY: as above.
    let Some(config) = (unsafe { config(handle) }) else { return };
    let of = config.weak();
    config.reach.post(Box::new(move || give_up(&of, id)));
}

/// The configuration is gone: so are its requests.
pub(crate) fn forget(config: &Config) {
    if config.live.with(|live| !live.is_empty()) {
        config.reach.post(Box::new(|| OPEN.with_borrow_mut(|all| all.retain(|open| open.of.strong_count() > 0))));
    }
}

fn with_open<T>(of: &Weak<Config>, id: u64, act: impl FnOnce(&mut Open) -> T) -> Option<T> {
    OPEN.with_borrow_mut(|all| all.iter_mut().find(|open| open.id == id && open.of.ptr_eq(of)).map(act))
}

fn remove(of: &Weak<Config>, id: u64) {
    let gone = OPEN.with_borrow_mut(|all| {
        let at = all.iter().position(|open| open.id == id && open.of.ptr_eq(of))?;
        Some(all.swap_remove(at))
    });
    drop(gone);
}

/// It ends before its answer does: the module is told, once.
fn give_up(of: &Weak<Config>, id: u64) {
    remove(of, id);
    let Some(config) = of.upgrade() else { return };
    if config.live.with(|live| live.remove(&id)).is_some() {
        let handle = Arc::as_ptr(&config).cast_mut().cast();
        deliver::reset(&config.entries.of_config_streams(), handle, config.own(), id);
    }
}

/// Tells the module what came.
fn stir(of: &Weak<Config>, id: u64) {
    let next = |open: &mut Open| {
        let heard = open.stream.receive()?;
        let was_answered = open.is_answered;
        open.is_answered |= matches!(heard, Heard::Head(..));
        Some((heard, was_answered))
    };
    while let Some((heard, is_answered)) = with_open(of, id, next).flatten() {
        let Some(config) = of.upgrade() else { return remove(of, id) };
        if matches!(heard, Heard::Ended(_)) {
            remove(of, id);
            config.live.with(|live| live.remove(&id));
        }
        let handle = Arc::as_ptr(&config).cast_mut().cast();
        deliver::came(&config.entries.of_config_streams(), handle, config.own(), id, heard, is_answered);
    }
}
