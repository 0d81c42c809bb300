//! Requests of a module's own to clusters.

use std::ffi::c_int;
use std::time::Duration;

use postrider_filter_api::{Answer, Call, CallFailure, CallHandle, Host, UnknownCluster};
use postrider_http::{Decimal, HeaderId, RequestHead};

use super::fields::set_of_request;
use super::{instance, put};
use crate::abi::{Buffer, Header, StreamRef, call as answer, items};
use crate::instance::{Event, Instance, Rare};

/// Largest body of a request that a module sends in pieces.
const MAX_BODY: usize = 64 << 20;

/// A request that is not complete yet.
pub(crate) struct Pending {
    pub(super) cluster: String,
    head: RequestHead,
    body: Vec<u8>,
    timeout: u64,
}

/// Reads a request; the code that a module gets for one that cannot be sent.
///
/// # Safety
/// What the module passed is there.
pub(super) unsafe fn request(
    policy: Option<&[String]>,
    cluster: Buffer,
    headers: *const Header,
    count: usize,
    body: Buffer,
    timeout: u64,
) -> Result<Pending, c_int> {
    // SAFETY: by the contract above.
    let (cluster, headers, body) = unsafe { (cluster.bytes(), items(headers, count), body.bytes()) };
    let cluster = std::str::from_utf8(cluster).map_err(|_| answer::CLUSTER_NOT_FOUND)?;
    if policy.is_some_and(|allowed| !allowed.iter().any(|name| name == cluster)) {
        return Err(answer::CLUSTER_NOT_FOUND);
    }
    let mut head = RequestHead::new();
    let mut has_method = false;
    for header in headers {
        // SAFETY: by the contract above.
        let (name, value) = unsafe { header.parts() };
        has_method |= name == b":method";
        if !set_of_request(&mut head, name, value) {
            return Err(answer::CANNOT_CREATE);
        }
    }
    if !has_method || head.path().is_empty() || head.authority().is_empty() {
        return Err(answer::MISSING_REQUIRED_HEADERS);
    }
    Ok(Pending { cluster: cluster.to_owned(), head, body: body.to_vec(), timeout })
}

impl Pending {
    pub(super) fn send(
        mut self,
        host: &dyn Host,
        done: Box<dyn FnOnce(Result<Answer, CallFailure>)>,
    ) -> Result<CallHandle, UnknownCluster> {
        if !self.body.is_empty() {
            // Digits are a valid value.
            let _ = self.head.fields.set(HeaderId::ContentLength, Decimal::new(self.body.len() as u64).as_bytes());
        }
        host.call(Call {
            cluster: self.cluster.into(),
            head: self.head,
            body: self.body,
            timeout: (self.timeout > 0).then(|| Duration::from_millis(self.timeout)),
            done,
        })
    }
}

/// A number for a call.
fn next(instance: &Instance) -> u64 {
    let mut rare = instance.rare.borrow_mut();
    let rare = rare.get_or_insert_default();
    rare.last_call += 1;
    rare.last_call
}

fn with_rare<T>(instance: &Instance, act: impl FnOnce(&mut Rare) -> T) -> T {
    act(instance.rare.borrow_mut().get_or_insert_default())
}

type Told = fn(u64, Result<Answer, CallFailure>) -> Event;

/// Sends a request whose end the module hears of as `told`.
fn send_for(instance: &Instance, id: u64, request: Pending, told: Told) -> c_int {
    let link = instance.link();
    let done = Box::new(move |outcome| link.tell(told(id, outcome)));
    let host = instance.place.host.clone();
    match request.send(&*host, done) {
        Ok(handle) => {
            with_rare(instance, |rare| rare.calls.push((id, handle)));
            answer::SUCCESS
        }
        Err(UnknownCluster) => answer::CLUSTER_NOT_FOUND,
    }
}

/// A request whose answer comes as a whole.
pub(super) unsafe fn call(
    handle: StreamRef,
    id: *mut u64,
    cluster: Buffer,
    headers: *const Header,
    count: usize,
    body: Buffer,
    timeout: u64,
) -> c_int {
    // SAFETY: the caller is a module that follows the interface, here and below.
    let Some(instance) = (unsafe { instance(handle) }) else { return answer::CANNOT_CREATE };
    let policy = instance.config().facts.policy.clusters.as_deref();
    // SAFETY: as above.
    match unsafe { request(policy, cluster, headers, count, body, timeout) } {
        // As in Envoy, nothing is begun that nobody could answer.
        Ok(request) if has_no_hosts(&*instance.place.host, &request.cluster) => answer::CANNOT_CREATE,
        Ok(request) => {
            let number = next(instance);
            // SAFETY: as above.
            unsafe { put(id, number) };
            send_for(instance, number, request, |id, outcome| Event::Call { id, outcome })
        }
        Err(error) => error,
    }
}

pub(super) fn has_no_hosts(host: &dyn Host, cluster: &str) -> bool {
    host.cluster_health(cluster).is_some_and(|health| health.all == 0)
}

/// A request that may come in pieces, and whose answer is told in pieces.
pub(super) unsafe fn open(
    handle: StreamRef,
    id: *mut u64,
    cluster: Buffer,
    headers: *const Header,
    count: usize,
    body: Buffer,
    end: bool,
    timeout: u64,
) -> c_int {
    // SAFETY: as above.
    let Some(instance) = (unsafe { instance(handle) }) else { return answer::CANNOT_CREATE };
    let policy = instance.config().facts.policy.clusters.as_deref();
    // SAFETY: as above.
    let request = match unsafe { request(policy, cluster, headers, count, body, timeout) } {
        Ok(request) => request,
        Err(error) => return error,
    };
    if !instance.place.host.has_cluster(&request.cluster) {
        return answer::CLUSTER_NOT_FOUND;
    }
    let number = next(instance);
    // SAFETY: as above.
    unsafe { put(id, number) };
    if end {
        return send_for(instance, number, request, |id, outcome| Event::Opened { id, outcome });
    }
    with_rare(instance, |rare| rare.pending.push((number, request)));
    answer::SUCCESS
}

/// More of a request's body; with its end, the request is sent.
pub(super) unsafe fn send(handle: StreamRef, id: u64, data: Buffer, end: bool) -> bool {
    // SAFETY: as above.
    let (Some(instance), data) = (unsafe { (instance(handle), data.bytes()) }) else { return false };
    let complete = with_rare(instance, |rare| {
        let at = rare.pending.iter().position(|(known, _)| *known == id)?;
        let (_, request) = rare.pending.get_mut(at)?;
        if request.body.len() + data.len() > MAX_BODY {
            return None;
        }
        request.body.extend_from_slice(data);
        Some(end.then(|| rare.pending.swap_remove(at).1))
    });
    match complete {
        None => false,
        Some(None) => true,
        Some(Some(request)) => {
            send_for(instance, id, request, |id, outcome| Event::Opened { id, outcome }) == answer::SUCCESS
        }
    }
}

/// Gives a request up, which the module hears of.
pub(super) unsafe fn reset(handle: StreamRef, id: u64) {
    // SAFETY: as above.
    let Some(instance) = (unsafe { instance(handle) }) else { return };
    let known = with_rare(instance, |rare| {
        let before = rare.calls.len() + rare.pending.len();
        rare.calls.retain(|(known, _)| *known != id);
        rare.pending.retain(|(known, _)| *known != id);
        before != rare.calls.len() + rare.pending.len()
    });
    if known {
        instance.link().inbox.borrow_mut().push_back(Event::Reset { id });
        instance.wake();
    }
}
