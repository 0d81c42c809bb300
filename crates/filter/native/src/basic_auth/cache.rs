//! Header values that were found right before, so that a client's next request costs no hash.
//!
//! Only verified values come in, so a stranger can neither fill it nor learn from it: a place is chosen by a hash with
//! a secret seed, and the one value that stands there is compared in constant time.

use std::hash::{BuildHasher, RandomState};

use super::users::same_in_constant_time;

/// Places; a power of two. Two users who share one take turns and pay for the full check.
const PLACES: usize = 64;

/// Longer values are verified each time: they are rare, and the cache stays small.
const MAX_VALUE_BYTES: usize = 256;

#[derive(Debug)]
pub(super) struct Verified {
    seed: u64,
    places: Box<[Option<Known>]>,
}

/// A verified value and whose it is.
#[derive(Debug, Clone)]
struct Known {
    value: Box<[u8]>,
    user: u32,
}

impl Verified {
    pub(super) fn new() -> Verified {
        Verified { seed: RandomState::new().hash_one(PLACES), places: vec![None; PLACES].into_boxed_slice() }
    }

    pub(super) fn find(&self, value: &[u8]) -> Option<u32> {
        let known = self.places.get(self.place_of(value))?.as_ref()?;
        same_in_constant_time(&known.value, value).then_some(known.user)
    }

    /// Takes the place of whichever value stood there.
    pub(super) fn insert(&mut self, value: &[u8], user: u32) {
        let at = self.place_of(value);
        if value.len() <= MAX_VALUE_BYTES
            && let Some(place) = self.places.get_mut(at)
        {
            *place = Some(Known { value: value.into(), user });
        }
    }

    fn place_of(&self, value: &[u8]) -> usize {
        const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
        let mix = |state: u64, word: u64| (state ^ word).wrapping_mul(MULTIPLIER).rotate_left(29);
        let (words, rest) = value.as_chunks::<8>();
        let state = words.iter().fold(self.seed, |state, word| mix(state, u64::from_le_bytes(*word)));
        let state = rest.iter().fold(state, |state, byte| mix(state, u64::from(*byte)));
        (mix(state, self.seed) >> 32) as usize & (PLACES - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_very_same_value_is_found_again() {
        let mut verified = Verified::new();
        assert_eq!(verified.find(b"Basic YTpi"), None);
        verified.insert(b"Basic YTpi", 3);
        assert_eq!(verified.find(b"Basic YTpi"), Some(3));
        for other in [&b"Basic YTpj"[..], b"Basic YTp", b"Basic YTpi ", b""] {
            assert_eq!(verified.find(other), None);
        }
    }

    #[test]
    fn it_stays_small_whatever_comes() {
        let mut verified = Verified::new();
        for number in 0..10_000u32 {
            verified.insert(format!("Basic {number}").as_bytes(), number);
            assert_eq!(verified.find(format!("Basic {number}").as_bytes()), Some(number));
        }
        assert_eq!(verified.places.len(), PLACES);
        assert!(verified.places.iter().filter(|place| place.is_some()).count() > PLACES / 2);
        verified.insert(&[b'x'; MAX_VALUE_BYTES + 1], 1);
        assert_eq!(verified.find(&[b'x'; MAX_VALUE_BYTES + 1]), None);
    }
}
