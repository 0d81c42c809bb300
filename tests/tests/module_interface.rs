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

/// The header for modules in C.
const HEADER: &str = include_str!("../../include/postrider_module.h");

#[test]
fn the_header_has_every_function_that_does_something() {
    let kinds =
        [("callback", "envoy_dynamic_module_callback_", " nothing"), ("hook", "envoy_dynamic_module_on_", " called")];
    for (kind, prefix, done) in kinds {
        let does = |line: &&str| line.starts_with(kind) && (line.ends_with(" works") || line.ends_with(done));
        for line in INTERFACE.lines().filter(does) {
            let name = format!("{prefix}{}(", line.split(' ').nth(1).unwrap());
            assert!(HEADER.contains(&name), "{name} is not in the header");
        }
    }
}

#[test]
fn the_header_is_one_for_cpp_too() {
    let text = HEADER.split("/*").flat_map(|part| part.split_once("*/").map_or(part, |(_, code)| code).split('\n'));
    let code =
        text.filter(|line| !line.starts_with('#') && !line.contains("extern \"C\"")).collect::<Vec<_>>().join("\n");
    let words: BTreeSet<&str> = code.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_').collect();
    let of_cpp = [
        "and",
        "catch",
        "class",
        "delete",
        "explicit",
        "export",
        "friend",
        "mutable",
        "namespace",
        "new",
        "not",
        "operator",
        "or",
        "private",
        "protected",
        "public",
        "template",
        "this",
        "throw",
        "try",
        "typename",
        "using",
        "virtual",
        "xor",
    ];
    let found: Vec<&&str> = of_cpp.iter().filter(|word| words.contains(**word)).collect();
    assert!(found.is_empty(), "words of C++ are names: {found:?}");
}
