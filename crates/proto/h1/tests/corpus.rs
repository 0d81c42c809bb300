//! The fuzz targets' checks over their corpora, on stable; and over mutations of them, from a fixed seed.

#[path = "../../../../fuzz/checks/chunked.rs"]
mod chunked;
#[path = "../../../../fuzz/checks/head.rs"]
mod head;
#[path = "../../../../fuzz/checks/path.rs"]
mod path;

fn replay(target: &str, check: fn(&[u8])) {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fuzz/corpus").join(target);
    let mut inputs: Vec<_> = std::fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.unwrap().path())
        .collect();
    inputs.sort();
    assert!(inputs.len() >= 10, "corpus of {target} is missing");
    let inputs: Vec<Vec<u8>> = inputs.iter().map(|path| std::fs::read(path).unwrap()).collect();
    for input in &inputs {
        check(input);
    }
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for round in 0..15_000 {
        let mut input = inputs[round % inputs.len()].clone();
        for _ in 0..1 + random.below(4) {
            mutate(&mut input, &inputs, &mut random);
        }
        check(&input);
    }
}

fn mutate(input: &mut Vec<u8>, inputs: &[Vec<u8>], random: &mut Random) {
    const SPECIAL: &[u8] = b"\r\n\t :;,/\\.%2fe?#@\"=0\x00\x7f\xffA_-";
    let at = random.below(input.len() + 1);
    match random.below(5) {
        0 => input.insert(at, SPECIAL[random.below(SPECIAL.len())]),
        1 if at < input.len() => input[at] = SPECIAL[random.below(SPECIAL.len())],
        2 if at < input.len() => drop(input.remove(at)),
        3 => input.truncate(at),
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
        (self.0 % bound.max(1) as u64) as usize
    }
}

#[test]
fn heads() {
    replay("head", head::head);
}

#[test]
fn chunked_bodies() {
    replay("chunked", chunked::chunked);
}

#[test]
fn paths() {
    replay("path", path::path);
}
