//! What a module's configuration does by itself, outside any stream.

use std::ffi::c_int;
use std::sync::Arc;

use postrider_filter_api::{Answer, CallFailure};

use super::calls::request;
use super::{config, put};
use crate::abi::{Buffer, ConfigRef, Header, call as answer};
use crate::deliver::with_answer;
use crate::reach::host_here;

/// A request whose answer comes as a whole. It is sent by a worker, as soon as there is one.
pub(super) unsafe fn call(
    handle: ConfigRef,
    id: *mut u64,
    cluster: Buffer,
    headers: *const Header,
    count: usize,
    body: Buffer,
    timeout: u64,
) -> c_int {
    // SAFETY: the caller is a module that follows the interface, here and below.
    let Some(config) = (unsafe { config(handle) }) else { return answer::CANNOT_CREATE };
    // SAFETY: as above.
    let request =
        match unsafe { request(config.facts.policy.clusters.as_deref(), cluster, headers, count, body, timeout) } {
            Ok(request) => request,
            Err(error) => return error,
        };
    // Only a worker knows the clusters; elsewhere the module hears of one that is not there as of one that cannot be reached.
    if host_here().is_some_and(|host| !host.has_cluster(&request.cluster)) {
        return answer::CLUSTER_NOT_FOUND;
    }
    let number = config.next_call();
    // SAFETY: as above.
    unsafe { put(id, number) };
    let weak = config.weak();
    config.reach.call(Box::new(move |host| {
        let done = Box::new(move |outcome: Result<Answer, CallFailure>| {
            let Some(config) = weak.upgrade() else { return };
            let Some(done) = config.entries.config_callout_done else { return };
            let handle = Arc::as_ptr(&config).cast_mut().cast();
            with_answer(&outcome, |result, headers, body| {
                // SAFETY: the function of a loaded module, on a configuration that it made, as the interface says.
                unsafe {
                    done(
                        handle,
                        config.own(),
                        number,
                        result,
                        headers.as_ptr(),
                        headers.len(),
                        body.as_ptr(),
                        body.len(),
                    );
                };
            });
        });
        if !host.has_cluster(&request.cluster) {
            done(Err(CallFailure::Upstream));
        } else if let Ok(handle) = request.send(host, done) {
            handle.detach();
        }
    }));
    answer::SUCCESS
}
