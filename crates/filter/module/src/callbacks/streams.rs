//! How a stream goes on, and where.

use std::ffi::c_int;

use postrider_filter_api::UpstreamOverride;

use super::{instance, put};
use crate::abi::{Buffer, Own, StreamRef};

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
    let route = instance.and_then(|instance| instance.route.borrow().clone());
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
        instance.wake();
    }
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

/// Asks for a host of the cluster: `ip:port`.
pub(super) unsafe fn override_host(handle: StreamRef, host: Buffer, strict: bool) -> bool {
    // SAFETY: as above.
    let (stream, host) = unsafe { (instance(handle).and_then(|instance| instance.stream()), host.bytes()) };
    let address = std::str::from_utf8(host).ok().and_then(|host| host.parse().ok());
    let (Some(stream), Some(address)) = (stream, address) else { return false };
    stream.info.upstream_override = Some(UpstreamOverride::new(address, strict));
    true
}
