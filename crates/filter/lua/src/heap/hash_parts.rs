//! The hash parts of large tables, and whether the keys in them collide.
//!
//! LuaJIT moves the keys of a table that grows in one go, and searches a key's chain before it adds to it. Where all keys are in one
//! chain, as numbers can be chosen to be, that takes the square of their number, and nothing stops it on the way. But it asks for
//! the memory of the new hash part before it moves the first key, while the old one is still there: so the heap remembers where
//! those are, and refuses to let a table grow whose keys would hold the worker.

use std::cell::RefCell;
use std::ffi::c_void;

/// LuaJIT's `Node`, as it is where pointers have 64 bits (`LJ_GC64`).
#[repr(C)]
#[derive(Clone, Copy)]
struct Node {
    value: u64,
    key: u64,
    /// The address of the next node of the chain, or 0.
    next: u64,
}

const NODE: usize = size_of::<Node>();

/// Smaller tables are moved quickly, whatever their keys are.
const SMALLEST: usize = 4096 * NODE;

/// `nil`: such nodes are not moved.
const NIL: u64 = u64::MAX;

/// Twice the comparisons of keys that are accepted for a table, whatever its size: some 10 ms.
const ALWAYS: u64 = 1 << 23;

/// The same for each node of the larger table. Keys that do not collide take about two.
const PER_NODE: u64 = 16;

/// The large blocks of a machine that may be hash parts of tables.
#[derive(Default)]
pub(super) struct HashParts(RefCell<Vec<(*const Node, usize)>>);

impl HashParts {
    /// Takes a large block, and remembers it if it may be a hash part. Null when there is no memory.
    pub(super) fn take(&self, size: usize) -> *mut c_void {
        if !may_be_one(size) {
            // SAFETY: any size is fine.
            return unsafe { libc::malloc(size) };
        }
        // SAFETY: as above.
        let block = unsafe { libc::calloc(1, size) };
        if !block.is_null() {
            self.0.borrow_mut().push((block.cast_const().cast(), size / NODE));
        }
        block
    }

    /// A block is given back, or becomes something else.
    pub(super) fn remove(&self, block: *mut c_void, size: usize) {
        if may_be_one(size) {
            self.0.borrow_mut().retain(|(nodes, _)| nodes.addr() != block.addr());
        }
    }

    /// Whether a block of `size` bytes may become the hash part of a table whose keys take too long to move.
    pub(super) fn hold_keys_that_collide(&self, size: usize) -> bool {
        may_be_one(size)
            && self.0.borrow().iter().any(|&(nodes, length)| {
                // SAFETY: the block is there until `remove`, was zeroed, and nobody writes to it meanwhile. What is no hash part is
                // bytes that mean nothing.
                let nodes = unsafe { std::slice::from_raw_parts(nodes, length) };
                takes_too_long(nodes, size / NODE)
            })
    }
}

fn may_be_one(size: usize) -> bool {
    size >= SMALLEST && size.is_multiple_of(NODE) && (size / NODE).is_power_of_two()
}

/// Whether it takes too long to move what `nodes` hold to a hash part of `new` nodes.
fn takes_too_long(nodes: &[Node], new: usize) -> bool {
    let limit = ALWAYS + PER_NODE * nodes.len().max(new) as u64;
    // Chains of a table with fewer nodes may be several of these in one.
    let joined = (nodes.len() / new).max(1) as u64;
    squares_of_chains(nodes).is_some_and(|sum| sum.saturating_mul(joined) > limit)
}

/// The sum of the squares of the lengths of all chains; `None` if this is no hash part.
fn squares_of_chains(nodes: &[Node]) -> Option<u64> {
    let place = |node: &Node| {
        let offset = usize::try_from(node.next).ok()?.checked_sub(nodes.as_ptr().addr())?;
        (offset.is_multiple_of(NODE) && offset / NODE < nodes.len()).then_some(offset / NODE)
    };
    let mut follows = vec![false; nodes.len()];
    for node in nodes.iter().filter(|node| node.next != 0) {
        let seen = follows.get_mut(place(node)?)?;
        // No node is in two chains.
        if std::mem::replace(seen, true) {
            return None;
        }
    }
    let mut sum = 0;
    for (head, _) in nodes.iter().zip(&follows).filter(|(_, follows)| !**follows) {
        let (mut node, mut length) = (head, 0_u64);
        loop {
            length += u64::from(node.value != NIL);
            if node.next == 0 {
                break;
            }
            node = nodes.get(place(node)?)?;
        }
        sum += length * length;
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FREE: Node = Node { value: NIL, key: NIL, next: 0 };

    /// A hash part of `length` nodes with chains of `chain` keys each.
    fn chains(length: usize, chain: usize) -> Vec<Node> {
        let mut nodes = vec![FREE; length];
        let start = nodes.as_ptr().addr();
        for (n, node) in nodes.iter_mut().enumerate() {
            let next = if (n + 1) % chain == 0 || n + 1 == length { 0 } else { start + (n + 1) * NODE };
            *node = Node { value: 1, key: n as u64, next: next as u64 };
        }
        nodes
    }

    #[test]
    fn chains_are_squared_one_by_one() {
        assert_eq!(squares_of_chains(&[FREE; 8]), Some(0));
        assert_eq!(squares_of_chains(&chains(8, 1)), Some(8));
        assert_eq!(squares_of_chains(&chains(8, 3)), Some(9 + 9 + 4));
        assert_eq!(squares_of_chains(&chains(8, 8)), Some(64));
    }

    #[test]
    fn keys_without_values_are_not_moved() {
        let mut nodes = chains(8, 8);
        for node in &mut nodes[2..6] {
            node.value = NIL;
        }
        assert_eq!(squares_of_chains(&nodes), Some(16));
    }

    #[test]
    fn what_is_no_hash_part_is_none() {
        let garbage = vec![Node { value: 3, key: 4, next: 5 }; 8];
        assert_eq!(squares_of_chains(&garbage), None);
        let mut joined = chains(8, 8);
        joined[7].next = joined[0].next;
        assert_eq!(squares_of_chains(&joined), None);
        // Nodes in a circle follow each other, so none of them is a head.
        let mut circle = chains(8, 8);
        circle[7].next = circle.as_ptr().addr() as u64;
        assert_eq!(squares_of_chains(&circle), Some(0));
    }

    #[test]
    fn only_tables_of_many_colliding_keys_take_too_long() {
        assert!(!takes_too_long(&chains(1 << 16, 3), 1 << 17));
        assert!(!takes_too_long(&chains(1 << 16, 100), 1 << 17));
        assert!(!takes_too_long(&chains(4096, 2048), 8192));
        assert!(takes_too_long(&chains(4096, 4096), 8192));
        assert!(takes_too_long(&chains(1 << 16, 8192), 1 << 17));
    }

    #[test]
    fn chains_of_a_table_that_shrinks_are_joined() {
        let mut nodes = chains(1 << 16, 64);
        // An eighth of all chains is left.
        for node in &mut nodes[(1 << 13)..] {
            node.value = NIL;
        }
        assert!(!takes_too_long(&nodes, 1 << 16));
        assert!(!takes_too_long(&nodes, 1 << 13));
        let mut nodes = chains(1 << 16, 512);
        for node in &mut nodes[(1 << 13)..] {
            node.value = NIL;
        }
        assert!(!takes_too_long(&nodes, 1 << 16));
        assert!(takes_too_long(&nodes, 1 << 13));
    }

    #[test]
    fn blocks_of_other_sizes_are_not_looked_at() {
        assert!(may_be_one(4096 * 24) && may_be_one(8192 * 24));
        assert!(!may_be_one(2048 * 24) && !may_be_one(5000 * 24) && !may_be_one(1 << 20));
    }
}
