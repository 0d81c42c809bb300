//! What a plugin does, counted: per route, and for the plugin as a whole.

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use postrider_filter_api::RouteFacts;
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
        }
        histograms { TIME = "time_ns" Unspecified }
    }

    postrider_telemetry::stat_set! {
        /// The plugin as a whole; prefix: the plugin.
        pub mod plugin = "plugin";
        gauges { MEMORY_BYTES = "memory_bytes" }
        flags { CIRCUIT_OPEN = "circuit_open" }
    }
}

/// What stands in place of a route where no route matched.
const UNROUTED: &str = "_unrouted_";

/// The counts of one plugin on one worker. Blocks are made when a route's first call is counted and found again without
/// allocation.
#[derive(Debug)]
pub struct Account {
    stats: WorkerStats,
    plugin: String,
    whole: OnceCell<Rc<Block>>,
    unrouted: OnceCell<Rc<Block>>,
    /// By the route's index in its table.
    routes: RefCell<Vec<Option<Entry>>>,
    /// What this account added to the gauge.
    memory: Cell<u64>,
}

/// The block of a route, and which route that was: another table may have another one at the same index.
#[derive(Debug)]
struct Entry {
    name: Option<Arc<str>>,
    virtual_host: Arc<str>,
    block: Rc<Block>,
}

impl Account {
    pub fn new(stats: &WorkerStats, plugin: &str) -> Account {
        Account {
            stats: stats.clone(),
            plugin: sanitised(plugin),
            whole: OnceCell::new(),
            unrouted: OnceCell::new(),
            routes: RefCell::default(),
            memory: Cell::new(0),
        }
    }

    /// Where calls on this route are counted: set [`stat::route`].
    pub fn of(&self, route: Option<&RouteFacts>) -> Rc<Block> {
        let Some(route) = route else {
            return Rc::clone(self.unrouted.get_or_init(|| self.block(UNROUTED)));
        };
        let index = route.index as usize;
        if let Some(Some(entry)) = self.routes.borrow().get(index)
            && entry.is_of(route)
        {
            return Rc::clone(&entry.block);
        }
        let block = match route.name.as_deref() {
            Some(name) if !name.is_empty() => self.block(name),
            _ => self.block(&format!("{}.{}", route.virtual_host, route.index)),
        };
        let entry =
            Entry { name: route.name.clone(), virtual_host: Arc::clone(&route.virtual_host), block: Rc::clone(&block) };
        let mut routes = self.routes.borrow_mut();
        if routes.len() <= index {
            routes.resize_with(index + 1, || None);
        }
        if let Some(slot) = routes.get_mut(index) {
            *slot = Some(entry);
        }
        block
    }

    /// A call on this route ended, and took so long if that was measured.
    #[inline]
    pub fn called(&self, route: Option<&RouteFacts>, took: Option<Duration>) {
        let count = |block: &Block| {
            block.inc(stat::route::CALLS);
            if let Some(took) = took {
                block.record(stat::route::TIME, u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
            }
        };
        if let Some(route) = route
            && let Some(Some(entry)) = self.routes.borrow().get(route.index as usize)
            && entry.is_of(route)
        {
            return count(&entry.block);
        }
        count(&self.of(route));
    }

    /// What this worker's virtual machine of the plugin takes now.
    pub fn set_memory(&self, bytes: usize) {
        let bytes = bytes as u64;
        // Added, not set: another chain may have the plugin on this worker, too.
        self.whole().gauge_add(stat::plugin::MEMORY_BYTES, bytes.wrapping_sub(self.memory.replace(bytes)));
    }

    /// Whether the plugin's circuit is open on this worker.
    pub fn set_circuit_open(&self, open: bool) {
        self.whole().gauge_set(stat::plugin::CIRCUIT_OPEN, u64::from(open));
    }

    fn whole(&self) -> &Block {
        self.whole.get_or_init(|| self.stats.block(&stat::plugin::SET, &self.plugin))
    }

    fn block(&self, route: &str) -> Rc<Block> {
        self.stats.block(&stat::route::SET, &format!("{}.{}", self.plugin, sanitised(route)))
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        if self.memory.get() != 0 {
            self.set_memory(0);
        }
    }
}

impl Entry {
    #[inline]
    fn is_of(&self, route: &RouteFacts) -> bool {
        let same = |a: &Arc<str>, b: &Arc<str>| Arc::ptr_eq(a, b) || a == b;
        let named = match (&self.name, &route.name) {
            (Some(a), Some(b)) => same(a, b),
            (None, None) => true,
            _ => false,
        };
        named && same(&self.virtual_host, &route.virtual_host)
    }
}

/// A name as a part of a statistic's name: `://`, `:/`, `:` and NUL each become `_`.
fn sanitised(name: &str) -> String {
    name.replace("://", "_").replace(":/", "_").replace([':', '\0'], "_")
}

#[cfg(test)]
mod tests {
    use postrider_telemetry::Registry;

    use super::*;

    fn route(index: u32, name: Option<&str>, host: &str) -> RouteFacts {
        RouteFacts { index, name: name.map(Into::into), virtual_host: host.into(), ..RouteFacts::default() }
    }

    fn scopes(registry: &Registry) -> Vec<(String, u64)> {
        registry.read(&[]).iter().map(|scope| (scope.set.scope_name(&scope.prefix), scope.cell(0))).collect()
    }

    #[test]
    fn each_route_has_its_counts_under_its_name() {
        let registry = Registry::new();
        let account = Account::new(&registry.worker(0), "my:plugin");
        account.called(None, None);
        for facts in [route(3, Some("buy"), "shop"), route(0, None, "http://shop"), route(3, Some("buy"), "shop")] {
            account.called(Some(&facts), None);
        }
        let wanted =
            [("plugin.my_plugin._unrouted_.", 1), ("plugin.my_plugin.buy.", 2), ("plugin.my_plugin.http_shop.0.", 1)];
        assert_eq!(scopes(&registry), wanted.map(|(name, count)| (name.to_owned(), count)));
    }

    #[test]
    fn a_route_is_found_again_and_not_taken_for_its_successor() {
        let registry = Registry::new();
        let account = Account::new(&registry.worker(0), "p");
        let facts = route(1, Some("a"), "h");
        let block = account.of(Some(&facts));
        assert!(Rc::ptr_eq(&block, &account.of(Some(&facts))));
        assert!(Rc::ptr_eq(&block, &account.of(Some(&route(1, Some("a"), "h")))), "the same one of a reloaded table");
        assert_eq!(account.of(Some(&route(1, Some("b"), "h"))).prefix(), "p.b");
        assert_eq!(account.of(Some(&route(1, None, "h"))).prefix(), "p.h.1");
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
        other.set_circuit_open(true);
        assert_eq!(scopes(&registry), [("plugin.p.".to_owned(), 10)]);
        assert_eq!(registry.read(&[])[0].cell(1), 1);
    }
}
