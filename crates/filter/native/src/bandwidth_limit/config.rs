//! What the filter is configured by: `BandwidthLimit`, for the gateway and for routes alike.

use std::time::Duration;

use postrider_filter_api::ConfigError;
use postrider_http::HeaderName;
use postrider_model::{Reading, Value};

/// How often more goes on, unless something else is written.
const INTERVAL: Duration = Duration::from_millis(50);
const MIN_INTERVAL: Duration = Duration::from_millis(20);
const MAX_INTERVAL: Duration = Duration::from_secs(1);

const TRAILERS: [&str; 4] = [
    "bandwidth-request-delay-ms",
    "bandwidth-response-delay-ms",
    "bandwidth-request-filter-delay-ms",
    "bandwidth-response-filter-delay-ms",
];

#[derive(Debug)]
pub(super) struct Config {
    pub(super) stat_prefix: String,
    pub(super) request: bool,
    pub(super) response: bool,
    pub(super) kib_per_second: Option<u64>,
    pub(super) interval: Duration,
    /// Names of the trailers that tell how long it took.
    pub(super) trailers: Option<Vec<HeaderName>>,
}

/// `of_route`: an override, which without a limit would do nothing.
pub(super) fn read(value: &Value, of_route: bool) -> Result<Config, ConfigError> {
    Reading::all(value, |at| {
        let stat_prefix = at.text("stat_prefix").unwrap_or_default().to_owned();
        if stat_prefix.is_empty() {
            at.error("stat_prefix", "the name for statistics is required");
        }
        let kib_per_second = at.number("limit_kbps");
        if kib_per_second == Some(0) || kib_per_second.is_none() && of_route {
            at.error("limit_kbps", "a limit of at least 1 KiB per second is wanted");
        }
        let interval = at.duration("fill_interval").unwrap_or(INTERVAL);
        if !(MIN_INTERVAL..=MAX_INTERVAL).contains(&interval) {
            at.error("fill_interval", "an interval from 0.02s to 1s is wanted");
        }
        let on = at.map("runtime_enabled", |flag| {
            // Its value stands in place of the default already.
            flag.text("runtime_key");
            flag.flag("default_value")
        });
        let mode = at.text("enable_mode").filter(|_| on.unwrap_or(true));
        let prefix = at.text("response_trailer_prefix").map(|prefix| format!("{prefix}-")).unwrap_or_default();
        let names = TRAILERS.map(|name| HeaderName::new(format!("{prefix}{name}").as_bytes()).ok());
        let names: Option<Vec<HeaderName>> = names.into_iter().collect();
        if names.is_none() {
            at.error("response_trailer_prefix", format!("\"{prefix}\" begins no header name"));
        }
        Config {
            stat_prefix: stat_prefix.to_owned(),
            request: matches!(mode, Some("REQUEST" | "REQUEST_AND_RESPONSE")),
            response: matches!(mode, Some("RESPONSE" | "REQUEST_AND_RESPONSE")),
            kib_per_second,
            interval,
            trailers: names.filter(|_| at.flag("enable_response_trailers")),
        }
    })
}
