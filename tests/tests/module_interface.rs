//! Which functions of the binary interface for modules the executables export: Envoy 1.40's list, and ours.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use postrider_tests::kit::proxy::{Launch, binary};
use postrider_tests::postrider_only;

/// Each with what it does here.
const INTERFACE: &str = include_str!("../../crates/filter/module/src/interface.txt");

/// The names of a kind, as they are exported.
fn listed(kind: &str, prefix: &str) -> BTreeSet<String> {
    let names = INTERFACE.lines().filter_map(|line| line.strip_prefix(kind)?.strip_prefix(' ')?.split(' ').next());
    names.map(|name| format!("{prefix}{name}")).collect()
}

/// Names of the interface in what an executable exports: its own functions, and those of modules behind a prefix, as Envoy has a
/// module built in.
fn exported(executable: &Path) -> BTreeSet<String> {
    let listed =
        Command::new("nm").args(["-D", "--defined-only"]).arg(executable).output().expect("nm of the binutils");
    assert!(listed.status.success(), "{}: {}", executable.display(), String::from_utf8_lossy(&listed.stderr));
    let text = String::from_utf8_lossy(&listed.stdout);
    let of_name = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'_';
    let names = text.lines().flat_map(|line| line.match_indices("envoy_dynamic_module_").map(|(at, _)| &line[at..]));
    let names = names.map(|name| &name[..name.bytes().take_while(of_name).count()]);
    let kinds = ["envoy_dynamic_module_callback_", "envoy_dynamic_module_on_"];
    names.filter(|name| kinds.iter().any(|kind| name.starts_with(kind))).map(str::to_owned).collect()
}

/// The executable itself, where what is started is a script of a package that brings it.
fn envoy() -> Option<PathBuf> {
    let started = Launch::envoy()?.binary?.canonicalize().ok()?;
    if std::fs::read(&started).ok()?.starts_with(b"\x7fELF") {
        return Some(started);
    }
    let packages = started.parent()?.parent()?.join("lib").read_dir().ok()?;
    let mut brought = packages.flatten().map(|python| python.path().join("site-packages/envoy/_bin/envoy"));
    brought.find(|path| path.is_file())
}

#[test]
fn the_list_is_envoys() {
    let envoy = envoy().expect("Envoy 1.40 is needed to compare with: set ENVOY_BIN");
    let mut wanted = listed("callback", "envoy_dynamic_module_callback_");
    wanted.extend(listed("hook", "envoy_dynamic_module_on_"));
    let there = exported(&envoy);
    assert_eq!(there.difference(&wanted).collect::<Vec<_>>(), Vec::<&String>::new(), "of Envoy, and not in the list");
    assert_eq!(wanted.difference(&there).collect::<Vec<_>>(), Vec::<&String>::new(), "in the list, and not of Envoy");
}

#[test]
fn every_function_is_there_for_modules() {
    if postrider_only() {
        assert_eq!(exported(binary()), listed("callback", "envoy_dynamic_module_callback_"));
    }
}
