//! Rule: the arrows between crates are exactly those that ARCHITECTURE.md draws.
//!
//! The drawing is the fenced block `arrows`: one line per crate, `name -> used, used`, with nothing after the arrow for
//! a leaf. Test-only dependencies must be drawn too, with `~>`; only `testkit` is free for every crate's tests.

use std::collections::BTreeMap;

use crate::workspace::{Crate, Workspace};
use crate::{Checked, Finding};

const FILE: &str = "ARCHITECTURE.md";
const FREE_IN_TESTS: &str = "testkit";

pub fn check(workspace: &Workspace) -> Checked {
    let text = std::fs::read_to_string(workspace.root.join(FILE)).map_err(|error| format!("{FILE}: {error}"))?;
    Ok(compare(&parse(&text)?, &workspace.crates))
}

/// What the document draws for one crate.
#[derive(Debug, Default, PartialEq, Eq)]
struct Drawn {
    line: usize,
    uses: Vec<String>,
    tests_use: Vec<String>,
}

fn parse(document: &str) -> Result<BTreeMap<String, Drawn>, String> {
    let mut drawn: BTreeMap<String, Drawn> = BTreeMap::new();
    let mut inside = false;
    let mut seen = false;
    for (index, line) in document.lines().enumerate() {
        let line_number = index + 1;
        if line.trim() == "```arrows" {
            (inside, seen) = (true, true);
        } else if line.trim().starts_with("```") {
            inside = false;
        } else if inside && !line.trim().is_empty() {
            let (name, targets, tests) = match (line.split_once("->"), line.split_once("~>")) {
                (Some((name, targets)), None) => (name, targets, false),
                (None, Some((name, targets))) => (name, targets, true),
                _ => return Err(format!("{FILE}:{line_number}: expected `crate -> crate, crate`")),
            };
            let entry = drawn.entry(name.trim().to_owned()).or_default();
            entry.line = line_number;
            let list = if tests { &mut entry.tests_use } else { &mut entry.uses };
            list.extend(targets.split(',').map(str::trim).filter(|it| !it.is_empty()).map(str::to_owned));
        }
    }
    if seen { Ok(drawn) } else { Err(format!("{FILE}: no fenced block `arrows`")) }
}

fn compare(drawn: &BTreeMap<String, Drawn>, crates: &[Crate]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for it in crates {
        let Some(drawing) = drawn.get(&it.name) else {
            findings.push(Finding::at(FILE, format!("`{}` ({}) is not drawn", it.name, it.folder)));
            continue;
        };
        let mut both = |arrow: &str, real: &[String], drawn: &[String]| {
            for used in real.iter().filter(|used| !drawn.contains(used)) {
                findings.push(Finding::at(
                    format!("{}/Cargo.toml", it.folder),
                    format!(
                        "`{} {arrow} {used}` is not drawn in {FILE}: remove the dependency or argue for the arrow",
                        it.name
                    ),
                ));
            }
            for used in drawn.iter().filter(|used| !real.contains(used)) {
                findings.push(Finding::at(
                    format!("{FILE}:{}", drawing.line),
                    format!("`{} {arrow} {used}` is drawn, but no such dependency exists", it.name),
                ));
            }
        };
        both("->", &it.uses, &drawing.uses);
        let tests_use: Vec<String> = it.tests_use.iter().filter(|used| *used != FREE_IN_TESTS).cloned().collect();
        both("~>", &tests_use, &drawing.tests_use);
    }
    for (name, drawing) in drawn {
        if !crates.iter().any(|it| it.name == *name) {
            findings.push(Finding::at(
                format!("{FILE}:{}", drawing.line),
                format!("`{name}` is drawn, but no such crate exists"),
            ));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = "# A\n```arrows\nworker -> http, model\nworker ~> short\nhttp ->\nmodel ->\nshort ->\n```\nworker -> outside, the, block\n";

    fn crates() -> Vec<Crate> {
        let one = |name: &str, uses: &[&str], tests_use: &[&str]| Crate {
            name: name.into(),
            folder: format!("crates/{name}"),
            uses: uses.iter().map(|it| it.to_string()).collect(),
            tests_use: tests_use.iter().map(|it| it.to_string()).collect(),
        };
        vec![
            one("worker", &["http", "model"], &["short", "testkit"]),
            one("http", &[], &[]),
            one("model", &[], &[]),
            one("short", &[], &[]),
        ]
    }

    fn findings(document: &str, crates: &[Crate]) -> Vec<String> {
        compare(&parse(document).unwrap(), crates).iter().map(Finding::to_string).collect()
    }

    #[test]
    fn the_drawing_that_fits_passes() {
        assert_eq!(findings(DOCUMENT, &crates()), Vec::<String>::new());
    }

    #[test]
    fn a_dependency_that_is_not_drawn_fails() {
        let mut crates = crates();
        crates[2].uses.push("worker".into());
        let found = findings(DOCUMENT, &crates);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("crates/model/Cargo.toml: `model -> worker` is not drawn"), "{found:?}");
    }

    #[test]
    fn a_test_dependency_needs_its_own_arrow() {
        let mut crates = crates();
        crates[1].tests_use.push("model".into());
        let found = findings(DOCUMENT, &crates);
        assert!(found[0].contains("`http ~> model` is not drawn"), "{found:?}");
    }

    #[test]
    fn an_arrow_without_a_dependency_fails() {
        let mut crates = crates();
        crates[0].uses.pop();
        let found = findings(DOCUMENT, &crates);
        assert_eq!(found, ["ARCHITECTURE.md:4: `worker -> model` is drawn, but no such dependency exists"]);
    }

    #[test]
    fn a_crate_must_be_drawn_and_a_drawn_crate_must_exist() {
        let mut crates = crates();
        crates.pop();
        crates[0].tests_use.clear();
        crates.push(Crate { name: "new".into(), folder: "crates/new".into(), uses: vec![], tests_use: vec![] });
        let found = findings(DOCUMENT, &crates);
        assert!(found.contains(&"ARCHITECTURE.md: `new` (crates/new) is not drawn".to_owned()), "{found:?}");
        assert!(
            found.contains(&"ARCHITECTURE.md:7: `short` is drawn, but no such crate exists".to_owned()),
            "{found:?}"
        );
    }

    #[test]
    fn a_document_without_the_block_is_an_error() {
        assert!(parse("# nothing\n").is_err());
        assert!(parse("```arrows\nworker uses http\n```\n").is_err());
    }
}
