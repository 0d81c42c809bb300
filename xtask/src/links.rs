//! Rule: every relative link of a Markdown file leads to a file that exists.
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
        for target in targets(line) {
            let file = target.split('#').next().unwrap_or_default();
            if !file.is_empty() && !file.contains("://") && !file.starts_with("mailto:") && !exists(file) {
                findings.push(Finding::at(format!("{place}:{}", index + 1), format!("`{target}` leads nowhere")));
            }
        }
    }
    findings
}

/// The targets of `[text](target)` in a line.
fn targets(line: &str) -> Vec<&str> {
    line.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target.trim()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_planted_dead_link_fails() {
        let text = "[a](there.md) [b](gone.md#x) [c](https://example.com/y) [d](#here)\n```\n[e](gone.md)\n```\n";
        let found = find("docs/index.md", text, |target| target == "there.md");
        assert_eq!(found, [Finding::at("docs/index.md:1", "`gone.md#x` leads nowhere")]);
    }
}
