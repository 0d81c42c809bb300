//! Every statistic that is stored is written somewhere: one that nothing writes belongs to those that are only shown.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// A constant of a set, and its statistic's name: `("cluster_ssl", "CURVE_X25519", "ssl.curves.X25519")`.
type Stat = (String, String, String);

/// One source file, as far as statistics go.
struct Source {
    text: String,
    words: BTreeSet<String>,
}

#[test]
fn a_statistic_that_nobody_writes_is_not_stored() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let sets = sources(&crates.join("telemetry/src/stats/sets"));
    let declared: Vec<Stat> = sets.iter().flat_map(|text| declarations(without_tests(text))).collect();
    assert!(declared.len() > 400, "{}", declared.len());
    let all = sources(&crates).into_iter().map(|text| without_declarations(&text));
    let all: Vec<Source> = all.filter(|text| text.contains("::")).map(Source::new).collect();
    let written =
        |(set, name, shown): &Stat| all.iter().any(|source| source.uses(set, name) || source.counts_by_name(shown));
    let lying: Vec<_> = declared.iter().filter(|stat| !written(stat)).collect();
    assert!(lying.is_empty(), "stored, shown and never written: {lying:#?}");
}

impl Source {
    fn new(text: String) -> Source {
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let words = text.split(|c| !word(c)).filter(|word| word.len() > 1).map(str::to_owned).collect();
        Source { text, words }
    }

    /// By `counter_named`, with what its name begins with.
    fn counts_by_name(&self, shown: &str) -> bool {
        let mut folders = shown.match_indices('.').map(|(dot, _)| &shown[..=dot]);
        self.words.contains("counter_named") && folders.any(|folder| self.text.contains(&format!("\"{folder}\"")))
    }

    /// By its set, or by what the file calls that, or by its name alone where the file takes all of the set.
    fn uses(&self, set: &str, name: &str) -> bool {
        if !self.words.contains(name) || !self.words.contains(set) {
            return false;
        }
        let all_of_it = [format!("::{set}::*"), format!("use {set}::*"), format!("{set}::{{")];
        if all_of_it.iter().any(|glob| self.text.contains(glob.as_str())) {
            return true;
        }
        let alias = format!("{set} as ");
        let aliases = self.text.match_indices(&alias).filter(|(at, _)| !self.text[..*at].ends_with(is_word));
        let aliases = aliases.map(|(at, alias)| {
            let rest = &self.text[at + alias.len()..];
            &rest[..rest.find(|c: char| !is_word(c)).unwrap_or(rest.len())]
        });
        aliases.chain([set]).any(|called| {
            let path = format!("{called}::{name}");
            self.text.match_indices(&path).any(|(at, path)| {
                !self.text[..at].ends_with(is_word) && !self.text[at + path.len()..].starts_with(is_word)
            })
        })
    }
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// `NAME = "name"` inside of `pub mod set = "root";`.
fn declarations(text: &str) -> Vec<Stat> {
    let mut set = None;
    let mut found = Vec::new();
    for line in text.lines() {
        if let Some(rest) = line.trim().strip_prefix("pub mod ").filter(|rest| rest.contains(" = \"")) {
            set = rest.split(' ').next();
        }
        if line.starts_with('}') {
            set = None;
        }
        let Some(set) = set else { continue };
        for (at, _) in line.match_indices(" = \"") {
            let name = line[..at].rsplit(|c| !is_word(c)).next().unwrap_or_default();
            if !name.is_empty() && name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_') {
                let shown = &line[at + " = \"".len()..];
                let shown = &shown[..shown.find('"').unwrap_or(shown.len())];
                found.push((set.to_owned(), name.to_owned(), shown.to_owned()));
            }
        }
    }
    found
}

/// A file without what it declares and without its tests: neither is a use.
fn without_declarations(text: &str) -> String {
    let text = without_tests(text);
    let mut inside = false;
    let mut kept = String::new();
    for line in text.lines() {
        inside |= line.contains("stat_set! {") && !line.contains("macro_rules");
        if !inside {
            kept.push_str(line);
            kept.push('\n');
        }
        inside &= !line.starts_with('}');
    }
    kept
}

fn without_tests(text: &str) -> &str {
    text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default()
}

/// The text of every file of ours under `folder` that is no test.
fn sources(folder: &Path) -> Vec<String> {
    let mut texts = Vec::new();
    let mut folders: Vec<PathBuf> = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() && !["tests", "target", "examples"].contains(&&*name) {
                folders.push(path);
            } else if name.ends_with(".rs") {
                texts.push(std::fs::read_to_string(&path).unwrap());
            }
        }
    }
    texts
}
