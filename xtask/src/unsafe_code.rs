//! Rule: `unsafe` only in crates/sys, the hosts of machine code and the tests' native modules, and there only with a `SAFETY:`
//! line.
//!
//! The compiler already forbids it through the workspace lints; this rule holds that no other crate leaves those lints and
//! that the exceptions argue for every use.

use crate::source::{self, Line};
use crate::workspace::Workspace;
use crate::{Checked, Finding};

/// System calls, and the borders to LuaJIT, which is C, to native modules (from both sides), to Go libraries and to compiled
/// WebAssembly.
const HOMES: [&str; 6] = ["sys", "filter-golang", "filter-lua", "filter-module", "filter-wasm", "module"];

/// Native modules of the tests: machine code that the proxy loads, and so the other side of such a border.
const MODULES: &str = "tests/modules/native/";

/// How far above an `unsafe` its `SAFETY:` line may begin: the length of a long argument.
const ARGUMENT_LINES: usize = 8;

pub fn check(workspace: &Workspace) -> Checked {
    let mut findings = Vec::new();
    for it in &workspace.crates {
        let at_home = HOMES.contains(&it.name.as_str());
        let manifest = format!("{}/Cargo.toml", it.folder);
        let text =
            std::fs::read_to_string(workspace.root.join(&manifest)).map_err(|error| format!("{manifest}: {error}"))?;
        if !at_home && !inherits_lints(&text) {
            findings.push(Finding::at(manifest, "needs `[lints] workspace = true`, which forbids unsafe code"));
        }
        for path in workspace.rust_files(it)? {
            let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            let place = workspace.relative(&path);
            findings.extend(find(&place, &text, at_home || place.starts_with(MODULES)));
        }
    }
    Ok(findings)
}

fn inherits_lints(manifest: &str) -> bool {
    let mut lines = manifest.lines().map(str::trim);
    lines.any(|line| line == "[lints]") && lines.next() == Some("workspace = true")
}

fn find(place: &str, text: &str, at_home: bool) -> Vec<Finding> {
    let lines = source::split(text);
    let mut findings = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let words: Vec<&str> = source::words(&line.code).collect();
        let uses = words.iter().enumerate().filter(|(_, word)| **word == "unsafe");
        // A declaration does nothing by itself: whoever calls it argues, and so does every operation inside
        // (`unsafe_op_in_unsafe_fn`). What the public ones ask for, clippy wants to read.
        let uses = uses.filter(|(at, _)| !at_home || !matches!(words.get(at + 1), Some(&"extern" | &"fn")));
        if uses.count() == 0 {
            continue;
        }
        let place = format!("{place}:{}", index + 1);
        if !at_home {
            findings.push(Finding::at(place, "unsafe code outside crates/sys and the hosts of machine code"));
        } else if !argued(&lines, index) {
            findings.push(Finding::at(place, "unsafe code without a `// SAFETY:` line that says why it is sound"));
        }
    }
    findings
}

/// A `SAFETY:` (or, on a declaration, `# Safety`) comment on the same line or directly above.
fn argued(lines: &[Line], index: usize) -> bool {
    lines[index.saturating_sub(ARGUMENT_LINES)..=index]
        .iter()
        .any(|line| line.comments.contains("SAFETY:") || line.comments.contains("# Safety"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planted_unsafe_outside_its_home_fails() {
        let found =
            find("crates/worker/src/a.rs", "// unsafe is bad\nlet a = \"unsafe\";\nlet b = unsafe { f() };\n", false);
        assert_eq!(
            found,
            [Finding::at("crates/worker/src/a.rs:3", "unsafe code outside crates/sys and the hosts of machine code")]
        );
    }

    #[test]
    fn at_home_every_use_needs_its_argument() {
        assert_eq!(find("s.rs", "// SAFETY: fd is open.\nlet b = unsafe { f() };\n", true), []);
        assert_eq!(find("s.rs", "let b = unsafe { f() };\n", true).len(), 1);
        assert_eq!(find("s.rs", "unsafe extern \"C\" fn f() {}\nget: unsafe extern \"C\" fn(c_int),\n", true), []);
        assert_eq!(find("s.rs", "pub(super) unsafe fn f() {}\n", true), []);
        assert_eq!(find("s.rs", "pub(super) unsafe fn f() {}\n", false).len(), 1);
        let far = format!("// SAFETY: far away\n{}let b = unsafe {{ f() }};\n", "\n".repeat(20));
        assert_eq!(find("s.rs", &far, true).len(), 1);
    }

    #[test]
    fn a_manifest_that_leaves_the_workspace_lints_is_seen() {
        assert!(inherits_lints("[package]\n\n[lints]\nworkspace = true\n"));
        assert!(!inherits_lints("[package]\n[lints.rust]\nunsafe_code = \"allow\"\n"));
        assert!(!inherits_lints("[package]\nworkspace = true\n"));
    }
}
