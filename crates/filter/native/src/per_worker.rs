//! What a worker keeps for a filter, whichever of its routes asks.

use std::rc::{Rc, Weak};
use std::sync::atomic::{AtomicU64, Ordering};

/// Tells filters of one kind and its configurations apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FilterNumber(u64);

impl FilterNumber {
    /// One that no filter has.
    pub(crate) fn next() -> FilterNumber {
        static LAST: AtomicU64 = AtomicU64::new(0);
        FilterNumber(LAST.fetch_add(1, Ordering::Relaxed))
    }
}

/// Of one worker, for all filters of a kind: each has one `T` as long as some route of it lives.
pub(crate) struct PerFilter<T>(Vec<(FilterNumber, Weak<T>)>);

impl<T> PerFilter<T> {
    pub(crate) const fn new() -> PerFilter<T> {
        PerFilter(Vec::new())
    }

    /// That of the filter with this number.
    pub(crate) fn of(&mut self, filter: FilterNumber, make: impl FnOnce() -> T) -> Rc<T> {
        self.0.retain(|(_, kept)| kept.strong_count() > 0);
        let known = self.0.iter().find(|(number, _)| *number == filter);
        if let Some(kept) = known.and_then(|(_, kept)| kept.upgrade()) {
            return kept;
        }
        let made = Rc::new(make());
        self.0.push((filter, Rc::downgrade(&made)));
        made
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_filter_has_its_own_as_long_as_somebody_has_it() {
        let mut kept = PerFilter::new();
        let (one, other) = (FilterNumber::next(), FilterNumber::next());
        let first = kept.of(one, || 1);
        assert!(Rc::ptr_eq(&first, &kept.of(one, || 2)));
        assert_eq!(*kept.of(other, || 3), 3);
        drop(first);
        assert_eq!(*kept.of(one, || 4), 4);
    }
}
