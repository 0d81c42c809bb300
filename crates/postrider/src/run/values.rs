//! The values of the runtime: those that the admin interface brought, and what is counted of all.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use postrider_config_envoy::Runtime;
use postrider_telemetry::stats::sets::runtime::*;
use postrider_telemetry::{Block, WorkerStats};

/// The most keys that the admin interface may bring: they stay until they are taken back or the process ends.
const MAX_OVERRIDES: usize = 10_000;

/// A key and its value; an empty one takes it back.
pub type Change = (String, String);

pub struct Values {
    counts: Rc<Block>,
    overrides: BTreeMap<String, String>,
    /// As it was read last, in force or not.
    seen: Arc<Runtime>,
    /// Some runtime was counted.
    is_counted: Cell<bool>,
}

impl Values {
    pub fn new(stats: &WorkerStats) -> Values {
        let (counts, overrides) = (stats.block(&SET, ""), BTreeMap::new());
        Values { counts, overrides, seen: Arc::default(), is_counted: Cell::new(false) }
    }

    pub fn overrides(&self) -> &BTreeMap<String, String> {
        &self.overrides
    }

    /// What the overrides would be after these changes.
    pub fn changed(&self, changes: Vec<Change>) -> Result<BTreeMap<String, String>, String> {
        let mut overrides = self.overrides.clone();
        for (key, value) in changes {
            if value.is_empty() {
                overrides.remove(&key);
            } else {
                overrides.insert(key, value);
            }
        }
        match overrides.len() {
            ..=MAX_OVERRIDES => Ok(overrides),
            many => Err(format!("{many} keys would be changed, and at most {MAX_OVERRIDES} can be\n")),
        }
    }

    pub fn take(&mut self, overrides: BTreeMap<String, String>) {
        self.counts.gauge_set(ADMIN_OVERRIDES_ACTIVE, u64::from(!overrides.is_empty()));
        self.overrides = overrides;
    }

    pub fn saw(&mut self, runtime: &Arc<Runtime>) {
        self.seen = runtime.clone();
    }

    /// Whether the layers on the disk still say what they said.
    pub fn is_current(&self) -> bool {
        self.seen.is_current()
    }

    /// What to watch because of layers on the disk.
    pub fn watched(&self) -> impl Iterator<Item = PathBuf> + '_ {
        self.seen.watched()
    }

    /// Counts a runtime that is in force from now on.
    pub fn count(&self, runtime: &Runtime) {
        let failed = runtime.failures().any(|reason| reason.is_some());
        // Envoy, when it starts, reads what there is twice.
        let times = if self.is_counted.replace(true) { 1 } else { 2 };
        self.counts.add(if failed { LOAD_ERROR } else { LOAD_SUCCESS }, times);
        // As in Envoy, the second folder is the one that overrides.
        self.counts.add(if runtime.folders() > 1 { OVERRIDE_DIR_EXISTS } else { OVERRIDE_DIR_NOT_EXISTS }, times);
        self.counts.gauge_set(NUM_KEYS, runtime.entries().count() as u64);
        self.counts.gauge_set(NUM_LAYERS, runtime.layers().count() as u64);
    }
}
