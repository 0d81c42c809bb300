//! The memory of one machine: counted, capped, and quick for small things.
//!
//! Scripts live on small objects that the collector frees by thousands; the process's allocator keeps such piles in
//! order at a price that exceeds that of the calls which made them. So blocks of up to [`SMALL`] bytes are carved from
//! slabs, and wait in lists by their size until they are wanted again. Slabs are given back with the machine.

use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::ptr;
use std::rc::{Rc, Weak};

use self::hash_parts::HashParts;
use crate::abi::is_deep;

mod hash_parts;

/// The largest block that comes from a slab.
const SMALL: usize = 512;

/// Sizes of small blocks are multiples of this, which is also how blocks are aligned.
const GRAIN: usize = 16;

const CLASSES: usize = SMALL / GRAIN;

/// Large enough that slabs are few, small beside what a machine needs to begin with.
const SLAB: usize = 64 * 1024;

/// What grows from this size on may be the stack of a coroutine in which functions of C and scripts call each other by hundreds. An
/// error's way out of them takes LuaJIT the square of their number, and nothing stops that: so they do not become many more.
const LONG_STACK: usize = 48 * 1024;

/// What the machine holds, and may hold.
pub(crate) struct Heap {
    used: Cell<usize>,
    /// All that was ever taken; only grows.
    taken: Cell<u64>,
    limit: usize,
    /// The cap binds scripts only.
    capped: Cell<bool>,
    /// It was hit since the machine was last entered.
    exhausted: Cell<bool>,
    /// The next block that a script asks for is refused.
    refuses: Cell<bool>,
    /// A block was refused that would have let functions call each other even deeper; until that was told.
    too_deep: Cell<bool>,
    hash_parts: HashParts,
    /// A table was not let grow whose keys collide; until that was told.
    keys_collide: Cell<bool>,
    /// Blocks that wait, by class.
    idle: [Cell<*mut Idle>; CLASSES],
    /// What is left of the last slab.
    rest: Cell<*mut u8>,
    rest_length: Cell<usize>,
    slabs: RefCell<Vec<*mut c_void>>,
}

/// A block that waits, and holds the next one.
struct Idle {
    next: *mut Idle,
}

impl Heap {
    pub(crate) fn new(limit: usize) -> Heap {
        Heap {
            used: Cell::new(0),
            taken: Cell::new(0),
            limit,
            capped: Cell::new(false),
            exhausted: Cell::new(false),
            refuses: Cell::new(false),
            too_deep: Cell::new(false),
            hash_parts: HashParts::default(),
            keys_collide: Cell::new(false),
            idle: [const { Cell::new(ptr::null_mut()) }; CLASSES],
            rest: Cell::new(ptr::null_mut()),
            rest_length: Cell::new(0),
            slabs: RefCell::default(),
        }
    }

    pub(crate) fn used(&self) -> usize {
        self.used.get()
    }

    /// Bytes that were taken so far, whatever became of them.
    pub(crate) fn taken(&self) -> u64 {
        self.taken.get()
    }

    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// A script begins to run: from here on the limit counts.
    #[inline]
    pub(crate) fn cap(&self) {
        self.exhausted.set(false);
        self.refuses.set(false);
        self.capped.set(true);
    }

    /// Refuses the next block that the running script asks for, whatever there is.
    pub(crate) fn refuse_next(&self) {
        self.refuses.set(true);
    }

    #[inline]
    pub(crate) fn uncap(&self) {
        self.capped.set(false);
    }

    /// Whether the limit was hit since [`Heap::cap`].
    pub(crate) fn is_exhausted(&self) -> bool {
        self.exhausted.get()
    }

    /// Whether functions called each other too deeply since this was last asked.
    pub(crate) fn take_too_deep(&self) -> bool {
        self.too_deep.take()
    }

    /// Whether a table with many keys that collide was not let grow since this was last asked.
    pub(crate) fn take_keys_collide(&self) -> bool {
        self.keys_collide.take()
    }

    /// Counts bytes that a script had the proxy take for it, until they are given back; `None` when the limit forbids it.
    pub(crate) fn lend(self: &Rc<Heap>, bytes: usize) -> Option<Lent> {
        let used = self.used.get().saturating_add(bytes);
        if used > self.limit {
            return None;
        }
        self.used.set(used);
        Some(Lent { heap: Rc::downgrade(self), bytes })
    }

    /// Null when there is no memory.
    fn take(&self, size: usize) -> *mut c_void {
        let Some(idle) = class(size).and_then(|class| self.idle.get(class)) else {
            return self.hash_parts.take(size);
        };
        let block = idle.get();
        if block.is_null() {
            return self.carve(size.next_multiple_of(GRAIN));
        }
        // SAFETY: blocks in the lists are ours, and hold the next one since `give`.
        idle.set(unsafe { (*block).next });
        block.cast()
    }

    /// # Safety
    /// `block` came from `take` for the same size, and is used no more.
    unsafe fn give(&self, block: *mut c_void, size: usize) {
        let Some(idle) = class(size).and_then(|class| self.idle.get(class)) else {
            self.hash_parts.remove(block, size);
            // SAFETY: by the contract; large blocks are the process's.
            return unsafe { libc::free(block) };
        };
        let block: *mut Idle = block.cast();
        // SAFETY: every block has room for a pointer, and is aligned for it.
        unsafe { (*block).next = idle.get() };
        idle.set(block);
    }

    fn carve(&self, size: usize) -> *mut c_void {
        if self.rest_length.get() < size {
            // What is left is lost: less than the smallest that did not fit.
            // SAFETY: any size is fine.
            let slab = unsafe { libc::malloc(SLAB) };
            if slab.is_null() {
                return slab;
            }
            self.slabs.borrow_mut().push(slab);
            self.rest.set(slab.cast());
            self.rest_length.set(SLAB);
        }
        let block = self.rest.get();
        // SAFETY: at least `size` bytes of the slab are left behind `rest`.
        self.rest.set(unsafe { block.add(size) });
        self.rest_length.set(self.rest_length.get() - size);
        block.cast()
    }
}

/// Bytes outside of a machine that count as its own.
pub(crate) struct Lent {
    heap: Weak<Heap>,
    bytes: usize,
}

impl Lent {
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(heap) = self.heap.upgrade() {
            heap.used.set(heap.used.get().wrapping_sub(self.bytes));
        }
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        for slab in self.slabs.get_mut().drain(..) {
            // SAFETY: ours, and the machine that used it is closed.
            unsafe { libc::free(slab) };
        }
    }
}

/// `None` for large blocks.
#[inline]
fn class(size: usize) -> Option<usize> {
    (size <= SMALL && size > 0).then(|| (size - 1) / GRAIN)
}

/// `lua_Alloc`: allocates, grows, shrinks and frees for a machine, up to its limit.
pub(crate) unsafe extern "C" fn allocate(data: *mut c_void, block: *mut c_void, old: usize, new: usize) -> *mut c_void {
    // SAFETY: `data` is the machine's heap, which outlives it and is used on its thread only.
    let heap = unsafe { &*data.cast::<Heap>() };
    let old = if block.is_null() { 0 } else { old };
    let used = heap.used.get().wrapping_sub(old);
    if new == 0 {
        if old > 0 {
            // SAFETY: Lua gives back what it got here, and says how large it is.
            unsafe { heap.give(block, old) };
        }
        heap.used.set(used);
        return ptr::null_mut();
    }
    if new > old && heap.capped.get() && (used.saturating_add(new) > heap.limit || heap.refuses.take()) {
        heap.exhausted.set(true);
        return ptr::null_mut();
    }
    let moved = match (old, class(old), class(new)) {
        (0, ..) if heap.capped.get() && heap.hash_parts.hold_keys_that_collide(new) => {
            heap.keys_collide.set(true);
            ptr::null_mut()
        }
        (0, ..) => heap.take(new),
        (_, None, None) if new > old && old >= LONG_STACK && heap.capped.get() && is_deep() => {
            heap.too_deep.set(true);
            ptr::null_mut()
        }
        (_, None, None) => {
            heap.hash_parts.remove(block, old);
            // SAFETY: a large block is the process's.
            unsafe { libc::realloc(block, new) }
        }
        (_, before, after) if before == after => block,
        _ => {
            let moved = heap.take(new);
            if moved.is_null() {
                // Nobody expects a block that shrinks to be refused. It stays what it is, and larger than it is taken for.
                if new < old { block } else { moved }
            } else {
                // SAFETY: two blocks of ours, each at least as large as what is copied; the old one is used no more.
                unsafe {
                    ptr::copy_nonoverlapping(block.cast::<u8>(), moved.cast::<u8>(), old.min(new));
                    heap.give(block, old);
                }
                moved
            }
        }
    };
    if !moved.is_null() {
        heap.used.set(used.wrapping_add(new));
        heap.taken.set(heap.taken.get().wrapping_add(new.saturating_sub(old) as u64));
    }
    moved
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_keep_what_they_hold_while_they_grow_and_shrink() {
        let heap = Heap::new(1 << 20);
        let data: *mut c_void = ptr::from_ref(&heap).cast_mut().cast();
        let mut blocks: Vec<(*mut c_void, usize, u8)> = Vec::new();
        for (n, size) in [1, 16, 17, 40, 511, 512, 513, 4000].into_iter().cycle().take(400).enumerate() {
            let tag = u8::try_from(n % 251).unwrap();
            // SAFETY: the heap lives, and the block is as large as asked for.
            let block = unsafe {
                let block = allocate(data, ptr::null_mut(), 0, size);
                ptr::write_bytes(block.cast::<u8>(), tag, size);
                block
            };
            blocks.push((block, size, tag));
        }
        for new in [600, 8, 512, 48, 5000, 500, 1] {
            for (block, size, tag) in &mut blocks {
                // SAFETY: as above, with the size that it has.
                unsafe {
                    *block = allocate(data, *block, *size, new);
                    for at in 0..(*size).min(new) {
                        assert_eq!(*block.cast::<u8>().add(at), *tag);
                    }
                    ptr::write_bytes(block.cast::<u8>(), *tag, new);
                }
                *size = new;
            }
        }
        for (block, size, _) in blocks {
            // SAFETY: as above.
            unsafe { allocate(data, block, size, 0) };
        }
        assert_eq!(heap.used(), 0);
    }

    #[test]
    fn what_was_taken_only_grows() {
        let heap = Heap::new(1 << 20);
        let data: *mut c_void = ptr::from_ref(&heap).cast_mut().cast();
        // SAFETY: the heap lives, and the block has the sizes that are told.
        unsafe {
            let block = allocate(data, ptr::null_mut(), 0, 100);
            let block = allocate(data, block, 100, 1000);
            let block = allocate(data, block, 1000, 10);
            allocate(data, block, 10, 0);
        }
        assert_eq!((heap.taken(), heap.used()), (1000, 0));
    }

    #[test]
    fn what_is_lent_counts_until_it_is_given_back() {
        let heap = Rc::new(Heap::new(1000));
        let lent = heap.lend(900);
        assert!(lent.is_some() && heap.lend(101).is_none());
        assert_eq!(heap.used(), 900);
        drop(lent);
        assert_eq!(heap.used(), 0);
        let lent = heap.lend(1000);
        // Its machine may be gone first.
        drop(heap);
        drop(lent);
    }

    #[test]
    fn the_limit_binds_while_a_script_runs() {
        let heap = Heap::new(1000);
        let data: *mut c_void = ptr::from_ref(&heap).cast_mut().cast();
        // SAFETY: the heap lives.
        let ask = |size| unsafe { allocate(data, ptr::null_mut(), 0, size) };
        let free = ask(2000);
        assert!(!free.is_null());
        heap.cap();
        assert!(ask(8).is_null() && heap.is_exhausted());
        // SAFETY: of that size.
        unsafe { allocate(data, free, 2000, 0) };
        let small = ask(900);
        assert!(!small.is_null());
        // SAFETY: of that size.
        unsafe { allocate(data, small, 900, 0) };
    }
}
