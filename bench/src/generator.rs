//! The load generators behind one door: which one a plan wants, its files, one run of it.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::handshakes::{Clients, Handshake};
use crate::process::Process;
use crate::rig::Rig;
use crate::scenario::{LoadPlan, Sends};
use crate::shape::Shape;
use crate::tally::Tally;
use crate::{grpc, h2load, wrk};

/// Time beyond its own that a generator may need to end.
const GRACE: Duration = Duration::from_secs(20);

/// Who makes the requests of a plan.
#[derive(Clone, Copy, Debug)]
pub enum Generator {
    /// HTTP/1.1, one request in flight on each connection.
    Wrk,
    /// HTTP/2, so many requests in flight on each connection.
    H2load { streams: usize },
    /// The bench's own clients: TLS 1.3 and HTTP/1.1, one request on each connection.
    Handshakes(Handshake),
}

/// A plan's generator in front of one proxy.
pub struct Loader<'a> {
    rig: &'a Rig,
    plan: &'a LoadPlan,
    url: String,
    means: Means,
}

/// What the generator needs, made once for all runs.
enum Means {
    /// The script that makes it send something else than a GET.
    Wrk(Option<PathBuf>),
    /// What each request carries.
    H2load {
        streams: usize,
        data: Option<PathBuf>,
    },
    Clients(Clients),
}

impl<'a> Loader<'a> {
    pub fn new(rig: &'a Rig, plan: &'a LoadPlan, shape: &Shape, port: u16) -> Result<Self> {
        let scheme = if shape.tls.is_some() { "https" } else { "http" };
        let file = |content: Vec<u8>| {
            let path = rig.log("load")?.with_file_name("content");
            fs::write(&path, content).map_err(Error::io(format!("writing {}", path.display())))?;
            Ok::<_, Error>(path)
        };
        let means = match plan.generator {
            Generator::Wrk => {
                let script = plan.sends.bytes().map(|bytes| file(wrk::post_script(bytes.len()).into_bytes()));
                Means::Wrk(script.transpose()?)
            }
            Generator::H2load { streams } => Means::H2load { streams, data: plan.sends.bytes().map(file).transpose()? },
            Generator::Handshakes(kind) => Means::Clients(Clients::new(port, plan.path, plan.connections, kind)?),
        };
        Ok(Self { rig, plan, url: format!("{scheme}://127.0.0.1:{port}{}", plan.path), means })
    }

    /// Loads the proxy for so long; `meanwhile` is called at once and told half of the time. The inner result refuses a
    /// load that did not go well, which matters only to who wants its figures.
    pub fn run<T>(&self, seconds: u64, meanwhile: impl FnOnce(Duration) -> T) -> Result<(Result<Tally>, T)> {
        let half = Duration::from_millis(seconds * 500);
        let &LoadPlan { connections, headers, body, .. } = self.plan;
        let tools = &self.rig.tools;
        match &self.means {
            Means::Wrk(script) => {
                let load = wrk::Load { url: &self.url, connections, seconds, headers, script: script.as_deref() };
                let (output, seen) = self.run_program("wrk", load.command(tools.wrk()?), half, meanwhile)?;
                Ok((wrk::read(&output)?.accepted(), seen))
            }
            Means::H2load { streams, data } => {
                let log = self.rig.log("h2load")?.with_file_name("requests");
                let (url, data) = (self.url.as_str(), data.as_deref());
                let load = h2load::Load { url, connections, streams: *streams, seconds, headers, data, log: &log };
                let (output, seen) = self.run_program("h2load", load.command(tools.h2load()?), half, meanwhile)?;
                let requests = fs::read_to_string(&log).map_err(Error::io("reading h2load's log"))?;
                // Some ten megabytes for each run.
                let _ = fs::remove_file(&log);
                Ok((h2load::read(&output, &requests)?.accepted(body), seen))
            }
            Means::Clients(clients) => {
                let (outcome, seen) = thread::scope(|scope| {
                    let running = scope.spawn(|| clients.run(half * 2));
                    let seen = meanwhile(half);
                    (running.join(), seen)
                });
                let report = outcome.map_err(|_| Error::FailedLoad { detail: "the clients panicked".to_owned() })??;
                Ok((report.accepted(), seen))
            }
        }
    }

    /// Runs a program and returns what it printed.
    fn run_program<T>(
        &self,
        name: &str,
        command: Command,
        half: Duration,
        meanwhile: impl FnOnce(Duration) -> T,
    ) -> Result<(String, T)> {
        let log = self.rig.log(name)?;
        let process = Process::start(name, command, self.rig.cpus.load, self.rig.cpus, &log)?;
        let seen = meanwhile(half);
        process.finish(half * 2 + GRACE)?;
        Ok((fs::read_to_string(&log).unwrap_or_default(), seen))
    }
}

impl Sends {
    /// The body of each request.
    fn bytes(self) -> Option<Vec<u8>> {
        match self {
            Self::Nothing => None,
            Self::Bytes(count) => Some(vec![b'x'; count]),
            Self::Message(count) => Some(grpc::frame(count)),
        }
    }
}
