//! A map from texts to numbers that is built once and then only read, with or without regard to ASCII case.
//!
//! The standard map hashes to resist an attacker who chooses the keys. Here the keys come from the configuration and
//! the attacker only asks, so a hash of a few instructions does, and a case-blind lookup needs no lower-case copy.

/// What a key of the map is compared by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Case {
    Sensitive,
    /// ASCII letters compare without case.
    Ignored,
}

#[derive(Debug, Default)]
pub(crate) struct TextMap {
    /// A power of two of them, at most half in use; none when the map is empty.
    slots: Box<[Slot]>,
    keys: Box<[u8]>,
}

#[derive(Debug, Clone, Copy)]
struct Slot {
    hash: u32,
    value: u32,
    key_start: u32,
    key_len: u32,
}

/// The value of a slot that is not in use, so no value of the map.
const EMPTY: u32 = u32::MAX;

impl TextMap {
    /// The first entry of a key wins.
    pub(crate) fn build(entries: &[(&[u8], u32)], case: Case) -> TextMap {
        if entries.is_empty() {
            return TextMap::default();
        }
        let empty = Slot { hash: 0, value: EMPTY, key_start: 0, key_len: 0 };
        let mut map = TextMap {
            slots: vec![empty; (entries.len() * 2).next_power_of_two()].into_boxed_slice(),
            keys: Box::default(),
        };
        let mut keys = Vec::new();
        for (key, value) in entries {
            let key_start = keys.len() as u32;
            keys.extend_from_slice(key);
            let slot = Slot { hash: hash(key, case), value: *value, key_start, key_len: key.len() as u32 };
            map.insert(slot, &keys, case);
        }
        map.keys = keys.into_boxed_slice();
        map
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// `case` must be that of [`TextMap::build`].
    #[inline]
    pub(crate) fn find(&self, key: &[u8], case: Case) -> Option<u32> {
        if self.slots.is_empty() {
            return None;
        }
        let hash = hash(key, case);
        let mut at = self.home(hash);
        loop {
            let slot = self.slots.get(at)?;
            if slot.value == EMPTY {
                return None;
            }
            if slot.hash == hash && slot.key_len as usize == key.len() && same(key_of(slot, &self.keys), key, case) {
                return Some(slot.value);
            }
            at = self.next(at);
        }
    }

    fn insert(&mut self, new: Slot, keys: &[u8], case: Case) {
        let mut at = self.home(new.hash);
        while let Some(&slot) = self.slots.get(at) {
            if slot.value == EMPTY {
                if let Some(place) = self.slots.get_mut(at) {
                    *place = new;
                }
                return;
            }
            if slot.hash == new.hash && same(key_of(&slot, keys), key_of(&new, keys), case) {
                return;
            }
            at = self.next(at);
        }
    }

    #[inline]
    fn home(&self, hash: u32) -> usize {
        hash as usize & (self.slots.len() - 1)
    }

    #[inline]
    fn next(&self, at: usize) -> usize {
        (at + 1) & (self.slots.len() - 1)
    }
}

#[inline]
fn key_of<'k>(slot: &Slot, keys: &'k [u8]) -> &'k [u8] {
    let start = slot.key_start as usize;
    keys.get(start..start + slot.key_len as usize).unwrap_or_default()
}

#[inline]
pub(crate) fn same(a: &[u8], b: &[u8], case: Case) -> bool {
    match case {
        Case::Sensitive => a == b,
        Case::Ignored => a.eq_ignore_ascii_case(b),
    }
}

/// Multiply and rotate, eight bytes at a time; the high half of the product is the well mixed one.
#[inline]
fn hash(key: &[u8], case: Case) -> u32 {
    const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
    let fold = |word: u64| if case == Case::Ignored { lower(word) } else { word };
    let mix = |state: u64, word: u64| (state.rotate_left(23) ^ fold(word)).wrapping_mul(MULTIPLIER);
    let (words, rest) = key.as_chunks::<8>();
    let mut state = key.len() as u64;
    for word in words {
        state = mix(state, u64::from_le_bytes(*word));
    }
    let mut last = [0u8; 8];
    for (to, from) in last.iter_mut().zip(rest) {
        *to = *from;
    }
    state = mix(state, u64::from_le_bytes(last));
    (state ^ (state >> 32)) as u32
}

/// Sets bit 5 of each byte that is `A`-`Z`.
#[inline]
fn lower(word: u64) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let low_bits = word & (0x7f * ONES);
    let from_a = low_bits + (0x80 - u64::from(b'A')) * ONES;
    let beyond_z = low_bits + (0x7f - u64::from(b'Z')) * ONES;
    let upper = (from_a ^ beyond_z) & !word & (0x80 * ONES);
    word | (upper >> 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_finds_its_value_and_others_find_none() {
        let keys: Vec<String> = (0..5000).map(|i| format!("/service/{i}/items")).collect();
        let entries: Vec<(&[u8], u32)> = keys.iter().zip(0..).map(|(key, value)| (key.as_bytes(), value)).collect();
        let map = TextMap::build(&entries, Case::Sensitive);
        for (key, value) in &entries {
            assert_eq!(map.find(key, Case::Sensitive), Some(*value));
        }
        for absent in ["", "/service/5000/items", "/service/1/item", "/SERVICE/1/items"] {
            assert_eq!(map.find(absent.as_bytes(), Case::Sensitive), None, "{absent}");
        }
        assert_eq!(TextMap::default().find(b"x", Case::Sensitive), None);
    }

    #[test]
    fn case_is_ignored_for_letters_only() {
        let map = TextMap::build(&[(b"Some.Host-Name.example", 7), (b"@[`{\xc9", 8)], Case::Ignored);
        assert_eq!(map.find(b"sOME.hOST-nAME.EXAMPLE", Case::Ignored), Some(7));
        assert_eq!(map.find(b"@[`{\xc9", Case::Ignored), Some(8));
        assert_eq!(map.find(b"`{@[\xe9", Case::Ignored), None);
    }

    #[test]
    fn the_first_of_equal_keys_wins() {
        let map = TextMap::build(&[(b"a", 1), (b"A", 2)], Case::Ignored);
        assert_eq!(map.find(b"A", Case::Ignored), Some(1));
    }

    #[test]
    fn words_are_lowered_as_bytes_are() {
        for byte in 0..=255u8 {
            let word = u64::from_le_bytes([byte, b'A', byte, b'Z', 0xc1, byte, b'@', byte]);
            let want = word.to_le_bytes().map(|b| b.to_ascii_lowercase());
            assert_eq!(lower(word).to_le_bytes(), want);
        }
    }

    #[test]
    fn similar_keys_spread_over_the_slots() {
        let keys: Vec<String> = (0..10_000).map(|i| format!("/r{i}")).collect();
        let entries: Vec<(&[u8], u32)> = keys.iter().zip(0..).map(|(key, value)| (key.as_bytes(), value)).collect();
        let map = TextMap::build(&entries, Case::Sensitive);
        let probes: usize = entries
            .iter()
            .map(|(key, value)| {
                let mut at = map.home(hash(key, Case::Sensitive));
                let mut probes = 1;
                while map.slots[at].value != *value {
                    at = map.next(at);
                    probes += 1;
                }
                probes
            })
            .sum();
        assert!(probes < 2 * entries.len(), "{probes} probes for {} keys", entries.len());
    }
}
