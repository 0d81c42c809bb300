//! Which statistics are told, and how.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::{Address, FilterSlot, GrpcTarget, Regex, StringMatch};

/// What the configuration says about statistics.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct StatsRules {
    /// Which of them are told; `None` is all.
    pub told: Option<StatsMatch>,
    /// In place of `told`, for statistics whose names have a dot behind this: what one of the rules shows is told. The
    /// longest of these beginnings counts.
    pub told_of: BTreeMap<String, Vec<StatsMatch>>,
    /// Histograms with buckets of their own: the first that matches counts.
    pub buckets: Vec<BucketRule>,
    pub tags: TagRules,
    /// How long an interval of a histogram lasts, where the configuration says it.
    pub interval: Option<Duration>,
}

/// What tags statistics have.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TagRules {
    /// Of the usual ones those with these names; `None` is all.
    pub defaults: Option<Vec<String>>,
    /// Further ones, in the order of the document.
    pub rules: Vec<TagRule>,
}

/// A tag of a configuration's own.
#[derive(Debug, Clone, PartialEq)]
pub struct TagRule {
    pub name: String,
    pub value: TagValue,
}

/// Where a tag's value comes from.
#[derive(Debug, Clone, PartialEq)]
pub enum TagValue {
    Fixed(String),
    /// From the full name: its first group leaves the name, and the second, or else the first, is the value.
    Regex(Regex),
}

/// To whom statistics are sent, and when.
#[derive(Debug, Clone, PartialEq)]
pub struct StatsSinks {
    pub sinks: Vec<StatsSink>,
    /// `None`: whenever the admin is asked for statistics.
    pub interval: Option<Duration>,
}

/// Somebody who takes statistics.
#[derive(Debug, Clone, PartialEq)]
pub enum StatsSink {
    /// Statsd over UDP, or in datagrams to a Unix domain socket.
    Statsd {
        address: Address,
        prefix: String,
        tags: StatsdTags,
        /// Lines share a datagram up to this size; 0 sends each in one of its own.
        datagram_bytes: usize,
    },
    /// Statsd over a connection to a cluster, without tags.
    StatsdTcp {
        cluster: Arc<str>,
        prefix: String,
    },
    OpenTelemetry(OtlpSink),
    /// Envoy's `MetricsService`.
    Metrics(MetricsSink),
    /// Code that runs on the first worker.
    Plugin(FilterSlot),
}

/// Where a line of statsd has its tags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatsdTags {
    /// In the names, as `/stats` has them.
    InName,
    /// Behind the value, as DogStatsD wants them; names are without tags.
    BehindValue,
    /// Behind the name, as Graphite wants them; names are without tags.
    BehindName,
}

impl StatsSinks {
    /// Those that are code.
    pub fn plugins(&self) -> impl Iterator<Item = &FilterSlot> {
        self.sinks.iter().filter_map(|sink| match sink {
            StatsSink::Plugin(slot) => Some(slot),
            StatsSink::Statsd { .. }
            | StatsSink::StatsdTcp { .. }
            | StatsSink::OpenTelemetry(_)
            | StatsSink::Metrics(_) => None,
        })
    }
}

/// A collector of OpenTelemetry, and what it is told.
#[derive(Debug, Clone, PartialEq)]
pub struct OtlpSink {
    pub to: OtlpTarget,
    /// Names and values of who tells, beside what is said of the program.
    pub resource: Vec<(String, String)>,
    /// Otherwise with all since the start.
    pub counters_as_deltas: bool,
    pub histograms_as_deltas: bool,
    pub tags_as_attributes: bool,
    /// Names without tags.
    pub names_without_tags: bool,
    /// Stands before each name, with a dot between them; `None` for nothing.
    pub prefix: Option<String>,
    /// More data points are sent in several requests; `None` sends all in one.
    pub max_points: Option<usize>,
}

/// By which protocol a collector is reached.
#[derive(Debug, Clone, PartialEq)]
pub enum OtlpTarget {
    Grpc {
        service: GrpcTarget,
        /// `None` where nothing is said; zero is no limit.
        timeout: Option<Duration>,
    },
    Http {
        cluster: Arc<str>,
        authority: String,
        path: String,
        /// Zero is no limit.
        timeout: Duration,
        /// Names, lower case, and values that every request carries.
        headers: Vec<(String, String)>,
    },
}

/// A `MetricsService`, and what it is told.
#[derive(Debug, Clone, PartialEq)]
pub struct MetricsSink {
    pub service: GrpcTarget,
    pub counters_as_deltas: bool,
    /// Names without tags, and those as labels.
    pub tags_as_labels: bool,
    /// Histograms are told by quantiles.
    pub summaries: bool,
    /// Histograms are told by buckets.
    pub histograms: bool,
    /// So many metrics in one message at most; `None` sends all in one.
    pub batch: Option<usize>,
}

/// The buckets of the histograms whose full name matches.
#[derive(Debug, Clone, PartialEq)]
pub struct BucketRule {
    pub of: StringMatch,
    /// Upper bounds, ascending, above zero.
    pub bounds: Arc<[f64]>,
}

impl StatsRules {
    pub fn shows(&self, name: &str) -> bool {
        match self.of_scope(name) {
            Some(rules) => rules.iter().any(|rule| rule.shows(name)),
            None => self.told.as_ref().is_none_or(|told| told.shows(name)),
        }
    }

    /// Whether some statistics are not told.
    pub fn hides(&self) -> bool {
        self.told.is_some() || !self.told_of.is_empty()
    }

    /// The rules of the longest beginning that `name` has.
    fn of_scope(&self, name: &str) -> Option<&[StatsMatch]> {
        if self.told_of.is_empty() {
            return None;
        }
        let mut begins = name.rmatch_indices('.').filter_map(|(dot, _)| name.get(..dot));
        begins.find_map(|begin| self.told_of.get(begin)).map(Vec::as_slice)
    }

    /// The bounds for a histogram, if it has others than all have.
    pub fn bounds(&self, name: &str) -> Option<Arc<[f64]>> {
        self.buckets.iter().find(|rule| rule.of.matches(name)).map(|rule| rule.bounds.clone())
    }
}

/// A rule over full names (`cluster.web.upstream_rq_total`). What it leaves out is counted all the same, where counting
/// costs nothing, and shown nowhere.
#[derive(Debug, Clone, PartialEq)]
pub enum StatsMatch {
    /// None at all.
    Nothing,
    /// Those that one of these matches.
    Only(Vec<StringMatch>),
    /// All but those that one of these matches.
    AllBut(Vec<StringMatch>),
}

impl StatsMatch {
    pub fn shows(&self, name: &str) -> bool {
        match self {
            StatsMatch::Nothing => false,
            StatsMatch::Only(rules) => rules.iter().any(|rule| rule.matches(name)),
            StatsMatch::AllBut(rules) => !rules.iter().any(|rule| rule.matches(name)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StringKind;

    #[test]
    fn a_list_takes_in_or_leaves_out() {
        let rules = || {
            let rule = |kind| StringMatch { kind, ignore_case: false };
            vec![rule(StringKind::Prefix("cluster.a.".into())), rule(StringKind::Suffix("_total".into()))]
        };
        let names = ["cluster.a.x", "http.b.rq_total", "http.b.rq"];
        assert_eq!(names.map(|name| StatsMatch::Only(rules()).shows(name)), [true, true, false]);
        assert_eq!(names.map(|name| StatsMatch::AllBut(rules()).shows(name)), [false, false, true]);
        assert_eq!(names.map(|name| StatsMatch::Nothing.shows(name)), [false; 3]);
    }

    #[test]
    fn a_scope_has_rules_in_place_of_those_of_all() {
        let total =
            || StatsMatch::Only(vec![StringMatch { kind: StringKind::Suffix("_total".into()), ignore_case: false }]);
        let told_of = [
            ("cluster.a".to_owned(), vec![StatsMatch::Nothing]),
            ("cluster.a.b".to_owned(), vec![StatsMatch::Nothing, total()]),
        ];
        let rules = StatsRules { told: Some(total()), told_of: told_of.into(), ..StatsRules::default() };
        let names =
            ["cluster.a.rq_total", "cluster.a.b.rq_total", "cluster.a.b.rq", "cluster.ab.rq_total", "x", "cluster.a"];
        assert_eq!(names.map(|name| rules.shows(name)), [false, true, false, true, false, false]);
        let rules = StatsRules { told: None, ..rules };
        assert_eq!(names.map(|name| rules.shows(name)), [false, true, false, true, true, true]);
    }

    #[test]
    fn the_first_rule_for_buckets_counts() {
        let rule = |prefix: &str, bounds: &[f64]| BucketRule {
            of: StringMatch { kind: StringKind::Prefix(prefix.into()), ignore_case: false },
            bounds: bounds.into(),
        };
        let rules = StatsRules { buckets: vec![rule("a.b", &[1.0]), rule("a.", &[2.0, 3.0])], ..StatsRules::default() };
        assert_eq!(
            ["a.b", "a.c", "b"].map(|name| rules.bounds(name).map(|bounds| bounds.len())),
            [Some(1), Some(2), None]
        );
        assert!(rules.shows("b"));
    }
}
