//! What changed since statistics were last told: the samples that sinks send.

use crate::render::{BoundsOf, NameFilter, Tagged, Tagger, given};
use crate::stats::{DEFAULT_BOUNDS, Distribution, ScopeValues};
use std::collections::HashMap;
use std::fmt::Write;

/// One series at one flush.
pub struct Sample<'a> {
    /// In full: `cluster.web.upstream_rq_200`.
    pub name: &'a str,
    /// The name without its tags, and those.
    pub tagged: &'a Tagged,
    pub value: Value<'a>,
}

/// What a series has to tell.
#[derive(Debug, Clone, PartialEq)]
pub enum Value<'a> {
    Counter {
        /// Since the last flush.
        new: u64,
        total: u64,
    },
    Gauge(u64),
    Histogram {
        /// Since the last flush.
        new: &'a Distribution,
        total: &'a Distribution,
        /// The upper bounds of its buckets.
        bounds: &'a [f64],
    },
}

/// Which samples are told, and in which form.
pub struct Manner<'a> {
    pub tagger: &'a Tagger,
    /// All are told when there is none.
    pub filter: Option<&'a NameFilter>,
    /// All histograms have the default buckets when there is none.
    pub bounds: Option<&'a BoundsOf>,
}

/// What was told last. What was never used is not told, as in Envoy.
#[derive(Debug, Default)]
pub struct Ledger {
    scopes: HashMap<u32, HashMap<String, Told>>,
}

#[derive(Debug)]
struct Told {
    values: ScopeValues,
    /// By cell: was other than zero once. Envoy also tells a gauge that was set to zero and nothing else.
    used: Vec<bool>,
}

impl Ledger {
    /// Calls `tell` with every sample that is to be told, and notes what was told.
    pub fn tell(&mut self, values: Vec<ScopeValues>, manner: &Manner<'_>, mut tell: impl FnMut(&Sample<'_>)) {
        let mut before = std::mem::take(&mut self.scopes);
        for values in values {
            let old = before.get_mut(&values.set.id).and_then(|scopes| scopes.remove(&values.prefix));
            let used = tell_scope(old.as_ref(), &values, manner, &mut tell);
            let of_set = self.scopes.entry(values.set.id).or_default();
            of_set.insert(values.prefix.clone(), Told { values, used });
        }
    }
}

/// Tells what one scope has; which of its cells were ever used.
fn tell_scope(
    old: Option<&Told>,
    now: &ScopeValues,
    manner: &Manner<'_>,
    tell: &mut impl FnMut(&Sample<'_>),
) -> Vec<bool> {
    let scope = now.set.scope_name(&now.prefix);
    let mut name = String::new();
    // Puts the full name into `name` and makes its tags, if it is to be told.
    let named = |stem: &str, code: Option<u16>, name: &mut String| {
        name.clear();
        name.push_str(&scope);
        name.push_str(stem);
        if let Some(code) = code {
            // Writing to a String cannot fail.
            let _ = write!(name, "{code}");
        }
        let shown = manner.filter.is_none_or(|shows| shows(name));
        let tagged = || manner.tagger.tag(name, (&scope, now.tags.as_deref()));
        shown.then(|| given(name, now.set).unwrap_or_else(tagged))
    };
    let mut used = Vec::with_capacity(now.cells.len());
    for (at, stat) in now.set.cells.iter().enumerate() {
        let (total, ever) = (now.cell(at), now.ever(at));
        let was_used = old.and_then(|old| old.used.get(at)).is_some_and(|used| *used);
        used.push(was_used || ever != 0);
        if !was_used && ever == 0 {
            continue;
        }
        let value = match stat.kind.is_counter() {
            true => Value::Counter { new: since(ever, old.map_or(0, |old| old.values.ever(at))), total },
            false => Value::Gauge(total),
        };
        if let Some(tagged) = named(stat.name, None, &mut name) {
            tell(&Sample { name: &name, tagged: &tagged, value });
        }
    }
    for &(family, code, total) in &now.codes {
        let known = old.and_then(|old| old.values.codes.iter().find(|(f, c, _)| (*f, *c) == (family, code)));
        let Some(stem) = now.set.codes.get(usize::from(family)) else { continue };
        let before = old.zip(known).map_or(0, |(old, known)| old.values.ever_of_code(family, code, known.2));
        let value = Value::Counter { new: since(now.ever_of_code(family, code, total), before), total };
        if let Some(tagged) = named(stem, Some(code), &mut name) {
            tell(&Sample { name: &name, tagged: &tagged, value });
        }
    }
    for (at, stat) in now.set.histograms.iter().enumerate() {
        let Some(total) = now.histogram(at) else { continue };
        let Some(tagged) = named(stat.name, None, &mut name) else { continue };
        let new = total.since(old.and_then(|old| old.values.histogram(at)));
        let own = manner.bounds.and_then(|of| of(&name));
        let bounds = own.as_deref().unwrap_or(&DEFAULT_BOUNDS);
        tell(&Sample { name: &name, tagged: &tagged, value: Value::Histogram { new: &new, total, bounds } });
    }
    used
}

/// A counter whose scope went and came back counts from zero again.
fn since(total: u64, before: u64) -> u64 {
    total.checked_sub(before).unwrap_or(total)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Registry;
    use crate::stats::sets::{cluster, count_upstream_response};

    fn told(ledger: &mut Ledger, registry: &Registry) -> Vec<String> {
        let mut out = Vec::new();
        let filter: NameFilter = Box::new(|name| !name.contains("external"));
        let bounds: BoundsOf = Box::new(|name| name.ends_with("_ms").then(|| [100.0].into()));
        let manner = Manner { tagger: &Tagger::default(), filter: Some(&filter), bounds: Some(&bounds) };
        ledger.tell(registry.read(&[]), &manner, |sample| {
            let value = match &sample.value {
                Value::Counter { new, total } => format!("{new} of {total}"),
                Value::Gauge(value) => format!("={value}"),
                Value::Histogram { new, total, bounds } => {
                    format!("{:?} of {}, up to {bounds:?}", new.values().collect::<Vec<_>>(), total.count())
                }
            };
            assert_eq!(sample.tagged.tags.last(), Some(&("envoy.cluster_name".to_owned(), "a".to_owned())));
            out.push(format!("{} {value}", sample.name.trim_start_matches("cluster.a.")));
        });
        out
    }

    #[test]
    fn a_flush_tells_what_changed_and_only_what_was_used() {
        let registry = Registry::new();
        let block = registry.worker(0).block(&cluster::SET, "a");
        let mut ledger = Ledger::default();
        assert_eq!(told(&mut ledger, &registry), Vec::<String>::new());
        block.inc(cluster::UPSTREAM_CX_TOTAL);
        block.gauge_inc(cluster::UPSTREAM_RQ_ACTIVE);
        block.record(cluster::UPSTREAM_CX_LENGTH_MS, 1_234);
        let first = told(&mut ledger, &registry);
        assert_eq!(
            first,
            [
                "upstream_cx_total 1 of 1",
                "upstream_rq_active =1",
                "upstream_cx_length_ms [(1250, 1)] of 1, up to [100.0]"
            ]
        );
        block.add(cluster::UPSTREAM_CX_TOTAL, 2);
        block.gauge_dec(cluster::UPSTREAM_RQ_ACTIVE);
        [5, 5].iter().for_each(|value| block.record(cluster::UPSTREAM_CX_LENGTH_MS, *value));
        let second = told(&mut ledger, &registry);
        assert_eq!(
            second,
            ["upstream_cx_total 2 of 3", "upstream_rq_active =0", "upstream_cx_length_ms [(5, 2)] of 3, up to [100.0]"]
        );
        registry.reset_counters(&[]);
        block.inc(cluster::UPSTREAM_CX_TOTAL);
        assert_eq!(told(&mut ledger, &registry)[0], "upstream_cx_total 1 of 1");
    }

    #[test]
    fn what_was_counted_between_a_flush_and_a_reset_was_lost() {
        let registry = Registry::new();
        let block = registry.worker(0).block(&cluster::SET, "a");
        let mut ledger = Ledger::default();
        block.add(cluster::UPSTREAM_CX_TOTAL, 3);
        count_upstream_response(&block, 404, false);
        told(&mut ledger, &registry);
        block.add(cluster::UPSTREAM_CX_TOTAL, 2);
        block.inc(cluster::UPSTREAM_RQ_TOTAL);
        count_upstream_response(&block, 404, false);
        registry.reset_counters(&[]);
        block.inc(cluster::UPSTREAM_CX_TOTAL);
        let second = told(&mut ledger, &registry);
        for line in ["upstream_cx_total 3 of 1", "upstream_rq_total 1 of 0", "upstream_rq_404 1 of 0"] {
            assert!(second.contains(&line.to_owned()), "{second:?}");
        }
        registry.reset_counters(&[]);
        assert!(told(&mut ledger, &registry).contains(&"upstream_cx_total 0 of 0".to_owned()));
    }

    #[test]
    fn statuses_are_counters() {
        let registry = Registry::new();
        let block = registry.worker(0).block(&cluster::SET, "a");
        let mut ledger = Ledger::default();
        count_upstream_response(&block, 404, false);
        assert!(told(&mut ledger, &registry).contains(&"upstream_rq_404 1 of 1".to_owned()));
        assert!(told(&mut ledger, &registry).contains(&"upstream_rq_404 0 of 1".to_owned()));
    }
}
