//! What a plugin does, counted: per route, and for the plugin as a whole.

use std::cell::{Cell, OnceCell};
use std::rc::Rc;
use std::time::Duration;

use postrider_filter_api::{RouteBlocks, RouteFacts, stat_part};
use postrider_telemetry::{Block, WorkerStats};

/// The counts' names and indices.
pub mod stat {
    postrider_telemetry::stat_set! {
        /// Calls of hooks by outcome; prefix: the plugin, then the route.
        pub mod route = "plugin";
        counters {
            CALLS = "calls",
            ERRORS = "errors",
            CPU_KILLS = "cpu_kills",
            MEMORY_KILLS = "memory_kills",
            BYPASSED = "bypassed",
            CIRCUIT_OPENED = "circuit_opened",
            ALLOCATED_BYTES = "allocated_bytes",
            REFUSED = "refused",
        }
        histograms { TIME = "time_ns" Unspecified }
    }

    postrider_telemetry::stat_set! {
        /// The plugin as a whole; prefix: the plugin.
        pub mod plugin = "plugin";
        counters { RESTARTS = "restarts" }
        gauges { MEMORY_BYTES = "memory_bytes", DEAD_WORKERS = "dead_workers" }
        flags { CIRCUIT_OPEN = "circuit_open" }
    }
}

/// The counts of one plugin on one worker.
#[derive(Debug)]
pub struct Account {
    stats: WorkerStats,
    plugin: String,
    whole: OnceCell<Rc<Block>>,
    routes: RouteBlocks,
    /// What this account added to the gauge.
    memory: Cell<u64>,
    circuit_open: Cell<bool>,
    dead: Cell<bool>,
}

impl Account {
    pub fn new(stats: &WorkerStats, plugin: &str) -> Account {
        let plugin = stat_part(plugin);
        Account {
            stats: stats.clone(),
            routes: RouteBlocks::new(stats, &stat::route::SET, plugin.clone()),
            plugin,
            whole: OnceCell::new(),
            memory: Cell::new(0),
            circuit_open: Cell::new(false),
            dead: Cell::new(false),
        }
    }

    /// Where calls on this route are counted: set [`stat::route`].
    pub fn of(&self, route: Option<&RouteFacts>) -> Rc<Block> {
        self.routes.of(route)
    }

    /// Where calls are counted that belong to no route, under a name of their own in its place: set [`stat::route`].
    pub fn beside(&self, name: &str) -> Rc<Block> {
        self.stats.block(&stat::route::SET, &format!("{}.{}", self.plugin, stat_part(name)))
    }

    /// A call on this route ended, and took so long if that was measured.
    #[inline]
    pub fn called(&self, route: Option<&RouteFacts>, took: Option<Duration>) {
        self.routes.count(route, |block| block.inc(stat::route::CALLS));
        if let Some(took) = took {
            self.took(route, took);
        }
    }

    /// Measured calls on this route, and those that they stand for, took so much memory of the plugin's machine, whatever
    /// became of it.
    #[inline(never)]
    pub fn allocated(&self, route: Option<&RouteFacts>, bytes: u64) {
        self.routes.count(route, |block| block.add(stat::route::ALLOCATED_BYTES, bytes));
    }

    #[inline(never)]
    fn took(&self, route: Option<&RouteFacts>, took: Duration) {
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.routes.count(route, |block| block.record(stat::route::TIME, nanoseconds));
    }

    /// What this worker's virtual machine of the plugin takes now.
    pub fn set_memory(&self, bytes: usize) {
        let bytes = bytes as u64;
        // Added, not set: another chain may have the plugin on this worker, too.
        self.whole().gauge_add(stat::plugin::MEMORY_BYTES, bytes.wrapping_sub(self.memory.replace(bytes)));
    }

    /// Whether the plugin's circuit is open on this worker; answers whether that is news.
    pub fn set_circuit_open(&self, open: bool) -> bool {
        if self.circuit_open.replace(open) == open {
            return false;
        }
        // Added, as memory is: the one that replaced this plugin may have opened its own meanwhile.
        self.whole().gauge_add(stat::plugin::CIRCUIT_OPEN, if open { 1 } else { 1_u64.wrapping_neg() });
        true
    }

    /// Whether the plugin's machine failed on this worker and is not made again yet.
    pub fn set_dead(&self, dead: bool) {
        if self.dead.replace(dead) != dead {
            self.whole().gauge_add(stat::plugin::DEAD_WORKERS, if dead { 1 } else { 1_u64.wrapping_neg() });
        }
    }

    /// The process that it runs in was started anew.
    pub fn restarted(&self) {
        self.whole().inc(stat::plugin::RESTARTS);
    }

    fn whole(&self) -> &Block {
        self.whole.get_or_init(|| self.stats.block(&stat::plugin::SET, &self.plugin))
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        if self.memory.get() != 0 {
            self.set_memory(0);
        }
        self.set_circuit_open(false);
        self.set_dead(false);
    }
}

#[cfg(test)]
mod tests {
    use postrider_telemetry::Registry;

    use super::*;

    fn scopes(registry: &Registry) -> Vec<(String, u64)> {
        registry.read(&[]).iter().map(|scope| (scope.set.scope_name(&scope.prefix), scope.cell(1))).collect()
    }

    #[test]
    fn memory_adds_up_over_accounts_and_goes_with_them() {
        let registry = Registry::new();
        let worker = registry.worker(0);
        let (one, other) = (Account::new(&worker, "p"), Account::new(&worker, "p"));
        one.set_memory(100);
        other.set_memory(10);
        one.set_memory(50);
        assert_eq!(scopes(&registry), [("plugin.p.".to_owned(), 60)]);
        drop(one);
        assert_eq!(scopes(&registry), [("plugin.p.".to_owned(), 10)]);
    }

    #[test]
    fn an_open_circuit_goes_with_its_account() {
        let registry = Registry::new();
        let worker = registry.worker(0);
        let (old, new) = (Account::new(&worker, "p"), Account::new(&worker, "p"));
        let shown = || registry.read(&[]).iter().map(|scope| scope.cell(3)).max().unwrap_or(0);
        assert!(old.set_circuit_open(true) && !old.set_circuit_open(true), "told once");
        assert_eq!(shown(), 1);
        assert!(new.set_circuit_open(true));
        drop(old);
        assert_eq!(shown(), 1, "the other's is open");
        assert!(new.set_circuit_open(false));
        assert_eq!(shown(), 0);
        assert!(!new.set_circuit_open(false));
    }

    #[test]
    fn a_machine_that_failed_goes_with_its_account() {
        let registry = Registry::new();
        let worker = registry.worker(0);
        let (one, other) = (Account::new(&worker, "p"), Account::new(&worker, "p"));
        let shown = || registry.read(&[]).iter().map(|scope| scope.cell(2)).max().unwrap_or(0);
        for account in [&one, &one, &other] {
            account.set_dead(true);
        }
        assert_eq!(shown(), 2);
        drop(other);
        assert_eq!(shown(), 1);
        one.set_dead(false);
        assert_eq!(shown(), 0);
    }
}
