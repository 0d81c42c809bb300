//! Rule: every config that a user can copy from examples/ or docs/ is accepted by the binary, and serves.
//!
//! A fenced `yaml` block of docs/ counts when it is a whole config, that is when it has `static_resources:` or
//! `listen:` in its first column; a fragment is left alone. Certificates and plugins that a page's configs name are made by the
//! page's own commands, which are run first: its `sh` blocks with `openssl req`, and those that write a source and build it by
//! `cc` or `go build`.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::launch;
use crate::workspace::Workspace;
use crate::{Checked, Finding};

pub fn check(workspace: &Workspace, binary: &Path) -> Checked {
    let scratch = std::env::temp_dir().join(format!("postrider-xtask-examples-{}", std::process::id()));
    std::fs::create_dir_all(&scratch).map_err(|error| format!("{}: {error}", scratch.display()))?;
    // The binary runs where the files of its configs are.
    let binary = binary.canonicalize().map_err(|error| format!("{}: {error}", binary.display()))?;
    let checked = check_all(workspace, &binary, &scratch);
    let _ = std::fs::remove_dir_all(&scratch);
    checked
}

fn check_all(workspace: &Workspace, binary: &Path, scratch: &Path) -> Checked {
    let mut configs = Vec::new();
    for path in workspace.files("yaml")? {
        let place = workspace.relative(&path);
        if place.starts_with("examples/") {
            configs.push((place, read(&path)?));
        }
    }
    for path in workspace.files("md")? {
        let place = workspace.relative(&path);
        if place.starts_with("docs/") || place == "README.md" {
            let document = read(&path)?;
            let blocks = whole_configs(&document);
            for commands in blocks_of(&document, "sh").filter(|commands| makes_files(commands)) {
                prepare(&commands, &place, (&workspace.root, scratch))?;
            }
            configs.extend(blocks.into_iter().map(|(line, config)| (format!("{place}:{line}"), config)));
        }
    }
    if configs.is_empty() {
        return Err("no example found: the rule would pass without looking".to_owned());
    }
    let mut findings = Vec::new();
    for (number, (place, config)) in configs.iter().enumerate() {
        let file = scratch.join(format!("{number}.yaml"));
        write(&file, config)?;
        if let Err(said) = validate(binary, &file, scratch)? {
            findings.push(Finding::at(place, format!("is refused:\n{said}")));
            continue;
        }
        write(&file, &on_free_ports(config))?;
        if let Err(why) = launch::serves(binary, &file, scratch) {
            findings.push(Finding::at(place, format!("does not start: {why}")));
        }
    }
    println!("examples: {} configs validated and started", configs.len() - findings.len());
    Ok(findings)
}

/// Whether these commands make something that a config names.
fn makes_files(commands: &str) -> bool {
    let builds = |line: &str| line.starts_with("cc ") || line.starts_with("go build ");
    commands.contains("openssl req") || commands.contains("<<'END'") && commands.lines().any(builds)
}

/// Makes the files that a page's commands make. Pages call the checkout `POSTRIDER`.
fn prepare(commands: &str, place: &str, (root, scratch): (&Path, &Path)) -> Result<(), String> {
    let output = Command::new("sh").args(["-ec", commands]).env("POSTRIDER", root).current_dir(scratch).output();
    let output = output.map_err(|error| format!("cannot start sh: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("{place}: its commands fail: {}", String::from_utf8_lossy(&output.stderr))),
    }
}

fn validate(binary: &Path, file: &Path, scratch: &Path) -> Result<Result<(), String>, String> {
    let output = Command::new(binary)
        .arg("validate")
        .arg(file)
        .current_dir(scratch)
        .output()
        .map_err(|error| format!("cannot start {}: {error}", binary.display()))?;
    let said = [output.stdout, output.stderr].concat();
    Ok(if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&said).into_owned()) })
}

/// The fenced `yaml` blocks that are whole configs, with the line on which each begins.
fn whole_configs(document: &str) -> Vec<(usize, String)> {
    let is_whole = |text: &str| text.lines().any(|it| it.starts_with("static_resources:") || it.starts_with("listen:"));
    fenced(document, "yaml").into_iter().filter(|(_, text)| is_whole(text)).collect()
}

fn blocks_of(document: &str, language: &str) -> impl Iterator<Item = String> {
    fenced(document, language).into_iter().map(|(_, text)| text)
}

/// The fenced blocks of a language, with the line on which each begins.
fn fenced(document: &str, language: &str) -> Vec<(usize, String)> {
    let fence = format!("```{language}");
    let mut found = Vec::new();
    let mut block: Option<(usize, String)> = None;
    for (index, line) in document.lines().enumerate() {
        match &mut block {
            None if line == fence => block = Some((index + 2, String::new())),
            None => {}
            Some((start, text)) if line == "```" => {
                found.push((*start, std::mem::take(text)));
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

/// Ports that our examples listen on. A test uses free ones instead; upstream ports stay, nothing connects to them.
const LISTENING_PORTS: &[&str] = &["10000", "9901", "12200", "8080", "8443"];

/// The same config with every listening port 0, and with an admin endpoint.
fn on_free_ports(config: &str) -> String {
    let mut config = config.to_owned();
    for port in LISTENING_PORTS {
        config = config.replace(&format!("port_value: {port} "), "port_value: 0 ");
        config = config.replace(&format!(":{port}\""), ":0\"");
    }
    if !config.lines().any(|line| line.starts_with("admin:")) {
        let short = config.lines().any(|line| line.starts_with("listen:"));
        config.push_str(if short {
            "admin: \"127.0.0.1:0\"\n"
        } else {
            "admin: { address: { socket_address: { address: 127.0.0.1, port_value: 0 } } }\n"
        });
    }
    config
}

fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn write(path: &PathBuf, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
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

    #[test]
    fn commands_that_make_files_are_told_from_others() {
        for commands in
            ["openssl req -x509", "cat > a.c <<'END'\nEND\ncc -o a.so a.c", "cat > a.go <<'END'\nEND\ngo build ."]
        {
            assert!(makes_files(commands), "{commands}");
        }
        for commands in ["cc -o a.so a.c", "cat > a.c <<'END'\nEND\nclang a.c", "postrider run -c proxy.yaml"] {
            assert!(!makes_files(commands), "{commands}");
        }
    }

    #[test]
    fn a_test_listens_on_free_ports_only() {
        assert_eq!(
            on_free_ports("admin: x\na: { address: 127.0.0.1, port_value: 10000 }\nb: { port_value: 9000 }\n"),
            "admin: x\na: { address: 127.0.0.1, port_value: 0 }\nb: { port_value: 9000 }\n"
        );
        assert_eq!(on_free_ports("listen: \":8080\"\n"), "listen: \":0\"\nadmin: \"127.0.0.1:0\"\n");
        assert!(on_free_ports("static_resources: {}\n").ends_with("port_value: 0 } } }\n"));
    }
}
