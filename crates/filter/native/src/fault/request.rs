//! Which requests are meant, and what they say themselves about their faults.

use std::time::Duration;

use postrider_filter_api::Stream;
use postrider_http::grpc::Code;
use postrider_http::{HeaderId, RequestHead};
use postrider_model::Fraction;

use super::config::{Abort, By, Config, Fault};
use super::overrides::Values;
use crate::request_parts::matches_headers;

pub(super) const DELAY_SHARE: &[u8] = b"x-envoy-fault-delay-request-percentage";
pub(super) const ABORT_SHARE: &[u8] = b"x-envoy-fault-abort-request-percentage";
pub(super) const RATE_SHARE: &[u8] = b"x-envoy-fault-throughput-response-percentage";

/// Whether the request may have a fault at all.
pub(super) fn is_meant(config: &Config, stream: &Stream<'_>) -> bool {
    if let Some(cluster) = &config.cluster
        && stream.cluster().as_deref() != Some(cluster)
    {
        return false;
    }
    if !config.nodes.is_empty() {
        let node = stream.request.fields.get(HeaderId::XEnvoyDownstreamServiceNode);
        if !node.is_some_and(|node| config.nodes.iter().any(|known| known.as_bytes() == node)) {
            return false;
        }
    }
    matches_headers(&config.headers, stream.request)
}

/// The share of requests that have this fault, in parts per million: where requests speak for themselves, one that asks
/// for less gets less. What the runtime says instead counts alone.
pub(super) fn share<T>(fault: &Fault<T>, instead: Option<Fraction>, header: &[u8], request: &RequestHead) -> u32 {
    if let Some(share) = instead {
        return share.parts_per_million();
    }
    let mut share = fault.share;
    if matches!(fault.what, By::Header)
        && let Some(asked) = request.fields.get_name(header).and_then(number)
    {
        share.numerator = share.numerator.min(u32::try_from(asked).unwrap_or(u32::MAX));
    }
    share.parts_per_million()
}

pub(super) fn delay(what: &By<Duration>, request: &RequestHead) -> Option<Duration> {
    match what {
        By::Fixed(delay) => Some(*delay),
        By::Header => {
            let asked = request.fields.get_name(b"x-envoy-fault-delay-request").and_then(number);
            asked.map(Duration::from_millis)
        }
    }
}

/// In KiB per second.
pub(super) fn rate(what: &By<u64>, request: &RequestHead) -> Option<u64> {
    match what {
        By::Fixed(rate) => Some(*rate),
        By::Header => {
            let asked = request.fields.get_name(b"x-envoy-fault-throughput-response").and_then(number);
            asked.filter(|rate| *rate > 0)
        }
    }
}

pub(super) fn abort(what: &By<Abort>, request: &RequestHead) -> Option<Abort> {
    match what {
        By::Fixed(abort) => Some(*abort),
        By::Header => {
            let asked = |name: &[u8]| request.fields.get_name(name).and_then(number);
            let status = asked(b"x-envoy-fault-abort-request").and_then(|status| u16::try_from(status).ok());
            let http = status.filter(|status| (200..600).contains(status)).map(Abort::Http);
            http.or_else(|| {
                let code = asked(b"x-envoy-fault-abort-grpc-request").and_then(|code| u32::try_from(code).ok());
                code.and_then(Code::from_number).map(Abort::Grpc)
            })
        }
    }
}

/// What is answered in place of `abort`: a status gives way to one of its kind.
pub(super) fn instead(abort: Abort, values: Option<&Values>) -> Abort {
    let Some(values) = values else { return abort };
    match abort {
        Abort::Http(_) => values.http_status.map_or(abort, Abort::Http),
        Abort::Grpc(_) => values.grpc_status.map_or(abort, Abort::Grpc),
    }
}

fn number(value: &[u8]) -> Option<u64> {
    std::str::from_utf8(value).ok()?.trim().parse().ok()
}
