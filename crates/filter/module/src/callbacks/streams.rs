//! How a stream goes on, and where.

use std::ffi::c_int;

use postrider_filter_api::UpstreamOverride;
use postrider_http::ResponseHead;

use super::{fields, instance, put};
use crate::abi::{Buffer, Header, Own, StreamRef, items};

pub(super) unsafe fn continue_request(handle: StreamRef) {
    // SAFETY: the caller is a module that follows the interface, here and below.
    if let Some(instance) = unsafe { instance(handle) } {
        instance.request.free();
    }
}

pub(super) unsafe fn continue_response(handle: StreamRef) {
    // SAFETY: as above.
    if let Some(instance) = unsafe { instance(handle) } {
        instance.response.free();
    }
}

/// The route is looked up again before it is next used.
pub(super) unsafe fn clear_route(handle: StreamRef) {
    // SAFETY: as above.
    if let Some(stream) = unsafe { instance(handle).and_then(|instance| instance.stream()) } {
        stream.info.route_is_stale = true;
    }
}

/// The module's own configuration of the route; null when there is none.
pub(super) unsafe fn route_config(handle: StreamRef) -> Own {
    // SAFETY: as above.
    let instance = unsafe { instance(handle) };
    let route = instance.and_then(|instance| instance.place.route.as_ref());
    route.map_or(std::ptr::null(), |route| route.own())
}

pub(super) unsafe fn worker(handle: StreamRef) -> u32 {
    // SAFETY: as above.
    unsafe { instance(handle) }.map_or(0, |instance| instance.place.worker)
}

/// The stream is cut off when the module's hook has returned.
pub(super) unsafe fn reset(handle: StreamRef, _: c_int, _: Buffer) {
    // SAFETY: as above.
    if let Some(instance) = unsafe { instance(handle) } {
        instance.cut_off.set(true);
        instance.acted.set(true);
        instance.wake();
    }
}

/// Has the request begin anew when the module's hook has returned; `false` where it cannot. Logs say that this one was answered
/// with these headers.
pub(super) unsafe fn recreate(handle: StreamRef, headers: *const Header, count: usize) -> bool {
    // SAFETY: as above.
    let Some(instance) = (unsafe { instance(handle) }) else { return false };
    // SAFETY: no other function of this module's runs.
    let Some(stream) = (unsafe { instance.stream() }) else { return false };
    let is_whole = stream.info.request_received.is_some() && stream.info.bytes_received == 0;
    if !instance.may_begin_anew.get() || !is_whole || instance.reply.borrow().is_some() {
        return false;
    }
    // SAFETY: as above.
    let headers = unsafe { items(headers, count) };
    let answer = (!headers.is_empty()).then(|| {
        let mut answer = ResponseHead::new();
        for header in headers {
            // SAFETY: as above.
            let (name, value) = unsafe { header.parts() };
            fields::set_of_response(&mut answer, name, value);
        }
        Box::new(answer)
    });
    instance.may_begin_anew.set(false);
    instance.rare.borrow_mut().get_or_insert_default().anew = Some(answer);
    instance.acted.set(true);
    true
}

/// The client's connection ends after this stream.
pub(super) unsafe fn go_away(handle: StreamRef, _: bool) {
    // SAFETY: as above.
    if let Some(stream) = unsafe { instance(handle).and_then(|instance| instance.stream()) } {
        stream.info.drain_connection = true;
    }
}

/// The cluster that the request goes to as things are.
pub(super) unsafe fn cluster(handle: StreamRef, out: *mut Buffer) -> bool {
    // SAFETY: as above.
    let Some(instance) = (unsafe { instance(handle) }) else { return false };
    // SAFETY: no other function of this module's runs.
    let Some(stream) = (unsafe { instance.stream() }) else { return false };
    let Some(name) = stream.cluster() else { return false };
    let name = instance.lend(name.as_bytes());
    // SAFETY: as above.
    unsafe { put(out, name) };
    true
}

/// How many hosts of a priority that cluster has.
pub(super) unsafe fn hosts(
    handle: StreamRef,
    priority: u32,
    all: *mut usize,
    healthy: *mut usize,
    degraded: *mut usize,
) -> bool {
    // SAFETY: as above.
    let stream = unsafe { instance(handle).and_then(|instance| instance.stream()) };
    let health = stream.and_then(|stream| stream.host.hosts_of_priority(&stream.cluster()?, priority));
    let Some(health) = health else { return false };
    // SAFETY: as above.
    unsafe {
        put(all, health.all);
        put(healthy, health.available - health.degraded);
        put(degraded, health.degraded);
    }
    true
}

/// Asks for a host of the cluster: `ip:port`. An address without a port is taken, and no host has it.
pub(super) unsafe fn override_host(handle: StreamRef, host: Buffer, strict: bool) -> bool {
    // SAFETY: as above.
    let (stream, host) = unsafe { (instance(handle).and_then(|instance| instance.stream()), host.bytes()) };
    let chosen = std::str::from_utf8(host).ok().and_then(|host| UpstreamOverride::read(host, strict));
    let (Some(stream), Some(chosen)) = (stream, chosen) else { return false };
    stream.info.upstream_override = Some(chosen);
    true
}
