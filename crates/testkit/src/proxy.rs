//! Starts the proxy under test on a config, finds its ports, ends it.

use crate::admin::{self, Stats};
use crate::config::Config;
use crate::message::Response;
use crate::net::TempDir;
use crate::process::{self, Finished, Running};
use crate::{RawClient, wait_until};
use serde_json::Value;
use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::OnceLock;

/// Which proxy is under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flavour {
    Postrider,
    Envoy,
}

/// The admin page that lists accepted and refused configurations.
pub const HISTORY: &str = "/history?format=json";

/// A running proxy; killed on drop.
pub struct Proxy {
    process: Running,
    admin: SocketAddr,
    directory: TempDir,
    config: PathBuf,
    stderr: PathBuf,
    flavour: Flavour,
}

/// How to start it; `Default` suits most tests.
#[derive(Clone, Debug)]
pub struct Launch {
    pub concurrency: u32,
    pub arguments: Vec<String>,
    pub environment: Vec<(String, String)>,
    /// Another binary than the one under test, for running both side by side.
    pub binary: Option<PathBuf>,
}

impl Default for Launch {
    fn default() -> Self {
        Self { concurrency: 1, arguments: Vec::new(), environment: Vec::new(), binary: None }
    }
}

impl Launch {
    /// Adds command-line arguments.
    pub fn with_arguments(mut self, arguments: &[&str]) -> Self {
        self.arguments.extend(arguments.iter().map(|a| (*a).to_string()));
        self
    }

    /// Envoy instead of the binary under test: `$ENVOY_BIN`, or what is on `PATH`; `None` when there is none.
    pub fn envoy() -> Option<Self> {
        let named = std::env::var_os("ENVOY_BIN").map(PathBuf::from);
        let binary = named.or_else(|| process::program("envoy"))?;
        Some(Self { binary: Some(binary), ..Self::default() })
    }
}

impl Proxy {
    /// Starts on `config` with one worker and waits until it is live.
    pub fn start(config: &Config) -> Self {
        Self::start_with(config, Launch::default())
    }

    pub fn start_with(config: &Config, launch: Launch) -> Self {
        let directory = TempDir::new();
        let file = directory.write("config.yaml", config.to_yaml());
        Self::start_file(directory, file, launch)
    }

    /// Starts on a file that the test wrote itself into `directory`.
    pub fn start_file(directory: TempDir, config: PathBuf, launch: Launch) -> Self {
        let stderr = directory.path().join("stderr");
        let admin_file = directory.path().join("admin-address");
        let binary = launch.binary.as_deref().unwrap_or_else(|| binary());
        let flavour = flavour_of(binary);
        let mut command = serve_command(binary, &config);
        command
            .arg("--concurrency")
            .arg(launch.concurrency.to_string())
            .arg("--admin-address-path")
            .arg(&admin_file)
            .args(&launch.arguments)
            .envs(launch.environment.iter().cloned())
            .stdout(File::create(directory.path().join("stdout")).expect("stdout file"))
            .stderr(File::create(&stderr).expect("stderr file"));
        let mut process = Running::spawn(&mut command);
        let mut admin = None;
        wait_until("the proxy to be live", || {
            if let Some(status) = process.exited() {
                panic!("exited with {status}:\n{}", read(&stderr));
            }
            admin = read(&admin_file).trim().parse().ok();
            admin.is_some_and(admin::is_ready)
        });
        let admin = admin.expect("an admin address");
        Self { process, admin, directory, config, stderr, flavour }
    }

    pub fn flavour(&self) -> Flavour {
        self.flavour
    }

    /// The address of a listener, by its name.
    pub fn address(&self, listener: &str) -> SocketAddr {
        let mut found = None;
        wait_until(&format!("listener {listener}"), || {
            found = self.find_address(listener);
            found.is_some()
        });
        found.expect("an address")
    }

    fn find_address(&self, listener: &str) -> Option<SocketAddr> {
        let listeners = self.admin_json("/listeners?format=json");
        let statuses = listeners["listener_statuses"].as_array()?;
        let status = statuses.iter().find(|status| status["name"] == listener)?;
        let address = &status["local_address"]["socket_address"];
        let host = address["address"].as_str()?.parse().ok()?;
        let port = u16::try_from(address["port_value"].as_u64()?).ok()?;
        Some(SocketAddr::new(host, port))
    }

    /// A client connected to the listener `http`.
    pub fn client(&self) -> RawClient {
        RawClient::connect(self.address("http"))
    }

    /// One request to the listener `http`, on a connection of its own.
    pub fn exchange(&self, request: impl AsRef<[u8]>) -> Response {
        self.client().exchange(request)
    }

    /// A plain GET.
    pub fn get(&self, path: &str) -> Response {
        self.exchange(format!("GET {path} HTTP/1.1\r\nhost: test\r\n\r\n"))
    }

    pub fn admin_address(&self) -> SocketAddr {
        self.admin
    }

    pub fn admin_get(&self, path: &str) -> Response {
        admin::get(self.admin, path)
    }

    pub fn admin_post(&self, path: &str) -> Response {
        admin::post(self.admin, path)
    }

    pub fn admin_json(&self, path: &str) -> Value {
        admin::json(self.admin, path)
    }

    pub fn stats(&self) -> Stats {
        Stats::fetch(self.admin)
    }

    /// Waits until a counter or gauge has a value.
    pub fn wait_stat(&self, name: &str, value: u64) {
        let mut last = 0;
        wait_until(&format!("{name} = {value}"), || {
            last = self.stats().value(name);
            last == value
        });
    }

    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Resident memory in KiB, without pages of files.
    pub fn resident_kib(&self) -> u64 {
        process::resident_kib(self.pid())
    }

    /// The processes that it started and that are still there.
    pub fn children(&self) -> Vec<u32> {
        process::children(self.pid())
    }

    pub fn directory(&self) -> &TempDir {
        &self.directory
    }

    pub fn config_path(&self) -> &Path {
        &self.config
    }

    /// What it has written to its standard error so far.
    pub fn stderr(&self) -> String {
        read(&self.stderr)
    }

    pub fn signal(&mut self, name: &str) {
        self.process.signal(name);
    }

    /// Waits for it to end by itself.
    pub fn wait_exit(&mut self) -> ExitStatus {
        self.process.wait()
    }

    /// The history of configurations, newest first; each entry has a `time`, a
    /// `source`, an `outcome` (`accepted` or `refused`) and `changes` or
    /// `errors`.
    pub fn history(&self) -> Vec<Value> {
        self.admin_json(HISTORY)["history"].as_array().cloned().unwrap_or_default()
    }

    /// The newest entry of the history.
    pub fn latest_verdict(&self) -> Option<Value> {
        self.history().into_iter().next()
    }

    /// Writes a new config over the running one (by rename), and waits for the
    /// verdict in the admin's history, which it returns. The proxy watches the
    /// file. A SIGHUP beside that might be heard after the verdict, and its own
    /// verdict be taken for that of the next config: it is sent for the same
    /// text only, which nobody notices otherwise.
    pub fn reload(&mut self, text: impl AsRef<[u8]>) -> Value {
        let before = self.latest_verdict();
        let name = self.config.file_name().and_then(|n| n.to_str()).expect("a file name");
        let is_same = std::fs::read(&self.config).is_ok_and(|now| now == text.as_ref());
        self.directory.write(name, text);
        if is_same {
            self.signal("HUP");
        }
        self.await_verdict(before.as_ref())
    }

    /// Waits until the newest entry is another than `before` and returns it.
    pub fn await_verdict(&self, before: Option<&Value>) -> Value {
        let mut latest = None;
        wait_until("a verdict on the new config", || {
            latest = self.latest_verdict();
            latest.is_some() && latest.as_ref() != before
        });
        latest.expect("an entry")
    }
}

/// Whether a history entry was accepted.
pub fn accepted(entry: &Value) -> bool {
    entry["outcome"] == "accepted"
}

/// Which proxy is under test.
pub fn flavour() -> Flavour {
    flavour_of(binary())
}

fn flavour_of(binary: &Path) -> Flavour {
    match binary.file_name() {
        Some(name) if name.to_string_lossy().contains("envoy") => Flavour::Envoy,
        _ => Flavour::Postrider,
    }
}

/// The binary under test. Without `POSTRIDER_BIN` the workspace's own is
/// brought up to date first, once per test process.
pub fn binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| match std::env::var_os("POSTRIDER_BIN") {
        Some(path) if Path::new(&path).components().count() > 1 => path.into(),
        Some(name) => process::program(&name).expect("POSTRIDER_BIN is not on PATH"),
        None => build(),
    })
}

/// Runs the binary under test to its end with the given arguments.
pub fn run(arguments: &[&str]) -> Finished {
    process::run(Command::new(binary()).args(arguments))
}

/// `postrider run -c FILE`, or Envoy's equivalent.
fn serve_command(binary: &Path, config: &Path) -> Command {
    let mut command = Command::new(binary);
    match flavour_of(binary) {
        // A module's memory must not begin anew in the midst of a test because there is faster code for it.
        Flavour::Postrider => command.env("POSTRIDER_OPTIMIZE_WASM_FIRST", "true").arg("run"),
        Flavour::Envoy => command.args(["--disable-hot-restart", "--log-level", "warning"]),
    };
    command.arg("-c").arg(config);
    command
}

/// Builds `postrider` in the profile and target folder of this test.
fn build() -> PathBuf {
    // target/<profile>/deps/<test>
    let test = std::env::current_exe().expect("own path");
    let profile = test.parent().and_then(Path::parent).expect("a profile folder");
    let name = profile.file_name().and_then(|n| n.to_str()).expect("a profile");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
        .args(["build", "--quiet", "-p", "postrider", "--profile"])
        .arg(if name == "debug" { "dev" } else { name })
        .arg("--target-dir")
        .arg(profile.parent().expect("a target folder"));
    assert!(command.status().expect("cargo").success(), "building postrider failed");
    profile.join("postrider")
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}
