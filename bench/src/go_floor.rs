//! What an Envoy Go filter costs whoever calls it.
//!
//! The filter that does nothing is called as for one request, between the system calls that a request is to a proxy, by a program in
//! C (`bench/modules/go_floor.c`) that answers the library with nothing. No proxy can run the SDK as it is for less; what Postrider
//! adds beyond that is its own.

use std::fmt;
use std::process::Command;

use crate::error::{Error, Result};
use crate::peer::Tools;
use crate::pin::{self, Cpus};
use crate::plugin::{Plugin, Runtime, Task};
use crate::stats::Spread;

const REQUESTS: &str = "50000";

/// Microseconds of CPU a request.
#[derive(Debug, PartialEq)]
pub struct Floor {
    /// Of the thread that calls.
    thread: Spread,
    /// Of all threads: Go's collector and monitor have their own.
    process: Spread,
}

/// # Errors
/// The library or the program is not built, or the program failed.
pub fn measure(tools: &Tools, cpus: Cpus, rounds: u16) -> Result<Floor> {
    let library = tools.module(Plugin { runtime: Runtime::Golang, task: Task::Passthrough })?;
    let program = tools.go_floor()?;
    // All its threads share the proxy's CPU, as they do in every other row.
    pin::pin_to(cpus.proxy)?;
    let run = Command::new(program).arg(library).args([REQUESTS, &rounds.to_string()]).output();
    let run = run.map_err(Error::io("starting go_floor"))?;
    if !run.status.success() {
        let log = String::from_utf8_lossy(&run.stderr).into_owned();
        return Err(Error::Ended { name: "go_floor".to_owned(), status: run.status, log });
    }
    let output = String::from_utf8_lossy(&run.stdout);
    parse(&output).ok_or_else(|| Error::Unreadable { tool: "go_floor", output: output.into_owned() })
}

/// A line for each round: what the calling thread took more, and the process.
fn parse(output: &str) -> Option<Floor> {
    let rounds: Option<Vec<(f64, f64)>> = output
        .lines()
        .map(|line| {
            line.split_once(' ').and_then(|(thread, process)| Some((thread.parse().ok()?, process.parse().ok()?)))
        })
        .collect();
    let rounds = rounds?;
    let spread = |of: fn(&(f64, f64)) -> f64| Spread::of(rounds.iter().map(of));
    Some(Floor { thread: spread(|round| round.0)?, process: spread(|round| round.1)? })
}

impl fmt::Display for Floor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Go's SDK and a filter that does nothing, CPU that a request takes more")?;
        for (name, Spread { median, min, max, .. }) in [("calling thread", self.thread), ("all threads", self.process)]
        {
            writeln!(f, "  {name:<16} {median:>6.2} us [{min:.2}, {max:.2}]")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_round_is_a_line() {
        let floor = parse("3.291 5.081\n2.175 4.206\n2.706 4.439\n").unwrap();
        assert_eq!((floor.thread.median, floor.process.median, floor.process.count), (2.706, 4.439, 3));
        let shown = "Go's SDK and a filter that does nothing, CPU that a request takes more\n  \
                     calling thread     2.71 us [2.17, 3.29]\n  all threads        4.44 us [4.21, 5.08]\n";
        assert_eq!(floor.to_string(), shown);
        assert_eq!([parse(""), parse("1.0\n"), parse("1.0 2.0\nsomething else\n")], [None, None, None]);
    }
}
