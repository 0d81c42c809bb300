//! The fuzz target's check of greetings over its corpus, on stable; and over mutations of it, from a fixed seed.

#[path = "../../../fuzz/checks/hello.rs"]
mod check;

#[test]
fn greetings() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/hello");
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(paths.len() >= 8, "the corpus is missing");
    let inputs: Vec<Vec<u8>> = paths.iter().map(|path| std::fs::read(path).unwrap()).collect();
    for input in &inputs {
        check::hello(input);
        for end in 0..input.len() {
            check::hello(&input[..end]);
        }
    }
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for round in 0..20_000 {
        let mut input = inputs[round % inputs.len()].clone();
        for _ in 0..1 + random.below(4) {
            mutate(&mut input, &inputs, &mut random);
        }
        check::hello(&input);
    }
}

fn mutate(input: &mut Vec<u8>, inputs: &[Vec<u8>], random: &mut Random) {
    const SPECIAL: &[u8] = b"\x00\x01\x02\x03\x10\x16\x17\x1f\x20\x2b\x40\x7f\x80\xff.*a";
    let at = random.below(input.len() + 1);
    match random.below(6) {
        0 => input.insert(at, SPECIAL[random.below(SPECIAL.len())]),
        1 if at < input.len() => input[at] = SPECIAL[random.below(SPECIAL.len())],
        2 if at < input.len() => input[at] = input[at].wrapping_add(1),
        3 if at < input.len() => drop(input.remove(at)),
        4 => input.truncate(at),
        _ => {
            let other = &inputs[random.below(inputs.len())];
            let from = random.below(other.len() + 1);
            let to = from + random.below(other.len() - from + 1).min(24);
            input.splice(at..at, other[from..to].iter().copied());
        }
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(bound.max(1)).unwrap()).unwrap()
    }
}
