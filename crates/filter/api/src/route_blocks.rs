//! One block of counts per route: found again for each call without allocation.

use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::rc::Rc;
use std::sync::Arc;

use postrider_telemetry::{Block, StatSet, WorkerStats};

use crate::RouteFacts;

/// What stands in place of a route where no route matched.
const UNROUTED: &str = "_unrouted_";

/// Routes with a smaller index have a place in a list: a few kilobytes at most, and found without a search.
const LISTED: u32 = 256;

/// The counts of one worker, by route. Blocks are made when a route's first call is counted.
#[derive(Debug)]
pub struct RouteBlocks {
    stats: WorkerStats,
    set: &'static StatSet,
    /// What the names begin with, in front of the route's.
    prefix: String,
    unrouted: OnceCell<Rc<Block>>,
    /// By the route's index in its table.
    listed: RefCell<Vec<Option<Entry>>>,
    /// The others. Most filters see few of a large table's routes.
    routes: RefCell<HashMap<u32, Entry, BuildHasherDefault<IndexHasher>>>,
}

/// Spreads small numbers that nobody outside chooses.
#[derive(Debug, Default)]
struct IndexHasher(u64);

impl Hasher for IndexHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u32((*byte).into()));
    }

    #[inline]
    fn write_u32(&mut self, index: u32) {
        self.0 = (self.0 ^ u64::from(index)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    #[inline]
    fn finish(&self) -> u64 {
        // The table takes its bits from both ends.
        self.0 ^ self.0 >> 32
    }
}

/// The block of a route, and which route that was: another table may have another one at the same index.
#[derive(Debug)]
struct Entry {
    name: Option<Arc<str>>,
    virtual_host: Arc<str>,
    block: Rc<Block>,
}

impl RouteBlocks {
    /// Counts of `set` under `<prefix>.<route>`.
    pub fn new(stats: &WorkerStats, set: &'static StatSet, prefix: String) -> RouteBlocks {
        RouteBlocks {
            stats: stats.clone(),
            set,
            prefix,
            unrouted: OnceCell::new(),
            listed: RefCell::default(),
            routes: RefCell::default(),
        }
    }

    /// Where calls on this route are counted.
    #[inline(never)]
    pub fn of(&self, route: Option<&RouteFacts>) -> Rc<Block> {
        let Some(route) = route else {
            return Rc::clone(self.unrouted.get_or_init(|| self.block(UNROUTED)));
        };
        if let Some(Some(entry)) = self.listed.borrow().get(route.index as usize)
            && entry.is_of(route)
        {
            return Rc::clone(&entry.block);
        }
        if let Some(entry) = self.routes.borrow().get(&route.index)
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
        if route.index < LISTED {
            let mut listed = self.listed.borrow_mut();
            let at = route.index as usize;
            if listed.len() <= at {
                listed.resize_with(at + 1, || None);
            }
            if let Some(place) = listed.get_mut(at) {
                *place = Some(entry);
            }
        } else {
            self.routes.borrow_mut().insert(route.index, entry);
        }
        block
    }

    /// Counts something of a call on this route.
    #[inline]
    pub fn count(&self, route: Option<&RouteFacts>, count: impl FnOnce(&Block)) {
        if let Some(route) = route
            && let Some(Some(entry)) = self.listed.borrow().get(route.index as usize)
            && entry.is_of_this(route)
        {
            return count(&entry.block);
        }
        count(&self.of(route));
    }

    fn block(&self, route: &str) -> Rc<Block> {
        self.stats.block(self.set, &format!("{}.{}", self.prefix, stat_part(route)))
    }
}

impl Entry {
    /// Whether it was made for this very route, by its texts' addresses: they are kept, so no other text has those.
    #[inline]
    fn is_of_this(&self, route: &RouteFacts) -> bool {
        let address = |text: &Arc<str>| Arc::as_ptr(text).cast::<u8>();
        address(&self.virtual_host) == address(&route.virtual_host)
            && self.name.as_ref().map(address) == route.name.as_ref().map(address)
    }

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
pub fn stat_part(name: &str) -> String {
    name.replace("://", "_").replace(":/", "_").replace([':', '\0'], "_")
}

#[cfg(test)]
mod tests {
    use postrider_telemetry::Registry;

    use super::*;

    postrider_telemetry::stat_set! {
        pub mod counted = "counted";
        counters { CALLS = "calls" }
    }

    fn route(index: u32, name: Option<&str>, host: &str) -> RouteFacts {
        RouteFacts { index, name: name.map(Into::into), virtual_host: host.into(), ..RouteFacts::default() }
    }

    #[test]
    fn each_route_has_its_counts_under_its_name() {
        let registry = Registry::new();
        let blocks = RouteBlocks::new(&registry.worker(0), &counted::SET, "it".to_owned());
        let call = |route: Option<&RouteFacts>| blocks.count(route, |block| block.inc(counted::CALLS));
        call(None);
        for facts in [route(3, Some("buy"), "shop"), route(0, None, "http://shop"), route(3, Some("buy"), "shop")] {
            call(Some(&facts));
        }
        let counts = registry.read(&[]);
        let counts: Vec<_> = counts.iter().map(|scope| (scope.prefix.as_str(), scope.cell(0))).collect();
        assert_eq!(counts, [("it._unrouted_", 1), ("it.buy", 2), ("it.http_shop.0", 1)]);
    }

    #[test]
    fn a_route_is_found_again_and_not_taken_for_its_successor() {
        let registry = Registry::new();
        let blocks = RouteBlocks::new(&registry.worker(0), &counted::SET, "p".to_owned());
        let facts = route(1, Some("a"), "h");
        let block = blocks.of(Some(&facts));
        assert!(Rc::ptr_eq(&block, &blocks.of(Some(&facts))));
        assert!(Rc::ptr_eq(&block, &blocks.of(Some(&route(1, Some("a"), "h")))), "the same one of a reloaded table");
        assert_eq!(blocks.of(Some(&route(1, Some("b"), "h"))).prefix(), "p.b");
        assert_eq!(blocks.of(Some(&route(1, None, "h"))).prefix(), "p.h.1");
    }

    #[test]
    fn the_last_listed_route_and_those_behind_it_are_found_again() {
        let registry = Registry::new();
        let blocks = RouteBlocks::new(&registry.worker(0), &counted::SET, "p".to_owned());
        for index in [LISTED - 1, LISTED, u32::MAX, 0] {
            let facts = route(index, None, "h");
            let block = blocks.of(Some(&facts));
            assert_eq!(block.prefix(), format!("p.h.{index}"));
            blocks.count(Some(&facts), |counted| assert!(std::ptr::eq(counted, &raw const *block)));
        }
        assert_eq!((blocks.listed.borrow().len(), blocks.routes.borrow().len()), (LISTED as usize, 2));
    }
}
