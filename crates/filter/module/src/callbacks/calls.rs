//! Requests of a module's own to clusters.

use std::cell::{Cell, RefCell};
use std::ffi::c_int;
use std::time::Duration;

use postrider_filter_api::{Answer, Call, CallFailure, CallHandle, CallOpen, CallStream, Host, UnknownCluster};
use postrider_http::{Decimal, HeaderId, RequestHead};

use super::fields::set_of_request;
use super::{instance, put};
use crate::abi::{Buffer, Header, StreamRef, call as answer, items};
use crate::instance::{Event, Instance, Rare};

/// A request that a module wants sent.
pub(super) struct Request {
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
) -> Result<Request, c_int> {
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
    Ok(Request { cluster: cluster.to_owned(), head, body: body.to_vec(), timeout })
}

/// Sends a request for a filter of connections, which has its calls by their numbers; `tell` gets the number and what came of it.
///
/// # Safety
/// There is room for a number.
pub(super) unsafe fn begin(
    host: &dyn Host,
    last: &Cell<u64>,
    calls: &RefCell<Vec<(u64, CallHandle)>>,
    id: *mut u64,
    request: Request,
    tell: impl FnOnce(u64, Result<Answer, CallFailure>) + 'static,
) -> c_int {
    // As in Envoy, nothing is begun that nobody could answer.
    if has_no_hosts(host, &request.cluster) {
        return answer::CANNOT_CREATE;
    }
    let number = last.get() + 1;
    last.set(number);
    match request.send(host, Box::new(move |outcome| tell(number, outcome))) {
        Ok(handle) => {
            calls.borrow_mut().push((number, handle));
            // SAFETY: by the contract above.
            unsafe { put(id, number) };
            answer::SUCCESS
        }
        Err(_) => answer::CLUSTER_NOT_FOUND,
    }
}

impl Request {
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
            timeout: timeout(self.timeout),
            trace: None,
            retries: None,
            done,
        })
    }

    /// Sends it in pieces; `ended` says that this is all of it.
    pub(super) fn open(self, host: &dyn Host, ended: bool, wake: Box<dyn Fn()>) -> Result<CallStream, UnknownCluster> {
        host.open(CallOpen {
            cluster: self.cluster.into(),
            head: self.head,
            body: self.body,
            ended,
            timeout: timeout(self.timeout),
            wake,
        })
    }
}

fn timeout(milliseconds: u64) -> Option<Duration> {
    (milliseconds > 0).then(|| Duration::from_millis(milliseconds))
}

/// A number for a call.
pub(super) fn next(instance: &Instance) -> u64 {
    with_rare(instance, |rare| {
        rare.last_call += 1;
        rare.last_call
    })
}

pub(super) fn with_rare<T>(instance: &Instance, act: impl FnOnce(&mut Rare) -> T) -> T {
    act(instance.rare.borrow_mut().get_or_insert_default())
}

/// Sends a request whose end the module hears of.
fn send_for(instance: &Instance, id: u64, request: Request) -> c_int {
    let link = instance.link();
    let done = Box::new(move |outcome| link.tell(Event::Call { id, outcome: Box::new(outcome) }));
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
            send_for(instance, number, request)
        }
        Err(error) => error,
    }
}

pub(super) fn has_no_hosts(host: &dyn Host, cluster: &str) -> bool {
    host.cluster_health(cluster).is_some_and(|health| health.all == 0)
}
