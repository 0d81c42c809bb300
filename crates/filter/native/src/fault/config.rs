//! What the filter is configured by: `HTTPFault`.

use std::time::Duration;

use postrider_filter_api::ConfigError;
use postrider_http::grpc::Code;
use postrider_model::{Fraction, HeaderMatch, Reading, Value, header_match};

use super::overrides::Overrides;

#[derive(Debug, Default)]
pub(super) struct Config {
    pub(super) delay: Option<Fault<Duration>>,
    pub(super) abort: Option<Fault<Abort>>,
    /// In KiB per second.
    pub(super) rate: Option<Fault<u64>>,
    pub(super) body: Option<String>,
    pub(super) cluster: Option<String>,
    pub(super) headers: Vec<HeaderMatch>,
    pub(super) nodes: Vec<String>,
    pub(super) max_active: u64,
    /// Count by the cluster that requests say they come from.
    pub(super) by_downstream: bool,
    pub(super) metadata: Vec<(String, Value)>,
    pub(super) overrides: Overrides,
}

/// What is done to which share of requests.
#[derive(Debug)]
pub(super) struct Fault<T> {
    pub(super) what: By<T>,
    pub(super) share: Fraction,
}

#[derive(Debug, PartialEq)]
pub(super) enum By<T> {
    Fixed(T),
    /// Each request says what it wants.
    Header,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Abort {
    Http(u16),
    Grpc(Code),
}

pub(super) fn read(value: &Value) -> Result<Config, ConfigError> {
    Reading::all(value, |at| {
        let overrides = Overrides::read(at);
        let mut body = None;
        let abort = at.map("abort", |abort| {
            body = abort.text("response_body").map(str::to_owned);
            fault(abort, "header_abort", |at| at.has("http_status") || at.has("grpc_status"), status)
        });
        let metadata = match at.value("filter_metadata") {
            Some(Value::Map(entries)) => entries.clone(),
            _ => Vec::new(),
        };
        Config {
            delay: at
                .map("delay", |delay| fault(delay, "header_delay", |at| at.has("fixed_delay"), fixed_delay))
                .flatten(),
            abort: abort.flatten(),
            rate: at
                .map("response_rate_limit", |limit| {
                    fault(
                        limit,
                        "header_limit",
                        |at| at.has("fixed_limit"),
                        |at| {
                            at.map("fixed_limit", |fixed| {
                                let limit = fixed.number("limit_kbps").filter(|limit| *limit > 0);
                                if limit.is_none() {
                                    fixed.error("limit_kbps", "at least 1 KiB per second is wanted");
                                }
                                limit
                            })
                            .flatten()
                        },
                    )
                })
                .flatten(),
            body,
            cluster: at.text("upstream_cluster").map(str::to_owned),
            headers: at.each("headers", header_match).into_iter().flatten().collect(),
            nodes: at.texts("downstream_nodes"),
            max_active: overrides.max_active.or_else(|| at.number("max_active_faults")).unwrap_or(u64::MAX),
            by_downstream: !at.flag("disable_downstream_cluster_stats"),
            metadata,
            overrides,
        }
    })
}

/// One kind of fault: fixed, or as the header says that `by_header` stands for.
fn fault<T>(
    at: &mut Reading<'_>,
    by_header: &str,
    is_fixed: impl Fn(&mut Reading<'_>) -> bool,
    fixed: impl Fn(&mut Reading<'_>) -> Option<T>,
) -> Option<Fault<T>> {
    let share = at.fraction("percentage").unwrap_or_default();
    let header = at.map(by_header, |_| ()).is_some();
    let what = match (is_fixed(at), header) {
        (true, false) => By::Fixed(fixed(at)?),
        (false, true) => By::Header,
        _ => {
            at.wrong(format!("what is done is required: a fixed value or `{by_header}: {{}}`"));
            return None;
        }
    };
    Some(Fault { what, share })
}

fn fixed_delay(at: &mut Reading<'_>) -> Option<Duration> {
    let delay = at.duration("fixed_delay")?;
    if delay.is_zero() {
        at.error("fixed_delay", "a delay above zero is wanted");
    }
    Some(delay)
}

fn status(at: &mut Reading<'_>) -> Option<Abort> {
    if let Some(number) = at.number("http_status") {
        let status = u16::try_from(number).ok().filter(|status| (200..600).contains(status));
        if status.is_none() {
            at.error("http_status", format!("{number} is no status from 200 to 599"));
        }
        return status.map(Abort::Http);
    }
    let number = at.number("grpc_status")?;
    let code = u32::try_from(number).ok().and_then(Code::from_number);
    if code.is_none() {
        at.error("grpc_status", format!("{number} is no status of gRPC: they are 0 to 16"));
    }
    code.map(Abort::Grpc)
}
