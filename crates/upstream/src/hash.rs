//! The hashes by which hosts are chosen: the same as Envoy's, so that both send a request to the same host.

pub use postrider_model::xxh64;

/// MurmurHash2 for 64-bit platforms (MurmurHash64A), with the seed that C++ libraries use.
pub fn murmur2(input: &[u8]) -> u64 {
    const SEED: u64 = 0xC70F_6907;
    const FACTOR: u64 = 0xC6A4_A793_5BD1_E995;
    let mix = |value: u64| value ^ (value >> 47);
    let mut hash = SEED ^ (input.len() as u64).wrapping_mul(FACTOR);
    let mut words = input.chunks_exact(8);
    for word in &mut words {
        let word = mix(little_endian(word).wrapping_mul(FACTOR)).wrapping_mul(FACTOR);
        hash = (hash ^ word).wrapping_mul(FACTOR);
    }
    let rest = words.remainder();
    if !rest.is_empty() {
        hash = (hash ^ little_endian(rest)).wrapping_mul(FACTOR);
    }
    mix(mix(hash).wrapping_mul(FACTOR))
}

/// At most eight bytes, the lowest first.
fn little_endian(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
}

/// The 32-bit Mersenne Twister (MT19937): a sequence that is the same for the same seed everywhere.
#[derive(Debug)]
pub(crate) struct Twister {
    state: Vec<u32>,
    next: usize,
}

impl Twister {
    const SIZE: usize = 624;
    const SHIFT: usize = 397;

    pub(crate) fn new(seed: u32) -> Twister {
        let mut state = Vec::with_capacity(Self::SIZE);
        let mut last = seed;
        state.push(last);
        for index in 1..Self::SIZE as u32 {
            last = 1_812_433_253u32.wrapping_mul(last ^ (last >> 30)).wrapping_add(index);
            state.push(last);
        }
        Twister { state, next: Self::SIZE }
    }

    pub(crate) fn next(&mut self) -> u32 {
        if self.next >= Self::SIZE {
            self.renew();
        }
        let mut value = self.at(self.next);
        self.next += 1;
        value ^= value >> 11;
        value ^= (value << 7) & 0x9D2C_5680;
        value ^= (value << 15) & 0xEFC6_0000;
        value ^ (value >> 18)
    }

    /// Evenly below `bound`, which is positive.
    pub(crate) fn below(&mut self, bound: u32) -> u32 {
        let width = (1u64 << 32) / u64::from(bound.max(1));
        loop {
            let value = u64::from(self.next()) / width;
            if value < u64::from(bound.max(1)) {
                return value as u32;
            }
        }
    }

    fn at(&self, index: usize) -> u32 {
        self.state.get(index % Self::SIZE).copied().unwrap_or_default()
    }

    fn renew(&mut self) {
        for index in 0..Self::SIZE {
            let joined = (self.at(index) & 0x8000_0000) | (self.at(index + 1) & 0x7FFF_FFFF);
            let twist = if joined & 1 == 1 { 0x9908_B0DF } else { 0 };
            let value = self.at(index + Self::SHIFT) ^ (joined >> 1) ^ twist;
            if let Some(slot) = self.state.get_mut(index) {
                *slot = value;
            }
        }
        self.next = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_their_specifications() {
        // The values of Envoy's own tests.
        assert_eq!(xxh64(b"foo", 0), 3_728_699_739_546_630_719);
        assert_eq!(xxh64(b"bar", 0), 5_234_164_152_756_840_025);
        assert_eq!(murmur2(b"foo"), 9_631_199_822_919_835_226);
    }

    #[test]
    fn the_twister_is_the_one_of_the_standard() {
        // ISO C++ [rand.predef]: the 10000th value of the default seed is 4123659995.
        let mut twister = Twister::new(5489);
        let last = (0..10_000).map(|_| twister.next()).last();
        assert_eq!(last, Some(4_123_659_995));
    }
}
