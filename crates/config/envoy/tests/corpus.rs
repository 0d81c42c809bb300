//! The fuzz target's check of configuration files over its corpus and some cuts of it, on stable.

#[path = "../../../../fuzz/checks/config.rs"]
mod check;

#[test]
fn files_are_read_or_refused_wherever_they_are_cut() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fuzz/corpus/config");
    let inputs: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(inputs.len() >= 5);
    for input in inputs {
        let bytes = std::fs::read(input).unwrap();
        for end in (0..=bytes.len()).step_by(bytes.len() / 40 + 1) {
            check::config(&bytes[..end]);
        }
        check::config(&bytes);
    }
}
