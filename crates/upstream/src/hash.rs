//! The hashes by which hosts are chosen: the same as Envoy's, so that both send a request to the same host.

const PRIME_1: u64 = 0x9E37_79B1_85EB_CA87;
const PRIME_2: u64 = 0xC2B2_AE3D_27D4_EB4F;
const PRIME_3: u64 = 0x1656_67B1_9E37_79F9;
const PRIME_4: u64 = 0x85EB_CA77_C2B2_AE63;
const PRIME_5: u64 = 0x27D4_EB2F_1656_67C5;

/// XXH64 (the xxHash specification, section "XXH64 algorithm description").
pub fn xxh64(input: &[u8], seed: u64) -> u64 {
    let mut stripes = input.chunks_exact(32);
    let mut hash = if input.len() >= 32 {
        let mut lanes = [
            seed.wrapping_add(PRIME_1).wrapping_add(PRIME_2),
            seed.wrapping_add(PRIME_2),
            seed,
            seed.wrapping_sub(PRIME_1),
        ];
        for stripe in &mut stripes {
            for (lane, word) in lanes.iter_mut().zip(stripe.chunks_exact(8)) {
                *lane = round(*lane, little_endian(word));
            }
        }
        let rotations = [1, 7, 12, 18];
        let sum = lanes.iter().zip(rotations).fold(0u64, |sum, (lane, by)| sum.wrapping_add(lane.rotate_left(by)));
        lanes.iter().fold(sum, |hash, lane| (hash ^ round(0, *lane)).wrapping_mul(PRIME_1).wrapping_add(PRIME_4))
    } else {
        seed.wrapping_add(PRIME_5)
    };
    hash = hash.wrapping_add(input.len() as u64);
    let mut words = stripes.remainder().chunks_exact(8);
    for word in &mut words {
        hash ^= round(0, little_endian(word));
        hash = hash.rotate_left(27).wrapping_mul(PRIME_1).wrapping_add(PRIME_4);
    }
    let mut halves = words.remainder().chunks_exact(4);
    for half in &mut halves {
        hash ^= little_endian(half).wrapping_mul(PRIME_1);
        hash = hash.rotate_left(23).wrapping_mul(PRIME_2).wrapping_add(PRIME_3);
    }
    for byte in halves.remainder() {
        hash ^= u64::from(*byte).wrapping_mul(PRIME_5);
        hash = hash.rotate_left(11).wrapping_mul(PRIME_1);
    }
    hash = (hash ^ (hash >> 33)).wrapping_mul(PRIME_2);
    hash = (hash ^ (hash >> 29)).wrapping_mul(PRIME_3);
    hash ^ (hash >> 32)
}

fn round(lane: u64, word: u64) -> u64 {
    lane.wrapping_add(word.wrapping_mul(PRIME_2)).rotate_left(31).wrapping_mul(PRIME_1)
}

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
        // From the xxHash repository's own checks and from its command-line tool.
        assert_eq!(xxh64(b"", 0), 0xEF46_DB37_51D8_E999);
        assert_eq!(xxh64(b"a", 0), 0xD24E_C4F1_A98C_6E5B);
        assert_eq!(xxh64(b"abc", 0), 0x44BC_2CF5_AD77_0999);
        assert_eq!(xxh64(b"Nobody inspects the spammish repetition", 0), 0xFBCE_A83C_8A37_8BF1);
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
