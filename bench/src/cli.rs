//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// Measures Postrider beside a byte relay, nginx, HAProxy and Envoy on this machine.
#[derive(Parser)]
#[command(name = "postrider-bench", version)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    /// Run scenarios and print a report
    Run(Run),
    /// Measure every plugin runtime side by side and print the table of scenario R1; Postrider and Envoy unless others are named
    R1(Run),
    /// How long a module of WebAssembly takes until it serves: compiled at the start, and kept from the start before
    ColdStart(ColdStart),
    /// What an Envoy Go filter costs before a proxy does anything for it: the SDK, called by a program that does nothing
    GoFloor {
        /// Rounds; medians are printed
        #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u16).range(1..))]
        rounds: u16,
    },
    /// List the scenarios and the proxies
    List,
    /// User instructions per request by callgrind; exit 1 above the limit
    GateInstructions(Gate),
    /// User instructions per request by callgrind in each shape of scenarios, and what they add to the first
    Instructions(Instructions),
    /// What the accounts of a plugin cost of a request's instructions, by callgrind; exit 1 above the limit
    GateAccounting(Gate),
    /// System calls per request by strace; exit 1 above the limit
    GateSyscalls(Gate),
    /// The bench's own upstream, started by the bench
    #[command(hide = true)]
    ServeOrigin {
        /// Bytes of the body
        #[arg(long)]
        body: usize,
        /// Requests that must be in flight before any is answered
        #[arg(long, default_value_t = 0)]
        hold: usize,
    },
    /// The bench's own gRPC upstream, started by the bench
    #[command(hide = true)]
    ServeGrpc,
    /// Bursts of TLS handshakes onto a loopback port, started by the bench
    #[command(hide = true)]
    Bursts { port: u16, seconds: u64 },
}

#[derive(Args)]
pub struct Run {
    /// Only these scenarios (may be repeated or separated by commas) [default: all]
    #[arg(long = "scenario", value_name = "NAME", value_delimiter = ',', num_args = 1..)]
    pub scenarios: Vec<String>,
    /// Rounds; in each one every proxy runs once
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    pub rounds: u16,
    /// Seconds of load in one sample
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..))]
    pub seconds: u16,
    /// How often a sample that other programs disturbed is taken again at once
    #[arg(long, default_value_t = 1)]
    pub retries: u8,
    /// Of scenarios that compare several things only these and what they are compared with
    #[arg(long = "variant", value_name = "NAME")]
    pub variants: Vec<String>,
    /// Only these proxies [default: all that are installed]
    #[arg(long, value_name = "NAMES", value_delimiter = ',', num_args = 1..)]
    pub peers: Vec<String>,
    /// The postrider program [default: the one beside this program]
    #[arg(long, value_name = "PATH")]
    pub postrider: Option<PathBuf>,
    /// Bytes that the relay takes by one receive, to check that its default is its best
    #[arg(long, value_name = "BYTES")]
    pub relay_buffer: Option<usize>,
    /// Write RESULTS.md and results.json into this directory
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Exit 1 when a target was measured and missed
    #[arg(long)]
    pub check: bool,
}

#[derive(Args)]
pub struct ColdStart {
    /// Starts of each kind; medians are printed
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    pub rounds: u16,
    /// The postrider program, a release build [default: the one beside this program]
    #[arg(long, value_name = "PATH")]
    pub postrider: Option<PathBuf>,
    /// Print JSON instead of a table
    #[arg(long)]
    pub json: bool,
    /// Exit 1 when a limit is missed
    #[arg(long)]
    pub check: bool,
}

#[derive(Args)]
pub struct Gate {
    /// The postrider program, a release build [default: the one beside this program]
    #[arg(long, value_name = "PATH")]
    pub postrider: Option<PathBuf>,
    /// Trace another proxy instead, to compare
    #[arg(long, value_name = "NAME", default_value = "postrider")]
    pub peer: String,
}

#[derive(Args)]
pub struct Instructions {
    /// Load scenarios over HTTP/1.1 without TLS (may be repeated or separated by commas)
    #[arg(long = "scenario", value_name = "NAME", value_delimiter = ',', num_args = 1.., required = true)]
    pub scenarios: Vec<String>,
    #[command(flatten)]
    pub of: Gate,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn scenarios_may_be_repeated_or_separated_by_commas() {
        let cli = Cli::parse_from(["postrider-bench", "run", "--scenario", "a,b", "--scenario", "c"]);
        let Command::Run(run) = cli.command else { panic!("not run") };
        assert_eq!(run.scenarios, ["a", "b", "c"]);
    }
}
