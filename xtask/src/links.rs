//! Rule: every relative link of a Markdown file, and every path of ours in back quotes, leads to a file that exists; the
//! life of a request names at most ten of them.
//!
//! Web links are not followed: the check needs no network. Vendored text is not ours to correct.

use std::path::Path;

use crate::workspace::Workspace;
use crate::{Checked, Finding};

/// Folders of files that come from elsewhere.
const VENDORED: &[&str] = &["crates/config/envoy-proto/proto/"];

pub fn check(workspace: &Workspace) -> Checked {
    let mut findings = Vec::new();
    for path in workspace.files("md")? {
        let place = workspace.relative(&path);
        if VENDORED.iter().any(|folder| place.starts_with(folder)) {
            continue;
        }
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{place}: {error}"))?;
        let folder = path.parent().unwrap_or(&workspace.root);
        findings.extend(find(&place, &text, |target| exists(&workspace.root, folder, target)));
        if place == "ARCHITECTURE.md" {
            findings.extend(long_life(&text));
        }
    }
    Ok(findings)
}

fn exists(root: &Path, folder: &Path, target: &str) -> bool {
    match target.strip_prefix('/') {
        Some(absolute) => root.join(absolute).exists(),
        None => folder.join(target).exists(),
    }
}

fn find(place: &str, text: &str, exists: impl Fn(&str) -> bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut fenced = false;
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        if fenced {
            continue;
        }
        for path in quoted_paths(line) {
            if !exists(&format!("/{path}")) {
                findings.push(Finding::at(format!("{place}:{}", index + 1), format!("`{path}` does not exist")));
            }
        }
        for target in targets(line) {
            let file = target.split('#').next().unwrap_or_default();
            if !file.is_empty() && !file.contains("://") && !file.starts_with("mailto:") && !exists(file) {
                findings.push(Finding::at(format!("{place}:{}", index + 1), format!("`{target}` leads nowhere")));
            }
        }
    }
    findings
}

/// A newcomer reads the files of one request in an afternoon, or does not read them.
const MOST_FILES: usize = 10;

fn long_life(architecture: &str) -> Option<Finding> {
    let section = architecture.split("\n## ").find(|section| section.starts_with("Life of a request"));
    let Some(section) = section else {
        return Some(Finding::at("ARCHITECTURE.md", "has no section `Life of a request`"));
    };
    let steps = section.lines().filter(|line| line.starts_with(|it: char| it.is_ascii_digit()));
    let files = steps.flat_map(quoted_paths).count();
    (files == 0 || files > MOST_FILES).then(|| {
        Finding::at("ARCHITECTURE.md", format!("the life of a request names {files} files, not 1 to {MOST_FILES}"))
    })
}

/// Paths of our sources in back quotes.
fn quoted_paths(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2).filter(|text| {
        ["crates/", "xtask/", "examples/", "packaging/"].iter().any(|folder| text.starts_with(folder))
            && !text.contains(' ')
    })
}

/// The targets of `[text](target)` in a line.
fn targets(line: &str) -> Vec<&str> {
    line.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target.trim()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_planted_dead_path_fails() {
        let text = "`crates/here.rs` and `crates/gone.rs`, not `make test`\n";
        let found = find("ARCHITECTURE.md", text, |target| target == "/crates/here.rs");
        assert_eq!(found, [Finding::at("ARCHITECTURE.md:1", "`crates/gone.rs` does not exist")]);
    }

    #[test]
    fn a_long_life_fails() {
        let life =
            |files: usize| format!("# A\n\n## Life of a request\n{}\n## Next\n", "1. `crates/a.rs`\n".repeat(files));
        assert_eq!(long_life(&life(10)), None);
        assert!(long_life(&life(11)).is_some() && long_life(&life(0)).is_some() && long_life("# A\n").is_some());
    }

    #[test]
    fn a_planted_dead_link_fails() {
        let text = "[a](there.md) [b](gone.md#x) [c](https://example.com/y) [d](#here)\n```\n[e](gone.md)\n```\n";
        let found = find("docs/index.md", text, |target| target == "there.md");
        assert_eq!(found, [Finding::at("docs/index.md:1", "`gone.md#x` leads nowhere")]);
    }
}
