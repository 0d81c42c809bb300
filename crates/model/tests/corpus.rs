//! The fuzz target's check of formats over its corpus and over every cut of it, on stable.

#[path = "../../../fuzz/checks/format.rs"]
mod check;

#[test]
fn formats_are_read_or_refused_wherever_they_are_cut() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/format");
    let inputs: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(inputs.len() >= 3);
    for input in inputs {
        let bytes = std::fs::read(input).unwrap();
        for end in 0..=bytes.len() {
            for start in 0..end {
                check::format(&bytes[start..end]);
            }
        }
    }
}
