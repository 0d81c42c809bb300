//! What a burst of handshakes costs others: a steady stream of small requests on a plain connection, without and with bursts
//! of full TLS handshakes that the same worker has to answer.

use std::fs;
use std::time::{Duration, Instant};

use crate::bursts;
use crate::error::{Error, Result};
use crate::load::{Effort, FOREIGN_LIMIT};
use crate::pacer::{Latency, Pacer};
use crate::pause::{POLL, pause};
use crate::peer::Peer;
use crate::probe::Probe;
use crate::proc_stat::{busy_ticks, cpu_time, tick_micros};
use crate::process::Process;
use crate::rig::{Rig, Wrap};
use crate::scenario::Variant;
use crate::shape::{Http, Key, Shape};
use crate::stats::Spread;

const PROBE: Probe = Probe::get("/13", 13);
/// How long requests are sent before those that count.
const WARM_UP: Duration = Duration::from_secs(1);
/// How long the first burst may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// Seconds after which the process with the bursts ends by itself, beyond those that count.
const MARGIN: u64 = 60;
/// The least share of the intended handshakes that a sample must have had.
const LEAST: f64 = 0.5;

const fn beside_plain(key: Key) -> Shape {
    Shape { tls: Some(key), plain_beside: true, ..Shape::HTTP }
}

pub const VARIANTS: [Variant; 2] = [
    Variant { label: "ECDSA P-256", shape: beside_plain(Key::Ecdsa) },
    Variant { label: "RSA 2048", shape: beside_plain(Key::Rsa) },
];

/// A peer with one kind of key.
#[derive(Debug)]
pub struct StallSubject {
    pub peer: Peer,
    pub variant: Variant,
    pub samples: Vec<StallSample>,
    pub failure: Option<String>,
}

#[derive(Clone, Copy, Debug)]
pub struct StallSample {
    /// Without handshakes, and with bursts of them.
    pub quiet: Latency,
    pub bursts: Latency,
    /// How many the clients got done.
    pub handshakes_per_second: f64,
    /// Share of one CPU that programs outside the bench used meanwhile.
    pub foreign: f64,
}

impl StallSubject {
    /// Over the undisturbed samples, or over all if every one was disturbed.
    pub fn spread(&self, figure: impl Fn(&StallSample) -> f64) -> Option<Spread> {
        let all = self.only_disturbed();
        Spread::of(self.samples.iter().filter(|sample| all || sample.foreign <= FOREIGN_LIMIT).map(figure))
    }

    /// What the bursts add to a figure.
    pub fn added(&self, figure: impl Fn(&Latency) -> f64) -> Option<Spread> {
        self.spread(|sample| figure(&sample.bursts) - figure(&sample.quiet))
    }

    pub fn only_disturbed(&self) -> bool {
        self.samples.iter().all(|sample| sample.foreign > FOREIGN_LIMIT)
    }
}

/// All rounds; a subject that fails is reported and left out of later ones.
pub fn measure(rig: &Rig, peers: &[Peer], effort: Effort) -> Result<Vec<StallSubject>> {
    let (upstream, upstream_port) = rig.start_upstream(Http::One)?;
    let mut subjects: Vec<StallSubject> = VARIANTS
        .iter()
        .flat_map(|&variant| peers.iter().map(move |&peer| (peer, variant)))
        .filter(|(peer, variant)| peer.can_be(&variant.shape))
        .map(|(peer, variant)| StallSubject { peer, variant, samples: Vec::new(), failure: None })
        .collect();
    for round in 0..effort.rounds {
        let count = subjects.len();
        for turn in 0..count {
            let subject = &mut subjects[(turn + round) % count];
            for _ in 0..=effort.retries {
                if subject.failure.is_some() {
                    break;
                }
                match sample(rig, subject, &upstream, upstream_port, effort.seconds) {
                    Ok(sample) => {
                        tell(round, subject, &sample);
                        subject.samples.push(sample);
                        if sample.foreign <= FOREIGN_LIMIT {
                            break;
                        }
                    }
                    Err(error) => {
                        eprintln!("  {} {}: {error}", subject.peer.name(), subject.variant.label);
                        subject.failure = Some(error.to_string());
                    }
                }
            }
        }
    }
    upstream.stop()?;
    Ok(subjects)
}

fn tell(round: usize, subject: &StallSubject, sample: &StallSample) {
    eprintln!(
        "  round {}: {:<12}{:<14} p99 {:>7.3} ms, {:>7.3} with bursts, {:>4.0} handshakes/s  foreign {:>3.0} %",
        round + 1,
        subject.peer.name(),
        subject.variant.label,
        sample.quiet.p99_ms,
        sample.bursts.p99_ms,
        sample.handshakes_per_second,
        sample.foreign * 100.0
    );
}

fn sample(
    rig: &Rig,
    subject: &StallSubject,
    upstream: &Process,
    upstream_port: u16,
    seconds: u64,
) -> Result<StallSample> {
    let proxy = rig.start_proxy(subject.peer, subject.variant.shape, upstream_port, PROBE, Wrap::Plain)?;
    let mut pacer = Pacer::connect(proxy.plain, PROBE.path)?;
    pacer.run(WARM_UP)?;

    let pids: Vec<u32> = [proxy.process.tree(), upstream.tree(), vec![std::process::id()]].concat();
    let before = (cpu_time(&pids).total(), busy_ticks(rig.cpus));
    let begun = Instant::now();
    let duration = Duration::from_secs(seconds);
    let quiet = pacer.run(duration)?;

    let log = rig.log("bursts")?;
    let handshakes = || bursts::read(&fs::read_to_string(&log).unwrap_or_default());
    let command = bursts::command(proxy.port, seconds + MARGIN)?;
    let mut bursting = Process::start("bursts", command, rig.cpus.load, rig.cpus, &log)?;
    while handshakes() == 0 {
        bursting.check_running()?;
        if bursting.started().elapsed() > PATIENCE {
            return Err(Error::FailedLoad { detail: format!("no handshakes within {} s", PATIENCE.as_secs()) });
        }
        pause(POLL);
    }
    let (handshakes_before, bursts_begun) = (handshakes(), Instant::now());
    let with_bursts = pacer.run(duration)?;
    let handshakes_per_second = (handshakes() - handshakes_before) as f64 / bursts_begun.elapsed().as_secs_f64();
    bursting.check_running()?;
    let _ = bursting.stop();
    if handshakes_per_second < LEAST * bursts::RATE {
        return Err(Error::FailedLoad {
            detail: format!("{handshakes_per_second:.0} handshakes in a second instead of {:.0}", bursts::RATE),
        });
    }

    let elapsed_ticks = begun.elapsed().as_secs_f64() * 1e6 / tick_micros();
    let ours = cpu_time(&pids).total().saturating_sub(before.0);
    let foreign = busy_ticks(rig.cpus).saturating_sub(before.1).saturating_sub(ours) as f64 / elapsed_ticks;
    proxy.finish()?;
    Ok(StallSample { quiet, bursts: with_bursts, handshakes_per_second, foreign })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(quiet: f64, bursts: f64, foreign: f64) -> StallSample {
        let latency = |p99_ms| Latency { p50_ms: 0.0, p99_ms, max_ms: 0.0 };
        StallSample { quiet: latency(quiet), bursts: latency(bursts), handshakes_per_second: 320.0, foreign }
    }

    #[test]
    fn what_bursts_add_is_the_difference_within_each_undisturbed_sample() {
        let mut subject = StallSubject {
            peer: Peer::Nginx,
            variant: VARIANTS[0],
            samples: vec![sample(1.0, 4.0, 0.0), sample(2.0, 3.0, 0.0), sample(0.0, 99.0, 0.9)],
            failure: None,
        };
        assert_eq!(subject.added(|latency| latency.p99_ms).unwrap().median, 2.0);
        subject.samples = vec![sample(0.0, 99.0, 0.9)];
        assert!(subject.only_disturbed());
        assert_eq!(subject.added(|latency| latency.p99_ms).unwrap().median, 99.0);
    }
}
