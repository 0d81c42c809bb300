//! The rig: starts an upstream and a proxy for one sample, waits until the proxy answers correctly, and knows where
//! everything is.

use std::fs;
use std::io;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::config::nginx;
use crate::error::{Error, Result};
use crate::pause::{POLL, pause};
use crate::peer::{Peer, Tools};
use crate::pin::Cpus;
use crate::probe::{Place, Probe, ask};
use crate::process::{Process, Scratch};
use crate::scenario::BODIES;
use crate::shape::{Http, Setup, Shape};
use crate::tls::Certificates;

/// How long a proxy may take from its start to its first correct answer; Envoy with 10,000 routes needs some.
const READY_LIMIT: Duration = Duration::from_secs(60);

/// Where Postrider keeps the WebAssembly that it compiled, in the run's own directory.
const COMPILED: &str = "compiled";

/// What all measurements share.
pub struct Rig {
    pub tools: Tools,
    pub cpus: Cpus,
    pub file_limit: u64,
    certificates: Certificates,
    scratch: Scratch,
    starts: AtomicUsize,
}

/// A proxy that has answered correctly.
pub struct Proxy {
    pub process: Process,
    pub port: u16,
    /// The port without TLS, if the shape has one beside.
    pub plain: u16,
    /// From the start of the process to the end of the first correct answer.
    pub ready_after: Duration,
    /// Its configuration and log.
    pub directory: PathBuf,
}

impl Proxy {
    /// Ends it; one that crashed under the load has given no valid sample.
    pub fn finish(mut self) -> Result<()> {
        self.process.check_running()?;
        let _ = self.process.stop();
        Ok(())
    }
}

/// How the proxy's command is changed before it starts.
pub enum Wrap<'a> {
    Plain,
    /// A tracer around a proxy that runs as one process.
    Traced(&'a dyn Fn(&Command, &Path) -> Command),
}

impl Rig {
    pub fn new(tools: Tools, cpus: Cpus, file_limit: u64) -> Result<Self> {
        let scratch = Scratch::create()?;
        let certificates = Certificates::make(&scratch.subdirectory("certificates")?)?;
        Ok(Self { tools, cpus, file_limit, certificates, scratch, starts: AtomicUsize::new(0) })
    }

    /// nginx with all bodies, on the load's CPU; it speaks this version of HTTP.
    pub fn start_upstream(&self, http: Http) -> Result<(Process, u16)> {
        let directory = self.scratch.subdirectory("upstream")?;
        let [port] = free_ports()?;
        let write = |name: &str, content: String| {
            fs::write(directory.join(name), content).map_err(Error::io(format!("writing {name}")))
        };
        for (name, content) in nginx::body_files(&BODIES) {
            write(name, content)?;
        }
        write("nginx.conf", nginx::upstream(&directory, port, http, self.file_limit, &BODIES))?;
        let mut command = Command::new(self.tools.upstream()?);
        command.arg("-p").arg(&directory).args(["-e", "stderr", "-c"]).arg(directory.join("nginx.conf"));
        let log = directory.join("log");
        let mut process = Process::start("upstream nginx", command, self.cpus.load, self.cpus, &log)?;
        for body in &BODIES {
            let path = format!("/{}", body.name);
            wait_until_ready(&mut process, &Place::plain(port, http), Probe::get(&path, body.bytes))?;
        }
        Ok((process, port))
    }

    /// One of the bench's own upstreams, on the load's CPU: a process, because one process may not have descriptors for
    /// all clients and upstreams.
    pub fn start_own_origin(&self, arguments: &[String]) -> Result<(Process, u16)> {
        let bench = std::env::current_exe().map_err(Error::io("finding the bench's own program"))?;
        let mut command = Command::new(bench);
        command.args(arguments);
        let log = self.log("origin")?;
        let mut process = Process::start("origin", command, self.cpus.load, self.cpus, &log)?;
        loop {
            process.check_running()?;
            let text = fs::read_to_string(&log).unwrap_or_default();
            if let Some(port) = text.lines().find_map(|line| line.strip_prefix("listening on ")?.parse().ok()) {
                return Ok((process, port));
            }
            pause(POLL);
        }
    }

    /// The proxy, alone on its CPU, after it has passed the probe. Ports are chosen anew each time; should another
    /// program have taken one in between, it is tried once more.
    pub fn start_proxy(&self, peer: Peer, shape: Shape, upstream: u16, probe: Probe, wrap: Wrap) -> Result<Proxy> {
        match self.try_start(peer, shape, upstream, probe, &wrap) {
            Err(Error::Ended { .. }) => self.try_start(peer, shape, upstream, probe, &wrap),
            outcome => outcome,
        }
    }

    /// The next start compiles WebAssembly anew.
    pub fn forget_compiled(&self) -> Result<()> {
        let folder = self.scratch.path().join(COMPILED);
        match fs::remove_dir_all(&folder) {
            Err(cause) if cause.kind() != io::ErrorKind::NotFound => {
                Err(Error::Io { doing: format!("removing {}", folder.display()), cause })
            }
            _ => Ok(()),
        }
    }

    /// A file of the run that belongs to no proxy.
    pub fn log(&self, name: &str) -> Result<PathBuf> {
        Ok(self.next_directory(name)?.join("log"))
    }

    fn try_start(&self, peer: Peer, shape: Shape, upstream: u16, probe: Probe, wrap: &Wrap) -> Result<Proxy> {
        let directory = self.next_directory(peer.name())?;
        let [listen, admin, plain] = free_ports()?;
        let certificate = shape.tls.map(|key| self.certificates.of(key));
        let module = shape.filter.plugin().map(|plugin| self.tools.module(plugin)).transpose()?;
        let compiled = self.scratch.path().join(COMPILED);
        let setup = Setup {
            shape,
            directory: &directory,
            listen,
            admin,
            upstream,
            plain,
            certificate,
            module: module.as_deref(),
            compiled: &compiled,
            single_process: matches!(wrap, Wrap::Traced(_)),
            file_limit: self.file_limit,
        };
        let mut command = peer.command(&self.tools, &setup)?;
        if let Wrap::Traced(wrap) = wrap {
            command = wrap(&command, &directory);
        }
        let log = directory.join("log");
        let mut process = Process::start(peer.name(), command, self.cpus.proxy, self.cpus, &log)?;
        let tls = certificate.map(|certificate| certificate.checking_client(shape.downstream)).transpose()?;
        let place = Place { port: listen, http: shape.downstream, tls };
        let ready_after = wait_until_ready(&mut process, &place, probe)?;
        if shape.plain_beside {
            wait_until_ready(&mut process, &Place::plain(plain, shape.downstream), probe)?;
        }
        if shape.filter.asks_for_password() {
            let (status, _) =
                ask(&place, Probe { headers: &[], ..probe }).map_err(Error::io("asking without a password"))?;
            if status != 401 {
                return Err(Error::WrongAnswer {
                    name: peer.name().to_owned(),
                    expected: "401 to a request without a password".to_owned(),
                    got: status.to_string(),
                });
            }
        }
        Ok(Proxy { process, port: listen, plain, ready_after, directory })
    }

    fn next_directory(&self, name: &str) -> Result<PathBuf> {
        let number = self.starts.fetch_add(1, Ordering::Relaxed);
        self.scratch.subdirectory(&format!("{number:04}-{name}"))
    }
}

/// Asks until the answer is the expected one; the time since the process was started.
fn wait_until_ready(process: &mut Process, place: &Place, probe: Probe) -> Result<Duration> {
    let deadline = Instant::now() + READY_LIMIT;
    loop {
        process.check_running()?;
        let outcome = ask(place, probe);
        let last = match outcome {
            Ok((200, body)) if body == probe.body => return Ok(process.started().elapsed()),
            Ok((status, body)) => format!("status {status} with {body} bytes of body"),
            Err(error) => error.to_string(),
        };
        if Instant::now() >= deadline {
            return Err(Error::NotReady {
                name: process.name().to_owned(),
                seconds: READY_LIMIT.as_secs(),
                last: format!("{last}\n{}", process.log_tail()),
            });
        }
        pause(POLL);
    }
}

/// Free loopback ports, all different.
fn free_ports<const COUNT: usize>() -> Result<[u16; COUNT]> {
    let mut ports = [0; COUNT];
    let mut held = Vec::with_capacity(COUNT);
    for port in &mut ports {
        let bound = TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| {
            *port = listener.local_addr()?.port();
            held.push(listener);
            Ok::<_, io::Error>(())
        });
        bound.map_err(Error::io("looking for a free port"))?;
    }
    Ok(ports)
}
