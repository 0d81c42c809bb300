//! The two gates that noise hardly moves: user instructions and system calls per request.
//!
//! A fixed number of requests goes through a traced proxy from the bench's own client to its own origin, once N and
//! once 3 N; the difference leaves out start and end. CI holds their limits. The same count tells what a scenario's shapes
//! cost, filters above all: instructions are a guide for changes too small for a clock, not the figure that is promised.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::client::Client;
use crate::error::{Error, Result};
use crate::origin::Origin;
use crate::peer::{Peer, on_path};
use crate::probe::Probe;
use crate::rig::{Rig, Wrap};
use crate::scenario::{LoadPlan, Sends};
use crate::shape::{Http, Protocol, Shape};

/// User instructions that the finished gateway may spend on a request with a 4 KB answer.
pub const INSTRUCTION_LIMIT: f64 = 9_000.0;
/// System calls for the same: two receives, two sends and a share of the waits.
pub const SYSCALL_LIMIT: f64 = 4.2;

/// Connections of both loops, as in the load scenario that they belong to.
const CONNECTIONS: usize = 64;
/// Requests of the shorter run; the longer one has three times as many.
const REQUESTS: usize = 100 * CONNECTIONS;
/// Requests before the counted ones: every pool is filled and every lazily made table made.
const WARM_UP: usize = 10 * CONNECTIONS;
const BODY: usize = 4000;
/// How long a traced proxy may take to end: callgrind writes its profile then.
const END_PATIENCE: Duration = Duration::from_secs(60);

/// One call and how often it was made per request.
pub type CallCount = (String, f64);

/// What every request of a counted run is.
#[derive(Clone, Copy)]
pub struct Counted<'a> {
    pub shape: Shape,
    pub path: &'a str,
    /// Bytes of the answer's body.
    pub body: usize,
    pub headers: &'a [&'a str],
}

impl Counted<'static> {
    /// What the limits are for.
    pub const GATE: Self = Self { shape: Shape::HTTP, path: "/4k", body: BODY, headers: &[] };

    /// Each shape of a scenario with its label; empty for what the bench's own client and origin do not speak.
    pub fn shapes_of(plan: &LoadPlan) -> Vec<(&'static str, Self)> {
        let of = |shape| Self { shape, path: plan.path, body: plan.body, headers: plan.headers };
        let plain = |shape: &Shape| {
            shape.protocol == Protocol::Http
                && (shape.downstream, shape.upstream) == (Http::One, Http::One)
                && shape.tls.is_none()
        };
        let variants = plan.variants.iter().filter(|variant| plan.sends == Sends::Nothing && plain(&variant.shape));
        variants.map(|variant| (variant.label, of(variant.shape))).collect()
    }
}

/// User instructions per request of what the limit is for: the middle one of three counts. How many events each wait brings
/// depends on who else runs, which moves a count by half a percent either way.
pub fn gate_instructions(rig: &Rig, peer: Peer) -> Result<f64> {
    let mut counts = [0.0; 3];
    for count in &mut counts {
        *count = instructions(rig, peer, Counted::GATE)?;
    }
    counts.sort_by(f64::total_cmp);
    let [_, middle, _] = counts;
    Ok(middle)
}

/// User instructions per request, by callgrind.
pub fn instructions(rig: &Rig, peer: Peer, counted: Counted) -> Result<f64> {
    let valgrind = on_path("valgrind").ok_or(Error::Missing { program: "valgrind", hint: "run bench/install.sh" })?;
    let wrap = |command: &Command, directory: &Path| {
        let mut traced = Command::new(&valgrind);
        traced
            .args(["--tool=callgrind", "--trace-children=no", "--quiet"])
            .arg(format!("--callgrind-out-file={}", directory.join("callgrind.out").display()));
        with_command(traced, command)
    };
    let count = |requests| {
        run(rig, peer, counted, requests, &wrap, false, |directory| {
            let text =
                fs::read_to_string(directory.join("callgrind.out")).map_err(Error::io("reading callgrind's output"))?;
            parse_callgrind(&text).ok_or(Error::Unreadable { tool: "callgrind", output: first_lines(&text) })
        })
    };
    let (short, long) = (count(REQUESTS)?, count(3 * REQUESTS)?);
    Ok((long as f64 - short as f64) / (2 * REQUESTS) as f64)
}

/// System calls per request, by strace: the sum, and each call that matters, most frequent first.
pub fn syscalls(rig: &Rig, peer: Peer) -> Result<(f64, Vec<CallCount>)> {
    let strace = on_path("strace").ok_or(Error::Missing { program: "strace", hint: "run bench/install.sh" })?;
    let wrap = |command: &Command, directory: &Path| {
        let mut traced = Command::new(&strace);
        traced.args(["-f", "-c", "-o"]).arg(directory.join("strace.out"));
        with_command(traced, command)
    };
    let count = |requests| {
        run(rig, peer, Counted::GATE, requests, &wrap, true, |directory| {
            let text =
                fs::read_to_string(directory.join("strace.out")).map_err(Error::io("reading strace's output"))?;
            let calls = parse_strace(&text);
            if calls.is_empty() { Err(Error::Unreadable { tool: "strace", output: text }) } else { Ok(calls) }
        })
    };
    let (short, long) = (count(REQUESTS)?, count(3 * REQUESTS)?);
    let before = |name: &str| short.iter().find(|(other, _)| other == name).map_or(0, |&(_, calls)| calls);
    let mut each: Vec<CallCount> = long
        .iter()
        .map(|(name, calls)| (name.clone(), (*calls as f64 - before(name) as f64) / (2 * REQUESTS) as f64))
        .collect();
    let sum = each.iter().map(|(_, calls)| calls).sum();
    each.retain(|(_, calls)| *calls >= 0.005);
    each.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    Ok((sum, each))
}

/// Runs the traced proxy under exactly `requests` requests and reads what the tracer left behind. A tracer that is the
/// parent (strace) ends after the proxy; one in the same process (valgrind) is the proxy.
fn run<T>(
    rig: &Rig,
    peer: Peer,
    counted: Counted,
    requests: usize,
    wrap: &dyn Fn(&Command, &Path) -> Command,
    tracer_is_parent: bool,
    read: impl FnOnce(&Path) -> Result<T>,
) -> Result<T> {
    let origin = Origin::open(counted.body, 0).map_err(Error::io("opening the origin"))?;
    let origin_port = origin.port().map_err(Error::io("opening the origin"))?;
    thread::Builder::new()
        .name("origin".into())
        .spawn(move || {
            if let Err(error) = origin.serve() {
                eprintln!("origin: {error}");
            }
        })
        .map_err(Error::io("starting the origin"))?;
    let probe = Probe { headers: counted.headers, ..Probe::get(counted.path, counted.body) };
    let proxy = rig.start_proxy(peer, counted.shape, origin_port, probe, Wrap::Traced(wrap))?;
    let mut client = Client::new(proxy.port, counted.path, counted.headers)?;
    client.connect(CONNECTIONS)?;
    client.run(WARM_UP)?;
    client.run(requests)?;
    // Closed before the end is asked for: a proxy that drains has nothing to wait for.
    drop(client);
    let status = if tracer_is_parent {
        proxy.process.stop_traced(END_PATIENCE)?
    } else {
        proxy.process.stop_within(END_PATIENCE)?
    };
    read(&proxy.directory).map_err(|error| match error {
        Error::Io { doing, cause } => Error::Io { doing: format!("{doing} (the proxy ended with {status})"), cause },
        other => other,
    })
}

fn with_command(mut tracer: Command, command: &Command) -> Command {
    tracer.arg(command.get_program()).args(command.get_args());
    tracer
}

/// The instruction count of the whole run: the `totals:` line, or `summary:` where there is none.
fn parse_callgrind(text: &str) -> Option<u64> {
    let value = |label: &str| {
        text.lines().rev().find_map(|line| line.strip_prefix(label)?.split_whitespace().next()?.parse::<u64>().ok())
    };
    value("totals:").or_else(|| value("summary:"))
}

/// Calls by name from the table of `strace -c`: `% time, seconds, usecs/call, calls, [errors,] syscall`.
fn parse_strace(text: &str) -> Vec<(String, u64)> {
    text.lines()
        .filter_map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            fields.first()?.parse::<f64>().ok()?;
            let name = fields.last()?;
            let calls = fields.get(3)?.parse().ok()?;
            (fields.len() >= 5 && *name != "total").then(|| ((*name).to_owned(), calls))
        })
        .collect()
}

fn first_lines(text: &str) -> String {
    text.lines().take(10).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callgrind_totals_win_over_the_summary() {
        assert_eq!(parse_callgrind("events: Ir\nsummary: 12\nfn=(1)\n16 3\ntotals: 4567\n"), Some(4567));
        assert_eq!(parse_callgrind("events: Ir\nsummary: 12\n"), Some(12));
        assert_eq!(parse_callgrind("nothing"), None);
    }

    #[test]
    fn strace_rows_with_and_without_errors_are_read_and_the_total_is_not_a_call() {
        let table = "% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 62.10    0.123456           9     12800           sendto
 30.00    0.050000           4     12900       100 recvfrom
  0.00    0.000000           0         1           execve
------ ----------- ----------- --------- --------- ----------------
100.00    0.173456           6     25701       100 total
";
        assert_eq!(
            parse_strace(table),
            [("sendto".to_owned(), 12_800), ("recvfrom".to_owned(), 12_900), ("execve".to_owned(), 1)]
        );
    }
}
