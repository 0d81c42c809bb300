//! Memory of what does nothing: idle connections, and clusters without traffic.

use std::sync::Arc;
use std::time::Duration;

use rustls::client::Resumption;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use crate::client::Client;
use crate::error::{Error, Result};
use crate::load::Effort;
use crate::peer::Peer;
use crate::probe::Probe;
use crate::proc_stat::memory;
use crate::process::Process;
use crate::rig::{Rig, Wrap};
use crate::scenario::{IDLE_CLUSTERS, IDLE_CONNECTIONS, Idle};
use crate::shape::{Key, Shape};
use crate::stats::Spread;
use crate::tls::believing_client;
use crate::tls_client::TlsClient;

/// Rounds beyond this tell nothing more about memory.
const MAX_ROUNDS: usize = 3;
/// Connections opened and used at a time: small enough for every accept queue.
const STEP: usize = 64;
/// Descriptors of a proxy that are not connections.
const OWN_FILES: u64 = 200;
const BODY: usize = 4000;
const PROBE: Probe = Probe::get("/4k", BODY);

/// One peer in an idle scenario.
#[derive(Debug)]
pub struct IdleSubject {
    pub peer: Peer,
    /// Connections or clusters that were there in the second reading and not in the first.
    pub units: usize,
    pub samples: Vec<IdleSample>,
    pub failure: Option<String>,
}

#[derive(Clone, Copy, Debug)]
pub struct IdleSample {
    pub base_rss_kib: u64,
    pub base_pss_kib: u64,
    pub full_rss_kib: u64,
    pub full_pss_kib: u64,
    /// Start to first correct answer, without and with the units (clusters only).
    pub ready_ms: Option<(f64, f64)>,
}

impl IdleSubject {
    /// KiB of resident memory for each unit.
    pub fn rss_per_unit(&self) -> Option<Spread> {
        self.per_unit(|sample| sample.full_rss_kib as f64 - sample.base_rss_kib as f64)
    }

    /// KiB of proportional memory for each unit.
    pub fn pss_per_unit(&self) -> Option<Spread> {
        self.per_unit(|sample| sample.full_pss_kib as f64 - sample.base_pss_kib as f64)
    }

    pub fn spread(&self, figure: impl Fn(&IdleSample) -> f64) -> Option<Spread> {
        Spread::of(self.samples.iter().map(figure))
    }

    fn per_unit(&self, growth: impl Fn(&IdleSample) -> f64) -> Option<Spread> {
        self.spread(|sample| growth(sample) / self.units as f64)
    }
}

/// Memory before and after so many downstream connections have carried one request each and fell idle.
pub fn connections(rig: &Rig, idle: Idle, peers: &[Peer], effort: Effort) -> Result<Vec<IdleSubject>> {
    let fitting = rig.file_limit.saturating_sub(OWN_FILES) as usize;
    let pooled = idle == Idle::Pooled;
    // The relay has an upstream connection for each downstream one, and HAProxy reserves a descriptor for it.
    let files_each = |peer: Peer| if pooled || matches!(peer, Peer::Relay | Peer::Haproxy) { 2 } else { 1 };
    let tls = (idle == Idle::Tls).then_some(Key::Ecdsa);
    let shape = |units: usize| Shape { connections: units + STEP, tls, ..Shape::HTTP };
    let peers: Vec<Peer> = peers.iter().copied().filter(|peer| tls.is_none() || peer.can_be(&shape(0))).collect();
    measure(
        &peers,
        effort,
        |peer| IDLE_CONNECTIONS.min(fitting / files_each(peer)),
        |peer, units| {
            let hold = if pooled { units } else { 0 };
            let (origin, origin_port) = start_origin(rig, hold)?;
            let proxy = rig.start_proxy(peer, shape(units), origin_port, PROBE, Wrap::Plain)?;
            let pids = proxy.process.tree();
            let base = memory(&pids);
            // What holds the connections, until the second reading is taken.
            let (_plain, _tls) = match idle {
                Idle::Nothing => (Some(use_in_turn(proxy.port, units)?), None),
                Idle::Pooled => (Some(use_at_once(proxy.port, units)?), None),
                Idle::Tls => (None, Some(use_tls_in_turn(proxy.port, units)?)),
            };
            let full = memory(&pids);
            proxy.finish()?;
            let _ = origin.stop();
            Ok(IdleSample {
                base_rss_kib: base.rss_kib,
                base_pss_kib: base.pss_kib,
                full_rss_kib: full.rss_kib,
                full_pss_kib: full.pss_kib,
                ready_ms: None,
            })
        },
    )
}

/// Open connections, on each of which a request was answered, a few at a time.
fn use_in_turn(port: u16, units: usize) -> Result<Client> {
    let mut client = Client::new(port, PROBE.path, &[])?;
    for first in (0..units).step_by(STEP) {
        let count = STEP.min(units - first);
        client.connect(count)?;
        client.ask(first)?;
        client.collect(count, 0)?;
    }
    Ok(client)
}

/// The same with all requests in flight together.
fn use_at_once(port: u16, units: usize) -> Result<Client> {
    let mut client = Client::new(port, PROBE.path, &[])?;
    for first in (0..units).step_by(STEP) {
        client.connect(STEP.min(units - first))?;
        client.ask(first)?;
    }
    client.collect(units, 0)?;
    Ok(client)
}

/// The same as `use_in_turn` over TLS; the connections live as long as the runtime.
fn use_tls_in_turn(port: u16, units: usize) -> Result<(Vec<TlsClient>, Runtime)> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Error::io("building the clients' runtime"))?;
    let config = Arc::new(believing_client(Resumption::disabled())?);
    let request: Arc<str> = format!("GET {} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n", PROBE.path).into();
    let mut clients = Vec::with_capacity(units);
    while clients.len() < units {
        let mut opening = JoinSet::new();
        runtime.block_on(async {
            for _ in 0..STEP.min(units - clients.len()) {
                let (config, request) = (config.clone(), request.clone());
                opening.spawn(async move {
                    let mut client = TlsClient::open(port, config).await?;
                    client.exchange(request.as_bytes()).await?;
                    Ok::<_, Error>(client)
                });
            }
            while let Some(opened) = opening.join_next().await {
                clients.push(opened.map_err(|error| Error::FailedLoad { detail: error.to_string() })??);
            }
            Ok::<_, Error>(())
        })?;
    }
    Ok((clients, runtime))
}

/// Memory and start time with and without clusters that get no traffic.
pub fn clusters(rig: &Rig, peers: &[Peer], effort: Effort) -> Result<Vec<IdleSubject>> {
    let shape = Shape { idle_clusters: IDLE_CLUSTERS, ..Shape::HTTP };
    let peers: Vec<Peer> = peers.iter().copied().filter(|peer| peer.can_be(&shape)).collect();
    let (origin, origin_port) = start_origin(rig, 0)?;
    let subjects = measure(
        &peers,
        effort,
        |_| IDLE_CLUSTERS,
        |peer, _| {
            let reading = |shape| {
                let proxy = rig.start_proxy(peer, shape, origin_port, PROBE, Wrap::Plain)?;
                let memory = memory(&proxy.process.tree());
                let ready = proxy.ready_after;
                proxy.finish()?;
                Ok::<_, Error>((memory, milliseconds(ready)))
            };
            let (base, base_ready) = reading(Shape::HTTP)?;
            let (full, full_ready) = reading(shape)?;
            Ok(IdleSample {
                base_rss_kib: base.rss_kib,
                base_pss_kib: base.pss_kib,
                full_rss_kib: full.rss_kib,
                full_pss_kib: full.pss_kib,
                ready_ms: Some((base_ready, full_ready)),
            })
        },
    );
    let _ = origin.stop();
    subjects
}

fn measure(
    peers: &[Peer],
    effort: Effort,
    units: impl Fn(Peer) -> usize,
    sample: impl Fn(Peer, usize) -> Result<IdleSample>,
) -> Result<Vec<IdleSubject>> {
    let mut subjects: Vec<IdleSubject> = peers
        .iter()
        .map(|&peer| IdleSubject { peer, units: units(peer), samples: Vec::new(), failure: None })
        .collect();
    for _ in 0..effort.rounds.min(MAX_ROUNDS) {
        for subject in subjects.iter_mut().filter(|subject| subject.failure.is_none()) {
            match sample(subject.peer, subject.units) {
                Ok(sample) => {
                    eprintln!(
                        "  {:<12} {} KiB resident, {} with {} more",
                        subject.peer.name(),
                        sample.base_rss_kib,
                        sample.full_rss_kib,
                        subject.units
                    );
                    subject.samples.push(sample);
                }
                Err(error) => {
                    eprintln!("  {}: {error}", subject.peer.name());
                    subject.failure = Some(error.to_string());
                }
            }
        }
    }
    Ok(subjects)
}

/// The bench's own origin, which answers when so many requests are in flight.
fn start_origin(rig: &Rig, hold: usize) -> Result<(Process, u16)> {
    rig.start_own_origin(&["serve-origin", "--body", &BODY.to_string(), "--hold", &hold.to_string()].map(String::from))
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
