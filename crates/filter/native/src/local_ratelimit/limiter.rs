//! The buckets of one configuration, and which of them a request draws from.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use postrider_filter_api::{Bucket, Moment};

use crate::descriptors::Descriptor;

/// How a bucket is made.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Plan {
    pub(super) max: u32,
    pub(super) per_fill: u32,
    pub(super) interval: Duration,
}

impl Plan {
    fn bucket(self) -> Arc<Bucket> {
        let rate = f64::from(self.per_fill) / self.interval.as_secs_f64();
        Arc::new(Bucket::full(f64::from(self.max), rate))
    }
}

/// A rule with a bucket of its own. An entry with an empty value stands for every value, each with its own bucket.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Rule {
    pub(super) entries: Vec<(String, String)>,
    pub(super) plan: Plan,
    pub(super) shadow: bool,
}

impl Rule {
    pub(super) fn is_wild(&self) -> bool {
        self.entries.iter().any(|(_, value)| value.is_empty())
    }

    fn covers(&self, descriptor: &Descriptor) -> bool {
        let same = |((key, value), (own_key, own)): (&(String, String), &(String, String))| {
            key == own_key && (own.is_empty() || value == own)
        };
        descriptor.entries.len() == self.entries.len() && descriptor.entries.iter().zip(&self.entries).all(same)
    }
}

/// What a limiter is made of.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Rules {
    /// For requests that no rule covers.
    pub(super) default: Option<Plan>,
    pub(super) rules: Vec<Rule>,
    /// Those that a rule covers draw from the default bucket as well.
    pub(super) always_default: bool,
    /// So many values of a rule with empty ones are kept, those asked for last.
    pub(super) max_dynamic: usize,
}

/// The buckets themselves: of all workers, or of one connection.
#[derive(Debug)]
pub(super) struct Limiter {
    default: Option<Arc<Bucket>>,
    rules: Vec<Own>,
}

#[derive(Debug)]
enum Own {
    One(Arc<Bucket>),
    /// By the entries that were seen. Locked for one look.
    Many(Mutex<Seen>),
}

/// What a descriptor says.
type Entries = Arc<[(String, String)]>;

/// Buckets by entries, of which those asked for last are kept.
#[derive(Debug, Default)]
struct Seen {
    buckets: HashMap<Entries, (Arc<Bucket>, u64)>,
    /// By the number of the question, so that the first is the one that nobody asked for longest.
    asked: BTreeMap<u64, Entries>,
    questions: u64,
}

impl Seen {
    /// The bucket for `entries`, made by `make` where there is none; then at most `most` stay.
    fn bucket(&mut self, entries: &[(String, String)], most: usize, make: impl FnOnce() -> Arc<Bucket>) -> Arc<Bucket> {
        self.questions += 1;
        let now = self.questions;
        if let Some((bucket, last)) = self.buckets.get_mut(entries) {
            if let Some(entries) = self.asked.remove(last) {
                self.asked.insert(now, entries);
            }
            *last = now;
            return bucket.clone();
        }
        while self.buckets.len() >= most.max(1) {
            let Some((_, oldest)) = self.asked.pop_first() else { break };
            self.buckets.remove(&oldest);
        }
        let (entries, bucket): (Entries, _) = (entries.into(), make());
        self.asked.insert(now, entries.clone());
        self.buckets.insert(entries, (bucket.clone(), now));
        bucket
    }
}

/// What became of a request.
#[derive(Debug)]
pub(super) struct Verdict {
    pub(super) allowed: bool,
    /// Refused by nothing but rules that only look on.
    pub(super) shadow: bool,
    /// The bucket that answers are told about.
    pub(super) bucket: Option<Arc<Bucket>>,
    /// Whether they are, where the rule that made the bucket's descriptor says so.
    pub(super) quota_headers: Option<bool>,
}

/// A bucket that a descriptor draws from.
struct Drawn {
    bucket: Arc<Bucket>,
    shadow: bool,
    hits: f64,
    quota_headers: Option<bool>,
}

impl Verdict {
    /// About the bucket of a descriptor, else the default one.
    fn new(allowed: bool, drawn: Option<&Drawn>, default: Option<&Arc<Bucket>>) -> Verdict {
        Verdict {
            allowed,
            shadow: false,
            bucket: drawn.map(|drawn| &drawn.bucket).or(default).cloned(),
            quota_headers: drawn.and_then(|drawn| drawn.quota_headers),
        }
    }
}

impl Limiter {
    pub(super) fn new(rules: &Rules) -> Limiter {
        let own = |rule: &Rule| match rule.is_wild() {
            true => Own::Many(Mutex::default()),
            false => Own::One(rule.plan.bucket()),
        };
        Limiter { default: rules.default.map(Plan::bucket), rules: rules.rules.iter().map(own).collect() }
    }

    /// Takes what the request costs: `proxies` times as much where the buckets are meant for so many, as Envoy shares them.
    pub(super) fn judge(&self, rules: &Rules, descriptors: &[Descriptor], proxies: usize, now: Moment) -> Verdict {
        let proxies = proxies as f64;
        let mut found: Vec<Drawn> = descriptors.iter().filter_map(|descriptor| self.find(rules, descriptor)).collect();
        // The slowest one first: what it refuses costs the others nothing.
        found.sort_by(|a, b| a.bucket.rate().total_cmp(&b.bucket.rate()));
        let mut shadowed = None;
        for drawn in &found {
            if drawn.bucket.take(now, drawn.hits * proxies) {
                continue;
            }
            if !drawn.shadow {
                return Verdict::new(false, Some(drawn), None);
            }
            shadowed.get_or_insert(drawn);
        }
        let first = found.first();
        let allowed = |default: Option<&Arc<Bucket>>| match shadowed {
            Some(drawn) => Verdict { shadow: true, ..Verdict::new(false, Some(drawn), None) },
            None => Verdict::new(true, first, default),
        };
        if !found.is_empty() && !rules.always_default {
            return allowed(None);
        }
        match &self.default {
            None => allowed(None),
            Some(default) if default.take(now, proxies) => allowed(Some(default)),
            Some(default) => Verdict::new(false, None, Some(default)),
        }
    }

    /// The bucket of the rule that covers the descriptor, and what the request costs there.
    fn find(&self, rules: &Rules, descriptor: &Descriptor) -> Option<Drawn> {
        let hits = descriptor.hits.map_or(1.0, |(hits, negative)| if negative { -(hits as f64) } else { hits as f64 });
        let covering = |wild: bool| {
            let all = rules.rules.iter().zip(&self.rules);
            all.filter(move |(_, own)| matches!(own, Own::Many(_)) == wild).find(|(rule, _)| rule.covers(descriptor))
        };
        let (rule, own) = covering(false).or_else(|| covering(true))?;
        let bucket = match own {
            Own::One(bucket) => bucket.clone(),
            Own::Many(seen) => {
                let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
                seen.bucket(&descriptor.entries, rules.max_dynamic, || rule.plan.bucket())
            }
        };
        Some(Drawn { bucket, shadow: rule.shadow, hits, quota_headers: descriptor.quota_headers })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_values_those_asked_for_last_keep_their_buckets() {
        let mut seen = Seen::default();
        let plan = Plan { max: 1, per_fill: 1, interval: Duration::from_secs(1) };
        let mut bucket = |value: &str| seen.bucket(&[("user".into(), value.into())], 2, || plan.bucket());
        let (a, b) = (bucket("a"), bucket("b"));
        assert!(Arc::ptr_eq(&bucket("a"), &a));
        let c = bucket("c");
        assert!(Arc::ptr_eq(&bucket("a"), &a) && Arc::ptr_eq(&bucket("c"), &c));
        assert!(!Arc::ptr_eq(&bucket("b"), &b), "it was the one that nobody asked for longest");
        assert_eq!((seen.buckets.len(), seen.asked.len()), (2, 2));
    }
}
