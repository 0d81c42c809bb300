//! The built binary, run as a process: exit codes, streams, and what goes where.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

/// A folder that goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn write(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const SHORT: &str = "listen: \"127.0.0.1:0\"\nroutes:\n- { match: /a, to: \"http://127.0.0.1:9000\" }\n";

/// One unknown field, one unknown key of a route: two errors.
const BROKEN: &str = "static_resources: {listeners: [{nam: x}], clusters: [{name: c, conect_timeout: 1s}]}\n";

const V2: &str =
    "admin: {access_log_path: /dev/null, address: {socket_address: {address: 127.0.0.1, port_value: 0}}}\n";

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_postrider"));
    command.args(arguments).env_remove("POSTRIDER_CONFIG_PATH").stdin(Stdio::null());
    command
}

#[track_caller]
fn expect(arguments: &[&str], code: i32) -> (String, String) {
    expect_of(&mut command(arguments), code)
}

#[track_caller]
fn expect_of(command: &mut Command, code: i32) -> (String, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let (stdout, stderr) = (String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap());
    assert_eq!(status.code(), Some(code), "{command:?}\n{stdout}\n{stderr}");
    (stdout, stderr)
}

#[test]
fn the_exit_code_says_what_kind_of_failure_it_was() {
    let folder = Folder::new("exit");
    let (good, broken) = (folder.write("good.yaml", SHORT), folder.write("broken.yaml", BROKEN));
    for (arguments, code) in [
        (&["validate", &good][..], 0),
        (&["validate", &good, &broken], 3),
        (&["validate", &good, "no/such.yaml"], 1),
        (&["validate"], 2),
        (&["validate", &good, "--output", "xml"], 2),
        (&["run", "-c", &broken], 3),
        (&["-c", &broken], 3),
        (&["-c", "no/such.yaml"], 1),
        (&["run"], 2),
        (&["frobnicate"], 2),
        (&["run", "--no-such-flag"], 2),
        (&["explain", &good, "GET", "no-url"], 2),
        (&["explain", &broken, "GET", "http://a/"], 3),
        (&["convert", &broken, "--to", "envoy"], 3),
        (&["doctor", &broken], 3),
        (&["--help"], 0),
        (&["--version"], 0),
    ] {
        expect(arguments, code);
    }
}

#[test]
fn errors_go_to_standard_error_and_results_to_standard_output() {
    let folder = Folder::new("streams");
    let (stdout, stderr) = expect(&["validate", &folder.write("good.yaml", SHORT)], 0);
    assert!(stdout.contains("OK (1 listener, 1 route, 1 cluster)") && stderr.is_empty(), "{stdout}{stderr}");
    let broken = folder.write("broken.yaml", BROKEN);
    let (stdout, stderr) = expect(&["validate", &broken], 3);
    assert!(stdout.is_empty() && stderr.contains("did you mean `connect_timeout`?"), "{stdout}{stderr}");
    assert!(!stderr.contains('\x1b'), "colour without a terminal");
    let (stdout, stderr) = expect(&["validate", &broken, "--output", "json"], 3);
    let report: Value = serde_json::from_str(&stdout).unwrap();
    assert!(report["valid"] == false && report["errors"].as_u64() > Some(1) && stderr.is_empty(), "{report:#}{stderr}");
}

#[test]
fn standard_input_is_read_for_a_dash() {
    let mut child = command(&["validate", "-"]).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(BROKEN.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&output.stderr).contains("<stdin>:1:"), "{output:?}");
}

#[test]
fn flags_can_stand_in_the_environment() {
    let folder = Folder::new("environment");
    let good = folder.write("good.yaml", SHORT);
    let mut run = command(&[]);
    run.env("POSTRIDER_CONFIG_PATH", &good)
        .env("POSTRIDER_MODE", "validate")
        .env("POSTRIDER_ENABLE_MUTEX_TRACING", "1");
    let (stdout, stderr) = expect_of(&mut run, 0);
    assert_eq!(stdout, format!("configuration '{good}' OK\n"));
    assert_eq!(stderr.matches("--enable-mutex-tracing has no effect").count(), 1, "{stderr}");
    expect_of(command(&["-c", &good, "--mode", "validate"]).env("POSTRIDER_CONCURRENCY", "many"), 2);
}

#[test]
fn under_another_name_the_flags_are_envoys() {
    let folder = Folder::new("name");
    let good = folder.write("good.yaml", SHORT);
    let other = folder.0.join("envoy");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_postrider"), &other).unwrap();
    expect_of(Command::new(&other).args(["-c", &good, "--mode", "validate"]), 0);
    expect_of(Command::new(&other).args(["validate", &good]), 2);
    let (stdout, _) = expect_of(Command::new(&other).arg("--version"), 0);
    assert!(
        stdout.trim().starts_with(&format!("{}  version: ", other.display())) && stdout.contains("/1.40.0/"),
        "{stdout}"
    );
    let (stdout, _) = expect_of(Command::new(&other).arg("--hot-restart-version"), 0);
    assert_eq!(stdout, "disabled");
}

#[test]
fn the_configuration_is_not_served_in_mode_validate_and_inline_yaml_may_stand_alone() {
    let (stdout, _) = expect(&["--mode", "validate", "--config-yaml", SHORT], 0);
    assert!(stdout.contains("OK"), "{stdout}");
    let (_, stderr) = expect(&["--mode", "validate", "--config-yaml", BROKEN], 3);
    assert!(stderr.contains("error["), "{stderr}");
}

#[test]
fn migrate_prints_or_replaces_or_only_tells() {
    let folder = Folder::new("migrate");
    let file = folder.write("v2.yaml", V2);
    let (printed, told) = expect(&["migrate", &file], 0);
    assert!(!printed.contains("access_log_path: ") && told.contains("access_log_path"), "{printed}{told}");
    let (stdout, _) = expect(&["migrate", &file, "--dry-run"], 0);
    assert_eq!((stdout.as_str(), fs::read_to_string(&file).unwrap().as_str()), ("", V2));
    let (stdout, _) = expect(&["migrate", &file, "--write"], 0);
    assert_eq!((stdout, fs::read_to_string(&file).unwrap()), (String::new(), printed));
    assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 1, "nothing is left beside the file");
    expect(&["migrate", &file, "--write", "--dry-run"], 2);
    expect(&["migrate", "-", "--write"], 2);
}

#[test]
fn convert_prints_what_validates_and_means_the_same() {
    let folder = Folder::new("convert");
    let (long, _) = expect(&["convert", &folder.write("short.yaml", SHORT), "--to", "envoy"], 0);
    let (stdout, _) = expect(&["validate", &folder.write("long.yaml", &long)], 0);
    assert!(stdout.contains("(1 listener, 1 route, 1 cluster)"), "{stdout}");
}

#[test]
fn explain_and_doctor_speak_json() {
    let folder = Folder::new("json");
    let file = folder.write("short.yaml", SHORT);
    let (stdout, _) = expect(&["explain", &file, "GET", "http://x/a/../a/b", "--output", "json"], 0);
    let report: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(
        (&report["request"]["path"], &report["route"]["forward"]["clusters"][0]["host"]),
        (&"/a/b".into(), &"127.0.0.1:9000".into())
    );
    let (stdout, _) = expect(&["doctor", &file, "--output", "json"], 0);
    let report: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(report["unsupported"], 0, "{report:#}");
}

#[test]
fn version_and_completion_are_for_people_and_machines() {
    let (stdout, _) = expect(&["version", "--output", "json"], 0);
    let version: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(version["version"], env!("CARGO_PKG_VERSION"));
    for shell in ["bash", "zsh", "fish"] {
        let (script, _) = expect(&["completion", shell], 0);
        assert!(script.contains("demo-upstream") && script.contains("drain-strategy"), "{shell}");
    }
}

/// Ends its process with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_demo_upstream_answers_what_it_was_asked() {
    let child = command(&["demo-upstream", "--listen", "127.0.0.1:0"]).stderr(Stdio::piped()).spawn().unwrap();
    let mut running = Running(child);
    let mut line = String::new();
    BufReader::new(running.0.stderr.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("demo upstream on http://").unwrap_or_else(|| panic!("{line}"));
    let mut stream = TcpStream::connect(address).unwrap();
    stream
        .write_all(
            b"POST /hello?x HTTP/1.1\r\nhost: a\r\nx-me: you\r\ncontent-length: 2\r\nconnection: close\r\n\r\nhi",
        )
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    for part in ["POST /hello?x HTTP/1.1\n", "x-me: you\n", "a body of 2 bytes\n"] {
        assert!(answer.contains(part), "{part} is not in {answer}");
    }
}
