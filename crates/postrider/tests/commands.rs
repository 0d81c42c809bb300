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

#[test]
fn a_new_plugin_passes_its_tests_runs_and_is_never_overwritten() {
    let folder = Folder::new("plugin-new");
    let place = folder.0.to_str().unwrap();
    for runtime in ["rider", "envoy-lua"] {
        let (stdout, _) = expect(&["plugin", "new", runtime, "--dir", place, "--runtime", runtime], 0);
        assert_eq!(stdout.lines().count(), 4, "{stdout}");
        let inside = folder.0.join(runtime);
        let (stdout, _) = expect_of(command(&["plugin", "test"]).current_dir(&inside), 0);
        assert!(stdout.contains("3 passed, 0 failed") && stdout.contains("plugin.lua: 100% of lines"), "{stdout}");
        expect_of(command(&["validate", "proxy.yaml"]).current_dir(&inside), 0);
        let (stdout, _) =
            expect_of(command(&["plugin", "run", "plugin.lua", "-H", "x-refuse: 1"]).current_dir(&inside), 0);
        assert!(stdout.contains("    :status: 403\n"), "{stdout}");
    }
    let plugin = folder.0.join("rider/plugin.lua");
    fs::write(&plugin, "-- mine\n").unwrap();
    let (_, stderr) = expect(&["plugin", "new", "rider", "--dir", place], 1);
    assert!(stderr.contains("plugin.lua is there already"), "{stderr}");
    assert_eq!(fs::read_to_string(&plugin).unwrap(), "-- mine\n");
    expect(&["plugin", "new", "no name", "--dir", place], 2);
}

/// For Envoy's filter, with what every version of its objects has.
const MARK: &str = "function envoy_on_request(handle)
  local headers = handle:headers()
  headers:replace('x-mark', headers:get(':path') .. 'VERSION')
  if headers:get('x-break') then error('as asked') end
end
";

#[test]
fn plugin_run_shows_what_a_plugin_does() {
    let folder = Folder::new("plugin-run");
    let plugin = folder.write("mark.lua", MARK);
    let (stdout, _) = expect(&["plugin", "run", &plugin, "--request", "GET /a", "-H", "x-mark: old"], 0);
    assert!(stdout.contains("  ~ x-mark: old -> /aVERSION\n"), "{stdout}");
    let (stdout, _) = expect(&["plugin", "run", &plugin, "--json", "--body", "hello", "--response", "404"], 0);
    let report: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(
        (&report["request"]["added"]["x-mark"][0], &report["request"]["body"], &report["response"]["headers"][0][1]),
        (&"/VERSION".into(), &"hello".into(), &"404".into())
    );
    let (stdout, _) = expect(&["plugin", "run", &plugin, "-H", "x-break: 1"], 1);
    assert!(stdout.contains("mark.lua:4: as asked"), "{stdout}");
    for (arguments, code) in [
        (&["no/such.lua"][..], 1),
        (&[&plugin, "--request", "GET"], 2),
        (&[&plugin, "-H", "x"], 2),
        (&[&plugin, "--config", "{"], 2),
        (&[&plugin, "--call", "auth"], 2),
        (&[&plugin, "--body", "@no/such"], 1),
        (&[&plugin, "--runtime", "basic"], 2),
    ] {
        expect(&[&["plugin", "run"], arguments].concat(), code);
    }
}

#[test]
fn plugin_test_fails_with_the_place() {
    let folder = Folder::new("plugin-test");
    folder.write("mark.lua", MARK);
    let case = "local test = require('postrider.test')\ntest.case('marks', function()\n  test.equal(test.stream {}:run().request.headers['x-mark'], 'no')\nend)\n";
    let file = folder.write("mark_test.lua", case);
    let (stdout, _) = expect(&["plugin", "test", &file], 1);
    for part in ["  FAIL  marks", "mark_test.lua:3: not equal", "expected  \"no\"", "actual    \"/VERSION\""] {
        assert!(stdout.contains(part), "{part} is not in {stdout}");
    }
    let (stdout, _) = expect(&["plugin", "test", &file, "--json"], 1);
    let report: Value = serde_json::from_str(&stdout).unwrap();
    let failure = &report["files"][0]["cases"][0]["failure"];
    assert_eq!((&report["passed"], &failure["expected"]), (&false.into(), &"\"no\"".into()), "{report:#}");
    expect(&["plugin", "test", "no/such"], 1);
    let empty = Folder::new("plugin-no-test");
    expect(&["plugin", "test", empty.0.to_str().unwrap()], 1);
}

const PROXY: &str = r#"
admin: { address: { socket_address: { address: 127.0.0.1, port_value: 0 } } }
static_resources:
  listeners:
  - name: web
    address: { socket_address: { address: 127.0.0.1, port_value: 0 } }
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: web
          route_config:
            virtual_hosts:
            - name: all
              domains: ["*"]
              routes:
              - name: everything
                match: { prefix: "/" }
                direct_response: { status: 200 }
                response_headers_to_add:
                - header: { key: x-seen, value: "%REQ(x-mark)%" }
          http_filters:
          - name: mark
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua
              default_source_code: { filename: PLUGIN }
          - name: envoy.filters.http.router
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router
"#;

/// One request to a port of this machine; the whole answer.
fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn code_that_is_not_fetched_is_told_where_it_is_asked_for() {
    let folder = Folder::new("not-fetched");
    let text = "listen: \"127.0.0.1:0\"\nplugins:\n- name: p\n  runtime: rider\n  code: { remote: { url: \"https://a.test/p.lua\", \
                sha256: 8f434346648f6b96df89dda901c5176b10a6d83961dd3c1ac88b59b2dc327aa4 } }\n\
                routes: [{ to: \"http://127.0.0.1:9000\" }]\n";
    let (_, said) = expect(&["validate", &folder.write("p.yaml", text)], 0);
    assert!(said.contains("p.yaml:5:19: warning[code-not-fetched]: code from https://a.test/p.lua"), "{said}");
    assert!(said.contains("= path: plugins[0].code.remote\n"), "{said}");
}

#[test]
fn a_changed_plugin_is_taken_a_broken_one_is_refused_and_top_shows_both() {
    let folder = Folder::new("plugin-live");
    let plugin = folder.write("mark.lua", &MARK.replace("VERSION", "-one"));
    let config = folder.write("proxy.yaml", &PROXY.replace("PLUGIN", &plugin));
    let child = command(&["run", "-c", &config, "--concurrency", "1"]).stderr(Stdio::piped()).spawn().unwrap();
    let mut running = Running(child);
    let mut log = BufReader::new(running.0.stderr.take().unwrap()).lines().map_while(Result::ok);
    let mut told = |what: &str| log.find_map(|line| line.split_once(what).map(|(_, rest)| rest.to_owned())).unwrap();
    let admin = told("admin address: ");
    let web = told("listener web: ");
    told("ready with");
    let seen = |mark: &str| get(&web, "/x").contains(&format!("x-seen: /x{mark}\r\n"));
    assert!(seen("-one"));
    folder.write("mark.lua", &MARK.replace("VERSION", "-two"));
    told("configuration reloaded: 1 part(s) changed");
    assert!(seen("-two"));
    folder.write("mark.lua", "function (");
    assert!(told("configuration refused").contains("mark.lua:1:"));
    assert!(seen("-two"));
    folder.write("mark.lua", &MARK.replace("VERSION", "-three"));
    told("configuration reloaded: 1 part(s) changed");
    assert!(seen("-three"));
    let page = get(&admin, "/plugins");
    assert!(page.contains("mark (envoy-lua): circuit closed") && page.contains("route everything: calls "), "{page}");
    assert!(get(&admin, "/history").contains("  ~ plugin mark\n"));
    let (stdout, _) = expect(&["top", "--admin", &admin, "--once", "--interval", "50ms"], 0);
    assert!(stdout.contains(" requests/s\n") && stdout.contains("mark") && stdout.contains("everything"), "{stdout}");
    let (stdout, _) = expect(&["top", "--admin", &admin, "--once", "--interval", "50ms", "--json"], 0);
    let rates: Value = serde_json::from_str(&stdout).unwrap();
    let of_route = &rates["filters"][0];
    assert_eq!((&of_route["filter"], &of_route["route"]), (&"mark".into(), &"everything".into()), "{rates:#}");
    assert!(of_route["p99_us"].as_f64() > Some(0.0), "time is measured finely: {rates:#}");
    look_at_a_terminal(&admin);
    expect(&["top", "--admin", "127.0.0.1:1", "--once"], 1);
    expect(&["top", "--interval", "never"], 2);
}

/// `top` on a terminal of its own, with keys.
fn look_at_a_terminal(admin: &str) {
    let top = format!("{} top --interval 20ms --admin {admin}", env!("CARGO_BIN_EXE_postrider"));
    let mut child = Command::new("timeout");
    child
        .args(["20", "script", "-qec", &top, "/dev/null"])
        .env("TERM", "xterm")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut running = Running(child.spawn().unwrap());
    let (mut keys, mut screen) = (running.0.stdin.take().unwrap(), running.0.stdout.take().unwrap());
    let mut seen = String::new();
    let mut await_text = |text: &str| {
        let mut piece = [0; 4096];
        while !seen.contains(text) {
            let count = screen.read(&mut piece).unwrap();
            assert!(count > 0, "{text}: {seen:?}");
            seen.push_str(&String::from_utf8_lossy(&piece[..count]));
        }
    };
    await_text("[1 listeners]");
    keys.write_all(b"4").unwrap();
    await_text("[4 filters]");
    await_text("mark");
    keys.write_all(b"q").unwrap();
    // What was on the terminal before comes back.
    await_text("\x1b[?1049l");
    assert!(running.0.wait().unwrap().success());
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
