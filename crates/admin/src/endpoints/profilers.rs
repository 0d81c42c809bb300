//! What Envoy's process can tell of itself and this one cannot: an Envoy that is built without it answers the same way.

use crate::control::Control;
use crate::request::Request;
use crate::response::Reply;
use hyper::StatusCode;

pub(super) const SWITCH: &[(&str, &str)] = &[("enable", "enable/disable the profiler; One of (y, n)")];

const NO_HEAP_PROFILES: &str = "The current build does not support heap profiles";

/// No profiler can be started: that is for programs like `perf`.
pub(super) fn cpu(_: &dyn Control, request: &Request) -> Reply {
    match wanted(request) {
        Some(true) => Reply::refusal(StatusCode::INTERNAL_SERVER_ERROR, "failure to start the profiler"),
        Some(false) => Reply::done(),
        None => Reply::bad_request("?enable=<y|n>\n"),
    }
}

pub(super) fn heap(_: &dyn Control, _: &Request) -> Reply {
    Reply::refusal(StatusCode::NOT_IMPLEMENTED, "The current build does not support heap profiler")
}

pub(super) fn allocations(_: &dyn Control, request: &Request) -> Reply {
    match wanted(request) {
        Some(_) => Reply::refusal(StatusCode::NOT_IMPLEMENTED, NO_HEAP_PROFILES),
        None => Reply::bad_request("?enable=<y|n>\n"),
    }
}

pub(super) fn heap_dump(_: &dyn Control, _: &Request) -> Reply {
    Reply::refusal(StatusCode::NOT_IMPLEMENTED, NO_HEAP_PROFILES)
}

pub(super) fn tcmalloc(_: &dyn Control, _: &Request) -> Reply {
    Reply::refusal(StatusCode::NOT_IMPLEMENTED, "The current build does not use TCMalloc: see /memory\n")
}

pub(super) fn contention(_: &dyn Control, _: &Request) -> Reply {
    Reply::text("Mutex contention tracing is not enabled: no request waits for a mutex.")
}

fn wanted(request: &Request) -> Option<bool> {
    match request.query.as_slice() {
        [(name, value)] if name == "enable" => match value.as_str() {
            "y" => Some(true),
            "n" => Some(false),
            _ => None,
        },
        _ => None,
    }
}
