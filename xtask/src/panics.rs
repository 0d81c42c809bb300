//! Rule: no panic on the data path.
//!
//! Clippy does the looking, on the library targets only, so that tests may unwrap. A place where an index cannot fail
//! says so: `#[allow(clippy::indexing_slicing, reason = "…")]`; an `allow` without a reason is a finding too.

use std::process::Command;

use serde_json::Value;

use crate::workspace::Workspace;
use crate::{Checked, Finding};

/// The crates through which a request's bytes pass.
const DATA_PATH: &[&str] = &[
    "http",
    "h1",
    "router",
    "upstream",
    "worker",
    "filter-api",
    "filter-native",
    "filter-plugin",
    "filter-golang",
    "filter-lua",
    "filter-module",
    "filter-trial",
    "filter-wasm",
    "telemetry",
    "sys",
    "tls",
];

const LINTS: &[&str] = &[
    "clippy::unwrap_used",
    "clippy::expect_used",
    "clippy::get_unwrap",
    "clippy::panic",
    "clippy::todo",
    "clippy::unimplemented",
    "clippy::unreachable",
    "clippy::indexing_slicing",
    "clippy::string_slice",
    "clippy::allow_attributes_without_reason",
];

pub fn check(workspace: &Workspace) -> Checked {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(&workspace.root).args(["clippy", "--quiet", "--lib", "--no-deps", "--message-format", "json"]);
    for name in DATA_PATH {
        workspace.named(name)?;
        command.args(["--package", &format!("postrider-{name}")]);
    }
    command.arg("--");
    for lint in LINTS {
        command.args(["--warn", lint]);
    }
    let output = command.output().map_err(|error| format!("cannot start cargo clippy: {error}"))?;
    if !output.status.success() {
        return Err(format!("cargo clippy failed:\n{}", String::from_utf8_lossy(&output.stderr)));
    }
    Ok(read(&String::from_utf8_lossy(&output.stdout)))
}

/// The findings among clippy's JSON lines: those of our lints, one each.
fn read(messages: &str) -> Vec<Finding> {
    let mut findings: Vec<Finding> = Vec::new();
    for line in messages.lines() {
        let Ok(message) = serde_json::from_str::<Value>(line) else { continue };
        let message = &message["message"];
        let Some(lint) = message["code"]["code"].as_str().filter(|code| LINTS.contains(code)) else { continue };
        let span = &message["spans"][0];
        let place = format!("{}:{}", span["file_name"].as_str().unwrap_or("?"), span["line_start"]);
        let finding = Finding::at(place, format!("{} [{lint}]", message["message"].as_str().unwrap_or_default()));
        if !findings.contains(&finding) {
            findings.push(finding);
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_lints_are_read_and_others_are_left_to_clippy() {
        let ours = r#"{"reason":"compiler-message","message":{"message":"used `unwrap()` on an `Option` value","code":{"code":"clippy::unwrap_used"},"spans":[{"file_name":"crates/http/src/lib.rs","line_start":7}]}}"#;
        let other = r#"{"reason":"compiler-message","message":{"message":"x","code":{"code":"clippy::needless_return"},"spans":[{"file_name":"a.rs","line_start":1}]}}"#;
        let messages = format!("{ours}\n{other}\n{ours}\n{{\"reason\":\"build-finished\"}}\nnot json\n");
        assert_eq!(
            read(&messages),
            [Finding::at("crates/http/src/lib.rs:7", "used `unwrap()` on an `Option` value [clippy::unwrap_used]")]
        );
    }

    /// The rule is only as good as clippy's answer, so ask it about a crate with one panic of each kind.
    #[test]
    fn a_planted_crate_is_caught_by_every_lint() {
        let folder = std::env::temp_dir().join(format!("postrider-xtask-panics-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("src")).unwrap();
        std::fs::write(folder.join("Cargo.toml"), "[package]\nname = \"planted\"\nedition = \"2024\"\n[workspace]\n")
            .unwrap();
        std::fs::write(
            folder.join("src/lib.rs"),
            "pub fn a(x: Option<u8>) -> u8 { x.unwrap() }\n\
             pub fn b(x: Option<u8>) -> u8 { x.expect(\"b\") }\n\
             pub fn c(x: &[u8]) -> u8 { x[3] }\n\
             pub fn d() { panic!() }\n\
             pub fn e() { todo!() }\n\
             pub fn f() { unreachable!() }\n\
             pub fn g(x: &str) -> &str { &x[1..] }\n\
             pub fn h() { unimplemented!() }\n\
             pub fn i(x: &[u8]) -> u8 { *x.get(1).unwrap() }\n\
             #[allow(clippy::indexing_slicing)] pub fn j(x: &[u8]) -> u8 { x[0] }\n\
             #[allow(clippy::indexing_slicing, reason = \"planted\")] pub fn k(x: &[u8]) -> u8 { x[0] }\n\
             #[cfg(test)] mod tests { #[test] fn l() { Some(1).unwrap(); } }\n",
        )
        .unwrap();
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.current_dir(&folder).env("CARGO_TARGET_DIR", folder.join("target"));
        command.args(["clippy", "--quiet", "--lib", "--offline", "--message-format", "json", "--"]);
        for lint in LINTS {
            command.args(["--warn", lint]);
        }
        let output = command.output().unwrap();
        let found = read(&String::from_utf8_lossy(&output.stdout));
        std::fs::remove_dir_all(&folder).unwrap();
        for lint in LINTS {
            assert!(found.iter().any(|it| it.text.contains(lint)), "{lint} found nothing in {found:?}");
        }
        for line in 1..=10 {
            assert!(
                found.iter().any(|it| it.place == format!("src/lib.rs:{line}")),
                "line {line} missing in {found:?}"
            );
        }
        for line in 11..=12 {
            assert!(
                !found.iter().any(|it| it.place == format!("src/lib.rs:{line}")),
                "line {line} is fine, yet {found:?}"
            );
        }
    }
}
