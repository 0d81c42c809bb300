//! `envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit`: what the service is asked, and what its answer means.

use postrider_grpc::core::HeaderValue;
use postrider_grpc::rate::rate_limit_descriptor::{Entry, RateLimitOverride};
use postrider_grpc::rate::rate_limit_response::{Code, DescriptorStatus, rate_limit::Unit};
use postrider_grpc::rate::{RateLimitDescriptor, RateLimitRequest, RateLimitResponse};
use postrider_grpc::{Message, from_struct};
use postrider_model::{LimitUnit, Value};

use crate::descriptors::Descriptor;

/// A header as the service writes it: nothing is checked yet.
pub(super) type Header = (String, Vec<u8>);

/// What the service says.
#[derive(Debug, Default)]
pub(super) struct Verdict {
    pub(super) limited: bool,
    pub(super) response_headers: Vec<Header>,
    pub(super) request_headers: Vec<Header>,
    pub(super) body: Vec<u8>,
    /// A map; may be empty.
    pub(super) metadata: Vec<(String, Value)>,
    /// Limit with policy, remaining and seconds to the reset, of the limit that is nearest to being reached; where
    /// clients are told of it.
    pub(super) quota: Option<(String, u32, i64)>,
    /// Seconds after which to try again, where a limit is reached.
    pub(super) retry_after: Option<i64>,
}

/// The message that asks about a request.
pub(super) fn ask(domain: &str, descriptors: &[Descriptor], hits_addend: u32) -> Vec<u8> {
    let descriptors = descriptors.iter().map(|descriptor| {
        let entries = descriptor.entries.iter().map(|(key, value)| Entry { key: key.clone(), value: value.clone() });
        RateLimitDescriptor {
            entries: entries.collect(),
            limit: descriptor.limit.map(|(requests_per_unit, unit)| RateLimitOverride {
                requests_per_unit,
                unit: number_of(unit),
                unit_multiplier: None,
            }),
            hits_addend: descriptor.hits.map(|(hits, _)| hits),
            is_negative_hits: descriptor.hits.is_some_and(|(_, negative)| negative),
        }
    });
    let request = RateLimitRequest { domain: domain.to_owned(), descriptors: descriptors.collect(), hits_addend };
    request.encode_to_vec()
}

fn number_of(unit: LimitUnit) -> i32 {
    use postrider_grpc::core::RateLimitUnit as Wire;
    let unit = match unit {
        LimitUnit::Unknown => Wire::Unknown,
        LimitUnit::Second => Wire::Second,
        LimitUnit::Minute => Wire::Minute,
        LimitUnit::Hour => Wire::Hour,
        LimitUnit::Day => Wire::Day,
        LimitUnit::Month => Wire::Month,
        LimitUnit::Year => Wire::Year,
    };
    unit as i32
}

/// Of which limits clients are told: by descriptor, which the service's statuses follow.
#[derive(Debug)]
pub(super) struct Told {
    by_descriptor: Vec<Option<bool>>,
    otherwise: bool,
}

impl Told {
    pub(super) fn new(descriptors: &[Descriptor], otherwise: bool) -> Told {
        Told { by_descriptor: descriptors.iter().map(|descriptor| descriptor.quota_headers).collect(), otherwise }
    }

    fn has(&self, index: usize) -> bool {
        self.by_descriptor.get(index).copied().flatten().unwrap_or(self.otherwise)
    }
}

/// What an answer means; `None` when it cannot be read.
pub(super) fn verdict(answer: &[u8], told: &Told) -> Option<Verdict> {
    let answer = RateLimitResponse::decode(answer).ok()?;
    let over = answer.statuses.iter().filter(|status| status.code() == Code::OverLimit);
    let retry_after = over.map(|status| status.duration_until_reset.map_or(0, |left| left.seconds).max(1)).max();
    Some(Verdict {
        limited: answer.overall_code() == Code::OverLimit,
        quota: quota(&answer.statuses, told),
        retry_after,
        response_headers: answer.response_headers_to_add.into_iter().map(header).collect(),
        request_headers: answer.request_headers_to_add.into_iter().map(header).collect(),
        body: answer.raw_body,
        metadata: match answer.dynamic_metadata.as_ref().map(from_struct) {
            Some(Value::Map(entries)) => entries,
            _ => Vec::new(),
        },
    })
}

fn header(header: HeaderValue) -> Header {
    let value = if header.value.is_empty() { header.raw_value } else { header.value.into_bytes() };
    (header.key, value)
}

/// As draft-polli-ratelimit-headers-03 says it: `10, 10;w=1;name="per-ip", 1000;w=3600`.
fn quota(statuses: &[DescriptorStatus], told: &Told) -> Option<(String, u32, i64)> {
    let limits = || {
        let all = statuses.iter().enumerate();
        all.filter_map(|(index, status)| Some((index, status, status.current_limit.as_ref()?)))
    };
    let (nearest, status, limit) = limits().min_by_key(|(_, status, _)| status.limit_remaining)?;
    if !told.has(nearest) {
        return None;
    }
    let mut policy = String::new();
    for (_, _, limit) in limits().filter(|(index, ..)| told.has(*index)) {
        let window = seconds_of(limit.unit()) * u64::from(limit.unit_multiplier.unwrap_or(1));
        if window == 0 {
            continue;
        }
        policy += &format!(", {};w={window}", limit.requests_per_unit);
        if !limit.name.is_empty() {
            policy += &format!(";name=\"{}\"", limit.name);
        }
    }
    let reset = status.duration_until_reset.map_or(0, |left| left.seconds);
    Some((format!("{}{policy}", limit.requests_per_unit), status.limit_remaining, reset))
}

fn seconds_of(unit: Unit) -> u64 {
    const DAY: u64 = 24 * 60 * 60;
    match unit {
        Unit::Unknown => 0,
        Unit::Second => 1,
        Unit::Minute => 60,
        Unit::Hour => 60 * 60,
        Unit::Day => DAY,
        Unit::Week => 7 * DAY,
        Unit::Month => 30 * DAY,
        Unit::Year => 365 * DAY,
    }
}
