//! Allocators that count: for tests which hold that a path allocates nothing, and for what filters cost.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
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

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// How often the calling thread has asked [`Accounted`] for memory. Stays 0 in a program that has another allocator.
#[inline]
pub fn allocations() -> u64 {
    ALLOCATIONS.get()
}

/// Another allocator, which counts by thread how often it is asked.
#[derive(Debug, Default)]
pub struct Accounted<A>(pub A);

#[inline(always)]
fn note() {
    // Without a destructor, and never borrowed: it can be reached as long as the thread lives.
    ALLOCATIONS.set(ALLOCATIONS.get().wrapping_add(1));
}

// SAFETY: every call is passed on unchanged; counting touches nothing but a number of the thread.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Accounted<A> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note();
        // SAFETY: the caller upholds the contract of `alloc`, which is the same.
        unsafe { self.0.alloc(layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note();
        // SAFETY: as above, for `alloc_zeroed`.
        unsafe { self.0.alloc_zeroed(layout) }
    }

    #[inline]
    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note();
        // SAFETY: as above, for `realloc`.
        unsafe { self.0.realloc(memory, layout, size) }
    }

    #[inline]
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as above, for `dealloc`.
        unsafe { self.0.dealloc(memory, layout) }
    }
}
