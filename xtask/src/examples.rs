//! Rule: every config that a user can copy from examples/ or docs/ is accepted by the binary.
//!
//! A fenced `yaml` block of docs/ counts when it is a whole config, that is when it has `static_resources:` or
//! `listen:` in its first column; a fragment is left alone.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::workspace::Workspace;
use crate::{Checked, Finding};

pub fn check(workspace: &Workspace, binary: &Path) -> Checked {
    let scratch = std::env::temp_dir().join(format!("postrider-xtask-examples-{}", std::process::id()));
    std::fs::create_dir_all(&scratch).map_err(|error| format!("{}: {error}", scratch.display()))?;
    let checked = check_all(workspace, binary, &scratch);
    let _ = std::fs::remove_dir_all(&scratch);
    checked
}

fn check_all(workspace: &Workspace, binary: &Path, scratch: &Path) -> Checked {
    let mut configs: Vec<(String, PathBuf)> = Vec::new();
    for path in workspace.files("yaml")? {
        let place = workspace.relative(&path);
        if place.starts_with("examples/") {
            configs.push((place, path));
        }
    }
    for path in workspace.files("md")? {
        let place = workspace.relative(&path);
        if !place.starts_with("docs/") && place != "README.md" {
            continue;
        }
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{place}: {error}"))?;
        for (line, config) in whole_configs(&text) {
            let copy = scratch.join(format!("{}.yaml", configs.len()));
            std::fs::write(&copy, config).map_err(|error| format!("{}: {error}", copy.display()))?;
            configs.push((format!("{place}:{line}"), copy));
        }
    }
    if configs.is_empty() {
        return Err("no example found: the rule would pass without looking".to_owned());
    }
    let mut findings = Vec::new();
    for (place, path) in &configs {
        let output = Command::new(binary)
            .arg("validate")
            .arg(path)
            .output()
            .map_err(|error| format!("cannot start {}: {error}", binary.display()))?;
        if !output.status.success() {
            let said = [output.stdout, output.stderr].concat();
            findings.push(Finding::at(place, format!("is refused:\n{}", String::from_utf8_lossy(&said))));
        }
    }
    println!("examples: {} configs validated", configs.len());
    Ok(findings)
}

/// The fenced `yaml` blocks that are whole configs, with the line on which each begins.
fn whole_configs(document: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut block: Option<(usize, String)> = None;
    for (index, line) in document.lines().enumerate() {
        match &mut block {
            None if line == "```yaml" => block = Some((index + 2, String::new())),
            None => {}
            Some((start, text)) if line == "```" => {
                if text.lines().any(|it| it.starts_with("static_resources:") || it.starts_with("listen:")) {
                    found.push((*start, std::mem::take(text)));
                }
                block = None;
            }
            Some((_, text)) => {
                text.push_str(line);
                text.push('\n');
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_configs_are_told_from_fragments() {
        let document = "x\n```yaml\nlisten: \":1\"\n```\n```yaml\nnormalize_path: false\n```\n```sh\nlisten: no\n```\n```yaml\n# c\nstatic_resources: {}\n```\n";
        let found = whole_configs(document);
        assert_eq!(found, [(3, "listen: \":1\"\n".to_owned()), (12, "# c\nstatic_resources: {}\n".to_owned())]);
    }
}
