//! A radix trie over path prefixes: one walk along a path finds every prefix of it that a route asks for.
//!
//! Built once from all prefixes of a virtual host, then only read. The walk remembers just the deepest node that has
//! routes; from there `up` leads to the shorter prefixes, so a lookup needs no memory of its own.

use crate::text_map::{Case, same};

#[derive(Debug, Default)]
pub(crate) struct Trie {
    /// The root comes first; the children of a node stand together, in the order of their first byte.
    nodes: Box<[Node]>,
    /// The first byte of each node's label, so that a child is found by one scan over adjacent bytes.
    firsts: Box<[u8]>,
    labels: Box<[u8]>,
    ids: Box<[u32]>,
}

#[derive(Debug, Clone, Copy)]
struct Node {
    label_start: u32,
    label_len: u32,
    first_child: u32,
    ids_start: u32,
    ids_len: u32,
    /// The nearest node above that has ids.
    up: u32,
    child_count: u16,
}

/// No node.
const NONE: u32 = u32::MAX;

/// The prefixes found on one walk, longest first.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Found<'t> {
    trie: &'t Trie,
    deepest: u32,
}

impl Trie {
    /// The ids of equal prefixes keep their order. With [`Case::Ignored`] the prefixes must be in lower case.
    pub(crate) fn build(mut entries: Vec<(&[u8], u32)>) -> Trie {
        if entries.is_empty() {
            return Trie::default();
        }
        entries.sort();
        let mut builder = Builder::default();
        builder.push(Pending { from: 0, to: entries.len(), depth: 0, up: NONE });
        let mut next = 0;
        while let Some(pending) = builder.queue.get(next).copied() {
            builder.finish(next, pending, &entries);
            next += 1;
        }
        Trie {
            nodes: builder.nodes.into_boxed_slice(),
            firsts: builder.firsts.into_boxed_slice(),
            labels: builder.labels.into_boxed_slice(),
            ids: entries.iter().map(|(_, id)| *id).collect(),
        }
    }

    /// Every prefix of `path` that is in the trie.
    #[inline]
    pub(crate) fn prefixes_of(&self, path: &[u8], case: Case) -> Found<'_> {
        let mut deepest = NONE;
        let mut at = 0;
        let mut rest = path;
        while let Some(node) = self.nodes.get(at as usize) {
            let label = slice(&self.labels, node.label_start, node.label_len);
            let Some((begin, tail)) = rest.split_at_checked(label.len()) else { break };
            if !same(label, begin, case) {
                break;
            }
            if node.ids_len != 0 {
                deepest = at;
            }
            rest = tail;
            let Some(&byte) = rest.first() else { break };
            let byte = if case == Case::Ignored { byte.to_ascii_lowercase() } else { byte };
            let firsts = slice(&self.firsts, node.first_child, u32::from(node.child_count));
            let Some(child) = memchr::memchr(byte, firsts) else { break };
            at = node.first_child + child as u32;
        }
        Found { trie: self, deepest }
    }
}

impl<'t> Found<'t> {
    /// The result of no walk at all.
    pub(crate) fn none(trie: &'t Trie) -> Found<'t> {
        Found { trie, deepest: NONE }
    }

    /// The smallest id that is not below `from`.
    #[inline]
    pub(crate) fn next(&self, from: u32) -> Option<u32> {
        let mut best = None;
        let mut at = self.deepest;
        while let Some(node) = self.trie.nodes.get(at as usize) {
            let ids = slice(&self.trie.ids, node.ids_start, node.ids_len);
            best = smaller(best, first_from(ids, from));
            at = node.up;
        }
        best
    }
}

/// The smallest of the ascending `ids` that is not below `from`.
#[inline]
pub(crate) fn first_from(ids: &[u32], from: u32) -> Option<u32> {
    match ids {
        [] => None,
        [first, ..] if *first >= from => Some(*first),
        _ => ids.get(ids.partition_point(|id| *id < from)).copied(),
    }
}

#[inline]
pub(crate) fn smaller(a: Option<u32>, b: Option<u32>) -> Option<u32> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

#[inline]
fn slice<T>(all: &[T], start: u32, len: u32) -> &[T] {
    all.get(start as usize..start as usize + len as usize).unwrap_or_default()
}

/// Breadth first, so that siblings stand together.
#[derive(Default)]
struct Builder {
    nodes: Vec<Node>,
    firsts: Vec<u8>,
    labels: Vec<u8>,
    queue: Vec<Pending>,
}

/// The sorted entries `from..to` share their first `depth` bytes and need a node.
#[derive(Clone, Copy)]
struct Pending {
    from: usize,
    to: usize,
    depth: usize,
    up: u32,
}

impl Builder {
    fn push(&mut self, pending: Pending) {
        self.queue.push(pending);
        self.nodes.push(Node {
            label_start: 0,
            label_len: 0,
            first_child: 0,
            ids_start: pending.from as u32,
            ids_len: 0,
            up: pending.up,
            child_count: 0,
        });
        self.firsts.push(0);
    }

    fn finish(&mut self, place: usize, pending: Pending, entries: &[(&[u8], u32)]) {
        let group = entries.get(pending.from..pending.to).unwrap_or_default();
        let (Some((first, _)), Some((last, _))) = (group.first(), group.last()) else { return };
        // Sorted, so what the first and the last share is shared by all.
        let end = first.iter().zip(*last).take_while(|(a, b)| a == b).count();
        let label = first.get(pending.depth..end).unwrap_or_default();
        let own = group.iter().take_while(|(text, _)| text.len() == end).count();
        let label_start = self.labels.len() as u32;
        self.labels.extend_from_slice(label);
        let first_child = self.nodes.len() as u32;
        let up = if own > 0 { place as u32 } else { pending.up };
        let mut from = pending.from + own;
        let mut child_count = 0;
        while from < pending.to {
            let tail = entries.get(from..pending.to).unwrap_or_default();
            let byte = tail.first().and_then(|(text, _)| text.get(end)).copied();
            let same = tail.partition_point(|(text, _)| text.get(end).copied() <= byte);
            self.push(Pending { from, to: from + same.max(1), depth: end, up });
            from += same.max(1);
            child_count += 1;
        }
        if let Some(node) = self.nodes.get_mut(place) {
            *node = Node {
                label_start,
                label_len: label.len() as u32,
                first_child,
                ids_len: own as u32,
                child_count,
                ..*node
            };
        }
        if let (Some(place), Some(byte)) = (self.firsts.get_mut(place), label.first()) {
            *place = *byte;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(found: Found<'_>) -> Vec<u32> {
        let mut ids = Vec::new();
        let mut from = 0;
        while let Some(id) = found.next(from) {
            ids.push(id);
            from = id + 1;
        }
        ids
    }

    #[test]
    fn a_walk_finds_every_prefix_in_the_order_of_ids() {
        let texts = ["/", "/api", "/api/v1", "", "/api", "/apple", "/b", "/api/v1/x"];
        let trie = Trie::build(texts.iter().map(|text| text.as_bytes()).zip(0..).collect());
        for (path, want) in [
            ("/api/v1/x/y", vec![0, 1, 2, 3, 4, 7]),
            ("/api/v1", vec![0, 1, 2, 3, 4]),
            ("/api", vec![0, 1, 3, 4]),
            ("/ap", vec![0, 3]),
            ("/apples", vec![0, 3, 5]),
            ("/b", vec![0, 3, 6]),
            ("*", vec![3]),
            ("", vec![3]),
        ] {
            assert_eq!(all(trie.prefixes_of(path.as_bytes(), Case::Sensitive)), want, "{path}");
        }
    }

    #[test]
    fn a_trie_without_case_takes_any() {
        let trie = Trie::build(vec![(b"/abc", 1), (b"/a", 5), (b"/abd", 3)]);
        assert_eq!(all(trie.prefixes_of(b"/ABCd", Case::Ignored)), [1, 5]);
        assert_eq!(all(trie.prefixes_of(b"/Abd", Case::Ignored)), [3, 5]);
        assert_eq!(all(trie.prefixes_of(b"/abD", Case::Sensitive)), [5]);
    }

    #[test]
    fn an_empty_trie_finds_nothing() {
        assert!(all(Trie::default().prefixes_of(b"/", Case::Sensitive)).is_empty());
    }

    #[test]
    fn a_node_may_have_a_child_for_every_byte() {
        let texts: Vec<[u8; 2]> = (0..=255u8).map(|byte| [b'/', byte]).collect();
        let trie = Trie::build(texts.iter().map(|text| text.as_slice()).zip(0..).collect());
        for text in &texts {
            assert_eq!(all(trie.prefixes_of(text, Case::Sensitive)), [u32::from(text[1])]);
        }
    }

    #[test]
    fn it_agrees_with_a_scan_over_random_prefixes() {
        let mut state = 1u64;
        let mut next = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for _ in 0..200 {
            let mut text = |longest: u64| -> Vec<u8> { (0..next(longest)).map(|_| b"ab/"[next(3) as usize]).collect() };
            let texts: Vec<Vec<u8>> = (0..40).map(|_| text(6)).collect();
            let trie = Trie::build(texts.iter().map(|text| text.as_slice()).zip(0..).collect());
            for _ in 0..20 {
                let path = text(9);
                let want: Vec<u32> =
                    texts.iter().zip(0..).filter(|(text, _)| path.starts_with(text)).map(|(_, id)| id).collect();
                assert_eq!(all(trie.prefixes_of(&path, Case::Sensitive)), want);
            }
        }
    }
}
