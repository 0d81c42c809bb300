//! An allocator that counts, for tests which hold that a path allocates nothing.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The system's allocator; counts how often memory was asked for, on all threads.
#[derive(Debug, Default)]
pub struct CountingAllocator(AtomicU64);

impl CountingAllocator {
    pub const fn new() -> CountingAllocator {
        CountingAllocator(AtomicU64::new(0))
    }

    /// Allocations and reallocations until now.
    pub fn count(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

// SAFETY: every call is passed to the system's allocator unchanged; counting touches nothing but a counter.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.0.fetch_add(1, Relaxed);
        // SAFETY: the caller upholds the contract of `alloc`, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        self.0.fetch_add(1, Relaxed);
        // SAFETY: as above, for `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        self.0.fetch_add(1, Relaxed);
        // SAFETY: as above, for `realloc`.
        unsafe { System.realloc(memory, layout, size) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as above, for `dealloc`.
        unsafe { System.dealloc(memory, layout) }
    }
}
