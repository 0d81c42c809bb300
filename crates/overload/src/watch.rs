//! The thread that measures.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use postrider_model::{OverloadKind, OverloadRules};
use postrider_telemetry::stats::sets::{load_shed, overload, overload_action, overload_resource, overload_shrink};
use postrider_telemetry::{Block, Registry, WorkerStats, info, warning};
use postrider_worker::{Fleet, Relief, Strain};

use crate::monitor::Monitor;
use crate::rules::{Pressures, strain, strength};

/// Statistics of control threads are nobody's worker.
const NO_WORKER: u32 = u32::MAX;

/// The thread is told to stop once.
const STOPS: usize = 1;

/// Follows the rules of the configuration in force.
pub struct Overload {
    fleet: Arc<Fleet>,
    registry: Registry,
    running: Option<Running>,
}

struct Running {
    rules: Arc<OverloadRules>,
    stop: mpsc::SyncSender<()>,
    thread: Option<JoinHandle<()>>,
}

impl Overload {
    pub fn new(fleet: Arc<Fleet>, registry: Registry) -> Overload {
        Overload { fleet, registry, running: None }
    }

    /// Rules that did not change leave the thread at its work. Without rules nothing is measured or done. Comes back when the
    /// workers have been told of the new rules, so that whatever they are told next finds them known.
    pub fn follow(&mut self, wanted: Option<Arc<OverloadRules>>) {
        if self.running.as_ref().map(|running| &running.rules) == wanted.as_ref() {
            return;
        }
        self.running = None;
        let Some(rules) = wanted else {
            // Workers that are too busy to hear of it now are told by the next rules.
            self.fleet.strain(&Arc::default());
            return;
        };
        let (stop, stopped) = mpsc::sync_channel(STOPS);
        let (tell, told) = mpsc::sync_channel(1);
        let (fleet, registry, of_thread) = (self.fleet.clone(), self.registry.clone(), rules.clone());
        let watch = move || Watch::new(&of_thread, fleet, &registry).run(&tell, &stopped);
        match std::thread::Builder::new().name("overload".to_owned()).spawn(watch) {
            Ok(thread) => {
                self.running = Some(Running { rules, stop, thread: Some(thread) });
                // An error is a thread that has ended: then nobody measures, and traffic goes on.
                let _ = told.recv();
            }
            Err(error) => warning!(Main, "no thread to watch for overload: {error}"),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A thread that has ended hears nothing and is joined all the same.
        let _ = self.stop.send(());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Watch<'r> {
    rules: &'r OverloadRules,
    fleet: Arc<Fleet>,
    monitors: Vec<Watched>,
    stats: WorkerStats,
    actions: Vec<Rc<Block>>,
    points: Vec<Rc<Block>>,
    bound: Option<Rc<Block>>,
    /// What the workers were told last, and whether all of them heard it.
    told: (Arc<Strain>, bool),
    /// Names of the actions under way.
    active: Vec<&'r str>,
    released: Option<Instant>,
}

struct Watched {
    monitor: Monitor,
    stats: Rc<Block>,
    failing: bool,
}

impl<'r> Watch<'r> {
    fn new(rules: &'r OverloadRules, fleet: Arc<Fleet>, registry: &Registry) -> Watch<'r> {
        let stats = registry.worker(NO_WORKER);
        let watched = |monitor: &postrider_model::ResourceMonitor| Watched {
            monitor: Monitor::new(&monitor.resource),
            stats: stats.block(&overload_resource::SET, &monitor.name),
            failing: false,
        };
        let monitors = rules.monitors.iter().map(watched).collect();
        let actions = rules.actions.iter().map(|action| stats.block(&overload_action::SET, &action.name)).collect();
        let points = rules.points.iter().map(|point| stats.block(&load_shed::SET, &point.name)).collect();
        let bound = rules.max_connections.as_ref().map(|bound| stats.block(&overload_resource::SET, &bound.name));
        let told = (Arc::default(), false);
        Watch { rules, fleet, monitors, stats, actions, points, bound, told, active: Vec::new(), released: None }
    }

    fn run(mut self, told: &mpsc::SyncSender<()>, stopped: &mpsc::Receiver<()>) {
        let mut pressures = Pressures::new();
        let rounds = self.stats.block(&overload::SET, "");
        let mut last: Option<Instant> = None;
        loop {
            let now = Instant::now();
            if let Some(last) = last.replace(now) {
                let between = now.duration_since(last).as_millis();
                rounds.record(overload::REFRESH_INTERVAL_DELAY, between.try_into().unwrap_or(u64::MAX));
            }
            self.measure(&mut pressures);
            self.tell(&pressures);
            // Heard of the first time.
            let _ = told.try_send(());
            self.act(&pressures);
            match stopped.recv_timeout(self.rules.interval) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// A monitor that fails leaves its pressure as it was.
    fn measure(&mut self, pressures: &mut Pressures) {
        for (watched, rule) in self.monitors.iter_mut().zip(&self.rules.monitors) {
            match watched.monitor.measure() {
                Ok(pressure) => {
                    watched.failing = false;
                    watched.stats.gauge_set(overload_resource::PRESSURE, percent(pressure));
                    pressures.insert(rule.name.clone(), pressure);
                }
                Err(error) => {
                    watched.stats.inc(overload_resource::FAILED_UPDATES);
                    if !std::mem::replace(&mut watched.failing, true) {
                        warning!(Main, "{} cannot be measured: {error}", rule.name);
                    }
                }
            }
        }
        if let (Some(stats), Some(bound)) = (&self.bound, &self.rules.max_connections) {
            let share = self.fleet.connections() as f64 / bound.most.max(1) as f64;
            stats.gauge_set(overload_resource::PRESSURE, percent(share));
        }
    }

    fn tell(&mut self, pressures: &Pressures) {
        let now = strain(self.rules, pressures);
        if *self.told.0 != now || !self.told.1 {
            let now = Arc::new(now);
            let heard = self.fleet.strain(&now);
            self.told = (now, heard);
        }
    }

    /// Counts, logs, and does what is not for the workers to do.
    fn act(&mut self, pressures: &Pressures) {
        for (point, stats) in self.rules.points.iter().zip(&self.points) {
            stats.gauge_set(load_shed::SCALE_PERCENT, scale(strength(&point.triggers, pressures)));
        }
        for (action, stats) in self.rules.actions.iter().zip(&self.actions) {
            let strength = strength(&action.triggers, pressures);
            stats.gauge_set(overload_action::SCALE_PERCENT, scale(strength));
            stats.gauge_set(overload_action::ACTIVE, u64::from(strength >= 1.0));
            let known = self.active.iter().position(|name| *name == action.name);
            match known {
                None if strength > 0.0 => {
                    self.active.push(&action.name);
                    warning!(Main, "overload: {} begins ({})", action.name, shown(self.rules, pressures));
                }
                Some(index) if strength <= 0.0 => {
                    self.active.swap_remove(index);
                    info!(Main, "overload: {} is over ({})", action.name, shown(self.rules, pressures));
                }
                _ => {}
            }
            if let OverloadKind::ResetStreams { least_power } = action.kind
                && strength > 0.0
            {
                self.fleet.relieve(&Relief { action: action.name.as_str().into(), least_power, strength });
            }
            if let OverloadKind::ReleaseMemory { interval } = action.kind
                && strength >= 1.0
                && self.released.is_none_or(|last| last.elapsed() >= interval.max(Duration::from_millis(1)))
            {
                postrider_sys::release_free_memory();
                self.released = Some(Instant::now());
                self.stats.block(&overload_shrink::SET, &action.name).inc(overload_shrink::SHRINK_COUNT);
            }
        }
    }
}

/// In Envoy's precision: a quarter is 25 %, and not just below.
fn scale(strength: f64) -> u64 {
    (strength as f32 * 100.0) as u64
}

fn percent(share: f64) -> u64 {
    (share * 100.0) as u64
}

fn shown(rules: &OverloadRules, pressures: &HashMap<String, f64>) -> String {
    let known = rules.monitors.iter().filter_map(|monitor| Some((&monitor.name, pressures.get(&monitor.name)?)));
    known.map(|(name, pressure)| format!("{name} at {:.0} %", pressure * 100.0)).collect::<Vec<_>>().join(", ")
}
