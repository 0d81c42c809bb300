//! Native modules for tests, built by the machine's C compiler when a test first wants them.

use crate::kit::TempDir;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The folder of this repository.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// `tests/modules/native/<name>.c` as a shared object, with more arguments for the compiler.
pub fn built(name: &str, folder: &Path, more: &[&str]) -> PathBuf {
    let source = root().join(format!("tests/modules/native/{name}.c"));
    let object = folder.join(format!("lib{name}.so"));
    let done = Command::new("cc")
        .args(["-O1", "-g", "-fPIC", "-shared", "-pthread", "-Wall", "-Wextra", "-Werror", "-I"])
        .arg(root().join("include"))
        .args(more)
        .arg("-o")
        .arg(&object)
        .arg(source)
        .status();
    assert!(done.expect("a C compiler called cc").success(), "the module {name} does not build");
    object
}

/// The same for `<name>.rs`, by the compiler that built this.
fn built_from_rust(name: &str, folder: &Path) -> PathBuf {
    let object = folder.join(format!("lib{name}.so"));
    let compiler = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let done = Command::new(compiler)
        .args(["--edition", "2024", "--crate-type", "cdylib", "-O", "-D", "warnings", "-o"])
        .arg(&object)
        .arg(root().join(format!("tests/modules/native/{name}.rs")))
        .status();
    assert!(done.expect("a Rust compiler called rustc").success(), "the module {name} does not build");
    object
}

/// The module in C with the plugins that are written for every runtime.
pub fn plugins_in_c() -> &'static Path {
    static BUILT: OnceLock<(TempDir, PathBuf)> = OnceLock::new();
    let (_, object) = BUILT.get_or_init(|| {
        let folder = TempDir::new();
        let object = built("plugins", folder.path(), &[]);
        (folder, object)
    });
    object
}

/// The same in Rust.
pub fn plugins_in_rust() -> &'static Path {
    static BUILT: OnceLock<(TempDir, PathBuf)> = OnceLock::new();
    let (_, object) = BUILT.get_or_init(|| {
        let folder = TempDir::new();
        let object = built_from_rust("plugins", folder.path());
        (folder, object)
    });
    object
}

/// The module with all the filters that tests use.
pub fn filters() -> &'static Path {
    static BUILT: OnceLock<(TempDir, PathBuf)> = OnceLock::new();
    once(&BUILT, "filters")
}

/// The module with the filter `script`, which does what each request's `x-do` says.
pub fn script() -> &'static Path {
    static BUILT: OnceLock<(TempDir, PathBuf)> = OnceLock::new();
    once(&BUILT, "script")
}

/// The module with the filter `asks`, which notes and asks for all that there is beside messages.
pub fn asks() -> &'static Path {
    static BUILT: OnceLock<(TempDir, PathBuf)> = OnceLock::new();
    once(&BUILT, "asks")
}

/// The module whose filters do what few do: spans, requests that begin anew, options of sockets.
pub fn extras() -> &'static Path {
    static BUILT: OnceLock<(TempDir, PathBuf)> = OnceLock::new();
    once(&BUILT, "extras")
}

/// The module whose filters' requests to clusters travel in pieces.
pub fn streams() -> &'static Path {
    static BUILT: OnceLock<(TempDir, PathBuf)> = OnceLock::new();
    once(&BUILT, "streams")
}

/// The module with the access logger `lines`, which writes to the file that its configuration names.
pub fn logger() -> &'static Path {
    static BUILT: OnceLock<(TempDir, PathBuf)> = OnceLock::new();
    once(&BUILT, "logger")
}

/// The module with filters of connections.
pub fn connections() -> &'static Path {
    static BUILT: OnceLock<(TempDir, PathBuf)> = OnceLock::new();
    once(&BUILT, "connections")
}

/// The module with filters of listeners.
pub fn listeners() -> &'static Path {
    static BUILT: OnceLock<(TempDir, PathBuf)> = OnceLock::new();
    once(&BUILT, "listeners")
}

fn once(built_once: &'static OnceLock<(TempDir, PathBuf)>, name: &str) -> &'static Path {
    let (_, object) = built_once.get_or_init(|| {
        let folder = TempDir::new();
        let object = built(name, folder.path(), &[]);
        (folder, object)
    });
    object
}

/// An example of the crate that modules in Rust are written with, as a shared object.
pub fn in_rust(name: &str) -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let folder =
        BUILT.get_or_init(|| cargo(&root().join("crates/module"), &["build", "--examples"]).join("debug/examples"));
    folder.join(format!("lib{name}.so"))
}

/// Runs Cargo in a folder, with a target of its own: the one of these tests may be locked. Answers that target.
pub fn cargo(folder: &Path, arguments: &[&str]) -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    let target = target.join("tools/native-rust");
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(folder).args(arguments).args(["--quiet", "--offline", "--target-dir"]).arg(&target);
    let done = command.status().expect("cargo starts");
    assert!(done.success(), "cargo {arguments:?} failed in {}", folder.display());
    target
}
