//! The gates that noise hardly moves: user instructions and system calls per request, and what of the instructions accounts of
//! plugins and statistics cost.
//!
//! A fixed number of requests goes through a traced proxy from the bench's own client to its own origin, once N and
//! once 3 N; the difference leaves out start and end. CI holds their limits. The same count tells what a scenario's shapes
//! cost, filters above all: instructions are a guide for changes too small for a clock, not the figure that is promised.

use std::collections::HashMap;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::client::Client;
use crate::error::{Error, Result};
use crate::origin::Origin;
use crate::peer::{Peer, on_path};
use crate::probe::Probe;
use crate::rig::{Rig, Wrap};
use crate::scenario::{self, Kind, LoadPlan, Sends};
use crate::shape::{Http, Protocol, Shape};

/// User instructions that the finished gateway may spend on a request with a 4 KB answer.
pub const INSTRUCTION_LIMIT: f64 = 9_000.0;
/// System calls for the same: two receives, two sends and a share of the waits.
pub const SYSCALL_LIMIT: f64 = 4.2;

/// The share of a request's instructions that the accounts of a plugin may cost.
pub const ACCOUNTING_LIMIT: f64 = 0.01;
/// The functions that have it, in whatever they are inlined: counting by route, choosing the calls that are measured, telling memory.
const ACCOUNTING: [&str; 4] = ["Account::", "RouteBlocks", "sampling::Sampling", "memory_to_tell"];
/// The scenario that it is counted in: its script does next to nothing, so no share is larger.
const ACCOUNTED: (&str, &str) = ("lua-entry", "Rider");

/// What counts, in whatever it is inlined: counters, gauges, status codes and histograms by the folder of their code, and the
/// functions that choose which of them a request is counted in.
const STATISTICS: [&str; 4] = ["telemetry/src/stats/", "count_response", "count_sent", "count_received"];

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

/// User instructions per request of what the limit is for: the middle one of five counts. How many events each wait brings
/// depends on who else runs, which moves a count by half a percent either way.
pub fn gate_instructions(rig: &Rig, peer: Peer) -> Result<f64> {
    let mut counts = [0.0; 5];
    for count in &mut counts {
        *count = instructions(rig, peer, Counted::GATE)?;
    }
    counts.sort_by(f64::total_cmp);
    let [_, _, middle, _, _] = counts;
    Ok(middle)
}

/// User instructions per request, by callgrind.
pub fn instructions(rig: &Rig, peer: Peer, counted: Counted) -> Result<f64> {
    difference(&profiles(rig, peer, counted, &[])?, parse_callgrind)
}

/// Instructions that accounts of a plugin cost per request, and all of the request's.
pub fn accounting(rig: &Rig, peer: Peer) -> Result<[f64; 2]> {
    let (name, label) = ACCOUNTED;
    let scenario = scenario::select(&[name.to_owned()])?;
    let shapes = scenario.iter().find_map(|scenario| match &scenario.kind {
        Kind::Load(plan) => Some(Counted::shapes_of(plan)),
        _ => None,
    });
    let shape = shapes.into_iter().flatten().find(|(variant, _)| *variant == label);
    let (_, counted) =
        shape.ok_or(Error::UnknownName { kind: "shape", name: label.to_owned(), known: name.to_owned() })?;
    part(rig, peer, counted, &ACCOUNTING)
}

/// Instructions that statistics cost per request of what the limit is for, and all of the request's. They cannot be left out to
/// compare: a statistic that nobody may read is counted all the same.
pub fn statistics(rig: &Rig, peer: Peer) -> Result<[f64; 2]> {
    part(rig, peer, Counted::GATE, &STATISTICS)
}

/// Instructions per request in some functions, and all of them.
fn part(rig: &Rig, peer: Peer, counted: Counted, functions: &[&str]) -> Result<[f64; 2]> {
    let program = rig.tools.path(peer)?;
    let profiles = profiles(rig, peer, counted, &["--dump-instr=yes"])?;
    let [short, long] = profiles.each_ref().map(|profile| by_address(profile, program));
    let mut addresses: Vec<u64> = long.keys().copied().collect();
    addresses.sort_unstable();
    let found = in_functions(program, &addresses, functions)?;
    if found.is_empty() {
        // A program without the functions, or without the names of its lines.
        return Err(Error::Unreadable { tool: "callgrind", output: format!("none of {}", functions.join(", ")) });
    }
    let of = |costs: &HashMap<u64, u64>| found.iter().filter_map(|address| costs.get(address)).sum::<u64>();
    let all = difference(&profiles, parse_callgrind)?;
    Ok([each(of(&short), of(&long)), all])
}

/// A count of two profiles per request.
fn difference(profiles: &[String; 2], parse: impl Fn(&str) -> Option<u64>) -> Result<f64> {
    let count = |profile: &String| {
        parse(profile).ok_or_else(|| Error::Unreadable { tool: "callgrind", output: first_lines(profile) })
    };
    let [short, long] = profiles;
    Ok(each(count(short)?, count(long)?))
}

/// What a request costs, by the costs of few and of three times as many: the difference leaves out start and end.
fn each(short: u64, long: u64) -> f64 {
    (long as f64 - short as f64) / (2 * REQUESTS) as f64
}

/// The profiles of a short and a long run.
fn profiles(rig: &Rig, peer: Peer, counted: Counted, options: &[&str]) -> Result<[String; 2]> {
    let valgrind = on_path("valgrind").ok_or(Error::Missing { program: "valgrind", hint: "run bench/install.sh" })?;
    let wrap = |command: &Command, directory: &Path| {
        let mut traced = Command::new(&valgrind);
        traced
            .args(["--tool=callgrind", "--trace-children=no", "--quiet"])
            .args(options)
            .arg(format!("--callgrind-out-file={}", directory.join("callgrind.out").display()));
        with_command(traced, command)
    };
    let profile = |requests| {
        run(rig, peer, counted, requests, &wrap, false, |directory| {
            fs::read_to_string(directory.join("callgrind.out")).map_err(Error::io("reading callgrind's output"))
        })
    };
    Ok([profile(REQUESTS)?, profile(3 * REQUESTS)?])
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

/// Instructions at each address of a program, in a profile that was taken with `--dump-instr=yes`: lines `0x… line cost`, whose address
/// may be told from the one before (`+3`, `*`). What stands behind `calls=` is told again at the callee.
fn by_address(profile: &str, program: &Path) -> HashMap<u64, u64> {
    let mut costs = HashMap::new();
    let mut numbers: HashMap<&str, bool> = HashMap::new();
    let (mut is_ours, mut is_call, mut address) = (false, false, 0_u64);
    for line in profile.lines() {
        if let Some(object) = line.strip_prefix("ob=").or_else(|| line.strip_prefix("cob=")) {
            let (number, name) = object.split_once(' ').unwrap_or((object, ""));
            if !name.is_empty() {
                numbers.insert(number, Path::new(name) == program);
            }
            if line.starts_with("ob=") {
                is_ours = numbers.get(number).copied().unwrap_or(false);
            }
            continue;
        }
        if line.starts_with("calls=") {
            is_call = true;
            continue;
        }
        let mut fields = line.split_whitespace();
        let (Some(at), Some(cost)) = (fields.next(), fields.next_back()) else { continue };
        let hex = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).ok();
        address = match at.as_bytes() {
            [b'0', b'x', ..] => hex(at).unwrap_or(address),
            [b'+', ..] => at[1..].parse().map_or(address, |further: u64| address + further),
            [b'-', ..] => at[1..].parse().map_or(address, |back: u64| address.wrapping_sub(back)),
            [b'*'] => address,
            _ => continue,
        };
        if !std::mem::take(&mut is_call)
            && is_ours
            && let Ok(cost) = cost.parse::<u64>()
        {
            *costs.entry(address).or_default() += cost;
        }
    }
    costs
}

/// The addresses whose code belongs to one of these functions or files, or was inlined into it; by `addr2line`, whose answer is the
/// address and then, innermost first, each function with a line for its place.
fn in_functions(program: &Path, addresses: &[u64], functions: &[&str]) -> Result<Vec<u64>> {
    let missing = Error::Missing { program: "addr2line", hint: "install binutils" };
    let addr2line = on_path("addr2line").ok_or(missing)?;
    let doing = "asking addr2line";
    let mut asked = Command::new(addr2line)
        .args(["-a", "-i", "-f", "-C", "-e"])
        .arg(program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(Error::io(doing))?;
    let list: String = addresses.iter().map(|address| format!("{address:#x}\n")).collect();
    let mut input = asked.stdin.take();
    // It answers while it is asked: both pipes would fill up.
    let writer = thread::spawn(move || input.as_mut().map_or(Ok(()), |input| input.write_all(list.as_bytes())));
    let output = asked.wait_with_output().map_err(Error::io(doing))?;
    writer.join().unwrap_or(Ok(())).map_err(Error::io(doing))?;
    Ok(named(&String::from_utf8_lossy(&output.stdout), functions))
}

fn named(answer: &str, functions: &[&str]) -> Vec<u64> {
    let mut found = Vec::new();
    let mut at = None;
    for line in answer.lines() {
        if let Some(address) = line.strip_prefix("0x") {
            at = u64::from_str_radix(address, 16).ok();
        } else if functions.iter().any(|function| line.contains(function)) {
            found.extend(at.take());
        }
    }
    found
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
    fn instructions_are_those_of_the_programs_own_addresses_and_calls_are_told_once() {
        let profile = "events: Ir
ob=(1) /usr/lib/libc.so
fn=(1) memcpy
0x10 0 500
ob=(2) /bin/proxy
fn=(2) main
0x1000 3 7
+4 3 5
cob=(1)
cfn=(1)
calls=3 0x10
* 4 1500
* 4 2
-4 3 1
cob=(3) /usr/lib/libm.so
cfn=(9) pow
calls=1 0x20
+8 5 90
ob=(1)
0x1000 0 1000
totals: 2015
";
        let costs = by_address(profile, Path::new("/bin/proxy"));
        assert_eq!(costs, HashMap::from([(0x1000, 8), (0x1004, 7)]));
    }

    #[test]
    fn what_was_inlined_belongs_to_the_function_around_it() {
        let answer = "0x0000000000001000
core::cell::Cell<T>::get
cell.rs:1
postrider_filter_plugin::account::Account::called
account.rs:2
0x0000000000001004
main
main.rs:1
0x0000000000001008
postrider_filter_api::sampling::Sampling::take
sampling.rs:1
postrider_filter_plugin::account::Account::called
account.rs:1
";
        assert_eq!(named(answer, &ACCOUNTING), [0x1000, 0x1008]);
    }

    #[test]
    fn the_shape_that_accounts_are_counted_in_is_there() {
        let (name, label) = ACCOUNTED;
        let Kind::Load(plan) = scenario::select(&[name.to_owned()]).unwrap()[0].kind else { panic!("a load") };
        assert!(Counted::shapes_of(&plan).iter().any(|(variant, _)| *variant == label));
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
