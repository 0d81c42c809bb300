//! Requests of a module's own to clusters that travel in pieces, with their answers.

use std::ffi::c_int;

use postrider_filter_api::UnknownCluster;
use postrider_http::Fields;

use super::calls::{has_no_hosts, next, request, with_rare};
use super::{instance, put};
use crate::abi::{Buffer, Header, StreamRef, call as answer, items};
use crate::instance::{Event, Instance, Opened};

/// Begins a request; with `end`, that is all of it.
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
    // SAFETY: the caller is a module that follows the interface, here and below.
    let Some(instance) = (unsafe { instance(handle) }) else { return answer::CANNOT_CREATE };
    let policy = instance.config().facts.policy.clusters.as_deref();
    // SAFETY: as above.
    let request = match unsafe { request(policy, cluster, headers, count, body, timeout) } {
        Ok(request) => request,
        Err(error) => return error,
    };
    let host = instance.place.host.clone();
    // As in Envoy, nothing is begun that nobody could answer.
    if has_no_hosts(&*host, &request.cluster) {
        return answer::CANNOT_CREATE;
    }
    let number = next(instance);
    let link = instance.link();
    match request.open(&*host, end, Box::new(move || link.stir(number))) {
        Ok(stream) => {
            // SAFETY: as above.
            unsafe { put(id, number) };
            with_rare(instance, |rare| rare.opened.push(Opened { id: number, stream, is_answered: false }));
            answer::SUCCESS
        }
        Err(UnknownCluster) => answer::CLUSTER_NOT_FOUND,
    }
}

/// More of a request's body.
pub(super) unsafe fn send(handle: StreamRef, id: u64, data: Buffer, end: bool) -> bool {
    // SAFETY: as above.
    let (Some(instance), data) = (unsafe { (instance(handle), data.bytes()) }) else { return false };
    with_opened(instance, id, |opened| {
        let sent = opened.stream.send(data);
        if sent && end {
            opened.stream.finish(Fields::new());
        }
        sent
    })
}

/// The end of a request, with what stands behind its body.
pub(super) unsafe fn trailers(handle: StreamRef, id: u64, trailers: *const Header, count: usize) -> bool {
    // SAFETY: as above.
    let (Some(instance), trailers) = (unsafe { (instance(handle), fields(items(trailers, count))) }) else {
        return false;
    };
    with_opened(instance, id, |opened| {
        opened.stream.finish(trailers);
        true
    })
}

/// Gives a request up, which the module hears of when its hook has returned.
pub(super) unsafe fn reset(handle: StreamRef, id: u64) {
    // SAFETY: as above.
    let Some(instance) = (unsafe { instance(handle) }) else { return };
    let known = with_rare(instance, |rare| {
        let before = rare.opened.len();
        rare.opened.retain(|opened| opened.id != id);
        before != rare.opened.len()
    });
    if known {
        instance.link().inbox.borrow_mut().push_back(Event::Reset { id });
        instance.wake_later();
    }
}

fn with_opened(instance: &Instance, id: u64, act: impl FnOnce(&Opened) -> bool) -> bool {
    with_rare(instance, |rare| rare.opened.iter().find(|opened| opened.id == id).is_some_and(act))
}

/// What is well-formed of a module's fields.
///
/// # Safety
/// The fields' bytes are there.
pub(super) unsafe fn fields(given: &[Header]) -> Fields {
    let mut fields = Fields::new();
    for field in given {
        // SAFETY: by the contract above.
        let (name, value) = unsafe { field.parts() };
        let _ = fields.append_name(&name.to_ascii_lowercase(), value);
    }
    fields
}
