//! What is configured: which requests are tapped, what of them is kept, and where it goes.

use std::ops::Deref;
use std::sync::Arc;

use postrider_grpc::tap::{FractionalPercent, fractional_percent::DenominatorType};
use postrider_model::{Fraction, Reading, Value, ValueError};

use super::files::Files;
use super::format::Format;
use super::mask::Mask;
use super::outlet::{Live, Outlet};
use super::predicate::Predicate;

/// Of each body, this much is kept where nothing else is configured.
const DEFAULT_BODY_BYTES: usize = 1024;

/// Of each body, more is not kept whatever is configured: memory is for requests.
pub(super) const MAX_BODY_BYTES: usize = 4 << 20;

/// The filter's own part.
#[derive(Debug)]
pub(super) struct Config {
    pub(super) source: Source,
    pub(super) record_times: bool,
    pub(super) record_downstream: bool,
    pub(super) record_upstream: bool,
    pub(super) mask: Mask,
}

#[derive(Debug)]
pub(super) enum Source {
    Fixed(Arc<Tap>),
    /// Whoever asks for this identifier through the admin.
    Asked(String),
}

/// One tap.
#[derive(Debug)]
pub(super) struct Tap {
    pub(super) predicate: Predicate,
    pub(super) outlet: Outlet,
    /// Bytes that are kept of a request's body.
    pub(super) received: usize,
    /// The same of an answer's.
    pub(super) sent: usize,
    /// Pieces as they come, in place of one whole trace.
    pub(super) streams: bool,
    /// The share of requests that are looked at.
    pub(super) sampling: Option<Sampling>,
    /// Only those that failed.
    pub(super) only_failed: bool,
}

/// A tap as the streams of one worker hold it: how many do is that worker's own number.
#[derive(Debug)]
pub(super) struct Held(pub(super) Arc<Tap>);

impl Deref for Held {
    type Target = Tap;

    fn deref(&self) -> &Tap {
        &self.0
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Sampling {
    pub(super) parts_per_million: u32,
    /// As traces tell it.
    pub(super) told: FractionalPercent,
}

/// How an asked tap gathers traces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Batch {
    /// They are sent when there are so many.
    pub traces: u64,
    /// Or when so much time has passed.
    pub timeout: Option<std::time::Duration>,
}

/// A tap that is asked for through the admin.
pub(super) struct Asked {
    pub(super) id: String,
    pub(super) tap: Tap,
    pub(super) batch: Option<Batch>,
}

/// The filter as it is known elsewhere.
pub(super) fn read(value: &Value) -> Result<Config, Vec<ValueError>> {
    made(Reading::all(value, |at| filter(at, Mask::default(), false)))
}

/// The filter with what is our own.
pub(super) fn read_own(value: &Value) -> Result<Config, Vec<ValueError>> {
    made(Reading::all(value, |at| {
        let mut names =
            |key: &str| -> Vec<String> { at.texts(key).into_iter().map(|name| name.to_ascii_lowercase()).collect() };
        let mask = Mask { masked: names("masked"), revealed: names("revealed") };
        let only_failed = at.flag("only_failed");
        let config = at.map("tap", |at| filter(at, mask, only_failed));
        if config.is_none() {
            at.error("tap", "the tap itself is required");
        }
        config.flatten()
    }))
}

/// A request for a tap. `deliver` gets its traces.
pub(super) fn read_asked(value: &Value, only_failed: bool, live: Live) -> Result<Asked, Vec<ValueError>> {
    made(Reading::all(value, |at| {
        let id = at.text("config_id").unwrap_or_default().to_owned();
        let tap = at.map("tap_config", |at| tap(at, only_failed, Some(live))).flatten();
        let (tap, batch) = tap?;
        Some(Asked { id, tap, batch })
    }))
}

/// What is missing without an error of its own is one.
fn made<T>(read: Result<Option<T>, Vec<ValueError>>) -> Result<T, Vec<ValueError>> {
    let nothing = || ValueError { path: String::new(), message: "there is no tap in it".to_owned() };
    read?.ok_or_else(|| vec![nothing()])
}

/// `Tap` of the filter.
fn filter(at: &mut Reading<'_>, mask: Mask, only_failed: bool) -> Option<Config> {
    let source = at.map("common_config", |at| {
        let fixed = at.map("static_config", |at| tap(at, only_failed, None));
        let asked = at.map("admin_config", |at| {
            let id = at.text("config_id").map(str::to_owned);
            if id.is_none() {
                at.error("config_id", "an identifier is required");
            }
            id
        });
        match (fixed, asked) {
            (Some(fixed), None) => fixed.map(|(tap, _)| Source::Fixed(Arc::new(tap))),
            (None, Some(id)) => id.map(Source::Asked),
            _ => {
                at.wrong("exactly one of static_config and admin_config is wanted");
                None
            }
        }
    });
    if source.is_none() {
        at.error("common_config", "where the tap is configured is required");
    }
    if only_failed && matches!(source, Some(Some(Source::Asked(_)))) {
        at.error("common_config", "whoever asks says whether only failures are wanted: /tap?only_failed");
    }
    Some(Config {
        record_times: at.flag("record_headers_received_time"),
        record_downstream: at.flag("record_downstream_connection"),
        record_upstream: at.flag("record_upstream_connection"),
        mask,
        source: source.flatten()?,
    })
}

/// `TapConfig`; with `live`, traces may go to whoever asks.
fn tap(at: &mut Reading<'_>, only_failed: bool, live: Option<Live>) -> Option<(Tap, Option<Batch>)> {
    // The older name holds the same, and gives way.
    let older = at.map("match_config", Predicate::read);
    let predicate = at.map("match", Predicate::read).or(older);
    if predicate.is_none() {
        at.error("match", "which requests are tapped is required");
    }
    let sampling = at.map("tap_enabled", |at| {
        at.text("runtime_key");
        at.fraction("default_value").unwrap_or_default()
    });
    let output = at.map("output_config", |at| output(at, only_failed, live));
    if output.is_none() {
        at.error("output_config", "where traces go is required");
    }
    let output = output.flatten()?;
    let tap = Tap {
        predicate: predicate.flatten()?,
        outlet: output.outlet,
        received: output.received,
        sent: output.sent,
        streams: output.streams,
        sampling: sampling.map(Sampling::of),
        only_failed,
    };
    Some((tap, output.batch))
}

impl Sampling {
    fn of(fraction: Fraction) -> Sampling {
        let denominator = match fraction.unit {
            1 => DenominatorType::Million,
            100 => DenominatorType::TenThousand,
            _ => DenominatorType::Hundred,
        };
        let told = FractionalPercent { numerator: fraction.numerator, denominator: denominator as i32 };
        Sampling { parts_per_million: fraction.parts_per_million(), told }
    }
}

struct Output {
    outlet: Outlet,
    batch: Option<Batch>,
    received: usize,
    sent: usize,
    streams: bool,
}

/// `OutputConfig`.
fn output(at: &mut Reading<'_>, only_failed: bool, live: Option<Live>) -> Option<Output> {
    let mut live = live;
    let mut sinks = at.each("sinks", |at| sink(at, live.take()));
    if sinks.len() != 1 {
        at.error("sinks", "exactly one is wanted");
    }
    at.refuse("min_streamed_sent_bytes", "a threshold, which is for taps of connections");
    let streams = at.flag("streaming");
    if streams && only_failed {
        at.error("streaming", "whether a request failed is known at its end: a trace of failures is whole");
    }
    let mut limit = |key: &str| {
        let limit = at.number(key).map_or(DEFAULT_BODY_BYTES, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
        if limit > MAX_BODY_BYTES {
            at.error(key, format!("{limit} bytes: at most {MAX_BODY_BYTES} of each body are kept"));
        }
        limit
    };
    let (received, sent) = (limit("max_buffered_rx_bytes"), limit("max_buffered_tx_bytes"));
    let (outlet, batch) = sinks.pop().flatten()?;
    if batch.is_some() && streams {
        at.error("streaming", "traces that are gathered are whole ones");
    }
    Some(Output { outlet, batch, received, sent, streams })
}

/// `OutputSink`.
fn sink(at: &mut Reading<'_>, live: Option<Live>) -> Option<(Outlet, Option<Batch>)> {
    let written = at.text("format").unwrap_or_default();
    let format = Format::named(written);
    let asked = live.is_some();
    let mut made = Vec::new();
    made.extend(at.map("file_per_tap", |at| {
        let prefix = at.text("path_prefix");
        if prefix.is_none() {
            at.error("path_prefix", "the beginning of each file's path is required");
        }
        Some((Outlet::Files(Files::new(prefix?, format)), None))
    }));
    let streaming = at.map("streaming_admin", |_| None);
    let gathered = at.map("buffered_admin", |at| {
        let traces = at.number("max_traces").unwrap_or(0);
        if traces == 0 {
            at.error("max_traces", "a number above zero is required");
        }
        // No time is no limit.
        let timeout = at.duration("timeout").filter(|timeout| !timeout.is_zero());
        Some(Batch { traces, timeout })
    });
    if let Some(batch) = streaming.or(gathered) {
        if !asked {
            at.wrong("this sink is for taps that are asked for through the admin");
        } else if !matches!(format, Format::JsonBytes | Format::JsonText | Format::Delimited) {
            at.error(
                "format",
                "the admin sends JSON_BODY_AS_BYTES, JSON_BODY_AS_STRING or PROTO_BINARY_LENGTH_DELIMITED",
            );
        }
        made.push(live.map(|live| (Outlet::Live(live.in_format(format)), batch)));
    }
    let refused = [("streaming_grpc", "traces over gRPC"), ("custom_sink", "a sink from an extension")];
    for (key, what) in refused {
        at.refuse(key, what);
    }
    match (made.pop(), made.is_empty()) {
        (Some(outlet), true) => outlet,
        _ => {
            if !refused.iter().any(|(key, _)| at.has(key)) {
                at.wrong("exactly one of file_per_tap, streaming_admin and buffered_admin is wanted");
            }
            None
        }
    }
}
