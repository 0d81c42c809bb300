//! Every file under `tests/broken` against the text that the loader prints about it, byte for byte.
//!
//! `name.yaml` (or `.json`, `.pb_text`) is the input, `name.txt` the expected output. Options stand in the first line of
//! the input, behind `# options:` (`allow-unknown-static-fields`, `overlay=FILE`). After an intended change, run with
//! `BLESS=1` and read the difference: the output is what an operator reads.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use postrider_config_core::{SourceFile, render};
use postrider_config_envoy::{LoadOptions, Loaded, load_bootstrap};

/// Codes that the loader can report. A new code needs a file that shows it.
const CODES: &[&str] = &[
    "deprecated-field",
    "duplicate-key",
    "empty-file",
    "invalid-base64",
    "invalid-duration",
    "invalid-protobuf",
    "invalid-timestamp",
    "limit-exceeded",
    "missing-config",
    "missing-field",
    "missing-type",
    "oneof-conflict",
    "out-of-range",
    "rule-count",
    "rule-format",
    "rule-length",
    "rule-pattern",
    "rule-range",
    "rule-value",
    "several-documents",
    "unknown-alias",
    "unknown-enum-value",
    "unknown-field",
    "unknown-type",
    "unsupported-extension",
    "v2-field",
    "v2-type",
    "wrong-type",
    "yaml-indent",
    "yaml-syntax",
    "yaml-tab",
    "yaml-unclosed",
];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/broken")
}

fn inputs() -> Vec<PathBuf> {
    let entries = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
    let mut inputs: Vec<PathBuf> = entries
        .filter(|path| path.extension().is_some_and(|extension| extension != "txt" && extension != "overlay"))
        .collect();
    inputs.sort();
    inputs
}

/// Every input, loaded once: building descriptors is what takes the time.
static LOADED: LazyLock<Vec<(PathBuf, Loaded)>> =
    LazyLock::new(|| inputs().into_iter().map(|path| (path.clone(), load(&path))).collect());

fn load(path: &Path) -> Loaded {
    let bytes = fs::read(path).unwrap();
    let name = path.file_name().unwrap().to_str().unwrap().to_owned();
    let file = SourceFile::from_bytes(name, bytes);
    let mut options = LoadOptions::default();
    let first = file.text().lines().next().unwrap_or("");
    for option in first.strip_prefix("# options:").unwrap_or("").split_whitespace() {
        match option.split_once('=') {
            Some(("overlay", name)) => {
                let text = fs::read_to_string(folder().join(name)).unwrap();
                options.overlay = Some(SourceFile::new("--config-yaml", text));
            }
            None if option == "allow-unknown-static-fields" => options.allow_unknown_static_fields = true,
            _ => panic!("{}: unknown option {option}", path.display()),
        }
    }
    load_bootstrap(&file, &options)
}

#[test]
fn every_broken_file_reads_as_before() {
    let bless = std::env::var_os("BLESS").is_some();
    let mut different = Vec::new();
    for (path, loaded) in LOADED.iter() {
        let text = render::text(&loaded.diagnostics, &loaded.sources, false);
        let expected = path.with_extension("txt");
        if bless {
            fs::write(&expected, &text).unwrap();
        }
        let wanted = fs::read_to_string(&expected).unwrap_or_default();
        if wanted != text {
            different.push(format!("{}\n--- expected\n{wanted}--- found\n{text}", path.display()));
        }
        assert!(!loaded.diagnostics.is_empty(), "{}: nothing to report", path.display());
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
}

#[test]
fn there_are_files_for_every_code() {
    assert!(LOADED.len() >= 120, "{} files", LOADED.len());
    let seen: BTreeSet<&str> =
        LOADED.iter().flat_map(|(_, loaded)| &loaded.diagnostics).map(|diagnostic| diagnostic.code).collect();
    assert_eq!(seen, CODES.iter().copied().collect());
}

#[test]
fn every_finding_about_text_has_a_place_and_json_has_the_same_findings() {
    for (path, loaded) in LOADED.iter() {
        let json = render::json(&loaded.diagnostics, &loaded.sources);
        assert_eq!(json["errors"], loaded.diagnostics.errors(), "{}", path.display());
        if path.extension().is_some_and(|extension| extension == "yaml" || extension == "json") {
            for diagnostic in &loaded.diagnostics {
                assert!(diagnostic.span.is_some(), "{}: {}", path.display(), diagnostic.message);
            }
        }
    }
}

/// The five faults of a published Envoy 1.14 file, each once, at its line.
#[test]
fn five_faults_of_a_published_v2_file_in_one_run() {
    let loaded = load(&folder().join("published-envoy-1.14.yaml"));
    let mut found: Vec<(u32, &str)> =
        loaded.diagnostics.iter().map(|d| (loaded.sources.location(d.span.unwrap()).unwrap().1.line, d.code)).collect();
    found.sort();
    assert_eq!(found, [(10, "v2-field"), (11, "wrong-type"), (23, "v2-field"), (31, "v2-field"), (40, "yaml-indent")]);
    let fixes: Vec<&str> = loaded
        .diagnostics
        .iter()
        .filter(|d| d.code == "wrong-type")
        .filter_map(|d| Some(d.fix.as_ref()?.replacement.as_str()))
        .collect();
    assert_eq!(fixes, ["false"]);
}
