//! The load scenarios: interleaved rounds of a load generator against each proxy, CPU time read from /proc around each.
//!
//! In a round every subject runs once, freshly started, and the order turns by one with each round, so that a slow
//! change of the machine meets all of them alike. Ratios are formed within a round.

use std::time::Instant;

use crate::error::Result;
use crate::generator::Loader;
use crate::pause::pause;
use crate::peer::Peer;
use crate::probe::Probe;
use crate::proc_stat::{busy_ticks, cpu_time, memory, tick_micros};
use crate::process::Process;
use crate::rig::{Rig, Wrap};
use crate::scenario::{LoadPlan, Sends, Variant};
use crate::stats::Spread;

/// A sample in which other programs used more than this share of one CPU is not counted.
pub const FOREIGN_LIMIT: f64 = 0.12;
/// How long each proxy is warmed up before its sample: pools filled, caches and branch predictors warm.
const WARM_UP_SECONDS: u64 = 1;

/// How often and how long.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    pub rounds: usize,
    pub seconds: u64,
    /// How often a disturbed sample is taken again at once.
    pub retries: usize,
}

/// One measurement of one subject.
#[derive(Clone, Debug)]
pub struct Sample {
    pub round: usize,
    /// CPU time of all the proxy's processes per request, microseconds; and the part of it in user space.
    pub cpu_us: f64,
    pub user_us: f64,
    pub requests_per_second: f64,
    pub p50_ms: f64,
    pub p99_ms: f64,
    /// Under load, all processes.
    pub rss_kib: u64,
    pub pss_kib: u64,
    /// Share of one CPU that programs outside the bench used meanwhile.
    pub foreign: f64,
}

impl Sample {
    /// Whether little enough else ran meanwhile.
    fn is_quiet(&self) -> bool {
        self.foreign <= FOREIGN_LIMIT
    }
}

/// All samples of a peer in one shape.
#[derive(Debug)]
pub struct Subject {
    pub peer: Peer,
    pub variant: Variant,
    pub samples: Vec<Sample>,
    pub failure: Option<String>,
}

impl Subject {
    /// The samples that count: the undisturbed ones, or all if every one was disturbed.
    pub fn counted(&self) -> impl Iterator<Item = &Sample> {
        let all = self.only_disturbed();
        self.samples.iter().filter(move |sample| all || sample.is_quiet())
    }

    /// Whether there was no undisturbed sample, so that the figures are of disturbed ones.
    pub fn only_disturbed(&self) -> bool {
        !self.samples.iter().any(Sample::is_quiet)
    }

    /// Samples left out because of foreign load.
    pub fn dropped(&self) -> usize {
        self.samples.len() - self.counted().count()
    }

    pub fn spread(&self, figure: impl Fn(&Sample) -> f64) -> Option<Spread> {
        Spread::of(self.counted().map(figure))
    }

    /// CPU per request of this subject over that of another, formed in each round.
    pub fn ratio_to(&self, other: &Self) -> Option<Spread> {
        self.per_round(other, |own, others| own / others)
    }

    /// CPU per request of this subject minus that of another, microseconds, formed in each round.
    pub fn excess_over(&self, other: &Self) -> Option<Spread> {
        self.per_round(other, |own, others| own - others)
    }

    /// Whether in some round both have an undisturbed sample, so that a comparison stands on those alone.
    pub fn shares_quiet_round(&self, other: &Self) -> bool {
        self.pairs(other, Sample::is_quiet).next().is_some()
    }

    /// Over the rounds in which both samples were quiet; if there is none, over all rounds that have both.
    fn per_round(&self, other: &Self, combine: impl Fn(f64, f64) -> f64) -> Option<Spread> {
        let combine = |(own, others): (&Sample, &Sample)| combine(own.cpu_us, others.cpu_us);
        Spread::of(self.pairs(other, Sample::is_quiet).map(&combine))
            .or_else(|| Spread::of(self.pairs(other, |_| true).map(&combine)))
    }

    fn pairs<'a>(
        &'a self,
        other: &'a Self,
        accept: impl Fn(&Sample) -> bool + Copy + 'a,
    ) -> impl Iterator<Item = (&'a Sample, &'a Sample)> {
        let rounds = self.samples.iter().map(|sample| sample.round + 1).max().unwrap_or(0);
        (0..rounds).filter_map(move |round| {
            let (own, others) = (self.quietest(round)?, other.quietest(round)?);
            (accept(own) && accept(others)).then_some((own, others))
        })
    }

    /// The least disturbed sample of a round, which may have been repeated.
    fn quietest(&self, round: usize) -> Option<&Sample> {
        let of_round = self.samples.iter().filter(|sample| sample.round == round);
        of_round.min_by(|one, other| one.foreign.total_cmp(&other.foreign))
    }
}

/// All rounds of a scenario. A subject that fails is reported and left out of later rounds.
/// Of the variants only the first and those of these labels take part, all when there are none.
pub fn measure(
    rig: &Rig,
    plan: &LoadPlan,
    peers: &[Peer],
    variants: &[String],
    effort: Effort,
) -> Result<Vec<Subject>> {
    let Some(first) = plan.variants.first() else { return Ok(Vec::new()) };
    let (upstream, upstream_port) = match plan.sends {
        Sends::Message(_) => rig.start_own_origin(&["serve-grpc".to_owned()])?,
        Sends::Nothing | Sends::Bytes(_) => rig.start_upstream(first.shape.upstream)?,
    };
    let mut subjects: Vec<Subject> = plan
        .variants
        .iter()
        .flat_map(|&variant| peers.iter().map(move |&peer| (peer, variant)))
        .filter(|(peer, variant)| peer.can_be(&variant.shape) && has_to_compare(*peer, plan.variants))
        .filter(|(_, variant)| {
            let wanted = |name: &String| name == variant.label;
            variants.is_empty() || variant.label == first.label || variants.iter().any(wanted)
        })
        .map(|(peer, variant)| Subject { peer, variant, samples: Vec::new(), failure: None })
        .collect();
    for round in 0..effort.rounds {
        let count = subjects.len();
        for turn in 0..count {
            let subject = &mut subjects[(turn + round) % count];
            if subject.failure.is_some() {
                continue;
            }
            for _ in 0..=effort.retries {
                match sample(rig, plan, subject, &upstream, upstream_port, round, effort.seconds) {
                    Ok(sample) => {
                        tell(subject, &sample);
                        subject.samples.push(sample);
                    }
                    Err(error) => {
                        eprintln!("  {} {}: {error}", subject.peer.name(), subject.variant.label);
                        subject.failure = Some(error.to_string());
                    }
                }
                if subject.failure.is_some() || subject.samples.last().is_some_and(Sample::is_quiet) {
                    break;
                }
            }
        }
    }
    upstream.stop()?;
    Ok(subjects)
}

/// A peer that can be the first shape alone, or not that, has nothing to compare.
fn has_to_compare(peer: Peer, variants: &[Variant]) -> bool {
    match variants {
        [first, more @ ..] => {
            peer.can_be(&first.shape) && (more.is_empty() || more.iter().any(|variant| peer.can_be(&variant.shape)))
        }
        [] => false,
    }
}

fn tell(subject: &Subject, sample: &Sample) {
    eprintln!(
        "  round {}: {:<12}{:<18} {:>7.2} us/req  {:>7.0} req/s  foreign {:>3.0} %",
        sample.round + 1,
        subject.peer.name(),
        subject.variant.label,
        sample.cpu_us,
        sample.requests_per_second,
        sample.foreign * 100.0
    );
}

fn sample(
    rig: &Rig,
    plan: &LoadPlan,
    subject: &Subject,
    upstream: &Process,
    upstream_port: u16,
    round: usize,
    seconds: u64,
) -> Result<Sample> {
    let message = match plan.sends {
        Sends::Message(count) => Some(count),
        Sends::Nothing | Sends::Bytes(_) => None,
    };
    let probe = Probe { path: plan.path, body: plan.body, headers: plan.headers, message };
    let proxy = rig.start_proxy(subject.peer, subject.variant.shape, upstream_port, probe, Wrap::Plain)?;
    let loader = Loader::new(rig, plan, &subject.variant.shape, proxy.port)?;
    let _ = loader.run(WARM_UP_SECONDS, |_| ())?;

    let pids = proxy.process.tree();
    let upstream_pids = upstream.tree();
    // The generator is a thread of the bench or a child that it has waited for when the second reading is taken, so its
    // time is in the bench's own.
    let own = [std::process::id()];
    let reading = || (cpu_time(&pids), cpu_time(&upstream_pids).total() + cpu_time(&own).total(), busy_ticks(rig.cpus));
    let (proxy_before, others_before, busy_before) = reading();
    let started = Instant::now();
    let (tally, memory) = loader.run(seconds, |half_way| {
        pause(half_way);
        memory(&pids)
    })?;
    let elapsed_ticks = started.elapsed().as_secs_f64() * 1e6 / tick_micros();
    let (proxy_after, others_after, busy_after) = reading();

    let tally = tally?;
    let used = proxy_after - proxy_before;
    let ours = used.total() + others_after.saturating_sub(others_before);
    let foreign = busy_after.saturating_sub(busy_before).saturating_sub(ours) as f64 / elapsed_ticks;
    proxy.finish()?;
    let per_request = |ticks: u64| ticks as f64 * tick_micros() / tally.requests as f64;
    Ok(Sample {
        round,
        cpu_us: per_request(used.total()),
        user_us: per_request(used.user),
        requests_per_second: tally.requests_per_second(),
        p50_ms: tally.p50_ms,
        p99_ms: tally.p99_ms,
        rss_kib: memory.rss_kib,
        pss_kib: memory.pss_kib,
        foreign,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shape::Shape;

    fn subject(samples: &[(usize, f64, f64)]) -> Subject {
        let sample = |&(round, cpu_us, foreign): &(usize, f64, f64)| Sample {
            round,
            cpu_us,
            user_us: 1.0,
            requests_per_second: 1.0,
            p50_ms: 1.0,
            p99_ms: 1.0,
            rss_kib: 1,
            pss_kib: 1,
            foreign,
        };
        Subject {
            peer: Peer::Nginx,
            variant: Variant { label: "", shape: Shape::HTTP },
            samples: samples.iter().map(sample).collect(),
            failure: None,
        }
    }

    #[test]
    fn disturbed_samples_are_left_out_and_counted() {
        let subject = subject(&[(0, 10.0, 0.01), (1, 30.0, 0.5), (2, 12.0, 0.02)]);
        assert_eq!(subject.dropped(), 1);
        assert_eq!(subject.spread(|sample| sample.cpu_us).unwrap().median, 11.0);
        assert!(!subject.only_disturbed());
    }

    #[test]
    fn when_every_sample_was_disturbed_all_are_kept_and_marked() {
        let subject = subject(&[(0, 10.0, 0.9), (1, 30.0, 0.5)]);
        assert_eq!(subject.dropped(), 0);
        assert!(subject.only_disturbed());
        assert_eq!(subject.spread(|sample| sample.cpu_us).unwrap().count, 2);
    }

    #[test]
    fn a_ratio_is_formed_within_each_round_before_the_median() {
        let own = subject(&[(0, 10.0, 0.0), (1, 20.0, 0.0), (2, 15.0, 0.0)]);
        let other = subject(&[(0, 20.0, 0.0), (1, 20.0, 0.9), (2, 10.0, 0.0)]);
        let ratio = own.ratio_to(&other).unwrap();
        assert_eq!((ratio.min, ratio.max, ratio.count), (0.5, 1.5, 2));
        assert_eq!(own.excess_over(&other).unwrap().median, -2.5);
        assert!(own.shares_quiet_round(&other));
    }

    #[test]
    fn without_a_round_that_was_quiet_for_both_all_rounds_are_compared() {
        let own = subject(&[(0, 10.0, 0.0), (1, 20.0, 0.9)]);
        let other = subject(&[(0, 20.0, 0.9), (1, 20.0, 0.0)]);
        let ratio = own.ratio_to(&other).unwrap();
        assert_eq!((ratio.min, ratio.max, ratio.count), (0.5, 1.0, 2));
        assert!(!own.shares_quiet_round(&other));
    }

    #[test]
    fn of_a_repeated_sample_the_quietest_is_compared() {
        let own = subject(&[(0, 99.0, 0.9), (0, 10.0, 0.0)]);
        let other = subject(&[(0, 77.0, 0.9), (0, 20.0, 0.5), (0, 55.0, 0.6)]);
        let ratio = own.ratio_to(&other).unwrap();
        assert_eq!((ratio.median, ratio.count), (0.5, 1));
        assert_eq!(other.ratio_to(&other).unwrap().median, 1.0);
    }
}
