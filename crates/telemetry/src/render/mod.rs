//! Statistics as Envoy prints them: text, JSON, Prometheus.
//!
//! Each format is an iterator of byte chunks, so that a reader's memory does not grow with the number of series and a slow
//! reader holds up nobody. Called by the admin, off the data path.

mod json;
mod number;
mod prometheus;
mod protobuf;
mod series;
mod tagged;
mod tagger;
mod tags;
mod text;

pub use json::json;
pub use prometheus::{PrometheusForm, prometheus};
pub(crate) use tagger::given;
pub use tagger::{DefaultTags, Find, TagRule, TagValue, Tagged, Tagger};
pub use text::text;

use crate::intervals::Interval;
use crate::stats::DEFAULT_BOUNDS;
use std::sync::Arc;

/// Chunks are handed out when they reach this size.
pub const CHUNK_BYTES: usize = 32 * 1024;

/// Whether to show a series, by its full name (`cluster.web.upstream_rq_total`).
pub type NameFilter = Box<dyn Fn(&str) -> bool + Send>;

/// The upper bounds of a histogram's buckets, by its full name; `None` for [`DEFAULT_BOUNDS`].
pub type BoundsOf = Box<dyn Fn(&str) -> Option<Arc<[f64]>> + Send>;

/// Which series to show, and how.
#[derive(Default)]
pub struct Query {
    /// Shows all when there is none.
    pub filter: Option<NameFilter>,
    /// Only what has counted: not zero. Envoy also shows a gauge that was set and is back at zero; we cannot tell.
    pub used_only: bool,
    pub kinds: Kinds,
    pub histograms: HistogramText,
    /// Prometheus is told quantiles of histograms, not buckets.
    pub summaries: bool,
    /// All histograms have the default buckets when there is none.
    pub bounds: Option<BoundsOf>,
    /// What came within the last interval, which is all that summaries tell; nothing is known of it when there is none.
    pub interval: Option<Arc<Interval>>,
}

impl Query {
    /// The bounds of the histogram called `name`, if it has others than the default.
    fn own_bounds(&self, name: &str) -> Option<Arc<[f64]>> {
        self.bounds.as_ref().and_then(|of| of(name))
    }

    /// Does something with the bounds of the histogram called `name`.
    fn with_bounds<T>(&self, name: &str, then: impl FnOnce(&[f64]) -> T) -> T {
        then(self.own_bounds(name).as_deref().unwrap_or(&DEFAULT_BOUNDS))
    }
}

/// The kinds of series, as in Envoy's `type=`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Kinds {
    #[default]
    All,
    Counters,
    Gauges,
    Histograms,
    /// We have none: shows nothing.
    TextReadouts,
}

/// How text and JSON show a histogram, as in Envoy's `histogram_buckets=`: the last interval beside the total.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HistogramText {
    /// Quantiles.
    #[default]
    Summary,
    /// Counts up to each bound.
    Cumulative,
    /// Counts between bounds.
    Disjoint,
    /// Every bucket that holds something, as finely as values are kept, and the quantiles.
    Detailed,
}

impl Kinds {
    /// As Envoy writes them, in the order of the variants.
    pub const NAMES: [&str; 5] = ["All", "Counters", "Gauges", "Histograms", "TextReadouts"];

    pub fn named(name: &str) -> Option<Self> {
        let all = [Self::All, Self::Counters, Self::Gauges, Self::Histograms, Self::TextReadouts];
        Self::NAMES.iter().zip(all).find(|(known, _)| **known == name).map(|(_, kind)| kind)
    }

    fn cells(self, counter: bool) -> bool {
        match self {
            Self::All => true,
            Self::Counters => counter,
            Self::Gauges => !counter,
            Self::Histograms | Self::TextReadouts => false,
        }
    }

    fn histograms(self) -> bool {
        matches!(self, Self::All | Self::Histograms)
    }
}
