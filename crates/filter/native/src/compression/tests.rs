use postrider_filter_api::Flow;
use postrider_model::{Reading, Value};

use super::*;
use crate::testing::{object, text};

fn typed(kind: &str, way: &str, settings: &[(&str, Value)]) -> Value {
    let message = format!("{}{}", kind[..1].to_uppercase(), &kind[1..]);
    let url = format!("type.googleapis.com/envoy.extensions.compression.{kind}.{way}.v3.{message}");
    let mut all = vec![("@type".to_owned(), text(&url))];
    all.extend(settings.iter().map(|(key, value)| ((*key).to_owned(), value.clone())));
    object([("name", text(kind)), ("typed_config", Value::Map(all))])
}

fn compressor(kind: &str, settings: &[(&str, Value)]) -> Compressor {
    let value = object([("compressor_library", typed(kind, "compressor", settings))]);
    Reading::all(&value, |at| read_compressor(at, &mut Vec::new())).unwrap().unwrap()
}

fn decompressor(kind: &str, settings: &[(&str, Value)]) -> Decompressor {
    let value = object([("decompressor_library", typed(kind, "decompressor", settings))]);
    Reading::all(&value, |at| read_decompressor(at)).unwrap().unwrap()
}

/// All that comes out when a body comes in such pieces, and the largest piece of it.
fn pass(coder: Box<dyn Coder>, ratio: Option<u64>, body: &[u8], cut: usize) -> Result<(Vec<u8>, usize), Broken> {
    let (mut passing, mut all, mut largest) = (Passing::new(coder, ratio), Vec::new(), 0);
    let mut pieces = body.chunks(cut).peekable();
    let mut next = pieces.next().unwrap_or_default();
    loop {
        let end = pieces.peek().is_none();
        passing.push(next, end);
        loop {
            let mut out = Vec::new();
            let progress = passing.go(&mut out)?;
            largest = largest.max(out.len());
            all.extend_from_slice(&out);
            match progress.flow {
                Flow::Piece | Flow::Head => {}
                Flow::Release => {
                    assert!(end);
                    return Ok((all, largest));
                }
                _ => break,
            }
        }
        next = pieces.next().unwrap();
    }
}

const KINDS: [&str; 3] = ["gzip", "brotli", "zstd"];

/// Nothing that compresses well, with some that does.
fn sample(length: usize) -> Vec<u8> {
    let mut state = 1u32;
    let mut random = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..length).map(|at| if at % 3000 < 1000 { b'a' } else { random() }).collect()
}

#[test]
fn a_body_comes_back_however_it_is_cut() {
    for kind in KINDS {
        for (length, cut) in [(0, 1), (1, 1), (500, 1), (70_000, 7), (300_000, 300_000), (300_000, 4096)] {
            let body = sample(length);
            let (packed, largest) = pass(compressor(kind, &[]).coder().unwrap(), None, &body, cut).unwrap();
            assert!(largest <= 64 * 1024 + 1, "{kind}: {largest}");
            for cut in [cut.max(5), 1_000_000] {
                let made = pass(decompressor(kind, &[]).coder().unwrap(), None, &packed, cut);
                let (plain, largest) = made.unwrap_or_else(|broken| panic!("{kind} {length} {cut}: {broken:?}"));
                assert!(plain == body, "{kind} {length} {cut}: {}", plain.len());
                assert!(largest <= 64 * 1024);
            }
        }
    }
}

#[test]
fn each_piece_leaves_as_it_came() {
    for kind in KINDS {
        let (mut into, mut back) = (
            Passing::new(compressor(kind, &[]).coder().unwrap(), None),
            Passing::new(decompressor(kind, &[]).coder().unwrap(), None),
        );
        for piece in [&b"first"[..], b"second", b"third"] {
            let (mut packed, mut plain) = (Vec::new(), Vec::new());
            into.push(piece, false);
            into.go(&mut packed).unwrap();
            back.push(&packed, false);
            back.go(&mut plain).unwrap();
            assert_eq!(plain, piece, "{kind}");
        }
    }
}

#[test]
fn settings_reach_the_libraries() {
    let body = sample(200_000);
    let size = |kind: &str, settings: &[(&str, Value)]| {
        let coder = compressor(kind, settings).coder().unwrap();
        let packed = pass(coder, None, &body, 200_000).unwrap().0;
        let plain = pass(decompressor(kind, &[]).coder().unwrap(), None, &packed, 9999).unwrap().0;
        assert!(plain == body);
        packed.len()
    };
    let number = Value::Integer;
    let usual = size("gzip", &[]);
    assert_ne!(size("gzip", &[("compression_level", text("BEST_SPEED"))]), usual);
    assert_ne!(size("gzip", &[("compression_strategy", text("HUFFMAN_ONLY"))]), usual);
    assert_ne!(size("gzip", &[("memory_level", number(1))]), usual);
    assert_ne!(size("gzip", &[("window_bits", number(9)), ("chunk_size", number(65_536))]), usual);
    let usual = size("brotli", &[]);
    assert_ne!(size("brotli", &[("quality", number(9)), ("window_bits", number(22))]), usual);
    assert_ne!(size("brotli", &[("quality", number(0))]), usual);
    let usual = size("zstd", &[]);
    assert_eq!(size("zstd", &[("enable_checksum", Value::Bool(true))]), usual + 4);
    assert_ne!(size("zstd", &[("strategy", text("FAST"))]), usual);
}

#[test]
fn a_bomb_goes_off_nowhere() {
    for kind in KINDS {
        let packed = pass(compressor(kind, &[]).coder().unwrap(), None, &vec![0; 5_000_000], 5_000_000).unwrap().0;
        assert!(packed.len() < 20_000, "{kind}: {}", packed.len());
        let made = pass(decompressor(kind, &[]).coder().unwrap(), Some(100), &packed, 1000);
        assert_eq!(made.err(), Some(Broken::Ratio), "{kind}");
        assert!(pass(decompressor(kind, &[]).coder().unwrap(), None, &packed, 1000).is_ok());
    }
}

#[test]
fn what_is_broken_is_refused() {
    let body = sample(10_000);
    for kind in KINDS {
        let packed = pass(compressor(kind, &[]).coder().unwrap(), None, &body, 10_000).unwrap().0;
        let decode = |bytes: &[u8]| pass(decompressor(kind, &[]).coder().unwrap(), None, bytes, 700);
        assert_eq!(decode(&packed[..packed.len() - 3]).err(), Some(Broken::Cut), "{kind}");
        assert!(decode(b"this is no such thing, not at all").is_err(), "{kind}");
        let mut other = packed.clone();
        for byte in &mut other[40..80] {
            *byte = !*byte;
        }
        assert!(decode(&other).is_err() || decode(&other).unwrap().0 != body, "{kind}");
        assert_eq!(decode(b"").unwrap().0, b"");
    }
    let gzip = |body: &[u8]| pass(compressor("gzip", &[]).coder().unwrap(), None, body, 99).unwrap().0;
    let decode = |bytes: &[u8]| pass(decompressor("gzip", &[]).coder().unwrap(), None, bytes, 7).unwrap().0;
    assert_eq!(decode(&[gzip(b"one"), gzip(b"two")].concat()), b"onetwo");
    assert_eq!(decode(&[gzip(b"one"), b"and more".to_vec()].concat()), b"one");
    // A window of 128 MiB.
    let wide = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x88, 0x01, 0x00, 0x00];
    let made = pass(decompressor("zstd", &[]).coder().unwrap(), None, &wide, 99);
    assert_eq!(made.err(), Some(Broken::Memory));
}

#[test]
fn a_level_of_zstd_above_the_highest_is_the_highest() {
    let packed = |level: i64| {
        let coder = compressor("zstd", &[("compression_level", Value::Integer(level))]).coder().unwrap();
        pass(coder, None, &sample(20_000), 4096).unwrap().0
    };
    assert_eq!(packed(23), packed(22));
    assert_eq!(packed(100), packed(22));
}

#[test]
fn libraries_are_refused_with_all_that_is_wrong() {
    let number = Value::Integer;
    let settings = [("memory_level", number(10)), ("window_bits", number(8)), ("chunk_size", number(1))];
    let value = object([("compressor_library", typed("gzip", "compressor", &settings))]);
    let errors = Reading::all(&value, |at| read_compressor(at, &mut Vec::new())).err().unwrap();
    assert_eq!(errors.len(), 3, "{errors:?}");
    let other = object([("compressor_library", typed("gzip", "decompressor", &[]))]);
    assert!(Reading::all(&other, |at| read_compressor(at, &mut Vec::new())).is_err());
    assert!(Reading::all(&object([]), |at| read_decompressor(at)).is_err());
}
