//! The sets of the proxy itself, with Envoy's names and meanings.
//!
//! A name that Envoy has but whose feature we lack stays out: a zero that can never change would say that all is well.
//! A test holds every name here against the list that a real Envoy prints.

mod clusters;
mod http_connections;
mod listeners;
mod process;

pub use clusters::{cluster, cluster_manager};
pub use http_connections::{http, http1};
pub use listeners::{listener, listener_http, listener_manager, listener_worker};
pub use process::{access_log, filesystem, filter, server, tcp};

use super::block::Block;

/// Counts a finished downstream request in its connection manager: completed, and its status class.
#[inline]
pub fn count_downstream_response(block: &Block, status: u16) {
    use http::*;
    block.inc(DOWNSTREAM_RQ_COMPLETED);
    match status / 100 {
        1 => block.inc(DOWNSTREAM_RQ_1XX),
        2 => block.inc(DOWNSTREAM_RQ_2XX),
        3 => block.inc(DOWNSTREAM_RQ_3XX),
        4 => block.inc(DOWNSTREAM_RQ_4XX),
        5 => block.inc(DOWNSTREAM_RQ_5XX),
        _ => {}
    }
}

/// Counts a finished downstream request in its listener, as [`count_downstream_response`] does.
#[inline]
pub fn count_listener_response(block: &Block, status: u16) {
    use listener_http::*;
    block.inc(DOWNSTREAM_RQ_COMPLETED);
    match status / 100 {
        1 => block.inc(DOWNSTREAM_RQ_1XX),
        2 => block.inc(DOWNSTREAM_RQ_2XX),
        3 => block.inc(DOWNSTREAM_RQ_3XX),
        4 => block.inc(DOWNSTREAM_RQ_4XX),
        5 => block.inc(DOWNSTREAM_RQ_5XX),
        _ => {}
    }
}

/// Counts an upstream response's status in its cluster: completed, class and code, in all and by origin. `internal` is
/// Envoy's: the request came from inside (`x-envoy-internal: true`).
#[inline]
pub fn count_upstream_response(block: &Block, status: u16, internal: bool) {
    use cluster::*;
    block.inc(UPSTREAM_RQ_COMPLETED);
    block.count_code(UPSTREAM_RQ_BY_CODE, status);
    let (completed, codes) = if internal {
        (INTERNAL_UPSTREAM_RQ_COMPLETED, INTERNAL_UPSTREAM_RQ_BY_CODE)
    } else {
        (EXTERNAL_UPSTREAM_RQ_COMPLETED, EXTERNAL_UPSTREAM_RQ_BY_CODE)
    };
    block.inc(completed);
    block.count_code(codes, status);
    let (all, internal_class, external_class) = match status / 100 {
        1 => (UPSTREAM_RQ_1XX, INTERNAL_UPSTREAM_RQ_1XX, EXTERNAL_UPSTREAM_RQ_1XX),
        2 => (UPSTREAM_RQ_2XX, INTERNAL_UPSTREAM_RQ_2XX, EXTERNAL_UPSTREAM_RQ_2XX),
        3 => (UPSTREAM_RQ_3XX, INTERNAL_UPSTREAM_RQ_3XX, EXTERNAL_UPSTREAM_RQ_3XX),
        4 => (UPSTREAM_RQ_4XX, INTERNAL_UPSTREAM_RQ_4XX, EXTERNAL_UPSTREAM_RQ_4XX),
        5 => (UPSTREAM_RQ_5XX, INTERNAL_UPSTREAM_RQ_5XX, EXTERNAL_UPSTREAM_RQ_5XX),
        _ => return,
    };
    block.inc(all);
    block.inc(if internal { internal_class } else { external_class });
}

/// Records how long an upstream took to answer, in all and by origin, in milliseconds.
#[inline]
pub fn record_upstream_time(block: &Block, milliseconds: u64, internal: bool) {
    use cluster::*;
    block.record(UPSTREAM_RQ_TIME, milliseconds);
    block.record(if internal { INTERNAL_UPSTREAM_RQ_TIME } else { EXTERNAL_UPSTREAM_RQ_TIME }, milliseconds);
}

/// The part of a name that a listener's address takes: Envoy writes `:` as `_`.
pub fn scope_of_address(address: &str) -> String {
    address.replace(':', "_")
}
