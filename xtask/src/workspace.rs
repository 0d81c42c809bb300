//! What the workspace is made of, as Cargo itself sees it.
//!
//! Used by every rule. It asks `cargo metadata` and never parses a manifest.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::{Checked, Finding};

/// The workspace: its root folder and its crates, sorted by name.
pub struct Workspace {
    pub root: PathBuf,
    pub crates: Vec<Crate>,
}

/// One crate of ours.
#[derive(Debug, PartialEq, Eq)]
pub struct Crate {
    /// The package name without the `postrider-` prefix: the name that ARCHITECTURE.md uses.
    pub name: String,
    /// Folder relative to the workspace root, such as `crates/proto/h1`.
    pub folder: String,
    /// Crates of ours that it is built from (build dependencies included).
    pub uses: Vec<String>,
    /// Crates of ours that only its tests use.
    pub tests_use: Vec<String>,
}

impl Workspace {
    /// Asks Cargo. Needs no network: dependencies outside the workspace are not resolved.
    pub fn load() -> Result<Self, String> {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let output = Command::new(cargo)
            .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
            .output()
            .map_err(|error| format!("cannot start cargo metadata: {error}"))?;
        if !output.status.success() {
            return Err(format!("cargo metadata failed:\n{}", String::from_utf8_lossy(&output.stderr)));
        }
        let metadata: Value =
            serde_json::from_slice(&output.stdout).map_err(|error| format!("cargo metadata: {error}"))?;
        Self::from_metadata(&metadata)
    }

    /// Reads the answer of `cargo metadata --no-deps`.
    pub fn from_metadata(metadata: &Value) -> Result<Self, String> {
        let root = PathBuf::from(text(metadata, "workspace_root")?);
        let packages = metadata["packages"].as_array().ok_or("cargo metadata: no packages")?;
        let mut crates = packages.iter().map(|package| read_crate(package, &root)).collect::<Result<Vec<_>, _>>()?;
        crates.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(Self { root, crates })
    }

    /// Every `.rs` file below a crate's folder (its own sub-crates excluded), sorted.
    pub fn rust_files(&self, of: &Crate) -> Result<Vec<PathBuf>, String> {
        let mut found = Vec::new();
        let inner: Vec<PathBuf> = self
            .crates
            .iter()
            .filter(|other| other.folder != of.folder && other.folder.starts_with(&format!("{}/", of.folder)))
            .map(|other| self.root.join(&other.folder))
            .collect();
        collect(&self.root.join(&of.folder), "rs", &inner, &mut found)?;
        found.sort();
        Ok(found)
    }

    /// What `find` says of each source file of these crates' libraries, given its place and its text.
    pub fn check_libraries(&self, names: &[&str], find: impl Fn(&str, &str) -> Vec<Finding>) -> Checked {
        let mut findings = Vec::new();
        for name in names {
            let it = self.named(name)?;
            let library = self.root.join(&it.folder).join("src");
            for path in self.rust_files(it)?.into_iter().filter(|path| path.starts_with(&library)) {
                let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
                findings.extend(find(&self.relative(&path), &text));
            }
        }
        Ok(findings)
    }

    /// Every file of the repository with this extension, build output and hidden folders excluded, sorted.
    pub fn files(&self, extension: &str) -> Result<Vec<PathBuf>, String> {
        let mut found = Vec::new();
        collect(&self.root, extension, &[], &mut found)?;
        found.sort();
        Ok(found)
    }

    /// A path as findings print it: relative to the root.
    pub fn relative(&self, path: &Path) -> String {
        path.strip_prefix(&self.root).unwrap_or(path).display().to_string()
    }

    /// The crate with this short name; a rule that names a crate which is gone must say so, not pass.
    pub fn named(&self, name: &str) -> Result<&Crate, String> {
        self.crates
            .iter()
            .find(|it| it.name == name)
            .ok_or(format!("the rule names `{name}`, but no such crate exists"))
    }
}

fn read_crate(package: &Value, root: &Path) -> Result<Crate, String> {
    let manifest = PathBuf::from(text(package, "manifest_path")?);
    let folder =
        manifest.parent().and_then(|folder| folder.strip_prefix(root).ok()).ok_or("a crate outside the root")?;
    let mut uses = Vec::new();
    let mut tests_use = Vec::new();
    for dependency in package["dependencies"].as_array().into_iter().flatten() {
        if dependency["path"].is_null() {
            continue;
        }
        let name = short(text(dependency, "name")?);
        if dependency["kind"] == "dev" { tests_use.push(name) } else { uses.push(name) }
    }
    for list in [&mut uses, &mut tests_use] {
        list.sort();
        list.dedup();
    }
    Ok(Crate { name: short(text(package, "name")?), folder: folder.display().to_string(), uses, tests_use })
}

fn short(package: &str) -> String {
    package.strip_prefix("postrider-").unwrap_or(package).to_owned()
}

fn text<'a>(value: &'a Value, key: &str) -> Result<&'a str, String> {
    value[key].as_str().ok_or(format!("cargo metadata: no `{key}`"))
}

fn collect(folder: &Path, extension: &str, skip: &[PathBuf], found: &mut Vec<PathBuf>) -> Result<(), String> {
    let entries = std::fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    for entry in entries {
        let path = entry.map_err(|error| format!("{}: {error}", folder.display()))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with('.') || name == "target" || skip.contains(&path) {
            continue;
        }
        if path.is_dir() {
            collect(&path, extension, skip, found)?;
        } else if path.extension().is_some_and(|it| it == extension) {
            found.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_crates_and_keeps_test_dependencies_apart() {
        let metadata = serde_json::json!({
            "workspace_root": "/r",
            "packages": [{
                "name": "postrider-h1",
                "manifest_path": "/r/crates/proto/h1/Cargo.toml",
                "dependencies": [
                    {"name": "postrider-http", "path": "/r/crates/http", "kind": null},
                    {"name": "postrider-testkit", "path": "/r/crates/testkit", "kind": "dev"},
                    {"name": "memchr", "kind": null}
                ]
            }]
        });
        let workspace = Workspace::from_metadata(&metadata).unwrap();
        assert_eq!(
            workspace.crates,
            [Crate {
                name: "h1".into(),
                folder: "crates/proto/h1".into(),
                uses: vec!["http".into()],
                tests_use: vec!["testkit".into()],
            }]
        );
        assert!(workspace.named("gone").is_err());
    }
}
