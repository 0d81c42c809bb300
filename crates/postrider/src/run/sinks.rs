//! Sends statistics to the sinks of the configuration in force.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use postrider_admin::Control;
use postrider_model::{self as model, StatsSink, StatsSinks};
use postrider_telemetry::error;
use postrider_telemetry::render::{BoundsOf, NameFilter};
use postrider_telemetry::samples::Ledger;
use postrider_telemetry::sink::{Flusher, Reading, Sink, Statsd, StatsdAddress, StatsdOptions, StatsdTags};

use super::state::State;

/// The sinks in force, and the thread that serves them.
#[derive(Default)]
pub struct Sinks {
    running: Mutex<Running>,
}

#[derive(Default)]
struct Running {
    wanted: Option<Arc<StatsSinks>>,
    flusher: Option<Flusher>,
    /// What was told so far, while no thread has it.
    ledger: Ledger,
}

impl Sinks {
    /// Serves these sinks from now on, and no others. The old ones are told the last of it.
    pub fn follow(&self, wanted: Option<Arc<StatsSinks>>, state: &Arc<State>) {
        let mut running = self.lock();
        if running.wanted == wanted {
            return;
        }
        if let Some(flusher) = running.flusher.take() {
            running.ledger = flusher.stop();
        }
        running.wanted.clone_from(&wanted);
        let Some(wanted) = wanted else { return };
        let ledger = std::mem::take(&mut running.ledger);
        match start(&wanted, ledger, state) {
            Ok(flusher) => running.flusher = Some(flusher),
            Err(error) => error!(Main, "statistics cannot be sent: {error}"),
        }
    }

    /// The admin was asked for statistics.
    pub fn asked(&self) {
        let running = self.lock();
        if running.wanted.as_ref().is_some_and(|wanted| wanted.interval.is_none()) {
            running.flusher.iter().for_each(Flusher::flush);
        }
    }

    /// Sends what is left, and nothing more.
    pub fn stop(&self) {
        let flusher = self.lock().flusher.take();
        drop(flusher);
    }

    fn lock(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn start(wanted: &StatsSinks, ledger: Ledger, state: &Arc<State>) -> io::Result<Flusher> {
    let sink = |sink: &StatsSink| -> io::Result<Option<Box<dyn Sink>>> {
        let StatsSink::Statsd { address, prefix, tags, datagram_bytes } = sink else {
            return Ok(state.fleet.sink(sink, state.started()));
        };
        let tags = match tags {
            model::StatsdTags::InName => StatsdTags::InName,
            model::StatsdTags::BehindValue => StatsdTags::BehindValue,
            model::StatsdTags::BehindName => StatsdTags::BehindName,
        };
        let address = match address {
            model::Address::Tcp(address) => StatsdAddress::Udp(*address),
            model::Address::Unix { path, .. } => StatsdAddress::Unix(path.clone()),
        };
        let options = StatsdOptions { address, prefix: prefix.clone(), tags, datagram_bytes: *datagram_bytes };
        Ok(Some(Box::new(Statsd::new(options)?)))
    };
    let sinks = wanted.sinks.iter().filter_map(|model| sink(model).transpose()).collect::<io::Result<Vec<_>>>()?;
    // The state owns the thread.
    let of_thread: Weak<State> = Arc::downgrade(state);
    let read = move || of_thread.upgrade().map(|state| reading(&state)).unwrap_or_default();
    Flusher::start(&state.registry, wanted.interval, sinks, ledger, read)
}

/// All there is now, as the configuration in force wants it told.
fn reading(state: &State) -> Reading {
    let rules = state.stats_rules();
    let tagger = postrider_admin::tagger(rules.as_deref());
    let own = rules.clone().filter(|rules| !rules.buckets.is_empty());
    let bounds = own.map(|rules| Box::new(move |name: &str| rules.bounds(name)) as BoundsOf);
    let filter =
        rules.filter(|rules| rules.hides()).map(|rules| Box::new(move |name: &str| rules.shows(name)) as NameFilter);
    Reading { values: postrider_admin::statistics(state), filter, tagger, bounds }
}
