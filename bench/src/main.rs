//! The bench: Postrider beside its peers, on the same machine, in the same minute.
//!
//! It starts every program itself, pins the proxy to one CPU and load and upstream to another, and stops all it started.
//! It is off the data path. `make bench` and CI's gates call it; see `bench/README.md` for how to read its figures.

mod bursts;
mod cli;
mod client;
mod cold_start;
mod config;
mod error;
mod gate;
mod generator;
mod go_floor;
mod grpc;
mod h2load;
mod handshakes;
mod idle;
mod load;
mod machine;
mod origin;
mod pacer;
mod pause;
mod peer;
mod pin;
mod plugin;
mod probe;
mod proc_stat;
mod process;
mod report;
mod results;
mod rig;
mod scenario;
mod shape;
mod stall;
mod stats;
mod tally;
mod targets;
mod tls;
mod tls_client;
mod wrk;

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;

use crate::cli::{Cli, ColdStart, Command, Gate, Instructions, Run};
use crate::error::{Error, Result};
use crate::gate::Counted;
use crate::load::{Effort, FOREIGN_LIMIT};
use crate::origin::Origin;
use crate::peer::{Peer, Tools};
use crate::pin::Cpus;
use crate::results::{Measured, Outcome, Results};
use crate::rig::Rig;
use crate::scenario::{Kind, SCENARIOS, Scenario};

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Run(arguments) => run(&arguments),
        Command::R1(arguments) => r1(arguments),
        Command::ColdStart(arguments) => cold_start(&arguments),
        Command::GoFloor { rounds } => go_floor(rounds),
        Command::List => list(),
        Command::GateInstructions(arguments) => gate_instructions(&arguments),
        Command::GateAccounting(arguments) => gate_accounting(&arguments),
        Command::Instructions(arguments) => instructions(&arguments),
        Command::GateSyscalls(arguments) => gate_syscalls(&arguments),
        Command::ServeOrigin { body, hold } => serve_origin(body, hold),
        Command::ServeGrpc => serve_grpc(),
        Command::Bursts { port, seconds } => {
            bursts::run(port, Duration::from_secs(seconds)).map(|()| ExitCode::SUCCESS)
        }
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("postrider-bench: {error}");
        ExitCode::from(2)
    })
}

fn run(arguments: &Run) -> Result<ExitCode> {
    run_scenarios(arguments).map(|(_, code)| code)
}

fn r1(arguments: Run) -> Result<ExitCode> {
    let or = |named: Vec<String>, usual: &[&str]| {
        if named.is_empty() { usual.iter().map(|&name| name.to_owned()).collect() } else { named }
    };
    let tools = Tools::find(arguments.postrider.clone());
    let usual: Vec<&str> = postrider_and_envoy(&tools).into_iter().map(Peer::name).collect();
    let arguments =
        Run { scenarios: or(arguments.scenarios, &scenario::R1), peers: or(arguments.peers, &usual), ..arguments };
    let (results, code) = run_scenarios(&arguments)?;
    if let Some(table) = report::r1::table(&results) {
        println!("\n{table}");
    }
    Ok(code)
}

fn go_floor(rounds: u16) -> Result<ExitCode> {
    print!("{}", go_floor::measure(&Tools::find(None), Cpus::choose()?, rounds)?);
    Ok(ExitCode::SUCCESS)
}

fn cold_start(arguments: &ColdStart) -> Result<ExitCode> {
    let rig = open_rig(Tools::find(arguments.postrider.clone()))?;
    let peers = postrider_and_envoy(&rig.tools);
    warn_about(&rig, &peers);
    let outcome = cold_start::measure(&rig, &peers, arguments.rounds.into())?;
    if arguments.json {
        println!("{:#}", outcome.json());
    } else {
        print!("{}", outcome.table());
    }
    Ok(if arguments.check && !outcome.passed() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The two that have the runtimes; Envoy only where it is installed.
fn postrider_and_envoy(tools: &Tools) -> Vec<Peer> {
    let envoy = tools.path(Peer::Envoy).is_ok().then_some(Peer::Envoy);
    [Peer::Postrider].into_iter().chain(envoy).collect()
}

fn run_scenarios(arguments: &Run) -> Result<(Results, ExitCode)> {
    let scenarios = scenario::select(&arguments.scenarios)?;
    let tools = Tools::find(arguments.postrider.clone()).with_relay_buffer(arguments.relay_buffer);
    let rig = open_rig(tools)?;
    let peers = choose_peers(&rig.tools, &arguments.peers)?;
    warn_about(&rig, &peers);
    let effort = Effort {
        rounds: arguments.rounds.into(),
        seconds: arguments.seconds.into(),
        retries: arguments.retries.into(),
    };
    let mut results =
        Results { circumstances: machine::circumstances(&rig.tools, rig.cpus, &peers), scenarios: Vec::new() };
    results
        .circumstances
        .push(("effort".to_owned(), format!("{} rounds of {} s for each proxy", effort.rounds, effort.seconds)));
    for scenario in scenarios {
        eprintln!("{}: {}", scenario.name, scenario.title);
        let outcome = measure(&rig, &scenario, &peers, &arguments.variants, effort).unwrap_or_else(|error| {
            eprintln!("  {error}");
            Outcome::Failed(error.to_string())
        });
        let measured = Measured { scenario, outcome };
        println!("{}", report::markdown::scenario(&measured));
        results.scenarios.push(measured);
        // After each scenario, so that an interrupted run has not been for nothing.
        if let Some(directory) = &arguments.out {
            write_report(directory, &results)?;
        }
    }
    let verdicts = targets::judge(&results);
    // A run of some scenarios only leaves the targets of the others open, and need not say so for each.
    for verdict in verdicts.iter().filter(|verdict| verdict.measured.is_some() || arguments.scenarios.is_empty()) {
        println!("{verdict}");
    }
    let missed = verdicts.iter().any(|verdict| verdict.word() == "FAIL");
    let code = if arguments.check && missed { ExitCode::FAILURE } else { ExitCode::SUCCESS };
    Ok((results, code))
}

fn list() -> Result<ExitCode> {
    for Scenario { name, title, .. } in SCENARIOS {
        println!("{name:<24} {title}");
    }
    let tools = Tools::find(None);
    println!();
    for peer in Peer::ALL {
        println!("{:<24} {}", peer.name(), peer.version(&tools));
    }
    Ok(ExitCode::SUCCESS)
}

fn gate_instructions(arguments: &Gate) -> Result<ExitCode> {
    let rig = open_rig(Tools::find(arguments.postrider.clone()))?;
    let peer = Peer::by_name(&arguments.peer)?;
    let count = gate::gate_instructions(&rig, peer)?;
    println!("{}: {count:.0} user instructions per request, limit {:.0}", peer.name(), gate::INSTRUCTION_LIMIT);
    Ok(verdict(count <= gate::INSTRUCTION_LIMIT))
}

fn gate_accounting(arguments: &Gate) -> Result<ExitCode> {
    let rig = open_rig(Tools::find(arguments.postrider.clone()))?;
    let peer = Peer::by_name(&arguments.peer)?;
    let [accounts, all] = gate::accounting(&rig, peer)?;
    let share = accounts / all;
    println!(
        "{}: accounts of a plugin cost {accounts:.0} of {all:.0} user instructions per request, {:.2} %, limit {} %",
        peer.name(),
        share * 100.0,
        gate::ACCOUNTING_LIMIT * 100.0
    );
    Ok(verdict(share <= gate::ACCOUNTING_LIMIT))
}

fn instructions(arguments: &Instructions) -> Result<ExitCode> {
    let rig = open_rig(Tools::find(arguments.of.postrider.clone()))?;
    let peer = Peer::by_name(&arguments.of.peer)?;
    for scenario in scenario::select(&arguments.scenarios)? {
        println!("{}, user instructions per request of {}", scenario.name, peer.name());
        let shapes = match &scenario.kind {
            Kind::Load(plan) => Counted::shapes_of(plan),
            _ => Vec::new(),
        };
        if shapes.is_empty() {
            println!("  not counted: this client sends GET over HTTP/1.1 without TLS");
        }
        let mut bare = None;
        for (label, counted) in shapes.into_iter().filter(|(_, counted)| peer.can_be(&counted.shape)) {
            let count = gate::instructions(&rig, peer, counted)?;
            let bare = *bare.get_or_insert(count);
            println!("  {label:<20} {count:>8.0} {:>+8.0}", count - bare);
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn gate_syscalls(arguments: &Gate) -> Result<ExitCode> {
    let rig = open_rig(Tools::find(arguments.postrider.clone()))?;
    let peer = Peer::by_name(&arguments.peer)?;
    let (count, each) = gate::syscalls(&rig, peer)?;
    println!("{}: {count:.3} system calls per request, limit {}", peer.name(), gate::SYSCALL_LIMIT);
    for (name, calls) in each {
        println!("  {name:<16} {calls:.2}");
    }
    Ok(verdict(count <= gate::SYSCALL_LIMIT))
}

fn serve_origin(body: usize, hold: usize) -> Result<ExitCode> {
    pin::raise_file_limit();
    let doing = "serving as origin";
    let origin = Origin::open(body, hold).map_err(Error::io(doing))?;
    tell_port(origin.port().map_err(Error::io(doing))?)?;
    origin.serve().map_err(Error::io(doing))?;
    Ok(ExitCode::SUCCESS)
}

fn serve_grpc() -> Result<ExitCode> {
    let doing = "serving gRPC";
    let origin = grpc::Origin::open().map_err(Error::io(doing))?;
    tell_port(origin.port().map_err(Error::io(doing))?)?;
    origin.serve().map_err(Error::io(doing))?;
    Ok(ExitCode::SUCCESS)
}

/// The line that the bench waits for.
fn tell_port(port: u16) -> Result<()> {
    println!("listening on {port}");
    std::io::stdout().flush().map_err(Error::io("telling a port"))
}

fn open_rig(tools: Tools) -> Result<Rig> {
    let file_limit = pin::raise_file_limit();
    let cpus = Cpus::choose()?;
    pin::pin_to(cpus.load)?;
    process::stop_everything_on_signals()?;
    Rig::new(tools, cpus, file_limit)
}

/// The named peers, or all that are there. Postrider and the relay are built, not installed: without them a run has no
/// subject or no floor, so their absence is an error unless others were asked for by name.
fn choose_peers(tools: &Tools, names: &[String]) -> Result<Vec<Peer>> {
    if !names.is_empty() {
        let peers = names.iter().map(|name| Peer::by_name(name)).collect::<Result<Vec<_>>>()?;
        for &peer in &peers {
            tools.path(peer)?;
        }
        return Ok(peers);
    }
    tools.path(Peer::Postrider)?;
    tools.path(Peer::Relay)?;
    let (present, absent): (Vec<Peer>, Vec<Peer>) = Peer::ALL.into_iter().partition(|&peer| tools.path(peer).is_ok());
    for peer in absent {
        eprintln!("left out: {} is not installed (bench/install.sh installs it)", peer.name());
    }
    Ok(present)
}

fn warn_about(rig: &Rig, peers: &[Peer]) {
    let foreign = machine::foreign_load(rig.cpus);
    if foreign > FOREIGN_LIMIT {
        eprintln!(
            "warning: other programs use {:.0} % of a CPU now; samples with more than {:.0} % will not count",
            foreign * 100.0,
            FOREIGN_LIMIT * 100.0
        );
    }
    for &peer in peers {
        let debug = rig.tools.path(peer).is_ok_and(|path| path.iter().any(|part| part == "debug"));
        if debug {
            eprintln!("warning: {} is a debug build; its figures mean nothing", peer.name());
        }
    }
}

fn measure(rig: &Rig, scenario: &Scenario, peers: &[Peer], variants: &[String], effort: Effort) -> Result<Outcome> {
    // The tracers are slow and the limits are Postrider's: the gates trace it alone, or the peers if it is not there.
    let traced = if peers.contains(&Peer::Postrider) { &[Peer::Postrider] } else { peers };
    Ok(match scenario.kind {
        Kind::Load(plan) => Outcome::Load(plan, load::measure(rig, &plan, peers, variants, effort)?),
        Kind::IdleConnections(idle) => Outcome::Idle(idle::connections(rig, idle, peers, effort)?),
        Kind::IdleClusters => Outcome::Idle(idle::clusters(rig, peers, effort)?),
        Kind::HandshakeStall => Outcome::Stall(stall::measure(rig, peers, effort)?),
        Kind::Instructions => Outcome::Instructions(
            traced
                .iter()
                .map(|&peer| Ok((peer, gate::instructions(rig, peer, Counted::GATE)?)))
                .collect::<Result<_>>()?,
        ),
        Kind::Statistics => Outcome::Statistics(
            traced.iter().map(|&peer| Ok((peer, gate::statistics(rig, peer)?))).collect::<Result<_>>()?,
        ),
        Kind::Syscalls => Outcome::Syscalls(
            traced
                .iter()
                .map(|&peer| gate::syscalls(rig, peer).map(|(count, each)| (peer, count, each)))
                .collect::<Result<_>>()?,
        ),
    })
}

fn write_report(directory: &Path, results: &Results) -> Result<()> {
    let write = |name: &str, content: String| {
        let path = directory.join(name);
        fs::write(&path, content).map_err(Error::io(format!("writing {}", path.display())))
    };
    fs::create_dir_all(directory).map_err(Error::io(format!("creating {}", directory.display())))?;
    write("RESULTS.md", report::markdown::render(results))?;
    write("results.json", format!("{:#}\n", report::json::render(results)))
}

fn verdict(passed: bool) -> ExitCode {
    println!("{}", if passed { "PASS" } else { "FAIL" });
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
